//! Limit of attempts: what counts as an attempt, and what follows if the leader learns that late.

use super::*;

/// A task that is claimed for two seconds, and whose leader has lost its enqueue: the others have it.
fn claimed_from_a_stranger() -> (Cluster, TaskId, Token, usize) {
    let mut cluster = Cluster::with_config(3, &Config { exchange_interval_ms: 3_600_000, ..Config::default() });
    let id = cluster.id(0);
    let tasks = vec![NewTask { id, spec: Spec { attempts_max: 1, ..spec(b"once", 0) } }];
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All });
    let token = cluster.claim(1, 2_000).remove(0).token;
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let node = &mut cluster.nodes[leader];
    node.partitions.get_mut(&partition).expect("it leads").store.forget(&id);
    node.publish_heads(partition);
    (cluster, id, token, leader)
}

/// Goal: the last attempt is the last one, and its reason is kept, also where the leader has yet to learn the limit.
#[test]
fn a_leader_that_does_not_know_a_task_learns_of_it_before_it_says_that_an_attempt_failed() {
    let (mut cluster, id, token, leader) = claimed_from_a_stranger();
    let other = (leader + 1) % 3;
    let fail = Request::Fail { id, token, reason: "no paper".into(), retry_in_ms: 0, invalid: false, retry_open: true };
    assert_eq!(cluster.ask(other, fail), Response::Done);
    let view = cluster.get(other, id);
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("the last attempt failed: no paper")));
}

/// Goal: a successful renewal gives the lease that was asked for, also where the leader has yet to learn what the queue allows.
#[test]
fn a_leader_that_does_not_know_a_task_learns_of_it_before_it_gives_a_longer_lease() {
    let (mut cluster, id, token, leader) = claimed_from_a_stranger();
    let renew = |lease_ms| Request::Renew { items: vec![(id, token)], lease_ms };
    let other = (leader + 1) % 3;
    assert_eq!(cluster.ask(other, renew(None)), Response::Renewed(vec![Ok(2_000)]), "the same it gives at once");
    let asked_us = cluster.now.mono_us;
    assert_eq!(cluster.ask(other, renew(Some(9_000))), Response::Renewed(vec![Ok(9_000)]));
    assert!(cluster.now.mono_us < asked_us + 1_000_000, "it is asked for at once");
}

/// Goal: a claim that its worker releases is no attempt. Method: a task is released more often than it may be tried.
#[test]
fn a_task_that_is_handed_back_keeps_its_attempts() {
    const ATTEMPTS_MAX: u32 = 2;
    let mut cluster = Cluster::new(3);
    let id = cluster.id(0);
    let tasks = vec![NewTask { id, spec: Spec { attempts_max: ATTEMPTS_MAX, ..spec(b"twice", 0) } }];
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    for _ in 0..=ATTEMPTS_MAX {
        let granted = cluster.claim(1, 10_000).remove(0);
        assert_eq!((granted.id, granted.attempt), (id, 1));
        assert_eq!(cluster.ask(2, Request::Release { id, token: granted.token }), Response::Done);
    }
    for attempt in 1..=ATTEMPTS_MAX {
        let granted = cluster.claim(1, 10_000).remove(0);
        assert_eq!(granted.attempt, attempt);
        let (token, reason) = (granted.token, "failed".into());
        let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: false, retry_open: false };
        assert_eq!(cluster.ask(2, fail), Response::Done);
    }
    assert_eq!(cluster.get(0, id).state, State::Dead);
}
