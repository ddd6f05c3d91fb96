//! Archiving: where there is an archive, the host has a finished task in it before the task is buried (`forgetting.rs`).

use super::forgetting::PAUSE_MS;
use crate::limits::{EXCHANGE_BYTES_MAX, within};
use crate::protocol::available::view;
use crate::protocol::loads::Then;
use crate::protocol::task::{Digest, Task, Tomb};
use crate::protocol::timers::Key;
use crate::protocol::{Effect, Node};
use norn_client::wire::{PartitionId, TaskId, TaskView};
use std::collections::BTreeSet;

/// Between attempts where nothing can be archived.
const ARCHIVE_MS: u64 = 10_000;

/// Tasks on their way to the archive, to be buried then.
#[derive(Debug)]
pub struct Archiving {
    number: u64,
    /// With the digests that the tasks had.
    tombs: Vec<(TaskId, Tomb, Digest)>,
    /// Nothing could be archived, or the tasks are still loaded: not again before that. None while the archive has them.
    again_us: Option<u64>,
}

impl Node {
    /// Asks for tasks to be archived, some at a time.
    pub(super) fn archive(&mut self, partition: PartitionId, due: Vec<(TaskId, Tomb)>) {
        let (now_us, again_us) = (self.now.mono_us, self.after_ms(ARCHIVE_MS));
        let replica = &self.partitions[&partition];
        let waits = |archiving: &Archiving| archiving.again_us.is_none_or(|again_us| now_us < again_us);
        if due.is_empty()
            || replica.register.leading().and_then(|leading| leading.archiving.as_ref()).is_some_and(waits)
        {
            return;
        }
        let tasks = due.into_iter().filter_map(|(id, tomb)| Some((id, tomb, replica.store.task(&id)?)));
        let some = within(EXCHANGE_BYTES_MAX, tasks, |(.., task)| task.size_bytes());
        let (mut tombs, mut tasks, mut gaps, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (id, tomb, task) in some {
            let (task, wanted) = task.whole(id);
            gaps.extend(wanted.map(|_| tasks.len()));
            bodies.extend(wanted);
            tombs.push((id, tomb, replica.store.digest(&id)));
            tasks.push((id, task));
        }
        let number = self.asks.number();
        let register = &mut self.partitions.get_mut(&partition).expect("it leads").register;
        // Where too much is loaded, this may not be.
        let again_us = Some(again_us);
        register.leading_mut().expect("it leads").archiving = Some(Archiving { number, tombs, again_us });
        if bodies.is_empty() {
            self.archive_whole(partition, number, &tasks);
        } else {
            self.load(Then::Archive { partition, number, tasks, gaps }, bodies);
        }
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
