//! The help of each verb has an example, and its exit codes are those of `client/docs/scripts.md`.

use super::*;
use crate::{unexplained_default, words};
use clap::CommandFactory as _;
use std::collections::BTreeSet;

const SCRIPTS: &str = include_str!("../../../docs/scripts.md");

fn leaves(command: &clap::Command, path: &str, all: &mut Vec<(String, String)>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let path = format!("{path} {}", verb.get_name()).trim().to_owned();
        match verb.has_subcommands() {
            true => leaves(verb, &path, all),
            false => all.push((path, verb.get_after_help().map(ToString::to_string).unwrap_or_default())),
        }
    }
}

pub(super) fn verbs() -> Vec<(String, String)> {
    let mut all = Vec::new();
    leaves(&CommandLine::command(), "", &mut all);
    all
}

/// Returns the command lines of a text, without the comments behind them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let commands = text.lines().filter_map(|line| line.trim_start_matches([' ', '$']).strip_prefix("norn "));
    commands.map(|line| line.split("  #").next().unwrap_or(line).trim())
}

/// Checks that the verbs accept a line, with values in place of earlier answers.
fn check(line: &str) -> Result<(), String> {
    let line = line.replace("\"$TOKEN\"", "7.42");
    let words = words::split(&line)?;
    let parsed = CommandLine::try_parse_from(words.iter().map(|word| word.text.as_str()));
    parsed.map(drop).map_err(|error| format!("{line}: {error}"))
}

#[test]
fn each_verb_has_an_example_in_its_help_that_is_one() {
    for (verb, help) in verbs() {
        let of_it = lines(&help).filter(|line| line.starts_with(&verb)).count();
        assert!(of_it > 0, "no example of `{verb}`: {help}");
        for line in lines(&help) {
            check(line).unwrap();
        }
    }
}

