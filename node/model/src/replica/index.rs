//! Index of a partition: the claimable tasks by queue, and what else is derived from classes. Every change maintains it, so a claim never
//! scans tasks.

use super::fair_queues::{FairKey, FairQueues, Served};
use super::key_order::{KeyOrder, Moved};
use crate::sorted::SortedSet;
use norn_wire::membership::KeyConcurrency;
use norn_wire::{QueueName, State, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64;

/// Order of claiming: higher priority first, then the older id.
pub type Rank = (Reverse<i32>, TaskId);

/// Queue (if known) and time under which an ended task is indexed; the time may be [`PURGED_MS`].
pub type Ended<'a> = (Option<&'a QueueName>, u64);

/// Time of ending of a purged task: its retention is over, however long it is.
pub const PURGED_MS: u64 = 0;

/// Scheduling state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Facts without a spec.
    Orphan,
    /// Claimable.
    Ready,
    /// Waits for other tasks.
    Blocked,
    /// Claimable from a wall-clock time on.
    Delayed(u64),
    /// Claimed.
    Held,
    /// Ended.
    Ended(State),
}

impl Class {
    /// End of the longest delay. A task that is to become claimable later than this never does.
    pub const NEVER_MS: u64 = u64::MAX - 16;

    /// The state shown to readers; an orphan has none.
    pub fn state(self) -> Option<State> {
        match self {
            Class::Orphan => None,
            Class::Ready => Some(State::Ready),
            Class::Blocked | Class::Delayed(_) => Some(State::Waiting),
            Class::Held => Some(State::Claimed),
            Class::Ended(state) => Some(state),
        }
    }
}

/// One queue's tasks in one partition.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct QueueIndex {
    ready: Choice<Rank>,
    /// Tasks by state.
    pub counts: [u64; 6],
    /// Waiting tasks that wait for a time; the others wait for tasks.
    pub delayed: u64,
    /// Bytes of tasks that have not ended.
    pub open_bytes: u64,
}

/// Claimable tasks. Those with a key are apart: a leader that does not know the keys of all held tasks grants only the others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice<T: Copy + Ord> {
    plain: SortedSet<T>,
    keyed: SortedSet<T>,
}

impl<T: Copy + Ord> Default for Choice<T> {
    fn default() -> Self {
        Choice { plain: SortedSet::default(), keyed: SortedSet::default() }
    }
}

impl<T: Copy + Ord> Choice<T> {
    fn part(&mut self, keyed: bool) -> &mut SortedSet<T> {
        if keyed { &mut self.keyed } else { &mut self.plain }
    }

    fn parts(&self, keys: bool) -> impl Iterator<Item = &SortedSet<T>> {
        std::iter::once(&self.plain).chain(keys.then_some(&self.keyed))
    }

    fn first(&self, keys: bool) -> Option<&T> {
        self.parts(keys).filter_map(SortedSet::first).min()
    }

    /// The first that is not before `from`; the first of all, if there is none.
    fn behind(&self, from: &T, keys: bool) -> Option<&T> {
        self.next(from, keys).or_else(|| self.first(keys))
    }

    /// The first that is not before `from`.
    fn next(&self, from: &T, keys: bool) -> Option<&T> {
        self.parts(keys).filter_map(|part| part.range(*from..).next()).min()
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.keyed.is_empty()
    }
}

impl QueueIndex {
    /// The first task to claim. `keys`: tasks with keys may be claimed.
    pub fn head(&self, keys: bool) -> Option<Rank> {
        self.ready.first(keys).copied()
    }

