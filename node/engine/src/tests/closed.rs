//! Queues that grant nothing for now, with more work than one answer to a pull can name.

use super::policies::is_changed;
use super::*;
use norn_wire::membership::{QueueSetting, Rate};

/// More tasks of the partitions in which it follows than a follower can name in one answer.
const TASKS: usize = 3_000;

/// Three nodes with many tasks in one queue, of the same key if they have one.
fn with_many(key: Option<&str>) -> Cluster {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    cluster.check_every = 5_000;
    let mut left = TASKS;
    while left > 0 {
        let count = left.min(500);
        left -= count;
        let task = |id| NewTask { id, spec: Spec { key: key.map(str::to_owned), ..spec(b"", 0) } };
        let tag = |number: usize| tag_of(key).unwrap_or((number as u32) << 14);
        let tasks = (0..count).map(|number| cluster.id(tag(number))).map(task).collect();
        assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
    }
    cluster.advance(1_000);
    cluster
}

/// Tag of tasks with a key.
fn tag_of(key: Option<&str>) -> Option<u32> {
    Spec { key: key.map(str::to_owned), ..spec(b"", 0) }.tag()
}

fn set(cluster: &mut Cluster, setting: QueueSetting) {
    assert!(is_changed(&cluster.set(0, "mail", setting)));
    cluster.advance(1_000);
}

/// How many tasks a claim gets, and how many partitions it could not ask.
fn look(cluster: &mut Cluster, index: usize, claim: u128) -> (usize, u32) {
    match cluster.ask(index, Request::Claim(claim_of(ClaimId(claim), 600_000, 1))) {
        Response::Claimed { tasks, unavailable, .. } => (tasks.len(), unavailable),
        other => panic!("{other:?}"),
    }
}

/// Goal: a queue that grants nothing for now is no outage, whatever stands in it.
#[test]
fn a_paused_queue_that_is_full_is_no_outage() {
    let mut cluster = with_many(None);
    set(&mut cluster, QueueSetting::Paused(true));
    assert_eq!(look(&mut cluster, 1, 70), (0, 0));
    set(&mut cluster, QueueSetting::Paused(false));
    assert_eq!(look(&mut cluster, 1, 71), (1, 0));
}

#[test]
fn a_queue_of_which_as_many_are_held_as_may_be_is_no_outage() {
    let mut cluster = with_many(None);
    set(&mut cluster, QueueSetting::Concurrency(Some(1)));
    assert_eq!(look(&mut cluster, 1, 70), (1, 0));
    assert_eq!(look(&mut cluster, 2, 71), (0, 0));
}

#[test]
fn a_queue_whose_rate_is_used_up_is_no_outage() {
    let mut cluster = with_many(None);
    set(&mut cluster, QueueSetting::Rate(Some(Rate { claims: 1, per_ms: 600_000 })));
    while look(&mut cluster, 1, 70) != (1, 0) {
        cluster.advance(1_000);
    }
    assert_eq!(look(&mut cluster, 2, 71), (0, 0));
}

/// Goal: the same for a key that another task holds.
#[test]
fn a_key_that_is_held_is_no_outage() {
    let mut cluster = with_many(Some("customer 7"));
    assert_eq!(look(&mut cluster, 1, 70), (1, 0));
    assert_eq!(look(&mut cluster, 2, 71), (0, 0));
}
