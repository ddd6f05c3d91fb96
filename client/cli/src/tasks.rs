//! Verbs that show tasks (get, log, wait, count, queues), and cancel.

use super::enqueue::print_acked;
use super::error::{Exit, Failure};
use super::output::Output;
use super::parse::{self, DurabilityArguments};
use super::runner::unexpected;
use super::several::{self, Change, SeveralArguments};
use super::{Runner, Transport, text};
use clap::Args;
use comfy_table::Cell;
use norn_client::api;
use norn_client::client::calling::has_ended;
use norn_client::client::cancelling::{Cancellation, cancel};
use norn_client::client::explaining::progress;
use norn_wire::limits::{CLAIMS_SHOWN_MAX, WAIT_MS_MAX};
use norn_wire::response::{ClaimOutcome, ClaimView, LogEntry};
use norn_wire::{Error, ErrorCode, Request, Response, State, TaskId, TaskView};
use std::time::Duration;

/// Length of one call of an unlimited wait.
const WAIT_ROUND_MS: u64 = 60_000;

const _: () = assert!(WAIT_ROUND_MS <= WAIT_MS_MAX);

/// Arguments of `get`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct GetArguments {
    /// Task; with several, an unknown one is no failure: it is reported as unknown, with --json as `null`
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    /// Answer only once the latest claim's log has this many entries
    #[arg(long, value_name = "N", value_parser = parse::whole(0, u32::MAX, 3), allow_negative_numbers = true)]
    pub min_seq: Option<u32>,
}

impl GetArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        if let [id] = &self.ids[..] {
            let id = runner.resolve(id).await?;
            let task = get(runner, id, self.min_seq).await?;
            print_task(runner, &task)?;
            return Ok(Exit::Done);
        }
        for (place, id) in self.ids.iter().enumerate() {
            let id = runner.resolve(id).await?;
            let task = match get(runner, id, self.min_seq).await {
                Err(Failure::Call(error)) if error.code == ErrorCode::NotFound => {
                    runner.settle_named(Some(id), Some(&error));
                    None
                }
                Err(Failure::Call(error)) => return Err(unread(error, id, self.ids.len() - place - 1)),
                found => Some(found?),
            };
            if runner.output.json() {
                runner.output.row(&task.as_ref().map(api::Task::from))?;
                continue;
            }
            if place > 0 {
                runner.output.line("")?;
            }
            match task {
                Some(task) => print_task(runner, &task)?,
                None => runner.output.line(&format!("id          {id}: there is no such task"))?,
            }
        }
        runner.output.end_rows()?;
        Ok(Exit::Done)
    }
}

/// Explains that the task could not be read, and how many behind it were not asked for.
fn unread(error: Error, id: TaskId, left: usize) -> Failure {
    let others = if left == 0 { String::new() } else { format!("; {left} more behind it were not asked for") };
    Failure::Call(Error { message: format!("{id}: {}{others}", error.message), ..error.about(id) })
}

pub(super) async fn get<T: Transport>(
    runner: &Runner<T>,
    id: TaskId,
    min_seq: Option<u32>,
) -> Result<TaskView, Failure> {
    let request = Request::Get { id, minimum: None, minimum_sequence: min_seq };
    let Response::Task(task) = runner.request(request).await? else {
        return Err(unexpected("get"));
    };
    runner.recent().see_queue(&task.spec.queue);
    Ok(*task)
}

/// Arguments of `log`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LogArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
}

impl LogArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let id = runner.resolve(&self.id).await?;
        let task = get(runner, id, None).await?;
        if runner.output.json() {
            for entry in &task.updates {
                runner.output.row(&api::LogEntry::from(entry))?;
            }
            runner.output.end_rows()?;
            return Ok(Exit::Done);
        }
        match task.updates.is_empty() {
            true => runner.output.line("the log is empty")?,
            false => print_updates(&mut runner.output, &task.updates, "")?,
        }
        if task.log_incomplete {
            runner.output.sentence(0, "more entries were written, which are shown once those before them are here")?;
        }
        Ok(Exit::Done)
    }
}

/// Arguments of `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WaitArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
    /// Show the task as it is after this long; without it, wait until the task has ended
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub timeout: Option<u64>,
}

