//! Messages between the nodes of a cluster.
//!
//! Any message may be lost, repeated or reordered. A connection of the sender's host delivers in order, but that is only the
//! cheap common case.

mod anti_entropy;
mod claiming;
mod election;
pub mod envelope;
mod families;
mod forwarding;
mod garbage_collection;
mod handoff;
mod heartbeat;
mod kinds;
mod known;
mod limiting;
mod peering;
mod query;
mod read_write;
mod reconfiguration;
mod replication;
mod workflow;

pub use self::anti_entropy::{AntiEntropy, Level, RecentPart, Step, WantPart};
pub use self::claiming::{Claiming, Head};
pub use self::election::Election;
pub use self::forwarding::Forwarding;
pub use self::garbage_collection::GarbageCollection;
pub use self::handoff::Handoff;
pub use self::heartbeat::{DiskStatus, Heartbeat};
pub use self::kinds::Class;
pub use self::known::{Known, Lost};
pub use self::limiting::Limiting;
pub use self::peering::Peering;
pub use self::query::{PartitionCounts, Query, StateCounts, WatchAt, WatchFeed};
pub use self::read_write::{Outcome, ReadWrite};
pub use self::reconfiguration::Reconfiguration;
pub use self::replication::Replication;
pub use self::workflow::{Vote, Workflow};
use crate::task::Task;
use norn_wire::TaskId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Facts about tasks of one partition.
pub type Items = Arc<Vec<(TaskId, Task)>>;

/// Durable log position of a message's sender when it was sent. A receiver that relies on the message's promise remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogPosition {
    /// The sender's start counter; 0 if absent.
    pub boot: u64,
    /// Ordinal of the last durable record.
    pub durable: u64,
    /// Random number of that start; 0 if absent, which takes no room in a message.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub start: u64,
}

fn is_unsaid(start: &u64) -> bool {
    *start == 0
}

norn_wire::wire_body!(PeerMessage);

/// Message between nodes, by family. Each family says of its messages what the methods of this type give. Field names: `partition`,
/// `epoch` and `viewstamp` as everywhere; `request_id` is the sender's number of a pending request, returned in the answer.
///
/// On the wire a message is a variant of its family: families are not named there, and names of variants are unique in all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PeerMessage {
    /// Heartbeats, the list of members, and who has which partition.
    Peering(Peering),
    /// Elections of a partition's leader, and transfers of leadership.
    Election(Election),
    /// Replication of the claim table from a leader to its followers.
    Replication(Replication),
    /// Changes of the members of a partition.
    Reconfiguration(Reconfiguration),
    /// Writes to replicas, and reads of them.
    ReadWrite(ReadWrite),
    /// Requests of clients that another node decides.
    Forwarding(Forwarding),
    /// Counts, lists and watches over the partitions of many nodes.
    Query(Query),
    /// Comparison of replicas, and repair of what they lack.
    AntiEntropy(AntiEntropy),
    /// Hinted handoff: facts kept for a replica while it was away.
    Handoff(Handoff),
    /// Archiving and forgetting of ended tasks.
    GarbageCollection(GarbageCollection),
    /// Claims: where work is, grants, and what becomes of them.
    Claiming(Claiming),
    /// Limits of rate and of concurrency of a queue.
    Limiting(Limiting),
    /// Dependencies, groups and unique keys of tasks.
    Workflow(Workflow),
}

families::families!(
    Peering,
    Election,
    Replication,
    Reconfiguration,
    ReadWrite,
    Forwarding,
    Query,
    AntiEntropy,
    Handoff,
    GarbageCollection,
    Claiming,
    Limiting,
    Workflow
);
