//! Each verb makes the requests that its arguments ask for.

use super::*;
use crate::Draft;
use norn_wire::membership::QueuePolicy;
use norn_wire::{Acks, Claim, ClaimId, Completion};
use std::time::Instant;

fn enqueued(outcome: &Outcome) -> (Vec<Draft>, Acks) {
    match &outcome.calls[..] {
        [(Call::Enqueue { drafts, acks }, None)] => (drafts.clone(), *acks),
        other => panic!("one enqueue is expected: {other:?}; {}{}", outcome.printed, outcome.noted),
    }
}

async fn enqueue(line: &str) -> (Draft, Acks) {
    let outcome = run(line, [Ok(Response::Acked(vec![Ok(acked(1))]))]).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let (mut drafts, acks) = enqueued(&outcome);
    (drafts.remove(0), acks)
}

async fn request(line: &str, answer: Response) -> Request {
    let outcome = run(line, [Ok(answer)]).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    outcome.request()
}

// T14, T16, T37, O30
#[tokio::test]
async fn enqueue_takes_data_and_flags() {
    let (draft, acks) = enqueue("enqueue mail hello").await;
    assert_eq!((draft, acks), (Draft { id: None, spec: spec(b"hello"), delay_ms: 0, near: None }, Acks::Quorum));
    let (draft, _) = enqueue("enqueue mail").await;
    assert_eq!(draft.spec.payload, b"");
    let (draft, _) = enqueue("enqueue mail @literal").await;
    assert_eq!(draft.spec.payload, b"@literal");
    let line = format!(
        "enqueue --priority -5 --delay 1m30s --max-attempts 3 --id {} --acks all --header a=b --header c=d mail x",
        id(9)
    );
    let (draft, acks) = enqueue(&line).await;
    let headers = vec![("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d".to_owned())];
    let spec = Spec { priority: -5, headers, attempts_max: 3, ..spec(b"x") };
    assert_eq!((draft, acks), (Draft { id: Some(id(9)), spec, delay_ms: 90_000, near: None }, Acks::All));
    let (draft, _) = enqueue("enqueue mail x --at 2023-11-14T22:13:20Z").await;
    assert_eq!((draft.spec.not_before_ms, draft.delay_ms), (1_700_000_000_000, 0));
    let (draft, _) = enqueue(&format!("enqueue mail x --after {},{} --after {}", id(1), id(2), id(3))).await;
    assert_eq!(draft.spec.after, [id(1), id(2), id(3)]);
}

#[tokio::test]
async fn what_is_unique_is_so_by_its_key() {
    let answer = || Ok(Response::AckedUnique { acked: acked(1), existing: true });
    let outcome = run("enqueue mail x --key anna --unique", [answer()]).await;
    let [(Call::EnqueueUnique { draft }, None)] = &outcome.calls[..] else { panic!("{:?}", outcome.calls) };
    assert_eq!((draft.spec.key.as_deref(), &draft.spec.payload[..]), (Some("anna"), &b"x"[..]));
    assert!(outcome.printed.starts_with("there is "), "{}", outcome.printed);
    for line in ["enqueue mail x --unique", "enqueue mail --lines --key a --unique"] {
        let outcome = run(line, []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Usage, 0), "{line}");
    }
}

