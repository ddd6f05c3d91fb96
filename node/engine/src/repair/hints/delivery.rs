//! Delivery of hints: one message at a time to each node that is alive, within the repair budget.
//!
//! A pass goes through all payload hints, then through all id hints for the node. It begins when the node is heard
//! again, and anew when there are more hints, or when something could not be taken.
//!
//! A message that is not answered in time is sent again, with half as much in it and twice the time. A later answer counts all the same,
//! so that there is progress however slow a link or a disk is. A node that is full is left alone for a while, longer each time.

use super::ToldOrphan;
use super::payload_hints::{self, Answer, Fate, Key};
use crate::Node;
use crate::context::timers;
use crate::effect::Observation;
use crate::write_read::admission::grows;
use norn_model::config::mutant;
use norn_model::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX, ORPHANS_MAX, REPAIR_LOOKS_MAX};
use norn_model::message::{Handoff, Items, LogPosition, Outcome, PeerMessage, Peering};
use norn_model::record::Record;
use norn_model::task::{Task, Wanted};
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Rounds of anti-entropy that wait for hints which the node does not acknowledge.
const PATIENCE_ROUNDS: u64 = 2;
/// Messages that were not answered in time and whose answers still count.
const LATE_MAX: usize = 4;
/// Most doublings of the time for an answer, halvings of a message, and doublings of a pause.
const DOUBLINGS_MAX: u32 = 6;

/// Position of a pass: behind this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    PayloadHints(Option<Key>),
    IdHints(Option<Key>),
}

/// A message that is not answered yet.
#[derive(Debug)]
struct Flight {
    number: u64,
    is_payload: bool,
    partition: PartitionId,
    /// With versions, for payload hints.
    ids: Vec<(TaskId, u64)>,
    sent_us: u64,
}

/// State of delivery to one node.
#[derive(Debug)]
pub struct Delivery {
    /// Position of the pass; absent once all was looked at.
    place: Option<Place>,
    flight: Option<Flight>,
    /// The latest messages that were not answered in time.
    late: VecDeque<Flight>,
    /// Number of messages not answered in time, less those answered in time since.
    slow: u32,
    /// How often in a row the node lacked room for something.
    full: u32,
    /// Time until which the node is left alone.
    rests_until_us: u64,
    /// Time at which the next pass begins.
    again_us: Option<u64>,
    /// Time of the latest answer since the node came back.
    answered_us: Option<u64>,
}

impl Default for Delivery {
    /// The state for a node of which nothing is known.
    fn default() -> Delivery {
        Delivery {
            place: Some(Place::PayloadHints(None)),
            flight: None,
            late: VecDeque::new(),
            slow: 0,
            full: 0,
            rests_until_us: 0,
            again_us: None,
            answered_us: None,
        }
    }
}

impl Delivery {
    /// Begins another pass at that time, when the present one is over.
    pub fn begin_again(&mut self, at_us: u64) {
        self.again_us = Some(self.again_us.map_or(at_us, |before| before.min(at_us)));
    }

    /// Whether the next message may be sent.
    fn is_due(&mut self, now_us: u64, timeout_us: u64) -> bool {
        assert!(self.slow <= DOUBLINGS_MAX, "the time for an answer is doubled too often");
        assert!(self.late.len() <= LATE_MAX, "too many late answers are waited for");
        let patience_us = timeout_us << self.slow;
        if let Some(flight) = self.flight.take_if(|flight| now_us >= flight.sent_us + patience_us) {
            // It may be lost, or on its way.
            self.late.push_back(flight);
            if self.late.len() > LATE_MAX {
                self.late.pop_front();
            }
            self.slow = (self.slow + 1).min(DOUBLINGS_MAX);
            self.place = Some(Place::PayloadHints(None));
        }
        match &self.flight {
            Some(_) => return false,
            None if now_us < self.rests_until_us => return false,
            None if self.place.is_none() && self.again_us.is_some_and(|again_us| now_us >= again_us) => {
                self.again_us = None;
                self.place = Some(Place::PayloadHints(None));
            }
            None => {}
        }
        self.place.is_some()
    }

    /// Returns the open message with this number, and closes it.
    fn answered(&mut self, number: u64, partition: PartitionId) -> Option<Flight> {
        let is_it = |flight: &Flight| flight.number == number && flight.partition == partition;
        if let Some(flight) = self.flight.take_if(|flight| is_it(flight)) {
            self.slow = self.slow.saturating_sub(1);
            return Some(flight);
        }
        let at = self.late.iter().position(is_it)?;
        self.late.remove(at)
    }

