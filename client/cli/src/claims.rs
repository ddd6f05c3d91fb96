//! The verbs of a worker: claim, renew, update, complete, fail, release.

use super::enqueue::print_acked;
use super::error::{Exit, Failure};
use super::output::{Output, Style};
use super::parse::{self, DataArguments, DurabilityArguments};
use super::runner::{only, unexpected};
use super::several::{self, Change, SeveralArguments};
use super::{Call, Finish, Runner, Transport, children, group, json, text};
use clap::Args;
use norn_client::client::cancelling::seen_ended;
use norn_client::client::choosing::{carry_out, held_by};
use norn_wire::limits::{
    CLAIM_TASKS_MAX, LEASE_MS_DEFAULT, LEASE_MS_MAX, PAYLOAD_BYTES_MAX, UPDATE_BYTES_MAX, UPDATES_MAX, WAIT_MS_MAX,
};
use norn_wire::transaction::{Depend, Expected};
use norn_wire::{Claim, ClaimId, Completion, Error, Granted, Request, Response, TaskId, TaskView, Token};
use serde_bytes::ByteBuf;
use std::path::PathBuf;
use std::time::Duration;

/// Between an answer that came before the wait was over, and the next question.
const EARLY_PAUSE: Duration = Duration::from_millis(20);

/// Takes tasks to work on.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ClaimArguments {
    /// Queues to take from, separated by commas
    #[arg(value_name = "QUEUE", value_delimiter = ',', required = true)]
    pub queues: Vec<String>,
    /// How long the tasks are held without a renewal; if left out, as long as is set for their queue, or 30s
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub lease: Option<u64>,
    /// How long to wait for a task when there is none
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, default_value = "0s")]
    pub wait: u64,
    /// Most tasks to take
    #[arg(long, value_name = "N", value_parser = parse::whole(1, CLAIM_TASKS_MAX, 10), allow_negative_numbers = true, default_value_t = 1)]
    pub max: u32,
    /// Who works, for people to read
    #[arg(long, value_name = "NAME", default_value = "norn")]
    pub worker: String,
    /// Session of the worker, whose heartbeat keeps the tasks and with whose end they are claimable again; see `session open`.
    /// The lease is then as long as may be, if it is left out
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Claims nothing unless these tasks are there and have not ended, in any queue: switches, for example. ID@VERSION: and nobody
    /// has changed it since. Depends on none if left out
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
            // A node lets nobody wait for ever, and one that is stopping not even for so long.
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
            // Nothing knows the tokens. What is given back is said with what took effect.
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

/// Has them read, as far as that can be known.
fn show_granted<T: Transport>(runner: &mut Runner<T>, tasks: &[Granted], from_ms: u64) -> Result<(), Failure> {
    for task in tasks {
        runner.recent().see(task.id);
        match runner.output.json() {
            true => runner.output.row(&json::granted(task, from_ms))?,
            false => print_granted(&mut runner.output, task, from_ms, (runner.clock)())?,
        }
    }
    runner.output.end_rows()?;
    if tasks.is_empty() { Ok(()) } else { runner.output.flush() }
}

fn print_granted(output: &mut Output, task: &Granted, from_ms: u64, now_ms: u64) -> Result<(), Failure> {
    let label = output.paint(Style::Good, "claimed");
    output.line(&format!("{label} {} from {}", task.id, task.queue))?;
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
        output.line(&format!("  group     {}", group::progress(group)))?;
    }
    if !task.payload.is_empty() {
        output.line(&format!("  data      {}", text::data(&task.payload)))?;
    }
    for entry in &task.updates {
        output.line(&format!("  update    {} #{} {}", entry.token, entry.sequence, text::data(&entry.data)))?;
    }
    Ok(())
}

/// Prolongs a claim.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RenewArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Another length of the lease; the claim's own if left out
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
            let lease = json::LeaseLine { lease_ms, lease_expires_ms: expires_ms };
            runner.output.object(&json::held(id, token, Some(lease)))?;
        } else {
            let label = runner.output.paint(Style::Good, "renewed");
            let ends = text::relative((runner.clock)(), expires_ms);
            let lease = text::duration(lease_ms);
            runner.output.line(&format!("{label} {id} {token}, lease {lease}, ends {ends}"))?;
        }
        Ok(Exit::Done)
    }
}

/// Adds an entry to a claim's log.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct UpdateArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Number of the entry: each claim counts from 0, and an entry is not shown while one of a lower number is missing
    #[arg(value_name = "SEQ", value_parser = parse::whole(0, UPDATES_MAX - 1, 0), allow_negative_numbers = true)]
    pub sequence: u32,
    /// What the entry says
    #[command(flatten)]
    pub data: DataArguments,
    /// How safe it is before the answer.
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

/// Ends a task with a result.
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
    /// How many updates this claim has written; readers are told while some of them are missing, but not if this is left out
    #[arg(long = "seq", value_name = "N", value_parser = parse::whole(0, UPDATES_MAX, 3), allow_negative_numbers = true)]
    pub sequence: Option<u32>,
    /// The result as text; `-` reads it from standard input, @FILE in the REPL from a file. None if left out
    #[arg(long, value_name = "DATA", allow_hyphen_values = true, conflicts_with = "file")]
    pub result: Option<String>,
    /// Reads the result from a file instead
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Enqueues the tasks of this file with the completion: an object or a list of objects in JSON, with queue, data,
    /// data_encoding, priority, delay, at, max_attempts, headers, key, after, id. All of them are enqueued, or the completion is refused.
    /// One may be a "join": {"total": N, "fail_fast": false}, and others, with "number": N, the members of its group. None if left out
    #[arg(long, value_name = "FILE.json")]
    pub then: Option<PathBuf>,
    /// How safe it is before the answer.
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

/// Says that an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FailArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: String,
    /// Why, for people to read; nothing by default
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub reason: String,
    /// Not claimable again for this long; if left out, as long as is set for its queue, or 0s
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true, conflicts_with = "invalid")]
    pub retry_in: Option<u64>,
    /// Never again: the task becomes dead
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

/// Gives claims back.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReleaseArguments {
    /// Task
    #[arg(value_name = "ID", required_unless_present = "queue", conflicts_with = "queue", requires = "token")]
    pub id: Option<String>,
    /// Token of the claim
    #[arg(value_name = "TOKEN")]
    pub token: Option<String>,
    /// Many at once, whoever holds them.
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
        runner.output.object(&json::held(id, token, None))?;
    } else {
        let label = runner.output.paint(Style::Good, done);
        runner.output.line(&format!("{label} {id} {token}; {remark}"))?;
    }
    Ok(Exit::Done)
}
