//! Transcripts of a REPL that reads a pipe.

use super::*;
use crate::tests::{Fake, NOW_MS, Written, acked, bare_task, granted, id, page, queue_counts};
use norn_wire::{Error, ErrorCode, State};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Runs a script. Returns the printed results, the notes and the calls.
async fn transcript(
    script: impl Into<Vec<u8>>,
    json: bool,
    answers: impl IntoIterator<Item = Result<Response, Error>>,
) -> (String, String, Vec<crate::Call>) {
    let (results, notes) = (Written::default(), Written::default());
    let output = Output::new(results.clone(), notes.clone(), json).with_arrays();
    let fake = Fake::new(answers);
    let input = Input::pipe(std::io::Cursor::new(script.into()));
    let mut runner = Runner::new(&fake, output, input, Place::Script);
    runner.clock = || NOW_MS;
    assert_eq!(serve(&mut runner).await.unwrap(), Exit::Done);
    (results.text(), notes.text(), fake.calls().into_iter().map(|(call, _)| call).collect())
}

fn task(state: State) -> Result<Response, Error> {
    Ok(Response::Task(Box::new(bare_task(1, state))))
}

#[tokio::test]
async fn with_json_every_command_answers_with_one_line() {
    let script = "\
# a comment

enqueue mail \"a\\nb\"
claim mail
claim mail
claim mail
get nonsuch
dance
enqueue mail 'open
list
log 0000
queues
status --watch
count
help
";
    let answers = [
        Ok(Response::Acked(vec![Ok(acked(1))])),
        Ok(Response::Claimed { tasks: vec![granted(), granted()], unavailable: 0, left: 0 }),
        Ok(Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 }),
        Ok(Response::Claimed { tasks: Vec::new(), unavailable: 3, left: 0 }),
        page(0..3, false),
        Ok(Response::Queues(queue_counts())),
        Ok(Response::Count(5)),
    ];
    let (printed, noted, calls) = transcript(script, true, answers).await;
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 13, "{printed}");
    assert_eq!(lines[0]["id"], id(1).to_string());
    assert_eq!(lines[1].as_array().unwrap().len(), 2);
    assert_eq!(lines[2], serde_json::json!([]));
    assert_eq!(lines[3]["error"]["code"], "unavailable");
    for line in &lines[4..7] {
        assert_eq!(line["error"]["code"], "invalid", "{line}");
    }
    assert_eq!(lines[7].as_array().unwrap().len(), 3);
    assert!(lines[8]["error"]["message"].as_str().unwrap().contains("ambiguous"), "{}", lines[8]);
    assert_eq!(lines[9].as_array().unwrap().len(), 2);
    assert_eq!(lines[10]["error"]["code"], "invalid");
    assert_eq!(lines[11], serde_json::json!({"count": 5}));
    assert!(lines[12]["help"].is_string());
    assert_eq!((noted.as_str(), calls.len()), ("", 7));
    let crate::Call::Enqueue { drafts, .. } = &calls[0] else { panic!() };
    assert_eq!(drafts[0].spec.payload, b"a\nb");
}

#[tokio::test]
async fn an_array_that_breaks_off_ends_with_the_error() {
    let answers = [page(0..2, true), Err(Error::unavailable("gone")), Ok(Response::Count(1))];
    let (printed, _, _) = transcript("list\ncount\n", true, answers).await;
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), lines[0].as_array().unwrap().len()), (2, 3));
    assert_eq!(lines[0][2]["error"]["code"], "unavailable");
    assert_eq!(lines[1]["count"], 1);
}

#[tokio::test]
async fn people_read_confirmations_and_errors_end_nothing() {
    let answers = [
        Ok(Response::Acked(vec![Ok(acked(1))])),
        Err(Error::new(ErrorCode::NotFound, "no such task")),
        task(State::Ready),
        Ok(Response::Count(1)),
    ];
    let id = id(1);
    let script = format!("enqueue mail x\nget {id}\nget {}\ncount\nquit\ncount\n", &id.to_string()[..16]);
    let (printed, noted, calls) = transcript(script, false, answers).await;
    assert!(printed.starts_with(&format!("enqueued {id} (3 of 3 replicas, strict)\nid          {id}\n")), "{printed}");
    assert!(printed.ends_with("\n1\n"), "{printed}");
    assert_eq!(noted, "error: line 2: no such task\n");
    assert_eq!(calls.len(), 4, "the id was known, and `quit` ends");
}

