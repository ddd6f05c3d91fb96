//! Failure detection and cluster status: heartbeats between every pair of nodes, and what they carry for all partitions together.
//!
//! Quiet partitions cost nothing: a heartbeat lists the partitions that its sender leads only until the receiver has shown that
//! it knows the list, and commit indexes only where they moved.

pub mod clock;
pub mod disk;
pub mod id_allocator;
pub mod memory;
mod pace;
pub mod roster;
pub mod routes;
pub mod stale_image;

use super::Node;
use crate::context::signals::Signal;
use crate::membership::disk::OwnDisk;
use crate::membership::memory::OwnMemory;
use crate::membership::stale_image::{OwnLogPosition, RememberedLog};
use crate::write_read::PendingRequests;
use norn_model::clocks::Clocks;
use norn_model::clocks::RoundTrip;
use norn_model::cohort::AdvertisedCohort;
use norn_model::config::mutant;
use norn_model::message::{DiskStatus, Heartbeat, Peering};
use norn_model::viewstamp::ReplicaId;
use norn_model::viewstamp::{Epoch, Viewstamp};
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// What a node knows of itself and of the others. Its fields are private to this folder.
#[derive(Debug)]
pub struct Membership {
    peers: BTreeMap<NodeId, Peer>,
    /// Cohorts that this node has heard of, where they differ from those of genesis.
    routes: BTreeMap<PartitionId, AdvertisedCohort>,
    /// Replicas of the metadata group at genesis.
    root_founders: Vec<ReplicaId>,
    clocks: Clocks,
    disk: OwnDisk,
    memory: OwnMemory,
    log: OwnLogPosition,
    /// Version of the set of partitions that this node leads.
    leads_version: u64,
    /// Changes of what nodes report to each other about whom they hear and what they lead, and of the nodes that count.
    changes: u64,
    /// When this start last began a round of heartbeats.
    last_round_us: Option<u64>,
}

impl Default for Membership {
    fn default() -> Membership {
        Membership {
            peers: BTreeMap::new(),
            routes: BTreeMap::new(),
            root_founders: Vec::new(),
            clocks: Clocks::default(),
            disk: OwnDisk::default(),
            memory: OwnMemory::default(),
            log: OwnLogPosition::default(),
            leads_version: 1,
            changes: 0,
            last_round_us: None,
        }
    }
}

impl Membership {
    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Number of changes so far of what nodes report about whom they hear and what they lead, and of who counts.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn disk(&self) -> &OwnDisk {
        &self.disk
    }

    /// Notes bytes of lost parts that a peer has sent while the disk is short of room.
    pub(crate) fn note_told_bytes(&mut self, bytes: u64) {
        self.disk.told_bytes += bytes;
    }

    /// During the replay: where the first start began that no peer has answered.
    pub(crate) fn recover_unanswered(&mut self, began: Option<u64>) {
        self.log.unanswered = began;
    }

    /// Where the first start began that no peer has answered.
    pub(crate) fn unanswered(&self) -> Option<u64> {
        self.log.unanswered
    }

    /// Random number of this start.
    pub(crate) fn log_start(&self) -> u64 {
        self.log.start
    }

    pub(crate) fn note_root_founders(&mut self, founders: Vec<ReplicaId>) {
        self.root_founders = founders;
    }
}

#[cfg(test)]
impl Membership {
    pub(crate) fn clocks_mut(&mut self) -> &mut Clocks {
        &mut self.clocks
    }

    pub(crate) fn log(&self) -> &OwnLogPosition {
        &self.log
    }

    pub(crate) fn told_bytes(&self) -> u64 {
        self.disk.told_bytes
    }
}

impl Node {
    /// All nodes of the cluster that this one has heard of, but for itself.
    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.membership.peers.keys().copied()
    }

    pub(crate) fn has_peer(&self, node: NodeId) -> bool {
        self.membership.peers.contains_key(&node)
    }

    pub(crate) fn peer(&self, node: NodeId) -> Option<&Peer> {
        self.membership.peers.get(&node)
    }

    /// Whether a node has lost something that it had acknowledged in that start, or before.
    pub(crate) fn has_lost_since(&self, node: NodeId, boot: u64) -> bool {
        self.peer(node).is_some_and(|peer| boot < peer.counts_from)
    }

    /// The cohort of a partition, if this node has heard of another than that of genesis.
    pub(crate) fn told_of(&self, partition: PartitionId) -> Option<&AdvertisedCohort> {
        self.membership.routes.get(&partition)
    }

    /// Whether there is no room on the disk for more tasks.
    pub(crate) fn is_short_of_disk(&self) -> bool {
        self.membership.disk.is_short()
    }
}

