//! Log entries of tasks that have not ended: out of memory, shown with each claim, and lost.

use super::results::{bytes_of, with_memory};
use super::*;
use norn_model::message::{AntiEntropy, Replication};
use norn_model::task::{Slot, Task};
use norn_wire::error::ErrorCode;
use norn_wire::membership::{Mode, QueueSetting};
use norn_wire::response::{LogEntry, Rejected};
use norn_wire::transaction::{Change, Expected};
use norn_wire::{Granted, Transaction};
use std::sync::Arc;

/// A lease that expires soon.
const LEASE_MS: u64 = 1_000;

impl Cluster {
    fn write_entry(&mut self, index: usize, (id, token): (TaskId, Token), sequence: u32, data: Vec<u8>) -> Response {
        self.ask(index, Request::Update { id, token, sequence, data, acks: Acks::Quorum })
    }

    /// Enqueues a task, claims it, and writes `entries` log entries, the first of which contains its number.
    fn open_with_log(&mut self, index: usize, number: u8, entries: u8) -> (TaskId, Token) {
        let id = self.enqueue(index, b"x", u32::from(number % 16) << 20);
        let granted = self.claim(index, LEASE_MS).remove(0);
        assert_eq!(granted.id, id);
        for sequence in 0..entries {
            let response =
                self.write_entry(index, (id, granted.token), u32::from(sequence), bytes_of(number + sequence));
            assert!(matches!(&response, Response::AckedOne(_)), "{response:?}");
        }
        (id, granted.token)
    }

    fn has_left(&self, id: &TaskId) -> bool {
        (0..self.nodes.len()).all(|index| self.has_left_at(index, id))
    }

    /// Makes a log entry unreadable at a replica.
    fn spoil_entry(&mut self, index: usize, id: &TaskId, slot: Slot) {
        let wanted = self.task_at(index, id).wanted_in(*id, slot).expect("it has left memory");
        self.unreadable.insert((index, wanted.place.offset as usize));
    }

    fn claim_again(&mut self, index: usize, id: TaskId) -> Granted {
        for _ in 0..20 {
            self.number += 1;
            let claim = claim_of(ClaimId(u128::from(self.number)), LEASE_MS, 1);
            let Response::Claimed { mut tasks, .. } = self.ask(index, Request::Claim(claim)) else { panic!("a claim") };
            match tasks.pop() {
                Some(granted) if granted.id == id => return granted,
                // Another task, whose lease expires again.
                Some(_) => {}
                None => self.advance(LEASE_MS / 2),
            }
        }
        panic!("it is never granted");
    }
}

fn data_of(log: &[LogEntry]) -> Vec<u8> {
    assert!(log.iter().all(|entry| entry.data == bytes_of(entry.data[0])));
    log.iter().map(|entry| entry.data[0]).collect()
}

#[test]
fn log_entries_of_claimed_tasks_leave_memory_and_the_next_claim_is_shown_them() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let tasks: Vec<(TaskId, Token)> =
        (0..4u8).map(|number| cluster.open_with_log(usize::from(number) % 3, number * 10, 3)).collect();
    cluster.run_until(|cluster| tasks.iter().all(|(id, _)| cluster.has_left(id)));
    assert!((0..3).all(|index| cluster.memory_bytes(index) == 0));
    let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 100 };
    let Response::Page(page) = cluster.ask(1, list) else { panic!("a list") };
    assert!(page.tasks.len() == 4 && page.tasks.iter().all(|view| !view.log_incomplete && view.lost.is_none()));
    cluster.advance(3 * LEASE_MS);
    for (number, (id, first)) in (0..4u8).zip(&tasks) {
        for index in 0..3 {
            let view = cluster.get(index, *id);
            assert_eq!((data_of(&view.updates), view.log_incomplete, view.lost), (log_of(number), false, None));
        }
        let granted = cluster.claim_again(usize::from(number) % 3, *id);
        assert_eq!(data_of(&granted.updates), log_of(number));
        assert!(granted.updates.iter().all(|entry| entry.token == *first) && granted.token > *first);
        // Its own entry is shown to the next worker.
        cluster.write_entry(0, (*id, granted.token), 0, bytes_of(200 + number));
        cluster.advance(3 * LEASE_MS);
        let granted = cluster.claim_again(0, *id);
        assert_eq!(data_of(&granted.updates), [log_of(number), vec![200 + number]].concat());
        cluster.complete(1, *id, granted.token);
    }
    assert!(tasks.iter().all(|(id, _)| cluster.has_left(id)), "what is shown is not kept");
}

