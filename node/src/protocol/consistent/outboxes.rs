//! Nothing is forgotten below a task that a completion still brings (G-2 iv).
//!
//! A child is enqueued under an id of the time when its completion was sent. Where it cannot be handed over for as long as ids
//! must be old to be forgotten, the floor of its partition might pass it, and it would be refused for ever. So a leader, once it
//! has chosen tombstones, asks all nodes whether they know of a completion that brings a task into this partition, with an id
//! above the floor and not above the last of these. One that does, or has holes, does not answer, and the tombstones stay.
//!
//! **Why that is enough.** Whoever is heard and whole must answer, and where some are away, those that did must be a majority of
//! every cohort: so one of them has every completion that was acknowledged strictly before it was asked, with its children, or
//! knows that they are enqueued. A completion that is acknowledged later does not bring such an old task: a replica takes none
//! with children that are half as old as what is forgotten (`Node::brings_late`), by its own clock, and says yes to none that it
//! knows already: what was lost of one that a minority took is over as well. So a clock must be wrong by that much at a
//! majority there, against every member's clock here, for a child to be refused.
//!
//! Nodes of versions that know no children have none. The price of all this is one short question to each node for each batch
//! of up to `FORGET_TASKS_MAX` tasks; and a partition that cannot take children for longer than `forget_after_ms` forgets
//! nothing that is younger than these, which nobody could do without its members anyway.

use super::Epoch;
use super::forgetting::is_old;
use crate::config::mutant;
use crate::protocol::Node;
use crate::protocol::feature::Feature;
use crate::protocol::peer::PeerMessage;
use crate::protocol::task::Completed;
use norn_client::wire::{NodeId, PartitionId, TaskId};

impl Node {
    /// At a leader that has chosen tombstones.
    pub(super) fn ask_for_outboxes(&mut self, partition: PartitionId) {
        let above = self.partitions[&partition].register.table.forgetting.floor;
        let Some((epoch, number, up_to)) = self.question_of(partition) else { return };
        for node in self.silent_about_children(partition) {
            self.outbox.send(node, PeerMessage::Outboxes { partition, epoch, number, above, up_to });
        }
    }

    fn question_of(&self, partition: PartitionId) -> Option<(Epoch, u64, TaskId)> {
        let leading = self.partitions[&partition].register.leading()?;
        Some((leading.epoch, leading.retiring.number, *leading.retiring.ids.last()?))
    }

    /// Nodes that are heard and whole, and have not said yet that they bring nothing. One that has not connected yet is one.
    pub(super) fn silent_about_children(&self, partition: PartitionId) -> Vec<NodeId> {
        let Some(leading) = self.partitions[&partition].register.leading() else { return Vec::new() };
        let said = |node: &NodeId| leading.retiring.childless.contains(node) || self.knows_no_children(*node);
        let asked = self.peers.keys().filter(|node| self.is_alive(**node) && !self.is_holed(**node));
        asked.filter(|node| !said(node)).copied().collect()
    }

    /// It has connected, and speaks an older version.
    fn knows_no_children(&self, node: NodeId) -> bool {
        self.outbox.older_than(Feature::Children.since()).any(|older| older == node)
    }

    /// At any node: a leader asks.
    pub(in crate::protocol) fn on_outboxes(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        (above, up_to): (Option<TaskId>, TaskId),
    ) {
        if self.genesis.is_some() && !self.has_holes() && !self.brings(partition, above, up_to) {
            self.outbox.send_durable(from, PeerMessage::Childless { partition, epoch, number });
        }
    }

    /// At the leader: a node brings nothing.
    pub(in crate::protocol) fn on_childless(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
    ) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.register.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        let retiring = &mut leading.retiring;
        if retiring.number == number && !retiring.ids.is_empty() && self.peers.contains_key(&from) {
            retiring.childless.insert(from);
            self.forget_buried(partition);
        }
    }

    /// Whether a completion that is known here brings a task into a partition, with an id within these bounds.
    fn brings(&self, partition: PartitionId, above: Option<TaskId>, up_to: TaskId) -> bool {
        let mut brought = self.partitions.values().flat_map(|replica| replica.store.brought(above, up_to));
        brought.any(|child| self.partition_of(&child) == partition)
    }

    /// Whether no child can be lost if what a leader has chosen is forgotten now.
    pub(super) fn nothing_is_brought(&self, partition: PartitionId) -> bool {
        if mutant!(self.config, ForgetsUnasked) {
            return true;
        }
        let above = self.partitions[&partition].register.table.forgetting.floor;
        let Some((_, _, up_to)) = self.question_of(partition) else { return false };
        if !self.silent_about_children(partition).is_empty() || self.brings(partition, above, up_to) {
            return false;
        }
        let retiring = &self.partitions[&partition].register.leading().expect("it leads").retiring;
        let said = |node: NodeId| {
            let own = node == self.me && !self.has_holes();
            own || retiring.childless.contains(&node) || self.knows_no_children(node)
        };
        if said(self.me) && self.peers.keys().all(|node| said(*node)) {
            return true;
        }
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        (0..partitions).all(|place| {
            let cohort = self.cohort_of(PartitionId(place as u16));
            cohort.members_quorum(said) && cohort.next_quorum(said)
        })
    }

    /// Whether a completion brings tasks that are so old that they might be forgotten before they are enqueued.
    pub(in crate::protocol) fn brings_late<'a>(&self, mut completions: impl Iterator<Item = &'a Completed>) -> bool {
        let is_old = |child: &TaskId| is_old(child, self.config.forget_after_ms / 2, self.now.wall_ms);
        completions.any(|done| done.open_children().is_some_and(|children| children.ids.iter().any(is_old)))
    }
}
