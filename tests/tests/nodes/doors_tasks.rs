//! Tasks and claims over HTTP at real nodes: each request may go to another of them.

use norn_tests::http::HttpAnswer;
use norn_tests::ports::free_port;
use norn_tests::wait::{Deadline, PATIENCE, found, until};
use norn_tests::{Cluster, Http};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Starts three nodes with a door each. Returns the addresses of the doors, too.
fn start() -> (Cluster, Vec<Http>, Vec<String>) {
    let mut cluster = Cluster::prepare(3, Vec::new());
    let (mut doors, mut addresses) = (Vec::new(), Vec::new());
    for index in 0..3 {
        let address = format!("127.0.0.1:{}", free_port());
        cluster.replace(index, None, vec![format!("http_listen={address}")]);
        cluster.restart(index);
        cluster.wait_ready(index);
        doors.push(Http::new(address.clone()));
        addresses.push(address);
    }
    cluster.init(&[0, 1, 2], &["--partitions", "8"]).done();
    for door in &doors {
        until("the door is ready", || door.get("/readyz").status == 200);
    }
    (cluster, doors, addresses)
}

fn post(door: &Http, target: &str, body: &Value) -> HttpAnswer {
    door.call("POST", target, &body.to_string())
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn claim(door: &Http, body: &Value) -> Value {
    found("a task is claimed", || {
        let answer = post(door, "/v1/claims", body);
        let task = (answer.status == 200).then(|| answer.json()["tasks"][0].clone());
        task.filter(Value::is_object)
    })
}

#[test]
fn a_task_lives_through_all_nodes() {
    let (_cluster, doors, _) = start();
    let task = json!({"queue": "mail", "data": "hello", "priority": 5, "headers": {"content-type": "text/plain"}});
    let answer = post(&doors[0], "/v1/tasks", &task);
    let id = text(&answer.expect(201)["id"]);
    assert_eq!(answer.header("location"), Some(format!("/v1/tasks/{id}").as_str()));
    let at = |rest: &str| format!("/v1/tasks/{id}{rest}");
    assert_eq!(doors[1].get(&at("")).expect(200)["state"], "ready");
    let why = doors[2].get(&at("/why")).expect(200);
    assert_eq!(why["tasks"][0]["cause"], "ready", "{why}");

    let granted = claim(&doors[2], &json!({"queues": ["mail"], "wait_ms": 20_000, "lease_ms": 60_000}));
    assert_eq!((&granted["id"], &granted["data"], &granted["attempt"]), (&json!(id), &json!("hello"), &json!(1)));
    let held = |rest: &str| at(&format!("/claims/{}{rest}", text(&granted["token"])));
    assert_eq!(post(&doors[0], &held("/renew"), &json!({"lease_ms": 90_000})).expect(200)["lease_ms"], 90_000);
    for _ in 0..2 {
        doors[1].call("PUT", &held("/log/0"), r#"{"data": "half"}"#).expect(200);
    }
    assert_eq!(doors[1].call("PUT", &held("/log/0"), r#"{"data": "other"}"#).expect(409)["code"], "conflict");
    let log = doors[0].get(&at("/log?min_seq=1")).expect(200);
    assert_eq!(log["updates"][0]["data"], "half", "{log}");
    let done = json!({"result": "sent", "then": [{"queue": "stock", "data": "7"}]});
    assert_eq!(post(&doors[2], &held("/complete"), &done).expect(200)["guarantee"], "strict");
    assert_eq!(doors[0].get(&at("/wait?timeout_ms=20000")).expect(200)["state"], "done");

    let data = doors[1].get(&at("/data"));
    assert_eq!((data.status, &data.body[..], data.header("content-type")), (200, &b"hello"[..], Some("text/plain")));
    assert_eq!(data.header("content-disposition"), Some("attachment"));
    assert_eq!(doors[1].get(&at("/result")).body, b"sent");
    assert_eq!(post(&doors[1], &at("/cancel"), &json!({})).expect(409)["code"], "ended");
    assert_eq!(claim(&doors[0], &json!({"queues": ["stock"], "wait_ms": 20_000}))["data"], "7");
    doors[0].call("DELETE", &at(""), "").expect(200);
    until("it is forgotten", || doors[1].get(&at("")).status == 404);
}

#[test]
fn lists_are_stored_claimed_and_completed_together() {
    let (_cluster, doors, _) = start();
    let join = json!({"queue": "joins", "join": {"total": 20}});
    let members = (1..=20).map(|number| json!({"queue": "pages", "data": number.to_string(), "number": number}));
    let list = Value::Array(std::iter::once(join).chain(members).collect());
    let stored = post(&doors[0], "/v1/tasks", &list).expect(200);
    let ids: Vec<String> =
        stored["items"].as_array().expect("a list").iter().map(|result| text(&result["id"])).collect();
    assert_eq!(ids.len(), 21);

    let (mut completed, deadline) = (0, Deadline::after(PATIENCE));
    while completed < 20 {
        deadline.check(|| format!("{completed} of 20 members are completed"));
        let body = json!({"queues": ["pages"], "max": 50, "wait_ms": 1_000});
        let granted = post(&doors[1], "/v1/claims", &body).expect(200);
        let claims = granted["tasks"].as_array().expect("a list").iter();
        let items: Vec<Value> = claims.map(|task| json!({"id": task["id"], "token": task["token"]})).collect();
        if items.is_empty() {
            continue;
        }
        let renewed = post(&doors[0], "/v1/claims/renew", &json!({"items": items})).expect(200);
        assert!(
            renewed["items"].as_array().expect("a list").iter().all(|item| item["lease_ms"] == 30_000),
            "{renewed}"
        );
        let done = post(&doors[2], "/v1/claims/complete", &json!({"items": items})).expect(200);
        completed += done["items"].as_array().expect("a list").iter().filter(|item| item["acks"].is_u64()).count();
    }
    let granted = claim(&doors[1], &json!({"queues": ["joins"], "wait_ms": 20_000}));
    assert_eq!((text(&granted["id"]), &granted["group"]["ended"]), (ids[0].clone(), &json!(20)));

    // Pages and lines tell the same tasks.
    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = doors[0].get(&format!("/v1/tasks?queue=pages&limit=7{next}")).expect(200);
        let tasks = page["tasks"].as_array().expect("a list");
        assert!(tasks.len() <= 7);
        paged.extend(tasks.iter().map(|task| text(&task["id"])));
        match page["next"].as_str() {
            Some(id) => next = format!("&after={id}"),
            None => break,
        }
    }
    let lines = doors[2].send("GET", "/v1/tasks?queue=pages", &[("accept", "application/x-ndjson")], b"").unwrap();
    let lines = String::from_utf8(lines.body).expect("text");
    let lined = lines.lines().map(|line| text(&serde_json::from_str::<Value>(line).expect("JSON")["id"]));
    assert_eq!(paged, lined.collect::<Vec<_>>());
    assert_eq!((paged.len(), &doors[1].get("/v1/count?queue=pages&state=done").expect(200)["count"]), (20, &json!(20)));
    let several = doors[0].get(&format!("/v1/tasks?id={},{}", ids[1], "0".repeat(32))).expect(200);
    assert_eq!(
        (&several["items"][0]["id"], &several["items"][1]["error"]["code"]),
        (&json!(ids[1]), &json!("not_found"))
    );
}

#[test]
fn a_put_is_stored_once_and_other_content_is_refused() {
    let (_cluster, doors, _) = start();
    let lent = doors[0].get("/v1/ids?count=2").expect(200);
    let [first, second] = [0, 1].map(|place| format!("/v1/tasks/{}", text(&lent["ids"][place])));
    for door in &doors {
        let answer = door.call("PUT", &first, r#"{"queue": "mail", "data": "hello", "delay": "1h"}"#).expect(201);
        assert_eq!(answer["id"], lent["ids"][0]);
    }
    let other = doors[1].call("PUT", &first, r#"{"queue": "mail", "data": "other"}"#).expect(409);
    assert_eq!(other["code"], "conflict");
    assert_eq!(doors[2].get("/v1/count?queue=mail").expect(200)["count"], 1);
    let keyed = |door: &Http| door.call("PUT", &second, r#"{"queue": "mail", "key": "anna"}"#);
    let place = keyed(&doors[0]);
    assert_ne!(place.expect(201)["id"], lent["ids"][1]);
    assert_eq!(keyed(&doors[1]).expect(201)["id"], place.json()["id"]);
    doors[2].get(place.header("location").expect("a place")).expect(200);
}

/// A claim that waits at a node, and whose answer is not read.
fn poll(address: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the door is open");
    let length = body.len();
    let head = format!("POST /v1/claims HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).expect("it is sent");
    stream
}

#[test]
fn a_caller_that_hangs_up_while_it_waits_holds_no_task() {
    let (_cluster, doors, addresses) = start();
    for round in 0..5 {
        let polls: Vec<TcpStream> =
            (0..8).map(|_| poll(&addresses[0], r#"{"queues":["mail"],"wait_ms":60000}"#)).collect();
        // Requests after it on other connections are answered, so these are under way.
        doors[0].get("/v1/count").expect(200);
        drop(polls);
        let task = post(&doors[round % 3], "/v1/tasks", &json!({"queue": "mail", "data": "hello"})).expect(201);
        let body = json!({"queues": ["mail"], "wait_ms": 10_000, "lease_ms": 60_000});
        let granted = claim(&doors[1], &body);
        assert_eq!((&granted["id"], &granted["attempt"]), (&task["id"], &json!(1)), "round {round}");
        let complete = format!("/v1/tasks/{}/claims/{}/complete", text(&granted["id"]), text(&granted["token"]));
        post(&doors[2], &complete, &json!({})).expect(200);
    }
}

#[test]
fn with_a_node_killed_a_request_fails_as_documented_or_succeeds_elsewhere() {
    let (mut cluster, doors, addresses) = start();
    let id = text(&doors[0].get("/v1/ids").expect(200)["ids"][0]);
    let put = |door: &Http| {
        let headers = [("content-type", "application/json")];
        door.send("PUT", &format!("/v1/tasks/{id}"), &headers, br#"{"queue":"mail","data":"hello"}"#)
    };
    let mut waits = poll(&addresses[2], r#"{"queues":["none"],"wait_ms":60000}"#);
    cluster.kill(2);
    let mut rest = Vec::new();
    let _ = waits.read_to_end(&mut rest);
    assert!(rest.is_empty(), "the node died: {}", String::from_utf8_lossy(&rest));
    assert!(put(&doors[2]).is_err(), "no node listens there");
    let stored = found("it is stored at another node", || {
        let answer = put(&doors[0]).expect("the node lives");
        match answer.status {
            201 => Some(answer),
            503 | 504 => {
                assert!(answer.header("retry-after").is_some());
                let code = text(&answer.json()["code"]);
                assert!(["unavailable", "unknown", "not_ready"].contains(&code.as_str()), "{code}");
                None
            }
            other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
        }
    });
    assert_eq!(stored.json()["id"], json!(id));
    let granted = claim(&doors[1], &json!({"queues": ["mail"], "wait_ms": 5_000}));
    assert_eq!(granted["id"], json!(id));

    // Without a majority nothing is acknowledged, and the answer says so.
    cluster.kill(1);
    let answer = post(&doors[0], "/v1/tasks", &json!({"queue": "mail"}));
    assert!([503, 504].contains(&answer.status), "{}: {}", answer.status, String::from_utf8_lossy(&answer.body));
    assert!(answer.header("retry-after").is_some());
}
