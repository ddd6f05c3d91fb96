//! Everything that the simulator takes from the other crates under names of its own, in one place.

pub use norn_client::session::{
    self, Call, CallId, ChangeDraft, Draft, Finish, Input, Output, Seen, Session, TransactionDraft,
};
pub use norn_engine::{Node as Core, ReplicaView};
pub use norn_model::ring;
pub use norn_restore::{Compacted, Restorer, When, compact};
pub use norn_storage as log;

use crate::disk::SimDisk;
use crdts::CvRDT;
use norn_engine::Cursor;
use norn_model::record::Record;
use norn_model::snapshot::Part;
use norn_model::task::{Filling, Task, Wanted};
use norn_wire::{PartitionId, TaskId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads bodies, results and log entries back, as a process with a good disk does.
pub fn read_bodies(disk: &SimDisk, wanted: &[Wanted]) -> Vec<Option<Filling>> {
    log::read_bodies(|file, offset, length| disk.peek(file, offset, length), wanted)
        .expect("nothing goes wrong with a peek")
}

/// All tasks of a partition that a node holds, with their bodies, whether in memory or on its disk.
pub fn tasks_of_partition(core: &Core, disk: &SimDisk, partition: PartitionId) -> BTreeMap<TaskId, Task> {
    let (mut tasks, mut wanted) = (BTreeMap::new(), Vec::new());
    for (id, (task, lacks)) in core.tasks(partition) {
        tasks.insert(id, task);
        wanted.extend(lacks);
    }
    for (wanted, body) in wanted.iter().zip(read_bodies(disk, &wanted)) {
        if let Some(filling) = body.filter(|filling| wanted.is(filling)) {
            tasks.get_mut(&wanted.id).expect("just put there").fill(wanted.slot, filling);
        }
    }
    tasks
}

/// All tasks that a node holds, of all partitions, merged with the hints that it keeps.
pub fn tasks_of(core: &Core, disk: &SimDisk) -> BTreeMap<TaskId, Task> {
    let views: Vec<ReplicaView> = core.inspect();
    let hints = core.hints().map(|(id, task)| (id, task.clone()));
    let all = hints.chain(views.iter().flat_map(|view| tasks_of_partition(core, disk, view.partition)));
    let mut tasks: BTreeMap<TaskId, Task> = BTreeMap::new();
    // There may be a hint for a task whose partition has come here since.
    all.for_each(|(id, task)| tasks.entry(id).or_default().merge(task));
    tasks
}

/// Whole state of a node as records, with all bodies.
pub fn state_of(core: &Core, disk: &SimDisk) -> Vec<Record> {
    let Part { mut records, gaps, .. } = core.save(&mut Cursor::default(), usize::MAX);
    let wanted: Vec<Wanted> = gaps.iter().map(|gap| gap.wanted).collect();
    for (gap, body) in gaps.iter().zip(read_bodies(disk, &wanted)) {
        if let Record::Facts { items, .. } = &mut records[gap.record] {
            let task = &mut Arc::make_mut(items)[gap.item].1;
            body.into_iter().for_each(|filling| task.fill(gap.wanted.slot, filling));
        }
    }
    for record in &mut records {
        if let Record::Facts { items, .. } = record {
            Arc::make_mut(items).iter_mut().for_each(|(_, task)| task.leave_out_gaps());
        }
    }
    records
}
