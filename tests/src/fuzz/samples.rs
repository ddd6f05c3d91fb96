//! Valid bytes of every kind, as a starting point of mutations.

use super::messages::peer_messages;
use super::{Bounded, pack, start};
use norn_model::claim_table::ledger::{Decided, Prepared, Spread};
use norn_model::claim_table::levels;
use norn_model::claim_table::table::{ClaimTable, Op, SlotQuota};
use norn_model::message::envelope;
use norn_model::record::Record;
use norn_model::schedules;
use norn_model::schedules::Schedules;
use norn_model::task::{Completed, Task};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_storage::Replay;
use norn_storage::disk::Disk as _;
use norn_wire::codec::{self, Body, Kind};
use norn_wire::group::{Grouping, Join, MemberOf};
use norn_wire::membership::{
    self, Candidate, Changed, ClusterChange, ClusterView, MemberState, Membership, Roster, Settings, Share,
};
use norn_wire::request::{Acks, NewTask, Request, Revision, Spec};
use norn_wire::response::{
    Acked, ClaimEnd, ClaimOutcome, Genesis, Granted, Guarantee, LogEntry, Member, Response, Welcome,
};
use norn_wire::schedule::{CatchUp, Schedule, ScheduleChange, ScheduleView, When};
use norn_wire::transaction::{Change as TaskChange, Delete, Depend, Expected, Refusal, Transaction};
use norn_wire::{
    Claim, ClaimId, ClusterId, Completion, Error, ErrorCode, NodeId, PartitionId, QueueName, State, Subject, TaskId,
    TaskVersion, Token, WatchCursor, WatchEvent, Watched, watch::WatchPlace,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const NODE: NodeId = NodeId(0xabc);
pub(super) const PARTITION: PartitionId = PartitionId(3);
pub(super) const VIEWSTAMP: Viewstamp = Viewstamp { epoch: 5, length: 9 };
pub(super) const TOKEN: Token = Token { epoch: 5, number: 8 };

pub(super) fn id(number: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, number, 77, 0x30_0000)
}

pub(super) fn queue() -> QueueName {
    QueueName::new("mail").expect("a name")
}

pub(super) fn spec() -> Spec {
    let headers = vec![("content-type".into(), "text/plain".into())];
    let payload = b"payload \xfe\xfd of a task".to_vec();
    Spec {
        queue: queue(),
        payload,
        priority: -3,
        not_before_ms: 17,
        headers,
        attempts_max: 4,
        after: Vec::new(),
        key: None,
        grouping: None,
        revision: None,
    }
}

/// A spec without references to other tasks for 0, then with a dependency, with a key in addition, and with a group in addition.
pub(super) fn keyed(number: u32) -> Spec {
    let after = if number > 0 { vec![id(7)] } else { Vec::new() };
    let member = Some(MemberOf { group: id(7), number: 3 });
    let grouping =
        (number > 2).then(|| Box::new(Grouping { member, join: Some(Join { total: Some(9), fail_fast: true }) }));
    Spec { after, key: (number > 1).then(|| "key".to_owned()), grouping, ..spec() }
}

pub(super) fn items() -> Arc<Vec<(TaskId, Task)>> {
    let tasks = (0..3).map(|number| (id(number), Task::from_spec(Arc::new(spec()))));
    Arc::new(tasks.chain([(id(3), Task::from_purge())]).collect())
}

fn genesis() -> Genesis {
    let member = |number: u16| Member {
        node: NodeId(u128::from(number)),
        incarnation: 7,
        address: format!("node-{number}:7400"),
        name: format!("node-{number}"),
        zone: "here".into(),
    };
    Genesis {
        cluster: ClusterId(0xc1),
        name: "norn".into(),
        partitions: 2,
        replicas: 3,
        members: (0..3).map(member).collect(),
        assignment: vec![vec![0, 1, 2], vec![1, 2, 0]],
    }
}

fn candidate() -> Candidate {
    let (name, address, zone) = ("node-3".into(), "node-3:7400".into(), "there".into());
    Candidate { cluster: None, node: NodeId(3), incarnation: 1, name, address, zone, weight: 2 }
}

