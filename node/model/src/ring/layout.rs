//! Layout planner: which members should hold each partition, with the fewest moves from a previous layout. Pure.
//!
//! A layout is computed once, by the node that founds the cluster or by the leader of the metadata group, and is data from then on: no
//! two nodes have to agree on this algorithm, and it may change with any release.
//!
//! The method is Garage's (`src/rpc/layout/version.rs` there): lists are a flow from partitions over zones to members. What the balance
//! demands is computed exactly beforehand (`shares.rs`), as the numbers that each member may hold. So every maximum flow is a valid
//! layout, and the cheapest one, at a cost of 1 for each replica at a place that had none, is the nearest. Such a flow exists: every
//! partition at each member by its share, divided by the number of partitions, is a flow in fractions within the same bounds, and these
//! are whole numbers. Leaders are a second flow, over the lists.

#[cfg(test)]
mod tests;

use super::flow::{Network, Node};
use super::shares::{Share, Spread, shares};
use crate::limits::{NODES_MAX, PARTITIONS_MAX, REPLICAS_MAX};
use std::collections::{BTreeMap, BTreeSet};

/// Properties of a member that the planner needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Failure domain.
    pub zone: String,
    /// Capacity relative to other members; with 0 it holds nothing.
    pub weight: u32,
}

/// Preference lists of a layout: for each partition the numbers of members, the preferred leader first.
pub type Lists = Vec<Vec<u16>>;

/// Members that can hold replicas, zone by zone, both in order.
struct Field<'a> {
    zones: Vec<Vec<(u16, u32)>>,
    partitions: u32,
    spread: Spread,
    previous: &'a [Vec<u16>],
}

/// Computes the lists for `partitions` on these members, by their numbers.
///
/// 1. Each list has `replicas` different members of a weight above 0, or all of them, if they are fewer.
/// 2. Each list lies in as many zones as possible; if those are fewer than its members, but enough that no zone needs to hold a majority,
///    none does.
/// 3. Each member holds its fair share, rounded down or up. Shares are in proportion to weights, except where a member would hold a
///    partition twice or where rule 2 demands more or less of its zone.
/// 4. No lists that keep rules 1 to 3 have fewer replicas at members that do not hold the same partition in `previous`. Thus equal input
///    moves nothing.
/// 5. Each member is first in a number of lists that is the number of its lists divided by their width, rounded down or up. No choice of
///    first places on these lists that keeps this lets more partitions keep theirs.
///
/// `previous` may be empty, and may name members that are gone. Within a list, members that stay keep their order.
pub fn plan(holders: &BTreeMap<u16, Holder>, partitions: u32, replicas: u32, previous: &[Vec<u16>]) -> Lists {
    assert!(holders.len() <= NODES_MAX && (1..=REPLICAS_MAX).contains(&replicas));
    assert!(partitions <= PARTITIONS_MAX && (previous.is_empty() || previous.len() == partitions as usize));
    let zones = zones(holders);
    if zones.is_empty() {
        return vec![Vec::new(); partitions as usize];
    }
    let sizes: Vec<usize> = zones.iter().map(Vec::len).collect();
    let mut field = Field { zones, partitions, spread: Spread::of(&sizes, replicas), previous };
    let dealt = if previous.is_empty() { field.deal() } else { Vec::new() };
    if previous.is_empty() {
        field.previous = &dealt;
    }
    let lists = field.lead(field.choose());
    assert_eq!(lists.len(), partitions as usize, "every partition has a list");
    lists
}

/// Number of replicas in `next` at members that do not hold the same partition in `previous`.
pub fn moves(previous: &[Vec<u16>], next: &[Vec<u16>]) -> usize {
    let nowhere = Vec::new();
    let comes = |(partition, list): (usize, &Vec<u16>)| {
        let before = previous.get(partition).unwrap_or(&nowhere);
        list.iter().filter(|number| !before.contains(number)).count()
    };
    next.iter().enumerate().map(comes).sum()
}

/// Zones, with the numbers and weights of their members that can hold replicas.
fn zones(holders: &BTreeMap<u16, Holder>) -> Vec<Vec<(u16, u32)>> {
    let mut zones: BTreeMap<&str, Vec<(u16, u32)>> = BTreeMap::new();
    for (number, Holder { zone, weight }) in holders.iter().filter(|(_, holder)| holder.weight > 0) {
        zones.entry(zone).or_default().push((*number, *weight));
    }
    zones.into_values().collect()
}

fn weights(zones: &[Vec<(u16, u32)>]) -> Vec<Vec<u32>> {
    zones.iter().map(|zone| zone.iter().map(|(_, weight)| *weight).collect()).collect()
}

