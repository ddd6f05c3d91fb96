//! Tasks of one partition with everything that is derived from them: digests, tree, index, recent changes.

use super::index::{Class, Ended, Index};
use super::places::bucket_of;
use super::tree::{Root, Tree};
use crate::limits::RECENT_CHANGES_MAX;
use crate::protocol::consistent::table::{Cell, CellState};
use crate::protocol::task::{Digest, Task, Tomb, buried};
use crdts::CvRDT;
use norn_client::wire::{QueueName, Spec, State, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A task and what is derived from it.
#[derive(Debug, Clone)]
struct Entry {
    task: Task,
    digest: Digest,
    class: Class,
}

/// What merging taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Learned {
    /// Anything at all.
    pub changed: bool,
    /// The task has ended, and had not before.
    pub ended: bool,
}

/// The tasks of one partition.
#[derive(Debug, Default)]
pub struct Store {
    tasks: BTreeMap<TaskId, Entry>,
    /// Tasks whose retention is over; disjoint from `tasks`.
    tombs: BTreeMap<TaskId, Tomb>,
    tree: Tree,
    index: Index,
    /// Changes numbered from 1 in each boot; the newest `RECENT_CHANGES_MAX` are kept.
    recent: VecDeque<TaskId>,
    changes: u64,
    /// Queues whose ready tasks changed since last asked.
    touched: BTreeSet<QueueName>,
}

/// In which queue a task has ended, and when: not before it was enqueued, whatever a client says.
fn ended<'a>(id: &TaskId, task: &'a Task) -> Option<Ended<'a>> {
    task.tomb().map(|tomb| (task.spec.as_ref().map(|spec| &spec.queue), tomb.at_ms.max(id.time_ms())))
}

/// Where a task stands, from its facts and its claim. `lapsed` says that the leader saw the claim run out.
pub fn classify(task: &Task, cell: Option<&Cell>, lapsed: bool, wall_ms: u64) -> Class {
    if let Some(state) = task.ended() {
        return Class::Ended(state);
    }
    let Some(spec) = &task.spec else { return Class::Orphan };
    let not_before_ms = match cell.map(|cell| &cell.state) {
        Some(CellState::Dead { .. }) => return Class::Ended(State::Dead),
        Some(CellState::Held) if lapsed => 0,
        Some(CellState::Held) => return Class::Held,
        Some(CellState::Released { not_before_ms }) => *not_before_ms,
        Some(CellState::Void) | None => spec.not_before_ms,
    };
    if not_before_ms > wall_ms { Class::Delayed(not_before_ms) } else { Class::Ready }
}

impl Store {
    /// Merges facts about a task; `cell`, `lapsed` and `wall_ms` as in [`classify`].
    pub fn merge(&mut self, id: TaskId, delta: Task, cell: Option<&Cell>, lapsed: bool, wall_ms: u64) -> Learned {
        if delta.is_bottom() {
            return Learned::default();
        }
        if let Some(tomb) = &delta.tomb {
            return self.bury(id, **tomb);
        }
        if self.tombs.contains_key(&id) {
            return Learned::default();
        }
        let Store { tasks, index, tree, touched, .. } = self;
        let mut before_class = None;
        let entry = tasks.entry(id).and_modify(|entry| before_class = Some(entry.class)).or_insert_with(|| Entry {
            task: Task::default(),
            digest: 0,
            class: Class::Orphan,
        });
        let (before_digest, had_ended) = (entry.digest, entry.task.ended().is_some());
        let spec_before = entry.task.spec.clone();
        let before_ms = ended(&id, &entry.task).map(|(_, at_ms)| at_ms);
        let facts_before = entry.task.facts_digest(&id);
        let spec_changes = delta.spec.is_some() && delta.spec != spec_before;
        entry.task.merge(delta);
        entry.digest = if spec_changes {
            entry.task.digest(&id)
        } else {
            before_digest.wrapping_sub(facts_before).wrapping_add(entry.task.facts_digest(&id))
        };
        if before_class.is_some() && entry.digest == before_digest {
            // Nothing was learned. A class that changed with the clock alone would go unnoticed by whoever sets timers.
            return Learned::default();
        }
        let class = classify(&entry.task, cell, lapsed, wall_ms);
        entry.class = class;
        if spec_changes || before_class != Some(class) {
            let place = |spec: &Option<Arc<Spec>>| spec.as_ref().map(|spec| (spec.queue.clone(), spec.priority));
            let (from, to) = (place(&spec_before), place(&entry.task.spec));
            index.change(id, from.as_ref().map(|(queue, priority)| (queue, *priority)), before_class, None);
            index.change(id, to.as_ref().map(|(queue, priority)| (queue, *priority)), None, Some(class));
            touched.extend(from.into_iter().chain(to).map(|(queue, _)| queue));
        }
        let before = before_ms.map(|at_ms| (spec_before.as_ref().map(|spec| &spec.queue), at_ms));
        index.change_ended(id, before, ended(&id, &entry.task));
        let (ended, digest) = (entry.task.ended().is_some() && !had_ended, entry.digest);
        tree.change(&id, before_digest, digest);
        self.remember(id);
        Learned { changed: true, ended }
    }

