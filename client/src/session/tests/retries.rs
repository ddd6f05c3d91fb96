//! Repeats of a call, and its final result.

use super::*;
use norn_wire::ids::Token;
use std::collections::BTreeSet;

#[test]
fn errors_that_pass_are_retried_with_growing_pauses_until_the_deadline() {
    let (mut bench, mut number, first) = bench_sent(1, enqueue(1), 10 * SECOND_US);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable))).is_empty());
        let before_us = bench.now_us;
        let (_, again, request) = bench.sleep_until_sent();
        assert_eq!(request, first);
        number = again;
        pauses.push((bench.now_us - before_us) / 1_000);
    }
    assert!((25..=50).contains(&pauses[0]) && (500..=1_000).contains(&pauses[7]), "{pauses:?}");
    bench.now_us = 1_000 + 10 * SECOND_US;
    let result = done(&bench.step(Input::Wake));
    let [(1, Err(unknown))] = &result[..] else { panic!("{result:?}") };
    assert_eq!((unknown.code, unknown.id), (ErrorCode::Unknown, Some(ids(&first)[0])));
}

#[test]
fn an_unknown_outcome_is_repeated_at_once_and_then_with_pauses() {
    let (mut bench, number, first) = bench_sent(1, enqueue(1), 10 * SECOND_US);
    let outputs = bench.answer(0, number, Response::Error(error(ErrorCode::Unknown)));
    let (_, number, request) = sent(&outputs)[0];
    assert_eq!(request, &first);
    assert!(bench.answer(0, number, Response::Error(error(ErrorCode::Unknown))).is_empty());
    assert_eq!(bench.sleep_until_sent().2, first);
}

#[test]
fn patience_is_asked_for_by_one_node_and_given_by_asking_another() {
    let (mut bench, number, first) = bench_sent(2, enqueue(1), 10 * SECOND_US);
    bench.answer(0, number, Response::Error(error(ErrorCode::Overloaded)));
    assert_eq!(connects(&bench.sleep()), [1]);
    let outputs = bench.open(1);
    assert_eq!((sent(&outputs)[0].0, sent(&outputs)[0].2), (1, &first));
}

