//! Changes of many tasks, chosen by their properties.
//!
//! The tasks are collected first, page by page, so that their number is known before the first one is changed: the caller confirms the
//! change with that number. Tasks enqueued meanwhile are not included.

use super::error::{Exit, Failure};
use super::list::ListArguments;
use super::output::Output;
use super::{Runner, Transport, parse, text};
use clap::Args;
use norn_client::api::BulkOutcome;
use norn_client::client::choosing::{carry_out, each};
use norn_client::client::walk::{LOOKED_MAX, Walk};
use norn_wire::{Error, ErrorCode, Request, State, TaskView};

/// Choice of tasks of a queue. With an id, all of these are invalid: `requires` alone does not refuse them, since a queue and an id
/// exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SeveralArguments {
    /// Instead of an id: all tasks of this queue that the verb can change and that match the options; at most 100000, fewer if they are
    /// large
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Of the queue, only tasks in this state; can be repeated. `cancel` accepts waiting, ready and claimed, `release` claimed, `purge`
    /// done, dead and cancelled
    #[arg(
        long = "state", value_name = "STATE", value_parser = parse::state(),
        hide_possible_values = true, requires = "queue", conflicts_with = "id"
    )]
    pub states: Vec<State>,
    /// Of the queue, only tasks with this key
    #[arg(long, value_name = "KEY", requires = "queue", conflicts_with = "id")]
    pub key: Option<String>,
    /// Of the queue, only tasks with this header; if repeated, with all of them
    #[arg(
        long = "header", value_name = "NAME=VALUE", value_parser = parse::header,
        requires = "queue", conflicts_with = "id"
    )]
    pub headers: Vec<(String, String)>,
    /// Of the queue, only tasks whose last attempt failed with this text in its reason, of which the first 256 bytes are kept
    #[arg(long, value_name = "TEXT", requires = "queue", conflicts_with = "id", allow_hyphen_values = true)]
    pub failed_with: Option<String>,
    /// Of the queue, only tasks enqueued longer ago than this
    #[arg(
        long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub older: Option<u64>,
    /// Of the queue, only tasks enqueued within this time
    #[arg(
        long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub newer: Option<u64>,
    /// Report how many tasks match, and change none
    #[arg(long, requires = "queue", conflicts_with_all = ["id", "confirm"])]
    pub dry_run: bool,
    /// Change them if they are this many, as --dry-run reports; without this, change none
    #[arg(
        long, value_name = "N", value_parser = parse::whole(0, LOOKED_MAX as usize, 100), allow_negative_numbers = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub confirm: Option<usize>,
}

/// States in which a task can be cancelled.
pub(crate) const OPEN: &[State] = &[State::Waiting, State::Ready, State::Claimed];
/// States in which a task can be released.
pub(crate) const HELD: &[State] = &[State::Claimed];
/// States in which a task can be purged.
pub(crate) const OVER: &[State] = &[State::Done, State::Dead, State::Cancelled];

/// Change of the chosen tasks.
pub(super) struct Change {
    /// States in which a task can be changed so.
    pub states: &'static [State],
    /// Only tasks that ended with this text in the reason.
    pub ended_with: Option<String>,
    /// Past participle for changed tasks, such as `cancelled`.
    pub done: &'static str,
    /// Text for tasks that could not be changed any more.
    pub left: &'static str,
    /// State that only this change causes, for a change that a node acknowledges whatever the task's state.
    pub brings: Option<State>,
}

impl SeveralArguments {
    /// Sends a request for each chosen task for which `request` returns one.
    pub(super) async fn each<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        change: Change,
        request: impl Fn(&TaskView) -> Option<Request>,
    ) -> Result<Exit, Failure> {
        let done = change.done;
        let requests = self.choose(runner, &change, request).await?;
        let chosen = requests.len();
        let are_chosen = text::number(chosen as u64, "task");
        let outcome = |changed| BulkOutcome { chosen: chosen as u64, changed };
        if chosen == 0 {
            // Any confirmed number is accepted here: a repeat of the change finds no task any more.
            return show(&mut runner.output, outcome(0), "no task matches");
        }
        if self.dry_run {
            let line = format!("{are_chosen} chosen; --confirm {chosen} does it");
            return show(&mut runner.output, outcome(0), &line);
        }
        if self.confirm != Some(chosen) {
            let message =
                format!("{are_chosen} chosen, and none {done}: repeat it with --confirm {chosen} if that is right");
            return Err(Error::new(ErrorCode::Conflict, message).into());
        }
        let changed = carry_out(&*runner, requests, done, change.brings).await?;
        let line = match chosen - changed {
            0 => format!("{are_chosen} {done}"),
            left => format!("{changed} of {are_chosen} {done}; {left} {}", change.left),
        };
        show(&mut runner.output, outcome(changed as u64), &line)
    }

    async fn choose<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        change: &Change,
        request: impl Fn(&TaskView) -> Option<Request>,
    ) -> Result<Vec<Request>, Failure> {
        let states = change.states;
        if self.states.iter().any(|state| !states.contains(state)) {
            let names: Vec<String> = states.iter().map(State::to_string).collect();
            return Err(Failure::Usage(format!("--state is one of: {}", names.join(", "))));
        }
        let states = if self.states.is_empty() { states } else { &self.states };
        let mut chosen = Vec::new();
        let list = ListArguments {
            queue: self.queue.clone(),
            state: if let [only] = states { Some(*only) } else { None },
            key: self.key.clone(),
            headers: self.headers.clone(),
            reason: change.ended_with.clone(),
            failed_with: self.failed_with.clone(),
            older: self.older,
            newer: self.newer,
            ..ListArguments::default()
        };
        let take = |task: &TaskView| chosen.extend(request(task).filter(|_| states.contains(&task.state)));
        let walk = Walk::new(list.options(runner).await?, (runner.clock)());
        each(&*runner, walk, "with --state, --older or --newer", take).await?;
        Ok(chosen)
    }
}

fn show(output: &mut Output, outcome: BulkOutcome, line: &str) -> Result<Exit, Failure> {
    match output.json() {
        true => output.object(&outcome)?,
        false => output.line(line)?,
    }
    Ok(Exit::Done)
}
