//! Some characters of an id stand for it at the prompt and on the command line.
//!
//! Goal: typed characters are never taken for another task. Method: every verb that takes an id, with ids that earlier commands showed.

use super::*;
use crate::{ShownIds, execute};
use clap::CommandFactory;
use norn_wire::group::{GroupView, Grouping, MemberOf};
use norn_wire::schedule::{CatchUp, Fired, Schedule, ScheduleView, When};
use norn_wire::transaction::Refusal;
use norn_wire::watch::WatchPlace;
use norn_wire::{WatchCursor, WatchEvent, Watched};
use std::collections::BTreeSet;

/// Returns ids as a cluster mints them: of one minute, one session and two batches.
fn minted(counter: u32, tag: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, counter, 0x12_3456_789a, tag)
}

/// Runs a command of a user to whom these ids were shown before.
async fn run_after(
    shown: &[TaskId],
    line: &str,
    answers: impl IntoIterator<Item = Result<Response, Error>>,
) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    ShownIds::new(directory.path().to_owned()).add(shown).unwrap();
    let (results, notes) = (Written::default(), Written::default());
    let output = Output::new(results.clone(), notes.clone(), line.contains("--json"));
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.shown = Some(ShownIds::new(directory.path().to_owned()));
    let verb = CommandLine::try_parse_from(line.split(' ')).expect(line).verb;
    let exit = runner.run(verb).await;
    Outcome { exit, printed: results.text(), noted: notes.text(), calls: fake.calls() }
}

fn none_begins_so() -> Result<Response, Error> {
    page(0..0, false)
}

/// Whether a request names the id.
fn names(outcome: &Outcome, id: TaskId) -> bool {
    outcome.calls.iter().any(|(call, _)| format!("{call:?}").contains(&id.to_string()))
}

/// Lines for each argument that takes an id; `ANOTHER` is the whole id of a task that was not shown.
const LINES: [&str; 26] = [
    "list --after ID",
    "get ID",
    "get ID ID",
    "log ID",
    "wait ID",
    "why ID",
    "members ID",
    "watch --group ID",
    "renew ID 7.42",
    "update ID 7.42 0 x",
    "complete ID 7.42",
    "fail ID 7.42",
    "release ID 7.42",
    "cancel ID",
    "redrive ID",
    "purge ID",
    "session renew ID 7.42",
    "session end ID 7.42",
    "claim mail --session ID",
    "claim mail --depends ID",
    "claim mail --depends ID@0000000000000001",
    "enqueue mail x --after ID",
    "enqueue mail x --near ID",
    "enqueue mail x --group-id ID --number 1",
    "enqueue mail x --id ID",
    "redrive ANOTHER --id ID",
];

/// Collects the verbs with their id arguments, each with the words before its value.
fn arguments(command: &clap::Command, path: &str, found: &mut Vec<String>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        let names = argument.get_value_names().unwrap_or_default();
        if names.iter().any(|name| ["ID", "ID,..."].contains(&name.as_str())) {
            found.push(match argument.get_long() {
                Some(long) => format!("{path}--{long} ID"),
                None => format!("{path}ID"),
            });
        }
    }
    for verb in command.get_subcommands() {
        arguments(verb, &format!("{path}{} ", verb.get_name()), found);
    }
}

/// Goal: no argument that takes an id is missing in the lines above.
#[test]
fn every_argument_that_is_an_id_has_a_line() {
    let mut found = Vec::new();
    arguments(&CommandLine::command(), "", &mut found);
    assert!(found.len() > 20, "{found:?}");
    for argument in found {
        let (path, value) = argument.split_at(argument.rfind("--").unwrap_or(argument.len() - "ID".len()));
        let has_line = |line: &&str| line.starts_with(path) && line.contains(value);
        assert!(LINES.iter().any(has_line), "{argument}");
    }
}

#[tokio::test]
async fn every_verb_takes_six_characters_of_an_id_that_was_shown() {
    let (wanted, other) = (minted(7, 0xab_cdef), minted(8, 0x12_3456));
    let tail = &wanted.to_string()[26..];
    for line in LINES {
        let line = line.replace("ID", tail).replace("ANOTHER", &id(9).to_string());
        let outcome = run_after(&[other, wanted], &line, [none_begins_so()]).await;
        assert!(
            names(&outcome, wanted) || outcome.noted.contains(&format!("{tail} is {wanted}")),
            "{line}: {}",
            outcome.noted
        );
        assert!(!names(&outcome, other), "{line}: {:?}", outcome.calls);
    }
}

