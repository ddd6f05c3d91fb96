//! Every rule of the planner on fixed and random clusters; and that no fewer moves are possible, against all possible lists.

use super::*;
use proptest::prelude::*;

/// Members 0, 1, .. with these zones and weights.
fn field(members: &[(u8, u32)]) -> BTreeMap<u16, Holder> {
    let holder = |(zone, weight): &(u8, u32)| Holder { zone: format!("z{zone}"), weight: *weight };
    (0..).zip(members.iter().map(holder)).collect()
}

/// Members of weight 1, spread over zones in turn.
fn even(count: u16, zones: u16) -> BTreeMap<u16, Holder> {
    (0..count).map(|number| (number, Holder { zone: format!("z{}", number % zones), weight: 1 })).collect()
}

fn held(lists: &[Vec<u16>], number: u16) -> usize {
    lists.iter().flatten().filter(|held| **held == number).count()
}

/// Numbers of members and zones, replicas, partitions.
const CLUSTERS: [(u16, u16, u32, u32); 18] = [
    (1, 1, 3, 16),
    (2, 1, 3, 16),
    (3, 1, 3, 256),
    (3, 3, 3, 256),
    (4, 2, 3, 64),
    (5, 1, 3, 256),
    (5, 5, 3, 256),
    (6, 3, 3, 256),
    (7, 1, 5, 64),
    (7, 3, 5, 256),
    (9, 3, 5, 256),
    (10, 4, 3, 128),
    (12, 4, 3, 256),
    (12, 2, 3, 256),
    (13, 5, 7, 64),
    (20, 3, 3, 512),
    (100, 9, 3, 1_024),
    (100, 10, 3, 1_024),
];

#[test]
fn founding_keeps_every_rule() {
    for (count, zones, replicas, partitions) in CLUSTERS {
        let holders = even(count, zones);
        let lists = plan(&holders, partitions, replicas, &[]);
        assert_eq!(lists.len(), partitions as usize);
        assert_eq!(check(&holders, replicas, &lists), Ok(()), "{count} members, {zones} zones");
    }
}

#[test]
fn equal_input_moves_nothing() {
    for (count, zones, replicas, partitions) in CLUSTERS {
        let lists = plan(&even(count, zones), partitions, replicas, &[]);
        assert_eq!(plan(&even(count, zones), partitions, replicas, &lists), lists, "{count} members, {zones} zones");
        assert_eq!(plan(&even(count, zones), partitions, replicas, &[]), lists, "{count} members, {zones} zones");
    }
}

/// Where all members are alike, only what the new one takes moves.
#[test]
fn a_member_more_takes_its_share_and_nothing_else_moves() {
    for (count, zones, replicas, partitions) in CLUSTERS.into_iter().filter(|(count, zones, ..)| count % zones == 0) {
        let lists = plan(&even(count, zones), partitions, replicas, &[]);
        let mut more = even(count, zones);
        let zone = if zones == count { zones } else { 0 };
        more.insert(count, Holder { zone: format!("z{zone}"), weight: 1 });
        let next = plan(&more, partitions, replicas, &lists);
        assert_eq!(check(&more, replicas, &next), Ok(()));
        assert_eq!(moves(&lists, &next), held(&next, count), "{count} members, {zones} zones, {replicas} replicas");
    }
}

/// A new cluster is dealt so that any two members share about as many lists as any other two.
#[test]
fn a_member_less_moves_only_what_it_held() {
    for (count, zones, replicas, partitions) in CLUSTERS.into_iter().filter(|(count, zones, ..)| count % zones == 0) {
        let lists = plan(&even(count, zones), partitions, replicas, &[]);
        for number in (0..count).take(5) {
            let mut less = even(count, zones);
            less.get_mut(&number).expect("it is there").weight = 0;
            let next = plan(&less, partitions, replicas, &lists);
            assert_eq!(check(&less, replicas, &next), Ok(()));
            let narrower = (lists[0].len() - next[0].len()) * partitions as usize;
            let moved = moves(&lists, &next);
            let wanted = held(&lists, number) - narrower;
            // Where lists have two members of a zone, a few more exchange their places.
            let spare = if zones > 1 && u32::from(zones) < replicas { usize::from(count) } else { 0 };
            assert!((wanted..=wanted + spare).contains(&moved), "{count} members, {zones} zones: {moved} for {wanted}");
            less.remove(&number);
            assert_eq!(plan(&less, partitions, replicas, &lists), next, "gone or drained is the same");
        }
    }
}

/// A member that replaces another in its zone takes what that held.
#[test]
fn a_replaced_member_hands_over_what_it_held() {
    for (count, zones, replicas, partitions) in CLUSTERS {
        let lists = plan(&even(count, zones), partitions, replicas, &[]);
        let mut replaced = even(count, zones);
        let holder = replaced.remove(&0).expect("it is there");
        replaced.insert(count, holder);
        let next = plan(&replaced, partitions, replicas, &lists);
        let (moves, before, after) = (moves(&lists, &next), held(&lists, 0), held(&next, count));
        assert!(
            moves <= before && before - after <= 1,
            "{before} are held, {moves} move, {after} of them to the new one"
        );
    }
}

