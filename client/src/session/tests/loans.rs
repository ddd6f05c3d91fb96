//! Nodes that lend no ids, because the ids they lent before are ahead of their clocks.

use super::*;

const MINUTE_MS: u64 = 60_000;

fn queues() -> Call {
    Call::Request(Request::Queues)
}

/// Completes a connection. Returns the number of the hello, which accepts a welcome without ids.
fn greeting(bench: &mut Bench, endpoint: usize) -> u64 {
    let outputs = bench.step(Input::Connected { endpoint });
    let [(_, number, Request::Hello { bare: true, .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    number
}

/// What is sent once an endpoint has declared that it lends no ids for this time.
fn open_bare(bench: &mut Bench, endpoint: usize, after_ms: u64) -> Vec<Output> {
    let number = greeting(bench, endpoint);
    bench.answer(endpoint, number, bare(SERVER_MS, after_ms))
}

/// A session that claims at a node which serves without ids, and has just asked it for ids again: the claim's number and id, and the
/// number of that hello.
fn asking_again(endpoints: usize) -> (Bench, (u64, ClaimId), u64) {
    let mut bench = Bench::new(endpoints);
    bench.submit(1, enqueue(1), 300 * SECOND_US);
    bench.submit(2, claim(100_000), 200 * SECOND_US);
    let outputs = open_bare(&mut bench, 0, MINUTE_MS);
    let [(0, number, Request::Claim(claim))] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let claim = (number, claim.claim);
    let hello = hello_again(&mut bench);
    (bench, claim, hello)
}

/// The next hello to the first node.
fn hello_again(bench: &mut Bench) -> u64 {
    loop {
        match bench.sleep_until_sent() {
            (0, number, Request::Hello { .. }) => return number,
            (0, number, Request::Ping) => drop(bench.answer(0, number, Response::Done)),
            other => panic!("{other:?}"),
        }
    }
}

fn disconnects(outputs: &[Output]) -> usize {
    outputs.iter().filter(|output| matches!(output, Output::Disconnect { .. })).count()
}

fn refusals(outputs: &[Output]) -> Vec<(u64, ErrorCode, Option<u64>)> {
    let refusal = |(call, result): (u64, Result<Response, Error>)| {
        let error = result.expect_err("it is refused");
        (call, error.code, error.after_ms)
    };
    done(outputs).into_iter().map(refusal).collect()
}

#[test]
fn what_needs_no_id_is_sent_to_a_node_that_lends_none_and_the_rest_ends_at_once() {
    let mut bench = Bench::new(1);
    bench.submit(1, enqueue(1), 30 * SECOND_US);
    bench.submit(2, queues(), 30 * SECOND_US);
    bench.submit(3, finish(Vec::new()), 30 * SECOND_US);
    bench.submit(4, finish(vec![draft()]), 30 * SECOND_US);
    bench.submit(5, claim(0), 30 * SECOND_US);
    let outputs = open_bare(&mut bench, 0, 10 * MINUTE_MS);
    let ahead = |call| (call, ErrorCode::ClockAhead, Some(10 * MINUTE_MS));
    assert_eq!(refusals(&outputs), [ahead(1), ahead(4)]);
    let [(_, number, Request::Queues), (_, _, Request::Complete { items, .. }), (_, _, Request::Claim(_))] =
        &sent(&outputs)[..]
    else {
        panic!("{outputs:?}");
    };
    assert_eq!(items[0].at_ms, SERVER_MS, "the time is the node's");
    let number = *number;
    assert_eq!(done(&bench.answer(0, number, Response::Done)), [(2, Ok(Response::Done))]);
}

#[test]
fn a_node_without_time_serves_what_needs_none() {
    let mut bench = Bench::new(1);
    bench.submit(1, finish(Vec::new()), 30 * SECOND_US);
    bench.submit(2, queues(), 30 * SECOND_US);
    let number = greeting(&mut bench, 0);
    let refusal = Some(Box::new(error(ErrorCode::Unavailable)));
    let welcome = Welcome { node: NodeId(1), cluster: ClusterId(1), time_ms: 0, minter: 0, refusal, clock_ms: None };
    let outputs = bench.answer(0, number, Response::Welcome(welcome));
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Queues)]), "{outputs:?}");
    assert_eq!(bench.session.server_time_ms(bench.now_us), None);
    // The node may find its clock right again.
    let (_, number, request) = bench.sleep_until_sent();
    assert!(matches!(request, Request::Hello { .. }), "{request:?}");
    let outputs = bench.answer(0, number, super::welcome(SERVER_MS, 5));
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Complete { .. })]), "{outputs:?}");
}

