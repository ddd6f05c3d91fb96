//! Endings of tasks: completed, failed, invalid, cancelled; and what follows.

use super::Host;
use super::scene::{CLOCKS, LONG, Scene, millis};
use norn_client::session::{Draft, Finish};
use norn_wire::membership::{Backoff, Mode, QueueSetting};
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Rejected, State};
use norn_wire::{ErrorCode, Granted, Response, TaskId};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(2);

// S22, O16, S5: and the task is not granted again
pub(super) async fn a_completion_is_repeated_without_effect<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let claim = scene.take(0, "mail").await;
    scene.complete(0, &claim, "sent").await;
    scene.complete(1, &claim, "sent").await;
    scene.nothing("mail").await;
    let view = scene.get(2, id).await;
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
    assert!(!view.conflict && view.claims.iter().filter(|claim| claim.completed_ms.is_some()).count() == 1);
    assert_eq!(scene.over(0, id, claim.token).await, ErrorCode::Ended);
    scene.cancel(1, id).await;
    assert_eq!(scene.get(0, id).await.state, State::Done, "what is done is not cancelled");
}

// S1, S54: completions merge. The one of the latest claim counts, and all are shown
pub(super) async fn whoever_claimed_a_task_may_complete_it<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let first = scene.take_for(0, "mail", SHORT).await;
    let second = scene.take(1, "mail").await;
    scene.complete(0, &first, "by the first").await;
    let view = scene.get(2, id).await;
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"by the first"[..])));
    scene.complete(1, &second, "by the second").await;
    let view = scene.get(2, id).await;
    assert_eq!(view.result.as_deref().map(Vec::as_slice), Some(&b"by the second"[..]));
    for token in [first.token, second.token] {
        let claim = view.claims.iter().find(|claim| claim.token == token).expect("it is shown");
        assert!(claim.completed_ms.is_some(), "{claim:?}");
    }
}

// T20, T23, C2, C3, C15, C16: a worker that lost the task gets a refusal, and its result is kept
pub(super) async fn the_latest_holder_alone_completes_where_the_queue_says_so<H: Host>(scene: Scene<H>) {
    scene.set("mail", QueueSetting::Mode(Mode::Holder)).await;
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let first = scene.take_for(0, "mail", SHORT).await;
    let second = scene.take(1, "mail").await;
    let ids = scene.neighbours(2).await;
    let bringing = |claim: &Granted, result: &str, id: TaskId| {
        let children = vec![Draft::new(scene.queue("next"), result).id(id)];
        let mut finish = Finish { children, ..Scene::<H>::finish(claim, result) };
        // Repeats of a completion with children must have the same time.
        finish.completion.at_ms = claim.id.time_ms() + 1;
        finish
    };
    let late = scene.try_complete(0, bringing(&first, "late", ids[0])).await.expect_err("another one has it");
    assert_eq!(late.code, ErrorCode::Superseded);
    assert_eq!(scene.get(2, id).await.state, State::Claimed);
    let sent = bringing(&second, "sent", ids[1]);
    for _ in 0..2 {
        scene.try_complete(1, sent.clone()).await.expect("it holds the task");
    }
    let other = scene.try_complete(2, Scene::<H>::finish(&second, "otherwise")).await.expect_err("it is sealed");
    assert_eq!(other.code, ErrorCode::Conflict);
    let told = |view: &norn_wire::TaskView| view.claims.iter().any(|claim| claim.rejected.is_some());
    let view = scene.get_when(id, "what was refused is shown", told).await;
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
    let rejected = view.claims.iter().find(|claim| claim.token == first.token).expect("it is shown").rejected.clone();
    assert_eq!(rejected, Some(Rejected { result: Some(b"late".to_vec().into()) }));
    // The children of the completion that counts exist once, and those of the other do not.
    let next = scene.take(2, "next").await;
    assert_eq!((next.id, &next.payload[..]), (ids[1], &b"sent"[..]));
    scene.complete(2, &next, "").await;
    scene.nothing("next").await;
    assert_eq!(scene.count("next", None).await, 1);
}

// T12, O37: and then there is another attempt, under a higher token
pub(super) async fn a_failed_attempt_waits_as_long_as_it_says<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let first = scene.take(0, "mail").await;
    let (wait, failed) = (SHORT + CLOCKS, scene.now());
    scene.done(0, Scene::<H>::failure(&first, Some(wait))).await;
    let due = failed + wait - CLOCKS;
    let view = scene.get(1, id).await;
    assert!(view.state == State::Waiting || scene.now() >= due, "{view:?}");
    scene.nothing_until("mail", due).await;
    let second = scene.take(2, "mail").await;
    assert!(second.token > first.token && second.attempt == first.attempt + 1, "{second:?}");
}

