//! Fair shares: how many replicas each member should hold, by weight as far as zones and the number of partitions permit.

use std::cmp::Ordering;

/// The shape of every preference list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Number of members of a list.
    pub width: u32,
    /// Fewest members of each zone in a list.
    pub zone_least: u32,
    /// Most members of each zone in a list, as far as the zone has that many.
    pub zone_most: u32,
}

impl Spread {
    /// The shape for zones of these sizes: the wanted replicas or, if fewer, all members, in as many zones as possible. If the zones are
    /// too few for one replica in each, but enough that the loss of any one can leave a majority, it does.
    pub fn of(zone_sizes: &[usize], replicas: u32) -> Spread {
        let zones = zone_sizes.len() as u32;
        let width = replicas.min(zone_sizes.iter().sum::<usize>() as u32);
        if zones >= width {
            return Spread { width, zone_least: u32::from(zones == width), zone_most: 1 };
        }
        assert!(width > 0, "a list has members");
        let minority = (width - 1) / 2;
        let room: usize = zone_sizes.iter().map(|size| *size.min(&(minority as usize))).sum();
        let zone_most = if room >= width as usize { minority } else { width };
        assert!(zone_most > 0 && zone_most <= width, "a zone has no place in a list, or more than there are");
        Spread { width, zone_least: 1, zone_most }
    }
}

/// A fair number of replicas, as an exact fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    numerator: u128,
    denominator: u128,
}

impl Share {
    /// Rounded down.
    pub fn floor(self) -> u32 {
        (self.numerator / self.denominator) as u32
    }

    /// Rounded up.
    pub fn ceil(self) -> u32 {
        self.numerator.div_ceil(self.denominator) as u32
    }

    fn of(level: Share, weight: u32, most: u32) -> Share {
        let (most, weight) = (u128::from(most), u128::from(weight));
        Share { numerator: (weight * level.numerator).min(most * level.denominator), ..level }
    }
}

/// The number for each unit of weight at which members with these weights hold `total` together and none more than `most`.
fn level(weights: &[u32], most: u32, total: u64) -> Share {
    let mut weights: Vec<u128> = weights.iter().map(|weight| u128::from(*weight)).collect();
    weights.sort_unstable_by(|one, other| other.cmp(one));
    let (most, mut numerator) = (u128::from(most), u128::from(total));
    assert!(numerator <= most * weights.len() as u128 && weights.last().is_some_and(|weight| *weight > 0));
    let mut denominator: u128 = weights.iter().sum();
    // The heaviest members reach `most` first; the level is found once the heaviest of the others does not.
    for weight in weights {
        if weight * numerator <= most * denominator {
            break;
        }
        numerator -= most;
        denominator -= weight;
    }
    assert!(denominator > 0, "no member is left to hold the rest");
    Share { numerator, denominator }
}

