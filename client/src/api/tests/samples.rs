//! Answers of nodes with every field set, and with none.

use crate::api;
use norn_wire::error::Cause;
use norn_wire::group::{GroupView, Grouping, MemberOf};
use norn_wire::membership::{Backoff, FailedDependency, KeyConcurrency, MemberState, Mode, Order, QueuePolicy, Rate};
use norn_wire::response::{
    Agreement, ClaimEnd, ClaimOutcome, ClaimView, Health, LogEntry, Losses, NodeView, PartitionView, QueueCounts,
    Rejected, Standing, Status,
};
use norn_wire::schedule::{CatchUp, Fired, Schedule, ScheduleView, When};
use norn_wire::transaction::Refusal;
use norn_wire::watch::WatchEvent;
use norn_wire::{
    Acked, ClusterId, Error, ErrorCode, Granted, Guarantee, NodeId, PartitionId, QueueName, Spec, State, TaskId,
    TaskVersion, TaskView, Token,
};
use std::sync::Arc;

/// Bytes that are no UTF-8.
const BINARY: [u8; 2] = [0xff, 0x00];

pub fn id(number: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, number, 7, 3)
}

pub fn token(number: u64) -> Token {
    Token { epoch: 7, number }
}

pub fn queue() -> QueueName {
    QueueName::new("team/mail").expect("a good name")
}

pub fn node(number: u128) -> NodeId {
    NodeId(number)
}

