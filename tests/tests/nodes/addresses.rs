//! Goal: nodes find each other by any address that leads to them, and the member list follows nodes that have moved. Method: nodes are
//! started at other addresses than their cluster knows.

use super::hostile::copy;
use norn_tests::cluster::{Cluster, ClusterOptions, all_tasks};
use norn_tests::ports::free_port;
use norn_tests::wait::{self, found};
use norn_tests::{cli, launch};
use serde_json::Value;
use std::collections::BTreeSet;

/// Name and address of each member, as the leader of the metadata group reports them.
fn listed(cluster: &Cluster) -> Option<BTreeSet<(String, String)>> {
    let answer = cluster.cli().json(&["cluster", "status"]);
    let status = (answer.code == Some(0)).then(|| answer.object())?;
    let members = status["members"].as_array()?.iter().filter(|member| member["state"] != "gone");
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    Some(members.map(|member| (text(&member["name"]), text(&member["address"]))).collect())
}

/// Waits until the member list has the current address of each node.
fn wait_listed(cluster: &Cluster) {
    let nodes = || cluster.members().into_iter();
    let wanted: BTreeSet<(String, String)> =
        nodes().map(|index| (cluster.name(index).to_owned(), cluster.address(index).to_owned())).collect();
    found("the member list has the address of each node", || listed(cluster).filter(|listed| *listed == wanted));
}

/// Message of a node that was removed or replaced.
const LEFT: &str = "this node is no member any more";

fn elsewhere() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Enqueues, claims and completes a task.
fn works(cluster: &Cluster, queue: &str) {
    let cli = cluster.cli().patient();
    cli.json(&["enqueue", queue, "data"]).done();
    let claimed = cli.claim(&[queue, "--wait", "30s"]).done().object();
    let (id, token) = (claimed["id"].as_str().expect("an id"), claimed["token"].as_str().expect("a token"));
    cli.json(&["complete", id, token]).done();
}

async fn count(cluster: &Cluster) -> usize {
    let client = cluster.client().await;
    let tasks = all_tasks(&client).await;
    client.close().await;
    tasks.len()
}

/// Host names of the test below: the first addresses of the name are ones at which no node listens.
const NAMED: &str = "127.0.0.1 localhost\n::1 several.test\n127.0.0.2 several.test\n127.0.0.1 several.test\n";

/// From now on others reach a stopped node by this name, which its certificate contains.
fn call_by_name(cluster: &mut Cluster, index: usize) {
    let hosts = ["cert", "node", cluster.name(index), "--host", "127.0.0.1,several.test", "--dir", "certs"];
    let file = |kind: &str| cluster.certificates().join(format!("node-{}.{kind}", cluster.name(index)));
    ["crt", "key"].into_iter().for_each(|kind| std::fs::remove_file(file(kind)).expect("it is there"));
    cli::run(cluster.directory(), &hosts).done();
    let name = cluster.address(index).replace("127.0.0.1", "several.test");
    cluster.advertise(index, &name);
}

/// Makes a change of the cluster as soon as it is possible.
fn changed(cluster: &Cluster, words: &[&str]) -> Value {
    let cli = cluster.cli().patient();
    let change = || Some(cli.json(words)).filter(|answer| answer.code != Some(3));
    found(&words.join(" "), change).done().object()
}

/// Goal: each address of a name is tried: by `cluster init`, by links, by a node that looks for a second instance at its own address,
/// by the command that adds a node, by a node that joins, and by a copy that looks for its original. Method: nodes and commands with
/// their own file of host names.
#[test]
fn nodes_are_reached_by_a_name_whose_first_addresses_lead_nowhere() {
    let mut cluster = Cluster::prepare(3, Vec::new());
    let Some(program) = launch::with_hosts(cluster.directory(), NAMED) else {
        eprintln!("SKIPPED: a process has no file of host names of its own on this machine (`unshare --mount`)");
        return;
    };
    cluster.use_program(&program);
    for index in 0..3 {
        call_by_name(&mut cluster, index);
        cluster.restart(index);
        cluster.wait_ready(index);
    }
    cluster.init(&[0, 1, 2], &["--partitions", "16"]).done();
    works(&cluster, "named");
    wait_listed(&cluster);
    // A restarted node advertises itself by the name.
    cluster.terminate(1);
    cluster.restart(1);
    cluster.wait_ready(1);
    works(&cluster, "named");

    let added = cluster.add_place();
    call_by_name(&mut cluster, added);
    cluster.give_up(added);
    cluster.restart(added);
    cluster.wait_ready(added);
    let address = cluster.address(added).to_owned();
    assert_eq!(changed(&cluster, &["cluster", "add", &address])["state"], "done");
    cluster.enter(added);
    let token = changed(&cluster, &["cluster", "token"]);
    cluster.start_joining(token["token"].as_str().expect("it is a text"));
    works(&cluster, "grown");

    copy(&cluster.data(1), &cluster.directory().join("copied"));
    let answer = cluster.fails_to_start_on(1, "copied", &elsewhere());
    assert!(answer.code == Some(1) && answer.stderr.contains("copied is a copy"), "{answer:?}");
}

