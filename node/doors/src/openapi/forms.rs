//! Forms of values that their types in Rust do not tell: bounds of integers, in formats that generators know; patterns of ids and names,
//! which stand in many places; and payloads as they are.

use norn_wire::limits::{BATCH_TASKS_MAX, CLAIM_QUEUES_MAX, UPDATES_MAX};
use utoipa::Number;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::{AdditionalProperties, AnyOf, ArrayItems, Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Content, KnownFormat, OpenApi, RefOr, Response, Schema, SchemaFormat};

/// Media type of payloads as they are.
const OCTETS: &str = "application/octet-stream";
/// A task's id: `TaskId`. `o`, `i` and `l` are read as the digits that they look like.
const ID: &str = "^[0-9A-TV-Za-tv-z]{32}$";
/// Ids of tasks in a parameter.
const IDS: &str = "^[0-9A-TV-Za-tv-z]{32}(,[0-9A-TV-Za-tv-z]{32})*$";
/// `Token`.
const TOKEN: &str = r"^[0-9]{1,20}\.[0-9]{1,20}$";
/// `TaskVersion`.
const VERSION: &str = "^[0-9a-fA-F]{16}$";
/// `QueueName`.
const QUEUE: &str = r"^[^\s,/\u0000-\u001f\u007f-\u009f]+(/[^\s,/\u0000-\u001f\u007f-\u009f]+)?$";
/// Name of a schedule.
const SCHEDULE: &str = r"^[^\s\u0000-\u001f\u007f-\u009f-][^\s\u0000-\u001f\u007f-\u009f]*$";
/// Header in a parameter.
const HEADER: &str = "^[^=]+=";
/// Longest name of a queue or a schedule and longest key of a claim, in bytes; what is longer in characters is so in bytes, too.
const NAME_MAX: usize = 255;
/// Answers of several kinds, of which one kind has all fields of another: a page is a list of results, too, where it has no tasks.
const OVERLAPPING: [&str; 2] = ["Listed", "Outcome"];
/// Inputs that name one thing of several: an object with one field.
const ONE_FIELD: &str = "ChangeKindInput";
/// Lists in inputs, each with its schema and field, and the most of its items, of which there is at least one.
const LISTS: [(&str, &str, usize); 3] = [
    ("ClaimInput", "queues", CLAIM_QUEUES_MAX),
    ("RenewInput", "items", BATCH_TASKS_MAX),
    ("CompletionsInput", "items", BATCH_TASKS_MAX),
];
/// Largest integer of JSON that is read. No number of Norn comes near it.
const INTEGER_MAX: usize = i64::MAX as usize;

/// Sets the forms in a description.
pub fn set(document: &mut OpenApi) {
    if let Some(components) = &mut document.components {
        components.schemas.iter_mut().for_each(|(name, value)| schema(name, value));
        components.responses.values_mut().for_each(response);
        for (name, field, most) in LISTS {
            if let Some(RefOr::T(Schema::Object(object))) = components.schemas.get_mut(name)
                && let Some(RefOr::T(Schema::Array(list))) = object.properties.get_mut(field)
            {
                (list.min_items, list.max_items) = (Some(1), Some(most));
            }
        }
    }
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        operations.into_iter().flatten().for_each(operation);
    }
}

fn operation(operation: &mut Operation) {
    let lists = operation.operation_id.as_deref() == Some("list_tasks");
    for value in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(value) = value {
            parameter(value, lists);
        }
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.iter_mut().for_each(|(kind, value)| content(kind, value));
    }
    operation.responses.responses.values_mut().for_each(response);
}

fn response(response: &mut RefOr<Response>) {
    if let RefOr::T(response) = response {
        response.content.iter_mut().for_each(|(kind, value)| content(kind, value));
    }
}

/// Sets the forms of a parameter. A list goes on behind one task, while a task waits for several.
fn parameter(parameter: &mut Parameter, lists: bool) {
    let name = match (&parameter.parameter_in, parameter.name.as_str()) {
        (ParameterIn::Query, "after") if lists => "id",
        (ParameterIn::Query, "id" | "after") => "id,id",
        (ParameterIn::Query, "name") => "schedule",
        (_, name) => name,
    };
    if let ("n", Some(RefOr::T(Schema::Object(object)))) = (name, &mut parameter.schema) {
        object.maximum.get_or_insert(Number::UInt(UPDATES_MAX as usize - 1));
    }
    parameter.schema.iter_mut().for_each(|value| schema(name, value));
}

