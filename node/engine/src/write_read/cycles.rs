//! Dependency cycles: a request that would close one is refused where all of the cycle is in the request or on this node. A cycle that no
//! node saw whole stands, and `why` reports it.

use crate::Node;
use norn_wire::error::Error;
use norn_wire::{NewTask, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Most tasks outside the request that are looked at for it.
const LOOK_MAX: usize = 1_000;
/// Most tasks of a cycle that an error names.
const TOLD_MAX: usize = 5;

/// A depth-first walk through tasks, each of which waits for the next.
#[derive(Debug, Default)]
struct Walk {
    path: Vec<TaskId>,
    /// Position of each task on the path.
    places: BTreeMap<TaskId, usize>,
    /// For each task of the path, the tasks for which it waits and which are still to be looked at.
    ahead: Vec<Vec<TaskId>>,
    seen: BTreeSet<TaskId>,
}

impl Walk {
    /// Steps into a task that was not seen before.
    fn enter(&mut self, id: TaskId, waits_for: Vec<TaskId>) {
        assert!(self.seen.insert(id), "each task is looked at once");
        self.places.insert(id, self.path.len());
        self.path.push(id);
        self.ahead.push(waits_for);
    }

    /// The next task to look at. Tasks whose dependencies are exhausted leave the path.
    fn next(&mut self) -> Option<TaskId> {
        loop {
            if let Some(next) = self.ahead.last_mut()?.pop() {
                return Some(next);
            }
            self.ahead.pop();
            let left = self.path.pop().expect("as long as what is ahead");
            self.places.remove(&left);
        }
    }

    /// The cycle that a task closes which is on the path already.
    fn closed_by(&self, id: &TaskId) -> Option<&[TaskId]> {
        self.places.get(id).map(|place| &self.path[*place..])
    }
}

impl Node {
    /// Refuses tasks of which one would wait for itself. Each task is looked at once (depth-first search).
    pub(crate) fn check_cycles<'a>(&self, tasks: impl Iterator<Item = &'a NewTask> + Clone) -> Result<(), Error> {
        if tasks.clone().all(|task| task.spec.after.is_empty()) {
            return Ok(());
        }
        let new: BTreeMap<TaskId, &[TaskId]> =
            tasks.filter(|task| !self.has_spec(&task.id)).map(|task| (task.id, &task.spec.after[..])).collect();
        let mut walk = Walk::default();
        let mut looks = LOOK_MAX;
        for (id, after) in new.iter().filter(|(_, after)| !after.is_empty()) {
            if !walk.seen.contains(id) {
                walk.enter(*id, after.to_vec());
            }
            while let Some(next) = walk.next() {
                if let Some(cycle) = walk.closed_by(&next).filter(|cycle| cycle.iter().any(|id| new.contains_key(id))) {
                    return Err(refusal(cycle).about(*cycle.last().expect("a task closes it")));
                }
                if walk.seen.contains(&next) {
                    continue;
                }
                match new.get(&next) {
                    Some(after) => walk.enter(next, after.to_vec()),
                    None if looks > 0 => {
                        looks -= 1;
                        walk.enter(next, self.waits_for(&next));
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// The tasks for which this one still waits, as far as this node knows.
    fn waits_for(&self, id: &TaskId) -> Vec<TaskId> {
        let replica = self.partitions.get(&self.partition_of(id));
        let task = replica.and_then(|replica| replica.store.task(id));
        task.filter(|task| task.ended().is_none()).map(|task| task.waits_for(id)).unwrap_or_default()
    }
}

fn refusal(cycle: &[TaskId]) -> Error {
    let mut names: Vec<String> = cycle.iter().take(TOLD_MAX).map(TaskId::to_string).collect();
    if cycle.len() > TOLD_MAX {
        names.push(format!("and {} more", cycle.len() - TOLD_MAX));
    }
    Error::invalid(format!(
        "tasks would wait for each other in a circle: {}; leave one out of `after`",
        names.join(", ")
    ))
}