fn log_of(number: u8) -> Vec<u8> {
    (0..3).map(|sequence| number * 10 + sequence).collect()
}

/// Goal: logs of open tasks share the budget. Method: one node, and many times as much as it may keep.
#[test]
fn memory_holds_no_more_of_logs_of_open_tasks_than_it_may() {
    const MEMORY_BYTES: usize = 20_000;
    let mut cluster = Cluster::with_config(1, &with_memory(MEMORY_BYTES as u64));
    let ids: Vec<TaskId> = (0..12).map(|number| cluster.open_with_log(0, number * 10, 8).0).collect();
    cluster.run_until(|cluster| cluster.memory_bytes(0) <= MEMORY_BYTES);
    assert!(cluster.memory_bytes(0) > MEMORY_BYTES / 2, "as much stays as may");
    for (number, id) in (0..12).zip(&ids) {
        assert_eq!(data_of(&cluster.get(0, *id).updates), (0..8).map(|it| number * 10 + it).collect::<Vec<_>>());
    }
    cluster.restart(0);
    assert!(cluster.memory_bytes(0) <= MEMORY_BYTES);
}

#[test]
fn results_of_ended_tasks_leave_before_logs_of_open_ones() {
    let mut cluster = Cluster::with_config(1, &with_memory(6_000));
    let (id, _) = cluster.open_with_log(0, 10, 2);
    let ended: Vec<TaskId> = (0..3).map(|number| cluster.end_with_result(0, number)).collect();
    cluster.run_until(|cluster| cluster.memory_bytes(0) <= 6_000);
    assert!(cluster.task_at(0, &id).has_blobs());
    assert!(ended.iter().any(|id| !cluster.task_at(0, id).has_blobs()), "these did");
}

#[test]
fn what_is_written_behind_entries_that_have_left_is_one_log_with_them() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let (id, token) = cluster.open_with_log(0, 10, 1);
    cluster.run_until(|cluster| cluster.has_left(&id));
    let repeated = cluster.write_entry(1, (id, token), 0, bytes_of(10));
    assert!(matches!(&repeated, Response::AckedOne(_)), "{repeated:?}");
    let other = cluster.write_entry(1, (id, token), 0, bytes_of(99));
    assert!(matches!(&other, Response::Error(error) if error.code == ErrorCode::Conflict), "{other:?}");
    cluster.write_entry(2, (id, token), 1, bytes_of(11));
    cluster.run_until(|cluster| cluster.has_left(&id));
    assert_eq!(data_of(&cluster.get(0, id).updates), [10, 11]);
    cluster.complete(1, id, token);
    for index in 0..3 {
        let view = cluster.get(index, id);
        assert_eq!((view.state, data_of(&view.updates), view.conflict), (State::Done, vec![10, 11], false));
    }
}

/// Goal: a replica that was away gets the log that it has missed, and the trees are equal though no replica has the bytes in memory.
#[test]
fn a_replica_that_was_away_gets_logs_that_have_left_memory() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let away = 2;
    cluster.down.insert(away);
    // The others find out, and elect leaders.
    cluster.advance(3_000);
    let tasks: Vec<TaskId> = (0..4u8).map(|number| cluster.open_with_log(0, number * 10, 3).0).collect();
    cluster.run_until(|cluster| {
        (0..2).all(|index| tasks.iter().all(|id| cluster.task_at(index, id).blobs_wanted(*id).count() == 3))
    });
    cluster.restart(away);
    cluster.run_until(|cluster| (0..2).all(|index| cluster.roots(index) == cluster.roots(away)));
    cluster.run_until(|cluster| tasks.iter().all(|id| cluster.has_left(id)));
    assert_eq!(cluster.roots(0), cluster.roots(away));
    cluster.down.insert(0);
    for (number, id) in (0..4).zip(&tasks) {
        assert_eq!(data_of(&cluster.get(away, *id).updates), log_of(number));
    }
}

