//! Unsafe recovery: an operator declares that a majority of a cohort is lost for good (R-13 of the design).
//!
//! No rule recovers such a partition by itself, because the survivors cannot know what the lost replicas had decided. So this
//! happens only on a person's word, which names the lost nodes. The survivor that is asked to go on needs the votes of *all*
//! other survivors, in an epoch far above any that the lost replicas may have reached. From then on no survivor follows an
//! earlier leader, and by the rule of every vote the candidate has the latest table of the survivors. That table then names the
//! survivors as the members, and the lost replicas as draining replicas: should one of them come back after all, it hands over what it has
//! and leaves.
//!
//! What only the lost replicas had is lost: claims, and facts about tasks. A worker may go on with a claim that only they knew
//! of, so nothing is granted for as long as the longest lease lasts, by both clocks of the leader at that time ([`GrantQuarantine`]).
//!
//! It is refused wherever it is not the last resort: where the cohort has a majority without the lost nodes, and where any
//! survivor hears from one of them.

use crate::Node;
use crate::effect::Observation;
use crate::event::ClientId;
use norn_model::cohort::GrantQuarantine;
use norn_model::consensus::{Rescue, Role};
use norn_model::limits::{EPOCH_STEP_MAX, RESCUE_EPOCHS};
use norn_model::message::Election;
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::membership::Remnant;
use norn_wire::{NodeId, PartitionId, Response};
use std::collections::{BTreeMap, BTreeSet};

impl Node {
    /// Reports which partitions have no majority without the lost nodes, and starts the recovery of `partitions`.
    pub(crate) fn rescue(&mut self, (client, number): (ClientId, u64), rescue: &Rescue, partitions: &[PartitionId]) {
        let held: Vec<PartitionId> = self.partitions.keys().copied().collect();
        let remnants: Vec<Remnant> = held.into_iter().filter_map(|id| self.remnant(id, &rescue.lost)).collect();
        let refused = partitions.iter().find_map(|id| match remnants.iter().find(|remnant| remnant.partition == *id) {
            None => Some(format!("partition {id} needs no recovery, or is not held here")),
            Some(remnant) => remnant.obstacle.as_ref().map(|obstacle| format!("partition {id}: {obstacle}")),
        });
        let response = match refused {
            Some(reason) => Response::Error(Error::new(ErrorCode::Conflict, reason)),
            None => {
                partitions.iter().for_each(|id| self.begin_rescue(*id, rescue));
                Response::Remnants(remnants)
            }
        };
        self.outbox.reply(client, number, response);
    }

    /// Returns what is left of a partition, if the replica here is a voter and there is no majority without the lost nodes.
    fn remnant(&self, partition: PartitionId, lost: &BTreeSet<NodeId>) -> Option<Remnant> {
        let replica = self.partitions.get(&partition).filter(|replica| !replica.is_blank())?;
        let cohort = replica.cohort();
        if !cohort.has_voter(self.me) || lost.contains(&self.me) || cohort.quorum(|node| !lost.contains(&node)) {
            return None;
        }
        let viewstamp = replica.consensus.viewstamp;
        let left: Vec<NodeId> = cohort.voters().into_iter().filter(|node| !lost.contains(node)).collect();
        assert!(left.contains(&self.me), "a survivor is not among those that are left");
        assert!(left.len() < cohort.voters().len(), "a cohort without losses has no majority");
        Some(Remnant {
            partition,
            cohort: cohort.voters(),
            obstacle: self.obstacle(partition, &left, lost),
            left,
            epoch: viewstamp.epoch,
            length: viewstamp.length,
            tasks: replica.store.count() as u64,
            claims: replica.consensus.table.entries.len() as u64,
        })
    }

    /// Returns the reason against going on without the lost nodes, if there is one.
    fn obstacle(&self, partition: PartitionId, left: &[NodeId], lost: &BTreeSet<NodeId>) -> Option<String> {
        let name = |node: &NodeId| self.name_of(*node);
        let cohort = self.partitions[&partition].cohort();
        if let Some(node) = cohort.nodes().iter().find(|node| lost.contains(node) && self.is_alive(**node)) {
            return Some(format!("{} is alive, and is said to be lost", name(node)));
        }
        if let Some(node) = left.iter().find(|node| **node != self.me && !self.is_alive(**node)) {
            return Some(format!("{} does not answer; start it, or say that it is lost as well", name(node)));
        }
        if self.partitions[&partition].loss_recovery.data_loss.table {
            return Some(format!(
                "{} has lost claims of it; say that it is lost as well, if others are left",
                name(&self.me)
            ));
        }
        None
    }

