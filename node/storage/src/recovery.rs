//! Crash recovery: which parts of a log are trusted, cut or refused.
//!
//! A crash can leave behind only three kinds of damage, and only these are mended:
//! - a first segment without a whole identity: the node never existed, and the log is begun again;
//! - a last segment without a whole header: records go in only once the header is durable, so the segment is removed;
//! - in the last segment, missing or broken records and heads whose sync had not finished: from the first such record on everything
//!   is cut, and heads are made to agree with the records that are left.
//!
//! Records that are kept but not known to have been durable are written once more, and synced, before anything depends on them.
//!
//! Nothing is mended before all is read and nothing prevents the start (`mending.rs`).
//!
//! A snapshot replaces all segments before the number in its name: those are not looked at.
//!
//! A segment in the middle that is missing, has another segment's header, or has neither a usable header nor a usable first record is
//! skipped. The next header shows which records are lost with it, and the promises after that header repeat the records that must not
//! be lost.
//!
//! A sync has certainly finished if any later record or head says so: each carries how many records before it were not yet durable.
//! All records before a last segment were synced before that segment was begun. So only damage to the last batch looks like a crash.
//! If the process ended in any other way, nothing on the disk shows whether the sync had finished, because only acknowledgements to
//! other nodes and clients followed it. Such damage is taken for a crash, because crashes are common and must not need an operator.

use super::disk::{Disk, DiskError};
use super::examine::{Loss, examine};
use super::frame::Fault;
use super::log::Identity;
use super::promises::Promises;
use super::reader::{Frame, Next, Reader};
use super::segment::{self, FORMAT_VERSION, FORMAT_VERSION_MIN, HEADER_BYTES, Header, HeaderFault};
use super::sequence::Turn;
use super::slot::{SLOT_BYTES, Slot};
use super::snapshot;
use norn_model::record::{RECORD_VERSION, Record};
use norn_model::task::Place;
use norn_wire::{ClusterId, NodeId};

mod error;
mod mending;
mod reading;
mod survey;

pub use error::OpenError;
pub use error::WITHOUT_A_COPY;
use mending::End;
pub use mending::{Mending, mend_heads};
use reading::{Durable, Reading};
pub use survey::{Survey, survey};

/// Statistics of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records of the snapshot, if there is one.
    pub snapshot_records: u64,
    /// Bytes of the snapshot's file.
    pub snapshot_bytes: u64,
    /// Records of the log after it.
    pub records: u64,
    /// Segments of the log after recovery.
    pub segments: u64,
    /// Segments that are missing or unusable.
    pub lost_segments: u64,
    /// Bytes of frames in the segments.
    pub bytes: u64,
    /// Bytes of a torn end that were cut off, without the zeroes after it.
    pub cut_bytes: u64,
    /// Records in the torn end whose heads were found. As far as the disk shows, their sync had not finished, so they were never
    /// acknowledged; damage to the last batch before a crash looks the same.
    pub cut_records: u64,
    /// Lost records, as far as they can be counted.
    pub lost_records: u64,
    /// Bytes within the log that are not part of a record. Lost records, if any, were reported at their places.
    pub damaged_bytes: u64,
    /// Heads at the end of the log that were rewritten, because the crash left them missing or without a record.
    pub heads_mended: u64,
}

/// Position at which the log continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Number of the last segment.
    pub segment: u64,
    /// Its header.
    pub header: Header,
    /// Offset where its last record ends.
    pub length: u64,
    /// Bytes of the promises that it begins with.
    pub promised_bytes: u64,
    /// The segment has only promises so far, as far as is known, and may lack some of them.
    pub begun: bool,
    /// Ordinal of the next record.
    pub next_ordinal: u64,
    /// The cluster in the first genesis record; zero if there was none.
    pub cluster: ClusterId,
}

/// The position of an empty log.
impl Default for Position {
    fn default() -> Self {
        let (cluster, node) = (ClusterId::default(), NodeId(0));
        let header = Header { cluster, node, segment: 0, first_ordinal: 1, slots: 1 };
        Position { segment: 0, header, length: 0, promised_bytes: 0, begun: false, next_ordinal: 1, cluster }
    }
}

impl Position {
    /// Advances past a record that was read or written.
    pub fn pass(&mut self, record: &Record) {
        self.next_ordinal += 1;
        if let Record::Genesis(genesis) = record
            && self.cluster == ClusterId::default()
        {
            self.cluster = genesis.cluster;
        }
    }

