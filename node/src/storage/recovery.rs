//! Reading a log back: what is trusted, what is cut, and what is refused.
//!
//! A crash can leave behind only three things, and only these are mended:
//! - a first segment without a whole identity: the node never was, it is begun again;
//! - a last segment without a whole header: records go in only once the header is durable, so it is removed;
//! - an end of the last segment that is no record, with no whole record behind it: it is cut.
//!
//! The one before a last segment was synced before that was begun, so damage in it is damage.

use super::disk::{Disk, DiskError};
use super::frame::{Encoder, Fault};
use super::log::Identity;
use super::reader::{Damage, Frame, Next, Reader};
use super::segment::{self, FORMAT_VERSION, HEADER_BYTES, Header, HeaderFault};
use super::sequence::{Sequence, Turn};
use crate::protocol::record::{RECORD_VERSION, Record};
use norn_client::wire::{ClusterId, NodeId};

/// Why a log is not opened. Whole records are all where they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("the log cannot be read or mended: {0}; see to the disk, then start the node again")]
    Disk(#[from] DiskError),
    /// Bytes are not what was written, where a crash leaves none such.
    #[error(
        "{file} at byte {offset}: {known}; a record that was already acknowledged may be damaged; restore the file from \
         a copy, or move the data directory aside and start the node as a new member"
    )]
    Damaged {
        /// The segment.
        file: String,
        /// Where the damage begins.
        offset: u64,
        /// What is there.
        known: String,
    },
    /// A segment is missing, or a file is named like one and is none.
    #[error(
        "{file}: {known}; put back the files that are missing and take away those that do not belong here, or move the \
         data directory aside and start the node as a new member"
    )]
    Names {
        /// The file that breaks the sequence.
        file: String,
        /// What was expected.
        known: String,
    },
    /// A segment of another node, another cluster or another place in the log.
    #[error(
        "{file} at byte 0: the header is whole, but {known}; it was copied from elsewhere: restore the right file from \
         a copy, or move the data directory aside and start the node as a new member"
    )]
    Foreign {
        /// The segment.
        file: String,
        /// What does not agree.
        known: String,
    },
    /// Written by another version of the program.
    #[error(
        "{file} at byte {offset}: {known}; start the version of norn that wrote it, or move the data directory aside and \
         start the node as a new member"
    )]
    Version {
        /// The segment.
        file: String,
        /// Where.
        offset: u64,
        /// Which versions.
        known: String,
    },
    /// The node did not accept a whole record.
    #[error(
        "{file} at byte {offset}: record {ordinal} is whole, but the node refuses it: {cause}; keep the data directory \
         for a report, and start the node on another one as a new member"
    )]
    Refused {
        /// The segment.
        file: String,
        /// Where its frame begins.
        offset: u64,
        /// Which record.
        ordinal: u64,
        /// What the node said.
        cause: String,
    },
}

/// What a replay went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Records visited.
    pub records: u64,
    /// Segments of the log as it is now.
    pub segments: u64,
    /// Bytes of the log as it is now.
    pub bytes: u64,
    /// Bytes of a torn end that were cut off.
    pub cut_bytes: u64,
}

/// Where the log goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the last segment.
    pub segment: u64,
    /// Its length.
    pub length: u64,
    /// Ordinal of the next record.
    pub next_ordinal: u64,
    /// The cluster in the first genesis record; zero if there was none.
    pub cluster: ClusterId,
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
    let header = read_header(disk, &file)?;
    let mut reader = Reader::new(disk, &file, HEADER_BYTES as u64, length);
    let offset = reader.offset();
    let fault = match (header, reader.next()?) {
        (Ok(header), Next::Frame(frame)) => {
            let identity = identity_in(&file, &frame)?;
            check_header(&header, &file, identity.node, &Position { segment: 1, ..begin() })?;
            return Ok(Some(identity));
        }
        (Err(fault @ (HeaderFault::Format(_) | HeaderFault::Records(_))), _) | (Err(fault), Next::Frame(_)) => {
            return Err(header_error(&file, fault));
        }
        (Err(fault @ HeaderFault::Broken(_)), Next::End | Next::Damage(_)) => header_error(&file, fault),
        (Ok(_), Next::End) => damaged(&file, offset, "record 1 is missing"),
        (Ok(_), Next::Damage(damage)) => damaged(&file, offset, &describe(damage.fault, 1)),
    };
    let unfinished = alone && length <= (HEADER_BYTES + identity_bytes_max()) as u64;
    if unfinished { Ok(None) } else { Err(fault) }
}

/// Who the node is, from the first frame of the log.
fn identity_in(file: &str, frame: &Frame<'_>) -> Result<Identity, OpenError> {
    if frame.head.ordinal != 1 {
        let known = format!("record {} is where 1 should be", frame.head.ordinal);
        return Err(damaged(file, frame.offset, &known));
    }
    match decode(file, frame)? {
        Record::Identity { node, incarnation } => Ok(Identity { node, incarnation }),
        _ => Err(damaged(file, frame.offset, "record 1 does not say which node this is")),
    }
}

/// Longest frame of an identity. The shortest with any other record behind it is longer: then the segment was finished.
fn identity_bytes_max() -> usize {
    let mut bytes = Vec::new();
    let longest = Record::Identity { node: NodeId(u128::MAX), incarnation: u64::MAX };
    Encoder::default().encode(u64::MAX, &longest, &mut bytes).expect("an identity is small");
    bytes.len()
}

/// Where every log begins.
fn begin() -> Position {
    Position { segment: 0, length: 0, next_ordinal: 1, cluster: ClusterId::default() }
}

