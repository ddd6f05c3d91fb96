//! Changes of many tasks: their choice, confirmation and execution.

use super::*;
use norn_wire::Acks;
use norn_wire::response::{ClaimEnd, ClaimOutcome};

/// Returns tasks 1 to 6, in all states; the second and the third have a key.
fn all_states() -> Result<Response, Error> {
    let states = [State::Waiting, State::Ready, State::Claimed, State::Done, State::Dead, State::Cancelled];
    let mut tasks: Vec<TaskView> = (1..).zip(states).map(|(number, state)| bare_task(number, state)).collect();
    for task in &mut tasks[1..3] {
        task.spec.key = Some("seven".to_owned());
    }
    tasks[2].claims = [1, 2].map(claim_numbered).to_vec();
    Ok(Response::Page(Page { tasks, next: None }))
}

fn claim_numbered(number: u64) -> ClaimView {
    let token = Token { epoch: 7, number };
    ClaimView {
        token,
        start_ms: 1,
        end_ms: None,
        completed_ms: None,
        worker: String::new(),
        rejected: None,
        superseded: None,
        session: None,
        end: None,
    }
}

fn cancelled(number: u32) -> Result<Response, Error> {
    Ok(Response::AckedOne(acked(number)))
}

fn read(number: u32, state: State) -> Result<Response, Error> {
    Ok(Response::Task(Box::new(bare_task(number, state))))
}

fn requests(outcome: &Outcome) -> Vec<Request> {
    let of = |call: &(Call, _)| match &call.0 {
        Call::Request(request) => request.clone(),
        other => panic!("{other:?}"),
    };
    outcome.calls.iter().map(of).collect()
}

fn cancel(number: u32) -> Request {
    Request::Cancel { id: id(number), reason: "stop".to_owned(), at_ms: 0, acks: Acks::Quorum }
}

/// Goal: a dry run counts, and changes nothing.
#[tokio::test]
async fn a_dry_run_only_counts() {
    for (options, chosen) in [("", 3), ("--key seven", 2), ("--key eight", 0), ("--state ready", 1)] {
        let line = format!("cancel --queue mail {options} --dry-run");
        let one_state = options.contains("--state");
        // For a requested state, the node returns only tasks in it.
        let answer = || if one_state { page(2..3, false) } else { all_states() };
        let outcome = run(&line, [answer()]).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Done, 1), "{line}");
        let Request::List { state, .. } = &requests(&outcome)[0] else { panic!("{:?}", outcome.calls) };
        assert_eq!(*state, one_state.then_some(State::Ready));
        let outcome = run(&format!("{line} --json"), [answer()]).await;
        assert_eq!(outcome.printed, format!("{{\"chosen\":{chosen},\"changed\":0}}\n"), "{line}");
    }
}

/// Goal: nothing is changed unless the number of chosen tasks is given, and is right.
#[tokio::test]
async fn many_are_cancelled_only_when_their_number_is_confirmed() {
    for line in ["cancel --queue mail", "cancel --queue mail --confirm 2"] {
        let outcome = run(line, [all_states()]).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{line}");
        let told = format!("{}{}", outcome.printed, outcome.noted);
        assert!(told.contains("3 tasks chosen, and none cancelled") && told.contains("--confirm 3"), "{told}");
    }
    let each =
        (1..=3).flat_map(|number| [read(number, State::Ready), cancelled(number), read(number, State::Cancelled)]);
    let answers = [all_states()].into_iter().chain(each);
    let outcome = run("cancel --queue mail --confirm 3 --reason stop", answers).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "3 tasks cancelled\n"));
    let sent = requests(&outcome);
    assert_eq!([&sent[2], &sent[5], &sent[8]], [&cancel(1), &cancel(2), &cancel(3)]);
    for line in ["cancel --queue mail", "cancel --queue mail --confirm 0"] {
        let outcome = run(line, [page(0..0, false)]).await;
        assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "no task matches\n"), "{line}");
    }
    // A repeat after the change finds none any more.
    let outcome = run("cancel --queue mail --confirm 3", [page(0..0, false)]).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "no task matches\n"), "{}", outcome.noted);
    let outcome = run("cancel --queue mail --confirm 3 --json", [page(0..0, false)]).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "{\"chosen\":0,\"changed\":0}\n"));
}

