//! Numeric ids of taskstore and task ids, each computed from the other.
//!
//! A number has 53 bits, so that JavaScript and JSON keep it whole: 38 bits of time in units of 10 ms since 2020, and 15 bits that count
//! within such a slot. A task has the id of its number: its time, the count, a minter that no session is lent, and the tag of its store.

use norn_wire::TaskId;
use std::sync::{Mutex, PoisonError};

/// Largest number.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Begin of 2020, in milliseconds since the Unix epoch.
const ORIGIN_MS: u64 = 1_577_836_800_000;
const SLOT_MS: u64 = 10;
/// Bits that count within a slot.
const COUNT_BITS: u32 = 15;
/// The field of minters: that of member number 65534, above all that a cluster gives in practice. Sessions have their member's number in
/// its upper bits.
const MINTER: u64 = 65_534 << 24;

/// The id of the task with a number, in the store with this tag. `None`: no task has such a number.
pub fn task_id(number: u64, tag: u32) -> Option<TaskId> {
    if number > NUMBER_MAX {
        return None;
    }
    let count = u32::try_from(number & ((1 << COUNT_BITS) - 1)).ok()?;
    Some(TaskId::new(ORIGIN_MS + (number >> COUNT_BITS) * SLOT_MS, count, MINTER, tag))
}

/// The number of a task. `None`: the task was not added through this service.
pub fn number(id: TaskId) -> Option<u64> {
    let since_ms = id.time_ms().checked_sub(ORIGIN_MS)?;
    let count = u64::from(u32::from_be_bytes(id.as_bytes().get(8..12)?.try_into().ok()?));
    let slot = since_ms / SLOT_MS;
    let is_exact = since_ms.is_multiple_of(SLOT_MS) && id.minter() == MINTER && count < 1 << COUNT_BITS;
    (is_exact && slot <= NUMBER_MAX >> COUNT_BITS).then_some(slot << COUNT_BITS | count)
}

/// How far the number of a task may be ahead of the clock. Nodes refuse ids that are further ahead of theirs.
const AHEAD_MS_MAX: u64 = 60_000;

/// Draws numbers. Each is larger than all that were drawn before, unless these are too far ahead of the clock.
#[derive(Debug, Default)]
pub struct Numbers {
    last: Mutex<u64>,
}

/// The first number of the slot of a time. `None`: the time is beyond what numbers can tell.
fn slot_begin(time_ms: u64) -> Option<u64> {
    (time_ms.saturating_sub(ORIGIN_MS) / SLOT_MS).checked_mul(1 << COUNT_BITS)
}

