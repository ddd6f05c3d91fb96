//! The log itself: opening, replaying, appending, syncing.

use super::ahead::Ahead;
use super::disk::{Disk, DiskError};
use super::frame::Encoder;
use super::places;
use super::policy::{SyncPolicy, Unsynced};
use super::promises::Promises;
use super::recovery::{self, Mending, OpenError, Position, Replay, Replayed, Survey};
use super::scrub::Scrub;
use super::segment::{self, HEADER_BYTES, Header};
use super::slot::{SLOT_BYTES, Slot};
use super::space::{Shortage, Space};
#[cfg(feature = "mutants")]
use norn_model::config::Mutant;
use norn_model::config::table::{AHEAD_BYTES, COMPACT_BYTES, SEGMENT_BYTES};
use norn_model::host::Room;
use norn_model::limits::RECORD_BYTES_MAX;
use norn_model::record::Record;
use norn_model::task::Place;
use norn_wire::NodeId;

mod compaction;
mod measuring;

use compaction::Compaction;
pub use compaction::{Saved, Upkeep};

/// Memory that an emptied buffer keeps: enough for a batch and the zeroes behind it.
const BUFFER_BYTES_KEPT: usize = 4 << 20;
/// A segment begins with slots for as many bytes of records as one part in this many of the free space.
const SEGMENT_PARTS: u64 = 4;

/// Most bytes of records in a segment, so that a place in it fits the field of a head.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

const _: () = assert!(SEGMENT_BYTES_MAX + 2 * (RECORD_BYTES_MAX as u64) < u32::MAX as u64);

/// Configuration of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A segment whose records would take more than this, or than 2 GiB, is finished and the next one begun. A larger
    /// record gets a segment of its own.
    pub segment_bytes: u64,
    /// The log is compacted when its records take more than this and more than its last snapshot.
    pub compact_bytes: u64,
    /// Bytes of zeroes written ahead of the records at a time, so that most syncs touch only allocated blocks; 0 for none. The last
    /// segment takes up to this much more space than its records, six times as much where batches are large, and a sixteenth of it
    /// for their heads.
    pub ahead_bytes: u64,
    /// Disk space set aside for when the disk is otherwise full; 0 for none.
    pub reserve_bytes: u64,
    /// How long facts may be acknowledged before they are durable.
    pub sync: SyncPolicy,
    /// A known bug to put back, for tests.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl LogConfig {
    /// All settings, and no bug put back.
    pub const fn new(
        segment_bytes: u64,
        compact_bytes: u64,
        ahead_bytes: u64,
        reserve_bytes: u64,
        sync: SyncPolicy,
    ) -> LogConfig {
        LogConfig {
            segment_bytes,
            compact_bytes,
            ahead_bytes,
            reserve_bytes,
            sync,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Whether this bug is put back.
    #[cfg(feature = "mutants")]
    pub fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Settings suited to a real disk.
    pub const DEFAULT: LogConfig = LogConfig::new(SEGMENT_BYTES, COMPACT_BYTES, AHEAD_BYTES, 0, SyncPolicy::Always);
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig::DEFAULT
    }
}

/// Owner of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// Incarnation of its replicas.
    pub incarnation: u64,
}

impl Identity {
    fn record(self) -> Record {
        let Identity { node, incarnation } = self;
        Record::Identity { node, incarnation }
    }
}

/// Why the log stopped. The state is final: every later call returns the same error, and the node must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A write or sync failed. Records appended since the last sync may or may not be there after a restart.
    #[error("the log stopped: {0}")]
    Disk(#[from] DiskError),
    /// A record too large to be read back. None of it was written, but records before it in the same call may be.
    #[error("the log stopped: a record of {bytes} bytes, at most {RECORD_BYTES_MAX} are allowed")]
    RecordTooLarge {
        /// Length of its body.
        bytes: usize,
    },
}

