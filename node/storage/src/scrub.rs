//! Scrubbing: reads finished segments and the snapshot in the background, a little at a time, so that damage is found while the node
//! is running, still has the state in memory, and can write it again.
//!
//! The thread that appends calls [`Log::scrub`] between appends, so no file is removed while it is read, and the current segment is
//! never looked at. Damage makes a snapshot due at once: the state is in memory, and the damaged file is removed with all others
//! before the snapshot. Bodies that exist only in the damaged place prevent the snapshot; the core learns of all of them and asks its
//! peers, and the next pass, which comes soon, finds the damage again and begins the next attempt. A body that no peer has stays
//! lost: the task is not granted here, and the damage is reported in every pass.
//!
//! No call reads more than a piece and a record, however long the damage is, as no commit happens meanwhile. Each piece is dropped
//! from the page cache before it is read, so that the disk itself is read; it is not dropped afterwards, so that bodies which are
//! loaded repeatedly stay cached but for that moment.
//!
//! Records that the snapshot replaces are no longer needed. So damage that a scrub finds does harm only if another crash comes before
//! it is repaired.

use super::disk::{Disk, DiskError};
use super::frame::Fault;
use super::log::{Log, LogError};
use super::reader::{READ_BYTES, Reader};
use super::recovery::{describe, header_fault};
use super::segment::{self, HEADER_BYTES, Header};
use super::slot::{Owner, SLOT_BYTES, Slot};
use super::snapshot;
use super::stuffing::SENTINEL;
use norn_model::record::Record;
use std::collections::BTreeSet;
use std::fmt;

/// Bytes read between two appends.
pub const SCRUB_BYTES: u64 = READ_BYTES as u64;
/// After damage the next pass comes this many times sooner, to see whether the damage is repaired, and to try once more.
const SOON: u64 = 60;
/// Passes in a row with damage that come soon, not counting those after which fewer bodies were lost than before. Later ones come at
/// growing intervals: damage that is not repaired by then may never be, and each attempt writes a good part of a snapshot.
const SOON_MAX: u32 = 32;
/// Pause after a failed read, in microseconds.
const FAILED_PAUSE_US: u64 = 1_000_000;
/// A place is damaged if the disk reports it lost this many times in a row. A temporary shortage in the process, such as of file
/// handles, is not damage, however often it occurs.
const FAILURES_MAX: u32 = 10;
/// Most missing records whose owners are looked up.
const OWNERS_MAX: u64 = 10_000;

/// Damage in a file that was whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rot {
    /// The file.
    pub file: String,
    /// Offset where it begins.
    pub offset: u64,
    /// Description of the damage.
    pub known: String,
    /// Owners of the records that may be affected; `None` if unknown, so any. In a snapshot, only the first and the last partition of
    /// the range are named; all between them may be affected.
    pub owners: Option<BTreeSet<Owner>>,
}

impl fmt::Display for Rot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file, self.offset, self.known)?;
        let Some(owners) = &self.owners else { return formatter.write_str(" (records of any partition)") };
        let owners: Vec<String> = owners.iter().map(Owner::to_string).collect();
        if owners.is_empty() { Ok(()) } else { write!(formatter, " (records of {})", owners.join(", ")) }
    }
}

/// Result of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage found; only the first of each file.
    pub rot: Option<Rot>,
    /// A pass is complete: all files were read since the last time this was set.
    pub over: bool,
    /// At the end of a pass: the last snapshot lacked fewer bodies than at the end of the pass before.
    pub mends: bool,
    /// A read that failed, perhaps only for now.
    pub failed: Option<DiskError>,
}

/// Rate of scrubbing, and when the next piece is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPace {
    /// Bytes per second; 0 turns scrubbing off.
    pub bytes_per_second: u64,
    /// Pause between two passes, so that a small log is not read all the time.
    pub rest_us: u64,
    due_us: u64,
    /// This pass has found damage.
    found: bool,
    /// Passes before it, in a row, that found damage without any progress.
    found_before: u32,
}

impl ScrubPace {
    /// The first pass begins after a rest, because a start has just read everything.
    pub fn new(bytes_per_second: u64, rest_us: u64) -> ScrubPace {
        ScrubPace { bytes_per_second, rest_us, due_us: rest_us, found: false, found_before: 0 }
    }

