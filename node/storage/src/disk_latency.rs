//! Disk latency meter: turns measured syncs into reports for the core; the same for every host. Reads no clock; the host passes in
//! the measurements.

use norn_model::host::{DiskReport, Room, SLOW_US_MIN};

/// Shortest interval of reports, unless the disk space state changes.
const TOLD_US_MIN: u64 = 1_000_000;
/// Time without a sync after which the latency counts as unknown.
const STALE_US: u64 = 10_000_000;
/// The latest sync is one part in this many of the average.
const LATEST_PARTS: u64 = 4;

/// Latency of one process's syncs, and the last report.
#[derive(Debug, Default)]
pub struct DiskLatencyMeter {
    average_us: u64,
    synced_us: u64,
    told: DiskReport,
    told_us: u64,
}

impl DiskLatencyMeter {
    /// Records the duration of a sync.
    pub fn synced(&mut self, now_us: u64, length_us: u64) {
        let length_us = length_us.max(1);
        self.average_us = match self.average_us {
            0 => length_us,
            before => (before * (LATEST_PARTS - 1) + length_us) / LATEST_PARTS,
        };
        self.synced_us = now_us;
    }

    /// Whether the node waits for an improvement, which must be reported even if nothing is written meanwhile.
    pub fn is_watched(&self) -> bool {
        self.told.room != Room::Ample || self.told.sync_us >= SLOW_US_MIN
    }

    /// The report that is due now, if any.
    pub fn report(&mut self, now_us: u64, room: Room) -> Option<DiskReport> {
        if now_us >= self.synced_us + STALE_US {
            self.average_us = 0;
        }
        let report = DiskReport { room, sync_us: self.average_us, ..DiskReport::default() };
        let due = report.room != self.told.room || now_us >= self.told_us + TOLD_US_MIN;
        if report == self.told || !due {
            return None;
        }
        (self.told, self.told_us) = (report, now_us);
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_told_once_and_goes_stale() {
        let mut disk_latency = DiskLatencyMeter::default();
        assert_eq!(disk_latency.report(5, Room::Ample), None);
        disk_latency.synced(1_000_000, 800);
        assert_eq!(
            disk_latency.report(1_000_000, Room::Ample),
            Some(DiskReport { sync_us: 800, ..DiskReport::default() })
        );
        disk_latency.synced(1_000_001, 1_200);
        assert_eq!(disk_latency.report(1_000_001, Room::Ample), None, "soon enough");
        assert_eq!(disk_latency.report(1_000_002, Room::Short).map(|report| report.room), Some(Room::Short));
        assert_eq!(disk_latency.report(2_000_002, Room::Short), None, "nothing new");
        disk_latency.synced(2_000_003, 500);
        assert_eq!(disk_latency.report(2_000_003, Room::Short).map(|report| report.sync_us), Some(800));
        assert_eq!(disk_latency.report(99_000_000, Room::Ample), Some(DiskReport::default()));
    }
}