fn content(kind: &str, content: &mut RefOr<Content>) {
    let RefOr::T(content) = content else { return };
    if kind == OCTETS {
        let octets = ObjectBuilder::new().schema_type(Type::String).content_media_type(OCTETS);
        content.schema = Some(RefOr::T(Schema::Object(octets.build())));
    }
    content.schema.iter_mut().for_each(|value| schema("", value));
}

/// Sets the forms in a schema under the name of its field, its parameter or its own.
fn schema(name: &str, value: &mut RefOr<Schema>) {
    let RefOr::T(value) = value else { return };
    match value {
        Schema::Object(object) => self::object(name, object),
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                schema(singular(name), items);
            }
        }
        Schema::OneOf(one) => {
            one.items.iter_mut().for_each(|value| schema(name, value));
            if name == ONE_FIELD {
                one.items.iter_mut().for_each(close);
            }
            if OVERLAPPING.contains(&name) {
                let (items, description) = (std::mem::take(&mut one.items), one.description.take());
                *value = Schema::AnyOf(AnyOf { items, description, ..AnyOf::default() });
            }
        }
        Schema::AllOf(all) => all.items.iter_mut().for_each(|value| schema(name, value)),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(|value| schema(name, value)),
        _ => {}
    }
}

/// Denies other fields than those that an object is described with.
fn close(value: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::Object(object)) = value {
        object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    }
}

/// The name of an item of a list that has this name.
fn singular(name: &str) -> &str {
    match name {
        "ids" | "after" => "id",
        "queues" => "queue",
        other => other,
    }
}

fn object(name: &str, object: &mut Object) {
    object.properties.iter_mut().for_each(|(name, value)| schema(name, value));
    if let Some(AdditionalProperties::RefOr(value)) = object.additional_properties.as_deref_mut() {
        schema("", value);
    }
    integer(object);
    if has(object, &Type::String) && object.enum_values.is_none() && object.content_media_type.is_empty() {
        text(name, object);
    }
}

fn has(object: &Object, kind: &Type) -> bool {
    match &object.schema_type {
        SchemaType::Type(only) => only == kind,
        SchemaType::Array(kinds) => kinds.contains(kind),
        SchemaType::AnyValue => false,
    }
}

/// An unsigned integer has a bound, and a signed format that can hold it: no generator knows others, and then some take 32 bits.
fn integer(object: &mut Object) {
    let Some(SchemaFormat::KnownFormat(format)) = &object.format else { return };
    let (format, maximum) = match format {
        KnownFormat::UInt8 => (KnownFormat::Int32, usize::from(u8::MAX)),
        KnownFormat::UInt16 => (KnownFormat::Int32, usize::from(u16::MAX)),
        KnownFormat::UInt32 => (KnownFormat::Int64, u32::MAX as usize),
        KnownFormat::UInt64 => (KnownFormat::Int64, INTEGER_MAX),
        _ => return,
    };
    object.format = Some(SchemaFormat::KnownFormat(format));
    object.maximum.get_or_insert(Number::UInt(maximum));
}

