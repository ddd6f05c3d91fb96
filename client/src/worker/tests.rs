//! Goal: every promise in the worker's module documentation. Method: handlers against a node that keeps a small table of tasks.

mod groups;
mod hangs;
mod progress;
mod reports;
mod sessions;

use super::*;
use crate::connection::testing::{Certificates, Node, Reply};
use norn_wire::error::ErrorCode;
use norn_wire::group::{GroupView, Grouping};
use norn_wire::ids::{ClaimId, TaskId, Token};
use norn_wire::request::{Claim, NewTask, Request};
use norn_wire::response::{Acked, Granted, Guarantee, LogEntry, Response};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, oneshot};

/// State of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Waiting,
    Held,
    Done { result: Option<Vec<u8>>, sequence: Option<u32> },
    Failed { reason: String, retry_in_ms: u64, retry_open: bool, invalid: bool },
    Released,
}

/// The node's table. Repeats by the session, as when an answer takes too long, count once.
#[derive(Debug, Default)]
struct Table {
    fates: Vec<Fate>,
    logs: Vec<Vec<Vec<u8>>>,
    renewals: Vec<usize>,
    /// Lengths that renewals name.
    lengths_ms: Vec<u64>,
    /// Tasks granted to each claim.
    claims: BTreeMap<ClaimId, Vec<Granted>>,
    leases_ms: BTreeMap<usize, u64>,
    held_most: usize,
    /// Error that renewals are answered with.
    refuse_renewals: Option<ErrorCode>,
    /// Renewals are not answered.
    ignore_renewals: bool,
    /// Number of items in each completion that was received.
    completions: Vec<usize>,
    /// Completions are not answered, and have no effect.
    ignore_completions: bool,
    /// If set, reported failures are not answered; counts them.
    failures_ignored: Option<usize>,
    /// For how long releases are answered `unknown` without effect, and when that began.
    releases_unknown: Duration,
    first_release: Option<Instant>,
    /// Number of updates that are answered `unknown` although they are written.
    updates_unknown: usize,
    claim_delay: Duration,
    /// Grouping and group state of tasks.
    groups: BTreeMap<usize, (Grouping, Option<GroupView>)>,
    /// Child tasks of completions.
    children: Vec<NewTask>,
    /// Each claim's lease, its queues, and the number of tasks it asked for.
    asked: Vec<(u64, Vec<QueueName>, u32)>,
    /// The session of each claim.
    under: Vec<Option<TaskId>>,
    sessions: sessions::Sessions,
}

fn scripted_unknown() -> Response {
    Response::Error(Error { retry: norn_wire::Retry::Now, ..Error::new(ErrorCode::Unknown, "scripted") })
}

const QUEUES: [&str; 2] = ["mail", "print"];

fn place(id: TaskId) -> usize {
    id.time_ms() as usize
}

impl Table {
    fn new(tasks: usize) -> Arc<Mutex<Table>> {
        let table = Table { fates: vec![Fate::Waiting; tasks], logs: vec![Vec::new(); tasks], ..Table::default() };
        Arc::new(Mutex::new(table))
    }

    fn acked(id: TaskId) -> Acked {
        Acked { id, acks: 2, replicas: 3, guarantee: Guarantee::Strict }
    }

    fn grant(&mut self, max: u32, queues: &[QueueName], lease_ms: u64) -> Vec<Granted> {
        let mut tasks = Vec::new();
        for (index, fate) in self.fates.iter_mut().enumerate() {
            let queue: QueueName = QUEUES[index % 2].parse().unwrap();
            if *fate == Fate::Waiting && queues.contains(&queue) && tasks.len() < max as usize {
                *fate = Fate::Held;
                self.leases_ms.insert(index, lease_ms);
                let token = Token { epoch: 1, number: 9 };
                tasks.push(Granted {
                    id: TaskId::new(index as u64, 0, 0, 0),
                    token,
                    queue,
                    payload: index.to_string().into_bytes(),
                    priority: 0,
                    headers: vec![("kind".into(), "test".into())],
                    attempt: 2,
                    lease_ms,
                    updates: vec![LogEntry {
                        token: Token { epoch: 1, number: 8 },
                        sequence: 0,
                        data: b"old".to_vec(),
                    }],
                    grouping: self.groups.get(&index).map(|(grouping, _)| Box::new(*grouping)),
                    group: self.groups.get(&index).and_then(|(_, group)| *group),
                });
            }
        }
        let held = self.fates.iter().filter(|fate| **fate == Fate::Held).count();
        self.held_most = self.held_most.max(held);
        tasks
    }

