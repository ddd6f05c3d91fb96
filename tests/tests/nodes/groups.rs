//! Groups and their join tasks, with real processes: through the library, and through the command line.

use norn_client::client::{Client, GroupMember};
use norn_client::session::Draft;
use norn_client::worker::{Context, HandlerOptions, Outcome, Summary, Worker};
use norn_tests::Cluster;
use norn_tests::cli::Cli;
use norn_tests::wait::{PATIENCE, eventually, found, within};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::{QueueName, State, TaskId};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

const MEMBERS: u32 = 20;
/// Number of the member that is reported as invalid.
const INVALID: u32 = 7;
/// Number of the member whose completion creates a group.
const PARENT: u32 = 4;
const LEASE: Duration = Duration::from_secs(15);
const LEASE_OF_PLATES: Duration = Duration::from_secs(25);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn queue_of(number: u32) -> &'static str {
    if number.is_multiple_of(2) { "plates" } else { "pages" }
}

/// Events that handlers saw, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Page(String),
    Invalid(Option<MemberOf>, String),
    /// The join task of the inner group.
    Inner(TaskId, Option<GroupView>),
    /// The join task of the outer group, with its members.
    Outer(TaskId, Option<GroupView>, Vec<(u32, Option<State>, String)>),
}

#[derive(Clone)]
struct Book {
    events: Arc<Mutex<Vec<Event>>>,
    /// The handler holds later pages back until this is true.
    go_on: watch::Receiver<bool>,
}

fn told(member: GroupMember) -> (u32, Option<State>, String) {
    let Some(task) = member.task else { return (member.number, None, String::new()) };
    let said = task.result.map(|result| result.into_vec()).or(task.reason.map(String::into_bytes));
    (member.number, Some(task.state), String::from_utf8(said.unwrap_or_default()).expect("text"))
}

impl Book {
    fn saw(&self, event: Event) {
        self.events.lock().expect("no panics").push(event);
    }

    async fn page(self, context: Context) -> Outcome {
        let lease = if context.queue().as_str() == "plates" { LEASE_OF_PLATES } else { LEASE };
        assert_eq!(Duration::from_millis(context.task().lease_ms), lease);
        let number = context.member_of().expect("it is a member").number;
        let name = String::from_utf8(context.payload().to_vec()).expect("text");
        if name == format!("page {INVALID}") {
            return Outcome::Invalid { reason: "it is blank".into() };
        }
        if name == format!("page {PARENT}") {
            let inner = (1..=3).map(|part| Draft::new(queue("pages"), format!("part {part}"))).collect();
            context.spawn_group(Draft::new(queue("chapters"), "inner"), inner).expect("it fits");
        } else if number > MEMBERS / 2 {
            self.go_on.clone().wait_for(|go_on| *go_on).await.expect("the test goes on");
        }
        self.saw(Event::Page(name.clone()));
        Outcome::Done(Some(format!("{name} is printed").into_bytes()))
    }

    async fn join(self, context: Context) -> Outcome {
        if context.payload() == b"inner" {
            self.saw(Event::Inner(context.id(), context.group()));
            return Outcome::Done(None);
        }
        let Ok(members) = context.members().await else {
            return Outcome::RetryLater { after: Duration::from_millis(100), reason: "members cannot be read".into() };
        };
        self.saw(Event::Outer(context.id(), context.group(), members.into_iter().map(told).collect()));
        Outcome::Done(Some(b"bound".to_vec()))
    }

    /// Runs a worker for all queues, until the test stops it.
    fn work(&self, client: &Client) -> (oneshot::Sender<()>, JoinHandle<Summary>) {
        let (stop, stopped) = oneshot::channel();
        let (pages, plates, joins, plain, invalid) =
            (self.clone(), self.clone(), self.clone(), self.clone(), self.clone());
        let worker = Worker::new(client.clone())
            .concurrency(MEMBERS as usize + 4)
            .lease(LEASE)
            .poll(Duration::from_millis(500))
            .handler("pages", move |context| pages.clone().page(context))
            .handler_with("plates", HandlerOptions::new().lease(LEASE_OF_PLATES), move |context| {
                plates.clone().page(context)
            })
            .handler("chapters", move |context| plain.clone().page(context))
            .group_handler("chapters", move |context| joins.clone().join(context))
            .invalid_handler(move |context: Context, reason| {
                invalid.saw(Event::Invalid(context.member_of(), reason));
                std::future::ready(())
            });
        let run = worker.run_until(async { stopped.await.expect("the test stops it") });
        (stop, tokio::spawn(async { run.await.expect("the settings are right") }))
    }
}

