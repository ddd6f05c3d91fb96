//! Goal: the typed calls do what they promise. Method: calls against a node with scripted answers.

mod letters;
mod many;
mod verbs;

use super::*;
use crate::connection::testing::{Certificates, Node, Reply};
use norn_wire::error::ErrorCode;
use norn_wire::ids::{ClusterId, NodeId, QueueName};
use norn_wire::membership::{Changed, ClusterChange, ClusterView, Roster, Settings};
use norn_wire::response::{Guarantee, Page, QueueCounts, State, TaskView};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const WORKERS: &str = include_str!("../../docs/workers.md");

fn mail() -> QueueName {
    "mail".parse().unwrap()
}

fn token() -> Token {
    Token { epoch: 1, number: 2 }
}

fn granted(id: TaskId, lease_ms: u64) -> Granted {
    Granted {
        id,
        token: token(),
        queue: mail(),
        payload: b"hello".to_vec(),
        priority: 0,
        headers: Vec::new(),
        attempt: 1,
        lease_ms,
        updates: Vec::new(),
        grouping: None,
        group: None,
    }
}

fn view(id: TaskId) -> TaskView {
    TaskView {
        id,
        state: State::Ready,
        spec: Draft::new(mail(), "").spec,
        claims: Vec::new(),
        updates: Vec::new(),
        result: None,
        reason: None,
        log_incomplete: false,
        conflict: false,
        children: Vec::new(),
        children_open: false,
        redriven: Vec::new(),
        waits_for: Vec::new(),
        group: None,
        version: None,
        ended_ms: None,
        next_attempt_ms: None,
        lost: None,
    }
}

fn cluster() -> ClusterView {
    ClusterView {
        cluster: ClusterId(9),
        name: "dev".into(),
        roster: Roster::default(),
        voters: vec![NodeId(1)],
        leader: NodeId(1),
        heard: vec![NodeId(1)],
        replicas: 3,
        settings: Settings::default(),
        layout: 2,
        stale: false,
        shares: BTreeMap::new(),
        moving: Vec::new(),
        open: 0,
        unknown: 0,
    }
}

fn acked_item(id: TaskId) -> Result<Acked, Error> {
    Ok(Acked { id, acks: 2, replicas: 3, guarantee: Guarantee::Strict })
}

/// Whether a request repeats an earlier one, as the session does when an answer takes too long.
fn is_repeat(later: &Request, earlier: &Request) -> bool {
    match (later, earlier) {
        // The remaining wait is shorter each time.
        (Request::Claim(later), Request::Claim(earlier)) => later.claim == earlier.claim,
        (Request::Wait { id: later, .. }, Request::Wait { id: earlier, .. }) => later == earlier,
        _ => later == earlier,
    }
}

/// A node whose answers fit; records the requests, except repeats.
async fn bench(answer: impl Fn(&Request) -> Reply + Send + 'static) -> (Client, Arc<Mutex<Vec<Request>>>, Node) {
    let certificates = Certificates::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let node = Node::start(&certificates, move |request| {
        let reply = answer(&request);
        let mut seen = seen.lock().unwrap();
        if !seen.iter().any(|earlier| is_repeat(&request, earlier)) {
            seen.push(request);
        }
        reply
    });
    (certificates.client(&[&node]).await, requests, node)
}

