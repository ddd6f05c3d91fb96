//! The outcome of a claim can be read later, at every node and after all nodes were killed.

use norn_tests::Cluster;
use norn_tests::wait::found;
use serde_json::Value;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// One attempt fails and is due again in an hour, and one task is reported as invalid.
#[test]
fn the_reason_of_a_failed_attempt_is_told_by_every_node_and_outlives_all_of_them() {
    let mut cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    let begin = |reason: &[&str]| {
        let acked = cli.json(&["enqueue", "mail", "hello"]).done().object();
        let claimed = cli.claim(&["mail", "--wait", "20s"]).done().object();
        assert_eq!(acked["id"], claimed["id"]);
        let (id, token) = (text(&claimed["id"]), text(&claimed["token"]));
        cli.json(&[&["fail", &id, &token, "--reason"], reason].concat()).done();
        id
    };
    let failed = begin(&["server is busy", "--retry-in", "1h"]);
    let dead = begin(&["no such address", "--invalid"]);
    let told = |cluster: &Cluster| {
        for index in 0..3 {
            let cli = cluster.cli_at(index).patient();
            let task = cli.json(&["get", &failed]).done().object();
            let claim = &task["claims"][0];
            assert_eq!((&claim["outcome"], &claim["reason"]), (&"failed".into(), &"server is busy".into()), "{task}");
            let ended_ms = claim["ended_ms"].as_u64().expect("it ended");
            assert!(Some(ended_ms) >= claim["start_ms"].as_u64() && claim["running"] == false, "{task}");
            assert_eq!((&task["state"], &task["ended_ms"]), (&"waiting".into(), &Value::Null));
            assert_eq!(task["next_attempt_ms"], ended_ms + 3_600_000, "{task}");
            // The clock of the session that assigned the id determines this time. It may be ahead of the leader's by the maximal
            // difference of clocks.
            assert!(task["enqueued_ms"].as_u64().is_some_and(|ms| ms <= ended_ms + 1_000), "{task}");
            let task = cli.json(&["get", &dead]).done().object();
            let claim = &task["claims"][0];
            assert_eq!((&claim["outcome"], &claim["reason"]), (&"given_up".into(), &"no such address".into()));
            assert_eq!((&task["state"], &task["ended_ms"]), (&"dead".into(), &claim["ended_ms"]));
        }
    };
    told(&cluster);
    let shown = cli.run(&["get", &failed]).done().stdout.clone();
    assert!(shown.contains("server is busy") && shown.contains("next try    in "), "{shown}");
    cluster.kill_together(&[0, 1, 2]);
    for index in 0..3 {
        cluster.restart(index);
    }
    (0..3).for_each(|index| cluster.wait_ready(index));
    told(&cluster);
    let list = cluster.cli_at(1).patient().run(&["list", "mail", "--state", "dead"]).done().stdout.clone();
    assert!(list.contains("REASON") && list.contains("invalid: no such address"), "{list}");
    found("it is listed with its claims", || {
        let lines = cluster.cli_at(2).patient().json(&["list", "mail", "--state", "waiting"]).lines();
        lines.iter().find(|task| task["claims"][0]["outcome"] == "failed").map(|task| text(&task["id"]))
    });
}

/// Goal: if standard output fails, a command reports on standard error what it did, with the id or token that is needed to continue.
#[test]
fn what_was_done_is_told_though_standard_output_is_full() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    for flag in [&[][..], &["--json"]] {
        let answer = cli.unheard(&[flag, &["enqueue", "mail", "x"]].concat());
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let id = text(&cli.json(&["list", "mail", "--state", "ready"]).done().object()["id"]);
        assert!(answer.stderr.contains(&id), "the task {id} is stored: {answer:?}");
        let answer = cli.unheard(&[flag, &["claim", "mail"]].concat());
        assert_eq!(answer.code, Some(1), "{answer:?}");
        let again = cli.claim(&["mail", "--wait", "20s"]).done().object();
        assert_eq!(again["id"], id.as_str(), "it was given back: {answer:?}");
        let answer = cli.unheard(&[flag, &["complete", &id, &text(&again["token"])]].concat());
        assert!(answer.code == Some(1) && answer.stderr.contains(&id), "{answer:?}");
        assert_eq!(cli.json(&["get", &id]).done().object()["state"], "done");
    }
}
