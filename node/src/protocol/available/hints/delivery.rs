//! Handing hints over: one message at a time to each node that is there, within the budget of repair.
//!
//! A pass goes through all that is kept, then through all that the node is owed. It begins when the node is heard again, and
//! anew when there is more, or when something could not be taken.

use super::kept::{Fate, Key};
use crate::config::mutant;
use crate::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX, REPAIR_LOOKS_MAX};
use crate::protocol::available::coordinate::grows;
use crate::protocol::peer::{Items, LogWord, Outcome, PeerMessage};
use crate::protocol::record::Record;
use crate::protocol::task::Task;
use crate::protocol::timers;
use crate::protocol::{Node, Observation};
use norn_client::wire::{NodeId, PartitionId, TaskId};
use std::sync::Arc;

/// Rounds of anti-entropy that wait for hints which nobody acknowledges.
const PATIENCE_ROUNDS: u64 = 2;

/// Where a pass stands: behind this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Kept(Option<Key>),
    Owed(Option<Key>),
}

/// A message that is not answered yet.
#[derive(Debug)]
struct Flight {
    number: u64,
    kept: bool,
    partition: PartitionId,
    /// With versions, where they are kept.
    ids: Vec<(TaskId, u64)>,
    sent_us: u64,
}

/// What is under way to one node.
#[derive(Debug)]
pub struct Delivery {
    /// Absent if all was looked at.
    place: Option<Place>,
    flight: Option<Flight>,
    /// When to begin again.
    again_us: Option<u64>,
    /// When something was last answered, since the node is there.
    answered_us: Option<u64>,
}

impl Default for Delivery {
    /// To a node of which nothing is known.
    fn default() -> Delivery {
        Delivery { place: Some(Place::Kept(None)), flight: None, again_us: None, answered_us: None }
    }
}

impl Delivery {
    /// Begins again from then on, when the present pass is over.
    pub fn begin_again(&mut self, at_us: u64) {
        self.again_us = Some(self.again_us.map_or(at_us, |before| before.min(at_us)));
    }

    /// Whether the next message may be sent.
    fn is_due(&mut self, now_us: u64, timeout_us: u64) -> bool {
        match &self.flight {
            Some(flight) if now_us < flight.sent_us + timeout_us => return false,
            Some(_) => {
                // It may be lost.
                self.flight = None;
                self.place = Some(Place::Kept(None));
            }
            None if self.place.is_none() && self.again_us.is_some_and(|again_us| now_us >= again_us) => {
                self.again_us = None;
                self.place = Some(Place::Kept(None));
            }
            None => {}
        }
        self.place.is_some()
    }
}

impl Node {
    /// Looks after all that is kept for others.
    pub(in crate::protocol) fn hand_over_hints(&mut self) {
        self.drop_orphans();
        let nodes: Vec<NodeId> = self.peers.keys().copied().collect();
        for node in nodes {
            self.hand_hints_to(node);
        }
        self.tell_hints();
        if self.hints.is_empty() {
            self.hints.deliveries.clear();
        } else {
            self.timers.set(timers::Key::Hints, self.after_ms(self.config.resend_ms));
        }
    }

    /// Whether a node is to have its hints before anything else.
    pub(in crate::protocol::available) fn hints_go_first(&self, node: NodeId) -> bool {
        let patience_us = PATIENCE_ROUNDS * self.config.exchange_interval_ms * 1_000;
        let answered_us = self.hints.deliveries.get(&node).and_then(|delivery| delivery.answered_us);
        self.hints.owed.count_of(node) > 0 && answered_us.is_none_or(|at_us| self.now.mono_us < at_us + patience_us)
    }

    fn hand_hints_to(&mut self, node: NodeId) {
        let (now_us, timeout_us) = (self.now.mono_us, self.config.request_timeout_ms * 1_000);
        let alive = self.is_alive(node);
        let delivery = self.hints.deliveries.entry(node).or_default();
        if !alive {
            *delivery = Delivery::default();
            return;
        }
        delivery.answered_us.get_or_insert(now_us);
        while self.hints.deliveries.get_mut(&node).is_some_and(|delivery| delivery.is_due(now_us, timeout_us)) {
            if !self.asks.exchange.may_send(now_us, &self.config) || !self.hand_piece_to(node) {
                return;
            }
        }
    }

    /// Sends the next piece. Whether there may be more to do right now.
    fn hand_piece_to(&mut self, node: NodeId) -> bool {
        let place = self.hints.deliveries.get(&node).and_then(|delivery| delivery.place);
        let (next, more) = match place {
            Some(Place::Kept(after)) => self.hand_kept_to(node, after),
            Some(Place::Owed(after)) => self.hand_owed_to(node, after),
            None => (None, false),
        };
        self.hints.deliveries.get_mut(&node).expect("it is under way").place = next;
        more
    }

