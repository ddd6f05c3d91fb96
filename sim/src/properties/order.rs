//! Within a partition the order of claiming is strict: a leader grants no task while it knows of another one of the same queue
//! that comes first, by priority and age, and that could be granted as well.
//!
//! What a leader knows is what it has logged since it started. Judged by tasks alone of which nothing but their specs was ever
//! known, and that wait for nothing: nobody was ever granted them.

use super::Property;
use crate::history::{Happening, History, Moment, writes_of};
use norn_client::wire::membership::{Order as Choice, QueuePolicy, Roster};
use norn_client::wire::{PartitionId, Request, Spec, TaskId};
use norn_node::protocol::Observation;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::partition::order::Standing;
use norn_node::protocol::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub struct Order {
    rosters: BTreeMap<usize, Arc<Roster>>,
    /// Tasks that each node has logged since its start.
    known: BTreeMap<(usize, PartitionId), BTreeSet<TaskId>>,
    /// Of which more than the spec may be known to somebody.
    touched: BTreeSet<TaskId>,
    /// Operations of each epoch that were seen.
    lengths: BTreeMap<(PartitionId, u64), u64>,
}

impl Order {
    fn hear(&mut self, node: usize, record: &Record) {
        if let Record::Roster(roster) = record {
            self.rosters.insert(node, roster.clone());
        }
    }

    fn forget(&mut self, node: usize) {
        self.known.retain(|(place, _), _| *place != node);
    }

    /// A node takes a record in; the tasks that it learns of.
    fn note(&mut self, node: usize, record: &Record) -> Vec<(PartitionId, TaskId)> {
        self.hear(node, record);
        match record {
            Record::Facts { partition, items } => {
                let more = items.iter().filter(|(_, task)| task.facts.is_some() || task.tomb.is_some());
                self.touched.extend(more.map(|(id, _)| *id));
                let learned = items.iter().filter(|(_, task)| task.spec.is_some());
                learned.map(|(id, _)| (*partition, *id)).collect()
            }
            Record::Left { partition, .. } => {
                self.known.remove(&(node, *partition));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// A leader grants these.
    fn granted(
        &mut self,
        history: &History,
        (node, partition): (usize, PartitionId),
        items: &[(TaskId, u64)],
    ) -> Option<String> {
        self.touched.extend(items.iter().map(|(id, _)| *id));
        let is_join = |spec: &Spec| spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
        let waits =
            |spec: &Spec| spec.not_before_ms > 0 || !spec.after.is_empty() || spec.key.is_some() || is_join(spec);
        let known = self.known.get(&(node, partition)).into_iter().flatten();
        let open = known.filter(|id| !self.touched.contains(*id)).filter_map(|id| Some((id, history.specs.get(id)?)));
        let open: Vec<(&TaskId, &Spec)> = open.filter(|(_, spec)| !waits(spec)).collect();
        for (id, spec) in items.iter().filter_map(|(id, _)| Some((id, history.specs.get(id)?))) {
            let roster = self.rosters.get(&node);
            let policy = roster.and_then(|roster| roster.policies.get(&spec.queue)).cloned().unwrap_or_default();
            if policy.order != Choice::Priority {
                continue;
            }
            let own = standing(*id, spec, &policy);
            let passed_over = |(other, its): &&(&TaskId, &Spec)| {
                if its.queue != spec.queue {
                    return false;
                }
                match its.priority == spec.priority {
                    true => **other < *id,
                    false => standing(**other, its, &policy) < own && !may_be_hidden(history, **other, its),
                }
            };
            if let Some((before, _)) = open.iter().find(passed_over) {
                return Some(format!("task {id} is granted before task {before}, which comes first by {policy:?}"));
            }
        }
        None
    }
}

/// Of each priority the oldest task stands for all: where that was delayed, it is not as old as its id.
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
        match happening {
            Happening::Replayed { node, records } => {
                self.forget(*node);
                self.rosters.remove(node);
                records.iter().for_each(|record| self.hear(*node, record));
            }
            Happening::Crashed { node } | Happening::Gone { node } => self.forget(*node),
            Happening::Sent { request } if !matches!(request, Request::Enqueue { .. }) => {
                self.touched.extend(writes_of(request).into_iter().map(|(id, _)| id));
            }
            // Only whoever has all of a task at hand grants it.
            Happening::Observed { observation: Observation::BodyLost { id }, .. } => drop(self.touched.insert(*id)),
            Happening::Appended { node, records, .. } => {
                let mut learned = Vec::new();
                for record in *records {
                    learned.extend(self.note(*node, record));
                    let Record::Ops { partition, after, ops } = record else { continue };
                    for (number, op) in (after.length + 1..).zip(ops) {
                        let seen = self.lengths.entry((*partition, after.epoch)).or_default();
                        if number > std::mem::replace(seen, number.max(*seen))
                            && let Op::Grant { items, .. } = &**op
                        {
                            // What a disk has lost nobody can know.
                            let whole = !history.is_harmed(*node);
                            let passes_over = self.granted(history, (*node, *partition), items);
                            passes_over.filter(|_| whole).map_or(Ok(()), Err)?;
                        }
                    }
                }
                // What comes in the same step may have come behind the grants.
                for (partition, id) in learned {
                    self.known.entry((*node, partition)).or_default().insert(id);
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
    use norn_client::wire::request::NewTask;
    use norn_client::wire::{Acks, ClaimId};
    use norn_node::protocol::Ticket;
    use norn_node::protocol::consistent::Viewstamp;
    use norn_node::protocol::task::Task;

    fn append(bench: &mut Bench<Order>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    /// Tasks are enqueued, a time and a priority each, and the node knows of them.
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
        let op =
            Op::Grant { claim: ClaimId(1), worker: "w".into(), lease_ms: 1_000, granted_ms: 1, items, session: None };
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
