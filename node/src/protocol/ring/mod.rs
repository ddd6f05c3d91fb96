//! The ring: tag -> partition -> preference list. Pure.
//!
//! A partition is the upper bits of the routing tag; their number is fixed for the life of a cluster. Preference lists are
//! computed once, at genesis, and stored as data, so that no two nodes ever have to agree on an algorithm.

#[cfg(test)]
mod tests;

use crate::limits::{NODES_MAX, PARTITIONS_MAX, PARTITIONS_MIN, REPLICAS_MAX};
use crate::protocol::consistent::ReplicaId;
use norn_client::wire::ids::TAG_BITS;
use norn_client::wire::response::{Genesis, Member};
use norn_client::wire::{NodeId, PartitionId, TaskId};
use std::collections::BTreeSet;

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

/// How often each member was chosen so far: as replica, as first of a list.
#[derive(Clone, Copy, Default)]
struct Load {
    held: u32,
    led: u32,
}

/// Preference lists for all partitions, as places in `members`: `replicas` different members each (or all, if they are
/// fewer), in as many zones as possible.
///
/// Greedy: each list takes the members that hold least so far, of the zones that it does not have yet; its first is the
/// one that leads least. Within one zone, or with one member a zone, any two members' numbers of replicas differ by at most
/// 1, and so do their numbers of first places when the lists hold all members; the tests state the bounds.
pub fn assign(members: &[Member], partitions: u32, replicas: u32) -> Vec<Vec<u16>> {
    assert!(!members.is_empty() && members.len() <= NODES_MAX);
    let width = (replicas as usize).min(members.len());
    let mut loads = vec![Load::default(); members.len()];
    let lists: Vec<Vec<u16>> = (0..partitions)
        .map(|partition| {
            let mut list: Vec<usize> = Vec::with_capacity(width);
            while list.len() < width {
                let zones: BTreeSet<&str> = list.iter().map(|place| members[*place].zone.as_str()).collect();
                let next = (0..members.len())
                    .filter(|place| !list.contains(place))
                    .min_by_key(|place| {
                        let same_zone = zones.contains(members[*place].zone.as_str());
                        let turn = (place + members.len() - partition as usize % members.len()) % members.len();
                        (same_zone, loads[*place].held, turn)
                    })
                    .expect("the list is narrower than the members");
                loads[next].held += 1;
                list.push(next);
            }
            let first = (0..width).min_by_key(|index| (loads[list[*index]].led, *index)).expect("width is above 0");
            list.swap(0, first);
            loads[list[0]].led += 1;
            list.into_iter().map(|place| place as u16).collect()
        })
        .collect();
    assert_eq!(lists.len(), partitions as usize);
    lists
}

/// What is wrong with a founding record, if anything.
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

/// Replicas of a partition in the order of preference.
pub fn cohort(genesis: &Genesis, partition: PartitionId) -> Vec<ReplicaId> {
    genesis.assignment[usize::from(partition.0)]
        .iter()
        .map(|place| &genesis.members[usize::from(*place)])
        .map(|member| ReplicaId { node: member.node, incarnation: member.incarnation })
        .collect()
}
