//! Tombstones in a store, and what may stand beside one: a task's children must be enqueued before it is forgotten, so a completion with
//! an open outbox stays, and is kept among the tasks.

use super::{Class, Entry, Merged, Moved, Store};
use crate::task::{Completed, Digest, Facts, Task, Tombstone, buried};
use crdts::CvRDT;
use norn_wire::{State, TaskId, Token};
use std::ops::Bound;

impl Store {
    /// Whether the retention of a task is over.
    pub(super) fn is_buried(&self, id: &TaskId) -> bool {
        self.tombstones.contains_key(id) || self.task(id).is_some_and(|task| task.tombstone.is_some())
    }

    /// Merges facts that include a tombstone, or facts of a buried task.
    pub(super) fn bury(&mut self, id: TaskId, delta: Task) -> Merged {
        let before = self.digest(&id);
        let known = self.buried_task(&id);
        let of_task = || self.tasks.get(&id).map(|entry| (entry.task.facts.clone(), entry.task.tombstone.clone()));
        let (facts, tombstone) =
            known.map_or_else(|| of_task().unwrap_or_default(), |task| (task.facts, task.tombstone));
        let was_buried = tombstone.is_some();
        // All that remains of it is in memory.
        let mut facts = facts.and_then(|facts| facts.buried());
        facts.iter_mut().for_each(|facts| facts.leave_out_places());
        let mut task: Task = Task { spec: None, facts, tombstone };
        task.merge(delta);
        if let Some(rival) = self.rivals.get(&id) {
            task.merge(rival.clone());
        }
        let digest = task.digest(&id);
        if was_buried && digest == before {
            // What a tombstone says besides is for people, and not compared: the first one stays.
            return Merged::default();
        }
        let had_outbox = self.outboxes.contains(&id);
        if self.watched && !was_buried {
            self.note_burial(id, task.tombstone.as_ref().map(|tombstone| tombstone.state));
        }
        let had_ended = self.take_tombstone(&id) || self.remove(&id).1;
        assert!(!self.knows(&id), "a task is known beside its tombstone");
        let tombstone: Tombstone = *task.tombstone.clone().expect("merging does not take it away");
        let outbox = task.has_outbox();
        if outbox {
            let class = Class::Ended(tombstone.state);
            self.index.change(id, None, None, Some(class));
            let entry = Entry::new(task.outlined(), digest, class);
            self.body_bytes += entry.body_bytes();
            let brings = entry.task.brings().collect();
            assert!(self.tasks.insert(id, entry).is_none(), "a task is known twice");
            self.note_outbox(id, &[], brings);
        } else {
            let handed = task.facts.map(|facts| facts.handed).filter(|handed| !handed.is_empty());
            self.handed.extend(handed.map(|handed| (id, handed)));
            assert!(self.tombstones.insert(id, tombstone).is_none(), "a task is buried twice");
        }
        self.tree.change(&id, before, digest);
        self.remember(id);
        let freed = had_outbox && !outbox;
        Merged { changed: true, ended: !had_ended, arrived: false, body: None, outbox, freed, purged: false }
    }

    /// Notes a change of state for a tombstone, unless the task was already known to have ended in its queue.
    fn note_burial(&mut self, id: TaskId, state: Option<State>) {
        let known = self.task(&id).filter(|task| task.spec.is_some());
        if known.is_some_and(|task| task.ended().is_some()) {
            return;
        }
        let queue = known.and_then(|task| task.spec.as_ref()).map(|spec| spec.queue.clone());
        let group = known.and_then(Task::member_of).map(|member| member.group);
        self.moved.extend(state.map(|state| Moved { id, state, queue, group }));
    }

    /// Removes a tombstone from everything but the tree. Returns whether there was one.
    fn take_tombstone(&mut self, id: &TaskId) -> bool {
        self.handed.remove(id);
        self.tombstones.remove(id).is_some()
    }

    /// Forgets a task entirely. Returns whether anything was known of it.
    pub fn forget(&mut self, id: &TaskId) -> bool {
        let before = self.digest(id);
        if !self.take_tombstone(id) {
            self.remove(id);
        }
        self.tree.change(id, before, 0);
        assert!(!self.knows(id), "a task is known after it was forgotten");
        before != 0
    }

