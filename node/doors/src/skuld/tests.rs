//! Each route against a small node, with its successes and its refusals.

use super::*;
use crate::access::Access;
use crate::state::{Bounds, Phase};
use crate::taskstore::fake::Fake;
use crate::testing::{self, JsonDoor as Door, Reply, Script, until};
use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode, header};
use norn_wire::Request;
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

// S50: named queues and priorities
#[tokio::test]
async fn a_task_goes_to_the_queue_and_has_the_priority_that_it_names() {
    let (door, _) = open();
    let body = json!({"task": {"data": "x", "queue": "mail", "priority": -3}});
    let id = door.post("/skuld/tasks/enqueue", &body).await.body["id"].clone();
    assert_eq!(door.post("/skuld/tasks/claim", &json!({"dt": 1_000})).await.body, json!({}), "it is of another queue");
    let told = door.post("/skuld/tasks/claim", &json!({"dt": 1_000, "queue": "mail"})).await;
    let task = &told.body["task"];
    assert_eq!((&task["id"], &task["queue"], &task["priority"]), (&id, &json!("mail"), &json!(-3)));
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
        let has_id = told.body.as_object().unwrap().contains_key("id");
        assert!(told.body["error"].is_string() && has_id == (status == 504), "{path}: {}", told.body);
    }
    let stored = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "y"}})).await;
    let path = format!("/skuld/tasks/complete/{}", stored.body["id"].as_str().unwrap());
    let told = door.post(&path, &json!({"cid": 0})).await;
    assert!(told.status == StatusCode::NOT_FOUND && told.body["error"].as_str().unwrap().contains("no claim 0"));
}

// By a handler, by the router, and by what stands before both
#[tokio::test]
async fn each_refusal_of_the_door_is_in_skulds_form() {
    let none = || testing::Door::new(Script::default());
    let bounded = |bounds| testing::Door::with(bounds, Access::default(), Script::default());
    let post = |path: &str| HttpRequest::post(format!("/skuld{path}"));
    let get = |path: &str| HttpRequest::get(format!("/skuld{path}"));
    let long = || Body::from(r#"{"task":{"data":"too long"}}"#);
    for (door, request, status) in [
        (none(), get("").body(Body::empty()), 404),
        (none(), get("/nothing").body(Body::empty()), 404),
        (none(), get("/tasks/claim").body(Body::empty()), 405),
        (none(), get("/tasks/short").body(Body::empty()), 400),
        (none(), post("/tasks/list").body(Body::empty()), 405),
        (none(), get("/id").body(long()), 400),
        (none(), post("/tasks/claim").header("content-type", "text/xml").body(long()), 415),
        (none(), get("/id").header("origin", "https://evil.example").body(Body::empty()), 403),
        (none(), get("/id").header("host", "evil.example").body(Body::empty()), 403),
        (bounded(Bounds { body_bytes_max: 5, ..Bounds::default() }), post("/tasks/enqueue").body(long()), 413),
        (bounded(Bounds { requests_max: 0, ..Bounds::default() }), get("/id").body(Body::empty()), 429),
        (
            testing::Door::of(Bounds::default(), Access::default(), Phase::Starting),
            get("/tasks/list").body(Body::empty()),
            503,
        ),
    ] {
        let told = door.send(request.unwrap()).await;
        let body = told.json();
        assert_eq!(told.status.as_u16(), status, "{body}");
        assert!(body["error"].is_string() && body.as_object().unwrap().len() == 1, "{status}: {body}");
        assert_eq!(told.header("content-type"), "application/json");
        assert!(!told.header("x-request-id").is_empty());
        assert_eq!(told.headers.contains_key(header::RETRY_AFTER), [429, 503].contains(&status), "{status}");
    }
    let stranger = none().get_as_stranger("/skuld/id").await;
    assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
    assert!(stranger.json()["error"].is_string() && !stranger.header("www-authenticate").is_empty());
    let other = none().get("/skuldery").await;
    assert_eq!(other.json()["code"], json!("no_route"), "of another door");
}

#[tokio::test]
async fn a_write_without_a_known_outcome_names_the_id_to_repeat_it_under() {
    let node = Node::default();
    let (script, mut answers) = (Arc::clone(&node), false);
    let door = Door::impatient(move |request| {
        let is_write = matches!(request, Request::Enqueue { .. });
        let answer = script.lock().unwrap().answer(request);
        // The first write is made, and its answer is lost.
        answers |= !is_write;
        match is_write && !std::mem::replace(&mut answers, true) {
            true => Reply::Silence,
            false => answer.into(),
        }
    });
    let body = |id: &Value| json!({"task": {"data": "x", "id": id}});
    let told = door.post("/skuld/tasks/enqueue", &body(&Value::Null)).await;
    assert_eq!(told.status, StatusCode::GATEWAY_TIMEOUT, "{:?}", told.body);
    assert!(told.headers.contains_key(header::RETRY_AFTER));
    assert!(told.body["error"].as_str().unwrap().contains("repeat it under its id"), "{:?}", told.body);
    let id = told.body["id"].clone();
    assert_eq!(door.post("/skuld/tasks/enqueue", &body(&id)).await.body["id"], id);
    let tasks = node.lock().unwrap().tasks.clone();
    assert!(tasks.keys().map(|id| json!(text_of(*id))).eq([id]), "stored once");
    let few = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "y"}, "w": 3})).await;
    assert_eq!(few.status, StatusCode::GATEWAY_TIMEOUT);
    let id = few.body["id"].as_str().unwrap().parse::<SkuldId>().unwrap().0;
    assert!(node.lock().unwrap().tasks.contains_key(&id), "it is there");
}

