//! Which node a session uses, and when it switches to another.

use super::*;
use norn_wire::limits;

#[test]
fn a_call_waits_for_the_welcome_and_is_answered_once() {
    let (mut bench, number, request) = bench_sent(1, enqueue(1), SECOND_US);
    let id = ids(&request)[0];
    assert_eq!((id.time_ms(), id.minter()), (SERVER_MS, 5));
    let answer = Response::Acked(vec![Ok(acked(id))]);
    assert_eq!(done(&bench.answer(0, number, answer.clone())), [(1, Ok(answer.clone()))]);
    assert!(bench.answer(0, number, answer).is_empty(), "a late answer is ignored");
    assert_eq!(bench.session.next_wake(), None);
}

#[test]
fn a_lost_connection_moves_the_same_bytes_to_the_next_endpoint() {
    let (mut bench, _, first) = bench_sent(3, enqueue(150), 20 * SECOND_US);
    let outputs = bench.step(Input::Disconnected { endpoint: 0 });
    assert_eq!(connects(&outputs), [1]);
    assert_eq!(connects(&bench.step(Input::Disconnected { endpoint: 1 })), [2]);
    let outputs = bench.open(2);
    assert_eq!(sent(&outputs).len(), 1);
    assert_eq!((sent(&outputs)[0].0, sent(&outputs)[0].2), (2, &first));
}

#[test]
fn an_attempt_without_answer_is_repeated_on_another_endpoint() {
    let (mut bench, _, first) = lively_sent(2, enqueue(1), 20 * SECOND_US);
    let outputs = bench.sleep();
    assert_eq!(bench.now_us, 1_000 + 2_500_000);
    assert!(matches!(outputs[..], [Output::Connect { endpoint: 1 }]), "{outputs:?}");
    let outputs = bench.open(1);
    assert_eq!(sent(&outputs)[0].2, &first);
}

#[test]
fn a_connection_that_answers_others_survives_a_slow_call_and_may_still_settle_it() {
    let (mut bench, slow, request) = lively_sent(2, enqueue(1), 20 * SECOND_US);
    let outputs = bench.submit(2, Call::Request(Request::Queues), SECOND_US);
    let quick = sent(&outputs)[0].1;
    assert_eq!(done(&bench.answer(0, quick, Response::Queues(Vec::new()))).len(), 1);
    let outputs = bench.sleep();
    assert!(matches!(outputs[..], [Output::Connect { endpoint: 1 }]), "{outputs:?}");
    let answer = Response::Acked(vec![Ok(acked(ids(&request)[0]))]);
    assert_eq!(done(&bench.answer(0, slow, answer.clone())), [(1, Ok(answer))]);
}

#[test]
fn what_one_attempt_has_settled_another_does_not_change() {
    let (mut bench, slow, request) = lively_sent(2, enqueue(2), 20 * SECOND_US);
    let all = ids(&request);
    let outputs = bench.submit(2, Call::Request(Request::Queues), SECOND_US);
    bench.answer(0, sent(&outputs)[0].1, Response::Queues(Vec::new()));
    bench.sleep();
    let outputs = bench.open(1);
    let (_, again, _) = sent(&outputs)[0];
    let first = vec![Ok(acked(all[0])), Err(error(ErrorCode::Unavailable))];
    assert!(bench.answer(0, slow, Response::Acked(first)).is_empty(), "the newer attempt goes on");
    let second = vec![Err(error(ErrorCode::Conflict)), Ok(acked(all[1]))];
    let outputs = bench.answer(1, again, Response::Acked(second));
    assert_eq!(done(&outputs), [(1, Ok(Response::Acked(vec![Ok(acked(all[0])), Ok(acked(all[1]))])))]);
}

#[test]
fn a_late_welcome_is_taken_while_no_other_node_is_ready() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 20 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let hello = sent(&outputs)[0].1;
    let refusal = Response::Error(error(ErrorCode::NotReady));
    assert_eq!(connects(&bench.answer(0, hello, refusal)), [1]);
    bench.step(Input::Disconnected { endpoint: 1 });
    let (_, hello, _) = bench.sleep_until_sent();
    bench.session.links.active = 1;
    assert_eq!(sent(&bench.answer(0, hello, welcome(SERVER_MS, 1))).len(), 1);
}

#[test]
fn short_deadlines_alone_lead_away_from_a_silent_node() {
    let (mut bench, _, _) = bench_sent(2, enqueue(1), SECOND_US / 10);
    assert_eq!(done(&bench.sleep()).len(), 1);
    assert_eq!(connects(&bench.submit(2, enqueue(1), SECOND_US)), [1]);
}

