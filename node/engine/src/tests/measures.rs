//! What nodes measure for observers.

use super::*;
use crate::{Counted, Measures, QueueMeasures};

/// The measures of a node, made in pieces of this number of queues.
fn measured(cluster: &mut Cluster, node: usize, piece: usize) -> Measures {
    let mut measures = Measures::default();
    let mut pieces = 0;
    while !cluster.nodes[node].measure(&mut measures, piece) {
        pieces += 1;
        assert!(pieces < 10_000, "it ends");
    }
    measures
}

/// A queue in the measures of all nodes together.
fn total(cluster: &mut Cluster, queue: &str, piece: usize) -> QueueMeasures {
    let mut total = QueueMeasures::default();
    for node in 0..cluster.nodes.len() {
        let measures = measured(cluster, node, piece);
        let Some(line) = measures.queues.get(&QueueName::new(queue).expect("a name")) else { continue };
        total.ready += line.ready;
        total.claimed += line.claimed;
        total.delayed += line.delayed;
        total.blocked += line.blocked;
        total.ready_since_ms = total.ready_since_ms.into_iter().chain(line.ready_since_ms).min();
        total.tally.counts.iter_mut().zip(line.tally.counts).for_each(|(sum, count)| *sum += count);
        total.tally.wait.counts.iter_mut().zip(line.tally.wait.counts).for_each(|(sum, count)| *sum += count);
        total.tally.run.counts.iter_mut().zip(line.tally.run.counts).for_each(|(sum, count)| *sum += count);
    }
    total
}

/// Goal: each task is counted once in the cluster, in the state that it has, whatever node took it and however small the pieces are.
/// Method: tasks that are enqueued, delayed, claimed, given back, failed and completed, each measured in pieces of one queue and at
/// once.
#[test]
fn leaders_together_count_each_task_once() {
    let mut cluster = Cluster::new(3);
    cluster.enqueue(0, b"a", 1);
    for number in 2..6 {
        cluster.enqueue(number % 3, b"b", number as u32);
    }
    let id = cluster.id(9);
    let not_before_ms = cluster.now.wall_ms + 60_000;
    let tasks = vec![NewTask { id, spec: Spec { not_before_ms, ..spec(b"x", 0) } }];
    assert!(matches!(cluster.ask(1, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    cluster.advance(1_000);
    let claims: Vec<_> = (0..3).map(|node| cluster.claim(node, 60_000).remove(0)).collect();
    let [done, failed, back] = [0, 1, 2].map(|place: usize| (claims[place].id, claims[place].token));
    let items =
        vec![Completion { id: done.0, token: done.1, sequence: None, result: None, at_ms: 5, children: Vec::new() }];
    assert!(matches!(cluster.ask(0, Request::Complete { items, acks: Acks::Quorum }), Response::Acked(_)));
    let (id, token) = failed;
    let fail = Request::Fail { id, token, reason: "no".into(), retry_in_ms: 0, invalid: false, retry_open: false };
    assert_eq!(cluster.ask(1, fail), Response::Done);
    assert_eq!(cluster.ask(2, Request::Release { id: back.0, token: back.1 }), Response::Done);
    cluster.advance(2_000);
    let whole = total(&mut cluster, "mail", usize::MAX);
    let of = |what: Counted| whole.tally.counts[what as usize];
    assert_eq!([Counted::Enqueued, Counted::Granted, Counted::Completed].map(of), [6, 3, 1]);
    assert_eq!([Counted::Failed, Counted::GivenBack, Counted::Expired, Counted::Dead].map(of), [1, 1, 0, 0]);
    assert_eq!((whole.ready, whole.claimed, whole.delayed, whole.blocked), (4, 0, 1, 0));
    assert_eq!(whole.tally.wait.counts.iter().sum::<u64>(), 3, "first claims");
    assert_eq!(whole.tally.run.counts.iter().sum::<u64>(), 2, "a completion and a failure");
    let waits_ms = cluster.now.wall_ms - whole.ready_since_ms.expect("some are ready");
    assert!((2_000..10_000).contains(&waits_ms), "{waits_ms}");
    assert_eq!(total(&mut cluster, "mail", 1), whole, "in pieces");
    let standing: Vec<_> = (0..3).map(|node| measured(&mut cluster, node, 1)).collect();
    let partitions = cluster.nodes[0].genesis().expect("it is founded").partitions;
    assert_eq!(standing.iter().map(|measures| measures.led).sum::<u32>(), partitions);
    assert!(standing.iter().all(|measures| (measures.members, measures.without_leader) == (3, 0)));
}
