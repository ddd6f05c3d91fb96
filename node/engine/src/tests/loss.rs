//! Replicas that start without a part of their log.

use super::*;
use norn_model::data_loss::DataLoss;
use norn_model::host::Room;
use norn_model::limits::OPS_KEPT_MAX;
use norn_model::message::{Election, Replication};
use norn_wire::PartitionId;
use norn_wire::response::{Guarantee, Health};

impl Cluster {
    /// Ordinals of the records in a node's log for which `of` holds.
    pub(super) fn places(&self, index: usize, of: impl Fn(&Record) -> bool) -> BTreeSet<u64> {
        (0..).zip(&self.logs[index]).filter(|(_, record)| of(record)).map(|(ordinal, _)| ordinal).collect()
    }

    /// State of a node after a replay of its log without some lost records.
    pub(super) fn replay_without(&self, index: usize, lost: &BTreeSet<u64>) -> Node {
        let config = Config::clone(&self.nodes[index].config);
        let mut node = Node::new(Founding { config, ..founding(index) }, 99);
        for (ordinal, record) in (0..).zip(self.logs[index].clone()) {
            if lost.contains(&ordinal) {
                let data_loss = record.kind().data_loss().expect("a record of a replica's state");
                node.lose(record.partition().expect("it has one"), ordinal, data_loss).expect("it is held here");
            } else {
                node.recover(record, false, None).expect("what is left fits");
            }
        }
        node
    }

    pub(super) fn restart_without(&mut self, index: usize, lost: &BTreeSet<u64>) {
        self.queue.retain(|(at, _)| *at != index);
        self.down.remove(&index);
        let mut node = self.replay_without(index, lost);
        let mut effects = Vec::new();
        node.start(self.now, self.logs[index].len() as u64, &mut effects);
        self.nodes[index] = node;
        self.carry_out(index, effects);
        self.drain();
    }

    fn replica(&self, index: usize, id: &TaskId) -> &Partition {
        &self.nodes[index].partitions[&self.nodes[0].partition_of(id)]
    }

    fn data_loss(&self, index: usize, id: &TaskId) -> DataLoss {
        self.replica(index, id).loss_recovery.data_loss
    }

    fn health(&mut self, index: usize, id: &TaskId) -> Option<Health> {
        let partition = self.nodes[0].partition_of(id);
        match self.ask(index, Request::Partitions) {
            Response::Partitions(views) => views.iter().find(|view| view.partition == partition)?.health,
            other => panic!("{other:?}"),
        }
    }
}

fn is_facts(record: &Record) -> bool {
    matches!(record, Record::Facts { .. })
}

fn is_table(record: &Record) -> bool {
    matches!(record, Record::Install { .. } | Record::Ops { .. })
}

#[test]
fn holes_are_filled_by_both_others_and_not_by_one() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.advance(1_000);
    let (lossy, away) = (0, 1);
    let lost = cluster.places(lossy, is_facts);
    cluster.down.insert(away);
    cluster.restart_without(lossy, &lost);
    assert!(cluster.replica(lossy, &id).store.task(&id).is_none());
    cluster.advance(5_000);
    assert!(cluster.replica(lossy, &id).store.task(&id).is_some(), "the other has told it");
    assert_eq!(cluster.data_loss(lossy, &id), DataLoss { facts: true, table: false }, "one other is not enough");
    assert_eq!(cluster.health(lossy, &id), Some(Health::Holes));
    cluster.restart(away);
    cluster.run_until(|cluster| cluster.data_loss(lossy, &id).is_whole());
    assert_eq!(cluster.health(lossy, &id), Some(Health::Whole));

    // The damage is still there at the next start, and known to be healed; another one is not.
    cluster.restart_without(lossy, &lost);
    assert!(cluster.data_loss(lossy, &id).is_whole());
    let more = cluster.places(lossy, is_facts);
    cluster.restart_without(lossy, &more);
    assert!(!cluster.data_loss(lossy, &id).is_whole());
}

