//! Facts of partitions that are not held here, and which members have them by now.

use crate::protocol::task::Task;
use crdts::CvRDT;
use norn_client::wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Memory of a task besides its payload and facts, about.
const TASK_BYTES: usize = 320;

/// Whose facts they are. In this order they are handed over, and saved.
pub type Key = (PartitionId, TaskId);

/// A task of which something is kept.
#[derive(Debug)]
struct Entry {
    task: Task,
    /// Grows with every fact: an answer is about those that were there when it was asked for.
    version: u64,
    /// Members that have all of it on disk, and the starts in which they said so.
    holders: BTreeMap<NodeId, u64>,
    /// Members that cannot take it, since it may be a task that they have forgotten.
    refused: BTreeSet<NodeId>,
}

/// What is to become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It must be kept.
    Kept,
    /// A majority has it.
    Safe,
    /// A majority refuses it, and nobody has it.
    Orphan,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Kept {
    tasks: BTreeMap<Key, Entry>,
    /// Of each partition of which anything is kept: how much, and since when.
    partitions: BTreeMap<PartitionId, (u64, u64)>,
    bytes: usize,
    versions: u64,
}

/// Memory of a task, about.
pub fn size_bytes(task: &Task) -> usize {
    TASK_BYTES + task.size_bytes()
}

/// Tasks of one partition to hand over.
#[derive(Debug, Default)]
pub struct Piece {
    /// Whose they are.
    pub partition: PartitionId,
    /// With their versions, in order.
    pub ids: Vec<(TaskId, u64)>,
    /// What they are.
    pub items: Vec<(TaskId, Task)>,
    /// The last one that was looked at; none if there is nothing behind.
    pub at: Option<Key>,
}

impl Kept {
    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many tasks.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// How many tasks of a partition.
    pub fn count_of(&self, partition: PartitionId) -> u64 {
        self.partitions.get(&partition).map_or(0, |(count, _)| *count)
    }

    /// Memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds facts, of which whoever has the others has none. Whether any is new.
    pub fn keep(&mut self, partition: PartitionId, id: TaskId, delta: Task) -> bool {
        self.versions += 1;
        let version = self.versions;
        let Kept { tasks, partitions, bytes, .. } = self;
        let entry = tasks.entry((partition, id)).or_insert_with(|| {
            partitions.entry(partition).or_insert((0, 0)).0 += 1;
            *bytes += TASK_BYTES;
            Entry { task: Task::default(), version, holders: BTreeMap::new(), refused: BTreeSet::new() }
        });
        if entry.task.knows(&delta) {
            return false;
        }
        *bytes -= entry.task.size_bytes();
        entry.task.merge(delta);
        *bytes += entry.task.size_bytes();
        entry.version = version;
        entry.holders.clear();
        entry.refused.clear();
        true
    }

    /// Since when something of a partition has been kept without a break; from now on, if it is new.
    pub fn since(&mut self, partition: PartitionId, now_ms: u64) -> u64 {
        let (_, since_ms) = self.partitions.entry(partition).or_insert((0, 0));
        if *since_ms == 0 {
            *since_ms = now_ms;
        }
        *since_ms
    }

    /// As the log has it.
    pub fn set_since(&mut self, partition: PartitionId, at_ms: u64) {
        if let Some((_, since_ms)) = self.partitions.get_mut(&partition) {
            *since_ms = at_ms;
        }
    }

    /// How many tasks are of partitions of which something has been kept for so long.
    pub fn overdue(&self, now_ms: u64, ttl_ms: u64) -> u64 {
        let over = self.partitions.values().filter(|(_, since_ms)| since_ms.saturating_add(ttl_ms) <= now_ms);
        over.map(|(count, _)| *count).sum()
    }

    /// What is kept of a task.
    pub fn task(&self, partition: PartitionId, id: &TaskId) -> Option<&Task> {
        self.tasks.get(&(partition, *id)).map(|entry| &entry.task)
    }

