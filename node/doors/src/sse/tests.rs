use crate::access::Access;
use crate::state::Bounds;
use crate::testing::{Door, Reply, Script};
use axum::body::{Body, BodyDataStream};
use axum::http::{Request as HttpRequest, StatusCode};
use futures_util::StreamExt;
use norn_client::api::watch_cursor_text;
use norn_wire::group::GroupView;
use norn_wire::response::TaskView;
use norn_wire::watch::{Subject, WatchCursor, WatchEvent, WatchPlace, Watched};
use norn_wire::{Error, ErrorCode, NodeId, QueueName, Request, Response, Spec, State as TaskState, TaskId};
use std::time::Duration;

fn cursor(number: u64) -> WatchCursor {
    WatchCursor { places: vec![WatchPlace { node: NodeId(1), start: 1, number, whole: vec![3].into() }] }
}

fn event(number: u32, state: TaskState) -> WatchEvent {
    let (id, queue) = (TaskId::new(1_700_000_000_000, number, 7, 3), QueueName::new("mail").unwrap());
    WatchEvent { id, queue, state, number: None, result: None, reason: None }
}

fn told(number: u64, events: Vec<WatchEvent>) -> Watched {
    Watched { events, cursor: cursor(number), lagged: false, silent: 0 }
}

/// A node whose watch gives these answers, each to the call with the cursor of the one before, and then stays silent.
fn node(answers: Vec<Watched>) -> Script {
    let mut answers = answers.into_iter();
    let mut last: Option<WatchCursor> = None;
    Script::new(move |request| match request {
        Request::Watch { cursor, .. } => {
            assert!(last.is_none() || cursor == last, "each call goes on where the last answer ended");
            match answers.next() {
                Some(answer) => {
                    last = Some(answer.cursor.clone());
                    Reply::Answer(Response::Watched(answer))
                }
                None => Reply::Silence,
            }
        }
        request => Error::new(ErrorCode::Unsupported, request.verb()).into(),
    })
}