#[tokio::test]
async fn one_command_may_ask_for_json_itself() {
    let answers = [Ok(Response::Count(1)), Ok(Response::Queues(Vec::new())), Ok(Response::Count(2))];
    let (printed, _, _) = transcript("count --json\nqueues --json\ncount", false, answers).await;
    assert_eq!(printed, "{\"count\":1}\n[]\n2\n");
}

/// Goal: examples of a verb are shown as typed at the prompt, however its help is requested.
#[tokio::test]
async fn examples_begin_with_the_verb() {
    let (printed, _, _) = transcript("count --help\nhelp queue set\nqueue set --help", false, []).await;
    assert!(printed.contains("\n  count mail") && printed.contains("\n  queue set mail"), "{printed}");
    assert!(!printed.contains("norn "), "{printed}");
}

#[tokio::test]
async fn a_dash_takes_the_rest_of_the_pipe() {
    let answers = [Ok(Response::Acked(vec![Ok(acked(1))]))];
    let (_, _, calls) = transcript("enqueue mail -\nall of this\nis data", false, answers).await;
    let crate::Call::Enqueue { drafts, .. } = &calls[0] else { panic!() };
    assert_eq!(drafts[0].spec.payload, b"all of this\nis data");
}

#[tokio::test]
async fn lines_that_are_too_long_or_no_text_are_answered() {
    let mut script = vec![b'x'; LINE_BYTES_MAX + 10];
    script.extend(b"\n\xff\xfe\ncount\n");
    let (printed, _, calls) = transcript(script, true, [Ok(Response::Count(1))]).await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines.len(), calls.len()), (3, 1), "{printed}");
    assert!(lines[0].contains("at most") && lines[1].contains("UTF-8"), "{printed}");
    assert_eq!(lines[2], "{\"count\":1}");
}

#[tokio::test]
async fn prefixes_of_recent_ids_need_no_lookup_unless_ambiguous() {
    let claimed = Ok(Response::Claimed { tasks: vec![granted()], unavailable: 0, left: 0 });
    let second = Ok(Response::Acked(vec![Ok(acked(2))]));
    let script = "claim mail\nget 0000\nenqueue mail y\nget 0000\n";
    let (_, noted, calls) = transcript(script, false, [claimed, task(State::Claimed), second]).await;
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(noted.contains("\"0000\" is ambiguous"), "{noted}");
}

/// Goal: a script whose results cannot be written does not count as run.
#[tokio::test]
async fn results_that_cannot_be_written_stop_the_script_where_it_is() {
    struct Lost(std::io::ErrorKind);
    impl std::io::Write for Lost {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for kind in [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::StorageFull] {
        for json in [false, true] {
            let fake = Fake::new([Ok(Response::Count(1)), Ok(Response::Count(2))]);
            let noted = Written::default();
            let input = Input::pipe(&b"# first\n\ncount\ncount\n"[..]);
            let mut runner = Runner::new(&fake, Output::new(Lost(kind), noted.clone(), json), input, Place::Script);
            assert_eq!(serve(&mut runner).await.unwrap(), Exit::Refused, "{kind}, {json}");
            assert_eq!(fake.calls().len(), 1);
            let noted = noted.text();
            assert!(
                noted.contains("error: stopped at line 3, as results cannot be written"),
                "{kind}, {json}: {noted}"
            );
        }
    }
}

/// Goal: ids shown at the prompt or by a script are known to the next command line, and vice versa.
#[tokio::test]
async fn ids_that_are_shown_here_are_known_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let shown = || ShownIds::new(directory.path().to_owned());
    shown().add(&[id(9)]).unwrap();
    let nine = Ok(Response::Task(Box::new(bare_task(9, State::Ready))));
    let fake = Fake::new([page(1..3, false), nine, page(3..5, false)]);
    let script = format!("list\nget {}\nlist --json\n", &id(9).to_string()[15..20]);
    let input = Input::pipe(std::io::Cursor::new(script.into_bytes()));
    let output = Output::new(Written::default(), Written::default(), false).with_arrays();
    let mut runner = Runner::new(&fake, output, input, Place::Script);
    runner.shown = Some(shown());
    serve(&mut runner).await.unwrap();
    assert_eq!(fake.calls().len(), 3, "the id that was shown before needs no look-up");
    assert_eq!(shown().load(), [9, 1, 2, 9, 3, 4].map(id), "each once a command, whoever has read it");
}

