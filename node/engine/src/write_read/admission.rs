//! Admission: what a replica stores of the facts that it is sent, and what a coordinator refuses before it sends anything.

use super::group::refused;
use crate::Node;
use crate::membership::id_allocator::is_old;
use norn_model::config::mutant;
use norn_model::limits::ORPHANS_MAX;
use norn_model::message::Outcome;
use norn_model::task::{Completed, Task};
use norn_wire::error::Error;
use norn_wire::membership::Mode;
use norn_wire::request::Completion;
use norn_wire::{PartitionId, Spec, TaskId, Token};
use std::sync::Arc;

/// Whether facts make the log grow for good, rather than bring a task to its end. `known`: the task's spec is stored already.
pub(crate) fn grows(known: bool, delta: &Task) -> bool {
    delta.spec.is_some() && !known || delta.facts.as_ref().is_some_and(|facts| !facts.updates.is_empty())
}

impl Node {
    /// Whether this node's replica would store a new task.
    pub(crate) fn admit_unique(&self, partition: PartitionId, id: TaskId, spec: &Arc<Spec>) -> Result<(), Error> {
        match self.admit(partition, &id, &Task::from_spec(spec.clone())) {
            Outcome::Stored | Outcome::StoredOrphan => Ok(()),
            outcome => Err(refused(outcome, true)),
        }
    }

    /// Whether completions may be accepted with the children that they bring.
    pub(crate) fn admit_children(&self, items: &[Completion]) -> Result<(), Error> {
        let mut children = items.iter().flat_map(|item| &item.children).peekable();
        if children.peek().is_none() {
            return Ok(());
        }
        children.find_map(|child| self.refuse_future(child.id)).map_or(Ok(()), Err)
    }

    /// Whether this node's replica stores facts about a task.
    pub(crate) fn admit(&self, partition: PartitionId, id: &TaskId, delta: &Task) -> Outcome {
        let replica = &self.partitions[&partition];
        let store = &replica.store;
        let is_late = self.brings_late(delta.outbox().map(|(_, done)| done));
        if is_late || !store.takes_outbox(id, delta) {
            return Outcome::TooOld;
        }
        if store.tombstone(id).is_some() {
            return Outcome::Stored;
        }
        if replica.may_have_forgotten(id) && !mutant!(self.config, FloorIgnored) {
            return Outcome::TooOld;
        }
        if self.lacks_seal(partition, id, delta) {
            return Outcome::Unsealed;
        }
        let known = store.task(id);
        if known.is_some_and(|task| task.contradicts(delta).is_err()) {
            return Outcome::Conflict;
        }
        if known.is_none() && id.time_ms() > self.latest_id_ms() {
            return Outcome::Future;
        }
        if known.is_none() && delta.spec.is_some() && self.payloads.tasks() as u64 >= self.config.tasks_max {
            return Outcome::Overloaded;
        }
        let grows_here = || grows(known.is_some_and(|task| task.spec.is_some()), delta);
        if self.is_short_of_disk() && grows_here() {
            return Outcome::NoSpace;
        }
        if self.is_short_of_memory() && grows_here() && !self.brings_here(id) {
            return Outcome::Overloaded;
        }
        if delta.spec.is_some() || known.is_some_and(|task| task.spec.is_some()) {
            return Outcome::Stored;
        }
        if known.is_none() && store.index().orphans() >= ORPHANS_MAX {
            Outcome::Overloaded
        } else {
            Outcome::StoredOrphan
        }
    }

    /// Whether a completion brings tasks that are so old that they might be forgotten before they are enqueued.
    pub(crate) fn brings_late<'a>(&self, mut completions: impl Iterator<Item = &'a Completed>) -> bool {
        let is_old = |child: &TaskId| is_old(child, self.config.forget_after_ms / 2, self.now.wall_ms);
        completions.any(|done| done.open_children().is_some_and(|children| children.ids.iter().any(is_old)))
    }

    /// Whether a completion kept here brings this task. Until it is handed over the child is in memory with its completion, and can leave
    /// only then.
    fn brings_here(&self, id: &TaskId) -> bool {
        self.partitions.values().any(|replica| replica.store.is_brought(id))
    }

    /// Whether a fact would end a task without the seal that its completion needs: under a token that no claim of it has. A replica
    /// that knows of no claim decides by what it has merged before, or else by the queue.
    fn lacks_seal(&self, partition: PartitionId, id: &TaskId, delta: &Task) -> bool {
        // Facts of a purged task come from replicas, not from a client.
        let Some(facts) = delta.facts.as_ref().filter(|facts| !facts.purged) else { return false };
        let mut unsealed = facts.completions.iter().map(|(token, _)| *token).filter(|token| !token.needs_seal());
        unsealed.any(|token| self.is_forged(partition, id, token)) && !mutant!(self.config, UnsealedCounts)
    }

    fn is_forged(&self, partition: PartitionId, id: &TaskId, token: Token) -> bool {
        let replica = &self.partitions[&partition];
        if replica.had_claim(id, token) {
            return false;
        }
        let facts = replica.store.task(id).and_then(|task| task.facts.as_ref());
        let known = facts.and_then(|facts| facts.completions.iter().find(|(other, _)| *other == token));
        if known.is_some_and(|(_, done)| done.children.is_some()) {
            // Its child tasks are being handed over.
            return false;
        }
        if let Some(entry) = replica.consensus.claim_entry(id) {
            return entry.token.needs_seal();
        }
        if let Some(facts) = facts.filter(|facts| facts.seal.is_some() || !facts.claims.is_empty()) {
            return facts.seal.is_some() || facts.claims.iter().any(|(token, _)| token.needs_seal());
        }
        known.is_none() && self.policy_of_task(partition, id).is_some_and(|policy| policy.mode == Mode::Holder)
    }
}
