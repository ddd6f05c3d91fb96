//! `session open`, `renew` and `end`: one heartbeat for all claims of a worker.

use super::parse;
use super::runner::{only, unexpected};
use super::text;
use super::{Call, Exit, Failure, Runner, Transport, examples};
use crate::session::{Draft, SESSIONS_QUEUE};
use crate::wire::error::ErrorCode;
use crate::wire::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use crate::wire::{Acks, Claim, ClaimId, Completion, Error, QueueName, Request, Response, TaskId, Token};
use clap::{Args, Subcommand};
use serde::Serialize;

/// How long a session may take to be opened, once it is enqueued.
const OPEN_MS: u64 = 5_000;

/// Sessions of workers: claims that are kept by one heartbeat, and end with it.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum SessionVerb {
    /// Opens a session
    ///
    /// It is a task of the queue norn/sessions, held as long as it is renewed.
    #[command(after_help = examples::SESSION_OPEN)]
    Open(SessionOpenArguments),
    /// Keeps a session, and all claims under it, for as long again
    #[command(after_help = examples::SESSION_RENEW)]
    Renew(SessionArguments),
    /// Ends a session: all that is claimed under it is claimable at once
    #[command(after_help = examples::SESSION_END)]
    End(SessionArguments),
}

/// Opens a session.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SessionOpenArguments {
    /// How long it lasts without a renewal
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, default_value = "10s")]
    pub ttl: u64,
    /// Who works, for people to read: host and process, for example
    #[arg(long, value_name = "NAME", default_value = "norn")]
    pub worker: String,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SessionArguments {
    /// Session
    #[arg(value_name = "ID")]
    pub id: String,
    /// Its token
    #[arg(value_name = "TOKEN")]
    pub token: String,
}

#[derive(Serialize)]
struct Line {
    id: String,
    token: String,
    ttl_ms: u64,
    expires_ms: u64,
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
    async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.ttl) {
            let [low, high, ttl] = [LEASE_MS_MIN, LEASE_MS_MAX, self.ttl].map(text::duration);
            return Err(Failure::invalid(format!("a session lasts {low} to {high} without a renewal, not {ttl}")));
        }
        let queue = QueueName::new(SESSIONS_QUEUE).expect("a good name");
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![queue],
            lease_ms: self.ttl,
            wait_ms: OPEN_MS.min(self.ttl / 4),
            max: 1,
            worker: self.worker,
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        // A session that cannot be claimed would be there for nobody.
        Request::Claim(claim.clone()).check()?;
        let draft = Draft::session(&claim.worker);
        let Response::Acked(results) = runner.call(Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum }).await?
        else {
            return Err(unexpected("session open"));
        };
        only("session open", results)?;
        let (Response::Claimed { tasks, .. }, from_ms) = runner.request_lease(Request::Claim(claim)).await? else {
            return Err(unexpected("session open"));
        };
        let Some(task) = tasks.first() else {
            let message = format!("no session could be had; is the queue {SESSIONS_QUEUE} paused?");
            return Err(Error::unavailable(message).into());
        };
        runner.recent().see(task.id);
        let expires_ms = from_ms.saturating_add(task.lease_ms);
        let line = Line { id: task.id.to_string(), token: task.token.to_string(), ttl_ms: task.lease_ms, expires_ms };
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

impl SessionArguments {
    /// The session and its token, if it is one: to take another task for one would complete that.
    async fn known<T: Transport>(&self, runner: &mut Runner<T>) -> Result<(TaskId, Token), Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        let Response::Task(view) = runner.request(Request::Get { id, minimum: None, minimum_sequence: None }).await?
        else {
            return Err(unexpected("session"));
        };
        if view.spec.queue.as_str() != SESSIONS_QUEUE {
            let message = "the task is no session: `session open` gives the id of one";
            return Err(Error::invalid(message).about(id).into());
        }
        let message = match view.claims.last().map(|claim| claim.token) {
            Some(latest) if latest == token => return Ok((id, token)),
            Some(latest) => format!("the session's token is {latest}, not {token}"),
            None => "nobody has the session: it has no token yet".to_owned(),
        };
        Err(Error::new(ErrorCode::Superseded, message).about(id).into())
    }

    async fn renew<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (id, token) = self.known(runner).await?;
        let request = Request::Renew { items: vec![(id, token)], lease_ms: None };
        let (Response::Renewed(results), from_ms) = runner.request_lease(request).await? else {
            return Err(unexpected("session renew"));
        };
        let ttl_ms = only("session renew", results)?;
        let expires_ms = from_ms.saturating_add(ttl_ms);
        let line = Line { id: id.to_string(), token: token.to_string(), ttl_ms, expires_ms };
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
