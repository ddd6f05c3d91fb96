//! Lists of any length in bounded memory.

use super::{Client, unexpected};
use crate::wire::error::Error;
use crate::wire::ids::{QueueName, TaskId};
use crate::wire::limits;
use crate::wire::request::Request;
use crate::wire::response::{Response, State, TaskView};

/// What to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOptions {
    /// Only this queue.
    pub queue: Option<QueueName>,
    /// Only this state.
    pub state: Option<State>,
    /// Only ids after this one.
    pub after: Option<TaskId>,
    /// Only ids from this one...
    pub from: Option<TaskId>,
    /// ...to this one, both included.
    pub to: Option<TaskId>,
    /// Tasks asked for at once, and so held in memory; 100 by default.
    pub page: u32,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions { queue: None, state: None, after: None, from: None, to: None, page: 100 }
    }
}

impl ListOptions {
    /// All tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only this queue.
    #[must_use]
    pub fn queue(mut self, queue: QueueName) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Only this state.
    #[must_use]
    pub fn state(mut self, state: State) -> Self {
        self.state = Some(state);
        self
    }

    /// Only ids from the first to the second, both included.
    #[must_use]
    pub fn between(mut self, from: TaskId, to: TaskId) -> Self {
        (self.from, self.to) = (Some(from), Some(to));
        self
    }

    /// Tasks asked for at once, at most [`limits::LIST_PAGE_MAX`].
    #[must_use]
    pub fn page(mut self, page: u32) -> Self {
        self.page = page;
        self
    }
}

/// A list under way. Holds one page at most.
#[derive(Debug)]
pub struct Listing {
    client: Client,
    options: ListOptions,
    page: std::vec::IntoIter<TaskView>,
    ended: bool,
}

impl Listing {
    pub(super) fn new(client: Client, mut options: ListOptions) -> Self {
        options.page = options.page.clamp(1, limits::LIST_PAGE_MAX);
        Listing { client, options, page: Vec::new().into_iter(), ended: false }
    }

    /// The next task, or `None` after the last. After an error, asking again repeats the page.
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

    /// The next page, or `None` after the last. Pages may be empty where a filter leaves nothing of them.
    pub async fn next_page(&mut self) -> Result<Option<Vec<TaskView>>, Error> {
        if self.page.len() > 0 {
            return Ok(Some(std::mem::take(&mut self.page).collect()));
        }
        if self.ended {
            return Ok(None);
        }
        let ListOptions { queue, state, after, from, to, page } = self.options.clone();
        let Response::Page(page) =
            self.client.request(Request::List { queue, state, after, from, to, limit: page }).await?
        else {
            return unexpected("list");
        };
        // A place that does not move would never come to an end.
        self.ended = page.next.is_none() || page.next <= after;
        self.options.after = page.next.or(after);
        Ok(Some(page.tasks))
    }
}