#[test]
fn more_replicas_move_none_of_those_there_are() {
    let holders = even(9, 3);
    let lists = plan(&holders, 256, 3, &[]);
    let wider = plan(&holders, 256, 5, &lists);
    assert_eq!(moves(&lists, &wider), 512);
    assert_eq!(moves(&wider, &plan(&holders, 256, 3, &wider)), 0);
}

#[test]
fn without_members_that_can_hold_any_all_lists_are_empty() {
    assert_eq!(plan(&BTreeMap::new(), 2, 3, &[]), vec![Vec::<u16>::new(); 2]);
    assert_eq!(plan(&field(&[(0, 0)]), 2, 3, &[vec![0], vec![0]]), vec![Vec::<u16>::new(); 2]);
    assert_eq!(check(&BTreeMap::new(), 3, &[vec![], vec![]]), Ok(()));
}

#[test]
fn stays_keep_their_order_and_their_leader() {
    let previous = vec![vec![2, 0, 1], vec![1, 2, 0], vec![0, 1, 2]];
    assert_eq!(plan(&even(3, 1), 3, 3, &previous), previous);
    let replaced: BTreeMap<u16, Holder> = even(4, 1).into_iter().filter(|(number, _)| *number != 0).collect();
    assert_eq!(plan(&replaced, 3, 3, &previous), [[2, 1, 3], [1, 2, 3], [3, 1, 2]]);
}

#[test]
fn what_breaks_a_rule_is_told() {
    let holders = field(&[(0, 1), (0, 1), (1, 1), (1, 1)]);
    assert_eq!(check(&holders, 2, &[vec![0, 2], vec![3, 1]]), Ok(()));
    for (wrong, what) in [
        ([vec![0, 2], vec![1]], "different members"),
        ([vec![0, 2], vec![1, 1]], "different members"),
        ([vec![0, 2], vec![1, 9]], "can hold none"),
        ([vec![0, 1], vec![2, 3]], "of the zones"),
        ([vec![0, 2], vec![0, 3]], "holds 2"),
    ] {
        let told = check(&holders, 2, &wrong).expect_err("it is wrong");
        assert!(told.contains(what), "{told}");
    }
    let told = check(&field(&[(0, 1), (1, 1)]), 2, &[vec![0, 1], vec![0, 1]]).expect_err("one leads both");
    assert!(told.contains("leads 2"), "{told}");
}

/// Every list that rules 1 and 2 permit.
fn lists_possible(holders: &BTreeMap<u16, Holder>, spread: Spread) -> Vec<Vec<u16>> {
    let numbers: Vec<u16> = holders.iter().filter(|(_, holder)| holder.weight > 0).map(|(number, _)| *number).collect();
    let zones = zones(holders);
    let fits = |list: &Vec<u16>| {
        let there = |zone: &Vec<(u16, u32)>| zone.iter().filter(|(number, _)| list.contains(number)).count() as u32;
        let even = zones.iter().map(there).all(|there| (spread.zone_least..=spread.zone_most).contains(&there));
        list.len() == spread.width as usize && even
    };
    let subset =
        |bits: u32| (0..).zip(&numbers).filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, number)| *number).collect();
    (0..1 << numbers.len()).map(subset).filter(fits).collect()
}

/// Fewest moves to lists that keep rules 1 to 3, by trying all.
fn fewest_moves(possible: &[Vec<u16>], bounds: &BTreeMap<u16, (u32, u32)>, previous: &[Vec<u16>]) -> usize {
    let mut reached: BTreeMap<Vec<u32>, usize> = BTreeMap::from([(vec![0; bounds.len()], 0)]);
    for before in previous {
        let mut next: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        for (loads, moved) in &reached {
            for list in possible {
                let loads =
                    loads.iter().zip(bounds.keys()).map(|(load, number)| load + u32::from(list.contains(number)));
                let moved = moved + list.iter().filter(|number| !before.contains(number)).count();
                let known = next.entry(loads.collect()).or_insert(moved);
                *known = moved.min(*known);
            }
        }
        reached = next;
    }
    let keeps =
        |loads: &[u32]| loads.iter().zip(bounds.values()).all(|(load, (least, most))| (least..=most).contains(&load));
    let found = reached.into_iter().filter(|(loads, _)| keeps(loads)).map(|(_, moved)| moved).min();
    found.expect("some lists keep the rules")
}

