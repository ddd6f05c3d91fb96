//! How often a task may be tried: what counts as an attempt, and what follows where its leader learns that late.

use super::*;
use crate::protocol::task::Task;
use std::sync::Arc;

/// Goal: the last attempt is the last one. Method: it fails at a leader that has lost what was enqueued, and is told after that.
#[test]
fn a_failed_last_attempt_ends_a_task_when_its_leader_learns_how_many_it_may_have() {
    let mut cluster = Cluster::with_config(3, &Config { exchange_interval_ms: 3_600_000, ..Config::default() });
    let id = cluster.id(0);
    let spec = Arc::new(Spec { attempts_max: 1, ..spec(b"once", 0) });
    let tasks = vec![NewTask { id, spec: Spec::clone(&spec) }];
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    let token = cluster.claim(1, 10_000).remove(0).token;
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let other = (leader + 1) % 3;
    cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads").store.forget(&id);
    let fail = Request::Fail { id, token, reason: "failed".into(), retry_in_ms: 0, invalid: false, retry_open: false };
    assert_eq!(cluster.ask(other, fail), Response::Done);

    let items = Arc::new(vec![(id, Task::from_spec(spec))]);
    cluster.deliver(other, leader, PeerMessage::Tasks { partition, items, by_buckets: false, forgets: Some(0) });
    assert_eq!(cluster.claim(other, 10_000), Vec::new());
    let view = cluster.get(other, id);
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("the last attempt failed")));
}

/// Goal: a claim that its worker hands back is no attempt. Method: a task is handed back more often than it may be tried.
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
