//! Sessions of workers: one heartbeat for all claims.

use super::answers::{expiry, one, unexpected};
use super::calling::{Caller, read};
use super::{ClaimOptions, Claimed, Client, CompleteOptions, why};
use crate::session::{Call, Draft, SESSIONS_QUEUE, TransactionDraft};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{QueueName, TaskId, Token};
use norn_wire::limits;
use norn_wire::request::Request;
use norn_wire::response::{Response, State, TaskView};
use std::time::{Duration, Instant};

/// How long to wait for a session after it is enqueued.
const OPEN: Duration = Duration::from_secs(5);
/// Timeout for finding out why no session was granted, and for withdrawing the enqueued one.
const TIDY: Duration = Duration::from_secs(1);

/// A worker session: claims that name it are held as long as it is renewed, and are claimable by others as soon as it has ended.
#[derive(Debug, Clone)]
pub struct WorkerSession {
    client: Client,
    id: TaskId,
    token: Token,
    ttl: Duration,
    expires: Instant,
}

impl Client {
    /// Opens a session that lasts for `ttl` without a renewal. If none can be granted, as when the queue is paused, the error says why.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use norn_client::client::ClaimOptions;
    /// use norn_client::wire::QueueName;
    /// use std::time::Duration;
    /// let mut session = client.open_session(Duration::from_secs(5), "host-7, process 4711").await?;
    /// let mail = QueueName::new("mail")?;
    /// let claims = client.claim(ClaimOptions::new([mail]).max(100).session(session.id())).await?;
    /// // Once a second, for all hundred; when it fails for good, work on them must stop.
    /// session.renew().await?;
    /// // Whatever is not completed is claimable at once.
    /// session.end().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_session(&self, ttl: Duration, worker: &str) -> Result<WorkerSession, Error> {
        // Check the claim first: a session that cannot be claimed would stay unused.
        Request::Claim(claim_options(ttl, worker).claim(OPEN)).check()?;
        let enqueued = self.enqueue(Draft::session(worker)).await?;
        // If it may have been granted without an answer, it stays: the next opening takes it.
        match self.take_session(ttl, worker, OPEN).await? {
            Some(session) => Ok(session),
            None => Err(none_to_be_had(self, enqueued.id, TIDY).await),
        }
    }

    /// Resumes a session that this or another program has opened, by its id and its token, and renews it. Refused if the task is not a
    /// session ([`ErrorCode::Invalid`]) or the token is not that of its holder ([`ErrorCode::Superseded`]).
    ///
    /// ```no_run
    /// # use norn_client::wire::{TaskId, Token};
    /// # async fn example(client: norn_client::client::Client, id: TaskId, token: Token) -> Result<(), norn_client::wire::Error> {
    /// let session = client.resume_session(id, token).await?;
    /// session.end().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resume_session(&self, id: TaskId, token: Token) -> Result<WorkerSession, Error> {
        known(self, id, token).await?;
        let renewal = Call::Request(Request::Renew { items: vec![(id, token)], lease_ms: None });
        let answer = self.answer(renewal, None).await;
        let lease_ms = match answer.result? {
            Response::Renewed(items) => one(Ok(items))?,
            _ => return unexpected("renew"),
        };
        let (ttl, expires) = (Duration::from_millis(lease_ms), expiry(answer.lease_from, lease_ms));
        Ok(WorkerSession { client: self.clone(), id, token, ttl, expires })
    }

    /// Claims an existing session without a holder. `None` if it is certain that there is none.
    pub(crate) async fn take_session(
        &self,
        ttl: Duration,
        worker: &str,
        wait: Duration,
    ) -> Result<Option<WorkerSession>, Error> {
        let mut claims = self.claim(claim_options(ttl, worker).wait(wait)).await?;
        let Some(Claimed { granted, expires }) = claims.tasks.pop() else {
            if claims.unavailable > 0 {
                return Err(Error::unavailable("not all partitions could be asked for a session; ask again"));
            }
            return Ok(None);
        };
        let ttl = Duration::from_millis(granted.lease_ms.min(limits::LEASE_MS_MAX));
        Ok(Some(WorkerSession { client: self.clone(), id: granted.id, token: granted.token, ttl, expires }))
    }
}

/// Refuses a task that is not a session, and a token that is not that of its holder: ending another task as a session would complete it.
pub async fn known(caller: &impl Caller, id: TaskId, token: Token) -> Result<(), Error> {
    let view = read(caller, id).await?;
    if view.spec.queue.as_str() != SESSIONS_QUEUE {
        let message = "the task is no session: `session open` gives the id of one";
        return Err(Error::invalid(message).about(id));
    }
    let message = match view.claims.last().map(|claim| claim.token) {
        Some(latest) if latest == token => return Ok(()),
        Some(latest) => format!("the session's token is {latest}, not {token}"),
        None => "the session has no holder: it has no token yet".to_owned(),
    };
    Err(Error::new(ErrorCode::Superseded, message).about(id))
}

/// The error for a session that was enqueued and not granted. Withdraws it, as far as that succeeds within the timeout.
pub async fn none_to_be_had(caller: &impl Caller, enqueued: TaskId, within: Duration) -> Error {
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
    let work = async { tokio::join!(why::hindrance(caller, &queue), withdraw(caller, enqueued)).0 };
    let why = tokio::time::timeout(within, work).await.ok().flatten();
    let why = why.map_or_else(|| "none was granted in time; ask again".to_owned(), |hindrance| hindrance.text);
    Error::unavailable(format!("no session could be had: {why}"))
}

/// Withdraws an enqueued session without a holder: a later opening would take it for its own. If it has been claimed meanwhile, it stays.
pub async fn withdraw(caller: &impl Caller, enqueued: TaskId) {
    let Ok(TaskView { state: State::Ready, version: Some(version), .. }) = read(caller, enqueued).await else { return };
    let draft = Box::new(TransactionDraft::new().delete((enqueued, version)));
    // Best effort: a session that stays is taken by the next opening.
    let _ = caller.make(Call::Transact { draft }).await;
}

fn claim_options(ttl: Duration, worker: &str) -> ClaimOptions {
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
    ClaimOptions::new([queue]).lease(ttl).worker(worker)
}

impl WorkerSession {
    /// Id of the session, to name in claims: [`ClaimOptions::session`].
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Token of the session. With its id, another program can resume it: [`Client::resume_session`].
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long the session lasts without a renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Time by which work under it must have stopped, unless it is renewed before.
    pub fn expires(&self) -> Instant {
        self.expires
    }

    /// Renews the session, and with it all claims under it, for its whole length. Returns its new end.
    pub async fn renew(&mut self) -> Result<Instant, Error> {
        self.expires = self.client.renew(self.id, self.token, None).await?.max(self.expires);
        Ok(self.expires)
    }

    /// Ends the session: all tasks claimed under it are claimable at once.
    pub async fn end(self) -> Result<(), Error> {
        self.client.complete(CompleteOptions::new(self.id, self.token)).await.map(|_| ())
    }
}
