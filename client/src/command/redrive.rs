//! `redrive`: dead tasks once more, and letters back to where they came from.

use super::enqueue::print_acked;
use super::error::{Exit, Failure};
use super::output::Output;
use super::parse::{self, DurabilityArguments};
use super::runner::{only, unexpected};
use super::{Call, Draft, Finish, Runner, Transport, json, tasks, text};
use crate::wire::limits::{LEASE_MS_DEFAULT, LIST_PAGE_MAX};
use crate::wire::response::Acked;
use crate::wire::{
    Claim, ClaimId, Completion, Error, ErrorCode, Granted, QueueName, Request, Response, Spec, State, TaskId, TaskView,
    headers,
};
use clap::Args;
use serde::Serialize;

/// Letters that are taken at once.
const LETTERS: u32 = 32;

/// Enqueues dead tasks again, each as a new task, at once and with all its attempts
///
/// The dead task stays as it is, and `get` shows its copy. A task is redriven once: whoever asks again is told of the copy that
/// there is, or of the letter, and a copy that dies is redriven itself.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RedriveArguments {
    /// Dead tasks
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "letters"], conflicts_with_all = ["queue", "letters"])]
    pub ids: Vec<String>,
    /// All that are dead in this queue, and were not redriven before
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// All letters of dead tasks that are ready in this queue, back to the queues where these died
    #[arg(long, value_name = "QUEUE", conflicts_with = "queue")]
    pub letters: Option<String>,
    /// Only those with this in the reason of their death
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["ids", "letters"])]
    pub reason: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 100), conflicts_with = "ids")]
    pub limit: Option<u64>,
    /// To this queue
    #[arg(long, value_name = "QUEUE")]
    pub to: Option<String>,
    /// How safe it is before the answer.
    #[command(flatten)]
    pub durability: DurabilityArguments,
}

impl RedriveArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let to = parse::queue_if_any(self.to.as_ref())?;
        let limit = self.limit.unwrap_or(u64::MAX);
        if let Some(letters) = parse::queue_if_any(self.letters.as_ref())? {
            let redriven = self.letters(runner, &letters, to.as_ref(), limit).await?;
            return end(runner, redriven, "letter", "that is ready");
        }
        if let Some(queue) = parse::queue_if_any(self.queue.as_ref())? {
            let redriven = self.dead(runner, &queue, to.as_ref(), limit).await?;
            return end(runner, redriven, "dead task", "without a copy or a letter");
        }
        for id in &self.ids {
            let id = runner.resolve_target(id).await?;
            match tasks::get(runner, id, None).await?.redriven.first() {
                Some(copy) => show_copy(runner, (id, *copy), to.as_ref()).await?,
                None => self.one(runner, id, to.as_ref()).await?,
            }
        }
        runner.output.end_rows()?;
        Ok(Exit::Done)
    }

    async fn one<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        id: TaskId,
        to: Option<&QueueName>,
    ) -> Result<(), Failure> {
        let request = Request::Redrive { id, child: TaskId::MIN, queue: to.cloned(), acks: self.durability.acks };
        let Response::AckedOne(acked) = runner.request(request).await? else {
            return Err(unexpected("redrive"));
        };
        runner.recent().see(acked.id);
        show_acked(&mut runner.output, &format!("redrove {id} as"), &acked)
    }

    async fn dead<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        queue: &QueueName,
        to: Option<&QueueName>,
        limit: u64,
    ) -> Result<u64, Failure> {
        let (mut redriven, mut after) = (0, None);
        let chosen = |task: &TaskView| {
            let reason = task.reason.as_deref().unwrap_or_default();
            task.redriven.is_empty() && self.reason.as_deref().is_none_or(|wanted| reason.contains(wanted))
        };
        while redriven < limit {
            let (queue, state) = (Some(queue.clone()), Some(State::Dead));
            let request = Request::List { queue, state, after, from: None, to: None, limit: LIST_PAGE_MAX };
            let Response::Page(page) = runner.request(request).await? else {
                return Err(unexpected("list"));
            };
            let left = usize::try_from(limit - redriven).unwrap_or(usize::MAX);
            for task in page.tasks.iter().filter(|task| chosen(task)).take(left) {
                self.one(runner, task.id, to).await?;
                redriven += 1;
            }
            if page.next.is_none() || page.next <= after {
                break;
            }
            after = page.next;
        }
        Ok(redriven)
    }

    /// A letter is claimed, and completed with the task that it tells of: so nobody else does so meanwhile, and nothing is lost
    /// between the one and the other.
    async fn letters<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        queue: &QueueName,
        to: Option<&QueueName>,
        limit: u64,
    ) -> Result<u64, Failure> {
        let mut redriven = 0;
        while redriven < limit {
            let claim = Claim {
                claim: ClaimId(0),
                repeated: false,
                queues: vec![queue.clone()],
                lease_ms: LEASE_MS_DEFAULT,
                wait_ms: 0,
                max: u64::from(LETTERS).min(limit - redriven) as u32,
                worker: "redrive".to_owned(),
                lease_open: true,
                session: None,
                depends: Vec::new(),
                confirms: false,
            };
            let response = runner.request(Request::Claim(claim)).await?;
            let Response::Claimed { tasks: granted, unavailable } = response else {
                return Err(unexpected("claim"));
            };
            if granted.is_empty() && unavailable > 0 {
                let (done, unasked) = (text::number(redriven, "letter"), text::unasked(unavailable));
                return Err(Error::unavailable(format!("{done} redriven, but {unasked}; ask again for more")).into());
            }
            if granted.is_empty() {
                break;
            }
            let mut strange = None;
            let mut granted = granted.into_iter();
            while let Some(task) = granted.next() {
                match self.send_back(runner, &task, to).await {
                    Ok(true) => redriven += 1,
                    Ok(false) => {
                        strange = Some(task.id);
                        release(runner, &task).await?;
                    }
                    Err(failure) => {
                        // Nobody is to wait for leases of letters that nobody works on.
                        for task in std::iter::once(task).chain(granted) {
                            drop(release(runner, &task).await);
                        }
                        return Err(failure);
                    }
                }
            }
            if let Some(id) = strange {
                let message = format!("task {id} in {queue} is no letter; take such tasks out first");
                return Err(Failure::invalid(message));
            }
        }
        Ok(redriven)
    }

    /// Whether it is a letter.
    async fn send_back<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        task: &Granted,
        to: Option<&QueueName>,
    ) -> Result<bool, Failure> {
        // A grant does not tell all that the task was.
        let letter = tasks::get(runner, task.id, None).await?;
        let Some(draft) = written_back(&letter.spec, to) else { return Ok(false) };
        self.write_back(runner, task, draft).await?;
        Ok(true)
    }

    async fn write_back<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        letter: &Granted,
        draft: Draft,
    ) -> Result<(), Failure> {
        let (id, token) = (letter.id, letter.token);
        let completion = Completion { id, token, sequence: None, result: None, at_ms: 0, children: Vec::new() };
        let queue = draft.spec.queue.clone();
        let items = vec![Finish { completion, children: vec![draft] }];
        let Response::Acked(results) = runner.call(Call::Complete { items, acks: self.durability.acks }).await? else {
            return Err(unexpected("complete"));
        };
        let acked = only("complete", results)?;
        show_acked(&mut runner.output, &format!("sent back to {queue}, and done is letter"), &acked)
    }
}

