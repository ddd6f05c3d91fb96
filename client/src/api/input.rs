//! Tasks to enqueue, as programs write them.
//!
//! Inputs are objects with named fields. An unknown field is refused, and so is a list of values in the order of the fields: it does not
//! show what they mean.

use super::fields::{attempts, headers, member, milliseconds, name_if_any, object_only, priority, total};
use super::{Encoding, duration_ms, instant_ms};
use crate::session::Draft;
use norn_wire::group::{Join, MemberOf};
use norn_wire::limits::BATCH_TASKS_MAX;
use norn_wire::{QueueName, Spec, TaskId};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::str::FromStr;

/// What is wrong with an input, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InputError(pub String);

impl From<String> for InputError {
    fn from(message: String) -> Self {
        InputError(message)
    }
}

impl From<norn_wire::Error> for InputError {
    fn from(error: norn_wire::Error) -> Self {
        InputError(error.message)
    }
}

impl From<norn_wire::ids::ParseError> for InputError {
    fn from(error: norn_wire::ids::ParseError) -> Self {
        InputError(error.0)
    }
}

/// A task to enqueue. Its fields are named as those of a `Task`, so that what was read can be enqueued again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TaskInput {
    /// Queue.
    pub queue: String,
    /// Payload; empty if left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Encoding of the payload; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub data_encoding: Option<Encoding>,
    /// Priority; 0 if left out. Higher is claimed first.
    #[serde(default, deserialize_with = "priority", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Time until the task can be claimed, from the enqueue on or, with an `id`, from the time in that: `250ms`, `10s`, `1h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The same as a number of milliseconds.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 315_576_000_000_i64))]
    pub delay_ms: Option<u64>,
    /// Earliest time of the first claim (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// After this many claims that failed or ran out, the task is dead; no limit of its own if left out or 0.
    #[serde(default, alias = "attempts_max", deserialize_with = "attempts", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Headers. A name has one value.
    #[serde(default, deserialize_with = "headers", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Id, so that a repeat stores the task once. Left out: a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Ids of tasks that must have ended before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Key: a queue grants tasks with the same key one at a time, unless it is set otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Makes the task the join of a group, whose members are the tasks of the same list that have a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinInput>,
    /// Makes the task a member of the group of the join in the same list, under this number, from 1.
    #[serde(default, deserialize_with = "member", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 10_000))]
    pub number: Option<u32>,
}

object_only!(TaskInput, "a task as an object with `queue`");

/// A join, which waits for those of the tasks that have a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct JoinInput {
    /// Number of members, numbered from 1.
    #[serde(deserialize_with = "total")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 10_000))]
    pub total: u32,
    /// Cancels the members that have not ended, as soon as one fails.
    #[serde(default)]
    pub fail_fast: bool,
}

object_only!(JoinInput, "an object with `total`");

/// One task to enqueue, or a list of several: the child tasks of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TasksInput(pub Vec<TaskInput>);

impl Serialize for TasksInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl<'de> Deserialize<'de> for TasksInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TasksVisitor)
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for TasksInput {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::Ref;
        use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder, Schema};
        let task = || Ref::from_schema_name(<TaskInput as utoipa::ToSchema>::name());
        let description = Some("One task to enqueue, or a list of several.");
        let either = OneOfBuilder::new().item(task()).item(ArrayBuilder::new().items(task()));
        Schema::OneOf(either.description(description).build()).into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for TasksInput {
    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>) {
        schemas.push((TaskInput::name().into_owned(), <TaskInput as utoipa::PartialSchema>::schema()));
        TaskInput::schemas(schemas);
    }
}

struct TasksVisitor;

