//! What goes into a session and what comes out of it.

use super::transaction::TransactionDraft;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::group::{Join, MemberOf, NAMED_GROUP};
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::limits;
use norn_wire::request::{Acks, Completion, Request, Spec};
use norn_wire::response::Response;
use std::sync::{Arc, OnceLock};

/// Names a call within a session. The host chooses it and does not use it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A task that is to be enqueued: not yet minted, its delay not yet resolved.
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
    /// Absent: the session mints one.
    pub id: Option<TaskId>,
    /// What the task is.
    pub spec: Spec,
    /// Not claimable for this long after the first attempt to enqueue it; excludes `spec.not_before_ms`.
    pub delay_ms: u64,
    /// It lies where this task does, so that one [transaction](TransactionDraft) can change both; excludes a key.
    pub near: Option<TaskId>,
}

pub use norn_wire::SESSIONS_QUEUE;

impl Draft {
    /// A session for whoever claims it. As any is as good as another one, it need not be who enqueued it.
    pub fn session(worker: &str) -> Self {
        let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
        Draft::new(queue, worker).attempts_max(1)
    }

    /// A task without delay, headers or limit of attempts, of priority 0.
    pub fn new(queue: QueueName, payload: impl Into<Vec<u8>>) -> Self {
        let payload = payload.into();
        let spec = Spec {
            queue,
            payload,
            priority: 0,
            not_before_ms: 0,
            headers: Vec::new(),
            attempts_max: 0,
            after: Vec::new(),
            key: None,
            grouping: None,
            revision: None,
        };
        Draft { id: None, spec, delay_ms: 0, near: None }
    }

    /// Lies where another task does, so that one [transaction](TransactionDraft) can change both.
    #[must_use]
    pub fn near(mut self, task: TaskId) -> Self {
        self.near = Some(task);
        self
    }

    /// Repeats an earlier enqueue whose outcome was unknown.
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Higher is claimed first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = priority;
        self
    }

    /// Not claimable for this long.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Not claimable before this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn not_before_ms(mut self, not_before_ms: u64) -> Self {
        self.spec.not_before_ms = not_before_ms;
        self
    }

    /// Adds a header, which is carried through to the worker.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.spec.headers.push((name.into(), value.into()));
        self
    }

    /// Not claimable before these have ended. They may be enqueued later than this one.
    #[must_use]
    pub fn after(mut self, after: Vec<TaskId>) -> Self {
        self.spec.after = after;
        self
    }

    /// Tasks of one queue with the same key are run one at a time, the oldest first.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.spec.key = Some(key.into());
        self
    }

    /// The member of a group with this number, from 1. Its id follows from both, so that it is stored once, whoever hands it in
    /// and however often.
    #[must_use]
    pub fn member_of(mut self, group: TaskId, number: u32) -> Self {
        self.spec.grouping.get_or_insert_default().member = Some(MemberOf { group, number });
        self
    }

    /// The join of a group: claimable once all of the group's members have ended. How many there are may be
    /// [told later](Request::CloseGroup).
    #[must_use]
    pub fn join(mut self, total: Option<u32>, fail_fast: bool) -> Self {
        self.spec.grouping.get_or_insert_default().join = Some(Join { total, fail_fast });
        self
    }

    /// The join of the group with this name, of which a queue has one at a time: enqueue it as a
    /// [unique](Call::EnqueueUnique) task, and its answer names the one that there is.
    #[must_use]
    pub fn group_name(self, name: &str) -> Self {
        let join = self.spec.grouping.as_ref().and_then(|grouping| grouping.join).unwrap_or_default();
        self.join(join.total, join.fail_fast).key(format!("{NAMED_GROUP}{name}"))
    }

    /// After this many claims that failed or ran out, the task is dead; 0 means no limit.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.spec.attempts_max = attempts_max;
        self
    }
}

/// Makes clear why a group could not be closed.
pub fn explain_close(error: Error) -> Error {
    if error.code != ErrorCode::Conflict {
        return error;
    }
    let message = "the task is no join of a group, or its group has another number of members already";
    Error { message: message.to_owned(), ..error }
}

/// Makes clear why a group cannot have its name.
pub fn explain_name(name: &str, id: TaskId) -> Error {
    let message = format!("a task that is no join has the key of the group {name:?}; name the group otherwise");
    Error::new(ErrorCode::Conflict, message).about(id)
}

/// A completion and the tasks that it brings, which are not yet minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Without children.
    pub completion: Completion,
    /// To be enqueued once it is acknowledged. A repeat of the call carries the same ids.
    pub children: Vec<Draft>,
}

