//! Redriving: dead tasks of a queue, enqueued again.

use super::answers::unexpected;
use super::calling::{Caller, read};
use super::walk::Walk;
use super::{Client, ListOptions};
use crate::session::{Call, CopyId};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::headers;
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::request::Acks;
use norn_wire::response::{Acked, Response, State, TaskView};

/// Which dead tasks to enqueue again, and to which queue.
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
    /// Only tasks with this text in the reason of their death.
    pub reason: Option<String>,
    /// The queue of the copies; by default the queue of each task.
    pub to: Option<QueueName>,
    /// Durability of a copy.
    pub acks: Acks,
}

impl RedriveOptions {
    /// All dead tasks of a queue, back into it.
    pub fn new(queue: QueueName) -> Self {
        RedriveOptions { queue, reason: None, to: None, acks: Acks::default() }
    }

    /// Only tasks with this text in the reason of their death.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sends the copies to this queue.
    #[must_use]
    pub fn to(mut self, queue: QueueName) -> Self {
        self.to = Some(queue);
        self
    }

    /// Sets the durability of a copy.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }

    /// Whether a task matches and was not redriven: a task with a copy or a letter was.
    fn wants(&self, task: &TaskView) -> bool {
        let reason = task.reason.as_deref().unwrap_or_default();
        task.redriven.is_empty() && self.reason.as_deref().is_none_or(|wanted| reason.contains(wanted))
    }
}

/// Dead tasks to enqueue again one after the other, on request. Holds at most one page of them.
#[derive(Debug)]
pub struct Redriving {
    client: Client,
    dead: Dead,
}

impl Client {
    /// Enqueues the dead tasks of a queue again, except those with a copy or a letter, the oldest first: each with the next call of
    /// [`Redriving::next`]. Tasks that die meanwhile may be included.
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

/// Result of redriving a dead task once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redriven {
    /// The task is enqueued again, as this copy.
    Now(Acked),
    /// The task was redriven before, or has a letter. Nothing was changed.
    Before(Box<Existing>),
}

/// The existing copy or letter of a dead task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Id of the copy or letter.
    pub id: TaskId,
    /// Its present state; absent if it has ended and was deleted.
    pub task: Option<TaskView>,
    /// Whether it is the dead letter of the task, not a requested copy.
    pub letter: bool,
}

impl Client {
    /// Enqueues a dead task again, as [`Client::redrive`] does, unless it was redriven before or has a letter: then the answer shows
    /// that copy or letter, in whatever queue it is. An error of code `unknown` names the copy that may exist: [`Client::redrive_as`]
    /// repeats the call for it.
    ///
    /// ```no_run
    /// # use norn_client::client::Client;
    /// # async fn example(client: Client, dead: norn_client::wire::TaskId) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::client::Redriven;
    /// use norn_client::wire::Acks;
    /// match client.redrive_once(dead, None, Acks::Quorum).await? {
    ///     Redriven::Now(copy) => println!("it goes on as {}", copy.id),
    ///     Redriven::Before(existing) if existing.letter => println!("its letter {} is out", existing.id),
    ///     Redriven::Before(existing) => println!("there is {} already", existing.id),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn redrive_once(&self, id: TaskId, queue: Option<QueueName>, acks: Acks) -> Result<Redriven, Error> {
        redrive_once(self, id, &CopyId::default(), queue, acks).await
    }
}

impl Redriving {
    /// Enqueues the next task again. Returns its id and the acknowledgement of the copy; `None` after the last. After an error, or if
    /// the future is dropped, the next call repeats the task, and there is still one copy.
    pub async fn next(&mut self) -> Result<Option<(TaskId, Acked)>, Error> {
        self.dead.next(&self.client).await
    }
}

/// Progress of redriving the dead tasks of a queue.
#[derive(Debug)]
pub struct Dead {
    options: RedriveOptions,
    walk: Walk,
    page: std::vec::IntoIter<TaskView>,
    /// The task that was not acknowledged, with the id of its copy, which every repeat uses.
    open: Option<(TaskId, CopyId)>,
}

impl Dead {
    /// Creates the iteration; `page` is the number of tasks read at once.
    pub fn new(options: RedriveOptions, page: u32) -> Dead {
        let dead = ListOptions::new().queue(options.queue.clone()).state(State::Dead).page(page);
        Dead { options, walk: Walk::new(dead, 0), page: Vec::new().into_iter(), open: None }
    }

