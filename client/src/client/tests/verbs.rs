//! Goal: a program can do what command-line verbs do with several calls, or with another node's answer.

use super::*;
use norn_wire::error::Retry;
use norn_wire::ids::PartitionId;
use norn_wire::membership::{Member, MemberState, Remnant};
use norn_wire::response::{ClaimView, Status};

fn id(number: u64) -> TaskId {
    TaskId::new(number, 0, 0, 0)
}

fn task(task: TaskView) -> Reply {
    Reply::Answer(Response::Task(Box::new(task)))
}

fn not_found() -> Reply {
    Reply::Answer(Response::Error(Error::new(ErrorCode::NotFound, "no such task")))
}

#[tokio::test]
async fn a_task_is_enqueued_if_what_it_waits_for_is_known() {
    let (client, requests, _node) = bench(|request| match request {
        Request::Get { id: wanted, .. } if *wanted == id(3) => not_found(),
        Request::Get { id, .. } => task(view(*id)),
        Request::Enqueue { tasks, .. } => Reply::Answer(Response::Acked(vec![acked_item(tasks[0].id)])),
        other => panic!("{other:?}"),
    })
    .await;
    let draft = |after: &[u64]| Draft::new(mail(), "x").after(after.iter().copied().map(id).collect());
    let error = client.enqueue_after_known(draft(&[1, 3]), Acks::Quorum).await.unwrap_err();
    assert_eq!((error.code, error.id), (ErrorCode::NotFound, Some(id(3))));
    let stores = |request: &Request| matches!(request, Request::Enqueue { .. });
    assert!(!requests.lock().unwrap().iter().any(stores));
    client.enqueue_after_known(draft(&[1, 2]), Acks::Quorum).await.unwrap();
    assert!(requests.lock().unwrap().iter().any(stores));
}

/// Goal: the caller of a redrive learns whether the task was redriven before, and whether the existing task is its letter.
#[tokio::test]
async fn a_redriven_task_is_told_from_one_that_was_before() {
    let (client, requests, _node) = bench(|request| match request {
        Request::Get { id: asked, .. } => match asked.time_ms() {
            1 => task(dead(1, "no route")),
            // With a copy, with a letter, and with a deleted copy.
            5 => task(dead(5, "no route")),
            number @ 2..=4 => task(TaskView { redriven: vec![id(number + 10)], ..dead(number, "no route") }),
            13 => {
                let mut letter = view(id(13));
                letter.spec.headers = vec![(norn_wire::headers::DEAD_TASK.to_owned(), id(3).to_string())];
                task(letter)
            }
            14 => not_found(),
            _ => task(view(*asked)),
        },
        // Another operator was faster.
        Request::Redrive { id: asked, .. } if *asked == id(5) => {
            Reply::Answer(Response::AckedOne(acked_item(id(15)).unwrap()))
        }
        Request::Redrive { child, .. } => Reply::Answer(Response::AckedOne(acked_item(*child).unwrap())),
        other => panic!("{other:?}"),
    })
    .await;
    let mut told = Vec::new();
    for number in 1..=5 {
        told.push(match client.redrive_once(id(number), None, Acks::Quorum).await.unwrap() {
            Redriven::Now(copy) => (Some(copy.id), true, false),
            Redriven::Before(existing) => (None, existing.task.is_some(), existing.letter),
        });
    }
    let copies = children(&requests);
    assert_eq!(copies.len(), 2, "of the first and of the last");
    let before = |task, letter| (None, task, letter);
    let first = (Some(copies[0]), true, false);
    assert_eq!(told, [first, before(true, false), before(true, true), before(false, false), before(true, false)]);
}

/// The ids of the requested copies.
fn children(requests: &Mutex<Vec<Request>>) -> Vec<TaskId> {
    let child = |request: &Request| if let Request::Redrive { child, .. } = request { Some(*child) } else { None };
    requests.lock().unwrap().iter().filter_map(child).collect()
}

/// Goal: a task that is redriven again after an unknown outcome has one copy.
#[tokio::test]
async fn a_redrive_that_is_repeated_asks_for_the_same_copy() {
    let asked = std::sync::atomic::AtomicU64::new(0);
    let (client, requests, _node) = bench(move |request| match request {
        Request::List { .. } => Reply::Answer(Response::Page(Page { tasks: vec![dead(1, "no route")], next: None })),
        Request::Get { id: asked, .. } if *asked == id(2) => task(dead(2, "no route")),
        Request::Get { id, .. } => task(view(*id)),
        Request::Redrive { child, .. } => Reply::Answer(match asked.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Response::Error(Error { retry: Retry::Never, ..Error::new(ErrorCode::Unknown, "it may be") }),
            _ => Response::AckedOne(acked_item(*child).unwrap()),
        }),
        other => panic!("{other:?}"),
    })
    .await;
    let mut redriving = client.redrive_queue(RedriveOptions::new(mail()));
    let error = redriving.next().await.unwrap_err();
    let (died, copy) = redriving.next().await.unwrap().expect("it is redriven");
    assert_eq!((died, error.code, error.id), (id(1), ErrorCode::Unknown, Some(copy.id)));
    assert_eq!(children(&requests), [copy.id], "the second request is the first once more");
    assert!(redriving.next().await.unwrap().is_none());
    let error = client.redrive_once(id(2), None, Acks::Quorum).await.unwrap_err();
    let named = error.id.expect("the copy is named");
    let again = client.redrive_as(id(2), named, None, Acks::Quorum).await.unwrap();
    assert_eq!((again.id, children(&requests)), (named, vec![copy.id, named]));
}

