//! Transactions: changes of several tasks at once, all of them or none.
//!
//! Where all its tasks lie in one partition, the leader of that decides; otherwise the leaders of all of them agree. A task is unchanged
//! since it was read if it still has the [version](TaskVersion) that the read returned, or is still held under the token that the claim
//! returned.

use super::error::Error;
use super::ids::{TaskId, TaskVersion, Token};
use super::limits::{PAYLOAD_BYTES_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_TASKS_MAX};
use super::request::{NewTask, Spec};
use super::validate::{check_headers, check_spec, check_tag};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::fmt;

/// Precondition on a task (compare-and-set). A task that has ended never meets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Expected {
    /// The task is open, whatever its content.
    #[default]
    #[serde(rename = "P")]
    Present,
    /// The task is open and unchanged since the read that returned this version.
    #[serde(rename = "V")]
    Version(TaskVersion),
    /// The task is held under this claim, and the caller is its holder.
    #[serde(rename = "T")]
    Token(Token),
}

/// Read-only precondition: a task that must be open and is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depend {
    /// Task.
    pub id: TaskId,
    /// Precondition.
    #[serde(default)]
    pub expected: Expected,
}

/// Edit of a task. Absent fields stay as they are; queue, key, group and dependencies cannot change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Task.
    pub id: TaskId,
    /// Precondition.
    #[serde(default)]
    pub expected: Expected,
    /// New payload: opaque bytes.
    #[serde(default)]
    pub payload: Option<ByteBuf>,
    /// New headers, replacing all.
    #[serde(default)]
    pub headers: Option<Vec<(String, String)>>,
    /// New priority. Higher is claimed first.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Earliest time at which the task can be claimed, in milliseconds since the Unix epoch; 0 means at once. For a held task it applies
    /// once the claim is released.
    #[serde(default)]
    pub not_before_ms: Option<u64>,
    /// After this many claims that failed or ran out, the task is dead; 0 means no limit.
    #[serde(default)]
    pub attempts_max: Option<u32>,
    /// The holder releases its claim. This does not count as an attempt.
    #[serde(default)]
    pub release: bool,
}

/// End of a task: done if the precondition is its holder's token, else cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delete {
    /// Task.
    pub id: TaskId,
    /// Precondition.
    #[serde(default)]
    pub expected: Expected,
    /// Result of the holder: opaque bytes.
    #[serde(default)]
    pub result: Option<ByteBuf>,
}

/// Transaction: several tasks added, changed and ended together, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transaction {
    /// Id of this call. A repeat carries the same id and takes effect once.
    pub id: TaskId,
    /// Time of the call, by the session's server time.
    pub at_ms: u64,
    /// New tasks.
    pub adds: Vec<NewTask>,
    /// Tasks to edit.
    pub changes: Vec<Change>,
    /// Tasks to end.
    pub deletes: Vec<Delete>,
    /// Tasks that must be open.
    pub depends: Vec<Depend>,
}

/// Why nothing was changed: every failed precondition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Refusal {
    /// Tasks to edit that failed their precondition.
    pub changes: Vec<TaskId>,
    /// Tasks to end that failed their precondition.
    pub deletes: Vec<TaskId>,
    /// Tasks of `depends` that failed their precondition.
    pub depends: Vec<TaskId>,
    /// Tasks to edit or end that another worker holds.
    pub owned: Vec<TaskId>,
    /// Internal errors, as text for people.
    pub bugs: Vec<String>,
}

impl Refusal {
    /// Whether no precondition failed.
    pub fn is_empty(&self) -> bool {
        *self == Refusal::default()
    }

    /// Returns the size in bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        let ids = self.changes.len() + self.deletes.len() + self.depends.len() + self.owned.len();
        ids * std::mem::size_of::<TaskId>() + self.bugs.iter().map(String::len).sum::<usize>()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = "not there any more as expected";
        let lists = [
            (&self.changes, "to be changed, and", absent),
            (&self.deletes, "to end, and", absent),
            (&self.depends, "depended on, and", absent),
            (&self.owned, "held by another worker:", "wait until the claim has ended, or give its token"),
        ];
        formatter.write_str("nothing was changed")?;
        for (ids, what, why) in lists.into_iter().filter(|(ids, ..)| !ids.is_empty()) {
            let ids: Vec<String> = ids.iter().map(TaskId::to_string).collect();
            write!(formatter, "; {what} {why}: {}", ids.join(" "))?;
        }
        self.bugs.iter().try_for_each(|bug| write!(formatter, "; {bug}"))
    }
}

impl std::error::Error for Refusal {}

/// Returns the tasks that a transaction names and does not add.
pub(crate) fn named<'a>(
    changes: &'a [Change],
    deletes: &'a [Delete],
    depends: &'a [Depend],
) -> impl Iterator<Item = TaskId> + 'a {
    let changed = changes.iter().map(|change| change.id);
    changed.chain(deletes.iter().map(|delete| delete.id)).chain(depends.iter().map(|depend| depend.id))
}

