//! Tasks that a completion brought are enqueued in their own partitions.
//!
//! A completion carries its children as facts. Each replica that has it goes on sending them, as ordinary strict writes under
//! the ids that they have had since the client minted them, until all are acknowledged; then it writes, strictly as well, that
//! they are handed over, and from then on only their ids are kept. The leader begins at once, the others when it seems not to.
//!
//! **Nothing is lost.** Before that a task is not buried, and where a leader that did not know of the completion buries it all
//! the same, the completion stays beside the tombstone (`Facts::buried`). A member that has one does not say that it has the
//! tombstone, so that the task is not forgotten either; and one that may have said so takes none (`Store::takes_outbox`). Whoever
//! joins a cohort gets it as all facts.
//!
//! **Nothing comes back.** A child is written as what a client enqueues is: a replica that may have forgotten it refuses it by
//! its floor (`forgetting.rs`). So a child that was finished and forgotten stays so, whoever sends it again and whenever. Floors
//! do not pass what a strictly acknowledged completion brings before it is enqueued (`outboxes.rs`). So one that is refused was
//! enqueued before, or the completion was never acknowledged as strict, and was seen by others too late. It is over then, as
//! if it was handed over, and the operator is told (`Observation::ChildRefused`).

use super::Writer;
use crate::config::mutant;
use crate::limits::DELIVERIES_MAX;
use crate::protocol::consistent::cohort::Role;
use crate::protocol::task::{Completed, Task};
use crate::protocol::timers::Key;
use crate::protocol::{Node, Observation};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::request::Completion;
use norn_wire::response::Acked;
use norn_wire::{Acks, PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};

/// Replicas that do not lead wait so long for the leader to hand over.
const PATIENCE_MS: u64 = 2_000;
/// Until a leader looks again at what could not be handed over.
const AGAIN_MS: u64 = 1_000;

/// One completion's children on their way, or the word that they have arrived.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    partition: PartitionId,
    id: TaskId,
    token: Token,
    /// They have arrived.
    closing: bool,
}

/// What is on its way.
#[derive(Debug, Default)]
pub struct Deliveries {
    open: BTreeSet<(TaskId, Token)>,
    /// Where the next look begins, so that what cannot be handed over does not keep back the rest.
    after: BTreeMap<PartitionId, TaskId>,
}

impl Node {
    /// Whether completions may be taken with the tasks that they bring.
    pub(super) fn admit_children(&self, items: &[Completion]) -> Result<(), Error> {
        let mut children = items.iter().flat_map(|item| &item.children).peekable();
        if children.peek().is_none() {
            return Ok(());
        }
        children.find_map(|child| self.refuse_future(child.id)).map_or(Ok(()), Err)
    }

    /// A completion has brought tasks.
    pub(super) fn arm_children(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let wait_ms = if replica.register.established() { 0 } else { PATIENCE_MS };
        self.timers.set_if_none(Key::Children(partition), self.after_ms(wait_ms));
    }

    /// Facts come in many ways, and leaders change: what is left is looked for now and then.
    pub(in crate::protocol) fn look_for_children(&mut self) {
        let open = |replica: &&crate::protocol::Partition| replica.store.outboxes_after(None).next().is_some();
        let partitions: Vec<PartitionId> = self.partitions.values().filter(open).map(|replica| replica.id).collect();
        for partition in partitions {
            let leads = self.partitions[&partition].register.established();
            let wait_ms = if leads { AGAIN_MS } else { PATIENCE_MS };
            self.timers.set_if_none(Key::Children(partition), self.after_ms(wait_ms));
        }
    }

    /// Begins to hand over what completions brought, some of it at a time.
    pub(in crate::protocol) fn hand_over_children(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| replica.role() == Role::Member) else {
            return;
        };
        let deliveries = &self.asks.deliveries;
        let room = DELIVERIES_MAX.saturating_sub(deliveries.open.len());
        let after = deliveries.after.get(&partition).copied();
        let ids = replica.store.outboxes_after(after);
        let tasks = ids.filter_map(|id| Some((id, replica.store.task(&id)?)));
        let open = tasks.flat_map(|(id, task)| task.outbox().map(move |(token, done)| (id, token, done)));
        let fresh = open.filter(|(id, token, _)| !deliveries.open.contains(&(*id, *token)));
        let chosen: Vec<(TaskId, Token, Completed)> =
            fresh.take(room).map(|(id, token, done)| (id, token, done.clone())).collect();
        match chosen.last() {
            Some((id, ..)) => self.asks.deliveries.after.insert(partition, *id),
            None => self.asks.deliveries.after.remove(&partition),
        };
        let more = !chosen.is_empty();
        for (id, token, done) in chosen {
            let Some(children) = done.open_children() else { continue };
            let items = children.tasks().map(|(child, spec)| (child, Task::from_spec(spec))).collect();
            let delivery = Delivery { partition, id, token, closing: false };
            self.asks.deliveries.open.insert((id, token));
            self.write_for(Writer::Children(delivery), items, (Acks::Quorum, false));
            if mutant!(self.config, ClosesEarly) {
                self.close_children(delivery);
            }
        }
        if more {
            self.timers.set_if_none(Key::Children(partition), self.after_ms(AGAIN_MS));
        }
    }

    /// A write of children has ended, or of the word that they have arrived.
    pub(super) fn children_written(&mut self, delivery: Delivery, results: &[Result<Acked, Error>]) {
        let failed = |result: &Result<Acked, Error>, code| result.as_ref().is_err_and(|error| error.code == code);
        let over = |result: &Result<Acked, Error>| result.as_ref().err().is_none_or(is_never_brought);
        let done = results.iter().all(over);
        if !done || delivery.closing {
            self.asks.deliveries.open.remove(&(delivery.id, delivery.token));
            return;
        }
        if results.iter().any(|result| failed(result, ErrorCode::TooOld)) {
            self.outbox.observe(Observation::ChildRefused { partition: delivery.partition.0, id: delivery.id });
        }
        self.close_children(delivery);
    }

    /// Writes down that all children of a completion are enqueued.
    fn close_children(&mut self, delivery: Delivery) {
        let Delivery { partition, id, token, .. } = delivery;
        let task = self.partitions.get(&partition).and_then(|replica| replica.store.task(&id));
        let done = task.and_then(|task| task.outbox().find(|(other, _)| *other == token)).map(|(_, done)| done.clone());
        let Some(done) = done else {
            self.asks.deliveries.open.remove(&(id, token));
            return;
        };
        let children = done.children.as_ref().map(|children| children.handed());
        let handed = Task::from_completion(token, Completed { children, ..done });
        let delivery = Delivery { closing: true, ..delivery };
        self.write_for(Writer::Children(delivery), vec![(id, handed)], (Acks::Quorum, false));
    }
}

/// Whether a refusal of a child is final. Another task under its id cannot be a child's doing: there is one, and it stays.
pub(super) fn is_never_brought(error: &Error) -> bool {
    matches!(error.code, ErrorCode::Conflict | ErrorCode::TooOld)
}
