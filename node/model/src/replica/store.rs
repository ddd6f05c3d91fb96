//! Tasks of one partition with everything that is derived from them: digests, tree, index, recent changes.

use super::fair_queues::Served;
use super::index::{Class, Ended, Index, PURGED_MS, Place};
use super::places::bucket_of;
use super::tree::{Root, Tree};
use crate::claim_table::table::ClaimState;
use crate::consensus::Hold;
use crate::limits::{BUCKETS, RECENT_CHANGES_MAX};
use crate::sorted::SortedMap;
use crate::task::{Changing, Content, Digest, Outline, Task, Tombstone, Wanted, spec_digest};
use crdts::CvRDT;
use norn_wire::membership::KeyConcurrency;
use norn_wire::{QueueName, State, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;

mod blobs;
mod body;
mod entry;
mod tombstones;

use blobs::Leavers;
pub use blobs::Whose;
use entry::Entry;

/// Result of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// Anything changed.
    pub changed: bool,
    /// The task has ended, and had not before.
    pub ended: bool,
    /// Its spec is known, and was not before.
    pub arrived: bool,
    /// Hash of its spec, if the body is new here: the host will report where the log has it.
    pub body: Option<u64>,
    /// Its completions brought children that may not be enqueued yet.
    pub outbox: bool,
    /// The task is no longer kept for others: all its children are enqueued now, or the join of its group has ended.
    pub freed: bool,
    /// The task has ended and an operator purged it, which was not known before.
    pub purged: bool,
}

/// A change of state that watchers are notified of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Task.
    pub id: TaskId,
    /// Claimable, held, or how it ended.
    pub state: State,
    /// Its queue; unknown for a task of which only the tombstone has come.
    pub queue: Option<QueueName>,
    /// The group of which it is a member.
    pub group: Option<TaskId>,
}

/// The tasks of one partition.
#[derive(Debug, Default)]
pub struct Store {
    tasks: SortedMap<TaskId, Entry>,
    /// Tasks whose retention is over; disjoint from `tasks`.
    tombstones: BTreeMap<TaskId, Tombstone>,
    /// For tombstones: tokens of completions whose children are all handed over.
    handed: BTreeMap<TaskId, Vec<Token>>,
    /// Tasks whose completions brought children that may not be enqueued yet.
    outboxes: BTreeSet<TaskId>,
    /// Those children, each with its parent.
    brought: BTreeSet<(TaskId, TaskId)>,
    tree: Tree,
    index: Index,
    /// Changes are numbered from 1 in each incarnation; the newest `RECENT_CHANGES_MAX` are kept.
    recent: VecDeque<TaskId>,
    changes: u64,
    /// Queues whose ready tasks changed since last asked.
    touched: BTreeSet<QueueName>,
    /// Tasks that newly blocked ones wait for, since last asked.
    blocked: BTreeSet<TaskId>,
    /// Bytes of bodies, results and log entries in memory.
    body_bytes: usize,
    /// Tasks with results or log entries that are in memory and need not be.
    leavers: Leavers,
    /// Tasks of which the log may have no place for results or log entries, as no record of facts contains them.
    unwritten: BTreeSet<TaskId>,
    /// Facts that cannot be merged before results or log entries under the same keys are back in memory.
    rivals: BTreeMap<TaskId, Task>,
    /// Whether a queue is watched, so that changes of state are noted.
    watched: bool,
    /// Changes of state noted since last asked.
    moved: Vec<Moved>,
}

/// The properties that the index uses of a task with a spec.
#[derive(PartialEq, Eq)]
struct Indexed {
    queue: QueueName,
    priority: i32,
    hash: u64,
    waits_for: Vec<TaskId>,
    over: bool,
    key: Option<NonZeroU64>,
    not_before_ms: u64,
    bytes: u32,
}

impl Indexed {
    fn of(id: &TaskId, task: &Task<Outline>) -> Option<Indexed> {
        let spec = task.spec.as_ref()?;
        let Outline { queue, priority, hash, body, .. } = spec;
        let (waits_for, over) = (task.waits_for(id), task.ended().is_some());
        Some(Indexed {
            queue: queue.clone(),
            priority: *priority,
            hash: *hash,
            waits_for,
            over,
            key: spec.key(),
            // As in the class, so that a task that is never claimable takes no other task's turn.
            not_before_ms: spec.not_before_ms().min(Class::NEVER_MS),
            bytes: body.bytes(),
        })
    }

