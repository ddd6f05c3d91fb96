//! The prompt of `norn repl` as a person at a terminal uses it.

use norn_tests::wait::until;
use norn_tests::{Cluster, Terminal};

const PROMPT: &str = "prod> ";

/// A cluster whose name differs from the prompt that is shown when no node answers.
fn cluster() -> Cluster {
    let mut cluster = Cluster::prepare(1, Vec::new());
    cluster.restart(0);
    cluster.wait_ready(0);
    cluster.init(&[0], &["--name", "prod", "--partitions", "16"]).done();
    cluster
}

/// Waits for the count that a command prints on a line of its own.
fn counts(terminal: &mut Terminal, count: usize) {
    terminal.shows(&format!("\n{count}\r\n"));
}

/// Goal: each pasted line runs, in order, whether or not the terminal marks a paste, and an open quote continues on the next line.
#[test]
fn each_line_of_a_paste_runs() {
    let cluster = cluster();
    let mut terminal = cluster.cli().terminal(&["repl"]);
    terminal.shows(concat!("Norn ", env!("CARGO_PKG_VERSION"), ", cluster prod: 1 of 1 nodes up"));
    terminal.shows(PROMPT);
    terminal.types("enqueue mail one\renqueue mail two\renqueue mail three\rcount mail\r");
    counts(&mut terminal, 3);
    terminal.shows(PROMPT);
    terminal.types("\x1b[200~enqueue mail four\nenqueue mail 'fi\nve'\ncount mail\n\x1b[201~\r");
    counts(&mut terminal, 5);
    terminal.shows(PROMPT);
    terminal.types("enqueue mail 'six\r");
    terminal.shows("'> ");
    terminal.types("\x03");
    terminal.shows(PROMPT);
    terminal.types("count mail\r");
    counts(&mut terminal, 5);
    terminal.shows(PROMPT);
    terminal.types("quit\r");
    assert_eq!(terminal.end(), Some(0));
}

/// Goal: an interrupt between the first Enter and the start of its verb does not end the prompt. Method: the signal is already handled
/// before any input.
#[test]
fn a_prompt_hears_interrupts_before_its_first_verb() {
    let cluster = cluster();
    let mut terminal = cluster.cli().terminal(&["repl"]);
    terminal.shows(PROMPT);
    assert!(terminal.hears_interrupts());
    terminal.types("quit\r");
    assert_eq!(terminal.end(), Some(0));
}

/// Goal: a wait for work that is interrupted at the prompt takes no task. Method: the task that follows allows one attempt, and
/// another claim must get it. The requested lease is longer than the test.
#[test]
fn a_wait_that_is_interrupted_at_the_prompt_takes_no_task() {
    let cluster = cluster();
    let mut terminal = cluster.cli().terminal(&["repl"]);
    terminal.shows(PROMPT);
    let cli = cluster.cli().patient();
    let claims = || cli.json(&["status"]).done().object()["counters"]["claim"].as_u64().unwrap_or(0);
    for round in 0..3 {
        let before = claims();
        terminal.types("claim mail --wait 10m --lease 1h\r");
        until("the claim waits", || claims() > before);
        terminal.interrupt();
        terminal.shows(PROMPT);
        let id = cli.json(&["enqueue", "mail", "x", "--max-attempts", "1"]).done().object()["id"].clone();
        let claimed = cli.json(&["claim", "mail", "--wait", "10m"]).done().object();
        assert_eq!((&claimed["id"], &claimed["attempt"]), (&id, &1.into()), "{round}: {claimed}");
        let [id, token] = ["id", "token"].map(|name| claimed[name].as_str().expect("a text"));
        cli.json(&["complete", id, token]).done();
    }
    terminal.types("quit\r");
    assert_eq!(terminal.end(), Some(0));
}

/// Goal: Ctrl-C ends a watch without an error. Input that is typed meanwhile runs afterwards.
#[test]
fn an_interrupt_ends_a_watch_without_an_error() {
    let cluster = cluster();
    let mut terminal = cluster.cli().terminal(&["repl"]);
    terminal.shows(PROMPT);
    for (watch, begun) in [("watch mail", "Ctrl-C ends it"), ("status --watch=1h", "answered by")] {
        terminal.types(&format!("{watch}\r"));
        terminal.shows(begun);
        terminal.types("count mail\r");
        terminal.interrupt();
        let shown = terminal.shows("\n0\r\n");
        assert!(!shown.contains("error") && !shown.contains("interrupted"), "{shown}");
        terminal.shows(PROMPT);
    }
    for (arguments, begun) in [(["watch", "mail"], "Ctrl-C ends it"), (["status", "--watch=1h"], "answered by")] {
        let mut terminal = cluster.cli().terminal(&arguments);
        terminal.shows(begun);
        terminal.interrupt();
        assert_eq!(terminal.end(), Some(0), "{arguments:?}");
    }
}