    /// Notes whether the node had room for all that it may take.
    fn note_room(&mut self, room: bool, now_us: u64, wait_us: u64) {
        assert!(self.full <= DOUBLINGS_MAX, "a pause is doubled too often");
        if room {
            self.full = 0;
        } else {
            self.rests_until_us = now_us + (wait_us << self.full);
            self.full = (self.full + 1).min(DOUBLINGS_MAX);
            self.begin_again(self.rests_until_us);
        }
    }

    /// Most tasks and bytes of a message.
    fn bounds(&self) -> (usize, usize) {
        assert!(self.slow <= DOUBLINGS_MAX, "a message is halved too often");
        ((EXCHANGE_TASKS_MAX >> self.slow).max(1), (EXCHANGE_BYTES_MAX >> self.slow).max(1))
    }
}

impl Node {
    /// Delivers the hints for all nodes.
    pub(crate) fn hand_over_hints(&mut self) {
        self.drop_orphans();
        // A partition may have come to this node since something was kept for it.
        let nodes: Vec<NodeId> = self.others().chain([self.me]).collect();
        for node in nodes {
            self.hand_hints_to(node);
        }
        self.tell_hints();
        if self.repair.hints.is_empty() {
            self.repair.hints.deliveries.clear();
        } else {
            self.timers.set(timers::Key::Hints, self.after_ms(self.config.resend_ms));
        }
    }

    /// Whether a node gets its hints before anything else.
    pub(crate) fn hints_go_first(&self, node: NodeId) -> bool {
        let patience_us = PATIENCE_ROUNDS * self.config.exchange_interval_ms * 1_000;
        let delivery = self.repair.hints.deliveries.get(&node);
        let answered_us = delivery.and_then(|delivery| delivery.answered_us);
        let rests = delivery.is_some_and(|delivery| self.now.mono_us < delivery.rests_until_us);
        self.repair.hints.id_hints.count_of(node) > 0
            && !rests
            && answered_us.is_none_or(|at_us| self.now.mono_us < at_us + patience_us)
    }

    fn hand_hints_to(&mut self, node: NodeId) {
        let (now_us, timeout_us) = (self.now.mono_us, self.config.request_timeout_ms * 1_000);
        let alive = self.is_alive(node);
        let delivery = self.repair.hints.deliveries.entry(node).or_default();
        if !alive {
            *delivery = Delivery::default();
            return;
        }
        delivery.answered_us.get_or_insert(now_us);
        while self.repair.hints.deliveries.get_mut(&node).is_some_and(|delivery| delivery.is_due(now_us, timeout_us)) {
            if !self.repair.anti_entropy.may_send(now_us, &self.config) || !self.hand_piece_to(node) {
                return;
            }
        }
    }

    /// Sends the next message. Returns whether there may be more to do right now.
    fn hand_piece_to(&mut self, node: NodeId) -> bool {
        let place = self.repair.hints.deliveries.get(&node).and_then(|delivery| delivery.place);
        let (next, more) = match place {
            Some(Place::PayloadHints(after)) => self.hand_payload_hints_to(node, after),
            Some(Place::IdHints(after)) => self.hand_id_hints_to(node, after),
            None => (None, false),
        };
        self.repair.hints.deliveries.get_mut(&node).expect("it is under way").place = next;
        more
    }

    fn hand_payload_hints_to(&mut self, node: NodeId, after: Option<Key>) -> (Option<Place>, bool) {
        let now_us = self.now.mono_us;
        let (tasks_max, bytes_max) = self.repair.hints.deliveries[&node].bounds();
        let bounds = (tasks_max, bytes_max, REPAIR_LOOKS_MAX as usize);
        let is_member = |partition| {
            let cohort = self.cohort_of(partition);
            cohort.has_voter(node).then_some(cohort.version)
        };
        let piece = self.repair.hints.payload_hints.piece((node, now_us), after, bounds, is_member);
        if let Some(again_us) = piece.again_us {
            self.repair.hints.deliveries.get_mut(&node).expect("it is under way").begin_again(again_us);
        }
        let next = piece.at.map_or(Place::IdHints(None), |at| Place::PayloadHints(Some(at)));
        // The node may have answered before this node knew the cohort that the answer names.
        for had in piece.had.chunk_by(|one, other| one.0 == other.0) {
            let ids: Vec<TaskId> = had.iter().map(|(_, id)| *id).collect();
            self.settle_payload_hints(had[0].0, &ids);
        }
        if piece.ids.is_empty() {
            // Passing over many tasks that the node has is enough for now.
            return (Some(next), piece.at.is_none());
        }
        let (partition, items) = (piece.partition, Arc::new(piece.items));
        self.repair.anti_entropy.sends(items.iter().map(|(_, task)| task.size_bytes()));
        let number = self.pending_requests.number();
        let at = self.cohort_of(partition).version;
        self.outbox.send(node, Handoff::Hint { number, partition, at, items, forgets: None });
        self.repair.hints.payload_hints.offered(partition, &piece.ids, node);
        if mutant!(self.config, HintGoneEarly) {
            let ids: Vec<TaskId> = piece.ids.iter().map(|(id, _)| *id).collect();
            self.drop_payload_hints(partition, ids);
        }
        self.fly(node, Flight { number, is_payload: true, partition, ids: piece.ids, sent_us: self.now.mono_us });
        (Some(next), false)
    }

