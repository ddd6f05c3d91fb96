//! A message of each kind that nodes send to each other.

use super::samples::{
    NODE, PARTITION, TOKEN, VIEWSTAMP, claim, granted, id, items, keyed, operations, queue, roster, watch_event,
};
use norn_model::claim_table::table::Table;
use norn_model::cohort::{Change, Cohort, Seat, Told};
use norn_model::message::{
    DiskWord, Head, Heartbeat, Known, Level, LogWord, Outcome, PartitionCounts, PeerMessage, RecentPart, Step,
    WantPart, WatchAt, WatchTold,
};
use norn_model::replica::DoneFlag;
use norn_model::task::{Settled, Task, Tomb};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_model::wound::Wound;
use norn_wire::group::MemberOf;
use norn_wire::{ClaimId, NewTask, NodeId, Request, Response, State, Subject};
use std::num::NonZeroU64;
use std::sync::Arc;

const REPLICA: ReplicaId = ReplicaId { node: NODE, incarnation: 7 };
const LOG: LogWord = LogWord { boot: 3, durable: 700, start: 9 };
const WATCH_AT: WatchAt = WatchAt { start: 9, number: 12 };

fn heartbeat() -> Heartbeat {
    Heartbeat {
        boot: 3,
        number: 40,
        seen: (2, 39),
        sent_us: 1_000_000,
        echo_us: Some((999_000, 500)),
        wall_ms: 1_700_000_000_000,
        hears: vec![NODE, NodeId(1)],
        leads_version: 4,
        leads: Some(vec![(PARTITION, 5, VIEWSTAMP)]),
        leads_known: (2, 6),
        commits: vec![(PARTITION, 5, 9)],
        standing: Default::default(),
        holes: true,
        disk: DiskWord { sync_us: 700, slow: true },
        start: 1 << 60,
        durable: 700,
        seen_start: 1 << 61,
        remembers: 600,
        remembers_last: 700,
        offers: 3,
        roster_version: 6,
    }
}

fn told() -> Box<Told> {
    let founder = |node| ReplicaId { node: NodeId(node), incarnation: 1 };
    let founded = Cohort::founded(&[founder(1), founder(2), founder(3)]);
    let members = founded.members.iter().map(|seat| seat.replica).collect();
    let admit = Change::Admit { members, next: vec![founder(2), founder(4)] };
    let cohort = founded.changed(&admit, Viewstamp { epoch: 1, length: 1 }).expect("it fits");
    Box::new(Told { epoch: 5, cohort })
}

fn watch_told() -> WatchTold {
    let (covers, begins, roots) = (vec![PARTITION], vec![PARTITION], vec![(PARTITION, 7)]);
    WatchTold { at: WATCH_AT, follows: true, events: vec![watch_event()], covers, begins, roots }
}

fn known() -> Known {
    let task = Task::from_spec(Arc::new(super::samples::spec()));
    Known { task, cell: None, viewstamp: VIEWSTAMP, at: VIEWSTAMP, told: Some(told()), holes: true, lost: None }
}

/// At least one message of each kind.
pub fn peer_messages() -> Vec<PeerMessage> {
    let mut all = Vec::new();
    all.extend(membership());
    all.extend(election());
    all.extend(replication());
    all.extend(reconfiguration());
    all.extend(read_write());
    all.extend(forwarding());
    all.extend(query());
    all.extend(anti_entropy());
    all.extend(handoff());
    all.extend(garbage_collection());
    all.extend(claiming());
    all.extend(limiting());
    all.extend(workflow());
    all
}

fn membership() -> Vec<PeerMessage> {
    vec![
        PeerMessage::Heartbeat(Box::new(heartbeat())),
        PeerMessage::Roster { roster: Arc::new(roster()) },
        PeerMessage::RouteAsk { partitions: vec![PARTITION] },
        PeerMessage::Route { partition: PARTITION, told: told() },
    ]
}

