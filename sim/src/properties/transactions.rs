//! A transaction is made as a whole or not at all; each finds its tasks as it expects them; and no two find the same version of a
//! task.

use super::Property;
use crate::history::{Happening, History, Moment};
use norn_engine::Observation;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::request::Request;
use norn_wire::response::Response;
use norn_wire::transaction::{Expected, Transaction};
use norn_wire::{TaskId, TaskVersion, Token};
use std::collections::{BTreeMap, BTreeSet};

/// A worker's hold on a task.
#[derive(Debug, Clone, Copy)]
struct Hold {
    since: Moment,
    token: Token,
    until_us: u64,
}

#[derive(Debug, Default)]
pub struct Transactions {
    /// Transactions by id, as they were first sent, and when.
    sent: BTreeMap<TaskId, (Moment, Transaction)>,
    /// Transaction that adds a task.
    added_by: BTreeMap<TaskId, TaskId>,
    /// Transactions whose client learned that they are made.
    made: BTreeSet<TaskId>,
    /// Transactions whose client learned that they are refused.
    refused: BTreeSet<TaskId>,
    /// Tasks that were ever a fact anywhere, with the payloads that they had.
    seen: BTreeMap<TaskId, BTreeSet<Vec<u8>>>,
    /// Tasks that any node ever had as ended.
    ended: BTreeSet<TaskId>,
    /// Transaction that used up a version of a task, and when its client learned that.
    used: BTreeMap<(TaskId, TaskVersion), (TaskId, Moment)>,
    /// Transaction that ended a task.
    ended_by: BTreeMap<TaskId, TaskId>,
    /// Tasks that workers believe to hold.
    held: BTreeMap<TaskId, Hold>,
    /// Their belief may be wrong.
    clockless: bool,
}

impl Transactions {
    /// Takes in a fact of some replica.
    fn note_fact(&mut self, id: TaskId, task: &Task) -> Result<(), String> {
        if task.ended().is_some() {
            self.ended.insert(id);
        }
        let Some(spec) = &task.spec else { return Ok(()) };
        let payloads = self.seen.entry(id).or_default();
        if payloads.insert(spec.payload.clone())
            && let Some(by) = self.added_by.get(&id).filter(|by| self.refused.contains(by))
        {
            return Err(format!("task {id} is there, and transaction {by} that would have added it was refused"));
        }
        Ok(())
    }

    /// Checks a transaction whose client learns that it is made.
    fn note_made(&mut self, history: &History, moment: Moment, id: TaskId) -> Result<(), String> {
        let Some((submitted, transaction)) = self.sent.get(&id).cloned() else {
            return Err(format!("transaction {id} was made, and nobody asked for it"));
        };
        if self.refused.contains(&id) {
            return Err(format!("transaction {id} was refused and made"));
        }
        let changes = transaction.changes.iter().map(|change| (change.id, change.expected));
        let deletes = transaction.deletes.iter().map(|delete| (delete.id, delete.expected));
        for (task, expected) in changes.chain(deletes) {
            self.check_unowned(id, task, expected, submitted, moment)?;
            if let Expected::Version(version) = expected
                && let Some((other, _)) = self.used.insert((task, version), (id, moment))
            {
                return Err(format!("transactions {id} and {other} both found task {task} at version {version}"));
            }
        }
        for delete in &transaction.deletes {
            if let Some(other) = self.ended_by.insert(delete.id, id) {
                return Err(format!("transactions {id} and {other} both ended task {}", delete.id));
            }
        }
        let depends = transaction.depends.iter().map(|depend| (depend.id, depend.expected));
        let changes = transaction.changes.iter().map(|change| (change.id, change.expected));
        for (task, expected) in changes.chain(depends) {
            self.check_there(history, id, task, expected, submitted)?;
        }
        for delete in &transaction.deletes {
            self.check_version(id, delete.id, delete.expected, submitted)?;
            if history.ended(&delete.id).is_some_and(|ended| ended < submitted) {
                return Err(format!("transaction {id} ends task {}, whose end was confirmed before that", delete.id));
            }
        }
        Ok(())
    }

    fn check_there(
        &self,
        history: &History,
        id: TaskId,
        task: TaskId,
        expected: Expected,
        submitted: Moment,
    ) -> Result<(), String> {
        if history.ended(&task).is_some_and(|ended| ended < submitted) {
            return Err(format!("transaction {id} found task {task}, whose end was confirmed before it was asked for"));
        }
        self.check_version(id, task, expected, submitted)
    }

