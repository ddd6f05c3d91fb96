//! Unsafe recovery: a majority is lost, and the survivors go on by an operator's order.

use super::hints::go_on;
use super::*;
use norn_model::limits::RESCUE_EPOCHS;
use norn_model::message::{Reconfiguration, Replication};
use norn_wire::membership::Remnant;

const LEASE_MS: u64 = 5_000;

fn all() -> Vec<PartitionId> {
    (0..PARTITIONS as u16).map(PartitionId).collect()
}

fn recover(lost: &[u128], partitions: &[PartitionId]) -> Request {
    let lost = lost.iter().copied().map(NodeId).collect();
    Request::Recover { lost, partitions: partitions.to_vec(), lease_ms: LEASE_MS }
}

impl Cluster {
    fn remnants(&mut self, index: usize, lost: &[u128]) -> Vec<Remnant> {
        match self.ask(index, recover(lost, &[])) {
            Response::Remnants(remnants) => remnants,
            other => panic!("{other:?}"),
        }
    }

    /// Stops the nodes of these indices; the others notice.
    fn lose(&mut self, indices: &[usize]) {
        self.down.extend(indices);
        self.advance(3_000);
    }

    /// Nodes 1 and 2 are lost, and node 0 goes on alone. Returns a task that all have, and one that only the lost nodes have.
    fn lose_two_with_a_task_of_their_own(&mut self) -> (TaskId, TaskId) {
        let id = self.enqueue(0, b"both", 1);
        self.down.insert(0);
        self.advance(2_000);
        let only = self.enqueue(1, b"theirs", 1);
        self.down.remove(&0);
        self.lose(&[1, 2]);
        let held: Vec<PartitionId> = self.remnants(0, &[2, 3]).iter().map(|remnant| remnant.partition).collect();
        self.ask(0, recover(&[2, 3], &held));
        (id, only)
    }

    fn all_led(&self, index: usize) -> bool {
        self.nodes[index].partitions.values().all(|replica| replica.consensus.established())
    }
}

