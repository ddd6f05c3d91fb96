//! Sessions: one heartbeat for all claims of a worker.

use super::*;
use crate::client::ClientConfig;
use crate::session::SESSIONS_QUEUE;

/// Long enough that a machine that pauses for a second or two loses no session.
const TTL: Duration = Duration::from_secs(6);

/// The node's sessions. Repeats count once, except renewals.
#[derive(Debug, Default)]
pub struct Sessions {
    ttl_ms: u64,
    /// The session granted to each claim.
    claims: BTreeMap<ClaimId, Option<TaskId>>,
    /// Sessions that were ever enqueued.
    known: Vec<TaskId>,
    /// Sessions enqueued and not claimed yet.
    waiting: Vec<TaskId>,
    opened: Vec<TaskId>,
    ended: Vec<TaskId>,
    /// Renewals, each of one session.
    beats: Vec<TaskId>,
    /// Number of claims of sessions to answer `unavailable`.
    claims_refused: usize,
    /// Renewals of the first session are not answered, or (`refuse`) answered with this error.
    silent: bool,
    refuse: Option<ErrorCode>,
    /// Completions of sessions are not answered.
    endless: bool,
    /// Claims of work under the first session are answered only once there is another one.
    late: bool,
}

impl Sessions {
    /// The answer to a request about sessions.
    pub fn serve(&mut self, request: &Request) -> Option<Reply> {
        let answer = match request {
            Request::Enqueue { tasks, .. } => {
                assert!(
                    tasks.iter().all(|task| task.spec.queue.as_str() == SESSIONS_QUEUE && task.spec.attempts_max == 1)
                );
                let new: Vec<TaskId> = tasks.iter().map(|task| task.id).filter(|id| !self.known.contains(id)).collect();
                self.known.extend(&new);
                self.waiting.extend(&new);
                Response::Acked(tasks.iter().map(|task| Ok(Table::acked(task.id))).collect())
            }
            Request::Claim(claim) if claim.queues[0].as_str() == SESSIONS_QUEUE => self.claim(claim),
            Request::Renew { items, .. } if self.opened.contains(&items[0].0) => {
                assert_eq!(items.len(), 1, "a session is renewed alone");
                self.beats.push(items[0].0);
                if items[0].0 == self.opened[0] && self.silent {
                    return Some(Reply::Silence);
                }
                let refusal = self.refuse.filter(|_| items[0].0 == self.opened[0]);
                Response::Renewed(vec![refusal.map_or(Ok(self.ttl_ms), |code| Err(Error::new(code, "scripted")))])
            }
            Request::Complete { items, .. } if self.opened.contains(&items[0].id) => {
                if self.endless {
                    return Some(Reply::Silence);
                }
                if !self.ended.contains(&items[0].id) {
                    self.ended.push(items[0].id);
                }
                Response::Acked(vec![Ok(Table::acked(items[0].id))])
            }
            _ => return None,
        };
        Some(Reply::Answer(answer))
    }

    /// Whether claims of work must not be answered yet.
    pub fn hold_back(&self) -> bool {
        self.late && self.opened.len() == 1
    }

    fn claim(&mut self, claim: &Claim) -> Response {
        assert_eq!(claim.lease_ms, self.ttl_ms);
        if self.claims_refused > 0 {
            self.claims_refused -= 1;
            return Response::Error(Error { retry: norn_wire::Retry::Never, ..Error::unavailable("scripted") });
        }
        let granted = |id| Granted {
            id,
            token: Token { epoch: 1, number: 7 },
            queue: SESSIONS_QUEUE.parse().unwrap(),
            payload: Vec::new(),
            priority: 0,
            headers: Vec::new(),
            attempt: 1,
            lease_ms: claim.lease_ms,
            updates: Vec::new(),
            grouping: None,
            group: None,
        };
        let taken = *self.claims.entry(claim.claim).or_insert_with(|| {
            let taken = self.waiting.pop();
            self.opened.extend(taken);
            taken
        });
        Response::Claimed { tasks: taken.map(granted).into_iter().collect(), unavailable: 0, left: 0 }
    }
}

async fn bench_with(table: &Arc<Mutex<Table>>, ttl: Duration) -> Bench {
    let mut bench = bench(table).await;
    table.lock().unwrap().sessions.ttl_ms = ttl.as_millis() as u64;
    bench.worker.lease = None;
    bench.worker = bench.worker.session(ttl).name("tests");
    bench
}