/// A list of different members, some of which may be gone.
fn some_list() -> impl Strategy<Value = Vec<u16>> {
    proptest::sample::subsequence((0..7u16).collect::<Vec<u16>>(), 0..4).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// From any lists to any cluster, against all possible lists.
    #[test]
    fn no_fewer_moves_are_possible(
        members in proptest::collection::vec((0u8..4, 0u32..4), 1..6),
        previous in proptest::collection::vec(some_list(), 4),
        replicas in 1u32..5,
    ) {
        let holders = field(&members);
        let lists = plan(&holders, 4, replicas, &previous);
        prop_assert_eq!(check(&holders, replicas, &lists), Ok(()));
        let zones = zones(&holders);
        prop_assume!(!zones.is_empty());
        let sizes: Vec<usize> = zones.iter().map(Vec::len).collect();
        let spread = Spread::of(&sizes, replicas);
        let shares = shares(&weights(&zones), 4, spread).into_iter().flatten();
        let numbers = zones.iter().flatten().map(|(number, _)| *number);
        let bounds = numbers.zip(shares.map(|share| (share.floor(), share.ceil()))).collect();
        let possible = lists_possible(&holders, spread);
        prop_assert_eq!(moves(&previous, &lists), fewest_moves(&possible, &bounds, &previous));
        prop_assert_eq!(&plan(&holders, 4, replicas, &lists), &lists);
    }

    /// A cluster that changes one member at a time.
    #[test]
    fn every_layout_of_a_changing_cluster_keeps_the_rules(
        members in proptest::collection::vec((0u8..5, 1u32..100), 1..12),
        changes in proptest::collection::vec((0u16..12, 0u8..5, 0u32..100), 1..6),
        replicas in 1u32..=REPLICAS_MAX,
    ) {
        let mut holders = field(&members);
        let mut lists = plan(&holders, 32, replicas, &[]);
        prop_assert_eq!(check(&holders, replicas, &lists), Ok(()));
        for (number, zone, weight) in changes {
            match weight % 3 {
                0 => drop(holders.remove(&number)),
                _ => drop(holders.insert(number, Holder { zone: format!("z{zone}"), weight })),
            }
            let next = plan(&holders, 32, replicas, &lists);
            prop_assert_eq!(check(&holders, replicas, &next), Ok(()));
            prop_assert_eq!(&plan(&holders, 32, replicas, &next), &next);
            lists = next;
        }
    }
}

/// A leader changes only where the old one no longer holds the list, and for the new member's part of first places.
#[test]
fn few_lists_change_their_leader() {
    for (count, zones, replicas, partitions) in CLUSTERS.into_iter().filter(|(count, zones, ..)| count % zones == 0) {
        let lists = plan(&even(count, zones), partitions, replicas, &[]);
        let mut more = even(count, zones);
        let zone = if zones == count { zones } else { 0 };
        more.insert(count, Holder { zone: format!("z{zone}"), weight: 1 });
        let next = plan(&more, partitions, replicas, &lists);
        let pairs = lists.iter().zip(&next);
        let changed = pairs.clone().filter(|(before, after)| before[0] != after[0]).count();
        let left = pairs.filter(|(before, after)| !after.contains(&before[0])).count();
        let led = next.iter().filter(|list| list[0] == count).count();
        assert!(changed <= left + led, "{count} members, {zones} zones: {changed} leaders change");
    }
}

/// `cargo test --release -p norn-model --lib -- --ignored --nocapture layout` prints how long a plan takes.
#[test]
#[ignore = "measures, and asserts nothing of time"]
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
fn how_long_a_plan_takes() {
    let partitions = PARTITIONS_MAX;
    for (count, zones, replicas) in
        [(100, 1, 3), (100, 3, 3), (100, 10, 3), (100, 50, 3), (100, 100, 3), (100, 3, 5), (256, 64, 7)]
    {
        let took = |what: &str, holders: &BTreeMap<u16, Holder>, previous: &[Vec<u16>]| {
            let began = std::time::Instant::now();
            let lists = plan(holders, partitions, replicas, previous);
            let (took, moved) = (began.elapsed(), moves(previous, &lists));
            eprintln!("{count} members, {zones} zones, {replicas} replicas, {what}: {took:?}, {moved} moves");
            assert_eq!(check(holders, replicas, &lists), Ok(()));
            lists
        };
        let mut holders = even(count - 1, zones);
        let lists = took("founding", &holders, &[]);
        took("the same", &holders, &lists);
        holders.insert(count - 1, Holder { zone: "z0".into(), weight: 1 });
        let lists = took("one more", &holders, &lists);
        holders.remove(&0);
        took("one less", &holders, &lists);
        for (number, holder) in &mut holders {
            holder.weight = 1 + u32::from(*number) % 7;
        }
        took("other weights", &holders, &lists);
        let shuffled = (0..partitions).map(|place| lists[(place as usize * 37) % 64].clone()).collect::<Vec<_>>();
        took("from a bad layout", &holders, &shuffled);
    }
}
