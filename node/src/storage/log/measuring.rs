//! What a snapshot would take, where there may be no room for it.
//!
//! A log may be full of what has ended. Then what lives is small, and a snapshot of it makes room where nothing else does. How
//! small it is says only the state itself: its parts are counted until they are too many, and nothing is written or read. After
//! that has been in vain the next time is later, and later still: the state is to change first, which the log does not see.

use super::Log;
use super::compaction::Saved;
use crate::protocol::Gap;
use crate::protocol::record::Record;
use crate::protocol::task::Slot;
use crate::storage::disk::{Disk, DiskError};
use crate::storage::segment::HEADER_BYTES;
use crate::storage::snapshot::SnapshotError;
use norn_wire::PartitionId;

/// The next attempt after one in vain is made so much later, ...
const WAIT_US_MIN: u64 = 1_000_000;
/// ... and the further ones twice as late each, up to this.
const WAIT_US_MAX: u64 = 32_000_000;
/// As long as the disk is not short, the log must also have grown by such a part.
const GROWN_PARTS: u64 = 8;
/// What a snapshot has of a body besides the bytes that are counted: a name of a queue, lengths.
const GAP_BYTES: u64 = 512;
/// What a snapshot says at its end of a partition, in two copies, and so much besides.
const PLACE_BYTES: u64 = 128;
/// What a record has of a task besides its facts: its id, tags, lengths.
const TASK_BYTES: u64 = 128;

/// When the state is measured, and how far that has come.
#[derive(Debug, Default)]
pub(super) struct Measuring {
    /// Bytes so far, as long as parts come.
    bytes: Option<u64>,
    /// Whose parts come now.
    partition: Option<PartitionId>,
    /// There is room: the snapshot is begun next.
    fits: bool,
    pub now_us: u64,
    /// Not before that, after an attempt in vain.
    retry_us: u64,
    wait_us: u64,
    /// How long the log must be then, if the disk is not short.
    retry_bytes: u64,
}

impl Measuring {
    /// Nothing was in vain.
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

    /// A snapshot was found to have room, and is not begun yet.
    pub fn fits(&self) -> bool {
        self.fits
    }

    /// Whether a snapshot was found to have room.
    pub fn take_fit(&mut self) -> bool {
        std::mem::take(&mut self.fits)
    }

    /// An attempt was in vain.
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
        // Results and log entries that are away are counted with their tasks.
        let bodies = gaps.iter().filter(|gap| gap.wanted.slot == Slot::Spec);
        let mut bytes = before + bodies.map(|gap| u64::from(gap.wanted.bytes) + GAP_BYTES).sum::<u64>();
        let mut frame = Vec::new();
        for record in records {
            let partition = record.partition();
            if partition.is_some() && partition != self.compaction.measuring.partition {
                self.compaction.measuring.partition = partition;
                bytes += PLACE_BYTES;
            }
            // With gaps in it, it cannot be encoded.
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

    /// Whether a snapshot of so many bytes makes as much room as it takes; where the disk is short, so that it is small, half of
    /// the reserve is enough.
    fn is_worth(&self, bytes: u64) -> bool {
        let least_bytes = if self.is_short() { bytes.min(self.config.reserve_bytes / 2) } else { bytes };
        self.is_wanted() || self.log_bytes() >= bytes.saturating_add(least_bytes)
    }
}
