//! Results and log entries in a store: those of ended tasks leave memory as bodies do, and come back where they are needed.

use super::{Entry, Learned, Store};
use crate::protocol::consistent::register::Hold;
use crate::protocol::task::{Blob, Filling, Outline, Slot, Task, Wanted};
use crdts::CvRDT;
use norn_client::wire::TaskId;
use std::ops::Bound;

impl Entry {
    /// Bytes of results and log entries that count: those of a task that is open cannot leave, and are bounded by its limits.
    pub(super) fn blob_bytes(&self) -> usize {
        if self.task.facts.is_none() || self.task.ended().is_none() {
            return 0;
        }
        self.task.blobs().map(|(_, blob)| blob.memory_bytes()).sum()
    }

    /// Takes from a delta what is lost here; whether there is any of it.
    pub(super) fn restore_blobs(&mut self, delta: &Task<Outline>) -> bool {
        match (&mut self.task.facts, &delta.facts) {
            (Some(known), Some(facts)) => known.restore(facts),
            _ => false,
        }
    }

    /// Whether something of it may leave. As long as children may not be enqueued yet their completion changes, and needs its result.
    fn may_leave(&self) -> bool {
        self.task.ended().is_some() && self.task.blobs().any(|(_, blob)| blob.can_leave()) && !self.task.has_outbox()
    }
}

impl Store {
    pub(super) fn change_blob(&mut self, id: &TaskId, slot: Slot, change: impl FnOnce(&mut Blob)) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        // Only this one changes: to count all others each time would take as long as there are, squared.
        let counts = entry.task.ended().is_some();
        let Some(blob) = entry.task.facts.as_mut().and_then(|facts| facts.blob_mut(slot)) else { return };
        let before = blob.memory_bytes();
        change(blob);
        if counts {
            self.body_bytes = self.body_bytes + blob.memory_bytes() - before;
        }
    }

    /// Something of a task has changed: whether anything of it could leave.
    pub(super) fn note_leaver(&mut self, id: &TaskId) {
        if self.tasks.get(id).is_some_and(|entry| entry.may_leave()) {
            self.leavers.insert(*id);
        } else {
            self.leavers.remove(id);
        }
    }

    /// The first task behind this one of which something could leave.
    pub fn leaver_after(&self, after: Option<TaskId>) -> Option<TaskId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.leavers.range((from, Bound::Unbounded)).next().copied()
    }

    /// What of an ended task can leave memory leaves it.
    pub fn leave(&mut self, id: &TaskId) {
        let Some(entry) = self.tasks.get_mut(id).filter(|entry| entry.may_leave()) else { return };
        self.body_bytes -= entry.body_bytes();
        if let Some(facts) = &mut entry.task.facts {
            facts.leave_memory(id);
        }
        self.body_bytes += entry.body_bytes();
        self.leavers.remove(id);
    }

    /// Whether the log has not told a place for all results and log entries of an ended task.
    fn is_unplaced(&self, id: &TaskId) -> bool {
        let ended = self.task(id).filter(|task| task.ended().is_some());
        ended.is_some_and(|task| task.blobs().any(|(_, blob)| blob.is_unplaced()))
    }

    /// Something was learned of a task that is in no record of facts.
    pub fn note_unwritten(&mut self, id: &TaskId) {
        if self.is_unplaced(id) {
            self.unwritten.insert(*id);
        }
    }

    /// The log has told a place for something of a task.
    pub(super) fn note_written(&mut self, id: &TaskId) {
        if self.unwritten.contains(id) && !self.is_unplaced(id) {
            self.unwritten.remove(id);
        }
    }

    /// Whether any may be in no record of facts.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Takes out one of them with what is to be written of it.
    pub fn take_unwritten(&mut self) -> Option<(TaskId, Task)> {
        let id = self.unwritten.pop_first()?;
        let facts = self.task(&id).and_then(|task| task.facts.as_ref()).map(|facts| facts.unplaced());
        Some((id, Task::from_facts(facts.unwrap_or_default())))
    }

    /// The log has given something back that is needed here.
    pub fn bring_back(&mut self, wanted: &Wanted, filling: Filling) {
        let Filling::Bytes(bytes) = filling else { return };
        self.change_blob(&wanted.id, wanted.slot, |blob| blob.bring_back(bytes, wanted.hash));
        self.note_leaver(&wanted.id);
    }

    /// Keeps what of a delta cannot be merged with what is in memory of a task until it can. Whether there is any that is new.
    pub(super) fn keep_rival(&mut self, id: TaskId, delta: &mut Task<Outline>) -> bool {
        let Some(undecided) = self.task(&id).and_then(|task| task.take_undecided(delta)) else { return false };
        let known = self.rivals.entry(id).or_default();
        let is_new = !known.knows(&undecided);
        known.merge(undecided);
        is_new
    }

    /// Facts of a task that wait for what is not in memory, to be written with it.
    pub fn rival_of(&self, id: &TaskId) -> Option<&Task> {
        self.rivals.get(id)
    }

    /// Tasks of which facts wait, from those behind this one on, in turn.
    pub fn rivals(&self, after: Option<TaskId>) -> impl Iterator<Item = TaskId> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let first = self.rivals.range((from, Bound::Unbounded));
        first.chain(&self.rivals).take(self.rivals.len()).map(|(id, _)| *id)
    }

    /// Merges facts that waited, as far as what they needed is there; `hold` and `wall_ms` as in [`super::classify`].
    pub fn settle_rival(&mut self, id: &TaskId, hold: Hold<'_>, wall_ms: u64) -> Learned {
        let Some(rival) = self.rivals.remove(id) else { return Learned::default() };
        // What is still undecided waits again.
        self.merge(*id, rival, hold, wall_ms)
    }

    /// What is listed is what is there.
    pub(super) fn check_leavers(&self) -> Result<(), String> {
        let leavers = self.tasks.iter().filter(|(_, entry)| entry.may_leave()).map(|(id, _)| id);
        if !leavers.eq(&self.leavers) {
            return Err("tasks with results or log entries that could leave are not those that are listed".into());
        }
        match self.rivals.keys().find(|id| !self.tasks.contains_key(*id)) {
            Some(id) => Err(format!("task {id}: facts wait for it, and it is not known")),
            None => Ok(()),
        }
    }
}
