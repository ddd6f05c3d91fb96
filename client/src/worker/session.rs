//! The session of a worker: one heartbeat for all its claims.
//!
//! It is a claim like any other, and its lease counts like that of one: from when its last renewal was first sent, so that the handlers
//! have stopped before another worker is granted their tasks. A lost session never comes back; the next one is opened at once.

use super::Worker;
use super::context::Held;
use super::run::{Boxed, sleep_until};
use crate::client::{Client, CompleteOptions, WorkerSession};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::TaskId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause after a session could not be opened.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// State of the session.
enum State {
    /// No session is wanted: each claim has its own lease.
    Unwanted,
    /// No session; none is opened before this time.
    Closed {
        open_at: Instant,
    },
    Opening(Boxed<Result<WorkerSession, Error>>),
    Open {
        held: Arc<Held>,
        heartbeat: Option<Boxed<Result<Instant, Error>>>,
    },
}

/// The session of a worker and its heartbeat.
pub(super) struct Session {
    client: Client,
    ttl: Duration,
    name: String,
    state: State,
    /// A session whose opening failed may exist, and is claimed before another one is enqueued.
    left_behind: bool,
    /// Why no node will ever serve this client, once known.
    pub refusal: Option<Error>,
}

impl Session {
    pub fn new(worker: &Worker) -> Session {
        let state = worker.session.map_or(State::Unwanted, |_| State::Closed { open_at: Instant::now() });
        let ttl = worker.session.unwrap_or_default();
        Session {
            client: worker.client.clone(),
            ttl,
            name: worker.name.clone(),
            state,
            left_behind: false,
            refusal: None,
        }
    }

    /// Whether claims may be made: with an open session, or if none is wanted.
    pub fn allows_claims(&self) -> bool {
        match &self.state {
            State::Unwanted => true,
            State::Open { held, .. } => !held.is_lost(),
            State::Closed { .. } | State::Opening(_) => false,
        }
    }

    /// The session for new claims.
    pub fn held(&self) -> Option<&Arc<Held>> {
        match &self.state {
            State::Open { held, .. } => Some(held),
            State::Unwanted | State::Closed { .. } | State::Opening(_) => None,
        }
    }

    /// Id of the session, to name in claims.
    pub fn id(&self) -> Option<TaskId> {
        self.held().map(|held| held.id)
    }

    /// Opens the session, unless the worker is ending, and renews it: takes the next step. Ready after a change; true if the session is
    /// lost. Dropping the future loses nothing.
    pub async fn changed(&mut self, ends: bool) -> bool {
        match &mut self.state {
            State::Unwanted => std::future::pending().await,
            State::Closed { .. } if ends => std::future::pending().await,
            State::Closed { open_at } => {
                sleep_until(Some(*open_at)).await;
                let opening = open(self.client.clone(), self.ttl, self.name.clone(), self.left_behind);
                self.state = State::Opening(Box::pin(opening));
                false
            }
            State::Opening(opening) => {
                let opened = opening.await;
                self.opened(opened);
                false
            }
            State::Open { held, heartbeat } => {
                let lost = renew_session(&self.client, held, heartbeat).await;
                if lost {
                    tracing::warn!(session = %held.id, "session lost: its handlers are stopped");
                    self.state = State::Closed { open_at: Instant::now() };
                }
                lost
            }
        }
    }

    fn opened(&mut self, opened: Result<WorkerSession, Error>) {
        self.left_behind = opened.is_err();
        self.state = match opened {
            Ok(session) => State::Open { held: Arc::new(Held::session(&session)), heartbeat: None },
            Err(error) => {
                self.refusal = Some(error.clone()).filter(|error| error.code == ErrorCode::Denied);
                tracing::warn!(%error, "no session yet");
                State::Closed { open_at: Instant::now() + OPEN_PAUSE }
            }
        };
    }

    /// Ends the session, and with it all claims under it; also one that is just being opened. Returns whether it has certainly ended.
    pub async fn end(self) -> bool {
        let (id, token) = match self.state {
            // Without a reachable node it does not open before the worker has ended.
            State::Opening(_) if self.client.unreached().is_some() => return false,
            State::Opening(opening) => match opening.await {
                Ok(session) => (session.id(), session.token()),
                Err(_) => return false,
            },
            State::Open { held, .. } if !held.is_lost() => (held.id, held.token),
            State::Unwanted | State::Closed { .. } | State::Open { .. } => return false,
        };
        let ended = self.client.complete(CompleteOptions::new(id, token)).await;
        if let Err(error) = &ended {
            tracing::debug!(session = %id, %error, "the session could not be ended; it will end by itself");
        }
        ended.is_ok()
    }
}

async fn open(client: Client, ttl: Duration, name: String, left_behind: bool) -> Result<WorkerSession, Error> {
    if left_behind && let Some(session) = client.take_session(ttl, &name, Duration::ZERO).await? {
        return Ok(session);
    }
    client.open_session(ttl, &name).await
}

/// Starts a renewal when it is due, or waits for the one under way. Returns true once the session is lost.
async fn renew_session(
    client: &Client,
    held: &Arc<Held>,
    heartbeat: &mut Option<Boxed<Result<Instant, Error>>>,
) -> bool {
    let renewed = async {
        match heartbeat {
            Some(renewal) => {
                let result = renewal.await;
                *heartbeat = None;
                held.renewed(result);
            }
            None => {
                sleep_until(Some(held.renew_at())).await;
                let (client, item, timeout) = (client.clone(), (held.id, held.token), held.renewal_timeout());
                *heartbeat = Some(Box::pin(async move {
                    let mut results = client.renew_within(vec![item], None, Some(timeout)).await;
                    results.pop().expect("one result for each")
                }));
            }
        }
    };
    tokio::select! {
        biased;
        () = held.lost() => true,
        () = renewed => held.is_lost(),
    }
}