    /// Time at which the next piece is due.
    pub fn due_us(&self) -> Option<u64> {
        (self.bytes_per_second > 0).then_some(self.due_us)
    }

    /// Schedules the next piece after one was read.
    pub fn scrubbed(&mut self, now_us: u64, scrubbed: &Scrubbed) {
        let taken_us = scrubbed.bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second).unwrap_or(0);
        self.found |= scrubbed.rot.is_some();
        let pause_us = match scrubbed.over {
            true if std::mem::take(&mut self.found) => {
                self.found_before = self.found_before.saturating_add(u32::from(!scrubbed.mends));
                let later = self.found_before.saturating_sub(SOON_MAX).min(16);
                (self.rest_us / SOON).max(1).saturating_mul(1 << later).min(self.rest_us)
            }
            true => {
                self.found_before = 0;
                self.rest_us
            }
            false if scrubbed.failed.is_some() => FAILED_PAUSE_US,
            false => taken_us,
        };
        self.due_us = now_us.saturating_add(pause_us.max(1));
    }
}

/// Position of the scrub.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The file that is being read.
    reading: Option<Reading>,
    /// Number of the file that was read last: twice the number of a segment, one less for a snapshot.
    last: u64,
    /// Bodies that the last snapshot lacked at the end of the previous pass.
    lacked: u64,
}

#[derive(Debug, Default)]
struct Reading {
    file: String,
    /// As [`Scrub::last`].
    number: u64,
    /// `None` before it is read.
    header: Option<Header>,
    /// Offset of the next item.
    offset: u64,
    next_ordinal: u64,
    /// For a segment: the first ordinal of the next one, if known.
    end: Option<u64>,
    /// Offset of the last whole frame.
    last: Option<u64>,
    /// The search for the next frame, if `offset` is in one.
    search: Option<Search>,
    /// Failed reads in a row.
    failures: u32,
    /// Bytes read and not yet reported.
    bytes: u64,
}

/// Search for the next whole frame after a place without one. The frame, or the end of the file, shows which records are lost there.
#[derive(Debug, Clone, Copy)]
struct Search {
    /// Offset where the search began.
    offset: u64,
    /// The fault there.
    fault: Fault,
    /// Only zeroes so far: free space, if the file ends so.
    zeroes: bool,
    /// Bytes to skip first: the sentinel at the offset does not begin a frame.
    ahead: usize,
}

/// Order of a file among the log's files.
fn number(file: &str) -> Option<u64> {
    let of_snapshot = snapshot::number(file).and_then(|segment| segment.checked_mul(2)).map(|number| number - 1);
    of_snapshot.or_else(|| segment::number(file)?.checked_mul(2))
}

impl<D: Disk> Log<D> {
    /// Reads about [`SCRUB_BYTES`] more of the finished files. Returns an error only if the log had stopped before; a place that
    /// cannot be read repeatedly counts as damage.
    pub fn scrub(&mut self) -> Result<Scrubbed, LogError> {
        self.check_phase()?;
        let mut scrubbed = Scrubbed::default();
        if let Err(error) = self.scrub_on(&mut scrubbed) {
            scrubbed.rot = self.scrub.reading.as_mut().and_then(|reading| reading.failed(&error));
            scrubbed.failed = Some(error);
        }
        if let Some(rot) = &scrubbed.rot {
            self.want_snapshot(number(&rot.file).map(|number| number.div_ceil(2)));
            self.end_file();
        }
        Ok(scrubbed)
    }

    fn end_file(&mut self) {
        if let Some(reading) = self.scrub.reading.take() {
            self.scrub.last = reading.number;
        }
    }

