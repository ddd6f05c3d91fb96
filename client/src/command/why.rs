//! `why`: what keeps a task from being claimed or from having ended, through all that it waits for.
//!
//! It only reads. A task names those that it still waits for, so asking for each of them in turn leads to those that wait for
//! no other task, and past a circle, to those that wait for themselves.

use super::error::{Exit, Failure};
use super::runner::unexpected;
use super::{Runner, Transport, group, json, text};
use crate::wire::group::MemberOf;
use crate::wire::limits::GROUP_MEMBERS_MAX;
use crate::wire::membership::{KeyConcurrency, QueuePolicy};
use crate::wire::response::ClaimOutcome;
use crate::wire::{ErrorCode, QueueName, Request, Response, State, TaskId, TaskView};
use clap::Args;
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Tasks that are looked at.
const TASKS_MAX: usize = 1_000;

/// Says what keeps a task from being claimed, or from having ended.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WhyArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
}

/// What keeps a task where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Cause {
    /// It has ended.
    Ended,
    /// A worker has it.
    Claimed,
    /// Nobody has claimed it.
    Ready,
    /// Nothing of its queue is granted.
    Paused,
    /// Its time has not come.
    Delayed,
    /// It waits after a failed attempt.
    Retry,
    /// It waits for other tasks.
    WaitsFor,
    /// It comes behind a group of which nobody has said how many members it has.
    GroupOpen,
    /// It waits for itself, through others or not.
    Circle,
    /// Nobody has enqueued it, or it is forgotten.
    Unknown,
    /// Too many were looked at already.
    NotAsked,
}

#[derive(Serialize)]
struct WhyLine {
    id: String,
    state: Option<State>,
    cause: Cause,
    explanation: String,
    waits_for: Vec<String>,
    /// Of a join.
    group: Option<json::GroupLine>,
    /// Numbers of the first members that have not ended.
    missing: Vec<u32>,
}

/// Tasks by their ids, in the order in which they were found; nothing, where there is no such task.
struct Walk {
    order: Vec<TaskId>,
    tasks: BTreeMap<TaskId, Option<TaskView>>,
    policies: BTreeMap<QueueName, QueuePolicy>,
}

impl WhyArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let id = runner.resolve(&self.id).await?;
        let walk = Walk::from(runner, id).await?;
        let now_ms = (runner.clock)();
        let lines: Vec<WhyLine> = walk.order.iter().map(|id| walk.line(*id, now_ms)).collect();
        let output = &mut runner.output;
        if output.json() {
            for line in &lines {
                output.row(line)?;
            }
            output.end_rows()?;
            return Ok(Exit::Done);
        }
        for line in &lines {
            let state = line.state.map_or("unknown".to_owned(), |state| output.state(state));
            output.line(&format!("{}  {state}: {}", line.id, line.explanation))?;
        }
        Ok(Exit::Done)
    }
}

impl Walk {
    /// Asks for a task, for those that it waits for, for those that these wait for, and so on.
    async fn from<T: Transport>(runner: &Runner<T>, first: TaskId) -> Result<Walk, Failure> {
        let mut walk = Walk { order: vec![first], tasks: BTreeMap::new(), policies: BTreeMap::new() };
        let mut seen = BTreeSet::from([first]);
        let mut open = VecDeque::from([first]);
        while let Some(id) = open.pop_front().filter(|_| walk.tasks.len() < TASKS_MAX) {
            let found = look(runner, id, first).await?;
            let waits_for = found.iter().flat_map(|task| task.waits_for.iter().copied());
            for other in waits_for.filter(|other| seen.insert(*other)) {
                walk.order.push(other);
                open.push_back(other);
            }
            walk.tasks.insert(id, found);
        }
        let is_ready = |task: &Option<TaskView>| task.as_ref().is_some_and(|task| task.state == State::Ready);
        // Only of what could be claimed it matters, and only the leader of the root knows.
        if walk.tasks.values().any(is_ready)
            && let Ok(Response::Cluster(view)) = runner.request(Request::Cluster).await
        {
            walk.policies = view.roster.policies;
        }
        Ok(walk)
    }

