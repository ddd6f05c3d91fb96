//! Dead letters, sent back to the queues in which their tasks died.
//!
//! A letter is claimed, and completed with the new task as its child. So no other program sends it back meanwhile, and nothing is lost
//! between the completion and the enqueue.

use super::Client;
use super::answers::{millis, unexpected};
use super::calling::{Caller, read, request};
use crate::session::{Call, Draft, Finish};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::headers;
use norn_wire::ids::{ClaimId, QueueName, TaskId, Token};
use norn_wire::limits::LEASE_MS_DEFAULT;
use norn_wire::request::{Acks, Claim, Completion, Request, Spec};
use norn_wire::response::{Acked, Granted, Response, TaskView};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Letters claimed at once.
const LETTERS: u64 = 32;
/// Lease of these claims.
const LEASE: Duration = Duration::from_millis(LEASE_MS_DEFAULT);
/// Claims of a letter within this time bring the same task. A completion whose child ids are half a day old is refused, in the usual
/// configuration of nodes.
const SAME_MS: u64 = 6 * 3_600_000;
/// Letters claimed longer ago than this are released: their leases may end before they are sent.
const HELD_MAX: Duration = Duration::from_millis(LEASE_MS_DEFAULT / 2);

/// Which letters to send back, and to which queue.
///
/// ```
/// use norn_client::client::LetterOptions;
/// use norn_client::wire::QueueName;
/// let letters = QueueName::new("mail-dead").unwrap();
/// let options = LetterOptions::new(letters).limit(100);
/// # assert_eq!(options.limit, 100);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterOptions {
    /// The queue of the letters.
    pub letters: QueueName,
    /// The queue of the new tasks; by default the queue in which each task died.
    pub to: Option<QueueName>,
    /// Greatest number of letters to send back; by default all that are ready.
    pub limit: u64,
    /// Durability of the completion.
    pub acks: Acks,
}

impl LetterOptions {
    /// All ready letters of a queue, back to where the tasks died.
    pub fn new(letters: QueueName) -> Self {
        LetterOptions { letters, to: None, limit: u64::MAX, acks: Acks::default() }
    }

    /// Sends them to this queue.
    #[must_use]
    pub fn to(mut self, queue: QueueName) -> Self {
        self.to = Some(queue);
        self
    }

    /// Sends at most this many.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the durability of the completion.
    #[must_use]
    pub fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }
}

/// A letter that was sent back: it is done, and its task is enqueued as a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentBack {
    /// Queue of the new task. If an earlier attempt to send the letter back ended as `unknown`, and was meant for another queue, the
    /// task may be there: it is one task, whichever attempt enqueued it first.
    pub queue: QueueName,
    /// The completion of the letter, under the letter's id.
    pub acked: Acked,
    /// The new task. Absent if its id does not follow from the letter, as the node does not report when the letter was claimed.
    pub task: Option<TaskId>,
}

/// Letters to send back one after the other, on request. Holds at most 32 claims.
#[derive(Debug)]
pub struct Letters {
    client: Client,
    sending: Sending,
}

impl Client {
    /// Sends back the ready letters of a queue, each with the next call of [`Letters::next`]: the dead task is enqueued again, as a new
    /// one with all its attempts, and its letter is done.
    ///
    /// ```no_run
    /// # use norn_client::client::{Client, LetterOptions};
    /// # async fn example(client: Client, dead: norn_client::wire::QueueName) -> Result<(), norn_client::wire::Error> {
    /// let mut letters = client.redrive_letters(LetterOptions::new(dead));
    /// while let Some(sent) = letters.next().await? {
    ///     println!("letter {} is back in {}", sent.acked.id, sent.queue);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn redrive_letters(&self, options: LetterOptions) -> Letters {
        Letters { client: self.clone(), sending: Sending::new(options) }
    }
}

impl Letters {
    /// Sends back the next letter. `None` after the last, and at the limit of the options; also if the queue of the letters is paused,
    /// or its rate or its limit of claims is used up.
    ///
    /// A task in the queue that is not a letter is released, and an error of code [`ErrorCode::Invalid`] names it once the letters that
    /// were claimed with it are sent. If some partitions could not be asked for letters, the error is `unavailable`. After any other
    /// error all claimed letters are released, and the next call claims them again; after one of code `unknown` the letter may have
    /// been sent back. If the future is dropped, the next call is for the same letter.
    ///
    /// When this is dropped, letters that it claimed and did not send are released in the background; [`Letters::give_back`] waits for
    /// that.
    pub async fn next(&mut self) -> Result<Option<SentBack>, Error> {
        self.sending.next(&self.client).await
    }

