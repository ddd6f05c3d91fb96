//! Limits on claims hold, in the whole cluster and whoever leads: in any stretch of time no more of a queue are granted than its
//! rate allows, and the burst.
//!
//! A leader that has not heard of a limit keeps none: what such ones grant does not count. Where a limit was changed the greatest
//! counts that it ever was.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_client::wire::membership::{QueuePolicy, Rate, Roster};
use norn_client::wire::{PartitionId, QueueName, TaskId};
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clocks within their bounds are that much faster, in a million, than true time.
const DRIFT_PPM: u128 = 2_000;

/// Grants of a queue beyond what its rate allows, in parts: the most of any stretch of time that ends now.
#[derive(Debug, Default)]
struct Meter {
    parts: u128,
    at_us: u64,
}

impl Meter {
    fn count(&mut self, rate: Rate, now_us: u64) -> Result<(), String> {
        let whole = u128::from(rate.per_ms) * 1_000 * 1_000_000;
        let allowed = u128::from(now_us - self.at_us) * u128::from(rate.claims) * (1_000_000 + DRIFT_PPM);
        self.parts = self.parts.saturating_sub(allowed) + whole;
        self.at_us = now_us;
        match self.parts <= rate.burst() * whole {
            true => Ok(()),
            false => Err(format!("there are more grants than {rate:?} allows, by {} parts of {whole}", self.parts)),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Limits {
    /// Monotonic clocks run as they should.
    even: bool,
    rosters: BTreeMap<usize, Arc<Roster>>,
    /// The highest that were ever set.
    rates: BTreeMap<QueueName, Rate>,
    meters: BTreeMap<QueueName, Meter>,
    /// Operations of each epoch that were seen.
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
            if let Some(rate) = policy.rate
                && self.rates.get(queue).is_none_or(|before| faster(&rate, before))
            {
                self.rates.insert(queue.clone(), rate);
            }
        }
    }

    /// A node writes, for the first time, that a task is granted.
    fn granted(&mut self, history: &History, node: usize, id: TaskId, now_us: u64) -> Result<(), String> {
        let Some(spec) = history.specs.get(&id) else { return Ok(()) };
        let policy = self.rosters.get(&node).and_then(|roster| roster.policies.get(&spec.queue));
        let Some(QueuePolicy { rate: Some(_), .. }) = policy else { return Ok(()) };
        let meter = self.meters.entry(spec.queue.clone()).or_default();
        meter.count(self.rates[&spec.queue], now_us).map_err(|why| format!("queue {}, task {id}: {why}", spec.queue))
    }
}

impl Property for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.even = terms.even,
            Happening::Replayed { node, records } => {
                self.rosters.remove(node);
                records.iter().for_each(|record| self.hear(*node, record));
            }
            Happening::Appended { node, records, .. } => {
                for record in *records {
                    self.hear(*node, record);
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (number, op) in (after.length + 1..).zip(ops) {
                        let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                        if number <= *seen {
                            continue;
                        }
                        *seen = number;
                        if let Op::Grant { items, .. } = &**op {
                            let mut ids = items.iter().map(|(id, _)| *id).filter(|_| self.even).collect::<Vec<_>>();
                            ids.drain(..).try_for_each(|id| self.granted(history, *node, id, moment.time_us))?;
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
    use norn_client::wire::ClaimId;
    use norn_node::protocol::Ticket;
    use norn_node::protocol::consistent::Viewstamp;

    fn append(bench: &mut Bench<Limits>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    fn grant(bench: &mut Bench<Limits>, length: u64) -> Result<(), String> {
        let items = vec![(id(1), length)];
        let op = Op::Grant { claim: ClaimId(1), worker: "w".into(), lease_ms: 1_000, granted_ms: 1, items };
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
    fn what_time_allows_may_be_granted() {
        let (mut meter, rate) = (Meter::default(), Rate { claims: 2, per_ms: 1_000 });
        assert!((0..5).all(|_| meter.count(rate, 0).is_ok()));
        assert!(meter.count(rate, 500_000).is_ok() && meter.count(rate, 600_000).is_err());
        let mut meter = Meter::default();
        assert!((0..1_000).all(|turn| meter.count(rate, turn * 500_000).is_ok()));
    }
}
