//! A leader's progress with tasks whose retention is over: forgetting them (`consistent/forgetting.rs`), and archiving them
//! before (`consistent/archiving.rs`).

use crate::protocol::task::{Digest, Slot, Task, Tomb};
use norn_wire::{NodeId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A task whose retention is over, by its place among the ended tasks.
#[derive(Debug, Clone)]
pub(in crate::protocol::consistent) struct Due {
    pub(in crate::protocol::consistent) queue: Option<QueueName>,
    pub(in crate::protocol::consistent) at_ms: u64,
    pub(in crate::protocol::consistent) id: TaskId,
}

/// Leader's garbage-collector state: tasks whose retention is over.
#[derive(Debug, Default)]
pub struct Retiring {
    /// Number of the question under way.
    pub(in crate::protocol::consistent) number: u64,
    /// Tombstones in question, in order; empty if there is no question.
    pub(in crate::protocol::consistent) ids: Vec<TaskId>,
    /// Members that have these tombstones on disk.
    pub(in crate::protocol::consistent) buried: BTreeSet<NodeId>,
    /// Nodes that know no completion which brings child tasks as old as these, with the fingerprint of its cohort slots that each
    /// sent with its answer (`outboxes.rs`).
    pub(in crate::protocol::consistent) childless: BTreeMap<NodeId, u64>,
    /// Members that have forgotten the tasks that the table names.
    pub(in crate::protocol::consistent) forgot: BTreeSet<NodeId>,
    /// When the present step began.
    pub(in crate::protocol::consistent) since_us: u64,
    /// When observers were last notified that nodes hold it up.
    pub(in crate::protocol::consistent) told_us: u64,
}

impl Retiring {
    /// State with nothing under way.
    pub fn new(now_us: u64) -> Retiring {
        Retiring { since_us: now_us, told_us: now_us, ..Retiring::default() }
    }

    /// Members that have not answered yet.
    pub(in crate::protocol::consistent) fn held_by(
        &self,
        members: impl Iterator<Item = NodeId>,
        forgetting: bool,
    ) -> Vec<NodeId> {
        let answered = if forgetting { &self.forgot } else { &self.buried };
        members.filter(|node| !answered.contains(node)).collect()
    }
}

/// Leader's archiving state.
#[derive(Debug, Default)]
pub struct Archiving {
    pub(in crate::protocol::consistent) batch: Option<Batch>,
    /// Last of the tasks that were passed over. Tasks up to it are tried again after all others.
    pub(in crate::protocol::consistent) passed: Option<Due>,
    /// Earliest time of the next batch.
    pub(in crate::protocol::consistent) again_us: u64,
    /// Purged tasks of which this replica has lost something.
    pub(in crate::protocol::consistent) losses: BTreeMap<TaskId, Loss>,
}

/// Tasks on their way to the archive. Their tombstones are written once they are archived.
#[derive(Debug)]
pub(in crate::protocol::consistent) struct Batch {
    pub(in crate::protocol::consistent) number: u64,
    /// Tombstones, with the digests of the tasks at the time.
    pub(in crate::protocol::consistent) tombs: Vec<(TaskId, Tomb, Digest)>,
    pub(in crate::protocol::consistent) last: Due,
    /// While other members are asked: those members, each with the tasks of which it has the same facts, once it has answered.
    pub(in crate::protocol::consistent) asked: Option<BTreeMap<NodeId, Option<BTreeSet<TaskId>>>>,
    /// Deadline for asking other members or for loading the tasks. None while the archive has them.
    pub(in crate::protocol::consistent) until_us: Option<u64>,
}

impl Batch {
    /// Whether a member that was asked has the same facts of a task.
    pub(in crate::protocol::consistent) fn is_same_at(&self, node: NodeId, id: &TaskId) -> bool {
        let said = self.asked.as_ref().and_then(|asked| asked.get(&node)?.as_ref());
        said.is_some_and(|same| same.contains(id))
    }
}

/// Parts of a purged task that are lost, as far as known.
#[derive(Debug)]
pub(in crate::protocol::consistent) struct Loss {
    /// Digest of the task when the other members were asked.
    pub(in crate::protocol::consistent) digest: Digest,
    /// Parts that all of them have lost; absent while they are being asked.
    pub(in crate::protocol::consistent) everywhere: Option<Vec<Slot>>,
}

impl Loss {
    pub(in crate::protocol::consistent) fn is_asked(&self) -> bool {
        self.everywhere.is_none()
    }

    /// Whether everything that a loaded task lacks is lost at all members.
    pub(in crate::protocol::consistent) fn has_all_that_lacks(&self, task: &Task) -> bool {
        let Some(everywhere) = &self.everywhere else { return false };
        let blobs = task.blobs().filter(|(_, blob)| blob.here().is_none()).map(|(slot, _)| slot);
        let spec = task.spec.is_none().then_some(Slot::Spec);
        spec.into_iter().chain(blobs).all(|slot| everywhere.contains(&slot))
    }
}