    /// The oldest of each priority, the highest first.
    pub fn levels(&self, keys: bool) -> impl Iterator<Item = Rank> + '_ {
        std::iter::successors(self.head(keys), move |(Reverse(priority), _)| {
            let lower = (Reverse(priority.checked_sub(1)?), TaskId::MIN);
            self.ready.next(&lower, keys).copied()
        })
    }

    /// Number of claimable tasks.
    pub fn ready_count(&self, keys: bool) -> u64 {
        self.ready.parts(keys).map(|part| part.len() as u64).sum()
    }

    /// Number of tasks that have not ended.
    pub fn open_count(&self) -> u64 {
        [State::Waiting, State::Ready, State::Claimed].into_iter().map(|state| self.counts[state as usize]).sum()
    }

    /// Whether a task with a key is claimable.
    pub fn has_keys(&self) -> bool {
        !self.ready.keyed.is_empty()
    }

    /// Claimable task that has been so for longest: when that began, by `since_ms`, which is never before the time in the id. At most
    /// `looks_max` tasks are looked at; there may be an older one if all of these were delayed.
    pub fn ready_since_ms(&self, looks_max: usize, since_ms: impl Fn(&TaskId) -> u64) -> Option<u64> {
        let (mut oldest_ms, mut looks) = (None, 0);
        for part in self.ready.parts(true) {
            let mut next = part.first().copied();
            while let Some(rank @ (Reverse(priority), id)) = next.filter(|_| looks < looks_max) {
                looks += 1;
                let so_far_ms = since_ms(&id).min(oldest_ms.unwrap_or(u64::MAX));
                oldest_ms = Some(so_far_ms);
                next = part.range((Bound::Excluded(rank), Bound::Unbounded)).next().copied();
                // Ids ascend with time, so the rest of this priority is not older.
                if next.is_some_and(|(Reverse(same), id)| same == priority && id.time_ms() >= so_far_ms) {
                    let lower = priority.checked_sub(1).map(|lower| (Reverse(lower), TaskId::MIN));
                    next = lower.and_then(|lower| part.range(lower..).next().copied());
                }
            }
        }
        oldest_ms
    }

    /// Claimable tasks, those with keys last.
    pub fn ready(&self) -> impl Iterator<Item = &Rank> {
        self.ready.parts(true).flat_map(SortedSet::iter)
    }
}

/// The properties of a task that the index uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Queue.
    pub queue: &'a QueueName,
    /// Higher is claimed first.
    pub priority: i32,
    /// Tasks that it still waits for.
    pub waits_for: &'a [TaskId],
    /// It has ended, and is kept until those have.
    pub over: bool,
    /// Hash of its key.
    pub key: Option<NonZeroU64>,
    /// Not claimable before this time, as enqueued.
    pub not_before_ms: u64,
    /// Size of its spec.
    pub bytes: u32,
}

impl Place<'_> {
    /// Whether a task of this class waits for others.
    pub fn waits_as(&self, class: Class) -> bool {
        match class {
            Class::Blocked => !self.over,
            Class::Ended(_) => self.over,
            Class::Orphan | Class::Ready | Class::Delayed(_) | Class::Held => false,
        }
    }
}

/// The index of a partition.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Index {
    queues: BTreeMap<QueueName, QueueIndex>,
    delayed: SortedSet<(u64, TaskId)>,
    /// Tasks that wait for others, by the one waited for: waiting to be claimed or, if ended, to be buried.
    dependents: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Ended tasks by queue and by when they ended; without a queue where only later facts are known.
    ended: BTreeMap<Option<QueueName>, SortedSet<(u64, TaskId)>>,
    orphans: usize,
    /// By queue and by the hash of the key.
    key_orders: BTreeMap<(QueueName, NonZeroU64), KeyOrder>,
    /// Limits of held tasks per key, for queues where that is not the default.
    limits: BTreeMap<QueueName, KeyConcurrency>,
    /// At a leader: lines of queues with fair queueing.
    fair_queues: BTreeMap<QueueName, FairQueues>,
    /// Claimable tasks of queues that are claimed at random, by hashes of their ids. A queue is added by its first draw.
    shuffled: BTreeMap<QueueName, Choice<(u64, TaskId)>>,
}

