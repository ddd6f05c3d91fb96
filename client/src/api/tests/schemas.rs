//! Schemas: each describes what its type prints or reads.

use super::inputs::{good, rewritten};
use super::*;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::{PartialSchema, ToSchema};

/// Schemas by name.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    fn add<T: ToSchema>(&mut self) {
        let mut schemas = vec![(T::name().into_owned(), <T as PartialSchema>::schema())];
        T::schemas(&mut schemas);
        for (name, schema) in schemas {
            let schema = serde_json::to_value(schema).expect("it is JSON");
            let known = self.0.entry(name.clone()).or_insert_with(|| schema.clone());
            assert_eq!(*known, schema, "two types have the name {name}");
        }
    }

    fn all() -> Schemas {
        let mut all = Schemas::default();
        macro_rules! add {
            ($($name:ident)+) => { $(all.add::<$name>();)+ };
        }
        add!(ErrorReport RefusalReport WriteAck UniqueAck MemberAck CancelAck LetterAck ExistingCopy HeldLetters BulkOutcome
            TransactionAck GrantedTask HeldClaim Session LogEntry Task GroupMember GroupProgress WatchNotice WatchEvent
            Explanation Count Finding Queue QueuePolicy Schedule ScheduleRemoval Node NodeCounters RingPlace Partition Status
            ChangeReport ClusterOverview RecoveryReport Invitation Lease Encoding);
        add!(ClaimInput HeldClaimInput LeaseInput RenewInput CompleteInput CompletionInput CompletionsInput FailInput UpdateInput
            CancelInput GroupCloseInput PurgeInput RedriveInput QueuePolicyInput BackoffInput ScheduleInput
            SessionOpenInput SessionInput ClusterChangeInput ChangeKindInput TaskInput JoinInput TasksInput
            TransactionInput);
        all
    }

    /// Follows a reference.
    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let Some(reference) = schema.get("$ref").and_then(Value::as_str) else { return schema };
        let name = reference.strip_prefix("#/components/schemas/").expect("a reference to a schema");
        self.0.get(name).unwrap_or_else(|| panic!("{name} is referred to, and there is no such schema"))
    }

    /// Returns the schemas that make a schema up, with itself.
    fn parts<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let schema = self.resolve(schema);
        let lists = ["allOf", "oneOf", "anyOf"].iter().filter_map(|name| schema.get(name)?.as_array());
        lists.flatten().flat_map(|part| self.parts(part)).chain([schema]).collect()
    }

    /// Checks a value. Returns what is wrong with it.
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = self.resolve(schema);
        let list = |name| schema.get(name).and_then(Value::as_array);
        for part in list("allOf").into_iter().flatten() {
            self.check(part, value)?;
        }
        if let Some(parts) = list("oneOf") {
            let results: Vec<_> = parts.iter().map(|part| self.check(part, value)).collect();
            let fit = results.iter().filter(|result| result.is_ok()).count();
            if fit != 1 {
                return Err(format!("{fit} of several schemas fit {value}: {results:?}"));
            }
        }
        if list("enum").is_some_and(|known| !known.contains(value)) {
            return Err(format!("{value} is none of {:?}", list("enum")));
        }
        self.check_type(schema, value)?;
        match value {
            Value::Object(fields) => self.check_object(schema, fields),
            Value::Array(values) => match schema.get("items") {
                Some(items) => values.iter().try_for_each(|value| self.check(items, value)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn check_type(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let names: Vec<&str> = match schema.get("type") {
            None => return Ok(()),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(name) => name.as_str().into_iter().collect(),
        };
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let low = schema.get("minimum").and_then(Value::as_f64);
        let below = low.zip(value.as_f64()).is_some_and(|(low, number)| number < low);
        match names.contains(&is) && !below {
            true => Ok(()),
            false => Err(format!("{value} is no {names:?} from {low:?}")),
        }
    }

    fn check_object(&self, schema: &Value, fields: &Map<String, Value>) -> Result<(), String> {
        if let Some(missing) = required(schema).find(|name| !fields.contains_key(*name)) {
            return Err(format!("{missing} is missing in {fields:?}"));
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, value) in fields {
            let about = |error| format!("{name}: {error}");
            match (properties.and_then(|properties| properties.get(name)), schema.get("additionalProperties")) {
                (Some(property), _) => self.check(property, value).map_err(about)?,
                (None, Some(Value::Bool(false))) => return Err(format!("{name} is not allowed")),
                (None, Some(others @ Value::Object(_))) => self.check(others, value).map_err(about)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Counts how often each property of each schema is there in a value, beside how often the schema is used.
    fn count(&self, schema: &Value, value: &Value, seen: &mut BTreeMap<String, (u32, BTreeMap<String, u32>)>) {
        if let Value::Array(values) = value {
            let items = self.parts(schema).into_iter().filter_map(|part| part.get("items"));
            return items.for_each(|items| values.iter().for_each(|value| self.count(items, value, seen)));
        }
        let Value::Object(fields) = value else { return };
        let parts = self.parts(schema);
        let properties: BTreeMap<&String, &Value> =
            parts.iter().filter_map(|part| part.get("properties")?.as_object()).flatten().collect();
        if properties.is_empty() {
            return;
        }
        let names: Vec<&&String> = properties.keys().filter(|name| fields.contains_key(**name)).collect();
        assert_eq!(names.len(), fields.len(), "all fields have a schema: {fields:?}, {names:?}");
        for part in parts {
            let Some(own) = part.get("properties").and_then(Value::as_object) else { continue };
            let (uses, there) = seen.entry(own.keys().cloned().collect::<Vec<_>>().join(" ")).or_default();
            *uses += 1;
            let optional = own.keys().filter(|name| !required(part).any(|required| required == *name));
            optional.for_each(|name| *there.entry(name.clone()).or_default() += u32::from(fields.contains_key(name)));
        }
        fields.iter().for_each(|(name, value)| self.count(properties[name], value, seen));
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns all names and texts, inputs included.
fn lines() -> Vec<(&'static str, &'static str)> {
    let answers = GOLDEN.lines().map(|line| line.split_once(' ').expect("a name and a sample"));
    answers.filter(|(name, _)| !name.ends_with("Input")).chain(good()).collect()
}

#[test]
fn what_is_printed_and_read_fits_its_schema() {
    let all = Schemas::all();
    let mut seen = BTreeMap::new();
    for (name, text) in lines() {
        let schema = all.0.get(name).unwrap_or_else(|| panic!("{name} has no schema"));
        let value: Value = serde_json::from_str(text).expect("it is JSON");
        assert_eq!(all.check(schema, &value), Ok(()), "{name} {text}\n{schema:#}");
        if !name.ends_with("Input") {
            all.count(schema, &value, &mut seen);
        }
    }
    // What is always printed is said to be, so that programs need not expect its absence.
    for (schema, (uses, there)) in seen {
        for (name, count) in there {
            assert!(count < uses, "{name} is always there, and not required: {schema}");
        }
    }
}

#[test]
fn what_may_be_left_out_of_an_input_is_what_its_schema_says() {
    let all = Schemas::all();
    let mut count = 0;
    for (name, text) in good() {
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else { continue };
        let schema = &all.0[name];
        for field in fields.keys().filter(|_| name != "ChangeKindInput") {
            let mut fewer = fields.clone();
            fewer.remove(field);
            let fewer = Value::Object(fewer);
            let read = for_input!(name, rewritten(&fewer.to_string()));
            assert_eq!(read.is_ok(), all.check(schema, &fewer).is_ok(), "{name} without {field}: {read:?}");
            count += 1;
        }
        // That a change is one at a time is no matter of its schema.
        for (field, value) in
            [("later", Value::from(1)), ("", Value::Null)].iter().filter(|_| name != "ChangeKindInput")
        {
            let more =
                Value::Object(fields.clone().into_iter().chain([((*field).to_owned(), value.clone())]).collect());
            assert!(all.check(schema, &more).is_err(), "{name} has no {field:?}");
        }
        for field in fields.keys() {
            let null = Value::Object(fields.clone().into_iter().chain([(field.clone(), Value::Null)]).collect());
            let read = for_input!(name, rewritten(&null.to_string()));
            // Lists and texts with a default take no `null` either.
            assert_eq!(read.is_ok(), all.check(schema, &null).is_ok(), "{name} with null for {field}: {read:?}");
        }
    }
    assert!(count > 60, "{count} fields");
}

#[test]
fn each_schema_is_described_in_plain_words() {
    fn descriptions<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
        match schema {
            Value::Object(fields) => {
                found.extend(fields.get("description").and_then(Value::as_str));
                fields.values().for_each(|value| descriptions(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| descriptions(value, found)),
            _ => {}
        }
    }
    let all = Schemas::all();
    for (name, schema) in &all.0 {
        let is_there = schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        assert!(is_there, "{name} is not described: {schema:#}");
        let mut found = Vec::new();
        descriptions(schema, &mut found);
        let odd = found.iter().find(|text| ["```", "[`", "](", "::"].iter().any(|link| text.contains(link)));
        assert_eq!(odd, None, "in {name}");
    }
}

#[test]
fn texts_are_strings_and_choices_have_their_names() {
    let all = Schemas::all();
    for name in ["TaskId", "Token", "TaskVersion", "NodeId", "ClusterId", "QueueName"] {
        let schema = &all.0[name];
        assert_eq!(schema["type"], "string", "{name}");
        assert!(schema["pattern"].is_string() && schema["examples"][0].is_string(), "{name}");
    }
    let names = |name: &str| -> BTreeSet<String> {
        let names = all.0[name]["enum"].as_array().unwrap_or_else(|| panic!("{name} has names"));
        names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    assert_eq!(names("State"), State::ALL.map(|state| state.name().to_owned()).into());
    assert_eq!(names("Guarantee"), ["strict".to_owned(), "sloppy".to_owned()].into());
    assert_eq!(names("Encoding"), ["utf8".to_owned(), "base64".to_owned()].into());
    assert_eq!(names("Order"), membership::Order::ALL.map(|order| order.name().to_owned()).into());
    assert!(names("ErrorCode").contains("id_from_future") && names("ClaimOutcome").contains("other"));
    // Two enumerations of causes, which are apart.
    assert!(names("ErrorCause").contains("unreached") && names("WhyCause").contains("waits_for"));
}
