//! `list`: tasks by age, page by page, with filters.
//!
//! If a filter may reject most tasks, a list for people examines a bounded number of them, and says when it has reached the bound.

use super::error::{Exit, Failure};
use super::output::state_cell;
use super::parse;
use super::table::Grid;
use super::{Runner, Transport, text};
use clap::Args;
use comfy_table::Cell;
use norn_client::api;
use norn_client::client::ListOptions;
use norn_client::client::explaining::progress;
use norn_client::client::walk::Walk;
use norn_wire::limits::{CLAIMS_SHOWN_MAX, LIST_PAGE_MAX};
use norn_wire::{State, TaskId, TaskView};
use std::time::Duration;

/// Default number of rows for people.
const LIMIT_DEFAULT: u64 = 100;
const PREVIEW_CHARACTERS: usize = 40;
/// Width of the reason of an end, before other columns have room.
const REASON_CHARACTERS: u16 = 32;
/// Width of the time until a task is due, in the same way.
const DUE_CHARACTERS: u16 = 12;
/// Rows of a table that are printed together.
const ROWS_MAX: usize = 1_000;

/// Arguments of `list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ListArguments {
    /// Only this queue
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only this state: waiting, ready, claimed, done, dead or cancelled
    #[arg(long, value_name = "STATE", value_parser = parse::state(), hide_possible_values = true)]
    pub state: Option<State>,
    /// At most this many; if left out, 100 for people, and all with --json
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 1_000), allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// Show the newest first instead of the oldest
    #[arg(long)]
    pub newest: bool,
    /// Continue after this task, in the same order; begins with the first if left out
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    /// Only tasks enqueued longer ago than this
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub older: Option<u64>,
    /// Only tasks enqueued within this time
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms, allow_hyphen_values = true)]
    pub newer: Option<u64>,
    /// Only tasks with this key. For this, --header, --reason and --failed-with, at most 100000 tasks are examined; continue with
    /// --after. With --json all are examined
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Only tasks with this header; if repeated, with all of them
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse::header)]
    pub headers: Vec<(String, String)>,
    /// Only tasks with this text in the reason of their end
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
    /// Only tasks whose last attempt failed with this text in its reason, of which the first 256 bytes are kept
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub failed_with: Option<String>,
}

