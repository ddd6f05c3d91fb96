//! Settings of whole queues, and listings of their contents.

use super::Host;
use super::scene::{CLOCKS, LONG, Scene, millis};
use norn_client::session::Draft;
use norn_wire::membership::{KeyConcurrency, Order, QueueSetting, Rate};
use norn_wire::request::{Claim, Request};
use norn_wire::response::State;
use norn_wire::{ErrorCode, Response, TaskId};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(2);

pub(super) async fn a_paused_queue_grants_nothing<H: Host>(scene: Scene<H>) {
    scene.enqueue(0, Draft::new(scene.queue("mail"), "held")).await;
    let held = scene.take(0, "mail").await;
    scene.set("mail", QueueSetting::Paused(true)).await;
    let id = scene.enqueue(1, Draft::new(scene.queue("mail"), "paused")).await;
    scene.nothing("mail").await;
    scene.renew(0, held.id, held.token, None).await.expect("what is held goes on");
    scene.complete(0, &held, "").await;
    scene.nothing("mail").await;
    assert_eq!(scene.get(2, id).await.state, State::Ready);
    scene.set_at_once("mail", QueueSetting::Paused(false)).await;
    assert_eq!(scene.take(2, "mail").await.id, id);
}

// T18: a dozen tasks come in order of age by chance once in 479 million times
pub(super) async fn a_queue_of_random_order_gives_any<H: Host>(scene: Scene<H>) {
    scene.set("mail", QueueSetting::Order(Order::Random)).await;
    let ids = scene.neighbours(12).await;
    for id in &ids {
        scene.enqueue(0, Draft::new(scene.queue("mail"), "").id(*id)).await;
    }
    let order: Vec<TaskId> = scene.take_all("mail", ids.len()).await.iter().map(|claim| claim.id).collect();
    assert_ne!(order, ids);
    let mut sorted = order;
    sorted.sort();
    assert_eq!(sorted, ids, "each of them comes once");
}

pub(super) async fn no_more_is_held_at_once_than_a_queue_allows<H: Host>(scene: Scene<H>) {
    const MOST: usize = 2;
    const TASKS: usize = 5;
    scene.set("mail", QueueSetting::Concurrency(Some(MOST as u32))).await;
    for number in 0..TASKS {
        scene.enqueue(number % 3, Draft::new(scene.queue("mail"), "")).await;
    }
    let mut held = scene.take_all("mail", MOST).await;
    for left in (0..TASKS).rev() {
        if held.len() == MOST {
            scene.nothing("mail").await;
            assert_eq!(scene.count("mail", Some(State::Claimed)).await, MOST as u64);
        }
        scene.complete(left % 3, &held.remove(0), "").await;
        if left > held.len() {
            held.push(scene.take(left % 3, "mail").await);
        }
    }
    scene.nothing("mail").await;
    assert_eq!(scene.count("mail", Some(State::Done)).await, TASKS as u64);
}

pub(super) async fn claims_come_no_faster_than_a_queue_allows<H: Host>(scene: Scene<H>) {
    let rate = Rate { claims: 1, per_ms: 1_000 };
    let more = 4;
    scene.set("mail", QueueSetting::Rate(Some(rate))).await;
    let count = usize::try_from(rate.burst()).expect("a few") + more;
    for number in 0..count {
        scene.enqueue(number % 3, Draft::new(scene.queue("mail"), "")).await;
    }
    let started = scene.now();
    scene.take_all("mail", count).await;
    let least = Duration::from_millis(rate.per_ms) * more as u32;
    assert!(scene.now() >= started + least - CLOCKS, "{count} claims in {:?}", scene.now() - started);
}

pub(super) async fn a_full_queue_takes_no_more<H: Host>(scene: Scene<H>) {
    const MOST: u64 = 3;
    scene.set("mail", QueueSetting::Tasks(Some(MOST))).await;
    let draft = || Draft::new(scene.queue("mail"), "");
    // A replica that missed some tasks admits more. With `acks=all` every replica counts the same tasks.
    let ids = scene.neighbours(MOST as u32 + 1).await;
    for id in &ids[..MOST as usize] {
        scene.enqueue_at_all(0, draft().id(*id)).await;
    }
    let claim = scene.take(0, "mail").await;
    let refusal = scene.try_enqueue(1, draft().id(ids[MOST as usize]), SHORT).await.expect_err("it is full");
    assert!(refusal.passes(), "{refusal:?}");
    assert_eq!(scene.count("mail", None).await, MOST);
    scene.complete(0, &claim, "").await;
    scene.enqueue(2, draft().id(ids[MOST as usize])).await;
}

pub(super) async fn a_queue_is_full_by_bytes_too<H: Host>(scene: Scene<H>) {
    const MOST: u64 = 10_000;
    scene.set("mail", QueueSetting::Bytes(Some(MOST))).await;
    let draft = |bytes: u64| Draft::new(scene.queue("mail"), vec![7; bytes as usize]);
    let ids = scene.neighbours(2).await;
    scene.enqueue_at_all(0, draft(MOST * 2 / 3).id(ids[0])).await;
    let claim = scene.take(0, "mail").await;
    let more = || draft(MOST * 2 / 3).id(ids[1]);
    let refusal = scene.try_enqueue(1, more(), SHORT).await.expect_err("it is full");
    assert!(refusal.passes(), "{refusal:?}");
    let never = scene.try_enqueue(1, draft(MOST + 1), scene.patience()).await;
    let refusal = never.expect_err("there is never room for it");
    assert!(!refusal.passes(), "{refusal:?}");
    scene.complete(0, &claim, "").await;
    scene.enqueue(2, more()).await;
}

