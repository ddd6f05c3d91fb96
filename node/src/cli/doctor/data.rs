//! Checks of the data directory: owner, room, sync latency, and the heads of the log.

use super::sync_latency::{Latency, SYNCS, measure};
use norn_cli::doctor::Report;
use norn_client::api::{CheckOutcome, Finding};
use norn_host::disk::{Holder, ReadOnlyDisk, refuse_foreign};
use norn_host::replay::OpenError;
use norn_model::host::{Room, SLOW_US_MIN};
use norn_node::runtime::settings::Effective;
use norn_storage::disk::{Disk, DiskError};
use norn_storage::recovery::survey;
use norn_storage::space::Space;
use norn_storage::verify::{Head, heads};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Room is warned about below this many times the reserve.
const RESERVES_AMPLE: u64 = 6;
/// Longest time for all syncs together. A disk that takes longer is not waited for.
const SYNCS_TIMEOUT: Duration = Duration::from_secs(15);
/// Worst sync that is no reason for a warning: a second is as long as an election takes.
const WORST_SYNC_MAX: Duration = Duration::from_millis(500);
/// Faulty heads that are named.
const NAMED_MAX: usize = 5;
/// Permission to write for all users.
const OTHERS_WRITE: u32 = 0o002;

/// Makes the checks. Returns the heads of the log, as far as they could be read.
pub async fn examine(
    directory: &Path,
    effective: &Effective,
    holder: Option<Holder>,
    report: &mut Report,
) -> Vec<Head> {
    let permitted = permissions(directory, holder);
    let is_usable = permitted.outcome != CheckOutcome::Fail;
    report.tell([permitted]);
    let is_there = directory.is_dir();
    report.tell([room(directory, effective)]);
    let latency = match (is_there, is_usable) {
        (true, true) => sync_latency(directory).await,
        (false, true) => Finding::not_checked(
            "sync_latency",
            "the data directory is not there",
            "make it, owned by the user of the node, and look again",
        ),
        (_, false) => Finding::not_checked("sync_latency", "the data directory is not usable", "see `data_directory`"),
    };
    let (log, heads) = match is_there {
        true => log(directory, holder.is_some()),
        false => (Finding::ok("log", "none yet: the first start draws the node's identity"), Vec::new()),
    };
    report.tell([latency, log]);
    heads
}

/// Checks that the directory is a node's, and that this user may write there.
fn permissions(directory: &Path, holder: Option<Holder>) -> Finding<'static> {
    const CHECK: &str = "data_directory";
    let shown = directory.display();
    let may = |path: &Path| {
        accessat(CWD, path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    let metadata = match fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = directory.ancestors().skip(1).find(|parent| parent.is_dir()).unwrap_or(Path::new("."));
            return match may(parent) {
                true => {
                    Finding::warn(CHECK, format!("{shown} is not there"), "`norn start` makes it, if the name is right")
                }
                false => {
                    let seen = format!("{shown} is not there, and user {} may not make it", geteuid().as_raw());
                    Finding::fail(
                        CHECK,
                        seen,
                        "make it, and give it to the user of the node (`install -d -o USER -m 700 DIR`)",
                    )
                }
            };
        }
        Err(error) => return Finding::fail(CHECK, format!("{shown}: {error}"), "run this as the user of the node"),
    };
    if !metadata.is_dir() {
        return Finding::fail(CHECK, format!("{shown} is no directory"), "name another with --data");
    }
    if let Err(error) = refuse_foreign(directory) {
        return Finding::fail(CHECK, error.to_string(), "name the data directory of the node with --data");
    }
    let (user, owner, mode) = (geteuid().as_raw(), metadata.uid(), metadata.mode() & 0o777);
    if !may(directory) {
        let seen = format!("{shown} is of user {owner} (mode {mode:03o}), and user {user} may not write there");
        return match holder {
            Some(_) => Finding::not_checked(CHECK, &seen, "a node runs there; run this as its user"),
            None => Finding::fail(
                CHECK,
                seen,
                "run this as the user of the node, or give it the directory (`chown -R USER DIR`)",
            ),
        };
    }
    let strangers = of_others(directory, owner);
    if !strangers.is_empty() {
        let seen = format!("{shown} is of user {owner}, and {} of others", strangers.join(", "));
        return Finding::warn(
            CHECK,
            seen,
            "give all files to the user of the node (`chown -R USER DIR`), which may be unable to write them",
        );
    }
    if mode & OTHERS_WRITE != 0 {
        let seen = format!("{shown} can be written by all users (mode {mode:03o})");
        return Finding::warn(CHECK, seen, format!("`chmod 700 {shown}`: it holds the payloads of all tasks here"));
    }
    let held = match holder.and_then(|holder| holder.process) {
        Some(process) => format!("; process {process} runs there"),
        None => String::new(),
    };
    Finding::ok(CHECK, format!("{shown} is of user {owner} (mode {mode:03o}){held}"))
}

/// Some files in the directory that another user owns.
fn of_others(directory: &Path, owner: u32) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let strange =
        entries.filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.uid() != owner));
    strange.take(NAMED_MAX).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Checks the room as a node does, where the directory is or will be.