    fn check_version(&self, id: TaskId, task: TaskId, expected: Expected, submitted: Moment) -> Result<(), String> {
        let Expected::Version(version) = expected else { return Ok(()) };
        match self.used.get(&(task, version)) {
            Some((other, told)) if *other != id && *told < submitted => Err(format!(
                "transaction {id} found task {task} at version {version}, which was over before it was asked for"
            )),
            _ => Ok(()),
        }
    }

    /// Checks that no worker with another token held the task from the request to the answer.
    fn check_unowned(
        &self,
        id: TaskId,
        task: TaskId,
        expected: Expected,
        submitted: Moment,
        moment: Moment,
    ) -> Result<(), String> {
        let Some(hold) = self.held.get(&task).filter(|_| !self.clockless) else { return Ok(()) };
        let own = expected == Expected::Token(hold.token);
        if own || hold.since >= submitted || hold.until_us <= moment.time_us {
            return Ok(());
        }
        Err(format!("transaction {id} changed task {task}, which a worker held all the while under {}", hold.token))
    }

    /// Checks that all parts of each transaction are facts, or none.
    fn check_whole(&self) -> Result<(), String> {
        for (id, (_, transaction)) in &self.sent {
            let there = |task: &TaskId| self.seen.contains_key(task);
            let is_changed =
                |task: &TaskId, payload: &[u8]| self.seen.get(task).is_some_and(|payloads| payloads.contains(payload));
            let adds = transaction.adds.iter().map(|add| (add.id, there(&add.id)));
            let changes = transaction.changes.iter().filter_map(|change| {
                let payload = change.payload.as_ref()?;
                Some((change.id, is_changed(&change.id, payload)))
            });
            let parts: Vec<(TaskId, bool)> = adds.chain(changes).collect();
            let made = self.made.contains(id) || parts.iter().any(|(_, there)| *there);
            if !made {
                continue;
            }
            if let Some((task, _)) = parts.iter().find(|(_, there)| !there) {
                return Err(format!("of transaction {id} something was made, but not what it does to task {task}"));
            }
            if let Some(delete) = transaction.deletes.iter().find(|delete| !self.ended.contains(&delete.id)) {
                return Err(format!("of transaction {id} something was made, but task {} has not ended", delete.id));
            }
        }
        Ok(())
    }
}

