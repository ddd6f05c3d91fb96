//! Messages between nodes of one cluster.
//!
//! Any of them may be lost, repeated or reordered, except where the sender's host keeps a connection, which is only the
//! cheap common case.

mod heartbeat;
mod kinds;
mod known;

pub use self::heartbeat::{DiskWord, Heartbeat};
pub use self::kinds::Class;
pub use self::known::{Known, Lost};
use crate::protocol::consistent::cohort::{Seat, Told};
use crate::protocol::consistent::table::{Op, Table};
use crate::protocol::consistent::{Epoch, ReplicaId, Viewstamp};
use crate::protocol::partition::Wound;
use crate::protocol::task::{Digest, Settled, Task, Tomb};
use norn_wire::group::MemberOf;
use norn_wire::membership::Roster;
use norn_wire::{
    Claim, ClaimId, Granted, NodeId, PartitionId, QueueName, Request, Response, Subject, TaskId, Token, WatchEvent,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Facts about tasks of one partition.
pub type Items = Arc<Vec<(TaskId, Task)>>;

/// How far the log of a message's sender was durable when it was sent. Who relies on what was promised there remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogWord {
    /// The sender's start counter; 0 where nothing is said.
    pub boot: u64,
    /// Ordinal of a record.
    pub durable: u64,
    /// Drawn by the sender for that start; 0 where nothing is said, which takes no room in a message.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub start: u64,
}

fn is_unsaid(start: &u64) -> bool {
    *start == 0
}

/// A grant whose task is known to have ended, with the evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneFlag {
    /// Task.
    pub id: TaskId,
    /// Token of the grant.
    pub token: Token,
    /// How it ended; empty where that is too much for the message, and must be asked for.
    pub ending: Task,
}

/// What a replica says to a write of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// On disk; the replica has the task's spec.
    #[serde(rename = "S")]
    Stored,
    /// On disk; the replica does not have the task's spec.
    #[serde(rename = "O")]
    StoredOrphan,
    /// Refused: other content under the same key.
    #[serde(rename = "C")]
    Conflict,
    /// Refused: the id is too far in the future.
    #[serde(rename = "F")]
    Future,
    /// Refused: too many tasks, or too many facts about unknown ones.
    #[serde(rename = "L")]
    Overloaded,
    /// Refused: the task is unknown, and may have been forgotten.
    #[serde(rename = "T")]
    TooOld,
    /// Refused: the disk of the replica is nearly full.
    #[serde(rename = "N")]
    NoSpace,
    /// Refused: a completion that the leader has not sealed, of a task whose completion it has to.
    #[serde(rename = "H")]
    Unsealed,
}

/// Head of a queue at one node, over all partitions that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Priority of the first task.
    pub priority: i32,
    /// Its id.
    pub id: TaskId,
    /// About how many there are.
    pub count: u64,
    /// Where keys take turns, when that of the first task was last served, by its leader's wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ms: Option<u64>,
}

/// Counts of one queue in one partition, by state.
pub type StateCounts = [u64; 6];

/// What one replica says about one partition to a counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionCounts {
    /// Partition.
    pub partition: PartitionId,
    /// Root of the hash tree.
    #[serde(with = "serde_bytes")]
    pub root: [u8; 16],
    /// Viewstamp of the table.
    pub viewstamp: Viewstamp,
    /// Version of the cohort.
    pub at: Viewstamp,
    /// The replica leads.
    pub leads: bool,
    /// Counts by queue.
    pub queues: Vec<(QueueName, StateCounts)>,
    /// In how many milliseconds the rates of queues at home here allow a claim, as their leader knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permits: Vec<(QueueName, u64)>,
}

/// Digests of what changed in one partition of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentPart {
    /// Partition.
    pub partition: PartitionId,
    /// The change number up to which they are all.
    pub upto: u64,
    /// Task and digest.
    pub tasks: Vec<(TaskId, u128)>,
}

/// Which tasks of one partition are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantPart {
    /// Partition.
    pub partition: PartitionId,
    /// As in the [`RecentPart`] that this answers: all others up to it are known.
    pub upto: Option<u64>,
    /// Tasks.
    pub ids: Vec<TaskId>,
}

/// A place among the events of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAt {
    /// Drawn by the node for its start.
    pub start: u64,
    /// Behind this event.
    pub number: u64,
}

