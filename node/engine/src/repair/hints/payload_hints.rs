//! Payload hints: facts of partitions that are not held here, and which members have them by now.

use crdts::CvRDT;
use norn_model::cohort::Cohort;
use norn_model::task::Task;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Approximate memory of a task besides its payload and facts.
const TASK_BYTES: usize = 320;
/// Most doublings of the interval at which a node that keeps refusing a task is asked again.
const DOUBLINGS_MAX: u32 = 6;
/// Most facts of one task that a description names.
const DESCRIBED_MAX: usize = 32;

/// A task and its partition. Hints are handed over and saved in this order.
pub type Key = (PartitionId, TaskId);

/// The hint for one task.
#[derive(Debug)]
struct Entry {
    task: Task,
    /// Grows with every fact: an answer is about the facts of the version that was sent.
    version: u64,
    /// Members that have all of it on disk, with the incarnation in which they acknowledged it.
    holders: BTreeMap<NodeId, Holder>,
    /// Members that refuse it, since it may be a task that they have forgotten.
    refused: BTreeMap<NodeId, Refusal>,
    /// Members that may have it: it was sent to them, whatever the outcome.
    offered: BTreeSet<NodeId>,
}

/// A member that has a task on its disk.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// Incarnation in which it acknowledged the task.
    boot: u64,
    /// Version of the cohort that it knew then.
    at: Viewstamp,
}

/// A member's latest refusal of a task.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    /// Its incarnation then.
    boot: u64,
    /// The member has complete facts: what it does not know, it does not have.
    sure: bool,
    /// Number of refusals in a row.
    times: u32,
    /// Time at which to ask it again.
    again_us: u64,
}

/// How much is kept of one partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amount {
    tasks: u64,
    /// Of these, tasks with facts but without the enqueued spec.
    without_spec: u64,
    /// Time since when anything has been kept without a break.
    since_ms: u64,
}

/// A member's answer to a task that it was handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The task is on its disk.
    Has {
        /// Version of the cohort that it knew.
        at: Viewstamp,
    },
    /// The task may be one that was forgotten.
    Refuses {
        /// The member has complete facts.
        sure: bool,
    },
}

/// Outcome for a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The hint must be kept.
    Kept,
    /// A majority has the facts.
    Safe,
    /// A majority refuses the task, and so does each member that was ever sent it.
    Orphan,
}

/// Payload hints of a node.
#[derive(Debug, Default)]
pub struct PayloadHints {
    tasks: BTreeMap<Key, Entry>,
    /// Amounts, for each partition of which anything is kept.
    partitions: BTreeMap<PartitionId, Amount>,
    bytes: usize,
    versions: u64,
}

/// Approximate memory of a task.
pub fn size_bytes(task: &Task) -> usize {
    TASK_BYTES + task.size_bytes()
}

/// A short description of a task's facts, each by its key.
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
    /// Their partition.
    pub partition: PartitionId,
    /// Their ids, with versions, in order.
    pub ids: Vec<(TaskId, u64)>,
    /// Their facts.
    pub items: Vec<(TaskId, Task)>,
    /// Tasks passed over because the node has them, as a member of the cohort as it is known.
    pub had: Vec<Key>,
    /// The last task looked at; none if there is nothing behind it.
    pub at: Option<Key>,
    /// Time to ask again for tasks passed over because the node refused them lately.
    pub again_us: Option<u64>,
}

impl PayloadHints {
    /// Whether there are no payload hints.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Number of tasks.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Number of tasks of a partition.
    pub fn count_of(&self, partition: PartitionId) -> u64 {
        self.partitions.get(&partition).map_or(0, |amount| amount.tasks)
    }

    /// Number of tasks of a partition whose spec is not among the facts kept here.
    pub fn without_spec(&self, partition: PartitionId) -> u64 {
        self.partitions.get(&partition).map_or(0, |amount| amount.without_spec)
    }

    /// Approximate memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds facts. If any is new, answers of members so far do not count any more. Returns whether any is new.
    pub fn keep(&mut self, partition: PartitionId, id: TaskId, delta: Task) -> bool {
        self.versions += 1;
        let version = self.versions;
        let PayloadHints { tasks, partitions, bytes, .. } = self;
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
        assert!(*bytes >= entry.task.size_bytes(), "a hint was not counted");
        *bytes -= entry.task.size_bytes();
        entry.task.merge(delta);
        *bytes += entry.task.size_bytes();
        amount.without_spec -= u64::from(bare && entry.task.spec.is_some());
        assert!(amount.without_spec <= amount.tasks, "more hints lack a spec than there are");
        entry.version = version;
        entry.holders.clear();
        entry.refused.clear();
        true
    }

    /// Time since when something of a partition has been kept without a break; from now on, if it is new.
    pub fn since(&mut self, partition: PartitionId, now_ms: u64) -> u64 {
        let amount = self.partitions.entry(partition).or_default();
        if amount.since_ms == 0 {
            amount.since_ms = now_ms;
        }
        amount.since_ms
    }

    /// Restores that time from the log.
    pub fn set_since(&mut self, partition: PartitionId, at_ms: u64) {
        if let Some(amount) = self.partitions.get_mut(&partition) {
            amount.since_ms = at_ms;
        }
    }

    /// Number of tasks in partitions of which something has been kept for at least `ttl_ms`.
    pub fn overdue(&self, now_ms: u64, ttl_ms: u64) -> u64 {
        let over = self.partitions.values().filter(|amount| amount.since_ms.saturating_add(ttl_ms) <= now_ms);
        over.map(|amount| amount.tasks).sum()
    }

