//! Goal: a session over real QUIC behaves as in the session's own tests, and bytes that are not frames end a connection, nothing more.
//! Method: calls against nodes with scripted answers.

use super::link::{Event, Happening};
use super::testing::{Certificates, Manners, Node, Reply};
use super::{Abandoned, Answer, Command, Driver, Handle, Waiting};
use crate::client::{ClaimOptions, Client};
use crate::session::{Call, CallId, Draft, Input, Output};
use crate::tls::{self, CertificateFiles, Outgoing};
use norn_wire::Versions;
use norn_wire::address::parse_address;
use norn_wire::error::{Cause, Error, ErrorCode, Retry};
use norn_wire::request::{Acks, Claim, Request};
use norn_wire::response::{Granted, Response};
use norn_wire::{ClaimId, QueueName, TaskId, Token};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

fn count(value: u64) -> Reply {
    Reply::Answer(Response::Count(value))
}

async fn ask(client: &Client) -> Result<u64, Error> {
    client.count(None, None).await
}

#[test]
fn addresses_are_checked() {
    for good in ["localhost:1", "127.0.0.1:7400", "[::1]:7400", "a.b:65535"] {
        assert_eq!(parse_address(good).unwrap().to_string(), good);
    }
    for bad in ["", "localhost", "localhost:", ":7400", "localhost:0", "localhost:65536", "::1:7400", "[]:1"] {
        assert_eq!(parse_address(bad), None, "{bad:?}");
    }
}

#[tokio::test]
async fn many_calls_share_one_connection() {
    let certificates = Certificates::new();
    let mut served = 0;
    let node = Node::start(&certificates, move |_| {
        served += 1;
        count(served)
    });
    let client = certificates.client(&[&node]).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..2_000 {
        let client = client.clone();
        calls.spawn(async move { ask(&client).await.unwrap() });
    }
    // On a slow machine calls are repeated, some of them over a new connection: numbers are skipped then.
    let answers: BTreeSet<u64> = calls.join_all().await.into_iter().collect();
    assert_eq!(answers.len(), 2_000, "each call has its own answer");
    assert!(node.connections.load(Ordering::SeqCst) <= 5, "there is none for each call");
    client.close().await;
    assert_eq!(ask(&client).await.unwrap_err().code, ErrorCode::Unavailable);
}

/// The client uses the newest version that both sides speak with a node that offers more. Frames of any other version would end the
/// connection.
#[tokio::test]
async fn a_newer_node_is_spoken_to_in_the_version_of_both() {
    for newest in [Versions::SPOKEN.newest, Versions::SPOKEN.newest + 1] {
        let certificates = Certificates::new();
        let speaks = Versions { newest, ..Versions::SPOKEN };
        let node = Node::start_with(Manners { speaks, ..Manners::default() }, &certificates, |_| count(7));
        let client = certificates.client(&[&node]).await;
        assert_eq!(ask(&client).await, Ok(7), "{speaks}");
        client.close().await;
    }
}

#[tokio::test]
async fn names_are_resolved_and_large_frames_pass_both_ways() {
    let certificates = Certificates::new();
    let node = Node::start(&certificates, |request| {
        let Request::Enqueue { tasks, .. } = request else { panic!() };
        let message = "x".repeat(tasks[0].spec.payload.len() * 4);
        Reply::Answer(Response::Error(Error::new(ErrorCode::Conflict, message)))
    });
    let port = node.address().rsplit_once(':').unwrap().1.to_owned();
    let client = Client::connect(certificates.config(&[format!("localhost:{port}")])).await.unwrap();
    let queue = "mail".parse().unwrap();
    let result = client.enqueue(crate::session::Draft::new(queue, vec![7; 256 << 10])).await;
    assert_eq!(result.unwrap_err().message.len(), 1 << 20);
}