/// Number of occurrences of each number.
fn count(numbers: impl Iterator<Item = u16>) -> BTreeMap<u16, u32> {
    numbers.fold(BTreeMap::new(), |mut counts, number| {
        *counts.entry(number).or_default() += 1;
        counts
    })
}

impl Field<'_> {
    fn before(&self, partition: u32) -> &[u16] {
        self.previous.get(partition as usize).map_or(&[], Vec::as_slice)
    }

    /// Deals lists for a cluster that has none, one after the other: each takes the members that hold least for their weight so far, of
    /// zones that it does not have yet, and of these the ones that share fewest lists with its members. Its first is the one that leads
    /// least. The result is nearly balanced; the flow corrects the rest. All pairs of members share about as many lists. That spreads the
    /// work of a lost member over all others, and lets its lists be filled without further moves.
    fn deal(&self) -> Lists {
        let mut members: Vec<(u16, u32, usize)> = Vec::new();
        for (zone, there) in self.zones.iter().enumerate() {
            members.extend(there.iter().map(|(number, weight)| (*number, *weight, zone)));
        }
        members.sort_unstable();
        let mut loads = vec![(0u64, 0u64); members.len()];
        let mut together = vec![vec![0u32; members.len()]; members.len()];
        let deal_one = |partition: u32| {
            let mut list: Vec<usize> = Vec::with_capacity(self.spread.width as usize);
            let mut zones = BTreeSet::new();
            let offset = members.len() - partition as usize % members.len();
            while list.len() < self.spread.width as usize {
                let rank = |place: &usize| {
                    let (_, weight, zone) = members[*place];
                    let held = (loads[*place].0 << 32) / u64::from(weight);
                    let met: u32 = list.iter().map(|other| together[*place][*other]).sum();
                    (zones.contains(&zone), held, met, (place + offset) % members.len())
                };
                let next = (0..members.len()).filter(|place| !list.contains(place)).min_by_key(rank);
                let next = next.expect("the list is narrower than the members");
                loads[next].0 += 1;
                zones.insert(members[next].2);
                for other in &list {
                    together[next][*other] += 1;
                    together[*other][next] += 1;
                }
                list.push(next);
            }
            let first = (0..list.len()).min_by_key(|index| loads[list[*index]].1).expect("a list has members");
            list.swap(0, first);
            loads[list[0]].1 += 1;
            list.into_iter().map(|place| members[place].0).collect()
        };
        (0..self.partitions).map(deal_one).collect()
    }

    /// The members of each list; those that were in it before come first, in their order of preference.
    fn choose(&self) -> Lists {
        let mut network = Network::default();
        let (source, sink) = (network.node(), network.node());
        let shares = shares(&weights(&self.zones), self.partitions, self.spread);
        let bounds = self.zones.iter().zip(&shares).flat_map(|(members, shares)| {
            members.iter().zip(shares).map(|((number, _), share)| (*number, (share.floor(), share.ceil())))
        });
        let total = self.spread.width * self.partitions;
        let ends = drain(&mut network, sink, bounds.collect(), total);
        let places: Vec<Vec<(u16, usize)>> =
            (0..self.partitions).map(|partition| self.supply(&mut network, source, &ends, partition)).collect();
        assert_eq!(network.fill(source, sink), total, "shares are what a flow can carry");
        let list = |(partition, places): (u32, Vec<(u16, usize)>)| {
            let chosen = places.into_iter().filter(|(_, edge)| network.carried(*edge) > 0);
            let (stay, come): (Vec<u16>, Vec<u16>) =
                chosen.map(|(number, _)| number).partition(|number| self.before(partition).contains(number));
            let in_order = self.before(partition).iter().filter(|number| stay.contains(number)).copied();
            let list: Vec<u16> = in_order.chain(come).collect();
            assert_eq!(list.len(), self.spread.width as usize, "a list is as wide as it can be");
            list
        };
        (0..self.partitions).zip(places).map(list).collect()
    }

    /// Adds the edges of one partition to all members. Partitions begin with different members, so that partitions without a previous
    /// list differ.
    fn supply(
        &self,
        network: &mut Network,
        source: Node,
        ends: &BTreeMap<u16, Node>,
        partition: u32,
    ) -> Vec<(u16, usize)> {
        let Spread { width, zone_least, zone_most } = self.spread;
        let any = width - zone_least * self.zones.len() as u32;
        let start = network.node();
        network.edge(source, start, any, 0);
        let mut places = Vec::with_capacity(ends.len());
        for place in 0..self.zones.len() {
            let members = &self.zones[(place + partition as usize) % self.zones.len()];
            // A zone of one member needs no node of its own where only one way leads to it.
            let way = match (members.len(), zone_least, zone_most) {
                (1, 0, _) => start,
                (1, 1, 1) => source,
                _ => {
                    let zone = network.node();
                    network.edge(source, zone, zone_least, 0);
                    network.edge(start, zone, zone_most - zone_least, 0);
                    zone
                }
            };
            for place in 0..members.len() {
                let (number, _) = members[(place + partition as usize) % members.len()];
                let cost = u16::from(!self.before(partition).contains(&number));
                places.push((number, network.edge(way, ends[&number], 1, cost)));
            }
        }
        places
    }

    /// Puts the leader of each list first.
    fn lead(&self, lists: Lists) -> Lists {
        let mut network = Network::default();
        let (source, sink) = (network.node(), network.node());
        let held = count(lists.iter().flatten().copied());
        let width = self.spread.width;
        let bounds = held.into_iter().map(|(number, held)| (number, (held / width, held.div_ceil(width)))).collect();
        let ends = drain(&mut network, sink, bounds, self.partitions);
        let mut edges = Vec::with_capacity(lists.len());
        for (partition, list) in (0..self.partitions).zip(&lists) {
            let start = network.node();
            network.edge(source, start, 1, 0);
            let before = self.before(partition).first();
            let edge = |number: &u16| network.edge(start, ends[number], 1, u16::from(before != Some(number)));
            edges.push(list.iter().map(edge).collect::<Vec<usize>>());
        }
        assert_eq!(network.fill(source, sink), self.partitions, "every list has a leader");
        let put_first = |(mut list, edges): (Vec<u16>, Vec<usize>)| {
            let first = edges.iter().position(|edge| network.carried(*edge) > 0).expect("one of a list leads");
            list[..=first].rotate_right(1);
            list
        };
        lists.into_iter().zip(edges).map(put_first).collect()
    }
}

