//! Dead tasks of a queue once more.

use super::answers::unexpected;
use super::calling::{Caller, request};
use super::walk::Walk;
use super::{Client, ListOptions};
use crate::wire::error::Error;
use crate::wire::ids::{QueueName, TaskId};
use crate::wire::request::{Acks, Request};
use crate::wire::response::{Acked, Response, State, TaskView};

/// Which dead tasks to enqueue again, and where.
///
/// ```
/// use norn_client::client::RedriveOptions;
/// use norn_client::wire::QueueName;
/// let mail = QueueName::new("mail").unwrap();
/// let options = RedriveOptions::new(mail).reason("no such address");
/// # assert_eq!(options.reason.as_deref(), Some("no such address"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveOptions {
    /// The queue in which they died.
    pub queue: QueueName,
    /// Only those with this in the reason of their death.
    pub reason: Option<String>,
    /// The queue of the copies; each one's own by default.
    pub to: Option<QueueName>,
    /// How safe a copy is before it is acknowledged.
    pub acks: Acks,
}

impl RedriveOptions {
    /// All that are dead in a queue, back into it.
    pub fn new(queue: QueueName) -> Self {
        RedriveOptions { queue, reason: None, to: None, acks: Acks::default() }
    }

    /// Only those with this in the reason of their death.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// To this queue.
    #[must_use]
    pub fn to(mut self, queue: QueueName) -> Self {
        self.to = Some(queue);
        self
    }

    /// How safe a copy is before it is acknowledged.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }

    /// A task with a copy or a letter has been redriven.
    fn wants(&self, task: &TaskView) -> bool {
        let reason = task.reason.as_deref().unwrap_or_default();
        task.redriven.is_empty() && self.reason.as_deref().is_none_or(|wanted| reason.contains(wanted))
    }
}

/// Dead tasks that are enqueued again, one after the other, as far as they are asked for. Holds one page of them at most.
#[derive(Debug)]
pub struct Redriving {
    client: Client,
    dead: Dead,
}

impl Client {
    /// Enqueues the dead tasks of a queue again, those without a copy or a letter, the oldest first: each with the next call of
    /// [`Redriving::next`]. Tasks that die meanwhile may be among them.
    ///
    /// ```no_run
    /// # use norn_client::client::{Client, RedriveOptions};
    /// # async fn example(client: Client, mail: norn_client::wire::QueueName) -> Result<(), norn_client::wire::Error> {
    /// let mut redriving = client.redrive_queue(RedriveOptions::new(mail).reason("timeout"));
    /// while let Some((dead, copy)) = redriving.next().await? {
    ///     println!("{dead} goes on as {}", copy.id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn redrive_queue(&self, options: RedriveOptions) -> Redriving {
        Redriving { client: self.clone(), dead: Dead::new(options, ListOptions::default().page) }
    }
}

impl Redriving {
    /// Enqueues the next one again. Gives its id, and the copy as it is acknowledged; nothing after the last. After an error, asking
    /// again repeats it, and there is still one copy.
    pub async fn next(&mut self) -> Result<Option<(TaskId, Acked)>, Error> {
        self.dead.next(&self.client).await
    }
}

/// How far the dead tasks of a queue are enqueued again.
#[derive(Debug)]
pub(crate) struct Dead {
    options: RedriveOptions,
    walk: Walk,
    page: std::vec::IntoIter<TaskView>,
    /// The one that was not acknowledged.
    open: Option<TaskId>,
}

impl Dead {
    /// Looks at this many at once.
    pub fn new(options: RedriveOptions, page: u32) -> Dead {
        let dead = ListOptions::new().queue(options.queue.clone()).state(State::Dead).page(page);
        Dead { options, walk: Walk::new(dead, 0), page: Vec::new().into_iter(), open: None }
    }

    /// How many there are, up to a limit. None is enqueued.
    #[cfg(feature = "repl")]
    pub async fn count(mut self, caller: &impl Caller, limit: u64) -> Result<u64, Error> {
        let mut count = 0;
        while count < limit
            && let Some(page) = self.walk.next(caller, self.walk.options.page).await?
        {
            count += page.iter().filter(|task| self.options.wants(task)).count() as u64;
        }
        Ok(count.min(limit))
    }

    /// Enqueues the next one again.
    pub async fn next(&mut self, caller: &impl Caller) -> Result<Option<(TaskId, Acked)>, Error> {
        while self.open.is_none() {
            if let Some(task) = self.page.next() {
                self.open = Some(task.id).filter(|_| self.options.wants(&task));
                continue;
            }
            let Some(page) = self.walk.next(caller, self.walk.options.page).await? else { return Ok(None) };
            self.page = page.into_iter();
        }
        let id = self.open.expect("one was found");
        let acked = redrive(caller, id, self.options.to.clone(), self.options.acks).await?;
        self.open = None;
        Ok(Some((id, acked)))
    }
}

/// Enqueues a dead task again.
pub(crate) async fn redrive(
    caller: &impl Caller,
    id: TaskId,
    queue: Option<QueueName>,
    acks: Acks,
) -> Result<Acked, Error> {
    match request(caller, Request::Redrive { id, child: TaskId::MIN, queue, acks }).await? {
        Response::AckedOne(acked) => Ok(acked),
        _ => unexpected("redrive"),
    }
}
