//! Claims that wait: what becomes of the tasks of those who stop waiting, and how long leases are behind a long wait.

use norn_client::client::{ClaimOptions, CompleteOptions};
use norn_client::session::Draft;
use norn_client::wire::{QueueName, State};
use norn_tests::wait::{PATIENCE, found, until};
use norn_tests::{Cli, Cluster, ClusterOptions};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Far longer than a test takes: what is held under it is lost to the test.
const LEASE: &str = "1h";

/// One node, so that it is known where claims wait.
fn alone() -> (Cluster, Cli) {
    let cluster = Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, ..ClusterOptions::default() });
    let cli = cluster.cli().patient();
    (cluster, cli)
}

fn counter(cli: &Cli, name: &str) -> u64 {
    cli.json(&["status"]).done().object()["counters"][name].as_u64().unwrap_or(0)
}

/// Begins to wait for work, and comes back once the node knows.
fn wait_for_work(cli: &Cli, lease: &str) -> norn_tests::Begun {
    let before = counter(cli, "claim");
    let begun = cli.begin(&["claim", "mail", "--wait", "10m", "--lease", lease]);
    until("the node is asked", || counter(cli, "claim") > before);
    begun
}

/// Goal: whoever stops waiting, in whichever way, takes no task with it, and that was no attempt.
#[test]
fn who_stops_waiting_takes_no_task() {
    let (_cluster, cli) = alone();
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::HUP, Some(129)), (Signal::KILL, None)]
    {
        let begun = wait_for_work(&cli, LEASE);
        begun.signal(signal);
        assert_eq!(begun.end().code, code, "{signal:?}");
        let id = cli.json(&["enqueue", "mail", "x", "--max-attempts", "1"]).done().object()["id"].clone();
        let claimed = cli.json(&["claim", "mail", "--wait", "10m"]).done().object();
        assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{signal:?}: {claimed}");
        let token = claimed["token"].as_str().expect("a token").to_owned();
        cli.json(&["complete", id.as_str().expect("an id"), &token]).done();
    }
}

/// Goal: a lease counts from the grant, not from the beginning of a wait that is longer than the lease.
#[test]
fn a_lease_behind_a_long_wait_is_whole() {
    let (_cluster, cli) = alone();
    let begun = wait_for_work(&cli, "2s");
    let since = Instant::now();
    until("the wait is longer than the lease", || since.elapsed() > Duration::from_secs(3));
    let id = cli.json(&["enqueue", "mail", "x"]).done().object()["id"].as_str().expect("an id").to_owned();
    let claimed = begun.end().done().object();
    let view = cli.json(&["get", &id]).done().object();
    let (start_ms, ends_ms) = (view["claims"][0]["start_ms"].as_u64(), claimed["lease_expires_ms"].as_u64());
    let left_ms = ends_ms.expect("a time").saturating_sub(start_ms.expect("a time"));
    assert!(left_ms >= 1_990, "{claimed} of {view}");
}

/// Goal: a delayed task comes to the worker that waits for it when it is due and not before, though the node is killed or stands still
/// meanwhile.
#[test]
fn a_delayed_task_comes_to_a_parked_worker_when_it_is_due_whatever_becomes_of_the_node() {
    let (mut cluster, cli) = alone();
    let until_due = |due_ms: u64| {
        let is_due =
            || SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_millis() > u128::from(due_ms));
        until("it is due", is_due);
    };
    let meanwhile: [fn(&mut Cluster, &dyn Fn()); 3] = [
        |_, _| {},
        |cluster, _| {
            cluster.kill(0);
            cluster.restart(0);
            cluster.wait_ready(0);
        },
        |cluster, until_due| {
            cluster.pause(0);
            until_due();
            cluster.resume(0);
        },
    ];
    for (round, meanwhile) in meanwhile.into_iter().enumerate() {
        let begun = wait_for_work(&cli, LEASE);
        let id = cli.json(&["enqueue", "mail", "x", "--delay", "3s"]).done().object()["id"].clone();
        let id = id.as_str().expect("an id");
        let due_ms = cli.json(&["get", id]).done().object()["not_before_ms"].as_u64().expect("a time");
        meanwhile(&mut cluster, &|| until_due(due_ms));
        let claimed = begun.end().done().object();
        assert_eq!((&claimed["id"], &claimed["attempt"]), (&id.into(), &1.into()), "{round}: {claimed}");
        let view = cli.json(&["get", id]).done().object();
        assert!(view["claims"][0]["start_ms"].as_u64() >= Some(due_ms), "{round}: {view}");
        cli.json(&["complete", id, claimed["token"].as_str().expect("a token")]).done();
    }
}

