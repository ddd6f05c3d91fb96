//! Responses: what a node answers to requests.

mod losses;

pub use losses::Losses;

use crate::error::Error;
use crate::group::{GroupView, Grouping};
use crate::ids::{ClusterId, NodeId, ParseError, PartitionId, QueueName, TaskId, TaskVersion, Token};
use crate::membership::{Changed, ClusterView, MemberState, Remnant};
use crate::schedule::ScheduleView;
use crate::transaction::Refusal;
use crate::watch::Watched;
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::ByteBuf;
use std::fmt;
use std::str::FromStr;

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Delayed, or waiting for other tasks.
    Waiting,
    /// Claimable.
    Ready,
    /// Held by a worker.
    Claimed,
    /// Completed.
    Done,
    /// Given up, or invalid.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl State {
    /// All states, in the order of a task's life.
    pub const ALL: [State; 6] =
        [State::Waiting, State::Ready, State::Claimed, State::Done, State::Dead, State::Cancelled];

    /// Returns its name on the wire and in text.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Ready => "ready",
            State::Claimed => "claimed",
            State::Done => "done",
            State::Dead => "dead",
            State::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for State {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            ParseError(format!("no such state: {text:?}; there are waiting, ready, claimed, done, dead, cancelled"))
        })
    }
}

/// Durability of an acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// On the disks of a majority of the cohort.
    Strict,
    /// On `acks` disks, fewer than a majority. Reads, lists and claims need not see it yet.
    Sloppy,
}

/// An acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acked {
    /// Task.
    pub id: TaskId,
    /// Nodes that had the write on disk when the answer was given: replicas of the partition, or, if no replica could be reached and
    /// `acks=one` was asked for, the node that keeps it for them (hinted handoff).
    pub acks: u32,
    /// Replicas of the partition.
    pub replicas: u32,
    /// Durability that was reached.
    pub guarantee: Guarantee,
}

/// A task handed to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Task.
    pub id: TaskId,
    /// Fencing token: pass it to every later call and, where possible, to every outside effect.
    pub token: Token,
    /// Queue.
    pub queue: QueueName,
    /// Opaque bytes.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// Priority.
    pub priority: i32,
    /// Headers, as enqueued.
    pub headers: Vec<(String, String)>,
    /// Attempts so far: claims that failed or expired, and this one. A released claim is no attempt.
    pub attempt: u32,
    /// Length of the lease in milliseconds, counted from when the call was first sent.
    pub lease_ms: u64,
    /// Visible log entries of all claims, ordered by token and sequence, as far as the leader has received them. A leader that was away
    /// just before may lack the latest; a [read](super::Request::Get) asks a majority for them.
    pub updates: Vec<LogEntry>,
    /// The task's part in groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Box<Grouping>>,
    /// For a join: outcome of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
}

/// One entry of a claim's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Claim.
    pub token: Token,
    /// Number within the claim, from 0.
    pub sequence: u32,
    /// Opaque bytes.
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimOutcome {
    /// Its completion is the one that counts.
    Done,
    /// Its worker reported the attempt as failed.
    Failed,
    /// Its lease or its session ran out.
    Expired,
    /// It was released. This is no attempt.
    Released,
    /// The task ended without it, by another completion or by a cancellation.
    Superseded,
    /// Its worker reported the task as invalid.
    GivenUp,
    /// Outcome of a later version, in an answer only. A node stores known outcomes alone, and refuses to read others.
    #[serde(skip_deserializing)]
    Other,
}

impl ClaimOutcome {
    /// All outcomes that this version knows.
    pub const ALL: [ClaimOutcome; 6] = [
        ClaimOutcome::Done,
        ClaimOutcome::Failed,
        ClaimOutcome::Expired,
        ClaimOutcome::Released,
        ClaimOutcome::Superseded,
        ClaimOutcome::GivenUp,
    ];

