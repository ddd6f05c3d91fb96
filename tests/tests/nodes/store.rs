//! Stores in a process: from the command line, under `kill -9`, and as the first node of a cluster.

use norn_client::client::{ClaimOptions, Client};
use norn_client::session::Draft;
use norn_store::{Store, StoreError, StoreOptions};
use norn_tests::cli::{self, Answer, Begun, Repl};
use norn_tests::cluster::Cluster;
use norn_tests::wait;
use norn_wire::QueueName;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

fn norn(directory: &Path, arguments: &[&str]) -> Answer {
    cli::run(directory, &[&["--json", "--store", "tasks"], arguments].concat())
}

// T1: the store without the service
#[test]
fn commands_share_a_store_one_after_the_other() {
    let place = TempDir::new().unwrap();
    let enqueued = norn(place.path(), &["enqueue", "mail", "hello"]).done().object();
    let id = enqueued["id"].as_str().unwrap();
    let claimed = norn(place.path(), &["claim", "mail"]).done().object();
    assert_eq!((claimed["id"].as_str(), claimed["data"].as_str()), (Some(id), Some("hello")));
    // The claim outlives the process that made it.
    assert_eq!(norn(place.path(), &["claim", "mail"]).code, Some(4), "it is held");
    let token = claimed["token"].as_str().unwrap();
    norn(place.path(), &["complete", id, token, "--result", "sent"]).done();
    let task = norn(place.path(), &["get", id]).done().object();
    assert_eq!((task["state"].as_str(), task["result"].as_str()), (Some("done"), Some("sent")));
    let [queue] = norn(place.path(), &["queues"]).done().lines().try_into().expect("one queue");
    assert_eq!(queue["queue"], "mail");
    norn(place.path(), &["status"]).done();
}

#[test]
fn a_command_waits_for_a_store_in_use_and_says_who_holds_it() {
    let place = TempDir::new().unwrap();
    let mut first = Repl::with(place.path(), &["--store", "tasks"]);
    first.ask("count");
    let refusal = norn(place.path(), &["--timeout", "100ms", "count"]).refusal(3);
    assert!(refusal["message"].as_str().unwrap().contains("is held by"), "{refusal}");
    let waits = Begun::of(place.path(), &["--json", "--store", "tasks", "--timeout", "60s", "count"]);
    first.finish();
    assert_eq!(waits.end().done().object()["count"], 0);
}

#[test]
fn a_store_is_refused_where_a_cluster_is_meant() {
    let place = TempDir::new().unwrap();
    let refused: [&[&str]; 4] =
        [&["start", "--data", "d"], &["doctor"], &["cluster", "init", "--peers", "h:1"], &["cert", "ca", "--dir", "c"]];
    for arguments in refused {
        let error = norn(place.path(), arguments).refusal(2);
        assert!(error["message"].as_str().unwrap().contains("--store is for"), "{error}");
    }
    norn(place.path(), &["--connect", "h:1", "count"]).refusal(2);
    assert!(!place.path().join("tasks").exists(), "nothing was made");
}

/// Goal: a killed process loses nothing that its store has acknowledged.
#[test]
fn a_store_that_is_killed_has_what_it_acknowledged() {
    let place = TempDir::new().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let mut repl = Repl::with(place.path(), &["--store", "tasks"]);
        for number in 0..40 {
            let row = repl.ask(&format!("enqueue mail {round}-{number}"));
            acknowledged.push(row["id"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned());
        }
        repl.kill();
    }
    let mut repl = Repl::with(place.path(), &["--store", "tasks"]);
    let count = repl.ask("count mail");
    assert!(count["count"].as_u64() >= Some(acknowledged.len() as u64), "{count}");
    for id in acknowledged {
        assert_eq!(repl.ask(&format!("get {id}"))["state"], "ready");
    }
    repl.finish();
}

/// Goal: a small application grows: its tasks and claims go on in a cluster, and survive the node on whose disk they began.
#[test]
fn the_directory_of_a_store_becomes_the_first_node_of_a_cluster() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut cluster = Cluster::prepare(1, Vec::new());
    let options = StoreOptions { name: cluster.name(0).to_owned(), partitions: 16, ..StoreOptions::default() };
    let data = cluster.data(0);
    let (ids, held) = runtime.block_on(async {
        let store = Store::open_with(&data, options).await.unwrap();
        let filled = fill(store.client()).await;
        store.close().await.unwrap();
        filled
    });
    let address = cluster.address(0).to_owned();
    cluster.relocate(0, &address);
    cluster.restart(0);
    cluster.wait_ready(0);
    let listed = || cluster.cli_at(0).patient().json(&["nodes"]).done().object()["address"].clone();
    wait::until("the member list has the node's address", || listed() == address);
    for _ in 0..2 {
        let newcomer = cluster.start_blank();
        let address = cluster.address(newcomer).to_owned();
        cluster.cli_at(0).json(&["cluster", "add", &address]).done();
        cluster.enter(newcomer);
    }
    cluster.cli_at(0).json(&["cluster", "set", "replicas", "3"]).done();
    cluster.kill(0);
    let cli = cluster.cli_at(1).patient();
    for id in &ids {
        assert_eq!(cli.json(&["get", id]).done().object()["data"], "x");
    }
    cli.json(&["complete", &held.0, &held.1]).done();
    wait::until("the rest can be claimed", || cli.claim(&["mail"]).code == Some(0));
    let opened = runtime.block_on(Store::open(&data));
    assert!(matches!(opened, Err(StoreError::HasOthers { .. })), "{opened:?}");
}

/// Enqueues tasks and claims one; returns their ids, and the claim's id and token.
async fn fill(client: &Client) -> (Vec<String>, (String, String)) {
    let mail = QueueName::new("mail").unwrap();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(client.enqueue(Draft::new(mail.clone(), "x")).await.unwrap().id.to_string());
    }
    let claim = ClaimOptions::new([mail]).lease(Duration::from_secs(3_600));
    let claims = client.claim(claim).await.unwrap();
    let granted = &claims.tasks[0].granted;
    (ids, (granted.id.to_string(), granted.token.to_string()))
}