/// Goal: a repeat uses an id that was shown, or none: no new task takes part of an id for its own.
#[tokio::test]
async fn a_task_is_made_again_only_under_an_id_that_was_shown() {
    let shown = minted(7, 0xab_cdef);
    for part in ["zzzzzz", &shown.to_string()[27..]] {
        let outcome = run_after(&[shown], &format!("enqueue mail x --id {part}"), []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 0), "{part}: {}", outcome.noted);
        assert!(outcome.noted.contains("a whole id"), "{}", outcome.noted);
    }
}

#[tokio::test]
async fn ids_of_one_batch_are_told_apart_by_the_characters_in_which_they_differ() {
    let (one, two) = (minted(0x1234_5678, 3), minted(0x1abc_5678, 3));
    let (first, second) = (one.to_string(), two.to_string());
    assert_eq!((&first[..9], &first[26..]), (&second[..9], &second[26..]), "begin and end do not tell them apart");
    let task = || Ok(Response::Task(Box::new(bare_task(1, State::Ready))));
    let outcome = run_after(&[one, two], &format!("get {}", &second[13..18]), [task()]).await;
    assert!(outcome.exit == Exit::Done && names(&outcome, two), "{} {:?}", outcome.noted, outcome.calls);
    let outcome = run_after(&[one, two], &format!("get {}", &first[26..]), []).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 0));
    assert!(outcome.noted.contains(&first) && outcome.noted.contains(&second), "{}", outcome.noted);
}

#[tokio::test]
async fn a_task_is_changed_only_if_no_other_is_meant() {
    let cancelled = || Ok(Response::AckedOne(acked(1)));
    let (known, stored) = (id(1), id(2));
    let text = known.to_string();
    // Of two stored tasks that begin so, only one was shown.
    let outcome = run_after(&[known], &format!("cancel {}", &text[..12]), [page(1..3, false), cancelled()]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{}", outcome.noted);
    assert!(outcome.noted.contains(&text) && outcome.noted.contains(&stored.to_string()), "{}", outcome.noted);
    let outcome =
        run_after(&[known, stored], &format!("cancel {}", &text[26..]), [none_begins_so(), cancelled()]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{}", outcome.noted);
    let outcome = run_after(&[known], &format!("cancel {}", &text[28..]), [cancelled()]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 0), "{}", outcome.noted);
    assert!(outcome.noted.contains("6 characters or more"), "{}", outcome.noted);
    let outcome = run_after(&[], &format!("cancel {}", &text[26..]), [none_begins_so(), cancelled()]).await;
    assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 1), "{}", outcome.noted);
    assert!(outcome.noted.contains("no task begins with"), "{}", outcome.noted);
    let ready = Ok(Response::Task(Box::new(bare_task(1, State::Ready))));
    let answers = [none_begins_so(), ready, cancelled()];
    let outcome = run_after(&[known], &format!("cancel {}", &text[26..]), answers).await;
    assert_eq!(outcome.exit, Exit::Done, "{}", outcome.noted);
    assert!(outcome.noted.starts_with(&format!("{} is {text}\n", &text[26..])), "{}", outcome.noted);
}

#[tokio::test]
async fn ids_that_a_command_shows_are_known_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let shown = || ShownIds::new(directory.path().to_owned());
    let verb = |line: &str| match CommandLine::try_parse_from(line.split(' ')).unwrap().verb {
        crate::Command::Verb(verb) => *verb,
        other => panic!("{other:?}"),
    };
    let output = |json| Output::new(Written::default(), Written::default(), json);
    let fake = Fake::new([page(1..3, false), page(3..5, false)]);
    execute(&fake, verb("list"), output(false), Some(shown())).await;
    assert_eq!(shown().load(), [id(1), id(2)]);
    execute(&fake, verb("list"), output(true), Some(shown())).await;
    assert_eq!(shown().load(), [1, 2, 3, 4].map(id), "what a program reads, its user may type");
}

type Answer = Result<Response, Error>;

fn view(task: TaskView) -> Answer {
    Ok(Response::Task(Box::new(task)))
}

