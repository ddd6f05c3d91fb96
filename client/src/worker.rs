//! A worker: handlers by task type, and the protocol around them.
//!
//! A [`Worker`] claims only while it has room, runs one handler for each task, renews all its claims in the background, stops a handler
//! whose lease is lost, that makes no [progress](Worker::progress_limit) or runs for [too long](Worker::time_limit), reports outcomes,
//! and drains gracefully. The claim for the next task leaves together with the report of the last. With many claims it is cheaper under a
//! [session](Worker::session).
//!
//! A handler may run more than once for a task, and after a lost lease another worker may already run. Effects on outside systems
//! should therefore carry two values. The task's [id](Context::id) is an idempotency key: it lets the target recognize a repeat, such
//! as an attempt after one that crashed after its effect. The claim's [token](Context::token) is a fencing token: it lets the target
//! refuse a late writer, which has a lower one. The token does not stop repeats: that of a repeat is higher.
//!
//! In the example the checkpoint comes before the work. It shows that an attempt has begun, not that the work was done.
//!
//! ```no_run
//! use norn_client::client::{Client, ClientConfig};
//! use norn_client::worker::{Context, Outcome, Worker};
//! use std::time::Duration;
//!
//! async fn send(context: Context) -> Outcome {
//!     let Ok(letter) = std::str::from_utf8(context.payload()) else {
//!         return Outcome::Invalid { reason: "not UTF-8".into() };
//!     };
//!     let first = context.updates().is_empty();
//!     if first && context.checkpoint("started").await.is_err() {
//!         return Outcome::RetryLater { after: Duration::from_secs(1), reason: "no log".into() };
//!     }
//!     Outcome::Done(Some(letter.to_uppercase().into_bytes()))
//! }
//!
//! # async fn example(config: ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(config).await?;
//! let worker = Worker::new(client).handler("mail", send).concurrency(8).lease(Duration::from_secs(60));
//! worker.run_until(async { let _ = tokio::signal::ctrl_c().await; }).await?;
//! # Ok(())
//! # }
//! ```

mod context;
mod deadline;
mod lanes;
mod reports;
mod run;
mod session;
#[cfg(test)]
mod tests;

use crate::client::Client;
use norn_wire::error::Error;
use norn_wire::ids::QueueName;
use norn_wire::limits;
use norn_wire::response::Granted;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use context::Context;

/// Default progress limit of handlers.
pub const PROGRESS_LIMIT: Duration = Duration::from_secs(3_600);

/// Outcome of a handler for its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with a result for readers of the task, and with the [spawned](Context::spawn) tasks.
    Done(Option<Vec<u8>>),
    /// Failed; to be retried after a given time.
    RetryLater {
        /// Time during which the task is not claimable.
        after: Duration,
        /// Reason, for people to read.
        reason: String,
    },
    /// Failed; to be retried when the queue's backoff allows it.
    Retry {
        /// Reason, for people to read.
        reason: String,
    },
    /// Never valid: the task becomes `dead`.
    Invalid {
        /// Reason, for people to read.
        reason: String,
    },
}

/// Results of a worker's run, counted in claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Completed.
    pub done: u64,
    /// Reported as failed, to be retried; panics included.
    pub retried: u64,
    /// Reported as invalid.
    pub invalid: u64,
    /// Given up, and reported as failed, because the handler passed its [time limit](Worker::time_limit) or its
    /// [progress limit](Worker::progress_limit).
    pub timed_out: u64,
    /// Ended by itself after a limit of its handler: counted under its outcome, too.
    pub overran: u64,
    /// Lost to the end of the lease, to another claim or to a cancellation, or not reported in time.
    pub lost: u64,
    /// Given back at the end of the run.
    pub released: u64,
}

/// Options of a handler.
///
/// ```
/// use norn_client::worker::HandlerOptions;
/// use std::time::Duration;
/// let options = HandlerOptions::new().progress_limit(Duration::from_secs(600)).time_limit(Duration::from_secs(4 * 3_600));
/// # let (progress_limit, time_limit) = (Some(Duration::from_secs(600)), Some(Duration::from_secs(14_400)));
/// # assert_eq!(options, HandlerOptions { lease: None, time_limit, progress_limit });
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandlerOptions {
    /// Length of the leases of its tasks, instead of the worker's and the queue's.
    pub lease: Option<Duration>,
    /// Time limit of the handler, instead of the worker's.
    pub time_limit: Option<Duration>,
    /// Progress limit of the handler, instead of the worker's.
    pub progress_limit: Option<Duration>,
}

