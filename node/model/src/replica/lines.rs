//! Fair queueing: claimable tasks of a queue by key, where keys take turns (`queue set Q order fair`).
//!
//! Each key has a line, and the line that was served longest ago comes first. This is round robin over the keys with claimable tasks, as
//! in J. Nagle, *On Packet Switches With Infinite Storage* (RFC 970, 1985), with a list of the active ones as in M. Shreedhar and G.
//! Varghese, *Efficient Fair Queueing Using Deficit Round Robin* (1995). Every task counts the same, as its duration is not known. A new
//! key comes behind all others, as if it had been served just now: if it came first, a stream of new keys would starve the existing ones.
//! Start-time fair queueing (P. Goyal, H. Vin, H. Cheng, 1996) has to remember keys that went idle for that. So a key may be forgotten
//! once it has no open tasks, and a key with claimable tasks waits for at most one turn of each other key. Tasks without a key are one
//! line together.
//!
//! Within a partition the order is that of a counter, and no clock has a part in it. Partitions are compared by when the first line of
//! each was last served, by the leader's wall clock. A line that was never served counts from when the task was enqueued that opened it.
//!
//! A grant that is taken back was no service: its line returns to its former place. Where the line was served once more since, it returns
//! once the later grant is taken back, too.

use super::index::Rank;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// Hash of a key; none for tasks without one.
pub(super) type LineKey = Option<NonZeroU64>;

/// The effect of a grant on its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The place that the line got.
    place: u64,
    /// Place and time before.
    before: (u64, u64),
}

impl Served {
    /// The place; a higher one is later.
    pub fn place(self) -> u64 {
        self.place
    }
}

/// Most grants of a line that are remembered as taken back before later ones: the latest.
const UNDONE_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// A lower place was served longer ago.
    place: u64,
    at_ms: u64,
    tasks: BTreeSet<Rank>,
    /// Places of grants that were taken back while a later one stood, each with the place and time before it.
    undone: BTreeMap<u64, (u64, u64)>,
}

impl Line {
    fn new(place: u64, at_ms: u64) -> Line {
        Line { place, at_ms, tasks: BTreeSet::new(), undone: BTreeMap::new() }
    }
}

/// Lines of a queue.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Lines {
    next: u64,
    lines: BTreeMap<LineKey, Line>,
    /// Lines with tasks, by their places.
    order: BTreeSet<(u64, LineKey)>,
}

impl Lines {
    /// Lines without tasks, each with when it was last served as far as that is known.
    pub(super) fn new(served: impl Iterator<Item = (LineKey, u64)>) -> Lines {
        let mut served: Vec<(u64, LineKey)> = served.map(|(key, at_ms)| (at_ms, key)).collect();
        served.sort_unstable();
        let mut lines = Lines::default();
        for (at_ms, key) in served {
            lines.open(key, at_ms);
        }
        lines
    }

    /// The same lines without tasks, restricted to these keys.
    pub(super) fn emptied(&self, has: impl Fn(LineKey) -> bool) -> Lines {
        let lines = self.lines.iter().filter(|(key, _)| has(**key));
        let lines = lines
            .map(|(key, line)| (*key, Line { tasks: BTreeSet::new(), undone: line.undone.clone(), ..*line }))
            .collect();
        Lines { next: self.next, lines, order: BTreeSet::new() }
    }

    fn open(&mut self, key: LineKey, at_ms: u64) -> &mut Line {
        let place = self.next;
        self.next += 1;
        self.lines.entry(key).or_insert_with(|| Line::new(place, at_ms))
    }

    /// Adds a claimable task.
    pub(super) fn show(&mut self, key: LineKey, rank: Rank) {
        if !self.lines.contains_key(&key) {
            self.open(key, rank.1.time_ms());
        }
        let line = self.lines.get_mut(&key).expect("just opened");
        assert!(line.tasks.insert(rank), "a claimable task is in its line twice");
        self.order.insert((line.place, key));
    }

    /// Removes a task that is no longer claimable.
    pub(super) fn hide(&mut self, key: LineKey, rank: &Rank) {
        let line = self.lines.get_mut(&key).expect("a claimable task's line is open");
        assert!(line.tasks.remove(rank), "a claimable task is in its line");
        if line.tasks.is_empty() {
            assert!(self.order.remove(&(line.place, key)), "a line with tasks has no place");
        }
    }

    /// Removes a key that has no open tasks any more.
    pub(super) fn forget(&mut self, key: LineKey) {
        if let Some(line) = self.lines.remove(&key) {
            assert!(line.tasks.is_empty(), "a line is closed while it has tasks");
            self.order.remove(&(line.place, key));
        }
    }

    /// Moves a key's line to the back, as a task of it was granted.
    pub(super) fn serve(&mut self, key: LineKey, at_ms: u64) -> Option<Served> {
        let line = self.lines.get(&key)?;
        let served = Served { place: self.next, before: (line.place, line.at_ms) };
        assert!(line.place < served.place, "a line that was served does not go to the back");
        self.next += 1;
        self.put(key, served.place, at_ms);
        Some(served)
    }

