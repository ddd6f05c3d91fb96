//! The replica group (cohort) of a partition, as its table states it, and its reconfiguration.
//!
//! Reconfiguration is by joint consensus (Ongaro's thesis, 4.3), on a table instead of a log. The leader appends each step:
//!
//! 1. `Admit` names the next members. New ones among them are *learners*: they receive the table and all facts, and count in no
//!    quorum.
//! 2. `Join`, once the learners have nearly caught up: from this operation on, every quorum is a majority of the members and a
//!    majority of the next members.
//! 3. `Settle`, once `Join` is committed and the next members have every strictly acknowledged fact: the next members become the
//!    members. `Revert` in its place drops the next members.
//!
//! A replica that leaves becomes a draining replica until it has handed over the facts that only it may have. Then
//! `Clear` removes it, and it drops its table and facts. It keeps its promise and vote for ever, so that a node that comes back
//! cannot contradict what it promised before.
//!
//! **A version names a cohort**: the viewstamp of the operation that made it. Equal versions mean equal cohorts, as equal
//! viewstamps mean equal tables. Every acknowledgement and answer carries its sender's version, and only answers of one version
//! make a quorum of it.
//!
//! **Why a strict fact is never left behind.** It was acknowledged by a quorum of one version V. Let the next cohort be joint at
//! J > V. `Settle` waits until each new member, and a majority of all next members, has agreed on all facts with
//! `n - majority + 1` of the `n` members, each of which had applied J when it compared. At least one of these belongs to the
//! quorum of V. It had the fact before it applied J, because it acknowledged at V. So each of those next members has the fact.
//! Facts that are acknowledged at J are on a majority of both sides.

use crate::limits::{DRAINING_REPLICAS_MAX, REPLICAS_MAX};
use crate::rules::majority;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A replica's place in a cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CohortSlot {
    /// Replica in this slot.
    pub replica: ReplicaId,
    /// Operation that admitted the replica. A replica that left and came back has another slot.
    pub since: Viewstamp,
}

/// Phase of a reconfiguration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The next members count in no quorum yet.
    #[serde(rename = "L")]
    Learning,
    /// Quorums need both sides.
    #[serde(rename = "J")]
    Joint,
}

/// Target of a reconfiguration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// In the order of preference; some may be members already.
    pub slots: Vec<CohortSlot>,
    /// Phase of the reconfiguration.
    pub phase: Phase,
}

/// Draining replica: removed from the cohort, and possibly the only one that has some facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainingReplica {
    /// Its slot before it was removed.
    pub slot: CohortSlot,
    /// When it was removed, by the wall clock of the leader.
    pub since_ms: u64,
}

/// Grant quarantine after an unsafe recovery: lost replicas may have granted leases that the survivors never saw, so nothing is
/// granted until the longest lease has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantQuarantine {
    /// End of the quarantine, by the leader's wall clock.
    pub until_ms: u64,
    /// Length of the quarantine on the leader's monotonic clock, from when that leader learned of the rescue. Both ends must
    /// pass.
    pub lease_ms: u64,
}

/// Replica group (configuration) of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cohort {
    /// Viewstamp of the operation that made this cohort; zero at genesis.
    pub version: Viewstamp,
    /// In the order of preference.
    pub members: Vec<CohortSlot>,
    /// Reconfiguration under way.
    pub next: Option<Next>,
    /// Draining replicas, in the order in which they left.
    pub draining_replicas: Vec<DrainingReplica>,
    /// Grant quarantine after a rescue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<GrantQuarantine>,
}

/// Configuration that a replica advertises. A later epoch outranks an earlier one: an earlier leader may have appended a change
/// that was never committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AdvertisedCohort {
    /// Epoch of the replica's table.
    pub epoch: Epoch,
    /// Cohort in that table.
    pub cohort: Cohort,
}

impl AdvertisedCohort {
    /// Order of trust: of two advertised cohorts, receivers believe the one of greater rank.
    pub fn rank(&self) -> (Epoch, Viewstamp) {
        (self.epoch, self.cohort.version)
    }
}

