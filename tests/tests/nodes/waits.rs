//! Claims that wait: what becomes of the tasks of those who stop waiting, and how long leases are behind a long wait.

use norn_client::client::{ClaimOptions, CompleteOptions};
use norn_client::session::Draft;
use norn_client::wire::{QueueName, State, TaskId};
use norn_tests::wait::{PATIENCE, found, scaled, until};
use norn_tests::{Cli, Cluster, ClusterOptions};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

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

/// Goal: what is said too late of a claim is refused, with how it ended; a script may repeat what counted.
#[test]
fn what_is_said_of_a_claim_that_is_over_is_refused() {
    let (_cluster, cli) = alone();
    cli.json(&["queue", "set", "mail", "backoff", "fixed", "1h"]).done();
    let begin = |lease: &str| {
        cli.json(&["enqueue", "mail", "x"]).done();
        let claimed = found("it is claimed", || cli.json(&["claim", "mail", "--lease", lease]).lines().pop());
        ["id", "token"].map(|name| claimed[name].as_str().expect("a text").to_owned())
    };
    let [id, token] = begin("1s");
    until("its lease runs out", || cli.json(&["get", &id]).done().object()["state"] == "waiting");
    for verb in [&["fail", &id, &token, "--reason", "busy"][..], &["release", &id, &token]] {
        let refused = cli.json(verb).refusal(1);
        assert_eq!(refused["code"], "superseded", "{refused}");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("lease ran out")), "{refused}");
    }
    let [id, token] = begin(LEASE);
    for _ in 0..2 {
        cli.json(&["fail", &id, &token, "--reason", "busy"]).done();
    }
    assert_eq!(cli.json(&["release", &id, &token]).refusal(1)["code"], "superseded");
    let claims = cli.json(&["get", &id]).done().object()["claims"].clone();
    assert_eq!((&claims[0]["outcome"], &claims[0]["reason"]), (&"failed".into(), &"busy".into()), "{claims}");
}

/// Goal: a wrong id of a session, or one of yesterday, is not taken for one that keeps claims. Method: at each of three nodes.
#[test]
fn a_claim_under_no_open_session_is_refused() {
    let cluster = Cluster::start();
    let clis = [0, 1, 2].map(|index| cluster.cli_at(index).patient());
    clis[0].json(&["enqueue", "mail", "x"]).done();
    let code = |cli: &Cli, session: &str| cli.json(&["claim", "mail", "--session", session]).refusal(1)["code"].clone();
    let never = TaskId::new(1_700_000_000_000, 1, 1, 7).to_string();
    clis.iter().for_each(|cli| assert_eq!(code(cli, &never), "not_found"));
    let session = clis[0].json(&["session", "open", "--ttl", "1h"]).done().object();
    let [id, token] = ["id", "token"].map(|name| session[name].as_str().expect("a text").to_owned());
    let claimed = clis[2].json(&["claim", "mail", "--session", &id, "--wait", "20s"]).done().object();
    assert_eq!(claimed["queue"], "mail", "{claimed}");
    clis[1].json(&["session", "end", &id, &token]).done();
    clis.iter().for_each(|cli| assert_eq!(code(cli, &id), "ended"));
}

/// Goal: workers that were killed are not tried one after another, each for as long as its confirmation is waited for.
#[test]
fn many_workers_that_were_killed_keep_a_task_no_longer_than_one() {
    let (_cluster, cli) = alone();
    let gone: Vec<_> = (0..6).map(|_| wait_for_work(&cli, LEASE)).collect();
    for begun in gone {
        begun.signal(Signal::KILL);
        begun.end();
    }
    let since = Instant::now();
    let id = cli.json(&["enqueue", "mail", "x", "--max-attempts", "1"]).done().object()["id"].clone();
    let claimed = cli.json(&["claim", "mail", "--wait", "10m"]).done().object();
    assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{claimed}");
    // Six would keep it for twelve seconds.
    assert!(since.elapsed() < scaled(Duration::from_secs(7)), "{:?}", since.elapsed());
}

/// Goal: a worker that was killed uses up no permit. Method: one permit in ten seconds; the second one goes to such a worker, which is
/// killed so shortly before that the node does not know.
#[test]
fn a_worker_that_was_killed_uses_up_no_permit() {
    let (_cluster, cli) = alone();
    cli.json(&["queue", "set", "mail", "rate", "6/m"]).done();
    cli.json(&["enqueue", "mail", "first"]).done();
    cli.json(&["claim", "mail", "--wait", "1m"]).done();
    let since = Instant::now();
    until("the next permit is near", || since.elapsed() > Duration::from_secs(7));
    let begun = wait_for_work(&cli, LEASE);
    begun.signal(Signal::KILL);
    begun.end();
    let id = cli.json(&["enqueue", "mail", "x"]).done().object()["id"].clone();
    until("it is granted, and goes back", || counter(&cli, "voided") > 0);
    let since = Instant::now();
    let claimed = cli.json(&["claim", "mail", "--wait", "1m"]).done().object();
    assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{claimed}");
    // Eight seconds were left until the next one.
    assert!(since.elapsed() < scaled(Duration::from_secs(4)), "{:?}", since.elapsed());
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
