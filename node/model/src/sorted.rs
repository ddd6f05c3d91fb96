//! Sorted map and set for millions of small entries: a B+ tree of two levels, with leaves ("chunks") that are allocated for what they
//! hold, and one node above them.
//!
//! A node of `BTreeMap` has room for eleven entries, and is little more than half full where keys ascend, as ids of tasks do. So an entry
//! takes nearly twice its size. Here a full chunk is left behind full, a chunk that was split is allocated anew, and keys stand apart from
//! values: no entry is padded, and a search reads keys alone. The first chunk needs no place in the node above, so that a small set is
//! one allocation.
//!
//! A search halves the node above and then a chunk: O(log n), twice as fast as a search of a `BTreeMap` for the last key up to one. The
//! entry that was found last is looked at first, and then the end: a change of a task looks it up a dozen times, and new ids are the
//! last.
//! Insertion and removal move at most a chunk. Once in dozens of times they divide or join chunks, and then move the shorter part of the
//! node above: some n / 128 places of 70 bytes where chunks are full, n / 32 at the most, and none where keys ascend or the least go
//! first.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// Most entries of a chunk.
const CHUNK_MAX: usize = 64;
/// Least entries that a split leaves in the first part, where keys do not ascend.
const SPLIT_MIN: usize = CHUNK_MAX / 2;
/// Most of the same: what is behind is worth a chunk.
const SPLIT_MAX: usize = CHUNK_MAX - CHUNK_MAX / 8;
/// Two neighbours become one chunk if they have no more entries together, so that the next insertion does not split it.
const JOINED_MAX: usize = CHUNK_MAX / 4 * 3;
/// A chunk with fewer entries is joined with a neighbour, if one has room.
const JOIN_BELOW: usize = CHUNK_MAX / 4;
/// Chunks for which the node above keeps room, however few there are.
const ROOM_MIN: usize = 8;
/// Most entries for which a chunk has room in advance, or keeps it.
const SPARE_MAX: usize = 8;

/// Sorted entries, as many as one allocation holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for Chunk<K, V> {
    fn default() -> Self {
        Chunk { keys: Vec::new(), values: Vec::new() }
    }
}

/// Moves a list to an allocation with little room to spare. An allocator need not take back the end of an allocation.
fn trim<T>(list: &mut Vec<T>) {
    if list.capacity() - list.len() > SPARE_MAX {
        let mut trimmed = Vec::with_capacity(list.len());
        trimmed.append(list);
        *list = trimmed;
    }
}

fn insert<T>(list: &mut Vec<T>, place: usize, item: T) {
    if list.len() == list.capacity() {
        let room = (list.len() / 2).clamp(1, SPARE_MAX);
        list.reserve_exact(room.min(CHUNK_MAX.saturating_sub(list.len()).max(1)));
    }
    list.insert(place, item);
}

impl<K: Copy + Ord, V> Chunk<K, V> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn insert(&mut self, place: usize, key: K, value: V) {
        insert(&mut self.keys, place, key);
        insert(&mut self.values, place, value);
        assert_eq!(self.keys.len(), self.values.len(), "a key has no value");
    }

    fn remove(&mut self, place: usize) -> V {
        self.keys.remove(place);
        self.values.remove(place)
    }

    fn trim(&mut self) {
        trim(&mut self.keys);
        trim(&mut self.values);
    }

    fn split_off(&mut self, place: usize) -> Self {
        let tail = Chunk { keys: self.keys.split_off(place), values: self.values.split_off(place) };
        self.trim();
        tail
    }

    fn append(&mut self, mut other: Self) {
        let is_before = self.keys.last().zip(other.keys.first()).is_none_or(|(last, first)| last < first);
        assert!(is_before, "chunks are joined out of order");
        self.keys.reserve_exact(other.keys.len());
        self.keys.append(&mut other.keys);
        self.values.reserve_exact(other.values.len());
        self.values.append(&mut other.values);
    }

    /// Entries from a place on.
    fn entries(&self, place: usize) -> impl Iterator<Item = (&K, &V)> {
        self.keys[place..].iter().zip(&self.values[place..])
    }

    /// Entries from a place on.
    fn entries_mut(&mut self, place: usize) -> impl Iterator<Item = (&K, &mut V)> {
        self.keys[place..].iter().zip(&mut self.values[place..])
    }

    /// Place of the first entry within a lower bound.
    fn start(&self, bound: Bound<&K>) -> usize {
        match bound {
            Bound::Included(key) => self.keys.partition_point(|other| other < key),
            Bound::Excluded(key) => self.keys.partition_point(|other| other <= key),
            Bound::Unbounded => 0,
        }
    }
}

