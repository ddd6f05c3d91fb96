//! Elections of a partition's leader, and transfers of leadership.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::claim_table::table::ClaimTable;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Elections of a partition's leader, and transfers of leadership.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Election {
    /// Pre-vote: asks whether the receiver would vote for the sender.
    #[serde(rename = "pv")]
    PreVote { partition: PartitionId, epoch: Epoch, viewstamp: Viewstamp },
    /// Answer to `PreVote`.
    #[serde(rename = "pa")]
    PreVoteAnswer { partition: PartitionId, epoch: Epoch, granted: bool, promised: Epoch, viewstamp: Viewstamp },
    /// Asks for a vote.
    #[serde(rename = "vo")]
    Vote { partition: PartitionId, epoch: Epoch, candidate: ReplicaId, viewstamp: Viewstamp },
    /// Asks for a vote in an unsafe recovery: `lost` nodes are lost for ever, and without them there is no majority.
    #[serde(rename = "sv")]
    Rescue { partition: PartitionId, epoch: Epoch, candidate: ReplicaId, viewstamp: Viewstamp, lost: Vec<NodeId> },
    /// Answer to `Vote` and `Rescue`; a grant is on disk.
    #[serde(rename = "va")]
    VoteAnswer {
        partition: PartitionId,
        epoch: Epoch,
        replica: ReplicaId,
        granted: bool,
        promised: Epoch,
        viewstamp: Viewstamp,
        log: LogPosition,
    },
    /// Asks for the receiver's table. Neither a vote nor an acknowledgement.
    #[serde(rename = "fe")]
    Fetch { partition: PartitionId, viewstamp: Viewstamp },
    /// Answer to `Fetch`.
    #[serde(rename = "st")]
    State { partition: PartitionId, viewstamp: Viewstamp, table: Arc<ClaimTable> },
    /// Leadership transfer: the receiver has caught up and campaigns now.
    #[serde(rename = "tr")]
    Transfer { partition: PartitionId, epoch: Epoch },
}

impl Election {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Election::PreVote { partition, .. } => of("pre_vote", Class::Urgent, Some(*partition), Check::Promise),
            Election::PreVoteAnswer { partition, .. } => {
                of("pre_vote_answer", Class::Urgent, Some(*partition), Check::Nothing)
            }
            Election::Vote { partition, .. } => of("vote", Class::Urgent, Some(*partition), Check::Promise),
            Election::Rescue { partition, .. } => of("rescue", Class::Urgent, Some(*partition), Check::Nothing),
            Election::VoteAnswer { partition, log, .. } => {
                of("vote_answer", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
            Election::Fetch { partition, .. } => of("fetch", Class::Urgent, Some(*partition), Check::Promise),
            Election::State { partition, .. } => of("state", Class::Bulk, Some(*partition), Check::Nothing),
            Election::Transfer { partition, .. } => of("transfer", Class::Urgent, Some(*partition), Check::Promise),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            Election::VoteAnswer { log, .. } => *log = log_position,
            Election::PreVote { .. }
            | Election::PreVoteAnswer { .. }
            | Election::Vote { .. }
            | Election::Rescue { .. }
            | Election::Fetch { .. }
            | Election::State { .. }
            | Election::Transfer { .. } => {}
        }
    }
}
