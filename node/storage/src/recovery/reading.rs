//! Reading the records of one segment, past missing ones.
//!
//! A missing record was either durable once, and then it is lost, or its sync had not finished, and then the log ends before it: it
//! was never acknowledged. Lost records are reported between those around them, and reading continues after them.

use super::super::disk::Disk;
use super::super::examine::{Findings, Loss, examine, read_heads};
use super::super::frame::{Head, synced_before};
use super::super::places;
use super::super::promises::{self, Promises};
use super::super::reader::{Frame, Next, Reader};
use super::super::sequence::{Sequence, Turn};
use super::super::slot::Slot;
use super::{OpenError, Position, Replay, decode, describe, describe_turn};
use norn_model::limits::RECORD_BYTES_MAX;
use norn_model::record::Record;

/// Segments have no records beyond this offset, and a record appended here still has a place that fits the field of a head.
const END_MAX: u64 = 3 << 30;

const _: () = assert!(END_MAX + (2 * RECORD_BYTES_MAX as u64) < u32::MAX as u64);

/// How far a segment was once durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    /// All before the record that the next segment begins with.
    Until(u64),
    /// All records of which there is a trace. Other lost records are reported with the gap after this segment.
    UpToGap,
    /// All records of which there is a trace.
    All,
    /// As far as its own records and heads show.
    AsItSays,
}

/// Progress of reading one segment.
pub(super) struct Reading<'a, D, V> {
    disk: &'a D,
    file: &'a str,
    position: &'a mut Position,
    promises: &'a mut Promises,
    /// Last of the promises that the segment begins with.
    promise: Option<Record>,
    /// Records up to this ordinal are reflected in a snapshot.
    covered: u64,
    durable: Durable,
    visit: &'a mut V,
    sequence: Sequence,
    /// Correct heads; `None` for lost records.
    pub heads: Vec<Option<Slot>>,
    /// Records visited.
    pub records: u64,
    /// Records that were durable and are missing, even if a snapshot reflects them.
    pub lost_records: u64,
    /// Highest ordinal up to which all was once durable, as the records show.
    pub synced: u64,
    /// Bytes that are not part of a record.
    pub damaged_bytes: u64,
    /// First damage since the last whole record.
    damage: Option<(u64, String)>,
}

impl<'a, D: Disk, V: FnMut(Replay) -> Result<(), String>> Reading<'a, D, V> {
    /// `position` is the end of the previous segment, with the header of this one.
    pub fn new(
        disk: &'a D,
        file: &'a str,
        (position, promises): (&'a mut Position, &'a mut Promises),
        covered: u64,
        durable: Durable,
        visit: &'a mut V,
    ) -> Self {
        position.length = position.header.records_offset();
        position.promised_bytes = 0;
        position.begun = position.header.segment > 1;
        promises.begin();
        let sequence = Sequence::new(position.next_ordinal);
        let (heads, damage) = (Vec::new(), None);
        Reading {
            disk,
            file,
            position,
            promises,
            promise: None,
            covered,
            durable,
            visit,
            sequence,
            heads,
            records: 0,
            lost_records: 0,
            synced: 0,
            damaged_bytes: 0,
            damage,
        }
    }

    /// Visits all valid records. `position` ends after the last of them.
    pub fn run(&mut self) -> Result<(), OpenError> {
        let length = self.disk.length(self.file)?;
        let mut reader = Reader::new(self.disk, self.file, self.position.length, length);
        loop {
            let frame = match reader.next()? {
                Next::End => return self.end(),
                Next::Damage(damage) => {
                    self.damaged_bytes += damage.end - damage.offset;
                    let known = describe(damage.fault, Some(self.sequence.next_ordinal()));
                    self.damage.get_or_insert((damage.offset, known));
                    continue;
                }
                Next::Frame(frame) => frame,
            };
            let Frame { offset, head: Head { ordinal, fingerprint, .. }, .. } = frame;
            let has_slot = self.position.header.has_slot(ordinal);
            let mut turn = self.sequence.take(ordinal, fingerprint);
            if turn == Turn::Ahead && has_slot {
                let known = describe_turn(turn, ordinal, self.position.next_ordinal);
                if self.damage.is_none() {
                    self.damage = Some((offset, known));
                }
                if !self.lose(ordinal - 1)? {
                    return Ok(());
                }
                turn = self.sequence.take(ordinal, fingerprint);
            }
            match turn {
                Turn::Next if has_slot => self.take(&frame)?,
                Turn::Repeat => {}
                // A crash leaves gaps, but never produces a record.
                Turn::Behind | Turn::Conflict | Turn::Next | Turn::Ahead => {
                    let known = describe_turn(turn, ordinal, self.position.next_ordinal);
                    let file = self.file.into();
                    return Err(OpenError::Damaged { file, offset, known, loss: Loss::default() });
                }
            }
            self.damage = None;
            self.position.length = offset + frame.bytes;
        }
    }

