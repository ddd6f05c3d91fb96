//! Sessions of workers: one heartbeat for all claims.

use super::{ClaimOptions, Claimed, Client, CompleteOptions};
use crate::session::{Draft, SESSIONS_QUEUE};
use crate::wire::error::Error;
use crate::wire::ids::{QueueName, TaskId, Token};
use crate::wire::limits;
use crate::wire::request::Request;
use std::time::{Duration, Instant};

/// How long a session may take to be had, once it is enqueued.
const OPEN: Duration = Duration::from_secs(5);

/// A session: claims that name it are held as long as it is renewed, and are claimable by others as soon as it has ended.
#[derive(Debug, Clone)]
pub struct WorkerSession {
    client: Client,
    id: TaskId,
    token: Token,
    ttl: Duration,
    expires: Instant,
}

impl Client {
    /// Opens a session that lasts so long without a renewal.
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
        // A session that cannot be claimed would be there for nobody.
        Request::Claim(claim_options(ttl, worker).claim(OPEN)).check()?;
        self.enqueue(Draft::session(worker)).await?;
        let session = self.take_session(ttl, worker, OPEN).await?;
        session.ok_or_else(|| Error::unavailable("no session could be had; ask again"))
    }

    /// Takes a session that is there and that nobody holds; none where it is certain that there is none.
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

fn claim_options(ttl: Duration, worker: &str) -> ClaimOptions {
    let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
    ClaimOptions::new([queue]).lease(ttl).worker(worker)
}

impl WorkerSession {
    /// Goes with claims: [`ClaimOptions::session`].
    pub fn id(&self) -> TaskId {
        self.id
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// How long it lasts without a renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// When work under it must have stopped, unless it is renewed before.
    pub fn expires(&self) -> Instant {
        self.expires
    }

    /// Keeps it, and all claims under it, for as long again; gives when it ends now.
    pub async fn renew(&mut self) -> Result<Instant, Error> {
        self.expires = self.client.renew(self.id, self.token, None).await?.max(self.expires);
        Ok(self.expires)
    }

    /// Ends it: all that is claimed under it is claimable at once.
    pub async fn end(self) -> Result<(), Error> {
        self.client.complete(CompleteOptions::new(self.id, self.token)).await.map(|_| ())
    }
}
