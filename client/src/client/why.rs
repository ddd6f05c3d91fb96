//! What keeps a task from being claimed or from having ended, through all that it waits for.
//!
//! A task names those that it still waits for, so asking for each of them in turn leads to those that wait for no other task,
//! and past a circle, to those that wait for themselves. It only reads.

use super::Client;
use super::calling::{Caller, read, request};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::membership::QueuePolicy;
use norn_wire::request::Request;
use norn_wire::response::{Response, State, TaskView};
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most tasks that are looked at.
pub const WHY_TASKS_MAX: usize = 1_000;

/// What keeps a task where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// It has ended.
    Ended,
    /// A worker has it.
    Claimed,
    /// No worker has claimed it.
    Ready,
    /// Nothing of its queue is granted.
    Paused,
    /// Its time has not come.
    Delayed,
    /// Every replica that answered has lost its payload.
    Lost,
    /// It waits after a failed attempt.
    Retry,
    /// It waits for other tasks.
    WaitsFor,
    /// It comes behind a group whose number of members is not known yet.
    GroupOpen,
    /// It waits for itself, through others or not.
    Circle,
    /// It was never enqueued, or it is forgotten.
    Unknown,
    /// Too many were looked at already.
    NotAsked,
}

/// A task and those that it waits for, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    first: TaskId,
    order: Vec<TaskId>,
    open: VecDeque<TaskId>,
    seen: BTreeSet<TaskId>,
    /// Nothing, where there is no such task.
    tasks: BTreeMap<TaskId, Option<TaskView>>,
    policies: BTreeMap<QueueName, QueuePolicy>,
    /// In how many milliseconds rates allow a claim.
    permits: BTreeMap<QueueName, u64>,
}

impl Client {
    /// What keeps a task from being claimed, or from having ended: it, and the tasks that it waits for, and those that these wait for,
    /// [`WHY_TASKS_MAX`] of them at most.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client, id: norn_client::wire::TaskId) -> Result<(), norn_client::wire::Error> {
    /// let why = client.why(id).await?;
    /// for task in why.ids() {
    ///     println!("{task}: {:?}", why.cause(task, 0));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn why(&self, id: TaskId) -> Result<Why, Error> {
        survey(self, id).await
    }
}

/// Asks for a task, for those that it waits for, for those that these wait for, and so on.
pub async fn survey(caller: &impl Caller, first: TaskId) -> Result<Why, Error> {
    let mut why = Why::of(first);
    while let Some(id) = why.wanted() {
        match read(caller, id).await {
            Ok(task) => why.found(id, Some(task)),
            Err(error) if why.may_miss(id, error.code) => why.found(id, None),
            Err(error) => return Err(error),
        }
    }
    if why.wants_policies()
        && let Ok(Response::Cluster(view)) = request(caller, Request::Cluster).await
    {
        why.set_policies(view.roster.policies);
    }
    if why.wants_permits()
        && let Ok(Response::Queues(queues)) = request(caller, Request::Queues).await
    {
        why.permits = queues.into_iter().filter_map(|line| Some((line.queue, line.permit_in_ms?))).collect();
    }
    Ok(why)
}

impl Why {
    /// Nothing is known yet.
    fn of(first: TaskId) -> Why {
        let (order, open, seen) = (vec![first], VecDeque::from([first]), BTreeSet::from([first]));
        Why { first, order, open, seen, tasks: BTreeMap::new(), policies: BTreeMap::new(), permits: BTreeMap::new() }
    }

    /// The task to be asked for next.
    fn wanted(&mut self) -> Option<TaskId> {
        self.open.pop_front().filter(|_| self.tasks.len() < WHY_TASKS_MAX)
    }

    /// Whether an error says that there is no such task, which is an answer but for the first.
    fn may_miss(&self, id: TaskId, code: ErrorCode) -> bool {
        id != self.first && code == ErrorCode::NotFound
    }

    /// What was wanted, if there is such a task.
    fn found(&mut self, id: TaskId, task: Option<TaskView>) {
        for other in task.iter().flat_map(|task| &task.waits_for) {
            if self.seen.insert(*other) {
                self.order.push(*other);
                self.open.push_back(*other);
            }
        }
        self.tasks.insert(id, task);
    }

    /// Whether a task could be claimed: only then what is set for its queue matters, and only the leader of the root knows.
    fn wants_policies(&self) -> bool {
        self.tasks.values().flatten().any(|task| task.state == State::Ready)
    }

    /// Whether a task could be claimed as its queue's rate allows: only the leader of the queue's home knows when.
    fn wants_permits(&self) -> bool {
        let ready = self.tasks.values().flatten().filter(|task| task.state == State::Ready);
        let policies = &mut ready.filter_map(|task| self.policy(&task.spec.queue));
        policies.any(|policy| policy.rate.is_some() && !policy.paused)
    }

