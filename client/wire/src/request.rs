//! Requests: what a client asks.

use crate::group::Grouping;
use crate::ids::{ClaimId, NodeId, PartitionId, QueueName, TAG_BITS, TaskId, Token};
use crate::membership::{ClusterChange, Membership};
use crate::response::{Genesis, State};
use crate::schedule::ScheduleChange;
use crate::transaction::{Depend, Transaction};
use crate::watch::{Subject, WatchCursor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use serde_bytes::ByteBuf;
use std::num::NonZeroU8;
use xxhash_rust::xxh3::xxh3_64;

/// Replicas that must have a write on disk before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acks {
    /// Any one: survives a crash, not the loss of a disk.
    One,
    /// A majority of the partition's cohort.
    #[default]
    Quorum,
    /// Every member of the cohort.
    All,
    /// This many members of the cohort. More than it has are refused.
    Count(NonZeroU8),
}

impl std::str::FromStr for Acks {
    type Err = String;

    /// Reads `one`, `quorum`, `all`, or a number from 1 to 255.
    ///
    /// ```
    /// use norn_wire::Acks;
    /// assert_eq!("quorum".parse(), Ok(Acks::Quorum));
    /// assert_eq!("2".parse(), Ok(Acks::Count(2.try_into().unwrap())));
    /// assert!("0".parse::<Acks>().is_err() && "most".parse::<Acks>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Acks, String> {
        let wrong = || format!("acks are one, quorum, all or a number of replicas, not {text:?}");
        Ok(match text {
            "one" => Acks::One,
            "quorum" => Acks::Quorum,
            "all" => Acks::All,
            number => Acks::Count(number.parse().map_err(|_| wrong())?),
        })
    }
}

/// Queue of worker sessions: each session is a task of one attempt, held by its worker.
pub const SESSIONS_QUEUE: &str = "norn/sessions";

/// Content of a task; only a [transaction](super::transaction::Transaction) changes it. A session resolves defaults and delays once, so
/// that a repeated enqueue has the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Spec {
    /// Queue, which is also the task type for workers.
    pub queue: QueueName,
    /// Opaque bytes.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// Higher is claimed first.
    #[serde(default)]
    pub priority: i32,
    /// Not claimable before this, in milliseconds since the Unix epoch; 0 means at once.
    #[serde(default)]
    pub not_before_ms: u64,
    /// Metadata for the worker, such as trace context or content type.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// After this many claims that failed or ran out, the task is dead; 0 means no limit.
    #[serde(default)]
    pub attempts_max: u32,
    /// Dependencies: the task is not claimable before they have ended, in any order. The queue's policy decides what happens if one
    /// fails.
    #[serde(default)]
    pub after: Vec<TaskId>,
    /// Tasks of one queue with the same key run one at a time, the oldest first. The id of such a task has the [tag](Spec::tag) of its
    /// key, so that they are all in one partition.
    #[serde(default)]
    pub key: Option<String>,
    /// Set for a member of a group, or a join.
    #[serde(default)]
    pub grouping: Option<Box<Grouping>>,
    /// Set if a transaction has changed the task since it was enqueued. Clients leave it out, and nodes do not send it to them.
    #[serde(default)]
    pub revision: Option<Box<Revision>>,
}

/// Mark of a task that a transaction has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision {
    /// Epoch of the leader that changed it last, and the number of the operation: later ones are greater.
    pub at: Token,
    /// Hash of the content as enqueued.
    pub origin: u64,
}

impl Spec {
    /// A task of priority 0 without delay, headers or limit of attempts.
    pub fn new(queue: QueueName, payload: impl Into<Vec<u8>>) -> Spec {
        Spec {
            queue,
            payload: payload.into(),
            priority: 0,
            not_before_ms: 0,
            headers: Vec::new(),
            attempts_max: 0,
            after: Vec::new(),
            key: None,
            grouping: None,
            revision: None,
        }
    }

    /// Returns the routing tag of all tasks with this queue and key, or `None` for a task without a key.
    pub fn tag(&self) -> Option<u32> {
        const SEPARATOR: u8 = 0;
        let key = self.key.as_ref()?;
        let bytes = [self.queue.as_str().as_bytes(), &[SEPARATOR], key.as_bytes()].concat();
        Some((xxh3_64(&bytes) >> (u64::BITS - TAG_BITS)) as u32)
    }
}

