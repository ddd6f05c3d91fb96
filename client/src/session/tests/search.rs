//! The search for another node while the present one answers, but finds no work and cannot look everywhere.

use super::*;

const ATTEMPT_US: u64 = 2_500_000;

/// A session whose endpoint 0 is ready and was blind to the only claim so far; the others have never been connected.
fn bench_blind(endpoints: usize) -> Bench {
    let (mut bench, number, _) = lively_sent(endpoints, claim(0), SECOND_US);
    let outputs = bench.answer(0, number, nothing(3));
    assert_eq!((done(&outputs).len(), connects(&outputs)), (1, vec![1]), "the next one in turn is tried");
    bench
}

/// Submits a call that must be sent at once. Returns the endpoint and the number of the request.
fn send(bench: &mut Bench, call: u64, body: Call) -> (usize, u64) {
    let outputs = bench.submit(call, body, 100 * SECOND_US);
    let [(endpoint, number, _)] = sent(&outputs)[..] else { panic!("call {call} waits: {outputs:?}") };
    (endpoint, number)
}

/// Advances the time, with all wake-ups on the way.
fn sleep_for(bench: &mut Bench, length_us: u64) {
    let until_us = bench.now_us + length_us;
    while bench.session.next_wake().is_some_and(|at_us| at_us <= until_us) {
        bench.wake();
    }
    bench.now_us = until_us;
}

/// Checks this for as long as attempts under way may last.
fn assert_nothing_is_sought(bench: &mut Bench) {
    let before = bench.outputs.len();
    sleep_for(bench, ATTEMPT_US - 1);
    let asks = |output: &Output| matches!(output, Output::Send { request: Request::Ping, .. });
    assert!(bench.outputs[before..].iter().all(asks), "{:?}", &bench.outputs[before..]);
}

#[test]
fn no_call_waits_for_dead_endpoints_and_each_is_tried_in_turn() {
    let mut bench = bench_blind(3);
    for call in (2..2_000).step_by(2) {
        let (endpoint, number) = send(&mut bench, call, enqueue(1));
        assert_eq!(endpoint, 0);
        bench.answer(0, number, Response::Acked(vec![Err(error(ErrorCode::Conflict))]));
        let (endpoint, number) = send(&mut bench, call + 1, claim(0));
        assert_eq!(endpoint, 0);
        assert_eq!(done(&bench.answer(0, number, nothing(3))).len(), 1);
        sleep_for(&mut bench, 100_000);
    }
    let tries: Vec<(usize, bool)> = bench
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Connect { endpoint } => Some((*endpoint, true)),
            Output::Disconnect { endpoint } => Some((*endpoint, false)),
            Output::Send { .. } | Output::Done { .. } => None,
        })
        .skip(1)
        .collect();
    let expected = [(1, true), (1, false), (2, true), (2, false)];
    assert!(tries.iter().zip(expected.iter().cycle()).all(|(one, other)| one == other), "one at a time: {tries:?}");
    // In 100 s: each try takes 2.5 s, and the pause after it at most 1 s plus the time to the next claim.
    assert!((2 * 27..=2 * 40).contains(&tries.len()), "{}", tries.len());
}

#[test]
fn a_claim_that_waits_is_enough_to_go_on_searching() {
    let mut bench = bench_blind(3);
    let (_, waiting) = send(&mut bench, 2, claim(60_000));
    let begun_us = bench.now_us;
    assert!(matches!(bench.sleep()[..], [Output::Disconnect { endpoint: 1 }]), "it is given up");
    assert_eq!(bench.now_us, begun_us + ATTEMPT_US);
    let mut pauses = Vec::new();
    for failed in 1..=12 {
        let failed_us = bench.now_us;
        let endpoint = 1 + failed % 2;
        assert_eq!(connects(&bench.sleep()), [endpoint], "the other of the two, after a pause");
        pauses.push((bench.now_us - failed_us) / 1_000);
        assert!(bench.step(Input::Disconnected { endpoint }).is_empty());
    }
    assert!((25..=50).contains(&pauses[0]) && (500..=1_000).contains(&pauses[11]), "{pauses:?}");
    bench.sleep();
    assert!(bench.open(2).is_empty());
    assert_eq!(send(&mut bench, 3, enqueue(1)).0, 2);
    assert_eq!(done(&bench.answer(0, waiting, nothing(3))), [(2, Ok(nothing(3)))], "what was sent before still counts");
    assert_nothing_is_sought(&mut bench);
}