#[tokio::test]
async fn a_node_that_closes_or_talks_nonsense_is_left_for_another() {
    let mut frame_of_a_request = Vec::new();
    let queues = Request::Queues;
    super::codec::encode_named(&mut frame_of_a_request, Versions::SPOKEN.newest, super::Kind::Request, 2, &queues);
    for bad in [None, Some(vec![0xff; 100]), Some(frame_of_a_request)] {
        let certificates = Certificates::new();
        let broken = Node::start(&certificates, move |_| bad.clone().map_or(Reply::Close, Reply::Raw));
        let good = Node::start(&certificates, |_| count(7));
        let client = certificates.client(&[&broken, &good]).await;
        for _ in 0..20 {
            assert_eq!(ask(&client).await, Ok(7));
        }
        // A good node that is slow to answer is left as well, so that the broken one may have its turn again.
        assert!(broken.connections.load(Ordering::SeqCst) <= 5, "the good one is kept to");
    }
}

#[tokio::test]
async fn a_node_that_keeps_silent_is_left_for_another() {
    let certificates = Certificates::new();
    let silent = Node::start(&certificates, |_| Reply::Silence);
    let good = Node::start(&certificates, |_| count(7));
    let client = certificates.client(&[&silent, &good]).await;
    assert_eq!(ask(&client).await, Ok(7));
}

#[tokio::test]
async fn without_a_node_the_deadline_holds_and_the_reason_is_told() {
    let certificates = Certificates::new();
    let address = {
        let node = Node::start(&certificates, |_| Reply::Silence);
        node.address()
    };
    let client = Client::connect(certificates.config(&[address])).await.unwrap();
    let started = Instant::now();
    let body = Call::Request(Request::Queues);
    let error = client.call(body, Some(Duration::from_millis(300))).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30), "it does not wait for a node for ever");
    assert_eq!(error.code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn a_client_of_another_authority_is_told_why() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let node = Node::start(&certificates, |_| count(7));
    let port = node.address().rsplit_once(':').expect("an address").1.to_owned();
    // A name may have two addresses, one of which does not answer.
    let (literal, named) = (node.address(), format!("localhost:{port}"));
    for (swap, address) in [false, true].into_iter().flat_map(|swap| [(swap, &literal), (swap, &named)]) {
        // Once the client refuses the node, once the node refuses the client.
        let mut config = others.config(std::slice::from_ref(address));
        if swap {
            config.ca = certificates.path().join("ca.pem");
        }
        let (trusted, own) = (config.ca.display().to_string(), config.certificate.display().to_string());
        let client = Client::connect(config).await.unwrap();
        // Each call is refused separately: the files may have changed in between.
        for _ in 0..2 {
            let error = client.call(Call::Request(Request::Queues), None).await.unwrap_err();
            assert_eq!((error.code, error.retry), (ErrorCode::Denied, Retry::Never), "{error}");
            let file = if swap { &own } else { &trusted };
            assert!(error.message.starts_with(address) && error.message.contains(file), "{error}");
        }
        assert_eq!(node.connections.load(Ordering::SeqCst), 0, "no handshake is complete");
    }
}

/// An address at which no node listens.
fn nowhere(certificates: &Certificates) -> String {
    Node::start(certificates, |_| Reply::Silence).address()
}

/// Goal: a lasting refusal by one node does not hide that the others are unreachable. An operator who reads only of a spare node
/// without a cluster would found a second one.
#[tokio::test]
async fn a_node_that_refuses_hides_no_other_that_is_down() {
    fn unfounded() -> Response {
        Response::Error(Error::new(ErrorCode::NotReady, "this node waits").because(Cause::Unfounded))
    }
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let spare = Node::start_with(Manners { hello: unfounded, ..Manners::default() }, &certificates, |_| count(7));
    let alien = Node::start(&others, |_| count(7));
    for (node, code) in [(&spare, ErrorCode::NotReady), (&alien, ErrorCode::Denied)] {
        let real = nowhere(&certificates);
        let client = Client::connect(certificates.config(&[node.address(), real.clone()])).await.unwrap();
        let error = client.call(Call::Request(Request::Queues), None).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        for address in [&node.address(), &real] {
            assert_eq!(error.message.matches(&format!("{address}: ")).count(), 1, "{address}: {error}");
        }
    }
}

