//! Minimum-cost maximum flow through a network, for the planner of layouts.
//!
//! Primal-dual: repeatedly the distance of the sink by reduced costs, then as much flow as its shortest paths carry, by blocking flows
//! (Ahuja, Magnanti, Orlin, *Network Flows*, 1993, section 9.8; Dinic 1970). Costs of one layout are 0 and 1, so few distances occur and
//! each costs a few walks over the edges. Ties are broken by the order in which edges were added, so equal networks give equal flows.

use std::collections::{BTreeMap, VecDeque};

/// A node of the network.
pub type Node = u32;

/// One direction of an edge. The other direction is its neighbour in the table: number `e ^ 1` undoes what `e` carries.
#[derive(Clone, Copy)]
struct Arc {
    to: Node,
    room: u32,
    cost: i32,
}

/// A network of edges with integer capacities, each unit at a cost.
#[derive(Default)]
pub struct Network {
    nodes: u32,
    arcs: Vec<Arc>,
}

impl Network {
    /// Adds a node.
    pub fn node(&mut self) -> Node {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Adds an edge with this capacity and cost of a unit. Returns its number, for [`Network::carried`].
    pub fn edge(&mut self, from: Node, to: Node, room: u32, cost: u16) -> usize {
        assert!(from < self.nodes && to < self.nodes && from != to, "an edge joins two nodes");
        self.arcs.push(Arc { to, room, cost: i32::from(cost) });
        self.arcs.push(Arc { to: from, room: 0, cost: -i32::from(cost) });
        self.arcs.len() - 2
    }

    /// Units that an edge carries.
    pub fn carried(&self, edge: usize) -> u32 {
        self.arcs[edge ^ 1].room
    }

    /// Sends the maximum flow from `source` to `sink` at minimum cost. Returns its size.
    pub fn fill(&mut self, source: Node, sink: Node) -> u32 {
        let mut search = Search::new(self);
        let mut sent = 0;
        while search.reprice(&self.arcs, source, sink) {
            while search.layer(&self.arcs, source, sink) {
                sent += search.block(&mut self.arcs, source, sink);
            }
        }
        sent
    }
}

/// State of a run beside the flow itself.
struct Search {
    /// Arcs of each node: `order[first[node]..first[node + 1]]`.
    first: Vec<u32>,
    order: Vec<u32>,
    /// Prices of nodes (potentials), by which no arc with free capacity has a cost below 0.
    prices: Vec<i32>,
    /// Steps from the source over arcs with free capacity and zero reduced cost.
    levels: Vec<u32>,
}

const FAR: u32 = u32::MAX;

impl Search {
    fn new(network: &Network) -> Search {
        let nodes = network.nodes as usize;
        let tail = |arc: usize| network.arcs[arc ^ 1].to as usize;
        let mut first = vec![0; nodes + 1];
        for arc in 0..network.arcs.len() {
            first[tail(arc) + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut free = first.clone();
        let mut order = vec![0; network.arcs.len()];
        for arc in 0..network.arcs.len() {
            let place = &mut free[tail(arc)];
            order[*place as usize] = arc as u32;
            *place += 1;
        }
        Search { first, order, prices: vec![0; nodes], levels: vec![FAR; nodes] }
    }

    fn arcs_of(&self, node: Node) -> &[u32] {
        &self.order[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }

    /// Reduced cost: what an arc costs beyond the difference of the prices at its ends.
    fn reduced(&self, from: Node, arc: Arc) -> i32 {
        arc.cost + self.prices[from as usize] - self.prices[arc.to as usize]
    }

    /// Raises the prices by the distances from the source, up to the sink's. Returns whether the sink can be reached.
    fn reprice(&mut self, arcs: &[Arc], source: Node, sink: Node) -> bool {
        let mut distances = vec![i32::MAX; self.prices.len()];
        let mut waiting: BTreeMap<i32, Vec<Node>> = BTreeMap::from([(0, vec![source])]);
        distances[source as usize] = 0;
        while let Some((distance, mut nodes)) = waiting.pop_first() {
            if distance >= distances[sink as usize] {
                break;
            }
            while let Some(node) = nodes.pop() {
                if distances[node as usize] < distance {
                    continue;
                }
                for arc in self.arcs_of(node).iter().map(|arc| arcs[*arc as usize]).filter(|arc| arc.room > 0) {
                    let step = self.reduced(node, arc);
                    assert!(step >= 0, "prices leave no arc below 0");
                    if distance + step < distances[arc.to as usize] {
                        distances[arc.to as usize] = distance + step;
                        match step {
                            0 => nodes.push(arc.to),
                            _ => waiting.entry(distance + step).or_default().push(arc.to),
                        }
                    }
                }
            }
        }
        let limit = distances[sink as usize];
        if limit == i32::MAX {
            return false;
        }
        for (price, distance) in self.prices.iter_mut().zip(distances) {
            *price += distance.min(limit);
        }
        true
    }

    /// Finds the levels of the nodes. Returns whether the sink can be reached at no cost beyond the prices.
    fn layer(&mut self, arcs: &[Arc], source: Node, sink: Node) -> bool {
        self.levels.fill(FAR);
        self.levels[source as usize] = 0;
        let mut waiting = VecDeque::from([source]);
        while let Some(node) = waiting.pop_front() {
            let level = self.levels[node as usize] + 1;
            if level > self.levels[sink as usize] {
                break;
            }
            for place in self.first[node as usize]..self.first[node as usize + 1] {
                let arc = arcs[self.order[place as usize] as usize];
                if arc.room > 0 && self.levels[arc.to as usize] == FAR && self.reduced(node, arc) == 0 {
                    self.levels[arc.to as usize] = level;
                    waiting.push_back(arc.to);
                }
            }
        }
        self.levels[sink as usize] != FAR
    }

    /// Sends along paths of rising levels until each has a full arc. Returns how much.
    fn block(&self, arcs: &mut [Arc], source: Node, sink: Node) -> u32 {
        let mut next = self.first.clone();
        let mut path: Vec<u32> = Vec::new();
        let (mut at, mut sent) = (source, 0);
        loop {
            if at == sink {
                let room = path.iter().map(|arc| arcs[*arc as usize].room).min().expect("source and sink differ");
                for arc in &path {
                    arcs[*arc as usize].room -= room;
                    arcs[*arc as usize ^ 1].room += room;
                }
                sent += room;
                let full = path.iter().position(|arc| arcs[*arc as usize].room == 0).expect("one arc was narrowest");
                at = arcs[path[full] as usize ^ 1].to;
                path.truncate(full);
                continue;
            }
            let leads_on = |arc: &u32| {
                let arc = arcs[*arc as usize];
                let rises = self.levels[arc.to as usize] == self.levels[at as usize] + 1;
                arc.room > 0 && rises && self.reduced(at, arc) == 0
            };
            let rest = &self.order[next[at as usize] as usize..self.first[at as usize + 1] as usize];
            let skipped = rest.iter().position(leads_on);
            next[at as usize] += skipped.unwrap_or(rest.len()) as u32;
            if let Some(skipped) = skipped {
                path.push(rest[skipped]);
                at = arcs[rest[skipped] as usize].to;
            } else if let Some(arc) = path.pop() {
                at = arcs[arc as usize ^ 1].to;
                next[at as usize] += 1;
            } else {
                return sent;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(nodes: usize) -> (Network, Vec<Node>) {
        let mut network = Network::default();
        let nodes = (0..nodes).map(|_| network.node()).collect();
        (network, nodes)
    }

    #[test]
    fn a_later_path_undoes_a_part_of_an_earlier_one() {
        let (mut network, nodes) = network(4);
        let [source, one, other, sink] = nodes[..] else { panic!("four nodes") };
        let first = network.edge(source, one, 1, 0);
        let cross = network.edge(one, other, 1, 0);
        network.edge(source, other, 1, 3);
        network.edge(one, sink, 1, 4);
        network.edge(other, sink, 1, 0);
        assert_eq!(network.fill(source, sink), 2);
        assert_eq!((network.carried(first), network.carried(cross)), (1, 0));
    }

    #[test]
    fn nothing_flows_where_no_path_is() {
        let (mut network, nodes) = network(3);
        let edge = network.edge(nodes[0], nodes[1], 5, 0);
        assert_eq!((network.fill(nodes[0], nodes[2]), network.carried(edge)), (0, 0));
    }

    /// The best of all matchings, by trying every one: the number of pairs, and their negated cost.
    fn best(costs: &[Vec<Option<u16>>], taken: u32) -> (usize, i64) {
        let Some((row, rest)) = costs.split_first() else { return (0, 0) };
        let mut best_found = best(rest, taken);
        for (column, cost) in row.iter().enumerate() {
            if let Some(cost) = cost
                && taken & (1 << column) == 0
            {
                let (pairs, negated) = best(rest, taken | 1 << column);
                best_found = best_found.max((pairs + 1, negated - i64::from(*cost)));
            }
        }
        best_found
    }

    proptest! {
        /// Pairs of rows and columns, against every possible choice of pairs.
        #[test]
        fn matchings_are_the_best_ones(
            costs in proptest::collection::vec(proptest::collection::vec(proptest::option::of(0u16..4), 4), 1..5)
        ) {
            let (mut network, nodes) = network(2 + costs.len() + 4);
            let (rows, columns) = nodes[2..].split_at(costs.len());
            let mut edges = Vec::new();
            for (row, line) in rows.iter().zip(&costs) {
                network.edge(nodes[0], *row, 1, 0);
                for (column, cost) in columns.iter().zip(line) {
                    edges.extend(cost.map(|cost| (cost, network.edge(*row, *column, 1, cost))));
                }
            }
            for column in columns {
                network.edge(*column, nodes[1], 1, 0);
            }
            let pairs = network.fill(nodes[0], nodes[1]) as usize;
            let cost: i64 = edges.iter().map(|(cost, edge)| i64::from(*cost) * i64::from(network.carried(*edge))).sum();
            prop_assert_eq!((pairs, -cost), best(&costs, 0));
        }
    }
}
