//! Nodes that are near the limit of their memory.

use super::*;
use norn_model::host::MemoryReport;
use norn_wire::error::Cause;

impl Cluster {
    fn use_memory(&mut self, index: usize, used_bytes: u64) {
        self.queue.push_back((index, Event::Memory(MemoryReport { used_bytes, limit_bytes: 1_000_000 })));
        self.drain();
    }

    /// Error with which a node refuses a task, if it does.
    fn why_not_taken(&mut self, index: usize, payload: &[u8]) -> Option<Error> {
        let id = self.id(1);
        let tasks = vec![NewTask { id, spec: spec(payload, 0) }];
        match self.ask(index, Request::Enqueue { tasks, acks: Acks::Quorum }) {
            Response::Acked(mut results) => results.remove(0).err(),
            Response::Error(error) => Some(error),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_is_short_of_memory_refuses_tasks_and_does_everything_else() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 1);
    cluster.use_memory(1, 890_000);
    assert_eq!(cluster.why_not_taken(1, b"x"), None, "it is not short yet");
    cluster.use_memory(1, 910_000);
    let error = cluster.why_not_taken(1, b"x").expect("it is short");
    assert!(error.code == ErrorCode::Overloaded && error.message.contains("node n1"), "{error:?}");
    assert_eq!(error.cause, Some(Cause::TurnedAway), "it has asked nobody");
    let told =
        |(index, seen): &(usize, Observation)| *index == 1 && matches!(seen, Observation::Memory { short: true, .. });
    assert!(cluster.observed.iter().any(told));
    let elsewhere = cluster.enqueue(0, b"x", 1);
    assert!(!cluster.replica_of(1, &elsewhere).store.knows(&elsewhere), "it is not among the first to take it");
    cluster.run_until(|cluster| cluster.replica_of(1, &elsewhere).store.knows(&elsewhere));
    let granted = cluster.claim(1, 10_000).remove(0);
    assert_eq!(granted.id, id);
    let response = cluster.complete(1, id, granted.token);
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
    cluster.use_memory(1, 860_000);
    assert!(cluster.why_not_taken(1, b"x").is_some(), "it does not go to and fro");
    cluster.use_memory(1, 840_000);
    assert_eq!(cluster.why_not_taken(1, b"x"), None);
}

/// Goal: a worker's log entries for a task that it holds are refused too, and may be sent to another node; what ends a task is
/// accepted.
#[test]
fn a_node_that_is_short_of_memory_refuses_log_entries() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 1);
    let token = cluster.claim(1, 10_000).remove(0).token;
    let entry = |sequence| Request::Update { id, token, sequence, data: b"half".to_vec(), acks: Acks::Quorum };
    cluster.use_memory(1, 910_000);
    let Response::Error(error) = cluster.ask(1, entry(0)) else { panic!("it is short") };
    assert!(error.code == ErrorCode::Overloaded && error.message.contains("node n1"), "{error:?}");
    assert_eq!(error.cause, Some(Cause::TurnedAway), "it has asked nobody");
    assert!(cluster.get(0, id).updates.is_empty());
    assert!(matches!(cluster.ask(2, entry(0)), Response::AckedOne(_)), "another node takes it");
    cluster.use_memory(1, 840_000);
    assert!(matches!(cluster.ask(1, entry(1)), Response::AckedOne(_)));
    assert_eq!(cluster.get(1, id).updates.len(), 2);
}

/// Memory that the allocator keeps is available to new tasks.
#[test]
fn what_a_node_has_given_up_may_be_taken_again_though_the_system_sees_nothing_of_it() {
    let mut cluster = Cluster::new(1);
    let payload = [7; 100_000];
    for _ in 0..4 {
        cluster.enqueue(0, &payload, 1);
    }
    cluster.use_memory(0, 950_000);
    assert!(cluster.why_not_taken(0, &payload).is_some());
    for _ in 0..2 {
        let granted = cluster.claim(0, 10_000).remove(0);
        cluster.complete(0, granted.id, granted.token);
    }
    cluster.use_memory(0, 950_000);
    assert_eq!(cluster.why_not_taken(0, &payload), None);
    assert!(cluster.why_not_taken(0, &payload).is_some(), "but no more than that");
    cluster.use_memory(0, 950_000);
    assert!(cluster.why_not_taken(0, &payload).is_some());
}

/// Goal: memory use of other processes shuts a node out for no longer than it lasts. Method: a node that holds little, on a full
/// machine.
#[test]
fn a_node_is_not_short_for_ever_of_memory_that_others_take() {
    let mut cluster = Cluster::new(1);
    let payload = [7; 10_000];
    cluster.enqueue(0, &payload, 1);
    cluster.use_memory(0, 950_000);
    assert!(cluster.why_not_taken(0, &payload).is_some());
    cluster.use_memory(0, 880_000);
    assert!(cluster.why_not_taken(0, &payload).is_some(), "it does not go to and fro");
    cluster.advance(60_000);
    cluster.use_memory(0, 880_000);
    assert_eq!(cluster.why_not_taken(0, b"x"), None, "it has not been near the limit for long");
    cluster.use_memory(0, 950_000);
    let granted = cluster.claim(0, 10_000).remove(0);
    cluster.complete(0, granted.id, granted.token);
    let granted = cluster.claim(0, 10_000).remove(0);
    cluster.complete(0, granted.id, granted.token);
    cluster.use_memory(0, 950_000);
    assert_eq!(cluster.why_not_taken(0, b"x"), None, "it has given up all that it held");
}

/// Memory that was taken since the last report counts.
#[test]
fn a_burst_between_two_reports_is_noticed() {
    let mut cluster = Cluster::new(1);
    cluster.use_memory(0, 700_000);
    let payload = [7; 100_000];
    let taken = (0..5).take_while(|_| cluster.why_not_taken(0, &payload).is_none()).count();
    assert!((1..=3).contains(&taken), "{taken}");
}