#[test]
fn a_call_that_is_given_its_ids_and_times_needs_no_loan() {
    let id = TaskId::new(1, 2, 3, 4);
    let named = Draft { id: Some(id), ..draft() };
    let of_group = draft().member_of(id, 1);
    let cases = [
        (named.clone(), true),
        (of_group, true),
        (draft(), false),
        // The node has sent its time.
        (named.delay_ms(5), true),
    ];
    for (draft, is_sent) in cases {
        let mut bench = Bench::new(1);
        bench.submit(1, Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum }, 30 * SECOND_US);
        let outputs = bench.step(Input::Connected { endpoint: 0 });
        let outputs = bench.answer(0, sent(&outputs)[0].1, bare(SERVER_MS, MINUTE_MS));
        assert_eq!((sent(&outputs).len(), done(&outputs).len()), if is_sent { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn ids_are_sought_at_other_nodes_while_one_that_lends_none_serves() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 30 * SECOND_US);
    bench.submit(2, queues(), 30 * SECOND_US);
    let outputs = open_bare(&mut bench, 0, 10 * MINUTE_MS);
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Queues)]), "{outputs:?}");
    assert_eq!((connects(&outputs), done(&outputs)), (vec![1], vec![]));
    let outputs = bench.open(1);
    assert!(matches!(sent(&outputs)[..], [(1, _, Request::Enqueue { .. })]), "{outputs:?}");
    // With ids from one node, any other node can serve.
    bench.step(Input::Disconnected { endpoint: 1 });
    let outputs = bench.submit(3, enqueue(1), 30 * SECOND_US);
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Enqueue { .. })]), "{outputs:?}");
}

#[test]
fn a_call_ends_once_each_node_has_said_that_it_lends_none_in_time() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 30 * SECOND_US);
    bench.submit(2, enqueue(1), 300 * SECOND_US);
    let outputs = open_bare(&mut bench, 0, 10 * MINUTE_MS);
    assert_eq!((connects(&outputs), done(&outputs)), (vec![1], vec![]));
    let outputs = open_bare(&mut bench, 1, MINUTE_MS);
    assert_eq!(refusals(&outputs), [(1, ErrorCode::ClockAhead, Some(MINUTE_MS))], "the other one can wait for that");
    let (endpoint, number, request) = bench.sleep_until_sent();
    assert!(matches!(request, Request::Hello { .. }), "{request:?}");
    let outputs = bench.answer(endpoint, number, welcome(SERVER_MS, 5));
    assert!(matches!(sent(&outputs)[..], [(_, _, Request::Enqueue { .. })]), "{outputs:?}");
}

#[test]
fn at_its_deadline_a_call_without_ids_says_why_it_has_none() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 3 * SECOND_US);
    open_bare(&mut bench, 0, 10 * MINUTE_MS);
    bench.step(Input::Disconnected { endpoint: 1 });
    let outputs = loop {
        let outputs = bench.sleep();
        match sent(&outputs)[..] {
            [(endpoint, number, Request::Hello { .. })] => drop(bench.answer(endpoint, number, bare(SERVER_MS, 7_000))),
            _ if done(&outputs).is_empty() => {
                connects(&outputs).into_iter().for_each(|endpoint| drop(bench.step(Input::Disconnected { endpoint })));
            }
            _ => break outputs,
        }
    };
    let [(1, ErrorCode::ClockAhead, Some(after_ms))] = refusals(&outputs)[..] else { panic!("{outputs:?}") };
    assert!((5_000..=7_000).contains(&after_ms), "{after_ms}");
}