    /// Puts a tombstone in the place of a task, known or not.
    fn bury(&mut self, id: TaskId, tomb: Tomb) -> Learned {
        if self.tombs.contains_key(&id) {
            // What it says besides is for people, and not compared: the first one stays.
            return Learned::default();
        }
        let (before, had_ended) = self.remove(&id);
        self.tree.change(&id, before, buried(&id));
        self.tombs.insert(id, tomb);
        self.remember(id);
        Learned { changed: true, ended: !had_ended }
    }

    /// Takes a task out of everything but the tree. Its digest, and whether it had ended.
    fn remove(&mut self, id: &TaskId) -> (Digest, bool) {
        let Some(entry) = self.tasks.remove(id) else { return (0, false) };
        let place = entry.task.spec.as_ref().map(|spec| (&spec.queue, spec.priority));
        self.index.change(*id, place, Some(entry.class), None);
        let had_ended = ended(id, &entry.task);
        self.index.change_ended(*id, had_ended, None);
        self.touched.extend(place.map(|(queue, _)| queue.clone()));
        (entry.digest, had_ended.is_some())
    }

    /// A task is no more: nothing is known of it any longer. Whether anything was.
    pub fn forget(&mut self, id: &TaskId) -> bool {
        let before = if self.tombs.remove(id).is_some() { buried(id) } else { self.remove(id).0 };
        self.tree.change(id, before, 0);
        before != 0
    }

    fn remember(&mut self, id: TaskId) {
        self.changes += 1;
        self.recent.push_back(id);
        if self.recent.len() > RECENT_CHANGES_MAX {
            self.recent.pop_front();
        }
    }

    /// The claim of a task, or the time, changed: finds its class anew.
    pub fn reclassify(&mut self, id: &TaskId, cell: Option<&Cell>, lapsed: bool, wall_ms: u64) {
        let Some(entry) = self.tasks.get(id) else { return };
        let class = classify(&entry.task, cell, lapsed, wall_ms);
        self.set_class(id, class);
    }