pub fn acked() -> Acked {
    Acked { id: id(1), acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}

pub fn error() -> Error {
    Error::new(ErrorCode::Unknown, "no answer in time").about(id(1)).after(250).because(Cause::Unreached)
}

pub fn short_error() -> Error {
    Error::new(ErrorCode::Invalid, "a \"bad\" name")
}

pub fn refusal() -> Refusal {
    let [changes, deletes, depends, owned] = [1, 2, 3, 4].map(|number| vec![id(number)]);
    Refusal { changes, deletes, depends, owned, bugs: vec!["odd".into()] }
}

pub fn group() -> GroupView {
    GroupView { total: Some(10), ended: 4, failed: 1 }
}

fn headers() -> Vec<(String, String)> {
    [("trace", "7f3a"), ("a", "1"), ("trace", "second")].map(|(name, value)| (name.into(), value.into())).into()
}

fn grouping() -> Grouping {
    Grouping { member: Some(member()), join: None }
}

pub fn member() -> MemberOf {
    MemberOf { group: id(9), number: 2 }
}

fn updates() -> Vec<LogEntry> {
    let entry = |sequence, data: &[u8]| LogEntry { token: token(42), sequence, data: data.into() };
    vec![entry(0, b"half"), entry(1, &BINARY)]
}

pub fn granted() -> Granted {
    Granted {
        id: id(1),
        token: token(42),
        queue: queue(),
        payload: "héllo".into(),
        priority: -5,
        headers: headers(),
        attempt: 2,
        lease_ms: 30_000,
        updates: updates(),
        grouping: Some(Box::new(grouping())),
        group: Some(group()),
    }
}

pub fn short_granted() -> Granted {
    let (updates, headers) = (Vec::new(), Vec::new());
    Granted { payload: BINARY.into(), updates, headers, grouping: None, group: None, ..granted() }
}

fn rejected(result: Option<&[u8]>) -> Rejected {
    Rejected { result: result.map(|result| result.to_vec().into()) }
}

fn claims() -> Vec<ClaimView> {
    let claim = |number| ClaimView {
        token: token(number),
        start_ms: 10,
        end_ms: Some(20),
        completed_ms: None,
        worker: "host-1".into(),
        rejected: None,
        superseded: None,
        end: None,
        session: None,
    };
    let end = |outcome, reason: Option<&str>| Some(ClaimEnd { outcome, at_ms: 15, reason: reason.map(str::to_owned) });
    vec![
        ClaimView {
            start_ms: 0,
            end_ms: None,
            rejected: Some(rejected(Some(b"no"))),
            completed_ms: Some(14),
            ..claim(1)
        },
        ClaimView {
            superseded: Some(rejected(Some(&BINARY))),
            end: end(ClaimOutcome::Failed, Some("busy")),
            ..claim(2)
        },
        ClaimView { rejected: Some(rejected(None)), end: end(ClaimOutcome::Other, None), ..claim(3) },
        ClaimView { session: Some(id(8)), ..claim(42) },
    ]
}

pub fn task() -> TaskView {
    TaskView {
        id: id(1),
        state: State::Claimed,
        spec: Spec {
            queue: queue(),
            payload: b"hello".to_vec(),
            priority: 5,
            not_before_ms: 6,
            headers: headers(),
            attempts_max: 3,
            after: vec![id(2), id(3)],
            key: Some("user-1".into()),
            grouping: Some(Box::new(grouping())),
            revision: None,
        },
        claims: claims(),
        updates: updates(),
        result: Some(b"sent".to_vec().into()),
        reason: Some("cancelled by hand".into()),
        log_incomplete: true,
        conflict: true,
        waits_for: vec![id(3)],
        children: vec![id(4)],
        children_open: true,
        redriven: vec![id(5)],
        group: Some(group()),
        version: Some(TaskVersion(255)),
        ended_ms: Some(30),
        next_attempt_ms: Some(40),
        lost: Some(Losses { payload: true, result: false, rejected: false, log: true }),
    }
}

pub fn short_task() -> TaskView {
    TaskView {
        id: id(1),
        state: State::Ready,
        spec: Spec {
            queue: QueueName::new("mail").expect("a good name"),
            payload: BINARY.into(),
            priority: 0,
            not_before_ms: 0,
            headers: Vec::new(),
            attempts_max: 0,
            after: Vec::new(),
            key: None,
            grouping: None,
            revision: None,
        },
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

pub fn event() -> WatchEvent {
    let (result, reason) = (Some(b"sent".to_vec().into()), Some("late".into()));
    WatchEvent { id: id(1), queue: queue(), state: State::Done, number: Some(2), result, reason }
}

pub fn short_event() -> WatchEvent {
    WatchEvent { number: None, result: None, reason: None, ..event() }
}

pub fn counts() -> QueueCounts {
    QueueCounts { queue: queue(), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: Some(9) }
}

pub fn node_view() -> NodeView {
    NodeView {
        node: node(1),
        name: "n1".into(),
        address: "127.0.0.1:7400".into(),
        zone: "a".into(),
        state: Some(MemberState::Up),
        alive: true,
        this: true,
        leads: 8,
        holds: 24,
        clock: Standing::Good,
        clock_offset_ms: Some(-3),
        clock_error_ms: Some(2),
        round_trip_us: Some(180),
        version: Some(4),
        unreached_from: vec![node(2)],
    }
}

pub fn short_node_view() -> NodeView {
    NodeView {
        state: None,
        clock: Standing::Unknown,
        clock_offset_ms: None,
        clock_error_ms: None,
        round_trip_us: None,
        version: None,
        unreached_from: Vec::new(),
        ..node_view()
    }
}

pub fn partition() -> PartitionView {
    let agreement = |agreed_ms, differing| Agreement { node: node(2), agreed_ms, apart: true, differing };
    PartitionView {
        partition: PartitionId(12),
        cohort: vec![node(1), node(2)],
        leader: Some(node(1)),
        epoch: 7,
        applied: 100,
        tasks: Some(5),
        claims: Some(1),
        root: Some(vec![0x0a, 0xff].into()),
        health: Some(Health::Whole),
        tombstones: Some(2),
        held_up_by: vec![node(3)],
        agreements: vec![agreement(Some(10), Some(1)), agreement(None, None)],
        next: vec![node(2), node(3)],
        leaving: vec![node(4)],
    }
}

pub fn short_partition() -> PartitionView {
    PartitionView {
        partition: PartitionId::METADATA,
        leader: None,
        tasks: None,
        claims: None,
        root: None,
        health: None,
        tombstones: None,
        held_up_by: Vec::new(),
        agreements: Vec::new(),
        next: Vec::new(),
        leaving: Vec::new(),
        ..partition()
    }
}

pub fn status() -> Status {
    Status {
        cluster: ClusterId(9),
        name: "prod".into(),
        node: node(1),
        boot: 3,
        nodes: (3, 2),
        partitions: (256, 255),
        counts: [1, 2, 3, 4, 5, 6],
        counters: vec![("syncs".into(), 12), ("claim".into(), 7)],
        uncounted: 1,
    }
}

pub fn policy() -> QueuePolicy {
    QueuePolicy {
        paused: true,
        attempts_max: Some(5),
        failed_dependency: FailedDependency::Skip,
        lease_ms: Some(1),
        lease_ms_max: Some(2),
        backoff: Some(Backoff { first_ms: 1, most_ms: 2, jitter_percent: 3 }),
        retention_ms: Some(4),
        order: Order::Fair,
        mode: Mode::Holder,
        dead_letter: Some(queue()),
        tasks_max: Some(6),
        bytes_max: Some(7),
        ageing_ms: Some(8),
        rate: Some(Rate { claims: 100, per_ms: 1_000 }),
        concurrency: Some(9),
        key_concurrency: KeyConcurrency::Most(10),
    }
}

fn schedule_of(when: When, attempts_max: u32, last: Option<Fired>) -> ScheduleView {
    let (payload, catch_up) = (b"all".to_vec(), CatchUp::All);
    ScheduleView {
        name: "backup".into(),
        schedule: Arc::new(Schedule { when, queue: queue(), payload, priority: 1, attempts_max, catch_up }),
        number: 1,
        paused: true,
        since_ms: 5,
        through_ms: 6,
        next_ms: vec![7, 8],
        pending: 9,
        fired: 10,
        missed: 11,
        unsure: 12,
        last,
    }
}

pub fn schedule() -> ScheduleView {
    let when = When::Cron { expression: "30 2 * * *".into(), zone: "Europe/Berlin".into() };
    schedule_of(when, 2, Some(Fired { tick_ms: 6, id: id(1) }))
}

pub fn short_schedule() -> ScheduleView {
    schedule_of(When::At(9), 0, None)
}

pub fn version() -> TaskVersion {
    TaskVersion(255)
}

pub fn explanation() -> api::Explanation {
    api::Explanation {
        id: id(1),
        state: Some(State::Waiting),
        cause: crate::client::why::Cause::WaitsFor,
        explanation: "it waits for one task".into(),
        waits_for: vec![id(2)],
        group: Some((&group()).into()),
        missing: vec![3, 4],
        permit_ms: Some(9),
    }
}

pub fn members() -> Vec<api::MemberShare<'static>> {
    let (number, node, name, state) = (1, node(1), "n1".into(), api::MemberState::Leaving);
    vec![api::MemberShare { number, node, name, state, holds: 24, comes: 0, goes: 24 }]
}

pub fn root() -> api::MetadataGroup {
    api::MetadataGroup { version: 7, leader: node(1), voters: vec![node(1), node(2)] }
}

pub fn settings() -> api::ClusterSettings {
    api::ClusterSettings { heal_after_ms: Some(900_000), moves_at_once: 16, moves_at_once_each: 2 }
}

pub fn layout() -> api::LayoutTotals {
    let (stable, moving, leaving, left) = (250, 3, 2, 1);
    api::LayoutTotals { version: 4, stale: true, replicas: 3, stable, moving, leaving, left, open: 5, unknown: 6 }
}

pub fn moving() -> api::PartitionMove {
    let (cohort, next, comes, leaving) = (vec![node(1)], vec![node(1), node(2)], vec![node(2)], vec![node(3)]);
    api::PartitionMove { partition: PartitionId(12), state: api::PartitionPhase::Moving, cohort, next, comes, leaving }
}

pub fn recovered() -> api::RecoveredPartition<'static> {
    let (left, cohort, obstacle) = (vec![node(1)], vec![node(1), node(2)], Some("it moves".into()));
    api::RecoveredPartition { partition: PartitionId(12), node: node(1), left, cohort, tasks: 5, claims: 1, obstacle }
}

pub fn task_input() -> api::TaskInput {
    api::TaskInput {
        delay_ms: None,
        queue: "team/mail".into(),
        data: "/wA=".into(),
        data_encoding: Some(api::Encoding::Base64),
        priority: Some(-2),
        delay: Some("1m30s".into()),
        at: Some("2030-01-01T00:00:00Z".into()),
        max_attempts: Some(3),
        headers: headers().into_iter().take(2).collect(),
        id: Some(id(1).to_string()),
        after: vec![id(2).to_string()],
        key: Some("user-1".into()),
        join: None,
        number: Some(2),
    }
}

pub fn transaction_input() -> api::TransactionInput {
    let adds = vec![api::TaskInput { queue: "mail".into(), join: Some(join()), ..Default::default() }];
    let (ids, token) = ([3, 4, 5].map(|number| id(number).to_string()), Some(token(42).to_string()));
    let [changed, deleted, depended] = ids;
    let change = api::ChangeInput {
        delay_ms: None,
        id: changed,
        version: None,
        token: token.clone(),
        data: Some("half".into()),
        data_encoding: Some(api::Encoding::Utf8),
        headers: Some([("k".to_owned(), "v".to_owned())].into()),
        priority: Some(3),
        delay: Some("10s".into()),
        at: Some("2030-01-01T00:00:00Z".into()),
        max_attempts: Some(0),
        release: true,
    };
    let (result, result_encoding) = (Some("/wA=".into()), Some(api::Encoding::Base64));
    let delete = api::DeleteInput { id: deleted, version: None, token, result, result_encoding };
    let depend = api::DependInput { id: depended, version: Some(version().to_string()), token: None };
    api::TransactionInput {
        adds,
        changes: vec![change],
        deletes: vec![delete],
        depends: vec![depend],
        near: Some(id(3).to_string()),
        id: Some(id(9).to_string()),
    }
}

fn join() -> api::JoinInput {
    api::JoinInput { total: 2, fail_fast: true }
}