    fn line(&self, id: TaskId, now_ms: u64) -> WhyLine {
        let (state, waits_for, (cause, explanation)) = match self.tasks.get(&id) {
            Some(Some(task)) => (Some(task.state), &task.waits_for[..], self.explain(task, now_ms)),
            Some(None) => (None, &[][..], (Cause::Unknown, "nobody has enqueued it, or it is forgotten".to_owned())),
            None => (None, &[][..], (Cause::NotAsked, format!("{TASKS_MAX} tasks were looked at; ask for this one"))),
        };
        let waits_for = waits_for.iter().map(TaskId::to_string).collect();
        let task = self.tasks.get(&id).and_then(Option::as_ref);
        let group = task.and_then(|task| task.group.as_ref()).map(json::group);
        let missing = task.map(numbers).unwrap_or_default();
        WhyLine { id: id.to_string(), state, cause, explanation, waits_for, group, missing }
    }

    fn explain(&self, task: &TaskView, now_ms: u64) -> (Cause, String) {
        match task.state {
            State::Done => (Cause::Ended, "it has ended".to_owned()),
            State::Dead | State::Cancelled => {
                let reason = task.reason.as_deref().filter(|reason| !reason.is_empty());
                (Cause::Ended, reason.map_or("it has ended".to_owned(), text::clean))
            }
            State::Claimed => (Cause::Claimed, held(task, now_ms)),
            State::Ready if self.policy(task).is_some_and(|policy| policy.paused) => {
                let queue = text::clean(task.spec.queue.as_str());
                (Cause::Paused, format!("queue {queue} is paused: `queue set {queue} paused no` lets it go on"))
            }
            State::Ready => (Cause::Ready, self.ready(task)),
            State::Waiting if !task.waits_for.is_empty() => self.waits(task),
            State::Waiting if is_open(task) => (Cause::GroupOpen, group_open(task)),
            State::Waiting if task.spec.not_before_ms > now_ms => {
                (Cause::Delayed, format!("its time comes {}", text::relative(now_ms, task.spec.not_before_ms)))
            }
            State::Waiting => (Cause::Retry, retry(task, now_ms)),
        }
    }

    fn policy(&self, task: &TaskView) -> Option<&QueuePolicy> {
        self.policies.get(&task.spec.queue)
    }

    /// What may stand between a task and whoever claims, by what is set for its queue.
    fn ready(&self, task: &TaskView) -> String {
        let policy = self.policy(task).cloned().unwrap_or_default();
        let mut limits = Vec::new();
        if let (Some(key), KeyConcurrency::Most(most)) = (&task.spec.key, policy.key_concurrency) {
            let tasks = text::number(u64::from(most), "task");
            limits.push(format!(
                "when it is its turn: {tasks} with key {} at a time, the oldest first",
                text::clean(key)
            ));
        }
        if let Some(most) = policy.concurrency {
            limits.push(format!("while fewer than {most} of the queue are held"));
        }
        if policy.rate.is_some() {
            limits.push("no faster than the queue's rate".to_owned());
        }
        let limits: Vec<String> = limits.into_iter().map(|limit| format!(", {limit}")).collect();
        format!("whoever claims from queue {} gets it{}", task.spec.queue, limits.concat())
    }

    fn waits(&self, task: &TaskView) -> (Cause, String) {
        if let Some(circle) = self.circle(task.id) {
            let through: Vec<String> = circle.iter().map(TaskId::to_string).collect();
            let through = if through.is_empty() { String::new() } else { format!(", through {}", through.join(", ")) };
            return (Cause::Circle, format!("it waits for itself{through}: cancel one of them"));
        }
        let members = missing(task);
        let names = task.waits_for.iter().filter(|id| !members.contains_key(*id)).map(TaskId::to_string);
        let names: Vec<String> = names.chain(told(task, &numbers(task))).collect();
        let open = if is_open(task) { format!("; {}", group_open(task)) } else { String::new() };
        (Cause::WaitsFor, format!("it waits for {}{open}", names.join(", ")))
    }