// A task shows its latest claims only
#[tokio::test]
async fn a_claim_has_its_name_however_many_there_were() {
    let (door, node) = open();
    let id = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "x"}})).await.body["id"].clone();
    let path = format!("/skuld/tasks/complete/{}", id.as_str().unwrap());
    let mut cids = Vec::new();
    for number in 1..=70 {
        let told = door.post("/skuld/tasks/claim", &json!({"dt": 1_000})).await;
        let claims = told.body["task"]["claims"].as_array().unwrap().clone();
        assert_eq!(claims.len(), CLAIMS_SHOWN_MAX.min(number));
        cids.push(claims.last().unwrap()["cid"].clone());
        if let Some(same) = claims.len().checked_sub(2) {
            assert_eq!(claims[same]["cid"], cids[number - 2], "it does not change");
        }
        let mut node = node.lock().unwrap();
        node.tasks.values_mut().for_each(|task| task.state = TaskState::Ready);
    }
    let told = door.post(&path, &json!({"cid": 69})).await;
    assert_eq!(told.status, StatusCode::CONFLICT, "{:?}", told.body);
    assert!(told.body["error"].as_str().unwrap().contains("give the cid that stands in the claim"));
    let completed = || {
        let node = node.lock().unwrap();
        let (_, task) = node.tasks.first_key_value().unwrap();
        let is_completed = |claim: &&ClaimView| claim.completed_ms.is_some();
        task.claims.iter().filter(is_completed).map(|claim| json!(claim.token.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(completed(), [] as [Value; 0]);
    assert_eq!(door.post(&path, &json!({"cid": cids[66]})).await.status, StatusCode::OK);
    assert_eq!(completed(), [cids[66].clone()]);
    assert_eq!(door.post(&path, &json!({"cid": cids[0]})).await.status, StatusCode::OK, "any claim may complete");
}

#[tokio::test]
async fn a_claim_is_named_by_its_text_or_its_place() {
    let (door, node) = open();
    let id = door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "x"}})).await.body["id"].clone();
    let path = format!("/skuld/tasks/complete/{}", id.as_str().unwrap());
    door.post("/skuld/tasks/claim", &json!({"dt": 1_000})).await;
    for (cid, status) in [(json!(1), 404), (json!("7.7"), 404), (json!("x"), 400), (json!(-1), 400), (json!(null), 400)]
    {
        let told = door.post(&path, &json!({"cid": cid})).await;
        assert_eq!(told.status.as_u16(), status, "{cid}: {:?}", told.body);
    }
    for cid in [json!(0), json!("1.1")] {
        assert_eq!(door.post(&path, &json!({"cid": cid})).await.status, StatusCode::OK, "{cid}");
    }
    assert!(node.lock().unwrap().tasks.values().all(|task| task.state == TaskState::Done));
}

#[tokio::test]
async fn a_claim_whose_caller_hangs_up_goes_back() {
    let body = json!({"dt": 3_600_000});
    for is_read in [false, true] {
        let node = Node::default();
        let script = Arc::clone(&node);
        let door = Door::open(move |request| match request {
            Request::Get { .. } if !is_read => Reply::Silence,
            request => script.lock().unwrap().answer(request).into(),
        });
        door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "x"}})).await;
        match is_read {
            false => door.hang_up_at("/skuld/tasks/claim", &body, |it| matches!(it, Request::Get { .. })).await,
            true => door.hang_up("/skuld/tasks/claim", &body).await,
        }
        until(|| node.lock().unwrap().tasks.values().all(|task| task.state == TaskState::Ready)).await;
    }
    let (door, node) = open();
    door.post("/skuld/tasks/enqueue", &json!({"task": {"data": "x"}})).await;
    door.post("/skuld/tasks/claim", &body).await;
    door.get("/skuld/tasks/count").await;
    assert_eq!(node.lock().unwrap().releases, 0, "what was taken stays");
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
    let count = |w: u8| Some(Acks::Count(w.try_into().expect("it is not zero")));
    assert_eq!([0, 1, 2, 3, 4].map(of_three), [None, Some(Acks::One), Some(Acks::Quorum), count(3), None]);
    assert_eq!([2, 3, 4, 6].map(|w| acks_of(w, 5)), [count(2), Some(Acks::Quorum), count(4), None]);
    assert_eq!((acks_of(2, 1), acks_of(256, 300)), (None, None));
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
