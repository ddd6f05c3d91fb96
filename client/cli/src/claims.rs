//! Verbs of a worker: claim, renew, update, complete, fail, release.

use super::enqueue::print_acked;
use super::error::{Exit, Failure};
use super::output::{Output, Style};
use super::parse::{self, DataArguments, DurabilityArguments};
use super::runner::{only, unexpected};
use super::several::{self, Change, SeveralArguments};
use super::{Call, Finish, Runner, Transport, children, text};
use clap::Args;
use norn_client::api;
use norn_client::client::cancelling::seen_ended;
use norn_client::client::choosing::{carry_out, held_by};
use norn_client::client::explaining::progress;
use norn_wire::limits::{
    CLAIM_TASKS_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, PAYLOAD_BYTES_MAX, UPDATE_BYTES_MAX, UPDATES_MAX, WAIT_MS_MAX,
};
use norn_wire::transaction::{Depend, Expected};
use norn_wire::{Claim, ClaimId, Completion, Error, Granted, Request, Response, TaskId, TaskView, Token};
use serde_bytes::ByteBuf;
use std::path::PathBuf;
use std::time::Duration;

/// Pause before the next call, after an answer that came before the wait was over.
const EARLY_PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `claim`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ClaimArguments {
    /// Queues to claim from, separated by commas
    #[arg(value_name = "QUEUE", value_delimiter = ',', required = true)]
    pub queues: Vec<String>,
    /// Length of the leases, after which the tasks are free without a renewal; if left out, as set for their queue, or 30s
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub lease: Option<u64>,
    /// Time to wait for a task if there is none
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, default_value = "0s")]
    pub wait: u64,
    /// Most tasks to claim
    #[arg(long, value_name = "N", value_parser = parse::whole(1, CLAIM_TASKS_MAX, 10), allow_negative_numbers = true, default_value_t = 1)]
    pub max: u32,
    /// Name of the worker, for people to read
    #[arg(long, value_name = "NAME", default_value = "norn")]
    pub worker: String,
    /// Session of the worker: its heartbeat keeps the tasks, and when it ends they can be claimed again; see `session open`. Without
    /// --lease, the leases are then as long as possible
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Claim nothing unless these tasks exist and have not ended, in any queue; for example, tasks used as switches. ID@VERSION: nor may
    /// the task have changed since. No such condition if left out
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub depends: Vec<String>,
}

impl ClaimArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let session = match &self.session {
            Some(text) => Some(runner.resolve_target(text).await?),
            None => None,
        };
        let mut depends = Vec::with_capacity(self.depends.len());
        for text in &self.depends {
            let (id, version) = text.split_once('@').map_or((text.as_str(), None), |(id, version)| (id, Some(version)));
            let expected = match version {
                Some(version) => Expected::Version(version.parse()?),
                None => Expected::Present,
            };
            depends.push(Depend { id: runner.resolve_target(id).await?, expected });
        }
        let lease_ms = if session.is_some() { LEASE_MS_MAX } else { LEASE_MS_DEFAULT };
        let queues = self.queues.iter().map(|queue| parse::queue(queue)).collect::<Result<Vec<_>, _>>()?;
        queues.iter().for_each(|queue| runner.recent().see_queue(queue));
        let mut claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues,
            lease_ms: self.lease.unwrap_or(lease_ms),
            wait_ms: self.wait.min(WAIT_MS_MAX),
            max: self.max,
            worker: self.worker,
            lease_open: self.lease.is_none() && session.is_none(),
            session,
            depends,
            confirms: false,
        };
        let until_ms = (runner.clock)().saturating_add(self.wait);
        runner.also_waits(Duration::from_millis(self.wait));
        let (from_ms, tasks, unavailable) = loop {
            let left = runner.left_beside(Duration::from_millis(claim.wait_ms));
            let (response, from_ms) = runner.request_lease_within(Request::Claim(claim.clone()), left).await?;
            let Response::Claimed { tasks, unavailable, .. } = response else {
                return Err(unexpected("claim"));
            };
            // A node bounds every wait, and one that is stopping answers even sooner.
            claim.wait_ms = until_ms.saturating_sub((runner.clock)()).min(WAIT_MS_MAX);
            if !tasks.is_empty() || unavailable > 0 || claim.wait_ms == 0 {
                break (from_ms, tasks, unavailable);
            }
            tokio::time::sleep(EARLY_PAUSE.min(Duration::from_millis(claim.wait_ms))).await;
        };
        if tasks.is_empty() && unavailable > 0 {
            let message = format!("nothing was found, but {}", text::unasked(unavailable));
            return Err(Error::unavailable(message).into());
        }
        let shown = show_granted(runner, &tasks, from_ms);
        if matches!(shown, Err(Failure::Output(_))) {
            // The tokens were not shown, so release the tasks. The report of what took effect names them.
            let release = |task: &Granted| Request::Release { id: task.id, token: task.token };
            let _ = carry_out(&*runner, tasks.iter().map(release).collect(), "given back", None).await;
        }
        shown?;
        if !tasks.is_empty() {
            return Ok(Exit::Done);
        }
        if !runner.output.json() {
            runner.output.line("nothing to claim")?;
        }
        Ok(Exit::NothingToClaim)
    }
}

