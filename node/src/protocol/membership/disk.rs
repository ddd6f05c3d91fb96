//! What follows from how this node's disk is: one without room takes no more tasks, and stops in order before it is full; one
//! that is far slower than the others' does not lead.
//!
//! A slow leader holds up every claim, as an operation is answered when a majority has it and the leader is most often one of
//! them; a slow follower holds up nobody. So leaderships go elsewhere, as from a node whose clock is suspect: it campaigns
//! late, so that it still leads where nobody else can.

use crate::protocol::host::{DiskReport, Room, SLOW_US_MIN};
use crate::protocol::peer::DiskWord;
use crate::protocol::{Node, Observation};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::{NodeId, Request};

/// A disk that is so many times slower than the others' is slow.
const SLOW_TIMES: u64 = 10;
/// A slow one must become better by so much before it counts as such.
const BETTER_PARTS: u64 = 2;
/// It must be slow for so long.
const SLOW_MS: u64 = 1_000;

/// What a node knows of its own disk.
#[derive(Debug, Default)]
pub struct OwnDisk {
    report: DiskReport,
    slow: bool,
    /// Since when it is otherwise than `slow` says, on the own monotonic clock.
    changing_us: Option<u64>,
}

impl OwnDisk {
    /// There is no room for more tasks.
    pub fn is_short(&self) -> bool {
        self.report.room >= Room::Short
    }

    /// There is none because of a setting, and not of the disk.
    pub fn is_bounded(&self) -> bool {
        self.is_short() && self.report.bounded
    }

    /// So much may be written without room of what was lost.
    pub fn spare_bytes(&self) -> u64 {
        self.report.spare_bytes
    }

    /// Others should lead rather than this node.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    /// For heartbeats.
    pub fn word(&self) -> DiskWord {
        DiskWord { sync_us: self.report.sync_us, slow: self.slow }
    }
}

impl Node {
    pub(in crate::protocol) fn on_disk(&mut self, report: DiskReport) {
        let before = std::mem::replace(&mut self.disk.report, report);
        if report.room != before.room {
            self.bodies.told_bytes = 0;
            let (short, out) = (report.room >= Room::Short, report.room == Room::Out);
            self.outbox.observe(Observation::Room { short, out, bounded: report.bounded });
        }
        if report.room == Room::Out {
            self.on_shutdown();
        }
    }

    /// Whether a request may make the node grow for good while there is no room on the disk or in memory: endings and claims bring it
    /// to an end.
    pub(in crate::protocol) fn admit_growth(&self, request: &Request) -> Result<(), Error> {
        let grows = match request {
            Request::Enqueue { .. } | Request::EnqueueUnique { .. } | Request::Update { .. } => true,
            Request::Transact(transaction) => !transaction.adds.is_empty() || !transaction.changes.is_empty(),
            _ => false,
        };
        if grows && self.disk.is_short() {
            let name = &self.founding.name;
            let message = match self.disk.report.bounded {
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

    /// How slow the disks of the others are: of the living that have synced lately, the one in the middle, or the slower one
    /// of the two there.
    fn sync_of_others_us(&self) -> Option<u64> {
        let alive = self.peers.iter().filter(|(node, _)| self.is_alive(**node));
        let mut syncs: Vec<u64> = alive.map(|(_, peer)| peer.disk.sync_us).filter(|sync_us| *sync_us > 0).collect();
        syncs.sort_unstable();
        syncs.get(syncs.len() / 2).copied()
    }

    /// Compares the own disk with the others', and draws the consequences.
    pub(in crate::protocol) fn judge_disk(&mut self) {
        let own_us = self.disk.report.sync_us;
        let bound_us =
            self.sync_of_others_us().map(|others_us| (others_us.saturating_mul(SLOW_TIMES)).max(SLOW_US_MIN));
        let differs = match bound_us {
            // Without another one to compare with, nobody is there to lead instead.
            None => self.disk.slow,
            Some(bound_us) if self.disk.slow => own_us < bound_us / BETTER_PARTS,
            Some(bound_us) => own_us > bound_us,
        };
        if !differs {
            self.disk.changing_us = None;
        } else {
            let since_us = *self.disk.changing_us.get_or_insert(self.now.mono_us);
            let wait_ms = if self.disk.slow { 2 * self.config.transfer_after_ms } else { SLOW_MS };
            if self.now.mono_us >= since_us + wait_ms * 1_000 {
                self.disk.slow = !self.disk.slow;
                self.disk.changing_us = None;
                self.outbox.observe(Observation::DiskSlow { slow: self.disk.slow, sync_us: own_us });
            }
        }
        if self.disk.slow {
            self.hand_over_all();
        }
    }

    /// Whether another node's disk is slow, by its own word.
    pub(in crate::protocol) fn has_slow_disk(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.disk.slow)
    }
}
