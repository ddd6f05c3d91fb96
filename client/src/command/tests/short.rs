//! Some characters of an id stand for it at the prompt and on the command line.
//!
//! Goal: what is typed is never taken for another task. Method: every verb that takes an id, with ids that earlier commands showed.

use super::*;
use crate::command::{ShownIds, execute};

/// Ids as a cluster mints them: of one minute, one session and two batches.
fn minted(counter: u32, tag: u32) -> TaskId {
    TaskId::new(1_700_000_000_000, counter, 0x12_3456_789a, tag)
}

/// Runs a command of a user who was shown these ids before.
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

/// Every id that a request names.
fn names(outcome: &Outcome, id: TaskId) -> bool {
    outcome.calls.iter().any(|(call, _)| format!("{call:?}").contains(&id.to_string()))
}

#[tokio::test]
async fn every_verb_takes_six_characters_of_an_id_that_was_shown() {
    let (wanted, other) = (minted(7, 0xab_cdef), minted(8, 0x12_3456));
    let tail = &wanted.to_string()[26..];
    let lines = [
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
    ];
    for line in lines {
        let outcome = run_after(&[other, wanted], &line.replace("ID", tail), [none_begins_so()]).await;
        assert!(
            names(&outcome, wanted) || outcome.noted.contains(&format!("{tail} is {wanted}")),
            "{line}: {}",
            outcome.noted
        );
        assert!(!names(&outcome, other), "{line}: {:?}", outcome.calls);
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
        crate::command::Command::Verb(verb) => *verb,
        other => panic!("{other:?}"),
    };
    let output = |json| Output::new(Written::default(), Written::default(), json);
    let fake = Fake::new([page(1..3, false), page(3..5, false)]);
    execute(&fake, verb("list"), output(false), Some(shown())).await;
    assert_eq!(shown().load(), [id(1), id(2)]);
    execute(&fake, verb("list"), output(true), Some(shown())).await;
    assert_eq!(shown().load(), [id(1), id(2)], "what a program reads, no person sees");
}
