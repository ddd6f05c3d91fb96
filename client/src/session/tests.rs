//! Goal: every promise in the session's header. Method: scripted exchanges for each promise alone, then random
//! schedules against nodes that answer, refuse, keep silent and break connections as the seed says.

use super::mint::{Mint, Random};
use super::*;
use crate::wire::ids::{ClaimId, ClusterId, NodeId, QueueName, TaskId, Token};
use crate::wire::limits;
use crate::wire::request::{Acks, Claim, Completion, NewTask};
use crate::wire::response::{Acked, Guarantee, Welcome};
use proptest::prelude::*;

const SECOND_US: u64 = 1_000_000;
const SERVER_MS: u64 = 1_800_000_000_000;

fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

fn draft() -> Draft {
    Draft::new(queue(), b"hello".as_slice())
}

fn enqueue(count: usize) -> Call {
    Call::Enqueue { drafts: vec![draft(); count], acks: Acks::Quorum }
}

fn claim(wait_ms: u64) -> Call {
    Call::Request(Request::Claim(Claim {
        claim: ClaimId(0),
        repeated: false,
        queues: vec![queue()],
        lease_ms: 30_000,
        wait_ms,
        max: 1,
        worker: String::new(),
    }))
}

fn welcome(time_ms: u64, minter: u64) -> Response {
    Response::Welcome(Welcome { node: NodeId(1), cluster: ClusterId(1), time_ms, minter })
}

fn acked(id: TaskId) -> Acked {
    Acked { id, acks: 2, replicas: 3, guarantee: Guarantee::Strict }
}

fn error(code: ErrorCode) -> Error {
    Error::new(code, "scripted")
}

/// Ids of an enqueue or a completion.
fn ids(request: &Request) -> Vec<TaskId> {
    match request {
        Request::Enqueue { tasks, .. } => tasks.iter().map(|task| task.id).collect(),
        Request::Complete { items, .. } => items.iter().map(|item| item.id).collect(),
        Request::Renew { items, .. } => items.iter().map(|(id, _)| *id).collect(),
        other => panic!("no ids in {other:?}"),
    }
}

/// A session with its clock, checked after every step.
struct Bench {
    session: Session,
    now_us: u64,
    outputs: Vec<Output>,
}

impl Bench {
    fn new(endpoints: usize) -> Bench {
        let mut bench =
            Bench { session: Session::new(Config::default(), endpoints, 7), now_us: 1_000, outputs: Vec::new() };
        bench.session.links.active = 0;
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.session.step(self.now_us, input, &mut outputs);
        self.session.check().unwrap();
        assert!(self.session.next_wake().is_none_or(|at_us| at_us > self.now_us), "a host would spin");
        self.outputs.extend(outputs.iter().cloned());
        outputs
    }

    fn submit(&mut self, call: u64, body: Call, timeout_us: u64) -> Vec<Output> {
        let deadline_us = self.now_us + timeout_us;
        self.step(Input::Submit { call: CallId(call), body, deadline_us })
    }

    /// Connects and welcomes; what is sent then.
    fn open(&mut self, endpoint: usize) -> Vec<Output> {
        let outputs = self.step(Input::Connected { endpoint });
        let [(_, number, Request::Hello { .. })] = sent(&outputs)[..] else {
            panic!("a connection opens with one hello, not {outputs:?}");
        };
        self.answer(endpoint, number, welcome(SERVER_MS, 5))
    }

    fn answer(&mut self, endpoint: usize, number: u64, response: Response) -> Vec<Output> {
        self.step(Input::Received { endpoint, number, response })
    }

    /// Lets time pass to the next wake.
    fn sleep(&mut self) -> Vec<Output> {
        self.now_us = self.session.next_wake().expect("something is to come");
        self.step(Input::Wake)
    }

    /// Sleeps until something is sent on an endpoint.
    fn sleep_until_sent(&mut self) -> (usize, u64, Request) {
        for _ in 0..100 {
            let outputs = self.sleep();
            if let Some((endpoint, number, request)) = sent(&outputs).first() {
                return (*endpoint, *number, (*request).clone());
            }
        }
        panic!("nothing is sent any more");
    }
}

