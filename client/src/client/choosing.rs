//! Bulk changes of tasks that are selected by their properties.
//!
//! The tasks are listed first, in pages, so that their number is known before the first of them is changed. Tasks enqueued meanwhile
//! are not included.

use super::calling::{Caller, has_ended, request};
use super::cancelling::seen_ended;
use super::listing::now_ms;
use super::walk::Walk;
use super::{Client, ListOptions};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{TaskId, Token};
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Response, State, TaskView};

/// Errors that refuse a change because the task has changed since it was chosen.
const OVERTAKEN: [ErrorCode; 4] = [ErrorCode::NotFound, ErrorCode::Conflict, ErrorCode::Superseded, ErrorCode::Ended];
/// Advice in a refusal: how a program chooses fewer tasks.
const FEWER: &str = "by queue, state or age";
/// Requests under way at once.
const AT_ONCE: usize = 32;

/// Chosen tasks, as they were when listed. Nothing is changed yet: check their number first.
#[derive(Debug)]
pub struct Chosen {
    client: Client,
    tasks: Vec<Choice>,
}

#[derive(Debug)]
struct Choice {
    id: TaskId,
    state: State,
    /// Token of the latest claim, if the task is claimed.
    token: Option<Token>,
}

impl Client {
    /// Chooses tasks that have not ended, for a bulk change. It only reads. At most 100,000 tasks are examined, fewer if they are
    /// large; more are refused with [`ErrorCode::Invalid`]. Then name a queue, or choose fewer by state or age.
    ///
    /// ```no_run
    /// # use norn_client::client::{Client, ListOptions};
    /// # use norn_client::wire::{Acks, QueueName};
    /// # async fn example(client: Client, mail: QueueName) -> Result<(), norn_client::wire::Error> {
    /// let chosen = client.choose(ListOptions::new().queue(mail).key("customer-7")).await?;
    /// if chosen.len() <= 100 {
    ///     let cancelled = chosen.cancel("the customer has left", Acks::Quorum).await?;
    ///     println!("{cancelled} tasks will not run");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn choose(&self, options: ListOptions) -> Result<Chosen, Error> {
        self.choose_where(options, |state| !has_ended(state)).await
    }

    /// Chooses tasks that have ended, for a bulk purge. Otherwise as [`Client::choose`].
    ///
    /// ```no_run
    /// # use norn_client::client::{Client, ListOptions};
    /// # use norn_client::wire::{Acks, QueueName, response::State};
    /// # use std::time::Duration;
    /// # async fn example(client: Client, mail: QueueName) -> Result<(), norn_client::wire::Error> {
    /// let day = Duration::from_secs(86_400);
    /// let old = client.choose_ended(ListOptions::new().queue(mail).state(State::Done).older(day)).await?;
    /// let purged = old.purge(Acks::Quorum).await?;
    /// println!("{purged} tasks purged");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn choose_ended(&self, options: ListOptions) -> Result<Chosen, Error> {
        self.choose_where(options, has_ended).await
    }

    async fn choose_where(&self, options: ListOptions, wanted: fn(State) -> bool) -> Result<Chosen, Error> {
        let mut tasks = Vec::new();
        let take = |task: &TaskView| {
            if wanted(task.state) {
                tasks.push(Choice { id: task.id, state: task.state, token: held_by(task) });
            }
        };
        each(self, Walk::new(options, now_ms()), FEWER, take).await?;
        Ok(Chosen { client: self.clone(), tasks })
    }
}