    /// The position after a log whose last records are lost: the next segment.
    fn behind(&self) -> Position {
        let (segment, cluster, first_ordinal) = (self.segment + 1, self.cluster, self.next_ordinal);
        let header = Header { segment, cluster, first_ordinal, ..self.header };
        Position { segment, header, length: header.records_offset(), promised_bytes: 0, begun: true, ..self.clone() }
    }
}

/// Reads the node's identity from the first file. `None` if there is no file, or only a segment that was never finished.
pub fn read_identity<D: Disk>(disk: &D, survey: &Survey) -> Result<Option<Identity>, OpenError> {
    if let Some(number) = survey.snapshot() {
        return snapshot::read_identity(disk, number).map(Some);
    }
    if survey.last == 0 {
        return Ok(None);
    }
    let first =
        if survey.segments[0] == 1 { read_first_identity(disk, survey.alone()) } else { Err(no_identity(survey)) };
    match first {
        Err(OpenError::Disk(error)) => Err(error.into()),
        // Each later segment repeats the identity.
        Err(error) => find_restated_identity(disk, &survey.segments)?.map(Some).ok_or(error),
        known => known,
    }
}

/// Reads the identity from the first segment; `None` if that was never finished and is the only one.
fn read_first_identity<D: Disk>(disk: &D, alone: bool) -> Result<Option<Identity>, OpenError> {
    let file = segment::name(1);
    let length = disk.length(&file)?;
    let header = match read_header(disk, &file)? {
        Ok(header) => header,
        Err(HeaderFault::Broken(_)) if alone && length <= HEADER_BYTES as u64 => return Ok(None),
        Err(fault) => return find_identity(disk, &file, fault).map(Some),
    };
    let mut reader = Reader::new(disk, &file, header.records_offset(), length);
    let offset = reader.offset();
    let known = match reader.next()? {
        Next::Frame(frame) if frame.head.ordinal == 1 => {
            let Record::Identity { node, incarnation } = decode(&file, &frame)? else {
                return Err(damaged(&file, offset, "record 1 does not say which node this is"));
            };
            check_header(&header, &file, node, &Position { segment: 1, ..Position::default() })?;
            return Ok(Some(Identity { node, incarnation }));
        }
        Next::Frame(frame) => describe_turn(Turn::Ahead, frame.head.ordinal, 1),
        Next::End => "record 1 is missing".into(),
        Next::Damage(damage) => describe(damage.fault, Some(1)),
    };
    let findings = examine(disk, &file, &header)?;
    if alone && findings.synced == 0 && findings.highest() <= 1 {
        return Ok(None);
    }
    Err(OpenError::Damaged { file, offset, known, loss: findings.lost(findings.highest()) })
}

/// Looks for the identity among the promises of every segment but the first.
fn find_restated_identity<D: Disk>(disk: &D, segments: &[u64]) -> Result<Option<Identity>, OpenError> {
    for number in segments.iter().filter(|number| **number > 1) {
        let file = segment::name(*number);
        let Ok(header) = read_header(disk, &file)? else { continue };
        let mut reader = Reader::new(disk, &file, header.records_offset(), disk.length(&file)?);
        if let Next::Frame(frame) = reader.next()?
            && let Ok(Record::Identity { node, incarnation }) = Record::decode(frame.body)
            && node == header.node
        {
            return Ok(Some(Identity { node, incarnation }));
        }
    }
    Ok(None)
}

fn no_identity(survey: &Survey) -> OpenError {
    let known =
        format!("{} should come before it and is missing, and nothing else says which node this is", segment::name(1));
    OpenError::Names { file: segment::name(survey.segments[0]), known }
}

/// Reads the identity from a first segment with a damaged header, if the replay will be able to reconstruct the header.
pub fn find_identity<D: Disk>(disk: &D, file: &str, fault: HeaderFault) -> Result<Identity, OpenError> {
    let header = find_header(disk, 1, NodeId(0), &Position::default(), fault)?;
    let mut reader = Reader::new(disk, file, header.records_offset(), disk.length(file)?);
    if let Next::Frame(frame) = reader.next()?
        && let Record::Identity { node, incarnation } = decode(file, &frame)?
    {
        return Ok(Identity { node, incarnation });
    }
    Err(header_error(file, fault))
}