fn sent(outputs: &[Output]) -> Vec<(usize, u64, &Request)> {
    let pick = |output| match output {
        &Output::Send { endpoint, number, ref request } => Some((endpoint, number, request)),
        Output::Connect { .. } | Output::Disconnect { .. } | Output::Done { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

fn done(outputs: &[Output]) -> Vec<(u64, Result<Response, Error>)> {
    let pick = |output: &Output| match output {
        Output::Done { call, result, .. } => Some((call.0, result.clone())),
        Output::Connect { .. } | Output::Disconnect { .. } | Output::Send { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

fn connects(outputs: &[Output]) -> Vec<usize> {
    let pick = |output: &Output| match output {
        Output::Connect { endpoint } => Some(*endpoint),
        Output::Disconnect { .. } | Output::Send { .. } | Output::Done { .. } => None,
    };
    outputs.iter().filter_map(pick).collect()
}

/// A session that has sent one call on endpoint 0.
fn bench_sent(endpoints: usize, body: Call, timeout_us: u64) -> (Bench, u64, Request) {
    let mut bench = Bench::new(endpoints);
    assert_eq!(connects(&bench.submit(1, body, timeout_us)), [0]);
    let outputs = bench.open(0);
    let (_, number, request) = sent(&outputs)[0];
    let request = request.clone();
    (bench, number, request)
}

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
    let (mut bench, number, first) = bench_sent(2, enqueue(1), 20 * SECOND_US);
    let outputs = bench.sleep();
    assert_eq!(bench.now_us, 1_000 + 2_500_000);
    assert!(matches!(outputs[..], [Output::Disconnect { endpoint: 0 }, Output::Connect { endpoint: 1 }]));
    let outputs = bench.open(1);
    assert_eq!(sent(&outputs)[0].2, &first);
    assert!(bench.answer(0, number, Response::Done).is_empty(), "the first connection is no more");
}

#[test]
fn a_connection_that_answers_others_survives_a_slow_call_and_may_still_settle_it() {
    let (mut bench, slow, request) = bench_sent(2, enqueue(1), 20 * SECOND_US);
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
    let (mut bench, slow, request) = bench_sent(2, enqueue(2), 20 * SECOND_US);
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
        Output::Done { first_sent_us, .. } => *first_sent_us,
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
    let (mut bench, _, _) = bench_sent(1, Call::Request(Request::Queues), SECOND_US);
    assert_eq!(code(&bench.sleep()), ErrorCode::Unavailable);
    let (mut bench, _, _) = bench_sent(1, claim(0), SECOND_US);
    assert_eq!(code(&bench.sleep()), ErrorCode::Unknown);
    let (mut bench, _, _) = bench_sent(1, enqueue(1), SECOND_US);
    assert_eq!(code(&bench.step(Input::Abandon { call: CallId(1) })), ErrorCode::Unknown);
    assert!(bench.step(Input::Abandon { call: CallId(1) }).is_empty());
    bench.now_us = 5 * SECOND_US;
    let late = bench.step(Input::Submit { call: CallId(2), body: enqueue(1), deadline_us: bench.now_us });
    assert_eq!(code(&late), ErrorCode::Unavailable);
}

#[test]
fn a_repeated_claim_keeps_its_id_says_so_and_waits_for_what_is_left() {
    let (mut bench, number, request) = bench_sent(1, claim(10_000), 60 * SECOND_US);
    let Request::Claim(first) = request else { panic!() };
    assert!(first.claim != ClaimId(0) && !first.repeated && first.wait_ms == 10_000);
    bench.now_us += 4 * SECOND_US;
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    let (_, _, request) = bench.sleep_until_sent();
    let left_ms = 10_000 - (bench.now_us - 1_000) / 1_000;
    assert_eq!(request, Request::Claim(Claim { repeated: true, wait_ms: left_ms, ..first }));
    assert!(left_ms <= 6_000);
    let timeout_us = bench.session.next_wake().unwrap() - bench.now_us;
    assert_eq!(timeout_us, (left_ms + 2_500) * 1_000, "the node may wait on purpose");
}

#[test]
fn times_are_settled_once() {
    let item = Completion { id: TaskId::MIN, token: Token::default(), sequence: None, result: None, at_ms: 0 };
    let complete = Call::Request(Request::Complete { items: vec![item; 1], acks: Acks::One });
    let (mut bench, number, first) = bench_sent(1, complete, 60 * SECOND_US);
    let Request::Complete { items, .. } = &first else { panic!() };
    assert_eq!(items[0].at_ms, SERVER_MS);
    bench.now_us += SECOND_US;
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    assert_eq!(bench.sleep_until_sent().2, first);

    let delayed = Call::Enqueue { drafts: vec![draft().delay_ms(5_000)], acks: Acks::One };
    let (_, _, request) = bench_sent(1, delayed, SECOND_US);
    let Request::Enqueue { tasks, .. } = request else { panic!() };
    assert_eq!(tasks[0].spec.not_before_ms, SERVER_MS + 5_000);

    let cancel = Request::Cancel { id: TaskId::MIN, reason: String::new(), at_ms: 0, acks: Acks::One };
    let (_, _, request) = bench_sent(1, Call::Request(cancel), SECOND_US);
    assert!(matches!(request, Request::Cancel { at_ms: SERVER_MS, .. }));
}

#[test]
fn server_time_and_ids_never_go_back_whatever_the_next_node_says() {
    let (mut bench, number, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let before = ids(&request)[0];
    bench.answer(0, number, Response::Acked(vec![Ok(acked(before))]));
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_000));
    bench.step(Input::Disconnected { endpoint: 0 });
    bench.submit(2, enqueue(1), SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 1 });
    let outputs = bench.answer(1, sent(&outputs)[0].1, welcome(SERVER_MS - 500, 9));
    let after = ids(sent(&outputs)[0].2)[0];
    assert!(after > before);
    assert_eq!((after.minter(), after.time_ms()), (9, SERVER_MS + 1_000));
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_000), "it stands still");
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_500), "and goes on");
}

