//! What is left of a damaged segment, and what is lost.

use super::disk::{Disk, DiskError};
use super::frame::{Fault, synced_before};
use super::reader::{Frame, Next, Reader};
use super::recovery::describe;
use super::segment::{HEADER_BYTES, Header};
use super::slot::{Owner, SLOT_BYTES, Slot};
use crate::protocol::record::Kind;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Places of damage that are remembered one by one.
const FAULTS_MAX: usize = 1_000;

/// Something that does not belong in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it begins.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// What it is.
    pub what: What,
}

/// See [`Found`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Bytes that are no record.
    Damage(Fault),
    /// A whole record that this segment cannot hold.
    Stray(u64),
    /// A second record under one ordinal.
    Conflict(u64),
    /// A record that should stand before one that it stands behind.
    Misplaced(u64),
}

impl Found {
    /// What is wrong, for people.
    pub fn known(&self) -> String {
        match self.what {
            What::Damage(fault) => format!("{}, up to byte {}", describe(fault, None), self.end),
            What::Stray(ordinal) => format!("record {ordinal} has no place in this segment"),
            What::Conflict(ordinal) => format!("another record {ordinal} than the one before it"),
            What::Misplaced(ordinal) => format!("record {ordinal} stands behind a later one"),
        }
    }
}

/// All that one segment holds.
#[derive(Debug)]
pub(crate) struct Findings {
    header: Header,
    /// Fingerprints of whole records, by slot.
    records: Vec<Option<u32>>,
    /// The highest ordinal of a whole record up to here.
    passed: u64,
    /// Whole heads, by slot.
    pub heads: Vec<Option<Slot>>,
    /// All up to this ordinal was once durable, as the segment itself says.
    pub synced: u64,
    /// What does not belong there, the first so many.
    pub faults: Vec<Found>,
    /// The first whole record among that: no crash makes a record, or moves one.
    pub foreign: Option<Found>,
}

/// Looks at all of a segment whose header is whole. Memory is bounded by the number of its slots.
pub(crate) fn examine<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Findings, DiskError> {
    examine_each(disk, file, header, |_| {})
}

/// The same, with a look at each whole record.
pub(crate) fn examine_each<D: Disk>(
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
pub(crate) fn read_heads<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Vec<Option<Slot>>, DiskError> {
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

/// The bytes of all slots, fewer where the file ends before them.
pub(crate) fn read_region<D: Disk>(disk: &D, file: &str, header: &Header) -> Result<Vec<u8>, DiskError> {
    let length = header.records_offset() as usize - HEADER_BYTES;
    disk.read(file, HEADER_BYTES as u64, length)
}

impl Findings {
    /// Takes a whole record; what is wrong with it, if anything.
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

    /// The highest ordinal of which there is any trace; the one before the first if there is none.
    pub fn highest(&self) -> u64 {
        let mut traces = self.records.iter().zip(&self.heads);
        let place = traces.rposition(|(record, head)| record.is_some() || head.is_some());
        self.header.first_ordinal + place.map_or(0, |place| place as u64 + 1) - 1
    }

    /// The ordinal behind the last record that counts, if all up to `synced` was durable.
    pub fn end(&self, synced: u64) -> u64 {
        let durable = synced.saturating_add(1).max(self.header.first_ordinal);
        let behind = self.records.iter().skip((durable - self.header.first_ordinal) as usize);
        durable + behind.take_while(|record| record.is_some()).count() as u64
    }

    /// Which of the records up to `last` are not there.
    pub fn lost(&self, last: u64) -> Loss {
        self.lost_between(self.header.first_ordinal, last)
    }

    /// Which of the records from `first` to `last` are not there.
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

    /// How many records are whole.
    pub fn whole(&self) -> u64 {
        self.records.iter().flatten().count() as u64
    }

    /// How many whole records have no head that says the same.
    pub fn heads_lost(&self) -> usize {
        let slots = self.records.iter().zip(&self.heads);
        slots.filter(|(record, head)| record.is_some() && **record != head.map(|head| head.fingerprint)).count()
    }
}

/// Records that are lost, and whose they were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loss {
    /// Ordinals from and to.
    pub ranges: Vec<(u64, u64)>,
    /// How many of which kind, where a head is left to say so.
    pub owners: BTreeMap<(Owner, Kind), u64>,
    /// How many whose heads are lost too.
    pub unknown: u64,
    /// There may be more, and nothing is left to say which.
    pub untold: bool,
}

impl Loss {
    /// Something, and nobody knows what.
    pub fn untold() -> Loss {
        Loss { untold: true, ..Loss::default() }
    }

    /// Records of which nothing else is known.
    pub fn of_ranges(ranges: &[RangeInclusive<u64>]) -> Loss {
        let ranges: Vec<(u64, u64)> = ranges.iter().map(|range| (*range.start(), *range.end())).collect();
        let unknown = ranges.iter().fold(0u64, |sum, (from, to)| sum.saturating_add(to - from).saturating_add(1));
        Loss { ranges, unknown, ..Loss::default() }
    }

    /// One more record, in the order of ordinals.
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

    /// How many records.
    pub fn count(&self) -> u64 {
        self.unknown + self.owners.values().sum::<u64>()
    }

    /// Nothing is lost.
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
