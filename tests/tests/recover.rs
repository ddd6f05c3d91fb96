//! Majorities that are lost for good, and what `cluster recover --unsafe` makes of the rest, on real nodes.
//!
//! The requirement: nothing goes on before an operator says so; then the partitions go on with whoever is left, what these had
//! is there, and nothing is granted before the longest lease has run out.

use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, found};
use norn_tests::{Cluster, ClusterOptions};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest lease in use, as the operator says.
const LEASE: Duration = Duration::from_secs(2);

fn options(nodes: usize) -> ClusterOptions {
    ClusterOptions { nodes, partitions: 16, replicas: Some(3), ..Default::default() }
}

fn enqueue(cli: &Cli, count: usize) -> Vec<String> {
    let data: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let one = |data: &String| cli.json(&["enqueue", "mail", data, "--acks", "all"]).done().object()["id"].to_string();
    data.iter().map(one).collect()
}

/// Ids that are claimed, until nothing is left. Fails as long as partitions are not available.
fn claim_all(cli: &Cli, count: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut claimed = Vec::new();
    while claimed.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} were claimed", claimed.len());
        let answer = cli.json(&["claim", "mail", "--max", "100", "--lease", "1m"]);
        claimed.extend(
            answer.lines().iter().filter(|line| line.get("token").is_some()).map(|line| line["id"].to_string()),
        );
    }
    claimed
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn list(value: &Value) -> usize {
    value.as_array().expect("a list").len()
}

#[test]
fn one_node_of_three_is_left() {
    let mut cluster = Cluster::start_with(options(3));
    let ids = enqueue(&cluster.cli(), 30);
    let cli = cluster.cli_at(0);
    let recover = ["cluster", "recover", "--unsafe", "--lost", "n2,n3", "--longest-lease", "2s"];
    let patient = |timeout: &'static str| [&recover[..], &["--timeout", timeout]].concat();
    let refused = cli.json(&patient("1s")).refusal(1)["message"].to_string();
    assert!(refused.contains("is alive"), "{refused}");
    cluster.kill_together(&[1, 2]);
    assert_eq!(cli.json(&["cluster", "recover", "--lost", "n2,n3"]).code, Some(2), "it says that it is unsafe");
    let look = || {
        let plan = cli.json(&["cluster", "recover", "--lost", "n2,n3", "--dry-run"]).done().object();
        let clear = plan["partitions"].as_array().is_some_and(|all| all.iter().all(|one| one["obstacle"].is_null()));
        (clear && list(&plan["partitions"]) == 17).then_some(())
    };
    found("all sixteen partitions and the root have lost their majority", look);
    let began = Instant::now();
    let done = cli.json(&recover).done().object();
    assert_eq!((&done["state"], list(&done["partitions"]), list(&done["beyond"])), (&"done".into(), 17, 0), "{done}");
    assert_eq!(sorted(claim_all(&cli, 30)), sorted(ids));
    assert!(began.elapsed() >= LEASE, "nothing is granted while leases may run");
    let again = cli.json(&recover).done().object();
    assert_eq!(list(&again["partitions"]), 0, "it may be repeated");
    // The lost are taken out, and a new node comes in.
    cli.json(&["cluster", "set", "replicas", "1", "--no-wait"]).done();
    cli.json(&["cluster", "remove", "n2", "--no-wait"]).done();
    let removed = || (cli.json(&["cluster", "remove", "n3"]).code == Some(0)).then_some(());
    found("the other one goes as well, once no layout names the first", removed);
    let index = cluster.start_blank();
    let address = cluster.address(index).to_owned();
    cli.json(&["cluster", "add", &address]).done();
    cli.json(&["cluster", "set", "replicas", "2"]).done();
    let more = enqueue(&cli, 10);
    assert_eq!(sorted(claim_all(&cli, 10)), sorted(more));
}

#[test]
fn two_nodes_of_five_are_lost() {
    let mut cluster = Cluster::start_with(options(5));
    let ids = enqueue(&cluster.cli(), 40);
    cluster.kill_together(&[3, 4]);
    std::fs::remove_dir_all(cluster.data(3)).expect("it is there");
    std::fs::remove_dir_all(cluster.data(4)).expect("it is there");
    cluster.give_up(3);
    cluster.give_up(4);
    let cli = cluster.cli();
    let recover = ["cluster", "recover", "--unsafe", "--lost", "n4,n5", "--longest-lease", "2s"];
    let done = cli.json(&recover).done().object();
    let touched = list(&done["partitions"]);
    assert!((1..16).contains(&touched), "some have a majority, and so has the root: {done}");
    cli.json(&["cluster", "remove", "n4", "--no-wait"]).done();
    cli.json(&["cluster", "remove", "n5"]).done();
    // What was acknowledged by all is there, as somebody is left of each partition.
    assert_eq!(list(&done["beyond"]), 0);
    assert_eq!(sorted(claim_all(&cli, 40)), sorted(ids));
}
