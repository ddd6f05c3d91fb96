//! One node as one synchronous state machine.

// Fields of messages are documented where the message is.
pub mod consistent;
pub mod effect;
pub mod event;
#[allow(missing_docs)]
pub mod peer;
pub mod random;
pub mod record;
pub mod task;
pub mod time;

use crate::config::Config;
pub use effect::{Effect, Observation, Ticket};
pub use event::{ClientId, Event, Principal};
use norn_client::wire::NodeId;
use norn_client::wire::response::Genesis;
pub use peer::PeerMessage;
pub use record::Record;
use std::sync::Arc;
pub use time::Now;

/// What of a node does not come from its log.
#[derive(Debug, Clone)]
pub struct Founding {
    /// Settings.
    pub config: Config,
    /// Identity in the data directory.
    pub node: NodeId,
    /// Incarnation in the data directory.
    pub incarnation: u64,
    /// Name in its certificate.
    pub name: String,
    /// Address it advertises.
    pub address: String,
    /// Failure domain.
    pub zone: String,
}

/// A node.
///
/// Life: [`Node::new`], [`Node::recover`] with every record of the log in order, [`Node::start`], then
/// [`Node::step`] with every event.
#[derive(Debug)]
pub struct Node {}

impl Node {
    /// A node before its log is replayed. Same founding, records, events and seed: same effects.
    pub fn new(_founding: Founding, _seed: u64) -> Node {
        Node {}
    }

    /// Takes in one record of the log.
    pub fn recover(&mut self, _record: Record) -> Result<(), String> {
        Ok(())
    }

    /// The log is replayed; the clocks say `now`.
    pub fn start(&mut self, _now: Now, _effects: &mut Vec<Effect>) {}

    /// Takes in one event and says what to do, in order.
    pub fn step(&mut self, _now: Now, _event: Event, _effects: &mut Vec<Effect>) {}

    /// When `step` wants `Event::Wake` at the latest, on the monotonic clock in microseconds.
    pub fn next_wake(&self) -> Option<u64> {
        None
    }

    /// The cluster, once known.
    pub fn genesis(&self) -> Option<&Arc<Genesis>> {
        None
    }
}
