//! How a replica learns that it has lost its cohort slot.

use super::*;
use norn_model::cohort::CohortSlot;
use norn_model::host::Room;
use norn_model::message::{Election, PeerMessage, Reconfiguration, Replication};
use norn_model::viewstamp::Viewstamp;

const PARTITION: PartitionId = PartitionId(0);

fn is_held(cluster: &Cluster, index: usize) -> bool {
    cluster.nodes[index].partitions.get(&PARTITION).is_some_and(|replica| !replica.is_blank())
}

/// Nodes that hold the partition, its leader first, and the other nodes.
fn holders(cluster: &Cluster) -> (Vec<usize>, Vec<usize>) {
    let (mut holders, others): (Vec<usize>, Vec<usize>) =
        (0..cluster.nodes.len()).partition(|index| is_held(cluster, *index));
    holders.sort_by_key(|index| !cluster.nodes[*index].partitions[&PARTITION].consensus.established());
    (holders, others)
}

fn arrange(cluster: &mut Cluster, members: [usize; 3]) {
    let nodes = members.map(|index| NodeId(index as u128 + 1)).to_vec();
    assert_eq!(cluster.ask(members[0], Request::Arrange { partition: PARTITION, nodes }), Response::Done);
}

fn draining_replicas(cluster: &Cluster, index: usize) -> Vec<usize> {
    let draining_replicas = &cluster.nodes[index].partitions[&PARTITION].cohort().draining_replicas;
    draining_replicas.iter().map(|draining_replica| draining_replica.slot.replica.node.0 as usize - 1).collect()
}

/// Goal: a node that comes back after it was drained learns of that, though its first questions are lost: its leader does not know
/// it, and sends it nothing unasked. Returns whether its replica is dropped then.
fn is_let_go(config: &Config) -> bool {
    let config = Config { exile_ttl_ms: 1_000, ..config.clone() };
    let mut cluster = Cluster::with_config(4, &config);
    cluster.connect_all();
    cluster.advance(5_000);
    let partition = PARTITION;
    let away = (0..4).rfind(|index| is_held(&cluster, *index)).expect("there are three replicas");
    cluster.down.insert(away);
    let others: Vec<usize> = (0..4).filter(|index| *index != away).collect();
    let nodes: Vec<NodeId> = others.iter().map(|index| NodeId(*index as u128 + 1)).collect();
    assert_eq!(cluster.ask(others[0], Request::Arrange { partition, nodes: nodes.clone() }), Response::Done);
    let cleared = |cluster: &Cluster| {
        let cohort = cluster.nodes[others[0]].partitions.get(&partition).map(Partition::cohort);
        cohort.is_some_and(|cohort| cohort.members().eq(nodes.iter().copied()) && cohort.draining_replicas.is_empty())
    };
    cluster.run_until(cleared);
    cluster.restart(away);
    cluster.connect_all();
    let from_it = NodeId(away as u128 + 1);
    let is_question = |event: &Event| {
        let Event::Peer { from, message: PeerMessage::Replication(Replication::Nack { partition: of, .. }) } = event
        else {
            return false;
        };
        (*from, *of) == (from_it, partition)
    };
    for _ in 0..20_000 {
        cluster.now.mono_us += 1_000;
        cluster.now.wall_ms += 1;
        (0..4).for_each(|index| cluster.queue.push_back((index, Event::Wake)));
        while cluster.handle_next() {
            cluster.queue.retain(|(_, event)| !is_question(event));
        }
    }
    assert!(is_held(&cluster, away), "nobody has heard it");
    cluster.advance(5_000);
    !is_held(&cluster, away)
}

#[test]
fn a_replica_that_lost_its_seat_while_it_was_away_asks_until_it_is_told() {
    assert!(is_let_go(&Config::default()));
}

/// Goal: nodes whose disks are full can be relieved. Another node takes a cohort slot and has what they have, and the leaving one hands
/// over.
#[test]
fn replicas_without_room_make_way_for_another() {
    let mut cluster = Cluster::with_config(4, &Config::default());
    cluster.connect_all();
    cluster.advance(5_000);
    let of_partition = |cluster: &Cluster, id: &TaskId| cluster.nodes[0].partition_of(id) == PARTITION;
    let ids: Vec<TaskId> = (0..8).map(|number| cluster.enqueue(0, b"x", number << 21)).collect();
    assert!(ids.iter().any(|id| of_partition(&cluster, id)));
    cluster.advance(1_000);
    let (held, others) = holders(&cluster);
    held.iter().for_each(|index| cluster.report(*index, Room::Short, 0));
    arrange(&mut cluster, [held[0], held[1], others[0]]);
    cluster.run_until(|cluster| {
        let cohort = cluster.nodes[held[0]].partitions[&PARTITION].cohort();
        cohort.is_stable()
            && cohort.draining_replicas.is_empty()
            && is_held(cluster, others[0])
            && !is_held(cluster, held[2])
    });
    let store = &cluster.nodes[others[0]].partitions[&PARTITION].store;
    assert!(ids.iter().filter(|id| of_partition(&cluster, id)).all(|id| store.task(id).is_some()));
}