    fn scrub_on(&mut self, scrubbed: &mut Scrubbed) -> Result<(), DiskError> {
        let files = self.disk().list()?;
        let lies_still = |number: u64| number < self.position().segment.saturating_mul(2);
        let still = files.iter().filter(|file| !self.is_obsolete(file));
        let mut still: Vec<(u64, &String)> = still.filter_map(|file| Some((number(file)?, file))).collect();
        still.retain(|(number, _)| lies_still(*number));
        still.sort_unstable();
        // A snapshot may have replaced the file since the last call.
        if self.scrub.reading.as_ref().is_some_and(|reading| still.iter().all(|(_, file)| **file != reading.file)) {
            self.scrub.reading = None;
        }
        if self.scrub.reading.is_none() {
            let next = still.into_iter().find(|(number, _)| *number > self.scrub.last);
            let expected = (self.scrub.last / 2 + 1) * 2;
            let behind = next.map_or(self.position().segment.saturating_mul(2), |(number, _)| number);
            // A snapshot may have any number, so there is no gap before it.
            if behind.is_multiple_of(2) && expected < behind {
                let (file, known) = (segment::name(expected / 2), "the file is not there".into());
                scrubbed.rot = Some(Rot { file, offset: 0, known, owners: None });
                // Of several missing files in a row only the first is reported.
                self.scrub.last = behind - 2;
                return Ok(());
            }
            let Some((number, file)) = next else {
                let lacked = self.bodies_lacked();
                scrubbed.mends = lacked < self.scrub.lacked;
                scrubbed.over = true;
                (self.scrub.last, self.scrub.lacked) = (0, lacked);
                return Ok(());
            };
            let file = file.clone();
            self.scrub.reading = Some(Reading { file, number, next_ordinal: 1, ..Reading::default() });
        }
        let mut reading = self.scrub.reading.take().expect("just seen to it");
        let read = reading.read_on(self.disk(), self.position().header);
        scrubbed.bytes = std::mem::take(&mut reading.bytes);
        if read.is_ok() {
            reading.failures = 0;
        }
        self.scrub.reading = Some(reading);
        match read? {
            Step::On => {}
            Step::End => self.end_file(),
            Step::Rot(rot) => scrubbed.rot = Some(rot),
        }
        Ok(())
    }
}

/// Result of reading a piece.
enum Step {
    On,
    End,
    Rot(Rot),
}

impl Reading {
    fn is_snapshot(&self) -> bool {
        self.number % 2 == 1
    }

    fn rot(&self, offset: u64, known: String, owners: Option<BTreeSet<Owner>>) -> Step {
        Step::Rot(Rot { file: self.file.clone(), offset, known, owners })
    }

    /// Counts a failed read. Returns damage if there were too many in a row.
    fn failed(&mut self, error: &DiskError) -> Option<Rot> {
        if !error.lost || error.file != self.file {
            return None;
        }
        self.failures += 1;
        let offset = self.search.map_or(self.offset, |search| search.offset);
        let rot = || Rot { file: self.file.clone(), offset, known: error.to_string(), owners: None };
        (self.failures >= FAILURES_MAX).then(rot)
    }

    /// Reads from the disk itself, as [`Reader::cold`] does.
    fn read<D: Disk>(&mut self, disk: &D, offset: u64, length: usize) -> Result<Vec<u8>, DiskError> {
        disk.forget(&self.file, offset, length);
        let bytes = disk.read(&self.file, offset, length)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }

    /// Reads a piece. `current` is the header of the current segment.
    fn read_on<D: Disk>(&mut self, disk: &D, current: Header) -> Result<Step, DiskError> {
        let Some(header) = self.header else { return self.read_header(disk, current) };
        if self.offset < header.records_offset() && !self.is_snapshot() {
            return self.read_slots(disk, &header);
        }
        match self.search {
            Some(search) => self.search_on(disk, &header, search),
            None => self.read_frames(disk, &header),
        }
    }

    fn read_header<D: Disk>(&mut self, disk: &D, current: Header) -> Result<Step, DiskError> {
        let bytes = self.read(disk, 0, HEADER_BYTES)?;
        let decoded = if self.is_snapshot() { Header::decode_snapshot(&bytes) } else { Header::decode(&bytes) };
        let header = match decoded {
            Ok(header) if header.segment == self.number.div_ceil(2) && header.node == current.node => header,
            Ok(_) => return Ok(self.rot(0, "the header is that of another file".into(), None)),
            Err(fault) => return Ok(self.rot(0, header_fault(fault), None)),
        };
        if !self.is_snapshot() {
            self.next_ordinal = header.first_ordinal;
            self.end = if header.segment + 1 == current.segment {
                Some(current.first_ordinal)
            } else {
                // A fault of the next header is found in its turn.
                match disk.read(&segment::name(header.segment + 1), 0, HEADER_BYTES) {
                    Ok(next) => Header::decode(&next).ok().map(|next| next.first_ordinal),
                    Err(error) if error.lost => None,
                    Err(error) => return Err(error),
                }
            };
        }
        self.offset = HEADER_BYTES as u64;
        self.header = Some(header);
        Ok(Step::On)
    }

