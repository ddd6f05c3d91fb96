//! A message of each kind that nodes send to each other.

use super::samples::{
    NODE, PARTITION, TOKEN, VIEWSTAMP, claim, granted, id, items, keyed, operations, queue, roster, transaction,
    watch_event,
};
use norn_model::claim_table::table::ClaimTable;
use norn_model::cohort::{AdvertisedCohort, Change, Cohort, CohortSlot};
use norn_model::data_loss::DataLoss;
use norn_model::message::{
    AntiEntropy, Claiming, DiskStatus, Election, Forwarding, GarbageCollection, Handoff, Head, Heartbeat, Known, Level,
    Limiting, LogPosition, Outcome, PartitionCounts, PeerMessage, Peering, Query, ReadWrite, RecentPart,
    Reconfiguration, Replication, Step, Vote, WantPart, WatchAt, WatchFeed, Workflow,
};
use norn_model::replica::DoneFlag;
use norn_model::task::{Settled, Task, Tombstone};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::group::MemberOf;
use norn_wire::{ClaimId, Error, NewTask, NodeId, PartitionId, Request, Response, State, Subject, TaskVersion};
use std::num::NonZeroU64;
use std::sync::Arc;

const REPLICA: ReplicaId = ReplicaId { node: NODE, incarnation: 7 };
const LOG: LogPosition = LogPosition { boot: 3, durable: 700, start: 9 };
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
        incomplete: true,
        disk: DiskStatus { sync_us: 700, slow: true },
        start: 1 << 60,
        durable: 700,
        seen_start: 1 << 61,
        remembers: 600,
        remembers_last: 700,
        offers: 3,
        roster_version: 6,
    }
}

fn advertised() -> Box<AdvertisedCohort> {
    let founder = |node| ReplicaId { node: NodeId(node), incarnation: 1 };
    let founded = Cohort::founded(&[founder(1), founder(2), founder(3)]);
    let members = founded.members.iter().map(|slot| slot.replica).collect();
    let admit = Change::Admit { members, next: vec![founder(2), founder(4)] };
    let cohort = founded.changed(&admit, Viewstamp { epoch: 1, length: 1 }).expect("it fits");
    Box::new(AdvertisedCohort { epoch: 5, cohort })
}

fn watch_feed() -> WatchFeed {
    let (covers, begins, roots) = (vec![PARTITION], vec![PARTITION], vec![(PARTITION, 7)]);
    WatchFeed { at: WATCH_AT, follows: true, events: vec![watch_event()], covers, begins, roots }
}

fn known() -> Known {
    let task = Task::from_spec(Arc::new(super::samples::spec()));
    Known {
        task,
        entry: None,
        viewstamp: VIEWSTAMP,
        at: VIEWSTAMP,
        advertised: Some(advertised()),
        incomplete: true,
        lost: None,
    }
}

/// At least one message of each kind.
pub fn peer_messages() -> Vec<PeerMessage> {
    let mut all = Vec::new();
    all.extend(peering().into_iter().map(PeerMessage::from));
    all.extend(election().into_iter().map(PeerMessage::from));
    all.extend(replication().into_iter().map(PeerMessage::from));
    all.extend(reconfiguration().into_iter().map(PeerMessage::from));
    all.extend(read_write().into_iter().map(PeerMessage::from));
    all.extend(forwarding().into_iter().map(PeerMessage::from));
    all.extend(query().into_iter().map(PeerMessage::from));
    all.extend(anti_entropy().into_iter().map(PeerMessage::from));
    all.extend(handoff().into_iter().map(PeerMessage::from));
    all.extend(garbage_collection().into_iter().map(PeerMessage::from));
    all.extend(claiming().into_iter().map(PeerMessage::from));
    all.extend(limiting().into_iter().map(PeerMessage::from));
    all.extend(workflow().into_iter().map(PeerMessage::from));
    all
}

fn peering() -> Vec<Peering> {
    vec![
        Peering::Heartbeat(Box::new(heartbeat())),
        Peering::Roster { roster: Arc::new(roster()) },
        Peering::RouteAsk { partitions: vec![PARTITION] },
        Peering::Route { partition: PARTITION, advertised: advertised() },
    ]
}

