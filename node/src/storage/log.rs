//! The log itself: opening, replaying, appending, syncing.

use super::ahead::Ahead;
use super::disk::{Disk, DiskError};
use super::frame::Encoder;
use super::places;
use super::policy::{SyncPolicy, Unsynced};
use super::promises::Promises;
use super::recovery::{self, Mending, OpenError, Position, Replay, Replayed, Survey};
use super::scrub::Scrub;
use super::segment::{self, Header};
use super::slot::{SLOT_BYTES, Slot};
use super::space::{Shortage, Space};
#[cfg(feature = "mutants")]
use crate::config::Mutant;
use crate::limits::RECORD_BYTES_MAX;
use crate::protocol::host::Room;
use crate::protocol::record::Record;
use crate::protocol::task::Place;
use norn_wire::NodeId;

mod compaction;
mod measuring;

use compaction::Compaction;
pub use compaction::{Saved, Upkeep};

/// Memory that an emptied buffer keeps: enough for a batch and the zeroes behind it.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Most bytes of records in a segment, so that a place in it fits the field of a head.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

const _: () = assert!(SEGMENT_BYTES_MAX + 2 * (RECORD_BYTES_MAX as u64) < u32::MAX as u64);

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A segment whose records would take more than this, or than 2 GiB, is finished and the next one begun. A larger
    /// record gets a segment of its own.
    pub segment_bytes: u64,
    /// The log is compacted when its records take more than this and more than its last snapshot.
    pub compact_bytes: u64,
    /// Zeroes written ahead of the records at a time, so that most syncs are of blocks that are there already; 0 for none.
    /// The last segment takes up to so much more space than its records, six times as much where batches are large, and a
    /// sixteenth of it for their heads.
    pub ahead_bytes: u64,
    /// Room that is kept for when there is no other; 0 for none.
    pub reserve_bytes: u64,
    /// How long facts may be acknowledged before they are durable.
    pub sync: SyncPolicy,
    /// A bug to be put back.
    #[cfg(feature = "mutants")]
    pub mutant: Option<Mutant>,
}

impl LogConfig {
    /// Whether the bug is put back.
    #[cfg(feature = "mutants")]
    pub fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// What is right for a real disk.
    pub const DEFAULT: LogConfig = LogConfig {
        segment_bytes: 64 << 20,
        compact_bytes: 256 << 20,
        ahead_bytes: 1 << 20,
        reserve_bytes: 0,
        sync: SyncPolicy::Always,
        #[cfg(feature = "mutants")]
        mutant: None,
    };
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig::DEFAULT
    }
}

/// Who a data directory belongs to.
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

/// Why the log stopped. It stays so: every later call returns the same, and the node must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A write or sync failed. What was appended since the last sync may or may not be there after a start.
    #[error("the log stopped: {0}")]
    Disk(#[from] DiskError),
    /// A record that could not be read back. None of it was written, but records before it in the same call may be.
    #[error("the log stopped: a record of {bytes} bytes, at most {RECORD_BYTES_MAX} are allowed")]
    RecordTooLarge {
        /// Length of its body.
        bytes: usize,
    },
}

/// What the log did since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Syncs of a file.
    pub syncs: u64,
    /// Writes to a file: two for each append that fits a segment.
    pub writes: u64,
    /// Bytes in them, those ahead of the records included.
    pub bytes: u64,
    /// Number of the segment that is written to.
    pub segment: u64,
    /// Bytes of frames since the last snapshot was begun, of those before the log was opened too.
    pub history_bytes: u64,
    /// Bytes of the last snapshot; 0 if there is none.
    pub snapshot_bytes: u64,
    /// Snapshots written.
    pub snapshots: u64,
}

#[derive(Debug)]
enum Phase {
    /// Nothing read yet, or not to the end.
    Opened,
    /// All is read, and nothing changed.
    Read(Mending),
    Ready,
    Poisoned(LogError),
}

