//! Guard of the watermark: nothing is forgotten below a child task that a completion still brings (G-2 iv).
//!
//! A child is enqueued under an id of the time when its completion was sent. If it cannot be handed over for as long as ids must be old
//! to be forgotten, the watermark of its partition might pass it, and it would be refused for ever. So a leader that has chosen tombstones
//! asks all nodes whether they know of a completion that brings a task into this partition, with an id above the watermark and not above
//! the last of these. A node that does, or has incomplete facts, does not answer, and the tombstones stay.
//!
//! **Why that is enough.** A majority of every cohort must have answered. So each completion that was strictly acknowledged before the
//! question is known to one of the answering nodes, with its children, or as one whose children are enqueued. Every other node that is
//! alive and whole must answer as well, for completions that only a few have taken. A completion that is acknowledged later does not
//! bring such an old task: a replica accepts none with children that are half as old as what is forgotten (`Node::brings_late`), by its
//! own clock, and does not acknowledge such a completion either if it knows it already; so one that only a minority took stays
//! unacknowledged. So for a child to be refused, clocks must be wrong by that much at a majority there, against every member's clock
//! here.
//!
//! **Completions move.** One node might answer before it learns of a completion, as it becomes a member, and the other one after it has
//! left. So each answer includes the node's cohort slots: a hash of the partitions in which it counts and of the versions of their cohorts.
//! Only answers of the versions that the leader knows now make up majorities; a node that is behind, or ahead, is asked again. As a
//! majority of a version answered *at* that version, the next version was not committed when it was asked, and nothing can have been
//! acknowledged at a later one; and a majority of a version has every strict fact of the versions before (`model/src/cohort.rs`).
//!
//! Nodes that are alive and speak a protocol version without children have none, unless one that has known some is held at an older
//! version afterwards, from which there is no way back anyway. The price of all this is one short question to each node for each batch
//! of up to `FORGET_TASKS_MAX` tasks. A partition that cannot take children for longer than `forget_after_ms` forgets nothing that is
//! younger than these; without its members it could not forget anyway.

use crate::Node;
use norn_model::config::mutant;
use norn_model::message::GarbageCollection;
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64;

impl Node {
    /// Asks all nodes, at a leader that has chosen tombstones.
    pub(crate) fn ask_for_outboxes(&mut self, partition: PartitionId) {
        let above = self.partitions[&partition].consensus.table.forgetting.watermark;
        let Some((epoch, number, up_to)) = self.question_of(partition) else { return };
        let sure = self.sure_of_no_children(partition);
        let unsure: Vec<NodeId> = self.asked_for_children().filter(|node| !sure.contains(node)).collect();
        for node in unsure {
            self.outbox.send(node, GarbageCollection::Outboxes { partition, epoch, number, above, up_to });
        }
    }

    fn question_of(&self, partition: PartitionId) -> Option<(Epoch, u64, TaskId)> {
        let leading = self.partitions[&partition].consensus.leading()?;
        Some((leading.epoch, leading.retiring.number, *leading.retiring.ids.last()?))
    }

    /// Nodes that are alive and whole.
    fn asked_for_children(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.others().filter(|node| self.is_alive(*node) && !self.is_incomplete(*node))
    }

    /// Those of them that have not answered yet that they bring nothing.
    pub(crate) fn silent_about_children(&self, partition: PartitionId) -> Vec<NodeId> {
        let Some(leading) = self.partitions[&partition].consensus.leading() else { return Vec::new() };
        let said = &leading.retiring.childless;
        self.asked_for_children().filter(|node| !said.contains_key(node)).collect()
    }

    /// Nodes that bring nothing, and whose cohort slots are those that this node knows.
    fn sure_of_no_children(&self, partition: PartitionId) -> BTreeSet<NodeId> {
        let Some(leading) = self.partitions[&partition].consensus.leading() else { return BTreeSet::new() };
        let slots = self.known_slots();
        let sits = |node: &NodeId, said: u64| {
            mutant!(self.config, MovesUnheeded) || said == slots.get(node).copied().unwrap_or(0)
        };
        let told = leading.retiring.childless.iter().filter(|(node, said)| sits(node, **said)).map(|(node, _)| *node);
        let own = Some(self.me).filter(|me| !self.has_incomplete_facts() && sits(me, self.own_slots()));
        told.chain(own).collect()
    }

