//! Property `log`, where disks fill up: a log that is far longer than its live data does not stay so on a disk that has room for the
//! live data.
//!
//! The live data is counted as more than a snapshot takes, so that only what is beyond doubt is held against a node.

use crate::adapter;
use crate::world::World;
use norn_engine::Cursor;
use norn_model::host::Room;
use norn_model::record::Record;
use norn_storage::RESERVE;
use norn_storage::disk::Disk;

/// Bytes counted for a task beside its encoding: more than the log counts where it measures.
const TASK_BYTES: u64 = 200;
/// The same for a body that is not in memory.
const BODY_BYTES: u64 = 600;
/// The same for any record: its frame, and what the end of a snapshot says of it.
const RECORD_BYTES: u64 = 200;
/// Bytes that the log may write while a snapshot is written, and the header of a segment.
const MARGIN_BYTES: u64 = 4_000;
/// One in this many bytes of a segment is for heads.
const HEADS_PART: u64 = 16;
/// Time for which upkeep may do nothing, beside the wait that earlier vain attempts have earned.
const REST_US: u64 = 3_000_000;
/// Most time that counts between two calls of upkeep: the process may have stood still.
const GAP_US_MAX: u64 = 300_000;
/// Least time between two counts of the live data.
const LOOK_US: u64 = 250_000;

/// How long a process has left its disk full without need.
#[derive(Debug, Default)]
pub struct Rest {
    started_us: u64,
    upkeep_us: u64,
    /// The log has asked for the state.
    saving: bool,
    looked_us: u64,
    /// Since when there is room for the live data.
    since_us: Option<u64>,
    rested_us: u64,
}

impl Rest {
    /// State of a process that starts.
    pub fn at(now_us: u64) -> Rest {
        Rest { started_us: now_us, upkeep_us: now_us, ..Rest::default() }
    }
}

impl World {
    /// Notes that upkeep has found nothing to do.
    pub fn upkeep_rests(&mut self, node: usize) {
        let now_us = self.now_us;
        let Some(running) = &mut self.nodes[node].running else { return };
        let rest = &mut running.rest;
        let gap_us = (now_us - rest.upkeep_us).min(GAP_US_MAX);
        rest.upkeep_us = now_us;
        if rest.saving {
            return;
        }
        if running.log.room() == Room::Ample {
            rest.since_us = None;
            return;
        }
        if rest.since_us.is_some() {
            rest.rested_us += gap_us;
        }
        if now_us < rest.looked_us + LOOK_US {
            return;
        }
        rest.looked_us = now_us;
        let must = self.must_make_room(node);
        let Some(running) = &mut self.nodes[node].running else { return };
        let rest = &mut running.rest;
        if !must {
            (rest.since_us, rest.rested_us) = (None, 0);
            return;
        }
        let since_us = *rest.since_us.get_or_insert(now_us);
        // Each wait is as long as all those before it.
        if rest.rested_us > since_us - rest.started_us + REST_US {
            let stats = running.log.stats();
            let what = format!("there is room for what lives, and the log is not made shorter: {stats:?}");
            self.fail("log", format!("node {node}: {what}"));
        }
    }

    /// Notes that upkeep has asked for the state, or that this is over.
    pub fn upkeep_saves(&mut self, node: usize, saving: bool) {
        if let Some(running) = &mut self.nodes[node].running {
            running.rest.saving = saving;
        }
    }

    /// Whether a snapshot frees far more than it takes, and has room.
    fn must_make_room(&mut self, node: usize) -> bool {
        let Some(running) = &self.nodes[node].running else { return false };
        let (stats, reserve_bytes) = (running.log.stats(), self.options.reserve_bytes);
        // Without a reserve no shortage is reported to a node. One that is out of room stops.
        if reserve_bytes == 0 || running.log.room() != Room::Short || self.may_be_damaged(node) {
            return false;
        }
        let log_bytes = stats.history_bytes + stats.snapshot_bytes;
        let (live_bytes, fits) = (self.live_bytes(node), self.has_room_for_what_lives(node));
        self.line(format_args!("n{node} is short: {live_bytes} bytes live of {log_bytes}, room for them: {fits}"));
        log_bytes > 2 * reserve_bytes && log_bytes > live_bytes + live_bytes.min(reserve_bytes) + MARGIN_BYTES && fits
    }

    /// Whether a snapshot surely has room, counting the reserve, without what must be left of it, and what exists already of a
    /// snapshot.
    fn has_room_for_what_lives(&self, node: usize) -> bool {
        let Some(running) = &self.nodes[node].running else { return false };
        let disk = running.log.disk();
        let (disk, free_bytes) = (disk.copy(), disk.space().expect("it is not asked for in vain"));
        let files = disk.list().expect("a copy has no troubles");
        let counts = |file: &&String| *file == RESERVE || file.ends_with(".snapshot.partial");
        let own_bytes: u64 = files.iter().filter(counts).filter_map(|file| disk.length(file).ok()).sum();
        let left_bytes = self.options.reserve_bytes / 4 + self.options.segment_bytes / HEADS_PART + MARGIN_BYTES;
        free_bytes.saturating_add(own_bytes) >= self.live_bytes(node) + left_bytes
    }

    fn live_bytes(&self, node: usize) -> u64 {
        let Some(running) = &self.nodes[node].running else { return 0 };
        let bodies = running.core.save(&mut Cursor::default(), usize::MAX).gaps.len() as u64;
        let mut encoded = Vec::new();
        let (mut records, mut tasks) = (0, 0);
        for record in adapter::state_of(&running.core, &self.nodes[node].disk) {
            record.encode(&mut encoded);
            records += 1;
            if let Record::Facts { items, .. } = &record {
                tasks += items.len() as u64;
            }
        }
        encoded.len() as u64 + records * RECORD_BYTES + tasks * TASK_BYTES + bodies * BODY_BYTES
    }
}