    /// campaigns, with all survivors in the place of a quorum.
    fn begin_rescue(&mut self, partition: PartitionId, rescue: &Rescue) {
        assert!(!rescue.lost.contains(&self.me), "a lost node goes on");
        if self.partitions[&partition].consensus.leading().is_some() {
            self.step_down(partition, "an operator calls its majority lost");
        }
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        let left = rescue.left(replica.cohort());
        let consensus = &mut replica.consensus;
        let epoch = consensus.promised.max(consensus.seen) + RESCUE_EPOCHS;
        let (candidate, viewstamp) = (consensus.me, consensus.viewstamp);
        assert!(epoch > viewstamp.epoch, "an election is not later than the table");
        consensus.role =
            Role::Candidate { epoch, viewstamp, votes: BTreeMap::new(), rescue: Some(Box::new(rescue.clone())) };
        self.outbox.observe(Observation::Rescue { partition: partition.0, epoch });
        let lost: Vec<NodeId> = rescue.lost.iter().copied().collect();
        for node in left.into_iter().filter(|node| *node != self.me) {
            let lost = lost.clone();
            self.outbox.send(node, Election::Rescue { partition, epoch, candidate, viewstamp, lost });
        }
        self.await_leader_again(partition);
        self.vote(partition, epoch, candidate);
    }

    /// votes for a survivor that wants to go on without the lost nodes, if that is the last resort as far as this node can
    /// tell.
    pub(crate) fn on_rescue(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (candidate, viewstamp): (ReplicaId, Viewstamp),
        lost: &[NodeId],
    ) {
        if candidate.node != from || !self.plausible(partition, epoch) {
            return;
        }
        let lost: BTreeSet<NodeId> = lost.iter().copied().collect();
        let agrees = self.remnant(partition, &lost).is_some_and(|remnant| remnant.obstacle.is_none());
        self.answer_vote(partition, epoch, (candidate, viewstamp), agrees);
    }

    /// Whether the quarantine of a partition is over: every lease from before it has expired, by both clocks.
    pub(crate) fn is_quarantine_over(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let ended = |quarantine: GrantQuarantine| self.now.wall_ms >= quarantine.until_ms;
        consensus.cohort.quarantine.is_some_and(ended) && consensus.quarantine_until_us <= self.now.mono_us
    }
}

/// Returns the grant quarantine for leases of up to `lease_ms`, from now on.
pub fn quarantine(now_ms: u64, lease_ms: u64, clock_epsilon_ms: u64) -> GrantQuarantine {
    GrantQuarantine { until_ms: now_ms.saturating_add(lease_ms).saturating_add(2 * clock_epsilon_ms), lease_ms }
}

const _: () = assert!(RESCUE_EPOCHS < EPOCH_STEP_MAX, "who hears of a rescue must believe it");

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::cohort::{Change, Cohort};

    fn cohort(members: &[u128]) -> Cohort {
        let replica = |node: &u128| ReplicaId { node: NodeId(*node), incarnation: 1 };
        Cohort::founded(&members.iter().map(replica).collect::<Vec<_>>())
    }

    fn rescued(cohort: &Cohort, lost: &[u128]) -> Result<Cohort, &'static str> {
        let lost = lost.iter().copied().map(NodeId).collect();
        let change = Change::Rescue { lost, at_ms: 7, quarantine: quarantine(7, 100, 10) };
        cohort.changed(&change, Viewstamp { epoch: RESCUE_EPOCHS, length: 0 })
    }

    #[test]
    fn who_is_left_is_the_cohort_and_the_lost_are_exiles() {
        let after = rescued(&cohort(&[1, 2, 3]), &[2, 3, 9]).unwrap();
        assert!(after.is_sound() && after.quorum(|node| node.0 == 1));
        assert_eq!(
            after
                .draining_replicas
                .iter()
                .map(|draining_replica| draining_replica.slot.replica.node.0)
                .collect::<Vec<_>>(),
            [2, 3]
        );
        assert_eq!(after.quarantine, Some(GrantQuarantine { until_ms: 127, lease_ms: 100 }));
        assert!(rescued(&cohort(&[1, 2]), &[1, 2]).is_err(), "no member is left");
        let ended = after.changed(&Change::EndQuarantine, Viewstamp { epoch: RESCUE_EPOCHS, length: 1 }).unwrap();
        assert_eq!(ended.quarantine, None);
        assert!(ended.changed(&Change::EndQuarantine, Viewstamp { epoch: RESCUE_EPOCHS, length: 2 }).is_err());
    }

    #[test]
    fn what_was_under_way_is_given_up() {
        let at = |length| Viewstamp { epoch: 1, length };
        let before = cohort(&[1, 2, 3]);
        let replicas: Vec<ReplicaId> = before.members.iter().map(|slot| slot.replica).collect();
        let next = vec![replicas[0], ReplicaId { node: NodeId(4), incarnation: 1 }];
        let learning = before.changed(&Change::Admit { members: replicas, next }, at(1)).unwrap();
        let left = |cohort: &Cohort| cohort.members().map(|node| node.0).collect::<Vec<_>>();
        let after = rescued(&learning, &[2, 3]).unwrap();
        assert!(after.is_stable() && left(&after) == [1], "a learner counts for nothing: {after:?}");
        let joint = learning.changed(&Change::Join, at(2)).unwrap();
        let after = rescued(&joint, &[2, 3]).unwrap();
        assert!(after.is_stable() && left(&after) == [1, 4], "{after:?}");
    }
}
