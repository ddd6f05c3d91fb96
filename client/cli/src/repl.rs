//! Read, run, print: the verbs at a prompt, or one per line of standard input.
//!
//! A prompt has completion, hints and a history, and a command with an open quote continues on the next lines. Without a terminal there
//! is no prompt, and with JSON every command answers with exactly one line, in order: the interface for scripts in any language.

mod ahead;
mod prompt;

#[cfg(test)]
mod tests;

use crate::input::{Purpose, Reading};
use crate::interrupt::listen;
use crate::text::clean;
use crate::words::{Word, split};
use crate::{Command, Exit, Failure, Input, Output, Place, Recent, Runner, ShownIds, Transport, refuse_usage};
use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use norn_wire::{Request, Response};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest line of a command: room for the largest payload with every byte escaped.
pub const LINE_BYTES_MAX: usize = 8 << 20;
/// Oldest age of the queues and schedules offered for completion.
const NAMES_AGE_MAX: Duration = Duration::from_secs(30);
const NAMES_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait of the prompt for the name of its cluster.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

const _: () = assert!(LINE_BYTES_MAX > 6 * norn_wire::limits::PAYLOAD_BYTES_MAX);

/// Line of the REPL.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "", no_binary_name = true, disable_help_subcommand = true, help_template = HELP_TEMPLATE)]
pub struct CommandLine {
    /// Command
    #[command(subcommand)]
    pub verb: Command,
    /// Answer this command with JSON
    #[arg(long, global = true)]
    pub json: bool,
}

const HELP_TEMPLATE: &str = "\
{subcommands}

  help VERB explains one of them; quit or Ctrl-D ends.
  In data, - reads the rest of standard input and @FILE a file; quotes make them text.
  4 characters or more of an id stand for it if no other has them, 6 where its task is changed.";

/// Returns the verbs as typed at the prompt: examples in their help do not begin with the name of the program.
pub(crate) fn prompt_command() -> clap::Command {
    fn without_program(command: clap::Command) -> clap::Command {
        let examples = command.get_after_help().map(|help| help.to_string().replace("\n  norn ", "\n  "));
        let command = match examples {
            Some(examples) => command.after_help(examples),
            None => command,
        };
        command.mut_subcommands(without_program)
    }
    without_program(CommandLine::command())
}

/// Options of a REPL.
#[derive(Debug, Clone, Default)]
pub struct ReplOptions {
    /// Answer with JSON.
    pub json: bool,
    /// File with the lines of earlier sessions, for a prompt.
    pub history: Option<PathBuf>,
    /// Text printed before the first prompt.
    pub banner: Option<String>,
    /// Ids that commands of this user have shown, if they are kept.
    pub shown: Option<ShownIds>,
}

/// Runs commands until the end of the input or `quit`, at a prompt if standard input is a terminal. The exit is `Done` once the input has
/// been read to its end, whatever the outcomes of the commands: each has reported its own.
pub async fn run(transport: impl Transport, options: ReplOptions) -> anyhow::Result<Exit> {
    let output = Output::standard(options.json).with_arrays();
    let interactive = std::io::stdin().is_terminal();
    let (input, place) = if interactive { (Input::stdin(), Place::Prompt) } else { (Input::stdin(), Place::Script) };
    let mut runner = Runner::new(transport, output, input, place);
    runner.shown.clone_from(&options.shown);
    if interactive {
        let (name, greeting) = greet(&runner).await;
        // Listen from the start: an interrupt between the first Enter and its verb must not end the process either.
        listen().await;
        let known = prompt::Known { recent: runner.recent.clone(), shown: options.shown.clone() };
        runner.input = prompt::input(options.history.clone(), known, runner.output.color(), name);
        if !options.json {
            let mut lines = std::iter::once(&greeting).chain(&options.banner);
            let said = lines.try_for_each(|line| runner.output.line(line)).and_then(|()| runner.output.flush());
            said.map_err(|failure| unwritten(&failure))?;
        }
    }
    serve(&mut runner).await
}

/// Returns the name of the cluster, for the prompt, and a line about it. A node that does not answer soon is not waited for.
async fn greet<T: Transport>(runner: &Runner<T>) -> (Option<String>, String) {
    let request = crate::Call::Request(Request::Status);
    let program = concat!("Norn ", env!("CARGO_PKG_VERSION"));
    match runner.transport.call_quietly(request, Some(GREETING_TIMEOUT)).await {
        Ok(Response::Status(status)) => {
            let (name, (members, alive)) = (clean(&status.name), status.nodes);
            let line =
                format!("{program}, cluster {name}: {alive} of {members} nodes up. help lists the verbs, quit ends");
            (Some(name), line)
        }
        _ => (None, format!("{program}: no node has answered yet. help lists the verbs, quit ends")),
    }
}

fn unwritten(failure: &Failure) -> anyhow::Error {
    anyhow::anyhow!("cannot write to the output: {failure:?}")
}

