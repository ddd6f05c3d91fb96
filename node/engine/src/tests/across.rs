//! Transactions of tasks in several partitions.

use super::transactions::{TAG, change, connected, delete};
use super::*;
use norn_model::claim_table::ledger::Ledger;
use norn_model::message::{Vote, Workflow};
use norn_wire::Transaction;
use norn_wire::transaction::{Depend, Expected, Refusal};

impl Cluster {
    fn new_task_at(&mut self, payload: &[u8], tag: u32) -> NewTask {
        NewTask { id: self.id(tag), spec: spec(payload, 0) }
    }

    /// A task in each of two partitions with different leaders: first the one in the coordinator's.
    fn pair(&mut self) -> (TaskId, TaskId) {
        let own = self.id(TAG);
        let far = |number: u32| TaskId::new(1, 0, 0, number << 12);
        let mut fars = (0..4_096).map(far);
        let far = fars.find(|id| self.leader(id) != self.leader(&own)).expect("it does not lead all partitions");
        let is_above = self.nodes[0].partition_of(&far) > self.nodes[0].partition_of(&own);
        let (one, two) = if is_above { (far.tag(), TAG) } else { (TAG, far.tag()) };
        (self.enqueue(0, b"one", one), self.enqueue(0, b"two", two))
    }

    fn ledger(&self, index: usize, id: &TaskId) -> &Ledger {
        let node = &self.nodes[index];
        &node.partitions[&node.partition_of(id)].consensus.table.ledger
    }

    /// Whether any table has a transaction that is not over.
    fn is_under_way(&self) -> bool {
        let ledgers = self.nodes.iter().flat_map(|node| node.partitions.values());
        let mut ledgers = ledgers.map(|replica| &replica.consensus.table.ledger);
        ledgers.any(|ledger| !ledger.decided().is_empty() || !ledger.prepared().is_empty())
    }

    /// Moves a change of both tasks, and returns it: it depends on nothing but that they are there.
    fn change_of(&mut self, ids: &[TaskId], payload: &[u8]) -> Transaction {
        let changes = ids.iter().map(|id| change(*id, Expected::Present, payload)).collect();
        Transaction { changes, ..self.transaction() }
    }

    fn payloads(&mut self, index: usize, ids: &[TaskId]) -> Vec<Vec<u8>> {
        ids.iter().map(|id| self.get(index, *id).spec.payload.clone()).collect()
    }
}

// T34, T36, T38, T40, T41, T44
#[test]
fn tasks_in_several_partitions_change_together() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let gone = cluster.enqueue(0, b"gone", two.tag());
    let (seen, version) = (cluster.version_of(one), cluster.version_of(gone));
    let added = [cluster.new_task_at(b"near", TAG), cluster.new_task_at(b"far", two.tag())];
    let mut moves = cluster.change_of(&[two], b"2");
    moves.changes.push(change(one, seen, b"1"));
    moves.deletes = vec![delete(gone, version)];
    moves.adds = added.to_vec();
    let told = vec![added[0].id, added[1].id, two, one];
    assert_eq!(cluster.transact(0, &moves), Ok(told.clone()), "versions come in the order of the transaction");
    assert_eq!(cluster.payloads(2, &[one, two, added[0].id, added[1].id]), [&b"1"[..], b"2", b"near", b"far"]);
    assert_eq!(cluster.get(1, gone).state, State::Cancelled);
    let Response::Transacted(Ok(stamps)) = cluster.ask(1, Request::Transact(Box::new(moves.clone()))) else {
        panic!("it was made")
    };
    for (id, version) in stamps {
        assert_eq!(cluster.version_of(id), Expected::Version(version), "the version that was told is the one there");
    }
    for index in 0..3 {
        assert_eq!(cluster.transact(index, &moves), Ok(told.clone()), "a repeat is answered, and made once");
    }
    cluster.advance(2_000);
    assert!(!cluster.is_under_way(), "nothing is locked any more");
    let kept: usize = cluster.nodes.iter().map(|node| node.workflow.kept_bytes()).sum();
    assert_eq!(kept, 0, "nothing is left behind");
    assert_eq!(cluster.claim(2, 60_000).len(), 1, "its tasks are granted");
}

