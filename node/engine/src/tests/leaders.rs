//! Which node a follower considers the leader.

use super::copy::tell;
use super::*;
use norn_model::message::{Election, Peering, Replication};
use norn_model::viewstamp::Viewstamp;

/// A partition that a node leads and that has had no other event since.
fn led_partition(cluster: &Cluster) -> (PartitionId, usize, Viewstamp) {
    let partition = PartitionId(1);
    let leads = |index: &usize| cluster.nodes[*index].partitions[&partition].consensus.established();
    let leader = (0..3).find(leads).expect("there is a leader");
    (partition, leader, cluster.nodes[leader].partitions[&partition].consensus.viewstamp)
}

/// Goal: a node that has stepped down does not count as leader for ever because of a message that it sent before. Method: its heartbeat
/// says that it leads nothing; then an operation of its arrives late, and the node is heard all the time.
#[test]
fn a_leader_that_has_stepped_down_is_given_up_despite_a_late_message() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let (partition, leader, Viewstamp { epoch, length }) = led_partition(&cluster);
    let follower = (leader + 1) % 3;
    let [from, to] = [leader, follower].map(|index| cluster.nodes[index].founding.node);
    cluster.down.extend([0, 1, 2]);
    let mut leads = Some(Vec::new());
    let mut beat = |cluster: &mut Cluster| {
        let heartbeat = cluster.nodes[leader].heartbeat_for(to, false);
        let leads_version = heartbeat.leads_version + 1;
        let heartbeat = Heartbeat { leads: leads.take(), leads_version, ..heartbeat };
        tell(cluster, follower, from, PeerMessage::Peering(Peering::Heartbeat(Box::new(heartbeat))));
    };
    beat(&mut cluster);
    assert!(!cluster.nodes[follower].has_leader(partition));
    let ops = Vec::new();
    let late = PeerMessage::Replication(Replication::Ops {
        partition,
        epoch,
        first: length + 1,
        ops,
        commit: length,
        digest: [0; 16],
    });
    tell(&mut cluster, follower, from, late);
    assert!(cluster.nodes[follower].has_leader(partition), "it looks like one");
    let Config { heartbeat_ms, election_timeout_ms, .. } = *cluster.nodes[follower].config;
    for _ in 0..2 * election_timeout_ms / heartbeat_ms {
        cluster.skip(heartbeat_ms);
        beat(&mut cluster);
        cluster.nodes[follower].step(cluster.now, Event::Wake, &mut Vec::new());
    }
    let node = &cluster.nodes[follower];
    assert!(node.is_alive(from) && node.hears_quorum(from, partition));
    assert!(!node.has_leader(partition), "its own list does not name it");
}

/// Goal: a supposed leader that asks for votes is not refused because of a leader, not even itself; others are refused meanwhile.
#[test]
fn a_supposed_leader_that_asks_for_votes_is_not_refused_for_its_own_sake() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let (partition, leader, viewstamp) = led_partition(&cluster);
    let [follower, other] = [1, 2].map(|away| (leader + away) % 3);
    let asks = PeerMessage::Election(Election::PreVote { partition, epoch: viewstamp.epoch + 1, viewstamp });
    for (index, expected) in [(other, false), (leader, true)] {
        let from = cluster.nodes[index].founding.node;
        let answers = tell(&mut cluster, follower, from, asks.clone());
        let is_granted = |answer: &PeerMessage| {
            matches!(answer, PeerMessage::Election(Election::PreVoteAnswer { granted: true, .. }))
        };
        assert_eq!(answers.iter().any(is_granted), expected);
    }
}

/// Goal: a leader steps down when it has heard no majority for an election timeout, and not earlier, although not each heartbeat looks at
/// all partitions while nothing changes. Method: two of three nodes stop after a long calm.
#[test]
fn a_leader_that_loses_its_majority_after_a_long_calm_steps_down_in_time() {
    let mut cluster = Cluster::new(3);
    cluster.advance(5_000);
    let (partition, leader, _) = led_partition(&cluster);
    assert!(
        cluster.nodes.iter().all(|node| node.is_calm()),
        "each heartbeat of an idle cluster looks at all partitions"
    );
    let Config { heartbeat_ms, election_timeout_ms, .. } = *cluster.nodes[leader].config;
    cluster.down.extend((0..3).filter(|index| *index != leader));
    // The others count as heard for one timeout, and the leader waits for another one.
    let leads = |cluster: &Cluster| cluster.nodes[leader].leads(partition);
    cluster.advance(2 * election_timeout_ms - 3 * heartbeat_ms);
    assert!(leads(&cluster), "it stepped down early");
    cluster.advance(6 * heartbeat_ms);
    assert!(!leads(&cluster), "it stays leader");
}

/// Goal: a silent leader is given up at the first heartbeat after the election timeout, after a long calm too.
#[test]
fn a_leader_that_falls_silent_after_a_long_calm_is_given_up_at_once() {
    let mut cluster = Cluster::new(3);
    cluster.advance(5_000);
    let (partition, leader, _) = led_partition(&cluster);
    let followers = [1, 2].map(|away| (leader + away) % 3);
    let Config { heartbeat_ms, election_timeout_ms, .. } = *cluster.nodes[leader].config;
    cluster.down.insert(leader);
    let from = cluster.nodes[leader].founding.node;
    cluster.advance(election_timeout_ms + 2 * heartbeat_ms);
    for follower in followers {
        let follows = cluster.nodes[follower].partitions[&partition].consensus.leader;
        assert!(follows.is_none_or(|leader| leader.node != from), "a silent node is followed");
    }
}
