//! Where keys take turns, a leader that grants tasks of one key twice has granted one meanwhile of every other key in that partition
//! of which it knew a claimable task all the while.
//!
//! Judged by tasks of which nothing but their specs was ever known, and that wait for nothing; and of keys that were never held
//! anywhere, unless keys are no limit: so there is no doubt that they could be claimed.

use super::Property;
use crate::history::{Happening, History, Moment, writes_of};
use norn_client::wire::membership::{KeyConcurrency, Order, QueuePolicy, Roster};
use norn_client::wire::{PartitionId, QueueName, Request, Spec, TaskId};
use norn_node::protocol::Observation;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Key = (QueueName, Option<String>);

/// See the module.
#[derive(Debug, Default)]
pub struct Fairness {
    rosters: BTreeMap<usize, Arc<Roster>>,
    /// Counts what is learned and what is granted.
    steps: u64,
    /// Tasks that each node has logged since its start, and when.
    known: BTreeMap<(usize, PartitionId), BTreeMap<TaskId, u64>>,
    /// Of which more than the spec may be known to somebody, and their keys.
    touched: BTreeSet<TaskId>,
    busy: BTreeSet<Key>,
    /// When each leadership last granted a task of a key.
    served: BTreeMap<(PartitionId, u64), BTreeMap<Key, u64>>,
    /// Operations of each epoch that were seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

fn key(spec: &Spec) -> Key {
    (spec.queue.clone(), spec.key.clone())
}

fn is_plain(spec: &Spec) -> bool {
    let is_join = spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
    spec.not_before_ms == 0 && spec.after.is_empty() && !is_join
}

impl Fairness {
    fn hear(&mut self, node: usize, record: &Record) {
        if let Record::Roster(roster) = record {
            self.rosters.insert(node, roster.clone());
            // The order may have been another one.
            self.served.clear();
        }
    }

    fn forget(&mut self, node: usize) {
        self.known.retain(|(place, _), _| *place != node);
    }

    fn touch(&mut self, history: &History, id: TaskId) {
        if self.touched.insert(id)
            && let Some(spec) = history.specs.get(&id)
        {
            self.busy.insert(key(spec));
        }
    }

    fn note(&mut self, history: &History, node: usize, record: &Record) {
        self.hear(node, record);
        match record {
            Record::Facts { partition, items } => {
                for (id, task) in items.iter() {
                    if task.facts.is_some() || task.tomb.is_some() {
                        self.touch(history, *id);
                    }
                    if task.spec.is_some() {
                        self.steps += 1;
                        self.known.entry((node, *partition)).or_default().entry(*id).or_insert(self.steps);
                    }
                }
            }
            Record::Left { partition, .. } => drop(self.known.remove(&(node, *partition))),
            _ => {}
        }
    }

    fn policy(&self, node: usize, queue: &QueueName) -> QueuePolicy {
        let roster = self.rosters.get(&node);
        roster.and_then(|roster| roster.policies.get(queue)).cloned().unwrap_or_default()
    }

