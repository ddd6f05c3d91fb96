//! What operations do besides their answers.

use crate::access::Access;
use crate::state::Bounds;
use crate::testing::samples::{self as with, ONE, acked, claimed, granted, id, task, token, told};
use crate::testing::{Door, Reply, Script};
use axum::body::Body;
use axum::http::{Method, Request as HttpRequest, StatusCode};
use http_body_util::BodyExt;
use norn_wire::response::{ClaimView, Page};
use norn_wire::{Acked, Completion, Error, ErrorCode, Request, Response, State, TaskView};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn claim_request(body: &'static str) -> HttpRequest<Body> {
    HttpRequest::post("/v1/claims").body(Body::from(body)).unwrap()
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it happens in time");
}

#[tokio::test]
async fn a_caller_that_hangs_up_leaves_its_claim() {
    let door = Door::new(Script::new(|_| Reply::Silence));
    {
        let asking = door.begin(claim_request(r#"{"queues":["mail"],"wait_ms":60000}"#));
        tokio::pin!(asking);
        tokio::select! {
            _ = &mut asking => panic!("the node is silent"),
            () = until(|| !door.asked().is_empty()) => {}
        }
    }
    until(|| door.asked().iter().any(|request| matches!(request, Request::Leave { .. }))).await;
    let asked = door.asked();
    let Some(Request::Claim(claim)) = asked.first() else { panic!("{asked:?}") };
    let left =
        asked.iter().find_map(|request| if let Request::Leave { claim, .. } = request { Some(*claim) } else { None });
    assert_eq!(left, Some(claim.claim));
}

#[tokio::test]
async fn granted_tasks_whose_answer_no_connection_takes_go_back() {
    let door = Door::new(Script::new(|request| match request {
        Request::Claim(_) => Some(claimed(vec![granted()], 0)),
        _ => Some(Response::Done),
    }));
    let response = door.begin(claim_request(r#"{"queues":["mail"]}"#)).await;
    drop(response);
    let is_released = |request: &Request| *request == Request::Release { id: id(1), token: token() };
    until(|| door.asked().iter().any(is_released)).await;

    let taken = door.begin(claim_request(r#"{"queues":["mail"]}"#)).await;
    taken.into_body().collect().await.unwrap();
    let count = || door.asked().iter().filter(|request| is_released(request)).count();
    door.begin(HttpRequest::get("/v1/count").body(Body::empty()).unwrap()).await;
    assert_eq!(count(), 1, "what was taken stays");
}

#[tokio::test]
async fn a_node_that_stops_answers_waits_at_once_and_says_where_a_list_goes_on() {
    let door = Door::new(Script::new(|request| match request {
        Request::Get { .. } => Some(told(1, State::Ready)),
        Request::List { .. } => Some(Response::Page(Page { tasks: vec![task(1, State::Ready)], next: Some(id(1)) })),
        _ => None,
    }));
    let list = HttpRequest::get("/v1/tasks").header("accept", "application/x-ndjson").body(Body::empty()).unwrap();
    let mut lines = door.begin(list).await.into_body();
    let first = lines.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(br#"{"id":"#));
    door.drain();
    let rest = lines.collect().await.unwrap().to_bytes();
    let rest = std::str::from_utf8(&rest).unwrap();
    let last = rest.lines().last().unwrap();
    assert!(last.starts_with(r#"{"error":{"code":"unavailable""#) && last.contains(&format!("after={ONE}")), "{last}");

    let empty = door.begin(claim_request(r#"{"queues":["mail"],"wait_ms":60000}"#)).await;
    assert_eq!(empty.into_body().collect().await.unwrap().to_bytes(), r#"{"tasks":[],"unavailable":0}"#);
    let wait = HttpRequest::get(format!("/v1/tasks/{ONE}/wait?timeout_ms=60000")).body(Body::empty()).unwrap();
    assert_eq!(door.begin(wait).await.status(), 200);
}

#[tokio::test]
async fn an_enqueue_under_an_id_asks_for_the_same_however_often_it_is_repeated() {
    let door = Door::new(Script::new(|request| match request {
        Request::Enqueue { tasks, .. } => Some(Response::Acked(vec![Ok(Acked { id: tasks[0].id, ..acked(1) })])),
        _ => None,
    }));
    let put = HttpRequest::put(format!("/v1/tasks/{ONE}"));
    let body = r#"{"queue":"team/mail","key":"k","delay":"1500ms"}"#;
    assert_eq!(door.begin(put.body(Body::from(body)).unwrap()).await.status(), 201);
    let named = id(1).with_tag(norn_wire::Spec { key: Some("k".into()), ..task(1, State::Ready).spec }.tag().unwrap());
    for _ in 0..2 {
        let body = format!(r#"{{"queue":"team/mail","key":"k","delay_ms":1500,"id":"{named}"}}"#);
        assert_eq!(door.begin(HttpRequest::post("/v1/tasks").body(Body::from(body)).unwrap()).await.status(), 201);
    }
    let asked = door.asked();
    assert!(asked[1] == asked[2]);
    let Request::Enqueue { tasks, .. } = &asked[0] else { panic!("{asked:?}") };
    assert_eq!(tasks[0].id, id(1).with_tag(tasks[0].spec.tag().unwrap()));
    assert_eq!(tasks[0].spec.not_before_ms, id(1).time_ms() + 1_500);
}

#[tokio::test]
async fn a_repeat_of_a_completion_with_children_asks_for_the_same() {
    let (first, told) = (Arc::new(Mutex::new(None::<Completion>)), Arc::new(Mutex::new(0)));
    let (stored, count) = (Arc::clone(&first), Arc::clone(&told));
    let door = Door::new(Script::new(move |request| match request {
        Request::Complete { items, .. } => {
            let mut stored = stored.lock().unwrap();
            let known = stored.get_or_insert_with(|| items[0].clone());
            *count.lock().unwrap() += 1;
            let conflict = Error::new(ErrorCode::Conflict, "this claim was completed with something else");
            Response::Acked(vec![if *known == items[0] { Ok(acked(1)) } else { Err(conflict) }])
        }
        Request::Get { .. } => {
            let known = stored.lock().unwrap().clone().unwrap();
            let claim = ClaimView { completed_ms: Some(known.at_ms), ..with::session().claims[0].clone() };
            let children = known.children.iter().map(|child| child.id).collect();
            Response::Task(Box::new(TaskView { claims: vec![claim], children, ..task(1, State::Done) }))
        }
        request => Response::Error(Error::new(ErrorCode::Unsupported, request.verb())),
    }));
    let target = format!("/v1/tasks/{ONE}/claims/2.1/complete");
    let then = [
        r#"{"queue":"stock","delay_ms":5000}"#,
        r#"{"queue":"a","number":1,"delay_ms":7000}"#,
        r#"{"queue":"b","join":{"total":1}}"#,
    ];
    let body = format!(r#"{{"result":"sent","then":[{}]}}"#, then.join(","));
    let body = body.as_str();
    for sent in [1, 3, 5] {
        let answer = door.call(Method::POST, &target, body).await;
        assert_eq!((answer.status, *told.lock().unwrap()), (StatusCode::OK, sent), "{}", answer.body);
    }
    let many = format!(r#"{{"items":[{{"id":"{ONE}","token":"2.1",{}]}}"#, body.trim_start_matches('{'));
    let answer = door.call(Method::POST, "/v1/claims/complete", &many).await;
    assert_eq!(answer.json()["items"][0]["guarantee"], "strict", "{}", answer.body);
    let other = door.call(Method::POST, &target, &body.replace("5000", "6000")).await;
    assert_eq!((other.status, &other.json()["code"]), (StatusCode::CONFLICT, &"conflict".into()));
    let fewer = door.call(Method::POST, &target, r#"{"result":"sent","then":{"queue":"stock"}}"#).await;
    assert_eq!(fewer.status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_claim_under_a_key_is_one_claim_of_its_caller() {
    let door = Door::new(Script::new(|request| match request {
        Request::Claim(_) => Some(claimed(vec![granted()], 0)),
        _ => Some(Response::Done),
    }));
    for key in ["a", "a", "b"] {
        let mut request = claim_request(r#"{"queues":["mail"]}"#);
        request.headers_mut().insert("idempotency-key", key.parse().unwrap());
        drop(door.begin(request).await);
    }
    let asked = door.asked();
    let claims: Vec<_> = asked
        .iter()
        .filter_map(|request| if let Request::Claim(claim) = request { Some(claim) } else { None })
        .collect();
    assert!(claims.iter().all(|claim| claim.repeated));
    assert_eq!(claims[0].claim, claims[1].claim);
    assert_ne!(claims[0].claim, claims[2].claim);
    let is_given_back = |request: &Request| matches!(request, Request::Leave { .. } | Request::Release { .. });
    assert!(!asked.iter().any(is_given_back), "a repeat gets the tasks");
}

#[tokio::test]
async fn the_whole_cluster_is_shown_from_three_answers() {
    let door = Door::new(Script::new(|request| {
        Reply::Answer(match request {
            Request::Cluster => with::cluster(),
            Request::Ring => Response::Partitions(vec![with::partition()]),
            _ => Response::Status(Box::new(with::status())),
        })
    }));
    let overview = door.get("/v1/cluster").await;
    assert_eq!(overview.status, StatusCode::OK, "{}", overview.body);
    let overview = overview.json();
    assert_eq!((&overview["members"][0]["name"], &overview["layout"]["moving"]), (&"n1".into(), &1.into()));
    assert_eq!(overview["under_way"][0]["state"], "moving");
}

#[tokio::test]
async fn a_node_that_is_too_busy_for_long_is_told_of_with_a_pause() {
    let bounds = Bounds { call_timeout: Duration::from_millis(50), ..Bounds::default() };
    let busy = Script::new(|_| Error::new(ErrorCode::Overloaded, "too many tasks"));
    let answer = Door::with(bounds, Access::default(), busy).get("/v1/queues").await;
    assert!([429, 503, 504].contains(&answer.status.as_u16()), "{}", answer.body);
    assert!(!answer.header("retry-after").is_empty());
}
