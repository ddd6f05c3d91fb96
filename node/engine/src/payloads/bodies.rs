//! Payloads of tasks: task bodies, results and log entries. Which of them stay in memory, where the log has the others, and how
//! lost ones are recovered.
//!
//! A body comes into memory with its record. Once the log has a place for it, it leaves memory if the bodies before it fill the
//! memory that is allowed. So the oldest stay, which are granted first; tasks that are granted or end make room for new ones. An
//! evicted body is loaded where it is needed (`loads.rs`), and is not kept.
//!
//! Results and log entries count as well. They leave as soon as there is no room for all, before any body does: first those of
//! tasks that have ended, which are only read, then those of the others, held or not, which are loaded with each grant. A result
//! of an ended task does not leave before the claim is dropped, because the export of the ending carries it; nor does one whose
//! completion may still change. An ending that came with a table alone has no place in the log; if there is no room for it, it is
//! written once more as facts (`spill`). Where a leader needs a result to drop a claim, or a replica to merge another one under
//! the same key, it is brought back (`Then::BringBack`).
//!
//! A part that the log cannot give back is lost, but not the fact that the task exists: everything else is still known. This
//! replica grants no task that lacks its body or an entry of its log until the log or a peer has given that back. A reader gets
//! what is known of the task, and which parts are lost; that matters where no answering replica has them (`write_read/read.rs`).
//! An operator may cancel such a task, and purge it once it has ended (`retention/purge.rs`); otherwise its claim stays, and no
//! snapshot is written.

use super::loads::Then;
use crate::Node;
use crate::effect::{Observation, Ticket};
use norn_model::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX};
use norn_model::message::{AntiEntropy, WantPart};
use norn_model::record::Record;
use norn_model::replica::{Counted, Whose};
use norn_model::snapshot::Moved;
use norn_model::task::{Filling, Outline, Part, Place, Slot, Task, Wanted};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Limit on fruitless looks at tasks in a pass: ended ones whose claims are not dropped yet.
const LOOKS_MAX: usize = 64;

/// Record of facts on its way to the log.
#[derive(Debug)]
struct Unplaced {
    ticket: Ticket,
    partition: PartitionId,
    bodies: Vec<Part>,
}

/// Tasks with parts that can leave memory.
#[derive(Debug, Default)]
struct Leaving {
    /// Partitions with such tasks, as far as counted.
    partitions: BTreeSet<PartitionId>,
    /// Task that was looked at last.
    looked: Option<(PartitionId, TaskId)>,
}

/// Index of payloads in memory, in the log, and lost.
#[derive(Debug, Default)]
pub struct Bodies {
    unplaced: VecDeque<Unplaced>,
    pub(crate) lost: BTreeSet<(PartitionId, TaskId)>,
    /// Lost task that was asked for last. The next round goes on behind it, or tasks that no peer has would hide the rest.
    pub(crate) asked: Option<(PartitionId, TaskId)>,
    /// Bytes in memory, as far as counted.
    memory_bytes: usize,
    /// Number of tasks, as far as counted.
    tasks: usize,
    /// Ended tasks with results or log entries that can leave memory.
    ended: Leaving,
    /// The same for tasks that have not ended.
    open: Leaving,
    /// Partitions where the log may have no place for the endings of some tasks.
    unwritten: BTreeSet<PartitionId>,
    /// Ticket of a record with some of those, on its way to the log.
    spilling: Option<Ticket>,
    /// Partitions where facts wait for bytes that are not in memory.
    rivals: BTreeSet<PartitionId>,
    /// Task of each of those partitions that was asked for last. The next round goes on behind it.
    rivals_asked: BTreeMap<PartitionId, TaskId>,
}

impl Bodies {
    /// Notes the next record of facts, handed to the log with this ticket.
    pub fn persisted(&mut self, ticket: Ticket, partition: PartitionId, bodies: Vec<Part>) {
        let in_order = self.unplaced.back().is_none_or(|last| last.ticket <= ticket);
        assert!(in_order, "records of facts are not noted in the order in which they are written");
        self.unplaced.push_back(Unplaced { ticket, partition, bodies });
    }