/// Goal: among several addresses of a name, one whose node serves is found after those whose nodes have no cluster, are starting, or
/// are away. Method: a resolver that returns them in this order.
#[tokio::test]
async fn of_a_name_the_address_is_taken_whose_node_serves() {
    fn unfounded() -> Response {
        Response::Error(Error::new(ErrorCode::NotReady, "this node waits").because(Cause::Unfounded))
    }
    fn starting() -> Response {
        Response::Error(Error::new(ErrorCode::NotReady, "this node is starting"))
    }
    let certificates = Certificates::new();
    let start = |hello| Node::start_with(Manners { hello, ..Manners::default() }, &certificates, |_| count(7));
    let (spare, other, late) = (start(unfounded), start(unfounded), start(starting));
    let member = Node::start(&certificates, |_| count(7));
    let away = nowhere(&certificates);
    for (addresses, expected) in [
        (vec![spare.address(), member.address()], member.address()),
        (vec![late.address(), away.clone(), spare.address(), member.address()], member.address()),
        (vec![spare.address(), away.clone()], spare.address()),
        (vec![late.address(), away.clone()], late.address()),
        (vec![other.address(), spare.address()], other.address()),
        (vec![spare.address()], spare.address()),
    ] {
        let (_endpoint, _, mut driver) = driver(&certificates, &spare);
        let task = super::link::Task {
            endpoint: 0,
            generation: 1,
            address: parse_address("localhost:7400").unwrap(),
            name: "test".to_owned(),
            dialer: driver.dialer.clone(),
            outbox: Arc::default(),
            events: driver.events_out.clone(),
        };
        let found: Vec<std::net::SocketAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let super::Dialer::Quic(quic) = &driver.dialer else { unreachable!() };
        let open = task.connect(quic, |_| std::future::ready(Ok(found.clone()))).await.unwrap();
        let mut taken = open.connection.remote_address();
        taken.set_ip(taken.ip().to_canonical());
        assert_eq!(taken.to_string(), expected, "{addresses:?}");
        let of_none = Error::new(ErrorCode::NotReady, "this node waits").because(Cause::Unfounded);
        let (mut said, waits) = (Response::Error(of_none), !expected.eq(&member.address()) && addresses.len() > 1);
        assert_eq!(open.ways.is_some(), waits, "{addresses:?}");
        let (reply, _answer) = oneshot::channel();
        let body = Call::Request(Request::Queues);
        driver.command(Command::Call { id: CallId(1), body, deadline: soon(), reply });
        driver.carry_out();
        let connected = Happening::Connected(Versions::SPOKEN.newest, open.ways);
        driver.event(Event { endpoint: 0, generation: 1, happening: connected });
        driver.name_unfounded(0, &mut said);
        let Response::Error(Error { message, .. }) = said else { panic!() };
        for address in addresses.iter().filter(|_| waits) {
            assert_eq!(message.matches(&format!("{address}: ")).count(), 1, "{address}: {message}");
        }
    }
}

/// Goal: a node that has too many connections for a moment is waited for, even if the other one refuses for good.
#[tokio::test]
async fn a_node_that_is_busy_is_waited_for_beside_one_that_refuses_for_good() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let alien = Node::start(&others, |_| count(1));
    let busy = Node::start_with(Manners { refuses: 3, ..Manners::default() }, &certificates, |_| count(2));
    let client = Client::connect(certificates.config(&[alien.address(), busy.address()])).await.unwrap();
    assert_eq!(ask(&client).await, Ok(2));
}

/// Goal: a client that was served before keeps trying when it is refused for good, and reports the reason.
#[tokio::test]
async fn a_client_that_was_served_outlasts_certificates_that_are_wrong_for_a_while() {
    let (before, after) = (Certificates::new(), Certificates::new());
    let old = Node::start(&before, |_| count(1));
    let new = Node::start(&after, |_| count(2));
    let config = before.config(&[old.address(), new.address()]);
    let client = Client::connect(config).await.unwrap();
    assert_eq!(ask(&client).await, Ok(1));
    drop(old);
    // The remaining node is refused until the files are renewed.
    let error = loop {
        let error = client.call(Call::Request(Request::Queues), Some(Duration::from_secs(1))).await.unwrap_err();
        if error.message.contains("authority") {
            break error;
        }
    };
    assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
    assert!(error.message.contains(&new.address()), "{error}");
    for name in ["ca.pem", "client.pem", "client.key"] {
        std::fs::copy(after.path().join(name), before.path().join(name)).unwrap();
    }
    assert_eq!(ask(&client).await, Ok(2));
}

