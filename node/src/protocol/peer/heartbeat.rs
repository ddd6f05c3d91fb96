//! Heartbeats: what every node says to every other one, for all partitions together.

use crate::protocol::consistent::{Epoch, Viewstamp};
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// One message per pair of nodes and interval, whatever the number of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's start counter: a change voids its leaderships.
    pub boot: u64,
    /// Number of this heartbeat, from 1 in each boot.
    pub number: u64,
    /// Highest number received from the receiver, in its boot.
    pub seen: (u64, u64),
    /// The sender's monotonic clock at sending, in microseconds.
    pub sent_us: u64,
    /// The receiver's `sent_us` that this answers, and how long the sender kept it.
    pub echo_us: Option<(u64, u64)>,
    /// The sender's wall clock at sending.
    pub wall_ms: u64,
    /// Nodes that the sender hears.
    pub hears: Vec<NodeId>,
    /// Version of the list of partitions that the sender leads.
    pub leads_version: u64,
    /// The list, with the version of each cohort, until the receiver has shown to know this version.
    pub leads: Option<Vec<(PartitionId, Epoch, Viewstamp)>>,
    /// Version of the receiver's list that the sender knows, in the receiver's boot.
    pub leads_known: (u64, u64),
    /// Commit positions that the receiver may not know, repeated until a heartbeat shows that it does.
    pub commits: Vec<(PartitionId, Epoch, u64)>,
    /// How the sender's wall clock stands.
    pub standing: Standing,
    /// The sender lost records before this start, or has not healed since: what it said before does not count any more.
    #[serde(default)]
    pub holes: bool,
    /// How the sender's disk is.
    #[serde(default)]
    pub disk: DiskWord,
    /// Drawn by the sender at its start. This and what follows has no default: to say nothing would say that a log is a copy.
    pub start: u64,
    /// The sender's log is durable up to this record.
    pub durable: u64,
    /// As `start`, of the receiver's start in `seen`.
    pub seen_start: u64,
    /// The receiver's log was durable up to this record in starts before the one in `seen`, as far as the sender remembers.
    pub remembers: u64,
    /// The same in the start in `seen`.
    pub remembers_last: u64,
    /// The newest protocol version that the sender offers.
    #[serde(default)]
    pub offers: u8,
    /// Version of the roster that the sender knows.
    #[serde(default)]
    pub roster_version: u64,
}

/// What a heartbeat says of the sender's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskWord {
    /// How long its syncs take lately, in microseconds; 0 if there were none.
    pub sync_us: u64,
    /// It is so much slower than the others' that these should lead.
    pub slow: bool,
}
