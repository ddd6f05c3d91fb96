//! Sessions: one heartbeat for all claims of a worker.

use super::Host;
use super::scene::{CLOCKS, LONG, Scene, millis};
use norn_client::session::{Draft, SESSIONS_QUEUE};
use norn_client::wire::request::Claim;
use norn_client::wire::response::Granted;
use norn_client::wire::{ErrorCode, QueueName, TaskId};
use std::collections::BTreeSet;
use std::time::Duration;

const TASKS: usize = 4;

/// Opens a session.
pub(super) async fn open<H: Host>(scene: &Scene<H>, client: usize, time_to_live: Duration) -> Granted {
    scene.enqueue(client, Draft::session(scene.name())).await;
    let queues = vec![QueueName::new(SESSIONS_QUEUE).expect("a good name")];
    scene.take_as(client, &Claim { queues, ..scene.claim("any", time_to_live) }).await.remove(0)
}

/// Enqueues tasks, and claims all of them under a session.
pub(super) async fn hold<H: Host>(scene: &Scene<H>, client: usize, session: &Granted) -> BTreeSet<TaskId> {
    let mut ids = BTreeSet::new();
    for _ in 0..TASKS {
        ids.insert(scene.enqueue(client, Draft::new(scene.queue("work"), "")).await);
    }
    let claim = Claim { session: Some(session.id), max: TASKS as u32, ..scene.claim("work", LONG) };
    let mut held = BTreeSet::new();
    while held.len() < TASKS {
        held.extend(scene.take_as(client, &claim).await.iter().map(|granted| granted.id));
    }
    assert_eq!(held, ids);
    ids
}

// C9, C10: and what it held counts as given back
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
    let over = scene.renew(0, session.id, session.token, None).await.expect_err("it has ended");
    assert_eq!(over.code, ErrorCode::Ended);
}

// C4, C7, C8, C9: kept by its heartbeat for longer than it lives; without it all that it held is free, long before their leases end,
// and it never comes back
pub(super) async fn a_session_that_is_not_renewed_is_over_for_good<H: Host>(scene: Scene<H>) {
    let time_to_live = Duration::from_secs(10);
    let session = open(&scene, 0, time_to_live).await;
    let ids = hold(&scene, 0, &session).await;
    scene.renew(0, session.id, session.token, None).await.expect("it lives");
    scene.pass(time_to_live / 2).await;
    let renewed = scene.now();
    scene.renew(0, session.id, session.token, None).await.expect("it lives");
    scene.nothing_until("work", renewed + time_to_live - CLOCKS).await;
    let freed: BTreeSet<TaskId> = scene.take_all("work", TASKS).await.iter().map(|claim| claim.id).collect();
    assert_eq!(freed, ids);
    assert!(scene.now() < renewed + LONG / 2, "they are free with the session, and not with their own leases");
    let over = scene.renew(0, session.id, session.token, None).await.expect_err("its end is final");
    assert!(matches!(over.code, ErrorCode::Ended | ErrorCode::Superseded), "{over:?}");
    scene.enqueue(1, Draft::new(scene.queue("more"), "")).await;
    let claim = Claim { session: Some(session.id), wait_ms: millis(CLOCKS), ..scene.claim("more", LONG) };
    let asked = scene.request(0, norn_client::wire::Request::Claim(claim)).await;
    let got = matches!(&asked, Ok(norn_client::wire::Response::Claimed { tasks, .. }) if !tasks.is_empty());
    assert!(!got, "nothing is granted under it: {asked:?}");
}