#[test]
fn a_refused_hello_is_named_at_the_deadline() {
    let mut bench = Bench::new(1);
    bench.submit(1, queues(), SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let number = sent(&outputs)[0].1;
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    bench.now_us += 2 * SECOND_US;
    let outputs = bench.step(Input::Wake);
    let [(1, Err(error))] = &done(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(error.message, "no answer came before the deadline; the last refusal was: scripted");
    assert_eq!(error.code, ErrorCode::Unavailable);
}

#[test]
fn ids_that_were_lent_while_a_clock_was_ahead_are_refused_as_such() {
    let future = |id| Error::new(ErrorCode::IdFromFuture, "later").about(id).after(MINUTE_MS);
    let (mut bench, number, request) = bench_sent(1, enqueue(1), 30 * SECOND_US);
    let id = ids(&request)[0];
    let outputs = bench.answer(0, number, Response::Acked(vec![Err(future(id))]));
    let [(1, Ok(Response::Acked(items)))] = &done(&outputs)[..] else { panic!("{outputs:?}") };
    let refused = items[0].as_ref().expect_err("it is refused");
    assert_eq!((refused.code, refused.id, refused.after_ms), (ErrorCode::ClockAhead, Some(id), Some(MINUTE_MS)));
    // An id that the application chose is reported unchanged.
    let named = Draft { id: Some(id), ..draft() };
    let call = Call::Enqueue { drafts: vec![named], acks: Acks::Quorum };
    let (mut bench, number, _) = bench_sent(1, call, 30 * SECOND_US);
    let outputs = bench.answer(0, number, Response::Acked(vec![Err(future(id))]));
    let [(1, Ok(Response::Acked(items)))] = &done(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(items[0], Err(future(id)));
}

/// Goal: a session with ids from a node whose clock was ahead enqueues again as soon as a node lends other ids, without a restart; and
/// the ids that it generated stay unique.
#[test]
fn a_session_whose_ids_are_ahead_is_lent_others() {
    let future = |id| Error::new(ErrorCode::IdFromFuture, "later").about(id).after(MINUTE_MS);
    let (mut bench, number, request) = bench_sent(1, enqueue(1), 60 * SECOND_US);
    let first = ids(&request)[0];
    let outputs = bench.submit(2, enqueue(1), 60 * SECOND_US);
    let [(0, late, request)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let second = ids(request)[0];
    let outputs = bench.answer(0, number, Response::Acked(vec![Err(future(first))]));
    assert_eq!(
        (sent(&outputs).len(), done(&outputs).len()),
        (0, 1),
        "nobody needs ids, and what was refused is not minted anew"
    );
    let outputs = bench.submit(3, enqueue(1), 60 * SECOND_US);
    let [(0, hello, Request::Hello { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let outputs = bench.answer(0, hello, welcome(SERVER_MS - 10 * MINUTE_MS, first.minter() + 1));
    let [(0, number, request @ Request::Enqueue { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let third = ids(request)[0];
    assert_eq!(third.minter(), first.minter() + 1);
    assert!(third.time_ms() < first.time_ms());
    bench.answer(0, number, Response::Acked(vec![Ok(acked(third))]));
    // A refusal of the earlier loan's ids does not concern the new loan.
    let outputs = bench.answer(0, late, Response::Acked(vec![Err(future(second))]));
    assert!(matches!(done(&outputs)[..], [(2, Ok(Response::Acked(_)))]), "{outputs:?}");
    let outputs = bench.submit(4, enqueue(1), 60 * SECOND_US);
    let [(0, _, request @ Request::Enqueue { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert!(ids(request)[0] > third);
    assert_eq!(disconnects(&bench.outputs), 0);
}

/// Goal: a loan is discarded even if one node may have stored a task whose id others find ahead of their clocks, and the call continues
/// under the same id.
#[test]
fn a_loan_that_is_ahead_is_given_up_where_the_task_may_be_stored() {
    let (mut bench, number, request) = bench_sent(1, enqueue(1), 60 * SECOND_US);
    let id = ids(&request)[0];
    let unknown = error(ErrorCode::Unknown).about(id).because(Cause::IdAhead);
    let outputs = bench.answer(0, number, Response::Acked(vec![Err(unknown)]));
    assert_eq!(done(&outputs), []);
    let [(0, hello, Request::Hello { .. })] = sent(&outputs)[..] else { panic!("others are asked for: {outputs:?}") };
    let outputs = bench.answer(0, hello, welcome(SERVER_MS - 10 * MINUTE_MS, id.minter() + 1));
    let [(0, _, again)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(again, &request);
    let outputs = bench.submit(2, enqueue(1), 60 * SECOND_US);
    let [(0, _, next)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(ids(next)[0].minter(), id.minter() + 1);
}

/// Goal: no caller learns that a task is certainly not stored which a lost node had accepted. Method: the first attempt is lost with
/// its node, and the next node finds the id ahead of its clock, until a replica with the task is back.
#[test]
fn an_id_that_only_a_repeat_finds_ahead_may_be_stored() {
    let future = |id| Error::new(ErrorCode::IdFromFuture, "later").about(id).after(MINUTE_MS);
    for (named, comes_back) in [(false, false), (false, true), (true, false)] {
        let call = match named {
            false => enqueue(1),
            true => {
                let id = Some(TaskId::new(SERVER_MS + MINUTE_MS, 1, 99, 1));
                Call::Enqueue { drafts: vec![Draft { id, ..draft() }], acks: Acks::Quorum }
            }
        };
        let (mut bench, _, request) = bench_sent(2, call, 30 * SECOND_US);
        let id = ids(&request)[0];
        bench.step(Input::Disconnected { endpoint: 0 });
        let number = greeting(&mut bench, 1);
        let outputs = bench.answer(1, number, welcome(SERVER_MS, 7));
        let [(1, number, again)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
        assert_eq!(again, &request);
        let mut outputs = bench.answer(1, number, Response::Acked(vec![Err(future(id))]));
        while done(&outputs).is_empty() {
            outputs = match sent(&outputs)[..] {
                [(endpoint, number, Request::Hello { .. })] => bench.answer(endpoint, number, welcome(SERVER_MS, 8)),
                [(endpoint, number, Request::Enqueue { .. })] => {
                    let item = if comes_back { Ok(acked(id)) } else { Err(future(id)) };
                    bench.answer(endpoint, number, Response::Acked(vec![item]))
                }
                _ => match connects(&outputs)[..] {
                    [endpoint] => bench.step(Input::Disconnected { endpoint }),
                    _ => bench.sleep(),
                },
            };
        }
        let item = match &done(&outputs)[..] {
            [(1, Ok(Response::Acked(items)))] => items[0].clone(),
            [(1, Err(error))] => Err(error.clone()),
            other => panic!("{other:?}"),
        };
        let retry = if named { Retry::Never } else { Retry::Later };
        let told = item.map_err(|error| (error.code, error.id, error.cause, error.retry));
        let unknown = (ErrorCode::Unknown, Some(id), Some(Cause::IdAhead), retry);
        assert_eq!(told, if comes_back { Ok(acked(id)) } else { Err(unknown) }, "{named}");
    }
}

/// Goal: the node whose clock was ahead may lend none now; the others do.
#[test]
fn a_session_whose_ids_are_ahead_seeks_others_at_other_nodes() {
    let future = |id| Error::new(ErrorCode::IdFromFuture, "later").about(id).after(MINUTE_MS);
    let (mut bench, number, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let first = ids(&request)[0];
    bench.answer(0, number, Response::Acked(vec![Err(future(first))]));
    let outputs = bench.submit(2, enqueue(1), 60 * SECOND_US);
    let [(0, hello, Request::Hello { .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    let outputs = bench.answer(0, hello, bare(SERVER_MS - 10 * MINUTE_MS, 10 * MINUTE_MS));
    assert_eq!((connects(&outputs), done(&outputs)), (vec![1], vec![]));
    let number = greeting(&mut bench, 1);
    let outputs = bench.answer(1, number, welcome(SERVER_MS - 10 * MINUTE_MS, first.minter() + 1));
    assert!(matches!(sent(&outputs)[..], [(1, _, Request::Enqueue { .. })]), "{outputs:?}");
}

#[test]
fn a_node_that_lends_far_earlier_ids_ends_what_one_that_was_ahead_lent() {
    let (mut bench, _, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let first = ids(&request)[0];
    bench.step(Input::Disconnected { endpoint: 0 });
    let number = greeting(&mut bench, 1);
    let outputs = bench.answer(1, number, welcome(SERVER_MS - 2 * MINUTE_MS, first.minter() + 1));
    let [(1, _, request)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(ids(request), [first], "a call keeps its ids");
    let outputs = bench.submit(2, enqueue(1), SECOND_US);
    let next = ids(sent(&outputs)[0].2)[0];
    assert_eq!(next.minter(), first.minter() + 1);
    assert!(next.time_ms() < SERVER_MS - MINUTE_MS);
}

#[test]
fn an_application_s_id_from_the_future_is_its_own_affair_beside_ids_of_the_session() {
    let (mut bench, _, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let own = ids(&request)[0];
    let ahead = |minter| TaskId::new(SERVER_MS + 60 * MINUTE_MS, 1, minter, 1);
    let named = [ahead(own.minter()), ahead(own.minter() + 1)];
    let mut drafts = vec![draft()];
    drafts.extend(named.map(|id| Draft { id: Some(id), ..draft() }));
    let outputs = bench.submit(2, Call::Enqueue { drafts, acks: Acks::Quorum }, 60 * SECOND_US);
    let number = sent(&outputs)[0].1;
    // The task is certainly not stored there.
    bench.answer(0, number, Response::Error(error(ErrorCode::Overloaded)));
    bench.step(Input::Disconnected { endpoint: 0 });
    // A loan from another node meanwhile does not change which ids are the session's own.
    let number = greeting(&mut bench, 1);
    let mut outputs = bench.answer(1, number, welcome(SERVER_MS, own.minter() + 1));
    let is_second = |outputs: &[Output]| sent(outputs).iter().any(|(_, _, request)| ids(request).len() == 3);
    while !is_second(&outputs) {
        outputs = bench.sleep();
    }
    let Some((1, number, request)) = sent(&outputs).pop() else { panic!("{outputs:?}") };
    let future = |id| Error::new(ErrorCode::IdFromFuture, "later").about(id);
    let items = ids(request).into_iter().map(|id| Err(future(id))).collect();
    let outputs = bench.answer(1, number, Response::Acked(items));
    let [(2, Ok(Response::Acked(items)))] = &done(&outputs)[..] else { panic!("{outputs:?}") };
    let refused: Vec<&Error> = items.iter().map(|item| item.as_ref().expect_err("it is refused")).collect();
    assert_eq!((refused[0].code, refused[0].retry), (ErrorCode::ClockAhead, Retry::Later));
    assert_eq!(refused[1..], [&future(named[0]), &future(named[1])]);
}

#[test]
fn a_node_that_lends_none_takes_no_loan_away() {
    let (mut bench, _, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let first = ids(&request)[0];
    bench.step(Input::Disconnected { endpoint: 0 });
    let number = greeting(&mut bench, 1);
    let outputs = bench.answer(1, number, bare(SERVER_MS - MINUTE_MS, 10 * MINUTE_MS));
    let [(1, _, again)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(ids(again), [first]);
    let outputs = bench.submit(2, enqueue(1), SECOND_US);
    let next = ids(sent(&outputs)[0].2)[0];
    assert!(next > first && next.minter() == first.minter());
}

/// Goal: a worker keeps its grants, whatever else the node is asked for.
#[test]
fn a_claim_is_confirmed_while_the_node_is_asked_for_ids() {
    let (mut bench, (number, id), hello) = asking_again(1);
    let outputs = bench.answer(0, number, something());
    let [(0, confirm, Request::Confirm { claim })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((*claim, done(&outputs)), (id, vec![]));
    assert_eq!(done(&bench.answer(0, confirm, Response::Done)), [(2, Ok(something()))]);
    let outputs = bench.answer(0, hello, welcome(SERVER_MS, 5));
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Enqueue { .. })]), "{outputs:?}");
}

#[test]
fn calls_are_sent_and_claims_left_while_the_node_is_asked_for_ids() {
    let (mut bench, (_, id), _) = asking_again(1);
    let outputs = bench.submit(3, queues(), 30 * SECOND_US);
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Queues)]), "{outputs:?}");
    let outputs = bench.step(Input::Abandon { call: CallId(2) });
    let [(0, _, Request::Leave { claim, .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(*claim, id);
}

#[test]
fn a_node_that_says_nothing_of_ids_serves_on_and_is_asked_again() {
    let (mut bench, (number, _), first) = asking_again(1);
    let asked_us = bench.now_us;
    let second = hello_again(&mut bench);
    assert!(second > first && bench.now_us >= asked_us + 1_000 * Config::default().attempt_timeout_ms);
    assert_eq!((disconnects(&bench.outputs), connects(&bench.outputs)), (0, vec![0]));
    let outputs = bench.answer(0, number, something());
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Confirm { .. })]), "{outputs:?}");
    let outputs = bench.answer(0, second, welcome(SERVER_MS, 5));
    assert!(matches!(sent(&outputs)[..], [(0, _, Request::Enqueue { .. })]), "{outputs:?}");
}

#[test]
fn a_node_that_refuses_ids_serves_on_and_is_asked_again() {
    let no_time = Welcome {
        node: NodeId(1),
        cluster: ClusterId(1),
        time_ms: 0,
        minter: 0,
        refusal: Some(Box::new(error(ErrorCode::Unavailable))),
        clock_ms: None,
    };
    let refused = |code| Response::Error(error(code));
    for answer in [refused(ErrorCode::NotReady), refused(ErrorCode::Invalid), Response::Welcome(no_time)] {
        let (mut bench, (number, _), hello) = asking_again(1);
        bench.answer(0, hello, answer);
        assert_eq!(disconnects(&bench.outputs), 0);
        let outputs = bench.answer(0, number, something());
        assert!(matches!(sent(&outputs)[..], [(0, _, Request::Confirm { .. })]), "{outputs:?}");
        let hello = hello_again(&mut bench);
        let outputs = bench.answer(0, hello, welcome(SERVER_MS, 5));
        assert!(matches!(sent(&outputs)[..], [(0, _, Request::Enqueue { .. })]), "{outputs:?}");
    }
}

#[test]
fn an_answer_about_ids_says_nothing_of_what_a_node_sees() {
    for answer in [bare(SERVER_MS, MINUTE_MS), welcome(SERVER_MS, 5)] {
        let (mut bench, (number, _), hello) = asking_again(1);
        bench.answer(0, number, nothing(3));
        let is_blind = |bench: &Bench| matches!(bench.session.links.get(0).link, Link::Ready { blind_us: Some(_) });
        assert!(is_blind(&bench));
        bench.answer(0, hello, answer);
        assert!(is_blind(&bench));
    }
}

#[test]
fn refused_ids_make_no_connection_come_back_later() {
    let (mut bench, _, mut hello) = asking_again(1);
    for _ in 0..8 {
        bench.answer(0, hello, bare(SERVER_MS, MINUTE_MS));
        hello = hello_again(&mut bench);
    }
    bench.step(Input::Disconnected { endpoint: 0 });
    let lost_us = bench.now_us;
    assert_eq!(connects(&bench.sleep()), [0]);
    assert!(bench.now_us - lost_us <= 1_000 * Config::default().reconnect_pause_ms_min);
}

#[test]
fn a_refusal_that_is_over_is_not_named() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 5 * SECOND_US);
    let deadline_us = bench.now_us + 5 * SECOND_US;
    assert_eq!(connects(&open_bare(&mut bench, 0, 2_000)), [1]);
    bench.step(Input::Disconnected { endpoint: 0 });
    open_bare(&mut bench, 1, 10 * MINUTE_MS);
    while bench.now_us < deadline_us {
        bench.sleep();
    }
    let left_ms = 10 * MINUTE_MS - 5_000;
    assert_eq!(refusals(&bench.outputs), [(1, ErrorCode::ClockAhead, Some(left_ms))]);
}

#[test]
fn a_refusal_without_an_end_ends_with_its_connection() {
    let mut bench = Bench::new(1);
    bench.submit(1, queues(), SECOND_US);
    let number = greeting(&mut bench, 0);
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    bench.step(Input::Disconnected { endpoint: 0 });
    bench.now_us += 2 * SECOND_US;
    let outputs = bench.step(Input::Wake);
    let [(1, Err(error))] = &done(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!(error.message, "no answer came before the deadline");
}