    fn place(&self) -> Place<'_> {
        let Indexed { queue, priority, waits_for, over, key, not_before_ms, bytes, .. } = self;
        let (priority, over, key, not_before_ms, bytes) = (*priority, *over, *key, *not_before_ms, *bytes);
        Place { queue, priority, waits_for, over, key, not_before_ms, bytes }
    }
}

/// Tasks that a task waits for and did not wait for before.
fn newly_waited_for(
    (before, before_class): (&Option<Indexed>, Option<Class>),
    (after, class): (&Option<Indexed>, Class),
) -> Vec<TaskId> {
    let waits = |indexed: &Indexed, class| indexed.place().waits_as(class);
    let before = before.as_ref().filter(|before| before_class.is_some_and(|class| waits(before, class)));
    let before: BTreeSet<TaskId> = before.iter().flat_map(|before| &before.waits_for).copied().collect();
    let after = after.as_ref().filter(|after| waits(after, class));
    let after = after.into_iter().flat_map(|after| &after.waits_for);
    after.filter(|id| !before.contains(*id)).copied().collect()
}

/// Queue and time under which an ended task is indexed that may be buried. The time is not before its enqueue, whatever a client's clock
/// said. A purged task comes before all others. Without its spec it is not known what else needs it, so it waits as if it were not
/// purged.
fn ended<'a>(id: &TaskId, task: &'a Task<Outline>) -> Option<Ended<'a>> {
    let tombstone = task.tombstone().filter(|_| !task.has_outbox() && !task.awaits_join())?;
    let queue = task.spec.as_ref().map(|spec| &spec.queue);
    let at_ms = match task.is_purged() && queue.is_some() {
        true => PURGED_MS,
        false => tombstone.at_ms.max(id.time_ms()).max(PURGED_MS + 1),
    };
    Some((queue, at_ms))
}

/// Whether a task has ended and is purged.
fn is_over_early(task: &Task<Outline>) -> bool {
    task.is_purged() && task.ended().is_some()
}

/// The class of a task, from its facts and its claim.
pub fn classify<S: Content>(task: &Task<S>, Hold { entry, lapsed, locked }: Hold<'_>, wall_ms: u64) -> Class {
    if let Some(state) = task.ended() {
        return Class::Ended(state);
    }
    let Some(spec) = &task.spec else { return Class::Orphan };
    let not_before_ms = match entry.map(|entry| &entry.state) {
        Some(ClaimState::Dead { .. }) => return Class::Ended(State::Dead),
        Some(ClaimState::Held) if lapsed => 0,
        // A seal is not reported before it is a fact: until it is committed it may be lost.
        Some(ClaimState::Held | ClaimState::Sealed { .. }) => return Class::Held,
        Some(ClaimState::Released { not_before_ms, .. }) => *not_before_ms,
        Some(ClaimState::Void) | None => spec.not_before_ms(),
    };
    if !spec.is_readable() {
        // It cannot be granted before a peer has sent its body.
        return Class::Orphan;
    }
    if task.is_blocked() {
        return Class::Blocked;
    }
    if locked {
        return Class::Delayed(Class::NEVER_MS);
    }
    if not_before_ms > wall_ms { Class::Delayed(not_before_ms.min(Class::NEVER_MS)) } else { Class::Ready }
}

/// The class of a task at a replica that keeps it. Without a part of its log it is not granted, as without its body.
pub fn class_of(task: &Task<Outline>, hold: Hold<'_>, wall_ms: u64) -> Class {
    match classify(task, hold, wall_ms) {
        Class::Ready | Class::Delayed(_) | Class::Blocked if task.lacks_entries() => Class::Orphan,
        class => class,
    }
}

/// The change of state to report for a task that came to a class. A task without a known spec reports none until the spec arrives. Only
/// facts are reported as endings, as a death in the claim table may be undone.
fn moved(id: TaskId, task: &Task<Outline>, class: Class) -> Option<Moved> {
    let state = match class {
        Class::Ready => State::Ready,
        Class::Held => State::Claimed,
        Class::Ended(_) => task.ended()?,
        Class::Orphan | Class::Blocked | Class::Delayed(_) => return None,
    };
    let queue = Some(task.spec.as_ref()?.queue.clone());
    Some(Moved { id, state, queue, group: task.member_of().map(|member| member.group) })
}