    /// Checks the second copies of heads: each record of a finished segment has one.
    fn read_slots<D: Disk>(&mut self, disk: &D, header: &Header) -> Result<Step, DiskError> {
        let first = header.first_ordinal + (self.offset - HEADER_BYTES as u64) / SLOT_BYTES as u64;
        let end = self.end.unwrap_or(first);
        let count = end.saturating_sub(first).min(u64::from(header.slots)).min(SCRUB_BYTES / SLOT_BYTES as u64);
        let bytes = self.read(disk, self.offset, count as usize * SLOT_BYTES)?;
        for (place, ordinal) in (first..first + count).enumerate() {
            let slot = bytes.get(place * SLOT_BYTES..).and_then(|rest| rest.first_chunk()).and_then(Slot::decode);
            if slot.is_none_or(|slot| slot.ordinal != ordinal) {
                // The record itself is not affected.
                let (offset, nobody) = (header.slot_offset(ordinal), Some(BTreeSet::new()));
                return Ok(self.rot(offset, format!("the second head of record {ordinal} is damaged"), nobody));
            }
        }
        let left = first + count < end && header.has_slot(first + count);
        self.offset = if left { self.offset + count * SLOT_BYTES as u64 } else { header.records_offset() };
        Ok(Step::On)
    }

    /// Reads the frames in one window, or one record that is larger.
    fn read_frames<D: Disk>(&mut self, disk: &D, header: &Header) -> Result<Step, DiskError> {
        let (file, length) = (self.file.clone(), disk.length(&self.file)?);
        let mut reader = Reader::cold(disk, &file, self.offset, length);
        let step = loop {
            let offset = reader.offset();
            if offset >= length {
                break self.end_of_frames(disk, header, offset)?;
            }
            let frame = match reader.frame()? {
                Ok(frame) => frame,
                Err(fault) => {
                    let zeroes = fault == Fault::Rubbish;
                    self.search = Some(Search { offset, fault, zeroes, ahead: usize::from(!zeroes) });
                    break Step::On;
                }
            };
            let ordinal = frame.head.ordinal;
            let repeated = self.last.is_some() && ordinal.checked_add(1) == Some(self.next_ordinal);
            if ordinal != self.next_ordinal && !repeated {
                let known = format!("record {ordinal} is where {} should be", self.next_ordinal);
                let owners = self.owners(disk, header, (ordinal, Record::decode(frame.body).ok()))?;
                break self.rot(offset, known, owners);
            }
            self.next_ordinal = ordinal.saturating_add(1);
            (self.last, self.offset) = (Some(offset), reader.offset());
            if !reader.has_next() {
                break Step::On;
            }
        };
        self.bytes += reader.read_bytes();
        Ok(step)
    }

    /// Continues a search for about a window. Damage found ends the file's part of the pass, so searched bytes are not read twice.
    fn search_on<D: Disk>(&mut self, disk: &D, header: &Header, mut search: Search) -> Result<Step, DiskError> {
        let (file, length, from) = (self.file.clone(), disk.length(&self.file)?, self.offset);
        let mut reader = Reader::cold(disk, &file, from, length);
        let known = describe(search.fault, Some(self.next_ordinal));
        let step = loop {
            if reader.offset() + SENTINEL.len() as u64 > from + SCRUB_BYTES {
                (self.offset, self.search) = (reader.offset(), Some(search));
                break Step::On;
            }
            let sought = reader.seek(std::mem::take(&mut search.ahead))?;
            search.zeroes &= sought.zeroes;
            if !sought.there {
                continue;
            }
            if reader.offset() >= length && search.zeroes {
                break self.end_of_frames(disk, header, search.offset)?;
            } else if reader.offset() >= length {
                break self.rot(search.offset, known, self.owners_up_to_end(disk, header)?);
            }
            if let Ok(frame) = reader.frame()? {
                let behind = (frame.head.ordinal, Record::decode(frame.body).ok());
                break self.rot(search.offset, known, self.owners(disk, header, behind)?);
            }
            (search.zeroes, search.ahead) = (false, 1);
        };
        self.bytes += reader.read_bytes();
        Ok(step)
    }

