//! A full queue takes no more tasks from clients, as long as nothing fails: once a task has been on some disk for a second, and no
//! node knows that it has ended, every node has heard of it and counts it.
//!
//! Members of groups, and tasks that belong to existing tasks, are always taken, and count for those that come later.

use super::Property;
use super::dependencies::Ends;
use crate::history::{Happening, History, Moment};
use norn_model::record::Record;
use norn_model::task::whole_bytes;
use norn_wire::request::{Request, Spec};
use norn_wire::{QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Time after which every node has heard of what is on some disk.
const HEARD_US: u64 = 1_000_000;

/// A task that has not ended.
#[derive(Debug)]
struct Open {
    since_us: u64,
    bytes: u64,
}

/// Limits of a queue.
#[derive(Debug, Default, PartialEq, Eq)]
struct Most {
    tasks: Option<u64>,
    bytes: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Room {
    /// Nothing fails, and every node holds every partition.
    judges: bool,
    most: BTreeMap<QueueName, Most>,
    /// When the last node so far heard of the limits.
    set_us: u64,
    /// Tasks enqueued by clients that are members of no group.
    asked: BTreeSet<TaskId>,
    seen: BTreeSet<TaskId>,
    open: BTreeMap<QueueName, BTreeMap<TaskId, Open>>,
    ends: Ends,
}

impl Room {
    /// Takes in a task whose spec is logged for the first time.
    fn arrives(&mut self, id: TaskId, spec: &Spec, now_us: u64) -> Result<(), String> {
        let open = self.open.entry(spec.queue.clone()).or_default();
        open.retain(|other, _| !self.ends.has(other));
        let heard = || open.values().filter(|other| other.since_us + HEARD_US <= now_us);
        let (tasks, bytes) = (heard().count() as u64, heard().map(|other| other.bytes).sum::<u64>());
        let own = u64::from(whole_bytes(spec));
        let most = self.most.get(&spec.queue).filter(|_| self.asked.contains(&id));
        if let Some(most) = most.filter(|_| self.set_us + 2 * HEARD_US <= now_us)
            && (most.tasks.is_some_and(|most| tasks >= most) || most.bytes.is_some_and(|most| bytes + own > most))
        {
            return Err(format!(
                "task {id} of {own} bytes is taken by queue {}, which has {tasks} tasks of {bytes} bytes, of {most:?}",
                spec.queue
            ));
        }
        open.insert(id, Open { since_us: now_us, bytes: own });
        Ok(())
    }

    fn write(&mut self, history: &History, record: &Record, now_us: u64) -> Result<(), String> {
        match record {
            Record::Roster(roster) => {
                let most = roster
                    .policies
                    .iter()
                    .map(|(queue, policy)| (queue.clone(), Most { tasks: policy.tasks_max, bytes: policy.bytes_max }));
                (self.most, self.set_us) = (most.collect(), now_us);
            }
            Record::Facts { items, .. } => {
                for (id, _) in items.iter().filter(|(_, task)| task.spec.is_some()) {
                    if let Some(spec) = history.specs.get(id)
                        && self.seen.insert(*id)
                    {
                        self.arrives(*id, spec, now_us)?;
                    }
                }
            }
            _ => {}
        }
        self.ends.learn(record);
        Ok(())
    }
}

impl Property for Room {
    fn name(&self) -> &'static str {
        "room"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.judges = terms.calm && terms.everywhere,
            _ if !self.judges => {}
            Happening::Sent { request: Request::Enqueue { tasks, .. } } => {
                let member = |spec: &Spec| spec.grouping.as_ref().is_some_and(|grouping| grouping.member.is_some());
                self.asked.extend(tasks.iter().filter(|task| !member(&task.spec)).map(|task| task.id));
            }
            Happening::Appended { records, .. } => {
                for record in *records {
                    self.write(history, record, moment.time_us)?;
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
    use norn_engine::Ticket;
    use norn_model::task::{Cancel, Task};
    use norn_wire::PartitionId;
    use norn_wire::membership::{QueuePolicy, Roster};
    use std::sync::Arc;

    fn append(bench: &mut Bench<Room>, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    fn write(bench: &mut Bench<Room>, number: u32, task: Task) -> Result<(), String> {
        append(bench, Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(number), task)]) })
    }

    fn arrive(bench: &mut Bench<Room>, number: u32) -> Result<(), String> {
        bench.see(Happening::Sent { request: &enqueue(number) }).unwrap();
        write(bench, number, Task::from_spec(Arc::new(spec())))
    }

    fn bench(policy: QueuePolicy) -> Bench<Room> {
        let mut bench = Bench::new();
        let terms = Terms { calm: true, everywhere: true, ..Terms::default() };
        bench.see(Happening::Founded(terms)).unwrap();
        let policies = BTreeMap::from([(spec().queue, policy)]);
        append(&mut bench, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
        bench.pass(2 * HEARD_US);
        bench
    }

    #[test]
    fn a_task_too_many_is_refused() {
        let mut bench = bench(QueuePolicy { tasks_max: Some(2), ..QueuePolicy::default() });
        arrive(&mut bench, 1).unwrap();
        arrive(&mut bench, 2).unwrap();
        arrive(&mut bench, 3).expect("who takes it need not have heard of those before");
        bench.pass(HEARD_US);
        assert!(arrive(&mut bench, 4).is_err());
        for number in [1, 2] {
            let cancel = Cancel { dead: false, reason: String::new(), at_ms: 1 };
            write(&mut bench, number, Task::from_cancel(cancel)).unwrap();
        }
        assert!(arrive(&mut bench, 5).is_ok(), "one is left");
    }

    #[test]
    fn bytes_too_many_are_refused() {
        let most = 2 * u64::from(whole_bytes(&spec()));
        let mut bench = bench(QueuePolicy { bytes_max: Some(most), ..QueuePolicy::default() });
        arrive(&mut bench, 1).unwrap();
        bench.pass(HEARD_US);
        arrive(&mut bench, 2).unwrap();
        bench.pass(HEARD_US);
        assert!(arrive(&mut bench, 3).is_err());
    }
}
