//! Tasks that the cluster enqueues by itself.

use super::Host;
use super::scene::{Scene, is_open, millis};
use norn_client::session::Draft;
use norn_wire::request::Request;
use norn_wire::response::TaskView;
use norn_wire::schedule::{CatchUp, SCHEDULE_HEADER, Schedule, ScheduleChange, TICK_HEADER, When};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const TICKS: usize = 3;
const PERIOD_MS: u64 = 1_000;

fn header(view: &TaskView, name: &str) -> String {
    let found = view.spec.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// Ticks for which there are tasks. Asserts that no tick has two.
fn ticks(name: &str, tasks: &[TaskView]) -> BTreeSet<u64> {
    let mut ticks = BTreeSet::new();
    for view in tasks {
        assert_eq!((header(view, SCHEDULE_HEADER).as_str(), &view.spec.payload[..]), (name, &b"tick"[..]));
        let tick: u64 = header(view, TICK_HEADER).parse().expect("a number");
        assert!(ticks.insert(tick), "two tasks for {tick}");
    }
    ticks
}

// O26, O27: repeated and one-time schedules, whichever clients set them, and however often
pub(super) async fn a_schedule_makes_one_task_for_each_time<H: Host>(scene: Scene<H>) {
    let model = scene.enqueue(0, Draft::new(scene.queue("models"), "")).await;
    // The time is still ahead when all clients have set the schedule, and then the scene waits for it.
    let ahead = scene.scaled(Duration::from_secs(15)).min(scene.patience() / 4 * 3);
    let at_ms = model.time_ms() + millis(ahead);
    let cron = When::Cron { expression: "* * * * * *".to_owned(), zone: "Europe/Berlin".to_owned() };
    for (word, when) in [("once", When::At(at_ms)), ("often", cron)] {
        let (queue, payload, catch_up) = (scene.queue(word), b"tick".to_vec(), CatchUp::All);
        let schedule = Arc::new(Schedule { when, queue, payload, priority: 0, attempts_max: 0, catch_up });
        let name = format!("{}-{word}", scene.name());
        for client in 0..3 {
            let change = ScheduleChange::Set { name: name.clone(), schedule: schedule.clone() };
            scene.done(client, Request::Schedule(Box::new(change))).await;
        }
    }
    let often = format!("{}-often", scene.name());
    for number in 0..TICKS {
        scene.take(number, "often").await;
    }
    let change = ScheduleChange::Remove { name: often.clone() };
    scene.done(1, Request::Schedule(Box::new(change))).await;
    let seen = ticks(&often, &scene.list("often", None).await);
    assert!(seen.len() >= TICKS && seen.iter().all(|tick| tick % PERIOD_MS == 0), "{seen:?}");
    let once = scene.take(0, "once").await;
    let name = format!("{}-once", scene.name());
    assert_eq!(ticks(&name, &[scene.get(1, once.id).await]), BTreeSet::from([at_ms]));
    scene.complete(0, &once, "").await;
    // A task that was being enqueued at the removal may still arrive, but no later tick.
    scene.pass(Duration::from_millis(PERIOD_MS * 3)).await;
    let late = ticks(&often, &scene.list("often", None).await);
    assert!(late.is_superset(&seen) && late.len() <= seen.len() + 2, "{late:?}, before {seen:?}");
    scene.nothing("once").await;
    assert_eq!(scene.count("once", None).await, 1);
    assert!(!is_open(scene.get(2, once.id).await.state));
    scene.done(0, Request::Schedule(Box::new(ScheduleChange::Remove { name }))).await;
}
