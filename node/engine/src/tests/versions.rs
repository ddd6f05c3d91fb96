//! Protocol versions: which one is used with each peer, and which ones peers would use.

use super::*;
use norn_model::message::Peering;
use norn_wire::Versions;
use norn_wire::response::NodeView;

const SPOKEN: u8 = Versions::SPOKEN.newest;

impl Cluster {
    pub(super) fn connect(&mut self, index: usize, peer: usize, version: u8) {
        self.queue.push_back((index, Event::PeerConnected { peer: NodeId(peer as u128 + 1), version }));
        self.drain();
    }

    fn versions(&mut self, index: usize) -> Vec<u8> {
        match self.ask(index, Request::Nodes) {
            Response::Nodes(nodes) => nodes.iter().map(|NodeView { version, .. }| version.expect("it knows")).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_version_that_is_spoken_with_each_peer_is_shown() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.versions(0), [SPOKEN; 3]);
    // As of a build that speaks two of them.
    cluster.connect(0, 2, SPOKEN + 1);
    assert_eq!(cluster.versions(0), [SPOKEN, SPOKEN, SPOKEN + 1]);
    cluster.connect(0, 2, SPOKEN);
    assert_eq!(cluster.versions(0), [SPOKEN; 3]);
}

/// Goal: a member that was neither heard nor connected in this start has no made-up version.
#[test]
fn a_member_that_was_not_heard_yet_has_no_version() {
    let mut cluster = Cluster::new(3);
    cluster.down.extend([1, 2]);
    let effects = cluster.begin_restart(0, 99);
    cluster.carry_out(0, effects);
    cluster.drain();
    let Response::Nodes(nodes) = cluster.ask(0, Request::Nodes) else { panic!("nodes are asked for") };
    let versions: Vec<Option<u8>> = nodes.iter().map(|node| node.version).collect();
    assert_eq!(versions, [Some(SPOKEN), None, None]);
    cluster.connect(0, 2, SPOKEN);
    assert!(matches!(cluster.ask(0, Request::Nodes), Response::Nodes(nodes) if nodes[2].version == Some(SPOKEN)));
}

#[test]
fn what_a_peer_would_speak_is_shown_as_well() {
    let mut cluster = Cluster::new(2);
    let heartbeat = cluster.nodes[1].heartbeat_for(NodeId(1), false);
    assert_eq!(heartbeat.offers, SPOKEN);
    let message = PeerMessage::Peering(Peering::Heartbeat(Box::new(Heartbeat { offers: SPOKEN + 4, ..heartbeat })));
    cluster.queue.push_back((0, Event::Peer { from: NodeId(2), message }));
    cluster.drain();
    assert_eq!(cluster.versions(0), [SPOKEN, SPOKEN + 4], "of a later release");
}
