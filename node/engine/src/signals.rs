//! What follows from what a folder reports to those above it, in the order in which it is reported.

use crate::Node;
use crate::context::signals::{RosterChange, Signal, Total};
use norn_model::consensus::Waiting;
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::{PartitionId, Response, TaskId};
use std::collections::VecDeque;

impl Node {
    /// Hands out all signals. What follows from one may report others; they come last.
    pub(crate) fn handle_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::Established(partition) => self.on_established(partition),
                Signal::LoadedForGrant { session, parts } => {
                    self.loaded_for_grant(session, parts.into_iter());
                }
                Signal::LoadedForArchive { partition, number, tasks } => self.archive_whole(partition, number, tasks),
                Signal::LoadedForTransaction { key, loaded, parts } => {
                    self.loaded_for_transaction(key, loaded, parts.into_iter());
                }
                Signal::LeaderElsewhere => self.follow_anew(),
                Signal::ReplicaAnswered(partition) => self.ask_for_operations(partition),
                Signal::RosterChanged(change) => self.on_roster_changed(&change),
                Signal::RouteChanged => self.on_route_changed(),
                Signal::SteppedDown { partition, epoch, waiting } => self.on_stepped_down(partition, epoch, waiting),
                Signal::Committed { partition, epoch, ready } => self.on_committed(partition, epoch, ready),
                Signal::Endings { partition, items } => {
                    self.merge(partition, items);
                }
                Signal::SpecsMissing { partition, node, ids } => self.send_specs(partition, node, &ids),
                Signal::SlotTaken(partition) => self.pair_up(partition),
                Signal::CohortChanged(partition) => self.on_cohort_changed(partition),
                Signal::FactsMissing(partition) => self.queries.uncover(partition),
                Signal::Left(partition) => self.on_left(partition),
                Signal::WriteEnded(request_id) => self.write_ended(request_id),
                Signal::Unreached { request_id, partition, items } => self.keep_hint(request_id, partition, &items),
                Signal::ChildrenBrought(partition) => self.arm_children(partition),
                Signal::Freed(partition) => self.arm_retire(partition),
                Signal::Purged { partition, ids } => self.retire_purged(partition, ids),
                Signal::Ended { partition, ids } => self.on_ended(partition, &ids),
                Signal::EndedInTable { partition, ids } => self.tell_ended(partition, &ids),
                Signal::Blocked { partition, by } => self.note_blocked(partition, by),
                Signal::SessionsHeeded { partition, sessions } => self.ask_for_ends(partition, sessions.into_iter()),
                Signal::EndAwaited(request_id) => self.follow_for_read(request_id),
                Signal::StatusCounted(total) => self.on_status_counted(*total),
            }
        }
    }

    /// The leader takes over what its predecessor left, if it still leads: first what has been collected, as nothing of that is
    /// granted again, then claims, workflow and limits. Heads are published once all of that is in place.
    fn on_established(&mut self, partition: PartitionId) {
        if !self.partitions[&partition].consensus.established() {
            return;
        }
        self.forget(partition);
        self.settle_inherited(partition);
        self.inherit_reserved(partition);
        self.inherit_transactions(partition);
        self.ask_for_keys(partition);
        self.begin_following(partition);
        self.track_inherited_sessions(partition);
        self.begin_coordinator(partition);
        self.begin_slot_quotas(partition);
        self.arm_retire(partition);
        self.arm_expiry(partition);
        self.publish_all_heads(partition);
        self.dirty_heads.insert(partition);
    }

    /// Hints for nodes that are no peers any more go first. Then claims go by the new policies: order and heads of the queues whose
    /// policy changed, and workers that waited for a paused queue. New peers are synchronised, and the controller looks at the members.
    fn on_roster_changed(&mut self, change: &RosterChange) {
        self.drop_id_hints_to_strangers();
        self.slot_quotas_soon();
        self.rates_changed();
        for queue in &change.reordered {
            self.follow_policy_everywhere(queue);
            self.publish_again(queue);
        }
        change.resumed.iter().for_each(|queue| self.tell_all_waiting(queue));
        change.fresh.iter().for_each(|node| self.begin_anti_entropy_with(*node));
        self.steer_soon();
    }

    /// Other members may be owed what is kept for them, and the controller looks at the layout.
    fn on_route_changed(&mut self) {
        self.repair.look_anew();
        self.steer_soon();
    }

    /// The former leader drops what it knew as the leader, workflow first, and withdraws its heads. Then it answers calls that wait for
    /// operations: these answers name heads, and no head of this partition.
    fn on_stepped_down(&mut self, partition: PartitionId, epoch: Epoch, waiting: VecDeque<(u64, Waiting)>) {
        self.forget_dead_letters_of(partition);
        self.forget_uniques_of(partition);
        self.forget_transactions_of(partition);
        self.end_coordinator(partition);
        self.end_slot_quotas(partition);
        self.unpublish_heads(partition);
        self.workflow.step_down(partition);
        self.claims.step_down(partition);
        for (length, waiting) in waiting {
            self.give_up(Viewstamp { epoch, length }, waiting);
        }
    }

    /// Operations are committed: runs what waited for them, in order, then reports quotas that they made smaller.
    fn on_committed(&mut self, partition: PartitionId, epoch: Epoch, ready: Vec<(u64, Waiting)>) {
        for (length, waiting) in ready {
            self.committed(partition, Viewstamp { epoch, length }, waiting);
        }
        self.tell_lowered(partition);
    }

    /// Repair follows the new cohort; a leader begins anew to ask the members of it what may be forgotten.
    fn on_cohort_changed(&mut self, partition: PartitionId) {
        self.pair_up(partition);
        self.drop_id_hints_outside(partition);
        self.arm_retire(partition);
    }

    /// Repair leaves the partition to others.
    fn on_left(&mut self, partition: PartitionId) {
        self.pair_up(partition);
        self.drop_id_hints_outside(partition);
    }

    /// The claims of ended tasks are dropped, the tasks are kept for a while, and readers and tasks that wait for them are told.
    fn on_ended(&mut self, partition: PartitionId, ids: &[TaskId]) {
        self.arm_drop(partition);
        self.arm_retire(partition);
        self.tell_ended(partition, ids);
    }

    /// The other part of a status is what this node knows of the cluster.
    fn on_status_counted(&mut self, Total { client, number, total, unheard }: Total) {
        let status = self.status(total, unheard).expect("asked only in a cluster");
        self.outbox.reply(client, number, Response::Status(Box::new(status)));
    }
}
