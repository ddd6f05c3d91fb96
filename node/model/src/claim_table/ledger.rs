//! Transaction log in the table of a partition: transactions decided and not completed yet, and the latest completed or refused
//! ones.

use crate::limits::{TRANSACTIONS_BYTES_MAX, TRANSACTIONS_DONE_MAX, TRANSACTIONS_MAX};
use crate::task::Task;
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::Refusal;
use norn_wire::{TaskId, TaskVersion, Token};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks that a transaction added, then those that it changed, with their versions after it.
pub type Stamps = Vec<(TaskId, TaskVersion)>;

/// Final outcome of a transaction, for its client.
pub type TransactionOutcome = Result<Stamps, Box<Refusal>>;

/// Committed transaction: it is completed whichever node leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// Effects on its tasks, as facts.
    pub facts: Vec<(TaskId, Task)>,
    /// Tasks that cannot be claimed, prolonged or completed meanwhile; in order.
    pub locked: Vec<TaskId>,
    /// Claims that end with it, each with the earliest next claim of its task.
    pub freed: Vec<(TaskId, Token, u64)>,
    /// Outcome for the client.
    pub stamps: Stamps,
    /// How those of the claims end that are held, for their histories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Arc<ClaimEnd>>,
}

impl Decided {
    /// Size in bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        const ITEM_BYTES: usize = 64;
        self.facts.iter().map(|(_, facts)| facts.size_bytes() + ITEM_BYTES).sum::<usize>() + ITEM_BYTES
    }
}

/// Transaction log of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Decided, and perhaps not facts yet.
    decided: BTreeMap<TaskId, Arc<Decided>>,
    /// Latest completed ones, so that a repeated call gets the same answer.
    made: BTreeMap<TaskId, Stamps>,
    /// Highest id of completed or refused transactions that were evicted from memory.
    watermark: Option<TaskId>,
    /// Latest refused ones. A transaction that was reported as refused is never completed, however late it is requested again.
    #[serde(default)]
    refused: BTreeMap<TaskId, Box<Refusal>>,
}

impl Ledger {
    /// Whether there never was any transaction.
    pub fn is_empty(&self) -> bool {
        *self == Ledger::default()
    }

    /// Decided transactions that are not completed yet.
    pub fn decided(&self) -> &BTreeMap<TaskId, Arc<Decided>> {
        &self.decided
    }

    /// Returns the outcome of a completed or refused transaction.
    pub fn outcome_of(&self, id: &TaskId) -> Option<TransactionOutcome> {
        let made = self.made.get(id).cloned().map(Ok);
        made.or_else(|| self.refused.get(id).cloned().map(Err))
    }

    fn is_finished(&self, id: &TaskId) -> bool {
        self.made.contains_key(id) || self.refused.contains_key(id)
    }

    /// Whether an unknown transaction may have been completed or refused and then evicted.
    pub fn may_have_finished(&self, id: &TaskId) -> bool {
        self.watermark.is_some_and(|watermark| *id <= watermark) && !self.is_finished(id)
    }

    /// Whether there is room for another transaction of this size.
    pub fn has_room(&self, bytes: usize) -> bool {
        let there: usize = self.decided.values().map(|decided| decided.size_bytes()).sum();
        self.decided.len() < TRANSACTIONS_MAX && (there == 0 || there + bytes <= TRANSACTIONS_BYTES_MAX)
    }

    /// Whether a decided transaction locks a task.
    pub fn is_locked(&self, id: &TaskId) -> bool {
        self.decided.values().any(|decided| decided.locked.binary_search(id).is_ok())
    }

    /// Whether a decided transaction changes any of these tasks, which are in order, or adds a task whose id is not above theirs.
    /// Until it is completed, the tasks of its facts must stay, and the ids of its new tasks must not be forgotten.
    pub fn speaks_of(&self, ids: &[TaskId]) -> bool {
        let mut facts = self.decided.values().flat_map(|decided| &decided.facts);
        facts.any(|(id, fact)| ids.binary_search(id).is_ok() || fact.spec.is_some() && Some(id) <= ids.last())
    }

    /// Records a decision.
    pub fn decide(&mut self, id: TaskId, decided: &Arc<Decided>) -> Result<(), &'static str> {
        if self.decided.contains_key(&id) || self.is_finished(&id) {
            return Err("this transaction was decided before");
        }
        if decided.locked.iter().any(|task| self.is_locked(task)) {
            return Err("another transaction has this task");
        }
        assert!(self.decided.insert(id, decided.clone()).is_none(), "a transaction is decided twice");
        Ok(())
    }

    /// Records a completion.
    pub fn make(&mut self, id: &TaskId) -> Result<Making, &'static str> {
        let decided = self.decided.remove(id).ok_or("no such transaction was decided")?;
        self.made.insert(*id, decided.stamps.clone());
        let surplus = self.made.len() > TRANSACTIONS_DONE_MAX;
        let over = if surplus { self.made.pop_first() } else { None };
        self.watermark = self.watermark.max(over.as_ref().map(|(id, _)| *id));
        Ok(Making { decided, over })
    }

    /// Records a refusal. Returns the transaction that is evicted for it.
    pub fn refuse(&mut self, id: TaskId, refusal: &Refusal) -> Result<Option<(TaskId, Box<Refusal>)>, &'static str> {
        if self.decided.contains_key(&id) || self.is_finished(&id) {
            return Err("this transaction was decided before");
        }
        self.refused.insert(id, Box::new(refusal.clone()));
        let surplus = self.refused.len() > TRANSACTIONS_DONE_MAX;
        let over = if surplus { self.refused.pop_first() } else { None };
        self.watermark = self.watermark.max(over.as_ref().map(|(id, _)| *id));
        Ok(over)
    }

    /// Refused transactions, which count for the table's digest, too.
    pub fn refused(&self) -> impl Iterator<Item = (&TaskId, &Box<Refusal>)> {
        self.refused.iter()
    }

    /// All other parts that count for the table's digest, each by itself.
    pub fn parts(&self) -> (impl Iterator<Item = Entry<'_>>, impl Iterator<Item = Remembered<'_>>, Option<TaskId>) {
        (self.decided.iter(), self.made.iter(), self.watermark)
    }

    /// Highest id of evicted transactions.
    pub fn watermark(&self) -> Option<TaskId> {
        self.watermark
    }
}

