//! Clock fencing: consequences of this node's clock status. A node with a wrong wall clock does not lead.

use crate::Node;
use crate::effect::Observation;
use norn_model::config::mutant;
use norn_wire::NodeId;
use norn_wire::response::Standing;

/// Whether a node may lead, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    Fit,
    /// It leads on until another node takes over.
    Suspect,
    /// It leads nothing.
    Fenced,
}

impl Node {
    /// Whether this node must not lead: its wall clock is known to be wrong.
    pub(crate) fn is_fenced(&self) -> bool {
        self.config.clock_fencing
            && self.membership.clocks.standing() == Standing::Fenced
            && !mutant!(self.config, FencedLeads)
    }

    /// Whether other nodes should lead rather than this one.
    pub(crate) fn is_suspect(&self) -> bool {
        self.membership.disk.is_slow()
            || self.config.clock_fencing && self.membership.clocks.standing() >= Standing::Suspect
    }

    /// Whether another node may be asked to lead.
    pub(crate) fn may_lead(&self, node: NodeId) -> bool {
        self.standing_of(node) < Standing::Suspect && !self.has_slow_disk(node)
    }

    /// Returns another node's clock status, as far as fencing uses it.
    pub(crate) fn standing_of(&self, node: NodeId) -> Standing {
        let told = self.membership.peers.get(&node).map_or(Standing::Unknown, |peer| peer.standing);
        if self.config.clock_fencing { told } else { Standing::Good }
    }

    /// Whether the wall clock has moved otherwise than the monotonic one.
    pub(crate) fn has_jumped(&mut self) -> bool {
        self.membership.clocks.has_jumped(self.now)
    }

    /// Judges this node's wall clock.
    pub(crate) fn judge_clock(&mut self, jumped: bool) -> Fitness {
        if self.genesis.is_none() {
            return Fitness::Fit;
        }
        // Measurements from before a jump still count for the margins of leases, though no longer for the own clock.
        self.widen_margins();
        let before = self.membership.clocks.standing();
        let judgement = self.membership.clocks.judge(self.now, self.members().count(), jumped, &self.config);
        let standing = judgement.standing;
        if standing != before {
            self.outbox.observe(Observation::ClockStanding { standing, off_us: judgement.off_us });
        }
        if self.is_fenced() {
            Fitness::Fenced
        } else if self.is_suspect() && !self.membership.disk.is_slow() {
            Fitness::Suspect
        } else {
            Fitness::Fit
        }
    }

    /// Widens the lease margins of led partitions: clocks may be further apart now than ever before in these leaderships.
    fn widen_margins(&mut self) {
        let measured_ms = self.membership.clocks.margin_ms(self.now, &self.config);
        for replica in self.partitions.values_mut() {
            if let Some(leading) = replica.consensus.leading_mut() {
                leading.margin_ms = leading.margin_ms.max(measured_ms);
            }
        }
    }
}