    /// Ends before the last letter, and releases the letters that were claimed and not sent.
    pub async fn give_back(mut self) {
        self.sending.give_back(&self.client).await;
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        self.sending.leave(&self.client);
    }
}

/// Progress of sending back letters.
#[derive(Debug)]
pub struct Sending {
    options: LetterOptions,
    /// Number of letters sent back.
    pub sent: u64,
    /// Letters claimed at the time `claimed`. Each stays here until it is sent or released.
    held: VecDeque<(TaskId, Token)>,
    claimed: Instant,
    /// The completion of the first held letter, once begun: repeats are identical.
    begun: Option<Begun>,
    /// A claimed task that is not a letter.
    strange: Option<TaskId>,
}

impl Sending {
    pub fn new(options: LetterOptions) -> Sending {
        Sending { options, sent: 0, held: VecDeque::new(), claimed: Instant::now(), begun: None, strange: None }
    }

    /// Sends back the next letter.
    pub async fn next(&mut self, caller: &impl Caller) -> Result<Option<SentBack>, Error> {
        if self.claimed.elapsed() > HELD_MAX {
            self.give_back(caller).await;
        }
        loop {
            let Some(&letter) = self.held.front() else {
                if let Some(id) = self.strange.take() {
                    let message =
                        format!("task {id} in {} is no letter; take such tasks out first", self.options.letters);
                    return Err(Error::invalid(message).about(id));
                }
                if self.sent >= self.options.limit || !self.claim(caller).await? {
                    return Ok(None);
                }
                continue;
            };
            match self.try_send(caller, letter).await {
                Ok(sent) => {
                    self.held.pop_front();
                    self.begun = None;
                    if sent.is_some() {
                        self.sent += 1;
                        return Ok(sent);
                    }
                }
                Err(error) => {
                    // No worker should wait for leases of letters without a sender.
                    self.give_back(caller).await;
                    return Err(error);
                }
            }
        }
    }

    /// As [`Sending::next`], for callers that do not call again after dropping the future: the held letters are then released in the
    /// background.
    pub async fn next_or_leave(&mut self, caller: &impl Caller) -> Result<Option<SentBack>, Error> {
        let mut leaving = Leaving { sending: self, caller, over: false };
        let next = leaving.sending.next(caller).await;
        leaving.over = true;
        next
    }

    /// Releases all held letters at once. A release that fails is not repeated beyond the end of the lease, which frees the letter.
    pub async fn give_back(&mut self, caller: &impl Caller) {
        let releases: FuturesUnordered<_> = self.held.iter().map(|letter| release(caller, *letter)).collect();
        let given_back = releases.for_each(|_| async {});
        let _ = tokio::time::timeout(LEASE.saturating_sub(self.claimed.elapsed()), given_back).await;
        self.held.clear();
        self.begun = None;
    }

    /// Releases all held letters in the background.
    pub fn leave(&mut self, caller: &impl Caller) {
        if !self.held.is_empty() {
            caller.give_back(std::mem::take(&mut self.held).into());
        }
        self.begun = None;
    }

    /// Claims more letters. Returns whether there are any.
    async fn claim(&mut self, caller: &impl Caller) -> Result<bool, Error> {
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![self.options.letters.clone()],
            lease_ms: LEASE_MS_DEFAULT,
            wait_ms: 0,
            max: LETTERS.min(self.options.limit - self.sent) as u32,
            worker: "redrive".to_owned(),
            lease_open: true,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        let Response::Claimed { tasks, unavailable, .. } = request(caller, Request::Claim(claim)).await? else {
            return unexpected("claim");
        };
        if tasks.is_empty() && unavailable > 0 {
            let count = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
            let (done, unasked) = (count(self.sent, "letter"), count(unavailable.into(), "partition"));
            let message = format!("{done} redriven, but {unasked} could not be asked; ask again for more");
            return Err(Error::unavailable(message));
        }
        self.held = tasks.iter().map(|task: &Granted| (task.id, task.token)).collect();
        self.claimed = Instant::now();
        Ok(!self.held.is_empty())
    }