/// State known of another node.
#[derive(Debug, Default)]
pub struct Peer {
    /// Its start counter.
    pub boot: u64,
    /// When it was last heard, on the own monotonic clock.
    pub(crate) heard_us: Option<u64>,
    /// Start of the present time of contact without a gap.
    pub up_since_us: u64,
    /// Its latest heartbeat: number, its clock, arrival time.
    latest: Option<(u64, u64, u64)>,
    /// Number of heartbeats sent to it in this start.
    sent: u64,
    /// When the last of them was sent.
    sent_us: Option<u64>,
    /// Nodes that it hears.
    hears: BTreeSet<NodeId>,
    /// Version of its list of led partitions.
    leads_version: u64,
    /// The list.
    pub leads: BTreeMap<PartitionId, Epoch>,
    /// Version of the own list that it knows.
    leads_known: u64,
    /// Commit indexes that it may not know, each with the first heartbeat that carried it.
    commits: BTreeMap<PartitionId, (Epoch, u64, u64)>,
    /// Round trip of the latest heartbeats.
    pub round_trip_us: Option<u64>,
    /// Clock status that it reports.
    pub standing: Standing,
    /// Disk status that it reports.
    disk: DiskStatus,
    /// It knows of this node's present start.
    knows_start: bool,
    /// First start whose acknowledgements count: it has lost something in earlier ones.
    pub counts_from: u64,
    /// Random number of the start in `boot`.
    start: u64,
    /// Remembered durable position of its log.
    remembered_log: RememberedLog,
    /// It has answered a heartbeat of this node's present start.
    answered: bool,
    /// It reports lost facts, and is not whole yet.
    incomplete: bool,
    /// Newest protocol version that it offers, as it reports.
    offers: u8,
    /// Cohort versions that it advertised as a leader and that are not known here, and when they were asked for.
    strange: BTreeMap<PartitionId, (Epoch, Viewstamp)>,
    strange_asked_us: Option<u64>,
}

impl Peer {
    /// Whether a heartbeat is later than the latest. Of two processes in the same start the first one heard counts; the answers
    /// show the other that it is second.
    fn is_next(&self, heartbeat: &Heartbeat) -> bool {
        let later = self.latest.is_none_or(|(number, ..)| heartbeat.number > number);
        heartbeat.boot > self.boot || heartbeat.boot == self.boot && heartbeat.start == self.start && later
    }
}

/// What a heartbeat says of the start of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It is of the start that is known here.
    SameStart,
    /// It is of the first start that is heard here.
    FirstHeard,
    /// The node has restarted since it was heard last.
    Restarted,
}

#[cfg(test)]
impl Peer {
    /// Number of its latest heartbeat.
    pub fn latest_number(&self) -> u64 {
        self.latest.map_or(0, |(number, ..)| number)
    }

    /// Remembered position of its log.
    pub fn remembered_log(&self) -> RememberedLog {
        self.remembered_log
    }
}

impl Node {
    /// Whether a node was heard within the election timeout. A node always hears itself.
    pub(crate) fn is_alive(&self, node: NodeId) -> bool {
        node == self.me
            || self
                .membership
                .peers
                .get(&node)
                .and_then(|peer| peer.heard_us)
                .is_some_and(|heard_us| self.now.mono_us < heard_us + self.config.election_timeout_ms * 1_000)
    }

    /// Whether a node is heard and reports that it hears this one. Its report may be a heartbeat old. Without both, a request to
    /// it is useless.
    pub(crate) fn is_reachable(&self, node: NodeId) -> bool {
        let hears = || self.membership.peers.get(&node).is_some_and(|peer| peer.hears.contains(&self.me));
        self.is_alive(node) && (node == self.me || hears())
    }

    /// Whether a node knows which partitions this start leads, and so that it has begun.
    pub(crate) fn knows_leads(&self, node: NodeId) -> bool {
        node == self.me || self.membership.peers.get(&node).is_some_and(|peer| peer.leads_known > 0)
    }

    /// Whether the process that numbered a question has ended, as far as this node has heard; then nothing waits for an answer.
    pub(crate) fn is_of_former_process(&self, node: NodeId, request_id: u64) -> bool {
        self.membership.peers.get(&node).is_some_and(|peer| PendingRequests::boot_of(request_id) < peer.boot)
    }