impl Serialize for Spec {
    /// Leaves trailing default fields of later versions out: hashes and digests in existing logs cover these bytes. It also makes small
    /// tasks shorter.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: usize = 6;
        let later = [!self.after.is_empty(), self.key.is_some(), self.grouping.is_some(), self.revision.is_some()];
        let count = FIRST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut spec = serializer.serialize_struct("Spec", count)?;
        spec.serialize_field("queue", &self.queue)?;
        spec.serialize_field("payload", serde_bytes::Bytes::new(&self.payload))?;
        spec.serialize_field("priority", &self.priority)?;
        spec.serialize_field("not_before_ms", &self.not_before_ms)?;
        spec.serialize_field("headers", &self.headers)?;
        spec.serialize_field("attempts_max", &self.attempts_max)?;
        if count > FIRST {
            spec.serialize_field("after", &self.after)?;
        }
        if count > FIRST + 1 {
            spec.serialize_field("key", &self.key)?;
        }
        if count > FIRST + 2 {
            spec.serialize_field("grouping", &self.grouping)?;
        }
        if count > FIRST + 3 {
            spec.serialize_field("revision", &self.revision)?;
        }
        spec.end()
    }
}

/// Task to enqueue, under an id that its session minted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// Minted by the session.
    pub id: TaskId,
    /// Content.
    pub spec: Spec,
}

/// Completion of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Which task.
    pub id: TaskId,
    /// Claim.
    pub token: Token,
    /// Number of updates that the claim wrote before the completion. While fewer are visible, readers see the log marked as incomplete;
    /// without this number they do not.
    #[serde(default)]
    pub sequence: Option<u32>,
    /// Opaque bytes.
    #[serde(default)]
    pub result: Option<ByteBuf>,
    /// Time of the completion, by the session's server time. Resolved once, so that a repeat has the same bytes.
    pub at_ms: u64,
    /// Child tasks, enqueued with the completion: once it is acknowledged, each of them is enqueued eventually.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<NewTask>,
}

/// Claim call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Id of this call; a repeat carries the same id and gets the same tasks.
    pub claim: ClaimId,
    /// True when the call may have been made before.
    #[serde(default)]
    pub repeated: bool,
    /// Queues to take from.
    pub queues: Vec<QueueName>,
    /// Length of the lease; with `lease_open`, only for queues without a lease of their own.
    pub lease_ms: u64,
    /// How long to wait for work when there is none.
    #[serde(default)]
    pub wait_ms: u64,
    /// Most tasks to take.
    pub max: u32,
    /// Name of the worker, for people to read.
    #[serde(default)]
    pub worker: String,
    /// The queue's own lease takes precedence over `lease_ms`.
    #[serde(default)]
    pub lease_open: bool,
    /// The worker's session: a task that the worker holds. When it has ended, in whatever state, these claims have ended too, at the
    /// latest at the end of their own leases.
    #[serde(default)]
    pub session: Option<TaskId>,
    /// Preconditions on tasks of any partition: nothing is granted unless all of them hold at that time.
    #[serde(default)]
    pub depends: Vec<Depend>,
    /// The client confirms the answer, see [`Request::Confirm`]; until then it holds none of the tasks.
    #[serde(default)]
    pub confirms: bool,
}

impl Request {
    /// The acks that a write asks for; nothing for other requests.
    pub fn acks(&self) -> Option<Acks> {
        match self {
            Request::Enqueue { acks, .. }
            | Request::Update { acks, .. }
            | Request::Complete { acks, .. }
            | Request::Cancel { acks, .. }
            | Request::Redrive { acks, .. }
            | Request::Purge { acks, .. }
            | Request::CloseGroup { acks, .. } => Some(*acks),
            _ => None,
        }
    }

