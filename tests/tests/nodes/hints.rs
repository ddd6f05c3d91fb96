//! Tasks that a real node accepts while no node that holds their partitions is up.

use norn_client::session::Draft;
use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, ClusterOptions};
use norn_wire::response::Guarantee;
use norn_wire::{Acks, QueueName};
use std::time::Duration;

const TASKS: usize = 40;
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A counter of a node's `status`.
fn counter(cluster: &Cluster, index: usize, name: &str) -> u64 {
    cluster.cli_at(index).patient().json(&["status"]).done().object()["counters"][name].as_u64().unwrap_or(0)
}

// S1, S4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_keeps_tasks_for_the_others() {
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 4, partitions: 16, ..ClusterOptions::default() });
    let keeper = 3;
    let client = cluster.client_of(vec![cluster.address(keeper).to_owned()], CALL_TIMEOUT).await;
    cluster.kill_together(&[0, 1, 2]);
    let queue = QueueName::new("mail").expect("a name");
    let mut ids = Vec::new();
    // Tasks of one batch share a partition, so each task is a batch of its own. Of four partitions each node holds three.
    for number in 0..TASKS {
        let draft = Draft::new(queue.clone(), format!("letter {number}").into_bytes());
        let acked = client.enqueue_many(vec![draft], Acks::One).await.remove(0).expect("one disk is enough");
        assert_eq!((acked.guarantee, acked.acks), (Guarantee::Sloppy, 1));
        ids.push(acked.id);
    }
    cluster.kill(keeper);
    for index in 0..4 {
        cluster.restart(index);
    }
    for index in 0..4 {
        cluster.wait_ready(index);
    }
    let handed = || async {
        let (kept, handed) = (counter(&cluster, keeper, "hint_tasks"), counter(&cluster, keeper, "hints_handed"));
        (kept == 0 && handed > 0).then_some(())
    };
    eventually("the others have what was kept", PATIENCE, handed).await;
    let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    for id in ids {
        // The counters are updated at intervals, so a majority may have a task a little later than they indicate.
        let read = || async { client.get(id).await.ok() };
        assert_eq!(eventually("it is there", PATIENCE, read).await.spec.queue, queue);
    }
}
