//! What operators ask of tasks: cancel, purge, redrive, close a group.

use super::InputError;
use super::fields::{confirmed, headers, limit, milliseconds, names, object_only, total};
use super::input::{each_once, parsed_if_any};
use crate::client::{LetterOptions, ListOptions, RedriveOptions};
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::{Acks, QueueName, Request, State, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A cancellation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct CancelInput {
    /// Reason, for people to read; `cancelled` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

object_only!(CancelInput, "an object, with `reason` or without");

impl CancelInput {
    /// Returns the reason.
    #[must_use]
    pub fn reason(self) -> String {
        self.reason.unwrap_or_else(|| "cancelled".to_owned())
    }

    /// Converts it into the request that cancels this task, whatever its state. `norn cancel` and
    /// [`Client::cancel`](crate::client::Client::cancel) read the task first, as it may have ended.
    #[must_use]
    pub fn request(self, id: TaskId, acks: Acks) -> Request {
        Request::Cancel { id, reason: self.reason(), at_ms: 0, acks }
    }
}

/// The end of a group: how many members it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct GroupCloseInput {
    /// Number of members, numbered from 1. It cannot be changed later.
    #[serde(deserialize_with = "total")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 10_000))]
    pub total: u32,
}

object_only!(GroupCloseInput, "an object with `total`");

impl GroupCloseInput {
    /// Converts it into the request that closes the group of this join. [`explain_close`](crate::session::explain_close) says of a
    /// conflict what it means.
    #[must_use]
    pub fn request(self, group: TaskId, acks: Acks) -> Request {
        Request::CloseGroup { id: group, total: self.total, acks }
    }
}

/// Ended tasks to forget before their retention is over: some by their ids, or all of a queue that match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct PurgeInput {
    /// Tasks; each is tried, even if others fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Instead of ids: all tasks of this queue that have ended and match the other fields; 100,000 at most, fewer if they are large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Of the queue, only tasks in these states: `done`, `dead` or `cancelled`; all of them if left out.
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Of the queue, only tasks with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of the queue, only tasks with all of these headers.
    #[serde(default, deserialize_with = "headers", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Of the queue, only tasks with this text in the reason of their end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the queue, only tasks whose last attempt failed with this text in its reason, of which the first 256 bytes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_with: Option<String>,
    /// Of the queue, only tasks enqueued longer ago than this, in milliseconds.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub older_ms: Option<u64>,
    /// Of the queue, only tasks enqueued within this time, in milliseconds.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub newer_ms: Option<u64>,
    /// Of the queue, report how many tasks match, and change none.
    #[serde(default)]
    pub dry_run: bool,
    /// Of the queue, change the tasks if they are this many, as a dry run reports; without this, change none.
    #[serde(default, deserialize_with = "confirmed", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 100_000))]
    pub confirm: Option<u64>,
}

object_only!(PurgeInput, "an object with `ids` or `queue`");

/// Tasks to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// These tasks, whatever their final state.
    Tasks(Vec<TaskId>),
    /// All tasks that match.
    Chosen(Box<Choice>),
}

/// Which tasks of a queue to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Tasks to look at.
    pub list: ListOptions,
    /// Of these, only tasks in one of these states.
    pub states: Vec<State>,
    /// Only count them.
    pub dry_run: bool,
    /// Change them if they are this many.
    pub confirm: Option<u64>,
}

/// States in which a task can be purged.
const OVER: [State; 3] = [State::Done, State::Dead, State::Cancelled];

impl TryFrom<PurgeInput> for Purge {
    type Error = InputError;

    fn try_from(input: PurgeInput) -> Result<Purge, InputError> {
        let of_queue = [
            ("states", !input.states.is_empty()),
            ("key", input.key.is_some()),
            ("headers", !input.headers.is_empty()),
            ("reason", input.reason.is_some()),
            ("failed_with", input.failed_with.is_some()),
            ("older_ms", input.older_ms.is_some()),
            ("newer_ms", input.newer_ms.is_some()),
            ("dry_run", input.dry_run),
            ("confirm", input.confirm.is_some()),
        ];
        let Some(queue) = &input.queue else {
            only_with("queue", of_queue)?;
            return Ok(Purge::Tasks(whole_ids(&input.ids, "`ids` or `queue`")?));
        };
        only_one("ids", !input.ids.is_empty(), "queue")?;
        if input.dry_run && input.confirm.is_some() {
            return Err(InputError("a dry run changes nothing; leave `confirm` or `dry_run` out".to_owned()));
        }
        if input.states.iter().any(|state| !OVER.contains(state)) {
            return Err(InputError(format!("states: each is one of {}", OVER.map(State::name).join(", "))));
        }
        let states = if input.states.is_empty() { OVER.to_vec() } else { input.states };
        let list = ListOptions {
            queue: Some(QueueName::new(queue)?),
            state: if let [only] = states[..] { Some(only) } else { None },
            older: input.older_ms.map(Duration::from_millis),
            newer: input.newer_ms.map(Duration::from_millis),
            key: input.key,
            headers: input.headers.into_iter().collect(),
            reason: input.reason,
            failed_with: input.failed_with,
            page: LIST_PAGE_MAX,
            ..ListOptions::new()
        };
        Ok(Purge::Chosen(Box::new(Choice { list, states, dry_run: input.dry_run, confirm: input.confirm })))
    }
}

