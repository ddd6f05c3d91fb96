//! Optimistic validation of a transaction, and its effects on its tasks.

use crdts::CvRDT;
use norn_model::claim_table::ledger::Decided;
use norn_model::claim_table::table::ClaimState;
use norn_model::config::{Config, mutant};
use norn_model::limits::DECIDED_BYTES_MAX;
use norn_model::replica::Partition;
use norn_model::replica::version::{is_as_expected, version};
use norn_model::task::{Blob, Cancel, Completed, Content, Outline, Part, Task};
use norn_wire::error::Error;
use norn_wire::request::Revision;
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::{Change, Delete, Expected, Refusal};
use norn_wire::{SESSIONS_QUEUE, Spec, TaskId, TaskVersion, Token, Transaction};
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reason of a cancellation where the transaction gives none.
const DELETED: &str = "deleted by a transaction";

/// State of a task when it was read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Hash of its spec.
    pub hash: u64,
    /// Full spec, if the task is to change.
    pub spec: Option<Arc<Spec>>,
}

impl Seen {
    /// Bytes that are kept for it, for budgets.
    pub fn bytes(&self) -> usize {
        self.spec.as_ref().map_or(0, Content::size_bytes)
    }
}

/// Compares tasks with what a transaction expects.
pub(crate) struct Judge<'a> {
    pub config: &'a Config,
    pub replica: &'a Partition,
    /// Tasks as they were read.
    pub read: &'a BTreeMap<TaskId, Seen>,
    /// Parts of them loaded from the log, as far as versions depend on them.
    pub loaded: &'a BTreeMap<Part, ByteBuf>,
    /// Viewstamp of the operation to come, as a token.
    pub at: Token,
    /// When the transaction was requested.
    pub at_ms: u64,
    /// End recorded for claims that it takes back, if all nodes can read such records.
    pub end: Option<Arc<ClaimEnd>>,
    /// Whether all nodes can read what a transaction depended on.
    pub logs_depends: bool,
}

/// Result of looking up a task.
enum Found {
    /// No task that could be changed, or not as expected.
    Absent,
    /// As expected, and held by another claim.
    Owned,
    /// As expected.
    There,
}

