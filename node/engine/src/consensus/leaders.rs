//! What replicas conclude from heartbeats about leaders: a follower gives up one that is lost, a leader gives up without a quorum, and
//! a node that should not lead hands over.

use crate::Node;
use crate::context::timers::Key;
use norn_model::config::mutant;
use norn_model::consensus::{Leader, Role};
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

impl Node {
    /// Takes in the list of partitions that a node leads.
    pub(crate) fn on_leads(&mut self, node: NodeId, version: u64, leads: Vec<(PartitionId, Epoch, Viewstamp)>) {
        let leads: BTreeMap<PartitionId, (Epoch, Viewstamp)> =
            leads.into_iter().map(|(id, epoch, version)| (id, (epoch, version))).collect();
        let mut strange = Vec::new();
        for (partition, replica) in &mut self.partitions {
            let Some((epoch, version)) = leads.get(partition) else { continue };
            if *epoch < replica.consensus.promised || replica.consensus.leading().is_some() {
                continue;
            }
            replica.consensus.leader = Some(Leader { epoch: *epoch, node });
            self.timers.cancel(Key::Election(*partition));
            // A leader with a cohort version that this replica has not heard of may not know that the replica exists.
            if *version != replica.cohort().version && !replica.is_blank() {
                strange.push(*partition);
            }
        }
        for partition in strange {
            self.ask_for_operations(partition);
        }
        let dropped = self.note_leads(node, version, leads);
        let follows = |id: &PartitionId| {
            self.partitions
                .get(id)
                .and_then(|replica| replica.consensus.leader)
                .is_some_and(|leader| leader.node == node)
        };
        let lost: BTreeSet<PartitionId> = dropped.into_iter().filter(follows).collect();
        if mutant!(self.config, LeaderBelieved) {
            return;
        }
        for partition in lost {
            self.lose_leader(partition);
        }
    }

    /// Gives up leaders that are silent, or do not hear their quorum.
    pub(crate) fn look_for_silent_leaders(&mut self) {
        let lost: Vec<PartitionId> = self
            .partitions
            .iter()
            .filter(|(id, replica)| replica.consensus.leading().is_none() && self.has_lost_leader(**id))
            .map(|(id, _)| *id)
            .collect();
        for partition in lost {
            self.lose_leader(partition);
        }
    }

    /// Whether the leader of a partition is lost. A silent leader is lost at once; one that hears no quorum gets the time that
    /// its own report of this needs.
    pub(crate) fn has_lost_leader(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let patience_us = self.config.election_timeout_ms * 1_000;
        consensus.leader.is_some_and(|leader| {
            let without_quorum = !self.hears_quorum(leader.node, partition);
            // A late message of a leader that has stepped down since would make it look like a leader for ever; its list shows
            // that it is not.
            let unlisted = self.peer(leader.node).is_none_or(|peer| !peer.leads.contains_key(&partition));
            let doubtful = without_quorum || (unlisted && !mutant!(self.config, LeaderBelieved));
            !self.is_alive(leader.node) || (doubtful && self.now.mono_us > consensus.heard_us + patience_us)
        })
    }

    /// Drops a lost leader; a campaign follows.
    pub(crate) fn lose_leader(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        assert!(replica.consensus.leading().is_none(), "a leader has lost its leader");
        replica.consensus.leader = None;
        self.await_turn(partition);
    }

    /// Ends leaderships whose leader has heard from no quorum for an election timeout.
    pub(crate) fn step_down_without_quorum(&mut self) {
        let timeout_us = self.config.election_timeout_ms * 1_000;
        let led: Vec<PartitionId> = self.led().map(|(id, _)| id).collect();
        for id in led {
            let quorum = self.partitions[&id].consensus.quorum(|node| self.is_alive(node));
            let now_us = self.now.mono_us;
            let leading =
                self.partitions.get_mut(&id).and_then(|replica| replica.consensus.leading_mut()).expect("it leads");
            assert!(leading.quorum_us <= now_us, "a majority was heard in the future");
            if quorum {
                leading.quorum_us = now_us;
            } else if now_us >= leading.quorum_us + timeout_us && !self.gives_up_change(id) {
                self.step_down(id, "no quorum was heard");
            }
        }
    }

    /// Ends all leaderships and campaigns of this node.
    pub(crate) fn lead_nothing(&mut self) {
        let ids: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for id in ids {
            let consensus = &mut self.partitions.get_mut(&id).expect("just listed").consensus;
            match consensus.role {
                Role::Leader(_) => self.step_down(id, "its wall clock is wrong"),
                Role::PreCandidate { .. } | Role::Candidate { .. } => consensus.role = Role::Follower,
                Role::Follower => {}
            }
        }
    }

    /// Asks able nodes to take over the leaderships of this node.
    pub(crate) fn hand_over_all(&mut self) {
        let led: Vec<PartitionId> = self.partitions.keys().copied().filter(|id| self.leads(*id)).collect();
        for id in led {
            let cohort = self.partitions[&id].cohort().voters();
            let fit = |node: &NodeId| *node != self.me && self.is_reachable(*node) && self.may_lead(*node);
            let fit: Vec<NodeId> = cohort.into_iter().filter(fit).collect();
            self.transfer(id, &fit);
        }
    }

    pub(crate) fn leads(&self, partition: PartitionId) -> bool {
        self.partitions[&partition].consensus.leading().is_some()
    }
}
