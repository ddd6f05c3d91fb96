//! Transactions: what programs write, and what was done.

use super::fields::{attempts, headers, milliseconds, name_if_any, object_only, priority};
use super::form::text;
use super::input::{decoded_if_any, delay_of, each};
use super::{Encoding, InputError, TaskInput, instant_ms};
use crate::session::{ChangeDraft, Draft, Seen, TransactionDraft};
use norn_wire::transaction::{Delete, Depend, Expected};
use norn_wire::{TaskId, TaskVersion};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A transaction: several tasks added, changed and ended together, or nothing. Its lists are named as in taskstore.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct TransactionInput {
    /// New tasks.
    #[serde(default)]
    pub adds: Vec<TaskInput>,
    /// Tasks to edit.
    #[serde(default)]
    pub changes: Vec<ChangeInput>,
    /// Tasks to end.
    #[serde(default)]
    pub deletes: Vec<DeleteInput>,
    /// Tasks that must be open.
    #[serde(default)]
    pub depends: Vec<DependInput>,
    /// Id of a task near which the new ones are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Id of the transaction, so that a repeat takes effect once. Left out: a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

object_only!(TransactionInput, "an object with lists `adds`, `changes`, `deletes` or `depends`");

/// A task that must be open, and its precondition: a version or a token, or neither.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct DependInput {
    /// Task.
    pub id: String,
    /// The task is unchanged since the read that returned this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The task is held under this token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

object_only!(DependInput, "an object with `id`, and `version` or `token`");

/// A task to end: done if its holder's token is given, else cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct DeleteInput {
    /// Task.
    pub id: String,
    /// The task is unchanged since the read that returned this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The task is held under this token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Result of the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Encoding of the result; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub result_encoding: Option<Encoding>,
}

object_only!(DeleteInput, "an object with `id`, and `version` or `token`");

/// A task to edit. Fields that are left out stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ChangeInput {
    /// Task.
    pub id: String,
    /// The task is unchanged since the read that returned this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The task is held under this token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// New payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Encoding of the payload; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub data_encoding: Option<Encoding>,
    /// New headers, replacing all.
    #[serde(default, deserialize_with = "headers_if_any", skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// New priority. Higher is claimed first.
    #[serde(default, deserialize_with = "priority", skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// New time until the task can be claimed, counted from the call: `250ms`, `10s`, `5m`, `1h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// The same as a number of milliseconds.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 315_576_000_000_i64))]
    pub delay_ms: Option<u64>,
    /// New earliest time of the next claim (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// New limit of attempts; 0 removes it.
    #[serde(default, alias = "attempts_max", deserialize_with = "attempts", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The holder releases its claim. This does not count as an attempt.
    #[serde(default)]
    pub release: bool,
}

object_only!(ChangeInput, "an object with `id`, and what is to be changed");

fn headers_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    /// Headers, if present.
    #[derive(Deserialize)]
    struct Headers(#[serde(deserialize_with = "headers")] BTreeMap<String, String>);
    Ok(Option::<Headers>::deserialize(deserializer)?.map(|headers| headers.0))
}

/// Parses a whole id: what a few characters of an id stand for may change.
fn whole_id(text: &str) -> Result<TaskId, InputError> {
    text.parse().map_err(|error| InputError(format!("{error}; in a transaction, each id is whole")))
}

fn seen(id: &str, version: Option<&str>, token: Option<&str>) -> Result<(TaskId, Expected), InputError> {
    let id = whole_id(id)?;
    let expected = match (version, token) {
        (None, None) => Expected::Present,
        (Some(version), None) => Expected::Version(version.parse()?),
        (None, Some(token)) => Expected::Token(token.parse()?),
        (Some(_), Some(_)) => {
            let message = "a task is found by its version or by a token; leave one of them out";
            return Err(InputError(message.to_owned()));
        }
    };
    Ok((id, expected))
}

impl TryFrom<ChangeInput> for ChangeDraft {
    type Error = InputError;

    fn try_from(input: ChangeInput) -> Result<ChangeDraft, InputError> {
        let seen = seen(&input.id, input.version.as_deref(), input.token.as_deref())?;
        let mut draft = ChangeDraft::of(Seen::from(seen));
        if let Some(data) = decoded_if_any(input.data, input.data_encoding, "data")? {
            draft = draft.payload(data);
        }
        draft.change.headers = input.headers.map(|headers| headers.into_iter().collect());
        draft.change.priority = input.priority;
        draft.change.attempts_max = input.max_attempts;
        draft.change.not_before_ms = input.at.as_deref().map(instant_ms).transpose()?;
        draft.delay_ms = delay_of(input.delay.as_deref(), input.delay_ms)?;
        draft.change.release = input.release;
        Ok(draft)
    }
}

impl TryFrom<DeleteInput> for Delete {
    type Error = InputError;

    fn try_from(input: DeleteInput) -> Result<Delete, InputError> {
        let (id, expected) = seen(&input.id, input.version.as_deref(), input.token.as_deref())?;
        let result = decoded_if_any(input.result, input.result_encoding, "result")?;
        Ok(Delete { id, expected, result: result.map(Into::into) })
    }
}

impl TryFrom<DependInput> for Depend {
    type Error = InputError;

    fn try_from(input: DependInput) -> Result<Depend, InputError> {
        let (id, expected) = seen(&input.id, input.version.as_deref(), input.token.as_deref())?;
        Ok(Depend { id, expected })
    }
}

/// ```
/// use norn_client::api::TransactionInput;
/// use norn_client::session::TransactionDraft;
/// let input: TransactionInput = serde_json::from_str(r#"{"adds": [{"queue": "mail", "data": "hello"}]}"#)?;
/// assert_eq!(TransactionDraft::try_from(input)?.adds.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<TransactionInput> for TransactionDraft {
    type Error = InputError;

    fn try_from(input: TransactionInput) -> Result<TransactionDraft, InputError> {
        let id = |field: &str, text: Option<String>| {
            let wrong = |error| InputError(format!("{field}: {error}"));
            text.map(|text| whole_id(&text).map_err(wrong)).transpose()
        };
        Ok(TransactionDraft {
            id: id("id", input.id)?,
            near: id("near", input.near)?,
            adds: each::<_, Draft>("adds", input.adds)?,
            changes: each("changes", input.changes)?,
            deletes: each("deletes", input.deletes)?,
            depends: each("depends", input.depends)?,
        })
    }
}

/// A transaction that was done: answer to `transact`. One that was not is a `RefusalReport`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TransactionAck {
    /// New tasks, in order.
    pub added: Vec<TaskStamp>,
    /// Edited tasks, in order.
    pub changed: Vec<TaskStamp>,
}

impl TransactionAck {
    /// Creates the answer. Of the tasks, the first `added` ones are new.
    #[must_use]
    pub fn new(tasks: &[(TaskId, TaskVersion)], added: usize) -> Self {
        let (added, changed) = tasks.split_at(added.min(tasks.len()));
        let stamps = |tasks: &[_]| tasks.iter().map(|&(id, version)| TaskStamp { id, version }).collect();
        TransactionAck { added: stamps(added), changed: stamps(changed) }
    }
}

/// A task and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskStamp {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Its version, for the precondition of the next transaction.
    #[serde(with = "text")]
    pub version: TaskVersion,
}
