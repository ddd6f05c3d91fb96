//! Archiving: where there is an archive, the host has a finished task in it before the task is buried (`forgetting.rs`).
//!
//! The archive is where a task is looked for when it is no more, so what goes there is what all replicas together know. A
//! leader that lost its unsynced records, or was away, may know less. So it asks the others first, and takes only tasks that
//! are known to be the same elsewhere: on a majority, as what was acknowledged is on one; and on every member where the spec
//! is unknown, as then there is nothing to archive. What differs waits for anti-entropy to level it.

use super::forgetting::PAUSE_MS;
use super::{Epoch, ReplicaId};
use crate::config::mutant;
use crate::limits::{EXCHANGE_BYTES_MAX, within};
use crate::protocol::available::view;
use crate::protocol::loads::Then;
use crate::protocol::peer::PeerMessage;
use crate::protocol::task::{Digest, Task, Tomb};
use crate::protocol::timers::Key;
use crate::protocol::{Effect, Node};
use norn_client::wire::{NodeId, PartitionId, TaskId, TaskView};
use std::collections::{BTreeMap, BTreeSet};

/// Between attempts where nothing can be archived.
const ARCHIVE_MS: u64 = 10_000;

/// Tasks on their way to the archive, to be buried then.
#[derive(Debug)]
pub struct Archiving {
    number: u64,
    /// With the digests that the tasks had.
    tombs: Vec<(TaskId, Tomb, Digest)>,
    /// As long as others are asked: those that are, and of which tasks they know the same, once they have answered.
    asked: Option<BTreeMap<NodeId, Option<BTreeSet<TaskId>>>>,
    /// Nothing could be archived, others are asked, or the tasks are still loaded: not again before that. None while the
    /// archive has them.
    again_us: Option<u64>,
}

impl Archiving {
    /// Whether a member that was asked knows the same of a task.
    fn is_same_at(&self, node: NodeId, id: &TaskId) -> bool {
        let said = self.asked.as_ref().and_then(|asked| asked.get(&node)?.as_ref());
        said.is_some_and(|same| same.contains(id))
    }
}

impl Node {
    /// Asks for tasks to be archived, some at a time: the other members come first.
    pub(super) fn archive(&mut self, partition: PartitionId, due: Vec<(TaskId, Tomb)>) {
        let (now_us, again_us) = (self.now.mono_us, self.after_ms(ARCHIVE_MS));
        let replica = &self.partitions[&partition];
        let leading = replica.register.leading().expect("it leads");
        if let Some(archiving) = &leading.archiving {
            if archiving.again_us.is_none_or(|again_us| now_us < again_us) {
                return;
            }
            if archiving.asked.is_some() && self.archive_same(partition) {
                // Somebody has not answered; what the others know suffices for some.
                return;
            }
        }
        let replica = &self.partitions[&partition];
        let epoch = replica.register.viewstamp.epoch;
        let tasks = due.into_iter().filter_map(|(id, tomb)| Some((id, tomb, replica.store.task(&id)?)));
        let some = within(EXCHANGE_BYTES_MAX, tasks, |(.., task)| task.size_bytes());
        let tombs: Vec<(TaskId, Tomb, Digest)> =
            some.into_iter().map(|(id, tomb, _)| (id, tomb, replica.store.digest(&id))).collect();
        let others = replica.cohort.iter().filter(|node| **node != self.me && self.is_alive(**node));
        let asked: BTreeMap<NodeId, Option<BTreeSet<TaskId>>> = others.map(|node| (*node, None)).collect();
        let register = &mut self.partitions.get_mut(&partition).expect("it leads").register;
        let leading = register.leading_mut().expect("it leads");
        if tombs.is_empty() {
            leading.archiving = None;
            return;
        }
        let number = self.asks.number();
        let items: Vec<(TaskId, Digest)> = tombs.iter().map(|(id, _, digest)| (*id, *digest)).collect();
        for node in asked.keys() {
            self.outbox.send(*node, PeerMessage::Compare { partition, epoch, number, items: items.clone() });
        }
        leading.archiving = Some(Archiving { number, tombs, asked: Some(asked), again_us: Some(again_us) });
        self.archive_answered(partition);
    }

    /// At a member: what of these tasks is known here just as it is at the leader.
    pub(in crate::protocol) fn on_compare(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        items: &[(TaskId, Digest)],
    ) {
        let replica = self.partitions.get(&partition).filter(|replica| replica.cohort.contains(&from));
        let Some(replica) = replica.filter(|_| self.speaks_for(partition)) else { return };
        let same = items.iter().filter(|(id, digest)| replica.store.digest(id) == *digest).map(|(id, _)| *id).collect();
        let replica = replica.register.me;
        self.outbox.send(from, PeerMessage::Compared { partition, epoch, number, replica, same });
    }