#[tokio::test]
async fn enqueue_reads_data_from_files_and_standard_input() {
    let directory = std::env::temp_dir().join(format!("norn-command-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("data");
    std::fs::write(&path, b"\xff\n\0").unwrap();
    let (draft, _) = enqueue(&format!("enqueue mail --file {}", path.display())).await;
    assert_eq!(draft.spec.payload, b"\xff\n\0");
    let answer = || [Ok(Response::Acked(vec![Ok(acked(1))]))];
    let outcome = run_at(Place::Script, &format!("enqueue mail @{}", path.display()), b"", answer()).await;
    assert_eq!(enqueued(&outcome).0[0].spec.payload, b"\xff\n\0");
    std::fs::remove_dir_all(&directory).unwrap();
    let outcome = run_at(Place::CommandLine, "enqueue mail -", b"a\nb\n", answer()).await;
    assert_eq!(enqueued(&outcome).0[0].spec.payload, b"a\nb\n");
    let outcome = run_at(Place::Script, "enqueue mail '@file'", b"", answer()).await;
    assert_eq!(enqueued(&outcome).0[0].spec.payload, b"@file");
    let outcome = run_at(Place::Script, "enqueue mail '-'", b"rest", answer()).await;
    assert_eq!(enqueued(&outcome).0[0].spec.payload, b"-");
}

#[tokio::test]
async fn enqueue_lines_stores_one_task_per_line() {
    let answer = [Ok(Response::Acked(vec![Ok(acked(1)), Ok(acked(2))]))];
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines --priority 2", b"a\n\nb b\r\n", answer).await;
    let (drafts, _) = enqueued(&outcome);
    let payloads: Vec<_> = drafts.iter().map(|draft| (&draft.spec.payload[..], draft.spec.priority)).collect();
    assert_eq!(payloads, [(&b"a"[..], 2), (&b"b b"[..], 2)]);
    assert!(outcome.printed.starts_with("enqueued 2 tasks in "), "{}", outcome.printed);
}

#[tokio::test]
async fn enqueue_lines_goes_in_batches() {
    let lines: &'static [u8] = "x\n".repeat(2_500).leak().as_bytes();
    let batch = |size: usize| Ok(Response::Acked(vec![Ok(acked(1)); size]));
    let answers = [batch(1_000), batch(1_000), batch(500)];
    let outcome = run_at(Place::CommandLine, "enqueue mail --lines -", lines, answers).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 3), "{}", outcome.noted);
}

#[tokio::test]
async fn claim_names_queues_lease_and_patience() {
    let claimed = || Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 };
    let defaults = Claim {
        claim: ClaimId(0),
        repeated: false,
        queues: vec![queue("mail")],
        lease_ms: 30_000,
        wait_ms: 0,
        max: 1,
        worker: "norn".into(),
        lease_open: true,
        session: None,
        depends: Vec::new(),
        confirms: false,
    };
    assert_eq!(request("claim mail", claimed()).await, Request::Claim(defaults.clone()));
    let under = format!("claim mail --session {}", id(7));
    let claim = Claim { session: Some(id(7)), lease_ms: 3_600_000, lease_open: false, ..defaults.clone() };
    assert_eq!(request(&under, claimed()).await, Request::Claim(claim));
    let outcome = run("claim mail,maps --lease 5m --wait 20s --max 9 --worker w", [Ok(claimed())]).await;
    let queues = vec![queue("mail"), queue("maps")];
    let worker = "w".into();
    let claim = Claim { queues, lease_ms: 300_000, wait_ms: 20_000, max: 9, worker, lease_open: false, ..defaults };
    assert_eq!(outcome.request(), Request::Claim(claim));
    assert_eq!(outcome.calls[0].1, None, "`--timeout` says how long the call may take beside the wait");
}

#[tokio::test]
async fn a_session_is_a_task_that_its_worker_holds() {
    let answers = [
        Ok(Response::Acked(vec![Ok(acked(1))])),
        Ok(Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 }),
    ];
    let outcome = run("session open --ttl 5s --worker host-7", answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let Call::Enqueue { drafts, .. } = &outcome.calls[0].0 else { panic!("{:?}", outcome.calls) };
    assert_eq!((drafts[0].spec.queue.as_str(), drafts[0].spec.attempts_max), ("norn/sessions", 1));
    let Call::Request(Request::Claim(claim)) = &outcome.calls[1].0 else { panic!("{:?}", outcome.calls) };
    assert_eq!((claim.lease_ms, claim.lease_open, claim.worker.as_str()), (5_000, false, "host-7"));
    let nothing = Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 };
    let outcome = run("session open", [Ok(Response::Acked(vec![Ok(acked(1))])), Ok(nothing)]).await;
    assert_eq!(outcome.exit, Exit::Unavailable, "{}", outcome.noted);
    for ttl in ["1ms", "61m"] {
        let outcome = run(&format!("session open --ttl {ttl}"), []).await;
        let calls = outcome.calls.len();
        assert_eq!((outcome.exit, calls), (Exit::Refused, 0), "nothing is left behind by what cannot be claimed");
        assert!(outcome.noted.contains("a session lasts 100ms to 1h without a renewal, not "), "{}", outcome.noted);
    }
}