// T42, T43
#[test]
fn what_stands_against_it_in_any_partition_is_named_and_nothing_changes() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let (seen, stale) = (cluster.version_of(one), cluster.version_of(two));
    for (id, version) in [(one, seen), (two, stale)] {
        let before = Transaction { changes: vec![change(id, version, b"new")], ..cluster.transaction() };
        assert!(cluster.transact(0, &before).is_ok());
    }
    let mut refused = cluster.transaction();
    refused.changes = vec![change(one, seen, b"1")];
    refused.deletes = vec![delete(two, stale)];
    refused.adds = vec![cluster.new_task_at(b"more", two.tag())];
    let refusal = Refusal { changes: vec![one], deletes: vec![two], ..Refusal::default() };
    for index in 0..3 {
        assert_eq!(cluster.transact(index, &refused), Err(refusal.clone()));
    }
    assert_eq!(cluster.payloads(1, &[one, two]), [b"new", b"new"]);
    assert_eq!(cluster.knowing(&refused.adds[0].id), 0, "nothing of what was refused is there");
    cluster.advance(1_000);
    assert!(!cluster.is_under_way());
    let change = cluster.change_of(&[one, two], b"again");
    assert!(cluster.transact(1, &change).is_ok(), "nothing stays locked");
}

/// Goal: a decision is made in all partitions, whichever nodes lead. Method: the coordinator's leader goes down once a majority has its
/// decision, and no other partition has heard of it.
// T6, T26
#[test]
fn another_coordinator_makes_what_was_decided() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let mut change = cluster.change_of(&[one, two], b"new");
    change.adds = vec![cluster.new_task_at(b"near", TAG), cluster.new_task_at(b"far", two.tag())];
    let told = vec![change.adds[0].id, change.adds[1].id, one, two];
    let (leader, id) = (cluster.leader(&one), change.id);
    cluster.post(leader, Request::Transact(Box::new(change.clone())));
    let decided =
        |cluster: &Cluster| (0..3).filter(|index| cluster.ledger(*index, &one).decided().contains_key(&id)).count();
    while decided(&cluster) < 2 {
        cluster.queue.retain(|(_, event)| !is_conclusion(event));
        assert!(cluster.handle_next(), "it is decided");
    }
    for add in &change.adds {
        assert_eq!(cluster.knowing(&add.id), 0, "nobody has it as a fact yet");
    }
    cluster.down.insert(leader);
    cluster.queue.clear();
    cluster.advance(8_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.payloads(next, &[one, two]), [b"new", b"new"]);
    assert_eq!(cluster.transact(next, &change), Ok(told), "a repeat is told so");
    cluster.advance(1_000);
    assert!((0..3).filter(|index| *index != leader).all(|index| cluster.ledger(index, &two).prepared().is_empty()));
}

/// Goal: what was not decided is nowhere, and locks nothing. Method: the coordinator's leader goes down once the other partition has
/// prepared its part.
#[test]
fn a_part_that_nobody_decides_on_is_dropped() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let change = cluster.change_of(&[one, two], b"new");
    let (leader, id) = (cluster.leader(&one), change.id);
    cluster.post(leader, Request::Transact(Box::new(change.clone())));
    let prepared =
        |cluster: &Cluster| (0..3).filter(|index| cluster.ledger(*index, &two).prepared().contains_key(&id)).count();
    while prepared(&cluster) < 2 {
        assert!(cluster.handle_next(), "it is prepared");
    }
    assert!(cluster.ledger(leader, &one).decided().is_empty());
    cluster.down.insert(leader);
    cluster.queue.clear();
    cluster.advance(8_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.payloads(next, &[one, two]), [b"one", b"two"]);
    assert!(!cluster.ledger(next, &two).prepared().contains_key(&id), "the lock is gone");
    assert_eq!(cluster.transact(next, &change), Ok(vec![one, two]), "and it may be asked for again");
}

