//! Limits of a session.

use super::*;
use norn_wire::{SESSIONS_QUEUE, limits};

#[test]
fn what_is_too_much_is_refused_or_waits() {
    let config = Config { in_flight_max: 2, calls_max: 3, ..Config::default() };
    let mut bench = Bench { session: Session::new(config, 1, 1), now_us: 0, outputs: Vec::new(), lively: false };
    for call in 0..3 {
        bench.submit(call, Call::Request(Request::Queues), SECOND_US);
    }
    let result = done(&bench.submit(3, Call::Request(Request::Queues), SECOND_US));
    assert!(matches!(&result[..], [(3, Err(error))] if error.code == ErrorCode::Overloaded));
    let outputs = bench.open(0);
    assert_eq!(sent(&outputs).len(), 2);
    let outputs = bench.answer(0, sent(&outputs)[0].1, Response::Queues(Vec::new()));
    assert_eq!((done(&outputs).len(), sent(&outputs).len()), (1, 1));
}

#[test]
fn limits_are_checked_before_anything_is_sent() {
    let enqueue = |drafts| Call::Enqueue { drafts, acks: Acks::One };
    let bad = [
        enqueue(Vec::new()),
        enqueue(vec![draft().delay_ms(1).not_before_ms(1)]),
        enqueue(vec![draft().delay_ms(limits::DELAY_MS_MAX + 1)]),
        enqueue(vec![draft().id(TaskId::MIN), draft().id(TaskId::MIN)]),
        enqueue(vec![Draft::new(SESSIONS_QUEUE.parse().unwrap(), "no session")]),
        enqueue(vec![Draft::session("who waits").delay_ms(1).key("k")]),
        enqueue(vec![draft(), draft().member_of(TaskId::MIN, 1)]),
        finish(vec![draft(), draft().member_of(TaskId::MIN, 1)]),
        finish(vec![draft().join(Some(1), false).member_of(TaskId::MIN, 1)]),
        claim(limits::WAIT_MS_MAX + 1),
        Call::Request(Request::Hello { name: String::new(), bare: false }),
    ];
    let mut bench = Bench::new(1);
    for (index, body) in bad.into_iter().enumerate() {
        let outputs = bench.submit(index as u64, body, SECOND_US);
        let result = done(&outputs);
        assert!(matches!(&result[..], [(_, Err(error))] if error.code == ErrorCode::Invalid), "{index}: {result:?}");
        assert_eq!(outputs.len(), 1, "nothing else happens");
    }
    assert!(connects(&bench.submit(99, enqueue(vec![Draft::session("w")]), SECOND_US)).len() == 1);
    let large = vec![Draft::new(queue(), vec![0; limits::PAYLOAD_BYTES_MAX]); 8];
    assert!(done(&bench.submit(100, enqueue(large), SECOND_US)).is_empty());
}