/// Opens a group and enqueues all its members. Repeating this yields the same tasks.
async fn generate(client: &Client) -> (TaskId, Vec<TaskId>) {
    let join = Draft::new(queue("chapters"), "outer").join(None, false);
    let group = client.open_group(join, "the book").await.expect("the cluster serves");
    let mut ids = Vec::new();
    for number in 1..=MEMBERS {
        let draft = Draft::new(queue(queue_of(number)), format!("page {number}")).member_of(group, number);
        ids.push(client.enqueue(draft).await.expect("the cluster serves").id);
    }
    (group, ids)
}

async fn ended(client: &Client, id: TaskId) -> State {
    let over = |state: &State| matches!(state, State::Done | State::Dead | State::Cancelled);
    let look = || async { client.get(id).await.ok().map(|task| task.state).filter(over) };
    eventually("the task ends", PATIENCE, look).await
}

/// A group of twenty members in two queues, with one invalid member and one that creates another group, is joined once, after all
/// members and the other group's join, though a node is killed while half of the members are held. The join reads the result of each
/// member.
// O8, O17, O18, O19, O21, O22, O23, O24, O32, O33, O35, O36
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_comes_behind_its_group_and_those_that_its_members_bring() {
    let mut cluster = Cluster::start();
    let client = cluster.client().await;
    let (go_on, held) = watch::channel(false);
    let book = Book { events: Arc::default(), go_on: held };
    let (group, ids) = generate(&client).await;
    let (stop, running) = book.work(&client);
    let half = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Page(_))).count() > 8;
    let look = || async { half(&book.events.lock().expect("no panics")).then_some(()) };
    eventually("half of the pages are printed", PATIENCE, look).await;
    assert_eq!(generate(&client).await, (group, ids.clone()), "the same again is the same");
    client.close_group(group, MEMBERS).await.expect("the cluster serves");
    assert_eq!(client.get(group).await.expect("the cluster serves").state, State::Waiting);
    cluster.kill(2);
    go_on.send_replace(true);
    assert_eq!(ended(&client, group).await, State::Done);
    stop.send(()).expect("it runs");
    running.await.expect("it ends well");

    let events = book.events.lock().expect("no panics").clone();
    let inner = check_events(&events, group);
    let parent = client.get(ids[PARENT as usize - 1]).await.expect("the cluster serves");
    assert!(parent.children.contains(&inner) && parent.children.len() == 4, "{parent:?}");
    let count = |name: &str| client.count(Some(queue(name)), None);
    let counts = (count("pages").await.ok(), count("plates").await.ok(), count("chapters").await.ok());
    assert_eq!(counts, (Some(13), Some(10), Some(2)), "each is there once");
}

/// Checks the events, and returns the id of the inner join task.
fn check_events(events: &[Event], group: TaskId) -> TaskId {
    let joins = events.iter().filter_map(|event| match event {
        Event::Inner(id, view) | Event::Outer(id, view, _) => Some((*id, *view)),
        Event::Page(_) | Event::Invalid(..) => None,
    });
    let joins: Vec<(TaskId, Option<GroupView>)> = joins.collect();
    let [inner, outer] = joins[..] else { panic!("each join runs once: {events:?}") };
    let view = |total, failed| Some(GroupView { total: Some(total), ended: total, failed });
    assert_eq!((inner.1, outer), (view(3, 0), (group, view(MEMBERS, 1))), "the inner one comes first");
    let Some(Event::Outer(_, _, members)) = events.last() else { panic!("it comes last: {events:?}") };
    for (place, member) in members.iter().enumerate() {
        let number = place as u32 + 1;
        let expected = match number {
            INVALID => (number, Some(State::Dead), "invalid: it is blank".to_owned()),
            _ => (number, Some(State::Done), format!("page {number} is printed")),
        };
        assert_eq!(*member, expected);
    }
    assert_eq!(members.len(), MEMBERS as usize);
    let invalid = Event::Invalid(Some(MemberOf { group, number: INVALID }), "it is blank".into());
    assert!(events.contains(&invalid), "{events:?}");
    for part in 1..=3 {
        assert!(events.contains(&Event::Page(format!("part {part}"))), "{events:?}");
    }
    inner.0
}

