//! Several tasks of a key at once, and keys that take turns.

use super::policies::is_changed;
use super::*;
use norn_wire::Granted;
use norn_wire::error::ErrorCode;
use norn_wire::membership::{KeyConcurrency, Order, QueueSetting};

fn keys(most: u32) -> QueueSetting {
    QueueSetting::KeyConcurrency(KeyConcurrency::Most(most))
}

fn queue_with(setting: QueueSetting) -> Cluster {
    let mut cluster = Cluster::modern(3);
    assert!(is_changed(&cluster.set(0, "mail", setting)));
    cluster
}

impl Cluster {
    fn fill(&mut self, key: &str, count: usize) -> Vec<TaskId> {
        (0..count).map(|index| self.enqueue_with(index % 3, key).expect("it is stored")).collect()
    }

    fn stop(&mut self, granted: &Granted) {
        assert!(matches!(self.complete(1, granted.id, granted.token), Response::Acked(_)));
        self.advance(500);
    }
}

fn ids(granted: &[Granted]) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = granted.iter().map(|granted| granted.id).collect();
    ids.sort();
    ids
}

#[test]
fn as_many_tasks_of_a_key_are_held_as_may_be_whoever_leads() {
    let mut cluster = queue_with(keys(3));
    let tasks = cluster.fill("a", 10);
    let mut held = cluster.claim_some(0, 600_000, 10);
    assert_eq!(ids(&held), tasks[..3], "the oldest");
    cluster.stop(&held.remove(0));
    held.extend(cluster.claim_some(1, 600_000, 10));
    assert_eq!(ids(&held), tasks[1..4]);
    let leader = cluster.leader(&tasks[0]);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.claim_some(next, 600_000, 10), Vec::new(), "three are held");
    for granted in &held {
        assert_eq!(cluster.prolong(next, granted, 600_000), Ok(()), "nobody has their turn");
    }
    assert!(matches!(cluster.complete(next, held[0].id, held[0].token), Response::Acked(_)));
    cluster.advance(500);
    assert_eq!(ids(&cluster.claim_some(next, 600_000, 10)), tasks[4..5]);
}

/// A task that waits for its next attempt keeps its slot, as it does when only one is allowed.
#[test]
fn who_is_to_be_tried_again_keeps_a_place() {
    let mut cluster = queue_with(keys(2));
    let tasks = cluster.fill("a", 4);
    let held = cluster.claim_some(0, 600_000, 10);
    let (id, token, reason) =
        (tasks[0], held.iter().find(|one| one.id == tasks[0]).expect("held").token, String::new());
    let fail = Request::Fail { id, token, reason, retry_in_ms: 5_000, invalid: false, retry_open: false };
    assert_eq!(cluster.ask(1, fail), Response::Done);
    assert_eq!(cluster.claim_some(2, 600_000, 10), Vec::new());
    cluster.advance(6_000);
    assert_eq!(ids(&cluster.claim_some(2, 600_000, 10)), tasks[..1]);
}