/// Goal: a queue that is closed for now is no outage, however much stands in it, and does not keep work of others back.
#[test]
fn a_paused_queue_with_many_tasks_is_empty_and_hides_no_other() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    // More than followers name to their leaders at once.
    let lines: String = (0..5_000).map(|number| format!("{number}\n")).collect();
    cli.run_with(&["--json", "enqueue", "closed", "--lines", "-"], lines.as_bytes()).done();
    cli.json(&["queue", "set", "closed", "paused", "yes"]).done();
    cluster.wait_heard_changes();
    let nothing = |queues: &str| {
        let answer = cli.claim(&[queues]);
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(4), ""), "{queues}: {answer:?}");
    };
    nothing("closed");
    nothing("closed,mail");
    let id = cli.json(&["enqueue", "mail", "x"]).done().object()["id"].clone();
    for queues in ["closed,mail", "mail,closed"] {
        let claimed = cli.claim(&[queues, "--max", "5"]).done().object();
        assert_eq!((&claimed["id"], &claimed["queue"]), (&id, &"mail".into()), "{queues}: {claimed}");
        let [id, token] = ["id", "token"].map(|name| claimed[name].as_str().expect("a text"));
        cli.json(&["release", id, token]).done();
    }
    cli.json(&["queue", "set", "closed", "paused", "no"]).done();
    cluster.wait_heard_changes();
    assert_eq!(cli.claim(&["closed", "--max", "5"]).done().lines().len(), 5);
}

/// Goal: whoever has another clock than the program still knows how long a claim is held.
#[test]
fn a_renewal_says_how_long_it_holds() {
    let (_cluster, cli) = alone();
    cli.json(&["enqueue", "mail", "x"]).done();
    let claimed = found("it is claimed", || cli.json(&["claim", "mail", "--lease", "30s"]).lines().pop());
    let [id, token] = ["id", "token"].map(|name| claimed[name].as_str().expect("a text").to_owned());
    let renewed = cli.json(&["renew", &id, &token, "--lease", "90s"]).done().object();
    assert_eq!(renewed["lease_ms"], 90_000, "{renewed}");
}

/// Goal: a worker that gives up waiting again and again, as with `timeout`, loses nothing by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_future_is_dropped_takes_no_task() {
    const TASKS: usize = 30;
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let queue = QueueName::new("mail").expect("a name");
    let options = ClaimOptions::new([queue.clone()]).lease(Duration::from_secs(3_600)).wait(Duration::from_secs(600));
    let producer = async {
        let mut ids = BTreeSet::new();
        for _ in 0..TASKS {
            let draft = Draft::new(queue.clone(), "x").attempts_max(1);
            ids.insert(client.enqueue(draft).await.expect("the cluster serves").id);
        }
        ids
    };
    let worker = async {
        let (mut done, deadline) = (BTreeSet::new(), Instant::now() + PATIENCE);
        let mut wait_us: u64 = 500;
        while done.len() < TASKS {
            assert!(Instant::now() < deadline, "{} of {TASKS} are done", done.len());
            // From what is never enough to what always is, on any machine.
            wait_us = if wait_us > 200_000 { 500 } else { wait_us * 3 / 2 };
            let claims = tokio::time::timeout(Duration::from_micros(wait_us), client.claim(options.clone())).await;
            for claimed in claims.map_or_else(|_| Vec::new(), |claims| claims.expect("the cluster serves").tasks) {
                let (id, token) = (claimed.granted.id, claimed.granted.token);
                client.complete(CompleteOptions::new(id, token)).await.expect("it is held");
                done.insert(id);
            }
        }
        done
    };
    let (ids, done) = tokio::join!(producer, worker);
    assert_eq!(ids, done);
    for id in ids {
        assert_eq!(client.get(id).await.expect("it is there").state, State::Done);
    }
}