#[test]
fn ids_of_a_batch_ascend_and_share_a_tag_by_the_hundred() {
    let (_, _, request) = bench_sent(1, enqueue(250), SECOND_US);
    let all = ids(&request);
    assert!(all.is_sorted_by(|left, right| left < right));
    for chunk in all.chunks(limits::BATCH_TAG_TASKS) {
        assert!(chunk.iter().all(|id| id.tag() == chunk[0].tag()));
    }
    assert_ne!(all[0].tag(), all[100].tag());
    let given = TaskId::new(1, 2, 3, 4);
    let drafts = vec![draft(), draft().id(given), draft()];
    let (_, _, request) = bench_sent(1, Call::Enqueue { drafts, acks: Acks::One }, SECOND_US);
    let all = ids(&request);
    assert!(all[1] == given && all[0] < all[2]);
}

#[test]
fn a_counter_that_wraps_moves_the_time() {
    let mut mint = Mint::starting_at(u32::MAX - 2);
    let Response::Welcome(hello) = welcome(SERVER_MS, 5) else { panic!() };
    mint.welcome(0, &hello);
    let minted: Vec<TaskId> = (0..5).map(|_| mint.mint(0, 1)).collect();
    assert!(minted.is_sorted_by(|left, right| left < right), "{minted:?}");
    assert_eq!((minted[1].time_ms(), minted[2].time_ms()), (SERVER_MS, SERVER_MS + 1));
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
    let (mut bench, _, _) = bench_sent(1, Call::Enqueue { drafts, acks: Acks::One }, 60 * SECOND_US);
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
    assert!(matches!(outputs[..], [Output::Disconnect { endpoint: 1 }, Output::Connect { endpoint: 0 }]));
    assert!(matches!(bench.step(Input::Connected { endpoint: 1 })[..], [Output::Disconnect { endpoint: 1 }]));
}

