//! Goal: a client that cannot reach the cluster says why, with a next step that helps, and does not retry what will not pass by
//! itself.
//! Method: clusters that are not founded, stopped, of another authority, behind dead addresses, or without a majority. Calls have a
//! longer timeout than a test: a call that waits for its deadline fails here by the message that it then shows.

use norn_client::client::{ClaimOptions, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::cli::{self, Cli};
use norn_tests::cluster::{Cluster, ClusterOptions};
use norn_tests::ports::free_port;
use norn_tests::wait::{PATIENCE, eventually, until};
use norn_wire::{QueueName, State};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

fn started(nodes: usize) -> Cluster {
    Cluster::start_with(ClusterOptions { nodes, ..ClusterOptions::default() })
}

/// An address at which no node listens.
fn nowhere() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().all(|word| text.contains(word))
}

#[test]
fn before_a_cluster_is_founded_commands_say_how_that_is_done() {
    let mut cluster = Cluster::prepare(1, Vec::new());
    cluster.restart(0);
    cluster.wait_ready(0);
    let cli = cluster.cli().patient();
    for verb in [["count"].as_slice(), &["enqueue", "mail", "data"], &["status"], &["claim", "mail", "--wait", "30s"]] {
        let refusal = cli.json(verb).refusal(3);
        assert!(refusal["code"] == "not_ready" && refusal["cause"] == "unfounded", "{verb:?}: {refusal}");
        assert!(refusal["message"].as_str().is_some_and(|message| message.contains("norn cluster init")), "{refusal}");
    }
    let shown = cli.run(&["count"]);
    assert!(shown.code == Some(3) && has(&shown.stderr, &["norn cluster init"]), "{shown:?}");
    assert!(!shown.stderr.contains("try again in a moment"), "that does not help: {shown:?}");
    cluster.init(&[0], &["--partitions", "1"]).done();
    cli.json(&["count"]).done();
}

#[test]
fn dead_addresses_in_a_file_do_not_keep_a_command_from_the_node_that_lives() {
    let cluster = started(1);
    let file = cluster.directory().join(".norn").join("client.toml");
    fs::create_dir(file.parent().expect("a directory")).expect("a new directory");
    let mut addresses: Vec<String> = (0..8).map(|_| nowhere()).collect();
    addresses.push(cluster.address(0).to_owned());
    let certificates = cluster.certificates();
    let path = |name: &str| certificates.join(name).display().to_string();
    let text = format!(
        "addresses = {addresses:?}\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n",
        path("ca.crt"),
        path("client-tests.crt"),
        path("client-tests.key")
    );
    fs::write(&file, text).expect("it can be written");
    // Whichever address it starts with, and with the default timeout of commands.
    for _ in 0..5 {
        cli::run(cluster.directory(), &["--json", "count"]).done();
    }
}

#[test]
fn where_no_node_is_reached_a_command_ends_before_its_time_and_says_what_was_tried() {
    let mut cluster = started(1);
    cluster.kill(0);
    let nowhere = nowhere();
    let addresses = vec![cluster.address(0).to_owned(), nowhere.clone()];
    let cli = Cli::new(cluster.directory(), addresses, &cluster.certificates());
    let refusal = cli.json(&["count"]).refusal(3);
    assert!(refusal["code"] == "unavailable" && refusal["cause"] == "unreached", "{refusal}");
    let message = refusal["message"].as_str().expect("it is text");
    assert!(has(message, &["no node was reached", cluster.address(0), &nowhere]), "{message}");
    let shown = cli.run(&["count"]);
    assert!(has(&shown.stderr, &["norn start"]) && !shown.stderr.contains("trying on"), "{shown:?}");
    // At a terminal the command shows what it is waiting for.
    cli.patient().terminal(&["count"]).shows("no node answers now, trying on: ");
}

/// Certificates of another authority in their own directory.
fn foreign(cluster: &Cluster) -> PathBuf {
    for arguments in [["cert", "ca", "--dir", "foreign"].as_slice(), &["cert", "client", "tests", "--dir", "foreign"]] {
        cli::run(cluster.directory(), arguments).done();
    }
    cluster.directory().join("foreign")
}