impl Judge<'_> {
    /// Returns the decision with its effects, or a refusal that lists what is not as expected. `bugs` are problems that are
    /// already known. An error means that it cannot be decided yet.
    pub fn judge(&self, transaction: &Transaction, bugs: Vec<String>) -> Result<Result<Decided, Box<Refusal>>, Error> {
        let mut refusal = Refusal { bugs, ..Refusal::default() };
        for Change { id, expected, .. } in &transaction.changes {
            match self.find(id, *expected, true)? {
                Found::There => {}
                Found::Owned => refusal.owned.push(*id),
                Found::Absent => refusal.changes.push(*id),
            }
        }
        for Delete { id, expected, .. } in &transaction.deletes {
            match self.find(id, *expected, true)? {
                Found::There => {}
                Found::Owned => refusal.owned.push(*id),
                Found::Absent => refusal.deletes.push(*id),
            }
        }
        for depend in &transaction.depends {
            // It may be held by any claim.
            if matches!(self.find(&depend.id, depend.expected, false)?, Found::Absent) {
                refusal.depends.push(depend.id);
            }
        }
        if refusal.is_empty() { self.decided(transaction).map(Ok) } else { Ok(Err(Box::new(refusal))) }
    }

    /// Looks a task up. Several transactions may depend on a task at once, and one changes it.
    fn find(&self, id: &TaskId, expected: Expected, changes: bool) -> Result<Found, Error> {
        let consensus = &self.replica.consensus;
        let ledger = &consensus.table.ledger;
        let is_locked = if changes { ledger.is_locked(id) } else { ledger.is_changing(id) };
        if is_locked && !mutant!(self.config, TransactionUnlocked) {
            return Err(Error::unavailable("another transaction changes the same task; ask again"));
        }
        let Some(task) = self.replica.store.task(id) else { return Ok(Found::Absent) };
        let entry = consensus.claim_entry(id);
        if !is_as_expected(task, entry, Expected::Present) {
            return Ok(Found::Absent);
        }
        // It has changed since it was read.
        let hash = task.spec.as_ref().map(|spec| spec.hash);
        if self.read.get(id).map(|read| read.hash) != hash {
            return Err(Error::unavailable("the task has just been changed; ask again"));
        }
        let held = entry.is_some_and(|entry| entry.state == ClaimState::Held) && !consensus.is_lapsed(id);
        let whole = if matches!(expected, Expected::Version(_)) { self.whole(id, task) } else { Cow::Borrowed(task) };
        Ok(match expected {
            _ if !is_as_expected(&whole, entry, expected) => Found::Absent,
            Expected::Present | Expected::Version(_) if held => Found::Owned,
            _ => Found::There,
        })
    }

    /// Returns a task with the parts that were loaded.
    fn whole<'b>(&self, id: &TaskId, task: &'b Task<Outline>) -> Cow<'b, Task<Outline>> {
        let mut whole = Cow::Borrowed(task);
        for wanted in task.blobs_wanted(*id) {
            if let Some(bytes) = self.loaded.get(&(wanted.id, wanted.slot, wanted.hash)) {
                whole.to_mut().fill_blob(wanted.slot, bytes.clone());
            }
        }
        whole
    }

    fn decided(&self, transaction: &Transaction) -> Result<Decided, Error> {
        let end = self.end.clone().filter(|_| transaction.changes.iter().any(|change| change.release));
        let mut decided = Decided { end, ..Decided::default() };
        for add in &transaction.adds {
            let fact = Task::from_spec(Arc::new(add.spec.clone()));
            decided.stamps.push((add.id, version(&fact, None)));
            decided.facts.push((add.id, fact));
        }
        for change in &transaction.changes {
            let fact = Task::from_spec(Arc::new(self.changed(change)?));
            decided.freed.extend(self.freed(change));
            decided.stamps.push((change.id, self.version_with(&change.id, &fact, change.release)));
            decided.facts.push((change.id, fact));
        }
        decided.facts.extend(transaction.deletes.iter().map(|delete| (delete.id, self.end(delete))));
        let changed = transaction.changes.iter().map(|change| change.id);
        decided.locked = changed.chain(transaction.deletes.iter().map(|delete| delete.id)).collect();
        decided.locked.sort_unstable();
        if self.logs_depends {
            decided.depends.clone_from(&transaction.depends);
            decided.depends.sort_unstable_by_key(|depend| depend.id);
        }
        let bytes = decided.size_bytes();
        if bytes > DECIDED_BYTES_MAX {
            let message = format!(
                "with what it leaves as it is, the tasks that the transaction makes have {bytes} bytes; at most \
                 {DECIDED_BYTES_MAX} are allowed, change fewer of them at once"
            );
            return Err(Error::invalid(message));
        }
        Ok(decided)
    }

    /// Returns the task's spec after the change.
    fn changed(&self, change: &Change) -> Result<Spec, Error> {
        let before = self.read.get(&change.id).and_then(|read| read.spec.as_ref());
        let before = before.ok_or_else(|| Error::unavailable("the task could not be read; ask again"))?;
        if before.queue.as_str() == SESSIONS_QUEUE {
            let message = "a session is not changed or given back, as its end is final: end it, `session end`";
            return Err(Error::invalid(message).about(change.id));
        }
        let revision = Revision { at: self.at, origin: Content::origin(before) };
        Ok(Spec {
            payload: change.payload.as_ref().map_or_else(|| before.payload.clone(), |payload| payload.to_vec()),
            headers: change.headers.clone().unwrap_or_else(|| before.headers.clone()),
            priority: change.priority.unwrap_or(before.priority),
            not_before_ms: change.not_before_ms.unwrap_or(before.not_before_ms),
            attempts_max: change.attempts_max.unwrap_or(before.attempts_max),
            revision: Some(Box::new(revision)),
            ..before.as_ref().clone()
        })
    }

    /// Returns the claim that ends with a change, and the earliest next claim of its task. A claim that was given back before
    /// takes the new time of the change.
    fn freed(&self, change: &Change) -> Option<(TaskId, Token, u64)> {
        let entry = self.replica.consensus.claim_entry(&change.id)?;
        match &entry.state {
            ClaimState::Held if change.release => {}
            ClaimState::Released { .. } if change.not_before_ms.is_some() => {}
            _ => return None,
        }
        Some((change.id, entry.token, change.not_before_ms.unwrap_or(0)))
    }

    /// Returns the facts of a task that the transaction ends.
    fn end(&self, delete: &Delete) -> Task {
        let Expected::Token(token) = delete.expected else {
            return Task::from_cancel(Cancel { dead: false, reason: DELETED.to_owned(), at_ms: self.at_ms });
        };
        let result = delete.result.clone().map(Blob::from);
        let completed = Completed { sequence: None, result, at_ms: self.at_ms, children: None };
        if token.needs_seal() { Task::from_seal(token, completed) } else { Task::from_completion(token, completed) }
    }

    /// Returns the version of a task after the change.
    fn version_with(&self, id: &TaskId, fact: &Task, released: bool) -> TaskVersion {
        let mut task = self.whole(id, self.replica.store.task(id).expect("it is there")).into_owned();
        task.merge(fact.clone().outlined());
        let mut entry = self.replica.consensus.claim_entry(id).cloned();
        if let Some(entry) = entry.as_mut().filter(|entry| released && entry.state == ClaimState::Held) {
            entry.state = ClaimState::Released { not_before_ms: 0, end: None };
        }
        version(&task, entry.as_ref())
    }
}
