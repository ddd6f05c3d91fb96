//! Reading what lies still, a little at a time: finished segments and the snapshot, so that damage is found while the
//! node runs, knows what was there, and can write it once more.
//!
//! The one who appends calls [`Log::scrub`] between appends, so no file goes while it is read, and what is being written is
//! never looked at. Damage makes a snapshot due at once: the state is in memory, and the damaged file goes with all others
//! before the snapshot. Bodies that stand in the damaged place alone keep it from being written; the core is told of those
//! and asks its peers, and the next pass, which comes soon, finds the damage again and begins the next attempt. What nobody
//! has stays lost: the task is not granted here, and the damage is told in every pass.
//!
//! A record that the snapshot stands for is not missed by anybody, so the only harm of damage that a scrub finds is what
//! another crash would have made of it.

use super::disk::{Disk, DiskError};
use super::log::{Log, LogError};
use super::reader::{Next, READ_BYTES, Reader};
use super::recovery::{describe, header_fault};
use super::segment::{self, HEADER_BYTES, Header};
use super::slot::{Owner, SLOT_BYTES, Slot};
use super::snapshot;
use crate::protocol::record::Record;
use std::collections::BTreeSet;
use std::fmt;

/// Bytes that are read between two appends.
pub const SCRUB_BYTES: u64 = READ_BYTES as u64;
/// After damage the next pass comes so many times sooner, to see whether that is made good, and to try once more.
const SOON: u64 = 60;
/// So many passes come soon: each brings the bodies back that one part of the state lacks. What is not made good by then
/// may never be, and each attempt writes a good part of a snapshot.
const SOON_MAX: u32 = 32;
/// After a failed read.
const FAILED_PAUSE_US: u64 = 1_000_000;
/// A place that cannot be read so many times running is damaged. What the process lacks for a while, such as handles of
/// files, is no damage.
const FAILURES_MAX: u32 = 10;
/// Whose records are missing is looked up for so many of them.
const OWNERS_MAX: u64 = 10_000;

/// Damage in a file that was whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rot {
    /// The file.
    pub file: String,
    /// Where it begins.
    pub offset: u64,
    /// What it is.
    pub known: String,
    /// Whose records may be hit. In a snapshot, those of all partitions between the first and the last.
    pub owners: BTreeSet<Owner>,
}

impl fmt::Display for Rot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file, self.offset, self.known)?;
        let owners: Vec<String> = self.owners.iter().map(Owner::to_string).collect();
        if owners.is_empty() { Ok(()) } else { write!(formatter, " (records of {})", owners.join(", ")) }
    }
}

/// What a call has come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage; of one file only the first.
    pub rot: Option<Rot>,
    /// All files were read since this was said last.
    pub over: bool,
    /// The disk could not read just now.
    pub failed: bool,
}

/// How fast a host scrubs, and when it must go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPace {
    /// Bytes in a second; 0: never.
    pub bytes_per_second: u64,
    /// Between the end of a pass and the next one, so that a small log is not read all the time.
    pub rest_us: u64,
    due_us: u64,
    /// This pass has found damage.
    found: bool,
    /// So did so many before it.
    found_before: u32,
}

impl ScrubPace {
    /// The first pass begins after a rest: a start has just read everything.
    pub fn new(bytes_per_second: u64, rest_us: u64) -> ScrubPace {
        ScrubPace { bytes_per_second, rest_us, due_us: rest_us, found: false, found_before: 0 }
    }

    /// When the next piece is due.
    pub fn due_us(&self) -> Option<u64> {
        (self.bytes_per_second > 0).then_some(self.due_us)
    }

    /// A piece was read.
    pub fn scrubbed(&mut self, now_us: u64, scrubbed: &Scrubbed) {
        let taken_us = scrubbed.bytes.saturating_mul(1_000_000).checked_div(self.bytes_per_second).unwrap_or(0);
        self.found |= scrubbed.rot.is_some();
        let pause_us = match scrubbed.over {
            true if std::mem::take(&mut self.found) => {
                self.found_before = self.found_before.saturating_add(1);
                let later = self.found_before.saturating_sub(SOON_MAX).min(16);
                (self.rest_us / SOON).max(1).saturating_mul(1 << later).min(self.rest_us)
            }
            true => {
                self.found_before = 0;
                self.rest_us
            }
            false if scrubbed.failed => FAILED_PAUSE_US,
            false => taken_us,
        };
        self.due_us = now_us.saturating_add(pause_us.max(1));
    }
}

/// Where the scrub is.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The file that is being read.
    reading: Option<Reading>,
    /// The number of the file that was read last: 2 for each segment, one less for a snapshot.
    last: u64,
    /// So many reads of the same place have failed.
    failures: u32,
}

#[derive(Debug)]
struct Reading {
    file: String,
    /// As [`Scrub::last`].
    number: u64,
    /// None before it is read.
    header: Option<Header>,
    /// What comes next.
    offset: u64,
    next_ordinal: u64,
    /// Of a segment: the first record of the next one, if that is known.
    end: Option<u64>,
    /// The last frame that was whole.
    last: Option<u64>,
}

