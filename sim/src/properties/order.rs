//! Within a partition the claim order is strict: a leader grants no task while it knows of another one of the same queue that comes
//! first, by priority and age, and that could be granted as well.
//!
//! A leader knows what it has logged since it started. Judged only by tasks of which nothing but their specs was ever known, and that
//! wait for nothing: such a task was never granted.

use super::Property;
use super::known::{Grants, Known};
use crate::history::{Happening, History, Moment};
use norn_model::replica::order::Standing;
use norn_wire::membership::{Order as Choice, QueuePolicy};
use norn_wire::{Spec, TaskId};

#[derive(Debug, Default)]
pub struct Order {
    known: Known,
}

fn judge(known: &Known, history: &History, grants: Grants<'_>) -> Result<(), String> {
    let open: Vec<(TaskId, &Spec)> = known
        .open(history, &grants)
        .filter(|(_, spec, _)| spec.key.is_none())
        .map(|(id, spec, _)| (id, spec))
        .collect();
    for (id, spec) in grants.items.iter().filter_map(|(id, _)| Some((id, history.specs.get(id)?))) {
        let policy = known.policy(grants.node, &spec.queue);
        if policy.order != Choice::Priority {
            continue;
        }
        let own = standing(*id, spec, &policy);
        let passed_over = |(other, its): &&(TaskId, &Spec)| {
            if its.queue != spec.queue {
                return false;
            }
            match its.priority == spec.priority {
                true => *other < *id,
                false => standing(*other, its, &policy) < own && !may_be_hidden(history, *other, its),
            }
        };
        if let Some((before, _)) = open.iter().find(passed_over) {
            return Err(format!("task {id} is granted before task {before}, which comes first by {policy:?}"));
        }
    }
    Ok(())
}

/// Whether an older task of the same priority may hide this one. The oldest task of each priority stands for all of them; if it was
/// delayed, it is not as old as its id.
fn may_be_hidden(history: &History, id: TaskId, spec: &Spec) -> bool {
    let alike = |other: &Spec| (&other.queue, other.priority) == (&spec.queue, spec.priority);
    let mut older = history.specs.range(..id);
    older.any(|(other, its)| {
        alike(its) && its.not_before_ms > id.time_ms() && history.partition(other) == history.partition(&id)
    })
}

fn standing(id: TaskId, spec: &Spec, policy: &QueuePolicy) -> Standing {
    Standing::new(id, spec.priority, id.time_ms().max(spec.not_before_ms), policy.ageing_ms)
}

// S6, S34
impl Property for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        self.known.see(history, happening, |known, grants| judge(known, history, grants))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_model::claim_table::table::Op;
    use norn_model::record::Record;
    use norn_model::task::Task;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::membership::Roster;
    use norn_wire::request::NewTask;
    use norn_wire::{Acks, ClaimId, PartitionId, Request};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn append(bench: &mut Bench<Order>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    /// Enqueues tasks with these times and priorities, and lets the node know of them.
    fn enqueued(bench: &mut Bench<Order>, tasks: &[(u64, i32)]) -> Vec<TaskId> {
        let new = |(time_ms, priority): &(u64, i32)| NewTask {
            id: TaskId::new(*time_ms, 1, 0, 0),
            spec: Spec { priority: *priority, ..spec() },
        };
        let tasks: Vec<NewTask> = tasks.iter().map(new).collect();
        bench.see(Happening::Sent { request: &Request::Enqueue { tasks: tasks.clone(), acks: Acks::One } }).unwrap();
        let ids = tasks.iter().map(|task| task.id).collect();
        let items = tasks.into_iter().map(|task| (task.id, Task::from_spec(Arc::new(task.spec)))).collect();
        append(bench, Record::Facts { partition: PartitionId(0), items: Arc::new(items) }).unwrap();
        ids
    }

    fn grant(bench: &mut Bench<Order>, length: u64, id: TaskId) -> Result<(), String> {
        let items = vec![(id, length)];
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
    fn who_is_passed_over_must_come_later() {
        let mut bench = Bench::new();
        let ids = enqueued(&mut bench, &[(1_000, 1), (2_000, 2), (3_000, 2)]);
        assert!(grant(&mut bench, 0, ids[2]).is_err(), "another one is older");
        assert!(grant(&mut bench, 1, ids[0]).is_err(), "another one is higher");
        assert!(grant(&mut bench, 2, ids[1]).is_ok());
        let mut bench = Bench::new();
        let ids = enqueued(&mut bench, &[(1_000, 1), (2_000, 2), (3_000, 2)]);
        let policy = QueuePolicy { ageing_ms: Some(500), ..QueuePolicy::default() };
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        assert!(grant(&mut bench, 0, ids[1]).is_err(), "age makes up for it");
        assert!(grant(&mut bench, 1, ids[0]).is_ok());
    }
}