    fn take(&mut self, frame: &Frame<'_>) -> Result<(), OpenError> {
        let (offset, ordinal) = (frame.offset, frame.head.ordinal);
        let record = decode(self.file, frame)?;
        let slot = Slot::of(&frame.head, offset, frame.bytes, &record);
        let Some(slot) = slot.filter(|_| offset + frame.bytes <= END_MAX) else {
            let known = format!("record {ordinal} stands where no segment has records: each ends long before 4 GiB");
            return Err(OpenError::Damaged { file: self.file.into(), offset, known, loss: Loss::default() });
        };
        self.heads.push(Some(slot));
        self.position.pass(&record);
        let again = self.promises.note(&record);
        if self.position.begun && promises::follows(&record, self.promise.as_ref()) {
            self.position.promised_bytes = offset + frame.bytes - self.position.header.records_offset();
            self.promise = Some(record.clone());
        } else {
            self.end_promises()?;
        }
        self.records += u64::from(!again);
        self.synced = self.synced.max(synced_before(ordinal, frame.head.unsynced));
        let covered = ordinal <= self.covered;
        let file = || self.file.into();
        let place = places::in_segment(self.position.segment, offset);
        let taken = (self.visit)(Replay::Record { record, covered, again, place });
        taken.map_err(|cause| OpenError::Refused { file: file(), offset, ordinal, cause })
    }

    /// Reports that all earlier promises are repeated. Reports nothing for a segment of a format that does not repeat them.
    fn end_promises(&mut self) -> Result<(), OpenError> {
        self.position.begun = false;
        if self.promise.take().is_none() {
            return Ok(());
        }
        let (offset, ordinal) = (self.position.length, self.position.next_ordinal);
        let told = (self.visit)(Replay::Promised { before: self.position.header.first_ordinal });
        told.map_err(|cause| OpenError::Refused { file: self.file.into(), offset, ordinal, cause })
    }

    /// Handles the end of the file. Records that should come before it are lost.
    fn end(&mut self) -> Result<(), OpenError> {
        let next = self.position.next_ordinal;
        let last = match self.durable {
            Durable::Until(first_ordinal) => first_ordinal.saturating_sub(1),
            // A second look is needed only if there is a trace of more records.
            Durable::UpToGap | Durable::All | Durable::AsItSays => {
                let heads = read_heads(self.disk, self.file, &self.position.header)?;
                let highest = heads.iter().flatten().map(|head| head.ordinal).max().unwrap_or(0);
                highest.max(if self.damage.is_some() { next } else { 0 })
            }
        };
        if last >= next {
            self.lose(last)?;
        }
        let untold = self.damage.is_some() && self.durable == Durable::All;
        match self.damage.take() {
            // There were durable bytes, and nothing shows which records they held.
            Some((offset, known)) if untold && self.position.next_ordinal == next => {
                Err(OpenError::Damaged { file: self.file.into(), offset, known, loss: Loss::untold() })
            }
            _ => Ok(()),
        }
    }

    /// Handles the missing records up to `last`. Returns false if, from one of them on, none was ever durable: the log ends there.
    fn lose(&mut self, last: u64) -> Result<bool, OpenError> {
        let findings = examine(self.disk, self.file, &self.position.header)?;
        let durable = self.durable_until(&findings);
        if let Some(foreign) = &findings.foreign {
            // Which of the records belong to this log is unknown, and skipping them would lose records without a report.
            let (offset, known) = self.damage.clone().unwrap_or((self.position.length, "records are missing".into()));
            let (known, loss) =
                (format!("{known}; at byte {}: {}", foreign.offset, foreign.known()), findings.lost(durable));
            return Err(OpenError::Damaged { file: self.file.into(), offset, known, loss });
        }
        let next = self.position.next_ordinal;
        let lost_last = last.min(durable);
        if lost_last >= next && !self.position.header.has_slot(lost_last) {
            let known = format!("record {lost_last} is missing, and the segment has no room for it");
            let (file, offset) = (self.file.into(), self.position.length);
            return Err(OpenError::Damaged { file, offset, known, loss: findings.lost(findings.highest()) });
        }
        if lost_last >= next {
            // A snapshot that covers these records may or may not reflect them: its parts were written while they were.
            let loss = findings.lost_between(next, lost_last);
            if !loss.is_empty() {
                self.tell(loss)?;
            }
            self.lost_records += lost_last + 1 - next;
            self.sequence.skip_to(lost_last + 1);
            self.position.next_ordinal = lost_last + 1;
            let count = (lost_last + 1 - self.position.header.first_ordinal) as usize;
            self.heads.resize(count, None);
        }
        Ok(last <= durable)
    }

    fn durable_until(&self, findings: &Findings) -> u64 {
        match self.durable {
            Durable::Until(first_ordinal) => first_ordinal.saturating_sub(1),
            Durable::UpToGap | Durable::All => findings.highest(),
            Durable::AsItSays => findings.synced,
        }
    }

    fn tell(&mut self, loss: Loss) -> Result<(), OpenError> {
        let (offset, known) = match &self.damage {
            Some(damage) => damage.clone(),
            None => (self.position.length, format!("the segment ends before record {}", self.position.next_ordinal)),
        };
        let file: String = self.file.into();
        let told = (self.visit)(Replay::Lost { file: file.clone(), offset, loss: loss.clone() });
        told.map_err(|cause| OpenError::Damaged { file, offset, known: format!("{known}; {cause}"), loss })
    }
}
