//! Watches: what becomes of the tasks of a queue or of a group, as it happens.
//!
//! Whoever watches asks again and again, each time with the cursor of the last answer, at any node. The cursor says up to where
//! each node has told what happened there, and for which partitions nothing of that was missed since the watch began. It is
//! whole in itself: the node that is asked keeps nothing of a watch between two calls.

use crate::ids::{NodeId, QueueName, TaskId};
use crate::response::State;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Whose tasks are watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Those of a queue.
    Queue(QueueName),
    /// The members of a group, and its join, by whose id it goes.
    Group(TaskId),
}

/// A task came to a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// Task.
    pub id: TaskId,
    /// Its queue.
    pub queue: QueueName,
    /// `ready`, `claimed`, or how it ended.
    pub state: State,
    /// Its number, if it is a member of a group.
    #[serde(default)]
    pub number: Option<u32>,
    /// Of its completion, if that is no longer than [`WATCH_RESULT_BYTES_MAX`](super::limits::WATCH_RESULT_BYTES_MAX), and in the memory
    /// of the node that tells; others are read with the task.
    #[serde(default)]
    pub result: Option<ByteBuf>,
    /// Why it was cancelled, or died.
    #[serde(default)]
    pub reason: Option<String>,
}

/// How far one node has told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchPlace {
    /// Node.
    pub node: NodeId,
    /// Drawn by it for its start.
    pub start: u64,
    /// The last of its events that was told.
    pub number: u64,
    /// One bit for each partition, the lowest of the first byte for the first: of these nothing was missed since the watch
    /// began.
    pub whole: ByteBuf,
}

/// How far a watch is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WatchCursor {
    /// In the order of the nodes.
    pub places: Vec<WatchPlace>,
}

/// What has happened behind a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// In the order in which each node saw it. The same may be told twice.
    pub events: Vec<WatchEvent>,
    /// What comes next is behind this one.
    pub cursor: WatchCursor,
    /// Endings may have been missed before this answer: the watch begins anew with it. List what is there.
    #[serde(default)]
    pub lagged: bool,
    /// Partitions of which nobody can be reached who could go on telling. What happens there is told later, or the watch lags.
    #[serde(default)]
    pub silent: u32,
}
