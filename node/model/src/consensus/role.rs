//! Role of a replica in its partition: follower, candidate or leader.

use super::leading::Leading;
use crate::cohort::Cohort;
use crate::viewstamp::{Epoch, Viewstamp};
use norn_wire::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The leader that a replica follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// Its current epoch.
    pub epoch: Epoch,
    /// Its node.
    pub node: NodeId,
}

/// Parameters of an unsafe recovery, from an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rescue {
    /// Nodes that never come back.
    pub lost: BTreeSet<NodeId>,
    /// Upper bound on the leases in use.
    pub lease_ms: u64,
}

impl Rescue {
    /// Surviving voters: all of them must vote.
    pub fn left(&self, cohort: &Cohort) -> Vec<NodeId> {
        cohort.voters().into_iter().filter(|node| !self.lost.contains(node)).collect()
    }
}

/// Role of a replica in its partition.
#[derive(Debug, Default)]
pub enum Role {
    /// Follows a leader, or waits for one.
    #[default]
    Follower,
    /// Pre-vote: asks whether an election could be won.
    PreCandidate {
        /// Epoch of the possible election.
        epoch: Epoch,
        /// Nodes that would vote for it.
        votes: BTreeSet<NodeId>,
    },
    /// Vote: asks for votes.
    Candidate {
        /// Epoch of the election.
        epoch: Epoch,
        /// Viewstamp when it asked; a changed table voids the campaign.
        viewstamp: Viewstamp,
        /// Voters, with the viewstamp of each.
        votes: BTreeMap<NodeId, Viewstamp>,
        /// Unsafe recovery on an operator's word: all survivors must vote.
        rescue: Option<Box<Rescue>>,
    },
    /// Leads.
    Leader(Box<Leading>),
}
