//! What a folder reports to the folders above it.
//!
//! A folder calls only folders below it. What those above have to know, it reports as a [`Signal`]; the step hands signals out in the
//! order in which they were reported, after the message, timer or event that reported them (`signals.rs` of the crate root says what
//! follows from each).

use crate::queries::count::Total;
use norn_model::limits::SIGNALS_MAX;
use norn_wire::PartitionId;
use std::collections::VecDeque;

/// Something that happened and concerns folders above the one that reports it.
#[derive(Debug)]
pub(crate) enum Signal {
    /// This node leads the partition, and its first operation is committed.
    Established(PartitionId),
    /// The tasks of the cluster are counted for a status.
    StatusCounted(Box<Total>),
}

/// Signals that were reported and not handed out yet.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    reported: VecDeque<Signal>,
}

impl Signals {
    pub(crate) fn report(&mut self, signal: Signal) {
        assert!(self.reported.len() < SIGNALS_MAX, "a step ends: it keeps reporting");
        self.reported.push_back(signal);
    }

    pub(crate) fn next(&mut self) -> Option<Signal> {
        self.reported.pop_front()
    }
}
