//! No strictly acknowledged fact is lost: a later reader finds it, and every replica has it once all is quiet. A sloppily
//! acknowledged fact is on all replicas, too, once all is quiet, unless a disk has lost it, or it came back to replicas that may have
//! forgotten its task. (ARCHITECTURE.md I-11, I-12)

use super::Property;
use crate::adapter::Call;
use crate::history::{Fact, Finished, Happening, History, Moment, Store, facts_of, unchanging};
use norn_engine::Observation;
use norn_model::record::Record;
use norn_wire::request::Request;
use norn_wire::response::{Response, State};
use norn_wire::{Error, ErrorCode, TaskId};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Lost {
    /// Facts that each node wrote to its log.
    held: BTreeMap<usize, BTreeSet<(TaskId, Fact)>>,
    /// Facts that some disk lost.
    damaged: BTreeSet<(TaskId, Fact)>,
    /// Tasks that some node has forgotten, or whose hint cannot be handed over.
    gone: BTreeSet<TaskId>,
}

fn facts_in(records: &[Record]) -> impl Iterator<Item = (TaskId, Fact)> {
    let items = records.iter().filter_map(|record| match record {
        Record::Facts { items, .. } | Record::Hint { items, .. } => Some(items),
        _ => None,
    });
    items.flat_map(|items| items.iter().flat_map(|(id, task)| facts_of(task).into_iter().map(|fact| (*id, fact))))
}

