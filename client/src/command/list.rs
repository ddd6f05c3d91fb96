//! `list`: tasks by age, a page after the other, and filters.
//!
//! Queue, state and age are looked at by the nodes. Key, headers and reason are looked at here, in the pages that come, so no more
//! than a bound of tasks is looked at and the answer says when it was reached.

use super::error::{Exit, Failure};
use super::output::state_cell;
use super::parse;
use super::runner::unexpected;
use super::table::Grid;
use super::{Runner, Transport, json, text};
use crate::wire::limits::LIST_PAGE_MAX;
use crate::wire::response::{ClaimOutcome, Page};
use crate::wire::{QueueName, Request, Response, State, TaskId, TaskView};
use clap::Args;
use comfy_table::Cell;

/// Rows of a list for people who have not said how many they want.
const LIMIT_DEFAULT: u64 = 100;
const PREVIEW_CHARACTERS: usize = 40;
/// Of the reason of an end, before other columns have room.
const REASON_CHARACTERS: u16 = 32;
/// Rows of a table that are printed together.
const ROWS_MAX: usize = 1_000;
/// Most tasks that are looked at where most of them may not be wanted.
pub(super) const LOOKED_MAX: u64 = 100_000;
/// Most pages that are looked at then, and whenever the newest come first.
const PAGES_MAX: u32 = 2_000;
/// The newest are looked for in stretches of time, which are longer where there are few tasks and shorter where there are many.
const STRETCH_MS: u64 = 1_000;
const STRETCH_FACTOR: u64 = 8;
/// With fewer tasks in a stretch, the next one is longer.
const STRETCH_TASKS_MIN: usize = LIST_PAGE_MAX as usize / STRETCH_FACTOR as usize;

/// Lists tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ListArguments {
    /// Only this queue
    #[arg(value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only this state: waiting, ready, claimed, done, dead or cancelled
    #[arg(long, value_name = "STATE", value_parser = parse::state(), hide_possible_values = true)]
    pub state: Option<State>,
    /// At most this many; for people 100 if left out, with --json all of them
    #[arg(long, value_name = "N", value_parser = parse::whole(1, u64::MAX, 1_000))]
    pub limit: Option<u64>,
    /// The newest first instead of the oldest
    #[arg(long)]
    pub newest: bool,
    /// Goes on after this task, in the same order
    #[arg(long, value_name = "ID")]
    pub after: Option<String>,
    /// Only those enqueued longer ago than this
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms)]
    pub older: Option<u64>,
    /// Only those enqueued within this time
    #[arg(long, value_name = "DUR", value_parser = parse::duration_ms)]
    pub newer: Option<u64>,
    /// Only those with this key. At most 100000 tasks are looked at for this, --header, --reason and --failed-with; then --after goes on
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Only those with this header; with several, those that have all of them
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse::header)]
    pub headers: Vec<(String, String)>,
    /// Only those with this text in the reason of their end
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub reason: Option<String>,
    /// Only those whose last attempt failed with this text in its reason
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub failed_with: Option<String>,
}