/// Goal: a long-lived client follows its files to another authority, and mistakes in them do it no harm.
#[tokio::test]
async fn a_new_connection_is_made_with_new_files() {
    let (before, after) = (Certificates::new(), Certificates::new());
    let (old, same, new) =
        (Node::start(&before, |_| count(1)), Node::start(&before, |_| count(2)), Node::start(&after, |_| count(3)));
    let config = before.config(&[old.address(), same.address(), new.address()]);
    let certificate = config.certificate.clone();
    let client = Client::connect(config).await.unwrap();
    let first = ask(&client).await.unwrap();
    assert!([1, 2].contains(&first));

    std::fs::write(&certificate, "nonsense").unwrap();
    let mut nodes = vec![(1, old), (2, same)];
    nodes.retain(|(number, _)| *number != first);
    assert_eq!(ask(&client).await, Ok(nodes[0].0), "the files that were read before are still in use");

    for name in ["ca.pem", "client.pem", "client.key"] {
        std::fs::copy(after.path().join(name), before.path().join(name)).unwrap();
    }
    nodes.clear();
    assert_eq!(ask(&client).await, Ok(3));
}

#[tokio::test]
async fn a_dropped_call_is_abandoned_and_its_late_answer_ignored() {
    let certificates = Certificates::new();
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dropped);
    let node = Node::start(&certificates, move |request| match request {
        Request::Queues => {
            counted.fetch_add(1, Ordering::SeqCst);
            Reply::AnswerAfter(Duration::from_secs(1), Response::Count(1))
        }
        _ => count(2),
    });
    let client = certificates.client(&[&node]).await;
    let is_asked = async {
        while dropped.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        () = is_asked => {}
        answer = client.queues() => panic!("{answer:?}"),
    }
    assert_eq!(ask(&client).await, Ok(2));
    // All requests sent before the future was dropped have arrived by now.
    let asked = dropped.load(Ordering::SeqCst);
    // Longer than the timeout after which a call is repeated.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ask(&client).await, Ok(2));
    assert_eq!(dropped.load(Ordering::SeqCst), asked, "nothing is repeated for nobody");
}

