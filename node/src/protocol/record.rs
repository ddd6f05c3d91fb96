//! What a node writes to its log.
//!
//! Bodies are MessagePack by position; the segment header names the format's version. Fields are only ever added at
//! the end, with a default, or a new variant takes over.

use crate::protocol::consistent::cohort::Told;
use crate::protocol::consistent::table::{Op, Table};
use crate::protocol::consistent::{Epoch, ReplicaId, Viewstamp};
use crate::protocol::partition::Wound;
use crate::protocol::task::Task;
use norn_wire::membership::Roster;
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId, TaskId};
use serde::{Deserialize, Serialize};
use std::fmt;
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
    /// How far the log was durable when the first start began that no peer has answered; none once one has.
    #[serde(rename = "U")]
    Unanswered {
        /// Ordinal of a record.
        began: Option<u64>,
    },
    /// The cluster this node belongs to.
    #[serde(rename = "G")]
    Genesis(Arc<Genesis>),
    /// Who belongs to the cluster, as far as this node has heard, where that is no longer as it was founded.
    #[serde(rename = "N")]
    Roster(Arc<Roster>),
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
    /// What is missing of a replica because records before this one were lost; nothing, once that is healed.
    #[serde(rename = "W")]
    Wound {
        /// Partition.
        partition: PartitionId,
        /// In place of what an earlier one said.
        wound: Wound,
        /// Digest of all losses that the node knew of.
        losses: u64,
    },
    /// The replica has left the cohort: all that records before this one say of it is void, but for its promise.
    #[serde(rename = "L")]
    Left {
        /// Partition.
        partition: PartitionId,
        /// Who holds it, as far as was known.
        told: Box<Told>,
    },
    /// Tasks that are no more: whatever records before this one say of them is void.
    #[serde(rename = "X")]
    Forgot {
        /// Partition.
        partition: PartitionId,
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// Facts about tasks of a partition that is not held here, which are kept for its members.
    #[serde(rename = "H")]
    Hint {
        /// Partition.
        partition: PartitionId,
        /// Since when anything of the partition has been kept without a break, by the wall clock.
        since_ms: u64,
        /// Deltas.
        items: Arc<Vec<(TaskId, Task)>>,
    },
    /// Tasks of which a member lacks facts that are known here.
    #[serde(rename = "Y")]
    Owed {
        /// The member.
        to: NodeId,
        /// Partition.
        partition: PartitionId,
        /// Since when it has lacked anything without a break, by the wall clock.
        since_ms: u64,
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// Such tasks are not kept any more.
    #[serde(rename = "D")]
    Handed {
        /// The member that lacked them; none for facts of a partition that is not held here.
        to: Option<NodeId>,
        /// Partition.
        partition: PartitionId,
        /// Tasks; with a member, none for all of the partition.
        ids: Vec<TaskId>,
    },
    /// The node has run for so long, in all its starts: whatever stands before this had happened by then.
    #[serde(rename = "C")]
    Ran {
        /// Microseconds of its monotonic clocks.
        us: u64,
    },
    /// How old leases were when the node had run for so long. It stands behind the claims that it is about.
    #[serde(rename = "A")]
    Ages {
        /// Partition.
        partition: PartitionId,
        /// Microseconds of its monotonic clocks.
        ran_us: u64,
        /// So many milliseconds ago, at least, each operation had been appended up to one of these viewstamps in the same epoch.
        points: Vec<(Viewstamp, u64)>,
    },
    /// The log is a copy that must not be used any more. The last record of its log.
    #[serde(rename = "R")]
    Retired {
        /// For people.
        reason: String,
    },
    /// Last record of a snapshot. It stands nowhere else.
    #[serde(rename = "E")]
    End {
        /// What records of the log up to this ordinal say may be in the snapshot already.
        covered: u64,
        /// Where the records of each partition stand in the snapshot, in its order.
        places: Vec<Place>,
        /// Ordinal of the first record in it of what is kept for others; 0 where there is none.
        #[serde(default, skip_serializing_if = "is_zero")]
        hints: u64,
    },
}

/// Ordinals within a snapshot of a partition's records; 0 where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Partition.
    pub partition: PartitionId,
    /// What is missing of it.
    pub wound: u64,
    /// Its vote.
    pub vote: u64,
    /// Its table.
    pub table: u64,
    /// The first of its facts.
    pub facts: u64,
}

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record body: {0}")]
pub struct RecordError(pub String);

/// What a record is about, in one byte. Its name in the log never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(pub u8);

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Kind {
    /// Of a record that nobody can name.
    pub const UNKNOWN: Kind = Kind(0);

    /// Whether this program knows such records.
    pub fn is_known(self) -> bool {
        b"IBGMVTOFEWXRUHYDLNCA".contains(&self.0)
    }

    /// What a replica misses that has lost such a record; `None` where a node cannot go on without it, or where it is part
    /// of no replica. A record of a
    /// wound may have opened one or closed one, so that nothing is known any more.
    pub fn wound(self) -> Option<Wound> {
        match self.0 {
            b'F' | b'X' => Some(Wound { facts: true, table: false }),
            b'T' | b'O' | b'W' | b'L' => Some(Wound { facts: true, table: true }),
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
    /// What it is about.
    pub fn kind(&self) -> Kind {
        Kind(match self {
            Record::Identity { .. } => b'I',
            Record::Boot { .. } => b'B',
            Record::Unanswered { .. } => b'U',
            Record::Genesis(_) => b'G',
            Record::Mark { .. } => b'M',
            Record::Vote { .. } => b'V',
            Record::Install { .. } => b'T',
            Record::Ops { .. } => b'O',
            Record::Facts { .. } => b'F',
            Record::End { .. } => b'E',
            Record::Wound { .. } => b'W',
            Record::Left { .. } => b'L',
            Record::Forgot { .. } => b'X',
            Record::Retired { .. } => b'R',
            Record::Hint { .. } => b'H',
            Record::Owed { .. } => b'Y',
            Record::Handed { .. } => b'D',
            Record::Roster(_) => b'N',
            Record::Ran { .. } => b'C',
            Record::Ages { .. } => b'A',
        })
    }

    /// The partition whose replica it belongs to; none if it is about the whole node. What is kept for others is part of no
    /// replica, and neither are ages, without which it would only count anew.
    pub fn partition(&self) -> Option<PartitionId> {
        match self {
            Record::Vote { partition, .. }
            | Record::Install { partition, .. }
            | Record::Ops { partition, .. }
            | Record::Facts { partition, .. }
            | Record::Wound { partition, .. }
            | Record::Left { partition, .. }
            | Record::Forgot { partition, .. } => Some(*partition),
            Record::Identity { .. }
            | Record::Boot { .. }
            | Record::Unanswered { .. }
            | Record::Genesis(_)
            | Record::Mark { .. }
            | Record::Retired { .. }
            | Record::Hint { .. }
            | Record::Owed { .. }
            | Record::Handed { .. }
            | Record::Roster(_)
            | Record::Ran { .. }
            | Record::Ages { .. }
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
