//! Tasks of one key, run one at a time, with real processes.

use norn_tests::Cluster;
use norn_tests::wait::found;
use serde_json::Value;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Tasks of two keys are enqueued at different nodes. The oldest task of each key can be claimed. A node is killed while both are
/// held, and no later leader grants another task of these keys before their holders complete.
// O15
#[test]
fn tasks_of_one_key_are_run_one_at_a_time_whoever_leads() {
    let mut cluster = Cluster::start();
    let enqueue = |node: usize, key: &str, payload: &str| {
        let answer = cluster.cli_at(node).patient().json(&["enqueue", "mail", payload, "--key", key]);
        text(&answer.done().lines().remove(0)["id"])
    };
    let first = enqueue(0, "anna", "one");
    let second = enqueue(1, "anna", "two");
    let third = enqueue(2, "anna", "three");
    let other = enqueue(1, "bert", "one");
    let claim = |cluster: &Cluster, node: usize, wait: &str| {
        cluster.cli_at(node).patient().claim(&["mail", "--max", "10", "--wait", wait, "--lease", "60s"]).lines()
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
    let shown = cluster.cli_at(0).patient().json(&["get", &second]).done().object();
    assert_eq!((text(&shown["key"]), text(&shown["state"])), ("anna".into(), "ready".into()), "{shown}");

    cluster.kill(2);
    found("all partitions are asked", || {
        let told = claim(&cluster, 0, "1s");
        assert!(told.iter().all(|line| line["id"].is_null()), "nobody else's turn has come: {told:?}");
        told.is_empty().then_some(())
    });
    let token =
        held.iter().find(|task| text(&task["id"]) == first).map(|task| text(&task["token"])).expect("it is held");
    let taken = || (cluster.cli_at(1).patient().json(&["complete", &first, &token]).code == Some(0)).then_some(());
    found("the completion is taken", taken);
    for next in [second, third] {
        let granted = || claim(&cluster, 1, "5s").pop().filter(|line| !line["id"].is_null());
        let claimed = found("the next one's turn", granted);
        assert_eq!(text(&claimed["id"]), next);
        cluster.cli_at(0).patient().json(&["complete", &next, &text(&claimed["token"])]).done();
    }
    cluster.restart(2);
    cluster.wait_ready(2);
}

/// Payload, id and token of a claimed task.
fn claimed(line: &Value) -> Option<(String, String, String)> {
    let [id, token, payload] = ["id", "token", "data"].map(|name| line[name].as_str().map(str::to_owned));
    Some((payload?, id?, token?))
}

/// Of a key with three slots, never more than three tasks are held at once, and sometimes three.
// O15
#[test]
fn as_many_tasks_of_one_key_are_held_as_its_queue_says() {
    let cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    let set = cli.json(&["queue", "set", "mail", "key-concurrency", "3"]).done().object();
    assert_eq!(set["key_concurrency"], 3, "{set}");
    let payloads = "anna\n".repeat(12);
    cli.run_with(&["enqueue", "mail", "--lines", "--key", "anna"], payloads.as_bytes()).done();
    let (mut held, mut done, mut most) = (Vec::new(), 0, 0);
    found("all are done", || {
        let lines = cluster
            .cli_at(1 + done % 2)
            .patient()
            .claim(&["mail", "--max", "10", "--wait", "2s", "--lease", "5m"])
            .lines();
        held.extend(lines.iter().filter_map(claimed));
        assert!(held.len() <= 3, "{held:?}");
        most = most.max(held.len());
        if let Some((_, id, token)) = held.pop() {
            cli.json(&["complete", &id, &token]).done();
            done += 1;
        }
        (done == 12).then_some(())
    });
    assert_eq!(most, 3);
}

/// One tenant has 2,000 tasks, and one that comes later has 20: the small one is done after about as many tasks of the large one.
// S6
#[test]
fn a_small_tenant_is_served_beside_a_large_one() {
    let cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    cli.json(&["queue", "set", "mail", "order", "fair"]).done();
    cli.json(&["queue", "set", "mail", "key-concurrency", "none"]).done();
    for (tenant, count) in [("large", 2_000), ("small", 20)] {
        let payloads = format!("{tenant}\n").repeat(count);
        cli.run_with(&["enqueue", "mail", "--lines", "--key", tenant], payloads.as_bytes()).done();
    }
    let (mut large, mut small) = (0, 0);
    while small < 20 {
        let line = cli.claim(&["mail", "--wait", "30s", "--lease", "60s"]).done().object();
        let (payload, id, token) = claimed(&line).expect("a task");
        *if payload == "small" { &mut small } else { &mut large } += 1;
        cli.json(&["complete", &id, &token]).done();
        assert!(large <= 60, "{large} of the large one went before, and {small} of the small one");
    }
}