    fn claim(&mut self, claim: &Claim) -> Vec<Granted> {
        if let Some(tasks) = self.claims.get(&claim.claim) {
            return tasks.clone();
        }
        self.asked.push((claim.lease_ms, claim.queues.clone(), claim.max));
        self.under.push(claim.session);
        let tasks = self.grant(claim.max, &claim.queues, claim.lease_ms);
        self.claims.insert(claim.claim, tasks.clone());
        tasks
    }

    /// Ends a task. Returns whether it had not ended before.
    fn end(&mut self, id: TaskId, fate: Fate) -> bool {
        let present = &mut self.fates[place(id)];
        if *present == fate {
            return false;
        }
        assert_eq!(*present, Fate::Held, "only what is held ends");
        *present = fate;
        true
    }

    fn update(&mut self, id: TaskId, sequence: usize, data: Vec<u8>) -> Response {
        let log = &mut self.logs[place(id)];
        if sequence == log.len() {
            log.push(data);
        } else if log.get(sequence) != Some(&data) {
            return Response::Error(Error::new(ErrorCode::Conflict, "another entry has this number"));
        }
        if self.updates_unknown > 0 {
            self.updates_unknown -= 1;
            return scripted_unknown();
        }
        Response::AckedOne(Table::acked(id))
    }

    fn serve(&mut self, request: Request) -> Reply {
        if let Some(reply) = self.sessions.serve(&request) {
            return reply;
        }
        Reply::Answer(match request {
            Request::Claim(claim) => {
                let tasks = self.claim(&claim);
                if self.sessions.hold_back() {
                    return Reply::Silence;
                }
                let delay = if tasks.is_empty() { Duration::from_millis(claim.wait_ms) } else { self.claim_delay };
                return Reply::AnswerAfter(delay, Response::Claimed { tasks, unavailable: 0, left: 0 });
            }
            Request::Renew { .. } if self.ignore_renewals => return Reply::Silence,
            Request::Renew { items, lease_ms } => {
                self.renewals.push(items.len());
                self.lengths_ms.extend(lease_ms);
                // It never shortens.
                for (id, _) in &items {
                    let own_ms = self.leases_ms.get_mut(&place(*id)).expect("it is held");
                    *own_ms = lease_ms.unwrap_or(0).max(*own_ms);
                }
                let refusal = self.refuse_renewals.map(|code| Error::new(code, "scripted"));
                let renewed = |id: TaskId| refusal.clone().map_or(Ok(self.leases_ms[&place(id)]), Err);
                Response::Renewed(items.iter().map(|(id, _)| renewed(*id)).collect())
            }
            Request::Update { id, sequence, data, .. } => self.update(id, sequence as usize, data),
            Request::Complete { items, .. } if self.ignore_completions => {
                self.completions.push(items.len());
                return Reply::Silence;
            }
            Request::Complete { items, .. } => {
                self.completions.push(items.len());
                let mut acked = Vec::new();
                for item in items {
                    let result = item.result.map(serde_bytes::ByteBuf::into_vec);
                    if self.end(item.id, Fate::Done { result, sequence: item.sequence }) {
                        self.children.extend(item.children);
                    }
                    acked.push(Ok(Table::acked(item.id)));
                }
                Response::Acked(acked)
            }
            Request::Fail { .. } if self.failures_ignored.is_some() => {
                self.failures_ignored = self.failures_ignored.map(|count| count + 1);
                return Reply::Silence;
            }
            Request::Fail { id, reason, retry_in_ms, retry_open, invalid, .. } => {
                self.end(id, Fate::Failed { reason, retry_in_ms, retry_open, invalid });
                Response::Done
            }
            Request::Release { .. }
                if self.first_release.get_or_insert_with(Instant::now).elapsed() < self.releases_unknown =>
            {
                scripted_unknown()
            }
            Request::Release { id, .. } => {
                self.end(id, Fate::Released);
                Response::Done
            }
            other => panic!("{other:?}"),
        })
    }
}