    /// The tasks between one and itself, on the shortest way, if it waits for itself.
    fn circle(&self, id: TaskId) -> Option<Vec<TaskId>> {
        let waits_for = |id: TaskId| self.tasks.get(&id).into_iter().flatten().flat_map(|task| task.waits_for.iter());
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

fn is_open(task: &TaskView) -> bool {
    task.group.is_some_and(|group| group.total.is_none())
}

fn group_open(task: &TaskView) -> String {
    let ended = text::number(u64::from(task.group.map_or(0, |group| group.ended)), "member");
    format!(
        "nobody has said how many members its group has (`enqueue --total` on one of them does); {ended} ended so far"
    )
}

/// Of a join: the members that it is known to wait for, with their numbers. It names the first ones.
fn missing(task: &TaskView) -> BTreeMap<TaskId, u32> {
    let waits = task.group.is_some() && !task.waits_for.is_empty();
    let total = task.group.filter(|_| waits).and_then(|group| group.total).unwrap_or(0).min(GROUP_MEMBERS_MAX);
    let waits_for: BTreeSet<&TaskId> = task.waits_for.iter().collect();
    let members = (1..=total).map(|number| (MemberOf { group: task.id, number }.id(), number));
    members.filter(|(id, _)| waits_for.contains(id)).collect()
}

fn numbers(task: &TaskView) -> Vec<u32> {
    let mut numbers: Vec<u32> = missing(task).into_values().collect();
    numbers.sort_unstable();
    numbers
}

/// The members that a join waits for, and how many that is of all.
fn told(task: &TaskView, numbers: &[u32]) -> Option<String> {
    let group = task.group.filter(|_| !numbers.is_empty())?;
    let runs = numbers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(u32::to_string).collect(),
    });
    let runs = runs.collect::<Vec<_>>().join(", ");
    let open = u64::from(group.total.unwrap_or(0).saturating_sub(group.ended));
    let others = open.saturating_sub(numbers.len() as u64);
    let others = if others == 0 { String::new() } else { format!(" and {others} more") };
    let noun = if open == 1 { "member" } else { "members" };
    Some(format!("{noun} {runs}{others} of its group; {}", group::progress(&group)))
}