    /// All after a place, in order, with the time since when something of their partition has been kept.
    pub fn after(&self, after: Option<Key>) -> impl Iterator<Item = (Key, &Task, u64)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = self.tasks.range((from, Bound::Unbounded));
        tasks.map(|(key, entry)| (*key, &entry.task, self.partitions[&key.0].1))
    }

    /// The next tasks of one partition that a node lacks. `is_member` says whether it holds a partition.
    pub fn piece(
        &self,
        node: NodeId,
        after: Option<Key>,
        (tasks_max, bytes_max, looks_max): (usize, usize, usize),
        is_member: impl Fn(PartitionId) -> bool,
    ) -> Piece {
        let (mut piece, mut bytes, mut member) = (Piece::default(), 0, None);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (looks, (key, entry)) in self.tasks.range((from, Bound::Unbounded)).enumerate() {
            let full = piece.ids.len() >= tasks_max || bytes >= bytes_max || looks >= looks_max;
            if full || !piece.ids.is_empty() && piece.partition != key.0 {
                return piece;
            }
            piece.at = Some(*key);
            if member.is_none_or(|(partition, _)| partition != key.0) {
                member = Some((key.0, is_member(key.0)));
            }
            if member.is_some_and(|(_, is)| is) && !entry.holders.contains_key(&node) {
                piece.partition = key.0;
                bytes += size_bytes(&entry.task);
                piece.ids.push((key.1, entry.version));
                piece.items.push((key.1, entry.task.clone()));
            }
        }
        Piece { at: None, ..piece }
    }

    /// A member has answered: it has what was of that version, or refuses it. Then those that have it are asked again: it may
    /// have ended and been forgotten since, or anti-entropy brings it.
    pub fn answered(&mut self, key: Key, version: u64, node: NodeId, boot: u64, has: bool) {
        let Some(entry) = self.tasks.get_mut(&key).filter(|entry| entry.version == version) else { return };
        if has {
            entry.refused.remove(&node);
            entry.holders.insert(node, boot);
        } else {
            entry.refused.insert(node);
            entry.holders.clear();
        }
    }

    /// What is to become of a task in a cohort of so many.
    pub fn fate(&self, key: Key, replicas: usize) -> Fate {
        let majority = replicas / 2 + 1;
        match self.tasks.get(&key) {
            Some(entry) if entry.holders.len() >= majority => Fate::Safe,
            Some(entry) if entry.refused.len() >= majority && entry.holders.is_empty() => Fate::Orphan,
            Some(_) | None => Fate::Kept,
        }
    }

    /// It is not kept any more.
    pub fn remove(&mut self, partition: PartitionId, id: &TaskId) {
        let Some(entry) = self.tasks.remove(&(partition, *id)) else { return };
        self.bytes -= size_bytes(&entry.task);
        let (count, _) = self.partitions.get_mut(&partition).expect("each task is counted");
        *count -= 1;
        if *count == 0 {
            self.partitions.remove(&partition);
        }
    }

    /// What a node said in starts before `boot` does not count.
    pub fn forget_answers(&mut self, node: NodeId, boot: u64) {
        for entry in self.tasks.values_mut() {
            entry.holders.retain(|holder, told| *holder != node || *told >= boot);
        }
    }

    /// What is counted is what is there.
    pub fn check(&self) -> Result<(), String> {
        let bytes: usize = self.tasks.values().map(|entry| size_bytes(&entry.task)).sum();
        let count: u64 = self.partitions.values().map(|(count, _)| *count).sum();
        if (bytes, self.tasks.len() as u64) == (self.bytes, count) {
            Ok(())
        } else {
            Err(format!("{bytes} bytes of {} hints are kept, which is not what is counted", self.tasks.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::task::Cancel;

    const KEY: Key = (PartitionId(1), TaskId::MIN);
    const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn kept(reason: &str) -> Kept {
        let mut kept = Kept::default();
        let cancel = Cancel { dead: false, reason: reason.into(), at_ms: 1 };
        assert!(kept.keep(KEY.0, KEY.1, Task::from_cancel(cancel)));
        kept
    }

    fn version(kept: &Kept) -> u64 {
        let piece = kept.piece(MEMBERS[0], None, (1, 1, 9), |_| true);
        piece.ids.first().map_or(0, |(_, version)| *version)
    }

    #[test]
    fn an_answer_to_fewer_facts_does_not_count() {
        let mut kept = kept("one");
        let before = version(&kept);
        let more = Cancel { dead: false, reason: "two".into(), at_ms: 2 };
        assert!(kept.keep(KEY.0, KEY.1, Task::from_cancel(more.clone())));
        assert!(!kept.keep(KEY.0, KEY.1, Task::from_cancel(more)));
        MEMBERS.iter().for_each(|node| kept.answered(KEY, before, *node, 1, true));
        assert_eq!(kept.fate(KEY, 3), Fate::Kept);
        let after = version(&kept);
        kept.answered(KEY, after, MEMBERS[0], 1, true);
        kept.answered(KEY, after, MEMBERS[1], 1, true);
        assert_eq!(kept.fate(KEY, 3), Fate::Safe);
        kept.forget_answers(MEMBERS[1], 2);
        assert_eq!((kept.fate(KEY, 3), kept.check()), (Fate::Kept, Ok(())));
        kept.remove(KEY.0, &KEY.1);
        assert_eq!((kept.is_empty(), kept.bytes(), kept.check()), (true, 0, Ok(())));
    }

    #[test]
    fn who_took_it_is_asked_again_when_another_refuses() {
        let mut kept = kept("one");
        let version = version(&kept);
        kept.answered(KEY, version, MEMBERS[0], 1, true);
        kept.answered(KEY, version, MEMBERS[1], 1, false);
        assert_eq!(kept.fate(KEY, 3), Fate::Kept);
        kept.answered(KEY, version, MEMBERS[0], 1, false);
        assert_eq!(kept.fate(KEY, 3), Fate::Orphan, "it was forgotten meanwhile");
        kept.answered(KEY, version, MEMBERS[0], 1, true);
        kept.answered(KEY, version, MEMBERS[1], 1, true);
        assert_eq!(kept.fate(KEY, 3), Fate::Safe, "or it has come");
    }
}
