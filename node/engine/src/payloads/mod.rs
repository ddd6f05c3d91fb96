//! Bodies of tasks, results and log entries: which are in memory, and how the others come back from the log.

pub mod bodies;
pub mod loads;

use crate::effect::Ticket;
use bodies::Bodies;
use loads::Loads;
use norn_model::task::Part;
use norn_wire::PartitionId;

/// Where the bytes of tasks are. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Payloads {
    bodies: Bodies,
    loads: Loads,
}

impl Payloads {
    /// Bytes in memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bodies.memory_bytes()
    }

    /// Number of tasks of this node, about.
    pub(crate) fn tasks(&self) -> usize {
        self.bodies.tasks()
    }

    /// Notes the next record of facts, handed to the log with this ticket.
    pub(crate) fn persisted(&mut self, ticket: Ticket, partition: PartitionId, bodies: Vec<Part>) {
        self.bodies.persisted(ticket, partition, bodies);
    }

    /// Forgets what is lost of a replica that goes.
    pub(crate) fn forget_lost(&mut self, partition: PartitionId) {
        self.bodies.lost.retain(|(of, _)| *of != partition);
    }
}

#[cfg(test)]
impl Payloads {
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }
}