/// Visits every record of the segments up to number `last`, and mends what a crash may have left at the end.
pub(crate) fn replay<D: Disk>(
    disk: &mut D,
    identity: Identity,
    last: u64,
    mut visit: impl FnMut(Record) -> Result<(), String>,
) -> Result<(Position, Replayed), OpenError> {
    let mut position = begin();
    let mut replayed = Replayed::default();
    for number in 1..=last {
        let file = segment::name(number);
        let length = disk.length(&file)?;
        let header = match read_header(disk, &file)? {
            Ok(header) => header,
            // The records come after the header is durable: there are none, and the segment before is whole.
            Err(HeaderFault::Broken(_)) if number == last && number > 1 && length <= HEADER_BYTES as u64 => {
                disk.remove(&file)?;
                disk.sync_directory()?;
                replayed.cut_bytes += length;
                break;
            }
            Err(fault) => return Err(header_error(&file, fault)),
        };
        position.segment = number;
        check_header(&header, &file, identity.node, &position)?;
        if let Some(damage) = read_records(disk, &file, length, &mut position, &mut visit)? {
            if number < last {
                return Err(damaged(&file, damage.offset, &describe(damage.fault, position.next_ordinal)));
            }
            cut(disk, &file, length, &position, damage)?;
            replayed.cut_bytes += length - position.length;
        }
        replayed.segments += 1;
        replayed.bytes += position.length;
    }
    replayed.records = position.next_ordinal - 1;
    Ok((position, replayed))
}

/// Visits the records of one segment. `position` ends after the last whole one before damage, if there is any.
fn read_records<D: Disk>(
    disk: &D,
    file: &str,
    length: u64,
    position: &mut Position,
    visit: &mut impl FnMut(Record) -> Result<(), String>,
) -> Result<Option<Damage>, OpenError> {
    let mut sequence = Sequence::new(position.next_ordinal);
    let mut reader = Reader::new(disk, file, HEADER_BYTES as u64, length);
    position.length = reader.offset();
    loop {
        let frame = match reader.next()? {
            Next::End => return Ok(None),
            Next::Damage(damage) => return Ok(Some(damage)),
            Next::Frame(frame) => frame,
        };
        position.length = frame.offset + frame.bytes;
        let ordinal = frame.head.ordinal;
        match sequence.take(ordinal, frame.head.fingerprint) {
            Turn::Next => {
                let record = decode(file, &frame)?;
                position.pass(&record);
                let offset = frame.offset;
                visit(record).map_err(|cause| OpenError::Refused { file: file.into(), offset, ordinal, cause })?;
            }
            Turn::Repeat => {}
            turn @ (Turn::Ahead | Turn::Behind | Turn::Conflict) => {
                return Err(damaged(file, frame.offset, &describe_turn(turn, ordinal, sequence.next_ordinal())));
            }
        }
    }
}

/// Cuts the torn end off the last segment, unless it is something else than that: a whole record behind it.
fn cut<D: Disk>(disk: &mut D, file: &str, length: u64, position: &Position, damage: Damage) -> Result<(), OpenError> {
    let what = describe(damage.fault, position.next_ordinal);
    if position.next_ordinal == 1 {
        return Err(damaged(file, damage.offset, &what));
    }
    let mut reader = Reader::new(disk, file, damage.end, length);
    loop {
        match reader.next()? {
            Next::End => break,
            Next::Damage(_) => {}
            Next::Frame(Frame { offset, head, .. }) => {
                let known = format!("{what}, and record {} stands whole behind it at byte {offset}", head.ordinal);
                return Err(damaged(file, damage.offset, &known));
            }
        }
    }
    assert!(position.length < length, "what is cut is there");
    disk.truncate(file, position.length)?;
    disk.sync(file)?;
    Ok(())
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
    } else if header.first_ordinal != position.next_ordinal {
        let (found, next) = (header.first_ordinal, position.next_ordinal);
        let known = format!("the segment begins with record {found}, and the one before it ends before record {next}");
        return Err(damaged(file, 0, &known));
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

fn damaged(file: &str, offset: u64, known: &str) -> OpenError {
    OpenError::Damaged { file: file.into(), offset, known: known.into() }
}

fn header_error(file: &str, fault: HeaderFault) -> OpenError {
    let known = match fault {
        HeaderFault::Broken(known) => return damaged(file, 0, known),
        HeaderFault::Format(found) => {
            format!("the segment has format version {found}, this program knows {FORMAT_VERSION}")
        }
        HeaderFault::Records(found) => {
            format!("the segment has records of version {found}, this program knows {RECORD_VERSION}")
        }
    };
    OpenError::Version { file: file.into(), offset: 0, known }
}

fn describe(fault: Fault, ordinal: u64) -> String {
    match fault {
        Fault::Rubbish => format!("there is something else where record {ordinal} should begin"),
        Fault::Incomplete => format!("record {ordinal} is incomplete"),
        Fault::Stuffing => format!("record {ordinal} holds bytes that are never written"),
        Fault::Length(length) => format!("record {ordinal} cannot have {length} bytes"),
        Fault::Fingerprint => format!("the fingerprint of record {ordinal} does not match"),
    }
}

fn describe_turn(turn: Turn, found: u64, expected: u64) -> String {
    match turn {
        Turn::Ahead => format!("record {found} is where {expected} should be: {} are missing", found - expected),
        Turn::Conflict => format!("there is another record {found} before this one: two writes are in conflict"),
        _ => format!("record {found} is where {expected} should be"),
    }
}

#[cfg(test)]
mod tests;
