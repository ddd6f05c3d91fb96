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
pub(super) type FairKey = Option<NonZeroU64>;

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
struct FairQueue {
    /// A lower place was served longer ago.
    place: u64,
    at_ms: u64,
    tasks: BTreeSet<Rank>,
    /// Places of grants that were taken back while a later one stood, each with the place and time before it.
    undone: BTreeMap<u64, (u64, u64)>,
}

impl FairQueue {
    fn new(place: u64, at_ms: u64) -> FairQueue {
        FairQueue { place, at_ms, tasks: BTreeSet::new(), undone: BTreeMap::new() }
    }
}

/// Lines of a queue.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FairQueues {
    next: u64,
    fair_queues: BTreeMap<FairKey, FairQueue>,
    /// Lines with tasks, by their places.
    order: BTreeSet<(u64, FairKey)>,
}

impl FairQueues {
    /// Lines without tasks, each with when it was last served as far as that is known.
    pub(super) fn new(served: impl Iterator<Item = (FairKey, u64)>) -> FairQueues {
        let mut served: Vec<(u64, FairKey)> = served.map(|(key, at_ms)| (at_ms, key)).collect();
        served.sort_unstable();
        let mut fair_queues = FairQueues::default();
        for (at_ms, key) in served {
            fair_queues.open(key, at_ms);
        }
        fair_queues
    }

    /// The same lines without tasks, restricted to these keys.
    pub(super) fn emptied(&self, has: impl Fn(FairKey) -> bool) -> FairQueues {
        let fair_queues = self.fair_queues.iter().filter(|(key, _)| has(**key));
        let fair_queues = fair_queues
            .map(|(key, fair_queue)| {
                (*key, FairQueue { tasks: BTreeSet::new(), undone: fair_queue.undone.clone(), ..*fair_queue })
            })
            .collect();
        FairQueues { next: self.next, fair_queues, order: BTreeSet::new() }
    }

    fn open(&mut self, key: FairKey, at_ms: u64) -> &mut FairQueue {
        let place = self.next;
        self.next += 1;
        self.fair_queues.entry(key).or_insert_with(|| FairQueue::new(place, at_ms))
    }

    /// Adds a claimable task.
    pub(super) fn show(&mut self, key: FairKey, rank: Rank) {
        if !self.fair_queues.contains_key(&key) {
            self.open(key, rank.1.time_ms());
        }
        let fair_queue = self.fair_queues.get_mut(&key).expect("just opened");
        assert!(fair_queue.tasks.insert(rank), "a claimable task is in its line twice");
        self.order.insert((fair_queue.place, key));
    }

    /// Removes a task that is no longer claimable.
    pub(super) fn hide(&mut self, key: FairKey, rank: &Rank) {
        let fair_queue = self.fair_queues.get_mut(&key).expect("a claimable task's line is open");
        assert!(fair_queue.tasks.remove(rank), "a claimable task is in its line");
        if fair_queue.tasks.is_empty() {
            assert!(self.order.remove(&(fair_queue.place, key)), "a line with tasks has no place");
        }
    }

    /// Removes a key that has no open tasks any more.
    pub(super) fn forget(&mut self, key: FairKey) {
        if let Some(fair_queue) = self.fair_queues.remove(&key) {
            assert!(fair_queue.tasks.is_empty(), "a line is closed while it has tasks");
            self.order.remove(&(fair_queue.place, key));
        }
    }

    /// Moves a key's line to the back, as a task of it was granted.
    pub(super) fn serve(&mut self, key: FairKey, at_ms: u64) -> Option<Served> {
        let fair_queue = self.fair_queues.get(&key)?;
        let served = Served { place: self.next, before: (fair_queue.place, fair_queue.at_ms) };
        assert!(fair_queue.place < served.place, "a line that was served does not go to the back");
        self.next += 1;
        self.put(key, served.place, at_ms);
        Some(served)
    }

    /// Undoes the effect of a grant that is taken back.
    pub(super) fn take_back(&mut self, key: FairKey, served: Served) {
        let Some(fair_queue) = self.fair_queues.get_mut(&key) else { return };
        fair_queue.undone.insert(served.place, served.before);
        // Lines that were rebuilt after a change of policy restart their places; then a line may be misplaced once.
        let mut before = None;
        while let Some(undone) = fair_queue.undone.remove(&before.map_or(fair_queue.place, |(place, _)| place)) {
            before = Some(undone);
        }
        if fair_queue.undone.len() > UNDONE_MAX {
            fair_queue.undone.pop_first();
        }
        if let Some((place, at_ms)) = before {
            self.put(key, place, at_ms);
        }
    }

