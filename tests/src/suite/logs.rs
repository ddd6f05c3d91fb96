//! Log entries that workers write.

use super::Host;
use super::scene::{Scene, is_open};
use norn_client::session::Draft;
use norn_wire::request::Request;
use norn_wire::response::{LogEntry, State};
use norn_wire::{Acks, Response, Token};
use std::time::Duration;

fn shown(entries: &[LogEntry]) -> Vec<(Token, u32, String)> {
    let text = |entry: &LogEntry| String::from_utf8(entry.data.clone()).expect("text");
    entries.iter().map(|entry| (entry.token, entry.sequence, text(entry))).collect()
}

// S8, S21, S23, S24, S37: for any sender, any node, any order and any number of repeats
pub(super) async fn a_log_is_seen_without_gaps_and_repeats_change_nothing<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("work"), "")).await;
    let claim = scene.take(0, "work").await;
    let entry = |sequence: u32, data: &str| (claim.token, sequence, data.to_owned());
    scene.update(1, &claim, 2, "two").await;
    assert_eq!(shown(&scene.get(2, id).await.updates), []);
    scene.update(0, &claim, 0, "none").await;
    assert_eq!(shown(&scene.get(1, id).await.updates), [entry(0, "none")]);
    scene.update(2, &claim, 1, "one").await;
    let all = [entry(0, "none"), entry(1, "one"), entry(2, "two")];
    assert_eq!(shown(&scene.get(0, id).await.updates), all);
    scene.update(0, &claim, 1, "one").await;
    scene.update(1, &claim, 2, "two").await;
    let minimum = Some((claim.token, 2));
    let Response::Task(view) = scene.done(1, Request::Get { id, minimum, minimum_sequence: None }).await else {
        panic!("no task");
    };
    assert_eq!((shown(&view.updates), view.conflict), (all.to_vec(), false));
    scene.complete(0, &claim, "").await;
    assert_eq!(shown(&scene.get(2, id).await.updates), all, "also when it has ended");
}

// S26, S54: logs of a worker whose lease expired, and of one that failed. Their later entries are still theirs
pub(super) async fn the_next_worker_reads_on_in_the_logs_of_those_before<H: Host>(scene: Scene<H>) {
    let id = scene.enqueue(0, Draft::new(scene.queue("work"), "")).await;
    let first = scene.take_for(0, "work", Duration::from_secs(2)).await;
    // With `acks=all`, the next leader has the entries too.
    scene.update_with(0, &first, (0, "page 1"), Acks::All).await;
    scene.update_with(0, &first, (1, "page 2"), Acks::All).await;
    let second = scene.take(1, "work").await;
    let before = [(first.token, 0, "page 1".to_owned()), (first.token, 1, "page 2".to_owned())];
    assert_eq!(shown(&second.updates), before);
    scene.update_with(1, &second, (0, "page 3"), Acks::All).await;
    scene.update_with(0, &first, (2, "late"), Acks::All).await;
    scene.done(1, Scene::<H>::failure(&second, None)).await;
    let third = scene.take(2, "work").await;
    let late = (first.token, 2, "late".to_owned());
    let all = [&before[..], &[late, (second.token, 0, "page 3".to_owned())]].concat();
    assert_eq!(shown(&third.updates), all);
    scene.complete(2, &third, "").await;
    let view = scene.get(0, id).await;
    assert_eq!((shown(&view.updates), view.log_incomplete), (all, false));
    assert!(view.state == State::Done && !is_open(view.state));
    let tokens: Vec<Token> = view.claims.iter().map(|claim| claim.token).collect();
    let of_those = [first.token, second.token, third.token].iter().all(|token| tokens.contains(token));
    assert!(of_those && tokens.is_sorted(), "{tokens:?}");
}
