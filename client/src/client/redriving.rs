//! Dead tasks of a queue once more.

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

/// What came of a dead task that was to be enqueued again once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redriven {
    /// It is enqueued again, as this copy.
    Now(Acked),
    /// It was before, or its letter is out. Nothing was changed.
    Before(Box<Existing>),
}

/// What stands for a dead task already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// The copy, or the letter.
    pub id: TaskId,
    /// The same as it is now; absent once it has ended and is forgotten.
    pub task: Option<TaskView>,
    /// It is the dead letter of the task, not a copy that was asked for.
    pub letter: bool,
}

impl Client {
    /// Enqueues a task that has died again, as [`Client::redrive`] does, unless it was redriven before or has a letter: then the answer
    /// shows that copy or letter, in whatever queue it is. An error of code `unknown` names the copy that may be there:
    /// [`Client::redrive_as`] repeats the call for it.
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
    /// Enqueues the next one again. Gives its id, and the copy as it is acknowledged; nothing after the last. After an error, asking
    /// again repeats it, and there is still one copy; also where the future is dropped.
    pub async fn next(&mut self) -> Result<Option<(TaskId, Acked)>, Error> {
        self.dead.next(&self.client).await
    }
}

/// How far the dead tasks of a queue are enqueued again.
#[derive(Debug)]
pub struct Dead {
    options: RedriveOptions,
    walk: Walk,
    page: std::vec::IntoIter<TaskView>,
    /// The one that was not acknowledged, and its copy, which every repeat asks for.
    open: Option<(TaskId, CopyId)>,
}

impl Dead {
    /// Looks at this many at once.
    pub fn new(options: RedriveOptions, page: u32) -> Dead {
        let dead = ListOptions::new().queue(options.queue.clone()).state(State::Dead).page(page);
        Dead { options, walk: Walk::new(dead, 0), page: Vec::new().into_iter(), open: None }
    }

    /// How many there are, up to a limit. None is enqueued.
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
            // Under this id it will not be enqueued.
            Err(error) if is_of_its_id(error) => self.open = Some((id, CopyId::default())),
            Err(_) => {}
        }
        redriven.map(|acked| Some((id, acked)))
    }

    /// The one that was not acknowledged.
    pub fn open(&self) -> Option<TaskId> {
        self.open.as_ref().map(|(id, _)| *id)
    }
}

/// Whether a copy is refused for the age of its id.
fn is_of_its_id(error: &Error) -> bool {
    matches!(error.code, ErrorCode::TooOld | ErrorCode::IdFromFuture | ErrorCode::ClockAhead)
}

/// Enqueues a dead task again, as this copy. What is unknown is told of the copy.
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

/// As [`Client::redrive_once`]. A copy that was asked for before is no other one.
pub async fn redrive_once(
    caller: &impl Caller,
    id: TaskId,
    copy: &CopyId,
    queue: Option<QueueName>,
    acks: Acks,
) -> Result<Redriven, Error> {
    // A task with a key lies where the key says.
    let is_own = |found: TaskId| copy.get().map(|own| own.with_tag(found.tag()) == found);
    let task = read(caller, id).await?;
    let own = task.redriven.iter().any(|found| is_own(*found) == Some(true));
    if let Some(other) = task.redriven.first().filter(|_| !task.children_open && !own) {
        return Ok(Redriven::Before(Box::new(existing(caller, id, *other).await?)));
    }
    // One that is on its way is there once this is answered; the letter, or another's copy, may have come first.
    let acked = redrive(caller, id, copy, queue, acks).await?;
    let own = is_own(acked.id);
    match existing(caller, id, acked.id).await {
        Ok(existing) if own == Some(false) || existing.letter => Ok(Redriven::Before(Box::new(existing))),
        Err(error) if own == Some(false) => Err(error),
        // That it is enqueued is known, whatever else can be read.
        Ok(_) | Err(_) => Ok(Redriven::Now(acked)),
    }
}

/// The copy of a dead task, or the letter that tells of it.
async fn existing(caller: &impl Caller, dead: TaskId, id: TaskId) -> Result<Existing, Error> {
    let task = match read(caller, id).await {
        Err(error) if error.code == ErrorCode::NotFound => None,
        found => Some(found?),
    };
    let of_dead = |task: &TaskView| task.spec.header(headers::DEAD_TASK) == Some(&dead.to_string());
    Ok(Existing { id, letter: task.as_ref().is_some_and(of_dead), task })
}
