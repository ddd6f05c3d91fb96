//! A transaction before its ids are minted and its times are resolved.

use super::Draft;
use norn_wire::ids::{TaskId, TaskVersion, Token};
use norn_wire::transaction::{Change, Delete, Depend, Expected};
use serde_bytes::ByteBuf;

/// A task that a transaction is to find as it was seen last: by its id alone, with a version, or with the token of a claim.
///
/// ```
/// use norn_client::session::Seen;
/// use norn_client::wire::{TaskId, Token};
/// let held = Seen::from((TaskId::MIN, Token { epoch: 7, number: 42 }));
/// # let _ = held;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    id: TaskId,
    expected: Expected,
}

impl Seen {
    /// That it must be there.
    pub fn depend(self) -> Depend {
        Depend { id: self.id, expected: self.expected }
    }
}

impl From<TaskId> for Seen {
    fn from(id: TaskId) -> Self {
        Seen { id, expected: Expected::Present }
    }
}

impl From<(TaskId, TaskVersion)> for Seen {
    fn from((id, version): (TaskId, TaskVersion)) -> Self {
        Seen { id, expected: Expected::Version(version) }
    }
}

impl From<(TaskId, Token)> for Seen {
    fn from((id, token): (TaskId, Token)) -> Self {
        Seen { id, expected: Expected::Token(token) }
    }
}

impl From<(TaskId, Expected)> for Seen {
    fn from((id, expected): (TaskId, Expected)) -> Self {
        Seen { id, expected }
    }
}

/// A task that is to be changed; what is not named stays as it is.
///
/// ```
/// use norn_client::session::ChangeDraft;
/// use norn_client::wire::{TaskId, Token};
/// let token = Token { epoch: 7, number: 42 };
/// let change = ChangeDraft::of((TaskId::MIN, token)).payload("half done").release().delay_ms(60_000);
/// # assert_eq!(change.delay_ms, Some(60_000));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeDraft {
    /// Without a delay.
    pub change: Change,
    /// Not claimable for this long after the first attempt; excludes `change.not_before_ms`.
    pub delay_ms: Option<u64>,
}

impl ChangeDraft {
    /// Changes nothing yet.
    pub fn of(task: impl Into<Seen>) -> Self {
        let Seen { id, expected } = task.into();
        ChangeDraft { change: Change { id, expected, ..Change::default() }, delay_ms: None }
    }

    /// Other data.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.change.payload = Some(ByteBuf::from(payload.into()));
        self
    }

    /// Other headers, instead of all that it has.
    #[must_use]
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.change.headers = Some(headers);
        self
    }

    /// Another priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.change.priority = Some(priority);
        self
    }

    /// Not claimable before this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn not_before_ms(mut self, not_before_ms: u64) -> Self {
        self.change.not_before_ms = Some(not_before_ms);
        self
    }

    /// Not claimable for this long; 0: claimable at once.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = Some(delay_ms);
        self
    }

    /// Another number of attempts; 0 means no limit.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.change.attempts_max = Some(attempts_max);
        self
    }

    /// Its holder gives it back.
    #[must_use]
    pub fn release(mut self) -> Self {
        self.change.release = true;
        self
    }
}

/// Changes of several tasks at once: all of them are made, or none. The tasks must lie together: they have one queue and key, or
/// were enqueued near each other; what is added here lies where the others do.
///
/// ```
/// use norn_client::session::{ChangeDraft, Draft, TransactionDraft};
/// use norn_client::wire::{QueueName, TaskId, Token};
/// # let (done, token, switch) = (TaskId::MIN, Token { epoch: 7, number: 42 }, TaskId::MAX);
/// // The holder of a task replaces it by another one, as long as the switch is there.
/// let next = Draft::new(QueueName::new("reduce").unwrap(), "part 7");
/// let transaction = TransactionDraft::new().enqueue(next).delete((done, token)).depend(switch);
/// # assert_eq!(transaction.adds.len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionDraft {
    /// Repeats an earlier one whose outcome was unknown.
    pub id: Option<TaskId>,
    /// It lies where this task does, if it names none.
    pub near: Option<TaskId>,
    /// New tasks.
    pub adds: Vec<Draft>,
    /// Tasks that shall be others.
    pub changes: Vec<ChangeDraft>,
    /// Tasks that shall end.
    pub deletes: Vec<Delete>,
    /// Tasks that must be there.
    pub depends: Vec<Depend>,
}

impl TransactionDraft {
    /// Does nothing yet.
    pub fn new() -> Self {
        TransactionDraft::default()
    }

    /// A new task.
    #[must_use]
    pub fn enqueue(mut self, draft: Draft) -> Self {
        self.adds.push(draft);
        self
    }

    /// A task that shall be another one.
    #[must_use]
    pub fn change(mut self, change: ChangeDraft) -> Self {
        self.changes.push(change);
        self
    }

    /// A task that shall end: done, where its token is named, and else cancelled.
    #[must_use]
    pub fn delete(mut self, task: impl Into<Seen>) -> Self {
        let Seen { id, expected } = task.into();
        self.deletes.push(Delete { id, expected, result: None });
        self
    }

    /// A task that its holder completes with a result.
    #[must_use]
    pub fn complete(mut self, id: TaskId, token: Token, result: impl Into<Vec<u8>>) -> Self {
        let result = Some(ByteBuf::from(result.into()));
        self.deletes.push(Delete { id, expected: Expected::Token(token), result });
        self
    }

    /// A task that must be there, and is not changed.
    #[must_use]
    pub fn depend(mut self, task: impl Into<Seen>) -> Self {
        self.depends.push(task.into().depend());
        self
    }

    /// Where it lies, if it names no task: where this one does.
    #[must_use]
    pub fn near(mut self, task: TaskId) -> Self {
        self.near = Some(task);
        self
    }
}
