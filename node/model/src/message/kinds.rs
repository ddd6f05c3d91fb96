//! Properties of messages: stream, name, partition, and what a receiver checks before it handles one.

use super::{LogPosition, PeerMessage};
use norn_wire::PartitionId;

/// The stream of a message. Streams are separate so that bulk never delays claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Heartbeats, elections, claims, writes.
    Urgent,
    /// Anti-entropy, lists, whole tables.
    Bulk,
}

/// What a receiver checks before it handles a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Nothing.
    Nothing,
    /// Whether its own start has been answered, so that its log is the latest: the message asks for a promise, or for a statement that
    /// the receiver knows all it should.
    Promise,
    /// Whether the process that asks with this number still runs: the request takes something for it.
    Process(u64),
}

/// What a message says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Properties {
    /// Short name for traces and counters.
    pub name: &'static str,
    /// Stream that it travels on.
    pub class: Class,
    /// The one partition that it is about.
    pub partition: Option<PartitionId>,
    /// What its receiver checks.
    pub check: Check,
    /// The sender's durable log position, if the message depends on it.
    pub log: Option<LogPosition>,
}

/// Properties of a message that does not depend on its sender's log.
pub(super) fn of(name: &'static str, class: Class, partition: Option<PartitionId>, check: Check) -> Properties {
    Properties { name, class, partition, check, log: None }
}

impl Properties {
    /// The message depends on this position in its sender's log.
    pub(super) fn with_log(self, log: LogPosition) -> Properties {
        Properties { log: Some(log), ..self }
    }
}

impl PeerMessage {
    /// The stream that it travels on.
    pub fn class(&self) -> Class {
        self.properties().class
    }

    /// A short name for traces and counters.
    pub fn name(&self) -> &'static str {
        self.properties().name
    }

    /// The one partition that it is about.
    pub fn partition(&self) -> Option<PartitionId> {
        self.properties().partition
    }

    /// The sender's durable log position, if the message depends on it.
    pub fn log(&self) -> Option<LogPosition> {
        self.properties().log.filter(|log_position| log_position.boot > 0)
    }

    /// The partition in which the receiver's replica is asked for a promise, or for a statement that it knows all it should.
    pub fn asks_for_promise(&self) -> Option<PartitionId> {
        let properties = self.properties();
        properties.partition.filter(|_| properties.check == Check::Promise)
    }

    /// Number of a request that takes something for the process that asks: claims, rate tokens, longer leases, changes of the cluster. A
    /// copy may arrive arbitrarily late, and once the asking process has ended no client waits for the answer. Requests that give something
    /// back stay valid then.
    pub fn takes(&self) -> Option<u64> {
        match self.properties().check {
            Check::Process(request_id) => Some(request_id),
            Check::Nothing | Check::Promise => None,
        }
    }
}