    /// Returns its name on the wire and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ClaimOutcome::Done => "done",
            ClaimOutcome::Failed => "failed",
            ClaimOutcome::Expired => "expired",
            ClaimOutcome::Released => "released",
            ClaimOutcome::Superseded => "superseded",
            ClaimOutcome::GivenUp => "given_up",
            ClaimOutcome::Other => "other",
        }
    }
}

/// End of a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimEnd {
    /// How it ended.
    pub outcome: ClaimOutcome,
    /// When it ended: the end of the lease if it expired, otherwise when the end was reported.
    pub at_ms: u64,
    /// Why it ended: the worker's reason, or the cluster's if its session ended. Long reasons are cut at the end, and older reasons of a
    /// task with many claims are left out, which `… (cut)` in their place marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One claim of a task, past or present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimView {
    /// Claim.
    pub token: Token,
    /// When it was granted, by the leader's wall clock.
    pub start_ms: u64,
    /// When it ends or ended; absent if not known.
    pub end_ms: Option<u64>,
    /// When it was completed.
    pub completed_ms: Option<u64>,
    /// Name of the worker.
    pub worker: String,
    /// Set if it was completed and the completion does not count: another claim's completion does, or the task had ended before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// Set if its completion was valid, but lost against another one. Also absent in lists, and if the answer has no room for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<Rejected>,
    /// How it ended; absent for a claim that holds, and for one that ended under a version that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_end")]
    pub end: Option<ClaimEnd>,
    /// For a claim that holds: the session of its worker, with which it ends. Absent without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskId>,
}

/// Reads the end of a claim. An outcome of a later version becomes `Other` and leaves the rest readable.
fn read_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClaimEnd>, D::Error> {
    #[derive(Deserialize)]
    struct Read {
        outcome: String,
        at_ms: u64,
        #[serde(default)]
        reason: Option<String>,
    }
    let read: Option<Read> = Deserialize::deserialize(deserializer)?;
    Ok(read.map(|Read { outcome, at_ms, reason }| {
        let known = ClaimOutcome::ALL.into_iter().find(|known| known.name() == outcome);
        ClaimEnd { outcome: known.unwrap_or(ClaimOutcome::Other), at_ms, reason }
    }))
}

/// A completion that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// Its result.
    pub result: Option<ByteBuf>,
}

/// A task as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// Task.
    pub id: TaskId,
    /// State.
    pub state: State,
    /// Spec, as enqueued or as a transaction changed it.
    pub spec: crate::request::Spec,
    /// Its claims, oldest first.
    pub claims: Vec<ClaimView>,
    /// Visible log entries.
    pub updates: Vec<LogEntry>,
    /// Result of the completion that counts.
    pub result: Option<ByteBuf>,
    /// Why the task was cancelled or died.
    pub reason: Option<String>,
    /// Some log entries are not visible (yet): an entry with a lower number is missing, or the completion counts more entries than are
    /// here.
    pub log_incomplete: bool,
    /// A client wrote two different values under one key.
    pub conflict: bool,
    /// Dependencies that have not ended yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<TaskId>,
    /// Child tasks, from its completions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TaskId>,
    /// Whether some children may not be enqueued yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub children_open: bool,
    /// For a dead task: its copy, either a dead letter or a redriven task. Two, if two operators redrove it at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redriven: Vec<TaskId>,
    /// For a join: progress of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// Version of the task, for the precondition of a transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<TaskVersion>,
    /// When the task ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Earliest time of the next claim, if in the future: after the task's delay, or after the pause behind its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<u64>,
    /// Parts that every replica that answered has lost from its disk: they are empty or absent in the other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Losses>,
}

impl TaskView {
    /// Whether the task was cancelled or given up (it has the reason), and a completion counts nevertheless: in a queue of mode `any`,
    /// that of a worker that held it then.
    pub fn was_overruled(&self) -> bool {
        self.state == State::Done && self.reason.is_some()
    }

