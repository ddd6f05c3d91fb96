//! No two tasks that were enqueued as the only ones with their key are open at the same time.
//!
//! If a client learns that its task is enqueued, there is no other task with that key that was acknowledged before the call and has
//! not ended since. If it learns of another task instead, that one has the key and had no confirmed end before the call; and the
//! client's own task is not seen anywhere while the other is open: a repeat of the call that another leader takes may come later.

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment, acks_of};
use norn_engine::Observation;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::{QueueName, Response, TaskId};
use std::collections::{BTreeMap, BTreeSet};

type Key = (QueueName, String);

#[derive(Debug, Default)]
pub struct Unique {
    /// Tasks with keys that were strictly acknowledged, and when.
    there: BTreeMap<Key, BTreeMap<TaskId, Moment>>,
    /// Tasks that some node knows to have ended.
    ended: BTreeSet<TaskId>,
    /// Tasks that some node has.
    seen: BTreeSet<TaskId>,
    /// Tasks that were refused, each with the existing task that its client learned of.
    refused: BTreeMap<TaskId, TaskId>,
}

fn key(history: &History, id: &TaskId) -> Option<Key> {
    let spec = history.specs.get(id)?;
    Some((spec.queue.clone(), spec.key.clone()?))
}

impl Unique {
    fn store(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.ended().is_some() {
            self.ended.insert(id);
        }
        if task.spec.is_some() {
            self.seen.insert(id);
            self.check_refused(id)?;
        }
        Ok(())
    }

    fn check_refused(&self, id: TaskId) -> Result<(), String> {
        let Some(other) = self.refused.get(&id).filter(|other| !self.ended.contains(other)) else { return Ok(()) };
        if self.seen.contains(&id) {
            return Err(format!("task {id} is stored, but its client was told of {other}, which has not ended"));
        }
        Ok(())
    }

    /// Checks the acknowledgement of a task whose call was made at `submitted`.
    fn enqueued(&self, key: &Key, id: TaskId, submitted: Moment) -> Result<(), String> {
        let open =
            |(other, acked): &(&TaskId, &Moment)| **other != id && **acked < submitted && !self.ended.contains(other);
        match self.there.get(key).into_iter().flatten().find(open) {
            Some((other, _)) => Err(format!("task {id} is enqueued as the only one with its key beside {other}")),
            None => Ok(()),
        }
    }

    fn exists(&mut self, history: &History, own: &Key, id: TaskId, submitted: Moment) -> Result<(), String> {
        if key(history, &id).as_ref() != Some(own) {
            return Err(format!("somebody was told of task {id}, which has another key"));
        }
        if history.ended(&id).is_some_and(|ended| ended < submitted) {
            return Err(format!("somebody was told of task {id}, whose end was confirmed before that was asked"));
        }
        Ok(())
    }
}

// O14
impl Property for Unique {
    fn name(&self) -> &'static str {
        "unique"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { records, .. } => {
                for record in *records {
                    let Record::Facts { items, .. } = record else { continue };
                    items.iter().try_for_each(|(id, task)| self.store(*id, task))?;
                }
            }
            // A task whose body is lost for good cannot run, so it counts as ended.
            Happening::Observed { observation: Observation::BodyLost { id }, .. } => {
                self.ended.insert(*id);
            }
            Happening::Replied {
                request: norn_wire::Request::EnqueueUnique { task },
                response: Response::AckedUnique { acked, existing: true },
            } => {
                self.refused.insert(task.id, acked.id);
                self.check_refused(task.id)?;
            }
            Happening::Finished(Finished { call, submitted, result: Ok(response), .. }) => {
                for (_, acked) in acks_of(response) {
                    let Some(key) = key(history, &acked.id) else { continue };
                    match (call, response) {
                        (_, Response::AckedUnique { existing: true, .. }) => {
                            self.exists(history, &key_of(call).unwrap_or(key), acked.id, *submitted)?;
                            continue;
                        }
                        (Call::EnqueueUnique { .. }, _) => self.enqueued(&key, acked.id, *submitted)?,
                        (Call::Enqueue { .. }, _) => {}
                        _ => continue,
                    }
                    if acked.guarantee == norn_wire::Guarantee::Strict {
                        self.there.entry(key).or_default().entry(acked.id).or_insert(moment);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Key that a call asks for.
fn key_of(call: &Call) -> Option<Key> {
    match call {
        Call::EnqueueUnique { draft } => Some((draft.spec.queue.clone(), draft.spec.key.clone()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::Draft;
    use norn_engine::Ticket;
    use norn_wire::request::{NewTask, Request, Spec};
    use norn_wire::{Guarantee, PartitionId};
    use std::sync::Arc;

    fn keyed() -> Spec {
        Spec { key: Some("a".into()), ..spec() }
    }

    fn request(number: u32) -> Request {
        Request::EnqueueUnique { task: Box::new(NewTask { id: id(number), spec: keyed() }) }
    }

    /// Makes a call for task `number` that is answered with task `there`.
    fn unique(bench: &mut Bench<Unique>, number: u32, there: u32) -> Result<(), String> {
        bench.see(Happening::Sent { request: &request(number) })?;
        let submitted = bench.now();
        let acked = acked(there, 2, Guarantee::Strict);
        let response = Response::AckedUnique { acked, existing: number != there };
        bench.see(Happening::Replied { request: &request(number), response: &response })?;
        let call = Call::EnqueueUnique { draft: Box::new(Draft { id: None, spec: keyed(), delay_ms: 0, near: None }) };
        let result = Ok(response);
        bench.see(Happening::Finished(Finished { client: 0, call: &call, submitted, result: &result }))
    }

    fn stored(bench: &mut Bench<Unique>, number: u32) -> Result<(), String> {
        let items = Arc::new(vec![(id(number), Task::from_spec(Arc::new(keyed())))]);
        let records = [Record::Facts { partition: PartitionId(0), items }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records })
    }

    #[test]
    fn a_second_one_is_refused() {
        let mut bench = Bench::new();
        unique(&mut bench, 1, 1).unwrap();
        unique(&mut bench, 2, 1).unwrap();
        assert!(unique(&mut bench, 3, 3).is_err());
    }

    #[test]
    fn one_that_was_not_to_be_is_never_seen() {
        let mut bench = Bench::new();
        unique(&mut bench, 1, 1).unwrap();
        unique(&mut bench, 2, 1).unwrap();
        stored(&mut bench, 1).unwrap();
        assert!(stored(&mut bench, 2).is_err());
    }

    #[test]
    fn one_that_has_ended_is_not_told_of() {
        let mut bench = Bench::new();
        unique(&mut bench, 1, 1).unwrap();
        bench.cancelled(1);
        assert!(unique(&mut bench, 2, 1).is_err());
    }
}
