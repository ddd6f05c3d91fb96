//! One disk in a run that loses what it has confirmed: it lies about syncs, is replaced by an earlier image of itself, or is damaged
//! in coarse ways.
//!
//! A node with such a disk cannot always know what it forgot. It may refuse to start, report what it lost and heal, or learn from its
//! peers that it is an earlier state of itself, and retire. Only if no peer that answers it says so may it go on: then no node that
//! remembers was there, which is beyond what is promised, and the simulator takes the node out. That none of those peers had anything
//! to remember is checked ([`Witnesses`]). All this happens at one node of a run, at most one goes for good, and as long as it has
//! not healed no other disk loses anything.

use crate::disk::{Harm, SimDisk};
use crate::history::Happening;
use crate::process::Running;
use crate::witnesses::Witnesses;
use crate::world::World;
use norn_model::record::Record;

/// The disk is copied before one in this many appends.
const IMAGES: u64 = 150;
/// The same before a vote, which does most harm if it is forgotten, and before operations that a crash follows.
const IMAGES_BEFORE_PROMISE: u64 = 3;
/// Most places that are damaged at once.
const HARMS_MAX: u64 = 3;

#[derive(Default)]
pub struct Copies {
    /// Node whose disk it is.
    victim: usize,
    /// Earlier image of its disk.
    image: Option<SimDisk>,
    /// How far its processes knew their log to be durable.
    told: u64,
    /// Its disk was damaged or replaced, or may have lied.
    spoiled: bool,
    /// Its log is shorter than it was.
    short: bool,
    /// Its disk was replaced since its latest process.
    restored: bool,
    /// It will not be started any more.
    out: bool,
    /// What its peers ought to remember.
    pub witnesses: Witnesses,
}

impl Copies {
    /// Nothing has happened to the disk of this node yet.
    pub fn new(victim: usize) -> Copies {
        Copies { victim, ..Copies::default() }
    }

    /// Node whose disk it is.
    pub fn victim(&self) -> usize {
        self.victim
    }

    /// Whether this node is out for good.
    pub fn is_out(&self, node: usize) -> bool {
        self.out && node == self.victim
    }

    /// Whether any node is out for good.
    pub fn is_any_out(&self) -> bool {
        self.out
    }

    /// Whether the disk is not what it was, or may not be.
    pub fn is_spoiled(&self) -> bool {
        self.out || self.spoiled
    }

    /// Whether damage to another node's disk could coincide with damage to this one's.
    pub fn forbids(&self, node: usize) -> bool {
        self.out || (self.spoiled && node != self.victim)
    }
}

impl World {
    /// Syncs of the next process that lie, in a million.
    pub fn lies_ppm(&mut self, node: usize) -> u64 {
        let lies_ppm = self.options.lies_ppm;
        if lies_ppm == 0 || !self.may_spoil(node) {
            return 0;
        }
        self.copies.spoiled = true;
        self.damaged = Some(node);
        lies_ppm
    }

    pub(crate) fn may_spoil(&mut self, node: usize) -> bool {
        let safe = self.options.replicas >= 3 && !self.options.unsynced_facts && !self.healed();
        safe && node == self.copies.victim && self.operator.done() && !self.copies.out && self.may_damage(node)
    }

    /// Copies the disk, now and then, before records are appended.
    pub fn take_image(&mut self, node: usize, records: &[Record]) {
        if self.options.image_percent == 0 || !self.may_spoil(node) {
            return;
        }
        let acked = self.options.crash_after_ack_percent > 0;
        let promise = |record: &Record| match record {
            Record::Vote { .. } => true,
            Record::Ops { .. } => acked,
            _ => false,
        };
        let promised = records.iter().any(promise);
        if self.randoms.troubles.chance(1, if promised { IMAGES_BEFORE_PROMISE } else { IMAGES }) {
            self.copies.image = Some(self.nodes[node].disk.copy());
        }
    }

