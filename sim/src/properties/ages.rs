//! A node knows the ages of the leases that it has in its tables. No age is greater than the true one, as long as monotonic clocks
//! have the right rate, so that no claim expires early by it. And, whatever restarts there were, no age is much less than the time
//! that the node itself has run since it wrote the lease down. (ARCHITECTURE.md, Claims)

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::{ReplicaView, Ticket};
use norn_model::claim_table::entry::ClaimState;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::record::Record;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

type Place = (PartitionId, Viewstamp);

/// Slack: clocks are read in milliseconds, and what a node did is seen a little later.
const SEEN_US: u64 = 20_000;
/// Twice the bound on the rates of clocks, in thousandths.
const RATE_PERMILLE: u64 = 2;
/// What all restarts together may take from an age, or a tenth of the lease if that is more.
const LOST_US: u64 = 1_000_000;
/// What each restart may take beyond that: early in a start a node writes down every 50 ms how long it has run. Added to this is the
/// part of that which its disk had not synced when it crashed, from the first such record on, and a pause after which it had no time
/// to write any.
const LOST_EACH_US: u64 = 50_000;
/// A node of which nothing is seen for this long may be paused. That time does not count as run.
const PAUSE_US: u64 = 400_000;
/// How long leases are remembered once there are more than [`REMEMBERED`].
const REMEMBERED_US: u64 = 120_000_000;
/// Number of leases up to which all are remembered.
const REMEMBERED: usize = 4_096;

/// How long a node had run when it wrote a lease down.
#[derive(Debug, Clone, Copy)]
struct Noted {
    /// Run time by then, in true time.
    ran_us: u64,
    /// Number of starts by then.
    starts: u64,
    /// What its restarts by then may have taken beyond the bound for all.
    lost_us: u64,
}

#[derive(Debug, Default)]
struct Life {
    starts: u64,
    /// Run time before this start.
    ran_us: u64,
    began_us: u64,
    /// When it last did anything.
    seen_us: u64,
    written: Vec<(Ticket, Place, Noted)>,
    /// Unsynced records of the run time, and when each was written.
    unsynced: VecDeque<(Ticket, u64)>,
    /// What restarts may have taken beyond the bound for all of them.
    lost_us: u64,
    noted: BTreeMap<Place, Noted>,
    /// Tasks held without a break since they were granted or last renewed, and the operation that did that.
    held: BTreeMap<(PartitionId, TaskId), Viewstamp>,
}

impl Life {
    fn ran_us(&self) -> u64 {
        self.ran_us + self.seen_us.saturating_sub(self.began_us)
    }

    fn see(&mut self, now_us: u64) {
        let passed_us = now_us - self.seen_us;
        if passed_us > PAUSE_US {
            self.began_us += passed_us;
        }
        self.seen_us = now_us;
    }

    fn crash(&mut self, now_us: u64) {
        let unsynced_us = self.unsynced.front().map_or(0, |(_, written_us)| now_us - written_us);
        self.lost_us += LOST_EACH_US + unsynced_us;
        self.ran_us = self.ran_us();
        (self.began_us, self.seen_us) = (now_us, now_us);
        self.written.clear();
        self.unsynced.clear();
    }

    /// Notes that tasks are held from an operation on.
    fn hold(&mut self, (partition, at): Place, tasks: impl Iterator<Item = TaskId>) {
        let before: Vec<_> = tasks.filter_map(|id| self.held.insert((partition, id), at)).collect();
        self.forget(partition, &before);
    }

    /// Notes that claims end, as far as this node has it. If a later table takes that back, they count anew.
    fn let_go(&mut self, partition: PartitionId, tasks: impl Iterator<Item = TaskId>) {
        let before: Vec<_> = tasks.filter_map(|id| self.held.remove(&(partition, id))).collect();
        self.forget(partition, &before);
    }

    /// Takes in a whole table: claims that it has as before go on.
    fn install(&mut self, partition: PartitionId, table: &ClaimTable) {
        let prepared = table.ledger.prepared().values().map(|prepared| &prepared.decided);
        let ending = table.ledger.decided().values().chain(prepared);
        let ending: BTreeSet<TaskId> = ending.flat_map(|decided| decided.freed.iter().map(|(id, ..)| *id)).collect();
        let goes_on = |id: &TaskId, at: Viewstamp| {
            let entry = table.entries.get(id).filter(|entry| entry.state == ClaimState::Held && entry.renewed == at);
            entry.is_some() && !ending.contains(id)
        };
        let here = self.held.range((partition, TaskId::MIN)..=(partition, TaskId::MAX));
        let gone: Vec<TaskId> = here.filter(|((_, id), at)| !goes_on(id, **at)).map(|((_, id), _)| *id).collect();
        self.let_go(partition, gone.into_iter());
    }