fn refusal(response: Response) -> String {
    match response {
        Response::Error(error) => error.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_is_left_goes_on_alone_and_grants_nothing_before_all_leases_have_run_out() {
    let mut cluster = Cluster::new(3);
    let ids: Vec<TaskId> = (0..4).map(|number| cluster.enqueue(0, b"x", number << 22)).collect();
    let before = cluster.claim(0, LEASE_MS).remove(0);
    // What the two others decide without it may be lost.
    cluster.down.insert(0);
    cluster.advance(2_000);
    let unheard = cluster.claim(1, LEASE_MS).remove(0);
    cluster.down.remove(&0);
    cluster.lose(&[1, 2]);
    let lost = [2, 3];
    let remnants = cluster.remnants(0, &lost);
    assert_eq!(remnants.iter().map(|remnant| remnant.partition).collect::<Vec<_>>()[..4], all());
    assert!(remnants.iter().all(|remnant| remnant.left == [NodeId(1)] && remnant.obstacle.is_none()), "{remnants:?}");
    assert_eq!(remnants.iter().map(|remnant| remnant.tasks).sum::<u64>(), 4);
    let held: Vec<PartitionId> = remnants.iter().map(|remnant| remnant.partition).collect();
    assert!(matches!(cluster.ask(0, recover(&lost, &held)), Response::Remnants(_)));
    cluster.run_until(|cluster| cluster.all_led(0));
    assert_eq!(cluster.remnants(0, &lost), [], "nothing is left to do");
    let silent_ms = cluster.now.wall_ms + LEASE_MS;
    let mut granted = Vec::new();
    while granted.len() < ids.len() {
        cluster.number += 1;
        let claim = claim_of(ClaimId(u128::from(cluster.number)), 60_000, 4);
        let Response::Claimed { tasks, unavailable, .. } = cluster.ask(0, Request::Claim(claim)) else { panic!() };
        assert!(!tasks.is_empty() || unavailable > 0, "nobody is told that there is nothing");
        assert!(tasks.is_empty() || cluster.now.wall_ms >= silent_ms, "{tasks:?} while leases may run");
        granted.extend(tasks);
        cluster.advance(100);
        assert!(cluster.now.wall_ms < silent_ms + 60_000, "{granted:?}");
    }
    let token = |id: &TaskId| granted.iter().find(|task| task.id == *id).expect("it is granted again").token;
    for id in [&before, &unheard].map(|task| &task.id) {
        assert!(token(id).epoch > RESCUE_EPOCHS && token(id) > before.token.max(unheard.token));
    }
    let id = ids[0];
    assert!(matches!(cluster.complete(0, id, token(&id)), Response::Acked(_)));
}

/// An operator's wrong statement about the leases in use does not count if a survivor knows a longer one.
#[test]
fn the_silence_is_not_shorter_than_a_lease_that_is_known() {
    let mut cluster = Cluster::new(3);
    cluster.enqueue(0, b"x", 1);
    let claimed = cluster.claim(0, 10 * LEASE_MS).remove(0);
    cluster.lose(&[1, 2]);
    let held: Vec<PartitionId> = cluster.remnants(0, &[2, 3]).iter().map(|remnant| remnant.partition).collect();
    cluster.ask(0, recover(&[2, 3], &held));
    cluster.run_until(|cluster| cluster.all_led(0));
    let partition = cluster.nodes[0].partition_of(&claimed.id);
    let lease_ms = |partition: &PartitionId| {
        cluster.nodes[0].partitions[partition].consensus.cohort.quarantine.map(|quarantine| quarantine.lease_ms)
    };
    assert_eq!(lease_ms(&partition), Some(10 * LEASE_MS));
    let others = all().into_iter().filter(|other| *other != partition);
    assert!(others.into_iter().all(|other| lease_ms(&other) == Some(LEASE_MS)));
}

#[test]
fn it_is_refused_where_it_is_not_the_last_resort() {
    let mut cluster = Cluster::new(3);
    cluster.enqueue(0, b"x", 1);
    let message = refusal(cluster.ask(0, recover(&[2, 3], &all())));
    assert!(message.contains("n1 is alive"), "{message}");
    cluster.lose(&[2]);
    assert_eq!(cluster.remnants(0, &[3]), [], "two of three are a majority");
    let message = refusal(cluster.ask(0, recover(&[3], &all())));
    assert!(message.contains("needs no recovery"), "{message}");
    let message = refusal(cluster.ask(0, recover(&[2, 3], &all())));
    assert!(message.contains("n1 is alive"), "{message}");
    let epochs = |cluster: &Cluster| cluster.nodes[0].partitions.values().map(|of| of.consensus.promised).max();
    assert!(epochs(&cluster) < Some(RESCUE_EPOCHS), "nothing was begun");
    let Response::Error(error) = cluster.ask(0, Request::Recover { lost: vec![], partitions: vec![], lease_ms: 5_000 })
    else {
        panic!()
    };
    assert_eq!(error.code, ErrorCode::Invalid);
}

#[test]
fn it_outlives_a_restart_and_so_does_what_has_passed_of_the_silence() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 1);
    cluster.lose(&[1, 2]);
    // No node answers the new start, and that blocks nothing.
    cluster.restart(0);
    cluster.advance(1_000);
    let held: Vec<PartitionId> = cluster.remnants(0, &[2, 3]).iter().map(|remnant| remnant.partition).collect();
    cluster.ask(0, recover(&[2, 3], &held));
    cluster.run_until(|cluster| cluster.all_led(0));
    let silent_us = cluster.now.mono_us;
    // The wall clock, which goes on, adds the bound of clocks twice to the lease.
    cluster.advance(LEASE_MS * 3 / 4);
    cluster.restart(0);
    let again_us = cluster.now.mono_us;
    cluster.run_until(|cluster| cluster.all_led(0));
    let silent = |cluster: &Cluster| {
        let partition = cluster.nodes[0].partition_of(&id);
        cluster.nodes[0].partitions[&partition].consensus.cohort.quarantine.is_some()
    };
    assert!(silent(&cluster));
    cluster.run_until(|cluster| !silent(cluster));
    assert!(cluster.now.mono_us >= silent_us + LEASE_MS * 1_000, "every lease of before is over");
    assert!(cluster.now.mono_us <= again_us + (LEASE_MS - 1_000) * 1_000, "it has not begun anew");
    assert_eq!(cluster.claim(0, 1_000).remove(0).id, id);
}

// S46
#[test]
fn the_lost_that_come_back_hand_over_what_they_have_and_go() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (id, only) = cluster.lose_two_with_a_task_of_their_own();
    cluster.run_until(|cluster| cluster.all_led(0));
    cluster.restart(1);
    cluster.restart(2);
    cluster.connect_all();
    let partition = cluster.nodes[0].partition_of(&id);
    let alone = move |cluster: &Cluster| {
        let replica = &cluster.nodes[0].partitions[&partition];
        replica.cohort().draining_replicas.is_empty() && replica.consensus.established()
    };
    cluster.run_until(alone);
    assert_eq!(cluster.nodes[0].partitions[&partition].cohort().members().collect::<Vec<_>>(), [NodeId(1)]);
    assert_eq!(cluster.get(0, only).spec.payload, b"theirs", "it is not lost after all");
    let gone = |cluster: &Cluster, index: usize| {
        cluster.nodes[index].partitions.get(&partition).is_none_or(|replica| replica.is_blank())
    };
    cluster.run_until(|cluster| (1..3).all(|index| gone(cluster, index)));
}