/// An item of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// A whole record.
    Record {
        /// The record.
        record: Record,
        /// Its content may be reflected in the snapshot before it already, together with newer content.
        covered: bool,
        /// A word-for-word repetition of an earlier record, at the beginning of a new segment.
        again: bool,
        /// Place of the record; `None` if the place does not fit its fields.
        place: Option<Place>,
    },
    /// All promises are repeated by now: promises lost before that record no longer matter.
    Promised {
        /// The ordinal.
        before: u64,
    },
    /// Lost records, reported between the record before and the record after them.
    Lost {
        /// The file.
        file: String,
        /// Offset at which the damage begins.
        offset: u64,
        /// The lost records.
        loss: Loss,
    },
}

impl Replay {
    /// The record, for callers that accept no loss. `None` for a repeated record.
    pub fn whole(self) -> Result<Option<Record>, String> {
        match self {
            Replay::Record { record, again, .. } => Ok((!again).then_some(record)),
            Replay::Promised { .. } => Ok(None),
            Replay::Lost { .. } => Err("all of the log is needed".into()),
        }
    }
}

/// Visits every record of the snapshot and of the segments, and every loss. Returns the repairs to make: of a torn end, and of
/// headers. Changes nothing. The returned position is where the log continues afterwards.
pub fn replay<D: Disk>(
    disk: &D,
    identity: Identity,
    survey: &Survey,
    promises: &mut Promises,
    mut visit: impl FnMut(Replay) -> Result<(), String>,
) -> Result<(Position, Replayed, Mending), OpenError> {
    let mut position = Position::default();
    let mut replayed = Replayed::default();
    let mut mending = Mending::default();
    let mut covered = 0;
    // The first file of those that are missing or unusable, and why.
    let mut gap: Option<(String, String)> = None;
    if let Some(number) = survey.snapshot() {
        covered = read_snapshot(disk, number, (&mut position, promises), &mut replayed, &mut visit)?;
    }
    let torn = survey.last > survey.first && is_torn_header(disk, survey.last)?;
    let segments = survey.segments[..survey.segments.len() - usize::from(torn)].to_vec();
    let last = segments.last().copied().unwrap_or(0);
    for (place, number) in segments.iter().copied().enumerate() {
        let file = segment::name(number);
        let before = if place == 0 { survey.first - 1 } else { segments[place - 1] };
        if number > before + 1 {
            replayed.lost_segments += number - before - 1;
            gap.get_or_insert((segment::name(before + 1), "the segment is missing".into()));
        }
        let (header, is_anew) = match usable_header(disk, number, identity.node, &position, number == last)? {
            Ok(usable) => usable,
            Err(known) => {
                replayed.lost_segments += 1;
                gap.get_or_insert((file, known));
                continue;
            }
        };
        position.segment = number;
        if position.cluster == ClusterId::default() && (replayed.lost_records > 0 || gap.is_some()) {
            // The record that named the cluster may be lost.
            position.cluster = header.cluster;
        }
        check_header(&header, &file, identity.node, &position)?;
        if let Some((file, known)) = gap.take() {
            let lost = pass_gap(&mut position, &header, &file, known, &mut visit)?;
            replayed.lost_records = replayed.lost_records.saturating_add(lost);
        }
        check_first_ordinal(&header, &file, &position)?;
        position.header = header;
        mending.headers.extend(is_anew.then_some(header));
        let durable = match segments.get(place + 1) {
            Some(next) if *next == number + 1 => match read_first_ordinal(disk, *next)? {
                Some(first_ordinal) => Durable::Until(first_ordinal),
                None => Durable::UpToGap,
            },
            Some(_) => Durable::UpToGap,
            None if torn => Durable::All,
            None => Durable::AsItSays,
        };
        let mut segment = Reading::new(disk, &file, (&mut position, promises), covered, durable, &mut visit);
        segment.run()?;
        let Reading { heads, records, lost_records, damaged_bytes, synced, .. } = segment;
        let ends_lost = number == last && heads.last().is_some_and(Option::is_none);
        replayed.segments += 1;
        replayed.lost_records = replayed.lost_records.saturating_add(lost_records);
        replayed.records += records;
        if number == last {
            mending.end = Some(End::find(disk, &position, &heads, torn, synced, &mut replayed)?);
        } else {
            replayed.damaged_bytes += damaged_bytes;
        }
        replayed.bytes += position.length - position.header.records_offset();
        if ends_lost {
            // The new segment's header keeps the fact that all records before it were durable, whatever else is lost.
            position = position.behind();
            mending.behind = Some(position.header);
            promises.begin();
            replayed.segments += 1;
        }
    }
    if torn && position.segment == last {
        replayed.cut_bytes += disk.length(&segment::name(survey.last))?;
        mending.begun = Some(survey.last);
    }
    if position.next_ordinal <= covered {
        let (file, offset) = (segment::name(position.segment), position.length);
        let known =
            format!("the log ends before record {}, and the snapshot knows of record {covered}", position.next_ordinal);
        return Err(damaged(&file, offset, &known));
    }
    Ok((position, replayed, mending))
}

