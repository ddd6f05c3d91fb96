//! Preallocation: zeroes written ahead of records and heads, so that most syncs find the blocks they need.
//!
//! Where a file grows, or a hole in it gets a block, a sync has to make file system metadata durable besides the bytes, and takes
//! about twice as long. So now and then a write brings more bytes than it needs, and later writes replace zeroes. The zeroes share
//! that write's sync. For a reader, zeroes up to the end of a file are free space, in any segment: no frame begins with a zero, and
//! heads and the ordinals of the next segment show which records are missing there.

use super::disk::{Disk, DiskError};
use super::reader::READ_BYTES;
use super::segment::{BYTES_PER_SLOT, Header};
use super::slot::SLOT_BYTES;

/// The preallocated space ends at a block boundary, because the file system reads a block before it writes a part of it.
const BLOCK_BYTES: u64 = 4096;
/// A batch larger than one part in this many of a step brings no zeroes: there the bytes dominate the cost, and each would be written
/// twice.
const LARGE_PART: u64 = 4;
/// A step covers at least this many batches, as each step costs one of the longer syncs.
const STEP_BATCHES: u64 = 24;

/// End of the zeroes in the current segment.
#[derive(Debug)]
pub struct Ahead {
    /// Bytes of zeroes after the records at a time, more for large batches; 0 for none.
    step_bytes: u64,
    /// Bytes of records after which no space is preallocated.
    segment_bytes: u64,
    records_end: u64,
    heads_end: u64,
}

impl Ahead {
    /// For segments of this many bytes of records. Zeroes that a segment has already are not looked up: they are written again.
    pub fn new(step_bytes: u64, segment_bytes: u64) -> Ahead {
        Ahead { step_bytes, segment_bytes, records_end: 0, heads_end: 0 }
    }

    /// Resets the state for another segment.
    pub fn reset(&mut self) {
        *self = Ahead::new(self.step_bytes, self.segment_bytes);
    }

    /// Appends zeroes to frames that are about to be written at this offset, if they reach beyond the preallocated space.
    pub fn extend_records(&mut self, header: &Header, offset: u64, frames: &mut Vec<u8>) {
        if frames.len() as u64 > self.step_bytes / LARGE_PART {
            return;
        }
        let limit = header.records_offset().saturating_add(self.segment_bytes);
        extend(&mut self.records_end, self.step_bytes, limit, offset, frames);
    }

    /// As [`Ahead::extend_records`], for the heads of as many bytes of records.
    pub fn extend_heads(&mut self, header: &Header, offset: u64, heads: &mut Vec<u8>) {
        let step_bytes = self.step_bytes / BYTES_PER_SLOT * SLOT_BYTES as u64;
        extend(&mut self.heads_end, step_bytes, header.records_offset(), offset, heads);
    }
}

fn extend(space_end: &mut u64, step_bytes: u64, limit: u64, offset: u64, bytes: &mut Vec<u8>) {
    let end = offset + bytes.len() as u64;
    if step_bytes == 0 || end <= *space_end {
        return;
    }
    let step_bytes = step_bytes.max(STEP_BATCHES * bytes.len() as u64);
    *space_end = (end + step_bytes).next_multiple_of(BLOCK_BYTES).min(limit).max(end);
    bytes.resize((*space_end - offset) as usize, 0);
}

