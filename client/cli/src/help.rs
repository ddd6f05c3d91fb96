//! Help, and messages about malformed command lines.

use super::error::{Exit, Failure};
use super::output::Output;
use super::text::clean_lines;
use super::{Runner, Transport};
use clap::Args;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde::Serialize;
use std::error::Error as _;

/// Arguments of `help`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HelpArguments {
    /// The verb to explain: `help enqueue`, `help session open`
    #[arg(value_name = "VERB", num_args = 0..=3)]
    pub verb: Vec<String>,
}

#[derive(Serialize)]
struct HelpLine {
    help: String,
}

pub(super) fn run<T: Transport>(arguments: &HelpArguments, runner: &mut Runner<T>) -> Result<Exit, Failure> {
    print_help(crate::repl::prompt_command(), &arguments.verb, &mut runner.output)
}

/// Prints a command's help, or that of one of its verbs.
pub fn print_help(mut command: clap::Command, verb: &[String], output: &mut Output) -> Result<Exit, Failure> {
    if verb.is_empty() {
        let rendered = command.render_help();
        return print_rendered(&rendered, output);
    }
    // The parser itself renders the help of a verb, with the usage line as typed.
    let mut words = verb.to_vec();
    words.push("--help".to_owned());
    if !command.is_no_binary_name_set() {
        words.insert(0, command.get_name().to_owned());
    }
    match command.try_get_matches_from(words) {
        Ok(_) => Err(Failure::Usage(format!("there is no help about {:?}", verb.join(" ")))),
        Err(error) => refuse_usage(&error, output),
    }
}

/// Words by which the help of an option states its default.
const DEFAULT_WORDS: [&str; 5] = ["default", "left out", "without", "only ", "instead"];

/// Returns the help of an optional option that states no default, neither in its words nor as a default value shown. For tests of the
/// verbs here and of the program's own.
#[doc(hidden)]
pub fn unexplained_default(argument: &clap::Arg) -> Option<String> {
    let may_be_left_out = argument.get_long().is_some() && !argument.is_required_set() && !argument.is_hide_set();
    let shows = !argument.is_hide_default_value_set() && !argument.get_default_values().is_empty();
    if !may_be_left_out || !argument.get_action().takes_values() || shows {
        return None;
    }
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let words = help.to_lowercase();
    (!DEFAULT_WORDS.iter().any(|said| words.contains(said))).then_some(help)
}

fn print_rendered(rendered: &StyledStr, output: &mut Output) -> Result<Exit, Failure> {
    match output.json() {
        true => output.object(&HelpLine { help: rendered.to_string() })?,
        false => {
            let help = if output.color() { rendered.ansi().to_string() } else { rendered.to_string() };
            output.line(help.trim_end())?;
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}

/// Prints what is wrong with a command line, or the help that a flag asked for.
pub fn refuse_usage(error: &clap::Error, output: &mut Output) -> Result<Exit, Failure> {
    let rendered = error.render();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return print_rendered(&rendered, output);
    }
    let plain = rendered.to_string();
    match output.json() {
        true => output.failure(&Failure::Usage(usage_summary(error)))?,
        false => {
            let colors = output.notes_color() && !quotes_controls(error);
            let text = if colors { rendered.ansi().to_string() } else { clean_lines(&plain) };
            output.note(&output.placed(text.trim_end()))?;
            if let Some(hint) = hint(error) {
                output.note(&hint)?;
            }
        }
    }
    output.flush()?;
    Ok(Exit::Usage)
}

/// Whether the message quotes typed text that contains colours or other terminal control sequences.
fn quotes_controls(error: &clap::Error) -> bool {
    let odd = |text: &String| clean_lines(text) != *text;
    let quotes = |value: &ContextValue| match value {
        ContextValue::String(text) => odd(text),
        ContextValue::Strings(texts) => texts.iter().any(odd),
        _ => false,
    };
    error.context().any(|(_, value)| quotes(value)) || error.source().is_some_and(|why| odd(&why.to_string()))
}

/// Returns what is wrong with a command line, on one line.
pub fn usage_summary(error: &clap::Error) -> String {
    let hint = hint(error).map_or_else(String::new, |hint| format!("; {hint}"));
    summary(&error.render().to_string()) + &hint
}

/// Returns a hint: what a surplus argument may have meant, or what can replace a missing one.
fn hint(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return instead(error);
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    match argument.strip_prefix('-') {
        None => Some("a text with spaces is one argument: put it in quotes, for example 'hello world'".to_owned()),
        Some(number) if number.starts_with(|first: char| first.is_ascii_digit()) => Some(format!(
            "a number or a duration below 0 is not allowed here; text that begins so goes after `--`: -- {}",
            clean_lines(argument)
        )),
        Some(_) => None,
    }
}

/// Verbs that change one task, or many tasks of a queue.
const OF_MANY: [&str; 4] = ["cancel", "redrive", "release", "purge"];

/// Returns what can be given instead of a missing argument.
fn instead(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let plain = error.render().to_string();
    let usage = plain.lines().find_map(|line| line.strip_prefix("Usage: "))?;
    let misses = |argument: &str| plain.lines().any(|line| line.trim_start().starts_with(argument));
    let is_of = |verb: &&str| usage.split(' ').any(|word| word == *verb);
    if is_of(&"watch") && misses("<QUEUE>") {
        return Some("or name a group by the id of its join: watch --group ID".to_owned());
    }
    let verb = OF_MANY.into_iter().find(is_of)?;
    if misses("--queue") {
        return Some(format!(
            "of many tasks at once, the queue is named: {verb} --queue QUEUE; a single one is named by its id alone"
        ));
    }
    misses("<ID>").then(|| format!("or name a queue for many tasks at once: {verb} --queue QUEUE"))
}

/// Returns the message without the usage after it, on one line.
fn summary(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let joined = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_a_usage_failure_is_one_line() {
        let text =
            "error: the argument 'A'\ncannot be used\n\nUsage: norn get ID\n\nFor more information, try '--help'.";
        assert_eq!(summary(text), "the argument 'A' cannot be used");
    }
}