    fn hand_id_hints_to(&mut self, node: NodeId, after: Option<Key>) -> (Option<Place>, bool) {
        let (tasks_max, bytes_max) = self.repair.hints.deliveries[&node].bounds();
        let Some((partition, ids)) = self.repair.hints.id_hints.piece(node, after, tasks_max) else {
            return (None, true);
        };
        let replica = &self.partitions[&partition];
        let forgets = replica.forgets_surely();
        let (mut bytes, mut items, mut lacks) = (0, Vec::<(TaskId, Task)>::new(), Vec::new());
        let (mut last, mut sent, mut gone) = (after, Vec::new(), Vec::new());
        for id in ids {
            if bytes >= bytes_max {
                break;
            }
            last = Some((partition, id));
            let Some((task, wanted)) = replica.store.content(&id) else {
                gone.push(id);
                continue;
            };
            sent.push((id, 0));
            bytes += task.size_bytes() + wanted.iter().map(Wanted::adds_bytes).sum::<usize>();
            lacks.extend(wanted.into_iter().map(|wanted| (items.len(), wanted)));
            items.push((id, task));
        }
        // Tasks forgotten meanwhile count as handed over, without a message.
        self.drop_id_hints_to(node, partition, gone);
        if items.is_empty() {
            return (Some(Place::IdHints(last)), true);
        }
        self.repair.anti_entropy.sends(items.iter().map(|(_, task)| task.size_bytes()));
        let number = self.pending_requests.number();
        let at = self.partitions[&partition].cohort().version;
        let message = PeerMessage::Handoff(Handoff::Hint { number, partition, at, items: Arc::new(items), forgets });
        self.send_whole(node, message, lacks, false);
        self.fly(node, Flight { number, is_payload: false, partition, ids: sent, sent_us: self.now.mono_us });
        (Some(Place::IdHints(last)), false)
    }

    fn fly(&mut self, node: NodeId, flight: Flight) {
        assert!(!flight.ids.is_empty(), "a message without hints is sent");
        let before = self.repair.hints.deliveries.get_mut(&node).expect("it is under way").flight.replace(flight);
        assert!(before.is_none(), "hints are sent before the answer to the ones before");
    }

