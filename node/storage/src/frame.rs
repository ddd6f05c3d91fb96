//! One record in a segment: a sentinel, then fingerprint, ordinal, unsynced, length and body, stuffed.

use super::stuffing::{SENTINEL, Unstuffable, stuff, stuffed_bytes_max, unstuff};
use norn_model::limits::RECORD_BYTES_MAX;
use norn_model::record::Record;

/// Bytes before the body, before stuffing.
pub const HEAD_BYTES: usize = 20;
/// Bytes from the beginning of a frame that suffice to read its head.
pub const HEAD_STUFFED_BYTES_MAX: usize = SENTINEL.len() + stuffed_bytes_max(HEAD_BYTES) + HEAD_BYTES;
/// Memory that an emptied buffer keeps.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "a body's length fits its field");

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// They do not begin with a sentinel.
    Rubbish,
    /// They end before the record does.
    Incomplete,
    /// They are not valid stuffed bytes.
    Stuffing,
    /// No record is that long.
    Length(u32),
    /// The fingerprint does not match the content.
    Fingerprint,
}

impl From<Unstuffable> for Fault {
    fn from(unstuffable: Unstuffable) -> Self {
        match unstuffable {
            Unstuffable::Short => Fault::Incomplete,
            Unstuffable::Digit => Fault::Stuffing,
        }
    }
}

/// Head of a frame: the fields before the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// CRC32C over the rest of the frame before it is stuffed.
    pub fingerprint: u32,
    /// Position of the record in the log, from 1.
    pub ordinal: u64,
    /// Number of records up to and including this one that were not yet known to be durable when it was written.
    pub unsynced: u32,
    /// Bytes of the body.
    pub length: u32,
}

/// Number of records up to and including `ordinal` that `synced` does not cover.
pub fn unsynced(ordinal: u64, synced: u64) -> u32 {
    assert!(synced < ordinal, "a record is written before it is synced");
    // A capped number claims fewer records to be durable than are, which is safe.
    u32::try_from(ordinal - synced).unwrap_or(u32::MAX)
}

/// Highest ordinal up to which all was durable when the record `ordinal` was written. The value read from disk may be anything, but a
/// record never vouches for itself, so 0 counts as 1.
pub fn synced_before(ordinal: u64, unsynced: u32) -> u64 {
    ordinal.saturating_sub(u64::from(unsynced.max(1)))
}

impl Head {
    fn from_content(content: &[u8; HEAD_BYTES]) -> Head {
        let (fingerprint, rest) = content.split_first_chunk::<4>().expect("20 bytes");
        let (ordinal, rest) = rest.split_first_chunk::<8>().expect("16 bytes");
        let (unsynced, rest) = rest.split_first_chunk::<4>().expect("8 bytes");
        let length = rest.first_chunk::<4>().expect("4 bytes");
        Head {
            fingerprint: u32::from_be_bytes(*fingerprint),
            ordinal: u64::from_be_bytes(*ordinal),
            unsynced: u32::from_be_bytes(*unsynced),
            length: u32::from_be_bytes(*length),
        }
    }

    /// Reads the head at the beginning of a frame. Only its length is validated, so that an impossible length causes no read and no
    /// allocation.
    pub fn read(bytes: &[u8], content: &mut Vec<u8>) -> Result<Head, Fault> {
        let stuffed = strip_sentinel(bytes)?;
        unstuff(stuffed, HEAD_BYTES, content)?;
        let head = Head::from_content(content.first_chunk().expect("it is that long"));
        let allowed = (1..=RECORD_BYTES_MAX).contains(&(head.length as usize));
        if allowed { Ok(head) } else { Err(Fault::Length(head.length)) }
    }

    /// Most bytes that the frame can have.
    pub fn frame_bytes_max(&self) -> usize {
        SENTINEL.len() + stuffed_bytes_max(HEAD_BYTES + self.length as usize)
    }

    /// Reads the frame with this head, and returns its size in bytes. Afterwards `content` is head and body.
    pub fn read_whole(&self, bytes: &[u8], content: &mut Vec<u8>) -> Result<usize, Fault> {
        let wanted = HEAD_BYTES + self.length as usize;
        let stuffed = unstuff(strip_sentinel(bytes)?, wanted, content)?;
        if content.len() != wanted || !stuffed.ended || self.fingerprint != fingerprint(content) {
            return Err(Fault::Fingerprint);
        }
        Ok(SENTINEL.len() + stuffed.bytes)
    }
}

/// The bytes after the sentinel that every frame begins with.
fn strip_sentinel(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes.strip_prefix(&SENTINEL) {
        Some(rest) => Ok(rest),
        None if SENTINEL.starts_with(bytes) => Err(Fault::Incomplete),
        None => Err(Fault::Rubbish),
    }
}

/// Fingerprint of head and body, over all bytes after its own field.
fn fingerprint(content: &[u8]) -> u32 {
    crc32c::crc32c(&content[4..])
}

/// Encodes frames.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Head and body before they are stuffed; empty between calls.
    content: Vec<u8>,
}

impl Encoder {
    /// Appends the frame of a record to `out`. A body longer than [`RECORD_BYTES_MAX`] leaves `out` as it was and
    /// returns its length.
    ///
    /// All records up to `synced` are durable already, so a reader of this record knows that any of those that is missing was lost.
    pub fn encode(&mut self, ordinal: u64, synced: u64, record: &Record, out: &mut Vec<u8>) -> Result<Head, usize> {
        assert!(self.content.is_empty(), "nothing is left of the record before");
        self.content.extend_from_slice(&[0; HEAD_BYTES]);
        record.encode(&mut self.content);
        let length = self.content.len() - HEAD_BYTES;
        if length > RECORD_BYTES_MAX {
            self.clear();
            return Err(length);
        }
        let head = self.write(ordinal, synced, out);
        self.clear();
        Ok(head)
    }

    /// Fills in the head before the body, and appends both.
    fn write(&mut self, ordinal: u64, synced: u64, out: &mut Vec<u8>) -> Head {
        let length = (self.content.len() - HEAD_BYTES) as u32;
        assert!(length > 0, "a record has a body");
        let unsynced = unsynced(ordinal, synced);
        self.content[4..12].copy_from_slice(&ordinal.to_be_bytes());
        self.content[12..16].copy_from_slice(&unsynced.to_be_bytes());
        self.content[16..20].copy_from_slice(&length.to_be_bytes());
        let fingerprint = fingerprint(&self.content);
        self.content[0..4].copy_from_slice(&fingerprint.to_be_bytes());
        out.extend_from_slice(&SENTINEL);
        stuff(&self.content, out);
        Head { fingerprint, ordinal, unsynced, length }
    }

    fn clear(&mut self) {
        self.content.clear();
        self.content.shrink_to(BUFFER_BYTES_KEPT);
    }
}

/// The frame of an arbitrary body, which need not be a valid record.
#[cfg(test)]
pub fn of_body(ordinal: u64, body: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder { content: [&[0; HEAD_BYTES][..], body].concat() };
    let mut out = Vec::new();
    encoder.write(ordinal, ordinal - 1, &mut out);
    out
}

/// Appends the frame of a small record that was written when nothing was durable.
#[cfg(test)]
pub fn encode(ordinal: u64, record: &Record, out: &mut Vec<u8>) {
    Encoder::default().encode(ordinal, 0, record, out).expect("small");
}

#[cfg(test)]
mod tests;
