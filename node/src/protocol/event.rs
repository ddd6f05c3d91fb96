//! Everything that can happen to a node.

use crate::protocol::effect::Ticket;
use crate::protocol::membership::DiskReport;
use crate::protocol::peer::PeerMessage;
use norn_client::wire::{NodeId, PartitionId, Request};
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
    },
    /// The time that `next_wake` asked for has come. Harmless at any other time.
    Wake,
    /// The connection to a peer is new: whatever was sent before may be lost.
    PeerConnected {
        /// Peer.
        peer: NodeId,
    },
    /// What the host has measured of the disk, whenever it changes.
    Disk(DiskReport),
    /// Stop serving: hand leadership over, then say [`crate::protocol::Effect::Stopped`].
    Shutdown,
}