    /// Bytes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Number of tasks of this node, about.
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

/// Results and log entries in a record that may leave memory later.
pub fn blobs_of(id: TaskId, delta: &Task) -> impl Iterator<Item = Part> {
    delta.blobs().filter(|(_, blob)| !blob.is_small()).map(move |(slot, blob)| (id, slot, blob.hash()))
}

impl Node {
    /// Takes in the log's places of all records of facts up to this ticket.
    pub(crate) fn note_places(&mut self, ticket: Ticket, places: &[Option<Place>]) {
        let mut places = places.iter();
        while let Some(record) = self.payloads.bodies.unplaced.pop_front_if(|record| record.ticket <= ticket) {
            let place = places.next().expect("the host tells a place for each record of facts");
            if let Some(place) = place {
                self.place_bodies(record.partition, &record.bodies, *place);
            }
        }
        assert!(places.next().is_none(), "the host tells places of records that it was given");
        if self.payloads.bodies.spilling.is_some_and(|spilling| spilling <= ticket) {
            self.payloads.bodies.spilling = None;
        }
        self.spill();
    }

    /// Notes the place of these parts in the log. A body leaves memory if there are too many bytes in it, and nothing else makes
    /// room.
    pub(crate) fn place_bodies(&mut self, partition: PartitionId, parts: &[Part], place: Place) {
        let (specs, blobs): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|(_, slot, _)| *slot == Slot::Spec);
        if let Some(replica) = self.partitions.get_mut(&partition) {
            for (id, slot, hash) in blobs {
                replica.store.place(id, (*slot, *hash), place, true);
            }
        }
        self.count_bodies(partition);
        self.make_room();
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        assert!(
            self.payloads.bodies.memory_bytes >= replica.store.body_bytes(),
            "bodies of a partition are not counted"
        );
        let others = self.payloads.bodies.memory_bytes - replica.store.body_bytes();
        for (id, slot, hash) in specs {
            let room = (others + replica.store.body_bytes()) as u64 <= self.config.payload_memory_bytes;
            replica.store.place(id, (*slot, *hash), place, room);
        }
        self.count_bodies(partition);
    }

    fn is_full(&self) -> bool {
        self.payloads.bodies.memory_bytes as u64 > self.config.payload_memory_bytes
    }

    /// Evicts results and log entries until there is room, those of ended tasks first.
    pub(crate) fn make_room(&mut self) {
        for whose in [Whose::Ended, Whose::Open] {
            let mut in_vain = 0;
            while in_vain < LOOKS_MAX && self.is_full() {
                let Some((partition, id)) = self.next_leaver(whose) else { break };
                self.payloads.bodies.leaving_mut(whose).looked = Some((partition, id));
                let replica = self.partitions.get_mut(&partition).expect("it was just looked at");
                // An ended task's result is exported as its claim is dropped.
                let results = whose == Whose::Open || replica.consensus.claim_entry(&id).is_none();
                if replica.store.leave(&id, results) {
                    self.count_bodies(partition);
                } else {
                    in_vain += 1;
                }
            }
        }
    }

    /// Returns the next task that could make room, in turn.
    fn next_leaver(&self, whose: Whose) -> Option<(PartitionId, TaskId)> {
        let Leaving { partitions, looked } = self.payloads.bodies.leaving(whose);
        let leaver = |partition: PartitionId, after| {
            self.partitions.get(&partition)?.store.leaver_after(whose, after).map(|id| (partition, id))
        };
        let within = looked.and_then(|(partition, id)| leaver(partition, Some(id)));
        let behind = looked.map_or(Bound::Unbounded, |(partition, _)| Bound::Excluded(partition));
        let others = partitions.range((behind, Bound::Unbounded)).chain(partitions);
        within.or_else(|| others.copied().find_map(|partition| leaver(partition, None)))
    }

    /// Logs endings that have no place in the log if there is no room for them, a bounded record at a time.
    fn spill(&mut self) {
        let may =
            self.is_full() && self.payloads.bodies.spilling.is_none() && !self.is_short_of_disk() && !self.starting;
        let Some(partition) = self.payloads.bodies.unwritten.first().copied().filter(|_| may) else { return };
        let Some(replica) = self.partitions.get_mut(&partition) else {
            self.payloads.bodies.unwritten.remove(&partition);
            return;
        };
        // The log will soon report the places of the others.
        let unplaced = self.payloads.bodies.unplaced.iter().flat_map(|record| &record.bodies);
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
        self.payloads.bodies.persisted(self.outbox.ticket(), partition, parts);
        self.payloads.bodies.spilling = Some(self.outbox.ticket());
    }

