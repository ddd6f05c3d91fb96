//! Arrival of tasks that another replica has sent: what is taken, and what is refused.

use crate::Node;
use crate::effect::Observation;
use crate::write_read::admission::grows;
use norn_model::config::mutant;
use norn_model::message::{GarbageCollection, Items};
use norn_model::replica::Partition;
use norn_model::task::Task;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::BTreeSet;

impl Node {
    /// The tasks to refuse while the disk is short of room, and the bytes of those accepted all the same. Accepted are tasks that restore
    /// parts lost here, up to the room reserved for that.
    fn without_room(&self, partition: PartitionId, items: &Items) -> (BTreeSet<TaskId>, u64) {
        let (mut large, mut told_bytes) = (BTreeSet::new(), 0);
        if !self.is_short_of_disk() {
            return (large, told_bytes);
        }
        let (store, mut room_bytes) = (&self.partitions[&partition].store, self.room_for_lost_bytes());
        let restores = |id: &TaskId, delta: &Task| {
            let lost = store.task(id).filter(|task| task.is_lost()).map(|task| task.lost(*id)).unwrap_or_default();
            lost.iter().any(|wanted| delta.filling(wanted.slot).is_some())
        };
        for (id, delta) in items.iter() {
            let bytes = delta.size_bytes() as u64;
            if bytes <= room_bytes && restores(id, delta) {
                room_bytes -= bytes;
                told_bytes += bytes;
            } else if grows(store.ended(id) || !store.lacks_spec(id), delta) {
                large.insert(*id);
            }
        }
        (large, told_bytes)
    }

    /// Handles tasks that anti-entropy brought.
    pub(crate) fn on_tasks(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        items: &Items,
        (by_buckets, forgets): (bool, Option<u64>),
    ) {
        let right = items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let anybody = mutant!(self.config, ExileMerges);
        let known = |replica: &&Partition| right && (replica.cohort().knows(from) || anybody);
        let Some(replica) = self.partitions.get(&partition).filter(known) else {
            self.outbox.refuse("tasks of another partition");
            return;
        };
        let ignored = mutant!(self.config, FloorIgnored);
        let left = anybody && !replica.cohort().has(from);
        let over = |id: &TaskId| replica.refuses(id, forgets) && !ignored && !left;
        let gone: Vec<TaskId> = items.iter().map(|(id, _)| *id).filter(over).collect();
        // Refused tasks come again when there is room for them.
        let (large, told_bytes) = self.without_room(partition, items);
        self.membership.note_told_bytes(told_bytes);
        let tasks = if gone.is_empty() && large.is_empty() {
            self.merge_shared(partition, items)
        } else {
            let taken = items.iter().filter(|(id, _)| !over(id) && !large.contains(id)).cloned().collect();
            if forgets.is_none() && !gone.is_empty() {
                self.refuse_forgotten(from, partition, gone);
            }
            self.merge(partition, taken)
        };
        if by_buckets {
            self.repair.brought(from, partition, self.now.mono_us);
        }
        if tasks > 0 && self.wants_agreement(partition) {
            self.ask_one_to_agree(from, partition);
        }
        if tasks > 0 {
            self.outbox.observe(Observation::Repaired { partition: partition.0, tasks, by_buckets });
        }
    }

    /// Refuses tasks of a replica that are forgotten here. If it has incomplete facts, it learns of it in this way.
    fn refuse_forgotten(&mut self, to: NodeId, partition: PartitionId, ids: Vec<TaskId>) {
        let replica = &self.partitions[&partition];
        if replica.loss_recovery.data_loss.is_whole() {
            let forgets = replica.forgets();
            self.outbox.send(to, GarbageCollection::Gone { partition, forgets, ids });
        }
    }
}