    fn hand_kept_to(&mut self, node: NodeId, after: Option<Key>) -> (Option<Place>, bool) {
        let bounds = (EXCHANGE_TASKS_MAX, EXCHANGE_BYTES_MAX, REPAIR_LOOKS_MAX as usize);
        let is_member = |partition| self.cohort(partition).contains(&node);
        let piece = self.hints.kept.piece(node, after, bounds, is_member);
        let next = piece.at.map_or(Place::Owed(None), |at| Place::Kept(Some(at)));
        if piece.ids.is_empty() {
            // Looking at many that it has is enough for now.
            return (Some(next), piece.at.is_none());
        }
        let (partition, items) = (piece.partition, Arc::new(piece.items));
        self.asks.exchange.sends(items.iter().map(|(_, task)| task.size_bytes()));
        let number = self.asks.number();
        self.outbox.send(node, PeerMessage::Hint { number, partition, items, forgets: None });
        if mutant!(self.config, HintGoneEarly) {
            let ids: Vec<TaskId> = piece.ids.iter().map(|(id, _)| *id).collect();
            self.drop_kept(partition, ids);
        }
        self.fly(node, Flight { number, kept: true, partition, ids: piece.ids, sent_us: self.now.mono_us });
        (Some(next), false)
    }

    fn hand_owed_to(&mut self, node: NodeId, after: Option<Key>) -> (Option<Place>, bool) {
        let Some((partition, ids)) = self.hints.owed.piece(node, after, EXCHANGE_TASKS_MAX) else {
            return (None, true);
        };
        let replica = &self.partitions[&partition];
        let forgets = replica.forgets_surely();
        let (mut bytes, mut sent, mut items, mut lacks) = (0, Vec::new(), Vec::<(TaskId, Task)>::new(), Vec::new());
        for id in ids {
            if bytes >= EXCHANGE_BYTES_MAX {
                break;
            }
            sent.push((id, 0));
            // What is forgotten meanwhile is handed over by saying nothing.
            let Some((task, wanted)) = replica.store.content(&id) else { continue };
            bytes += task.size_bytes() + wanted.map_or(0, |wanted| wanted.bytes as usize);
            lacks.extend(wanted.map(|wanted| (items.len(), wanted)));
            items.push((id, task));
        }
        let last = sent.last().map(|(id, _)| (partition, *id));
        self.asks.exchange.sends(items.iter().map(|(_, task)| task.size_bytes()));
        let number = self.asks.number();
        let message = PeerMessage::Hint { number, partition, items: Arc::new(items), forgets };
        self.send_whole(node, message, lacks, false);
        self.fly(node, Flight { number, kept: false, partition, ids: sent, sent_us: self.now.mono_us });
        (Some(Place::Owed(last)), false)
    }

    fn fly(&mut self, node: NodeId, flight: Flight) {
        self.hints.deliveries.get_mut(&node).expect("it is under way").flight = Some(flight);
    }

