//! Connecting to the first node: several addresses, among them dead ones, and nodes that refuse for good.

use super::*;
use norn_wire::error::Cause;
use norn_wire::response::Genesis;

/// The head start of an attempt.
const HEAD_START_US: u64 = 200_000;

fn refuses(endpoint: usize) -> Input {
    let message = format!("n{endpoint}: the certificate has expired");
    Input::Refused { endpoint, error: Error::new(ErrorCode::Denied, message) }
}

/// All attempts to connect so far.
fn attempts(bench: &Bench) -> Vec<usize> {
    connects(&bench.outputs)
}

/// The error of the only call that ends with these outputs.
fn failed(outputs: &[Output]) -> Error {
    let [(_, Err(error))] = &done(outputs)[..] else { panic!("no call fails: {outputs:?}") };
    error.clone()
}

fn dropped(outputs: &[Output]) -> Vec<usize> {
    let pick = |output: &Output| match output {
        Output::Disconnect { endpoint } => Some(*endpoint),
        Output::Connect { .. } | Output::Send { .. } | Output::Done { .. } => None,
    };
    let mut dropped: Vec<usize> = outputs.iter().filter_map(pick).collect();
    dropped.sort_unstable();
    dropped
}

#[test]
fn dead_endpoints_cost_a_head_start_each_and_the_first_that_answers_is_taken() {
    let mut bench = Bench::new(4);
    let begun_us = bench.now_us;
    assert_eq!(connects(&bench.submit(1, enqueue(1), 20 * SECOND_US)), [0]);
    for endpoint in [1, 2, 3] {
        assert_eq!(connects(&bench.sleep()), [endpoint]);
        assert_eq!(bench.now_us, begun_us + endpoint as u64 * HEAD_START_US);
    }
    let outputs = bench.open(3);
    assert_eq!(dropped(&outputs), [0, 1, 2], "nothing waits for the others");
    assert_eq!(sent(&outputs)[0].0, 3);
    assert!(attempts(&bench).len() == 4 && bench.session.links.active == 3);
}

#[test]
fn an_endpoint_that_answers_in_its_head_start_is_the_only_one_that_is_tried() {
    let mut bench = Bench::new(3);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    bench.now_us += HEAD_START_US - 1;
    let hello = sent(&bench.step(Input::Connected { endpoint: 0 }))[0].1;
    // The answer to `hello` has a separate head start.
    bench.now_us += HEAD_START_US - 1;
    assert_eq!(sent(&bench.answer(0, hello, welcome(SERVER_MS, 5))).len(), 1);
    assert_eq!(attempts(&bench), [0]);
}

#[test]
fn a_node_that_is_connected_and_does_not_answer_hello_is_raced_as_well() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    bench.step(Input::Connected { endpoint: 0 });
    assert_eq!(connects(&bench.sleep()), [1]);
    assert_eq!(sent(&bench.open(1))[0].0, 1);
}

#[test]
fn rivals_that_were_connected_and_have_not_answered_hello_are_dropped_once_a_node_serves() {
    let mut bench = Bench::new(4);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    for endpoint in 0..3 {
        bench.step(Input::Connected { endpoint });
        assert_eq!(connects(&bench.sleep()), [endpoint + 1]);
    }
    let outputs = bench.open(3);
    assert_eq!(dropped(&outputs), [0, 1, 2]);
    assert_eq!(sent(&outputs)[0].0, 3);
    assert!(bench.session.links.hopeless().is_none() && bench.session.links.get(0).failures == 0);
}

