//! A snapshot: the state of a node in one file, in place of all segments before it.
//!
//! `0000000000000007.snapshot` replaces the segments before number 7. It has a header and frames as a segment has, but no slots, and
//! its ordinals are its own. It holds the node's identity, then its state, and last, twice, an end record.
//!
//! It is written under a temporary name while the log continues in segment 7 and later, from a state that keeps changing. So records
//! of those segments may be reflected in it already, up to the ordinal that its end record names; all of those are durable before the
//! snapshot gets its final name. Until then nothing depends on the snapshot; from then on nothing depends on the segments before it.

use super::disk::{Disk, DiskError};
use super::examine::Loss;
use super::frame::Encoder;
use super::log::Identity;
use super::places;
use super::reader::{Frame, Next, Reader};
use super::recovery::{self, OpenError, Replay};
use super::segment::{self, HEADER_BYTES, Header};
use super::slot::Owner;
use norn_model::record::{Kind, Place, Record};
use norn_model::snapshot::Moved;
use norn_model::task::Task;
use norn_wire::TaskId;
use std::ops::RangeInclusive;

const SUFFIX: &str = ".snapshot";
/// Suffix of a snapshot that is still being written.
const PARTIAL_SUFFIX: &str = ".snapshot.partial";
/// Memory that an emptied buffer keeps.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// File name of the snapshot that replaces all segments before this one.
pub fn name(segment: u64) -> String {
    segment::name(segment).replace(".log", SUFFIX)
}

/// Temporary name of an unfinished snapshot.
pub fn partial_name(segment: u64) -> String {
    segment::name(segment).replace(".log", PARTIAL_SUFFIX)
}

/// Number of the first segment that the snapshot with this file name does not replace.
pub fn number(file: &str) -> Option<u64> {
    segment::digits(file.strip_suffix(SUFFIX)?)
}

/// Whether a file is a snapshot that was never finished.
pub fn is_partial(file: &str) -> bool {
    file.ends_with(PARTIAL_SUFFIX)
}

/// Why a snapshot is not written. The log is unharmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The disk failed, or is full.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The log needs the room that is left.
    #[error("the disk has no room for it")]
    NoRoom,
    /// A record too large to be read back.
    #[error("a record of {0} bytes is too large")]
    RecordTooLarge(usize),
    /// Bodies of tasks cannot be read from their places. Until they are restored, the log must stay as it is.
    #[error("the bodies of {count} tasks cannot be read back")]
    BodiesLost {
        /// Number of tasks, in the whole state.
        count: u64,
        /// Tasks of the last part; the others were reported to the host before.
        last: Vec<TaskId>,
    },
}

/// Writes a snapshot. After any error it must not be used again.
#[derive(Debug)]
pub struct Writer {
    header: Header,
    length: u64,
    next_ordinal: u64,
    places: Vec<Place>,
    /// Ordinal of the first hint record; 0 if there is none.
    hints: u64,
    moved: Vec<Moved>,
    encoder: Encoder,
    /// Frames on their way to the disk; empty between calls.
    buffer: Vec<u8>,
}

impl Writer {
    /// Begins the snapshot that replaces all segments before the one with this header.
    pub fn begin<D: Disk>(disk: &mut D, segment: &Header) -> Result<Writer, DiskError> {
        let header = Header { slots: 0, ..*segment };
        let writer = Writer {
            header,
            length: HEADER_BYTES as u64,
            next_ordinal: 1,
            places: Vec::new(),
            hints: 0,
            moved: Vec::new(),
            encoder: Encoder::default(),
            buffer: Vec::new(),
        };
        let file = writer.partial_name();
        if disk.list()?.contains(&file) {
            disk.remove(&file)?;
        }
        disk.write(&file, 0, &header.encode())?;
        Ok(writer)
    }

    /// Name of the file being written.
    pub fn partial_name(&self) -> String {
        partial_name(self.header.segment)
    }

    /// Number of the first segment that the snapshot does not replace.
    pub fn segment(&self) -> u64 {
        self.header.segment
    }