    /// The tasks that such a write is about; nothing for other requests.
    pub fn written(&self) -> Vec<TaskId> {
        match self {
            Request::Enqueue { tasks, .. } => tasks.iter().map(|task| task.id).collect(),
            Request::Complete { items, .. } => items.iter().map(|item| item.id).collect(),
            Request::Redrive { child, .. } => vec![*child],
            Request::Update { id, .. }
            | Request::Cancel { id, .. }
            | Request::Purge { id, .. }
            | Request::CloseGroup { id, .. } => vec![*id],
            _ => Vec::new(),
        }
    }
}

crate::wire_body!(Request);

/// Request of a client to any node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens a session. Always the first request on a connection.
    Hello {
        /// Name of the program, for people to read.
        name: String,
        /// The client accepts a [welcome without ids](super::response::Welcome::refusal); without this it is refused instead.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        bare: bool,
    },
    /// Stores tasks.
    Enqueue {
        /// At most [`crate::limits::BATCH_TASKS_MAX`].
        tasks: Vec<NewTask>,
        /// Durability.
        acks: Acks,
    },
    /// Stores a task with a key, unless the queue has an open task with this key. The answer names the one that exists then. It is on the
    /// disks of a majority either way.
    EnqueueUnique {
        /// Task, with a key.
        task: Box<NewTask>,
    },
    /// Adds, changes and ends tasks of one routing tag: all of it, or nothing.
    Transact(Box<Transaction>),
    /// Sets the number of members of a group. It cannot be changed later.
    CloseGroup {
        /// Join of the group.
        id: TaskId,
        /// Members, numbered from 1.
        total: u32,
        /// Durability.
        acks: Acks,
    },
    /// Adds an entry to a claim's log. Entries are numbered from 0; only the prefix without a gap is visible.
    Update {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// Number of the entry.
        sequence: u32,
        /// Opaque bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
        /// Durability.
        acks: Acks,
    },
    /// Ends tasks.
    Complete {
        /// At most [`crate::limits::BATCH_TASKS_MAX`].
        items: Vec<Completion>,
        /// Durability.
        acks: Acks,
    },
    /// Cancels a task.
    Cancel {
        /// Task.
        id: TaskId,
        /// Reason, for people.
        #[serde(default)]
        reason: String,
        /// Time of the call, by the session's server time.
        at_ms: u64,
        /// Durability.
        acks: Acks,
    },
    /// Reads a task with its log and claims.
    Get {
        /// Task.
        id: TaskId,
        /// Wait until this update of this claim is visible, or answer `stale`.
        #[serde(default)]
        minimum: Option<(Token, u32)>,
        /// Wait until the latest claim's log is at least this long, or answer `stale`.
        #[serde(default)]
        minimum_sequence: Option<u32>,
    },
    /// Waits for the end of a task: answers once it has ended, or with its present state when the time is over.
    Wait {
        /// Task.
        id: TaskId,
        /// Longest wait.
        timeout_ms: u64,
    },
    /// Watches tasks: answers once there are events behind the cursor, or when the time is over; without a cursor, as soon as the watch
    /// has begun.
    Watch {
        /// Watched tasks.
        subject: Subject,
        /// Cursor of the last answer.
        #[serde(default)]
        cursor: Option<WatchCursor>,
        /// Longest wait.
        wait_ms: u64,
    },
    /// Lists a page of tasks in the order of their ids.
    List {
        /// Only this queue.
        queue: Option<QueueName>,
        /// Only this state.
        state: Option<State>,
        /// Only ids after this one: the page's `next`.
        after: Option<TaskId>,
        /// Only ids that start with these characters' bits: ids from this one...
        #[serde(default)]
        from: Option<TaskId>,
        /// ...to this one, both included.
        #[serde(default)]
        to: Option<TaskId>,
        /// At most [`crate::limits::LIST_PAGE_MAX`].
        limit: u32,
    },
    /// Counts tasks.
    Count {
        /// Only this queue.
        queue: Option<QueueName>,
        /// Only this state.
        state: Option<State>,
    },
    /// Lists every queue with its counts.
    Queues,
    /// Claims tasks to work on.
    Claim(Claim),
    /// Renews claims. A lease never becomes shorter.
    Renew {
        /// Claims held.
        items: Vec<(TaskId, Token)>,
        /// Length of the leases; absent: each claim's own length.
        #[serde(default)]
        lease_ms: Option<u64>,
    },
    /// Releases a claim; the task can be claimed again at once. This does not count as an attempt.
    Release {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
    },
    /// Reports an attempt as failed.
    Fail {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// Reason, for people.
        #[serde(default)]
        reason: String,
        /// Pause before the next attempt; with `retry_open`, only in queues without a back-off.
        #[serde(default)]
        retry_in_ms: u64,
        /// The task is invalid: it becomes `dead`, without further attempts.
        #[serde(default)]
        invalid: bool,
        /// The queue's back-off takes precedence over `retry_in_ms`. Nodes that do not know this field use `retry_in_ms`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retry_open: bool,
    },
    /// Enqueues a copy of a dead task under another id. A repeated request is answered with the copy that exists.
    Redrive {
        /// The dead task.
        id: TaskId,
        /// Id of the copy, minted by the session.
        child: TaskId,
        /// Queue of the copy; absent: that of the dead task.
        queue: Option<QueueName>,
        /// Durability.
        acks: Acks,
    },
    /// Has an ended task forgotten as if its retention were over. An open task is refused.
    Purge {
        /// The ended task.
        id: TaskId,
        /// Durability.
        acks: Acks,
        /// Only if it has ended in this state; absent: in whatever state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
    },
    /// Lists the members of the cluster as this node sees them.
    Nodes,
    /// Lists partitions and their preference lists.
    Ring,
    /// Lists leaders, epochs and sizes of the partitions.
    Partitions,
    /// Moves a partition to these nodes, the first one as its preferred leader. The answer says that the move has begun, not that it is
    /// done.
    Arrange {
        /// Partition.
        partition: PartitionId,
        /// Members of the cluster.
        nodes: Vec<NodeId>,
    },
    /// Summarizes the node and the cluster.
    Status,
    /// Returns the identity of this node, whether or not it has a cluster.
    Identify,
    /// Founds the cluster: accepted once, by a node that the record names.
    Initialize(Box<Genesis>),
    /// Changes the cluster. Answered once a majority of the metadata group (root) has the change on disk; its effects follow in the
    /// background.
    Change {
        /// Requested change.
        change: Box<ClusterChange>,
        /// Only reports what the change would do.
        #[serde(default)]
        dry_run: bool,
    },
    /// Returns the members of the cluster, its moves and its settings.
    Cluster,
    /// Sets, removes or pauses a schedule. Answered once a majority of the metadata group (root) has it on disk.
    Schedule(Box<ScheduleChange>),
    /// Lists schedules with what they have done: all of them, or one.
    Schedules {
        /// Only this one.
        #[serde(default)]
        name: Option<String>,
    },
    /// Unsafe recovery: declares nodes lost for ever. Reports which partitions have no majority without them, and has the named ones go
    /// on with the surviving replicas. What only the lost nodes had is lost.
    Recover {
        /// Lost nodes, which never come back.
        lost: Vec<NodeId>,
        /// Partitions to recover, held by the node that is asked; empty: only report.
        #[serde(default)]
        partitions: Vec<PartitionId>,
        /// Upper bound of all leases in use: nothing is granted for this long.
        lease_ms: u64,
    },
    /// Takes its place in a cluster that added it: accepted by a node without a cluster that the record names.
    Join(Box<Membership>),
    /// Asks for a sign of life. Answered with `done` at once, whatever else the node waits for.
    Ping,
    /// Confirms that the answer to a claim that [confirms](Claim::confirms) has arrived: the client holds its tasks from then on. Must be
    /// sent on the same connection. Tasks that were granted for the call and are not confirmed within two seconds are given back, as if
    /// they had never been granted.
    Confirm {
        /// Id of the call.
        claim: ClaimId,
    },
    /// Abandons a claim call: what this node has granted for it is given back. Answered with `done` at once.
    Leave {
        /// Id of the call.
        claim: ClaimId,
        /// Also gives back all that the claim holds elsewhere, wherever it was granted and whether or not it was confirmed...
        #[serde(default)]
        elsewhere: bool,
        /// ...but for these tasks, which the caller received: up to 1,000.
        #[serde(default)]
        keeps: Vec<TaskId>,
        /// Same as `elsewhere`, but only if the claim may hold tasks that this node does not know of. Only for a call that is not made
        /// again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
}