/// A lease that does not end during a test, even on a slow machine.
const LEASE_MS: u64 = 30_000;
/// For tests in which the lease is lost, but not because a machine pauses for a second or two.
const SHORT_LEASE: Duration = Duration::from_secs(6);
/// An event that takes this long never comes.
const HANGS: Duration = Duration::from_secs(120);

struct Bench {
    table: Arc<Mutex<Table>>,
    worker: Worker,
    node: Node,
    certificates: Certificates,
}

async fn bench(table: &Arc<Mutex<Table>>) -> Bench {
    let certificates = Certificates::new();
    let served = Arc::clone(table);
    let node = Node::start(&certificates, move |request| served.lock().unwrap().serve(request));
    let client = certificates.client(&[&node]).await;
    let worker = Worker::new(client).lease(Duration::from_millis(LEASE_MS)).poll(Duration::from_millis(50));
    Bench { table: Arc::clone(table), worker, node, certificates }
}

/// Ready once no task waits or is held.
async fn all_ended(table: Arc<Mutex<Table>>) {
    let open = |table: &Mutex<Table>| {
        table.lock().unwrap().fates.iter().any(|fate| matches!(fate, Fate::Waiting | Fate::Held))
    };
    until(|| !open(&table)).await;
}

/// Ready once the condition holds; panics if it never does.
async fn until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < HANGS, "it will never hold");
        after(10).await;
    }
}

async fn after(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// A handler that never ends, and the number of its calls: a granted task may not have arrived yet.
fn endless_handler() -> (impl Fn(Context) -> std::future::Pending<Outcome> + Clone, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move |_: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::pending()
    };
    (handler, calls)
}

/// A handler that ends when notified, and the number of its calls.
fn handler_until_stop() -> (impl Fn(Context) -> Handling, Arc<AtomicUsize>, Arc<Notify>) {
    let (calls, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counted, stopped) = (Arc::clone(&calls), Arc::clone(&stops));
    let handler = move |_: Context| -> Handling {
        counted.fetch_add(1, Ordering::SeqCst);
        let stopped = Arc::clone(&stopped);
        Box::pin(async move {
            stopped.notified().await;
            Outcome::Done(None)
        })
    };
    (handler, calls, stops)
}

/// Ready once the counter has reached the count.
async fn reaches(counter: Arc<AtomicUsize>, count: usize) {
    until(|| counter.load(Ordering::SeqCst) >= count).await;
}

