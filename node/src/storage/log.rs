//! The log itself: opening, replaying, appending, syncing.

use super::disk::{Disk, DiskError};
use super::frame::Encoder;
use super::recovery::{self, OpenError, Position, Replayed};
use super::segment::{self, HEADER_BYTES, Header};
use crate::limits::RECORD_BYTES_MAX;
use crate::protocol::record::Record;
use norn_client::wire::{ClusterId, NodeId};

/// Memory that an emptied buffer keeps.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A segment that would grow beyond this is finished and the next one begun. A larger record gets a segment of its
    /// own.
    pub segment_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { segment_bytes: 64 << 20 }
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
    /// Writes to a file.
    pub appends: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Number of the segment that is written to.
    pub segment: u64,
}

#[derive(Debug)]
enum Phase {
    /// Nothing replayed yet, or not to the end.
    Opened,
    Ready,
    Poisoned(LogError),
}

/// The write-ahead log of one node.
///
/// Life: [`Log::open`], [`Log::replay`] once, then [`Log::append`] and [`Log::sync`]. Appending or replaying out of
/// this order is a mistake of the caller and panics.
#[derive(Debug)]
pub struct Log<D> {
    disk: D,
    config: LogConfig,
    identity: Identity,
    phase: Phase,
    /// Before the replay, only its segment is true.
    position: Position,
    /// Something was appended since the last sync.
    unsynced: bool,
    encoder: Encoder,
    /// Frames on their way to the disk; empty between calls.
    buffer: Vec<u8>,
    stats: Stats,
}

impl<D: Disk> Log<D> {
    /// Opens the directory of a node. Where no log is, or only one whose very first write was cut short, it draws an
    /// identity and makes it durable. What is there is made durable too, before anything of it is trusted: the process
    /// before may have ended before it could.
    pub fn open(disk: D, config: LogConfig, draw: impl FnOnce() -> Identity) -> Result<Log<D>, OpenError> {
        let segments = recovery::survey(&disk)?;
        let found = if segments == 0 { None } else { recovery::read_identity(&disk, segments == 1)? };
        let identity = found.unwrap_or_else(draw);
        let position = Position { segment: segments.max(1), length: 0, next_ordinal: 1, cluster: ClusterId::default() };
        let stats = Stats { segment: position.segment, ..Stats::default() };
        let (phase, encoder, buffer) = (Phase::Opened, Encoder::default(), Vec::new());
        let mut log = Log { disk, config, identity, phase, position, unsynced: false, encoder, buffer, stats };
        if found.is_none() {
            if segments > 0 {
                log.disk.remove(&segment::name(1))?;
                log.disk.sync_directory()?;
            }
            let record = Record::Identity { node: identity.node, incarnation: identity.incarnation };
            log.buffer.extend_from_slice(&log.header().encode());
            log.encoder.encode(1, &record, &mut log.buffer).expect("an identity is small");
            log.write()?;
        }
        log.sync_file()?;
        log.disk.sync_directory()?;
        Ok(log)
    }

    /// Who this is, for ever.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Gives every record to `visit`, in order, the identity first; one at a time, however long the log is. Then mends
    /// a torn end. Must be called once, before the first append; after an error the log is of no further use.
    pub fn replay(&mut self, visit: impl FnMut(Record) -> Result<(), String>) -> Result<Replayed, OpenError> {
        assert!(matches!(self.phase, Phase::Opened), "a log is replayed once");
        let (position, replayed) = recovery::replay(&mut self.disk, self.identity, self.position.segment, visit)?;
        self.position = position;
        self.stats.segment = self.position.segment;
        self.phase = Phase::Ready;
        Ok(replayed)
    }

    /// Writes records at the end, in one piece unless a segment is full. They are durable only after the next
    /// [`Log::sync`]. After an error the log is poisoned, and some of the records may turn up at the next start.
    pub fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
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

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Gives up the log. What was not synced is left as it is.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The disk below, for hosts that simulate one. Its files are the log's.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    fn check_phase(&self) -> Result<(), LogError> {
        match &self.phase {
            Phase::Ready => Ok(()),
            Phase::Poisoned(error) => Err(error.clone()),
            Phase::Opened => panic!("a log is replayed before it is written to"),
        }
    }

    fn poison_by(&mut self, result: Result<(), LogError>) -> Result<(), LogError> {
        if let Err(error) = &result {
            self.phase = Phase::Poisoned(error.clone());
        }
        result
    }

    fn write_records(&mut self, records: &[Record]) -> Result<(), LogError> {
        for record in records {
            let start = self.buffer.len();
            let encoded = self.encoder.encode(self.position.next_ordinal, record, &mut self.buffer);
            encoded.map_err(|bytes| LogError::RecordTooLarge { bytes })?;
            let filled = self.position.length + start as u64;
            let end = self.position.length + self.buffer.len() as u64;
            if end > self.config.segment_bytes && filled > HEADER_BYTES as u64 {
                let frame = self.buffer.split_off(start);
                self.write()?;
                self.rotate()?;
                self.buffer = frame;
            }
            self.position.pass(record);
        }
        Ok(self.write()?)
    }

    /// Finishes the segment and begins the next. In this order: a header is never durable before all records of the
    /// segment before it, and no record is written where header and name are not durable.
    fn rotate(&mut self) -> Result<(), DiskError> {
        assert!(self.buffer.is_empty(), "the finished segment has all its records");
        if self.unsynced {
            self.sync_file()?;
        }
        self.position.segment += 1;
        self.position.length = 0;
        self.stats.segment = self.position.segment;
        let header = self.header().encode();
        self.buffer.extend_from_slice(&header);
        self.write()?;
        self.sync_file()?;
        self.disk.sync_directory()?;
        assert_eq!(self.position.length, HEADER_BYTES as u64);
        Ok(())
    }

    /// Header of the segment that begins here.
    fn header(&self) -> Header {
        Header {
            cluster: self.position.cluster,
            node: self.identity.node,
            segment: self.position.segment,
            first_ordinal: self.position.next_ordinal,
        }
    }

    /// Empties the buffer into the segment.
    fn write(&mut self) -> Result<(), DiskError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.unsynced = true;
        self.disk.append(&segment::name(self.position.segment), &self.buffer)?;
        let bytes = self.buffer.len() as u64;
        self.position.length += bytes;
        self.stats.appends += 1;
        self.stats.bytes += bytes;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    fn sync_file(&mut self) -> Result<(), DiskError> {
        self.disk.sync(&segment::name(self.position.segment))?;
        self.unsynced = false;
        self.stats.syncs += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
