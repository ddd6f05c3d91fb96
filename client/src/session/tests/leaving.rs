//! Leaves of finished claims, which are repeated until a node has acknowledged them.

use super::confirm::{leaves, waiting};
use super::*;
use crate::session::leaving::LEAVING_MAX;

const UNDER_WAY_MAX: usize = 8;

/// A session without calls and without a connection that has a leave to send.
fn to_leave(endpoints: usize) -> (Bench, ClaimId) {
    let (mut bench, _, claim) = waiting(endpoints);
    bench.step(Input::Disconnected { endpoint: 0 });
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!((done(&outputs).len(), leaves(&outputs)), (1, vec![]), "there is no node");
    (bench, claim)
}

/// Completes a connection to an endpoint, which the session tries by itself. Returns what it is sent.
fn reached(bench: &mut Bench, endpoint: usize) -> Vec<Output> {
    for _ in 0..100 {
        if matches!(bench.session.links.get(endpoint).link, Link::Connecting { .. }) {
            return bench.open(endpoint);
        }
        let outputs = bench.sleep();
        for other in connects(&outputs).into_iter().filter(|other| *other != endpoint) {
            bench.step(Input::Disconnected { endpoint: other });
        }
    }
    panic!("it is not tried");
}

/// The number of the only leave in these outputs.
fn number_of(outputs: &[Output]) -> u64 {
    let [(_, number, Request::Leave { .. })] = sent(outputs)[..] else { panic!("{outputs:?}") };
    number
}

/// Whether no leave is sent for this long.
fn is_quiet(bench: &mut Bench, for_us: u64) -> bool {
    let until_us = bench.now_us + for_us;
    while bench.session.next_wake().is_some_and(|at_us| at_us <= until_us) {
        if !leaves(&bench.sleep()).is_empty() {
            return false;
        }
    }
    true
}

/// Goal: a task is not held for its whole lease because its client has no other calls.
#[test]
fn an_idle_session_connects_to_leave() {
    let (mut bench, claim) = to_leave(1);
    let outputs = reached(&mut bench, 0);
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
    let number = number_of(&outputs);
    assert!(bench.answer(0, number, Response::Done).is_empty());
    assert!(is_quiet(&mut bench, 100 * SECOND_US));
}

/// Goal: a node that is lost before it forwards a leave does no harm.
#[test]
fn a_leave_is_taken_again_when_its_connection_is_gone() {
    let (mut bench, claim) = to_leave(2);
    let outputs = reached(&mut bench, 1);
    assert_eq!(leaves(&outputs), [(1, claim, true)]);
    bench.step(Input::Disconnected { endpoint: 1 });
    let gone_us = bench.now_us;
    let outputs = reached(&mut bench, 0);
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
    assert!(bench.now_us < gone_us + SECOND_US, "no answer to the first is waited for");
    let number = number_of(&outputs);
    bench.answer(0, number, Response::Done);
    assert!(is_quiet(&mut bench, 100 * SECOND_US));
}

/// As above, with a node that does not answer.
#[test]
fn a_leave_is_taken_again_when_its_node_is_silent() {
    let (mut bench, claim) = to_leave(1);
    let first = number_of(&reached(&mut bench, 0));
    let outputs = bench.sleep();
    assert!(outputs.iter().any(|output| matches!(output, Output::Disconnect { endpoint: 0 })), "{outputs:?}");
    let outputs = reached(&mut bench, 0);
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
    assert!(number_of(&outputs) > first);
}

/// As above, with a node that cannot do it now. A leave that is refused for good is not repeated.
#[test]
fn a_leave_is_taken_again_when_it_is_refused_for_the_moment() {
    for (code, again) in [(ErrorCode::Unavailable, true), (ErrorCode::Invalid, false)] {
        let (mut bench, claim) = to_leave(1);
        let number = number_of(&reached(&mut bench, 0));
        let mut outputs = bench.answer(0, number, Response::Error(error(code)));
        if outputs.is_empty() && again {
            outputs = bench.sleep();
        }
        assert_eq!(leaves(&outputs), if again { vec![(0, claim, true)] } else { vec![] });
        let answered = again.then(|| number_of(&outputs));
        answered.into_iter().for_each(|number| drop(bench.answer(0, number, Response::Done)));
        assert!(is_quiet(&mut bench, 100 * SECOND_US));
    }
}

/// A claim that was abandoned while its node asked others, and the number of the leave sent to that node.
fn told(endpoints: usize) -> (Bench, ClaimId, u64) {
    let (mut bench, _, claim) = waiting(endpoints);
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!((done(&outputs).len(), leaves(&outputs)), (1, vec![(0, claim, false)]));
    (bench, claim, number_of(&outputs))
}

/// Goal: if the node at which a claim waits has died unnoticed right after a grant, another node gets the leave.
#[test]
fn a_leave_that_is_said_to_a_dead_node_is_said_to_another() {
    let (mut bench, claim, _) = told(2);
    bench.step(Input::Disconnected { endpoint: 0 });
    let outputs = reached(&mut bench, 1);
    assert_eq!(leaves(&outputs), [(1, claim, true)]);
    let number = number_of(&outputs);
    bench.answer(1, number, Response::Done);
    assert!(is_quiet(&mut bench, 100 * SECOND_US));
}