/// Goal: tasks that others changed meanwhile are counted separately, and any other failure says how far the command came.
#[tokio::test]
async fn what_is_overtaken_is_no_failure_and_what_fails_says_how_far_it_came() {
    let line = "cancel --queue mail --confirm 3";
    let gone = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    // The second is gone. The third was done before its cancellation, which is acknowledged nevertheless.
    let read_of = |number, state| [read(number, State::Ready), cancelled(number), read(number, state)];
    let answers = [all_states()].into_iter().chain(read_of(1, State::Cancelled)).chain([gone(), gone()]);
    let outcome = run(line, answers.chain(read_of(3, State::Done))).await;
    assert_eq!(outcome.printed, "1 of 3 tasks cancelled; 2 had ended or changed hands meanwhile\n");
    assert_eq!(outcome.exit, Exit::Done);
    let full = Err(Error::new(ErrorCode::NoSpace, "the disk is full"));
    let answers = [all_states()].into_iter().chain(read_of(1, State::Cancelled)).chain([read(2, State::Ready), full]);
    let outcome = run(line, answers.chain(read_of(3, State::Cancelled))).await;
    assert_eq!(outcome.exit, Exit::Unavailable);
    let told = format!("{}{}", outcome.printed, outcome.noted);
    assert!(told.contains("2 of 3 tasks cancelled, and no more after this failure: the disk is full"), "{told}");
}

/// Goal: a task that died since it was chosen keeps its reason.
#[tokio::test]
async fn what_ended_since_it_was_chosen_is_not_cancelled() {
    let answers = [all_states(), read(1, State::Dead), read(2, State::Cancelled), read(3, State::Done)];
    let outcome = run("cancel --queue mail --confirm 3", answers).await;
    assert_eq!(outcome.printed, "0 of 3 tasks cancelled; 3 had ended or changed hands meanwhile\n");
    assert!(
        requests(&outcome)[1..].iter().all(|request| matches!(request, Request::Get { .. })),
        "{:?}",
        outcome.calls
    );
}

/// Goal: a choice that is too large is refused, and the message names options that make it smaller.
#[tokio::test]
async fn a_choice_that_is_too_large_names_the_options_for_a_smaller_one() {
    let outcome = run("cancel --queue mail --dry-run", (0..2_000).map(|number| page(number..number + 1, true))).await;
    assert_eq!(outcome.exit, Exit::Refused, "{}", outcome.printed);
    assert!(outcome.noted.contains("2000 tasks were looked at"), "{}", outcome.noted);
    assert!(outcome.noted.contains("--state, --older or --newer"), "{}", outcome.noted);
}

/// Transport with three tasks that accepts cancellations, but has no majority to read from.
struct Cut(Arc<Mutex<Looks>>);

/// Counts of reads of single tasks that wait for a majority.
#[derive(Default)]
struct Looks {
    all: usize,
    open: usize,
    open_max: usize,
}

/// One such read, until this is dropped.
struct Look(Arc<Mutex<Looks>>);

impl Look {
    fn begin(looks: &Arc<Mutex<Looks>>) -> Look {
        let mut all = looks.lock().unwrap();
        all.all += 1;
        all.open += 1;
        all.open_max = all.open_max.max(all.open);
        Look(Arc::clone(looks))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.0.lock().unwrap().open -= 1;
    }
}

impl Transport for Cut {
    async fn call(&self, call: Call, _: Option<Duration>) -> Result<Response, Error> {
        match call {
            Call::Request(Request::List { .. }) => all_states(),
            Call::Request(Request::Cancel { id, .. }) => Ok(Response::AckedOne(Acked { id, ..acked(1) })),
            _ => {
                let _look = Look::begin(&self.0);
                std::future::pending().await
            }
        }
    }
}

