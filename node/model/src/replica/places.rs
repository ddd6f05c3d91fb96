//! Bucket listing index: where the tasks of each bucket are, so that a bucket is listed without a scan of all tasks.
//!
//! A store is sorted by id, and ids begin with the time: no ranges of ids are fixed *and* alike in size, so that buckets must be
//! scattered. The index keeps the beginning of each task's id: 8 bytes, from which a look into the sorted store finds the rest. A second
//! sorted set of ids would cost five times as much, and stores sorted by hash could not be listed in the order of ids.
//!
//! A **place** is 42 bits of the time and the upper 22 of the counter. Ids of one batch share a place and a routing tag, and the bucket
//! is chosen by place, minter and tag alone. So one look finds a batch, and a batch that a replica missed is a difference in one bucket.
//! Few other ids have the same place; those are skipped.

use crate::limits::BUCKETS;
use norn_wire::TaskId;
use std::ops::RangeInclusive;
use xxhash_rust::xxh3::xxh3_64;

/// Parts of a large bucket that are compared one by one; a power of two.
pub const CELLS: usize = 32;
const _: () = assert!(CELLS.is_power_of_two());
/// Bits of the counter that a place leaves out.
const COUNTER_BITS_LEFT: u32 = 10;
/// Bits of the counter within a place.
const COUNTER_BITS: u32 = u32::BITS - COUNTER_BITS_LEFT;
/// Ids of this time (in the year 2109) and later share the last place.
const TIME_MS_MAX: u64 = (1 << (u64::BITS - COUNTER_BITS)) - 1;
/// A list grows by one part in this many of its length, so that little is spare.
const GROWTH: usize = 8;

/// The bucket of a task.
pub fn bucket_of(id: &TaskId) -> usize {
    let mut bytes = id.to_bytes();
    bytes[10] &= !0b11;
    bytes[11] = 0;
    (xxh3_64(&bytes) % BUCKETS as u64) as usize
}

/// The cell of a task in its bucket. Tasks of a batch are in different cells.
pub fn cell_of(id: &TaskId) -> usize {
    (xxh3_64(id.as_bytes()) % CELLS as u64) as usize
}

/// The place of a task. It grows with the id.
pub fn place_of(id: &TaskId) -> u64 {
    if id.time_ms() >= TIME_MS_MAX {
        return u64::MAX;
    }
    let bytes = id.as_bytes();
    let counter = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    id.time_ms() << COUNTER_BITS | u64::from(counter >> COUNTER_BITS_LEFT)
}

/// The range of ids that have a place.
fn ids_at(place: u64) -> RangeInclusive<TaskId> {
    let (time_ms, counter) = (place >> COUNTER_BITS, (place as u32) << COUNTER_BITS_LEFT);
    if time_ms >= TIME_MS_MAX {
        return TaskId::new(TIME_MS_MAX, 0, 0, 0)..=TaskId::MAX;
    }
    let mut last = [0xff; 20];
    last[..8].copy_from_slice(&time_ms.to_be_bytes());
    last[8..12].copy_from_slice(&(counter | ((1 << COUNTER_BITS_LEFT) - 1)).to_be_bytes());
    TaskId::new(time_ms, counter, 0, 0)..=TaskId::from_bytes(last)
}

/// The places of all tasks, by bucket.
#[derive(Debug, Default)]
pub struct Places {
    /// Sorted, each place as often as there are tasks with it. Allocated with the first task.
    buckets: Vec<Vec<u64>>,
}

impl Places {
    /// Adds a task.
    pub fn insert(&mut self, bucket: usize, id: &TaskId) {
        if self.buckets.is_empty() {
            self.buckets = vec![Vec::new(); BUCKETS];
        }
        let (list, place) = (&mut self.buckets[bucket], place_of(id));
        if list.len() == list.capacity() {
            list.reserve_exact(list.len() / GROWTH + 3);
        }
        // New ids are nearly always the newest.
        let at = if list.last().is_none_or(|last| *last <= place) {
            list.len()
        } else {
            list.partition_point(|other| *other <= place)
        };
        assert!(at == 0 || list[at - 1] <= place, "places are not sorted");
        assert!(list.get(at).is_none_or(|next| *next > place), "places are not sorted");
        list.insert(at, place);
    }