    /// Drops what was noted at places of which no task is held without a break any more: their age is not checked.
    fn forget(&mut self, partition: PartitionId, places: &[Viewstamp]) {
        for at in places {
            let mut here = self.held.range((partition, TaskId::MIN)..=(partition, TaskId::MAX));
            if !here.any(|(_, other)| other == at) {
                self.noted.remove(&(partition, *at));
                self.written.retain(|(_, place, _)| *place != (partition, *at));
            }
        }
    }

    /// Drops what was noted of a partition.
    fn leave(&mut self, partition: PartitionId) {
        self.held.retain(|(of, _), _| *of != partition);
        self.noted.retain(|(of, _), _| *of != partition);
        self.written.retain(|(_, (of, _), _)| *of != partition);
    }

    fn apply(&mut self, at: Place, op: &Op) {
        let partition = at.0;
        match op {
            Op::Grant { items, .. } => self.hold(at, items.iter().map(|(id, _)| *id)),
            Op::Renew { items } => self.hold(at, items.iter().map(|(id, ..)| *id)),
            Op::Release { id, .. } | Op::Kill { id, .. } | Op::Seal { id, .. } => {
                self.let_go(partition, std::iter::once(*id));
            }
            Op::Void { items } => self.let_go(partition, items.iter().map(|(id, _)| *id)),
            Op::Drop { items } => self.let_go(partition, items.iter().map(|item| item.id)),
            Op::Prepare { prepared, .. } => {
                self.let_go(partition, prepared.decided.freed.iter().map(|(id, ..)| *id));
            }
            Op::Decide { decided, .. } | Op::DecideAcross { decided, .. } => {
                self.let_go(partition, decided.freed.iter().map(|(id, ..)| *id))
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
pub struct LeaseAges {
    even: bool,
    sound: bool,
    /// When leases began, in true time, and the lengths of the shortest and the longest of them.
    began: BTreeMap<Place, (u64, RangeInclusive<u64>)>,
    lives: BTreeMap<usize, Life>,
}

/// The shortest and the longest lease that begin with an operation.
fn leases_ms(op: &Op) -> Option<RangeInclusive<u64>> {
    match op {
        Op::Grant { lease_ms, .. } => Some(*lease_ms..=*lease_ms),
        Op::Renew { items } => {
            let leases = || items.iter().map(|(_, _, lease_ms, _)| *lease_ms);
            Some(leases().min()?..=leases().max()?)
        }
        _ => None,
    }
}

impl LeaseAges {
    fn appended(&mut self, node: usize, ticket: Ticket, records: &[Record], now_us: u64) {
        let dated = records.iter().any(|record| matches!(record, Record::Ran { .. }));
        let life = self.lives.entry(node).or_default();
        let noted = Noted { ran_us: life.ran_us(), starts: life.starts, lost_us: life.lost_us };
        if dated {
            life.unsynced.push_back((ticket, now_us));
        }
        for record in records {
            match record {
                Record::Ops { partition, after, ops } => {
                    for (place, op) in (1..).zip(ops) {
                        let at = (*partition, Viewstamp { length: after.length + place, ..*after });
                        life.apply(at, op);
                        let Some(leases_ms) = leases_ms(op) else { continue };
                        self.began.entry(at).or_insert((now_us, leases_ms));
                        if dated {
                            life.written.push((ticket, at, noted));
                        }
                    }
                }
                Record::Left { partition, .. } => life.leave(*partition),
                Record::Install { partition, table: Some(table), .. } => life.install(*partition, table),
                _ => {}
            }
        }
        if self.began.len() > REMEMBERED {
            self.began.retain(|_, (at_us, _)| *at_us + REMEMBERED_US > now_us);
            let began = &self.began;
            for life in self.lives.values_mut() {
                life.noted.retain(|at, _| began.contains_key(at));
                life.held.retain(|(partition, _), at| began.contains_key(&(*partition, *at)));
            }
        }
    }

    fn check(&self, node: usize, view: &ReplicaView, now_us: u64) -> Result<(), String> {
        for (at, age_ms) in &view.ages {
            // The age of a viewstamp applies to all of its epoch up to it.
            let (first, place) = ((view.partition, Viewstamp { length: 0, ..*at }), (view.partition, *at));
            let latest = self.began.range(first..=place).next_back();
            let Some((_, (began_us, leases_ms))) = latest else { continue };
            let (true_us, told_us) = (now_us - began_us, age_ms * 1_000);
            if self.even && told_us > true_us + true_us * RATE_PERMILLE / 1_000 + SEEN_US {
                return Err(format!(
                    "node {node} takes the leases of {:?} {at:?} for {told_us} us old, and they are {true_us}",
                    view.partition
                ));
            }
            let life = self.lives.get(&node).filter(|_| self.even && self.sound);
            let Some((life, noted)) = life.and_then(|life| Some((life, life.noted.get(&place)?))) else { continue };
            let starts = life.starts - noted.starts;
            let each_us = life.lost_us - noted.lost_us;
            let lost_us = if starts > 0 { LOST_US.max(leases_ms.end() * 100) + each_us } else { SEEN_US };
            // Of an expired lease no more age is reported than its length.
            let ran_us = (life.ran_us() - noted.ran_us).min(leases_ms.start() * 1_000);
            if told_us + lost_us + ran_us * RATE_PERMILLE / 1_000 + SEEN_US < ran_us {
                return Err(format!(
                    "node {node} takes the leases of {:?} {at:?} for {told_us} us old, and has run for {ran_us} since it \
                     wrote them down, with {starts} restarts",
                    view.partition
                ));
            }
        }
        Ok(())
    }
}

impl Property for LeaseAges {
    fn name(&self) -> &'static str {
        "ages"
    }

    fn see(&mut self, _history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        match happening {
            Happening::Founded(terms) => (self.even, self.sound) = (terms.even, terms.sound),
            Happening::Replayed { node, .. } => {
                let life = self.lives.entry(*node).or_default();
                life.starts += 1;
                (life.began_us, life.seen_us) = (now_us, now_us);
            }
            Happening::Crashed { node } => {
                let life = self.lives.entry(*node).or_default();
                life.crash(now_us);
            }
            // A longer pause does not count as time in which the node ran.
            Happening::Paused { node, length_us } => {
                self.lives.entry(*node).or_default().lost_us += (*length_us).min(PAUSE_US);
            }
            Happening::Gone { node } => {
                self.lives.remove(node);
            }
            Happening::Appended { node, ticket, records } => {
                self.lives.entry(*node).or_default().see(now_us);
                self.appended(*node, *ticket, records, now_us);
            }
            Happening::Synced { node, ticket } => {
                let life = self.lives.entry(*node).or_default();
                life.see(now_us);
                life.unsynced.retain(|(written, _)| written > ticket);
                let durable = life.written.partition_point(|(written, ..)| written <= ticket);
                life.noted.extend(life.written.drain(..durable).map(|(_, place, noted)| (place, noted)));
            }
            Happening::Observed { node, .. } => self.lives.entry(*node).or_default().see(now_us),
            Happening::Replica { node, view } => {
                self.lives.entry(*node).or_default().see(now_us);
                self.check(*node, view, now_us)?;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_wire::{ClaimId, Token};
    use std::sync::Arc;

    const AT: Viewstamp = Viewstamp { epoch: 1, length: 1 };

    fn grant(id: TaskId) -> Op {
        let (claim, items) = (ClaimId(1), vec![(id, 1)]);
        let worker = "w".into();
        Op::Grant { claim, worker, lease_ms: 10_000, granted_ms: 0, items, session: None, lapsed: false }
    }

    /// A node that has written down a lease of ten seconds.
    fn granted() -> Bench<LeaseAges> {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { even: true, sound: true, ..Terms::default() })).unwrap();
        bench.see(Happening::Replayed { node: 0, records: &[] }).unwrap();
        let after = Viewstamp { epoch: 1, length: 0 };
        let ops = Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(grant(id(1)))] };
        let records = [ops, Record::Ran { us: 5 }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        bench.see(Happening::Synced { node: 0, ticket: Ticket(1) }).unwrap();
        bench
    }

    fn tells(bench: &mut Bench<LeaseAges>, age_ms: u64) -> Result<(), String> {
        tells_of(bench, AT, age_ms)
    }

    fn tells_of(bench: &mut Bench<LeaseAges>, at: Viewstamp, age_ms: u64) -> Result<(), String> {
        let view = ReplicaView { ages: vec![(at, age_ms)], ..ReplicaView::default() };
        bench.see(Happening::Replica { node: 0, view: &view })
    }

    /// Runs the node for this long, and sees it.
    fn runs(bench: &mut Bench<LeaseAges>, ms: u64) {
        for _ in 0..ms / 100 {
            bench.pass(99_000);
            bench.see(Happening::Synced { node: 0, ticket: Ticket(1) }).unwrap();
        }
    }

    /// Crashes the node, and starts it again after three seconds.
    fn restarts(bench: &mut Bench<LeaseAges>) {
        bench.see(Happening::Crashed { node: 0 }).unwrap();
        bench.pass(3_000_000);
        bench.see(Happening::Replayed { node: 0, records: &[] }).unwrap();
    }

    #[test]
    fn an_age_that_is_too_great_is_refused_whatever_else_is_so() {
        let mut bench = granted();
        runs(&mut bench, 5_000);
        restarts(&mut bench);
        tells(&mut bench, 7_900).unwrap();
        assert!(tells(&mut bench, 8_100).unwrap_err().contains("and they are"));
    }

    #[test]
    fn an_age_is_one_of_all_before_it_in_its_epoch() {
        let mut bench = granted();
        runs(&mut bench, 5_000);
        tells_of(&mut bench, Viewstamp { epoch: 2, length: 1 }, 6_000).unwrap();
        assert!(tells_of(&mut bench, Viewstamp { length: 9, ..AT }, 6_000).unwrap_err().contains("and they are"));
        tells_of(&mut bench, Viewstamp { length: 9, ..AT }, 0).unwrap();
    }

    #[test]
    fn a_restart_that_forgets_is_refused_and_a_pause_is_nobodys_fault() {
        let mut bench = granted();
        runs(&mut bench, 5_000);
        restarts(&mut bench);
        tells(&mut bench, 4_000).unwrap();
        assert!(tells(&mut bench, 3_500).unwrap_err().contains("1 restarts"));
        let mut paused = granted();
        paused.pass(5_000_000);
        paused.see(Happening::Crashed { node: 0 }).unwrap();
        paused.see(Happening::Replayed { node: 0, records: &[] }).unwrap();
        tells(&mut paused, 0).unwrap();
    }

    /// Goal: each restart may take fifty milliseconds, and what the disk had not synced by then.
    #[test]
    fn many_restarts_take_little_each() {
        let restart_all = |unsynced_ms: u64| {
            let mut bench = granted();
            runs(&mut bench, 5_000);
            for _ in 0..20 {
                let records = [Record::Ran { us: 0 }];
                bench.see(Happening::Appended { node: 0, ticket: Ticket(2), records: &records }).unwrap();
                bench.pass(unsynced_ms * 1_000);
                restarts(&mut bench);
            }
            bench
        };
        let mut bench = restart_all(0);
        tells(&mut bench, 3_000).unwrap();
        assert!(tells(&mut bench, 2_500).unwrap_err().contains("20 restarts"));
        tells(&mut restart_all(50), 2_000).unwrap();
    }

    /// Installs a table of a later epoch, in which the `held` tasks are as they were granted.
    fn installs(bench: &mut Bench<LeaseAges>, epoch: u64, held: &[TaskId]) {
        let mut table = ClaimTable::default();
        for id in held {
            table.apply(&grant(*id), AT).unwrap();
        }
        let viewstamp = Viewstamp { epoch, length: 0 };
        let records = [Record::Install { partition: PartitionId(0), viewstamp, table: Some(Arc::new(table)) }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(epoch), records: &records }).unwrap();
    }

    #[test]
    fn a_table_that_makes_leases_young_is_refused_unless_they_were_not_held_meanwhile() {
        let mut bench = granted();
        runs(&mut bench, 5_000);
        installs(&mut bench, 2, &[id(1)]);
        tells(&mut bench, 4_990).unwrap();
        assert!(tells(&mut bench, 0).unwrap_err().contains("0 restarts"));
        installs(&mut bench, 3, &[]);
        installs(&mut bench, 4, &[id(1)]);
        tells(&mut bench, 0).unwrap();
    }

    #[test]
    fn a_claim_that_a_later_table_takes_back_from_its_end_counts_anew() {
        let mut bench = granted();
        runs(&mut bench, 5_000);
        let token = Token { epoch: 1, number: 1 };
        let release = Op::Release { id: id(1), token, not_before_ms: 0, at_ms: 0, failed: false, end: None };
        let records = [Record::Ops { partition: PartitionId(0), after: AT, ops: vec![Arc::new(release)] }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(2), records: &records }).unwrap();
        tells(&mut bench, 0).unwrap();
        installs(&mut bench, 2, &[id(1)]);
        tells(&mut bench, 0).unwrap();
    }

    #[test]
    fn what_was_not_on_disk_may_be_forgotten() {
        let mut bench = granted();
        bench.property.lives.get_mut(&0).unwrap().noted.clear();
        runs(&mut bench, 5_000);
        restarts(&mut bench);
        tells(&mut bench, 0).unwrap();
    }
}
