//! Log compaction, which keeps the log as long as its live data: when to write a snapshot, its parts, and removal of the files that
//! it replaces.
//!
//! The thread that appends calls [`Log::upkeep`] between appends. When a snapshot is due, the log continues in a new segment and asks
//! for the state; [`Log::save`] takes it part by part, with appends in between. The state may change meanwhile: each part must
//! reflect all records that were appended before the new segment was begun, and no records that are appended after the part.
//!
//! If the free space is as large as the log, there is space for the snapshot. If it is smaller, the state is measured first
//! (`measuring.rs`): the log asks for it as for a snapshot, and nothing is written.

use super::measuring::Measuring;
use super::{Log, LogError};
use crate::disk::{Disk, DiskError};
use crate::snapshot::{self, SnapshotError, Writer};
use crate::space::Lent;
use crate::{places, segment};
use norn_model::config::mutant;
use norn_model::host::Room;
use norn_model::record::Record;
use norn_model::snapshot::{Gap, Moved, Part};
use norn_wire::TaskId;

/// A log shorter than this is not compacted early, however small the disk is.
const TIGHT_BYTES_MIN: u64 = 1 << 20;
/// A disk with less free space than this many times the log is small for it.
const TIGHT_PARTS: u64 = 2;
/// While a snapshot is under way, the log may grow by this many times `compact_bytes`, or by as much as the snapshot covers, before its
/// writer rests no more.
const GROWTH_PARTS: u64 = 4;
/// Snapshot records whose new places are reported at once: a few thousand tasks.
const MOVED_AT_ONCE: usize = 4;

/// Next action that the log needs from its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upkeep {
    /// Nothing for now.
    Rest,
    /// The first part of the node's state, for a snapshot or to measure one.
    Begin,
    /// Another call, because more files remain to be removed.
    Again,
    /// These tasks are now in a snapshot, too: the files before it are removed next. Needs another call. If the disk is short of
    /// space, that call must come before the next write: the log cannot reuse the space of those files until all moves are reported.
    Moved(Vec<Moved>),
    /// Nothing for now: a snapshot could not be begun. The log itself is unharmed.
    GivenUp(SnapshotError),
}

/// Outcome of saving a part of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saved {
    /// The next one is needed.
    Part,
    /// As `Part`, though the log has lost the bodies of these tasks. Nothing more is written and the snapshot will be given up, but
    /// only after the last part, so that one attempt reports all losses.
    Lacks(Vec<TaskId>),
    /// It was the last part: the snapshot now replaces all segments before it.
    Whole,
    /// No more parts: the size of a snapshot was measured, and nothing was written. The next call of [`Log::upkeep`] begins the
    /// snapshot if there is space for it.
    Measured,
    /// The snapshot is given up until the log has grown further. The log itself is unharmed.
    GivenUp(SnapshotError),
}

/// Next step to a shorter log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Rest,
    Measure,
    Write,
}

/// State of the compaction.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    writer: Option<Writer>,
    /// Bytes of records before the first segment that the snapshot under way does not replace.
    covered_bytes: u64,
    /// After a failure, bytes that the records must reach before the next attempt.
    retry_bytes: u64,
    /// The first check after a start, which has a lower threshold, has been made.
    started: bool,
    /// Places of the tasks in the last snapshot that are not reported yet, in reverse order. About 60 bytes for each part of the
    /// state.
    moved: Vec<Moved>,
    /// Files to remove, in reverse order.
    obsolete: Vec<String>,
    /// Bytes of the files that a snapshot made obsolete, and bytes of the snapshot itself.
    obsolete_bytes: u64,
    taken_bytes: u64,
    /// A file is damaged that a snapshot would replace.
    wanted: bool,
    /// The snapshot under way replaces a damaged file, or its disk is small for the log.
    urgent: bool,
    /// Bodies that the snapshot under way has found lost so far.
    lacks: u64,
    /// Bodies that were lost in the last snapshot of which all parts were seen.
    lacked: u64,
    /// A file was removed since the directory was last synced.
    removed: bool,
    /// The snapshot under way was given up between two parts.
    cut: bool,
    pub(super) measuring: Measuring,
}