/// Goal: if the queue of sessions is paused or limited, the failure names that, keeps to the time limit, and leaves no session behind
/// unless a worker holds it by then.
#[tokio::test]
async fn a_session_that_cannot_be_had_is_taken_back_and_its_failure_says_why() {
    let paused = QueuePolicy { paused: true, ..QueuePolicy::default() };
    let limited = QueuePolicy { concurrency: Some(1), ..QueuePolicy::default() };
    let version = Some("00000000000000ff".parse().unwrap());
    for (policy, state, words) in [
        (&paused, State::Ready, "queue norn/sessions is paused"),
        (&limited, State::Ready, "while fewer than 1 of it are held"),
        (&paused, State::Claimed, "queue norn/sessions is paused"),
    ] {
        let nothing = Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 };
        let answers = [
            Ok(Response::Acked(vec![Ok(acked(1))])),
            Ok(nothing),
            Ok(Response::Cluster(Box::new(super::tables::view_of("norn/sessions", policy.clone())))),
            Ok(Response::Task(Box::new(TaskView { version, ..bare_task(1, state) }))),
            Ok(Response::Transacted(Ok(Vec::new()))),
        ];
        let (notes, fake) = (Written::default(), Fake::new(answers).within(Duration::from_secs(3)));
        let output = Output::new(Written::default(), notes.clone(), false);
        let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
        let command = CommandLine::try_parse_from(["session", "open", "--ttl", "1m"]).unwrap();
        assert_eq!(runner.run(command.verb).await, Exit::Unavailable);
        assert!(notes.text().contains(words) && !notes.text().contains("try again"), "{}", notes.text());
        let calls = fake.calls();
        let (Call::Request(Request::Claim(claim)), timeout) = &calls[1] else { panic!("{calls:?}") };
        assert!(claim.wait_ms <= 1_500 && timeout.is_some_and(|it| it.as_millis() <= 3_000), "{calls:?}");
        let taken_back =
            calls.iter().any(|(call, _)| matches!(call, Call::Transact { draft } if draft.deletes.len() == 1));
        assert_eq!(taken_back, state == State::Ready, "{calls:?}");
    }
}

/// Delay of answers, by the wall clock of these tests alone.
const WAITED_MS: u64 = 7_000;

std::thread_local! {
    /// Time of that clock.
    static WALL_MS: std::cell::Cell<u64> = const { std::cell::Cell::new(NOW_MS) };
}

/// Transport that lets time pass before each answer with leases. These count from the call, or from a renewal this much later.
struct Waiting {
    fake: Fake,
    renewed_after: Option<Duration>,
    /// Time from which such leases count.
    from: Mutex<Option<Instant>>,
}

impl Transport for Waiting {
    async fn call(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.fake.call(call, timeout).await
    }

    async fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> (Result<Response, Error>, Option<Instant>) {
        let from = self.renewed_after.map(|after| Instant::now() + after);
        *self.from.lock().unwrap() = from;
        WALL_MS.with(|now| now.set(now.get() + WAITED_MS));
        (self.fake.call(call, timeout).await, from)
    }
}

