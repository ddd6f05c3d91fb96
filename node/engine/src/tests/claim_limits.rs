//! Claims that are limited in number at the same time.

use super::claim_rates::{queue_in, queue_with, rate};
use super::hints::go_on;
use super::policies::is_changed;
use super::*;
use norn_model::message::{Election, Limiting, Replication};
use norn_wire::error::ErrorCode;
use norn_wire::membership::{Backoff, Mode, QueueSetting};

impl Cluster {
    /// Claims a task and waits for it.
    pub(super) fn claim_for(&mut self, index: usize, wait_ms: u64, lease_ms: u64) -> Vec<norn_wire::Granted> {
        self.number += 1;
        let claim = Claim { wait_ms, ..claim_of(ClaimId(u128::from(self.number)), lease_ms, 1) };
        match self.ask(index, Request::Claim(claim)) {
            Response::Claimed { tasks, .. } => tasks,
            Response::Error(_) => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// Claims at all nodes in turn until none grants anything more.
    fn claim_all(&mut self) -> Vec<norn_wire::Granted> {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|index| !self.down.contains(index)).collect();
        let (mut all, mut vain) = (Vec::new(), 0);
        for index in up.iter().cycle().copied() {
            let granted = self.claim_for(index, 1_000, 600_000);
            vain = if granted.is_empty() { vain + 1 } else { 0 };
            all.extend(granted);
            if vain == up.len() {
                break;
            }
        }
        all
    }

    fn end(&mut self, granted: &norn_wire::Granted) {
        let index = (0..self.nodes.len()).find(|index| !self.down.contains(index)).expect("a node is up");
        assert!(matches!(self.complete(index, granted.id, granted.token), Response::Acked(_)));
    }

    /// Quotas of the queue in the table of its coordinator partition.
    fn slot_quotas(&self) -> BTreeMap<PartitionId, u32> {
        let queue = QueueName::new("mail").expect("a name");
        let coordinator = self.nodes[0].coordinator_of(&queue);
        let leads = |node: &&Node| node.partitions[&coordinator].consensus.established();
        let leader =
            self.nodes.iter().enumerate().filter(|(index, _)| !self.down.contains(index)).map(|(_, node)| node);
        let leader = leader.filter(leads).max_by_key(|node| node.partitions[&coordinator].consensus.viewstamp);
        let table = &leader.expect("it has a leader").partitions[&coordinator].consensus.table;
        let slot_quotas = table.slot_quotas.get(&queue).into_iter().flatten();
        slot_quotas.map(|(partition, slot_quota)| (*partition, slot_quota.count)).collect()
    }
}

fn concurrency(claims: u32) -> QueueSetting {
    QueueSetting::Concurrency(Some(claims))
}

#[test]
fn no_more_are_held_at_once_than_the_queue_allows() {
    let mut cluster = queue_with(concurrency(3));
    cluster.spread_tasks(30);
    let mut held = cluster.claim_all();
    assert_eq!(held.len(), 3);
    for _ in 0..10 {
        let granted = held.remove(0);
        cluster.end(&granted);
        held.extend(cluster.claim_all());
        assert_eq!(held.len(), 3);
    }
    assert!(cluster.slot_quotas().values().sum::<u32>() <= 3);
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Concurrency(None))));
    assert_eq!(cluster.claim_all().len(), 17, "there is no limit");
    cluster.advance(5_000);
    assert_eq!(cluster.slot_quotas(), BTreeMap::new());
}

/// Goal: a call that names several queues gets tasks of one of them, however much work stands in another that may grant nothing now.
/// Method: the limit is used up, or no rate token has come in yet.
#[test]
fn a_queue_at_its_limit_hides_no_other_of_the_same_call() {
    for (setting, held) in [(concurrency(1), 1), (rate(1, 3_600_000), 0)] {
        let mut cluster = queue_with(setting.clone());
        cluster.spread_tasks(60);
        assert_eq!(cluster.claim_all().len(), held, "{setting:?}");
        let [mail, other] = ["mail", "other"].map(|name| QueueName::new(name).unwrap());
        for (number, queues) in [[&mail, &other], [&other, &mail]].into_iter().enumerate() {
            let id = cluster.id(number as u32 * 0x70_0001);
            let tasks = vec![NewTask { id, spec: Spec { queue: other.clone(), ..spec(b"x", 0) } }];
            assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All }), Response::Acked(_)));
            for index in 0..3 {
                let claim = ClaimId(900 + cluster.number as u128);
                let claim = Claim { queues: queues.map(Clone::clone).to_vec(), ..claim_of(claim, 60_000, 5) };
                let Response::Claimed { tasks, unavailable: 0, .. } = cluster.ask(index, Request::Claim(claim)) else {
                    panic!("{setting:?}: all nodes are there");
                };
                let got: Vec<TaskId> = tasks.iter().map(|granted| granted.id).collect();
                assert_eq!(got, if index == 0 { vec![id] } else { Vec::new() }, "{setting:?}, {queues:?} at {index}");
            }
        }
    }
}

