//! Operations on the claim table of one partition.
//!
//! They carry values, never computations, so that applying them is the same everywhere.

use super::entry::{ClaimEntry, ClaimState};
use super::ledger::{Decided, Prepared, Round, Spread};
use super::levels::Level;
use crate::cohort::Change;
use crate::metadata::Operation;
use crate::schedules;
use crate::task::{Completed, Task, end_bytes};
use crate::viewstamp::{Epoch, Viewstamp};
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::Refusal;
use norn_wire::{ClaimId, PartitionId, QueueName, Spec, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An ended task, with the facts that every replica must have before it forgets the claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Task id.
    pub id: TaskId,
    /// Ending of the task, and its committed claims.
    pub facts: Task,
}

/// Concurrency slot quota: how many claims of a queue a partition may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotQuota {
    /// Number of claims.
    pub count: u32,
    /// Epoch of the leader that requested it.
    pub epoch: Epoch,
    /// Number of that leader's request.
    pub request_id: u64,
}

/// Operation on the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Grants tasks to a worker.
    #[serde(rename = "G")]
    Grant {
        /// Claim call that takes them.
        claim: ClaimId,
        /// Worker name.
        worker: Arc<str>,
        /// Length of the lease.
        lease_ms: u64,
        /// Wall clock of the leader.
        granted_ms: u64,
        /// Tasks, with the token number of each.
        items: Vec<(TaskId, u64)>,
        /// Worker session with which the claims end.
        #[serde(default)]
        session: Option<TaskId>,
        /// The previous claims of these tasks expired; their histories record that.
        #[serde(default)]
        lapsed: bool,
    },
    /// Prolongs claims; never shortens one.
    #[serde(rename = "R")]
    Renew {
        /// Task, token, new length, new end by the leader's wall clock.
        items: Vec<(TaskId, Token, u64, u64)>,
    },
    /// Gives a claim back.
    #[serde(rename = "E")]
    Release {
        /// Task id.
        id: TaskId,
        /// Token of the claim.
        token: Token,
        /// Earliest next claim.
        not_before_ms: u64,
        /// When it was given back, by the leader's wall clock.
        at_ms: u64,
        /// Whether the attempt failed; a claim that is merely handed back is no attempt.
        failed: bool,
        /// How the claim ended, for its history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Revokes grants that no client learned of.
    #[serde(rename = "V")]
    Void {
        /// Task and token.
        items: Vec<(TaskId, Token)>,
    },
    /// Gives a task up.
    #[serde(rename = "K")]
    Kill {
        /// Task id.
        id: TaskId,
        /// Token of the claim.
        token: Token,
        /// Reason, for people to read.
        reason: Arc<str>,
        /// When it was given up.
        at_ms: u64,
        /// How the claim ended, for its history.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<Arc<ClaimEnd>>,
    },
    /// Ends a task with the completion of its holder (leader-committed completion).
    #[serde(rename = "S")]
    Seal {
        /// Task id.
        id: TaskId,
        /// Token of the claim.
        token: Token,
        /// The completion.
        completed: Box<Completed>,
    },
    /// Removes the entries of ended tasks and exports their endings to all replicas.
    #[serde(rename = "D")]
    Drop {
        /// Ended tasks. The table hands on these very ones.
        items: Arc<[Ended]>,
    },
    /// Stops carrying endings with the table, because a majority has them on disk.
    #[serde(rename = "C")]
    Clear {
        /// Covers everything exported by operations up to this one.
        upto: Viewstamp,
    },
    /// Reserves a unique key for a task. The task becomes a fact once this is committed.
    #[serde(rename = "U")]
    Reserve {
        /// Task id.
        id: TaskId,
        /// Spec, with the key.
        spec: Arc<Spec>,
    },
    /// Ends reservations: a majority has the tasks on disk, or they can never become tasks any more.
    #[serde(rename = "P")]
    Placed {
        /// Reserved tasks.
        ids: Vec<TaskId>,
    },
    /// Commits a transaction: its tasks change together. It is completed whichever node leads; once this is committed, it becomes
    /// facts.
    #[serde(rename = "X")]
    Decide {
        /// Transaction id.
        id: TaskId,
        /// Effects on its tasks.
        decided: Arc<Decided>,
    },
    /// Commits a transaction that several partitions make together, in the partition that decides it. Each other one has prepared its
    /// part in this round.
    #[serde(rename = "B")]
    DecideAcross {
        /// Transaction id.
        id: TaskId,
        /// Effects on the tasks of this partition; its stamps are those of the whole transaction.
        decided: Arc<Decided>,
        /// The other partitions.
        spread: Spread,
    },
    /// Promises to make a part of a transaction as the coordinator decides, and locks its tasks until then.
    #[serde(rename = "W")]
    Prepare {
        /// Transaction id.
        id: TaskId,
        /// The part.
        prepared: Arc<Prepared>,
    },
    /// Drops a prepared part, because the coordinator gave up the round.
    #[serde(rename = "A")]
    Abort {
        /// Transaction id.
        id: TaskId,
        /// Round in which the part was prepared.
        round: Round,
    },
    /// Completes a transaction, because a majority has its facts: claims that end with it are over, and its tasks may be claimed
    /// again.
    #[serde(rename = "Y")]
    Made {
        /// Transaction id.
        id: TaskId,
    },
    /// Refuses a transaction for good. Its requester gets the answer once this is committed.
    #[serde(rename = "Z")]
    Refuse {
        /// Transaction id.
        id: TaskId,
        /// Reasons of the refusal.
        refusal: Box<Refusal>,
    },
    /// Sets the concurrency slot quota of a partition, for a queue whose coordinator partition this is.
    #[serde(rename = "Q")]
    SlotQuota {
        /// Queue name.
        queue: QueueName,
        /// Partition that gets the slot quota.
        partition: PartitionId,
        /// New slot quota; a count of zero removes it.
        slot_quota: SlotQuota,
    },
    /// Persists the level of a queue's token bucket in its coordinator partition.
    #[serde(rename = "L")]
    Level {
        /// Queue name.
        queue: QueueName,
        /// `None` where it is no longer kept.
        level: Option<Level>,
    },
    /// Forgets tasks whose tombstones every member has on disk.
    #[serde(rename = "F")]
    Forget {
        /// Tasks, in order.
        ids: Vec<TaskId>,
    },
    /// Notes that every member has forgotten the tasks of the last `Forget`.
    #[serde(rename = "N")]
    Forgotten,
    /// Step of a reconfiguration of the cohort.
    #[serde(rename = "H")]
    Cohort(Change),
    /// Change of the cluster; in the metadata group alone.
    #[serde(rename = "M")]
    Metadata(Operation),
    /// Change of the cron schedules; in the metadata group alone.
    #[serde(rename = "T")]
    Schedules(schedules::Operation),
}