fn election() -> Vec<PeerMessage> {
    let table = Arc::new(Table::new(vec![REPLICA]));
    let lost = vec![NODE];
    vec![
        PeerMessage::PreVote { partition: PARTITION, epoch: 6, viewstamp: VIEWSTAMP },
        PeerMessage::PreVoteAnswer { partition: PARTITION, epoch: 6, granted: true, promised: 5, viewstamp: VIEWSTAMP },
        PeerMessage::Vote { partition: PARTITION, epoch: 6, candidate: REPLICA, viewstamp: VIEWSTAMP },
        PeerMessage::Rescue { partition: PARTITION, epoch: 6, candidate: REPLICA, viewstamp: VIEWSTAMP, lost },
        PeerMessage::VoteAnswer {
            partition: PARTITION,
            epoch: 6,
            replica: REPLICA,
            granted: true,
            promised: 6,
            viewstamp: VIEWSTAMP,
            log: LOG,
        },
        PeerMessage::Fetch { partition: PARTITION, viewstamp: VIEWSTAMP },
        PeerMessage::State { partition: PARTITION, viewstamp: VIEWSTAMP, table },
        PeerMessage::Transfer { partition: PARTITION, epoch: 5 },
    ]
}

fn replication() -> Vec<PeerMessage> {
    let table = Arc::new(Table::new(vec![REPLICA]));
    let done = vec![DoneFlag { id: id(0), token: TOKEN, ending: Task::default() }];
    let installed = Some(table.clone());
    vec![
        PeerMessage::Install { partition: PARTITION, epoch: 6, base: VIEWSTAMP, table: installed, digest: [7; 16] },
        PeerMessage::Install { partition: PARTITION, epoch: 6, base: VIEWSTAMP, table: None, digest: [7; 16] },
        PeerMessage::Snapshot { partition: PARTITION, viewstamp: VIEWSTAMP, table, commit: 8 },
        PeerMessage::Ops { partition: PARTITION, epoch: 5, first: 9, ops: operations(), commit: 8, digest: [7; 16] },
        PeerMessage::Ack {
            partition: PARTITION,
            epoch: 5,
            replica: REPLICA,
            length: 9,
            done,
            missing: vec![id(1)],
            log: LOG,
            wound: Wound { facts: true, table: false },
        },
        PeerMessage::Nack { partition: PARTITION, replica: REPLICA, promised: 6, viewstamp: VIEWSTAMP },
        PeerMessage::Ages { partition: PARTITION, asks: true, ages: vec![(VIEWSTAMP, 7_000)] },
        PeerMessage::Rejoin { partition: PARTITION, ask: 3, viewstamp: VIEWSTAMP },
        PeerMessage::Rejoined { partition: PARTITION, ask: 3, viewstamp: VIEWSTAMP },
    ]
}

fn reconfiguration() -> Vec<PeerMessage> {
    let seat = Seat { replica: REPLICA, since: VIEWSTAMP };
    vec![
        PeerMessage::Ready { partition: PARTITION, replica: REPLICA, at: VIEWSTAMP, ready: true, facts: 4, log: LOG },
        PeerMessage::Dismiss { partition: PARTITION, at: VIEWSTAMP },
        PeerMessage::Outside { partition: PARTITION, told: told() },
        PeerMessage::Unheld { partition: PARTITION, replica: REPLICA },
        PeerMessage::Stray { partition: PARTITION, seat },
        PeerMessage::Arrange { partition: PARTITION, nodes: vec![NodeId(1), NodeId(2)] },
    ]
}

fn read_write() -> Vec<PeerMessage> {
    let known = Box::new(known());
    vec![
        PeerMessage::Write { ask: 1, partition: PARTITION, at: VIEWSTAMP, items: items() },
        PeerMessage::Written {
            ask: 1,
            partition: PARTITION,
            replica: REPLICA,
            boot: 3,
            holes: false,
            outcomes: vec![Outcome::Stored, Outcome::Future],
            at: VIEWSTAMP,
            told: Some(told()),
            log: LOG,
        },
        PeerMessage::Kept { ask: 1, partition: PARTITION, outcomes: vec![Outcome::Stored] },
        PeerMessage::Read { ask: 2, partition: PARTITION, at: VIEWSTAMP, id: id(0) },
        PeerMessage::Known { ask: 2, partition: PARTITION, replica: REPLICA, known },
    ]
}

