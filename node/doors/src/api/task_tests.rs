//! Each route, its answers and its errors: transcripts that are compared with committed ones. `NORN_BLESS=1` rewrites those.

use crate::testing::samples::{ONE, TIME_MS, acked, claimed, error, granted, id, sloppy, task, token, told};
use crate::testing::{Door, Reply, Script};
use axum::body::Body;
use axum::http::{Request as HttpRequest, header};
use http_body_util::BodyExt;
use norn_wire::response::Page;
use norn_wire::{Acked, ErrorCode, Request, Response, State, TaskId};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A request, and what the node answers.
struct Exchange {
    line: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
    answers: Vec<Option<Response>>,
}

fn exchange(line: &'static str, body: &'static str, answers: impl IntoIterator<Item = Response>) -> Exchange {
    Exchange { line, headers: &[], body, answers: answers.into_iter().map(Some).collect() }
}

/// Digits behind this name depend on the clock.
fn masked(text: &str, name: &str) -> String {
    let mut pieces = text.split(name);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |masked, piece| {
        let rest = piece.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{masked}{name}NOW{rest}")
    })
}

/// Ids that the session draws.
fn without_drawn_ids(text: &str) -> String {
    let drawn = format!("{}", TaskId::new(TIME_MS, 0, 0, 0))[..9].to_owned();
    let mut out = String::new();
    let mut rest = text;
    while let Some(place) = rest.find(&drawn) {
        let (before, found) = rest.split_at(place);
        let word: String = found.chars().take(32).collect();
        let known = (1..9).any(|number| id(number).to_string() == word) || text.contains("PUT");
        out += before;
        out += if known { &word } else { "DRAWN" };
        rest = &found[word.len()..];
    }
    out + rest
}

impl Exchange {
    fn with(mut self, headers: &'static [(&'static str, &'static str)]) -> Exchange {
        self.headers = headers;
        self
    }

