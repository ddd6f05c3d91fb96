//! Facts merge to the same state in any order and any number of times: the laws of the lattice on every pair that is merged in a run,
//! and all facts of each task merged once more in another order. (ARCHITECTURE.md I-20)

use super::Property;
use crate::history::{Happening, History, Moment};
use crdts::CvRDT;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::TaskId;
use std::collections::BTreeMap;

/// Most deltas of a task that are kept for merging in another order. A task that reaches this number is not merged again.
const DELTAS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Merging {
    /// Each task after all deltas that any node logged, in that order, and the deltas themselves.
    tasks: BTreeMap<TaskId, (Task, Vec<Task>)>,
}

fn join(one: &Task, other: &Task) -> Task {
    let mut joined = one.clone();
    joined.merge(other.clone());
    joined
}

impl Merging {
    fn learn(&mut self, id: &TaskId, delta: &Task) -> Result<(), String> {
        let (task, deltas) = self.tasks.entry(*id).or_default();
        let joined = join(task, delta);
        if joined != join(delta, task) {
            return Err(format!("task {id}: {task:?} and {delta:?} merge to one thing and to another"));
        }
        if joined != join(&joined, delta) || joined != join(&joined, task) || joined != join(&joined, &joined) {
            return Err(format!("task {id}: {task:?} and {delta:?} merged are more than both"));
        }
        *task = joined;
        if deltas.len() < DELTAS_MAX {
            deltas.push(delta.clone());
        }
        Ok(())
    }

    /// Merges each delta twice, in two orders: backwards, then every other one, then the rest.
    fn replay(&self) -> Result<(), String> {
        for (id, (task, deltas)) in &self.tasks {
            if deltas.len() == DELTAS_MAX {
                continue;
            }
            let others = deltas.iter().step_by(2).chain(deltas.iter().skip(1).step_by(2));
            let replayed = deltas.iter().rev().chain(others).fold(Task::default(), |task, delta| join(&task, delta));
            if replayed != *task {
                return Err(format!("task {id} is {replayed:?} in another order, and was {task:?}"));
            }
        }
        Ok(())
    }
}

// S9
impl Property for Merging {
    fn name(&self) -> &'static str {
        "merging"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => {
                for record in *records {
                    if let Record::Facts { items, .. } | Record::Hint { items, .. } = record {
                        items.iter().try_for_each(|(id, delta)| self.learn(id, delta))?;
                    }
                }
                Ok(())
            }
            Happening::Settled { .. } => self.replay(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use norn_engine::Ticket;
    use norn_wire::PartitionId;
    use std::sync::Arc;

    #[test]
    fn what_depends_on_its_order_is_refused() {
        let mut bench = Bench::<Merging>::new();
        let items = |task| Arc::new(vec![(id(1), task)]);
        let facts = |task| [Record::Facts { partition: PartitionId(0), items: items(task) }];
        let mut learn = |task: &Task| {
            let records = facts(task.clone());
            bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        };
        let update = Task::from_update(token(1, 1), 0, vec![1]);
        let whole = Task::from_spec(Arc::new(spec()));
        learn(&update);
        learn(&whole);
        learn(&update);
        assert!(bench.see(Happening::Settled { stores: &[] }).is_ok());
        // As if a merge had dropped something in one of the orders.
        bench.property.tasks.get_mut(&id(1)).unwrap().0 = whole;
        assert!(bench.see(Happening::Settled { stores: &[] }).is_err());
    }
}
