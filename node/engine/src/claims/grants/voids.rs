//! Grants that a leader has voided itself, as they were not committed in time. Until the void is committed, a successor may know of the
//! grant alone: an answer about the call does not speak for the partition. And grants that are to be voided once the transaction is over
//! that keeps their tasks as they are.

use crate::Node;
use norn_model::claim_table::table::{ClaimEntry, ClaimState};
use norn_model::viewstamp::Viewstamp;
use norn_wire::{ClaimId, PartitionId, TaskId, Token};
use std::collections::BTreeMap;

/// Most voids that are remembered.
const VOIDS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Voids {
    /// Latest operation that voids grants of a claim in a partition.
    own: BTreeMap<(ClaimId, PartitionId), Viewstamp>,
    /// Grants of locked tasks, as they were last granted or renewed.
    locked: BTreeMap<(PartitionId, TaskId), (Token, Viewstamp)>,
}

impl Voids {
    /// Forgets what only the leader of the partition keeps.
    pub fn step_down(&mut self, partition: PartitionId) {
        self.locked.retain(|(of, _), _| *of != partition);
    }
}

impl Node {
    /// Records that the latest operation of a partition voids grants of a claim.
    pub(super) fn remember_void(&mut self, claim: ClaimId, partition: PartitionId) {
        let at = self.partitions[&partition].consensus.viewstamp;
        self.claims.grants.voids.own.insert((claim, partition), at);
        if self.claims.grants.voids.own.len() > VOIDS_MAX {
            let mut voids = std::mem::take(&mut self.claims.grants.voids.own);
            voids.retain(|(_, partition), at| self.is_unsettled(*partition, *at));
            if voids.len() > VOIDS_MAX {
                voids.pop_first();
            }
            self.claims.grants.voids.own = voids;
        }
        assert!(self.claims.grants.voids.own.len() <= VOIDS_MAX, "too many voids are remembered");
    }

    /// Puts the voiding of locked tasks' grants off. Returns the others.
    pub(super) fn keep_locked(&mut self, partition: PartitionId, items: Vec<(TaskId, Token)>) -> Vec<(TaskId, Token)> {
        let consensus = &self.partitions[&partition].consensus;
        let (locked, free): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|(id, _)| consensus.table.ledger.is_locked(id));
        for (id, token) in locked {
            if let Some(entry) = consensus.claim_entry(&id).filter(|entry| entry.token == token) {
                self.claims.grants.voids.locked.insert((partition, id), (token, entry.renewed));
            }
        }
        free
    }

    /// A transaction is over: voids grants of its tasks that were put off, unless they were renewed since.
    pub(crate) fn void_unlocked(&mut self, partition: PartitionId) {
        let all = (partition, TaskId::MIN)..=(partition, TaskId::MAX);
        let kept: Vec<_> = self.claims.grants.voids.locked.range(all).map(|((_, id), grant)| (*id, *grant)).collect();
        let consensus = &self.partitions[&partition].consensus;
        let (mut items, mut over) = (Vec::new(), Vec::new());
        for (id, (token, renewed)) in kept {
            if consensus.table.ledger.is_locked(&id) {
                continue;
            }
            over.push(id);
            let is_same = |entry: &ClaimEntry| {
                (entry.token, entry.renewed) == (token, renewed) && entry.state == ClaimState::Held
            };
            if consensus.claim_entry(&id).is_some_and(is_same) {
                items.push((id, token));
            }
        }
        for id in over {
            self.claims.grants.voids.locked.remove(&(partition, id));
        }
        self.void(partition, items);
    }

    /// Partitions in which a successor may find grants of a claim that this leader has voided.
    pub(super) fn open_voids(&mut self, claim: ClaimId) -> Vec<PartitionId> {
        let range = (claim, PartitionId(0))..=(claim, PartitionId(u16::MAX));
        let of_claim: Vec<(PartitionId, Viewstamp)> =
            self.claims.grants.voids.own.range(range).map(|((_, partition), at)| (*partition, *at)).collect();
        let (open, over): (Vec<_>, Vec<_>) =
            of_claim.into_iter().partition(|(partition, at)| self.is_unsettled(*partition, *at));
        for (partition, _) in over {
            self.claims.grants.voids.own.remove(&(claim, partition));
        }
        open.into_iter().map(|(partition, _)| partition).collect()
    }

    /// Whether this node still leads the epoch in which it appended an operation, and does not know it committed. Another leader
    /// answers for itself.
    fn is_unsettled(&self, partition: PartitionId, at: Viewstamp) -> bool {
        let Some(replica) = self.partitions.get(&partition) else { return false };
        let leads = replica.consensus.leading().is_some_and(|leading| leading.epoch == at.epoch);
        leads && replica.consensus.commit < at.length
    }
}
