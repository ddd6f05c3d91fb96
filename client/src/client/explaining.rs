//! Explanations in words of what keeps tasks from being claimed or from ending.

use super::why::{Cause, Hindrance, WHY_TASKS_MAX, Why, is_open};
use crate::api::{Explanation, GroupProgress};
use crate::text::{clean, number, relative};
use norn_wire::group::{GroupView, MemberOf};
use norn_wire::ids::TaskId;
use norn_wire::limits::GROUP_MEMBERS_MAX;
use norn_wire::membership::{KeyConcurrency, QueuePolicy};
use norn_wire::response::{ClaimOutcome, State, TaskView};
use std::collections::{BTreeMap, BTreeSet};

/// Explains a task and those that it waits for, in the order in which they were found. `now_ms` is in milliseconds since the Unix epoch.
pub fn explanations(why: &Why, now_ms: u64) -> Vec<Explanation> {
    why.ids().map(|id| line(why, id, now_ms)).collect()
}

fn line(why: &Why, id: TaskId, now_ms: u64) -> Explanation {
    let (task, cause) = (why.task(id), why.cause(id, now_ms));
    let explanation = match (task, cause) {
        (Some(task), cause) => explain(why, task, cause, now_ms),
        (None, Cause::Unknown) => "it was never enqueued, or it is forgotten".to_owned(),
        (None, _) => format!("{WHY_TASKS_MAX} tasks were looked at; ask for this one"),
    };
    let waits_for = task.map(|task| task.waits_for.clone()).unwrap_or_default();
    let group = task.and_then(|task| task.group.as_ref()).map(GroupProgress::from);
    let missing = task.map(numbers).unwrap_or_default();
    let state = task.map(|task| task.state);
    let permit_ms = task.filter(|_| cause == Cause::Ready).and_then(|task| permit_ms(why, task, now_ms));
    Explanation { id, state, cause, explanation, waits_for, group, missing, permit_ms }
}

fn explain(why: &Why, task: &TaskView, cause: Cause, now_ms: u64) -> String {
    match cause {
        Cause::Ended => {
            let told = matches!(task.state, State::Dead | State::Cancelled);
            let reason = task.reason.as_deref().filter(|reason| told && !reason.is_empty());
            reason.map_or("it has ended".to_owned(), clean)
        }
        Cause::Claimed => held(task, now_ms),
        Cause::Paused => {
            let paused = QueuePolicy { paused: true, ..QueuePolicy::default() };
            Hindrance::of(&task.spec.queue, &paused).map_or_else(String::new, |paused| paused.text)
        }
        Cause::Ready => ready(task, why.policy(&task.spec.queue), permit_ms(why, task, now_ms), now_ms),
        Cause::Circle => circle(&why.circle(task.id).unwrap_or_default()),
        Cause::WaitsFor => waits(task),
        Cause::GroupOpen => group_open(task),
        Cause::Delayed => format!("its time comes {}", relative(now_ms, task.spec.not_before_ms)),
        Cause::Lost => {
            "every replica that answered has lost its payload; `norn cancel` and `norn purge` remove it".to_owned()
        }
        // Retry, unknown, not asked; the library may add causes later.
        _ => retry(task, now_ms),
    }
}

/// Returns when the rate of a task's queue allows a claim again.
fn permit_ms(why: &Why, task: &TaskView, now_ms: u64) -> Option<u64> {
    why.permit_in_ms(&task.spec.queue).map(|in_ms| now_ms.saturating_add(in_ms))
}

