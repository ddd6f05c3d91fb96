//! Questions over many tasks: lists, counts, watches.

pub mod count;
pub mod list;
pub mod watch;

use norn_wire::{PartitionId, Subject};
use watch::Watches;
use watch::journal::Journals;

/// What clients watch. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Queries {
    watches: Watches,
    journals: Journals,
}

impl Queries {
    /// Notes that a replica does not cover its partition any more.
    pub(crate) fn uncover(&mut self, partition: PartitionId) {
        self.journals.uncover(partition);
    }

    /// Ends a call of a watching client.
    pub(crate) fn close_watch(&mut self, subject: &Subject, request_id: u64) {
        self.watches.close(subject, request_id);
    }
}
