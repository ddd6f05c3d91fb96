//! Inputs and outputs of a session, its calls and its settings.

use super::transaction::TransactionDraft;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::group::{Join, MemberOf, NAMED_GROUP};
use norn_wire::headers::TEXT_ID;
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::limits;
use norn_wire::request::{Acks, Completion, Request, Spec};
use norn_wire::response::Response;
use norn_wire::text_id::TextId;
use std::sync::{Arc, OnceLock};

/// Name of a call within a session. The host chooses it and does not use it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A task to be enqueued, without an id and with its delay unresolved.
///
/// ```
/// use norn_client::session::Draft;
/// use norn_client::wire::QueueName;
/// let mail = QueueName::new("mail").unwrap();
/// let draft = Draft::new(mail, "hello").priority(5).delay_ms(1_500).header("content-type", "text/plain");
/// # assert_eq!(draft.spec.payload, b"hello");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Id of the task. Absent: the session generates one.
    pub id: Option<TaskId>,
    /// Specification of the task.
    pub spec: Spec,
    /// The task is not claimable for this long after the first attempt to enqueue it, or, if an id is named here, after the time in that
    /// id: so a repeat asks for the same. Excludes `spec.not_before_ms`.
    pub delay_ms: u64,
    /// Places the task with this one (same tag, same partition), so that one leader decides a [transaction](TransactionDraft) of both;
    /// excludes a key.
    pub near: Option<TaskId>,
}

pub use norn_wire::SESSIONS_QUEUE;

impl Draft {
    /// A worker session that any worker may claim. Sessions are interchangeable, so the claimant need not be the one that enqueued it.
    pub fn session(worker: &str) -> Self {
        let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
        Draft::new(queue, worker).attempts_max(1)
    }

    /// A task of priority 0 without delay, headers or limit of attempts.
    pub fn new(queue: QueueName, payload: impl Into<Vec<u8>>) -> Self {
        Draft { id: None, spec: Spec::new(queue, payload), delay_ms: 0, near: None }
    }

    /// Places the task with another one (same tag, same partition), so that one leader decides a [transaction](TransactionDraft) of both.
    #[must_use]
    pub fn near(mut self, task: TaskId) -> Self {
        self.near = Some(task);
        self
    }

    /// Sets the id, to repeat an earlier enqueue whose outcome was unknown.
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the priority. Higher priorities are claimed first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = priority;
        self
    }

    /// Makes the task unclaimable for this long.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Makes the task unclaimable before this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn not_before_ms(mut self, not_before_ms: u64) -> Self {
        self.spec.not_before_ms = not_before_ms;
        self
    }

    /// Adds a header, which is passed to the worker.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec.headers.push((name.into(), value.into()));
        self
    }

    /// Makes the task unclaimable before these tasks have ended. They may be enqueued later than this one.
    #[must_use]
    pub fn after(mut self, after: Vec<TaskId>) -> Self {
        self.spec.after = after;
        self
    }

    /// Sets the key. Tasks of one queue with the same key run one at a time, the oldest first.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// Gives the task a text id: its queue, its key, and the header that shows it. Enqueue a task by itself as a
    /// [unique](Call::EnqueueUnique) one, and name the group of a member: then one open task has the text id.
    #[must_use]
    pub fn text_id(mut self, id: &TextId) -> Self {
        self.spec.queue = id.queue().clone();
        self.spec.key = id.key();
        self.spec.headers.retain(|(name, _)| name != TEXT_ID);
        self.header(TEXT_ID, id.to_string())
    }

    /// Makes the task the member of a group with this number, from 1. Its id follows from both, so that it is stored once, however
    /// often and by whichever client it is enqueued.
    #[must_use]
    pub fn member_of(mut self, group: TaskId, number: u32) -> Self {
        self.spec.grouping.get_or_insert_default().member = Some(MemberOf { group, number });
        self
    }

    /// Makes the task the join of a group: claimable once all members of the group have ended. Their number may be
    /// [set later](Request::CloseGroup).
    #[must_use]
    pub fn join(mut self, total: Option<u32>, fail_fast: bool) -> Self {
        self.spec.grouping.get_or_insert_default().join = Some(Join { total, fail_fast });
        self
    }

    /// Makes the task the join of the group with this name, of which a queue has one at a time. Enqueue it as a
    /// [unique](Call::EnqueueUnique) task; the answer names the join that exists.
    #[must_use]
    pub fn group_name(self, name: &str) -> Self {
        let join = self.spec.grouping.as_ref().and_then(|grouping| grouping.join).unwrap_or_default();
        self.join(join.total, join.fail_fast).key(format!("{NAMED_GROUP}{name}"))
    }

    /// Sets the number of claims, failed or expired, after which the task is dead; 0 means no limit.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.spec.attempts_max = attempts_max;
        self
    }
}

