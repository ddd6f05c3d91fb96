//! Generates `client/docs/cli.md` from the tree of commands, and checks every command line in all documents.
//!
//! Only tests use it. `NORN_BLESS=1 cargo test -p norn-node --bin norn reference` writes the file.

use super::{Arguments, LOG_GROUP, separate_logs};
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, Parser};
use norn_cli::{split, text::wrapped};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of prose, in characters.
const COLUMNS_MAX: usize = 120;
/// Characters that, at the beginning of a word without quotes, end the command for the shell.
const SHELL: [char; 5] = ['<', '>', '|', '&', ';'];
/// Least number of command lines in the documents. Fewer mean that the walk over the documents is broken.
const LINES_MIN: usize = 50;

const HEAD: &str = "# Commands

Each command of `norn` with its arguments, their defaults, examples, and its relatives. This file is made of what
`norn VERB --help` shows; after a change of that, `NORN_BLESS=1 cargo test -p norn-node --bin norn reference` writes it anew.
[scripts](scripts.md) says how a command finds the cluster, and what `--json` prints; [tasks](tasks.md) explains what the
verbs are about. The same verbs work at the prompt of `norn dev` and `norn repl`, there without `norn` before them.

Durations are written as `250ms`, `10s`, `5m` or `1h30m`, times as in RFC 3339, and a queue as `queue` or `namespace/queue`.
A token is what `claim` printed. A few characters of an id stand for it ([identifiers](tasks.md#identifiers)).
";

/// Returns all commands as typed, each after the group to which it belongs.
pub fn commands() -> Vec<(String, Command)> {
    fn walk(command: &Command, path: &str, all: &mut Vec<(String, Command)>) {
        for verb in command.get_subcommands() {
            let name = verb.get_name().replace(LOG_GROUP, "log");
            let is_shown = !verb.is_hide_set() || verb.get_name() == LOG_GROUP;
            // The parser gives each group a `help` of its own.
            if is_shown && (path.is_empty() || name != "help") {
                let path = format!("{path} {name}").trim().to_owned();
                all.push((path.clone(), verb.clone()));
                walk(verb, &path, all);
            }
        }
    }
    let mut root = Arguments::command();
    root.build();
    let mut all = Vec::new();
    walk(&root, "", &mut all);
    all
}

/// Checks that the program accepts a line without its `norn`, with values in place of earlier answers.
pub fn check(line: &str) -> Result<(), String> {
    // A comment may have an apostrophe, which would parse as a quote.
    let line = line.split("  #").next().unwrap_or(line);
    let words = split(&line.replace("$TOKEN", "7.42")).map_err(|error| format!("{line}: {error}"))?;
    let words = words.into_iter().take_while(|word| word.literal || !word.text.starts_with(SHELL));
    let words = std::iter::once("norn".into()).chain(words.map(|word| OsString::from(word.text))).collect();
    match Arguments::try_parse_from(separate_logs(words)) {
        Err(error) if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Err(format!("norn {line}: {error}"))
        }
        _ => Ok(()),
    }
}

/// Returns the whole file.
fn document() -> String {
    let commands = commands();
    let mut out = HEAD.to_owned();
    out += "\n| command | |\n|---|---|\n";
    for (path, command) in &commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let name = if command.has_subcommands() { format!("**{path}**") } else { link(path) };
        put(&mut out, &format!("| {name} | {} |\n", about.trim_end_matches('.')));
    }
    out += "\n## Options of every command\n\n";
    let mut root = Arguments::command();
    root.build();
    root.get_arguments().filter(|argument| argument.is_global_set()).for_each(|argument| option(&mut out, argument));
    put(&mut out, &format!("\n## Exit codes\n\n{}", exit_codes()));
    commands.into_iter().filter(|(_, command)| !command.has_subcommands()).for_each(|(path, command)| {
        section(&mut out, &path, command);
    });
    out
}