fn forwarding() -> Vec<PeerMessage> {
    let unique = Request::EnqueueUnique { task: Box::new(NewTask { id: id(0), spec: keyed(1) }) };
    vec![
        PeerMessage::Forward { ask: 5, request: Box::new(unique) },
        PeerMessage::Forward { ask: 4, request: Box::new(Request::Release { id: id(0), token: TOKEN }) },
        PeerMessage::Forwarded { ask: 4, response: Box::new(Response::Done) },
    ]
}

fn query() -> Vec<PeerMessage> {
    let counts = PartitionCounts {
        partition: PARTITION,
        root: [7; 16],
        viewstamp: VIEWSTAMP,
        at: VIEWSTAMP,
        leads: true,
        queues: vec![(queue(), [1, 2, 3, 4, 5, 6])],
        permits: vec![(queue(), 20)],
    };
    let tasks = vec![(id(0), known())];
    vec![
        PeerMessage::CountAsk { ask: 6, queue: Some(queue()) },
        PeerMessage::CountAnswer { ask: 6, partitions: vec![counts] },
        PeerMessage::ListAsk {
            ask: 7,
            partition: Some(PARTITION),
            queue: Some(queue()),
            after: Some(id(0)),
            to: Some(id(2)),
            limit: 50,
        },
        PeerMessage::ListAnswer { ask: 7, partitions: vec![(PARTITION, VIEWSTAMP)], tasks, end: Some(id(2)) },
        PeerMessage::Watch { ask: 5, subject: Subject::Queue(queue()), at: Some(WATCH_AT), compare: vec![PARTITION] },
        PeerMessage::Watched { ask: 5, at: Some(WATCH_AT), told: Some(Box::new(watch_told())) },
        PeerMessage::WatchNews { subject: Subject::Group(id(0)) },
    ]
}

fn steps() -> Vec<Step> {
    let (partition, salt, bucket) = (PARTITION, 5, 700);
    let hashes = || vec![7; 16].into();
    vec![
        Step::Compare { partition, salt, level: Level::Buckets, number: 9, filled: 0b101, hashes: hashes() },
        Step::List { partition, salt, bucket, cells: 3, after: Some(id(0)), upto: None, hashes: hashes() },
        Step::Want { partition, salt, bucket, after: None, hashes: hashes() },
    ]
}

fn anti_entropy() -> Vec<PeerMessage> {
    let recent = RecentPart { partition: PARTITION, upto: 9, tasks: vec![(id(0), 1 << 100)] };
    let want = WantPart { partition: PARTITION, upto: Some(9), ids: vec![id(0)] };
    let equal = vec![(PARTITION, 1 << 90)];
    vec![
        PeerMessage::Roots { roots: equal.clone(), round: 3 },
        PeerMessage::RootsAnswer { equal, at: vec![VIEWSTAMP], differ: vec![PARTITION], round: 3 },
        PeerMessage::GroupsAsk { partition: PARTITION, round: 3, groups: vec![(1, 1 << 90)] },
        PeerMessage::GroupsAnswer { partition: PARTITION, round: 3, at: VIEWSTAMP, equal: vec![1] },
        PeerMessage::Recent { boot: 3, parts: vec![recent] },
        PeerMessage::Want { boot: 3, parts: vec![want] },
        PeerMessage::Need { partition: PARTITION, ids: vec![id(0)] },
        PeerMessage::Steps { steps: steps() },
        PeerMessage::Lacks { partition: PARTITION, id: id(0), holder: NODE },
        PeerMessage::Tasks { partition: PARTITION, items: items(), by_buckets: true, forgets: Some(2) },
    ]
}

fn handoff() -> Vec<PeerMessage> {
    vec![
        PeerMessage::Hint { number: 8, partition: PARTITION, at: VIEWSTAMP, items: items(), forgets: None },
        PeerMessage::Hinted {
            number: 8,
            partition: PARTITION,
            outcomes: vec![Outcome::TooOld],
            boot: 3,
            at: VIEWSTAMP,
            holes: true,
            log: LOG,
        },
    ]
}

