//! Tasks that are chosen by what they are, to be changed together.
//!
//! They are looked for first, in pages, so that their number is known before the first of them is changed: a person or a program
//! says that number to confirm the change. What is enqueued meanwhile is not among them.

use super::error::{Exit, Failure};
use super::list::ListArguments;
use super::output::Output;
use super::{Runner, Transport, parse, text};
use clap::Args;
use norn_client::client::choosing::{carry_out, each};
use norn_client::client::walk::{LOOKED_MAX, Walk};
use norn_wire::{Error, ErrorCode, Request, State, TaskView};
use serde::Serialize;

/// Which tasks of a queue. With an id, none of this means anything: `requires` alone does not refuse it, as a queue and an id exclude
/// each other.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SeveralArguments {
    /// Without an id, those of this queue to which it can be done and that are as the options say; of at most 100000, or fewer that
    /// are large
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Of the queue, only those in this state, or in one of several; `cancel` takes waiting, ready and claimed, `release` claimed,
    /// `purge` done, dead and cancelled
    #[arg(
        long = "state", value_name = "STATE", value_parser = parse::state(),
        hide_possible_values = true, requires = "queue", conflicts_with = "id"
    )]
    pub states: Vec<State>,
    /// Of the queue, only those with this key
    #[arg(long, value_name = "KEY", requires = "queue", conflicts_with = "id")]
    pub key: Option<String>,
    /// Of the queue, only those with this header; with several, those that have all of them
    #[arg(
        long = "header", value_name = "NAME=VALUE", value_parser = parse::header,
        requires = "queue", conflicts_with = "id"
    )]
    pub headers: Vec<(String, String)>,
    /// Of the queue, only those whose last attempt failed with this text in its reason, of which the first 256 bytes are kept
    #[arg(long, value_name = "TEXT", requires = "queue", conflicts_with = "id", allow_hyphen_values = true)]
    pub failed_with: Option<String>,
    /// Of the queue, only those enqueued longer ago than this
    #[arg(
        long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub older: Option<u64>,
    /// Of the queue, only those enqueued within this time
    #[arg(
        long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub newer: Option<u64>,
    /// Says how many tasks these are, and changes none
    #[arg(long, requires = "queue", conflicts_with_all = ["id", "confirm"])]
    pub dry_run: bool,
    /// Changes them if they are this many, as --dry-run says; without this, none
    #[arg(
        long, value_name = "N", value_parser = parse::whole(0, LOOKED_MAX as usize, 100), allow_negative_numbers = true,
        requires = "queue", conflicts_with = "id"
    )]
    pub confirm: Option<usize>,
}

/// Tasks that can be cancelled.
pub(crate) const OPEN: &[State] = &[State::Waiting, State::Ready, State::Claimed];
/// Tasks that can be released.
pub(crate) const HELD: &[State] = &[State::Claimed];
/// Tasks that can be purged.
pub(crate) const OVER: &[State] = &[State::Done, State::Dead, State::Cancelled];

/// What came of it.
#[derive(Serialize)]
struct Outcome {
    chosen: usize,
    changed: usize,
}

/// What is done to tasks that are chosen.
pub(super) struct Change {
    /// States of tasks to which it can be done.
    pub states: &'static [State],
    /// Only those that ended for a reason with this text in it.
    pub ended_with: Option<String>,
    /// What is told of such a task then: `cancelled`.
    pub done: &'static str,
    /// What is told of those to which it could not be done any more.
    pub left: &'static str,
    /// The state that only this change brings about, where a node acknowledges it whatever the task is.
    pub brings: Option<State>,
}

impl SeveralArguments {
    /// Makes a request for each task that is chosen, and for which `request` has one.
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
        if chosen == 0 {
            // Whatever number was confirmed: a change that is repeated finds none any more.
            return show(&mut runner.output, Outcome { chosen, changed: 0 }, "no task matches");
        }
        if self.dry_run {
            let line = format!("{are_chosen} chosen; --confirm {chosen} does it");
            return show(&mut runner.output, Outcome { chosen, changed: 0 }, &line);
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
        show(&mut runner.output, Outcome { chosen, changed }, &line)
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

fn show(output: &mut Output, outcome: Outcome, line: &str) -> Result<Exit, Failure> {
    match output.json() {
        true => output.object(&outcome)?,
        false => output.line(line)?,
    }
    Ok(Exit::Done)
}
