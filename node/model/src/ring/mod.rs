//! Partition map: tag -> partition -> preference list. Pure.
//!
//! A partition is the upper bits of the routing tag; the number of partitions is fixed for the life of a cluster. Preference lists are
//! computed once, at genesis, by [`layout`], and stored as data, so that no two nodes ever have to agree on an algorithm.

mod flow;
pub mod layout;
mod shares;
#[cfg(test)]
mod tests;

use crate::limits::{NODES_MAX, PARTITIONS_MAX, PARTITIONS_MIN, REPLICAS_MAX};
use layout::Holder;
use norn_wire::ids::TAG_BITS;
use norn_wire::response::{Genesis, Member};
use norn_wire::{NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// The partition of a routing tag among `partitions`, a power of two.
pub fn partition_of(tag: u32, partitions: u32) -> PartitionId {
    assert!(partitions.is_power_of_two() && (PARTITIONS_MIN..=PARTITIONS_MAX).contains(&partitions));
    assert!(tag < 1 << TAG_BITS);
    PartitionId((tag >> (TAG_BITS - partitions.trailing_zeros())) as u16)
}

/// The partition of a task.
pub fn partition_of_task(id: &TaskId, partitions: u32) -> PartitionId {
    partition_of(id.tag(), partitions)
}

/// Computes preference lists for the members of a new cluster, as places in `members`, with equal weights. See [`layout::plan`] for the
/// rules that they keep.
pub fn assign(members: &[Member], partitions: u32, replicas: u32) -> Vec<Vec<u16>> {
    assert!(!members.is_empty() && members.len() <= NODES_MAX);
    let holder = |member: &Member| Holder { zone: member.zone.clone(), weight: 1 };
    let holders: BTreeMap<u16, Holder> = (0..).zip(members.iter().map(holder)).collect();
    layout::plan(&holders, partitions, replicas, &[])
}

/// Checks a founding record.
pub fn validate(genesis: &Genesis) -> Result<(), String> {
    let Genesis { partitions, replicas, members, assignment, .. } = genesis;
    if !partitions.is_power_of_two() || !(PARTITIONS_MIN..=PARTITIONS_MAX).contains(partitions) {
        return Err(format!("{partitions} partitions: a power of two up to {PARTITIONS_MAX} is wanted"));
    }
    if members.is_empty() || members.len() > NODES_MAX {
        return Err(format!("{} members: 1 to {NODES_MAX} are possible", members.len()));
    }
    if *replicas == 0 || *replicas > REPLICAS_MAX {
        return Err(format!("{replicas} replicas: 1 to {REPLICAS_MAX} are possible"));
    }
    let nodes: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    if nodes.len() != members.len() || names.len() != members.len() {
        return Err("two members share an identity or a name".into());
    }
    if !members.is_sorted_by_key(|member| member.node) {
        return Err("members are not sorted by identity".into());
    }
    if assignment.len() != *partitions as usize {
        return Err("there is not one preference list for each partition".into());
    }
    for list in assignment {
        let different: BTreeSet<&u16> = list.iter().collect();
        let known = list.iter().all(|place| usize::from(*place) < members.len());
        if list.is_empty() || different.len() != list.len() || !known || list.len() > REPLICAS_MAX as usize {
            return Err(format!("a preference list is malformed: {list:?}"));
        }
    }
    Ok(())
}
