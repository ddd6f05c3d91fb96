//! Diagnosis of why a task is not claimable or has not ended, through all tasks that it waits for.
//!
//! A task names those that it still waits for. Reading each of them in turn leads to tasks that wait for no other task, or, past a
//! dependency cycle, to tasks that wait for themselves. It only reads.

use super::Client;
use super::calling::{Caller, read, request};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::ids::{QueueName, TaskId};
use norn_wire::membership::QueuePolicy;
use norn_wire::request::Request;
use norn_wire::response::{Response, State, TaskView};
use serde::{Deserialize, Serialize};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most tasks that are read.
pub const WHY_TASKS_MAX: usize = 1_000;

/// Why a task is in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = WhyCause))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The task has ended.
    Ended,
    /// A worker holds the task.
    Claimed,
    /// The task can be claimed, and no worker has claimed it.
    Ready,
    /// The queue is paused: none of its tasks are granted.
    Paused,
    /// The task's time has not come.
    Delayed,
    /// Every replica that answered has lost the task's payload.
    Lost,
    /// The task waits after a failed attempt.
    Retry,
    /// The task waits for other tasks.
    WaitsFor,
    /// The task waits for a group whose number of members is not known yet.
    GroupOpen,
    /// Dependency cycle: the task waits for itself, directly or through others.
    Circle,
    /// The task was never enqueued, or it was deleted.
    Unknown,
    /// The task was not read, as the limit was reached.
    NotAsked,
}

/// A task and the tasks that it waits for, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    first: TaskId,
    order: Vec<TaskId>,
    open: VecDeque<TaskId>,
    seen: BTreeSet<TaskId>,
    /// Tasks read so far; `None` if there is no such task.
    tasks: BTreeMap<TaskId, Option<TaskView>>,
    policies: BTreeMap<QueueName, QueuePolicy>,
    /// Milliseconds until the rate of a queue allows a claim.
    permits: BTreeMap<QueueName, u64>,
}

impl Client {
    /// Reads a task and all tasks that it waits for, directly or through others, to show why it is not claimable or has not ended:
    /// [`WHY_TASKS_MAX`] tasks at most.
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

/// Reads a task, those that it waits for, those that these wait for, and so on.
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
    /// Starts with nothing read.
    fn of(first: TaskId) -> Why {
        let (order, open, seen) = (vec![first], VecDeque::from([first]), BTreeSet::from([first]));
        Why { first, order, open, seen, tasks: BTreeMap::new(), policies: BTreeMap::new(), permits: BTreeMap::new() }
    }

    /// The next task to read.
    fn wanted(&mut self) -> Option<TaskId> {
        self.open.pop_front().filter(|_| self.tasks.len() < WHY_TASKS_MAX)
    }

    /// Whether an error means that there is no such task, which is a valid answer except for the first task.
    fn may_miss(&self, id: TaskId, code: ErrorCode) -> bool {
        id != self.first && code == ErrorCode::NotFound
    }

    /// Records a read task, or that there is none.
    fn found(&mut self, id: TaskId, task: Option<TaskView>) {
        for other in task.iter().flat_map(|task| &task.waits_for) {
            if self.seen.insert(*other) {
                self.order.push(*other);
                self.open.push_back(*other);
            }
        }
        self.tasks.insert(id, task);
    }

    /// Whether any task can be claimed: only then the settings of its queue matter, which only the leader of the metadata group knows.
    fn wants_policies(&self) -> bool {
        self.tasks.values().flatten().any(|task| task.state == State::Ready)
    }

    /// Whether any task can be claimed as the rate of its queue allows: only the leader of the queue's coordinator partition knows when.
    fn wants_permits(&self) -> bool {
        let ready = self.tasks.values().flatten().filter(|task| task.state == State::Ready);
        let policies = &mut ready.filter_map(|task| self.policy(&task.spec.queue));
        policies.any(|policy| policy.rate.is_some() && !policy.paused)
    }

    fn set_policies(&mut self, policies: BTreeMap<QueueName, QueuePolicy>) {
        self.policies = policies;
    }

    /// The first task, and those that it waits for, in the order in which they were found.
    pub fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.order.iter().copied()
    }

    /// A task as it was read.
    pub fn task(&self, id: TaskId) -> Option<&TaskView> {
        self.tasks.get(&id)?.as_ref()
    }

    /// Settings of a queue, if a task of it can be claimed and the leader of the metadata group answered.
    pub fn policy(&self, queue: &QueueName) -> Option<&QueuePolicy> {
        self.policies.get(queue)
    }

    /// Milliseconds from the time of the read until the rate of a queue allows a claim again, 0 for at once; if a task of it can be
    /// claimed and the leader of the queue's coordinator partition answered. It may take longer: other workers may claim first.
    pub fn permit_in_ms(&self, queue: &QueueName) -> Option<u64> {
        self.permits.get(queue).copied()
    }

    /// Why a task is in its present state. `now_ms` is in milliseconds since the Unix epoch.
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

    /// Dependency cycle: the tasks between a task and itself, on the shortest path, if it waits for itself.
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

/// Settings of a queue that may keep its ready tasks from being claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// For programs: `paused`, or else `limited`.
    pub cause: &'static str,
    /// For people to read.
    pub text: String,
}

impl Hindrance {
    /// The hindrance in the settings of a queue, if any.
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

/// The hindrance that the leader of the metadata group reports; `None` if it does not answer.
pub async fn hindrance(caller: &impl Caller, queue: &QueueName) -> Option<Hindrance> {
    match request(caller, Request::Cluster).await {
        Ok(Response::Cluster(view)) => Hindrance::of(queue, view.roster.policies.get(queue)?),
        _ => None,
    }
}

/// Whether the number of members of the task's group is not known yet.
pub fn is_open(task: &TaskView) -> bool {
    task.group.is_some_and(|group| group.total.is_none())
}
