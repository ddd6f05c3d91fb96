//! Builders of requests.

use super::answers::millis;
use super::{LEASE_DEFAULT, LEASE_MAX};
use crate::session::{Draft, Seen};
use norn_wire::ids::{ClaimId, QueueName, TaskId, Token};
use norn_wire::request::{Acks, Claim};
use norn_wire::transaction::Depend;
use std::time::Duration;

/// Options of a claim.
///
/// ```
/// use norn_client::client::ClaimOptions;
/// use norn_client::wire::QueueName;
/// use std::time::Duration;
/// let mail = QueueName::new("mail").unwrap();
/// let options = ClaimOptions::new([mail]).max(10).lease(Duration::from_secs(60)).wait(Duration::from_secs(5));
/// # assert_eq!(options.max, 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimOptions {
    /// Queues to take from.
    pub queues: Vec<QueueName>,
    /// Length of the lease; by default that of the task's queue, or 30 s where none is set for it.
    pub lease: Option<Duration>,
    /// How long to wait for work when there is none; not at all by default.
    pub wait: Duration,
    /// Most tasks to take; 1 by default.
    pub max: u32,
    /// Name of the worker, for people to read.
    pub worker: String,
    /// The worker's session, with which the claims end. Their own lease is then as long as possible, if none is given.
    pub session: Option<TaskId>,
    /// Tasks that must exist.
    pub depends: Vec<Depend>,
    /// Timeout of the call besides waiting; the client's by default.
    pub timeout: Option<Duration>,
}

impl ClaimOptions {
    /// The claim request for these options, with this waiting time.
    pub(super) fn claim(&self, wait: Duration) -> Claim {
        let lease = self.lease.unwrap_or(if self.session.is_some() { LEASE_MAX } else { LEASE_DEFAULT });
        Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: self.queues.clone(),
            lease_ms: millis(lease),
            wait_ms: millis(wait),
            max: self.max,
            worker: self.worker.clone(),
            lease_open: self.lease.is_none() && self.session.is_none(),
            session: self.session,
            depends: self.depends.clone(),
            confirms: false,
        }
    }

    /// Claims one task of these queues, without waiting, with the lease of its queue.
    pub fn new(queues: impl IntoIterator<Item = QueueName>) -> Self {
        ClaimOptions {
            queues: queues.into_iter().collect(),
            lease: None,
            wait: Duration::ZERO,
            max: 1,
            worker: String::new(),
            session: None,
            depends: Vec::new(),
            timeout: None,
        }
    }

    /// Sets the length of the lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how long to wait for work.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets the greatest number of tasks.
    #[must_use]
    pub fn max(mut self, max: u32) -> Self {
        self.max = max;
        self
    }

    /// Sets the name of the worker, for people to read.
    #[must_use]
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = worker.into();
        self
    }

    /// Sets the worker's session; see [`Client::open_session`](super::Client::open_session).
    #[must_use]
    pub fn session(mut self, session: TaskId) -> Self {
        self.session = Some(session);
        self
    }

    /// Requires a task to exist, in whatever partition, or else nothing is claimed: a switch, for example. The claim may take it itself.
    #[must_use]
    pub fn depend(mut self, task: impl Into<Seen>) -> Self {
        self.depends.push(task.into().depend());
        self
    }

    /// Sets the timeout of the call besides waiting.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// A completion.
///
/// ```
/// use norn_client::client::CompleteOptions;
/// use norn_client::session::Draft;
/// use norn_client::wire::{QueueName, TaskId, Token};
/// let receipt = Draft::new(QueueName::new("receipts").unwrap(), "for letter 7").priority(2);
/// let options =
///     CompleteOptions::new(TaskId::MIN, Token { epoch: 7, number: 42 }).sequence(3).result("sent").then(receipt);
/// # assert_eq!((options.sequence, options.children.len()), (Some(3), 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteOptions {
    /// Id of the task.
    pub id: TaskId,
    /// Token of the claim.
    pub token: Token,
    /// Number of updates that the claim wrote. Given, readers learn it while fewer are visible.
    pub sequence: Option<u32>,
    /// Result: opaque bytes.
    pub result: Option<Vec<u8>>,
    /// Tasks enqueued with the completion: all of them or, if it is refused, none. Several completions of one task, each under its own
    /// claim, may each bring their children.
    pub children: Vec<Draft>,
    /// Durability; a majority by default.
    pub acks: Acks,
}

impl CompleteOptions {
    /// A completion without result.
    pub fn new(id: TaskId, token: Token) -> Self {
        CompleteOptions { id, token, sequence: None, result: None, children: Vec::new(), acks: Acks::Quorum }
    }

    /// Sets the number of updates that the claim wrote.
    #[must_use]
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Sets the result: opaque bytes for readers of the task.
    #[must_use]
    pub fn result(mut self, result: impl Into<Vec<u8>>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Adds a task that is enqueued with the completion.
    #[must_use]
    pub fn then(mut self, child: Draft) -> Self {
        self.children.push(child);
        self
    }

    /// Sets the durability.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }
}

/// Report of a failed attempt.
///
/// ```
/// use norn_client::client::FailOptions;
/// use norn_client::wire::{TaskId, Token};
/// use std::time::Duration;
/// let token = Token { epoch: 7, number: 42 };
/// let options = FailOptions::new(TaskId::MIN, token).reason("no route").retry_in(Duration::from_secs(30));
/// # assert!(!options.invalid);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailOptions {
    /// Id of the task.
    pub id: TaskId,
    /// Token of the claim.
    pub token: Token,
    /// Reason, for people to read.
    pub reason: String,
    /// Time during which the task is not claimable; by default the queue's backoff, or none if the queue has no backoff.
    pub retry_in: Option<Duration>,
    /// The task becomes `dead`: it is never retried.
    pub invalid: bool,
}

impl FailOptions {
    /// A failure after which the task can be claimed again as its queue's backoff allows.
    pub fn new(id: TaskId, token: Token) -> Self {
        FailOptions { id, token, reason: String::new(), retry_in: None, invalid: false }
    }

    /// Sets the reason, for people to read.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the time during which the task is not claimable.
    #[must_use]
    pub fn retry_in(mut self, retry_in: Duration) -> Self {
        self.retry_in = Some(retry_in);
        self
    }

    /// Makes the task `dead`: it is never retried.
    #[must_use]
    pub fn invalid(mut self) -> Self {
        self.invalid = true;
        self
    }
}