#[test]
fn logs_of_open_tasks_come_out_of_the_log_and_out_of_a_snapshot() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let tasks: Vec<TaskId> = (0..4u8).map(|number| cluster.open_with_log(0, number * 10, 3).0).collect();
    cluster.run_until(|cluster| tasks.iter().all(|id| cluster.has_left(id)));
    let roots = cluster.roots(0);
    cluster.restart(0);
    assert_eq!((cluster.memory_bytes(0), cluster.roots(0)), (0, roots.clone()));
    cluster.restart_on_snapshot(1);
    assert_eq!((cluster.memory_bytes(1), cluster.roots(1)), (0, roots));
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    cluster.advance(3 * LEASE_MS);
    for (number, id) in (0..4u8).zip(&tasks) {
        let granted = cluster.claim_again(usize::from(number) % 3, *id);
        assert_eq!(data_of(&granted.updates), log_of(number));
        cluster.complete(0, *id, granted.token);
    }
}

/// Goal: of two entries under one key the same one counts everywhere, though replicas have one of them in their logs alone.
#[test]
fn of_two_log_entries_the_greater_one_counts_though_it_is_not_in_memory() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut cluster = Cluster::with_config(3, &with_memory(0));
        let (id, token) = cluster.open_with_log(0, 10, 1);
        let partition = cluster.nodes[0].partition_of(&id);
        let told = |number: u8| {
            PeerMessage::AntiEntropy(AntiEntropy::Tasks {
                partition,
                items: Arc::new(vec![(id, Task::from_update(token, 1, bytes_of(number)))]),
                by_buckets: false,
                forgets: Some(0),
            })
        };
        cluster.deliver(1, 0, told(first));
        let knows = |cluster: &Cluster, index| cluster.task_at(index, &id).visible_length(token) == 2;
        cluster.run_until(|cluster| (0..3).all(|index| knows(cluster, index)) && cluster.has_left(&id));
        cluster.deliver(1, 0, told(second));
        assert!(cluster.replica_of(0, &id).store.rival_of(&id).is_some(), "it waits for the first one");
        cluster.restart(0);
        let settled = |cluster: &Cluster, index| {
            let is_flagged = cluster.task_at(index, &id).facts.as_ref().is_some_and(|facts| facts.conflict);
            is_flagged && cluster.replica_of(index, &id).store.rival_of(&id).is_none()
        };
        cluster.run_until(|cluster| (0..3).all(|index| settled(cluster, index)));
        cluster.run_until(|cluster| (0..3).all(|index| cluster.memory_bytes(index) == 0) && cluster.has_left(&id));
        cluster.run_until(|cluster| cluster.roots(0) == cluster.roots(1) && cluster.roots(1) == cluster.roots(2));
        for index in 0..3 {
            let view = cluster.get(index, id);
            assert_eq!((view.conflict, data_of(&view.updates)), (true, vec![10, 2]));
        }
        let granted = cluster.claim_again(1, id);
        assert_eq!(data_of(&granted.updates), [10, 2]);
    }
}

/// Goal: a grant shows entries that left memory after it was begun and before it was answered. Method: the followers are silent
/// meanwhile.
#[test]
fn a_grant_shows_entries_that_leave_memory_while_it_commits() {
    let mut cluster = Cluster::with_config(3, &with_memory(1 << 20));
    let (id, _) = cluster.open_with_log(0, 10, 3);
    cluster.advance(5 * LEASE_MS);
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let followers: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    let before = cluster.replica_of(leader, &id).consensus.viewstamp;
    let number = cluster.post(leader, Request::Claim(claim_of(ClaimId(77), 10_000, 1)));
    while cluster.replica_of(leader, &id).consensus.viewstamp == before {
        assert!(cluster.handle_next(), "it is appended");
    }
    cluster.down.extend(&followers);
    cluster.advance(100);
    assert!(!cluster.replies.contains_key(&number), "it is not committed");
    let replica = cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads");
    assert!(replica.store.task(&id).is_some_and(|task| task.has_blobs()) && replica.store.leave(&id, true));
    cluster.nodes[leader].count_bodies(partition);
    cluster.down.clear();
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Claimed { tasks, .. }) = cluster.replies.remove(&number) else { panic!("a claim") };
    assert_eq!(data_of(&tasks[0].updates), [10, 11, 12]);
    let is_voided =
        |(_, it): &(usize, Observation)| matches!(it, Observation::Voided { id: voided, .. } if *voided == id);
    assert!(!cluster.observed.iter().any(is_voided), "by the first grant");
}

