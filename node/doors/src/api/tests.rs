//! Transcripts of the operations before a scripted node: what the door asks of the node, and what it answers.

use crate::access::Access;
use crate::state::Bounds;
use crate::testing::samples as with;
use crate::testing::{Door, Reply, Script};
use axum::body::Body;
use axum::http::{Method, Request as HttpRequest, StatusCode};
use norn_wire::response::Page;
use norn_wire::{Error, ErrorCode, Request, Response, State};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// A request and what the node answers to the requests that it leads to.
struct Scene {
    method: &'static str,
    target: String,
    body: &'static str,
    answers: Vec<Response>,
}

fn scene(line: &str, body: &'static str, answers: impl IntoIterator<Item = Response>) -> Scene {
    let (method, target) = line.split_once(' ').unwrap();
    let method = ["GET", "PUT", "POST", "PATCH", "DELETE"].into_iter().find(|known| *known == method).unwrap();
    Scene { method, target: target.to_owned(), body, answers: answers.into_iter().collect() }
}

fn failed(code: ErrorCode, message: &str) -> [Response; 1] {
    [Response::Error(Error::new(code, message).about(with::id(1)))]
}

impl Scene {
    async fn play(self, text: &mut String) {
        let door = Door::new(Script::answers(self.answers));
        let request = HttpRequest::builder().method(self.method).uri(&self.target).header("x-request-id", "r1");
        let request = if self.body.is_empty() { request } else { request.header("content-type", "application/json") };
        let told = door.send(request.body(Body::from(self.body)).unwrap()).await;
        writeln!(text, "> {} {}", self.method, self.target).unwrap();
        if !self.body.is_empty() {
            writeln!(text, "> {}", self.body).unwrap();
        }
        for request in door.seen() {
            writeln!(text, "  node: {}", request.verb()).unwrap();
        }
        writeln!(text, "< {} {}", told.status.as_u16(), told.header("content-type")).unwrap();
        for name in ["allow", "location", "retry-after"] {
            if !told.header(name).is_empty() {
                writeln!(text, "< {name}: {}", told.header(name)).unwrap();
            }
        }
        writeln!(text, "< {}\n", masked(&told.body)).unwrap();
    }
}

/// The body without what each run draws or measures anew.
fn masked(body: &str) -> String {
    let Some((before, rest)) = body.split_once("\"expires_ms\":") else { return body.to_owned() };
    let rest = rest.trim_start_matches(|character: char| character.is_ascii_digit());
    format!("{before}\"expires_ms\":0{rest}")
}