/// Goal: a disk without space for new tasks keeps no other replica from having all that exists.
#[test]
fn holes_are_filled_by_others_that_are_short_of_room() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.advance(1_000);
    let lost = cluster.places(0, is_facts);
    (1..3).for_each(|other| cluster.report(other, Room::Short, 0));
    cluster.restart_without(0, &lost);
    assert!(!cluster.data_loss(0, &id).is_whole());
    cluster.run_until(|cluster| cluster.data_loss(0, &id).is_whole());
    assert!(cluster.replica(0, &id).store.task(&id).is_some());
}

/// Goal: what heals another replica does not fill a disk that is short of space.
#[test]
fn a_replica_that_is_short_of_room_is_told_no_new_task() {
    let mut cluster = Cluster::new(3);
    let known = cluster.enqueue(0, b"x", 9);
    cluster.advance(1_000);
    let lost = cluster.places(0, is_facts);
    cluster.report(1, Room::Short, 0);
    let more = cluster.enqueue(0, b"y", 10);
    cluster.restart_without(0, &lost);
    cluster.advance(10_000);
    assert!(cluster.replica(0, &known).store.task(&known).is_some());
    assert!(cluster.replica(1, &more).store.task(&more).is_none());
    cluster.report(1, Room::Ample, 0);
    cluster.run_until(|cluster| cluster.replica(1, &more).store.task(&more).is_some());
    cluster.run_until(|cluster| cluster.data_loss(0, &known).is_whole());
}

#[test]
fn a_replica_with_holes_stores_but_does_not_count() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let (lossy, away) = ((leader + 1) % 3, (leader + 2) % 3);
    let lost = cluster.places(lossy, is_facts);
    cluster.down.insert(away);
    cluster.restart_without(lossy, &lost);
    cluster.advance(1_000);
    assert!(cluster.replica(leader, &id).consensus.established(), "it leads as before");

    let get = Request::Get { id, minimum: None, minimum_sequence: None };
    assert!(matches!(cluster.ask(leader, get), Response::Error(error) if error.code == ErrorCode::Unavailable));
    let cancel = |acks| Request::Cancel { id, reason: String::new(), at_ms: 1, acks };
    let strict = cluster.ask(leader, cancel(Acks::Quorum));
    assert!(matches!(&strict, Response::Error(error) if error.code == ErrorCode::Unknown), "{strict:?}");
    let sloppy = cluster.ask(leader, cancel(Acks::One));
    assert!(matches!(&sloppy, Response::AckedOne(acked) if acked.guarantee == Guarantee::Sloppy), "{sloppy:?}");

    let other = cluster.id(9);
    let tasks = vec![NewTask { id: other, spec: spec(b"y", 0) }];
    cluster.ask(leader, Request::Enqueue { tasks, acks: Acks::One });
    let claim = Request::Claim(claim_of(ClaimId(77), 60_000, 1));
    let granted = |response: &Response| matches!(response, Response::Claimed { tasks, .. } if !tasks.is_empty());
    assert!(!granted(&cluster.ask(leader, claim.clone())), "the leader alone knows what has not ended");
    // The call is over, and its client leaves it.
    let leave = Request::Leave { claim: ClaimId(77), elsewhere: true, keeps: Vec::new(), over: true };
    assert_eq!(cluster.ask(leader, leave), Response::Done);

    cluster.restart(away);
    cluster.run_until(|cluster| cluster.data_loss(lossy, &id).is_whole());
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    let patient = Claim { wait_ms: 5_000, ..claim_of(ClaimId(78), 60_000, 1) };
    let response = cluster.ask(leader, Request::Claim(patient));
    assert!(granted(&response), "{response:?}");
    assert_eq!(cluster.get(lossy, id).state, State::Cancelled);
}

