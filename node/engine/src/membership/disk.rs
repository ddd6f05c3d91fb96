//! Consequences of the state of this node's disk: without room the node takes no more tasks, and stops in order before the disk
//! is full; with a disk far slower than those of the other nodes it does not lead.
//!
//! A slow leader delays every claim, because an operation is answered when a majority has it, and the leader is most often part
//! of that majority; a slow follower delays nothing. So leaderships move elsewhere, as from a node with a suspect clock. The node
//! campaigns late, so that it still leads where no other node can.

use crate::Node;
use crate::effect::Observation;
use norn_model::host::{DiskReport, Room, SLOW_US_MIN};
use norn_model::message::DiskStatus;
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::{NodeId, Request};

/// A disk counts as slow if its syncs take this many times as long as those of the others.
const SLOW_TIMES: u64 = 10;
/// A slow disk counts as recovered when its syncs are below the bound divided by this.
const BETTER_PARTS: u64 = 2;
/// How long a disk must stay slow before it counts as slow.
const SLOW_MS: u64 = 1_000;

/// State of this node's own disk.
#[derive(Debug, Default)]
pub struct OwnDisk {
    report: DiskReport,
    slow: bool,
    /// Bytes of lost parts that peers have sent since the disk ran short of room.
    pub(in crate::membership) told_bytes: u64,
    /// Since when the measurements contradict `slow`, on the own monotonic clock.
    changing_us: Option<u64>,
}

impl OwnDisk {
    /// Whether there is no room for more tasks.
    pub fn is_short(&self) -> bool {
        self.report.room >= Room::Short
    }

    /// Whether a setting, and not the disk, limits the room.
    pub fn is_bounded(&self) -> bool {
        self.is_short() && self.report.bounded
    }

    /// Bytes that may still be written without new room, to restore what the log lost.
    pub fn spare_bytes(&self) -> u64 {
        self.report.spare_bytes.saturating_sub(self.told_bytes)
    }

    /// Whether other nodes should lead rather than this one.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// Disk status for heartbeats.
    pub fn status(&self) -> DiskStatus {
        DiskStatus { sync_us: self.report.sync_us, slow: self.slow }
    }
}

impl Node {
    pub(crate) fn note_disk(&mut self, report: DiskReport) {
        let before = std::mem::replace(&mut self.membership.disk.report, report);
        if report.room != before.room {
            self.membership.disk.told_bytes = 0;
            let (short, out) = (report.room >= Room::Short, report.room == Room::Out);
            self.outbox.observe(Observation::Room { short, out, bounded: report.bounded });
        }
    }

    /// Checks a request while there is no room on the disk or in memory: it may not make the node grow for good. Claims and
    /// endings pass, because they help to end the shortage.
    pub(crate) fn admit_growth(&self, request: &Request) -> Result<(), Error> {
        let grows = request.facts().grows;
        if grows && self.membership.disk.is_short() {
            let name = &self.founding.name;
            let message = match self.membership.disk.report.bounded {
                true => format!(
                    "the data directory of node {name} is nearly as large as its setting `disk_bytes_max` allows: raise that, or \
                     ask another node"
                ),
                false => format!(
                    "the disk of node {name} is nearly full: make room on it (three times its `reserve_bytes` is enough), or ask \
                     another node"
                ),
            };
            return Err(Error::new(ErrorCode::NoSpace, message).because(Cause::TurnedAway));
        }
        let refusal = self.memory_refusal().filter(|_| grows);
        let refused = |message| Err(Error::new(ErrorCode::Overloaded, message).because(Cause::TurnedAway));
        refusal.map_or(Ok(()), refused)
    }

    /// Returns the median sync time of the other living nodes that have synced lately; of an even number, the slower one of the
    /// middle two.
    fn sync_of_others_us(&self) -> Option<u64> {
        let alive = self.membership.peers.iter().filter(|(node, _)| self.is_alive(**node));
        let mut syncs: Vec<u64> = alive.map(|(_, peer)| peer.disk.sync_us).filter(|sync_us| *sync_us > 0).collect();
        syncs.sort_unstable();
        syncs.get(syncs.len() / 2).copied()
    }

    /// Compares the own disk with those of the other nodes. Returns whether it is slow.
    pub(crate) fn judge_disk(&mut self) -> bool {
        let own_us = self.membership.disk.report.sync_us;
        let bound_us =
            self.sync_of_others_us().map(|others_us| (others_us.saturating_mul(SLOW_TIMES)).max(SLOW_US_MIN));
        let differs = match bound_us {
            // Without another disk to compare with, there is no other node that could lead instead.
            None => self.membership.disk.slow,
            Some(bound_us) if self.membership.disk.slow => own_us < bound_us / BETTER_PARTS,
            Some(bound_us) => own_us > bound_us,
        };
        if !differs {
            self.membership.disk.changing_us = None;
        } else {
            let since_us = *self.membership.disk.changing_us.get_or_insert(self.now.mono_us);
            let wait_ms = if self.membership.disk.slow { 2 * self.config.transfer_after_ms } else { SLOW_MS };
            if self.now.mono_us >= since_us + wait_ms * 1_000 {
                self.membership.disk.slow = !self.membership.disk.slow;
                self.membership.disk.changing_us = None;
                self.outbox.observe(Observation::DiskSlow { slow: self.membership.disk.slow, sync_us: own_us });
            }
        }
        self.membership.disk.slow
    }

    /// Whether another node reports its disk as slow.
    pub(crate) fn has_slow_disk(&self, node: NodeId) -> bool {
        self.membership.peers.get(&node).is_some_and(|peer| peer.disk.slow)
    }
}