/// As above, with the only node of a session, which may be cut off; it gets the leave when it is back.
#[test]
fn a_leave_that_the_only_node_is_silent_to_is_said_again() {
    let (mut bench, claim, _) = told(1);
    let begun_us = bench.now_us;
    let outputs = bench.sleep();
    assert!(outputs.iter().any(|output| matches!(output, Output::Disconnect { endpoint: 0 })), "{outputs:?}");
    assert!(bench.now_us - begun_us < 10 * SECOND_US);
    let outputs = reached(&mut bench, 0);
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
}

/// Goal: an acknowledged leave is not repeated, and one that the node could not accept at the moment is.
#[test]
fn a_leave_that_is_answered_is_said_once() {
    for response in [Response::Done, Response::Error(error(ErrorCode::Invalid))] {
        let (mut bench, _, number) = told(2);
        assert!(leaves(&bench.answer(0, number, response)).is_empty());
        bench.step(Input::Disconnected { endpoint: 0 });
        assert!(is_quiet(&mut bench, 100 * SECOND_US));
    }
    let (mut bench, claim, number) = told(1);
    let mut outputs = bench.answer(0, number, Response::Error(error(ErrorCode::Overloaded)));
    if outputs.is_empty() {
        outputs = bench.sleep();
    }
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
}

/// Goal: claims that end at a node that answers nothing do not fill the memory.
#[test]
fn leaves_that_are_not_answered_are_bounded() {
    let mut bench = Bench::new(1);
    bench.submit(0, Call::Request(Request::Queues), 1_000 * SECOND_US);
    bench.open(0);
    for call in 1..=3 * LEAVING_MAX as u64 {
        bench.submit(call, claim(60_000), 100 * SECOND_US);
        let outputs = bench.step(Input::Abandon { call: CallId(call) });
        assert_eq!(leaves(&outputs).len(), 1);
    }
    bench.step(Input::Disconnected { endpoint: 0 });
    let mut outputs = reached(&mut bench, 0);
    let mut left = 0;
    while !leaves(&outputs).is_empty() {
        left += leaves(&outputs).len();
        let numbers = sent(&outputs).into_iter().filter(|(_, _, request)| matches!(request, Request::Leave { .. }));
        let numbers: Vec<u64> = numbers.map(|(_, number, _)| number).collect();
        outputs = numbers.into_iter().flat_map(|number| bench.answer(0, number, Response::Done)).collect();
    }
    assert_eq!(left, LEAVING_MAX);
}

/// Goal: if no node comes back, a session does not look for one for ever.
#[test]
fn a_leave_ends_with_its_lease() {
    let (mut bench, _) = to_leave(2);
    let begun_us = bench.now_us;
    for _ in 0..10_000 {
        if bench.session.next_wake().is_none() {
            break;
        }
        let outputs = bench.sleep();
        for endpoint in connects(&outputs) {
            bench.step(Input::Disconnected { endpoint });
        }
    }
    assert_eq!(bench.session.next_wake(), None);
    let took_us = bench.now_us - begun_us;
    assert!((60 * SECOND_US..70 * SECOND_US).contains(&took_us), "{took_us}");
}

/// A session without calls and without a connection that has this many leaves to send.
fn many_to_leave(count: u64) -> Bench {
    let mut bench = Bench::new(1);
    for call in 0..count {
        bench.submit(call, claim(60_000), 100 * SECOND_US);
    }
    bench.open(0);
    bench.step(Input::Disconnected { endpoint: 0 });
    for call in 0..count {
        bench.step(Input::Abandon { call: CallId(call) });
    }
    bench
}

/// Goal: many leaves do not fill a connection, and none is lost.
#[test]
fn few_leaves_are_under_way_at_once() {
    let count = 3 * UNDER_WAY_MAX as u64;
    let mut bench = many_to_leave(count);
    let mut outputs = reached(&mut bench, 0);
    let mut left = 0;
    while !outputs.is_empty() {
        let numbers: Vec<u64> = sent(&outputs).into_iter().map(|(_, number, _)| number).collect();
        assert!(numbers.len() <= UNDER_WAY_MAX && leaves(&outputs).len() == numbers.len());
        left += numbers.len() as u64;
        outputs = numbers.into_iter().flat_map(|number| bench.answer(0, number, Response::Done)).collect();
    }
    assert_eq!(left, count);
}

/// Goal: when a session ends, no claim waits for its lease because other leaves are under way, or because its own was refused a moment ago.
#[test]
fn a_session_that_closes_says_all_leaves_at_once() {
    let count = 3 * UNDER_WAY_MAX as u64;
    let mut bench = many_to_leave(count);
    let outputs = reached(&mut bench, 0);
    let mut said = leaves(&outputs);
    assert_eq!(said.len(), UNDER_WAY_MAX);
    let refused = sent(&outputs)[0].1;
    assert_eq!(leaves(&bench.answer(0, refused, Response::Error(error(ErrorCode::Unavailable)))).len(), 1);
    said.extend(leaves(&bench.step(Input::Closing)));
    assert_eq!(said.len() as u64, count, "all but the one that was said beside the refusal");
    assert_eq!(said.iter().map(|(_, claim, _)| claim).collect::<BTreeSet<_>>().len() as u64, count - 1);
    assert!(leaves(&bench.step(Input::Wake)).is_empty());
}
