//! Child tasks of a completion, and their delivery to their own partitions (an outbox per completion).
//!
//! A completion carries its children as facts. Each replica that has it keeps sending them, as ordinary strict writes under the ids that
//! the client minted, until all are acknowledged. Then it writes, strictly as well, that they are handed over; from then on only their
//! ids are kept. The leader begins at once, the other replicas when the leader seems not to.
//!
//! **No child is lost.** A task with an open outbox is not buried. A leader that did not know of the completion may bury it all the same;
//! then the completion stays beside the tombstone (`Facts::buried`). A member with such an outbox does not acknowledge the tombstone, so
//! the task is not forgotten either. A member that may have acknowledged it takes no outbox (`Store::takes_outbox`). A replica that joins
//! a cohort gets the outbox like all facts.
//!
//! **No child comes back.** A child is written like a client's enqueue: a replica that may have forgotten it refuses it by its
//! watermark (`retention/forgetting.rs`). So a child that was finished and forgotten stays forgotten, whichever replica sends it again
//! and whenever. Floors do not pass the children of a strictly acknowledged completion before they are enqueued
//! (`retention/drained.rs`). So a refused child was enqueued before, or its completion was never acknowledged as strict and reached
//! the others too late. The delivery is then over as if it had been handed over, and the operator learns of it
//! (`Observation::ChildRefused`).

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::write_read::coordinate::Writer;
use norn_model::cohort::Role;
use norn_model::config::mutant;
use norn_model::limits::DELIVERIES_MAX;
use norn_model::task::{Completed, Task};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::response::Acked;
use norn_wire::{Acks, PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// How long replicas that do not lead wait for the leader to hand over.
const PATIENCE_MS: u64 = 2_000;
/// Time until a leader retries what could not be handed over.
const AGAIN_MS: u64 = 1_000;

/// The children of one completion on their way, or the note that they have arrived.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    partition: PartitionId,
    id: TaskId,
    token: Token,
    /// The note that they have arrived is being written.
    closing: bool,
}

/// Deliveries under way.
#[derive(Debug, Default)]
pub struct Deliveries {
    open: BTreeSet<(TaskId, Token)>,
    /// Where the next scan of a partition begins, so that children that cannot be handed over do not hold up the rest.
    after: BTreeMap<PartitionId, TaskId>,
}

impl Node {
    /// Sets the timer of a partition in which a completion has brought children.
    pub(crate) fn arm_children(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let wait_ms = if replica.consensus.established() { 0 } else { PATIENCE_MS };
        self.timers.set_if_none(Key::Children(partition), self.after_ms(wait_ms));
    }

    /// Scans for open outboxes now and then: facts arrive in many ways, and leaders change.
    pub(crate) fn look_for_children(&mut self) {
        let open = |replica: &&norn_model::replica::Partition| replica.store.outboxes_after(None).next().is_some();
        let partitions: Vec<PartitionId> = self.partitions.values().filter(open).map(|replica| replica.id).collect();
        for partition in partitions {
            let leads = self.partitions[&partition].consensus.established();
            let wait_ms = if leads { AGAIN_MS } else { PATIENCE_MS };
            self.timers.set_if_none(Key::Children(partition), self.after_ms(wait_ms));
        }
    }

    /// Begins to hand over the children of completions, a bounded number at a time.
    pub(crate) fn hand_over_children(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| replica.role() == Role::Member) else {
            return;
        };
        let deliveries = &self.workflow.deliveries;
        let room = DELIVERIES_MAX.saturating_sub(deliveries.open.len());
        let after = deliveries.after.get(&partition).copied();
        let ids = replica.store.outboxes_after(after);
        let tasks = ids.filter_map(|id| Some((id, replica.store.task(&id)?)));
        let open = tasks.flat_map(|(id, task)| task.outbox().map(move |(token, done)| (id, token, done)));
        let fresh = open.filter(|(id, token, _)| !deliveries.open.contains(&(*id, *token)));
        let chosen: Vec<(TaskId, Token, Completed)> =
            fresh.take(room).map(|(id, token, done)| (id, token, done.clone())).collect();
        match chosen.last() {
            Some((id, ..)) => self.workflow.deliveries.after.insert(partition, *id),
            None => self.workflow.deliveries.after.remove(&partition),
        };
        let more = !chosen.is_empty();
        for (id, token, done) in chosen {
            let Some(children) = done.open_children() else { continue };
            let items = children.tasks().map(|(child, spec)| (child, Task::from_spec(spec))).collect();
            let delivery = Delivery { partition, id, token, closing: false };
            self.workflow.deliveries.open.insert((id, token));
            self.write_for(Writer::Children(delivery), items, (Acks::Quorum, false));
            if mutant!(self.config, ClosesEarly) {
                self.close_children(delivery);
            }
        }
        if more {
            self.timers.set_if_none(Key::Children(partition), self.after_ms(AGAIN_MS));
        }
    }

    /// Handles the end of a write of children, or of the note that they have arrived.
    pub(crate) fn children_written(&mut self, delivery: Delivery, results: &[Result<Acked, Error>]) {
        let failed = |result: &Result<Acked, Error>, code| result.as_ref().is_err_and(|error| error.code == code);
        let over = |result: &Result<Acked, Error>| result.as_ref().err().is_none_or(is_never_brought);
        let done = results.iter().all(over);
        if !done || delivery.closing {
            self.workflow.deliveries.open.remove(&(delivery.id, delivery.token));
            return;
        }
        if results.iter().any(|result| failed(result, ErrorCode::TooOld)) {
            self.outbox.observe(Observation::ChildRefused { partition: delivery.partition.0, id: delivery.id });
        }
        self.close_children(delivery);
    }

    /// Writes that all children of a completion are enqueued.
    fn close_children(&mut self, delivery: Delivery) {
        let Delivery { partition, id, token, .. } = delivery;
        let task = self.partitions.get(&partition).and_then(|replica| replica.store.task(&id));
        let done = task.and_then(|task| task.outbox().find(|(other, _)| *other == token)).map(|(_, done)| done.clone());
        let Some(done) = done else {
            self.workflow.deliveries.open.remove(&(id, token));
            return;
        };
        let children = done.children.as_ref().map(|children| children.handed());
        let handed = Task::from_completion(token, Completed { children, ..done });
        let delivery = Delivery { closing: true, ..delivery };
        self.write_for(Writer::Children(delivery), vec![(id, handed)], (Acks::Quorum, false));
    }
}

/// Whether a refusal of a child is final. A conflict is: the id belongs to another task, which is no child of this completion, and stays.
pub(crate) fn is_never_brought(error: &Error) -> bool {
    matches!(error.code, ErrorCode::Conflict | ErrorCode::TooOld)
}
