//! The command line of `norn`. One file per group of commands; the client verbs come from the client crate.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "files, threads and clocks belong here; the bans are the core's"
)]

mod carrier;
mod cert;
mod children;
mod cluster;
mod dev;
mod doctor;
mod examples;
mod failure;
mod former;
mod founding;
mod health;
mod interrupts;
mod log;
mod pages;
mod progress;
#[cfg(test)]
mod reference;
mod start;
mod verbs;

use clap::{Args, Parser, Subcommand};
use failure::{Failure, Outcome};
use norn_cli::duration_ms;
use norn_node::runtime::diagnostics;
use norn_wire::Versions;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;

/// Name of the group `norn log inspect|verify|repair|compact` in the parser.
const LOG_GROUP: &str = "write-ahead-log";
/// Commands of that group.
const LOG_COMMANDS: [&str; 4] = ["inspect", "verify", "repair", "compact"];

/// Version of the build, and of its protocol.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (protocol {})", env!("CARGO_PKG_VERSION"), Versions::SPOKEN));

/// Norn, a distributed task queue.
#[derive(Debug, Parser)]
#[command(
    name = "norn",
    version = VERSION.as_str(),
    disable_help_subcommand = true,
    after_help = "norn log inspect|verify|repair DIR looks at the write-ahead log of a node that does not run."
)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Addresses of nodes; needs --certs [default: those of the file that NORN_CLIENT names, else of .norn/client.toml].
    #[arg(long, global = true, value_name = "HOST:PORT,...", value_delimiter = ',', help_heading = "Connection")]
    connect: Vec<String>,
    /// Directory with certificates: ca.crt and node-NAME or client-NAME, .crt and .key [default: the files that client.toml names, for
    /// nodes the setting `certs`].
    #[arg(long, global = true, value_name = "DIR", help_heading = "Connection")]
    certs: Option<PathBuf>,
    /// Keep tasks in this directory, in this process, without a cluster; it is made if it is not there. One command at a time uses it;
    /// others wait for 5s, or as long as --timeout says [default: a cluster is used].
    #[arg(long, global = true, value_name = "DIR", conflicts_with_all = ["connect", "certs"], help_heading = "Connection")]
    store: Option<PathBuf>,
    /// Print one JSON object per line on stdout, and nothing else.
    #[arg(long, global = true)]
    json: bool,
    /// Time limit of a command, or of each call of one that goes on with its work, in addition to its intentional wait; without this, a
    /// command ends after 5s if no node is reached (or after `unreached_timeout_ms` of client.toml) [default: `request_timeout_ms` of
    /// client.toml, else 10s].
    // `wait` has a flag of this name, too. The parser treats both as one, so their types must be equal.
    #[arg(long, global = true, value_name = "DUR", value_parser = duration_ms, help_heading = "Connection")]
    timeout: Option<u64>,
}

impl Global {
    /// Returns the `--timeout` of a call, if one was given.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_millis)
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster on this machine, with everything it needs, and open the REPL.
    #[command(after_help = examples::DEV)]
    Dev(dev::Options),
    /// Run a node.
    #[command(after_help = examples::START)]
    Start(start::Options),
    /// Check a node's machine, a cluster, or both, and say what to do
    ///
    /// The node's machine is checked where one is named as for `norn start`, by --config, --data or another setting; --certs is the
    /// directory of its certificates. That needs no cluster, changes nothing, and may run beside the node. The cluster is checked where
    /// one is named as for other commands, by --connect and --certs, NORN_CLIENT or .norn/client.toml.
    ///
    /// Each check ends with OK, WARN or FAIL. What could not be checked is a WARN that begins with `not checked`. The exit code is 0
    /// without a FAIL, and 6 with one.
    #[command(after_help = examples::DOCTOR)]
    Doctor(Box<doctor::Options>),
    /// Ask a node over HTTP how it is, for containers and scripts: the exit code is 0 if it is well, else 1.
    #[command(after_help = examples::HEALTH)]
    Health(health::Options),
    /// Make certificates.
    #[command(subcommand)]
    Cert(cert::Command),
    /// Found a cluster, and operate it.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Inspect, repair or compact a node's write-ahead log, offline: `norn log inspect DIR`.
    #[command(subcommand, name = LOG_GROUP, hide = true)]
    WriteAheadLog(log::Command),
    /// Print a script that has a shell complete commands and options
    ///
    /// bash: put it into ~/.local/share/bash-completion/completions/norn, and have the package bash-completion. zsh: into a file named
    /// `_norn` in a directory of `fpath`. fish: into ~/.config/fish/completions/norn.fish. elvish: append it to ~/.config/elvish/rc.elv.
    /// powershell: append it to the file that $PROFILE names. Then open another shell. The script completes names that are in the
    /// program; those of queues and tasks are completed by `norn repl`.
    #[command(after_help = examples::COMPLETIONS)]
    Completions(pages::CompletionsOptions),
    /// Write a manual page for each command
    ///
    /// `man` finds them in ~/.local/share/man/man1, and for all users in /usr/local/share/man/man1: then `man norn-enqueue` shows one.
    #[command(after_help = examples::MAN)]
    Man(pages::ManOptions),
    /// Read commands and run them.
    #[command(after_help = examples::REPL)]
    Repl,
    #[command(flatten)]
    Verb(verbs::Verb),
}

