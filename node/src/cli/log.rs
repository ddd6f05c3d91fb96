//! `norn log inspect|verify|repair`: an offline look at a node's write-ahead log.

use super::failure::{Failure, Outcome};
use super::{Global, say};
use clap::Subcommand;
use norn_node::runtime::disk::FileDisk;
use norn_node::storage::disk::DiskError;
use norn_node::storage::verify::{Entry, Problem, Verified, inspect, verify};
use norn_node::storage::{Loss, Owner};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What may be asked of the log of a node that does not run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows every record as one JSON object per line, and damage between them.
    Inspect {
        /// Data directory.
        directory: PathBuf,
    },
    /// Checks every record and tells what is damaged and what is lost. Ends with 0 only if the log is whole.
    Verify {
        /// Data directory.
        directory: PathBuf,
    },
    /// Not there yet.
    Repair {
        /// Data directory.
        directory: PathBuf,
    },
}

/// Carries one of them out.
pub fn run(command: Command, global: &Global) -> Outcome {
    match command {
        Command::Inspect { directory } => run_inspect(&directory),
        Command::Verify { directory } => run_verify(&directory, global.json),
        Command::Repair { directory } => {
            Err(Failure::not_there_yet(&format!("norn log repair {}", directory.display())))
        }
    }
}

/// Takes the directory as a node does, so that none runs on it meanwhile. One that is not there is not created.
fn open(directory: &Path) -> Result<FileDisk, Failure> {
    if !directory.is_dir() {
        return Err(Failure::usage(format!("{} is no directory", directory.display())));
    }
    FileDisk::open(directory).map_err(|error| Failure::refused(error.to_string()))
}

/// Why an inspection ends early.
enum Stop {
    Disk(DiskError),
    Output(std::io::Error),
}

impl From<DiskError> for Stop {
    fn from(error: DiskError) -> Self {
        Stop::Disk(error)
    }
}

fn run_inspect(directory: &Path) -> Outcome {
    let disk = open(directory)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let shown = inspect(&disk, |file, offset, entry| {
        writeln!(out, "{}", entry_object(file, offset, &entry)).map_err(Stop::Output)
    });
    match shown.and_then(|()| out.flush().map_err(Stop::Output)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Whoever read our output has had enough; that is no failure of ours.
        Err(Stop::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Stop::Output(error)) => Err(Failure::refused(format!("cannot write to stdout: {error}"))),
        Err(Stop::Disk(error)) => Err(Failure::refused(error.to_string())),
    }
}

fn entry_object(file: &str, offset: u64, entry: &Entry) -> Value {
    match entry {
        Entry::Record { ordinal, of, bytes, body_bytes, synced } => json!({
            "file": file, "offset": offset, "ordinal": ordinal,
            "kind": of.map_or("unknown".to_owned(), |(_, kind)| kind.to_string()),
            "partition": of.and_then(|(owner, _)| partition(owner)),
            "bytes": bytes, "body_bytes": body_bytes, "synced": synced,
        }),
        Entry::Damage { end, known } => json!({ "file": file, "offset": offset, "end": end, "damage": known }),
    }
}

fn partition(owner: Owner) -> Option<u16> {
    match owner {
        Owner::Node => None,
        Owner::Partition(partition) => Some(partition.0),
    }
}

fn run_verify(directory: &Path, json: bool) -> Outcome {
    let disk = open(directory)?;
    let mut said = Ok(ExitCode::SUCCESS);
    let verified = verify(&disk, |problem| {
        if said.is_ok() {
            said = say(&if json { problem_object(&problem).to_string() } else { problem_text(&problem) });
        }
    });
    let verified = verified.map_err(|error| Failure::refused(error.to_string()))?;
    said?;
    let Verified { records, snapshots, segments, problems } = verified;
    let whole = problems == 0;
    let summary = if json {
        json!({ "whole": whole, "records": records, "snapshots": snapshots, "segments": segments, "problems": problems }).to_string()
    } else if whole {
        let snapshot = if snapshots > 0 { "a snapshot and " } else { "" };
        format!("whole: {records} records in {snapshot}{segments} segments")
    } else {
        format!("not whole: {problems} problems; {records} records are whole")
    };
    say(&summary)?;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn problem_text(problem: &Problem) -> String {
    let Problem { file, offset, known, loss } = problem;
    format!("{file} at byte {offset}: {known}; {loss}")
}

fn problem_object(problem: &Problem) -> Value {
    let Problem { file, offset, known, loss } = problem;
    let Loss { ranges, owners, unknown, untold } = loss;
    let owners: Vec<Value> = owners
        .iter()
        .map(|((owner, kind), count)| json!({ "partition": partition(*owner), "kind": kind.to_string(), "count": count }))
        .collect();
    json!({
        "file": file, "offset": offset, "problem": known,
        "lost": { "ordinals": ranges, "of": owners, "unknown": unknown, "untold": untold },
    })
}
