//! What real nodes take of memory: what is over leaves it, and can be read all the same.

use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_client::wire::{QueueName, State, TaskId};
use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, ClusterOptions};

const RESULT_BYTES: usize = 700_000;
/// The first ones fill what a node needs anyway: buffers, what it has read and written last.
const FIRST: u32 = 12;
const RESULTS: u32 = 60;

fn resident_bytes(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes << 10
}

/// No two are alike.
fn result_of(number: u32) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(RESULT_BYTES).collect()
}

async fn finish(client: &Client, queue: &QueueName, number: u32) -> TaskId {
    let id = client.enqueue(Draft::new(queue.clone(), number.to_be_bytes())).await.expect("it is taken").id;
    let claimed = || async { client.claim(ClaimOptions::new([queue.clone()])).await.ok()?.tasks.pop() };
    let task = eventually("it is claimed", PATIENCE, claimed).await.granted;
    assert_eq!(task.id, id);
    let options = CompleteOptions::new(id, task.token).result(result_of(number));
    client.complete(options).await.expect("it is taken");
    id
}

/// Results that are many times larger than the memory that they may take: no node grows by nearly as much, and all are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_finished_tasks_do_not_fill_memory() {
    let settings = vec!["payload_memory_bytes=1048576".to_owned()];
    let cluster = Cluster::start_with(ClusterOptions { partitions: 4, settings, ..ClusterOptions::default() });
    let queue = QueueName::new("reports").expect("a name");
    let client = cluster.client().await;
    let mut ids = Vec::new();
    for number in 0..FIRST {
        ids.push(finish(&client, &queue, number).await);
    }
    let before: Vec<usize> = (0..3).map(|index| resident_bytes(cluster.process(index))).collect();
    for number in FIRST..FIRST + RESULTS {
        ids.push(finish(&client, &queue, number).await);
    }
    let most = RESULTS as usize * RESULT_BYTES / 2;
    for (index, before) in before.into_iter().enumerate() {
        let small = || async { (resident_bytes(cluster.process(index)) < before + most).then_some(()) };
        eventually("results leave memory", PATIENCE, small).await;
    }
    for (number, id) in (0..).zip(&ids) {
        let view = client.get(*id).await.expect("it is kept");
        let result = view.result.expect("it has one").into_vec();
        assert!(view.state == State::Done && result == result_of(number), "{number}: {} bytes", result.len());
    }
}