#[test]
fn a_node_without_a_cluster_still_answers_early_calls() {
    let mut bench = Bench::new(1);
    bench.submit(1, enqueue(1), 60 * SECOND_US);
    bench.submit(2, Call::Request(Request::Identify), 60 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let [(_, hello, Request::Hello { .. }), (_, identify, Request::Identify)] = sent(&outputs)[..] else {
        panic!("{outputs:?}");
    };
    assert!(bench.answer(0, hello, Response::Error(error(ErrorCode::NotReady))).is_empty());
    assert_eq!(done(&bench.answer(0, identify, Response::Done)), [(2, Ok(Response::Done))]);
    let (_, hello, request) = bench.sleep_until_sent();
    assert!(matches!(request, Request::Hello { .. }));
    assert_eq!(sent(&bench.answer(0, hello, welcome(SERVER_MS, 1))).len(), 1);
}

#[test]
fn an_early_call_is_told_that_there_is_a_cluster_already() {
    let (mut bench, number, _) = bench_sent_early();
    let not_ready = error(ErrorCode::NotReady);
    assert_eq!(done(&bench.answer(0, number, Response::Error(not_ready.clone()))), [(1, Err(not_ready))]);
}

fn bench_sent_early() -> (Bench, u64, Request) {
    let mut bench = Bench::new(1);
    bench.submit(1, Call::Request(Request::Identify), SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let (_, number, request) = sent(&outputs)[1];
    let request = request.clone();
    (bench, number, request)
}

#[test]
fn a_large_call_gets_time_for_its_transfer() {
    let drafts = vec![Draft::new(queue(), vec![0; limits::PAYLOAD_BYTES_MAX]); 8];
    let (mut bench, _, _) = lively_sent(1, Call::Enqueue { drafts, acks: Acks::One }, 60 * SECOND_US);
    bench.sleep();
    assert!((10 * SECOND_US..11 * SECOND_US).contains(&bench.now_us), "{}", bench.now_us);
}

#[test]
fn a_malformed_welcome_is_a_failed_endpoint() {
    for response in [welcome(u64::MAX, 1), welcome(SERVER_MS, 1 << 40), Response::Done] {
        let mut bench = Bench::new(1);
        bench.submit(1, enqueue(1), SECOND_US);
        let outputs = bench.step(Input::Connected { endpoint: 0 });
        let outputs = bench.answer(0, sent(&outputs)[0].1, response);
        assert!(matches!(outputs[..], [Output::Disconnect { endpoint: 0 }]));
    }
}

#[test]
fn a_refused_hello_is_a_failed_endpoint() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 60 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let outputs = bench.answer(0, sent(&outputs)[0].1, Response::Error(error(ErrorCode::Denied)));
    assert!(matches!(outputs[..], [Output::Disconnect { endpoint: 0 }, Output::Connect { endpoint: 1 }]));
    bench.now_us += 2_500_000;
    let outputs = bench.step(Input::Wake);
    assert!(matches!(outputs[0], Output::Disconnect { endpoint: 1 }));
    assert_eq!(done(&outputs), [(1, Err(error(ErrorCode::Denied)))], "the only node that answers refuses for good");
    assert!(matches!(bench.step(Input::Connected { endpoint: 1 })[..], [Output::Disconnect { endpoint: 1 }]));
}

#[test]
fn a_worker_goes_on_from_a_node_that_finds_nothing_and_sees_little() {
    let (mut bench, number, _) = bench_sent(2, claim(0), SECOND_US);
    bench.answer(0, number, nothing(0));
    let outputs = bench.submit(2, claim(0), SECOND_US);
    let [(0, number, Request::Claim(_))] = sent(&outputs)[..] else {
        panic!("it stays where it sees all: {outputs:?}")
    };
    let outputs = bench.answer(0, number, nothing(3));
    assert_eq!(done(&outputs), [(2, Ok(nothing(3)))], "what little the node knew is told");
    assert_eq!(connects(&outputs), [1]);
    let outputs = bench.submit(3, claim(0), SECOND_US);
    let [(0, early, Request::Claim(_))] = sent(&outputs)[..] else {
        panic!("nothing waits for the other: {outputs:?}")
    };
    assert!(sent(&bench.open(1)).is_empty());
    let outputs = bench.submit(4, claim(0), SECOND_US);
    let [(1, number, Request::Claim(_))] = sent(&outputs)[..] else { panic!("the other is there: {outputs:?}") };
    assert_eq!(done(&bench.answer(0, early, nothing(3))), [(3, Ok(nothing(3)))]);
    bench.answer(1, number, nothing(0));
    let outputs = bench.submit(5, claim(0), SECOND_US);
    let [(1, number, Request::Claim(_))] = sent(&outputs)[..] else { panic!("it stays there: {outputs:?}") };
    // While no other node can be reached, the first is better than none; and the other one is tried again.
    let outputs = bench.step(Input::Disconnected { endpoint: 1 });
    let [(0, again, Request::Claim(_))] = sent(&outputs)[..] else { panic!("it goes back: {outputs:?}") };
    assert!(again > number);
    assert_eq!(connects(&bench.sleep()), [1]);
    assert_eq!(done(&bench.answer(0, again, nothing(3))), [(5, Ok(nothing(3)))]);
    bench.open(1);
    assert_eq!(sent(&bench.submit(6, claim(0), SECOND_US))[0].0, 1);
}
