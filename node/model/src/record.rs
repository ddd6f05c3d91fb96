//! Records of a node's log.
//!
//! Bodies are MessagePack by position; the segment header names the format's version. Fields are only ever added at
//! the end, with a default, or a new variant takes over.

use crate::claim_table::table::{ClaimTable, Op};
use crate::cohort::AdvertisedCohort;
use crate::data_loss::DataLoss;
use crate::task::Task;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::membership::Roster;
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Version of the records below, written into every segment's header.
pub const RECORD_VERSION: u16 = 1;

/// Log record. Replaying all of them in order gives the durable state of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// First record of a data directory: the node's identity, for ever.
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
    /// Length of the durable log when the first start began that no peer has answered; none once a peer has answered.
    #[serde(rename = "U")]
    Unanswered {
        /// Ordinal of the last durable record.
        began: Option<u64>,
    },
    /// The cluster that this node belongs to.
    #[serde(rename = "G")]
    Genesis(Arc<Genesis>),
    /// Latest known member list of the cluster, once it differs from that of the founding.
    #[serde(rename = "N")]
    Roster(Arc<Roster>),
    /// High-water marks: no id or session up to them will be lent again.
    #[serde(rename = "M")]
    HighWaterMark {
        /// Server time that sessions may have received.
        time_ms: u64,
        /// Sessions that may have been numbered.
        sessions: u64,
    },
    /// Promise and vote.
    #[serde(rename = "V")]
    Vote {
        /// Partition.
        partition: PartitionId,
        /// Highest epoch promised: nothing below it is voted for or acknowledged.
        promised: Epoch,
        /// Candidate that has the vote in that epoch.
        voted_for: Option<ReplicaId>,
    },
    /// The table as a leader installed it or sent it later.
    #[serde(rename = "T")]
    Install {
        /// Partition.
        partition: PartitionId,
        /// New viewstamp of the table.
        viewstamp: Viewstamp,
        /// Absent when the table at hand was the same and only got a new viewstamp.
        table: Option<Arc<ClaimTable>>,
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
    /// What a replica lacks because records before this one were lost; nothing, once it has recovered.
    #[serde(rename = "W")]
    DataLoss {
        /// Partition.
        partition: PartitionId,
        /// Replaces what an earlier record says.
        data_loss: DataLoss,
        /// Digest of all losses that the node knew of.
        losses: u64,
    },
    /// The replica has left the cohort: this voids all earlier records of it, but for its promise.
    #[serde(rename = "L")]
    Left {
        /// Partition.
        partition: PartitionId,
        /// Latest known cohort of the partition.
        advertised: Box<AdvertisedCohort>,
    },
    /// Tasks that were forgotten: this voids all earlier records of them.
    #[serde(rename = "X")]
    Forgot {
        /// Partition.
        partition: PartitionId,
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// Payload hint: facts about tasks of a partition that is not held here, kept for its members.
    #[serde(rename = "H")]
    Hint {
        /// Partition.
        partition: PartitionId,
        /// Since when hints of the partition have been kept without a break, by the wall clock.
        since_ms: u64,
        /// Deltas.
        items: Arc<Vec<(TaskId, Task)>>,
    },
    /// Id hint: tasks of which a member lacks facts that are known here.
    #[serde(rename = "Y")]
    IdHint {
        /// The member.
        to: NodeId,
        /// Partition.
        partition: PartitionId,
        /// Since when it has lacked anything without a break, by the wall clock.
        since_ms: u64,
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// Hints that are no longer kept.
    #[serde(rename = "D")]
    Handed {
        /// The member that lacked them; none for facts of a partition that is not held here.
        to: Option<NodeId>,
        /// Partition.
        partition: PartitionId,
        /// Tasks; with a member, none for all of the partition.
        ids: Vec<TaskId>,
    },
    /// Uptime of the node over all its starts: all earlier records had happened by then.
    #[serde(rename = "C")]
    Ran {
        /// Microseconds of its monotonic clocks.
        us: u64,
    },
    /// Lease ages at an uptime of the node. The record stands behind the claims that it is about.
    #[serde(rename = "A")]
    LeaseAges {
        /// Partition.
        partition: PartitionId,
        /// Microseconds of its monotonic clocks.
        ran_us: u64,
        /// Each operation up to one of these viewstamps, in the same epoch, was appended at least this many milliseconds ago.
        points: Vec<(Viewstamp, u64)>,
    },
    /// The log is a stale copy and must not be used any more. Last record of its log.
    #[serde(rename = "R")]
    Retired {
        /// Reason, for people to read.
        reason: String,
    },
    /// Last record of a snapshot. It occurs nowhere else.
    #[serde(rename = "E")]
    End {
        /// The snapshot may already contain what records of the log up to this ordinal say.
        covered: u64,
        /// Places of the records of each partition in the snapshot, in its order.
        places: Vec<Place>,
        /// Ordinal in it of the first record of hints; 0 where there is none.
        #[serde(default, skip_serializing_if = "is_zero")]
        hints: u64,
    },
}

/// Ordinals within a snapshot of a partition's records; 0 where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Partition.
    pub partition: PartitionId,
    /// Record of what it lacks.
    pub data_loss: u64,
    /// Its vote.
    pub vote: u64,
    /// Its table.
    pub table: u64,
    /// The first record of its facts, or of what it has forgotten.
    pub facts: u64,
}

/// Reason why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record body: {0}")]
pub struct RecordError(pub String);

/// Record type in one byte. Its value in the log never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(pub u8);

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Kind {
    /// Type of an unreadable record.
    pub const UNKNOWN: Kind = Kind(0);

    /// Whether this program knows such records.
    pub fn is_known(self) -> bool {
        b"IBGMVTOFEWXRUHYDLNCA".contains(&self.0)
    }

    /// What a replica lacks that has lost such a record; `None` where a node cannot go on without it, or where it is part of no
    /// replica. A lost record of a data loss may have opened a loss or closed one, so that nothing is known any more.
    pub fn data_loss(self) -> Option<DataLoss> {
        match self.0 {
            b'F' | b'X' => Some(DataLoss { facts: true, table: false }),
            b'T' | b'O' | b'W' | b'L' => Some(DataLoss { facts: true, table: true }),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            b'I' => "identity",
            b'B' => "boot",
            b'U' => "unanswered",
            b'G' => "genesis",
            b'M' => "mark",
            b'V' => "vote",
            b'T' => "install",
            b'O' => "ops",
            b'F' => "facts",
            b'E' => "end",
            b'W' => "wound",
            b'L' => "left",
            b'X' => "forgot",
            b'R' => "retired",
            b'H' => "hint",
            b'Y' => "owed",
            b'D' => "handed",
            b'N' => "roster",
            b'C' => "ran",
            b'A' => "ages",
            _ => "unknown",
        })
    }
}