    /// Number of matching tasks, up to a limit. Enqueues none.
    pub async fn count(mut self, caller: &impl Caller, limit: u64) -> Result<u64, Error> {
        let mut count = 0;
        while count < limit
            && let Some(page) = self.walk.next(caller, self.walk.options.page).await?
        {
            count += page.iter().filter(|task| self.options.wants(task)).count() as u64;
        }
        Ok(count.min(limit))
    }

    /// Enqueues the next task again.
    pub async fn next(&mut self, caller: &impl Caller) -> Result<Option<(TaskId, Acked)>, Error> {
        while self.open.is_none() {
            if let Some(task) = self.page.next() {
                self.open = self.options.wants(&task).then(|| (task.id, CopyId::default()));
                continue;
            }
            let Some(page) = self.walk.next(caller, self.walk.options.page).await? else { return Ok(None) };
            self.page = page.into_iter();
        }
        let (id, copy) = self.open.clone().expect("one was found");
        let redriven = redrive(caller, id, &copy, self.options.to.clone(), self.options.acks).await;
        match &redriven {
            Ok(_) => self.open = None,
            // Nodes refuse this id, so the next attempt uses a new one.
            Err(error) if is_of_its_id(error) => self.open = Some((id, CopyId::default())),
            Err(_) => {}
        }
        redriven.map(|acked| Some((id, acked)))
    }

    /// The task that was not acknowledged.
    pub fn open(&self) -> Option<TaskId> {
        self.open.as_ref().map(|(id, _)| *id)
    }
}

/// Whether a copy is refused for the age of its id.
fn is_of_its_id(error: &Error) -> bool {
    matches!(error.code, ErrorCode::TooOld | ErrorCode::IdFromFuture | ErrorCode::ClockAhead)
}

/// Enqueues a dead task again, as this copy. An unknown outcome names the copy.
pub(crate) async fn redrive(
    caller: &impl Caller,
    id: TaskId,
    copy: &CopyId,
    queue: Option<QueueName>,
    acks: Acks,
) -> Result<Acked, Error> {
    match (caller.make(Call::Redrive { id, copy: copy.clone(), queue, acks }).await, copy.get()) {
        (Ok(Response::AckedOne(acked)), _) => Ok(acked),
        (Ok(_), _) => unexpected("redrive"),
        (Err(error), Some(copy)) if error.code == ErrorCode::Unknown => {
            let message = format!("task {id} may be enqueued again as {copy}: {}", error.message);
            Err(Error { message, ..error }.about(copy))
        }
        (Err(error), _) => Err(error),
    }
}

/// As [`Client::redrive_once`]. A copy that an earlier attempt requested under the same id counts as this call's own.
pub async fn redrive_once(
    caller: &impl Caller,
    id: TaskId,
    copy: &CopyId,
    queue: Option<QueueName>,
    acks: Acks,
) -> Result<Redriven, Error> {
    // The tag of a task with a key follows from the key.
    let is_own = |found: TaskId| copy.get().map(|own| own.with_tag(found.tag()) == found);
    let task = read(caller, id).await?;
    let own = task.redriven.iter().any(|found| is_own(*found) == Some(true));
    if let Some(other) = task.redriven.first().filter(|_| !task.children_open && !own) {
        return Ok(Redriven::Before(Box::new(existing(caller, id, *other).await?)));
    }
    // A copy or letter that is being enqueued exists once this is answered. The letter, or a copy of another caller, may have come first.
    let acked = redrive(caller, id, copy, queue, acks).await?;
    let own = is_own(acked.id);
    match existing(caller, id, acked.id).await {
        Ok(existing) if own == Some(false) || existing.letter => Ok(Redriven::Before(Box::new(existing))),
        Err(error) if own == Some(false) => Err(error),
        // The enqueue is acknowledged, whatever the read returns.
        Ok(_) | Err(_) => Ok(Redriven::Now(acked)),
    }
}

/// Reads the copy or the letter of a dead task.
async fn existing(caller: &impl Caller, dead: TaskId, id: TaskId) -> Result<Existing, Error> {
    let task = match read(caller, id).await {
        Err(error) if error.code == ErrorCode::NotFound => None,
        found => Some(found?),
    };
    let of_dead = |task: &TaskView| task.spec.header(headers::DEAD_TASK) == Some(&dead.to_string());
    Ok(Existing { id, letter: task.as_ref().is_some_and(of_dead), task })
}