impl<'de> Visitor<'de> for TasksVisitor {
    type Value = TasksInput;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a task or a list of tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TasksInput, A::Error> {
        Ok(TasksInput(vec![TaskInput::deserialize(MapAccessDeserializer::new(map))?]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TasksInput, A::Error> {
        let mut tasks = Vec::new();
        let wrong = |place: usize, error: A::Error| A::Error::custom(format!("task {place}: {error}"));
        while let Some(task) = list.next_element().map_err(|error| wrong(tasks.len() + 1, error))? {
            if tasks.len() == BATCH_TASKS_MAX {
                return Err(A::Error::custom(format!("more than {BATCH_TASKS_MAX} tasks; send them in several lists")));
            }
            tasks.push(task);
        }
        Ok(TasksInput(tasks))
    }
}

impl TasksInput {
    /// Converts the tasks. Their numbers must fit the join among them. `list` names the list in errors.
    pub fn drafts(self, list: &str) -> Result<Vec<Draft>, InputError> {
        let at = |place: usize, problem: String| InputError(format!("task {} of {list}: {problem}", place + 1));
        let draft = |(place, task): (usize, TaskInput)| Draft::try_from(task).map_err(|error| at(place, error.0));
        let drafts = self.0.into_iter().enumerate().map(draft).collect::<Result<Vec<Draft>, InputError>>()?;
        match wrong_number(&drafts) {
            Some((place, problem)) => Err(at(place, problem)),
            None => Ok(drafts),
        }
    }
}

/// Checks the members' numbers against the join among the tasks. Returns the place of a wrong one, and what is wrong with it.
fn wrong_number(drafts: &[Draft]) -> Option<(usize, String)> {
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
        return Some((place, problem));
    }
    None
}

/// ```
/// use norn_client::api::TaskInput;
/// use norn_client::session::Draft;
/// let input: TaskInput = serde_json::from_str(r#"{"queue": "mail", "data": "hello", "delay": "10s"}"#)?;
/// let draft = Draft::try_from(input)?;
/// assert_eq!((draft.spec.payload, draft.delay_ms), (b"hello".to_vec(), 10_000));
/// assert!(serde_json::from_str::<TaskInput>(r#"{"queue": "mail", "dely": "10s"}"#).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<TaskInput> for Draft {
    type Error = InputError;

    fn try_from(task: TaskInput) -> Result<Draft, InputError> {
        let payload = decoded(task.data, task.data_encoding, "data")?;
        let spec = Spec {
            priority: task.priority.unwrap_or(0),
            not_before_ms: task.at.as_deref().map(instant_ms).transpose()?.unwrap_or(0),
            headers: task.headers.into_iter().collect(),
            attempts_max: task.max_attempts.unwrap_or(0),
            after: task.after.iter().map(|id| id.parse()).collect::<Result<_, _>>()?,
            key: task.key,
            ..Spec::new(QueueName::new(&task.queue)?, payload)
        };
        if task.join.is_some() && task.number.is_some() {
            let message = "it is a join or has a number, not both: a join is no member of its own group";
            return Err(InputError(message.to_owned()));
        }
        let id = task.id.map(|id| whole_id(&id)).transpose()?;
        let delay_ms = delay_of(task.delay.as_deref(), task.delay_ms)?.unwrap_or(0);
        let draft = Draft { id, spec, delay_ms, near: None };
        Ok(match (task.join, task.number) {
            (Some(join), _) => draft.join(Some(join.total), join.fail_fast),
            // The id of the join, set later, determines the group.
            (None, Some(number)) => draft.member_of(TaskId::MIN, number),
            (None, None) => draft,
        })
    }
}

/// Parses the id under which a task is enqueued. Only a leader can give a text id to one task at a time, and it is not asked here.
fn whole_id(text: &str) -> Result<TaskId, InputError> {
    if text.contains('/') {
        let message =
            format!("id: {text:?} is a text id, which `norn enqueue --id` and the library take; here an id is whole");
        return Err(InputError(message));
    }
    Ok(text.parse()?)
}

/// Converts each entry of a list. An error names the list and the place.
pub(super) fn each<I, T: TryFrom<I, Error = InputError>>(list: &str, inputs: Vec<I>) -> Result<Vec<T>, InputError> {
    let wrong = |place: usize, error| InputError(format!("{list}, number {}: {error}", place + 1));
    let read = |(place, input)| T::try_from(input).map_err(|error| wrong(place, error));
    inputs.into_iter().enumerate().map(read).collect()
}

/// Refuses a list that names something twice: both are served at once, and the same change would be made twice.
pub fn each_once<T: Ord>(list: &str, items: &[T], name: impl Fn(&T) -> String) -> Result<(), InputError> {
    let mut seen = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(first) = seen.insert(item, place) {
            let (first, place, name) = (first + 1, place + 1, name(item));
            let message = format!("{list}, number {place}: {name} is number {first}, too; name each once");
            return Err(InputError(message));
        }
    }
    Ok(())
}

/// Parses the text of a field, for example an id. An error names the field.
pub(super) fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, InputError> {
    text.parse().map_err(|error| InputError(format!("{field}: {error}")))
}

/// Parses the text of a field, if there is one.
pub(super) fn parsed_if_any<T: FromStr<Err: Display>>(
    field: &str,
    text: Option<&str>,
) -> Result<Option<T>, InputError> {
    text.map(|text| parsed(field, text)).transpose()
}

/// Decodes the bytes of a field that may be left out, but not if its encoding is given.
pub(super) fn decoded_if_any(
    text: Option<String>,
    encoding: Option<Encoding>,
    field: &str,
) -> Result<Option<Vec<u8>>, InputError> {
    match (text, encoding) {
        (None, Some(_)) => Err(InputError(format!("`{field}_encoding` goes with `{field}`; leave it out"))),
        (text, encoding) => text.map(|text| decoded(text, encoding, field)).transpose(),
    }
}

/// Reads the time until a task can be claimed, in milliseconds: a text, or a number.
pub(super) fn delay_of(delay: Option<&str>, delay_ms: Option<u64>) -> Result<Option<u64>, InputError> {
    match (delay, delay_ms) {
        (Some(_), Some(_)) => Err(InputError("`delay` and `delay_ms` say the same; leave one of them out".to_owned())),
        (Some(delay), None) => Ok(Some(duration_ms(delay)?)),
        (None, delay_ms) => Ok(delay_ms),
    }
}

/// Decodes the bytes of a field.
pub(super) fn decoded(text: String, encoding: Option<Encoding>, field: &str) -> Result<Vec<u8>, InputError> {
    let wrong = |error| InputError(format!("{field} is not base64: {error}"));
    encoding.unwrap_or_default().decode(text).map_err(wrong)
}
