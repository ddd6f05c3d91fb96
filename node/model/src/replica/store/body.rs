//! Bodies in a store: which are in memory, where the others are in the log, and which are lost.

use super::{Entry, Store, class_of};
use crate::consensus::Hold;
use crate::task::{Changing, Outline, Place, Slot, Task, Wanted, buried, spec_digest};
use norn_wire::TaskId;

impl Entry {
    /// Bytes of its body, results and log entries in memory.
    pub(super) fn body_bytes(&self) -> usize {
        self.task.spec.as_ref().map_or(0, |spec| spec.body.memory_bytes()) + self.blob_bytes()
    }

    /// Takes the body out of a delta if it is the one that was lost here. Returns whether it was.
    pub(super) fn restore_body(&mut self, delta: &mut Task<Outline>) -> bool {
        let Some(known) = self.task.spec.as_mut().filter(|spec| spec.body.is_lost()) else { return false };
        let Some(spec) = delta.spec.take_if(|spec| spec.hash == known.hash) else { return false };
        known.restore(spec.body);
        true
    }

    /// Checks that what is derived is as it would be from scratch, as far as the body is in memory.
    pub(super) fn check(&self, id: &TaskId) -> Result<(), String> {
        let spec_part = self.digest().wrapping_sub(self.task.facts_digest(id, Changing::All));
        let right = match &self.task.spec {
            None => spec_part == self.task.tombstone.as_ref().map_or(0, |_| buried(id)),
            Some(spec) => spec.body.here().is_none_or(|spec| spec_digest(id, spec) == spec_part),
        };
        if !right {
            return Err(format!("task {id}: its digest is not that of its facts"));
        }
        let nowhere = |spec: &Outline| spec.body.here().is_none() && spec.wanted(*id).is_none();
        if self.task.spec.as_ref().is_some_and(nowhere) {
            return Err(format!("task {id}: its body is neither in memory nor in the log"));
        }
        Ok(())
    }
}

impl Store {
    /// Bytes of bodies, results and log entries in memory.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    fn change(&mut self, id: &TaskId, hash: u64, change: impl FnOnce(&mut Outline)) {
        let Some(entry) = self.tasks.get_mut(id) else { return };
        let Some(spec) = entry.task.spec.as_mut().filter(|spec| spec.hash == hash) else { return };
        assert!(self.body_bytes >= spec.body.memory_bytes(), "the body of a task was not counted");
        self.body_bytes -= spec.body.memory_bytes();
        change(spec);
        self.body_bytes += spec.body.memory_bytes();
    }

    /// Notes the log's place for the part with this hash. Without room a spec is evicted, as that of an ended task is.
    pub fn place(&mut self, id: &TaskId, (slot, hash): (Slot, u64), place: Place, room: bool) {
        if slot == Slot::Spec {
            let room = room && !self.ended(id);
            self.change(id, hash, |spec| spec.place(place, room));
        } else {
            self.change_blob(id, slot, |blob| blob.place(place, hash));
            self.note_leaver(id);
            self.note_written(id);
        }
    }

    /// Notes that all bodies of the tasks from `first` to `last` that were in older files are at this place, too.
    pub fn move_to(&mut self, first: TaskId, last: TaskId, place: Place) {
        if first > last {
            return;
        }
        for (_, entry) in self.tasks.range_mut(first..=last) {
            if let Some(spec) = &mut entry.task.spec {
                spec.move_to(place);
            }
            if let Some(facts) = &mut entry.task.facts {
                facts.move_to(place);
            }
        }
    }

    /// Notes that the log could not load this part, or could after all; `hold` and `wall_ms` as in [`class_of`]. Returns whether anything
    /// of the task is lost now.
    pub fn set_lost(&mut self, wanted: &Wanted, lost: bool, hold: Hold<'_>, wall_ms: u64) -> bool {
        let (id, hash) = (&wanted.id, wanted.hash);
        if wanted.slot == Slot::Spec {
            self.change(id, hash, |spec| if lost { spec.lose() } else { spec.find() });
        } else {
            self.change_blob(id, wanted.slot, |blob| {
                if blob.hash() == hash {
                    blob.set_lost(lost);
                }
            });
        }
        let Some(entry) = self.tasks.get(id) else { return false };
        let lost = entry.task.is_lost();
        let class = class_of(&entry.task, hold, wall_ms);
        self.set_class(id, class);
        lost
    }
}
