//! Schedules: each due time creates one task, though the leader of the metadata group is killed again and again.

use norn_client::client::Client;
use norn_tests::cluster::all_tasks;
use norn_tests::wait::{PATIENCE, eventually, received, until_instant};
use norn_tests::{Cluster, Example};
use norn_wire::response::TaskView;
use norn_wire::schedule::{CatchUp, SCHEDULE_HEADER, Schedule, ScheduleView, TICK_HEADER, When};
use norn_wire::{NodeId, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

const KILLS: usize = 3;

/// How long all nodes are down: some seconds longer than what `skip` tolerates.
const AWAY: Duration = Duration::from_secs(14);
/// Due times that are older than this are skipped.
const SKIPPED_MS: u64 = 10_000;

fn every_second(queue: &str) -> Schedule {
    Schedule {
        when: When::Cron { expression: "* * * * * *".into(), zone: "UTC".into() },
        queue: QueueName::new(queue).expect("a name"),
        payload: b"data".to_vec(),
        priority: 0,
        attempts_max: 0,
        catch_up: CatchUp::All,
    }
}

/// Index of the node that leads the metadata group.
async fn root_leader(cluster: &Cluster, client: &Client, places: &BTreeMap<NodeId, usize>) -> usize {
    let look = || async { Some(places[&client.cluster().await.ok()?.leader]) };
    let leader = eventually("the root has a leader", PATIENCE, look).await;
    assert!(leader < cluster.members().len());
    leader
}

async fn fired(client: &Client, most: u64) -> ScheduleView {
    let look = || async { client.schedule("tick").await.ok().filter(|view| view.fired >= most && view.pending == 0) };
    eventually("the schedule fires", PATIENCE, look).await
}

fn tick_of(task: &TaskView) -> u64 {
    let headers: BTreeMap<&str, &str> =
        task.spec.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers[SCHEDULE_HEADER], "tick");
    headers[TICK_HEADER].parse().expect("a number")
}

// O26, O27
/// The leader of the metadata group is killed while a schedule fires every second, and all seconds up to the last have one task each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_second_has_one_task_though_the_leader_is_killed() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    let mut places = BTreeMap::new();
    for place in 0..3 {
        places.insert(cluster.identity(&client, place).await, place);
    }
    client.set_schedule("tick", every_second("ticks")).await.expect("it is set");
    let mut so_far = fired(&client, 2).await;
    for _ in 0..KILLS {
        let leader = root_leader(&cluster, &client, &places).await;
        cluster.kill(leader);
        so_far = fired(&client, so_far.fired + 3).await;
        cluster.restart(leader);
        cluster.wait_ready(leader);
    }
    let paused = client.pause_schedule("tick", true).await.expect("it is paused");
    let over = fired(&client, paused.fired).await;
    let ticks: Vec<u64> = all_tasks(&client).await.iter().map(tick_of).collect();
    let different: BTreeSet<u64> = ticks.iter().copied().collect();
    assert_eq!(ticks.len(), different.len(), "no second has two tasks");
    let (first, last) = (*different.first().expect("some"), *different.last().expect("some"));
    let seconds: BTreeSet<u64> = (first..=last).step_by(1_000).collect();
    assert_eq!(different, seconds, "every second has one");
    assert!(first > over.since_ms && first <= over.since_ms + 1_000, "the first is the first that was due");
    assert_eq!((over.fired, over.missed, over.unsure), (different.len() as u64, 0, 0));
    client.remove_schedule("tick").await.expect("it is removed");
    assert!(client.schedules().await.expect("they are told").is_empty());
}

fn wall_ms() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_millis() as u64
}

