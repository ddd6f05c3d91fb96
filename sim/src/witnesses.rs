//! What peers ought to remember of the log that may turn out to be an earlier one, by what has reached them.
//!
//! The simulator counts for itself, for each process of a peer, how far that log was durable in all that the process was
//! told of it. Whoever is told by such a process that its start was heard must retire if it had more to remember than the
//! start began with. Nobody else can say that a core forgets, as the node is none the wiser.
//!
//! - **Not too lax.** A promise counts for all that was on its sender's disk when it left, whatever it says of that: so a
//!   promise without its word is noticed. A memory counts from the step that takes the message to the end of the process.
//!   It makes no difference whether the core drops the message, as one of an earlier start or of an image: of an
//!   earlier start it remembers the log all the same, and it drops as an image's only what says less than it remembers.
//! - **Not too strict.** Only words of earlier processes count, and only those that came before the answer left. Of
//!   starts that nobody has answered the log counts as it began with the first; the only member of a cluster needs no
//!   answer. An answer of a process counts for nothing once a later one of that peer was heard, as it is dropped then. And
//!   what a message says before its sender is answered is taken as it is said, since only a single replica promises
//!   anything then, and that has no witness.

use crate::world::World;
use norn_node::protocol::{Event as Input, PeerMessage};
use std::collections::BTreeMap;

/// How far the log was durable that a message rests on.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// Which process of its sender.
    boot: u64,
    durable: u64,
}

/// What a process has heard of the log.
#[derive(Debug, Default)]
struct Heard {
    /// Which process of its node.
    boot: u64,
    /// How far it was durable, by the process that said so.
    durable: BTreeMap<u64, u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Witnesses {
    heard: BTreeMap<usize, Heard>,
    /// Of the present process: how far it knows its log to be durable.
    durable: u64,
    /// Where it began, or the first process that nobody has answered since.
    began: u64,
    /// Its start counter and the number drawn for it, once told.
    start: Option<(u64, u64)>,
    /// It was not told that a peer has heard that.
    unanswered: bool,
    /// Answers to it: by whom, the counter of that start, and the number; and what was to be remembered.
    answers: BTreeMap<(usize, u64, u64), u64>,
    /// The latest start of each peer that it has heard of.
    latest: BTreeMap<usize, u64>,
}

impl Witnesses {
    /// A process begins on a log that is durable so far. `anew`: whether somebody has answered is not to be found in it.
    pub fn begin(&mut self, durable: u64, anew: bool) {
        let began = if self.unanswered && !anew { durable.min(self.began) } else { durable };
        let heard = std::mem::take(&mut self.heard);
        *self = Witnesses { heard, began, unanswered: true, ..Witnesses::default() };
    }

    /// The process knows its log to be durable so far. Whoever is `alone` has nobody to wait for.
    pub fn note_durable(&mut self, durable: u64, alone: bool) {
        self.durable = durable;
        self.unanswered &= !alone;
    }

    fn remembers(&self, peer: usize, boots: [u64; 2]) -> u64 {
        let [own, other] = boots;
        let heard = self.heard.get(&peer).filter(|heard| heard.boot == own);
        heard.and_then(|heard| heard.durable.range(..other).map(|(_, durable)| *durable).max()).unwrap_or(0)
    }
}

impl World {
    /// A message leaves a node: what it says of the log in question, if it is that node's.
    pub fn word_of(&mut self, node: usize, to: usize, message: &PeerMessage) -> Option<Word> {
        let victim = self.copies.victim();
        let boots = [node, victim].map(|node| self.nodes[node].boot);
        let witnesses = &mut self.copies.witnesses;
        if node != victim {
            if let PeerMessage::Heartbeat(heartbeat) = message
                && to == victim
                && witnesses.start == Some((heartbeat.seen.0, heartbeat.seen_start))
            {
                let remembers = witnesses.remembers(node, boots);
                witnesses.answers.insert((node, heartbeat.boot, heartbeat.number), remembers);
            }
            return None;
        }
        if let PeerMessage::Heartbeat(heartbeat) = message {
            witnesses.start = Some((heartbeat.boot, heartbeat.start));
        }
        let said = message.log().map(|word| word.durable);
        let durable = if promises(message) && !witnesses.unanswered { said.max(Some(witnesses.durable)) } else { said };
        durable.map(|durable| Word { boot: boots[0], durable })
    }

    /// A process takes a message. Where it is an answer to the start in question: what its sender had to remember.
    pub fn witness(&mut self, node: usize, input: &Input, word: Option<Word>) -> u64 {
        let Input::Peer { from, message } = input else { return 0 };
        let victim = self.copies.victim();
        let from = self.place_of(*from);
        let boot = self.nodes[node].boot;
        let witnesses = &mut self.copies.witnesses;
        if let Some(word) = word {
            let heard = witnesses.heard.entry(node).or_default();
            if heard.boot != boot {
                *heard = Heard { boot, ..Heard::default() };
            }
            let durable = heard.durable.entry(word.boot).or_default();
            *durable = word.durable.max(*durable);
        }
        let (PeerMessage::Heartbeat(heartbeat), Some(from), true) = (message, from, node == victim) else { return 0 };
        let latest = witnesses.latest.entry(from).or_default();
        *latest = heartbeat.boot.max(*latest);
        if heartbeat.boot < *latest {
            return 0;
        }
        let Some(remembers) = witnesses.answers.remove(&(from, heartbeat.boot, heartbeat.number)) else { return 0 };
        witnesses.unanswered = false;
        remembers
    }

    /// After a step in which a start was answered by one that had so much to remember.
    pub fn judge_answer(&mut self, node: usize, remembers: u64) {
        let began = self.copies.witnesses.began;
        if remembers <= began {
            return;
        }
        self.count("sometimes: short log remembered by one that answered");
        if self.nodes[node].running.as_ref().is_some_and(|running| !running.core.is_retired()) {
            let message = format!(
                "node {node} goes on with a log that began behind record {began}, and is answered by one that was told of \
                 {remembers}"
            );
            self.fail("retired", message);
        }
    }
}

/// Whether somebody relies on it that what its sender has on disk stays there.
fn promises(message: &PeerMessage) -> bool {
    match message {
        PeerMessage::VoteAnswer { granted, .. } => *granted,
        PeerMessage::Written { holes, .. } | PeerMessage::Hinted { holes, .. } => !holes,
        PeerMessage::Ready { ready, .. } => *ready,
        PeerMessage::Ack { .. } | PeerMessage::Buried { .. } | PeerMessage::Forgot { .. } => true,
        _ => false,
    }
}