    /// Sends back a letter. `None` if the task is not a letter, which is then released.
    async fn try_send(&mut self, caller: &impl Caller, claim: (TaskId, Token)) -> Result<Option<SentBack>, Error> {
        let begun = match &self.begun {
            Some(begun) => begun.clone(),
            None => {
                // A grant does not carry the whole task.
                let letter = read(caller, claim.0).await?;
                let Some(begun) = Begun::new(&letter, claim.1, self.options.to.as_ref(), self.claimed.elapsed()) else {
                    self.strange = Some(claim.0);
                    release(caller, claim).await?;
                    return Ok(None);
                };
                self.begun.insert(begun).clone()
            }
        };
        let later = begun.later;
        match (self.complete(caller, begun).await, later) {
            // The cluster's garbage-collection watermark is later than in the usual configuration: the first id is too old for it.
            (Err(error), Some(later)) if error.code == ErrorCode::TooOld => {
                let begun = self.begun.as_mut().expect("it was begun just now");
                begun.later = None;
                begun.finish.children[0].id = Some(later);
                let begun = begun.clone();
                self.complete(caller, begun).await.map(Some)
            }
            (sent, _) => sent.map(Some),
        }
    }

    async fn complete(&self, caller: &impl Caller, begun: Begun) -> Result<SentBack, Error> {
        let task = begun.finish.children[0].id;
        let call = Call::Complete { items: vec![begun.finish], acks: self.options.acks };
        match caller.make(call).await? {
            Response::Acked(mut results) if results.len() == 1 => {
                let acked = results.remove(0)?;
                Ok(SentBack { queue: begun.queue, acked, task })
            }
            _ => unexpected("complete"),
        }
    }
}

/// The completion of a letter.
#[derive(Debug, Clone)]
struct Begun {
    /// Queue of the new task.
    queue: QueueName,
    finish: Finish,
    /// Alternative id of the new task, if the first is too old.
    later: Option<TaskId>,
}

impl Begun {
    /// Builds the completion of a letter that was claimed under a token, a time `ago`. `None` if the task is not a letter.
    ///
    /// The id of the new task is the same in every attempt: a completion of unknown outcome may turn out to count after another claim
    /// of the letter is completed, and then both bring their child. So the id follows from the letter, and not from the target queue:
    /// otherwise two attempts for two queues might enqueue two tasks. As an id must not be old, its time is that of the first of the
    /// latest claims.
    fn new(letter: &TaskView, token: Token, to: Option<&QueueName>, ago: Duration) -> Option<Begun> {
        let mut draft = written_back(&letter.spec, to)?;
        let queue = draft.spec.queue.clone();
        let starts = || letter.claims.iter().map(|claim| claim.start_ms);
        let latest = starts().max().filter(|latest| *latest > 0);
        let first = latest.and_then(|latest| starts().filter(|start| start.saturating_add(SAME_MS) >= latest).min());
        let name = [b"letter ", &letter.id.as_bytes()[..]].concat();
        let tag = draft.spec.tag();
        let named = |time_ms| {
            let id = TaskId::named(time_ms, &name);
            tag.map_or(id, |tag| id.with_tag(tag))
        };
        draft.id = first.map(named);
        let own = letter.claims.iter().find(|claim| claim.token == token);
        let at_ms = own.map_or(0, |claim| claim.start_ms.saturating_add(millis(ago)));
        let completion = Completion { id: letter.id, token, sequence: None, result: None, at_ms, children: Vec::new() };
        let later = latest.filter(|latest| Some(*latest) != first).map(named);
        Some(Begun { queue, finish: Finish { completion, children: vec![draft] }, later })
    }
}

/// Guard that releases the held letters if sending is dropped midway.
struct Leaving<'a, C: Caller> {
    sending: &'a mut Sending,
    caller: &'a C,
    over: bool,
}

impl<C: Caller> Drop for Leaving<'_, C> {
    fn drop(&mut self) {
        if !self.over {
            self.sending.leave(self.caller);
        }
    }
}

async fn release(caller: &impl Caller, (id, token): (TaskId, Token)) -> Result<(), Error> {
    request(caller, Request::Release { id, token }).await.map(drop)
}

/// The task of a letter; `None` if the task is not a letter.
fn written_back(letter: &Spec, to: Option<&QueueName>) -> Option<Draft> {
    let died = letter.header(headers::DEAD_TASK)?.to_owned();
    let queue = match to {
        Some(queue) => queue.clone(),
        None => QueueName::new(letter.header(headers::DEAD_QUEUE)?).ok()?,
    };
    let own = letter.headers.iter().filter(|(name, _)| !headers::TOLD.contains(&name.as_str())).cloned();
    let headers = own.chain([(headers::REDRIVEN_FROM.to_owned(), died)]).collect();
    let spec = Spec { queue, headers, not_before_ms: 0, after: Vec::new(), ..letter.clone() };
    Some(Draft { id: None, spec, delay_ms: 0, near: None })
}