/// Result of completing a transaction.
pub struct Making {
    /// The completed decision.
    pub decided: Arc<Decided>,
    /// The transaction that is evicted for it.
    pub over: Option<(TaskId, Stamps)>,
}

/// Decided transaction.
type Entry<'a> = (&'a TaskId, &'a Arc<Decided>);
/// Completed transaction.
type Remembered<'a> = (&'a TaskId, &'a Stamps);

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TaskId {
        TaskId::new(number, 0, 0, 0)
    }

    fn locking(tasks: &[u64]) -> Arc<Decided> {
        let locked = tasks.iter().map(|number| id(*number)).collect();
        Arc::new(Decided { facts: Vec::new(), locked, freed: Vec::new(), stamps: Vec::new(), end: None })
    }

    #[test]
    fn a_task_is_in_one_transaction_at_a_time() {
        let mut ledger = Ledger::default();
        ledger.decide(id(10), &locking(&[1, 2])).unwrap();
        assert!(ledger.is_locked(&id(2)) && !ledger.is_locked(&id(3)));
        assert!(ledger.decide(id(10), &locking(&[4])).is_err(), "it is decided once");
        assert!(ledger.decide(id(11), &locking(&[2])).is_err(), "another one has it");
        ledger.make(&id(10)).unwrap();
        assert!(!ledger.is_locked(&id(2)));
        assert!(ledger.decide(id(10), &locking(&[])).is_err(), "it was made");
        assert!(ledger.make(&id(10)).is_err());
    }

    #[test]
    fn what_is_decided_is_about_its_tasks_and_all_before_those_that_it_makes() {
        let queue = norn_wire::QueueName::new("mail").expect("a name");
        let spec = Task::from_spec(Arc::new(norn_wire::Spec::new(queue, "")));
        let mut ledger = Ledger::default();
        let facts = vec![(id(5), Task::default()), (id(7), spec)];
        let decided = Decided { facts, locked: vec![id(5)], freed: Vec::new(), stamps: Vec::new(), end: None };
        ledger.decide(id(10), &Arc::new(decided)).unwrap();
        for (ids, speaks) in
            [(vec![1, 4], false), (vec![1, 5], true), (vec![6], false), (vec![6, 7], true), (vec![9], true)]
        {
            let ids: Vec<TaskId> = ids.into_iter().map(id).collect();
            assert_eq!(ledger.speaks_of(&ids), speaks, "{ids:?}");
        }
        ledger.make(&id(10)).unwrap();
        assert!(!ledger.speaks_of(&[id(5)]));
    }

    #[test]
    fn what_is_not_remembered_is_told_apart_from_what_never_was() {
        let mut ledger = Ledger::default();
        let count = TRANSACTIONS_DONE_MAX as u64;
        for number in 1..=count + 2 {
            ledger.decide(id(number), &locking(&[])).unwrap();
            ledger.make(&id(number)).unwrap();
        }
        assert!(
            ledger.may_have_finished(&id(1)) && ledger.may_have_finished(&id(2)) && ledger.outcome_of(&id(2)).is_none()
        );
        assert!(ledger.outcome_of(&id(3)).is_some() && !ledger.may_have_finished(&id(3)));
        assert!(!ledger.may_have_finished(&id(count + 3)));
    }

    #[test]
    fn one_that_was_written_before_refusals_were_remembered_is_read() {
        let mut ledger = Ledger::default();
        ledger.decide(id(10), &locking(&[1])).unwrap();
        ledger.make(&id(10)).unwrap();
        let bytes = rmp_serde::to_vec(&(&ledger.decided, &ledger.made, ledger.watermark)).unwrap();
        assert_eq!(rmp_serde::from_slice::<Ledger>(&bytes).unwrap(), ledger);
    }

    #[test]
    fn what_is_refused_is_not_decided_any_more() {
        let mut ledger = Ledger::default();
        let refusal = |number| Refusal { changes: vec![id(number)], ..Refusal::default() };
        assert!(ledger.refuse(id(10), &refusal(1)).unwrap().is_none());
        assert!(ledger.decide(id(10), &locking(&[])).is_err() && ledger.refuse(id(10), &refusal(2)).is_err());
        assert_eq!(ledger.outcome_of(&id(10)), Some(Err(Box::new(refusal(1)))));
        ledger.decide(id(11), &locking(&[])).unwrap();
        assert!(ledger.refuse(id(11), &refusal(1)).is_err(), "it is decided");
        for number in 0..TRANSACTIONS_DONE_MAX as u64 {
            ledger.refuse(id(number + 20), &refusal(1)).unwrap();
        }
        assert!(ledger.outcome_of(&id(10)).is_none() && ledger.may_have_finished(&id(10)));
    }
}
