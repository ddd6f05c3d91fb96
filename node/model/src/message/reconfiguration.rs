//! Changes of the members of a partition.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::cohort::{AdvertisedCohort, CohortSlot};
use crate::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use serde::{Deserialize, Serialize};

/// Changes of the members of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reconfiguration {
    /// Progress of a next member or a draining replica at version `at` of the cohort: how many facts it has. `ready`: a next member has all
    /// facts that it should have, or a draining replica has none that members lack.
    #[serde(rename = "ry")]
    Ready { partition: PartitionId, replica: ReplicaId, at: Viewstamp, ready: bool, facts: u64, log: LogPosition },
    /// The cohort of this version, in which the receiver is a draining replica, is committed.
    #[serde(rename = "di")]
    Dismiss { partition: PartitionId, at: Viewstamp },
    /// From the leader of an epoch: the receiver has no part in this cohort, which is committed.
    #[serde(rename = "ou")]
    Outside { partition: PartitionId, advertised: Box<AdvertisedCohort> },
    /// Missing-table notice: the sender holds nothing of this partition.
    #[serde(rename = "uh")]
    Unheld { partition: PartitionId, replica: ReplicaId },
    /// The sender was removed without draining and may hold unreplicated facts: asks to be re-admitted as a draining replica.
    #[serde(rename = "sy")]
    Undrained { partition: PartitionId, slot: CohortSlot },
    /// Sets the target members of a partition that the receiver leads.
    #[serde(rename = "ar")]
    Arrange { partition: PartitionId, nodes: Vec<NodeId> },
}

impl Reconfiguration {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Reconfiguration::Ready { partition, log, .. } => {
                of("ready", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
            Reconfiguration::Dismiss { partition, .. } => {
                of("dismiss", Class::Urgent, Some(*partition), Check::Nothing)
            }
            Reconfiguration::Outside { partition, .. } => {
                of("outside", Class::Urgent, Some(*partition), Check::Nothing)
            }
            Reconfiguration::Unheld { partition, .. } => of("unheld", Class::Urgent, Some(*partition), Check::Nothing),
            Reconfiguration::Undrained { partition, .. } => {
                of("undrained", Class::Urgent, Some(*partition), Check::Nothing)
            }
            Reconfiguration::Arrange { partition, .. } => {
                of("arrange", Class::Urgent, Some(*partition), Check::Nothing)
            }
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            Reconfiguration::Ready { log, .. } => *log = log_position,
            Reconfiguration::Dismiss { .. }
            | Reconfiguration::Outside { .. }
            | Reconfiguration::Unheld { .. }
            | Reconfiguration::Undrained { .. }
            | Reconfiguration::Arrange { .. } => {}
        }
    }
}