/// Returns the rows of the table with this title, each as its columns.
fn rows(title: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let (_, table) = SCRIPTS.split_once(title).expect("the table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    rows.map(|row| row.split('|').map(|column| column.trim().trim_matches('`')).skip(1).collect())
}

/// Returns the codes of the table of exit codes, in its order. A row may have several.
fn codes() -> Vec<u8> {
    let codes = |row: Vec<&'static str>| row[0].split(',').map(|code| code.trim().parse().expect("an exit code"));
    rows("| exit code | meaning |").flat_map(codes).collect()
}

/// Exit codes of programs that a signal ended: 128 plus its number, for a hang-up, Ctrl-C and SIGTERM.
const BY_SIGNALS: [u8; 3] = [128 + 1, 128 + 2, 128 + 15];

#[test]
fn the_document_has_each_exit_code_once() {
    let own = [
        Exit::Done,
        Exit::Refused,
        Exit::Usage,
        Exit::Unavailable,
        Exit::NothingToClaim,
        Exit::AlreadyEnded,
        Exit::Ailing,
    ];
    assert_eq!(codes(), [&own.map(Exit::code)[..], &BY_SIGNALS].concat());
}

#[test]
fn the_document_has_each_code_of_an_error_with_its_retry_and_exit_code() {
    let read = |row: Vec<&str>| {
        let code: ErrorCode = serde_json::from_value(row[0].into()).expect("a code");
        assert_eq!(serde_json::to_value(code.retry()).expect("it is text"), row[2], "{code:?}");
        assert_eq!(Exit::of(code).code().to_string(), row[3], "{code:?}");
        code
    };
    let codes: BTreeSet<ErrorCode> = rows("| code | meaning | retry | exit |").map(read).collect();
    assert_eq!(codes.len(), ErrorCode::Unsupported as usize + 1, "each is there: {codes:?}");
}

/// Returns each verb except `help`, which asks no node, with the example of its help.
fn examples() -> impl Iterator<Item = (String, String)> {
    verbs().into_iter().filter(|(verb, _)| verb != "help").map(|(verb, help)| {
        let example = lines(&help).find(|line| line.starts_with(&verb)).expect("each has one");
        // When repeated, a command does not end at an outage.
        let line = example.replace(" --watch", "").replace("\"ID\"", &format!("\"{}\"", id(1)));
        // The duration of a watch does not matter if its first call fails.
        let line = if verb == "watch" { format!("{line} --timeout 1h") } else { line };
        (verb, line)
    })
}

/// Goal: a script needs one table of exit codes. Method: each verb, as its help shows it, with a node that refuses, cannot reach others,
/// does not know the outcome, or does not know the feature, and with an unknown flag.
#[tokio::test]
async fn each_verb_ends_by_the_same_table_of_exit_codes() {
    for (verb, line) in examples() {
        let outcomes =
            [(ErrorCode::Denied, 1), (ErrorCode::Unsupported, 2), (ErrorCode::Unavailable, 3), (ErrorCode::Unknown, 3)];
        for (code, exit) in outcomes {
            let outcome = run(&line, [Err(Error::new(code, "no"))]).await;
            assert_eq!(outcome.exit.code(), exit, "{line}: {code:?}: {}{}", outcome.printed, outcome.noted);
            assert!(codes().contains(&exit) && !outcome.calls.is_empty() || verb == "cluster add", "{line}");
        }
        let outcome = run(&format!("{line} --no-such-flag"), []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (2, 0), "{line}");
    }
}

/// Goal: the exit code alone tells a script that there was nothing to claim, or that a task had ended before. Method: each verb with a
/// node's answer for these cases; for verbs outside the table, the answer means something else.
#[tokio::test]
async fn what_there_was_nothing_to_do_about_has_codes_of_its_own() {
    let nothing = || Ok(Response::Claimed { tasks: Vec::new(), unavailable: 0, left: 0 });
    let policy = norn_wire::membership::QueuePolicy { paused: true, ..Default::default() };
    let paused = || Ok(Response::Cluster(Box::new(tables::view_of("mail-dead", policy.clone()))));
    let done = || Ok(Response::Task(Box::new(bare_task(1, State::Done))));
    let mut ends = Vec::new();
    let letters = ("redrive --letters".to_owned(), "redrive --letters mail-dead".to_owned());
    for (verb, line) in examples().chain([letters]) {
        for answers in [vec![nothing(), paused(), Ok(Response::Count(7))], vec![done()]] {
            let exit = run(&line, answers).await.exit.code();
            if exit > Exit::Unavailable.code() {
                assert!(codes().contains(&exit), "{line}: {exit}");
                ends.push((verb.clone(), exit));
            }
        }
    }
    ends.sort();
    assert_eq!(
        ends,
        [("cancel", 5), ("claim", 4), ("redrive --letters", 4)].map(|(verb, exit)| (verb.to_owned(), exit))
    );
}

#[test]
fn the_help_of_each_verb_names_others_and_its_defaults() {
    let verbs = verbs();
    for (verb, help) in &verbs {
        let others = help.split("See also: ").nth(1).unwrap_or_else(|| panic!("`{verb}` names no other verb"));
        for other in others.trim().split(", ") {
            assert!(verbs.iter().any(|(name, _)| name == other) && other != verb, "`{verb}` names {other:?}");
        }
    }
    let mut commands = vec![CommandLine::command()];
    while let Some(command) = commands.pop() {
        for argument in command.get_arguments() {
            assert_eq!(unexplained_default(argument), None, "{} --{}", command.get_name(), argument.get_id());
        }
        commands.extend(command.get_subcommands().cloned());
    }
    let option = |help: &'static str| clap::Arg::new("limit").long("limit").action(clap::ArgAction::Set).help(help);
    assert_eq!(unexplained_default(&option("At most this many")).as_deref(), Some("At most this many"));
    assert_eq!(unexplained_default(&option("At most this many; all if left out")), None);
    assert_eq!(unexplained_default(&option("At most this many").default_value("7")), None, "it is shown");
    let hidden = option("At most this many").default_value("7").hide_default_value(true);
    assert!(unexplained_default(&hidden).is_some());
}
