//! Claims whose answers are confirmed, and claims that are cancelled by a leave.

use super::*;

const WAIT_MS: u64 = 60_000;

/// A session that waits for work at endpoint 0, with the number and the id of the claim.
pub(super) fn waiting(endpoints: usize) -> (Bench, u64, ClaimId) {
    let (bench, number, request) = bench_sent(endpoints, claim(WAIT_MS), 100 * SECOND_US);
    let Request::Claim(claim) = request else { panic!("{request:?}") };
    assert!(claim.confirms && !claim.repeated);
    (bench, number, claim.claim)
}

/// The number of the confirmation that is sent; nothing else may be sent.
pub(super) fn confirmation(outputs: &[Output], claim: ClaimId) -> u64 {
    let [(0, number, Request::Confirm { claim: of })] = sent(outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((*of, done(outputs).len()), (claim, 0), "nothing is handed over before it is confirmed");
    number
}

pub(super) fn leaves(outputs: &[Output]) -> Vec<(usize, ClaimId, bool)> {
    let pick = |(endpoint, _, request): (usize, u64, &Request)| match request {
        Request::Leave { claim, elsewhere, .. } => Some((endpoint, *claim, *elsewhere)),
        _ => None,
    };
    sent(outputs).into_iter().filter_map(pick).collect()
}

/// Goal: nothing is handed over before the node knows that it arrived. A lease counts from the call if the call is recent.
#[test]
fn an_answer_is_confirmed_before_it_is_handed_over() {
    let (mut bench, number, claim) = waiting(1);
    let asked_us = bench.now_us;
    bench.now_us += SECOND_US;
    let outputs = bench.answer(0, number, something());
    let confirm = confirmation(&outputs, claim);
    bench.now_us += 3_000;
    let outputs = bench.answer(0, confirm, Response::Done);
    let [Output::Done { result, lease_from_us, .. }] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((result, *lease_from_us), (&Ok(something()), Some(asked_us)));
}

/// Brings a claim to its renewal after a long wait. Returns the number of the renewal.
fn renewal(bench: &mut Bench, number: u64, claim: ClaimId) -> u64 {
    bench.now_us += 20 * SECOND_US;
    let outputs = bench.answer(0, number, something());
    let confirm = confirmation(&outputs, claim);
    let outputs = bench.answer(0, confirm, Response::Done);
    let [(0, number, Request::Renew { items, lease_ms: None })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((items.len(), done(&outputs).len()), (1, 0));
    number
}

/// Goal: after a long wait, a lease is as long as possible, and counts by the client's clock alone.
#[test]
fn what_was_waited_for_long_is_renewed_first() {
    let (mut bench, number, claim) = waiting(1);
    let number = renewal(&mut bench, number, claim);
    let renewed_us = bench.now_us;
    bench.now_us += 5_000;
    let outputs = bench.answer(0, number, Response::Renewed(vec![Ok(29_000)]));
    let [Output::Done { result: Ok(Response::Claimed { tasks, .. }), lease_from_us, .. }] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!((tasks[0].lease_ms, *lease_from_us), (29_000, Some(renewed_us)));
}

/// Goal: a task whose claim cannot be renewed is not handed over, as another worker may have it.
#[test]
fn what_cannot_be_renewed_is_claimed_anew() {
    let refused = Response::Renewed(vec![Err(error(ErrorCode::Superseded))]);
    for refusal in [refused, Response::Error(error(ErrorCode::Unavailable))] {
        let (mut bench, number, claim) = waiting(1);
        let number = renewal(&mut bench, number, claim);
        let outputs = bench.answer(0, number, refusal);
        assert_eq!(done(&outputs), []);
        let again = match sent(&outputs)[..] {
            [(0, _, request)] => request.clone(),
            _ => bench.sleep_until_sent().2,
        };
        assert!(matches!(again, Request::Claim(again) if again.repeated && again.claim == claim));
    }
}

#[test]
fn a_claim_that_is_confirmed_too_late_is_made_again() {
    let (mut bench, number, claim) = waiting(1);
    let outputs = bench.answer(0, number, something());
    let confirm = confirmation(&outputs, claim);
    let outputs = bench.answer(0, confirm, Response::Error(error(ErrorCode::Superseded)));
    assert_eq!(done(&outputs), []);
    let [(0, number, Request::Claim(again))] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert!(again.repeated && again.claim == claim);
    let outputs = bench.answer(0, number, nothing(0));
    assert_eq!(done(&outputs), [(1, Ok(nothing(0)))]);
}

/// Goal: a client that stops waiting is granted nothing more.
#[test]
fn a_claim_that_is_abandoned_is_left() {
    let (mut bench, _, claim) = waiting(1);
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(leaves(&outputs), [(0, claim, false)]);
    assert_eq!(done(&outputs).len(), 1);
}

/// Goal: a node gives back grants that it was not told of only if the call is not repeated.
#[test]
fn a_claim_that_is_abandoned_is_said_to_be_over() {
    let (mut bench, _, claim) = waiting(1);
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    let [(0, _, request)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(*request, Request::Leave { claim, elsewhere: false, over: true, keeps: Vec::new() });
}

#[test]
fn a_claim_that_runs_into_its_deadline_is_left() {
    let (mut bench, _, claim) = waiting(1);
    bench.now_us += 100 * SECOND_US;
    let outputs = bench.step(Input::Wake);
    assert_eq!(leaves(&outputs), [(0, claim, false)]);
}

/// Goal: a node may hold for good what was confirmed there: it is taken back in whatever partition it is.
#[test]
fn a_claim_that_is_abandoned_while_it_is_confirmed_is_left_everywhere() {
    let (mut bench, number, claim) = waiting(1);
    let outputs = bench.answer(0, number, something());
    confirmation(&outputs, claim);
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(leaves(&outputs), [(0, claim, true)]);
}

/// Goal: grants of a lost node are taken back by another one, as soon as one is connected.
#[test]
fn a_claim_whose_node_is_gone_is_left_at_the_next() {
    let (mut bench, _, claim) = waiting(2);
    let outputs = bench.step(Input::Disconnected { endpoint: 0 });
    assert_eq!(connects(&outputs), [1]);
    let outputs = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(leaves(&outputs), [], "there is nobody to tell");
    let outputs = bench.open(1);
    assert_eq!(leaves(&outputs), [(1, claim, true)]);
    bench.now_us += SECOND_US;
    assert_eq!(leaves(&bench.step(Input::Wake)), [], "once");
}

/// What is sent after the answer of the second node, which grants another task, if the first died at the point that `first` plays.
fn left_behind_the_second_answer(first: impl FnOnce(&mut Bench, u64, ClaimId)) -> (ClaimId, TaskId, Vec<Request>) {
    let (mut bench, number, claim) = waiting(2);
    first(&mut bench, number, claim);
    assert_eq!(connects(&bench.step(Input::Disconnected { endpoint: 0 })), [1]);
    let outputs = bench.open(1);
    let number = match sent(&outputs)[..] {
        [(1, number, Request::Claim(again))] if again.repeated && again.claim == claim => number,
        _ => panic!("{outputs:?}"),
    };
    let second = TaskId::new(2, 2, 3, 4);
    let answer = grant_of(second);
    let outputs = bench.answer(1, number, answer.clone());
    let [(1, number, Request::Confirm { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let outputs = bench.answer(1, number, Response::Done);
    assert_eq!(done(&outputs), [(1, Ok(answer))]);
    (claim, second, sent(&outputs).into_iter().map(|(_, _, request)| request.clone()).collect())
}

/// Goal: the first node may have granted another task, which would be held for a whole lease. Method: it dies before its answer, or
/// before it acknowledges the confirmation.
#[test]
fn a_claim_that_was_answered_elsewhere_keeps_that_answer_alone() {
    let (claim, second, left) = left_behind_the_second_answer(|_, _, _| {});
    assert_eq!(left, [Request::Leave { claim, elsewhere: true, over: true, keeps: vec![second] }]);
    let (claim, second, left) = left_behind_the_second_answer(|bench, number, claim| {
        let outputs = bench.answer(0, number, something());
        confirmation(&outputs, claim);
    });
    assert_eq!(left, [Request::Leave { claim, elsewhere: true, over: true, keeps: vec![second] }]);
}

/// Goal: a task in a partition that a node could not ask about is not held for a whole lease, and a partition without a leader costs
/// nothing more.
#[test]
fn a_claim_whose_node_could_not_ask_everybody_keeps_its_answer_alone() {
    let Response::Claimed { tasks, .. } = something() else { panic!("a grant") };
    let keeps = vec![tasks[0].id];
    for (unavailable, left) in [(0, 1), (1, 0)] {
        let (mut bench, number, claim) = waiting(1);
        let outputs = bench.answer(0, number, Response::Claimed { tasks: tasks.clone(), unavailable, left });
        let confirm = confirmation(&outputs, claim);
        let outputs = bench.answer(0, confirm, Response::Done);
        let leave = Request::Leave { claim, elsewhere: true, over: true, keeps: keeps.clone() };
        let requests = sent(&outputs).into_iter().map(|(_, _, request)| request.clone()).collect::<Vec<_>>();
        assert_eq!(requests, if left > 0 { vec![leave] } else { vec![] });
        let (mut bench, number, claim) = waiting(1);
        let outputs = bench.answer(0, number, Response::Claimed { tasks: Vec::new(), unavailable, left });
        let there = done(&outputs).len() == 1;
        assert!(there && leaves(&outputs) == if left > 0 { vec![(0, claim, true)] } else { vec![] }, "{outputs:?}");
    }
}

/// Goal: a final refusal does not hide the grants of an earlier attempt. Method: at first the node could not answer.
#[test]
fn a_claim_that_is_refused_behind_an_attempt_is_left() {
    let (mut bench, number, claim) = waiting(1);
    let outputs = bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    let number = match sent(&outputs)[..] {
        [(0, number, Request::Claim(_))] => number,
        _ => bench.sleep_until_sent().1,
    };
    let outputs = bench.answer(0, number, Response::Error(error(ErrorCode::Invalid)));
    assert_eq!((done(&outputs).len(), leaves(&outputs)), (1, vec![(0, claim, true)]));
}

/// Goal: nothing more is sent if nothing was lost.
#[test]
fn a_claim_that_was_answered_once_is_not_left() {
    let (mut bench, number, claim) = waiting(1);
    let outputs = bench.answer(0, number, something());
    let confirm = confirmation(&outputs, claim);
    let outputs = bench.answer(0, confirm, Response::Done);
    assert_eq!(leaves(&outputs), []);
}

/// Goal: a call that moves to another node cancels its claim at the first, whose answer no longer counts.
#[test]
fn a_claim_that_goes_elsewhere_is_left_where_it_was() {
    let (mut bench, number, request) = bench_sent(2, claim(0), 100 * SECOND_US);
    let Request::Claim(first) = request else { panic!("{request:?}") };
    let mut left = Vec::new();
    let mut moved = None;
    while moved.is_none() {
        // The node answers pings, and nothing else.
        let outputs = bench.sleep();
        left.extend(leaves(&outputs));
        for (endpoint, number, request) in sent(&outputs) {
            match request {
                Request::Ping => assert_eq!(bench.answer(endpoint, number, Response::Done).len(), 0),
                Request::Claim(again) => moved = Some((endpoint, again.repeated)),
                Request::Leave { over, .. } => assert!(!over, "it is made elsewhere"),
                other => panic!("{other:?}"),
            }
        }
        if connects(&outputs) == [1] {
            let outputs = bench.open(1);
            moved = sent(&outputs).into_iter().find_map(|(endpoint, _, request)| match request {
                Request::Claim(again) => Some((endpoint, again.repeated)),
                _ => None,
            });
        }
    }
    assert_eq!((left, moved), (vec![(0, first.claim, false)], Some((1, true))));
    assert!(bench.answer(0, number, something()).is_empty(), "nobody waits for that any more");
}

/// Goal: an application that chose its claim's id may repeat the claim under it: nothing is taken back in between.
#[test]
fn a_claim_with_an_id_of_the_application_is_not_left() {
    let Call::Request(Request::Claim(own)) = claim(WAIT_MS) else { panic!("a claim") };
    let own = Call::Request(Request::Claim(Claim { claim: ClaimId(9), ..own }));
    let (mut bench, _, _) = bench_sent(1, own, 100 * SECOND_US);
    assert_eq!(leaves(&bench.step(Input::Abandon { call: CallId(1) })), []);
}

/// Goal: no answer of a node can crash a session. Method: a node that grants tasks to a call that is no claim.
#[test]
fn tasks_that_nobody_claimed_are_a_wrong_answer() {
    let (mut bench, number, _) = bench_sent(1, enqueue(1), 100 * SECOND_US);
    let outputs = bench.answer(0, number, something());
    assert!(matches!(&done(&outputs)[..], [(1, Err(error))] if error.code == ErrorCode::Unknown), "{outputs:?}");
}