impl Store {
    /// Merges facts about a task; `hold` and `wall_ms` as in [`class_of`].
    pub fn merge(&mut self, id: TaskId, delta: Task, hold: Hold<'_>, wall_ms: u64) -> Merged {
        if delta.is_bottom() {
            return Merged::default();
        }
        if delta.tombstone.is_some() || self.is_buried(&id) {
            return self.bury(id, delta);
        }
        let (mut delta, told) = delta.outlined_with_digest(&id);
        let told = delta.spec.as_ref().map(|spec| spec.hash).zip(told);
        delta.facts.iter_mut().for_each(|facts| facts.leave_out_places());
        let rival = self.keep_rival(id, &mut delta);
        let Store { tasks, index, tree, touched, blocked, body_bytes, moved: moves, watched, .. } = self;
        let mut is_new = false;
        let entry = tasks.get_or_insert_with(id, || {
            is_new = true;
            Entry::new(Task::default(), 0, Class::Orphan)
        });
        let before_class = (!is_new).then(|| entry.class());
        let (before_digest, had_ended) = (entry.digest(), entry.task.ended().is_some());
        let had_spec = entry.task.spec.is_some();
        let (awaited_join, was_over) = (entry.task.awaits_join(), is_over_early(&entry.task));
        let brought: Vec<TaskId> = entry.task.brings().collect();
        let before_ms = ended(&id, &entry.task).map(|(_, at_ms)| at_ms);
        let changing = Changing::between(&entry.task, &delta);
        let (before_bytes, facts_before) = (entry.body_bytes(), entry.task.facts_digest(&id, changing));
        let indexed_before = Indexed::of(&id, &entry.task);
        let restored_body = entry.restore_body(&mut delta);
        let restored = entry.restore_blobs(&delta) || restored_body;
        entry.task.merge(delta);
        if let Some(spec) = &mut entry.task.spec {
            // One copy of the name for all tasks of a queue.
            spec.queue = index.shared_name(&spec.queue);
        }
        let indexed_after = Indexed::of(&id, &entry.task);
        let hash = |indexed: &Option<Indexed>| indexed.as_ref().map(|indexed| indexed.hash);
        let spec_changes = hash(&indexed_after) != hash(&indexed_before);
        let changed_spec = entry.task.spec.as_ref().filter(|_| spec_changes);
        let spec_part = match changed_spec.and_then(|spec| Some((spec, spec.body.here()?))) {
            Some((spec, whole)) => told
                .filter(|(hash, _)| *hash == spec.hash)
                .map_or_else(|| spec_digest(&id, whole), |(_, digest)| digest),
            None => before_digest.wrapping_sub(facts_before),
        };
        let digest = spec_part.wrapping_add(entry.task.facts_digest(&id, changing));
        entry.set_digest(digest);
        if before_class.is_some() && digest == before_digest && !restored {
            // Nothing was learned. The class stays: one that changed with the clock alone would go unnoticed by the code that sets
            // timers.
            return Merged { changed: rival, ..Merged::default() };
        }
        let class = class_of(&entry.task, hold, wall_ms);
        entry.set_class(class);
        let body = hash(&indexed_after).filter(|_| spec_changes || restored_body);
        if indexed_after != indexed_before || before_class != Some(class) {
            index.change(id, indexed_before.as_ref().map(Indexed::place), before_class, None);
            index.change(id, indexed_after.as_ref().map(Indexed::place), None, Some(class));
            let both = [&indexed_before, &indexed_after].into_iter().flatten();
            touched.extend(both.map(|indexed| indexed.queue.clone()));
            blocked.extend(newly_waited_for((&indexed_before, before_class), (&indexed_after, class)));
        }
        let before = before_ms.map(|at_ms| (indexed_before.as_ref().map(|indexed| &indexed.queue), at_ms));
        index.change_ended(id, before, ended(&id, &entry.task));
        let is_news = before_class != Some(class) || !had_spec || !had_ended && entry.task.ended().is_some();
        if *watched && is_news {
            moves.extend(moved(id, &entry.task, class));
        }
        let ended = entry.task.ended().is_some() && !had_ended;
        let join_over = awaited_join && !entry.task.awaits_join();
        let purged = !was_over && is_over_early(&entry.task);
        if ended && let Some(spec) = &mut entry.task.spec {
            // Tasks that have ended are only read.
            spec.leave_memory();
        }
        assert!(*body_bytes >= before_bytes, "the body of a task was not counted");
        *body_bytes = *body_bytes + entry.body_bytes() - before_bytes;
        tree.change(&id, before_digest, digest);
        let (whose, brings) = (entry.may_leave(), entry.task.brings().collect());
        let arrived = !had_spec && entry.task.spec.is_some();
        self.list_leaver(&id, whose);
        let (had_outbox, outbox) = self.note_outbox(id, &brought, brings);
        self.remember(id);
        Merged { changed: true, ended, arrived, body, outbox, freed: had_outbox && !outbox || join_over, purged }
    }

