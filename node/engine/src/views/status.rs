//! Status views: a node's report on itself and its cluster.

use crate::Node;
use norn_model::cohort::Cohort;
use norn_model::message::StateCounts;
use norn_wire::response::{Health, Identity, NodeView, PartitionView, Standing, Status};
use norn_wire::{NodeId, PartitionId};
use serde_bytes::ByteBuf;

/// Gauges among the counters of a status, in the order of their values.
pub const STANDINGS: [&str; 7] = [
    "roster_version",
    "disk_short",
    "disk_bounded",
    "memory_short",
    "ids_wait_ms",
    "clock_off_ms",
    "members_unreached",
];
/// Gauges of the clock of each other member; the member's name follows behind a dot.
pub const CLOCKS: [&str; 3] = ["clock_ahead_ms", "clock_behind_ms", "clock_error_ms"];

/// Members that have not answered for this long are named.
const HELD_UP_SHOWN_MS: u64 = 5_000;

impl Node {
    pub(crate) fn identity(&self) -> Identity {
        let waits = |replica: &norn_model::replica::Partition| replica.cohort().has(self.me) && !replica.is_blank();
        // The metadata group may be without a leader for a while: tasks go on.
        let tasks = self.partitions.iter().filter(|(id, _)| **id != PartitionId::METADATA);
        let mut own = tasks.filter(|(_, replica)| waits(replica));
        let serving = self.genesis.is_some() && own.all(|(id, _)| self.leader_of(*id).is_some());
        Identity {
            node: self.me,
            incarnation: self.founding.incarnation,
            name: self.founding.name.clone(),
            address: self.founding.address.clone(),
            zone: self.founding.zone.clone(),
            genesis: self.genesis.as_ref().map(|genesis| Box::new(genesis.as_ref().clone())),
            serving,
        }
    }