/// Visits the records of the snapshot. Returns the ordinal of the log up to which records may be reflected in it.
fn read_snapshot<D: Disk>(
    disk: &D,
    number: u64,
    (position, promises): (&mut Position, &mut Promises),
    replayed: &mut Replayed,
    visit: &mut impl FnMut(Replay) -> Result<(), String>,
) -> Result<u64, OpenError> {
    let summary = snapshot::read(disk, number, &mut |replay: Replay| {
        if let Replay::Record { record, .. } = &replay {
            promises.note(record);
        }
        visit(replay)
    })?;
    position.cluster = summary.header.cluster;
    position.next_ordinal = summary.header.first_ordinal;
    replayed.snapshot_records = summary.records;
    replayed.snapshot_bytes = summary.bytes;
    replayed.lost_records = summary.lost_records;
    Ok(summary.covered)
}

/// The header of a segment, and whether it must be rewritten. If nothing of the segment is usable and it is not the last one, returns
/// the reason instead: the next segment's header shows how many records are lost with it.
fn usable_header<D: Disk>(
    disk: &D,
    number: u64,
    node: NodeId,
    position: &Position,
    last: bool,
) -> Result<Result<(Header, bool), String>, OpenError> {
    let file = segment::name(number);
    match read_header(disk, &file)? {
        // A segment of this log under a wrong name.
        Ok(header) if header.segment != number && header.node == node && !last => {
            Ok(Err(format!("the header is whole, but it is that of segment {}", header.segment)))
        }
        Ok(header) => Ok(Ok((header, false))),
        Err(fault) => match find_header(disk, number, node, position, fault) {
            Err(OpenError::Damaged { known, .. }) if !last => Ok(Err(known)),
            found => found.map(|header| Ok((header, true))),
        },
    }
}

/// Reports the records that are lost between the end of a segment and the beginning of the next usable one. Returns their number.
fn pass_gap(
    position: &mut Position,
    header: &Header,
    file: &str,
    known: String,
    visit: &mut impl FnMut(Replay) -> Result<(), String>,
) -> Result<u64, OpenError> {
    let (next, first) = (position.next_ordinal, header.first_ordinal);
    if first <= next {
        return Ok(0);
    }
    let loss = Loss::of_ranges(&[next..=first - 1]);
    let told = visit(Replay::Lost { file: file.into(), offset: 0, loss: loss.clone() });
    told.map_err(|cause| OpenError::Damaged {
        file: file.into(),
        offset: 0,
        known: format!("{known}; {cause}"),
        loss,
    })?;
    position.next_ordinal = first;
    Ok(first - next)
}

/// Whether a segment was begun, but its header never completed.
fn is_torn_header<D: Disk>(disk: &D, number: u64) -> Result<bool, DiskError> {
    let file = segment::name(number);
    let broken = matches!(read_header(disk, &file)?, Err(HeaderFault::Broken(_)));
    Ok(broken && disk.length(&file)? <= HEADER_BYTES as u64)
}

/// First ordinal in a segment's header, which shows where the segment before it ends.
fn read_first_ordinal<D: Disk>(disk: &D, number: u64) -> Result<Option<u64>, DiskError> {
    let header = read_header(disk, &segment::name(number))?;
    Ok(header.ok().filter(|header| header.segment == number).map(|header| header.first_ordinal))
}