/// Refusal of `--store` for other commands.
const NO_STORE: &str =
    "--store is for commands that work with tasks, such as `norn --store DIR enqueue`; this one does not";

impl Command {
    /// Whether it can work with a store in place of a cluster.
    fn takes_store(&self) -> bool {
        matches!(self, Command::Verb(_) | Command::Repl)
    }
}

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let words = separate_logs(std::env::args_os().collect());
    let json = words.iter().any(|word| word == "--json");
    if start::logs_json(&words, std::env::var_os("NORN_LOG_FORMAT").as_deref()) {
        diagnostics::set_json(true);
    }
    let Arguments { global, command } = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return verbs::refuse(&error, json),
    };
    let json = global.json;
    if global.store.is_some() && !command.takes_store() {
        return failure::finish(Err(Failure::usage(NO_STORE)), json);
    }
    let outcome = match command {
        Command::Start(options) => start::run(options, global),
        Command::Dev(options) => dev::run(options, global),
        Command::Doctor(options) => doctor::run(&options, &global),
        Command::Health(options) => health::run(options, global),
        Command::Cert(command) => cert::run(command, global),
        Command::Cluster(command) => cluster::run(command, global),
        Command::WriteAheadLog(command) => log::run(command, &global),
        Command::Completions(options) => pages::completions(&options, &global),
        Command::Man(options) => pages::man(&options, &global),
        Command::Repl => verbs::repl(global),
        Command::Verb(verb) => verbs::run(verb, global),
    };
    failure::finish(outcome, json)
}

/// Replaces the group `log` by its name in the parser. `log` is both a verb (`log ID`) and a group (`log inspect DIR`). No id is spelled
/// like a command of the group, so the word after it distinguishes them.
fn separate_logs(mut words: Vec<OsString>) -> Vec<OsString> {
    let first = words.iter().skip(1).position(|word| word != "--json").map(|place| place + 1);
    if let Some(place) = first
        && words[place] == "log"
        && words.get(place + 1).is_some_and(|next| LOG_COMMANDS.iter().any(|command| next == command))
    {
        words[place] = LOG_GROUP.into();
    }
    words
}

/// Does the same for the words after `help`.
fn named_logs(verb: &[String]) -> Vec<String> {
    match verb {
        [log, command, ..] if log == "log" && LOG_COMMANDS.contains(&command.as_str()) => {
            std::iter::once(LOG_GROUP.to_owned()).chain(verb[1..].iter().cloned()).collect()
        }
        _ => verb.to_vec(),
    }
}

/// Writes a line to stdout at once, for a program that waits for it.
fn say(line: &str) -> Outcome {
    told(write_line(line), None)
}

fn write_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

/// Returns the outcome of a command that wrote its result. If that failed, the error names the command's effect.
fn told(written: std::io::Result<()>, effect: Option<&str>) -> Outcome {
    match (written, effect) {
        (Ok(()), _) => Ok(ExitCode::SUCCESS),
        (Err(error), Some(effect)) => {
            Err(Failure::refused(format!("cannot write the result: {error}; it took effect all the same: {effect}")))
        }
        // The reader has had enough; that is no failure of the command.
        (Err(error), None) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        (Err(error), None) => Err(Failure::refused(format!("cannot write to stdout: {error}"))),
    }
}

