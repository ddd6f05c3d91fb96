//! Dead tasks that are enqueued again, and changes of several tasks.

use super::WriteAck;
use super::form::{text, text_if_any};
use norn_wire::{QueueName, State, TaskId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A dead letter that is done, and the new task made from it: answer to `redrive --letters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LetterAck {
    /// The completion of the letter, as fields beside these.
    #[serde(flatten)]
    pub letter: WriteAck,
    /// The new task; `null` if its id does not follow from the letter.
    #[serde(default, with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub task: Option<TaskId>,
    /// Queue of the new task.
    pub queue: QueueName,
}

/// Copy of a task that was redriven before, so that it is not redriven again: answer to `redrive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExistingCopy {
    /// The copy.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Always true. A new copy is a `WriteAck`, without this field.
    pub existing: bool,
    /// Queue of the copy; `null` if it has ended and is forgotten.
    #[cfg_attr(feature = "schema", schema(required))]
    pub queue: Option<QueueName>,
    /// State of the copy; `null` if it has ended and is forgotten.
    #[cfg_attr(feature = "schema", schema(required))]
    pub state: Option<State>,
    /// Whether the copy is the dead letter of the task, not one made by an operator.
    pub letter: bool,
}

/// Ready dead letters that are not granted, because their queue is paused or limits its claims: answer to `redrive --letters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldLetters<'a> {
    /// Letters that were sent back before.
    pub redriven: u64,
    /// Letters that are ready and not granted.
    pub ready: u64,
    /// What holds them back: `paused` or `limited`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub cause: Cow<'a, str>,
    /// The same for people.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub explanation: Cow<'a, str>,
}

/// Outcome of a change of all tasks that match: answer to `cancel`, `release`, `purge` and `redrive` of a whole queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BulkOutcome {
    /// Tasks that match.
    pub chosen: u64,
    /// Of these, tasks that were changed; 0 in a dry run.
    pub changed: u64,
}