    /// Whether a node reports that it has lost facts and is not whole yet.
    pub(crate) fn is_incomplete(&self, node: NodeId) -> bool {
        if node == self.me {
            self.has_incomplete_facts()
        } else {
            self.membership.peers.get(&node).is_some_and(|peer| peer.incomplete)
        }
    }

    /// Whether a node reports that it hears a majority of the partition.
    pub(crate) fn hears_quorum(&self, node: NodeId, partition: PartitionId) -> bool {
        let (Some(replica), Some(peer)) = (self.partitions.get(&partition), self.membership.peers.get(&node)) else {
            return false;
        };
        let believed = mutant!(self.config, LeaderBelieved);
        replica.consensus.quorum(|member| member == node || peer.hears.contains(&member) || believed)
    }

    /// Whether a partition has a leader that still works.
    pub(crate) fn has_leader(&self, partition: PartitionId) -> bool {
        let Some(replica) = self.partitions.get(&partition) else { return false };
        if replica.consensus.leading().is_some() {
            return true;
        }
        replica
            .consensus
            .leader
            .is_some_and(|leader| self.is_alive(leader.node) && self.hears_quorum(leader.node, partition))
    }

    /// Returns the node to ask about a partition's claims.
    pub(crate) fn leader_of(&self, partition: PartitionId) -> Option<NodeId> {
        self.leadership_of(partition).map(|(_, node)| node)
    }

    /// Returns the latest leadership that any living node advertises, this one included.
    pub(crate) fn leadership_of(&self, partition: PartitionId) -> Option<(Epoch, NodeId)> {
        let own = self
            .partitions
            .get(&partition)
            .and_then(|replica| replica.consensus.leading())
            .map(|own| (own.epoch, self.me));
        let led = |(node, peer): (&NodeId, &Peer)| peer.leads.get(&partition).map(|epoch| (*epoch, *node));
        let others = self.membership.peers.iter().filter(|(node, _)| self.is_alive(**node)).filter_map(led);
        others.chain(own).max()
    }

    /// Returns the protocol version spoken with another node; for this node, the newest that it offers.
    pub(crate) fn version_of(&self, node: NodeId) -> u8 {
        if node == self.me { self.config.protocol_version_max } else { self.outbox.version_of(node) }
    }

    /// Returns the newest protocol version that a node offers, as it reports; otherwise the version spoken with it. None for a
    /// node that was neither heard nor connected.
    pub(crate) fn offered_by(&self, node: NodeId) -> Option<u8> {
        let spoken = (node == self.me || self.outbox.knows_version(node)).then(|| self.version_of(node));
        let offers = self.membership.peers.get(&node).map(|peer| peer.offers).filter(|offers| *offers > 0);
        offers.max(spoken)
    }

    /// Returns the members that cannot reach a node: the node is heard here, but does not hear them. Both must have been heard
    /// for a while, because a node that has just come is reached a little later.
    pub(crate) fn unreached_from(&self, node: NodeId) -> Vec<NodeId> {
        let settled_us = 2 * self.config.election_timeout_ms * 1_000;
        let is_settled = |peer: &Peer| self.now.mono_us >= peer.up_since_us.saturating_add(settled_us);
        let settled = |node: NodeId| self.is_alive(node) && self.membership.peers.get(&node).is_some_and(is_settled);
        let Some(peer) = self.membership.peers.get(&node).filter(|_| settled(node) && self.is_member(node)) else {
            return Vec::new();
        };
        let others = self.members().map(|(_, member)| member.node).filter(|other| *other != node);
        others.filter(|other| (*other == self.me || settled(*other)) && !peer.hears.contains(other)).collect()
    }

    /// `incomplete`: whether any replica here may lack facts that it acknowledged.
    pub(crate) fn send_heartbeat(&mut self, node: NodeId, incomplete: bool) {
        let heartbeat = self.heartbeat_for(node, incomplete);
        self.outbox.send(node, Peering::Heartbeat(Box::new(heartbeat)));
    }

