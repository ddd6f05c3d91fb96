//! Clock fencing: consequences of this node's clock status. A node with a wrong wall clock does not lead.

use crate::Node;
use crate::effect::Observation;
use norn_model::config::mutant;
use norn_model::register::Role;
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId};

impl Node {
    /// Whether this node must not lead: its wall clock is known to be wrong.
    pub(crate) fn is_fenced(&self) -> bool {
        self.config.clock_fencing && self.clocks.standing() == Standing::Fenced && !mutant!(self.config, FencedLeads)
    }

    /// Whether other nodes should lead rather than this one.
    pub(crate) fn is_suspect(&self) -> bool {
        self.disk.is_slow() || self.config.clock_fencing && self.clocks.standing() >= Standing::Suspect
    }

    /// Whether another node may be asked to lead.
    pub(crate) fn may_lead(&self, node: NodeId) -> bool {
        self.standing_of(node) < Standing::Suspect && !self.has_slow_disk(node)
    }

    /// Returns another node's clock status, as far as fencing uses it.
    pub(crate) fn standing_of(&self, node: NodeId) -> Standing {
        let told = self.peers.get(&node).map_or(Standing::Unknown, |peer| peer.standing);
        if self.config.clock_fencing { told } else { Standing::Good }
    }

    /// Judges the clock at once after a jump. A clock that was set by hand is not relied on for the very event that shows it.
    pub(crate) fn watch_clock(&mut self) {
        if self.clocks.has_jumped(self.now) {
            self.judge_clock(true);
        }
    }

    /// Judges this node's wall clock, and draws the consequences.
    pub(crate) fn judge_clock(&mut self, jumped: bool) {
        if self.genesis.is_none() {
            return;
        }
        // Measurements from before a jump still count for the margins of leases, though no longer for the own clock.
        self.widen_margins();
        let before = self.clocks.standing();
        let judgement = self.clocks.judge(self.now, self.members().count(), jumped, &self.config);
        let standing = judgement.standing;
        if standing != before {
            self.outbox.observe(Observation::ClockStanding { standing, off_us: judgement.off_us });
        }
        if self.is_fenced() {
            self.lead_nothing();
        } else if self.is_suspect() && !self.disk.is_slow() {
            self.hand_over_all();
        }
    }

    /// Widens the lease margins of led partitions: clocks may be further apart now than ever before in these leaderships.
    fn widen_margins(&mut self) {
        let measured_ms = self.clocks.margin_ms(self.now, &self.config);
        for replica in self.partitions.values_mut() {
            if let Some(leading) = replica.register.leading_mut() {
                leading.margin_ms = leading.margin_ms.max(measured_ms);
            }
        }
    }

    /// Ends all leaderships and campaigns of this node.
    fn lead_nothing(&mut self) {
        let ids: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for id in ids {
            let register = &mut self.partitions.get_mut(&id).expect("just listed").register;
            match register.role {
                Role::Leader(_) => self.step_down(id, "its wall clock is wrong"),
                Role::PreCandidate { .. } | Role::Candidate { .. } => register.role = Role::Follower,
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

    fn leads(&self, partition: PartitionId) -> bool {
        self.partitions[&partition].register.leading().is_some()
    }
}
