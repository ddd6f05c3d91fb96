//! Stale-image (rollback) detection: a node finds that its log is an earlier image, or that another process runs on a copy of it.
//!
//! An operator who restores yesterday's image of a disk or starts two nodes on copies of one creates a replica that forgot what
//! it promised. So does a disk that reports writes as done and loses them. The log alone cannot show this. Peers can, because
//! they remember in memory how far a node's log was advertised as durable:
//!
//! - Every heartbeat carries the durable log position of its sender, and so does every message that rests on the disk
//!   ([`LogPosition`]): a vote, an acknowledgement of operations, of a write, of tombstones, of forgotten tasks. **A peer that relies
//!   on a promise therefore remembers at least as much as the promise rests on**, from the very message on which it relies;
//!   nothing has to come after it. The position comes with the sender's start: its count, and the random number drawn for it,
//!   because an image from before a start counts its own next start alike.
//! - Every heartbeat answers the latest start of its receiver that the sender has heard of, by whatever message: the start's
//!   count, its random number, and how far the log was durable in all starts before. A node advertises a start only once it is on
//!   disk, so a log that lacks it is not the latest.
//! - A node that is not ready yet drops messages, but remembers the log positions in them: one may be the last message of a
//!   process that is gone.
//!
//! A node retires for ever (`Record::Retired`, which no start gets past) when it learns that
//!
//! 1. a peer has heard of a later start than its own;
//! 2. a peer has heard of its own start with another random number: another process counted alike, from an image of before its
//!    start;
//! 3. more was durable in earlier starts than the log had when this start began. Records that this start has appended are left
//!    out, or a log that has grown anew would look as long as the lost one. Records of starts that no peer has answered do not
//!    count either. So the log keeps the position at which the first of those starts began ([`Record::Unanswered`]) until any
//!    peer answers a start, and the node advertises no more than that position before the log records the answer.
//!
//! **Until it is answered a start promises nothing.** Per partition, a replica neither votes, campaigns, acknowledges operations,
//! leads, nor vouches for the completeness of its facts ([`Node::speaks_for`]; its writes count as those of a replica with incomplete
//! facts) before a majority of the cohort less itself has answered this start. A node that fewer peers have answered lends ids all the
//! same, as a node must that is alone with its clients, but of sessions that are numbered elsewhere. A peer that has answered
//! accepts nothing more from the node's earlier starts, nor from another process in the same start: it drops their votes and
//! acknowledgements that are still on the way, as if the network had lost them. So if one of the answering peers has relied on a
//! promise which the log lacks, or heard of it, the node retires before it can break the promise. If the promise reaches one of
//! them later, that peer does not rely on it.
//!
//! **Why this is enough to go on.** A peer that could use a vote or an acknowledgement of this replica hears it and is heard by
//! it, and so can answer it. With an empty memory, after a restart of its own, it answers as well: a cluster whose nodes all
//! start at once goes on after one round trip. A single replica waits for no answer.
//!
//! A peer does not take a start for the node's latest if that start advertises less than the peer remembers: the peer answers
//! with what it remembers, and drops the start's messages. So an image that is started elsewhere does not retire the node that it
//! was taken of, as long as peers have heard of more than it has. If they have heard of nothing since it was taken, or were
//! restarted since and heard the image first, then the image goes on, and the other node retires. Both may retire if one peer
//! answers the image, and another peer takes it for the latest only once its log has grown past what that peer remembers.
//!
//! Answers count at three points. *The log*: with the first answer of any peer, its end counts and is advertised. *A replica*:
//! once as many members of its cohort as make a majority with itself have answered, it promises ([`Node::is_answered`]). *The
//! node*: once as many peers as make a majority with itself have answered, it lends ids as the node that it has always been
//! ([`Node::is_surely_latest`]).
//!
//! **What this cannot do.** Peers learn of a leader's promises to itself, its own vote and its own acknowledgements, only with
//! its next heartbeat. Facts are acknowledged as stored although the advertised log position may not cover them yet: where they
//! are synced late, or no peer has answered. But facts are no promise, and other replicas bring them back. Sessions of an
//! unanswered start are numbered at a random distance, not at one known to be free. The end of a log that a single peer has
//! answered counts for all: if it was lost before, and the next start is answered by another peer that remembers it, that peer
//! finds nothing missing. And all of it is best effort: if the only peers that relied on a promise are down, cut off or restarted
//! since, the answering peers do not remember it. In a cohort of three one answer is enough, and it may come from the peer that
//! does not remember. A log that lost an end of which no peer has heard is just shorter. And the disk of a single replica has no
//! witness.

use super::Peer;
use crate::Node;
use crate::context::signals::Signal;
use crate::effect::{Effect, Observation, Ticket};
use norn_model::config::{Config, mutant};
use norn_model::message::{Heartbeat, LogPosition};
use norn_model::record::Record;
use norn_wire::{NodeId, PartitionId};

