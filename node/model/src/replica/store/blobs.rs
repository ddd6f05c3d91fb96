//! Results and log entries in a store: they are evicted from memory like bodies, and loaded where they are needed.

use super::{Entry, Merged, Store};
use crate::consensus::Hold;
use crate::task::{Blob, Filling, Outline, Slot, Task, Wanted};
use crdts::CvRDT;
use norn_wire::TaskId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Tasks of which something could be evicted.
#[derive(Debug, Default)]
pub(super) struct Leavers {
    ended: BTreeSet<TaskId>,
    open: BTreeSet<TaskId>,
}

/// The tasks whose results and log entries are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Tasks that have ended, which are only read.
    Ended,
    /// All other tasks, whose results and log entries workers are sent.
    Open,
}

impl Leavers {
    fn of(&self, whose: Whose) -> &BTreeSet<TaskId> {
        match whose {
            Whose::Ended => &self.ended,
            Whose::Open => &self.open,
        }
    }

    pub(super) fn remove(&mut self, id: &TaskId) {
        self.ended.remove(id);
        self.open.remove(id);
    }
}

impl Entry {
    /// Bytes of results and log entries in memory.
    pub(super) fn blob_bytes(&self) -> usize {
        self.task.blobs().map(|(_, blob)| blob.memory_bytes()).sum()
    }

    /// The kind of task it is, if something of it may be evicted.
    pub(super) fn may_leave(&self) -> Option<Whose> {
        let whose = if self.task.ended().is_some() { Whose::Ended } else { Whose::Open };
        self.task.facts.as_ref().is_some_and(|facts| facts.may_leave()).then_some(whose)
    }

    /// Restores from a delta what is lost here. Returns whether there was any of it.
    pub(super) fn restore_blobs(&mut self, delta: &Task<Outline>) -> bool {
        match (&mut self.task.facts, &delta.facts) {
            (Some(known), Some(facts)) => known.restore(facts),
            _ => false,
        }
    }
}

impl Store {
    pub(super) fn change_blob(&mut self, id: &TaskId, slot: Slot, change: impl FnOnce(&mut Blob)) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        // Only this blob changes: to recount all others each time would take quadratic time.
        let Some(blob) = entry.task.facts.as_mut().and_then(|facts| facts.blob_mut(slot)) else { return };
        let before = blob.memory_bytes();
        assert!(self.body_bytes >= before, "a result or log entry was not counted");
        change(blob);
        self.body_bytes = self.body_bytes + blob.memory_bytes() - before;
    }

    /// Updates the lists of evictable tasks after a change of one.
    pub(super) fn note_leaver(&mut self, id: &TaskId) {
        let whose = self.tasks.get(id).and_then(|entry| entry.may_leave());
        self.list_leaver(id, whose);
    }

    /// Lists a task among those of which something can be evicted, or takes it off the lists.
    pub(super) fn list_leaver(&mut self, id: &TaskId, whose: Option<Whose>) {
        for (list, is_there) in [
            (&mut self.leavers.ended, whose == Some(Whose::Ended)),
            (&mut self.leavers.open, whose == Some(Whose::Open)),
        ] {
            if is_there {
                list.insert(*id);
            } else {
                list.remove(id);
            }
        }
    }

    /// The next task of that kind, behind `after`, of which something could be evicted.
    pub fn leaver_after(&self, whose: Whose, after: Option<TaskId>) -> Option<TaskId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.leavers.of(whose).range((from, Bound::Unbounded)).next().copied()
    }

    /// Evicts what it can of a task, results only if `results` is set. Returns whether anything was.
    pub fn leave(&mut self, id: &TaskId, results: bool) -> bool {
        let Some(entry) = self.tasks.get_mut(id) else { return false };
        let before = entry.body_bytes();
        if let Some(facts) = &mut entry.task.facts {
            facts.leave_memory(id, results);
        }
        let after = entry.body_bytes();
        assert!(after <= before, "a task takes more memory after something has left it");
        assert!(self.body_bytes >= before, "a result or log entry was not counted");
        self.body_bytes = self.body_bytes + after - before;
        self.note_leaver(id);
        after < before
    }

    /// Whether the place in the log is unknown for a result or log entry of a task.
    fn is_unplaced(&self, id: &TaskId) -> bool {
        self.task(id).is_some_and(|task| task.blobs().any(|(_, blob)| blob.is_unplaced()))
    }

    /// Notes that facts of a task came that are in no record of facts.
    pub fn note_unwritten(&mut self, id: &TaskId) {
        if self.is_unplaced(id) {
            self.unwritten.insert(*id);
        }
    }

    /// Notes that the log has reported a place for a part of a task.
    pub(super) fn note_written(&mut self, id: &TaskId) {
        if self.unwritten.contains(id) && !self.is_unplaced(id) {
            self.unwritten.remove(id);
        }
    }

    /// Whether facts of any task may be in no record of facts.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Takes out one such task with the facts to be logged.
    pub fn take_unwritten(&mut self) -> Option<(TaskId, Task)> {
        let id = self.unwritten.pop_first()?;
        let facts = self.task(&id).and_then(|task| task.facts.as_ref()).map(|facts| facts.unplaced());
        Some((id, Task::from_facts(facts.unwrap_or_default())))
    }

    /// Puts back into memory what the log has loaded.
    pub fn bring_back(&mut self, wanted: &Wanted, filling: Filling) {
        let Filling::Bytes(bytes) = filling else { return };
        self.change_blob(&wanted.id, wanted.slot, |blob| blob.bring_back(bytes, wanted.hash));
        self.note_leaver(&wanted.id);
    }

    /// Sets the facts of a delta aside that cannot be compared with what is not in memory. Returns whether any of them is new.
    pub(super) fn keep_rival(&mut self, id: TaskId, delta: &mut Task<Outline>) -> bool {
        let Some(undecided) = self.task(&id).and_then(|task| task.take_undecided(delta)) else { return false };
        let known = self.rivals.entry(id).or_default();
        let is_new = !known.knows(&undecided);
        known.merge(undecided);
        is_new
    }

    /// Facts of a task that wait for what is not in memory, to be logged with it.
    pub fn rival_of(&self, id: &TaskId) -> Option<&Task> {
        self.rivals.get(id)
    }

    /// Tasks with waiting facts, beginning behind `after`, in turn.
    pub fn rivals(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.rivals.range((from, Bound::Unbounded));
        first.chain(&self.rivals).take(self.rivals.len()).map(|(id, _)| *id)
    }

    /// Merges waiting facts of a task, as far as the bytes that they need are there; `hold` and `wall_ms` as in [`super::class_of`].
    pub fn settle_rival(&mut self, id: &TaskId, hold: Hold<'_>, wall_ms: u64) -> Merged {
        let Some(rival) = self.rivals.remove(id) else { return Merged::default() };
        // What is still undecided waits again.
        self.merge(*id, rival, hold, wall_ms)
    }

    /// Checks that the lists match the tasks.
    pub(super) fn check_leavers(&self) -> Result<(), String> {
        for whose in [Whose::Ended, Whose::Open] {
            let leavers = self.tasks.iter().filter(|(_, entry)| entry.may_leave() == Some(whose)).map(|(id, _)| id);
            if !leavers.eq(self.leavers.of(whose)) {
                return Err("tasks with results or log entries that could leave are not those that are listed".into());
            }
        }
        match self.rivals.keys().find(|id| !self.tasks.contains_key(*id)) {
            Some(id) => Err(format!("task {id}: facts wait for it, and it is not known")),
            None => Ok(()),
        }
    }
}
