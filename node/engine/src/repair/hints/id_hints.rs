//! Id hints: ids of tasks that absent members lack.

use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Approximate memory of an id.
const ID_BYTES: usize = 64;

/// A task and its partition.
pub type Key = (PartitionId, TaskId);

/// What one member lacks.
#[derive(Debug, Default)]
struct Debt {
    /// Time since when the member has lacked something without a break.
    since_ms: u64,
    ids: BTreeSet<Key>,
    /// While the member is away: the change of each partition up to which all is noted.
    noted: BTreeMap<PartitionId, u64>,
    /// Whether noting has stopped until the member is back.
    over: bool,
}

/// Id hints of all members.
#[derive(Debug, Default)]
pub struct IdHints {
    debts: BTreeMap<NodeId, Debt>,
    count: usize,
}

impl IdHints {
    /// Whether no member lacks anything.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of ids, for all members.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Approximate memory.
    pub fn bytes(&self) -> usize {
        self.count * ID_BYTES
    }

    /// Members of which anything is known here.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.debts.keys().copied()
    }

    /// Number of tasks that a member lacks.
    pub fn count_of(&self, node: NodeId) -> usize {
        self.debts.get(&node).map_or(0, |debt| debt.ids.len())
    }

    /// Time since when a member has lacked something.
    pub fn since(&self, node: NodeId) -> Option<u64> {
        self.debts.get(&node).filter(|debt| !debt.ids.is_empty()).map(|debt| debt.since_ms)
    }

    /// The member that has lacked something for the longest time.
    pub fn oldest(&self) -> Option<NodeId> {
        let debts = self.debts.iter().filter(|(_, debt)| !debt.ids.is_empty());
        debts.min_by_key(|(_, debt)| debt.since_ms).map(|(node, _)| *node)
    }

    /// Whether a member was away for too long to note anything for it, and something is noted.
    pub fn is_over(&self, node: NodeId, now_ms: u64, ttl_ms: u64) -> bool {
        self.since(node).is_some_and(|since_ms| since_ms.saturating_add(ttl_ms) <= now_ms)
    }

    /// Sets the change up to which all is noted to `changes`; returns the one before.
    pub fn noted(&mut self, node: NodeId, partition: PartitionId, changes: u64) -> Option<u64> {
        self.debts.entry(node).or_default().noted.insert(partition, changes)
    }

    /// Notes tasks, as long as there are bytes of room for them. Returns the new ones, in order.
    pub fn note(
        &mut self,
        node: NodeId,
        partition: PartitionId,
        ids: impl Iterator<Item = TaskId>,
        (now_ms, room): (u64, u64),
    ) -> Vec<TaskId> {
        let debt = self.debts.entry(node).or_default();
        if debt.over {
            return Vec::new();
        }
        if debt.ids.is_empty() {
            debt.since_ms = now_ms;
        }
        let room = (room / ID_BYTES as u64) as usize;
        let unique: BTreeSet<TaskId> = ids.filter(|id| !debt.ids.contains(&(partition, *id))).collect();
        let new: Vec<TaskId> = unique.into_iter().take(room).collect();
        debt.ids.extend(new.iter().map(|id| (partition, *id)));
        self.count += new.len();
        assert!(self.count >= debt.ids.len(), "what a member lacks is not counted");
        new
    }

    /// Restores id hints from the log.
    pub fn recover(&mut self, node: NodeId, partition: PartitionId, since_ms: u64, ids: &[TaskId]) {
        let debt = self.debts.entry(node).or_default();
        debt.since_ms = since_ms;
        self.count += ids.iter().filter(|id| debt.ids.insert((partition, **id))).count();
    }

    /// Members that lack anything of a partition.
    pub fn to_whom(&self, partition: PartitionId) -> Vec<NodeId> {
        let any = |debt: &Debt| {
            let of_partition = (partition, TaskId::MIN)..=(partition, TaskId::MAX);
            debt.ids.range(of_partition).next().is_some()
        };
        self.debts.iter().filter(|(_, debt)| any(debt)).map(|(node, _)| *node).collect()
    }

    /// Notes that a member is back.
    pub fn is_back(&mut self, node: NodeId) {
        if let Some(debt) = self.debts.get_mut(&node) {
            debt.noted.clear();
            debt.over = false;
            if debt.ids.is_empty() {
                self.debts.remove(&node);
            }
        }
    }

    /// The next tasks that a member lacks behind a place, of one partition, in order.
    pub fn piece(&self, node: NodeId, after: Option<Key>, tasks_max: usize) -> Option<(PartitionId, Vec<TaskId>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = self.debts.get(&node)?.ids.range((from, Bound::Unbounded)).peekable();
        let partition = keys.peek()?.0;
        let ids = keys.take_while(|(of, _)| *of == partition).take(tasks_max).map(|(_, id)| *id).collect();
        Some((partition, ids))
    }

    /// Removes tasks that a member has by now, or all of a partition if none are named.
    pub fn remove(&mut self, node: NodeId, partition: PartitionId, ids: &[TaskId]) {
        let Some(debt) = self.debts.get_mut(&node) else { return };
        let before = debt.ids.len();
        if ids.is_empty() {
            let mut behind = debt.ids.split_off(&(partition, TaskId::MIN));
            behind.retain(|(of, _)| *of != partition);
            debt.ids.append(&mut behind);
        }
        for id in ids {
            debt.ids.remove(&(partition, *id));
        }
        assert!(debt.ids.len() <= before && before <= self.count, "what a member lacks was not counted");
        self.count -= before - debt.ids.len();
    }

    /// Drops all that a member lacks, and notes nothing until it is back. Returns the counts, by partition.
    pub fn give_up(&mut self, node: NodeId) -> BTreeMap<PartitionId, u64> {
        let debt = self.debts.entry(node).or_default();
        let mut counts = BTreeMap::new();
        for (partition, _) in std::mem::take(&mut debt.ids) {
            *counts.entry(partition).or_insert(0) += 1;
            self.count -= 1;
        }
        debt.over = true;
        counts
    }

    /// All ids behind a place, in order, with the time since when the member has lacked something.
    pub fn after(&self, after: Option<(NodeId, Key)>) -> impl Iterator<Item = (NodeId, Key, u64)> {
        let first = after.map_or(NodeId(0), |(node, _)| node);
        self.debts.range(first..).flat_map(move |(node, debt)| {
            let from = after.filter(|(at, _)| at == node).map_or(Bound::Unbounded, |(_, key)| Bound::Excluded(key));
            debt.ids.range((from, Bound::Unbounded)).map(|key| (*node, *key, debt.since_ms))
        })
    }

    /// Checks that the count matches the ids.
    pub fn check(&self) -> Result<(), String> {
        let count: usize = self.debts.values().map(|debt| debt.ids.len()).sum();
        if count == self.count { Ok(()) } else { Err(format!("{count} ids are owed, and {} are counted", self.count)) }
    }
}