/// One member of a fail-fast group fails: members that no worker has begun are cancelled, and the join runs.
// O31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failure_ends_a_group_that_says_so() {
    let cluster = Cluster::start();
    let client = cluster.client().await;
    let join = Draft::new(queue("sums"), "sum").join(Some(5), true);
    let group = client.open_group(join, "terms").await.expect("the cluster serves");
    for number in 1..=5 {
        let draft = Draft::new(queue("terms"), "term").member_of(group, number);
        // The other members would be due in an hour.
        let delay_ms = if number == 3 { 0 } else { 3_600_000 };
        client.enqueue(draft.delay_ms(delay_ms)).await.expect("the cluster serves");
    }
    let (told, sum) = oneshot::channel();
    let told = Arc::new(Mutex::new(Some(told)));
    let worker = Worker::new(client.clone())
        .handler("terms", async |_: Context| Outcome::Invalid { reason: "no number".into() })
        .handler("sums", move |context: Context| {
            let told = Arc::clone(&told);
            async move {
                let members = context.members().await.expect("the cluster serves").into_iter();
                let states = members.map(|member| member.task.map(|task| task.state)).collect::<Vec<_>>();
                if let Some(told) = told.lock().expect("no panics").take() {
                    told.send((context.group(), states)).expect("the test waits");
                }
                Outcome::Done(None)
            }
        });
    let (group_of_sum, states) = {
        let seen = Arc::new(Mutex::new(None));
        let sees = Arc::clone(&seen);
        let until = async move {
            let sum = within("the join runs", PATIENCE, sum).await.expect("it tells");
            *sees.lock().expect("no panics") = Some(sum);
        };
        worker.run_until(until).await.expect("the settings are right");
        seen.lock().expect("no panics").take().expect("it was told")
    };
    assert_eq!(group_of_sum, Some(GroupView { total: Some(5), ended: 5, failed: 5 }));
    let expected = [State::Cancelled, State::Cancelled, State::Dead, State::Cancelled, State::Cancelled];
    assert_eq!(states, expected.map(Some));
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Enqueues a member as a script does; returns its id and the group's.
fn enqueue(cli: &Cli, number: u32) -> (String, String) {
    let (number, data) = (number.to_string(), format!("line {number}"));
    let mut words = vec!["enqueue", "lines", &data, "--group", "poem", "--number", &number, "--join", "poems"];
    if number == "5" {
        words.extend(["--total", "5"]);
    }
    let answer = cli.json(&words).done().object();
    (text(&answer["id"]), text(&answer["group"]))
}

/// Claims until this number of tasks of a queue is held.
fn claim(cli: &Cli, name: &str, count: usize) -> Vec<Value> {
    let mut tasks = Vec::new();
    found("the tasks can be claimed", || {
        let max = (count - tasks.len()).to_string();
        let claimed = cli.claim(&[name, "--max", &max, "--wait", "2s", "--lease", "60s"]);
        tasks.extend(claimed.lines().into_iter().filter(|line| line["token"].is_string()));
        (tasks.len() == count).then_some(())
    });
    tasks
}

fn why(cli: &Cli, id: &str) -> Value {
    cli.json(&["why", id]).done().lines().remove(0)
}