    /// At a member: another node has kept this while it was away.
    pub(in crate::protocol) fn on_hint(
        &mut self,
        from: NodeId,
        number: u64,
        partition: PartitionId,
        items: &Items,
        forgets: Option<u64>,
    ) {
        let right = items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let Some(replica) = self.partitions.get(&partition).filter(|_| right) else {
            self.outbox.observe(Observation::Refused { what: "hints for a partition that is not held here" });
            return;
        };
        // How often others have forgotten does not matter.
        let forgets = forgets.filter(|_| replica.cohort.contains(&from));
        let (ignored, short) = (mutant!(self.config, FloorIgnored), self.disk.is_short());
        let known = |id: &TaskId| replica.store.ended(id) || !replica.store.lacks_spec(id);
        let outcome = |(id, delta): &(TaskId, Task)| {
            if replica.refuses(id, forgets) && !ignored {
                Outcome::TooOld
            } else if short && grows(known(id), delta) {
                Outcome::NoSpace
            } else {
                Outcome::Stored
            }
        };
        let outcomes: Vec<Outcome> = items.iter().map(outcome).collect();
        if outcomes.iter().all(|outcome| *outcome == Outcome::Stored) {
            self.learn_shared(partition, items);
        } else {
            let taken = items.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Stored);
            self.learn(partition, taken.map(|(item, _)| item.clone()).collect());
        }
        let answer = PeerMessage::Hinted { number, partition, outcomes, boot: self.boot, log: LogWord::default() };
        self.outbox.send_durable(from, answer);
    }

    /// A member has what it was handed, on disk.
    pub(in crate::protocol) fn on_hinted(
        &mut self,
        from: NodeId,
        number: u64,
        partition: PartitionId,
        outcomes: &[Outcome],
        boot: u64,
    ) {
        // Since then it has lost something, and this perhaps.
        if self.peers.get(&from).is_some_and(|peer| boot < peer.counts_from) {
            return;
        }
        let now_us = self.now.mono_us;
        let Some(delivery) = self.hints.deliveries.get_mut(&from) else { return };
        let expected = |flight: &mut Flight| flight.number == number && flight.partition == partition;
        let Some(flight) = delivery.flight.take_if(expected) else { return };
        delivery.answered_us = Some(now_us);
        if flight.kept {
            self.kept_answered(from, &flight, outcomes, boot);
        } else {
            self.owed_answered(from, &flight, outcomes);
        }
        self.hand_hints_to(from);
    }

    fn kept_answered(&mut self, from: NodeId, flight: &Flight, outcomes: &[Outcome], boot: u64) {
        let (partition, replicas) = (flight.partition, self.cohort(flight.partition).len());
        let (mut safe, mut open) = (Vec::new(), outcomes.len() != flight.ids.len());
        for ((id, version), outcome) in flight.ids.iter().zip(outcomes) {
            let (key, has) = ((partition, *id), *outcome == Outcome::Stored);
            if has || *outcome == Outcome::TooOld {
                self.hints.kept.answered(key, *version, from, boot, has);
            }
            match self.hints.kept.fate(key, replicas) {
                Fate::Safe => safe.push(*id),
                Fate::Orphan if self.hints.orphans.insert(key) => {
                    self.outbox.observe(Observation::HintOrphaned { id: *id });
                }
                Fate::Orphan => {}
                Fate::Kept => open |= !has,
            }
        }
        if open {
            let again_us = self.after_ms(self.config.exchange_interval_ms);
            self.hints.deliveries.values_mut().for_each(|delivery| delivery.begin_again(again_us));
        }
        if !safe.is_empty() {
            self.outbox.observe(Observation::HintsHanded { partition: partition.0, tasks: safe.len() as u64 });
        }
        self.drop_kept(partition, safe);
    }

    /// What nobody will ever take, as observers know by now.
    fn drop_orphans(&mut self) {
        for key in std::mem::take(&mut self.hints.orphans) {
            let (partition, id) = key;
            if self.hints.kept.fate(key, self.cohort(partition).len()) == Fate::Orphan {
                self.drop_kept(partition, vec![id]);
            }
        }
    }

    fn drop_kept(&mut self, partition: PartitionId, ids: Vec<TaskId>) {
        if !ids.is_empty() {
            ids.iter().for_each(|id| self.hints.kept.remove(partition, id));
            self.outbox.persist(Record::Handed { to: None, partition, ids });
        }
    }

    /// What a member could not take, anti-entropy brings.
    fn owed_answered(&mut self, from: NodeId, flight: &Flight, outcomes: &[Outcome]) {
        let full = outcomes.contains(&Outcome::NoSpace);
        if full {
            let again_us = self.after_ms(self.config.exchange_interval_ms);
            self.hints.deliveries.get_mut(&from).expect("it has answered").begin_again(again_us);
            return;
        }
        let ids: Vec<TaskId> = flight.ids.iter().map(|(id, _)| *id).collect();
        let (partition, tasks) = (flight.partition, ids.len() as u64);
        self.hints.owed.remove(from, partition, &ids);
        self.outbox.persist(Record::Handed { to: Some(from), partition, ids });
        self.outbox.observe(Observation::HintsHanded { partition: partition.0, tasks });
    }

    /// Tells observers how much is kept, and what has been kept for too long.
    fn tell_hints(&mut self) {
        let hints = &mut self.hints;
        let now = (hints.kept.count() as u64, hints.owed.count() as u64, hints.bytes());
        if now != hints.told {
            hints.told = now;
            let (tasks, ids, bytes) = now;
            self.outbox.observe(Observation::Hints { tasks, ids, bytes });
        }
        let (now_ms, ttl_ms) = (self.now.wall_ms, self.config.hint_ttl_ms);
        if now_ms.abs_diff(hints.overdue_told_ms) < ttl_ms {
            return;
        }
        let tasks = hints.kept.overdue(now_ms, ttl_ms);
        if tasks > 0 {
            hints.overdue_told_ms = now_ms;
            self.outbox.observe(Observation::HintsOverdue { tasks });
        }
    }
}