    /// Removes a task from everything but the tree. Returns its digest, and whether it had ended.
    fn remove(&mut self, id: &TaskId) -> (Digest, bool) {
        let Some(entry) = self.tasks.remove(id) else { return (0, false) };
        assert!(self.body_bytes >= entry.body_bytes(), "the body of a task was not counted");
        self.body_bytes -= entry.body_bytes();
        self.leavers.remove(id);
        self.unwritten.remove(id);
        self.rivals.remove(id);
        let indexed = Indexed::of(id, &entry.task);
        self.index.change(*id, indexed.as_ref().map(Indexed::place), Some(entry.class()), None);
        self.index.change_ended(*id, ended(id, &entry.task), None);
        self.outboxes.remove(id);
        for child in entry.task.brings() {
            self.brought.remove(&(child, *id));
        }
        self.touched.extend(indexed.map(|indexed| indexed.queue));
        (entry.digest(), entry.task.ended().is_some())
    }

    fn remember(&mut self, id: TaskId) {
        self.changes += 1;
        self.recent.push_back(id);
        if self.recent.len() > RECENT_CHANGES_MAX {
            self.recent.pop_front();
        }
        assert!(self.recent.len() <= RECENT_CHANGES_MAX, "too many changes are remembered");
    }

    /// Recomputes the class of a task after a change of its claim, or of the time.
    pub fn reclassify(&mut self, id: &TaskId, hold: Hold<'_>, wall_ms: u64) {
        let Some(entry) = self.tasks.get(id) else { return };
        let class = class_of(&entry.task, hold, wall_ms);
        self.set_class(id, class);
    }