impl Compaction {
    /// Sets the current time, on the clock of [`Log::commit`].
    pub fn is_now(&mut self, now_us: u64) {
        self.measuring.now_us = now_us;
    }

    pub fn new(obsolete: Vec<String>) -> Compaction {
        Compaction { obsolete, ..Compaction::default() }
    }

    /// Whether there are files to remove, and the new places of their contents are all reported.
    fn is_told(&self) -> bool {
        self.moved.is_empty() && !self.obsolete.is_empty()
    }
}

impl<D: Disk> Log<D> {
    /// Does one small step of compaction: removes an obsolete file, or begins a snapshot.
    pub fn upkeep(&mut self) -> Result<Upkeep, LogError> {
        self.check_phase()?;
        let result = self.keep_up();
        self.poison_by(result)
    }

    fn keep_up(&mut self) -> Result<Upkeep, LogError> {
        // Moves are reported before any file is removed, so a reader of a removed file has the new place before the read fails.
        let moved = &mut self.compaction.moved;
        if !moved.is_empty() {
            let rest = moved.len().saturating_sub(MOVED_AT_ONCE);
            return Ok(Upkeep::Moved(moved.drain(rest..).rev().collect()));
        }
        if self.remove_obsolete(self.is_short())? {
            return Ok(Upkeep::Again);
        }
        if std::mem::take(&mut self.compaction.removed) {
            self.disk.sync_directory()?;
        }
        if self.look()? == Room::Out && self.cut_short()? {
            self.look()?;
        }
        let starting = !std::mem::replace(&mut self.compaction.started, true);
        if self.compaction.writer.is_some() || self.compaction.cut || self.compaction.measuring.is_under_way() {
            return Ok(Upkeep::Rest);
        }
        match self.plan(starting) {
            Plan::Rest => Ok(Upkeep::Rest),
            Plan::Measure => {
                self.compaction.measuring.begin();
                Ok(Upkeep::Begin)
            }
            Plan::Write => self.begin_snapshot(),
        }
    }

    fn begin_snapshot(&mut self) -> Result<Upkeep, LogError> {
        // Room for the snapshot, which is no larger than the log, and for what the log may become beside it.
        let growth_bytes = self.growth_bytes_max(self.stats.history_bytes);
        let ample_bytes = self.log_bytes().saturating_add(growth_bytes);
        let room = self.disk.recent_space(ample_bytes).unwrap_or(0);
        self.compaction.urgent = std::mem::take(&mut self.compaction.wanted) || room < ample_bytes;
        self.compaction.lacks = 0;
        self.compaction.covered_bytes = self.stats.history_bytes;
        self.rotate()?;
        self.write()?;
        match Writer::begin(&mut self.disk, &self.position.header) {
            Ok(writer) => {
                self.compaction.writer = Some(writer);
                Ok(Upkeep::Begin)
            }
            Err(error) => {
                self.discard(snapshot::partial_name(self.position.segment))?;
                self.put_off();
                Ok(Upkeep::GivenUp(error.into()))
            }
        }
    }

    /// Checks the free space, and fills the reserve unless a snapshot needs that space.
    pub(super) fn look(&mut self) -> Result<Room, DiskError> {
        self.space.lend(self.lent());
        let needed = self.compaction.writer.is_some() || self.compaction.measuring.fits();
        self.space.look(&mut self.disk, !needed)
    }

    /// Space that the log can reclaim: a snapshot under way, or the files that a finished one made obsolete. These may be larger than
    /// the snapshot; the excess counts as free only when they are gone.
    fn lent(&self) -> Lent {
        match &self.compaction.writer {
            Some(writer) => Lent { bytes: writer.length(), at_once: true },
            None => {
                let bytes = self.compaction.taken_bytes.min(self.compaction.obsolete_bytes);
                Lent { bytes, at_once: self.compaction.moved.is_empty() }
            }
        }
    }

