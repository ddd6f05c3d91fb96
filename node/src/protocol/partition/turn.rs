//! Tasks of one queue and key that have not ended: so many are run at a time, the oldest first. One that was tried and is to be
//! tried again later keeps its turn.
//!
//! Each change moves at most one task over the line between those whose turn it is and those behind them, whatever the limit.

use super::index::{Class, Place, Rank};
use norn_wire::TaskId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks that became claimable, or are not any more.
pub(super) type Moved = Vec<(Rank, bool)>;

/// See the module.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    /// All of them.
    pub all: BTreeSet<TaskId>,
    /// Those that are claimed.
    pub held: BTreeSet<TaskId>,
    /// Those whose turn it is: the oldest, as many as may be held beside those that are. Not those that were never claimable yet: who
    /// waits for tasks that are behind it, or for tomorrow, would hold up all.
    front: BTreeSet<TaskId>,
    /// The others that were claimable once, all of them younger.
    back: BTreeSet<TaskId>,
    /// Of both, those that wait for nothing but their turn, with their priorities.
    ready: BTreeMap<TaskId, i32>,
}

impl Turn {
    /// A task is there, where so many may be held at once.
    pub fn enter(&mut self, id: TaskId, place: Place<'_>, class: Class, limit: usize) -> Moved {
        let mut moved = Moved::new();
        if !matches!(class, Class::Orphan | Class::Ended(_)) {
            self.all.insert(id);
        }
        match class {
            Class::Orphan | Class::Ended(_) | Class::Blocked => return moved,
            Class::Delayed(until_ms) if until_ms == place.not_before_ms => return moved,
            Class::Held => {
                self.held.insert(id);
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

    /// A task is not there any more, or not as it was.
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

    /// Another number may be held at once. What is held stays so.
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
    }

    fn rank(&self, id: TaskId) -> Option<Rank> {
        self.ready.get(&id).map(|priority| (Reverse(*priority), id))
    }

    /// Those that are claimable.
    pub fn claimable(&self) -> impl Iterator<Item = Rank> + '_ {
        self.front.iter().filter_map(|id| self.rank(*id))
    }
}