/// What a node tells of what has become of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchTold {
    /// All up to this place.
    pub at: WatchAt,
    /// All behind the place in the question. Otherwise nothing before `at`.
    pub follows: bool,
    /// In order.
    pub events: Vec<WatchEvent>,
    /// Replicas of which nothing is missing in that.
    pub covers: Vec<PartitionId>,
    /// Replicas of which nothing will be missing behind it.
    pub begins: Vec<PartitionId>,
    /// Roots of the hash trees of those that are to be compared, if this is all that there is.
    pub roots: Vec<(PartitionId, u128)>,
}

/// What a [`Step::Compare`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// The groups of a partition's tree.
    #[serde(rename = "G")]
    Groups,
    /// The buckets of a group.
    #[serde(rename = "B")]
    Buckets,
    /// The cells of a bucket.
    #[serde(rename = "C")]
    Cells,
}

/// A step down the tree of a partition that differs. `salt` is that of all hashes, which are 8 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The children of node `number` of the tree: one bit of `filled` for each that is not empty, and the hashes of those.
    #[serde(rename = "C")]
    Compare { partition: PartitionId, salt: u64, level: Level, number: u16, filled: u64, hashes: ByteBuf },
    /// Hashes of the tasks of a bucket that are in `cells`, one bit for each, and whose ids are above `after` and up to
    /// `upto`.
    #[serde(rename = "L")]
    List {
        partition: PartitionId,
        salt: u64,
        bucket: u16,
        cells: u64,
        after: Option<TaskId>,
        upto: Option<TaskId>,
        hashes: ByteBuf,
    },
    /// Tasks of a bucket above `after` that are wanted.
    #[serde(rename = "W")]
    Want { partition: PartitionId, salt: u64, bucket: u16, after: Option<TaskId>, hashes: ByteBuf },
}

