//! Child tasks of a completion, as read from a JSON file.

use super::Draft;
use super::error::Failure;
use super::parse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use norn_wire::group::{Join, MemberOf};
use norn_wire::limits::{CHILDREN_BYTES_MAX, GROUP_MEMBERS_MAX};
use norn_wire::{QueueName, Spec, TaskId};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

/// Largest file: room for the fields besides the tasks' data, and for the encoding of the data.
pub(super) const FILE_BYTES_MAX: usize = 4 * CHILDREN_BYTES_MAX;

/// Content of the file: one task or several.
struct File(Vec<Child>);

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a task or a list of tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<File, A::Error> {
        Ok(File(vec![Child::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<File, A::Error> {
        let mut children = Vec::new();
        let wrong = |place: usize, error| A::Error::custom(format!("task {place}: {error}"));
        while let Some(Object(child)) = list.next_element().map_err(|error| wrong(children.len() + 1, error))? {
            children.push(child);
        }
        Ok(File(children))
    }
}

/// Names the fields of an object, for errors about something else.
pub(super) trait Shape {
    const SHAPE: &'static str;
}

/// Object with named fields. A list of values in the order of the fields is refused: it does not show what they mean.
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de> + Shape> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Shape> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(T::SHAPE)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Fields(PhantomData)).map(Object)
    }
}

/// Whole number within bounds that a refusal names; absent for `null`.
struct Whole {
    low: i64,
    high: i64,
}

impl Visitor<'_> for Whole {
    type Value = Option<i64>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a whole number from {} to {}", self.low, self.high)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        match (self.low..=self.high).contains(&number) {
            true => Ok(Some(number)),
            false => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    deserializer: D,
    low: i64,
    high: i64,
) -> Result<Option<T>, D::Error> {
    let number = deserializer.deserialize_any(Whole { low, high })?;
    let fit = |number| T::try_from(number).map_err(|_| D::Error::custom("a number out of its bounds"));
    number.map(fit).transpose()
}

pub(super) fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    whole(deserializer, i32::MIN.into(), i32::MAX.into())
}

/// Reads the limit of attempts: none if left out or 0, as tasks are shown. In a change of a task, 0 removes its limit.
pub(super) fn attempts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    whole(deserializer, 0, u32::MAX.into())
}

fn member<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    whole(deserializer, 1, GROUP_MEMBERS_MAX.into())
}

fn total<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let total = whole(deserializer, 0, GROUP_MEMBERS_MAX.into())?;
    total.ok_or_else(|| D::Error::invalid_type(Unexpected::Unit, &Whole { low: 0, high: GROUP_MEMBERS_MAX.into() }))
}

/// Reads headers. A name given twice is refused as a mistake, since one of its values would be lost.
pub(super) fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Headers;
    impl<'de> Visitor<'de> for Headers {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("names with a text each")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut headers = BTreeMap::new();
            while let Some((name, value)) = map.next_entry::<String, String>()? {
                if headers.contains_key(&name) {
                    return Err(A::Error::custom(format!("header {name:?} is given twice; a name has one value")));
                }
                headers.insert(name, value);
            }
            Ok(headers)
        }
    }
    deserializer.deserialize_map(Headers)
}

/// Fields of a child. They are those of `enqueue`, named as in `get --json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Child {
    queue: String,
    #[serde(default)]
    data: String,
    data_encoding: Option<String>,
    #[serde(default, deserialize_with = "priority")]
    priority: Option<i32>,
    delay: Option<String>,
    at: Option<String>,
    #[serde(default, alias = "attempts_max", deserialize_with = "attempts")]
    max_attempts: Option<u32>,
    #[serde(default, deserialize_with = "headers")]
    headers: BTreeMap<String, String>,
    id: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    key: Option<String>,
    join: Option<Object<JoinFields>>,
    #[serde(default, deserialize_with = "member")]
    number: Option<u32>,
}

impl Shape for Child {
    const SHAPE: &'static str = "a task as an object with `queue`";
}

impl Shape for JoinFields {
    const SHAPE: &'static str = "an object with `total`";
}