pub(super) fn roster() -> Roster {
    let Candidate { node, incarnation, name, address, zone, weight, .. } = candidate();
    let member = membership::Member { node, incarnation, name, address, zone, weight, state: MemberState::Leaving };
    let policy = membership::QueuePolicy {
        paused: true,
        attempts_max: Some(3),
        lease_ms: Some(1_000),
        lease_ms_max: Some(2_000),
        backoff: Some(membership::Backoff { first_ms: 1, most_ms: 9, jitter_percent: 20 }),
        retention_ms: Some(0),
        order: membership::Order::Random,
        mode: membership::Mode::Holder,
        dead_letter: Some(queue()),
        tasks_max: Some(7),
        bytes_max: Some(8),
        ageing_ms: Some(9),
        rate: Some(membership::Rate { claims: 10, per_ms: 60_000 }),
        concurrency: Some(11),
        key_concurrency: membership::KeyConcurrency::Most(3),
        failed_dependency: membership::FailedDependency::Wait,
    };
    Roster { version: 9, members: BTreeMap::from([(3, member)]), policies: BTreeMap::from([(queue(), policy)]) }
}

fn cluster() -> ClusterView {
    ClusterView {
        cluster: ClusterId(0xc1),
        name: "norn".into(),
        roster: roster(),
        voters: vec![NODE, NodeId(3)],
        leader: NODE,
        heard: vec![NODE],
        replicas: 3,
        settings: Settings::default(),
        layout: 4,
        stale: true,
        shares: BTreeMap::from([(3, Share { come: 1, go: 2, stay: 3 })]),
        moving: vec![PARTITION],
        open: 2,
        unknown: 1,
    }
}

fn remnant() -> membership::Remnant {
    membership::Remnant {
        partition: PARTITION,
        cohort: vec![NODE, NodeId(3)],
        left: vec![NODE],
        epoch: 4,
        length: 2,
        tasks: 1,
        claims: 1,
        obstacle: Some("node-3 is alive".into()),
    }
}

fn changed() -> Changed {
    let membership = Membership { genesis: genesis(), roster: roster() };
    Changed { already: false, version: 9, view: Box::new(cluster()), membership: Some(Box::new(membership)) }
}

pub(super) fn claim() -> Claim {
    Claim {
        claim: ClaimId(99),
        repeated: true,
        queues: vec![queue()],
        lease_ms: 30_000,
        wait_ms: 1_000,
        max: 10,
        worker: "worker".into(),
        lease_open: true,
        session: None,
        depends: Vec::new(),
        confirms: true,
    }
}

fn decided() -> Decided {
    let revision = Revision { at: TOKEN, origin: 7 };
    let changed = Spec { revision: Some(Box::new(revision)), ..spec() };
    Decided {
        facts: vec![(id(0), Task::from_spec(Arc::new(changed)))],
        locked: vec![id(0)],
        freed: vec![(id(0), TOKEN, 9)],
        stamps: vec![(id(0), TaskVersion(7))],
        end: Some(Arc::new(ClaimEnd { outcome: ClaimOutcome::Released, at_ms: 9, reason: None })),
        depends: vec![Depend { id: id(3), expected: Expected::Version(TaskVersion(9)) }],
    }
}

pub(super) fn transaction() -> Transaction {
    let changes = vec![TaskChange {
        id: id(1),
        expected: Expected::Version(TaskVersion(7)),
        payload: Some(vec![1, 2].into()),
        headers: Some(vec![("k".into(), "v".into())]),
        priority: Some(1),
        not_before_ms: Some(2),
        attempts_max: Some(3),
        release: false,
    }];
    let deletes = vec![Delete { id: id(2), expected: Expected::Token(TOKEN), result: Some(vec![3].into()) }];
    let depends = vec![Depend { id: id(3), expected: Expected::Present }];
    Transaction { id: id(9), at_ms: 7, adds: vec![NewTask { id: id(0), spec: spec() }], changes, deletes, depends }
}

