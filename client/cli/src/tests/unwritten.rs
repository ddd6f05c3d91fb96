//! Results that cannot be written: a full device, and a reader that has gone. Changes that took effect are reported nevertheless.

use super::*;
use norn_wire::TaskVersion;
use std::io::ErrorKind;

/// Writer that accepts nothing.
struct Lost(ErrorKind);

impl Write for Lost {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const KINDS: [ErrorKind; 2] = [ErrorKind::StorageFull, ErrorKind::BrokenPipe];

/// Whether the output is JSON, and whether it is buffered.
const HOWS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

fn all_ways() -> impl Iterator<Item = (ErrorKind, (bool, bool))> {
    KINDS.into_iter().flat_map(|kind| HOWS.map(|how| (kind, how)))
}

/// Returns a command's exit and its standard error. With a buffer, only the flush fails.
async fn lose(
    kind: ErrorKind,
    (json, buffered): (bool, bool),
    line: &str,
    answers: Vec<Result<Response, Error>>,
) -> (Exit, String) {
    let noted = Written::default();
    let output = match buffered {
        true => Output::new(std::io::BufWriter::new(Lost(kind)), noted.clone(), json),
        false => Output::new(Lost(kind), noted.clone(), json),
    };
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b"one\ntwo\n"[..]), Place::CommandLine);
    let words = crate::words::split(line).unwrap();
    let command = CommandLine::try_parse_from(words.iter().map(|word| &word.text)).unwrap();
    let exit = runner.run(command.verb).await;
    (exit, noted.text())
}

/// Goal: each verb that changes something reports its changes if its result cannot be written: at the first write or only when a buffer
/// is flushed, as text and as JSON, on a full device and to a reader that has gone.
#[tokio::test]
async fn what_took_effect_is_said_where_the_result_cannot_be_written() {
    let (one, two, three) = (id(1), id(2), id(3));
    let many = || Response::Acked(vec![Ok(acked(1))]);
    let single = || Response::AckedOne(acked(1));
    let unique = |existing| Response::AckedUnique { acked: acked(1), existing };
    let claimed = || Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 };
    let read = |state| Ok(Response::Task(Box::new(bare_task(1, state))));
    let transacted =
        |ids: &[TaskId]| Ok(Response::Transacted(Ok(ids.iter().map(|id| (*id, TaskVersion(1))).collect())));
    let directory = tempfile::tempdir().unwrap();
    let then = directory.path().join("then.json");
    std::fs::write(&then, r#"[{"queue": "a"}, {"queue": "b"}]"#).unwrap();
    let then = then.display();
    type Case = (String, Vec<Result<Response, Error>>, String);
    let cases: Vec<Case> = vec![
        ("enqueue mail x".into(), vec![Ok(many())], format!("stored {one}")),
        (
            "enqueue mail - --lines".into(),
            vec![Ok(Response::Acked(vec![Ok(acked(1)), Ok(acked(2))]))],
            format!("stored {one}, stored {two}"),
        ),
        ("enqueue mail x --key a --unique".into(), vec![Ok(unique(false))], format!("stored {one}")),
        ("claim mail".into(), vec![Ok(claimed())], format!("claimed {one} under 7.42")),
        (
            "claim mail".into(),
            vec![Ok(claimed()), Ok(Response::Done)],
            format!("claimed {one} under 7.42, given back {one}"),
        ),
        (format!("renew {one} 7.42"), vec![Ok(Response::Renewed(vec![Ok(9)]))], format!("renewed {one}")),
        (format!("update {one} 7.42 0 x"), vec![Ok(single())], format!("added to the log of {one}")),
        (format!("complete {one} 7.42"), vec![Ok(many())], format!("completed {one}")),
        (
            format!("complete {one} 7.42 --then {then}"),
            vec![Ok(many())],
            format!("completed {one}, which enqueued 2 tasks: `get {one}` names them"),
        ),
        (format!("fail {two} 7.42"), vec![Ok(Response::Done)], format!("failed {two}")),
        (format!("release {two} 7.42"), vec![Ok(Response::Done)], format!("given back {two}")),
        (
            format!("cancel {one}"),
            vec![read(State::Ready), Ok(single())],
            format!("acknowledged the cancellation of {one}"),
        ),
        (format!("redrive {one}"), vec![read(State::Dead), Ok(single())], format!("redriven as {one}")),
        (format!("purge {one}"), vec![Ok(single())], format!("purged {one}")),
        ("session open".into(), vec![Ok(many()), Ok(claimed())], format!("stored {one}, claimed {one} under 7.42")),
        (
            format!(r#"transact '{{"deletes": [{{"id": "{three}"}}]}}'"#),
            vec![transacted(&[])],
            format!("ended {three}"),
        ),
        (
            format!(
                r#"transact '{{"adds": [{{"queue": "a"}}], "changes": [{{"id": "{two}", "priority": 1}}],
                "deletes": [{{"id": "{three}"}}]}}'"#
            ),
            vec![transacted(&[one, two])],
            format!("added {one}, changed {two}, ended {three}"),
        ),
    ];
    for (line, answers, effect) in cases {
        let effect = format!("; it took effect all the same: {effect}\n");
        for (kind, how) in all_ways() {
            let (exit, noted) = lose(kind, how, &line, answers.clone()).await;
            assert_eq!(exit, Exit::Refused, "{line}, {kind}");
            assert!(
                noted.starts_with("error: cannot write the result: ") && noted.ends_with(&effect),
                "{line}, {kind}: {noted}"
            );
            assert_eq!(noted.lines().count(), 1, "{line}, {kind}: {noted}");
        }
    }
}