/// Replaces a conflict's message by the reason why a group could not be closed.
pub fn explain_close(error: Error) -> Error {
    if error.code != ErrorCode::Conflict {
        return error;
    }
    let message = "the task is no join of a group, or its group has another number of members already";
    Error { message: message.to_owned(), ..error }
}

/// The error for a group whose name is the key of another task.
pub fn explain_name(name: &str, id: TaskId) -> Error {
    let message = format!("a task that is no join has the key of the group {name:?}; name the group otherwise");
    Error::new(ErrorCode::Conflict, message).about(id)
}

/// A completion and its child tasks, which have no ids yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// The completion, without children.
    pub completion: Completion,
    /// Child tasks, enqueued once the completion is acknowledged. A repeat of the call carries the same ids.
    pub children: Vec<Draft>,
}

/// A call that an application makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Stores tasks. Answered with [`Response::Acked`].
    Enqueue {
        /// At most [`limits::BATCH_TASKS_MAX`] tasks. Members without a group become those of the join among them, if there is one.
        drafts: Vec<Draft>,
        /// Durability.
        acks: Acks,
    },
    /// Stores a task with a key, unless one with this key has not ended. Answered with [`Response::AckedUnique`].
    EnqueueUnique {
        /// The task; it has a key.
        draft: Box<Draft>,
    },
    /// Adds, changes and ends several tasks together, or none of them. Answered with [`Response::Transacted`].
    Transact {
        /// At least one added, changed or ended task.
        draft: Box<TransactionDraft>,
    },
    /// Ends tasks and enqueues their child tasks. Answered with [`Response::Acked`].
    Complete {
        /// At most [`limits::BATCH_TASKS_MAX`] completions.
        items: Vec<Finish>,
        /// Durability of the completions.
        acks: Acks,
    },
    /// Enqueues a dead task again. Answered with [`Response::AckedOne`] for the copy that exists.
    Redrive {
        /// The dead task.
        id: TaskId,
        /// Id of the requested copy.
        copy: CopyId,
        /// Queue of the copy; absent: that of the dead task.
        queue: Option<QueueName>,
        /// Durability.
        acks: Acks,
    },
    /// Lends ids for tasks that the caller enqueues later under them. Nothing is sent: the session answers with [`Response::Done`] once a
    /// node has lent it a minter field.
    LendIds {
        /// Number of ids, from 1 to [`limits::BATCH_TASKS_MAX`].
        count: u32,
        /// The ids, once the call is answered.
        ids: LentIds,
    },
    /// Any other request except `hello`, `confirm` and `leave`, which the session sends itself. A claim of id 0 and times of 0 are
    /// filled in.
    Request(Request),
}

/// Id of a copy, which the session generates at the first attempt. A caller that keeps it can repeat the call for the same copy,
/// whatever became of the first attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyId(Arc<OnceLock<TaskId>>);

impl CopyId {
    /// The id. Absent until the first attempt.
    pub fn get(&self) -> Option<TaskId> {
        self.0.get().copied()
    }

    pub(super) fn settle(&self, mint: impl FnOnce() -> TaskId) -> TaskId {
        *self.0.get_or_init(mint)
    }
}

impl From<TaskId> for CopyId {
    fn from(id: TaskId) -> Self {
        CopyId(Arc::new(id.into()))
    }
}

/// Ids that the session lends to a caller, each of its own, in increasing order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LentIds(Arc<OnceLock<Vec<TaskId>>>);

impl LentIds {
    /// The ids. Empty until the call is answered.
    pub fn get(&self) -> &[TaskId] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn settle(&self, mint: impl FnOnce() -> Vec<TaskId>) {
        self.0.get_or_init(mint);
    }
}