// O37
pub(super) async fn a_queue_backs_off_and_gives_up<H: Host>(scene: Scene<H>) {
    let wait = SHORT + CLOCKS;
    let backoff = Backoff { first_ms: millis(wait), most_ms: millis(8 * wait), jitter_percent: 0 };
    scene.set_at_once("mail", QueueSetting::Attempts(Some(3))).await;
    scene.set("mail", QueueSetting::Backoff(Some(backoff))).await;
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let first = scene.take(0, "mail").await;
    let failed = scene.now();
    scene.done(0, Scene::<H>::failure(&first, None)).await;
    scene.nothing_until("mail", failed + wait - CLOCKS).await;
    let second = scene.take(1, "mail").await;
    assert_eq!(second.attempt, 2);
    let failed = scene.now();
    scene.done(1, Scene::<H>::failure(&second, None)).await;
    scene.nothing_until("mail", failed + 2 * wait - CLOCKS).await;
    let third = scene.take(1, "mail").await;
    assert_eq!(third.attempt, 3);
    scene.done(1, Scene::<H>::failure(&third, None)).await;
    let view = scene.get(2, id).await;
    assert_eq!(view.state, State::Dead);
    scene.done(0, Scene::<H>::failure(&third, None)).await;
    // The call that ended the first claim may be repeated. Any other call for that claim comes too late.
    scene.done(0, Scene::<H>::failure(&first, None)).await;
    let release = Request::Release { id, token: first.token };
    let late = scene.request(0, release).await.expect_err("its attempt failed, and others had the task since");
    assert!(matches!(late.code, ErrorCode::Superseded | ErrorCode::Ended), "{late:?}");
    assert!(view.reason.as_deref().is_some_and(|reason| reason.ends_with(": of no use")), "{view:?}");
    scene.nothing("mail").await;
}

// O16, O33: any number of redrives by any client makes one copy, with all its attempts
pub(super) async fn what_is_invalid_is_dead_and_is_redriven_once<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello").priority(3)).await;
    let claim = scene.take(0, "mail").await;
    scene.done(0, Scene::<H>::invalidity(&claim)).await;
    scene.done(2, Scene::<H>::invalidity(&claim)).await;
    let view = scene.get(1, id).await;
    assert_eq!((view.state, view.reason.as_deref()), (State::Dead, Some("invalid: blank")));
    scene.nothing("mail").await;
    let redrive = Request::Redrive { id, child: TaskId::MIN, queue: None, acks: Acks::Quorum };
    let mut copies = Vec::new();
    for client in 0..3 {
        match scene.done(client, redrive.clone()).await {
            Response::AckedOne(acked) => copies.push(acked.id),
            other => panic!("{other:?}"),
        }
    }
    assert!(copies[0] != id && copies.iter().all(|copy| *copy == copies[0]), "{copies:?}");
    let again = scene.take(1, "mail").await;
    assert_eq!((again.id, again.attempt, again.priority), (copies[0], 1, 3));
    assert_eq!(again.payload, b"hello");
    scene.nothing("mail").await;
    assert_eq!(scene.get(2, id).await.redriven, [copies[0]]);
}

// O16: there is one dead letter, which says what died and why
pub(super) async fn what_dies_leaves_a_letter<H: Host>(scene: Scene<H>) {
    scene.set("mail", QueueSetting::DeadLetter(Some(scene.queue("letters")))).await;
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello").attempts_max(1).header("to", "anna")).await;
    let claim = scene.take(0, "mail").await;
    scene.done(0, Scene::<H>::failure(&claim, None)).await;
    let letter = scene.take(1, "letters").await;
    assert_eq!(letter.payload, b"hello");
    let header = |name: &str| {
        let found = letter.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert_eq!((header("to"), header("norn-dead-task")), ("anna".to_owned(), id.to_string()));
    assert_eq!(header("norn-dead-queue"), scene.queue("mail").as_str());
    assert!(header("norn-dead-reason").ends_with("of no use"), "{letter:?}");
    assert_eq!(scene.get(2, id).await.redriven, [letter.id]);
    scene.nothing("letters").await;
    assert_eq!(scene.count("letters", None).await, 1);
}

pub(super) async fn what_is_cancelled_is_over_for_its_holder_too<H: Host>(scene: Scene<H>) {
    let held = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let claim = scene.take(0, "mail").await;
    let ready = scene.enqueue(1, Draft::new(scene.queue("mail"), "hello")).await;
    for id in [held, ready] {
        scene.cancel(2, id).await;
        let view = scene.get(0, id).await;
        assert_eq!((view.state, view.reason.as_deref()), (State::Cancelled, Some("not needed")));
    }
    scene.nothing("mail").await;
    assert_eq!(scene.over(0, held, claim.token).await, ErrorCode::Ended);
}

// a completion by the task's holder counts in queues of mode `any`, and the reason of the cancellation stays visible
pub(super) async fn what_was_cancelled_while_it_ran_and_is_done_shows_both<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let claim = scene.take(0, "mail").await;
    scene.cancel(1, id).await;
    let view = scene.get(2, id).await;
    assert_eq!((view.state, view.was_overruled()), (State::Cancelled, false));
    scene.complete(0, &claim, "sent").await;
    for client in 0..super::CLIENTS {
        let view = scene.get(client, id).await;
        assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
        assert_eq!((view.reason.as_deref(), view.was_overruled()), (Some("not needed"), true), "{view:?}");
    }
    scene.nothing("mail").await;
}

