//! Examination of a damaged segment: the records left and the records lost.

use super::disk::{Disk, DiskError};
use super::frame::{Fault, synced_before};
use super::reader::{Frame, Next, Reader};
use super::recovery::describe;
use super::segment::{HEADER_BYTES, Header};
use super::slot::{Owner, SLOT_BYTES, Slot};
use norn_model::record::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Most faults that are listed individually.
const FAULTS_MAX: usize = 1_000;

/// A fault in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Offset where it begins.
    pub offset: u64,
    /// Offset where it ends.
    pub end: u64,
    /// Its kind.
    pub what: What,
}

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Bytes that are not part of a record.
    Damage(Fault),
    /// A whole record with an ordinal that has no slot in this segment.
    Stray(u64),
    /// A second record under one ordinal.
    Conflict(u64),
    /// A record that comes after one with a higher ordinal.
    Misplaced(u64),
}

impl Found {
    /// Describes the fault for an operator.
    pub fn known(&self) -> String {
        match self.what {
            What::Damage(fault) => format!("{}, up to byte {}", describe(fault, None), self.end),
            What::Stray(ordinal) => format!("record {ordinal} has no place in this segment"),
            What::Conflict(ordinal) => format!("another record {ordinal} than the one before it"),
            What::Misplaced(ordinal) => format!("record {ordinal} stands behind a later one"),
        }
    }
}

/// Content of one segment.
#[derive(Debug)]
pub struct Findings {
    header: Header,
    /// Fingerprints of whole records, by slot.
    records: Vec<Option<u32>>,
    /// Highest ordinal of the whole records so far.
    passed: u64,
    /// Whole heads, by slot.
    pub heads: Vec<Option<Slot>>,
    /// Highest ordinal up to which all was once durable, as the segment itself shows.
    pub synced: u64,
    /// The first faults, up to the maximum.
    pub faults: Vec<Found>,
    /// The first fault that is a whole record: a crash neither creates nor moves records.
    pub foreign: Option<Found>,
}

/// Examines a whole segment with an intact header. Memory is bounded by the number of its slots.
pub fn examine<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Findings, DiskError> {
    examine_each(disk, file, header, |_| {})
}

/// As [`examine`], and calls `look` for each whole record.
pub fn examine_each<D: Disk>(
    disk: &D,
    file: &str,
    header: &Header,
    mut look: impl FnMut(&Frame<'_>),
) -> Result<Findings, DiskError> {
    let heads = read_heads(disk, file, header)?;
    let synced = heads.iter().flatten().map(Slot::synced_before).max().unwrap_or(0);
    let records = vec![None; header.slots as usize];
    let mut findings =
        Findings { header: *header, records, passed: 0, heads, synced, faults: Vec::new(), foreign: None };
    let mut reader = Reader::new(disk, file, header.records_offset(), disk.length(file)?);
    loop {
        match reader.next()? {
            Next::End => return Ok(findings),
            Next::Damage(damage) => {
                findings.add(Found { offset: damage.offset, end: damage.end, what: What::Damage(damage.fault) });
            }
            Next::Frame(frame) => {
                look(&frame);
                let (offset, end) = (frame.offset, frame.offset + frame.bytes);
                if let Some(what) = findings.take(frame.head.ordinal, frame.head.fingerprint) {
                    findings.add(Found { offset, end, what });
                } else {
                    let synced = synced_before(frame.head.ordinal, frame.head.unsynced);
                    findings.synced = findings.synced.max(synced);
                }
            }
        }
    }
}

/// The whole heads of a segment, by slot.
pub fn read_heads<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Vec<Option<Slot>>, DiskError> {
    let region = read_region(disk, file, header)?;
    let slots = region.chunks_exact(SLOT_BYTES).zip(header.first_ordinal..);
    let mut heads: Vec<Option<Slot>> = slots
        .map(|(bytes, ordinal)| {
            Slot::decode(bytes.first_chunk().expect("a slot's bytes")).filter(|slot| slot.ordinal == ordinal)
        })
        .collect();
    heads.resize(header.slots as usize, None);
    Ok(heads)
}

/// Bytes of all slots; fewer if the file ends before them.
pub fn read_region<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Vec<u8>, DiskError> {
    let length = header.records_offset() as usize - HEADER_BYTES;
    disk.read(file, HEADER_BYTES as u64, length)
}

impl Findings {
    /// Adds a whole record. Returns its fault, if any.
    fn take(&mut self, ordinal: u64, fingerprint: u32) -> Option<What> {
        if !self.header.has_slot(ordinal) {
            return Some(What::Stray(ordinal));
        }
        let known = &mut self.records[(ordinal - self.header.first_ordinal) as usize];
        match known {
            Some(other) if *other != fingerprint => return Some(What::Conflict(ordinal)),
            Some(_) => {}
            None => {
                *known = Some(fingerprint);
                if ordinal < self.passed {
                    return Some(What::Misplaced(ordinal));
                }
                self.passed = ordinal;
            }
        }
        None
    }

    fn add(&mut self, found: Found) {
        if !matches!(found.what, What::Damage(_)) {
            self.foreign.get_or_insert(found);
        }
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(found);
        }
    }

    /// Highest ordinal of which there is any trace; the one before the first if there is none.
    pub fn highest(&self) -> u64 {
        let mut traces = self.records.iter().zip(&self.heads);
        let place = traces.rposition(|(record, head)| record.is_some() || head.is_some());
        self.header.first_ordinal + place.map_or(0, |place| place as u64 + 1) - 1
    }

    /// Ordinal after the last valid record, if all up to `synced` was durable.
    pub fn end(&self, synced: u64) -> u64 {
        let durable = synced.saturating_add(1).max(self.header.first_ordinal);
        let behind = self.records.iter().skip((durable - self.header.first_ordinal) as usize);
        durable + behind.take_while(|record| record.is_some()).count() as u64
    }

    /// The records up to `last` that are missing.
    pub fn lost(&self, last: u64) -> Loss {
        self.lost_between(self.header.first_ordinal, last)
    }

    /// The records from `first` to `last` that are missing.
    pub fn lost_between(&self, first: u64, last: u64) -> Loss {
        let mut loss = Loss::default();
        let slots = (self.header.first_ordinal..).zip(self.records.iter().zip(&self.heads));
        let asked = slots.skip_while(|(ordinal, _)| *ordinal < first).take_while(|(ordinal, _)| *ordinal <= last);
        for (ordinal, (record, head)) in asked {
            if record.is_none() {
                loss.add(ordinal, head.map(|head| (head.owner, head.kind)));
            }
        }
        loss
    }

    /// Number of whole records.
    pub fn whole(&self) -> u64 {
        self.records.iter().flatten().count() as u64
    }

    /// Number of whole records without a head that agrees.
    pub fn heads_lost(&self) -> usize {
        let slots = self.records.iter().zip(&self.heads);
        slots.filter(|(record, head)| record.is_some() && **record != head.map(|head| head.fingerprint)).count()
    }
}

