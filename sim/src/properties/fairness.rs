//! With fair queueing, a leader that grants two tasks of one key has granted one in between of every other key in that partition of
//! which it knew a claimable task all the while.
//!
//! A grant that was taken back reached no worker, and its key has its earlier turn again: the next grant of the key is not judged.
//!
//! Judged by tasks of which nothing but their specs was ever known, and that wait for nothing; and by keys that were never held
//! anywhere, unless keys are no limit: so there is no doubt that they could be claimed.

use super::Property;
use super::known::{Grants, Known};
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_wire::membership::{KeyConcurrency, Order};
use norn_wire::{PartitionId, QueueName, Spec, TaskId};
use std::collections::{BTreeMap, BTreeSet};

type Key = (QueueName, Option<String>);

/// When each leadership last granted a task of each key.
type Served = BTreeMap<(PartitionId, u64), BTreeMap<Key, u64>>;

#[derive(Debug, Default)]
pub struct Fairness {
    known: Known,
    served: Served,
    /// Keys of which a grant was taken back since their last grant.
    restored: BTreeMap<(PartitionId, u64), BTreeSet<Key>>,
    /// Highest operation of each epoch that was searched for grants taken back.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

impl Fairness {
    /// Notes the keys whose grants are taken back by operations that are written for the first time.
    fn note_restored(&mut self, history: &History, records: &[Record]) {
        for record in records {
            let Record::Ops { partition, after, ops } = record else { continue };
            let leadership = (*partition, after.epoch);
            for (number, op) in (after.length + 1..).zip(ops) {
                let seen = self.lengths.entry(leadership).or_default();
                let is_new = number > std::mem::replace(seen, number.max(*seen));
                if let (true, Op::Void { items }) = (is_new, &**op) {
                    let keys = items.iter().filter_map(|(id, _)| history.specs.get(id)).map(key);
                    self.restored.entry(leadership).or_default().extend(keys);
                }
            }
        }
    }
}

fn key(spec: &Spec) -> Key {
    (spec.queue.clone(), spec.key.clone())
}

fn judge(
    (served, restored): (&mut Served, &mut BTreeSet<Key>),
    known: &mut Known,
    history: &History,
    grants: Grants<'_>,
) -> Result<(), String> {
    for (id, _) in grants.items {
        known.steps += 1;
        let Some(spec) = history.specs.get(id) else { continue };
        if known.policy(grants.node, &spec.queue).order != Order::Fair {
            continue;
        }
        let served = served.entry((grants.partition, grants.epoch)).or_default();
        if let Some(before) = served.insert(key(spec), known.steps)
            && !restored.remove(&key(spec))
            && let Some(other) = passed_over(served, known, history, (&grants, spec, before))
        {
            return Err(format!(
                "task {id} is granted, the second one of its key, while task {other} waits, of a key that was passed over"
            ));
        }
    }
    Ok(())
}

/// A task that should have been granted since `before`, when a task with the key of this one was granted.
fn passed_over(
    served: &BTreeMap<Key, u64>,
    known: &Known,
    history: &History,
    (grants, spec, before): (&Grants<'_>, &Spec, u64),
) -> Option<TaskId> {
    let any = known.policy(grants.node, &spec.queue).key_concurrency == KeyConcurrency::Any;
    let busy: BTreeSet<Key> = known.touched.iter().filter_map(|id| history.specs.get(id)).map(key).collect();
    let waits = |(_, its, since): &(TaskId, &Spec, u64)| {
        let its_key = key(its);
        // A leader that grants a task with a key knows all keys that are held.
        let is_claimable = its.key.is_none() || spec.key.is_some();
        let is_free = its.key.is_none() || any || !busy.contains(&its_key);
        let was_served = served.get(&its_key).is_some_and(|at| *at > before);
        *since < before && its.queue == spec.queue && its.key != spec.key && is_claimable && is_free && !was_served
    };
    known.open(history, grants).find(waits).map(|(other, _, _)| other)
}

// S6
impl Property for Fairness {
    fn name(&self) -> &'static str {
        "fairness"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        // The order may have been different before this roster.
        if let Happening::Replayed { records, .. } | Happening::Appended { records, .. } = happening
            && records.iter().any(|record| matches!(record, Record::Roster(_)))
        {
            self.served.clear();
        }
        // A grant that is taken back in its own step may have been taken back before the next grant, or after it.
        if let Happening::Appended { records, .. } = happening {
            self.note_restored(history, records);
        }
        let Fairness { known, served, restored, .. } = self;
        known.see(history, happening, |known, grants| {
            let restored = restored.entry((grants.partition, grants.epoch)).or_default();
            judge((served, restored), known, history, grants)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_model::task::Task;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::membership::{QueuePolicy, Roster};
    use norn_wire::request::NewTask;
    use norn_wire::{Acks, ClaimId, Request};
    use std::sync::Arc;

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
        let op = Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 1_000,
            granted_ms: 1,
            items,
            session: None,
            lapsed: false,
        };
        let after = Viewstamp { epoch: 3, length: bench.property.known.steps };
        append(bench, Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] })
    }

    #[test]
    fn a_key_that_is_passed_over_is_noticed() {
        // A leader that grants no task with a key may not know which keys are held.
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

    /// A grant that is taken back gives its key the earlier turn back, once.
    #[test]
    fn a_key_has_its_turn_back_once() {
        let mut bench = bench(Order::Fair);
        let enqueue = NewTask { id: id(4), spec: Spec { key: Some("b".into()), ..spec() } };
        bench.see(Happening::Sent { request: &Request::Enqueue { tasks: vec![enqueue], acks: Acks::One } }).unwrap();
        grant(&mut bench, 4).unwrap();
        let after = Viewstamp { epoch: 3, length: bench.property.known.steps };
        let void = Op::Void { items: vec![(id(4), norn_wire::Token { epoch: 3, number: 4 })] };
        append(&mut bench, Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(void)] }).unwrap();
        bench.property.known.steps += 1;
        assert!(grant(&mut bench, 4).is_ok() && grant(&mut bench, 4).is_err());
    }
}
