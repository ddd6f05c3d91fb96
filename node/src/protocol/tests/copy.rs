//! Nodes that are started on an earlier copy of their log, or on a copy that is in use.

use super::*;

#[test]
fn a_node_on_an_earlier_copy_of_its_log_is_told_and_retires() {
    let mut cluster = Cluster::new(3);
    let image = cluster.logs[0].clone();
    cluster.restart(0);
    cluster.advance(500);
    cluster.restart(0);
    cluster.advance(500);
    cluster.logs[0] = image;
    cluster.restart(0);
    cluster.run_until(|cluster| cluster.nodes[0].is_retired());
    // It says nothing any more, and no later start of the copy does, though its start would count further.
    let mut effects = Vec::new();
    cluster.nodes[0].step(cluster.now, Event::Wake, &mut effects);
    assert!(effects.is_empty(), "{effects:?}");
    let mut again = Node::new(founding(0), 5);
    let refused = cluster.logs[0].clone().into_iter().try_for_each(|record| again.recover(record, false, None));
    assert!(refused.is_err_and(|reason| reason.contains("retired for ever") && reason.contains("earlier copy")));
    assert!(!cluster.nodes[1].is_retired() && !cluster.nodes[2].is_retired());
}

#[test]
fn of_two_nodes_on_one_log_one_retires() {
    let mut cluster = Cluster::new(3);
    let mut copy = Node::new(founding(0), 5);
    for record in cluster.logs[0].clone() {
        copy.recover(record, false, None).expect("its own log");
    }
    cluster.restart(0);
    cluster.advance(2_000);
    // It has said less than the other one, and hears what a peer has heard.
    let mut effects = Vec::new();
    copy.start(cluster.now, &mut effects);
    copy.step(cluster.now, Event::Persisted { ticket: Ticket(1), places: Vec::new() }, &mut effects);
    let number = cluster.nodes[1].peers[&NodeId(1)].latest_number();
    assert!(number > 10);
    let first = first_heartbeat(cluster.nodes[1].boot, cluster.now);
    let heartbeat = Heartbeat { seen: (copy.boot, number), ..first };
    let message = PeerMessage::Heartbeat(Box::new(heartbeat));
    copy.step(cluster.now, Event::Peer { from: NodeId(2), message }, &mut effects);
    assert!(copy.is_retired() && effects.iter().any(|effect| matches!(effect, Effect::Stopped)));
    assert!(!cluster.nodes[0].is_retired());
}