impl Step {
    /// What it is about.
    pub fn partition(&self) -> PartitionId {
        match self {
            Step::Compare { partition, .. } | Step::List { partition, .. } | Step::Want { partition, .. } => *partition,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

norn_wire::wire_body!(PeerMessage);

/// A message. Field names: `partition`, `epoch` and `viewstamp` as everywhere; `ask` is the sender's number for something
/// that it waits for, returned in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// See [`Heartbeat`].
    #[serde(rename = "hb")]
    Heartbeat(Box<Heartbeat>),

    // Elections.
    /// Would you vote?
    #[serde(rename = "pv")]
    PreVote { partition: PartitionId, epoch: Epoch, viewstamp: Viewstamp },
    /// Answer to `PreVote`.
    #[serde(rename = "pa")]
    PreVoteAnswer { partition: PartitionId, epoch: Epoch, granted: bool, promised: Epoch, viewstamp: Viewstamp },
    /// Vote for me.
    #[serde(rename = "vo")]
    Vote { partition: PartitionId, epoch: Epoch, candidate: ReplicaId, viewstamp: Viewstamp },
    /// Vote for me: these are lost for ever, and without them there is no majority.
    #[serde(rename = "sv")]
    Rescue { partition: PartitionId, epoch: Epoch, candidate: ReplicaId, viewstamp: Viewstamp, lost: Vec<NodeId> },
    /// Answer to `Vote` and `Rescue`; a grant is on disk.
    #[serde(rename = "va")]
    VoteAnswer {
        partition: PartitionId,
        epoch: Epoch,
        replica: ReplicaId,
        granted: bool,
        promised: Epoch,
        viewstamp: Viewstamp,
        log: LogWord,
    },
    /// Send me your table. Neither a vote nor an acknowledgement.
    #[serde(rename = "fe")]
    Fetch { partition: PartitionId, viewstamp: Viewstamp },
    /// Answer to `Fetch`.
    #[serde(rename = "st")]
    State { partition: PartitionId, viewstamp: Viewstamp, table: Arc<Table> },
    /// Campaign now: your leader leaves and you are level.
    #[serde(rename = "tr")]
    Transfer { partition: PartitionId, epoch: Epoch },

    // Replication of the table.
    /// The table of a new epoch. Without `table`: the one at `base`, which the receiver has.
    #[serde(rename = "in")]
    Install {
        partition: PartitionId,
        epoch: Epoch,
        base: Viewstamp,
        table: Option<Arc<Table>>,
        #[serde(with = "serde_bytes")]
        digest: [u8; 16],
    },
    /// The table at a later viewstamp, for a follower behind the kept operations.
    #[serde(rename = "sn")]
    Snapshot { partition: PartitionId, viewstamp: Viewstamp, table: Arc<Table>, commit: u64 },
    /// Operations after `first - 1`.
    #[serde(rename = "op")]
    Ops {
        partition: PartitionId,
        epoch: Epoch,
        first: u64,
        ops: Vec<Arc<Op>>,
        commit: u64,
        #[serde(with = "serde_bytes")]
        digest: [u8; 16],
    },
    /// On disk up to `length`; flags for every grant in `(known commit, length]` whose task has ended here.
    #[serde(rename = "ac")]
    Ack {
        partition: PartitionId,
        epoch: Epoch,
        replica: ReplicaId,
        length: u64,
        done: Vec<DoneFlag>,
        /// Tasks granted whose spec is missing here.
        missing: Vec<TaskId>,
        log: LogWord,
        /// What may be missing here, and for what this must not be counted.
        #[serde(default, skip_serializing_if = "Wound::is_whole")]
        wound: Wound,
    },
    /// Cannot follow: a higher promise, another installation, or a gap.
    #[serde(rename = "na")]
    Nack { partition: PartitionId, replica: ReplicaId, promised: Epoch, viewstamp: Viewstamp },
    /// So many milliseconds ago, at least, each operation had been appended up to one of these viewstamps in the same epoch. A follower
    /// asks, and is answered with what is older by the leader's count. What is told without `asks` is an answer: the receiver was heard.
    /// A leader that says unasked what is news to itself asks as well; nobody but a leader answers.
    #[serde(rename = "ag")]
    Ages { partition: PartitionId, asks: bool, ages: Vec<(Viewstamp, u64)> },
    /// My table has lost something and stands here: how far must it come?
    #[serde(rename = "rj")]
    Rejoin { partition: PartitionId, ask: u64, viewstamp: Viewstamp },
    /// Answer to `Rejoin`, of a leader only: where its table stands.
    #[serde(rename = "ra")]
    Rejoined { partition: PartitionId, ask: u64, viewstamp: Viewstamp },
    /// At this version of the cohort: how much a next member or an exile has, and whether that is all that it should have, or
    /// nothing that members lack.
    #[serde(rename = "ry")]
    Ready { partition: PartitionId, replica: ReplicaId, at: Viewstamp, ready: bool, facts: u64, log: LogWord },
    /// The cohort of this version, in which you are an exile, is committed.
    #[serde(rename = "di")]
    Dismiss { partition: PartitionId, at: Viewstamp },
    /// From the leader of an epoch: you have no part in this cohort, which is committed.
    #[serde(rename = "ou")]
    Outside { partition: PartitionId, told: Box<Told> },
    /// Nothing of this partition is here.
    #[serde(rename = "uh")]
    Unheld { partition: PartitionId, replica: ReplicaId },
    /// I was cleared unheard, and have something that I may be the only one to have.
    #[serde(rename = "sy")]
    Stray { partition: PartitionId, seat: Seat },
    /// These shall be the members of a partition that you lead.
    #[serde(rename = "ar")]
    Arrange { partition: PartitionId, nodes: Vec<NodeId> },
    /// Who belongs to the cluster: more than the receiver has shown to know.
    #[serde(rename = "rs")]
    Roster { roster: Arc<Roster> },
    /// Who holds these?
    #[serde(rename = "rq")]
    RouteAsk { partitions: Vec<PartitionId> },
    /// Who holds a partition, as far as the sender knows.
    #[serde(rename = "ro")]
    Route { partition: PartitionId, told: Box<Told> },
    /// Ready work has come up in a partition that its leader may sleep on.
    #[serde(rename = "wk")]
    Wake { partition: PartitionId, epoch: Epoch, ids: Vec<TaskId> },
    /// Answer to `Wake`: whether the sender leads in this epoch.
    #[serde(rename = "ld")]
    Led { partition: PartitionId, epoch: Epoch, leads: bool },

    // The available half.
    /// Store these facts. `at`, here and elsewhere: the version of the cohort that the sender knows.
    #[serde(rename = "wr")]
    Write { ask: u64, partition: PartitionId, at: Viewstamp, items: Items },
    /// On disk, item by item. Refusals never count.
    #[serde(rename = "wn")]
    Written {
        ask: u64,
        partition: PartitionId,
        replica: ReplicaId,
        outcomes: Vec<Outcome>,
        /// The start in which it was stored.
        boot: u64,
        at: Viewstamp,
        /// Where the question had another version.
        told: Option<Box<Told>>,
        log: LogWord,
        /// As in [`Known`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        holes: bool,
    },
    /// From a node to itself: it keeps facts of a write for the members of a partition, item by item.
    #[serde(rename = "ke")]
    Kept { ask: u64, partition: PartitionId, outcomes: Vec<Outcome> },
    /// What do you know of this task?
    #[serde(rename = "rd")]
    Read { ask: u64, partition: PartitionId, at: Viewstamp, id: TaskId },
    /// Answer to `Read`.
    #[serde(rename = "rn")]
    Known { ask: u64, partition: PartitionId, replica: ReplicaId, known: Box<Known> },
    /// Counts of your partitions.
    #[serde(rename = "cq")]
    CountAsk { ask: u64, queue: Option<QueueName> },
    /// Answer to `CountAsk`.
    #[serde(rename = "ca")]
    CountAnswer { ask: u64, partitions: Vec<PartitionCounts> },
    /// Tasks of your partitions (or of one) after an id, in order.
    #[serde(rename = "lq")]
    ListAsk {
        ask: u64,
        partition: Option<PartitionId>,
        queue: Option<QueueName>,
        after: Option<TaskId>,
        to: Option<TaskId>,
        limit: u32,
    },
    /// Answer to `ListAsk`: everything up to `end`, or to the end of all where that is absent.
    #[serde(rename = "la")]
    ListAnswer { ask: u64, partitions: Vec<(PartitionId, Viewstamp)>, tasks: Vec<(TaskId, Known)>, end: Option<TaskId> },

    // Anti-entropy.
    /// Roots of partitions that changed since both last agreed. With a number: some of the sender's have holes.
    #[serde(rename = "xr")]
    Roots {
        roots: Vec<(PartitionId, u128)>,
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u64,
    },
    /// Which of them are equal here, and which are not. Where the question has a number, of those equal only the ones
    /// without holes here.
    #[serde(rename = "xd")]
    RootsAnswer {
        equal: Vec<(PartitionId, u128)>,
        /// The version of the cohort of each of those.
        at: Vec<Viewstamp>,
        differ: Vec<PartitionId>,
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u64,
    },
    /// Digests of groups of buckets of a replica that is to agree, by their numbers; those that agreed already are left out.
    #[serde(rename = "xh")]
    GroupsAsk { partition: PartitionId, round: u64, groups: Vec<(u16, u128)> },
    /// Which of them are the same here, where nothing is missing.
    #[serde(rename = "xe")]
    GroupsAnswer { partition: PartitionId, round: u64, at: Viewstamp, equal: Vec<u16> },
    /// Digests of what changed lately in start `boot`.
    #[serde(rename = "xc")]
    Recent { boot: u64, parts: Vec<RecentPart> },
    /// Which tasks are wanted; `boot` is that of the question.
    #[serde(rename = "xw")]
    Want { boot: u64, parts: Vec<WantPart> },
    /// Send these tasks at once: claims wait for them.
    #[serde(rename = "nd")]
    Need { partition: PartitionId, ids: Vec<TaskId> },
    /// Steps down the trees of partitions that differ.
    #[serde(rename = "xs")]
    Steps { steps: Vec<Step> },
    /// A reader saw that the receiver does not know of a task what `holder` does.
    #[serde(rename = "xl")]
    Lacks { partition: PartitionId, id: TaskId, holder: NodeId },
    /// Tasks, to be merged.
    #[serde(rename = "xi")]
    Tasks {
        partition: PartitionId,
        items: Items,
        by_buckets: bool,
        /// How many times the sender has forgotten; absent where it may know what others have forgotten.
        #[serde(default)]
        forgets: Option<u64>,
    },
    /// Facts that the sender kept while the receiver was away; `forgets` as in `Tasks`.
    #[serde(rename = "hi")]
    Hint {
        number: u64,
        partition: PartitionId,
        at: Viewstamp,
        items: Items,
        #[serde(default)]
        forgets: Option<u64>,
    },
    /// Answer to `Hint`: on disk, or refused, item by item; and the start in which it was stored.
    #[serde(rename = "ha")]
    Hinted {
        number: u64,
        partition: PartitionId,
        outcomes: Vec<Outcome>,
        boot: u64,
        at: Viewstamp,
        log: LogWord,
        /// As in [`Known`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        holes: bool,
    },
    /// The receiver sent these tasks, and may have holes; here they are forgotten, as everything up to `forgets`.
    #[serde(rename = "xg")]
    Gone { partition: PartitionId, forgets: u64, ids: Vec<TaskId> },

    // Forgetting.
    /// Of which of these tasks, about to be archived, do you know just this?
    #[serde(rename = "fc")]
    Compare { partition: PartitionId, epoch: Epoch, number: u64, items: Vec<(TaskId, Digest)> },
    /// Answer to `Compare`. A replica with holes knows nothing.
    #[serde(rename = "fs")]
    Compared { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, same: Vec<TaskId> },
    /// Put these tombstones in the place of tasks. With a number: tell the sender, a leader, when you have all of them.
    #[serde(rename = "ft")]
    Tombs { partition: PartitionId, epoch: Epoch, number: u64, items: Arc<Vec<(TaskId, Tomb)>> },
    /// All of them are on disk.
    #[serde(rename = "fb")]
    Buried { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, log: LogWord },
    /// Do you know of no completion that brings tasks into this partition, with ids within these bounds? Only who does not
    /// answers.
    #[serde(rename = "fo")]
    Outboxes { partition: PartitionId, epoch: Epoch, number: u64, above: Option<TaskId>, up_to: TaskId },
    /// I know of none.
    #[serde(rename = "fn")]
    Childless { partition: PartitionId, epoch: Epoch, number: u64, seats: u64 },
    /// What the table says is forgotten for the `count`th time is committed: forget it.
    #[serde(rename = "ff")]
    Forget { partition: PartitionId, epoch: Epoch, count: u64 },
    /// It is forgotten, on disk.
    #[serde(rename = "fd")]
    Forgot { partition: PartitionId, epoch: Epoch, count: u64, replica: ReplicaId, log: LogWord },

    // Claims.
    /// What is at the head of these queues, surely: the receiver asks its cohorts before it answers.
    #[serde(rename = "pr")]
    Probe { ask: u64, queues: Vec<QueueName> },
    /// Answer to `Probe`: heads in the order of the queues, and the partitions that the answer speaks for.
    #[serde(rename = "pb")]
    Probed { ask: u64, heads: Vec<Option<Head>>, covered: Vec<PartitionId> },
    /// What is ready with you in these partitions, which I lead?
    #[serde(rename = "pl")]
    Pull { ask: u64, queues: Vec<QueueName> },
    /// Answer to `Pull`.
    #[serde(rename = "pd")]
    Pulled { ask: u64, partitions: Vec<PartitionId>, ready: Vec<TaskId>, more: bool },
    /// Grant tasks to a worker of mine. With `recall`: only those that this call was granted before. With `max` 0 as well: this question
    /// is given up, and what it was granted goes back.
    #[serde(rename = "gr")]
    GrantAsk {
        ask: u64,
        claim: Box<Claim>,
        max: u32,
        recall: bool,
        /// What the call has already, and is not to be told again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        got: Vec<TaskId>,
    },
    /// Committed grants, and what is left at the head of the queues. A grant made for this very question comes with its
    /// viewstamp and may be given back; one that was found again may be in somebody's hands already.
    #[serde(rename = "gd")]
    GrantAnswer {
        ask: u64,
        claim: ClaimId,
        tasks: Vec<(Granted, Option<Viewstamp>)>,
        heads: Vec<Option<Head>>,
        /// To one with `recall`: in these the call holds nothing but this. To any other: in these it may hold more, and whoever
        /// leads them knows.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<PartitionId>,
    },
    /// Grants that no client was told of, each with the viewstamp under which it was answered: take them back, unless they
    /// were renewed or asked for again since.
    #[serde(rename = "re")]
    Return { items: Vec<(TaskId, Token, Viewstamp)> },
    /// These claims are over, and were never renewed: those that no client of yours has confirmed go back.
    #[serde(rename = "gq")]
    ConfirmAsk { items: Vec<(TaskId, Token, ClaimId)> },
    /// Answer to `ConfirmAsk`: of the first I have nothing more to say, the others go back, as by `Return`. Those that are in neither may
    /// be in an answer for which I wait.
    #[serde(rename = "gn")]
    ConfirmAnswer { settled: Vec<(TaskId, Token)>, back: Vec<(TaskId, Token, Viewstamp)> },
    /// The call of a client is over, which has none of what was granted to it but these: take the rest back.
    #[serde(rename = "lv")]
    Leave {
        claim: ClaimId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keeps: Vec<TaskId>,
    },
    /// Workers of mine wait for these queues: tell me, `credits` times at the most, when there is work.
    #[serde(rename = "ni")]
    Interest { queues: Vec<(QueueName, u32)> },
    /// There is work in this queue.
    #[serde(rename = "av")]
    Available { queue: QueueName, head: Option<Head> },
    /// Tasks of a partition that I lead wait for these: tell me how they ended, now or when they do.
    #[serde(rename = "fl")]
    Follow { partition: PartitionId, ids: Vec<TaskId> },
    /// These have ended; tasks of a partition that the receiver leads wait for them.
    #[serde(rename = "en")]
    Ends {
        partition: PartitionId,
        ends: Vec<(TaskId, Settled)>,
        /// For some of them, joins of groups that their completions brought.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        joins: Vec<(TaskId, TaskId)>,
    },
    /// A member of a group has ended otherwise than by completion; the receiver leads the partition of the join.
    #[serde(rename = "mf")]
    MemberFailed { member: MemberOf, how: Settled },
    /// A client watches here: what has become of those tasks behind this place, and of which facts are these replicas?
    #[serde(rename = "wt")]
    Watch { ask: u64, subject: Subject, at: Option<WatchAt>, compare: Vec<PartitionId> },
    /// Answer to `Watch`, with the place that it named; nothing, if too much is watched already.
    #[serde(rename = "wd")]
    Watched { ask: u64, at: Option<WatchAt>, told: Option<Box<WatchTold>> },
    /// Something has become of such tasks.
    #[serde(rename = "wv")]
    WatchNews { subject: Subject },
    /// Which tasks with this key do you know that have not ended, and which of these do you know to have ended?
    #[serde(rename = "ka")]
    KeyAsk { ask: u64, partition: PartitionId, epoch: Epoch, queue: QueueName, key: NonZeroU64, ids: Vec<TaskId> },
    /// Answer to `KeyAsk`, with the first of those that have not. Replicas with holes do not answer, nor those whose table is not of
    /// that epoch: what ended by a claim in it may not be so.
    #[serde(rename = "kd")]
    KeyAnswer { ask: u64, partition: PartitionId, replica: ReplicaId, open: Vec<TaskId>, ended: Vec<TaskId> },
    /// To the home of a queue whose claims come no faster than a rate: permits for so many.
    #[serde(rename = "pq")]
    PermitAsk { ask: u64, queue: QueueName, wanted: u64 },
    /// Answer to `PermitAsk`: so many, each for one claim within a second of the question; without any, when to ask again.
    #[serde(rename = "pn")]
    Permits { ask: u64, queue: QueueName, count: u64, wait_ms: u64 },
    /// Of those so many in all are not used, and will not be, or by grants that are void. Nodes of before say it once.
    #[serde(rename = "px")]
    PermitsBack { ask: u64, queue: QueueName, count: u64 },
    /// From the leader of a partition, of that epoch, to the home of a queue that limits how many of its claims are held at once:
    /// no more than `keeps` will be before this is answered, and `wants` are wanted. The number grows.
    #[serde(rename = "qq")]
    QuotaAsk { partition: PartitionId, epoch: Epoch, ask: u64, queue: QueueName, keeps: u32, wants: u32 },
    /// Answer to `QuotaAsk`: so many may be.
    #[serde(rename = "qn")]
    Quota { partition: PartitionId, epoch: Epoch, ask: u64, queue: QueueName, count: u32 },
    /// From a queue's home to the leader of a partition: others want claims, it shall keep no more than so many.
    #[serde(rename = "qc")]
    QuotaCall { partition: PartitionId, queue: QueueName, share: u32 },
    /// A client's request about a partition that the receiver leads.
    #[serde(rename = "fw")]
    Forward { ask: u64, request: Box<Request> },
    /// Answer to `Forward`.
    #[serde(rename = "fa")]
    Forwarded { ask: u64, response: Box<Response> },
}