impl WaitArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let started = tokio::time::Instant::now();
        runner.waits_for(self.timeout);
        let id = runner.resolve(&self.id).await?;
        let mut left_ms = self.timeout;
        let task = loop {
            let timeout_ms = left_ms.map_or(WAIT_ROUND_MS, |ms| ms.min(WAIT_MS_MAX));
            let request = Request::Wait { id, timeout_ms };
            let Response::Task(task) = runner.waiting_request(request, Duration::from_millis(timeout_ms)).await? else {
                return Err(unexpected("wait"));
            };
            left_ms = self.timeout.map(|ms| ms.saturating_sub(started.elapsed().as_millis() as u64));
            // The node was asked for all the remaining time, so its answer ends the wait, whatever this clock shows.
            let over = self.timeout.is_some_and(|ms| ms <= timeout_ms) || left_ms == Some(0);
            if has_ended(task.state) || over {
                break task;
            }
        };
        print_task(runner, &task)?;
        if has_ended(task.state) {
            return Ok(Exit::Done);
        }
        let waited = text::duration(self.timeout.unwrap_or(0));
        runner.output.note(&format!("the task has not ended within {waited}; it is {}", task.state))?;
        Ok(Exit::Unavailable)
    }
}

/// Arguments of `cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CancelArguments {
    /// Task
    #[arg(value_name = "ID", required_unless_present = "queue", conflicts_with = "queue")]
    pub id: Option<String>,
    /// Choice of many tasks.
    #[command(flatten)]
    pub several: SeveralArguments,
    /// Reason, for people to read
    #[arg(long, value_name = "TEXT", default_value = "cancelled", allow_hyphen_values = true)]
    pub reason: String,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl CancelArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let acks = self.durability.acks;
        let Some(id) = &self.id else {
            let request =
                |task: &TaskView| Some(Request::Cancel { id: task.id, reason: self.reason.clone(), at_ms: 0, acks });
            let left = "had ended or changed hands meanwhile";
            let change = Change {
                states: several::OPEN,
                ended_with: None,
                done: "cancelled",
                left,
                brings: Some(State::Cancelled),
            };
            return self.several.each(runner, change, request).await;
        };
        let id = runner.resolve_target(id).await?;
        let cancellation = cancel(&*runner, id, self.reason, acks).await?;
        conclude_cancellation(&mut runner.output, id, &cancellation)
    }
}

/// Prints the outcome of a cancellation.
fn conclude_cancellation(output: &mut Output, id: TaskId, cancellation: &Cancellation) -> Result<Exit, Failure> {
    let (sent, state) = (cancellation.sent.as_ref(), cancellation.state);
    let is_cancelled = cancellation.kept().is_none();
    let exit = if is_cancelled { Exit::Done } else { Exit::AlreadyEnded };
    if output.json() {
        output.object(&api::CancelAck::new(id, sent, state))?;
        return Ok(exit);
    }
    match (sent, state) {
        (Some(acked), _) if is_cancelled => print_acked(output, "cancelled", acked)?,
        (None, Some(State::Cancelled)) => output.line(&format!("nothing changed: {id} is cancelled already"))?,
        (_, state) => {
            let state = state.map_or_else(String::new, |state| output.state(state));
            output.line(&format!("not cancelled: {id} is {state}, and stays so"))?;
        }
    }
    Ok(exit)
}

/// Arguments of `count`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CountArguments {
    /// Only this queue
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only this state: waiting, ready, claimed, done, dead or cancelled
    #[arg(long, value_name = "STATE", value_parser = parse::state(), hide_possible_values = true)]
    pub state: Option<State>,
}

impl CountArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let queue = parse::queue_if_any(self.queue.as_ref())?;
        let Response::Count(count) = runner.request(Request::Count { queue, state: self.state }).await? else {
            return Err(unexpected("count"));
        };
        match runner.output.json() {
            true => runner.output.object(&api::Count { count })?,
            false => runner.output.line(&count.to_string())?,
        }
        Ok(Exit::Done)
    }
}

/// Lists queues with their counts.
pub(super) async fn queues<T: Transport>(runner: &mut Runner<T>) -> Result<Exit, Failure> {
    let Response::Queues(queues) = runner.request(Request::Queues).await? else {
        return Err(unexpected("queues"));
    };
    queues.iter().for_each(|queue| runner.recent().see_queue(&queue.queue));
    if runner.output.json() {
        for queue in &queues {
            runner.output.row(&api::Queue::from(queue))?;
        }
        runner.output.end_rows()?;
        return Ok(Exit::Done);
    }
    if queues.is_empty() {
        runner.output.line("no queues")?;
        return Ok(Exit::Done);
    }
    let titles = ["QUEUE", "#WAITING", "#READY", "#CLAIMED", "#DONE", "#DEAD", "#CANCELLED"];
    let mut table = runner.output.new_table(&titles).spare(&["CANCELLED", "DONE", "WAITING"]);
    for queue in &queues {
        let counts = queue.counts.iter().map(Cell::new);
        table.add_row(std::iter::once(Cell::new(text::clean(queue.queue.as_str()))).chain(counts).collect::<Vec<_>>());
    }
    runner.output.table(&mut table)?;
    Ok(Exit::Done)
}