impl Transaction {
    /// Returns the tasks that the transaction names and does not add.
    pub fn named(&self) -> impl Iterator<Item = TaskId> + '_ {
        named(&self.changes, &self.deletes, &self.depends)
    }

    /// Returns the size of its content in bytes.
    pub fn size_bytes(&self) -> usize {
        const TASK_BYTES: usize = 64;
        let headers =
            |headers: &[(String, String)]| headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let adds: usize = self.adds.iter().map(|add| add.spec.payload.len() + headers(&add.spec.headers)).sum();
        let of_change = |change: &Change| {
            change.payload.as_ref().map_or(0, |payload| payload.len())
                + change.headers.as_ref().map_or(0, |list| headers(list))
        };
        let changes: usize = self.changes.iter().map(of_change).sum();
        let results: usize = self.deletes.iter().filter_map(|delete| delete.result.as_ref()).map(|it| it.len()).sum();
        adds + changes + results + (self.adds.len() + self.named().count()) * TASK_BYTES
    }

    /// Checks the limits.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_any(self.adds.len() + self.changes.len() + self.deletes.len())?;
        self.check_part()
    }

    /// Checks the limits of a part of a transaction, which may change nothing.
    pub fn check_part(&self) -> Result<(), Error> {
        let adds = self.adds.iter().map(|add| (Some(add.id), &add.spec));
        check_tasks(adds, (&self.changes, &self.deletes, &self.depends), self.size_bytes())
    }
}

fn check_any(count: usize) -> Result<(), Error> {
    let message = "a transaction that changes nothing; add, change or delete at least one task";
    if count == 0 { Err(Error::invalid(message)) } else { Ok(()) }
}

/// Checks what can be checked before ids are minted.
pub fn check<'a>(
    adds: impl ExactSizeIterator<Item = (Option<TaskId>, &'a Spec)>,
    (changes, deletes, depends): (&[Change], &[Delete], &[Depend]),
    bytes: usize,
) -> Result<(), Error> {
    check_any(adds.len() + changes.len() + deletes.len())?;
    check_tasks(adds, (changes, deletes, depends), bytes)
}

fn check_tasks<'a>(
    adds: impl ExactSizeIterator<Item = (Option<TaskId>, &'a Spec)>,
    (changes, deletes, depends): (&[Change], &[Delete], &[Depend]),
    bytes: usize,
) -> Result<(), Error> {
    let count = adds.len() + changes.len() + deletes.len() + depends.len();
    if count > TRANSACTION_TASKS_MAX {
        let message = format!("a transaction of {count} tasks; at most {TRANSACTION_TASKS_MAX} are allowed");
        return Err(Error::invalid(message));
    }
    if bytes > TRANSACTION_BYTES_MAX {
        let message = format!("a transaction of {bytes} bytes; at most {TRANSACTION_BYTES_MAX} are allowed");
        return Err(Error::invalid(message));
    }
    let mut ids = BTreeSet::new();
    let mut name = |id: TaskId| {
        let message = "a transaction names a task twice; say once what is to become of it";
        if ids.insert(id) { Ok(()) } else { Err(Error::invalid(message).about(id)) }
    };
    for (id, spec) in adds {
        let about = |error: Error| if let Some(id) = id { error.about(id) } else { error };
        check_spec(spec).and_then(|_| check_tag(id, spec)).map_err(about)?;
        if spec.grouping.is_some() {
            return Err(about(Error::invalid("a task of a group comes by itself, not with a transaction")));
        }
        id.map_or(Ok(()), &mut name)?;
    }
    named(changes, deletes, depends).try_for_each(name)?;
    changes.iter().try_for_each(Change::check)?;
    deletes.iter().try_for_each(Delete::check)
}

impl Change {
    fn check(&self) -> Result<(), Error> {
        let bytes = self.payload.as_ref().map_or(0, |payload| payload.len());
        let held = matches!(self.expected, Expected::Token(_));
        let error = if bytes > PAYLOAD_BYTES_MAX {
            Error::invalid(format!("a payload of {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are allowed"))
        } else if self.release && !held {
            Error::invalid("only its holder gives a task back: name the token of the claim")
        } else if let Err(error) = self.headers.as_ref().map_or(Ok(0), |headers| check_headers(headers)) {
            error
        } else {
            return Ok(());
        };
        Err(error.about(self.id))
    }
}

impl Delete {
    fn check(&self) -> Result<(), Error> {
        let bytes = self.result.as_ref().map_or(0, |result| result.len());
        let held = matches!(self.expected, Expected::Token(_));
        let error = if bytes > PAYLOAD_BYTES_MAX {
            Error::invalid(format!("a result of {bytes} bytes; at most {PAYLOAD_BYTES_MAX} are allowed"))
        } else if self.result.is_some() && !held {
            Error::invalid("only its holder completes a task with a result: name the token of the claim")
        } else {
            return Ok(());
        };
        Err(error.about(self.id))
    }
}
