//! Peers of different protocol versions: each is told what it knows, and nothing else.

use super::*;
use norn_client::wire::Versions;
use norn_client::wire::response::NodeView;

const OLD: u8 = Versions::SPOKEN.oldest;
const NEW: u8 = Versions::SPOKEN.newest;

impl Cluster {
    pub(super) fn connect(&mut self, index: usize, peer: usize, version: u8) {
        self.queue.push_back((index, Event::PeerConnected { peer: NodeId(peer as u128 + 1), version }));
        self.drain();
    }

    /// What a node says of its version in the next heartbeat to each other one.
    fn offers(&mut self, index: usize) -> Vec<Option<u8>> {
        let nodes: Vec<NodeId> = self.nodes[index].peers.keys().copied().collect();
        let heartbeats = nodes.into_iter().map(|node| self.nodes[index].heartbeat_for(node));
        heartbeats.map(|heartbeat| heartbeat.offers).collect()
    }

    fn versions(&mut self, index: usize) -> Vec<u8> {
        match self.ask(index, Request::Nodes) {
            Response::Nodes(nodes) => nodes.iter().map(|NodeView { version, .. }| version.expect("it knows")).collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_is_told_what_its_version_knows() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.offers(0), [None, None], "nobody has connected yet");
    cluster.connect(0, 1, NEW);
    cluster.connect(0, 2, OLD);
    assert_eq!(cluster.offers(0), [Some(NEW), None]);
    assert_eq!(cluster.versions(0), [NEW, NEW, OLD]);
    // The third one is upgraded; the second one comes back with the program of before.
    cluster.connect(0, 2, NEW);
    cluster.connect(0, 1, OLD);
    assert_eq!(cluster.offers(0), [None, Some(NEW)]);
    assert_eq!(cluster.versions(0), [NEW, OLD, NEW]);
}

#[test]
fn a_node_that_is_held_hears_what_others_would_speak_only_where_it_knows_of_it() {
    let mut cluster = Cluster::new(2);
    cluster.connect(0, 1, NEW);
    cluster.connect(1, 0, NEW);
    let heartbeat = Heartbeat { offers: Some(NEW + 4), ..cluster.nodes[1].heartbeat_for(NodeId(1)) };
    let message = PeerMessage::Heartbeat(Box::new(heartbeat));
    cluster.queue.push_back((0, Event::Peer { from: NodeId(2), message }));
    cluster.drain();
    assert_eq!(cluster.versions(0), [NEW, NEW + 4], "of a later release");
}

#[test]
fn what_a_peer_cannot_read_is_not_sent_to_it() {
    let mut cluster = Cluster::new(2);
    let later = Heartbeat { offers: Some(NEW), ..cluster.nodes[0].heartbeat_for(NodeId(2)) };
    let later = || PeerMessage::Heartbeat(Box::new(later.clone()));
    let mut send = |version| {
        cluster.connect(0, 1, version);
        let mut effects = Vec::new();
        cluster.nodes[0].outbox.send(NodeId(2), later());
        cluster.nodes[0].outbox.flush(&mut effects);
        effects
    };
    let unspoken = Observation::Unspoken { to: NodeId(2), message: "heartbeat" };
    assert!(matches!(&send(OLD)[..], [Effect::Observe(observed)] if *observed == unspoken));
    assert!(matches!(&send(NEW)[..], [Effect::Send { to: NodeId(2), .. }]));
}

/// What waits for the disk meets the version that is spoken when it leaves.
#[test]
fn a_message_that_waited_is_looked_at_when_it_leaves() {
    let mut cluster = Cluster::new(2);
    cluster.connect(0, 1, NEW);
    let later = Heartbeat { offers: Some(NEW), ..cluster.nodes[0].heartbeat_for(NodeId(2)) };
    let (outbox, mut effects) = (&mut cluster.nodes[0].outbox, Vec::new());
    outbox.persist(Record::Mark { time_ms: 1, sessions: 1 });
    outbox.send_durable(NodeId(2), PeerMessage::Heartbeat(Box::new(later)));
    outbox.flush(&mut effects);
    let Effect::Persist { ticket, .. } = &effects[0] else { panic!("{effects:?}") };
    outbox.set_version(NodeId(2), OLD);
    outbox.persisted(*ticket);
    effects.clear();
    outbox.flush(&mut effects);
    assert!(matches!(&effects[..], [Effect::Observe(Observation::Unspoken { .. })]), "{effects:?}");
}