impl Numbers {
    /// Draws this many numbers in increasing order, all of them above those named. `None`: the clock is beyond what numbers can tell.
    ///
    /// The first of a slot is at random within its lower half, so that two nodes rarely draw the same. A slot that is full goes on in the
    /// next one.
    ///
    /// A number that is too far ahead of the clock was drawn while a clock was wrong, or is named and was drawn by no node. Above it no
    /// number would be accepted before its time has come, so it bounds nothing: numbers begin at the clock again.
    pub fn draw(&self, count: usize, now_ms: u64, named: impl IntoIterator<Item = u64>) -> Option<Vec<u64>> {
        let begin = slot_begin(now_ms)?;
        let end_max = slot_begin(now_ms.saturating_add(AHEAD_MS_MAX))?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let floor = named.into_iter().chain([*last]).filter(|number| *number < end_max).max().unwrap_or(0);
        let first = if floor >= begin { floor + 1 } else { begin + rand::random::<u64>() % (1 << (COUNT_BITS - 1)) };
        let end = first.checked_add(u64::try_from(count).ok()?).filter(|end| *end <= NUMBER_MAX + 1)?;
        if end > first {
            *last = end - 1;
        }
        Some((first..end).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    proptest! {
        // T31
        #[test]
        fn a_number_and_its_id_are_computed_from_each_other(given in 0..=NUMBER_MAX, tag in 0u32..1 << 24) {
            let id = task_id(given, tag).unwrap();
            prop_assert_eq!(number(id), Some(given));
            prop_assert_eq!(id.tag(), tag);
        }

        // T8
        #[test]
        fn larger_numbers_are_larger_ids(a in 0..=NUMBER_MAX, b in 0..=NUMBER_MAX, tag in 0u32..1 << 24) {
            prop_assert_eq!(a.cmp(&b), task_id(a, tag).cmp(&task_id(b, tag)));
        }

        #[test]
        fn an_id_has_a_number_only_if_the_number_has_the_id(bytes: [u8; 20]) {
            let id = TaskId::from_bytes(bytes);
            if let Some(found) = number(id) {
                prop_assert_eq!(task_id(found, id.tag()), Some(id));
            }
        }

        #[test]
        fn drawing_never_panics(count in 0usize..1_000, now_ms: u64, above: u64) {
            let numbers = Numbers::default();
            let drawn = numbers.draw(count, now_ms, [above]);
            let is_near = slot_begin(now_ms.saturating_add(AHEAD_MS_MAX)).is_some_and(|end| above < end);
            let is_right = |number: &u64| *number <= NUMBER_MAX && (*number > above || !is_near);
            prop_assert!(drawn.is_none_or(|drawn| drawn.iter().all(is_right)));
        }
    }

    #[test]
    fn ids_of_other_minters_and_times_between_slots_have_no_number() {
        let id = task_id(77, 5).unwrap();
        let with = |time_ms: u64, count: u32, minter: u64| number(TaskId::new(time_ms, count, minter, 5));
        assert_eq!(with(id.time_ms(), 77, MINTER), Some(77));
        assert_eq!(with(id.time_ms() + 1, 77, MINTER), None);
        assert_eq!(with(id.time_ms(), 1 << COUNT_BITS, MINTER), None);
        assert_eq!(with(id.time_ms(), 77, 65_534), None);
        assert_eq!(with(ORIGIN_MS - 10, 77, MINTER), None);
        assert_eq!(task_id(NUMBER_MAX + 1, 5), None);
    }

    fn at(time_ms: u64) -> u64 {
        slot_begin(time_ms).unwrap()
    }

    // T8
    #[test]
    fn each_number_is_above_all_drawn_and_named_before_whatever_the_clock_does() {
        let numbers = Numbers::default();
        let mut last = 0;
        for (now_ms, named) in [
            (NOW_MS, 0),
            (NOW_MS, 0),
            (NOW_MS - 5_000, 0),
            (NOW_MS + 40, 0),
            (NOW_MS, at(NOW_MS + 30_000)),
            (NOW_MS - 29_000, 0),
            (NOW_MS + 30_010, at(NOW_MS)),
        ] {
            let drawn = numbers.draw(3, now_ms, [1, named, 2]).unwrap();
            assert!(drawn.is_sorted() && drawn.len() == 3);
            assert!(drawn[0] > last.max(named), "{drawn:?} after {last}");
            last = drawn[2];
        }
    }

    // T8: where a clock was wrong
    #[test]
    fn numbers_come_back_to_a_clock_that_was_far_ahead() {
        const YEAR_MS: u64 = 365 * 86_400_000;
        let numbers = Numbers::default();
        let before = numbers.draw(1, NOW_MS, []).unwrap()[0];
        let ahead = numbers.draw(1, NOW_MS + YEAR_MS, []).unwrap()[0];
        assert!(ahead > at(NOW_MS + YEAR_MS));
        let mut last = before;
        // A task of the time of the fault is still there, and can be replaced.
        for named in [0, ahead, NUMBER_MAX] {
            let drawn = numbers.draw(2, NOW_MS + 20, [named]).unwrap();
            assert!(drawn[0] > last && drawn[1] < at(NOW_MS + 40), "{drawn:?} after {last}");
            last = drawn[1];
        }
        let time_ms = task_id(last, 5).unwrap().time_ms();
        assert!(time_ms < NOW_MS + AHEAD_MS_MAX, "nodes take it");
    }

    #[test]
    fn a_slot_that_is_full_goes_on_in_the_next() {
        let numbers = Numbers::default();
        let drawn = numbers.draw(1 << (COUNT_BITS + 1), NOW_MS, []).unwrap();
        let tags: Vec<TaskId> = drawn.iter().filter_map(|number| task_id(*number, 1)).collect();
        assert!(tags.is_sorted() && tags.len() == drawn.len());
        assert!(tags.last().unwrap().time_ms() > tags.first().unwrap().time_ms());
    }
}