/// Counters of the log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Syncs of a file.
    pub syncs: u64,
    /// Writes to a file: two for each append that fits a segment.
    pub writes: u64,
    /// Bytes in those writes, including zeroes written ahead of the records.
    pub bytes: u64,
    /// Number of the current segment.
    pub segment: u64,
    /// Bytes of frames since the last snapshot was begun, including frames from before the log was opened.
    pub history_bytes: u64,
    /// Bytes of the last snapshot; 0 if there is none.
    pub snapshot_bytes: u64,
    /// Snapshots written.
    pub snapshots: u64,
}

#[derive(Debug)]
enum Phase {
    /// Nothing is read yet, or not to the end.
    Opened,
    /// All is read, and no file is changed yet.
    Read(Mending),
    Ready,
    Poisoned(LogError),
}

/// The write-ahead log of one node.
///
/// Life cycle: [`Log::open`], [`Log::read`] and [`Log::mend`] once, or [`Log::replay`] for both, then [`Log::append`] and
/// [`Log::sync`]. Calls out of this order are caller errors and panic. No byte of the files changes before [`Log::mend`], so a start
/// that is refused before then leaves them as they are.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    config: LogConfig,
    identity: Identity,
    /// There was no log, or none that was ever finished, so the identity is newly drawn.
    is_new: bool,
    phase: Phase,
    /// Files present when the log was opened.
    survey: Survey,
    /// Position of the next record. Before the log is read, only its segment is valid.
    position: Position,
    /// Something has been written since the last sync.
    unsynced: bool,
    /// Records written since the last sync.
    waiting: Unsynced,
    /// All records up to this ordinal are durable.
    synced: u64,
    promises: Promises,
    encoder: Encoder,
    /// Frames not yet written to the disk; empty between calls.
    buffer: Vec<u8>,
    /// Heads of these frames.
    heads: Vec<Slot>,
    compaction: Compaction,
    ahead: Ahead,
    space: Space,
    pub(super) scrub: Scrub,
    stats: Stats,
}

impl<D: Disk> Log<D> {
    /// Opens the directory of a node. If there is no log, or only one whose very first write was cut short, it draws an identity. An
    /// existing log is synced before any of it is trusted: the previous process may have ended before its sync.
    pub fn open(disk: D, config: LogConfig, draw: impl FnOnce() -> Identity) -> Result<Log<D>, OpenError> {
        let survey = recovery::survey(&disk)?;
        let (segments, found) = (survey.last, recovery::read_identity(&disk, &survey)?);
        let mut log = Log {
            ahead: Ahead::new(config.ahead_bytes, config.segment_bytes),
            space: Space::new(config.reserve_bytes),
            scrub: Scrub::default(),
            disk,
            config,
            identity: found.unwrap_or_else(draw),
            is_new: found.is_none(),
            phase: Phase::Opened,
            compaction: Compaction::default(),
            survey,
            position: Position { segment: segments, ..Position::default() },
            unsynced: false,
            waiting: Unsynced::default(),
            synced: 0,
            promises: Promises::default(),
            encoder: Encoder::default(),
            buffer: Vec::new(),
            heads: Vec::new(),
            stats: Stats { segment: segments.max(1), ..Stats::default() },
        };
        if !log.is_new {
            log.sync_file()?;
            log.disk.sync_directory()?;
        }
        Ok(log)
    }

    /// The permanent identity of this node.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Replays every record into `visit`, in order, the identity first, one at a time however long the log is. A loss is reported in
    /// its place; `visit` must refuse it if the node cannot run without the lost records. Must be called once; after an error the log
    /// is of no further use. Cuts and repairs that the result reports are made by [`Log::mend`].
    pub fn read(&mut self, mut visit: impl FnMut(Replay) -> Result<(), String>) -> Result<Replayed, OpenError> {
        assert!(matches!(self.phase, Phase::Opened), "a log is read once");
        if self.is_new {
            let (file, record, mut frame) = (segment::name(1), self.identity.record(), Vec::new());
            self.encoder.encode(1, 0, &record, &mut frame).expect("an identity is small");
            let bytes = frame.len() as u64;
            let visited = visit(Replay::Record { record, covered: false, again: false, place: None });
            visited.map_err(|cause| OpenError::Refused { file, offset: 0, ordinal: 1, cause })?;
            self.phase = Phase::Read(Mending::default());
            return Ok(Replayed { records: 1, segments: 1, bytes, ..Replayed::default() });
        }
        let (survey, promises) = (&self.survey, &mut self.promises);
        let (position, replayed, mending) = recovery::replay(&self.disk, self.identity, survey, promises, visit)?;
        self.stats.history_bytes = replayed.bytes;
        self.stats.snapshot_bytes = replayed.snapshot_bytes;
        self.position = position;
        self.stats.segment = self.position.segment;
        self.phase = Phase::Read(mending);
        Ok(replayed)
    }