/// The key of a bound.
fn bound_key<K: Copy>(bound: Bound<&K>) -> Option<K> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(*key),
        Bound::Unbounded => None,
    }
}

fn is_before_end<K: Ord>(key: &K, end: Bound<&K>) -> bool {
    match end {
        Bound::Included(last) => key <= last,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    }
}

/// Map with keys in order.
#[derive(Debug, Clone)]
pub struct SortedMap<K, V> {
    /// The least entries; empty only if the map is.
    first: Chunk<K, V>,
    /// All others, numbered from 1.
    chunks: VecDeque<Chunk<K, V>>,
    /// For each of those a key that is not above its entries, and above those of the chunk before it.
    bounds: VecDeque<K>,
    len: usize,
    /// Where an entry was found last, by number of its chunk and place in it. Another entry may stand there now, or none.
    recent: Cell<(u32, u32)>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap {
            first: Chunk::default(),
            chunks: VecDeque::new(),
            bounds: VecDeque::new(),
            len: 0,
            recent: Cell::default(),
        }
    }
}

impl<K: Copy + Ord, V> SortedMap<K, V> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the chunk in which a key is or would be.
    fn number(&self, key: &K) -> usize {
        self.bounds.partition_point(|bound| bound <= key)
    }

    fn chunk(&self, number: usize) -> &Chunk<K, V> {
        number.checked_sub(1).map_or(&self.first, |place| &self.chunks[place])
    }

    fn chunk_mut(&mut self, number: usize) -> &mut Chunk<K, V> {
        number.checked_sub(1).map_or(&mut self.first, |place| &mut self.chunks[place])
    }

    /// The chunk of a key, and the place in it where the key is or would be.
    fn find(&self, key: &K) -> (usize, Result<usize, usize>) {
        let (number, place) = self.recent.get();
        let (number, place) = (number as usize, place as usize);
        if number <= self.chunks.len() && self.chunk(number).keys.get(place) == Some(key) {
            return (number, Ok(place));
        }
        self.search(key)
    }

    fn search(&self, key: &K) -> (usize, Result<usize, usize>) {
        let number = self.chunks.len();
        let last = self.chunk(number);
        if last.keys.last().is_some_and(|last| last < key) {
            return (number, Err(last.len()));
        }
        let number = self.number(key);
        let place = self.chunk(number).keys.binary_search(key);
        if let Ok(place) = place {
            // A place that does not fit is another entry's, if any.
            self.recent.set((number as u32, place as u32));
        }
        (number, place)
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (number, place) = self.find(key);
        place.ok().map(|place| &self.chunk(number).values[place])
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (number, place) = self.find(key);
        place.ok().map(|place| &mut self.chunk_mut(number).values[place])
    }

    /// Whether there is a key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(key).1.is_ok()
    }

    /// Sets the value of a key; returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            (number, Ok(place)) => Some(std::mem::replace(&mut self.chunk_mut(number).values[place], value)),
            (number, Err(place)) => {
                self.insert_at((number, place), key, value);
                None
            }
        }
    }

    /// The value of a key; if there is none, one that is made.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let (number, place) = match self.find(&key) {
            (number, Ok(place)) => (number, place),
            (number, Err(place)) => self.insert_at((number, place), key, make()),
        };
        &mut self.chunk_mut(number).values[place]
    }

    /// Inserts an entry at a place of a chunk, or of one that is divided off it; returns where it is then.
    fn insert_at(&mut self, (number, place): (usize, usize), key: K, value: V) -> (usize, usize) {
        self.len += 1;
        let chunk = self.chunk_mut(number);
        if chunk.len() == CHUNK_MAX {
            return self.split((number, place), key, value);
        }
        chunk.insert(place, key, value);
        (number, place)
    }

    /// Inserts an entry at a place of a full chunk. Where keys ascend, what stays behind is full.
    fn split(&mut self, (number, place): (usize, usize), key: K, value: V) -> (usize, usize) {
        let chunk = self.chunk_mut(number);
        assert_eq!(chunk.len(), CHUNK_MAX, "a chunk with room is split");
        let at = if place == CHUNK_MAX { place } else { place.clamp(SPLIT_MIN, SPLIT_MAX) };
        let mut tail = chunk.split_off(at);
        let is_behind = place > at || at == CHUNK_MAX;
        let (chunk, place) = if is_behind { (&mut tail, place - at) } else { (chunk, place) };
        chunk.insert(place, key, value);
        if self.chunks.get(number).is_some_and(|next| next.len() + tail.len() <= JOINED_MAX) {
            tail.append(self.take_chunk(number + 1));
        }
        self.bounds.insert(number, tail.keys[0]);
        self.chunks.insert(number, tail);
        (number + usize::from(is_behind), place)
    }

    /// Takes a chunk out, but for the first one.
    fn take_chunk(&mut self, number: usize) -> Chunk<K, V> {
        let place = number.checked_sub(1).expect("the first chunk stays");
        assert!(self.bounds.remove(place).is_some(), "a chunk has no bound");
        let chunk = self.chunks.remove(place).expect("there is such a chunk");
        if self.chunks.capacity() > 4 * self.chunks.len().max(ROOM_MIN) {
            self.chunks.shrink_to(2 * self.chunks.len());
            self.bounds.shrink_to(2 * self.bounds.len());
        }
        chunk
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (number, place) = self.find(key);
        let chunk = self.chunk_mut(number);
        let value = chunk.remove(place.ok()?);
        let len = chunk.len();
        chunk.trim();
        assert!(self.len > 0, "an entry is removed that was not counted");
        self.len -= 1;
        if len < JOIN_BELOW {
            self.join(number);
        }
        Some(value)
    }

    /// Joins a chunk that has become small with a neighbour.
    fn join(&mut self, number: usize) {
        let len = self.chunk(number).len();
        let has_room = |chunk: &Chunk<K, V>| len == 0 || chunk.len() + len <= JOINED_MAX;
        let later = if self.chunks.get(number).is_some_and(has_room) {
            number + 1
        } else if number > 0 && has_room(self.chunk(number - 1)) {
            number
        } else {
            return;
        };
        let chunk = self.take_chunk(later);
        self.chunk_mut(later - 1).append(chunk);
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        std::iter::once(&self.first).chain(&self.chunks).flat_map(|chunk| chunk.entries(0))
    }

    /// All keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The number of the chunk with the first entry within a lower bound, or with the last one before it.
    fn number_at(&self, start: Bound<&K>) -> usize {
        bound_key(start).map_or(0, |key| self.number(&key))
    }

    /// Entries within bounds, in order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        let number = self.number_at(start.as_ref());
        let first = (number == 0).then_some(&self.first);
        let mut chunks = first.into_iter().chain(self.chunks.range(number.saturating_sub(1)..));
        let begun = chunks.next().map(|chunk| chunk.entries(chunk.start(start.as_ref())));
        let entries = begun.into_iter().flatten().chain(chunks.flat_map(|chunk| chunk.entries(0)));
        entries.take_while(move |(key, _)| is_before_end(*key, end.as_ref()))
    }

    /// Entries within bounds, in order.
    pub fn range_mut(&mut self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &mut V)> {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        let number = self.number_at(start.as_ref());
        let first = (number == 0).then_some(&mut self.first);
        let mut chunks = first.into_iter().chain(self.chunks.range_mut(number.saturating_sub(1)..));
        let begun = chunks.next().map(|chunk| {
            let place = chunk.start(start.as_ref());
            chunk.entries_mut(place)
        });
        let entries = begun.into_iter().flatten().chain(chunks.flat_map(|chunk| chunk.entries_mut(0)));
        entries.take_while(move |(key, _)| is_before_end(*key, end.as_ref()))
    }
}