/// Start of the zeroes at the end of a file of this length, at `from` at the earliest.
pub fn find_space<D: Disk>(disk: &D, file: &str, from: u64, length: u64) -> Result<u64, DiskError> {
    let mut end = length;
    while end > from {
        let start = end.saturating_sub(READ_BYTES as u64).max(from);
        let bytes = disk.read(file, start, (end - start) as usize)?;
        if let Some(place) = bytes.iter().rposition(|byte| *byte != 0) {
            return Ok(start + place as u64 + 1);
        }
        end = start;
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::Double;
    use norn_wire::{ClusterId, NodeId};

    const HEADER: Header =
        Header { cluster: ClusterId(0), node: NodeId(7), segment: 1, first_ordinal: 1, slots: 1 << 10 };

    #[test]
    fn zeroes_come_once_for_many_writes_and_never_where_nothing_is_written() {
        let mut ahead = Ahead::new(100_000, 150_000);
        let (start, mut offset) = (HEADER.records_offset(), HEADER.records_offset());
        let mut extended = Vec::new();
        while offset < start + 150_000 {
            let mut frames = vec![1; 1_000];
            ahead.extend_records(&HEADER, offset, &mut frames);
            assert!(frames[..1_000].iter().all(|byte| *byte == 1) && frames[1_000..].iter().all(|byte| *byte == 0));
            if frames.len() > 1_000 {
                extended.push((offset - start, offset + frames.len() as u64 - start));
            }
            offset += 1_000;
        }
        let [(0, first), (second, 150_000)] = extended[..] else { panic!("two steps: {extended:?}") };
        assert!((101_000..101_000 + BLOCK_BYTES).contains(&first) && (start + first).is_multiple_of(BLOCK_BYTES));
        assert_eq!(second, first / 1_000 * 1_000);
        ahead.reset();
        let mut large = vec![1; 25_001];
        ahead.extend_records(&HEADER, start, &mut large);
        assert_eq!(large.len(), 25_001, "a large batch brings none");
        let mut frames = vec![1; 1_000];
        ahead.extend_records(&HEADER, start, &mut frames);
        assert_eq!(frames.len() as u64, first);
        ahead.reset();
        let mut batch = vec![1; 5_000];
        ahead.extend_records(&HEADER, start, &mut batch);
        assert!((125_000..125_000 + BLOCK_BYTES).contains(&(batch.len() as u64)), "worth some batches of that size");
        // Only a record larger than the segment lies behind its end.
        let mut frames = vec![1; 1_000];
        ahead.extend_records(&HEADER, start + 150_000, &mut frames);
        assert_eq!(frames.len(), 1_000);
    }

    #[test]
    fn heads_get_their_share_and_stay_before_the_records() {
        let mut ahead = Ahead::new(100_000, 150_000);
        let mut heads = vec![1; SLOT_BYTES];
        ahead.extend_heads(&HEADER, HEADER.slot_offset(1), &mut heads);
        assert_eq!(HEADER.slot_offset(1) + heads.len() as u64, 8_192);
        let (last, mut heads) = (HEADER.slot_offset(1_000), vec![1; 2 * SLOT_BYTES]);
        ahead.extend_heads(&HEADER, last, &mut heads);
        assert_eq!(last + heads.len() as u64, HEADER.records_offset());
    }

    #[test]
    fn without_a_step_nothing_is_added() {
        let mut ahead = Ahead::new(0, 150_000);
        let mut bytes = vec![1; 32];
        ahead.extend_records(&HEADER, HEADER.records_offset(), &mut bytes);
        ahead.extend_heads(&HEADER, HEADER.slot_offset(1), &mut bytes);
        assert_eq!(bytes.len(), 32);
    }

    #[test]
    fn space_begins_behind_the_last_byte_that_is_no_zero() {
        for (zeroes, before) in [(0, 1), (5, 1), (READ_BYTES, 3), (READ_BYTES - 1, 1), (3 * READ_BYTES, READ_BYTES)] {
            let bytes = [vec![0; before - 1], vec![7], vec![0; zeroes]].concat();
            let (disk, length) = (Double::with_file("a", &bytes), bytes.len() as u64);
            assert_eq!(find_space(&disk, "a", 0, length), Ok(before as u64));
            assert_eq!(find_space(&disk, "a", before as u64 - 1, length), Ok(before as u64));
            assert_eq!(find_space(&disk, "a", before as u64, length), Ok(before as u64));
            assert_eq!(find_space(&disk, "a", length, length), Ok(length));
        }
    }
}