    /// Whether there is too little disk space to go on after [`Log::read`]. Changes nothing.
    pub fn shortage(&self) -> Result<Option<Shortage>, DiskError> {
        let mut needless_bytes = 0;
        for file in &self.survey.obsolete {
            needless_bytes += self.disk.length(file)?;
        }
        self.space.shortage(&self.disk, needless_bytes)
    }

    /// Begins the log, or durably repairs a torn end and finishes the other work of a start. Must be called once, when nothing
    /// prevents the start, and before anything that was read is answered; after an error the log is of no further use.
    pub fn mend(&mut self) -> Result<(), OpenError> {
        let Phase::Read(mending) = std::mem::replace(&mut self.phase, Phase::Opened) else {
            panic!("a log is read before it is mended, and mended once");
        };
        // As for any other write: the reserve serves this one, too.
        self.space.before_write(&mut self.disk, 0)?;
        if self.is_new {
            self.begin()?;
        }
        mending.make(&mut self.disk, &mut self.survey.obsolete)?;
        self.compaction = Compaction::new(std::mem::take(&mut self.survey.obsolete));
        // The records found were made durable when the log was opened, and the repairs since then.
        self.synced = self.position.next_ordinal - 1;
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Reads and mends in one call, for callers where only `visit` can refuse.
    pub fn replay(&mut self, visit: impl FnMut(Replay) -> Result<(), String>) -> Result<Replayed, OpenError> {
        let replayed = self.read(visit)?;
        self.mend()?;
        Ok(replayed)
    }

    /// Makes the newly drawn identity durable.
    fn begin(&mut self) -> Result<(), DiskError> {
        if self.survey.last > 0 {
            self.disk.remove(&segment::name(1))?;
            self.disk.sync_directory()?;
        }
        self.position.segment = 0;
        self.begin_segment()?;
        let record = self.identity.record();
        self.encode(&record).expect("an identity is small");
        self.pass(&record);
        self.write()?;
        self.sync_file()
    }

    /// Writes records at the end, in one piece unless a segment is full, and their heads in another. They are durable only after the
    /// next [`Log::sync`]. Returns the places of the facts records; `None` where the place does not fit its fields. After an error
    /// the log is poisoned, and some of the records may turn up at the next start.
    pub fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
        self.check_phase()?;
        assert!(self.buffer.is_empty(), "frames stay in the buffer only within a call");
        let result = self.write_records(records);
        self.poison_by(result)
    }