/// The key of a task in the random order.
fn shuffled(id: TaskId) -> (u64, TaskId) {
    (xxh3_64(&id.to_bytes()), id)
}

impl Index {
    /// Draws a claimable task of a queue at random: the first behind a point, by the hashes of ids.
    pub fn draw(&mut self, queue: &QueueName, point: u64, keys: bool) -> Option<TaskId> {
        self.shuffle(queue);
        self.shuffled.get(queue)?.behind(&(point, TaskId::MIN), keys).map(|(_, id)| *id)
    }

    /// Keeps the claimable tasks of a queue in a random order, too. The first call looks at each of them.
    fn shuffle(&mut self, queue: &QueueName) {
        let Some(index) = self.queues.get(queue) else { return };
        if !index.ready.is_empty() && !self.shuffled.contains_key(queue) {
            let all = |part: &SortedSet<Rank>| part.iter().map(|(_, id)| shuffled(*id)).collect();
            let ready = Choice { plain: all(&index.ready.plain), keyed: all(&index.ready.keyed) };
            self.shuffled.insert(queue.clone(), ready);
        }
    }

    fn unshuffle(&mut self, queue: &QueueName, id: TaskId, keyed: bool) {
        let Some(ready) = self.shuffled.get_mut(queue) else { return };
        assert!(ready.part(keyed).remove(&shuffled(id)), "a ready task is among the shuffled ones");
        if ready.is_empty() {
            self.shuffled.remove(queue);
        }
    }

    /// Drops the random order of a queue.
    pub fn end_shuffling(&mut self, queue: &QueueName) {
        self.shuffled.remove(queue);
    }

    /// Takes over which queues are shuffled from another index, to be compared with it.
    pub fn shuffle_as(&mut self, other: &Index) {
        other.shuffled.keys().for_each(|queue| self.shuffle(queue));
    }

    /// Takes over the limits per key from another index, before there are any tasks.
    pub fn limit_as(&mut self, other: &Index) {
        assert!(self.queues.is_empty(), "limits come before tasks");
        self.limits.clone_from(&other.limits);
    }

    /// Takes over the lines of another index, for the keys that are here.
    pub fn order_fairly_as(&mut self, other: &Index) {
        for (queue, fair_queues) in &other.fair_queues {
            let has = |key: FairKey| key.is_none_or(|key| self.key_orders.contains_key(&(queue.clone(), key)));
            let fair_queues = self.filled(queue, fair_queues.emptied(has));
            self.fair_queues.insert(queue.clone(), fair_queues);
        }
    }

    /// Sets how many tasks of each key of a queue may be held at once. A change looks at each key.
    pub fn limit_keys(&mut self, queue: &QueueName, limit: KeyConcurrency) {
        if self.limits.get(queue).copied().unwrap_or_default() == limit {
            return;
        }
        match limit == KeyConcurrency::default() {
            true => drop(self.limits.remove(queue)),
            false => drop(self.limits.insert(queue.clone(), limit)),
        }
        for key in self.keys_of(queue).map(|(key, _)| key).collect::<Vec<_>>() {
            let key_order = self.key_orders.get_mut(&(queue.clone(), key)).expect("just seen");
            let moved = key_order.limit(limit.count());
            self.show_moved(queue, key, moved);
        }
    }

    /// Number of tasks of a key that may be held at once.
    pub fn key_limit(&self, queue: &QueueName) -> usize {
        self.limits.get(queue).copied().unwrap_or_default().count()
    }

    fn keys_of(&self, queue: &QueueName) -> impl Iterator<Item = (NonZeroU64, &KeyOrder)> {
        let (first, last) = ((queue.clone(), NonZeroU64::MIN), (queue.clone(), NonZeroU64::MAX));
        self.key_orders.range(first..=last).map(|((_, key), key_order)| (*key, key_order))
    }

