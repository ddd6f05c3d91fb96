//! What a node answers.

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

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Delayed.
    Waiting,
    /// Claimable.
    Ready,
    /// Held by a worker.
    Claimed,
    /// Completed.
    Done,
    /// Given up or invalid.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl State {
    /// All of them, in the order of a task's life.
    pub const ALL: [State; 6] =
        [State::Waiting, State::Ready, State::Claimed, State::Done, State::Dead, State::Cancelled];

    /// Its name on the wire and in text.
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

/// What an acknowledged write may count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// On the disks of a majority of the cohort.
    Strict,
    /// On as many disks as are named, and on fewer than that. Reads, lists and claims need not see it yet.
    Sloppy,
}

/// An acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acked {
    /// Task.
    pub id: TaskId,
    /// Nodes that had it on disk when the answer was given: replicas of the partition, or, where none of these could be
    /// reached and one disk was asked for, the node that keeps it for them.
    pub acks: u32,
    /// Replicas of the partition.
    pub replicas: u32,
    /// What was reached.
    pub guarantee: Guarantee,
}

/// A task handed to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Task.
    pub id: TaskId,
    /// Fencing token: goes with every later call and, where possible, with every outside effect.
    pub token: Token,
    /// Queue.
    pub queue: QueueName,
    /// Opaque bytes.
    #[serde(with = "serde_bytes")]
    pub payload: Vec<u8>,
    /// Priority.
    pub priority: i32,
    /// As enqueued.
    pub headers: Vec<(String, String)>,
    /// Attempts so far: claims that failed or ran out, and this one. A claim that was handed back is no attempt.
    pub attempt: u32,
    /// Length of the lease. Counts from when the call was first sent.
    pub lease_ms: u64,
    /// Visible log entries of all claims, in the order of token and sequence, as far as the leader has heard of them: one that was
    /// away just then may lack the latest, which a [read](super::Request::Get) asks a majority for.
    pub updates: Vec<LogEntry>,
    /// What it has to do with groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grouping: Option<Box<Grouping>>,
    /// Of a join: how its group has ended.
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

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimOutcome {
    /// Its completion is the one that counts.
    Done,
    /// Its worker said that the attempt failed.
    Failed,
    /// Its lease ran out, or its session did.
    Expired,
    /// It was given back, which is no attempt.
    Released,
    /// The task ended without it: by another completion, or by a cancellation.
    Superseded,
    /// Its worker said that the task is invalid.
    GivenUp,
    /// Of a later version, in an answer. What a node stores it knows, or refuses to read.
    #[serde(skip_deserializing)]
    Other,
}

impl ClaimOutcome {
    /// All that this version knows.
    pub const ALL: [ClaimOutcome; 6] = [
        ClaimOutcome::Done,
        ClaimOutcome::Failed,
        ClaimOutcome::Expired,
        ClaimOutcome::Released,
        ClaimOutcome::Superseded,
        ClaimOutcome::GivenUp,
    ];

    /// Its name on the wire and in JSON.
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

/// How a claim ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimEnd {
    /// What became of it.
    pub outcome: ClaimOutcome,
    /// When: the end of the lease of a claim that expired, otherwise when it was said.
    pub at_ms: u64,
    /// Why: as its worker put it, or the cluster where its session ended. The end of a long reason is cut off, and of a task with many
    /// claims the older reasons are, which `… (cut)` in their place says.
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
    /// When it ends or ended; absent where that is not known.
    pub end_ms: Option<u64>,
    /// When it was completed.
    pub completed_ms: Option<u64>,
    /// Who worked.
    pub worker: String,
    /// It was completed, and that does not count: another one's completion does, or the task's end came before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// It was completed under a token whose completions count, and another one stands over it. Absent also in lists, and
    /// where there is no room for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<Rejected>,
    /// How it ended; absent of a claim that holds, and of one that ended under a version that did not keep this.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "read_end")]
    pub end: Option<ClaimEnd>,
    /// Of a claim that holds: the session of its worker, with which it ends. Absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<TaskId>,
}

/// How a claim ended, for a reader: an outcome of a later version makes nothing else unreadable.
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
    /// Where it stands.
    pub state: State,
    /// What was enqueued.
    pub spec: crate::request::Spec,
    /// Its claims, oldest first.
    pub claims: Vec<ClaimView>,
    /// Visible log entries.
    pub updates: Vec<LogEntry>,
    /// Result of the completion that counts.
    pub result: Option<ByteBuf>,
    /// Why it was cancelled or died.
    pub reason: Option<String>,
    /// Log entries are not visible (yet): one with a lower number is missing, or the completion says that more came before it.
    pub log_incomplete: bool,
    /// A client wrote two different values under one key.
    pub conflict: bool,
    /// Of the tasks that it waits for, those that it still waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<TaskId>,
    /// Tasks that its completions brought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TaskId>,
    /// Some of them may not be enqueued yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub children_open: bool,
    /// Of a dead task: its copy, a letter or what an operator had enqueued again. Two, if two operators did so at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redriven: Vec<TaskId>,
    /// Of a join: how far its group is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// What it is like now, for a transaction that is to find it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<TaskVersion>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// When it may be claimed next, if that is later: after its delay, or after the pause behind its last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_ms: Option<u64>,
    /// What of it every replica that answered has lost from its disk: it is empty, or absent, in the rest of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Losses>,
}

