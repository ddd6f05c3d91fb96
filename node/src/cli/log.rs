//! `norn log inspect|verify|repair|compact`: offline tools for a node's write-ahead log.

mod compact;
mod content;

use super::failure::{Failure, Outcome};
use super::progress::Watched;
use super::{Global, examples, say, told, write_line};
use clap::Subcommand;
use content::Content;
use norn_cli::Part;
use norn_host::disk::{FileDisk, FileDiskError, is_of_log};
use norn_model::record::Kind;
use norn_restore::plan_repair;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::repair::{Changes, Lost, Plan, Step, keep};
use norn_storage::verify::{Entry, Problem, Verified, inspect, verify};
use norn_storage::{Loss, Owner};
use norn_wire::{Error, ErrorCode};
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Number of times that a repair reads a log: for the headers, for the heads, and as a start does.
const REPAIR_READS: u64 = 3;

/// Commands about the log of a stopped node.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show every record as one JSON object per line, and the damage between records.
    #[command(override_usage = "norn log inspect [OPTIONS] <DIRECTORY>", after_help = examples::LOG_INSPECT)]
    Inspect {
        /// Data directory.
        directory: PathBuf,
        /// Show the content of each record, as text unless with --json: ids, tokens, times, queues; of payloads and results the length.
        #[arg(long)]
        full: bool,
        /// Show only the content about this task, as with --full: by its id, or about all tasks whose ids contain these characters, four
        /// or more.
        #[arg(long, value_name = "ID", value_parser = Part::new)]
        task: Option<Part>,
    },
    /// Check every record, and report what is damaged and what is lost. Ends with 0 only if the log is whole.
    #[command(override_usage = "norn log verify [OPTIONS] <DIRECTORY>", after_help = examples::LOG_VERIFY)]
    Verify {
        /// Data directory.
        directory: PathBuf,
    },
    /// Repair a damaged log so that a node starts on it, as far as possible without dropping a good record or inventing one.
    ///
    /// Files get the names in their headers, damaged headers and heads are rewritten, and a torn end is cut. Remaining losses are
    /// reported, and the node fetches the lost data from other replicas. A copy of every changed file is kept in a directory inside the
    /// data directory. Nothing is done if a vote, a mark or the identity of the node is lost and nothing replaces it.
    #[command(override_usage = "norn log repair [OPTIONS] <DIRECTORY>", after_help = examples::LOG_REPAIR)]
    Repair {
        /// Data directory.
        directory: PathBuf,
        /// Report what it would do, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Replace a log by a snapshot of what it says, as a running node does, so that the next start reads less.
    ///
    /// It takes the memory that the node takes, and room on the disk for the snapshot beside the log. The old files are removed once the
    /// snapshot is complete; until then an interruption leaves them as they are.
    #[command(override_usage = "norn log compact [OPTIONS] <DIRECTORY>", after_help = examples::LOG_COMPACT)]
    Compact {
        /// Data directory.
        directory: PathBuf,
    },
}

/// Runs the command.
pub fn run(command: Command, global: &Global) -> Outcome {
    match command {
        Command::Inspect { directory, full, task } => {
            let detail = Detail { full: full || task.is_some(), task: task.as_ref(), json: global.json };
            run_inspect(&directory, detail)
        }
        Command::Verify { directory } => run_verify(&directory, global.json),
        Command::Repair { directory, dry_run } => run_repair(&directory, dry_run, global.json),
        Command::Compact { directory } => compact::run(&directory, global.json),
    }
}

/// Locks the directory like a node does, so that no node runs on it meanwhile. Does not create a missing directory, and leaves one
/// without a log unchanged. A bar shows the progress, if everything is read `times` times.
fn open(directory: &Path, times: u64) -> Result<Watched<FileDisk>, Failure> {
    if !directory.is_dir() {
        return Err(Failure::usage(format!("{} is no directory", directory.display())));
    }
    if !has_log(directory)? {
        let directory = directory.display();
        return Err(Failure::usage(format!("{directory} is no data directory of a node: no file of a log is in it")));
    }
    let disk = FileDisk::open(directory).map_err(|error| match error {
        FileDiskError::Held { directory, holder } => {
            let directory = directory.display();
            Failure::refused(format!(
                "the data directory {directory} is held by {holder}: stop the node that runs there first"
            ))
        }
        error => Failure::refused(error.to_string()),
    })?;
    Watched::new(disk, times).map_err(|error| Failure::refused(error.to_string()))
}

/// Whether some file is part of a node's log. Files of other programs may have names that end alike.
fn has_log(directory: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type()?.is_file() {
            continue;
        }
        if is_of_log(&entry.path(), &name) {
            return Ok(true);
        }
    }
    Ok(false)
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

/// Detail of each record in the output.
#[derive(Debug, Clone, Copy)]
struct Detail<'a> {
    full: bool,
    task: Option<&'a Part>,
    json: bool,
}