/// Whether node 0 leads a cohort of its own, without draining replicas.
fn is_alone(cluster: &Cluster, partition: PartitionId) -> bool {
    let replica = &cluster.nodes[0].partitions[&partition];
    replica.cohort().draining_replicas.is_empty()
        && replica.consensus.established()
        && replica.cohort().members.len() == 1
}

/// Nodes 1 and 2 are lost and cleared unheard; the task is on their disks alone.
fn cleared_unheard() -> (Cluster, TaskId) {
    let mut cluster = Cluster::with_config(3, &Config { exile_ttl_ms: 1_000, ..Config::default() });
    cluster.connect_all();
    let (_, only) = cluster.lose_two_with_a_task_of_their_own();
    let partition = cluster.nodes[0].partition_of(&only);
    cluster.run_until(|cluster| is_alone(cluster, partition));
    // The quarantine is over as well: nothing changes the cohort any more.
    cluster.advance(LEASE_MS + 2_000);
    assert!(is_alone(&cluster, partition), "they are cleared unheard");
    (cluster, only)
}

/// Node 1 hands the task over and leaves.
fn hands_over(cluster: &mut Cluster, only: TaskId) {
    let partition = cluster.nodes[0].partition_of(&only);
    cluster.run_until(|cluster| cluster.nodes[0].partitions[&partition].store.knows(&only));
    cluster.run_until(|cluster| cluster.nodes[1].partitions[&partition].is_blank() && is_alone(cluster, partition));
    assert_eq!(cluster.get(0, only).spec.payload, b"theirs");
}

/// Goal: an acknowledged write that is on one disk alone is recovered however long that disk was away.
#[test]
fn the_lost_for_whom_nobody_waits_any_more_hand_over_what_they_have_all_the_same() {
    let (mut cluster, only) = cleared_unheard();
    cluster.restart(1);
    cluster.connect_all();
    hands_over(&mut cluster, only);
}

/// Goal: a lost node asks again until its leader has received it, though the leader sends only once that it is out. Method: its
/// questions are lost for a while.
#[test]
fn a_lost_node_asks_to_be_taken_back_until_it_is_heard() {
    let (mut cluster, only) = cleared_unheard();
    cluster.restart(1);
    cluster.connect_all();
    let mut asked = 0;
    go_on(&mut cluster, 3_000, |_, _, event| {
        let asks = matches!(
            &event,
            Event::Peer { message: PeerMessage::Reconfiguration(Reconfiguration::Undrained { .. }), .. }
        );
        asked += usize::from(asks);
        (!asks).then_some(event)
    });
    assert!(asked > 0, "it knows that it is out");
    hands_over(&mut cluster, only);
}

/// Goal: a lost node repeats its question no more often than anything else, though each is answered with what it knows already. Method:
/// its leader does not take it back, but sends once more that it is out.
#[test]
fn a_lost_node_that_hears_again_that_it_is_out_asks_no_sooner() {
    let (mut cluster, only) = cleared_unheard();
    cluster.restart(1);
    cluster.connect_all();
    let (resend_ms, for_ms) = (cluster.nodes[1].config.resend_ms, 3_000);
    let (mut asked, mut told) = (0, 0);
    go_on(&mut cluster, for_ms, |cluster, _, event| match event {
        Event::Peer { from, message: PeerMessage::Reconfiguration(Reconfiguration::Undrained { partition, slot }) } => {
            asked += 1;
            let replica = &cluster.nodes[1].partitions[&partition];
            let (promised, viewstamp) = (replica.consensus.promised, replica.consensus.viewstamp);
            Some(Event::Peer {
                from,
                message: PeerMessage::Replication(Replication::Nack {
                    partition,
                    replica: slot.replica,
                    promised,
                    viewstamp,
                }),
            })
        }
        Event::Peer { message: PeerMessage::Reconfiguration(Reconfiguration::Outside { .. }), .. } => {
            told += 1;
            Some(event)
        }
        event => Some(event),
    });
    let undrained = cluster.nodes[1].partitions.keys().filter(|id| cluster.nodes[1].is_out(**id)).count() as u64;
    assert!(undrained > 0 && told >= asked, "each question was answered");
    let times = asked / undrained;
    assert!(
        (for_ms / resend_ms / 2..=for_ms / resend_ms + 2).contains(&times),
        "{times} times for each of {undrained}"
    );
    hands_over(&mut cluster, only);
}
