//! Answers of a node.

use norn_client::session::SESSIONS_QUEUE;
use norn_wire::group::GroupView;
use norn_wire::membership::{Changed, ClusterView, Member, MemberState, QueuePolicy, Roster, Settings};
use norn_wire::response::{ClaimView, Health, NodeView, PartitionView, QueueCounts, Standing, Status};
use norn_wire::schedule::{CatchUp, Schedule, ScheduleView, When};
use norn_wire::transaction::Refusal;
use norn_wire::{
    Acked, ClusterId, Granted, Guarantee, NodeId, PartitionId, QueueName, Response, Spec, State, TaskId, TaskView,
    Token,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn id(number: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, number, 7, 3)
}

fn queue() -> QueueName {
    QueueName::new("team/mail").unwrap()
}

fn token() -> Token {
    Token { epoch: 7, number: 42 }
}

pub fn acked() -> Acked {
    Acked { id: id(1), acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}

pub fn sloppy() -> Acked {
    Acked { acks: 1, guarantee: Guarantee::Sloppy, ..acked() }
}

pub fn counts() -> QueueCounts {
    QueueCounts { queue: queue(), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: None }
}

pub fn refusal() -> Refusal {
    let [changes, deletes, depends, owned] = [1, 2, 3, 4].map(|number| vec![id(number)]);
    Refusal { changes, deletes, depends, owned, bugs: vec!["odd".into()] }
}

fn task(state: State, queue: QueueName) -> TaskView {
    TaskView {
        id: id(1),
        state,
        spec: Spec::new(queue, b"hello".to_vec()),
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

pub fn done() -> Box<TaskView> {
    Box::new(TaskView { result: Some(b"sent".to_vec().into()), ..task(State::Done, queue()) })
}

pub fn dead() -> TaskView {
    TaskView { reason: Some("timeout".into()), ..task(State::Dead, queue()) }
}

pub fn join() -> Box<TaskView> {
    let group = GroupView { total: Some(2), ended: 1, failed: 0 };
    Box::new(TaskView { id: id(9), group: Some(group), ..task(State::Waiting, queue()) })
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
    Box::new(TaskView { claims: vec![claim], ..task(State::Claimed, sessions) })
}

pub fn claimed() -> Response {
    let granted = Granted {
        id: id(1),
        token: token(),
        queue: QueueName::new(SESSIONS_QUEUE).unwrap(),
        payload: b"w".to_vec(),
        priority: 0,
        headers: Vec::new(),
        attempt: 1,
        lease_ms: 10_000,
        updates: Vec::new(),
        grouping: None,
        group: None,
    };
    Response::Claimed { tasks: vec![granted], unavailable: 0, left: 0 }
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
