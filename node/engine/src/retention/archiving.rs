//! Archiving: where there is an archive, the host has a finished task in it before the task is buried (`forgetting.rs`).
//!
//! The archive is where clients look for a task that is forgotten, so it gets what the replicas together know. A leader that lost its
//! unsynced records, or was away, may know less. So it asks the others first, and takes only tasks that are known to be the same
//! elsewhere: on a majority, as what was acknowledged strictly is on one; and on every member if the spec is unknown, as then there is
//! nothing to archive. A task that differs is skipped until anti-entropy has levelled it. A task that the log cannot return is skipped
//! until it is there again, or the task is purged: then the archive gets the rest, and which parts are lost.
//!
//! Of a purged task, too, no more is given up than is lost everywhere. What the leader alone has lost, as it may just have found,
//! another replica can supply. So it reads the task as a client does, at all replicas of the partition, and archives the rest once each
//! of them has answered that it has lost the same. A silent replica may have it: the leader waits until it is back, or has been
//! declared gone.
//!
//! Without an archive the others are asked as well about tasks with an unknown spec: the spec says how long such a task is kept, and
//! whether a group needs it. If a majority does not know the spec either, no client has a strict acknowledgement of the enqueue.

use super::forgetting::PAUSE_MS;
use crate::Node;
use crate::context::timers::Key;
use crate::effect::Effect;
use crate::payloads::loads::Then;
use crate::write_read::read::{Reader, Seen, view};
use norn_model::config::mutant;
use norn_model::consensus::{Archiving, Batch, Due, Loss};
use norn_model::limits::{EXCHANGE_BYTES_MAX, within};
use norn_model::message::GarbageCollection;
use norn_model::task::{Digest, Outline, Slot, Task, Tombstone};
use norn_model::viewstamp::{Epoch, ReplicaId};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId, TaskView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pause between attempts if nothing can be archived, or tasks were skipped.
const ARCHIVE_MS: u64 = 10_000;
/// Time that the other members have to compare.
const COMPARE_MS: u64 = 1_000;

impl Node {
    fn archiving(&mut self, partition: PartitionId) -> &mut Archiving {
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        &mut consensus.leading_mut().expect("it leads").archiving
    }

    fn batch(&self, partition: PartitionId) -> &Batch {
        let leading = self.partitions[&partition].consensus.leading().expect("it leads");
        leading.archiving.batch.as_ref().expect("some are on their way")
    }

    /// Archives tasks that are due, some at a time: the other members are asked first.
    pub(crate) fn archive(&mut self, partition: PartitionId) {
        let now_us = self.now.mono_us;
        let archiving = &self.partitions[&partition].consensus.leading().expect("it leads").archiving;
        if let Some(batch) = &archiving.batch {
            let over_us = batch.until_us.map(|until_us| now_us.saturating_sub(until_us));
            let recent = over_us.is_some_and(|over_us| over_us < COMPARE_MS * 1_000);
            let busy = over_us.is_none_or(|over_us| over_us == 0);
            // Some member has not answered; what the others know suffices for some tasks. Answers of long ago do not count.
            if busy || batch.asked.is_some() && recent && self.archive_known(partition) {
                return;
            }
        }
        let again_us = self.after_ms(ARCHIVE_MS);
        let archiving = self.archiving(partition);
        archiving.batch = None;
        if now_us < archiving.again_us {
            return;
        }
        let passed = archiving.passed.take();
        let archives = self.config.archives;
        let asked = |queue: Option<&QueueName>| archives || queue.is_none() && !mutant!(self.config, OrphansUnasked);
        let due = self.due(partition, passed.as_ref(), asked);
        if due.is_empty() {
            if passed.is_some() {
                self.archiving(partition).again_us = again_us;
            }
            return;
        }
        self.archiving(partition).passed = passed;
        self.compare(partition, due);
    }

    /// Asks the other members what they know of the first of these tasks.
    fn compare(&mut self, partition: PartitionId, due: Vec<(Due, Tombstone)>) {
        assert!(!due.is_empty(), "there is nothing to be archived");
        let replica = &self.partitions[&partition];
        let epoch = replica.consensus.viewstamp.epoch;
        let tasks = due.into_iter().filter_map(|(due, tombstone)| Some((replica.store.task(&due.id)?, due, tombstone)));
        let some: Vec<_> = within(EXCHANGE_BYTES_MAX, tasks, |(task, ..)| task.size_bytes()).collect();
        let last = some.last().map(|(_, due, _)| due.clone()).expect("what is due is known, and one is always taken");
        let tombstones: Vec<(TaskId, Tombstone, Digest)> =
            some.into_iter().map(|(_, due, tombstone)| (due.id, tombstone, replica.store.digest(&due.id))).collect();
        let others = replica.cohort().members().filter(|node| *node != self.me && self.is_reachable(*node));
        let asked: BTreeMap<NodeId, Option<BTreeSet<TaskId>>> = others.map(|node| (node, None)).collect();
        let number = self.pending_requests.number();
        let items: Vec<(TaskId, Digest)> = tombstones.iter().map(|(id, _, digest)| (*id, *digest)).collect();
        for node in asked.keys() {
            self.outbox.send(*node, GarbageCollection::Compare { partition, epoch, number, items: items.clone() });
        }
        let until_us = Some(self.after_ms(COMPARE_MS));
        let batch = Batch { number, tombstones, last, asked: Some(asked), until_us };
        self.archiving(partition).batch = Some(batch);
        self.archive_answered(partition);
    }