impl ListArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let options = self.options(runner).await?;
        let mut shown = Shown { listed: 0, cursor: options.after, more: false };
        let mut walk = Walk::new(options, (runner.clock)());
        // A program gets the whole list: it could not tell the bound from the end.
        walk.bounded = !runner.output.json() && (self.newest || self.filters());
        let (waits, died) = (self.shows_waits(), self.shows_reasons());
        let more: &[&str] = if waits { &["DUE", "WAITS FOR"] } else { &[] };
        let reason: &[&str] = if died { &["REASON"] } else { &[] };
        let titles =
            [&["ID", "TEXT ID", "QUEUE", "STATE", "#PRIORITY", "#CLAIMS", "ENQUEUED"], more, &["DATA"], reason]
                .concat();
        let spare: &[&str] = match (waits, died) {
            (true, _) => &["PRIORITY", "CLAIMS", "ENQUEUED", "TEXT ID", "DATA", "WAITS FOR", "QUEUE", "STATE"],
            (false, true) => &["PRIORITY", "CLAIMS", "ENQUEUED", "TEXT ID", "DATA", "QUEUE"],
            (false, false) => &["PRIORITY", "CLAIMS", "ENQUEUED", "TEXT ID", "QUEUE"],
        };
        let wished = if waits { ("DUE", DUE_CHARACTERS) } else { ("REASON", REASON_CHARACTERS) };
        let mut table =
            runner.output.new_table(&titles).spare(spare).sparse(&["TEXT ID"]).wish(wished.0, wished.1).one_line();
        let walked = self.go(runner, &mut walk, &mut shown, &mut table).await;
        if !runner.output.json() && shown.listed > 0 {
            runner.output.table(&mut table)?;
        }
        walked?;
        runner.output.end_rows()?;
        let cursor = shown.cursor.map_or_else(String::new, |id| text::clean(&id.to_string()));
        let listed = text::number(shown.listed, "task");
        if walk.is_spent() {
            let looked = text::number(walk.looked, "task");
            runner.output.note(&format!("{listed} shown of {looked} that were looked at: --after {cursor} goes on"))?;
        }
        if runner.output.json() || walk.is_spent() {
            return Ok(Exit::Done);
        }
        if shown.more {
            let more = format!("--after {cursor} goes on, --limit N shows more, --json all");
            runner.output.line(&format!("{listed} shown, there may be more: {more}"))?;
        } else if shown.listed == 0 {
            runner.output.line("no tasks")?;
        }
        Ok(Exit::Done)
    }

    /// Converts the arguments to the library's options.
    pub(super) async fn options<T: Transport>(&self, runner: &mut Runner<T>) -> Result<ListOptions, Failure> {
        let after = match &self.after {
            Some(text) => Some(runner.resolve(text).await?),
            None => None,
        };
        Ok(ListOptions {
            queue: parse::queue_if_any(self.queue.as_ref())?,
            state: self.state,
            after,
            from: None,
            to: None,
            newest: self.newest,
            older: self.older.map(Duration::from_millis),
            newer: self.newer.map(Duration::from_millis),
            key: self.key.clone(),
            headers: self.headers.clone(),
            reason: self.reason.clone(),
            failed_with: self.failed_with.clone(),
            page: LIST_PAGE_MAX,
        })
    }

    /// Whether tasks are examined that may be rejected.
    fn filters(&self) -> bool {
        self.key.is_some() || !self.headers.is_empty() || self.reason.is_some() || self.failed_with.is_some()
    }

    /// Whether all listed tasks may have ended for a reason.
    fn shows_reasons(&self) -> bool {
        matches!(self.state, Some(State::Dead | State::Cancelled)) || self.reason.is_some()
    }

    /// Whether all listed tasks wait, for a time or for other tasks.
    fn shows_waits(&self) -> bool {
        self.state == Some(State::Waiting)
    }

    async fn go<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        walk: &mut Walk,
        shown: &mut Shown,
        table: &mut Grid,
    ) -> Result<(), Failure> {
        let mut left = match (self.limit, runner.output.json()) {
            (Some(limit), _) => limit,
            (None, true) => u64::MAX,
            (None, false) => LIMIT_DEFAULT,
        };
        while left > 0 {
            let limit = if self.filters() { u64::from(LIST_PAGE_MAX) } else { left.min(u64::from(LIST_PAGE_MAX)) };
            let Some(tasks) = walk.next(&*runner, limit as u32).await? else { break };
            for task in tasks {
                if left == 0 {
                    shown.more = true;
                    return Ok(());
                }
                shown.cursor = Some(task.id);
                if walk.options.wants(&task) {
                    (left, shown.listed) = (left - 1, shown.listed + 1);
                    self.show(runner, table, &task)?;
                }
            }
        }
        // Without an examined task there is nothing to continue from.
        shown.more = !walk.over && shown.cursor.is_some();
        Ok(())
    }

    fn show<T: Transport>(&self, runner: &mut Runner<T>, table: &mut Grid, task: &TaskView) -> Result<(), Failure> {
        runner.recent().see(task.id);
        runner.recent().see_queue(&task.spec.queue);
        if runner.output.json() {
            return runner.output.row(&api::Task::from(task));
        }
        let now_ms = (runner.clock)();
        let claims = match task.claims.len() {
            count @ ..CLAIMS_SHOWN_MAX => count.to_string(),
            _ => format!("{CLAIMS_SHOWN_MAX}+"),
        };
        let mut row = vec![
            Cell::new(task.id),
            Cell::new(task.spec.text_id().map_or_else(String::new, |id| text::clean(&id.to_string()))),
            Cell::new(text::clean(task.spec.queue.as_str())),
            state_cell(task.state),
            Cell::new(task.spec.priority),
            Cell::new(claims),
            Cell::new(text::relative(now_ms, task.id.time_ms())),
        ];
        if self.shows_waits() {
            let due = task.next_attempt_ms.map_or_else(|| "-".to_owned(), |due_ms| text::relative(now_ms, due_ms));
            row.extend([Cell::new(due), Cell::new(waits_for(task))]);
        }
        row.push(Cell::new(match task.lost {
            Some(lost) if lost.payload => text::LOST.to_owned(),
            _ => text::preview(&task.spec.payload, PREVIEW_CHARACTERS),
        }));
        if self.shows_reasons() {
            row.push(Cell::new(text::clean(task.reason.as_deref().unwrap_or("-"))));
        }
        table.add_row(row);
        // Keep no more rows than a page has.
        if table.rows() >= ROWS_MAX { runner.output.table_rows(table) } else { Ok(()) }
    }
}

/// Formats the dependencies that have not ended.
fn waits_for(task: &TaskView) -> String {
    if let Some(group) = &task.group {
        return progress(group);
    }
    match &task.waits_for[..] {
        [] => "-".to_owned(),
        [only] => only.to_string(),
        several => text::number(several.len() as u64, "task"),
    }
}

/// Result of a list.
struct Shown {
    listed: u64,
    /// The last task that was examined and must not come again.
    cursor: Option<TaskId>,
    more: bool,
}
