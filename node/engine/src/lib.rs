//! One node as one synchronous state machine.
//!
//! [`Node::step`] is the only way in, [`Effect`] the only way out. Each folder handles some of the messages, as methods of [`Node`];
//! `dispatch.rs` routes. The folders have an order, from what all use to what uses all: [`context`], [`membership`], [`payloads`],
//! [`consensus`], [`write_read`], [`repair`], [`queries`], [`claims`], [`retention`], [`workflow`], [`controller`], [`recovery`],
//! [`views`]. What concerns folders above its own, a folder reports as a signal (`signals.rs`), or returns to its caller. It calls none
//! of them (`tests/tests/pure/calls.rs`).

// The documented surface is the client library's; here a comment says what a name does not.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]
// Without the mutants feature, each planted bug is the constant `false`.
#![cfg_attr(not(feature = "mutants"), allow(clippy::nonminimal_bool, clippy::eq_op, clippy::overly_complex_bool_expr))]

pub mod claims;
pub mod consensus;
pub mod context;
pub mod controller;
mod dispatch;
pub mod effect;
pub mod event;
mod heartbeats;
pub mod membership;
mod outcomes;
pub mod payloads;
pub mod queries;
pub mod recovery;
pub mod repair;
mod requests;
pub mod retention;
mod signals;
pub mod views;
pub mod workflow;
pub mod write_read;

#[cfg(test)]
mod tests;

use crate::claims::Claims;
use crate::consensus::Consensus;
pub use crate::context::outbox::COUNTED;
use crate::context::outbox::Outbox;
use crate::context::partitions::Partitions;
use crate::context::signals::Signals;
pub use crate::context::tally::{Counted, QueueTally, Spread};
use crate::context::timers::Timers;
use crate::controller::Controller;
use crate::membership::Membership;
use crate::membership::id_allocator::IdAllocator;
use crate::payloads::Payloads;
use crate::queries::Queries;
pub use crate::recovery::save::Cursor;
use crate::repair::Repair;
pub use crate::views::inspect::ReplicaView;
pub use crate::views::measures::{Measures, QueueMeasures};
pub use crate::views::status::{CLOCKS, STANDINGS};
use crate::workflow::Workflow;
use crate::write_read::PendingRequests;
pub use effect::{Effect, Observation, Ticket};
pub use event::{ClientId, Event, Principal};
use norn_model::config::{Config, mutant};
pub use norn_model::data_loss::DataLoss;
use norn_model::limits::LOOPBACKS_MAX;
pub use norn_model::message::PeerMessage;
use norn_model::message::{Peering, Replication};
pub use norn_model::record::Record;
pub use norn_model::snapshot::{Gap, Moved, Part};
pub use norn_model::time::Now;
use norn_wire::membership::Roster;
use norn_wire::random::Random;
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bootstrap parameters of a node, which do not come from its log.
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
pub struct Node {
    founding: Founding,
    /// Shared, so that a step may hold it beside what it changes.
    config: Arc<Config>,
    me: NodeId,
    boot: u64,
    now: Now,
    random: Random,
    outbox: Outbox,
    timers: Timers,
    /// What folders have reported to those above them in this step.
    signals: Signals,
    genesis: Option<Arc<Genesis>>,
    /// Members of the cluster, as far as this node has heard.
    roster: Arc<Roster>,
    partitions: Partitions,
    id_allocator: IdAllocator,
    pending_requests: PendingRequests,
    /// Partitions whose ready work changed in this step.
    dirty_heads: BTreeSet<PartitionId>,
    /// Partitions that this node leads. It holds far more.
    led: BTreeSet<PartitionId>,
    /// The start counter is not on disk yet: no peer or client may see a number that may be used again.
    starting: bool,
    stopping: bool,
    stop_deadline_us: u64,
    halted: bool,
    /// The log is a stale copy: the node sends and stores nothing any more.
    retired: bool,
    membership: Membership,
    payloads: Payloads,
    consensus: Consensus,
    repair: Repair,
    queries: Queries,
    claims: Claims,
    workflow: Workflow,
    controller: Controller,
}

impl Node {
    /// Returns a node before its log is replayed. Same founding, records, events and seed give the same effects.
    pub fn new(founding: Founding, seed: u64) -> Node {
        let mut random = Random::new(seed);
        Node {
            config: Arc::new(founding.config.clone()),
            me: founding.node,
            boot: 0,
            now: Now::default(),
            outbox: Outbox::new(founding.node),
            timers: Timers::default(),
            signals: Signals::default(),
            genesis: None,
            roster: Arc::default(),
            partitions: Partitions::default(),
            id_allocator: IdAllocator::default(),
            pending_requests: PendingRequests::default(),
            dirty_heads: BTreeSet::new(),
            led: BTreeSet::new(),
            starting: true,
            stopping: false,
            stop_deadline_us: 0,
            halted: false,
            retired: false,
            membership: Membership::default(),
            payloads: Payloads::default(),
            consensus: Consensus::default(),
            repair: Repair::default(),
            queries: Queries::default(),
            claims: Claims::default(),
            workflow: Workflow::default(),
            controller: Controller::default(),
            random: random.child(),
            founding,
        }
    }

