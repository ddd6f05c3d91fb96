//! Tasks that depend on others.

use super::Host;
use super::scene::Scene;
use norn_client::session::Draft;
use norn_wire::membership::{FailedDependency, QueueSetting};
use norn_wire::response::State;

// S18: a task with several dependencies waits for the last of them to end, in whatever queues they are
pub(super) async fn a_task_waits_for_what_nobody_knows_yet<H: Host>(scene: Scene<H>) {
    let before = scene.neighbours(2).await;
    let id = scene.enqueue(0, Draft::new(scene.queue("mail"), "all is packed").after(before.clone())).await;
    scene.nothing("mail").await;
    let view = scene.get(1, id).await;
    assert_eq!((view.state, view.waits_for.len()), (State::Waiting, 2));
    for (number, first) in before.iter().enumerate() {
        scene.enqueue(number, Draft::new(scene.queue("parcels"), "").id(*first)).await;
        scene.nothing("mail").await;
        let claim = scene.take(1, "parcels").await;
        assert_eq!(claim.id, *first);
        scene.nothing("mail").await;
        scene.complete(1, &claim, "").await;
    }
    assert_eq!(scene.take(2, "mail").await.id, id);
}

// S18
pub(super) async fn a_queue_says_what_becomes_of_a_failed_dependency<H: Host>(scene: Scene<H>) {
    scene.set_at_once("waits", QueueSetting::FailedDependency(FailedDependency::Wait)).await;
    scene.set("goes-on", QueueSetting::FailedDependency(FailedDependency::Skip)).await;
    let first = scene.enqueue(0, Draft::new(scene.queue("parcels"), "")).await;
    let draft = |queue: &str| Draft::new(scene.queue(queue), "").after(vec![first]);
    let [waits, goes_on, dies] = [draft("waits"), draft("goes-on"), draft("dies")];
    let (waits, goes_on, dies) =
        tokio::join!(scene.enqueue(0, waits), scene.enqueue(1, goes_on), scene.enqueue(2, dies));
    scene.cancel(1, first).await;
    assert_eq!(scene.take(2, "goes-on").await.id, goes_on);
    let dead = scene.get_when(dies, "it dies", |view| view.state == State::Dead).await;
    assert!(dead.reason.as_deref().is_some_and(|reason| reason.contains(&first.to_string())), "{dead:?}");
    scene.nothing("waits").await;
    scene.nothing("dies").await;
    assert_eq!(scene.get(0, waits).await.state, State::Waiting);
    // A later setting also applies to tasks that wait already.
    scene.set("waits", QueueSetting::FailedDependency(FailedDependency::Skip)).await;
    assert_eq!(scene.take(1, "waits").await.id, waits);
}