/// Step of a reconfiguration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Begins a change to these next members.
    #[serde(rename = "A")]
    Admit {
        /// Present members in the order of preference, which a table does not have at genesis.
        members: Vec<ReplicaId>,
        /// Next members, in the order of preference.
        next: Vec<ReplicaId>,
    },
    /// Begins joint consensus: quorums need both sides.
    #[serde(rename = "J")]
    Join,
    /// Ends joint consensus: the next members become the members.
    #[serde(rename = "S")]
    Settle {
        /// Wall clock of the leader.
        at_ms: u64,
    },
    /// Abandons the change.
    #[serde(rename = "R")]
    Revert {
        /// Wall clock of the leader.
        at_ms: u64,
    },
    /// Removes a draining replica that has nothing left to hand over.
    #[serde(rename = "C")]
    Clear {
        /// Replica to remove.
        replica: ReplicaId,
    },
    /// Re-admits, as a draining replica, one that was cleared without draining and still has facts to hand over.
    #[serde(rename = "B")]
    Recall {
        /// Slot that it had.
        slot: CohortSlot,
        /// Wall clock of the leader.
        at_ms: u64,
    },
    /// Unsafe recovery on an operator's word that a majority is lost: the survivors go on alone (`consensus/rescue.rs`).
    #[serde(rename = "X")]
    Rescue {
        /// Nodes that are no longer members.
        lost: Vec<NodeId>,
        /// Wall clock of the leader.
        at_ms: u64,
        /// Quarantine that follows.
        quarantine: GrantQuarantine,
    },
    /// Ends the grant quarantine after a rescue.
    #[serde(rename = "Q")]
    EndQuarantine,
}

/// Role of a node in a cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// No role that this cohort knows of.
    Outside,
    /// Draining replica.
    DrainingReplica,
    /// Next member that is no member: counts in no quorum yet, or only on the side of the next members.
    Learner,
    /// Member, counts in every quorum.
    Member,
}

impl Cohort {
    /// The cohort at genesis, in the order of preference.
    pub fn founded(preference: &[ReplicaId]) -> Cohort {
        let slot = |replica: &ReplicaId| CohortSlot { replica: *replica, since: Viewstamp::default() };
        Cohort { members: preference.iter().map(slot).collect(), ..Cohort::default() }
    }

