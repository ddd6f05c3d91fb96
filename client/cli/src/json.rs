//! JSON for programs: one object per result. Fields keep their order and are always present, with `null` for no value. A few are left out
//! instead, such as `after_ms` and `cause` of errors, and `uncounted` of a status that counts everything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use norn_wire::error::{Cause, Error};
use norn_wire::group::{GroupView, Grouping, MemberOf};
use norn_wire::limits::CLAIMS_SHOWN_MAX;
use norn_wire::membership::MemberState;
use norn_wire::response::{
    Agreement, ClaimOutcome, ClaimView, Health, LogEntry, NodeView, PartitionView, QueueCounts, Rejected, Status,
};
use norn_wire::watch::WatchEvent;
use norn_wire::{
    Acked, ErrorCode, Granted, Guarantee, NodeId, PartitionId, QueueName, Retry, State, TaskId, TaskView, Token,
};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Display;

fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn text_if_any<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

/// Serializes headers as a map: each name once, with its first value. The library accepts several headers of one name.
fn map<S: Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut names = BTreeSet::new();
    let first: Vec<_> = pairs.iter().filter(|(name, _)| names.insert(name)).collect();
    let mut map = serializer.serialize_map(Some(first.len()))?;
    for (name, value) in first {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Bytes as `data` and `data_encoding`.
#[derive(Serialize)]
struct Data<'a> {
    data: Cow<'a, str>,
    data_encoding: &'static str,
}

fn encode(bytes: &[u8]) -> Data<'_> {
    match std::str::from_utf8(bytes) {
        Ok(data) => Data { data: data.into(), data_encoding: "utf8" },
        Err(_) => Data { data: STANDARD.encode(bytes).into(), data_encoding: "base64" },
    }
}

/// A failure.
#[derive(Serialize)]
pub struct ErrorLine<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: ErrorCode,
    message: &'a str,
    retry: Retry,
    #[serde(serialize_with = "text_if_any", skip_serializing_if = "Option::is_none")]
    id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
}

/// Formats an error, with the task's id if there is one.
pub fn error(error: &norn_wire::Error) -> ErrorLine<'_> {
    let norn_wire::Error { code, message, retry, id, after_ms, cause } = error;
    let body = ErrorBody { code: *code, message, retry: *retry, id: *id, after_ms: *after_ms, cause: *cause };
    ErrorLine { error: body }
}

/// An acknowledged write.
#[derive(Serialize)]
pub struct AckedLine {
    #[serde(serialize_with = "text")]
    id: TaskId,
    acks: u32,
    replicas: u32,
    guarantee: Guarantee,
}

/// Line of `enqueue`, `update` and `complete`.
pub fn acked(acked: &Acked) -> AckedLine {
    AckedLine { id: acked.id, acks: acked.acks, replicas: acked.replicas, guarantee: acked.guarantee }
}

/// Line of a cancellation, with the state in which the task has ended; `null` if that could not be read. The durability is `null` if
/// nothing was sent.
#[derive(Serialize)]
pub struct CancelledLine {
    #[serde(serialize_with = "text")]
    id: TaskId,
    acks: Option<u32>,
    replicas: Option<u32>,
    guarantee: Option<Guarantee>,
    state: Option<State>,
}

/// Line of `cancel`.
pub fn cancelled(id: TaskId, sent: Option<&Acked>, state: Option<State>) -> CancelledLine {
    let (acks, replicas) = (sent.map(|acked| acked.acks), sent.map(|acked| acked.replicas));
    CancelledLine { id, acks, replicas, guarantee: sent.map(|acked| acked.guarantee), state }
}

/// Line of a unique task, and whether it existed before.
#[derive(Serialize)]
pub struct UniqueLine {
    #[serde(flatten)]
    acked: AckedLine,
    existing: bool,
}

/// Line of `enqueue --unique`.
pub fn unique(one: &Acked, existing: bool) -> UniqueLine {
    UniqueLine { acked: acked(one), existing }
}

/// Line of an enqueued member of a group.
#[derive(Serialize)]
pub struct MemberAckedLine {
    #[serde(flatten)]
    acked: AckedLine,
    #[serde(serialize_with = "text")]
    group: TaskId,
}

