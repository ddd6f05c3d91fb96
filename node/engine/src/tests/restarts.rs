//! Restarts of nodes.

use super::*;
use norn_model::message::Peering;

/// Goal: a leader that restarts and is heard again at once does not count as the leader. Method: its heartbeat with a higher start
/// counter, as the first message.
#[test]
fn a_restart_within_the_timeout_is_noticed_at_once() {
    let mut cluster = Cluster::new(3);
    let partition = *cluster.nodes[0].partitions.iter().find(|(_, replica)| replica.consensus.established()).unwrap().0;
    assert!(cluster.nodes[1].has_leader(partition));
    let first = first_heartbeat(cluster.nodes[0].boot + 1, cluster.now);
    let heartbeat = Heartbeat { hears: vec![NodeId(2), NodeId(3)], ..first };
    let message = PeerMessage::Peering(Peering::Heartbeat(Box::new(heartbeat)));
    let mut effects = Vec::new();
    cluster.nodes[1].step(cluster.now, Event::Peer { from: NodeId(1), message }, &mut effects);
    assert!(!cluster.nodes[1].has_leader(partition));
    assert!(cluster.nodes[1].timers.is_set(Key::Election(partition)));
}

/// Goal: a node that restarts again and again still lends ids.
#[test]
fn restarts_do_not_push_the_time_of_ids_ahead() {
    let mut cluster = Cluster::new(3);
    for restart in 0..20 {
        let response = cluster.ask(0, Request::Hello { name: "tester".into(), bare: true });
        let Response::Welcome(welcome) = response else { panic!("after {restart} restarts: {response:?}") };
        assert!(welcome.time_ms <= cluster.now.wall_ms + norn_model::limits::RESERVED_TIME_MS);
        let now_ms = cluster.now.wall_ms;
        assert!((now_ms - 1_000..=now_ms).contains(&welcome.wall_ms()), "delays are no longer after a restart");
        assert_eq!(welcome.clock_ms.is_some(), restart > 0, "what was lent is ahead of the clock then");
        cluster.restart(0);
        cluster.advance(10);
    }
}