    /// At the leader: a member has compared.
    pub(in crate::protocol) fn on_compared(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        (own, same): (ReplicaId, Vec<TaskId>),
    ) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let member = own.node == from && replica.register.table.members.contains(&own);
        let Some(leading) = replica.register.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        let Some(archiving) = leading.archiving.as_mut().filter(|archiving| archiving.number == number) else { return };
        let answer = archiving.asked.as_mut().and_then(|asked| asked.get_mut(&from));
        if let Some(answer) = answer.filter(|_| member) {
            *answer = Some(same.into_iter().collect());
            self.archive_answered(partition);
        }
    }

    /// Goes on once all that are asked have answered. Who does not is waited for as long as between attempts.
    fn archive_answered(&mut self, partition: PartitionId) {
        let register = &self.partitions[&partition].register;
        let archiving = register.leading().and_then(|leading| leading.archiving.as_ref());
        let asked = archiving.and_then(|archiving| archiving.asked.as_ref()).expect("they were asked");
        if asked.values().all(Option::is_some) {
            self.archive_same(partition);
        }
    }

    /// Archives the tasks of which enough members know the same. Whether there are any.
    fn archive_same(&mut self, partition: PartitionId) -> bool {
        let again_us = self.after_ms(ARCHIVE_MS);
        let me = self.me;
        let replica = &self.partitions[&partition];
        let archiving =
            replica.register.leading().and_then(|leading| leading.archiving.as_ref()).expect("just looked at");
        let is_same_at = |node: NodeId, id: &TaskId| node == me || archiving.is_same_at(node, id);
        let is_known = |id: &TaskId| match replica.store.task(id) {
            _ if mutant!(self.config, ArchivesUnasked) => true,
            Some(task) if task.spec.is_some() => replica.register.quorum(|node| is_same_at(node, id)),
            _ => replica.cohort.iter().all(|node| is_same_at(*node, id)),
        };
        let unchanged = |(id, _, digest): &&(TaskId, Tomb, Digest)| replica.store.digest(id) == *digest;
        let known = archiving.tombs.iter().filter(unchanged).filter(|(id, ..)| is_known(id));
        let tombs: Vec<(TaskId, Tomb, Digest)> = known.copied().collect();
        let (mut tasks, mut gaps, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (id, ..) in &tombs {
            let (task, wanted) = replica.store.task(id).expect("its digest is the same").whole(*id);
            gaps.extend(wanted.map(|_| tasks.len()));
            bodies.extend(wanted);
            tasks.push((*id, task));
        }
        let any = !tombs.is_empty();
        let number = self.asks.number();
        let register = &mut self.partitions.get_mut(&partition).expect("it leads").register;
        // Where too much is loaded, this may not be.
        let archiving = Archiving { number, tombs, asked: None, again_us: Some(again_us) };
        register.leading_mut().expect("it leads").archiving = Some(archiving);
        if any && bodies.is_empty() {
            self.archive_whole(partition, number, &tasks);
        } else if any {
            self.load(Then::Archive { partition, number, tasks, gaps }, bodies);
        }
        any
    }

    /// Tasks have their bodies: the host archives them. Those whose bodies are lost are not buried, either.
    pub(in crate::protocol) fn archive_whole(&mut self, partition: PartitionId, number: u64, tasks: &[(TaskId, Task)]) {
        let wall_ms = self.now.wall_ms;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.register.leading_mut() else { return };
        let Some(archiving) = leading.archiving.as_mut().filter(|archiving| archiving.number == number) else { return };
        let views: Vec<TaskView> = tasks.iter().filter_map(|(id, task)| view(*id, task, None, wall_ms)).collect();
        let viewed: BTreeSet<TaskId> = views.iter().map(|view| view.id).collect();
        // Of a task that nobody ever heard of there is nothing to archive.
        let empty = |id: &TaskId| replica.store.task(id).is_some_and(|task| task.spec.is_none());
        archiving.tombs.retain(|(id, ..)| viewed.contains(id) || empty(id));
        archiving.again_us = None;
        if views.is_empty() {
            self.on_archived(partition, number, true);
        } else {
            self.outbox.effect(Effect::Archive { partition, number, tasks: views });
        }
    }

    /// Tasks are in the archive, or cannot be put there now.
    pub(in crate::protocol) fn on_archived(&mut self, partition: PartitionId, number: u64, done: bool) {
        let again_us = self.after_ms(ARCHIVE_MS);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.register.leading_mut() else { return };
        let Some(mut archiving) = leading.archiving.take_if(|archiving| archiving.number == number) else { return };
        if !done {
            archiving.again_us = Some(again_us);
            leading.archiving = Some(archiving);
            return;
        }
        // What was learned meanwhile is not in the archive yet.
        let same = |(id, _, digest): &(TaskId, Tomb, Digest)| {
            replica.store.task(id).is_some() && replica.store.digest(id) == *digest
        };
        let tombs = archiving.tombs.into_iter().filter(same).map(|(id, tomb, _)| (id, tomb)).collect();
        self.bury(partition, tombs);
        self.timers.set(Key::Retire(partition), self.after_ms(PAUSE_MS));
    }
}