/// Goal: without a majority, reading each task delays its cancellation no longer than for a single task. Method: each task is read before
/// and after its cancellation, and each read waits for its time limit; all three wait concurrently.
#[tokio::test]
async fn many_are_cancelled_where_no_majority_can_be_read_from() {
    let printed = Written::default();
    let output = Output::new(printed.clone(), Written::default(), false);
    let looks = Arc::default();
    let mut runner = Runner::new(Cut(Arc::clone(&looks)), output, Input::pipe(&b""[..]), Place::CommandLine);
    let command = CommandLine::try_parse_from("cancel --queue mail --confirm 3".split(' ')).unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(60), runner.run(command.verb)).await.expect("it ends");
    assert_eq!((exit, printed.text().as_str()), (Exit::Done, "3 tasks cancelled\n"));
    let looks = looks.lock().unwrap();
    assert_eq!((looks.all, looks.open_max, looks.open), (6, 3, 0), "they wait at once");
}

/// Goal: tasks are chosen by the failure of their last attempt; a released claim is no attempt.
#[tokio::test]
async fn what_failed_for_a_reason_is_chosen() {
    let end = |outcome, reason: &str| Some(ClaimEnd { outcome, at_ms: 1, reason: Some(reason.into()) });
    let ends = [
        (ClaimOutcome::Failed, "no route to host"),
        (ClaimOutcome::Failed, "busy"),
        (ClaimOutcome::Superseded, "no route"),
    ];
    let mut tasks: Vec<TaskView> = (1..=4).map(|number| bare_task(number, State::Waiting)).collect();
    for (task, (outcome, reason)) in tasks.iter_mut().zip(ends) {
        task.claims = [1, 2].map(claim_numbered).to_vec();
        task.claims[0].end = end(outcome, reason);
        task.claims[1].end = end(ClaimOutcome::Released, "");
    }
    let page = || Ok(Response::Page(Page { tasks: tasks.clone(), next: None }));
    let outcome = run("cancel --queue mail --failed-with 'no route' --dry-run", [page()]).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "1 task chosen; --confirm 1 does it\n"));
    let outcome = run("list mail --failed-with 'no route' --json", [page()]).await;
    assert!(
        outcome.printed.contains(&id(1).to_string()) && outcome.printed.lines().count() == 1,
        "{}",
        outcome.printed
    );
}

/// Goal: for held tasks, the latest claim is released.
#[tokio::test]
async fn many_are_released_whoever_holds_them() {
    let outcome = run("release --queue mail --confirm 1", [all_states(), Ok(Response::Done)]).await;
    assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "1 task released\n"));
    let sent = requests(&outcome);
    assert!(matches!(sent[0], Request::List { state: Some(State::Claimed), .. }), "{sent:?}");
    assert_eq!(sent[1], Request::Release { id: id(3), token: Token { epoch: 7, number: 2 } });
}

fn purge(number: u32) -> Request {
    Request::Purge { id: id(number), acks: Acks::Quorum, state: None }
}

/// Returns the purge of one task of `all_states`, as chosen.
fn purge_chosen(number: u32) -> Request {
    let state = [State::Done, State::Dead, State::Cancelled][number as usize - 4];
    Request::Purge { id: id(number), acks: Acks::Quorum, state: Some(state) }
}