pub(super) fn operations() -> Vec<Arc<Op>> {
    vec![
        Arc::new(Op::Grant {
            claim: ClaimId(99),
            worker: "worker".into(),
            lease_ms: 30_000,
            granted_ms: 1_700_000_000_000,
            items: vec![(id(0), 8), (id(1), 9)],
            session: None,
            lapsed: true,
        }),
        Arc::new(Op::Renew { items: vec![(id(0), TOKEN, 30_000, 1_700_000_030_000)] }),
        Arc::new(Op::Schedules(schedule_changes()[1].clone())),
        Arc::new(Op::Kill {
            id: id(1),
            token: TOKEN,
            reason: "no more attempts".into(),
            at_ms: 1_700_000_000_001,
            end: Some(Arc::new(ClaimEnd { outcome: ClaimOutcome::GivenUp, at_ms: 9, reason: Some("no".into()) })),
        }),
        Arc::new(Op::Seal {
            id: id(1),
            token: TOKEN,
            completed: Box::new(Completed { sequence: Some(1), result: None, at_ms: 7, children: None }),
        }),
        Arc::new(Op::Reserve { id: id(1), spec: Arc::new(keyed(1)) }),
        Arc::new(Op::Placed { ids: vec![id(1)] }),
        Arc::new(Op::Decide { id: id(2), decided: Arc::new(decided()) }),
        Arc::new(Op::DecideAcross {
            id: id(2),
            decided: Arc::new(decided()),
            spread: Spread { round: TOKEN, partitions: vec![PARTITION] },
        }),
        Arc::new(Op::Prepare {
            id: id(2),
            prepared: Arc::new(Prepared { coordinator: PARTITION, round: TOKEN, decided: Arc::new(decided()) }),
        }),
        Arc::new(Op::Abort { id: id(2), round: TOKEN }),
        Arc::new(Op::Made { id: id(2) }),
        Arc::new(Op::SlotQuota {
            queue: queue(),
            partition: PARTITION,
            slot_quota: SlotQuota { count: 3, epoch: 2, request_id: 9 },
        }),
        Arc::new(Op::Level { queue: queue(), level: Some(levels::Level { millionths: 1_250_000, given: 2 }) }),
    ]
}

/// Records of several kinds.
pub fn records() -> Vec<Record> {
    let replica = ReplicaId { node: NODE, incarnation: 7 };
    vec![
        Record::Boot { count: 1 },
        Record::Genesis(Arc::new(genesis())),
        Record::HighWaterMark { time_ms: 1_700_000_010_000, sessions: 1_024 },
        Record::Vote { partition: PARTITION, promised: 5, voted_for: Some(replica) },
        Record::Install {
            partition: PARTITION,
            viewstamp: VIEWSTAMP,
            table: Some(Arc::new(ClaimTable::new(vec![replica]))),
        },
        Record::Ops { partition: PARTITION, after: VIEWSTAMP, ops: operations() },
        Record::Facts { partition: PARTITION, items: items() },
        Record::Hint { partition: PARTITION, since_ms: 1_700_000_000_000, items: items() },
        Record::IdHint { to: NODE, partition: PARTITION, since_ms: 1_700_000_000_000, ids: vec![id(0)] },
        Record::Handed { to: Some(NODE), partition: PARTITION, ids: vec![id(0)] },
        Record::Ran { us: 12_345_678 },
        Record::LeaseAges { partition: PARTITION, ran_us: 12_345_679, points: vec![(VIEWSTAMP, 7_000)] },
        Record::Boot { count: 2 },
        Record::Unanswered { began: Some(1) },
    ]
}

/// Bodies of records.
pub fn record_bodies() -> Vec<Vec<u8>> {
    let encode = |record: &Record| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes
    };
    records().iter().map(encode).collect()
}

/// A log with the first `count` of [`records`], synced in pairs, and the records that it contains, repeated ones included.
pub fn log(count: usize) -> (Bounded, Vec<Record>) {
    let mut disk = Bounded::new([]);
    let (mut log, _) = start(&disk).expect("a fresh log");
    for batch in records()[..count].chunks(2) {
        log.append(batch).expect("the disk is good");
        log.sync().expect("the disk is good");
    }
    drop(log);
    let (_, replayed) = start(&disk).expect("it is whole");
    let record = |replay| match replay {
        Replay::Record { record, .. } => Some(record),
        Replay::Promised { .. } => None,
        Replay::Lost { .. } => panic!("it is whole"),
    };
    let written = replayed.into_iter().filter_map(record).collect();
    // The changes of that start are synced as well.
    for name in disk.list().expect("the disk is good") {
        disk.sync(&name).expect("the disk is good");
    }
    disk.sync_directory().expect("the disk is good");
    (disk, written)
}

