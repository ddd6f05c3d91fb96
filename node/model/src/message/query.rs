//! Counts, lists and watches over the partitions of many nodes.

use super::kinds::{Check, Class, Properties, of};
use super::{Known, LogPosition};
use crate::viewstamp::Viewstamp;
use norn_wire::{PartitionId, QueueName, Subject, TaskId, WatchEvent};
use serde::{Deserialize, Serialize};

/// Counts of one queue in one partition, by state.
pub type StateCounts = [u64; 6];

/// Counts of a replica for a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionCounts {
    /// Partition.
    pub partition: PartitionId,
    /// Root of the hash tree.
    #[serde(with = "serde_bytes")]
    pub root: [u8; 16],
    /// Viewstamp of the table.
    pub viewstamp: Viewstamp,
    /// Version of the cohort.
    pub at: Viewstamp,
    /// Whether the replica leads.
    pub leads: bool,
    /// Counts by queue.
    pub queues: Vec<(QueueName, StateCounts)>,
    /// Milliseconds until the rate of a queue allows a claim, by the leader of its coordinator partition, which this is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_tokens: Vec<(QueueName, u64)>,
}

/// Position in a node's change feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAt {
    /// Random number of the node's start.
    pub start: u64,
    /// Number of the event before this position.
    pub number: u64,
}

/// Change feed of a node: what has become of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchFeed {
    /// Position up to which the events are complete.
    pub at: WatchAt,
    /// Whether the events are complete from the position in the question. Otherwise nothing before `at` is included.
    pub follows: bool,
    /// In order.
    pub events: Vec<WatchEvent>,
    /// Partitions whose events in this answer are complete.
    pub covers: Vec<PartitionId>,
    /// Partitions whose events behind this answer will be complete.
    pub begins: Vec<PartitionId>,
    /// Roots of the hash trees to compare, if these are all events that there are.
    pub roots: Vec<(PartitionId, u128)>,
}

/// Counts, lists and watches over the partitions of many nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Asks for counts of the receiver's partitions.
    #[serde(rename = "cq")]
    CountAsk { request_id: u64, queue: Option<QueueName> },
    /// Answer to `CountAsk`.
    #[serde(rename = "ca")]
    CountAnswer { request_id: u64, partitions: Vec<PartitionCounts> },
    /// Asks for tasks of the receiver's partitions (or of one partition) after an id, in order.
    #[serde(rename = "lq")]
    ListAsk {
        request_id: u64,
        partition: Option<PartitionId>,
        queue: Option<QueueName>,
        after: Option<TaskId>,
        to: Option<TaskId>,
        limit: u32,
    },
    /// Answer to `ListAsk`: all tasks up to `end`, or to the end of all where that is absent.
    #[serde(rename = "la")]
    ListAnswer {
        request_id: u64,
        partitions: Vec<(PartitionId, Viewstamp)>,
        tasks: Vec<(TaskId, Known)>,
        end: Option<TaskId>,
    },
    /// Asks, for a watching client, for events of `subject` behind position `at`, and for the hash-tree roots of the partitions
    /// in `compare`.
    #[serde(rename = "wt")]
    Watch { request_id: u64, subject: Subject, at: Option<WatchAt>, compare: Vec<PartitionId> },
    /// Answer to `Watch`, with the position that it named; `told` is absent if too much is watched already.
    #[serde(rename = "wd")]
    Watched { request_id: u64, at: Option<WatchAt>, feed: Option<Box<WatchFeed>> },
    /// Notice: there are new events for such a watch.
    #[serde(rename = "wv")]
    WatchNews { subject: Subject },
}

impl Query {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Query::CountAsk { .. } => of("count_ask", Class::Urgent, None, Check::Nothing),
            Query::CountAnswer { .. } => of("count_answer", Class::Urgent, None, Check::Nothing),
            Query::ListAsk { partition, .. } => of("list_ask", Class::Bulk, *partition, Check::Nothing),
            Query::ListAnswer { .. } => of("list_answer", Class::Bulk, None, Check::Nothing),
            Query::Watch { .. } => of("watch", Class::Urgent, None, Check::Nothing),
            Query::Watched { .. } => of("watched", Class::Bulk, None, Check::Nothing),
            Query::WatchNews { .. } => of("watch_news", Class::Urgent, None, Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Query::CountAsk { .. }
            | Query::CountAnswer { .. }
            | Query::ListAsk { .. }
            | Query::ListAnswer { .. }
            | Query::Watch { .. }
            | Query::Watched { .. }
            | Query::WatchNews { .. } => {}
        }
    }
}
