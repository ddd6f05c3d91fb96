//! No strictly acknowledged fact is lost: not to a reader that asks afterwards, not on any replica once all is quiet.
//! (ARCHITECTURE.md I-11)

use super::Property;
use crate::adapter::Call;
use crate::history::{Fact, Finished, Happening, History, Moment, Store, facts_of};
use norn_client::wire::request::Request;
use norn_client::wire::response::{Response, State};
use norn_client::wire::{Error, ErrorCode, TaskId};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug, Default)]
pub struct Lost;

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
            if history.specs.get(id) != Some(&view.spec) {
                return Err(format!("task {id} is shown with other content than enqueued"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn settled(history: &History, stores: &[Store]) -> Result<(), String> {
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
    }
    Ok(())
}

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
            Happening::Settled { stores } => settled(history, stores),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::ReplicaView;
    use norn_client::wire::PartitionId;
    use norn_node::protocol::task::{Task, Tomb};
    use norn_node::protocol::{Record, Ticket};
    use std::collections::BTreeMap;
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
        let tomb = Task::from_tomb(Tomb { state: State::Done, at_ms: 1 });
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(1), tomb)]) }];
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
        let store = |tasks| Store { node: 0, view: ReplicaView::default(), tasks };
        let whole = store(BTreeMap::from([(id(1), task.clone())]));
        assert!(bench.see(Happening::Settled { stores: std::slice::from_ref(&whole) }).is_ok());
        assert!(bench.see(Happening::Settled { stores: &[whole.clone(), store(BTreeMap::new())] }).is_err());
        bench.cancelled(1);
        assert!(bench.see(Happening::Settled { stores: &[whole] }).is_err(), "the cancellation is missing");
    }
}
