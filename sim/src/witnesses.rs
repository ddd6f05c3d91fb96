//! What peers must remember of the log that may turn out to be an earlier image, by the messages that have reached them.
//!
//! For each process of a peer, the simulator itself counts how far that log was durable in all messages that the process received. A
//! node that learns from such a process that its start was heard must retire if the process had more to remember than the start began
//! with. Nothing else can show that a core forgets, as the node itself does not notice.
//!
//! - **Not too lax.** A promise counts for all that was on its sender's disk when it left, whatever it says of that: so a promise
//!   without its log position is noticed. A memory counts from the step that takes the message to the end of the process. It makes no
//!   difference whether the core drops the message as one of an earlier start or of an image: it remembers the log of an earlier
//!   start all the same, and it drops as an image's only messages that say less than it remembers.
//! - **Not too strict.** Only positions of earlier processes count, and only those that came before the answer was made. Several
//!   messages are taken in one turn, and an answer to one of them is made before the next is taken: so of a turn only the first
//!   message counts for answers that leave with it. What comes later is dropped by a process that has answered. For starts that no
//!   peer has answered the log counts as it began with the first; the only member of a cluster needs no answer. An answer of a
//!   process counts for nothing once a later process of that peer was heard, as it is dropped then. And what a message says before
//!   its sender is answered is taken as it is said, since only a single replica promises anything then, and that has no witness.

use crate::world::World;
use norn_engine::Event as Input;
use norn_model::message::{
    Election, GarbageCollection, Handoff, PeerMessage, Peering, ReadWrite, Reconfiguration, Replication,
};
use std::collections::BTreeMap;

/// Durable log position that a message rests on.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// Boot counter of the sender's process.
    boot: u64,
    durable: u64,
}

/// What a process has heard of the log.
#[derive(Debug, Default)]
struct Heard {
    /// Boot counter of the node's process.
    boot: u64,
    /// How far the log was durable, by the process that said so.
    durable: BTreeMap<u64, u64>,
    /// What was heard in the latest turn, after its first message: an answer that leaves with the turn may have been made before.
    late: Vec<Word>,
}

impl Heard {
    fn note(&mut self, word: Word) {
        let durable = self.durable.entry(word.boot).or_default();
        *durable = word.durable.max(*durable);
    }
}

#[derive(Debug, Default)]
pub struct Witnesses {
    heard: BTreeMap<usize, Heard>,
    /// How far the present process knows its log to be durable.
    durable: u64,
    /// Where its log ended when it began, or when the first process began that no peer has answered since.
    began: u64,
    /// Its start counter and the number drawn for it, once it has sent them.
    start: Option<(u64, u64)>,
    /// No peer has answered it yet, as far as it knows.
    unanswered: bool,
    /// Answers to it, by peer, the peer's start counter and the number of its heartbeat; with what the peer had to remember.
    answers: BTreeMap<(usize, u64, u64), u64>,
    /// Latest start of each peer that it has heard of.
    latest: BTreeMap<usize, u64>,
}

impl Witnesses {
    /// Begins a process on a log that is durable up to record `durable`. `anew`: the log may not show whether a peer has answered.
    pub fn begin(&mut self, durable: u64, anew: bool) {
        let began = if self.unanswered && !anew { durable.min(self.began) } else { durable };
        let heard = std::mem::take(&mut self.heard);
        *self = Witnesses { heard, began, unanswered: true, ..Witnesses::default() };
    }

    /// Notes how far the process knows its log to be durable. A process that is `alone` waits for no answer.
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
    /// Notes a message that leaves a node. Returns what it says of the log in question, if that is the node's own.
    pub fn word_of(&mut self, node: usize, to: usize, message: &PeerMessage) -> Option<Word> {
        let victim = self.copies.victim();
        let boots = [node, victim].map(|node| self.nodes[node].boot);
        let witnesses = &mut self.copies.witnesses;
        if node != victim {
            if let PeerMessage::Peering(Peering::Heartbeat(heartbeat)) = message
                && to == victim
                && witnesses.start == Some((heartbeat.seen.0, heartbeat.seen_start))
            {
                let remembers = witnesses.remembers(node, boots);
                witnesses.answers.insert((node, heartbeat.boot, heartbeat.number), remembers);
            }
            return None;
        }
        if let PeerMessage::Peering(Peering::Heartbeat(heartbeat)) = message {
            witnesses.start = Some((heartbeat.boot, heartbeat.start));
        }
        let said = message.log().map(|word| word.durable);
        let durable = if promises(message) && !witnesses.unanswered { said.max(Some(witnesses.durable)) } else { said };
        durable.map(|durable| Word { boot: boots[0], durable })
    }

    /// Notes a message that a process takes, the one at this `place` of its turn. Returns what its sender had to remember, if it
    /// answers the start in question.
    pub fn witness(&mut self, node: usize, place: usize, input: &Input, word: Option<Word>) -> u64 {
        if let Some(heard) = self.copies.witnesses.heard.get_mut(&node).filter(|_| place == 0) {
            std::mem::take(&mut heard.late).into_iter().for_each(|word| heard.note(word));
        }
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
            match place {
                0 => heard.note(word),
                _ => heard.late.push(word),
            }
        }
        let (PeerMessage::Peering(Peering::Heartbeat(heartbeat)), Some(from), true) = (message, from, node == victim)
        else {
            return 0;
        };
        let latest = witnesses.latest.entry(from).or_default();
        *latest = heartbeat.boot.max(*latest);
        if heartbeat.boot < *latest {
            return 0;
        }
        let Some(remembers) = witnesses.answers.remove(&(from, heartbeat.boot, heartbeat.number)) else { return 0 };
        witnesses.unanswered = false;
        remembers
    }

    /// Judges a step in which a start was answered by a peer that had this much to remember.
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

/// Whether other nodes rely on what the sender has on disk to stay there.
fn promises(message: &PeerMessage) -> bool {
    match message {
        PeerMessage::Election(Election::VoteAnswer { granted, .. }) => *granted,
        PeerMessage::ReadWrite(ReadWrite::Written { incomplete, .. })
        | PeerMessage::Handoff(Handoff::Hinted { incomplete, .. }) => !incomplete,
        PeerMessage::Reconfiguration(Reconfiguration::Ready { ready, .. }) => *ready,
        PeerMessage::Replication(Replication::Ack { .. })
        | PeerMessage::GarbageCollection(GarbageCollection::Buried { .. } | GarbageCollection::Forgot { .. }) => true,
        _ => false,
    }
}
