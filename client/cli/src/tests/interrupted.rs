//! Ctrl-C at a prompt, in verbs that handle it themselves.

use super::*;
use norn_wire::{WatchCursor, Watched};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// Runs a command at a prompt on a terminal with colours, where Ctrl-C comes as soon as the command waits.
pub(crate) async fn run_until_interrupted(line: &str, answers: Vec<Result<Response, Error>>) -> Outcome {
    let (results, notes) = (Written::default(), Written::default());
    let output = Output::new(results.clone(), notes.clone(), false).with_arrays().with_color(true).with_size(80, 24);
    let fake = Fake::new(answers);
    let mut runner = Runner::new(&fake, output, Input::pipe(&b""[..]), Place::Prompt);
    let command = CommandLine::try_parse_from(line.split(' ')).expect(line);
    runner.output.set_json(command.json);
    let (interrupt, looks) = (runner.interrupt.clone(), AtomicUsize::new(0));
    let interrupts = || {
        poll_fn(|_| match looks.fetch_add(1, Ordering::Relaxed) {
            1 => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        })
    };
    let exit = interrupt.unless_taken_of(interrupts, runner.run(command.verb)).await.expect("the verb wants it");
    Outcome { exit, printed: results.text(), noted: notes.text(), calls: fake.calls() }
}

fn values(printed: &str) -> Vec<serde_json::Value> {
    let values = printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{line:?}: {why}")));
    values.collect()
}

fn watched() -> Result<Response, Error> {
    let cursor = WatchCursor { places: Vec::new() };
    Ok(Response::Watched(Watched { events: Vec::new(), cursor, lagged: true, silent: 0 }))
}

/// Goal: the JSON of a watch is complete when a person ends it.
#[tokio::test]
async fn json_of_a_watch_is_whole_after_an_interrupt() {
    let absent = || Err(Error::new(ErrorCode::NotFound, "no such task"));
    for (line, answers) in [
        ("watch mail --json".to_owned(), vec![watched(), watched()]),
        (format!("watch --group {} --json", id(9)), vec![watched(), absent(), watched()]),
    ] {
        let outcome = run_until_interrupted(&line, answers).await;
        let values = values(&outcome.printed);
        assert_eq!((outcome.exit, values.len()), (Exit::Done, 1), "{line}: {outcome:?}");
        let rows = values[0].as_array().expect("one array");
        assert_eq!(rows.last().map(|row| &row["watch"]), Some(&"lagged".into()), "{line}: {rows:?}");
    }
}

/// Goal: a repeated status in JSON clears no screen and leaves no blank line.
#[tokio::test]
async fn json_of_a_watched_status_is_lines_also_on_a_terminal() {
    let status = || Ok(Response::Status(Box::new(status())));
    let outcome = run_until_interrupted("status --watch --json", vec![status()]).await;
    assert_eq!((outcome.exit, values(&outcome.printed).len()), (Exit::Done, 1), "{outcome:?}");
    let away = Err(Error::unavailable("nobody is there"));
    let outcome = run_until_interrupted("cluster status --watch --json", vec![status(), away]).await;
    assert_eq!((outcome.exit, values(&outcome.printed).len()), (Exit::Done, 1), "{outcome:?}");
}

#[tokio::test]
async fn people_go_on_below_the_line_of_an_interrupt() {
    let outcome = run_until_interrupted("status --watch", vec![Ok(Response::Status(Box::new(status())))]).await;
    assert!(outcome.exit == Exit::Done && outcome.printed.ends_with("\n\n"), "{outcome:?}");
}

/// Transport that stores the tasks of the first call, and does not answer the next one.
#[derive(Default)]
struct Stuck(AtomicUsize);

impl Transport for Stuck {
    async fn call(&self, call: Call, _: Option<Duration>) -> Result<Response, Error> {
        let Call::Enqueue { drafts, .. } = call else { panic!("{call:?}") };
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Response::Acked(drafts.iter().map(|_| Ok(acked(1))).collect())),
            _ => std::future::pending().await,
        }
    }
}

/// Goal: a person who interrupts a bulk enqueue knows which tasks are stored, and repeats the rest. Method: Ctrl-C comes while the second
/// batch is being stored.
#[tokio::test]
async fn an_interrupted_load_says_what_it_has_stored() {
    for json in [false, true] {
        let (results, notes) = (Written::default(), Written::default());
        let output = Output::new(results.clone(), notes.clone(), json);
        let stuck = Stuck::default();
        let lines = "x\n".repeat(1_500).into_bytes().leak();
        let mut runner = Runner::new(&stuck, output, Input::pipe(&*lines), Place::CommandLine);
        let command = CommandLine::try_parse_from("enqueue mail --lines".split(' ')).unwrap();
        let interrupt = runner.interrupt.clone();
        let interrupts = || {
            poll_fn(|_| match stuck.0.load(Ordering::SeqCst) {
                0 | 1 => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            })
        };
        let exit = interrupt.unless_taken_of(interrupts, runner.run(command.verb)).await.expect("the verb wants it");
        let (printed, noted) = (results.text(), notes.text());
        assert_eq!(exit.code(), 130, "{noted}");
        assert!(noted.contains("1000 tasks, up to line 1000, had been enqueued\n"), "{noted}");
        assert!(noted.contains("500 tasks, of lines 1001 to 1500, may have been\n"), "{noted}");
        if json {
            let rows = values(&printed);
            assert_eq!((rows.len(), &rows[1_000]["error"]["code"]), (1_001, &"unknown".into()), "{}", rows[1_000]);
        } else {
            assert!(noted.ends_with("error: interrupted\n"), "{noted}");
        }
    }
}