    /// Whether a claim of this task still holds. A claim that failed, was released, or belongs to an ended task does not, although its
    /// `end_ms` may be in the future.
    pub fn runs(&self, claim: &ClaimView) -> bool {
        let is_latest = self.claims.last().is_some_and(|last| last.token == claim.token);
        self.state == State::Claimed && is_latest && claim.completed_ms.is_none()
    }
}

/// Page of a list: tasks with everything but their logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Tasks in the order of their ids.
    pub tasks: Vec<TaskView>,
    /// Where the next page begins, if there may be more.
    pub next: Option<TaskId>,
}

/// A queue's counts by state, in the order of [`State::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Queue.
    pub queue: QueueName,
    /// Tasks by state.
    pub counts: [u64; 6],
    /// Milliseconds until the queue's rate allows a claim again, as far as the leader of its coordinator partition knows; 0: now. Absent
    /// without a rate, or if that leader did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit_in_ms: Option<u64>,
}

/// Answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The node that answers.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The node's wall clock, never less than any id it has lent. If it lends none: the wall clock alone, or 0 if that is wrong.
    pub time_ms: u64,
    /// Minter field of 40 bits, lent to this session.
    pub minter: u64,
    /// Why this node lends no ids now; `minter` is meaningless then. Requests that need no new id are served nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<Error>>,
    /// The node's wall clock, if it is behind `time_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<u64>,
}

impl Welcome {
    /// Returns the node's wall clock, as far as it says so.
    pub fn wall_ms(&self) -> u64 {
        self.clock_ms.unwrap_or(self.time_ms)
    }
}

/// Founding member of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identity, drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Address where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Name in its certificate.
    pub name: String,
    /// Failure domain.
    pub zone: String,
}

/// Founding record of a cluster. A node accepts one, once, and only if it names the node's own identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Genesis {
    /// Drawn at `cluster init`.
    pub cluster: ClusterId,
    /// Name, for people.
    pub name: String,
    /// Number of partitions, a power of two.
    pub partitions: u32,
    /// Replicas of each partition.
    pub replicas: u32,
    /// Members, sorted by node id.
    pub members: Vec<Member>,
    /// Preference list of each partition, as indexes into `members`; the first is the preferred leader.
    pub assignment: Vec<Vec<u16>>,
}

/// Answer to `identify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Identity in the data directory.
    pub node: NodeId,
    /// Incarnation of its replicas.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address that it advertises.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// The cluster to which it belongs, if any.
    pub genesis: Option<Box<Genesis>>,
    /// Whether the node knows a leader of every partition of its own.
    pub serving: bool,
}

/// Status of a node's wall clock, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Standing {
    /// A majority of the nodes agrees with it.
    #[serde(rename = "G")]
    Good,
    /// No majority can be reached to compare with.
    #[default]
    #[serde(rename = "U")]
    Unknown,
    /// It differs from a majority by more than half the allowed difference: the node hands its leaderships over.
    #[serde(rename = "S")]
    Suspect,
    /// It differs by more than four fifths of it, or was just set by hand: the node leads nothing and opens no sessions.
    #[serde(rename = "F")]
    Fenced,
}

impl Standing {
    /// Returns its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Good => "good",
            Standing::Unknown => "unknown",
            Standing::Suspect => "suspect",
            Standing::Fenced => "fenced",
        }
    }
}