    /// Replaces or damages the disk of a node that is about to start, now and then.
    pub fn spoil(&mut self, node: usize) {
        if self.copies.short || !self.may_spoil(node) {
            return;
        }
        let (image_percent, harm_percent) = (self.options.image_percent, self.options.harm_percent);
        if self.copies.image.is_some() && self.randoms.troubles.chance(image_percent, 100) {
            // A later image may be restored again.
            self.nodes[node].disk = self.copies.image.take().expect("just seen");
            self.copies.restored = true;
            self.struck(node, "fault: earlier image");
        }
        if harm_percent == 0 {
            return;
        }
        let disk = self.nodes[node].disk.clone();
        disk.keep_earlier();
        if disk.is_settled() && self.randoms.troubles.chance(harm_percent, 100) {
            for _ in 0..self.randoms.troubles.between(1, HARMS_MAX) {
                let harm = Harm::ALL[self.randoms.troubles.below(Harm::ALL.len() as u64) as usize];
                if let Some(damage) = disk.damage(harm, &mut self.randoms.troubles) {
                    self.line(format_args!("n{node} {damage:?}"));
                    self.struck(node, &format!("fault: {harm:?}"));
                }
            }
        }
    }

    pub(crate) fn struck(&mut self, node: usize, fault: &str) {
        self.line(format_args!("n{node} {fault}"));
        self.count(fault);
        self.copies.spoiled = true;
        self.damaged = Some(node);
    }

    /// Notes how far a process knows its log to be durable.
    pub fn note_durable(&mut self, node: usize, durable: u64) {
        if node == self.copies.victim {
            self.copies.told = self.copies.told.max(durable);
            let running = self.nodes[node].running.as_ref();
            let alone = running.is_some_and(|running| running.core.roster().members.len() == 1);
            self.copies.witnesses.note_durable(durable, alone);
        }
    }

    /// Judges the log that a node has read, and that is durable up to record `durable`. Fails for a member that no longer knows of its
    /// cluster: it waits to be added, as a new machine does, and its operator has another one take its place.
    pub fn judge_start(&mut self, node: usize, durable: u64, records: &[Record]) -> Result<(), String> {
        if node != self.copies.victim {
            return Ok(());
        }
        // The damage may have hit what says that no peer has answered.
        let anew = std::mem::take(&mut self.copies.restored) || self.options.harm_percent + self.options.rot_ppm > 0;
        self.copies.witnesses.begin(durable, anew);
        if !self.copies.spoiled {
            return Ok(());
        }
        self.tell(Happening::Spoiled { node, left: records });
        let told = self.copies.told;
        if durable >= told {
            return Ok(());
        }
        self.line(format_args!("n{node} ends at {durable} and ended at {told}"));
        self.count("sometimes: short log");
        self.copies.short = true;
        let joined = records.iter().any(|record| matches!(record, Record::Genesis(_)));
        if joined { Ok(()) } else { Err("its log does not know of the cluster any more".into()) }
    }

    /// Whether what happened to its disk excuses a node that cannot start.
    pub fn may_refuse(&self, node: usize) -> bool {
        node == self.copies.victim && self.copies.spoiled
    }

    /// Takes a node out whose disk is too far gone.
    pub fn start_refused(&mut self, node: usize, reason: &str) {
        self.line(format_args!("n{node} is out: {reason}"));
        self.count("sometimes: spoiled log refused");
        self.tell(Happening::Gone { node });
        self.copies.out = true;
    }

    /// Handles a node that has found its log to be a copy.
    pub fn retired(&mut self, node: usize) {
        if node != self.copies.victim || !self.copies.short {
            return self.fail("retired", format!("node {node} took its log for a copy, and it is none"));
        }
        self.count("sometimes: short log retired");
        self.take_out(node);
    }

    /// Whether a node goes on although its log lacks what it promised, as no peer that answered it has heard of that.
    pub fn is_unnoticed(&self, node: usize) -> bool {
        let answered = |running: &Running| running.core.inspect().iter().any(|view| view.answered);
        let short = node == self.copies.victim && self.copies.short;
        short
            && self.nodes[node].running.as_ref().is_some_and(|running| !running.core.is_retired() && answered(running))
    }

    /// Takes a node out for good.
    pub fn take_out(&mut self, node: usize) {
        self.line(format_args!("n{node} is taken out"));
        self.stop_node(node, false);
        self.tell(Happening::Gone { node });
        self.copies.out = true;
    }
}
