//! Whether a transaction may be made, and what it makes of its tasks.

use super::ledger::{Decided, Stamps};
use super::table::CellState;
use crate::config::{Config, mutant};
use crate::limits::DECIDED_BYTES_MAX;
use crate::protocol::partition::Partition;
use crate::protocol::partition::version::{is_as_expected, version};
use crate::protocol::task::{Blob, Cancel, Completed, Content, Outline, Part, Task};
use crdts::CvRDT;
use norn_wire::error::Error;
use norn_wire::request::Revision;
use norn_wire::response::ClaimEnd;
use norn_wire::transaction::{Change, Delete, Expected, Refusal};
use norn_wire::{SESSIONS_QUEUE, Spec, TaskId, TaskVersion, Token, Transaction};
use serde_bytes::ByteBuf;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a task without a word is cancelled.
const DELETED: &str = "deleted by a transaction";

/// A task as it was when it was read.
#[derive(Debug)]
pub(super) struct Seen {
    /// Of its spec.
    pub hash: u64,
    /// All of it, if it is to be changed.
    pub spec: Option<Arc<Spec>>,
}

/// Compares what is with what was expected.
pub(super) struct Judge<'a> {
    pub config: &'a Config,
    pub replica: &'a Partition,
    /// The tasks as they were read.
    pub read: &'a BTreeMap<TaskId, Seen>,
    /// What of them is not in memory here, as far as their versions go by it.
    pub loaded: &'a BTreeMap<Part, ByteBuf>,
    /// What the operation will be.
    pub at: Token,
    /// When it was asked for.
    pub at_ms: u64,
    /// How a claim ends that it takes back, if all can read that.
    pub end: Option<Arc<ClaimEnd>>,
}

/// What is there under an id.
enum Found {
    /// Nothing that could be changed, or not as expected.
    Absent,
    /// It is as expected, and held by somebody else.
    Owned,
    /// It is as expected.
    There,
}

impl Judge<'_> {
    /// What the transaction makes of its tasks, or what is not as it expects. `bugs` are known before. An error means that nobody can
    /// say yet.
    pub fn judge(&self, transaction: &Transaction, bugs: Vec<String>) -> Result<Result<Decided, Box<Refusal>>, Error> {
        let mut refusal = Refusal { bugs, ..Refusal::default() };
        for Change { id, expected, .. } in &transaction.changes {
            match self.find(id, *expected)? {
                Found::There => {}
                Found::Owned => refusal.owned.push(*id),
                Found::Absent => refusal.changes.push(*id),
            }
        }
        for Delete { id, expected, .. } in &transaction.deletes {
            match self.find(id, *expected)? {
                Found::There => {}
                Found::Owned => refusal.owned.push(*id),
                Found::Absent => refusal.deletes.push(*id),
            }
        }
        for depend in &transaction.depends {
            // It may be held by anybody.
            if matches!(self.find(&depend.id, depend.expected)?, Found::Absent) {
                refusal.depends.push(depend.id);
            }
        }
        if refusal.is_empty() { self.decided(transaction).map(Ok) } else { Ok(Err(Box::new(refusal))) }
    }

    fn find(&self, id: &TaskId, expected: Expected) -> Result<Found, Error> {
        let register = &self.replica.register;
        if register.table.ledger.is_locked(id) && !mutant!(self.config, TransactionUnlocked) {
            return Err(Error::unavailable("another transaction changes the same task; ask again"));
        }
        let Some(task) = self.replica.store.task(id) else { return Ok(Found::Absent) };
        let cell = register.cell(id);
        if !is_as_expected(task, cell, Expected::Present) {
            return Ok(Found::Absent);
        }
        // It has changed since it was read.
        let hash = task.spec.as_ref().map(|spec| spec.hash);
        if self.read.get(id).map(|read| read.hash) != hash {
            return Err(Error::unavailable("the task has just been changed; ask again"));
        }
        let held = cell.is_some_and(|cell| cell.state == CellState::Held) && !register.is_lapsed(id);
        let whole = if matches!(expected, Expected::Version(_)) { self.whole(id, task) } else { Cow::Borrowed(task) };
        Ok(match expected {
            _ if !is_as_expected(&whole, cell, expected) => Found::Absent,
            Expected::Present | Expected::Version(_) if held => Found::Owned,
            _ => Found::There,
        })
    }

    /// A task with what was loaded of it.
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
        let mut decided =
            Decided { facts: Vec::new(), locked: Vec::new(), freed: Vec::new(), stamps: Stamps::default(), end };
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

    /// The task as it is to be.
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

    /// The claim that ends with a change, and when the task may be claimed then. One that was given back before waits as the
    /// change says.
    fn freed(&self, change: &Change) -> Option<(TaskId, Token, u64)> {
        let cell = self.replica.register.cell(&change.id)?;
        match &cell.state {
            CellState::Held if change.release => {}
            CellState::Released { .. } if change.not_before_ms.is_some() => {}
            _ => return None,
        }
        Some((change.id, cell.token, change.not_before_ms.unwrap_or(0)))
    }

    /// What becomes of a task that ends.
    fn end(&self, delete: &Delete) -> Task {
        let Expected::Token(token) = delete.expected else {
            return Task::from_cancel(Cancel { dead: false, reason: DELETED.to_owned(), at_ms: self.at_ms });
        };
        let result = delete.result.clone().map(Blob::from);
        let completed = Completed { sequence: None, result, at_ms: self.at_ms, children: None };
        if token.needs_seal() { Task::from_seal(token, completed) } else { Task::from_completion(token, completed) }
    }

    /// The version of a task with what is to become of it.
    fn version_with(&self, id: &TaskId, fact: &Task, released: bool) -> TaskVersion {
        let mut task = self.whole(id, self.replica.store.task(id).expect("it is there")).into_owned();
        task.merge(fact.clone().outlined());
        let mut cell = self.replica.register.cell(id).cloned();
        if let Some(cell) = cell.as_mut().filter(|cell| released && cell.state == CellState::Held) {
            cell.state = CellState::Released { not_before_ms: 0, end: None };
        }
        version(&task, cell.as_ref())
    }
}