    /// Starts the node after the replay of a log that is durable up to this record; the clocks read `now`.
    pub fn start(&mut self, now: Now, durable: u64, effects: &mut Vec<Effect>) {
        self.begin_start(now, durable);
        self.settle(effects);
    }

    /// Handles one event, as [`Node::turn`] does.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.turn(now, [event], effects);
    }

    /// Handles all events that the host has at one moment, in their order, and appends the resulting effects, in order.
    ///
    /// What they change together is written and replicated once: there is at most one [`Effect::Persist`], and the operations that
    /// they append to a partition are one message for each follower.
    pub fn turn(&mut self, now: Now, events: impl IntoIterator<Item = Event>, effects: &mut Vec<Effect>) {
        assert!(now.mono_us >= self.now.mono_us, "the monotonic clock went back");
        if self.halted || self.retired {
            return;
        }
        self.now = now;
        self.watch_clock();
        let mut count = 0;
        for event in events {
            count += 1;
            self.handle_signals();
            // What this event asks for must not miss work that came with one before it.
            if !mutant!(self.config, HeadsOfTurnBefore) {
                self.publish_dirty_heads();
            }
            self.on_event(event);
            self.talk_to_itself();
            if self.halted || self.retired {
                break;
            }
        }
        if mutant!(self.config, TurnWrittenInPart) && count > 1 {
            self.outbox.lose_operations();
        }
        self.settle(effects);
    }

    fn on_event(&mut self, event: Event) {
        self.outbox.set_sender(match &event {
            Event::Peer { from, .. } => Some(*from),
            Event::PeerConnected { peer, .. } => Some(*peer),
            _ => None,
        });
        match event {
            Event::Peer { from, message } => self.on_peer(from, message),
            Event::Request { client, number, principal, request } => {
                self.on_request(client, number, &principal, request)
            }
            Event::ClientGone { client } => self.on_client_gone(client),
            Event::Persisted { ticket, places, durable } => self.on_persisted(ticket, &places, durable),
            Event::Moved { ranges } => self.on_moved(&ranges),
            Event::Loaded { number, bodies, unread } => self.on_loaded(number, bodies, unread),
            Event::BodiesLost { ids } => self.on_bodies_lost(&ids),
            Event::Archived { partition, number, done } => self.on_archived(partition, number, done),
            Event::Wake => self.on_wake(),
            Event::PeerConnected { peer, version } => self.on_peer_connected(peer, version),
            Event::Disk(report) => self.on_disk(report),
            Event::Memory(report) => self.on_memory(report),
            Event::Shutdown => self.on_shutdown(),
        }
    }

    /// Latest time at which the node needs [`Event::Wake`], on the monotonic clock in microseconds.
    pub fn next_wake(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Whether the log was found to be a stale copy.
    pub fn is_retired(&self) -> bool {
        self.retired
    }

    /// Founding record of the cluster, once known.
    pub fn genesis(&self) -> Option<&Arc<Genesis>> {
        self.genesis.as_ref()
    }

    /// Members of the cluster, as far as the node has heard.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Handles the node's messages to itself.
    fn talk_to_itself(&mut self) {
        let mut messages: u64 = 0;
        self.handle_signals();
        while let Some(message) = self.outbox.next_loopback() {
            messages += 1;
            assert!(messages < LOOPBACKS_MAX, "a step ends: the node keeps talking to itself");
            self.on_message(self.me, message);
            self.handle_signals();
        }
    }

    /// Replicates, publishes heads, then hands out the effects.
    fn settle(&mut self, effects: &mut Vec<Effect>) {
        loop {
            self.talk_to_itself();
            if let Some(partition) = self.consensus.next_unsent() {
                self.replicate(partition);
            } else if let Some(partition) = self.dirty_heads.pop_first() {
                self.publish_heads(partition);
            } else {
                break;
            }
        }
        self.note_ran();
        self.outbox.flush(effects);
        if mutant!(self.config, WordMissing) {
            for effect in effects.iter_mut() {
                if let Effect::Send { message: message @ PeerMessage::Replication(Replication::Ack { .. }), .. } =
                    effect
                {
                    message.set_log(norn_model::message::LogPosition::default());
                }
            }
        }
        if self.halted {
            // Nothing that this step decided may reach the disk or the network.
            effects.retain(|effect| matches!(effect, Effect::Halt { .. }));
        }
    }

    fn publish_dirty_heads(&mut self) {
        while let Some(partition) = self.dirty_heads.pop_first() {
            self.publish_heads(partition);
            self.talk_to_itself();
        }
    }

    fn on_peer(&mut self, from: NodeId, message: PeerMessage) {
        if self.starting {
            if let Some(log_position) = message.log() {
                self.note_log(from, log_position);
            }
            return;
        }
        if !self.has_peer(from) {
            self.outbox.refuse("message of a node that is no member");
            return;
        }
        if message.log().is_some_and(|log_position| !self.note_log(from, log_position)) {
            return;
        }
        // Heartbeats of an earlier start, or of an image, are no sign of life of the start that leads.
        if !matches!(message, PeerMessage::Peering(Peering::Heartbeat(_))) {
            self.note_heard(from);
        }
        self.on_message(from, message);
    }
}