/// A script generates a group by name, twice, and only the last member states the number of members.
// O17, O18, O19, O20, O21, O22, O28, O29, O34, O36
#[test]
fn a_script_generates_a_group_by_name() {
    let cluster = Cluster::start();
    let (cli, other) = (cluster.cli_at(0).patient(), cluster.cli_at(1).patient());
    let first: Vec<_> = (1..=4).map(|number| enqueue(&cli, number)).collect();
    let group = first[0].1.clone();
    assert_eq!(why(&cli, &group)["cause"], "group_open");
    let last = enqueue(&cli, 5);
    let ids: Vec<(String, String)> = first.into_iter().chain([last]).collect();
    let again: Vec<_> = (1..=5).map(|number| enqueue(&other, number)).collect();
    assert_eq!(again, ids, "the same again is the same");
    assert_eq!(ids.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len(), 5);
    let known = cli.json(&["enqueue", "lines", "line 2", "--group-id", &group, "--number", "2"]).done().object();
    assert_eq!((text(&known["id"]), text(&known["group"])), ids[1]);
    let words = ["enqueue", "lines", "line 6", "--group", "poem", "--number", "6", "--join", "poems"];
    assert_eq!(cli.json(&words).refusal(1)["code"], "conflict");
    assert_eq!(cli.json(&["count", "lines"]).done().object()["count"], 5);
    let waits = why(&cli, &group);
    assert_eq!((&waits["cause"], &waits["missing"]), (&json!("waits_for"), &json!([1, 2, 3, 4, 5])), "{waits}");

    for task in claim(&cli, "lines", 5) {
        let (id, token, data) = (text(&task["id"]), text(&task["token"]), text(&task["data"]));
        assert_eq!(text(&task["member_of"]["group"]), group);
        match task["member_of"]["number"].as_u64() {
            Some(3) => cli.json(&["fail", &id, &token, "--invalid", "--reason", "no rhyme"]).done(),
            _ => cli.json(&["complete", &id, &token, "--result", &data.to_uppercase()]).done(),
        };
    }
    let join = claim(&cli, "poems", 1).remove(0);
    assert_eq!((text(&join["id"]), text(&join["data"])), (group.clone(), "poem".to_owned()));
    assert_eq!(join["group"], json!({"total": 5, "ended": 5, "failed": 1}));
    let members = cli.json(&["members", &group]).done().lines();
    let told = |member: &Value| (text(&member["id"]), text(&member["state"]), member["result"].clone());
    let expected = |place: usize| match place {
        2 => (ids[2].0.clone(), "dead".to_owned(), Value::Null),
        _ => (ids[place].0.clone(), "done".to_owned(), json!(format!("LINE {}", place + 1))),
    };
    assert_eq!(members.iter().map(told).collect::<Vec<_>>(), (0..5).map(expected).collect::<Vec<_>>());
    assert_eq!(members[2]["reason"], "invalid: no rhyme");
    assert_eq!(cli.claim(&["poems"]).code, Some(4), "there is one join");

    let words = ["enqueue", "sequels", "x", "--group", "next", "--number", "1", "--total", "1", "--after", &group];
    cli.json(&words).done();
    assert_eq!(cli.claim(&["sequels"]).code, Some(4), "the next group begins when this one ends");
    completes_with_a_group(&cli, &group, &text(&join["token"]));
    claim(&cli, "sequels", 1);
    let (_, next) = enqueue(&cli, 1);
    assert_ne!(next, group, "the group has ended, and its name is free");
}

/// The completion of the join task creates another group.
fn completes_with_a_group(cli: &Cli, id: &str, token: &str) {
    let file = cli.directory().join("then.json");
    let tasks = r#"[{"queue": "copies", "number": 1}, {"queue": "copies", "number": 2}, {"queue": "shop", "join": {"total": 2}}]"#;
    std::fs::write(&file, tasks).expect("the directory is there");
    cli.json(&["complete", id, token, "--then", file.to_str().expect("a path")]).done();
    for task in claim(cli, "copies", 2) {
        cli.json(&["complete", &text(&task["id"]), &text(&task["token"])]).done();
    }
    let join = claim(cli, "shop", 1).remove(0);
    assert_eq!(join["group"], json!({"total": 2, "ended": 2, "failed": 0}));
}