#[test]
fn certificates_of_another_authority_are_refused_at_once_by_either_side() {
    let cluster = started(1);
    let foreign = foreign(&cluster);
    // First the client does not trust the node, then the node does not trust the client.
    for (own, words) in [("ca.crt", "foreign/ca.crt"), ("client-tests.crt", "foreign/client-tests.crt")] {
        let cli = Cli::new(cluster.directory(), cluster.addresses(), &foreign).patient();
        let refusal = cli.json(&["count"]).refusal(1);
        assert!(refusal["code"] == "denied" && refusal["retry"] == "never", "{refusal}");
        let message = refusal["message"].as_str().expect("it is text");
        assert!(has(message, &[cluster.address(0), "authority", words]), "{own}: {message}");
        let init = ["cluster", "init", "--peers", cluster.address(0), "--certs", "foreign", "--json"];
        let refusal = cli::run(cluster.directory(), &init).refusal(1);
        assert!(refusal["message"].as_str().is_some_and(|message| has(message, &["authority", words])), "{refusal}");
        fs::copy(cluster.certificates().join("ca.crt"), foreign.join("ca.crt")).expect("it can be copied");
    }
}

#[test]
fn without_a_majority_the_status_shows_what_needs_none() {
    let mut cluster = started(3);
    cluster.kill(1);
    cluster.kill(2);
    let cli = cluster.cli_at(0).patient();
    until("the node takes the others for dead", || {
        let status = cli.json(&["status"]).done().object();
        status["nodes"]["total"] == 3 && status["nodes"]["alive"] == 1 && status["uncounted"] == 16
    });
    let shown = cli.run(&["status"]);
    assert!(
        has(&shown.done().stdout, &["1 of 3 alive", "16 partitions, of which no majority can be read"]),
        "{shown:?}"
    );
    // Only the metadata group knows the cluster's intended state. The status still shows that one node is alone.
    let shown = cli.run(&["cluster", "status", "--timeout", "3s"]);
    assert!(shown.code == Some(3) && has(&shown.stdout, &["1 of 3 alive"]), "{shown:?}");
    assert_eq!(cli.json(&["count", "--timeout", "3s"]).code, Some(3), "what needs a majority says so");
}

/// Goal: if a NAT router moves a client to another port in the middle of a connection, the client continues and loses nothing: no task
/// that it enqueues then, no claim that it waits for, and no completion. Method: one node, so that the client cannot turn to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_port_is_another_one_under_way_goes_on_and_loses_nothing() {
    let options = ClusterOptions { nodes: 1, partitions: 4, proxied: true, ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options);
    let (worker, producer) = (
        cluster.client_of(cluster.addresses(), PATIENCE).await,
        cluster.client_of(cluster.addresses(), PATIENCE).await,
    );
    let queue = QueueName::new("mail").expect("a name");
    let claims = || async {
        let status = producer.status().await.ok()?;
        Some(status.counters.iter().find(|(name, _)| name == "claim").map_or(0, |counter| counter.1))
    };
    let before = eventually("the node counts", PATIENCE, &claims).await;
    let options = ClaimOptions::new([queue.clone()]).wait(Duration::from_secs(600)).lease(Duration::from_secs(3_600));
    let waiting = worker.clone();
    let parked = tokio::spawn(async move { waiting.claim(options).await });
    eventually("the worker waits", PATIENCE, || async { (claims().await? > before).then_some(()) }).await;
    cluster.network().rebind_clients();
    let id = producer.enqueue(Draft::new(queue.clone(), "x")).await.expect("the cluster serves").id;
    let claimed = parked.await.expect("no panic").expect("the cluster serves").tasks.remove(0);
    assert_eq!((claimed.granted.id, claimed.granted.attempt), (id, 1));
    cluster.network().rebind_clients();
    worker.complete(CompleteOptions::new(id, claimed.granted.token)).await.expect("it is held");
    assert_eq!(producer.count(Some(queue.clone()), Some(State::Done)).await.expect("it is counted"), 1);
    assert_eq!(producer.count(Some(queue), None).await.expect("it is counted"), 1, "none is there twice");
}
