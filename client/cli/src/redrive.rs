//! `redrive`: enqueues dead tasks again, and sends dead letters back to the queues of their tasks.

use super::each::each;
use super::enqueue::print_acked;
use super::error::{Exit, Failure};
use super::output::Output;
use super::parse::{self, DurabilityArguments};
use super::{Runner, Transport, text};
use clap::Args;
use norn_client::api;
use norn_client::client::calling::has_ended;
use norn_client::client::letters::Sending;
use norn_client::client::redriving::{Dead, Existing, Redriven, redrive_once};
use norn_client::client::why::{Hindrance, hindrance};
use norn_client::client::{LetterOptions, RedriveOptions, SentBack};
use norn_client::session::CopyId;
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::{Acked, Error, ErrorCode, QueueName, Request, Response, State, TaskId};

/// Arguments of `redrive`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RedriveArguments {
    /// Dead tasks; each is tried, even if others fail
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "letters"], conflicts_with_all = ["queue", "letters"])]
    pub ids: Vec<String>,
    /// Instead of ids: all dead tasks of this queue that were not redriven before
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Instead of ids: all ready dead letters of this queue, back to the queues where their tasks died
    #[arg(long, value_name = "QUEUE", conflicts_with = "queue")]
    pub letters: Option<String>,
    /// Only tasks with this text in the reason of their death
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ids", "letters"])]
    pub reason: Option<String>,
    /// At most this many; all if left out
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 100), allow_negative_numbers = true, conflicts_with = "ids")]
    pub limit: Option<u64>,
    /// Report how many dead tasks of the queue match, and enqueue none
    #[arg(long, requires = "queue", conflicts_with_all = ["ids", "letters"])]
    pub dry_run: bool,
    /// Queue for the copies; if left out, the queue where the task died
    #[arg(long, value_name = "QUEUE")]
    pub to: Option<String>,
    /// Id of the copy in an earlier call for this task whose outcome is unknown and that is repeated; a new copy if left out
    #[arg(long, value_name = "ID", conflicts_with_all = ["queue", "letters"])]
    pub id: Option<String>,
    /// Durability of the write.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl RedriveArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let to = parse::queue_if_any(self.to.as_ref())?;
        let limit = self.limit.unwrap_or(u64::MAX);
        if let Some(letters) = parse::queue_if_any(self.letters.as_ref())? {
            let redriven = self.letters(runner, letters.clone(), to, limit).await?;
            if redriven < limit
                && let Some(held) = Held::look(runner, &letters).await
            {
                return held.end(runner, redriven);
            }
            return end(runner, redriven, "letter", "that is ready");
        }
        if let Some(queue) = parse::queue_if_any(self.queue.as_ref())? {
            if self.dry_run {
                return preview(runner, self.chosen(queue, to).count(&*runner, limit).await?);
            }
            let redriven = self.dead(runner, queue, to, limit).await?;
            return end(runner, redriven, "dead task", "without a copy or a letter");
        }
        let copy = self.id.as_deref().map(|text| runner.resolve_repeated(text)).transpose()?;
        if copy.is_some() && self.ids.len() > 1 {
            return Err(Failure::Usage("--id names the copy of one task; give one".to_owned()));
        }
        api::each_once("the tasks", &self.ids, |id| text::clean(id)).map_err(|error| Failure::Usage(error.0))?;
        each(runner, &self.ids, async |runner: &mut Runner<T>, id: &str| {
            let id = runner.resolve_target(id).await?;
            let copy = copy.map(CopyId::from).unwrap_or_default();
            let redriven = redrive_once(&*runner, id, &copy, to.clone(), self.durability.acks).await;
            match redriven.map_err(|error| repeated(error, Some(id)))? {
                Redriven::Now(copy) => show_redriven(runner, id, &copy),
                Redriven::Before(existing) => show_existing(runner, id, &existing, to.as_ref()),
            }
        })
        .await
    }

    fn chosen(&self, queue: QueueName, to: Option<QueueName>) -> Dead {
        let reason = self.reason.clone();
        Dead::new(RedriveOptions { queue, reason, to, acks: self.durability.acks }, LIST_PAGE_MAX)
    }

    async fn dead<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        queue: QueueName,
        to: Option<QueueName>,
        limit: u64,
    ) -> Result<u64, Failure> {
        let (mut dead, mut redriven) = (self.chosen(queue, to), 0);
        while redriven < limit
            && let Some((id, copy)) = dead.next(&*runner).await.map_err(|error| repeated(error, dead.open()))?
        {
            show_redriven(runner, id, &copy)?;
            redriven += 1;
        }
        Ok(redriven)
    }

    async fn letters<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        letters: QueueName,
        to: Option<QueueName>,
        limit: u64,
    ) -> Result<u64, Failure> {
        let mut sending = Sending::new(LetterOptions { letters, to, limit, acks: self.durability.acks });
        while let Some(sent) = sending.next_or_leave(&*runner).await? {
            runner.recent().see(sent.acked.id);
            sent.task.iter().for_each(|task| runner.recent().see(*task));
            show_sent(&mut runner.output, &sent).inspect_err(|_| sending.leave(&*runner))?;
        }
        Ok(sending.sent)
    }
}

/// For an unknown outcome, adds the command that repeats the call with the same copy.
fn repeated(error: Error, dead: Option<TaskId>) -> Error {
    match (error.code, error.id, dead) {
        (ErrorCode::Unknown, Some(copy), Some(dead)) if copy != dead => {
            Error { message: format!("{}; `redrive {dead} --id {copy}` repeats it", error.message), ..error }
        }
        _ => error,
    }
}

