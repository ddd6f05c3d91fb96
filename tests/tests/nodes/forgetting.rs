//! Finished tasks of real nodes: archived, buried, forgotten everywhere, and not brought back by a node that was down.

use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::wait::{PATIENCE, eventually};
use norn_tests::{Cluster, ClusterOptions};
use norn_wire::{Acks, Error, ErrorCode, QueueName, TaskId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

const PARTITIONS: u32 = 8;
const TASKS: usize = 60;
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Three nodes that keep finished tasks of only one queue; those of other queues are forgotten after a few seconds.
fn cluster(archives: &Path) -> Cluster {
    let mut settings: Vec<String> =
        ["retain=0s, kept=1h", "forget_after_ms=4000"].map(|setting| setting.to_owned()).into();
    settings.push(format!("archive={}", archives.display()));
    Cluster::start_with(ClusterOptions { nodes: 3, partitions: PARTITIONS, settings, ..ClusterOptions::default() })
}

/// The task of a refused completion. The client repeats a completion whose answer was late, and the task may be forgotten by then.
/// Everything is archived before it is forgotten, so the archive must show the task as done.
fn forgotten(error: &Error, archive: &Path) -> TaskId {
    assert!(matches!(error.code, ErrorCode::NotFound | ErrorCode::TooOld), "{error:?}");
    let id = error.id.expect("it is about a task");
    // Another line may be half written at this moment.
    let text = fs::read_to_string(archive).unwrap_or_default();
    let line = text.lines().find(|line| line.contains(&id.to_string()));
    let line = line.unwrap_or_else(|| panic!("it is not in the archive: {error:?}"));
    assert_eq!(serde_json::from_str::<Value>(line).expect("a JSON object")["state"], "done");
    id
}

/// Enqueues tasks and completes all of them.
async fn work(client: &Client, archive: &Path, queue: &str) -> BTreeSet<TaskId> {
    let name = QueueName::new(queue).expect("a name");
    let drafts = (0..TASKS).map(|number| Draft::new(name.clone(), format!("{queue} {number}").into_bytes())).collect();
    let results = client.enqueue_many(drafts, Acks::Quorum).await;
    let ids: BTreeSet<TaskId> = results.into_iter().map(|result| result.expect("it is stored").id).collect();
    let mut done = BTreeSet::new();
    while done.len() < TASKS {
        let options = ClaimOptions::new([name.clone()]).max(TASKS as u32).wait(Duration::from_secs(1));
        let claimed = client.claim(options.timeout(CALL_TIMEOUT)).await.expect("a majority is there").tasks;
        let items = claimed.iter().map(|claimed| CompleteOptions::new(claimed.granted.id, claimed.granted.token));
        for result in client.complete_many(items.collect(), Acks::Quorum).await {
            done.insert(result.map_or_else(|error| forgotten(&error, archive), |acked| acked.id));
        }
    }
    assert_eq!(done, ids);
    ids
}

/// Sum of a field of `norn partitions` at one node.
fn sum(cluster: &Cluster, index: usize, field: &str) -> u64 {
    let lines = cluster.cli_at(index).patient().json(&["partitions"]).done().lines();
    lines.iter().map(|partition| partition[field].as_u64().expect("a number")).sum()
}

/// Waits until each of these nodes has this number of tasks and of tombstones left.
async fn wait_left(cluster: &Cluster, nodes: &[usize], tasks: u64, tombstones: u64) {
    let look = || async {
        let left = |index: &usize| (sum(cluster, *index, "tasks"), sum(cluster, *index, "tombstones"));
        nodes.iter().all(|index| left(index) == (tasks, tombstones)).then_some(())
    };
    eventually("so much is left", PATIENCE, look).await;
}

fn archived(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).expect("there is an archive");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a JSON object"));
    let of = |line: Value| {
        assert_eq!((&line["state"], &line["queue"]), (&"done".into(), &"brief".into()));
        line["id"].as_str().expect("an id").to_owned()
    };
    lines.map(of).collect()
}

// S27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_tasks_are_archived_and_forgotten_everywhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("finished.jsonl");
    let mut cluster = cluster(&file);
    let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    let kept = work(&client, &file, "kept").await;
    let brief = work(&client, &file, "brief").await;
    wait_left(&cluster, &[0, 1, 2], TASKS as u64, 0).await;
    assert_eq!(archived(&file), brief.iter().map(TaskId::to_string).collect());
    for id in brief.iter().take(3) {
        let error = client.get(*id).await.expect_err("it is forgotten");
        assert_eq!(error.code, ErrorCode::NotFound);
    }
    for id in kept.iter().take(3) {
        client.get(*id).await.expect("its queue keeps it");
    }

    // While a member is down, the others do not forget tombstones, and it brings nothing back when it returns.
    cluster.kill(2);
    cluster.wait_led(&[0, 1], &[0, 1]).await;
    let more = work(&client, &file, "brief").await;
    wait_left(&cluster, &[0, 1], TASKS as u64, TASKS as u64).await;
    let waits = || async {
        // Only the leader reports it.
        let lines = [0, 1].map(|index| cluster.cli_at(index).patient().json(&["partitions"]).done().lines());
        let held_up = |partition: &Value| partition["held_up_by"].as_array().is_some_and(|by| by.len() == 1);
        lines.iter().flatten().any(held_up).then_some(())
    };
    eventually("it says who is missing", PATIENCE, waits).await;
    cluster.restart(2);
    cluster.wait_ready(2);
    wait_left(&cluster, &[0, 1, 2], TASKS as u64, 0).await;
    assert_eq!(archived(&file).len(), brief.len() + more.len());

    // Nor does any node's log bring a task back.
    for index in 0..3 {
        cluster.kill(index);
    }
    for index in 0..3 {
        cluster.restart(index);
    }
    for index in 0..3 {
        cluster.wait_ready(index);
    }
    wait_left(&cluster, &[0, 1, 2], TASKS as u64, 0).await;
    assert_eq!(work(&client, &file, "brief").await.intersection(&brief).count(), 0);
}