    /// At a member: takes hints that another node kept while this one was away.
    pub(crate) fn on_hint(
        &mut self,
        from: NodeId,
        number: u64,
        (partition, at): (PartitionId, Viewstamp),
        items: &Items,
        forgets: Option<u64>,
    ) {
        let right = items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let has_slot = |replica: &&norn_model::replica::Partition| {
            replica.cohort().has_voter(self.me) && !replica.is_blank() && !replica.borrowed
        };
        let Some(replica) = self.partitions.get(&partition).filter(|_| right).filter(has_slot) else {
            if right && !items.is_empty() {
                let advertised = Box::new(self.route_of(partition));
                self.outbox.send(from, Peering::Route { partition, advertised });
            }
            self.outbox.refuse("hints for a partition that is not held here");
            return;
        };
        // How often a node outside the cohort has forgotten does not matter.
        let member = replica.cohort().knows(from);
        let forgets = forgets.filter(|_| member);
        let (ignored, short) = (mutant!(self.config, FloorIgnored), self.is_short_of_disk());
        let known = |id: &TaskId| replica.store.ended(id) || !replica.store.lacks_spec(id);
        // Orphans of a member are bounded at that member, and come by anti-entropy if they do not come now. So only those of other
        // senders are bounded here.
        let mut orphans = replica.store.index().orphans();
        let outcome = |(id, delta): &(TaskId, Task)| {
            let orphan = delta.spec.is_none() && !replica.store.knows(id);
            if replica.refuses(id, forgets) && !ignored {
                Outcome::TooOld
            } else if short && grows(known(id), delta) {
                Outcome::NoSpace
            } else if orphan && !member && orphans >= ORPHANS_MAX {
                Outcome::Overloaded
            } else {
                orphans += usize::from(orphan);
                Outcome::Stored
            }
        };
        let outcomes: Vec<Outcome> = items.iter().map(outcome).collect();
        let incomplete = !self.speaks_for(partition);
        if outcomes.iter().all(|outcome| *outcome == Outcome::Stored) {
            self.merge_shared(partition, items);
        } else {
            let taken = items.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Stored);
            self.merge(partition, taken.map(|(item, _)| item.clone()).collect());
        }
        let (boot, log) = (self.boot, LogPosition::default());
        let own_at = self.partitions[&partition].cohort().version;
        if let Some(advertised) = self.news_for(partition, at) {
            self.outbox.send(from, Peering::Route { partition, advertised });
        }
        let answer = Handoff::Hinted { number, partition, outcomes, boot, at: own_at, incomplete, log };
        self.outbox.send_durable(from, answer);
    }

    /// Handles a member's answer: what it was handed is on its disk, or refused.
    pub(crate) fn on_hinted(
        &mut self,
        from: NodeId,
        (number, partition): (u64, PartitionId),
        outcomes: &[Outcome],
        (boot, incomplete): (u64, bool),
        at: Viewstamp,
    ) {
        // The member has lost data since that incarnation, perhaps this.
        if self.has_lost_since(from, boot) {
            return;
        }
        let now_us = self.now.mono_us;
        let Some(delivery) = self.repair.hints.deliveries.get_mut(&from) else { return };
        let Some(flight) = delivery.answered(number, partition) else { return };
        delivery.answered_us = Some(now_us);
        let decided = |outcome: &Outcome| matches!(outcome, Outcome::Stored | Outcome::TooOld);
        let room = outcomes.len() == flight.ids.len() && outcomes.iter().all(decided);
        delivery.note_room(room, now_us, self.config.exchange_interval_ms * 1_000);
        if flight.is_payload {
            self.payload_hints_answered(&flight, outcomes, (from, boot, incomplete), at);
        } else {
            self.id_hints_answered(from, &flight, outcomes);
        }
        self.hand_hints_to(from);
    }

    fn payload_hints_answered(
        &mut self,
        flight: &Flight,
        outcomes: &[Outcome],
        (from, boot, incomplete): (NodeId, u64, bool),
        at: Viewstamp,
    ) {
        let times = (self.now.mono_us, self.config.exchange_interval_ms * 1_000);
        let partition = flight.partition;
        for ((id, version), outcome) in flight.ids.iter().zip(outcomes) {
            let answer = match outcome {
                Outcome::Stored => Some(Answer::Has { at }),
                Outcome::TooOld => Some(Answer::Refuses { sure: !incomplete }),
                _ => None,
            };
            if let Some(answer) = answer {
                self.repair.hints.payload_hints.answered((partition, *id), *version, (from, boot), answer, times);
            }
        }
        let ids: Vec<TaskId> = flight.ids.iter().map(|(id, _)| *id).collect();
        let kept = self.settle_payload_hints(partition, &ids);
        let lacks = |(id, outcome): (&TaskId, &Outcome)| kept.contains(id) && *outcome != Outcome::Stored;
        let apart = !kept.is_empty() && at != self.cohort_of(partition).version;
        if apart || outcomes.len() != ids.len() || ids.iter().zip(outcomes).any(lacks) {
            let again_us = self.after_ms(self.config.exchange_interval_ms);
            self.repair.hints.deliveries.values_mut().for_each(|delivery| delivery.begin_again(again_us));
        }
    }

    /// Drops hints that need not be kept for members any more. Returns those that must be.
    fn settle_payload_hints(&mut self, partition: PartitionId, ids: &[TaskId]) -> BTreeSet<TaskId> {
        let cohort = self.cohort_of(partition);
        let (mut safe, mut kept) = (Vec::new(), BTreeSet::new());
        for id in ids {
            let key = (partition, *id);
            match self.repair.hints.payload_hints.fate(key, &cohort) {
                Fate::Safe => safe.push(*id),
                Fate::Orphan => self.tell_orphan(key),
                Fate::Kept => {
                    kept.insert(*id);
                }
            }
        }
        if !safe.is_empty() {
            self.outbox.observe(Observation::HintsHanded { partition: partition.0, tasks: safe.len() as u64 });
        }
        self.drop_payload_hints(partition, safe);
        kept
    }

    /// Reports, once for each version, a hint that is about to be dropped as undeliverable, as there will be no other trace of it.
    fn tell_orphan(&mut self, key: Key) {
        let hints = &mut self.repair.hints;
        let Some((task, version)) = hints.payload_hints.versioned(&key) else { return };
        if hints.orphans.get(&key).is_some_and(|told| told.version == version) {
            return;
        }
        hints.orphans.insert(key, ToldOrphan { version, told_us: self.now.mono_us });
        let payload_bytes = task.spec.as_ref().map_or(0, |spec| spec.payload.len() as u64);
        let facts = payload_hints::describe(task);
        self.outbox.observe(Observation::HintOrphaned { id: key.1, facts, payload_bytes });
    }

    /// Drops hints that no member will ever take, and that observers were told of in an earlier turn.
    fn drop_orphans(&mut self) {
        let now_us = self.now.mono_us;
        let told: Vec<(Key, ToldOrphan)> =
            self.repair.hints.orphans.extract_if(.., |_, told| told.told_us < now_us).collect();
        for (key, told) in told {
            let (partition, id) = key;
            let hints = &self.repair.hints.payload_hints;
            let is_told = hints.versioned(&key).is_some_and(|(_, version)| version == told.version);
            if is_told && hints.fate(key, &self.cohort_of(partition)) == Fate::Orphan {
                self.drop_payload_hints(partition, vec![id]);
            }
        }
    }

    fn drop_payload_hints(&mut self, partition: PartitionId, ids: Vec<TaskId>) {
        if !ids.is_empty() {
            ids.iter().for_each(|id| self.repair.hints.payload_hints.remove(partition, id));
            self.outbox.persist(Record::Handed { to: None, partition, ids });
        }
    }

    /// Drops id hints that a member has stored or refused: anti-entropy brings what it can take after all.
    fn id_hints_answered(&mut self, from: NodeId, flight: &Flight, outcomes: &[Outcome]) {
        let answered = flight.ids.iter().zip(outcomes);
        let over = answered.filter(|(_, outcome)| matches!(outcome, Outcome::Stored | Outcome::TooOld));
        let ids: Vec<TaskId> = over.map(|((id, _), _)| *id).collect();
        self.drop_id_hints_to(from, flight.partition, ids);
    }

    fn drop_id_hints_to(&mut self, node: NodeId, partition: PartitionId, ids: Vec<TaskId>) {
        if ids.is_empty() {
            return;
        }
        let tasks = ids.len() as u64;
        self.repair.hints.id_hints.remove(node, partition, &ids);
        self.outbox.persist(Record::Handed { to: Some(node), partition, ids });
        self.outbox.observe(Observation::HintsHanded { partition: partition.0, tasks });
    }

    /// Informs observers how much is kept, and what has been kept for too long.
    fn tell_hints(&mut self) {
        let hints = &mut self.repair.hints;
        let now = (hints.payload_hints.count() as u64, hints.id_hints.count() as u64, hints.bytes());
        if now != hints.reported {
            hints.reported = now;
            let (tasks, ids, bytes) = now;
            self.outbox.observe(Observation::Hints { tasks, ids, bytes });
        }
        // Early enough: ids that are as old as forgotten ones are refused.
        let long_ms = self.config.hint_ttl_ms.min(self.config.forget_after_ms / 2);
        let now_ms = self.now.wall_ms;
        if now_ms.abs_diff(hints.overdue_told_ms) < long_ms {
            return;
        }
        let tasks = hints.payload_hints.overdue(now_ms, long_ms);
        if tasks > 0 {
            hints.overdue_told_ms = now_ms;
            self.outbox.observe(Observation::HintsOverdue { tasks });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_messages_that_were_not_answered_in_time_the_latest_are_remembered() {
        const PARTITION: PartitionId = PartitionId(1);
        let mut delivery = Delivery::default();
        let (mut now_us, last) = (0, LATE_MAX as u64 + 3);
        for number in 0..=last {
            delivery.flight =
                Some(Flight { number, is_payload: true, partition: PARTITION, ids: Vec::new(), sent_us: now_us });
            now_us += 1_000 << DOUBLINGS_MAX;
            assert!(delivery.is_due(now_us, 1_000));
        }
        assert!(delivery.answered(0, PARTITION).is_none(), "its answer comes too late");
        assert!(delivery.answered(last, PARTITION).is_some());
        assert_eq!(delivery.late.len(), LATE_MAX - 1);
    }
}
