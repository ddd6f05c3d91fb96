//! `watch`: state changes of the tasks of a queue or a group, as they happen.

use super::error::{Exit, Failure};
use super::output::Output;
use super::runner::{Place, unexpected};
use super::{Runner, Transport, parse, tasks, text};
use clap::Args;
use norn_client::api::{self, WatchNotice, WatchNoticeKind};
use norn_client::client::calling::has_ended;
use norn_client::session::{WatchNews, WatchState};
use norn_wire::limits::WATCH_KEPT_MS;
use norn_wire::watch::{Subject, WatchEvent};
use norn_wire::{Error, ErrorCode, Response, TaskId};
use std::time::Duration;
use tokio::time::Instant;

/// Wait of one call. A call lost with its node is repeated well before the watch expires.
const CALL_MS: u64 = WATCH_KEPT_MS / 3;
/// Pause before a failed call is repeated.
const PAUSE: Duration = Duration::from_secs(1);
const PREVIEW_CHARACTERS: usize = 60;

/// Arguments of `watch`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WatchArguments {
    /// Tasks of this queue
    #[arg(value_name = "QUEUE", required_unless_present = "group", conflicts_with = "group")]
    pub queue: Option<String>,
    /// Instead of a queue: members of the group whose join has this id, until the join has ended
    #[arg(long, value_name = "ID")]
    pub group: Option<String>,
    /// End after this many events; if left out, with --timeout or at Ctrl-C
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 1_000), allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// End after this long; if left out, with --limit or at Ctrl-C
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub timeout: Option<u64>,
}

impl WatchArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        if runner.place == Place::Script && self.limit.is_none() && self.timeout.is_none() {
            let message = "a watch without --limit or --timeout never ends, so that no further command would be read";
            return Err(Failure::Usage(message.to_owned()));
        }
        runner.waits_for(self.timeout);
        let group = match &self.group {
            Some(id) => Some(runner.resolve(id).await?),
            None => None,
        };
        let subject = match (group, parse::queue_if_any(self.queue.as_ref())?) {
            (Some(group), _) => Subject::Group(group),
            (None, Some(queue)) => Subject::Queue(queue),
            (None, None) => return Err(Failure::Usage("name a queue, or a group with --group".to_owned())),
        };
        let end = End { group, events_left: self.limit, at: self.timeout.and_then(after_ms) };
        let interrupt = runner.interrupt.clone();
        match interrupt.before(watch(runner, WatchState::new(subject), end)).await {
            Some(ended) => ended?,
            None => runner.output.leave_line()?,
        }
        runner.output.end_rows()?;
        Ok(Exit::Done)
    }
}

fn after_ms(ms: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// When a watch ends.
struct End {
    /// With the end of this join.
    group: Option<TaskId>,
    events_left: Option<u64>,
    at: Option<Instant>,
}

impl End {
    fn left_ms(&self) -> u64 {
        self.at.map_or(CALL_MS, |at| (at.saturating_duration_since(Instant::now()).as_millis() as u64).min(CALL_MS))
    }

    fn is_come(&self) -> bool {
        self.events_left == Some(0) || self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Counts a shown event. Returns whether it was the last.
    fn count(&mut self, event: &WatchEvent) -> bool {
        self.events_left = self.events_left.map(|left| left.saturating_sub(1));
        self.events_left == Some(0) || self.group == Some(event.id) && has_ended(event.state)
    }
}

async fn watch<T: Transport>(runner: &mut Runner<T>, mut state: WatchState, mut end: End) -> Result<(), Failure> {
    if end.is_come() {
        return Ok(());
    }
    ask(runner, &mut state, 0).await?;
    let is_over = match end.group {
        Some(group) => is_over(runner, group).await?,
        None => false,
    };
    began(&mut runner.output)?;
    if is_over {
        return runner.output.note("the join of the group has ended already");
    }
    let mut failing = false;
    loop {
        while let Some(news) = state.take_news() {
            show(&mut runner.output, &news)?;
            if let WatchNews::Event(event) = &news {
                runner.recent().see(event.id);
                if end.count(event) {
                    return Ok(());
                }
            }
        }
        runner.output.flush()?;
        // The watching person may use the ids in another terminal.
        runner.remember_shown();
        if end.is_come() {
            return Ok(());
        }
        match ask(runner, &mut state, end.left_ms()).await {
            Ok(()) => failing = false,
            Err(Failure::Call(error)) if error.passes() => {
                // The first failure is reported, and that the watch goes on; the following ones are not.
                if !std::mem::replace(&mut failing, true) {
                    runner.output.note(&format!("{}; trying again", error.message))?;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn ask<T: Transport>(runner: &Runner<T>, state: &mut WatchState, wait_ms: u64) -> Result<(), Failure> {
    match runner.waiting_request(state.request(wait_ms), Duration::from_millis(wait_ms)).await? {
        Response::Watched(watched) => state.take(watched),
        _ => return Err(unexpected("watch")),
    }
    Ok(())
}

/// Whether the join of a group has ended. It may not exist yet.
async fn is_over<T: Transport>(runner: &mut Runner<T>, group: TaskId) -> Result<bool, Failure> {
    match tasks::get(runner, group, None).await {
        Ok(task) if task.group.is_none() => Err(Error::invalid("the task is no join of a group").about(group).into()),
        Ok(task) => Ok(has_ended(task.state)),
        Err(failure) if failure.error().is_some_and(|error| error.code == ErrorCode::NotFound) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn began(output: &mut Output) -> Result<(), Failure> {
    match output.json() {
        true => output.row(&WatchNotice { watch: WatchNoticeKind::Begun, partitions: None })?,
        false => output.note("watching; Ctrl-C ends it")?,
    }
    output.flush()
}

fn show(output: &mut Output, news: &WatchNews) -> Result<(), Failure> {
    match news {
        WatchNews::Event(event) if output.json() => output.row(&api::WatchEvent::from(event)),
        WatchNews::Event(event) => {
            let number = event.number.map_or_else(String::new, |number| format!("  member {number}"));
            let result = event.result.as_ref().map(|result| text::preview(result, PREVIEW_CHARACTERS));
            let reason = event.reason.as_ref().map(|reason| text::preview(reason.as_bytes(), PREVIEW_CHARACTERS));
            let detail = result.or(reason).map_or_else(String::new, |detail| format!("  {detail}"));
            let (id, queue, state) = (event.id, &event.queue, output.state(event.state));
            output.line(&format!("{id}  {queue}  {state}{number}{detail}"))
        }
        WatchNews::Lagged if output.json() => {
            output.row(&WatchNotice { watch: WatchNoticeKind::Lagged, partitions: None })
        }
        WatchNews::Lagged => output.note("lagged: endings before this may be missing; `norn list` shows what is there"),
        WatchNews::Silent(partitions) if output.json() => {
            output.row(&WatchNotice { watch: WatchNoticeKind::Silent, partitions: Some(*partitions) })
        }
        WatchNews::Silent(0) => output.note("all partitions can be watched again"),
        WatchNews::Silent(partitions) => {
            let partitions = text::number(u64::from(*partitions), "partition");
            output.note(&format!(
                "no node that could report on {partitions} can be reached; what happens there comes later"
            ))
        }
    }
}
