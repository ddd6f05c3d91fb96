//! Transaction log in the table of a partition: transactions decided and not completed yet, parts prepared for the decision of another
//! partition, and the latest completed or refused ones.

use crate::limits::{TRANSACTIONS_BYTES_MAX, TRANSACTIONS_DONE_MAX, TRANSACTIONS_MAX};
use crate::task::Task;
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::{Depend, Refusal};
use norn_wire::{PartitionId, TaskId, TaskVersion, Token};
use serde::ser::{Serialize as Write, SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks that a transaction added, then those that it changed, with their versions after it.
pub type Stamps = Vec<(TaskId, TaskVersion)>;

/// Final outcome of a transaction, for its client.
pub type TransactionOutcome = Result<Stamps, Box<Refusal>>;

/// A transaction in a partition.
pub type TransactionKey = (PartitionId, TaskId);

/// Round of a two-phase commit: the epoch of the coordinator's leader, and a number that grows with each of its rounds.
pub type Round = Token;

/// Effects of a transaction on the tasks of one partition. Once they are decided, they are completed whichever node leads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
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
    #[serde(default)]
    pub end: Option<Arc<ClaimEnd>>,
    /// Tasks that were there as expected when it was decided, and that it does not change; in order.
    #[serde(default)]
    pub depends: Vec<Depend>,
}

impl Write for Decided {
    /// Fields are left out from the end where they are empty: digests in logs are over these bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: usize = 4;
        let later = [self.end.is_some(), !self.depends.is_empty()];
        let count = FIRST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut decided = serializer.serialize_struct("Decided", count)?;
        decided.serialize_field("facts", &self.facts)?;
        decided.serialize_field("locked", &self.locked)?;
        decided.serialize_field("freed", &self.freed)?;
        decided.serialize_field("stamps", &self.stamps)?;
        if count > FIRST {
            decided.serialize_field("end", &self.end)?;
        }
        if count > FIRST + 1 {
            decided.serialize_field("depends", &self.depends)?;
        }
        decided.end()
    }
}

impl Decided {
    /// Size in bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        const ITEM_BYTES: usize = 64;
        let facts = self.facts.iter().map(|(_, facts)| facts.size_bytes() + ITEM_BYTES).sum::<usize>();
        facts + (1 + self.depends.len()) * ITEM_BYTES
    }
}

/// Part of a transaction that several partitions make together, as its own partition has promised to make it. It becomes facts once the
/// coordinator has decided so, and nothing if that gives up its round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Partition that decides.
    pub coordinator: PartitionId,
    /// Round in which it asked.
    pub round: Round,
    /// Effects on the tasks of this partition. Until the outcome is known, nothing changes these tasks, nor those that it depends on.
    pub decided: Arc<Decided>,
}

impl Prepared {
    /// Tasks that other transactions cannot change meanwhile, and that cannot be claimed.
    pub fn touched(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.decided.locked.iter().copied().chain(self.decided.depends.iter().map(|depend| depend.id))
    }
}

/// Where a decided transaction has prepared parts: its decision stays until each of these partitions has made its part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Round in which they prepared.
    pub round: Round,
    /// The other partitions.
    pub partitions: Vec<PartitionId>,
}

/// What a table keeps of transactions that reach several partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Across {
    /// Parts of transactions that other partitions decide.
    prepared: BTreeMap<TaskId, Arc<Prepared>>,
    /// Those of the decided transactions that have parts in other partitions.
    spreads: BTreeMap<TaskId, Spread>,
}

