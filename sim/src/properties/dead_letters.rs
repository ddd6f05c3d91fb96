//! A task that its leader gave up has a dead letter where its queue has a dead-letter queue, whichever node leads from then on. A
//! task has at most one dead letter. Once a redrive is strictly acknowledged, the copy that it names is eventually enqueued.
//!
//! A dead letter is owed where all nodes had heard of the dead-letter queue when the task was given up. It is excused where a leader says
//! that it came too late to write the dead letter, where an operator had the task redriven, and where the task was completed or cancelled
//! after all. Where wall clocks are wild it is also excused where a node says that what the task brings came too late
//! (`children.rs`).

use super::Property;
use crate::adapter::Call;
use crate::history::{Finished, Happening, History, Moment};
use norn_engine::Observation;
use norn_model::claim_table::table::Op;
use norn_model::record::Record;
use norn_model::task::{Cancel, Facts, GROUP_FAILED, Task};
use norn_wire::membership::Roster;
use norn_wire::response::{Guarantee, Response};
use norn_wire::{Request, Spec, TaskId, Token, headers};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct DeadLetters {
    known: BTreeMap<usize, Arc<Roster>>,
    /// Deaths that a leader has decided on, each by its task, claim and time. Followers append the same operation later.
    decided: BTreeSet<(TaskId, Token, u64)>,
    /// Tasks given up while all nodes knew of the dead-letter queue, by an operation that may not have been committed.
    given_up: BTreeSet<TaskId>,
    /// Tasks whose death is a fact.
    dead: BTreeSet<TaskId>,
    excused: BTreeSet<TaskId>,
    /// Letter of each dead task.
    dead_letters: BTreeMap<TaskId, TaskId>,
    redriven: BTreeSet<TaskId>,
    /// Copies that were reported to operators, with their originals.
    told: BTreeMap<TaskId, TaskId>,
    /// Tasks of which a node has said that what they bring came too late.
    refused: BTreeSet<TaskId>,
    /// Tasks that some node ever had.
    seen: BTreeSet<TaskId>,
    /// Wall clocks may be hours off: then a dead letter may be older than the forgotten tasks by the time it is enqueued.
    wild: bool,
}