/// Goal: a lease shown after a long wait ends no later than at the node, for claims and for sessions alike. Method: answers come late,
/// with leases that count from the call, or from a renewal during the wait.
#[tokio::test]
async fn a_lease_behind_a_long_wait_counts_from_where_the_node_counts_it() {
    let lease_ms = granted().lease_ms;
    let claimed = || Ok(Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 });
    let renewed = || Ok(Response::Renewed(vec![Ok(lease_ms)]));
    let session = || {
        let claims = full_task().claims;
        let spec = Spec { queue: queue("norn/sessions"), ..spec(b"") };
        Ok(Response::Task(Box::new(TaskView { spec, claims, ..bare_task(1, State::Claimed) })))
    };
    let enqueued = || Ok(Response::Acked(vec![Ok(acked(1))]));
    for renewed_after in [None, Some(Duration::from_secs(3))] {
        let cases = [
            ("claim mail --wait 1m".to_owned(), vec![claimed()], "lease_expires_ms"),
            (format!("renew {} 7.42", id(1)), vec![renewed()], "lease_expires_ms"),
            ("session open --ttl 30s".to_owned(), vec![enqueued(), claimed()], "expires_ms"),
            (format!("session renew {} 7.42", id(1)), vec![session(), renewed()], "expires_ms"),
        ];
        for (line, answers, field) in cases {
            let results = Written::default();
            let waiting = Waiting { fake: Fake::new(answers), renewed_after, from: Mutex::default() };
            let output = Output::new(results.clone(), Written::default(), true);
            let mut runner = Runner::new(&waiting, output, Input::pipe(&b""[..]), Place::CommandLine);
            runner.clock = || WALL_MS.with(std::cell::Cell::get);
            WALL_MS.with(|now| now.set(NOW_MS));
            let began = Instant::now();
            let verb = CommandLine::try_parse_from(line.split(' ')).expect(&line).verb;
            assert_eq!(runner.run(verb).await, Exit::Done, "{line}");
            let told: serde_json::Value = serde_json::from_str(&results.text()).expect("an object");
            let from_ms = told[field].as_u64().expect("a time") - lease_ms;
            let from = waiting.from.lock().unwrap().map_or(Duration::ZERO, |from| from - began);
            let earliest_ms = renewed_after.unwrap_or_default().as_millis() as u64;
            let right = NOW_MS + earliest_ms..=NOW_MS + from.as_millis() as u64;
            assert!(right.contains(&from_ms), "{line}: {from_ms}, not {right:?}");
        }
    }
}

/// Goal: `session end` with another task than a session, or with an old token, ends nothing.
#[tokio::test]
async fn only_a_session_is_ended_and_renewed_as_one() {
    let view = |queue: &str, token: Token| {
        let view = bare_task(1, State::Claimed);
        let spec = Spec { queue: QueueName::new(queue).unwrap(), ..view.spec };
        let claims = vec![ClaimView {
            token,
            start_ms: NOW_MS,
            end_ms: None,
            completed_ms: None,
            worker: "norn".into(),
            rejected: None,
            superseded: None,
            session: None,
            end: None,
        }];
        Ok(Response::Task(Box::new(TaskView { spec, claims, ..view })))
    };
    let other = Token { number: TOKEN.number + 1, ..TOKEN };
    for verb in ["end", "renew"] {
        let line = format!("session {verb} {} 7.42", id(1));
        for (answer, text) in
            [(view("mail", TOKEN), "no session"), (view("norn/sessions", other), "the session's token is 7.43")]
        {
            let outcome = run(&line, [answer]).await;
            assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{}", outcome.noted);
            assert!(outcome.noted.contains(text), "{}", outcome.noted);
        }
    }
    let ended = Ok(Response::Acked(vec![Ok(acked(1))]));
    let outcome = run(&format!("session end {} 7.42", id(1)), [view("norn/sessions", TOKEN), ended]).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let Call::Request(Request::Complete { items, .. }) = &outcome.calls[1].0 else { panic!("{:?}", outcome.calls) };
    assert_eq!((items[0].id, items[0].token), (id(1), TOKEN));
}

