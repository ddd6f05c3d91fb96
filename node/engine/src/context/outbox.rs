//! Effect buffer of a step, in order, and the messages and replies that wait for the disk.

use crate::context::tally::Tally;
use crate::effect::{Effect, Observation, Ticket};
use crate::event::ClientId;
use norn_model::message::{LogPosition, PeerMessage};
use norn_model::record::Record;
use norn_wire::{NodeId, Request, Response, Versions};
use std::collections::{BTreeMap, VecDeque};

/// Message or reply that may leave only once the records before it are on disk.
#[derive(Debug)]
enum Held {
    Message(NodeId, PeerMessage),
    Reply(ClientId, u64, Response),
}

/// Collects the effects of a step.
#[derive(Debug, Default)]
pub struct Outbox {
    me: NodeId,
    effects: Vec<Effect>,
    records: Vec<Record>,
    held: VecDeque<(Ticket, Held)>,
    issued: Ticket,
    durable: Ticket,
    /// Durable log position.
    log: LogPosition,
    /// Messages of this node to itself, handled before the step ends.
    loopback: VecDeque<PeerMessage>,
    counters: BTreeMap<&'static str, u64>,
    /// Counts by queue.
    tally: Tally,
    /// Protocol versions of the peers that have connected.
    versions: BTreeMap<NodeId, u8>,
    /// The peer whose event is being handled.
    sender: Option<NodeId>,
}

/// Counters beside those of observations.
pub const COUNTED: [&str; 3] = ["loads_refused", "promises_refused_at_start", "questions_of_ended_processes"];

impl Outbox {
    /// Returns an empty buffer for a node.
    pub fn new(me: NodeId) -> Outbox {
        Outbox { me, ..Outbox::default() }
    }