/// No majority is reachable at the addresses of the member list. The nodes form one by the hints that they are started with, and have
/// the list changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_which_all_nodes_have_moved_heals_by_what_each_is_told_of_its_peers() {
    let mut cluster = Cluster::start();
    for _ in 0..20 {
        cluster.cli().patient().json(&["enqueue", "kept", "data"]).done();
    }
    for index in 0..3 {
        cluster.terminate(index);
    }
    for index in 0..3 {
        cluster.relocate(index, &elsewhere());
    }
    for index in 0..3 {
        let others = (0..3).filter(|other| *other != index);
        let peers = others.map(|other| format!("{}={}", cluster.name(other), cluster.address(other))).collect();
        cluster.hint(index, peers);
        cluster.restart(index);
    }
    for index in 0..3 {
        cluster.wait_ready(index);
    }
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    wait_listed(&cluster);
    assert_eq!(count(&cluster).await, 20);
    works(&cluster, "moved");

    // By now the list on each disk has all addresses.
    cluster.wait_heard_changes();
    for index in 0..3 {
        cluster.terminate(index);
        cluster.hint(index, Vec::new());
    }
    for index in 0..3 {
        cluster.restart(index);
    }
    for index in 0..3 {
        cluster.wait_ready(index);
    }
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    assert_eq!(count(&cluster).await, 21);
    works(&cluster, "again");
}

/// A hint to an unused address, or to another node, does no harm: the address in the member list is tried as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_hint_keeps_no_node_from_its_peers() {
    let mut cluster = Cluster::start();
    cluster.terminate(2);
    cluster.hint(2, vec![format!("n1={}", elsewhere()), format!("n2={}", cluster.address(0))]);
    cluster.restart(2);
    cluster.wait_ready(2);
    // With n2 down, a majority needs the link between n1 and n3.
    cluster.terminate(1);
    cluster.wait_led(&[0, 2], &[0, 2]).await;
    works(&cluster, "hinted");
}

/// A node at a new address has the list changed by itself, unless an operator has set the address since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_moved_has_the_member_list_follow() {
    let mut cluster = Cluster::start();
    cluster.terminate(1);
    cluster.relocate(1, &elsewhere());
    cluster.restart(1);
    cluster.wait_ready(1);
    wait_listed(&cluster);
    assert!(cluster.log(1).contains("this node has moved"), "{}", cluster.log(1));
    works(&cluster, "moved");
    // The member list has the address, so the next start requests no change.
    let before = cluster.log(1).matches("this node has moved").count();
    cluster.wait_heard_changes();
    cluster.terminate(1);
    cluster.restart(1);
    cluster.wait_ready(1);
    assert_eq!(cluster.log(1).matches("this node has moved").count(), before);
}

/// The node's own log is older than the list: an address that an operator set while the node was down stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_moved_leaves_an_address_that_an_operator_has_set_meanwhile() {
    let mut cluster = Cluster::start();
    cluster.terminate(1);
    let set = elsewhere();
    let cli = cluster.cli_at(0);
    let change = || {
        Some(cli.json(&["cluster", "set", "address", "n2", &set, "--untried"])).filter(|answer| answer.code == Some(0))
    };
    found("the address is set", change);
    cluster.relocate(1, &elsewhere());
    cluster.restart(1);
    found("n2 leaves it so", || {
        cluster.log(1).contains("the member list has another address of this node").then_some(())
    });
    let listed = listed(&cluster).expect("the root has a leader");
    assert!(listed.contains(&("n2".to_owned(), set.clone())), "{set}: {listed:?}");
}

