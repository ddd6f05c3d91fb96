//! Sessions of workers, with real processes: the example that renders films.

use norn_client::client::{ClaimOptions, Client};
use norn_client::session::SESSIONS_QUEUE;
use norn_tests::cluster::all_tasks;
use norn_tests::example::Lines;
use norn_tests::wait::{Deadline, PATIENCE, eventually, until};
use norn_tests::{Cluster, Example};
use norn_wire::{QueueName, State, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const FILMS: usize = 20;
const FRAMES: usize = 200;
/// Time per frame of workers that must not finish a film.
const SLOW_MS: u64 = 1_000;
/// Message of a worker about a film that it has lost.
const LOST: &str = "is lost in the middle";
const TTL: Duration = Duration::from_secs(5);

fn work(cluster: &Cluster, ttl: Duration, frame_ms: u64) -> (Example, Lines) {
    let (ttl, at_once, frame_ms) = (ttl.as_secs().to_string(), FILMS.to_string(), frame_ms.to_string());
    let arguments = ["work", "--session", &ttl, "--at-once", &at_once, "--frame-ms", &frame_ms];
    let mut worker = Example::start(cluster, "render", &arguments);
    let lines = worker.lines();
    (worker, lines)
}

/// The films that the lines are about.
fn films(lines: &[String]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// Whether all films have continued from a checkpoint.
fn all_go_on(lines: &Lines) -> bool {
    let begun = lines.with("goes on at frame");
    begun.iter().all(|line| !line.ends_with("frame 0")) && films(&begun).len() == FILMS
}

/// Number of claims of each film, once all films are claimed and each has a frame.
async fn all_have_a_frame(client: &Client, queue: &QueueName) -> BTreeMap<TaskId, usize> {
    let look = || async {
        let mut begun = BTreeMap::new();
        for listed in all_tasks(client).await.iter().filter(|task| task.spec.queue == *queue) {
            let task = client.get(listed.id).await.ok()?;
            if task.state == State::Claimed && !task.updates.is_empty() {
                begun.insert(task.id, task.claims.len());
            }
        }
        (begun.len() == FILMS).then_some(begun)
    };
    eventually("a worker has all films, and a frame of each", PATIENCE, look).await
}

/// A worker with twenty films is killed: after its session has expired, another worker gets all of them, though their leases last an
/// hour, and continues where they stood. Then that worker is paused for too long: the next one gets all films, and when the paused one
/// resumes, it learns that each of its films is lost. The last worker is interrupted, and all films can be claimed at once, long
/// before its session would expire.
// C4, C5, C7, C8, C9, C10, C20, O38
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn films_go_on_where_sessions_are_lost_in_the_middle() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let (queue, sessions) = (QueueName::new("render/films").unwrap(), QueueName::new(SESSIONS_QUEUE).unwrap());
    let (films_count, frames) = (FILMS.to_string(), FRAMES.to_string());
    let submitter = Example::start(&cluster, "render", &["submit", "--films", &films_count, "--frames", &frames]);

    let (killed, _) = work(&cluster, TTL, SLOW_MS);
    all_have_a_frame(&client, &queue).await;
    drop(killed);
    let (paused, paused_lines) = work(&cluster, TTL, SLOW_MS);
    until("another one goes on with all films of the one that was killed", || all_go_on(&paused_lines));
    // On a very slow machine the worker may have lost films before.
    let before = paused_lines.with(LOST).len();
    all_have_a_frame(&client, &queue).await;

    paused.pause();
    let (last, last_lines) = work(&cluster, PATIENCE * 5, SLOW_MS);
    until("the next one goes on with all films of the one that stands still", || all_go_on(&last_lines));
    paused.resume();
    until("it is told that all are lost", || films(&paused_lines.with(LOST)[before..]).len() == FILMS);
    let look = || async { (client.count(Some(sessions.clone()), Some(State::Claimed)).await.ok()? == 2).then_some(()) };
    eventually("it goes on under a new session", PATIENCE, look).await;
    paused.interrupt();
    paused.succeed();

    let claims = all_have_a_frame(&client, &queue).await;
    last.interrupt();
    last.succeed();
    let deadline = Deadline::after(PATIENCE);
    let given_back = format!("{FILMS} given back");
    assert_eq!(last_lines.with(&given_back).len(), 1, "{:?}", last_lines.with("given back"));
    let mut taken = Vec::new();
    while taken.len() < FILMS {
        let options = ClaimOptions::new([queue.clone()]).max(FILMS as u32).wait(Duration::from_secs(1));
        taken.extend(client.claim(options).await.expect("the cluster serves").tasks);
        deadline.check(|| format!("{} are claimable", taken.len()));
    }
    for film in taken {
        // Grants whose answers did not reach the paused worker are listed as claims, but are no attempts either.
        assert!(film.granted.attempt as usize <= claims[&film.granted.id], "what was given back is no attempt");
        client.release(film.granted.id, film.granted.token).await.expect("it is held");
    }
    let (_worker, _) = work(&cluster, TTL, 1);
    let told = submitter.told().await;
    assert_eq!(films(&told.lines().map(str::to_owned).collect::<Vec<_>>()).len(), FILMS, "{told}");
    assert!(told.lines().all(|line| line.contains(&format!("has {frames} frames"))), "{told}");
}
