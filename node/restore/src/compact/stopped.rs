//! Compaction of the log of a directory that no node runs on.

use super::{Compacted, Hindrance, When, compact};
use crate::restore;
use norn_storage::disk::Disk;
use norn_storage::{Identity, Log, LogConfig, LogError, Replayed};

/// What the log is opened with. The segment behind the snapshot gets few slots: unused ones count as used space where a setting bounds
/// the directory.
const CONFIG: LogConfig =
    LogConfig { segment_bytes: 1 << 20, compact_bytes: u64::MAX, ahead_bytes: 0, ..LogConfig::DEFAULT };

/// Size of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes of the records, without space written ahead of them.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Records in the segments, and in the snapshot if there is one.
    pub records: u64,
}

impl LogSize {
    fn of(replayed: &Replayed) -> LogSize {
        let Replayed { snapshot_records, snapshot_bytes, records, segments, bytes, .. } = *replayed;
        LogSize { bytes: bytes + snapshot_bytes, segments, records: records + snapshot_records }
    }
}

/// A log that was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shrunk {
    /// What it was.
    pub before: LogSize,
    /// What it is now, read back from the disk.
    pub after: LogSize,
}

/// Why a log is not compacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCompacted {
    /// A start would be refused.
    #[error("no node starts on it: {0}")]
    Unreadable(String),
    /// No snapshot can be written.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    /// The disk failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// It is compacted, and the disk does not give back what was written.
    #[error("it is compacted, and cannot be read back: {0}")]
    Unread(String),
}

/// Compacts the log of a directory that no node runs on, however long it is.
pub fn compact_stopped<D: Disk>(disk: D) -> Result<Shrunk, NotCompacted> {
    let unreadable = NotCompacted::Unreadable;
    let (mut node, mut log, replayed) = restore(disk, CONFIG, |_| {}).map_err(unreadable)?;
    if replayed.lost_records > 0 {
        return Err(Hindrance::Lost(replayed.lost_records).into());
    }
    log.mend().map_err(|error| unreadable(error.to_string()))?;
    if let Compacted::GivenUp(why) = compact(&mut node, &mut log, &replayed, When::Now)? {
        return Err(why.into());
    }
    drop(node);
    let identity = log.identity();
    let after = size(log.into_disk(), identity).map_err(NotCompacted::Unread)?;
    Ok(Shrunk { before: LogSize::of(&replayed), after })
}

/// Reads the log of this node back, each record.
fn size<D: Disk>(disk: D, identity: Identity) -> Result<LogSize, String> {
    let mut log = Log::open(disk, LogConfig::DEFAULT, || identity).map_err(|error| error.to_string())?;
    let replayed = log.read(|replay| replay.whole().map(drop)).map_err(|error| error.to_string())?;
    match replayed.snapshot_records {
        0 => Err("the snapshot is not there".to_owned()),
        _ => Ok(LogSize::of(&replayed)),
    }
}
