//! What a node writes to its log.
//!
//! Bodies are MessagePack by position; the segment header names the format's version. Fields are only ever added at
//! the end, with a default, or a new variant takes over.

use crate::protocol::consistent::table::{Op, Table};
use crate::protocol::consistent::{Epoch, ReplicaId, Viewstamp};
use crate::protocol::task::Task;
use norn_client::wire::response::Genesis;
use norn_client::wire::{NodeId, PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Version of the records below, written into every segment's header.
pub const RECORD_VERSION: u16 = 1;

/// One entry of the log. Replaying all of them in order gives the durable state of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// First record of a data directory: who this is, for ever.
    #[serde(rename = "I")]
    Identity {
        /// Drawn at the first start.
        node: NodeId,
        /// Drawn at the first start.
        incarnation: u64,
    },
    /// The process started once more.
    #[serde(rename = "B")]
    Boot {
        /// From 1, without gaps.
        count: u64,
    },
    /// The cluster this node belongs to.
    #[serde(rename = "G")]
    Genesis(Arc<Genesis>),
    /// No id or session up to these marks will be lent again.
    #[serde(rename = "M")]
    Mark {
        /// Server time that may have been told to sessions.
        time_ms: u64,
        /// Sessions that may have been numbered.
        sessions: u64,
    },
    /// A promise and a vote.
    #[serde(rename = "V")]
    Vote {
        /// Partition.
        partition: PartitionId,
        /// Nothing below is voted for or acknowledged any more.
        promised: Epoch,
        /// Who has the vote in that epoch.
        voted_for: Option<ReplicaId>,
    },
    /// The table as a leader installed it or sent it later.
    #[serde(rename = "T")]
    Install {
        /// Partition.
        partition: PartitionId,
        /// Viewstamp the table now has.
        viewstamp: Viewstamp,
        /// Absent when the table at hand was the same and only got a new viewstamp.
        table: Option<Arc<Table>>,
    },
    /// Operations on the table.
    #[serde(rename = "O")]
    Ops {
        /// Partition.
        partition: PartitionId,
        /// Viewstamp before the first of them.
        after: Viewstamp,
        /// In order.
        ops: Vec<Arc<Op>>,
    },
    /// Facts about tasks, to be merged.
    #[serde(rename = "F")]
    Facts {
        /// Partition.
        partition: PartitionId,
        /// Deltas.
        items: Arc<Vec<(TaskId, Task)>>,
    },
}

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record body: {0}")]
pub struct RecordError(pub String);

impl Record {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.serialize(&mut rmp_serde::Serializer::new(out)).expect("records always encode");
    }

    /// Reads a body; every byte must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        norn_client::wire::codec::decode_value(bytes).map_err(|error| RecordError(error.to_string()))
    }
}