fn election() -> Vec<Election> {
    let table = Arc::new(ClaimTable::new(vec![REPLICA]));
    let lost = vec![NODE];
    vec![
        Election::PreVote { partition: PARTITION, epoch: 6, viewstamp: VIEWSTAMP },
        Election::PreVoteAnswer { partition: PARTITION, epoch: 6, granted: true, promised: 5, viewstamp: VIEWSTAMP },
        Election::Vote { partition: PARTITION, epoch: 6, candidate: REPLICA, viewstamp: VIEWSTAMP },
        Election::Rescue { partition: PARTITION, epoch: 6, candidate: REPLICA, viewstamp: VIEWSTAMP, lost },
        Election::VoteAnswer {
            partition: PARTITION,
            epoch: 6,
            replica: REPLICA,
            granted: true,
            promised: 6,
            viewstamp: VIEWSTAMP,
            log: LOG,
        },
        Election::Fetch { partition: PARTITION, viewstamp: VIEWSTAMP },
        Election::State { partition: PARTITION, viewstamp: VIEWSTAMP, table },
        Election::Transfer { partition: PARTITION, epoch: 5 },
    ]
}

fn replication() -> Vec<Replication> {
    let table = Arc::new(ClaimTable::new(vec![REPLICA]));
    let done = vec![DoneFlag { id: id(0), token: TOKEN, ending: Task::default() }];
    let installed = Some(table.clone());
    vec![
        Replication::Install { partition: PARTITION, epoch: 6, base: VIEWSTAMP, table: installed, digest: [7; 16] },
        Replication::Install { partition: PARTITION, epoch: 6, base: VIEWSTAMP, table: None, digest: [7; 16] },
        Replication::Snapshot { partition: PARTITION, viewstamp: VIEWSTAMP, table, commit: 8 },
        Replication::Ops { partition: PARTITION, epoch: 5, first: 9, ops: operations(), commit: 8, digest: [7; 16] },
        Replication::Ack {
            partition: PARTITION,
            epoch: 5,
            replica: REPLICA,
            length: 9,
            done,
            missing: vec![id(1)],
            log: LOG,
            data_loss: DataLoss { facts: true, table: false },
        },
        Replication::Nack { partition: PARTITION, replica: REPLICA, promised: 6, viewstamp: VIEWSTAMP },
        Replication::LeaseAges { partition: PARTITION, asks: true, ages: vec![(VIEWSTAMP, 7_000)] },
        Replication::Rejoin { partition: PARTITION, request_id: 3, viewstamp: VIEWSTAMP },
        Replication::Rejoined { partition: PARTITION, request_id: 3, viewstamp: VIEWSTAMP },
    ]
}

fn reconfiguration() -> Vec<Reconfiguration> {
    let slot = CohortSlot { replica: REPLICA, since: VIEWSTAMP };
    vec![
        Reconfiguration::Ready {
            partition: PARTITION,
            replica: REPLICA,
            at: VIEWSTAMP,
            ready: true,
            facts: 4,
            log: LOG,
        },
        Reconfiguration::Dismiss { partition: PARTITION, at: VIEWSTAMP },
        Reconfiguration::Outside { partition: PARTITION, advertised: advertised() },
        Reconfiguration::Unheld { partition: PARTITION, replica: REPLICA },
        Reconfiguration::Undrained { partition: PARTITION, slot },
        Reconfiguration::Arrange { partition: PARTITION, nodes: vec![NodeId(1), NodeId(2)] },
    ]
}

fn read_write() -> Vec<ReadWrite> {
    let known = Box::new(known());
    vec![
        ReadWrite::Write { request_id: 1, partition: PARTITION, at: VIEWSTAMP, items: items() },
        ReadWrite::Written {
            request_id: 1,
            partition: PARTITION,
            replica: REPLICA,
            boot: 3,
            incomplete: false,
            outcomes: vec![Outcome::Stored, Outcome::Future],
            at: VIEWSTAMP,
            advertised: Some(advertised()),
            log: LOG,
        },
        ReadWrite::Kept { request_id: 1, partition: PARTITION, outcomes: vec![Outcome::Stored] },
        ReadWrite::Read { request_id: 2, partition: PARTITION, at: VIEWSTAMP, id: id(0) },
        ReadWrite::Known { request_id: 2, partition: PARTITION, replica: REPLICA, known },
    ]
}