/// Order among files.
fn number(file: &str) -> Option<u64> {
    let of_snapshot = snapshot::number(file).and_then(|segment| segment.checked_mul(2)).map(|number| number - 1);
    of_snapshot.or_else(|| segment::number(file)?.checked_mul(2))
}

impl<D: Disk> Log<D> {
    /// Reads on through what lies still, about [`SCRUB_BYTES`]. An error is that of a log that had stopped before: a place that
    /// cannot be read again and again is damage.
    pub fn scrub(&mut self) -> Result<Scrubbed, LogError> {
        self.check_phase()?;
        let mut scrubbed = Scrubbed::default();
        match self.scrub_on(&mut scrubbed) {
            Ok(()) => self.scrub.failures = 0,
            Err(error) => {
                scrubbed.failed = true;
                self.scrub.failures += 1;
                if let Some(reading) = self.scrub.reading.as_ref().filter(|_| self.scrub.failures >= FAILURES_MAX) {
                    let (file, offset) = (reading.file.clone(), reading.offset);
                    scrubbed.rot = Some(Rot { file, offset, known: error.to_string(), owners: BTreeSet::new() });
                    self.scrub.failures = 0;
                }
            }
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
        // A snapshot may have taken its place since the last call.
        if self.scrub.reading.as_ref().is_some_and(|reading| still.iter().all(|(_, file)| **file != reading.file)) {
            self.scrub.reading = None;
        }
        if self.scrub.reading.is_none() {
            let Some((number, file)) = still.into_iter().find(|(number, _)| *number > self.scrub.last) else {
                self.scrub.last = 0;
                scrubbed.over = true;
                return Ok(());
            };
            let (header, offset, next_ordinal, end, last) = (None, 0, 1, None, None);
            let file = file.clone();
            self.scrub.reading = Some(Reading { file, number, header, offset, next_ordinal, end, last });
        }
        let mut reading = self.scrub.reading.take().expect("just seen to it");
        let before = reading.offset;
        let read = reading.read_on(self.disk(), self.position().header);
        scrubbed.bytes = reading.offset - before;
        self.scrub.reading = Some(reading);
        match read? {
            Step::On => {}
            Step::End => self.end_file(),
            Step::Rot(rot) => scrubbed.rot = Some(rot),
        }
        Ok(())
    }
}

/// What reading a piece has come to.
enum Step {
    On,
    End,
    Rot(Rot),
}

impl Reading {
    fn is_snapshot(&self) -> bool {
        self.number % 2 == 1
    }

    fn rot(&self, offset: u64, known: String, owners: BTreeSet<Owner>) -> Step {
        Step::Rot(Rot { file: self.file.clone(), offset, known, owners })
    }

    /// Reads a piece. `current` is the header of the segment that is being written.
    fn read_on<D: Disk>(&mut self, disk: &D, current: Header) -> Result<Step, DiskError> {
        let Some(header) = self.header else { return self.read_header(disk, current) };
        if self.offset < header.records_offset() && !self.is_snapshot() {
            return self.read_slots(disk, &header);
        }
        self.read_frames(disk, &header)
    }

    fn read_header<D: Disk>(&mut self, disk: &D, current: Header) -> Result<Step, DiskError> {
        disk.forget(&self.file);
        let bytes = disk.read(&self.file, 0, HEADER_BYTES)?;
        let decoded = if self.is_snapshot() { Header::decode_snapshot(&bytes) } else { Header::decode(&bytes) };
        let header = match decoded {
            Ok(header) if header.segment == self.number.div_ceil(2) && header.node == current.node => header,
            Ok(_) => return Ok(self.rot(0, "the header is that of another file".into(), BTreeSet::new())),
            Err(fault) => return Ok(self.rot(0, header_fault(fault), BTreeSet::new())),
        };
        if !self.is_snapshot() {
            self.next_ordinal = header.first_ordinal;
            self.end = if header.segment + 1 == current.segment {
                Some(current.first_ordinal)
            } else {
                let next = disk.read(&segment::name(header.segment + 1), 0, HEADER_BYTES)?;
                Header::decode(&next).ok().map(|next| next.first_ordinal)
            };
        }
        self.offset = HEADER_BYTES as u64;
        self.header = Some(header);
        Ok(Step::On)
    }

    /// Second copies of heads: each record of a finished segment has one.
    fn read_slots<D: Disk>(&mut self, disk: &D, header: &Header) -> Result<Step, DiskError> {
        let first = header.first_ordinal + (self.offset - HEADER_BYTES as u64) / SLOT_BYTES as u64;
        let end = self.end.unwrap_or(first);
        let count = end.saturating_sub(first).min(u64::from(header.slots)).min(SCRUB_BYTES / SLOT_BYTES as u64);
        let bytes = disk.read(&self.file, self.offset, count as usize * SLOT_BYTES)?;
        for (place, ordinal) in (first..first + count).enumerate() {
            let slot = bytes.get(place * SLOT_BYTES..).and_then(|rest| rest.first_chunk()).and_then(Slot::decode);
            if slot.is_none_or(|slot| slot.ordinal != ordinal) {
                let offset = header.slot_offset(ordinal);
                return Ok(self.rot(
                    offset,
                    format!("the second head of record {ordinal} is damaged"),
                    BTreeSet::new(),
                ));
            }
        }
        let left = first + count < end && header.has_slot(first + count);
        self.offset = if left { self.offset + count * SLOT_BYTES as u64 } else { header.records_offset() };
        Ok(Step::On)
    }

