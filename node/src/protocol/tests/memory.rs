//! Nodes that are near the limit of their memory.

use super::*;
use crate::protocol::membership::MemoryReport;

impl Cluster {
    fn use_memory(&mut self, index: usize, used_bytes: u64) {
        self.queue.push_back((index, Event::Memory(MemoryReport { used_bytes, limit_bytes: 1_000_000 })));
        self.drain();
    }

    /// Why a node takes no task, if it does not.
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

/// What an allocator keeps is there for tasks that come.
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
