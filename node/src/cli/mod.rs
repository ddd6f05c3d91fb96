//! The command line. One file per group of commands; the client verbs come from the client crate.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "files, threads and clocks belong here; the bans are the core's"
)]

mod cert;
mod children;
mod cluster;
mod dev;
mod failure;
mod founding;
mod start;
mod verbs;

use clap::{Args, Parser, Subcommand};
use failure::{Failure, Outcome};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Norn, a distributed task queue.
#[derive(Debug, Parser)]
#[command(name = "norn", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every command understands.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Addresses of nodes.
    #[arg(long, global = true, value_name = "HOST:PORT,...", value_delimiter = ',', help_heading = "Connection")]
    connect: Vec<String>,
    /// Directory with certificates: ca.crt and node-NAME or client-NAME, .crt and .key.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Connection")]
    certs: Option<PathBuf>,
    /// One JSON object per line on stdout, and nothing else.
    #[arg(long, global = true)]
    json: bool,
    /// How long a call may take, for example `10s`.
    #[arg(long, global = true, value_name = "DUR", value_parser = humantime::parse_duration, help_heading = "Connection")]
    timeout: Option<Duration>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a cluster on this machine, with everything it needs, and opens the REPL.
    Dev(dev::Options),
    /// Runs a node.
    Start(start::Options),
    /// Makes certificates.
    #[command(subcommand)]
    Cert(cert::Command),
    /// Founds a cluster and looks after it.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Looks at a node's write-ahead log, offline.
    #[command(subcommand)]
    Log(LogCommand),
    /// Reads commands and runs them.
    Repl,
    #[command(flatten)]
    Verb(verbs::Verb),
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Shows what is in the log.
    Inspect {
        /// Data directory.
        directory: PathBuf,
    },
    /// Checks every record.
    Verify {
        /// Data directory.
        directory: PathBuf,
    },
    /// Cuts damage off.
    Repair {
        /// Data directory.
        directory: PathBuf,
    },
}

/// Parses the command line and runs it.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let global = arguments.global;
    let json = global.json;
    let outcome = match arguments.command {
        Command::Start(options) => start::run(options, global),
        Command::Dev(options) => dev::run(options, global),
        Command::Cert(command) => cert::run(command, global),
        Command::Cluster(command) => cluster::run(command, global),
        Command::Log(command) => Err(log_command(&command)),
        Command::Repl => verbs::repl(global),
        Command::Verb(verb) => verbs::run(verb, global),
    };
    failure::finish(outcome, json)
}

fn log_command(command: &LogCommand) -> Failure {
    let (verb, directory) = match command {
        LogCommand::Inspect { directory } => ("inspect", directory),
        LogCommand::Verify { directory } => ("verify", directory),
        LogCommand::Repair { directory } => ("repair", directory),
    };
    Failure::not_there_yet(&format!("norn log {verb} {}", directory.display()))
}

/// Writes a line to stdout at once, for whoever waits for it.
fn say(line: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        // Whoever read our output has had enough; that is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::refused(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// A small async runtime for commands that talk to nodes.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let result = runtime.block_on(work);
    // A thread that waits for a line from the terminal would hold a plain drop up.
    runtime.shutdown_background();
    result
}