    fn read_frames<D: Disk>(&mut self, disk: &D, header: &Header) -> Result<Step, DiskError> {
        let (file, from) = (self.file.clone(), self.offset);
        let mut reader = Reader::new(disk, &file, from, disk.length(&file)?);
        while reader.offset() < from + SCRUB_BYTES {
            let known = match reader.next()? {
                Next::End => return self.end_of_frames(disk, header),
                Next::Damage(damage) => {
                    let known = describe(damage.fault, Some(self.next_ordinal));
                    let offset = damage.offset;
                    let owners = self.owners(disk, header, &mut reader)?;
                    return Ok(self.rot(offset, known, owners));
                }
                Next::Frame(frame) => {
                    let (ordinal, offset) = (frame.head.ordinal, frame.offset);
                    let repeated = self.last.is_some() && ordinal.checked_add(1) == Some(self.next_ordinal);
                    if ordinal == self.next_ordinal || repeated {
                        self.next_ordinal = ordinal.saturating_add(1);
                        self.last = Some(offset);
                        None
                    } else {
                        Some((offset, format!("record {ordinal} is where {} should be", self.next_ordinal)))
                    }
                }
            };
            if let Some((offset, known)) = known {
                let owners = self.owners(disk, header, &mut reader)?;
                return Ok(self.rot(offset, known, owners));
            }
            self.offset = reader.offset();
        }
        Ok(Step::On)
    }

    fn end_of_frames<D: Disk>(&self, disk: &D, header: &Header) -> Result<Step, DiskError> {
        let next = self.next_ordinal;
        if self.is_snapshot() {
            let last = self.last.map(|offset| record_at(disk, &self.file, offset)).transpose()?.flatten();
            if !matches!(last, Some(Record::End { .. })) {
                let known = "the snapshot does not say that it ends here".to_owned();
                return Ok(self.rot(self.offset, known, BTreeSet::new()));
            }
        } else if let Some(end) = self.end.filter(|end| *end != next) {
            let owners = owners_of(disk, &self.file, header, next..end)?;
            return Ok(self.rot(self.offset, format!("the segment ends before record {next}"), owners));
        }
        Ok(Step::End)
    }

    /// Whose records are missing in front of the next one that is whole.
    fn owners<D: Disk>(
        &self,
        disk: &D,
        header: &Header,
        reader: &mut Reader<'_, D>,
    ) -> Result<BTreeSet<Owner>, DiskError> {
        let behind = loop {
            match reader.next()? {
                Next::Frame(frame) => break Some((frame.head.ordinal, frame.offset)),
                Next::Damage(_) => {}
                Next::End => break None,
            }
        };
        if !self.is_snapshot() {
            let end = behind.map(|(ordinal, _)| ordinal).or(self.end).unwrap_or(self.next_ordinal + 1);
            return owners_of(disk, &self.file, header, self.next_ordinal..end);
        }
        // Its partitions are in order.
        let beside = [self.last, behind.map(|(_, offset)| offset)];
        let mut owners = BTreeSet::new();
        for offset in beside.into_iter().flatten() {
            owners.extend(record_at(disk, &self.file, offset)?.map(|record| Owner::of(&record)));
        }
        Ok(owners)
    }
}

/// The record that stands there.
fn record_at<D: Disk>(disk: &D, file: &str, offset: u64) -> Result<Option<Record>, DiskError> {
    Ok(match Reader::new(disk, file, offset, disk.length(file)?).next()? {
        Next::Frame(frame) => Record::decode(frame.body).ok(),
        Next::Damage(_) | Next::End => None,
    })
}

/// What the second heads say whose these records are.
fn owners_of<D: Disk>(
    disk: &D,
    file: &str,
    header: &Header,
    ordinals: std::ops::Range<u64>,
) -> Result<BTreeSet<Owner>, DiskError> {
    if !header.has_slot(ordinals.start) {
        return Ok(BTreeSet::new());
    }
    let count = ordinals.end.saturating_sub(ordinals.start).min(OWNERS_MAX).min(u64::from(header.slots));
    let bytes = disk.read(file, header.slot_offset(ordinals.start), count as usize * SLOT_BYTES)?;
    let slots = bytes.chunks_exact(SLOT_BYTES).zip(ordinals).filter_map(|(bytes, ordinal)| {
        Slot::decode(bytes.first_chunk()?).filter(|slot| slot.ordinal == ordinal).map(|slot| slot.owner)
    });
    Ok(slots.collect())
}

#[cfg(test)]
mod tests;
