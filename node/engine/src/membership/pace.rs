//! When heartbeats are sent. All nodes that hear each other send theirs together, so that a node wakes rarely, and the transport
//! acknowledges one heartbeat of a pair with the other.
//!
//! A node begins a round once an interval has passed, or before that as soon as a lower node begins one. So the lowest node sets
//! the pace, and each other one waits a little longer for it than an interval. Of each pair the lower node speaks first, and the
//! higher one answers; to a lower node that is silent it speaks in its own rounds. Nothing rests on the order of nodes or rounds: a node
//! that hears no other sends one heartbeat an interval to each peer. The idea is that of pulse-coupled oscillators (Mirollo and
//! Strogatz, Synchronization of pulse-coupled biological oscillators, 1990).

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_wire::NodeId;

/// The part of an interval by which a node waits longer for the round of a lower node than for its own.
const SLACK_PART: u64 = 16;

impl Node {
    /// Begins a round: sends a heartbeat to each peer that will not ask for one first, and arms the next round.
    pub(crate) fn send_heartbeats(&mut self) {
        self.look_for_pause();
        let follows = self.membership.peers.keys().any(|node| *node < self.me && self.is_alive(*node));
        let wait_us = if follows { self.patience_us() } else { self.interval_us() };
        assert!(wait_us < self.config.election_timeout_ms * 1_000, "a node would fall silent between two rounds");
        self.timers.set(Key::Heartbeat, self.now.mono_us + wait_us);
        let peers: Vec<NodeId> = self.membership.peers.keys().copied().filter(|node| !self.will_ask(*node)).collect();
        let incomplete = self.has_incomplete_facts();
        for node in peers {
            self.send_heartbeat(node, incomplete);
        }
    }

    /// Answers the heartbeat of a lower node, unless it has had one of this node just now.
    pub(crate) fn answer_heartbeat(&mut self, from: NodeId) {
        let is_due = self.membership.peers[&from].sent_us.is_some_and(|sent_us| self.is_half_over(sent_us));
        if from < self.me && is_due {
            let incomplete = self.has_incomplete_facts();
            self.send_heartbeat(from, incomplete);
        }
    }

    /// Whether this node begins its next round because a lower one has begun its own.
    pub(crate) fn joins_round_of(&self, from: NodeId) -> bool {
        from < self.me && self.membership.last_round_us.is_some_and(|round_us| self.is_half_over(round_us))
    }

    /// Whether a lower node is about to send a heartbeat, by when its latest came.
    fn will_ask(&self, node: NodeId) -> bool {
        let came_us = self.membership.peers[&node].latest.map(|(_, _, came_us)| came_us);
        node < self.me && came_us.is_some_and(|came_us| self.now.mono_us < came_us + self.patience_us())
    }

    fn interval_us(&self) -> u64 {
        self.config.heartbeat_ms * 1_000
    }

    /// Time after which a node no longer waits for a lower one.
    fn patience_us(&self) -> u64 {
        self.interval_us() + self.interval_us() / SLACK_PART
    }

    fn is_half_over(&self, since_us: u64) -> bool {
        assert!(since_us <= self.now.mono_us, "a heartbeat was sent later than now");
        self.now.mono_us - since_us >= self.interval_us() / 2
    }

    /// Reports a pause of this process. Other nodes take a node for dead that sends no heartbeat for that long, so an operator
    /// should know that the process, or its machine, stood still. No reaction is needed here, because a leader answers nothing
    /// without a quorum.
    fn look_for_pause(&mut self) {
        let now_us = self.now.mono_us;
        let stood_us = self.membership.last_round_us.replace(now_us).map_or(0, |before_us| now_us - before_us);
        if stood_us > self.config.election_timeout_ms * 1_000 {
            self.outbox.observe(Observation::StoodStill { for_ms: stood_us / 1_000 });
        }
    }
}
