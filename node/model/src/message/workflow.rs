//! Dependencies, groups and unique keys of tasks.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::task::Settled;
use crate::viewstamp::{Epoch, ReplicaId};
use norn_wire::group::MemberOf;
use norn_wire::{PartitionId, QueueName, TaskId};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Dependencies, groups and unique keys of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workflow {
    /// Asks for the endings of these tasks, now or when they end; tasks of a partition that the sender leads wait for them.
    #[serde(rename = "fl")]
    Follow { partition: PartitionId, ids: Vec<TaskId> },
    /// Endings of tasks that tasks of a partition led by the receiver wait for.
    #[serde(rename = "en")]
    Ends {
        partition: PartitionId,
        ends: Vec<(TaskId, Settled)>,
        /// For some of them, joins of groups that their completions brought.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        joins: Vec<(TaskId, TaskId)>,
    },
    /// A member of a group has ended otherwise than by completion; the receiver leads the partition of the join.
    #[serde(rename = "mf")]
    MemberFailed { member: MemberOf, how: Settled },
    /// Asks which tasks with this key the receiver knows as not ended, and which of `ids` it knows as ended.
    #[serde(rename = "ka")]
    KeyAsk {
        request_id: u64,
        partition: PartitionId,
        epoch: Epoch,
        queue: QueueName,
        key: NonZeroU64,
        ids: Vec<TaskId>,
    },
    /// Answer to `KeyAsk`, with the first of the open ones. Replicas with incomplete facts do not answer, nor those whose table is not of
    /// that epoch: a task that ended by a claim in another table may not have ended.
    #[serde(rename = "kd")]
    KeyAnswer { request_id: u64, partition: PartitionId, replica: ReplicaId, open: Vec<TaskId>, ended: Vec<TaskId> },
}

impl Workflow {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Workflow::Follow { partition, .. } => of("follow", Class::Urgent, Some(*partition), Check::Nothing),
            Workflow::Ends { partition, .. } => of("ends", Class::Urgent, Some(*partition), Check::Nothing),
            Workflow::MemberFailed { .. } => of("member_failed", Class::Urgent, None, Check::Nothing),
            Workflow::KeyAsk { partition, .. } => of("key_ask", Class::Urgent, Some(*partition), Check::Nothing),
            Workflow::KeyAnswer { partition, .. } => of("key_answer", Class::Urgent, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Workflow::Follow { .. }
            | Workflow::Ends { .. }
            | Workflow::MemberFailed { .. }
            | Workflow::KeyAsk { .. }
            | Workflow::KeyAnswer { .. } => {}
        }
    }
}