/// Dead tasks to enqueue again: some by their ids, all of a queue that match, or all letters of a queue of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RedriveInput {
    /// Dead tasks; each is tried, even if others fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Instead of ids: all dead tasks of this queue that were not redriven before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Instead of ids: all ready dead letters of this queue, back to the queues where their tasks died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letters: Option<String>,
    /// Of the queue, only tasks with this text in the reason of their death.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the queue or the letters, at most this many; all if left out.
    #[serde(default, deserialize_with = "limit", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 9_223_372_036_854_775_807_i64))]
    pub limit: Option<u64>,
    /// Of the queue, report how many dead tasks match, and enqueue none.
    #[serde(default)]
    pub dry_run: bool,
    /// Queue for the copies; if left out, the queue where the task died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Id of the copy in an earlier call for a single task whose outcome is unknown and that is repeated; a new copy if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
}

object_only!(RedriveInput, "an object with `ids`, `queue` or `letters`");

/// What to redrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redrive {
    /// These dead tasks, each unless it was redriven before.
    Tasks {
        /// Dead tasks.
        ids: Vec<TaskId>,
        /// Id of the copy; only with a single task.
        copy: Option<TaskId>,
        /// Queue of the copies; absent: that of each task.
        to: Option<QueueName>,
    },
    /// Dead tasks of a queue.
    Queue {
        /// Which ones.
        options: RedriveOptions,
        /// Most tasks.
        limit: u64,
        /// Only count them.
        dry_run: bool,
    },
    /// Dead letters of a queue.
    Letters(LetterOptions),
}

impl RedriveInput {
    /// Checks which fields go together, and converts them.
    pub fn redrive(self, acks: Acks) -> Result<Redrive, InputError> {
        let to = parsed_if_any("to", self.to.as_deref())?;
        let limit = self.limit.unwrap_or(u64::MAX);
        let of_queue = [("reason", self.reason.is_some()), ("dry_run", self.dry_run)];
        let (ids, copy) = (!self.ids.is_empty(), self.copy.is_some());
        if let Some(letters) = &self.letters {
            only_one("queue", self.queue.is_some(), "letters")?;
            only_one("ids", ids, "letters")?;
            only_one("copy", copy, "letters")?;
            only_with("queue", of_queue)?;
            return Ok(Redrive::Letters(LetterOptions { letters: QueueName::new(letters)?, to, limit, acks }));
        }
        if let Some(queue) = &self.queue {
            only_one("ids", ids, "queue")?;
            only_one("copy", copy, "queue")?;
            let options = RedriveOptions { queue: QueueName::new(queue)?, reason: self.reason, to, acks };
            return Ok(Redrive::Queue { options, limit, dry_run: self.dry_run });
        }
        only_with("queue", of_queue)?;
        only_with("queue` or `letters", [("limit", self.limit.is_some())])?;
        let ids = whole_ids(&self.ids, "`ids`, `queue` or `letters`")?;
        let copy = parsed_if_any("copy", self.copy.as_deref())?;
        if copy.is_some() && ids.len() > 1 {
            return Err(InputError("`copy` names the copy of one task; give one".to_owned()));
        }
        Ok(Redrive::Tasks { ids, copy, to })
    }
}

/// Parses a list of ids, which has one at least.
fn whole_ids(ids: &[String], wanted: &str) -> Result<Vec<TaskId>, InputError> {
    if ids.is_empty() {
        return Err(InputError(format!("say which tasks: give {wanted}")));
    }
    let wrong = |place: usize, error| InputError(format!("ids, number {}: {error}", place + 1));
    let read = |(place, id): (usize, &String)| id.parse().map_err(|error| wrong(place, error));
    let ids = ids.iter().enumerate().map(read).collect::<Result<Vec<TaskId>, InputError>>()?;
    each_once("ids", &ids, TaskId::to_string)?;
    Ok(ids)
}

/// Refuses fields that are given without the one that they go with.
fn only_with<const N: usize>(with: &str, fields: [(&str, bool); N]) -> Result<(), InputError> {
    match fields.into_iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(InputError(format!("`{field}` goes with `{with}`; leave it out"))),
        None => Ok(()),
    }
}

/// Refuses a field that excludes another one.
fn only_one(field: &str, given: bool, other: &str) -> Result<(), InputError> {
    match given {
        true => Err(InputError(format!("`{field}` and `{other}` exclude each other; leave one of them out"))),
        false => Ok(()),
    }
}
