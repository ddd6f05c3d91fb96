//! Text ids: tasks by their types and names, with real processes.

use norn_client::session::Draft;
use norn_client::worker::{Context, Outcome, Worker};
use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, eventually, found};
use norn_wire::{QueueName, State, TextId};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn enqueue(cli: &Cli, queue: &str, id: &str) -> String {
    text(&cli.json(&["enqueue", queue, "all", "--id", id]).done().object()["id"])
}

fn claim(cli: &Cli, queue: &str) -> Value {
    found("a task can be claimed", || {
        let claimed = cli.claim(&[queue, "--wait", "2s", "--lease", "60s"]);
        claimed.lines().into_iter().find(|line| line["token"].is_string())
    })
}

/// Goal: scripts on several machines name a task by its type and name alone. Method: each goes through another node.
// O34
#[test]
fn one_open_task_has_a_name_that_every_node_resolves() {
    let cluster = Cluster::start();
    let clis: Vec<Cli> = (0..3).map(|place| cluster.cli_at(place).patient()).collect();
    let first = enqueue(&clis[0], "recon", "recon/system-x");
    assert_eq!(enqueue(&clis[1], "recon", "recon/system-x"), first, "it has not ended");
    let other = enqueue(&clis[2], "recon", "recon/system-y");
    assert_ne!(other, first);
    let shown = clis[2].json(&["get", "recon/system-x"]).done().object();
    assert_eq!((text(&shown["id"]), text(&shown["headers"]["norn-id"])), (first.clone(), "recon/system-x".to_owned()));
    assert_eq!(clis[1].json(&["cancel", "recon/system-y"]).done().object()["id"], Value::from(other));

    let claimed = claim(&clis[1], "recon");
    assert_eq!(
        (text(&claimed["id"]), text(&claimed["headers"]["norn-id"])),
        (first.clone(), "recon/system-x".to_owned())
    );
    clis[0].json(&["complete", "recon/system-x", &text(&claimed["token"])]).done();
    let ended = clis[2].json(&["get", "recon/system-x"]).done().object();
    assert_eq!((text(&ended["id"]), text(&ended["state"])), (first.clone(), "done".to_owned()));

    let next = enqueue(&clis[2], "recon", "recon/system-x");
    assert_ne!(next, first, "the name is free again");
    assert_eq!(text(&clis[0].json(&["get", "recon/system-x"]).done().object()["id"]), next, "the newest is meant");
    assert_eq!(clis[0].json(&["get", "recon/system-z"]).refusal(1)["code"], "not_found");
}

/// Goal: the members of a group and its join are known by type, group, number and total. Method: the library enqueues and works, and the
/// command line asks.
// O34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_group_are_known_by_their_numbers() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let pages = QueueName::new("pages").expect("a name");
    let id = |number| TextId::member(pages.clone(), "book-7", number, 3).expect("a text id");
    let mut members = Vec::new();
    for number in [1, 2, 3, 2] {
        let draft = Draft::new(pages.clone(), format!("page {number}"));
        members.push(client.enqueue_as(&id(number), draft).await.expect("the cluster serves").id);
    }
    assert_eq!(members[3], members[1], "the same again is the same");
    assert_eq!(client.find(&id(2)).await.expect("the cluster serves"), Some(members[1]));
    let cli = cluster.cli_at(1).patient();
    let join = text(&cli.json(&["get", "pages/book-7/3/3"]).done().object()["member_of"]["group"]);
    assert_eq!(cli.json(&["get", &join]).done().object()["group"]["total"], 3, "it is closed");

    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let handler = move |context: Context| {
        let of = context.group().map(|group| group.ended);
        sees.lock().expect("no panics").push((context.text_id().map(|id| id.to_string()), of));
        std::future::ready(Outcome::Done(None))
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(client.clone()).handler("pages", handler);
    let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let join = join.parse().expect("an id");
    eventually("the join is done", PATIENCE, || async {
        (client.get(join).await.ok()?.state == State::Done).then_some(())
    })
    .await;
    stop.send(()).expect("the worker runs");
    running.await.expect("no panics").expect("the settings are right");
    let mut seen = seen.lock().expect("no panics").clone();
    assert_eq!(seen.pop(), Some((None, Some(3))), "the join comes last, and has no text id");
    seen.sort();
    let member = |number: u32| (Some(format!("pages/book-7/{number}/3")), None);
    assert_eq!(seen, [1, 2, 3].map(member));
}