/// The fair share of every member, by zone. No weight is 0.
///
/// Members hold in proportion to their weights, except that none holds more than every partition once, and that a zone holds what
/// `spread` demands and permits; the rest is in proportion again. Zones are fixed at their bounds one after the other, those with the
/// greater of excess and want first, which later steps cannot undo: CSS resolves flexible lengths in this way (Flexible Box Layout,
/// section 9.7).
pub fn shares(zones: &[Vec<u32>], partitions: u32, spread: Spread) -> Vec<Vec<Share>> {
    let least = u64::from(spread.zone_least) * u64::from(partitions);
    let most_of = |zone: usize| u64::from(spread.zone_most).min(zones[zone].len() as u64) * u64::from(partitions);
    let mut rest = u64::from(spread.width) * u64::from(partitions);
    let mut found: Vec<Vec<Share>> = vec![Vec::new(); zones.len()];
    let mut open: Vec<usize> = (0..zones.len()).collect();
    while !open.is_empty() {
        let weights: Vec<u32> = open.iter().flat_map(|zone| zones[*zone].iter().copied()).collect();
        let common = level(&weights, partitions, rest);
        let held = |zone: usize| -> u128 {
            zones[zone].iter().map(|weight| Share::of(common, *weight, partitions).numerator).sum()
        };
        let excess = |zone: usize| held(zone).saturating_sub(u128::from(most_of(zone)) * common.denominator);
        let want = |zone: usize| (u128::from(least) * common.denominator).saturating_sub(held(zone));
        let excesses: u128 = open.iter().map(|zone| excess(*zone)).sum();
        let wants: u128 = open.iter().map(|zone| want(*zone)).sum();
        let order = excesses.cmp(&wants);
        let (fixed, left): (Vec<usize>, Vec<usize>) = open.into_iter().partition(|zone| {
            (order != Ordering::Less && excess(*zone) > 0) || (order != Ordering::Greater && want(*zone) > 0)
        });
        let is_final = fixed.is_empty();
        for zone in &fixed {
            let total = if excess(*zone) > 0 { most_of(*zone) } else { least };
            let own = level(&zones[*zone], partitions, total);
            found[*zone] = zones[*zone].iter().map(|weight| Share::of(own, *weight, partitions)).collect();
            assert!(rest >= total, "a zone gets more than is left");
            rest -= total;
        }
        if is_final {
            for zone in &left {
                found[*zone] = zones[*zone].iter().map(|weight| Share::of(common, *weight, partitions)).collect();
            }
            break;
        }
        open = left;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(sizes: &[usize], replicas: u32) -> (u32, u32, u32) {
        let Spread { width, zone_least, zone_most } = Spread::of(sizes, replicas);
        (width, zone_least, zone_most)
    }

    #[test]
    fn lists_spread_over_zones_as_far_as_there_are_any() {
        assert_eq!(spread(&[2, 2, 2, 2], 3), (3, 0, 1));
        assert_eq!(spread(&[2, 2, 2], 3), (3, 1, 1));
        assert_eq!(spread(&[4], 3), (3, 1, 3));
        assert_eq!(spread(&[1, 1], 3), (2, 1, 1));
        assert_eq!(spread(&[4, 4], 3), (3, 1, 3));
        // The loss of a zone leaves three of five. With two zones of one member it cannot.
        assert_eq!(spread(&[3, 3, 3], 5), (5, 1, 2));
        assert_eq!(spread(&[9, 1, 1], 5), (5, 1, 5));
        assert_eq!(spread(&[3, 3, 3], 4), (4, 1, 4));
    }

    /// Shares rounded down and up.
    fn rounded(zones: &[&[u32]], partitions: u32, replicas: u32) -> Vec<(u32, u32)> {
        let zones: Vec<Vec<u32>> = zones.iter().map(|zone| zone.to_vec()).collect();
        let sizes: Vec<usize> = zones.iter().map(Vec::len).collect();
        let shares = shares(&zones, partitions, Spread::of(&sizes, replicas));
        shares.into_iter().flatten().map(|share| (share.floor(), share.ceil())).collect()
    }

    #[test]
    fn shares_follow_weights_up_to_one_replica_of_each_partition() {
        assert_eq!(rounded(&[&[1, 1, 1, 1]], 10, 3), [(7, 8); 4]);
        assert_eq!(rounded(&[&[1, 2, 1]], 8, 1), [(2, 2), (4, 4), (2, 2)]);
        assert_eq!(rounded(&[&[1, 100, 1]], 8, 2), [(4, 4), (8, 8), (4, 4)]);
        assert_eq!(rounded(&[&[1, u32::MAX]], 8, 1), [(0, 1), (7, 8)]);
        assert_eq!(rounded(&[&[u32::MAX; 256]], 4_096, 7), [(112, 112); 256]);
    }

    #[test]
    fn zones_hold_what_every_list_needs_of_them() {
        // Each list has one of each zone, however the weights are.
        assert_eq!(rounded(&[&[1], &[5, 5]], 10, 2), [(10, 10), (5, 5), (5, 5)]);
        // No list has two of the heavy zone.
        assert_eq!(rounded(&[&[9, 9], &[1], &[1]], 10, 2), [(5, 5), (5, 5), (5, 5), (5, 5)]);
        // The third member of the first zone finds room, as two of each list may be there.
        assert_eq!(rounded(&[&[1, 1, 1], &[1]], 8, 3), [(5, 6), (5, 6), (5, 6), (8, 8)]);
    }
}