/// Runs work on a small async runtime, for commands that talk to nodes.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread that waits for a line from the terminal would delay a plain drop.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Goal: if the reader of a result has gone, the error says what was made; a command that only reads has succeeded.
    #[test]
    fn what_took_effect_is_said_where_nobody_reads_it() {
        for kind in [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::StorageFull] {
            let failure = told(Err(kind.into()), Some("made ca.crt")).expect_err("it could not be told");
            assert!(format!("{failure:?}").contains("it took effect all the same: made ca.crt"), "{failure:?}");
        }
        assert!(told(Err(std::io::ErrorKind::BrokenPipe.into()), None).is_ok());
        assert!(told(Err(std::io::ErrorKind::StorageFull.into()), None).is_err());
        assert!(told(Ok(()), Some("made ca.crt")).is_ok());
    }

    /// Returns all commands as typed, with the text behind their help.
    fn commands() -> Vec<(String, String)> {
        let leaves = reference::commands().into_iter().filter(|(_, command)| !command.has_subcommands());
        leaves
            .map(|(path, command)| (path, command.get_after_help().map(ToString::to_string).unwrap_or_default()))
            .collect()
    }

    /// Goal: the rules for the help of the client crate's verbs hold for the commands of the program, too.
    #[test]
    fn the_help_of_each_command_has_an_example_that_is_one_and_names_others() {
        let commands = commands();
        let own = [
            "dev",
            "start",
            "cert ",
            "cluster init",
            "log inspect",
            "log verify",
            "log repair",
            "log compact",
            "repl",
            "completions",
            "man",
            "doctor",
            "health",
        ];
        let is_own = |name: &str| own.iter().any(|own| name.starts_with(own));
        assert_eq!(commands.iter().filter(|(name, _)| is_own(name)).count(), 15);
        for (name, help) in &commands {
            let others = help.split("See also: ").nth(1).unwrap_or_else(|| panic!("`{name}` names no other command"));
            for other in others.trim().split(", ") {
                assert!(commands.iter().any(|(name, _)| name == other) && other != name, "`{name}` names {other:?}");
            }
            let lines: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_prefix("norn ")).collect();
            assert!(lines.iter().any(|line| line.starts_with(name)), "no example of `{name}`: {help}");
            for line in lines {
                reference::check(line).unwrap();
            }
        }
    }

    /// The flag of `wait` and the one of all commands once had different types, which none of clap's checks finds.
    #[test]
    fn wait_takes_a_timeout() {
        for words in [["norn", "wait", "06abc", "--timeout", "10s"], ["norn", "--timeout", "10s", "wait", "06abc"]] {
            let arguments = Arguments::try_parse_from(words).expect("it is well formed");
            let Command::Verb(verbs::Verb::Wait(wait)) = arguments.command else { panic!("it is another verb") };
            assert_eq!(wait.timeout, Some(10_000));
        }
    }

    #[test]
    fn a_malformed_timeout_names_what_is_taken() {
        let refusal = Arguments::try_parse_from(["norn", "--timeout", "10", "count"]).expect_err("it has no unit");
        assert!(refusal.to_string().contains("for example, 250ms, 10s, 5m or 1h30m"), "{refusal}");
    }

    /// Returns the help of a command as one line.
    fn help_of(name: &str) -> String {
        let words = format!("norn {name} --help");
        let words = separate_logs(words.split(' ').map(OsString::from).collect());
        let help = Arguments::try_parse_from(words).expect_err("it is help").to_string();
        help.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_help_of_each_verb_shows_its_timeout() {
        let default = norn_client::client::ClientConfig::new(["a:1"], "a", "c", "k").request_timeout;
        let shown = format!("client.toml, else {}]", humantime::format_duration(default));
        let mut own = Vec::new();
        for (name, _) in commands() {
            let help = help_of(&name);
            let (_, timeout) = help.split_once("--timeout <DUR>").unwrap_or_else(|| panic!("{name}: {help}"));
            if !timeout.contains(&shown) {
                let says = ["[default: ", "without it", "if left out"].iter().any(|words| timeout.contains(words));
                assert!(says, "`{name}`: {timeout}");
                own.push(name);
            }
        }
        // Verbs that wait for something that may take long have a timeout of their own.
        let waits = |name: &String| ["wait", "watch"].contains(&name.as_str()) || name.starts_with("cluster ");
        assert!(own.len() > 2 && own.iter().all(waits), "{own:?}");
    }

    /// Goal: the help of an optional option states its default. Method: each option of each command of the program.
    #[test]
    fn the_help_of_each_option_says_what_holds_without_it() {
        let mut commands = vec![Arguments::command()];
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                let complaint = norn_cli::unexplained_default(argument);
                assert_eq!(complaint, None, "{} --{}", command.get_name(), argument.get_id());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    /// The parser's name of the group is not one that a person can type.
    #[test]
    fn the_log_of_a_node_is_called_so_in_its_help() {
        for command in LOG_COMMANDS {
            let help = Arguments::try_parse_from(["norn", LOG_GROUP, command, "--help"]).expect_err("it is help");
            let help = help.to_string();
            assert!(help.contains(&format!("norn log {command} [OPTIONS]")) && !help.contains(LOG_GROUP), "{help}");
        }
    }

    #[test]
    fn the_log_of_a_task_and_the_log_of_a_node_are_told_apart() {
        let separate = |line: &str| {
            let words = separate_logs(line.split(' ').map(OsString::from).collect());
            words.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(separate("norn log inspect d"), "norn write-ahead-log inspect d");
        assert_eq!(separate("norn --json log repair d"), "norn --json write-ahead-log repair d");
        let help = |verb: &[&str]| named_logs(&verb.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(help(&["log", "verify"]), ["write-ahead-log", "verify"]);
        assert_eq!(help(&["log"]), ["log"]);
        for other in ["norn", "norn log", "norn log 06abc", "norn enqueue log inspect", "norn --json"] {
            assert_eq!(separate(other), other);
        }
    }
}
