//! OpenAPI 3.0 from 3.1, mechanically. What 3.0 cannot say of a value is left out, so that the older description allows more, never less.

use serde_json::{Map, Value, json};

/// Version of what is derived.
const VERSION: &str = "3.0.3";
/// Words of schemas in 3.1 that have no counterpart in 3.0.
const UNKNOWN: [&str; 20] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$schema",
    "contains",
    "contentSchema",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "patternProperties",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Derives the older description.
pub fn derived(mut document: Value) -> Value {
    if let Value::Object(map) = &mut document {
        map.insert("openapi".to_owned(), VERSION.into());
        map.remove("webhooks");
        map.remove("jsonSchemaDialect");
        if let Some(Value::Object(info)) = map.get_mut("info") {
            info.remove("summary");
            if let Some(Value::Object(license)) = info.get_mut("license") {
                license.remove("identifier");
            }
        }
        if let Some(Value::Object(components)) = map.get_mut("components") {
            components.remove("pathItems");
        }
    }
    walk(&mut document);
    document
}

/// Finds the schemas in what is no schema itself.
fn walk(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(walk),
        Value::Object(map) => {
            for (name, value) in map {
                match (name.as_str(), &mut *value) {
                    ("schema", value) => schema(value),
                    ("schemas", Value::Object(schemas)) => schemas.values_mut().for_each(schema),
                    // Values of the interface itself: they are not descriptions.
                    ("example" | "examples" | "default", _) => {}
                    (_, value) => walk(value),
                }
            }
        }
        _ => {}
    }
}

/// Rewrites a schema, from the inside out.
fn schema(value: &mut Value) {
    // `true` and `{}` allow anything. No value matches `false`, which 3.0 cannot say but as this.
    match value {
        Value::Bool(true) => *value = json!({}),
        Value::Bool(false) => *value = json!({ "not": {} }),
        _ => {}
    }
    let Value::Object(map) = value else { return };
    for word in UNKNOWN {
        map.remove(word);
    }
    inner(map);
    if let Some(only) = map.remove("const") {
        map.insert("enum".to_owned(), json!([only]));
    }
    if let Some(Value::Array(examples)) = map.remove("examples")
        && let Some(first) = examples.into_iter().next()
    {
        map.entry("example").or_insert(first);
    }
    content(map);
    bounds(map);
    nullable(map);
    types(map);
    referenced(map);
}

/// Rewrites the schemas in a schema.
fn inner(map: &mut Map<String, Value>) {
    for name in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(list)) = map.get_mut(name) {
            // A type of nothing but `null` is read by the schema around it, before it is rewritten.
            list.iter_mut().filter(|value| !is_null(value)).for_each(schema);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
    if map.remove("prefixItems").is_some() {
        map.insert("items".to_owned(), json!({}));
    }
    for name in ["items", "not"] {
        map.get_mut(name).into_iter().for_each(schema);
    }
    if let Some(rest) = map.get_mut("additionalProperties").filter(|rest| rest.is_object()) {
        schema(rest);
    }
}

fn is_null(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "null")
}

/// Encoded content is a format.
fn content(map: &mut Map<String, Value>) {
    let encoding = map.remove("contentEncoding");
    let media_type = map.remove("contentMediaType");
    let format = match (encoding.as_ref().and_then(Value::as_str), media_type) {
        (Some("base64"), _) => "byte",
        (None, Some(_)) => "binary",
        _ => return,
    };
    map.entry("format").or_insert(format.into());
}

/// A bound that excludes itself is a flag beside the bound.
fn bounds(map: &mut Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(limit) = map.get(exclusive).filter(|limit| limit.is_number()).cloned() {
            map.insert(bound.to_owned(), limit);
            map.insert(exclusive.to_owned(), true.into());
        }
    }
}

/// An alternative that is `null` is a flag.
fn nullable(map: &mut Map<String, Value>) {
    for name in ["oneOf", "anyOf"] {
        let Some(Value::Array(list)) = map.get_mut(name) else { continue };
        let before = list.len();
        list.retain(|value| !is_null(value));
        if list.len() == before {
            continue;
        }
        // Without a type of its own, a schema cannot be nullable by the letter of 3.0; generators read it as meant.
        let rest = std::mem::take(list);
        map.remove(name);
        map.insert("nullable".to_owned(), true.into());
        match <[Value; 1]>::try_from(rest) {
            Ok([only]) => alternative(map, only),
            Err(rest) if rest.is_empty() => {}
            Err(rest) => drop(map.insert(name.to_owned(), rest.into())),
        }
    }
}

/// Says the only alternative to `null` in the schema around it. In a list within a list, generators do not find what it refers to.
fn alternative(map: &mut Map<String, Value>, only: Value) {
    let is_told_apart = |(name, _): (&String, &Value)| name == "description" || !map.contains_key(name);
    match only {
        Value::Object(only) if only.iter().all(is_told_apart) => {
            for (name, value) in only {
                map.entry(name).or_insert(value);
            }
        }
        only => drop(map.insert("allOf".to_owned(), json!([only]))),
    }
}