    /// Removes an obsolete file, so that its room is free at once if that is wanted. Returns whether there was one.
    fn remove_obsolete(&mut self, at_once: bool) -> Result<bool, DiskError> {
        let Some(file) = self.compaction.obsolete.pop() else { return Ok(false) };
        let bytes = self.disk.length(&file)?;
        if at_once {
            self.disk.remove(&file)?
        } else {
            self.disk.retire(&file)?
        }
        self.compaction.obsolete_bytes = self.compaction.obsolete_bytes.saturating_sub(bytes);
        self.compaction.removed = true;
        Ok(true)
    }

    /// Schedules an unfinished snapshot for removal, if its file exists.
    fn discard(&mut self, partial: String) -> Result<(), DiskError> {
        if self.disk.list()?.contains(&partial) {
            let bytes = self.disk.length(&partial)?;
            (self.compaction.taken_bytes, self.compaction.obsolete_bytes) = (bytes, bytes);
            self.compaction.obsolete.push(partial);
        }
        Ok(())
    }

    /// Decides whether a snapshot is worthwhile now.
    fn plan(&mut self, starting: bool) -> Plan {
        if self.compaction.measuring.take_fit() {
            return Plan::Write;
        }
        let log_bytes = self.log_bytes();
        // Twice the log's bytes are neither too little for a snapshot nor tight.
        let room = self.disk.recent_space(log_bytes.saturating_mul(TIGHT_PARTS)).unwrap_or(0);
        let due = self.compaction.wanted || self.is_long(starting) || self.is_tight(room);
        // The state is not larger than the log that it comes from. A snapshot that could use up the last space is not begun.
        if due && room >= log_bytes {
            return Plan::Write;
        }
        let short = self.is_short() && log_bytes > self.config.reserve_bytes;
        let measured = !mutant!(self.config, WantsWholeRoom)
            && (due || short)
            && self.compaction.measuring.is_due(log_bytes, self.is_short());
        if measured { Plan::Measure } else { Plan::Rest }
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.stats.history_bytes.saturating_add(self.stats.snapshot_bytes)
    }

    pub(super) fn is_short(&self) -> bool {
        self.space.room() != Room::Ample
    }

    /// Whether a file of the log is damaged, so that a snapshot is worthwhile at any cost.
    pub(super) fn is_wanted(&self) -> bool {
        self.compaction.wanted
    }

    /// How much of its rests between two parts the writer of the snapshot under way should forgo, in percent: all, if the snapshot makes
    /// room on a small disk or replaces a damaged file; else the more, the further the log has grown since it began, so that disk use
    /// and the time of a restart stay bounded.
    pub fn snapshot_haste_percent(&self) -> u64 {
        if self.is_short() || self.compaction.urgent || self.compaction.measuring.is_under_way() {
            return 100;
        }
        let grown_bytes = self.stats.history_bytes.saturating_sub(self.compaction.covered_bytes);
        let grown_bytes_max = self.growth_bytes_max(self.compaction.covered_bytes).max(1);
        grown_bytes.saturating_mul(100).checked_div(grown_bytes_max).map_or(100, |percent| percent.min(100))
    }

    /// Bytes by which the log may grow beside a snapshot that covers so much, before its writer rests no more.
    fn growth_bytes_max(&self, covered_bytes: u64) -> u64 {
        covered_bytes.max(GROWTH_PARTS.saturating_mul(self.config.compact_bytes))
    }

    /// Requests a snapshot because the files before this segment, or the snapshot that replaces those, are damaged.
    pub fn want_snapshot(&mut self, segment: Option<u64>) {
        let under_way = self.compaction.writer.as_ref().map(Writer::segment);
        self.compaction.wanted |= under_way.is_none() || under_way <= segment;
    }

    /// Whether a file is obsolete.
    pub fn is_obsolete(&self, file: &str) -> bool {
        self.compaction.obsolete.iter().any(|obsolete| obsolete == file)
    }

    /// Bodies that the last snapshot lacked, whether or not it was given up for that.
    pub fn bodies_lacked(&self) -> u64 {
        self.compaction.lacked
    }