fn print_task<T: Transport>(runner: &mut Runner<T>, task: &TaskView) -> Result<(), Failure> {
    runner.recent().see_task(task);
    if runner.output.json() {
        return runner.output.object(&api::Task::from(task));
    }
    let now_ms = (runner.clock)();
    let output = &mut runner.output;
    let enqueued_ms = task.id.time_ms();
    output.line(&format!("id          {}", task.id))?;
    if let Some(text_id) = task.spec.text_id() {
        output.line(&format!("text id     {}", text::clean(&text_id.to_string())))?;
    }
    output.line(&format!("queue       {}", task.spec.queue))?;
    output.line(&format!("state       {}", output.state(task.state)))?;
    output.line(&format!("enqueued    {}, {}", text::relative(now_ms, enqueued_ms), text::instant(enqueued_ms)))?;
    if task.spec.not_before_ms > 0 {
        let not_before_ms = task.spec.not_before_ms;
        let relative = text::relative(now_ms, not_before_ms);
        output.line(&format!("not before  {relative}, {}", text::instant(not_before_ms)))?;
    }
    // Skip the delay of the enqueue, which is shown already.
    let next_ms = task.next_attempt_ms.filter(|next_ms| *next_ms != task.spec.not_before_ms);
    for (label, at_ms) in [("next try", next_ms), ("ended", task.ended_ms)] {
        if let Some(at_ms) = at_ms {
            output.line(&format!("{label:12}{}, {}", text::relative(now_ms, at_ms), text::instant(at_ms)))?;
        }
    }
    output.line(&format!("priority    {}", task.spec.priority))?;
    if let Some(version) = task.version {
        output.line(&format!("version     {version}"))?;
    }
    if task.spec.attempts_max > 0 {
        output.line(&format!("attempts    at most {}", task.spec.attempts_max))?;
    }
    if let Some(key) = &task.spec.key {
        output.line(&format!("key         {}", text::clean(key)))?;
    }
    print_ties(output, task)?;
    for (name, value) in &task.spec.headers {
        output.line(&format!("header      {}={}", text::clean(name), text::clean(value)))?;
    }
    if !task.spec.payload.is_empty() {
        output.line(&format!("data        {}", text::data(&task.spec.payload)))?;
    }
    print_end(output, task)?;
    print_losses(output, task)?;
    if task.conflict {
        output.sentence(12, "conflict    a client wrote two different values under one key")?;
    }
    if !task.claims.is_empty() {
        output.line("claims")?;
        print_claims(output, task, now_ms)?;
    }
    if !task.updates.is_empty() {
        output.line("log")?;
        print_updates(output, &task.updates, "  ")?;
    }
    if task.log_incomplete {
        output.sentence(2, "  more entries were written, which are shown once those before them are here")?;
    }
    Ok(())
}

/// Prints which parts of the task are lost.
fn print_losses(output: &mut Output, task: &TaskView) -> Result<(), Failure> {
    let Some(lost) = task.lost else { return Ok(()) };
    let has_ended = matches!(task.state, State::Done | State::Dead | State::Cancelled);
    let way =
        if has_ended { "`norn purge` removes the task" } else { "`norn cancel` and `norn purge` remove the task" };
    output.line(&format!("lost        {}: no replica that answered can read it back; {way}", lost.names().join(", ")))
}

/// Prints the task's relations to other tasks.
fn print_ties(output: &mut Output, task: &TaskView) -> Result<(), Failure> {
    for other in &task.spec.after {
        let label = if task.waits_for.contains(other) { "waits for " } else { "after     " };
        output.line(&format!("{label}  {other}"))?;
    }
    if let Some(member) = task.spec.grouping.as_ref().and_then(|grouping| grouping.member) {
        output.line(&format!("member      {} of {}", member.number, member.group))?;
    }
    if let Some(group) = &task.group {
        output.sentence(12, &format!("group       {}", progress(group)))?;
    }
    Ok(())
}

