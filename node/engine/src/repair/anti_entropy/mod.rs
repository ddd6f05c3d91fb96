//! Anti-entropy: pairs of replicas become equal without any client's help.
//!
//! Each round two nodes compare the roots of the partitions that changed since they last agreed. Equal roots cost 16 bytes, and unchanged
//! partitions cost nothing. Where roots differ, the digests of recent changes are offered first (`recent`). If that does not help, or
//! goes back too far, the Merkle trees are compared, level by level (`sync_session`). A throttle bounds the cost (`budget`), and the state
//! of each pair of replicas is known at any time (`pair`).

pub mod arrival;
pub mod budget;
pub mod pair;
pub mod recent;
pub mod sync_session;
#[cfg(test)]
mod tests;

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::write_read::PendingRequest;
use budget::{Budget, Cost};
use norn_model::config::{Config, mutant};
use norn_model::limits::{EXCHANGE_BYTES_MAX, EXCHANGE_TASKS_MAX, REPAIR_PAUSE_MS};
use norn_model::message::{AntiEntropy, Items, PeerMessage, Step, WantPart};
use norn_model::replica::Partition;
use norn_model::task::{Task, Wanted};
use norn_model::viewstamp::Viewstamp;
use norn_wire::response::Agreement;
use norn_wire::{NodeId, PartitionId, TaskId};
use pair::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Tasks of one message, and the bodies to be read from disk for them.
type Batch = (Vec<(TaskId, Task)>, Vec<(usize, Wanted)>);

/// State of anti-entropy with all peers.
#[derive(Debug, Default)]
pub struct SyncState {
    peers: BTreeMap<NodeId, Peer>,
    budget: Budget,
    /// The peer that was served last.
    served: NodeId,
    began_us: u64,
    /// Whether observers were informed that not all replicas agree.
    reported: bool,
}

impl SyncState {
    /// Notes that a partition changed here.
    pub fn changed(&mut self, partition: PartitionId) {
        for peer in self.peers.values_mut() {
            peer.dirty.insert(partition);
        }
    }

    /// Makes repair wait for a client's write that was stored here.
    pub fn yield_to(&mut self, items: &Items) {
        for (_, task) in items.iter() {
            self.budget.yield_to(Cost::of_task(task.size_bytes()));
        }
    }

    /// Notes that a comparison of trees brought tasks.
    pub fn brought(&mut self, from: NodeId, partition: PartitionId, now_us: u64) {
        if let Some(pair) = self.peers.get_mut(&from).and_then(|peer| peer.pairs.get_mut(&partition)) {
            pair.goes_on(now_us);
        }
    }

    /// Whether something may be sent for repair now.
    pub fn may_send(&mut self, now_us: u64, config: &Config) -> bool {
        self.budget.admit(now_us, config).is_ok()
    }

    /// Charges tasks of these sizes, which are sent for repair.
    pub fn sends(&mut self, tasks: impl Iterator<Item = usize>) {
        tasks.for_each(|bytes| self.budget.spend(Cost::of_task(bytes)));
    }

    /// Partitions that have changed since a peer last agreed.
    pub fn changed_without(&self, node: NodeId) -> Vec<PartitionId> {
        let dirty = |peer: &Peer| peer.dirty.iter().filter(|id| peer.pairs.contains_key(id)).copied().collect();
        self.peers.get(&node).map(dirty).unwrap_or_default()
    }

    /// The change up to which a peer is known to know everything.
    pub fn known_to(&self, node: NodeId, partition: PartitionId) -> Option<u64> {
        self.peers.get(&node)?.pairs.get(&partition)?.cursor
    }

    /// Spends the tokens of hours to come.
    #[cfg(test)]
    pub fn overspend(&mut self) {
        self.budget.spend(Cost { bytes: 1 << 40, looks: 1 << 40 });
    }

    /// The next peer in turn for which work is left.
    fn next_in_turn(&self) -> Option<NodeId> {
        let behind = self.peers.range((Bound::Excluded(self.served), Bound::Unbounded));
        let mut in_turn = behind.chain(self.peers.range(..=self.served));
        in_turn.find(|(_, peer)| !peer.sync_session.is_idle()).map(|(node, _)| *node)
    }
}

