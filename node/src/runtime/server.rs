//! A node that runs: what it says of itself, and how it stops.

pub mod start;

use crate::runtime::doors::OpenDoors;
use crate::runtime::listener::Listener;
use crate::runtime::transport::CloseCode;
use norn_client::tls::Renewal;
use norn_host::driver::{Inputs, Internal};
use norn_host::log_thread::LogThread;
use norn_host::metrics::Metrics;
use norn_host::questions::OwnQuestions;
use norn_wire::response::Identity;
use norn_wire::{NodeId, Request, Response};
use quinn::Endpoint;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Time limit for handing over leaderships.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for delivering the last answers.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for closing connections.
const GOOD_BYE_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest time that a node takes to stop, but for the disk and for closing connections.
pub const STOP_TIME_MAX: Duration =
    norn_doors::CLOSE_TIME_MAX.saturating_add(HAND_OVER_TIMEOUT).saturating_add(LAST_ANSWERS_TIMEOUT);
/// Interval of the first checks whether the node serves.
const READY_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Longest interval of later ones: a node that does not serve for minutes is waiting for something, and should not be kept busy.
const READY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The interval is one part in this many of the time waited so far, so that readiness is noticed at most a tenth late.
const READY_INTERVAL_PART: u32 = 10;

/// State of a node that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// The node knows a leader of every partition that it holds.
    Serving,
    /// It has no cluster and waits for one.
    AwaitsCluster,
}

/// A running node.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    identity: NodeId,
    endpoint: Endpoint,
    inputs: Inputs,
    driver: JoinHandle<LogThread>,
    accepting: JoinHandle<()>,
    /// Serves the links of the doors.
    serving_doors: JoinHandle<()>,
    doors: Option<OpenDoors>,
    reporting: JoinHandle<()>,
    memory: JoinHandle<()>,
    /// Publishes the node's new address to the cluster, if it has moved.
    relocating: Option<JoinHandle<()>>,
    /// The certificate files as they were at the start.
    certificates: Renewal,
    renewing: JoinHandle<()>,
    /// Triggers a reread of the certificates.
    reload: Arc<Notify>,
    metrics: Arc<Metrics>,
    listener: Arc<Listener>,
    questions: Arc<OwnQuestions>,
}

impl Server {
    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Identity in the data directory.
    pub fn identity(&self) -> NodeId {
        self.identity
    }

    /// The node's certificate files, for calls to other nodes.
    pub fn certificates(&self) -> &Renewal {
        &self.certificates
    }

    /// The address bound for HTTP, if there is one.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.doors.as_ref().map(OpenDoors::address)
    }

    /// Counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Connections in both directions.
    #[cfg(test)]
    pub(in crate::runtime) fn connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    /// Waits until the node serves, or until it is clear that it has no cluster. `None`: the node has stopped.
    pub async fn ready(&self) -> Option<Readiness> {
        self.watch(|identity| match (&identity.genesis, identity.serving) {
            (None, _) => Some(Readiness::AwaitsCluster),
            (Some(_), true) => Some(Readiness::Serving),
            (Some(_), false) => None,
        })
        .await
    }

    /// Waits until the node has a cluster and serves. Returns false if the node has stopped.
    pub async fn serving(&self) -> bool {
        self.watch(|identity| (identity.genesis.is_some() && identity.serving).then_some(())).await.is_some()
    }

    /// Polls the node's identity until `judge` accepts it.
    async fn watch<T>(&self, mut judge: impl FnMut(&Identity) -> Option<T>) -> Option<T> {
        let mut waited = Duration::ZERO;
        loop {
            if let Response::Identity(identity) = self.ask(Request::Identify).await?
                && let Some(judged) = judge(&identity)
            {
                return Some(judged);
            }
            let interval = ready_interval(waited);
            waited += interval;
            tokio::time::sleep(interval).await;
        }
    }

    /// Sends the node a request as a client would. `None`: the node has stopped.
    pub(in crate::runtime) async fn ask(&self, request: Request) -> Option<Response> {
        self.questions.ask(request).await
    }

    /// Notifying this rereads the certificate files; the program's log reports the result.
    pub fn certificates_reload(&self) -> Arc<Notify> {
        Arc::clone(&self.reload)
    }

    /// Waits until the node stops by itself.
    pub async fn stopped(&self) {
        self.inputs.internal.closed().await;
    }

    /// Hands over leaderships, writes out the log and the answers, and closes the endpoint.
    pub async fn shutdown(mut self) {
        if let Some(doors) = self.doors.take() {
            doors.close().await;
        }
        let asked = self.inputs.internal.send(Internal::Shutdown).await;
        let stopped = tokio::time::timeout(HAND_OVER_TIMEOUT, &mut self.driver).await;
        match (asked, stopped) {
            (_, Ok(Ok(log))) => {
                if let Err(error) = tokio::task::spawn_blocking(move || log.close()).await {
                    tracing::error!(%error, "the log was not closed");
                }
            }
            (_, Ok(Err(error))) => tracing::error!(%error, "the node ended badly"),
            // No acknowledged write is lost: the other nodes elect new leaders, as after a crash. The log is dropped with the driver,
            // and ends by itself.
            (_, Err(_)) => tracing::warn!("handing over took too long; leaving without"),
        }
        self.driver.abort();
        self.reporting.abort();
        self.memory.abort();
        self.renewing.abort();
        self.accepting.abort();
        self.serving_doors.abort();
        if let Some(relocating) = &self.relocating {
            relocating.abort();
        }
        if tokio::time::timeout(LAST_ANSWERS_TIMEOUT, self.listener.clients().written()).await.is_err() {
            tracing::debug!("some client did not take its last answers in time");
        }
        close(&self.endpoint).await;
    }
}

/// Time until the next check whether a node serves.
pub(in crate::runtime) fn ready_interval(waited: Duration) -> Duration {
    (waited / READY_INTERVAL_PART).clamp(READY_INTERVAL_MIN, READY_INTERVAL_MAX)
}

async fn close(endpoint: &Endpoint) {
    endpoint.close(CloseCode::Stopping.into(), b"the node stops");
    // Close frames are sent at once; the longer wait would only be for late packets.
    let _ = tokio::time::timeout(GOOD_BYE_TIMEOUT, endpoint.wait_idle()).await;
}