    /// The lines of a queue with fair queueing.
    pub fn fair_queues(&self, queue: &QueueName) -> Option<&FairQueues> {
        self.fair_queues.get(queue)
    }

    /// Starts fair queueing for a queue. `served`: when tasks of some of its keys were granted. Looks at each key.
    pub fn order_fairly(&mut self, queue: &QueueName, served: &BTreeMap<Option<NonZeroU64>, u64>) {
        let plain = self.queues.get(queue).and_then(|index| index.ready.plain.first());
        let plain = (None, plain.map_or(0, |(_, id)| id.time_ms()));
        let keyed =
            self.keys_of(queue).map(|(key, key_order)| (Some(key), key_order.all.first().map_or(0, TaskId::time_ms)));
        let known = |(key, since_ms)| (key, served.get(&key).copied().unwrap_or(since_ms));
        let fair_queues = FairQueues::new(keyed.chain([plain]).map(known));
        let fair_queues = self.filled(queue, fair_queues);
        self.fair_queues.insert(queue.clone(), fair_queues);
    }

    fn filled(&self, queue: &QueueName, mut fair_queues: FairQueues) -> FairQueues {
        let plain = self.queues.get(queue).into_iter().flat_map(|index| index.ready.plain.iter());
        plain.for_each(|rank| fair_queues.show(None, *rank));
        for (key, key_order) in self.keys_of(queue) {
            key_order.claimable().for_each(|rank| fair_queues.show(Some(key), rank));
        }
        fair_queues
    }

    /// Ends fair queueing of a queue, or of all queues if none is named.
    pub fn end_fair_queues(&mut self, queue: Option<&QueueName>) {
        match queue {
            Some(queue) => drop(self.fair_queues.remove(queue)),
            None => self.fair_queues.clear(),
        }
    }

    /// Moves a key to the back as a task of it was granted, under fair queueing.
    pub fn serve(&mut self, queue: &QueueName, key: Option<NonZeroU64>, at_ms: u64) -> Option<Served> {
        self.fair_queues.get_mut(queue)?.serve(key, at_ms)
    }

    /// Undoes that for a grant that is taken back.
    pub fn take_back(&mut self, queue: &QueueName, key: Option<NonZeroU64>, served: Served) {
        if let Some(fair_queues) = self.fair_queues.get_mut(queue) {
            fair_queues.take_back(key, served);
        }
    }

    /// Moves a task from one class to another; `None` where it was or will be unknown. Unless it is an orphan, `place` gives the
    /// properties from its spec.
    pub fn change(&mut self, id: TaskId, place: Option<Place<'_>>, before: Option<Class>, after: Option<Class>) {
        if before == after {
            return;
        }
        if let Some(class) = before {
            self.remove(id, place, class);
        }
        if let Some(class) = after {
            self.insert(id, place, class);
        }
    }

    fn remove(&mut self, id: TaskId, place: Option<Place<'_>>, class: Class) {
        let (Some(place), Some(state)) = (place, class.state()) else {
            assert!(self.orphans > 0, "an orphan was not counted");
            self.orphans -= 1;
            return;
        };
        let Place { queue, priority, waits_for, .. } = place;
        match place.key {
            Some(key) => self.change_key_order(queue, key, |key_order, limit| key_order.leave(&id, limit)),
            None if class == Class::Ready => self.hide(queue, (Reverse(priority), id), None),
            None => {}
        }
        let index = self.queues.get_mut(queue).expect("a counted task's queue is indexed");
        assert!(index.counts[state as usize] > 0, "a task was not counted");
        index.counts[state as usize] -= 1;
        if !matches!(class, Class::Ended(_)) {
            assert!(index.open_bytes >= u64::from(place.bytes), "the bytes of a task were not counted");
            index.open_bytes -= u64::from(place.bytes);
        }
        if let Class::Delayed(until_ms) = class {
            assert!(index.delayed > 0, "a delayed task was not counted");
            index.delayed -= 1;
            assert!(self.delayed.remove(&(until_ms, id)), "a delayed task is in the index");
        }
        for other in waits_for.iter().filter(|_| place.waits_as(class)) {
            let dependents = self.dependents.get_mut(other).expect("what a task waits for is indexed");
            assert!(dependents.remove(&id), "a task that waits is in the index");
            if dependents.is_empty() {
                self.dependents.remove(other);
            }
        }
        if index.counts == [0; 6] {
            assert!(index.ready.is_empty(), "a task can be claimed that is not counted");
            assert_eq!(index.open_bytes, 0, "bytes are counted of tasks that are gone");
            self.queues.remove(queue);
        }
    }