impl Chosen {
    /// Number of chosen tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task was chosen.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Ids of the chosen tasks, in the order of the list.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|task| task.id)
    }

    /// Cancels the tasks, several at once. Tasks that have ended meanwhile stay as they are, as with [`Client::cancel`]. Returns how
    /// many were cancelled.
    ///
    /// The first failure that concerns more than one task ends it, once the calls under way are answered. The message says how many
    /// tasks were cancelled, and how many more may be, in which case the code is [`ErrorCode::Unknown`]. Choosing and cancelling again
    /// does the rest.
    pub async fn cancel(self, reason: impl Into<String>, acks: Acks) -> Result<usize, Error> {
        let reason = reason.into();
        let cancel = |task: Choice| Request::Cancel { id: task.id, reason: reason.clone(), at_ms: 0, acks };
        let requests = self.tasks.into_iter().map(cancel).collect();
        carry_out(&self.client, requests, "cancelled", Some(State::Cancelled)).await
    }

    /// Releases the claims of the tasks that were claimed when they were chosen, whichever workers hold them: these tasks can be
    /// claimed again at once, and the holders learn of it when they renew or complete. Choose with `state(State::Claimed)` for
    /// [`Chosen::len`] to count these alone. A task with a newer claim keeps it. Returns how many claims were released.
    ///
    /// Failures are as with [`Chosen::cancel`].
    pub async fn release(self) -> Result<usize, Error> {
        let release = |task: Choice| Some(Request::Release { id: task.id, token: task.token? });
        let requests = self.tasks.into_iter().filter_map(release).collect();
        carry_out(&self.client, requests, "released", None).await
    }

    /// Purges the tasks that had ended when they were [chosen](Client::choose_ended), as [`Client::purge`] does. A task that is gone is
    /// skipped, and a task whose final state has changed is kept, such as a cancelled one that its worker has completed. Returns how
    /// many were purged.
    ///
    /// Failures are as with [`Chosen::cancel`].
    pub async fn purge(self, acks: Acks) -> Result<usize, Error> {
        let ended = self.tasks.into_iter().filter(|task| has_ended(task.state));
        let requests = ended.map(|task| Request::Purge { id: task.id, acks, state: Some(task.state) }).collect();
        carry_out(&self.client, requests, "purged", None).await
    }
}

/// Token of the present claim of a claimed task.
pub fn held_by(task: &TaskView) -> Option<Token> {
    let token = task.claims.iter().map(|claim| claim.token).max();
    token.filter(|_| task.state == State::Claimed)
}

/// Passes each wanted task to `take`. If too many tasks would have to be examined, returns an error, in which `fewer` says how to
/// choose fewer.
pub async fn each(
    caller: &impl Caller,
    mut walk: Walk,
    fewer: &str,
    mut take: impl FnMut(&TaskView),
) -> Result<(), Error> {
    walk.bounded = true;
    while let Some(tasks) = walk.next(caller, LIST_PAGE_MAX).await? {
        tasks.iter().filter(|task| walk.options.wants(task)).for_each(&mut take);
    }
    if walk.is_spent() {
        let looked = walk.looked;
        let message = format!("{looked} tasks were looked at, and there are more than may be: choose fewer {fewer}");
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Sends the requests and returns how many had an effect. After a failure that concerns more than one task, no further requests are
/// sent. Those under way are awaited, as they may take effect: the error then says how many were `done`, and is `unknown` if the
/// outcome of any is. If a node acknowledges a change whatever the task's state, `brings` is the state that only this change produces.
pub async fn carry_out(
    caller: &impl Caller,
    requests: Vec<Request>,
    done: &str,
    brings: Option<State>,
) -> Result<usize, Error> {
    let (chosen, mut changed, mut unknown, mut failure) = (requests.len(), 0, 0, None::<Error>);
    let (mut left, mut running) = (requests.into_iter(), FuturesUnordered::new());
    for request in left.by_ref().take(AT_ONCE) {
        running.push(carry_out_one(caller, request, brings));
    }
    while let Some(answer) = running.next().await {
        match answer {
            Ok(had_effect) => changed += usize::from(had_effect),
            Err(error) if OVERTAKEN.contains(&error.code) => {}
            Err(error) => {
                let may_have = error.code == ErrorCode::Unknown;
                unknown += usize::from(may_have);
                // A certain failure does not hide an unknown outcome.
                if failure.as_ref().is_none_or(|first| may_have && first.code != ErrorCode::Unknown) {
                    failure = Some(error);
                }
            }
        }
        if failure.is_none()
            && let Some(request) = left.next()
        {
            running.push(carry_out_one(caller, request, brings));
        }
    }
    failure.map_or(Ok(changed), |error| {
        let may_be = match unknown {
            0 => String::new(),
            1 => ", one more may be".to_owned(),
            _ => format!(", {unknown} more may be"),
        };
        let message =
            format!("{changed} of {chosen} tasks {done}{may_be}, and no more after this failure: {}", error.message);
        Err(Error { message, ..error })
    })
}

/// Whether a request had an effect. If the task cannot be read, the acknowledgement counts.
async fn carry_out_one(caller: &impl Caller, one: Request, brings: Option<State>) -> Result<bool, Error> {
    // The task may have ended since it was chosen.
    if let Request::Cancel { id, .. } = one
        && seen_ended(caller, id).await.is_some()
    {
        return Ok(false);
    }
    let Response::AckedOne(acked) = request(caller, one).await? else { return Ok(true) };
    let Some(brings) = brings else { return Ok(true) };
    Ok(seen_ended(caller, acked.id).await.is_none_or(|state| state == brings))
}