/// Fields of a join, which waits for those of the tasks that have a number.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinFields {
    #[serde(deserialize_with = "total")]
    total: u32,
    #[serde(default)]
    fail_fast: bool,
}

/// Reads the tasks of a file.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Draft>, Failure> {
    let wrong = |error: serde_json::Error| Failure::invalid(format!("--then is no list of tasks in JSON: {error}"));
    let File(children) = serde_json::from_slice(bytes).map_err(wrong)?;
    let read = |(place, child)| {
        draft(child).map_err(|error| Failure::invalid(format!("task {} of --then: {error}", place + 1)))
    };
    let drafts = children.into_iter().enumerate().map(read).collect::<Result<Vec<Draft>, Failure>>()?;
    check_numbers(&drafts)?;
    Ok(drafts)
}

/// Checks the members' numbers against the join among the tasks.
fn check_numbers(drafts: &[Draft]) -> Result<(), Failure> {
    let groupings = || drafts.iter().filter_map(|draft| draft.spec.grouping.as_deref());
    let join = groupings().find_map(|grouping| grouping.join);
    let mut numbers = BTreeSet::new();
    for (place, draft) in drafts.iter().enumerate() {
        let Some(MemberOf { number, .. }) = draft.spec.grouping.as_ref().and_then(|grouping| grouping.member) else {
            continue;
        };
        let problem = match join {
            None => "it has a number, but none of the tasks is a join".to_owned(),
            Some(Join { total: Some(total), .. }) if !(1..=total).contains(&number) => {
                format!("number {number} is none of 1 to {total}, the total of the join")
            }
            Some(_) if !numbers.insert(number) => format!("another one has number {number}, too"),
            Some(_) => continue,
        };
        return Err(Failure::invalid(format!("task {} of --then: {problem}", place + 1)));
    }
    Ok(())
}

/// Decodes the bytes of a field.
pub(super) fn decode(text: String, encoding: Option<&str>, field: &str) -> Result<Vec<u8>, String> {
    match encoding {
        None | Some("utf8") => Ok(text.into_bytes()),
        Some("base64") => STANDARD.decode(&text).map_err(|error| format!("{field} is not base64: {error}")),
        Some(other) => Err(format!("{field}_encoding is utf8 or base64, not {other:?}")),
    }
}