#[tokio::test]
async fn what_must_exist_is_looked_for_before_anything_is_enqueued() {
    let line = format!("enqueue mail x --after {} --must-exist", id(1));
    let outcome = run(&line, [Err(Error::new(ErrorCode::NotFound, "no such task"))]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{}", outcome.noted);
    let known = Ok(Response::Task(Box::new(bare_task(1, State::Ready))));
    let outcome = run(&line, [known, Ok(Response::Acked(vec![Ok(acked(2))]))]).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    let Call::Enqueue { drafts, .. } = &outcome.calls[1].0 else { panic!("{:?}", outcome.calls) };
    assert_eq!(drafts[0].spec.after, [id(1)]);
}

#[tokio::test]
async fn verbs_of_a_worker_carry_the_token() {
    let (id, token, acks) = (id(1), TOKEN, Acks::Quorum);
    let at = |verb: &str, rest: &str| format!("{verb} {id} 7.42 {rest}");
    let renewed = || Response::Renewed(vec![Ok(30_000)]);
    let renew = |lease_ms| Request::Renew { items: vec![(id, token)], lease_ms };
    assert_eq!(request(&at("renew", ""), renewed()).await, renew(None));
    assert_eq!(request(&at("renew", "--lease 1s"), renewed()).await, renew(Some(1_000)));
    assert_eq!(
        request(&at("update", "3 half"), Response::AckedOne(acked(1))).await,
        Request::Update { id, token, sequence: 3, data: b"half".to_vec(), acks }
    );
    let complete = |sequence, result: Option<&[u8]>, acks| {
        let result = result.map(|result| ByteBuf::from(result.to_vec()));
        Request::Complete {
            items: vec![Completion { id, token, sequence, result, at_ms: 0, children: Vec::new() }],
            acks,
        }
    };
    let completed = || Response::Acked(vec![Ok(acked(1))]);
    assert_eq!(request(&at("complete", ""), completed()).await, complete(None, None, acks));
    let line = at("complete", "--seq 2 --result -5 --acks one");
    assert_eq!(request(&line, completed()).await, complete(Some(2), Some(b"-5"), Acks::One));
    for line in [at("complete", "-"), at("complete", "--result -"), at("complete", "--file -")] {
        let outcome = run_at(Place::CommandLine, &line, b"out", [Ok(completed())]).await;
        assert_eq!(outcome.request(), complete(None, Some(b"out"), acks));
    }
    assert_eq!(request(&at("release", ""), Response::Done).await, Request::Release { id, token });
    let fail = |reason: &str, retry_in: Option<u64>, invalid| {
        let (reason, retry_in_ms, retry_open) = (reason.into(), retry_in.unwrap_or(0), retry_in.is_none());
        Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open }
    };
    assert_eq!(request(&at("fail", "--json"), Response::Done).await, fail("", None, false));
    assert_eq!(request(&at("fail", "--retry-in 0s --json"), Response::Done).await, fail("", Some(0), false));
    let line = at("fail", "--reason 'no luck' --retry-in 5m --json");
    assert_eq!(request(&line, Response::Done).await, fail("no luck", Some(300_000), false));
    assert_eq!(request(&at("fail", "--invalid"), Response::Done).await, fail("", None, true));
}

