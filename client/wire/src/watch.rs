//! Watches: state changes of the tasks of a queue or a group, as they happen.
//!
//! A client polls repeatedly, at any node, with the cursor of the last answer. The cursor holds how far it has read each node's events,
//! and for which partitions nothing was missed at that node since the watch began. It is self-contained: a node keeps nothing of a watch
//! between two calls.

use crate::ids::{NodeId, QueueName, TaskId};
use crate::response::State;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Set of watched tasks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Tasks of a queue.
    Queue(QueueName),
    /// Members of a group and its join; the id of the join names the group.
    Group(TaskId),
}

/// Event: a task reached a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// Task.
    pub id: TaskId,
    /// Its queue.
    pub queue: QueueName,
    /// `ready`, `claimed`, or the state in which it ended.
    pub state: State,
    /// Its number, for a member of a group.
    #[serde(default)]
    pub number: Option<u32>,
    /// Result of its completion, if at most [`WATCH_RESULT_BYTES_MAX`](super::limits::WATCH_RESULT_BYTES_MAX) long and in the memory of
    /// the reporting node; read the task for others.
    #[serde(default)]
    pub result: Option<ByteBuf>,
    /// Why it was cancelled or died.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Position in the events of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchPlace {
    /// Node.
    pub node: NodeId,
    /// Random number that the node draws at each start.
    pub start: u64,
    /// Last event of the node that was delivered.
    pub number: u64,
    /// One bit for each partition, lowest bit of the first byte first: set if nothing of the partition was missed since the watch began.
    pub whole: ByteBuf,
}

/// Position of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WatchCursor {
    /// Positions by node, sorted.
    pub places: Vec<WatchPlace>,
}

/// Events behind a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Events in the order in which each node saw them. The same event may come twice.
    pub events: Vec<WatchEvent>,
    /// Cursor for the next call.
    pub cursor: WatchCursor,
    /// Endings may have been missed before this answer: the watch begins anew with it. List the tasks to catch up.
    #[serde(default)]
    pub lagged: bool,
    /// Partitions without a reachable node that could continue the watch. Their events come later, or the watch lags.
    #[serde(default)]
    pub silent: u32,
}