    fn put(&mut self, key: FairKey, place: u64, at_ms: u64) {
        let fair_queue = self.fair_queues.get_mut(&key).expect("it is there");
        let was_placed = self.order.remove(&(fair_queue.place, key));
        assert_eq!(
            was_placed,
            !fair_queue.tasks.is_empty(),
            "a line without tasks has a place, or one with tasks has none"
        );
        (fair_queue.place, fair_queue.at_ms) = (place, at_ms);
        if !fair_queue.tasks.is_empty() {
            self.order.insert((place, key));
        }
    }

    /// The first task of the first line, and when that line was last served. Where keys are not known, only of tasks without one.
    pub(super) fn head(&self, keys: bool) -> Option<(u64, Rank)> {
        let first = match keys {
            true => self.order.first().map(|(_, key)| *key)?,
            false => None,
        };
        let fair_queue = self.fair_queues.get(&first)?;
        Some((fair_queue.at_ms, *fair_queue.tasks.first()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::TaskId;
    use std::cmp::Reverse;

    fn key(number: u64) -> FairKey {
        NonZeroU64::new(number)
    }

    fn rank(time_ms: u64, priority: i32) -> Rank {
        (Reverse(priority), TaskId::new(time_ms, 1, 1, 1))
    }

    /// Takes the first task. Its priority is its key.
    fn take(fair_queues: &mut FairQueues) -> i32 {
        let (_, rank) = fair_queues.head(true).expect("there are tasks");
        let of = key(rank.0.0.unsigned_abs().into());
        fair_queues.hide(of, &rank);
        fair_queues.serve(of, 1_000);
        rank.0.0
    }

    #[test]
    fn lines_take_turns_and_new_ones_come_last() {
        let mut fair_queues = FairQueues::new([(key(2), 5), (key(1), 9)].into_iter());
        for time_ms in 0..4 {
            [1, 2, 3].into_iter().for_each(|of| fair_queues.show(key(of), rank(time_ms, of as i32)));
        }
        assert_eq!([(); 4].map(|()| take(&mut fair_queues)), [2, 1, 3, 2]);
        fair_queues.show(key(4), rank(0, 4));
        assert_eq!([(); 5].map(|()| take(&mut fair_queues)), [1, 3, 2, 4, 1]);
        fair_queues.forget(key(4));
        assert_eq!(fair_queues.fair_queues.len(), 3);
    }

    /// Goal: a grant that is taken back leaves the order as it was, for several grants of one line too, in any order.
    #[test]
    fn a_line_whose_grant_is_taken_back_has_its_place_again() {
        let mut fair_queues = FairQueues::default();
        for time_ms in 0..3 {
            [1, 2, 3].into_iter().for_each(|of| fair_queues.show(key(of), rank(time_ms, of as i32)));
        }
        let before = fair_queues.order.clone();
        let served = [1, 2, 1].map(|of| fair_queues.serve(key(of), 1_000).expect("it is there"));
        assert_eq!(fair_queues.order.first().map(|(_, key)| *key), Some(key(3)));
        fair_queues.take_back(key(1), served[0]);
        assert_eq!(fair_queues.order.last().map(|(_, key)| *key), Some(key(1)), "it was served once more");
        fair_queues.take_back(key(2), served[1]);
        fair_queues.take_back(key(1), served[2]);
        assert_eq!(fair_queues.order, before);
        (0..3).for_each(|time_ms| fair_queues.hide(key(1), &rank(time_ms, 1)));
        fair_queues.forget(key(1));
        fair_queues.take_back(key(1), served[0]);
        assert_eq!(fair_queues.order.len(), 2);
    }

    /// However many new keys come, an existing key waits only for those before it.
    #[test]
    fn a_stream_of_new_keys_starves_nobody() {
        let mut fair_queues = FairQueues::default();
        (0..2).for_each(|time_ms| fair_queues.show(key(1), rank(time_ms, 1)));
        assert_eq!(take(&mut fair_queues), 1);
        let served = (2..10).map(|of| {
            fair_queues.show(key(of), rank(of, of as i32));
            take(&mut fair_queues)
        });
        assert_eq!(served.take(2).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn only_tasks_without_keys_are_first_where_keys_are_not_known() {
        let mut fair_queues = FairQueues::default();
        fair_queues.show(key(1), rank(1, 0));
        assert_eq!(fair_queues.head(false), None);
        fair_queues.show(None, rank(2, 0));
        assert_eq!(fair_queues.head(false), Some((2, rank(2, 0))));
        assert_eq!(fair_queues.head(true), Some((1, rank(1, 0))));
    }
}
