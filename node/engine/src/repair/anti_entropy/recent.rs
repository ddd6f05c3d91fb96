//! Recent changes: each replica offers their digests to each peer from a cursor that the peer has acknowledged.

use super::budget::Cost;
use crate::Node;
use norn_model::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX};
use norn_model::message::{AntiEntropy, RecentPart, WantPart};
use norn_model::task::Digest;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::BTreeSet;

/// Bytes of one task id and digest in a message.
const OFFER_BYTES: usize = 42;
/// Bytes of a part besides its tasks, roughly.
const PART_BYTES: usize = 16;

impl Node {
    /// Where roots differ: offers the digests of recent changes, or compares the trees where those are not enough.
    pub(super) fn offer(&mut self, node: NodeId, partitions: &[PartitionId]) {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for partition in partitions {
            if self.repair.anti_entropy.budget.admit(self.now.mono_us, &self.config).is_err() {
                // These partitions are dirty, so the next round comes back to them.
                break;
            }
            let Some(part) = self.recent_part(node, *partition) else { continue };
            let part_bytes = PART_BYTES + part.tasks.len() * OFFER_BYTES;
            self.repair.anti_entropy.budget.spend(Cost { bytes: part_bytes as u64, looks: part.tasks.len() as u64 });
            bytes += part_bytes;
            parts.push(part);
            if bytes >= EXCHANGE_BYTES_MAX {
                let parts = std::mem::take(&mut parts);
                self.outbox.send(node, AntiEntropy::Recent { boot: self.boot, parts });
                bytes = 0;
            }
        }
        if !parts.is_empty() {
            self.outbox.send(node, AntiEntropy::Recent { boot: self.boot, parts });
        }
    }

    fn recent_part(&mut self, node: NodeId, partition: PartitionId) -> Option<RecentPart> {
        let store = &self.partitions.get(&partition)?.store;
        let pair = self.repair.anti_entropy.peers.get_mut(&node)?.pairs.get_mut(&partition)?;
        let stuck = pair.is_stuck(store.changes());
        let recent = pair.cursor.and_then(|cursor| store.recent_after(cursor).map(|recent| (cursor, recent)));
        let Some((cursor, recent)) = recent.filter(|_| !stuck) else {
            self.compare_trees(node, partition);
            return None;
        };
        let ids: Vec<TaskId> = recent.take(EXCHANGE_TASKS_MAX).collect();
        let upto = cursor + ids.len() as u64;
        assert!(upto <= store.changes(), "changes are offered that have not happened");
        let unique: BTreeSet<TaskId> = ids.into_iter().collect();
        let tasks: Vec<(TaskId, Digest)> = unique.into_iter().map(|id| (id, store.digest(&id))).collect();
        (!tasks.is_empty()).then_some(RecentPart { partition, upto, tasks })
    }

    pub(crate) fn on_recent(&mut self, from: NodeId, boot: u64, recent: &[RecentPart]) {
        let mut parts = Vec::new();
        for RecentPart { partition, upto, tasks } in recent {
            let Some(replica) = self.partitions.get(partition) else { continue };
            let differs = |(id, digest): &&(TaskId, Digest)| replica.store.digest(id) != *digest;
            let ids = tasks.iter().filter(differs).map(|(id, _)| *id).collect();
            parts.push(WantPart { partition: *partition, upto: Some(*upto), ids });
        }
        if !parts.is_empty() {
            self.outbox.send(from, AntiEntropy::Want { boot, parts });
        }
    }

    pub(crate) fn on_want(&mut self, from: NodeId, boot: u64, parts: &[WantPart]) {
        let mut more = Vec::new();
        for WantPart { partition, upto, ids } in parts {
            let Some(replica) = self.partitions.get(partition) else { continue };
            let changes = replica.store.changes();
            let Some(peer) = self.repair.anti_entropy.peers.get_mut(&from) else { return };
            let Some(pair) = peer.pairs.get_mut(partition) else { continue };
            if boot == self.boot
                && let Some(upto) = upto.filter(|upto| *upto <= changes)
            {
                let cursor = pair.cursor.get_or_insert_default();
                *cursor = (*cursor).max(upto);
                if upto == changes && ids.is_empty() {
                    pair.is_level(self.now.mono_us);
                }
                // A peer that lacks some of these lacks newer ones, too.
                if upto < changes && !ids.is_empty() {
                    more.push(*partition);
                }
            }
            peer.sync_session.send(*partition, ids);
        }
        self.offer(from, &more);
        self.go_on_with_repair();
    }
}
