//! Watches.

use super::Encoding;
use super::form::text;
use norn_wire::{QueueName, State, TaskId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a watch says of itself, between events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchNotice {
    /// What happened to the watch.
    pub watch: WatchNoticeKind,
    /// Number of partitions; only with `silent`. Left out without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = u32))]
    pub partitions: Option<u32>,
}

/// What happened to a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WatchNoticeKind {
    /// It has begun: changes from now on are events.
    Begun,
    /// Endings may have been missed: list the tasks to catch up.
    Lagged,
    /// Some partitions have no reachable node that could continue the watch.
    Silent,
    /// The group has ended, and the watch with it.
    Ended,
    /// The node is about to stop: go on at another one, or at this one once it is back.
    Bye,
    /// One of a later version.
    #[serde(other)]
    Other,
}

/// Event: a task reached a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WatchEvent<'a> {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Its queue.
    pub queue: QueueName,
    /// `ready`, `claimed`, or the state in which it ended.
    pub state: State,
    /// Its number, for a member of a group.
    #[cfg_attr(feature = "schema", schema(required))]
    pub number: Option<u32>,
    /// Result of its completion, if short and in the memory of the reporting node; read the task for others.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub result: Option<Cow<'a, str>>,
    /// Encoding of the result.
    #[cfg_attr(feature = "schema", schema(required))]
    pub result_encoding: Option<Encoding>,
    /// Why it was cancelled or died.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> From<&'a norn_wire::WatchEvent> for WatchEvent<'a> {
    fn from(event: &'a norn_wire::WatchEvent) -> Self {
        let (result, result_encoding) = Encoding::encode_if_any(event.result.as_ref());
        let (id, queue, reason) = (event.id, event.queue.clone(), event.reason.as_deref().map(Cow::Borrowed));
        WatchEvent { id, queue, state: event.state, number: event.number, result, result_encoding, reason }
    }
}
