//! Tasks of one queue with the same key: one at a time, the oldest first.

use super::*;
use norn_model::claim_table::table::{ClaimEntry, ClaimState};
use norn_model::task::Outline;
use norn_model::viewstamp::Viewstamp;
use norn_wire::Granted;
use norn_wire::membership::{Backoff, QueueSetting};

impl Cluster {
    pub(super) fn enqueue_with(&mut self, index: usize, key: &str) -> Result<TaskId, Error> {
        let spec = Spec { key: Some(key.to_owned()), ..spec(key.as_bytes(), 0) };
        let id = self.id(spec.tag().expect("it has a key"));
        match self.ask(index, Request::Enqueue { tasks: vec![NewTask { id, spec }], acks: Acks::Quorum }) {
            Response::Acked(mut results) => results.remove(0).map(|acked| acked.id),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

impl Cluster {
    pub(super) fn claim_some(&mut self, index: usize, lease_ms: u64, max: u32) -> Vec<Granted> {
        self.number += 1;
        let claim = claim_of(ClaimId(1_000 + u128::from(self.number)), lease_ms, max);
        match self.ask(index, Request::Claim(claim)) {
            Response::Claimed { tasks, .. } => tasks,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn prolong(&mut self, index: usize, granted: &Granted, lease_ms: u64) -> Result<(), ErrorCode> {
        let items = vec![(granted.id, granted.token)];
        match self.ask(index, Request::Renew { items, lease_ms: Some(lease_ms) }) {
            Response::Renewed(mut results) => results.remove(0).map(drop).map_err(|error| error.code),
            Response::Error(error) => Err(error.code),
            other => panic!("{other:?}"),
        }
    }
}

fn keyed(size: usize) -> Cluster {
    let mut cluster = Cluster::new(size);
    cluster.connect_all();
    cluster
}

// O15
#[test]
fn tasks_with_one_key_are_granted_one_at_a_time_and_in_order() {
    let mut cluster = keyed(3);
    let ids: Vec<TaskId> = (0..3).map(|index| cluster.enqueue_with(index, "a").expect("it is stored")).collect();
    let other = cluster.enqueue_with(0, "b").expect("it is stored");
    let mut granted: Vec<_> = (0..2).flat_map(|index| cluster.claim(index, 60_000)).collect();
    granted.sort_by_key(|granted| granted.id);
    assert_eq!(granted.iter().map(|granted| granted.id).collect::<BTreeSet<_>>(), BTreeSet::from([ids[0], other]));
    assert_eq!(cluster.claim(2, 1_000), Vec::new(), "it is nobody else's turn");
    let first = granted.iter().find(|granted| granted.id == ids[0]).expect("just seen").token;
    assert!(matches!(cluster.complete(2, ids[0], first), Response::Acked(_)));
    cluster.advance(1_000);
    let second = cluster.claim(1, 500).remove(0);
    assert_eq!(second.id, ids[1]);
    // A task that fails is tried again before the next one's turn comes, also if its lease expired.
    cluster.advance(2_000);
    let again = cluster.claim(0, 60_000).remove(0);
    assert_eq!((again.id, again.attempt), (ids[1], 2));
    let retry_in_ms = 5_000;
    let (id, token, reason) = (again.id, again.token, String::new());
    let fail = Request::Fail { id, token, reason, retry_in_ms, invalid: false, retry_open: false };
    assert_eq!(cluster.ask(1, fail), Response::Done);
    assert_eq!(cluster.claim(2, 1_000), Vec::new(), "the older one waits, and so do those behind it");
    let cancel = Request::Cancel { id, reason: String::new(), at_ms: 1, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    cluster.advance(1_000);
    assert_eq!(cluster.claim(2, 1_000).remove(0).id, ids[2]);
}

/// A claim for many tasks gets one of a key, and the next leader knows whose turn it is.
#[test]
fn the_turn_survives_the_leader() {
    let mut cluster = keyed(3);
    let ids: Vec<TaskId> = (0..3).map(|_| cluster.enqueue_with(0, "a").expect("it is stored")).collect();
    let claim = claim_of(ClaimId(7), 3_600_000, 3);
    let Response::Claimed { tasks, .. } = cluster.ask(1, Request::Claim(claim)) else { panic!("it is granted") };
    assert_eq!(tasks.iter().map(|granted| granted.id).collect::<Vec<_>>(), [ids[0]]);
    let leader = cluster.leader(&ids[0]);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.claim(next, 1_000), Vec::new());
    assert!(matches!(cluster.complete(next, ids[0], tasks[0].token), Response::Acked(_)));
    cluster.advance(1_000);
    assert_eq!(cluster.claim(next, 1_000).remove(0).id, ids[1]);
}

/// Goal: a leader that does not know which keys are held does not grant a task that may have the same key. Method: its replica has the
/// claim and not the task.
#[test]
fn nobody_s_turn_comes_while_it_is_not_known_what_is_held() {
    let mut cluster = keyed(3);
    let ids: Vec<TaskId> = (0..2).map(|_| cluster.enqueue_with(0, "a").expect("it is stored")).collect();
    let config = cluster.nodes[0].config.clone();
    let leader = cluster.leader(&ids[0]);
    let node = &mut cluster.nodes[leader];
    let partition = node.partition_of(&ids[0]);
    let replica = node.partitions.get_mut(&partition).expect("it is held");
    assert!(replica.knows_keys(&config));
    let rank = |replica: &Partition| {
        let index = replica.store.index().queue(&spec(b"", 0).queue).expect("it is indexed");
        (index.head(replica.knows_keys(&config)).map(|(_, id)| id), index.ready_count(replica.knows_keys(&config)))
    };
    assert_eq!(rank(replica), (Some(ids[0]), 1));
    let entry = ClaimEntry {
        token: Token { epoch: 1, number: 1 },
        renewed: Viewstamp::default(),
        attempt: 1,
        worker: "w".into(),
        claim: ClaimId(1),
        lease_ms: 1_000,
        granted_ms: 1,
        expires_ms: 2,
        state: ClaimState::Held,
        past: Vec::new(),
        session: None,
    };
    let unknown = TaskId::new(1, 1, 1, ids[0].tag());
    replica.consensus.table.entries.insert(unknown, entry);
    let inherited = replica.unknown_claims();
    assert_eq!(inherited, BTreeSet::from([unknown]));
    replica.consensus.leading_mut().expect("it leads").unknown = inherited;
    assert!(!replica.learn_keys());
    assert_eq!(rank(replica), (None, 0));
    replica.consensus.table.entries.remove(&unknown);
    assert!(replica.learn_keys() && !replica.learn_keys());
    assert_eq!(rank(replica), (Some(ids[0]), 1));
}

/// Goal: tasks that wait for one behind them, or for tomorrow, hold up none with their key. Method: an older task waits for a younger
/// one.
#[test]
fn who_was_never_claimable_keeps_no_turn() {
    for not_before_ms in [u64::MAX / 2, u64::MAX] {
        keeps_no_turn(not_before_ms);
    }
}

fn keeps_no_turn(not_before_ms: u64) {
    let mut cluster = keyed(3);
    let key = |spec: Spec| Spec { key: Some("a".into()), ..spec };
    let tag = key(spec(b"", 0)).tag().expect("it has a key");
    let ids: Vec<TaskId> = (0..3).map(|_| cluster.id(tag)).collect();
    let specs = [
        Spec { after: vec![ids[2]], ..spec(b"first", 0) },
        Spec { not_before_ms, ..spec(b"second", 0) },
        spec(b"third", 0),
    ];
    let tasks = ids.iter().zip(specs).map(|(id, spec)| NewTask { id: *id, spec: key(spec) }).collect();
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    for id in [ids[2], ids[0]] {
        cluster.advance(1_000);
        let granted = cluster.claim(1, 1_000).remove(0);
        assert_eq!(granted.id, id);
        assert!(matches!(cluster.complete(2, id, granted.token), Response::Acked(_)));
    }
}

/// Goal: an expired claim may be prolonged only until another task with its key has had its turn, whichever node leads then. Method: an
/// older task waits while a younger one with its key is claimed, and is granted once that one's lease has expired. Then its own lease
/// expires, and the next leader knows of neither end.
#[test]
fn a_claim_is_not_prolonged_once_it_has_been_another_ones_turn() {
    let mut cluster = Cluster::modern(3);
    let key = |spec: Spec| Spec { key: Some("a".into()), ..spec };
    let tag = key(spec(b"", 0)).tag().expect("it has a key");
    let (older, younger, other) = (cluster.id(tag), cluster.id(tag), cluster.id(tag ^ 1));
    let tasks = [
        (other, spec(b"other", 0)),
        (older, key(Spec { after: vec![other], ..spec(b"", 0) })),
        (younger, key(spec(b"", 0))),
    ];
    let tasks = tasks.into_iter().map(|(id, spec)| NewTask { id, spec }).collect();
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
    let mut granted = cluster.claim_some(0, 1_000, 2);
    granted.sort_by_key(|granted| granted.id == other);
    let (first, last) = (granted[0].clone(), granted[1].clone());
    assert_eq!((first.id, last.id), (younger, other));
    assert!(matches!(cluster.complete(0, other, last.token), Response::Acked(_)));
    cluster.advance(3_000);
    assert_eq!(cluster.prolong(1, &first, 1_000), Ok(()), "nobody else had it");
    cluster.advance(3_000);
    let second = cluster.claim(1, 1_000).remove(0);
    assert_eq!(second.id, older);
    assert_eq!(cluster.prolong(2, &first, 1_000), Err(ErrorCode::Superseded));
    assert_eq!(cluster.prolong(2, &second, 1_000), Ok(()));
    cluster.advance(3_000);
    assert_eq!(cluster.prolong(1, &first, 60_000), Ok(()), "nobody has it again");
    assert_eq!(cluster.prolong(1, &second, 60_000), Err(ErrorCode::Superseded));
    let leader = cluster.leader(&older);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.prolong(next, &second, 60_000), Err(ErrorCode::Superseded));
    assert_eq!(cluster.prolong(next, &first, 60_000), Ok(()));
}

/// Goal: a task that is lost, as one node alone had it and not all disks came back, does not keep its key for longer than its claim
/// lasts, and its holder cannot renew the claim then. Method: no log has it, and some queue's tasks wait after an expired claim, so
/// that it is not known what would become of this one.
#[test]
fn the_key_of_a_task_that_nobody_knows_is_free_once_its_lease_is_over() {
    let mut cluster = Cluster::modern(3);
    let backoff = Some(Backoff { first_ms: 1_000, most_ms: 1_000, jitter_percent: 0 });
    assert!(policies::is_changed(&cluster.set(0, "other", QueueSetting::Backoff(backoff))));
    let lost = cluster.enqueue_with(0, "a").expect("it is stored");
    let granted = cluster.claim(1, 5_000).remove(0);
    assert_eq!(granted.id, lost);
    let next = cluster.enqueue_with(1, "a").expect("it is stored");
    // No node is left to remember how long the logs were.
    cluster.down.extend(0..3);
    for index in 0..3 {
        let is_lost = |record: &Record| matches!(record, Record::Facts { items, .. } if items[0].0 == lost);
        cluster.logs[index].retain(|record| !is_lost(record));
    }
    (0..3).for_each(|index| cluster.restart(index));
    cluster.connect_all();
    cluster.run_until(|cluster| cluster.nodes[0].partitions.keys().all(|id| cluster.nodes[0].has_leader(*id)));
    assert_eq!(cluster.claim_some(0, 1_000, 1), Vec::new(), "it may have any key");
    assert_eq!(cluster.prolong(1, &granted, 5_000), Ok(()), "it is held");
    cluster.advance(15_000);
    let over = Err(ErrorCode::Unknown);
    assert_eq!(cluster.prolong(1, &granted, 5_000), over, "whose turn it is next would not be known");
    let second = cluster.claim(2, 60_000).remove(0);
    assert_eq!(second.id, next);
    assert_eq!(cluster.prolong(1, &granted, 5_000), over);
}

#[test]
fn a_key_that_breaks_a_rule_is_refused() {
    let mut cluster = keyed(3);
    for (key, what) in [(String::new(), "empty"), ("k".repeat(256), "255")] {
        let refused = cluster.enqueue_with(0, &key).expect_err("it is refused");
        assert!(refused.code == ErrorCode::Invalid && refused.message.contains(what), "{}", refused.message);
    }
    let spec = Spec { key: Some("a".into()), ..spec(b"x", 0) };
    let id = cluster.id(spec.tag().expect("it has a key") ^ 1);
    let tasks = vec![NewTask { id, spec: spec.clone() }];
    match cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }) {
        Response::Error(error) => assert_eq!(error.code, ErrorCode::Invalid),
        other => panic!("{other:?}"),
    }
    assert!(Outline::new(Arc::new(spec)).key().is_some());
}