/// Goal: a member does not run where no peer looks for it, and a copy does not take the place of a member that is down, unless an
/// operator requests it. Method: starts at a new address without an advertised one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_bound_elsewhere_is_refused_until_an_operator_says_where_it_is() {
    let mut cluster = Cluster::start();
    let (before, after) = (cluster.address(1).to_owned(), elsewhere());
    cluster.wait_heard_changes();
    cluster.terminate(1);
    copy(&cluster.data(1), &cluster.directory().join("copied"));
    cluster.rebind(1, &after);
    for data in ["copied", "n2"] {
        let answer = cluster.fails_to_start_on(1, data, &after);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let told = [format!("--advertise {after}"), format!("--advertise {before}"), format!("{data} is a copy")];
        for words in told.iter().map(String::as_str).chain(["\"n2\"", "has moved", "stop for ever"]) {
            assert!(answer.stderr.contains(words), "no {words:?} in {answer:?}");
        }
    }
    // No peer has heard of those starts, so the member continues at its old address.
    cluster.rebind(1, &before);
    cluster.restart(1);
    cluster.wait_ready(1);
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    works(&cluster, "back");

    // The operator can also set the address in the member list, though the member's own log does not have it yet.
    cluster.terminate(1);
    cluster.rebind(1, &after);
    let cli = cluster.cli_at(0);
    let change = || {
        Some(cli.json(&["cluster", "set", "address", "n2", &after, "--untried"]))
            .filter(|answer| answer.code == Some(0))
    };
    found("the address is set", change);
    cluster.restart(1);
    cluster.wait_ready(1);
    assert!(cluster.log(1).contains("an operator has set the address bound"), "{}", cluster.log(1));
    cluster.wait_led(&[0, 1, 2], &[0, 1, 2]).await;
    wait_listed(&cluster);
    works(&cluster, "moved");
}

/// Goal: an operator may set a name as the address, and a node without peers needs no such setting. Method: a member starts at an
/// address of the name that was set, and a cluster of one node starts at any address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_bound_where_a_listed_name_leads_goes_on_and_so_does_a_cluster_of_one() {
    let mut cluster = Cluster::start();
    let after = elsewhere();
    cluster.terminate(1);
    cluster.rebind(1, &after);
    let (cli, name) = (cluster.cli_at(0), after.replace("127.0.0.1", "localhost"));
    let change = || {
        Some(cli.json(&["cluster", "set", "address", "n2", &name, "--untried"])).filter(|answer| answer.code == Some(0))
    };
    found("the address is set", change);
    cluster.restart(1);
    cluster.wait_ready(1);
    works(&cluster, "named");

    let mut alone = Cluster::start_with(ClusterOptions { nodes: 1, ..ClusterOptions::default() });
    alone.terminate(0);
    alone.rebind(0, &elsewhere());
    alone.restart(0);
    alone.wait_ready(0);
    works(&alone, "alone");
}

/// Goal: an operator can stop a start that waits for other members. Method: the start asks members, and none of them runs.
#[test]
fn a_start_that_asks_members_ends_with_the_first_signal() {
    let mut cluster = Cluster::start();
    for index in 0..3 {
        cluster.terminate(index);
    }
    cluster.rebind(1, &elsewhere());
    cluster.restart(1);
    wait::until("n2 asks the others", || cluster.log(1).contains("asking the members"));
    // Without the signal the start would be refused in the end.
    assert!(cluster.terminate(1).success(), "{}", cluster.log(1));
    assert!(cluster.log(1).contains("stopped before it had started"), "{}", cluster.log(1));
}

/// A hint that names no peer ends the start at once, with a message that says what is wrong.
#[test]
fn what_names_no_peer_is_refused_at_the_start() {
    let mut cluster = Cluster::prepare(2, Vec::new());
    let fails = |cluster: &mut Cluster, peers: &[&str], code: i32, words: &[&str]| {
        cluster.hint(0, peers.iter().map(|peer| (*peer).to_owned()).collect());
        let answer = cluster.fails_to_start(0);
        assert_eq!(answer.code, Some(code), "{answer:?}");
        for word in words {
            assert!(answer.stderr.contains(word), "no {word:?} in {answer:?}");
        }
        cluster.hint(0, Vec::new());
    };
    fails(&mut cluster, &["n2=h:1"], 1, &["no cluster yet", "--join"]);
    for index in 0..2 {
        cluster.restart(index);
        cluster.wait_ready(index);
    }
    cluster.init(&[0, 1], &["--partitions", "16"]).done();
    cluster.terminate(0);
    for form in ["n2", "n2=h", "n2=h:0", "=h:1", "n2=0.0.0.0:1"] {
        fails(&mut cluster, &["n2=h:1", form], 2, &["peers", "NODE=HOST:PORT is wanted", form]);
    }
    fails(&mut cluster, &[""], 2, &["--peer"]);
    fails(&mut cluster, &["n9=h:1"], 1, &["no member \"n9\"", "its peers are n2"]);
    fails(&mut cluster, &["n1=h:1"], 1, &["n1", "this node itself", "--advertise"]);
    fails(&mut cluster, &["n2=h:1", "n2=h:2"], 1, &["n2", "twice"]);
    cluster.restart(0);
    cluster.wait_ready(0);
}

