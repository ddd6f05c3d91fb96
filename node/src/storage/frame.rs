//! One record in a segment: length, checksum, ordinal and body.

use crate::limits::RECORD_BYTES_MAX;
use crate::protocol::record::Record;

/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 16;
/// No frame is shorter: a body has at least one byte, so that zeroes are no frame.
pub(crate) const FRAME_BYTES_MIN: usize = HEAD_BYTES + 1;

const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "a body's length fits its field");

/// What stands before a body; nothing of it is checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the body.
    pub length: u32,
    /// Over ordinal and body.
    pub checksum: u32,
    /// Place of the record in the log, from 1.
    pub ordinal: u64,
}

impl Head {
    /// Reads the fields as they are.
    pub fn read(bytes: &[u8; HEAD_BYTES]) -> Head {
        let (length, rest) = bytes.split_first_chunk::<4>().expect("16 bytes");
        let (checksum, rest) = rest.split_first_chunk::<4>().expect("12 bytes");
        let ordinal = rest.first_chunk::<8>().expect("8 bytes");
        Head {
            length: u32::from_be_bytes(*length),
            checksum: u32::from_be_bytes(*checksum),
            ordinal: u64::from_be_bytes(*ordinal),
        }
    }

    /// Whether a body can be that long at all. Asked before anything is read or allocated by it.
    pub fn length_allowed(&self) -> bool {
        (1..=RECORD_BYTES_MAX).contains(&(self.length as usize))
    }

    /// Head and body together.
    pub fn frame_bytes(&self) -> usize {
        HEAD_BYTES + self.length as usize
    }

    /// Whether this is the whole and undamaged body.
    pub fn matches(&self, body: &[u8]) -> bool {
        body.len() == self.length as usize && self.checksum == checksum_over(checksum_start(self.ordinal), body)
    }
}

/// Checksum of an ordinal with no body yet.
pub(crate) fn checksum_start(ordinal: u64) -> u32 {
    crc32c::crc32c(&ordinal.to_be_bytes())
}

/// The checksum carried on over more of the body.
pub(crate) fn checksum_over(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

/// Appends the frame of a record to `out`. A body longer than [`RECORD_BYTES_MAX`] leaves `out` as it was and returns
/// its length.
pub(crate) fn encode(ordinal: u64, record: &Record, out: &mut Vec<u8>) -> Result<(), usize> {
    assert!(ordinal > 0, "ordinals count from 1");
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    record.encode(out);
    let (head, body) = out[start..].split_at_mut(HEAD_BYTES);
    let length = body.len();
    if length > RECORD_BYTES_MAX {
        out.truncate(start);
        return Err(length);
    }
    assert!(length > 0, "a record has a body");
    let checksum = checksum_over(checksum_start(ordinal), body);
    head[0..4].copy_from_slice(&(length as u32).to_be_bytes());
    head[4..8].copy_from_slice(&checksum.to_be_bytes());
    head[8..16].copy_from_slice(&ordinal.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
