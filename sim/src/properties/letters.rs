//! A task that its leader gave up has one letter where its queue has a dead-letter queue, whoever leads from then on; a task has
//! one letter at most; and once a redrive is strictly acknowledged, the copy that it names is enqueued sooner or later.
//!
//! A letter is owed where all nodes had heard of the queue's when the task was given up, and is excused where a leader says that
//! it came too late to write it, where operators had the task redriven, and where it was completed or cancelled all the same.

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment};
use norn_client::wire::membership::Roster;
use norn_client::wire::response::{Guarantee, Response};
use norn_client::wire::{Request, TaskId, headers};
use norn_node::protocol::Observation;
use norn_node::protocol::consistent::table::Op;
use norn_node::protocol::record::Record;
use norn_node::protocol::task::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub struct Letters {
    known: BTreeMap<usize, Arc<Roster>>,
    /// Given up where all knew of the dead-letter queue, by an operation that may not have been committed.
    given_up: BTreeSet<TaskId>,
    /// That became facts.
    dead: BTreeSet<TaskId>,
    excused: BTreeSet<TaskId>,
    /// By the task that died.
    letters: BTreeMap<TaskId, TaskId>,
    redriven: BTreeSet<TaskId>,
    /// Copies that operators were told of.
    told: BTreeSet<TaskId>,
    /// That some node ever had.
    seen: BTreeSet<TaskId>,
}

impl Letters {
    fn appended(&mut self, history: &History, node: usize, records: &[Record]) -> Result<(), String> {
        for record in records {
            match record {
                Record::Roster(roster) => drop(self.known.insert(node, roster.clone())),
                Record::Facts { items, .. } => items.iter().try_for_each(|(id, task)| self.learned(*id, task))?,
                Record::Ops { ops, .. } => {
                    for op in ops.iter() {
                        if let Op::Kill { id, .. } = &**op
                            && self.is_owed(history, id)
                        {
                            self.given_up.insert(*id);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_owed(&self, history: &History, id: &TaskId) -> bool {
        let Some(spec) = history.specs.get(id).filter(|spec| !spec.is_letter()) else { return false };
        let knows =
            |roster: &Arc<Roster>| roster.policies.get(&spec.queue).is_some_and(|policy| policy.dead_letter.is_some());
        self.known.len() >= history.places() && self.known.values().all(knows)
    }

    fn learned(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.facts.as_ref().is_some_and(|facts| facts.cancel.as_ref().is_some_and(|cancel| cancel.dead)) {
            self.dead.insert(id);
        }
        // A completion shows over death, and a person's word over the leader's.
        if task
            .facts
            .as_ref()
            .is_some_and(|facts| facts.winner().is_some() || facts.cancel.as_ref().is_some_and(|cancel| !cancel.dead))
        {
            self.excused.insert(id);
        }
        let Some(spec) = &task.spec else { return Ok(()) };
        self.seen.insert(id);
        let named = |name| spec.header(name).and_then(|text| text.parse::<TaskId>().ok());
        if let Some(died) = named(headers::REDRIVEN_FROM) {
            self.redriven.insert(died);
        }
        let Some(died) = named(headers::DEAD_TASK) else { return Ok(()) };
        match self.letters.insert(died, id) {
            Some(other) if other != id => Err(format!("{other} and {id} are letters of {died}")),
            _ => Ok(()),
        }
    }

    fn settled(&self) -> Result<(), String> {
        if let Some(copy) = self.told.iter().find(|copy| !self.seen.contains(copy)) {
            return Err(format!("{copy}, as which a task was redriven, was never enqueued"));
        }
        let over =
            |id: &TaskId| self.letters.contains_key(id) || self.redriven.contains(id) || self.excused.contains(id);
        match self.given_up.intersection(&self.dead).find(|id| !over(id)) {
            Some(id) => Err(format!("{id} was given up and has no letter")),
            None => Ok(()),
        }
    }
}

impl Property for Letters {
    fn name(&self) -> &'static str {
        "letters"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { node, records, .. } => self.appended(history, *node, records),
            // What it had heard may be lost.
            Happening::Crashed { node } | Happening::Gone { node } => {
                self.known.remove(node);
                Ok(())
            }
            Happening::Observed { observation: Observation::LetterRefused { id, .. }, .. } => {
                self.excused.insert(*id);
                Ok(())
            }
            Happening::Finished(Finished { call: Call::Request(Request::Redrive { .. }), result, .. }) => {
                if let Ok(Response::AckedOne(acked)) = result
                    && acked.guarantee == Guarantee::Strict
                {
                    self.told.insert(acked.id);
                }
                Ok(())
            }
            Happening::Settled { .. } => self.settled(),
            _ => Ok(()),
        }
    }
}
