//! Lists of any length in bounded memory.

use super::Client;
use super::walk::Walk;
use norn_wire::error::Error;
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::limits;
use norn_wire::response::{State, TaskView};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Which tasks to list.
///
/// Nodes filter by queue, state, ids and age. The client filters by key, headers and reasons: all tasks that match otherwise are
/// transferred. So name a queue with these, and a state or an age where possible.
///
/// ```
/// use norn_client::client::ListOptions;
/// use norn_client::wire::{QueueName, State};
/// use std::time::Duration;
/// let mail = QueueName::new("mail").unwrap();
/// let options = ListOptions::new().queue(mail).state(State::Dead).newer(Duration::from_secs(3_600)).reason("timeout");
/// # assert_eq!(options.reason.as_deref(), Some("timeout"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOptions {
    /// Only tasks of this queue.
    pub queue: Option<QueueName>,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// Only tasks after this id, in the order of the list.
    pub after: Option<TaskId>,
    /// Only tasks with ids from this one...
    pub from: Option<TaskId>,
    /// ...to this one, both included.
    pub to: Option<TaskId>,
    /// The newest first instead of the oldest.
    pub newest: bool,
    /// Only tasks whose ids were made longer ago than this, by this machine's clock when the list begins.
    pub older: Option<Duration>,
    /// Only tasks whose ids were made within this time, by this machine's clock when the list begins.
    pub newer: Option<Duration>,
    /// Only tasks with this key.
    pub key: Option<String>,
    /// Only tasks with all of these headers, as name and value.
    pub headers: Vec<(String, String)>,
    /// Only tasks with this text in the reason of their end.
    pub reason: Option<String>,
    /// Only tasks whose last attempt failed with this text in its reason. A claim that was given back is no attempt.
    pub failed_with: Option<String>,
    /// Tasks requested at once, from 1 to [`limits::LIST_PAGE_MAX`]; 100 by default. As many are held in memory. With the newest first it
    /// is all tasks of a time range: as a rule up to [`limits::LIST_PAGE_MAX`] tasks, and up to 100,000 of one millisecond that has more.
    pub page: u32,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions {
            queue: None,
            state: None,
            after: None,
            from: None,
            to: None,
            newest: false,
            older: None,
            newer: None,
            key: None,
            headers: Vec::new(),
            reason: None,
            failed_with: None,
            page: 100,
        }
    }
}

impl ListOptions {
    /// All tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only tasks of this queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Only tasks in this state.
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Only tasks after this id, in the order of the list.
    #[must_use]
    pub fn after(mut self, id: TaskId) -> Self {
        self.after = Some(id);
        self
    }

    /// Only tasks with ids from the first to the second, both included.
    #[must_use]
    pub fn between(mut self, from: TaskId, to: TaskId) -> Self {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }

    /// The newest first.
    #[must_use]
    pub fn newest(mut self) -> Self {
        self.newest = true;
        self
    }

    /// Only tasks that are older than this.
    #[must_use]
    pub fn older(mut self, age: Duration) -> Self {
        self.older = Some(age);
        self
    }

    /// Only tasks that are no older than this.
    #[must_use]
    pub fn newer(mut self, age: Duration) -> Self {
        self.newer = Some(age);
        self
    }

    /// Only tasks with this key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Only tasks with this header, and with those added before.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Only tasks with this text in the reason of their end.
    #[must_use]
    pub fn reason(mut self, text: impl Into<String>) -> Self {
        self.reason = Some(text.into());
        self
    }

    /// Only tasks whose last attempt failed with this text in its reason.
    #[must_use]
    pub fn failed_with(mut self, text: impl Into<String>) -> Self {
        self.failed_with = Some(text.into());
        self
    }

    /// Tasks requested at once, at most [`limits::LIST_PAGE_MAX`].
    #[must_use]
    pub fn page(mut self, page: u32) -> Self {
        self.page = page;
        self
    }
}

/// The present time, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, super::answers::millis)
}

/// A list under way. Holds one page at most.
#[derive(Debug)]
pub struct Listing {
    client: Client,
    walk: Walk,
    page: std::vec::IntoIter<TaskView>,
}

impl Listing {
    pub(super) fn new(client: Client, mut options: ListOptions) -> Self {
        options.page = options.page.clamp(1, limits::LIST_PAGE_MAX);
        Listing { client, walk: Walk::new(options, now_ms()), page: Vec::new().into_iter() }
    }

    /// The next task, or `None` after the last. After an error, the next call repeats the page. If few of many tasks match, this may
    /// read many pages: [`Listing::next_page`] returns after each.
    ///
    /// A list of the newest ends with [`ErrorCode::Invalid`](norn_wire::ErrorCode::Invalid) where more than 100,000 tasks were
    /// enqueued within one millisecond.
    pub async fn next(&mut self) -> Result<Option<TaskView>, Error> {
        loop {
            if let Some(task) = self.page.next() {
                return Ok(Some(task));
            }
            match self.next_page().await? {
                Some(page) => self.page = page.into_iter(),
                None => return Ok(None),
            }
        }
    }

    /// The next page, or `None` after the last. Pages may be empty if a filter removes all of their tasks.
    pub async fn next_page(&mut self) -> Result<Option<Vec<TaskView>>, Error> {
        if self.page.len() > 0 {
            return Ok(Some(std::mem::take(&mut self.page).collect()));
        }
        let page = self.walk.options.page;
        let Some(mut tasks) = self.walk.next(&self.client, page).await? else { return Ok(None) };
        tasks.retain(|task| self.walk.options.wants(task));
        Ok(Some(tasks))
    }
}