impl TaskView {
    /// Whether it was cancelled or given up, for its reason, and a completion counts all the same: in a queue of mode `any` that
    /// of a worker that held it then.
    pub fn was_overruled(&self) -> bool {
        self.state == State::Done && self.reason.is_some()
    }

    /// Whether a claim of this task holds: a lease that failed, was given back, or belongs to a task that has ended does not,
    /// though its `end_ms` may lie ahead.
    pub fn runs(&self, claim: &ClaimView) -> bool {
        let is_latest = self.claims.last().is_some_and(|last| last.token == claim.token);
        self.state == State::Claimed && is_latest && claim.completed_ms.is_none()
    }
}

/// A task in a list: everything but its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// In the order of their ids.
    pub tasks: Vec<TaskView>,
    /// Ask on with this, if there may be more.
    pub next: Option<TaskId>,
}

/// A queue's counts by state, in the order of [`State::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Queue.
    pub queue: QueueName,
    /// Tasks by state.
    pub counts: [u64; 6],
    /// In so many milliseconds the queue's rate allows a claim again, as far as the leader of its home knows; 0: now. Absent where
    /// there is no rate, or that leader was not heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permit_in_ms: Option<u64>,
}

/// What `hello` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The node's wall clock, never less than any id it has lent. Where it lends none: the wall clock alone, or 0 if that is wrong.
    pub time_ms: u64,
    /// The 40-bit minter field lent to this session.
    pub minter: u64,
    /// Why this node lends no ids now: `minter` stands for nothing then. What needs no new id is served all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<Error>>,
    /// The node's wall clock, where it is behind `time_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<u64>,
}

impl Welcome {
    /// What the node's wall clock shows, as far as it says so.
    pub fn wall_ms(&self) -> u64 {
        self.clock_ms.unwrap_or(self.time_ms)
    }
}

/// A member at genesis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Identity drawn by the node.
    pub node: NodeId,
    /// Incarnation of its replicas, drawn by the node.
    pub incarnation: u64,
    /// Where peers and clients reach it: `HOST:PORT`.
    pub address: String,
    /// Name in its certificate.
    pub name: String,
    /// Failure domain.
    pub zone: String,
}

/// The record that founds a cluster. A node accepts one, once, and only if it names the node's own identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Genesis {
    /// Drawn at `cluster init`.
    pub cluster: ClusterId,
    /// For people.
    pub name: String,
    /// Number of partitions, a power of two.
    pub partitions: u32,
    /// Replicas of each partition.
    pub replicas: u32,
    /// Members, sorted by node id.
    pub members: Vec<Member>,
    /// For each partition its preference list, as places in `members`; the first is the preferred leader.
    pub assignment: Vec<Vec<u16>>,
}

/// What `identify` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Identity in the data directory.
    pub node: NodeId,
    /// Incarnation of its replicas.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address it advertises.
    pub address: String,
    /// Failure domain.
    pub zone: String,
    /// The cluster it belongs to, if any.
    pub genesis: Option<Box<Genesis>>,
    /// Whether every partition of this node has a leader that it knows.
    pub serving: bool,
}

/// How a node's wall clock stands, from the best to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Standing {
    /// A majority of the nodes agrees with it.
    #[serde(rename = "G")]
    Good,
    /// No majority is there to compare with.
    #[default]
    #[serde(rename = "U")]
    Unknown,
    /// More than half the allowed difference away from a majority: it hands its leaderships over.
    #[serde(rename = "S")]
    Suspect,
    /// More than four fifths of it away, or just changed by hand: it leads nothing and opens no sessions.
    #[serde(rename = "F")]
    Fenced,
}