/// A node as another node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Node.
    pub node: NodeId,
    /// Name in its certificate.
    pub name: String,
    /// Address.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// Its lifecycle state as a member, as far as the answering node knows.
    #[serde(default)]
    pub state: Option<MemberState>,
    /// Whether the answering node heard from it within the election timeout.
    pub alive: bool,
    /// Whether it is the answering node itself.
    pub this: bool,
    /// Partitions it leads, as far as known.
    pub leads: u32,
    /// Partitions it holds a replica of.
    pub holds: u32,
    /// Status of its wall clock, by its own report.
    pub clock: Standing,
    /// Its wall clock minus the answering node's, in milliseconds, where measured.
    pub clock_offset_ms: Option<i64>,
    /// Largest error of the offset, in milliseconds.
    pub clock_error_ms: Option<u64>,
    /// Round trip in microseconds, where measured.
    pub round_trip_us: Option<u64>,
    /// Newest protocol version that it speaks, as far as the answering node can tell: at least the version in common. Absent if it was
    /// never heard.
    #[serde(default)]
    pub version: Option<u8>,
    /// Members that do not reach it, although the answering node hears it, as far as the answering node can tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreached_from: Vec<NodeId>,
}

/// A partition as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionView {
    /// Partition.
    pub partition: PartitionId,
    /// Its members, in the order of preference.
    pub cohort: Vec<NodeId>,
    /// Its leader, if known.
    pub leader: Option<NodeId>,
    /// Epoch of the leader; 0 if none is known.
    pub epoch: u64,
    /// Operations of the claim table applied here in this epoch; 0 if the replica has not heard of the epoch yet.
    pub applied: u64,
    /// Tasks held here; absent if the node holds no replica.
    pub tasks: Option<u64>,
    /// Claims that hold.
    pub claims: Option<u64>,
    /// Root of the Merkle tree over the tasks.
    pub root: Option<ByteBuf>,
    /// Whether the replica here is complete.
    pub health: Option<Health>,
    /// Tombstones held here: tasks whose retention is over and that are not forgotten yet.
    #[serde(default)]
    pub tombstones: Option<u64>,
    /// If this node leads: members whose absence has kept it from forgetting ended tasks for some time.
    #[serde(default)]
    pub held_up_by: Vec<NodeId>,
    /// Agreement of the replica here with each other one; empty if the node holds none.
    #[serde(default)]
    pub agreements: Vec<Agreement>,
    /// Next members, while the partition moves.
    #[serde(default)]
    pub next: Vec<NodeId>,
    /// Removed members that have not handed over all their facts (draining replicas).
    #[serde(default)]
    pub leaving: Vec<NodeId>,
}

/// Agreement of two replicas of a partition, as far as one of them knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The node that holds the other replica.
    pub node: NodeId,
    /// How long ago both held the same, in milliseconds; 0 if nothing changed here since. Absent if they have not agreed since the
    /// answering node started.
    pub agreed_ms: Option<u64>,
    /// Whether they differ by more than updates in flight.
    pub apart: bool,
    /// Tasks that their last comparison found to differ, at least; absent if no comparison was needed since they agreed.
    pub differing: Option<u64>,
}

/// Completeness of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Nothing is missing.
    #[serde(rename = "W")]
    Whole,
    /// It lost facts about tasks. It stores new ones, but does not count for grants, reads and strict writes until it has recovered the
    /// lost ones from its peers.
    #[serde(rename = "H")]
    Holes,
    /// It lost claims too. Until a leader has brought it up to date it does not vote either. While a majority of the cohort is
    /// recovering, the partition has no leader.
    #[serde(rename = "R")]
    Recovering,
}

impl Health {
    /// Returns its name in text.
    pub fn name(self) -> &'static str {
        match self {
            Health::Whole => "whole",
            Health::Holes => "holes",
            Health::Recovering => "recovering",
        }
    }
}

/// Summary of a node and its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Cluster.
    pub cluster: ClusterId,
    /// Name, for people.
    pub name: String,
    /// The node that answers.
    pub node: NodeId,
    /// Its incarnation counter.
    pub boot: u64,
    /// Number of members, and how many of them are alive.
    pub nodes: (u32, u32),
    /// Number of partitions, and how many of them have a leader.
    pub partitions: (u32, u32),
    /// Tasks by state, in the order of [`State::ALL`].
    pub counts: [u64; 6],
    /// Counters of this node, by name.
    pub counters: Vec<(String, u64)>,
    /// Partitions whose tasks are missing in `counts`, because no majority of their replicas could be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