/// Prints granted tasks, and flushes so that they reach the reader as far as can be known.
fn show_granted<T: Transport>(runner: &mut Runner<T>, tasks: &[Granted], from_ms: u64) -> Result<(), Failure> {
    for task in tasks {
        runner.recent().see(task.id);
        match runner.output.json() {
            true => runner.output.row(&api::GrantedTask::new(task, from_ms))?,
            false => print_granted(&mut runner.output, task, from_ms, (runner.clock)())?,
        }
    }
    runner.output.end_rows()?;
    if tasks.is_empty() { Ok(()) } else { runner.output.flush() }
}

fn print_granted(output: &mut Output, task: &Granted, from_ms: u64, now_ms: u64) -> Result<(), Failure> {
    let label = output.paint(Style::Good, "claimed");
    output.line(&format!("{label} {} from {}", task.id, task.queue))?;
    if let Some(text_id) = task.text_id() {
        output.line(&format!("  text id   {}", text::clean(&text_id.to_string())))?;
    }
    let expires_ms = from_ms.saturating_add(task.lease_ms);
    let ends = text::relative(now_ms, expires_ms);
    output.line(&format!("  token     {}", output.paint(Style::Bold, &task.token.to_string())))?;
    output.line(&format!("  lease     {}, ends {ends}", text::duration(task.lease_ms)))?;
    output.line(&format!("  attempt   {}", task.attempt))?;
    if task.priority != 0 {
        output.line(&format!("  priority  {}", task.priority))?;
    }
    for (name, value) in &task.headers {
        output.line(&format!("  header    {}={}", text::clean(name), text::clean(value)))?;
    }
    if let Some(member) = task.grouping.as_ref().and_then(|grouping| grouping.member) {
        output.line(&format!("  member    {} of {}", member.number, member.group))?;
    }
    if let Some(group) = &task.group {
        output.line(&format!("  group     {}", progress(group)))?;
    }
    if !task.payload.is_empty() {
        output.line(&format!("  data      {}", text::data(&task.payload)))?;
    }
    for entry in &task.updates {
        output.line(&format!("  update    {} #{} {}", entry.token, entry.sequence, text::data(&entry.data)))?;
    }
    Ok(())
}

/// Arguments of `renew`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RenewArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// New length of the lease; the claim's own if left out
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub lease: Option<u64>,
}

impl RenewArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        let request = Request::Renew { items: vec![(id, token)], lease_ms: self.lease };
        let (Response::Renewed(results), from_ms) = runner.request_lease(request).await? else {
            return Err(unexpected("renew"));
        };
        let lease_ms = only("renew", results)?;
        let expires_ms = from_ms.saturating_add(lease_ms);
        if runner.output.json() {
            let lease = api::Lease { lease_ms, lease_expires_ms: expires_ms };
            runner.output.object(&api::HeldClaim { id, token, lease: Some(lease) })?;
        } else {
            let label = runner.output.paint(Style::Good, "renewed");
            let ends = text::relative((runner.clock)(), expires_ms);
            let lease = text::duration(lease_ms);
            runner.output.line(&format!("{label} {id} {token}, lease {lease}, ends {ends}"))?;
        }
        Ok(Exit::Done)
    }
}

/// Arguments of `update`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct UpdateArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Number of the entry: each claim counts from 0, and an entry is not shown while one with a lower number is missing
    #[arg(value_name = "SEQ", value_parser = parse::whole(0, UPDATES_MAX - 1, 0), allow_negative_numbers = true)]
    pub sequence: u32,
    /// Content of the entry
    #[command(flatten)]
    pub data: DataArguments,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl UpdateArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        let data = runner.read_data(self.data.data.as_deref(), self.data.file.as_ref(), UPDATE_BYTES_MAX).await?;
        let data = data.unwrap_or_default();
        let request = Request::Update { id, token, sequence: self.sequence, data, acks: self.durability.acks };
        let Response::AckedOne(acked) = runner.request(request).await? else {
            return Err(unexpected("update"));
        };
        print_acked(&mut runner.output, "updated", &acked)?;
        Ok(Exit::Done)
    }
}

