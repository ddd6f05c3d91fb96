//! Reading a log back: what is trusted, what is cut, and what is refused.
//!
//! A crash can leave behind only three things, and only these are mended:
//! - a first segment without a whole identity: the node never was, it is begun again;
//! - a last segment without a whole header: records go in only once the header is durable, so it is removed;
//! - in the last segment, missing or broken records and heads whose sync had not ended: from the first such record on
//!   everything is cut, and heads are made to agree with the records that are left.
//!
//! A sync has surely ended if any later record or head says so: each carries how many records before it were not yet
//! durable. All before a last segment was synced before that was begun. So the only damage that looks like a crash is
//! damage to the last batch, and only if the process ended in any way but that one: nothing on the disk can tell there
//! whether the sync had ended, as the only thing that happened after it was that others were told. It is taken for a
//! crash, because crashes are common and must not need an operator.

use super::ahead::find_space;
use super::disk::{Disk, DiskError};
use super::examine::{Loss, examine, read_heads, read_region};
use super::frame::{Fault, Head};
use super::log::Identity;
use super::reader::{Frame, Next, Reader};
use super::segment::{self, FORMAT_VERSION, HEADER_BYTES, Header, HeaderFault};
use super::sequence::{Sequence, Turn};
use super::slot::{SLOT_BYTES, Slot};
use crate::protocol::record::{RECORD_VERSION, Record};
use norn_client::wire::{ClusterId, NodeId};

mod error;

pub use error::OpenError;

/// What a replay went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records visited.
    pub records: u64,
    /// Segments of the log as it is now.
    pub segments: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Bytes of a torn end that were cut off, without the space behind it.
    pub cut_bytes: u64,
    /// Records in it whose heads were found. As far as can be told their sync had not ended, so that nobody heard of
    /// them; damage to the last batch before a crash looks the same.
    pub cut_records: u64,
    /// Heads at the end of the log that were written anew, as the crash had left them missing or too many.
    pub heads_mended: u64,
}

/// Where the log goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the last segment.
    pub segment: u64,
    /// Its header.
    pub header: Header,
    /// Where its last record ends.
    pub length: u64,
    /// Ordinal of the next record.
    pub next_ordinal: u64,
    /// The cluster in the first genesis record; zero if there was none.
    pub cluster: ClusterId,
}

/// Where every log begins.
impl Default for Position {
    fn default() -> Self {
        let (cluster, node) = (ClusterId::default(), NodeId(0));
        let header = Header { cluster, node, segment: 0, first_ordinal: 1, slots: 1 };
        Position { segment: 0, header, length: 0, next_ordinal: 1, cluster }
    }
}

impl Position {
    /// Takes note of a record that was read or written.
    pub fn pass(&mut self, record: &Record) {
        self.next_ordinal += 1;
        if let Record::Genesis(genesis) = record
            && self.cluster == ClusterId::default()
        {
            self.cluster = genesis.cluster;
        }
    }
}

/// Checks the names of all segments; returns how many there are, which is the number of the last.
pub(crate) fn survey<D: Disk>(disk: &D) -> Result<u64, OpenError> {
    let mut last = 0;
    for file in disk.list()?.into_iter().filter(|file| segment::is_of_log(file)) {
        let expected = segment::name(last + 1);
        if segment::number(&file).is_none() {
            return Err(OpenError::Names { file, known: "no segment of the log has such a name".into() });
        }
        if file != expected {
            return Err(OpenError::Names { file, known: format!("{expected} should come before it and is missing") });
        }
        last += 1;
    }
    Ok(last)
}

