//! Bodies of tasks: which stay in memory, where the log has the others, and what is done about those that it lost.
//!
//! A body comes into memory with its record, and leaves it once the log has a place for it if those before it fill the
//! memory that is allowed. So the oldest stay, which are granted first; what is granted or ends makes room for new ones.
//! What has left is loaded where it is needed (`loads.rs`), and is not kept.
//!
//! A body that the log cannot give back is lost, the fact that there is such a task is not: everything but the body is still
//! known. The task is handed out and shown to nobody by this replica until the log or a peer has given the body back.

use super::effect::Ticket;
use super::event::Moved;
use super::loads::Then;
use super::partition::Counted;
use super::peer::{PeerMessage, WantPart};
use super::task::{Place, Wanted};
use super::{Node, Observation};
use crate::limits::EXCHANGE_TASKS_MAX;
use norn_client::wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// A record of facts on its way to the log.
#[derive(Debug)]
struct Unplaced {
    ticket: Ticket,
    partition: PartitionId,
    /// Tasks whose bodies were new, and hashes of their specs.
    bodies: Vec<(TaskId, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Bodies {
    unplaced: VecDeque<Unplaced>,
    pub(super) lost: BTreeSet<(PartitionId, TaskId)>,
    /// The last of those that were asked for. The next round goes on behind it, or what nobody has would hide the rest.
    pub(super) asked: Option<(PartitionId, TaskId)>,
    /// Bytes of bodies in memory, as far as they are counted.
    memory_bytes: usize,
    /// Tasks, as far as they are counted.
    tasks: usize,
}

impl Bodies {
    /// The next record of facts is handed to the log with this ticket.
    pub fn persisted(&mut self, ticket: Ticket, partition: PartitionId, bodies: Vec<(TaskId, u64)>) {
        self.unplaced.push_back(Unplaced { ticket, partition, bodies });
    }

    /// How many tasks this node keeps, about.
    pub fn tasks(&self) -> usize {
        self.tasks
    }
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
    }

    /// The log has these bodies there: each leaves memory if there are too many bytes in it.
    pub(super) fn place_bodies(&mut self, partition: PartitionId, bodies: &[(TaskId, u64)], place: Place) {
        self.count_bodies(partition);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let others = self.bodies.memory_bytes - replica.store.body_bytes();
        for (id, hash) in bodies {
            let room = (others + replica.store.body_bytes()) as u64 <= self.config.payload_memory_bytes;
            replica.store.place(id, *hash, place, room);
        }
        self.count_bodies(partition);
    }

    /// Bodies or tasks of this partition have come or gone. To look at all partitions each time would cost more than most of
    /// what is done with them.
    pub(super) fn count_bodies(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let now = Counted { bytes: replica.store.body_bytes(), tasks: replica.store.count() };
        let before = std::mem::replace(&mut replica.counted, now);
        self.bodies.memory_bytes = self.bodies.memory_bytes + now.bytes - before.bytes;
        self.bodies.tasks = self.bodies.tasks + now.tasks - before.tasks;
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
            if let Some(wanted) = task.and_then(|task| task.spec.as_ref()?.wanted(*id)) {
                self.set_lost(&wanted, true);
            }
        }
    }

    /// The log could not give a body back, or could after all.
    pub(super) fn set_lost(&mut self, wanted: &Wanted, lost: bool) {
        let (partition, now) = (self.partition_of(&wanted.id), self.now);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let hold = replica.register.hold(&wanted.id);
        let lost = replica.store.set_lost((&wanted.id, wanted.hash), lost, hold, now.wall_ms);
        self.stirred.insert(partition);
        if lost && self.bodies.lost.insert((partition, wanted.id)) {
            self.outbox.observe(Observation::BodyLost { id: wanted.id });
        }
    }

    /// What to ask the log for to have a body that is lost, as long as it is.
    fn wanted_again(&self, (partition, id): &(PartitionId, TaskId)) -> Option<Wanted> {
        let spec = self.partitions.get(partition)?.store.task(id)?.spec.as_ref()?;
        spec.wanted(*id).filter(|_| spec.body.is_lost())
    }

    /// How many bodies of a replica are lost. Such tasks are in no queue here.
    pub(super) fn bodies_lost(&self, partition: PartitionId) -> usize {
        let of_partition = self.bodies.lost.range((partition, TaskId::MIN)..=(partition, TaskId::MAX));
        of_partition.filter(|key| self.wanted_again(key).is_some()).count()
    }

    /// Asks the log once more, and the other replicas, for bodies that are lost here.
    pub(super) fn ask_for_bodies(&mut self) {
        let mut known = std::mem::take(&mut self.bodies.lost);
        known.retain(|key| self.wanted_again(key).is_some());
        let mut lost: BTreeMap<PartitionId, Vec<Wanted>> = BTreeMap::new();
        let behind = self.bodies.asked.take().map_or(Bound::Unbounded, Bound::Excluded);
        let turn = known.range((behind, Bound::Unbounded)).chain(&known);
        for key in turn.take(EXCHANGE_TASKS_MAX.min(known.len())) {
            self.bodies.asked = Some(*key);
            lost.entry(key.0).or_default().extend(self.wanted_again(key));
        }
        self.bodies.lost = known;
        for (partition, wanted) in lost {
            let cohort: Vec<NodeId> = self.partitions[&partition].cohort().nodes();
            // What a peer tells is written down, for which there must be room.
            for node in cohort.into_iter().filter(|node| *node != self.me && !self.disk.is_short()) {
                let ids = wanted.iter().map(|wanted| wanted.id).collect();
                let parts = vec![WantPart { partition, upto: None, ids }];
                self.outbox.send(node, PeerMessage::Want { boot: self.boot, parts });
            }
            self.load(Then::Find, wanted);
        }
    }
}
