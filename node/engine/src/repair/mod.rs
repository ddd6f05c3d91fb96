//! Making replicas agree: Merkle anti-entropy, and hinted handoff.

pub mod anti_entropy;
pub mod hints;

use anti_entropy::SyncState;
use hints::Hints;
use norn_model::message::Items;
use norn_model::task::Task;
use norn_wire::{NodeId, PartitionId, TaskId};

/// What replicas owe each other. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Repair {
    /// State of anti-entropy with each peer.
    anti_entropy: SyncState,
    hints: Hints,
}

impl Repair {
    /// Notes that a partition changed, so that it is compared.
    pub(crate) fn changed(&mut self, partition: PartitionId) {
        self.anti_entropy.changed(partition);
    }

    /// Counts writes of clients against the budget: they go first.
    pub(crate) fn yield_to(&mut self, items: &Items) {
        self.anti_entropy.yield_to(items);
    }

    /// Notes that a peer has sent what it was found to have.
    pub(crate) fn brought(&mut self, from: NodeId, partition: PartitionId, now_us: u64) {
        self.anti_entropy.brought(from, partition, now_us);
    }

    /// Notes that a node has begun anew.
    pub(crate) fn restarted(&mut self, node: NodeId) {
        self.hints.restarted(node);
    }

    /// Forgets what a node acknowledged in earlier starts.
    pub(crate) fn forget_answers(&mut self, node: NodeId, boot: u64) {
        self.hints.forget_answers(node, boot);
    }

    /// Looks at all hints again: cohorts have changed.
    pub(crate) fn look_anew(&mut self) {
        self.hints.look_anew();
    }

    /// Number of tasks kept for others.
    pub(crate) fn kept_count(&self) -> usize {
        self.hints.payload_hints.count()
    }

    /// Tasks kept for others behind this one, each with the time since when.
    pub(crate) fn kept_after(
        &self,
        after: Option<(PartitionId, TaskId)>,
    ) -> impl Iterator<Item = ((PartitionId, TaskId), &Task, u64)> {
        self.hints.payload_hints.after(after)
    }

    /// What members lack behind this, each with the time since when.
    pub(crate) fn owed_after(
        &self,
        after: Option<(NodeId, (PartitionId, TaskId))>,
    ) -> impl Iterator<Item = (NodeId, (PartitionId, TaskId), u64)> {
        self.hints.id_hints.after(after)
    }
}

#[cfg(test)]
impl Repair {
    pub(crate) fn overspend(&mut self) {
        self.anti_entropy.overspend();
    }

    pub(crate) fn owed(&self) -> &hints::IdHints {
        &self.hints.id_hints
    }

    /// Whether nothing is kept or noted for others.
    pub(crate) fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }
}