    /// Sets the class of a task for a while: a task that is about to be granted is `Held`.
    pub fn set_class(&mut self, id: &TaskId, class: Class) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        let before = std::mem::replace(&mut entry.class, class);
        if before == class {
            return;
        }
        let place = entry.task.spec.as_ref().map(|spec| (&spec.queue, spec.priority));
        self.index.change(*id, place, Some(before), Some(class));
        if (before == Class::Ready || class == Class::Ready)
            && let Some(spec) = &entry.task.spec
        {
            self.touched.insert(spec.queue.clone());
        }
    }

    /// A task's facts.
    pub fn task(&self, id: &TaskId) -> Option<&Task> {
        self.tasks.get(id).map(|entry| &entry.task)
    }

    /// A task's class.
    pub fn class(&self, id: &TaskId) -> Option<Class> {
        self.tasks.get(id).map(|entry| entry.class)
    }

    /// A task's tombstone.
    pub fn tomb(&self, id: &TaskId) -> Option<&Tomb> {
        self.tombs.get(id)
    }

    /// All that is known of a task, to be sent: its facts, or its tombstone.
    pub fn content(&self, id: &TaskId) -> Option<Task> {
        self.task(id).cloned().or_else(|| self.tomb(id).map(|tomb| Task::from_tomb(*tomb)))
    }

    /// How a task ended: what another replica needs to judge alike.
    pub fn ending(&self, id: &TaskId) -> Option<Task> {
        let ended = self.task(id).filter(|task| task.ended().is_some()).map(Task::ending);
        ended.or_else(|| self.tomb(id).map(|tomb| Task::from_tomb(*tomb)))
    }

    /// A task's digest; 0 if it is unknown.
    pub fn digest(&self, id: &TaskId) -> Digest {
        let tomb = || if self.tombs.contains_key(id) { buried(id) } else { 0 };
        self.tasks.get(id).map_or_else(tomb, |entry| entry.digest)
    }

    /// Whether anything is known of a task.
    pub fn knows(&self, id: &TaskId) -> bool {
        self.tasks.contains_key(id) || self.tombs.contains_key(id)
    }

    /// Whether a task's spec is not known, and could be.
    pub fn lacks_spec(&self, id: &TaskId) -> bool {
        !self.tombs.contains_key(id) && self.task(id).is_none_or(|task| task.spec.is_none())
    }

    /// Whether a task is known to have ended.
    pub fn ended(&self, id: &TaskId) -> bool {
        self.tombs.contains_key(id) || self.task(id).is_some_and(|task| task.ended().is_some())
    }

    /// Number of tasks, without those whose retention is over.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Tombstones after an id, in order.
    pub fn tombs_after(&self, after: Option<TaskId>) -> impl Iterator<Item = (&TaskId, &Tomb)> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.tombs.range((from, Bound::Unbounded))
    }

    /// Number of tombstones.
    pub fn tombs_count(&self) -> usize {
        self.tombs.len()
    }

    /// Tasks after an id, in order.
    pub fn after(&self, after: Option<TaskId>) -> impl Iterator<Item = (&TaskId, &Task)> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.tasks.range((from, Bound::Unbounded)).map(|(id, entry)| (id, &entry.task))
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
        let is_wanted = move |id: &TaskId| after.is_none_or(|after| *id > after) && bucket_of(id) == bucket;
        let within = self.tree.ranges(bucket, after).flat_map(|range| {
            let tasks = self.tasks.range(range.clone()).map(|(id, entry)| (*id, entry.digest));
            let tombs = self.tombs.range(range).map(|(id, _)| (*id, buried(id)));
            let mut known: Vec<(TaskId, Digest)> = tasks.chain(tombs).collect();
            known.sort_unstable_by_key(|(id, _)| *id);
            known
        });
        within.filter(move |(id, _)| is_wanted(id))
    }

    /// Number of the latest change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Tasks changed after change number `after`, oldest first; `None` if that is longer ago than is remembered.
    pub fn recent_after(&self, after: u64) -> Option<impl Iterator<Item = TaskId> + '_> {
        let oldest = self.changes - self.recent.len() as u64;
        (after >= oldest).then(|| self.recent.iter().skip((after - oldest) as usize).copied())
    }

    /// Queues whose ready tasks changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<QueueName> {
        std::mem::take(&mut self.touched)
    }

    /// Everything derived is as it would be from scratch. `expected` gives a task's class.
    pub fn check(&self, expected: impl Fn(&TaskId, &Task) -> Class) -> Result<(), String> {
        let mut index = Index::default();
        let mut tree = Tree::default();
        for (id, entry) in &self.tasks {
            if entry.digest != entry.task.digest(id) {
                return Err(format!("task {id}: its digest is not that of its facts"));
            }
            let class = expected(id, &entry.task);
            let due_meanwhile = matches!(entry.class, Class::Delayed(_)) && class == Class::Ready;
            let not_due_any_more = matches!(class, Class::Delayed(_)) && entry.class == Class::Ready;
            if entry.class != class && !due_meanwhile && !not_due_any_more {
                return Err(format!("task {id}: it is indexed as {:?} and should be {class:?}", entry.class));
            }
            let place = entry.task.spec.as_ref().map(|spec| (&spec.queue, spec.priority));
            index.change(*id, place, None, Some(entry.class));
            index.change_ended(*id, None, ended(id, &entry.task));
            tree.change(id, 0, entry.digest);
        }
        for id in self.tombs.keys() {
            if self.tasks.contains_key(id) {
                return Err(format!("task {id}: it is known beside its tombstone"));
            }
            tree.change(id, 0, buried(id));
        }
        if index != self.index {
            return Err("the index is not that of its tasks".into());
        }
        // Building whole trees is dear; the groups take turns.
        if !self.tree.equals(&tree, self.changes as usize) {
            return Err("the tree is not that of its tasks".into());
        }
        Ok(())
    }
}