/// Runs commands until the end of the runner's input or `quit`, or until a result cannot be written. In that case it reports where it
/// stopped and returns an error exit, because commands may be left.
pub async fn serve<T: Transport>(runner: &mut Runner<T>) -> anyhow::Result<Exit> {
    let mut names_seen = None;
    // Data in a script is all that follows its command, so each line before it is a command.
    let mut line_number: u64 = 0;
    while !runner.output_lost {
        line_number += 1;
        runner.output.script_line = (runner.place == Place::Script).then_some(line_number);
        let reading = next_line(runner, &mut names_seen).await.context("cannot read commands")?;
        match reading {
            Reading::End => {
                if runner.place == Place::Prompt && !runner.output.json() {
                    let _ = runner.output.line("").and_then(|()| runner.output.flush());
                }
                return Ok(Exit::Done);
            }
            Reading::Interrupted => {}
            Reading::TooLong => {
                runner.conclude(Err(Failure::Usage(format!("a command has at most {LINE_BYTES_MAX} bytes"))));
            }
            Reading::Line(bytes) => {
                let Ok(line) = String::from_utf8(bytes) else {
                    runner.conclude(Err(Failure::Usage("a command is UTF-8; name other data as @FILE".to_owned())));
                    continue;
                };
                // Some programs begin a file with a byte order mark, which is no part of its text.
                let line = if line_number == 1 { line.trim_start_matches('\u{feff}') } else { &line };
                if obey(runner, line.trim()).await == Step::Quit {
                    return Ok(Exit::Done);
                }
            }
        }
    }
    let place = if runner.place == Place::Script { format!(" at line {line_number}") } else { String::new() };
    let why = format!("stopped{place}, as results cannot be written; no command after it was run");
    runner.output.unwritten(&why, None);
    Ok(Exit::Refused)
}

/// Whether another command follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Go,
    Quit,
}

/// Waits for a line. While the person types, it fetches the queues and schedules for completion.
async fn next_line<T: Transport>(runner: &mut Runner<T>, names_seen: &mut Option<Instant>) -> std::io::Result<Reading> {
    let stale = names_seen.is_none_or(|seen| seen.elapsed() > NAMES_AGE_MAX);
    if runner.place != Place::Prompt || !stale {
        return runner.input.line(Purpose::Command, LINE_BYTES_MAX).await;
    }
    *names_seen = Some(Instant::now());
    let fetch = fetch_names(&runner.transport, runner.recent.clone());
    let line = runner.input.line(Purpose::Command, LINE_BYTES_MAX);
    tokio::pin!(fetch, line);
    tokio::select! {
        biased;
        line = &mut line => return line,
        () = &mut fetch => {}
    }
    line.await
}

/// Fetches names for completion. Without an answer, completion offers the queues of this session and the schedules known before.
async fn fetch_names(transport: &impl Transport, recent: Arc<Mutex<Recent>>) {
    for request in [Request::Queues, Request::Schedules { name: None }] {
        let answer = transport.call_quietly(crate::Call::Request(request), Some(NAMES_TIMEOUT)).await;
        let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(Response::Queues(queues)) => queues.iter().for_each(|queue| recent.see_queue(&queue.queue)),
            Ok(Response::Schedules(views)) => recent.see_schedules(views.into_iter().map(|view| view.name)),
            _ => {}
        }
    }
}

/// Runs one line.
async fn obey<T: Transport>(runner: &mut Runner<T>, line: &str) -> Step {
    if line.is_empty() || line.starts_with('#') {
        return Step::Go;
    }
    let words = match split(line) {
        Ok(words) => words,
        Err(message) => {
            runner.conclude(Err(Failure::Usage(message)));
            return Step::Go;
        }
    };
    if let [Word { text, .. }] = &words[..]
        && matches!(text.as_str(), "quit" | "exit")
    {
        return Step::Quit;
    }
    runner.literals = words.iter().filter(|word| word.literal).map(|word| word.text.clone()).collect();
    let texts = || words.iter().map(|word| &word.text);
    match CommandLine::try_parse_from(texts()) {
        Ok(command) => {
            let json_before = runner.output.set_json(command.json || runner.output.json());
            run_verb(runner, command.verb).await;
            runner.remember_shown();
            runner.output.set_json(json_before);
        }
        Err(error) => {
            let wants_json = words.iter().any(|word| word.text == "--json" && !word.literal);
            let json_before = runner.output.set_json(wants_json || runner.output.json());
            let help = (error.kind() == ErrorKind::DisplayHelp).then(|| prompt_command().try_get_matches_from(texts()));
            let error = help.and_then(Result::err).unwrap_or(error);
            let outcome = refuse_usage(&error, &mut runner.output);
            runner.conclude(outcome);
            runner.output.set_json(json_before);
        }
    }
    Step::Go
}

/// Runs a verb. At a prompt, Ctrl-C ends the verb and not the program.
async fn run_verb<T: Transport>(runner: &mut Runner<T>, verb: Command) -> Exit {
    if runner.place != Place::Prompt {
        return runner.run(verb).await;
    }
    let interrupt = runner.interrupt.clone();
    let message = match interrupt.unless_taken(runner.run(verb)).await {
        Ok(exit) => return exit,
        Err(message) => message,
    };
    // The terminal has dropped typed-ahead input that was not read yet; drop the part that was read, too. If this fails, the next read
    // fails as well.
    let _ = runner.input.discard();
    // End the line on which the terminal shows ^C.
    let _ = runner.output.note("");
    runner.conclude_given_up(&message)
}