/// An event for the session.
#[derive(Debug, Clone)]
pub enum Input {
    /// The application makes a call.
    Submit {
        /// Id of the call, not used before.
        call: CallId,
        /// The call.
        body: Call,
        /// Latest time for an answer, on the clock given to [`Session::step`](super::Session::step).
        deadline_us: u64,
    },
    /// The application is not interested any more. The call ends as if its deadline had passed.
    Abandon {
        /// A call; unknown and finished ones are ignored.
        call: CallId,
    },
    /// An [`Output::Connect`] has succeeded.
    Connected {
        /// Index of the endpoint.
        endpoint: usize,
    },
    /// An [`Output::Connect`] has failed, or a connection has ended. Not reported for an [`Output::Disconnect`].
    Disconnected {
        /// Index of the endpoint.
        endpoint: usize,
    },
    /// As [`Input::Disconnected`], by a node that was heard. Unless the error passes, further attempts fail too until an operator
    /// changes something.
    Refused {
        /// Index of the endpoint.
        endpoint: usize,
        /// Reason. If it does not pass, it becomes the answer to calls that no other node serves.
        error: Error,
    },
    /// A part of an answer has arrived.
    Heard {
        /// Index of the endpoint.
        endpoint: usize,
    },
    /// An answer has arrived.
    Received {
        /// Index of the endpoint.
        endpoint: usize,
        /// Number of the request that is answered.
        number: u64,
        /// The answer.
        response: Response,
    },
    /// The connections are about to end: the session sends its last messages at once, as far as a node is connected.
    Closing,
    /// The time of [`Session::next_wake`](super::Session::next_wake) has come. Harmless at any other time.
    Wake,
}

/// An action for the host.
#[derive(Debug, Clone)]
pub enum Output {
    /// Connect, and report [`Input::Connected`], [`Input::Disconnected`] or [`Input::Refused`].
    Connect {
        /// Index of the endpoint.
        endpoint: usize,
    },
    /// Drop the connection or the attempt to make one; report nothing more about it.
    Disconnect {
        /// Index of the endpoint.
        endpoint: usize,
    },
    /// Send a request on an open connection. Requests of one connection keep their order.
    Send {
        /// Index of the endpoint.
        endpoint: usize,
        /// Unique within the session; the answer carries it.
        number: u64,
        /// The request.
        request: Request,
    },
    /// Answer a call of the application.
    Done {
        /// Id of the call.
        call: CallId,
        /// Answer of the call. Batches may hold an error for each item. At the deadline the error is `unknown` for a write that may
        /// have been sent, else `unavailable`.
        result: Result<Response, Error>,
        /// Time from which the leases of granted tasks count. Absent if nothing was sent.
        lease_from_us: Option<u64>,
    },
}

/// Settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Name of the program, for people to read.
    pub name: String,
    /// Timeout for a connection, and for an answer before another node is asked. The waiting time of a `claim` or `wait` is added to
    /// it.
    pub attempt_timeout_ms: u64,
    /// Time for which an attempt to connect is the only one. After it, another endpoint is tried in parallel, and the first that
    /// answers is used.
    pub head_start_ms: u64,
    /// Calls end once no node has been reached for this long plus the head starts of all endpoints, counted from the first waiting
    /// call. Absent: they end at their deadlines.
    pub unreached_ms_max: Option<u64>,
    /// First pause before a repeat at a node that failed or asked the client to wait; doubles with each failure.
    pub reconnect_pause_ms_min: u64,
    /// Longest such pause.
    pub reconnect_pause_ms_max: u64,
    /// Greatest number of requests under way.
    pub in_flight_max: usize,
    /// Greatest number of calls held, under way or waiting; further calls are answered `overloaded` at once.
    pub calls_max: usize,
    /// Greatest total size of those calls in bytes.
    pub calls_bytes_max: usize,
}

/// Room for the session's own requests, such as pings, beside the calls: a node stops reading a connection at its limit of requests.
const IN_FLIGHT_SPARE: usize = 16;

impl Default for Config {
    fn default() -> Self {
        Config {
            name: "norn-client".into(),
            attempt_timeout_ms: 2_500,
            head_start_ms: 200,
            unreached_ms_max: None,
            reconnect_pause_ms_min: 50,
            reconnect_pause_ms_max: 1_000,
            in_flight_max: limits::IN_FLIGHT_MAX - IN_FLIGHT_SPARE,
            calls_max: limits::IN_FLIGHT_MAX * 16,
            calls_bytes_max: limits::BATCH_BYTES_MAX * 32,
        }
    }
}