    /// Returns the cohort after a step at viewstamp `at`, or the reason why the step is invalid.
    pub fn changed(&self, change: &Change, at: Viewstamp) -> Result<Cohort, &'static str> {
        if at <= self.version {
            return Err("it is from before the cohort that it changes");
        }
        let mut after = Cohort { version: at, ..self.clone() };
        match (change, &self.next) {
            (Change::Admit { members, next }, None) => {
                after.members = self.reordered(members).ok_or("it names other members than there are")?;
                after.next = Some(Next { slots: self.admit(next, at)?, phase: Phase::Learning });
            }
            (Change::Admit { .. }, Some(_)) => return Err("another change is under way"),
            (Change::Join, Some(Next { slots, phase: Phase::Learning })) => {
                after.next = Some(Next { slots: slots.clone(), phase: Phase::Joint });
            }
            (Change::Settle { at_ms }, Some(Next { slots, phase: Phase::Joint })) => {
                after.members = slots.clone();
                after.next = None;
                after.let_go(&self.members, *at_ms);
            }
            (Change::Revert { at_ms }, Some(Next { slots, .. })) => {
                after.next = None;
                after.let_go(slots, *at_ms);
            }
            (Change::Join | Change::Settle { .. } | Change::Revert { .. }, _) => {
                return Err("no such change is under way");
            }
            (Change::Clear { replica }, _) => {
                let before = after.draining_replicas.len();
                after.draining_replicas.retain(|draining_replica| draining_replica.slot.replica != *replica);
                if after.draining_replicas.len() == before {
                    return Err("it is no draining replica");
                }
            }
            (Change::Recall { slot, at_ms }, None) => {
                if self.knows(slot.replica.node) {
                    return Err("it is known already");
                }
                if !self.has_room_for_draining() {
                    return Err("too many draining replicas have not handed over what they have");
                }
                after.draining_replicas.push(DrainingReplica { slot: *slot, since_ms: *at_ms });
            }
            (Change::Recall { .. }, Some(_)) => return Err("another change is under way"),
            (Change::Rescue { lost, at_ms, quarantine }, _) => {
                after.members = self.holders().filter(|slot| !lost.contains(&slot.replica.node)).copied().collect();
                if after.members.is_empty() {
                    return Err("no member is left");
                }
                after.next = None;
                let slots: Vec<CohortSlot> = self.slots().copied().collect();
                after.let_go(&slots, *at_ms);
                after.quarantine = Some(*quarantine);
            }
            (Change::EndQuarantine, _) => {
                after.quarantine.take().ok_or("it is in no quarantine")?;
            }
        }
        assert!(after.version > self.version, "a cohort is not later than the one before");
        Ok(after)
    }

    fn admit(&self, next: &[ReplicaId], at: Viewstamp) -> Result<Vec<CohortSlot>, &'static str> {
        let nodes: BTreeSet<NodeId> = next.iter().map(|replica| replica.node).collect();
        if next.is_empty() || next.len() > REPLICAS_MAX as usize || nodes.len() != next.len() {
            return Err("there must be one to a few members, all different");
        }
        if self.draining_replicas.iter().any(|draining_replica| nodes.contains(&draining_replica.slot.replica.node)) {
            return Err("a draining replica must be cleared before it comes back");
        }
        if !self.has_room_for_draining() {
            return Err("too many draining replicas have not handed over what they have");
        }
        let known = |replica: &ReplicaId| self.members.iter().find(|slot| slot.replica == *replica);
        Ok(next
            .iter()
            .map(|replica| known(replica).copied().unwrap_or(CohortSlot { replica: *replica, since: at }))
            .collect())
    }

    fn has_room_for_draining(&self) -> bool {
        self.draining_replicas.len() + self.members.len() <= DRAINING_REPLICAS_MAX
    }

    /// Returns the members in this order, if `members` names exactly all of them.
    fn reordered(&self, members: &[ReplicaId]) -> Option<Vec<CohortSlot>> {
        let slot = |replica: &ReplicaId| self.members.iter().find(|slot| slot.replica == *replica).copied();
        let slots: Vec<CohortSlot> = members.iter().map(slot).collect::<Option<_>>()?;
        let different: BTreeSet<&CohortSlot> = slots.iter().collect();
        (slots.len() == self.members.len() && different.len() == slots.len()).then_some(slots)
    }

    /// Makes draining replicas of those `slots` that are no members.
    fn let_go(&mut self, slots: &[CohortSlot], since_ms: u64) {
        let out = slots.iter().filter(|slot| !self.members.contains(slot));
        self.draining_replicas.extend(out.map(|slot| DrainingReplica { slot: *slot, since_ms }));
    }

    /// Returns the next members, if they count in quorums.
    fn joint(&self) -> Option<&[CohortSlot]> {
        self.next.as_ref().filter(|next| next.phase == Phase::Joint).map(|next| next.slots.as_slice())
    }

    /// Whether no reconfiguration is under way. Replicas may still be draining.
    pub fn is_stable(&self) -> bool {
        self.next.is_none()
    }

    /// Whether this is the cohort of genesis.
    pub fn is_founded(&self) -> bool {
        self.version == Viewstamp::default()
    }

    /// Whether `present` holds for a majority of the members and, in joint consensus, of the next members.
    pub fn quorum(&self, mut present: impl FnMut(NodeId) -> bool) -> bool {
        let mut of = |slots: &[CohortSlot]| majority(slots, |slot| present(slot.replica.node));
        of(&self.members) && self.joint().is_none_or(of)
    }

    /// Whether `present` holds for a majority of the next members; true outside joint consensus.
    pub fn next_quorum(&self, mut present: impl FnMut(NodeId) -> bool) -> bool {
        self.joint().is_none_or(|slots| majority(slots, |slot| present(slot.replica.node)))
    }

    /// Whether `present` holds for a majority of the members alone. Such a majority knows every strict fact, because no quorum
    /// acknowledges a fact without a majority of the members.
    pub fn members_quorum(&self, mut present: impl FnMut(NodeId) -> bool) -> bool {
        majority(&self.members, |slot| present(slot.replica.node))
    }

    /// Members and next members, whether the next ones count or not, in the order of preference.
    pub fn slots(&self) -> impl Iterator<Item = &CohortSlot> {
        let fresh = self.next.iter().flat_map(|next| &next.slots).filter(|slot| !self.members.contains(slot));
        self.members.iter().chain(fresh)
    }

    /// The nodes of [`Cohort::slots`].
    pub fn nodes(&self) -> Vec<NodeId> {
        self.slots().map(|slot| slot.replica.node).collect()
    }

    /// Replicas that count in quorums, in the order of preference: their acknowledgements of writes count for clients. Learners
    /// receive writes as well and do not acknowledge them: a fact that only a learner has would be lost with it if the leader
    /// that admitted it were deposed at once.
    pub fn holders(&self) -> impl Iterator<Item = &CohortSlot> {
        let fresh = self.joint().into_iter().flatten().filter(|slot| !self.members.contains(slot));
        self.members.iter().chain(fresh)
    }

    /// The nodes of [`Cohort::holders`].
    pub fn voters(&self) -> Vec<NodeId> {
        self.holders().map(|slot| slot.replica.node).collect()
    }

    /// The nodes of the members alone.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().map(|slot| slot.replica.node)
    }

    /// All nodes to which the leader sends the table, draining replicas included.
    pub fn followers(&self) -> Vec<NodeId> {
        self.slots()
            .chain(self.draining_replicas.iter().map(|draining_replica| &draining_replica.slot))
            .map(|slot| slot.replica.node)
            .collect()
    }

    /// Whether a node is a member or a next member.
    pub fn has(&self, node: NodeId) -> bool {
        self.slots().any(|slot| slot.replica.node == node)
    }

    /// Whether a node is one of the present members; next members do not count here.
    pub fn has_member(&self, node: NodeId) -> bool {
        self.members().any(|member| member == node)
    }

    /// Whether a node may vote and lead here.
    pub fn has_voter(&self, node: NodeId) -> bool {
        self.members.iter().chain(self.joint().into_iter().flatten()).any(|slot| slot.replica.node == node)
    }

    /// Whether a node has any role in the cohort.
    pub fn knows(&self, node: NodeId) -> bool {
        self.role(node) > Role::Outside
    }

    /// Whether a replica has a slot or is draining.
    pub fn knows_replica(&self, replica: &ReplicaId) -> bool {
        let draining_replicas = self.draining_replicas.iter().map(|draining_replica| &draining_replica.slot);
        self.slots().chain(draining_replicas).any(|slot| slot.replica == *replica)
    }

    /// Whether a replica is a member or a next member.
    pub fn has_replica(&self, replica: &ReplicaId) -> bool {
        self.slots().any(|slot| slot.replica == *replica)
    }

    /// Returns the role of a node.
    pub fn role(&self, node: NodeId) -> Role {
        if self.has_member(node) {
            Role::Member
        } else if self.has(node) {
            Role::Learner
        } else if self.draining_replicas.iter().any(|draining_replica| draining_replica.slot.replica.node == node) {
            Role::DrainingReplica
        } else {
            Role::Outside
        }
    }

    /// When the replica of a node that has a slot or is draining was admitted.
    pub fn since(&self, node: NodeId) -> Option<Viewstamp> {
        let draining_replicas = self.draining_replicas.iter().map(|draining_replica| &draining_replica.slot);
        self.slots().chain(draining_replicas).find(|slot| slot.replica.node == node).map(|slot| slot.since)
    }

    /// Whether a node is among the next members, new or not.
    pub fn has_next(&self, node: NodeId) -> bool {
        self.next.iter().flat_map(|next| &next.slots).any(|slot| slot.replica.node == node)
    }

    /// Whether joint consensus is under way.
    pub fn is_joint(&self) -> bool {
        self.joint().is_some()
    }

    /// Next members that are no members yet. All of them must be ready before the change goes on.
    pub fn learners(&self) -> impl Iterator<Item = &CohortSlot> {
        self.next.iter().flat_map(|next| &next.slots).filter(|slot| !self.members.contains(slot))
    }

    /// Whether enough replicas are ready for the next phase. `Join` needs all new members. `Settle` also needs a majority of the
    /// next members, because members that stay need not have the facts of those that leave.
    pub fn is_ready(&self, mut ready: impl FnMut(NodeId) -> bool) -> bool {
        let Some(next) = &self.next else { return false };
        self.learners().all(|slot| ready(slot.replica.node))
            && (next.phase == Phase::Learning || majority(&next.slots, |slot| ready(slot.replica.node)))
    }

    /// Number of members that must agree with a replica before it has every strictly acknowledged fact.
    pub fn agreements_needed(&self) -> usize {
        crate::data_loss::agreements_needed(self.members.len())
    }

    /// Whether the cohort is plausible as part of a table received over the network.
    pub fn is_sound(&self) -> bool {
        let bounded = |slots: &[CohortSlot]| {
            let nodes: BTreeSet<NodeId> = slots.iter().map(|slot| slot.replica.node).collect();
            !slots.is_empty() && slots.len() <= REPLICAS_MAX as usize && nodes.len() == slots.len()
        };
        let next = self.next.as_ref().is_none_or(|next| bounded(&next.slots));
        let apart = self.draining_replicas.iter().all(|draining_replica| !self.has(draining_replica.slot.replica.node));
        let since = self.slots().all(|slot| slot.since <= self.version);
        bounded(&self.members)
            && next
            && apart
            && since
            && self.draining_replicas.len() <= DRAINING_REPLICAS_MAX + REPLICAS_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(node: u128) -> ReplicaId {
        ReplicaId { node: NodeId(node), incarnation: 1 }
    }

    fn founded(nodes: &[u128]) -> Cohort {
        Cohort::founded(&nodes.iter().copied().map(replica).collect::<Vec<_>>())
    }

    fn at(length: u64) -> Viewstamp {
        Viewstamp { epoch: 1, length }
    }

    fn admit(cohort: &Cohort, nodes: &[u128]) -> Change {
        let members = cohort.members.iter().map(|slot| slot.replica).collect();
        Change::Admit { members, next: nodes.iter().copied().map(replica).collect() }
    }

    /// Returns a cohort in its learning phase.
    fn learning(from: &[u128], to: &[u128]) -> Cohort {
        let cohort = founded(from);
        cohort.changed(&admit(&cohort, to), at(1)).unwrap()
    }

    // S42
    #[test]
    fn learners_count_for_nothing_and_joint_needs_both_sides() {
        let learning = learning(&[1, 2, 3], &[3, 4, 5]);
        let present = |nodes: &'static [u128]| move |node: NodeId| nodes.contains(&node.0);
        assert!(learning.quorum(present(&[1, 2])) && !learning.quorum(present(&[3, 4, 5])));
        assert_eq!(learning.role(NodeId(4)), Role::Learner);
        let joint = learning.changed(&Change::Join, at(2)).unwrap();
        assert!(
            !joint.quorum(present(&[1, 2])) && !joint.quorum(present(&[4, 5])) && joint.quorum(present(&[1, 3, 4]))
        );
        assert!(joint.members_quorum(present(&[1, 2])) && joint.has_voter(NodeId(5)) && !learning.has_voter(NodeId(5)));
        let settled = joint.changed(&Change::Settle { at_ms: 7 }, at(3)).unwrap();
        assert!(settled.quorum(present(&[4, 5])) && !settled.quorum(present(&[1, 2, 3])));
        assert_eq!(settled.role(NodeId(1)), Role::DrainingReplica);
        assert_eq!(settled.since(NodeId(3)), Some(Viewstamp::default()));
        assert_eq!(settled.since(NodeId(4)), Some(at(1)));
    }

    // S46
    #[test]
    fn who_leaves_is_an_exile_until_it_is_cleared_and_comes_back_as_another() {
        let reverted = learning(&[1, 2, 3], &[2, 3, 4]).changed(&Change::Revert { at_ms: 1 }, at(2)).unwrap();
        assert_eq!((reverted.role(NodeId(1)), reverted.role(NodeId(4))), (Role::Member, Role::DrainingReplica));
        assert!(reverted.changed(&admit(&reverted, &[2, 3, 4]), at(3)).is_err());
        let cleared = reverted.changed(&Change::Clear { replica: replica(4) }, at(3)).unwrap();
        assert_eq!(cleared.role(NodeId(4)), Role::Outside);
        let again = cleared.changed(&admit(&cleared, &[2, 3, 4]), at(4)).unwrap();
        assert_eq!(again.since(NodeId(4)), Some(at(4)));
        assert!(cleared.changed(&Change::Clear { replica: replica(4) }, at(4)).is_err());
    }

    #[test]
    fn who_was_cleared_unheard_is_an_exile_again_where_it_sat() {
        let reverted = learning(&[1, 2, 3], &[2, 3, 4]).changed(&Change::Revert { at_ms: 1 }, at(2)).unwrap();
        let cleared = reverted.changed(&Change::Clear { replica: replica(4) }, at(3)).unwrap();
        let recall = |node| Change::Recall { slot: CohortSlot { replica: replica(node), since: at(1) }, at_ms: 5 };
        let recalled = cleared.changed(&recall(4), at(4)).unwrap();
        assert_eq!((recalled.role(NodeId(4)), recalled.since(NodeId(4))), (Role::DrainingReplica, Some(at(1))));
        for known in [1, 4] {
            assert!(recalled.changed(&recall(known), at(5)).is_err(), "{known} is known");
        }
        assert!(learning(&[1, 2, 3], &[2, 3, 5]).changed(&recall(4), at(4)).is_err(), "one change at a time");
        let mut full = cleared;
        for node in 10..200 {
            match full.changed(&recall(node), Viewstamp { epoch: 2, length: node as u64 }) {
                Ok(after) => full = after,
                Err(_) => break,
            }
        }
        assert!(full.draining_replicas.len() <= DRAINING_REPLICAS_MAX && full.is_sound());
    }

    #[test]
    fn steps_come_in_order() {
        let stable = founded(&[1, 2, 3]);
        for change in [Change::Join, Change::Settle { at_ms: 0 }, Change::Revert { at_ms: 0 }] {
            assert!(stable.changed(&change, at(1)).is_err());
        }
        let learning = learning(&[1, 2, 3], &[1]);
        assert!(learning.changed(&Change::Settle { at_ms: 0 }, at(2)).is_err());
        assert!(learning.changed(&admit(&learning, &[2]), at(2)).is_err());
        let strangers = Change::Admit { members: vec![replica(1)], next: vec![replica(2)] };
        for wrong in [admit(&stable, &[]), admit(&stable, &[1, 1]), strangers] {
            assert!(stable.changed(&wrong, at(1)).is_err());
        }
    }

    #[test]
    fn new_members_must_all_be_ready_and_of_those_that_stay_a_majority() {
        let joint = learning(&[1, 2, 3, 4, 5], &[1, 2, 6]).changed(&Change::Join, at(2)).unwrap();
        assert!(!joint.is_ready(|node| node.0 <= 2) && !joint.is_ready(|node| node.0 == 6));
        assert!(joint.is_ready(|node| [1, 6].contains(&node.0)));
    }

    #[test]
    fn what_no_leader_makes_is_not_sound() {
        let sound = founded(&[1, 2]);
        assert!(sound.is_sound());
        assert!(!Cohort::default().is_sound());
        let twice = Cohort { members: vec![sound.members[0]; 2], ..sound.clone() };
        assert!(!twice.is_sound());
        let both = Cohort { draining_replicas: vec![DrainingReplica { slot: sound.members[0], since_ms: 0 }], ..sound };
        assert!(!both.is_sound());
    }
}
