//! How old leases are, told from replica to replica and from start to start.
//!
//! A claim runs out no earlier than a lease after it was granted or renewed, by a monotonic clock. A replica knows the age of what it
//! saw itself. What it did not see is told by those who did, and what it saw before it started again by its log. Each age is a
//! lower bound, and stays one however late it is heard of, so it may be taken from anybody whose monotonic clock has the right
//! rate: the clocks of several replicas, or of several starts, count one after the other as one would.
//!
//! **In the log.** A node counts how long it has run, in all its starts, and [`Record::Ran`] says how long that was: with what is
//! written anyway, and by itself where nothing is and leases run. What stands before such a record, and behind the last one
//! before it, had happened by then. That holds as well where one of them is lost: the next one is later. The last one is where
//! the count goes on after a start: what the node ran behind it, and the time in which it did not run, do not count.
//!
//! **From others.** A follower says to a new leader how old what it holds is, and the leader what is older by its own count. Whoever
//! hears something new writes it down ([`Record::Ages`]), and a leader says it to the others.
//!
//! Operations of one epoch come in order from one leader. So an age is said of a viewstamp, and is meant of all operations of the same
//! epoch up to it; nothing follows from it for other epochs, since a leader may append before it hears that it is none any more.
//!
//! The silence after a rescue has an age as well, and goes on while the cohort changes and claims are renewed: so it is not told of
//! the operation that made the cohort what it is, but of a name that no operation has.

use super::cohort::Silence;
use super::register::Leader;
use super::{Epoch, Viewstamp};
use crate::config::mutant;
use crate::limits::{
    AGES_MAX, AGES_STEPS, ASK_AGES_MS_MAX, RAN_ASIDE_MS, RAN_EARLY_MS, RAN_MS_MIN, RAN_OF_LEASE, RAN_OF_START,
    TOLD_AGE_MS_MIN,
};
use crate::protocol::Node;
use crate::protocol::consistent::table::{Op, Table};
use crate::protocol::partition::Partition;
use crate::protocol::peer::PeerMessage;
use crate::protocol::record::Record;
use crate::protocol::time::Now;
use crate::protocol::timers::Key;
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

/// No operation is of it.
const NO_EPOCH: Epoch = 0;

/// By what the age of a silence is told.
pub fn name_of_silence(silence: Silence) -> Viewstamp {
    Viewstamp { epoch: NO_EPOCH, length: silence.until_ms }
}

/// In milliseconds: each operation up to one of these viewstamps, in the same epoch, is at least so old.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ages {
    /// In order; within an epoch they grow younger.
    points: Vec<(Viewstamp, u64)>,
}

impl Ages {
    /// Out of what is known of single operations, in any order.
    pub fn new(mut points: Vec<(Viewstamp, u64)>) -> Ages {
        points.sort_unstable();
        let mut kept: Vec<(Viewstamp, u64)> = Vec::new();
        for (at, age_ms) in points.into_iter().rev() {
            match kept.last() {
                // What is before something old is as old.
                Some((later, later_ms)) if later.epoch == at.epoch && *later_ms >= age_ms => {}
                Some(_) | None => kept.push((at, age_ms)),
            }
        }
        kept.reverse();
        Ages { points: thinned(kept) }
    }

    /// The points.
    pub fn points(&self) -> &[(Viewstamp, u64)] {
        &self.points
    }

    /// How old an operation, or a silence, is at least; none if nothing is known.
    pub fn of(&self, at: Viewstamp) -> Option<u64> {
        let place = self.points.partition_point(|(point, _)| *point < at);
        // Silences do not come one after the other.
        let speaks_of = |point: Viewstamp| point.epoch == at.epoch && (point == at || at.epoch != NO_EPOCH);
        self.points.get(place).filter(|(point, _)| speaks_of(*point)).map(|(_, age_ms)| *age_ms)
    }

    /// Whether others know of something that it is younger than it is by these.
    fn tells(&self, others: &Ages) -> bool {
        let news =
            |(at, age_ms): &(Viewstamp, u64)| *age_ms > others.of(*at).unwrap_or(0).saturating_add(TOLD_AGE_MS_MIN);
        self.points.iter().any(news)
    }
}

