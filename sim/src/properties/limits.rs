//! Limits on claims hold in the whole cluster, whichever node leads. In any stretch of time no more tasks of a queue are granted than
//! its rate and the burst allow; grants that were taken back by then reached no worker and do not count. At no instant do more
//! workers hold tasks of a queue than its concurrency allows, as long as one kind of clock is good. A task that has ended does not
//! count: its holder may learn of that later.
//!
//! A leader that has not heard of a limit does not enforce it: its grants do not count. Where a limit was changed, the greatest limit
//! so far counts.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::membership::{Rate, Roster};
use norn_wire::{PartitionId, QueueName, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How much faster than true time clocks within their bounds may be, in parts per million.
const DRIFT_PPM: u128 = 2_000;

/// Grants that count against a queue's rate, and when they were made. Covers the stretch of time that ends now and exceeds the rate
/// by most.
#[derive(Debug, Default)]
struct Meter {
    grants: VecDeque<(u64, (TaskId, Token))>,
}

impl Meter {
    fn count(&mut self, rate: Rate, claim: (TaskId, Token), now_us: u64) -> Result<(), String> {
        self.grants.push_back((now_us, claim));
        let whole = u128::from(rate.per_ms) * 1_000 * 1_000_000;
        let (mut parts, mut before_us, mut first) = (0_u128, 0, 0);
        for (place, (at_us, _)) in self.grants.iter().enumerate() {
            let allowed = u128::from(at_us - before_us) * u128::from(rate.claims) * (1_000_000 + DRIFT_PPM);
            parts = parts.saturating_sub(allowed);
            if parts == 0 {
                first = place;
            }
            (parts, before_us) = (parts + whole, *at_us);
        }
        // Grants that time has fully allowed for no longer matter.
        self.grants.drain(..first);
        // The burst: one permit, and what two seconds allow.
        let burst = whole + u128::from(rate.claims) * 2_000_000 * 1_000_000;
        match parts <= burst {
            true => Ok(()),
            false => Err(format!("there are more grants than {rate:?} allows, by {parts} parts of {whole}")),
        }
    }

    /// Drops a grant that was taken back.
    fn forget(&mut self, claim: (TaskId, Token)) {
        self.grants.retain(|(_, other)| *other != claim);
    }
}

#[derive(Debug, Default)]
pub struct Limits {
    /// Monotonic clocks have the right rate.
    even: bool,
    rosters: BTreeMap<usize, Arc<Roster>>,
    /// Highest rate of each queue that was ever set.
    rates: BTreeMap<QueueName, Rate>,
    meters: BTreeMap<QueueName, Meter>,
    /// Highest concurrency of each queue that was ever set.
    most: BTreeMap<QueueName, usize>,
    /// Claims that were granted under a limit of concurrency.
    limited: BTreeSet<(TaskId, Token)>,
    /// Claims that workers hold, and until when.
    holders: BTreeMap<QueueName, BTreeMap<(TaskId, Token), u64>>,
    /// Tasks that some node knows to have ended.
    ended: BTreeSet<TaskId>,
    clockless: bool,
    /// Highest operation of each epoch that was seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

impl Limits {
    fn hear(&mut self, node: usize, record: &Record) {
        let Record::Roster(roster) = record else { return };
        self.rosters.insert(node, roster.clone());
        for (queue, policy) in &roster.policies {
            let faster = |rate: &Rate, than: &Rate| {
                u128::from(rate.claims) * u128::from(than.per_ms) > u128::from(than.claims) * u128::from(rate.per_ms)
            };
            if let Some(claims) = policy.concurrency {
                let most = self.most.entry(queue.clone()).or_default();
                *most = (claims as usize).max(*most);
            }
            if let Some(rate) = policy.rate
                && self.rates.get(queue).is_none_or(|before| faster(&rate, before))
            {
                self.rates.insert(queue.clone(), rate);
            }
        }
    }

    /// Counts a grant that a node is the first to write.
    fn granted(
        &mut self,
        history: &History,
        node: usize,
        (id, token): (TaskId, Token),
        now_us: u64,
    ) -> Result<(), String> {
        let Some(spec) = history.specs.get(&id) else { return Ok(()) };
        let policy = self.rosters.get(&node).and_then(|roster| roster.policies.get(&spec.queue));
        if policy.is_some_and(|policy| policy.concurrency.is_some()) {
            self.limited.insert((id, token));
        }
        if !self.even || policy.is_none_or(|policy| policy.rate.is_none()) {
            return Ok(());
        }
        let meter = self.meters.entry(spec.queue.clone()).or_default();
        meter
            .count(self.rates[&spec.queue], (id, token), now_us)
            .map_err(|why| format!("queue {}, task {id}: {why}", spec.queue))
    }

    fn taken_back(&mut self, history: &History, claim: (TaskId, Token)) {
        let queue = history.specs.get(&claim.0).map(|spec| &spec.queue);
        if let Some(meter) = queue.and_then(|queue| self.meters.get_mut(queue)) {
            meter.forget(claim);
        }
    }

    /// Counts a worker that holds a task until `until_us`.
    fn holds(&mut self, queue: &QueueName, claim: (TaskId, Token), until_us: u64, now_us: u64) -> Result<(), String> {
        let holders = self.holders.entry(queue.clone()).or_default();
        holders.insert(claim, until_us);
        holders.retain(|(id, _), until_us| *until_us > now_us && !self.ended.contains(id));
        let most = self.most.get(queue).copied().unwrap_or(usize::MAX);
        match holders.len() <= most || self.clockless {
            true => Ok(()),
            false => Err(format!("{} tasks of queue {queue} are held at once, of {most}: {holders:?}", holders.len())),
        }
    }
}

impl Property for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => (self.even, self.clockless) = (terms.even, terms.clockless),
            Happening::Holds { id, token, until_us, .. } if self.limited.contains(&(*id, *token)) => {
                let Some(spec) = history.specs.get(id) else { return Ok(()) };
                self.holds(&spec.queue, (*id, *token), *until_us, moment.time_us)?;
            }
            Happening::Stops { id, token, .. } => {
                let queue = history.specs.get(id).map(|spec| &spec.queue);
                if let Some(holders) = queue.and_then(|queue| self.holders.get_mut(queue)) {
                    holders.remove(&(*id, *token));
                }
            }
            Happening::Replayed { node, records } => {
                self.rosters.remove(node);
                records.iter().for_each(|record| self.hear(*node, record));
            }
            Happening::Appended { node, records, .. } => {
                for record in *records {
                    self.hear(*node, record);
                    if let Record::Facts { items, .. } = record {
                        self.ended.extend(items.iter().filter(|(_, task)| task.ended().is_some()).map(|(id, _)| *id));
                    }
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (number, op) in (after.length + 1..).zip(ops) {
                        let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                        if number <= *seen {
                            continue;
                        }
                        *seen = number;
                        match &**op {
                            Op::Grant { items, .. } => {
                                for (id, number) in items {
                                    let token = Token { epoch: after.epoch, number: *number };
                                    self.granted(history, *node, (*id, token), moment.time_us)?;
                                }
                            }
                            Op::Void { items } => items.iter().for_each(|item| self.taken_back(history, *item)),
                            _ => {}
                        }
                    }
                }
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
    use norn_engine::Ticket;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::ClaimId;
    use norn_wire::membership::QueuePolicy;

    fn append(bench: &mut Bench<Limits>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    fn grant(bench: &mut Bench<Limits>, length: u64) -> Result<(), String> {
        let items = vec![(id(1), length)];
        let op = Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 1_000,
            granted_ms: 1,
            items,
            session: None,
            lapsed: false,
        };
        let after = Viewstamp { epoch: 3, length };
        append(bench, Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] })
    }

    #[test]
    fn a_claim_too_many_is_refused() {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { even: true, ..Terms::default() })).unwrap();
        bench.enqueued(1);
        for length in 0..5 {
            grant(&mut bench, length).unwrap();
        }
        let policy = QueuePolicy { rate: Some(Rate { claims: 1, per_ms: 1_000 }), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        for length in 5..8 {
            grant(&mut bench, length).unwrap();
        }
        assert!(grant(&mut bench, 8).is_err());
    }

    #[test]
    fn a_holder_too_many_is_refused() {
        let mut bench = Bench::new();
        let policy = QueuePolicy { concurrency: Some(1), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        for number in [1, 2] {
            bench.enqueued(number);
            let items = vec![(id(number), u64::from(number))];
            let op = Op::Grant {
                claim: ClaimId(1),
                worker: "w".into(),
                lease_ms: 1_000,
                granted_ms: 1,
                items,
                session: None,
                lapsed: false,
            };
            let after = Viewstamp { epoch: 3, length: u64::from(number) };
            append(&mut bench, Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] }).unwrap();
        }
        let (until_us, tokens) = (9_000_000, [token(3, 1), token(3, 2)]);
        let holds = |number: usize| Happening::Holds {
            client: number,
            id: id(number as u32 + 1),
            token: tokens[number],
            until_us,
        };
        bench.see(holds(0)).unwrap();
        assert!(bench.see(holds(1)).is_err());
        bench.see(Happening::Stops { client: 0, id: id(1), token: tokens[0] }).unwrap();
        assert!(bench.see(holds(1)).is_ok());
    }

    #[test]
    fn a_grant_that_was_taken_back_counts_no_more_and_any_other_does() {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { even: true, ..Terms::default() })).unwrap();
        bench.enqueued(1);
        let policy = QueuePolicy { rate: Some(Rate { claims: 1, per_ms: 1_000 }), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        (0..3).for_each(|length| grant(&mut bench, length).unwrap());
        let void = |number| Op::Void { items: vec![(id(1), token(3, number))] };
        let take_back = |bench: &mut Bench<Limits>, length, number| {
            let after = Viewstamp { epoch: 3, length };
            let ops = vec![Arc::new(void(number))];
            append(bench, Record::Ops { partition: PartitionId(0), after, ops }).unwrap();
        };
        take_back(&mut bench, 3, 1);
        grant(&mut bench, 4).unwrap();
        take_back(&mut bench, 5, 1);
        assert!(grant(&mut bench, 6).is_err(), "it was taken back once");
    }

    #[test]
    fn what_time_allows_may_be_granted() {
        let claim = (id(1), token(3, 1));
        let (mut meter, rate) = (Meter::default(), Rate { claims: 2, per_ms: 1_000 });
        assert!((0..5).all(|_| meter.count(rate, claim, 0).is_ok()));
        assert!(meter.count(rate, claim, 500_000).is_ok() && meter.count(rate, claim, 600_000).is_err());
        let (mut meter, slow) = (Meter::default(), Rate { claims: 1, per_ms: 4_000 });
        let mut count = |now_us: u64| meter.count(slow, claim, now_us).is_ok();
        assert!(count(0) && count(2_000_000) && !count(3_900_000), "one, and half of one, and half of one");
        let mut meter = Meter::default();
        assert!((0..1_000).all(|turn| meter.count(rate, claim, turn * 500_000).is_ok()));
        assert!(meter.grants.len() < 10);
    }
}