#[test]
fn a_replica_that_lost_claims_does_not_vote_until_a_leader_has_brought_it_up_to_date() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    let token = cluster.claim(0, 60_000).remove(0).token;
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let (lossy, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let lost = cluster.places(lossy, is_table);

    // Without the leader there is only one left that may vote.
    cluster.down.insert(leader);
    cluster.restart_without(lossy, &lost);
    cluster.advance(5_000);
    assert_eq!(cluster.data_loss(lossy, &id), DataLoss { facts: true, table: true });
    assert_eq!(cluster.health(lossy, &id), Some(Health::Recovering));
    assert!([lossy, other].into_iter().all(|index| cluster.replica(index, &id).consensus.leading().is_none()));

    cluster.restart(leader);
    cluster.run_until(|cluster| cluster.data_loss(lossy, &id).is_whole());
    let viewstamps = [leader, lossy, other].map(|index| cluster.replica(index, &id).consensus.viewstamp);
    assert!(viewstamps.iter().all(|viewstamp| *viewstamp == viewstamps[0]), "{viewstamps:?}");

    // Now it counts, and what it lost is there again.
    cluster.restart_without(lossy, &lost);
    assert!(cluster.data_loss(lossy, &id).is_whole(), "the record knows of the loss");
    cluster.down.insert(leader);
    cluster.run_until(|cluster| cluster.nodes[lossy].is_serving());
    let renew = Request::Renew { items: vec![(id, token)], lease_ms: None };
    assert_eq!(cluster.ask(lossy, renew), Response::Renewed(vec![Ok(60_000)]));
}

#[test]
fn a_leader_of_the_promised_epoch_repairs_a_quiet_partition() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.claim(0, 60_000);
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let epoch = cluster.replica(leader, &id).consensus.viewstamp.epoch;
    let lossy = (leader + 1) % 3;
    let lost = cluster.places(lossy, |record| matches!(record, Record::Ops { .. }));
    cluster.restart_without(lossy, &lost);
    cluster.run_until(|cluster| cluster.data_loss(lossy, &id).is_whole());
    let viewstamps = [leader, lossy].map(|index| cluster.replica(index, &id).consensus.viewstamp);
    assert_eq!((viewstamps[0], viewstamps[0].epoch), (viewstamps[1], epoch), "no election was needed");
}

/// A replica that lost its table is sent its leader's, and does not learn how long its own was. Returns its length, the leader's, and
/// the loss that is left.
fn installed_at_one_that_lost_its_table(config: &Config) -> ([u64; 2], DataLoss) {
    let mut cluster = Cluster::with_config(3, config);
    let id = cluster.enqueue(0, b"x", 9);
    cluster.claim(0, 60_000);
    cluster.advance(1_000);
    let leader = cluster.leader(&id);
    let lossy = (leader + 1) % 3;
    let lost = cluster.places(lossy, is_table);
    cluster.down.insert(leader);
    cluster.restart_without(lossy, &lost);
    cluster.down.remove(&leader);
    for _ in 0..2_000 {
        cluster.now.mono_us += 1_000;
        cluster.now.wall_ms += 1;
        (0..3).for_each(|index| cluster.queue.push_back((index, Event::Wake)));
        while cluster.handle_next() {
            cluster.queue.retain(|(_, event)| {
                !matches!(event, Event::Peer { message: PeerMessage::Replication(Replication::Rejoined { .. }), .. })
            });
        }
    }
    let length = |index: usize| cluster.replica(index, &id).consensus.viewstamp.length;
    ([length(lossy), length(leader)], cluster.data_loss(lossy, &id))
}

/// Goal: a leader's table may be less than what the replica promised to another leader, so the table alone does not let it vote again.
#[test]
fn a_replica_that_lost_its_table_does_not_count_by_an_installation_alone() {
    let ([own, leaders], data_loss) = installed_at_one_that_lost_its_table(&Config::default());
    assert!(own == leaders && data_loss.table, "{own} of {leaders}: {data_loss:?}");
}

/// Goal: this test notices a replica that votes again by the table alone, which does harm in one of a thousand simulator runs.
#[cfg(feature = "mutants")]
#[test]
fn a_replica_that_counts_by_an_installation_alone_is_noticed() {
    let config = Config { mutant: Some(norn_model::config::Mutant::RegainsByInstall), ..Config::default() };
    let (lengths, data_loss) = installed_at_one_that_lost_its_table(&config);
    assert!(!data_loss.table, "{lengths:?}: {data_loss:?}");
}

#[test]
fn what_nobody_else_has_is_lost_for_good() {
    let alone = Cluster::new(1);
    let table = alone.places(0, |record| matches!(record, Record::Install { .. }));
    // The task partitions, and the root.
    assert_eq!(alone.replay_without(0, &table).lost_for_good().len(), PARTITIONS as usize + 1);
    assert_eq!(alone.replay_without(0, &BTreeSet::new()).lost_for_good(), Vec::new());
    let three = Cluster::new(3);
    let table = three.places(0, is_table);
    assert!(!table.is_empty());
    assert_eq!(three.replay_without(0, &table).lost_for_good(), Vec::new());
}

