use super::*;
use norn_wire::ClusterId;

fn members(count: u128, zones: u128) -> Vec<Member> {
    (0..count)
        .map(|node| Member {
            node: NodeId(node),
            incarnation: 1,
            address: String::new(),
            name: format!("n{node}"),
            zone: format!("z{}", node % zones),
        })
        .collect()
}

fn spread(counts: impl Iterator<Item = usize> + Clone) -> usize {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
}

// S28
#[test]
fn a_tag_leads_to_its_upper_bits() {
    assert_eq!(partition_of(0, 256), PartitionId(0));
    assert_eq!(partition_of(0xff_ffff, 256), PartitionId(255));
    assert_eq!(partition_of(0x01_0000, 256), PartitionId(1));
    assert_eq!(partition_of(0xff_ffff, 1), PartitionId(0));
    assert_eq!(partition_of(0xff_ffff, 4096), PartitionId(4095));
}

#[test]
fn tags_fall_evenly_on_partitions() {
    for partitions in [1u32, 16, 256, 4096] {
        let first = partition_of((1 << TAG_BITS) / partitions - 1, partitions);
        assert_eq!(first, PartitionId(0), "each partition owns an equal range of tags");
    }
}

#[test]
fn replicas_are_spread_within_one_of_each_other() {
    for (count, zones, replicas, partitions) in
        [(1, 1, 3, 16), (3, 1, 3, 256), (3, 3, 3, 256), (5, 1, 3, 256), (5, 5, 3, 256), (7, 1, 5, 64), (6, 3, 3, 256)]
    {
        let members = members(count, zones);
        let lists = assign(&members, partitions, replicas);
        let held = (0..members.len()).map(|place| lists.iter().flatten().filter(|at| **at == place as u16).count());
        let led = (0..members.len()).map(|place| lists.iter().filter(|list| list[0] == place as u16).count());
        assert!(spread(held) <= 1, "{count} nodes, {zones} zones: replicas");
        assert!(spread(led) <= 1, "{count} nodes, {zones} zones: leaders");
    }
}

// S28
#[test]
fn lists_hold_different_members_in_different_zones() {
    for list in assign(&members(6, 3), 256, 3) {
        let zones: BTreeSet<u16> = list.iter().map(|place| place % 3).collect();
        assert_eq!((list.len(), zones.len()), (3, 3));
    }
}

#[test]
fn the_same_members_give_the_same_lists() {
    assert_eq!(assign(&members(5, 2), 64, 3), assign(&members(5, 2), 64, 3));
}

#[test]
fn malformed_founding_records_are_told_apart() {
    let members = members(3, 1);
    let good = Genesis {
        cluster: ClusterId(1),
        name: "c".into(),
        partitions: 4,
        replicas: 3,
        assignment: assign(&members, 4, 3),
        members,
    };
    assert_eq!(validate(&good), Ok(()));
    let broken: [fn(&mut Genesis); 6] = [
        |genesis| genesis.partitions = 3,
        |genesis| genesis.replicas = 0,
        |genesis| genesis.members[1].node = NodeId(0),
        |genesis| genesis.assignment[0] = vec![0, 0],
        |genesis| genesis.assignment[0] = vec![9],
        |genesis| genesis.assignment.truncate(3),
    ];
    for damage in broken {
        let mut genesis = good.clone();
        damage(&mut genesis);
        assert!(validate(&genesis).is_err());
    }
}
