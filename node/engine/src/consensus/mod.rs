//! The consistent half: elections, epochs, and the table of claims of each partition.
//!
//! Viewstamped state: a leader elected for an epoch installs its table on a majority, then streams operations. The
//! highest viewstamp in a vote quorum contains every committed operation; that is the whole recovery rule.

pub mod ages;
pub mod election;
pub mod leaders;
pub mod loss_recovery;
pub mod reconfigure;
pub mod replication;
pub mod rescue;
pub mod slot;

use crate::consensus::ages::Running;
use crate::consensus::leaders::Look;
use norn_wire::PartitionId;
use norn_wire::error::{Error, ErrorCode, Retry};
use std::collections::BTreeSet;

/// What this folder keeps beside the registers of the partitions. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Consensus {
    /// Partitions with operations that have not been sent yet in this step.
    pending_replication: BTreeSet<PartitionId>,
    /// Uptime over all starts.
    running: Running,
    /// The last look at the leaders of all partitions.
    look: Look,
    /// Losses of the replay that may concern any replica, also one that is not known yet.
    lost_somewhere: Vec<u64>,
    /// First round since peers discarded this node's acks from before its data loss.
    recovery_round: Option<u64>,
}

impl Consensus {
    /// Uptime over all starts.
    pub(crate) fn uptime(&self) -> &Running {
        &self.running
    }

    pub(crate) fn uptime_mut(&mut self) -> &mut Running {
        &mut self.running
    }

    /// During the replay: notes a loss that may concern any replica.
    pub(crate) fn note_lost_somewhere(&mut self, loss: u64) {
        self.lost_somewhere.push(loss);
    }

    /// Takes a partition with operations that have not been sent yet.
    pub(crate) fn next_unsent(&mut self) -> Option<PartitionId> {
        self.pending_replication.pop_first()
    }
}

/// Error for a decision that is made but not written yet. Full disks or full memory last, so the client gets `Unknown`. In all
/// other cases the code is `Unavailable`: a retry soon succeeds, and nodes retry by themselves.
pub(crate) fn unwritten(error: &Error, what: &str) -> Error {
    let lasts = error.code.is_full() || error.code == ErrorCode::Unknown && error.retry == Retry::Later;
    let code = if lasts { ErrorCode::Unknown } else { ErrorCode::Unavailable };
    Error { retry: Retry::Later, ..Error::new(code, format!("{what}: {}", error.message)) }
}
