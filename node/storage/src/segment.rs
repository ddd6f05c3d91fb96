//! One segment file of the log: its name and its header. A snapshot has a header too.

use super::slot::SLOT_BYTES;
use norn_model::record::RECORD_VERSION;
use norn_wire::{ClusterId, NodeId};

/// First bytes of every segment.
pub const MAGIC: [u8; 8] = *b"NORN-WAL";
/// First bytes of every snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"NORN-SNP";
/// Length of the magic.
pub const MAGIC_BYTES: u64 = MAGIC.len() as u64;
/// Version of the header and of frames, and of those record layouts that do not carry their own version: the format of nodes of
/// protocol version 3.
pub const FORMAT_VERSION: u16 = 4;
/// Oldest format that is read. Version 2 segments do not repeat promises. In version 3 no table names the holders of its partition.
pub const FORMAT_VERSION_MIN: u16 = 2;
/// Bytes of a header: a sector of its own, so that no write of a head touches it.
pub const HEADER_BYTES: usize = 512;
/// Offset of the header's checksum.
const CHECKSUM_PLACE: usize = HEADER_BYTES - 4;
/// Bytes of records per slot: roughly a small record, because unused slots are holes in the file and cost nothing.
pub const BYTES_PER_SLOT: u64 = 512;
/// Fewest slots of a segment.
const SLOTS_MIN: u32 = 8;
/// Most slots of a segment.
pub const SLOTS_MAX: u32 = 1 << 17;
/// Number of the highest segment whose name still sorts after all others.
const NUMBER_MAX: u64 = 9_999_999_999_999_999;
const SUFFIX: &str = ".log";
/// Suffix of a segment that is still being written.
const PARTIAL_SUFFIX: &str = ".partial";

/// File name of a segment. Names sort as numbers do.
pub fn name(number: u64) -> String {
    assert!((1..=NUMBER_MAX).contains(&number), "segments count from 1 in 16 digits");
    format!("{number:016}{SUFFIX}")
}

/// File name of a segment that does not take effect yet.
pub fn partial_name(number: u64) -> String {
    format!("{}{PARTIAL_SUFFIX}", name(number))
}

/// Whether a file is a segment that never took effect.
pub fn is_partial(file: &str) -> bool {
    file.strip_suffix(PARTIAL_SUFFIX).is_some_and(is_of_log)
}

/// Whether a file name claims to be part of the log.
pub fn is_of_log(file: &str) -> bool {
    file.ends_with(SUFFIX)
}

/// Whether a file belongs to a log, judged by its name or by its first bytes: either may be wrong.
pub fn belongs_to_log(file: &str, first: &[u8]) -> bool {
    let is_named_so = number(file).or(super::snapshot::number(file)).is_some();
    is_named_so || [MAGIC, SNAPSHOT_MAGIC].iter().any(|magic| first.starts_with(magic))
}

/// Number of the segment with that file name.
pub fn number(file: &str) -> Option<u64> {
    digits(file.strip_suffix(SUFFIX)?)
}

/// Parses the 16 digits that a file name begins with.
pub fn digits(digits: &str) -> Option<u64> {
    if digits.len() != 16 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // The next number must be a valid name, too.
    digits.parse().ok().filter(|number| (1..NUMBER_MAX).contains(number))
}

/// Header of a segment or snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The cluster that the node belonged to when the segment was begun; zero if none.
    pub cluster: ClusterId,
    /// The node that wrote it.
    pub node: NodeId,
    /// Number in the file's name.
    pub segment: u64,
    /// Ordinal of the first record in it; in a snapshot, of the first record of the log after it.
    pub first_ordinal: u64,
    /// Slots for heads, and so the most records it can have; a snapshot has none.
    pub slots: u32,
}

/// Slots of a segment with this many bytes of records after this many promises.
pub fn slots_for(bytes: u64, promises: usize) -> u32 {
    let records = (bytes / BYTES_PER_SLOT).max(u64::from(SLOTS_MIN));
    (promises as u64).saturating_add(records).min(u64::from(SLOTS_MAX)) as u32
}