/// Adds a node for each member, from which a number between its bounds reaches the sink, if all of `total` does.
fn drain(network: &mut Network, sink: Node, bounds: BTreeMap<u16, (u32, u32)>, total: u32) -> BTreeMap<u16, Node> {
    let spare = network.node();
    let least: u32 = bounds.values().map(|(least, _)| *least).sum();
    assert!(least <= total && total <= bounds.values().map(|(_, most)| *most).sum());
    network.edge(spare, sink, total - least, 0);
    let end = |(number, (least, most))| {
        let end = network.node();
        network.edge(end, sink, least, 0);
        network.edge(end, spare, most - least, 0);
        (number, end)
    };
    bounds.into_iter().map(end).collect()
}

/// Checks lists against rules 1, 2, 3 and 5 of [`plan`].
pub fn check(holders: &BTreeMap<u16, Holder>, replicas: u32, lists: &[Vec<u16>]) -> Result<(), String> {
    let zones = zones(holders);
    let sizes: Vec<usize> = zones.iter().map(Vec::len).collect();
    let spread = Spread::of(&sizes, replicas);
    let zone_of = |number: &u16| zones.iter().position(|zone| zone.iter().any(|(member, _)| member == number));
    for (partition, list) in lists.iter().enumerate() {
        let different: BTreeSet<&u16> = list.iter().collect();
        if different.len() != list.len() || list.len() != spread.width as usize {
            return Err(format!("partition {partition} has {list:?}, not {} different members", spread.width));
        }
        let mut there = vec![0; zones.len()];
        for number in list {
            let zone =
                zone_of(number).ok_or_else(|| format!("partition {partition} has {number}, which can hold none"))?;
            there[zone] += 1;
        }
        if !there.iter().all(|there| (spread.zone_least..=spread.zone_most).contains(there)) {
            return Err(format!("partition {partition} has {there:?} members of the zones"));
        }
    }
    if zones.is_empty() {
        return Ok(());
    }
    let shares: Vec<Share> = shares(&weights(&zones), lists.len() as u32, spread).into_iter().flatten().collect();
    let (held, led) = (count(lists.iter().flatten().copied()), count(lists.iter().map(|list| list[0])));
    for ((number, _), share) in zones.iter().flatten().zip(shares) {
        let held = held.get(number).copied().unwrap_or(0);
        let led = led.get(number).copied().unwrap_or(0);
        if !(share.floor()..=share.ceil()).contains(&held) {
            return Err(format!("member {number} holds {held}, not {} to {}", share.floor(), share.ceil()));
        }
        if !(held / spread.width..=held.div_ceil(spread.width)).contains(&led) {
            return Err(format!("member {number} holds {held} and leads {led}"));
        }
    }
    Ok(())
}