/// Line of `enqueue --group`.
pub fn member_acked(one: &Acked, group: TaskId) -> MemberAckedLine {
    MemberAckedLine { acked: acked(one), group }
}

/// Group and number of a member.
#[derive(Serialize)]
struct MemberOfLine {
    #[serde(serialize_with = "text")]
    group: TaskId,
    number: u32,
}

fn member_of(grouping: Option<&Grouping>) -> Option<MemberOfLine> {
    let MemberOf { group, number } = grouping?.member?;
    Some(MemberOfLine { group, number })
}

/// Progress of a group.
#[derive(Serialize)]
pub struct GroupLine {
    total: Option<u32>,
    ended: u32,
    failed: u32,
}

/// Object of a join's group.
pub fn group(group: &GroupView) -> GroupLine {
    let GroupView { total, ended, failed } = *group;
    GroupLine { total, ended, failed }
}

/// Line of one member of a group; its state is absent if it was not enqueued.
#[derive(Serialize)]
pub struct MemberLine<'a> {
    number: u32,
    #[serde(serialize_with = "text")]
    id: TaskId,
    state: Option<State>,
    result: Option<Cow<'a, str>>,
    result_encoding: Option<&'static str>,
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
}

/// Line of `members`.
pub fn member(of: MemberOf, task: Option<&TaskView>) -> MemberLine<'_> {
    let (result, result_encoding) = task.map_or((None, None), result);
    let reason = task.and_then(|task| task.reason.as_deref());
    let (state, lost) = (task.map(|task| task.state), task.and_then(lost));
    MemberLine { number: of.number, id: of.id(), state, result, result_encoding, reason, lost }
}

/// Line of `watch`: it has begun, has lagged, or a number of partitions cannot be watched.
#[derive(Serialize)]
pub struct WatchLine {
    watch: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<u32>,
}

/// Line of `watch` that is not an event.
pub fn watch(watch: &'static str, partitions: Option<u32>) -> WatchLine {
    WatchLine { watch, partitions }
}

/// Event: a task reached a state.
#[derive(Serialize)]
pub struct WatchEventLine<'a> {
    #[serde(serialize_with = "text")]
    id: TaskId,
    queue: &'a QueueName,
    state: State,
    number: Option<u32>,
    result: Option<Cow<'a, str>>,
    result_encoding: Option<&'static str>,
    reason: Option<&'a str>,
}

/// Event line of `watch`.
pub fn watch_event(event: &WatchEvent) -> WatchEventLine<'_> {
    let data = event.result.as_ref().map(|result| encode(result));
    let (result, result_encoding) = data.map(|data| (data.data, data.data_encoding)).unzip();
    let (id, queue, reason) = (event.id, &event.queue, event.reason.as_deref());
    WatchEventLine { id, queue, state: event.state, number: event.number, result, result_encoding, reason }
}

/// Returns the result of a task as text, and the encoding of that.
fn result(task: &TaskView) -> (Option<Cow<'_, str>>, Option<&'static str>) {
    task.result.as_ref().map(|result| encode(result)).map(|data| (data.data, data.data_encoding)).unzip()
}

/// Claim that was released, failed or renewed.
#[derive(Serialize)]
pub struct HeldLine {
    #[serde(serialize_with = "text")]
    id: TaskId,
    #[serde(serialize_with = "text")]
    token: Token,
    #[serde(flatten)]
    lease: Option<LeaseLine>,
}

/// Lease of a claim. A program with another clock counts the length from its own call.
#[derive(Serialize)]
pub struct LeaseLine {
    /// Length of the lease in milliseconds.
    pub lease_ms: u64,
    /// End of the lease, by the clock of this machine.
    pub lease_expires_ms: u64,
}

/// Line of `renew`, with the lease, and of `fail` and `release`, without.
pub fn held(id: TaskId, token: Token, lease: Option<LeaseLine>) -> HeldLine {
    HeldLine { id, token, lease }
}

/// An entry of a log.
#[derive(Serialize)]
pub struct UpdateLine<'a> {
    #[serde(serialize_with = "text")]
    token: Token,
    sequence: u32,
    #[serde(flatten)]
    data: Data<'a>,
}

/// Entry in `log` and inside tasks.
pub fn update(entry: &LogEntry) -> UpdateLine<'_> {
    UpdateLine { token: entry.token, sequence: entry.sequence, data: encode(&entry.data) }
}

