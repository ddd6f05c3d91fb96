//! `session open`, `renew` and `end`: one heartbeat for all claims of a worker.

use super::parse;
use super::runner::{only, unexpected};
use super::text;
use super::{Call, Exit, Failure, Runner, Transport, examples};
use clap::{Args, Subcommand};
use norn_client::api::Session;
use norn_client::client::sessions::{known, none_to_be_had, withdraw};
use norn_client::session::{Draft, SESSIONS_QUEUE};
use norn_wire::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use norn_wire::{
    Acked, Acks, Claim, ClaimId, Completion, Error, ErrorCode, Granted, QueueName, Request, Response, TaskId, Token,
};
use std::time::{Duration, Instant};

/// Longest wait for a session to open, once it is enqueued.
const OPEN_MS: u64 = 5_000;
/// Longest time to find out why there is no session, and to withdraw the enqueued one.
const TIDY: Duration = Duration::from_secs(1);
/// Shortest time for the same, even after the deadline.
const TIDY_MIN: Duration = Duration::from_millis(200);

/// Verbs of worker sessions: claims that one heartbeat keeps alive and that end together.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum SessionVerb {
    /// Open a session
    ///
    /// A session is a task of the queue norn/sessions, held as long as it is renewed.
    #[command(after_help = examples::SESSION_OPEN)]
    Open(SessionOpenArguments),
    /// Renew a session, and with it all claims under it, by its full length
    #[command(after_help = examples::SESSION_RENEW)]
    Renew(SessionArguments),
    /// End a session: tasks claimed under it can be claimed again at once
    #[command(after_help = examples::SESSION_END)]
    End(SessionArguments),
}

/// Arguments of `session open`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SessionOpenArguments {
    /// Time after which the session ends without a renewal
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, default_value = "10s")]
    pub ttl: u64,
    /// Name of the worker, for people to read: host and process, for example
    #[arg(long, value_name = "NAME", default_value = "norn")]
    pub worker: String,
}

/// Arguments of `session renew` and `session end`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SessionArguments {
    /// Session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the session
    #[arg(value_name = "TOKEN")]
    pub token: String,
}

impl SessionVerb {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        match self {
            SessionVerb::Open(arguments) => arguments.run(runner).await,
            SessionVerb::Renew(arguments) => arguments.renew(runner).await,
            SessionVerb::End(arguments) => arguments.end(runner).await,
        }
    }
}

impl SessionOpenArguments {
    fn claim(&self) -> Claim {
        Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![QueueName::new(SESSIONS_QUEUE).expect("a good name")],
            lease_ms: self.ttl,
            wait_ms: OPEN_MS.min(self.ttl / 4),
            max: 1,
            worker: self.worker.clone(),
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        }
    }

    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.ttl) {
            let [low, high, ttl] = [LEASE_MS_MIN, LEASE_MS_MAX, self.ttl].map(text::duration);
            return Err(Failure::invalid(format!("a session lasts {low} to {high} without a renewal, not {ttl}")));
        }
        let claim = self.claim();
        // Check first: a session that cannot be claimed would be of use to no worker.
        Request::Claim(claim.clone()).check()?;
        let (started, patience) = (Instant::now(), runner.transport.patience());
        let draft = Draft::session(&claim.worker);
        let enqueued = enqueue(runner, draft).await.map_err(left_open)?;
        let left = || patience.map(|patience| patience.saturating_sub(started.elapsed()));
        let (granted, from_ms) = match take(runner, claim, left()).await {
            Ok(taken) => taken,
            Err(failure) => {
                let _ = tokio::time::timeout(tidy(left()), withdraw(&*runner, enqueued.id)).await;
                return Err(failure);
            }
        };
        let Some(task) = granted else {
            return Err(Failure::Explained(none_to_be_had(&*runner, enqueued.id, tidy(left())).await));
        };
        runner.recent().see(task.id);
        let expires_ms = from_ms.saturating_add(task.lease_ms);
        let line = Session { id: task.id, token: task.token, ttl_ms: task.lease_ms, expires_ms };
        if runner.output.json() {
            runner.output.object(&line)?;
        } else {
            runner.output.line(&format!("session {}", line.id))?;
            runner.output.line(&format!("  token   {}", line.token))?;
            runner.output.line(&format!("  lasts   {} without a renewal", text::duration(line.ttl_ms)))?;
        }
        Ok(Exit::Done)
    }
}