fn run_inspect(directory: &Path, detail: Detail<'_>) -> Outcome {
    let disk = open(directory, 1)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut records = 0;
    let shown = inspect(&disk, |file, offset, entry| {
        records += u64::from(show(&mut out, (file, offset), &entry, detail).map_err(Stop::Output)?);
        Ok(())
    });
    match shown.and_then(|()| out.flush().map_err(Stop::Output)) {
        Ok(()) => match detail.task.filter(|_| records == 0) {
            Some(task) => {
                Err(Error::new(ErrorCode::NotFound, format!("no record says anything about task {task}")).into())
            }
            None => Ok(ExitCode::SUCCESS),
        },
        // The reader has had enough; that is no failure of the command.
        Err(Stop::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Stop::Output(error)) => Err(Failure::refused(format!("cannot write to stdout: {error}"))),
        Err(Stop::Disk(error)) => Err(Failure::refused(error.to_string())),
    }
}

/// Shows an entry. Returns whether it is a record with the requested content. Damage is always shown, because it may have held the
/// requested content, and so may an unknown record.
fn show(out: &mut impl Write, (file, offset): (&str, u64), entry: &Entry, detail: Detail<'_>) -> std::io::Result<bool> {
    let mut object = entry_object(file, offset, entry);
    let Detail { full, task, json } = detail;
    if !full {
        writeln!(out, "{object}")?;
        return Ok(true);
    }
    let content = match entry {
        Entry::Record { record: Some(record), .. } => match Content::of(record, task) {
            Some(content) => Some(content),
            None => return Ok(false),
        },
        Entry::Record { record: None, .. } | Entry::Damage { .. } => None,
    };
    let says_it = content.is_some();
    if json {
        if let Some(content) = content {
            object["content"] = content.object();
        }
        writeln!(out, "{object}")?;
        return Ok(says_it);
    }
    let lines = content.map_or_else(Vec::new, |content| content.lines());
    let (first, items) = lines.split_first().map_or(("", &[][..]), |(first, items)| (first.as_str(), items));
    writeln!(out, "{}", format!("{} {first}", entry_text(file, offset, entry)).trim_end())?;
    items.iter().try_for_each(|item| writeln!(out, "{item}"))?;
    Ok(says_it)
}

fn kind_text(of: Option<(Owner, Kind)>) -> String {
    of.map_or("unknown".to_owned(), |(_, kind)| kind.to_string())
}

fn entry_text(file: &str, offset: u64, entry: &Entry) -> String {
    match entry {
        Entry::Record { ordinal, of, .. } => {
            let partition = of.and_then(|(owner, _)| partition(owner));
            let partition = partition.map_or_else(String::new, |partition| format!(" of partition {partition}"));
            format!("{file} at byte {offset}: record {ordinal}, {}{partition}", kind_text(*of))
        }
        Entry::Damage { end, known } => format!("{file} at byte {offset} to {end}: {known}"),
    }
}

