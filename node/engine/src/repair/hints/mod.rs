//! Hinted handoff: what a node keeps for absent members of a cohort, and hands over first when they are back.
//!
//! **Payload hints** (`PayloadHints`): facts of partitions that are not held here. A client that is content with one disk may write at a
//! node that holds no replica and reaches no member. That node keeps the facts: they are in its log before it answers, and its answer
//! counts its own disk as one copy. No other node has them, so they are never dropped for age or for want of room: with no room, the write
//! is refused.
//!
//! A payload hint is dropped (`settle_payload_hints`, `PayloadHints::fate`) once a majority of the cohort has the facts on disk. That
//! never leaves fewer copies than the answer promised. The promised copies are the keeper's and those of members. Of members with complete
//! facts fewer than a majority have one, or the write would be strict. So together with the keeper's these copies are a majority at most;
//! dropping at fewer members would give up a copy for nothing. Copies of members with incomplete facts stay where they are, and
//! anti-entropy keeps them. What a majority has is as safe as a strict write, and anti-entropy brings it to the rest. Two kinds of answers
//! do not count: those of a member that has lost records since (`forget_answers`), and those from before the keeper's own restart, which
//! are not logged.
//!
//! **Id hints** (`IdHints`): ids of tasks that a member lacks. While a member is away, the first live member in the order of preference
//! notes, once a round, which tasks have changed since the point up to which the absent one is known to know everything: its cursor among
//! the recent changes, extended beyond memory and beyond a restart. The facts are in the store. They are handed over before trees are
//! compared, which then find nothing. Nothing depends on them: the comparison finds the same, at a higher price. So they are dropped
//! where there is no room, and for a member that was away for longer than `hint_ttl_ms`.
//!
//! **No task comes back by a hint.** The keeper of a hint is a sender like any other. A member takes an unknown id that is not above its
//! watermark only from a replica that has forgotten as often, and the keeper of a partition that is not its own is never one
//! (`retention/forgetting.rs`). If a majority refuses a task for that, and so does each member that was ever sent it, it can never be
//! handed over: the hint is an orphan. Only the answers of members with complete facts count, as others may have lost what they say they do
//! not have; and a restarted member is asked anew. Members that took it are asked again when another refuses it, as it may have ended and
//! been forgotten since. The operator learns what an orphan is, and it is dropped.
//!
//! A record of hints that the log has lost is a copy less, as a lost record of facts is where a write was sloppy. No other node knows
//! what it was, so the node only reports the loss.

pub mod delivery;
pub mod id_hints;
pub mod payload_hints;

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::write_read::admission::grows;
use delivery::Delivery;
pub use id_hints::IdHints;
use norn_model::config::mutant;
use norn_model::limits::{EXCHANGE_TASKS_MAX, ORPHANS_MAX, RECENT_CHANGES_MAX};
use norn_model::message::{Items, Outcome, ReadWrite};
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::{NodeId, PartitionId, TaskId};
pub use payload_hints::PayloadHints;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Hints of a node, and their delivery.
#[derive(Debug, Default)]
pub struct Hints {
    /// Payload hints: facts of partitions that are not held here.
    pub payload_hints: PayloadHints,
    /// Id hints: what members lack.
    pub id_hints: IdHints,
    /// Delivery to each node.
    deliveries: BTreeMap<NodeId, Delivery>,
    /// Undeliverable hints that the operator was told of.
    orphans: BTreeMap<payload_hints::Key, ToldOrphan>,
    /// Number of records of hints that the log has lost.
    lost: u64,
    /// Tasks, ids and bytes as last reported to observers.
    reported: (u64, u64, u64),
    /// Time of the latest report that hints are kept for too long, by the wall clock.
    overdue_told_ms: u64,
}

/// An undeliverable hint as the operator was told of it. It is dropped in a later turn, as the records of a turn may be on disk before
/// its reports are written.
#[derive(Debug)]
struct ToldOrphan {
    version: u64,
    told_us: u64,
}

impl Hints {
    /// Whether there are no hints for any node.
    pub fn is_empty(&self) -> bool {
        self.payload_hints.is_empty() && self.id_hints.is_empty()
    }

    /// Approximate memory of all hints.
    fn bytes(&self) -> u64 {
        (self.payload_hints.bytes() + self.id_hints.bytes()) as u64
    }

    /// Discards what a node acknowledged in incarnations before `boot`.
    pub fn forget_answers(&mut self, node: NodeId, boot: u64) {
        self.payload_hints.forget_answers(node, boot);
        self.look_anew();
    }

    /// Notes that a node was restarted: it may take what it could not take before, and will not answer what it was sent.
    pub fn restarted(&mut self, node: NodeId) {
        self.payload_hints.forget_refusals(node);
        self.deliveries.remove(&node);
    }