crate::wire_body!(Response);

/// Answer of a node to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// To `hello`.
    Welcome(Welcome),
    /// To `enqueue` and `complete`: one per item, in order.
    Acked(Vec<Result<Acked, Error>>),
    /// To `update` and `cancel`.
    AckedOne(Acked),
    /// To `enqueue_unique`.
    AckedUnique {
        /// The task that exists now.
        acked: Acked,
        /// Whether it existed before, so that the sent task was not stored.
        existing: bool,
    },
    /// To `transact`: the added and then the changed tasks, in order; or why nothing was changed.
    Transacted(Result<Vec<(TaskId, TaskVersion)>, Box<Refusal>>),
    /// To `get` and `wait`.
    Task(Box<TaskView>),
    /// To `list`.
    Page(Page),
    /// To `count`.
    Count(u64),
    /// To `queues`.
    Queues(Vec<QueueCounts>),
    /// To `claim`. Empty `tasks` with `unavailable` 0 means that every partition was asked and there is nothing.
    Claimed {
        /// Granted tasks.
        tasks: Vec<Granted>,
        /// Partitions without a reachable leader: 0 means that the answer is complete.
        unavailable: u32,
        /// Partitions in which the claim may hold a task that the answer does not name.
        #[serde(default, skip_serializing_if = "is_zero")]
        left: u32,
    },
    /// To `renew`: per item, in order, the length of the lease, counted from when the call was first sent.
    Renewed(Vec<Result<u64, Error>>),
    /// To `release`, `fail`, `confirm` and `leave`.
    Done,
    /// To `nodes`.
    Nodes(Vec<NodeView>),
    /// To `ring` and `partitions`.
    Partitions(Vec<PartitionView>),
    /// To `status`.
    Status(Box<Status>),
    /// To `identify`.
    Identity(Box<Identity>),
    /// To `change`.
    Changed(Box<Changed>),
    /// To `cluster`.
    Cluster(Box<ClusterView>),
    /// To `schedule`.
    Scheduled {
        /// Whether it was so before, as after a repeated request.
        already: bool,
        /// The schedule after the change; a removed one, as it was before.
        view: Option<Box<ScheduleView>>,
    },
    /// To `schedules`, in the order of their names.
    Schedules(Vec<ScheduleView>),
    /// To `watch`.
    Watched(Watched),
    /// To `recover`: partitions without a majority.
    Remnants(Vec<Remnant>),
    /// To any request.
    Error(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Later {
        token: Token,
        start_ms: u64,
        end_ms: Option<u64>,
        completed_ms: Option<u64>,
        worker: String,
        end: LaterEnd,
    }

    #[derive(Serialize)]
    struct LaterEnd {
        outcome: String,
        at_ms: u64,
    }

    #[test]
    fn the_end_of_a_claim_is_read_whatever_its_outcome() {
        let names = ClaimOutcome::ALL.map(ClaimOutcome::name).into_iter().chain(["moved"]);
        let outcomes = ClaimOutcome::ALL.into_iter().chain([ClaimOutcome::Other]);
        for (name, outcome) in names.zip(outcomes) {
            let token = Token { epoch: 1, number: 2 };
            let end = LaterEnd { outcome: name.to_owned(), at_ms: 7 };
            let later = Later { token, start_ms: 5, end_ms: None, completed_ms: None, worker: "w".to_owned(), end };
            let bytes = rmp_serde::to_vec_named(&later).unwrap();
            let view: ClaimView = rmp_serde::from_slice(&bytes).unwrap();
            assert_eq!(view.end, Some(ClaimEnd { outcome, at_ms: 7, reason: None }), "{name}");
            // Encoding the view again passes on what was read.
            let again: ClaimView = rmp_serde::from_slice(&rmp_serde::to_vec_named(&view).unwrap()).unwrap();
            assert_eq!(again, view);
        }
    }
}