impl Cluster {
    /// Advances time and holds some events back; returns these.
    fn advance_holding(&mut self, ms: u64, is_held: impl Fn(usize, &Event) -> bool) -> Vec<(usize, Event)> {
        let mut held = Vec::new();
        for _ in 0..ms {
            self.now.mono_us += 1_000;
            self.now.wall_ms += 1;
            let is_due = |index: &usize| self.nodes[*index].next_wake().is_some_and(|at_us| at_us <= self.now.mono_us);
            self.queue.extend((0..self.nodes.len()).filter(is_due).map(|index| (index, Event::Wake)));
            while let Some((index, event)) = self.queue.pop_front() {
                if is_held(index, &event) {
                    held.push((index, event));
                } else {
                    self.queue.push_front((index, event));
                    self.handle_next();
                }
            }
        }
        held
    }

    /// Advances time until a call is answered, at a node whose disk is slow. Returns the answer, and the reads that have not ended.
    fn answer_with_slow_disk(&mut self, index: usize, number: u64) -> (Response, Vec<(usize, Event)>) {
        let mut late = Vec::new();
        for _ in 0..10_000 {
            late.extend(self.advance_holding(1, |at, event| at == index && matches!(event, Event::Loaded { .. })));
            if let Some(response) = self.replies.remove(&number) {
                return (response, late);
            }
        }
        panic!("no answer");
    }
}

/// Goal: a log that takes longer to read than a grant may take is not read anew for each grant.
#[test]
fn a_log_that_comes_too_late_for_its_grant_is_there_for_the_next() {
    let mut cluster = Cluster::with_config(3, &with_memory(1 << 20));
    let (id, _) = cluster.open_with_log(0, 10, 3);
    cluster.advance(5 * LEASE_MS);
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let replica = cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads");
    assert!(replica.store.leave(&id, true));
    cluster.nodes[leader].count_bodies(partition);
    let number = cluster.post(leader, Request::Claim(claim_of(ClaimId(77), 10_000, 1)));
    let (response, late) = cluster.answer_with_slow_disk(leader, number);
    assert!(matches!(&response, Response::Error(error) if error.code == ErrorCode::Unavailable), "{response:?}");
    assert!(!late.is_empty());
    cluster.queue.extend(late);
    cluster.drain();
    let number = cluster.post(leader, Request::Claim(claim_of(ClaimId(78), 10_000, 1)));
    let (response, late) = cluster.answer_with_slow_disk(leader, number);
    let Response::Claimed { tasks, .. } = response else { panic!("{response:?}") };
    assert_eq!((data_of(&tasks[0].updates), tasks[0].attempt, late.len()), (vec![10, 11, 12], 2, 0));
}

/// Goal: a task of which a log entry is lost is granted again once a peer has supplied the entry, with its whole log.
#[test]
fn an_entry_that_cannot_be_read_comes_from_a_peer_before_the_task_is_granted() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let (id, token) = cluster.open_with_log(0, 10, 3);
    cluster.run_until(|cluster| cluster.has_left(&id));
    cluster.advance(3 * LEASE_MS);
    let leader = cluster.leader(&id);
    cluster.spoil_entry(leader, &id, Slot::Entry(token, 1));
    let granted = cluster.claim_again(0, id);
    assert_eq!(
        (data_of(&granted.updates), granted.attempt),
        (vec![10, 11, 12], 2),
        "what could not be told is no attempt"
    );
    assert!(cluster.observed.iter().any(|(_, it)| matches!(it, Observation::BodyLost { id: lost } if *lost == id)));
    cluster.run_until(|cluster| cluster.lost(leader) == 0);
    // The peer's copy is in the log once more.
    cluster.run_until(|cluster| cluster.has_left(&id));
    assert_eq!(data_of(&cluster.get(leader, id).updates), [10, 11, 12]);
}