#[tokio::test]
async fn verbs_that_look_at_tasks() {
    let task = || Response::Task(Box::new(bare_task(1, State::Done)));
    let id = id(1);
    let get = |minimum_sequence| Request::Get { id, minimum: None, minimum_sequence };
    assert_eq!(request(&format!("get {id}"), task()).await, get(None));
    assert_eq!(request(&format!("get {id} --min-seq 2"), task()).await, get(Some(2)));
    assert_eq!(request(&format!("log {id}"), task()).await, get(None));
    assert_eq!(request(&format!("wait {id}"), task()).await, Request::Wait { id, timeout_ms: 60_000 });
    let outcome = run(&format!("wait {id} --timeout 5s"), [Ok(task())]).await;
    assert_eq!(outcome.request(), Request::Wait { id, timeout_ms: 5_000 });
    let beside = outcome.calls[0].1.expect("a time of its own");
    assert!(beside <= Duration::from_secs(1), "the flag says how long it takes in all: {beside:?}");
    let cancel = |reason: &str| Request::Cancel { id, reason: reason.into(), at_ms: 0, acks: Acks::Quorum };
    let line = format!("cancel {id} --reason stop --json");
    let ready = Response::Task(Box::new(bare_task(1, State::Ready)));
    let outcome = run(&line, [Ok(ready), Ok(Response::AckedOne(acked(1))), Ok(task())]).await;
    let calls: Vec<_> = outcome.calls.into_iter().map(|(call, _)| call).collect();
    assert_eq!(calls, [get(None), cancel("stop"), get(None)].map(Call::Request));
    let count = |queue, state| Request::Count { queue, state };
    assert_eq!(request("count", Response::Count(1)).await, count(None, None));
    let line = "count mail --state ready";
    assert_eq!(request(line, Response::Count(1)).await, count(Some(queue("mail")), Some(State::Ready)));
    assert_eq!(request("queues", Response::Queues(queue_counts())).await, Request::Queues);
}

#[tokio::test]
async fn an_unlimited_wait_asks_again_until_the_task_has_ended() {
    let task = |state| Ok(Response::Task(Box::new(bare_task(1, state))));
    let answers = [task(State::Claimed), task(State::Ready), task(State::Dead)];
    let outcome = run(&format!("wait {}", id(1)), answers).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 3));
}

// T33
#[tokio::test]
async fn list_turns_pages_up_to_its_limit() {
    let limits = |outcome: &Outcome| -> Vec<(Option<TaskId>, u32)> {
        let of = |call: &(Call, _)| match &call.0 {
            Call::Request(Request::List { after, limit, queue: None, state: None, from: None, to: None }) => {
                (*after, *limit)
            }
            other => panic!("{other:?}"),
        };
        outcome.calls.iter().map(of).collect()
    };
    let outcome = run("list", [page(0..60, true), page(60..100, true)]).await;
    assert_eq!(limits(&outcome), [(None, 100), (Some(id(59)), 40)]);
    assert!(outcome.printed.contains("100 tasks shown, there may be more"), "{}", outcome.printed);
    let outcome = run("list --limit 1200", [page(0..1_000, true), page(1_000..1_100, false)]).await;
    assert_eq!(limits(&outcome), [(None, 1_000), (Some(id(999)), 200)]);
    assert!(!outcome.printed.contains("there may be more"));
    let outcome = run("list --json", [page(0..1_000, true), page(1_000..2_000, true), page(2_000..2_000, false)]).await;
    assert_eq!(limits(&outcome), [(None, 1_000), (Some(id(999)), 1_000), (Some(id(1_999)), 1_000)]);
    assert_eq!(outcome.printed.lines().count(), 2_000);
    let stuck = page(0..10, true);
    let outcome = run("list --json", [page(0..10, true), stuck]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 2));
    let outcome = run("list mail --state dead --limit 5", [page(0..0, false)]).await;
    let list = Request::List {
        queue: Some(queue("mail")),
        state: Some(State::Dead),
        after: None,
        from: None,
        to: None,
        limit: 5,
    };
    assert_eq!((outcome.request(), &outcome.printed[..]), (list, "no tasks\n"));
}

#[tokio::test]
async fn verbs_that_look_at_the_cluster() {
    assert_eq!(request("nodes", Response::Nodes(nodes())).await, Request::Nodes);
    assert_eq!(request("ring --json", Response::Partitions(partitions())).await, Request::Ring);
    assert_eq!(request("partitions --json", Response::Partitions(partitions())).await, Request::Partitions);
    assert_eq!(request("status", Response::Status(Box::new(status()))).await, Request::Status);
}