fn room(directory: &Path, effective: &Effective) -> Finding<'static> {
    const CHECK: &str = "room";
    const ADVICE: &str =
        "make the disk larger, or move files of other programs away; remove no file of the data directory";
    let judged = || -> Result<Finding<'static>, DiskError> {
        let parent = directory.ancestors().find(|parent| parent.is_dir()).unwrap_or(Path::new("."));
        let is_there = parent == directory;
        let (log, bytes_max) = match (effective.log(), effective.disk_bytes_max()) {
            (Ok(log), Ok(bytes_max)) => (log, bytes_max.filter(|_| is_there)),
            (Err(error), _) | (_, Err(error)) => {
                return Ok(Finding::not_checked(CHECK, &error.to_string(), "see `settings`"));
            }
        };
        let disk = ReadOnlyDisk::open(parent, bytes_max)?;
        let space = Space::new(log.reserve_bytes);
        let obsolete = survey(&disk).map(|survey| survey.obsolete).unwrap_or_default();
        let needless_bytes = obsolete.iter().filter_map(|file| disk.length(file).ok()).sum();
        if let Some(shortage) = space.shortage(&disk, needless_bytes)? {
            let error = OpenError::NoRoom(directory.display().to_string(), disk.is_bounded(), shortage);
            return Ok(Finding::fail(CHECK, error.to_string(), ADVICE));
        }
        let free_bytes = disk.space()?;
        let whose = if disk.is_bounded() { " of `disk_bytes_max`" } else { "" };
        let reserve_bytes = log.reserve_bytes;
        let seen = format!("{free_bytes} bytes{whose} are free, beside `reserve_bytes` of {reserve_bytes}");
        Ok(match space.foresee(&disk)? {
            Room::Ample if free_bytes < reserve_bytes.saturating_mul(RESERVES_AMPLE) => {
                Finding::warn(CHECK, seen, ADVICE)
            }
            Room::Ample => Finding::ok(CHECK, seen),
            Room::Short | Room::Out => Finding::fail(CHECK, format!("{seen}: new tasks are refused"), ADVICE),
        })
    };
    judged().unwrap_or_else(|error| {
        Finding::not_checked(CHECK, &format!("{}: {error}", directory.display()), "run this as the user of the node")
    })
}

async fn sync_latency(directory: &Path) -> Finding<'static> {
    const CHECK: &str = "sync_latency";
    let place = directory.to_owned();
    let measuring = tokio::task::spawn_blocking(move || measure(&place));
    match tokio::time::timeout(SYNCS_TIMEOUT, measuring).await {
        Err(_) => {
            let seen = format!("{SYNCS} syncs are not done within {SYNCS_TIMEOUT:?}");
            Finding::fail(CHECK, seen, "the disk hangs or is overloaded: see `dmesg`, `iostat -x 1` and `smartctl`")
        }
        Ok(Ok(Ok(latency))) => judge_latency(latency),
        Ok(Ok(Err(error))) => {
            let why = format!("{}: {error}", directory.display());
            Finding::not_checked(CHECK, &why, "see `data_directory` and `room`")
        }
        Ok(Err(error)) => Finding::not_checked(CHECK, &error.to_string(), "look again"),
    }
}

fn judge_latency(latency: Latency) -> Finding<'static> {
    const CHECK: &str = "sync_latency";
    const ADVICE: &str = "each strict write waits for a sync: use a disk with a cache that survives power loss, alone for the log; \
                          see `iostat -x 1` for what else writes";
    let Latency { median, worst } = latency;
    let seen = format!("{SYNCS} syncs: median {:.1}ms, worst {:.1}ms", milliseconds(median), milliseconds(worst));
    let slow = Duration::from_micros(SLOW_US_MIN);
    if median >= slow || worst > WORST_SYNC_MAX {
        return Finding::warn(CHECK, seen, ADVICE);
    }
    Finding::ok(CHECK, seen)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// Reads the heads of the log's files. The order of files is judged only while no node removes some.
fn log(directory: &Path, is_held: bool) -> (Finding<'static>, Vec<Head>) {
    const CHECK: &str = "log";
    let verify = format!(
        "stop the node, and see `norn log verify {0}` and `norn log repair {0} --dry-run`",
        directory.display()
    );
    let read = ReadOnlyDisk::open(directory, None).and_then(|disk| Ok((heads(&disk)?, disk)));
    let (heads, disk) = match read {
        Ok(read) => read,
        Err(error) => {
            let why = format!("{}: {error}", directory.display());
            return (Finding::not_checked(CHECK, &why, "run this as the user of the node"), Vec::new());
        }
    };
    let fault = |head: &Head| head.header.as_ref().err().map(|fault| format!("{}: {fault}", head.file));
    let mut faults: Vec<String> = heads.iter().filter_map(fault).collect();
    if !is_held && let Err(error) = survey(&disk) {
        faults.push(error.to_string());
    }
    let whole = heads.iter().filter_map(|head| head.header.as_ref().ok());
    let nodes: BTreeSet<_> = whole.map(|header| header.node).collect();
    if nodes.len() > 1 {
        faults.push(format!("the files are of {} nodes", nodes.len()));
    }
    let count = heads.len();
    let bytes: u64 = heads.iter().map(|head| head.bytes).sum();
    let finding = match (faults.is_empty(), nodes.first()) {
        (false, _) => {
            let more = faults.len().saturating_sub(NAMED_MAX);
            faults.truncate(NAMED_MAX);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            Finding::fail(CHECK, format!("{}{more}", faults.join("; ")), verify)
        }
        (true, None) => Finding::ok(CHECK, "none yet: the first start draws the node's identity"),
        (true, Some(node)) => {
            let records = "their records were not read: `norn log verify` does, on a stopped node";
            Finding::ok(CHECK, format!("{count} files of node {node}, {bytes} bytes, with whole heads; {records}"))
        }
    };
    (finding, heads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_syncs_are_warned_about() {
        let outcome = |median_ms, worst_ms| {
            let [median, worst] = [median_ms, worst_ms].map(Duration::from_millis);
            judge_latency(Latency { median, worst }).outcome
        };
        let outcomes = [outcome(2, 30), outcome(60, 70), outcome(2, 900)];
        assert_eq!(outcomes, [CheckOutcome::Ok, CheckOutcome::Warn, CheckOutcome::Warn]);
    }
}