impl DeadLetters {
    fn appended(&mut self, history: &History, node: usize, records: &[Record]) -> Result<(), String> {
        for record in records {
            match record {
                Record::Roster(roster) => drop(self.known.insert(node, roster.clone())),
                Record::Facts { items, .. } => items.iter().try_for_each(|(id, task)| self.learned(*id, task))?,
                Record::Ops { ops, .. } => {
                    for op in ops.iter() {
                        if let Op::Kill { id, token, at_ms, .. } = &**op
                            && self.decided.insert((*id, *token, *at_ms))
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
        let Some(spec) = history.specs.get(id).filter(|spec| !spec.is_dead_letter()) else { return false };
        let knows =
            |roster: &Arc<Roster>| roster.policies.get(&spec.queue).is_some_and(|policy| policy.dead_letter.is_some());
        self.known.len() >= history.places() && self.known.values().all(knows)
    }

    fn learned(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.facts.as_ref().is_some_and(|facts| facts.cancel.as_ref().is_some_and(|cancel| cancel.dead)) {
            self.dead.insert(id);
        }
        // A completion takes precedence over death, and a person's cancellation over the leader's; a cancellation for the group does
        // not.
        let persons = |cancel: &Cancel| !cancel.dead && cancel.reason != GROUP_FAILED;
        let over = |facts: &Facts| facts.winner().is_some() || facts.cancel.as_ref().is_some_and(persons);
        if task.facts.as_deref().is_some_and(over) {
            self.excused.insert(id);
        }
        let Some(spec) = &task.spec else { return Ok(()) };
        self.seen.insert(id);
        let named = |name| spec.header(name).and_then(|text| text.parse::<TaskId>().ok());
        if let Some(died) = named(headers::REDRIVEN_FROM) {
            self.redriven.insert(died);
        }
        let Some(died) = named(headers::DEAD_TASK).filter(|_| is_new(spec)) else { return Ok(()) };
        match self.dead_letters.insert(died, id) {
            Some(other) if other != id => Err(format!("{other} and {id} are letters of {died}")),
            _ => Ok(()),
        }
    }

    fn settled(&self) -> Result<(), String> {
        let late = |died: &TaskId| self.wild && self.refused.contains(died);
        let missing = self.told.iter().find(|(copy, died)| !self.seen.contains(*copy) && !late(died));
        if let Some((copy, _)) = missing {
            return Err(format!("{copy}, as which a task was redriven, was never enqueued"));
        }
        let excused = |id: &TaskId| self.excused.contains(id) || late(id);
        let over = |id: &TaskId| self.dead_letters.contains_key(id) || self.redriven.contains(id) || excused(id);
        match self.given_up.intersection(&self.dead).find(|id| !over(id)) {
            Some(id) => Err(format!("{id} was given up and has no letter")),
            None => Ok(()),
        }
    }
}

/// Whether a dead letter is an original, and not the copy of a redriven dead letter: the header that a copy adds comes last.
fn is_new(spec: &Spec) -> bool {
    let place = |wanted: &str| spec.headers.iter().position(|(name, _)| name == wanted);
    place(headers::DEAD_TASK) > place(headers::REDRIVEN_FROM)
}

impl Property for DeadLetters {
    fn name(&self) -> &'static str {
        "letters"
    }

    fn see(&mut self, history: &History, _moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Appended { node, records, .. } => self.appended(history, *node, records),
            // What the node had heard may be lost.
            Happening::Crashed { node } | Happening::Gone { node } => {
                self.known.remove(node);
                Ok(())
            }
            Happening::Founded(terms) => {
                self.wild = terms.wild;
                Ok(())
            }
            Happening::Observed { observation: Observation::LetterRefused { id, .. }, .. } => {
                self.excused.insert(*id);
                Ok(())
            }
            Happening::Observed { observation: Observation::ChildRefused { id, .. }, .. } => {
                self.refused.insert(*id);
                Ok(())
            }
            Happening::Finished(Finished { call: Call::Request(Request::Redrive { id, .. }), result, .. }) => {
                if let Ok(Response::AckedOne(acked)) = result
                    && acked.guarantee == Guarantee::Strict
                {
                    self.told.insert(acked.id, *id);
                }
                Ok(())
            }
            Happening::Settled { .. } => self.settled(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::*;
    use super::*;
    use crate::history::Terms;
    use norn_engine::Ticket;
    use norn_model::task::Cancel;
    use norn_model::viewstamp::Viewstamp;
    use norn_wire::membership::QueuePolicy;
    use norn_wire::request::Acks;
    use norn_wire::{PartitionId, QueueName};

    fn append(bench: &mut Bench<DeadLetters>, node: usize, record: Record) -> Result<(), String> {
        bench.see(Happening::Appended { node, ticket: Ticket(1), records: &[record] })
    }

    fn learn(bench: &mut Bench<DeadLetters>, number: u32, task: Task) -> Result<(), String> {
        let items = Arc::new(vec![(id(number), task)]);
        append(bench, 0, Record::Facts { partition: PartitionId(0), items })
    }

    fn copy(header: &str) -> Task {
        let headers = vec![(header.to_owned(), id(1).to_string())];
        Task::from_spec(Arc::new(Spec { headers, ..spec() }))
    }

    /// Lets a node hear that the queue has a dead-letter queue.
    fn hear(bench: &mut Bench<DeadLetters>, node: usize) {
        let dead_letter = Some(QueueName::new("later").unwrap());
        let policies = BTreeMap::from([(spec().queue, QueuePolicy { dead_letter, ..QueuePolicy::default() })]);
        append(bench, node, Record::Roster(Arc::new(Roster { policies, ..Roster::default() }))).unwrap();
    }

    fn give_up(bench: &mut Bench<DeadLetters>, node: usize) {
        let op = Op::Kill { id: id(1), token: token(1, 1), reason: "no".into(), at_ms: 1, end: None };
        let after = Viewstamp { epoch: 1, length: 0 };
        let record = Record::Ops { partition: PartitionId(0), after, ops: vec![Arc::new(op)] };
        append(bench, node, record).unwrap();
    }

    /// Gives a task up while `heard` of three nodes have heard of its queue's dead-letter queue.
    fn given_up(heard: usize) -> Bench<DeadLetters> {
        let mut bench = Bench::<DeadLetters>::new();
        bench.enqueued(1);
        (0..heard).for_each(|node| hear(&mut bench, node));
        give_up(&mut bench, 0);
        bench
    }

    fn dead() -> Task {
        Task::from_cancel(Cancel { dead: true, reason: String::new(), at_ms: 1 })
    }

    #[test]
    fn a_letter_that_is_missing_is_refused() {
        let settled = || Happening::Settled { stores: &[] };
        let mut bench = given_up(3);
        assert!(bench.see(settled()).is_ok(), "it may not have been committed");
        learn(&mut bench, 1, dead()).unwrap();
        assert!(bench.see(settled()).is_err());
        learn(&mut bench, 2, copy(headers::DEAD_TASK)).unwrap();
        assert!(bench.see(settled()).is_ok());
        let mut bench = given_up(2);
        learn(&mut bench, 1, dead()).unwrap();
        assert!(bench.see(settled()).is_ok(), "one has not heard of it");
    }

    #[test]
    fn a_follower_that_hears_of_a_death_late_makes_no_letter_owed() {
        let mut bench = given_up(2);
        hear(&mut bench, 2);
        give_up(&mut bench, 2);
        learn(&mut bench, 1, dead()).unwrap();
        assert!(bench.see(Happening::Settled { stores: &[] }).is_ok());
    }

    #[test]
    fn a_letter_that_came_too_late_is_excused_where_clocks_are_wild() {
        for wild in [false, true] {
            let mut bench = given_up(3);
            bench.see(Happening::Founded(Terms { wild, ..Terms::default() })).unwrap();
            learn(&mut bench, 1, dead()).unwrap();
            let observation = Observation::ChildRefused { partition: 0, id: id(1) };
            bench.see(Happening::Observed { node: 0, boot: 1, observation: &observation }).unwrap();
            assert_eq!(bench.see(Happening::Settled { stores: &[] }).is_ok(), wild);
        }
    }

    #[test]
    fn two_letters_of_one_task_are_refused() {
        let mut bench = given_up(3);
        learn(&mut bench, 2, copy(headers::DEAD_TASK)).unwrap();
        assert!(learn(&mut bench, 2, copy(headers::DEAD_TASK)).is_ok());
        let mut again = copy(headers::DEAD_TASK);
        Arc::make_mut(again.spec.as_mut().unwrap())
            .headers
            .push((headers::REDRIVEN_FROM.to_owned(), id(2).to_string()));
        assert!(learn(&mut bench, 4, again).is_ok(), "it is the first letter, redriven");
        assert!(learn(&mut bench, 3, copy(headers::DEAD_TASK)).is_err());
    }

    #[test]
    fn a_copy_that_was_told_of_and_is_missing_is_refused() {
        let mut bench = given_up(0);
        let now = bench.now();
        let request = Request::Redrive { id: id(1), child: id(4), queue: None, acks: Acks::Quorum };
        bench.finish(request, now, Response::AckedOne(acked(5, 2, Guarantee::Strict))).unwrap();
        learn(&mut bench, 4, copy(headers::REDRIVEN_FROM)).unwrap();
        assert!(bench.see(Happening::Settled { stores: &[] }).is_err(), "it is another one");
        learn(&mut bench, 5, copy(headers::REDRIVEN_FROM)).unwrap();
        assert!(bench.see(Happening::Settled { stores: &[] }).is_ok());
    }
}
