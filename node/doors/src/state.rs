//! What all requests share.

use crate::access::Access;
use crate::gate::Gate;
use crate::metrics::Scrapes;
use crate::metrics::measures::{Measures, Surroundings};
use crate::metrics::meters::Meters;
use crate::problem::Problem;
use crate::sse::Kept;
use norn_client::local::LocalNode;
use norn_client::times::TimesAt;
use norn_wire::response::Identity;
use norn_wire::{Error, ErrorCode, Request, Response};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Unit of the budget for bodies.
pub const BUDGET_UNIT_BYTES: usize = 1 << 10;

/// Time for requests under way to end once the node stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the sessions of a door to end.
const SESSIONS_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest time that doors with the usual limits take to close.
pub const CLOSE_TIME_MAX: Duration = DRAIN_TIMEOUT.saturating_add(SESSIONS_TIMEOUT);

/// Limits of a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most connections. One more is answered 503 and closed; over TLS it is only closed.
    pub connections_max: usize,
    /// Most requests under way, waiting ones and those whose answer is being sent included. One more is answered 429.
    pub requests_max: usize,
    /// Most streams of events under way. One more is answered 429.
    pub streams_max: usize,
    /// Largest body of a request.
    pub body_bytes_max: usize,
    /// Memory for the bodies of all requests that are being read or served.
    pub bodies_bytes_max: usize,
    /// Time limit for TLS and for the first byte of a connection, and from the first byte of a request to the end of its headers.
    pub head_timeout: Duration,
    /// Time limit for a body.
    pub body_timeout: Duration,
    /// A connection without a request is closed after this time, and one that takes no byte of an answer.
    pub idle_timeout: Duration,
    /// Time limit for a call of the node with all its retries; what a call waits on purpose comes on top.
    pub call_timeout: Duration,
    /// Time for requests under way to end once the node stops.
    pub drain_timeout: Duration,
    /// Queues that metrics show by name.
    pub metrics_queues: usize,
}

impl Bounds {
    /// The budget for bodies, in units of [`BUDGET_UNIT_BYTES`]. The largest body fits, however the sizes are rounded.
    pub fn budget_units(&self) -> usize {
        self.bodies_bytes_max.max(self.body_bytes_max).div_ceil(BUDGET_UNIT_BYTES)
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            connections_max: 1_024,
            requests_max: 16_384,
            streams_max: 1_024,
            body_bytes_max: 8 << 20,
            bodies_bytes_max: 64 << 20,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            call_timeout: Duration::from_secs(10),
            drain_timeout: DRAIN_TIMEOUT,
            metrics_queues: 1_000,
        }
    }
}

/// An answer of the node that has to be waited for.
pub type Told<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The node behind the doors.
pub trait Host: Debug + Send + Sync {
    /// The way to it.
    fn local(&self) -> LocalNode;
    /// Asks whether it takes events, whatever its log and its clients do. False once it has stopped.
    fn alive(&self) -> Told<'_, bool>;
    /// Asks it who it is. It answers without a cluster, a leader or a peer, as soon as it takes requests; `None` once it has stopped.
    fn identity(&self) -> Told<'_, Option<Identity>>;
    /// Counters and gauges that are there without asking the node, by the names that `norn status` shows, zeros included.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Times of writing and syncing the log.
    fn log_syncs(&self) -> TimesAt;
    /// Asks the node for its measures. It answers as soon as it takes its next events; `None` once it has stopped.
    fn measures(&self) -> Told<'_, Option<Arc<Measures>>>;
    /// Makes one call to the node at an address, with the certificate of this one. That node need not be in the cluster.
    fn ask<'a>(&'a self, address: &'a str, request: Request) -> Told<'a, Result<Response, Error>>;
    /// Looks at the node's files. `None` if an earlier look has not ended.
    fn surroundings(&self) -> Told<'_, Option<Surroundings>>;
}

/// How far the node is.
#[derive(Debug, Clone)]
pub enum Phase {
    /// It replays its log.
    Starting,
    /// It takes requests.
    Running(Arc<dyn Host>),
    /// It is about to stop: waits are answered at once, streams end, connections close after their answers.
    Draining(Arc<dyn Host>),
}

/// What all requests of the doors share.
#[derive(Debug)]
pub struct State {
    /// Limits.
    pub bounds: Bounds,
    /// Who may do what.
    pub access: Access,
    /// How far the node is.
    pub phase: watch::Receiver<Phase>,
    /// Memory for bodies, in units of [`BUDGET_UNIT_BYTES`].
    pub bodies: Arc<Semaphore>,
    /// Requests that may still begin.
    pub requests: Arc<Semaphore>,
    /// Streams of events that may still begin.
    pub streams: Arc<Semaphore>,
    /// Places in watches, for readers that come back.
    pub watches: Kept,
    /// What the doors count of themselves.
    pub meters: Meters,
    /// Keys of repeated claims.
    pub(crate) keys: crate::api::Keys,
    /// What scrapes of metrics share.
    pub scrapes: Scrapes,
    /// What taskstore's service keeps.
    pub(crate) taskstore: crate::taskstore::Memory,
    /// What Skuld's interface keeps.
    pub(crate) skuld: crate::skuld::Memory,
    gate: OnceLock<Gate>,
}

impl State {
    /// The state before any request.
    pub fn new(bounds: Bounds, access: Access, phase: watch::Receiver<Phase>) -> State {
        State {
            bounds,
            access,
            phase,
            bodies: Arc::new(Semaphore::new(bounds.budget_units())),
            requests: Arc::new(Semaphore::new(bounds.requests_max)),
            streams: Arc::new(Semaphore::new(bounds.streams_max)),
            watches: Kept::default(),
            meters: Meters::default(),
            keys: crate::api::Keys::default(),
            scrapes: Scrapes::default(),
            taskstore: crate::taskstore::Memory::default(),
            skuld: crate::skuld::Memory::default(),
            gate: OnceLock::new(),
        }
    }

    /// The gate to the node, once it takes requests.
    pub fn gate(&self) -> Result<&Gate, Problem> {
        if let Some(gate) = self.gate.get() {
            return Ok(gate);
        }
        let host = self.host()?;
        Ok(self.gate.get_or_init(|| Gate::new(host.local(), self.bounds.call_timeout)))
    }

    /// The node, once it takes requests.
    pub fn host(&self) -> Result<Arc<dyn Host>, Problem> {
        match &*self.phase.borrow() {
            Phase::Starting => {
                let error = Error::new(ErrorCode::NotReady, "the node is reading its log; try again in a moment");
                Err(error.into())
            }
            Phase::Running(host) | Phase::Draining(host) => Ok(Arc::clone(host)),
        }
    }

    /// Whether the node is about to stop.
    pub fn drains(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Draining(_))
    }

    /// Waits until the node is about to stop.
    pub async fn draining(&self) {
        let mut phase = self.phase.clone();
        if phase.wait_for(|phase| matches!(phase, Phase::Draining(_))).await.is_err() {
            // The host is gone without a word. The connections end with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Ends the sessions of the gate. Tasks that were granted to no caller go back.
    pub async fn close(&self) {
        if let Some(gate) = self.gate.get()
            && tokio::time::timeout(SESSIONS_TIMEOUT, gate.close()).await.is_err()
        {
            tracing::debug!("sessions of the door are cut off");
        }
    }
}