    fn set_policies(&mut self, policies: BTreeMap<QueueName, QueuePolicy>) {
        self.policies = policies;
    }

    /// The task that was asked about, and those that it waits for, in the order in which they were found.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.order.iter().copied()
    }

    /// What was found of a task.
    pub fn task(&self, id: TaskId) -> Option<&TaskView> {
        self.tasks.get(&id)?.as_ref()
    }

    /// What is set for a queue, where a task of it could be claimed and the leader of the root answered.
    pub fn policy(&self, queue: &QueueName) -> Option<&QueuePolicy> {
        self.policies.get(queue)
    }

    /// In how many milliseconds from when that was asked the rate of a queue allows a claim again, 0 for at once, where a task of it could
    /// be claimed and the leader of the queue's home answered. It may be later: others may claim before.
    pub fn permit_in_ms(&self, queue: &QueueName) -> Option<u64> {
        self.permits.get(queue).copied()
    }

    /// What keeps a task where it is. The time is in milliseconds since the Unix epoch.
    pub fn cause(&self, id: TaskId, now_ms: u64) -> Cause {
        let task = match self.tasks.get(&id) {
            Some(Some(task)) => task,
            Some(None) => return Cause::Unknown,
            None => return Cause::NotAsked,
        };
        let is_paused = || self.policy(&task.spec.queue).is_some_and(|policy| policy.paused);
        match task.state {
            State::Done | State::Dead | State::Cancelled => Cause::Ended,
            State::Claimed => Cause::Claimed,
            State::Waiting if task.lost.is_some_and(|lost| lost.payload) => Cause::Lost,
            State::Ready if is_paused() => Cause::Paused,
            State::Ready => Cause::Ready,
            State::Waiting if !task.waits_for.is_empty() && self.circle(id).is_some() => Cause::Circle,
            State::Waiting if !task.waits_for.is_empty() => Cause::WaitsFor,
            State::Waiting if is_open(task) => Cause::GroupOpen,
            State::Waiting if task.spec.not_before_ms > now_ms => Cause::Delayed,
            State::Waiting => Cause::Retry,
        }
    }

    /// The tasks between one and itself, on the shortest way, if it waits for itself.
    pub fn circle(&self, id: TaskId) -> Option<Vec<TaskId>> {
        let waits_for = |id: TaskId| self.task(id).into_iter().flat_map(|task| &task.waits_for);
        let mut from: BTreeMap<TaskId, TaskId> = BTreeMap::new();
        let mut open = VecDeque::from([id]);
        while let Some(here) = open.pop_front() {
            for other in waits_for(here).copied() {
                if other == id {
                    let back = std::iter::successors(Some(here), |place| from.get(place).copied());
                    let mut way: Vec<TaskId> = back.take_while(|place| *place != id).collect();
                    way.reverse();
                    return Some(way);
                }
                if let Entry::Vacant(place) = from.entry(other) {
                    place.insert(here);
                    open.push_back(other);
                }
            }
        }
        None
    }
}

/// What is set for a queue that may keep what is ready in it from being claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// For programs: `paused`, or else `limited`.
    pub cause: &'static str,
    /// For people.
    pub text: String,
}

impl Hindrance {
    /// By what is set for a queue.
    pub fn of(queue: &QueueName, policy: &QueuePolicy) -> Option<Hindrance> {
        if policy.paused {
            let text = format!("queue {queue} is paused: `queue set {queue} paused no` lets it go on");
            return Some(Hindrance { cause: "paused", text });
        }
        let held = policy.concurrency.map(|most| format!("while fewer than {most} of it are held"));
        let limits: Vec<String> =
            held.into_iter().chain(policy.rate.map(|_| "no faster than its rate".into())).collect();
        let text =
            || format!("queue {queue} is claimed from {}: `queue show {queue}` says more", limits.join(", and "));
        (!limits.is_empty()).then(|| Hindrance { cause: "limited", text: text() })
    }
}

/// The same, as the leader of the root knows it; nothing where it does not answer.
pub async fn hindrance(caller: &impl Caller, queue: &QueueName) -> Option<Hindrance> {
    match request(caller, Request::Cluster).await {
        Ok(Response::Cluster(view)) => Hindrance::of(queue, view.roster.policies.get(queue)?),
        _ => None,
    }
}

/// Whether the number of members of its group is not known yet.
pub fn is_open(task: &TaskView) -> bool {
    task.group.is_some_and(|group| group.total.is_none())
}