/// Each possible address of a node is checked: the copy finds itself at the node's old address, and the original at the current one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_refused_though_it_listens_where_its_node_was() {
    let mut cluster = Cluster::start();
    let before = cluster.address(1).to_owned();
    cluster.wait_agreed().await;
    cluster.terminate(1);
    copy(&cluster.data(1), &cluster.directory().join("copied"));
    let elsewhere = elsewhere();
    cluster.relocate(1, &elsewhere);
    cluster.replace(1, None, vec![format!("advertise={elsewhere}")]);
    cluster.restart(1);
    cluster.wait_ready(1);
    // The copy is started with the node's settings except for the listening address.
    let answer = cluster.fails_to_start_on(1, "copied", &before);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    for words in ["\"n2\"", "runs already", cluster.address(1), "copied is a copy"] {
        assert!(answer.stderr.contains(words), "no {words:?} in {answer:?}");
    }
}

/// A node that was replaced says so when it restarts on its old directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_node_says_that_it_is_no_member() {
    let mut cluster = Cluster::start();
    cluster.kill(2);
    // A member that seems to be alive would be drained, and stay a member meanwhile.
    let is_silent = |status: &Value| {
        let members = status["members"].as_array().expect("it is a list");
        members.iter().any(|member| member["name"] == "n3" && member["alive"] == false)
    };
    found("n3 is silent", || Some(cluster.cli_at(0).json(&["cluster", "status"]).object()).filter(is_silent));
    let blank = cluster.start_blank();
    let address = cluster.address(blank).to_owned();
    let cli = cluster.cli_at(0);
    let replace = || Some(cli.json(&["cluster", "replace", "n3", &address])).filter(|answer| answer.code == Some(0));
    found("n3 is replaced", replace);
    // The count and the list come from the same moment.
    let status = cli.run(&["cluster", "status"]).done().stdout.clone();
    let counted =
        status.lines().find_map(|line| line.strip_prefix("partitions  ")).expect("there is a line").to_owned();
    let (there, rest) = counted.split_once(" of ").expect("some of all");
    let all = rest.split(' ').next().expect("a number");
    assert_eq!(there == all, !status.contains("\nPARTITION "), "{status}");
    cluster.enter(blank);
    found("n3 has left", || listed(&cluster).filter(|listed| !listed.iter().any(|(name, _)| name == "n3")));
    cluster.restart(2);
    let said = || cluster.log(2).lines().find(|line| line.contains(LEFT)).map(str::to_owned);
    let line = found("n3 says that it is no member", said);
    assert!(line.contains("ERROR") && line.contains("empty data directory"), "{line}");
    cluster.leave(2);
}

/// Goal: a node that was removed while it was down reports only that, wherever it starts. Method: its own log does not know of the
/// removal, and it starts at another address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_node_that_starts_elsewhere_says_only_that_it_is_no_member() {
    let mut cluster = Cluster::start_with(ClusterOptions { nodes: 4, partitions: 16, ..ClusterOptions::default() });
    cluster.kill(3);
    let cli = cluster.cli_at(0);
    let remove = || Some(cli.json(&["cluster", "remove", "n4"])).filter(|answer| answer.code == Some(0));
    found("n4 is removed", remove);
    cluster.relocate(3, &elsewhere());
    cluster.restart(3);
    found("n4 says that it is no member", || cluster.log(3).contains(LEFT).then_some(()));
    cluster.leave(3);
    let log = cluster.log(3);
    assert!(!log.contains("has moved") && !log.contains("the member list has another address"), "{log}");
}