/// A task to work on.
#[derive(Serialize)]
pub struct GrantedLine<'a> {
    #[serde(serialize_with = "text")]
    id: TaskId,
    #[serde(serialize_with = "text")]
    token: Token,
    queue: &'a QueueName,
    #[serde(flatten)]
    data: Data<'a>,
    priority: i32,
    attempt: u32,
    lease_ms: u64,
    lease_expires_ms: u64,
    updates: Vec<UpdateLine<'a>>,
    #[serde(serialize_with = "map")]
    headers: &'a [(String, String)],
    member_of: Option<MemberOfLine>,
    group: Option<GroupLine>,
}

/// Line of `claim`, with the time from which leases count.
pub fn granted(task: &Granted, from_ms: u64) -> GrantedLine<'_> {
    GrantedLine {
        id: task.id,
        token: task.token,
        queue: &task.queue,
        data: encode(&task.payload),
        priority: task.priority,
        attempt: task.attempt,
        lease_ms: task.lease_ms,
        lease_expires_ms: from_ms.saturating_add(task.lease_ms),
        updates: task.updates.iter().map(update).collect(),
        headers: &task.headers,
        member_of: member_of(task.grouping.as_deref()),
        group: task.group.as_ref().map(group),
    }
}

#[derive(Serialize)]
struct ClaimLine<'a> {
    #[serde(serialize_with = "text")]
    token: Token,
    start_ms: Option<u64>,
    end_ms: Option<u64>,
    completed_ms: Option<u64>,
    worker: &'a str,
    /// Result of a completion that does not count.
    rejected: Option<RejectedLine<'a>>,
    /// Result of a completion that lost against another one.
    superseded: Option<RejectedLine<'a>>,
    /// Whether the lease holds now; otherwise `end_ms` is when it would have ended by itself.
    running: bool,
    outcome: Option<ClaimOutcome>,
    reason: Option<&'a str>,
    ended_ms: Option<u64>,
    /// Session with which the claim ends while it holds.
    #[serde(serialize_with = "text_if_any")]
    session: Option<TaskId>,
}

#[derive(Serialize)]
struct RejectedLine<'a> {
    result: Option<Cow<'a, str>>,
    result_encoding: Option<&'static str>,
}

fn rejected(rejected: &Rejected) -> RejectedLine<'_> {
    let (result, result_encoding) =
        rejected.result.as_ref().map(|result| encode(result)).map(|data| (data.data, data.data_encoding)).unzip();
    RejectedLine { result, result_encoding }
}

fn claim<'a>(task: &TaskView, claim: &'a ClaimView) -> ClaimLine<'a> {
    ClaimLine {
        token: claim.token,
        // A completion may arrive before the start of its claim.
        start_ms: (claim.start_ms > 0).then_some(claim.start_ms),
        end_ms: claim.end_ms,
        completed_ms: claim.completed_ms,
        worker: &claim.worker,
        rejected: claim.rejected.as_ref().map(rejected),
        superseded: claim.superseded.as_ref().map(rejected),
        running: task.runs(claim),
        outcome: claim.end.as_ref().map(|end| end.outcome),
        reason: claim.end.as_ref().and_then(|end| end.reason.as_deref()),
        ended_ms: claim.end.as_ref().map(|end| end.at_ms),
        session: claim.session.filter(|_| task.runs(claim)),
    }
}

/// A task.
#[derive(Serialize)]
pub struct TaskLine<'a> {
    #[serde(serialize_with = "text")]
    id: TaskId,
    queue: &'a QueueName,
    state: State,
    priority: i32,
    #[serde(flatten)]
    data: Data<'a>,
    claims: Vec<ClaimLine<'a>>,
    /// Whether as many claims are shown as are kept, so that there may have been earlier ones.
    claims_more: bool,
    updates: Vec<UpdateLine<'a>>,
    result: Option<Cow<'a, str>>,
    result_encoding: Option<&'static str>,
    reason: Option<&'a str>,
    /// Whether the task was cancelled or given up for the reason, and is done nevertheless.
    overruled: bool,
    conflict: bool,
    log_incomplete: bool,
    children: Vec<String>,
    children_open: bool,
    redriven: Vec<String>,
    #[serde(serialize_with = "map")]
    headers: &'a [(String, String)],
    not_before_ms: u64,
    max_attempts: u32,
    key: Option<&'a str>,
    after: Vec<String>,
    waits_for: Vec<String>,
    member_of: Option<MemberOfLine>,
    group: Option<GroupLine>,
    version: Option<String>,
    /// Time in its id.
    enqueued_ms: u64,
    ended_ms: Option<u64>,
    next_attempt_ms: Option<u64>,
    /// Parts that every replica that answered has lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
}

