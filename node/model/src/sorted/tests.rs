//! The map against one of the standard library, and what it takes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Checks how the entries are divided.
fn check<K: Copy + Ord + std::fmt::Debug, V>(map: &SortedMap<K, V>) {
    assert!(map.first.len() > 0 || map.len == 0, "the first chunk is empty and others are not");
    let chunks = || std::iter::once(&map.first).chain(&map.chunks);
    assert_eq!(chunks().map(Chunk::len).sum::<usize>(), map.len);
    assert!(map.keys().is_sorted_by(|one, other| one < other), "keys are not in order");
    for chunk in chunks() {
        assert_eq!(chunk.keys.len(), chunk.values.len());
        assert!(
            chunk.len() <= CHUNK_MAX && chunk.keys.capacity() <= chunk.len() + SPARE_MAX,
            "a chunk has much to spare"
        );
    }
    assert_eq!(map.bounds.len(), map.chunks.len());
    let room = map.chunks.capacity().max(map.bounds.capacity());
    assert!(room <= 8 * map.chunks.len().max(ROOM_MIN), "the node above has much to spare");
    for (number, bound) in map.bounds.iter().enumerate() {
        let (before, chunk) = (map.chunk(number), map.chunk(number + 1));
        assert!(chunk.keys.first().is_some_and(|key| key >= bound), "a chunk's bound is above its entries");
        assert!(before.keys.last().is_none_or(|last| last < bound), "an entry is in a chunk too early");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u16),
    Remove(u16),
    Find(u16),
    /// Keys in a row, ascending or descending.
    Run(u16, u8, bool),
    /// The least, again and again, as claims take them.
    RemoveFirst(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop_oneof![0..400_u16, any::<u16>()];
    let step = prop_oneof![
        3 => key().prop_map(Step::Insert),
        3 => key().prop_map(Step::Remove),
        2 => key().prop_map(Step::Find),
        1 => (key(), any::<u8>(), any::<bool>()).prop_map(|(from, count, up)| Step::Run(from, count, up)),
        1 => any::<u8>().prop_map(Step::RemoveFirst),
    ];
    proptest::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn a_sorted_map_does_what_the_standard_one_does(
        steps in steps(),
        from in any::<Bound<u16>>(),
        to in any::<Bound<u16>>(),
    ) {
        let (mut map, mut model, mut clock) = (SortedMap::default(), BTreeMap::new(), 0_u32);
        let mut put = |map: &mut SortedMap<u16, u32>, model: &mut BTreeMap<u16, u32>, key: u16| {
            clock += 1;
            assert_eq!(map.insert(key, clock), model.insert(key, clock));
        };
        for step in steps {
            match step {
                Step::Insert(key) => put(&mut map, &mut model, key),
                Step::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                // That one, and one that the steps before may have moved.
                Step::Find(key) => {
                    let next = model.range(key..).next().map(|(key, _)| *key);
                    for key in [Some(key), next, next].into_iter().flatten() {
                        prop_assert_eq!(map.get(&key), model.get(&key));
                        prop_assert_eq!(map.contains_key(&key), model.contains_key(&key));
                    }
                }
                Step::Run(from, count, true) => {
                    (0..count).for_each(|number| put(&mut map, &mut model, from.saturating_add(number.into())));
                }
                Step::Run(from, count, false) => {
                    (0..count).for_each(|number| put(&mut map, &mut model, from.saturating_sub(number.into())));
                }
                Step::RemoveFirst(count) => {
                    for _ in 0..count {
                        let Some((first, value)) = model.pop_first() else { break };
                        prop_assert_eq!(map.keys().next(), Some(&first));
                        prop_assert_eq!(map.remove(&first), Some(value));
                    }
                }
            }
            check(&map);
        }
        prop_assert!(map.iter().eq(model.iter()));
        let is_valid = bound_key(from.as_ref()).zip(bound_key(to.as_ref())).is_none_or(|(from, to)| from < to);
        if is_valid {
            prop_assert!(map.range((from, to)).eq(model.range((from, to))));
            let doubled = |value: &mut u32| *value *= 2;
            map.range_mut((from, to)).for_each(|(_, value)| doubled(value));
            model.range_mut((from, to)).for_each(|(_, value)| doubled(value));
        }
        prop_assert!(map.iter().eq(model.iter()));
        for key in (0..=500).step_by(7) {
            let (mine, other) = (map.get_or_insert_with(key, || 1), model.entry(key).or_insert(1));
            prop_assert_eq!(&mut *mine, &mut *other);
            (*mine, *other) = (*mine + 1, *other + 1);
        }
        check(&map);
        for key in 0..=500 {
            prop_assert_eq!(map.get(&key), model.get(&key));
            prop_assert_eq!(map.get_mut(&key), model.get_mut(&key));
            prop_assert_eq!(map.contains_key(&key), model.contains_key(&key));
        }
    }
}

/// Parts of a hundred by which the bytes of all chunks exceed those of their entries.
fn excess(map: &SortedMap<u64, [u64; 4]>) -> usize {
    let chunks = || std::iter::once(&map.first).chain(&map.chunks);
    let taken: usize = chunks().map(|chunk| 8 * chunk.keys.capacity() + 32 * chunk.values.capacity()).sum();
    // A queue that grows has room for twice what it holds at the most.
    let taken = taken + map.chunks.len() * (8 + size_of::<Chunk<u64, [u64; 4]>>()) * 2;
    taken * 100 / (map.len() * 40) - 100
}

#[test]
fn an_entry_takes_little_more_than_its_size_in_any_order() {
    let number = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let nearly = |number: u64| (number * 8) ^ ((number % 5) * 24);
    type Order<'a> = (&'a str, &'a dyn Fn(u64) -> u64, usize);
    let orders: [Order<'_>; 5] = [
        ("ascending", &|place| place, 6),
        ("descending", &|place| u64::MAX - place, 12),
        ("nearly ascending", &nearly, 12),
        ("two at a time", &|place| place / 2 + place % 2 * (1 << 40), 6),
        ("scattered", &number, 16),
    ];
    for (name, order, most) in orders {
        let mut map = SortedMap::default();
        for place in 0..50_000 {
            map.insert(order(place), [0; 4]);
        }
        check(&map);
        assert!(excess(&map) <= most, "{name}: {} %", excess(&map));
        // Nine of ten go: the rest is in few chunks again.
        for place in (0..50_000).filter(|place| place % 10 > 0) {
            map.remove(&order(place));
        }
        check(&map);
        assert!(excess(&map) <= 60, "{name}, thinned: {} %", excess(&map));
    }
}

#[test]
fn a_set_has_each_item_once_and_gives_its_least() {
    let mut set: SortedSet<u8> = [5, 3, 5, 9].into_iter().collect();
    assert_eq!((set.len(), set.first(), set.contains(&9), set.contains(&4)), (3, Some(&3), true, false));
    assert!(set.remove(&3) && !set.remove(&3) && !set.insert(5));
    assert_eq!(set.range(6..).collect::<Vec<_>>(), [&9]);
    assert_eq!(set.iter().collect::<Vec<_>>(), [&5, &9]);
    assert!(!set.is_empty());
}
