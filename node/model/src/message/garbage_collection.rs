//! Archiving and forgetting of ended tasks.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::task::{Digest, Tombstone};
use crate::viewstamp::{Epoch, ReplicaId};
use norn_wire::{PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Archiving and forgetting of ended tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GarbageCollection {
    /// The receiver sent these tasks, and may have incomplete facts; the sender has forgotten them, as everything up to `forgets`.
    #[serde(rename = "xg")]
    Gone { partition: PartitionId, forgets: u64, ids: Vec<TaskId> },
    /// Asks of which of these tasks, about to be archived, the receiver has exactly these facts.
    #[serde(rename = "fc")]
    Compare { partition: PartitionId, epoch: Epoch, number: u64, items: Vec<(TaskId, Digest)> },
    /// Answer to `Compare`. A replica with incomplete facts names no task.
    #[serde(rename = "fs")]
    Compared { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, same: Vec<TaskId> },
    /// Replaces tasks by these tombstones. With a number: asks the receiver to report to the sender, a leader, once it has all of
    /// them.
    #[serde(rename = "ft")]
    Tombs { partition: PartitionId, epoch: Epoch, number: u64, items: Arc<Vec<(TaskId, Tombstone)>> },
    /// Answer to `Tombs`: all of them are on disk.
    #[serde(rename = "fb")]
    Buried { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, log: LogPosition },
    /// Asks for an answer from nodes that know no completion which brings tasks into this partition with ids within these bounds.
    #[serde(rename = "fo")]
    Outboxes { partition: PartitionId, epoch: Epoch, number: u64, above: Option<TaskId>, up_to: TaskId },
    /// Answer to `Outboxes`: the sender knows no such completion.
    #[serde(rename = "fn")]
    Childless { partition: PartitionId, epoch: Epoch, number: u64, slots: u64 },
    /// Asks to forget the tasks of the `count`th forgetting in the table, which is committed.
    #[serde(rename = "ff")]
    Forget { partition: PartitionId, epoch: Epoch, count: u64 },
    /// Answer to `Forget`: they are forgotten, on disk.
    #[serde(rename = "fd")]
    Forgot { partition: PartitionId, epoch: Epoch, count: u64, replica: ReplicaId, log: LogPosition },
}

impl GarbageCollection {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            GarbageCollection::Gone { partition, .. } => of("gone", Class::Bulk, Some(*partition), Check::Nothing),
            GarbageCollection::Compare { partition, .. } => {
                of("compare", Class::Bulk, Some(*partition), Check::Promise)
            }
            GarbageCollection::Compared { partition, .. } => {
                of("compared", Class::Bulk, Some(*partition), Check::Nothing)
            }
            GarbageCollection::Tombs { partition, .. } => of("tombs", Class::Bulk, Some(*partition), Check::Promise),
            GarbageCollection::Buried { partition, log, .. } => {
                of("buried", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
            GarbageCollection::Outboxes { partition, .. } => {
                of("outboxes", Class::Urgent, Some(*partition), Check::Nothing)
            }
            GarbageCollection::Childless { partition, .. } => {
                of("childless", Class::Urgent, Some(*partition), Check::Nothing)
            }
            GarbageCollection::Forget { partition, .. } => {
                of("forget", Class::Urgent, Some(*partition), Check::Promise)
            }
            GarbageCollection::Forgot { partition, log, .. } => {
                of("forgot", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            GarbageCollection::Buried { log, .. } | GarbageCollection::Forgot { log, .. } => *log = log_position,
            GarbageCollection::Gone { .. }
            | GarbageCollection::Compare { .. }
            | GarbageCollection::Compared { .. }
            | GarbageCollection::Tombs { .. }
            | GarbageCollection::Outboxes { .. }
            | GarbageCollection::Childless { .. }
            | GarbageCollection::Forget { .. } => {}
        }
    }
}
