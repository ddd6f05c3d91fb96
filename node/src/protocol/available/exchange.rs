//! Anti-entropy: pairs of replicas become equal without any client's help.
//!
//! Each round two nodes compare the roots of the partitions that changed since they last agreed; equal roots cost 16 bytes.
//! Where they differ, the digests of recent changes are offered first, from a cursor that the peer has acknowledged; if
//! that does not help, or goes back too far, the buckets of the tree are compared.

use crate::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX};
use crate::protocol::Node;
use crate::protocol::peer::{BucketDigests, PeerMessage};
use crate::protocol::task::{Digest, Task};
use crate::protocol::timers::Key;
use norn_client::wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rounds in which recent changes may fail to make roots equal before buckets are compared.
const STUCK_ROUNDS_MAX: u32 = 2;
/// Buckets compared at once.
const BUCKETS_AT_ONCE_MAX: usize = 64;

/// State with one peer.
#[derive(Debug, Default)]
struct Peer {
    /// Partitions that changed since both agreed.
    dirty: BTreeSet<PartitionId>,
    /// Change number up to which the peer knows everything; absent before the first agreement.
    cursors: BTreeMap<PartitionId, u64>,
    /// Rounds with different roots although the cursor is at the end.
    stuck: BTreeMap<PartitionId, u32>,
}

/// State of anti-entropy with all peers.
#[derive(Debug, Default)]
pub struct Exchange {
    peers: BTreeMap<NodeId, Peer>,
    /// The first round since nobody counts any more what this node said before it lost something.
    pub healing_since: Option<u64>,
}

impl Exchange {
    /// A partition changed here.
    pub fn changed(&mut self, partition: PartitionId) {
        for peer in self.peers.values_mut() {
            peer.dirty.insert(partition);
        }
    }
}

impl Node {
    /// With this peer nothing is known any more.
    pub(in crate::protocol) fn exchange_anew(&mut self, node: NodeId) {
        let shared = self.partitions.values().filter(|replica| replica.cohort.contains(&node));
        let peer = Peer { dirty: shared.map(|replica| replica.id).collect(), ..Peer::default() };
        self.asks.exchange.peers.insert(node, peer);
    }

    pub(in crate::protocol) fn exchange_round(&mut self) {
        let interval_ms = self.config.exchange_interval_ms;
        let wait_ms = self.random.between(interval_ms * 3 / 4, interval_ms * 5 / 4);
        self.timers.set(Key::Exchange, self.now.mono_after_ms(wait_ms));
        let nodes: Vec<NodeId> = self.asks.exchange.peers.keys().copied().collect();
        let round = self.healing_round();
        for node in nodes {
            // What is missing here waits until there is room for it.
            if !self.is_alive(node) || self.disk.is_short() {
                continue;
            }
            let holes = if round > 0 { self.holes_with(node) } else { BTreeSet::new() };
            let partitions = &mut self.partitions;
            let peer = self.asks.exchange.peers.get_mut(&node).expect("just listed");
            peer.dirty.retain(|id| partitions.get(id).is_some_and(|replica| replica.cohort.contains(&node)));
            let root = |id: &PartitionId| (*id, partitions.get_mut(id).expect("own partitions").store.root());
            let roots: Vec<_> = peer.dirty.union(&holes).map(root).collect();
            if !roots.is_empty() {
                self.outbox.send(node, PeerMessage::Roots { roots, round });
            }
        }
    }

    pub(in crate::protocol) fn on_roots(&mut self, from: NodeId, roots: &[(PartitionId, u128)], round: u64) {
        if self.disk.is_short() {
            return;
        }
        let (mut equal, mut differ) = (Vec::new(), Vec::new());
        for (id, root) in roots {
            let Some(replica) = self.partitions.get_mut(id) else { continue };
            if replica.store.root() == *root {
                if round == 0 || !replica.healing.wound.facts {
                    equal.push((*id, *root));
                }
                self.agreed(from, *id);
            } else {
                differ.push(*id);
            }
        }
        self.outbox.send(from, PeerMessage::RootsAnswer { equal, differ, round });
    }

    /// Both replicas are equal, up to what is changing right now.
    fn agreed(&mut self, node: NodeId, partition: PartitionId) {
        let changes = self.partitions[&partition].store.changes();
        if let Some(peer) = self.asks.exchange.peers.get_mut(&node) {
            peer.dirty.remove(&partition);
            peer.stuck.remove(&partition);
            peer.cursors.insert(partition, changes);
        }
    }

    pub(in crate::protocol) fn on_roots_answer(
        &mut self,
        from: NodeId,
        equal: &[(PartitionId, u128)],
        differ: &[PartitionId],
        round: u64,
    ) {
        for (id, root) in equal {
            if self.partitions.get_mut(id).is_some_and(|replica| replica.store.root() == *root) {
                self.agreed(from, *id);
                self.agreed_on_holes(from, *id, round);
            }
        }
        for id in differ {
            if self.partitions.get(id).is_some_and(|replica| replica.cohort.contains(&from)) {
                self.offer(from, *id);
            }
        }
    }

