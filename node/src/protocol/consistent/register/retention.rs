//! What a leader remembers of tasks whose retention is over: how far it is with forgetting them (`consistent/forgetting.rs`), and with
//! having them archived before (`consistent/archiving.rs`).

use crate::protocol::task::{Digest, Slot, Task, Tomb};
use norn_wire::{NodeId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A task whose retention is over, by its place among the ended ones.
#[derive(Debug, Clone)]
pub(in crate::protocol::consistent) struct Due {
    pub(in crate::protocol::consistent) queue: Option<QueueName>,
    pub(in crate::protocol::consistent) at_ms: u64,
    pub(in crate::protocol::consistent) id: TaskId,
}

/// What a leader does about tasks whose retention is over.
#[derive(Debug, Default)]
pub struct Retiring {
    /// Number of the question under way.
    pub(in crate::protocol::consistent) number: u64,
    /// The tombstones it is about, in order; none, if there is no question.
    pub(in crate::protocol::consistent) ids: Vec<TaskId>,
    /// Members that have them on disk.
    pub(in crate::protocol::consistent) buried: BTreeSet<NodeId>,
    /// Nodes that know of no completion which brings tasks as old as these, and where they sat when they said so
    /// (`outboxes.rs`).
    pub(in crate::protocol::consistent) childless: BTreeMap<NodeId, u64>,
    /// Members that have forgotten what the table says.
    pub(in crate::protocol::consistent) forgot: BTreeSet<NodeId>,
    /// When this step began.
    pub(in crate::protocol::consistent) since_us: u64,
    /// When it was last told who keeps it from its end.
    pub(in crate::protocol::consistent) told_us: u64,
}

impl Retiring {
    /// Nothing is under way.
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

/// What a leader archives.
#[derive(Debug, Default)]
pub struct Archiving {
    pub(in crate::protocol::consistent) batch: Option<Batch>,
    /// The last of the tasks that were passed over. Those up to there have their turn when all others had.
    pub(in crate::protocol::consistent) passed: Option<Due>,
    /// Not before that.
    pub(in crate::protocol::consistent) again_us: u64,
    /// Purged tasks of which something is lost here.
    pub(in crate::protocol::consistent) losses: BTreeMap<TaskId, Loss>,
}

/// Tasks on their way to the archive, to be buried then.
#[derive(Debug)]
pub(in crate::protocol::consistent) struct Batch {
    pub(in crate::protocol::consistent) number: u64,
    /// With the digests that the tasks had.
    pub(in crate::protocol::consistent) tombs: Vec<(TaskId, Tomb, Digest)>,
    pub(in crate::protocol::consistent) last: Due,
    /// As long as others are asked: those that are, and of which tasks they know the same, once they have answered.
    pub(in crate::protocol::consistent) asked: Option<BTreeMap<NodeId, Option<BTreeSet<TaskId>>>>,
    /// Others are asked, or the tasks are loaded, until then. None while the archive has them.
    pub(in crate::protocol::consistent) until_us: Option<u64>,
}

impl Batch {
    /// Whether a member that was asked knows the same of a task.
    pub(in crate::protocol::consistent) fn is_same_at(&self, node: NodeId, id: &TaskId) -> bool {
        let said = self.asked.as_ref().and_then(|asked| asked.get(&node)?.as_ref());
        said.is_some_and(|same| same.contains(id))
    }
}

/// What is lost of a purged task, as far as is known.
#[derive(Debug)]
pub(in crate::protocol::consistent) struct Loss {
    /// Of the task when the others were asked.
    pub(in crate::protocol::consistent) digest: Digest,
    /// What all of them have lost; absent as long as they are asked.
    pub(in crate::protocol::consistent) everywhere: Option<Vec<Slot>>,
}

impl Loss {
    pub(in crate::protocol::consistent) fn is_asked(&self) -> bool {
        self.everywhere.is_none()
    }

    /// Whether what a task lacks that was loaded is lost everywhere.
    pub(in crate::protocol::consistent) fn has_all_that_lacks(&self, task: &Task) -> bool {
        let Some(everywhere) = &self.everywhere else { return false };
        let blobs = task.blobs().filter(|(_, blob)| blob.here().is_none()).map(|(slot, _)| slot);
        let spec = task.spec.is_none().then_some(Slot::Spec);
        spec.into_iter().chain(blobs).all(|slot| everywhere.contains(&slot))
    }
}