/// Goal: ended tasks are purged, in whatever state they ended, or only those in the named states.
#[tokio::test]
async fn many_are_purged_of_those_that_have_ended() {
    for (options, numbers) in [("", 4..7), ("--state done --state dead", 4..6), ("--state dead", 5..6)] {
        let line = format!("purge --queue mail {options}");
        let answer = || if numbers.len() == 1 { all_of(State::Dead) } else { all_states() };
        let outcome = run(&format!("{line} --dry-run --json"), [answer()]).await;
        assert_eq!(outcome.printed, format!("{{\"chosen\":{},\"changed\":0}}\n", numbers.len()), "{line}");
        let Request::List { state, .. } = &requests(&outcome)[0] else { panic!("{:?}", outcome.calls) };
        assert_eq!(*state, (numbers.len() == 1).then_some(State::Dead), "a node looks for one state alone");
        let outcome = run(&format!("{line} --confirm 9"), [answer()]).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{line}");
        assert!(outcome.noted.contains("none purged"), "{}", outcome.noted);
        let answers = [answer()].into_iter().chain(numbers.clone().map(cancelled));
        let outcome = run(&format!("{line} --confirm {}", numbers.len()), answers).await;
        assert_eq!(outcome.exit, Exit::Done, "{line}: {}", outcome.noted);
        assert!(outcome.printed.ends_with(" purged\n"), "{}", outcome.printed);
        assert_eq!(requests(&outcome)[1..], numbers.map(purge_chosen).collect::<Vec<_>>(), "{line}");
    }
    for code in [ErrorCode::NotFound, ErrorCode::Conflict] {
        let refused = Err(Error::new(code, "it is not as it was"));
        let outcome = run("purge --queue mail --confirm 3", [all_states(), cancelled(4), refused, cancelled(6)]).await;
        let told = "2 of 3 tasks purged; 1 gone or ended otherwise meanwhile\n";
        assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, told), "{code:?}");
    }
}

/// Goal: tasks that died because of another task, or were cancelled for a reason, are chosen by it, as `list` shows it.
#[tokio::test]
async fn many_are_purged_by_the_reason_of_their_end() {
    let reasons =
        [(State::Dead, "dependency: it was cancelled"), (State::Cancelled, "the customer has left"), (State::Dead, "")];
    let of = |(number, (state, reason)): (u32, (State, &str))| TaskView {
        reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
        ..bare_task(number, state)
    };
    let tasks: Vec<TaskView> = (4..).zip(reasons).map(of).collect();
    let page = || Ok(Response::Page(Page { tasks: tasks.clone(), next: None }));
    for (text, number) in [("dependency", 4), ("customer", 5)] {
        let listed = run(&format!("list mail --reason {text} --json"), [page()]).await;
        let line = format!("purge --queue mail --reason {text} --confirm 1");
        let outcome = run(&line, [page(), cancelled(number)]).await;
        assert_eq!((outcome.exit, &outcome.printed[..]), (Exit::Done, "1 task purged\n"), "{line}: {}", outcome.noted);
        let Request::Purge { id, .. } = &requests(&outcome)[1] else { panic!("{:?}", outcome.calls) };
        assert!(listed.printed.contains(&id.to_string()) && listed.printed.lines().count() == 1, "{}", listed.printed);
    }
}

/// Goal: tasks that can be listed can be changed together. Method: the filters of `list` are options of the verbs that change many; the
/// reason of an end is an option of verbs that choose ended tasks.
#[test]
fn tasks_are_chosen_by_the_filters_of_a_list() {
    use clap::CommandFactory as _;
    let command = CommandLine::command();
    let options = |verb: &str| {
        let verb = command.find_subcommand(verb).expect("a verb");
        verb.get_arguments().filter_map(|argument| argument.get_long()).collect::<std::collections::BTreeSet<_>>()
    };
    for (verb, without) in [("cancel", &["reason"][..]), ("release", &["reason"]), ("purge", &[])] {
        let wanting: Vec<&str> = options("list").difference(&options(verb)).copied().collect();
        let of_pages = ["after", "limit", "newest"];
        let wanting: Vec<&str> = wanting.into_iter().filter(|name| !of_pages.contains(name)).collect();
        // The option of this name at `cancel` is the reason of the cancellation.
        let expected: Vec<&str> = without.iter().copied().filter(|name| !options(verb).contains(name)).collect();
        assert_eq!(wanting, expected, "{verb}");
    }
}

/// Returns the fifth task alone, as a node returns those of one state.
fn all_of(state: State) -> Result<Response, Error> {
    Ok(Response::Page(Page { tasks: vec![bare_task(5, state)], next: None }))
}

