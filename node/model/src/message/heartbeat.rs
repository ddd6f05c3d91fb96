//! Heartbeats: what every node sends to every other one, for all partitions together.

use crate::viewstamp::{Epoch, Viewstamp};
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// One message for each pair of nodes and interval, whatever the number of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender's incarnation counter: a change voids its leaderships.
    pub boot: u64,
    /// Number of this heartbeat, from 1 in each incarnation.
    pub number: u64,
    /// The receiver's incarnation, and the highest number received from it in that.
    pub seen: (u64, u64),
    /// The sender's monotonic clock at sending, in microseconds.
    pub sent_us: u64,
    /// The receiver's `sent_us` that this answers, and how long the sender held it.
    pub echo_us: Option<(u64, u64)>,
    /// The sender's wall clock at sending.
    pub wall_ms: u64,
    /// Nodes that the sender hears.
    pub hears: Vec<NodeId>,
    /// Version of the list of partitions that the sender leads.
    pub leads_version: u64,
    /// The list, with the version of each cohort, until the receiver has shown that it knows this version.
    pub leads: Option<Vec<(PartitionId, Epoch, Viewstamp)>>,
    /// The receiver's incarnation, and the version of its list that the sender knows.
    pub leads_known: (u64, u64),
    /// Commit positions that the receiver may not know, repeated until a heartbeat shows that it does.
    pub commits: Vec<(PartitionId, Epoch, u64)>,
    /// Status of the sender's wall clock.
    pub standing: Standing,
    /// The sender lost records before this incarnation, or has not recovered since: its earlier statements do not count any more.
    #[serde(default)]
    pub incomplete: bool,
    /// Status of the sender's disk.
    #[serde(default)]
    pub disk: DiskStatus,
    /// Drawn by the sender at its start. This field and some that follow have no default: an absent value would state that a log is a
    /// stale image.
    pub start: u64,
    /// The sender's log is durable up to this record.
    pub durable: u64,
    /// As `start`, for the receiver's incarnation in `seen`.
    pub seen_start: u64,
    /// The receiver's log was durable up to this record in incarnations before the one in `seen`, as far as the sender remembers.
    pub remembers: u64,
    /// The same in the incarnation in `seen`.
    pub remembers_last: u64,
    /// The newest protocol version that the sender offers.
    #[serde(default)]
    pub offers: u8,
    /// Version of the roster that the sender knows.
    #[serde(default)]
    pub roster_version: u64,
}

/// Disk status of a heartbeat's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DiskStatus {
    /// Latency of its recent syncs, in microseconds; 0 if there were none.
    pub sync_us: u64,
    /// Whether the disk is so much slower than those of others that the others should lead.
    pub slow: bool,
}