fn queues() -> Vec<Scene> {
    vec![
        scene("GET /v1/queues", "", [Response::Queues(vec![with::counts()])]),
        scene("GET /v1/queues?queue=mail", "", []),
        scene("GET /v1/queues", "", failed(ErrorCode::Denied, "not for you")),
        scene("GET /v1/policies", "", [with::cluster()]),
        scene("GET /v1/policies?queue=team%2Fmail", "", [with::cluster()]),
        scene("GET /v1/policies?queue=other", "", [with::cluster()]),
        scene("GET /v1/policies?queue=a%20b", "", []),
        scene("PATCH /v1/policies?queue=team/mail", r#"{"attempts":5}"#, [with::changed()]),
        scene(
            "PATCH /v1/policies?queue=team/mail",
            r#"{"attempts":5,"rate":null}"#,
            [with::changed(), with::changed(), with::changed(), with::changed()],
        ),
        scene(
            "PATCH /v1/policies?queue=team/mail",
            r#"{"attempts":5,"rate":"1/s"}"#,
            [vec![with::changed(), with::changed(), with::changed()], failed(ErrorCode::Invalid, "no").into()].concat(),
        ),
        scene("PATCH /v1/policies?queue=team/mail", r#"{"attempt":5}"#, []),
        scene("PATCH /v1/policies?queue=team/mail", "{}", []),
        scene("PATCH /v1/policies", r#"{"attempts":5}"#, []),
        scene("POST /v1/policies?queue=mail", "{}", []),
    ]
}

fn groups() -> Vec<Scene> {
    let (join, close) = (with::join(), format!("POST /v1/groups/{}/close", with::id(9)));
    let members = format!("GET /v1/groups/{}/members", with::id(9));
    vec![
        scene(&close, r#"{"total":2}"#, [Response::AckedOne(with::acked(1))]),
        scene(&close, r#"{"total":2}"#, [Response::AckedOne(with::sloppy(1))]),
        scene(&format!("{close}?acks=most"), r#"{"total":2}"#, []),
        scene(&close, r#"{"total":0}"#, failed(ErrorCode::Invalid, "a group has members")),
        scene(&close, r#"{"total":3}"#, failed(ErrorCode::Conflict, "x")),
        scene("POST /v1/groups/nine/close", r#"{"total":3}"#, []),
        scene(&format!("{members}?limit=1"), "", [Response::Task(join.clone()), with::told(1, State::Done)]),
        scene(&format!("{members}?after=2"), "", [Response::Task(join)]),
        scene(&format!("{members}?limit=1001"), "", []),
        scene(&format!("{members}?first=1"), "", []),
        scene(&members, "", [with::told(1, State::Done)]),
        scene(&members, "", failed(ErrorCode::NotFound, "there is no such task")),
    ]
}

fn transactions() -> Vec<Scene> {
    let draft = r#"{"deletes":[{"id":"000038g2m4d7kq9rjscg0080000w3n5t"}]}"#;
    vec![
        scene("POST /v1/transactions", draft, [Response::Transacted(Ok(Vec::new()))]),
        scene("POST /v1/transactions", draft, [Response::Transacted(Err(Box::new(with::refusal())))]),
        scene("POST /v1/transactions", draft, failed(ErrorCode::Denied, "not for you")),
        scene("POST /v1/transactions", r#"{"deletes":[{"id":"x"}]}"#, []),
        scene("POST /v1/transactions", r#"{"removes":[]}"#, []),
        scene("POST /v1/transactions", "[", []),
    ]
}

fn bulk() -> Vec<Scene> {
    let page = |tasks| Response::Page(Page { tasks, next: None });
    vec![
        scene("POST /v1/redrive", r#"{"queue":"mail","dry_run":true}"#, [page(vec![with::task(1, State::Dead)])]),
        scene("POST /v1/redrive", r#"{"queue":"mail"}"#, [page(Vec::new())]),
        scene("POST /v1/redrive", r#"{"queue":"mail"}"#, failed(ErrorCode::Denied, "not for you")),
        scene("POST /v1/redrive", r#"{"queue":"mail","letters":"x"}"#, []),
        scene("POST /v1/redrive", r#"{"ids":["x"]}"#, []),
        scene(
            "POST /v1/redrive",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            failed(ErrorCode::NotFound, "there is no such task"),
        ),
        scene(
            "POST /v1/purge",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            [Response::AckedOne(with::acked(1))],
        ),
        scene(
            "POST /v1/purge",
            r#"{"ids":["000038g2m4d7kq9rjscg0080000w3n5t"]}"#,
            failed(ErrorCode::Conflict, "the task has not ended"),
        ),
        scene("POST /v1/purge", r#"{"queue":"mail","dry_run":true}"#, [page(vec![with::task(1, State::Done)])]),
        scene("POST /v1/purge", r#"{"queue":"mail"}"#, [page(vec![with::task(1, State::Done)])]),
        scene(
            "POST /v1/purge",
            r#"{"queue":"mail","confirm":1}"#,
            [page(vec![with::task(1, State::Done)]), Response::AckedOne(with::acked(1))],
        ),
        scene("POST /v1/purge", r#"{"queue":"mail","states":["ready"]}"#, []),
        scene("POST /v1/purge", "{}", []),
    ]
}

fn sessions() -> Vec<Scene> {
    let one = |verb| format!("POST /v1/sessions/{}/2.1/{verb}", with::id(1));
    let session = || Response::Task(with::session());
    vec![
        scene("POST /v1/sessions", "", [Response::Acked(vec![Ok(with::acked(1))]), with::session_granted()]),
        scene("POST /v1/sessions", r#"{"ttl_ms":5}"#, []),
        scene("POST /v1/sessions", r#"{"ttl":5}"#, []),
        scene(&one("renew"), "", [session(), Response::Renewed(vec![Ok(10_000)])]),
        scene(&one("renew"), "", [with::told(1, State::Done)]),
        scene(&one("end"), "", [session(), Response::Acked(vec![Ok(with::acked(1))])]),
        scene(&format!("POST /v1/sessions/{}/1.1/end", with::id(1)), "", [session()]),
        scene("POST /v1/sessions/x/2.1/end", "", []),
        scene(&format!("POST /v1/sessions/{}/x/end", with::id(1)), "", []),
    ]
}

fn schedules() -> Vec<Scene> {
    let scheduled = || Response::Scheduled { already: false, view: Some(Box::new(with::schedule())) };
    let set = r#"{"cron":"30 2 * * *","queue":"backup","data":"all"}"#;
    vec![
        scene("GET /v1/schedules", "", [Response::Schedules(vec![with::schedule()])]),
        scene("GET /v1/schedules?name=nightly", "", [Response::Schedules(vec![with::schedule()])]),
        scene("GET /v1/schedules?name=x", "", failed(ErrorCode::NotFound, "there is no schedule x")),
        scene("GET /v1/schedules?title=x", "", []),
        scene("PUT /v1/schedules?name=nightly", set, [scheduled()]),
        scene("PUT /v1/schedules?name=nightly", r#"{"queue":"backup"}"#, []),
        scene("PUT /v1/schedules", set, []),
        scene("PUT /v1/schedules?name=nightly", set, failed(ErrorCode::Invalid, "there is no such zone")),
        scene("POST /v1/schedules/pause?name=nightly", "", [scheduled()]),
        scene("POST /v1/schedules/resume?name=nightly", "", [scheduled()]),
        scene("POST /v1/schedules/resume?name=x", "", failed(ErrorCode::NotFound, "there is no schedule x")),
        scene("DELETE /v1/schedules?name=nightly", "", [Response::Scheduled { already: false, view: None }]),
        scene("DELETE /v1/schedules", "", []),
    ]
}

fn cluster() -> Vec<Scene> {
    let (status, ring) =
        (|| Response::Status(Box::new(with::status())), || Response::Partitions(vec![with::partition()]));
    vec![
        scene("GET /v1/nodes", "", [Response::Nodes(vec![with::node()])]),
        scene("GET /v1/ring", "", [ring()]),
        scene("GET /v1/partitions", "", [ring()]),
        scene("GET /v1/status", "", [status()]),
        scene("GET /v1/status?watch=1s", "", []),
        scene("GET /v1/nodes", "", failed(ErrorCode::Denied, "not for you")),
        scene(
            "POST /v1/cluster/changes",
            r#"{"change":{"drain":{"node":"n1"}},"dry_run":true}"#,
            [with::cluster(), with::changed()],
        ),
        scene("POST /v1/cluster/changes", r#"{"change":{"rebalance":{}}}"#, [with::cluster(), with::changed()]),
        scene(
            "POST /v1/cluster/changes",
            r#"{"change":{"settings":{"heal_after_ms":null}}}"#,
            [with::cluster(), with::changed()],
        ),
        scene("POST /v1/cluster/changes", r#"{"change":{"remove":{"node":"n9"}}}"#, [with::cluster()]),
        scene("POST /v1/cluster/changes", r#"{"change":{"drain":{"node":"n9"}}}"#, [with::cluster()]),
        scene("POST /v1/cluster/changes", r#"{"change":{"add":{"address":"127.0.0.1:7403"}}}"#, []),
        scene("POST /v1/cluster/changes", r#"{"change":{"drain":{"node":"n1"},"rebalance":{}}}"#, []),
    ]
}

#[tokio::test]
async fn operations_are_answered_as_in_their_transcripts() {
    let parts = [queues(), groups(), transactions(), bulk(), sessions(), schedules(), cluster()];
    let mut text = String::new();
    for scene in parts.into_iter().flatten() {
        scene.play(&mut text).await;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/tests/transcripts.txt");
    if std::env::var_os("NORN_BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    for (wanted, got) in committed.split("\n\n").zip(text.split("\n\n")) {
        assert_eq!(got, wanted);
    }
    assert!(committed == text, "{} has other scenes; NORN_BLESS=1 writes it anew", file.display());
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
async fn a_name_for_a_transaction_is_refused_and_not_ignored() {
    let door = Door::new(Script::default());
    let request = HttpRequest::post("/v1/transactions").header("idempotency-key", "k");
    let answer = door.send(request.body(Body::from("{}")).unwrap()).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (StatusCode::NOT_IMPLEMENTED, Some("unsupported")));
    assert!(door.seen().is_empty());
}

#[tokio::test]
async fn a_node_that_is_too_busy_for_long_is_told_of_with_a_pause() {
    let bounds = Bounds { call_timeout: Duration::from_millis(50), ..Bounds::default() };
    let busy = Script::new(|_| Error::new(ErrorCode::Overloaded, "too many tasks"));
    let answer = Door::with(bounds, Access::default(), busy).get("/v1/queues").await;
    assert!([429, 503, 504].contains(&answer.status.as_u16()), "{}", answer.body);
    assert!(!answer.header("retry-after").is_empty());
}

/// The operations of the description with their examples of bodies.
fn examples() -> Vec<(Method, String, Value)> {
    let document = serde_json::to_value(super::router().split_for_parts().1).unwrap();
    let mut examples = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let media = &operation["requestBody"]["content"]["application/json"];
            let tag = operation["tags"][0].as_str().unwrap();
            if media.is_null() || ["tasks", "claims"].contains(&tag) {
                continue;
            }
            assert!(!media["example"].is_null(), "{method} {path}: its body has no example");
            let query = ["queue", "name"].into_iter().find(|name| {
                let mut parameters = operation["parameters"].as_array().into_iter().flatten();
                parameters.any(|parameter| parameter["name"] == *name && parameter["required"] == true)
            });
            let target = path.replace("{id}", &with::id(1).to_string());
            let target = query.map_or_else(|| target.clone(), |name| format!("{target}?{name}=x"));
            let method = method.to_uppercase().parse().unwrap();
            examples.push((method, target, media["example"].clone()));
        }
    }
    examples
}

#[tokio::test]
async fn the_example_of_each_body_is_taken() {
    let examples = examples();
    assert!(examples.len() >= 8, "{}", examples.len());
    for (method, target, body) in examples {
        let door = Door::new(Script::default());
        let answer = door.call(method.clone(), &target, &body.to_string()).await;
        assert!(!door.seen().is_empty(), "{method} {target} {body}: {}", answer.body);
        assert_eq!(answer.json()["code"], "unsupported", "{method} {target}: the node was not asked");
    }
}
