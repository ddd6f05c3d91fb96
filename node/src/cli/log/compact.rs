//! `norn log compact`: replaces the log of a stopped node by a snapshot of what it says.

use super::super::failure::{Failure, Outcome};
use super::super::{told, write_line};
use super::open;
use norn_restore::{Hindrance, LogSize, NotCompacted, Shrunk, compact_stopped};
use norn_storage::SnapshotError;
use serde_json::{Value, json};
use std::path::Path;

/// Number of times that the log is read: as a start does, and for payloads that are not kept in memory.
const READS: u64 = 2;

/// Runs the command.
pub fn run(directory: &Path, json: bool) -> Outcome {
    let disk = open(directory, READS)?;
    let Shrunk { before, after } = compact_stopped(disk).map_err(|why| refusal(directory, &why))?;
    let line = if json {
        json!({ "compacted": true, "before": size_object(before), "after": size_object(after) }).to_string()
    } else {
        format!("compacted: it was {}, and is {}", size_text(before), size_text(after))
    };
    told(write_line(&line), Some("the log is compacted"))
}

fn size_object(size: LogSize) -> Value {
    let LogSize { bytes, segments, records } = size;
    json!({ "bytes": bytes, "segments": segments, "records": records })
}

fn size_text(size: LogSize) -> String {
    let LogSize { bytes, segments, records } = size;
    let plural = if segments == 1 { "" } else { "s" };
    format!("{bytes} bytes with {records} records in {segments} segment{plural}")
}

/// Says why the log is as it was, and what can be done.
fn refusal(directory: &Path, why: &NotCompacted) -> Failure {
    let place = directory.display();
    let advice = match why {
        NotCompacted::Unread(_) => {
            return Failure::refused(format!("the log in {place}: {why}; `norn log verify` names all that is wrong"));
        }
        NotCompacted::Unreadable(_) => {
            "`norn log verify` names all that is wrong, and `norn log repair --dry-run` says what can be mended"
        }
        NotCompacted::Hindered(Hindrance::Lost(_)) => {
            "start the node: it fetches what they said from other replicas, and compacts the log while it runs"
        }
        NotCompacted::Hindered(Hindrance::Snapshot(SnapshotError::BodiesLost { .. })) => {
            "start the node: other replicas give them back"
        }
        NotCompacted::Hindered(Hindrance::Snapshot(SnapshotError::RecordTooLarge(_))) => {
            "start the node on it as it is"
        }
        NotCompacted::Hindered(Hindrance::Snapshot(SnapshotError::NoRoom | SnapshotError::Disk(_)))
        | NotCompacted::Log(_) => {
            "see to it that the disk is well and has room for as much as is kept of tasks, without removing a file of the directory, and \
             repeat the call"
        }
    };
    Failure::refused(format!("the log in {place} is not compacted, and lacks nothing for it: {why}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each refusal names the directory, the cause and the next step.
    #[test]
    fn a_refusal_says_where_why_and_what_to_do() {
        let snapshot = |error| NotCompacted::Hindered(Hindrance::Snapshot(error));
        for (why, parts) in [
            (NotCompacted::Unreadable("a vote is lost".into()), ["a vote is lost", "norn log verify"]),
            (NotCompacted::Hindered(Hindrance::Lost(3)), ["3 records", "start the node"]),
            (snapshot(SnapshotError::NoRoom), ["no room for it", "without removing a file"]),
            (
                snapshot(SnapshotError::BodiesLost { count: 2, last: Vec::new() }),
                ["bodies of 2 tasks", "start the node"],
            ),
        ] {
            let failure = refusal(Path::new("/data"), &why);
            let message = &failure.error().message;
            for part in parts.iter().chain(&["the log in /data is not compacted"]) {
                assert!(message.contains(part), "{part:?} is not in {message}");
            }
        }
    }
}