/// Reconstructs a damaged header: all its fields can be derived from other data if the first record and its head are whole.
pub fn find_header<D: Disk>(
    disk: &D,
    number: u64,
    node: NodeId,
    position: &Position,
    fault: HeaderFault,
) -> Result<Header, OpenError> {
    let file = segment::name(number);
    if !matches!(fault, HeaderFault::Broken(_)) {
        return Err(header_error(&file, fault));
    }
    let mut reader = Reader::new(disk, &file, HEADER_BYTES as u64, disk.length(&file)?);
    let offset = loop {
        match reader.next()? {
            Next::Frame(frame) if frame.head.ordinal == position.next_ordinal => break frame.offset,
            Next::Damage(_) => {}
            Next::Frame(_) | Next::End => return Err(header_error(&file, fault)),
        }
    };
    let bytes = disk.read(&file, HEADER_BYTES as u64, SLOT_BYTES)?;
    let slot = bytes.first_chunk().and_then(Slot::decode);
    let slots = (offset - HEADER_BYTES as u64) / SLOT_BYTES as u64;
    let Position { cluster, next_ordinal: first_ordinal, .. } = *position;
    let header = Header { cluster, node, segment: number, first_ordinal, slots: slots as u32 };
    let agrees = slot.is_some_and(|slot| slot.ordinal == first_ordinal && u64::from(slot.offset) == offset);
    if !agrees || slots > u64::from(segment::SLOTS_MAX) || header.records_offset() != offset {
        return Err(header_error(&file, fault));
    }
    Ok(header)
}

/// Checks that a segment begins where the one before it ends. `position` is still the end of the earlier one.
fn check_first_ordinal(header: &Header, file: &str, position: &Position) -> Result<(), OpenError> {
    let (found, next) = (header.first_ordinal, position.next_ordinal);
    if found == next {
        return Ok(());
    }
    Err(damaged(file, 0, &format!("the segment begins with record {found}, and it should with {next}")))
}

fn read_header<D: Disk>(disk: &D, file: &str) -> Result<Result<Header, HeaderFault>, DiskError> {
    Ok(Header::decode(&disk.read(file, 0, HEADER_BYTES)?))
}

/// Checks an intact header against the log so far.
fn check_header(header: &Header, file: &str, node: NodeId, position: &Position) -> Result<(), OpenError> {
    let known = if header.node != node {
        format!("it was written by node {}, and this is node {node}", header.node)
    } else if header.cluster != position.cluster {
        format!("it is of cluster {}, and the log before it of {}", header.cluster, position.cluster)
    } else if header.segment != position.segment {
        format!("it is that of segment {}", header.segment)
    } else {
        return Ok(());
    };
    Err(OpenError::Foreign { file: file.into(), known })
}

/// Decodes the record in a whole frame.
pub fn decode(file: &str, frame: &Frame<'_>) -> Result<Record, OpenError> {
    let ordinal = frame.head.ordinal;
    Record::decode(frame.body).map_err(|error| OpenError::Version {
        file: file.into(),
        offset: frame.offset,
        known: format!("record {ordinal} is whole, but this program does not understand it ({error})"),
    })
}

/// Damage whose cost is unknown.
fn damaged(file: &str, offset: u64, known: &str) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, known: known.into(), loss: Loss::untold() }
}

/// The error for a file with a faulty header.
pub fn header_error(file: &str, fault: HeaderFault) -> OpenError {
    match fault {
        HeaderFault::Broken(known) => damaged(file, 0, known),
        HeaderFault::Format(_) | HeaderFault::Records(_) => {
            OpenError::Version { file: file.into(), offset: 0, known: header_fault(fault) }
        }
    }
}

/// Describes a fault of a header.
pub fn header_fault(fault: HeaderFault) -> String {
    match fault {
        HeaderFault::Broken(known) => known.into(),
        HeaderFault::Format(found) => {
            format!("the file has format version {found}, this program knows {FORMAT_VERSION_MIN} to {FORMAT_VERSION}")
        }
        HeaderFault::Records(found) => {
            format!("the file has records of version {found}, this program knows {RECORD_VERSION}")
        }
    }
}

/// Describes a fault at the place of a record, with its ordinal if that is known.
pub fn describe(fault: Fault, ordinal: Option<u64>) -> String {
    let record = ordinal.map_or("a record".into(), |ordinal| format!("record {ordinal}"));
    match fault {
        Fault::Rubbish => format!("there is something else where {record} should begin"),
        Fault::Incomplete => format!("{record} is incomplete"),
        Fault::Stuffing => format!("{record} holds bytes that are never written"),
        Fault::Length(length) => format!("{record} cannot have {length} bytes"),
        Fault::Fingerprint => format!("the fingerprint of {record} does not match"),
    }
}

fn describe_turn(turn: Turn, found: u64, expected: u64) -> String {
    match turn {
        Turn::Ahead => format!("record {found} is where {expected} should be: {} are missing", found - expected),
        Turn::Conflict => format!("there is another record {found} before this one: two writes are in conflict"),
        Turn::Next => format!("record {found} has no place in this segment"),
        Turn::Behind | Turn::Repeat => format!("record {found} is where {expected} should be"),
    }
}

#[cfg(test)]
mod tests;
