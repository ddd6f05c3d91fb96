//! Changes of many tasks at once, with real processes.

use norn_tests::wait::until;
use norn_tests::{Cli, Cluster};
use std::collections::BTreeSet;

/// Waits until this number of tasks of the queue is in a state.
fn are(cli: &Cli, count: usize, state: &str) {
    let counted = || cli.json(&["count", "mail", "--state", state]).done().object()["count"] == count;
    until(&format!("{count} are {state}"), counted);
}

/// Claims this many tasks; returns their ids and attempts.
fn claim(cli: &Cli, count: usize) -> Vec<(String, u64)> {
    let mut held = Vec::new();
    until("all are claimed", || {
        let max = (count - held.len()).to_string();
        held.extend(cli.claim(&["mail", "--max", &max, "--lease", "1h"]).lines().iter().map(|task| {
            let id = task["id"].as_str().expect("an id").to_owned();
            (id, task["attempt"].as_u64().expect("a number"))
        }));
        held.len() == count
    });
    held
}

/// Goal: many tasks are cancelled or released only if their number is confirmed, and then all of them.
#[test]
fn many_tasks_are_cancelled_and_released_once_their_number_is_confirmed() {
    const UNWANTED: usize = 30;
    const WANTED: usize = 10;
    const HELD: usize = 7;
    let cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    for (kind, tasks) in [("kind=unwanted", UNWANTED), ("kind=wanted", WANTED)] {
        let lines: String = (0..tasks).map(|number| format!("{number}\n")).collect();
        cli.run_with(&["--json", "enqueue", "mail", "--lines", "--header", kind, "-"], lines.as_bytes()).done();
    }
    let cancel = ["cancel", "--queue", "mail", "--header", "kind=unwanted"];
    let release = ["release", "--queue", "mail"];
    let with = |change: &[&str], more: &[&str]| cli.json(&[change, more].concat());
    let outcome = |chosen: usize, changed: usize| format!("{{\"chosen\":{chosen},\"changed\":{changed}}}\n");
    let chosen = |change: &[&str], count: usize| {
        until("all are seen", || with(change, &["--dry-run"]).done().stdout == outcome(count, 0));
    };
    chosen(&cancel, UNWANTED);
    let wrong: [&[&str]; 3] = [&[], &["--confirm", "29"], &["--confirm", "31"]];
    for confirm in wrong {
        let refusal = with(&cancel, confirm).refusal(1);
        assert!(refusal["message"].as_str().is_some_and(|message| message.contains("--confirm 30")), "{refusal}");
    }
    are(&cli, UNWANTED + WANTED, "ready");
    let confirmed = with(&cancel, &["--confirm", "30", "--reason", "no one wants them"]);
    assert_eq!(confirmed.done().stdout, outcome(UNWANTED, UNWANTED));
    are(&cli, UNWANTED, "cancelled");
    are(&cli, WANTED, "ready");
    let cancelled = cli.json(&["list", "mail", "--state", "cancelled"]).done().lines();
    assert!(cancelled.len() == UNWANTED && cancelled.iter().all(|task| task["reason"] == "no one wants them"));
    chosen(&cancel, 0);

    let held = claim(&cli, HELD);
    chosen(&release, HELD);
    with(&release, &["--confirm", "6"]).refusal(1);
    are(&cli, HELD, "claimed");
    assert_eq!(with(&release, &["--confirm", "7"]).done().stdout, outcome(HELD, HELD));
    // A released claim was no attempt, and the task is available to others at once.
    let again = claim(&cli, WANTED);
    let ids: BTreeSet<&String> = again.iter().map(|(id, _)| id).collect();
    assert!(ids.len() == WANTED && again.iter().all(|(_, attempt)| *attempt == 1), "{again:?}");
    assert!(held.iter().all(|(id, _)| ids.contains(id)));
}