    fn insert(&mut self, id: TaskId, place: Option<Place<'_>>, class: Class) {
        // Later facts, even an ending, may be known before the spec: such a task is in no queue yet.
        let (Some(place), Some(state)) = (place, class.state()) else {
            self.orphans += 1;
            return;
        };
        let Place { queue, priority, waits_for, .. } = place;
        if !self.queues.contains_key(queue) {
            self.queues.insert(queue.clone(), QueueIndex::default());
        }
        let index = self.queues.get_mut(queue).expect("just inserted");
        index.counts[state as usize] += 1;
        index.delayed += u64::from(matches!(class, Class::Delayed(_)));
        if !matches!(class, Class::Ended(_)) {
            index.open_bytes += u64::from(place.bytes);
        }
        match place.key {
            Some(key) => self.change_key_order(queue, key, |key_order, limit| key_order.enter(id, place, class, limit)),
            None if class == Class::Ready => self.show(queue, (Reverse(priority), id), None),
            None => {}
        }
        if let Class::Delayed(until_ms) = class {
            assert!(self.delayed.insert((until_ms, id)), "a delayed task is in the index twice");
        }
        for other in waits_for.iter().filter(|_| place.waits_as(class)) {
            let is_new = self.dependents.entry(*other).or_default().insert(id);
            assert!(is_new, "a task that waits is in the index twice");
        }
    }

    /// Adds a claimable task.
    fn show(&mut self, queue: &QueueName, rank: Rank, key: FairKey) {
        let index = self.queues.get_mut(queue).expect("a claimable task's queue is indexed");
        assert!(index.ready.part(key.is_some()).insert(rank), "a claimable task is in the index twice");
        if let Some(ready) = self.shuffled.get_mut(queue) {
            assert!(ready.part(key.is_some()).insert(shuffled(rank.1)), "a ready task is shuffled twice");
        }
        if let Some(fair_queues) = self.fair_queues.get_mut(queue) {
            fair_queues.show(key, rank);
        }
    }

    /// Removes a task that is no longer claimable.
    fn hide(&mut self, queue: &QueueName, rank: Rank, key: FairKey) {
        let index = self.queues.get_mut(queue).expect("a claimable task's queue is indexed");
        assert!(index.ready.part(key.is_some()).remove(&rank), "a claimable task is in the index");
        self.unshuffle(queue, rank.1, key.is_some());
        if let Some(fair_queues) = self.fair_queues.get_mut(queue) {
            fair_queues.hide(key, &rank);
        }
    }

    /// Applies a change among the tasks of a key, and what follows from it for their turns.
    fn change_key_order(
        &mut self,
        queue: &QueueName,
        key: NonZeroU64,
        change: impl FnOnce(&mut KeyOrder, usize) -> Moved,
    ) {
        let limit = self.key_limit(queue);
        let name = (self.shared_name(queue), key);
        let key_order = self.key_orders.entry(name.clone()).or_default();
        let moved = change(key_order, limit);
        let over = key_order.all.is_empty();
        self.show_moved(queue, key, moved);
        if over {
            self.key_orders.remove(&name);
            if let Some(fair_queues) = self.fair_queues.get_mut(queue) {
                fair_queues.forget(Some(key));
            }
        }
    }

