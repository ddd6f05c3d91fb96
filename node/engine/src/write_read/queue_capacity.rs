//! Queue capacity: full queues take no more tasks from clients. What belongs to existing tasks, such as a child of a completion, a
//! dead-letter copy or the task of a schedule, is always accepted; so are the members of a group, for which its join waits.

use crate::Node;
use norn_model::config::mutant;
use norn_model::task::whole_bytes;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::{PartitionId, QueueName, Spec, TaskId};
use std::collections::BTreeMap;

/// Number and bytes of tasks of one queue.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct QueueSize {
    tasks: u64,
    bytes: u64,
}

impl Node {
    /// Refuses new tasks for which their queues have no room. Tasks that are known here are counted already.
    pub(crate) fn check_capacity<'a>(&self, tasks: impl Iterator<Item = (&'a TaskId, &'a Spec)>) -> Result<(), Error> {
        let mut wanted: BTreeMap<&QueueName, QueueSize> = BTreeMap::new();
        let ignored = mutant!(self.config, RoomIgnored);
        let is_limited = |queue: &QueueName| self.limits_of(queue) != (None, None) && !ignored;
        let is_member = |spec: &Spec| spec.grouping.as_ref().is_some_and(|grouping| grouping.member.is_some());
        let counts = |(id, spec): &(&TaskId, &Spec)| is_limited(&spec.queue) && !is_member(spec) && !self.has_spec(id);
        for (_, spec) in tasks.filter(counts) {
            let size = wanted.entry(&spec.queue).or_default();
            size.tasks += 1;
            size.bytes += u64::from(whole_bytes(spec));
        }
        for (queue, more) in wanted {
            let (tasks_max, bytes_max) = self.limits_of(queue);
            let there = self.size_of(queue);
            let exceeds = |there: u64, more: u64, most: Option<u64>| most.is_some_and(|most| there + more > most);
            if exceeds(0, more.tasks, tasks_max) || exceeds(0, more.bytes, bytes_max) {
                return Err(beyond(queue, more, tasks_max, bytes_max));
            }
            if exceeds(there.tasks, more.tasks, tasks_max) {
                let most = tasks_max.unwrap_or_default();
                return Err(full(queue, &format!("about {} of {most} tasks have not ended", there.tasks)));
            }
            if exceeds(there.bytes, more.bytes, bytes_max) {
                let most = bytes_max.unwrap_or_default();
                let taken = format!("tasks that have not ended take about {} of {most} bytes", there.bytes);
                return Err(full(queue, &taken));
            }
        }
        Ok(())
    }

    /// Whether this node holds a task with its spec.
    pub(crate) fn has_spec(&self, id: &TaskId) -> bool {
        self.partitions.get(&self.partition_of(id)).is_some_and(|replica| !replica.store.lacks_spec(id))
    }

    fn limits_of(&self, queue: &QueueName) -> (Option<u64>, Option<u64>) {
        self.roster.policies.get(queue).map_or((None, None), |policy| (policy.tasks_max, policy.bytes_max))
    }

    /// Size of a queue's tasks that have not ended: the sum over the partitions held here, scaled up to all partitions.
    fn size_of(&self, queue: &QueueName) -> QueueSize {
        let held =
            self.partitions.values().filter(|replica| replica.id != PartitionId::METADATA && !replica.is_blank());
        let (mut partitions, mut size) = (0, QueueSize::default());
        for replica in held {
            partitions += 1;
            if let Some(index) = replica.store.index().queue(queue) {
                size.tasks += index.open_count();
                size.bytes += index.open_bytes;
            }
        }
        let all = self.genesis.as_ref().map_or(0, |genesis| u64::from(genesis.partitions));
        let whole = |part: u64| (part * all).checked_div(partitions).unwrap_or_default();
        QueueSize { tasks: whole(size.tasks), bytes: whole(size.bytes) }
    }
}

/// The error for tasks that would never fit, so that retrying is futile.
fn beyond(queue: &QueueName, more: QueueSize, tasks_max: Option<u64>, bytes_max: Option<u64>) -> Error {
    let most = |most: Option<u64>, what: &str| most.map(|most| format!("{most} {what}"));
    let most: Vec<String> = [most(tasks_max, "tasks"), most(bytes_max, "bytes")].into_iter().flatten().collect();
    let tasks = if more.tasks == 1 { "1 task".to_owned() } else { format!("{} tasks", more.tasks) };
    let message = format!(
        "{tasks} of {} bytes, with all that a task is beside its data, are more than queue {queue} ever has room for, which is {}; \
         hand in fewer in one call, or let more in: `queue set`",
        more.bytes,
        most.join(" and ")
    );
    Error::invalid(message)
}

fn full(queue: &QueueName, what: &str) -> Error {
    let message = format!("queue {queue} is full: {what}; try again when some have ended, or let more in: `queue set`");
    Error::new(ErrorCode::Overloaded, message)
}
