//! Each verb is shown by example, in its help and in the README.

use super::*;
use crate::command::{unexplained_default, words};
use clap::CommandFactory as _;
use std::collections::BTreeSet;

pub(super) const README: &str = include_str!("../../../../README.md");

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

/// The command lines of a text, without the comments behind them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let commands = text.lines().filter_map(|line| line.trim_start_matches([' ', '$']).strip_prefix("norn "));
    commands.map(|line| line.split("  #").next().unwrap_or(line).trim())
}

/// Whether it is a line of the verbs, whatever stands for what programs have answered.
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

#[test]
fn the_readme_shows_each_verb_by_example() {
    let shown: Vec<&str> = lines(README).collect();
    let once = README.split("Each once;").nth(1).and_then(|rest| rest.split("```").nth(1)).expect("a block of lines");
    for line in lines(once) {
        check(line).unwrap();
    }
    let wanting: BTreeSet<String> = verbs()
        .into_iter()
        .map(|(verb, _)| verb)
        .filter(|verb| !shown.iter().any(|line| line.starts_with(verb)))
        .collect();
    assert_eq!(wanting, BTreeSet::new(), "verbs without an example in the README");
}

/// The table of exit codes.
fn codes() -> BTreeSet<u8> {
    let table = README.split("| exit code | meaning |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)?.trim().parse().ok()).collect()
}

#[test]
fn the_readme_has_each_exit_code_once() {
    let all = [Exit::Done, Exit::NothingToClaim, Exit::AlreadyEnded, Exit::Refused, Exit::Usage, Exit::Unavailable]
        .map(Exit::code);
    assert_eq!(codes(), all.into_iter().collect());
}

/// Goal: a script needs one table of exit codes. Method: each verb, as its help shows it, with a node that refuses, that cannot
/// reach others, or does not know the feature, and with a flag that there is not.
#[tokio::test]
async fn each_verb_ends_by_the_same_table_of_exit_codes() {
    for (verb, help) in verbs().into_iter().filter(|(verb, _)| verb != "help") {
        let example = lines(&help).find(|line| line.starts_with(&verb)).expect("each has one");
        // Shown again and again, or for as long as it takes, an outage is no end.
        let line = example.replace(" --watch", "").replace("\"ID\"", &format!("\"{}\"", id(1)));
        let line = if verb == "watch" { format!("{line} --timeout 1ms") } else { line };
        let outcomes = [(ErrorCode::Denied, 1), (ErrorCode::Unsupported, 2), (ErrorCode::Unavailable, 3)];
        for (code, exit) in outcomes.into_iter().filter(|(code, _)| verb != "watch" || *code != ErrorCode::Unavailable)
        {
            let outcome = run(&line, [Err(Error::new(code, "no"))]).await;
            assert_eq!(outcome.exit.code(), exit, "{line}: {code:?}: {}{}", outcome.printed, outcome.noted);
            assert!(codes().contains(&exit) && !outcome.calls.is_empty() || verb == "cluster add", "{line}");
        }
        let outcome = run(&format!("{line} --no-such-flag"), []).await;
        assert_eq!((outcome.exit.code(), outcome.calls.len()), (2, 0), "{line}");
    }
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
}
    let option = |help: &'static str| clap::Arg::new("limit").long("limit").action(clap::ArgAction::Set).help(help);
    assert_eq!(unexplained_default(&option("At most this many")).as_deref(), Some("At most this many"));
    assert_eq!(unexplained_default(&option("At most this many; all if left out")), None);
    assert_eq!(unexplained_default(&option("At most this many").default_value("7")), None, "it is shown");
    let hidden = option("At most this many").default_value("7").hide_default_value(true);
    assert!(unexplained_default(&hidden).is_some());
