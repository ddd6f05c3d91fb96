//! Watches, with real processes: through the library while nodes are killed, and through the command line.

use norn_client::client::{ClaimOptions, Client, CompleteOptions, Watch};
use norn_client::session::{Draft, WatchNews};
use norn_tests::Cluster;
use norn_tests::cli::{Answer, Cli};
use norn_tests::wait::{Deadline, PATIENCE, eventually, found, moment, within};
use norn_wire::{Acks, QueueName, State, Subject, TaskId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const TASKS: usize = 60;
/// Short, because a grant may be lost when a node is killed, and its task is claimable only after the lease.
const LEASE: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

fn mail() -> QueueName {
    QueueName::new("mail").expect("a name")
}

/// Enqueues tasks and ends them, each third one by a cancellation; returns their final states.
async fn work(client: &Client) -> BTreeMap<TaskId, State> {
    let mut ended = BTreeMap::new();
    for number in 0..TASKS {
        let id = client.enqueue(Draft::new(mail(), format!("letter {number}"))).await.expect("the cluster serves").id;
        if number % 3 == 0 {
            client.cancel(id, "enough", Acks::Quorum).await.expect("the cluster serves");
            ended.insert(id, State::Cancelled);
        }
    }
    while ended.len() < TASKS {
        let options = ClaimOptions::new([mail()]).lease(LEASE).wait(Duration::from_secs(5)).max(10);
        for task in client.claim(options).await.expect("the cluster serves").tasks {
            let done = CompleteOptions::new(task.granted.id, task.granted.token).result("sent");
            client.complete(done).await.expect("the cluster serves");
            ended.insert(task.granted.id, State::Done);
        }
    }
    ended
}

/// Reads events until all of these endings were reported.
async fn hear(watch: &mut Watch, wanted: &BTreeMap<TaskId, State>, told: &mut BTreeMap<TaskId, State>) {
    let deadline = Deadline::after(PATIENCE);
    while !wanted.iter().all(|(id, state)| told.get(id) == Some(state)) {
        let missing = wanted.keys().filter(|id| !told.contains_key(*id)).count();
        let what = format!("{missing} more endings are told");
        deadline.check(|| what.clone());
        match within(&what, PATIENCE, watch.next()).await {
            Ok(WatchNews::Event(event)) if matches!(event.state, State::Ready | State::Claimed) => {}
            Ok(WatchNews::Event(event)) => {
                assert_eq!(told.insert(event.id, event.state), None, "each ending is told once");
                let result = event.result.map(|result| result.into_vec());
                match event.state {
                    State::Done => assert_eq!(result.as_deref(), Some(&b"sent"[..])),
                    _ => assert_eq!(event.reason.as_deref(), Some("enough")),
                }
            }
            Ok(WatchNews::Lagged) => panic!("one node at a time was away"),
            Ok(WatchNews::Silent(_)) => {}
            Err(error) => assert!(error.passes(), "{error}"),
        }
    }
}

/// Goal: a watch misses no ending while nodes are killed, including leaders and the node that the watching client uses. Method: each
/// node in turn is killed during work and restarted. In the end all have been restarted, and the watch is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_misses_no_ending_while_one_node_after_the_other_is_killed() {
    let mut cluster = Cluster::start();
    let watching = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
    let mut watch = watching.watch(Subject::Queue(mail())).await.expect("the cluster serves");
    let (mut wanted, mut told) = (BTreeMap::new(), BTreeMap::new());
    for victim in 0..3 {
        let client = cluster.client_of(cluster.addresses(), CALL_TIMEOUT).await;
        let (ended, ()) = tokio::join!(work(&client), async {
            moment().await;
            cluster.kill(victim);
        });
        wanted.extend(ended);
        hear(&mut watch, &wanted, &mut told).await;
        cluster.restart(victim);
        cluster.wait_ready(victim);
        cluster.wait_agreed().await;
        // A restarted node becomes complete by comparisons, one per call.
        let members = cluster.members();
        cluster.wait_led(&members, &members).await;
        for _ in 0..6 {
            let id = client.enqueue(Draft::new(mail(), "one more")).await.expect("the cluster serves").id;
            client.cancel(id, "enough", Acks::All).await.expect("the cluster serves");
            wanted.insert(id, State::Cancelled);
            hear(&mut watch, &wanted, &mut told).await;
        }
    }
    assert_eq!(told, wanted);
}

/// Waits until the node has received this number of watch calls.
async fn wait_watched(cli: &Cli, calls: u64) {
    let look = || async {
        let counters = cli.json(&["status"]).done().object()["counters"].clone();
        counters["watch"].as_u64().is_some_and(|watched| watched >= calls).then_some(())
    };
    eventually("somebody watches", PATIENCE, look).await;
}

/// The task that a claim returned, if any.
fn held(answer: &Answer) -> Option<Value> {
    answer.lines().into_iter().find(|line| line["token"].is_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_a_queue_and_a_group_until_it_has_ended() {
    let cluster = Cluster::start();
    let cli = cluster.cli_at(0).patient();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let queue = cli.clone();
    let queue = std::thread::spawn(move || queue.json(&["watch", "mail", "--limit", "3", "--timeout", "20s"]));
    wait_watched(&cli, 2).await;
    let id = text(&cli.json(&["enqueue", "mail", "hello"]).done().object()["id"]);
    let claimed = found("the task is claimed", || held(&cli.claim(&["mail", "--wait", "5s"])));
    cli.json(&["complete", &id, &text(&claimed["token"]), "--result", "sent"]).done();
    let lines = queue.join().expect("it ends").done().lines();
    assert_eq!(lines[0]["watch"], "begun");
    let events: Vec<&Value> = lines.iter().filter(|line| line["state"].is_string()).collect();
    assert!(events.len() <= 3 && events.iter().all(|event| event["id"] == id.as_str()), "{lines:?}");
    // A revoked grant or a change of leader may repeat an event, and then the third event may be a repeat.
    let done = events.iter().any(|event| event["state"] == "done" && event["result"] == "sent");
    assert!(done || events.len() == 3, "{lines:?}");

    let member = ["enqueue", "mail", "page", "--group", "book", "--number", "1", "--join", "books", "--total", "1"];
    let member = cli.json(&member).done().object();
    let (id, group) = (text(&member["id"]), text(&member["group"]));
    let watching = (cli.clone(), group.clone());
    let before = cli.json(&["status"]).done().object()["counters"]["watch"].as_u64().expect("a number");
    let watching = std::thread::spawn(move || watching.0.json(&["watch", "--group", &watching.1]));
    wait_watched(&cli, before + 2).await;
    for (task, queue) in [(&id, "mail"), (&group, "books")] {
        let claimed = found("it is claimed", || held(&cli.claim(&[queue, "--wait", "5s"])));
        assert_eq!(claimed["id"], task.as_str());
        cli.json(&["complete", task, &text(&claimed["token"])]).done();
    }
    let lines = watching.join().expect("it ends").done().lines();
    let ended: Vec<&Value> = lines.iter().filter(|line| line["state"] == "done").map(|line| &line["id"]).collect();
    assert!(ended.contains(&&Value::from(id)) && ended.last() == Some(&&Value::from(group)), "{lines:?}");
}