    /// Removes a task.
    pub fn remove(&mut self, bucket: usize, id: &TaskId) {
        let at = self.buckets[bucket].binary_search(&place_of(id)).expect("it was inserted");
        self.buckets[bucket].remove(at);
    }

    /// The places of a bucket, sorted.
    pub fn of(&self, bucket: usize) -> &[u64] {
        self.buckets.get(bucket).map_or(&[], Vec::as_slice)
    }

    /// Number of tasks in all buckets.
    pub fn total(&self) -> usize {
        self.buckets.iter().map(Vec::len).sum()
    }

    /// Number of tasks in a bucket.
    pub fn count(&self, bucket: usize) -> usize {
        self.buckets.get(bucket).map_or(0, Vec::len)
    }

    /// Ranges of ids, in order, that contain all tasks of a bucket with ids above `after`. They may contain tasks of other buckets, too.
    pub fn ranges(&self, bucket: usize, after: Option<TaskId>) -> impl Iterator<Item = RangeInclusive<TaskId>> + '_ {
        let list = self.of(bucket);
        let from = after.map_or(0, |after| list.partition_point(|place| *place < place_of(&after)));
        list[from..].chunk_by(|one, other| one == other).map(|same| ids_at(same[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids() -> impl Strategy<Value = TaskId> {
        let time_ms = prop_oneof![Just(0), 1_700_000_000_000..1_700_000_000_003_u64, Just(TIME_MS_MAX), any::<u64>()];
        (time_ms, prop_oneof![0..3_000_u32, any::<u32>()], 0..3_u64, 0..4_u32)
            .prop_map(|(time_ms, counter, minter, tag)| TaskId::new(time_ms, counter, minter, tag))
    }

    proptest! {
        #[test]
        fn every_id_is_where_its_place_says(one in ids(), other in ids()) {
            let at = ids_at(place_of(&one));
            prop_assert!(at.contains(&one));
            prop_assert_eq!(at.contains(&other), place_of(&one) == place_of(&other));
            prop_assert_eq!(one.cmp(&other).is_lt() && place_of(&one) > place_of(&other), false);
        }

        #[test]
        fn a_bucket_s_ranges_hold_what_was_inserted_and_not_removed(
            all in proptest::collection::btree_set(ids(), 0..200),
            after in proptest::option::of(ids()),
        ) {
            let mut places = Places::default();
            for id in &all {
                places.insert(0, id);
            }
            let gone: Vec<TaskId> = all.iter().step_by(3).copied().collect();
            for id in &gone {
                places.remove(0, id);
            }
            let found: Vec<TaskId> = places
                .ranges(0, after)
                .flat_map(|range| all.range(range))
                .filter(|id| after.is_none_or(|after| **id > after) && !gone.contains(id))
                .copied()
                .collect();
            let expected: Vec<TaskId> = all
                .iter()
                .filter(|id| after.is_none_or(|after| **id > after) && !gone.contains(id))
                .copied()
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(places.count(0), all.len() - gone.len());
        }
    }

    #[test]
    fn a_batch_is_in_one_bucket_and_batches_are_everywhere() {
        let batch: Vec<usize> = (0..100).map(|number| bucket_of(&TaskId::new(5, 0xabc0_0000 + number, 2, 3))).collect();
        assert!(batch.iter().all(|bucket| *bucket == batch[0]));
        let mut counts = vec![0; BUCKETS];
        for number in 0..64 * BUCKETS as u64 {
            counts[bucket_of(&TaskId::new(1_700_000_000_000 + number, 77, 2, 3))] += 1;
        }
        assert!(counts.iter().all(|count| (20..130).contains(count)), "{counts:?}");
    }
}
