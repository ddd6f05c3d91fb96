//! The worker's loop: claim, run, renew, report, drain.

use super::context::{Held, REPORT_PAUSE};
use super::deadline::{Limit, Limits, from_now};
use super::lanes::Lanes;
use super::reports::{Reporter, Reports};
use super::session::Session;
use super::{Context, Handler, HandlerOptions, InvalidHandler, Outcome, Summary, Worker};
use crate::client::{Claimed, Claims, Client};
use norn_wire::error::Error;
use norn_wire::ids::{TaskId, Token};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, JoinSet};

/// Time for which a task is not claimable after its handler panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(1);
/// Timeout of the releases at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for stopping a handler one of whose limits is over, before its task is failed all the same.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for reporting the failure of a task that is given up, before the task is released instead. Longer than a partition is
/// without a leader, because a released claim does not count as an attempt.
pub(super) const REPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// How a claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Retried,
    Invalid,
    TimedOut,
    /// Given up, and no node has taken the report: the claim may hold until the end of its lease.
    Unreported {
        lease_ends: Instant,
    },
    Lost,
}

type Key = (TaskId, Token);
pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Renewals = Vec<(Arc<Held>, Result<Instant, Error>)>;

struct Running {
    worker: Worker,
    held: BTreeMap<Key, Arc<Held>>,
    tasks: JoinSet<(Key, Ending)>,
    session: Session,
    lanes: Lanes,
    reports: Reports,
    renewing: Option<Boxed<Renewals>>,
    releasing: JoinSet<()>,
    /// End of the drain, once it has begun.
    drained_at: Option<Instant>,
    summary: Summary,
}