/// Goal: if no replica has a log entry any more, readers learn of it, the task waits, and an operator can end it.
#[test]
fn a_task_without_a_part_of_its_log_waits_and_can_be_cancelled_and_purged() {
    for comes_back in [true, false] {
        let mut cluster = Cluster::with_config(1, &with_memory(0));
        let (id, token) = cluster.open_with_log(0, 10, 3);
        cluster.run_until(|cluster| cluster.has_left(&id));
        cluster.advance(3 * LEASE_MS);
        cluster.spoil_entry(0, &id, Slot::Entry(token, 1));
        cluster.claim_in_vain(0);
        let partition = cluster.nodes[0].partition_of(&id);
        let at = cluster.replica_of(0, &id).consensus.viewstamp;
        cluster.claim_in_vain(0);
        assert_eq!(cluster.replica_of(0, &id).consensus.viewstamp, at, "it is not granted again and again");
        assert_eq!(cluster.lost(0), 1);
        assert!(cluster.nodes[0].lacks_work(partition, &[QueueName::new("mail").expect("a name")]));
        let view = cluster.get(0, id);
        assert!(view.lost.is_some_and(|lost| lost.log && !lost.payload) && view.log_incomplete, "{view:?}");
        assert_eq!((view.state, data_of(&view.updates)), (State::Waiting, vec![10]));
        let list =
            Request::List { queue: None, state: Some(State::Waiting), after: None, from: None, to: None, limit: 9 };
        let Response::Page(page) = cluster.ask(0, list) else { panic!("a list") };
        assert_eq!(page.tasks.iter().map(|view| view.id).collect::<Vec<_>>(), [id]);
        if comes_back {
            cluster.unreadable.clear();
            cluster.run_until(|cluster| cluster.lost(0) == 0);
            assert_eq!(data_of(&cluster.claim_again(0, id).updates), [10, 11, 12]);
            continue;
        }
        let cancel = Request::Cancel { id, reason: String::new(), at_ms: 9, acks: Acks::Quorum };
        assert!(!matches!(cluster.ask(0, cancel), Response::Error(_)));
        assert!(!matches!(cluster.ask(0, Request::Purge { id, acks: Acks::Quorum, state: None }), Response::Error(_)));
        cluster.run_until(|cluster| cluster.replica_of(0, &id).store.tombstone(&id).is_some());
        assert_eq!(cluster.lost(0), 0);
    }
}

/// Goal: a transaction finds a task at the version that a reader got, though the leader's memory has nothing of its log.
#[test]
fn a_version_is_that_of_a_log_that_has_left_memory() {
    let mut cluster = Cluster::with_config(3, &Config { payload_memory_bytes: 0, ..Config::default() });
    cluster.connect_all();
    cluster.advance(5_000);
    let (id, token) = cluster.open_with_log(0, 10, 3);
    cluster.advance(3 * LEASE_MS);
    cluster.run_until(|cluster| cluster.has_left(&id));
    let seen = cluster.get(0, id).version.expect("it is told");
    let mut transact = |payload: &[u8], expected| {
        let change = Change { id, expected, payload: Some(payload.to_vec().into()), ..Change::default() };
        let transaction = Transaction {
            id: cluster.id(10 << 20),
            at_ms: cluster.now.wall_ms,
            changes: vec![change],
            ..Transaction::default()
        };
        match cluster.ask(1, Request::Transact(Box::new(transaction))) {
            Response::Transacted(Ok(stamps)) => Ok(stamps[0].1),
            Response::Transacted(Err(refusal)) => Err(refusal.changes),
            other => panic!("{other:?}"),
        }
    };
    let told = transact(b"second", Expected::Version(seen)).expect("it is as it was seen");
    assert_eq!(transact(b"third", Expected::Version(seen)), Err(vec![id]));
    assert!(transact(b"fourth", Expected::Version(told)).is_ok(), "what it was told is what it is");
    let granted = cluster.claim_again(2, id);
    assert_eq!((granted.payload.as_slice(), data_of(&granted.updates)), (b"fourth".as_slice(), vec![10, 11, 12]));
    assert!(granted.updates.iter().all(|entry| entry.token == token));
}

