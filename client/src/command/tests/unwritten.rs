//! Results that cannot be written: a full device, and a reader that has gone. What took effect is said all the same.

use super::*;
use crate::wire::TaskVersion;
use std::io::ErrorKind;

/// Takes nothing.
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

/// What a command ends in, and what standard error says. With a buffer, only its flush fails.
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
    let words = crate::command::words::split(line).unwrap();
    let command = CommandLine::try_parse_from(words.iter().map(|word| &word.text)).unwrap();
    let exit = runner.run(command.verb).await;
    (exit, noted.text())
}

/// Goal: each verb that changes something says what it has changed where its result cannot be written, at the first write or
/// only when a buffer is flushed, as text and as JSON, on a full device and to a reader that has gone.
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
        for kind in KINDS {
            for how in [(false, false), (false, true), (true, false), (true, true)] {
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
}

/// What only reads, or found that it was so already, claims no effect; and a reader that has had enough of it is no failure.
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