#[test]
fn a_rival_that_a_call_was_sent_to_is_kept() {
    let mut bench = Bench { lively: true, ..Bench::new(2) };
    bench.submit(1, Call::Request(Request::Identify), 20 * SECOND_US);
    bench.submit(2, enqueue(1), 20 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let [(0, _, Request::Hello { .. }), (0, identify, Request::Identify)] = sent(&outputs)[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(connects(&bench.sleep()), [1]);
    let outputs = bench.open(1);
    assert_eq!((dropped(&outputs), sent(&outputs)[0].0), (vec![], 1));
    assert_eq!(done(&bench.answer(0, identify, Response::Done)), [(1, Ok(Response::Done))]);
}

#[test]
fn a_rival_that_is_starting_is_asked_again_while_the_active_endpoint_is_dead() {
    let mut bench = Bench::new(2);
    let begun_us = bench.now_us;
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    assert_eq!(connects(&bench.sleep()), [1]);
    let mut hello = sent(&bench.step(Input::Connected { endpoint: 1 }))[0].1;
    for _ in 0..2 {
        bench.answer(1, hello, Response::Error(error(ErrorCode::NotReady)));
        let (endpoint, number, request) = bench.sleep_until_sent();
        assert!(endpoint == 1 && matches!(request, Request::Hello { .. }), "{request:?}");
        hello = number;
    }
    assert!(bench.now_us < begun_us + 2 * SECOND_US, "no attempt at the dead one has had its time");
    assert_eq!(sent(&bench.answer(1, hello, welcome(SERVER_MS, 5)))[0].0, 1);
}

#[test]
fn a_rival_that_is_starting_is_not_greeted_for_calls_that_need_no_welcome() {
    let mut bench = Bench::new(2);
    bench.submit(1, Call::Request(Request::Identify), 2 * SECOND_US);
    assert_eq!(connects(&bench.sleep()), [1]);
    let hello = sent(&bench.step(Input::Connected { endpoint: 1 }))[0].1;
    bench.answer(1, hello, Response::Error(error(ErrorCode::NotReady)));
    assert_eq!(done(&bench.sleep()).len(), 1, "nothing happens before the deadline");
}

#[test]
fn a_rival_that_fails_makes_way_for_the_next_at_once() {
    let mut bench = Bench::new(3);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    assert_eq!(connects(&bench.sleep()), [1]);
    assert_eq!(connects(&bench.step(Input::Disconnected { endpoint: 1 })), [2]);
}

#[test]
fn a_call_ends_at_once_where_the_only_node_refuses_for_good_and_the_next_call_tries_again() {
    let mut bench = Bench::new(1);
    for call in 1..=3 {
        bench.submit(call, enqueue(1), 20 * SECOND_US);
        if attempts(&bench).len() < call as usize {
            bench.sleep();
        }
        let error = failed(&bench.step(refuses(0)));
        assert_eq!((error.code, error.retry), (ErrorCode::Denied, Retry::Never));
        assert_eq!(error.message, "n0: the certificate has expired");
        assert_eq!(attempts(&bench).len(), call as usize, "one attempt for each call");
        assert_eq!(bench.session.next_wake(), None, "nothing is tried without a call");
    }
}

#[test]
fn a_write_that_was_sent_before_the_refusal_may_have_taken_effect() {
    let genesis = Genesis {
        cluster: ClusterId(1),
        name: "c".into(),
        partitions: 1,
        replicas: 1,
        members: Vec::new(),
        assignment: Vec::new(),
    };
    let mut bench = Bench::new(1);
    bench.submit(1, Call::Request(Request::Initialize(Box::new(genesis))), 20 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    assert_eq!(sent(&outputs).len(), 2, "it needs no welcome: {outputs:?}");
    let error = failed(&bench.step(refuses(0)));
    assert_eq!(error.code, ErrorCode::Unknown, "{error}");
    assert!(error.message.contains("n0: the certificate has expired"), "{error}");
}

/// TLS 1.3: the client's certificate is checked after the client considers the handshake complete.
#[test]
fn a_refusal_after_the_handshake_ends_the_call_as_well() {
    let mut bench = Bench::new(1);
    bench.submit(1, Call::Request(Request::Identify), 20 * SECOND_US);
    bench.step(Input::Connected { endpoint: 0 });
    assert_eq!(failed(&bench.step(refuses(0))).code, ErrorCode::Denied);
    assert_eq!(attempts(&bench), [0]);
}

#[test]
fn a_refusal_for_good_is_no_end_while_another_endpoint_may_serve() {
    let mut bench = Bench::new(3);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    assert_eq!(connects(&bench.step(refuses(0))), [1]);
    assert_eq!(connects(&bench.step(Input::Disconnected { endpoint: 1 })), [2]);
    assert_eq!(sent(&bench.open(2)).len(), 1);

    // The others are dead: once their attempts have timed out, the refusal of the node that answers decides.
    let mut bench = Bench::new(3);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    bench.step(refuses(0));
    let error = loop {
        let outputs = bench.sleep();
        if !done(&outputs).is_empty() {
            break failed(&outputs);
        }
    };
    assert_eq!(error.code, ErrorCode::Denied);
    assert!(bench.now_us < 4 * SECOND_US, "at {}", bench.now_us);
    let mut tried = attempts(&bench);
    tried.sort_unstable();
    tried.dedup();
    assert_eq!(tried, [0, 1, 2]);
}

/// Behaviour of a node that may serve later.
#[derive(Debug, Clone, Copy)]
enum Passing {
    /// Refuses the connection, because it has too many.
    Refuses,
    /// Closes the connection, as a node does that is stopping.
    Closes,
    /// Does not answer `hello`.
    Hangs,
    /// Answers that it is starting.
    Starts,
}

#[test]
fn a_node_that_may_serve_later_is_waited_for_beside_one_that_refuses_for_good() {
    for passing in [Passing::Refuses, Passing::Closes, Passing::Hangs, Passing::Starts] {
        let mut bench = Bench::new(2);
        bench.submit(1, enqueue(1), 20 * SECOND_US);
        assert_eq!(connects(&bench.step(refuses(0))), [1]);
        if let Passing::Refuses = passing {
            bench.step(Input::Refused { endpoint: 1, error: Error::unavailable("too many connections") });
        } else {
            let hello = sent(&bench.step(Input::Connected { endpoint: 1 }))[0].1;
            match passing {
                Passing::Closes => drop(bench.step(Input::Disconnected { endpoint: 1 })),
                Passing::Starts => drop(bench.answer(1, hello, Response::Error(error(ErrorCode::NotReady)))),
                Passing::Hangs | Passing::Refuses => while !dropped(&bench.sleep()).contains(&1) {},
            }
        }
        assert!(done(&bench.outputs).is_empty(), "{passing:?}");
        while bench.session.links.active != 1 || !bench.session.links.get(1).is_ready() {
            match bench.session.links.get(1).link {
                Link::Connecting { .. } => drop(bench.open(1)),
                Link::Greeting { number, .. } => drop(bench.answer(1, number, welcome(SERVER_MS, 5))),
                Link::Idle | Link::Refused | Link::Ready { .. } => drop(bench.sleep()),
            }
        }
        assert!(done(&bench.outputs).is_empty(), "{passing:?}");
        let enqueues = |(_, _, request): &(usize, u64, &Request)| matches!(request, Request::Enqueue { .. });
        assert_eq!(sent(&bench.outputs).into_iter().filter(enqueues).count(), 1, "{passing:?}");
    }
}

#[test]
fn a_node_that_was_not_heard_at_first_counts_once_it_is() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    assert_eq!(connects(&bench.sleep()), [1]);
    bench.step(Input::Disconnected { endpoint: 1 });
    assert_eq!(connects(&bench.sleep()), [1]);
    let hello = sent(&bench.step(Input::Connected { endpoint: 1 }))[0].1;
    assert!(done(&bench.step(refuses(0))).is_empty());
    assert_eq!(sent(&bench.answer(1, hello, welcome(SERVER_MS, 5))).len(), 1);
}

#[test]
fn what_several_nodes_refuse_for_is_said_once_each() {
    let mut bench = Bench::new(3);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    for endpoint in [0, 1] {
        assert!(done(&bench.step(refuses(endpoint))).is_empty());
    }
    let error = failed(
        &bench.step(Input::Refused { endpoint: 2, error: Error::new(ErrorCode::Denied, "n0: the certificate") }),
    );
    assert_eq!(error.message, "n0: the certificate has expired; n1: the certificate has expired");
}

#[test]
fn a_session_that_was_welcomed_before_outlasts_a_refusal_for_good() {
    let (mut bench, number, _) = bench_sent(1, enqueue(1), 20 * SECOND_US);
    bench.answer(0, number, Response::Acked(vec![Err(error(ErrorCode::Conflict))]));
    bench.step(Input::Disconnected { endpoint: 0 });
    bench.submit(2, enqueue(1), 20 * SECOND_US);
    for _ in 0..3 {
        assert_eq!(connects(&bench.sleep()), [0]);
        assert!(done(&bench.step(refuses(0))).is_empty(), "the certificate may be renewed");
    }
    assert_eq!(connects(&bench.sleep()), [0]);
    assert_eq!(sent(&bench.open(0)).len(), 1);
}

fn unfounded() -> Response {
    Response::Error(Error::new(ErrorCode::NotReady, "run init").because(Cause::Unfounded))
}

#[test]
fn before_there_is_a_cluster_calls_fail_at_once_and_early_ones_are_answered() {
    let mut bench = Bench::new(1);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    bench.submit(2, Call::Request(Request::Identify), 20 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let [(_, hello, Request::Hello { .. }), (_, identify, Request::Identify)] = sent(&outputs)[..] else {
        panic!("{outputs:?}");
    };
    let error = failed(&bench.answer(0, hello, unfounded()));
    assert_eq!((error.code, error.cause), (ErrorCode::NotReady, Some(Cause::Unfounded)));
    assert_eq!(done(&bench.answer(0, identify, Response::Done)), [(2, Ok(Response::Done))]);
    // The cluster was founded meanwhile: the same connection serves.
    bench.submit(3, enqueue(1), 20 * SECOND_US);
    let (_, hello, _) = bench.sleep_until_sent();
    assert_eq!(sent(&bench.answer(0, hello, welcome(SERVER_MS, 5))).len(), 1);
}

/// Goal: a client that knows only a removed node learns so at once, and is not advised to try again.
#[test]
fn a_node_that_was_removed_is_not_waited_for() {
    let mut bench = Bench::new(1);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    let hello = sent(&bench.step(Input::Connected { endpoint: 0 }))[0].1;
    let removed = Error::new(ErrorCode::NotReady, "ask another one").because(Cause::Removed);
    let error = failed(&bench.answer(0, hello, Response::Error(removed)));
    assert_eq!((error.code, error.cause), (ErrorCode::NotReady, Some(Cause::Removed)));
}

#[test]
fn a_node_that_is_starting_is_waited_for() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    let hello = sent(&bench.step(Input::Connected { endpoint: 0 }))[0].1;
    bench.answer(0, hello, Response::Error(error(ErrorCode::NotReady)));
    assert!(done(&bench.step(refuses(1))).is_empty());
    let (endpoint, hello, _) = bench.sleep_until_sent();
    assert_eq!(endpoint, 0);
    assert_eq!(sent(&bench.answer(0, hello, welcome(SERVER_MS, 5))).len(), 1);
}

#[test]
fn without_a_node_calls_end_after_the_time_for_that_and_say_so() {
    let config = Config { unreached_ms_max: Some(5_000), ..Config::default() };
    let mut bench = Bench::new(2);
    bench.session = Session::new(config, 2, 7);
    let begun_us = bench.now_us;
    bench.submit(1, enqueue(1), 100 * SECOND_US);
    bench.submit(2, Call::Request(Request::Queues), 100 * SECOND_US);
    let ended = loop {
        let ended = done(&bench.sleep());
        if !ended.is_empty() {
            break ended;
        }
    };
    assert_eq!(bench.now_us - begun_us, 5 * SECOND_US + 2 * HEAD_START_US);
    assert_eq!(ended.len(), 2);
    for (_, result) in ended {
        let error = result.expect_err("no node was there");
        assert_eq!((error.code, error.cause), (ErrorCode::Unavailable, Some(Cause::Unreached)));
    }
    assert_eq!(bench.session.next_wake().filter(|at_us| *at_us > 100 * SECOND_US), None, "it is over");
}

#[test]
fn a_call_that_was_sent_is_tried_up_to_its_deadline_whatever_the_time_for_reaching_a_node() {
    let config = Config { unreached_ms_max: Some(5_000), ..Config::default() };
    let mut bench = Bench::new(1);
    bench.session = Session::new(config, 1, 7);
    bench.submit(1, enqueue(1), 100 * SECOND_US);
    let first = ids(sent(&bench.open(0))[0].2);
    let lost_us = bench.now_us;
    bench.step(Input::Disconnected { endpoint: 0 });
    while bench.now_us < lost_us + 20 * SECOND_US {
        assert!(done(&bench.sleep()).is_empty(), "it may have taken effect");
    }
    if !matches!(bench.session.links.get(0).link, Link::Connecting { .. }) {
        bench.sleep();
    }
    assert_eq!(ids(sent(&bench.open(0))[0].2), first);
}
