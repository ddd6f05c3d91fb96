//! Across partitions the claim order is approximate, with this bound: without faults, no task of a queue is granted while an earlier
//! one, by priority and age, has been the first of the queue in the whole cluster for [`KNOWN_US`]. So a task that is overtaken for
//! longer waits for tasks before it, and for nothing else.
//!
//! No smaller bound holds: a leader grants the best task that it has, and brokers ask it for the head that it last advertised. As
//! long as that head may be a better task, which another broker has just taken, the task that the leader grants instead may come
//! behind any number of others.
//!
//! Judged by grants to calls for one queue. A task counts as the first if all tasks before it have ended or are held, for as long. A
//! task that was ever given back, or that waits for a time, for dependencies or for its turn, may become ready at any moment. Queues
//! that are or were claimed in another order are not judged.

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment, acks_of, writes_of};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::membership::{Order, QueuePolicy};
use norn_wire::response::Guarantee;
use norn_wire::{ClaimId, PartitionId, QueueName, Request, Spec, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Time after which all nodes know of a head. Heads are advertised five times a second, a write reaches its leader and a head its
/// brokers within the greatest delay of a calm run, and a call that was under way then has been to all nodes.
pub const KNOWN_US: u64 = 1_000_000;

/// Scheduling state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Sent or stored, and nothing was done with it yet.
    New,
    /// Ready or not.
    Unsure,
    /// Acknowledged, and nothing was done with it since.
    Ready { since_us: u64 },
    /// Granted, and held at least until `until_us`.
    Held { since_us: u64, until_us: u64 },
}

/// Claim order: higher priorities first, then the older tasks.
type Place = (Reverse<i32>, TaskId);

#[derive(Debug, Default)]
pub struct Rank {
    /// Nothing fails in this run.
    calm: bool,
    queues: BTreeMap<QueueName, BTreeMap<Place, State>>,
    /// Latest epoch of each partition, and since when its leader may grant.
    led: BTreeMap<PartitionId, (u64, u64)>,
    /// Claims of several queues: a leader that is asked for a task of one queue may grant a task of another.
    mixed: BTreeSet<ClaimId>,
    /// Queues with another order, or with ageing.
    reordered: BTreeSet<QueueName>,
    /// Highest operation of each epoch that was seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

fn place(id: TaskId, spec: &Spec) -> Place {
    (Reverse(spec.priority), id)
}

impl Rank {
    fn state(&mut self, history: &History, id: TaskId) -> Option<&mut State> {
        let spec = history.specs.get(&id)?;
        let queue = self.queues.entry(spec.queue.clone()).or_default();
        Some(queue.entry(place(id, spec)).or_insert(State::New))
    }

    fn acknowledged(&mut self, history: &History, id: TaskId, now_us: u64) {
        let Some(spec) = history.specs.get(&id) else { return };
        let is_join = spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
        let waits = spec.not_before_ms > 0 || !spec.after.is_empty() || spec.key.is_some() || is_join;
        if let Some(state) = self.state(history, id).filter(|state| **state == State::New && !waits) {
            *state = State::Ready { since_us: now_us };
        }
    }

    fn unsure(&mut self, history: &History, id: TaskId) {
        if let Some(state) = self.state(history, id) {
            *state = State::Unsure;
        }
    }

    /// First task of a queue, before `before`, if it has been that for long enough.
    fn passed_over(&self, history: &History, (queue, before): (&QueueName, Place), now_us: u64) -> Option<TaskId> {
        let long = |since_us: u64| since_us + KNOWN_US <= now_us;
        if self.reordered.contains(queue) {
            return None;
        }
        for ((_, id), state) in self.queues.get(queue)?.range(..before) {
            let out_of_the_way = match state {
                State::Held { since_us, until_us } => long(*since_us) && now_us < *until_us,
                State::New | State::Unsure | State::Ready { .. } => false,
            };
            if out_of_the_way || history.ended(id).is_some_and(|at| long(at.time_us)) {
                continue;
            }
            let led = self.led.get(&history.partition(id)).is_some_and(|(_, since_us)| long(*since_us));
            let State::Ready { since_us } = state else { return None };
            return (led && long(*since_us)).then_some(*id);
        }
        None
    }

