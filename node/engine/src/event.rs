//! Events: everything that can happen to a node.

use crate::effect::Ticket;
use norn_model::host::{DiskReport, MemoryReport};
use norn_model::message::PeerMessage;
use norn_model::snapshot::Moved;
use norn_model::task::{Filling, Place};
use norn_wire::{NodeId, PartitionId, Request, TaskId};
use std::sync::Arc;

/// A client connection, numbered by the host; never reused while the node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Identity of a requester, by its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name in the certificate.
    pub name: Arc<str>,
    /// Whether it is a node's certificate.
    pub node: bool,
}

/// Input of [`crate::Node::turn`].
#[derive(Debug, Clone)]
pub enum Event {
    /// A message of another node of the same cluster, whose identity the host has verified.
    Peer {
        /// Sender.
        from: NodeId,
        /// Message.
        message: PeerMessage,
    },
    /// A client's request. Each is answered by exactly one [`crate::effect::Effect::Reply`], unless the client goes away.
    Request {
        /// Connection.
        client: ClientId,
        /// The client's number of the request.
        number: u64,
        /// Identity of the client.
        principal: Principal,
        /// Request.
        request: Request,
    },
    /// Finished tasks are durably in the archive, or cannot be put there now.
    Archived {
        /// Partition.
        partition: PartitionId,
        /// Number from the effect.
        number: u64,
        /// Whether they are archived.
        done: bool,
    },
    /// The connection is closed; its answers are no longer wanted.
    ClientGone {
        /// Connection.
        client: ClientId,
    },
    /// Everything up to this ticket is on disk.
    Persisted {
        /// Ticket of an earlier [`crate::effect::Effect::Persist`].
        ticket: Ticket,
        /// Log location of each [`norn_model::record::Record::Facts`] in the batches that this event is the first to cover, in
        /// order; none where the location is unknown.
        places: Vec<Option<Place>>,
        /// Ordinal of the last record up to which nothing of the log can be lost now. Facts that may be acknowledged before they
        /// are durable can be behind it.
        durable: u64,
    },
    /// A snapshot also has these tasks; files older than it will be removed. Comes after the places of all records in those
    /// files.
    Moved {
        /// Tasks in their order, each range in one record.
        ranges: Vec<Moved>,
    },
    /// Answer to a [`crate::effect::Effect::Load`]: for each requested part of a task, the value in that record, if it can be
    /// read.
    Loaded {
        /// Number of the load.
        number: u64,
        /// In the order of the request.
        bodies: Vec<Option<Filling>>,
        /// Some absent parts could not be read just now, for a reason that does not prove a loss.
        unread: bool,
    },
    /// A snapshot could not be written, because the log lacks parts of these tasks at their places.
    BodiesLost {
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// The time that `next_wake` asked for has come. Harmless at any other time.
    Wake,
    /// The connection to a peer is new: earlier messages may be lost.
    PeerConnected {
        /// Peer.
        peer: NodeId,
        /// Protocol version spoken on it.
        version: u8,
    },
    /// Disk measurements, on every change.
    Disk(DiskReport),
    /// Memory measurements, repeated while much is in use.
    Memory(MemoryReport),
    /// Stop serving: transfer leaderships, then emit [`crate::effect::Effect::Stopped`].
    Shutdown,
}