/// What an application asks of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Stores tasks. Answered with [`Response::Acked`].
    Enqueue {
        /// At most [`limits::BATCH_TASKS_MAX`].
        drafts: Vec<Draft>,
        /// Durability.
        acks: Acks,
    },
    /// Stores a task with a key unless there is one that has not ended. Answered with [`Response::AckedUnique`].
    EnqueueUnique {
        /// With a key.
        draft: Box<Draft>,
    },
    /// Adds, changes and ends tasks that lie together. Answered with [`Response::Transacted`].
    Transact {
        /// At least one task that is not as it was.
        draft: Box<TransactionDraft>,
    },
    /// Ends tasks and enqueues others with them. Answered with [`Response::Acked`].
    Complete {
        /// At most [`limits::BATCH_TASKS_MAX`].
        items: Vec<Finish>,
        /// Durability of the completions.
        acks: Acks,
    },
    /// Enqueues a task that has died again. Answered with [`Response::AckedOne`], of the copy that there is.
    Redrive {
        /// The dead task.
        id: TaskId,
        /// The copy that is asked for.
        copy: CopyId,
        /// Another queue than its own.
        queue: Option<QueueName>,
        /// Durability.
        acks: Acks,
    },
    /// Anything else but `hello`, which is the session's own. A claim of id 0 and times of 0 are filled in.
    Request(Request),
}

/// The id of a copy, which the session mints when it is asked for first. Whoever keeps it beside the call can repeat that for the same
/// copy, whatever became of the first attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyId(Arc<OnceLock<TaskId>>);

impl CopyId {
    /// Absent until the copy was asked for.
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

/// What happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The application asks something.
    Submit {
        /// Not used before.
        call: CallId,
        /// What.
        body: Call,
        /// When the application wants an answer at the latest, on the clock given to [`Session::step`](super::Session::step).
        deadline_us: u64,
    },
    /// The application is not interested any more. The call is done, as if its deadline had come.
    Abandon {
        /// A call; unknown and finished ones are ignored.
        call: CallId,
    },
    /// An [`Output::Connect`] has succeeded.
    Connected {
        /// Where.
        endpoint: usize,
    },
    /// An [`Output::Connect`] has failed, or a connection has ended. Not reported for an [`Output::Disconnect`].
    Disconnected {
        /// Where.
        endpoint: usize,
    },
    /// The same, by a node that was heard. Unless the error passes, another attempt fails as well until an operator changes
    /// something.
    Refused {
        /// Where.
        endpoint: usize,
        /// Why; as calls are answered that no other node serves, where it does not pass.
        error: Error,
    },
    /// A part of an answer has arrived.
    Heard {
        /// Where.
        endpoint: usize,
    },
    /// An answer has arrived.
    Received {
        /// Where.
        endpoint: usize,
        /// Of the request with this number.
        number: u64,
        /// The answer.
        response: Response,
    },
    /// The connections are about to end: what is still to be said is said at once, as far as there is a node.
    Closing,
    /// The time of [`Session::next_wake`](super::Session::next_wake) has come. Harmless at any other time.
    Wake,
}

/// What the host is to do.
#[derive(Debug, Clone)]
pub enum Output {
    /// Connect, and report [`Input::Connected`], [`Input::Disconnected`] or [`Input::Refused`].
    Connect {
        /// Where.
        endpoint: usize,
    },
    /// Drop the connection or the attempt to make one; report nothing of it any more.
    Disconnect {
        /// Where.
        endpoint: usize,
    },
    /// Send a request on an open connection. Requests of one connection keep their order.
    Send {
        /// Where.
        endpoint: usize,
        /// Unique within the session; the answer carries it.
        number: u64,
        /// The request.
        request: Request,
    },
    /// Tell the application.
    Done {
        /// Which call.
        call: CallId,
        /// Its answer. Batches may hold an error for each item. At the deadline the error is `unknown` for a
        /// write that may have been sent, else `unavailable`.
        result: Result<Response, Error>,
        /// From when leases count that were granted. Absent if nothing was sent.
        lease_from_us: Option<u64>,
    },
}

/// Settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Name of the program, for people to read.
    pub name: String,
    /// How long to wait for a connection, and for an answer before asking another node. The waiting time of a
    /// `claim` or `wait` comes on top.
    pub attempt_timeout_ms: u64,
    /// How long an attempt to connect is the only one. After that another endpoint is tried beside it, and the first that answers is
    /// taken.
    pub head_start_ms: u64,
    /// Calls end once no node has been reached for this long beyond the head starts of all endpoints, from the first of the calls on
    /// that wait. Absent: at their deadlines.
    pub unreached_ms_max: Option<u64>,
    /// First pause before repeating at a node that failed or asked for patience; doubles from time to time.
    pub reconnect_pause_ms_min: u64,
    /// Longest such pause.
    pub reconnect_pause_ms_max: u64,
    /// Requests under way at once.
    pub in_flight_max: usize,
    /// Calls held, under way or waiting; beyond it a call is answered `overloaded` at once.
    pub calls_max: usize,
    /// Bytes of those calls together.
    pub calls_bytes_max: usize,
}

/// Requests of its own, such as pings, that a session makes beside the calls: a node that has as many of a connection as it takes reads
/// no more.
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