/// Few enough points, each for all of about the same age; the newest, if there are too many epochs.
fn thinned(mut points: Vec<(Viewstamp, u64)>) -> Vec<(Viewstamp, u64)> {
    if points.len() <= AGES_MAX {
        return points;
    }
    let longest_ms = points.iter().map(|(_, age_ms)| *age_ms).max().unwrap_or(0);
    let step = |age_ms: u64| age_ms / (longest_ms / AGES_STEPS + 1);
    let next: Vec<Option<(Viewstamp, u64)>> = points[1..].iter().copied().map(Some).chain([None]).collect();
    let mut next = next.into_iter();
    points.retain(|(at, age_ms)| {
        let next = next.next().flatten();
        next.is_none_or(|(later, later_ms)| later.epoch != at.epoch || step(later_ms) != step(*age_ms))
    });
    points.split_off(points.len().saturating_sub(AGES_MAX))
}

/// What a follower and its leader have said to each other of ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exchange {
    /// Nothing, as far as this replica knows.
    #[default]
    Unasked,
    /// The follower has told what it knows, and was not answered yet.
    Asked {
        /// Whom.
        leader: Leader,
        /// When it says so again.
        again_us: u64,
        /// Between the last time and that.
        pause_ms: u64,
    },
    /// Both.
    Answered(Leader),
}

impl Exchange {
    /// Whether this leader is to be asked now.
    fn is_due(self, leader: Leader, now_us: u64) -> bool {
        match self {
            Exchange::Answered(by) => by != leader,
            Exchange::Asked { leader: asked, again_us, .. } => asked != leader || now_us >= again_us,
            Exchange::Unasked => true,
        }
    }

    /// It is asked now.
    fn asked(self, leader: Leader, now: Now, resend_ms: u64) -> Exchange {
        let pause_ms = match self {
            Exchange::Asked { leader: asked, pause_ms, .. } if asked == leader => {
                (2 * pause_ms).min(ASK_AGES_MS_MAX.max(resend_ms))
            }
            _ => resend_ms,
        };
        Exchange::Asked { leader, again_us: now.mono_after_ms(pause_ms), pause_ms }
    }

    /// A node answers. Whoever was not asked since the table is another knows nothing of that table.
    fn answered(self, from: NodeId) -> Exchange {
        match self {
            Exchange::Asked { leader, .. } if leader.node == from => Exchange::Answered(leader),
            other => other,
        }
    }
}

/// How long a node has run, in all its starts.
#[derive(Debug, Default)]
pub struct Running {
    /// What the log says.
    before_us: u64,
    /// When this start began.
    began_us: u64,
    /// When that was last written down.
    noted_us: u64,
    /// During the replay: partitions of which something was said behind the last word of that.
    undated: BTreeSet<PartitionId>,
}

impl Running {
    /// The log says so much. What it says later is more, unless an earlier part of it stands there again.
    pub fn recover(&mut self, ran_us: u64) {
        self.before_us = self.before_us.max(ran_us);
    }

    /// What the log says.
    pub fn recovered_us(&self) -> u64 {
        self.before_us
    }

    /// The log says something of a partition.
    pub fn note_undated(&mut self, partition: PartitionId) {
        self.undated.insert(partition);
    }

    /// Partitions of which it has said something since last asked.
    pub fn take_undated(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.undated)
    }

    /// The node starts.
    pub fn begin(&mut self, now: Now) {
        (self.began_us, self.noted_us) = (now.mono_us, now.mono_us);
        self.undated.clear();
    }

    /// Until now.
    pub fn ran_us(&self, now: Now) -> u64 {
        self.before_us.saturating_add(now.mono_us - self.began_us)
    }
}

/// Whether claims, or a silence, begin with it.
fn begins(record: &Record) -> bool {
    let begins = |op: &Op| matches!(op, Op::Grant { .. } | Op::Renew { .. } | Op::Cohort(_));
    let silent = |table: &Table| table.cohort.as_ref().is_some_and(|cohort| cohort.silence.is_some());
    match record {
        Record::Ops { ops, .. } => ops.iter().any(|op| begins(op)),
        Record::Install { table, .. } => table.as_ref().is_some_and(|table| !table.cells.is_empty() || silent(table)),
        _ => false,
    }
}