/// Goal: results of superseded claims leave memory as well, and are in the ending of the task.
#[test]
fn results_that_do_not_count_leave_memory_before_their_task_ends() {
    let mut cluster = Cluster::modern(3);
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let id = cluster.enqueue(0, b"x", 1);
    let complete = |cluster: &mut Cluster, token, number| {
        let result = Some(bytes_of(number).into());
        let items = vec![Completion { id, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
        cluster.ask(0, Request::Complete { items, acks: Acks::Quorum })
    };
    let first = cluster.claim(0, LEASE_MS).remove(0).token;
    cluster.advance(3 * LEASE_MS);
    let second = cluster.claim(0, 60_000).remove(0).token;
    complete(&mut cluster, first, 1);
    let has_rejected = |cluster: &Cluster, index| cluster.task_at(index, &id).blobs().count() == 1;
    cluster.run_until(|cluster| (0..3).all(|index| has_rejected(cluster, index)));
    assert!((0..3).all(|index| cluster.memory_bytes(index) >= 1_000), "it counts");
    let partition = cluster.nodes[0].partition_of(&id);
    for index in 0..3 {
        let replica = cluster.nodes[index].partitions.get_mut(&partition).expect("it has one");
        assert!(replica.store.leave(&id, true));
        cluster.nodes[index].count_bodies(partition);
    }
    let response = complete(&mut cluster, second, 2);
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
    let dropped = |cluster: &Cluster, index| cluster.replica_of(index, &id).consensus.claim_entry(&id).is_none();
    cluster.run_until(|cluster| (0..3).all(|index| dropped(cluster, index)));
    for index in 0..3 {
        let view = cluster.get(index, id);
        assert_eq!((view.state, view.result), (State::Done, Some(bytes_of(2).into())));
        assert_eq!(view.claims[0].rejected, Some(Rejected { result: Some(bytes_of(1).into()) }));
    }
}

/// Goal: a worker's completion is acknowledged as the one that counts only once the ending of the task is committed. Method: what the
/// ending lacks is read late, and another operation stands between the seal and the ending.
#[test]
fn a_seal_is_not_told_before_an_ending_that_is_appended_late() {
    let mut cluster = Cluster::modern(3);
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let id = cluster.enqueue(0, b"x", 1);
    let (leader, partition) = (cluster.leader(&id), cluster.nodes[0].partition_of(&id));
    let complete = |token, number| {
        let result = Some(bytes_of(number).into());
        let items = vec![Completion { id, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
        Request::Complete { items, acks: Acks::Quorum }
    };
    let first = cluster.claim(leader, LEASE_MS).remove(0).token;
    cluster.advance(3 * LEASE_MS);
    let second = cluster.claim(leader, 60_000).remove(0).token;
    cluster.ask(leader, complete(first, 1));
    cluster.run_until(|cluster| cluster.task_at(leader, &id).blobs().count() == 1);
    let replica = cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads");
    assert!(replica.store.leave(&id, true));
    cluster.nodes[leader].count_bodies(partition);

    let other = cluster.enqueue(leader, b"y", 1);
    assert_eq!(cluster.nodes[leader].partition_of(&other), partition);
    let granted = cluster.claim(leader, 60_000).remove(0);
    cluster.advance(LEASE_MS);
    let sealed = cluster.replica_of(leader, &id).consensus.viewstamp.length + 1;
    let number = cluster.post(leader, complete(second, 2));
    cluster.post(leader, Request::Renew { items: vec![(granted.id, granted.token)], lease_ms: None });
    let is_ack = |index: usize, event: &Event, upto: u64| match event {
        Event::Peer { message: PeerMessage::Replication(Replication::Ack { partition: of, length, .. }), .. } => {
            index == leader && *of == partition && *length > upto
        }
        _ => false,
    };
    let is_read = |event: &Event| matches!(event, Event::Loaded { .. });
    // Followers that receive one operation at a time acknowledge each.
    let held = cluster.advance_holding(100, |index, event| is_ack(index, event, sealed) || is_read(event));
    let (late, acks): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, event)| is_read(event));
    assert!(cluster.replica_of(leader, &id).consensus.commit == sealed && !late.is_empty());
    cluster.queue.extend(late);
    cluster.advance_holding(LEASE_MS / 2, |index, event| is_ack(index, event, sealed));
    assert!(cluster.replica_of(leader, &id).consensus.viewstamp.length > sealed + 1, "the ending is appended");
    cluster.queue.extend(acks);
    cluster.advance_holding(100, |index, event| is_ack(index, event, sealed + 1));
    assert_eq!(cluster.replica_of(leader, &id).consensus.commit, sealed + 1);
    let early = cluster.replies.remove(&number);
    assert!(!matches!(&early, Some(Response::Acked(results)) if results[0].is_ok()), "{early:?}");
    let response = cluster.ask(leader, complete(second, 2));
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
}
