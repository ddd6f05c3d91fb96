//! Lease ages: how replicas learn them from each other, and from the log after a restart.
//!
//! A lease expires no earlier than its length after its grant or renewal, by a monotonic clock. A replica knows the age of what
//! it saw itself. It learns the ages of other claims from the replicas that saw them, and those from before its restart from its
//! log. Each age is a lower bound, and stays one however late it arrives, so it may come from any replica whose monotonic clock
//! has the right rate: the clocks of several replicas, or of several starts, count in succession as a single clock would.
//!
//! **In the log.** A node counts its uptime over all its starts, and [`Record::Ran`] records it: together with other records, or
//! alone where nothing else is written and leases run. Everything logged between two such records had happened by the time of the
//! second. That also holds if one of them is lost, because the next one is later. After a restart the count goes on from the last
//! one: time that the node ran after that record, and time that it did not run, does not count.
//!
//! **From other replicas.** A follower sends a new leader the ages of the claims that it holds, and the leader answers with those
//! that are older by its own count. A replica that learns something new logs it ([`Record::LeaseAges`]), and a leader sends it to the
//! other followers.
//!
//! Operations of an epoch come in order from a single leader. So an age is given for a viewstamp and applies to all operations of
//! the same epoch up to it. It implies nothing for other epochs, because a leader may append before it learns that it is deposed.
//!
//! The quarantine after a rescue has an age as well. It goes on while the cohort changes and claims are renewed, so its age is
//! not given for the operation that made the cohort, but under a viewstamp that no operation has.

use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::config::mutant;
use norn_model::consensus::LeaseAges;
use norn_model::limits::{RAN_ASIDE_MS, RAN_EARLY_MS, RAN_MS_MIN, RAN_OF_LEASE, RAN_OF_START, TOLD_AGE_MS_MIN};
use norn_model::message::Replication;
use norn_model::record::Record;
use norn_model::replica::Partition;
use norn_model::time::Now;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

/// Uptime of a node over all its starts.
#[derive(Debug, Default)]
pub struct Running {
    /// Uptime before this start, by the log.
    before_us: u64,
    /// When this start began.
    began_us: u64,
    /// When the uptime was last written.
    noted_us: u64,
    /// During the replay: partitions with records after the last `Ran`.
    undated: BTreeSet<PartitionId>,
    /// The replay has ended.
    begun: bool,
}

impl Running {
    /// Takes in an uptime from the log. Uptimes grow, unless the log repeats an earlier part; so the maximum counts.
    pub fn recover(&mut self, ran_us: u64) {
        self.before_us = self.before_us.max(ran_us);
    }

    /// Uptime by the log.
    pub fn recovered_us(&self) -> u64 {
        self.before_us
    }

    /// Notes a record of a partition during the replay.
    pub fn note_undated(&mut self, partition: PartitionId) {
        self.undated.insert(partition);
    }

    /// Takes the partitions noted since the last call.
    pub fn take_undated(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.undated)
    }

    /// Begins a start of the node.
    pub fn begin(&mut self, now: Now) {
        (self.began_us, self.noted_us) = (now.mono_us, now.mono_us);
        self.begun = true;
        self.undated.clear();
    }

    /// Reading of the clock by which the ages of claims count: before the start that is the uptime by the log.
    fn clock_us(&self, now: Now) -> u64 {
        if self.begun { now.mono_us } else { self.before_us }
    }

    /// Total uptime until now.
    pub fn ran_us(&self, now: Now) -> u64 {
        assert!(now.mono_us >= self.began_us, "a start has run for less than no time");
        self.before_us.saturating_add(now.mono_us - self.began_us)
    }
}

/// Whether a record begins claims or a quarantine.
fn begins(record: &Record) -> bool {
    let begins = |op: &Op| matches!(op, Op::Grant { .. } | Op::Renew { .. } | Op::Cohort(_));
    let silent = |table: &ClaimTable| table.cohort.as_ref().is_some_and(|cohort| cohort.quarantine.is_some());
    match record {
        Record::Ops { ops, .. } => ops.iter().any(|op| begins(op)),
        Record::Install { table, .. } => table.as_ref().is_some_and(|table| !table.entries.is_empty() || silent(table)),
        _ => false,
    }
}

impl Node {
    /// At the end of a step: logs the uptime where claims begin or other records are written anyway.
    pub(crate) fn note_ran(&mut self) {
        let records = self.outbox.unwritten();
        if records.is_empty() || self.starting {
            return;
        }
        let begins = records.iter().any(begins);
        let aside = self.timers.is_set(Key::LeaseAges)
            && self.now.mono_us >= self.consensus.running.noted_us + RAN_ASIDE_MS * 1_000;
        if begins {
            self.timers.set_earliest(Key::LeaseAges, self.after_ms(RAN_MS_MIN));
        }
        if begins || aside {
            self.write_ran();
        }
    }

    fn write_ran(&mut self) {
        assert!(self.consensus.running.noted_us <= self.now.mono_us, "the uptime was noted in the future");
        self.outbox.persist(Record::Ran { us: self.consensus.running.ran_us(self.now) });
        self.consensus.running.noted_us = self.now.mono_us;
    }

    /// Logs the uptime if it was not logged for long while leases run.
    pub(crate) fn see_to_ages(&mut self) {
        let Some(due_us) = self.ran_due_us() else { return };
        if due_us > self.now.mono_us {
            return self.timers.set(Key::LeaseAges, due_us);
        }
        self.write_ran();
        if let Some(due_us) = self.ran_due_us() {
            self.timers.set(Key::LeaseAges, due_us);
        }
    }

