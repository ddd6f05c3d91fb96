//! Repairs that a replay finds necessary, and carrying them out.
//!
//! A start may be refused for many reasons, some known only once the whole log is read, and some only to the host. So the replay
//! writes nothing: it lists the repairs, and the host has them made once nothing prevents the start. Until then the files are left as
//! they are, so that an operator can restore damaged ones from a copy.

use super::super::ahead::find_space;
use super::super::disk::{Disk, DiskError};
use super::super::examine::{read_heads, read_region};
use super::super::reader::READ_BYTES;
use super::super::segment::{self, HEADER_BYTES, Header};
use super::super::slot::{SLOT_BYTES, Slot};
use super::{Position, Replayed};
use std::ops::Range;

/// All changes that a start makes to a log before it continues it.
#[derive(Debug, Default)]
pub struct Mending {
    /// Damaged headers whose content is known, to be rewritten.
    pub(super) headers: Vec<Header>,
    /// The segment to begin after lost records at the end of the log.
    pub(super) behind: Option<Header>,
    pub(super) end: Option<End>,
    /// A last segment without a whole header, to be removed: records are written only after the header is durable, so it has none.
    pub(super) begun: Option<u64>,
}

/// Repairs of the last segment with records.
#[derive(Debug)]
pub(super) struct End {
    segment: u64,
    /// Length to cut to, if a crash left other bytes after it.
    cut: Option<u64>,
    heads: Heads,
    /// Ranges that are not known to have been durable, to be written once more. The previous process's sync of them may have failed:
    /// then the system can show bytes that are on no disk, and no further sync writes them.
    anew: Vec<Range<u64>>,
}

/// Heads of a segment to be corrected.
#[derive(Debug)]
struct Heads {
    count: u64,
    offset: u64,
    /// Correct bytes, from the first wrong head to the last.
    bytes: Vec<u8>,
}

impl Mending {
    /// Makes the repairs, durably. If they are interrupted anywhere, the next start finds the rest to be done. A partial file that
    /// becomes a segment is removed from `obsolete`.
    pub fn make<D: Disk>(self, disk: &mut D, obsolete: &mut Vec<String>) -> Result<(), DiskError> {
        for header in &self.headers {
            let file = segment::name(header.segment);
            disk.write(&file, 0, &header.encode())?;
            disk.sync(&file)?;
        }
        // Cutting the end may remove the evidence that the last records were durable, so a new header must state it before.
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

/// Begins a segment after lost records. It reuses the partial file of a start that died here, which is then no file to remove.
fn begin_behind<D: Disk>(disk: &mut D, header: &Header, obsolete: &mut Vec<String>) -> Result<(), DiskError> {
    // Renamed only when whole: a torn header would imply that the rest of the segment before was durable, too.
    let (file, partial) = (segment::name(header.segment), segment::partial_name(header.segment));
    disk.write(&partial, 0, &header.encode())?;
    disk.sync(&partial)?;
    disk.rename(&partial, &file)?;
    disk.sync_directory()?;
    obsolete.retain(|left| *left != partial);
    Ok(())
}

impl End {
    /// Finds bytes that a crash left after the last record, and heads that do not agree with the records.
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
        // Trailing zeroes stay: they are preallocated space for the next records.
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

/// Ranges of the last segment that nothing in the log shows to be durable: header, heads and frames.
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

/// Finds the wrong heads of a segment. Heads of lost records stay as they are; heads after all records are cleared.
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

/// Rewrites the wrong heads of a segment. Returns their number.
pub fn mend_heads<D: Disk>(
    disk: &mut D,
    file: &str,
    header: &Header,
    heads: &[Option<Slot>],
) -> Result<u64, DiskError> {
    let wrong = find_heads(disk, file, header, heads)?;
    wrong.write(disk, file)?;
    Ok(wrong.count)
}