impl Across {
    fn is_empty(&self) -> bool {
        *self == Across::default()
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
    #[serde(default, skip_serializing_if = "Across::is_empty")]
    across: Across,
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

    /// Parts that are prepared for the decisions of other partitions.
    pub fn prepared(&self) -> &BTreeMap<TaskId, Arc<Prepared>> {
        &self.across.prepared
    }

    /// Decided transactions with parts in other partitions.
    pub fn spreads(&self) -> &BTreeMap<TaskId, Spread> {
        &self.across.spreads
    }

    /// Effects of a transaction that is decided, or of a part that is prepared.
    pub fn effects_of(&self, id: &TaskId) -> Option<&Arc<Decided>> {
        self.decided.get(id).or_else(|| self.across.prepared.get(id).map(|prepared| &prepared.decided))
    }

    /// All effects that may become facts.
    fn effects(&self) -> impl Iterator<Item = &Arc<Decided>> {
        self.decided.values().chain(self.across.prepared.values().map(|prepared| &prepared.decided))
    }

    /// Tasks that cannot be claimed or changed because of one transaction.
    pub fn touched_by(&self, id: &TaskId) -> Vec<TaskId> {
        let decided = self.decided.get(id).into_iter().flat_map(|decided| decided.locked.iter().copied());
        decided.chain(self.across.prepared.get(id).into_iter().flat_map(|prepared| prepared.touched())).collect()
    }

    /// Tasks that cannot be claimed or changed because of any transaction.
    pub fn touched(&self) -> impl Iterator<Item = TaskId> + '_ {
        let decided = self.decided.values().flat_map(|decided| decided.locked.iter().copied());
        decided.chain(self.across.prepared.values().flat_map(|prepared| prepared.touched()))
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
        let there: usize = self.effects().map(|decided| decided.size_bytes()).sum();
        let count = self.decided.len() + self.across.prepared.len();
        count < TRANSACTIONS_MAX && (there == 0 || there + bytes <= TRANSACTIONS_BYTES_MAX)
    }

    /// Whether a transaction that is decided or prepared changes a task.
    pub fn is_changing(&self, id: &TaskId) -> bool {
        self.effects().any(|decided| decided.locked.binary_search(id).is_ok())
    }

    /// Whether a transaction that is decided or prepared adds a task with this id.
    pub fn is_adding(&self, id: &TaskId) -> bool {
        let mut facts = self.effects().flat_map(|decided| &decided.facts);
        facts.any(|(task, fact)| task == id && fact.spec.is_some())
    }

    /// Whether a prepared part depends on a task, which must stay as it is until the outcome is known.
    fn is_depended_on(&self, id: &TaskId) -> bool {
        let mut depends = self.across.prepared.values().map(|prepared| &prepared.decided.depends);
        depends.any(|depends| depends.binary_search_by_key(id, |depend| depend.id).is_ok())
    }

    /// Whether a task cannot be claimed or changed, because of a transaction that is decided or prepared.
    pub fn is_locked(&self, id: &TaskId) -> bool {
        self.is_changing(id) || self.is_depended_on(id)
    }

    /// Whether a decided or prepared transaction changes any of these tasks, which are in order, or adds a task whose id is not above
    /// theirs. Until it is completed, the tasks of its facts must stay, and the ids of its new tasks must not be forgotten.
    pub fn speaks_of(&self, ids: &[TaskId]) -> bool {
        let mut facts = self.effects().flat_map(|decided| &decided.facts);
        facts.any(|(id, fact)| ids.binary_search(id).is_ok() || fact.spec.is_some() && Some(id) <= ids.last())
    }

