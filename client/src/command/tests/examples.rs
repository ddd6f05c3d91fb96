//! Each verb is shown by example, in its help and in the README.

use super::*;
use crate::command::words;
use clap::CommandFactory as _;
use std::collections::BTreeSet;

const README: &str = include_str!("../../../../README.md");

fn leaves(command: &clap::Command, path: &str, all: &mut Vec<(String, String)>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let path = format!("{path} {}", verb.get_name()).trim().to_owned();
        match verb.has_subcommands() {
            true => leaves(verb, &path, all),
            false => all.push((path, verb.get_after_help().map(ToString::to_string).unwrap_or_default())),
        }
    }
}

fn verbs() -> Vec<(String, String)> {
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