/// Goal: a session is resumed by its id and token, and no other task is taken for one.
#[tokio::test]
async fn a_session_is_resumed_by_id_and_token() {
    let (client, requests, _node) = bench(|request| match request {
        Request::Get { id, .. } => {
            let claims = vec![ClaimView {
                token: token(),
                start_ms: 1,
                end_ms: None,
                completed_ms: None,
                worker: "host-7".into(),
                rejected: None,
                superseded: None,
                session: None,
                end: None,
            }];
            let queue = if id.time_ms() == 1 { crate::session::SESSIONS_QUEUE.parse().unwrap() } else { mail() };
            let mut session = TaskView { claims, state: State::Claimed, ..view(*id) };
            session.spec.queue = queue;
            task(session)
        }
        Request::Renew { items, .. } => Reply::Answer(Response::Renewed(items.iter().map(|_| Ok(5_000)).collect())),
        Request::Complete { items, .. } => Reply::Answer(Response::Acked(vec![acked_item(items[0].id)])),
        other => panic!("{other:?}"),
    })
    .await;
    let other = Token { number: token().number + 1, ..token() };
    for (number, token, code) in [(2, token(), ErrorCode::Invalid), (1, other, ErrorCode::Superseded)] {
        assert_eq!(client.resume_session(id(number), token).await.unwrap_err().code, code);
    }
    assert!(requests.lock().unwrap().iter().all(|request| matches!(request, Request::Get { .. })));
    let before = Instant::now();
    let session = client.resume_session(id(1), token()).await.unwrap();
    assert_eq!((session.id(), session.token(), session.ttl()), (id(1), token(), Duration::from_secs(5)));
    assert!(session.expires() > before);
    session.end().await.unwrap();
    assert!(matches!(requests.lock().unwrap().last(), Some(Request::Complete { .. })));
}

/// Goal: an invitation names reachable members first, and none that leave.
#[tokio::test]
async fn an_invitation_names_members_that_stay() {
    let (client, _, _node) = bench(|request| match request {
        Request::Cluster => {
            let mut view = cluster();
            let states =
                [MemberState::Up, MemberState::Leaving, MemberState::Up, MemberState::Gone, MemberState::Joining];
            for (number, state) in (1..).zip(states) {
                view.roster.members.insert(number, member(number, state));
            }
            view.heard = [2, 3, 5].map(NodeId).to_vec();
            Reply::Answer(Response::Cluster(Box::new(view)))
        }
        other => panic!("{other:?}"),
    })
    .await;
    let invitation = client.invitation().await.unwrap();
    assert_eq!(invitation.cluster, Some(ClusterId(9)));
    assert_eq!(invitation.addresses, ["n3:7400", "n5:7400", "n1:7400"]);
}

fn member(number: u16, state: MemberState) -> Member {
    Member {
        node: NodeId(number.into()),
        incarnation: 1,
        name: format!("n{number}"),
        address: format!("n{number}:7400"),
        zone: String::new(),
        weight: 1,
        state,
    }
}

/// Goal: one node is asked about itself with the client's certificates, whatever other nodes exist.
#[tokio::test]
async fn a_single_node_is_asked_for_its_counters_and_what_is_left_there() {
    let certificates = Certificates::new();
    let remnant = Remnant {
        partition: PartitionId(3),
        cohort: vec![NodeId(1), NodeId(2)],
        left: vec![NodeId(2)],
        epoch: 7,
        length: 9,
        tasks: 5,
        claims: 1,
        obstacle: None,
    };
    let asked = remnant.clone();
    let nodes = [1, 2].map(|number| {
        let remnant = asked.clone();
        Node::start(&certificates, move |request| match request {
            Request::Status => Reply::Answer(Response::Status(Box::new(Status {
                cluster: ClusterId(9),
                name: "dev".into(),
                node: NodeId(number),
                boot: 1,
                nodes: (2, 2),
                partitions: (1, 1),
                counts: [0; 6],
                counters: Vec::new(),
                uncounted: 0,
            }))),
            Request::Recover { lost, partitions, lease_ms: 60_000 } if partitions.is_empty() => {
                assert_eq!(lost, [NodeId(1)]);
                Reply::Answer(Response::Remnants(vec![remnant.clone()]))
            }
            other => panic!("{other:?}"),
        })
    });
    let client = certificates.client(&[&nodes[0]]).await;
    for (number, node) in (1..).zip(&nodes) {
        let alone = client.node(node.address()).await.unwrap();
        assert_eq!(alone.status().await.unwrap().node, NodeId(number));
    }
    let second = client.node(nodes[1].address()).await.unwrap();
    let left = second.recover(vec![NodeId(1)], Vec::new(), Duration::from_secs(60)).await.unwrap();
    assert_eq!(left, [remnant]);
    assert!(matches!(client.node("nowhere").await, Err(ConnectError::Address(_))));
}
