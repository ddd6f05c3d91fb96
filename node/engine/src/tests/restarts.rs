//! Restarts of nodes.

use super::*;
use norn_model::message::Peering;
use norn_model::viewstamp::Viewstamp;

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

/// Proves E9: the version that a record stores is that of the table before it, and each operation implies the next. Method: all logs
/// are followed from record to record; then a node starts without the first of its operations.
// E9
#[test]
fn records_store_the_version_before_them_and_operations_imply_the_next() {
    let mut cluster = Cluster::new(3);
    for number in 0..4 {
        let id = cluster.enqueue(number as usize % 3, b"x", 9 + number);
        let token = cluster.claim(0, 30_000).remove(0).token;
        assert!(matches!(cluster.complete(1, id, token), Response::Acked(_)));
    }
    cluster.advance(1_000);
    let mut followed = 0;
    for (index, log) in cluster.logs.iter().enumerate() {
        let mut reached: BTreeMap<PartitionId, Viewstamp> = BTreeMap::new();
        for record in log {
            match record {
                Record::Install { partition, viewstamp, .. } => {
                    reached.insert(*partition, *viewstamp);
                }
                Record::Ops { partition, after, ops } => {
                    let before = reached.entry(*partition).or_default();
                    assert_eq!(after, before, "node {index}, partition {partition}");
                    *before = Viewstamp { length: after.length + ops.len() as u64, ..*after };
                    followed += ops.len();
                }
                _ => {}
            }
        }
        let ended = |partition: &PartitionId| cluster.nodes[index].partitions[partition].consensus.viewstamp;
        assert!(reached.iter().all(|(partition, viewstamp)| ended(partition) == *viewstamp), "node {index}");
    }
    assert!(followed >= 3 * 4, "{followed} operations, and each of four tasks is granted on three nodes");

    let first = cluster.logs[0].iter().position(|record| matches!(record, Record::Ops { .. })).expect("just seen");
    let gap = cluster.logs[0].iter().enumerate().filter(|(place, _)| *place != first).map(|(_, record)| record.clone());
    let mut node = Node::new(founding(0), 99);
    let refused = gap.map(|record| node.recover(record, false, None)).find_map(Result::err);
    let refused = refused.expect("the next operations are after a version that is not there");
    assert!(refused.contains("its table is elsewhere"), "{refused}");
}