/// Goal: claims under way are cancelled when their client closes, whatever they wait for. Method: a node does not answer the claims, or
/// grants them late and does not answer their renewals.
#[tokio::test]
async fn a_client_that_closes_takes_leave_of_its_claims() {
    const CLAIMS: usize = 20;
    for grants in [false, true] {
        let certificates = Certificates::new();
        let (asked, seen) = tokio::sync::mpsc::unbounded_channel();
        let node = Node::start(&certificates, move |request| {
            let last = matches!((&request, grants), (Request::Claim(_), false) | (Request::Renew { .. }, true));
            if last {
                asked.send(()).unwrap();
            }
            match request {
                Request::Claim(claim) if grants => Reply::AnswerAfter(Duration::from_millis(200), granted(&claim)),
                _ => Reply::Silence,
            }
        });
        let client = certificates.client(&[&node]).await;
        let (caller, mut seen) = (client.clone(), seen);
        let queue: QueueName = "mail".parse().unwrap();
        let options = ClaimOptions::new([queue]).lease(Duration::from_secs(1)).wait(Duration::from_secs(60));
        let mut claiming = tokio::task::JoinSet::new();
        for _ in 0..CLAIMS {
            let (caller, options) = (caller.clone(), options.clone());
            claiming.spawn(async move { caller.claim(options).await });
        }
        for _ in 0..CLAIMS {
            seen.recv().await.unwrap();
        }
        let left = node.leaves.load(Ordering::SeqCst);
        client.close().await;
        assert!(claiming.join_all().await.iter().all(Result::is_err));
        let deadline = Instant::now() + Duration::from_secs(30);
        while node.leaves.load(Ordering::SeqCst) < left + CLAIMS {
            let told = node.leaves.load(Ordering::SeqCst) - left;
            assert!(Instant::now() < deadline, "the node was told of {told} claims, where it grants: {grants}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A claim with a long lease.
fn claim() -> Claim {
    Claim {
        claim: ClaimId(0),
        repeated: false,
        queues: vec!["mail".parse().unwrap()],
        lease_ms: 3_600_000,
        wait_ms: 0,
        max: 1,
        worker: String::new(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: false,
    }
}

/// A grant with half of the lease that is asked for.
fn granted(claim: &Claim) -> Response {
    let task = Granted {
        id: TaskId::new(1, 1, 1, 1),
        token: Token { epoch: 1, number: 1 },
        queue: claim.queues[0].clone(),
        payload: Vec::new(),
        priority: 0,
        headers: Vec::new(),
        attempt: 1,
        lease_ms: claim.lease_ms / 2,
        updates: Vec::new(),
        grouping: None,
        group: None,
    };
    Response::Claimed { tasks: vec![task], unavailable: 0, left: 0 }
}

/// The socket of a client, and a driver for it that does not run.
fn driver(certificates: &Certificates, node: &Node) -> (quinn::Endpoint, Handle, Driver) {
    let config = certificates.config(&[]);
    let files = CertificateFiles { authority: config.ca, certificate: config.certificate, key: config.key };
    let outgoing = Outgoing::start(files, |own| tls::transport(own.client(Versions::SPOKEN)?)).unwrap();
    let endpoint = crate::endpoint::endpoint(tls::socket().unwrap(), None).unwrap();
    let addresses = vec![parse_address(&node.address()).unwrap()];
    let dialer = super::Dialer::quic(endpoint.clone(), outgoing);
    let (handle, driver) = Driver::new(dialer, addresses, crate::session::Config::default(), 1);
    (endpoint, handle, driver)
}

#[tokio::test]
async fn the_task_ends_with_its_last_handle() {
    let certificates = Certificates::new();
    let node = Node::start(&certificates, |_| count(7));
    let (endpoint, handle, driver) = driver(&certificates, &node);
    tokio::spawn(driver.run());
    let answer = handle.call(Call::Request(Request::Queues), soon()).await;
    assert!(answer.result.is_ok() && answer.lease_from.is_some());
    assert!(endpoint.open_connections() >= 1);
    drop(handle);
    tokio::time::timeout(Duration::from_secs(30), endpoint.wait_idle()).await.unwrap();
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Goal: the caller of a client that closes never gets an answer that a write did not happen which may have. Method: the node accepts
/// each call, and answers none.
#[tokio::test]
async fn what_is_under_way_as_the_client_closes_is_unknown() {
    let certificates = Certificates::new();
    let (asked, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let node = Node::start(&certificates, move |_| {
        asked.send(()).unwrap();
        Reply::Silence
    });
    let client = certificates.client(&[&node]).await;
    let (writer, reader) = (client.clone(), client.clone());
    let writing = tokio::spawn(async move { writer.enqueue(Draft::new("mail".parse().unwrap(), "x")).await });
    let reading = tokio::spawn(async move { reader.queues().await });
    for _ in 0..2 {
        seen.recv().await.unwrap();
    }
    client.close().await;
    let (written, read) = (writing.await.unwrap().unwrap_err(), reading.await.unwrap().unwrap_err());
    assert_eq!((written.code, read.code), (ErrorCode::Unknown, ErrorCode::Unavailable), "{written}");
    assert!(written.id.is_some() && written.message.contains("closed"), "{written}");
    let late = client.enqueue(Draft::new("mail".parse().unwrap(), "x")).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::Unavailable, "it was never sent");
}

/// Hands a call to a driver.
fn submit(driver: &mut Driver, id: u64, body: Call) -> oneshot::Receiver<Answer> {
    let (reply, answer) = oneshot::channel();
    driver.command(Command::Call { id: CallId(id), body, deadline: soon(), reply });
    answer
}

/// Runs a driver until an answer is ready.
async fn until_done(driver: &mut Driver) {
    let end = soon();
    while !driver.outputs.iter().any(|output| matches!(output, Output::Done { .. })) {
        assert!(Instant::now() < end, "there is no answer");
        driver.carry_out();
        match tokio::time::timeout(Duration::from_millis(50), driver.events.recv()).await {
            Ok(event) => driver.event(event.unwrap()),
            Err(_) => driver.step(Input::Wake),
        }
    }
}

/// Goal: a task granted at the moment when the client closes goes back, as the client could not end it any more; any other answer is
/// delivered.
#[tokio::test]
async fn an_answer_that_comes_as_the_client_closes_is_handed_over_and_a_grant_goes_back() {
    let certificates = Certificates::new();
    let (release, mut released) = tokio::sync::mpsc::unbounded_channel();
    let node = Node::start(&certificates, move |request| match request {
        Request::Claim(claim) => Reply::Answer(granted(&claim)),
        Request::Release { id, .. } => {
            release.send(id).unwrap();
            Reply::Answer(Response::Done)
        }
        _ => count(7),
    });
    let (_endpoint, _handle, mut driver) = driver(&certificates, &node);
    let answer = submit(&mut driver, 1, Call::Request(Request::Claim(claim())));
    until_done(&mut driver).await;
    driver.let_go().await;
    let error = answer.await.unwrap().result.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unknown, "{error}");
    let id = tokio::time::timeout(Duration::from_secs(60), released.recv()).await.expect("it goes back");
    assert_eq!(id, Some(TaskId::new(1, 1, 1, 1)));

    let (_endpoint, _handle, mut driver) = self::driver(&certificates, &node);
    let answer = submit(&mut driver, 1, Call::Request(Request::Queues));
    until_done(&mut driver).await;
    driver.let_go().await;
    assert_eq!(answer.await.unwrap().result, Ok(Response::Count(7)));
}

/// Goal: if the runtime of a client ends, or its task panics, calls that it had accepted may have taken effect.
#[tokio::test]
async fn what_a_task_had_that_ends_without_a_word_is_unknown() {
    let certificates = Certificates::new();
    let node = Node::start(&certificates, |_| count(7));
    let (_endpoint, handle, mut driver) = driver(&certificates, &node);
    let enqueue = || Call::Enqueue { drafts: vec![Draft::new("mail".parse().unwrap(), "x")], acks: Acks::Quorum };
    let done = submit(&mut driver, u64::MAX / 2, Call::Request(Request::Queues));
    until_done(&mut driver).await;
    let taken = submit(&mut driver, u64::MAX / 2 + 1, enqueue());
    let waiting = tokio::spawn(async move { handle.call(enqueue(), soon()).await });
    while driver.commands.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(driver);
    assert_eq!(done.await.unwrap().result, Ok(Response::Count(7)));
    assert_eq!(taken.await.unwrap().result.unwrap_err().code, ErrorCode::Unknown);
    assert_eq!(waiting.await.unwrap().result.unwrap_err().code, ErrorCode::Unavailable, "it was never taken");
}

/// Goal: an abandoned connection is not heard of again, or its successor would be taken for ready. Method: the session's task is
/// delayed twice, so that it gives up an attempt and makes the next before it sees that the first has succeeded.
#[tokio::test]
async fn an_attempt_that_was_given_up_is_heard_of_no_more() {
    let certificates = Certificates::new();
    let node = Node::start(&certificates, |_| count(7));
    let (_endpoint, _handle, mut driver) = driver(&certificates, &node);
    let answer = submit(&mut driver, 1, Call::Request(Request::Queues));
    driver.carry_out();
    let late = driver.events.recv().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_600)).await;
    driver.step(Input::Wake);
    tokio::time::sleep(Duration::from_millis(200)).await;
    driver.step(Input::Wake);
    driver.event(late);
    until_done(&mut driver).await;
    driver.carry_out();
    assert_eq!(answer.await.unwrap().result, Ok(Response::Count(7)));
}

/// Goal: an answer that arrives when its future is dropped is not lost, and one that has not arrived is not waited for.
#[test]
fn what_a_dropped_future_has_not_seen_is_handed_back() {
    let (abandoned, ended) = (Abandoned::default(), std::sync::OnceLock::new());
    let waiting = |answer| Waiting { abandoned: &abandoned, ended: &ended, call: CallId(7), answer: Some(answer) };
    let (reply, answer) = oneshot::channel();
    assert!(reply.send(Answer { result: Ok(Response::Done), lease_from: None }).is_ok());
    drop(waiting(answer));
    assert_eq!((abandoned.unseen.lock().unwrap().len(), abandoned.calls.lock().unwrap().len()), (1, 0));
    let (reply, answer) = oneshot::channel();
    drop(waiting(answer));
    assert_eq!(abandoned.calls.lock().unwrap()[..], [CallId(7)]);
    assert!(
        reply.send(Answer { result: Ok(Response::Done), lease_from: None }).is_err(),
        "whoever answers has it back"
    );
}
