//! Sessions: one heartbeat for all claims of a worker.

use super::scene::{CLOCKS, LONG, Scene, millis};
use super::{CLIENTS, Host};
use norn_client::session::{Draft, SESSIONS_QUEUE};
use norn_wire::request::Claim;
use norn_wire::response::Granted;
use norn_wire::{ErrorCode, QueueName, Request, Response, TaskId};
use std::collections::BTreeSet;
use std::time::Duration;

const TASKS: usize = 4;

/// Opens a session; returns its claim.
pub(super) async fn open<H: Host>(scene: &Scene<H>, client: usize, time_to_live: Duration) -> Granted {
    scene.enqueue(client, Draft::session(scene.name())).await;
    let queues = vec![QueueName::new(SESSIONS_QUEUE).expect("a good name")];
    scene.take_as(client, &Claim { queues, ..scene.claim("any", time_to_live) }).await.remove(0)
}

/// Enqueues tasks, and claims all of them under a session.
pub(super) async fn hold<H: Host>(scene: &Scene<H>, client: usize, session: &Granted) -> BTreeSet<TaskId> {
    // On a busy machine all of this takes longer than the session's time to live without a heartbeat.
    let beat = async || scene.renew(client, session.id, session.token, None).await.expect("it lives");
    let mut ids = BTreeSet::new();
    for _ in 0..TASKS {
        ids.insert(scene.enqueue(client, Draft::new(scene.queue("work"), "")).await);
        beat().await;
    }
    let claim = Claim { session: Some(session.id), max: TASKS as u32, ..scene.claim("work", LONG) };
    let mut held = BTreeSet::new();
    while held.len() < TASKS {
        held.extend(scene.take_as(client, &claim).await.iter().map(|granted| granted.id));
        beat().await;
    }
    assert_eq!(held, ids);
    ids
}

// C9, C10: and its tasks count as released
pub(super) async fn a_session_that_ends_frees_all_at_once<H: Host>(scene: Scene<H>) {
    let session = open(&scene, 0, LONG).await;
    let ids = hold(&scene, 0, &session).await;
    scene.nothing("work").await;
    scene.complete(0, &session, "").await;
    let mut freed = BTreeSet::new();
    for claim in scene.take_all("work", TASKS).await {
        assert_eq!(claim.attempt, 1, "what is handed back is no attempt");
        freed.insert(claim.id);
    }
    assert_eq!(freed, ids);
    assert_eq!(scene.over(0, session.id, session.token).await, ErrorCode::Ended);
}

// C4, C7, C8, C9: heartbeats keep a session beyond its time to live. Without them all tasks that it held are free, long before their
// leases end, and the session never comes back
pub(super) async fn a_session_that_is_not_renewed_is_over_for_good<H: Host>(scene: Scene<H>) {
    let time_to_live = scene.scaled(Duration::from_secs(20)).min(LONG / 4);
    let session = open(&scene, 0, time_to_live).await;
    let ids = hold(&scene, 0, &session).await;
    scene.renew(0, session.id, session.token, None).await.expect("it lives");
    let back = Request::Release { id: session.id, token: session.token };
    assert_eq!(scene.refused(0, back).await, ErrorCode::Invalid, "nobody else is to have it");
    scene.pass(time_to_live / 4).await;
    let renewed = scene.now();
    scene.renew(0, session.id, session.token, None).await.expect("it lives");
    scene.nothing_until("work", renewed + time_to_live - CLOCKS).await;
    let freed: BTreeSet<TaskId> = scene.take_all("work", TASKS).await.iter().map(|claim| claim.id).collect();
    assert_eq!(freed, ids);
    assert!(scene.now() < renewed + LONG / 2, "they are free with the session, and not with their own leases");
    let over = scene.renew(0, session.id, session.token, None).await.expect_err("its end is final");
    assert!(matches!(over.code, ErrorCode::Ended | ErrorCode::Superseded), "{over:?}");
    scene.enqueue(1, Draft::new(scene.queue("more"), "")).await;
    let end = scene.now() + scene.patience();
    loop {
        // The granting leader may not have heard of the end yet. If so, it revokes what it granted meanwhile.
        let claim = Claim { session: Some(session.id), wait_ms: millis(CLOCKS), ..scene.claim("more", LONG) };
        let asked = scene.request(0, Request::Claim(claim)).await;
        if !matches!(&asked, Ok(Response::Claimed { tasks, .. }) if !tasks.is_empty()) {
            break;
        }
        assert!(scene.now() < end, "it is granted under it again and again: {asked:?}");
    }
    scene.take(1, "more").await;
}

// C23: concurrent claims do not disturb each other: as many claims as there are tasks get one task each, and none is asked to retry
pub(super) async fn sessions_that_claim_at_once_get_a_task_each<H: Host>(scene: Scene<H>) {
    const EACH: usize = 10;
    for number in 0..CLIENTS * EACH {
        scene.enqueue(number % CLIENTS, Draft::new(scene.queue("work"), "").key(number.to_string())).await;
    }
    let mut sessions = Vec::new();
    for client in 0..CLIENTS {
        sessions.push(open(&scene, client, LONG).await);
    }
    let work = async |client: usize| {
        let session: &Granted = &sessions[client];
        let claim = Claim { session: Some(session.id), wait_ms: millis(LONG), ..scene.claim("work", LONG) };
        let mut granted = Vec::new();
        for _ in 0..EACH {
            granted.push(scene.claimed(client, &claim).await);
        }
        granted
    };
    let (one, other, third) = tokio::join!(work(0), work(1), work(2));
    let granted = [one, other, third].concat();
    assert!(granted.iter().all(|tasks| tasks.len() == 1), "{granted:?}");
    let ids: BTreeSet<TaskId> = granted.iter().flatten().map(|task| task.id).collect();
    assert_eq!(ids.len(), CLIENTS * EACH);
}

// C24, C25, C26: no session gives up tasks for a new one, and none waits for a task because another session could have it. When a
// session ends, its tasks go to waiting claims at once
pub(super) async fn who_comes_and_goes_shares_all_work<H: Host>(scene: Scene<H>) {
    const TASKS: usize = 12;
    for number in 0..TASKS {
        scene.enqueue(0, Draft::new(scene.queue("work"), "").key(number.to_string())).await;
    }
    let first = open(&scene, 0, LONG).await;
    let under = |session: &Granted, max: usize, wait: Duration| Claim {
        session: Some(session.id),
        max: max as u32,
        wait_ms: millis(wait),
        ..scene.claim("work", LONG)
    };
    let held = scene.take_as(0, &under(&first, 1, Duration::ZERO)).await;
    let second = open(&scene, 1, LONG).await;
    let mut rest = 0;
    while rest < TASKS - held.len() {
        rest += scene.take_as(1, &under(&second, TASKS, Duration::ZERO)).await.len();
    }
    let started = scene.now();
    let (freed, ()) = tokio::join!(async { scene.claimed(1, &under(&second, 1, LONG)).await }, async {
        scene.pass(CLOCKS).await;
        scene.complete(0, &first, "").await;
    });
    assert_eq!(freed.iter().map(|task| task.id).collect::<Vec<_>>(), [held[0].id]);
    assert!(scene.now() < started + LONG / 2, "it is pushed, and waits neither for a lease nor for the next look");
}