    /// Buried tasks after an id, in order: tombstones, and those kept among the tasks for their open outboxes. An id may go from the ones
    /// to the others at any time.
    pub fn buried_after(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut tombstones = self.tombstones.range(range).map(|(id, _)| *id).peekable();
        let kept = self.outboxes.range(range).copied();
        let mut kept = kept.filter(|id| self.task(id).is_some_and(|task| task.tombstone.is_some())).peekable();
        std::iter::from_fn(move || match (tombstones.peek(), kept.peek()) {
            (Some(tombstone), Some(other)) if other < tombstone => kept.next(),
            (Some(_), _) => tombstones.next(),
            (None, _) => kept.next(),
        })
    }

    /// A tombstone with what stands beside it.
    pub fn buried_task(&self, id: &TaskId) -> Option<Task> {
        let tombstone = Task::from_tombstone(*self.tombstones.get(id)?);
        let facts = self.handed.get(id).map(|handed| Facts { handed: handed.clone(), ..Facts::default() });
        Some(Task { facts: facts.map(Box::new), ..tombstone })
    }

    /// The digest of a tombstone; 0 if there is none.
    pub(super) fn tombstone_digest(&self, id: &TaskId) -> Digest {
        if !self.tombstones.contains_key(id) {
            return 0;
        }
        match self.handed.contains_key(id) {
            true => self.buried_task(id).map_or(0, |task| task.digest(id)),
            false => buried(id),
        }
    }

    /// Whether a completion with children may be accepted from a client, its age apart. It may not if the task is buried and this
    /// completion was not known before: a member that has already acknowledged the tombstone would be relied on, and the task be
    /// forgotten with its children. The children's ids are not kept beside a tombstone, but the time of the winning completion is:
    /// another completion under its token was made at another time ([`Completed::is`]).
    pub fn takes_outbox(&self, id: &TaskId, delta: &Task) -> bool {
        let task = self.task(id);
        let Some(tombstone) = self.tombstones.get(id).or_else(|| task?.tombstone.as_deref()) else { return true };
        let facts = task.and_then(|task| task.facts.as_deref());
        let handed = self.handed.get(id).into_iter().chain(facts.map(|facts| &facts.handed));
        let handed: Vec<Token> = handed.flatten().copied().collect();
        // The token of a copy belongs to one task.
        let repeats = |token: Token, done: &Completed| token.is_of_copy() || done.at_ms == tombstone.at_ms;
        let open = || facts.into_iter().flat_map(|facts| &facts.completions);
        delta.outbox().all(|(token, done)| {
            handed.contains(&token) && repeats(token, done)
                || open().any(|(known, value)| *known == token && value.is(done))
        })
    }

    /// Updates the lists of open children of a task. Returns whether it had any, and whether it has.
    pub(super) fn note_outbox(&mut self, id: TaskId, before: &[TaskId], after: Vec<TaskId>) -> (bool, bool) {
        for child in before {
            self.brought.remove(&(*child, id));
        }
        let (had_outbox, has_outbox) = (!before.is_empty(), !after.is_empty());
        if has_outbox {
            self.outboxes.insert(id);
        } else if had_outbox {
            self.outboxes.remove(&id);
        }
        self.brought.extend(after.into_iter().map(|child| (child, id)));
        (had_outbox, has_outbox)
    }

    /// Whether this task is a child that may not be enqueued yet.
    pub fn is_brought(&self, child: &TaskId) -> bool {
        self.brought.range((*child, TaskId::MIN)..=(*child, TaskId::MAX)).next().is_some()
    }

    /// Children above one id and up to another that may not be enqueued yet, in order.
    pub fn brought(&self, above: Option<TaskId>, up_to: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        let within = above
            .filter(|above| *above < up_to)
            .map_or(Bound::Unbounded, |above| Bound::Excluded((above, TaskId::MAX)));
        let children = self.brought.range((within, Bound::Included((up_to, TaskId::MAX)))).map(|(child, _)| *child);
        children.filter(move |child| above.is_none_or(|above| *child > above))
    }

    /// Tasks after an id whose completions brought children that may not be enqueued yet, in order.
    pub fn outboxes_after(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        self.outboxes.range((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)).copied()
    }
}