    /// Makes all appended records durable; does nothing if all are. After an error the log is poisoned: the state that a failed sync
    /// leaves behind is unknown, and a retry would report success for bytes that are lost.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check_phase()?;
        if !self.unsynced {
            return Ok(());
        }
        let result = self.sync_file().map_err(LogError::Disk);
        self.poison_by(result)
    }

    /// Makes durable what the sync policy requires before any appended record is answered.
    pub fn commit(&mut self, now_us: u64) -> Result<(), LogError> {
        self.check_phase()?;
        self.compaction.is_now(now_us);
        if self.unsynced && self.waiting.is_due(self.config.sync, now_us) { self.sync() } else { Ok(()) }
    }

    /// Time at which [`Log::commit`] must be called again, even if nothing else is appended.
    pub fn commit_due_us(&self) -> Option<u64> {
        if self.unsynced { self.waiting.due_us(self.config.sync) } else { None }
    }

    /// Highest ordinal up to which all records are durable.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Disk space state at the last write or look.
    pub fn room(&self) -> Room {
        self.space.room()
    }

    /// Bytes of lost state that may be written while the disk is full. As long as such state is missing no snapshot is written, and a
    /// snapshot is what frees space.
    pub fn spare_bytes(&self) -> u64 {
        self.space.spare_bytes()
    }

    /// Checks whether there is disk space again.
    pub fn look_for_room(&mut self) -> Result<Room, LogError> {
        self.check_phase()?;
        let result = self.look().map_err(LogError::Disk);
        self.poison_by(result)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Gives up the log. Unsynced writes are left as they are.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The underlying disk, for reads.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The underlying disk, for hosts that simulate one. Its files belong to the log.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    pub(super) fn position(&self) -> &Position {
        &self.position
    }

    pub(super) fn check_phase(&self) -> Result<(), LogError> {
        match &self.phase {
            Phase::Ready => Ok(()),
            Phase::Poisoned(error) => Err(error.clone()),
            Phase::Opened | Phase::Read(_) => panic!("a log is replayed before it is written to"),
        }
    }

    fn poison_by<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error) = &result {
            self.phase = Phase::Poisoned(error.clone());
        }
        result
    }

    fn write_records(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
        let mut places = Vec::new();
        if self.position.begun && !records.is_empty() {
            self.say_again()?;
        }
        for record in records {
            let start = self.buffer.len();
            let mut slot = self.encode(record).map_err(|bytes| LogError::RecordTooLarge { bytes })?;
            if !self.has_room(start) {
                self.buffer.truncate(start);
                self.heads.pop();
                self.write()?;
                self.rotate()?;
                // The promises of the new segment come first, so the ordinal has changed.
                slot = self.encode(record).map_err(|bytes| LogError::RecordTooLarge { bytes })?;
            }
            if let Record::Facts { .. } = record {
                places.push(places::in_segment(self.position.segment, u64::from(slot.offset)));
            }
            self.pass(record);
            self.position.begun = false;
        }
        self.write()?;
        Ok(places)
    }

    /// Notes a record that was put into the buffer.
    fn pass(&mut self, record: &Record) {
        self.position.pass(record);
        self.waiting.note(record);
        self.promises.note(record);
    }

    /// Encodes the next record after those in the buffer, and returns its head.
    fn encode(&mut self, record: &Record) -> Result<Slot, usize> {
        let start = self.buffer.len() as u64;
        let head = self.encoder.encode(self.position.next_ordinal, self.synced, record, &mut self.buffer)?;
        let bytes = self.buffer.len() as u64 - start;
        let slot =
            Slot::of(&head, self.position.length + start, bytes, record).expect("segments end long before 4 GiB");
        self.heads.push(slot);
        Ok(slot)
    }

    /// Whether the frame from `start` to the end of the buffer fits this segment. The first record after the promises always fits.
    fn has_room(&self, start: usize) -> bool {
        let Position { next_ordinal, header, length, promised_bytes, .. } = &self.position;
        assert!(start <= self.buffer.len(), "a frame was put there");
        let before = (length - header.records_offset() + start as u64) - promised_bytes;
        let bytes = before + (self.buffer.len() - start) as u64;
        let fits = before == 0 || bytes <= self.config.segment_bytes.min(SEGMENT_BYTES_MAX);
        fits && header.has_slot(*next_ordinal)
    }

    /// Finishes the segment, begins the next and puts the promises for it into the buffer. The order ensures that a header is never
    /// durable before all records of the previous segment.
    fn rotate(&mut self) -> Result<(), DiskError> {
        assert!(self.buffer.is_empty() && self.heads.is_empty(), "the finished segment has all its records");
        // Cut off the unused preallocated space. Nothing depends on it: if a crash undoes the cut, there are zeroes.
        let file = segment::name(self.position.segment);
        if self.disk.length(&file)? > self.position.length {
            self.disk.truncate(&file, self.position.length)?;
        }
        if self.unsynced {
            self.sync_file()?;
        }
        self.begin_segment()?;
        self.position.begun = true;
        self.say_again()
    }

    /// Puts the promises that the segment lacks into the buffer, before any other record.
    fn say_again(&mut self) -> Result<(), DiskError> {
        assert!(self.position.begun && self.buffer.is_empty(), "promises come first");
        for record in self.promises.unsaid() {
            if !self.position.header.has_slot(self.position.next_ordinal) {
                // A start began this segment with slots for fewer promises.
                self.write()?;
                return self.rotate();
            }
            self.encode(&record).expect("it was in a segment before");
            self.pass(&record);
        }
        let written = self.position.length - self.position.header.records_offset();
        self.position.promised_bytes = written + self.buffer.len() as u64;
        Ok(())
    }

    /// Slots of the next segment. Unused ones count as used space where file lengths are counted, so a nearly full disk gets few.
    fn next_slots(&self) -> Result<u32, DiskError> {
        let bytes = self.config.segment_bytes.min(self.disk.space()? / SEGMENT_PARTS);
        Ok(segment::slots_for(bytes, self.promises.count()))
    }

    /// Bytes with which the next segment begins: header and heads.
    fn next_own_bytes(&self) -> Result<u64, DiskError> {
        Ok(HEADER_BYTES as u64 + u64::from(self.next_slots()?) * SLOT_BYTES as u64)
    }

    /// Begins the next segment. Header and file name are durable before any record is written to it.
    fn begin_segment(&mut self) -> Result<(), DiskError> {
        self.position.segment += 1;
        self.stats.segment = self.position.segment;
        self.ahead.reset();
        self.position.header = Header {
            cluster: self.position.cluster,
            node: self.identity.node,
            segment: self.position.segment,
            first_ordinal: self.position.next_ordinal,
            slots: self.next_slots()?,
        };
        assert!(
            u64::from(self.position.header.slots) > self.promises.count() as u64,
            "there is room behind the promises"
        );
        self.position.length = self.position.header.records_offset();
        self.position.promised_bytes = 0;
        self.promises.begin();
        let header = self.position.header.encode();
        self.write_at(0, &header)?;
        self.sync_file()?;
        self.disk.sync_directory()
    }

    /// Writes the buffer to the segment: the frames in one write, their heads in another.
    fn write(&mut self) -> Result<(), DiskError> {
        let Some(first) = self.heads.first() else {
            assert!(self.buffer.is_empty(), "every frame has a head");
            return Ok(());
        };
        let slot_offset = self.position.header.slot_offset(first.ordinal);
        let mut heads = Vec::with_capacity(self.heads.len() * SLOT_BYTES);
        self.heads.iter().for_each(|slot| heads.extend_from_slice(&slot.encode()));
        let mut frames = std::mem::take(&mut self.buffer);
        let (offset, length) = (self.position.length, self.position.length + frames.len() as u64);
        // The first record of a segment brings the slots before it, as a hole.
        let hole_bytes = if offset == self.position.header.records_offset() { offset } else { 0 };
        if self.make_room((frames.len() + heads.len()) as u64 + hole_bytes)? {
            self.ahead.extend_records(&self.position.header, offset, &mut frames);
            self.ahead.extend_heads(&self.position.header, slot_offset, &mut heads);
        }
        self.write_at(offset, &frames)?;
        self.write_at(slot_offset, &heads)?;
        self.stats.history_bytes += length - offset;
        self.position.length = length;
        self.heads.clear();
        self.buffer = frames;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.unsynced = true;
        self.disk.write(&segment::name(self.position.segment), offset, bytes)?;
        self.stats.writes += 1;
        self.stats.bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync_file(&mut self) -> Result<(), DiskError> {
        assert!(self.buffer.is_empty(), "what is not written cannot be synced");
        self.disk.sync(&segment::name(self.position.segment))?;
        self.unsynced = false;
        self.waiting = Unsynced::default();
        self.synced = self.position.next_ordinal - 1;
        self.stats.syncs += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