/// Goal: a prepared part waits for the outcome under any leader. Method: its leader goes down once the coordinator has decided, and has not
/// heard of that.
// T6
#[test]
fn another_leader_makes_a_prepared_part() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let change = cluster.change_of(&[one, two], b"new");
    let (leader, id) = (cluster.leader(&two), change.id);
    cluster.post(cluster.leader(&one), Request::Transact(Box::new(change.clone())));
    let decided =
        |cluster: &Cluster| (0..3).filter(|index| cluster.ledger(*index, &one).decided().contains_key(&id)).count();
    while decided(&cluster) < 2 {
        cluster.queue.retain(|(_, event)| !is_conclusion(event));
        assert!(cluster.handle_next(), "it is decided");
    }
    cluster.down.insert(leader);
    cluster.queue.clear();
    cluster.advance(8_000);
    let next = (leader + 1) % 3;
    assert_eq!(cluster.payloads(next, &[one, two]), [b"new", b"new"]);
    assert_eq!(cluster.transact(next, &change), Ok(vec![one, two]));
}

/// Goal: no client learns that a transaction is made before it is made everywhere. Method: the other partition's leader hears nothing of
/// the decision.
// T34
#[test]
fn it_is_acknowledged_once_all_parts_are_made() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let change = cluster.change_of(&[one, two], b"new");
    let number = cluster.post(cluster.leader(&one), Request::Transact(Box::new(change)));
    cluster.advance_losing(2_000, |_, message| is_conclusion_message(message));
    assert!(!matches!(cluster.replies.get(&number), Some(Response::Transacted(_))), "one part is not made");
    cluster.advance(3_000);
    assert_eq!(cluster.payloads(1, &[one, two]), [b"new", b"new"]);
}

fn is_conclusion(event: &Event) -> bool {
    matches!(event, Event::Peer { message, .. } if is_conclusion_message(message))
}

fn is_conclusion_message(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Workflow(Workflow::Conclude { .. }))
}

/// Goal: transactions that want the same tasks end one after the other. Method: many at once, at all nodes, over both partitions.
// T44
#[test]
fn transactions_in_each_others_way_all_end() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let calls: Vec<u64> = (0..12)
        .map(|number: u8| {
            let change = cluster.change_of(&if number.is_multiple_of(2) { [one, two] } else { [two, one] }, &[number]);
            cluster.post(usize::from(number) % 3, Request::Transact(Box::new(change)))
        })
        .collect();
    cluster.advance(4_000);
    let made =
        calls.iter().filter(|call| matches!(cluster.replies.get(call), Some(Response::Transacted(Ok(_))))).count();
    assert_eq!(made, calls.len(), "each is made, as none expects a version");
    let payloads = cluster.payloads(0, &[one, two]);
    assert_eq!(payloads[0], payloads[1], "the last one changed both");
    assert!(!cluster.is_under_way());
}

/// Goal: what a transaction depends on in another partition holds when it is decided. Method: two transactions, each of which changes what
/// the other depends on.
// T40, E7
#[test]
fn of_two_that_depend_on_what_the_other_changes_one_is_made() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let seen = [one, two].map(|id| (id, cluster.version_of(id)));
    let transactions = [(0, 1), (1, 0)].map(|(changed, depended)| {
        let mut transaction = cluster.transaction();
        transaction.changes = vec![change(seen[changed].0, seen[changed].1, b"new")];
        transaction.depends = vec![Depend { id: seen[depended].0, expected: seen[depended].1 }];
        transaction
    });
    let calls = [0, 1].map(|index| cluster.post(index, Request::Transact(Box::new(transactions[index].clone()))));
    cluster.advance(4_000);
    let replies = calls.map(|call| cluster.replies.remove(&call).expect("it is answered"));
    let made = replies.iter().filter(|reply| matches!(reply, Response::Transacted(Ok(_)))).count();
    let refused = replies.iter().filter(|reply| matches!(reply, Response::Transacted(Err(_)))).count();
    assert_eq!((made, refused), (1, 1), "{replies:?}");
}

