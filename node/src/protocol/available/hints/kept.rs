//! Facts of partitions that are not held here, and which members have them by now.

use crate::protocol::consistent::Viewstamp;
use crate::protocol::consistent::cohort::Cohort;
use crate::protocol::task::Task;
use crdts::CvRDT;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Memory of a task besides its payload and facts, about.
const TASK_BYTES: usize = 320;
/// Who refuses a task again and again is asked up to so many doublings more seldom.
const DOUBLINGS_MAX: u32 = 6;
/// Facts of one task that are named.
const DESCRIBED_MAX: usize = 32;

/// Whose facts they are. In this order they are handed over, and saved.
pub type Key = (PartitionId, TaskId);

/// A task of which something is kept.
#[derive(Debug)]
struct Entry {
    task: Task,
    /// Grows with every fact: an answer is about those that were there when it was asked for.
    version: u64,
    /// Members that have all of it on disk, and the starts in which they said so.
    holders: BTreeMap<NodeId, Holder>,
    /// Members that cannot take it, since it may be a task that they have forgotten.
    refused: BTreeMap<NodeId, Refusal>,
    /// Members that may have it: it was sent to them, whatever has become of that.
    offered: BTreeSet<NodeId>,
}

/// A member that has a task on its disk.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// It said so in this start.
    boot: u64,
    /// And at this version of the cohort.
    at: Viewstamp,
}

/// What a member that does not take a task has said last.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// In this start.
    boot: u64,
    /// It has no holes: what it does not know, it does not have.
    sure: bool,
    /// How often in a row.
    times: u32,
    /// When to ask it again.
    again_us: u64,
}

/// How much is kept of one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    tasks: u64,
    /// Of these, with facts but without what was enqueued.
    without_spec: u64,
    /// Since when there has been anything, without a break.
    since_ms: u64,
}

/// What a member says of a task that it was handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is on its disk.
    Has {
        /// At this version of the cohort.
        at: Viewstamp,
    },
    /// It may be a task that was forgotten. `sure`: the member has no holes.
    Refuses {
        /// See there.
        sure: bool,
    },
}

/// What is to become of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It must be kept.
    Kept,
    /// A majority has it.
    Safe,
    /// A majority refuses it, and so does everybody who was ever sent it.
    Orphan,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Kept {
    tasks: BTreeMap<Key, Entry>,
    /// Of each partition of which anything is kept.
    partitions: BTreeMap<PartitionId, Amount>,
    bytes: usize,
    versions: u64,
}

/// Memory of a task, about.
pub fn size_bytes(task: &Task) -> usize {
    TASK_BYTES + task.size_bytes()
}