/// Transport that never answers.
struct Silent;

impl Transport for Silent {
    async fn call(&self, _: crate::Call, _: Option<Duration>) -> Result<Response, Error> {
        std::future::pending().await
    }
}

/// Goal: only for a command that may have taken effect does the message say so.
#[tokio::test]
async fn what_is_interrupted_says_what_may_have_taken_effect() {
    for (line, may) in [
        ("count", false),
        ("wait ID", false),
        ("get ID", false),
        ("claim mail --wait 1m", false),
        ("enqueue mail x", true),
        ("complete ID 7.42", true),
    ] {
        for json in [false, true] {
            let (printed, noted) = (Written::default(), Written::default());
            let output = Output::new(printed.clone(), noted.clone(), json);
            let mut runner = Runner::new(Silent, output, Input::pipe(&b""[..]), Place::Prompt);
            let line = line.replace("ID", &id(1).to_string());
            let command = CommandLine::try_parse_from(line.split(' ')).unwrap();
            let ended = tokio::time::timeout(Duration::ZERO, runner.run(command.verb)).await;
            assert!(ended.is_err(), "{line}");
            assert_eq!(runner.conclude_given_up("interrupted"), Exit::Unavailable);
            match json {
                true => assert_eq!(printed.text().contains("\"code\":\"unknown\""), may, "{line}: {}", printed.text()),
                false => assert_eq!(noted.text().contains("it may have taken effect"), may, "{line}: {}", noted.text()),
            }
            assert!(format!("{}{}", printed.text(), noted.text()).contains("interrupted"), "{line}");
        }
    }
}

/// Goal: the message names what a command had done before it was interrupted.
#[tokio::test]
async fn what_took_effect_before_the_interrupt_is_said() {
    let noted = Written::default();
    let fake = Fake::new([Ok(Response::Acked(vec![Ok(acked(1))]))]);
    let output = Output::new(Written::default(), noted.clone(), false);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::Prompt);
    runner.run(CommandLine::try_parse_from(["enqueue", "mail", "x"]).unwrap().verb).await;
    runner.conclude_given_up("interrupted");
    assert_eq!(noted.text(), format!("error: interrupted; this took effect before: stored {}\n", id(1)));
}

/// Goal: the greeting and the fetch of the queues write nothing into the line that a person types.
#[tokio::test]
async fn what_a_prompt_asks_for_by_itself_is_asked_quietly() {
    struct Counted {
        asked: mpsc::Sender<()>,
        loud: AtomicUsize,
    }
    impl Transport for Counted {
        async fn call(&self, call: crate::Call, timeout: Option<Duration>) -> Result<Response, Error> {
            self.loud.fetch_add(1, Ordering::SeqCst);
            self.call_quietly(call, timeout).await
        }

        async fn call_quietly(&self, _: crate::Call, _: Option<Duration>) -> Result<Response, Error> {
            self.asked.send(()).unwrap();
            Err(Error::unavailable("none"))
        }
    }
    /// Reader that has no line until the transport was asked.
    struct After(mpsc::Receiver<()>);
    impl std::io::Read for After {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            self.0.recv().unwrap();
            Ok(0)
        }
    }
    let (asked, came) = mpsc::channel();
    let transport = Counted { asked, loud: AtomicUsize::new(0) };
    let output = Output::new(Written::default(), Written::default(), false);
    let mut runner = Runner::new(&transport, output, Input::pipe(After(came)), Place::Prompt);
    serve(&mut runner).await.unwrap();
    greet(&runner).await;
    assert_eq!(transport.loud.load(Ordering::SeqCst), 0);
}

/// Goal: errors of a script name their line; a byte order mark is no part of the first line.
#[tokio::test]
async fn errors_of_a_script_name_their_line() {
    let script = "\u{feff}count\n\n# a comment\nget x!\ndance\nenqueue 'a\n";
    let (printed, noted, calls) = transcript(script, false, [Ok(Response::Count(1))]).await;
    assert_eq!((&printed[..], calls.len()), ("1\n", 1), "{noted}");
    for line in [4, 5, 6] {
        assert!(noted.contains(&format!("error: line {line}: ")), "{noted}");
    }
    assert_eq!(noted.matches("error:").count(), 3, "{noted}");
    let (printed, noted, _) = transcript(script, true, [Ok(Response::Count(1))]).await;
    assert_eq!((printed.lines().count(), &noted[..]), (4, ""), "{printed}");
}