#[test]
fn what_is_too_much_is_refused_or_waits() {
    let config = Config { in_flight_max: 2, calls_max: 3, ..Config::default() };
    let mut bench = Bench { session: Session::new(config, 1, 1), now_us: 0, outputs: Vec::new() };
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
        claim(limits::WAIT_MS_MAX + 1),
        Call::Request(Request::Hello { name: String::new() }),
    ];
    let mut bench = Bench::new(1);
    for (index, body) in bad.into_iter().enumerate() {
        let outputs = bench.submit(index as u64, body, SECOND_US);
        let result = done(&outputs);
        assert!(matches!(&result[..], [(_, Err(error))] if error.code == ErrorCode::Invalid), "{index}: {result:?}");
        assert_eq!(outputs.len(), 1, "nothing else happens");
    }
    let large = vec![Draft::new(queue(), vec![0; limits::PAYLOAD_BYTES_MAX]); 8];
    assert!(connects(&bench.submit(100, enqueue(large), SECOND_US)).len() == 1);
}

/// A world for random schedules: nodes that answer, refuse, keep silent, forget, and connections that break.
struct World {
    random: Random,
    session: Session,
    now_us: u64,
    log: String,
    /// Deliveries to come, by time and a number that tells them apart.
    coming: BTreeMap<(u64, u64), Input>,
    coming_last: u64,
    submitted: BTreeMap<CallId, u64>,
    answers: BTreeMap<CallId, usize>,
    /// What was sent under each id of a task, to compare with repeats.
    tasks: BTreeMap<TaskId, NewTask>,
    time_ms_last: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed ^ 0x9e37);
        let endpoints = 1 + random.below(3) as usize;
        let config = Config { in_flight_max: 1 + random.below(6) as usize, calls_max: 20, ..Config::default() };
        World {
            random,
            session: Session::new(config, endpoints, seed),
            now_us: 0,
            log: String::new(),
            coming: BTreeMap::new(),
            coming_last: 0,
            submitted: BTreeMap::new(),
            answers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            time_ms_last: 0,
        }
    }

    fn step(&mut self, input: Input) {
        use std::fmt::Write;
        let mut outputs = Vec::new();
        writeln!(self.log, "{} {input:?}", self.now_us).unwrap();
        self.session.step(self.now_us, input, &mut outputs);
        self.session.check().unwrap();
        assert!(self.session.next_wake().is_none_or(|at_us| at_us > self.now_us), "a host would spin");
        let time_ms = self.session.server_time_ms(self.now_us).unwrap_or(0);
        assert!(time_ms >= self.time_ms_last, "server time goes back");
        self.time_ms_last = time_ms;
        for output in outputs {
            writeln!(self.log, "    {output:?}").unwrap();
            self.carry_out(output);
        }
    }

    fn later(&mut self, within_us: u64, input: Input) {
        self.coming_last += 1;
        let at_us = self.now_us + 1 + self.random.below(within_us);
        self.coming.insert((at_us, self.coming_last), input);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect { endpoint } => match self.random.below(8) {
                0 => {}
                1 | 2 => self.later(100_000, Input::Disconnected { endpoint }),
                _ => self.later(100_000, Input::Connected { endpoint }),
            },
            Output::Disconnect { endpoint } => self.coming.retain(|_, input| match input {
                Input::Connected { endpoint: at } | Input::Disconnected { endpoint: at } => *at != endpoint,
                Input::Received { .. } | Input::Submit { .. } | Input::Abandon { .. } | Input::Wake => true,
            }),
            Output::Send { endpoint, number, request } => self.serve(endpoint, number, request),
            Output::Done { call, first_sent_us, .. } => {
                assert!(first_sent_us.is_none_or(|sent_us| sent_us <= self.now_us));
                assert!(self.now_us <= self.submitted[&call], "{call:?} is answered after its deadline");
                *self.answers.entry(call).or_default() += 1;
            }
        }
    }

    fn serve(&mut self, endpoint: usize, number: u64, request: Request) {
        if let Request::Enqueue { tasks, .. } = &request {
            for task in tasks {
                let first = self.tasks.entry(task.id).or_insert_with(|| task.clone());
                assert_eq!(first, task, "a repeat is other bytes");
            }
        }
        let code = [ErrorCode::Unavailable, ErrorCode::Unknown, ErrorCode::Overloaded, ErrorCode::Conflict]
            [self.random.below(4) as usize];
        let response = match (self.random.below(10), request) {
            (0, _) => return,
            (1, _) => return self.later(500_000, Input::Disconnected { endpoint }),
            (2, _) => Response::Error(error(code)),
            (_, Request::Hello { .. }) => welcome(SERVER_MS + self.random.below(10_000), self.random.below(100)),
            (3, request @ Request::Enqueue { .. }) => {
                let item = |id| if self.random.below(2) == 0 { Ok(acked(id)) } else { Err(error(code)) };
                Response::Acked(ids(&request).into_iter().map(item).collect())
            }
            (_, request @ Request::Enqueue { .. }) => {
                Response::Acked(ids(&request).into_iter().map(acked).map(Ok).collect())
            }
            (_, Request::Claim(_)) => Response::Claimed { tasks: Vec::new(), unavailable: 0 },
            _ => Response::Queues(Vec::new()),
        };
        let within_us = if self.random.below(10) == 0 { 5 * SECOND_US } else { 50_000 };
        self.later(within_us, Input::Received { endpoint, number, response: response.clone() });
        if self.random.below(10) == 0 {
            self.later(within_us, Input::Received { endpoint, number, response });
        }
    }

    fn run(mut self, calls: u64) -> String {
        for call in 1..=calls {
            let body = match self.random.below(4) {
                0 => claim(self.random.below(3_000)),
                1 => Call::Request(Request::Queues),
                _ => enqueue(1 + self.random.below(5) as usize),
            };
            let at_us = self.random.below(20 * SECOND_US);
            let deadline_us = at_us + self.random.below(12 * SECOND_US);
            self.submitted.insert(CallId(call), deadline_us.max(at_us));
            self.coming_last += 1;
            self.coming.insert((at_us, self.coming_last), Input::Submit { call: CallId(call), body, deadline_us });
            if self.random.below(8) == 0 {
                self.coming_last += 1;
                let at_us = at_us + self.random.below(SECOND_US);
                self.coming.insert((at_us, self.coming_last), Input::Abandon { call: CallId(call) });
            }
        }
        loop {
            let next = self.coming.first_key_value().map(|(key, _)| *key);
            let wake_us = self.session.next_wake();
            match (next, wake_us) {
                (Some(key), wake_us) if wake_us.is_none_or(|wake_us| key.0 <= wake_us) => {
                    self.now_us = self.now_us.max(key.0);
                    let input = self.coming.remove(&key).expect("it is the first");
                    self.step(input);
                }
                (_, Some(wake_us)) => {
                    self.now_us = wake_us;
                    self.step(Input::Wake);
                }
                (_, None) => break,
            }
        }
        assert_eq!(self.answers.len() as u64, calls, "every call is answered");
        assert!(self.answers.values().all(|count| *count == 1), "once");
        self.log
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn under_any_schedule_every_call_is_answered_once_and_repeats_are_the_same_bytes(seed in any::<u64>()) {
        World::new(seed).run(60);
    }

    #[test]
    fn minted_ids_ascend_however_the_clocks_of_the_nodes_differ(
        steps in proptest::collection::vec((0u64..5_000_000, proptest::option::of(0u64..10_000)), 1..100),
        counter in any::<u32>(),
    ) {
        let mut mint = Mint::starting_at(counter);
        let mut now_us = 0;
        let mut last = TaskId::MIN;
        for (elapsed_us, welcomed) in std::iter::once((0, Some(5_000))).chain(steps) {
            now_us += elapsed_us;
            if let Some(offset_ms) = welcomed {
                let Response::Welcome(hello) = welcome(SERVER_MS + offset_ms, offset_ms) else { panic!() };
                mint.welcome(now_us, &hello);
                prop_assert!(mint.server_time_ms(now_us).unwrap() >= hello.time_ms);
            }
            let id = mint.mint(now_us, 3);
            prop_assert!(id > last);
            last = id;
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_outputs() {
    for seed in 0..5 {
        assert_eq!(World::new(seed).run(40), World::new(seed).run(40));
    }
}