async fn open(door: &Door, target: &str, last: Option<&str>) -> BodyDataStream {
    let request = HttpRequest::get(target);
    let request = last.into_iter().fold(request, |request, last| request.header("last-event-id", last));
    let response = door.begin(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert!(!response.headers().contains_key("content-encoding"));
    response.into_body().into_data_stream()
}

async fn chunk(stream: &mut BodyDataStream) -> String {
    let next = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
    let bytes = next.expect("something comes").expect("the stream goes on").unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn data(number: u32, state: &str) -> String {
    let id = TaskId::new(1_700_000_000_000, number, 7, 3);
    format!(
        "data: {{\"id\":\"{id}\",\"queue\":\"mail\",\"state\":\"{state}\",\"number\":null,\"result\":null,\
         \"result_encoding\":null,\"reason\":null}}\n\n"
    )
}

#[tokio::test]
async fn events_come_as_json_and_the_last_of_an_answer_has_the_place_to_go_on_from() {
    let silent = Watched { silent: 2, lagged: true, ..told(2, vec![event(3, TaskState::Dead)]) };
    let events = vec![event(1, TaskState::Ready), event(2, TaskState::Done)];
    let door = Door::new(node(vec![told(0, Vec::new()), told(1, events), silent]));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    let [begun, first, second] = [0, 1, 2].map(|number| watch_cursor_text(&cursor(number)));
    let text = chunk(&mut stream).await;
    assert_eq!(text, format!("retry: 1000\n\nid: {begun}\nevent: begun\ndata: {{\"watch\":\"begun\"}}\n\n"));
    let text = chunk(&mut stream).await;
    assert_eq!(text, format!("{}id: {first}\n{}", data(1, "ready"), data(2, "done")));
    let text = chunk(&mut stream).await;
    let lagged = "event: lagged\ndata: {\"watch\":\"lagged\"}\n\n";
    let silent = "event: silent\ndata: {\"watch\":\"silent\",\"partitions\":2}\n\n";
    assert_eq!(text, format!("{}{lagged}id: {second}\n{silent}", data(3, "dead")));
}

#[tokio::test]
async fn a_reader_that_comes_back_goes_on_behind_the_last_event_it_got() {
    let place = watch_cursor_text(&cursor(7));
    for (target, last) in [
        ("/v1/watch?queue=mail".to_owned(), Some(place.as_str())),
        (format!("/v1/watch?queue=mail&cursor={place}"), None),
    ] {
        let door = Door::new(node(vec![told(8, vec![event(1, TaskState::Done)])]));
        let mut stream = open(&door, &target, last).await;
        assert_eq!(chunk(&mut stream).await, "retry: 1000\n\n");
        let next = watch_cursor_text(&cursor(8));
        assert_eq!(chunk(&mut stream).await, format!("id: {next}\n{}", data(1, "done")));
        let Some(Request::Watch { cursor: Some(asked), subject: Subject::Queue(queue), .. }) =
            door.seen().into_iter().next()
        else {
            panic!("{:?}", door.seen())
        };
        assert_eq!((asked, queue.as_str()), (cursor(7), "mail"));
    }
}

#[tokio::test]
async fn a_place_that_another_node_kept_begins_the_watch_anew_and_says_so() {
    let door = Door::new(node(vec![told(0, Vec::new())]));
    let mut stream = open(&door, "/v1/watch?queue=mail", Some("~0123456789abcdef0123456789abcdef")).await;
    let text = chunk(&mut stream).await;
    let order = ["retry: 1000", "event: lagged", "event: begun"].map(|mark| text.find(mark).unwrap());
    assert!(order.is_sorted(), "{text}");
    assert!(matches!(door.seen()[..], [Request::Watch { cursor: None, .. }]));
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused_before_the_stream_begins() {
    let door = Door::new(node(vec![told(0, Vec::new())]));
    for (target, why) in [
        ("/v1/watch", "give `queue` or `group`"),
        ("/v1/watch?queue=mail&group=x", "exclude each other"),
        ("/v1/watch?group=x", "group"),
        ("/v1/watch?queue=a%20b", "queue"),
        ("/v1/watch?queue=mail&cursor=%25", "no cursor of a watch"),
        ("/v1/watch?queue=mail&color=red", "color"),
    ] {
        let answer = door.get(target).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{target}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(why), "{target}: {}", answer.body);
    }
    assert_eq!(door.state.streams.available_permits(), Bounds::default().streams_max);
    let request = HttpRequest::get("/v1/watch?queue=mail").header("last-event-id", "ended");
    assert_eq!(door.send(request.body(Body::empty()).unwrap()).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_stream_ends_with_a_word_when_the_node_is_about_to_stop() {
    let door = Door::new(node(vec![told(0, Vec::new())]));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    chunk(&mut stream).await;
    door.drain();
    assert_eq!(chunk(&mut stream).await, "event: bye\ndata: {\"watch\":\"bye\"}\n\n");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn more_streams_than_may_be_are_refused_and_one_that_ends_makes_room() {
    let bounds = Bounds { streams_max: 1, ..Bounds::default() };
    let answers = (0..2).map(|_| told(0, Vec::new())).collect();
    let door = Door::with(bounds, Access::default(), node(answers));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    let refused = door.get("/v1/watch?queue=mail").await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (StatusCode::TOO_MANY_REQUESTS, Some("overloaded")));
    assert_eq!(refused.header("retry-after"), "1");
    chunk(&mut stream).await;
    drop(stream);
    assert_eq!(door.state.streams.available_permits(), 1);
}

#[tokio::test]
async fn a_reader_that_hangs_up_leaves_no_watch() {
    let door = Door::new(node(vec![told(0, Vec::new())]));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    chunk(&mut stream).await;
    {
        // The call waits at the node.
        let mut waiting = Box::pin(stream.next());
        while door.seen().len() < 2 {
            let polled = tokio::time::timeout(Duration::from_millis(1), waiting.as_mut()).await;
            assert!(polled.is_err(), "nothing has happened");
        }
    }
    drop(stream);
    assert_eq!(door.state.streams.available_permits(), Bounds::default().streams_max);
    // Another request passes through the node after whatever the stream would have asked.
    door.get("/v1/queues").await;
    let watches = door.seen().iter().filter(|request| matches!(request, Request::Watch { .. })).count();
    assert_eq!(watches, 2, "no more is asked for it");
}

#[tokio::test]
async fn the_next_call_waits_until_the_reader_has_taken_what_came() {
    let many = |number: u64| told(number, (0..2_000).map(|task| event(task, TaskState::Ready)).collect());
    let door = Door::new(node(vec![told(0, Vec::new()), many(1), many(2)]));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    chunk(&mut stream).await;
    let mut events = 0;
    while events < 2_000 {
        let text = chunk(&mut stream).await;
        assert!(text.len() < super::CHUNK_BYTES + 1_000, "a chunk is bounded");
        events += text.matches("data: ").count();
        let asked = door.seen().len();
        assert_eq!(asked, 2, "after {events} of 2000 events");
    }
    assert!(chunk(&mut stream).await.contains("data: "));
    assert_eq!(door.seen().len(), 3);
}

#[tokio::test]
async fn a_failure_that_does_not_pass_ends_the_stream_with_its_error() {
    let mut calls = 0;
    let door = Door::new(Script::new(move |_| {
        calls += 1;
        match calls {
            1 => Reply::Answer(Response::Watched(told(0, Vec::new()))),
            _ => Error::new(ErrorCode::Denied, "no longer").into(),
        }
    }));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    chunk(&mut stream).await;
    let text = chunk(&mut stream).await;
    assert!(
        text.starts_with("event: failed\ndata: {\"error\":{\"code\":\"denied\",\"message\":\"no longer\""),
        "{text}"
    );
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_stream_that_is_never_out_of_events_ends_as_well_when_the_node_is_about_to_stop() {
    let mut number = 0;
    let door = Door::new(Script::new(move |_| {
        number += 1;
        let events = if number == 1 { Vec::new() } else { vec![event(number, TaskState::Ready)] };
        Response::Watched(told(number.into(), events))
    }));
    let mut stream = open(&door, "/v1/watch?queue=mail", None).await;
    chunk(&mut stream).await;
    assert!(chunk(&mut stream).await.contains("data: "));
    door.drain();
    assert_eq!(chunk(&mut stream).await, "event: bye\ndata: {\"watch\":\"bye\"}\n\n");
    assert!(stream.next().await.is_none());
}

/// The join of a watched group.
fn join() -> TaskId {
    TaskId::new(1_700_000_000_000, 9, 7, 3)
}

fn join_in(state: TaskState) -> Reply {
    let view = TaskView {
        id: join(),
        state,
        spec: Spec::new(QueueName::new("mail").unwrap(), b"sum".to_vec()),
        claims: Vec::new(),
        updates: Vec::new(),
        result: None,
        reason: None,
        log_incomplete: false,
        conflict: false,
        waits_for: Vec::new(),
        children: Vec::new(),
        children_open: false,
        redriven: Vec::new(),
        group: Some(GroupView { total: Some(2), ended: 2, failed: 0 }),
        version: None,
        ended_ms: None,
        next_attempt_ms: None,
        lost: None,
    };
    Reply::Answer(Response::Task(Box::new(view)))
}

const ENDED: &str = "id: ended\nevent: ended\ndata: {\"watch\":\"ended\"}\n\n";

#[tokio::test]
async fn the_end_of_a_group_that_was_missed_is_told_even_if_the_group_cannot_be_read_at_first() {
    let (mut watches, mut reads) = (0, 0);
    let script = Script::new(move |request| match request {
        Request::Watch { .. } => {
            watches += 1;
            match watches {
                1 => Reply::Answer(Response::Watched(told(0, Vec::new()))),
                2 => Reply::Answer(Response::Watched(Watched { lagged: true, ..told(1, Vec::new()) })),
                3 => Reply::Answer(Response::Watched(told(2, vec![event(5, TaskState::Done)]))),
                4 => Reply::Answer(Response::Watched(told(3, Vec::new()))),
                _ => Reply::Silence,
            }
        }
        _ => {
            reads += 1;
            match reads {
                1 => Error::new(ErrorCode::NotFound, "not yet").into(),
                2 => Reply::Silence,
                _ => join_in(TaskState::Done),
            }
        }
    });
    let bounds = Bounds { call_timeout: Duration::from_millis(50), ..Bounds::default() };
    let door = Door::with(bounds, Access::default(), script);
    let mut stream = open(&door, &format!("/v1/watch?group={}", join()), None).await;
    let mut text = String::new();
    while let Some(bytes) = tokio::time::timeout(Duration::from_secs(60), stream.next()).await.expect("it ends") {
        text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
    }
    assert!(text.contains("event: lagged") && text.contains("trying again"), "{text}");
    assert!(text.contains(&data(5, "done")), "what came before the end is told: {text}");
    assert!(text.ends_with(ENDED), "{text}");
}

#[tokio::test]
async fn a_reader_that_comes_back_after_the_last_event_of_a_group_is_told_of_its_end() {
    let script = Script::new(|request| match request {
        Request::Watch { wait_ms: 0, .. } => Reply::Answer(Response::Watched(told(8, Vec::new()))),
        Request::Watch { .. } => Reply::Silence,
        _ => join_in(TaskState::Done),
    });
    let door = Door::new(script);
    let mut stream = open(&door, &format!("/v1/watch?group={}", join()), Some(&watch_cursor_text(&cursor(8)))).await;
    assert_eq!(chunk(&mut stream).await, "retry: 1000\n\n");
    assert_eq!(chunk(&mut stream).await, ENDED);
    assert!(stream.next().await.is_none());
}