/// One of several.
pub(super) fn show_acked(output: &mut Output, done: &str, acked: &Acked) -> Result<(), Failure> {
    if output.json() { output.row(&json::acked(acked)) } else { print_acked(output, done, acked) }
}

/// A copy that there was before.
#[derive(Serialize)]
struct Existing<'a> {
    id: String,
    existing: bool,
    queue: Option<&'a str>,
    state: Option<String>,
    /// It is the dead letter of the task, not a copy that was asked for.
    letter: bool,
}

/// A task that was redriven is not redriven again: shows its copy, or the letter that tells of it.
async fn show_copy<T: Transport>(
    runner: &mut Runner<T>,
    (id, copy): (TaskId, TaskId),
    to: Option<&QueueName>,
) -> Result<(), Failure> {
    let task = match tasks::get(runner, copy, None).await {
        Err(Failure::Call(error)) if error.code == ErrorCode::NotFound => None,
        found => Some(found?),
    };
    let is = match &task {
        Some(task) => format!("{copy} in {}, {}", task.spec.queue, task.state),
        None => format!("{copy}, which has ended and is forgotten"),
    };
    if to.is_some_and(|to| task.as_ref().is_none_or(|task| task.spec.queue != *to)) {
        let message =
            format!("task {id} was redriven before: there is {is}; redrive that if it dies, or enqueue a new one");
        return Err(Error::new(ErrorCode::Conflict, message).about(id).into());
    }
    let letter = task.as_ref().filter(|task| task.spec.header(headers::DEAD_TASK) == Some(&id.to_string()));
    if runner.output.json() {
        let state = task.as_ref().map(|task| task.state.to_string());
        let queue = task.as_ref().map(|task| task.spec.queue.as_str());
        return runner.output.row(&Existing {
            id: copy.to_string(),
            existing: true,
            queue,
            state,
            letter: letter.is_some(),
        });
    }
    if let Some(letter) = letter {
        runner.output.line(&format!("the dead letter of {id} is out already: there is {is}"))?;
        if !tasks::has_ended(letter.state) {
            let queue = &letter.spec.queue;
            runner.output.line(&format!("  `redrive --letters {queue}` sends all that are ready there back"))?;
        }
        return Ok(());
    }
    runner.output.line(&format!("{id} was redriven before: there is {is}"))
}

async fn release<T: Transport>(runner: &mut Runner<T>, task: &Granted) -> Result<(), Failure> {
    runner.request(Request::Release { id: task.id, token: task.token }).await.map(drop)
}

/// The task that a letter tells of; nothing, if it is none.
fn written_back(letter: &Spec, to: Option<&QueueName>) -> Option<Draft> {
    let died = letter.header(headers::DEAD_TASK)?.to_owned();
    let queue = match to {
        Some(queue) => queue.clone(),
        None => QueueName::new(letter.header(headers::DEAD_QUEUE)?).ok()?,
    };
    let own = letter.headers.iter().filter(|(name, _)| !headers::TOLD.contains(&name.as_str())).cloned();
    let headers = own.chain([(headers::REDRIVEN_FROM.to_owned(), died)]).collect();
    let spec = Spec { queue, headers, not_before_ms: 0, after: Vec::new(), ..letter.clone() };
    Some(Draft { id: None, spec, delay_ms: 0, near: None })
}

/// `without` says which of them do not count.
fn end<T: Transport>(runner: &mut Runner<T>, redriven: u64, what: &str, without: &str) -> Result<Exit, Failure> {
    runner.output.end_rows()?;
    if redriven == 0 && !runner.output.json() {
        runner.output.line(&format!("nothing to redrive: there is no such {what} {without}"))?;
    } else if !runner.output.json() {
        runner.output.line(&format!("{} redriven", text::number(redriven, what)))?;
    }
    Ok(Exit::Done)
}