/// Line of `get`, `wait` and `list`; a list leaves the updates out.
pub fn task(task: &TaskView) -> TaskLine<'_> {
    let (result, result_encoding) = result(task);
    TaskLine {
        id: task.id,
        queue: &task.spec.queue,
        state: task.state,
        priority: task.spec.priority,
        data: encode(&task.spec.payload),
        claims: task.claims.iter().map(|one| claim(task, one)).collect(),
        claims_more: task.claims.len() >= CLAIMS_SHOWN_MAX,
        updates: task.updates.iter().map(update).collect(),
        result,
        result_encoding,
        reason: task.reason.as_deref(),
        overruled: task.was_overruled(),
        conflict: task.conflict,
        log_incomplete: task.log_incomplete,
        children: task.children.iter().map(TaskId::to_string).collect(),
        children_open: task.children_open,
        redriven: task.redriven.iter().map(TaskId::to_string).collect(),
        headers: &task.spec.headers,
        not_before_ms: task.spec.not_before_ms,
        max_attempts: task.spec.attempts_max,
        key: task.spec.key.as_deref(),
        after: task.spec.after.iter().map(TaskId::to_string).collect(),
        waits_for: task.waits_for.iter().map(TaskId::to_string).collect(),
        member_of: member_of(task.spec.grouping.as_deref()),
        group: task.group.as_ref().map(group),
        version: task.version.map(|version| version.to_string()),
        enqueued_ms: task.id.time_ms(),
        ended_ms: task.ended_ms,
        next_attempt_ms: task.next_attempt_ms,
        lost: lost(task),
    }
}

/// Returns the lost parts of a task, if any.
fn lost(task: &TaskView) -> Option<Vec<&'static str>> {
    task.lost.map(|lost| lost.names())
}

/// Number of tasks.
#[derive(Serialize)]
pub struct CountLine {
    /// Number of tasks.
    pub count: u64,
}

/// Counts by state, each under the state's name.
pub struct Counts<'a>(pub &'a [u64; 6]);

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (state, count) in State::ALL.into_iter().zip(self.0) {
            map.serialize_entry(state.name(), count)?;
        }
        map.end()
    }
}

/// A queue.
#[derive(Serialize)]
pub struct QueueLine<'a> {
    queue: &'a QueueName,
    #[serde(flatten)]
    counts: Counts<'a>,
}

/// Line of `queues`.
pub fn queue(queue: &QueueCounts) -> QueueLine<'_> {
    QueueLine { queue: &queue.queue, counts: Counts(&queue.counts) }
}

/// A node.
#[derive(Serialize)]
pub struct NodeLine<'a> {
    #[serde(serialize_with = "text")]
    node: NodeId,
    name: &'a str,
    address: &'a str,
    zone: &'a str,
    state: Option<&'static str>,
    alive: bool,
    this: bool,
    leads: u32,
    holds: u32,
    clock: &'static str,
    clock_offset_ms: Option<i64>,
    clock_error_ms: Option<u64>,
    round_trip_us: Option<u64>,
    version: Option<u8>,
    unreached_from: Vec<String>,
}

/// Line of `nodes`.
pub fn node(node: &NodeView) -> NodeLine<'_> {
    NodeLine {
        node: node.node,
        name: &node.name,
        address: &node.address,
        zone: &node.zone,
        state: node.state.map(MemberState::name),
        alive: node.alive,
        this: node.this,
        leads: node.leads,
        holds: node.holds,
        clock: node.clock.name(),
        clock_offset_ms: node.clock_offset_ms,
        clock_error_ms: node.clock_error_ms,
        round_trip_us: node.round_trip_us,
        version: node.version,
        unreached_from: ids(&node.unreached_from),
    }
}