/// Goal: no caller learns that a task may be stored if every node that was asked lacked room for it.
#[test]
fn what_was_turned_away_each_time_is_said_to_be() {
    let unique = || {
        let queue = QueueName::new("mail").expect("a name");
        Call::EnqueueUnique { draft: Box::new(Draft::new(queue, "x").key("one")) }
    };
    let update = || {
        let (id, token) = (TaskId::new(1, 1, 0, 0), Token { epoch: 1, number: 1 });
        Call::Request(Request::Update { id, token, sequence: 0, data: Vec::new(), acks: Acks::Quorum })
    };
    let transact = || {
        let queue = QueueName::new("mail").expect("a name");
        Call::Transact { draft: Box::new(TransactionDraft::new().enqueue(Draft::new(queue, "x"))) }
    };
    let whole = |error| Response::Error(error);
    // A request that a leader refused, forwarded by another node, may reach the leader again later.
    let at_once = |error: Error| Response::Error(error.because(Cause::TurnedAway));
    let item = |error| Response::Acked(vec![Err(error)]);
    type Refuse = fn(Error) -> Response;
    for full in [ErrorCode::Overloaded, ErrorCode::NoSpace] {
        let cases: [(Call, Refuse, bool, ErrorCode); 11] = [
            (enqueue(1), whole, true, full),
            (enqueue(1), item, true, full),
            (update(), whole, true, full),
            (enqueue(1), whole, false, ErrorCode::Unknown),
            (unique(), whole, true, ErrorCode::Unknown),
            (unique(), at_once, true, full),
            (unique(), at_once, false, ErrorCode::Unknown),
            (transact(), whole, true, ErrorCode::Unknown),
            (transact(), at_once, true, full),
            (finish(Vec::new()), whole, true, ErrorCode::Unknown),
            (finish(Vec::new()), at_once, true, full),
        ];
        for (call, refuse, answered, expected) in cases {
            let (mut bench, mut number, first) = bench_sent(1, call, 10 * SECOND_US);
            for _ in 0..3 {
                assert!(bench.answer(0, number, refuse(error(full))).is_empty());
                number = bench.sleep_until_sent().1;
            }
            if answered {
                assert!(bench.answer(0, number, refuse(error(full))).is_empty());
            }
            bench.now_us = 1_000 + 10 * SECOND_US;
            let refusal = match done(&bench.step(Input::Wake)).as_slice() {
                [(1, Err(refusal))] => refusal.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!((refusal.code, refusal.id), (expected, Some(ids(&first)[0])));
            assert_eq!(refusal.retry, Retry::Later, "whoever refused it asked for a pause");
        }
    }
}

/// Goal: a write that every node refused because it was not ready does not end as unknown.
#[test]
fn what_no_node_was_ready_for_has_not_happened() {
    let redrive = || {
        let id = TaskId::new(1, 1, 0, 0);
        Call::Redrive { id, copy: CopyId::default(), queue: None, acks: Acks::Quorum }
    };
    for (answered, expected) in [(true, ErrorCode::NotReady), (false, ErrorCode::Unknown)] {
        for call in [enqueue(1), finish(Vec::new()), redrive()] {
            let (mut bench, mut number, _) = bench_sent(1, call, 10 * SECOND_US);
            for _ in 0..3 {
                assert!(bench.answer(0, number, Response::Error(error(ErrorCode::NotReady))).is_empty());
                number = bench.sleep_until_sent().1;
            }
            if answered {
                assert!(bench.answer(0, number, Response::Error(error(ErrorCode::NotReady))).is_empty());
            }
            bench.now_us = 1_000 + 10 * SECOND_US;
            let code = match done(&bench.step(Input::Wake)).as_slice() {
                [(1, Err(refusal))] => refusal.code,
                [(1, Ok(Response::Acked(items)))] => items[0].clone().unwrap_err().code,
                other => panic!("{other:?}"),
            };
            assert_eq!(code, expected);
        }
    }
}

/// Goal: a refusal which says that nothing was forwarded does not cover another refusal that does not say so.
#[test]
fn what_was_passed_on_once_may_have_happened() {
    let queue = QueueName::new("mail").expect("a name");
    let unique = Call::EnqueueUnique { draft: Box::new(Draft::new(queue, "x").key("one")) };
    let (mut bench, mut number, _) = bench_sent(1, unique, 10 * SECOND_US);
    let full = || error(ErrorCode::NoSpace);
    for refusal in [full().because(Cause::TurnedAway), full(), full().because(Cause::TurnedAway)] {
        assert!(bench.answer(0, number, Response::Error(refusal)).is_empty());
        number = bench.sleep_until_sent().1;
    }
    bench.answer(0, number, Response::Error(full().because(Cause::TurnedAway)));
    bench.now_us = 1_000 + 10 * SECOND_US;
    let result = done(&bench.step(Input::Wake));
    let [(1, Err(unknown))] = &result[..] else { panic!("{result:?}") };
    assert_eq!((unknown.code, unknown.retry, unknown.cause), (ErrorCode::Unknown, Retry::Later, None));
}

/// Goal: a call that one node does not support may have been taken by another one before; the refusal ends it at once all the same.
#[test]
fn what_is_not_supported_is_refused_at_once_and_unknown_where_it_was_tried_before() {
    let unsupported = error(ErrorCode::Unsupported);
    let (mut bench, number, _) = bench_sent(2, enqueue(1), SECOND_US);
    let first = bench.answer(0, number, Response::Error(unsupported.clone()));
    assert_eq!(done(&first), [(1, Err(unsupported.clone()))]);
    let (mut bench, number, request) = bench_sent(1, enqueue(1), 10 * SECOND_US);
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    let number = bench.sleep_until_sent().1;
    let second = done(&bench.answer(0, number, Response::Error(unsupported)));
    let [(1, Err(unknown))] = &second[..] else { panic!("{second:?}") };
    assert_eq!((unknown.code, unknown.id, unknown.passes()), (ErrorCode::Unknown, Some(ids(&request)[0]), false));
}

/// Goal: a refusal for the node, the clock or the age settles nothing about an earlier attempt, and ends a call for certain if each
/// earlier one was refused before it stored anything; a refusal for the call itself is final in any case. Method: each refusal of a
/// repeat, of the whole call and of its item, after an attempt that is lost, may have been taken, or found no room.
#[test]
fn a_refusal_of_a_repeat_settles_nothing_of_an_earlier_attempt() {
    let of_attempts = [ErrorCode::TooOld, ErrorCode::IdFromFuture, ErrorCode::Denied, ErrorCode::Unsupported];
    let of_calls =
        [ErrorCode::Invalid, ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::Superseded, ErrorCode::Ended];
    let befores = [None, Some(ErrorCode::Unavailable), Some(ErrorCode::Overloaded)];
    let codes = of_attempts.into_iter().chain(of_calls);
    let cases = codes.flat_map(|code| befores.map(|before| [(code, before, false), (code, before, true)]).concat());
    for (code, before, whole) in cases {
        let named = Draft { id: Some(TaskId::new(SERVER_MS, 1, 99, 1)), ..draft() };
        let call = Call::Enqueue { drafts: vec![named], acks: Acks::Quorum };
        let (mut bench, number, request) = bench_sent(1, call, 10 * SECOND_US);
        let id = ids(&request)[0];
        let number = match before {
            Some(before) => {
                assert!(bench.answer(0, number, Response::Error(error(before))).is_empty());
                bench.sleep_until_sent().1
            }
            None => {
                bench.step(Input::Disconnected { endpoint: 0 });
                while connects(&bench.sleep()) != [0] {}
                sent(&bench.open(0))[0].1
            }
        };
        let refusal = error(code).about(id);
        let answer = if whole { Response::Error(refusal) } else { Response::Acked(vec![Err(refusal)]) };
        let refused = match done(&bench.answer(0, number, answer)).as_slice() {
            [(1, Err(refused))] => refused.clone(),
            [(1, Ok(Response::Acked(items)))] => items[0].clone().expect_err("it is refused"),
            other => panic!("{other:?}"),
        };
        let is_sure = of_calls.contains(&code) || before == Some(ErrorCode::Overloaded);
        let expected = if is_sure { code } else { ErrorCode::Unknown };
        assert_eq!(
            (refused.code, refused.id, refused.retry),
            (expected, Some(id), Retry::Never),
            "{code:?}, {before:?}"
        );
    }
}

/// Goal: a late refusal of an attempt that was given up does not end a call whose next attempt may still be answered.
#[test]
fn a_late_refusal_waits_for_the_attempt_that_is_under_way() {
    for (whole, second) in
        [(false, None), (true, None), (false, Some(ErrorCode::TooOld)), (true, Some(ErrorCode::TooOld))]
    {
        let (mut bench, first, request) = lively_sent(2, enqueue(1), 60 * SECOND_US);
        let id = ids(&request)[0];
        let refusal = || match whole {
            true => Response::Error(error(ErrorCode::TooOld).about(id)),
            false => Response::Acked(vec![Err(error(ErrorCode::TooOld).about(id))]),
        };
        // The node answers other calls, so that the connection is kept.
        let outputs = bench.submit(2, Call::Request(Request::Queues), 60 * SECOND_US);
        let other = sent(&outputs)[0].1;
        bench.now_us += 1_000;
        bench.answer(0, other, Response::Queues(Vec::new()));
        let mut outputs = bench.sleep();
        while connects(&outputs) != [1] {
            outputs = bench.sleep();
        }
        let outputs = bench.open(1);
        let [(1, number, again)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
        assert_eq!(again, &request);
        assert_eq!(done(&bench.answer(0, first, refusal())), [], "the other one is under way");
        match second {
            None => {
                let expected = Ok(Response::Acked(vec![Ok(acked(id))]));
                assert_eq!(done(&bench.answer(1, number, Response::Acked(vec![Ok(acked(id))]))), [(1, expected)]);
            }
            Some(code) => {
                let outputs = bench.answer(1, number, refusal());
                let refused = match done(&outputs).as_slice() {
                    [(1, Err(refused))] => refused.clone(),
                    [(1, Ok(Response::Acked(items)))] => items[0].clone().expect_err("it is refused"),
                    other => panic!("{other:?}"),
                };
                assert_eq!(refused.code, code, "each attempt was refused");
            }
        }
    }
}

#[test]
fn other_errors_are_final() {
    for code in [ErrorCode::Conflict, ErrorCode::NotFound, ErrorCode::Superseded, ErrorCode::Stale] {
        let (mut bench, number, _) = bench_sent(2, enqueue(1), SECOND_US);
        assert_eq!(done(&bench.answer(0, number, Response::Error(error(code)))), [(1, Err(error(code)))]);
    }
    let (mut bench, number, _) = bench_sent(1, enqueue(1), SECOND_US);
    let never = Error { retry: Retry::Never, ..error(ErrorCode::Unavailable) };
    assert_eq!(done(&bench.answer(0, number, Response::Error(never.clone()))), [(1, Err(never))]);
}

#[test]
fn only_items_that_failed_for_now_are_repeated_and_results_keep_their_order() {
    let (mut bench, number, request) = bench_sent(1, enqueue(4), 10 * SECOND_US);
    let all = ids(&request);
    let conflict = error(ErrorCode::Conflict);
    let items = vec![
        Err(error(ErrorCode::Unavailable)),
        Ok(acked(all[1])),
        Err(conflict.clone()),
        Err(error(ErrorCode::Unknown)),
    ];
    assert!(bench.answer(0, number, Response::Acked(items)).is_empty());
    let (_, number, again) = bench.sleep_until_sent();
    assert_eq!(ids(&again), [all[0], all[3]]);
    let outputs = bench.answer(0, number, Response::Acked(vec![Ok(acked(all[0])), Ok(acked(all[3]))]));
    let expected = vec![Ok(acked(all[0])), Ok(acked(all[1])), Err(conflict), Ok(acked(all[3]))];
    assert_eq!(done(&outputs), [(1, Ok(Response::Acked(expected)))]);
}

#[test]
fn renewals_are_repeated_item_by_item_too() {
    let held = |number| (TaskId::new(1, number, 0, 0), Token { epoch: 1, number: 1 });
    let call = Call::Request(Request::Renew { items: vec![held(1), held(2)], lease_ms: None });
    let (mut bench, number, _) = bench_sent(1, call, 10 * SECOND_US);
    let items = vec![Err(error(ErrorCode::Superseded)), Err(error(ErrorCode::Unavailable))];
    bench.answer(0, number, Response::Renewed(items));
    let (_, number, again) = bench.sleep_until_sent();
    assert_eq!(ids(&again), [held(2).0]);
    let outputs = bench.answer(0, number, Response::Renewed(vec![Ok(30_000)]));
    let expected = vec![Err(error(ErrorCode::Superseded)), Ok(30_000)];
    assert_eq!(done(&outputs), [(1, Ok(Response::Renewed(expected)))]);
    let first_sent = bench.outputs.iter().find_map(|output| match output {
        Output::Done { lease_from_us, .. } => *lease_from_us,
        Output::Connect { .. } | Output::Disconnect { .. } | Output::Send { .. } => None,
    });
    assert_eq!(first_sent, Some(1_000), "leases count from the first attempt");
}

#[test]
fn a_batch_at_its_deadline_says_for_each_item_what_is_known() {
    let (mut bench, number, request) = bench_sent(1, enqueue(2), SECOND_US);
    let all = ids(&request);
    bench.answer(0, number, Response::Acked(vec![Ok(acked(all[0])), Err(error(ErrorCode::Unavailable))]));
    bench.now_us += SECOND_US;
    let result = done(&bench.step(Input::Wake));
    let [(1, Ok(Response::Acked(items)))] = &result[..] else { panic!("{result:?}") };
    assert_eq!(items[0], Ok(acked(all[0])));
    let unknown = items[1].as_ref().unwrap_err();
    assert_eq!((unknown.code, unknown.id), (ErrorCode::Unknown, Some(all[1])));
}

#[test]
fn an_answer_of_the_wrong_length_settles_nothing() {
    let (mut bench, number, request) = bench_sent(1, enqueue(1), SECOND_US);
    let result = done(&bench.answer(0, number, Response::Acked(Vec::new())));
    let [(1, Err(unknown))] = &result[..] else { panic!("{result:?}") };
    assert_eq!((unknown.code, unknown.id), (ErrorCode::Unknown, Some(ids(&request)[0])));
}

#[test]
fn at_the_deadline_what_was_never_sent_and_what_only_reads_is_unavailable() {
    let code = |outputs: &[Output]| match &done(outputs)[..] {
        [(_, Err(error))] => error.code,
        other => panic!("{other:?}"),
    };
    let mut bench = Bench::new(1);
    bench.submit(1, enqueue(1), SECOND_US);
    assert_eq!(code(&bench.sleep()), ErrorCode::Unavailable);
    let (mut bench, _, _) = lively_sent(1, Call::Request(Request::Queues), SECOND_US);
    assert_eq!(code(&bench.sleep()), ErrorCode::Unavailable);
    let (mut bench, _, _) = lively_sent(1, claim(0), SECOND_US);
    assert_eq!(code(&bench.sleep()), ErrorCode::Unknown);
    let (mut bench, _, _) = bench_sent(1, enqueue(1), SECOND_US);
    assert_eq!(code(&bench.step(Input::Abandon { call: CallId(1) })), ErrorCode::Unknown);
    assert!(bench.step(Input::Abandon { call: CallId(1) }).is_empty());
    bench.now_us = 5 * SECOND_US;
    let late = bench.step(Input::Submit { call: CallId(2), body: enqueue(1), deadline_us: bench.now_us });
    assert_eq!(code(&late), ErrorCode::Unavailable);
}

// T15
/// Goal: the client draws who claims, and no node does. Method: the calls of one client carry ids of their own, and those of a client
/// that draws otherwise are others.
#[test]
fn each_claim_call_has_an_id_that_its_client_drew() {
    let mut ids = BTreeSet::new();
    for seed in 1..5 {
        let mut bench = Bench { session: Session::new(Config::default(), 1, seed), ..Bench::new(1) };
        bench.session.links.active = 0;
        bench.submit(1, claim(10_000), 60 * SECOND_US);
        let mut outputs = bench.open(0);
        for call in 2..5 {
            outputs.extend(bench.submit(call, claim(10_000), 60 * SECOND_US));
        }
        for (_, _, request) in sent(&outputs) {
            let Request::Claim(Claim { claim: id, .. }) = request else { panic!("{request:?}") };
            assert!(*id != ClaimId(0) && ids.insert(*id), "{id:?} was drawn before");
        }
    }
    assert_eq!(ids.len(), 16);
}

#[test]
fn a_repeated_claim_keeps_its_id_says_so_and_waits_for_what_is_left() {
    let (mut bench, number, request) = lively_sent(1, claim(10_000), 60 * SECOND_US);
    let Request::Claim(first) = request else { panic!() };
    assert!(first.claim != ClaimId(0) && !first.repeated && first.wait_ms == 10_000);
    bench.now_us += 4 * SECOND_US;
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    let (_, _, request) = bench.sleep_until_sent();
    let left_ms = 10_000 - (bench.now_us - 1_000) / 1_000;
    assert_eq!(request, Request::Claim(Claim { repeated: true, wait_ms: left_ms, ..first }));
    assert!(left_ms <= 6_000);
    let sent_us = bench.now_us;
    bench.sleep();
    assert_eq!(bench.now_us - sent_us, (left_ms + 2_500) * 1_000, "the node may wait on purpose");
}

/// Goal: the error of a call that never got a connection names the call's task.
#[test]
fn a_completion_that_was_never_sent_names_its_task() {
    let mut bench = Bench::new(1);
    bench.submit(1, finish(Vec::new()), SECOND_US);
    bench.now_us += 2 * SECOND_US;
    let result = done(&bench.step(Input::Wake));
    let [(1, Err(error))] = &result[..] else { panic!("{result:?}") };
    assert_eq!((error.code, error.id), (ErrorCode::Unavailable, Some(TaskId::MIN)));
}