/// Where there is no work left, a partition keeps no slot quota that others can use.
#[test]
fn a_limit_is_used_in_full_where_all_work_is_in_one_partition() {
    let mut cluster = queue_with(concurrency(8));
    cluster.spread_tasks(8);
    let held = cluster.claim_all();
    assert_eq!(held.len(), 8);
    assert!(cluster.slot_quotas().len() > 1, "several partitions have a part of it");
    held.iter().for_each(|granted| cluster.end(granted));
    for _ in 0..20 {
        cluster.enqueue_at(0, 1);
    }
    let mut held = cluster.claim_all();
    assert_eq!(held.len(), 8);
    cluster.spread_tasks(8);
    for _ in 0..12 {
        let granted = held.remove(0);
        cluster.end(&granted);
        held.extend(cluster.claim_all());
        assert_eq!(held.len(), 8);
    }
}

/// Wherever the tasks are, each gets its turn, one at a time.
#[test]
fn one_claim_at_once_goes_round() {
    let mut cluster = queue_with(concurrency(1));
    cluster.spread_tasks(20);
    for turn in 0..20 {
        let granted = cluster.claim_for(turn % 3, 5_000, 600_000);
        assert_eq!(granted.len(), 1, "{turn}");
        assert_eq!(cluster.claim_for((turn + 1) % 3, 0, 600_000).len(), 0);
        cluster.end(&granted[0]);
    }
}

#[test]
fn a_claim_that_ran_out_makes_room_and_cannot_be_renewed() {
    let mut cluster = queue_with(concurrency(1));
    cluster.spread_tasks(4);
    let first = cluster.claim_for(0, 2_000, 1_000).remove(0);
    cluster.advance(2_000);
    let second = cluster.claim_for(1, 5_000, 600_000).remove(0);
    let renewed = cluster.ask(0, Request::Renew { items: vec![(first.id, first.token)], lease_ms: None });
    assert!(matches!(&renewed, Response::Renewed(results) if results[0].is_err()), "{renewed:?}");
    assert_eq!(cluster.claim_for(2, 1_000, 1_000), Vec::new());
    cluster.end(&second);
    assert_eq!(cluster.claim_for(2, 5_000, 1_000).len(), 1);
}

/// Whichever node is lost, even the coordinator partition's leader, held claims still count, and work goes on.
#[test]
fn a_limit_outlives_leaders() {
    for victim in 0..3 {
        let mut cluster = queue_with(concurrency(4));
        cluster.spread_tasks(20);
        let mut held = cluster.claim_all();
        assert_eq!(held.len(), 4);
        cluster.down.insert(victim);
        cluster.advance(3_000);
        assert_eq!(cluster.claim_all().len(), 0);
        for _ in 0..3 {
            let granted = held.remove(0);
            cluster.end(&granted);
            held.extend(cluster.claim_all());
            assert_eq!(held.len(), 4);
        }
        cluster.restart(victim);
        cluster.connect_all();
        cluster.advance(3_000);
        assert_eq!(cluster.claim_all().len(), 0);
        let granted = held.remove(0);
        cluster.end(&granted);
        assert_eq!(cluster.claim_all().len(), 1);
    }
}

#[test]
fn what_is_held_goes_on_where_the_limit_is_lowered() {
    let mut cluster = queue_with(concurrency(6));
    cluster.spread_tasks(20);
    let mut held = cluster.claim_all();
    assert_eq!(held.len(), 6);
    assert!(is_changed(&cluster.set(1, "mail", concurrency(2))));
    for left in (2..6).rev() {
        let granted = held.remove(0);
        let renewed = cluster.ask(0, Request::Renew { items: vec![(granted.id, granted.token)], lease_ms: None });
        assert!(matches!(&renewed, Response::Renewed(results) if results[0].is_ok()), "{renewed:?}");
        cluster.end(&granted);
        assert_eq!((cluster.claim_all().len(), held.len()), (0, left));
    }
    let granted = held.remove(0);
    cluster.end(&granted);
    assert_eq!(cluster.claim_all().len(), 1);
}

