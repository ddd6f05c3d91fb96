//! Tasks of one key, run one at a time, with real processes.

use norn_tests::Cluster;
use norn_tests::wait::found;
use serde_json::Value;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Tasks of two keys and one without are handed in anywhere. Of each key the oldest can be claimed, the leader is killed while both
/// are held, and whoever leads then grants none of these keys until the holder is through.
// O15
#[test]
fn tasks_of_one_key_are_run_one_at_a_time_whoever_leads() {
    let mut cluster = Cluster::start();
    let enqueue = |node: usize, key: &str, payload: &str| {
        let answer = cluster.cli_at(node).json(&["enqueue", "mail", payload, "--key", key]);
        text(&answer.done().lines().remove(0)["id"])
    };
    let first = enqueue(0, "anna", "one");
    let second = enqueue(1, "anna", "two");
    let third = enqueue(2, "anna", "three");
    let other = enqueue(1, "bert", "one");
    let claim = |cluster: &Cluster, node: usize, wait: &str| {
        cluster.cli_at(node).json(&["claim", "mail", "--max", "10", "--wait", wait, "--lease", "60s"]).lines()
    };
    let mut held: Vec<Value> = Vec::new();
    found("the oldest of each key", || {
        held.extend(claim(&cluster, 0, "1s").into_iter().filter(|line| !line["id"].is_null()));
        (held.len() == 2).then_some(())
    });
    let mut ids: Vec<String> = held.iter().map(|task| text(&task["id"])).collect();
    ids.sort();
    let mut oldest = vec![first.clone(), other];
    oldest.sort();
    assert_eq!(ids, oldest);
    let shown = cluster.cli_at(0).json(&["get", &second]).done().object();
    assert_eq!((text(&shown["key"]), text(&shown["state"])), ("anna".into(), "ready".into()), "{shown}");

    cluster.kill(2);
    found("all partitions are asked", || {
        let told = claim(&cluster, 0, "1s");
        assert!(told.iter().all(|line| line["id"].is_null()), "nobody else's turn has come: {told:?}");
        told.is_empty().then_some(())
    });
    let token =
        held.iter().find(|task| text(&task["id"]) == first).map(|task| text(&task["token"])).expect("it is held");
    let taken = || (cluster.cli_at(1).json(&["complete", &first, &token]).code == Some(0)).then_some(());
    found("the completion is taken", taken);
    for next in [second, third] {
        let granted = || claim(&cluster, 1, "5s").pop().filter(|line| !line["id"].is_null());
        let claimed = found("the next one's turn", granted);
        assert_eq!(text(&claimed["id"]), next);
        cluster.cli_at(0).json(&["complete", &next, &text(&claimed["token"])]).done();
    }
    cluster.restart(2);
    cluster.wait_ready(2);
}