/// Why bytes are not a valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// Incomplete or damaged.
    Broken(&'static str),
    /// Written by a version with another segment format.
    Format(u16),
    /// Intact, but written by a version with another record format.
    Records(u16),
}

const IMPOSSIBLE: HeaderFault = HeaderFault::Broken("the header says what no such file is like");

impl Header {
    /// Offset of a record's head. The record must have a slot in this segment.
    pub fn slot_offset(&self, ordinal: u64) -> u64 {
        assert!(self.has_slot(ordinal), "record {ordinal} is of another segment");
        HEADER_BYTES as u64 + (ordinal - self.first_ordinal) * SLOT_BYTES as u64
    }

    /// Whether a record can be in this segment.
    pub fn has_slot(&self, ordinal: u64) -> bool {
        ordinal.checked_sub(self.first_ordinal).is_some_and(|place| place < u64::from(self.slots))
    }

    /// Offset of the first record.
    pub fn records_offset(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.slots) * SLOT_BYTES as u64
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(if self.slots == 0 { &SNAPSHOT_MAGIC } else { &MAGIC });
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_be_bytes());
        bytes[10..12].copy_from_slice(&RECORD_VERSION.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.cluster.to_bytes());
        bytes[28..44].copy_from_slice(&self.node.to_bytes());
        bytes[44..52].copy_from_slice(&self.segment.to_be_bytes());
        bytes[52..60].copy_from_slice(&self.first_ordinal.to_be_bytes());
        bytes[60..64].copy_from_slice(&self.slots.to_be_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_PLACE]);
        bytes[CHECKSUM_PLACE..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Reads the beginning of a segment's file, which may be shorter than a header.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderFault> {
        let header = Header::decode_as(bytes, &MAGIC)?;
        if (1..=SLOTS_MAX).contains(&header.slots) { Ok(header) } else { Err(IMPOSSIBLE) }
    }

    /// Reads the beginning of a snapshot's file.
    pub fn decode_snapshot(bytes: &[u8]) -> Result<Header, HeaderFault> {
        let header = Header::decode_as(bytes, &SNAPSHOT_MAGIC)?;
        if header.slots == 0 { Ok(header) } else { Err(IMPOSSIBLE) }
    }

    fn decode_as(bytes: &[u8], magic: &[u8; 8]) -> Result<Header, HeaderFault> {
        let magic = bytes.first_chunk() == Some(magic);
        // Another format may have its checksum elsewhere, so the version is checked first. Version 0 never existed; zeroes are what a
        // crash leaves.
        let format = if bytes.len() < 10 { 0 } else { u16::from_be_bytes(field(bytes, 8)) };
        if magic && format != 0 && !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&format) {
            return Err(HeaderFault::Format(format));
        }
        if bytes.len() < HEADER_BYTES {
            return Err(HeaderFault::Broken("the header is incomplete"));
        }
        if !magic {
            return Err(HeaderFault::Broken("this is not how such a file begins"));
        }
        if crc32c::crc32c(&bytes[..CHECKSUM_PLACE]) != u32::from_be_bytes(field(bytes, CHECKSUM_PLACE)) {
            return Err(HeaderFault::Broken("the checksum of the header does not match"));
        }
        let records = u16::from_be_bytes(field(bytes, 10));
        if records != RECORD_VERSION {
            return Err(HeaderFault::Records(records));
        }
        let (first_ordinal, slots) = (u64::from_be_bytes(field(bytes, 52)), u32::from_be_bytes(field(bytes, 60)));
        let segment = u64::from_be_bytes(field(bytes, 44));
        let counts = first_ordinal > 0 && first_ordinal.checked_add(u64::from(SLOTS_MAX)).is_some();
        // This segment and the next one must have valid names.
        if !counts || !(1..NUMBER_MAX).contains(&segment) {
            return Err(IMPOSSIBLE);
        }
        Ok(Header {
            cluster: ClusterId::from_bytes(field(bytes, 12)),
            node: NodeId::from_bytes(field(bytes, 28)),
            segment,
            first_ordinal,
            slots,
        })
    }
}

fn field<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    *bytes[place..].first_chunk().expect("the caller looked at the length")
}

#[cfg(test)]
mod tests;
