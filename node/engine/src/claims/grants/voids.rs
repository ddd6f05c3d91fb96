//! Grants that a leader has voided itself, as they were not committed in time. Until the void is committed, a successor may know of the
//! grant alone: an answer about the call does not speak for the partition.

use crate::Node;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{ClaimId, PartitionId};
use std::collections::BTreeMap;

/// Most voids that are remembered.
const VOIDS_MAX: usize = 10_000;

/// Latest operation that voids grants of a claim in a partition.
#[derive(Debug, Default)]
pub(super) struct Voids(BTreeMap<(ClaimId, PartitionId), Viewstamp>);

impl Node {
    /// Records that the latest operation of a partition voids grants of a claim.
    pub(super) fn remember_void(&mut self, claim: ClaimId, partition: PartitionId) {
        let at = self.partitions[&partition].consensus.viewstamp;
        self.claims.grants.voids.0.insert((claim, partition), at);
        if self.claims.grants.voids.0.len() > VOIDS_MAX {
            let mut voids = std::mem::take(&mut self.claims.grants.voids.0);
            voids.retain(|(_, partition), at| self.is_unsettled(*partition, *at));
            if voids.len() > VOIDS_MAX {
                voids.pop_first();
            }
            self.claims.grants.voids.0 = voids;
        }
        assert!(self.claims.grants.voids.0.len() <= VOIDS_MAX, "too many voids are remembered");
    }

    /// Partitions in which a successor may find grants of a claim that this leader has voided.
    pub(super) fn open_voids(&mut self, claim: ClaimId) -> Vec<PartitionId> {
        let range = (claim, PartitionId(0))..=(claim, PartitionId(u16::MAX));
        let of_claim: Vec<(PartitionId, Viewstamp)> =
            self.claims.grants.voids.0.range(range).map(|((_, partition), at)| (*partition, *at)).collect();
        let (open, over): (Vec<_>, Vec<_>) =
            of_claim.into_iter().partition(|(partition, at)| self.is_unsettled(*partition, *at));
        for (partition, _) in over {
            self.claims.grants.voids.0.remove(&(claim, partition));
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
