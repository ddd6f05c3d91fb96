//! Once a completion is strictly acknowledged, each child task that it brought is eventually enqueued as it was given, and no other
//! task is enqueued in its name. Of completions that need a seal only the sealed one brings any. (ARCHITECTURE.md I-17)

use super::Property;
use crate::history::{Fact, Happening, History, Moment, Store, spec_hash};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::request::{NewTask, Request};
use norn_wire::{TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Children {
    /// Children by the completion that brings them.
    brought: BTreeMap<(TaskId, Token), Vec<NewTask>>,
    /// Hash of each child's spec.
    hashes: BTreeMap<TaskId, u64>,
    /// Each child's parent, and the token of the parent's completion that brings it.
    parents: BTreeMap<TaskId, (TaskId, Token)>,
    /// Children that some node ever had as tasks of their own.
    seen: BTreeSet<TaskId>,
    /// The completion that counts, of each task whose completions need a seal.
    seals: BTreeMap<TaskId, Token>,
    /// Wall clocks may be hours off: then a child may be older than the forgotten tasks by the time it is enqueued.
    wild: bool,
    /// Tasks whose children some node has refused.
    refused: BTreeSet<TaskId>,
}

impl Children {
    fn sent(&mut self, request: &Request) -> Result<(), String> {
        let Request::Complete { items, .. } = request else { return Ok(()) };
        for item in items.iter().filter(|item| !item.children.is_empty()) {
            let before = self.brought.entry((item.id, item.token)).or_insert_with(|| item.children.clone());
            if *before != item.children {
                return Err(format!("the completion of {} under {} was sent with other children", item.id, item.token));
            }
            self.hashes.extend(item.children.iter().map(|child| (child.id, spec_hash(&child.spec))));
            self.parents.extend(item.children.iter().map(|child| (child.id, (item.id, item.token))));
        }
        Ok(())
    }

    fn appended(&mut self, records: &[Record]) -> Result<(), String> {
        for record in records {
            match record {
                Record::Facts { items, .. } => items.iter().try_for_each(|(id, task)| self.learned(*id, task))?,
                Record::Ops { ops, .. } => {
                    for op in ops {
                        let Op::Drop { items } = &**op else { continue };
                        items.iter().for_each(|ended| self.sealed(ended.id, &ended.facts));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sealed(&mut self, id: TaskId, task: &Task) {
        self.seals.extend(task.facts.as_ref().and_then(|facts| facts.seal).map(|seal| (id, seal)));
    }

    fn learned(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        self.sealed(id, task);
        let (Some(hash), Some(spec)) = (self.hashes.get(&id), &task.spec) else { return Ok(()) };
        if spec_hash(spec) != *hash {
            return Err(format!("child {id} is not what its parent brought"));
        }
        self.seen.insert(id);
        let (parent, token) = self.parents[&id];
        match token.needs_seal() && self.seals.get(&parent) != Some(&token) {
            true => Err(format!("child {id} of {parent} is enqueued, and the completion under {token} is not sealed")),
            false => Ok(()),
        }
    }

    fn settled(&self, history: &History, stores: &[Store]) -> Result<(), String> {
        for ((parent, token), children) in &self.brought {
            let told = history.strict.contains_key(&(*parent, Fact::Completion(*token)));
            if !told || self.wild && self.refused.contains(parent) {
                continue;
            }
            for child in children {
                let partition = history.partition(&child.id);
                let there = stores.iter().filter(|store| store.view.partition == partition);
                let held = there.clone().all(|store| store.tasks.contains_key(&child.id));
                // A buried task may be forgotten everywhere.
                let gone = history.buried.contains(&child.id) && self.seen.contains(&child.id);
                if !held && !gone {
                    return Err(format!("child {} of {parent}, completed under {token}, does not exist", child.id));
                }
            }
        }
        Ok(())
    }
}

impl Property for Children {
    fn name(&self) -> &'static str {
        "children"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => {
                self.wild = terms.wild;
                Ok(())
            }
            Happening::Observed { observation: Observation::ChildRefused { id, .. }, .. } => {
                self.refused.insert(*id);
                Ok(())
            }
            Happening::Sent { request } => self.sent(request),
            Happening::Appended { records, .. } => self.appended(records),
            Happening::Settled { stores } => self.settled(history, stores),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::adapter::ReplicaView;
    use norn_model::task::Completed;
    use norn_wire::PartitionId;
    use norn_wire::request::{Acks, Completion};
    use norn_wire::response::{Guarantee, Response};
    use std::sync::Arc;

    #[test]
    fn a_child_that_is_missing_or_another_is_refused() {
        let child = NewTask { id: id(2), spec: spec() };
        let completion =
            Completion { id: id(1), token: token(1, 1), sequence: None, result: None, at_ms: 1, children: vec![child] };
        let request = Request::Complete { items: vec![completion], acks: Acks::Quorum };
        let store = |tasks| Store { node: 0, view: ReplicaView::default(), tasks, wall_ms: 0 };
        let whole = Task::from_spec(Arc::new(spec()));
        let mut bench = Bench::<Children>::new();
        bench.see(Happening::Sent { request: &request }).unwrap();
        let empty = [store(BTreeMap::new())];
        assert!(bench.see(Happening::Settled { stores: &empty }).is_ok(), "nobody was told yet");
        let now = bench.now();
        bench.finish(request, now, Response::Acked(vec![Ok(acked(1, 2, Guarantee::Strict))])).unwrap();
        assert!(bench.see(Happening::Settled { stores: &empty }).is_err());
        let full = [store(BTreeMap::from([(id(2), whole)]))];
        assert!(bench.see(Happening::Settled { stores: &full }).is_ok());
        let other = Task::from_spec(Arc::new(norn_wire::Spec { priority: 9, ..spec() }));
        assert!(append(&mut bench, 2, other).is_err());
    }

    fn append(bench: &mut Bench<Children>, number: u32, task: Task) -> Result<(), String> {
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(number), task)]) }];
        bench.see(Happening::Appended { node: 0, ticket: norn_engine::Ticket(1), records: &records })
    }

    #[test]
    fn a_child_of_a_completion_that_is_not_sealed_is_refused() {
        let mut bench = Bench::<Children>::new();
        let sealed = |number| Token { epoch: 1, number: Token::SEALED_FROM + number };
        for number in [1, 2] {
            let children = vec![NewTask { id: id(number + 1), spec: spec() }];
            let token = sealed(u64::from(number));
            let completion = Completion { id: id(1), token, sequence: None, result: None, at_ms: 1, children };
            let request = Request::Complete { items: vec![completion], acks: Acks::Quorum };
            bench.see(Happening::Sent { request: &request }).unwrap();
        }
        let whole = || Task::from_spec(Arc::new(spec()));
        assert!(append(&mut bench, 2, whole()).is_err(), "nothing is sealed");
        let done = Completed { sequence: None, result: None, at_ms: 1, children: None };
        append(&mut bench, 1, Task::from_seal(sealed(2), done)).unwrap();
        assert!(append(&mut bench, 2, whole()).is_err());
        assert!(append(&mut bench, 3, whole()).is_ok());
    }
}