// S27: purging leaves an open task unchanged, and removes an ended one, however often it is requested
pub(super) async fn what_is_purged_is_gone_and_what_is_open_stays<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let purge = Request::Purge { id, acks: Acks::Quorum, state: None };
    assert_eq!(scene.refused(1, purge.clone()).await, ErrorCode::Invalid);
    let claim = scene.take(0, "mail").await;
    assert_eq!(scene.refused(2, purge.clone()).await, ErrorCode::Invalid);
    scene.complete(0, &claim, "sent").await;
    let other = scene.enqueue(1, Draft::new(scene.queue("mail"), "kept")).await;
    let view = scene.get(1, id).await;
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
    for client in 0..3 {
        scene.done(client, purge.clone()).await;
    }
    scene.gone(id).await;
    scene.done(1, purge).await;
    assert_eq!(scene.take(2, "mail").await.id, other);
    scene.nothing("mail").await;
    assert_eq!(scene.list("mail", None).await.iter().map(|view| view.id).collect::<Vec<_>>(), [other]);
}

pub(super) async fn who_waits_is_told_of_the_end<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "hello")).await;
    let (timeout, started) = (Duration::from_secs(200), scene.now());
    let wait = |timeout: Duration| Request::Wait { id, timeout_ms: millis(timeout) };
    let Response::Task(open) = scene.done(0, wait(SHORT)).await else { panic!("no task") };
    assert_eq!(open.state, State::Ready);
    assert!(scene.now() >= started + SHORT * 95 / 100, "until its time is over");
    let claim = scene.take_for(1, "mail", LONG).await;
    let (waited, ()) = tokio::join!(
        async {
            let waited = scene.done(2, wait(timeout)).await;
            (waited, scene.now())
        },
        async {
            scene.pass(SHORT).await;
            scene.complete(1, &claim, "sent").await;
        }
    );
    let Response::Task(view) = waited.0 else { panic!("no task") };
    assert_eq!((view.state, view.result.as_deref().map(Vec::as_slice)), (State::Done, Some(&b"sent"[..])));
    assert!(waited.1 < started + timeout / 2, "it is told when it ends");
}

// O22: however often the completion is sent. The task names its children
pub(super) async fn what_a_completion_brings_is_there_once<H: Host>(scene: Scene<H>) {
    let mut ids = scene.neighbours(2).await;
    let id = scene.enqueue(0, Draft::new(scene.queue("orders"), "")).await;
    let claim = scene.take(0, "orders").await;
    let child = |id: &TaskId| Draft::new(scene.queue("parcels"), id.to_string()).id(*id);
    let mut finish = Finish { children: ids.iter().map(child).collect(), ..Scene::<H>::finish(&claim, "packed") };
    // Repeats of a completion with children must have the same time.
    finish.completion.at_ms = claim.id.time_ms() + 1;
    for client in 0..3 {
        scene.try_complete(client, finish.clone()).await.expect("it is taken, once or again");
    }
    let handed_over = |view: &norn_wire::TaskView| !view.children_open;
    let view = scene.get_when(id, "all children are handed over", handed_over).await;
    let mut children = view.children;
    children.sort();
    ids.sort();
    assert_eq!((view.state, children), (State::Done, ids.clone()));
    let mut claimed: Vec<TaskId> = scene.take_all("parcels", 2).await.iter().map(|claim| claim.id).collect();
    claimed.sort();
    assert_eq!(claimed, ids);
    scene.nothing("parcels").await;
    assert_eq!(scene.count("parcels", None).await, 2);
}