    /// Whether every partition has a leader that this node knows.
    pub fn is_serving(&self) -> bool {
        let Some(genesis) = &self.genesis else { return false };
        (0..genesis.partitions as u16).all(|id| self.leader_of(PartitionId(id)).is_some())
    }

    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let Some(genesis) = &self.genesis else { return Vec::new() };
        let led = |node: NodeId| {
            (0..genesis.partitions as u16).filter(|id| self.leader_of(PartitionId(*id)) == Some(node)).count() as u32
        };
        let cohorts: Vec<Cohort> = (0..genesis.partitions as u16).map(|id| self.cohort_of(PartitionId(id))).collect();
        let holds = |node: NodeId| cohorts.iter().filter(|cohort| cohort.has(node)).count() as u32;
        let views = self.roster.members.values().map(|member| {
            let peer = self.peer(member.node);
            let offset = self.membership.clocks().offset_us(member.node, self.now, &self.config);
            let own = member.node == self.me;
            NodeView {
                node: member.node,
                name: member.name.clone(),
                address: member.address.clone(),
                zone: member.zone.clone(),
                state: Some(member.state),
                alive: self.is_alive(member.node),
                this: own,
                leads: led(member.node),
                holds: holds(member.node),
                clock: if own {
                    self.membership.clocks().standing()
                } else {
                    peer.map_or(Standing::Unknown, |peer| peer.standing)
                },
                clock_offset_ms: offset.map(|(offset_us, _)| offset_us / 1_000),
                clock_error_ms: offset.map(|(_, error_us)| error_us.div_ceil(1_000)),
                round_trip_us: peer.and_then(|peer| peer.round_trip_us),
                version: self.offered_by(member.node),
                unreached_from: self.unreached_from(member.node),
            }
        });
        views.collect()
    }

    /// Returns preference lists and leaders of all partitions.
    pub(crate) fn ring_views(&self) -> Vec<PartitionView> {
        let Some(genesis) = &self.genesis else { return Vec::new() };
        let view = |partition| {
            let leadership = self.leadership_of(partition);
            let cohort = self.cohort_of(partition);
            let next = cohort.next.iter().flat_map(|next| &next.slots);
            PartitionView {
                partition,
                next: next.map(|slot| slot.replica.node).collect(),
                leaving: cohort
                    .draining_replicas
                    .iter()
                    .map(|draining_replica| draining_replica.slot.replica.node)
                    .collect(),
                cohort: cohort.members().collect(),
                leader: leadership.map(|(_, node)| node),
                // Node and epoch come from the same source: a leader beside the epoch of its successor would be a leadership that
                // never was.
                epoch: leadership.map_or(0, |(epoch, _)| epoch),
                applied: 0,
                tasks: None,
                claims: None,
                root: None,
                health: None,
                tombstones: None,
                held_up_by: Vec::new(),
                agreements: Vec::new(),
            }
        };
        (0..genesis.partitions as u16).map(PartitionId).map(view).collect()
    }

    /// Returns the same, with the content of this node's replicas.
    pub(crate) fn partition_views(&mut self) -> Vec<PartitionView> {
        let mut views = self.ring_views();
        for view in &mut views {
            view.held_up_by = self.held_up_by(view.partition, HELD_UP_SHOWN_MS);
            view.agreements = self.agreements(view.partition);
            if let Some(replica) = self.partitions.get_mut(&view.partition).filter(|replica| !replica.is_blank()) {
                let viewstamp = replica.consensus.viewstamp;
                view.applied = if viewstamp.epoch == view.epoch { viewstamp.length } else { 0 };
                view.tasks = Some(replica.store.count() as u64);
                view.tombstones = Some(replica.store.tombstones_count() as u64);
                view.claims = Some(replica.consensus.table.entries.len() as u64);
                view.root = Some(ByteBuf::from(replica.store.root().to_be_bytes().to_vec()));
                let data_loss = replica.loss_recovery.data_loss;
                view.health = Some(match (data_loss.facts, data_loss.table) {
                    (_, true) => Health::Recovering,
                    (true, false) => Health::Holes,
                    (false, false) => Health::Whole,
                });
            }
        }
        views
    }

    pub(crate) fn status(&self, counts: StateCounts, uncounted: u32) -> Option<Status> {
        let genesis = self.genesis.as_ref()?;
        let alive = self.members().filter(|(_, member)| self.is_alive(member.node)).count() as u32;
        let led = (0..genesis.partitions as u16).filter(|id| self.leader_of(PartitionId(*id)).is_some()).count() as u32;
        Some(Status {
            cluster: genesis.cluster,
            name: genesis.name.clone(),
            node: self.me,
            boot: self.boot,
            nodes: (self.members().count() as u32, alive),
            partitions: (genesis.partitions, led),
            counts,
            counters: self.counters(),
            uncounted,
        })
    }

    /// Returns counters, versions of members and policies that the node knows, and gauges. As elsewhere in this list, zeros are
    /// left out.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        let mut counters: Vec<(String, u64)> =
            self.outbox.counters().iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let off_us = self.membership.clocks().off_us(self.now, self.members().count(), &self.config);
        let now = [
            self.roster.version,
            self.is_short_of_disk().into(),
            self.membership.disk().is_bounded().into(),
            self.is_short_of_memory().into(),
            self.ids_wait_ms(),
            off_us.unwrap_or(0) / 1_000,
            self.members().filter(|(_, member)| !self.unreached_from(member.node).is_empty()).count() as u64,
        ];
        counters.extend(STANDINGS.map(str::to_owned).into_iter().zip(now));
        for (_, member) in self.members() {
            let Some((offset_us, error_us)) = self.membership.clocks().offset_us(member.node, self.now, &self.config)
            else {
                continue;
            };
            let ms = |us: i64| us.max(0).unsigned_abs() / 1_000;
            let clock = [ms(offset_us), ms(-offset_us), error_us.div_ceil(1_000)];
            counters.extend(CLOCKS.map(|what| format!("{what}.{}", member.name)).into_iter().zip(clock));
        }
        counters.retain(|(_, count)| *count > 0);
        counters
    }
}