impl Record {
    /// Returns the record's type.
    pub fn kind(&self) -> Kind {
        Kind(match self {
            Record::Identity { .. } => b'I',
            Record::Boot { .. } => b'B',
            Record::Unanswered { .. } => b'U',
            Record::Genesis(_) => b'G',
            Record::HighWaterMark { .. } => b'M',
            Record::Vote { .. } => b'V',
            Record::Install { .. } => b'T',
            Record::Ops { .. } => b'O',
            Record::Facts { .. } => b'F',
            Record::End { .. } => b'E',
            Record::DataLoss { .. } => b'W',
            Record::Left { .. } => b'L',
            Record::Forgot { .. } => b'X',
            Record::Retired { .. } => b'R',
            Record::Hint { .. } => b'H',
            Record::IdHint { .. } => b'Y',
            Record::Handed { .. } => b'D',
            Record::Roster(_) => b'N',
            Record::Ran { .. } => b'C',
            Record::LeaseAges { .. } => b'A',
        })
    }

    /// Returns the partition whose replica the record belongs to; none if it is about the whole node. Hints are part of no
    /// replica, and neither are ages, without which claims would only start to age anew.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            Record::Vote { partition, .. }
            | Record::Install { partition, .. }
            | Record::Ops { partition, .. }
            | Record::Facts { partition, .. }
            | Record::DataLoss { partition, .. }
            | Record::Left { partition, .. }
            | Record::Forgot { partition, .. } => Some(*partition),
            Record::Identity { .. }
            | Record::Boot { .. }
            | Record::Unanswered { .. }
            | Record::Genesis(_)
            | Record::HighWaterMark { .. }
            | Record::Retired { .. }
            | Record::Hint { .. }
            | Record::IdHint { .. }
            | Record::Handed { .. }
            | Record::Roster(_)
            | Record::Ran { .. }
            | Record::LeaseAges { .. }
            | Record::End { .. } => None,
        }
    }

    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.serialize(&mut rmp_serde::Serializer::new(out)).expect("records always encode");
    }

    /// Reads a body; every byte must belong to it.
    pub fn decode(bytes: &[u8]) -> Result<Record, RecordError> {
        norn_wire::codec::decode_value(bytes).map_err(|error| RecordError(error.to_string()))
    }
}
