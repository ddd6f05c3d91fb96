//! A node that finds that its log is an earlier state of itself, or that another process runs on a copy.
//!
//! Whoever restores yesterday's image of a disk, starts two nodes on copies of one, or has a disk that said to have written
//! what it lost, makes a replica that forgot what it promised. The log alone cannot tell. Peers can, as they remember, in
//! memory, how far they have heard that a node's log is durable:
//!
//! - Every heartbeat says how far its sender's log is durable, and so does every message that rests on the disk
//!   ([`LogWord`]): a vote, an acknowledgement of operations, of a write, of tombstones, of what is forgotten. **Whoever
//!   relies on a promise therefore remembers at least as much as the promise rests on**, from the very message on which
//!   it relies; nothing has to come after it. It says as well in which start that was, by its count and by the number that
//!   was drawn for it: an image of before a start counts its own alike.
//! - Every heartbeat answers the latest start of its receiver that was heard, by whatever message: the start's count, a number
//!   that was drawn for it, and how far the log was durable in all starts before. A start is told only once it is on disk, so
//!   no log that lacks it is the latest.
//! - A node that is not ready yet drops what it is told, and remembers what that says of a log: it may be the last word of a
//!   process that is gone.
//!
//! A node retires for ever (`Record::Retired`, which no start gets past) when it learns that
//!
//! 1. a later start than its own was heard;
//! 2. its own start was heard with another number: another process counted alike, from an image of before its start;
//! 3. more was durable in starts before this one than the log had when this start began. What it has appended since is left
//!    out, or a log that has grown anew would look as long as the one that is lost; nor does what starts have appended count
//!    that nobody has answered. So where the first of those began stays in the log ([`Record::Unanswered`]) until a start is
//!    answered by anybody, and no more than that is told before the log says so.
//!
//! **Until it is answered a start promises nothing.** Per partition, a replica neither votes, campaigns, acknowledges
//! operations, leads, nor says that it knows all that it should ([`Node::speaks_for`]; its writes count as those of a replica
//! with holes) before a majority of the cohort less itself has answered this start. A node of which so much of the
//! cluster has not answered lends ids all the same, as a node must that is alone with its clients, but of sessions that are
//! numbered somewhere else. Whoever has answered takes nothing more from its earlier starts, nor from another process in
//! the same: their votes and acknowledgements that are still on the way are dropped, as if the network had lost them. So if
//! one of those who answer has relied on a promise which the log lacks, or heard of it, the node retires before it can break
//! it, and if the promise comes to one of them later, nobody relies on it.
//!
//! **Why this is enough to go on.** Whoever could use a vote or an acknowledgement of this replica hears it and is heard by
//! it, and so can answer it. With an empty memory, after a restart of its own, it answers as well: a cluster of which all
//! nodes start at once goes on after one round trip. A single replica waits for nobody.
//!
//! A start that tells peers of less than they remember is not taken for the node's latest: it is told what they remember, and
//! nothing that it says counts. So an image that is started elsewhere does not retire the node that it was taken of, as long as
//! peers have heard of more than it has. If they have heard of nothing since it was taken, or have been started since and
//! heard the image first, then it is the image that goes on, and the other retires. Both may retire if one peer answers the
//! image, and another takes it for the latest only once its log has grown past what that other remembers.
//!
//! Three things are answered at three points. *The log*: by the first answer of anybody its end counts, and is told. *A
//! replica*: by as many members of its cohort as make a majority with itself, it promises ([`Node::is_answered`]). *The
//! node*: by as many peers as make a majority with itself, it lends ids as the node that it has always been
//! ([`Node::is_surely_latest`]).
//!
//! **What this cannot do.** What a leader promised itself, its own vote and its own acknowledgements, peers hear of with its
//! next heartbeat only. Facts are said to be stored on the word of a log that may not tell of them yet: where they are synced
//! late, or no peer has answered; but facts are no promise, and are brought back by others. Sessions of a start that is not
//! answered are numbered at a distance that is drawn, not known to be free. The end of a log that one peer has answered
//! counts for all: if it was lost before, and the next start is answered by another that remembers it, that one
//! finds nothing missing. And all of it is best effort: a promise that only such peers relied on as are down, cut off, or have been
//! started since is not remembered by those who answer. In a cohort of three one answer is enough, and it may be that of
//! the other one. A log that lost its end and of which nobody heard is just shorter. And a disk of a single replica has no
//! witness.

use super::Peer;
use crate::config::{Config, mutant};
use crate::protocol::effect::{Effect, Ticket};
use crate::protocol::peer::{Heartbeat, LogWord};
use crate::protocol::record::Record;
use crate::protocol::{Node, Observation};
use norn_wire::{NodeId, PartitionId};