/// Goal: a node whose log ends with a cohort of two starts, as the lost records may have let it grow again.
#[test]
fn a_cohort_that_is_smaller_than_founded_may_have_grown_since() {
    let mut cluster = Cluster::with_config(3, &Config::default());
    cluster.connect_all();
    cluster.advance(5_000);
    let id = cluster.enqueue(0, b"x", 9);
    let partition = cluster.nodes[0].partition_of(&id);
    let lossy = 0;
    let arrange = |cluster: &mut Cluster, count: u128| {
        let nodes: Vec<NodeId> = (1..=count).map(NodeId).collect();
        assert_eq!(cluster.ask(0, Request::Arrange { partition, nodes: nodes.clone() }), Response::Done);
        cluster.run_until(|cluster| {
            let cohort = cluster.replica(lossy, &id).cohort();
            cohort.is_stable() && cohort.members().collect::<BTreeSet<_>>() == nodes.iter().copied().collect()
        });
    };
    arrange(&mut cluster, 2);
    let small = cluster.logs[lossy].len() as u64;
    arrange(&mut cluster, 3);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.data_loss(index, &id).is_whole()));
    let mut lost = cluster.places(lossy, |record| is_table(record) && record.partition() == Some(partition));
    lost.retain(|ordinal| *ordinal >= small);
    assert!(!lost.is_empty());
    let replayed = cluster.replay_without(lossy, &lost);
    assert_eq!(replayed.partitions[&partition].cohort().members().count(), 2, "so much is left");
    assert_eq!(replayed.lost_for_good(), Vec::new());
    cluster.restart_without(lossy, &lost);
    cluster.connect_all();
    cluster.run_until(|cluster| cluster.data_loss(lossy, &id).is_whole());
    assert_eq!(cluster.replica(lossy, &id).cohort().members().count(), 3);
}

/// Goal: a message with an absurd epoch does not use up all epochs.
#[test]
fn an_epoch_far_ahead_is_not_believed() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    let partition = *cluster.nodes[0].partitions.keys().next().expect("it holds some");
    let candidate = cluster.nodes[1].partitions[&partition].consensus.me;
    let viewstamp = norn_model::viewstamp::Viewstamp { epoch: u64::MAX - 1, length: 0 };
    let before = cluster.nodes[0].partitions[&partition].consensus.seen;
    for message in [
        PeerMessage::Election(Election::PreVote { partition, epoch: u64::MAX, viewstamp }),
        PeerMessage::Election(Election::Vote { partition, epoch: u64::MAX, candidate, viewstamp }),
    ] {
        let mut effects = Vec::new();
        cluster.nodes[0].step(cluster.now, Event::Peer { from: NodeId(2), message }, &mut effects);
        assert!(
            !effects.iter().any(|effect| matches!(effect, Effect::Send { .. } | Effect::Persist { .. })),
            "{effects:?}"
        );
        assert_eq!(cluster.nodes[0].partitions[&partition].consensus.seen, before);
    }
}

/// A loss in the log of a node may concern any partition, even one whose replica comes later. That replica is healed of it, and the
/// next start, which finds the loss again before the first record of the replica, counts it as healed.
#[test]
fn a_replica_that_comes_after_a_loss_and_is_healed_is_whole_in_the_next_start() {
    const LOSS: u64 = 7;
    let cluster = Cluster::new(3);
    let partition = PartitionId(1);
    let genesis = cluster.nodes[0].genesis.clone().expect("it is founded");
    let log = || {
        let mut node = Node::new(founding(0), 99);
        node.recover(Record::Genesis(genesis.clone()), false, None).expect("its own");
        node.partitions.remove(&partition);
        node.lose_anywhere(LOSS);
        node
    };
    let came = log().blank_replica(partition);
    let both = DataLoss { facts: true, table: true };
    assert_eq!(came.loss_recovery.data_loss, both);
    let mut next = log();
    for data_loss in [both, DataLoss::default()] {
        let record = Record::DataLoss { partition, data_loss, losses: came.loss_recovery.losses };
        next.recover(record, false, None).expect("it is its own");
        assert_eq!(next.partitions[&partition].loss_recovery.data_loss, data_loss);
    }
    assert!(
        !next.partitions.get_mut(&partition).expect("it is there").loss_recovery.end_replay(),
        "there is nothing to tell"
    );
}