// O26
/// Goal: times that were due while no node was up are handled according to each schedule: all of them, only the last, or none that is
/// too old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_caught_up_with_as_the_schedule_says() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    let catch_ups = [CatchUp::All, CatchUp::Last, CatchUp::Skip];
    let names = catch_ups.map(|catch_up| format!("{catch_up:?}"));
    for (name, catch_up) in names.iter().zip(catch_ups) {
        client.set_schedule(name, Schedule { catch_up, ..every_second(name) }).await.expect("it is set");
    }
    let fired = async |least: u64| {
        for name in &names {
            let look = || async { client.schedule(name).await.ok().filter(|view| view.fired >= least) };
            eventually("each fires", PATIENCE, look).await;
        }
    };
    fired(1).await;
    cluster.kill_together(&[0, 1, 2]);
    // Taken after the kill, which takes some time. Times that are due meanwhile may still fire in time.
    let gone_ms = wall_ms();
    until_instant(Instant::now() + AWAY).await;
    let back_ms = wall_ms();
    (0..3).for_each(|index| cluster.restart(index));
    (0..3).for_each(|index| cluster.wait_ready(index));
    // Each schedule fires again, for times after all that were missed.
    let later = async |name: &String| {
        let look = || async {
            let view = client.schedule(name).await.ok()?;
            (view.pending == 0 && view.through_ms > back_ms).then_some(view)
        };
        eventually("it has caught up", PATIENCE, look).await
    };
    let mut views = Vec::new();
    for name in &names {
        views.push(later(name).await);
    }
    let tasks = all_tasks(&client).await;
    let ticks = |name: &String| -> Vec<u64> {
        let of = tasks.iter().filter(|task| task.spec.queue.as_str() == name);
        of.filter_map(|task| task.spec.header(TICK_HEADER)?.parse().ok()).collect()
    };
    // Times around both moments may have fired in time.
    let away = |from_ms: u64, to_ms: u64| move |tick: &&u64| (from_ms..to_ms).contains(*tick);
    let (from_ms, to_ms) = (gone_ms + 1_000, back_ms - 1_000);
    let [all, last, skip] = [0, 1, 2].map(|place| ticks(&names[place]));
    let due = (from_ms.next_multiple_of(1_000)..to_ms).step_by(1_000).count();
    assert_eq!(all.iter().filter(away(from_ms, to_ms)).count(), due, "each has its task: {all:?}");
    assert!(last.iter().filter(away(from_ms, to_ms)).count() <= 1, "there is one at most: {last:?}");
    assert_eq!(skip.iter().filter(away(from_ms, back_ms - SKIPPED_MS)).count(), 0, "they are too old: {skip:?}");
    let missed: Vec<bool> = views.iter().map(|view| view.missed > 0).collect();
    assert_eq!(missed, [false, true, true], "{views:?}");
}

// O26
/// Commands as people type them: each verb, refusals with their reasons, and that a repeat changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verbs_set_show_and_refuse() {
    let cluster = Cluster::start();
    let cli = cluster.cli().patient();
    let set = ["schedule", "set", "backup", "jobs", "all of it", "--cron", "30 2 * * *", "--zone", "Europe/Berlin"];
    // A repeated call may find that the change is already made.
    let says = |words: &[&str], done: &str, again: &str| {
        let told = cli.run(words).done().stdout.clone();
        assert!(told.contains(done) || told.contains(again), "{told}");
        told
    };
    assert!(says(&set, "backup is set", "so already").contains("next "));
    says(&set, "so already", "so already");
    let refused = [
        (vec!["--cron", "30 25 * * *"], "hour"),
        (vec!["--cron", "0 0 30 2 *"], "never"),
        (vec!["--cron", "0 0 * * *", "--zone", "Europe/Atlantis"], "time zone"),
        (vec!["--at", "2001-01-01T00:00:00Z"], "past"),
    ];
    for (flags, why) in refused {
        let answer = cli.json(&[&["schedule", "set", "other", "jobs"], &flags[..]].concat());
        let message = answer.refusal(1)["message"].to_string();
        assert!(message.contains(why), "{flags:?}: {message}");
    }
    says(&["schedule", "pause", "backup"], "backup is paused", "so already");
    assert!(cli.run(&["schedule", "list"]).done().stdout.contains("Europe/Berlin"));
    says(&["schedule", "resume", "backup"], "backup goes on", "so already");
    let shown = cli.json(&["schedule", "show", "backup"]).object();
    assert_eq!((shown["next_ms"].as_array().map(Vec::len), &shown["paused"]), (Some(5), &false.into()));
    says(&["schedule", "remove", "backup"], "backup is removed", "no schedule backup");
    cli.json(&["schedule", "show", "backup"]).refusal(1);
}

/// Two workers of the example share the fired tasks, while a node is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nightly_example_works_for_each_time_once() {
    let mut cluster = Cluster::start();
    Example::start(&cluster, "nightly", &["set", "--cron", "* * * * * *"]).succeed();
    let (said, heard) = mpsc::channel();
    let workers: Vec<Example> = (0..2)
        .map(|_| {
            let mut worker = Example::start(&cluster, "nightly", &["work"]);
            let (out, said) = (worker.output(), said.clone());
            std::thread::spawn(move || {
                let lines = BufReader::new(out).lines().map_while(Result::ok);
                for line in lines {
                    if said.send(line.parse::<u64>().expect("a time")).is_err() {
                        break;
                    }
                }
            });
            worker
        })
        .collect();
    let next = || received("a time is worked for", &heard);
    let mut times: BTreeSet<u64> = (0..3).map(|_| next()).collect();
    cluster.kill(0);
    while times.len() < 6 {
        times.insert(next());
    }
    let span = (times.last().unwrap() - times.first().unwrap()) / 1_000 + 1;
    assert!(span >= 6 && times.iter().all(|time| time % 1_000 == 0), "{times:?}");
    drop(workers);
}
