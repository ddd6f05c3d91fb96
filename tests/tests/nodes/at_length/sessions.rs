//! Sessions of workers, with real processes.

use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::found;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Instant;

const TASKS: usize = 12;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn open(cli: &Cli, ttl: &str) -> (String, String) {
    let session = cli.json(&["session", "open", "--ttl", ttl, "--worker", "host-7"]).done().object();
    (text(&session["id"]), text(&session["token"]))
}

/// Claims tasks, in a session if one is given; returns ids and attempts.
fn claim(cli: &Cli, session: Option<&str>) -> Vec<(String, u64)> {
    let mut arguments = vec!["claim", "work", "--max", "100"];
    arguments.extend(session.iter().flat_map(|session| ["--session", session]));
    let lines = cli.json(&arguments).lines();
    let claimed = lines.iter().filter_map(|task| Some((task["id"].as_str()?.to_owned(), task["attempt"].as_u64()?)));
    claimed.collect()
}

fn claim_all(cli: &Cli, session: Option<&str>) -> Vec<u64> {
    let (mut ids, mut attempts) = (BTreeSet::new(), Vec::new());
    found("all are claimed", || {
        for (id, attempt) in claim(cli, session) {
            assert!(ids.insert(id), "nobody else has it");
            attempts.push(attempt);
        }
        (ids.len() == TASKS).then_some(())
    });
    attempts
}

/// One heartbeat keeps twelve claims in twelve partitions beyond its time to live, while the leader of some of them is killed. Without
/// the heartbeat other workers get the tasks, long before the tasks' own leases end. Ending a session frees its tasks at once.
// C4, C5, C6, C7, C9, C10, C11
#[test]
fn a_heartbeat_keeps_all_claims_and_without_it_all_are_free() {
    let mut cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    for number in 0..TASKS {
        cli.json(&["enqueue", "work", &format!("task {number}")]).done();
    }
    let (session, token) = open(&cli, "20s");
    assert_eq!(claim_all(&cli, Some(&session)), vec![1; TASKS]);
    let who = cli.json(&["list", "norn/sessions", "--state", "claimed"]).lines();
    assert!(who.len() == 1 && text(&who[0]["id"]) == session, "{who:?}");

    cluster.kill(2);
    let cli = cluster.cli_at(0).patient();
    let started = Instant::now();
    found("it is kept alive for longer than it lasts", || {
        let renewed = cli.json(&["session", "renew", &session, &token]).done().object();
        assert!(renewed["ttl_ms"].as_u64().is_some_and(|ttl_ms| ttl_ms >= 20_000), "{renewed}");
        assert_eq!(claim(&cli, None), Vec::new(), "all are held");
        (started.elapsed().as_secs() > 24).then_some(())
    });
    // From here on the session is not renewed.
    let (next, next_token) = open(&cli, "60s");
    let attempts = claim_all(&cli, Some(&next));
    assert_eq!(attempts, vec![2; TASKS], "a worker that is gone has failed");
    let late = cli.json(&["session", "renew", &session, &token]).object();
    assert_eq!(late["error"]["code"], "ended", "its end is final: {late}");

    let mistaken = cli.json(&["session", "end", &next, "7.999"]).object();
    assert_eq!(mistaken["error"]["code"], "superseded", "it has another token: {mistaken}");
    cli.json(&["session", "end", &next, &next_token]).done();
    assert_eq!(claim_all(&cli, None), vec![2; TASKS], "what is handed back was no attempt");
    cluster.restart(2);
    cluster.wait_ready(2);
}
