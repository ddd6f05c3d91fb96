//! A node knows how old the leases are that it holds: never older than they are, as long as monotonic clocks have the right rate,
//! so that no claim runs out early by them; and, whatever restarts there were, not much younger than what it ran itself since it
//! wrote them down. (ARCHITECTURE.md, Claims)

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_client::wire::PartitionId;
use norn_node::protocol::consistent::Viewstamp;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use norn_node::protocol::{ReplicaView, Ticket};
use std::collections::BTreeMap;

type Place = (PartitionId, Viewstamp);

/// Clocks are read in milliseconds, and what a node did is seen a little later.
const SEEN_US: u64 = 20_000;
/// Twice the bound of the rates of clocks, in a thousand.
const RATE_PERMILLE: u64 = 2;
/// What restarts may take altogether, or a tenth of the lease.
const LOST_US: u64 = 1_000_000;
/// What each of them may take beyond that: a node writes down what it ran once it has run for a while, and its disk is slow at times.
const LOST_EACH_US: u64 = 300_000;
/// A node of which nothing is seen for so long may be paused. What it would have to know of that time is not asked.
const PAUSE_US: u64 = 400_000;
/// Leases that began before are not remembered.
const REMEMBERED_US: u64 = 120_000_000;
/// As soon as there are so many.
const REMEMBERED: usize = 4_096;

/// What a node has on its disk of a lease.
#[derive(Debug, Clone, Copy)]
struct Noted {
    /// How long it had run by then, in true time.
    ran_us: u64,
    /// And how often it had started.
    starts: u64,
}

#[derive(Debug, Default)]
struct Life {
    starts: u64,
    /// Before this start.
    ran_us: u64,
    began_us: u64,
    /// When it last did anything.
    seen_us: u64,
    written: Vec<(Ticket, Place, Noted)>,
    noted: BTreeMap<Place, Noted>,
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
}

/// See the module.
#[derive(Debug, Default)]
pub struct Ages {
    even: bool,
    sound: bool,
    /// When leases began, in true time, and their length.
    began: BTreeMap<Place, (u64, u64)>,
    lives: BTreeMap<usize, Life>,
}

/// The lease that begins with an operation.
fn lease_ms(op: &Op) -> Option<u64> {
    match op {
        Op::Grant { lease_ms, .. } => Some(*lease_ms),
        Op::Renew { items } => items.iter().map(|(_, _, lease_ms, _)| *lease_ms).max(),
        _ => None,
    }
}

impl Ages {
    fn appended(&mut self, node: usize, ticket: Ticket, records: &[Record], now_us: u64) {
        let dated = records.iter().any(|record| matches!(record, Record::Ran { .. }));
        let life = self.lives.entry(node).or_default();
        let noted = Noted { ran_us: life.ran_us(), starts: life.starts };
        for record in records {
            match record {
                Record::Ops { partition, after, ops } => {
                    for (place, op) in (1..).zip(ops) {
                        let Some(lease_ms) = lease_ms(op) else { continue };
                        let at = (*partition, Viewstamp { length: after.length + place, ..*after });
                        self.began.entry(at).or_insert((now_us, lease_ms));
                        if dated {
                            life.written.push((ticket, at, noted));
                        }
                    }
                }
                // What a leader gave back, and had not committed, is held again as the next one installs its table, and counts anew.
                Record::Left { partition, .. } | Record::Install { partition, table: Some(_), .. } => {
                    life.noted.retain(|(of, _), _| of != partition);
                    life.written.retain(|(_, (of, _), _)| of != partition);
                }
                _ => {}
            }
        }
        if self.began.len() > REMEMBERED {
            self.began.retain(|_, (at_us, _)| *at_us + REMEMBERED_US > now_us);
            let began = &self.began;
            self.lives.values_mut().for_each(|life| life.noted.retain(|at, _| began.contains_key(at)));
        }
    }

    fn check(&self, node: usize, view: &ReplicaView, now_us: u64) -> Result<(), String> {
        for (at, age_ms) in &view.ages {
            // What is told of a viewstamp is said of all of its epoch up to it.
            let (first, place) = ((view.partition, Viewstamp { length: 0, ..*at }), (view.partition, *at));
            let latest = self.began.range(first..=place).next_back();
            let Some((_, (began_us, lease_ms))) = latest else { continue };
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
            let lost_us = if starts > 0 { LOST_US.max(lease_ms * 100) + starts * LOST_EACH_US } else { SEEN_US };
            let ran_us = (life.ran_us() - noted.ran_us).min(lease_ms * 1_000);
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

impl Property for Ages {
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
                life.ran_us = life.ran_us();
                (life.began_us, life.seen_us) = (now_us, now_us);
                life.written.clear();
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
    use norn_client::wire::ClaimId;
    use std::sync::Arc;

    const AT: Viewstamp = Viewstamp { epoch: 1, length: 1 };

    /// A node has written down a lease of ten seconds.
    fn granted() -> Bench<Ages> {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { even: true, sound: true, ..Terms::default() })).unwrap();
        bench.see(Happening::Replayed { node: 0, records: &[] }).unwrap();
        let grant = Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 10_000,
            granted_ms: 0,
            items: vec![(id(1), 1)],
            session: None,
            lapsed: false,
        };
        let after = Viewstamp { epoch: 1, length: 0 };
        let ops = Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(grant)] };
        let records = [ops, Record::Ran { us: 5 }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        bench.see(Happening::Synced { node: 0, ticket: Ticket(1) }).unwrap();
        bench
    }

    fn tells(bench: &mut Bench<Ages>, age_ms: u64) -> Result<(), String> {
        tells_of(bench, AT, age_ms)
    }

    fn tells_of(bench: &mut Bench<Ages>, at: Viewstamp, age_ms: u64) -> Result<(), String> {
        let view = ReplicaView { ages: vec![(at, age_ms)], ..ReplicaView::default() };
        bench.see(Happening::Replica { node: 0, view: &view })
    }

    /// It runs so long, and is seen.
    fn runs(bench: &mut Bench<Ages>, ms: u64) {
        for _ in 0..ms / 100 {
            bench.pass(99_000);
            bench.see(Happening::Synced { node: 0, ticket: Ticket(1) }).unwrap();
        }
    }

    /// It does not run for three seconds.
    fn restarts(bench: &mut Bench<Ages>) {
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

    #[test]
    fn what_was_not_on_disk_may_be_forgotten() {
        let mut bench = granted();
        bench.property.lives.get_mut(&0).unwrap().noted.clear();
        runs(&mut bench, 5_000);
        restarts(&mut bench);
        tells(&mut bench, 0).unwrap();
    }
}
