//! Measuring the size of a snapshot before it is written, for when the disk may have no space for it.
//!
//! A log may be full of ended tasks. Then the live state is small, and a snapshot of it frees space where nothing else does. Only the
//! state itself shows how small it is: its parts are counted until they are too many, and nothing is written or read. The log does not
//! see when the state has become smaller, so it measures again and again, and waits in between as long as the counted bytes cost.

use super::Log;
use super::compaction::Saved;
use crate::disk::{Disk, DiskError};
use crate::segment::HEADER_BYTES;
use crate::snapshot::SnapshotError;
use norn_model::record::Record;
use norn_model::snapshot::Gap;
use norn_model::task::Slot;
use norn_wire::PartitionId;

/// Shortest and longest wait after a fruitless attempt.
const WAIT_US_MIN: u64 = 1_000_000;
const WAIT_US_MAX: u64 = 32_000_000;
/// Bytes counted in a second of waiting: composing them takes a few hundredths of that second.
const COUNTED_BYTES_PER_S: u64 = 16 << 20;
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
    /// Wait after the last snapshot that failed; 0 for none since the last whole one.
    failed_us: u64,
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

    /// Schedules the next attempt after one that counted these bytes in vain.
    fn in_vain(&mut self, counted_bytes: u64, log_bytes: u64) {
        let cost_us = counted_bytes.saturating_mul(1_000_000) / COUNTED_BYTES_PER_S;
        self.put_off(cost_us.clamp(WAIT_US_MIN, WAIT_US_MAX), log_bytes);
    }

    /// Schedules the next attempt after a snapshot that failed, with exponential backoff: its bytes were written in vain.
    pub fn failed(&mut self, log_bytes: u64) {
        self.failed_us = (2 * self.failed_us).clamp(WAIT_US_MIN, WAIT_US_MAX);
        self.put_off(self.failed_us, log_bytes);
    }

    fn put_off(&mut self, wait_us: u64, log_bytes: u64) {
        self.retry_us = self.now_us.saturating_add(wait_us);
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
                self.compaction.measuring.failed(self.log_bytes());
                return Ok(Saved::GivenUp(SnapshotError::RecordTooLarge(size_bytes)));
            }
            bytes += frame.len() as u64;
            frame.clear();
        }
        // The log continues in a new segment meanwhile.
        let needed_bytes = bytes.saturating_add(self.next_own_bytes()?);
        if !self.is_worth(bytes) || !self.space.fits(&mut self.disk, needed_bytes)? {
            self.compaction.measuring.in_vain(bytes, self.log_bytes());
            return Ok(Saved::Measured);
        }
        if !last {
            self.compaction.measuring.bytes = Some(bytes);
            return Ok(Saved::Part);
        }
        self.space.make_way(&mut self.disk, needed_bytes)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits after each of these calls, in seconds.
    fn waits_s(calls: &[fn(&mut Measuring)]) -> Vec<u64> {
        let mut measuring = Measuring::at(5_000_000);
        calls
            .iter()
            .map(|call| {
                call(&mut measuring);
                (measuring.retry_us - measuring.now_us) / 1_000_000
            })
            .collect()
    }

    #[test]
    fn what_is_counted_in_vain_is_waited_for() {
        let counted: [fn(&mut Measuring); 4] = [
            |measuring| measuring.in_vain(0, 0),
            |measuring| measuring.in_vain(8 * COUNTED_BYTES_PER_S, 0),
            |measuring| measuring.in_vain(u64::MAX, 0),
            |measuring| measuring.in_vain(COUNTED_BYTES_PER_S, 0),
        ];
        assert_eq!(waits_s(&counted), [1, 8, 32, 1]);
    }

    #[test]
    fn a_snapshot_that_fails_again_is_tried_ever_more_rarely() {
        let failed: fn(&mut Measuring) = |measuring| measuring.failed(0);
        assert_eq!(waits_s(&[failed; 7]), [1, 2, 4, 8, 16, 32, 32]);
    }
}