/// Logs of one to three segments in the form of [`super::unpack`], with every combination of flags.
pub fn directories() -> Vec<Vec<u8>> {
    let logs = [0, 2, 6, records().len()].map(|count| log(count).0.files());
    assert!(logs.iter().all(|files| files.len() <= 3) && logs.iter().any(|files| files.len() > 1));
    logs.iter().flat_map(|files| (0..4).map(move |flags| pack(flags, files))).collect()
}

/// Segments without their headers.
pub fn frames() -> Vec<Vec<u8>> {
    let files = directories().into_iter().flat_map(|bytes| super::unpack(&bytes));
    files.filter_map(|file| Some(file.get(super::SEGMENT_HEADER_BYTES..)?.to_vec())).collect()
}

pub(super) fn watch_event() -> WatchEvent {
    let (result, reason) = (Some(b"sent".to_vec().into()), Some("because".into()));
    WatchEvent { id: id(0), queue: queue(), state: State::Done, number: Some(3), result, reason }
}

fn watch_cursor() -> WatchCursor {
    WatchCursor { places: vec![WatchPlace { node: NodeId(1), start: 9, number: 12, whole: vec![255, 3].into() }] }
}

fn requests() -> Vec<Request> {
    let tasks = (0..4).map(|number| NewTask { id: id(number), spec: keyed(number) }).collect();
    let completion = Completion {
        id: id(0),
        token: TOKEN,
        sequence: Some(2),
        result: Some(b"done".to_vec().into()),
        at_ms: 3,
        children: Vec::new(),
    };
    vec![
        Request::Hello { name: "fuzz".into(), bare: true },
        Request::Enqueue { tasks, acks: Acks::Quorum },
        Request::Update { id: id(0), token: TOKEN, sequence: 1, data: b"half".to_vec(), acks: Acks::All },
        Request::Complete { items: vec![completion], acks: Acks::One },
        Request::Get { id: id(0), minimum: Some((TOKEN, 4)), minimum_sequence: None },
        Request::List { queue: Some(queue()), state: None, after: Some(id(1)), from: None, to: None, limit: 50 },
        Request::Claim(claim()),
        Request::Renew { items: vec![(id(0), TOKEN)], lease_ms: Some(1_000) },
        Request::Fail {
            id: id(0),
            token: TOKEN,
            reason: "broken".into(),
            retry_in_ms: 5,
            invalid: false,
            retry_open: false,
        },
        Request::Redrive { id: id(0), child: id(1), queue: Some(queue()), acks: Acks::Quorum },
        Request::Purge { id: id(0), acks: Acks::All, state: Some(State::Dead) },
        Request::EnqueueUnique { task: Box::new(NewTask { id: id(0), spec: keyed(1) }) },
        Request::Transact(Box::new(transaction())),
        Request::Status,
        Request::Arrange { partition: PartitionId(1), nodes: vec![NodeId(1), NodeId(2)] },
        Request::Initialize(Box::new(genesis())),
        Request::Change { change: Box::new(ClusterChange::Replace { node: NODE, with: candidate() }), dry_run: true },
        Request::Change { change: Box::new(ClusterChange::Settings { settings: Settings::default() }), dry_run: false },
        Request::Join(Box::new(Membership { genesis: genesis(), roster: roster() })),
        Request::Ping,
        Request::Confirm { claim: ClaimId(7) },
        Request::Leave { claim: ClaimId(7), elsewhere: true, over: true, keeps: vec![id(0)] },
        Request::Schedule(Box::new(ScheduleChange::Set { name: "nightly".into(), schedule: schedule() })),
        Request::Schedule(Box::new(ScheduleChange::Pause { name: "nightly".into(), paused: true })),
        Request::Schedules { name: Some("nightly".into()) },
        Request::Watch { subject: Subject::Queue(queue()), cursor: Some(watch_cursor()), wait_ms: 5_000 },
        Request::Watch { subject: Subject::Group(id(0)), cursor: None, wait_ms: 0 },
        Request::Recover { lost: vec![NODE], partitions: vec![PARTITION], lease_ms: 1_000 },
    ]
}

fn schedule() -> Arc<Schedule> {
    let when = When::Cron { expression: "30 2 * * *".into(), zone: "Europe/Berlin".into() };
    let (queue, payload, catch_up) = (queue(), b"everything".to_vec(), CatchUp::All);
    Arc::new(Schedule { when, queue, payload, priority: 1, attempts_max: 3, catch_up })
}

