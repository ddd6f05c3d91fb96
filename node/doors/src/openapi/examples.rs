//! Examples of answers that are too long to stand beside their operations: `examples.json` has one for each operation that it names.

use serde_json::{Map, Value};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

const TEXT: &str = include_str!("examples.json");

fn read() -> Map<String, Value> {
    // A test reads it.
    serde_json::from_str(TEXT).unwrap_or_default()
}

/// Sets the examples in a description.
pub fn set(document: &mut OpenApi) {
    let examples = read();
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            if let Some(example) = operation.operation_id.as_ref().and_then(|name| examples.get(name)) {
                illustrate(operation, example);
            }
        }
    }
}

/// Gives the first kind of each good answer the example.
fn illustrate(operation: &mut Operation, example: &Value) {
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && status.starts_with('2')
            && let Some(RefOr::T(content)) = response.content.values_mut().next()
        {
            content.example = Some(example.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_operation_shows_an_answer_and_each_example_has_its_operation() {
        let examples: Map<String, Value> = serde_json::from_str(TEXT).unwrap();
        let document = serde_json::to_value(crate::api::parts().1).unwrap();
        let mut names = BTreeSet::new();
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap();
                names.insert(name);
                let responses = operation["responses"].as_object().unwrap();
                let good = responses.iter().filter(|(status, _)| status.starts_with('2'));
                let mut kinds = good.filter_map(|(_, response)| response["content"].as_object()).flatten();
                assert!(kinds.any(|(_, media)| !media["example"].is_null()), "{name} shows no answer");
            }
        }
        assert!(examples.keys().all(|name| names.contains(name.as_str())), "an example is of no operation");
    }
}