// O37, C17
#[tokio::test]
async fn outcomes_are_reported_and_a_panic_is_one() {
    let table = Table::new(8);
    let bench = bench(&table).await;
    let print = async |context: Context| {
        assert_eq!((context.queue().as_str(), context.attempt()), ("print", 2));
        assert_eq!((context.header("kind"), context.header("other")), (Some("test"), None));
        match context.payload() {
            b"1" => Outcome::RetryLater { after: Duration::from_secs(5), reason: "r".repeat(3_000) },
            b"3" => Outcome::Invalid { reason: "bad".into() },
            b"5" => panic!("on purpose"),
            b"7" => Outcome::Retry { reason: "busy".into() },
            _ => Outcome::Done(None),
        }
    };
    let mail = async |context: Context| {
        assert_eq!(context.updates()[0].data, b"old");
        Outcome::Done(Some(context.payload().to_vec()))
    };
    let worker = bench.worker.handler("mail", mail).handler("print", print).concurrency(3);
    let summary = worker.run_until(all_ended(Arc::clone(&bench.table))).await.unwrap();
    assert_eq!(summary, Summary { done: 4, retried: 3, invalid: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!(table.fates[2], Fate::Done { result: Some(b"2".to_vec()), sequence: Some(0) });
    let Fate::Failed { reason, retry_in_ms: 5_000, retry_open: false, invalid: false } = &table.fates[1] else {
        panic!("{:?}", table.fates[1])
    };
    assert_eq!(reason.len(), limits::TEXT_BYTES_MAX);
    assert!(matches!(&table.fates[3], Fate::Failed { reason, invalid: true, .. } if reason == "bad"));
    assert!(matches!(&table.fates[5], Fate::Failed { reason, .. } if reason.contains("on purpose")));
    let by_policy = Fate::Failed { reason: "busy".into(), retry_in_ms: 0, retry_open: true, invalid: false };
    assert_eq!(table.fates[7], by_policy, "its queue says how long it waits");
    assert!(table.held_most <= 3, "{} were held", table.held_most);
}

/// Goal: neither a result that is too large nor a reason that is too long keeps a task from ending.
#[tokio::test]
async fn what_is_too_large_is_reported_as_far_as_it_fits() {
    let table = Table::new(6);
    let bench = bench(&table).await;
    let long = || "x".to_owned() + &"ä".repeat(limits::TEXT_BYTES_MAX);
    let mail = async |context: Context| match context.payload() {
        b"0" => Outcome::Done(Some(vec![7; limits::PAYLOAD_BYTES_MAX])),
        b"2" => Outcome::Done(Some(vec![7; limits::PAYLOAD_BYTES_MAX + 1])),
        _ => Outcome::Done(None),
    };
    let print = move |context: Context| async move {
        match context.payload() {
            b"1" => Outcome::RetryLater { after: Duration::MAX, reason: long() },
            b"3" => Outcome::Invalid { reason: long() },
            _ => panic!("{}", long()),
        }
    };
    let worker = bench.worker.handler("mail", mail).handler("print", print).concurrency(2);
    let summary = worker.run_until(all_ended(Arc::clone(&bench.table))).await.unwrap();
    assert_eq!(summary, Summary { done: 2, retried: 2, invalid: 2, ..Summary::default() });
    let table = table.lock().unwrap();
    let Fate::Done { result: Some(result), .. } = &table.fates[0] else { panic!("{:?}", table.fates[0]) };
    assert_eq!(result.len(), limits::PAYLOAD_BYTES_MAX);
    let failed = |place: usize| match &table.fates[place] {
        Fate::Failed { reason, retry_in_ms, invalid, .. } => (reason.as_str(), *retry_in_ms, *invalid),
        other => panic!("{place}: {other:?}"),
    };
    let (reason, _, invalid) = failed(2);
    assert!(invalid && reason.starts_with("completion refused: ") && reason.contains("1048576"), "{reason}");
    for (place, is_invalid) in [(1, false), (3, true), (5, false)] {
        let (reason, retry_in_ms, invalid) = failed(place);
        assert!((limits::TEXT_BYTES_MAX - 1..=limits::TEXT_BYTES_MAX).contains(&reason.len()), "{}", reason.len());
        assert!(reason.ends_with('ä') && invalid == is_invalid, "{place}");
        assert!(retry_in_ms <= limits::DELAY_MS_MAX, "{retry_in_ms}");
    }
}

// O9, O10
#[tokio::test]
async fn a_worker_takes_the_kinds_that_it_has_handlers_for_and_leaves_the_rest_alone() {
    let table = Table::new(6);
    let bench = bench(&table).await;
    let print = async |context: Context| {
        assert_eq!((context.queue().as_str(), context.task().lease_ms), ("print", LEASE_MS));
        Outcome::Done(None)
    };
    let worker = bench.worker.handler("print", print).concurrency(4);
    let printed = Arc::clone(&table);
    let all_printed = async move {
        let done = |fate: &Fate| matches!(fate, Fate::Done { .. });
        until(|| printed.lock().unwrap().fates.iter().filter(|fate| done(fate)).count() == 3).await;
    };
    assert_eq!(worker.run_until(all_printed).await.unwrap().done, 3);
    let table = table.lock().unwrap();
    let (mail, print): (Vec<_>, Vec<_>) = table.fates.iter().enumerate().partition(|(index, _)| index % 2 == 0);
    assert!(mail.iter().all(|(_, fate)| **fate == Fate::Waiting), "nobody has taken them");
    assert!(print.iter().all(|(_, fate)| matches!(fate, Fate::Done { .. })));
}

// O39, O40
#[tokio::test]
async fn claims_are_held_beyond_their_lease_by_renewals_in_one_batch() {
    const LEASE: Duration = Duration::from_secs(9);
    let table = Table::new(4);
    let bench = bench(&table).await;
    let renewed = Arc::clone(&table);
    let slow = move |_: Context| {
        let renewed = Arc::clone(&renewed);
        async move {
            tokio::time::sleep(LEASE * 19 / 18).await;
            until(|| renewed.lock().unwrap().renewals.len() >= 2).await;
            Outcome::Done(None)
        }
    };
    let worker = bench.worker.lease(LEASE).handler("mail", slow.clone()).handler("print", slow).concurrency(4);
    let summary = worker.run_until(all_ended(Arc::clone(&bench.table))).await.unwrap();
    assert_eq!(summary.done, 4);
    let renewals = table.lock().unwrap().renewals.clone();
    assert!((2..=12).contains(&renewals.len()) && renewals[..2] == [4; 2], "{renewals:?}");
}

// O37, O38, O39
#[tokio::test]
async fn a_handler_is_stopped_when_its_lease_is_lost() {
    let refused = |code| loses_its_lease(Some(code));
    tokio::join!(loses_its_lease(None), refused(ErrorCode::Superseded), refused(ErrorCode::Ended));
}

/// A lease whose renewals are refused, or never answered.
async fn loses_its_lease(refusal: Option<ErrorCode>) {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let table = Table::new(1);
    table.lock().unwrap().ignore_renewals = refusal.is_none();
    table.lock().unwrap().refuse_renewals = refusal;
    let bench = bench(&table).await;
    let dropped = Arc::new(AtomicUsize::new(0));
    let (lost, on_lost) = oneshot::channel();
    let lost = Mutex::new(Some(lost));
    let counted = Arc::clone(&dropped);
    let handler = move |context: Context| {
        let (guard, lost) = (Dropped(Arc::clone(&counted)), lost.lock().unwrap().take());
        let watch = context.clone();
        tokio::spawn(async move {
            watch.lease_lost().await;
            lost.map(|lost| lost.send(()))
        });
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    };
    let started = Instant::now();
    let wait = async {
        tokio::time::timeout(HANGS, on_lost).await.unwrap().unwrap();
        after(20).await;
    };
    let worker = bench.worker.lease(SHORT_LEASE).handler("mail", handler);
    let summary = worker.run_until(wait).await.unwrap();
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let elapsed = started.elapsed();
    let renewals = table.lock().unwrap().renewals.clone();
    match refusal {
        None => assert!(elapsed >= SHORT_LEASE * 9 / 10, "{elapsed:?}"),
        // A refusal that takes too long is requested once more; one that would come after the lease is not.
        Some(_) => {
            let alone = elapsed >= SHORT_LEASE * 9 / 10;
            assert!(
                renewals.len() <= 3 && (alone || !renewals.is_empty()),
                "the first refusal is enough: {renewals:?}"
            );
        }
    }
}

// S37
#[tokio::test]
async fn checkpoints_are_numbered_and_repeated_until_known() {
    let table = Table::new(1);
    table.lock().unwrap().updates_unknown = 2;
    let bench = bench(&table).await;
    let handler = async |context: Context| {
        assert_eq!(context.checkpoint("one").await, Ok(1));
        // The call is dropped; its entry is still written before the next.
        tokio::select! {
            biased;
            _ = context.checkpoint("two") => panic!("no answer can be there yet"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(context.checkpoint("three").await, Ok(3));
        Outcome::Done(None)
    };
    let worker = bench.worker.handler("mail", handler);
    worker.run_until(all_ended(Arc::clone(&bench.table))).await.unwrap();
    let table = table.lock().unwrap();
    assert_eq!(table.logs[0], [b"one".to_vec(), b"two".to_vec(), b"three".to_vec()]);
    assert_eq!(table.fates[0], Fate::Done { result: None, sequence: Some(3) });
}

// C10
#[tokio::test]
async fn a_shutdown_waits_for_handlers_up_to_a_bound_and_gives_the_rest_back() {
    const DRAIN: Duration = Duration::from_secs(5);
    let table = Table::new(3);
    let bench = bench(&table).await;
    let (endless, endless_calls) = endless_handler();
    let (quick, quick_calls, stops) = handler_until_stop();
    let worker = bench.worker.handler("mail", quick).handler("print", endless).concurrency(2);
    let mut shut_down_at = None;
    let shutdown = async {
        reaches(endless_calls, 1).await;
        reaches(quick_calls, 1).await;
        shut_down_at = Some(Instant::now());
        stops.notify_one();
    };
    let summary = worker.drain_timeout(DRAIN).run_until(shutdown).await.unwrap();
    assert!(shut_down_at.unwrap().elapsed() >= DRAIN);
    assert_eq!(summary, Summary { done: 1, released: 1, ..Summary::default() });
    let fates = table.lock().unwrap().fates.clone();
    assert_eq!((&fates[1], &fates[2]), (&Fate::Released, &Fate::Waiting), "nothing more is claimed");
}

#[tokio::test]
async fn what_a_claim_brings_after_the_shutdown_is_given_back() {
    let table = Table::new(1);
    table.lock().unwrap().claim_delay = Duration::from_secs(1);
    let bench = bench(&table).await;
    let handler = async |_: Context| Outcome::Done(None);
    let granted = Arc::clone(&table);
    let shutdown = async move {
        until(|| granted.lock().unwrap().fates[0] != Fate::Waiting).await;
    };
    let summary = bench.worker.handler("mail", handler).run_until(shutdown).await.unwrap();
    assert_eq!(summary, Summary { released: 1, ..Summary::default() });
    assert_eq!(table.lock().unwrap().fates[0], Fate::Released);
}

// C17
#[tokio::test]
async fn a_full_worker_does_not_claim() {
    let table = Table::new(4);
    let bench = bench(&table).await;
    let (handler, calls, stops) = handler_until_stop();
    let shutdown = async {
        reaches(calls, 1).await;
        // In this time a worker with room would have claimed several times.
        after(300).await;
        stops.notify_one();
    };
    bench.worker.handler("mail", handler).run_until(shutdown).await.unwrap();
    assert_eq!(table.lock().unwrap().claims.len(), 1);
}

#[tokio::test]
async fn wrong_settings_are_told() {
    let table = Table::new(0);
    let handler = async |_: Context| Outcome::Done(None);
    let changes: [fn(Worker) -> Worker; 4] = [
        |worker| worker.concurrency(0),
        |worker| worker.lease(Duration::ZERO),
        |worker| worker.session(Duration::ZERO),
        |worker| worker.name("n".repeat(2_000)),
    ];
    for change in changes {
        let worker = bench(&table).await.worker.handler("mail", handler);
        assert_eq!(change(worker).run_until(after(0)).await.unwrap_err().code, ErrorCode::Invalid);
    }
    let nameless = bench(&table).await.worker.handler("a/b/c", handler);
    assert!(nameless.run_until(after(0)).await.unwrap_err().message.contains("a/b/c"));
    assert!(bench(&table).await.worker.run_until(after(0)).await.is_err());
}

/// Goal: a worker that reaches no node ends on shutdown. Method: neither its calls nor its drain end in this test.
#[tokio::test]
async fn a_worker_that_reaches_no_node_ends_at_once() {
    let certificates = Certificates::new();
    let nowhere = Node::start(&certificates, |_| Reply::Silence).address();
    let mut config = certificates.config(&[nowhere]);
    (config.request_timeout, config.unreached_timeout) = (10 * HANGS, None);
    let client = crate::client::Client::connect(config).await.unwrap();
    let worker = Worker::new(client).handler("mail", async |_| Outcome::Done(None)).drain_timeout(10 * HANGS);
    let run = worker.run_until(after(100));
    let summary = tokio::time::timeout(HANGS, run).await.expect("nothing is held or under way").unwrap();
    assert_eq!(summary, Summary::default());
}

/// Goal: a worker whose certificate no node will ever accept reports that, and does not look like an idle one.
#[tokio::test]
async fn a_worker_whose_certificate_is_refused_ends_with_that() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let node = Node::start(&certificates, |request| panic!("{request:?}"));
    for session in [None, Some(Duration::from_secs(5))] {
        let client = others.client(&[&node]).await;
        let worker = Worker::new(client).handler("mail", async |_| Outcome::Done(None));
        let worker = match session {
            Some(ttl) => worker.session(ttl),
            None => worker,
        };
        let run = tokio::time::timeout(HANGS, worker.run_until(std::future::pending()));
        let error = run.await.expect("it ends by itself").unwrap_err();
        assert_eq!(error.code, ErrorCode::Denied, "{error}");
    }
}
