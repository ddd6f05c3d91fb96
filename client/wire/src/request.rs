//! What a client asks.

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
use xxhash_rust::xxh3::xxh3_64;

/// How many replicas must have a write on disk before it is answered.
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
}

/// Where sessions of workers are: each is a task of one attempt, held by its worker.
pub const SESSIONS_QUEUE: &str = "norn/sessions";

/// What a task is; only a [transaction](super::transaction::Transaction) changes it. A session resolves defaults and
/// delays once, so that a repeated enqueue is the same bytes.
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
    /// Carried through to the worker: trace context, content type.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// After this many claims that failed or ran out, the task is dead; 0 means no limit.
    #[serde(default)]
    pub attempts_max: u32,
    /// Not claimable before these have ended, in any order. What becomes of it if one of them fails is for its queue to say.
    #[serde(default)]
    pub after: Vec<TaskId>,
    /// Tasks of one queue with the same key are run one at a time, the oldest first. The id of such a task has the
    /// [tag](Spec::tag) of its key, so that they are all in one partition.
    #[serde(default)]
    pub key: Option<String>,
    /// It is a member of a group, or comes behind one.
    #[serde(default)]
    pub grouping: Option<Box<Grouping>>,
    /// A transaction has changed it since it was enqueued. Clients leave that out, and are not told.
    #[serde(default)]
    pub revision: Option<Box<Revision>>,
}

/// That a task is not as it was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision {
    /// Epoch of the leader that changed it last, and the number of the operation: later ones are greater.
    pub at: Token,
    /// Hash of what was enqueued.
    pub origin: u64,
}

impl Spec {
    /// The routing tag of all tasks with this queue and key; nothing, where any will do.
    pub fn tag(&self) -> Option<u32> {
        const SEPARATOR: u8 = 0;
        let key = self.key.as_ref()?;
        let bytes = [self.queue.as_str().as_bytes(), &[SEPARATOR], key.as_bytes()].concat();
        Some((xxh3_64(&bytes) >> (u64::BITS - TAG_BITS)) as u32)
    }
}

impl Serialize for Spec {
    /// Fields that came later are left out from the end, where there is nothing in them: hashes and digests that logs have are over these
    /// bytes. It makes a small task shorter, too.
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

/// A task to enqueue under an id that its session minted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// Minted by the session.
    pub id: TaskId,
    /// What it is.
    pub spec: Spec,
}

/// One completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// Which task.
    pub id: TaskId,
    /// Under which claim.
    pub token: Token,
    /// Sequence number of the completion: how many updates the claim wrote before it. Readers are told while fewer are
    /// visible; absent, they are not.
    #[serde(default)]
    pub sequence: Option<u32>,
    /// Opaque bytes.
    #[serde(default)]
    pub result: Option<ByteBuf>,
    /// When, by the session's server time. Resolved once, so that a repeat is the same bytes.
    pub at_ms: u64,
    /// Tasks to enqueue with it: once it is acknowledged, each of them is enqueued sooner or later, whatever happens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<NewTask>,
}

/// A claim call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Of this call; a repeat carries the same and gets the same tasks.
    pub claim: ClaimId,
    /// True when the call may have been made before.
    #[serde(default)]
    pub repeated: bool,
    /// Queues to take from.
    pub queues: Vec<QueueName>,
    /// Length of the lease; where it is open, of one whose queue says nothing of that.
    pub lease_ms: u64,
    /// How long to wait for work when there is none.
    #[serde(default)]
    pub wait_ms: u64,
    /// Most tasks to take.
    pub max: u32,
    /// Who works, for people to read.
    #[serde(default)]
    pub worker: String,
    /// The queue's own lease goes before `lease_ms`.
    #[serde(default)]
    pub lease_open: bool,
    /// The worker's session: a task that the worker holds. When that has ended, whichever way, so have these claims, at the latest
    /// at the end of their own leases.
    #[serde(default)]
    pub session: Option<TaskId>,
    /// Tasks that must be there, wherever they lie: nothing is granted unless they are while it is.
    #[serde(default)]
    pub depends: Vec<Depend>,
    /// The client says that the answer has reached it, see [`Request::Confirm`]: until then nothing is its own.
    #[serde(default)]
    pub confirms: bool,
}

