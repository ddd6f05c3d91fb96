//! Grants whose answer is lost with a node: the call gets them all the same, and nothing else in their place.

use super::*;

const FIRST: u32 = 0;
/// In other partitions, so that each node leads some of them.
const OTHERS: [u32; 7] = [0x20_0000, 0x40_0000, 0x60_0000, 0x80_0000, 0xA0_0000, 0xC0_0000, 0xE0_0000];

/// A cluster with a task that is claimed first, its leader, and others that may be claimed in its place.
fn cluster_of_many() -> (Cluster, TaskId, usize) {
    let mut cluster = Cluster::modern(3);
    cluster.connect_all();
    let mut enqueue = |priority: i32, tag: u32| {
        let id = cluster.id(tag);
        let tasks = vec![NewTask { id, spec: spec(b"", priority) }];
        assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
        id
    };
    let first = enqueue(7, FIRST);
    for tag in OTHERS {
        enqueue(0, tag);
    }
    cluster.advance(1_000);
    let leader = cluster.leader(&first);
    (cluster, first, leader)
}

/// Tasks that somebody holds, for all that a node knows.
fn held(cluster: &mut Cluster, index: usize) -> u64 {
    let queue = QueueName::new("mail").ok();
    match cluster.ask(index, Request::Count { queue, state: Some(State::Claimed) }) {
        Response::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

fn granted(cluster: &mut Cluster, number: u64) -> Vec<TaskId> {
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    match cluster.replies.remove(&number) {
        Some(Response::Claimed { tasks, .. }) => tasks.iter().map(|task| task.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// The node that the client talks to is the leader, and is gone when it has granted.
#[test]
fn a_claim_that_is_repeated_elsewhere_waits_for_the_next_leader() {
    let (mut cluster, first, leader) = cluster_of_many();
    let claim = claim_of(ClaimId(77), 600_000, 1);
    let lost = cluster.submit(leader, Request::Claim(claim.clone()));
    assert_eq!(granted(&mut cluster, lost), [first]);
    cluster.down.insert(leader);
    let next = (leader + 1) % 3;
    cluster.run_until(|cluster| !cluster.nodes[next].is_reachable(NodeId(leader as u128 + 1)));
    assert_eq!(cluster.nodes[next].leader_of(cluster.nodes[next].partition_of(&first)), None, "nobody leads yet");
    let number = cluster.submit(next, Request::Claim(Claim { repeated: true, ..claim }));
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, next), 1);
}

/// A claim of one task, under way at a node: its number, once something is on its way to a node.
fn claim_until(cluster: &mut Cluster, broker: usize, to: usize, wanted: fn(&PeerMessage) -> bool, count: usize) -> u64 {
    cluster.number += 1;
    let number = cluster.number;
    let principal = Principal { name: "tester".into(), node: false };
    let request = Request::Claim(claim_of(ClaimId(77), 600_000, 1));
    cluster.queue.push_back((broker, Event::Request { client: CLIENT, number, principal, request }));
    let found =
        |(at, event): &&(usize, Event)| *at == to && matches!(event, Event::Peer { message, .. } if wanted(message));
    while cluster.queue.iter().filter(found).count() < count {
        assert!(cluster.handle_next(), "it is sent");
    }
    cluster.queue.retain(|event| !found(&event));
    number
}

fn is_answer(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::GrantAnswer { .. })
}

/// The leader is gone when it has granted, and another node has asked it.
#[test]
fn a_leader_that_is_gone_is_asked_about_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, broker, is_answer, 1);
    cluster.down.insert(leader);
    cluster.drain();
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// It is back before anybody misses it, and knows nothing of what it was asked, nor leads any more.
#[test]
fn a_leader_that_restarts_is_asked_about_at_its_successor() {
    let (mut cluster, first, leader) = cluster_of_many();
    let broker = (leader + 1) % 3;
    let number = claim_until(&mut cluster, broker, broker, is_answer, 1);
    cluster.restart(leader);
    assert_eq!(granted(&mut cluster, number), [first]);
    assert_eq!(held(&mut cluster, broker), 1);
}

/// It steps down when others have the grant, and does not know that. Whoever it is that asked it.
#[test]
fn what_a_leader_was_about_to_grant_is_asked_for_at_its_successor() {
    for away in [0, 1] {
        let (mut cluster, first, leader) = cluster_of_many();
        let broker = (leader + away) % 3;
        let is_ack = |message: &PeerMessage| matches!(message, PeerMessage::Ack { .. });
        let number = claim_until(&mut cluster, broker, leader, is_ack, 2);
        let partition = cluster.nodes[leader].partition_of(&first);
        cluster.nodes[leader].step_down(partition, "it is told to");
        assert_eq!(granted(&mut cluster, number), [first]);
        assert_eq!(held(&mut cluster, broker), 1);
    }
}

/// Where a partition has no majority, others are claimed from all the same, a little later.
#[test]
fn a_leader_that_never_comes_is_not_waited_for_for_long() {
    let (mut cluster, _, leader) = cluster_of_many();
    let next = (leader + 1) % 3;
    cluster.down.extend((0..3).filter(|index| *index != next));
    cluster.advance(1_000);
    let before_us = cluster.now.mono_us;
    let claim = Claim { repeated: true, ..claim_of(ClaimId(77), 600_000, 1) };
    let number = cluster.submit(next, Request::Claim(claim));
    assert_eq!(granted(&mut cluster, number), []);
    assert!(cluster.now.mono_us < before_us + 2_400_000, "clients wait for longer");
}