impl ListArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let mut walk = self.walk(runner).await?;
        let titles = ["ID", "QUEUE", "STATE", "#PRIORITY", "#CLAIMS", "ENQUEUED", "DATA", "REASON"];
        let titles = if self.shows_reasons() { &titles[..] } else { &titles[..titles.len() - 1] };
        let spare: &[&str] = match self.shows_reasons() {
            true => &["PRIORITY", "CLAIMS", "ENQUEUED", "DATA", "QUEUE"],
            false => &["PRIORITY", "CLAIMS", "ENQUEUED", "QUEUE"],
        };
        let mut table = runner.output.new_table(titles).spare(spare).wish("REASON", REASON_CHARACTERS).one_line();
        let walked = self.go(runner, &mut walk, &mut table).await;
        if !runner.output.json() && walk.listed > 0 {
            runner.output.table(&mut table)?;
        }
        walked?;
        runner.output.end_rows()?;
        let (shown, cursor) =
            (text::number(walk.listed, "task"), walk.cursor.map_or_else(String::new, |id| id.to_string()));
        if walk.is_spent() {
            let looked = text::number(walk.looked, "task");
            runner.output.note(&format!("{shown} shown of {looked} that were looked at: --after {cursor} goes on"))?;
        }
        if runner.output.json() || walk.is_spent() {
            return Ok(Exit::Done);
        }
        if walk.more {
            let more = format!("--after {cursor} goes on, --limit N shows more, --json all");
            runner.output.line(&format!("{shown} shown, there may be more: {more}"))?;
        } else if walk.listed == 0 {
            runner.output.line("no tasks")?;
        }
        Ok(Exit::Done)
    }

    /// Hands the tasks that are wanted to `take`, the oldest first. Gives whether these were all.
    pub(super) async fn each<T: Transport>(
        &self,
        runner: &mut Runner<T>,
        mut take: impl FnMut(&TaskView),
    ) -> Result<bool, Failure> {
        let mut walk = self.walk(runner).await?;
        walk.bounded = true;
        while let Some(tasks) = walk.on(runner, LIST_PAGE_MAX).await? {
            tasks.iter().filter(|task| self.wants(task)).for_each(&mut take);
        }
        Ok(!walk.is_spent())
    }

    async fn walk<T: Transport>(&self, runner: &mut Runner<T>) -> Result<Walk, Failure> {
        let ago = |ms: u64| first_of((runner.clock)().saturating_sub(ms));
        let (mut from, mut to) = (self.newer.map(ago), self.older.map(ago).map(before));
        let queue = parse::queue_if_any(self.queue.as_ref())?;
        let after = match &self.after {
            Some(text) => Some(runner.resolve(text).await?),
            None => None,
        };
        if self.newest {
            from = from.or(Some(TaskId::MIN));
            let upper = to.unwrap_or(TaskId::MAX);
            to = Some(after.map_or(upper, |after| before(after).min(upper)));
        }
        Ok(Walk {
            queue,
            state: self.state,
            after: after.filter(|_| !self.newest),
            from,
            to,
            stretch_ms: STRETCH_MS,
            bounded: self.newest || self.filters(),
            over: self.newest && from > to,
            pages: 0,
            looked: 0,
            listed: 0,
            cursor: after,
            more: false,
        })
    }

    /// Whether tasks are looked at that may not be wanted.
    fn filters(&self) -> bool {
        self.key.is_some() || !self.headers.is_empty() || self.reason.is_some() || self.failed_with.is_some()
    }

    /// Whether all that it lists may have ended for a reason.
    fn shows_reasons(&self) -> bool {
        matches!(self.state, Some(State::Dead | State::Cancelled)) || self.reason.is_some()
    }

    fn wants(&self, task: &TaskView) -> bool {
        let has = |header: &(String, String)| task.spec.headers.contains(header);
        self.key.as_ref().is_none_or(|key| task.spec.key.as_ref() == Some(key))
            && self.headers.iter().all(has)
            && self.reason.as_ref().is_none_or(|text| task.reason.as_ref().is_some_and(|reason| reason.contains(text)))
            && self
                .failed_with
                .as_ref()
                .is_none_or(|text| last_failure(task).is_some_and(|reason| reason.contains(text)))
    }

    async fn go<T: Transport>(&self, runner: &mut Runner<T>, walk: &mut Walk, table: &mut Grid) -> Result<(), Failure> {
        let mut left = match (self.limit, runner.output.json()) {
            (Some(limit), _) => limit,
            (None, true) => u64::MAX,
            (None, false) => LIMIT_DEFAULT,
        };
        while left > 0 {
            let limit = if self.filters() { u64::from(LIST_PAGE_MAX) } else { left.min(u64::from(LIST_PAGE_MAX)) };
            let tasks = match self.newest {
                true => walk.back(runner).await?,
                false => walk.on(runner, limit as u32).await?,
            };
            let Some(tasks) = tasks else { break };
            for task in tasks {
                if left == 0 {
                    walk.more = true;
                    return Ok(());
                }
                walk.cursor = Some(task.id);
                if self.wants(&task) {
                    (left, walk.listed) = (left - 1, walk.listed + 1);
                    self.show(runner, table, &task)?;
                }
            }
        }
        // Nothing was looked at where nothing is wanted.
        walk.more = !walk.over && walk.cursor.is_some();
        Ok(())
    }

    fn show<T: Transport>(&self, runner: &mut Runner<T>, table: &mut Grid, task: &TaskView) -> Result<(), Failure> {
        runner.recent().see(task.id);
        runner.recent().see_queue(&task.spec.queue);
        if runner.output.json() {
            return runner.output.row(&json::task(task));
        }
        let mut row = vec![
            Cell::new(task.id),
            Cell::new(&task.spec.queue),
            state_cell(task.state),
            Cell::new(task.spec.priority),
            Cell::new(task.claims.len()),
            Cell::new(text::relative((runner.clock)(), task.id.time_ms())),
            Cell::new(text::preview(&task.spec.payload, PREVIEW_CHARACTERS)),
        ];
        if self.shows_reasons() {
            row.push(Cell::new(text::clean(task.reason.as_deref().unwrap_or("-"))));
        }
        table.add_row(row);
        // No more rows are kept than a page has.
        if table.rows() >= ROWS_MAX { runner.output.table_rows(table) } else { Ok(()) }
    }
}

