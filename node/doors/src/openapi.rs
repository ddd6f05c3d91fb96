//! The description of `/v1` as OpenAPI: 3.1 as it comes from the code, and 3.0 derived from it for generators that read no other.

pub mod examples;
pub mod forms;
mod older;

use crate::answer::JSON;
use crate::state::State;
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use utoipa::openapi::OpenApi;

/// Place of the description.
pub const PLACE: &str = "/v1/openapi.json";
/// Place of the same in version 3.0.
pub const PLACE_OLDER: &str = "/v1/openapi-3.0.json";

/// The description as text, the same at each node of this version.
pub fn text(document: &OpenApi) -> Result<String, serde_json::Error> {
    document.to_pretty_json().map(|text| text + "\n")
}

/// The description in version 3.0 as text.
fn text_older(document: &OpenApi) -> Result<String, serde_json::Error> {
    let value = older::derived(serde_json::to_value(document)?);
    serde_json::to_string_pretty(&value).map(|text| text + "\n")
}

/// The routes that serve the description. It is written once.
pub fn router(document: &OpenApi) -> Router<Arc<State>> {
    static TEXTS: OnceLock<[Bytes; 2]> = OnceLock::new();
    // A test writes both. What could not be written is an empty answer, which no reader takes for a description.
    let write = || [text(document), text_older(document)].map(|text| Bytes::from(text.unwrap_or_default()));
    let [newer, older] = TEXTS.get_or_init(write).clone();
    let serve = |text: Bytes| get(move || async move { ([(header::CONTENT_TYPE, JSON)], text).into_response() });
    Router::new().route(PLACE, serve(newer)).route(PLACE_OLDER, serve(older))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn document() -> OpenApi {
        crate::api::parts().1.clone()
    }

    fn value() -> Value {
        serde_json::to_value(document()).unwrap()
    }

    /// Calls `see` for each object of a value, with the path to it.
    fn objects(value: &Value, path: &str, see: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
        match value {
            Value::Object(map) => {
                see(path, map);
                map.iter().for_each(|(name, value)| objects(value, &format!("{path}/{name}"), see));
            }
            Value::Array(list) => list.iter().for_each(|value| objects(value, path, see)),
            _ => {}
        }
    }

    fn operations(value: &Value) -> Vec<(String, Value)> {
        let paths = value["paths"].as_object().unwrap();
        let of = |(path, item): (&String, &Value)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(|(method, operation)| (format!("{method} {path}"), operation.clone())).collect::<Vec<_>>()
        };
        paths.iter().flat_map(of).collect()
    }

    #[test]
    fn the_committed_description_is_that_of_the_code() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../client/docs/openapi.json");
        let text = text(&document()).unwrap();
        if std::env::var_os("NORN_BLESS").is_some() {
            std::fs::write(&file, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == text, "{} is not that of the code; NORN_BLESS=1 writes it anew", file.display());
    }

    #[test]
    fn the_description_says_what_it_is_and_where() {
        let value = value();
        assert!(value["openapi"].as_str().unwrap().starts_with("3.1"));
        assert_eq!(value["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(value["info"]["license"]["identifier"], "Apache-2.0");
        assert_eq!(value["servers"][0]["url"], "/");
        assert!(value["components"]["schemas"]["Problem"]["properties"]["code"].is_object());
    }

    #[test]
    fn each_operation_is_described_with_a_name_a_tag_an_answer_and_its_refusals() {
        let value = value();
        let tags: BTreeSet<&str> =
            value["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
        let mut names = BTreeSet::new();
        for (place, operation) in operations(&value) {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(names.insert(name), "{place}: its name is taken");
            let tag = operation["tags"][0].as_str().unwrap_or_default();
            assert!(tags.contains(tag), "{place}: tag {tag:?}");
            assert!(operation["summary"].is_string(), "{place}: no summary");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("default"), "{place}: no refusals");
            assert!(responses.keys().any(|status| status.starts_with('2')), "{place}: no answer");
        }
    }

    #[test]
    fn parameters_are_typed_and_never_null() {
        for (place, operation) in operations(&value()) {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let (name, schema) = (&parameter["name"], &parameter["schema"]);
                let is_typed = schema["type"].is_string() || schema["$ref"].is_string();
                assert!(is_typed, "{place}: {name} is {schema}");
                objects(schema, "", &mut |_, map| {
                    assert_ne!(map.get("type").and_then(Value::as_str), Some("null"), "{place}: {name}");
                });
                // What a path names is plain from its segment.
                let is_explained = parameter["in"] == "path" || parameter["description"].is_string();
                assert!(is_explained, "{place}: {name} is not explained");
            }
        }
    }

    #[test]
    fn no_default_is_null_and_each_number_of_an_input_has_bounds() {
        let value = value();
        objects(&value, "", &mut |path, map| assert_ne!(map.get("default"), Some(&Value::Null), "{path}"));
        for (name, schema) in value["components"]["schemas"].as_object().unwrap() {
            if !name.ends_with("Input") {
                continue;
            }
            objects(schema, name, &mut |path, map| {
                let is_number = match map.get("type") {
                    Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "integer"),
                    kind => kind.is_some_and(|kind| kind == "integer"),
                };
                // A format of 32 bits bounds its numbers, too.
                let is_bounded = map.contains_key("maximum")
                    || map.get("format").is_some_and(|format| format.as_str().unwrap().ends_with("32"));
                assert!(!is_number || is_bounded, "{path}: {map:?}");
            });
        }
    }

    #[test]
    fn each_reference_leads_somewhere_in_both_versions() {
        for value in [value(), older::derived(value())] {
            objects(&value, "", &mut |path, map| {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    let place = reference.strip_prefix('#').unwrap();
                    assert!(value.pointer(place).is_some(), "{path}: {reference}");
                }
            });
        }
    }

    #[test]
    fn version_3_0_has_nothing_that_only_3_1_knows() {
        let value = older::derived(value());
        assert_eq!(value["openapi"], "3.0.3");
        older::tests::check(&value);
        assert_eq!(operations(&value).len(), operations(&self::value()).len());
    }
}
