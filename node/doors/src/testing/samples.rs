//! What a node tells: tasks, claims, a cluster.

use norn_client::session::SESSIONS_QUEUE;
use norn_wire::group::GroupView;
use norn_wire::membership::{Changed, ClusterView, Member, MemberState, Membership, QueuePolicy, Roster, Settings};
use norn_wire::response::{
    ClaimView, Genesis, Health, Identity, LogEntry, NodeView, PartitionView, QueueCounts, Standing, Status,
};
use norn_wire::schedule::{CatchUp, Schedule, ScheduleView, When};
use norn_wire::transaction::Refusal;
use norn_wire::watch::{WatchCursor, WatchEvent, WatchPlace, Watched};
use norn_wire::{
    Acked, ClusterId, Error, ErrorCode, Granted, Guarantee, NodeId, PartitionId, QueueName, Response, Spec, State,
    TaskId, TaskView, Token,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time in the ids.
pub const TIME_MS: u64 = 1_800_000_000_000;
/// Text of the first task's id.
pub const ONE: &str = "000038rrbh800000000g0000003g0009";

pub fn id(number: u32) -> TaskId {
    TaskId::new(TIME_MS, number, 7, 9)
}

pub fn queue() -> QueueName {
    QueueName::new("team/mail").unwrap()
}

pub fn token() -> Token {
    Token { epoch: 2, number: 1 }
}

pub fn error(code: ErrorCode) -> Error {
    Error::new(code, "as scripted")
}

pub fn acked(number: u32) -> Acked {
    Acked { id: id(number), acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}

pub fn sloppy(number: u32) -> Acked {
    Acked { acks: 1, guarantee: Guarantee::Sloppy, ..acked(number) }
}

pub fn counts() -> QueueCounts {
    QueueCounts { queue: queue(), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: None }
}

pub fn refusal() -> Refusal {
    let [changes, deletes, depends, owned] = [1, 2, 3, 4].map(|number| vec![id(number)]);
    Refusal { changes, deletes, depends, owned, bugs: vec!["odd".into()] }
}

/// A task without a past.
pub fn new_task(id: TaskId, state: State, spec: Spec) -> TaskView {
    TaskView {
        id,
        state,
        spec,
        claims: Vec::new(),
        updates: Vec::new(),
        result: None,
        reason: None,
        log_incomplete: false,
        conflict: false,
        waits_for: Vec::new(),
        children: Vec::new(),
        children_open: false,
        redriven: Vec::new(),
        group: None,
        version: None,
        ended_ms: None,
        next_attempt_ms: None,
        lost: None,
    }
}

/// A task with a header and a log, and what its state brings with it.
pub fn task(number: u32, state: State) -> TaskView {
    let mut spec = Spec::new(queue(), b"hello".to_vec());
    spec.headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    TaskView {
        updates: vec![LogEntry { token: token(), sequence: 0, data: b"half".to_vec() }],
        result: (state == State::Done).then(|| b"sent".to_vec().into()),
        reason: (state == State::Dead).then(|| "timeout".into()),
        ..new_task(id(number), state, spec)
    }
}

/// The answer to who asks for a task.
pub fn told(number: u32, state: State) -> Response {
    Response::Task(Box::new(task(number, state)))
}

pub fn join() -> Box<TaskView> {
    let group = GroupView { total: Some(2), ended: 1, failed: 0 };
    Box::new(TaskView { group: Some(group), ..task(9, State::Waiting) })
}

pub fn session() -> Box<TaskView> {
    let claim = ClaimView {
        token: token(),
        start_ms: 10,
        end_ms: Some(20),
        completed_ms: None,
        worker: "w".into(),
        rejected: None,
        superseded: None,
        end: None,
        session: None,
    };
    let sessions = QueueName::new(SESSIONS_QUEUE).unwrap();
    let spec = Spec::new(sessions, b"w".to_vec());
    Box::new(TaskView { claims: vec![claim], ..new_task(id(1), State::Claimed, spec) })
}

pub fn granted() -> Granted {
    Granted {
        id: id(1),
        token: token(),
        queue: queue(),
        payload: b"hello".to_vec(),
        priority: 5,
        headers: Vec::new(),
        attempt: 1,
        lease_ms: 30_000,
        updates: Vec::new(),
        grouping: None,
        group: None,
    }
}

pub fn claimed(tasks: Vec<Granted>, unavailable: u32) -> Response {
    Response::Claimed { tasks, unavailable, left: 0 }
}

/// The grant of a session.
pub fn session_granted() -> Response {
    let queue = QueueName::new(SESSIONS_QUEUE).unwrap();
    claimed(vec![Granted { queue, payload: b"w".to_vec(), lease_ms: 10_000, ..granted() }], 0)
}

pub fn schedule() -> ScheduleView {
    let when = When::Cron { expression: "30 2 * * *".into(), zone: "UTC".into() };
    let (payload, catch_up) = (b"all".to_vec(), CatchUp::Last);
    ScheduleView {
        name: "nightly".into(),
        schedule: Arc::new(Schedule { when, queue: queue(), payload, priority: 1, attempts_max: 0, catch_up }),
        number: 1,
        paused: false,
        since_ms: 5,
        through_ms: 6,
        next_ms: vec![7, 8],
        pending: 0,
        fired: 10,
        missed: 0,
        unsure: 0,
        last: None,
    }
}

fn view() -> Box<ClusterView> {
    let member = Member {
        node: NodeId(1),
        incarnation: 1,
        name: "n1".into(),
        address: "127.0.0.1:7400".into(),
        zone: "a".into(),
        weight: 1,
        state: MemberState::Up,
    };
    let policy = QueuePolicy { attempts_max: Some(5), ..QueuePolicy::default() };
    let roster =
        Roster { version: 4, members: BTreeMap::from([(1, member)]), policies: BTreeMap::from([(queue(), policy)]) };
    Box::new(ClusterView {
        cluster: ClusterId(9),
        name: "prod".into(),
        roster,
        voters: vec![NodeId(1)],
        leader: NodeId(1),
        heard: vec![NodeId(1)],
        replicas: 3,
        settings: Settings { heal_after_ms: None, moves_at_once: 4, moves_at_once_each: 1 },
        layout: 2,
        stale: false,
        shares: BTreeMap::new(),
        moving: Vec::new(),
        open: 1,
        unknown: 0,
    })
}

pub fn cluster() -> Response {
    Response::Cluster(view())
}

pub fn changed() -> Response {
    Response::Changed(Box::new(Changed { already: false, version: 5, view: view(), membership: None }))
}

/// A change that makes a node a member.
pub fn changed_with_newcomer() -> Response {
    let membership = Membership { genesis: genesis(), roster: view().roster };
    let membership = Some(Box::new(membership));
    Response::Changed(Box::new(Changed { already: false, version: 5, view: view(), membership }))
}

/// A node that waits to become a member.
pub fn newcomer() -> Identity {
    Identity { node: NodeId(4), name: "n4".to_owned(), ..outsider() }
}

pub fn status() -> Status {
    Status {
        cluster: ClusterId(9),
        name: "prod".into(),
        node: NodeId(1),
        boot: 3,
        nodes: (3, 2),
        partitions: (256, 255),
        counts: [1, 2, 3, 4, 5, 6],
        counters: vec![("claim".into(), 7)],
        uncounted: 0,
    }
}

pub fn partition() -> PartitionView {
    PartitionView {
        partition: PartitionId(12),
        cohort: vec![NodeId(1), NodeId(2)],
        leader: Some(NodeId(1)),
        epoch: 7,
        applied: 100,
        tasks: Some(5),
        claims: Some(1),
        root: Some(vec![0x0a, 0xff].into()),
        health: Some(Health::Whole),
        tombstones: Some(2),
        held_up_by: Vec::new(),
        agreements: Vec::new(),
        next: vec![NodeId(2), NodeId(3)],
        leaving: Vec::new(),
    }
}

pub fn node() -> NodeView {
    NodeView {
        node: NodeId(1),
        name: "n1".into(),
        address: "127.0.0.1:7400".into(),
        zone: "a".into(),
        state: Some(MemberState::Up),
        alive: true,
        this: true,
        leads: 8,
        holds: 24,
        clock: Standing::Good,
        clock_offset_ms: None,
        clock_error_ms: None,
        round_trip_us: None,
        version: Some(3),
        unreached_from: Vec::new(),
    }
}

/// The first answer to a watch.
pub fn watched() -> Response {
    let place = WatchPlace { node: NodeId(1), start: 1, number: 1, whole: vec![3].into() };
    let cursor = WatchCursor { places: vec![place] };
    let event = WatchEvent { id: id(1), queue: queue(), state: State::Ready, number: None, result: None, reason: None };
    Response::Watched(Watched { events: vec![event], cursor, lagged: false, silent: 0 })
}

/// A node of a cluster.
pub fn identity(serving: bool) -> Identity {
    Identity { genesis: Some(Box::new(genesis())), serving, ..outsider() }
}

fn genesis() -> Genesis {
    Genesis {
        cluster: ClusterId(7),
        name: "test".to_owned(),
        partitions: 1,
        replicas: 1,
        members: Vec::new(),
        assignment: Vec::new(),
    }
}

/// A node without a cluster.
pub fn outsider() -> Identity {
    Identity {
        node: NodeId(1),
        incarnation: 1,
        name: "n1".to_owned(),
        address: "a:1".to_owned(),
        zone: String::new(),
        genesis: None,
        serving: false,
    }
}
