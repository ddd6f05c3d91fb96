//! `--timeout`: all calls of one command share it; a command that goes on as long as there is work has it for each call.

use super::*;
use crate::operate::tests::view as cluster_view;
use std::time::Instant;

/// Transport that answers from a script, each time after a delay, and records the time limit of each call.
struct Measured {
    script: Fake,
    timeouts: Mutex<Vec<Option<Duration>>>,
}

/// Least delay of an answer.
const ANSWER: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(3);

impl Transport for Measured {
    async fn call(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        self.timeouts.lock().unwrap().push(timeout);
        let until = Instant::now() + ANSWER;
        tokio::time::sleep_until(until.into()).await;
        self.script.call(call, timeout).await
    }

    fn patience(&self) -> Option<Duration> {
        Some(PATIENCE)
    }
}

async fn timeouts(line: &str, answers: Vec<Result<Response, Error>>) -> Vec<Option<Duration>> {
    let transport = Measured { script: Fake::new(answers), timeouts: Mutex::default() };
    let output = Output::new(Written::default(), Written::default(), false);
    let mut runner = Runner::new(&transport, output, Input::pipe(&b"x"[..]), Place::CommandLine);
    runner.clock = || NOW_MS;
    let command = CommandLine::try_parse_from(line.split(' ')).expect(line);
    runner.run(command.verb).await;
    transport.timeouts.into_inner().unwrap()
}

fn task(number: u32) -> Result<Response, Error> {
    Ok(Response::Task(Box::new(bare_task(number, State::Ready))))
}

/// Goal: a command with several calls takes no longer than its timeout, even if each call takes long.
#[tokio::test]
async fn the_calls_of_a_command_share_its_time() {
    let (one, two) = (id(1), id(2));
    let stored = || Ok(Response::Acked(vec![Ok(acked(9))]));
    let away = || Err(Error::unavailable("away"));
    let view = || Ok(Response::Cluster(Box::new(cluster_view(4))));
    let cases = vec![
        (format!("cancel {one}"), vec![task(1), Ok(Response::AckedOne(acked(1))), task(1)]),
        (format!("enqueue mail x --after {one},{two} --must-exist"), vec![task(1), task(2), stored()]),
        ("cluster status".to_owned(), vec![Ok(Response::Status(Box::new(status()))), away()]),
        ("cluster set moves 3".to_owned(), vec![view(), Ok(Response::Partitions(Vec::new())), away()]),
        (format!("redrive {one}"), vec![task(1), Ok(Response::AckedOne(acked(2)))]),
    ];
    for (line, answers) in cases {
        let count = answers.len();
        let timeouts: Vec<Duration> =
            timeouts(&line, answers).await.into_iter().map(|time| time.expect(&line)).collect();
        assert!(timeouts.len() >= count && timeouts[0] <= PATIENCE, "{line}: {timeouts:?}");
        assert!(timeouts.windows(2).all(|pair| pair[1] + ANSWER <= pair[0]), "{line}: {timeouts:?}");
    }
}

/// Goal: a command that goes on as long as there is work, or tasks to show, is not ended midway.
#[tokio::test]
async fn work_without_an_end_has_the_time_for_each_call() {
    let (one, two) = (id(1), id(2));
    let cases = vec![
        (format!("get {one} {two}"), vec![task(1), task(2)]),
        ("list --json --key a".to_owned(), vec![page(0..3, true), page(3..6, false)]),
        ("enqueue mail --lines".to_owned(), vec![Ok(Response::Acked(vec![Ok(acked(9))]))]),
        ("cancel --queue mail --confirm 1".to_owned(), vec![page(1..2, false), Ok(Response::AckedOne(acked(1)))]),
    ];
    for (line, answers) in cases {
        let timeouts = timeouts(&line, answers).await;
        assert!(!timeouts.is_empty() && timeouts.iter().all(Option::is_none), "{line}: {timeouts:?}");
    }
}

/// Goal: a claim that waits ends when its wait plus the command's time is over, however often it is repeated. Method: the clock stands
/// still, so that all of the wait is left each time.
#[tokio::test]
async fn a_claim_that_waits_has_the_time_once_beside_its_wait() {
    let nothing = || Ok(Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 });
    let asked = timeouts("claim mail --wait 60s", vec![nothing(), nothing(), Err(Error::unavailable("away"))]).await;
    let asked: Vec<Duration> = asked.into_iter().map(|time| time.expect("each call is bounded")).collect();
    assert!(asked.len() == 3 && asked[0] <= PATIENCE, "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[1] + ANSWER <= pair[0]), "{asked:?}");
}

/// Transport that names two members, and reaches neither.
struct Deaf;

impl Transport for Deaf {
    async fn call(&self, _: Call, _: Option<Duration>) -> Result<Response, Error> {
        Ok(Response::Nodes(nodes()))
    }

    async fn ask(&self, _: &str, _: Request) -> Result<Response, Error> {
        std::future::pending().await
    }

    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

/// Goal: members that are asked one by one share the time of the command, too.
#[tokio::test]
async fn members_that_do_not_answer_are_waited_for_no_longer_than_was_said() {
    let notes = Written::default();
    let output = Output::new(Written::default(), notes.clone(), false);
    let mut runner = Runner::new(Deaf, output, Input::pipe(&b""[..]), Place::CommandLine);
    let verb = CommandLine::try_parse_from(["status", "--nodes"]).expect("it is well formed").verb;
    let ended = tokio::time::timeout(Duration::from_secs(60), runner.run(verb)).await;
    assert_eq!(ended.expect("it ends by itself"), Exit::Unavailable);
    assert!(notes.text().contains("n2 at 10.0.0.2:7400: no answer within the time of the command"), "{}", notes.text());
}

/// Goal: time that a person spends typing data does not count toward the time of the calls.
#[tokio::test]
async fn time_counts_from_the_first_call() {
    let timeouts = timeouts("enqueue mail -", vec![Ok(Response::Acked(vec![Ok(acked(9))]))]).await;
    assert!(timeouts[0].is_some_and(|timeout| timeout <= PATIENCE && timeout > PATIENCE / 2), "{timeouts:?}");
}

/// Goal: a wait in a cluster without a majority ends when it said, not a call's time later.
#[tokio::test]
async fn a_wait_and_a_watch_take_little_more_than_they_say() {
    let one = id(1);
    for (line, answers) in [
        (format!("wait {one} --timeout 3s"), vec![Err(Error::unavailable("no majority"))]),
        ("watch mail --timeout 3s".to_owned(), vec![Err(Error::new(ErrorCode::Invalid, "no"))]),
    ] {
        let timeouts = timeouts(&line, answers).await;
        // A watch begins with a call that does not wait.
        let most = if line.starts_with("wait") { Duration::from_secs(1) } else { Duration::from_secs(4) };
        assert!(timeouts[0].is_some_and(|timeout| timeout <= most), "{line}: {timeouts:?}");
    }
    let timeouts = timeouts(&format!("wait {one}"), vec![task(1)]).await;
    assert_eq!(timeouts[0], Some(Duration::from_secs(10)), "one without an end has a time for each of its calls");
}
