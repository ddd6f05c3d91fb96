//! Metadata group: the members, and which of them should hold which partition. Pure.
//!
//! One state, replicated as a partition's table is, keeps a [`Metadata`]. It is made from the founding record and changed by
//! [`Operation`]s alone, which carry values: the leader of the group decides with [`Metadata::admit`], [`Metadata::plan`] and
//! [`Metadata::heal`], and every replica applies the same. The metadata is intent: cohorts change through their own majorities, so stale
//! metadata can hurt placement, never safety.

mod healing;
pub mod members;
mod operation;
mod plan;
mod refusal;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod voters;

use crate::limits::{MEMBERS_MAX, NODES_MAX, PARTITIONS_MAX, PARTITIONS_MIN, REPLICAS_MAX};
use crate::viewstamp::ReplicaId;
pub use norn_wire::membership::{Candidate, Member, MemberState as State, Settings, Share};
use norn_wire::membership::{QueuePolicy, Roster};
use norn_wire::response::Genesis;
use norn_wire::{ClusterId, NodeId, PartitionId, QueueName};
pub use operation::{Misfit, Operation};
pub use plan::Move;
pub use refusal::{Reason, Refusal};
pub use request::{Admission, Request};
use serde::{Deserialize, Serialize};
pub use settings::check_policies;
use std::collections::{BTreeMap, BTreeSet};

/// Checks an address of a member, or says why others cannot use it. So a node finds out before it has a cluster.
pub fn check_address(address: &str) -> Result<(), String> {
    members::check_address(address).map_err(|reason| reason.to_string())
}

/// Checks a zone of a member.
pub fn check_zone(zone: &str) -> Result<(), String> {
    members::check_zone(zone).map_err(|reason| reason.to_string())
}

/// Replicas of a partition at genesis, in the order of preference.
pub fn cohort(genesis: &Genesis, partition: PartitionId) -> Vec<ReplicaId> {
    if partition == PartitionId::METADATA {
        return Metadata::found(genesis).founders();
    }
    genesis.assignment[usize::from(partition.0)]
        .iter()
        .map(|place| &genesis.members[usize::from(*place)])
        .map(|member| ReplicaId { node: member.node, incarnation: member.incarnation })
        .collect()
}

/// Target assignment of partitions to members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// From 1, the founding layout, without gaps.
    pub version: u64,
    /// For each partition the numbers of members, the preferred leader first.
    pub lists: Vec<Vec<u16>>,
}

/// Members of a cluster and the layout of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    cluster: ClusterId,
    version: u64,
    partitions: u32,
    replicas: u32,
    members: BTreeMap<u16, Member>,
    next_number: u16,
    /// Identities of forgotten members; none of them becomes a member again.
    retired: BTreeSet<NodeId>,
    layout: Layout,
    /// Whether the input of the planner has changed since the last layout.
    stale: bool,
    settings: Settings,
    /// Policies of queues for which something is set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    policies: BTreeMap<QueueName, QueuePolicy>,
}

/// What the leader of the metadata group knows beside the root, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Members that the leader hears.
    pub heard: BTreeSet<u16>,
    /// Members of the metadata group's own cohort.
    pub voters: BTreeSet<u16>,
    /// Newest committed cohort of each partition, both sides of a joint one; some may be unknown.
    pub cohorts: BTreeMap<PartitionId, Vec<u16>>,
}

impl Metadata {
    /// The root of a new cluster, from a valid founding record. Members are numbered in the order of the record.
    pub fn found(genesis: &Genesis) -> Metadata {
        assert!(genesis.members.len() <= NODES_MAX, "a founding record is checked before");
        let members: BTreeMap<u16, Member> = (0..).zip(genesis.members.iter().map(members::founding)).collect();
        let metadata = Metadata {
            cluster: genesis.cluster,
            version: 0,
            partitions: genesis.partitions,
            replicas: genesis.replicas,
            next_number: members.len() as u16,
            members,
            retired: BTreeSet::new(),
            layout: Layout { version: 1, lists: genesis.assignment.clone() },
            stale: false,
            settings: Settings::default(),
            policies: BTreeMap::new(),
        };
        assert_eq!(
            metadata.layout.lists.len(),
            metadata.partitions as usize,
            "a founding record has a list for each partition"
        );
        metadata
    }

    /// Replicas of the metadata group of a new cluster.
    pub fn founders(&self) -> Vec<ReplicaId> {
        let seen = Seen { heard: self.members.keys().copied().collect(), ..Seen::default() };
        self.voters_wanted(&seen).into_iter().filter_map(|number| self.replica(number)).collect()
    }