impl Node {
    /// At the end of a step: says in the log how long it has run, where claims begin, or something is written anyway.
    pub(in crate::protocol) fn note_ran(&mut self) {
        let records = self.outbox.unwritten();
        if records.is_empty() || self.starting {
            return;
        }
        let begins = records.iter().any(begins);
        let aside = self.timers.is_set(Key::Ages) && self.now.mono_us >= self.running.noted_us + RAN_ASIDE_MS * 1_000;
        if begins {
            self.timers.set_earliest(Key::Ages, self.after_ms(RAN_MS_MIN));
        }
        if begins || aside {
            self.write_ran();
        }
    }

    fn write_ran(&mut self) {
        self.outbox.persist(Record::Ran { us: self.running.ran_us(self.now) });
        self.running.noted_us = self.now.mono_us;
    }

    /// Says how long it has run once that was not written for long, as long as leases run.
    pub(in crate::protocol) fn see_to_ages(&mut self) {
        let Some(due_us) = self.ran_due_us() else { return };
        if due_us > self.now.mono_us {
            return self.timers.set(Key::Ages, due_us);
        }
        self.write_ran();
        if let Some(due_us) = self.ran_due_us() {
            self.timers.set(Key::Ages, due_us);
        }
    }

    /// When it is to be written down next; none if no lease has run since. What a restart takes is a part of what the nearest lease
    /// had left, and of what the node has run since its start: so many restarts take no more than one.
    fn ran_due_us(&self) -> Option<u64> {
        let noted_us = self.running.noted_us;
        let end = |replica: &Partition| replica.register.first_end_after(noted_us, &self.config);
        let ends = self.partitions.values().filter_map(end);
        let left_us = ends.min()? - noted_us;
        let of_start_us = (self.now.mono_us - self.running.began_us) / RAN_OF_START;
        let of_lease_us = (left_us / RAN_OF_LEASE).max(RAN_MS_MIN * 1_000);
        Some(noted_us + of_lease_us.min(of_start_us.max(RAN_EARLY_MS * 1_000)))
    }

    /// The node starts, and leases may run.
    pub(in crate::protocol) fn begin_ages(&mut self) {
        if self.ran_due_us().is_some() {
            self.timers.set(Key::Ages, self.after_ms(RAN_EARLY_MS));
        }
    }

    /// What a snapshot says of the ages of a partition, behind its table.
    pub(in crate::protocol) fn save_ages(&self, partition: PartitionId) -> Option<Record> {
        let register = &self.partitions[&partition].register;
        register.has_clocks().then(|| self.record_of_ages(partition))
    }

    fn record_of_ages(&self, partition: PartitionId) -> Record {
        let ages = self.partitions[&partition].register.ages(self.now.mono_us, &self.config);
        Record::Ages { partition, ran_us: self.running.ran_us(self.now), points: ages.points().to_vec() }
    }

    /// With every heartbeat: leaders that were not told how old leases are, and have not said so, are asked, and asked again after
    /// a while.
    pub(in crate::protocol) fn exchange_ages(&mut self) {
        if mutant!(self.config, AgesForgotten) {
            return;
        }
        let mut asked = Vec::new();
        for (partition, replica) in &self.partitions {
            let register = &replica.register;
            let leader = register.leader.filter(|leader| register.exchange.is_due(*leader, self.now.mono_us));
            if let Some(leader) = leader.filter(|_| register.has_clocks()) {
                asked.push((*partition, leader));
            }
        }
        let (now, resend_ms) = (self.now, self.config.resend_ms);
        for (partition, leader) in asked {
            let register = &mut self.partitions.get_mut(&partition).expect("just seen").register;
            register.exchange = register.exchange.asked(leader, now, resend_ms);
            self.send_ages(partition, leader.node, true);
        }
    }

    fn send_ages(&mut self, partition: PartitionId, node: NodeId, asks: bool) {
        let ages = self.partitions[&partition].register.ages(self.now.mono_us, &self.config);
        self.outbox.send(node, PeerMessage::Ages { partition, asks, ages: ages.points().to_vec() });
    }

