//! What the core and the log say to each other of a snapshot: its parts, what the log is to put in, and where it has tasks then.

use super::record::Record;
use super::task::{Place, Wanted};
use norn_wire::{PartitionId, TaskId};

/// A part of the state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// In order.
    pub records: Vec<Record>,
    /// What is not in memory. The host puts it in, out of its log.
    pub gaps: Vec<Gap>,
    /// There are no more.
    pub last: bool,
}

/// A task in a record of facts of which a part is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Place of the record in the part.
    pub record: usize,
    /// Place of the task in the record.
    pub item: usize,
    /// What is missing.
    pub wanted: Wanted,
}

/// Tasks of a partition in a record of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Partition.
    pub partition: PartitionId,
    /// The first of them.
    pub first: TaskId,
    /// The last of them.
    pub last: TaskId,
    /// Where the record is.
    pub place: Place,
}