    /// The member list as every node gets it.
    pub fn roster(&self) -> Roster {
        Roster { version: self.version, members: self.members.clone(), policies: self.policies.clone() }
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Number of operations that changed the root.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Number of partitions, fixed for ever.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// Number of replicas wanted for each partition.
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Members by their numbers, including those that are gone and not forgotten.
    pub fn members(&self) -> &BTreeMap<u16, Member> {
        &self.members
    }

    /// Whether a node was a member and is forgotten.
    pub fn was_member(&self, node: NodeId) -> bool {
        self.retired.contains(&node)
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether a new layout must be planned.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Settings made by operators.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The replica of a partition that a member holds or would hold.
    pub fn replica(&self, number: u16) -> Option<ReplicaId> {
        let Member { node, incarnation, .. } = self.members.get(&number)?;
        Some(ReplicaId { node: *node, incarnation: *incarnation })
    }

    fn present(&self) -> impl Iterator<Item = (u16, &Member)> {
        self.members.iter().filter(|(_, member)| member.state.is_present()).map(|(number, member)| (*number, member))
    }

    /// Members that may get replicas.
    fn holders(&self) -> impl Iterator<Item = (u16, &Member)> {
        self.present().filter(|(_, member)| member.state.may_hold())
    }

    fn state_of(&self, number: u16) -> Option<State> {
        self.members.get(&number).map(|member| member.state)
    }

    /// Number of partitions that a member holds by the layout or by their cohorts.
    fn held_by(&self, number: u16, seen: &Seen) -> usize {
        let by_layout = |partition: &u16| self.layout.lists[usize::from(*partition)].contains(&number);
        let by_cohort =
            |partition: &u16| seen.cohorts.get(&PartitionId(*partition)).is_some_and(|cohort| cohort.contains(&number));
        (0..self.partitions as u16).filter(|partition| by_layout(partition) || by_cohort(partition)).count()
    }

    /// Checks a root that was read.
    pub fn validate(&self) -> Result<(), String> {
        let Metadata {
            cluster: _,
            version: _,
            partitions,
            replicas,
            members,
            next_number,
            retired,
            layout,
            stale: _,
            settings,
            policies,
        } = self;
        if !partitions.is_power_of_two() || !(PARTITIONS_MIN..=PARTITIONS_MAX).contains(partitions) {
            return Err(format!("{partitions} partitions: a power of two up to {PARTITIONS_MAX} is wanted"));
        }
        if !(1..=REPLICAS_MAX).contains(replicas) {
            return Err(format!("{replicas} replicas: 1 to {REPLICAS_MAX} are possible"));
        }
        let present = self.present().count();
        if present == 0 || present > NODES_MAX || members.len() > MEMBERS_MAX {
            return Err(format!("{present} members of {}: 1 to {NODES_MAX} are possible", members.len()));
        }
        if members.keys().any(|number| number >= next_number) || retired.len() > usize::from(*next_number) {
            return Err(format!("numbers are given up to {next_number}, and more occur"));
        }
        for (number, member) in members {
            members::validate(member).map_err(|wrong| format!("member {number}: {wrong}"))?;
        }
        let nodes: BTreeSet<NodeId> = members.values().map(|member| member.node).collect();
        let names: BTreeSet<&str> = self.present().map(|(_, member)| member.name.as_str()).collect();
        let addresses: BTreeSet<&str> = self.present().map(|(_, member)| member.address.as_str()).collect();
        if nodes.len() != members.len() || names.len() != present || addresses.len() != present {
            return Err("two members share an identity, a name or an address".into());
        }
        if !nodes.is_disjoint(retired) {
            return Err("the identity of a member was forgotten".into());
        }
        if layout.version == 0 {
            return Err("layouts are numbered from 1".into());
        }
        self.check_lists(&layout.lists)?;
        settings::check_policies(policies).and_then(|()| settings::check(settings)).map_err(|reason| reason.to_string())
    }

    /// Checks lists for these partitions and members.
    fn check_lists(&self, lists: &[Vec<u16>]) -> Result<(), String> {
        if lists.len() != self.partitions as usize {
            return Err("there is not one list for each partition".into());
        }
        for (partition, list) in lists.iter().enumerate() {
            let different: BTreeSet<&u16> = list.iter().collect();
            let known = list.iter().all(|number| self.members.contains_key(number));
            if list.is_empty() || list.len() > REPLICAS_MAX as usize || different.len() != list.len() || !known {
                return Err(format!("the list of partition {partition} is malformed: {list:?}"));
            }
        }
        Ok(())
    }
}