// C7
/// Goal: heartbeats come far more often than a session may go without: two may be lost, and the third is in time. Method: no time
/// passes; the plan of the first heartbeat, and of those after answers, is a fraction of the time to live.
#[tokio::test]
async fn heartbeats_are_planned_at_a_third_of_the_time_to_live() {
    for ttl in [300, 5_000, 3_600_000].map(Duration::from_millis) {
        let table = Table::new(0);
        let bench = bench_with(&table, ttl).await;
        let session = bench.worker.client.open_session(ttl, "tests").await.unwrap();
        let held = super::super::context::Held::session(&session);
        assert_eq!(session.expires() - held.renew_at(), ttl * 2 / 3, "the first");
        for answers in 1..4 {
            let expires = Instant::now() + ttl;
            held.renewed(Ok(expires));
            assert!(expires - held.renew_at() >= ttl * 3 / 5, "after {answers}: {:?}", expires - held.renew_at());
        }
        assert!(3 * held.renewal_timeout() < ttl, "a heartbeat that is not answered leaves time for the next two");
    }
}

// C4, C5
#[tokio::test]
async fn one_heartbeat_keeps_all_claims() {
    const TTL: Duration = Duration::from_secs(9);
    let table = Table::new(20);
    let bench = bench_with(&table, TTL).await;
    let beaten = Arc::clone(&table);
    let slow = move |context: Context| {
        let beaten = Arc::clone(&beaten);
        async move {
            assert_eq!(context.task().lease_ms, limits::LEASE_MS_MAX, "it does not matter any more");
            tokio::time::sleep(TTL * 3 / 2).await;
            until(|| beaten.lock().unwrap().sessions.beats.len() >= 3).await;
            Outcome::Done(None)
        }
    };
    let worker = bench.worker.handler("mail", slow.clone()).handler("print", slow).concurrency(20);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 20, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!(table.renewals, Vec::<usize>::new(), "no claim is renewed by itself");
    let beats = &table.sessions.beats;
    assert!(beats.len() >= 3, "nothing is kept longer by one beat: {beats:?}");
    let id = table.sessions.opened[0];
    assert!(table.under.iter().all(|under| *under == Some(id)), "{:?}", table.under);
    assert_eq!((&table.sessions.opened, &table.sessions.ended), (&vec![id], &vec![id]));
}

// C8, O37, O38
#[tokio::test]
async fn with_a_session_all_handlers_are_stopped_and_the_work_goes_on_under_the_next() {
    let refused = |code| loses_its_session(Some(code));
    tokio::join!(loses_its_session(None), refused(ErrorCode::Ended), refused(ErrorCode::Superseded));
}

/// The renewal of the first session is refused, or never answered.
async fn loses_its_session(refusal: Option<ErrorCode>) {
    let table = Table::new(8);
    table.lock().unwrap().sessions.silent = refusal.is_none();
    table.lock().unwrap().sessions.refuse = refusal;
    let bench = bench_with(&table, TTL).await;
    let (lost, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (told, freed) = (Arc::clone(&lost), Arc::clone(&table));
    let handler = move |context: Context| {
        // The first handlers of each are stopped, and the next ones end.
        let is_first = calls.fetch_add(1, Ordering::SeqCst) < 8;
        let (told, freed) = (Arc::clone(&told), Arc::clone(&freed));
        async move {
            if !is_first {
                return Outcome::Done(None);
            }
            let (id, watched) = (context.id(), context.clone());
            tokio::spawn(async move {
                watched.lease_lost().await;
                told.lock().unwrap().push(Instant::now());
                // As the node does when the session has ended there.
                freed.lock().unwrap().fates[place(id)] = Fate::Waiting;
            });
            std::future::pending().await
        }
    };
    let worker = bench.worker.handler("mail", handler.clone()).handler("print", handler).concurrency(8);
    let started = Instant::now();
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { lost: 8, done: 8, ..Summary::default() });
    let at: Vec<Duration> = lost.lock().unwrap().iter().map(|at| *at - started).collect();
    assert_eq!(at.len(), 8, "no handler ends by itself: {at:?}");
    let table = table.lock().unwrap();
    let Sessions { opened, ended, beats, .. } = &table.sessions;
    let beats_of_first = beats.iter().filter(|session| **session == opened[0]).count();
    match refusal {
        None => assert!(at[0] > TTL * 9 / 10, "by the worker's own clock: {at:?}"),
        // A refusal that takes too long is requested once more.
        Some(_) => assert!(beats_of_first <= 3, "the first refusal is enough: {beats:?}"),
    }
    assert_eq!((opened.len(), &ended[..]), (2, &opened[1..]), "the first is not to be ended any more");
    let under = &table.under;
    assert_eq!((under[0], under[under.len() - 1]), (Some(opened[0]), Some(opened[1])));
}

