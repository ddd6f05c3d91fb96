//! What all folders use: effects on their way out, timers, numbers of questions.

pub mod latest;
pub mod outbox;
pub(crate) mod partitions;
pub(crate) mod signals;
pub mod tally;
pub mod timers;

use crate::{Effect, Node};
use norn_wire::{PartitionId, TaskId};

impl Node {
    /// Stops the node before a violation of the protocol's rules spreads.
    pub(crate) fn halt(&mut self, reason: String) {
        if !self.halted {
            self.halted = true;
            self.outbox.effect(Effect::Halt { reason });
        }
    }

    /// The partition of a task, by the genesis of the cluster.
    pub(crate) fn partition_of(&self, id: &TaskId) -> PartitionId {
        let genesis = self.genesis.as_ref().expect("asked only in a cluster");
        norn_model::ring::partition_of_task(id, genesis.partitions)
    }

    /// The monotonic time after a delay, in microseconds.
    pub(crate) fn after_ms(&self, ms: u64) -> u64 {
        self.now.mono_after_ms(ms)
    }
}