    /// Checks that a transaction is new, and that no other one is in its way.
    fn check_new(&self, id: &TaskId, decided: &Decided) -> Result<(), &'static str> {
        if self.effects_of(id).is_some() || self.is_finished(id) {
            return Err("this transaction was decided before");
        }
        if decided.locked.iter().any(|task| self.is_locked(task)) {
            return Err("another transaction has this task");
        }
        Ok(())
    }

    /// Records a decision; with `spread`, of a transaction that other partitions have prepared.
    pub fn decide(&mut self, id: TaskId, decided: &Arc<Decided>, spread: Option<&Spread>) -> Result<(), &'static str> {
        self.check_new(&id, decided)?;
        assert!(self.decided.insert(id, decided.clone()).is_none(), "a transaction is decided twice");
        if let Some(spread) = spread {
            assert!(self.across.spreads.insert(id, spread.clone()).is_none(), "a transaction is spread twice");
        }
        Ok(())
    }

    /// Records that a part is prepared.
    pub fn prepare(&mut self, id: TaskId, prepared: &Arc<Prepared>) -> Result<(), &'static str> {
        self.check_new(&id, &prepared.decided)?;
        if prepared.decided.depends.iter().any(|depend| self.is_changing(&depend.id)) {
            return Err("another transaction changes a task that it depends on");
        }
        assert!(self.across.prepared.insert(id, prepared.clone()).is_none(), "a part is prepared twice");
        Ok(())
    }

    /// Records that the coordinator has given up a round. Returns the part that was prepared in it.
    pub fn abort(&mut self, id: &TaskId, round: Round) -> Result<Arc<Prepared>, &'static str> {
        let prepared = self.across.prepared.get(id).filter(|prepared| prepared.round == round);
        prepared.ok_or("nothing was prepared in this round")?;
        Ok(self.across.prepared.remove(id).expect("just seen"))
    }

    /// Records a completion.
    pub fn make(&mut self, id: &TaskId) -> Result<Making, &'static str> {
        let decided = self.decided.remove(id);
        let prepared = self.across.prepared.remove(id);
        assert!(decided.is_none() || prepared.is_none(), "a transaction is prepared where it is decided");
        let effects = decided.as_ref().or(prepared.as_ref().map(|prepared| &prepared.decided));
        let stamps = effects.ok_or("no such transaction was decided")?.stamps.clone();
        let spread = self.across.spreads.remove(id);
        assert!(spread.is_none() || decided.is_some(), "a transaction is spread and not decided");
        self.made.insert(*id, stamps);
        // The latest one stays, however old its id is: its requester is still to learn of it.
        let surplus = self.made.len() > TRANSACTIONS_DONE_MAX;
        let over = self.made.keys().find(|other| surplus && *other != id).copied();
        let over = over.and_then(|over| self.made.remove_entry(&over));
        self.watermark = self.watermark.max(over.as_ref().map(|(id, _)| *id));
        Ok(Making { decided, prepared, spread, over })
    }

    /// Records a refusal. Returns the transaction that is evicted for it.
    pub fn refuse(&mut self, id: TaskId, refusal: &Refusal) -> Result<Option<(TaskId, Box<Refusal>)>, &'static str> {
        if self.effects_of(&id).is_some() || self.is_finished(&id) {
            return Err("this transaction was decided before");
        }
        self.refused.insert(id, Box::new(refusal.clone()));
        let surplus = self.refused.len() > TRANSACTIONS_DONE_MAX;
        let over = self.refused.keys().find(|other| surplus && **other != id).copied();
        let over = over.and_then(|over| self.refused.remove_entry(&over));
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

/// Result of completing a transaction: what the table has no more.
pub struct Making {
    /// Decision that is completed, if this partition made it.
    pub decided: Option<Arc<Decided>>,
    /// Part that is completed, if another partition decided it.
    pub prepared: Option<Arc<Prepared>>,
    /// Where the transaction had other parts.
    pub spread: Option<Spread>,
    /// The transaction that is evicted for it.
    pub over: Option<(TaskId, Stamps)>,
}