/// The own log, as it is told to peers.
#[derive(Debug, Default)]
pub struct OwnLog {
    /// Drawn for this start.
    pub start: u64,
    /// All up to this record was durable when this start began; or an earlier one, if no start since then was answered.
    pub began: u64,
    /// The log says that no start was answered since it was so long.
    pub unanswered: Option<u64>,
    /// With this the log says that a start was answered.
    answered_at: Option<Ticket>,
    /// All up to this record may be said to be durable.
    pub durable: u64,
}

/// What is remembered of a peer's log: up to which record it was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// The latest start that anything is remembered of.
    boot: u64,
    /// The number that was drawn for it; 0 where nobody has said.
    start: u64,
    /// In this start.
    durable: u64,
    /// In all starts before.
    before: u64,
}

/// Whether two numbers were drawn for different starts. One that was not said may be any.
fn are_different(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

impl Memory {
    fn note(&mut self, word: LogWord) {
        let LogWord { boot, durable, start } = word;
        if boot > self.boot {
            *self = Memory { boot, start, durable, before: self.longest() };
        } else if boot == self.boot && !are_different(start, self.start) {
            self.durable = self.durable.max(durable);
            self.start = self.start.max(start);
        } else {
            self.before = self.before.max(durable);
        }
    }

    /// All that was durable in any start.
    fn longest(&self) -> u64 {
        self.before.max(self.durable)
    }

    /// Whether a start that nobody here has heard of runs on a log that had been longer.
    fn shows_image(&self, word: LogWord) -> bool {
        word.boot > self.boot && word.durable < self.longest()
    }

    /// What was durable in the latest start, if this is it.
    pub fn within(&self, boot: u64) -> u64 {
        if boot == self.boot { self.durable } else { 0 }
    }

    /// What was durable in starts before this one.
    pub fn before(&self, boot: u64) -> u64 {
        if boot > self.boot { self.longest() } else { self.before }
    }
}

impl Peer {
    /// The latest start of it of which anything was heard, and the number that was drawn for that: a message that rests on its
    /// log tells of a start as well as a heartbeat does.
    pub(super) fn heard_start(&self, config: &Config) -> (u64, u64) {
        let Memory { boot, start, .. } = self.memory;
        if boot > self.boot && start != 0 && !mutant!(config, PromisesUnheard) {
            (boot, start)
        } else {
            (self.boot, self.start)
        }
    }
}

impl Node {
    /// During the replay: the record is lost that says that no start was answered, or that one was. Taking one for the other
    /// would retire a node for nothing.
    pub(crate) fn lose_unanswered(&mut self) {
        self.log.unanswered = None;
    }

    /// A start begins on a log that is durable so far.
    pub(in crate::protocol) fn begin_log(&mut self, durable: u64) {
        let began = self.log.unanswered.map_or(durable, |before| before.min(durable));
        let start = self.random.bits().max(1);
        self.log = OwnLog { start, began, unanswered: Some(began), answered_at: None, durable: began };
        self.outbox.persist(Record::Unanswered { began: Some(began) });
        self.outbox.set_log(LogWord { boot: self.boot, durable: began, start });
    }

    /// Everything up to the ticket is on disk, and the log is durable so far.
    pub(in crate::protocol) fn note_durable(&mut self, ticket: Ticket, durable: u64) {
        if self.log.answered_at.is_some_and(|answered| ticket >= answered) {
            assert!(durable >= self.log.durable, "a log does not become shorter while it is used");
            self.log.durable = durable;
            self.outbox.set_log(LogWord { boot: self.boot, durable, start: self.log.start });
        }
    }

    /// Whether enough peers have answered this start for the replica to promise anything.
    pub(in crate::protocol) fn is_answered(&self, partition: PartitionId) -> bool {
        let answered = self.partitions.get(&partition).is_some_and(|replica| replica.answered);
        answered || mutant!(self.config, UnansweredCounts)
    }

    /// Whether what a replica does not know of tasks is not so: nothing is missing in its log, as far as anybody knows.
    pub(in crate::protocol) fn speaks_for(&self, partition: PartitionId) -> bool {
        let whole = |replica: &crate::protocol::Partition| {
            !replica.healing.wound.facts && !replica.borrowed && replica.cohort().has_member(self.me)
        };
        self.partitions.get(&partition).is_some_and(whole) && self.is_answered(partition)
    }

    /// Whether so many members have answered this start that this node is no earlier image, as far as a majority knows.
    pub(in crate::protocol) fn is_surely_latest(&self) -> bool {
        let answered = self.peers.values().filter(|peer| peer.answered).count();
        answered >= self.peers.len().div_ceil(2) || mutant!(self.config, UnansweredCounts)
    }

    /// What a message says of its sender's log is remembered. False: it is of an earlier start than the latest, or of another
    /// process in the same, and is to be dropped, as that may have been forgotten.
    pub(in crate::protocol) fn note_log(&mut self, from: NodeId, word: LogWord) -> bool {
        if self.is_image(from, word) {
            return false;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        let (boot, start) = peer.heard_start(&self.config);
        let rival = word.boot == boot && are_different(word.start, start);
        peer.memory.note(word);
        word.boot >= boot && !rival
    }

    /// Whether a peer's log was longer in an earlier start than at the beginning of this one. Such a start is not taken for the
    /// peer's latest, or an image that somebody starts elsewhere would retire the node that it was taken of.
    fn is_image(&self, from: NodeId, word: LogWord) -> bool {
        let image = self.peers.get(&from).is_some_and(|peer| peer.memory.shows_image(word));
        image && !mutant!(self.config, UnansweredCounts)
    }

    /// Whether what a peer remembers of this node shows that its log is a copy; if so, it is retired. Else it may be an answer.
    pub(in crate::protocol) fn retire_if_copied(&mut self, from: NodeId, heartbeat: &Heartbeat) -> bool {
        let Some(mut reason) = self.copied(from, heartbeat) else {
            if heartbeat.seen.0 == self.boot {
                self.answered_by(from);
            }
            return false;
        };
        if mutant!(self.config, UnansweredCounts) {
            return false;
        }
        let kept = self.hints.kept.count();
        if kept > 0 {
            reason += &format!("; {kept} tasks that it kept for members which were away may be in no other log");
        }
        self.retired = true;
        self.outbox.persist(Record::Retired { reason: reason.clone() });
        self.outbox.observe(Observation::Retired { reason });
        // Nothing is handed over: what it says cannot be trusted.
        self.outbox.effect(Effect::Stopped);
        true
    }

    fn copied(&self, from: NodeId, heartbeat: &Heartbeat) -> Option<String> {
        let (heard, own) = (heartbeat.seen.0, self.boot);
        if heard > own {
            return Some(format!(
                "node {from} has heard start {heard} of this node, and this is start {own}: its log is an earlier copy"
            ));
        }
        if heard < own {
            // All that was durable in starts before this one is at its beginning.
            let remembered = heartbeat.remembers.max(heartbeat.remembers_last);
            return self.is_shorter(from, remembered);
        }
        if heartbeat.seen_start != self.log.start {
            return Some(format!(
                "node {from} has heard another process that is this node, in the same start: one runs on a copy of its log"
            ));
        }
        // A word of another process that counts alike may have come before the heartbeats of this one. No more than this was told in
        // this start.
        if heartbeat.remembers_last > self.log.durable && !mutant!(self.config, RivalUnnoticed) {
            return self.is_shorter(from, heartbeat.remembers_last);
        }
        self.is_shorter(from, heartbeat.remembers)
    }

    fn is_shorter(&self, from: NodeId, remembered: u64) -> Option<String> {
        let began = self.log.began;
        (remembered > began).then(|| {
            format!(
                "node {from} remembers that the log of this node was durable up to record {remembered}, and this start began \
                 behind record {began}: its log is an earlier copy, or its disk has lost the end"
            )
        })
    }

    /// A peer has answered this start, and remembers nothing that is not here.
    fn answered_by(&mut self, from: NodeId) {
        let Some(Peer { answered, .. }) = self.peers.get_mut(&from) else { return };
        if std::mem::replace(answered, true) {
            return;
        }
        self.count_answers();
    }

    /// Lets those replicas promise something of which enough others have answered.
    pub(in crate::protocol) fn count_answers(&mut self) {
        let anybody = self.peers.is_empty() || self.peers.values().any(|peer| peer.answered);
        if anybody && self.log.unanswered.take().is_some() {
            // Before whatever a replica promises from now on.
            self.outbox.persist(Record::Unanswered { began: None });
            self.log.answered_at = Some(self.outbox.ticket());
        }
        let waiting = self.partitions.iter().filter(|(_, replica)| !replica.answered);
        let waiting: Vec<PartitionId> = waiting.map(|(id, _)| *id).collect();
        for partition in waiting {
            let answered = |node: &&NodeId| self.peers.get(node).is_some_and(|peer| peer.answered);
            // Those of the cohort that there is now: members of an earlier one may be gone for good.
            let nodes = self.cohort_of(partition).nodes();
            let needed = if nodes.contains(&self.me) { nodes.len() / 2 } else { nodes.len() / 2 + 1 };
            if nodes.iter().filter(answered).count() < needed {
                continue;
            }
            self.partitions.get_mut(&partition).expect("just listed").answered = true;
            self.ask_for_operations(partition);
        }
    }
}
