//! Answers of the metadata group's leader, and limits of trust in what peers report about members.

use super::*;
use norn_model::limits::ROSTER_STEP_MAX;
use norn_model::message::Peering;
use norn_wire::Cause;

impl Cluster {
    fn metadata_leader(&self) -> usize {
        let leads = |node: &Node| node.partitions[&PartitionId::METADATA].consensus.established();
        self.nodes.iter().position(leads).expect("the root has a leader")
    }
}

/// A leader without followers does not know the state of the cluster.
#[test]
fn the_root_s_leader_answers_nothing_that_a_quorum_has_not_confirmed() {
    let mut cluster = Cluster::modern(3);
    assert!(matches!(cluster.ask(1, Request::Cluster), Response::Cluster(_)));
    let leader = cluster.metadata_leader();
    cluster.down.extend((0..3).filter(|index| *index != leader));
    let member = cluster.nodes[leader].founding.node;
    let already = ClusterChange::Undrain { node: member };
    for request in [Request::Cluster, Request::Change { change: Box::new(already), dry_run: false }] {
        let response = cluster.ask(leader, request);
        assert!(matches!(response, Response::Error(_)), "{response:?}");
    }
}

/// An operator looks at the status above all when something is wrong. Its counts take a majority; the rest does not.
#[test]
fn a_status_is_answered_without_a_majority_and_says_what_it_could_not_count() {
    let mut cluster = Cluster::new(3);
    let Response::Status(whole) = cluster.ask(0, Request::Status) else { panic!("it is not answered") };
    assert_eq!(whole.uncounted, 0);
    cluster.down.extend([1, 2]);
    let Response::Status(status) = cluster.ask(0, Request::Status) else { panic!("it is not answered") };
    assert_eq!((status.uncounted, status.node), (status.partitions.0, whole.node));
    let count = cluster.ask(0, Request::Count { queue: None, state: None });
    assert!(matches!(count, Response::Error(_)), "a number would be wrong: {count:?}");
}

/// Goal: one damaged message does not keep a node from hearing of all later changes.
#[test]
fn a_roster_from_far_ahead_is_refused() {
    let mut cluster = Cluster::new(3);
    let known = cluster.nodes[1].roster().clone();
    let told = |cluster: &mut Cluster, version: u64| {
        let roster = Arc::new(Roster { version, ..known.clone() });
        let message = norn_model::message::PeerMessage::Peering(Peering::Roster { roster });
        cluster.queue.push_back((1, Event::Peer { from: NodeId(1), message }));
        cluster.drain();
        cluster.nodes[1].roster().version
    };
    let far = known.version + ROSTER_STEP_MAX + 1;
    assert_eq!([far, u64::MAX].map(|version| told(&mut cluster, version)), [known.version; 2]);
    assert_eq!(told(&mut cluster, known.version + 1), known.version + 1);
}

/// Goal: a removed node tells its clients so, as they would wait for it in vain.
#[test]
fn a_removed_node_tells_its_clients_so() {
    let mut cluster = Cluster::new(3);
    let mut roster = cluster.nodes[2].roster().clone();
    roster.version += 1;
    roster.members.retain(|_, member| member.node != NodeId(3));
    let message = norn_model::message::PeerMessage::Peering(Peering::Roster { roster: Arc::new(roster) });
    cluster.queue.push_back((2, Event::Peer { from: NodeId(1), message }));
    cluster.drain();
    let Response::Error(error) = cluster.ask(2, Request::Status) else { panic!("it serves on") };
    assert_eq!((error.code, error.cause), (ErrorCode::NotReady, Some(Cause::Removed)));
}
