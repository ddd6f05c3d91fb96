//! Purging of ended tasks, with real processes.

use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::found;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Ids of a queue's tasks.
fn listed(cli: &Cli, queue: &str) -> BTreeSet<String> {
    cli.json(&["list", queue]).done().lines().iter().map(|task| text(&task["id"])).collect()
}

fn are_gone(cli: &Cli, ids: &BTreeSet<String>) -> bool {
    ids.iter().all(|id| {
        let answer = cli.json(&["get", id]);
        answer.code == Some(1) && answer.refusal(1)["code"] == "not_found"
    })
}

/// Enqueues tasks and completes all but one. Returns the ids of the completed tasks, and that of the open one.
fn work(cli: &Cli, tasks: usize) -> (BTreeSet<String>, String) {
    let mut ids = Vec::new();
    for number in 0..tasks {
        let data = format!("letter {number}");
        let key = format!("key-{number}");
        let task = cli.json(&["enqueue", "mail", &data, "--key", &key, "--unique"]).done().object();
        ids.push(text(&task["id"]));
    }
    let mut done = BTreeSet::new();
    found("all but one are completed", || {
        for task in cli.claim(&["mail", "--wait", "1s"]).lines() {
            let (id, token) = (text(&task["id"]), text(&task["token"]));
            match done.len() + 1 < tasks {
                true => cli.json(&["complete", &id, &token, "--result", "sent"]).done(),
                false => cli.json(&["release", &id, &token]).done(),
            };
            done.insert(id);
        }
        (done.len() == tasks).then_some(())
    });
    let open = ids.iter().find(|id| cli.json(&["get", id]).done().object()["state"] == "ready").expect("one is left");
    done.remove(open);
    (done, open.clone())
}

/// An operator purges the completed tasks of a queue, and nothing else: open tasks are refused, a wrong number changes nothing, and
/// purged tasks stay gone after all nodes are killed.
// S27
#[test]
fn what_is_done_is_purged_by_queue_and_stays_gone() {
    const TASKS: usize = 5;
    let mut cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    let (done, open) = work(&cli, TASKS);
    let refused = cluster.cli_at(1).patient().json(&["purge", &open]).refusal(1);
    assert_eq!(refused["code"], "invalid", "{refused}");

    let counted = cli.json(&["purge", "--queue", "mail", "--dry-run"]).done().object();
    assert_eq!(counted, json!({ "chosen": TASKS - 1, "changed": 0 }));
    let cancelled = cli.json(&["purge", "--queue", "mail", "--state", "cancelled", "--dry-run"]).done().object();
    assert_eq!(cancelled["chosen"], 0, "{cancelled}");
    assert_eq!(cli.json(&["purge", "--queue", "mail", "--state", "ready", "--dry-run"]).code, Some(2));
    let refused = cli.json(&["purge", "--queue", "mail", "--confirm", "3"]).refusal(1);
    assert_eq!(refused["code"], "conflict", "{refused}");
    assert_eq!(listed(&cli, "mail").len(), TASKS);
    for id in &done {
        assert_eq!(cli.json(&["get", id]).done().object()["result"], "sent");
    }

    let states = ["--state", "done", "--state", "dead"];
    let purged = cli.json(&[&["purge", "--queue", "mail", "--confirm", "4"][..], &states].concat()).done().object();
    assert_eq!(purged, json!({ "chosen": TASKS - 1, "changed": TASKS - 1 }));
    let only = BTreeSet::from([open.clone()]);
    found("what is purged is gone", || (listed(&cli, "mail") == only && are_gone(&cli, &done)).then_some(()));
    let again = cli.json(&["purge", done.first().expect("some are done")]).done().object();
    assert_eq!(again["guarantee"], "strict", "once more is no error: {again}");

    cluster.kill_together(&[0, 1, 2]);
    (0..3).for_each(|index| cluster.restart(index));
    (0..3).for_each(|index| cluster.wait_ready(index));
    let cli = cluster.cli_at(2).patient();
    found("all partitions can be read", || (cli.json(&["list", "mail"]).code == Some(0)).then_some(()));
    assert_eq!(listed(&cli, "mail"), only);
    assert!(are_gone(&cli, &done));
    for number in 0..TASKS {
        let key = format!("key-{number}");
        let task = cli.json(&["enqueue", "mail", "anew", "--key", &key, "--unique"]).done().object();
        assert_eq!(task["existing"], text(&task["id"]) == open, "the key of what is gone is free: {task}");
        assert!(!done.contains(&text(&task["id"])), "{task}");
    }

    // Purges a cancelled task at the prompt.
    let mut repl = cli.repl();
    assert_eq!(repl.refusal(&format!("purge {open}"))["code"], "invalid");
    assert_eq!(text(&repl.ask(&format!("cancel {open}"))["id"]), open);
    assert_eq!(repl.rows(&format!("purge {open}"))[0]["id"], open);
    found("it is gone", || (repl.ask(&format!("get {open}"))["error"]["code"] == "not_found").then_some(()));
    assert_eq!(repl.finish(), Some(0));
}