impl Standing {
    /// As people and programs read it.
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
    /// How far it has come as a member, as far as the answering node knows.
    #[serde(default)]
    pub state: Option<MemberState>,
    /// Heard from within the election timeout.
    pub alive: bool,
    /// The node that answers.
    pub this: bool,
    /// Partitions it leads, as far as known.
    pub leads: u32,
    /// Partitions it holds a replica of.
    pub holds: u32,
    /// How its wall clock stands, by its own word.
    pub clock: Standing,
    /// Its wall clock minus the answering node's, in milliseconds, where measured.
    pub clock_offset_ms: Option<i64>,
    /// The greatest error of that, in milliseconds.
    pub clock_error_ms: Option<u64>,
    /// Round trip in microseconds, where measured.
    pub round_trip_us: Option<u64>,
    /// The newest protocol version that it speaks, as far as the answering node can tell: at least the one of both. Absent where it has
    /// not been heard.
    #[serde(default)]
    pub version: Option<u8>,
    /// Members that do not reach it, though it is heard, as far as the answering node can tell.
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
    /// Epoch of that leader; 0 if none is known.
    pub epoch: u64,
    /// Operations of the consistent half applied here in this epoch; 0 if the replica here has not heard of it yet.
    pub applied: u64,
    /// Tasks held here; absent if the node holds no replica.
    pub tasks: Option<u64>,
    /// Claims held.
    pub claims: Option<u64>,
    /// Root of the hash tree over the tasks.
    pub root: Option<ByteBuf>,
    /// Whether the replica here is whole.
    pub health: Option<Health>,
    /// Tombstones held here: of tasks whose retention is over, and which are not forgotten yet.
    #[serde(default)]
    pub tombstones: Option<u64>,
    /// If this node leads: members without which it cannot forget finished tasks, for some time already.
    #[serde(default)]
    pub held_up_by: Vec<NodeId>,
    /// How near the replica here is to each other one; empty if the node holds none.
    #[serde(default)]
    pub agreements: Vec<Agreement>,
    /// Nodes that shall be the members, while the partition moves.
    #[serde(default)]
    pub next: Vec<NodeId>,
    /// Nodes that are no members any more, and have not handed over all they have.
    #[serde(default)]
    pub leaving: Vec<NodeId>,
}

/// How near two replicas of a partition are, as far as one of them knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The node that holds the other one.
    pub node: NodeId,
    /// How long ago both held the same, in milliseconds: 0 if nothing changed here since. Absent if they have not agreed
    /// since the answering node started.
    pub agreed_ms: Option<u64>,
    /// They differ, and not just by what is on its way.
    pub apart: bool,
    /// Tasks that the last comparison of both found to differ, at least, if any was needed since they agreed.
    pub differing: Option<u64>,
}

/// What is missing of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Nothing.
    #[serde(rename = "W")]
    Whole,
    /// It lost facts about tasks: it stores what it is told, but does not count for grants, reads and strict writes until it
    /// has learned them again from others.
    #[serde(rename = "H")]
    Holes,
    /// It lost claims, too: until a leader has brought it up to date it does not vote either. Where a majority of the cohort
    /// is recovering, the partition has no leader.
    #[serde(rename = "R")]
    Recovering,
}

impl Health {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Health::Whole => "whole",
            Health::Holes => "holes",
            Health::Recovering => "recovering",
        }
    }
}

/// A node and its cluster in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Cluster.
    pub cluster: ClusterId,
    /// For people.
    pub name: String,
    /// The node that answers.
    pub node: NodeId,
    /// Its start counter.
    pub boot: u64,
    /// Members, and how many of them are alive.
    pub nodes: (u32, u32),
    /// Partitions, and how many of them have a leader.
    pub partitions: (u32, u32),
    /// Tasks by state, in the order of [`State::ALL`].
    pub counts: [u64; 6],
    /// Counters of this node, by name.
    pub counters: Vec<(String, u64)>,
    /// Partitions whose tasks are missing in `counts`, as no majority of their replicas could be read.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncounted: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

crate::wire_body!(Response);

/// What a node answers to a request.
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
        /// The task that there is.
        acked: Acked,
        /// It is another one than that which was sent.
        existing: bool,
    },
    /// To `transact`: what was added and then what was changed, in order; or why nothing was changed.
    Transacted(Result<Vec<(TaskId, TaskVersion)>, Box<Refusal>>),
    /// To `get` and `wait`.
    Task(Box<TaskView>),
    /// To `list`.
    Page(Page),
    /// To `count`.
    Count(u64),
    /// To `queues`.
    Queues(Vec<QueueCounts>),
    /// To `claim`; empty means that every reachable node was asked and there is nothing.
    Claimed {
        /// The tasks.
        tasks: Vec<Granted>,
        /// Partitions without a leader that could be asked: 0 means the answer is complete.
        unavailable: u32,
        /// Partitions in which the claim may hold a task that is not in the answer.
        #[serde(default, skip_serializing_if = "is_zero")]
        left: u32,
    },
    /// To `renew`: one per item, in order; the length of the lease, which counts from when the call was first sent.
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
        /// It was so before, as after a request that is repeated.
        already: bool,
        /// The schedule as it is then, or as it was when it was removed.
        view: Option<Box<ScheduleView>>,
    },
    /// To `schedules`, in the order of their names.
    Schedules(Vec<ScheduleView>),
    /// To `watch`.
    Watched(Watched),
    /// To `recover`: what has no majority.
    Remnants(Vec<Remnant>),
    /// To anything.
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
            // What passes it on passes on what can be read.
            let again: ClaimView = rmp_serde::from_slice(&rmp_serde::to_vec_named(&view).unwrap()).unwrap();
            assert_eq!(again, view);
        }
    }
}