crate::wire_body!(Request);

/// What a client may ask of any node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens a session. Always the first request on a connection.
    Hello {
        /// Name of the program, for people to read.
        name: String,
        /// The client takes a [welcome without ids](super::response::Welcome::refusal) as well; one that does not is refused instead.
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
    /// Stores a task with a key, unless its queue has one with this key that has not ended: the answer names the one that there is
    /// then. It is on the disks of a majority either way.
    EnqueueUnique {
        /// With a key.
        task: Box<NewTask>,
    },
    /// Adds, changes and ends tasks that lie together: all of it, or nothing.
    Transact(Box<Transaction>),
    /// Says how many members a group has. Nobody may say otherwise later.
    CloseGroup {
        /// Its join.
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
    /// Ends a task that nobody should run any more.
    Cancel {
        /// Task.
        id: TaskId,
        /// For people.
        #[serde(default)]
        reason: String,
        /// When, by the session's server time.
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
    /// Answers once the task has ended, or at the end of the time with its present state.
    Wait {
        /// Task.
        id: TaskId,
        /// How long.
        timeout_ms: u64,
    },
    /// Answers once something has happened behind the cursor, or at the end of the time; without a cursor as soon as the watch
    /// has begun.
    Watch {
        /// Whose tasks.
        subject: Subject,
        /// Of the last answer.
        #[serde(default)]
        cursor: Option<WatchCursor>,
        /// How long.
        wait_ms: u64,
    },
    /// A page of tasks in the order of their ids.
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
    /// How many tasks there are.
    Count {
        /// Only this queue.
        queue: Option<QueueName>,
        /// Only this state.
        state: Option<State>,
    },
    /// Every queue with its counts.
    Queues,
    /// Takes tasks to work on.
    Claim(Claim),
    /// Prolongs claims. A lease never becomes shorter.
    Renew {
        /// Claims held.
        items: Vec<(TaskId, Token)>,
        /// Absent: each claim's own length.
        #[serde(default)]
        lease_ms: Option<u64>,
    },
    /// Gives a claim back; the task can be claimed again at once. This does not count as an attempt.
    Release {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
    },
    /// Says that an attempt failed.
    Fail {
        /// Task.
        id: TaskId,
        /// Claim.
        token: Token,
        /// For people.
        #[serde(default)]
        reason: String,
        /// Not claimable for this long; where that is open, in a queue that says nothing of it.
        #[serde(default)]
        retry_in_ms: u64,
        /// Never again: the task becomes `dead`.
        #[serde(default)]
        invalid: bool,
        /// The queue's back-off goes before `retry_in_ms`. What does not know this goes by `retry_in_ms`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retry_open: bool,
    },
    /// Enqueues a task that has died again, under another id. What was asked for before is answered with the same.
    Redrive {
        /// Dead.
        id: TaskId,
        /// Minted by the session.
        child: TaskId,
        /// To this queue; absent, to its own.
        queue: Option<QueueName>,
        /// Durability.
        acks: Acks,
    },
    /// Has a task that has ended forgotten as if its retention were over. One that has not ended is refused.
    Purge {
        /// Ended.
        id: TaskId,
        /// Durability.
        acks: Acks,
        /// Only if it has ended so; absent, whichever way it has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
    },
    /// The members of the cluster as this node sees them.
    Nodes,
    /// Partitions and their preference lists.
    Ring,
    /// Leaders, epochs and sizes of the partitions.
    Partitions,
    /// Moves a partition: these shall hold it, the first one as its preferred leader. It is begun, not done, when this is answered.
    Arrange {
        /// Partition.
        partition: PartitionId,
        /// Members of the cluster.
        nodes: Vec<NodeId>,
    },
    /// The node and the cluster in short.
    Status,
    /// Who this node is, whether or not it has a cluster.
    Identify,
    /// Founds the cluster: accepted once, by a node that the record names.
    Initialize(Box<Genesis>),
    /// Changes the cluster. Answered once a majority of its root has it on disk; what follows from it goes on behind that.
    Change {
        /// What is wanted.
        change: Box<ClusterChange>,
        /// Only says what would come of it.
        #[serde(default)]
        dry_run: bool,
    },
    /// Who belongs to the cluster, what moves where, and what is set.
    Cluster,
    /// Sets, removes or pauses a schedule. Answered once a majority of the cluster's root has it on disk.
    Schedule(Box<ScheduleChange>),
    /// Schedules with what they have done: all of them, or one.
    Schedules {
        /// Only this one.
        #[serde(default)]
        name: Option<String>,
    },
    /// These nodes are lost for ever: says which partitions have no majority without them, and has those go on with whoever is
    /// left that are named here. What only the lost had is lost.
    Recover {
        /// Never to come back.
        lost: Vec<NodeId>,
        /// Held by the node that is asked; none, only to look.
        #[serde(default)]
        partitions: Vec<PartitionId>,
        /// No lease in use is longer: nothing is granted for this long.
        lease_ms: u64,
    },
    /// Takes its place in a cluster to which it was added: accepted by a node without one that the record names.
    Join(Box<Membership>),
    /// Asks for a sign of life. Answered with `done` at once, whatever the node waits for otherwise.
    Ping,
    /// The answer to a claim that [confirms](Claim::confirms) has come: what it names is held from then on. To be sent on the same
    /// connection. What was granted for the call and is not confirmed within two seconds is given back, as if it had never been
    /// granted.
    Confirm {
        /// Of the call.
        claim: ClaimId,
    },
    /// Nobody waits for the answer to a claim any more: what this node has for it is given back. Answered with `done` at once.
    Leave {
        /// Of the call.
        claim: ClaimId,
        /// So is all that the claim holds, wherever it was granted and whether or not that was confirmed...
        #[serde(default)]
        elsewhere: bool,
        /// ...but for these tasks, which the caller was given: up to 1,000.
        #[serde(default)]
        keeps: Vec<TaskId>,
        /// The same where this node was not told of all that the claim may hold. Only of a call that is not made again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
}

impl Request {
    /// The verb, for logs and messages.
    pub fn verb(&self) -> &'static str {
        match self {
            Request::Hello { .. } => "hello",
            Request::Enqueue { .. } => "enqueue",
            Request::EnqueueUnique { .. } => "enqueue_unique",
            Request::Transact(_) => "transact",
            Request::CloseGroup { .. } => "close_group",
            Request::Update { .. } => "update",
            Request::Complete { .. } => "complete",
            Request::Cancel { .. } => "cancel",
            Request::Get { .. } => "get",
            Request::Wait { .. } => "wait",
            Request::Watch { .. } => "watch",
            Request::List { .. } => "list",
            Request::Count { .. } => "count",
            Request::Queues => "queues",
            Request::Claim(_) => "claim",
            Request::Renew { .. } => "renew",
            Request::Release { .. } => "release",
            Request::Fail { .. } => "fail",
            Request::Redrive { .. } => "redrive",
            Request::Purge { .. } => "purge",
            Request::Nodes => "nodes",
            Request::Ring => "ring",
            Request::Partitions => "partitions",
            Request::Arrange { .. } => "arrange",
            Request::Status => "status",
            Request::Identify => "identify",
            Request::Initialize(_) => "init",
            Request::Change { .. } => "change",
            Request::Cluster => "cluster",
            Request::Schedule(_) => "schedule",
            Request::Schedules { .. } => "schedules",
            Request::Recover { .. } => "recover",
            Request::Join(_) => "join",
            Request::Ping => "ping",
            Request::Confirm { .. } => "confirm",
            Request::Leave { .. } => "leave",
        }
    }
}