/// Goal: this test notices a node that asks only once, which does harm in one of many thousand simulator runs.
#[cfg(feature = "mutants")]
#[test]
fn one_that_asks_no_more_is_noticed() {
    let config = Config { mutant: Some(norn_model::config::Mutant::OutsideUnasked), ..Config::default() };
    assert!(!is_let_go(&config));
}

/// Goal: a replica that was cleared since does not take a late table that builds on the first one, though it stands where all replicas
/// begin: the cohort does not know it, so that it would neither heal nor go.
#[test]
fn a_cleared_replica_takes_no_late_table_that_builds_on_the_first() {
    let mut cluster = Cluster::with_config(4, &Config::default());
    cluster.connect_all();
    cluster.advance(5_000);
    let partition = PartitionId(0);
    let held = move |cluster: &Cluster, index: usize| {
        cluster.nodes[index].partitions.get(&partition).is_some_and(|replica| !replica.is_blank())
    };
    let leads = |cluster: &Cluster, index: usize| {
        cluster.nodes[index].partitions.get(&partition).is_some_and(|replica| replica.consensus.established())
    };
    let leader = (0..4).find(|index| leads(&cluster, *index)).expect("there is a leader");
    let out = (0..4).find(|index| *index != leader && held(&cluster, *index)).expect("there are three replicas");
    let others: Vec<usize> = (0..4).filter(|index| *index != out).collect();
    let nodes: Vec<NodeId> = others.iter().map(|index| NodeId(*index as u128 + 1)).collect();
    assert_eq!(cluster.ask(leader, Request::Arrange { partition, nodes }), Response::Done);
    cluster.run_until(|cluster| !held(cluster, out));
    let consensus = &cluster.nodes[out].partitions[&partition].consensus;
    let (epoch, digest) = (consensus.promised, consensus.table.digest().to_be_bytes());
    let late = PeerMessage::Replication(Replication::Install {
        partition,
        epoch,
        base: Default::default(),
        table: None,
        digest,
    });
    let mut effects = Vec::new();
    let from = NodeId(leader as u128 + 1);
    cluster.nodes[out].step(cluster.now, Event::Peer { from, message: late }, &mut effects);
    assert!(!held(&cluster, out));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Persist { .. })), "{effects:?}");
}

/// Goal: a replica that has left its partition does not take a late table of the time before.
#[test]
fn a_replica_that_has_left_takes_no_late_table() {
    let mut cluster = Cluster::modern(4);
    let (members, others) = holders(&cluster);
    let (leader, leaver) = (members[0], members[1]);
    let consensus = &cluster.nodes[leader].partitions[&PARTITION].consensus;
    let (viewstamp, table, commit) = (consensus.viewstamp, Arc::new(consensus.table.clone()), consensus.commit);
    arrange(&mut cluster, [leader, members[2], others[0]]);
    cluster.run_until(|cluster| !is_held(cluster, leaver));
    let logged = cluster.logs[leaver].len();
    for message in [
        PeerMessage::Election(Election::State { partition: PARTITION, viewstamp, table: table.clone() }),
        PeerMessage::Replication(Replication::Snapshot { partition: PARTITION, viewstamp, table, commit }),
    ] {
        cluster.deliver(leader, leaver, message);
        assert!(!is_held(&cluster, leaver) && cluster.logs[leaver].len() == logged);
    }
}

/// Goal: a replica that was cleared unheard becomes a draining replica again although another draining replica is dead, whose protocol
/// version the leader cannot know; and that draining replica follows once it is back, although its program does not know the operation.
#[test]
fn a_leader_takes_a_cleared_replica_back_beside_a_dead_exile() {
    let mut cluster = Cluster::modern(5);
    let (members, others) = holders(&cluster);
    let (leader, dead, undrained) = (members[0], members[1], others[1]);
    cluster.down.insert(dead);
    cluster.advance(1_000);
    arrange(&mut cluster, [leader, members[2], others[0]]);
    cluster.run_until(|cluster| draining_replicas(cluster, leader) == [dead]);
    cluster.advance(1_000);
    let slot = CohortSlot { replica: cluster.nodes[undrained].own_id(), since: Viewstamp::default() };
    cluster.deliver(
        undrained,
        leader,
        PeerMessage::Reconfiguration(Reconfiguration::Undrained { partition: PARTITION, slot }),
    );
    assert_eq!(draining_replicas(&cluster, leader), [dead, undrained]);
    assert!(is_held(&cluster, undrained), "it may hand over what it has");
    cluster.restart(dead);
    cluster.run_until(|cluster| draining_replicas(cluster, leader).is_empty());
    cluster.run_until(|cluster| !is_held(cluster, dead) && !is_held(cluster, undrained));
}