    /// A leader grants a task.
    fn granted(
        &mut self,
        history: &History,
        (node, partition, epoch): (usize, PartitionId, u64),
        id: TaskId,
    ) -> Result<(), String> {
        let Some(spec) = history.specs.get(&id) else { return Ok(()) };
        self.touch(history, id);
        let (own, policy) = (key(spec), self.policy(node, &spec.queue));
        self.steps += 1;
        if policy.order != Order::Fair {
            return Ok(());
        }
        let served = self.served.entry((partition, epoch)).or_default();
        let Some(before) = served.insert(own.clone(), self.steps) else { return Ok(()) };
        let waits = |(other, since): &(&TaskId, &u64)| {
            let Some(its) = history.specs.get(*other).filter(|its| its.queue == spec.queue && is_plain(its)) else {
                return false;
            };
            let its_key = key(its);
            // Who grants a task with a key knows all that are held.
            let is_claimable = its.key.is_none() || spec.key.is_some();
            let is_free =
                its.key.is_none() || policy.key_concurrency == KeyConcurrency::Any || !self.busy.contains(&its_key);
            let was_served = served.get(&its_key).is_some_and(|at| *at > before);
            **since < before
                && its_key != own
                && is_claimable
                && is_free
                && !was_served
                && !self.touched.contains(*other)
        };
        let known = self.known.get(&(node, partition)).into_iter().flatten();
        match known.into_iter().find(|entry| waits(entry)) {
            Some((other, _)) if !history.is_harmed(node) => Err(format!(
                "task {id} is granted, the second one of its key, while task {other} waits, of a key that was passed over"
            )),
            _ => Ok(()),
        }
    }
}

// S6
impl Property for Fairness {
    fn name(&self) -> &'static str {
        "fairness"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Replayed { node, records } => {
                self.forget(*node);
                self.rosters.remove(node);
                records.iter().for_each(|record| self.hear(*node, record));
            }
            Happening::Crashed { node } | Happening::Gone { node } => self.forget(*node),
            Happening::Sent { request } if !matches!(request, Request::Enqueue { .. }) => {
                for (id, _) in writes_of(request) {
                    self.touch(history, id);
                }
            }
            // Only whoever has all of a task at hand grants it.
            Happening::Observed { observation: Observation::BodyLost { id }, .. } => drop(self.touched.insert(*id)),
            Happening::Appended { node, records, .. } => {
                for record in *records {
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (number, op) in (after.length + 1..).zip(ops) {
                        let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                        if number > std::mem::replace(seen, number.max(*seen))
                            && let Op::Grant { items, .. } = &**op
                        {
                            for (id, _) in items {
                                self.granted(history, (*node, *partition, after.epoch), *id)?;
                            }
                        }
                    }
                }
                // What comes in the same step may have come behind the grants.
                records.iter().for_each(|record| self.note(history, *node, record));
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
    use norn_client::wire::request::NewTask;
    use norn_client::wire::{Acks, ClaimId};
    use norn_node::protocol::Ticket;
    use norn_node::protocol::consistent::Viewstamp;
    use norn_node::protocol::task::Task;

    fn append(bench: &mut Bench<Fairness>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    fn bench(order: Order) -> Bench<Fairness> {
        let mut bench = Bench::new();
        let policy = QueuePolicy { order, ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        let new = |(number, key): (u32, Option<&str>)| NewTask {
            id: id(number),
            spec: Spec { key: key.map(str::to_owned), ..spec() },
        };
        let tasks: Vec<NewTask> = [(1, None), (2, None), (3, Some("a"))].into_iter().map(new).collect();
        bench.see(Happening::Sent { request: &Request::Enqueue { tasks: tasks.clone(), acks: Acks::One } }).unwrap();
        let items = tasks.into_iter().map(|task| (task.id, Task::from_spec(Arc::new(task.spec)))).collect();
        append(&mut bench, Record::Facts { partition: PartitionId(0), items: Arc::new(items) }).unwrap();
        bench
    }

    fn grant(bench: &mut Bench<Fairness>, number: u32) -> Result<(), String> {
        let items = vec![(id(number), u64::from(number))];
        let op =
            Op::Grant { claim: ClaimId(1), worker: "w".into(), lease_ms: 1_000, granted_ms: 1, items, session: None };
        let after = Viewstamp { epoch: 3, length: bench.property.steps };
        append(bench, Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] })
    }

    #[test]
    fn a_key_that_is_passed_over_is_noticed() {
        // Who grants no task with a key may not know what is held.
        let mut unsure = bench(Order::Fair);
        grant(&mut unsure, 1).unwrap();
        grant(&mut unsure, 2).unwrap();
        for (order, refused) in [(Order::Fair, true), (Order::Priority, false)] {
            let mut bench = bench(order);
            let enqueue = NewTask { id: id(4), spec: Spec { key: Some("b".into()), ..spec() } };
            let request = Request::Enqueue { tasks: vec![enqueue.clone()], acks: Acks::One };
            bench.see(Happening::Sent { request: &request }).unwrap();
            grant(&mut bench, 4).unwrap();
            assert_eq!(grant(&mut bench, 4).is_err(), refused);
        }
    }
}