    pub(crate) fn heartbeat_for(&mut self, node: NodeId, incomplete: bool) -> Heartbeat {
        let hears: Vec<NodeId> = self.membership.peers.keys().copied().filter(|node| self.is_alive(*node)).collect();
        let lacks_leads = self.membership.peers[&node].leads_known != self.membership.leads_version;
        let leads: Option<Vec<(PartitionId, Epoch, Viewstamp)>> = lacks_leads.then(|| {
            let version = |id: &PartitionId| self.partitions[id].cohort().version;
            self.led().map(|(id, epoch)| (id, epoch, version(&id))).collect()
        });
        let (now, boot, leads_version, standing) =
            (self.now, self.boot, self.membership.leads_version, self.membership.clocks.standing());
        let disk = self.membership.disk.status();
        let (offers, roster_version) = (self.config.protocol_version_max, self.roster.version);
        let OwnLogPosition { start, durable, .. } = self.membership.log;
        let peer = self.membership.peers.get_mut(&node).expect("asked for members only");
        peer.sent += 1;
        peer.sent_us = Some(now.mono_us);
        let number = peer.sent;
        let (seen, seen_start) = peer.heard_start(&self.config);
        // The peer's latest heartbeat may be of an earlier start, with times on another clock.
        let latest = peer.latest.filter(|_| seen == peer.boot);
        let commits = peer
            .commits
            .iter_mut()
            .map(|(partition, (epoch, commit, first))| {
                *first = if *first == 0 { number } else { *first };
                (*partition, *epoch, *commit)
            })
            .collect();
        Heartbeat {
            boot,
            number,
            seen: (seen, latest.map_or(0, |(number, ..)| number)),
            sent_us: now.mono_us,
            echo_us: latest.map(|(_, sent_us, came_us)| (sent_us, now.mono_us - came_us)),
            wall_ms: now.wall_ms,
            hears,
            leads_version,
            leads,
            leads_known: (peer.boot, peer.leads_version),
            commits,
            standing,
            incomplete,
            disk,
            start,
            durable,
            seen_start,
            remembers: peer.remembered_log.before(seen),
            remembers_last: peer.remembered_log.within(seen),
            offers,
            roster_version,
        }
    }

    pub(crate) fn led(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + '_ {
        let epoch = |id: &PartitionId| self.partitions[id].consensus.leading().expect("it is led here").epoch;
        self.led.iter().map(move |id| (*id, epoch(id)))
    }

    /// Notes that the set of led partitions changed, for all peers at the next heartbeat.
    pub(crate) fn leads_changed(&mut self) {
        self.membership.leads_version += 1;
        self.membership.changes += 1;
    }

    /// Advertises a commit index to the followers at the next heartbeat, unless an operation does so before.
    pub(crate) fn tell_commit(&mut self, partition: PartitionId, epoch: Epoch, commit: u64) {
        for node in self.partitions[&partition].cohort().followers() {
            if let Some(peer) = self.membership.peers.get_mut(&node) {
                peer.commits.insert(partition, (epoch, commit, 0));
            }
        }
    }

    /// Resets a peer for a new start of it. Only its remembered log position, and its answer to this node's own start, stay.
    fn note_start(&mut self, node: NodeId, heartbeat: &Heartbeat) {
        let (now_us, believed) = (self.now.mono_us, mutant!(self.config, LeaderBelieved));
        let forgotten = mutant!(self.config, MemoryForgotten);
        let peer = self.membership.peers.get_mut(&node).expect("the sender is a member");
        let anew = Peer {
            boot: heartbeat.boot,
            heard_us: peer.heard_us,
            sent: peer.sent,
            sent_us: peer.sent_us,
            up_since_us: now_us,
            counts_from: peer.counts_from,
            start: heartbeat.start,
            remembered_log: if forgotten { RememberedLog::default() } else { peer.remembered_log },
            answered: peer.answered,
            ..Peer::default()
        };
        let before = std::mem::replace(peer, anew);
        self.membership.changes += 1;
        if believed {
            *peer = Peer { boot: heartbeat.boot, start: heartbeat.start, latest: None, leads_version: 0, ..before };
        }
    }

    /// Takes in what a heartbeat reports of its sender, and the round trip.
    fn note_heartbeat(&mut self, node: NodeId, heartbeat: &Heartbeat) {
        let (now, gap_us) = (self.now, self.config.election_timeout_ms * 1_000);
        let answers = heartbeat.seen.0 == self.boot;
        let peer = self.membership.peers.get_mut(&node).expect("the sender is a member");
        if peer.latest.is_none_or(|(_, _, came_us)| now.mono_us > came_us + gap_us) {
            peer.up_since_us = now.mono_us;
        }
        peer.heard_us = Some(now.mono_us);
        peer.latest = Some((heartbeat.number, heartbeat.sent_us, now.mono_us));
        let hears: BTreeSet<NodeId> = heartbeat.hears.iter().copied().collect();
        self.membership.changes += u64::from(hears != peer.hears);
        peer.hears = hears;
        peer.standing = heartbeat.standing;
        peer.disk = heartbeat.disk;
        peer.incomplete = heartbeat.incomplete;
        peer.offers = heartbeat.offers;
        peer.knows_start = answers;
        peer.leads_known = if heartbeat.leads_known.0 == self.boot { heartbeat.leads_known.1 } else { 0 };
        if !answers {
            return;
        }
        peer.commits.retain(|_, (_, _, first)| *first == 0 || *first > heartbeat.seen.1);
        if let Some((sent_us, kept_us)) = heartbeat.echo_us {
            let trip = RoundTrip { sent_us, kept_us };
            peer.round_trip_us = trip.length_us(now.mono_us, &self.config).map(|(length_us, _)| length_us);
            self.membership.clocks.measure(node, heartbeat.wall_ms, trip, now, &self.config);
        }
    }