impl Node {
    /// Starts anew with a peer of which nothing is known any more.
    pub(crate) fn begin_anti_entropy_with(&mut self, node: NodeId) {
        let (me, anybody) = (self.me, mutant!(self.config, ExileMerges));
        let both = |replica: &&Partition| {
            let cohort = replica.cohort();
            (cohort.knows(node) || anybody) && cohort.knows(me) && !replica.is_blank()
        };
        let shared = self.partitions.values().filter(both);
        let anti_entropy = &mut self.repair.anti_entropy;
        let peer = anti_entropy.peers.entry(node).or_default();
        *peer = peer.anew(shared.map(|replica| replica.id));
        if anti_entropy.began_us == 0 {
            anti_entropy.began_us = self.now.mono_us;
        }
    }

    /// Adapts the pairs of a partition to its changed cohort.
    pub(crate) fn pair_up(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let (cohort, here) = (replica.cohort(), replica.cohort().knows(self.me) && !replica.is_blank());
        let anybody = mutant!(self.config, ExileMerges);
        for (node, peer) in &mut self.repair.anti_entropy.peers {
            if here && (cohort.knows(*node) || anybody) {
                peer.pairs.entry(partition).or_default();
                peer.dirty.insert(partition);
            } else {
                peer.pairs.remove(&partition);
                peer.dirty.remove(&partition);
            }
        }
    }

    pub(crate) fn anti_entropy_round(&mut self) {
        let interval_ms = self.config.exchange_interval_ms;
        let wait_ms = self.random.between(interval_ms * 3 / 4, interval_ms * 5 / 4);
        self.timers.set(Key::AntiEntropy, self.now.mono_after_ms(wait_ms));
        let nodes: Vec<NodeId> = self.repair.anti_entropy.peers.keys().copied().collect();
        let round = self.healing_round();
        for node in nodes {
            // A node that is short of room leaves its missing facts to later rounds.
            if self.is_alive(node) {
                self.repair.hints.id_hints.is_back(node);
            } else {
                self.note_absent(node);
            }
            let first = self.hints_go_first(node);
            let (alive, short) = (self.is_alive(node), self.is_short_of_disk());
            let incomplete = if round > 0 { self.open_with(node) } else { BTreeSet::new() };
            let partitions = &self.partitions;
            let peer = self.repair.anti_entropy.peers.get_mut(&node).expect("just listed");
            peer.dirty.retain(|id| peer.pairs.contains_key(id));
            if !alive {
                peer.sync_session = Default::default();
            }
            if !alive || short {
                continue;
            }
            let root = |id: &PartitionId| (*id, partitions[id].store.root());
            let roots: Vec<_> = peer.dirty.union(&incomplete).map(root).collect();
            if !roots.is_empty() && !first {
                self.outbox.send(node, AntiEntropy::Roots { roots, round });
                incomplete.into_iter().for_each(|partition| self.ask_groups(node, partition, round));
            }
        }
        self.tell_agreement();
    }

    pub(crate) fn on_roots(&mut self, from: NodeId, roots: &[(PartitionId, u128)], round: u64) {
        // Without room this node asks for nothing, but answers a replica that recovers: answering needs no room.
        if round == 0 && (self.is_short_of_disk() || self.hints_go_first(from)) {
            return;
        }
        let (mut equal, mut at, mut differ) = (Vec::new(), Vec::new(), Vec::new());
        for (id, root) in roots {
            let Some(replica) = self.partitions.get(id) else { continue };
            if replica.store.root() == *root {
                if round == 0 || self.speaks_for(*id) {
                    equal.push((*id, *root));
                    at.push(replica.cohort().version);
                }
                self.agreed(from, *id);
            } else {
                differ.push(*id);
                self.differs(from, *id);
            }
        }
        if round > 0 {
            // A replica that asks out of turn must be equal soon.
            self.offer(from, &differ);
        }
        let answer = AntiEntropy::RootsAnswer { equal, at, differ, round };
        if round == 0 {
            self.outbox.send(from, answer);
        } else {
            // A recovering peer counts on the version as well, which must not be lost again.
            self.outbox.send_durable(from, answer);
        }
    }

    /// Notes that both replicas are equal, up to what is changing right now.
    fn agreed(&mut self, node: NodeId, partition: PartitionId) {
        let changes = self.partitions[&partition].store.changes();
        let Some(peer) = self.repair.anti_entropy.peers.get_mut(&node) else { return };
        if let Some(pair) = peer.pairs.get_mut(&partition) {
            peer.dirty.remove(&partition);
            pair.agreed(self.now.mono_us, changes);
        }
    }