    async fn told(self) -> String {
        let door = Door::impatient(Script::answers(self.answers).at(TIME_MS));
        let (method, place) = self.line.split_once(' ').unwrap();
        let mut request = HttpRequest::builder().method(method).uri(place).header("x-request-id", "r1");
        let mut told = format!("> {}\n", self.line);
        for (name, value) in self.headers {
            request = request.header(*name, *value);
            writeln!(told, "> {name}: {value}").unwrap();
        }
        if !self.body.is_empty() {
            writeln!(told, "> {}", self.body).unwrap();
        }
        let response = door.begin(request.body(Body::from(self.body)).unwrap()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        // How often a session repeats a request depends on the time.
        let mut all = door.asked();
        all.dedup();
        for asked in all {
            writeln!(told, "= {}", asked.verb()).unwrap();
        }
        writeln!(told, "< {}", parts.status.as_u16()).unwrap();
        for name in
            [header::CONTENT_TYPE, header::LOCATION, header::RETRY_AFTER, header::CONTENT_DISPOSITION, header::ALLOW]
        {
            if let Some(value) = parts.headers.get(&name) {
                writeln!(told, "< {name}: {}", without_drawn_ids(value.to_str().unwrap())).unwrap();
            }
        }
        let body = masked(std::str::from_utf8(&body).unwrap(), "\"lease_expires_ms\":");
        for line in without_drawn_ids(&body).lines() {
            writeln!(told, "< {line}").unwrap();
        }
        told
    }
}

/// Compares transcripts with the committed ones.
async fn compare(name: &str, exchanges: Vec<Exchange>) {
    let mut told = String::new();
    for exchange in exchanges {
        told += &tokio::time::timeout(PATIENCE, exchange.told()).await.expect("it is answered");
        told.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/tests").join(name);
    if std::env::var_os("NORN_BLESS").is_some() {
        std::fs::write(&path, &told).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    for (told, known) in told.split("\n\n").zip(known.split("\n\n")) {
        assert_eq!(told, known, "{name}: NORN_BLESS=1 takes it over");
    }
    assert_eq!(told.len(), known.len(), "{name}: NORN_BLESS=1 takes it over");
}

#[tokio::test]
async fn tasks_are_enqueued_and_what_cannot_be_is_refused() {
    let one = || Response::Acked(vec![Ok(acked(1))]);
    let mail = r#"{"queue":"mail","data":"hello"}"#;
    let octets: &[_] = &[("content-type", "application/octet-stream")];
    let failed = |code| Response::Acked(vec![Err(error(code).about(id(1)))]);
    compare(
        "tasks.txt",
        vec![
            exchange("POST /v1/tasks", mail, [one()]),
            exchange("POST /v1/tasks?acks=one", mail, [Response::Acked(vec![Ok(sloppy(1))])]),
            exchange(
                "POST /v1/tasks",
                r#"[{"queue":"mail"},{"queue":"mail"}]"#,
                [Response::Acked(vec![Ok(acked(1)), Err(error(ErrorCode::Conflict).about(id(2)))])],
            ),
            exchange(
                "POST /v1/tasks",
                r#"[{"queue":"mail","join":{"total":1}},{"queue":"mail","number":1}]"#,
                [Response::Acked(vec![Ok(acked(1)), Ok(acked(2))])],
            ),
            exchange("POST /v1/tasks?queue=mail&priority=5&delay_ms=1500&header=trace=7", "hello", [one()])
                .with(octets),
            exchange(
                "POST /v1/tasks?unique=true",
                r#"{"queue":"mail","key":"k"}"#,
                [Response::AckedUnique { acked: acked(1), existing: false }],
            ),
            exchange(
                "POST /v1/tasks?unique=true",
                r#"{"queue":"mail","key":"k"}"#,
                [Response::AckedUnique { acked: acked(1), existing: true }],
            ),
            exchange(
                "POST /v1/tasks?must_exist=true",
                r#"{"queue":"mail","after":["000038rrbh800000000g0000003g0009"]}"#,
                [Response::Error(error(ErrorCode::NotFound))],
            ),
            exchange("POST /v1/tasks", r#"{"queue":"mail","dely":"10s"}"#, []),
            exchange("POST /v1/tasks", r#"[{"queue":"mail"},{"queue":"mail","priority":"high"}]"#, []),
            exchange("POST /v1/tasks", "[]", []),
            exchange("POST /v1/tasks", r#"{"queue":"mail","number":1}"#, []),
            exchange("POST /v1/tasks?unique=true", mail, []),
            exchange("POST /v1/tasks?unique=true", r#"[{"queue":"mail","key":"k"}]"#, []),
            exchange("POST /v1/tasks?unique=true&acks=all", r#"{"queue":"mail","key":"k"}"#, []),
            exchange("POST /v1/tasks?must_exist=true", mail, []),
            exchange("POST /v1/tasks?queue=mail", mail, []),
            exchange("POST /v1/tasks?color=red", mail, []),
            exchange("POST /v1/tasks?acks=most", mail, []),
            exchange("POST /v1/tasks", "hello", []).with(octets),
            exchange("POST /v1/tasks?queue=mail&header=trace", "hello", []).with(octets),
            exchange("POST /v1/tasks?queue=mail&header=a=1&header=a=2", "hello", []).with(octets),
            exchange("POST /v1/tasks", "hello", []).with(&[("content-type", "text/plain")]),
            exchange("POST /v1/tasks", mail, []).with(&[("idempotency-key", "7")]),
            exchange("POST /v1/tasks", mail, [failed(ErrorCode::TooOld)]),
            exchange("POST /v1/tasks", mail, [failed(ErrorCode::Denied)]),
            exchange("POST /v1/tasks", mail, (0..99).map(|_| Response::Error(error(ErrorCode::Overloaded)))),
            Exchange { answers: vec![None; 9], ..exchange("POST /v1/tasks", mail, []) },
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009", mail, [one()]),
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009", mail, [failed(ErrorCode::Conflict)]),
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009", "[]", []),
            exchange("PUT /v1/tasks/abc", mail, []),
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009?unique=true", mail, []),
            exchange("GET /v1/ids?count=2", "", []),
            exchange("GET /v1/ids?count=0", "", []),
            exchange("GET /v1/ids?count=1001", "", []),
            exchange("PATCH /v1/tasks", "", []),
            exchange("GET /v1/nothing", "", []),
        ],
    )
    .await;
}

#[test]
fn the_id_of_the_transcripts_is_that_of_the_first_task() {
    assert_eq!(id(1).to_string(), ONE);
}

#[tokio::test]
async fn tasks_are_read_listed_cancelled_and_purged() {
    let ready = || told(1, State::Ready);
    let page = |numbers: &[u32], next| {
        let tasks = numbers.iter().map(|number| task(*number, State::Ready)).collect();
        Response::Page(Page { tasks, next })
    };
    let gone = || Response::Error(error(ErrorCode::NotFound));
    let lines: &[_] = &[("accept", "application/x-ndjson")];
    compare(
        "reads.txt",
        vec![
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009?min_seq=1", "", [ready()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009", "", [gone()]),
            exchange(
                "GET /v1/tasks/000038rrbh800000000g0000003g0009?min_seq=9",
                "",
                [Response::Error(error(ErrorCode::Stale))],
            ),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/data", "", [ready()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/result", "", [told(1, State::Done)]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/result", "", [ready()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/log", "", [ready()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/why", "", [told(1, State::Done)]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/why", "", [gone()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/wait?timeout_ms=5", "", [ready()]),
            exchange("GET /v1/tasks/000038rrbh800000000g0000003g0009/wait?timeout_ms=x", "", []),
            exchange(
                "GET /v1/tasks?id=000038rrbh800000000g0000003g0009,000038rrbh800000000g0000003g0009",
                "",
                [ready(), gone()],
            ),
            exchange("GET /v1/tasks?id=000038rrbh800000000g0000003g0009&queue=mail", "", []),
            exchange("GET /v1/tasks?id=abc", "", []),
            exchange("GET /v1/tasks?queue=mail&state=ready&limit=1", "", [page(&[1], Some(id(1)))]),
            exchange("GET /v1/tasks?queue=mail&key=other", "", [page(&[1], Some(id(1))), page(&[2], None)]),
            exchange("GET /v1/tasks?limit=0", "", []),
            exchange("GET /v1/tasks?limit=1001", "", []),
            exchange("GET /v1/tasks?state=lost", "", []),
            exchange("GET /v1/tasks?min_seq=1", "", []),
            exchange("GET /v1/tasks", "", [page(&[1], Some(id(1))), page(&[2], None)]).with(lines),
            exchange("GET /v1/tasks", "", [page(&[1], Some(id(1))), Response::Error(error(ErrorCode::Denied))])
                .with(lines),
            exchange("GET /v1/tasks", "", [Response::Error(error(ErrorCode::Denied))]).with(lines),
            exchange("GET /v1/count?queue=mail&state=ready", "", [Response::Count(4)]),
            exchange("GET /v1/count?queue=", "", []),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel",
                r#"{"reason":"withdrawn"}"#,
                [ready(), Response::AckedOne(acked(1)), told(1, State::Cancelled)],
            ),
            exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", "", [told(1, State::Cancelled)]),
            exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", "", [told(1, State::Done)]),
            exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/cancel", r#"{"why":"x"}"#, []),
            exchange("DELETE /v1/tasks/000038rrbh800000000g0000003g0009", "", [Response::AckedOne(acked(1))]),
            exchange(
                "DELETE /v1/tasks/000038rrbh800000000g0000003g0009",
                "",
                [Response::Error(error(ErrorCode::Invalid))],
            ),
        ],
    )
    .await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of exchanges")]
async fn claims_are_granted_and_end() {
    let mail = r#"{"queues":["mail"]}"#;
    let done = || Response::Acked(vec![Ok(acked(1))]);
    let over = |code| Response::Acked(vec![Err(error(code).about(id(1)))]);
    compare(
        "claims.txt",
        vec![
            exchange("POST /v1/claims", mail, [claimed(vec![granted()], 0)]),
            exchange("POST /v1/claims", mail, [claimed(Vec::new(), 0)]),
            exchange("POST /v1/claims", mail, [claimed(Vec::new(), 3)]),
            exchange("POST /v1/claims", r#"{"queues":[]}"#, []),
            exchange("POST /v1/claims", r#"{"queues":["mail"],"max":0}"#, []),
            exchange("POST /v1/claims", r#"{"queues":["mail"],"wait":5}"#, []),
            exchange("POST /v1/claims", mail, []).with(&[("idempotency-key", "")]),
            exchange("POST /v1/claims", mail, [claimed(vec![granted()], 0)]).with(&[("idempotency-key", "7")]),
            exchange("POST /v1/claims", mail, [Response::Error(error(ErrorCode::Denied))]),
            exchange(
                "POST /v1/claims/renew",
                concat!(
                    r#"{"items":[{"id":"000038rrbh800000000g0000003g0009","token":"2.1"},"#,
                    r#"{"id":"000038rrbh800000000g0000003g0009","token":"1.1"}]}"#
                ),
                [Response::Renewed(vec![Ok(60_000), Err(error(ErrorCode::Superseded))])],
            ),
            exchange("POST /v1/claims/renew", r#"{"items":[{"id":"x","token":"2.1"}]}"#, []),
            exchange(
                "POST /v1/claims/complete",
                r#"{"items":[{"id":"000038rrbh800000000g0000003g0009","token":"2.1","result":"sent"}]}"#,
                [done()],
            ),
            exchange("POST /v1/claims/complete", r#"{"items":[]}"#, []),
            exchange(
                "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0",
                r#"{"data":"half"}"#,
                [Response::AckedOne(acked(1))],
            ),
            exchange(
                "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0?acks=one",
                r#"{"data":"half"}"#,
                [Response::AckedOne(sloppy(1))],
            ),
            exchange(
                "PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/0",
                r#"{"data":"half"}"#,
                [Response::Error(error(ErrorCode::Conflict))],
            ),
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/1000", r#"{"data":"half"}"#, []),
            exchange("PUT /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/log/x", r#"{"data":"half"}"#, []),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/renew",
                r#"{"lease_ms":60000}"#,
                [Response::Renewed(vec![Ok(60_000)])],
            ),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/renew",
                "",
                [Response::Renewed(vec![Err(error(ErrorCode::Superseded))])],
            ),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete",
                r#"{"result":"sent","then":[{"queue":"stock","data":"7"}]}"#,
                [done()],
            ),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete",
                "",
                [over(ErrorCode::Ended)],
            ),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/complete",
                "",
                [over(ErrorCode::Superseded)],
            ),
            exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/21/complete", "", []),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/fail",
                r#"{"reason":"no route"}"#,
                [Response::Done],
            ),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/fail",
                r#"{"invalid":true,"retry_in_ms":5}"#,
                [],
            ),
            exchange("POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/release", "", [Response::Done]),
            exchange(
                "POST /v1/tasks/000038rrbh800000000g0000003g0009/claims/2.1/release",
                "",
                [Response::Error(error(ErrorCode::Superseded))],
            ),
        ],
    )
    .await;
}

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
async fn a_put_asks_for_the_same_however_often_it_is_repeated() {
    let door = Door::new(Script::new(|request| match request {
        Request::Enqueue { tasks, .. } => Some(Response::Acked(vec![Ok(Acked { id: tasks[0].id, ..acked(1) })])),
        _ => None,
    }));
    for _ in 0..2 {
        let body = r#"{"queue":"mail","key":"k","delay":"1500ms"}"#;
        let request = HttpRequest::put(format!("/v1/tasks/{ONE}")).body(Body::from(body)).unwrap();
        assert_eq!(door.begin(request).await.status(), 201);
    }
    let asked = door.asked();
    assert_eq!(asked[0], asked[1]);
    let Request::Enqueue { tasks, .. } = &asked[0] else { panic!("{asked:?}") };
    assert_eq!(tasks[0].id, id(1).with_tag(tasks[0].spec.tag().unwrap()));
    assert_eq!(tasks[0].spec.not_before_ms, id(1).time_ms() + 1_500);
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
