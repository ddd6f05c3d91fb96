//! Child tasks in a completion, until they are enqueued on their own.
//!
//! The ids of the children and a hash of their specs are part of the completion's content. The specs themselves are kept as long as a
//! replica may have to hand them over. "Handed over" is the greater of two states, so that it merges like all facts.

use norn_wire::{NewTask, Spec, TaskId};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use std::cmp::Ordering;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Child tasks of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Children {
    /// In the order in which the client named them.
    pub ids: Vec<TaskId>,
    /// Hash of their specs.
    hash: u64,
    /// In the order of the ids; absent once all are handed over.
    #[serde(default)]
    specs: Option<Vec<Arc<Spec>>>,
    /// The child that is the join of a group, if one is.
    #[serde(default)]
    pub join: Option<TaskId>,
}

impl Serialize for Children {
    /// Fields are left out from the end where they are empty: digests in logs are over these bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: usize = 2;
        let later = [self.specs.is_some(), self.join.is_some()];
        let count = FIRST + later.iter().rposition(|is_there| *is_there).map_or(0, |place| place + 1);
        let mut children = serializer.serialize_struct("Children", count)?;
        children.serialize_field("ids", &self.ids)?;
        children.serialize_field("hash", &self.hash)?;
        if count > FIRST {
            children.serialize_field("specs", &self.specs)?;
        }
        if count > FIRST + 1 {
            children.serialize_field("join", &self.join)?;
        }
        children.end()
    }
}

impl Children {
    /// The children of a new completion; nothing where it has none.
    pub fn new(tasks: Vec<NewTask>) -> Option<Children> {
        if tasks.is_empty() {
            return None;
        }
        let is_join = |task: &&NewTask| task.spec.grouping.as_ref().is_some_and(|grouping| grouping.join.is_some());
        let join = tasks.iter().find(is_join).map(|task| task.id);
        let (ids, specs): (Vec<TaskId>, Vec<Arc<Spec>>) =
            tasks.into_iter().map(|task| (task.id, Arc::new(task.spec))).unzip();
        let bytes = rmp_serde::to_vec(&specs).expect("specs always encode");
        Some(Children { ids, hash: xxh3_64(&bytes), specs: Some(specs), join })
    }

    /// Whether they may not be enqueued yet.
    pub fn are_open(&self) -> bool {
        self.specs.is_some()
    }

    /// The tasks to enqueue.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, Arc<Spec>)> + '_ {
        self.ids.iter().copied().zip(self.specs.iter().flatten().cloned())
    }

    /// The same, once all are enqueued.
    #[must_use]
    pub fn handed(&self) -> Children {
        Children { ids: self.ids.clone(), hash: self.hash, specs: None, join: self.join }
    }

    /// Whether they are the same tasks, handed over or not.
    pub fn are(&self, other: &Children) -> bool {
        self.hash == other.hash && self.ids == other.ids
    }

    /// Approximate bytes in memory and in a message.
    pub fn size_bytes(&self) -> usize {
        let specs = self.specs.iter().flatten();
        32 + self.ids.len() * 20 + specs.map(|spec| super::outline::body_bytes(spec) + 64).sum::<usize>()
    }
}

impl Ord for Children {
    /// By content. Of equal content, children that are handed over are greater.
    fn cmp(&self, other: &Self) -> Ordering {
        let open = |children: &Children| children.specs.is_none();
        let of = |children: &Children| (children.hash, children.join, open(children));
        self.ids.cmp(&other.ids).then_with(|| of(self).cmp(&of(other)))
    }
}

impl PartialOrd for Children {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
