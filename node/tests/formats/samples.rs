//! Sample records with the content of logs of earlier versions.

use norn_model::claim_table::table::{ClaimEntry, ClaimState, ClaimTable, Ended, Op};
use norn_model::cohort::{AdvertisedCohort, Change, Cohort};
use norn_model::record::Record;
use norn_model::task::{Cancel, Children, Completed, Facts, PastClaim, Settled, Task, Tombstone};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::membership::{QueuePolicy, QueueSetting, Roster};
use norn_wire::request::Spec;
use norn_wire::response::{Genesis, Member, State};
use norn_wire::{ClaimId, ClusterId, NewTask, NodeId, PartitionId, QueueName, TaskId, Token};
use std::collections::BTreeMap;
use std::sync::Arc;

const NODE: NodeId = NodeId(0xabc);
const PARTITION: PartitionId = PartitionId(3);
const VIEWSTAMP: Viewstamp = Viewstamp { epoch: 5, length: 9 };
const TOKEN: Token = Token { epoch: 5, number: 8 };
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
    Task { tombstone: Some(Box::new(tombstone())), ..Task::default() }
}

fn tombstone() -> Tombstone {
    Tombstone { state: State::Done, at_ms: AT_MS }
}

fn items() -> Arc<Vec<(TaskId, Task)>> {
    Arc::new(vec![(id(0), Task::from_spec(Arc::new(spec()))), (id(1), facts()), (id(2), buried())])
}

fn advertised() -> Box<AdvertisedCohort> {
    let founder = |node| ReplicaId { node: NodeId(node), incarnation: 1 };
    let founded = Cohort::founded(&[founder(1), founder(2), founder(3)]);
    let members = founded.members.iter().map(|slot| slot.replica).collect();
    let admit = Change::Admit { members, next: vec![founder(2), founder(4)] };
    let cohort = founded.changed(&admit, Viewstamp { epoch: 1, length: 1 }).expect("it fits");
    Box::new(AdvertisedCohort { epoch: 5, cohort })
}

fn entry(state: ClaimState) -> ClaimEntry {
    ClaimEntry {
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
        Op::Drop { items: Arc::from([Ended { id: id(1), facts: facts() }]) },
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

/// A table with some of everything. Its digest is a hash of these bytes, too, and must be the same on both sides.
fn table() -> Arc<ClaimTable> {
    let mut table = ClaimTable::new(vec![REPLICA, ReplicaId { node: NodeId(1), incarnation: 1 }]);
    let ends = ClaimState::Dead { reason: "no more".into(), at_ms: AT_MS, end: None };
    let states = [ClaimState::Held, ClaimState::Released { not_before_ms: 5, end: None }, ClaimState::Void, ends];
    table.entries = (0..).map(id).zip(states.map(entry)).collect();
    table.out = BTreeMap::from([(VIEWSTAMP, Arc::from([Ended { id: id(9), facts: facts() }]))]);
    table.forgetting.ids = vec![id(7)];
    table.cohort = Some(Box::new(advertised().cohort));
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

/// Tasks with all fields that others leave out.
fn later() -> Arc<Vec<(TaskId, Task)>> {
    let spec = Spec { after: vec![id(1)], key: Some("key".into()), ..spec() };
    let children = Children::new(vec![NewTask { id: id(8), spec: spec.clone() }]);
    let completed = Completed { sequence: Some(1), result: None, at_ms: AT_MS, children };
    let facts = Facts {
        completions: vec![(TOKEN, completed)],
        settled: vec![(id(1), Settled::Done)],
        seal: Some(TOKEN),
        handed: vec![TOKEN],
        purged: true,
        ..Facts::default()
    };
    Arc::new(vec![(id(0), Task::from_spec(Arc::new(spec))), (id(3), Task::from_facts(facts))])
}

fn roster() -> Arc<Roster> {
    let name = |name: &str| QueueName::new(name).expect("a name");
    let policies = [
        (name("none"), QueuePolicy::default()),
        (name("paused"), QueuePolicy::default().with(QueueSetting::Paused(true))),
        (name("slow"), QueuePolicy::default().with(QueueSetting::Concurrency(Some(7)))),
    ];
    Arc::new(Roster { version: 9, policies: policies.into(), ..Roster::default() })
}

/// Records with bytes that enter digests on which all replicas, and logs of earlier versions, must agree.
pub fn of_digests() -> Vec<Record> {
    let partition = PARTITION;
    vec![
        Record::Genesis(Arc::new(genesis())),
        Record::Roster(roster()),
        Record::Left { partition, advertised: advertised() },
        Record::Facts { partition, items: items() },
        Record::Facts { partition, items: later() },
        Record::Hint { partition, since_ms: AT_MS, items: items() },
    ]
}

/// Records that are now written with more fields than before.
pub fn of_tables() -> Vec<Record> {
    let partition = PARTITION;
    vec![
        Record::Install { partition, viewstamp: VIEWSTAMP, table: Some(table()) },
        Record::Install { partition, viewstamp: VIEWSTAMP, table: None },
        Record::Ops { partition, after: VIEWSTAMP, ops: operations() },
    ]
}