/// Arguments of `complete`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CompleteArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// `-` reads the result from standard input
    #[arg(value_name = "-", value_parser = parse::dash, conflicts_with_all = ["result", "file"])]
    pub stdin: Option<String>,
    /// Number of updates that this claim has written; while some of them are missing, readers see the log marked as incomplete. Without
    /// it, they do not
    #[arg(long = "seq", value_name = "N", value_parser = parse::whole(0, UPDATES_MAX, 3), allow_negative_numbers = true)]
    pub sequence: Option<u32>,
    /// Result as text; `-` reads it from standard input, @FILE in the REPL from a file. None if left out
    #[arg(long, value_name = "DATA", allow_hyphen_values = true, conflicts_with = "file")]
    pub result: Option<String>,
    /// Read the result from this file instead
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Enqueue the tasks of this file with the completion: a JSON object or list of objects, with queue, data, data_encoding, priority,
    /// delay, at, max_attempts, headers, key, after, id. Either all of them are enqueued, or the completion is refused. One may be a
    /// "join": {"total": N, "fail_fast": false}, and others, with "number": N, the members of its group. None if left out
    #[arg(long, value_name = "FILE.json")]
    pub then: Option<PathBuf>,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl CompleteArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        let text = self.stdin.as_deref().or(self.result.as_deref());
        let result = runner.read_data(text, self.file.as_ref(), PAYLOAD_BYTES_MAX).await?.map(ByteBuf::from);
        let completion = Completion { id, token, sequence: self.sequence, result, at_ms: 0, children: Vec::new() };
        let children = match runner.read_data(None, self.then.as_ref(), children::FILE_BYTES_MAX).await? {
            Some(bytes) => children::read(&bytes)?,
            None => Vec::new(),
        };
        let acks = self.durability.acks;
        let call = match children.is_empty() {
            true => Call::Request(Request::Complete { items: vec![completion], acks }),
            false => Call::Complete { items: vec![Finish { completion, children }], acks },
        };
        let Response::Acked(results) = runner.call(call).await? else {
            return Err(unexpected("complete"));
        };
        let acked = only("complete", results)?;
        print_acked(&mut runner.output, "completed", &acked)?;
        Ok(Exit::Done)
    }
}

/// Arguments of `fail`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FailArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Reason, for people to read; empty by default
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub reason: String,
    /// Pause before the task can be claimed again; if left out, as set for its queue, or 0s
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, conflicts_with = "invalid")]
    pub retry_in: Option<u64>,
    /// The task is invalid: it becomes dead, without further attempts
    #[arg(long)]
    pub invalid: bool,
}

impl FailArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let token = parse::token(&self.token)?;
        let id = runner.resolve_target(&self.id).await?;
        let (retry_in_ms, retry_open) = (self.retry_in.unwrap_or(0), self.retry_in.is_none());
        let (reason, invalid) = (self.reason, self.invalid);
        let request = Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open };
        give_up(runner, request).await?;
        // The answer does not say whether that was the last attempt.
        let ended = match runner.output.json() || invalid {
            true => None,
            false => seen_ended(runner, id).await,
        };
        let remark = match (ended, self.retry_in) {
            _ if invalid => "it is dead".to_owned(),
            (Some(state), _) => format!("it is {state}"),
            (None, None) => "it can be claimed again when its queue says so, if any attempt is left".to_owned(),
            (None, Some(0)) => "it can be claimed again, if any attempt is left".to_owned(),
            (None, Some(ms)) => format!("it can be claimed again in {}, if any attempt is left", text::duration(ms)),
        };
        print_given_up(runner, "failed", &remark, id, token)
    }
}

/// Arguments of `release`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReleaseArguments {
    /// Task
    #[arg(value_name = "ID", required_unless_present = "queue", conflicts_with = "queue", requires = "token")]
    pub id: Option<String>,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: Option<String>,
    /// Choice of many tasks, whichever workers hold them.
    #[command(flatten)]
    pub several: SeveralArguments,
}

impl ReleaseArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let (Some(id), Some(token)) = (&self.id, &self.token) else {
            let request = |task: &TaskView| Some(Request::Release { id: task.id, token: held_by(task)? });
            let left = "had ended or changed hands meanwhile";
            let change = Change { states: several::HELD, ended_with: None, done: "released", left, brings: None };
            return self.several.each(runner, change, request).await;
        };
        let token = parse::token(token)?;
        let id = runner.resolve_target(id).await?;
        give_up(runner, Request::Release { id, token }).await?;
        print_given_up(runner, "released", "it can be claimed again", id, token)
    }
}

async fn give_up<T: Transport>(runner: &Runner<T>, request: Request) -> Result<(), Failure> {
    let verb = request.verb();
    match runner.request(request).await? {
        Response::Done => Ok(()),
        _ => Err(unexpected(verb)),
    }
}

fn print_given_up<T: Transport>(
    runner: &mut Runner<T>,
    done: &str,
    remark: &str,
    id: TaskId,
    token: Token,
) -> Result<Exit, Failure> {
    if runner.output.json() {
        runner.output.object(&api::HeldClaim { id, token, lease: None })?;
    } else {
        let label = runner.output.paint(Style::Good, done);
        runner.output.line(&format!("{label} {id} {token}; {remark}"))?;
    }
    Ok(Exit::Done)
}
