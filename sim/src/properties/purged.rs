//! A purged task has ended. While no retention has expired, only purged tasks are replaced by their tombstones.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::membership::{ClusterChange, QueueSetting};
use norn_wire::{Request, TaskId};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub struct Purged {
    retains: bool,
    /// Tasks that some node's log has as purged. A client's request is not enough: it may have been refused.
    purged: BTreeSet<TaskId>,
    /// Tasks that some node's log has as ended.
    ended: BTreeSet<TaskId>,
}

fn sets_retention(change: &ClusterChange) -> bool {
    matches!(change, ClusterChange::Queue { setting: QueueSetting::Retention(_), .. })
}

impl Purged {
    fn task(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.tombstone.is_some() {
            let is_early = self.retains && !self.purged.contains(&id);
            return if is_early { Err(format!("task {id} is buried, and nobody purged it")) } else { Ok(()) };
        }
        if task.ended().is_some() {
            self.ended.insert(id);
        }
        if !task.is_purged() {
            return Ok(());
        }
        self.purged.insert(id);
        match self.ended.contains(&id) {
            true => Ok(()),
            false => Err(format!("task {id} is purged, and nobody has said that it ended")),
        }
    }

    fn record(&mut self, record: &Record) -> Result<(), String> {
        match record {
            Record::Facts { items, .. } | Record::Hint { items, .. } => {
                items.iter().try_for_each(|(id, task)| self.task(*id, task))
            }
            Record::Ops { ops, .. } => ops.iter().try_for_each(|op| match &**op {
                Op::Drop { items } => items.iter().try_for_each(|item| self.task(item.id, &item.facts)),
                _ => Ok(()),
            }),
            _ => Ok(()),
        }
    }
}

// S27
impl Property for Purged {
    fn name(&self) -> &'static str {
        "purged"
    }

    fn see(&mut self, _history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.retains = terms.retains,
            Happening::Leapt { .. } => self.retains = false,
            Happening::Wished { change } if sets_retention(change) => self.retains = false,
            Happening::Sent { request: Request::Change { change, .. } } if sets_retention(change) => {
                self.retains = false;
            }
            Happening::Appended { records, .. } => {
                return records.iter().try_for_each(|record| self.record(record));
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
    use norn_model::task::{Cancel, Tombstone};
    use norn_wire::response::State;
    use norn_wire::{Acks, PartitionId};
    use std::sync::Arc;

    fn bench(retains: bool) -> Bench<Purged> {
        let mut bench = Bench::new();
        bench.see(Happening::Founded(Terms { retains, ..Terms::default() })).unwrap();
        bench
    }

    fn appends(bench: &mut Bench<Purged>, task: Task) -> Result<(), String> {
        let record = Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), task)]) };
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &[record] })
    }

    fn ended() -> Task {
        Task::from_cancel(Cancel { dead: false, reason: String::new(), at_ms: 1 })
    }

    fn tombstone() -> Task {
        Task::from_tombstone(Tombstone { state: State::Cancelled, at_ms: 1 })
    }

    #[test]
    fn what_has_not_ended_is_not_purged() {
        let mut bench = bench(true);
        assert!(appends(&mut bench, Task::from_purge()).is_err());
        appends(&mut bench, ended()).unwrap();
        assert!(appends(&mut bench, Task::from_purge()).is_ok());
    }

    #[test]
    fn what_nobody_purged_is_kept_as_long_as_it_is_retained() {
        for (retains, leaps, asks, purges, holds) in [
            (true, false, false, false, false),
            (true, false, true, false, false),
            (true, false, true, true, true),
            (true, true, false, false, true),
            (false, false, false, false, true),
        ] {
            let mut bench = bench(retains);
            appends(&mut bench, ended()).unwrap();
            if leaps {
                bench.see(Happening::Leapt { length_us: 1 }).unwrap();
            }
            if asks {
                let request = &Request::Purge { id: id(1), acks: Acks::One, state: None };
                bench.see(Happening::Sent { request }).unwrap();
            }
            if purges {
                appends(&mut bench, Task::from_purge()).unwrap();
            }
            assert_eq!(appends(&mut bench, tombstone()).is_ok(), holds, "{retains} {leaps} {asks} {purges}");
        }
    }
}
