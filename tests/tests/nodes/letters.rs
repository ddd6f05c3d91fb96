//! Dead letters and redriving, with real processes.

use norn_tests::Cluster;
use norn_tests::wait::found;
use serde_json::Value;

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// Tasks are reported as invalid, and the node that took the last report is killed right after its answer: each task has one letter.
/// Letters are sent back, a task that dies again is redriven, and a redrive is reported once.
// O16, O32, O33, O37
#[test]
fn each_task_that_dies_has_one_letter_and_may_be_redriven() {
    const TASKS: usize = 4;
    let mut cluster = Cluster::start();
    cluster.cli_at(0).patient().json(&["queue", "set", "mail", "dead-letter", "mail/dead"]).done();
    let mut died = Vec::new();
    for number in 0..TASKS {
        let cli = cluster.cli_at(number % 3).patient();
        cli.json(&["enqueue", "mail", &format!("letter {number}"), "--header", "to=anna"]).done();
        let claimed = cli.claim(&["mail", "--wait", "20s"]).done().lines().remove(0);
        let (id, token) = (text(&claimed["id"]), text(&claimed["token"]));
        cli.json(&["fail", &id, &token, "--invalid", "--reason", "no such address"]).done();
        died.push(id);
        if number == TASKS - 1 {
            cluster.kill(number % 3);
        }
    }
    let down = (TASKS - 1) % 3;
    let cli = cluster.cli_at((down + 1) % 3).patient();
    let letters = found("every letter is there", || {
        let lines = cli.json(&["list", "mail/dead", "--state", "ready"]).lines();
        (lines.len() >= TASKS).then_some(lines)
    });
    let mut told: Vec<String> = letters.iter().map(|letter| text(&letter["headers"]["norn-dead-task"])).collect();
    told.sort();
    let mut sorted = died.clone();
    sorted.sort();
    assert_eq!(told, sorted, "one each");
    for letter in &letters {
        let headers = &letter["headers"];
        assert_eq!((text(&headers["to"]), text(&headers["norn-dead-queue"])), ("anna".into(), "mail".into()));
        assert!(text(&headers["norn-dead-reason"]).contains("no such address"), "{letter}");
    }
    cluster.restart(down);
    cluster.wait_ready(down);
    let mut sent = 0;
    found("all letters are sent back", || {
        let answer = cli.json(&["redrive", "--letters", "mail/dead"]);
        // The error for an unreachable partition follows the results of the others.
        sent += answer.lines().iter().filter(|line| line["error"].is_null()).count();
        (sent >= TASKS).then_some(())
    });
    assert_eq!(sent, TASKS);
    let back = found("they are back", || {
        let lines = cli.json(&["list", "mail", "--state", "ready"]).lines();
        (lines.len() == TASKS).then_some(lines)
    });
    assert!(back.iter().all(|task| died.contains(&text(&task["headers"]["norn-redriven-from"]))));
    let rest = found("all partitions are asked for more", || {
        let answer = cli.json(&["redrive", "--letters", "mail/dead"]);
        (answer.code != Some(3)).then_some(answer)
    });
    assert_eq!(rest.done().lines().len(), 0);

    // Without a dead-letter queue, dead tasks are redriven from their own queue.
    cli.json(&["queue", "set", "mail", "dead-letter", "none"]).done();
    let claimed = cli.claim(&["mail", "--wait", "20s"]).done().lines().remove(0);
    let (id, token) = (text(&claimed["id"]), text(&claimed["token"]));
    let refused = cli.json(&["redrive", &id]).lines().remove(0);
    assert_eq!(refused["error"]["code"], "invalid", "{refused}");
    found("the last policy is heard of", || {
        cli.json(&["queue", "show", "mail"])
            .lines()
            .first()
            .is_some_and(|line| line["dead_letter"].is_null())
            .then_some(())
    });
    cli.json(&["fail", &id, &token, "--invalid", "--reason", "moved"]).done();
    assert_eq!(cli.json(&["redrive", "--queue", "mail", "--reason", "other"]).lines().len(), 0);
    let redriven = found("it is redriven", || {
        let lines = cli.json(&["redrive", "--queue", "mail", "--reason", "moved"]).lines();
        lines.into_iter().find(|line| line["guarantee"] == "strict")
    });
    let copy = text(&redriven["id"]);
    let again = cli.json(&["redrive", &id]).done().object();
    assert_eq!((text(&again["id"]), &again["existing"]), (copy.clone(), &Value::Bool(true)), "there is one copy");
    let refused = cli.json(&["redrive", &id, "--to", "elsewhere"]).lines().remove(0);
    assert_eq!(refused["error"]["code"], "conflict", "{refused}");
    assert_eq!(text(&cli.json(&["get", &id]).object()["redriven"][0]), copy);
    let view =
        found("it is enqueued", || cli.json(&["get", &copy]).lines().into_iter().find(|view| view["queue"] == "mail"));
    assert_eq!(text(&view["headers"]["norn-redriven-from"]), id);
}
