//! Everything that can happen to a node.

use crate::protocol::effect::Ticket;
use crate::protocol::host::{DiskReport, MemoryReport};
use crate::protocol::peer::PeerMessage;
use crate::protocol::snapshot::Moved;
use crate::protocol::task::{Filling, Place};
use norn_wire::{NodeId, PartitionId, Request, TaskId};
use std::sync::Arc;

/// A client connection, numbered by the host; never reused while the node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// Who asks, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Name in the certificate.
    pub name: Arc<str>,
    /// Whether it is a node's certificate.
    pub node: bool,
}

/// Input of [`crate::protocol::Node::step`].
#[derive(Debug, Clone)]
pub enum Event {
    /// A message of another node of the same cluster, whose identity the host has verified.
    Peer {
        /// Sender.
        from: NodeId,
        /// Message.
        message: PeerMessage,
    },
    /// A client asks. Every request is answered by exactly one [`crate::protocol::Effect::Reply`], unless the client goes away.
    Request {
        /// Connection.
        client: ClientId,
        /// The client's number for it.
        number: u64,
        /// Who asks.
        principal: Principal,
        /// What.
        request: Request,
    },
    /// Finished tasks are in the archive, durably, or cannot be put there now.
    Archived {
        /// Partition.
        partition: PartitionId,
        /// As in the effect.
        number: u64,
        /// They are.
        done: bool,
    },
    /// The connection is closed; nobody waits for its answers.
    ClientGone {
        /// Connection.
        client: ClientId,
    },
    /// Everything up to this ticket is on disk.
    Persisted {
        /// Ticket of an earlier [`crate::protocol::Effect::Persist`].
        ticket: Ticket,
        /// Where the log has each [`crate::protocol::Record::Facts`] of the batches that this is the first to cover, in
        /// their order; none for those of which that cannot be said.
        places: Vec<Option<Place>>,
        /// Ordinal of the last record before which nothing of the log could be lost now. Facts that may be acknowledged
        /// before they are durable can be behind it.
        durable: u64,
    },
    /// A snapshot has these tasks, too; files older than it will be removed. Comes after the places of all records in those
    /// files.
    Moved {
        /// Tasks in their order, each range in one record.
        ranges: Vec<Moved>,
    },
    /// Answer to a [`crate::protocol::Effect::Load`]: for each part of a task that was asked for what the task has there in
    /// that record, if it can be read.
    Loaded {
        /// Number of the load.
        number: u64,
        /// In the order of the question.
        bodies: Vec<Option<Filling>>,
        /// Of what is absent some could not be read just now, for a reason that says nothing of the log.
        unread: bool,
    },
    /// A snapshot could not be written, as the log has not what it needs of these tasks where that should be.
    BodiesLost {
        /// Tasks.
        ids: Vec<TaskId>,
    },
    /// The time that `next_wake` asked for has come. Harmless at any other time.
    Wake,
    /// The connection to a peer is new: whatever was sent before may be lost.
    PeerConnected {
        /// Peer.
        peer: NodeId,
        /// The protocol version that both speak on it.
        version: u8,
    },
    /// What the host has measured of the disk, whenever it changes.
    Disk(DiskReport),
    /// What the host has measured of memory, again and again while much is in use.
    Memory(MemoryReport),
    /// Stop serving: hand leadership over, then say [`crate::protocol::Effect::Stopped`].
    Shutdown,
}
