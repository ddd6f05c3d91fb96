//! What a replay finds to be mended, and the mending itself.
//!
//! A start may be refused for many reasons, some of which are known only when all of the log has been read, and some only by the
//! host. So the replay writes nothing: it says what is to be done, and the host has that done once nothing stands against
//! the start. Until then the files are those that an operator can make whole again from a copy.

use super::super::ahead::find_space;
use super::super::disk::{Disk, DiskError};
use super::super::examine::{read_heads, read_region};
use super::super::reader::READ_BYTES;
use super::super::segment::{self, HEADER_BYTES, Header};
use super::super::slot::{SLOT_BYTES, Slot};
use super::{Position, Replayed};
use std::ops::Range;

/// All that a start changes in a log before it goes on in it.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    /// Damaged ones of which all is known, to be written anew.
    pub(super) headers: Vec<Header>,
    /// The segment that begins behind records that are lost.
    pub(super) behind: Option<Header>,
    pub(super) end: Option<End>,
    /// A last segment that was begun, and nothing more: the records come after the header is durable, so there are none.
    pub(super) begun: Option<u64>,
}

/// What is done to the last segment with records.
#[derive(Debug)]
pub(super) struct End {
    segment: u64,
    /// A crash has left something behind this length.
    cut: Option<u64>,
    heads: Heads,
    /// What nothing in the log says was durable, to be written once more. Its sync may have failed under the process before:
    /// then the system can show bytes that are on no disk, and that no further sync brings there.
    anew: Vec<Range<u64>>,
}

/// Heads of a segment that are not what they should be.
#[derive(Debug)]
struct Heads {
    count: u64,
    offset: u64,
    /// From the first to the last of them, as they should be.
    bytes: Vec<u8>,
}

impl Mending {
    /// Makes the log what the replay said it is, durably. Ended at any place, the next start finds the rest to be done. Files
    /// that take another's place are taken off `obsolete`.
    pub fn make<D: Disk>(self, disk: &mut D, obsolete: &mut Vec<String>) -> Result<(), DiskError> {
        for header in &self.headers {
            let file = segment::name(header.segment);
            disk.write(&file, 0, &header.encode())?;
            disk.sync(&file)?;
        }
        // What says that the last records were durable may go with the rest of the end: it must be said anew before.
        if let Some(header) = &self.behind {
            begin_behind(disk, header, obsolete)?;
        }
        if let Some(end) = self.end {
            end.make(disk)?;
        }
        if let Some(begun) = self.begun {
            disk.remove(&segment::name(begun))?;
            disk.sync_directory()?;
        }
        Ok(())
    }
}

/// Begins a segment behind records that are lost. What a start left that died here becomes that segment, and is no file to remove.
fn begin_behind<D: Disk>(disk: &mut D, header: &Header, obsolete: &mut Vec<String>) -> Result<(), DiskError> {
    // A part of a header would say more: that the rest of the segment before was durable, too.
    let (file, partial) = (segment::name(header.segment), segment::partial_name(header.segment));
    disk.write(&partial, 0, &header.encode())?;
    disk.sync(&partial)?;
    disk.rename(&partial, &file)?;
    disk.sync_directory()?;
    obsolete.retain(|left| *left != partial);
    Ok(())
}

impl End {
    /// What a crash left behind the last record, and heads that do not agree with the records.
    pub fn find<D: Disk>(
        disk: &D,
        position: &Position,
        heads: &[Option<Slot>],
        all_durable: bool,
        synced: u64,
        replayed: &mut Replayed,
    ) -> Result<End, DiskError> {
        let (file, header) = (segment::name(position.segment), &position.header);
        let found = read_heads(disk, &file, header)?;
        let cut_heads = found.iter().flatten().filter(|head| head.ordinal >= position.next_ordinal).count();
        // Space stays: zeroes are what the next records want.
        let cut_bytes = find_space(disk, &file, position.length, disk.length(&file)?)? - position.length;
        assert!(!all_durable || cut_heads == 0, "all of which there is a trace was durable, so it is there or lost");
        replayed.cut_records = cut_heads as u64;
        replayed.cut_bytes += cut_bytes;
        let wrong = find_heads(disk, &file, header, heads)?;
        replayed.heads_mended = wrong.count;
        let synced = if all_durable { position.next_ordinal - 1 } else { synced };
        Ok(End {
            segment: position.segment,
            cut: (cut_bytes > 0).then_some(position.length),
            heads: wrong,
            anew: unsure(position, heads, synced),
        })
    }