pub(super) async fn a_low_priority_does_not_starve_where_it_ages<H: Host>(scene: Scene<H>) {
    let level = Duration::from_secs(1);
    scene.set("mail", QueueSetting::Ageing(Some(millis(level)))).await;
    // A task's id determines its age. Between the oldest task and the others lie three levels plus the maximal difference of clocks.
    let old = scene.neighbours(1).await[0];
    scene.enqueue(0, Draft::new(scene.queue("mail"), "").id(old)).await;
    scene.pass(3 * level + CLOCKS).await;
    let young = TaskId::new(old.time_ms() + millis(3 * level + CLOCKS), 0, old.minter(), old.tag());
    let urgent = TaskId::new(young.time_ms(), 1, old.minter(), old.tag());
    scene.enqueue(1, Draft::new(scene.queue("mail"), "").priority(2).id(young)).await;
    scene.enqueue(2, Draft::new(scene.queue("mail"), "").priority(100).id(urgent)).await;
    let order: Vec<TaskId> = scene.take_all("mail", 3).await.iter().map(|claim| claim.id).collect();
    assert_eq!(order, [urgent, old, young]);
}

// By age alone, the tasks of the key that came last would come last.
pub(super) async fn keys_take_turns_where_a_queue_is_fair<H: Host>(scene: Scene<H>) {
    scene.set_at_once("mail", QueueSetting::KeyConcurrency(KeyConcurrency::Any)).await;
    scene.set("mail", QueueSetting::Order(Order::Fair)).await;
    let draft = |key: &str| Draft::new(scene.queue("mail"), "").key(key);
    for number in 0..8 {
        scene.enqueue(number % 3, draft("a tenant with much to do")).await;
    }
    let mut few = vec![scene.enqueue(0, draft("another")).await, scene.enqueue(1, draft("another")).await];
    for turn in 0..5 {
        let claim = scene.take(turn % 3, "mail").await;
        few.retain(|id| *id != claim.id);
        // The time of last service is taken from the granting leader's clock.
        scene.pass(CLOCKS).await;
    }
    assert_eq!(few, [], "its turn has come twice");
}

// O35
pub(super) async fn a_queue_says_how_long_leases_are<H: Host>(scene: Scene<H>) {
    let (own, most) = (Duration::from_secs(7), Duration::from_secs(11));
    scene.set_at_once("mail", QueueSetting::LeaseMax(Some(millis(most)))).await;
    scene.set("mail", QueueSetting::Lease(Some(millis(own)))).await;
    for client in 0..2 {
        scene.enqueue(client, Draft::new(scene.queue("mail"), "")).await;
    }
    let open = Claim { lease_open: true, ..scene.claim("mail", LONG) };
    assert_eq!(scene.take_as(0, &open).await[0].lease_ms, millis(own));
    let claim = scene.take_for(1, "mail", LONG).await;
    assert_eq!(claim.lease_ms, millis(most));
    let renewed = scene.renew(1, claim.id, claim.token, Some(LONG)).await.expect("it is held");
    assert_eq!(renewed, millis(most));
}

// T17, T19, T30, T31, S14
pub(super) async fn a_listing_tells_what_is_left<H: Host>(scene: Scene<H>) {
    let known = async || match scene.done(2, Request::Queues).await {
        Response::Queues(queues) => queues.into_iter().find(|known| known.queue == scene.queue("mail")),
        other => panic!("{other:?}"),
    };
    assert_eq!(known().await, None);
    let mut ids = Vec::new();
    for client in 0..3 {
        ids.push(scene.enqueue(client, Draft::new(scene.queue("mail"), "")).await);
    }
    ids.sort();
    let listed = |tasks: Vec<norn_wire::TaskView>| tasks.iter().map(|view| view.id).collect::<Vec<_>>();
    assert_eq!(listed(scene.list("mail", None).await), ids);
    let claim = scene.take(0, "mail").await;
    assert_eq!(listed(scene.list("mail", Some(State::Claimed)).await), [claim.id]);
    assert_eq!(scene.count("mail", Some(State::Ready)).await, 2);
    scene.complete(0, &claim, "").await;
    let left: Vec<TaskId> = ids.iter().copied().filter(|id| *id != claim.id).collect();
    assert_eq!(listed(scene.list("mail", Some(State::Ready)).await), left);
    assert_eq!(known().await.map(|known| known.counts), Some([0, 2, 0, 1, 0, 0]));
    let nobody = Request::Get { id: TaskId::new(claim.id.time_ms(), 7, 7, 7), minimum: None, minimum_sequence: None };
    assert_eq!(scene.refused(1, nobody).await, ErrorCode::NotFound);
}
