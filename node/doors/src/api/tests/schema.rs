//! A check of values against the schemas of the description, with the keywords that it uses.

use serde_json::Value;

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other} is not known"),
    }
}

/// Why a value does not fit a schema.
pub fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return check(document, document.pointer(reference.trim_start_matches('#')).unwrap(), value);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
        return Err(format!("{value} is no {kinds:?}"));
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        return Err(format!("{value} is none of {}", schema["enum"]));
    }
    let fitting = |list: &str| {
        schema[list].as_array().map(|all| all.iter().filter(|one| check(document, one, value).is_ok()).count())
    };
    if fitting("anyOf") == Some(0) || fitting("oneOf").is_some_and(|count| count != 1) {
        return Err(format!("{value} fits {:?} of {schema}", fitting("oneOf").or(fitting("anyOf"))));
    }
    schema["allOf"].as_array().into_iter().flatten().try_for_each(|one| check(document, one, value))?;
    if let (Some(number), Some(minimum)) = (value.as_f64(), schema["minimum"].as_f64())
        && number < minimum
    {
        return Err(format!("{value} is less than {minimum}"));
    }
    match value {
        Value::Array(list) if schema["items"].is_object() => {
            list.iter().try_for_each(|one| check(document, &schema["items"], one))
        }
        Value::Object(fields) => check_fields(document, schema, fields),
        _ => Ok(()),
    }
}

fn check_fields(document: &Value, schema: &Value, fields: &serde_json::Map<String, Value>) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{name} is missing in {fields:?}"));
        }
    }
    for (name, value) in fields {
        let rest = &schema["additionalProperties"];
        let inner = match &schema["properties"][name] {
            Value::Null if *rest == Value::Bool(false) => return Err(format!("{name} is not described")),
            Value::Null if rest.is_object() => rest,
            Value::Null => continue,
            known => known,
        };
        check(document, inner, value).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[test]
fn examples_fit_their_schemas() {
    let document = serde_json::to_value(crate::api::parts().1).unwrap();
    let mut checked = 0;
    for operation in super::walks::operations() {
        let responses = operation.document["responses"].as_object().unwrap().values();
        let contents =
            responses.chain([&operation.document["requestBody"]]).filter_map(|one| one["content"].as_object());
        for (kind, media) in
            contents.flatten().filter(|(kind, media)| *kind == "application/json" && !media["example"].is_null())
        {
            let fits = check(&document, &media["schema"], &media["example"]);
            assert_eq!(fits, Ok(()), "{} {kind}", operation.place());
            checked += 1;
        }
    }
    assert!(checked >= 40, "{checked}");
}
