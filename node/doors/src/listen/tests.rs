//! The listener over sockets and pipes, before a scripted node.

mod tls;

use super::*;
use crate::access::Access;
use crate::gate::WAIT_PIECE_MS;
use crate::request::router;
use crate::state::Bounds;
use crate::testing::{Door as Scripted, Reply, Script};
use norn_wire::watch::{WatchEvent, Watched};
use norn_wire::{QueueName, Request as Call, Response as Answer, State, TaskId, WatchCursor};
use std::future::Future;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Most of what a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// A time limit that a test waits for.
const SOON: Duration = Duration::from_millis(50);
/// A time limit before which a test has to see something.
const LATER: Duration = Duration::from_secs(1);
/// A time limit that no test waits for.
const NEVER: Duration = Duration::from_secs(3_600);

/// A door on this machine before a scripted node.
struct Open {
    scripted: Scripted,
    doors: Doors,
}

impl Open {
    async fn new(bounds: Bounds, script: Script) -> Open {
        Open::with(bounds, None, script).await
    }

    async fn with(bounds: Bounds, tls: Option<Tls>, script: Script) -> Open {
        let scripted = Scripted::with(bounds, Access::default(), script);
        let state = Arc::clone(&scripted.state);
        let routes = router(&state);
        let doors = Doors::open("127.0.0.1:0", tls, state, routes).await.unwrap();
        Open { scripted, doors }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.doors.address()).await.unwrap()
    }

    /// Connects and sends this.
    async fn say(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Requests under way.
    fn requests(&self) -> usize {
        let state = &self.scripted.state;
        state.bounds.requests_max - state.requests.available_permits()
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    in_time(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// All that the other end says until it closes.
async fn all_of(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    in_time("the connection ends", stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads until an answer is there with its body, whose length stands in its head.
async fn answer_of(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let (mut text, mut chunk) = (String::new(), [0; 1 << 10]);
    loop {
        let length = in_time("an answer", stream.read(&mut chunk)).await.unwrap();
        assert!(length > 0, "it ended amid {text:?}");
        text.push_str(std::str::from_utf8(&chunk[..length]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse().unwrap() {
            return text;
        }
    }
}

/// A node that keeps all that wait waiting.
fn silent() -> Script {
    let begun = Watched { events: Vec::new(), cursor: WatchCursor { places: Vec::new() }, lagged: false, silent: 0 };
    Script::new(move |request| match request {
        Call::Watch { wait_ms: 0, .. } => Reply::Answer(Answer::Watched(begun.clone())),
        _ => Reply::Silence,
    })
}

#[tokio::test]
async fn headers_that_do_not_end_in_time_end_the_connection() {
    let open = Open::new(Bounds { head_timeout: SOON, ..Bounds::default() }, Script::default()).await;
    for begun in ["", "GET / HTTP/1.1\r\nhost: loc"] {
        assert_eq!(all_of(&mut open.say(begun).await).await, "", "{begun:?}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_end_in_time_is_refused() {
    let open = Open::new(Bounds { body_timeout: SOON, ..Bounds::default() }, Script::default()).await;
    let head = "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    let answer = all_of(&mut open.say(head).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"code\":\"slow\""), "{answer}");
}

#[tokio::test]
async fn a_connection_without_a_request_ends_in_time() {
    let open = Open::new(Bounds { idle_timeout: SOON, ..Bounds::default() }, Script::default()).await;
    let answer = all_of(&mut open.say(&get("/startupz")).await).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("started\n"), "{answer}");
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_order() {
    let open = Open::new(Bounds::default(), Script::default()).await;
    let requests = [post("/v1/nothing", "{}"), get("/startupz"), get("/v1/docs")].concat();
    let mut stream =
        open.say(&format!("{requests}GET /startupz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")).await;
    stream.write_all(b"\r\n").await.unwrap();
    let answers = all_of(&mut stream).await;
    let statuses = answers.split("HTTP/1.1 ").skip(1).map(|answer| answer.get(..3).unwrap());
    assert_eq!(statuses.collect::<Vec<_>>(), ["404", "200", "200", "200"], "{answers}");
}

/// Connections that a test may open: each takes two files of this process.
fn connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = files.and_then(|numbers| numbers.split_whitespace().next()).and_then(|number| number.parse().ok());
    files.map_or(200, |files: usize| (files / 4).min(2_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_very_many_connections_a_bounded_number_is_served_and_the_others_learn_why_not() {
    let (served_max, all) = (64, connections());
    let bounds = Bounds { connections_max: served_max, idle_timeout: NEVER, head_timeout: NEVER, ..Bounds::default() };
    let open = Arc::new(Open::new(bounds, Script::default()).await);
    let mut asking = JoinSet::new();
    for _ in 0..all {
        let open = Arc::clone(&open);
        asking.spawn(async move {
            let mut stream = open.say(&get("/startupz")).await;
            let answer = answer_of(&mut stream).await;
            let served = answer.starts_with("HTTP/1.1 200 ").then_some(stream);
            (answer, served)
        });
    }
    // Those that are served stay, so that no other takes their places.
    let answers = in_time("all are answered", asking.join_all()).await;
    let (served, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(_, served)| served.is_some());
    assert_eq!(served.len(), served_max);
    for (answer, _) in refused {
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"));
        assert!(answer.contains("\"code\":\"overloaded\"") && answer.contains("too many connections"), "{answer}");
    }
    drop(answers);
    let again =
        async { while !answer_of(&mut open.say(&get("/startupz")).await).await.starts_with("HTTP/1.1 200 ") {} };
    in_time("the places are free again", again).await;
}

#[tokio::test]
async fn a_refused_client_reads_the_reason_whatever_it_has_sent() {
    let open = Open::new(Bounds { connections_max: 1, ..Bounds::default() }, Script::default()).await;
    let _first = open.say(&get("/startupz")).await;
    until("it is served", || open.scripted.state.meters.accepted() == 1).await;
    let mut refused = open.say(&post("/v1/tasks", &"x".repeat(100 << 10))).await;
    assert!(all_of(&mut refused).await.starts_with("HTTP/1.1 503 "));
}

#[tokio::test]
async fn a_caller_that_hangs_up_frees_its_place_whatever_it_has_sent_ahead() {
    let id = "000038fxj5g21b4sg6y000800g17ne5m";
    let claim = post("/v1/claims", r#"{"queues":["mail"],"wait_ms":300000}"#);
    let waits = [claim, get(&format!("/v1/tasks/{id}/wait?timeout_ms=300000")), get("/v1/watch?queue=mail")];
    let open = Open::new(Bounds::default(), silent()).await;
    for (wait, ahead) in
        waits.iter().flat_map(|wait| ["", "GET /start", "GET /startupz HTTP/1.1\r\n\r\n"].map(|ahead| (wait, ahead)))
    {
        let seen = open.scripted.seen().len();
        let stream = open.say(&format!("{wait}{ahead}")).await;
        until("the node is asked", || open.scripted.seen().len() > seen).await;
        assert_eq!(open.requests(), 1, "{wait}");
        let waits_ms = open.scripted.seen().last().map(|call| match call {
            Call::Wait { timeout_ms, .. } => *timeout_ms,
            Call::Watch { wait_ms, .. } => *wait_ms,
            // The session takes a claim back.
            _ => 0,
        });
        assert!(waits_ms <= Some(WAIT_PIECE_MS), "a place at the node is held for {waits_ms:?}");
        drop(stream);
        until(&format!("{wait}{ahead}: the place is free"), || open.requests() == 0).await;
    }
}

#[tokio::test]
async fn a_caller_with_a_body_of_unknown_length_that_hangs_up_frees_its_place_as_well() {
    let open = Open::new(Bounds::default(), silent()).await;
    let body = r#"{"queues":["mail"],"wait_ms":300000}"#;
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = open.say(&format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
    until("the node is asked", || !open.scripted.seen().is_empty()).await;
    stream.write_all(b"GET /start").await.unwrap();
    drop(stream);
    until("the place is free", || open.requests() == 0).await;
}

#[tokio::test]
async fn a_wait_of_days_is_refused() {
    let door = Scripted::new(silent());
    let id = "000038fxj5g21b4sg6y000800g17ne5m";
    let wait = door.get(&format!("/v1/tasks/{id}/wait?timeout_ms=3600001")).await;
    let claim = door.call(axum::http::Method::POST, "/v1/claims", r#"{"queues":["mail"],"wait_ms":3600001}"#).await;
    for answer in [wait, claim] {
        assert_eq!((answer.status, answer.json()["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalid")));
        assert!(answer.body.contains("an hour"), "{}", answer.body);
    }
    assert!(door.seen().is_empty(), "the node is not asked");
}

#[tokio::test]
async fn a_body_takes_memory_as_it_comes_and_until_its_request_is_answered() {
    let open = Open::new(Bounds::default(), silent()).await;
    let budget = &open.scripted.state.bodies;
    let whole = budget.available_permits();
    let head = format!("POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 8 << 20);
    let slow = open.say(&format!("{head}{{")).await;
    until("it takes memory", || budget.available_permits() < whole).await;
    assert!(whole - budget.available_permits() <= 64, "{}", budget.available_permits());
    drop(slow);
    until("it has gone", || budget.available_permits() == whole).await;
    for (queues, takes) in [(1, 0), (64, 4)] {
        let seen = open.scripted.seen().len();
        let names: Vec<String> = (0..queues).map(|number| format!("\"mail/queue{number}\"")).collect();
        let claim = format!("{{\"queues\":[{}],\"wait_ms\":300000}}", names.join(","));
        let claim = open.say(&post("/v1/claims", &claim)).await;
        until("the node is asked", || open.scripted.seen().len() > seen).await;
        assert_eq!(whole - budget.available_permits(), takes, "what was parsed of {queues} is there");
        drop(claim);
        until("it has gone", || budget.available_permits() == whole).await;
    }
}

/// A node whose watches never run out of events.
fn busy() -> Script {
    let mut number = 0;
    Script::new(move |_| {
        number += 1;
        let id = TaskId::new(1_700_000_000_000, number, 7, 3);
        let queue = QueueName::new("mail").unwrap();
        let event = WatchEvent { id, queue, state: State::Ready, number: None, result: None, reason: None };
        let events = if number == 1 { Vec::new() } else { vec![event; 1_000] };
        Answer::Watched(Watched { events, cursor: WatchCursor { places: Vec::new() }, lagged: false, silent: 0 })
    })
}

#[tokio::test]
async fn a_stream_of_which_nothing_is_taken_is_cut() {
    let open = Open::new(Bounds { idle_timeout: LATER, ..Bounds::default() }, busy()).await;
    let _unread = open.say(&get("/v1/watch?queue=mail")).await;
    until("it is under way", || open.requests() == 1).await;
    until("it is cut", || open.requests() == 0).await;
}

#[tokio::test]
async fn a_door_that_closes_answers_what_waits_and_ends_what_streams() {
    let claim = post("/v1/claims", r#"{"queues":["mail"],"wait_ms":300000}"#);
    let watch = get("/v1/watch?queue=mail");
    for (script, request, last) in [
        (silent(), &claim, "{\"tasks\":[],\"unavailable\":0}"),
        (silent(), &watch, "data: {\"watch\":\"bye\"}\n\n\r\n0\r\n\r\n"),
        (busy(), &watch, "data: {\"watch\":\"bye\"}\n\n\r\n0\r\n\r\n"),
    ] {
        let bounds = Bounds { drain_timeout: NEVER, head_timeout: NEVER, idle_timeout: NEVER, ..Bounds::default() };
        let open = Open::new(bounds, script).await;
        let _idle = [open.connect().await, open.say("GET /start").await, open.say(&get("/startupz")).await];
        until("these are there", || open.scripted.state.meters.connections.get() == 3).await;
        let mut caller = open.say(request).await;
        until("the node is asked", || !open.scripted.seen().is_empty()).await;
        let reading = tokio::spawn(async move { all_of(&mut caller).await });
        open.scripted.drain();
        in_time("the door closes", open.doors.close()).await;
        let text = reading.await.unwrap();
        assert!(text.ends_with(last), "{}", &text[text.len().saturating_sub(200)..]);
    }
}

#[tokio::test]
async fn plain_text_that_may_not_be_takes_no_place() {
    let scripted = Scripted::with(Bounds::default(), Access::default(), Script::default());
    let (_stop, stopped) = watch::channel(false);
    let door = Door::new(Arc::clone(&scripted.state), router(&scripted.state), None, stopped);
    let places = Arc::new(Semaphore::new(1));
    let (turned, why) = door.admit(&places, "10.0.0.7:5".parse().unwrap()).unwrap_err();
    assert_eq!((turned, why.status()), (Turned::Plain, StatusCode::FORBIDDEN));
    let local = "127.0.0.1:5".parse().unwrap();
    let _place = door.admit(&places, local).unwrap();
    let (turned, why) = door.admit(&places, local).unwrap_err();
    assert_eq!((turned, why.status()), (Turned::TooMany, StatusCode::SERVICE_UNAVAILABLE));
}

#[tokio::test]
async fn a_connection_is_asked_whether_its_other_end_is_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    ready(&stream);
    assert!(stream.nodelay().unwrap() && SockRef::from(&stream).keepalive().unwrap());
}

/// A door over HTTP/2 without TLS, and a client of it with windows of this size.
async fn over_http2(scripted: &Scripted, window: u32) -> h2::client::SendRequest<bytes::Bytes> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (state, (_stop, stopped)) = (Arc::clone(&scripted.state), watch::channel(false));
    let routes = router(&state);
    let peer = Peer::plain(&state.access, "127.0.0.1:5".parse().unwrap()).unwrap();
    tokio::spawn(async move {
        // The door serves for as long as its stop may come.
        let _stop = _stop;
        Door::new(state, routes, None, stopped).serve_http2(far, peer).await;
    });
    let (client, connection) = h2::client::Builder::new().initial_window_size(window).handshake(near).await.unwrap();
    tokio::spawn(connection);
    client
}

fn asked(path: &str) -> Request<()> {
    Request::get(format!("http://localhost{path}")).body(()).unwrap()
}

#[tokio::test]
async fn over_http2_an_answer_of_which_nothing_is_taken_is_cut_and_the_others_go_on() {
    let scripted = Scripted::with(Bounds { idle_timeout: LATER, ..Bounds::default() }, Access::default(), silent());
    let under_way = || scripted.state.bounds.requests_max - scripted.state.requests.available_permits();
    let mut client = over_http2(&scripted, 1_000).await.ready().await.unwrap();
    let (waiting, _) = client.send_request(asked("/v1/tasks/000038fxj5g21b4sg6y000800g17ne5m/wait"), true).unwrap();
    until("it waits", || scripted.seen().len() == 1).await;
    let (unread, _) = client.send_request(asked("/v1/openapi.json"), true).unwrap();
    let answer = in_time("it is answered", unread).await.unwrap();
    assert_eq!((answer.status(), under_way()), (StatusCode::OK, 2), "its answer is being sent");
    let mut body = answer.into_body();
    until("it is cut", || under_way() == 1).await;
    let end = in_time("the reader learns of it", async {
        loop {
            match body.data().await {
                Some(Ok(_)) => {}
                end => break end,
            }
        }
    });
    assert!(matches!(end.await, Some(Err(error)) if error.is_reset()));
    drop(waiting);
    until("the other has gone", || under_way() == 0).await;
}

#[tokio::test]
async fn over_http2_a_reader_gets_all_of_a_large_answer() {
    let scripted = Scripted::with(Bounds::default(), Access::default(), Script::default());
    let whole = scripted.get("/v1/openapi.json").await.body;
    assert!(whole.len() > 2 * PIECE_BYTES);
    let mut client = over_http2(&scripted, 1_000).await.ready().await.unwrap();
    let (answer, _) = client.send_request(asked("/v1/openapi.json"), true).unwrap();
    let mut body = in_time("it is answered", answer).await.unwrap().into_body();
    let mut read = Vec::new();
    while let Some(data) = in_time("more", body.data()).await {
        let data = data.unwrap();
        read.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    assert_eq!(read, whole.as_bytes());
    until("its place is free", || scripted.state.requests.available_permits() == Bounds::default().requests_max).await;
}
