//! Each route against a small node, with its successes and its refusals.

use super::*;
use crate::taskstore::fake::Fake;
use crate::testing::JsonDoor as Door;
use axum::http::StatusCode;
use proptest::prelude::*;
use serde_json::{Value, json};

type Node = Arc<Mutex<Fake>>;

fn open() -> (Door, Node) {
    let node = Node::default();
    let script = Arc::clone(&node);
    (Door::open(move |request| script.lock().unwrap().answer(request)), node)
}

// S50: the walk over HTTP
#[tokio::test]
async fn a_task_is_enqueued_claimed_completed_and_read() {
    let (door, _) = open();
    let told = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "sup?"}, "w": 2})).await;
    assert_eq!((told.status, &told.body["n"]), (StatusCode::OK, &json!(2)), "{:?}", told.body);
    let id = told.body["id"].as_str().unwrap().to_owned();
    let list = door.get("/skuld/tasks/list").await.body;
    let task = json!({"id": id, "queue": "skuld", "priority": 0, "data": "sup?", "claims": []});
    assert_eq!(list, json!({"tasks": [task]}));
    assert_eq!(door.get("/skuld/queue/count?r=1").await.body, json!({"count": 1}));
    let told = door.post("/skuld/tasks/claim", &json!({"dt": 10_000})).await;
    let claims = &told.body["task"]["claims"];
    assert_eq!(told.body["task"]["id"], json!(id));
    assert_eq!(claims[0]["end"].as_u64().unwrap() - claims[0]["start"].as_u64().unwrap(), 10_000);
    assert_eq!(claims[0]["completed"], Value::Null);
    assert_eq!(door.post("/skuld/tasks/claim", &json!({"dt": 10_000})).await.body, json!({}));
    let told = door.post(&format!("/skuld/tasks/complete/{id}?w=2"), &json!({"cid": 0})).await;
    assert_eq!((told.status, told.body), (StatusCode::OK, json!({"w": 2})));
    let told = door.get(&format!("/skuld/tasks/{id}?r=2")).await;
    assert!(told.body["task"]["claims"][0]["completed"].is_u64() && told.body["n"] == json!(2));
    assert_eq!(door.get("/skuld/tasks/count").await.body, json!({"count": 1, "partitions": {}}));
}

#[tokio::test]
async fn a_lent_id_stores_a_task_once() {
    let (door, node) = open();
    let id = door.get("/skuld/id").await.body["id"].clone();
    for _ in 0..2 {
        let body = json!({"task": {"id": id, "data": "x", "queue": "mail", "priority": 3}});
        assert_eq!(door.post("/skuld/tasks/enqueue", &body).await.body["id"], id);
    }
    assert_eq!(node.lock().unwrap().tasks.len(), 1);
}

#[tokio::test]
async fn errors_are_in_skulds_form() {
    let (door, _) = open();
    let id = door.get("/skuld/id").await.body["id"].as_str().unwrap().to_owned();
    let told = door.get(&format!("/skuld/tasks/{id}")).await;
    assert_eq!((told.status, told.body), (StatusCode::NOT_FOUND, json!({"error": "No such task"})));
    let of_id = |rest: &str| format!("/skuld/tasks/{id}{rest}");
    for (method, path, body, status) in [
        ("GET", "/skuld/tasks/short".to_owned(), "", 400),
        ("GET", of_id("?r=3"), "", 400),
        ("GET", of_id("?r=0"), "", 400),
        ("GET", of_id("?x=1"), "", 400),
        ("POST", "/skuld/tasks/enqueue".to_owned(), r#"{"w":1}"#, 400),
        ("POST", "/skuld/tasks/enqueue".to_owned(), r#"{"task":{"data":"x"},"w":4}"#, 400),
        ("POST", "/skuld/tasks/enqueue".to_owned(), r#"{"task":{"data":"x","queue":"a b"}}"#, 400),
        ("POST", "/skuld/tasks/enqueue".to_owned(), r#"{"task":{"data":"x"},"w":3}"#, 504),
        ("POST", "/skuld/tasks/claim".to_owned(), r#"{"dt":1}"#, 400),
        ("POST", "/skuld/tasks/claim".to_owned(), "{", 400),
        ("POST", format!("/skuld/tasks/complete/{id}"), r#"{"cid":0}"#, 404),
    ] {
        let told = door.ask(method, &path, body).await;
        assert_eq!(told.status.as_u16(), status, "{path} {body}: {:?}", told.body);
        assert!(told.body["error"].is_string() && told.body.as_object().unwrap().len() == 1, "{path}");
    }
    let stored = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "y"}})).await;
    let path = format!("/skuld/tasks/complete/{}", stored.body["id"].as_str().unwrap());
    let told = door.post(&path, &json!({"cid": 0})).await;
    assert!(told.status == StatusCode::NOT_FOUND && told.body["error"].as_str().unwrap().contains("no claim 0"));
}

#[tokio::test]
async fn without_a_majority_each_list_is_unavailable() {
    let door = Door::impatient(|_| norn_wire::Response::Error(Error::unavailable("no majority")));
    for path in ["/skuld/tasks/list", "/skuld/tasks/count", "/skuld/queue/count"] {
        let told = door.get(path).await;
        assert_eq!(told.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(told.headers.contains_key(header::RETRY_AFTER) && told.body["error"].is_string());
    }
}

#[test]
fn as_many_disks_as_asked_for() {
    let of_three = |w| acks_of(w, 3);
    assert_eq!([0, 1, 2, 3, 4].map(of_three), [None, Some(Acks::One), Some(Acks::Quorum), Some(Acks::All), None]);
    assert_eq!((acks_of(3, 5), acks_of(4, 5), acks_of(2, 1)), (Some(Acks::Quorum), Some(Acks::All), None));
}

proptest! {
    #[test]
    fn an_id_reads_back_in_either_alphabet_with_and_without_padding(bytes: [u8; 20]) {
        let id = TaskId::from_bytes(bytes);
        let text = text_of(id);
        for text in [text.clone(), text.trim_end_matches('=').to_owned(), text.replace('-', "+").replace('_', "/")] {
            prop_assert_eq!(text.parse::<SkuldId>().map(|id| id.0), Ok(id));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<SkuldId>();
    }
}