#[tokio::test]
async fn large_batches_are_cut_and_their_results_keep_their_order() {
    let (client, requests, _node) = bench(|request| match request {
        Request::Enqueue { tasks, .. } => {
            Reply::Answer(Response::Acked(tasks.iter().map(|task| acked_item(task.id)).collect()))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let drafts: Vec<Draft> = (0..2_500).map(|number| Draft::new(mail(), format!("{number}"))).collect();
    let results = client.enqueue_many(drafts, Acks::One).await;
    let ids: Vec<TaskId> = results.into_iter().map(|result| result.unwrap().id).collect();
    assert!(ids.len() == 2_500 && ids.is_sorted_by(|left, right| left < right));
    let sent: Vec<usize> = requests
        .lock()
        .unwrap()
        .drain(..)
        .map(|request| match request {
            Request::Enqueue { tasks, .. } => tasks.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sent, [1_000, 1_000, 500]);
    let large = vec![Draft::new(mail(), vec![0; limits::PAYLOAD_BYTES_MAX]); 9];
    assert!(client.enqueue_many(large, Acks::One).await.iter().all(Result::is_ok));
    assert_eq!(requests.lock().unwrap().len(), 2);
    let refused = client.enqueue(Draft::new(mail(), vec![0; limits::PAYLOAD_BYTES_MAX + 1])).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::Invalid);
}

/// Goal: a lease counts from the call, or from a renewal after a long wait, with a margin for slow clocks.
#[tokio::test]
async fn leases_count_from_the_call_or_from_a_renewal_behind_a_long_wait() {
    let (lease, shortest) = (Duration::from_secs(10), Duration::from_millis(50));
    let after = |wait: Duration| {
        move |request: &Request| match request {
            Request::Claim(claim) => {
                let tasks = vec![granted(TaskId::MIN, claim.lease_ms)];
                Reply::AnswerAfter(wait, Response::Claimed { tasks, unavailable: 0, left: 0 })
            }
            Request::Renew { items, lease_ms } => {
                assert_eq!((items.len(), *lease_ms), (1, None));
                Reply::AnswerAfter(shortest, Response::Renewed(vec![Ok(10_000)]))
            }
            other => panic!("{other:?}"),
        }
    };
    for wait in [shortest, Duration::from_secs(2)] {
        let (client, requests, _node) = bench(after(wait)).await;
        let before = Instant::now();
        let options = ClaimOptions::new([mail()]).lease(lease).wait(Duration::from_secs(60));
        let claims = client.claim(options).await.unwrap();
        let (expires, now) = (claims.tasks[0].expires, Instant::now());
        let renewed = requests.lock().unwrap().iter().any(|request| matches!(request, Request::Renew { .. }));
        assert!(renewed || now < before + Duration::from_secs(2), "a wait that is long is followed by a renewal");
        let from = if renewed { before + wait } else { before };
        assert!(expires >= from + lease - lease / 500, "{:?}", expires - before);
        assert!(expires < now - shortest + lease, "{:?}: it does not count from the answer", expires - now);
        let expires = client.renew(TaskId::MIN, token(), None).await.unwrap();
        assert!(expires > claims.tasks[0].expires && expires < Instant::now() - shortest + lease);
    }
}

/// Goal: a wait continues if a node answers early that there is no task.
#[tokio::test]
async fn a_wait_that_a_node_ends_early_goes_on() {
    let (client, requests, _node) = bench(move |request| match request {
        Request::Claim(_) => Reply::Answer(Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 }),
        other => panic!("{other:?}"),
    })
    .await;
    let (wait, started) = (Duration::from_millis(450), Instant::now());
    let claims = client.claim(ClaimOptions::new([mail()]).wait(wait)).await.unwrap();
    assert!(claims.tasks.is_empty() && started.elapsed() >= wait);
    assert!(requests.lock().unwrap().len() > 1);
}

/// Goal: a task granted to a dropped future goes to another worker. Before the answer, the call is cancelled.
#[tokio::test]
async fn a_claim_whose_future_is_dropped_is_left() {
    let (client, _, node) = bench(move |request| match request {
        Request::Claim(_) => Reply::Silence,
        other => panic!("{other:?}"),
    })
    .await;
    let options = ClaimOptions::new([mail()]).wait(Duration::from_secs(60));
    assert!(tokio::time::timeout(Duration::from_millis(300), client.claim(options)).await.is_err());
    let deadline = Instant::now() + Duration::from_secs(60);
    while node.leaves.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < deadline, "it is not left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn each_verb_sends_its_request_and_reads_its_answer() {
    let id = TaskId::new(5, 5, 5, 5);
    let (client, requests, _node) = bench(move |request| {
        let one = || Response::AckedOne(acked_item(id).unwrap());
        Reply::Answer(match request {
            Request::Update { .. } | Request::Cancel { .. } | Request::Purge { .. } => one(),
            Request::Complete { items, .. } => Response::Acked(items.iter().map(|item| acked_item(item.id)).collect()),
            Request::Fail { .. } | Request::Release { .. } => Response::Done,
            Request::Get { id, .. } | Request::Wait { id, .. } => Response::Task(Box::new(view(*id))),
            Request::Queues => {
                Response::Queues(vec![QueueCounts { queue: mail(), counts: [1; 6], permit_in_ms: None }])
            }
            Request::Nodes => Response::Nodes(Vec::new()),
            Request::Ring | Request::Partitions => Response::Partitions(Vec::new()),
            Request::Cluster => Response::Cluster(Box::new(cluster())),
            Request::Change { dry_run, .. } => {
                let view = Box::new(cluster());
                Response::Changed(Box::new(Changed { already: *dry_run, version: 3, view, membership: None }))
            }
            other => Response::Error(Error::invalid(other.verb())),
        })
    })
    .await;
    client.update(id, token(), 3, "entry", Acks::One).await.unwrap();
    client.complete(CompleteOptions::new(id, token()).result("sent").sequence(4).acks(Acks::All)).await.unwrap();
    let many = vec![CompleteOptions::new(id, token()); 3];
    assert_eq!(client.complete_many(many, Acks::One).await.len(), 3);
    client.fail(FailOptions::new(id, token()).reason("why").retry_in(Duration::from_secs(1))).await.unwrap();
    client.release(id, token()).await.unwrap();
    client.cancel(id, "why", Acks::Quorum).await.unwrap();
    client.purge(id, Acks::Quorum).await.unwrap();
    assert_eq!(client.get(id).await.unwrap().id, id);
    assert_eq!(client.wait(id, Duration::from_secs(1)).await.unwrap().id, id);
    assert_eq!(client.queues().await.unwrap()[0].counts, [1; 6]);
    client.nodes().await.unwrap();
    client.ring().await.unwrap();
    client.partitions().await.unwrap();
    assert_eq!(client.cluster().await, Ok(cluster()));
    let change = ClusterChange::Replicas { replicas: 5 };
    assert!(client.dry_run(change.clone()).await.unwrap().already && !client.change(change).await.unwrap().already);
    assert_eq!(client.status().await.unwrap_err().code, ErrorCode::Invalid);
    let verbs: Vec<&str> = requests.lock().unwrap().iter().map(Request::verb).collect();
    let expected = [
        "update",
        "complete",
        "complete",
        "fail",
        "release",
        // A cancellation reads the task first. The read after it equals the one of the task itself.
        "get",
        "cancel",
        "purge",
        "wait",
        "queues",
        "nodes",
        "ring",
        "partitions",
        "cluster",
        "change",
        "change",
        "status",
    ];
    assert_eq!(verbs, expected);
    let requests = requests.lock().unwrap();
    let Request::Complete { items, acks: Acks::All } = &requests[1] else { panic!("{:?}", requests[1]) };
    let now_ms = crate::connection::testing::now_ms();
    assert!(items[0].at_ms.abs_diff(now_ms) < 60_000 && items[0].sequence == Some(4));
}

#[tokio::test]
async fn a_list_goes_through_all_pages() {
    let (client, requests, _node) = bench(|request| match request {
        Request::List { after, limit, .. } => {
            let first = after.map_or(0, |id| id.time_ms() + 1);
            let last = (first + u64::from(*limit)).min(25);
            let ids = (first..last).map(|time_ms| TaskId::new(time_ms, 0, 0, 0));
            let tasks: Vec<TaskView> = ids.map(view).collect();
            let next = if last < 25 { tasks.last().map(|task| task.id) } else { None };
            Reply::Answer(Response::Page(Page { tasks, next }))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let mut listing = client.list(ListOptions::new().page(10).queue(mail()));
    let mut times = Vec::new();
    while let Some(task) = listing.next().await.unwrap() {
        times.push(task.id.time_ms());
    }
    assert!(times.into_iter().eq(0..25));
    assert_eq!(requests.lock().unwrap().len(), 3);
    assert_eq!(listing.next_page().await, Ok(None));
}

#[tokio::test]
async fn an_answer_of_another_kind_is_an_error() {
    let (client, _, _node) = bench(|_| Reply::Answer(Response::Done)).await;
    assert_eq!(client.count(None, None).await.unwrap_err().code, ErrorCode::Unknown);
    assert_eq!(client.enqueue(Draft::new(mail(), "")).await.unwrap_err().code, ErrorCode::Unknown);
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_is_told() {
    let certificates = Certificates::new();
    let good = certificates.config(&["localhost:1".into()]);
    let fails = async |change: fn(&mut ClientConfig)| {
        let mut config = good.clone();
        change(&mut config);
        Client::connect(config).await.unwrap_err().to_string()
    };
    assert!(fails(|config| config.addresses.clear()).await.contains("no address"));
    assert!(fails(|config| config.addresses = vec!["localhost".into()]).await.contains("HOST:PORT"));
    assert!(fails(|config| config.ca.push("none")).await.contains("ca.pem/none"));
    assert!(fails(|config| config.key.clone_from(&config.ca)).await.contains("ca.pem"));
    assert!(fails(|config| config.certificate.clone_from(&config.key)).await.contains("no certificate"));
    assert!(fails(|config| config.key.set_file_name("node.key")).await.contains("certificate and key"));
}

/// Goal: an operator learns which node has an expired certificate, and when it expired.
#[tokio::test]
async fn a_node_whose_certificate_has_expired_is_named_with_the_date() {
    let certificates = Certificates::with(|node| node.not_after = rcgen::date_time_ymd(2020, 3, 5));
    let node = Node::start(&certificates, |request| panic!("{request:?}"));
    let error = certificates.client(&[&node]).await.nodes().await.unwrap_err();
    let expected = format!("{}: the node shows a certificate that has expired on 2020-03-05", node.address());
    assert!(error.message.contains(&expected), "{error:?}");
}

/// A program with the document's dependency lines builds with them, and reads the file that `norn dev` writes.
#[test]
fn dependency_lines_of_the_document_name_features_that_suffice() {
    let (_, lines) = WORKERS.split_once("```toml\n[dependencies]\n").expect("the document has dependency lines");
    let (lines, _) = lines.split_once("```").expect("they end");
    let lines: toml::Table = lines.parse().unwrap();
    let manifest: toml::Table = include_str!("../../Cargo.toml").parse().unwrap();
    let line = &lines["norn-client"];
    assert_eq!(line["git"].as_str(), Some(env!("CARGO_PKG_REPOSITORY")));
    assert!(line.get("default-features").is_none(), "without its default feature it is the session alone");
    let features = line.get("features").unwrap_or(&manifest["features"]["default"]).as_array().unwrap();
    let features = features.iter().map(|feature| &manifest["features"][feature.as_str().unwrap()]);
    let needs: Vec<&str> =
        features.flat_map(|needs| needs.as_array().unwrap()).filter_map(toml::Value::as_str).collect();
    assert!(needs.contains(&"dep:tokio") && needs.contains(&"dep:toml"), "{needs:?}");
    assert!(!needs.contains(&"dep:clap"), "no command line comes with the library: {needs:?}");
}

/// Goal: the library code in the document compiles. Method: its blocks are those of an example, which is compiled with the same features.
#[test]
fn the_rust_of_the_document_is_that_of_its_example() {
    let example = include_str!("../../examples/readme.rs");
    let blocks: Vec<&str> = WORKERS.split("\n```").filter_map(|block| block.strip_prefix("rust\n")).collect();
    for block in &blocks {
        let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        let module: String = block.lines().map(indented).collect();
        assert!(
            example.contains(&format!(" {{\n{module}}}\n")),
            "client/examples/readme.rs has no module with\n{module}"
        );
    }
    assert_eq!(example.matches("\nmod ").count(), blocks.len(), "a module for each block");
    assert!(WORKERS.contains("`ClientConfig::load`") && example.contains("ClientConfig::load("));
    let gate = include_str!("../../../.ci/run");
    assert!(gate.contains("-p norn-client --no-default-features --features net --lib --example readme"));
}

#[test]
fn a_file_of_settings_is_read_relative_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.toml");
    let text =
        "addresses = [\"localhost:7400\"]\nca = \"ca.pem\"\ncertificate = \"sub/client.pem\"\nkey = \"/etc/key\"\n";
    std::fs::write(&path, text).unwrap();
    let config = ClientConfig::load(&path).unwrap();
    let expected = ClientConfig::new(
        ["localhost:7400"],
        folder.path().join("ca.pem"),
        folder.path().join("sub/client.pem"),
        "/etc/key",
    );
    assert_eq!(config, expected);
    std::fs::write(&path, format!("{text}name = \"x\"\nrequest_timeout_ms = 50\n")).unwrap();
    assert_eq!(ClientConfig::load(&path).unwrap().request_timeout, Duration::from_millis(50));
    let load = |line: &str| {
        std::fs::write(&path, format!("{text}{line}\n")).unwrap();
        ClientConfig::load(&path)
    };
    for ms in [100, 2_500, 86_400_000] {
        let config = load(&format!("unreached_timeout_ms = {ms}")).unwrap();
        assert_eq!(config.unreached_timeout, Some(Duration::from_millis(ms)));
    }
    for ms in [0, 99, 86_400_001] {
        let refusal = load(&format!("unreached_timeout_ms = {ms}")).unwrap_err().to_string();
        assert!(refusal.contains("unreached_timeout_ms is 100 to 86400000"), "{refusal}");
    }
    std::fs::write(&path, format!("{text}timeout = 1\n")).unwrap();
    assert!(ClientConfig::load(&path).unwrap_err().to_string().contains("timeout"));
}

/// Goal: dead tasks without a copy are redriven, and a task whose answer was an error is repeated, not skipped.
#[tokio::test]
async fn the_dead_of_a_queue_are_redriven_each_once() {
    let failed = std::sync::atomic::AtomicBool::new(false);
    let (client, requests, _node) = bench(move |request| match request {
        Request::List { .. } => {
            let reasons = ["no route to host", "no route to host", "invalid"];
            let mut tasks: Vec<TaskView> = (1..).zip(reasons).map(|(number, reason)| dead(number, reason)).collect();
            tasks[0].redriven = vec![TaskId::new(9, 9, 9, 9)];
            tasks.push(dead(4, "no route"));
            Reply::Answer(Response::Page(Page { tasks, next: None }))
        }
        Request::Redrive { .. } if !failed.swap(true, Ordering::SeqCst) => {
            Reply::Answer(Response::Error(Error::new(ErrorCode::Conflict, "it is under way")))
        }
        Request::Redrive { id, .. } => Reply::Answer(Response::AckedOne(acked_item(*id).unwrap())),
        other => panic!("{other:?}"),
    })
    .await;
    let mut redriving = client.redrive_queue(RedriveOptions::new(mail()).reason("no route").to(mail()));
    assert_eq!(redriving.next().await.unwrap_err().code, ErrorCode::Conflict);
    let mut redriven = Vec::new();
    while let Some((id, copy)) = redriving.next().await.unwrap() {
        assert_eq!(id, copy.id);
        redriven.push(id.time_ms());
    }
    assert_eq!(redriven, [2, 4]);
    let sent = requests.lock().unwrap();
    let asked = |request: &&Request| matches!(request, Request::Redrive { queue: Some(_), .. });
    assert_eq!(sent.iter().filter(asked).count(), 2, "one was the same once more");
}

fn dead(number: u64, reason: &str) -> TaskView {
    TaskView { state: State::Dead, reason: Some(reason.to_owned()), ..view(TaskId::new(number, 0, 0, 0)) }
}

/// Goal: the cause is found through all tasks that a task waits for, and an unknown one among them is a valid answer.
#[tokio::test]
async fn why_a_task_waits_is_told_of_all_that_it_waits_for() {
    let ids = [1, 2, 3].map(|number| TaskId::new(number, 0, 0, 0));
    let (client, _, _node) = bench(move |request| match request {
        Request::Get { id, .. } if *id == ids[0] => {
            let task = TaskView { state: State::Waiting, waits_for: ids[1..].to_vec(), ..view(ids[0]) };
            Reply::Answer(Response::Task(Box::new(task)))
        }
        Request::Get { id, .. } if *id == ids[1] => Reply::Answer(Response::Task(Box::new(view(ids[1])))),
        Request::Get { .. } => Reply::Answer(Response::Error(Error::new(ErrorCode::NotFound, "no such task"))),
        Request::Cluster => {
            let mut cluster = cluster();
            cluster.roster.policies.entry(mail()).or_default().paused = true;
            Reply::Answer(Response::Cluster(Box::new(cluster)))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let why = client.why(ids[0]).await.unwrap();
    assert_eq!(why.ids().collect::<Vec<_>>(), ids);
    assert_eq!(ids.map(|id| why.cause(id, 0)), [Cause::WaitsFor, Cause::Paused, Cause::Unknown]);
    assert_eq!(client.why(ids[2]).await.unwrap_err().code, ErrorCode::NotFound);
}
