//! Watches of a queue or a group learn how its tasks end.

use super::Host;
use super::scene::{Scene, millis};
use norn_client::session::{Draft, WatchNews, WatchState};
use norn_wire::{Response, State, Subject, TaskId};
use std::time::Duration;

/// How long a call waits for something to happen.
const WAIT: Duration = Duration::from_secs(2);

/// Sends the next watch request.
async fn ask<H: Host>(scene: &Scene<H>, watch: &mut WatchState) {
    match scene.done(2, watch.request(millis(WAIT))).await {
        Response::Watched(watched) => watch.take(watched),
        other => panic!("{other:?}"),
    }
}

/// Watches until all these endings were reported, in any order. After a gap, reads the tasks instead.
async fn hear<H: Host>(scene: &Scene<H>, watch: &mut WatchState, mut wanted: Vec<(TaskId, State)>) {
    let end = scene.now() + scene.patience();
    while !wanted.is_empty() {
        assert!(scene.now() < end, "{}: nothing is told of {wanted:?}", scene.name());
        ask(scene, watch).await;
        while let Some(news) = watch.take_news() {
            match news {
                WatchNews::Event(event) => wanted.retain(|told| *told != (event.id, event.state)),
                WatchNews::Lagged => {
                    for (id, state) in std::mem::take(&mut wanted) {
                        if scene.get(2, id).await.state != state {
                            wanted.push((id, state));
                        }
                    }
                }
                WatchNews::Silent(_) => {}
            }
        }
    }
}

pub(super) async fn who_watches_a_queue_is_told_of_all_endings<H: Host>(scene: Scene<H>) {
    let mut watch = WatchState::new(Subject::Queue(scene.queue("mail")));
    ask(&scene, &mut watch).await;
    let other = scene.enqueue(0, Draft::new(scene.queue("parcels"), "")).await;
    scene.cancel(0, other).await;
    let mut ids = Vec::new();
    for client in 0..3 {
        ids.push(scene.enqueue(client, Draft::new(scene.queue("mail"), "")).await);
    }
    scene.cancel(1, ids[0]).await;
    let mut wanted = vec![(ids[0], State::Cancelled)];
    for claim in scene.take_all("mail", 2).await {
        let ends = if claim.id == ids[1] { State::Dead } else { State::Done };
        match ends {
            State::Dead => drop(scene.done(0, Scene::<H>::invalidity(&claim)).await),
            _ => scene.complete(0, &claim, "sent").await,
        }
        wanted.push((claim.id, ends));
    }
    hear(&scene, &mut watch, wanted).await;
}

pub(super) async fn who_watches_a_group_is_told_of_its_members_and_its_join<H: Host>(scene: Scene<H>) {
    let join = Draft::new(scene.queue("books"), "a book").join(Some(2), false).group_name("book");
    let (group, _) = scene.enqueue_unique(0, join).await;
    let mut watch = WatchState::new(Subject::Group(group));
    ask(&scene, &mut watch).await;
    let mut wanted = Vec::new();
    for number in [1, 2] {
        let page = Draft::new(scene.queue("pages"), "").member_of(group, number);
        wanted.push((scene.enqueue(1, page).await, State::Done));
    }
    for claim in scene.take_all("pages", wanted.len()).await {
        scene.complete(0, &claim, "").await;
    }
    hear(&scene, &mut watch, wanted).await;
    let join = scene.take(1, "books").await;
    assert_eq!(join.id, group);
    scene.complete(1, &join, "bound").await;
    hear(&scene, &mut watch, vec![(group, State::Done)]).await;
}