    /// Sets the class of a task for a while: a task that is about to be granted is `Held`.
    pub fn set_class(&mut self, id: &TaskId, class: Class) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        let before = entry.class();
        entry.set_class(class);
        if before == class {
            return;
        }
        let indexed = Indexed::of(id, &entry.task);
        self.index.change(*id, indexed.as_ref().map(Indexed::place), Some(before), Some(class));
        if class == Class::Blocked {
            self.blocked.extend(entry.task.waits_for(id));
        }
        if self.watched {
            self.moved.extend(moved(*id, &entry.task, class));
        }
        // A change of a keyed task may give another one its turn. Where the held tasks of a queue are limited, each counts.
        let counts = |class: Class| matches!(class, Class::Ready | Class::Held);
        if let Some(spec) = &entry.task.spec
            && (counts(before) || counts(class) || spec.key().is_some())
        {
            self.touched.insert(spec.queue.clone());
        }
    }

    /// A task's facts.
    pub fn task(&self, id: &TaskId) -> Option<&Task<Outline>> {
        self.tasks.get(id).map(|entry| &entry.task)
    }

    /// A task's class.
    pub fn class(&self, id: &TaskId) -> Option<Class> {
        self.tasks.get(id).map(|entry| entry.class())
    }

    /// A task's tombstone.
    pub fn tombstone(&self, id: &TaskId) -> Option<&Tombstone> {
        self.tombstones.get(id)
    }

    /// All that is known of a task, to be sent: its facts, and the parts of them that are not in memory; or its tombstone.
    pub fn content(&self, id: &TaskId) -> Option<(Task, Vec<Wanted>)> {
        let tombstone = || Some((self.buried_task(id)?, Vec::new()));
        self.task(id).map(|task| task.whole(*id)).or_else(tombstone)
    }

    /// How a task ended: what another replica needs to come to the same conclusion, as far as it is in memory.
    pub fn ending(&self, id: &TaskId) -> Option<Task> {
        let ended = self.task(id).filter(|task| task.ended().is_some()).map(Task::ending);
        ended.or_else(|| self.buried_task(id))
    }

    /// The same, to be replicated; nothing if it is not all in memory. For a purged task whose result is lost, the lost part is left out
    /// if it is known to have ended all the same: by the purge the operator gave that part up.
    pub fn told_ending(&self, id: &TaskId) -> Option<Task> {
        let mut ending = self.ending(id)?;
        if !ending.has_blobs() {
            let is_away = ending.blobs().any(|(_, blob)| blob.here().is_none() && !blob.is_lost());
            if is_away || !self.task(id).is_some_and(Task::is_purged) {
                return None;
            }
            ending.leave_out_gaps();
        }
        ending.ended().is_some().then_some(ending)
    }

    /// A task's digest; 0 if it is unknown.
    pub fn digest(&self, id: &TaskId) -> Digest {
        self.tasks.get(id).map_or_else(|| self.tombstone_digest(id), |entry| entry.digest())
    }

    /// Whether anything is known of a task.
    pub fn knows(&self, id: &TaskId) -> bool {
        self.tasks.contains_key(id) || self.tombstones.contains_key(id)
    }

    /// Whether a task's spec is unknown and may still come.
    pub fn lacks_spec(&self, id: &TaskId) -> bool {
        !self.tombstones.contains_key(id)
            && self.task(id).is_none_or(|task| task.spec.is_none() && task.tombstone.is_none())
    }

    /// Whether a task is known to have ended.
    pub fn ended(&self, id: &TaskId) -> bool {
        self.tombstones.contains_key(id) || self.task(id).is_some_and(|task| task.ended().is_some())
    }

    /// Number of tasks, without those whose retention is over.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Tombstones after an id, in order.
    pub fn tombstones_after(&self, after: Option<TaskId>) -> impl Iterator<Item = (&TaskId, &Tombstone)> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.tombstones.range((from, Bound::Unbounded))
    }

    /// Number of tombstones.
    pub fn tombstones_count(&self) -> usize {
        self.tombstones.len()
    }

    /// Tasks after an id, in order.
    pub fn after(&self, after: Option<TaskId>) -> impl Iterator<Item = (&TaskId, &Task<Outline>)> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.tasks.range((from, Bound::Unbounded)).map(|(id, entry)| (id, &entry.task))
    }

    /// Draws a claimable task of a queue at random.
    pub fn draw(&mut self, queue: &QueueName, point: u64, keys: bool) -> Option<TaskId> {
        self.index.draw(queue, point, keys)
    }

    /// Ends the random order of a queue.
    pub fn end_shuffling(&mut self, queue: &QueueName) {
        self.index.end_shuffling(queue);
    }

    /// Sets how many tasks of each key of a queue may be held at once.
    pub fn limit_keys(&mut self, queue: &QueueName, limit: KeyConcurrency) {
        self.index.limit_keys(queue, limit);
    }

    /// Starts fair queueing for a queue; `served`: when tasks of some of its keys were granted.
    pub fn order_fairly(&mut self, queue: &QueueName, served: &BTreeMap<Option<NonZeroU64>, u64>) {
        self.index.order_fairly(queue, served);
    }

    /// Ends fair queueing of a queue, or of all of them.
    pub fn end_fair_queues(&mut self, queue: Option<&QueueName>) {
        self.index.end_fair_queues(queue);
    }

    /// Moves a task's key to the back as the task was granted, under fair queueing.
    pub fn serve(&mut self, id: &TaskId, at_ms: u64) -> Option<Served> {
        let Store { tasks, index, .. } = self;
        let spec = tasks.get(id)?.task.spec.as_ref()?;
        index.serve(&spec.queue, spec.key(), at_ms)
    }

    /// Undoes that for a grant that is taken back: another task may now be the first.
    pub fn take_back(&mut self, id: &TaskId, served: Served) {
        let Store { tasks, index, touched, .. } = self;
        if let Some(spec) = tasks.get(id).and_then(|entry| entry.task.spec.as_ref()) {
            index.take_back(&spec.queue, spec.key(), served);
            touched.insert(spec.queue.clone());
        }
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Root of the hash tree.
    pub fn root(&self) -> Root {
        self.tree.root()
    }

    /// The hash tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Tasks and digests of a bucket after an id, in order.
    pub fn bucket(&self, bucket: usize, after: Option<TaskId>) -> impl Iterator<Item = (TaskId, Digest)> + '_ {
        assert!(bucket < BUCKETS, "there is no such bucket");
        let is_wanted = move |id: &TaskId| after.is_none_or(|after| *id > after) && bucket_of(id) == bucket;
        let within = self.tree.ranges(bucket, after).flat_map(|range| {
            let tasks = self.tasks.range(range.clone()).map(|(id, entry)| (*id, entry.digest()));
            let tombstones = self.tombstones.range(range).map(|(id, _)| (*id, self.tombstone_digest(id)));
            let mut known: Vec<(TaskId, Digest)> = tasks.chain(tombstones).collect();
            known.sort_unstable_by_key(|(id, _)| *id);
            known
        });
        within.filter(move |(id, _)| is_wanted(id))
    }

    /// Number of the latest change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Tasks changed after change number `after`, oldest first; `None` if that is no longer remembered.
    pub fn recent_after(&self, after: u64) -> Option<impl Iterator<Item = TaskId> + '_> {
        assert!(self.recent.len() as u64 <= self.changes, "more changes are remembered than there were");
        let oldest = self.changes - self.recent.len() as u64;
        (after >= oldest).then(|| self.recent.iter().skip((after - oldest) as usize).copied())
    }

    /// Queues whose ready tasks changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<QueueName> {
        std::mem::take(&mut self.touched)
    }

    /// Whether changes of state are noted.
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Starts or stops noting changes of state.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
        self.moved = Vec::new();
    }

    /// Changes of state noted since the last call.
    pub fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    /// Tasks that newly blocked ones wait for, since the last call.
    pub fn take_blocked(&mut self) -> BTreeSet<TaskId> {
        std::mem::take(&mut self.blocked)
    }

    /// Checks that everything derived is as it would be from scratch. `expected` gives a task's class.
    pub fn check(&self, expected: impl Fn(&TaskId, &Task<Outline>) -> Class) -> Result<(), String> {
        let mut index = Index::default();
        index.limit_as(&self.index);
        for (id, entry) in self.tasks.iter() {
            entry.check(id)?;
            let class = expected(id, &entry.task);
            let due_meanwhile = matches!(entry.class(), Class::Delayed(_)) && class == Class::Ready;
            let not_due_any_more = matches!(class, Class::Delayed(_)) && entry.class() == Class::Ready;
            if entry.class() != class && !due_meanwhile && !not_due_any_more {
                return Err(format!("task {id}: it is indexed as {:?} and should be {class:?}", entry.class()));
            }
            index.change(*id, Indexed::of(id, &entry.task).as_ref().map(Indexed::place), None, Some(entry.class()));
            index.change_ended(*id, None, ended(id, &entry.task));
        }
        for id in self.tombstones.keys() {
            if self.tasks.contains_key(id) {
                return Err(format!("task {id}: it is known beside its tombstone"));
            }
        }
        let outboxes = self.tasks.iter().filter(|(_, entry)| entry.task.has_outbox()).map(|(id, _)| id);
        if !outboxes.eq(&self.outboxes) {
            return Err("tasks with children that are not enqueued are not those that are listed".into());
        }
        let brought = self.tasks.iter().flat_map(|(id, entry)| entry.task.brings().map(|child| (child, *id)));
        if brought.collect::<BTreeSet<_>>() != self.brought {
            return Err("children that are not enqueued are not those that are listed".into());
        }
        if let Some(id) = self.handed.keys().find(|id| !self.tombstones.contains_key(*id)) {
            return Err(format!("task {id}: it is said to be handed over, and is not buried"));
        }
        let body_bytes: usize = self.tasks.values().map(|entry| entry.body_bytes()).sum();
        if body_bytes != self.body_bytes {
            return Err(format!("{body_bytes} bytes of bodies are in memory, and {} are counted", self.body_bytes));
        }
        self.check_leavers()?;
        index.shuffle_as(&self.index);
        index.order_fairly_as(&self.index);
        if index != self.index {
            return Err("the index is not that of its tasks".into());
        }
        // Building whole trees is expensive; the groups take turns.
        let tasks = self.tasks.iter().map(|(id, entry)| (id, entry.digest()));
        let tombstones = self.tombstones.keys().map(|id| (id, self.tombstone_digest(id)));
        if !self.tree.is_of(tasks.chain(tombstones), self.changes as usize) {
            return Err("the tree is not that of its tasks".into());
        }
        Ok(())
    }
}