impl HandlerOptions {
    /// Options that follow the worker's settings.
    pub fn new() -> Self {
        HandlerOptions::default()
    }

    /// Sets the length of the leases of its tasks.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets how long the handler may run: [`Worker::time_limit`].
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = Some(time_limit);
        self
    }

    /// Sets how long the handler may go on without progress: [`Worker::progress_limit`].
    #[must_use]
    pub fn progress_limit(mut self, progress_limit: Duration) -> Self {
        self.progress_limit = Some(progress_limit);
        self
    }
}

type Handling = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Handler = Arc<dyn Fn(Context) -> Handling + Send + Sync>;
type InvalidHandling = Pin<Box<dyn Future<Output = ()> + Send>>;
type InvalidHandler = Arc<dyn Fn(Context, String) -> InvalidHandling + Send + Sync>;

/// Handlers of a queue, and their options.
#[derive(Default)]
struct Service {
    plain: Option<Handler>,
    /// For joins; absent: the plain handler serves them.
    group: Option<Handler>,
    options: HandlerOptions,
}

impl Service {
    /// The handler of a task.
    fn of(&self, task: &Granted) -> Option<&Handler> {
        let is_join = task.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
        self.group.as_ref().filter(|_| is_join).or(self.plain.as_ref())
    }
}