/// The reason of the last attempt, if that failed. A claim that was given back was none.
fn last_failure(task: &TaskView) -> Option<&str> {
    let mut ends = task.claims.iter().rev().filter_map(|claim| claim.end.as_ref());
    let last = ends.find(|end| end.outcome != ClaimOutcome::Released)?;
    let failed = matches!(last.outcome, ClaimOutcome::Failed | ClaimOutcome::GivenUp);
    last.reason.as_deref().filter(|_| failed)
}

/// How far a list has come.
struct Walk {
    queue: Option<QueueName>,
    state: Option<State>,
    /// From the oldest on, the last task of the latest page.
    after: Option<TaskId>,
    from: Option<TaskId>,
    /// From the newest back, the newest task that may be next.
    to: Option<TaskId>,
    stretch_ms: u64,
    /// It may have to look at far more than is wanted.
    bounded: bool,
    /// There are no more tasks.
    over: bool,
    pages: u32,
    looked: u64,
    listed: u64,
    /// The last task that was looked at and is not to come again.
    cursor: Option<TaskId>,
    more: bool,
}

impl Walk {
    fn is_spent(&self) -> bool {
        self.bounded && !self.over && (self.looked >= LOOKED_MAX || self.pages >= PAGES_MAX)
    }

    /// The next page from the oldest on; nothing at the end.
    async fn on<T: Transport>(&mut self, runner: &Runner<T>, limit: u32) -> Result<Option<Vec<TaskView>>, Failure> {
        if self.over || self.is_spent() {
            return Ok(None);
        }
        let page = self.page(runner, self.after, self.from, limit).await?;
        self.looked += page.tasks.len() as u64;
        (self.after, self.over) = (page.next, page.next.is_none());
        Ok(Some(page.tasks))
    }

    /// The next stretch of time from the newest back, which may be empty; nothing at the end.
    async fn back<T: Transport>(&mut self, runner: &Runner<T>) -> Result<Option<Vec<TaskView>>, Failure> {
        while !self.over && !self.is_spent() {
            let (lower, upper) = (self.from.unwrap_or(TaskId::MIN), self.to.unwrap_or(TaskId::MAX));
            let reach_ms = upper.time_ms().min((runner.clock)());
            let from = first_of(reach_ms.saturating_sub(self.stretch_ms)).max(lower);
            let mut page = self.page(runner, None, Some(from), LIST_PAGE_MAX).await?;
            if page.next.is_some() && self.stretch_ms > 1 {
                self.stretch_ms = (self.stretch_ms / STRETCH_FACTOR).max(1);
                continue;
            }
            let mut tasks = page.tasks;
            while page.next.is_some() {
                self.looked += tasks.len() as u64;
                if self.is_spent() {
                    return Ok(None);
                }
                page = self.page(runner, page.next, Some(from), LIST_PAGE_MAX).await?;
                tasks.append(&mut page.tasks);
            }
            if tasks.len() < STRETCH_TASKS_MIN {
                self.stretch_ms = self.stretch_ms.saturating_mul(STRETCH_FACTOR);
            }
            self.looked += tasks.len() as u64;
            (self.to, self.over) = (Some(before(from)), from <= lower);
            tasks.sort_by_key(|task| std::cmp::Reverse(task.id));
            return Ok(Some(tasks));
        }
        Ok(None)
    }

    async fn page<T: Transport>(
        &mut self,
        runner: &Runner<T>,
        after: Option<TaskId>,
        from: Option<TaskId>,
        limit: u32,
    ) -> Result<Page, Failure> {
        self.pages += 1;
        let request = Request::List { queue: self.queue.clone(), state: self.state, after, from, to: self.to, limit };
        let Response::Page(page) = runner.request(request).await? else {
            return Err(unexpected("list"));
        };
        // A page that leads nowhere would be asked for for ever.
        if page.next.is_some() && page.next <= after {
            return Err(unexpected("list"));
        }
        Ok(page)
    }
}

/// The smallest id of a time.
fn first_of(time_ms: u64) -> TaskId {
    TaskId::new(time_ms, 0, 0, 0)
}

/// The id before this one; of the smallest, itself.
fn before(id: TaskId) -> TaskId {
    let mut bytes = id.to_bytes();
    for byte in bytes.iter_mut().rev() {
        let borrows = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrows {
            return TaskId::from_bytes(bytes);
        }
    }
    id
}