/// Facts of a task in few words, each by its key.
pub fn describe(task: &Task) -> String {
    let spec = task.spec.iter().map(|_| "task".to_owned());
    let facts = task.facts.iter().flat_map(|facts| {
        let updates = facts.updates.iter().map(|((token, sequence), _)| format!("entry {token}/{sequence}"));
        let completions = facts.completions.iter().map(|(token, _)| format!("completion {token}"));
        let purge = facts.purged.then(|| "purge".to_owned());
        updates.chain(completions).chain(facts.cancel.iter().map(|_| "cancellation".to_owned())).chain(purge)
    });
    let mut words: Vec<String> = spec.chain(facts).take(DESCRIBED_MAX + 1).collect();
    if words.len() > DESCRIBED_MAX {
        words[DESCRIBED_MAX] = "and more".into();
    }
    words.join(", ")
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
    /// What was passed over, since the node has it, as a member of the cohort as it is known.
    pub had: Vec<Key>,
    /// The last one that was looked at; none if there is nothing behind.
    pub at: Option<Key>,
    /// When to ask again for what was passed over, since the node refused it lately.
    pub again_us: Option<u64>,
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
        self.partitions.get(&partition).map_or(0, |amount| amount.tasks)
    }

    /// How many tasks of a partition of which nobody has said here what was enqueued.
    pub fn without_spec(&self, partition: PartitionId) -> u64 {
        self.partitions.get(&partition).map_or(0, |amount| amount.without_spec)
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
        let amount = partitions.entry(partition).or_default();
        let entry = tasks.entry((partition, id)).or_insert_with(|| {
            amount.tasks += 1;
            amount.without_spec += 1;
            *bytes += TASK_BYTES;
            Entry {
                task: Task::default(),
                version,
                holders: BTreeMap::new(),
                refused: BTreeMap::new(),
                offered: BTreeSet::new(),
            }
        });
        if entry.task.knows(&delta) {
            return false;
        }
        let bare = entry.task.spec.is_none();
        *bytes -= entry.task.size_bytes();
        entry.task.merge(delta);
        *bytes += entry.task.size_bytes();
        amount.without_spec -= u64::from(bare && entry.task.spec.is_some());
        entry.version = version;
        entry.holders.clear();
        entry.refused.clear();
        true
    }

    /// Since when something of a partition has been kept without a break; from now on, if it is new.
    pub fn since(&mut self, partition: PartitionId, now_ms: u64) -> u64 {
        let amount = self.partitions.entry(partition).or_default();
        if amount.since_ms == 0 {
            amount.since_ms = now_ms;
        }
        amount.since_ms
    }

    /// As the log has it.
    pub fn set_since(&mut self, partition: PartitionId, at_ms: u64) {
        if let Some(amount) = self.partitions.get_mut(&partition) {
            amount.since_ms = at_ms;
        }
    }

    /// How many tasks are of partitions of which something has been kept for so long.
    pub fn overdue(&self, now_ms: u64, ttl_ms: u64) -> u64 {
        let over = self.partitions.values().filter(|amount| amount.since_ms.saturating_add(ttl_ms) <= now_ms);
        over.map(|amount| amount.tasks).sum()
    }

    /// What is kept of a task.
    pub fn task(&self, partition: PartitionId, id: &TaskId) -> Option<&Task> {
        self.tasks.get(&(partition, *id)).map(|entry| &entry.task)
    }

    /// All after a place, in order, with the time since when something of their partition has been kept.
    pub fn after(&self, after: Option<Key>) -> impl Iterator<Item = (Key, &Task, u64)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = self.tasks.range((from, Bound::Unbounded));
        tasks.map(|(key, entry)| (*key, &entry.task, self.partitions[&key.0].since_ms))
    }

    /// The next tasks of one partition that a node lacks. `is_member` says at which version of the cohort
    /// it holds a partition, if it does.
    pub fn piece(
        &self,
        (node, now_us): (NodeId, u64),
        after: Option<Key>,
        (tasks_max, bytes_max, looks_max): (usize, usize, usize),
        is_member: impl Fn(PartitionId) -> Option<Viewstamp>,
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
            let has = |at: Viewstamp| entry.holders.get(&node).is_some_and(|holder| holder.at == at);
            let Some(at) = member.and_then(|(_, at)| at) else { continue };
            if has(at) {
                piece.had.push(*key);
                continue;
            }
            let rests = entry.refused.get(&node).filter(|refusal| now_us < refusal.again_us);
            if let Some(Refusal { again_us, .. }) = rests {
                piece.again_us = Some(piece.again_us.map_or(*again_us, |before| before.min(*again_us)));
            } else {
                piece.partition = key.0;
                bytes += size_bytes(&entry.task);
                piece.ids.push((key.1, entry.version));
                piece.items.push((key.1, entry.task.clone()));
            }
        }
        Piece { at: None, ..piece }
    }

    /// Tasks are on their way to a member, which may have them from now on.
    pub fn offered(&mut self, partition: PartitionId, ids: &[(TaskId, u64)], node: NodeId) {
        for (id, _) in ids {
            if let Some(entry) = self.tasks.get_mut(&(partition, *id)) {
                entry.offered.insert(node);
            }
        }
    }

    /// A member has answered: it has what was of that version, or refuses it. If it is sure, those that have it are asked
    /// again: it may have ended and been forgotten since, or anti-entropy brings it. Who refuses is asked again later, after
    /// `wait_us` at first.
    pub fn answered(
        &mut self,
        key: Key,
        version: u64,
        (node, boot): (NodeId, u64),
        answer: Answer,
        (now_us, wait_us): (u64, u64),
    ) {
        let Some(entry) = self.tasks.get_mut(&key).filter(|entry| entry.version == version) else { return };
        match answer {
            Answer::Has { at } => {
                entry.refused.remove(&node);
                entry.holders.insert(node, Holder { boot, at });
            }
            Answer::Refuses { sure } => {
                let times = entry.refused.get(&node).map_or(0, |before| before.times);
                let again_us = now_us.saturating_add(wait_us << times.min(DOUBLINGS_MAX));
                entry.refused.insert(node, Refusal { boot, sure, times: times.saturating_add(1), again_us });
                entry.holders.retain(|holder, _| !sure && *holder != node);
            }
        }
    }

    /// What is to become of a task of this cohort.
    pub fn fate(&self, key: Key, cohort: &Cohort) -> Fate {
        let Some(entry) = self.tasks.get(&key) else { return Fate::Kept };
        let sure = |node: &NodeId| entry.refused.get(node).is_some_and(|refusal| refusal.sure);
        let has = |node: NodeId| entry.holders.get(&node).is_some_and(|holder| holder.at == cohort.version);
        // Who has left has handed over what it took.
        let mut offered = entry.offered.iter().filter(|node| cohort.knows(**node));
        if cohort.quorum(has) {
            Fate::Safe
        } else if cohort.members_quorum(|node| sure(&node)) && offered.all(sure) {
            Fate::Orphan
        } else {
            Fate::Kept
        }
    }

    /// It is not kept any more.
    pub fn remove(&mut self, partition: PartitionId, id: &TaskId) {
        let Some(entry) = self.tasks.remove(&(partition, *id)) else { return };
        self.bytes -= size_bytes(&entry.task);
        let amount = self.partitions.get_mut(&partition).expect("each task is counted");
        amount.tasks -= 1;
        amount.without_spec -= u64::from(entry.task.spec.is_none());
        if amount.tasks == 0 {
            self.partitions.remove(&partition);
        }
    }

    /// What a node said in starts before `boot` does not count.
    pub fn forget_answers(&mut self, node: NodeId, boot: u64) {
        for entry in self.tasks.values_mut() {
            entry.holders.retain(|holder, told| *holder != node || told.boot >= boot);
            entry.refused.retain(|other, refusal| *other != node || refusal.boot >= boot);
        }
    }

    /// A node was started: what it could not take then, it may take now.
    pub fn forget_refusals(&mut self, node: NodeId) {
        for entry in self.tasks.values_mut() {
            entry.refused.remove(&node);
        }
    }

    /// What is counted is what is there.
    pub fn check(&self) -> Result<(), String> {
        let bytes: usize = self.tasks.values().map(|entry| size_bytes(&entry.task)).sum();
        let bare = self.tasks.values().filter(|entry| entry.task.spec.is_none()).count() as u64;
        let count: u64 = self.partitions.values().map(|amount| amount.tasks).sum();
        let counted: u64 = self.partitions.values().map(|amount| amount.without_spec).sum();
        if (bytes, self.tasks.len() as u64, bare) == (self.bytes, count, counted) {
            Ok(())
        } else {
            Err(format!("{bytes} bytes of {} hints are kept, which is not what is counted", self.tasks.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::consistent::ReplicaId;
    use crate::protocol::task::{Cancel, Completed};
    use crdts::CvRDT;
    use norn_wire::Token;

    const KEY: Key = (PartitionId(1), TaskId::MIN);
    const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn kept(reason: &str) -> Kept {
        let mut kept = Kept::default();
        let cancel = Cancel { dead: false, reason: reason.into(), at_ms: 1 };
        assert!(kept.keep(KEY.0, KEY.1, Task::from_cancel(cancel)));
        kept
    }

    fn version(kept: &Kept) -> u64 {
        let piece = kept.piece((MEMBERS[0], u64::MAX), None, (1, 1, 9), |_| Some(Viewstamp::default()));
        piece.ids.first().map_or(0, |(_, version)| *version)
    }

    const REFUSES: Answer = Answer::Refuses { sure: true };
    const HAS: Answer = Answer::Has { at: Viewstamp { epoch: 0, length: 0 } };

    fn cohort() -> Cohort {
        Cohort::founded(&MEMBERS.map(|node| ReplicaId { node, incarnation: 1 }))
    }

    fn answer(kept: &mut Kept, version: u64, node: NodeId, answer: Answer) {
        kept.offered(KEY.0, &[(KEY.1, version)], node);
        kept.answered(KEY, version, (node, 1), answer, (0, 1_000));
    }

    #[test]
    fn an_answer_to_fewer_facts_does_not_count() {
        let mut kept = kept("one");
        let before = version(&kept);
        let more = Cancel { dead: false, reason: "two".into(), at_ms: 2 };
        assert!(kept.keep(KEY.0, KEY.1, Task::from_cancel(more.clone())));
        assert!(!kept.keep(KEY.0, KEY.1, Task::from_cancel(more)));
        MEMBERS.iter().for_each(|node| answer(&mut kept, before, *node, HAS));
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Kept);
        let after = version(&kept);
        answer(&mut kept, after, MEMBERS[0], HAS);
        answer(&mut kept, after, MEMBERS[1], HAS);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Safe);
        kept.forget_answers(MEMBERS[1], 2);
        assert_eq!((kept.fate(KEY, &cohort()), kept.check()), (Fate::Kept, Ok(())));
        kept.remove(KEY.0, &KEY.1);
        assert_eq!((kept.is_empty(), kept.bytes(), kept.check()), (true, 0, Ok(())));
    }

    #[test]
    fn who_took_it_is_asked_again_when_another_refuses() {
        let mut kept = kept("one");
        let version = version(&kept);
        answer(&mut kept, version, MEMBERS[0], HAS);
        answer(&mut kept, version, MEMBERS[1], REFUSES);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Kept);
        answer(&mut kept, version, MEMBERS[2], REFUSES);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Kept, "the first may still have it");
        answer(&mut kept, version, MEMBERS[0], REFUSES);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Orphan, "it was forgotten meanwhile");
        answer(&mut kept, version, MEMBERS[0], HAS);
        answer(&mut kept, version, MEMBERS[1], HAS);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Safe, "or it has come");
    }

    #[test]
    fn only_those_are_believed_not_to_have_it_that_have_no_holes_and_were_not_started_since() {
        let mut kept = kept("one");
        let version = version(&kept);
        for node in MEMBERS {
            answer(&mut kept, version, node, Answer::Refuses { sure: false });
        }
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Kept);
        MEMBERS.iter().for_each(|node| answer(&mut kept, version, *node, REFUSES));
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Orphan);
        kept.forget_refusals(MEMBERS[2]);
        assert_eq!(kept.fate(KEY, &cohort()), Fate::Kept, "it was sent there");
    }

    #[test]
    fn who_refuses_is_asked_more_and_more_seldom() {
        let mut kept = kept("one");
        let version = version(&kept);
        let asked_at = |kept: &Kept, now_us| {
            let piece = kept.piece((MEMBERS[0], now_us), None, (9, 9, 9), |_| Some(Viewstamp::default()));
            (piece.ids.len(), piece.again_us)
        };
        for wait_us in [1_000, 2_000, 4_000] {
            answer(&mut kept, version, MEMBERS[0], REFUSES);
            assert_eq!(asked_at(&kept, wait_us - 1), (0, Some(wait_us)));
            assert_eq!(asked_at(&kept, wait_us), (1, None));
        }
    }

    #[test]
    fn facts_are_described_by_their_keys_and_many_of_them_in_short() {
        let token = |number| Token { epoch: 2, number };
        let completed = || Completed { sequence: None, result: None, at_ms: 1, children: None };
        let mut task = Task::from_update(token(1), 0, b"begun".to_vec());
        task.merge(Task::from_completion(token(1), completed()));
        task.merge(Task::from_cancel(Cancel { dead: false, reason: "enough".into(), at_ms: 1 }));
        assert_eq!(describe(&task), "entry 2.1/0, completion 2.1, cancellation");
        for number in 2..2 + DESCRIBED_MAX as u64 {
            task.merge(Task::from_completion(token(number), completed()));
        }
        assert!(describe(&task).ends_with(", and more"), "{}", describe(&task));
    }
}