    /// Takes in an operation that a leader writes. Adds grants that pass over a task to `overtaken`, each with that task.
    fn operation(&mut self, history: &History, op: &Op, now_us: u64, overtaken: &mut Vec<(TaskId, TaskId)>) {
        match op {
            Op::Grant { claim, lease_ms, items, .. } => {
                for (id, spec) in items.iter().filter_map(|(id, _)| Some((*id, history.specs.get(id)?))) {
                    let first = self.passed_over(history, (&spec.queue, place(id, spec)), now_us);
                    overtaken.extend(first.filter(|_| !self.mixed.contains(claim)).map(|first| (id, first)));
                    // Leaders' clocks may be that much faster.
                    let until_us = now_us + lease_ms * 990;
                    if let Some(state) = self.state(history, id) {
                        *state = State::Held { since_us: now_us, until_us };
                    }
                }
            }
            Op::Release { id, .. } => self.unsure(history, *id),
            Op::Void { items } => items.iter().for_each(|(id, _)| self.unsure(history, *id)),
            _ => {}
        }
    }

    /// Takes in records of a node. A node makes the grants of one step at once, in an operation for each partition.
    fn appended(&mut self, history: &History, records: &[Record], now_us: u64) -> Result<(), String> {
        let mut overtaken = Vec::new();
        for record in records {
            if let Record::Roster(roster) = record {
                let other = |policy: &QueuePolicy| policy.order != Order::Priority || policy.ageing_ms.is_some();
                let reordered = roster.policies.iter().filter(|(_, policy)| other(policy));
                self.reordered.extend(reordered.map(|(queue, _)| queue.clone()));
            }
            if let Record::Facts { items, .. } = record {
                for (id, _) in items.iter().filter(|(_, task)| task.spec.is_some()) {
                    self.state(history, *id);
                }
            }
            let Record::Ops { partition, after, ops } = record else { continue };
            for (number, op) in (after.length + 1..).zip(ops) {
                let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                if number > std::mem::replace(seen, number.max(*seen)) {
                    self.operation(history, op, now_us, &mut overtaken);
                }
            }
        }
        for (id, first) in overtaken {
            if self.state(history, first).is_some_and(|state| matches!(state, State::Ready { .. })) {
                return Err(format!("task {id} is granted before task {first}, which has been the first for long"));
            }
        }
        Ok(())
    }
}

// S6, S34
impl Property for Rank {
    fn name(&self) -> &'static str {
        "rank"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        let now_us = moment.time_us;
        match happening {
            Happening::Founded(terms) => self.calm = terms.calm,
            _ if !self.calm => {}
            Happening::Sent { request: Request::Claim(claim) } if claim.queues.len() > 1 => {
                self.mixed.insert(claim.claim);
            }
            Happening::Sent { request: Request::Enqueue { tasks, .. } } => tasks.iter().for_each(|task| {
                self.state(history, task.id);
            }),
            Happening::Sent { request: request @ Request::Cancel { .. } } => {
                writes_of(request).into_iter().for_each(|(id, _)| self.unsure(history, id));
            }
            Happening::Finished(Finished { call: Call::Enqueue { .. }, result: Ok(response), .. }) => {
                let strict = acks_of(response).into_iter().filter(|(_, acked)| acked.guarantee == Guarantee::Strict);
                strict.for_each(|(_, acked)| self.acknowledged(history, acked.id, now_us));
            }
            Happening::Observed { observation: Observation::Established { partition, epoch }, .. } => {
                let led = self.led.entry(PartitionId(*partition)).or_default();
                *led = (*led).max((*epoch, now_us));
            }
            Happening::Appended { records, .. } => self.appended(history, records, now_us)?,
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
    use norn_wire::Acks;
    use norn_wire::membership::Roster;
    use norn_wire::request::NewTask;
    use std::sync::Arc;

    fn bench() -> Bench<Rank> {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { calm: true, ..Terms::default() })).unwrap();
        let observation = &Observation::Established { partition: 0, epoch: 3 };
        bench.see(Happening::Observed { node: 0, boot: 1, observation }).unwrap();
        bench
    }

