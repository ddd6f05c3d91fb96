//! `why`: explains what keeps a task from being claimed or from ending, through all its dependencies.

use super::error::{Exit, Failure};
use super::{Runner, Transport, group, text};
use clap::Args;
use norn_client::api::{Explanation, GroupProgress};
use norn_client::client::why::{Cause, Hindrance, WHY_TASKS_MAX, Why, is_open, survey};
use norn_wire::group::MemberOf;
use norn_wire::limits::GROUP_MEMBERS_MAX;
use norn_wire::membership::{KeyConcurrency, QueuePolicy};
use norn_wire::response::ClaimOutcome;
use norn_wire::{State, TaskId, TaskView};
use std::collections::{BTreeMap, BTreeSet};

/// Arguments of `why`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct WhyArguments {
    /// Task
    #[arg(value_name = "ID")]
    pub id: String,
}

impl WhyArguments {
    pub(super) async fn run<T: Transport>(self, runner: &mut Runner<T>) -> Result<Exit, Failure> {
        let id = runner.resolve(&self.id).await?;
        let why = survey(&*runner, id).await?;
        let now_ms = (runner.clock)();
        let lines: Vec<Explanation> = why.ids().map(|id| line(&why, id, now_ms)).collect();
        why.ids().for_each(|id| runner.recent().see(id));
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
            output.sentence(4, &format!("{}  {state}: {}", line.id, line.explanation))?;
        }
        Ok(Exit::Done)
    }
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
            reason.map_or("it has ended".to_owned(), text::clean)
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
        Cause::Delayed => format!("its time comes {}", text::relative(now_ms, task.spec.not_before_ms)),
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
        let (tasks, key) = (text::number(u64::from(most), "task"), text::clean(key));
        limits.push(format!("when it is its turn: {tasks} with key {key} at a time, the oldest first"));
    }
    if let Some(most) = policy.concurrency {
        limits.push(format!("while fewer than {most} of the queue are held"));
    }
    if policy.rate.is_some() {
        let next = permit_ms.filter(|at_ms| *at_ms > now_ms);
        let next = next.map_or_else(String::new, |at_ms| format!(": the next {}", text::relative(now_ms, at_ms)));
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
    let ended = text::number(u64::from(task.group.map_or(0, |group| group.ended)), "member");
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
    Some(format!("{noun} {runs}{others} of its group; {}", group::progress(&group)))
}

/// Formats how the last attempt of a task ended, and when the next one may begin.
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
    let kept = claim.session.map_or_else(String::new, |session| format!(" as long as its session {session} is open"));
    match claim.end_ms {
        Some(end_ms) => format!("{worker} has it{kept}, with a lease that ends {}", text::relative(now_ms, end_ms)),
        None => format!("{worker} has it{kept}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tables::view as cluster_view;
    use super::super::tests::*;
    use super::*;
    use norn_wire::group::GroupView;
    use norn_wire::membership::Rate;
    use norn_wire::{Error, ErrorCode, Response};

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

    /// Goal: the end of a chain is shown, and each task once although two wait for it.
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
                "unknown: it was never enqueued, or it is forgotten".to_owned(),
            ]
        );
    }

    #[tokio::test]
    async fn a_session_that_keeps_a_claim_is_named() {
        let mut held = TaskView { claims: full_task().claims, ..bare_task(1, State::Claimed) };
        held.claims[0].session = Some(id(9));
        let lines = why(vec![Ok(Response::Task(Box::new(held)))]).await;
        let expected =
            format!("claimed: w1 has it as long as its session {} is open, with a lease that ends in 27s", id(9));
        assert_eq!(lines, [expected]);
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
        assert!(lines[0].starts_with("waiting: the number of members of its group is not set"), "{lines:?}");
        let lines = why(vec![join(None, 4, &[], &[2]), unknown()]).await;
        assert!(lines[0].contains(&id(2).to_string()) && lines[0].contains("is not set"), "{lines:?}");
        let outcome =
            run(&format!("why {} --json", id(1)), [join(Some(3), 1, &[2, 3], &[]), unknown(), unknown()]).await;
        let first = outcome.printed.lines().next().unwrap();
        assert!(
            first.ends_with("\"group\":{\"total\":3,\"ended\":1,\"failed\":1},\"missing\":[2,3],\"permit_ms\":null}"),
            "{first}"
        );
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
             \"group\":null,\"missing\":[],\"permit_ms\":null}}\n",
            id(1)
        );
        assert_eq!(outcome.printed, expected);
    }

    #[tokio::test]
    async fn what_is_ready_can_be_claimed_unless_nobody_says_that_it_is_not_paused() {
        let unavailable = Err(Error::unavailable("no leader"));
        let lines = why(vec![task(1, State::Ready), unavailable]).await;
        assert_eq!(lines, ["ready: the next claim from queue mail gets it"]);
    }

    #[tokio::test]
    async fn what_waits_for_a_rate_says_until_when() {
        let rate = Some(Rate { claims: 1, per_ms: 3_600_000 });
        let answers = |permit_in_ms| {
            let cluster = cluster_view(QueuePolicy { rate, ..QueuePolicy::default() });
            let mut counts = queue_counts();
            counts[0].permit_in_ms = permit_in_ms;
            vec![task(1, State::Ready), Ok(Response::Cluster(Box::new(cluster))), Ok(Response::Queues(counts))]
        };
        let limited = "ready: the next claim from queue mail gets it, no faster than the queue's rate";
        assert_eq!(why(answers(Some(2_520_000))).await, [format!("{limited}: the next in 42m")]);
        assert_eq!(why(answers(Some(0))).await, [limited]);
        assert_eq!(why(answers(None)).await, [limited], "nobody leads the queue's home");
        let printed = run(&format!("why {} --json", id(1)), answers(Some(1_000))).await.printed;
        assert!(printed.contains("\"permit_ms\":1"), "{printed}");
    }
}