async fn enqueue<T: Transport>(runner: &Runner<T>, draft: Draft) -> Result<Acked, Failure> {
    match runner.call(Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum }).await? {
        Response::Acked(results) => only("session open", results),
        _ => Err(unexpected("session open")),
    }
}

/// Explains an unknown outcome of the enqueue: a session that may exist is held by no worker, and its id is of no use to the caller.
fn left_open(failure: Failure) -> Failure {
    match failure {
        Failure::Call(error) if error.code == ErrorCode::Unknown => {
            let message = format!(
                "{}; a session without a holder may have been enqueued: the same command is safe to repeat, and takes that one first",
                error.message
            );
            Failure::Explained(Error { message, id: None, ..error })
        }
        other => other,
    }
}

/// Returns how long finding out why there is no session, and withdrawing it, may take.
fn tidy(left: Option<Duration>) -> Duration {
    left.map_or(TIDY, |left| left.clamp(TIDY_MIN, TIDY))
}

/// Claims a session. Returns it with the time from which its lease counts. Leaves part of the remaining time for what follows.
async fn take<T: Transport>(
    runner: &Runner<T>,
    claim: Claim,
    left: Option<Duration>,
) -> Result<(Option<Granted>, u64), Failure> {
    let wait = Duration::from_millis(claim.wait_ms);
    let wait = left.map_or(wait, |left| wait.min(left / 2));
    let claim = Claim { wait_ms: wait.as_millis() as u64, ..claim };
    let timeout = left.map(|left| (left - wait).max(TIDY_MIN));
    match runner.request_lease_within(Request::Claim(claim), timeout).await? {
        (Response::Claimed { tasks, unavailable: 1.., .. }, _) if tasks.is_empty() => {
            Err(Error::unavailable("not all partitions could be asked for a session; ask again").into())
        }
        (Response::Claimed { tasks, .. }, from_ms) => Ok((tasks.into_iter().next(), from_ms)),
        _ => Err(unexpected("session open")),
    }
}

impl SessionArguments {
    /// Returns the session and its token after checking that it is a session: otherwise `end` would complete another task.
    async fn known<T: Transport>(&self, runner: &mut Runner<T>) -> Result<(TaskId, Token), Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        known(&*runner, id, token).await?;
        Ok((id, token))
    }

    async fn renew<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (id, token) = self.known(runner).await?;
        let request = Request::Renew { items: vec![(id, token)], lease_ms: None };
        let (Response::Renewed(results), from_ms) = runner.request_lease(request).await? else {
            return Err(unexpected("session renew"));
        };
        let ttl_ms = only("session renew", results)?;
        let expires_ms = from_ms.saturating_add(ttl_ms);
        let line = Session { id, token, ttl_ms, expires_ms };
        if runner.output.json() {
            runner.output.object(&line)?;
        } else {
            runner.output.line(&format!("session {id} lasts for another {}", text::duration(ttl_ms)))?;
        }
        Ok(Exit::Done)
    }

    async fn end<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (id, token) = self.known(runner).await?;
        let completion = Completion { id, token, sequence: None, result: None, at_ms: 0, children: Vec::new() };
        let request = Request::Complete { items: vec![completion], acks: Acks::Quorum };
        let Response::Acked(results) = runner.request(request).await? else {
            return Err(unexpected("session end"));
        };
        let acked = only("session end", results)?;
        super::enqueue::print_acked(&mut runner.output, "ended", &acked)?;
        Ok(Exit::Done)
    }
}
