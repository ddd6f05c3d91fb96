//! Unique tasks: only one open task per key, with real processes.

use norn_client::client::Client;
use norn_client::session::Draft;
use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, eventually, found};
use norn_wire::{QueueName, TaskId};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// The task with this key, and whether it existed before.
fn ask(cli: &Cli, key: &str) -> (String, bool) {
    let answer = cli.json(&["enqueue", "reindex", "all", "--key", key, "--unique"]).done().object();
    (text(&answer["id"]), answer["existing"].as_bool().expect("it says so"))
}

/// Many clients enqueue tasks with the same few keys at the same time, at all nodes: each key gets one task, and every client gets its
/// id. When a node is killed, the new leaders know the tasks too. Once the tasks have ended, their keys are free.
// O14
#[test]
fn many_at_once_enqueue_one_task_for_each_key() {
    const KEYS: usize = 4;
    let mut cluster = Cluster::start();
    let names: Vec<String> = (0..KEYS).map(|key| format!("key-{key}")).collect();
    let ask_for_all = |cli: Cli| names.iter().map(|key| ask(&cli, key)).collect();
    let told: Vec<Vec<(String, bool)>> = std::thread::scope(|scope| {
        let clis: Vec<Cli> = (0..6).map(|place| cluster.cli_at(place % 3).patient()).collect();
        let threads: Vec<_> = clis.into_iter().map(|cli| scope.spawn(|| ask_for_all(cli))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it is answered")).collect()
    });
    let mut ids = Vec::new();
    for key in 0..KEYS {
        let here: BTreeSet<&String> = told.iter().map(|told| &told[key].0).collect();
        assert_eq!(here.len(), 1, "{told:?}");
        assert_eq!(told.iter().filter(|told| !told[key].1).count(), 1, "one of them enqueued it: {told:?}");
        ids.push(told[0][key].0.clone());
    }

    cluster.kill(2);
    for (key, id) in names.iter().zip(&ids) {
        assert_eq!(ask(&cluster.cli_at(0).patient(), key), (id.clone(), true));
    }
    let count = cluster.cli_at(0).patient().json(&["count", "reindex"]).done().object();
    assert_eq!(count["count"], KEYS, "{count}");
    let mut open: BTreeSet<String> = ids.iter().cloned().collect();
    found("all are completed", || {
        for task in cluster.cli_at(1).patient().claim(&["reindex", "--max", "10", "--lease", "20s"]).lines() {
            if let (Some(id), Some(token)) = (task["id"].as_str(), task["token"].as_str()) {
                cluster.cli_at(0).patient().json(&["complete", id, token]).done();
                open.remove(id);
            }
        }
        open.is_empty().then_some(())
    });
    for (key, id) in names.iter().zip(&ids) {
        let (next, existing) = ask(&cluster.cli_at(1).patient(), key);
        assert!(!existing && next != *id, "the key is free");
    }
    cluster.restart(2);
    cluster.wait_ready(2);
}

/// Goal: a key has one task, though nodes die one after the other while many clients ask for it. Method: clients that go through the
/// same keys, each with another starting point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_while_many_ask_make_no_second_task_of_a_key() {
    const KEYS: usize = 300;
    const CLIENTS: usize = 4;
    let mut cluster = Cluster::start();
    let answered = Arc::new(AtomicUsize::new(0));
    let ask_for_all = |client: Client, first: usize| {
        let answered = Arc::clone(&answered);
        async move {
            let mut told = Vec::new();
            for key in (0..KEYS).map(|key| (key + first) % KEYS) {
                let draft = Draft::new(QueueName::new("reindex").expect("a name"), "all").key(format!("key-{key}"));
                let (acked, _) = client.enqueue_unique(draft).await.expect("two of three nodes are there");
                told.push((key, acked.id));
                answered.fetch_add(1, Ordering::Relaxed);
            }
            told
        }
    };
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = cluster.client_of(cluster.addresses(), 2 * PATIENCE).await;
        clients.spawn(ask_for_all(client, number * KEYS / CLIENTS));
    }
    for (node, share) in [(2, 1), (0, 3)] {
        let enough = || async { (answered.load(Ordering::Relaxed) >= share * KEYS * CLIENTS / 8).then_some(()) };
        eventually("some are answered", PATIENCE, enough).await;
        cluster.kill(node);
        cluster.restart(node);
        cluster.wait_ready(node);
    }
    let mut ids: BTreeMap<usize, BTreeSet<TaskId>> = BTreeMap::new();
    for (key, id) in clients.join_all().await.into_iter().flatten() {
        ids.entry(key).or_default().insert(id);
    }
    assert!(ids.len() == KEYS && ids.values().all(|ids| ids.len() == 1), "{ids:?}");
    let count = cluster.cli().patient().json(&["count", "reindex"]).done().object();
    assert_eq!(count["count"], KEYS, "{count}");
}
