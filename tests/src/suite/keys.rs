//! Tasks with keys.

use super::Host;
use super::scene::Scene;
use norn_client::session::Draft;
use norn_wire::TaskId;
use norn_wire::membership::{KeyConcurrency, QueueSetting};

// O15, O25, O27: the oldest first. Tasks with other keys do not wait for it
pub(super) async fn of_a_key_there_is_one_at_a_time<H: Host>(scene: Scene<H>) {
    let draft = |key: &str| Draft::new(scene.queue("mail"), "").key(key);
    let mut annas = Vec::new();
    for client in 0..3 {
        annas.push(scene.enqueue_at_all(client, draft("anna")).await);
    }
    annas.sort();
    let first = scene.take(0, "mail").await;
    assert_eq!(first.id, annas[0]);
    scene.nothing("mail").await;
    let bert = scene.enqueue(1, draft("bert")).await;
    assert_eq!(scene.take(1, "mail").await.id, bert);
    scene.nothing("mail").await;
    // The failed task still blocks its key until its retry.
    scene.done(0, Scene::<H>::failure(&first, None)).await;
    let again = scene.take(2, "mail").await;
    assert_eq!(again.id, annas[0]);
    scene.complete(2, &again, "").await;
    let second = scene.take(0, "mail").await;
    assert_eq!(second.id, annas[1]);
    scene.nothing("mail").await;
    scene.cancel(1, second.id).await;
    assert_eq!(scene.take(1, "mail").await.id, annas[2]);
}

// O15, O25: the oldest tasks of a key, up to the queue's limit
pub(super) async fn of_a_key_there_are_as_many_as_a_queue_says<H: Host>(scene: Scene<H>) {
    const MOST: usize = 2;
    scene.set("mail", QueueSetting::KeyConcurrency(KeyConcurrency::Most(MOST as u32))).await;
    let mut ids = Vec::new();
    for client in 0..4 {
        ids.push(scene.enqueue_at_all(client % 3, Draft::new(scene.queue("mail"), "").key("anna")).await);
    }
    ids.sort();
    let mut held = scene.take_all("mail", MOST).await;
    while !ids.is_empty() {
        let mut holds: Vec<TaskId> = held.iter().map(|claim| claim.id).collect();
        holds.sort();
        assert_eq!(holds, ids[..MOST.min(ids.len())]);
        scene.nothing("mail").await;
        let ended = held.remove(0);
        scene.complete(0, &ended, "").await;
        ids.retain(|id| *id != ended.id);
        if ids.len() >= MOST {
            held.push(scene.take(1, "mail").await);
        }
    }
}

// O15, O27: until the task has ended, in any way
pub(super) async fn a_unique_task_is_there_once_however_many_ask<H: Host>(scene: Scene<H>) {
    let draft = |payload: &str| Draft::new(scene.queue("index"), payload).key("customer 17");
    let mut ids = Vec::new();
    for round in 0..2 {
        let [one, other, third] = ["one", "other", "third"].map(draft);
        let asked =
            tokio::join!(scene.enqueue_unique(0, one), scene.enqueue_unique(1, other), scene.enqueue_unique(2, third));
        let (id, _) = asked.0;
        assert!([asked.1.0, asked.2.0] == [id; 2] && !ids.contains(&id), "{asked:?}, and before {ids:?}");
        ids.push(id);
        assert_eq!(scene.count("index", None).await, ids.len() as u64);
        let claim = scene.take(round, "index").await;
        assert_eq!(claim.id, id);
        assert_eq!(scene.enqueue_unique(1, draft("while it is held")).await, (id, true));
        scene.nothing("index").await;
        if round == 0 {
            scene.complete(round, &claim, "").await;
        } else {
            scene.cancel(2, id).await;
        }
    }
    assert!(!scene.enqueue_unique(0, draft("anew")).await.1);
}
