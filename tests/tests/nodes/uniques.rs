//! Tasks that are the only ones with their keys, with real processes.

use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::found;
use serde_json::Value;
use std::collections::BTreeSet;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// The task with this key, and whether it was there before.
fn ask(cli: &Cli, key: &str) -> (String, bool) {
    let answer = cli.json(&["enqueue", "reindex", "all", "--key", key, "--unique"]).done().object();
    (text(&answer["id"]), answer["existing"].as_bool().expect("it says so"))
}

/// Many hand in tasks with the same few keys at the same time, at all nodes: each key gets one, which everybody is told of. The
/// leaders of a node that is killed are followed by others, who know that, and once the tasks have ended the keys are free.
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