/// Returns a task with every kind of relation to others.
fn tied() -> TaskView {
    let mut task = bare_task(1, State::Dead);
    task.spec.after = vec![id(2), id(3)];
    task.spec.grouping = Some(Box::new(Grouping { member: Some(MemberOf { group: id(4), number: 1 }), join: None }));
    (task.children, task.redriven) = (vec![id(5), id(6)], vec![id(7)]);
    task
}

fn join(total: u32, waits_for: Vec<TaskId>) -> Answer {
    let group = Some(GroupView { total: Some(total), ended: 0, failed: 0 });
    view(TaskView { group, waits_for, ..bare_task(1, State::Waiting) })
}

fn events(numbers: &[u32]) -> Answer {
    let event = |number: &u32| WatchEvent {
        id: id(*number),
        queue: queue("mail"),
        state: State::Done,
        number: None,
        result: None,
        reason: None,
    };
    let places = vec![WatchPlace { node: NodeId(1), start: 1, number: 1, whole: vec![1].into() }];
    let events = numbers.iter().map(event).collect();
    Ok(Response::Watched(Watched { events, cursor: WatchCursor { places }, lagged: false, silent: 0 }))
}

fn fired(number: u32) -> Answer {
    let (queue, payload, when) = (queue("mail"), Vec::new(), When::At(7));
    let (priority, attempts_max, catch_up) = (0, 0, CatchUp::Last);
    Ok(Response::Schedules(vec![ScheduleView {
        name: "nightly".into(),
        schedule: Arc::new(Schedule { when, queue, payload, priority, attempts_max, catch_up }),
        number: 1,
        paused: false,
        since_ms: 5,
        through_ms: 6,
        next_ms: Vec::new(),
        pending: 0,
        fired: 1,
        missed: 0,
        unsure: 0,
        last: Some(Fired { tick_ms: 6, id: id(number) }),
    }]))
}

/// Returns the ids in a text.
fn ids_in(text: &str) -> BTreeSet<TaskId> {
    text.split(|character: char| !character.is_ascii_alphanumeric()).filter_map(|word| word.parse().ok()).collect()
}

/// Goal: a person can type the end of any id on the screen. Method: for every verb that shows ids that were not typed, the next command
/// knows each printed id.
#[tokio::test]
async fn every_id_that_is_printed_is_known_to_the_next_command() {
    let (one, prefix) = (id(1).to_string(), id(1).to_string()[..12].to_owned());
    let gone = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    let waits = TaskView { waits_for: vec![id(2)], ..bare_task(1, State::Waiting) };
    let refusal = Refusal { depends: vec![id(8)], ..Refusal::default() };
    let unsure = Err(Error::new(ErrorCode::Unknown, "no answer").about(id(9)));
    let cases: Vec<(String, Vec<Answer>, usize)> = vec![
        (format!("get {one}"), vec![view(tied())], 7),
        (format!("get {one} {}", id(9)), vec![view(tied()), view(bare_task(9, State::Ready))], 8),
        (format!("wait {one}"), vec![view(tied())], 7),
        (format!("why {one}"), vec![view(waits), gone()], 2),
        (format!("members {one}"), vec![join(2, Vec::new()), view(bare_task(3, State::Done)), gone()], 2),
        ("watch mail --limit 3".to_owned(), vec![events(&[]), events(&[1, 2]), events(&[3])], 3),
        ("schedule show nightly".to_owned(), vec![fired(4)], 1),
        (format!("redrive {one}"), vec![view(tied()), view(bare_task(7, State::Ready))], 2),
        (format!("get {prefix}"), vec![page(1..3, false)], 2),
        (format!("cancel {prefix}"), vec![page(1..3, false)], 2),
        ("transact {}".to_owned(), vec![Ok(Response::Transacted(Err(Box::new(refusal))))], 1),
        ("enqueue mail x".to_owned(), vec![unsure], 1),
    ];
    for (line, answers, count) in cases {
        let (results, notes) = (Written::default(), Written::default());
        let fake = Fake::new(answers);
        let output = Output::new(results.clone(), notes.clone(), false);
        let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
        let directory = tempfile::tempdir().unwrap();
        runner.shown = Some(ShownIds::new(directory.path().to_owned()));
        runner.run(CommandLine::try_parse_from(line.split(' ')).expect(&line).verb).await;
        runner.remember_shown();
        let printed = ids_in(&(results.text() + &notes.text()));
        let known: BTreeSet<TaskId> = ShownIds::new(directory.path().to_owned()).load().into_iter().collect();
        assert_eq!(printed.len(), count, "{line}: {}{}", results.text(), notes.text());
        assert!(printed.is_subset(&known), "{line}: of {printed:?} only {known:?} are known");
    }
}

