//! Calls in transit behind others on a slow connection.

use super::confirm::{confirmation, leaves, waiting};
use super::*;
use norn_wire::limits;

/// A batch close to the size limit.
fn large() -> Call {
    let payload = vec![0; limits::PAYLOAD_BYTES_MAX / 2];
    let count = limits::BATCH_BYTES_MAX / payload.len() - 1;
    Call::Enqueue { drafts: vec![Draft::new(queue(), payload); count], acks: Acks::One }
}

/// The numbers of the batches in these outputs.
fn batches(outputs: &[Output]) -> Vec<u64> {
    let enqueues = sent(outputs).into_iter().filter(|(_, _, request)| matches!(request, Request::Enqueue { .. }));
    enqueues.map(|(_, number, _)| number).collect()
}

/// A session with seven large calls, and the numbers of those sent.
fn bench_large() -> (Bench, Vec<u64>) {
    let mut bench = Bench::new(1);
    for call in 1..=7 {
        bench.submit(call, large(), 1_000 * SECOND_US);
    }
    let numbers = batches(&bench.open(0));
    (bench, numbers)
}

fn acked_all(bench: &Bench, number: u64) -> Response {
    let (_, _, request) = sent(&bench.outputs).into_iter().find(|(_, sent, _)| *sent == number).expect("it was sent");
    Response::Acked(ids(request).into_iter().map(|id| Ok(acked(id))).collect())
}

/// Goal: a slow connection does not fill the memory, and nothing is sent twice while it is in transit. Method: eight seconds for each
/// batch, and the node answers as it arrives.
#[test]
fn large_calls_get_the_time_of_those_before_them() {
    let (mut bench, mut numbers) = bench_large();
    assert!((4..=5).contains(&numbers.len()), "{numbers:?} are on their way at once");
    let mut answered = 0;
    while answered < 7 {
        let arrives_us = bench.now_us + 8 * SECOND_US;
        while bench.session.next_wake().is_some_and(|at_us| at_us < arrives_us) {
            let outputs = bench.sleep();
            let asks = |output: &Output| matches!(output, Output::Send { request: Request::Ping, .. });
            assert!(
                outputs.iter().all(asks),
                "{} outputs after {answered}, such as {:?}",
                outputs.len(),
                batches(&outputs)
            );
        }
        bench.now_us = arrives_us;
        let response = acked_all(&bench, numbers[answered]);
        let outputs = bench.answer(0, numbers[answered], response);
        assert_eq!(done(&outputs).len(), 1);
        numbers.extend(batches(&outputs));
        answered += 1;
    }
    assert_eq!(numbers.len(), 7, "each was sent once");
}

/// Goal: abandoned calls make no room for others, as their bytes are still in transit; calls that a lost node never received do not
/// delay the rest. Method: the calls are abandoned, and then the node answers the last of them, or none.
#[test]
fn what_was_given_up_and_not_sent_yet_counts() {
    for answers in [false, true] {
        let (mut bench, numbers) = bench_large();
        for call in 1..=numbers.len() as u64 {
            assert!(batches(&bench.step(Input::Abandon { call: CallId(call) })).is_empty(), "there is no room");
        }
        let [(0, _, Request::Ping)] = sent(&bench.sleep())[..] else { panic!("the node is not asked") };
        let outputs = match answers {
            true => {
                let last = *numbers.last().unwrap();
                let response = acked_all(&bench, last);
                bench.answer(0, last, response)
            }
            false => {
                let mut outputs = bench.step(Input::Disconnected { endpoint: 0 });
                while connects(&outputs).is_empty() {
                    outputs = bench.sleep();
                }
                bench.open(0)
            }
        };
        assert_eq!(batches(&outputs).len(), 7 - numbers.len(), "{answers}");
    }
}

/// Advances the time. Returns whether no connection is closed, and nothing is repeated.
fn is_patient(bench: &mut Bench, for_us: u64) -> bool {
    let until_us = bench.now_us + for_us;
    while bench.session.next_wake().is_some_and(|at_us| at_us <= until_us) {
        let outputs = bench.sleep();
        let asks = |request: &Request| matches!(request, Request::Ping);
        if connects(&outputs).len() + sent(&outputs).iter().filter(|(_, _, request)| !asks(request)).count() > 0 {
            return false;
        }
        if outputs.iter().any(|output| matches!(output, Output::Disconnect { .. })) {
            return false;
        }
    }
    bench.now_us = until_us;
    true
}

/// A session that waits for work, with large calls in transit since.
fn waiting_behind() -> (Bench, u64, ClaimId) {
    let (mut bench, number, claim) = waiting(1);
    for call in 2..=7 {
        bench.submit(call, large(), 1_000 * SECOND_US);
    }
    (bench, number, claim)
}

/// Goal: the requests that end a claim wait behind large calls, too, and the node is not left meanwhile.
#[test]
fn what_ends_a_claim_gets_the_time_of_what_is_on_its_way() {
    let (mut bench, number, claim) = waiting_behind();
    let outputs = bench.answer(0, number, something());
    let confirm = confirmation(&outputs, claim);
    assert!(is_patient(&mut bench, 8 * SECOND_US), "the confirmation is on its way");
    let outputs = bench.answer(0, confirm, Response::Done);
    let renews = sent(&outputs).into_iter().any(|(_, _, request)| matches!(request, Request::Renew { .. }));
    assert!(renews, "it has waited for long");

    let (mut bench, _, claim) = waiting_behind();
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(leaves(&outputs), [(0, claim, false)]);
    assert!(is_patient(&mut bench, 8 * SECOND_US), "the leave is on its way");
}

/// How long it takes until the only node is left, with calls of this timeout.
fn left_after(body: impl Fn() -> Call, timeout_us: u64) -> u64 {
    let mut bench = Bench::new(1);
    bench.submit(1, body(), timeout_us);
    bench.open(0);
    let start_us = bench.now_us;
    for call in 2.. {
        bench.submit(call, body(), timeout_us);
        let until_us = bench.now_us + timeout_us;
        while bench.session.next_wake().is_some_and(|at_us| at_us <= until_us) {
            if bench.sleep().iter().any(|output| matches!(output, Output::Disconnect { endpoint: 0 })) {
                return bench.now_us - start_us;
            }
            assert!(bench.now_us < start_us + 300 * SECOND_US, "it is never given up");
        }
        bench.now_us = until_us;
    }
    unreachable!("calls do not run out");
}

/// Goal: even the only node is left if it reads nothing, however short the deadlines of the calls are: a new connection may be read. It
/// gets the time that the bytes in transit need.
#[test]
fn the_only_node_is_given_up_where_it_reads_nothing() {
    let small_us = left_after(|| enqueue(1), SECOND_US);
    assert!((30 * SECOND_US..40 * SECOND_US).contains(&small_us), "{small_us}");
    let large_us = left_after(large, SECOND_US);
    assert!((55 * SECOND_US..80 * SECOND_US).contains(&large_us), "{large_us}");
}
