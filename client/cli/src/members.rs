//! `members`: the tasks of a group, and the outcome of each.

use super::error::{Exit, Failure};
use super::output::state_cell;
use super::runner::unexpected;
use super::{Runner, Transport, parse, tasks, text};
use clap::Args;
use comfy_table::Cell;
use norn_client::api;
use norn_wire::group::MemberOf;
use norn_wire::{Error, ErrorCode, Request, Response, TaskView};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// Default number of rows for people.
const LIMIT_DEFAULT: u64 = 100;
/// Members that are read concurrently.
const READS_MAX: usize = 64;
/// Longest wait for the end of a member to reach a majority, once the join has received it.
const END_MS: u64 = 10_000;
const PREVIEW_CHARACTERS: usize = 60;

/// Arguments of `members`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct MembersArguments {
    /// Join of the group
    #[arg(value_name = "ID")]
    pub id: String,
    /// At most this many; if left out, 100 for people, and all with --json
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 1_000), allow_negative_numbers = true)]
    pub limit: Option<u64>,
}

impl MembersArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let group = runner.resolve(&self.id).await?;
        let Some(view) = tasks::get(runner, group, None).await?.group else {
            return Err(Error::invalid("the task is no join of a group").about(group).into());
        };
        let Some(total) = view.total else {
            runner.output.end_rows()?;
            runner
                .output
                .note("how many members there are is not known yet: `enqueue --total` on one of them says so")?;
            return Ok(Exit::Done);
        };
        let limit = self.limit.unwrap_or(if runner.output.json() { u64::MAX } else { LIMIT_DEFAULT });
        let shown = u32::try_from(limit).map_or(total, |limit| limit.min(total));
        let numbers: Vec<u32> = (1..=shown).collect();
        let mut table = runner.output.new_table(&["#NUMBER", "ID", "STATE", "RESULT"]).spare(&["RESULT"]).one_line();
        for numbers in numbers.chunks(READS_MAX) {
            let ended = view.ended >= total;
            let reads = numbers.iter().map(|number| read(runner, MemberOf { group, number: *number }, ended)).collect();
            for (number, task) in numbers.iter().zip(together(reads).await) {
                let (of, task) = (MemberOf { group, number: *number }, task?);
                runner.recent().see(of.id());
                match runner.output.json() {
                    true => runner.output.row(&api::GroupMember::new(of, task.as_ref()))?,
                    false => drop(table.add_row(cells(of, task.as_ref()))),
                }
            }
        }
        if runner.output.json() {
            runner.output.end_rows()?;
            return Ok(Exit::Done);
        }
        runner.output.table(&mut table)?;
        if shown < total {
            runner.output.line(&format!("{shown} of {total} members shown: --limit N shows more, --json all"))?;
        }
        Ok(Exit::Done)
    }
}

/// Reads a member; `None` if it was not enqueued.
async fn read<T: Transport>(runner: &Runner<T>, member: MemberOf, ended: bool) -> Result<Option<TaskView>, Failure> {
    let id = member.id();
    let answer = match ended {
        true => runner.request(Request::Wait { id, timeout_ms: END_MS }).await,
        false => runner.request(Request::Get { id, minimum: None, minimum_sequence: None }).await,
    };
    match answer {
        Ok(Response::Task(task)) => Ok(Some(*task)),
        Ok(_) => Err(unexpected("get")),
        Err(failure) if failure.error().is_some_and(|error| error.code == ErrorCode::NotFound) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn cells(member: MemberOf, task: Option<&TaskView>) -> [Cell; 4] {
    let result = task.and_then(|task| Some(text::preview(task.result.as_ref()?, PREVIEW_CHARACTERS)));
    let lost = task.and_then(|task| task.lost).is_some_and(|lost| lost.result).then(|| text::LOST.to_owned());
    let reason = task.and_then(|task| Some(text::preview(task.reason.as_ref()?.as_bytes(), PREVIEW_CHARACTERS)));
    [
        Cell::new(member.number),
        Cell::new(member.id()),
        task.map_or_else(|| Cell::new("unknown"), |task| state_cell(task.state)),
        Cell::new(result.or(lost).or(reason).unwrap_or_default()),
    ]
}

/// Waits for all of several futures concurrently. Returns their outputs in order.
async fn together<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut open: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        for (future, output) in open.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
