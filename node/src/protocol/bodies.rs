//! Bodies of tasks, results and log entries: which stay in memory, where the log has the others, and what is done about those that it
//! lost.
//!
//! A body comes into memory with its record, and leaves it once the log has a place for it if those before it fill the
//! memory that is allowed. So the oldest stay, which are granted first; what is granted or ends makes room for new ones.
//! What has left is loaded where it is needed (`loads.rs`), and is not kept.
//!
//! Results and log entries count as well. They leave as soon as there is no room for all, before any body does: first those of tasks
//! that have ended, which are only read, then those of the others, held or not, which are loaded with each grant. A result of an ended
//! task does not leave before the claim is dropped, as how the task ended travels with that; nor does one whose completion may still
//! change. An ending that came with a table alone has no place in the log; if there is no room for it, it is written once more as
//! facts (`spill`). Where a leader needs a result to drop a claim, or a replica to merge another one under the same key, it is brought
//! back (`Then::BringBack`).
//!
//! What the log cannot give back is lost, the fact that there is such a task is not: everything else is still known. A task without
//! its body, or without an entry of its log, is handed to no worker by this replica until the log or a peer has given that back. A reader
//! is told what is known of it, and what is lost: that counts where no replica that answers has it (`available/read.rs`). An operator may
//! cancel such a task, and purge it once it has ended (`available/purge.rs`), or else its claim stays, and no snapshot is written.

use super::effect::Ticket;
use super::loads::Then;
use super::partition::{Counted, Whose};
use super::peer::{PeerMessage, WantPart};
use super::record::Record;
use super::snapshot::Moved;
use super::task::{Filling, Outline, Part, Place, Slot, Task, Wanted};
use super::{Node, Observation};
use crate::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// So many tasks are looked at in vain: ended ones whose claims are not dropped yet.
const LOOKS_MAX: usize = 64;

/// A record of facts on its way to the log.
#[derive(Debug)]
struct Unplaced {
    ticket: Ticket,
    partition: PartitionId,
    bodies: Vec<Part>,
}

/// Tasks of which something can leave memory.
#[derive(Debug, Default)]
struct Leaving {
    /// Partitions that have some, as far as they are counted.
    partitions: BTreeSet<PartitionId>,
    /// The last task that was looked at.
    looked: Option<(PartitionId, TaskId)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Bodies {
    unplaced: VecDeque<Unplaced>,
    pub(super) lost: BTreeSet<(PartitionId, TaskId)>,
    /// What peers have told of it since there is no room on the disk.
    pub(super) told_bytes: u64,
    /// The last of those that were asked for. The next round goes on behind it, or what nobody has would hide the rest.
    pub(super) asked: Option<(PartitionId, TaskId)>,
    /// Bytes in memory, as far as they are counted.
    memory_bytes: usize,
    /// Tasks, as far as they are counted.
    tasks: usize,
    /// Ended tasks with results or log entries that can leave memory.
    ended: Leaving,
    /// The same of those that have not ended.
    open: Leaving,
    /// Partitions where the log may have no place for how some tasks ended.
    unwritten: BTreeSet<PartitionId>,
    /// A record with some of those is on its way to the log.
    spilling: Option<Ticket>,
    /// Partitions where facts wait for what is not in memory.
    rivals: BTreeSet<PartitionId>,
    /// The last task of each of them for which something was asked. The next round goes on behind it.
    rivals_asked: BTreeMap<PartitionId, TaskId>,
}

impl Bodies {
    /// The next record of facts is handed to the log with this ticket.
    pub fn persisted(&mut self, ticket: Ticket, partition: PartitionId, bodies: Vec<Part>) {
        self.unplaced.push_back(Unplaced { ticket, partition, bodies });
    }

    /// Bytes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// How many tasks this node keeps, about.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    fn leaving(&self, whose: Whose) -> &Leaving {
        match whose {
            Whose::Ended => &self.ended,
            Whose::Open => &self.open,
        }
    }

    fn leaving_mut(&mut self, whose: Whose) -> &mut Leaving {
        match whose {
            Whose::Ended => &mut self.ended,
            Whose::Open => &mut self.open,
        }
    }
}

/// Results and log entries in a record that may leave memory some time.
pub fn blobs_of(id: TaskId, delta: &Task) -> impl Iterator<Item = Part> {
    delta.blobs().filter(|(_, blob)| !blob.is_small()).map(move |(slot, blob)| (id, slot, blob.hash()))
}

