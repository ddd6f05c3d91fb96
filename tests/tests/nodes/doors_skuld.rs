//! Skuld's interface over HTTP, on real nodes one of which is killed meanwhile.

use norn_tests::cluster::with_doors;
use norn_tests::http::Http;
use norn_tests::wait::found;
use serde_json::{Value, json};

/// Makes a request that succeeds.
fn post(door: &Http, path: &str, body: &Value) -> Value {
    let reply = door.served(|door| door.ask("POST", path, Some(body)));
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

fn get(door: &Http, path: &str) -> Value {
    let reply = door.served(|door| door.ask("GET", path, None));
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

// S50, S54: HTTP with named queues and priorities, and a task's whole history of claims
#[test]
fn a_skuld_client_works_through_three_nodes_one_of_which_is_killed() {
    let (mut cluster, doors) = with_doors(3);
    let id = get(&doors[0], "/skuld/id")["id"].as_str().expect("an id").to_owned();
    let sup = json!({"task": {"id": id, "data": "sup?"}, "w": 2});
    for door in &doors[..2] {
        let stored = post(door, "/skuld/tasks/enqueue", &sup);
        assert_eq!(stored["id"], json!(id), "stored once under the lent id");
        assert!(stored["n"].as_u64() >= Some(2));
    }
    for (data, priority) in [("low", 0), ("high", 5)] {
        let task = json!({"data": data, "queue": "mail", "priority": priority});
        post(&doors[1], "/skuld/tasks/enqueue", &json!({"task": task, "w": 3}));
    }
    assert_eq!(get(&doors[2], "/skuld/tasks/count")["count"], json!(3));
    found("the queue is counted", || {
        (get(&doors[0], "/skuld/queue/count?queue=mail")["count"] == json!(2)).then_some(())
    });
    assert_eq!(get(&doors[1], "/skuld/tasks/list")["tasks"].as_array().map(Vec::len), Some(3));

    let first = post(&doors[0], "/skuld/tasks/claim", &json!({"dt": 1_000}));
    assert_eq!((&first["task"]["id"], &first["task"]["data"]), (&json!(id), &json!("sup?")));
    assert_eq!(first["task"]["claims"].as_array().map(Vec::len), Some(1));
    let unread = doors[2].ask("GET", &format!("/skuld/tasks/{id}?r=3"), None).expect("it runs");
    assert_eq!((unread.status, unread.json()["error"].is_string()), (400, true));

    cluster.kill(0);
    let mut lost = json!({"task": {"data": "x"}, "w": 3});
    let again = found("the claim runs out", || {
        let taken = post(&doors[1], "/skuld/tasks/claim", &json!({"dt": 60_000}));
        (taken != json!({})).then_some(taken)
    });
    let claims = again["task"]["claims"].as_array().expect("a list").clone();
    assert_eq!((&again["task"]["id"], claims.len()), (&json!(id), 2), "the same task under its second claim");
    assert_eq!(claims[0]["cid"], first["task"]["claims"][0]["cid"], "a claim keeps its name");
    assert_eq!(post(&doors[2], "/skuld/tasks/claim", &json!({"dt": 60_000})), json!({}));
    let missing =
        doors[2].served(|door| door.ask("POST", &format!("/skuld/tasks/complete/{id}"), Some(&json!({"cid": 2}))));
    assert_eq!((missing.status, missing.json()["error"].is_string()), (404, true));
    let done = post(&doors[2], &format!("/skuld/tasks/complete/{id}?w=2"), &json!({"cid": claims[1]["cid"]}));
    assert_eq!(done, json!({"w": 2}));
    let read = get(&doors[1], &format!("/skuld/tasks/{id}?r=2"));
    assert_eq!(read["n"], json!(2));
    let completed = [0, 1].map(|cid| read["task"]["claims"][cid]["completed"].is_u64());
    assert_eq!(completed, [false, true], "the second claim, as it was named");

    lost["w"] = json!(2);
    post(&doors[1], "/skuld/tasks/enqueue", &lost);
    let absent = doors[1].served(|door| door.ask("GET", &format!("/skuld/tasks/{}", "A".repeat(27)), None));
    assert_eq!((absent.status, absent.json()), (404, json!({"error": "No such task"})));
}