// C10
#[tokio::test]
async fn the_end_of_the_session_gives_back_what_does_not_finish() {
    for endless in [false, true] {
        let table = Table::new(3);
        table.lock().unwrap().sessions.endless = endless;
        let bench = bench_with(&table, TTL).await;
        let (handler, running) = endless_handler();
        let worker = bench.worker.handler("mail", handler.clone()).handler("print", handler).concurrency(3);
        let summary = worker.drain_timeout(Duration::ZERO).run_until(reaches(running, 3)).await.unwrap();
        assert_eq!(summary, Summary { released: 3, ..Summary::default() });
        let table = table.lock().unwrap();
        let expected = if endless { Fate::Released } else { Fate::Held };
        assert!(
            table.fates.iter().all(|fate| *fate == expected),
            "one by one only if there is no other way: {table:?}"
        );
        assert_eq!(table.sessions.ended.len(), usize::from(!endless));
    }
}

#[tokio::test]
async fn what_a_claim_brings_under_a_session_that_is_lost_is_given_back() {
    let table = Table::new(4);
    table.lock().unwrap().sessions.refuse = Some(ErrorCode::Ended);
    table.lock().unwrap().sessions.late = true;
    let bench = bench_with(&table, TTL).await;
    let handler = async |_: Context| Outcome::Done(None);
    let worker = bench.worker.handler("mail", handler);
    let served = Arc::clone(&table);
    let both = async move {
        let is_open = |fate: &Fate| matches!(fate, Fate::Waiting | Fate::Held);
        until(|| !served.lock().unwrap().fates.iter().step_by(2).any(is_open)).await;
    };
    assert_eq!(worker.run_until(both).await.unwrap(), Summary { done: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!(table.fates[0], Fate::Released);
    assert!(matches!(table.fates[2], Fate::Done { .. }));
}

#[tokio::test]
async fn a_session_that_was_not_had_is_taken_before_another_one_is_made() {
    let table = Table::new(1);
    table.lock().unwrap().sessions.claims_refused = 2;
    let bench = bench_with(&table, TTL).await;
    let handler = async |_: Context| Outcome::Done(None);
    let summary = bench.worker.handler("mail", handler).run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!((table.sessions.known.len(), table.sessions.opened.len(), table.sessions.ended.len()), (1, 1, 1));
}

/// The lease of the claim is an hour, and the session lives on.
#[tokio::test]
async fn what_is_given_up_under_a_session_is_released_if_no_node_takes_the_report() {
    let table = Table::new(2);
    table.lock().unwrap().failures_ignored = Some(0);
    let request_timeout = Duration::from_secs(1);
    table.lock().unwrap().releases_unknown = request_timeout * 3;
    let mut bench = bench_with(&table, TTL).await;
    // One call is not enough.
    let config = bench.certificates.config(&[bench.node.address()]);
    bench.worker.client = Client::connect(ClientConfig { request_timeout, ..config }).await.unwrap();
    bench.worker.report_timeout = Duration::from_millis(500);
    let hangs = HandlerOptions::new().time_limit(Duration::from_millis(300));
    let worker = bench.worker.handler_with("mail", hangs, endless_handler().0);
    let worker = worker.handler("print", async |_: Context| Outcome::Done(None)).concurrency(1);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, timed_out: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert!(table.failures_ignored > Some(0), "it was reported");
    assert_eq!(table.fates[0], Fate::Released);
}

#[tokio::test]
async fn what_is_given_up_and_not_reported_ends_with_the_session() {
    for endless in [false, true] {
        let table = Table::new(1);
        table.lock().unwrap().failures_ignored = Some(0);
        table.lock().unwrap().sessions.endless = endless;
        let bench = bench_with(&table, TTL).await;
        let worker = bench.worker.time_limit(Duration::from_millis(300)).handler("mail", endless_handler().0);
        let reported = Arc::clone(&table);
        let reported = async move { until(|| reported.lock().unwrap().failures_ignored > Some(0)).await };
        let summary = worker.drain_timeout(Duration::ZERO).run_until(reported).await.unwrap();
        assert_eq!(summary, Summary { timed_out: 1, ..Summary::default() });
        let expected = if endless { Fate::Released } else { Fate::Held };
        assert_eq!(table.lock().unwrap().fates[0], expected, "one by one only if there is no other way");
    }
}
