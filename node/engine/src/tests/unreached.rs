//! A member that sends and is not reached looks alive to all nodes that hear it.

use super::*;
use norn_wire::response::NodeView;

impl Cluster {
    /// As `advance`, without the messages of one node to another one.
    fn advance_without(&mut self, ms: u64, (sender, receiver): (usize, usize)) {
        let sender = NodeId(sender as u128 + 1);
        let is_lost = |(to, event): &(usize, Event)| {
            *to == receiver && matches!(event, Event::Peer { from, .. } if *from == sender)
        };
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            self.queue.extend((0..self.nodes.len()).map(|index| (index, Event::Wake)));
            while {
                self.queue.retain(|one| !is_lost(one));
                self.handle_next()
            } {}
        }
    }

    /// For each node whether it is alive, and by which nodes it is not reached, as one of them reports.
    fn unreached(&mut self, index: usize) -> Vec<(bool, Vec<NodeId>)> {
        let Response::Nodes(nodes) = self.ask(index, Request::Nodes) else { panic!("nodes are asked for") };
        nodes.into_iter().map(|NodeView { alive, unreached_from, .. }| (alive, unreached_from)).collect()
    }

    fn count_of_unreached(&mut self, index: usize) -> u64 {
        let Response::Status(status) = self.ask(index, Request::Status) else { panic!("a status is asked for") };
        status.counters.iter().find(|(name, _)| name == "members_unreached").map_or(0, |(_, count)| *count)
    }
}

/// Goal: an operator sees which members are not reached, and from where. Method: messages of one node to another one are lost, and come
/// through again.
#[test]
fn a_member_that_is_heard_and_not_reached_is_told_with_those_that_do_not_reach_it() {
    let mut cluster = Cluster::new(3);
    let well = vec![(true, Vec::new()); 3];
    let long_ms = 4 * cluster.nodes[0].config.election_timeout_ms;
    cluster.advance(long_ms);
    assert_eq!(cluster.unreached(0), well);
    cluster.advance_without(long_ms, (0, 1));
    for index in [0, 2] {
        assert_eq!(cluster.unreached(index)[1], (true, vec![NodeId(1)]), "node {index}");
        assert_eq!(cluster.count_of_unreached(index), 1);
    }
    assert_eq!(cluster.unreached(0)[2], (true, Vec::new()));
    cluster.advance(long_ms);
    assert!((0..3).all(|index| cluster.unreached(index) == well && cluster.count_of_unreached(index) == 0));
}
