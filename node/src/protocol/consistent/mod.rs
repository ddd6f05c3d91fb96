//! The consistent half: elections, epochs, and the table of claims of each partition.
//!
//! Viewstamped state: a leader elected for an epoch installs its table on a majority, then streams operations. The
//! highest viewstamp in a vote quorum contains every committed operation; that is the whole recovery rule.

pub mod ages;
pub mod archiving;
pub mod broker;
pub mod cell;
pub mod change;
pub mod claims;
pub mod cohort;
pub mod demand;
pub mod dependencies;
pub mod election;
pub mod forgetting;
pub mod grants;
pub mod heads;
mod judge;
pub mod ledger;
pub mod levels;
pub mod operation;
pub mod outboxes;
pub mod permits;
pub mod policies;
pub mod quotas;
pub mod register;
pub mod replication;
pub mod rescue;
pub mod rules;
pub mod seals;
pub mod seat;
pub mod sessions;
pub mod spent;
pub mod table;
pub mod transactions;
pub mod uniques;

use norn_wire::NodeId;
use norn_wire::error::{Error, ErrorCode, Retry};
pub use register::Waiting;
use serde::{Deserialize, Serialize};

/// Term of leadership of one partition (Raft's term, Viewstamped Replication's view). At most one replica ever leads in it.
pub type Epoch = u64;

/// Identity of a replica of a partition. It ends with the replica's disk: a wiped node comes back with new replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// Node that holds the replica.
    pub node: NodeId,
    /// Random number, drawn when the replica was created.
    pub incarnation: u64,
}

/// State version of a table: the epoch of the last installation and the number of operations applied since. Equal viewstamps mean
/// equal tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Viewstamp {
    /// Epoch whose leader installed the table.
    pub epoch: Epoch,
    /// Number of operations applied since.
    pub length: u64,
}

/// Whether `present` holds for more than half of `members`. All majorities are computed here.
pub fn majority<T>(members: &[T], mut present: impl FnMut(&T) -> bool) -> bool {
    assert!(!members.is_empty(), "a cohort has members");
    2 * members.iter().filter(|member| present(member)).count() > members.len()
}

/// Error for a decision that is made but not written yet. Full disks or full memory last, so the client gets `Unknown`. In all
/// other cases the code is `Unavailable`: a retry soon succeeds, and nodes retry by themselves.
fn unwritten(error: &Error, what: &str) -> Error {
    let lasts = error.code.is_full() || error.code == ErrorCode::Unknown && error.retry == Retry::Later;
    let code = if lasts { ErrorCode::Unknown } else { ErrorCode::Unavailable };
    Error { retry: Retry::Later, ..Error::new(code, format!("{what}: {}", error.message)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_for_even_and_odd_cohorts() {
        for size in 1..=6u128 {
            let members: Vec<ReplicaId> =
                (0..size).map(|node| ReplicaId { node: NodeId(node), incarnation: 1 }).collect();
            for present in 0..=size {
                let reached = majority(&members, |member| member.node.0 < present);
                assert_eq!(reached, present > size / 2, "{present} of {size}");
            }
        }
    }
}