impl Op {
    /// Applies an operation that ends a single claim to its claim entry; false if the claim entry was not as expected.
    pub fn conclude(&self, entry: &mut ClaimEntry, at: Viewstamp) -> bool {
        match self {
            Op::Release { not_before_ms, at_ms, failed, end, .. } => {
                entry.expires_ms = entry.expires_ms.min(*at_ms).max(entry.granted_ms);
                entry.attempt = entry.attempt.saturating_sub(u32::from(!failed));
                let released = ClaimState::Released { not_before_ms: *not_before_ms, end: end.clone() };
                std::mem::replace(&mut entry.state, released) == ClaimState::Held
            }
            Op::Kill { reason, at_ms, end, .. } => {
                entry.state = ClaimState::Dead { reason: reason.clone(), at_ms: *at_ms, end: end.clone() };
                true
            }
            Op::Seal { token, completed, .. } => {
                // A claim's completion becomes a fact only once this is committed.
                entry.renewed = at;
                let sealed = ClaimState::Sealed { completed: completed.clone() };
                let before = std::mem::replace(&mut entry.state, sealed);
                token.needs_seal() && matches!(before, ClaimState::Held | ClaimState::Released { .. })
            }
            _ => false,
        }
    }

    /// Size in bytes for budgets: counts only what can be large.
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
            Op::DecideAcross { decided, spread, .. } => decided.size_bytes() + spread.partitions.len() * ITEM_BYTES,
            Op::Prepare { prepared, .. } => prepared.decided.size_bytes() + ITEM_BYTES,
            Op::Refuse { refusal, .. } => refusal.size_bytes() + ITEM_BYTES,
            Op::Kill { reason, end, .. } => reason.len() + end.as_deref().map_or(0, end_bytes) + ITEM_BYTES,
            Op::Release { end, .. } => end.as_deref().map_or(0, end_bytes) + ITEM_BYTES,
            Op::Seal { completed, .. } => completed.size_bytes() + ITEM_BYTES,
            Op::Metadata(Operation::Layout(layout)) => {
                layout.lists.iter().map(|list| 2 * list.len()).sum::<usize>() + ITEM_BYTES
            }
            Op::Schedules(operation) => operation.size_bytes(),
            Op::Made { .. }
            | Op::Abort { .. }
            | Op::Clear { .. }
            | Op::Forgotten
            | Op::Cohort(_)
            | Op::Metadata(_)
            | Op::Level { .. }
            | Op::SlotQuota { .. } => ITEM_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{PastClaim, claim_end};
    use norn_wire::response::ClaimOutcome;

    fn grant(session: Option<TaskId>, lapsed: bool) -> Op {
        let items = vec![(TaskId::MIN, 8)];
        Op::Grant { claim: ClaimId(1), worker: "w".into(), lease_ms: 1, granted_ms: 2, items, session, lapsed }
    }

    /// Number of fields in the encoding of an operation, which is by position.
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

    /// Goal: an encoding without ends of claims has the same bytes as in older logs, and one with ends reads back.
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
                ClaimState::Released { not_before_ms: 1, end: end.clone() },
                ClaimState::Dead { reason: "no".into(), at_ms: 1, end },
            ]
            .iter()
            {
                let bytes = rmp_serde::to_vec(state).expect("states always encode");
                assert_eq!(rmp_serde::from_slice::<ClaimState>(&bytes).expect("it was just written"), *state);
            }
        }
    }
}