/// A command that only reads, or found no change to make, reports no effect; and a reader that has had enough is no failure.
#[tokio::test]
async fn what_changed_nothing_says_only_that_the_result_cannot_be_written() {
    let unique = Response::AckedUnique { acked: acked(1), existing: true };
    for (line, answer) in [("count", Response::Count(1)), ("enqueue mail x --key a --unique", unique)] {
        for buffered in [false, true] {
            let (exit, noted) = lose(ErrorKind::StorageFull, (true, buffered), line, vec![Ok(answer.clone())]).await;
            assert_eq!(exit, Exit::Refused, "{line}");
            assert!(noted.starts_with("error: cannot write the result: "), "{line}: {noted}");
            assert!(!noted.contains("took effect"), "{line}: {noted}");
            let ended = lose(ErrorKind::BrokenPipe, (true, buffered), line, vec![Ok(answer.clone())]).await;
            assert_eq!(ended, (Exit::Done, String::new()), "{line}");
        }
    }
}

fn unknown(number: u32) -> Error {
    Error::new(ErrorCode::Unknown, "no answer in time").about(id(number))
}

/// Goal: without a readable result, the notes still say which lines were refused and which may have been stored, and the exit code
/// agrees.
#[tokio::test]
async fn lines_that_were_not_stored_are_named_where_the_result_cannot_be_written() {
    let refused = || Err(Error::invalid("too large"));
    let cases = [
        (vec![refused(), refused()], Exit::Refused, vec!["2 tasks refused: lines 1-2"]),
        (vec![Ok(acked(1)), Err(unknown(2))], Exit::Unavailable, vec!["1 task may have been stored: line 2"]),
        (
            vec![refused(), Err(unknown(2))],
            Exit::Unavailable,
            vec!["1 task refused: line 1", "1 task may have been stored: line 2"],
        ),
    ];
    for (results, code, told) in cases {
        for (kind, how) in all_ways() {
            let answers = vec![Ok(Response::Acked(results.clone()))];
            let (exit, noted) = lose(kind, how, "enqueue mail - --lines", answers).await;
            assert_eq!(exit, code, "{kind}, {how:?}: {noted}");
            for text in &told {
                assert_eq!(noted.matches(text).count(), 1, "{kind}, {how:?}: {noted}");
            }
            assert_eq!(noted.contains(&id(2).to_string()), results[1].as_ref().is_err_and(|error| error.id.is_some()));
            assert_eq!(noted.matches("cannot write the result").count(), 1, "{noted}");
        }
    }
    // The same if the call as a whole has no answer.
    for (kind, how) in all_ways() {
        let answers = vec![Err(Error::new(ErrorCode::Unknown, "no answer in time"))];
        let (exit, noted) = lose(kind, how, "enqueue mail - --lines", answers).await;
        assert_eq!(exit, Exit::Unavailable, "{kind}, {how:?}: {noted}");
        assert!(noted.contains("2 tasks may have been stored: lines 1-2"), "{kind}, {how:?}: {noted}");
        assert!(noted.contains("error: no answer in time"), "{kind}, {how:?}: {noted}");
    }
}

/// Goal: the same for verbs that change one task after another.
#[tokio::test]
async fn tasks_that_were_not_changed_are_named_where_the_result_cannot_be_written() {
    let line = format!("purge {} {} {}", id(1), id(2), id(3));
    let missing = || Error::new(ErrorCode::NotFound, "no such task").about(id(2));
    for (kind, how) in all_ways() {
        let buffered = how.1;
        let answers = vec![Err(unknown(1)), Err(missing()), Ok(Response::AckedOne(acked(3)))];
        let (exit, noted) = lose(kind, how, &line, answers).await;
        assert_eq!(exit, Exit::Unavailable, "{kind}, {how:?}: {noted}");
        assert_eq!(noted.matches(&format!("{}: no answer in time", id(1))).count(), 1, "{kind}, {how:?}: {noted}");
        // Without a buffer the failure shows at once, and no more is done.
        if buffered || !how.0 {
            assert_eq!(noted.matches("no such task").count(), 1, "{kind}, {how:?}: {noted}");
            assert!(noted.contains(&format!("it took effect all the same: purged {}", id(3))), "{noted}");
        }
        assert!(noted.contains(&format!("this may have taken effect: purged {}", id(1))), "{kind}, {how:?}: {noted}");
        let (exit, noted) = lose(kind, how, &line, vec![Err(missing()), Err(missing()), Err(missing())]).await;
        assert_eq!(exit, Exit::Refused, "{kind}, {how:?}: {noted}");
        assert!(noted.contains("no such task"), "{kind}, {how:?}: {noted}");
    }
}

/// Goal: a failure that a program cannot read is reported to people.
#[tokio::test]
async fn a_failure_that_cannot_be_written_is_said() {
    let cases = [
        (unknown(1), Exit::Unavailable, format!("this may have taken effect: stored {}", id(1))),
        (Error::new(ErrorCode::Conflict, "it is another task"), Exit::Refused, "error: it is another task".to_owned()),
    ];
    for (error, code, told) in cases {
        for (kind, how) in all_ways() {
            let (exit, noted) = lose(kind, how, "enqueue mail x", vec![Err(error.clone())]).await;
            assert_eq!(exit, code, "{kind}, {how:?}: {noted}");
            assert_eq!(noted.matches(&format!("error: {}", error.message)).count(), 1, "{kind}, {how:?}: {noted}");
            // In text output it is no result.
            assert!(!how.0 || noted.contains(&told), "{kind}, {how:?}: {noted}");
        }
    }
}