#[test]
fn a_limit_of_no_claims_is_refused() {
    let mut cluster = Cluster::modern(1);
    match cluster.set(0, "mail", concurrency(0)) {
        Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
        other => panic!("{other:?}"),
    }
}

/// Goal: a claim that is sealed after its lease expired counts again, so that nothing else is granted if it leaves no slot. Method: its
/// task waits for its next attempt, and another one is published, when the seal is appended; the seal commits late.
#[test]
fn a_claim_that_is_sealed_late_takes_the_room_back() {
    let mut cluster = queue_with(concurrency(1));
    let backoff = Backoff { first_ms: 60_000, most_ms: 60_000, jitter_percent: 0 };
    for setting in [QueueSetting::Mode(Mode::Holder), QueueSetting::Backoff(Some(backoff))] {
        assert!(is_changed(&cluster.set(0, "mail", setting)));
    }
    let first = cluster.enqueue_at(0, 1);
    let late = cluster.claim_for(0, 5_000, 1_000).remove(0);
    cluster.advance(3_000);
    assert_eq!((late.id, cluster.get(0, first).state), (first, State::Waiting));
    let second = cluster.enqueue_at(0, 1);
    let leader = cluster.leader(&first);
    let (id, token) = (first, late.token);
    let items = vec![Completion { id, token, sequence: None, result: None, at_ms: 5, children: Vec::new() }];
    let sealed = cluster.post(leader, Request::Complete { items, acks: Acks::Quorum });
    let claim = Claim { wait_ms: 5_000, ..claim_of(ClaimId(7_777), 60_000, 1) };
    let claimed = cluster.post(leader, Request::Claim(claim));
    let is_ack =
        |event: &Event| matches!(event, Event::Peer { message: PeerMessage::Replication(Replication::Ack { .. }), .. });
    while cluster.handle_next() {
        cluster.queue.retain(|(_, event)| !is_ack(event));
    }
    assert!(!cluster.replies.contains_key(&sealed) && !cluster.replies.contains_key(&claimed));
    cluster.run_until(|cluster| cluster.replies.contains_key(&claimed));
    match (&cluster.replies[&sealed], &cluster.replies[&claimed]) {
        (Response::Acked(results), Response::Claimed { tasks, .. }) => {
            assert!(results[0].is_ok() && tasks[0].id == second, "{results:?} {tasks:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Whether work of another partition is granted after a late question has raised a slot quota at the coordinator. A partition gave its slot
/// quota up while it had more work, which was then cancelled; after that the question arrives.
fn is_granted_after_a_late_question(config: &Config) -> bool {
    let mut cluster = queue_in(config, concurrency(1));
    let (here, there) = (0x00_0001, 0xc0_0001);
    let ids: Vec<TaskId> = (0..2).map(|_| cluster.enqueue_at(0, there)).collect();
    let held = cluster.claim_for(0, 5_000, 600_000).remove(0);
    let (partition, leader) = (cluster.nodes[0].partition_of(&ids[0]), cluster.leader(&ids[0]));
    assert_eq!((held.id, cluster.slot_quotas()), (ids[0], BTreeMap::from([(partition, 1)])));
    cluster.enqueue_at(9, here);
    let claim = Claim { wait_ms: 30_000, ..claim_of(ClaimId(7_777), 600_000, 1) };
    let number = cluster.submit(1, Request::Claim(claim));
    cluster.advance(1_500);
    cluster.end(&held);
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Claimed { mut tasks, .. }) = cluster.replies.remove(&number) else { panic!("it is granted") };
    assert!(!cluster.slot_quotas().contains_key(&partition), "it was given up");
    let cancel = Request::Cancel { id: ids[1], reason: "no".into(), at_ms: 1, acks: Acks::All };
    assert!(matches!(cluster.ask(2, cancel), Response::AckedOne(_)));
    cluster.end(&tasks.remove(0));
    cluster.advance(1_000);
    let (epoch, queue) = (cluster.replica_of(leader, &ids[0]).consensus.viewstamp.epoch, QueueName::new("mail"));
    let late = PeerMessage::Limiting(Limiting::QuotaAsk {
        partition,
        epoch,
        request_id: 1,
        queue: queue.expect("a name"),
        keeps: 0,
        wants: 1,
    });
    let coordinator = cluster.coordinator("mail");
    cluster.deliver((coordinator + 1) % 3, coordinator, late);
    cluster.advance(1_000);
    assert_eq!(cluster.slot_quotas(), BTreeMap::from([(partition, 1)]), "no leader knows of it");
    let next = cluster.enqueue_at(0, here);
    let granted = cluster.claim_for(0, 20_000, 600_000);
    granted.iter().any(|granted| granted.id == next)
}

/// Goal: a slot quota that a late question of a deposed leader raises at the coordinator is given back by the present leader.
#[test]
fn a_quota_that_a_late_question_raised_is_given_back() {
    assert!(is_granted_after_a_late_question(&Config::default()));
}

/// Goal: this test notices a leader that does not confirm a slot quota of zero, which the simulator seldom meets.
#[cfg(feature = "mutants")]
#[test]
fn a_quota_that_is_not_confirmed_again_leaks() {
    let config = Config { mutant: Some(norn_model::config::Mutant::QuotaLeaks), ..Config::default() };
    assert!(!is_granted_after_a_late_question(&config));
}

/// Runs the cluster for a while in which a leader does not receive some of the messages about a partition. Returns these messages, and
/// what the leader states that it keeps to there.
fn go_on_unheard(
    cluster: &mut Cluster,
    (leader, of): (usize, PartitionId),
    for_ms: u64,
    unheard: impl Fn(&PeerMessage) -> bool,
) -> (Vec<PeerMessage>, Vec<u32>) {
    let (mut missed, mut kept) = (Vec::new(), Vec::new());
    go_on(cluster, for_ms, |_, index, event| {
        let Event::Peer { from, message } = &event else { return Some(event) };
        if let PeerMessage::Limiting(Limiting::QuotaAsk { partition, keeps, .. }) = message
            && (*from, *partition) == (NodeId(leader as u128 + 1), of)
        {
            kept.push(*keeps);
        }
        let partition = match message {
            PeerMessage::Replication(Replication::Ack { partition, .. })
            | PeerMessage::Limiting(Limiting::Quota { partition, .. }) => Some(*partition),
            _ => None,
        };
        if index == leader && partition == Some(of) && unheard(message) {
            missed.push(message.clone());
            return None;
        }
        Some(event)
    });
    (missed, kept)
}

/// Goal: a leader keeps to no less than the claims that it has inherited, so that no other partition gets these. Method: the first answer
/// of the coordinator arrives after a call to give claims back and before the answer to that call is sent; then a second call arrives.
#[test]
fn a_leader_that_was_told_nothing_yet_keeps_to_what_it_inherited() {
    let mut cluster = queue_with(concurrency(1));
    let coordinator = cluster.coordinator("mail");
    let tags = (0..4).map(|number| number << 22);
    let tag =
        tags.into_iter().find(|tag| cluster.leader(&TaskId::new(1, 1, 1, *tag)) != coordinator).expect("others lead");
    for _ in 0..3 {
        cluster.enqueue_at(0, tag);
    }
    let held = cluster.claim_for(coordinator, 5_000, 600_000).remove(0);
    let (before, partition) = (cluster.leader(&held.id), cluster.nodes[0].partition_of(&held.id));
    let leader = 3 - before - coordinator;
    // Leadership stays where it is put.
    cluster.nodes.iter_mut().for_each(|node| Arc::make_mut(&mut node.config).transfer_after_ms = 3_600_000);
    let epoch = cluster.nodes[before].partitions[&partition].consensus.viewstamp.epoch;
    let queue = QueueName::new("mail").expect("a name");
    let call = |number, request| Event::Request {
        client: CLIENT,
        number,
        principal: Principal { name: "tester".into(), node: false },
        request,
    };
    let waits = Claim { wait_ms: 30_000, ..claim_of(ClaimId(77), 60_000, 1) };
    let transfer = PeerMessage::Election(Election::Transfer { partition, epoch });
    cluster.queue.push_back((leader, Event::Peer { from: NodeId(before as u128 + 1), message: transfer }));
    cluster.queue.push_back((leader, call(1_000, Request::Claim(waits))));
    let at = (leader, partition);
    let is_answer = |message: &PeerMessage| matches!(message, PeerMessage::Limiting(Limiting::Quota { .. }));
    let (answers, mut kept) = go_on_unheard(&mut cluster, at, 600, is_answer);
    assert_eq!(answers.len(), 1, "it has asked");
    assert!(cluster.nodes[leader].partitions[&partition].consensus.established());
    assert_eq!(cluster.slot_quotas()[&partition], 1);
    // The renewal is appended and not committed, so the leader cannot state yet what it keeps to.
    let renew = Request::Renew { items: vec![(held.id, held.token)], lease_ms: None };
    cluster.queue.push_back((leader, call(1_001, renew)));
    let called = || PeerMessage::Limiting(Limiting::QuotaCall { partition, queue: queue.clone(), share: 0 });
    for message in [called(), answers[0].clone(), called()] {
        cluster.queue.push_back((leader, Event::Peer { from: NodeId(coordinator as u128 + 1), message }));
        kept.extend(go_on_unheard(&mut cluster, at, 2, |message| !is_answer(message)).1);
    }
    kept.extend(go_on_unheard(&mut cluster, at, 1_000, |_| false).1);
    assert!(kept.len() > 1 && kept.iter().all(|keeps| *keeps >= 1), "{kept:?}");
    assert_eq!(cluster.slot_quotas()[&partition], 1);
}

impl Cluster {
    /// Starts a claim with a long wait; returns the call's number.
    fn wait_for_work(&mut self, index: usize) -> u64 {
        self.number += 1;
        let claim = ClaimId(u128::from(self.number) << 32);
        self.submit(index, Request::Claim(Claim { wait_ms: 60_000, ..claim_of(claim, 600_000, 1) }))
    }

    /// After how many milliseconds the call is granted a task, and which.
    fn granted_after(&mut self, number: u64) -> (u64, norn_wire::Granted) {
        let since_us = self.now.mono_us;
        self.run_until(|cluster| cluster.replies.contains_key(&number));
        match self.replies.remove(&number) {
            Some(Response::Claimed { mut tasks, .. }) => ((self.now.mono_us - since_us) / 1_000, tasks.remove(0)),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: a waiting worker gets a task at once if its queue has free slots, wherever the task is enqueued.
#[test]
fn work_that_comes_is_granted_at_once_where_there_is_room() {
    let mut cluster = queue_with(concurrency(1));
    for round in 0..6 {
        let waits = cluster.wait_for_work(round % 3);
        cluster.advance(2_300 + 310 * round as u64);
        cluster.enqueue_at(0, (round as u32 % 4) << 22);
        let (after_ms, granted) = cluster.granted_after(waits);
        assert!(after_ms < 300, "{round}: {after_ms}");
        cluster.end(&granted);
    }
}

/// Milliseconds from the claim of a task whose worker is gone until it can be claimed again, while each node restarts once.
fn comes_back_after(setting: Option<QueueSetting>, wait_from_ms: u64) -> u64 {
    let mut cluster = Cluster::modern(3);
    setting.into_iter().for_each(|setting| assert!(is_changed(&cluster.set(0, "mail", setting))));
    let id = cluster.enqueue_at(0, 1);
    let since_us = cluster.now.mono_us;
    assert_eq!(cluster.claim_for(0, 2_000, 10_000)[0].id, id);
    for index in 0..3 {
        cluster.down.insert(index);
        cluster.advance(300);
        cluster.restart(index);
        cluster.connect_all();
        cluster.advance(1_500);
    }
    cluster.advance(wait_from_ms);
    let waits = cluster.wait_for_work(0);
    assert_eq!(cluster.granted_after(waits).1.id, id);
    (cluster.now.mono_us - since_us) / 1_000
}

/// Goal: the slot of an expired claim is free as soon as its task is, also where leaders have changed.
#[test]
fn a_place_is_free_as_soon_as_the_task_comes_back() {
    for wait_from_ms in [0, 700, 1_400] {
        let [without, with] = [None, Some(concurrency(1))].map(|setting| comes_back_after(setting, wait_from_ms));
        assert!(with < without + 150, "{with}, and {without} where there is no limit");
    }
}

/// Goal: the next leader of the coordinator partition is asked as soon as there is one. Method: work comes when the coordinator is lost and
/// no node knows that yet.
#[test]
fn the_next_leader_of_the_home_is_asked_at_once() {
    let mut cluster = queue_with(concurrency(1));
    let (coordinator, partition) =
        (cluster.coordinator("mail"), cluster.nodes[0].coordinator_of(&QueueName::new("mail").expect("a name")));
    let mut tags = (0..4).map(|number| number << 22);
    let tag = tags.find(|tag| cluster.leader(&TaskId::new(1, 1, 1, *tag)) != coordinator).expect("others lead");
    let other = cluster.leader(&TaskId::new(1, 1, 1, tag));
    let waits = cluster.wait_for_work(other);
    cluster.advance(3_000);
    cluster.down.insert(coordinator);
    cluster.enqueue(other, b"x", tag);
    cluster.run_until(|cluster| {
        let leads = |index: &usize| cluster.nodes[*index].partitions[&partition].consensus.established();
        (0..3).filter(|index| !cluster.down.contains(index)).any(|index| leads(&index))
    });
    let (after_ms, _) = cluster.granted_after(waits);
    assert!(after_ms < 200, "{after_ms}");
}