    /// Offers recent changes, or all buckets where those are not enough.
    fn offer(&mut self, node: NodeId, partition: PartitionId) {
        let store = &self.partitions[&partition].store;
        let Some(peer) = self.asks.exchange.peers.get_mut(&node) else { return };
        let changes = store.changes();
        let cursor = peer.cursors.get(&partition).copied();
        let recent = cursor.and_then(|cursor| store.recent_after(cursor).map(|recent| (cursor, recent)));
        let stuck = peer.stuck.entry(partition).or_default();
        *stuck = if cursor == Some(changes) { *stuck + 1 } else { 0 };
        let stuck = *stuck >= STUCK_ROUNDS_MAX;
        let Some((cursor, recent)) = recent.filter(|_| !stuck) else {
            let digests = store.tree().buckets().collect();
            self.outbox.send(node, PeerMessage::Buckets { partition, digests });
            return;
        };
        let ids: Vec<TaskId> = recent.take(EXCHANGE_TASKS_MAX).collect();
        let upto = cursor + ids.len() as u64;
        let unique: BTreeSet<TaskId> = ids.into_iter().collect();
        let tasks: Vec<(TaskId, Digest)> = unique.into_iter().map(|id| (id, store.digest(&id))).collect();
        if !tasks.is_empty() {
            self.outbox.send(node, PeerMessage::Recent { partition, boot: self.boot, upto, tasks });
        }
    }

    pub(in crate::protocol) fn on_recent(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        boot: u64,
        upto: u64,
        tasks: &[(TaskId, Digest)],
    ) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let differs = |(id, digest): &&(TaskId, Digest)| replica.store.digest(id) != *digest;
        let ids = tasks.iter().filter(differs).map(|(id, _)| *id).collect();
        self.outbox.send(from, PeerMessage::Want { partition, boot, upto: Some(upto), ids });
    }

    pub(in crate::protocol) fn on_want(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        boot: u64,
        upto: Option<u64>,
        ids: &[TaskId],
    ) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        if !replica.cohort.contains(&from) {
            return;
        }
        let changes = replica.store.changes();
        if boot == self.boot
            && let Some(upto) = upto.filter(|upto| *upto <= changes)
            && let Some(peer) = self.asks.exchange.peers.get_mut(&from)
        {
            let cursor = peer.cursors.entry(partition).or_default();
            *cursor = (*cursor).max(upto);
        }
        self.send_tasks(from, partition, ids, false);
    }

    /// Sends tasks in messages of bounded size.
    fn send_tasks(&mut self, to: NodeId, partition: PartitionId, ids: &[TaskId], by_buckets: bool) {
        let store = &self.partitions[&partition].store;
        let mut batch: Vec<(TaskId, Task)> = Vec::new();
        let mut bytes = 0;
        for id in ids {
            let Some(task) = store.task(id) else { continue };
            bytes += task.size_bytes();
            batch.push((*id, task.clone()));
            if batch.len() >= EXCHANGE_TASKS_MAX || bytes >= EXCHANGE_BYTES_MAX {
                let items = Arc::new(std::mem::take(&mut batch));
                self.outbox.send(to, PeerMessage::Tasks { partition, items, by_buckets });
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.outbox.send(to, PeerMessage::Tasks { partition, items: Arc::new(batch), by_buckets });
        }
    }

    pub(in crate::protocol) fn on_buckets(&mut self, from: NodeId, partition: PartitionId, digests: &[(u16, Digest)]) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let theirs: BTreeMap<u16, Digest> = digests.iter().copied().collect();
        let own = replica.store.tree().buckets();
        let missing_there = own.filter(|(bucket, digest)| theirs.get(bucket) != Some(digest)).map(|(bucket, _)| bucket);
        let missing_here = theirs.iter().filter(|(bucket, digest)| replica.store.tree().bucket(**bucket) != **digest);
        let differing: BTreeSet<u16> = missing_there.chain(missing_here.map(|(bucket, _)| *bucket)).collect();
        let chosen: BTreeSet<u16> = differing.into_iter().take(BUCKETS_AT_ONCE_MAX).collect();
        let list = replica.store.bucket_digests(&chosen);
        let buckets = list.into_iter().map(|(bucket, tasks)| BucketDigests { bucket, tasks }).collect();
        self.outbox.send(from, PeerMessage::BucketTasks { partition, buckets });
    }

    /// Both sides of some buckets are known here: what differs goes both ways.
    pub(in crate::protocol) fn on_bucket_tasks(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        buckets: &[BucketDigests],
    ) {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| replica.cohort.contains(&from)) else {
            return;
        };
        let chosen: BTreeSet<u16> = buckets.iter().map(|bucket| bucket.bucket).take(BUCKETS_AT_ONCE_MAX).collect();
        let own = replica.store.bucket_digests(&chosen);
        let theirs: BTreeMap<TaskId, Digest> = buckets.iter().flat_map(|bucket| &bucket.tasks).copied().collect();
        let push: Vec<TaskId> =
            own.values().flatten().filter(|(id, digest)| theirs.get(id) != Some(digest)).map(|(id, _)| *id).collect();
        let want: Vec<TaskId> =
            theirs.iter().filter(|(id, digest)| replica.store.digest(id) != **digest).map(|(id, _)| *id).collect();
        if !push.is_empty() {
            self.send_tasks(from, partition, &push, true);
        }
        for ids in want.chunks(EXCHANGE_TASKS_MAX) {
            self.outbox.send(from, PeerMessage::Want { partition, boot: self.boot, upto: None, ids: ids.to_vec() });
        }
    }
}