/// Changes that set a schedule, mark it due, and mark it fired.
fn schedule_changes() -> [schedules::Operation; 3] {
    let set = schedules::Operation::Set { name: "nightly".into(), number: 1, schedule: schedule(), at_ms: 1_000 };
    let turn = schedules::Turn { name: "nightly".into(), number: 1, through_ms: 9_000, ..schedules::Turn::default() };
    let due = schedules::Turn { ticks: vec![8_000, 9_000], minted_ms: 9_500, missed: 2, ..turn.clone() };
    let fired = schedules::Turn { first: 2, fired: vec![0], unsure: vec![1], ..turn };
    [set, schedules::Operation::Turns(vec![due]), schedules::Operation::Turns(vec![fired])]
}

fn schedules() -> Schedules {
    let mut schedules = Schedules::default();
    schedule_changes().iter().for_each(|operation| schedules.apply(operation).expect("it fits"));
    schedules
}

fn schedule_view() -> ScheduleView {
    schedules().view("nightly", 1_700_000_000_000, 5).expect("it is set")
}

pub(super) fn granted() -> Granted {
    Granted {
        id: id(0),
        token: TOKEN,
        queue: queue(),
        payload: b"payload".to_vec(),
        priority: 1,
        headers: Vec::new(),
        attempt: 2,
        lease_ms: 30_000,
        updates: vec![LogEntry { token: TOKEN, sequence: 0, data: b"half".to_vec() }],
        grouping: None,
        group: None,
    }
}

fn responses() -> Vec<Response> {
    let acked = Acked { id: id(0), acks: 2, replicas: 3, guarantee: Guarantee::Strict };
    let error = Error::new(ErrorCode::NotFound, "there is no such task");
    vec![
        Response::Transacted(Ok(vec![(id(0), TaskVersion(7))])),
        Response::Transacted(Err(Box::new(Refusal {
            owned: vec![id(1)],
            bugs: vec!["b".into()],
            ..Refusal::default()
        }))),
        Response::Welcome(Welcome {
            node: NODE,
            cluster: ClusterId(0xc1),
            time_ms: 1_700_000_000_000,
            minter: 77,
            refusal: None,
            clock_ms: None,
        }),
        Response::Acked(vec![Ok(acked), Err(error.clone())]),
        Response::Count(12),
        Response::Claimed { tasks: vec![granted()], unavailable: 1, left: 2 },
        Response::Renewed(vec![Ok(30_000), Err(error.clone())]),
        Response::Done,
        Response::Cluster(Box::new(cluster())),
        Response::Remnants(vec![remnant()]),
        Response::Watched(Watched { events: vec![watch_event()], cursor: watch_cursor(), lagged: true, silent: 2 }),
        Response::Schedules(vec![schedule_view()]),
        Response::Scheduled { already: false, view: Some(Box::new(schedule_view())) },
        Response::Changed(Box::new(changed())),
        Response::Error(error),
    ]
}

/// Frames with one message each, and one sample with all of them in sequence.
pub fn messages() -> Vec<Vec<u8>> {
    fn frame<T: Body>(value: &T, kind: Kind) -> Vec<u8> {
        let mut bytes = Vec::new();
        match kind {
            Kind::Peer | Kind::PeerHello | Kind::Envelope => {
                codec::encode_compact(&mut bytes, super::VERSION, kind, 7, value)
            }
            Kind::Request | Kind::Response => codec::encode_named(&mut bytes, super::VERSION, kind, 7, value),
        }
        bytes
    }
    let mut frames: Vec<Vec<u8>> = requests().iter().map(|request| frame(request, Kind::Request)).collect();
    frames.extend(responses().iter().map(|response| frame(response, Kind::Response)));
    frames.extend(peer_messages().iter().map(|message| frame(message, Kind::Peer)));
    frames.push(frames.concat());
    let mut together = Vec::new();
    let messages = peer_messages();
    let left_out = envelope::encode(&mut together, super::VERSION, &messages);
    assert!(left_out.is_empty(), "samples are small");
    frames.push(together);
    frames
}

/// Bodies of messages, without their frames.
pub fn bodies() -> Vec<Vec<u8>> {
    messages().iter().map(|frame| frame[codec::HEADER_BYTES..].to_vec()).collect()
}
