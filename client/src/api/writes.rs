//! Acknowledgements of writes.

use super::form::text;
use norn_wire::{Acked, Guarantee, State, TaskId};
use serde::{Deserialize, Serialize};

/// An acknowledged write: answer to `enqueue`, `update` and `complete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WriteAck {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Nodes that had the write on disk when the answer was given.
    pub acks: u32,
    /// Replicas of the task.
    pub replicas: u32,
    /// Durability that was reached: `strict`, on the disks of a majority; `sloppy`, on fewer.
    pub guarantee: Guarantee,
}

impl From<&Acked> for WriteAck {
    fn from(acked: &Acked) -> Self {
        WriteAck { id: acked.id, acks: acked.acks, replicas: acked.replicas, guarantee: acked.guarantee }
    }
}

/// A unique task: answer to `enqueue --unique`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UniqueAck {
    /// The task that exists now.
    #[serde(flatten)]
    pub task: WriteAck,
    /// Whether it existed before, so that the sent task was not stored.
    pub existing: bool,
}

impl UniqueAck {
    /// Creates the answer.
    #[must_use]
    pub fn new(acked: &Acked, existing: bool) -> Self {
        UniqueAck { task: acked.into(), existing }
    }
}

/// An enqueued member or join of a group: answer to `enqueue --group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MemberAck {
    /// The task.
    #[serde(flatten)]
    pub task: WriteAck,
    /// Group: the id of its join.
    #[serde(with = "text")]
    pub group: TaskId,
}

impl MemberAck {
    /// Creates the answer.
    #[must_use]
    pub fn new(acked: &Acked, group: TaskId) -> Self {
        MemberAck { task: acked.into(), group }
    }
}

/// A cancelled task: answer to `cancel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CancelAck {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Nodes that had the cancellation on disk; `null` if the task had ended before and nothing was sent.
    #[cfg_attr(feature = "schema", schema(required))]
    pub acks: Option<u32>,
    /// Replicas of the task; `null` if nothing was sent.
    #[cfg_attr(feature = "schema", schema(required))]
    pub replicas: Option<u32>,
    /// Durability that was reached; `null` if nothing was sent.
    #[cfg_attr(feature = "schema", schema(required))]
    pub guarantee: Option<Guarantee>,
    /// State in which the task has ended; `null` if that could not be read.
    #[cfg_attr(feature = "schema", schema(required))]
    pub state: Option<State>,
}

impl CancelAck {
    /// Creates the answer: `sent` is the acknowledgement, if a cancellation was sent.
    #[must_use]
    pub fn new(id: TaskId, sent: Option<&Acked>, state: Option<State>) -> Self {
        let (acks, replicas) = (sent.map(|acked| acked.acks), sent.map(|acked| acked.replicas));
        CancelAck { id, acks, replicas, guarantee: sent.map(|acked| acked.guarantee), state }
    }
}
