//! Links to the other members of a cluster, as the driver uses them.

use norn_model::message::PeerMessage;
use norn_wire::membership::Roster;
use norn_wire::{ClusterId, NodeId};

/// Carries messages to the other members.
pub trait Links: Send + 'static {
    /// Takes the members as they are now.
    fn join(&mut self, cluster: ClusterId, roster: &Roster);
    /// Puts a message into the envelope of this turn for its receiver. A message to one that cannot be reached is dropped.
    fn put(&mut self, to: NodeId, message: PeerMessage);
    /// Hands the envelopes of this turn over.
    fn post(&mut self);
    /// Sends what is queued, within a short time limit, and ends all links.
    fn stop(self) -> impl Future<Output = ()> + Send;
}

/// The links of a node that is alone: there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLinks;

impl Links for NoLinks {
    fn join(&mut self, _cluster: ClusterId, _roster: &Roster) {}

    fn put(&mut self, to: NodeId, message: PeerMessage) {
        tracing::debug!(%to, message = message.name(), "dropped: this node is alone");
    }

    fn post(&mut self) {}

    async fn stop(self) {}
}