/// Goal: ids shown by a watch in one terminal can be typed in another. Method: a watch that was dropped midway.
#[tokio::test]
async fn a_watch_makes_ids_known_while_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new([events(&[]), events(&[1, 2])]);
    let output = Output::new(Written::default(), Written::default(), false);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::CommandLine);
    runner.shown = Some(ShownIds::new(directory.path().to_owned()));
    let verb = CommandLine::try_parse_from(["watch", "mail"]).unwrap().verb;
    // Once the script has ended, the watch pauses before it tries again.
    assert!(futures_util::FutureExt::now_or_never(runner.run(verb)).is_none());
    assert_eq!(ShownIds::new(directory.path().to_owned()).load(), [id(1), id(2)]);
}

/// Goal: if only whole ids are accepted, the refusal says so.
#[tokio::test]
async fn a_transaction_says_that_its_ids_are_whole() {
    let tail = id(1).to_string()[26..].to_owned();
    for file in [
        format!("{{\"deletes\":[{{\"id\":\"{tail}\"}}]}}"),
        format!("{{\"near\":\"{tail}\"}}"),
        format!("{{\"id\":\"{tail}\"}}"),
    ] {
        let outcome = run_at(Place::CommandLine, "transact -", file.clone().leak().as_bytes(), []).await;
        assert_eq!((outcome.exit, outcome.calls.len()), (Exit::Refused, 0));
        assert!(outcome.noted.contains("each id is whole"), "{file}: {}", outcome.noted);
    }
}

/// Goal: ids in a program's JSON are known like those shown to a person. A typed id alone is not, since there may be no such task.
#[tokio::test]
async fn ids_of_answers_are_remembered_and_no_others() {
    let ready = |number| Ok(Response::Task(Box::new(bare_task(number, State::Ready))));
    let missing = || Err(Error::new(ErrorCode::NotFound, "no such task").about(id(1)));
    let many = |results| Ok(Response::Acked(results));
    let unknown = Err(Error::new(ErrorCode::Unknown, "no answer").about(id(2)));
    let superseded = Err(Error::new(ErrorCode::Superseded, "a later claim has taken over"));
    type Case<'a> = (&'a str, Vec<Result<Response, Error>>, &'a [u32]);
    let cases: Vec<Case<'_>> = vec![
        ("enqueue mail x --json", vec![many(vec![Ok(acked(1))])], &[1]),
        ("enqueue mail - --lines --json", vec![many(vec![Ok(acked(1)), unknown])], &[1, 2]),
        ("enqueue mail - --lines", vec![many(vec![Ok(acked(1)), Ok(acked(2))])], &[]),
        ("list --json", vec![page(1..3, false)], &[1, 2]),
        ("get ID1 --json", vec![ready(1)], &[1]),
        ("log ID1", vec![ready(1)], &[1]),
        ("get ID1", vec![missing()], &[]),
        ("get ID1 --json", vec![missing()], &[]),
        ("get ID1 ID2", vec![missing(), ready(2)], &[2]),
        ("wait ID1", vec![missing()], &[]),
        ("get ID1", vec![Err(Error::unavailable("no majority"))], &[]),
        ("fail ID1 7.42", vec![superseded], &[1]),
        ("purge ID1 ID2", vec![missing(), Ok(Response::AckedOne(acked(2)))], &[2]),
    ];
    for (line, answers, wanted) in cases {
        let directory = tempfile::tempdir().unwrap();
        let line = line.replace("ID1", &id(1).to_string()).replace("ID2", &id(2).to_string());
        let output = Output::new(Written::default(), Written::default(), line.contains("--json"));
        let fake = Fake::new(answers);
        let mut runner = Runner::new(&fake, output, Input::pipe(&b"a\nb\n"[..]), Place::CommandLine);
        runner.shown = Some(ShownIds::new(directory.path().to_owned()));
        runner.run(CommandLine::try_parse_from(line.split(' ')).expect(&line).verb).await;
        runner.remember_shown();
        let known = ShownIds::new(directory.path().to_owned()).load();
        assert_eq!(known, wanted.iter().map(|number| id(*number)).collect::<Vec<_>>(), "{line}");
    }
}
