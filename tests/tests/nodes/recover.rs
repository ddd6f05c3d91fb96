//! Majorities that are lost for good, and the result of `cluster recover --unsafe` for the rest, on real nodes.
//!
//! The requirement: nothing continues before an operator requests it. Then the partitions continue with the surviving replicas, whose
//! facts are kept, and nothing is granted before the longest lease has expired.

use norn_tests::cli::{Answer, Cli};
use norn_tests::wait::{Deadline, PATIENCE, found};
use norn_tests::{Cluster, ClusterOptions};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The longest lease in use, as the operator states it.
const LEASE: Duration = Duration::from_secs(2);

fn options(nodes: usize) -> ClusterOptions {
    ClusterOptions { nodes, partitions: 16, replicas: Some(3), ..Default::default() }
}

fn enqueue(cli: &Cli, count: usize) -> BTreeSet<String> {
    let cli = cli.clone().patient();
    let data: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let one = |data: &String| cli.json(&["enqueue", "mail", data, "--acks", "all"]).done().object()["id"].to_string();
    data.iter().map(one).collect()
}

/// Claims until all of these ids have been claimed; returns all claimed ids. Fails if partitions stay unavailable.
fn claim_all(cli: &Cli, wanted: &BTreeSet<String>) -> BTreeSet<String> {
    // A grant whose answer was lost becomes claimable again after its lease, and so does a task that was claimed long before.
    let deadline = Deadline::after(3 * PATIENCE);
    let mut claimed = BTreeSet::new();
    while !wanted.is_subset(&claimed) {
        deadline.check(|| format!("{claimed:?} were claimed of {wanted:?}"));
        let answer = cli.claim(&["mail", "--max", "100", "--lease", "1m"]);
        claimed.extend(
            answer.lines().iter().filter(|line| line.get("token").is_some()).map(|line| line["id"].to_string()),
        );
    }
    claimed
}

/// Answer of a verb about the cluster. Repeats the verb while too few nodes answer.
fn operate(cli: &Cli, arguments: &[&str]) -> Answer {
    let answered = |answer: &Answer| answer.code != Some(3);
    found("enough nodes answer", || Some(cli.json(arguments)).filter(answered))
}

/// The recovered partitions, as far as answers reported them.
struct Recovered {
    partitions: BTreeSet<String>,
    /// Whether no attempt was cut short, so that no recovered partitions are unreported.
    all: bool,
}

/// Repeats the recovery until nothing is left to recover: each attempt skips nodes that do not answer in time.
fn recover(cli: &Cli, arguments: &[&str]) -> Recovered {
    let deadline = Deadline::after(3 * PATIENCE);
    let mut recovered = Recovered { partitions: BTreeSet::new(), all: true };
    loop {
        deadline.check(|| format!("these went on: {:?}", recovered.partitions));
        let answer = cli.json(arguments);
        if answer.code == Some(3) {
            recovered.all = false;
            continue;
        }
        let done = answer.done().object();
        assert_eq!((&done["state"], list(&done["beyond"])), (&"done".into(), 0), "{done}");
        if list(&done["partitions"]) == 0 {
            return recovered;
        }
        let partitions = done["partitions"].as_array().expect("a list");
        recovered.partitions.extend(partitions.iter().map(|one| one["partition"].to_string()));
    }
}

fn list(value: &Value) -> usize {
    value.as_array().expect("a list").len()
}

#[test]
fn one_node_of_three_is_left() {
    // A node that stalls for a moment still counts as alive. The refusal below depends on that.
    let settings = vec!["election_timeout_ms=5000".to_owned()];
    let mut cluster = Cluster::start_with(ClusterOptions { settings, ..options(3) });
    let ids = enqueue(&cluster.cli(), 30);
    let cli = cluster.cli_at(0);
    let unsafely = ["cluster", "recover", "--unsafe", "--lost", "n2,n3", "--longest-lease", "2s"];
    let briefly = [&unsafely[..], &["--timeout", "1s"]].concat();
    let refused = operate(&cli, &briefly).refusal(1)["message"].to_string();
    assert!(refused.contains("is alive"), "{refused}");
    let all = ["cluster", "recover", "--unsafe", "--lost", "n1,n2,n3"];
    let refused = operate(&cli, &all).refusal(1)["message"].to_string();
    assert!(refused.contains("can be heard, and no member is left"), "{refused}");
    cluster.kill_together(&[1, 2]);
    assert_eq!(cli.json(&["cluster", "recover", "--lost", "n2,n3"]).code, Some(2), "it says that it is unsafe");
    let look = || {
        let plan = operate(&cli, &["cluster", "recover", "--lost", "n2,n3", "--dry-run"]).done().object();
        let clear = plan["partitions"].as_array().is_some_and(|all| all.iter().all(|one| one["obstacle"].is_null()));
        (clear && list(&plan["partitions"]) == 17).then_some(())
    };
    found("all sixteen partitions and the root have lost their majority", look);
    let began = Instant::now();
    let recovered = recover(&cli, &unsafely);
    assert!(recovered.partitions.len() == 17 || !recovered.all, "{:?}", recovered.partitions);
    assert_eq!(claim_all(&cli, &ids), ids);
    assert!(began.elapsed() >= LEASE, "nothing is granted while leases may run");
    let again = operate(&cli, &unsafely).done().object();
    assert_eq!(list(&again["partitions"]), 0, "it may be repeated");
    // The lost members are removed, and a new node is added.
    operate(&cli, &["cluster", "set", "replicas", "1", "--no-wait"]).done();
    operate(&cli, &["cluster", "remove", "n2", "--no-wait"]).done();
    let removed = || (cli.json(&["cluster", "remove", "n3"]).code == Some(0)).then_some(());
    found("the other one goes as well, once no layout names the first", removed);
    let index = cluster.start_blank();
    let address = cluster.address(index).to_owned();
    operate(&cli, &["cluster", "add", &address]).done();
    operate(&cli, &["cluster", "set", "replicas", "2"]).done();
    let more = enqueue(&cli, 10);
    let claimed = claim_all(&cli, &more);
    assert!(claimed.is_subset(&(&ids | &more)), "{claimed:?}");
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
    let recovered = recover(&cli, &["cluster", "recover", "--unsafe", "--lost", "n4,n5", "--longest-lease", "2s"]);
    let touched = recovered.partitions.len();
    let some = touched < 16 && (touched > 0 || !recovered.all);
    assert!(some, "some have a majority, and so has the root: {:?}", recovered.partitions);
    operate(&cli, &["cluster", "remove", "n4", "--no-wait"]).done();
    operate(&cli, &["cluster", "remove", "n5"]).done();
    // Every write was acknowledged with `acks=all`, so each is on a surviving replica of its partition.
    assert_eq!(claim_all(&cli, &ids), ids);
}