/// Lost records and their owners.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loss {
    /// Ranges of ordinals, both ends included.
    pub ranges: Vec<(u64, u64)>,
    /// Number of lost records by owner and kind, where a head is left.
    pub owners: BTreeMap<(Owner, Kind), u64>,
    /// Number of lost records whose heads are lost too.
    pub unknown: u64,
    /// More records may be lost, and nothing shows which.
    pub untold: bool,
}

impl Loss {
    /// A loss of unknown extent.
    pub fn untold() -> Loss {
        Loss { untold: true, ..Loss::default() }
    }

    /// A loss of which only the ordinals are known.
    pub fn of_ranges(ranges: &[RangeInclusive<u64>]) -> Loss {
        let ranges: Vec<(u64, u64)> = ranges.iter().map(|range| (*range.start(), *range.end())).collect();
        let unknown = ranges.iter().fold(0u64, |sum, (from, to)| sum.saturating_add(to - from).saturating_add(1));
        Loss { ranges, unknown, ..Loss::default() }
    }

    /// Adds one more record, in the order of ordinals.
    pub fn add(&mut self, ordinal: u64, of: Option<(Owner, Kind)>) {
        match self.ranges.last_mut() {
            Some((_, to)) if *to + 1 == ordinal => *to = ordinal,
            _ => self.ranges.push((ordinal, ordinal)),
        }
        match of {
            Some(of) => *self.owners.entry(of).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// Number of lost records.
    pub fn count(&self) -> u64 {
        self.unknown + self.owners.values().sum::<u64>()
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.untold
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            let known = if self.untold { "what is lost cannot be told" } else { "no record is missing" };
            return formatter.write_str(known);
        }
        let ranges: Vec<String> = self
            .ranges
            .iter()
            .map(|(from, to)| if from == to { from.to_string() } else { format!("{from} to {to}") })
            .collect();
        write!(formatter, "lost: record {}", ranges.join(", "))?;
        let mut owners: Vec<String> =
            self.owners.iter().map(|((owner, kind), count)| format!("{count} {kind} of {owner}")).collect();
        if self.unknown > 0 {
            owners.push(format!("{} of which no head is left, so of any partition of this node", self.unknown));
        }
        write!(formatter, " ({})", owners.join(", "))
    }
}