/// The write-ahead log of one node.
///
/// Life: [`Log::open`], [`Log::read`] and [`Log::mend`] once, or [`Log::replay`] for both, then [`Log::append`] and
/// [`Log::sync`]. Calls out of this order are a mistake of the caller and panic. No byte of the files is changed before
/// [`Log::mend`], so that a start which is refused until then leaves them as they are.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    config: LogConfig,
    identity: Identity,
    /// There was no log, or none that was ever finished: the identity was drawn.
    is_new: bool,
    phase: Phase,
    /// What was there when the log was opened.
    survey: Survey,
    /// Before the log is read, only its segment is true.
    position: Position,
    /// Something was written since the last sync.
    unsynced: bool,
    /// The records among that.
    waiting: Unsynced,
    /// All up to this ordinal is durable.
    synced: u64,
    promises: Promises,
    encoder: Encoder,
    /// Frames on their way to the disk; empty between calls.
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
    /// Opens the directory of a node. Where no log is, or only one whose very first write was cut short, it draws an
    /// identity. What is there is made durable, before anything of it is trusted: the process before may have ended
    /// before it could.
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

    /// Who this is, for ever.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Gives every record to `visit`, in order, the identity first; one at a time, however long the log is; and in its
    /// place whatever is lost, which `visit` must refuse if the node cannot be without it. Must be called once; after an
    /// error the log is of no further use. What is said to be cut or mended is so after [`Log::mend`].
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

    /// Whether there is too little room to go on after [`Log::read`]. Changes nothing.
    pub fn shortage(&self) -> Result<Option<Shortage>, DiskError> {
        let mut needless_bytes = 0;
        for file in &self.survey.obsolete {
            needless_bytes += self.disk.length(file)?;
        }
        self.space.shortage(&self.disk, needless_bytes)
    }

    /// Begins the log, or mends a torn end and what else a start does, durably. Must be called once, when nothing stands against
    /// the start, and before anything that was read is answered; after an error the log is of no further use.
    pub fn mend(&mut self) -> Result<(), OpenError> {
        let Phase::Read(mending) = std::mem::replace(&mut self.phase, Phase::Opened) else {
            panic!("a log is read before it is mended, and mended once");
        };
        // As for any other write: what is kept for the worst is for this, too.
        self.space.before_write(&mut self.disk, 0)?;
        if self.is_new {
            self.begin()?;
        }
        mending.make(&mut self.disk, &mut self.survey.obsolete)?;
        self.compaction = Compaction::new(std::mem::take(&mut self.survey.obsolete));
        // What was found was made durable when the log was opened, and what was mended since then.
        self.synced = self.position.next_ordinal - 1;
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Reads and mends at once, where nothing but `visit` has a say.
    pub fn replay(&mut self, visit: impl FnMut(Replay) -> Result<(), String>) -> Result<Replayed, OpenError> {
        let replayed = self.read(visit)?;
        self.mend()?;
        Ok(replayed)
    }

    /// Makes the identity durable that was drawn.
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

    /// Writes records at the end, in one piece unless a segment is full, and their heads in another. They are durable
    /// only after the next [`Log::sync`]. Returns where the records of facts are; none of those that no place has numbers
    /// for. After an error the log is poisoned, and some of the records may turn up at the next start.
    pub fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
        self.check_phase()?;
        assert!(self.buffer.is_empty(), "frames stay in the buffer only within a call");
        let result = self.write_records(records);
        self.poison_by(result)
    }

    /// Makes durable all that was appended; does nothing if all is. After an error the log is poisoned: what a failed
    /// sync left behind cannot be known, and trying again would report success for bytes that are lost.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check_phase()?;
        if !self.unsynced {
            return Ok(());
        }
        let result = self.sync_file().map_err(LogError::Disk);
        self.poison_by(result)
    }

    /// Makes durable what must be before anything that was appended is answered.
    pub fn commit(&mut self, now_us: u64) -> Result<(), LogError> {
        self.check_phase()?;
        self.compaction.is_now(now_us);
        if self.unsynced && self.waiting.is_due(self.config.sync, now_us) { self.sync() } else { Ok(()) }
    }

    /// When [`Log::commit`] must be called again, even if nothing else is appended.
    pub fn commit_due_us(&self) -> Option<u64> {
        if self.unsynced { self.waiting.due_us(self.config.sync) } else { None }
    }

    /// Ordinal of the last record up to which all is durable.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Room on the disk, as far as the last write or look has seen.
    pub fn room(&self) -> Room {
        self.space.room()
    }

    /// Without room so much may be written of what was lost: no snapshot, which makes room, is written as long as it is.
    pub fn spare_bytes(&self) -> u64 {
        self.space.spare_bytes()
    }

    /// Looks whether there is room again.
    pub fn look_for_room(&mut self) -> Result<Room, LogError> {
        self.check_phase()?;
        let result = self.look().map_err(LogError::Disk);
        self.poison_by(result)
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Gives up the log. What was not synced is left as it is.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The disk below, to read from.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The disk below, for hosts that simulate one. Its files are the log's.
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
                // Its ordinal is another one behind the promises.
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

    /// Takes note of a record that was put into the buffer.
    fn pass(&mut self, record: &Record) {
        self.position.pass(record);
        self.waiting.note(record);
        self.promises.note(record);
    }

    /// Puts the next record behind those in the buffer; its head.
    fn encode(&mut self, record: &Record) -> Result<Slot, usize> {
        let start = self.buffer.len() as u64;
        let head = self.encoder.encode(self.position.next_ordinal, self.synced, record, &mut self.buffer)?;
        let bytes = self.buffer.len() as u64 - start;
        let slot =
            Slot::of(&head, self.position.length + start, bytes, record).expect("segments end long before 4 GiB");
        self.heads.push(slot);
        Ok(slot)
    }

    /// Whether the frame from `start` to the end of the buffer may stand in this segment. The first one behind the promises
    /// always may.
    fn has_room(&self, start: usize) -> bool {
        let Position { next_ordinal, header, length, promised_bytes, .. } = &self.position;
        assert!(start <= self.buffer.len(), "a frame was put there");
        let before = (length - header.records_offset() + start as u64) - promised_bytes;
        let bytes = before + (self.buffer.len() - start) as u64;
        let fits = before == 0 || bytes <= self.config.segment_bytes.min(SEGMENT_BYTES_MAX);
        fits && header.has_slot(*next_ordinal)
    }

    /// Finishes the segment, begins the next and puts the promises into the buffer for it. In this order: a header is never
    /// durable before all records of the segment before it.
    fn rotate(&mut self) -> Result<(), DiskError> {
        assert!(self.buffer.is_empty() && self.heads.is_empty(), "the finished segment has all its records");
        // Space that is left. Nothing waits for this: if a crash undoes it, there are zeroes.
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

    /// Puts those promises into the buffer that the segment has not, before anything else is put there.
    fn say_again(&mut self) -> Result<(), DiskError> {
        assert!(self.position.begun && self.buffer.is_empty(), "promises come first");
        for record in self.promises.unsaid() {
            if !self.position.header.has_slot(self.position.next_ordinal) {
                // It was begun for less, by a start.
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

    /// No record is written where header and name are not durable.
    fn begin_segment(&mut self) -> Result<(), DiskError> {
        self.position.segment += 1;
        self.stats.segment = self.position.segment;
        self.ahead.reset();
        self.position.header = Header {
            cluster: self.position.cluster,
            node: self.identity.node,
            segment: self.position.segment,
            first_ordinal: self.position.next_ordinal,
            slots: segment::slots_for(self.config.segment_bytes, self.promises.count()),
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

    /// Empties the buffer into the segment: the frames in one write, their heads in another.
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
        if self.make_room((frames.len() + heads.len()) as u64)? {
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
