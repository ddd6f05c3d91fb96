//! A transaction whose ids and times are not yet resolved.

use super::Draft;
use norn_wire::ids::{TaskId, TaskVersion, Token};
use norn_wire::transaction::{Change, Delete, Depend, Expected};
use serde_bytes::ByteBuf;

/// A task and what a transaction expects of it: that it exists (the id alone), a version, or the token of a claim.
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
    /// A precondition: the task must be as expected.
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

/// A change of a task; fields that are not set stay as they are.
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
    /// The change, without a delay.
    pub change: Change,
    /// The task is not claimable for this long after the first attempt; excludes `change.not_before_ms`.
    pub delay_ms: Option<u64>,
}

impl ChangeDraft {
    /// Starts from a change that alters nothing.
    pub fn of(task: impl Into<Seen>) -> Self {
        let Seen { id, expected } = task.into();
        ChangeDraft { change: Change { id, expected, ..Change::default() }, delay_ms: None }
    }

    /// Replaces the payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.change.payload = Some(ByteBuf::from(payload.into()));
        self
    }

    /// Replaces all headers.
    #[must_use]
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.change.headers = Some(headers);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.change.priority = Some(priority);
        self
    }

    /// Makes the task unclaimable before this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn not_before_ms(mut self, not_before_ms: u64) -> Self {
        self.change.not_before_ms = Some(not_before_ms);
        self
    }

    /// Makes the task unclaimable for this long; 0: claimable at once.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = Some(delay_ms);
        self
    }

    /// Sets the limit of attempts; 0 means no limit.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.change.attempts_max = Some(attempts_max);
        self
    }

    /// Releases the claim, on behalf of its holder.
    #[must_use]
    pub fn release(mut self) -> Self {
        self.change.release = true;
        self
    }
}

/// An atomic change of several tasks: all parts take effect, or none. Tasks that lie together change fastest: they have one queue and key,
/// or were enqueued near each other. Tasks added here are placed with the first one named, unless they have a key or a place of their own.
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
    /// Id of an earlier transaction whose outcome was unknown, to repeat it.
    pub id: Option<TaskId>,
    /// Places the transaction with this task, if it names no other.
    pub near: Option<TaskId>,
    /// Tasks to enqueue.
    pub adds: Vec<Draft>,
    /// Tasks to change.
    pub changes: Vec<ChangeDraft>,
    /// Tasks to end.
    pub deletes: Vec<Delete>,
    /// Tasks that must exist.
    pub depends: Vec<Depend>,
}

impl TransactionDraft {
    /// Starts with a transaction that does nothing.
    pub fn new() -> Self {
        TransactionDraft::default()
    }

    /// Adds a task.
    #[must_use]
    pub fn enqueue(mut self, draft: Draft) -> Self {
        self.adds.push(draft);
        self
    }

    /// Changes a task.
    #[must_use]
    pub fn change(mut self, change: ChangeDraft) -> Self {
        self.changes.push(change);
        self
    }

    /// Ends a task: as done if its token is given, else as cancelled.
    #[must_use]
    pub fn delete(mut self, task: impl Into<Seen>) -> Self {
        let Seen { id, expected } = task.into();
        self.deletes.push(Delete { id, expected, result: None });
        self
    }

    /// Completes a task with a result, on behalf of its holder.
    #[must_use]
    pub fn complete(mut self, id: TaskId, token: Token, result: impl Into<Vec<u8>>) -> Self {
        let result = Some(ByteBuf::from(result.into()));
        self.deletes.push(Delete { id, expected: Expected::Token(token), result });
        self
    }

    /// Requires a task to exist, without changing it.
    #[must_use]
    pub fn depend(mut self, task: impl Into<Seen>) -> Self {
        self.depends.push(task.into().depend());
        self
    }

    /// Places the transaction with this task, if it names no other.
    #[must_use]
    pub fn near(mut self, task: TaskId) -> Self {
        self.near = Some(task);
        self
    }
}
