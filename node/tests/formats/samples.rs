//! A value of each kind, with every field set to something.

use norn_client::wire::request::{Acks, NewTask, Request, Spec};
use norn_client::wire::response::*;
use norn_client::wire::{
    Claim, ClaimId, ClusterId, Completion, Error, ErrorCode, NodeId, PartitionId, QueueName, TaskId, Token,
};
use norn_node::protocol::consistent::cohort::{Change, Cohort, Told};
use norn_node::protocol::consistent::table::{Cell, CellState, Ended, Op, Table};
use norn_node::protocol::consistent::{ReplicaId, Viewstamp};
use norn_node::protocol::membership::DiskWord;
use norn_node::protocol::peer::{
    DoneFlag, Head, Heartbeat, Known, Level, LogWord, Outcome, PartitionCounts, RecentPart, Step, WantPart,
};
use norn_node::protocol::task::{Cancel, Completed, Facts, PastClaim, Task, Tomb};
use norn_node::protocol::{PeerMessage, Wound};
use norn_node::runtime::peers::PeerHello;
use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version whose bytes these are.
pub const OLDEST: u8 = 2;
/// Who speaks.
pub const NODE: NodeId = NodeId(0xabc);
const PARTITION: PartitionId = PartitionId(3);
const VIEWSTAMP: Viewstamp = Viewstamp { epoch: 5, length: 9 };
const TOKEN: Token = Token { epoch: 5, number: 8 };
const WORD: LogWord = LogWord { boot: 3, durable: 700, start: 0 };
const REPLICA: ReplicaId = ReplicaId { node: NODE, incarnation: 7 };
const AT_MS: u64 = 1_700_000_000_000;

fn id(number: u32) -> TaskId {
    TaskId::new(AT_MS, number, 77, 0x30_0000)
}

fn queue() -> QueueName {
    QueueName::new("mail").expect("a name")
}

