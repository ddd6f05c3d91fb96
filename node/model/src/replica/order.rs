//! Order of the claimable tasks of a queue whose tasks age (`queue set Q ageing DUR`).
//!
//! A task gains one level of priority for each ageing time that it has been claimable: `priority + age / time`. Of equal ones the older
//! id goes first. All tasks of a queue gain alike as time passes, so their order is fixed: the sort key is `since - priority * time`,
//! which has no clock in it. Hence nothing is sorted again, and the first task of a partition stays first until the tasks change. A clock
//! is needed only between queues, which may age at different paces, and between nodes: there the whole levels that each first task has by
//! then are compared.
//!
//! The index has the tasks by priority and id, so the oldest of each priority is compared.

use super::Partition;
use crate::task::Content;
use norn_wire::{QueueName, TaskId};

/// Most priorities that are compared. With more at once, the lower ones wait until some of the higher ones are worked off.
const LEVELS_MAX: usize = 64;

/// Sort key of a claimable task within its queue: the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    order: i128,
    /// Task.
    pub id: TaskId,
    priority: i32,
    since_ms: u64,
    /// 0 where tasks do not age.
    ageing_ms: u64,
    /// When its key was last served, for fair queueing.
    pub served_ms: Option<u64>,
}

impl Standing {
    /// The key of a task that has been claimable since then, in a queue with this ageing.
    pub fn new(id: TaskId, priority: i32, since_ms: u64, ageing_ms: Option<u64>) -> Standing {
        let order = match ageing_ms {
            Some(ageing_ms) => i128::from(since_ms) - i128::from(priority) * i128::from(ageing_ms),
            None => -i128::from(priority),
        };
        Standing { order, id, priority, since_ms, ageing_ms: ageing_ms.unwrap_or(0), served_ms: None }
    }

    /// The key of the first claimable task of a line that was last served then, for fair queueing.
    pub fn in_fair_queue(id: TaskId, priority: i32, served_ms: u64) -> Standing {
        Standing { order: i128::from(served_ms), served_ms: Some(served_ms), ..Standing::new(id, priority, 0, None) }
    }

    /// Caps the time of service at the present: no key was served later, whatever a client's clock was.
    #[must_use]
    pub fn by_now(self, wall_ms: u64) -> Standing {
        match self.served_ms {
            Some(served_ms) => Standing::in_fair_queue(self.id, self.priority, served_ms.min(wall_ms)),
            None => self,
        }
    }

    /// Its priority with the levels that it has gained by then.
    pub fn priority(&self, wall_ms: u64) -> i32 {
        let gained = wall_ms.saturating_sub(self.since_ms).checked_div(self.ageing_ms).unwrap_or(0);
        self.priority.saturating_add(i32::try_from(gained).unwrap_or(i32::MAX))
    }
}

impl Partition {
    /// The first task of a queue to claim. `keys`: tasks with keys may be claimed.
    pub fn head(&self, queue: &QueueName, keys: bool, ageing_ms: Option<u64>) -> Option<Standing> {
        let index = self.store.index().queue(queue)?;
        if let Some(fair_queues) = self.store.index().fair_queues(queue) {
            return fair_queues
                .head(keys)
                .map(|(at_ms, (priority, id))| Standing::in_fair_queue(id, priority.0, at_ms));
        }
        if ageing_ms.is_none() {
            return index.head(keys).map(|(priority, id)| Standing::new(id, priority.0, 0, None));
        }
        let since_ms = |id: &TaskId| {
            let spec = self.store.task(id).and_then(|task| task.spec.as_ref());
            spec.map_or(0, Content::not_before_ms).max(id.time_ms())
        };
        let levels = index.levels(keys).take(LEVELS_MAX);
        levels.map(|(priority, id)| Standing::new(id, priority.0, since_ms(&id), ageing_ms)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(time_ms: u64, priority: i32, ageing_ms: Option<u64>) -> Standing {
        Standing::new(TaskId::new(time_ms, 1, 1, 1), priority, time_ms, ageing_ms)
    }

    #[test]
    fn age_makes_up_for_priority() {
        for (older, behind) in [(0, 999), (1, 1_000), (2, 1_001)] {
            let [old, new] = [standing(1_000 - older, 0, Some(500)), standing(1_999, 2, Some(500))];
            assert_eq!(old < new, behind >= 1_000, "{older}");
        }
        assert!(standing(1, 0, None) > standing(1_000_000, 1, None), "without it priorities stay");
        assert!(standing(1, 3, Some(1)) < standing(2, 3, Some(1)));
        assert!(
            standing(0, i32::MIN, Some(u64::MAX)) > standing(u64::MAX >> 20, i32::MAX, Some(u64::MAX)),
            "nothing overflows"
        );
    }

    #[test]
    fn levels_are_gained_one_by_one() {
        let task = standing(1_000, -2, Some(500));
        assert_eq!([0, 1_000, 1_499, 1_500, 3_000].map(|at_ms| task.priority(at_ms)), [-2, -2, -2, -1, 2]);
        assert_eq!(standing(1, i32::MAX - 1, Some(1)).priority(u64::MAX), i32::MAX);
        assert_eq!(standing(0, 7, None).priority(u64::MAX), 7);
    }
}
