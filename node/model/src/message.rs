//! Messages between the nodes of a cluster.
//!
//! Any message may be lost, repeated or reordered. A connection of the sender's host delivers in order, but that is only the
//! cheap common case.

mod heartbeat;
mod kinds;
mod known;

pub use self::heartbeat::{DiskWord, Heartbeat};
pub use self::kinds::Class;
pub use self::known::{Known, Lost};
use crate::claim_table::table::{Op, Table};
use crate::cohort::{Seat, Told};
use crate::replica::DoneFlag;
use crate::task::{Digest, Settled, Task, Tomb};
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use crate::wound::Wound;
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

/// Durable log position of a message's sender when it was sent. A receiver that relies on the message's promise remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogWord {
    /// The sender's start counter; 0 if absent.
    pub boot: u64,
    /// Ordinal of the last durable record.
    pub durable: u64,
    /// Random number of that start; 0 if absent, which takes no room in a message.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub start: u64,
}

fn is_unsaid(start: &u64) -> bool {
    *start == 0
}

/// Result of a write of an item at a replica.
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
    /// Refused: a completion that the leader has not sealed, of a task that needs a seal.
    #[serde(rename = "H")]
    Unsealed,
}

/// Best claimable task of a queue at a node, over all partitions that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Priority of the first task.
    pub priority: i32,
    /// Its id.
    pub id: TaskId,
    /// Number of claimable tasks, about.
    pub count: u64,
    /// Where keys take turns: when the key of the first task was last served, by its leader's wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_ms: Option<u64>,
}

/// Counts of one queue in one partition, by state.
pub type StateCounts = [u64; 6];

/// Counts of a replica for a partition.
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
    /// Whether the replica leads.
    pub leads: bool,
    /// Counts by queue.
    pub queues: Vec<(QueueName, StateCounts)>,
    /// Milliseconds until the rate of a queue allows a claim, by the leader of its coordinator partition, which this is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permits: Vec<(QueueName, u64)>,
}

/// Digests of recent changes in a partition of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentPart {
    /// Partition.
    pub partition: PartitionId,
    /// Change number up to which the list is complete.
    pub upto: u64,
    /// Task and digest.
    pub tasks: Vec<(TaskId, u128)>,
}

/// Wanted tasks of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantPart {
    /// Partition.
    pub partition: PartitionId,
    /// As in the [`RecentPart`] that this answers: all other tasks up to it are known.
    pub upto: Option<u64>,
    /// Tasks.
    pub ids: Vec<TaskId>,
}

/// Position in a node's change feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAt {
    /// Random number of the node's start.
    pub start: u64,
    /// Number of the event before this position.
    pub number: u64,
}

/// Change feed of a node: what has become of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchTold {
    /// Position up to which the events are complete.
    pub at: WatchAt,
    /// Whether the events are complete from the position in the question. Otherwise nothing before `at` is included.
    pub follows: bool,
    /// In order.
    pub events: Vec<WatchEvent>,
    /// Partitions whose events in this answer are complete.
    pub covers: Vec<PartitionId>,
    /// Partitions whose events behind this answer will be complete.
    pub begins: Vec<PartitionId>,
    /// Roots of the hash trees to compare, if these are all events that there are.
    pub roots: Vec<(PartitionId, u128)>,
}

/// Level that a [`Step::Compare`] compares.
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

/// Merkle descent message for a partition that differs. `salt` is that of all hashes, which are 8 bytes each.
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
    /// Partition of the step.
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