fn garbage_collection() -> Vec<PeerMessage> {
    let compared = vec![(id(0), 1 << 100)];
    let tombs = Arc::new(vec![(id(0), Tomb { state: State::Done, at_ms: 7 })]);
    vec![
        PeerMessage::Compare { partition: PARTITION, epoch: 3, number: 2, items: compared },
        PeerMessage::Compared { partition: PARTITION, epoch: 3, number: 2, replica: REPLICA, same: vec![id(0)] },
        PeerMessage::Tombs { partition: PARTITION, epoch: 3, number: 2, items: tombs },
        PeerMessage::Buried { partition: PARTITION, epoch: 3, number: 2, replica: REPLICA, log: LOG },
        PeerMessage::Outboxes { partition: PARTITION, epoch: 3, number: 2, above: Some(id(0)), up_to: id(1) },
        PeerMessage::Childless { partition: PARTITION, epoch: 3, number: 2, seats: 7 },
        PeerMessage::Forget { partition: PARTITION, epoch: 3, count: 2 },
        PeerMessage::Forgot { partition: PARTITION, epoch: 3, count: 2, replica: REPLICA, log: LOG },
        PeerMessage::Gone { partition: PARTITION, forgets: 2, ids: vec![id(0)] },
    ]
}

fn claiming() -> Vec<PeerMessage> {
    let head = Some(Head { priority: -1, id: id(0), count: 12, served_ms: Some(1_000) });
    vec![
        PeerMessage::Probe { ask: 2, queues: vec![queue()] },
        PeerMessage::Probed { ask: 2, heads: vec![None, head], covered: vec![PARTITION] },
        PeerMessage::Pull { ask: 2, queues: vec![queue()] },
        PeerMessage::Pulled { ask: 2, partitions: vec![PARTITION], ready: vec![id(0)], more: true },
        PeerMessage::GrantAsk { ask: 3, claim: Box::new(claim()), max: 2, recall: false, got: vec![id(0)] },
        PeerMessage::GrantAnswer {
            ask: 3,
            claim: ClaimId(99),
            tasks: vec![(granted(), Some(VIEWSTAMP))],
            heads: vec![None, head],
            partitions: vec![PARTITION],
        },
        PeerMessage::Return { items: vec![(id(0), TOKEN, VIEWSTAMP)] },
        PeerMessage::ConfirmAsk { items: vec![(id(0), TOKEN, ClaimId(99))] },
        PeerMessage::ConfirmAnswer { settled: vec![(id(0), TOKEN)], back: vec![(id(1), TOKEN, VIEWSTAMP)] },
        PeerMessage::Leave { claim: ClaimId(99), keeps: vec![id(0)] },
        PeerMessage::Interest { queues: vec![(queue(), 4)] },
        PeerMessage::Available { queue: queue(), head },
        PeerMessage::Wake { partition: PARTITION, epoch: 5, ids: vec![id(0)] },
        PeerMessage::Led { partition: PARTITION, epoch: 5, leads: true },
    ]
}

fn limiting() -> Vec<PeerMessage> {
    vec![
        PeerMessage::PermitAsk { ask: 5, queue: queue(), wanted: 3 },
        PeerMessage::Permits { ask: 5, queue: queue(), count: 3, wait_ms: 0 },
        PeerMessage::PermitsBack { ask: 5, queue: queue(), count: 2 },
        PeerMessage::QuotaAsk { partition: PARTITION, epoch: 3, ask: 5, queue: queue(), keeps: 2, wants: 4 },
        PeerMessage::Quota { partition: PARTITION, epoch: 3, ask: 5, queue: queue(), count: 4 },
        PeerMessage::QuotaCall { partition: PARTITION, queue: queue(), share: 1 },
    ]
}

fn workflow() -> Vec<PeerMessage> {
    let (key, ids) = (NonZeroU64::MIN, vec![id(0)]);
    let (open, ended) = (vec![id(0)], vec![id(1)]);
    vec![
        PeerMessage::Follow { partition: PARTITION, ids: vec![id(0), id(1)] },
        PeerMessage::Ends { partition: PARTITION, ends: vec![(id(0), Settled::Done)], joins: vec![(id(0), id(2))] },
        PeerMessage::MemberFailed { member: MemberOf { group: id(0), number: 3 }, how: Settled::Dead },
        PeerMessage::KeyAsk { ask: 5, partition: PARTITION, epoch: 3, queue: queue(), key, ids },
        PeerMessage::KeyAnswer { ask: 5, partition: PARTITION, replica: REPLICA, open, ended },
    ]
}