impl Node {
    /// The log tells where it has all records of facts up to this ticket.
    pub(super) fn note_places(&mut self, ticket: Ticket, places: &[Option<Place>]) {
        let mut places = places.iter();
        while let Some(record) = self.bodies.unplaced.pop_front_if(|record| record.ticket <= ticket) {
            let place = places.next().expect("the host tells a place for each record of facts");
            if let Some(place) = place {
                self.place_bodies(record.partition, &record.bodies, *place);
            }
        }
        assert!(places.next().is_none(), "the host tells places of records that it was given");
        if self.bodies.spilling.is_some_and(|spilling| spilling <= ticket) {
            self.bodies.spilling = None;
        }
        self.spill();
    }

    /// The log has these there: each body leaves memory if there are too many bytes in it, and nothing else makes room.
    pub(super) fn place_bodies(&mut self, partition: PartitionId, parts: &[Part], place: Place) {
        let (specs, blobs): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|(_, slot, _)| *slot == Slot::Spec);
        if let Some(replica) = self.partitions.get_mut(&partition) {
            for (id, slot, hash) in blobs {
                replica.store.place(id, (*slot, *hash), place, true);
            }
        }
        self.count_bodies(partition);
        self.make_room();
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let others = self.bodies.memory_bytes - replica.store.body_bytes();
        for (id, slot, hash) in specs {
            let room = (others + replica.store.body_bytes()) as u64 <= self.config.payload_memory_bytes;
            replica.store.place(id, (*slot, *hash), place, room);
        }
        self.count_bodies(partition);
    }

    fn is_full(&self) -> bool {
        self.bodies.memory_bytes as u64 > self.config.payload_memory_bytes
    }

    /// Results and log entries leave memory until there is room, those of ended tasks first.
    pub(super) fn make_room(&mut self) {
        for whose in [Whose::Ended, Whose::Open] {
            let mut in_vain = 0;
            while in_vain < LOOKS_MAX && self.is_full() {
                let Some((partition, id)) = self.next_leaver(whose) else { break };
                self.bodies.leaving_mut(whose).looked = Some((partition, id));
                let replica = self.partitions.get_mut(&partition).expect("it was just looked at");
                // How a task ended is told as its claim is dropped.
                let results = whose == Whose::Open || replica.register.cell(&id).is_none();
                if replica.store.leave(&id, results) {
                    self.count_bodies(partition);
                } else {
                    in_vain += 1;
                }
            }
        }
    }

    /// The next task that could make room, in turn.
    fn next_leaver(&self, whose: Whose) -> Option<(PartitionId, TaskId)> {
        let Leaving { partitions, looked } = self.bodies.leaving(whose);
        let leaver = |partition: PartitionId, after| {
            self.partitions.get(&partition)?.store.leaver_after(whose, after).map(|id| (partition, id))
        };
        let within = looked.and_then(|(partition, id)| leaver(partition, Some(id)));
        let behind = looked.map_or(Bound::Unbounded, |(partition, _)| Bound::Excluded(partition));
        let others = partitions.range((behind, Bound::Unbounded)).chain(partitions);
        within.or_else(|| others.copied().find_map(|partition| leaver(partition, None)))
    }

    /// Writes down what has no place in the log if there is no room for it, a bounded record at a time.
    fn spill(&mut self) {
        let may = self.is_full() && self.bodies.spilling.is_none() && !self.disk.is_short() && !self.starting;
        let Some(partition) = self.bodies.unwritten.first().copied().filter(|_| may) else { return };
        let Some(replica) = self.partitions.get_mut(&partition) else {
            self.bodies.unwritten.remove(&partition);
            return;
        };
        // Of others a place is told soon.
        let unplaced = self.bodies.unplaced.iter().flat_map(|record| &record.bodies);
        let on_their_way: BTreeSet<Part> = unplaced.copied().collect();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while bytes < EXCHANGE_BYTES_MAX
            && items.len() < EXCHANGE_TASKS_MAX
            && let Some((id, delta)) = replica.store.take_unwritten()
        {
            if !blobs_of(id, &delta).all(|part| on_their_way.contains(&part)) {
                bytes += delta.size_bytes();
                items.push((id, delta));
            }
        }
        self.count_bodies(partition);
        if items.is_empty() {
            return;
        }
        let parts = items.iter().flat_map(|(id, delta)| blobs_of(*id, delta)).collect();
        self.outbox.persist(Record::Facts { partition, items: Arc::new(items) });
        self.bodies.persisted(self.outbox.ticket(), partition, parts);
        self.bodies.spilling = Some(self.outbox.ticket());
    }

    /// Facts wait for bytes that are not in memory: asks the log for them, unless they came by another way.
    fn settle_rivals(&mut self) {
        let partitions = std::mem::take(&mut self.bodies.rivals);
        for partition in partitions {
            let Some(replica) = self.partitions.get(&partition) else { continue };
            let asked = self.bodies.rivals_asked.remove(&partition);
            let ids: Vec<TaskId> = replica.store.rivals(asked).take(EXCHANGE_TASKS_MAX).collect();
            if let Some(last) = ids.last() {
                self.bodies.rivals.insert(partition);
                self.bodies.rivals_asked.insert(partition, *last);
            }
            // They wait for no more than what stands under their own keys.
            let slots = |id: &TaskId| -> BTreeSet<Slot> {
                replica.store.rival_of(id).into_iter().flat_map(|rival| rival.blobs()).map(|(slot, _)| slot).collect()
            };
            let wanted: Vec<(TaskId, BTreeSet<Slot>)> = ids.iter().map(|id| (*id, slots(id))).collect();
            let is_here = |(id, slots): &(TaskId, BTreeSet<Slot>)| {
                let task = replica.store.task(id);
                task.is_some_and(|task| slots.iter().all(|slot| task.wanted_in(*id, *slot).is_none()))
            };
            let (here, away): (Vec<_>, Vec<_>) = wanted.into_iter().partition(is_here);
            here.iter().for_each(|(id, _)| self.settle_rival(partition, id));
            away.iter().for_each(|(id, slots)| self.bring_back(partition, id, |slot| slots.contains(&slot)));
        }
    }

    /// Merges facts that waited for bytes that are in memory now.
    fn settle_rival(&mut self, partition: PartitionId, id: &TaskId) {
        let now = self.now;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        if replica.settle_rival(id, now).changed {
            self.asks.exchange.changed(partition);
        }
        self.stirred.insert(partition);
    }

    /// Asks the log for results and log entries of a task that are needed in memory. Those that are lost are asked for anyway.
    pub(super) fn bring_back(&mut self, partition: PartitionId, id: &TaskId, is_needed: impl Fn(Slot) -> bool) {
        let task = self.partitions.get(&partition).and_then(|replica| replica.store.task(id));
        let blobs = task.into_iter().flat_map(|task| task.blobs());
        let needed = blobs.filter(|(slot, blob)| is_needed(*slot) && !blob.is_lost());
        self.load_back(needed.filter_map(|(slot, blob)| blob.wanted(*id, slot)).collect());
    }

    /// The same of its results: how it ended is told with them.
    pub(super) fn bring_results_back(&mut self, partition: PartitionId, id: &TaskId) {
        self.bring_back(partition, id, |slot| matches!(slot, Slot::Result(_)));
    }

    /// What was to come back is here.
    pub(super) fn brought_back(&mut self, found: impl Iterator<Item = (Wanted, Filling)>) {
        for (wanted, filling) in found {
            let partition = self.partition_of(&wanted.id);
            let Some(replica) = self.partitions.get_mut(&partition) else { continue };
            replica.store.bring_back(&wanted, filling);
            replica.reclassify(&wanted.id, self.now);
            self.settle_rival(partition, &wanted.id);
        }
    }

    /// Bodies or tasks of this partition have come or gone. To look at all partitions each time would cost more than most of
    /// what is done with them.
    pub(super) fn count_bodies(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let now = Counted { bytes: replica.store.body_bytes(), tasks: replica.store.count() };
        let leaves =
            [Whose::Ended, Whose::Open].map(|whose| (whose, replica.store.leaver_after(whose, None).is_some()));
        let rivals = replica.store.rivals(None).next().is_some();
        let unwritten = replica.store.has_unwritten();
        let before = std::mem::replace(&mut replica.counted, now);
        self.bodies.memory_bytes = self.bodies.memory_bytes + now.bytes - before.bytes;
        self.bodies.tasks = self.bodies.tasks + now.tasks - before.tasks;
        for (whose, leaves) in leaves {
            let partitions = &mut self.bodies.leaving_mut(whose).partitions;
            if leaves {
                partitions.insert(partition);
            } else {
                partitions.remove(&partition);
            }
        }
        if unwritten {
            self.bodies.unwritten.insert(partition);
        } else {
            self.bodies.unwritten.remove(&partition);
        }
        if rivals {
            self.bodies.rivals.insert(partition);
        }
    }

    /// Everything has been counted.
    pub(super) fn check_bodies(&self) -> Result<(), String> {
        let bytes: usize = self.partitions.values().map(|replica| replica.store.body_bytes()).sum();
        let tasks: usize = self.partitions.values().map(|replica| replica.store.count()).sum();
        if (bytes, tasks) != (self.bodies.memory_bytes, self.bodies.tasks) {
            let Bodies { memory_bytes, tasks: counted, .. } = &self.bodies;
            return Err(format!("{tasks} tasks with {bytes} bytes of bodies count as {counted} with {memory_bytes}"));
        }
        Ok(())
    }

    /// A snapshot has taken the place of older files, which will be removed.
    pub(super) fn on_moved(&mut self, ranges: &[Moved]) {
        for Moved { partition, first, last, place } in ranges {
            if let Some(replica) = self.partitions.get_mut(partition) {
                replica.store.move_to(*first, *last, *place);
            }
        }
    }

    /// The log has no bodies of these tasks where they were. They are lost until they turn up.
    pub(super) fn on_bodies_lost(&mut self, ids: &[TaskId]) {
        for id in ids {
            let task = self.partitions.get(&self.partition_of(id)).and_then(|replica| replica.store.task(id));
            for wanted in task.map(|task| task.wanted(*id)).unwrap_or_default() {
                self.set_lost(&wanted, true);
            }
        }
    }

    /// The log could not give a body back, or could after all.
    pub(super) fn set_lost(&mut self, wanted: &Wanted, lost: bool) {
        let (partition, now) = (self.partition_of(&wanted.id), self.now);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let hold = replica.register.hold(&wanted.id);
        let lost = replica.store.set_lost(wanted, lost, hold, now.wall_ms);
        self.stirred.insert(partition);
        if lost && self.bodies.lost.insert((partition, wanted.id)) {
            self.outbox.observe(Observation::BodyLost { id: wanted.id });
        }
    }

    /// What to ask the log for to have a body that is lost, as long as it is.
    fn wanted_again(&self, (partition, id): &(PartitionId, TaskId)) -> Vec<Wanted> {
        let task = self.partitions.get(partition).and_then(|replica| replica.store.task(id));
        task.map(|task| task.lost(*id)).unwrap_or_default()
    }

    /// How many tasks of a replica have lost their bodies, results or log entries.
    pub(super) fn bodies_lost(&self, partition: PartitionId) -> usize {
        self.lost_of(partition).count()
    }

    /// Whether a replica has lost the body of a task of these queues, or a part of its log, that may not have ended. Such tasks are in
    /// no queue here.
    pub(super) fn lacks_work(&self, partition: PartitionId, queues: &[QueueName]) -> bool {
        let store = &self.partitions[&partition].store;
        let is_of_these = |task: &Task<Outline>| task.spec.as_ref().is_none_or(|spec| queues.contains(&spec.queue));
        let is_work = |task: &Task<Outline>| task.is_withheld() && task.ended().is_none() && is_of_these(task);
        self.lost_of(partition).any(|id| store.task(&id).is_some_and(is_work))
    }

    pub(super) fn lost_of(&self, partition: PartitionId) -> impl Iterator<Item = TaskId> {
        let of_partition = self.bodies.lost.range((partition, TaskId::MIN)..=(partition, TaskId::MAX));
        of_partition.filter(|key| !self.wanted_again(key).is_empty()).map(|(_, id)| *id)
    }

    /// Asks the log once more, and the other replicas, for what is lost here.
    pub(super) fn ask_for_bodies(&mut self) {
        self.make_room();
        self.spill();
        self.settle_rivals();
        let mut known = std::mem::take(&mut self.bodies.lost);
        known.retain(|key| !self.wanted_again(key).is_empty());
        let mut lost: BTreeMap<PartitionId, Vec<Wanted>> = BTreeMap::new();
        let behind = self.bodies.asked.take().map_or(Bound::Unbounded, Bound::Excluded);
        let turn = known.range((behind, Bound::Unbounded)).chain(&known);
        for key in turn.take(EXCHANGE_TASKS_MAX.min(known.len())) {
            self.bodies.asked = Some(*key);
            lost.entry(key.0).or_default().extend(self.wanted_again(key));
        }
        self.bodies.lost = known;
        let mut room_bytes = self.room_for_lost_bytes();
        for (partition, wanted) in lost {
            let cohort: Vec<NodeId> = self.partitions[&partition].cohort().nodes();
            // What a peer tells is written down, for which there must be room.
            let mut ids: Vec<TaskId> = wanted.iter().map(|wanted| wanted.id).collect();
            ids.dedup();
            ids.retain(|id| {
                let task = self.partitions[&partition].store.task(id);
                let bytes = task.map_or(0, |task| task.size_bytes() as u64);
                let fits = bytes <= room_bytes;
                room_bytes -= if fits { bytes } else { 0 };
                fits
            });
            for node in cohort.into_iter().filter(|node| *node != self.me && !ids.is_empty()) {
                let parts = vec![WantPart { partition, upto: None, ids: ids.clone() }];
                self.outbox.send(node, PeerMessage::Want { boot: self.boot, parts });
            }
            self.load(Then::Find, wanted);
        }
    }

    /// How much peers may still tell of what is lost here. Without room on the disk that is little, and more than nothing: as long as
    /// anything is lost no snapshot is written, which is what makes room.
    pub(super) fn room_for_lost_bytes(&self) -> u64 {
        if self.disk.is_short() { self.disk.spare_bytes().saturating_sub(self.bodies.told_bytes) } else { u64::MAX }
    }
}