// T10, T20, T21, T34, T40, T41
impl Property for Transactions {
    fn name(&self) -> &'static str {
        "transactions"
    }

    fn see(&mut self, history: &History, moment: Moment, happening: &Happening<'_>) -> Result<(), String> {
        match happening {
            Happening::Founded(terms) => self.clockless = terms.clockless,
            Happening::Sent { request: Request::Transact(transaction) } => {
                self.added_by.extend(transaction.adds.iter().map(|add| (add.id, transaction.id)));
                let first = || (moment, transaction.as_ref().clone());
                let (_, before) = self.sent.entry(transaction.id).or_insert_with(first);
                if *before != **transaction {
                    return Err(format!("transaction {} was sent again with other content", transaction.id));
                }
            }
            Happening::Replied { request: Request::Transact(transaction), response: Response::Transacted(Err(_)) } => {
                self.refused.insert(transaction.id);
                if let Some(add) = transaction.adds.iter().find(|add| self.seen.contains_key(&add.id)) {
                    return Err(format!(
                        "transaction {} was refused, and its task {} is there",
                        transaction.id, add.id
                    ));
                }
                if self.made.contains(&transaction.id) {
                    return Err(format!("transaction {} was made and refused", transaction.id));
                }
            }
            Happening::Appended { records, .. } => {
                for record in *records {
                    let Record::Facts { items, .. } = record else { continue };
                    items.iter().try_for_each(|(id, task)| self.note_fact(*id, task))?;
                }
            }
            Happening::Replied { request: Request::Transact(transaction), response: Response::Transacted(Ok(_)) }
                if self.made.insert(transaction.id) =>
            {
                self.note_made(history, moment, transaction.id)?;
            }
            Happening::Holds { id, token, until_us, .. } => {
                // Where a claim is renewed after its lease was over, no worker held the task in between.
                let goes_on = |hold: &&Hold| hold.token == *token && hold.until_us > moment.time_us;
                let since = self.held.get(id).filter(goes_on).map_or(moment, |hold| hold.since);
                self.held.insert(*id, Hold { since, token: *token, until_us: *until_us });
            }
            Happening::Stops { id, token, .. } if self.held.get(id).is_some_and(|hold| hold.token == *token) => {
                self.held.remove(id);
            }
            // No operator gives a majority up here.
            Happening::Observed { observation: Observation::PartLost { partition, id }, .. } => {
                return Err(format!("partition {partition} has lost its part of transaction {id}"));
            }
            Happening::Settled { .. } => self.check_whole()?,
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
    use norn_wire::request::NewTask;
    use norn_wire::transaction::{Change, Delete, Refusal};
    use std::sync::Arc;

    const SEEN: TaskVersion = TaskVersion(7);

    fn change(number: u32, task: u32) -> Transaction {
        let payload = Some(vec![number as u8].into());
        let change = Change { id: id(task), expected: Expected::Version(SEEN), payload, ..Change::default() };
        Transaction { id: id(number), changes: vec![change], ..Transaction::default() }
    }

    fn replace(number: u32, task: u32, by: u32) -> Transaction {
        let delete = Delete { id: id(task), expected: Expected::Present, result: None };
        let adds = vec![NewTask { id: id(by), spec: spec() }];
        Transaction { id: id(number), adds, deletes: vec![delete], ..Transaction::default() }
    }

    fn send(bench: &mut Bench<Transactions>, transaction: &Transaction) -> Result<(), String> {
        bench.see(Happening::Sent { request: &Request::Transact(Box::new(transaction.clone())) })
    }

    fn reply(bench: &mut Bench<Transactions>, transaction: &Transaction, made: bool) -> Result<(), String> {
        let stamps =
            transaction.changes.iter().map(|change| (change.id, TaskVersion(u64::from(transaction.id.as_bytes()[11]))));
        let told = if made { Ok(stamps.collect()) } else { Err(Box::new(Refusal::default())) };
        let request = Request::Transact(Box::new(transaction.clone()));
        bench.see(Happening::Replied { request: &request, response: &Response::Transacted(told) })
    }

    fn stored(bench: &mut Bench<Transactions>, number: u32) -> Result<(), String> {
        let items = Arc::new(vec![(id(number), Task::from_spec(Arc::new(spec())))]);
        let records = [Record::Facts { partition: norn_wire::PartitionId(0), items }];
        bench.see(Happening::Appended { node: 0, ticket: Ticket(1), records: &records })
    }

    #[test]
    fn a_version_is_found_once() {
        let mut bench = Bench::new();
        for number in [1, 2] {
            send(&mut bench, &change(number, 9)).unwrap();
        }
        reply(&mut bench, &change(1, 9), true).unwrap();
        reply(&mut bench, &change(1, 9), true).unwrap();
        assert!(reply(&mut bench, &change(2, 9), true).is_err());
    }

    #[test]
    fn what_has_ended_is_not_found() {
        let mut bench = Bench::new();
        bench.enqueued(9);
        bench.cancelled(9);
        send(&mut bench, &change(1, 9)).unwrap();
        assert!(reply(&mut bench, &change(1, 9), true).is_err());
    }

    #[test]
    fn what_is_refused_is_nowhere() {
        let mut bench = Bench::new();
        send(&mut bench, &replace(1, 9, 10)).unwrap();
        reply(&mut bench, &replace(1, 9, 10), false).unwrap();
        assert!(stored(&mut bench, 10).is_err());
    }

    #[test]
    fn a_part_that_is_lost_is_noticed() {
        let lost = Observation::PartLost { partition: 1, id: id(1) };
        let observed = Happening::Observed { node: 0, boot: 1, observation: &lost };
        assert!(Bench::<Transactions>::new().see(observed).is_err());
    }

    #[test]
    fn a_half_is_noticed() {
        let mut bench = Bench::new();
        send(&mut bench, &replace(1, 9, 10)).unwrap();
        stored(&mut bench, 10).unwrap();
        assert!(bench.see(Happening::Settled { stores: &[] }).is_err());
    }

    #[test]
    fn what_somebody_holds_is_left_alone() {
        let hold = Happening::Holds { client: 0, id: id(9), token: token(1, 1), until_us: 1_000_000 };
        let mut bench = Bench::new();
        bench.see(hold).unwrap();
        send(&mut bench, &change(1, 9)).unwrap();
        assert!(reply(&mut bench, &change(1, 9), true).is_err());
        // A lease that was over, and is renewed later, is no obstacle.
        let over = Happening::Holds { client: 0, id: id(9), token: token(1, 1), until_us: 0 };
        let mut bench = Bench::new();
        bench.see(over).unwrap();
        send(&mut bench, &change(1, 9)).unwrap();
        bench.see(Happening::Holds { client: 0, id: id(9), token: token(1, 1), until_us: 1_000_000 }).unwrap();
        reply(&mut bench, &change(1, 9), true).unwrap();
    }
}