    /// Undoes the effect of a grant that is taken back.
    pub(super) fn take_back(&mut self, key: LineKey, served: Served) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.undone.insert(served.place, served.before);
        // Lines that were rebuilt after a change of policy restart their places; then a line may be misplaced once.
        let mut before = None;
        while let Some(undone) = line.undone.remove(&before.map_or(line.place, |(place, _)| place)) {
            before = Some(undone);
        }
        if line.undone.len() > UNDONE_MAX {
            line.undone.pop_first();
        }
        if let Some((place, at_ms)) = before {
            self.put(key, place, at_ms);
        }
    }

    fn put(&mut self, key: LineKey, place: u64, at_ms: u64) {
        let line = self.lines.get_mut(&key).expect("it is there");
        let was_placed = self.order.remove(&(line.place, key));
        assert_eq!(was_placed, !line.tasks.is_empty(), "a line without tasks has a place, or one with tasks has none");
        (line.place, line.at_ms) = (place, at_ms);
        if !line.tasks.is_empty() {
            self.order.insert((place, key));
        }
    }

    /// The first task of the first line, and when that line was last served. Where keys are not known, only of tasks without one.
    pub(super) fn head(&self, keys: bool) -> Option<(u64, Rank)> {
        let first = match keys {
            true => self.order.first().map(|(_, key)| *key)?,
            false => None,
        };
        let line = self.lines.get(&first)?;
        Some((line.at_ms, *line.tasks.first()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::TaskId;
    use std::cmp::Reverse;

    fn key(number: u64) -> LineKey {
        NonZeroU64::new(number)
    }

    fn rank(time_ms: u64, priority: i32) -> Rank {
        (Reverse(priority), TaskId::new(time_ms, 1, 1, 1))
    }

    /// Takes the first task. Its priority is its key.
    fn take(lines: &mut Lines) -> i32 {
        let (_, rank) = lines.head(true).expect("there are tasks");
        let of = key(rank.0.0.unsigned_abs().into());
        lines.hide(of, &rank);
        lines.serve(of, 1_000);
        rank.0.0
    }

    #[test]
    fn lines_take_turns_and_new_ones_come_last() {
        let mut lines = Lines::new([(key(2), 5), (key(1), 9)].into_iter());
        for time_ms in 0..4 {
            [1, 2, 3].into_iter().for_each(|of| lines.show(key(of), rank(time_ms, of as i32)));
        }
        assert_eq!([(); 4].map(|()| take(&mut lines)), [2, 1, 3, 2]);
        lines.show(key(4), rank(0, 4));
        assert_eq!([(); 5].map(|()| take(&mut lines)), [1, 3, 2, 4, 1]);
        lines.forget(key(4));
        assert_eq!(lines.lines.len(), 3);
    }

    /// Goal: a grant that is taken back leaves the order as it was, for several grants of one line too, in any order.
    #[test]
    fn a_line_whose_grant_is_taken_back_has_its_place_again() {
        let mut lines = Lines::default();
        for time_ms in 0..3 {
            [1, 2, 3].into_iter().for_each(|of| lines.show(key(of), rank(time_ms, of as i32)));
        }
        let before = lines.order.clone();
        let served = [1, 2, 1].map(|of| lines.serve(key(of), 1_000).expect("it is there"));
        assert_eq!(lines.order.first().map(|(_, key)| *key), Some(key(3)));
        lines.take_back(key(1), served[0]);
        assert_eq!(lines.order.last().map(|(_, key)| *key), Some(key(1)), "it was served once more");
        lines.take_back(key(2), served[1]);
        lines.take_back(key(1), served[2]);
        assert_eq!(lines.order, before);
        (0..3).for_each(|time_ms| lines.hide(key(1), &rank(time_ms, 1)));
        lines.forget(key(1));
        lines.take_back(key(1), served[0]);
        assert_eq!(lines.order.len(), 2);
    }

    /// However many new keys come, an existing key waits only for those before it.
    #[test]
    fn a_stream_of_new_keys_starves_nobody() {
        let mut lines = Lines::default();
        (0..2).for_each(|time_ms| lines.show(key(1), rank(time_ms, 1)));
        assert_eq!(take(&mut lines), 1);
        let served = (2..10).map(|of| {
            lines.show(key(of), rank(of, of as i32));
            take(&mut lines)
        });
        assert_eq!(served.take(2).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn only_tasks_without_keys_are_first_where_keys_are_not_known() {
        let mut lines = Lines::default();
        lines.show(key(1), rank(1, 0));
        assert_eq!(lines.head(false), None);
        lines.show(None, rank(2, 0));
        assert_eq!(lines.head(false), Some((2, rank(2, 0))));
        assert_eq!(lines.head(true), Some((1, rank(1, 0))));
    }
}