/// Goal: what others are to make is left alone. Method: the part is prepared, and the coordinator does not decide.
#[test]
fn a_prepared_task_is_not_granted() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let depended = cluster.enqueue(0, b"switch", two.tag());
    let mut change = cluster.change_of(&[one], b"new");
    change.depends = [two, depended].map(|id| Depend { id, expected: Expected::Present }).to_vec();
    cluster.post(cluster.leader(&one), Request::Transact(Box::new(change.clone())));
    let (other, id) = (cluster.leader(&two), change.id);
    cluster.handle_until(|cluster| cluster.ledger(other, &two).prepared().contains_key(&id));
    let replica = &cluster.nodes[other].partitions[&cluster.nodes[other].partition_of(&two)];
    assert!(!replica.is_ready(&two) && !replica.is_ready(&depended));
    assert_eq!(replica.consensus.table.digest(), replica.consensus.table.digest_recomputed());
    cluster.advance(1_000);
    let replica = &cluster.nodes[other].partitions[&cluster.nodes[other].partition_of(&two)];
    assert!(replica.is_ready(&two) && replica.is_ready(&depended), "it may be claimed again");
}

/// Goal: a late copy of a question has no effect that lasts. Method: each question of the coordinator comes once more, some time after the
/// transaction.
#[test]
fn a_late_question_locks_nothing_for_long() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let switch = cluster.enqueue(0, b"switch", two.tag());
    let mut change = cluster.change_of(&[one], b"new");
    change.depends = vec![Depend { id: switch, expected: Expected::Present }];
    cluster.post(cluster.leader(&one), Request::Transact(Box::new(change.clone())));
    let is_question =
        |event: &Event| matches!(event, Event::Peer { message: PeerMessage::Workflow(Workflow::Prepare { .. }), .. });
    let mut late = None;
    while late.is_none() {
        late = cluster.queue.iter().find(|(_, event)| is_question(event)).cloned();
        if late.is_none() && !cluster.handle_next() {
            cluster.advance(1);
        }
    }
    // It never arrives in time: this round is given up with its leader's question lost.
    cluster.queue.retain(|(_, event)| !is_question(event));
    cluster.advance(1_000);
    assert!(!cluster.is_under_way(), "it was asked again, and is over");
    cluster.queue.extend(late);
    cluster.drain();
    cluster.advance(1_500);
    assert!(!cluster.is_under_way(), "the coordinator was asked, and has given the round up or made it");
    assert_eq!(cluster.payloads(0, &[one, two]), [b"new", b"two"]);
}

/// Goal: nodes that know nothing of such transactions are not sent any. Method: one speaks an earlier version.
#[test]
fn tasks_that_lie_apart_are_refused_while_a_node_speaks_an_earlier_version() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let leader = cluster.leader(&one);
    cluster.connect(leader, (leader + 1) % 3, norn_wire::Versions::ACROSS - 1);
    let change = cluster.change_of(&[one, two], b"new");
    let Response::Error(error) = cluster.ask(leader, Request::Transact(Box::new(change))) else {
        panic!("it is refused")
    };
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(error.message.contains("upgrade all nodes"), "{error:?}");
}

/// Goal: what a transaction found in another partition stays so until it is decided, also where a lease ends or its session does. Method:
/// the votes are lost, so that the part stays prepared.
#[test]
fn the_end_of_a_lease_waits_for_a_prepared_part() {
    let mut cluster = connected();
    cluster.set(0, "mail", norn_wire::membership::QueueSetting::Attempts(Some(1)));
    let (one, two) = cluster.pair();
    let granted = [0, 1].map(|index| cluster.claim(index, 400).remove(0));
    let token = granted.iter().find(|granted| granted.id == two).expect("both are claimed").token;
    let seen = cluster.version_of(two);
    let mut change = cluster.transaction();
    change.adds = vec![cluster.new_task_at(b"more", one.tag())];
    change.depends = vec![Depend { id: two, expected: seen }];
    let call = cluster.post(cluster.leader(&one), Request::Transact(Box::new(change.clone())));
    let is_vote = |message: &PeerMessage| matches!(message, PeerMessage::Workflow(Workflow::PartVote { .. }));
    cluster.advance_losing(1_000, |_, message| is_vote(message));
    let other = cluster.leader(&two);
    let state = |cluster: &Cluster| {
        let node = &cluster.nodes[other];
        node.partitions[&node.partition_of(&two)]
            .consensus
            .claim_entry(&two)
            .map(|entry| (entry.token, entry.state.clone()))
    };
    assert!(cluster.ledger(other, &two).prepared().contains_key(&change.id), "it waits for the coordinator");
    assert_eq!(state(&cluster), Some((token, norn_model::claim_table::table::ClaimState::Held)));
    cluster.advance(3_000);
    let reply = cluster.replies.get(&call);
    assert!(matches!(reply, Some(Response::Transacted(Ok(_)))), "the version was there: {reply:?}");
    assert_eq!(cluster.get(0, two).state, State::Dead, "it was the last attempt");
}