fn show_redriven<T: Transport>(runner: &mut Runner<T>, id: TaskId, copy: &Acked) -> Result<(), Failure> {
    runner.recent().see(copy.id);
    show_acked(&mut runner.output, &format!("redrove {id} as"), copy)
}

fn show_sent(output: &mut Output, sent: &SentBack) -> Result<(), Failure> {
    let SentBack { queue, acked, task } = sent;
    if output.json() {
        return output.row(&api::LetterAck { letter: acked.into(), task: *task, queue: queue.clone() });
    }
    let named = task.map_or_else(String::new, |task| format!(" as {task}"));
    print_acked(output, &format!("sent back to {queue}{named}, and done is letter"), acked)
}

/// Prints one of several confirmations.
pub(super) fn show_acked(output: &mut Output, done: &str, acked: &Acked) -> Result<(), Failure> {
    if output.json() { output.row(&api::WriteAck::from(acked)) } else { print_acked(output, done, acked) }
}

/// Reports that a task was redriven before and is not redriven again: shows its copy or its dead letter.
fn show_existing<T: Transport>(
    runner: &mut Runner<T>,
    id: TaskId,
    existing: &Existing,
    to: Option<&QueueName>,
) -> Result<(), Failure> {
    let (copy, task) = (existing.id, existing.task.as_ref());
    runner.recent().see(copy);
    task.into_iter().for_each(|task| runner.recent().see_queue(&task.spec.queue));
    let is = match task {
        Some(task) => format!("{copy} in {}, {}", task.spec.queue, task.state),
        None => format!("{copy}, which has ended and is forgotten"),
    };
    if to.is_some_and(|to| task.is_none_or(|task| task.spec.queue != *to)) {
        let message =
            format!("task {id} was redriven before: there is {is}; redrive that if it dies, or enqueue a new one");
        return Err(Error::new(ErrorCode::Conflict, message).about(id).into());
    }
    if runner.output.json() {
        return runner.output.row(&api::ExistingCopy {
            id: copy,
            existing: true,
            queue: task.map(|task| task.spec.queue.clone()),
            state: task.map(|task| task.state),
            letter: existing.letter,
        });
    }
    if let Some(letter) = task.filter(|_| existing.letter) {
        runner.output.line(&format!("the dead letter of {id} is out already: there is {is}"))?;
        if !has_ended(letter.state) {
            let queue = &letter.spec.queue;
            runner.output.line(&format!("  `redrive --letters {queue}` sends all that are ready there back"))?;
        }
        return Ok(());
    }
    runner.output.line(&format!("{id} was redriven before: there is {is}"))
}

/// Ready dead letters that are not granted, because their queue is paused or limits its claims.
struct Held {
    ready: u64,
    hindrance: Hindrance,
}

impl Held {
    /// Looks for what holds the letters back; asks for their number only if a setting of the queue does.
    async fn look<T: Transport>(runner: &Runner<T>, letters: &QueueName) -> Option<Held> {
        let hindrance = hindrance(runner, letters).await?;
        let count = Request::Count { queue: Some(letters.clone()), state: Some(State::Ready) };
        match runner.request(count).await {
            Ok(Response::Count(ready @ 1..)) => Some(Held { ready, hindrance }),
            _ => None,
        }
    }

    /// Ends the command: if nothing was redriven, with the exit code of a claim that found no task.
    fn end<T: Transport>(self, runner: &mut Runner<T>, redriven: u64) -> Result<Exit, Failure> {
        let Held { ready, hindrance: Hindrance { cause, text: explanation } } = self;
        let (letters, clean) = (text::number(ready, "letter"), text::clean(&explanation));
        if runner.output.json() {
            let (cause, explanation) = (cause.into(), explanation.into());
            runner.output.row(&api::HeldLetters { redriven, ready, cause, explanation })?;
        } else {
            let done = if redriven == 0 { "nothing".to_owned() } else { text::number(redriven, "letter") };
            let are = if ready == 1 { "is" } else { "are" };
            runner.output.line(&format!("{done} redriven, and not yet {letters} that {are} ready: {clean}"))?;
        }
        runner.output.end_rows()?;
        Ok(if redriven == 0 { Exit::NothingToClaim } else { Exit::Done })
    }
}

fn preview<T: Transport>(runner: &mut Runner<T>, chosen: u64) -> Result<Exit, Failure> {
    if runner.output.json() {
        runner.output.row(&api::BulkOutcome { chosen, changed: 0 })?;
        runner.output.end_rows()?;
        return Ok(Exit::Done);
    }
    if chosen == 0 {
        return end(runner, 0, "dead task", "without a copy or a letter");
    }
    let chosen = text::number(chosen, "dead task");
    runner.output.line(&format!("{chosen} chosen; the same without --dry-run enqueues them again"))?;
    Ok(Exit::Done)
}

/// Ends the command. `without` names the tasks that do not count.
fn end<T: Transport>(runner: &mut Runner<T>, redriven: u64, what: &str, without: &str) -> Result<Exit, Failure> {
    runner.output.end_rows()?;
    if redriven == 0 && !runner.output.json() {
        runner.output.line(&format!("nothing to redrive: there is no such {what} {without}"))?;
    } else if !runner.output.json() {
        runner.output.line(&format!("{} redriven", text::number(redriven, what)))?;
    }
    Ok(Exit::Done)
}
