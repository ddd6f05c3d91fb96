//! A leader's progress with tasks whose retention is over: forgetting them (`retention/forgetting.rs`), and archiving them
//! before (`retention/archiving.rs`).

use crate::task::{Digest, Slot, Task, Tombstone};
use norn_wire::{NodeId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A task whose retention is over, by its place among the ended tasks.
#[derive(Debug, Clone)]
pub struct Due {
    pub queue: Option<QueueName>,
    pub at_ms: u64,
    pub id: TaskId,
}

/// Leader's garbage-collector state: tasks whose retention is over.
#[derive(Debug, Default)]
pub struct Retiring {
    /// Number of the question under way.
    pub number: u64,
    /// Tombstones in question, in order; empty if there is no question.
    pub ids: Vec<TaskId>,
    /// Members that have these tombstones on disk.
    pub buried: BTreeSet<NodeId>,
    /// Nodes that know no completion which brings child tasks as old as these, with the fingerprint of its cohort slots that each
    /// sent with its answer (`drained.rs`).
    pub childless: BTreeMap<NodeId, u64>,
    /// Members that have forgotten the tasks that the table names.
    pub forgot: BTreeSet<NodeId>,
    /// When the present step began.
    pub since_us: u64,
    /// When observers were last notified that nodes hold it up.
    pub told_us: u64,
}

impl Retiring {
    /// State with nothing under way.
    pub fn new(now_us: u64) -> Retiring {
        Retiring { since_us: now_us, told_us: now_us, ..Retiring::default() }
    }

    /// Members that have not answered yet.
    pub fn held_by(&self, members: impl Iterator<Item = NodeId>, forgetting: bool) -> Vec<NodeId> {
        let answered = if forgetting { &self.forgot } else { &self.buried };
        members.filter(|node| !answered.contains(node)).collect()
    }
}

/// Leader's archiving state.
#[derive(Debug, Default)]
pub struct Archiving {
    pub batch: Option<Batch>,
    /// Last of the tasks that were passed over. Tasks up to it are tried again after all others.
    pub passed: Option<Due>,
    /// Earliest time of the next batch.
    pub again_us: u64,
    /// Purged tasks of which this replica has lost something.
    pub losses: BTreeMap<TaskId, Loss>,
}

/// Tasks on their way to the archive. Their tombstones are written once they are archived.
#[derive(Debug)]
pub struct Batch {
    pub number: u64,
    /// Tombstones, with the digests of the tasks at the time.
    pub tombstones: Vec<(TaskId, Tombstone, Digest)>,
    pub last: Due,
    /// While other members are asked: those members, each with the tasks of which it has the same facts, once it has answered.
    pub asked: Option<BTreeMap<NodeId, Option<BTreeSet<TaskId>>>>,
    /// Deadline for asking other members or for loading the tasks. None while the archive has them.
    pub until_us: Option<u64>,
}

impl Batch {
    /// Whether a member that was asked has the same facts of a task.
    pub fn is_same_at(&self, node: NodeId, id: &TaskId) -> bool {
        let said = self.asked.as_ref().and_then(|asked| asked.get(&node)?.as_ref());
        said.is_some_and(|same| same.contains(id))
    }
}

/// Parts of a purged task that are lost, as far as known.
#[derive(Debug)]
pub struct Loss {
    /// Digest of the task when the other members were asked.
    pub digest: Digest,
    /// Parts that all of them have lost; absent while they are being asked.
    pub everywhere: Option<Vec<Slot>>,
}

impl Loss {
    pub fn is_asked(&self) -> bool {
        self.everywhere.is_none()
    }

    /// Whether everything that a loaded task lacks is lost at all members.
    pub fn has_all_that_lacks(&self, task: &Task) -> bool {
        let Some(everywhere) = &self.everywhere else { return false };
        let blobs = task.blobs().filter(|(_, blob)| blob.here().is_none()).map(|(slot, _)| slot);
        let spec = task.spec.is_none().then_some(Slot::Spec);
        spec.into_iter().chain(blobs).all(|slot| everywhere.contains(&slot))
    }
}