/// Prints the outcome of the task.
fn print_end(output: &mut Output, task: &TaskView) -> Result<(), Failure> {
    if let Some(result) = &task.result {
        output.line(&format!("result      {}", text::data(result)))?;
    }
    for (place, child) in task.children.iter().enumerate() {
        let label = if place == 0 { "children" } else { "" };
        output.line(&format!("{label:12}{child}"))?;
    }
    if task.children_open {
        output.line("            some of them are not enqueued yet")?;
    }
    if let Some(reason) = &task.reason {
        output.line(&format!("reason      {}", text::clean(reason)))?;
        if task.was_overruled() {
            let overruled = "            it was cancelled or given up for this, and its completion counts all the same";
            output.sentence(12, overruled)?;
        }
    }
    for copy in &task.redriven {
        output.line(&format!("redriven    as {copy}"))?;
    }
    Ok(())
}

fn print_claims(output: &mut Output, task: &TaskView, now_ms: u64) -> Result<(), Failure> {
    let reason = |claim: &ClaimView| claim.end.as_ref().and_then(|end| end.reason.as_deref()).map(text::clean);
    let reasons = task.claims.iter().any(|claim| reason(claim).is_some());
    let titles = ["  TOKEN", "STARTED", "ENDS", "OUTCOME", "WORKER", "REASON"];
    let count = titles.len() - usize::from(!reasons);
    let mut table = output.new_table(&titles[..count]).spare(&["STARTED"]);
    for claim in &task.claims {
        let started = Some(claim.start_ms).filter(|start_ms| *start_ms > 0);
        let cells = [
            Cell::new(format!("  {}", claim.token)),
            Cell::new(started.map_or("-".to_owned(), |start_ms| text::relative(now_ms, start_ms))),
            Cell::new(ends(task, claim, now_ms)),
            Cell::new(outcome(task, claim)),
            Cell::new(text::clean(&claim.worker)),
            Cell::new(reason(claim).unwrap_or_default()),
        ];
        table.add_row(cells.into_iter().take(count).collect::<Vec<_>>());
    }
    output.table(&mut table)?;
    for (claim, session) in task.claims.iter().filter_map(|claim| Some((claim, claim.session?))) {
        if task.runs(claim) {
            output.line(&format!("  {} ends with session {session} of its worker, or with its lease", claim.token))?;
        }
    }
    if task.claims.len() >= CLAIMS_SHOWN_MAX {
        output.line(&format!("  there may have been more claims: the latest {CLAIMS_SHOWN_MAX} are kept"))?;
    }
    for (claim, rejected) in task.claims.iter().filter_map(|claim| Some((claim, claim.rejected.as_ref()?))) {
        let result = rejected.result.as_ref().map_or_else(|| "nothing".to_owned(), |result| text::data(result));
        output.line(&format!("  {} was completed, which does not count, with  {result}", claim.token))?;
    }
    let counted = |claim: &&ClaimView| claim.completed_ms.is_some() && claim.rejected.is_none();
    let mut counted: Vec<&ClaimView> = task.claims.iter().filter(counted).collect();
    let Some(counts) = counted.pop() else { return Ok(()) };
    for claim in counted {
        let when = claim.completed_ms.map_or_else(String::new, |at_ms| text::relative(now_ms, at_ms));
        let (token, counts) = (claim.token, counts.token);
        output.line(&format!("  {token} was completed {when}, too: the result is that of {counts}"))?;
        if let Some(result) = claim.superseded.as_ref().and_then(|superseded| superseded.result.as_ref()) {
            output.line(&format!("  {token} was completed with  {}", text::data(result)))?;
        }
    }
    Ok(())
}

/// Formats when a claim ended, or when its lease ends.
fn ends(task: &TaskView, claim: &ClaimView, now_ms: u64) -> String {
    let ended_ms = claim.end.as_ref().map(|end| end.at_ms).or(claim.completed_ms);
    match ended_ms.or(claim.end_ms) {
        // The claim holds no more although its lease would still last: it ended at an unknown time.
        Some(end_ms) if ended_ms.is_none() && !task.runs(claim) && end_ms > now_ms => "over".to_owned(),
        Some(end_ms) => text::relative(now_ms, end_ms),
        None => "-".to_owned(),
    }
}

/// Returns the outcome of a claim, as far as the answering node knows.
fn outcome(task: &TaskView, claim: &ClaimView) -> &'static str {
    match &claim.end {
        Some(end) if end.outcome == ClaimOutcome::GivenUp => "given up",
        Some(end) => end.outcome.name(),
        None if claim.completed_ms.is_some() => "completed",
        None if task.runs(claim) => "running",
        None => "-",
    }
}

fn print_updates(output: &mut Output, updates: &[LogEntry], indent: &str) -> Result<(), Failure> {
    for entry in updates {
        output.line(&format!("{indent}{} #{}  {}", entry.token, entry.sequence, text::data(&entry.data)))?;
    }
    Ok(())
}