impl<K: Copy + Ord, V: PartialEq> PartialEq for SortedMap<K, V> {
    /// Whether the entries are equal, however they are divided.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Copy + Ord, V: Eq> Eq for SortedMap<K, V> {}

/// Set in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedSet<K: Copy + Ord>(SortedMap<K, ()>);

impl<K: Copy + Ord> Default for SortedSet<K> {
    fn default() -> Self {
        SortedSet(SortedMap::default())
    }
}

impl<K: Copy + Ord> SortedSet<K> {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an item is in it.
    pub fn contains(&self, item: &K) -> bool {
        self.0.contains_key(item)
    }

    /// The least item.
    pub fn first(&self) -> Option<&K> {
        self.0.first.keys.first()
    }

    /// Adds an item; returns whether it is new.
    pub fn insert(&mut self, item: K) -> bool {
        self.0.insert(item, ()).is_none()
    }

    /// Removes an item; returns whether it was there.
    pub fn remove(&mut self, item: &K) -> bool {
        self.0.remove(item).is_some()
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }

    /// Items within bounds, in order.
    pub fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = &K> {
        self.0.range(range).map(|(item, ())| item)
    }
}

impl<K: Copy + Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(items: I) -> Self {
        let mut set = SortedSet::default();
        for item in items {
            set.insert(item);
        }
        set
    }
}

#[cfg(test)]
mod tests;