    /// Handles the end of the frames at this offset.
    fn end_of_frames<D: Disk>(&self, disk: &D, header: &Header, offset: u64) -> Result<Step, DiskError> {
        let next = self.next_ordinal;
        if self.is_snapshot() {
            let last = self.last.map(|offset| record_at(disk, &self.file, offset)).transpose()?.flatten();
            if !matches!(last, Some(Record::End { .. })) {
                return Ok(self.rot(offset, "the snapshot does not say that it ends here".into(), None));
            }
        } else if self.end.is_some_and(|end| end != next) {
            let owners = self.owners_up_to_end(disk, header)?;
            return Ok(self.rot(offset, format!("the segment ends before record {next}"), owners));
        }
        Ok(Step::End)
    }

    /// Owners of the missing records if no more frames follow.
    fn owners_up_to_end<D: Disk>(&self, disk: &D, header: &Header) -> Result<Option<BTreeSet<Owner>>, DiskError> {
        match self.end {
            Some(end) => owners_of(disk, &self.file, header, self.next_ordinal..end),
            None => Ok(None),
        }
    }

    /// Owners of the missing records before the next whole one, which is given with its ordinal.
    fn owners<D: Disk>(
        &self,
        disk: &D,
        header: &Header,
        (ordinal, behind): (u64, Option<Record>),
    ) -> Result<Option<BTreeSet<Owner>>, DiskError> {
        if !self.is_snapshot() {
            return owners_of(disk, &self.file, header, self.next_ordinal..ordinal);
        }
        // A snapshot has the node's records first, then the partitions in order, then the hints that the node keeps for others.
        let is_late =
            |record: &Record| matches!(record, Record::Hint { .. } | Record::IdHint { .. } | Record::End { .. });
        let before = match self.last {
            Some(offset) => record_at(disk, &self.file, offset)?,
            None => Some(Record::Boot { count: 0 }),
        };
        let (Some(before), Some(behind)) = (before, behind) else { return Ok(None) };
        // Between a partition and the later records, any other partition may be missing.
        let known = !is_late(&behind) || is_late(&before) || ordinal <= self.next_ordinal;
        Ok(known.then(|| BTreeSet::from([Owner::of(&before), Owner::of(&behind)])))
    }
}

/// The record at an offset.
fn record_at<D: Disk>(disk: &D, file: &str, offset: u64) -> Result<Option<Record>, DiskError> {
    Ok(match Reader::new(disk, file, offset, disk.length(file)?).frame()? {
        Ok(frame) => Record::decode(frame.body).ok(),
        Err(_) => None,
    })
}

/// Owners of these records according to their second heads; `None` if any of the heads is missing.
fn owners_of<D: Disk>(
    disk: &D,
    file: &str,
    header: &Header,
    ordinals: std::ops::Range<u64>,
) -> Result<Option<BTreeSet<Owner>>, DiskError> {
    let Some(count) = ordinals.end.checked_sub(ordinals.start).filter(|count| *count <= OWNERS_MAX) else {
        return Ok(None);
    };
    if count == 0 {
        return Ok(Some(BTreeSet::new()));
    } else if !header.has_slot(ordinals.start) || !header.has_slot(ordinals.end - 1) {
        return Ok(None);
    }
    let bytes = match disk.read(file, header.slot_offset(ordinals.start), count as usize * SLOT_BYTES) {
        Err(error) if error.lost => return Ok(None),
        bytes => bytes?,
    };
    let slot = |(place, ordinal)| {
        let slot = Slot::decode(bytes.get(place * SLOT_BYTES..)?.first_chunk()?)?;
        (slot.ordinal == ordinal).then_some(slot.owner)
    };
    Ok(ordinals.enumerate().map(slot).collect())
}

#[cfg(test)]
mod tests;
