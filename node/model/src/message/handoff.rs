//! Hinted handoff: facts kept for a replica while it was away.

use super::kinds::{Check, Class, Properties, of};
use super::{Items, LogPosition, Outcome};
use crate::viewstamp::Viewstamp;
use norn_wire::PartitionId;
use serde::{Deserialize, Serialize};

/// Hinted handoff: facts kept for a replica while it was away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handoff {
    /// Hinted handoff: facts that the sender kept while the receiver was away; `forgets` as in `Tasks`.
    #[serde(rename = "hi")]
    Hint {
        number: u64,
        partition: PartitionId,
        at: Viewstamp,
        items: Items,
        #[serde(default)]
        forgets: Option<u64>,
    },
    /// Answer to `Hint`: outcomes on disk, item by item, and the start in which they were stored.
    #[serde(rename = "ha")]
    Hinted {
        number: u64,
        partition: PartitionId,
        outcomes: Vec<Outcome>,
        boot: u64,
        at: Viewstamp,
        log: LogPosition,
        /// As in [`super::Known`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
}

impl Handoff {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Handoff::Hint { partition, .. } => of("hint", Class::Bulk, Some(*partition), Check::Nothing),
            Handoff::Hinted { partition, log, .. } => {
                of("hinted", Class::Urgent, Some(*partition), Check::Nothing).with_log(*log)
            }
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, log_position: LogPosition) {
        match self {
            Handoff::Hinted { log, .. } => *log = log_position,
            Handoff::Hint { .. } => {}
        }
    }
}