/// A task; that there is none is an answer, but for the one that was asked about.
async fn look<T: Transport>(runner: &Runner<T>, id: TaskId, first: TaskId) -> Result<Option<TaskView>, Failure> {
    match runner.request(Request::Get { id, minimum: None, minimum_sequence: None }).await {
        Ok(Response::Task(task)) => Ok(Some(*task)),
        Ok(_) => Err(unexpected("get")),
        Err(failure) if id != first && failure.error().is_some_and(|error| error.code == ErrorCode::NotFound) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// How the last attempt of a task ended, and when the next one may begin.
fn retry(task: &TaskView, now_ms: u64) -> String {
    let end = task.claims.last().and_then(|claim| claim.end.as_ref());
    let reason =
        end.and_then(|end| end.reason.as_deref()).map_or_else(String::new, |it| format!(": {}", text::clean(it)));
    let last = match end.map(|end| end.outcome) {
        Some(ClaimOutcome::Failed) => format!("its last attempt failed{reason}"),
        Some(ClaimOutcome::Expired) => format!("its last attempt expired{reason}"),
        _ => "it waits after its last attempt".to_owned(),
    };
    match task.next_attempt_ms {
        Some(next_ms) => format!("{last}; it is tried again {}", text::relative(now_ms, next_ms)),
        None => format!("{last}, before it is tried again"),
    }
}

fn held(task: &TaskView, now_ms: u64) -> String {
    let Some(claim) = task.claims.last() else { return "a worker has it".to_owned() };
    let worker = if claim.worker.is_empty() { "a worker".to_owned() } else { text::clean(&claim.worker) };
    match claim.end_ms {
        Some(end_ms) => format!("{worker} has it, with a lease that ends {}", text::relative(now_ms, end_ms)),
        None => format!("{worker} has it"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::wire::Error;
    use crate::wire::group::GroupView;

    fn waiting(number: u32, on: &[u32]) -> Result<Response, Error> {
        let waits_for = on.iter().copied().map(id).collect();
        Ok(Response::Task(Box::new(TaskView { waits_for, ..bare_task(number, State::Waiting) })))
    }

    fn task(number: u32, state: State) -> Result<Response, Error> {
        Ok(Response::Task(Box::new(bare_task(number, state))))
    }

    fn unknown() -> Result<Response, Error> {
        Err(Error::new(ErrorCode::NotFound, "no such task"))
    }

    async fn why(answers: Vec<Result<Response, Error>>) -> Vec<String> {
        let outcome = run(&format!("why {}", id(1)), answers).await;
        assert_eq!((outcome.exit, &outcome.noted[..]), (Exit::Done, ""));
        outcome.printed.lines().map(|line| line.split_once("  ").expect("an id").1.to_owned()).collect()
    }

    /// Goal: what is at the end of a chain is shown, and each task once although two wait for it.
    #[tokio::test]
    async fn it_leads_to_what_waits_for_nothing() {
        let held = TaskView { claims: full_task().claims, ..bare_task(4, State::Claimed) };
        let answers = vec![
            waiting(1, &[2, 3]),
            waiting(2, &[4]),
            waiting(3, &[4, 5]),
            Ok(Response::Task(Box::new(held))),
            unknown(),
        ];
        assert_eq!(
            why(answers).await,
            [
                format!("waiting: it waits for {}, {}", id(2), id(3)),
                format!("waiting: it waits for {}", id(4)),
                format!("waiting: it waits for {}, {}", id(4), id(5)),
                "claimed: w1 has it, with a lease that ends in 27s".to_owned(),
                "unknown: nobody has enqueued it, or it is forgotten".to_owned(),
            ]
        );
    }

    fn join(total: Option<u32>, ended: u32, numbers: &[u32], others: &[u32]) -> Result<Response, Error> {
        let group = Some(GroupView { total, ended, failed: 1 });
        let members = numbers.iter().map(|number| MemberOf { group: id(1), number: *number }.id());
        let waits_for = others.iter().copied().map(id).chain(members).collect();
        Ok(Response::Task(Box::new(TaskView { group, waits_for, ..bare_task(1, State::Waiting) })))
    }

    #[tokio::test]
    async fn a_join_says_which_members_are_missing_or_that_its_group_is_not_closed() {
        let lines = why(vec![join(Some(20), 10, &[3, 4, 5, 9], &[]), unknown(), unknown(), unknown(), unknown()]).await;
        let expected =
            "waiting: it waits for members 3-5, 9 and 6 more of its group; 10 of 20 members ended, 1 of them failed";
        assert_eq!((lines[0].as_str(), lines.len()), (expected, 5));
        let lines = why(vec![join(Some(1), 0, &[1], &[2]), unknown(), unknown()]).await;
        assert!(lines[0].contains(&format!("it waits for {}, member 1 of its group;", id(2))), "{lines:?}");
        let lines = why(vec![join(None, 4, &[], &[])]).await;
        assert!(lines[0].starts_with("waiting: nobody has said how many members its group has"), "{lines:?}");
        let lines = why(vec![join(None, 4, &[], &[2]), unknown()]).await;
        assert!(lines[0].contains(&id(2).to_string()) && lines[0].contains("nobody has said"), "{lines:?}");
        let outcome =
            run(&format!("why {} --json", id(1)), [join(Some(3), 1, &[2, 3], &[]), unknown(), unknown()]).await;
        let first = outcome.printed.lines().next().unwrap();
        assert!(first.ends_with("\"group\":{\"total\":3,\"ended\":1,\"failed\":1},\"missing\":[2,3]}"), "{first}");
    }

    #[tokio::test]
    async fn a_circle_is_named() {
        let lines = why(vec![waiting(1, &[2]), waiting(2, &[3, 2]), waiting(3, &[1])]).await;
        assert_eq!(
            lines,
            [
                format!("waiting: it waits for itself, through {}, {}: cancel one of them", id(2), id(3)),
                "waiting: it waits for itself: cancel one of them".to_owned(),
                format!("waiting: it waits for itself, through {}, {}: cancel one of them", id(1), id(2)),
            ]
        );
    }

    #[tokio::test]
    async fn who_asks_for_a_task_that_is_not_there_is_told_so() {
        let outcome = run(&format!("why {}", id(1)), [unknown()]).await;
        assert_ne!(outcome.exit, Exit::Done);
        assert!(outcome.printed.is_empty() && !outcome.noted.is_empty());
    }

    #[tokio::test]
    async fn programs_read_a_line_for_each_task() {
        let outcome = run(&format!("why {} --json", id(1)), [task(1, State::Done)]).await;
        let expected = format!(
            "{{\"id\":\"{}\",\"state\":\"done\",\"cause\":\"ended\",\"explanation\":\"it has ended\",\"waits_for\":[],\
             \"group\":null,\"missing\":[]}}\n",
            id(1)
        );
        assert_eq!(outcome.printed, expected);
    }

    #[tokio::test]
    async fn what_is_ready_can_be_claimed_unless_nobody_says_that_it_is_not_paused() {
        let unavailable = Err(Error::unavailable("no leader"));
        let lines = why(vec![task(1, State::Ready), unavailable]).await;
        assert_eq!(lines, ["ready: whoever claims from queue mail gets it"]);
    }
}