    /// Another replica says how old leases are.
    pub(in crate::protocol) fn on_ages(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        asks: bool,
        ages: Vec<(Viewstamp, u64)>,
    ) {
        let (now_us, told) = (self.now.mono_us, Ages::new(ages));
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let register = &mut replica.register;
        let older = register.take_ages(&told, now_us, TOLD_AGE_MS_MIN * 1_000, &self.config);
        if !asks {
            register.exchange = register.exchange.answered(from);
        }
        let leads = register.leading().is_some();
        let own = register.ages(now_us, &self.config);
        if older {
            self.outbox.persist(self.record_of_ages(partition));
        }
        if leads {
            self.tell_ages(partition, from, (asks, older), own.tells(&told));
        }
    }

    /// The leader answers, and says to all others what is news to itself. That is no answer to them: they may know more.
    fn tell_ages(&mut self, partition: PartitionId, from: NodeId, (asks, older): (bool, bool), knows_more: bool) {
        if older {
            self.arm_expiry(partition);
        }
        for node in self.partitions[&partition].cohort().followers() {
            if node == self.me {
                continue;
            }
            if node == from && asks && !knows_more {
                // It has been heard, and that is all.
                self.outbox.send(node, PeerMessage::Ages { partition, asks: false, ages: Vec::new() });
            } else if (node == from && asks) || (node != from && older) {
                self.send_ages(partition, node, node != from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, length: u64) -> Viewstamp {
        Viewstamp { epoch, length }
    }

    #[test]
    fn what_is_before_something_old_is_as_old_and_nothing_follows_for_other_epochs() {
        let ages = Ages::new(vec![(at(2, 9), 5), (at(2, 4), 70), (at(2, 3), 20), (at(3, 1), 400), (at(1, 8), 1)]);
        assert_eq!(ages.points(), [(at(1, 8), 1), (at(2, 4), 70), (at(2, 9), 5), (at(3, 1), 400)]);
        let told =
            [at(1, 1), at(1, 8), at(2, 1), at(2, 3), at(2, 4), at(2, 5), at(2, 9), at(3, 0)].map(|at| ages.of(at));
        assert_eq!(told, [1, 1, 70, 70, 70, 5, 5, 400].map(Some));
        let unknown = [at(1, 9), at(2, 10), at(3, 2), at(4, 0)].map(|at| ages.of(at));
        assert_eq!(unknown, [None; 4]);
    }

    #[test]
    fn of_another_silence_nothing_follows() {
        let silence = |until_ms| name_of_silence(Silence { until_ms, lease_ms: 5 });
        let ages = Ages::new(vec![(silence(70), 9), (at(1, 1), 4)]);
        assert_eq!([70, 69, 71].map(|until_ms| ages.of(silence(until_ms))), [Some(9), None, None]);
        assert_eq!(ages.of(at(1, 1)), Some(4));
    }

    /// What is told comes from outside: no number is too great to be looked at.
    #[test]
    fn the_greatest_age_is_no_news_to_who_told_it() {
        let (own, told) = (Ages::new(vec![(at(1, 1), 5)]), Ages::new(vec![(at(1, 1), u64::MAX)]));
        assert!(!own.tells(&told) && told.tells(&own));
    }

    #[test]
    fn of_many_ages_few_are_told_none_too_great_and_none_much_too_small() {
        let exact = |length: u64| (at(7, length), 3_600_000 - length);
        let ages = Ages::new((1..3_000_000).step_by(100).map(exact).chain([(at(6, 5), 9)]).collect());
        assert!(ages.points().len() <= AGES_MAX, "{}", ages.points().len());
        assert_eq!(ages.of(at(6, 5)), Some(9));
        for length in (1..3_000_000).step_by(100) {
            let (told_ms, age_ms) = (ages.of(at(7, length)).unwrap(), exact(length).1);
            assert!(told_ms <= age_ms && age_ms - told_ms <= 3_600_000 / AGES_STEPS + 1, "{told_ms} of {age_ms}");
        }
        let epochs = Ages::new((1..=2 * AGES_MAX as u64).map(|epoch| (at(epoch, 1), epoch)).collect());
        assert_eq!(epochs.points().len(), AGES_MAX);
        assert_eq!(epochs.of(at(2 * AGES_MAX as u64, 1)), Some(2 * AGES_MAX as u64), "the newest are told");
    }
}
