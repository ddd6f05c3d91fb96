//! A full queue, with real processes: producers wait for workers.

use norn_client::client::{ClaimOptions, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::Cluster;
use norn_tests::wait::{PATIENCE, eventually};
use norn_wire::{QueueName, State};
use std::time::Duration;

const MOST: u64 = 5;

/// Several producers enqueue ten times the queue's limit while one worker works: nothing is refused for good, nothing is lost, and the
/// number of queued tasks at any time is at most near the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_wait_while_a_queue_is_full() {
    const PRODUCERS: u64 = 3;
    let cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    let set = cli.json(&["queue", "set", "jobs", "tasks", &MOST.to_string()]).done().object();
    assert_eq!(set["tasks"], MOST, "{set}");
    for index in 0..3 {
        let cli = cluster.cli_at(index);
        let heard = || async { (cli.json(&["queue", "show", "jobs"]).object()["tasks"] == MOST).then_some(()) };
        eventually("each node has heard of the limit", PATIENCE, heard).await;
    }
    let queue = QueueName::new("jobs").expect("a name");
    let client = cluster.client().await;
    for number in 0..MOST {
        client.enqueue(Draft::new(queue.clone(), number.to_be_bytes())).await.expect("there is room");
    }
    let hasty = cluster.client_of(cluster.addresses(), Duration::from_millis(500)).await;
    let full = || async {
        let refused = hasty.enqueue(Draft::new(queue.clone(), b"more".to_vec())).await.err()?;
        refused.message.contains("is full").then_some(())
    };
    eventually("all nodes know that it is full", PATIENCE, full).await;

    let mut producers = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let (client, queue) = (cluster.client().await, queue.clone());
        producers.spawn(async move {
            for number in 0..10 * MOST / PRODUCERS {
                let draft = Draft::new(queue.clone(), (producer * 1_000 + number).to_be_bytes());
                eventually("it gets in", PATIENCE, || async { client.enqueue(draft.clone()).await.ok() }).await;
            }
        });
    }
    let worker = cluster.client().await;
    let (mut most, mut done) = (0, 0);
    loop {
        let claimed = worker.claim(ClaimOptions::new([queue.clone()])).await.expect("it is asked in time");
        if claimed.tasks.is_empty() && claimed.unavailable == 0 && producers.is_empty() {
            break;
        }
        for task in claimed.tasks {
            worker.complete(CompleteOptions::new(task.granted.id, task.granted.token)).await.expect("it is taken");
            done += 1;
        }
        most = most.max(worker.count(Some(queue.clone()), Some(State::Ready)).await.expect("it is counted"));
        while let Some(ended) = producers.try_join_next() {
            ended.expect("no producer gives up");
        }
    }
    assert!(done >= MOST + PRODUCERS * (10 * MOST / PRODUCERS), "{done} tasks came out");
    // Nodes that admit tasks at the same moment may exceed the limit, but the excess is far below the total.
    assert!((MOST - 1..=2 * MOST + PRODUCERS).contains(&most), "{most} tasks at a time");
}
