//! Once a completion is strictly acknowledged, every task that it brought is enqueued sooner or later, as it was given; and no
//! other task is enqueued in its name. (ARCHITECTURE.md I-17)

use super::Property;
use crate::history::{Fact, Happening, History, Moment, Store, spec_hash};
use norn_client::wire::request::{NewTask, Request};
use norn_client::wire::{TaskId, Token};
use norn_node::protocol::{Observation, Record};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug, Default)]
pub struct Children {
    /// By the completion that brings them.
    brought: BTreeMap<(TaskId, Token), Vec<NewTask>>,
    /// All of them, by the hash of what they are.
    hashes: BTreeMap<TaskId, u64>,
    /// That some node ever had, on their own.
    seen: BTreeSet<TaskId>,
    /// Wall clocks may be hours off: then a child may be older than what was forgotten when it is enqueued.
    wild: bool,
    /// Tasks of which a node has said so.
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
        }
        Ok(())
    }

    fn appended(&mut self, records: &[Record]) -> Result<(), String> {
        for record in records {
            let Record::Facts { items, .. } = record else { continue };
            for (id, task) in items.iter() {
                let (Some(hash), Some(spec)) = (self.hashes.get(id), &task.spec) else { continue };
                if spec_hash(spec) != *hash {
                    return Err(format!("child {id} is not what its parent brought"));
                }
                self.seen.insert(*id);
            }
        }
        Ok(())
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
                // What was buried may be forgotten everywhere.
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
    use norn_client::wire::PartitionId;
    use norn_client::wire::request::{Acks, Completion};
    use norn_client::wire::response::{Guarantee, Response};
    use norn_node::protocol::task::Task;
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
        let other = Task::from_spec(Arc::new(norn_client::wire::Spec { priority: 9, ..spec() }));
        let records = [Record::Facts { partition: PartitionId(0), items: Arc::new(vec![(id(2), other)]) }];
        let appended = Happening::Appended { node: 0, ticket: norn_node::protocol::Ticket(1), records: &records };
        assert!(bench.see(appended).is_err());
    }
}
