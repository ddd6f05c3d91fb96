//! The operations on the table of one partition.
//!
//! They carry values, never computations, so that applying them is the same everywhere.

use super::cell::{Cell, CellState};
use super::cohort::Change;
use super::ledger::Decided;
use super::levels::Level;
use super::{Epoch, Viewstamp};
use crate::protocol::root::Operation;
use crate::protocol::schedules;
use crate::protocol::task::{Completed, Task, end_bytes};
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::Refusal;
use norn_wire::{ClaimId, PartitionId, QueueName, Spec, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A task that has ended, with the facts that every replica must know before it forgets the claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Task.
    pub id: TaskId,
    /// Its ending, and its committed claims.
    pub facts: Task,
}

/// How many claims of a queue a partition may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// So many.
    pub count: u32,
    /// Of the leader that asked for it.
    pub epoch: Epoch,
    /// Its question.
    pub ask: u64,
}

/// A change of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Hands tasks to a worker.
    #[serde(rename = "G")]
    Grant {
        /// The call that takes them.
        claim: ClaimId,
        /// Who works.
        worker: Arc<str>,
        /// Length of the lease.
        lease_ms: u64,
        /// Wall clock of the leader.
        granted_ms: u64,
        /// Tasks, with the number of each token.
        items: Vec<(TaskId, u64)>,
        /// The session of the worker, with which the claims end.
        #[serde(default)]
        session: Option<TaskId>,
        /// The leases of claims ran out that these follow, and their histories say so.
        #[serde(default)]
        lapsed: bool,
    },
    /// Prolongs claims; nothing ever becomes shorter.
    #[serde(rename = "R")]
    Renew {
        /// Task, token, new length, new end by the leader's wall clock.
        items: Vec<(TaskId, Token, u64, u64)>,
    },
    /// Gives a claim back.
    #[serde(rename = "E")]
    Release {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// Claimable from then on.
        not_before_ms: u64,
        /// When, by the leader's wall clock.
        at_ms: u64,
        /// The attempt failed; a claim that is merely handed back is no attempt.
        failed: bool,
        /// How the claim ended, for its history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Takes back grants that nobody was told of.
    #[serde(rename = "V")]
    Void {
        /// Task and token.
        items: Vec<(TaskId, Token)>,
    },
    /// Gives a task up.
    #[serde(rename = "K")]
    Kill {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// For people.
        reason: Arc<str>,
        /// When.
        at_ms: u64,
        /// How the claim ended, for its history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Ends a task with the completion of its holder.
    #[serde(rename = "S")]
    Seal {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// The completion.
        completed: Box<Completed>,
    },
    /// Forgets the claims of tasks that have ended, and tells everybody how.
    #[serde(rename = "D")]
    Drop {
        /// Tasks.
        items: Vec<Ended>,
    },
    /// A majority has these endings on disk: they need not travel with the table any more.
    #[serde(rename = "C")]
    Clear {
        /// Everything exported by operations up to this one.
        upto: Viewstamp,
    },
    /// This shall be the one task with its key: it becomes a fact once that is committed.
    #[serde(rename = "U")]
    Reserve {
        /// Task.
        id: TaskId,
        /// With a key.
        spec: Arc<Spec>,
    },
    /// What was reserved are tasks now on the disks of a majority, or can never be any more.
    #[serde(rename = "P")]
    Placed {
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// These tasks change together. It is made, whoever leads: once this is committed it becomes facts.
    #[serde(rename = "X")]
    Decide {
        /// The transaction.
        id: TaskId,
        /// What becomes of them.
        decided: Arc<Decided>,
    },
    /// A majority has the facts: claims that end with it are over, and the tasks may be claimed again.
    #[serde(rename = "Y")]
    Made {
        /// The transaction.
        id: TaskId,
    },
    /// This transaction is not made, and never will be: whoever asked is told once that is committed.
    #[serde(rename = "Z")]
    Refuse {
        /// The transaction.
        id: TaskId,
        /// What stood against it.
        refusal: Box<Refusal>,
    },
    /// A partition may have so many claims of a queue that is at home here.
    #[serde(rename = "Q")]
    Quota {
        /// Queue.
        queue: QueueName,
        /// Partition.
        partition: PartitionId,
        /// Without a count there is none any more.
        quota: Quota,
    },
    /// The bucket of a queue's rate, at home here, holds so much.
    #[serde(rename = "L")]
    Level {
        /// Queue.
        queue: QueueName,
        /// `None` where it is not kept any more.
        level: Option<Level>,
    },
    /// Forgets tasks of which every member has the tombstone on disk.
    #[serde(rename = "F")]
    Forget {
        /// In order.
        ids: Vec<TaskId>,
    },
    /// Every member has forgotten what the last `Forget` names.
    #[serde(rename = "N")]
    Forgotten,
    /// A step of a change of the cohort.
    #[serde(rename = "H")]
    Cohort(Change),
    /// A change of the cluster. In the root alone.
    #[serde(rename = "M")]
    Root(Operation),
    /// A change of the schedules. In the root alone.
    #[serde(rename = "T")]
    Schedules(schedules::Operation),
}

impl Op {
    /// What it makes of the one claim that it is about; false if that was not as expected.
    pub fn conclude(&self, cell: &mut Cell, at: Viewstamp) -> bool {
        match self {
            Op::Release { not_before_ms, at_ms, failed, end, .. } => {
                cell.expires_ms = cell.expires_ms.min(*at_ms).max(cell.granted_ms);
                cell.attempt = cell.attempt.saturating_sub(u32::from(!failed));
                let released = CellState::Released { not_before_ms: *not_before_ms, end: end.clone() };
                std::mem::replace(&mut cell.state, released) == CellState::Held
            }
            Op::Kill { reason, at_ms, end, .. } => {
                cell.state = CellState::Dead { reason: reason.clone(), at_ms: *at_ms, end: end.clone() };
                true
            }
            Op::Seal { token, completed, .. } => {
                // What a claim tells of itself becomes a fact only once this is committed.
                cell.renewed = at;
                let sealed = CellState::Sealed { completed: completed.clone() };
                let before = std::mem::replace(&mut cell.state, sealed);
                token.needs_seal() && matches!(before, CellState::Held | CellState::Released { .. })
            }
            _ => false,
        }
    }

    /// Bytes of what it carries, for budgets: only what can be large is counted.
    pub fn size_bytes(&self) -> usize {
        const ITEM_BYTES: usize = 64;
        match self {
            Op::Drop { items } => items.iter().map(|ended| ended.facts.size_bytes() + ITEM_BYTES).sum(),
            Op::Grant { items, .. } => items.len() * ITEM_BYTES,
            Op::Renew { items } => items.len() * ITEM_BYTES,
            Op::Void { items } => items.len() * ITEM_BYTES,
            Op::Forget { ids } | Op::Placed { ids } => ids.len() * ITEM_BYTES,
            Op::Reserve { spec, .. } => spec.payload.len() + ITEM_BYTES,
            Op::Decide { decided, .. } => decided.size_bytes(),
            Op::Refuse { refusal, .. } => refusal.size_bytes() + ITEM_BYTES,
            Op::Kill { reason, end, .. } => reason.len() + end.as_deref().map_or(0, end_bytes) + ITEM_BYTES,
            Op::Release { end, .. } => end.as_deref().map_or(0, end_bytes) + ITEM_BYTES,
            Op::Seal { completed, .. } => completed.size_bytes() + ITEM_BYTES,
            Op::Root(Operation::Layout(layout)) => {
                layout.lists.iter().map(|list| 2 * list.len()).sum::<usize>() + ITEM_BYTES
            }
            Op::Schedules(operation) => operation.size_bytes(),
            Op::Made { .. }
            | Op::Clear { .. }
            | Op::Forgotten
            | Op::Cohort(_)
            | Op::Root(_)
            | Op::Level { .. }
            | Op::Quota { .. } => ITEM_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::task::{PastClaim, claim_end};
    use norn_wire::response::ClaimOutcome;

    fn grant(session: Option<TaskId>, lapsed: bool) -> Op {
        let items = vec![(TaskId::MIN, 8)];
        Op::Grant { claim: ClaimId(1), worker: "w".into(), lease_ms: 1, granted_ms: 2, items, session, lapsed }
    }

    /// Fields of what is written of an operation by position.
    fn fields(op: &Op) -> usize {
        let bytes = rmp_serde::to_vec(op).expect("operations always encode");
        assert_eq!(rmp_serde::from_slice::<Op>(&bytes).expect("it was just written"), *op);
        let value: Vec<serde::de::IgnoredAny> = rmp_serde::from_slice::<std::collections::BTreeMap<String, _>>(&bytes)
            .expect("a map")
            .into_values()
            .next()
            .expect("one");
        value.len()
    }

    /// Goal: what says nothing of the ends of claims has the bytes that logs of before have, and what does is read again.
    #[test]
    fn fields_that_came_later_are_left_out_where_there_is_nothing_in_them() {
        for (session, lapsed) in [(None, false), (Some(TaskId::MIN), false), (None, true), (Some(TaskId::MIN), true)] {
            assert_eq!(fields(&grant(session, lapsed)), 7);
        }
        for (end, more) in [(None, 0), (Some(claim_end(ClaimOutcome::Failed, 7, "no")), 1)] {
            let (id, token) = (TaskId::MIN, Token { epoch: 1, number: 2 });
            let release = Op::Release { id, token, not_before_ms: 0, at_ms: 7, failed: true, end: end.clone() };
            assert_eq!(fields(&release), 5 + more);
            assert_eq!(fields(&Op::Kill { id, token, reason: "no".into(), at_ms: 7, end: end.clone() }), 4 + more);
            let past = PastClaim { start_ms: 1, end_ms: 2, worker: "w".into(), end: end.clone() };
            let bytes = rmp_serde::to_vec(&past).expect("claims always encode");
            assert_eq!(rmp_serde::from_slice::<PastClaim>(&bytes).expect("it was just written"), past);
            assert_eq!(usize::from(bytes[0] & 0xf), 3 + more, "an array of so many fields");
            for state in [
                CellState::Released { not_before_ms: 1, end: end.clone() },
                CellState::Dead { reason: "no".into(), at_ms: 1, end },
            ]
            .iter()
            {
                let bytes = rmp_serde::to_vec(state).expect("states always encode");
                assert_eq!(rmp_serde::from_slice::<CellState>(&bytes).expect("it was just written"), *state);
            }
        }
    }
}
