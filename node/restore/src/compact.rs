//! Compaction of a log that nothing else uses: before a node serves, or while none runs on it.
//!
//! It takes the same steps as beside a running node, one after the other: [`Log::upkeep`], the parts of [`Node::save`], the new places.
//! So at any moment a crash leaves the old files or the snapshot, each of them the whole state.

pub mod stopped;

use norn_engine::{Cursor, Node};
use norn_storage::disk::Disk;
use norn_storage::{Log, LogError, Replayed, Saved, SnapshotError, Upkeep};

/// Bytes of state in one part of a snapshot: as many are copied between two events of a node, and written between two syncs.
pub const PART_BYTES: usize = 256 << 10;

/// When a log is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// If its records take more than half of what a running node would let them become.
    Long,
    /// However long it is.
    Now,
}

/// What became of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compacted {
    /// The log is not long, and nothing was done.
    Short,
    /// A snapshot stands for the log before it.
    Whole,
    /// There is no snapshot, and the log has lost nothing.
    GivenUp(Hindrance),
}

/// Why there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// A snapshot now would stand for a log that has lost something, before the node has noted that.
    #[error("{0} records of the log are lost, which a start has to note first")]
    Lost(u64),
    /// It cannot be written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// Compacts the log of a node that was restored and not started. The log is mended. An error is one of the log itself, which is of no
/// further use in this process; its files are whole.
pub fn compact<D: Disk>(
    node: &mut Node,
    log: &mut Log<D>,
    replayed: &Replayed,
    when: When,
) -> Result<Compacted, LogError> {
    if when == When::Long && !log.is_long_at_start() {
        return Ok(Compacted::Short);
    }
    if replayed.lost_records > 0 {
        return Ok(Compacted::GivenUp(Hindrance::Lost(replayed.lost_records)));
    }
    // The snapshot begins with a new segment, and so with records that no peer has heard of.
    let first = node.begin_compaction(log.synced());
    log.append(&[first])?;
    log.sync()?;
    if when == When::Now {
        log.want_snapshot(None);
    }
    let before = log.stats().snapshots;
    let failed = take_steps(node, log)?;
    log.sync()?;
    if log.stats().snapshots > before {
        return Ok(Compacted::Whole);
    }
    log.forget_attempt();
    Ok(Compacted::GivenUp(Hindrance::Snapshot(failed.unwrap_or(SnapshotError::NoRoom))))
}

/// Does the log's upkeep until nothing is left to do. Returns why a snapshot was given up.
fn take_steps<D: Disk>(node: &mut Node, log: &mut Log<D>) -> Result<Option<SnapshotError>, LogError> {
    let mut failed = None;
    loop {
        match log.upkeep()? {
            Upkeep::Rest => return Ok(failed),
            Upkeep::Again => {}
            Upkeep::Moved(ranges) => node.on_moved(&ranges),
            Upkeep::GivenUp(error) => failed = Some(error),
            Upkeep::Begin => failed = write(node, log)?.or(failed),
        }
    }
}

/// Hands all parts of the state to the log.
fn write<D: Disk>(node: &Node, log: &mut Log<D>) -> Result<Option<SnapshotError>, LogError> {
    let mut cursor = Cursor::default();
    loop {
        match log.save_part(node.save(&mut cursor, PART_BYTES))? {
            Saved::Part | Saved::Lacks(_) => {}
            Saved::Whole | Saved::Measured => return Ok(None),
            Saved::GivenUp(error) => return Ok(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests;