/// Place of a partition on the ring.
#[derive(Serialize)]
pub struct RingLine {
    partition: PartitionId,
    cohort: Vec<String>,
    next: Vec<String>,
    leaving: Vec<String>,
}

/// Line of `ring`.
pub fn ring(partition: &PartitionView) -> RingLine {
    let PartitionView { partition, cohort, next, leaving, .. } = partition;
    RingLine { partition: *partition, cohort: ids(cohort), next: ids(next), leaving: ids(leaving) }
}

/// Formats ids of nodes.
pub fn ids<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> Vec<String> {
    nodes.into_iter().map(NodeId::to_string).collect()
}

/// A partition.
#[derive(Serialize)]
pub struct PartitionLine {
    partition: PartitionId,
    cohort: Vec<String>,
    #[serde(serialize_with = "text_if_any")]
    leader: Option<NodeId>,
    epoch: u64,
    applied: u64,
    tasks: Option<u64>,
    claims: Option<u64>,
    root: Option<String>,
    health: Option<&'static str>,
    tombstones: Option<u64>,
    held_up_by: Vec<String>,
    agreements: Vec<AgreementLine>,
    next: Vec<String>,
    leaving: Vec<String>,
}

/// Agreement with another replica.
#[derive(Serialize)]
struct AgreementLine {
    #[serde(serialize_with = "text")]
    node: NodeId,
    agreed_ms_ago: Option<u64>,
    apart: bool,
    differing: Option<u64>,
}

/// Line of `partitions`.
pub fn partition(partition: &PartitionView) -> PartitionLine {
    PartitionLine {
        partition: partition.partition,
        cohort: ids(&partition.cohort),
        leader: partition.leader,
        epoch: partition.epoch,
        applied: partition.applied,
        tasks: partition.tasks,
        claims: partition.claims,
        root: partition.root.as_ref().map(|root| hexadecimal(root)),
        health: partition.health.map(Health::name),
        tombstones: partition.tombstones,
        held_up_by: ids(&partition.held_up_by),
        agreements: partition.agreements.iter().map(agreement).collect(),
        next: ids(&partition.next),
        leaving: ids(&partition.leaving),
    }
}

fn agreement(agreement: &Agreement) -> AgreementLine {
    let Agreement { node, agreed_ms, apart, differing } = *agreement;
    AgreementLine { node, agreed_ms_ago: agreed_ms, apart, differing }
}

/// Formats bytes in hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize)]
struct Share {
    total: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    led: Option<u32>,
}

struct Counters<'a>(&'a [(String, u64)]);

impl Serialize for Counters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Summary of a node and its cluster.
#[derive(Serialize)]
pub struct StatusLine<'a> {
    #[serde(serialize_with = "text")]
    cluster: norn_wire::ClusterId,
    name: &'a str,
    #[serde(serialize_with = "text")]
    node: NodeId,
    boot: u64,
    nodes: Share,
    partitions: Share,
    counts: Counts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncounted: Option<u32>,
    counters: Counters<'a>,
}

/// Line of `status`.
pub fn status(status: &Status) -> StatusLine<'_> {
    StatusLine {
        cluster: status.cluster,
        name: &status.name,
        node: status.node,
        boot: status.boot,
        nodes: Share { total: status.nodes.0, alive: Some(status.nodes.1), led: None },
        partitions: Share { total: status.partitions.0, alive: None, led: Some(status.partitions.1) },
        counts: Counts(&status.counts),
        uncounted: Some(status.uncounted).filter(|uncounted| *uncounted > 0),
        counters: Counters(&status.counters),
    }
}

/// Counters of one member, or why it does not report them.
#[derive(Serialize)]
pub struct NodeCounters<'a> {
    name: &'a str,
    address: &'a str,
    #[serde(serialize_with = "text")]
    node: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<Counters<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Line of one member's counters.
pub fn node_counters<'a>(member: &'a NodeView, answer: &'a Result<Status, Error>) -> NodeCounters<'a> {
    NodeCounters {
        name: &member.name,
        address: &member.address,
        node: member.node,
        counters: answer.as_ref().ok().map(|status| Counters(&status.counters)),
        error: answer.as_ref().err().map(|error| error.message.as_str()),
    }
}
