//! Dependencies, groups and unique keys of tasks, and transactions that reach several partitions.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::claim_table::ledger::{Round, Stamps};
use crate::task::Settled;
use crate::viewstamp::{Epoch, ReplicaId};
use norn_wire::error::Error;
use norn_wire::group::MemberOf;
use norn_wire::transaction::Refusal;
use norn_wire::{PartitionId, QueueName, TaskId, Transaction};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Answer of a partition's leader about its part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vote {
    /// The part is prepared, and a majority has that on disk; the versions of its tasks after it.
    #[serde(rename = "P")]
    Prepared(Stamps),
    /// Some of its tasks are not as expected.
    #[serde(rename = "R")]
    Refused(Box<Refusal>),
    /// It can never be made.
    #[serde(rename = "F")]
    Failed(Box<Error>),
    /// It could not be judged now, as when another transaction has one of its tasks.
    #[serde(rename = "B")]
    Busy(Box<Error>),
}

/// Dependencies, groups and unique keys of tasks, and transactions that reach several partitions.
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
    /// The coordinator's leader asks a partition's leader to prepare its part of a transaction.
    #[serde(rename = "tp")]
    Prepare { partition: PartitionId, coordinator: PartitionId, round: Round, part: Box<Transaction> },
    /// Answer to `Prepare`.
    #[serde(rename = "tv")]
    PartVote { coordinator: PartitionId, partition: PartitionId, id: TaskId, round: Round, vote: Vote },
    /// The coordinator's leader tells a partition's leader the outcome of a round: its decision is committed, or it has given up.
    #[serde(rename = "tc")]
    Conclude { coordinator: PartitionId, partition: PartitionId, id: TaskId, round: Round, commit: bool },
    /// Answer to `Conclude` with `commit`: the part is made, and that is committed.
    #[serde(rename = "td")]
    Concluded { coordinator: PartitionId, partition: PartitionId, id: TaskId, round: Round },
    /// A partition's leader that has a prepared part asks the coordinator's leader for the outcome; answered by `Conclude` once there is
    /// one.
    #[serde(rename = "ta")]
    AskOutcome { coordinator: PartitionId, partition: PartitionId, id: TaskId, round: Round },
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
            Workflow::Prepare { partition, .. } => of("prepare", Class::Urgent, Some(*partition), Check::Nothing),
            Workflow::PartVote { coordinator, .. } => {
                of("part_vote", Class::Urgent, Some(*coordinator), Check::Nothing)
            }
            Workflow::Conclude { partition, .. } => of("conclude", Class::Urgent, Some(*partition), Check::Nothing),
            Workflow::Concluded { coordinator, .. } => {
                of("concluded", Class::Urgent, Some(*coordinator), Check::Nothing)
            }
            Workflow::AskOutcome { coordinator, .. } => {
                of("ask_outcome", Class::Urgent, Some(*coordinator), Check::Nothing)
            }
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Workflow::Follow { .. }
            | Workflow::Ends { .. }
            | Workflow::MemberFailed { .. }
            | Workflow::KeyAsk { .. }
            | Workflow::KeyAnswer { .. }
            | Workflow::Prepare { .. }
            | Workflow::PartVote { .. }
            | Workflow::Conclude { .. }
            | Workflow::Concluded { .. }
            | Workflow::AskOutcome { .. } => {}
        }
    }
}