    /// Whether enough of the log is history that a snapshot is worth its bytes: this bounds disk use and restart time by the live
    /// data. A start is a good moment, as the longest replay has just been seen.
    fn is_long(&self, starting: bool) -> bool {
        let live_bytes = self.config.compact_bytes.max(self.stats.snapshot_bytes);
        let bytes_max = if starting { live_bytes / 2 } else { live_bytes };
        self.stats.history_bytes > bytes_max.max(self.compaction.retry_bytes)
    }

    /// Whether a start finds the log long, before its first upkeep.
    pub fn is_long_at_start(&self) -> bool {
        self.is_long(true)
    }

    /// After an attempt in vain before anything was served: the next upkeep decides as the first one after a start does.
    pub fn forget_attempt(&mut self) {
        self.compaction.started = false;
        self.compaction.wanted = false;
        self.compaction.retry_bytes = 0;
        self.compaction.measuring = Measuring::at(self.compaction.measuring.now_us);
    }

    /// Whether the disk is small for what the log may become: if the free space is less than twice the log's files, the log is
    /// compacted as soon as that is worthwhile.
    fn is_tight(&self, room: u64) -> bool {
        let least_bytes = self.config.reserve_bytes.max(TIGHT_BYTES_MIN).min(self.config.compact_bytes);
        let bytes_max = least_bytes.max(self.stats.snapshot_bytes).max(self.compaction.retry_bytes);
        room / TIGHT_PARTS < self.log_bytes() && self.stats.history_bytes > bytes_max
    }