    /// The facts kept of a task.
    pub fn task(&self, partition: PartitionId, id: &TaskId) -> Option<&Task> {
        self.tasks.get(&(partition, *id)).map(|entry| &entry.task)
    }

    /// Facts of a hint, and their version.
    pub fn versioned(&self, key: &Key) -> Option<(&Task, u64)> {
        self.tasks.get(key).map(|entry| (&entry.task, entry.version))
    }

    /// All hints behind a place, in order, with the time since when something of their partition has been kept.
    pub fn after(&self, after: Option<Key>) -> impl Iterator<Item = (Key, &Task, u64)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tasks = self.tasks.range((from, Bound::Unbounded));
        tasks.map(|(key, entry)| (*key, &entry.task, self.partitions[&key.0].since_ms))
    }

    /// The next tasks of one partition that a node lacks. `is_member` gives the version of the cohort at which the node holds a
    /// partition, if it does.
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
        assert_eq!(piece.ids.len(), piece.items.len(), "a hint is handed over without its id");
        Piece { at: None, ..piece }
    }

    /// Notes that tasks were sent to a member, which may have them from now on.
    pub fn offered(&mut self, partition: PartitionId, ids: &[(TaskId, u64)], node: NodeId) {
        for (id, _) in ids {
            if let Some(entry) = self.tasks.get_mut(&(partition, *id)) {
                entry.offered.insert(node);
            }
        }
    }

    /// Takes a member's answer: it has the facts of that version, or refuses them. After a sure refusal the members that have it are
    /// asked again: it may have ended and been forgotten since, or anti-entropy brings it. The refusing member is asked again later,
    /// after `wait_us` at first.
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

    /// The outcome for the hint of a task of this cohort.
    pub fn fate(&self, key: Key, cohort: &Cohort) -> Fate {
        let Some(entry) = self.tasks.get(&key) else { return Fate::Kept };
        let sure = |node: &NodeId| entry.refused.get(node).is_some_and(|refusal| refusal.sure);
        let has = |node: NodeId| entry.holders.get(&node).is_some_and(|holder| holder.at == cohort.version);
        // A member that has left has handed over what it took.
        let mut offered = entry.offered.iter().filter(|node| cohort.knows(**node));
        if cohort.quorum(has) {
            Fate::Safe
        } else if cohort.members_quorum(|node| sure(&node)) && offered.all(sure) {
            Fate::Orphan
        } else {
            Fate::Kept
        }
    }

    /// Removes the hint for a task.
    pub fn remove(&mut self, partition: PartitionId, id: &TaskId) {
        let Some(entry) = self.tasks.remove(&(partition, *id)) else { return };
        assert!(self.bytes >= size_bytes(&entry.task), "a hint was not counted");
        self.bytes -= size_bytes(&entry.task);
        let amount = self.partitions.get_mut(&partition).expect("each task is counted");
        assert!(amount.tasks > 0, "a hint of a partition was not counted");
        amount.tasks -= 1;
        amount.without_spec -= u64::from(entry.task.spec.is_none());
        assert!(amount.without_spec <= amount.tasks, "more hints lack a spec than there are");
        if amount.tasks == 0 {
            self.partitions.remove(&partition);
        }
        assert!(!self.tasks.is_empty() || self.bytes == 0, "bytes are counted of hints that are gone");
    }

    /// Discards what a node answered in incarnations before `boot`.
    pub fn forget_answers(&mut self, node: NodeId, boot: u64) {
        for entry in self.tasks.values_mut() {
            entry.holders.retain(|holder, answer| *holder != node || answer.boot >= boot);
            entry.refused.retain(|other, refusal| *other != node || refusal.boot >= boot);
        }
    }

    /// Discards the refusals of a node that was restarted: it may take now what it could not take then.
    pub fn forget_refusals(&mut self, node: NodeId) {
        for entry in self.tasks.values_mut() {
            entry.refused.remove(&node);
        }
    }

    /// Checks that the counts match the hints.
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
    use crdts::CvRDT;
    use norn_model::task::{Cancel, Completed};
    use norn_model::viewstamp::ReplicaId;
    use norn_wire::Token;

    const KEY: Key = (PartitionId(1), TaskId::MIN);
    const MEMBERS: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn kept(reason: &str) -> PayloadHints {
        let mut kept = PayloadHints::default();
        let cancel = Cancel { dead: false, reason: reason.into(), at_ms: 1 };
        assert!(kept.keep(KEY.0, KEY.1, Task::from_cancel(cancel)));
        kept
    }

    fn version(kept: &PayloadHints) -> u64 {
        let piece = kept.piece((MEMBERS[0], u64::MAX), None, (1, 1, 9), |_| Some(Viewstamp::default()));
        piece.ids.first().map_or(0, |(_, version)| *version)
    }

    const REFUSES: Answer = Answer::Refuses { sure: true };
    const HAS: Answer = Answer::Has { at: Viewstamp { epoch: 0, length: 0 } };

    fn cohort() -> Cohort {
        Cohort::founded(&MEMBERS.map(|node| ReplicaId { node, incarnation: 1 }))
    }

    fn answer(kept: &mut PayloadHints, version: u64, node: NodeId, answer: Answer) {
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
        let asked_at = |kept: &PayloadHints, now_us| {
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