fn text(name: &str, object: &mut Object) {
    let (pattern, length_max) = match name {
        "id" | "copy" | "near" | "group" | "session" | "next" | "TaskId" => (ID, None),
        "id,id" => (IDS, None),
        "token" | "Token" => (TOKEN, None),
        "version" => (VERSION, None),
        "queue" | "dead_letter" | "letters" | "to" | "QueueName" => (QUEUE, Some(NAME_MAX)),
        "schedule" => (SCHEDULE, Some(NAME_MAX)),
        "header" => (HEADER, None),
        "Idempotency-Key" => ("", Some(NAME_MAX)),
        _ => return,
    };
    if !pattern.is_empty() {
        object.pattern = Some(pattern.to_owned());
    }
    if length_max.is_some() {
        (object.min_length, object.max_length) = (Some(1), length_max);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    fn document() -> Value {
        serde_json::to_value(crate::api::parts().1).unwrap()
    }

    /// Fields that each value of a schema has.
    fn required(document: &Value, schema: &Value) -> BTreeSet<String> {
        let list = |name: &str| schema[name].as_array().cloned().unwrap_or_default();
        let referred = schema["$ref"].as_str().and_then(|place| document.pointer(place.strip_prefix('#')?));
        let inner = list("allOf").iter().chain(referred).flat_map(|part| required(document, part)).collect::<Vec<_>>();
        inner.into_iter().chain(list("required").iter().filter_map(|name| name.as_str().map(str::to_owned))).collect()
    }

    /// Calls `see` for each schema and each value around it.
    fn each(value: &Value, path: &str, see: &mut impl FnMut(&str, &Value)) {
        see(path, value);
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| each(value, &format!("{path}/{name}"), see)),
            Value::Array(list) => list.iter().for_each(|value| each(value, path, see)),
            _ => {}
        }
    }

    #[test]
    fn integers_are_bounded_and_in_formats_that_generators_know() {
        each(&document(), "", &mut |path, value| {
            if let Some(format) = value["format"].as_str().filter(|_| value["type"] == "integer") {
                assert!(["int32", "int64"].contains(&format), "{path}: {format}");
                let most = value["maximum"].as_u64();
                assert!(value["minimum"] != 0 || most.is_some(), "{path}: it has no maximum");
                assert!(
                    format == "int64" || most.is_none_or(|most| most <= i32::MAX as u64),
                    "{path}: {most:?} in 32 bits"
                );
            }
        });
    }

    #[test]
    fn ids_and_names_have_their_patterns_wherever_they_stand() {
        let document = document();
        let parameter =
            |place: &str, number: usize| document.pointer(place).unwrap()["parameters"][number]["schema"].clone();
        assert_eq!(parameter("/paths/~1v1~1tasks~1{id}/get", 0)["pattern"], super::ID);
        assert_eq!(parameter("/paths/~1v1~1tasks~1{id}~1claims~1{token}~1fail/post", 1)["pattern"], super::TOKEN);
        assert_eq!(parameter("/paths/~1v1~1tasks/get", 0)["pattern"], super::IDS);
        let schemas = &document["components"]["schemas"];
        for (name, place, pattern) in [
            ("ClaimInput", "/properties/queues/items", super::QUEUE),
            ("TaskInput", "/properties/queue", super::QUEUE),
            ("TaskInput", "/properties/after/items", super::ID),
            ("QueueName", "", super::QUEUE),
            ("TaskId", "", super::ID),
        ] {
            assert_eq!(schemas[name].pointer(place).unwrap()["pattern"], pattern, "{name}{place}");
        }
    }

    #[test]
    fn one_of_several_kinds_is_told_from_the_others_by_its_fields() {
        let document = document();
        each(&document, "", &mut |path, value| {
            let kinds = value["oneOf"].as_array().cloned().unwrap_or_default();
            let kinds: Vec<_> =
                kinds.iter().map(|kind| required(&document, kind)).filter(|kind| !kind.is_empty()).collect();
            for (index, kind) in kinds.iter().enumerate() {
                let within = kinds.iter().enumerate().any(|(other, more)| other != index && kind.is_subset(more));
                assert!(!within, "{path}: {kind:?} are fields of another kind, too: it belongs to OVERLAPPING");
            }
        });
    }

    #[test]
    fn lists_and_choices_of_inputs_are_as_large_as_they_are_taken() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        for (name, field, most) in super::LISTS {
            let list = &schemas[name]["properties"][field];
            assert_eq!(
                (list["minItems"].as_u64(), list["maxItems"].as_u64()),
                (Some(1), Some(most as u64)),
                "{name}: {field}"
            );
        }
        let kinds = schemas[super::ONE_FIELD]["oneOf"].as_array().unwrap();
        assert!(kinds.iter().all(|kind| kind["additionalProperties"] == false), "{kinds:?}");
    }

    #[test]
    fn payloads_are_bytes() {
        let schema = json!({ "type": "string", "contentMediaType": super::OCTETS });
        each(&document(), "", &mut |path, value| {
            if let Some(content) = value.get(super::OCTETS) {
                assert_eq!(content["schema"], schema, "{path}");
            }
        });
    }
}