    /// Appends a record to the log.
    pub fn persist(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Records of this step so far.
    pub fn unwritten(&self) -> &[Record] {
        &self.records
    }

    /// Loses the last operations of this turn, if it has other records, too: a planted bug.
    pub fn lose_operations(&mut self) {
        let last = self.records.iter().rposition(|record| matches!(record, Record::Ops { .. }));
        if let Some(last) = last.filter(|_| self.records.len() > 1) {
            self.records.remove(last);
        }
    }

    /// Sets the protocol version spoken with a peer.
    pub fn set_version(&mut self, node: NodeId, version: u8) {
        self.versions.insert(node, version);
    }

    /// Whether a peer has connected, so that the version spoken with it is known.
    pub fn knows_version(&self, node: NodeId) -> bool {
        self.versions.contains_key(&node)
    }

    /// Returns the version spoken with a peer; before it has connected, the oldest.
    pub fn version_of(&self, node: NodeId) -> u8 {
        self.versions.get(&node).copied().unwrap_or(Versions::SPOKEN.oldest)
    }

    /// Sends a message at once.
    pub fn send(&mut self, to: NodeId, message: impl Into<PeerMessage>) {
        let message = message.into();
        if to == self.me {
            self.loopback.push_back(message);
        } else {
            self.effects.push(Effect::Send { to, message });
        }
    }

    /// Returns the ticket after which everything persisted so far is durable.
    pub fn ticket(&self) -> Ticket {
        if self.records.is_empty() { self.issued } else { Ticket(self.issued.0 + 1) }
    }

    /// Returns the ticket of the last batch that was handed to the host.
    pub fn issued(&self) -> Ticket {
        self.issued
    }

    /// Sends a message once everything persisted so far, in this step or before, is on disk.
    pub fn send_durable(&mut self, to: NodeId, message: impl Into<PeerMessage>) {
        let mut message = message.into();
        let ticket = self.ticket();
        if ticket <= self.durable {
            message.set_log(self.log);
            self.send(to, message);
        } else {
            assert!(
                self.held.back().is_none_or(|(last, _)| *last <= ticket),
                "what waits for the disk is not in order"
            );
            self.held.push_back((ticket, Held::Message(to, message)));
        }
    }

    /// Answers a client at once.
    pub fn reply(&mut self, client: ClientId, number: u64, response: Response) {
        self.effects.push(Effect::Reply { client, number, response });
    }

    /// Answers a client once everything persisted so far is on disk.
    pub fn reply_durable(&mut self, client: ClientId, number: u64, response: Response) {
        let ticket = self.ticket();
        if ticket <= self.durable {
            self.reply(client, number, response);
        } else {
            assert!(
                self.held.back().is_none_or(|(last, _)| *last <= ticket),
                "what waits for the disk is not in order"
            );
            self.held.push_back((ticket, Held::Reply(client, number, response)));
        }
    }

    /// Sets the durable log position.
    pub fn set_log(&mut self, log_position: LogPosition) {
        self.log = log_position;
    }

    /// Releases what waits for tickets up to this one, which is on disk now.
    pub fn persisted(&mut self, ticket: Ticket) {
        assert!(ticket <= self.issued, "the host reports a ticket that was never issued");
        self.durable = self.durable.max(ticket);
        while self.held.front().is_some_and(|(needs, _)| *needs <= self.durable) {
            match self.held.pop_front().expect("just looked at").1 {
                Held::Message(to, mut message) => {
                    message.set_log(self.log);
                    self.send(to, message);
                }
                Held::Reply(client, number, response) => self.reply(client, number, response),
            }
        }
    }

    /// Reports to observers, and counts.
    pub fn observe(&mut self, observation: Observation) {
        *self.counters.entry(observation.name()).or_default() += observation.amount();
        self.effects.push(Effect::Observe(observation));
    }

    /// Sets the peer whose event is handled next, if it is one's.
    pub fn set_sender(&mut self, sender: Option<NodeId>) {
        self.sender = sender;
    }

    /// Reports that something of the peer whose event is being handled was refused.
    pub fn refuse(&mut self, what: &'static str) {
        self.observe(Observation::Refused { what, from: self.sender });
    }

    /// Adds any other effect.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Counts an event that is no observation: one of [`COUNTED`].
    pub fn count(&mut self, name: &'static str) {
        assert!(COUNTED.contains(&name), "{name} is not explained to people");
        *self.counters.entry(name).or_default() += 1;
    }

    /// Counts a request of a client by its verb.
    pub fn count_request(&mut self, request: &Request) {
        *self.counters.entry(request.verb()).or_default() += 1;
    }

    /// Counts by queue.
    pub fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Takes the next message of this node to itself.
    pub fn next_loopback(&mut self) -> Option<PeerMessage> {
        self.loopback.pop_front()
    }

    /// Counters by name.
    pub fn counters(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters
    }

    /// Ends a step.
    pub fn flush(&mut self, effects: &mut Vec<Effect>) {
        assert!(self.loopback.is_empty(), "a step ends with nothing left to do");
        assert!(self.durable <= self.issued, "more is on disk than was handed to it");
        if !self.records.is_empty() {
            self.issued = Ticket(self.issued.0 + 1);
            effects.push(Effect::Persist { ticket: self.issued, records: std::mem::take(&mut self.records) });
        }
        assert!(
            self.held.back().is_none_or(|(ticket, _)| *ticket <= self.issued),
            "what waits for the disk waits for a batch that is not handed to it"
        );
        effects.append(&mut self.effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::message::Claiming;

    const PEER: NodeId = NodeId(2);

    fn wake() -> PeerMessage {
        PeerMessage::Claiming(Claiming::Interest { queues: Vec::new() })
    }

    fn sends(effects: &[Effect]) -> usize {
        effects.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count()
    }

    // T25, E21
    #[test]
    fn what_rests_on_the_disk_waits_for_it() {
        let mut outbox = Outbox::new(NodeId(1));
        let mut effects = Vec::new();
        outbox.persist(Record::Boot { count: 1 });
        outbox.send_durable(PEER, wake());
        outbox.send(PEER, wake());
        outbox.flush(&mut effects);
        assert!(matches!(effects[0], Effect::Persist { ticket: Ticket(1), .. }));
        assert_eq!(sends(&effects), 1);

        // A later step without records still waits for the earlier ones.
        effects.clear();
        outbox.send_durable(PEER, wake());
        outbox.flush(&mut effects);
        assert_eq!(sends(&effects), 0);

        outbox.persisted(Ticket(1));
        outbox.flush(&mut effects);
        assert_eq!(sends(&effects), 2);
        outbox.send_durable(PEER, wake());
        outbox.flush(&mut effects);
        assert_eq!(sends(&effects), 3);
    }

    #[test]
    #[should_panic(expected = "never issued")]
    fn a_host_that_reports_too_much_is_stopped() {
        Outbox::new(NodeId(1)).persisted(Ticket(1));
    }
}
