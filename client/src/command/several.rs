//! Tasks that are chosen by what they are, to be changed together.
//!
//! They are looked for first, in pages, so that their number is known before the first of them is changed: a person or a program
//! says that number to confirm the change. What is enqueued meanwhile is not among them.

use super::error::{Exit, Failure};
use super::list::ListArguments;
use super::output::Output;
use super::{Runner, Transport, parse, text};
use crate::wire::{Error, ErrorCode, Request, State, TaskView};
use clap::Args;
use futures_util::{StreamExt, stream};
use serde::Serialize;

/// Most tasks that are changed by one command.
pub(super) const CHOSEN_MAX: usize = 100_000;
/// How a change is refused where others have changed the task since it was chosen.
const OVERTAKEN: [ErrorCode; 4] = [ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::Superseded, ErrorCode::Ended];
/// Requests that are under way at once.
const AT_ONCE: usize = 32;

/// Which tasks of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SeveralArguments {
    /// Those of this queue that have not ended and are as the options say; 100000 at most
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Of the queue, only those in this state: waiting, ready or claimed
    #[arg(long, value_name = "STATE", value_parser = parse::state(), hide_possible_values = true, requires = "queue")]
    pub state: Option<State>,
    /// Of the queue, only those with this key
    #[arg(long, value_name = "KEY", requires = "queue")]
    pub key: Option<String>,
    /// Of the queue, only those with this header; with several, those that have all of them
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse::header, requires = "queue")]
    pub headers: Vec<(String, String)>,
    /// Of the queue, only those enqueued longer ago than this
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, requires = "queue")]
    pub older: Option<u64>,
    /// Of the queue, only those enqueued within this time
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, requires = "queue")]
    pub newer: Option<u64>,
    /// Says how many tasks these are, and changes none
    #[arg(long, requires = "queue", conflicts_with = "confirm")]
    pub dry_run: bool,
    /// Changes them if they are this many, as --dry-run says
    #[arg(long, value_name = "N", value_parser = parse::whole(0, CHOSEN_MAX, 100), requires = "queue")]
    pub confirm: Option<usize>,
}

/// What came of it.
#[derive(Serialize)]
struct Outcome {
    chosen: usize,
    changed: usize,
}

impl SeveralArguments {
    /// Makes a request for each task that is chosen, is in one of the `states`, and for which `request` has one. `done` says what
    /// becomes of such a task: `cancelled`.
    pub(super) async fn each<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        (states, done): (&[State], &str),
        request: impl Fn(&TaskView) -> Option<Request>,
    ) -> Result<Exit, Failure> {
        let requests = self.choose(runner, states, request).await?;
        let chosen = requests.len();
        let are_chosen = text::number(chosen as u64, "task");
        if self.dry_run || chosen == 0 {
            let repeat = if chosen == 0 { String::new() } else { format!("; --confirm {chosen} does it") };
            return show(&mut runner.output, Outcome { chosen, changed: 0 }, &format!("{are_chosen} chosen{repeat}"));
        }
        if self.confirm != Some(chosen) {
            let message =
                format!("{are_chosen} chosen, and none {done}: repeat it with --confirm {chosen} if that is right");
            return Err(Error::new(ErrorCode::Conflict, message).into());
        }
        let changed = carry_out(runner, requests, done).await?;
        let line = match chosen - changed {
            0 => format!("{are_chosen} {done}"),
            left => format!("{changed} of {are_chosen} {done}; {left} had ended or changed hands meanwhile"),
        };
        show(&mut runner.output, Outcome { chosen, changed }, &line)
    }

    async fn choose<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        states: &[State],
        request: impl Fn(&TaskView) -> Option<Request>,
    ) -> Result<Vec<Request>, Failure> {
        if self.state.is_some_and(|state| !states.contains(&state)) {
            let names: Vec<String> = states.iter().map(State::to_string).collect();
            return Err(Failure::Usage(format!("--state is one of: {}", names.join(", "))));
        }
        let mut chosen = Vec::new();
        let list = ListArguments {
            queue: self.queue.clone(),
            state: self.state.or(if let [only] = states { Some(*only) } else { None }),
            key: self.key.clone(),
            headers: self.headers.clone(),
            older: self.older,
            newer: self.newer,
            ..ListArguments::default()
        };
        let mut take = |task: &TaskView| {
            chosen.extend(request(task).filter(|_| states.contains(&task.state)));
            chosen.len() < CHOSEN_MAX
        };
        match list.each(runner, &mut take).await? {
            true => Ok(chosen),
            false => {
                let message = format!(
                    "more than {CHOSEN_MAX} tasks would have to be looked at: choose fewer with --older or --newer"
                );
                Err(Failure::invalid(message))
            }
        }
    }
}

/// How many of the requests had an effect. A failure that is not due to one task alone ends it, and says how many had before.
async fn carry_out<T: Transport>(runner: &Runner<T>, requests: Vec<Request>, done: &str) -> Result<usize, Failure> {
    let (chosen, mut changed) = (requests.len(), 0);
    let answers = stream::iter(requests).map(|request| runner.request(request)).buffer_unordered(AT_ONCE);
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(_) => changed += 1,
            Err(Failure::Call(error)) if OVERTAKEN.contains(&error.code) => {}
            Err(Failure::Call(error)) => {
                let message = format!("{changed} of {chosen} tasks {done} before this failure: {}", error.message);
                return Err(Failure::Call(Error { message, ..error }));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(changed)
}

fn show(output: &mut Output, outcome: Outcome, line: &str) -> Result<Exit, Failure> {
    match output.json() {
        true => output.object(&outcome)?,
        false => output.line(line)?,
    }
    Ok(Exit::Done)
}