/// A list of types is one type, which may be `null`, or alternatives.
fn types(map: &mut Map<String, Value>) {
    let kinds = match map.remove("type") {
        Some(Value::Array(kinds)) => kinds,
        Some(Value::String(kind)) if kind == "null" => vec![kind.into()],
        Some(kind) => return drop(map.insert("type".to_owned(), kind)),
        None => return,
    };
    let (null, kinds): (Vec<Value>, Vec<Value>) = kinds.into_iter().partition(|kind| kind == "null");
    if !null.is_empty() {
        map.insert("nullable".to_owned(), true.into());
    }
    match <[Value; 1]>::try_from(kinds) {
        Ok([kind]) => drop(map.insert("type".to_owned(), kind)),
        Err(kinds) if kinds.is_empty() => drop(map.insert("enum".to_owned(), json!([null]))),
        Err(kinds) => {
            let each: Vec<Value> = kinds.into_iter().map(|kind| json!({ "type": kind })).collect();
            map.insert("anyOf".to_owned(), each.into());
        }
    }
}

/// Beside a reference nothing else is read, so that it moves into a list of one.
fn referenced(map: &mut Map<String, Value>) {
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Checks that a description has no construct of 3.1 alone.
    pub fn check(document: &Value) {
        let mut places = vec![(String::new(), document, false)];
        while let Some((path, value, is_schema)) = places.pop() {
            let Value::Object(map) = value else {
                if let Value::Array(list) = value {
                    places.extend(list.iter().map(|value| (path.clone(), value, is_schema)));
                }
                continue;
            };
            if is_schema {
                check_schema(&path, map);
            }
            for (name, value) in map {
                let path = format!("{path}/{name}");
                match (name.as_str(), is_schema) {
                    ("example" | "examples" | "default" | "enum", _) => {}
                    ("schemas", false) | ("properties", true) => {
                        let each = value.as_object().unwrap().iter();
                        places.extend(each.map(|(name, value)| (format!("{path}/{name}"), value, true)));
                    }
                    ("schema", false) => places.push((path, value, true)),
                    ("webhooks" | "jsonSchemaDialect" | "identifier" | "pathItems", false) => panic!("{path}"),
                    _ => places.push((path, value, is_schema)),
                }
            }
        }
    }

    fn check_schema(path: &str, map: &Map<String, Value>) {
        for word in UNKNOWN.iter().chain(&["const", "examples", "prefixItems", "contentEncoding", "contentMediaType"]) {
            assert!(!map.contains_key(*word), "{path}: {word}");
        }
        if let Some(kind) = map.get("type") {
            assert!(kind.is_string() && kind != "null", "{path}: type {kind}");
        }
        for bound in ["exclusiveMinimum", "exclusiveMaximum"] {
            assert!(map.get(bound).is_none_or(Value::is_boolean), "{path}: {bound}");
        }
        assert!(!map.contains_key("$ref") || map.len() == 1, "{path}: beside a reference nothing is read");
    }

    #[test]
    fn a_schema_says_the_same_in_the_words_of_3_0() {
        for (newer, older) in [
            (json!({ "type": ["string", "null"] }), json!({ "type": "string", "nullable": true })),
            (
                json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/a" }], "description": "x" }),
                json!({ "allOf": [{ "$ref": "#/a" }], "nullable": true, "description": "x" }),
            ),
            (
                json!({ "oneOf": [{ "$ref": "#/a", "description": "x" }, { "type": "null" }] }),
                json!({ "allOf": [{ "$ref": "#/a" }], "nullable": true, "description": "x" }),
            ),
            (
                json!({ "oneOf": [{ "type": "integer", "minimum": 1 }, { "type": "null" }], "description": "x" }),
                json!({ "type": "integer", "minimum": 1, "nullable": true, "description": "x" }),
            ),
            (
                json!({ "anyOf": [{ "type": "null" }, { "type": "integer" }, { "$ref": "#/a" }] }),
                json!({ "anyOf": [{ "type": "integer" }, { "$ref": "#/a" }], "nullable": true }),
            ),
            (json!({ "$ref": "#/a", "description": "x" }), json!({ "allOf": [{ "$ref": "#/a" }], "description": "x" })),
            (json!({ "$ref": "#/a" }), json!({ "$ref": "#/a" })),
            (json!({ "const": 3 }), json!({ "enum": [3] })),
            (json!({ "type": "string", "examples": ["a", "b"] }), json!({ "type": "string", "example": "a" })),
            (json!({ "exclusiveMinimum": 0 }), json!({ "minimum": 0, "exclusiveMinimum": true })),
            (
                json!({ "type": ["string", "integer"] }),
                json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            ),
            (
                json!({ "type": "string", "contentMediaType": "application/octet-stream" }),
                json!({ "type": "string", "format": "binary" }),
            ),
            (
                json!({ "type": "object", "propertyNames": { "type": "string" }, "additionalProperties": { "const": 1 } }),
                json!({ "type": "object", "additionalProperties": { "enum": [1] } }),
            ),
            (
                json!({ "properties": { "type": { "type": ["null", "boolean"] }, "const": { "type": "string" } } }),
                json!({ "properties": { "type": { "type": "boolean", "nullable": true }, "const": { "type": "string" } } }),
            ),
        ] {
            let document = derived(json!({ "components": { "schemas": { "It": newer } } }));
            assert_eq!(document["components"]["schemas"]["It"], older);
            check(&document);
        }
    }
}