fn forwarding() -> Vec<Forwarding> {
    let unique = Request::EnqueueUnique { task: Box::new(NewTask { id: id(0), spec: keyed(1) }) };
    vec![
        Forwarding::Forward { request_id: 5, request: Box::new(unique) },
        Forwarding::Forward { request_id: 4, request: Box::new(Request::Release { id: id(0), token: TOKEN }) },
        Forwarding::Forwarded { request_id: 4, response: Box::new(Response::Done) },
    ]
}

fn query() -> Vec<Query> {
    let counts = PartitionCounts {
        partition: PARTITION,
        root: [7; 16],
        viewstamp: VIEWSTAMP,
        at: VIEWSTAMP,
        leads: true,
        queues: vec![(queue(), [1, 2, 3, 4, 5, 6])],
        rate_tokens: vec![(queue(), 20)],
    };
    let tasks = vec![(id(0), known())];
    vec![
        Query::CountAsk { request_id: 6, queue: Some(queue()) },
        Query::CountAnswer { request_id: 6, partitions: vec![counts] },
        Query::ListAsk {
            request_id: 7,
            partition: Some(PARTITION),
            queue: Some(queue()),
            after: Some(id(0)),
            to: Some(id(2)),
            limit: 50,
        },
        Query::ListAnswer { request_id: 7, partitions: vec![(PARTITION, VIEWSTAMP)], tasks, end: Some(id(2)) },
        Query::Watch { request_id: 5, subject: Subject::Queue(queue()), at: Some(WATCH_AT), compare: vec![PARTITION] },
        Query::Watched { request_id: 5, at: Some(WATCH_AT), feed: Some(Box::new(watch_feed())) },
        Query::WatchNews { subject: Subject::Group(id(0)) },
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

fn anti_entropy() -> Vec<AntiEntropy> {
    let recent = RecentPart { partition: PARTITION, upto: 9, tasks: vec![(id(0), 1 << 100)] };
    let want = WantPart { partition: PARTITION, upto: Some(9), ids: vec![id(0)] };
    let equal = vec![(PARTITION, 1 << 90)];
    vec![
        AntiEntropy::Roots { roots: equal.clone(), round: 3 },
        AntiEntropy::RootsAnswer { equal, at: vec![VIEWSTAMP], differ: vec![PARTITION], round: 3 },
        AntiEntropy::GroupsAsk { partition: PARTITION, round: 3, groups: vec![(1, 1 << 90)] },
        AntiEntropy::GroupsAnswer { partition: PARTITION, round: 3, at: VIEWSTAMP, equal: vec![1] },
        AntiEntropy::Recent { boot: 3, parts: vec![recent] },
        AntiEntropy::Want { boot: 3, parts: vec![want] },
        AntiEntropy::Need { partition: PARTITION, ids: vec![id(0)] },
        AntiEntropy::Steps { steps: steps() },
        AntiEntropy::Lacks { partition: PARTITION, id: id(0), holder: NODE },
        AntiEntropy::Tasks { partition: PARTITION, items: items(), by_buckets: true, forgets: Some(2) },
    ]
}

fn handoff() -> Vec<Handoff> {
    vec![
        Handoff::Hint { number: 8, partition: PARTITION, at: VIEWSTAMP, items: items(), forgets: None },
        Handoff::Hinted {
            number: 8,
            partition: PARTITION,
            outcomes: vec![Outcome::TooOld],
            boot: 3,
            at: VIEWSTAMP,
            incomplete: true,
            log: LOG,
        },
    ]
}

fn garbage_collection() -> Vec<GarbageCollection> {
    let compared = vec![(id(0), 1 << 100)];
    let tombstones = Arc::new(vec![(id(0), Tombstone { state: State::Done, at_ms: 7 })]);
    vec![
        GarbageCollection::Compare { partition: PARTITION, epoch: 3, number: 2, items: compared },
        GarbageCollection::Compared { partition: PARTITION, epoch: 3, number: 2, replica: REPLICA, same: vec![id(0)] },
        GarbageCollection::Tombs { partition: PARTITION, epoch: 3, number: 2, items: tombstones },
        GarbageCollection::Buried { partition: PARTITION, epoch: 3, number: 2, replica: REPLICA, log: LOG },
        GarbageCollection::Outboxes { partition: PARTITION, epoch: 3, number: 2, above: Some(id(0)), up_to: id(1) },
        GarbageCollection::Childless { partition: PARTITION, epoch: 3, number: 2, slots: 7 },
        GarbageCollection::Forget { partition: PARTITION, epoch: 3, count: 2 },
        GarbageCollection::Forgot { partition: PARTITION, epoch: 3, count: 2, replica: REPLICA, log: LOG },
        GarbageCollection::Gone { partition: PARTITION, forgets: 2, ids: vec![id(0)] },
    ]
}

fn claiming() -> Vec<Claiming> {
    let head = Some(Head { priority: -1, id: id(0), count: 12, served_ms: Some(1_000) });
    vec![
        Claiming::Probe { request_id: 2, queues: vec![queue()] },
        Claiming::Probed { request_id: 2, heads: vec![None, head], covered: vec![PARTITION] },
        Claiming::Pull { request_id: 2, queues: vec![queue()] },
        Claiming::Pulled { request_id: 2, partitions: vec![PARTITION], ready: vec![id(0)], more: true },
        Claiming::GrantAsk { request_id: 3, claim: Box::new(claim()), max: 2, recall: false, got: vec![id(0)] },
        Claiming::GrantAnswer {
            request_id: 3,
            claim: ClaimId(99),
            tasks: vec![(granted(), Some(VIEWSTAMP))],
            heads: vec![None, head],
            partitions: vec![PARTITION],
        },
        Claiming::Return { items: vec![(id(0), TOKEN, VIEWSTAMP)] },
        Claiming::ConfirmAsk { items: vec![(id(0), TOKEN, ClaimId(99))] },
        Claiming::ConfirmAnswer { settled: vec![(id(0), TOKEN)], back: vec![(id(1), TOKEN, VIEWSTAMP)] },
        Claiming::Leave { claim: ClaimId(99), keeps: vec![id(0)] },
        Claiming::Interest { queues: vec![(queue(), 4)] },
        Claiming::Available { queue: queue(), head },
        Claiming::Wake { partition: PARTITION, epoch: 5, ids: vec![id(0)] },
        Claiming::Led { partition: PARTITION, epoch: 5, leads: true },
    ]
}

fn limiting() -> Vec<Limiting> {
    vec![
        Limiting::PermitAsk { request_id: 5, queue: queue(), wanted: 3 },
        Limiting::Permits { request_id: 5, queue: queue(), count: 3, wait_ms: 0 },
        Limiting::PermitsBack { request_id: 5, queue: queue(), count: 2 },
        Limiting::QuotaAsk { partition: PARTITION, epoch: 3, request_id: 5, queue: queue(), keeps: 2, wants: 4 },
        Limiting::Quota { partition: PARTITION, epoch: 3, request_id: 5, queue: queue(), count: 4 },
        Limiting::QuotaCall { partition: PARTITION, queue: queue(), share: 1 },
    ]
}

fn workflow() -> Vec<Workflow> {
    let (key, ids) = (NonZeroU64::MIN, vec![id(0)]);
    let (open, ended) = (vec![id(0)], vec![id(1)]);
    let (coordinator, stamps, error) = (PartitionId(4), vec![(id(0), TaskVersion(7))], Error::unavailable("busy"));
    vec![
        Workflow::Follow { partition: PARTITION, ids: vec![id(0), id(1)] },
        Workflow::Ends { partition: PARTITION, ends: vec![(id(0), Settled::Done)], joins: vec![(id(0), id(2))] },
        Workflow::MemberFailed { member: MemberOf { group: id(0), number: 3 }, how: Settled::Dead },
        Workflow::KeyAsk { request_id: 5, partition: PARTITION, epoch: 3, queue: queue(), key, ids },
        Workflow::KeyAnswer { request_id: 5, partition: PARTITION, replica: REPLICA, open, ended },
        Workflow::Prepare { partition: PARTITION, coordinator, round: TOKEN, part: Box::new(transaction()) },
        Workflow::PartVote { coordinator, partition: PARTITION, id: id(9), round: TOKEN, vote: Vote::Prepared(stamps) },
        Workflow::PartVote {
            coordinator,
            partition: PARTITION,
            id: id(9),
            round: TOKEN,
            vote: Vote::Busy(Box::new(error)),
        },
        Workflow::Conclude { coordinator, partition: PARTITION, id: id(9), round: TOKEN, commit: true },
        Workflow::Concluded { coordinator, partition: PARTITION, id: id(9), round: TOKEN },
        Workflow::AskOutcome { coordinator, partition: PARTITION, id: id(9), round: TOKEN },
    ]
}
