//! Places of records in files, and reading bodies, results and log entries back from them.
//!
//! A place is a file number and an offset. The file number of a segment is twice the segment's number; that of the snapshot before
//! that segment is one less. So newer files have greater numbers.

use super::disk::DiskError;
use super::frame::{HEAD_BYTES, Head};
use super::segment;
use super::snapshot;
use super::stuffing::{SENTINEL, find_sentinel};
use norn_model::record::Record;
use norn_model::snapshot::Gap;
use norn_model::task::{Filling, Place, Task, Wanted};
use norn_wire::TaskId;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Bytes of the first read: most records are smaller.
const FIRST_READ_BYTES: usize = 16 << 10;

/// Approximate memory of a task besides its payload, headers and later facts.
const TASK_BYTES: usize = 160;
/// Bytes of records in the cache.
const RECENT_BYTES_MAX: usize = 8 << 20;

/// The place of a record in a segment.
pub fn in_segment(segment: u64, offset: u64) -> Option<Place> {
    place(segment.checked_mul(2)?, offset)
}

/// The place of a record in the snapshot that replaces all segments before this one.
pub fn in_snapshot(segment: u64, offset: u64) -> Option<Place> {
    place(segment.checked_mul(2)?.checked_sub(1)?, offset)
}

fn place(file: u64, offset: u64) -> Option<Place> {
    Some(Place { file: NonZeroU32::new(u32::try_from(file).ok()?)?, offset })
}

fn file_of(place: Place) -> String {
    let number = u64::from(place.file.get());
    if number.is_multiple_of(2) { segment::name(number / 2) } else { snapshot::name(number.div_ceil(2)) }
}

/// Cache of recently read records. Tasks that were enqueued together share one record and are claimed one after the other: without
/// the cache each claim would read the whole record.
#[derive(Debug, Default)]
pub struct Recent {
    /// Most recently used first.
    records: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    place: Place,
    items: Vec<(TaskId, Task)>,
    /// Approximate bytes in memory.
    bytes: usize,
}

impl Recent {
    /// Reads bodies back, in the order of `wanted`; `None` where the file, the record or the task in it is lost. The caller checks
    /// that a body is the one wanted. `read` is as [`super::disk::Disk::read`]; an error of it that is not a loss is returned, and
    /// says nothing about any body.
    pub fn read_bodies(
        &mut self,
        read: impl Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Filling>>, DiskError> {
        let mut bodies = vec![None; wanted.len()];
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|index| (wanted[*index].place, wanted[*index].id));
        for group in order.chunk_by(|one, other| wanted[*one].place == wanted[*other].place) {
            let Some(items) = self.items(&read, wanted[group[0]].place)? else { continue };
            for index in group {
                bodies[*index] = find(items, &wanted[*index]);
            }
            self.shrink();
        }
        Ok(bodies)
    }

    fn items(
        &mut self,
        read: &impl Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>,
        place: Place,
    ) -> Result<Option<&[(TaskId, Task)]>, DiskError> {
        let known = self.records.iter().position(|record| record.place == place);
        let record = if let Some(record) = known.and_then(|at| self.records.remove(at)) {
            record
        } else {
            let Some(items) = read_items(read, place)? else { return Ok(None) };
            let bytes = items.iter().map(|(_, task)| task.size_bytes() + TASK_BYTES).sum();
            self.bytes += bytes;
            Kept { place, items, bytes }
        };
        self.records.push_front(record);
        Ok(self.records.front().map(|record| record.items.as_slice()))
    }

    fn shrink(&mut self) {
        while self.bytes > RECENT_BYTES_MAX
            && let Some(record) = self.records.pop_back()
        {
            self.bytes -= record.bytes;
        }
    }
}

/// The wanted part of a task in a record. A record may have several parts of one task; the matching one is preferred.
fn find(items: &[(TaskId, Task)], wanted: &Wanted) -> Option<Filling> {
    let of_task = items.iter().filter(|(id, _)| *id == wanted.id);
    let mut found: Vec<Filling> = of_task.filter_map(|(_, task)| task.filling(wanted.slot)).collect();
    let right = if found.len() > 1 { found.iter().position(|filling| wanted.is(filling)) } else { None };
    (!found.is_empty()).then(|| found.swap_remove(right.unwrap_or(0)))
}

/// As [`Recent::read_bodies`], without a cache.
pub fn read_bodies(
    read: impl Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>,
    wanted: &[Wanted],
) -> Result<Vec<Option<Filling>>, DiskError> {
    Recent::default().read_bodies(read, wanted)
}

/// The tasks in a record of facts; `None` if it is lost.
fn read_items(
    read: &impl Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>,
    place: Place,
) -> Result<Option<Vec<(TaskId, Task)>>, DiskError> {
    let (file, mut content) = (file_of(place), Vec::new());
    let read = |offset, length| match read(&file, offset, length) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.lost => Ok(None),
        Err(error) => Err(error),
    };
    let Some(mut bytes) = read(place.offset, FIRST_READ_BYTES)? else { return Ok(None) };
    let Ok(head) = Head::read(&bytes, &mut content) else { return Ok(None) };
    let length = head.frame_bytes_max();
    if length > bytes.len() && bytes.len() == FIRST_READ_BYTES {
        let Some(rest) = read(place.offset + bytes.len() as u64, length - bytes.len())? else { return Ok(None) };
        bytes.extend(rest);
    }
    // The bytes after the frame do not belong to it.
    let end = find_sentinel(&bytes[SENTINEL.len()..]).map_or(bytes.len(), |at| at + SENTINEL.len());
    if head.read_whole(&bytes[..end], &mut content).is_err() {
        return Ok(None);
    }
    Ok(match Record::decode(&content[HEAD_BYTES..]) {
        Ok(Record::Facts { items, .. }) => Some(Arc::unwrap_or_clone(items)),
        Ok(_) | Err(_) => None,
    })
}

/// Fills the gaps of records. Returns the tasks with a lost part.
pub fn fill(
    read: impl Fn(&str, u64, usize) -> Result<Vec<u8>, DiskError>,
    records: &mut [Record],
    gaps: &[Gap],
) -> Result<Vec<TaskId>, DiskError> {
    let wanted: Vec<Wanted> = gaps.iter().map(|gap| gap.wanted).collect();
    let mut lost = Vec::new();
    for (gap, body) in gaps.iter().zip(read_bodies(read, &wanted)?) {
        let Some(filling) = body.filter(|filling| gap.wanted.is(filling)) else {
            lost.push(gap.wanted.id);
            continue;
        };
        let Record::Facts { items, .. } = &mut records[gap.record] else { panic!("only tasks lack bodies") };
        Arc::get_mut(items).expect("no one else has a part of the state")[gap.item].1.fill(gap.wanted.slot, filling);
    }
    Ok(lost)
}

#[cfg(test)]
mod tests;