impl Making {
    /// The effects that are facts now.
    pub fn effects(&self) -> &Arc<Decided> {
        let effects = self.decided.as_ref().or(self.prepared.as_ref().map(|prepared| &prepared.decided));
        effects.expect("one of them was made")
    }
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
        Arc::new(Decided { locked, ..Decided::default() })
    }

    #[test]
    fn a_task_is_in_one_transaction_at_a_time() {
        let mut ledger = Ledger::default();
        ledger.decide(id(10), &locking(&[1, 2]), None).unwrap();
        assert!(ledger.is_locked(&id(2)) && !ledger.is_locked(&id(3)));
        assert!(ledger.decide(id(10), &locking(&[4]), None).is_err(), "it is decided once");
        assert!(ledger.decide(id(11), &locking(&[2]), None).is_err(), "another one has it");
        ledger.make(&id(10)).unwrap();
        assert!(!ledger.is_locked(&id(2)));
        assert!(ledger.decide(id(10), &locking(&[]), None).is_err(), "it was made");
        assert!(ledger.make(&id(10)).is_err());
    }

    #[test]
    fn what_is_decided_is_about_its_tasks_and_all_before_those_that_it_makes() {
        let queue = norn_wire::QueueName::new("mail").expect("a name");
        let spec = Task::from_spec(Arc::new(norn_wire::Spec::new(queue, "")));
        let mut ledger = Ledger::default();
        let facts = vec![(id(5), Task::default()), (id(7), spec)];
        let decided = Decided { facts, locked: vec![id(5)], ..Decided::default() };
        ledger.decide(id(10), &Arc::new(decided), None).unwrap();
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
            ledger.decide(id(number), &locking(&[]), None).unwrap();
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
        ledger.decide(id(10), &locking(&[1]), None).unwrap();
        ledger.make(&id(10)).unwrap();
        let bytes = rmp_serde::to_vec(&(&ledger.decided, &ledger.made, ledger.watermark)).unwrap();
        assert_eq!(rmp_serde::from_slice::<Ledger>(&bytes).unwrap(), ledger);
    }

    #[test]
    fn fields_of_later_versions_are_written_where_they_say_something() {
        let (decided, id) = (locking(&[1]), id(10));
        let before = rmp_serde::to_vec(&(&decided.facts, &decided.locked, &decided.freed, &decided.stamps)).unwrap();
        assert_eq!(rmp_serde::to_vec(&decided).unwrap(), before);
        let depends = vec![Depend { id, expected: norn_wire::transaction::Expected::Present }];
        let later = Decided { depends, ..Decided::clone(&decided) };
        assert_eq!(rmp_serde::from_slice::<Decided>(&rmp_serde::to_vec(&later).unwrap()).unwrap(), later);
        let mut ledger = Ledger::default();
        ledger.decide(id, &decided, None).unwrap();
        let before = (&ledger.decided, &ledger.made, ledger.watermark, &ledger.refused);
        assert_eq!(rmp_serde::to_vec(&ledger).unwrap(), rmp_serde::to_vec(&before).unwrap());
        let round = Round { epoch: 3, number: 7 };
        let prepared = Arc::new(Prepared { coordinator: PartitionId(5), round, decided: locking(&[2]) });
        ledger.prepare(self::id(11), &prepared).unwrap();
        assert_eq!(rmp_serde::from_slice::<Ledger>(&rmp_serde::to_vec(&ledger).unwrap()).unwrap(), ledger);
    }

    #[test]
    fn a_part_waits_for_the_outcome_of_its_round_and_locks_what_it_depends_on() {
        let depends = vec![Depend { id: id(3), expected: norn_wire::transaction::Expected::Present }];
        let decided = Arc::new(Decided { locked: vec![id(2)], depends, ..Decided::default() });
        let round = Round { epoch: 3, number: 7 };
        let prepared = Arc::new(Prepared { coordinator: PartitionId(5), round, decided });
        let mut ledger = Ledger::default();
        ledger.prepare(id(10), &prepared).unwrap();
        assert!(ledger.is_changing(&id(2)) && !ledger.is_changing(&id(3)) && ledger.is_locked(&id(3)));
        assert_eq!(ledger.touched_by(&id(10)), [id(2), id(3)]);
        assert!(ledger.prepare(id(11), &prepared).is_err() && ledger.decide(id(12), &locking(&[3]), None).is_err());
        assert!(ledger.abort(&id(10), Round { number: 8, ..round }).is_err(), "of another round");
        ledger.abort(&id(10), round).unwrap();
        assert!(!ledger.is_locked(&id(2)) && ledger.outcome_of(&id(10)).is_none(), "it may be prepared again");
        ledger.prepare(id(10), &prepared).unwrap();
        ledger.make(&id(10)).unwrap();
        assert!(!ledger.is_locked(&id(3)) && ledger.outcome_of(&id(10)).is_some());
    }

    #[test]
    fn the_latest_one_is_remembered_however_old_its_id_is() {
        let mut ledger = Ledger::default();
        ledger.decide(id(1), &locking(&[1]), None).unwrap();
        for number in 2..=TRANSACTIONS_DONE_MAX as u64 + 1 {
            ledger.decide(id(number), &locking(&[]), None).unwrap();
            ledger.make(&id(number)).unwrap();
        }
        ledger.make(&id(1)).unwrap();
        assert!(ledger.outcome_of(&id(1)).is_some(), "its requester is still to be answered");
    }

    #[test]
    fn what_is_refused_is_not_decided_any_more() {
        let mut ledger = Ledger::default();
        let refusal = |number| Refusal { changes: vec![id(number)], ..Refusal::default() };
        assert!(ledger.refuse(id(10), &refusal(1)).unwrap().is_none());
        assert!(ledger.decide(id(10), &locking(&[]), None).is_err() && ledger.refuse(id(10), &refusal(2)).is_err());
        assert_eq!(ledger.outcome_of(&id(10)), Some(Err(Box::new(refusal(1)))));
        ledger.decide(id(11), &locking(&[]), None).unwrap();
        assert!(ledger.refuse(id(11), &refusal(1)).is_err(), "it is decided");
        for number in 0..TRANSACTIONS_DONE_MAX as u64 {
            ledger.refuse(id(number + 20), &refusal(1)).unwrap();
        }
        assert!(ledger.outcome_of(&id(10)).is_none() && ledger.may_have_finished(&id(10)));
    }
}
