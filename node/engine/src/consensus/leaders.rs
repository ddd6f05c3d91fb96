//! What replicas conclude from heartbeats about leaders: a follower gives up one that is lost, a leader gives up without a quorum, and
//! a node that should not lead hands over.

use crate::Node;
use crate::context::timers::Key;
use norn_model::config::mutant;
use norn_model::consensus::{Leader, Role};
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// Heartbeats from one look at all partitions to the next while nothing changes that a look depends on.
const CALM_HEARTBEATS: u32 = 4;

/// The last look at the leaders of all partitions, and what it depended on. A look costs a visit to each partition.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Nothing was in doubt: each followed leader was heard, heard a majority and listed its partition, each leader here had a majority,
    /// and no leader was to be asked for lease ages. So the next look finds the same, unless something changes.
    is_calm: bool,
    /// [`crate::membership::Membership::changes`] at the look.
    changes: u64,
    /// Nodes that were heard.
    heard: Vec<NodeId>,
    /// Heartbeats since the look.
    skipped: u32,
    /// The latest heartbeat at which all that was unchanged.
    unchanged_us: u64,
}

impl Look {
    /// Looks again at the next heartbeat.
    pub(crate) fn disturb(&mut self) {
        self.is_calm = false;
    }
}

impl Node {
    /// At each heartbeat: draws conclusions from which nodes hear each other. While no node falls silent or returns, none reports
    /// anything else than before and no leader changes, only some heartbeats look at all partitions, as only time passes. What a change
    /// of a cohort alone brings about is found a few heartbeats later.
    pub(crate) fn see_to_leaders(&mut self) {
        let heard: Vec<NodeId> = self.others().filter(|node| self.is_alive(*node)).collect();
        let (now_us, changes) = (self.now.mono_us, self.membership.changes());
        let look = &mut self.consensus.look;
        let is_unchanged = look.is_calm && look.changes == changes && look.heard == heard;
        if is_unchanged && look.skipped + 1 < CALM_HEARTBEATS {
            look.skipped += 1;
            assert!(look.skipped < CALM_HEARTBEATS, "looks at the leaders are left out for too long");
            look.unchanged_us = now_us;
            return;
        }
        let calm_us = look.is_calm.then_some(look.unchanged_us);
        *look = Look { is_calm: true, changes, heard, skipped: 0, unchanged_us: now_us };
        self.look_for_silent_leaders();
        self.exchange_ages();
        self.step_down_without_quorum(calm_us);
    }

    /// Takes in the list of partitions that a node leads.
    pub(crate) fn on_leads(&mut self, node: NodeId, version: u64, leads: Vec<(PartitionId, Epoch, Viewstamp)>) {
        let leads: BTreeMap<PartitionId, (Epoch, Viewstamp)> =
            leads.into_iter().map(|(id, epoch, version)| (id, (epoch, version))).collect();
        let mut strange = Vec::new();
        for replica in self.partitions.values_mut() {
            let partition = replica.id;
            let Some((epoch, version)) = leads.get(&partition) else { continue };
            if *epoch < replica.consensus.promised || replica.consensus.leading().is_some() {
                continue;
            }
            replica.consensus.leader = Some(Leader { epoch: *epoch, node });
            self.timers.cancel(Key::Election(partition));
            // A leader with a cohort version that this replica has not heard of may not know that the replica exists.
            if *version != replica.cohort().version && !replica.is_blank() {
                strange.push(partition);
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
    fn look_for_silent_leaders(&mut self) {
        let (mut lost, mut in_doubt) = (Vec::new(), false);
        for (partition, replica) in self.partitions.iter() {
            if replica.consensus.leading().is_none() && self.doubts_leader(*partition) {
                in_doubt = true;
                if self.has_lost_leader(*partition) {
                    lost.push(*partition);
                }
            }
        }
        if in_doubt {
            self.consensus.look.disturb();
        }
        for partition in lost {
            self.lose_leader(partition);
        }
    }

    /// Whether there is a sign that the leader of a partition is lost.
    fn doubts_leader(&self, partition: PartitionId) -> bool {
        self.partitions[&partition].consensus.leader.is_some_and(|leader| {
            let without_quorum = !self.hears_quorum(leader.node, partition);
            // A late message of a leader that has stepped down since would make it look like a leader for ever; its list shows
            // that it is not.
            let unlisted = self.peer(leader.node).is_none_or(|peer| !peer.leads.contains_key(&partition));
            let doubtful = without_quorum || (unlisted && !mutant!(self.config, LeaderBelieved));
            doubtful || !self.is_alive(leader.node)
        })
    }

    /// Whether the leader of a partition, which is in doubt, is lost. A silent leader is lost at once; one that hears no quorum gets the
    /// time that its own report of this needs.
    fn has_lost_leader(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let patience_us = self.config.election_timeout_ms * 1_000;
        let is_silent = consensus.leader.is_some_and(|leader| !self.is_alive(leader.node));
        is_silent || self.now.mono_us > consensus.heard_us + patience_us
    }

    /// Drops a lost leader; a campaign follows.
    pub(crate) fn lose_leader(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        assert!(replica.consensus.leading().is_none(), "a leader has lost its leader");
        replica.consensus.leader = None;
        self.await_turn(partition);
    }

    /// Ends leaderships whose leader has heard from no quorum for an election timeout. Until `calm_us` all had one.
    fn step_down_without_quorum(&mut self, calm_us: Option<u64>) {
        let timeout_us = self.config.election_timeout_ms * 1_000;
        let led: Vec<PartitionId> = self.led().map(|(id, _)| id).collect();
        for id in led {
            let quorum = self.partitions[&id].consensus.quorum(|node| self.is_alive(node));
            let now_us = self.now.mono_us;
            let leading =
                self.partitions.get_mut(&id).and_then(|replica| replica.consensus.leading_mut()).expect("it leads");
            leading.quorum_us = leading.quorum_us.max(calm_us.unwrap_or(0));
            assert!(leading.quorum_us <= now_us, "a majority was heard in the future");
            if quorum {
                leading.quorum_us = now_us;
                continue;
            }
            let is_over = now_us >= leading.quorum_us + timeout_us;
            self.consensus.look.disturb();
            if is_over && !self.gives_up_change(id) {
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

#[cfg(test)]
impl Node {
    /// Whether the next heartbeat may leave the look at all partitions out.
    pub(crate) fn is_calm(&self) -> bool {
        self.consensus.look.is_calm
    }
}