    /// Begins another pass to each node, as there is more to hand over.
    pub fn look_anew(&mut self) {
        self.deliveries.values_mut().for_each(|delivery| delivery.begin_again(0));
    }
}

impl Node {
    /// Counts a record of hints that the log has lost, and that cannot be handed over.
    pub fn lose_hints(&mut self) {
        self.repair.hints.lost += 1;
    }

    /// Starts delivery once other nodes can be heard, and reports lost hints.
    pub(crate) fn begin_hints(&mut self) {
        self.pending_requests.listen(self.now.mono_us);
        if self.repair.hints.lost > 0 {
            self.outbox.observe(Observation::HintsLost { records: std::mem::take(&mut self.repair.hints.lost) });
        }
        self.drop_id_hints_to_strangers();
        // The last start may have ended between the record of a cohort and that of what was dropped for it.
        for partition in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.drop_id_hints_outside(partition);
        }
        self.arm_hints();
    }

    pub(crate) fn arm_hints(&mut self) {
        if !self.repair.hints.is_empty() {
            self.timers.set_if_none(Key::Hints, self.now.mono_us);
        }
    }

    /// Keeps the facts of a write for the members of a partition that is not held here. Answers the coordinator as a replica would.
    pub(crate) fn keep_hint(&mut self, request_id: u64, partition: PartitionId, items: &Items) {
        if self.partitions.get(&partition).is_some_and(|replica| !replica.is_blank()) {
            // Held here since: the replica answers for itself.
            return;
        }
        let mut stored = Vec::new();
        let mut outcomes = Vec::new();
        for (id, delta) in items.iter() {
            let outcome = self.admit_hint(partition, id, delta);
            if outcome == Outcome::Stored && self.repair.hints.payload_hints.keep(partition, *id, delta.clone()) {
                stored.push((*id, delta.clone()));
            }
            outcomes.push(outcome);
        }
        if !stored.is_empty() {
            let (since_ms, tasks) =
                (self.repair.hints.payload_hints.since(partition, self.now.wall_ms), stored.len() as u64);
            self.outbox.persist(Record::Hint { partition, since_ms, items: Arc::new(stored) });
            self.outbox.observe(Observation::HintKept { partition: partition.0, tasks });
            self.repair.hints.look_anew();
            self.arm_hints();
        }
        let answer = ReadWrite::Kept { request_id, partition, outcomes };
        if mutant!(self.config, HintNotDurable) {
            self.outbox.send(self.me, answer);
        } else {
            self.outbox.send_durable(self.me, answer);
        }
    }

    /// Whether facts may be kept. Whether a task was forgotten is not known here.
    fn admit_hint(&mut self, partition: PartitionId, id: &TaskId, delta: &Task) -> Outcome {
        let known = self.repair.hints.payload_hints.task(partition, id);
        if known.is_some_and(|task| task.knows(delta)) {
            return Outcome::Stored;
        }
        if known.is_some_and(|task| task.contradicts(delta).is_err()) {
            return Outcome::Conflict;
        }
        if known.is_none() && id.time_ms() > self.latest_id_ms() {
            return Outcome::Future;
        }
        if self.is_short_of_disk() && grows(known.is_some_and(|task| task.spec.is_some()), delta) {
            return Outcome::NoSpace;
        }
        let bare = known.is_none() && delta.spec.is_none();
        if bare && self.repair.hints.payload_hints.without_spec(partition) >= ORPHANS_MAX as u64 {
            return Outcome::Overloaded;
        }
        let more = payload_hints::size_bytes(delta) as u64;
        while self.repair.hints.bytes() + more > self.config.hints_bytes_max {
            // Id hints go first: nothing depends on them.
            let Some(node) = self.repair.hints.id_hints.oldest() else { return Outcome::Overloaded };
            self.drop_id_hints(node);
        }
        Outcome::Stored
    }

    /// Notes what an absent member lacks, if this node is the one to note it.
    pub(crate) fn note_absent(&mut self, node: NodeId) {
        // A cohort that is still to be changed may name a node that no roster has any more.
        if !self.has_peer(node) {
            return;
        }
        let (now_ms, ttl_ms) = (self.now.wall_ms, self.config.hint_ttl_ms);
        if self.repair.hints.id_hints.is_over(node, now_ms, ttl_ms) {
            self.drop_id_hints(node);
        }
        for partition in self.repair.anti_entropy.changed_without(node) {
            let replica = &self.partitions[&partition];
            let cohort = replica.cohort();
            let mut there = cohort.members().filter(|member| *member != node && self.is_alive(*member));
            if !cohort.has_voter(node) || there.next() != Some(self.me) {
                continue;
            }
            let changes = replica.store.changes();
            let known = self.repair.anti_entropy.known_to(node, partition).unwrap_or(changes);
            let from = self.repair.hints.id_hints.noted(node, partition, changes).unwrap_or(known);
            // Changes older than the ring of recent ones are left to the comparison of trees.
            let oldest = changes.saturating_sub(RECENT_CHANGES_MAX as u64);
            let Some(recent) = replica.store.recent_after(from.max(oldest)) else { continue };
            let room = self.config.hints_bytes_max.saturating_sub(self.repair.hints.bytes());
            let ids = self.repair.hints.id_hints.note(node, partition, recent, (now_ms, room));
            for part in ids.chunks(EXCHANGE_TASKS_MAX) {
                let since_ms = self.repair.hints.id_hints.since(node).expect("just noted");
                self.outbox.persist(Record::IdHint { to: node, partition, since_ms, ids: part.to_vec() });
            }
        }
        self.arm_hints();
    }

    /// Drops id hints of a partition for nodes that do not hold it, or if this node does not.
    pub(crate) fn drop_id_hints_outside(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let here = replica.cohort().has_voter(self.me) && !replica.is_blank();
        let owed = self.repair.hints.id_hints.to_whom(partition);
        let out: Vec<NodeId> = owed.into_iter().filter(|node| !here || !replica.cohort().has_voter(*node)).collect();
        for node in out {
            self.repair.hints.id_hints.remove(node, partition, &[]);
            self.outbox.persist(Record::Handed { to: Some(node), partition, ids: Vec::new() });
        }
    }

    /// Drops id hints for nodes that are no peers any more: these never come back.
    pub(crate) fn drop_id_hints_to_strangers(&mut self) {
        let strange: Vec<NodeId> = self.repair.hints.id_hints.nodes().filter(|node| !self.has_peer(*node)).collect();
        for node in strange {
            self.drop_id_hints(node);
            self.repair.hints.id_hints.is_back(node);
        }
    }

    /// Drops all id hints for a node.
    fn drop_id_hints(&mut self, node: NodeId) {
        let (mut partitions, mut tasks) = (Vec::new(), 0);
        for (partition, count) in self.repair.hints.id_hints.give_up(node) {
            partitions.push(partition);
            tasks += count;
        }
        for partition in partitions {
            self.outbox.persist(Record::Handed { to: Some(node), partition, ids: Vec::new() });
        }
        if tasks > 0 {
            self.outbox.observe(Observation::HintsDropped { tasks });
        }
    }

    /// Restores payload hints from the log.
    pub(crate) fn recover_hint(
        &mut self,
        partition: PartitionId,
        since_ms: u64,
        items: &[(TaskId, Task)],
    ) -> Result<(), String> {
        let known = self.genesis.as_ref().is_some_and(|genesis| u32::from(partition.0) < genesis.partitions);
        if !known {
            return Err(format!("a hint for partition {partition}, which is none"));
        }
        for (id, delta) in items {
            self.repair.hints.payload_hints.keep(partition, *id, delta.clone());
        }
        self.repair.hints.payload_hints.set_since(partition, since_ms);
        Ok(())
    }

    /// Restores id hints from the log. A node that is in no roster was in one when this was written.
    pub(crate) fn recover_id_hints(
        &mut self,
        to: NodeId,
        partition: PartitionId,
        since_ms: u64,
        ids: &[TaskId],
    ) -> Result<(), String> {
        let known = self.genesis.as_ref().is_some_and(|genesis| u32::from(partition.0) < genesis.partitions);
        if !known {
            return Err(format!("what node {to} lacks of partition {partition}, which is none"));
        }
        self.replica_mut(partition)?;
        self.repair.hints.id_hints.recover(to, partition, since_ms, ids);
        Ok(())
    }

    /// Restores from the log that hints were handed over.
    pub(crate) fn recover_handed(&mut self, to: Option<NodeId>, partition: PartitionId, ids: &[TaskId]) {
        match to {
            Some(node) => self.repair.hints.id_hints.remove(node, partition, ids),
            None => ids.iter().for_each(|id| self.repair.hints.payload_hints.remove(partition, id)),
        }
    }
}

impl Node {
    /// Checks the counts, and that a timer is set for delivery.
    pub(crate) fn check_hints(&self) -> Result<(), String> {
        self.repair.hints.payload_hints.check()?;
        self.repair.hints.id_hints.check()?;
        if !self.repair.hints.is_empty() && !self.starting && !self.timers.is_set(Key::Hints) {
            return Err("hints are kept, and no timer is set for them".into());
        }
        Ok(())
    }
}
