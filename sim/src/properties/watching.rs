//! A client that watches a queue learns of each ending after its watch began, unless an answer says that the watch lags: then the
//! watch begins anew. Judged once all is settled and the watch has nothing left to report. Every ending that it reports is true.

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment};
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::request::Request;
use norn_wire::response::{Response, State};
use norn_wire::{QueueName, Subject, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Endings in one queue that one client learned of.
#[derive(Debug, Default)]
struct Watch {
    began: Moment,
    told: BTreeSet<TaskId>,
}

#[derive(Debug, Default)]
pub struct Watching {
    watches: BTreeMap<(usize, QueueName), Watch>,
    /// When the first node logged that a task has ended.
    ended: BTreeMap<TaskId, Moment>,
    /// When all was settled, and which tasks had ended by then.
    settled: Option<(Moment, BTreeSet<TaskId>)>,
}

impl Watching {
    fn note(&mut self, moment: Moment, record: &Record) {
        let mut note = |id: &TaskId| {
            self.ended.entry(*id).or_insert(moment);
        };
        match record {
            Record::Facts { items, .. } | Record::Hint { items, .. } => {
                items.iter().filter(|(_, task)| task.ended().is_some()).for_each(|(id, _)| note(id));
            }
            Record::Ops { ops, .. } => {
                for op in ops {
                    if let Op::Drop { items } = &**op {
                        items.iter().filter(|item| item.facts.ended().is_some()).for_each(|item| note(&item.id));
                    }
                }
            }
            _ => {}
        }
    }

    fn judge(&self, history: &History, queue: &QueueName, watch: &Watch) -> Result<(), String> {
        let Some((_, ended)) = &self.settled else { return Ok(()) };
        let of_queue = |id: &&TaskId| history.specs.get(*id).is_some_and(|spec| spec.queue == *queue);
        let later = |id: &&TaskId| self.ended.get(*id).is_some_and(|moment| *moment > watch.began);
        if let Some(id) = ended.iter().filter(of_queue).filter(later).find(|id| !watch.told.contains(*id)) {
            return Err(format!("task {id} has ended, and whoever watches {queue} was neither told nor that it lags"));
        }
        let false_ending = watch.told.iter().find(|id| !ended.contains(*id) && !self.ended.contains_key(*id));
        false_ending.map_or(Ok(()), |id| Err(format!("task {id} has not ended, but who watches {queue} was told so")))
    }
}

impl Property for Watching {
    fn name(&self) -> &'static str {
        "watching"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => records.iter().for_each(|record| self.note(moment, record)),
            Happening::Settled { stores } => {
                let tasks = stores.iter().flat_map(|store| &store.tasks);
                // An ending is not due where no replica knows which queue its task is in.
                let is_told = |task: &Task| task.ended().is_some() && (task.spec.is_some() || task.tombstone.is_some());
                let ended = tasks.filter(|(_, task)| is_told(task)).map(|(id, _)| *id).collect();
                self.settled = Some((moment, ended));
            }
            Happening::Finished(Finished {
                client,
                call: Call::Request(Request::Watch { subject: Subject::Queue(queue), cursor, .. }),
                submitted,
                result: Ok(Response::Watched(watched)),
            }) => {
                let watch = self.watches.entry((*client, queue.clone())).or_default();
                if cursor.is_none() || watched.lagged {
                    watch.began = moment;
                }
                let ending = |state| matches!(state, State::Done | State::Dead | State::Cancelled);
                watch.told.extend(watched.events.iter().filter(|event| ending(event.state)).map(|event| event.id));
                let all = self.settled.as_ref().is_some_and(|(settled, _)| submitted > settled);
                if all && watched.events.is_empty() && !watched.lagged {
                    return self.judge(history, queue, &self.watches[&(*client, queue.clone())]);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{Bench, id, spec};
    use super::*;
    use norn_engine::Ticket;
    use norn_model::task::Cancel;
    use norn_wire::{PartitionId, WatchCursor, WatchEvent, Watched};
    use std::sync::Arc;

    struct Watches {
        bench: Bench<Watching>,
        cursor: Option<WatchCursor>,
    }

    impl Watches {
        fn new() -> Watches {
            let mut bench = Bench::new();
            (0..3).for_each(|number| bench.enqueued(number));
            Watches { bench, cursor: None }
        }

        fn end(&mut self, number: u32) {
            let cancel = Task::from_cancel(Cancel { dead: false, reason: String::new(), at_ms: 7 });
            let items = Arc::new(vec![(id(number), cancel)]);
            let records = [Record::Facts { partition: PartitionId(0), items }];
            self.bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        }

        fn answered(&mut self, told: &[u32], lagged: bool) -> Result<(), String> {
            let queue = spec().queue;
            let event = |number: &u32| WatchEvent {
                id: id(*number),
                queue: queue.clone(),
                state: State::Cancelled,
                number: None,
                result: None,
                reason: None,
            };
            let events = told.iter().map(event).collect();
            let (subject, cursor) = (Subject::Queue(queue.clone()), self.cursor.replace(WatchCursor::default()));
            let response = Watched { events, cursor: WatchCursor::default(), lagged, silent: 0 };
            let submitted = self.bench.now();
            self.bench.finish(Request::Watch { subject, cursor, wait_ms: 1 }, submitted, Response::Watched(response))
        }

        fn settle(&mut self) {
            let moment = self.bench.now();
            let ended = self.bench.property.ended.keys().copied().collect();
            self.bench.property.settled = Some((moment, ended));
            self.bench.pass(1_000);
        }
    }

    #[test]
    fn an_ending_that_is_not_told_is_refused() {
        let mut watches = Watches::new();
        watches.end(0);
        watches.answered(&[], false).unwrap();
        watches.end(1);
        watches.answered(&[1], false).unwrap();
        watches.settle();
        watches.answered(&[], false).unwrap();
        watches.end(2);
        watches.settle();
        assert!(watches.answered(&[], false).unwrap_err().contains("neither told"));
    }

    #[test]
    fn who_lags_begins_anew() {
        let mut watches = Watches::new();
        watches.answered(&[], false).unwrap();
        watches.end(0);
        watches.answered(&[], true).unwrap();
        watches.settle();
        watches.answered(&[], false).unwrap();
    }

    #[test]
    fn an_ending_that_is_none_is_refused() {
        let mut watches = Watches::new();
        watches.answered(&[], false).unwrap();
        watches.answered(&[2], false).unwrap();
        watches.settle();
        assert!(watches.answered(&[], false).unwrap_err().contains("has not ended"));
    }
}
