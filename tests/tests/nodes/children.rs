//! Child tasks of a completion, with real processes.

use norn_tests::Cluster;
use norn_tests::wait::found;
use std::path::Path;

/// The tasks of a file are enqueued with the completion, though the coordinating node is killed right after its answer.
// T4, O22
#[test]
fn children_outlive_the_node_that_took_the_completion() {
    let mut cluster = Cluster::start();
    let then = cluster.directory().join("then.json");
    write(&then);
    let cli = cluster.cli_at(0).patient();
    for round in 0..3 {
        let parent = cli.json(&["enqueue", "orders", &format!("order {round}")]).object()["id"].clone();
        let parent = parent.as_str().expect("an id").to_owned();
        let claimed = cli.claim(&["orders", "--wait", "20s"]).done().lines().remove(0);
        let token = claimed["token"].as_str().expect("a token").to_owned();
        let file = then.to_str().expect("a path").to_owned();
        cli.json(&["complete", &parent, &token, "--then", &file]).done();
        cluster.kill(0);
        let others = cluster.cli_at(1).patient();
        let view = found("the children are handed over", || {
            let answer = others.json(&["get", &parent]);
            let view = answer.lines().into_iter().next()?;
            (view["children_open"] == false).then_some(view)
        });
        let children = view["children"].as_array().expect("a list").clone();
        assert_eq!(children.len(), 2);
        let child = |place: usize| {
            let id = children[place].as_str().expect("an id").to_owned();
            found("the child is there", || {
                others.json(&["get", &id]).lines().into_iter().next().filter(|view| view["queue"].is_string())
            })
        };
        assert_eq!((child(0)["queue"].as_str(), child(0)["data"].as_str()), (Some("mail"), Some("confirm")));
        assert_eq!((child(1)["queue"].as_str(), child(1)["priority"].as_i64()), (Some("stock"), Some(7)));
        cluster.restart(0);
        cluster.wait_ready(0);
    }
}

fn write(path: &Path) {
    let tasks = r#"[{"queue": "mail", "data": "confirm"}, {"queue": "stock", "priority": 7, "delay": "1h"}]"#;
    std::fs::write(path, tasks).expect("the directory is there");
}