    /// Makes room for a write of this size: removes obsolete files if the space is needed, and gives up a snapshot under way. Returns
    /// whether there is ample space besides.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<bool, DiskError> {
        let wanted_bytes = bytes.saturating_add(self.space.last_bytes());
        while self.compaction.is_told() && self.disk.recent_space(wanted_bytes)? < wanted_bytes {
            self.remove_obsolete(true)?;
        }
        self.space.lend(self.lent());
        let ample = self.space.before_write(&mut self.disk, bytes)?;
        if self.is_snapshot_in_the_way(bytes)? && self.cut_short()? {
            self.space.lend(self.lent());
            return self.space.before_write(&mut self.disk, bytes);
        }
        Ok(ample)
    }

    /// Whether a snapshot is under way in the space that a write of this size needs.
    fn is_snapshot_in_the_way(&self, bytes: u64) -> Result<bool, DiskError> {
        let needed_bytes = bytes.saturating_add(self.space.kept_bytes());
        Ok(self.compaction.writer.is_some() && self.disk.recent_space(needed_bytes)? < needed_bytes)
    }

    /// Gives up a snapshot under way between two parts, and frees its space at once. Returns whether there was one.
    fn cut_short(&mut self) -> Result<bool, DiskError> {
        let Some(writer) = self.compaction.writer.take() else { return Ok(false) };
        let partial = writer.partial_name();
        if self.disk.list()?.contains(&partial) {
            self.disk.remove(&partial)?;
            self.compaction.removed = true;
        }
        self.put_off();
        self.compaction.cut = true;
        Ok(true)
    }

    /// The answer to a part that is not written: after a cut-short snapshot, or while measuring.
    fn without_writing(&mut self, records: &[Record], gaps: &[Gap], last: bool) -> Option<Result<Saved, LogError>> {
        if std::mem::take(&mut self.compaction.cut) {
            return Some(Ok(Saved::GivenUp(SnapshotError::NoRoom)));
        }
        if !self.compaction.measuring.is_under_way() {
            return None;
        }
        let measured = self.measure(records, gaps, last).map_err(LogError::Disk);
        Some(self.poison_by(measured))
    }

    /// Takes a part of the state and fills in the bodies that it lacks. Must be called only as requested.
    pub fn save_part(&mut self, part: Part) -> Result<Saved, LogError> {
        self.check_phase()?;
        let Part { mut records, gaps, last } = part;
        if let Some(answer) = self.without_writing(&records, &gaps, last) {
            return answer;
        }
        let read = |file: &str, offset, length| self.disk.read(file, offset, length);
        let lost = match places::fill(read, &mut records, &gaps) {
            Ok(lost) => lost,
            Err(error) => return Ok(self.abandon(error.into())),
        };
        self.compaction.lacks += lost.len() as u64;
        let count = self.compaction.lacks;
        if last {
            self.compaction.lacked = count;
        }
        Ok(match (count, last) {
            (0, _) => return self.save(&records, last),
            (_, true) => self.abandon(SnapshotError::BodiesLost { count, last: lost }),
            (_, false) if lost.is_empty() => Saved::Part,
            (_, false) => Saved::Lacks(lost),
        })
    }

    /// Gives up a snapshot that is not yet renamed.
    fn abandon(&mut self, error: SnapshotError) -> Saved {
        let writer = self.compaction.writer.take().expect("a part of the state was asked for");
        (self.compaction.taken_bytes, self.compaction.obsolete_bytes) = (writer.length(), writer.length());
        self.compaction.obsolete.push(writer.partial_name());
        self.put_off();
        Saved::GivenUp(error)
    }

    /// As [`Log::save_part`], for a part without gaps.
    pub fn save(&mut self, records: &[Record], last: bool) -> Result<Saved, LogError> {
        self.check_phase()?;
        if let Some(answer) = self.without_writing(records, &[], last) {
            return answer;
        }
        // The snapshot may not be ahead of the log: later records that it reflects must be durable when it takes effect.
        if last && self.unsynced {
            let synced = self.sync_file().map_err(LogError::Disk);
            self.poison_by(synced)?;
        }
        let mut writer = self.compaction.writer.take().expect("a part of the state was asked for");
        let (partial, segment) = (writer.partial_name(), writer.segment());
        let added = writer.add(&mut self.disk, records, self.space.kept_bytes());
        let covered = self.position.next_ordinal - 1;
        let mut written = added.map(|()| Saved::Part);
        if written.is_ok() && !last {
            self.compaction.writer = Some(writer);
        } else if written.is_ok() {
            written = writer.finish(&mut self.disk, covered, self.space.kept_bytes()).map(|(bytes, moved)| {
                self.stats.snapshots += 1;
                self.stats.snapshot_bytes = bytes;
                self.compaction.moved = moved;
                self.compaction.moved.reverse();
                Saved::Whole
            });
        }
        let ended = match written {
            Ok(Saved::Whole) => self.clear_before(segment),
            Err(error) => self.give_up(partial, segment, error),
            Ok(saved) => Ok(saved),
        };
        self.poison_by(ended)
    }

    fn give_up(&mut self, partial: String, segment: u64, error: SnapshotError) -> Result<Saved, LogError> {
        let files = self.disk.list()?;
        if files.contains(&snapshot::name(segment)) {
            // Whether the snapshot has its final name after a crash is unknown.
            let SnapshotError::Disk(error) = error else { unreachable!("it had been written before it was named") };
            return Err(error.into());
        }
        self.discard(partial)?;
        self.put_off();
        Ok(Saved::GivenUp(error))
    }

    fn put_off(&mut self) {
        self.compaction.measuring.failed(self.log_bytes());
        self.compaction.retry_bytes = self.stats.history_bytes.saturating_add(self.config.compact_bytes);
    }

    /// Lists the files that the snapshot replaces for removal.
    fn clear_before(&mut self, segment: u64) -> Result<Saved, LogError> {
        assert!(self.compaction.obsolete.is_empty(), "all was cleared away before it was begun");
        let number = |file: &String| segment::number(file).or(snapshot::number(file));
        let mut covered = self.disk.list()?;
        covered.retain(|file| number(file).is_some_and(|number| number < segment));
        covered.reverse();
        self.compaction.taken_bytes = self.disk.length(&snapshot::name(segment))?;
        self.compaction.obsolete_bytes = 0;
        for file in &covered {
            self.compaction.obsolete_bytes += self.disk.length(file)?;
        }
        self.compaction.obsolete = covered;
        self.compaction.retry_bytes = 0;
        self.compaction.measuring = Measuring::at(self.compaction.measuring.now_us);
        self.stats.history_bytes -= self.compaction.covered_bytes;
        Ok(Saved::Whole)
    }
}
