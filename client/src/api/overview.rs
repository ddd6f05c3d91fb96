//! The overview of a cluster, from what its parts say of it.

use super::{
    ClusterMember, ClusterOverview, LayoutTotals, MemberShare, MetadataGroup, PartitionMove, PartitionPhase, Status,
};
use norn_wire::NodeId;
use norn_wire::membership::{ClusterView, Member, MemberState};
use norn_wire::response::{self, PartitionView};
use std::collections::BTreeMap;

impl PartitionPhase {
    /// Returns the phase of a partition. Dead nodes that left it are not waited for: that could take for ever.
    #[must_use]
    pub fn of(partition: &PartitionView, view: &ClusterView) -> Self {
        let is_present = |node: &NodeId| {
            let mut members = view.roster.members.values();
            members.any(|member| member.node == *node && member.state.is_present())
        };
        if !partition.next.is_empty() {
            PartitionPhase::Moving
        } else if partition.leaving.iter().any(|node| view.heard.contains(node) && is_present(node)) {
            PartitionPhase::Leaving
        } else if !partition.leaving.is_empty() {
            PartitionPhase::Left
        } else {
            PartitionPhase::Stable
        }
    }
}

impl PartitionMove {
    fn new(partition: &PartitionView, state: PartitionPhase) -> Self {
        let PartitionView { cohort, next, leaving, .. } = partition;
        let comes = next.iter().filter(|node| !cohort.contains(node)).copied().collect();
        let (cohort, next, leaving) = (cohort.clone(), next.clone(), leaving.clone());
        PartitionMove { partition: partition.partition, state, cohort, next, comes, leaving }
    }
}

impl<'a> ClusterMember<'a> {
    fn new(view: &ClusterView, number: u16, member: &'a Member, leads: u32) -> Self {
        ClusterMember {
            share: MemberShare::new(view, number, member),
            address: (&member.address).into(),
            zone: (&member.zone).into(),
            weight: member.weight,
            alive: view.heard.contains(&member.node) && member.state.is_present(),
            votes: view.voters.contains(&member.node),
            leads,
        }
    }
}

impl<'a> ClusterOverview<'a> {
    /// Creates it from the status of a node, the cluster as the leader of the metadata group sees it, and the ring as the node does.
    #[must_use]
    pub fn new(status: &'a response::Status, view: &'a ClusterView, partitions: &[PartitionView]) -> Self {
        let phases: Vec<PartitionPhase> =
            partitions.iter().map(|partition| PartitionPhase::of(partition, view)).collect();
        let count = |wanted| phases.iter().filter(|phase| **phase == wanted).count() as u64;
        let mut leads: BTreeMap<NodeId, u32> = BTreeMap::new();
        partitions.iter().filter_map(|view| view.leader).for_each(|node| *leads.entry(node).or_default() += 1);
        let leads = |member: &Member| leads.get(&member.node).copied().unwrap_or_default();
        // Removed members are shown as long as they still hold replicas.
        let has_some = |number: &u16| view.shares.get(number).is_some_and(|share| share.go > 0);
        let members = view.roster.members.iter();
        let shown = members.filter(|(number, member)| member.state != MemberState::Gone || has_some(number));
        let is_under_way = |phase: PartitionPhase| matches!(phase, PartitionPhase::Moving | PartitionPhase::Leaving);
        let moves = partitions.iter().zip(&phases).filter(|(_, phase)| is_under_way(**phase));
        let (version, leader, voters) = (view.roster.version, view.leader, view.voters.clone());
        ClusterOverview {
            status: Status::from(status),
            root: MetadataGroup { version, leader, voters },
            settings: (&view.settings).into(),
            layout: LayoutTotals {
                version: view.layout,
                stale: view.stale,
                replicas: view.replicas,
                stable: count(PartitionPhase::Stable),
                moving: count(PartitionPhase::Moving),
                leaving: count(PartitionPhase::Leaving),
                left: count(PartitionPhase::Left),
                open: view.open,
                unknown: view.unknown,
            },
            members: shown.map(|(number, member)| ClusterMember::new(view, *number, member, leads(member))).collect(),
            under_way: moves.map(|(partition, phase)| PartitionMove::new(partition, *phase)).collect(),
        }
    }
}
