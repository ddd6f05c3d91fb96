//! A worker: handlers by task type, with everything around them.
//!
//! A [`Worker`] claims only while it has room, runs one handler for each task, renews all its claims in the
//! background, stops a handler whose lease is lost, reports outcomes, and drains gracefully.
//!
//! A handler may run more than once for a task, and after a lost lease another worker may already run: effects on
//! the outside should carry the claim's [token](Context::token), so that the later one wins.
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
mod run;
#[cfg(test)]
mod tests;

use crate::client::Client;
use crate::wire::error::Error;
use crate::wire::ids::QueueName;
use crate::wire::limits;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use context::Context;

/// What a handler says of its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with a result for whoever reads the task, and with what was [spawned](Context::spawn).
    Done(Option<Vec<u8>>),
    /// Not this time.
    RetryLater {
        /// Not claimable for this long.
        after: Duration,
        /// For people.
        reason: String,
    },
    /// Not this time, and again when the queue's back-off says so.
    Retry {
        /// For people.
        reason: String,
    },
    /// Never: the task becomes `dead`.
    Invalid {
        /// For people.
        reason: String,
    },
}

/// What a worker has done, counted in claims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Completed.
    pub done: u64,
    /// Reported as failed, to be retried; panics included.
    pub retried: u64,
    /// Reported as invalid.
    pub invalid: u64,
    /// Lost to the end of the lease, to another claim or to a cancellation, or not to be reported in time.
    pub lost: u64,
    /// Given back at the end.
    pub released: u64,
}

type Handling = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Handler = Arc<dyn Fn(Context) -> Handling + Send + Sync>;

/// Settings of a worker; see the [module documentation](self).
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    client: Client,
    handlers: BTreeMap<QueueName, Handler>,
    name: String,
    concurrency: usize,
    lease: Option<Duration>,
    poll: Duration,
    drain_timeout: Duration,
    /// The first mistake in the settings; told when the worker is run.
    mistake: Option<Error>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Worker")
            .field("queues", &self.handlers.keys())
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker without handlers: one task at a time, leases as the queues say or of 30 s, 30 s to drain.
    pub fn new(client: Client) -> Worker {
        Worker {
            client,
            handlers: BTreeMap::new(),
            name: String::new(),
            concurrency: 1,
            lease: None,
            poll: Duration::from_secs(2),
            drain_timeout: Duration::from_secs(30),
            mistake: None,
        }
    }

    /// Registers a handler for the tasks of a queue. A wrong queue name is told when the worker is run.
    pub fn handler<F, H>(mut self, queue: &str, handler: H) -> Worker
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        match QueueName::new(queue) {
            Ok(queue) => {
                self.handlers.insert(queue, Arc::new(move |context| Box::pin(handler(context))));
            }
            Err(error) => self.mistake = self.mistake.or_else(|| Some(Error::invalid(error.to_string()))),
        }
        self
    }

    /// Name of this worker, for people to read.
    pub fn name(mut self, name: impl Into<String>) -> Worker {
        self.name = name.into();
        self
    }

    /// How many tasks to work on at once.
    pub fn concurrency(mut self, concurrency: usize) -> Worker {
        self.concurrency = concurrency;
        self
    }

    /// Length of the leases, whatever the queues say. Short ones notice a dead worker sooner, long ones need fewer renewals.
    pub fn lease(mut self, lease: Duration) -> Worker {
        self.lease = Some(lease);
        self
    }

    /// How long one claim call waits for work; also about how long an idle worker takes to stop. 2 s by default.
    pub fn poll(mut self, poll: Duration) -> Worker {
        self.poll = poll;
        self
    }

    /// How long handlers may go on after the shutdown has begun.
    pub fn drain_timeout(mut self, drain_timeout: Duration) -> Worker {
        self.drain_timeout = drain_timeout;
        self
    }

    /// Works until `shutdown` is ready, then drains: claims nothing more, waits for handlers up to a bound, and
    /// releases the rest. An error means that the settings are wrong; trouble with the cluster is waited out.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
        self.check()?;
        run::run(self, shutdown).await
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        let lease_ms = self.lease.map_or(u128::from(limits::LEASE_MS_DEFAULT), |lease| lease.as_millis());
        if self.handlers.is_empty() || self.handlers.len() > limits::CLAIM_QUEUES_MAX {
            return Err(Error::invalid(format!("a worker has 1 to {} handlers", limits::CLAIM_QUEUES_MAX)));
        }
        if self.concurrency == 0 {
            return Err(Error::invalid("a worker works on one task at least"));
        }
        if lease_ms < u128::from(limits::LEASE_MS_MIN) || lease_ms > u128::from(limits::LEASE_MS_MAX) {
            return Err(Error::invalid(format!(
                "a lease is {} to {} ms, not {lease_ms}",
                limits::LEASE_MS_MIN,
                limits::LEASE_MS_MAX
            )));
        }
        if self.name.len() > limits::TEXT_BYTES_MAX {
            return Err(Error::invalid("the worker's name is too long"));
        }
        Ok(())
    }
}
