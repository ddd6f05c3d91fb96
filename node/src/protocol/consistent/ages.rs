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

use super::Viewstamp;
use super::register::Ages;
use crate::config::mutant;
use crate::limits::{RAN_ASIDE_MS, RAN_EARLY_MS, RAN_MS_MIN, RAN_OF_LEASE, RAN_OF_START, TOLD_AGE_MS_MIN};
use crate::protocol::Node;
use crate::protocol::consistent::table::{Op, Table};
use crate::protocol::partition::Partition;
use crate::protocol::peer::PeerMessage;
use crate::protocol::record::Record;
use crate::protocol::time::Now;
use crate::protocol::timers::Key;
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

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
