//! Heartbeats, the list of members, and who has which partition.

use super::kinds::{Check, Class, Properties, of};
use super::{Heartbeat, LogPosition};
use crate::cohort::AdvertisedCohort;
use norn_wire::PartitionId;
use norn_wire::membership::Roster;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Heartbeats, the list of members, and who has which partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peering {
    /// See [`Heartbeat`].
    #[serde(rename = "hb")]
    Heartbeat(Box<Heartbeat>),
    /// Member list, later than the one that the receiver has shown.
    #[serde(rename = "rs")]
    Roster { roster: Arc<Roster> },
    /// Asks for the cohorts of these partitions.
    #[serde(rename = "rq")]
    RouteAsk { partitions: Vec<PartitionId> },
    /// Cohort of a partition, as far as the sender knows.
    #[serde(rename = "ro")]
    Route { partition: PartitionId, advertised: Box<AdvertisedCohort> },
}

impl Peering {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Peering::Heartbeat(heartbeat) => of("heartbeat", Class::Urgent, None, Check::Nothing)
                .with_log(LogPosition { boot: heartbeat.boot, durable: heartbeat.durable, start: heartbeat.start }),
            Peering::Roster { .. } => of("roster", Class::Bulk, None, Check::Nothing),
            Peering::RouteAsk { .. } => of("route_ask", Class::Urgent, None, Check::Nothing),
            Peering::Route { partition, .. } => of("route", Class::Urgent, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Peering::Heartbeat(_) | Peering::Roster { .. } | Peering::RouteAsk { .. } | Peering::Route { .. } => {}
        }
    }
}