/// Waits for an optional future; for ever if there is none.
async fn optional<T>(future: &mut Option<Boxed<T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

pub(super) async fn run(worker: Worker, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
    let mut running = Running {
        session: Session::new(&worker),
        lanes: Lanes::new(&worker),
        reports: Reports::new(),
        worker,
        held: BTreeMap::new(),
        tasks: JoinSet::new(),
        renewing: None,
        releasing: JoinSet::new(),
        drained_at: None,
        summary: Summary::default(),
    };
    let mut shutdown = std::pin::pin!(shutdown);
    while !running.is_over() {
        running.start_calls();
        let may_claim = running.may_claim() && running.room() > 0;
        let claim_at = running.lanes.claim_at().filter(|_| may_claim);
        let renew_at = if running.renewing.is_none() { running.renew_at() } else { None };
        tokio::select! {
            () = &mut shutdown, if running.drained_at.is_none() => {
                running.drained_at = Some(from_now(running.worker.drain_timeout));
            }
            claims = running.lanes.claimed() => running.claimed(claims),
            () = running.reports.next(&running.worker.client) => {}
            lost = running.session.changed(running.drained_at.is_some()) => {
                if lost {
                    running.abandon_calls();
                }
            }
            renewals = optional(&mut running.renewing) => running.renewed(renewals),
            Some(ended) = running.tasks.join_next() => {
                if let Ok((key, ending)) = ended {
                    running.ended(key, ending);
                }
            }
            Some(_) = running.releasing.join_next() => {}
            () = sleep_until(claim_at) => {}
            () = sleep_until(renew_at) => {}
            () = sleep_until(running.drained_at) => break,
        }
        if let Some(error) = running.refusal() {
            return Err(error);
        }
    }
    Ok(running.release_rest().await)
}

impl Running {
    fn is_over(&self) -> bool {
        // Without a reachable node the calls bring nothing.
        let are_idle = self.lanes.are_idle() || self.worker.client.unreached().is_some();
        self.drained_at.is_some() && self.tasks.is_empty() && are_idle
    }

    /// Why no node will ever serve this worker, if none has served it yet.
    fn refusal(&mut self) -> Option<Error> {
        self.lanes.refusal.take().or(self.session.refusal.take())
    }

    /// Number of tasks that can be claimed in addition to those that calls under way may bring. A task whose handler has ended takes no
    /// room; where outcomes cannot be stored, at most as many of these are held as handlers may run.
    fn room(&self) -> usize {
        let (concurrency, held) = (self.worker.concurrency, self.held.len());
        let running = self.held.values().filter(|held| !held.is_reporting()).count();
        let room = concurrency.saturating_sub(running).min(concurrency.saturating_mul(2).saturating_sub(held));
        room.saturating_sub(self.lanes.asked())
    }

    fn may_claim(&self) -> bool {
        self.drained_at.is_none() && self.session.allows_claims()
    }

    fn renew_at(&self) -> Option<Instant> {
        self.held.values().filter(|held| !held.is_lost()).map(|held| held.renew_at()).min()
    }

    /// Starts claims and a renewal that are due; only one renewal is under way at a time.
    fn start_calls(&mut self) {
        let now = Instant::now();
        if self.may_claim() {
            let room = self.room();
            self.lanes.start(&self.worker, self.session.id(), room);
        }
        if self.renewing.is_none() && self.renew_at().is_some_and(|at| at <= now) {
            let held: Vec<Arc<Held>> = self.held.values().filter(|held| !held.is_lost()).cloned().collect();
            let client = self.worker.client.clone();
            self.renewing = Some(Box::pin(renew(client, held)));
        }
    }

    fn claimed(&mut self, claims: Option<Claims>) {
        for claimed in claims.into_iter().flat_map(|claims| claims.tasks) {
            let service = self.worker.services.get(&claimed.granted.queue);
            let limits = self.limits(service.map(|service| &service.options));
            match service.and_then(|service| service.of(&claimed.granted)).cloned() {
                Some(handler) if self.may_claim() => self.start(claimed, &handler, limits),
                // Too late, or of a queue that was not asked for.
                _ => self.release(claimed.granted.id, claimed.granted.token),
            }
        }
    }

    /// The limits of a handler, where its own options set none the worker's.
    fn limits(&self, options: Option<&HandlerOptions>) -> Limits {
        let time = options.and_then(|options| options.time_limit).unwrap_or(self.worker.time_limit);
        let progress = options.and_then(|options| options.progress_limit).unwrap_or(self.worker.progress_limit);
        Limits::new(time, progress)
    }

    /// Releases the tasks that calls under a lost session bring.
    fn abandon_calls(&mut self) {
        for claiming in self.lanes.abandon() {
            let client = self.worker.client.clone();
            self.releasing.spawn(async move {
                let tasks = claiming.await.map(|claims| claims.tasks).unwrap_or_default();
                for Claimed { granted, .. } in tasks {
                    release(&client, granted.id, granted.token).await;
                }
            });
        }
    }

    fn start(&mut self, claimed: Claimed, handler: &Handler, limits: Limits) {
        let held = Arc::new(Held::new(&claimed, self.session.held().cloned()));
        let key = (held.id, held.token);
        if self.held.contains_key(&key) {
            return;
        }
        let (client, granted) = (self.worker.client.clone(), Arc::new(claimed.granted));
        let (limits, children) = (Arc::new(limits), Arc::default());
        let context = Context { client, granted, held: Arc::clone(&held), limits, children };
        let (handler, invalid) = (Arc::clone(handler), Arc::clone(&self.worker.invalid));
        let (reporter, report_timeout) = (self.reports.reporter(&self.worker.client), self.worker.report_timeout);
        self.held.insert(key, held);
        self.tasks.spawn(async move { (key, work(context, handler, invalid, (reporter, report_timeout)).await) });
    }

    fn renewed(&mut self, renewals: Renewals) {
        self.renewing = None;
        for (held, result) in renewals {
            held.renewed(result);
        }
    }

    fn ended(&mut self, key: Key, ending: Ending) {
        let held = self.held.remove(&key).expect("a task that runs is held");
        self.summary.overran += u64::from(held.has_overrun());
        match ending {
            Ending::Done => self.summary.done += 1,
            Ending::Retried => self.summary.retried += 1,
            Ending::Invalid => self.summary.invalid += 1,
            Ending::TimedOut => self.summary.timed_out += 1,
            Ending::Unreported { lease_ends } => {
                self.summary.timed_out += 1;
                self.release_until(key, lease_ends);
            }
            Ending::Lost => self.summary.lost += 1,
        }
    }

    fn release(&mut self, id: TaskId, token: Token) {
        self.summary.released += 1;
        start_release(&mut self.releasing, &self.worker.client, (id, token));
    }

    /// Releases a claim in the background until a node takes it. A session would keep it for the whole of its lease.
    fn release_until(&mut self, (id, token): Key, lease_ends: Instant) {
        if self.releasing.len() >= self.worker.concurrency {
            tracing::warn!(%id, %token, "too many releases are open for one more; its lease will end by itself");
            return;
        }
        let client = self.worker.client.clone();
        let released = async move {
            while release(&client, id, token).await {
                tokio::time::sleep(REPORT_PAUSE).await;
            }
        };
        self.releasing.spawn(async move {
            let _ = tokio::time::timeout_at(lease_ends.into(), released).await;
        });
    }

    /// Stops the remaining handlers and releases their tasks; the end of the session does so for all tasks claimed under it.
    async fn release_rest(mut self) -> Summary {
        self.tasks.abort_all();
        // Completions that are not known to be stored are abandoned: their tasks are released.
        self.reports = Reports::new();
        // Some may have ended by themselves in the meantime.
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok((key, ending)) = ended {
                self.ended(key, ending);
            }
        }
        let ended = tokio::time::timeout(RELEASE_TIMEOUT, self.session.end()).await.unwrap_or_default();
        for (key, held) in std::mem::take(&mut self.held) {
            self.summary.overran += u64::from(held.has_overrun());
            let is_lost = held.is_lost() && !held.is_given_up();
            match () {
                () if held.is_given_up() => self.summary.timed_out += 1,
                () if is_lost => self.summary.lost += 1,
                () => self.summary.released += 1,
            }
            if !is_lost && !ended {
                start_release(&mut self.releasing, &self.worker.client, key);
            }
        }
        let released = async { while self.releasing.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, released).await;
        self.summary
    }
}