    fn differs(&mut self, node: NodeId, partition: PartitionId) {
        let Some(peer) = self.repair.anti_entropy.peers.get_mut(&node) else { return };
        if let Some(pair) = peer.pairs.get_mut(&partition) {
            peer.dirty.insert(partition);
            pair.differs();
        }
    }

    pub(crate) fn on_roots_answer(
        &mut self,
        from: NodeId,
        (equal, at): (&[(PartitionId, u128)], &[Viewstamp]),
        differ: &[PartitionId],
        round: u64,
    ) {
        for ((id, root), at) in equal.iter().zip(at) {
            if self.partitions.get(id).is_some_and(|replica| replica.store.root() == *root) {
                self.agreed(from, *id);
                self.agreed_on_facts(from, *id, (round, *at));
            }
        }
        for id in differ {
            self.differs(from, *id);
        }
        self.offer(from, differ);
        self.go_on_with_repair();
    }

    /// Begins a comparison at the top of a partition's tree, unless one is under way.
    fn compare_trees(&mut self, node: NodeId, partition: PartitionId) {
        let salt = self.pending_requests.number();
        let comes_first = self.me < node;
        let Some(peer) = self.repair.anti_entropy.peers.get_mut(&node) else { return };
        let Some(pair) = peer.pairs.get_mut(&partition) else { return };
        if !pair.is_busy(self.now.mono_us, &self.config) && pair.may_begin(comes_first) {
            pair.goes_on(self.now.mono_us);
            peer.sync_session.begin(partition, salt);
        }
    }

    pub(crate) fn on_steps(&mut self, from: NodeId, steps: Vec<Step>) {
        let Some(peer) = self.repair.anti_entropy.peers.get_mut(&from) else { return };
        let mut sound = true;
        for step in steps {
            match peer.pairs.get_mut(&step.partition()) {
                Some(pair) => {
                    pair.goes_on(self.now.mono_us);
                    sound &= peer.sync_session.hear(step);
                }
                None => sound = false,
            }
        }
        if !sound {
            self.outbox.refuse("a step of a comparison that is not under way");
        }
        self.go_on_with_repair();
    }

    pub(crate) fn on_need(&mut self, from: NodeId, partition: PartitionId, ids: &[TaskId]) {
        if self.partitions.get(&partition).is_some_and(|replica| replica.cohort().knows(from)) {
            self.send_tasks(from, partition, ids, false);
        }
    }

    /// Read repair at the laggard: a coordinator saw that this replica lacks facts which `holder` has. Asks for them.
    pub(crate) fn on_lacks(&mut self, partition: PartitionId, id: TaskId, holder: NodeId) {
        let shared =
            self.repair.anti_entropy.peers.get(&holder).is_some_and(|peer| peer.pairs.contains_key(&partition));
        if shared {
            let parts = vec![WantPart { partition, upto: None, ids: vec![id] }];
            self.outbox.send(holder, AntiEntropy::Want { boot: self.boot, parts });
        }
    }

    /// Read repair: names each replica that lacks a part of `task` the replicas that have it.
    pub(crate) fn repair_laggards(&mut self, request_id: u64, task: &Task) {
        let Some(PendingRequest::Read(read)) = self.pending_requests.get(request_id) else { return };
        let (id, partition) = (read.id, self.partition_of(&read.id));
        for (laggard, holder) in read.laggards(task) {
            if !self.may_repair_task(task) {
                return;
            }
            self.outbox.send(laggard, AntiEntropy::Lacks { partition, id, holder });
        }
    }

    /// Whether read repair of a task is within the budget. Charges it if so.
    fn may_repair_task(&mut self, task: &Task) -> bool {
        let budget = &mut self.repair.anti_entropy.budget;
        let may = budget.admit(self.now.mono_us, &self.config).is_ok();
        if may {
            budget.spend(Cost::of_task(task.size_bytes()));
        }
        may
    }

    /// Schedules repair if any work is left.
    fn go_on_with_repair(&mut self) {
        if self.repair.anti_entropy.next_in_turn().is_some() {
            self.timers.set_if_none(Key::Repair, self.now.mono_us);
        }
    }

