//! Measuring the size of a snapshot before it is written, for when the disk may have no space for it.
//!
//! A log may be full of ended tasks. Then the live state is small, and a snapshot of it frees space where nothing else does. Only the
//! state itself shows how small it is: its parts are counted until they are too many, and nothing is written or read. After a
//! fruitless attempt the next one comes later, with exponential backoff: the state must change first, and the log does not see that.

use super::Log;
use super::compaction::Saved;
use crate::disk::{Disk, DiskError};
use crate::segment::HEADER_BYTES;
use crate::snapshot::SnapshotError;
use norn_model::record::Record;
use norn_model::snapshot::Gap;
use norn_model::task::Slot;
use norn_wire::PartitionId;

/// Shortest wait after a fruitless attempt. Each further wait is twice as long, ...
const WAIT_US_MIN: u64 = 1_000_000;
/// ... up to this.
const WAIT_US_MAX: u64 = 32_000_000;
/// Unless the disk is short of space, the log must also have grown by one part in this many.
const GROWN_PARTS: u64 = 8;
/// Bytes that a snapshot has for a body besides the counted bytes: queue name, lengths.
const GAP_BYTES: u64 = 512;
/// Bytes that the end record of a snapshot has for a partition, in two copies, with a margin.
const PLACE_BYTES: u64 = 128;
/// Bytes that a record has for a task besides its facts: id, tags, lengths.
const TASK_BYTES: u64 = 128;

/// Schedule and progress of the measurement.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// Bytes so far, while parts arrive.
    bytes: Option<u64>,
    /// Partition whose parts arrive now.
    partition: Option<PartitionId>,
    /// There is enough space: the snapshot is begun next.
    fits: bool,
    pub now_us: u64,
    /// Earliest time of the next attempt after a fruitless one.
    retry_us: u64,
    wait_us: u64,
    /// Log size that the next attempt needs, if the disk is not short of space.
    retry_bytes: u64,
}

impl Measuring {
    /// A state without fruitless attempts.
    pub fn at(now_us: u64) -> Measuring {
        Measuring { now_us, ..Measuring::default() }
    }

    pub fn is_under_way(&self) -> bool {
        self.bytes.is_some()
    }

    pub fn is_due(&self, log_bytes: u64, short: bool) -> bool {
        self.now_us >= self.retry_us && (short || log_bytes >= self.retry_bytes)
    }

    pub fn begin(&mut self) {
        self.bytes = Some(HEADER_BYTES as u64 + PLACE_BYTES);
        self.partition = None;
    }

    /// Whether a snapshot was found to fit and is not begun yet.
    pub fn fits(&self) -> bool {
        self.fits
    }

    /// As [`Measuring::fits`], and clears the flag.
    pub fn take_fit(&mut self) -> bool {
        std::mem::take(&mut self.fits)
    }

    /// Records a fruitless attempt, and schedules the next.
    pub fn in_vain(&mut self, log_bytes: u64) {
        self.wait_us = (2 * self.wait_us).clamp(WAIT_US_MIN, WAIT_US_MAX);
        self.retry_us = self.now_us.saturating_add(self.wait_us);
        self.retry_bytes = log_bytes.saturating_add(log_bytes / GROWN_PARTS);
    }
}

impl<D: Disk> Log<D> {
    /// Counts a part of the state.
    pub(super) fn measure(&mut self, records: &[Record], gaps: &[Gap], last: bool) -> Result<Saved, DiskError> {
        let before = self.compaction.measuring.bytes.take().expect("it was begun");
        // Results and log entries that are not in memory are counted with their tasks.
        let bodies = gaps.iter().filter(|gap| gap.wanted.slot == Slot::Spec);
        let mut bytes = before + bodies.map(|gap| u64::from(gap.wanted.bytes) + GAP_BYTES).sum::<u64>();
        let mut frame = Vec::new();
        for record in records {
            let partition = record.partition();
            if partition.is_some() && partition != self.compaction.measuring.partition {
                self.compaction.measuring.partition = partition;
                bytes += PLACE_BYTES;
            }
            // A record with gaps cannot be encoded, so its size is estimated.
            if let Record::Facts { items, .. } = record {
                bytes += items.iter().map(|(_, task)| task.size_bytes() as u64 + TASK_BYTES).sum::<u64>();
                continue;
            }
            if let Err(size_bytes) = self.encoder.encode(1, 0, record, &mut frame) {
                self.compaction.measuring.in_vain(self.log_bytes());
                return Ok(Saved::GivenUp(SnapshotError::RecordTooLarge(size_bytes)));
            }
            bytes += frame.len() as u64;
            frame.clear();
        }
        if !self.is_worth(bytes) || !self.space.fits(&mut self.disk, bytes)? {
            self.compaction.measuring.in_vain(self.log_bytes());
            return Ok(Saved::Measured);
        }
        if !last {
            self.compaction.measuring.bytes = Some(bytes);
            return Ok(Saved::Part);
        }
        self.space.make_way(&mut self.disk, bytes)?;
        self.compaction.measuring.fits = true;
        Ok(Saved::Measured)
    }

    /// Whether a snapshot of this size frees at least as much space as it takes. If the disk is short of space, and the snapshot
    /// therefore small, freeing half of the reserve is enough.
    fn is_worth(&self, bytes: u64) -> bool {
        let least_bytes = if self.is_short() { bytes.min(self.config.reserve_bytes / 2) } else { bytes };
        self.is_wanted() || self.log_bytes() >= bytes.saturating_add(least_bytes)
    }
}