/// Explains what may keep claims from a ready task, from the settings of its queue.
fn ready(task: &TaskView, policy: Option<&QueuePolicy>, permit_ms: Option<u64>, now_ms: u64) -> String {
    let policy = policy.cloned().unwrap_or_default();
    let mut limits = Vec::new();
    if let (Some(key), KeyConcurrency::Most(most)) = (&task.spec.key, policy.key_concurrency) {
        let (tasks, key) = (number(u64::from(most), "task"), clean(key));
        limits.push(format!("when it is its turn: {tasks} with key {key} at a time, the oldest first"));
    }
    if let Some(most) = policy.concurrency {
        limits.push(format!("while fewer than {most} of the queue are held"));
    }
    if policy.rate.is_some() {
        let next = permit_ms.filter(|at_ms| *at_ms > now_ms);
        let next = next.map_or_else(String::new, |at_ms| format!(": the next {}", relative(now_ms, at_ms)));
        limits.push(format!("no faster than the queue's rate{next}"));
    }
    let limits: Vec<String> = limits.into_iter().map(|limit| format!(", {limit}")).collect();
    format!("the next claim from queue {} gets it{}", task.spec.queue, limits.concat())
}

/// Explains the cycle from a task to itself.
fn circle(way: &[TaskId]) -> String {
    let through: Vec<String> = way.iter().map(TaskId::to_string).collect();
    let through = if through.is_empty() { String::new() } else { format!(", through {}", through.join(", ")) };
    format!("it waits for itself{through}: cancel one of them")
}

fn waits(task: &TaskView) -> String {
    let members = missing(task);
    let names = task.waits_for.iter().filter(|id| !members.contains_key(*id)).map(TaskId::to_string);
    let names: Vec<String> = names.chain(told(task, &numbers(task))).collect();
    let open = if is_open(task) { format!("; {}", group_open(task)) } else { String::new() };
    format!("it waits for {}{open}", names.join(", "))
}

fn group_open(task: &TaskView) -> String {
    let ended = number(u64::from(task.group.map_or(0, |group| group.ended)), "member");
    format!(
        "the number of members of its group is not set (`enqueue --total` on one of them does); {ended} ended so far"
    )
}

/// For a join: returns the members that it is known to wait for, with their numbers. It names only the first ones.
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

/// Formats the members that a join waits for, and their number among all.
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
    Some(format!("{noun} {runs}{others} of its group; {}", progress(&group)))
}

/// Formats how the last attempt of a task ended, and when the next one may begin.
fn retry(task: &TaskView, now_ms: u64) -> String {
    let end = task.claims.last().and_then(|claim| claim.end.as_ref());
    let reason = end.and_then(|end| end.reason.as_deref()).map_or_else(String::new, |it| format!(": {}", clean(it)));
    let last = match end.map(|end| end.outcome) {
        Some(ClaimOutcome::Failed) => format!("its last attempt failed{reason}"),
        Some(ClaimOutcome::Expired) => format!("its last attempt expired{reason}"),
        _ => "it waits after its last attempt".to_owned(),
    };
    match task.next_attempt_ms {
        Some(next_ms) => format!("{last}; it is tried again {}", relative(now_ms, next_ms)),
        None => format!("{last}, before it is tried again"),
    }
}

fn held(task: &TaskView, now_ms: u64) -> String {
    let Some(claim) = task.claims.last() else { return "a worker has it".to_owned() };
    let worker = if claim.worker.is_empty() { "a worker".to_owned() } else { clean(&claim.worker) };
    let kept = claim.session.map_or_else(String::new, |session| format!(" as long as its session {session} is open"));
    match claim.end_ms {
        Some(end_ms) => format!("{worker} has it{kept}, with a lease that ends {}", relative(now_ms, end_ms)),
        None => format!("{worker} has it{kept}"),
    }
}

/// Formats the progress of a group.
pub fn progress(group: &GroupView) -> String {
    let GroupView { total, ended, failed } = *group;
    let failed = if failed == 0 { String::new() } else { format!(", {failed} of them failed") };
    match total {
        Some(total) => format!("{ended} of {} ended{failed}", number(u64::from(total), "member")),
        None => {
            format!("{} ended{failed}; how many there are is not known yet", number(u64::from(ended), "member"))
        }
    }
}