    /// Bytes written so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds a part of the state, and syncs it: many small syncs delay other writes less than one large sync. Fails if less than
    /// `kept_bytes` would stay free.
    pub fn add<D: Disk>(&mut self, disk: &mut D, records: &[Record], kept_bytes: u64) -> Result<(), SnapshotError> {
        assert!(self.buffer.is_empty(), "frames stay in the buffer only within a call");
        for record in records {
            self.note_place(record);
            self.note_tasks(record);
            self.encoder
                .encode(self.next_ordinal, 0, record, &mut self.buffer)
                .map_err(SnapshotError::RecordTooLarge)?;
            self.next_ordinal += 1;
        }
        if disk.space()? < kept_bytes.saturating_add(self.buffer.len() as u64) {
            return Err(SnapshotError::NoRoom);
        }
        let file = self.partial_name();
        disk.write(&file, self.length, &self.buffer)?;
        disk.sync(&file)?;
        self.length += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    fn note_place(&mut self, record: &Record) {
        if self.hints == 0 && matches!(record, Record::Hint { .. } | Record::IdHint { .. }) {
            self.hints = self.next_ordinal;
        }
        let Some(partition) = record.partition() else { return };
        if self.places.last().is_none_or(|place| place.partition != partition) {
            assert!(self.places.last().is_none_or(|place| place.partition < partition), "partitions come in order");
            self.places.push(Place { partition, ..Place::default() });
        }
        let place = self.places.last_mut().expect("just added");
        match record {
            // `Left` implies what a data loss says: the replica has nothing.
            Record::DataLoss { .. } | Record::Left { .. } => place.data_loss = self.next_ordinal,
            Record::Vote { .. } => place.vote = self.next_ordinal,
            Record::Install { .. } => place.table = self.next_ordinal,
            // Where what was forgotten is lost, facts are incomplete, as if facts were lost.
            Record::Facts { .. } | Record::Forgot { .. } if place.facts == 0 => place.facts = self.next_ordinal,
            Record::Facts { .. } | Record::Forgot { .. } => {}
            other => panic!("{} is no record of state", other.kind()),
        }
    }

    /// Notes that bodies, results and log entries of these tasks can be read from here once the snapshot takes effect.
    fn note_tasks(&mut self, record: &Record) {
        let offset = self.length + self.buffer.len() as u64;
        let Record::Facts { partition, items } = record else { return };
        // Tombstones are mixed in between, for tasks whose bodies are not here. A task whose spec never came may have a result.
        let has_bodies = |task: &Task| task.spec.is_some() || task.blobs().any(|(_, blob)| !blob.is_small());
        let mut bodies = items.iter().filter(|(_, task)| has_bodies(task)).map(|(id, _)| *id);
        if let Some(first) = bodies.next()
            && let Some(place) = places::in_snapshot(self.header.segment, offset)
        {
            self.moved.push(Moved { partition: *partition, first, last: bodies.next_back().unwrap_or(first), place });
        }
    }

    /// Ends the snapshot and gives it its final name. Returns its bytes and the places of its tasks. All records of the log up to
    /// `covered` must be durable. Fails if less than `kept_bytes` would stay free.
    pub fn finish<D: Disk>(
        mut self,
        disk: &mut D,
        covered: u64,
        kept_bytes: u64,
    ) -> Result<(u64, Vec<Moved>), SnapshotError> {
        assert!(covered + 1 >= self.header.first_ordinal, "the log went on behind the segments that this stands for");
        let end = Record::End { covered, places: std::mem::take(&mut self.places), hints: self.hints };
        // Without the end record the extent of any other loss is unknown, so there are two.
        self.encoder.encode(self.next_ordinal, 0, &end, &mut self.buffer).map_err(SnapshotError::RecordTooLarge)?;
        let twice = [self.buffer.as_slice(), self.buffer.as_slice()].concat();
        if disk.space()? < kept_bytes.saturating_add(twice.len() as u64) {
            return Err(SnapshotError::NoRoom);
        }
        let file = self.partial_name();
        disk.write(&file, self.length, &twice)?;
        disk.sync(&file)?;
        disk.rename(&file, &name(self.header.segment))?;
        disk.sync_directory()?;
        Ok((self.length + twice.len() as u64, self.moved))
    }
}

/// Summary of a snapshot that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Its header: the log continues with `segment` and `first_ordinal`.
    pub header: Header,
    /// Records of the log up to this ordinal may be reflected in the snapshot already.
    pub covered: u64,
    /// Records of state.
    pub records: u64,
    /// Records of state that are missing.
    pub lost_records: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Reads the identity of the node that wrote the snapshot before segment `segment`.
pub fn read_identity<D: Disk>(disk: &D, segment: u64) -> Result<Identity, OpenError> {
    let mut found = None;
    let file = name(segment);
    let length = disk.length(&file)?;
    let header = read_header(disk, segment)?;
    let mut reader = Reader::new(disk, &file, HEADER_BYTES as u64, length);
    let offset = reader.offset();
    if let Next::Frame(frame) = reader.next()?
        && let Record::Identity { node, incarnation } = recovery::decode(&file, &frame)?
    {
        found = Some(Identity { node, incarnation });
    }
    match found {
        Some(identity) if identity.node == header.node => Ok(identity),
        _ => Err(damaged(&file, offset, "the snapshot does not begin with the node that its header names".into())),
    }
}

fn read_header<D: Disk>(disk: &D, segment: u64) -> Result<Header, OpenError> {
    let file = name(segment);
    let header = Header::decode_snapshot(&disk.read(&file, 0, HEADER_BYTES)?)
        .map_err(|fault| recovery::header_error(&file, fault))?;
    if header.segment != segment {
        let known = format!("it is that of the snapshot before segment {}", header.segment);
        return Err(OpenError::Foreign { file, known });
    }
    Ok(header)
}

/// Visits the records of state in a snapshot, and last the loss, if any.
pub fn read<D: Disk>(
    disk: &D,
    segment: u64,
    visit: &mut impl FnMut(Replay) -> Result<(), String>,
) -> Result<Summary, OpenError> {
    let file = name(segment);
    let (header, bytes) = (read_header(disk, segment)?, disk.length(&file)?);
    let mut reader = Reader::new(disk, &file, HEADER_BYTES as u64, bytes);
    let (mut next_ordinal, mut records) = (1, 0);
    let mut missing: Vec<RangeInclusive<u64>> = Vec::new();
    let mut damage = None;
    loop {
        let frame = match reader.next()? {
            Next::Frame(frame) => frame,
            Next::Damage(found) => {
                let known = recovery::describe(found.fault, Some(next_ordinal));
                damage = damage.or(Some((found.offset, known)));
                continue;
            }
            // Without its end record the extent of a loss is unknown.
            Next::End => {
                let (offset, known) = damage.unwrap_or((bytes, "the snapshot does not say that it ends here".into()));
                return Err(damaged(&file, offset, known));
            }
        };
        let Frame { offset, head, .. } = frame;
        let ordinal = head.ordinal;
        if ordinal < next_ordinal || ordinal > next_ordinal && damage.is_none() || ordinal == u64::MAX {
            return Err(damaged(&file, offset, format!("record {ordinal} is where {next_ordinal} should be")));
        }
        if ordinal > next_ordinal {
            missing.push(next_ordinal..=ordinal - 1);
        }
        next_ordinal = ordinal + 1;
        let record = recovery::decode(&file, &frame)?;
        if let Record::End { covered, places, hints } = record {
            if covered < header.first_ordinal - 1 {
                return Err(damaged(&file, offset, "the snapshot ends before it begins".into()));
            }
            if let Some((offset, known)) = damage {
                tell_loss(&file, offset, &known, lost(&missing, &places, hints), visit)?;
            }
            let lost_records = next_ordinal - 2 - records;
            return Ok(Summary { header, covered, records, lost_records, bytes });
        }
        records += 1;
        let place = places::in_snapshot(segment, offset);
        let taken = visit(Replay::Record { record, covered: false, again: false, place });
        taken.map_err(|cause| match &damage {
            None => OpenError::Refused { file: file.clone(), offset, ordinal, cause },
            // The node that wrote it accepted this record, and knew the lost ones.
            Some((offset, known)) => OpenError::Damaged {
                file: file.clone(),
                offset: *offset,
                known: format!("{known}, and no node goes on without it: {cause}"),
                loss: Loss::of_ranges(&missing),
            },
        })?;
    }
}

fn tell_loss(
    file: &str,
    offset: u64,
    known: &str,
    loss: Loss,
    visit: &mut impl FnMut(Replay) -> Result<(), String>,
) -> Result<(), OpenError> {
    if loss.is_empty() {
        return Ok(());
    }
    let told = visit(Replay::Lost { file: file.into(), offset, loss: loss.clone() });
    told.map_err(|cause| OpenError::Damaged { file: file.into(), offset, known: format!("{known}; {cause}"), loss })
}

/// Owners of the missing records. Each range counts as one record of each kind that may have been in it, so the time depends on the
/// number of partitions and not on the size of the damage. Records of the node come before those of the first partition; hint
/// records, from `hints` on if that is not 0, come last.
pub fn lost(missing: &[RangeInclusive<u64>], places: &[Place], hints: u64) -> Loss {
    let mut loss = Loss::default();
    for range in missing {
        let (from, to) = (*range.start(), *range.end());
        loss.ranges.push((from, to));
        let first_of = |place: &Place| {
            [place.data_loss, place.vote, place.table, place.facts].into_iter().filter(|at| *at > 0).min()
        };
        let behind = if hints > 0 { hints } else { u64::MAX };
        if to >= behind {
            *loss.owners.entry((Owner::Node, Kind(b'H'))).or_default() += 1;
        }
        if from < places.first().and_then(first_of).unwrap_or(behind) {
            *loss.owners.entry((Owner::Node, Kind::UNKNOWN)).or_default() += 1;
        }
        for (number, place) in places.iter().enumerate() {
            let owner = Owner::Partition(place.partition);
            let mut add = |kind| *loss.owners.entry((owner, Kind(kind))).or_default() += 1;
            for (at, kind) in [(place.data_loss, b'W'), (place.vote, b'V'), (place.table, b'T')] {
                if range.contains(&at) {
                    add(kind);
                }
            }
            let end = places[number + 1..].iter().find_map(first_of).unwrap_or(behind);
            if place.facts > 0 && from < end && to >= place.facts {
                add(b'F');
            }
        }
    }
    loss
}

fn damaged(file: &str, offset: u64, known: String) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, known, loss: Loss::untold() }
}

#[cfg(test)]
mod tests;