/// Appends the section of a command.
fn section(out: &mut String, path: &str, mut command: Command) {
    put(out, &format!("\n## norn {path}\n\n"));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    about.split("\n\n").for_each(|paragraph| put(out, &format!("{}\n\n", prose(paragraph, ""))));
    let usage = command.render_usage().to_string();
    put(out, &format!("```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim()));
    let own = |argument: &&Arg| {
        !argument.is_global_set()
            && !argument.is_hide_set()
            && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let options = command.get_arguments().filter(|argument| !argument.is_positional());
    let mut arguments = command.get_positionals().chain(options).filter(own).peekable();
    if arguments.peek().is_some() {
        out.push('\n');
    }
    arguments.for_each(|argument| option(out, argument));
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, others) = help.split_once("See also: ").expect("each command names others");
    shown(out, examples);
    let others: Vec<String> = others.trim().split(", ").map(link).collect();
    put(out, &format!("\nSee also: {}\n", others.join(", ")));
}

fn link(path: &str) -> String {
    format!("[{path}](#norn-{})", path.replace(' ', "-"))
}

/// Appends an argument, with its possible values if they are explained.
fn option(out: &mut String, argument: &Arg) {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let shows = argument.get_action().takes_values() && !argument.is_hide_default_value_set() && !defaults.is_empty();
    let default = if shows { format!(" [default: {}]", defaults.join(" ")) } else { String::new() };
    put(out, &format!("- {}\n", prose(&format!("`{argument}`: {}{default}", help.trim_end_matches('.')), "  ")));
    for value in argument.get_possible_values().iter().filter(|_| !argument.is_hide_possible_values_set()) {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        put(out, &format!("  - {}\n", prose(&format!("`{}`{help}", value.get_name()), "    ")));
    }
}

/// Appends the examples of a help: commands, other indented lines, and the text about them.
fn shown(out: &mut String, examples: &str) {
    let kind = |line: &str| match line.strip_prefix("  ") {
        Some(line) if line.starts_with("norn ") => "sh",
        Some(_) => "json",
        None => "",
    };
    for paragraph in examples.trim().split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().collect();
        for block in lines.chunk_by(|one, other| kind(one) == kind(other)) {
            match kind(block[0]) {
                "" => put(out, &format!("\n{}\n", prose(&block.join(" "), ""))),
                kind => {
                    let lines: Vec<&str> = block.iter().map(|line| &line[2..]).collect();
                    put(out, &format!("\n```{kind}\n{}\n```\n", lines.join("\n")));
                }
            }
        }
    }
}

/// Wraps text to the limit of columns, with a full stop.
fn prose(text: &str, indent: &str) -> String {
    let stop = if text.ends_with(['.', ':']) { "" } else { "." };
    wrapped(&format!("{text}{stop}"), COLUMNS_MAX - indent.len()).join(&format!("\n{indent}"))
}

fn put(out: &mut String, text: &str) {
    out.write_str(text).expect("a string takes everything");
}

/// Returns the table of exit codes.
fn exit_codes() -> String {
    let scripts = include_str!("../../../client/docs/scripts.md");
    let rows = scripts.lines().skip_while(|line| *line != "| exit code | meaning |");
    rows.take_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in a workspace")
}

/// Returns all documents of the repository.
fn documents(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("it can be listed").flatten().map(|entry| entry.path());
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let is_left_out = |path: &PathBuf| {
        path.ends_with("target") || path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.')
    };
    let below = directories.iter().filter(|path| !is_left_out(path)).flat_map(|path| documents(path));
    files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).chain(below).collect()
}

/// Returns the command lines of a document, without their `norn`: lines of its blocks of shell commands, and input at a prompt of a shell
/// or of Norn in any block.
fn lines(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let (mut block, mut lines) = (None, Vec::new());
    for line in text.lines().map(str::trim_start) {
        let typed = line.strip_prefix("norn> ").or(line.strip_prefix("$ norn "));
        match (line.strip_prefix("```"), block) {
            (Some(kind), None) => block = Some(kind),
            (Some(_), Some(_)) => block = None,
            (None, Some(kind)) => lines.extend(typed.or(line.strip_prefix("norn ").filter(|_| kind == "sh"))),
            (None, None) => {}
        }
    }
    lines.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_document_of_the_commands_is_what_their_help_says() {
    let (file, made) = (workspace().join("client/docs/cli.md"), document());
    if std::env::var_os("NORN_BLESS").is_some() {
        fs::write(&file, &made).expect("the document is written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let differs = kept.lines().zip(made.lines()).find(|(kept, made)| kept != made);
    assert!(kept == made, "client/docs/cli.md is not what the help says: {differs:?}; NORN_BLESS=1 writes it anew");
}

#[test]
fn each_command_line_that_a_document_shows_is_one() {
    let (mut count, mut complaints) = (0, Vec::new());
    for file in documents(workspace()) {
        let text = fs::read_to_string(&file).expect("a document is UTF-8");
        for line in lines(&text) {
            count += 1;
            complaints.extend(check(&line).err().map(|error| format!("{}: {error}", file.display())));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(count >= LINES_MIN, "only {count} lines were found");
}

#[test]
fn lines_of_documents_are_found_and_comments_left_out() {
    let text = "norn no\n```sh\n$ norn get ID \\\n  --json\nnorn count   # all\nls\n```\n```\nnorn> list\n$ norn ring\nnorn no\n```\n";
    assert_eq!(lines(text), ["get ID    --json", "count   # all", "list", "ring"]);
    for line in ["count   # all", "repl --json < lines.txt", "fail \"$ID\" \"$TOKEN\" --reason '# 7'", "log verify d"] {
        check(line).unwrap();
    }
    assert!(check("count --no-such-flag").is_err());
}