/// Reads who the node is from the first segment. None if it was never finished, which only a segment that is `alone`
/// can be.
pub(crate) fn read_identity<D: Disk>(disk: &D, alone: bool) -> Result<Option<Identity>, OpenError> {
    let file = segment::name(1);
    let length = disk.length(&file)?;
    let header = match read_header(disk, &file)? {
        Ok(header) => header,
        Err(HeaderFault::Broken(_)) if alone && length <= HEADER_BYTES as u64 => return Ok(None),
        Err(fault) => return Err(header_error(&file, fault)),
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

/// Visits every record of the segments up to number `last`, and mends what a crash may have left at the end.
pub(crate) fn replay<D: Disk>(
    disk: &mut D,
    identity: Identity,
    last: u64,
    mut visit: impl FnMut(Record) -> Result<(), String>,
) -> Result<(Position, Replayed), OpenError> {
    let mut position = Position::default();
    let mut replayed = Replayed::default();
    let mut end = End::default();
    for number in 1..=last {
        let file = segment::name(number);
        let length = disk.length(&file)?;
        let header = match read_header(disk, &file)? {
            Ok(header) => header,
            // The records come after the header is durable: there are none, and the segment before is whole.
            Err(HeaderFault::Broken(_)) if number == last && number > 1 && length <= HEADER_BYTES as u64 => {
                let all_synced = true;
                end_of_log(disk, &position, &end, all_synced, &mut replayed)?;
                disk.remove(&file)?;
                disk.sync_directory()?;
                replayed.cut_bytes += length;
                break;
            }
            Err(fault) => return Err(header_error(&file, fault)),
        };
        position.segment = number;
        check_header(&header, &file, identity.node, &position)?;
        check_first_ordinal(disk, &header, &file, &position)?;
        position.header = header;
        end = read_records(disk, &file, length, &mut position, &mut visit)?;
        replayed.segments += 1;
        if number == last {
            end_of_log(disk, &position, &end, false, &mut replayed)?;
        } else if let Some(broken) = end.broken.take() {
            return Err(damaged_within(disk, &file, &header, broken)?);
        }
        replayed.bytes += position.length - position.header.records_offset();
    }
    replayed.records = position.next_ordinal - 1;
    Ok((position, replayed))
}

/// How the reading of a segment ended.
#[derive(Debug, Default)]
struct End {
    /// What its heads should be.
    heads: Vec<Slot>,
    /// What is wrong, if it ended before the file did.
    broken: Option<Broken>,
}

/// A place where the record whose turn it is should be, and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broken {
    offset: u64,
    known: String,
}

/// Visits the records of one segment. `position` ends after the last one before anything is wrong.
fn read_records<D: Disk>(
    disk: &D,
    file: &str,
    length: u64,
    position: &mut Position,
    visit: &mut impl FnMut(Record) -> Result<(), String>,
) -> Result<End, OpenError> {
    let mut end = End::default();
    let mut sequence = Sequence::new(position.next_ordinal);
    let mut reader = Reader::new(disk, file, position.header.records_offset(), length);
    position.length = reader.offset();
    loop {
        let frame = match reader.next()? {
            Next::End => return Ok(end),
            Next::Damage(damage) => {
                let known = describe(damage.fault, Some(sequence.next_ordinal()));
                end.broken = Some(Broken { offset: damage.offset, known });
                return Ok(end);
            }
            Next::Frame(frame) => frame,
        };
        let Frame { offset, head: Head { ordinal, fingerprint, .. }, .. } = frame;
        let has_slot = position.header.has_slot(ordinal);
        match sequence.take(ordinal, fingerprint) {
            Turn::Next if has_slot => {
                let record = decode(file, &frame)?;
                end.heads.push(Slot::of(&frame.head, offset, frame.bytes, &record));
                position.pass(&record);
                visit(record).map_err(|cause| OpenError::Refused { file: file.into(), offset, ordinal, cause })?;
            }
            Turn::Repeat => {}
            Turn::Ahead if has_slot => {
                let known = describe_turn(Turn::Ahead, ordinal, position.next_ordinal);
                end.broken = Some(Broken { offset, known });
                return Ok(end);
            }
            // A crash leaves gaps, but it never makes a record.
            turn @ (Turn::Behind | Turn::Conflict | Turn::Next | Turn::Ahead) => {
                let known = describe_turn(turn, ordinal, position.next_ordinal);
                return Err(OpenError::Damaged { file: file.into(), offset, known, loss: Loss::default() });
            }
        }
        position.length = offset + frame.bytes;
    }
}

/// Mends the end of the log, unless what is missing there was durable once. With `all_synced`, all of the segment was.
fn end_of_log<D: Disk>(
    disk: &mut D,
    position: &Position,
    end: &End,
    all_synced: bool,
    replayed: &mut Replayed,
) -> Result<(), OpenError> {
    let (file, header) = (segment::name(position.segment), &position.header);
    let next = position.next_ordinal;
    let heads = read_heads(disk, &file, header)?;
    let cut_heads = heads.iter().flatten().filter(|head| head.ordinal >= next).count();
    if cut_heads > 0 || end.broken.is_some() {
        let findings = examine(disk, &file, header)?;
        let durable = if all_synced { findings.highest() } else { findings.synced };
        if durable >= next || findings.foreign || all_synced && end.broken.is_some() {
            let missing =
                || Broken { offset: position.length, known: format!("the segment ends before record {next}") };
            let Broken { offset, known } = end.broken.clone().unwrap_or_else(missing);
            return Err(OpenError::Damaged { file, offset, known, loss: findings.lost(durable) });
        }
    }
    replayed.cut_records = cut_heads as u64;
    // Space stays: zeroes are what the next records want.
    let cut_bytes = find_space(disk, &file, position.length, disk.length(&file)?)? - position.length;
    if cut_bytes > 0 {
        disk.truncate(&file, position.length)?;
        replayed.cut_bytes += cut_bytes;
    }
    replayed.heads_mended = mend_heads(disk, &file, header, &end.heads)?;
    if cut_bytes > 0 || replayed.heads_mended > 0 {
        disk.sync(&file)?;
    }
    Ok(())
}

/// Writes the heads of a segment anew where they are not what they should be; how many are not.
fn mend_heads<D: Disk>(disk: &mut D, file: &str, header: &Header, heads: &[Slot]) -> Result<u64, DiskError> {
    let found = read_region(disk, file, header)?;
    let mut right: Vec<u8> = heads.iter().flat_map(Slot::encode).collect();
    right.resize(right.len().max(found.len()), 0);
    let differs = |place: &usize| {
        let bytes = place * SLOT_BYTES..((place + 1) * SLOT_BYTES).min(right.len());
        found.get(bytes.clone()) != Some(&right[bytes])
    };
    let wrong: Vec<usize> = (0..right.len().div_ceil(SLOT_BYTES)).filter(differs).collect();
    if let (Some(first), Some(last)) = (wrong.first(), wrong.last()) {
        let bytes = &right[first * SLOT_BYTES..((last + 1) * SLOT_BYTES).min(right.len())];
        disk.write(file, (HEADER_BYTES + first * SLOT_BYTES) as u64, bytes)?;
    }
    Ok(wrong.len() as u64)
}

/// Damage in a segment that is not the last: all of it was durable before the next one was begun.
fn damaged_within<D: Disk>(disk: &D, file: &str, header: &Header, broken: Broken) -> Result<OpenError, DiskError> {
    let findings = examine(disk, file, header)?;
    let after = read_header(disk, &segment::name(header.segment + 1))?;
    let last = match after {
        Ok(after) if after.node == header.node && after.segment == header.segment + 1 => after.first_ordinal - 1,
        _ => findings.highest(),
    };
    let Broken { offset, known } = broken;
    Ok(OpenError::Damaged { file: file.into(), offset, known, loss: findings.lost(last) })
}

/// Checks that a segment begins where the one before it ends. `position` is still the end of that one.
fn check_first_ordinal<D: Disk>(disk: &D, header: &Header, file: &str, position: &Position) -> Result<(), OpenError> {
    let (found, next) = (header.first_ordinal, position.next_ordinal);
    if found == next {
        return Ok(());
    }
    if found < next || position.header.segment == 0 {
        return Err(damaged(file, 0, &format!("the segment begins with record {found}, and it should with {next}")));
    }
    let file = segment::name(position.header.segment);
    let loss = examine(disk, &file, &position.header)?.lost(found - 1);
    let known = format!("the segment ends before record {next}, and the next one begins with record {found}");
    Err(OpenError::Damaged { file, offset: position.length, known, loss })
}

fn read_header<D: Disk>(disk: &D, file: &str) -> Result<Result<Header, HeaderFault>, DiskError> {
    Ok(Header::decode(&disk.read(file, 0, HEADER_BYTES)?))
}

/// Checks a whole header against what the log says so far.
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

fn decode(file: &str, frame: &Frame<'_>) -> Result<Record, OpenError> {
    let ordinal = frame.head.ordinal;
    Record::decode(frame.body).map_err(|error| OpenError::Version {
        file: file.into(),
        offset: frame.offset,
        known: format!("record {ordinal} is whole, but this program does not understand it ({error})"),
    })
}

/// Damage of which nobody can say what it cost.
fn damaged(file: &str, offset: u64, known: &str) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, known: known.into(), loss: Loss::untold() }
}

fn header_error(file: &str, fault: HeaderFault) -> OpenError {
    match fault {
        HeaderFault::Broken(known) => damaged(file, 0, known),
        HeaderFault::Format(_) | HeaderFault::Records(_) => {
            OpenError::Version { file: file.into(), offset: 0, known: header_fault(fault) }
        }
    }
}

/// What is wrong with a header.
pub(crate) fn header_fault(fault: HeaderFault) -> String {
    match fault {
        HeaderFault::Broken(known) => known.into(),
        HeaderFault::Format(found) => {
            format!("the segment has format version {found}, this program knows {FORMAT_VERSION}")
        }
        HeaderFault::Records(found) => {
            format!("the segment has records of version {found}, this program knows {RECORD_VERSION}")
        }
    }
}

/// What is wrong where a record should be; which one, if that is known.
pub(crate) fn describe(fault: Fault, ordinal: Option<u64>) -> String {
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
