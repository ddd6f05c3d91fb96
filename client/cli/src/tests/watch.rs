//! Tests of `watch`.

use super::*;
use norn_wire::group::GroupView;
use norn_wire::watch::WatchPlace;
use norn_wire::{Subject, WatchCursor, WatchEvent, Watched};

fn cursor(number: u64) -> WatchCursor {
    WatchCursor { places: vec![WatchPlace { node: NodeId(1), start: 1, number, whole: vec![1].into() }] }
}

fn event(number: u32, state: State) -> WatchEvent {
    WatchEvent { id: id(number), queue: queue("mail"), state, number: None, result: None, reason: None }
}

fn watched(number: u64, events: Vec<WatchEvent>) -> Result<Response, Error> {
    Ok(Response::Watched(Watched { events, cursor: cursor(number), lagged: false, silent: 0 }))
}

fn requests(outcome: &Outcome) -> Vec<Request> {
    let request = |(call, _): &(Call, Option<Duration>)| match call {
        Call::Request(request) => request.clone(),
        other => panic!("{other:?}"),
    };
    outcome.calls.iter().map(request).collect()
}

#[tokio::test]
async fn each_event_is_a_line_and_each_call_goes_on_behind_the_last() {
    let done = WatchEvent { result: Some(b"sent".to_vec().into()), ..event(1, State::Done) };
    let lagged = Watched { events: Vec::new(), cursor: cursor(3), lagged: true, silent: 2 };
    let dead = WatchEvent { reason: Some("bad".into()), number: Some(3), ..event(2, State::Dead) };
    let answers = || {
        let lagged = Ok(Response::Watched(lagged.clone()));
        [watched(1, Vec::new()), watched(2, vec![done.clone()]), lagged, watched(4, vec![dead.clone()])]
    };
    let outcome = run("watch mail --limit 2 --json", answers()).await;
    let expected = format!(
        "{{\"watch\":\"begun\"}}\n\
         {{\"id\":\"{}\",\"queue\":\"mail\",\"state\":\"done\",\"number\":null,\
         \"result\":\"sent\",\"result_encoding\":\"utf8\",\"reason\":null}}\n\
         {{\"watch\":\"lagged\"}}\n{{\"watch\":\"silent\",\"partitions\":2}}\n{{\"watch\":\"silent\",\"partitions\":0}}\n",
        id(1)
    );
    assert!(outcome.printed.starts_with(expected.trim_end().rsplit_once('\n').unwrap().0), "{}", outcome.printed);
    assert_eq!((outcome.exit, outcome.printed.lines().count()), (Exit::Done, 5));
    let cursors = requests(&outcome).into_iter().map(|request| match request {
        Request::Watch { subject: Subject::Queue(mail), cursor, .. } if mail == queue("mail") => cursor,
        other => panic!("{other:?}"),
    });
    assert_eq!(cursors.collect::<Vec<_>>(), [None, Some(cursor(1)), Some(cursor(2)), Some(cursor(3))]);

    let outcome = run("watch mail --limit 2", answers()).await;
    let expected = format!("{}  mail  done  sent\n{}  mail  dead  member 3  bad\n", id(1), id(2));
    assert_eq!(outcome.printed, expected);
    assert!(outcome.noted.contains("watching") && outcome.noted.contains("lagged"), "{}", outcome.noted);
}

#[tokio::test]
async fn a_group_is_watched_until_its_join_has_ended() {
    let join = |state| {
        let group = Some(GroupView { total: Some(1), ended: 0, failed: 0 });
        Ok(Response::Task(Box::new(TaskView { group, ..bare_task(9, state) })))
    };
    let open = join(State::Waiting);
    let answers = [watched(1, Vec::new()), open, watched(2, vec![event(1, State::Done), event(9, State::Done)])];
    let outcome = run(&format!("watch --group {}", id(9)), answers).await;
    assert_eq!((outcome.exit, outcome.calls.len(), outcome.printed.lines().count()), (Exit::Done, 3, 2));
    assert!(matches!(&requests(&outcome)[0], Request::Watch { subject: Subject::Group(group), .. } if *group == id(9)));
    let outcome = run(&format!("watch --group {}", id(9)), [watched(1, Vec::new()), join(State::Done)]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 2));
    assert!(outcome.noted.contains("ended already"), "{}", outcome.noted);
}

/// Goal: a watch of a task that is no join is refused, because it would show nothing for ever; a join may be enqueued later.
#[tokio::test]
async fn only_a_join_is_watched_as_a_group() {
    let line = format!("watch --group {} --limit 1", id(9));
    let other = Ok(Response::Task(Box::new(bare_task(9, State::Ready))));
    let outcome = run(&line, [watched(1, Vec::new()), other]).await;
    assert_eq!((outcome.exit, outcome.printed.as_str()), (Exit::Refused, ""));
    assert!(outcome.noted.contains("the task is no join of a group"), "{}", outcome.noted);
    let absent = Err(Error::new(ErrorCode::NotFound, "no such task"));
    let outcome = run(&line, [watched(1, Vec::new()), absent, watched(2, vec![event(1, State::Done)])]).await;
    assert!(outcome.noted.contains("watching"), "{}", outcome.noted);
}

#[tokio::test]
async fn a_watch_goes_on_after_what_passes_and_ends_when_its_time_is_over() {
    let away = || Err(Error::unavailable("nobody is there"));
    let answers = [watched(1, Vec::new()), away(), away(), watched(2, vec![event(1, State::Ready)])];
    let outcome = run("watch mail --limit 1", answers).await;
    assert_eq!((outcome.exit, outcome.noted.matches("trying again").count()), (Exit::Done, 1));
    let answers = [watched(1, Vec::new()), away(), away(), away()];
    let outcome = run("watch mail --timeout 2500ms", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    assert!(outcome.calls.len() <= 4, "a pause goes before each repeat: {:?}", outcome.calls);
    let outcome = run("watch mail", [Err(Error::invalid("no"))]).await;
    assert_eq!(outcome.exit, Exit::Refused);
}

#[tokio::test]
async fn a_watch_is_of_one_thing_and_ends_where_more_is_to_be_read() {
    for line in ["watch", "watch mail --group 0000"] {
        assert_eq!(run(line, []).await.exit, Exit::Usage, "{line}");
    }
    let outcome = run_at(Place::Script, "watch mail", b"", []).await;
    assert_eq!(outcome.exit, Exit::Usage);
    assert!(outcome.noted.contains("--limit"), "{}", outcome.noted);
}