    /// At a member: answers which of these tasks are known here just as at the leader. None, if facts are incomplete.
    pub(crate) fn on_compare(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        items: &[(TaskId, Digest)],
    ) {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| replica.cohort().knows(from)) else {
            return;
        };
        let whole = self.speaks_for(partition);
        let is_same = |(id, digest): &&(TaskId, Digest)| whole && replica.store.digest(id) == *digest;
        let same = items.iter().filter(is_same).map(|(id, _)| *id).collect();
        let replica = replica.consensus.me;
        self.outbox.send(from, GarbageCollection::Compared { partition, epoch, number, replica, same });
    }

    /// At the leader: a member has compared. A late answer does not count.
    pub(crate) fn on_compared(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        (own, same): (ReplicaId, Vec<TaskId>),
    ) {
        let now_us = self.now.mono_us;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let member = own.node == from && replica.cohort().has_replica(&own);
        let Some(leading) = replica.consensus.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        let Some(batch) = leading.archiving.batch.as_mut().filter(|batch| batch.number == number) else { return };
        let in_time = batch.until_us.is_some_and(|until_us| now_us < until_us);
        let answer = batch.asked.as_mut().and_then(|asked| asked.get_mut(&from));
        if let Some(answer) = answer.filter(|_| member && in_time) {
            *answer = Some(same.into_iter().collect());
            self.archive_answered(partition);
        }
    }

    /// Goes on once enough members have answered, or all.
    fn archive_answered(&mut self, partition: PartitionId) {
        let batch = self.batch(partition);
        let answered = batch.asked.as_ref().is_some_and(|asked| asked.values().all(Option::is_some));
        if answered || self.archivable(partition).len() == batch.tombstones.len() {
            self.archive_known(partition);
        }
    }

    /// Tasks that enough members know in the same state.
    fn archivable(&self, partition: PartitionId) -> Vec<(TaskId, Tombstone, Digest)> {
        let (replica, batch) = (&self.partitions[&partition], self.batch(partition));
        let is_same_at = |node: NodeId, id: &TaskId| node == self.me || batch.is_same_at(node, id);
        let is_known = |(id, _, digest): &&(TaskId, Tombstone, Digest)| match replica.store.task(id) {
            None => false,
            Some(_) if replica.store.digest(id) != *digest => false,
            Some(_) if mutant!(self.config, ArchivesUnasked) => true,
            Some(task) if task.spec.is_some() || !self.config.archives => {
                replica.cohort().members_quorum(|node| is_same_at(node, id))
            }
            Some(_) => replica.cohort().members().all(|node| is_same_at(node, id)),
        };
        batch.tombstones.iter().filter(is_known).copied().collect()
    }

    /// Archives the tasks that enough members know in the same state, and skips the others. Returns whether there are any.
    fn archive_known(&mut self, partition: PartitionId) -> bool {
        let tombstones = self.archivable(partition);
        let until_us = Some(self.after_ms(ARCHIVE_MS));
        let number = self.pending_requests.number();
        let store = &self.partitions[&partition].store;
        let (mut tasks, mut gaps, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (id, ..) in &tombstones {
            let (task, wanted) = store.task(id).expect("it is known").whole(*id);
            gaps.extend(wanted.iter().map(|_| tasks.len()));
            bodies.extend(wanted);
            tasks.push((*id, task));
        }
        let archiving = self.archiving(partition);
        let Batch { tombstones: all, last, .. } = archiving.batch.take().expect("some are on their way");
        assert!(tombstones.len() <= all.len(), "more is archived than was asked about");
        if tombstones.len() < all.len() {
            archiving.passed = Some(last.clone());
        }
        if tombstones.is_empty() {
            return false;
        }
        archiving.batch = Some(Batch { number, tombstones, last, asked: None, until_us });
        if bodies.is_empty() {
            self.archive_whole(partition, number, tasks);
        } else {
            self.load(Then::Archive { partition, number, tasks, gaps }, bodies);
        }
        true
    }

    /// The bodies of tasks are loaded: the host archives them. Tasks with a lost part are not buried either, unless they are purged:
    /// then the archive gets the rest.
    pub(crate) fn archive_whole(&mut self, partition: PartitionId, number: u64, tasks: Vec<(TaskId, Task)>) {
        let wall_ms = self.now.wall_ms;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.consensus.leading_mut() else { return };
        let Archiving { batch, passed, losses, .. } = &mut leading.archiving;
        let Some(batch) = batch.as_mut().filter(|batch| batch.number == number) else { return };
        let archived = tasks.into_iter().filter(|_| self.config.archives);
        let store = &replica.store;
        let seen = archived.filter_map(|(id, task)| {
            let (known, digest) = (store.task(&id)?, store.digest(&id));
            let loss = losses.get(&id).filter(|loss| known.is_purged() && loss.digest == digest);
            let is_let_go = loss.is_some_and(|loss| loss.has_all_that_lacks(&task));
            Some((id, to_archive(known, task, is_let_go)?))
        });
        let views: Vec<TaskView> = seen.filter_map(|(id, seen)| view(id, &seen, wall_ms)).collect();
        let viewed: BTreeSet<TaskId> = views.iter().map(|view| view.id).collect();
        let all: Vec<TaskId> = batch.tombstones.iter().map(|(id, ..)| *id).collect();
        // Of a task whose spec no replica knows there is nothing to archive.
        let empty = |id: &TaskId| replica.store.task(id).is_some_and(|task| task.spec.is_none());
        let before = batch.tombstones.len();
        batch.tombstones.retain(|(id, ..)| viewed.contains(id) || empty(id));
        let left = all.iter().filter(|id| !viewed.contains(id));
        let in_doubt = left.filter(|id| store.task(id).is_some_and(|task| task.is_purged() && task.is_lost()));
        // While its question is open it is not asked again.
        let unasked: Vec<TaskId> = in_doubt.copied().filter(|id| !losses.get(id).is_some_and(Loss::is_asked)).collect();
        losses.extend(unasked.iter().map(|id| (*id, Loss { digest: store.digest(id), everywhere: None })));
        if batch.tombstones.len() < before {
            // Otherwise they would be asked for again at once, and hold up those behind them.
            *passed = Some(batch.last.clone());
        }
        batch.until_us = None;
        let timeout_ms = self.config.request_timeout_ms;
        unasked.into_iter().for_each(|id| self.read_for(Reader::LetGo, id, timeout_ms));
        if views.is_empty() {
            self.on_archived(partition, number, true);
        } else {
            self.outbox.effect(Effect::Archive { partition, number, tasks: views });
        }
    }

    /// At the leader: all replicas of the partition have answered that they have lost these parts of a purged task; `everywhere` is
    /// empty if not all have.
    pub(crate) fn let_go(&mut self, id: TaskId, everywhere: Vec<Slot>) {
        let partition = self.partition_of(&id);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.consensus.leading_mut() else { return };
        let Archiving { passed, again_us, losses, .. } = &mut leading.archiving;
        let Some(loss) = losses.get_mut(&id) else { return };
        if everywhere.is_empty() {
            losses.remove(&id);
        } else {
            loss.everywhere = Some(everywhere);
            (*passed, *again_us) = (None, 0);
            self.timers.set_earliest(Key::Retire(partition), self.after_ms(PAUSE_MS));
        }
    }

    /// Tasks are in the archive, or cannot be put there now.
    pub(crate) fn on_archived(&mut self, partition: PartitionId, number: u64, done: bool) {
        let again_us = self.after_ms(ARCHIVE_MS);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.consensus.leading_mut() else { return };
        let archiving = &mut leading.archiving;
        let Some(batch) = archiving.batch.take_if(|batch| batch.number == number) else { return };
        if !done {
            archiving.again_us = again_us;
            return;
        }
        // Facts that were merged meanwhile are not in the archive yet.
        let same = |(id, _, digest): &(TaskId, Tombstone, Digest)| {
            replica.store.task(id).is_some() && replica.store.digest(id) == *digest
        };
        archiving.losses.retain(|id, _| batch.tombstones.iter().all(|(archived, ..)| archived != id));
        let tombstones = batch.tombstones.into_iter().filter(same).map(|(id, tombstone, _)| (id, tombstone)).collect();
        self.bury(partition, tombstones);
        self.timers.set(Key::Retire(partition), self.after_ms(PAUSE_MS));
    }
}

/// The part of a task to archive, which was loaded as far as it could be; `None` if it has to wait. Its lost parts may be given up.
fn to_archive(known: &Task<Outline>, task: Task, is_let_go: bool) -> Option<Seen> {
    let outline = known.spec.as_ref().filter(|outline| is_let_go && task.spec.is_none() && outline.body.is_lost());
    let stub = outline.map(|outline| Arc::new(outline.stub()));
    (task.has_blobs() || is_let_go).then_some(Seen { task, entry: None, stub })
}
