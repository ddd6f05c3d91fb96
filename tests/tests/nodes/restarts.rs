//! State that a restart must preserve: remaining leases, used slots of a queue, and tasks.

use norn_tests::wait::{found, until};
use norn_tests::{Cli, Cluster, ClusterOptions};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Claims as many tasks as one call returns: ids and tokens.
fn claimed(cli: &Cli, arguments: &[&str]) -> Vec<(String, String)> {
    cli.claim(arguments).lines().iter().map(|task| (text(&task["id"]), text(&task["token"]))).collect()
}

/// A way to restart the nodes.
type Restart = fn(&mut Cluster);

fn restart_all(cluster: &mut Cluster) {
    cluster.kill_together(&[0, 1, 2]);
    (0..3).for_each(|index| cluster.restart(index));
    (0..3).for_each(|index| cluster.wait_ready(index));
}

fn restart_one_by_one(cluster: &mut Cluster) {
    for index in 0..3 {
        cluster.kill(index);
        cluster.restart(index);
        cluster.wait_ready(index);
    }
}

/// Goal: a restart does not make leases start again. Method: most of one lease has passed before the restart. Another one is granted
/// after the restart; it is shorter than the whole first lease, but longer than the rest of it. A worker waits for either task. It
/// must get the older one; it would get the other one if the first lease had started again. Both tasks are in one partition, so that
/// one leader judges both.
#[test]
fn a_lease_goes_on_over_a_restart_of_all_nodes_and_over_restarts_one_by_one() {
    const LEASE: &str = "8s";
    const SHORTER: &str = "5s";
    let mut cluster = Cluster::start();
    let cases: [(Restart, u64); 2] = [(restart_all, 7), (restart_one_by_one, 5)];
    for (restart, age_s) in cases {
        let cli = cluster.cli().patient();
        let held = text(&cli.json(&["enqueue", "held", "x", "--priority", "5"]).done().object()["id"]);
        let first = found("it is claimed", || claimed(&cli, &["held", "--lease", LEASE]).pop());
        assert_eq!(first.0, held);
        let since = Instant::now();
        until("most of the lease is over", || since.elapsed() >= Duration::from_secs(age_s));
        restart(&mut cluster);
        let other = text(&cli.json(&["enqueue", "other", "x", "--near", &held]).done().object()["id"]);
        let second = found("the other one is claimed", || claimed(&cli, &["other", "--lease", SHORTER]).pop());
        assert_eq!(second.0, other);
        let next = found("one of them is claimable", || cli.claim(&["held,other", "--wait", "60s"]).lines().pop());
        assert_eq!((&next["id"], &next["attempt"]), (&held.as_str().into(), &2.into()), "{next}");
        assert_eq!(cli.json(&["renew", &held, &first.1]).refusal(1)["code"], "superseded");
        cli.json(&["complete", &held, &text(&next["token"])]).done();
        cli.json(&["complete", &other, &second.1]).done();
    }
}

/// Goal: a queue never has more holders than it allows, whichever node dies, and a slot is not lost with its worker.
#[test]
fn slots_of_a_queue_outlive_nodes_and_workers() {
    const SLOTS: usize = 3;
    let mut cluster = Cluster::start();
    let cli = cluster.cli().patient();
    cli.json(&["queue", "set", "imports", "concurrency", &SLOTS.to_string()]).done();
    cluster.wait_heard_changes();
    let lines: String = (0..SLOTS * 3).map(|number| format!("{number}\n")).collect();
    cli.run_with(&["--json", "enqueue", "imports", "--lines", "-"], lines.as_bytes()).done();
    let mut held = Vec::new();
    // The first claim may get fewer tasks than it asks for.
    until("all slots are taken", || {
        held.extend(claimed(&cli, &["imports", "--max", "9", "--lease", "1h"]));
        held.len() >= SLOTS
    });
    let is_full = |cli: &Cli| assert_eq!(cli.claim(&["imports", "--max", "9"]).code, Some(4), "{held:?}");
    assert_eq!(held.len(), SLOTS, "{held:?}");
    for index in 0..3 {
        cluster.kill(index);
        is_full(&cluster.cli_at((index + 1) % 3).patient());
        cluster.restart(index);
        cluster.wait_ready(index);
        is_full(&cli);
    }
    // One task is completed. The worker that takes its slot dies, and the lease of its task expires while a node is down.
    let [(id, token), ..] = &held[..] else { panic!("{held:?}") };
    cli.json(&["complete", id, token]).done();
    found("the slot is free", || claimed(&cli, &["imports", "--lease", "2s"]).pop());
    cluster.kill(0);
    let next = cluster.cli_at(1).patient();
    let again = found("the slot is free again", || {
        Some(claimed(&next, &["imports", "--max", "9", "--wait", "30s"])).filter(|tasks| !tasks.is_empty())
    });
    assert_eq!(again.len(), 1, "{again:?}");
    is_full(&next);
    cluster.restart(0);
    cluster.wait_ready(0);
    is_full(&cli);
}

/// Goal: a node with many tasks restarts with all of them.
#[test]
fn a_node_with_a_hundred_thousand_tasks_starts_again() {
    const TASKS: usize = 100_000;
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, ..ClusterOptions::default() });
    let cli = cluster.cli().patient();
    let lines: String = (0..TASKS).map(|number| format!("{number}\n")).collect();
    fs::write(cli.directory().join("lines"), lines).expect("a file is written");
    cli.json(&["enqueue", "bulk", "--lines", "--file", "lines"]).done();
    let taken = found("one is claimed", || claimed(&cli, &["bulk", "--lease", "1h"]).pop());
    cluster.kill(0);
    cluster.restart(0);
    cluster.wait_ready(0);
    let count = |state: &str| cli.json(&["count", "bulk", "--state", state]).done().object()["count"].as_u64();
    assert_eq!((count("ready"), count("claimed")), (Some(TASKS as u64 - 1), Some(1)));
    cli.json(&["complete", &taken.0, &taken.1]).done();
    assert!(!claimed(&cli, &["bulk", "--max", "100", "--wait", "30s"]).is_empty());
}