    fn make<D: Disk>(&self, disk: &mut D) -> Result<(), DiskError> {
        let file = segment::name(self.segment);
        if let Some(length) = self.cut {
            disk.truncate(&file, length)?;
        }
        self.heads.write(disk, &file)?;
        for range in &self.anew {
            let mut offset = range.start;
            while offset < range.end {
                let bytes = disk.read(&file, offset, READ_BYTES.min((range.end - offset) as usize))?;
                if bytes.is_empty() {
                    break;
                }
                disk.write(&file, offset, &bytes)?;
                offset += bytes.len() as u64;
            }
        }
        if self.cut.is_some() || self.heads.count > 0 || !self.anew.is_empty() {
            disk.sync(&file)?;
        }
        Ok(())
    }
}

/// What of the last segment nothing in the log says was durable: header, heads and frames.
fn unsure(position: &Position, heads: &[Option<Slot>], synced: u64) -> Vec<Range<u64>> {
    let (header, next) = (&position.header, position.next_ordinal);
    let first = header.first_ordinal.max(synced + 1);
    let mut ranges = Vec::new();
    if synced < header.first_ordinal {
        ranges.push(0..HEADER_BYTES as u64);
    }
    if first < next {
        let place = |ordinal: u64| (ordinal - header.first_ordinal) as usize;
        ranges.push(header.slot_offset(first)..header.slot_offset(next - 1) + SLOT_BYTES as u64);
        let offset = heads[place(first)..].iter().flatten().next().map_or(position.length, |head| head.offset.into());
        ranges.push(offset..position.length);
    }
    ranges
}

/// Finds the heads of a segment that are not what they should be. Those of records that are lost stay as they are, those behind
/// all records are taken back.
fn find_heads<D: Disk>(disk: &D, file: &str, header: &Header, heads: &[Option<Slot>]) -> Result<Heads, DiskError> {
    let found = read_region(disk, file, header)?;
    let as_found = |place: usize| {
        let bytes = found.get(place * SLOT_BYTES..(place + 1) * SLOT_BYTES).and_then(|bytes| bytes.first_chunk());
        bytes.copied().unwrap_or([0; SLOT_BYTES])
    };
    let right = heads.iter().enumerate().flat_map(|(place, head)| head.as_ref().map_or(as_found(place), Slot::encode));
    let mut right: Vec<u8> = right.collect();
    right.resize(right.len().max(found.len()), 0);
    let differs = |place: &usize| {
        let bytes = place * SLOT_BYTES..((place + 1) * SLOT_BYTES).min(right.len());
        found.get(bytes.clone()) != Some(&right[bytes])
    };
    let wrong: Vec<usize> = (0..right.len().div_ceil(SLOT_BYTES)).filter(differs).collect();
    let (Some(first), Some(last)) = (wrong.first(), wrong.last()) else {
        return Ok(Heads { count: 0, offset: 0, bytes: Vec::new() });
    };
    let bytes = right[first * SLOT_BYTES..((last + 1) * SLOT_BYTES).min(right.len())].to_vec();
    Ok(Heads { count: wrong.len() as u64, offset: (HEADER_BYTES + first * SLOT_BYTES) as u64, bytes })
}

impl Heads {
    fn write<D: Disk>(&self, disk: &mut D, file: &str) -> Result<(), DiskError> {
        if self.count == 0 { Ok(()) } else { disk.write(file, self.offset, &self.bytes) }
    }
}

/// Writes the heads of a segment anew where they are not what they should be; how many are not.
pub(crate) fn mend_heads<D: Disk>(
    disk: &mut D,
    file: &str,
    header: &Header,
    heads: &[Option<Slot>],
) -> Result<u64, DiskError> {
    let wrong = find_heads(disk, file, header, heads)?;
    wrong.write(disk, file)?;
    Ok(wrong.count)
}
