//! Writes to replicas, and reads of them.

use super::kinds::{Check, Class, Properties, of};
use super::{Items, Known, LogPosition};
use crate::cohort::AdvertisedCohort;
use crate::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::{PartitionId, TaskId};
use serde::{Deserialize, Serialize};

/// Result of a write of an item at a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// On disk; the replica has the task's spec.
    #[serde(rename = "S")]
    Stored,
    /// On disk; the replica does not have the task's spec.
    #[serde(rename = "O")]
    StoredOrphan,
    /// Refused: other content under the same key.
    #[serde(rename = "C")]
    Conflict,
    /// Refused: the id is too far in the future.
    #[serde(rename = "F")]
    Future,
    /// Refused: too many tasks, or too many facts about unknown ones.
    #[serde(rename = "L")]
    Overloaded,
    /// Refused: the task is unknown, and may have been forgotten.
    #[serde(rename = "T")]
    TooOld,
    /// Refused: the disk of the replica is nearly full.
    #[serde(rename = "N")]
    NoSpace,
    /// Refused: a completion that the leader has not sealed, of a task that needs a seal.
    #[serde(rename = "H")]
    Unsealed,
}

/// Writes to replicas, and reads of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadWrite {
    /// Stores these facts. `at`, here and elsewhere: the version of the cohort that the sender knows.
    #[serde(rename = "wr")]
    Write { request_id: u64, partition: PartitionId, at: Viewstamp, items: Items },
    /// Outcomes of a write, item by item, on disk. Refusals never count.
    #[serde(rename = "wn")]
    Written {
        request_id: u64,
        partition: PartitionId,
        replica: ReplicaId,
        outcomes: Vec<Outcome>,
        /// Start of the sender in which it stored them.
        boot: u64,
        at: Viewstamp,
        /// The sender's cohort, if the question had another version.
        advertised: Option<Box<AdvertisedCohort>>,
        log: LogPosition,
        /// As in [`Known`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
    /// From a node to itself: outcomes of a hinted handoff of a write's facts for the members of a partition, item by item.
    #[serde(rename = "ke")]
    Kept { request_id: u64, partition: PartitionId, outcomes: Vec<Outcome> },
    /// Asks for the facts of a task.
    #[serde(rename = "rd")]
    Read { request_id: u64, partition: PartitionId, at: Viewstamp, id: TaskId },
    /// Answer to `Read`.
    #[serde(rename = "rn")]
    Known { request_id: u64, partition: PartitionId, replica: ReplicaId, known: Box<Known> },
}

impl ReadWrite {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            ReadWrite::Write { partition, .. } => of("write", Class::Urgent, Some(*partition), Check::Nothing),
            ReadWrite::Written { partition, log, .. } => {
                of("written", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
            ReadWrite::Kept { partition, .. } => of("kept", Class::Urgent, Some(*partition), Check::Nothing),
            ReadWrite::Read { partition, .. } => of("read", Class::Urgent, Some(*partition), Check::Promise),
            ReadWrite::Known { partition, .. } => of("known", Class::Urgent, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            ReadWrite::Written { log, .. } => *log = log_position,
            ReadWrite::Write { .. } | ReadWrite::Kept { .. } | ReadWrite::Read { .. } | ReadWrite::Known { .. } => {}
        }
    }
}
