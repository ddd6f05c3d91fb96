//! What a replica is in its partition: it follows, campaigns, or leads.

use super::leading::Leading;
use crate::protocol::consistent::cohort::Cohort;
use crate::protocol::consistent::{Epoch, Viewstamp};
use norn_wire::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The leader that a replica follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its node.
    pub node: NodeId,
}

/// What an operator said of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescue {
    /// Nodes that never come back.
    pub lost: BTreeSet<NodeId>,
    /// No lease in use is longer.
    pub lease_ms: u64,
}

impl Rescue {
    /// Who is left to vote: all of them must.
    pub fn left(&self, cohort: &Cohort) -> Vec<NodeId> {
        cohort.voters().into_iter().filter(|node| !self.lost.contains(node)).collect()
    }
}

/// Role of a replica in its partition.
#[derive(Debug, Default)]
pub enum Role {
    /// Follows, or waits.
    #[default]
    Follower,
    /// Asks whether an election could be won.
    PreCandidate {
        /// Epoch it would ask for.
        epoch: Epoch,
        /// Who would vote.
        votes: BTreeSet<NodeId>,
    },
    /// Asks for votes.
    Candidate {
        /// Epoch.
        epoch: Epoch,
        /// Viewstamp when it asked; a changed table voids the campaign.
        viewstamp: Viewstamp,
        /// Who voted, and where each voter's table stands.
        votes: BTreeMap<NodeId, Viewstamp>,
        /// On an operator's word: all that are left must vote.
        rescue: Option<Box<Rescue>>,
    },
    /// Won.
    Leader(Box<Leading>),
}