    /// Does a slice of the work left for one peer. Other peers, and all else the node has to do, come in between.
    pub(crate) fn repair(&mut self) {
        let Some(node) = self.repair.anti_entropy.next_in_turn() else { return };
        let now_us = self.now.mono_us;
        let allowed = match self.repair.anti_entropy.budget.admit(now_us, &self.config) {
            Ok(allowed) => allowed,
            Err(wait_us) => {
                // Not for the first byte, so that messages are worth sending.
                self.timers.set(Key::Repair, now_us + wait_us.max(REPAIR_PAUSE_MS * 1_000));
                return;
            }
        };
        self.repair.anti_entropy.served = node;
        let (partitions, config) = (&self.partitions, &self.config);
        let peer = self.repair.anti_entropy.peers.get_mut(&node).expect("it was its turn");
        let slice = peer.sync_session.work(|id| partitions.get(&id).map(|replica| &replica.store), allowed, config);
        for partition in &slice.partitions {
            if let Some(pair) = peer.pairs.get_mut(partition) {
                pair.goes_on(now_us);
            }
        }
        for ((partition, salt), tasks) in &slice.differing {
            if let Some(pair) = peer.pairs.get_mut(partition) {
                pair.found(*salt, *tasks);
            }
        }
        self.repair.anti_entropy.budget.spend(slice.cost);
        if !slice.steps.is_empty() {
            self.outbox.send(node, AntiEntropy::Steps { steps: slice.steps });
        }
        for parcel in &slice.parcels {
            self.send_tasks(node, parcel.partition, &parcel.ids, parcel.by_buckets);
        }
        if self.repair.anti_entropy.next_in_turn().is_some() {
            self.timers.set(Key::Repair, self.now.mono_after_ms(REPAIR_PAUSE_MS));
        }
    }

    /// Sends tasks in messages of bounded size.
    fn send_tasks(&mut self, to: NodeId, partition: PartitionId, ids: &[TaskId], by_buckets: bool) {
        let replica = &self.partitions[&partition];
        let (store, forgets) = (&replica.store, replica.forgets_surely());
        let mut batches: Vec<Batch> = Vec::new();
        let mut bytes = EXCHANGE_BYTES_MAX;
        let known = ids.iter().filter_map(|id| Some((*id, store.content(id)?)));
        for (id, (task, wanted)) in known {
            if bytes >= EXCHANGE_BYTES_MAX || batches.last().is_none_or(|(batch, _)| batch.len() >= EXCHANGE_TASKS_MAX)
            {
                batches.push(Default::default());
                bytes = 0;
            }
            bytes += task.size_bytes() + wanted.iter().map(Wanted::adds_bytes).sum::<usize>();
            let (batch, lacks) = batches.last_mut().expect("just seen to");
            lacks.extend(wanted.into_iter().map(|wanted| (batch.len(), wanted)));
            batch.push((id, task));
        }
        for (batch, lacks) in batches {
            let message =
                PeerMessage::AntiEntropy(AntiEntropy::Tasks { partition, items: Arc::new(batch), by_buckets, forgets });
            self.send_whole(to, message, lacks, false);
        }
    }

    /// How near a replica of this node is to those of its peers.
    pub(crate) fn agreements(&self, partition: PartitionId) -> Vec<Agreement> {
        let now_us = self.now.mono_us;
        let peers = self.repair.anti_entropy.peers.iter();
        let shared = peers.filter_map(|(node, peer)| Some((node, peer, peer.pairs.get(&partition)?)));
        shared
            .map(|(node, peer, pair)| {
                let since = |agreed_us: u64| (now_us - agreed_us) / 1_000;
                let agreed_ms = pair.agreed_us().map(|at| if peer.dirty.contains(&partition) { since(at) } else { 0 });
                let apart = pair.is_apart(now_us, &self.config);
                Agreement { node: *node, agreed_ms, apart, differing: pair.differing() }
            })
            .collect()
    }

    /// Informs observers how near the replicas are, as long as they are not equal.
    fn tell_agreement(&mut self) {
        let anti_entropy = &mut self.repair.anti_entropy;
        let (mut apart, mut oldest_us) = (BTreeSet::new(), self.now.mono_us);
        for peer in anti_entropy.peers.values() {
            for (id, pair) in peer.dirty.iter().filter_map(|id| Some((id, peer.pairs.get(id)?))) {
                oldest_us = oldest_us.min(pair.agreed_us().unwrap_or(anti_entropy.began_us));
                if pair.is_apart(self.now.mono_us, &self.config) {
                    apart.insert(*id);
                }
            }
        }
        let (apart, oldest_ms) = (apart.len() as u64, (self.now.mono_us - oldest_us) / 1_000);
        let is_news = apart > 0 || oldest_ms > 0;
        if is_news || anti_entropy.reported {
            anti_entropy.reported = is_news;
            self.outbox.observe(Observation::Agreement { apart, oldest_ms });
        }
    }
}
