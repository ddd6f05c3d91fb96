//! Snapshot data between the core and the log: its parts, the payloads that the log fills in, and the new places of tasks.

use super::record::Record;
use super::task::{Place, Wanted};
use norn_wire::{PartitionId, TaskId};

/// Part of the state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// In order.
    pub records: Vec<Record>,
    /// Payloads that are not in memory. The host fills them in from its log.
    pub gaps: Vec<Gap>,
    /// Whether this is the last part.
    pub last: bool,
}

/// Part left out of a task in a record of facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Index of the record in the part.
    pub record: usize,
    /// Index of the task in the record.
    pub item: usize,
    /// Where to read the missing part.
    pub wanted: Wanted,
}

/// Range of tasks of a partition in a record of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Partition.
    pub partition: PartitionId,
    /// First task.
    pub first: TaskId,
    /// Last task.
    pub last: TaskId,
    /// Location of the record.
    pub place: Place,
}
