//! Walks over all operations of the description: what none of them may let pass.

use crate::testing::samples as with;
use crate::testing::{Door, Script, Told};
use axum::body::Body;
use axum::http::{Method, Request as HttpRequest};
use serde_json::{Value, json};

/// An operation of the description, and a request that it takes.
pub struct Operation {
    pub method: Method,
    /// The path with its placeholders.
    pub path: String,
    /// A path, with all that the query needs.
    pub target: String,
    pub body: Option<Value>,
    pub document: Value,
}

impl Operation {
    /// Its method and path.
    pub fn place(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Asks with more in the query, this body, and this key.
    async fn ask(&self, query: &str, body: &str, key: Option<&str>) -> Told {
        let join = if self.target.contains('?') { '&' } else { '?' };
        let target = if query.is_empty() { self.target.clone() } else { format!("{}{join}{query}", self.target) };
        let mut request = HttpRequest::builder().method(&self.method).uri(target);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let door = Door::new(Script::default());
        let told = door.send(request.body(Body::from(body.to_owned())).unwrap()).await;
        assert!(door.seen().is_empty(), "{}: the node was asked: {}", self.place(), told.body);
        told
    }

    fn takes_key(&self) -> bool {
        let mut parameters = self.document["parameters"].as_array().into_iter().flatten();
        parameters.any(|parameter| parameter["name"] == "Idempotency-Key")
    }
}

/// All operations of the description.
pub fn operations() -> Vec<Operation> {
    let document = serde_json::to_value(crate::api::parts().1).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, document) in item.as_object().unwrap() {
            let mut target = path.replace("{id}", with::ONE).replace("{token}", "2.1").replace("{n}", "0");
            for parameter in document["parameters"].as_array().into_iter().flatten() {
                if parameter["in"] == "query" && parameter["required"] == true {
                    target += &format!("?{}=x", parameter["name"].as_str().unwrap());
                }
            }
            if path == "/v1/watch" {
                target += "?queue=x";
            }
            let media = &document["requestBody"]["content"]["application/json"];
            let body = (!document["requestBody"].is_null()).then(|| media["example"].clone());
            assert_ne!(body, Some(Value::Null), "{method} {path}: its body has no example");
            let method = method.to_uppercase().parse().unwrap();
            operations.push(Operation { method, path: path.clone(), target, body, document: document.clone() });
        }
    }
    assert!(operations.len() >= 44, "{}", operations.len());
    operations
}

/// Asserts that a request was refused as invalid, with this in the words.
fn assert_invalid(place: &str, told: &Told, what: &str) {
    assert_eq!((told.status.as_u16(), &told.json()["code"]), (400, &json!("invalid")), "{place}: {}", told.body);
    let detail = told.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(what), "{place}: {detail}");
}