/// Goal: a node without the replica on which its leader counts reports that, and gets all of it.
#[test]
fn what_builds_on_a_table_that_is_not_held_is_refused() {
    let mut cluster = Cluster::with_config(4, &Config::default());
    cluster.connect_all();
    cluster.advance(5_000);
    let id = cluster.enqueue(0, b"x", 9);
    let partition = cluster.nodes[0].partition_of(&id);
    let held = move |cluster: &Cluster, index: usize| {
        let replica = cluster.nodes[index].partitions.get(&partition);
        replica.is_some_and(|replica| {
            !replica.is_blank() && replica.loss_recovery.data_loss.is_whole() && replica.store.knows(&id)
        })
    };
    let outside = (0..4).find(|index| !held(&cluster, *index)).expect("there are three replicas");
    let image = cluster.logs[outside].clone();
    let nodes = [outside, (outside + 1) % 4, (outside + 2) % 4].map(|index| NodeId(index as u128 + 1)).to_vec();
    assert_eq!(cluster.ask(0, Request::Arrange { partition, nodes }), Response::Done);
    cluster.run_until(|cluster| held(cluster, outside));
    cluster.run_until(|cluster| cluster.nodes[outside].partitions[&partition].cohort().is_stable());
    // All stop at once, so no node remembers that it had more than it comes back with.
    cluster.logs[outside] = image;
    (0..4).for_each(|index| cluster.restart(index));
    cluster.connect_all();
    assert!(!held(&cluster, outside));
    cluster.run_until(|cluster| held(cluster, outside));
}

/// Goal: a claim of a task that no replica has any more does not block other work.
#[test]
fn a_repeated_claim_whose_task_has_lost_its_spec_takes_another() {
    let mut cluster = Cluster::new(3);
    let lost = cluster.enqueue(0, b"lost", 9);
    let repeat = Claim { repeated: true, ..claim_of(ClaimId(77), 60_000, 1) };
    assert!(
        matches!(cluster.ask(0, Request::Claim(repeat.clone())), Response::Claimed { tasks, .. } if tasks[0].id == lost)
    );
    let partition = cluster.nodes[0].partition_of(&lost);
    for node in &mut cluster.nodes {
        node.partitions.get_mut(&partition).expect("held").store.forget(&lost);
        node.count_bodies(partition);
    }
    let other = cluster.enqueue(0, b"other", 9);
    let Response::Claimed { tasks, .. } = cluster.ask(0, Request::Claim(repeat)) else { panic!() };
    assert_eq!(tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [other]);
}

/// Goal: a leader keeps a bounded number of operations for its followers, and sends its table to one that is behind more of them.
#[test]
fn a_follower_that_missed_more_operations_than_are_kept_gets_the_table() {
    let mut cluster = Cluster::new(3);
    let id = cluster.enqueue(0, b"long", 7);
    let token = cluster.claim(0, 60_000).remove(0).token;
    let leader = cluster.leader(&id);
    let follower = (leader + 1) % 3;
    cluster.down.insert(follower);
    for _ in 0..=OPS_KEPT_MAX {
        let renewed = cluster.ask(leader, Request::Renew { items: vec![(id, token)], lease_ms: None });
        assert_eq!(renewed, Response::Renewed(vec![Ok(60_000)]));
    }
    let is_snapshot = |(index, observation): &&(usize, Observation)| {
        *index == leader && matches!(observation, Observation::SnapshotSent { .. })
    };
    let before = cluster.observed.iter().filter(is_snapshot).count();
    cluster.restart(follower);
    let viewstamp = cluster.replica_of(leader, &id).consensus.viewstamp;
    cluster.run_until(|cluster| cluster.replica_of(follower, &id).consensus.viewstamp >= viewstamp);
    assert!(cluster.observed.iter().filter(is_snapshot).count() > before);
}