    fn show_moved(&mut self, queue: &QueueName, key: NonZeroU64, moved: Moved) {
        for (rank, shown) in moved {
            match shown {
                true => self.show(queue, rank, Some(key)),
                false => self.hide(queue, rank, Some(key)),
            }
        }
    }

    /// The name of a queue, sharing the copy in memory if there is one.
    pub fn shared_name(&self, queue: &QueueName) -> QueueName {
        self.queues.get_key_value(queue).map_or(queue, |(shared, _)| shared).clone()
    }

    /// Moves an ended task from one queue and time to another; `None` where it is not indexed as ended.
    pub fn change_ended(&mut self, id: TaskId, before: Option<Ended<'_>>, after: Option<Ended<'_>>) {
        if before == after {
            return;
        }
        if let Some((queue, at_ms)) = before {
            let key = queue.cloned();
            let ended = self.ended.get_mut(&key).expect("an ended task's queue is indexed");
            assert!(ended.remove(&(at_ms, id)), "an ended task is in the index");
            if ended.is_empty() {
                self.ended.remove(&key);
            }
        }
        if let Some((queue, at_ms)) = after {
            let is_new = self.ended.entry(queue.cloned()).or_default().insert((at_ms, id));
            assert!(is_new, "an ended task is in the index twice");
        }
    }

    /// Held tasks of a queue with this key.
    pub fn held(&self, queue: &QueueName, key: NonZeroU64) -> impl Iterator<Item = &TaskId> {
        self.key_orders.get(&(queue.clone(), key)).into_iter().flat_map(|key_order| &key_order.held)
    }

    /// Tasks of a queue with this key that have not ended, in order.
    pub fn open(&self, queue: &QueueName, key: NonZeroU64) -> impl Iterator<Item = &TaskId> {
        self.key_orders.get(&(queue.clone(), key)).into_iter().flat_map(|key_order| &key_order.all)
    }

    /// Whether any task here has a key and has not ended.
    pub fn has_key_orders(&self) -> bool {
        !self.key_orders.is_empty()
    }

    /// Ended tasks by queue, each with its time in milliseconds since the Unix epoch, in the order of ending.
    pub fn ended(&self) -> impl Iterator<Item = (Option<&QueueName>, &SortedSet<(u64, TaskId)>)> {
        self.ended.iter().map(|(queue, tasks)| (queue.as_ref(), tasks))
    }

    /// One queue.
    pub fn queue(&self, queue: &QueueName) -> Option<&QueueIndex> {
        self.queues.get(queue)
    }

    /// All queues.
    pub fn queues(&self) -> impl Iterator<Item = (&QueueName, &QueueIndex)> {
        self.queues.iter()
    }

    /// The queues behind this one.
    pub fn queues_after(&self, after: Option<&QueueName>) -> impl Iterator<Item = (&QueueName, &QueueIndex)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.queues.range::<QueueName, _>((from, Bound::Unbounded))
    }

    /// Tasks after `after` that wait for this one, in order.
    pub fn dependents(&self, other: &TaskId, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.dependents.get(other).into_iter().flat_map(move |ids| ids.range((from, Bound::Unbounded))).copied()
    }

    /// Tasks after this one that others wait for, in order.
    pub fn waited_for(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.dependents.range((from, Bound::Unbounded)).map(|(other, _)| *other)
    }

    /// When the first delayed task becomes due, by the wall clock.
    pub fn first_due_ms(&self) -> Option<u64> {
        self.delayed.first().map(|(until_ms, _)| *until_ms)
    }

    /// The first delayed task that is due.
    pub fn due(&self, wall_ms: u64) -> Option<TaskId> {
        self.delayed.first().filter(|(until_ms, _)| *until_ms <= wall_ms).map(|(_, id)| *id)
    }

    /// Number of tasks of which only later facts are known.
    pub fn orphans(&self) -> usize {
        self.orphans
    }
}