/// Settings of a worker; see the [module documentation](self).
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    client: Client,
    services: BTreeMap<QueueName, Service>,
    invalid: InvalidHandler,
    name: String,
    concurrency: usize,
    lease: Option<Duration>,
    time_limit: Duration,
    progress_limit: Duration,
    session: Option<Duration>,
    poll: Duration,
    drain_timeout: Duration,
    /// How long the worker tries to report the failure of an attempt that it gave up.
    report_timeout: Duration,
    /// The first mistake in the settings; returned when the worker is run.
    mistake: Option<Error>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Worker")
            .field("queues", &self.services.keys())
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .field("time_limit", &self.time_limit)
            .field("progress_limit", &self.progress_limit)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker without handlers: one task at a time, leases as set for the queues or else of 30 s, [an hour](PROGRESS_LIMIT)
    /// without progress for a handler, 30 s to drain.
    pub fn new(client: Client) -> Worker {
        Worker {
            client,
            services: BTreeMap::new(),
            invalid: Arc::new(|context, reason| Box::pin(async move { warn(&context, &reason) })),
            name: String::new(),
            concurrency: 1,
            lease: None,
            time_limit: Duration::MAX,
            progress_limit: PROGRESS_LIMIT,
            session: None,
            poll: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(30),
            report_timeout: run::REPORT_TIMEOUT,
            mistake: None,
        }
    }

    /// Registers a handler for the tasks of a queue. An invalid queue name is reported when the worker is run.
    pub fn handler<F, H>(self, queue: &str, handler: H) -> Worker
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.register(queue, |service| service.plain = Some(Arc::new(move |context| Box::pin(handler(context)))))
    }

    /// As [`Worker::handler`], with a lease and limits of its own: for work that takes longer than that of other handlers, or
    /// whose stop must be noticed sooner. They hold for the joins of the queue, too.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, HandlerOptions, Outcome, Worker};
    /// # use std::time::Duration;
    /// # async fn mail(_: Context) -> Outcome { Outcome::Done(None) }
    /// # async fn video(_: Context) -> Outcome { Outcome::Done(None) }
    /// # fn example(worker: Worker) -> Worker {
    /// let long = HandlerOptions::new().lease(Duration::from_secs(600));
    /// worker.handler("mail", mail).handler_with("video", long, video).lease(Duration::from_secs(20))
    /// # }
    /// ```
    pub fn handler_with<F, H>(self, queue: &str, options: HandlerOptions, handler: H) -> Worker
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.register(queue, |service| {
            service.plain = Some(Arc::new(move |context| Box::pin(handler(context))));
            service.options = options;
        })
    }

    /// Registers a handler for those tasks of a queue that are joins of groups. Without one, they go to the queue's
    /// [handler](Worker::handler), which is required in any case: a claim cannot leave out the other tasks.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Outcome, Worker};
    /// # use std::time::Duration;
    /// # async fn page(_: Context) -> Outcome { Outcome::Done(None) }
    /// async fn bind(context: Context) -> Outcome {
    ///     let Ok(members) = context.members().await else {
    ///         return Outcome::RetryLater { after: Duration::from_secs(1), reason: "members cannot be read".into() };
    ///     };
    ///     let results = members.into_iter().filter_map(|member| member.task?.result);
    ///     Outcome::Done(Some(results.flat_map(|result| result.into_vec()).collect()))
    /// }
    /// # fn example(worker: Worker) -> Worker {
    /// worker.handler("pages", page).group_handler("pages", bind)
    /// # }
    /// ```
    pub fn group_handler<F, H>(self, queue: &str, handler: H) -> Worker
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.register(queue, |service| service.group = Some(Arc::new(move |context| Box::pin(handler(context)))))
    }

    /// Sets what to do with [`Outcome::Invalid`] before it is reported: the handler gets the task and the reason. By default the reason
    /// is logged. If it panics or exceeds a limit of the handler, this is logged, and the task is reported as invalid all the same.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Worker};
    /// # fn example(worker: Worker) -> Worker {
    /// worker.invalid_handler(async |context: Context, reason: String| {
    ///     eprintln!("{} of {} is not valid: {reason}", context.id(), context.queue());
    /// })
    /// # }
    /// ```
    pub fn invalid_handler<F, H>(mut self, handler: H) -> Worker
    where
        H: Fn(Context, String) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.invalid = Arc::new(move |context, reason| Box::pin(handler(context, reason)));
        self
    }

    fn register(mut self, queue: &str, register: impl FnOnce(&mut Service)) -> Worker {
        match QueueName::new(queue) {
            Ok(queue) => register(self.services.entry(queue).or_default()),
            Err(error) => self.mistake = self.mistake.or_else(|| Some(Error::invalid(error.to_string()))),
        }
        self
    }

    /// Sets the name of this worker, for people to read.
    pub fn name(mut self, name: impl Into<String>) -> Worker {
        self.name = name.into();
        self
    }

    /// Sets how many handlers may run at once. The next task is claimed as soon as a handler has ended, before its outcome is known to be
    /// stored; where outcomes cannot be stored, at most twice as many tasks are held.
    pub fn concurrency(mut self, concurrency: usize) -> Worker {
        self.concurrency = concurrency;
        self
    }

    /// Sets the length of the leases, instead of the queues'. With short leases a dead worker is noticed sooner; long ones need fewer
    /// renewals.
    pub fn lease(mut self, lease: Duration) -> Worker {
        self.lease = Some(lease);
        self
    }

    /// Sets how long a handler may run from its start to its end, whatever progress it reports. There is no limit by default, which is
    /// [`Duration::MAX`]; a handler that hangs is stopped at its [progress limit](Worker::progress_limit).
    ///
    /// When the time is over, the handler is dropped at its next `await`, concurrent work that it started learns of it by
    /// [`Context::lease_lost`], and the attempt is failed with that reason: the task is retried or dies as its queue and its number of
    /// attempts say, and the worker takes another one. If no node takes that report for two minutes, the task is released, and the
    /// worker goes on at once; the task is claimable when its lease ends at the latest, which under a session may be an hour. If a
    /// handler ends by itself before it is dropped, because it has no further `await`, its outcome is reported ([`Summary::overran`]).
    ///
    /// A handler that blocks its thread cannot be stopped. If it has not ended a second after its limit, its task is given up all the
    /// same and may run elsewhere in parallel, its thread serves nothing else, and a runtime in which it still runs does not shut down
    /// by itself (`Runtime::shutdown_timeout`). If it holds the last thread, renewals stop as well, and the task is claimable when its
    /// lease ends. So run blocking code under `tokio::task::spawn_blocking`, and stop it when [`Context::progress`] returns false.
    pub fn time_limit(mut self, time_limit: Duration) -> Worker {
        self.time_limit = time_limit;
        self
    }

    /// Sets how long a handler may go on without progress, an hour by default: a task whose handler hangs goes to another worker then,
    /// although this worker would renew its lease for ever. [`Duration::MAX`] is no limit.
    ///
    /// The time counts from the handler's start, and again from each [checkpoint](Context::checkpoint) that is acknowledged, each
    /// [`Context::progress`] and each [`Context::renew`]. The renewals that the worker makes by itself are no progress. When the time
    /// is over, the handler is stopped and its attempt is failed, as at its [time limit](Worker::time_limit).
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Outcome, Worker};
    /// # use std::time::Duration;
    /// # async fn mail(_: Context) -> Outcome { Outcome::Done(None) }
    /// # fn example(worker: Worker) -> Worker {
    /// worker.handler("mail", mail).progress_limit(Duration::from_secs(60)).time_limit(Duration::from_secs(3_600))
    /// # }
    /// ```
    pub fn progress_limit(mut self, progress_limit: Duration) -> Worker {
        self.progress_limit = progress_limit;
        self
    }

    /// Works under a [session](Client::open_session), which lasts for `ttl` without a renewal: one heartbeat keeps all claims, however
    /// many there are. When the session is lost, all handlers are stopped, none of them can report an outcome any more, and the worker
    /// goes on under another session. At the end of the drain the session is ended, and the remaining tasks are claimable at once.
    ///
    /// Leases are then as long as the queues allow, an hour at the most, as a short one has no purpose any more. A lease that is set
    /// explicitly holds all the same, and is renewed as well.
    ///
    /// ```no_run
    /// # use norn_client::worker::{Context, Outcome, Worker};
    /// # use std::time::Duration;
    /// # async fn mail(_: Context) -> Outcome { Outcome::Done(None) }
    /// # fn example(worker: Worker) -> Worker {
    /// worker.handler("mail", mail).concurrency(1_000).session(Duration::from_secs(5)).name("host-7, process 4711")
    /// # }
    /// ```
    pub fn session(mut self, ttl: Duration) -> Worker {
        self.session = Some(ttl);
        self
    }

    /// Sets how long one claim call waits for work, which is also about how long an idle worker takes to stop. 2 s by default.
    pub fn poll(mut self, poll: Duration) -> Worker {
        self.poll = poll;
        self
    }

    /// Sets how long handlers may go on after the shutdown has begun.
    pub fn drain_timeout(mut self, drain_timeout: Duration) -> Worker {
        self.drain_timeout = drain_timeout;
        self
    }

    /// Works until `shutdown` is ready, then drains: claims nothing more, waits for handlers up to a bound, and releases the rest. An
    /// error means that the settings are wrong, or that each node refused the certificate before any had served this client. Other
    /// trouble with the cluster is waited out.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
        self.check()?;
        run::run(self, shutdown).await
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        if self.services.is_empty() || self.services.len() > limits::CLAIM_QUEUES_MAX {
            return Err(Error::invalid(format!("a worker has handlers for 1 to {} queues", limits::CLAIM_QUEUES_MAX)));
        }
        if let Some((queue, _)) = self.services.iter().find(|(_, service)| service.plain.is_none()) {
            return Err(Error::invalid(format!(
                "{queue} has a handler for joins alone, and its other tasks would be claimed in vain; give it one for these, too"
            )));
        }
        if self.concurrency == 0 {
            return Err(Error::invalid("a worker works on one task at least"));
        }
        let leases = self.services.values().filter_map(|service| service.options.lease).chain(self.lease);
        leases.chain(self.session).map(|lease| lease.as_millis()).try_for_each(check_lease)?;
        let options = || self.services.values().map(|service| &service.options);
        let mut limits = options().flat_map(|options| [options.time_limit, options.progress_limit]).flatten();
        if limits.any(|limit| limit.is_zero()) || self.time_limit.is_zero() || self.progress_limit.is_zero() {
            return Err(Error::invalid("no handler can end within a limit of 0s; `Duration::MAX` is no limit"));
        }
        if self.name.len() > limits::TEXT_BYTES_MAX {
            return Err(Error::invalid("the worker's name is too long"));
        }
        Ok(())
    }
}

fn check_lease(lease_ms: u128) -> Result<(), Error> {
    let (least, most) = (limits::LEASE_MS_MIN, limits::LEASE_MS_MAX);
    if (u128::from(least)..=u128::from(most)).contains(&lease_ms) {
        return Ok(());
    }
    Err(Error::invalid(format!("a lease, or a session, is {least} to {most} ms, not {lease_ms}")))
}

fn warn(context: &Context, reason: &str) {
    tracing::warn!(id = %context.id(), queue = %context.queue(), reason, "invalid task");
}
