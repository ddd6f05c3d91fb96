//! Paged iteration over tasks by age.
//!
//! Nodes filter by queue, state and age. Key, headers and reasons are filtered here, in each page.

use super::ListOptions;
use super::calling::{Caller, request, strange};
use norn_wire::error::Error;
use norn_wire::ids::TaskId;
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::request::Request;
use norn_wire::response::{ClaimOutcome, Page, Response, TaskView};

/// Limit of the tasks that a bounded walk examines, and of the tasks of one millisecond held with the newest first.
pub const LOOKED_MAX: u64 = 100_000;
/// Limit of the pages that a bounded walk reads.
const PAGES_MAX: u32 = 2_000;
/// With the newest first, the walk goes back in time ranges: longer where there are few tasks, shorter where there are many.
const STRETCH_MS: u64 = 1_000;
const STRETCH_FACTOR: u64 = 8;
/// If a range has fewer tasks, the next one is longer.
const STRETCH_TASKS_MIN: usize = LIST_PAGE_MAX as usize / STRETCH_FACTOR as usize;

impl ListOptions {
    /// Whether a task of a page matches the client-side filters.
    #[doc(hidden)]
    pub fn wants(&self, task: &TaskView) -> bool {
        let has = |header: &(String, String)| task.spec.headers.contains(header);
        let contains = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| text.is_some_and(|text| text.contains(wanted)))
        };
        self.key.as_ref().is_none_or(|key| task.spec.key.as_ref() == Some(key))
            && self.headers.iter().all(has)
            && contains(&self.reason, task.reason.as_deref())
            && contains(&self.failed_with, last_failure(task))
    }
}

/// The reason of the last attempt, if that failed. A claim that was released is no attempt.
fn last_failure(task: &TaskView) -> Option<&str> {
    let mut ends = task.claims.iter().rev().filter_map(|claim| claim.end.as_ref());
    let last = ends.find(|end| end.outcome != ClaimOutcome::Released)?;
    let failed = matches!(last.outcome, ClaimOutcome::Failed | ClaimOutcome::GivenUp);
    last.reason.as_deref().filter(|_| failed)
}

/// Position of a walk.
#[derive(Debug)]
pub struct Walk {
    pub options: ListOptions,
    /// With the oldest first: the last task of the latest page.
    after: Option<TaskId>,
    from: Option<TaskId>,
    /// With the newest first: upper bound of the ids that remain.
    to: Option<TaskId>,
    now_ms: u64,
    stretch_ms: u64,
    /// Whether the walk ends at its limits.
    pub bounded: bool,
    /// Whether there are no more tasks.
    pub over: bool,
    pages: u32,
    /// Number of tasks examined.
    pub looked: u64,
}

impl Walk {
    /// Creates a walk that has read nothing yet. Ages count back from `now_ms`, in milliseconds since the Unix epoch.
    pub fn new(options: ListOptions, now_ms: u64) -> Walk {
        let ago = |age: std::time::Duration| first_of(now_ms.saturating_sub(super::answers::millis(age)));
        let mut from = options.from.max(options.newer.map(ago));
        let older = options.older.map(|age| before(ago(age)));
        let mut to = options.to.into_iter().chain(older).min();
        let mut after = options.after;
        if options.newest {
            let upper = to.unwrap_or(TaskId::MAX);
            to = Some(after.take().map_or(upper, |after| before(after).min(upper)));
            from = from.or(Some(TaskId::MIN));
        }
        let over = options.newest && from > to;
        Walk { options, after, from, to, now_ms, stretch_ms: STRETCH_MS, bounded: false, over, pages: 0, looked: 0 }
    }

    /// Whether the walk has reached its limits, and there may be more tasks.
    pub fn is_spent(&self) -> bool {
        self.bounded && !self.over && (self.looked >= LOOKED_MAX || self.pages >= PAGES_MAX)
    }

    /// The next tasks, matching or not, about `limit` of them and perhaps none; `None` at the end. After an error, the next call
    /// repeats the read.
    pub async fn next(&mut self, caller: &impl Caller, limit: u32) -> Result<Option<Vec<TaskView>>, Error> {
        match self.options.newest {
            true => self.back(caller).await,
            false => self.on(caller, limit).await,
        }
    }

    /// The next page, with the oldest first.
    async fn on(&mut self, caller: &impl Caller, limit: u32) -> Result<Option<Vec<TaskView>>, Error> {
        if self.over || self.is_spent() {
            return Ok(None);
        }
        let page = self.page(caller, self.after, self.from, limit).await?;
        self.looked += page.tasks.len() as u64;
        (self.after, self.over) = (page.next, page.next.is_none());
        Ok(Some(page.tasks))
    }

    /// The next time range, with the newest first.
    async fn back(&mut self, caller: &impl Caller) -> Result<Option<Vec<TaskView>>, Error> {
        while !self.over && !self.is_spent() {
            let (lower, upper) = (self.from.unwrap_or(TaskId::MIN), self.to.unwrap_or(TaskId::MAX));
            let reach_ms = upper.time_ms().min(self.now_ms);
            let from = first_of(reach_ms.saturating_sub(self.stretch_ms)).max(lower);
            let mut page = self.page(caller, None, Some(from), LIST_PAGE_MAX).await?;
            if page.next.is_some() && self.stretch_ms > 1 {
                self.stretch_ms = (self.stretch_ms / STRETCH_FACTOR).max(1);
                continue;
            }
            let mut tasks = page.tasks;
            while page.next.is_some() {
                if self.is_too_much(tasks.len() as u64) {
                    return self.give_up(tasks.len() as u64);
                }
                page = self.page(caller, page.next, Some(from), LIST_PAGE_MAX).await?;
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

    /// Whether a range has more tasks than may be held, or examined.
    fn is_too_much(&self, held: u64) -> bool {
        let looked = if self.bounded { self.looked + held } else { held };
        looked >= LOOKED_MAX || self.bounded && self.pages >= PAGES_MAX
    }

    fn give_up(&mut self, held: u64) -> Result<Option<Vec<TaskView>>, Error> {
        if self.bounded {
            self.looked += held;
            return Ok(None);
        }
        let message =
            format!("more than {LOOKED_MAX} tasks were enqueued within one millisecond: list the oldest first");
        Err(Error::invalid(message))
    }

    async fn page(
        &mut self,
        caller: &impl Caller,
        after: Option<TaskId>,
        from: Option<TaskId>,
        limit: u32,
    ) -> Result<Page, Error> {
        self.pages = self.pages.saturating_add(1);
        let (queue, state, to) = (self.options.queue.clone(), self.options.state, self.to);
        let list = Request::List { queue, state, after, from, to, limit };
        let Response::Page(page) = request(caller, list).await? else {
            return Err(strange("list"));
        };
        // A page without progress would be requested for ever.
        if page.next.is_some() && page.next <= after {
            return Err(strange("list"));
        }
        Ok(page)
    }
}

/// The smallest id of a millisecond.
fn first_of(time_ms: u64) -> TaskId {
    TaskId::new(time_ms, 0, 0, 0)
}

/// The next smaller id; for the smallest id, itself.
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