    /// Whether no member counts acknowledgements of this node's earlier starts any more.
    pub(crate) fn all_know_this_start(&self) -> bool {
        // Peers that are no longer members count nothing: what they waited for is long over.
        self.membership.peers.iter().filter(|(node, _)| self.is_member(**node)).all(|(_, peer)| peer.knows_start)
    }

    /// Notes contact with a node. Any message but a heartbeat proves contact; heartbeats are checked first (`on_heartbeat`).
    pub(crate) fn note_heard(&mut self, node: NodeId) {
        let now_us = self.now.mono_us;
        if let Some(peer) = self.membership.peers.get_mut(&node) {
            peer.heard_us = Some(now_us);
        }
    }

    /// Stores the list of partitions that a node leads. Returns those that it no longer leads.
    pub(crate) fn note_leads(
        &mut self,
        node: NodeId,
        version: u64,
        leads: BTreeMap<PartitionId, (Epoch, Viewstamp)>,
    ) -> Vec<PartitionId> {
        let epochs: BTreeMap<PartitionId, Epoch> = leads.iter().map(|(id, (epoch, _))| (*id, *epoch)).collect();
        let peer = self.membership.peers.get_mut(&node).expect("the sender is a member");
        (peer.strange, peer.strange_asked_us) = (leads, None);
        peer.leads_version = version;
        self.membership.changes += 1;
        let before = std::mem::replace(&mut peer.leads, epochs);
        if peer.leads.iter().any(|(partition, epoch)| before.get(partition) != Some(epoch)) {
            self.signals.report(Signal::LeaderElsewhere);
        }
        let leads = &self.membership.peers[&node].leads;
        before.into_keys().filter(|partition| !leads.contains_key(partition)).collect()
    }

    /// Takes in a heartbeat, unless it is late, or shows that this node's own log is a stale copy.
    pub(crate) fn take_heartbeat(&mut self, from: NodeId, heartbeat: &Heartbeat) -> Option<Freshness> {
        if self.retire_if_copied(from, heartbeat) {
            return None;
        }
        let peer = self.membership.peers.get(&from).filter(|peer| peer.is_next(heartbeat))?;
        let freshness = match (heartbeat.boot > peer.boot, peer.boot) {
            (false, _) => Freshness::SameStart,
            (true, 0) => Freshness::FirstHeard,
            (true, _) => Freshness::Restarted,
        };
        if freshness != Freshness::SameStart {
            self.note_start(from, heartbeat);
        }
        self.note_heartbeat(from, heartbeat);
        Some(freshness)
    }

    /// Notes that a node has lost what it acknowledged: acknowledgements count from this start on. Returns whether that is news.
    pub(crate) fn begins_to_count(&mut self, node: NodeId, boot: u64) -> bool {
        let peer = self.membership.peers.get_mut(&node).expect("the sender is a member");
        let is_news = boot > peer.counts_from;
        peer.counts_from = peer.counts_from.max(boot);
        is_news
    }

    /// Notes the protocol version of a connection to a peer. Returns whether the node is a member.
    pub(crate) fn note_version(&mut self, node: NodeId, version: u8) -> bool {
        let is_peer = self.membership.peers.contains_key(&node);
        match is_peer {
            true => self.outbox.set_version(node, version),
            false => self.outbox.refuse("connection of a node that is no member"),
        }
        is_peer
    }

    /// Whether any replica here may lack facts that it acknowledged.
    pub(crate) fn has_incomplete_facts(&self) -> bool {
        let incomplete = |replica: &norn_model::replica::Partition| {
            replica.loss_recovery.data_loss.facts && replica.loss_recovery.losses != 0
        };
        self.partitions.values().any(incomplete)
    }
}