/// Own log position, as advertised to peers.
#[derive(Debug, Default)]
pub struct OwnLogPosition {
    /// Random number of this start.
    pub start: u64,
    /// Last durable record when this start began; or an earlier one, if no start since then was answered.
    pub began: u64,
    /// By the log, no start has been answered since the log had this length.
    pub unanswered: Option<u64>,
    /// Ticket with which the log records that a start was answered.
    answered_at: Option<Ticket>,
    /// Last record that may be advertised as durable.
    pub durable: u64,
}

/// Remembered log position of a peer: up to which record it was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RememberedLog {
    /// Latest start that anything is remembered of.
    boot: u64,
    /// Its random number; 0 if unknown.
    start: u64,
    /// Durable position in this start.
    durable: u64,
    /// Durable position in all starts before.
    before: u64,
}

/// Whether two numbers belong to different starts. An unknown number may be any.
fn are_different(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

impl RememberedLog {
    fn note(&mut self, log_position: LogPosition) {
        let LogPosition { boot, durable, start } = log_position;
        if boot > self.boot {
            *self = RememberedLog { boot, start, durable, before: self.longest() };
        } else if boot == self.boot && !are_different(start, self.start) {
            self.durable = self.durable.max(durable);
            self.start = self.start.max(start);
        } else {
            self.before = self.before.max(durable);
        }
    }

    /// Greatest durable position over all starts.
    fn longest(&self) -> u64 {
        self.before.max(self.durable)
    }

    /// Whether a start unknown here runs on a log that was longer before.
    fn shows_image(&self, log_position: LogPosition) -> bool {
        log_position.boot > self.boot && log_position.durable < self.longest()
    }

    /// Returns the durable position in the latest start, if this is it.
    pub fn within(&self, boot: u64) -> u64 {
        if boot == self.boot { self.durable } else { 0 }
    }

    /// Returns the durable position in starts before this one.
    pub fn before(&self, boot: u64) -> u64 {
        if boot > self.boot { self.longest() } else { self.before }
    }
}

impl Peer {
    /// Returns the peer's latest known start and its random number. A message that rests on its log shows a start as well as a
    /// heartbeat does.
    pub(crate) fn heard_start(&self, config: &Config) -> (u64, u64) {
        let RememberedLog { boot, start, .. } = self.remembered_log;
        if boot > self.boot && start != 0 && !mutant!(config, PromisesUnheard) {
            (boot, start)
        } else {
            (self.boot, self.start)
        }
    }
}

impl Node {
    /// During the replay: the record is lost that shows whether a start was answered. Assuming the wrong case would retire a node
    /// for nothing.
    pub fn lose_unanswered(&mut self) {
        self.membership.log.unanswered = None;
    }

    /// Before a start, where the host is about to compact a log that is durable up to this record: returns what must be durable before
    /// the log grows. No peer hears of what a compaction appends, and the log of a stale image must not look longer for it.
    pub fn begin_compaction(&mut self, durable: u64) -> Record {
        assert!(self.starting, "a node that runs compacts its log between two events");
        Record::Unanswered { began: Some(self.note_unanswered(durable)) }
    }

    fn note_unanswered(&mut self, durable: u64) -> u64 {
        let began = self.membership.log.unanswered.map_or(durable, |before| before.min(durable));
        self.membership.log.unanswered = Some(began);
        began
    }

    /// Begins a start on a log that is durable up to this record.
    pub(crate) fn begin_log(&mut self, durable: u64) {
        let began = self.note_unanswered(durable);
        let start = self.random.bits().max(1);
        self.membership.log =
            OwnLogPosition { start, began, unanswered: Some(began), answered_at: None, durable: began };
        self.outbox.persist(Record::Unanswered { began: Some(began) });
        self.outbox.set_log(LogPosition { boot: self.boot, durable: began, start });
    }

    /// Takes in that everything up to the ticket is on disk, and that the log is durable up to `durable`.
    pub(crate) fn note_durable(&mut self, ticket: Ticket, durable: u64) {
        if self.membership.log.answered_at.is_some_and(|answered| ticket >= answered) {
            assert!(durable >= self.membership.log.durable, "a log does not become shorter while it is used");
            self.membership.log.durable = durable;
            self.outbox.set_log(LogPosition { boot: self.boot, durable, start: self.membership.log.start });
        }
    }

    /// Whether enough peers have answered this start for the replica to promise anything.
    pub(crate) fn is_answered(&self, partition: PartitionId) -> bool {
        let answered = self.partitions.get(&partition).is_some_and(|replica| replica.answered);
        answered || mutant!(self.config, UnansweredCounts)
    }

    /// Whether this replica's facts are complete: a task that it does not know does not exist, and its log lacks nothing, as far
    /// as is known.
    pub(crate) fn speaks_for(&self, partition: PartitionId) -> bool {
        let whole = |replica: &norn_model::replica::Partition| {
            !replica.loss_recovery.data_loss.facts && !replica.borrowed && replica.cohort().has_member(self.me)
        };
        self.partitions.get(&partition).is_some_and(whole) && self.is_answered(partition)
    }

    /// Whether enough peers have answered this start that a majority knows of no later image of this node.
    pub(crate) fn is_surely_latest(&self) -> bool {
        let answered = self.membership.peers.values().filter(|peer| peer.answered).count();
        answered >= self.membership.peers.len().div_ceil(2) || mutant!(self.config, UnansweredCounts)
    }

    /// Remembers a peer's log position from a message. Returns false if the message must be dropped: it is of an earlier start
    /// than the latest, or of another process in the same start, and may rest on records that have been lost.
    pub(crate) fn note_log(&mut self, from: NodeId, log_position: LogPosition) -> bool {
        if self.is_image(from, log_position) {
            return false;
        }
        let Some(peer) = self.membership.peers.get_mut(&from) else { return false };
        let (boot, start) = peer.heard_start(&self.config);
        let rival = log_position.boot == boot && are_different(log_position.start, start);
        peer.remembered_log.note(log_position);
        log_position.boot >= boot && !rival
    }

    /// Whether a peer's log was longer in an earlier start than at the beginning of this one. Such a start does not count as the
    /// peer's latest, or an image started elsewhere would retire the node that it was taken of.
    fn is_image(&self, from: NodeId, log_position: LogPosition) -> bool {
        let image = self.membership.peers.get(&from).is_some_and(|peer| peer.remembered_log.shows_image(log_position));
        image && !mutant!(self.config, UnansweredCounts)
    }

    /// Retires this node if a peer's memory of it shows that its log is a copy. Otherwise the heartbeat may be an answer.
    pub(crate) fn retire_if_copied(&mut self, from: NodeId, heartbeat: &Heartbeat) -> bool {
        let Some(mut reason) = self.copied(from, heartbeat) else {
            if heartbeat.seen.0 == self.boot {
                self.answered_by(from);
            }
            return false;
        };
        if mutant!(self.config, UnansweredCounts) {
            return false;
        }
        let kept = self.repair.kept_count();
        if kept > 0 {
            reason += &format!("; {kept} tasks that it kept for members which were away may be in no other log");
        }
        self.retired = true;
        self.outbox.persist(Record::Retired { reason: reason.clone() });
        self.outbox.observe(Observation::Retired { reason });
        // It transfers no leadership, because its state cannot be trusted.
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
            // All that was durable in starts before this one was in the log at its beginning.
            let remembered = heartbeat.remembers.max(heartbeat.remembers_last);
            return self.is_shorter(from, remembered);
        }
        if heartbeat.seen_start != self.membership.log.start {
            return Some(format!(
                "node {from} has heard another process that is this node, in the same start: one runs on a copy of its log"
            ));
        }
        // A message of another process with the same count may have come before the heartbeats of this one. This start has
        // advertised no more than its own position.
        if heartbeat.remembers_last > self.membership.log.durable && !mutant!(self.config, RivalUnnoticed) {
            return self.is_shorter(from, heartbeat.remembers_last);
        }
        self.is_shorter(from, heartbeat.remembers)
    }

    fn is_shorter(&self, from: NodeId, remembered: u64) -> Option<String> {
        let began = self.membership.log.began;
        (remembered > began).then(|| {
            format!(
                "node {from} remembers that the log of this node was durable up to record {remembered}, and this start began \
                 behind record {began}: its log is an earlier copy, or its disk has lost the end"
            )
        })
    }

    /// Notes that a peer has answered this start and remembers nothing that is missing here.
    fn answered_by(&mut self, from: NodeId) {
        let Some(Peer { answered, .. }) = self.membership.peers.get_mut(&from) else { return };
        if std::mem::replace(answered, true) {
            return;
        }
        self.count_answers();
    }

    /// Lets replicas promise once enough peers have answered.
    pub(crate) fn count_answers(&mut self) {
        let anybody = self.membership.peers.is_empty() || self.membership.peers.values().any(|peer| peer.answered);
        if anybody && self.membership.log.unanswered.take().is_some() {
            // This comes before any promise of a replica from now on.
            self.outbox.persist(Record::Unanswered { began: None });
            self.membership.log.answered_at = Some(self.outbox.ticket());
        }
        let waiting = self.partitions.iter().filter(|(_, replica)| !replica.answered);
        let waiting: Vec<PartitionId> = waiting.map(|(id, _)| *id).collect();
        for partition in waiting {
            let answered = |node: &&NodeId| self.membership.peers.get(node).is_some_and(|peer| peer.answered);
            // The members of the present cohort: members of an earlier one may be gone for good.
            let nodes = self.cohort_of(partition).nodes();
            let needed = if nodes.contains(&self.me) { nodes.len() / 2 } else { nodes.len() / 2 + 1 };
            if nodes.iter().filter(answered).count() < needed {
                continue;
            }
            self.partitions.get_mut(&partition).expect("just listed").answered = true;
            self.signals.report(Signal::ReplicaAnswered(partition));
        }
    }
}