/// Goal: with a raised number more are granted at once; with a lowered one no held claim ends, and nothing is granted before enough
/// have ended.
#[test]
fn the_number_may_be_changed_at_any_time() {
    let mut cluster = Cluster::modern(3);
    let tasks = cluster.fill("a", 9);
    let mut held = cluster.claim_some(0, 600_000, 10);
    assert_eq!(ids(&held), tasks[..1]);
    for (setting, expected) in [(keys(4), 4), (QueueSetting::KeyConcurrency(KeyConcurrency::Any), 9)] {
        assert!(is_changed(&cluster.set(1, "mail", setting)));
        held.extend(cluster.claim_some(1, 600_000, 10));
        assert_eq!(ids(&held), tasks[..expected]);
    }
    cluster.fill("a", 1);
    assert!(is_changed(&cluster.set(1, "mail", keys(2))));
    for left in (2..9).rev() {
        for granted in &held {
            assert_eq!(cluster.prolong(0, granted, 600_000), Ok(()), "{left}");
        }
        cluster.stop(&held.remove(0));
        assert_eq!((cluster.claim_some(2, 600_000, 10).len(), held.len()), (0, left));
    }
    cluster.stop(&held.remove(0));
    assert_eq!(cluster.claim_some(2, 600_000, 10).len(), 1);
    for refused in [0, 1_001] {
        match cluster.set(0, "mail", keys(refused)) {
            Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: an expired claim is not prolonged beside the maximum of held ones, whichever node leads then.
#[test]
fn a_claim_that_ran_out_is_not_held_beside_as_many_as_may_be() {
    let mut cluster = queue_with(keys(2));
    let tasks = cluster.fill("a", 3);
    let long = cluster.claim_some(0, 600_000, 1).remove(0);
    let short = cluster.claim_some(0, 1_000, 1).remove(0);
    cluster.advance(3_000);
    let again = cluster.claim_some(1, 600_000, 1).remove(0);
    assert_eq!((long.id, short.id, again.id), (tasks[0], tasks[1], tasks[1]));
    assert_eq!(cluster.prolong(2, &short, 600_000), Err(ErrorCode::Superseded));
    cluster.stop(&again);
    let third = cluster.claim_some(1, 1_000, 1).remove(0);
    cluster.advance(3_000);
    assert_eq!(cluster.prolong(2, &third, 600_000), Err(ErrorCode::Superseded), "that it ran out is written down");
    let leader = cluster.leader(&tasks[0]);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.prolong(next, &third, 600_000), Err(ErrorCode::Superseded));
    assert_eq!(cluster.prolong(next, &long, 600_000), Ok(()));
}

/// The same holds if only one was allowed when the lease expired, and several since.
#[test]
fn what_ran_out_before_the_number_was_raised_is_judged_by_the_new_one() {
    let mut cluster = Cluster::modern(3);
    let tasks = cluster.fill("a", 4);
    let first = cluster.claim_some(0, 1_000, 1).remove(0);
    cluster.advance(3_000);
    assert!(is_changed(&cluster.set(1, "mail", keys(2))));
    let held = cluster.claim_some(1, 600_000, 10);
    assert_eq!(ids(&held), tasks[..2]);
    assert_eq!(cluster.prolong(2, &first, 600_000), Err(ErrorCode::Superseded));
}

/// The keys of tasks that are granted one after another.
fn served(cluster: &mut Cluster, count: usize) -> String {
    let claimed = (0..count).map(|at| {
        // Time until brokers have heard which key was served.
        cluster.advance(500);
        cluster.claim(at % 3, 600_000).pop()
    });
    let payloads: Vec<String> = claimed
        .map(|granted| granted.map_or_else(|| "-".into(), |granted| String::from_utf8(granted.payload).expect("text")))
        .collect();
    payloads.concat()
}

/// Goal: a key with many tasks does not starve one with few, in all partitions, and held tasks do not change that. Method: keys without
/// limits; by age the first would have them all.
#[test]
fn keys_take_turns() {
    let mut cluster = queue_with(QueueSetting::KeyConcurrency(KeyConcurrency::Any));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Order(Order::Fair))));
    for (key, count) in [("a", 30), ("b", 3), ("c", 3)] {
        cluster.fill(key, count);
        cluster.advance(10);
    }
    let order = served(&mut cluster, 12);
    assert_eq!(order, "abcabcabcaaa");
    // A new key waits for no more than one turn of each other key.
    cluster.advance(1_000);
    cluster.fill("d", 2);
    let order = served(&mut cluster, 4);
    assert!(["adad", "aada"].contains(&order.as_str()), "{order}");
    assert!(is_changed(&cluster.set(1, "mail", QueueSetting::Order(Order::Priority))));
    cluster.fill("b", 1);
    assert_eq!(served(&mut cluster, 3), "aaa", "by age");
    assert!(is_changed(&cluster.set(1, "mail", QueueSetting::Order(Order::Fair))));
    assert_eq!(served(&mut cluster, 2), "ba", "who was served when is known from the table");
}

/// Goal: a worker that is gone costs no key its turn. Method: a worker that does not confirm its grant.
#[test]
fn a_grant_that_is_taken_back_gives_its_turn_back() {
    for two in [false, true] {
        let mut cluster = queue_with(QueueSetting::KeyConcurrency(KeyConcurrency::Any));
        assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Order(Order::Fair))));
        for key in ["a", "b"] {
            cluster.fill(key, 4);
            cluster.advance(10);
        }
        assert_eq!(served(&mut cluster, 1), "a");
        cluster.advance(500);
        let max = if two { 4 } else { 1 };
        let claim = Claim { confirms: true, ..claim_of(ClaimId(7_777), 600_000, max) };
        let number = cluster.submit(1, Request::Claim(claim));
        cluster.run_until(|cluster| cluster.replies.contains_key(&number));
        let Some(Response::Claimed { tasks, .. }) = cluster.replies.remove(&number) else { panic!("no claim") };
        assert!(tasks.len() == max as usize && tasks[0].payload == b"b", "{tasks:?}");
        cluster.advance(2_500);
        assert_eq!(served(&mut cluster, 4), "baba");
        cluster.nodes.iter().for_each(|node| node.check().expect("the index is right"));
    }
}

/// A new leader knows from its table which key was served last.
#[test]
fn turns_outlive_leaders() {
    let mut cluster = queue_with(QueueSetting::KeyConcurrency(KeyConcurrency::Any));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Order(Order::Fair))));
    let first = cluster.fill("a", 20)[0];
    cluster.advance(10);
    cluster.fill("b", 3);
    assert_eq!(served(&mut cluster, 3), "aba");
    let leader = cluster.leader(&first);
    cluster.down.insert(leader);
    cluster.advance(5_000);
    let next = (leader + 1) % 3;
    let granted: Vec<Granted> = (0..2)
        .flat_map(|_| {
            cluster.advance(500);
            cluster.claim_some(next, 600_000, 1)
        })
        .collect();
    assert_eq!(granted.iter().map(|granted| granted.payload.clone()).collect::<Vec<_>>(), [b"b", b"a"]);
}