/// Goal: a part that is prepared for one round is not taken for that of another. Method: the part is dropped and prepared anew before its
/// partition has a majority; then the first operation alone is committed.
#[test]
fn a_vote_is_for_the_round_that_is_committed() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let change = cluster.change_of(&[one, two], b"new");
    let (own, other) = (cluster.leader(&one), cluster.leader(&two));
    let part = Transaction { changes: vec![change.changes[1].clone()], ..change.clone() };
    let partition = cluster.nodes[other].partition_of(&two);
    let coordinator = cluster.nodes[own].partition_of(&one);
    let key = (partition, change.id);
    let ask = |cluster: &mut Cluster, number: u64| {
        let round = Token { epoch: 1, number };
        let message = Workflow::Prepare { partition, coordinator, round, part: Box::new(part.clone()) };
        cluster.queue.push_back((other, Event::Peer { from: NodeId(own as u128 + 1), message: message.into() }));
    };
    ask(&mut cluster, 1 << 40);
    cluster.handle_until(|cluster| cluster.ledger(other, &two).prepared().contains_key(&change.id));
    ask(&mut cluster, 2 << 40);
    cluster.handle_until(|cluster| {
        let prepared = cluster.ledger(other, &two).prepared().get(&change.id);
        prepared.is_some_and(|prepared| prepared.round.number == 2 << 40)
    });
    let mut effects = Vec::new();
    let node = &mut cluster.nodes[other];
    let before = node.partitions[&partition].consensus.commit;
    node.part_prepared(key, Token { epoch: 1, number: 1 << 40 });
    node.step(cluster.now, Event::Wake, &mut effects);
    assert_eq!(node.partitions[&partition].consensus.commit, before);
    let is_vote = |effect: &Effect| {
        matches!(effect, Effect::Send { message: PeerMessage::Workflow(Workflow::PartVote { .. }), .. })
    };
    assert!(!effects.iter().any(is_vote), "the later round is not committed");
}

/// Goal: no message of another node has a part counted as prepared that is not. Method: a refusal without a reason.
#[test]
fn a_refusal_without_a_reason_counts_for_nothing() {
    let mut cluster = connected();
    let (one, two) = cluster.pair();
    let change = cluster.change_of(&[one, two], b"new");
    let own = cluster.leader(&one);
    let call = cluster.post(own, Request::Transact(Box::new(change.clone())));
    let mut done = false;
    while !done {
        let vote = cluster.queue.iter_mut().find_map(|(_, event)| match event {
            Event::Peer { message: PeerMessage::Workflow(Workflow::PartVote { vote, .. }), .. } => Some(vote),
            _ => None,
        });
        if let Some(vote) = vote {
            *vote = Vote::Refused(Box::default());
            done = true;
        } else if !cluster.handle_next() {
            cluster.advance(1);
        }
    }
    cluster.drain();
    assert!(cluster.ledger(own, &one).decided().is_empty(), "nothing is decided by it");
    cluster.advance(1_000);
    assert!(
        matches!(cluster.replies.get(&call), Some(Response::Transacted(Ok(_)))),
        "the part was prepared, and asked again"
    );
}