    /// At any node: answers a leader, if this node brings nothing.
    pub(crate) fn on_outboxes(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        (above, up_to): (Option<TaskId>, TaskId),
    ) {
        if self.genesis.is_some() && !self.has_incomplete_facts() && !self.brings(partition, above, up_to) {
            let slots = self.own_slots();
            self.outbox.send_durable(from, GarbageCollection::Childless { partition, epoch, number, slots });
        }
    }

    /// At the leader: a node brings nothing.
    pub(crate) fn on_childless(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        slots: u64,
    ) {
        let is_known = self.has_peer(from);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.consensus.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        let retiring = &mut leading.retiring;
        if retiring.number == number && !retiring.ids.is_empty() && is_known {
            retiring.childless.insert(from, slots);
            self.forget_buried(partition);
        }
    }

    /// Whether a completion that is known here brings a task into a partition, with an id within these bounds.
    fn brings(&self, partition: PartitionId, above: Option<TaskId>, up_to: TaskId) -> bool {
        let mut brought = self.partitions.values().flat_map(|replica| replica.store.brought(above, up_to));
        brought.any(|child| self.partition_of(&child) == partition)
    }

    /// Whether no child can be lost if what a leader has chosen is forgotten now.
    pub(crate) fn nothing_is_brought(&self, partition: PartitionId) -> bool {
        if mutant!(self.config, ForgetsUnasked) {
            return true;
        }
        let above = self.partitions[&partition].consensus.table.forgetting.watermark;
        let Some((_, _, up_to)) = self.question_of(partition) else { return false };
        if !self.silent_about_children(partition).is_empty() || self.brings(partition, above, up_to) {
            return false;
        }
        self.unsure_of_children(partition).is_empty()
    }

    /// Nodes that are missing for a majority of every cohort to be sure: those of the first cohort that lacks one.
    pub(crate) fn unsure_of_children(&self, partition: PartitionId) -> Vec<NodeId> {
        let sure = self.sure_of_no_children(partition);
        let is_sure = |node: NodeId| sure.contains(&node);
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let mut cohorts = (0..partitions).map(|place| self.seen_cohort_of(PartitionId(place as u16)));
        let lacking = cohorts.find(|cohort| !(cohort.members_quorum(is_sure) && cohort.next_quorum(is_sure)));
        lacking.map_or_else(Vec::new, |cohort| cohort.voters().into_iter().filter(|node| !is_sure(*node)).collect())
    }

    /// Cohort slots of this node: where it counts, for all it has heard, at the versions of its own tables.
    fn own_slots(&self) -> u64 {
        let held = self.partitions.iter().filter(|(id, _)| **id != PartitionId::METADATA);
        let counts = held.filter(|(id, _)| self.seen_cohort_of(**id).has_voter(self.me));
        counts.map(|(id, replica)| slot(*id, replica.cohort().version)).fold(0, u64::wrapping_add)
    }

    /// Cohort slots of all nodes, as far as this node has heard.
    fn known_slots(&self) -> BTreeMap<NodeId, u64> {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let mut slots = BTreeMap::new();
        for id in (0..partitions).map(|place| PartitionId(place as u16)) {
            let cohort = self.seen_cohort_of(id);
            let slot = slot(id, cohort.version);
            for holder in cohort.holders() {
                let sum: &mut u64 = slots.entry(holder.replica.node).or_default();
                *sum = sum.wrapping_add(slot);
            }
        }
        slots
    }
}

/// Hash of a cohort slot. It is of one version: a node that counts there at another version knows other facts.
fn slot(partition: PartitionId, version: Viewstamp) -> u64 {
    let mut bytes = [0; 18];
    bytes[..2].copy_from_slice(&partition.0.to_be_bytes());
    bytes[2..10].copy_from_slice(&version.epoch.to_be_bytes());
    bytes[10..].copy_from_slice(&version.length.to_be_bytes());
    xxh3_64(&bytes)
}