fn read(history: &History, id: &TaskId, submitted: Moment, result: &Result<Response, Error>) -> Result<(), String> {
    let known = history.specs.get(id).and_then(|spec| {
        let fact = Fact::Spec(crate::history::spec_hash(spec));
        history.strict.get(&(*id, fact))
    });
    match result {
        Err(error) | Ok(Response::Error(error))
            if error.code == ErrorCode::NotFound
                && !history.buried.contains(id)
                && known.is_some_and(|known| *known < submitted) =>
        {
            return Err(format!("task {id} was confirmed, but a reader is told that there is no such task"));
        }
        Ok(Response::Task(view)) => {
            let over = matches!(view.state, State::Done | State::Dead | State::Cancelled);
            if !over && history.ended(id).is_some_and(|ended| ended < submitted) {
                return Err(format!("task {id} had ended for sure, but a reader is told that it is {}", view.state));
            }
            let is_told = !view.lost.is_some_and(|lost| lost.payload);
            if is_told && history.specs.get(id).map(unchanging) != Some(unchanging(&view.spec)) {
                return Err(format!("task {id} is shown with other content than enqueued"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn settled(lost: &Lost, history: &History, stores: &[Store]) -> Result<(), String> {
    for store in stores {
        let known: BTreeSet<(TaskId, Fact)> =
            store.tasks.iter().flat_map(|(id, task)| facts_of(task).into_iter().map(|fact| (*id, fact))).collect();
        let missing = history
            .strict
            .keys()
            .filter(|(id, _)| history.partition(id) == store.view.partition && !history.buried.contains(id))
            .find(|(id, fact)| !known.contains(&(*id, *fact)));
        if let Some((id, fact)) = missing {
            return Err(format!("{fact:?} of task {id} was confirmed, but node {} does not have it", store.node));
        }
        let due = |key: &&(TaskId, Fact)| {
            let buried = history.buried.contains(&key.0) || lost.gone.contains(&key.0);
            history.partition(&key.0) == store.view.partition && !buried && !lost.damaged.contains(key)
        };
        if let Some((id, fact)) = history.sloppy.iter().filter(due).find(|key| !known.contains(key)) {
            return Err(format!("{fact:?} of task {id} was on some disk, but node {} does not have it", store.node));
        }
    }
    Ok(())
}

// S5, S13
impl Property for Lost {
    fn name(&self) -> &'static str {
        "lost"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Finished(Finished {
                call: Call::Request(Request::Get { id, .. } | Request::Wait { id, .. }),
                submitted,
                result,
                ..
            }) => read(history, id, *submitted, result),
            Happening::Settled { stores } => settled(self, history, stores),
            Happening::Damaged { lost, .. } => {
                self.damaged.extend(facts_in(lost));
                Ok(())
            }
            Happening::Spoiled { node, left } => {
                let left: BTreeSet<(TaskId, Fact)> = facts_in(left).collect();
                let held = self.held.entry(*node).or_default();
                self.damaged.extend(held.difference(&left));
                *held = left;
                Ok(())
            }
            Happening::Gone { node } => {
                self.damaged.extend(self.held.remove(node).unwrap_or_default());
                Ok(())
            }
            Happening::Appended { node, records, .. } => {
                self.held.entry(*node).or_default().extend(facts_in(records));
                for record in *records {
                    if let Record::Forgot { ids, .. } = record {
                        self.gone.extend(ids);
                    }
                }
                Ok(())
            }
            Happening::Observed { observation: Observation::HintOrphaned { id, .. }, .. } => {
                // `durability` checks that no member has it.
                self.gone.insert(*id);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::ReplicaView;
    use norn_engine::Ticket;
    use norn_model::task::{Task, Tombstone};
    use norn_wire::PartitionId;
    use norn_wire::request::Acks;
    use norn_wire::response::Guarantee;
    use std::sync::Arc;

    fn get() -> Request {
        Request::Get { id: id(1), minimum: None, minimum_sequence: None }
    }

    #[test]
    fn a_confirmed_task_that_a_reader_does_not_find_is_lost() {
        let mut bench = Bench::<Lost>::new();
        let unknown = || Err(Error::new(ErrorCode::NotFound, "no such task"));
        let before = bench.now();
        bench.enqueued(1);
        let after = Moment { sequence: bench.now().sequence + 1, ..bench.now() };
        assert!(bench.finish_call(Call::Request(get()), before, unknown()).is_ok());
        assert!(bench.finish_call(Call::Request(get()), after, unknown()).is_err());
    }

    #[test]
    fn what_is_buried_need_not_be_found() {
        let mut bench = Bench::<Lost>::new();
        bench.enqueued(1);
        let tombstone = Task::from_tombstone(Tombstone { state: State::Done, at_ms: 1 });
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), tombstone)]) }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records }).unwrap();
        let unknown = Err(Error::new(ErrorCode::NotFound, "no such task"));
        let after = Moment { sequence: bench.now().sequence + 1, ..bench.now() };
        assert!(bench.finish_call(Call::Request(get()), after, unknown).is_ok());
    }

    #[test]
    fn a_confirmed_fact_that_a_replica_lacks_is_lost() {
        let mut bench = Bench::<Lost>::new();
        bench.enqueued(1);
        let task = Task::from_spec(Arc::new(spec()));
        let store = |tasks| Store { node: 0, view: ReplicaView::default(), tasks, wall_ms: 0 };
        let whole = store(BTreeMap::from([(id(1), task.clone())]));
        assert!(bench.see(Happening::Settled { stores: std::slice::from_ref(&whole) }).is_ok());
        assert!(bench.see(Happening::Settled { stores: &[whole.clone(), store(BTreeMap::new())] }).is_err());
        bench.cancelled(1);
        assert!(bench.see(Happening::Settled { stores: &[whole] }).is_err(), "the cancellation is missing");
    }

    #[test]
    fn what_some_disk_was_said_to_have_gets_to_all_unless_that_disk_lost_it() {
        let mut bench = Bench::<Lost>::new();
        bench.see(Happening::Sent { request: &enqueue(1) }).unwrap();
        let call = Call::Enqueue { drafts: Vec::new(), acks: Acks::One };
        let sloppy = Response::Acked(vec![Ok(acked(1, 1, Guarantee::Sloppy))]);
        bench.finish_call(call, bench.now(), Ok(sloppy)).unwrap();
        let nothing = [Store { node: 0, view: ReplicaView::default(), tasks: BTreeMap::new(), wall_ms: 0 }];
        assert!(bench.see(Happening::Settled { stores: &nothing }).is_err());
        let items = Arc::new(vec![(id(1), Task::from_spec(Arc::new(spec())))]);
        let lost = [Record::Hint { partition: PartitionId(0), since_ms: 1, items }];
        bench.see(Happening::Damaged { node: 3, lost: &lost, left: &[] }).unwrap();
        assert!(bench.see(Happening::Settled { stores: &nothing }).is_ok());
    }
    #[test]
    fn what_a_node_had_goes_with_its_disk() {
        for gone in [true, false] {
            let mut bench = Bench::<Lost>::new();
            bench.see(Happening::Sent { request: &enqueue(1) }).unwrap();
            let items = Arc::new(vec![(id(1), Task::from_spec(Arc::new(spec())))]);
            let records = [Record::Facts { partition: PartitionId(0), items }];
            bench.see(Happening::Appended { node: 3, ticket: Ticket(1), records: &records }).unwrap();
            let call = Call::Enqueue { drafts: Vec::new(), acks: Acks::One };
            let sloppy = Response::Acked(vec![Ok(acked(1, 1, Guarantee::Sloppy))]);
            bench.finish_call(call, bench.now(), Ok(sloppy)).unwrap();
            let nothing = [Store { node: 0, view: ReplicaView::default(), tasks: BTreeMap::new(), wall_ms: 0 }];
            bench.see(Happening::Spoiled { node: 3, left: &records }).unwrap();
            assert!(bench.see(Happening::Settled { stores: &nothing }).is_err(), "it still has it");
            let loss = if gone { Happening::Gone { node: 3 } } else { Happening::Spoiled { node: 3, left: &[] } };
            bench.see(loss).unwrap();
            assert!(bench.see(Happening::Settled { stores: &nothing }).is_ok());
        }
    }
}