/// Builds the draft of a child.
pub(super) fn draft(child: Child) -> Result<Draft, String> {
    let payload = decode(child.data, child.data_encoding.as_deref(), "data")?;
    let spec = Spec {
        queue: QueueName::new(&child.queue).map_err(|error| error.to_string())?,
        payload,
        priority: child.priority.unwrap_or(0),
        not_before_ms: child.at.as_deref().map(parse::instant_ms).transpose()?.unwrap_or(0),
        headers: child.headers.into_iter().collect(),
        attempts_max: child.max_attempts.unwrap_or(0),
        after: child
            .after
            .iter()
            .map(|id| id.parse().map_err(|error| format!("{error}")))
            .collect::<Result<_, String>>()?,
        key: child.key,
        grouping: None,
        revision: None,
    };
    if child.join.is_some() && child.number.is_some() {
        return Err("it is a join or has a number, not both: a join is no member of its own group".to_owned());
    }
    let id = child.id.map(|id| id.parse().map_err(|error| format!("{error}"))).transpose()?;
    let delay_ms = child.delay.as_deref().map(parse::duration_ms).transpose()?.unwrap_or(0);
    let draft = Draft { id, spec, delay_ms, near: None };
    Ok(match (child.join, child.number) {
        (Some(Object(join)), _) => draft.join(Some(join.total), join.fail_fast),
        // The id of the join, set later, determines the group.
        (None, Some(number)) => draft.member_of(TaskId::MIN, number),
        (None, None) => draft,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_or_a_list_is_read_with_all_that_enqueue_knows() {
        let one = read(br#"{"queue": "mail", "data": "hello"}"#).unwrap();
        assert_eq!(one, vec![Draft::new(QueueName::new("mail").unwrap(), "hello")]);
        let list = br#"[{"queue": "a/b", "data": "AAE=", "data_encoding": "base64", "priority": -2, "delay": "1m30s",
            "max_attempts": 3, "headers": {"k": "v"}}, {"queue": "c", "at": "2030-01-31T09:30:00Z"}]"#;
        let several = read(list).unwrap();
        assert_eq!(several[0].spec.payload, [0, 1]);
        assert_eq!((several[0].spec.priority, several[0].delay_ms, several[0].spec.attempts_max), (-2, 90_000, 3));
        assert_eq!(several[0].spec.headers, [("k".to_owned(), "v".to_owned())]);
        assert!(several[1].spec.not_before_ms > 0);
    }

    // O22
    #[test]
    fn a_group_comes_with_its_join() {
        let list = br#"[{"queue": "pages", "number": 2}, {"queue": "books", "join": {"total": 2, "fail_fast": true}},
            {"queue": "pages", "number": 1}, {"queue": "mail"}]"#;
        let drafts = read(list).unwrap();
        let pages = || Draft::new(QueueName::new("pages").unwrap(), "");
        assert_eq!(drafts[0], pages().member_of(TaskId::MIN, 2));
        assert_eq!(drafts[1], Draft::new(QueueName::new("books").unwrap(), "").join(Some(2), true));
        assert_eq!(drafts[2], pages().member_of(TaskId::MIN, 1));
        assert_eq!(drafts[3].spec.grouping, None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let join = r#"{"queue": "a", "join": {"total": 2}}"#;
        for (text, what) in [
            (r#"[{"queue": "b"}, {"queue": "a", "number": 1}]"#.to_owned(), "task 2 of --then: it has a number"),
            (format!(r#"[{join}, {{"queue": "a", "number": 3}}]"#), "none of 1 to 2"),
            (format!(r#"[{join}, {{"queue": "a", "number": 0}}]"#), "a whole number from 1 to 10000"),
            (format!(r#"[{join}, {{"queue": "a", "number": 1}}, {{"queue": "a", "number": 1}}]"#), "task 3 of --then"),
            (r#"{"queue": "a", "number": 1, "join": {"total": 1}}"#.to_owned(), "not both"),
            (r#"{"queue": "a", "join": {"fail_fast": true}}"#.to_owned(), "total"),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(what), "{text}: {}", error.message);
        }
        for (text, what) in [
            ("[{\"queue\": \"a\"}, {\"queue\": \"b\", \"dely\": \"1s\"}]", "task 2"),
            ("{\"data\": \"x\"}", "queue"),
            ("[{\"queue\": \"a\"}, {\"queue\": \"b\", \"queue\": \"c\"}]", "task 2: duplicate field `queue`"),
            ("[{\"queue\": \"b\", \"headers\": {\"h\": \"1\", \"h\": \"2\"}}]", "task 1: header \"h\" is given twice"),
            ("7", "a task or a list of tasks"),
            ("{\"queue\": \"a\", \"data\": \"%\", \"data_encoding\": \"base64\"}", "base64"),
            ("nonsense", "JSON"),
            ("[[\"a\", \"b\"]]", "task 1: invalid type: sequence, expected a task as an object with `queue`"),
            ("{\"queue\": \"a\", \"max_attempts\": -1}", "expected a whole number from 0 to 4294967295"),
            ("{\"queue\": \"a\", \"priority\": \"high\"}", "expected a whole number from -2147483648 to 2147483647"),
            ("{\"queue\": \"a\", \"priority\": 1.5}", "expected a whole number from -2147483648 to 2147483647"),
            ("{\"queue\": \"a\", \"number\": 10001}", "expected a whole number from 1 to 10000"),
            ("{\"queue\": \"a\", \"join\": {\"total\": -1}}", "expected a whole number from 0 to 10000"),
            ("{\"queue\": \"a\", \"join\": [1]}", "expected an object with `total`"),
        ] {
            let Err(Failure::Call(error)) = read(text.as_bytes()) else { panic!("{text}") };
            assert!(error.message.contains(what), "{text}: {}", error.message);
        }
    }
}