fn spec() -> Spec {
    let headers = vec![("content-type".into(), "text/plain".into())];
    Spec {
        queue: queue(),
        payload: b"payload \xfe\xfd".to_vec(),
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

fn facts() -> Task {
    let past = PastClaim { start_ms: AT_MS, end_ms: AT_MS + 1, worker: "worker".into(), end: None };
    let completed =
        Completed { sequence: Some(1), result: Some(b"done".to_vec().into()), at_ms: AT_MS, children: None };
    Task::from_facts(Facts {
        updates: vec![((TOKEN, 0), b"half".to_vec().into())],
        completions: vec![(TOKEN, completed)],
        cancel: Some(Cancel { dead: true, reason: "no more".into(), at_ms: AT_MS }),
        claims: vec![(TOKEN, past)],
        conflict: true,
        settled: Vec::new(),
        seal: None,
        handed: Vec::new(),
        group: None,
        purged: false,
    })
}

fn buried() -> Task {
    Task { tomb: Some(Box::new(tomb())), ..Task::default() }
}

fn tomb() -> Tomb {
    Tomb { state: State::Done, at_ms: AT_MS }
}

fn items() -> Arc<Vec<(TaskId, Task)>> {
    Arc::new(vec![(id(0), Task::from_spec(Arc::new(spec()))), (id(1), facts()), (id(2), buried())])
}

fn told() -> Box<Told> {
    let founder = |node| ReplicaId { node: NodeId(node), incarnation: 1 };
    let founded = Cohort::founded(&[founder(1), founder(2), founder(3)]);
    let members = founded.members.iter().map(|seat| seat.replica).collect();
    let admit = Change::Admit { members, next: vec![founder(2), founder(4)] };
    let cohort = founded.changed(&admit, Viewstamp { epoch: 1, length: 1 }).expect("it fits");
    Box::new(Told { epoch: 5, cohort })
}

fn cell(state: CellState) -> Cell {
    Cell {
        token: TOKEN,
        renewed: VIEWSTAMP,
        attempt: 2,
        worker: "worker".into(),
        claim: ClaimId(99),
        lease_ms: 30_000,
        granted_ms: AT_MS,
        expires_ms: AT_MS + 30_000,
        state,
        past: vec![(TOKEN, PastClaim { start_ms: 1, end_ms: 2, worker: "other".into(), end: None })],
        session: None,
    }
}

fn operations() -> Vec<Arc<Op>> {
    let members = vec![REPLICA];
    let operations = vec![
        Op::Grant {
            claim: ClaimId(99),
            worker: "worker".into(),
            lease_ms: 30_000,
            granted_ms: AT_MS,
            items: vec![(id(0), 8), (id(1), 9)],
            session: None,
            lapsed: false,
        },
        Op::Renew { items: vec![(id(0), TOKEN, 30_000, AT_MS)] },
        Op::Release { id: id(0), token: TOKEN, not_before_ms: 5, at_ms: AT_MS, failed: true, end: None },
        Op::Void { items: vec![(id(1), TOKEN)] },
        Op::Kill { id: id(1), token: TOKEN, reason: "no more attempts".into(), at_ms: AT_MS, end: None },
        Op::Drop { items: vec![Ended { id: id(1), facts: facts() }] },
        Op::Clear { upto: VIEWSTAMP },
        Op::Forget { ids: vec![id(2)] },
        Op::Forgotten,
        Op::Cohort(Change::Admit { members: members.clone(), next: members }),
        Op::Cohort(Change::Join),
        Op::Cohort(Change::Settle { at_ms: AT_MS }),
        Op::Cohort(Change::Revert { at_ms: AT_MS }),
        Op::Cohort(Change::Clear { replica: REPLICA }),
    ];
    operations.into_iter().map(Arc::new).collect()
}

/// A table with something of everything. Its digest is a hash of such bytes, too, and must be the same on both sides.
fn table() -> Arc<Table> {
    let mut table = Table::new(vec![REPLICA, ReplicaId { node: NodeId(1), incarnation: 1 }]);
    let ends = CellState::Dead { reason: "no more".into(), at_ms: AT_MS, end: None };
    let states = [CellState::Held, CellState::Released { not_before_ms: 5, end: None }, CellState::Void, ends];
    table.cells = (0..).map(id).zip(states.map(cell)).collect();
    table.out = BTreeMap::from([(VIEWSTAMP, vec![Ended { id: id(9), facts: facts() }])]);
    table.forgetting.ids = vec![id(7)];
    table.cohort = Some(Box::new(told().cohort));
    Arc::new(table)
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

fn claim() -> Claim {
    Claim {
        claim: ClaimId(99),
        repeated: true,
        queues: vec![queue()],
        lease_ms: 30_000,
        wait_ms: 1_000,
        max: 10,
        worker: "worker".into(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: false,
    }
}

fn granted() -> Granted {
    Granted {
        id: id(0),
        token: TOKEN,
        queue: queue(),
        payload: b"payload".to_vec(),
        priority: 1,
        headers: vec![("a".into(), "b".into())],
        attempt: 2,
        lease_ms: 30_000,
        updates: vec![LogEntry { token: TOKEN, sequence: 0, data: b"half".to_vec() }],
        grouping: None,
        group: None,
    }
}

/// Without what came later.
pub fn heartbeat() -> Heartbeat {
    Heartbeat {
        boot: 3,
        number: 40,
        seen: (2, 39),
        sent_us: 1_000_000,
        echo_us: Some((999_000, 500)),
        wall_ms: AT_MS,
        hears: vec![NODE, NodeId(1)],
        leads_version: 4,
        leads: Some(vec![(PARTITION, 5, VIEWSTAMP)]),
        leads_known: (2, 6),
        commits: vec![(PARTITION, 5, 9)],
        standing: Standing::Suspect,
        holes: true,
        disk: DiskWord { sync_us: 700, slow: true },
        start: 1 << 60,
        durable: 700,
        seen_start: 1 << 61,
        remembers: 600,
        remembers_last: 700,
        offers: None,
        roster_version: 0,
    }
}

fn head() -> Head {
    Head { priority: -1, id: id(0), count: 12, served_ms: None }
}

fn known(holes: bool) -> Known {
    let told = holes.then(told);
    Known {
        task: facts(),
        cell: Some(cell(CellState::Held)),
        viewstamp: VIEWSTAMP,
        at: VIEWSTAMP,
        told,
        holes,
        lost: None,
    }
}

fn steps() -> Vec<Step> {
    let hashes = || ByteBuf::from(vec![7; 16]);
    let compare =
        |level| Step::Compare { partition: PARTITION, salt: 5, level, number: 9, filled: 5, hashes: hashes() };
    vec![
        compare(Level::Groups),
        compare(Level::Buckets),
        compare(Level::Cells),
        Step::List {
            partition: PARTITION,
            salt: 5,
            bucket: 700,
            cells: 3,
            after: Some(id(0)),
            upto: None,
            hashes: hashes(),
        },
        Step::Want { partition: PARTITION, salt: 5, bucket: 700, after: None, hashes: hashes() },
    ]
}

fn elections() -> Vec<PeerMessage> {
    use PeerMessage as M;
    let (partition, epoch, viewstamp, replica) = (PARTITION, 6, VIEWSTAMP, REPLICA);
    vec![
        M::Heartbeat(Box::new(heartbeat())),
        M::PreVote { partition, epoch, viewstamp },
        M::PreVoteAnswer { partition, epoch, granted: true, promised: 5, viewstamp },
        M::Vote { partition, epoch, candidate: replica, viewstamp },
        M::VoteAnswer { partition, epoch, replica, granted: true, promised: 5, viewstamp, log: WORD },
        M::Fetch { partition, viewstamp },
        M::State { partition, viewstamp, table: table() },
        M::Transfer { partition, epoch },
        M::Install { partition, epoch, base: viewstamp, table: Some(table()), digest: [7; 16] },
        M::Install {
            partition,
            epoch,
            base: viewstamp,
            table: None,
            digest: table().digest_recomputed().to_be_bytes(),
        },
        M::Snapshot { partition, viewstamp, table: table(), commit: 4 },
        M::Ops { partition, epoch, first: 9, ops: operations(), commit: 8, digest: [7; 16] },
    ]
}

fn replication() -> Vec<PeerMessage> {
    use PeerMessage as M;
    let (partition, epoch, viewstamp, replica) = (PARTITION, 6, VIEWSTAMP, REPLICA);
    let ack = |wound| {
        let done = vec![DoneFlag { id: id(0), token: TOKEN, ending: facts() }];
        M::Ack { partition, epoch, replica, length: 9, done, missing: vec![id(1)], log: WORD, wound }
    };
    vec![
        ack(Wound::default()),
        ack(Wound { facts: true, table: false }),
        M::Nack { partition, replica, promised: 7, viewstamp },
        M::Rejoin { partition, ask: 1, viewstamp },
        M::Rejoined { partition, ask: 1, viewstamp },
        M::Ready { partition, replica, at: viewstamp, ready: true, facts: 12, log: WORD },
        M::Dismiss { partition, at: viewstamp },
        M::Outside { partition, told: told() },
        M::Arrange { partition, nodes: vec![NodeId(1), NODE] },
        M::RouteAsk { partitions: vec![partition] },
        M::Route { partition, told: told() },
        M::Wake { partition, epoch, ids: vec![id(0)] },
        M::Led { partition, epoch, leads: true },
    ]
}

fn writes() -> Vec<PeerMessage> {
    use Outcome as O;
    use PeerMessage as M;
    let (partition, at, replica) = (PARTITION, VIEWSTAMP, REPLICA);
    let outcomes = || vec![O::Stored, O::StoredOrphan, O::Conflict, O::Future, O::Overloaded, O::TooOld, O::NoSpace];
    let written = |holes: bool| M::Written {
        ask: 1,
        partition,
        replica,
        outcomes: outcomes(),
        boot: 3,
        at,
        told: holes.then(told),
        log: WORD,
        holes,
    };
    let known = |holes: bool| M::Known { ask: 3, partition, replica, known: Box::new(known(holes)) };
    let queues = vec![(queue(), [1, 2, 3, 4, 5, 6])];
    let counts = PartitionCounts {
        partition,
        root: [9; 16],
        viewstamp: VIEWSTAMP,
        at,
        leads: true,
        queues,
        permits: Vec::new(),
    };
    vec![
        M::Write { ask: 1, partition, at, items: items() },
        written(false),
        written(true),
        M::Kept { ask: 1, partition, outcomes: outcomes() },
        M::Read { ask: 3, partition, at, id: id(0) },
        known(false),
        known(true),
        M::CountAsk { ask: 4, queue: Some(queue()) },
        M::CountAnswer { ask: 4, partitions: vec![counts] },
        M::ListAsk { ask: 5, partition: Some(partition), queue: None, after: Some(id(0)), to: Some(id(9)), limit: 50 },
        M::ListAnswer {
            ask: 5,
            partitions: vec![(partition, at)],
            tasks: vec![(id(1), self::known(false))],
            end: None,
        },
    ]
}

fn exchange() -> Vec<PeerMessage> {
    use PeerMessage as M;
    let (partition, epoch, at, replica) = (PARTITION, 6, VIEWSTAMP, REPLICA);
    let roots = |round| M::Roots { roots: vec![(partition, 1 << 90)], round };
    let equal = || vec![(partition, 1 << 90)];
    let answer = |round| M::RootsAnswer { equal: equal(), at: vec![at], differ: vec![PartitionId(1)], round };
    let hinted = |holes: bool| M::Hinted {
        number: 8,
        partition,
        outcomes: vec![Outcome::Stored],
        boot: 3,
        at,
        log: WORD,
        holes,
    };
    vec![
        roots(0),
        roots(3),
        answer(0),
        answer(3),
        M::Recent { boot: 3, parts: vec![RecentPart { partition, upto: 9, tasks: vec![(id(0), 1 << 100)] }] },
        M::Want { boot: 3, parts: vec![WantPart { partition, upto: Some(9), ids: vec![id(0)] }] },
        M::Need { partition, ids: vec![id(0)] },
        M::Steps { steps: steps() },
        M::Lacks { partition, id: id(0), holder: NODE },
        M::Tasks { partition, items: items(), by_buckets: true, forgets: Some(4) },
        M::Hint { number: 8, partition, at, items: items(), forgets: None },
        hinted(false),
        hinted(true),
        M::Gone { partition, forgets: 4, ids: vec![id(0)] },
        M::Compare { partition, epoch, number: 2, items: vec![(id(0), 1 << 100)] },
        M::Compared { partition, epoch, number: 2, replica, same: vec![id(0)] },
        M::Tombs { partition, epoch, number: 2, items: Arc::new(vec![(id(0), tomb())]) },
        M::Buried { partition, epoch, number: 2, replica, log: WORD },
        M::Forget { partition, epoch, count: 4 },
        M::Forgot { partition, epoch, count: 4, replica, log: WORD },
    ]
}

fn claims() -> Vec<PeerMessage> {
    use PeerMessage as M;
    let forward = |request: Request| M::Forward { ask: 4, request: Box::new(request) };
    let forwarded = |response: Response| M::Forwarded { ask: 4, response: Box::new(response) };
    let fails = Request::Fail {
        id: id(0),
        token: TOKEN,
        reason: "broken".into(),
        retry_in_ms: 5,
        invalid: true,
        retry_open: false,
    };
    vec![
        M::Probe { ask: 2, queues: vec![queue()] },
        M::Probed { ask: 2, heads: vec![Some(head()), None], covered: vec![PARTITION] },
        M::Pull { ask: 2, queues: vec![queue()] },
        M::Pulled { ask: 2, partitions: vec![PARTITION], ready: vec![id(0)], more: true },
        M::GrantAsk { ask: 3, claim: Box::new(claim()), max: 2, recall: true, got: Vec::new() },
        M::GrantAnswer {
            ask: 3,
            claim: ClaimId(99),
            tasks: vec![(granted(), Some(VIEWSTAMP))],
            heads: vec![Some(head())],
            partitions: Vec::new(),
        },
        M::Return { items: vec![(id(0), TOKEN, VIEWSTAMP)] },
        M::Interest { queues: vec![(queue(), 3)] },
        M::Available { queue: queue(), head: Some(head()) },
        forward(Request::Renew { items: vec![(id(0), TOKEN)], lease_ms: Some(5) }),
        forward(Request::Release { id: id(0), token: TOKEN }),
        forward(fails),
        forwarded(Response::Renewed(vec![Ok(30_000), Err(Error::new(ErrorCode::Superseded, "taken over"))])),
        forwarded(Response::Done),
        forwarded(Response::Error(Error::unavailable("no leader").about(id(0)))),
    ]
}

/// Messages of every kind, and of each way in which some are written.
pub fn messages() -> Vec<PeerMessage> {
    [elections(), replication(), writes(), exchange(), claims()].concat()
}

/// Every request.
pub fn requests() -> Vec<Request> {
    let tasks = vec![NewTask { id: id(0), spec: spec() }];
    let result = Some(ByteBuf::from(b"done".to_vec()));
    let completion = Completion { id: id(0), token: TOKEN, sequence: Some(2), result, at_ms: 3, children: Vec::new() };
    vec![
        Request::Hello { name: "wire".into(), bare: false },
        Request::Enqueue { tasks, acks: Acks::Quorum },
        Request::Update { id: id(0), token: TOKEN, sequence: 1, data: b"half".to_vec(), acks: Acks::All },
        Request::Complete { items: vec![completion], acks: Acks::One },
        Request::Cancel { id: id(0), reason: "not wanted".into(), at_ms: AT_MS, acks: Acks::Quorum },
        Request::Get { id: id(0), minimum: Some((TOKEN, 4)), minimum_sequence: Some(1) },
        Request::Wait { id: id(0), timeout_ms: 5_000 },
        Request::List {
            queue: Some(queue()),
            state: Some(State::Ready),
            after: Some(id(1)),
            from: None,
            to: Some(id(9)),
            limit: 50,
        },
        Request::Count { queue: None, state: Some(State::Dead) },
        Request::Queues,
        Request::Claim(claim()),
        Request::Renew { items: vec![(id(0), TOKEN)], lease_ms: Some(1_000) },
        Request::Release { id: id(0), token: TOKEN },
        Request::Fail {
            id: id(0),
            token: TOKEN,
            reason: "broken".into(),
            retry_in_ms: 5,
            invalid: false,
            retry_open: false,
        },
        Request::Nodes,
        Request::Ring,
        Request::Partitions,
        Request::Arrange { partition: PARTITION, nodes: vec![NodeId(1), NodeId(2)] },
        Request::Status,
        Request::Identify,
        Request::Initialize(Box::new(genesis())),
    ]
}

fn view() -> TaskView {
    let view = ClaimView {
        token: TOKEN,
        start_ms: 1,
        end_ms: Some(2),
        completed_ms: None,
        worker: "worker".into(),
        rejected: None,
        superseded: None,
        end: None,
        session: None,
    };
    TaskView {
        id: id(0),
        state: State::Claimed,
        spec: spec(),
        claims: vec![view],
        updates: vec![LogEntry { token: TOKEN, sequence: 0, data: b"half".to_vec() }],
        result: Some(ByteBuf::from(b"done".to_vec())),
        reason: Some("no more".into()),
        log_incomplete: true,
        conflict: false,
        waits_for: Vec::new(),
        children: Vec::new(),
        children_open: false,
        version: None,
        ended_ms: None,
        next_attempt_ms: None,
        lost: None,
        redriven: Vec::new(),
        group: None,
    }
}

fn partition_view() -> PartitionView {
    PartitionView {
        partition: PARTITION,
        cohort: vec![NODE],
        leader: Some(NODE),
        epoch: 5,
        applied: 9,
        tasks: Some(4),
        claims: Some(1),
        root: Some(ByteBuf::from(vec![9; 16])),
        health: Some(Health::Holes),
        tombstones: Some(2),
        held_up_by: vec![NODE],
        agreements: vec![Agreement { node: NODE, agreed_ms: Some(5), apart: true, differing: Some(7) }],
        next: vec![NodeId(1)],
        leaving: vec![NodeId(2)],
    }
}

/// The state of a cluster, all of which is counted.
pub fn status() -> Status {
    Status {
        cluster: ClusterId(0xc1),
        name: "norn".into(),
        node: NODE,
        boot: 3,
        nodes: (3, 2),
        partitions: (16, 15),
        counts: [1, 2, 3, 4, 5, 6],
        counters: vec![("events".into(), 12)],
        uncounted: 0,
    }
}

/// Every answer but the view of nodes, which has got a field since.
pub fn answers() -> Vec<Response> {
    let acked = Acked { id: id(0), acks: 2, replicas: 3, guarantee: Guarantee::Strict };
    let error = Error::new(ErrorCode::NotFound, "there is no such task");
    let identity = Identity {
        node: NODE,
        incarnation: 7,
        name: "n1".into(),
        address: "n1:7400".into(),
        zone: "here".into(),
        genesis: Some(Box::new(genesis())),
        serving: true,
    };
    vec![
        Response::Welcome(Welcome {
            node: NODE,
            cluster: ClusterId(0xc1),
            time_ms: AT_MS,
            minter: 77,
            refusal: None,
            clock_ms: None,
        }),
        Response::Acked(vec![Ok(acked), Err(error.clone())]),
        Response::AckedOne(Acked { guarantee: Guarantee::Sloppy, ..acked }),
        Response::Task(Box::new(view())),
        Response::Page(Page { tasks: vec![view()], next: Some(id(1)) }),
        Response::Count(12),
        Response::Queues(vec![QueueCounts { queue: queue(), counts: [1, 2, 3, 4, 5, 6], permit_in_ms: None }]),
        Response::Claimed { tasks: vec![granted()], unavailable: 1, left: 0 },
        Response::Renewed(vec![Ok(30_000), Err(error.clone())]),
        Response::Done,
        Response::Partitions(vec![partition_view()]),
        Response::Status(Box::new(status())),
        Response::Identity(Box::new(identity)),
        Response::Error(error.about(id(0))),
    ]
}

/// The hello of a node that speaks one version.
pub fn hello() -> PeerHello {
    PeerHello {
        version: OLDEST,
        newest: None,
        features: 0,
        cluster: ClusterId(0xc1),
        from: NODE,
        to: NodeId(1),
        bulk: true,
        process: 9,
    }
}
