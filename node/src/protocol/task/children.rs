//! Tasks that travel in a completion, until they are enqueued on their own.
//!
//! What they are is part of the completion's content: who they are and a hash of all of it. Their specs are there as long as
//! somebody may have to hand them over. That it was done is the greater of two states, so that it merges as all facts do.

use norn_client::wire::{NewTask, Spec, TaskId};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Children {
    /// In the order in which they were named.
    pub ids: Vec<TaskId>,
    /// Of their specs.
    hash: u64,
    /// In the order of the ids; absent once all are handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    specs: Option<Vec<Arc<Spec>>>,
}

impl Children {
    /// Of a completion that is new; nothing where it brings none.
    pub fn new(tasks: Vec<NewTask>) -> Option<Children> {
        if tasks.is_empty() {
            return None;
        }
        let (ids, specs): (Vec<TaskId>, Vec<Arc<Spec>>) =
            tasks.into_iter().map(|task| (task.id, Arc::new(task.spec))).unzip();
        let bytes = rmp_serde::to_vec(&specs).expect("specs always encode");
        Some(Children { ids, hash: xxh3_64(&bytes), specs: Some(specs) })
    }

    /// Whether they may not be enqueued yet.
    pub fn are_open(&self) -> bool {
        self.specs.is_some()
    }

    /// What is to be enqueued.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, Arc<Spec>)> + '_ {
        self.ids.iter().copied().zip(self.specs.iter().flatten().cloned())
    }

    /// The same, once all are enqueued.
    #[must_use]
    pub fn handed(&self) -> Children {
        Children { ids: self.ids.clone(), hash: self.hash, specs: None }
    }

    /// Whether they are the same tasks, handed over or not.
    pub fn are(&self, other: &Children) -> bool {
        self.hash == other.hash && self.ids == other.ids
    }

    /// Bytes in memory and in a message, about.
    pub fn size_bytes(&self) -> usize {
        let specs = self.specs.iter().flatten();
        32 + self.ids.len() * 20 + specs.map(|spec| super::outline::body_bytes(spec) + 64).sum::<usize>()
    }
}

impl Ord for Children {
    /// By content; of the same content what is handed over is greater.
    fn cmp(&self, other: &Self) -> Ordering {
        let open = |children: &Children| children.specs.is_none();
        (&self.ids, self.hash, open(self)).cmp(&(&other.ids, other.hash, open(other)))
    }
}

impl PartialOrd for Children {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