/// Message between nodes. Field names: `partition`, `epoch` and `viewstamp` as everywhere; `ask` is the sender's number of a
/// pending request, returned in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// See [`Heartbeat`].
    #[serde(rename = "hb")]
    Heartbeat(Box<Heartbeat>),

    // Elections.
    /// Pre-vote: asks whether the receiver would vote for the sender.
    #[serde(rename = "pv")]
    PreVote { partition: PartitionId, epoch: Epoch, viewstamp: Viewstamp },
    /// Answer to `PreVote`.
    #[serde(rename = "pa")]
    PreVoteAnswer { partition: PartitionId, epoch: Epoch, granted: bool, promised: Epoch, viewstamp: Viewstamp },
    /// Asks for a vote.
    #[serde(rename = "vo")]
    Vote { partition: PartitionId, epoch: Epoch, candidate: ReplicaId, viewstamp: Viewstamp },
    /// Asks for a vote in an unsafe recovery: `lost` nodes are lost for ever, and without them there is no majority.
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
    /// Asks for the receiver's table. Neither a vote nor an acknowledgement.
    #[serde(rename = "fe")]
    Fetch { partition: PartitionId, viewstamp: Viewstamp },
    /// Answer to `Fetch`.
    #[serde(rename = "st")]
    State { partition: PartitionId, viewstamp: Viewstamp, table: Arc<Table> },
    /// Leadership transfer: the receiver has caught up and campaigns now.
    #[serde(rename = "tr")]
    Transfer { partition: PartitionId, epoch: Epoch },

    // Replication of the table.
    /// Installs the table of a new epoch. Without `table`: the one at `base`, which the receiver has.
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
    /// Appends operations from number `first` on.
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
    /// Acknowledges operations up to `length` on disk; flags every grant in `(known commit, length]` whose task has ended here.
    #[serde(rename = "ac")]
    Ack {
        partition: PartitionId,
        epoch: Epoch,
        replica: ReplicaId,
        length: u64,
        done: Vec<DoneFlag>,
        /// Granted tasks whose spec is missing here.
        missing: Vec<TaskId>,
        log: LogWord,
        /// What may be missing here; the acknowledgement does not count for that.
        #[serde(default, skip_serializing_if = "Wound::is_whole")]
        wound: Wound,
    },
    /// Cannot follow: a higher promise, another installation, or a gap. Also reports a viewstamp to the leader unasked.
    #[serde(rename = "na")]
    Nack { partition: PartitionId, replica: ReplicaId, promised: Epoch, viewstamp: Viewstamp },
    /// Lease ages: each operation up to one of these viewstamps, in the same epoch, was appended at least that many milliseconds
    /// ago. A follower asks, and the leader answers with what is older by its own count. Without `asks` it is an answer: the
    /// question has arrived. A leader that sends its own news unasked sets `asks` as well; only leaders answer.
    #[serde(rename = "ag")]
    Ages { partition: PartitionId, asks: bool, ages: Vec<(Viewstamp, u64)> },
    /// Recovery of a table that has lost something and is at `viewstamp`: asks the leader for its target.
    #[serde(rename = "rj")]
    Rejoin { partition: PartitionId, ask: u64, viewstamp: Viewstamp },
    /// Answer to `Rejoin`, from a leader only: viewstamp of its table.
    #[serde(rename = "ra")]
    Rejoined { partition: PartitionId, ask: u64, viewstamp: Viewstamp },
    /// Progress of a next member or an exile at version `at` of the cohort: how many facts it has. `ready`: a next member has all
    /// facts that it should have, or an exile has none that members lack.
    #[serde(rename = "ry")]
    Ready { partition: PartitionId, replica: ReplicaId, at: Viewstamp, ready: bool, facts: u64, log: LogWord },
    /// The cohort of this version, in which the receiver is an exile, is committed.
    #[serde(rename = "di")]
    Dismiss { partition: PartitionId, at: Viewstamp },
    /// From the leader of an epoch: the receiver has no part in this cohort, which is committed.
    #[serde(rename = "ou")]
    Outside { partition: PartitionId, told: Box<Told> },
    /// Missing-table notice: the sender holds nothing of this partition.
    #[serde(rename = "uh")]
    Unheld { partition: PartitionId, replica: ReplicaId },
    /// The sender was removed without draining and may hold unreplicated facts: asks to be re-admitted as a draining replica.
    #[serde(rename = "sy")]
    Stray { partition: PartitionId, seat: Seat },
    /// Sets the target members of a partition that the receiver leads.
    #[serde(rename = "ar")]
    Arrange { partition: PartitionId, nodes: Vec<NodeId> },
    /// Member list, later than the one that the receiver has shown.
    #[serde(rename = "rs")]
    Roster { roster: Arc<Roster> },
    /// Asks for the cohorts of these partitions.
    #[serde(rename = "rq")]
    RouteAsk { partitions: Vec<PartitionId> },
    /// Cohort of a partition, as far as the sender knows.
    #[serde(rename = "ro")]
    Route { partition: PartitionId, told: Box<Told> },
    /// Follower to leader: this partition has ready tasks, and its leader has been silent. Asks whether it still leads.
    #[serde(rename = "wk")]
    Wake { partition: PartitionId, epoch: Epoch, ids: Vec<TaskId> },
    /// Answer to `Wake`: whether the sender leads in this epoch or a later one.
    #[serde(rename = "ld")]
    Led { partition: PartitionId, epoch: Epoch, leads: bool },

    // The available half.
    /// Stores these facts. `at`, here and elsewhere: the version of the cohort that the sender knows.
    #[serde(rename = "wr")]
    Write { ask: u64, partition: PartitionId, at: Viewstamp, items: Items },
    /// Outcomes of a write, item by item, on disk. Refusals never count.
    #[serde(rename = "wn")]
    Written {
        ask: u64,
        partition: PartitionId,
        replica: ReplicaId,
        outcomes: Vec<Outcome>,
        /// Start of the sender in which it stored them.
        boot: u64,
        at: Viewstamp,
        /// The sender's cohort, if the question had another version.
        told: Option<Box<Told>>,
        log: LogWord,
        /// As in [`Known`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        holes: bool,
    },
    /// From a node to itself: outcomes of a hinted handoff of a write's facts for the members of a partition, item by item.
    #[serde(rename = "ke")]
    Kept { ask: u64, partition: PartitionId, outcomes: Vec<Outcome> },
    /// Asks for the facts of a task.
    #[serde(rename = "rd")]
    Read { ask: u64, partition: PartitionId, at: Viewstamp, id: TaskId },
    /// Answer to `Read`.
    #[serde(rename = "rn")]
    Known { ask: u64, partition: PartitionId, replica: ReplicaId, known: Box<Known> },
    /// Asks for counts of the receiver's partitions.
    #[serde(rename = "cq")]
    CountAsk { ask: u64, queue: Option<QueueName> },
    /// Answer to `CountAsk`.
    #[serde(rename = "ca")]
    CountAnswer { ask: u64, partitions: Vec<PartitionCounts> },
    /// Asks for tasks of the receiver's partitions (or of one partition) after an id, in order.
    #[serde(rename = "lq")]
    ListAsk {
        ask: u64,
        partition: Option<PartitionId>,
        queue: Option<QueueName>,
        after: Option<TaskId>,
        to: Option<TaskId>,
        limit: u32,
    },
    /// Answer to `ListAsk`: all tasks up to `end`, or to the end of all where that is absent.
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
    /// Which of them are equal here, and which are not. If the question has a number, the equal ones are only those without holes
    /// here.
    #[serde(rename = "xd")]
    RootsAnswer {
        equal: Vec<(PartitionId, u128)>,
        /// Cohort version of each equal partition.
        at: Vec<Viewstamp>,
        differ: Vec<PartitionId>,
        #[serde(default, skip_serializing_if = "is_zero")]
        round: u64,
    },
    /// Digests of groups of buckets of a replica that needs agreement, by their numbers; groups already agreed on are left out.
    #[serde(rename = "xh")]
    GroupsAsk { partition: PartitionId, round: u64, groups: Vec<(u16, u128)> },
    /// Which of them are the same here, from a replica with complete facts.
    #[serde(rename = "xe")]
    GroupsAnswer { partition: PartitionId, round: u64, at: Viewstamp, equal: Vec<u16> },
    /// Digests of recent changes in start `boot`.
    #[serde(rename = "xc")]
    Recent { boot: u64, parts: Vec<RecentPart> },
    /// Wanted tasks; `boot` is that of the question.
    #[serde(rename = "xw")]
    Want { boot: u64, parts: Vec<WantPart> },
    /// Asks for these tasks at once, because claims wait for them.
    #[serde(rename = "nd")]
    Need { partition: PartitionId, ids: Vec<TaskId> },
    /// Steps down the trees of partitions that differ.
    #[serde(rename = "xs")]
    Steps { steps: Vec<Step> },
    /// Read repair: a reader saw that the receiver lacks facts of a task that `holder` has.
    #[serde(rename = "xl")]
    Lacks { partition: PartitionId, id: TaskId, holder: NodeId },
    /// Tasks to merge.
    #[serde(rename = "xi")]
    Tasks {
        partition: PartitionId,
        items: Items,
        by_buckets: bool,
        /// How many times the sender has forgotten; absent where it may know what others have forgotten.
        #[serde(default)]
        forgets: Option<u64>,
    },
    /// Hinted handoff: facts that the sender kept while the receiver was away; `forgets` as in `Tasks`.
    #[serde(rename = "hi")]
    Hint {
        number: u64,
        partition: PartitionId,
        at: Viewstamp,
        items: Items,
        #[serde(default)]
        forgets: Option<u64>,
    },
    /// Answer to `Hint`: outcomes on disk, item by item, and the start in which they were stored.
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
    /// The receiver sent these tasks, and may have holes; the sender has forgotten them, as everything up to `forgets`.
    #[serde(rename = "xg")]
    Gone { partition: PartitionId, forgets: u64, ids: Vec<TaskId> },

    // Forgetting.
    /// Asks of which of these tasks, about to be archived, the receiver has exactly these facts.
    #[serde(rename = "fc")]
    Compare { partition: PartitionId, epoch: Epoch, number: u64, items: Vec<(TaskId, Digest)> },
    /// Answer to `Compare`. A replica with holes names no task.
    #[serde(rename = "fs")]
    Compared { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, same: Vec<TaskId> },
    /// Replaces tasks by these tombstones. With a number: asks the receiver to report to the sender, a leader, once it has all of
    /// them.
    #[serde(rename = "ft")]
    Tombs { partition: PartitionId, epoch: Epoch, number: u64, items: Arc<Vec<(TaskId, Tomb)>> },
    /// Answer to `Tombs`: all of them are on disk.
    #[serde(rename = "fb")]
    Buried { partition: PartitionId, epoch: Epoch, number: u64, replica: ReplicaId, log: LogWord },
    /// Asks for an answer from nodes that know no completion which brings tasks into this partition with ids within these bounds.
    #[serde(rename = "fo")]
    Outboxes { partition: PartitionId, epoch: Epoch, number: u64, above: Option<TaskId>, up_to: TaskId },
    /// Answer to `Outboxes`: the sender knows no such completion.
    #[serde(rename = "fn")]
    Childless { partition: PartitionId, epoch: Epoch, number: u64, seats: u64 },
    /// Asks to forget the tasks of the `count`th forgetting in the table, which is committed.
    #[serde(rename = "ff")]
    Forget { partition: PartitionId, epoch: Epoch, count: u64 },
    /// Answer to `Forget`: they are forgotten, on disk.
    #[serde(rename = "fd")]
    Forgot { partition: PartitionId, epoch: Epoch, count: u64, replica: ReplicaId, log: LogWord },

    // Claims.
    /// Asks for the certain heads of these queues: the receiver asks its cohorts before it answers.
    #[serde(rename = "pr")]
    Probe { ask: u64, queues: Vec<QueueName> },
    /// Answer to `Probe`: heads in the order of the queues, and the partitions that the answer covers.
    #[serde(rename = "pb")]
    Probed { ask: u64, heads: Vec<Option<Head>>, covered: Vec<PartitionId> },
    /// Asks a cohort what is ready in the partitions that the sender leads.
    #[serde(rename = "pl")]
    Pull { ask: u64, queues: Vec<QueueName> },
    /// Answer to `Pull`.
    #[serde(rename = "pd")]
    Pulled { ask: u64, partitions: Vec<PartitionId>, ready: Vec<TaskId>, more: bool },
    /// Asks for grants of tasks to a worker. With `recall`: only those that this call was granted before. With `max` 0 as well:
    /// this question is given up, and its grants go back.
    #[serde(rename = "gr")]
    GrantAsk {
        ask: u64,
        claim: Box<Claim>,
        max: u32,
        recall: bool,
        /// Tasks that the call has already, which need not be reported again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        got: Vec<TaskId>,
    },
    /// Committed grants, and the remaining heads of the queues. A grant made for this very question comes with its viewstamp and
    /// may be given back; one that was found again may have reached a client already.
    #[serde(rename = "gd")]
    GrantAnswer {
        ask: u64,
        claim: ClaimId,
        tasks: Vec<(Granted, Option<Viewstamp>)>,
        heads: Vec<Option<Head>>,
        /// With `recall`: partitions in which the call holds nothing beside these grants. Otherwise: partitions in which it may
        /// hold more; their leaders know.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        partitions: Vec<PartitionId>,
    },
    /// Grants that no client learned of, each with the viewstamp of its answer: the receiver revokes them, unless they were
    /// renewed or asked for again since.
    #[serde(rename = "re")]
    Return { items: Vec<(TaskId, Token, Viewstamp)> },
    /// Claims that are over and were never renewed: those that no client of the receiver has confirmed go back.
    #[serde(rename = "gq")]
    ConfirmAsk { items: Vec<(TaskId, Token, ClaimId)> },
    /// Answer to `ConfirmAsk`: the sender has nothing more to say of `settled`; those in `back` go back, as by `Return`. Claims
    /// in neither may be in an answer that the sender waits for.
    #[serde(rename = "gn")]
    ConfirmAnswer { settled: Vec<(TaskId, Token)>, back: Vec<(TaskId, Token, Viewstamp)> },
    /// The call of a client is over, and the client has only `keeps` of its grants: the receiver revokes the rest.
    #[serde(rename = "lv")]
    Leave {
        claim: ClaimId,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keeps: Vec<TaskId>,
    },
    /// Subscribes to these queues for waiting workers: at most `credits` notices when there is work.
    #[serde(rename = "ni")]
    Interest { queues: Vec<(QueueName, u32)> },
    /// Notice to a subscriber: there is work in this queue.
    #[serde(rename = "av")]
    Available { queue: QueueName, head: Option<Head> },
    /// Asks for the endings of these tasks, now or when they end; tasks of a partition that the sender leads wait for them.
    #[serde(rename = "fl")]
    Follow { partition: PartitionId, ids: Vec<TaskId> },
    /// Endings of tasks that tasks of a partition led by the receiver wait for.
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
    /// Asks, for a watching client, for events of `subject` behind position `at`, and for the hash-tree roots of the partitions
    /// in `compare`.
    #[serde(rename = "wt")]
    Watch { ask: u64, subject: Subject, at: Option<WatchAt>, compare: Vec<PartitionId> },
    /// Answer to `Watch`, with the position that it named; `told` is absent if too much is watched already.
    #[serde(rename = "wd")]
    Watched { ask: u64, at: Option<WatchAt>, told: Option<Box<WatchTold>> },
    /// Notice: there are new events for such a watch.
    #[serde(rename = "wv")]
    WatchNews { subject: Subject },
    /// Asks which tasks with this key the receiver knows as not ended, and which of `ids` it knows as ended.
    #[serde(rename = "ka")]
    KeyAsk { ask: u64, partition: PartitionId, epoch: Epoch, queue: QueueName, key: NonZeroU64, ids: Vec<TaskId> },
    /// Answer to `KeyAsk`, with the first of the open ones. Replicas with holes do not answer, nor those whose table is not of
    /// that epoch: a task that ended by a claim in another table may not have ended.
    #[serde(rename = "kd")]
    KeyAnswer { ask: u64, partition: PartitionId, replica: ReplicaId, open: Vec<TaskId>, ended: Vec<TaskId> },
    /// To the coordinator partition of a queue with a rate: asks for permits for `wanted` claims.
    #[serde(rename = "pq")]
    PermitAsk { ask: u64, queue: QueueName, wanted: u64 },
    /// Answer to `PermitAsk`: number of permits, each for one claim within a second of the question; without any, when to ask
    /// again.
    #[serde(rename = "pn")]
    Permits { ask: u64, queue: QueueName, count: u64, wait_ms: u64 },
    /// Total number of those permits that are not used and will not be, or were used by revoked grants. Older nodes say it once.
    #[serde(rename = "px")]
    PermitsBack { ask: u64, queue: QueueName, count: u64 },
    /// From the leader of a partition, in that epoch, to the coordinator partition of a queue with limited concurrency: the
    /// partition will hold no more than `keeps` claims before this is answered, and wants `wants`. The number grows.
    #[serde(rename = "qq")]
    QuotaAsk { partition: PartitionId, epoch: Epoch, ask: u64, queue: QueueName, keeps: u32, wants: u32 },
    /// Answer to `QuotaAsk`: number of claims that the partition may hold.
    #[serde(rename = "qn")]
    Quota { partition: PartitionId, epoch: Epoch, ask: u64, queue: QueueName, count: u32 },
    /// From a queue's coordinator partition to the leader of a partition: others want claims, so it shall keep no more than
    /// `share`.
    #[serde(rename = "qc")]
    QuotaCall { partition: PartitionId, queue: QueueName, share: u32 },
    /// Forwards a client's request about a partition that the receiver leads.
    #[serde(rename = "fw")]
    Forward { ask: u64, request: Box<Request> },
    /// Answer to `Forward`.
    #[serde(rename = "fa")]
    Forwarded { ask: u64, response: Box<Response> },
}