    /// Asks the log for bytes that conflicting facts wait for, unless they came by another way.
    fn settle_rivals(&mut self) {
        let partitions = std::mem::take(&mut self.payloads.bodies.rivals);
        for partition in partitions {
            let Some(replica) = self.partitions.get(&partition) else { continue };
            let asked = self.payloads.bodies.rivals_asked.remove(&partition);
            let ids: Vec<TaskId> = replica.store.rivals(asked).take(EXCHANGE_TASKS_MAX).collect();
            if let Some(last) = ids.last() {
                self.payloads.bodies.rivals.insert(partition);
                self.payloads.bodies.rivals_asked.insert(partition, *last);
            }
            // They wait only for the values under their own keys.
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

    /// Merges facts that waited for bytes which are in memory now.
    fn settle_rival(&mut self, partition: PartitionId, id: &TaskId) {
        let now = self.now;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        if replica.settle_rival(id, now).changed {
            self.repair.changed(partition);
        }
        self.dirty_heads.insert(partition);
    }

    /// Asks the log for results and log entries of a task that are needed in memory. Lost ones are asked for anyway, elsewhere.
    pub(crate) fn bring_back(&mut self, partition: PartitionId, id: &TaskId, is_needed: impl Fn(Slot) -> bool) {
        let task = self.partitions.get(&partition).and_then(|replica| replica.store.task(id));
        let blobs = task.into_iter().flat_map(|task| task.blobs());
        let needed = blobs.filter(|(slot, blob)| is_needed(*slot) && !blob.is_lost());
        self.load_back(needed.filter_map(|(slot, blob)| blob.wanted(*id, slot)).collect());
    }

    /// Does the same for its results, because the export of its ending carries them.
    pub(crate) fn bring_results_back(&mut self, partition: PartitionId, id: &TaskId) {
        self.bring_back(partition, id, |slot| matches!(slot, Slot::Result(_)));
    }

    /// Takes in the parts that were brought back.
    pub(crate) fn brought_back(&mut self, found: impl Iterator<Item = (Wanted, Filling)>) {
        for (wanted, filling) in found {
            let partition = self.partition_of(&wanted.id);
            let Some(replica) = self.partitions.get_mut(&partition) else { continue };
            replica.store.bring_back(&wanted, filling);
            replica.reclassify(&wanted.id, self.now);
            self.settle_rival(partition, &wanted.id);
        }
    }

    /// Updates the counts after bodies or tasks of this partition have come or gone. A look at all partitions each time would
    /// cost more than most of what is done with them.
    pub(crate) fn count_bodies(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let now = Counted { bytes: replica.store.body_bytes(), tasks: replica.store.count() };
        let leaves =
            [Whose::Ended, Whose::Open].map(|whose| (whose, replica.store.leaver_after(whose, None).is_some()));
        let rivals = replica.store.rivals(None).next().is_some();
        let unwritten = replica.store.has_unwritten();
        let before = std::mem::replace(&mut replica.counted, now);
        assert!(self.payloads.bodies.memory_bytes >= before.bytes, "bodies of a partition were not counted");
        assert!(self.payloads.bodies.tasks >= before.tasks, "tasks of a partition were not counted");
        self.payloads.bodies.memory_bytes = self.payloads.bodies.memory_bytes + now.bytes - before.bytes;
        self.payloads.bodies.tasks = self.payloads.bodies.tasks + now.tasks - before.tasks;
        for (whose, leaves) in leaves {
            let partitions = &mut self.payloads.bodies.leaving_mut(whose).partitions;
            if leaves {
                partitions.insert(partition);
            } else {
                partitions.remove(&partition);
            }
        }
        if unwritten {
            self.payloads.bodies.unwritten.insert(partition);
        } else {
            self.payloads.bodies.unwritten.remove(&partition);
        }
        if rivals {
            self.payloads.bodies.rivals.insert(partition);
        }
    }

    /// Checks that everything has been counted.
    pub(crate) fn check_bodies(&self) -> Result<(), String> {
        let bytes: usize = self.partitions.values().map(|replica| replica.store.body_bytes()).sum();
        let tasks: usize = self.partitions.values().map(|replica| replica.store.count()).sum();
        if (bytes, tasks) != (self.payloads.bodies.memory_bytes, self.payloads.bodies.tasks) {
            let Bodies { memory_bytes, tasks: counted, .. } = &self.payloads.bodies;
            return Err(format!("{tasks} tasks with {bytes} bytes of bodies count as {counted} with {memory_bytes}"));
        }
        Ok(())
    }

    /// Notes the new places after a snapshot has replaced older files, which will be removed. A host that compacts the log before the
    /// start calls this itself.
    pub fn on_moved(&mut self, ranges: &[Moved]) {
        for Moved { partition, first, last, place } in ranges {
            if let Some(replica) = self.partitions.get_mut(partition) {
                replica.store.move_to(*first, *last, *place);
            }
        }
    }

    /// Marks the bodies of these tasks as lost until they turn up, because the log does not have them where they were.
    pub(crate) fn on_bodies_lost(&mut self, ids: &[TaskId]) {
        for id in ids {
            let task = self.partitions.get(&self.partition_of(id)).and_then(|replica| replica.store.task(id));
            for wanted in task.map(|task| task.wanted(*id)).unwrap_or_default() {
                self.set_lost(&wanted, true);
            }
        }
    }

    /// Marks a part as lost, or as found after all.
    pub(crate) fn set_lost(&mut self, wanted: &Wanted, lost: bool) {
        let (partition, now) = (self.partition_of(&wanted.id), self.now);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let hold = replica.consensus.hold(&wanted.id);
        let lost = replica.store.set_lost(wanted, lost, hold, now.wall_ms);
        self.dirty_heads.insert(partition);
        if lost && self.payloads.bodies.lost.insert((partition, wanted.id)) {
            self.outbox.observe(Observation::BodyLost { id: wanted.id });
        }
    }

    /// Returns what to ask the log for to recover a lost task's parts, while they are lost.
    fn wanted_again(&self, (partition, id): &(PartitionId, TaskId)) -> Vec<Wanted> {
        let task = self.partitions.get(partition).and_then(|replica| replica.store.task(id));
        task.map(|task| task.lost(*id)).unwrap_or_default()
    }

    /// Number of tasks of a replica with lost bodies, results or log entries.
    pub(crate) fn bodies_lost(&self, partition: PartitionId) -> usize {
        self.lost_of(partition).count()
    }

    /// Whether a replica has lost the body, or a log entry, of a task of these queues that may not have ended. Such tasks are in
    /// no queue here.
    pub(crate) fn lacks_work(&self, partition: PartitionId, queues: &[QueueName]) -> bool {
        let store = &self.partitions[&partition].store;
        let is_of_these = |task: &Task<Outline>| task.spec.as_ref().is_none_or(|spec| queues.contains(&spec.queue));
        let is_work = |task: &Task<Outline>| task.is_withheld() && task.ended().is_none() && is_of_these(task);
        self.lost_of(partition).any(|id| store.task(&id).is_some_and(is_work))
    }

    pub(crate) fn lost_of(&self, partition: PartitionId) -> impl Iterator<Item = TaskId> {
        let of_partition = self.payloads.bodies.lost.range((partition, TaskId::MIN)..=(partition, TaskId::MAX));
        of_partition.filter(|key| !self.wanted_again(key).is_empty()).map(|(_, id)| *id)
    }

    /// Asks the log once more, and the other replicas, for lost parts.
    pub(crate) fn ask_for_bodies(&mut self) {
        self.make_room();
        self.spill();
        self.settle_rivals();
        let mut known = std::mem::take(&mut self.payloads.bodies.lost);
        known.retain(|key| !self.wanted_again(key).is_empty());
        let mut lost: BTreeMap<PartitionId, Vec<Wanted>> = BTreeMap::new();
        let behind = self.payloads.bodies.asked.take().map_or(Bound::Unbounded, Bound::Excluded);
        let turn = known.range((behind, Bound::Unbounded)).chain(&known);
        for key in turn.take(EXCHANGE_TASKS_MAX.min(known.len())) {
            self.payloads.bodies.asked = Some(*key);
            lost.entry(key.0).or_default().extend(self.wanted_again(key));
        }
        self.payloads.bodies.lost = known;
        let mut room_bytes = self.room_for_lost_bytes();
        for (partition, wanted) in lost {
            let cohort: Vec<NodeId> = self.partitions[&partition].cohort().nodes();
            // Parts that a peer sends are logged, and there must be room for them.
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
                self.outbox.send(node, AntiEntropy::Want { boot: self.boot, parts });
            }
            self.load(Then::Find, wanted);
        }
    }

    /// Bytes that peers may still send of lost parts. Without room on the disk the limit is low, but not zero: while anything is
    /// lost no snapshot is written, and snapshots make room.
    pub(crate) fn room_for_lost_bytes(&self) -> u64 {
        if self.is_short_of_disk() { self.membership.disk().spare_bytes() } else { u64::MAX }
    }
}
