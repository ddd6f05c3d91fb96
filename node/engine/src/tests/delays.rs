//! Delayed tasks: a timer is set for them, however a replica learns of them.

use super::copy::tell;
use super::*;
use norn_model::message::{Election, Replication};

/// Goal: claims that name their tasks' delays may come with a whole table, and the tasks become ready all the same. Method: each
/// message that carries one, to a follower that missed the operation.
#[test]
fn a_table_that_comes_whole_and_delays_a_task_sets_the_timer() {
    for message in 0..3 {
        let mut cluster = Cluster::new(3);
        let id = cluster.enqueue(0, b"x", 7);
        let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
        let [follower, other] = [1, 2].map(|away| (leader + away) % 3);
        cluster.down.insert(follower);
        let (token, reason) = (cluster.claim(other, 60_000).remove(0).token, String::from("failed"));
        let fail = Request::Fail { id, token, reason, retry_in_ms: 60_000, invalid: false, retry_open: false };
        assert_eq!(cluster.ask(other, fail), Response::Done);
        assert!(!cluster.nodes[follower].timers.is_set(Key::Delayed(partition)));
        let (from, replica) = (cluster.nodes[leader].founding.node, cluster.replica_of(leader, &id));
        let viewstamp = replica.consensus.viewstamp;
        let (table, commit) = (Arc::new(replica.consensus.table.clone()), replica.consensus.commit);
        let digest = table.digest().to_be_bytes();
        let message = match message {
            0 => PeerMessage::Replication(Replication::Snapshot { partition, viewstamp, table, commit }),
            1 => PeerMessage::Election(Election::State { partition, viewstamp, table }),
            _ => {
                let (epoch, base) = (viewstamp.epoch + 1, viewstamp);
                PeerMessage::Replication(Replication::Install { partition, epoch, base, table: Some(table), digest })
            }
        };
        tell(&mut cluster, follower, from, message);
        let node = &cluster.nodes[follower];
        assert!(node.partitions[&partition].store.index().first_due_ms().is_some(), "the task is delayed");
        assert!(node.timers.is_set(Key::Delayed(partition)));
        node.check().expect("nothing is delayed without a timer");
    }
}

/// Goal: a task that was ready stays so when the wall clock goes back, until a replica learns something new of it: repeated facts
/// change nothing, as otherwise it would be delayed without a timer.
#[test]
fn facts_that_teach_nothing_delay_no_task_when_the_wall_clock_goes_back() {
    let mut cluster = Cluster::new(1);
    let id = cluster.id(7);
    let not_before_ms = cluster.now.wall_ms + 1_000;
    let tasks = vec![NewTask { id, spec: Spec { not_before_ms, ..spec(b"x", 0) } }];
    let enqueue = Request::Enqueue { tasks, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, enqueue.clone()), Response::Acked(_)));
    assert_eq!(cluster.get(0, id).state, State::Waiting);
    cluster.advance(2_000);
    assert_eq!(cluster.get(0, id).state, State::Ready);
    cluster.now.wall_ms -= 60_000;
    assert!(matches!(cluster.ask(0, enqueue), Response::Acked(_)));
    let partition = cluster.nodes[0].partition_of(&id);
    assert_eq!(cluster.nodes[0].partitions[&partition].store.index().first_due_ms(), None);
    assert_eq!(cluster.claim(0, 1_000).remove(0).id, id);
}