fn start_release(releasing: &mut JoinSet<()>, client: &Client, (id, token): Key) {
    let client = client.clone();
    releasing.spawn(async move {
        release(&client, id, token).await;
    });
}

/// Releases a claim. Returns whether it failed and a repeat can help.
async fn release(client: &Client, id: TaskId, token: Token) -> bool {
    let released = client.release(id, token).await;
    if let Err(error) = &released {
        tracing::debug!(%id, %token, %error, "release failed; the lease will end by itself");
    }
    released.is_err_and(|error| error.passes())
}

/// Renews all claims in one batch, each for the length of its lease.
async fn renew(client: Client, held: Vec<Arc<Held>>) -> Renewals {
    let timeout = held.iter().map(|held| held.renewal_timeout()).min();
    let items = held.iter().map(|held| (held.id, held.token)).collect();
    let results = client.renew_within(items, None, timeout).await;
    held.into_iter().zip(results).collect()
}

/// Aborts a handler's task when dropped.
struct Stop<T>(JoinHandle<T>);

impl<T> Drop for Stop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a handler and reports its outcome, while the lease is held.
async fn work(
    context: Context,
    handler: Handler,
    invalid: InvalidHandler,
    (reporter, report_timeout): (Reporter, Duration),
) -> Ending {
    let held = &context.held;
    let handled = tokio::select! {
        biased;
        () = held.lost() => return lost(held),
        handled = handle(&context, handler, invalid) => handled,
    };
    let outcome = match handled {
        Ok(outcome) => outcome,
        Err(reason) => return give_up(&context, reason, &reporter, report_timeout).await,
    };
    held.report_begins();
    let children = std::mem::take(&mut *context.children.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::select! {
        biased;
        () = held.lost() => lost(held),
        ending = reporter.report(held, outcome, children) => ending,
    }
}

fn lost(held: &Held) -> Ending {
    tracing::info!(id = %held.id, token = %held.token, "lease lost");
    Ending::Lost
}

/// The outcome of the handler, or the reason to give up its task.
async fn handle(context: &Context, handler: Handler, invalid: InvalidHandler) -> Result<Outcome, String> {
    let own = context.clone();
    context.limits.start();
    // A separate task, so that a panic ends nothing else.
    let mut handling = Stop(tokio::spawn(async move { handler(own).await }));
    let outcome = tokio::select! {
        biased;
        ended = &mut handling.0 => match ended {
            Ok(outcome) => outcome,
            Err(error) => Outcome::RetryLater { after: PANIC_PAUSE, reason: panic_reason(error) },
        },
        limit = context.limits.over() => stop(context, limit, handling).await?,
    };
    if let Some(limit) = context.limits.passed() {
        let (id, token, queue) = (context.id(), context.token(), context.queue());
        tracing::warn!(%id, %token, %queue, "{limit}; its outcome is reported all the same");
        context.held.overrun();
    }
    if let Outcome::Invalid { reason } = &outcome {
        handle_invalid(context, invalid, reason.clone()).await;
    }
    Ok(outcome)
}

/// Stops a handler one of whose limits is over. Returns its outcome if it ends by itself before that, as between two `await`s, and
/// otherwise the reason to report. The lease is renewed meanwhile, so that such an outcome counts.
async fn stop(context: &Context, limit: Limit, mut handling: Stop<Outcome>) -> Result<Outcome, String> {
    let (id, token, queue) = (context.id(), context.token(), context.queue());
    handling.0.abort();
    let state = match tokio::time::timeout(STOP_TIMEOUT, &mut handling.0).await {
        Ok(Ok(outcome)) => return Ok(outcome),
        Ok(Err(error)) if error.is_panic() => format!("was stopped: {}", panic_reason(error)),
        Ok(Err(_)) => "was stopped".into(),
        Err(_) => "could not be stopped, as it blocks its thread".into(),
    };
    let reason = format!("{limit}, and {state}");
    tracing::warn!(%id, %token, %queue, reason, "limit of a handler reached");
    Err(reason)
}

/// Calls the handler of invalid tasks, for which the limits restart. However it ends, the task is reported as invalid.
async fn handle_invalid(context: &Context, invalid: InvalidHandler, reason: String) {
    let (id, limits) = (context.id(), Arc::new(context.limits.again()));
    let own = Context { limits: Arc::clone(&limits), ..context.clone() };
    let mut handling = Stop(tokio::spawn(async move { invalid(own, reason).await }));
    tokio::select! {
        biased;
        ended = &mut handling.0 => if let Err(error) = ended {
            tracing::warn!(%id, reason = panic_reason(error), "the handler of invalid tasks failed");
        },
        limit = limits.over() => tracing::warn!(%id, %limit, "the handler of invalid tasks is stopped at a limit"),
    }
}

/// Reports the failure of an attempt whose handler is stopped, or blocks its thread and runs on, which only the token can fence. The
/// claim is not renewed any more: even if no node takes the report, the task is claimable when the lease ends.
async fn give_up(context: &Context, reason: String, reporter: &Reporter, report_timeout: Duration) -> Ending {
    let held = &context.held;
    let Some(lease_ends) = held.give_up() else {
        return lost(held);
    };
    tokio::select! {
        biased;
        _ = reporter.report(held, Outcome::Retry { reason }, Vec::new()) => Ending::TimedOut,
        () = held.session_lost() => Ending::TimedOut,
        () = sleep_until(Some(lease_ends)) => Ending::TimedOut,
        () = tokio::time::sleep(report_timeout) => Ending::Unreported { lease_ends },
    }
}

fn panic_reason(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "the handler was cancelled".into();
    };
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", said.unwrap_or("without a message"))
}
