//! One heartbeat for all claims of a worker.

use super::*;
use crate::session::SESSIONS_QUEUE;

const TTL_MS: u64 = 1_500;
const TTL: Duration = Duration::from_millis(TTL_MS);

/// The node's sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Enqueued, and not claimed yet.
    waiting: Vec<TaskId>,
    opened: Vec<TaskId>,
    ended: Vec<TaskId>,
    /// Renewals, each of a session alone.
    beats: Vec<TaskId>,
    /// Claims of sessions that answer `unavailable`.
    claims_refused: usize,
    /// The first session is not renewed: that is not answered, or answered with this.
    silent: bool,
    refuse: Option<ErrorCode>,
    /// Nor can any session be ended.
    endless: bool,
    /// Under which session each claim of work was made.
    under: Vec<Option<TaskId>>,
    enqueued: usize,
}

impl Sessions {
    /// The answer to a request that has to do with sessions.
    pub fn serve(&mut self, request: &Request) -> Option<Reply> {
        let answer = match request {
            Request::Enqueue { tasks, .. } => {
                assert!(
                    tasks.iter().all(|task| task.spec.queue.as_str() == SESSIONS_QUEUE && task.spec.attempts_max == 1)
                );
                self.enqueued += tasks.len();
                self.waiting.extend(tasks.iter().map(|task| task.id));
                Response::Acked(tasks.iter().map(|task| Ok(Table::acked(task.id))).collect())
            }
            Request::Claim(claim) if claim.queues[0].as_str() == SESSIONS_QUEUE => self.claim(claim.lease_ms),
            Request::Claim(claim) => {
                self.under.push(claim.session);
                return None;
            }
            Request::Renew { items, .. } if self.opened.contains(&items[0].0) => {
                assert_eq!(items.len(), 1, "a session is renewed alone");
                self.beats.push(items[0].0);
                if items[0].0 == self.opened[0] && self.silent {
                    return Some(Reply::Silence);
                }
                let refusal = self.refuse.filter(|_| items[0].0 == self.opened[0]);
                Response::Renewed(vec![refusal.map_or(Ok(TTL_MS), |code| Err(Error::new(code, "scripted")))])
            }
            Request::Complete { items, .. } if self.opened.contains(&items[0].id) => {
                if self.endless {
                    return Some(Reply::Silence);
                }
                self.ended.push(items[0].id);
                Response::Acked(vec![Ok(Table::acked(items[0].id))])
            }
            _ => return None,
        };
        Some(Reply::Answer(answer))
    }

    fn claim(&mut self, lease_ms: u64) -> Response {
        assert_eq!(lease_ms, TTL_MS);
        if self.claims_refused > 0 {
            self.claims_refused -= 1;
            return Response::Error(Error { retry: crate::wire::Retry::Never, ..Error::unavailable("scripted") });
        }
        let granted = |id| Granted {
            id,
            token: Token { epoch: 1, number: 7 },
            queue: SESSIONS_QUEUE.parse().unwrap(),
            payload: Vec::new(),
            priority: 0,
            headers: Vec::new(),
            attempt: 1,
            lease_ms,
            updates: Vec::new(),
            grouping: None,
            group: None,
        };
        let taken = self.waiting.pop();
        self.opened.extend(taken);
        Response::Claimed { tasks: taken.map(granted).into_iter().collect(), unavailable: 0 }
    }
}

async fn bench_with(table: &Arc<Mutex<Table>>) -> Bench {
    let mut bench = bench(table).await;
    bench.worker.lease = None;
    bench.worker = bench.worker.session(TTL).name("tests");
    bench
}

// C4, C5, C7
#[tokio::test]
async fn one_heartbeat_keeps_all_claims() {
    let table = Table::new(20);
    let bench = bench_with(&table).await;
    let slow = async |context: Context| {
        assert_eq!(context.task().lease_ms, limits::LEASE_MS_MAX, "it does not matter any more");
        tokio::time::sleep(TTL * 3).await;
        Outcome::Done(None)
    };
    let worker = bench.worker.handler("mail", slow).handler("print", slow).concurrency(20);
    let summary = worker.run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 20, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!(table.renewals, Vec::<usize>::new(), "no claim is renewed by itself");
    let beats = &table.sessions.beats;
    assert!(beats.len() >= 3, "nothing is kept longer by one beat: {beats:?}");
    let id = table.sessions.opened[0];
    assert!(table.sessions.under.iter().all(|under| *under == Some(id)), "{:?}", table.sessions.under);
    assert_eq!((&table.sessions.opened, &table.sessions.ended), (&vec![id], &vec![id]));
}

// C8, O37, O38
#[tokio::test]
async fn with_a_session_all_handlers_are_stopped_and_the_work_goes_on_under_the_next() {
    for refusal in [None, Some(ErrorCode::Ended), Some(ErrorCode::Superseded)] {
        let table = Table::new(8);
        table.lock().unwrap().sessions.silent = refusal.is_none();
        table.lock().unwrap().sessions.refuse = refusal;
        let bench = bench_with(&table).await;
        let (lost, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (told, freed) = (Arc::clone(&lost), Arc::clone(&table));
        let handler = move |context: Context| {
            // The first of each are stopped, and the next ones end.
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
        let Sessions { opened, ended, under, beats, .. } = &table.sessions;
        let beats_of_first = beats.iter().filter(|session| **session == opened[0]).count();
        match refusal {
            None => assert!(at[0] > TTL * 9 / 10, "by the worker's own clock: {at:?}"),
            Some(_) => assert!(beats_of_first <= 1, "the first refusal is enough: {beats:?}"),
        }
        assert_eq!((opened.len(), &ended[..]), (2, &opened[1..]), "the first is not to be ended any more");
        assert_eq!((under[0], under[under.len() - 1]), (Some(opened[0]), Some(opened[1])));
    }
}

// C10
#[tokio::test]
async fn the_end_of_the_session_gives_back_what_does_not_finish() {
    for endless in [false, true] {
        let table = Table::new(3);
        table.lock().unwrap().sessions.endless = endless;
        let bench = bench_with(&table).await;
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
    table.lock().unwrap().claim_delay = TTL;
    let bench = bench_with(&table).await;
    let handler = async |_: Context| Outcome::Done(None);
    let worker = bench.worker.handler("mail", handler);
    let served = Arc::clone(&table);
    let both = async move {
        while served.lock().unwrap().fates.iter().step_by(2).any(|fate| matches!(fate, Fate::Waiting | Fate::Held)) {
            after(10).await;
        }
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
    let bench = bench_with(&table).await;
    let handler = async |_: Context| Outcome::Done(None);
    let summary = bench.worker.handler("mail", handler).run_until(all_ended(Arc::clone(&table))).await.unwrap();
    assert_eq!(summary, Summary { done: 1, ..Summary::default() });
    let table = table.lock().unwrap();
    assert_eq!((table.sessions.enqueued, table.sessions.opened.len(), table.sessions.ended.len()), (1, 1, 1));
}