    /// When to log the uptime next; none if no lease has run since the last time. A restart loses at most a fraction of what the
    /// nearest lease had left, and of the uptime since the start, so that a series of restarts loses no more than one.
    fn ran_due_us(&self) -> Option<u64> {
        let noted_us = self.consensus.running.noted_us;
        let end = |replica: &Partition| replica.consensus.first_end_after(noted_us, &self.config);
        let ends = self.partitions.values().filter_map(end);
        let left_us = ends.min()? - noted_us;
        assert!(left_us > 0, "a lease that has ended counts as running");
        let of_start_us = (self.now.mono_us - self.consensus.running.began_us) / RAN_OF_START;
        let of_lease_us = (left_us / RAN_OF_LEASE).max(RAN_MS_MIN * 1_000);
        Some(noted_us + of_lease_us.min(of_start_us.max(RAN_EARLY_MS * 1_000)))
    }

    /// Arms the timer at the start of the node, if leases may run.
    pub(crate) fn begin_ages(&mut self) {
        if self.ran_due_us().is_some() {
            self.timers.set(Key::LeaseAges, self.after_ms(RAN_EARLY_MS));
        }
    }

    /// Sets the timer for the first claim that may expire.
    pub(crate) fn arm_expiry(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        if consensus.established()
            && let Some((at_us, _)) = consensus.first_expiry()
        {
            let at_us = if mutant!(self.config, WallClockOnly) { self.after_ms(20) } else { at_us };
            self.timers.set(Key::Expiry(partition), at_us);
        }
    }

    /// Returns the record of a partition's ages in a snapshot, behind its table.
    pub(crate) fn save_ages(&self, partition: PartitionId) -> Option<Record> {
        let consensus = &self.partitions[&partition].consensus;
        consensus.has_clocks().then(|| self.record_of_ages(partition))
    }

    fn record_of_ages(&self, partition: PartitionId) -> Record {
        let running = &self.consensus.running;
        let ages = self.partitions[&partition].consensus.ages(running.clock_us(self.now), &self.config);
        Record::LeaseAges { partition, ran_us: running.ran_us(self.now), points: ages.points().to_vec() }
    }

    /// At a look at the leaders: asks those that have not exchanged lease ages with this replica, and asks again after a pause.
    pub(crate) fn exchange_ages(&mut self) {
        if mutant!(self.config, AgesForgotten) {
            return;
        }
        let mut asked = Vec::new();
        for (partition, replica) in self.partitions.iter() {
            let consensus = &replica.consensus;
            let leader = consensus.leader.filter(|leader| consensus.age_exchange.is_due(*leader, self.now.mono_us));
            if let Some(leader) = leader.filter(|_| consensus.has_clocks()) {
                asked.push((*partition, leader));
            }
        }
        if !asked.is_empty() {
            self.consensus.look.disturb();
        }
        let (now, resend_ms) = (self.now, self.config.resend_ms);
        for (partition, leader) in asked {
            let consensus = &mut self.partitions.get_mut(&partition).expect("just seen").consensus;
            consensus.age_exchange = consensus.age_exchange.asked(leader, now, resend_ms);
            self.send_ages(partition, leader.node, true);
        }
    }

    fn send_ages(&mut self, partition: PartitionId, node: NodeId, asks: bool) {
        assert!(node != self.me, "a replica learns nothing from itself");
        let ages = self.partitions[&partition].consensus.ages(self.now.mono_us, &self.config);
        self.outbox.send(node, Replication::LeaseAges { partition, asks, ages: ages.points().to_vec() });
    }

    /// Takes in another replica's lease ages.
    pub(crate) fn on_ages(&mut self, from: NodeId, partition: PartitionId, asks: bool, ages: Vec<(Viewstamp, u64)>) {
        let (now_us, advertised_ages) = (self.now.mono_us, LeaseAges::new(ages));
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let consensus = &mut replica.consensus;
        let older = consensus.take_ages(&advertised_ages, now_us, TOLD_AGE_MS_MIN * 1_000, &self.config);
        if !asks {
            consensus.age_exchange = consensus.age_exchange.answered(from);
        }
        let leads = consensus.leading().is_some();
        let own = consensus.ages(now_us, &self.config);
        if older {
            self.outbox.persist(self.record_of_ages(partition));
        }
        if leads {
            self.tell_ages(partition, from, (asks, older), own.tells(&advertised_ages));
        }
    }

    /// The leader answers, and sends all other followers what is news to itself. To them that is no answer: they may know more.
    fn tell_ages(&mut self, partition: PartitionId, from: NodeId, (asks, older): (bool, bool), knows_more: bool) {
        assert!(self.led.contains(&partition), "a replica that does not lead tells its followers the ages of leases");
        if older {
            self.arm_expiry(partition);
        }
        for node in self.partitions[&partition].cohort().followers() {
            if node == self.me {
                continue;
            }
            if node == from && asks && !knows_more {
                // An empty answer: the question has arrived, and the leader knows nothing more.
                self.outbox.send(node, Replication::LeaseAges { partition, asks: false, ages: Vec::new() });
            } else if (node == from && asks) || (node != from && older) {
                self.send_ages(partition, node, node != from);
            }
        }
    }
}