    fn enqueued(bench: &mut Bench<Rank>, numbers: std::ops::Range<u32>) {
        let tasks: Vec<NewTask> = numbers.clone().map(|number| NewTask { id: id(number), spec: spec() }).collect();
        bench.see(Happening::Sent { request: &Request::Enqueue { tasks, acks: Acks::Quorum } }).unwrap();
        for number in numbers {
            let now_us = bench.now().time_us;
            bench.property.acknowledged(&bench.history, id(number), now_us);
        }
    }

    fn append(bench: &mut Bench<Rank>, length: u64, ops: Vec<Op>) -> Result<(), String> {
        let after = Viewstamp { epoch: 3, length };
        let records = &[Record::Ops { partition: PartitionId(0), after, ops: ops.into_iter().map(Arc::new).collect() }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records })
    }

    /// Grants each task in an operation of its own, as where the tasks are in several partitions.
    fn grant(bench: &mut Bench<Rank>, length: u64, numbers: &[u32]) -> Result<(), String> {
        let grant = |number: &u32| {
            let (claim, lease_ms, items) = (ClaimId(length.into()), 60_000, vec![(id(*number), length)]);
            Op::Grant { claim, worker: "w".into(), lease_ms, granted_ms: 1, items, session: None, lapsed: false }
        };
        append(bench, length, numbers.iter().map(grant).collect())
    }

    #[test]
    fn who_is_the_first_for_long_is_the_next() {
        let mut bench = bench();
        enqueued(&mut bench, 1..6);
        assert!(grant(&mut bench, 0, &[2]).is_ok(), "that there is a first one may not be known yet");
        bench.pass(KNOWN_US);
        assert!(grant(&mut bench, 1, &[3]).is_err());
        assert!(grant(&mut bench, 2, &[4, 1]).is_ok(), "both at once");
        assert!(grant(&mut bench, 4, &[5]).is_ok());
    }

    #[test]
    fn a_queue_in_another_order_is_not_judged() {
        for order in [Order::Priority, Order::Fair] {
            let mut bench = bench();
            let policies = BTreeMap::from([(spec().queue, QueuePolicy { order, ..QueuePolicy::default() })]);
            let roster = Record::Roster(Arc::new(Roster { policies, ..Roster::default() }));
            bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[roster] }).unwrap();
            enqueued(&mut bench, 1..3);
            bench.pass(KNOWN_US);
            assert_eq!(grant(&mut bench, 0, &[2]).is_ok(), order == Order::Fair);
        }
    }

    #[test]
    fn nobody_is_the_first_behind_one_that_may_be_ready() {
        let mut bench = bench();
        enqueued(&mut bench, 1..5);
        assert!(grant(&mut bench, 0, &[1]).is_ok());
        bench.pass(KNOWN_US);
        let token = token(3, 0);
        let release = Op::Release { id: id(1), token, not_before_ms: 0, at_ms: 1, failed: false, end: None };
        append(&mut bench, 1, vec![release]).unwrap();
        bench.pass(KNOWN_US);
        assert!(grant(&mut bench, 2, &[3]).is_ok(), "whoever granted it was asked for the one that came back");
        assert!(grant(&mut bench, 3, &[1]).is_ok());
        assert!(grant(&mut bench, 4, &[4]).is_ok(), "it was ready a moment ago");
        enqueued(&mut bench, 5..7);
        bench.pass(KNOWN_US);
        assert!(grant(&mut bench, 5, &[5]).is_err(), "nothing is before the second any more");
    }
}