fn text(body: Option<&Value>) -> String {
    body.map(Value::to_string).unwrap_or_default()
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_everywhere_and_named() {
    for operation in operations() {
        let told = operation.ask("zz=1", &text(operation.body.as_ref()), None).await;
        assert_invalid(&operation.place(), &told, "\"zz\"");
        let told = operation.ask("%7a%7A", "", None).await;
        assert_invalid(&operation.place(), &told, "\"zz\"");
    }
}

#[tokio::test]
async fn a_body_that_an_operation_does_not_take_is_refused() {
    let mut walked = 0;
    for operation in operations().iter().filter(|operation| operation.body.is_none()) {
        for body in [r#"{"zz":1}"#, "[]", "zz"] {
            assert_invalid(&operation.place(), &operation.ask("", body, None).await, "no body");
        }
        walked += 1;
        if operation.method == Method::POST {
            let door = Door::new(Script::default());
            let told = door.call(Method::POST, &operation.target, " {} ").await;
            assert_eq!(told.json()["code"], "unsupported", "{}: {}", operation.place(), told.body);
        }
    }
    assert!(walked >= 20, "{walked}");
}

/// Bodies like this one, each with a field more in one of its objects.
fn with_a_field_more(body: &Value) -> Vec<Value> {
    let mut more = Vec::new();
    let free = ["headers"];
    match body {
        Value::Object(map) => {
            let mut wider = map.clone();
            wider.insert("zz".to_owned(), json!(1));
            more.push(Value::Object(wider));
            for (name, value) in map.iter().filter(|(name, _)| !free.contains(&name.as_str())) {
                for inner in with_a_field_more(value) {
                    let mut other = map.clone();
                    other.insert(name.clone(), inner);
                    more.push(Value::Object(other));
                }
            }
        }
        Value::Array(list) => {
            for (place, value) in list.iter().enumerate() {
                for inner in with_a_field_more(value) {
                    let mut other = list.clone();
                    other[place] = inner;
                    more.push(Value::Array(other));
                }
            }
        }
        _ => {}
    }
    more
}

#[tokio::test]
async fn an_unknown_field_is_refused_everywhere_and_named() {
    let mut walked = 0;
    for operation in operations() {
        let Some(body) = &operation.body else { continue };
        for body in with_a_field_more(body) {
            assert_invalid(&operation.place(), &operation.ask("", &body.to_string(), None).await, "zz");
            walked += 1;
        }
    }
    assert!(walked >= 25, "{walked}");
}

#[tokio::test]
async fn a_key_that_would_not_count_is_refused_everywhere() {
    let mut takes = Vec::new();
    for operation in operations() {
        if operation.takes_key() {
            takes.push(operation.place());
            continue;
        }
        let told = operation.ask("", &text(operation.body.as_ref()), Some("k")).await;
        assert_eq!((told.status.as_u16(), &told.json()["code"]), (501, &json!("unsupported")), "{}", operation.place());
        assert!(told.body.contains("Idempotency-Key"), "{}", told.body);
    }
    assert_eq!(takes, ["POST /v1/claims"]);
}

#[tokio::test]
async fn the_example_of_each_body_is_taken() {
    for operation in operations() {
        let Some(body) = &operation.body else { continue };
        let door = Door::new(Script::default());
        let answer = door.call(operation.method.clone(), &operation.target, &body.to_string()).await;
        assert!(!door.seen().is_empty(), "{} {body}: {}", operation.place(), answer.body);
        let is_told = answer.body.contains("\"code\":\"unsupported\"");
        assert!(is_told, "{}: the node was not asked: {}", operation.place(), answer.body);
    }
}

/// Places of numbers in the schemas of a body, with the bounds that they promise.
fn numbers(document: &Value, schema: &Value, place: &str, found: &mut Vec<(String, Option<i64>, Option<u64>)>) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_number = property["type"] == "integer" || property["type"][0] == "integer";
        if is_number {
            found.push((format!("{place}/{name}"), property["minimum"].as_i64(), property["maximum"].as_u64()));
        }
    }
    for inner in ["oneOf", "anyOf"].iter().flat_map(|list| schema[*list].as_array().into_iter().flatten()) {
        numbers(document, inner, place, found);
    }
}

/// Goal: a number beyond the bounds that the description promises is refused.
#[tokio::test]
async fn numbers_beyond_their_bounds_are_refused() {
    let document = serde_json::to_value(crate::api::parts().1).unwrap();
    let mut walked = 0;
    for operation in operations() {
        let Some(body) = operation.body.as_ref().filter(|body| body.is_object()) else { continue };
        let mut found = Vec::new();
        let schema = &operation.document["requestBody"]["content"]["application/json"]["schema"];
        numbers(&document, schema, "", &mut found);
        for (place, minimum, maximum) in found {
            let below = minimum.map(|minimum| json!(minimum - 1));
            let above = maximum.map(|maximum| json!(maximum + 1));
            for number in below.into_iter().chain(above) {
                let mut body = body.clone();
                body[place.trim_start_matches('/')] = number.clone();
                let told = operation.ask("", &body.to_string(), None).await;
                assert_eq!(told.status.as_u16(), 400, "{}: {place} = {number}: {}", operation.place(), told.body);
                walked += 1;
            }
        }
    }
    assert!(walked >= 40, "{walked}");
}