fn entry_object(file: &str, offset: u64, entry: &Entry) -> Value {
    match entry {
        Entry::Record { ordinal, of, bytes, body_bytes, synced, .. } => json!({
            "file": file, "offset": offset, "ordinal": ordinal,
            "kind": kind_text(*of),
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
    let disk = open(directory, 1)?;
    let mut said = Ok(ExitCode::SUCCESS);
    let verified = verify(&disk, |problem| {
        if said.is_ok() {
            said = say(&if json { problem_object(&problem).to_string() } else { problem_text(&problem) });
        }
    });
    disk.finish();
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

fn run_repair(directory: &Path, dry_run: bool, json: bool) -> Outcome {
    let refused = |error: &dyn std::fmt::Display| Failure::refused(error.to_string());
    let mut disk = open(directory, REPAIR_READS)?;
    let plan = plan_repair(&disk).map_err(|error| refused(&error));
    disk.finish();
    let Plan { steps, losses, changes, left } = plan?;
    let kept = if dry_run || changes.is_empty() { None } else { Some(keep_aside(directory, &disk, &changes)?) };
    if let Some(kept) = &kept {
        changes.apply(&mut disk).map_err(|error| unfinished(directory, kept, &error))?;
    }
    let mut lines = Vec::new();
    for Step { file, known } in &steps {
        lines.push(if json {
            json!({ "file": file, "repair": known }).to_string()
        } else {
            format!("{file}: {known}")
        });
    }
    for Lost { file, offset, loss } in &losses {
        lines.push(if json {
            json!({ "file": file, "offset": offset, "lost": loss_object(loss) }).to_string()
        } else {
            format!("{file} at byte {offset}: {loss}; other replicas give it back")
        });
    }
    let left = left.map(|reason| reason.to_string());
    if let Some(reason) = left.as_ref().filter(|_| !json) {
        lines.push(format!(
            "no more can be won back ({reason}); the node starts without it, and fetches it from other replicas"
        ));
    }
    let kept = kept.map(|kept| kept.display().to_string());
    let effect = kept.as_ref().map(|kept| format!("repaired, and what was there before is kept in {kept}"));
    let summary = if json {
        let (repaired, planned) = (kept.is_some(), !changes.is_empty());
        json!({ "repaired": repaired, "planned": planned, "steps": steps.len(), "losses": losses.len(), "kept": kept, "left": left })
            .to_string()
    } else {
        match kept {
            Some(kept) => format!("repaired in {} steps; what was there before is kept in {kept}", steps.len()),
            None if changes.is_empty() => "nothing to repair: the node starts on this log".into(),
            None => format!("{} steps would be done; nothing was", steps.len()),
        }
    };
    lines.push(summary);
    told(write_line(&lines.join("\n")), effect.as_deref())
}

/// Copies the files to be changed into a new directory inside the data directory.
fn keep_aside(directory: &Path, disk: &Watched<FileDisk>, changes: &Changes) -> Result<PathBuf, Failure> {
    let mut bytes = 0;
    for file in &changes.touched {
        bytes += disk.length(file).map_err(|error| Failure::refused(error.to_string()))?;
    }
    copy_aside(directory, bytes, |kept| keep(changes, disk, kept))
}

/// Creates that directory and has the copy of `bytes` made. Removes a copy that cannot be finished.
fn copy_aside(
    directory: &Path,
    bytes: u64,
    copy: impl FnOnce(&mut FileDisk) -> Result<(), DiskError>,
) -> Result<PathBuf, Failure> {
    let mut candidates = (1..).map(|number: u32| directory.join(format!("before-repair-{number}")));
    let aside = candidates.find(|candidate| !candidate.exists()).expect("some number is free");
    let refused = |cause: &dyn std::fmt::Display, left: &str| {
        let (data, aside) = (directory.display(), aside.display());
        Failure::refused(format!(
            "nothing was repaired: what is to be changed is copied into {aside} first, and that failed: {cause}{left}; see to it that \
             the disk of {data} takes {bytes} bytes more, without removing any file of the log, and repeat the call"
        ))
    };
    std::fs::create_dir(&aside).map_err(|error| refused(&error, ""))?;
    let opened = FileDisk::open(&aside).map_err(|error| match error {
        FileDiskError::Disk { error, .. } => error.to_string(),
        error => error.to_string(),
    });
    let copied = opened.and_then(|mut kept| copy(&mut kept).map_err(|error| error.to_string()));
    match copied {
        Ok(()) => Ok(aside),
        Err(cause) => Err(match std::fs::remove_dir_all(&aside) {
            Ok(()) => refused(&cause, ""),
            Err(_) => refused(&cause, " (what was copied of it can be removed)"),
        }),
    }
}

/// Creates a failure for a repair that ended midway.
fn unfinished(directory: &Path, kept: &Path, error: &DiskError) -> Failure {
    let (data, kept) = (directory.display(), kept.display());
    Failure::refused(format!(
        "the log in {data} is repaired in part only: {error}; what was there before is kept in {kept}; see to it that the disk takes what \
         is written, and repeat the call, which does the rest"
    ))
}

fn problem_text(problem: &Problem) -> String {
    let Problem { file, offset, known, loss } = problem;
    format!("{file} at byte {offset}: {known}; {loss}")
}

fn problem_object(problem: &Problem) -> Value {
    let Problem { file, offset, known, loss } = problem;
    json!({ "file": file, "offset": offset, "problem": known, "lost": loss_object(loss) })
}

fn loss_object(loss: &Loss) -> Value {
    let Loss { ranges, owners, unknown, untold } = loss;
    let owners: Vec<Value> = owners
        .iter()
        .map(|((owner, kind), count)| json!({ "partition": partition(*owner), "kind": kind.to_string(), "count": count }))
        .collect();
    json!({ "ordinals": ranges, "of": owners, "unknown": unknown, "untold": untold })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: on a full disk nothing remains of an unfinished copy, and the message says which disk needs how much room.
    #[test]
    fn a_copy_that_cannot_be_finished_is_taken_away_and_says_what_it_needs() {
        let data = tempfile::tempdir().expect("a directory");
        let file = "0000000000000001.log";
        let copied = copy_aside(data.path(), 12_345, |kept| {
            kept.write(file, 0, b"half")?;
            let cause = "no space left on device".into();
            Err(DiskError { operation: "write", file: file.into(), cause, full: true, lost: true })
        });
        let failure = format!("{:?}", copied.expect_err("the disk is full"));
        let directory = data.path().display();
        for part in [
            "nothing was repaired".to_owned(),
            format!("copied into {directory}/before-repair-1 first"),
            format!("the disk of {directory} takes 12345 bytes more"),
            "no space left on device".to_owned(),
        ] {
            assert!(failure.contains(&part), "{part:?} is not in {failure}");
        }
        assert_eq!(std::fs::read_dir(data.path()).expect("it is there").count(), 0, "nothing is left of it");
        let copied = copy_aside(data.path(), 4, |kept| kept.write(file, 0, b"full"));
        assert_eq!(copied.expect("there is room"), data.path().join("before-repair-1"));
    }
}
