//! Names of leaderships, replicas, and states of a claim table.

use norn_wire::NodeId;
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
