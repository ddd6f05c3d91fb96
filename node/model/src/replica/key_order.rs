//! Per-key order: the tasks of one queue and key that have not ended. A limited number runs at a time, the oldest first. A task that
//! failed and waits for its retry keeps its turn.
//!
//! Each change moves at most one task across the line between those whose turn it is and those behind them, whatever the limit.

use super::index::{Class, Place, Rank};
use norn_wire::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that became claimable (`true`), or ceased to be.
pub(super) type Moved = Vec<(Rank, bool)>;

/// Open tasks of one key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct KeyOrder {
    /// All of them.
    pub all: BTreeSet<TaskId>,
    /// Claimed tasks.
    pub held: BTreeSet<TaskId>,
    /// Tasks whose turn it is: the oldest, as many as may be held beside the claimed ones. Tasks that were never claimable yet are
    /// excluded: a task that waits for tasks behind it, or for tomorrow, would hold up all.
    front: BTreeSet<TaskId>,
    /// The other tasks that were claimable once, all of them younger.
    back: BTreeSet<TaskId>,
    /// Of both, tasks that wait for nothing but their turn, with their priorities.
    ready: BTreeMap<TaskId, i32>,
}

impl KeyOrder {
    /// Adds a task, where `limit` tasks may be held at once.
    pub fn enter(&mut self, id: TaskId, place: Place<'_>, class: Class, limit: usize) -> Moved {
        let mut moved = Moved::new();
        if !matches!(class, Class::Orphan | Class::Ended(_)) {
            assert!(self.all.insert(id), "a task of a key is entered twice");
        }
        match class {
            Class::Orphan | Class::Ended(_) | Class::Blocked => return moved,
            Class::Delayed(until_ms) if until_ms == place.not_before_ms => return moved,
            Class::Held => {
                assert!(self.held.insert(id), "a task of a key is held twice");
                self.settle(limit, &mut moved);
                return moved;
            }
            Class::Ready => drop(self.ready.insert(id, place.priority)),
            Class::Delayed(_) => {}
        }
        let has_room = self.front.len() < limit.saturating_sub(self.held.len());
        if has_room || self.front.last().is_some_and(|last| id < *last) {
            self.front.insert(id);
            moved.extend(self.rank(id).map(|rank| (rank, true)));
        } else {
            self.back.insert(id);
        }
        self.settle(limit, &mut moved);
        moved
    }

    /// Removes a task that has ended or changed.
    pub fn leave(&mut self, id: &TaskId, limit: usize) -> Moved {
        let mut moved = Moved::new();
        let rank = self.rank(*id);
        self.all.remove(id);
        self.held.remove(id);
        self.back.remove(id);
        self.ready.remove(id);
        if self.front.remove(id) {
            moved.extend(rank.map(|rank| (rank, false)));
        }
        self.settle(limit, &mut moved);
        moved
    }

    /// Changes the limit. Tasks that are held stay held.
    pub fn limit(&mut self, limit: usize) -> Moved {
        let mut moved = Moved::new();
        self.settle(limit, &mut moved);
        moved
    }

    fn settle(&mut self, limit: usize, moved: &mut Moved) {
        let room = limit.saturating_sub(self.held.len());
        while self.front.len() > room
            && let Some(id) = self.front.pop_last()
        {
            self.back.insert(id);
            moved.extend(self.rank(id).map(|rank| (rank, false)));
        }
        while self.front.len() < room
            && let Some(id) = self.back.pop_first()
        {
            self.front.insert(id);
            moved.extend(self.rank(id).map(|rank| (rank, true)));
        }
        assert!(self.front.len() <= room, "more tasks of a key have their turn than may be held");
        assert!(self.front.len() == room || self.back.is_empty(), "a task waits though it may have its turn");
        let in_order = self.front.last().is_none_or(|last| self.back.first().is_none_or(|first| last < first));
        assert!(in_order, "a task waits for a younger one of its key");
    }

    fn rank(&self, id: TaskId) -> Option<Rank> {
        self.ready.get(&id).map(|priority| (Reverse(*priority), id))
    }

    /// Claimable tasks.
    pub fn claimable(&self) -> impl Iterator<Item = Rank> + '_ {
        self.front.iter().filter_map(|id| self.rank(*id))
    }
}