#[test]
fn an_endpoint_that_connects_late_is_gone_to_when_it_is_ready() {
    let mut bench = bench_blind(2);
    sleep_for(&mut bench, ATTEMPT_US - 1);
    let (endpoint, first) = send(&mut bench, 2, enqueue(1));
    assert_eq!(endpoint, 0);
    let outputs = bench.step(Input::Connected { endpoint: 1 });
    let [(1, hello, Request::Hello { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    sleep_for(&mut bench, ATTEMPT_US - 2);
    assert_eq!(send(&mut bench, 3, claim(0)).0, 0, "connected is not ready");
    assert!(bench.answer(1, hello, welcome(SERVER_MS, 6)).is_empty());
    assert_eq!(send(&mut bench, 4, claim(0)).0, 1);
    let conflict = Response::Acked(vec![Err(error(ErrorCode::Conflict))]);
    assert_eq!(done(&bench.answer(0, first, conflict.clone())), [(2, Ok(conflict))]);
}

#[test]
fn an_endpoint_that_is_not_ready_is_asked_again_and_gone_to_when_it_is() {
    let mut bench = bench_blind(2);
    send(&mut bench, 2, claim(60_000));
    let outputs = bench.step(Input::Connected { endpoint: 1 });
    let hello = sent(&outputs)[0].1;
    assert!(bench.answer(1, hello, Response::Error(error(ErrorCode::NotReady))).is_empty());
    assert_eq!(send(&mut bench, 3, enqueue(1)).0, 0);
    let (endpoint, hello, request) = bench.sleep_until_sent();
    assert!(endpoint == 1 && matches!(request, Request::Hello { .. }), "{request:?}");
    assert_eq!(send(&mut bench, 4, enqueue(1)).0, 0);
    bench.answer(1, hello, welcome(SERVER_MS, 6));
    assert_eq!(send(&mut bench, 5, enqueue(1)).0, 1);
}

#[test]
fn when_the_present_endpoint_fails_its_calls_go_to_the_one_that_is_being_tried() {
    let mut bench = bench_blind(2);
    let outputs = bench.submit(2, enqueue(1), 100 * SECOND_US);
    let first = sent(&outputs)[0].2.clone();
    sleep_for(&mut bench, SECOND_US);
    assert!(bench.step(Input::Disconnected { endpoint: 0 }).is_empty(), "that one is under way already");
    let outputs = bench.open(1);
    let [(1, number, again)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(again, &first);
    let conflict = Response::Acked(vec![Err(error(ErrorCode::Conflict))]);
    assert_eq!(done(&bench.answer(1, number, conflict.clone())), [(2, Ok(conflict))]);
}

#[test]
fn when_the_present_endpoint_fails_and_the_other_is_dead_the_present_one_is_tried_again() {
    let mut bench = bench_blind(2);
    send(&mut bench, 2, enqueue(1));
    sleep_for(&mut bench, SECOND_US);
    bench.step(Input::Disconnected { endpoint: 0 });
    let outputs = bench.sleep();
    assert!(matches!(outputs[..], [Output::Connect { endpoint: 0 }]), "beside the other one: {outputs:?}");
    assert_eq!(sent(&bench.open(0)).len(), 1);
    send(&mut bench, 3, claim(60_000));
    assert_nothing_is_sought(&mut bench);
}

#[test]
fn a_node_that_sees_again_is_stayed_with_and_the_other_kept_for_later() {
    let mut bench = bench_blind(3);
    let (_, number) = send(&mut bench, 2, claim(0));
    bench.answer(0, number, nothing(0));
    bench.open(1);
    let (endpoint, number) = send(&mut bench, 3, claim(0));
    assert_eq!(endpoint, 0);
    assert!(connects(&bench.answer(0, number, nothing(3))).is_empty(), "there is one to go to");
    assert_eq!(send(&mut bench, 4, claim(0)).0, 1);
}

#[test]
fn a_search_ends_when_the_node_sees_again_or_nobody_claims() {
    let mut bench = bench_blind(2);
    sleep_for(&mut bench, ATTEMPT_US);
    assert_eq!(bench.session.next_wake(), None);
    sleep_for(&mut bench, SECOND_US);
    assert!(connects(&bench.submit(2, enqueue(1), SECOND_US)).is_empty());
    let outputs = bench.submit(3, claim(60_000), 100 * SECOND_US);
    assert_eq!((sent(&outputs)[0].0, connects(&outputs)), (0, vec![1]), "somebody claims again");
    let (_, number) = send(&mut bench, 4, claim(0));
    bench.answer(0, number, nothing(0));
    sleep_for(&mut bench, 50 * SECOND_US);
    assert_eq!(connects(&bench.outputs), [0, 1, 1]);
}

#[test]
fn where_all_that_are_connected_are_blind_the_rest_is_tried() {
    let mut bench = bench_blind(3);
    bench.open(1);
    bench.now_us += SECOND_US;
    let (endpoint, number) = send(&mut bench, 2, claim(0));
    assert_eq!(endpoint, 1);
    assert_eq!(connects(&bench.answer(1, number, nothing(3))), [2]);
    bench.now_us += SECOND_US;
    let (endpoint, number) = send(&mut bench, 3, claim(0));
    assert_eq!(endpoint, 0, "meanwhile they take turns");
    bench.answer(0, number, nothing(3));
    bench.open(2);
    bench.now_us += SECOND_US;
    let (endpoint, number) = send(&mut bench, 4, claim(0));
    assert_eq!(endpoint, 2);
    bench.answer(2, number, nothing(3));
    assert_eq!(send(&mut bench, 5, claim(0)).0, 1, "which was found blind before the others");
}

/// How long a call waits at a session whose present node is blind and whose other one is dead. `early` makes the session switch before
/// the other is ready, which it must not do.
fn wait_us(early: bool) -> u64 {
    let mut bench = bench_blind(2);
    if early {
        bench.session.links.active = 1;
    }
    let begun_us = bench.now_us;
    let outputs = bench.submit(2, enqueue(1), 100 * SECOND_US);
    if sent(&outputs).is_empty() {
        bench.sleep_until_sent();
    }
    bench.now_us - begun_us
}

#[test]
fn leaving_early_would_cost_a_connect_timeout() {
    assert_eq!((wait_us(false), wait_us(true)), (0, ATTEMPT_US));
}

/// A refusal of the only task of an enqueue.
fn refused(code: ErrorCode) -> Response {
    Response::Acked(vec![Err(error(code))])
}

#[test]
fn a_call_that_fails_again_and_again_seeks_another_node_though_all_others_have_failed() {
    for code in [ErrorCode::Unavailable, ErrorCode::Unknown] {
        let (mut bench, number, _) = bench_sent(3, enqueue(1), 100 * SECOND_US);
        for endpoint in [1, 2] {
            bench.session.links.get_mut(endpoint).failures = 1;
        }
        assert!(connects(&bench.answer(0, number, refused(code))).is_empty(), "once is an accident");
        let (endpoint, number) = match bench.session.attempts.first_key_value() {
            Some((number, attempt)) => (attempt.endpoint, *number),
            None => bench.sleep_until_sent_to(0),
        };
        assert_eq!(endpoint, 0);
        assert_eq!(connects(&bench.answer(0, number, refused(code))), [1], "{code:?}");
        let (_, number) = bench.sleep_until_sent_to(0);
        assert!(connects(&bench.answer(0, number, refused(code))).is_empty(), "one at a time");
        bench.open(1);
        let (endpoint, number, _) = bench.sleep_until_sent();
        assert_eq!(endpoint, 1, "the first that is ready");
        assert_eq!(done(&bench.answer(1, number, Response::Acked(vec![Ok(acked(TaskId::MIN))]))).len(), 1);
        sleep_for(&mut bench, 50 * SECOND_US);
        assert_eq!(connects(&bench.outputs), [0, 1], "nobody seeks any more");
    }
}
