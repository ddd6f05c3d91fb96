//! `why`: explains what keeps a task from being claimed or from ending, through all its dependencies.

use super::error::{Exit, Failure};
use super::{Runner, Transport};
use clap::Args;
use norn_client::client::explaining::explanations;
use norn_client::client::why::survey;

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
        let lines = explanations(&why, now_ms);
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

#[cfg(test)]
mod tests {
    use super::super::tests::tables::view as cluster_view;
    use super::super::tests::*;
    use super::*;
    use norn_wire::group::{GroupView, MemberOf};
    use norn_wire::membership::{QueuePolicy, Rate};
    use norn_wire::{Error, ErrorCode, Response, State, TaskView};

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
