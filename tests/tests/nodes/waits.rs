//! Claims that wait: tasks of clients that stop waiting, and leases after a long wait.

use norn_client::client::{ClaimOptions, CompleteOptions};
use norn_client::session::Draft;
use norn_tests::wait::{PATIENCE, found, until};
use norn_tests::{Cli, Cluster, ClusterOptions};
use norn_wire::{QueueName, State, TaskId};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Far longer than a test takes: a task held under it is lost to the test.
const LEASE: &str = "1h";

/// A cluster of one node, so that it is known where claims wait.
fn alone() -> (Cluster, Cli) {
    let cluster = Cluster::start_with(ClusterOptions { nodes: 1, partitions: 4, ..ClusterOptions::default() });
    let cli = cluster.cli().patient();
    (cluster, cli)
}

fn counter(cli: &Cli, name: &str) -> u64 {
    cli.json(&["status"]).done().object()["counters"][name].as_u64().unwrap_or(0)
}

/// Starts to wait for work, and returns once the node has the claim.
fn wait_for_work(cli: &Cli, lease: &str) -> norn_tests::Begun {
    let before = counter(cli, "claim");
    let begun = cli.begin(&["claim", "mail", "--wait", "10m", "--lease", lease]);
    until("the node is asked", || counter(cli, "claim") > before);
    begun
}

/// Goal: a client that stops waiting, in any way, takes no task with it, and uses up no attempt.
#[test]
fn who_stops_waiting_takes_no_task() {
    let (_cluster, cli) = alone();
    for (signal, code) in
        [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::HUP, Some(129)), (Signal::KILL, None)]
    {
        let begun = wait_for_work(&cli, LEASE);
        let left = counter(&cli, "leave");
        begun.signal(signal);
        assert_eq!(begun.end().code, code, "{signal:?}");
        // A killed client sends nothing.
        assert_eq!(counter(&cli, "leave") - left, u64::from(signal != Signal::KILL), "{signal:?}");
        let id = cli.json(&["enqueue", "mail", "x", "--max-attempts", "1"]).done().object()["id"].clone();
        let claimed = cli.json(&["claim", "mail", "--wait", "10m"]).done().object();
        assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{signal:?}: {claimed}");
        let token = claimed["token"].as_str().expect("a token").to_owned();
        cli.json(&["complete", id.as_str().expect("an id"), &token]).done();
    }
}

/// Goal: a lease counts from the grant, not from the start of a wait that is longer than the lease.
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

/// A fault of the cluster while a worker waits.
type Meanwhile = fn(&mut Cluster, &dyn Fn());

/// Goal: a waiting worker gets a delayed task when it is due and not before, though the node is killed or paused meanwhile.
#[test]
fn a_delayed_task_comes_to_a_parked_worker_when_it_is_due_whatever_becomes_of_the_node() {
    let (mut cluster, cli) = alone();
    let until_due = |due_ms: u64| {
        let is_due =
            || SystemTime::now().duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_millis() > u128::from(due_ms));
        until("it is due", is_due);
    };
    let meanwhile: [Meanwhile; 3] = [
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

/// Goal: a paused or limited queue is not reported as an outage, however many tasks it has, and does not hide work of other queues.
#[test]
fn a_paused_queue_with_many_tasks_is_empty_and_hides_no_other() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    // More tasks than followers report to their leaders at once.
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
    // All slots are taken.
    cli.json(&["queue", "set", "closed", "concurrency", "1"]).done();
    cluster.wait_heard_changes();
    nothing("closed");
    cli.json(&["queue", "set", "closed", "concurrency", "none"]).done();
    // One claim an hour: only a part of the first permit has accrued by now.
    cli.json(&["queue", "set", "closed", "rate", "1/h"]).done();
    cluster.wait_heard_changes();
    nothing("closed");
}

/// Goal: a caller with another clock than the program's still knows how long a claim is held.
#[test]
fn a_renewal_says_how_long_it_holds() {
    let (_cluster, cli) = alone();
    cli.json(&["enqueue", "mail", "x"]).done();
    let claimed = found("it is claimed", || cli.json(&["claim", "mail", "--lease", "30s"]).lines().pop());
    let [id, token] = ["id", "token"].map(|name| claimed[name].as_str().expect("a text").to_owned());
    let renewed = cli.json(&["renew", &id, &token, "--lease", "90s"]).done().object();
    assert_eq!(renewed["lease_ms"], 90_000, "{renewed}");
}

/// Goal: a late call for an ended claim is refused, with how the claim ended. A script may repeat the call that ended it.
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

/// Goal: a wrong session id, or one of an ended session, is not accepted in a claim. Method: at each of three nodes.
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

/// Goal: a task loses no attempt though many workers that waited for it were killed. How soon it reaches a live worker is tested where
/// time is controlled (`silent.rs` of the protocol).
#[test]
fn what_many_killed_workers_waited_for_comes_to_the_next_one_at_its_first_attempt() {
    let (_cluster, cli) = alone();
    let gone: Vec<_> = (0..6).map(|_| wait_for_work(&cli, LEASE)).collect();
    for begun in gone {
        begun.signal(Signal::KILL);
        begun.end();
    }
    let id = cli.json(&["enqueue", "mail", "x", "--max-attempts", "1"]).done().object()["id"].clone();
    let claimed = cli.json(&["claim", "mail", "--wait", "10m"]).done().object();
    assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{claimed}");
}

/// Goal: a worker that stops waiting again and again, as with `timeout`, loses no task by that.
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
            // From waits that are always too short to waits that are always long enough, on any machine.
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