/// Goal: several tasks can be named at once, and each has a line.
#[tokio::test]
async fn tasks_that_are_named_are_purged_one_after_the_other() {
    let line = format!("purge {} {}", id(1), id(2));
    let outcome = run(&line, [cancelled(1), cancelled(2)]).await;
    let told = format!("purged {} (3 of 3 replicas, strict)\npurged {} (3 of 3 replicas, strict)\n", id(1), id(2));
    assert_eq!((outcome.exit, &outcome.printed), (Exit::Done, &told));
    assert_eq!(requests(&outcome), [purge(1), purge(2)]);
    let outcome = run(&format!("{line} --json"), [cancelled(1), cancelled(2)]).await;
    assert_eq!(outcome.printed.lines().count(), 2, "{}", outcome.printed);
    let open = Err(Error::invalid("the task has not ended, so it is not purged: cancel it first").about(id(1)));
    let outcome = run(&line, [open, cancelled(2)]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 2));
    assert!(outcome.noted.contains("cancel it first"), "{}", outcome.noted);
}

/// Goal: a contradictory choice is refused before any request.
#[tokio::test]
async fn a_choice_that_makes_no_sense_is_refused() {
    for line in [
        "cancel --queue mail --state done --dry-run",
        "release --queue mail --state ready --dry-run",
        "purge --queue mail --state ready --dry-run",
        "purge --queue mail --state done --state claimed --dry-run",
        "purge --confirm 1",
        "purge",
        "purge ID ID --queue mail",
        "purge ID --state done",
        "purge ID --older 1h",
        "purge ID --reason x",
        "cancel --key seven --confirm 1",
        "cancel --queue mail --dry-run --confirm 1",
        "release --confirm 1",
        "cancel",
        "cancel ID --dry-run",
        "cancel ID --confirm 1",
        "cancel ID --state claimed",
        "cancel ID --key seven",
        "cancel ID --header a=b",
        "cancel ID --failed-with x",
        "cancel ID --older 1h",
        "release ID 7.2 --dry-run",
        "release ID 7.2 --newer 1h",
    ] {
        let outcome = run(&line.replace("ID", &id(1).to_string()), []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Usage, 0), "{line}");
    }
}

/// Goal: of several named tasks, each is tried, and each failure names its task.
#[tokio::test]
async fn each_task_that_is_named_is_tried() {
    let [one, two, three] = [1, 2, 3].map(|number| id(number).to_string());
    let missing = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    let cut_off = || Err(Error::unavailable("no majority"));
    let purge = format!("purge {one} {two} {three}");
    let redrive = format!("redrive {one} {two} {three}");
    let copied = || [read(3, State::Dead), cancelled(3)];
    for (line, answers, worst) in [
        (&purge, vec![missing(), missing(), cancelled(3)], Exit::Refused),
        (&purge, vec![cut_off(), missing(), cancelled(3)], Exit::Unavailable),
        (&redrive, [missing(), missing()].into_iter().chain(copied()).collect(), Exit::Refused),
    ] {
        let outcome = run(line, answers.clone()).await;
        assert_eq!(outcome.exit, worst, "{line}");
        assert!(outcome.printed.contains(&three), "{line}: {}", outcome.printed);
        assert!(outcome.noted.contains(&format!("error: {one}: ")), "{line}: {}", outcome.noted);
        assert!(outcome.noted.contains(&format!("error: {two}: no such task\n")), "{line}: {}", outcome.noted);
        let outcome = run(&format!("{line} --json"), answers).await;
        assert_eq!((outcome.exit, outcome.printed.lines().count(), &outcome.noted[..]), (worst, 3, ""), "{line}");
        for (row, id) in outcome.printed.lines().zip([&one, &two, &three]) {
            assert!(row.contains(&format!("\"id\":\"{id}\"")), "{line}: {row}");
        }
    }
    // No node is reached for the remaining tasks.
    let unreached = Err(Error { cause: Some(norn_wire::Cause::Unreached), ..Error::unavailable("no node answers") });
    let outcome = run(&purge, [cancelled(1), unreached]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Unavailable, 2));
    assert!(outcome.noted.contains(&format!("{two}: no node answers; 1 more were not tried")), "{}", outcome.noted);
    let outcome = run(&format!("purge {one}"), [missing()]).await;
    assert!(outcome.noted.starts_with("error: no such task"), "{}", outcome.noted);
}
