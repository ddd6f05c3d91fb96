//! Replication of the claim table from a leader to its followers.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::claim_table::table::{ClaimTable, Op};
use crate::data_loss::DataLoss;
use crate::replica::DoneFlag;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Replication of the claim table from a leader to its followers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replication {
    /// Installs the table of a new epoch. Without `table`: the one at `base`, which the receiver has.
    #[serde(rename = "in")]
    Install {
        partition: PartitionId,
        epoch: Epoch,
        base: Viewstamp,
        table: Option<Arc<ClaimTable>>,
        #[serde(with = "serde_bytes")]
        digest: [u8; 16],
    },
    /// The table at a later viewstamp, for a follower behind the kept operations.
    #[serde(rename = "sn")]
    Snapshot { partition: PartitionId, viewstamp: Viewstamp, table: Arc<ClaimTable>, commit: u64 },
    /// Appends operations from number `first` on.
    #[serde(rename = "op")]
    Ops {
        partition: PartitionId,
        epoch: Epoch,
        first: u64,
        ops: Vec<Arc<Op>>,
        commit: u64,
        #[serde(with = "serde_bytes")]
        digest: [u8; 16],
    },
    /// Acknowledges operations up to `length` on disk; flags every grant in `(known commit, length]` whose task has ended here.
    #[serde(rename = "ac")]
    Ack {
        partition: PartitionId,
        epoch: Epoch,
        replica: ReplicaId,
        length: u64,
        done: Vec<DoneFlag>,
        /// Granted tasks whose spec is missing here.
        missing: Vec<TaskId>,
        log: LogPosition,
        /// What may be missing here; the acknowledgement does not count for that.
        #[serde(default, skip_serializing_if = "DataLoss::is_whole")]
        data_loss: DataLoss,
    },
    /// Cannot follow: a higher promise, another installation, or a gap. Also reports a viewstamp to the leader unasked.
    #[serde(rename = "na")]
    Nack { partition: PartitionId, replica: ReplicaId, promised: Epoch, viewstamp: Viewstamp },
    /// Lease ages: each operation up to one of these viewstamps, in the same epoch, was appended at least that many milliseconds
    /// ago. A follower asks, and the leader answers with what is older by its own count. Without `asks` it is an answer: the
    /// question has arrived. A leader that sends its own news unasked sets `asks` as well; only leaders answer.
    #[serde(rename = "ag")]
    LeaseAges { partition: PartitionId, asks: bool, ages: Vec<(Viewstamp, u64)> },
    /// Recovery of a table that has lost something and is at `viewstamp`: asks the leader for its target.
    #[serde(rename = "rj")]
    Rejoin { partition: PartitionId, request_id: u64, viewstamp: Viewstamp },
    /// Answer to `Rejoin`, from a leader only: viewstamp of its table.
    #[serde(rename = "ra")]
    Rejoined { partition: PartitionId, request_id: u64, viewstamp: Viewstamp },
}

impl Replication {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Replication::Install { partition, .. } => of("install", Class::Urgent, Some(*partition), Check::Promise),
            Replication::Snapshot { partition, .. } => of("snapshot", Class::Urgent, Some(*partition), Check::Promise),
            Replication::Ops { partition, .. } => of("ops", Class::Urgent, Some(*partition), Check::Promise),
            Replication::Ack { partition, log, .. } => {
                of("ack", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
            Replication::Nack { partition, .. } => of("nack", Class::Urgent, Some(*partition), Check::Nothing),
            Replication::LeaseAges { partition, .. } => of("lease_ages", Class::Bulk, Some(*partition), Check::Nothing),
            Replication::Rejoin { partition, .. } => of("rejoin", Class::Urgent, Some(*partition), Check::Nothing),
            Replication::Rejoined { partition, .. } => of("rejoined", Class::Urgent, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            Replication::Ack { log, .. } => *log = log_position,
            Replication::Install { .. }
            | Replication::Snapshot { .. }
            | Replication::Ops { .. }
            | Replication::Nack { .. }
            | Replication::LeaseAges { .. }
            | Replication::Rejoin { .. }
            | Replication::Rejoined { .. } => {}
        }
    }
}
