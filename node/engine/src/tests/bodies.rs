//! Bodies that do not fit into memory, and logs that cannot return them.

use super::forgetting::LONG_MS;
use super::*;
use norn_model::config::Retention;
use norn_model::host::Room;
use norn_model::limits::EXCHANGE_TASKS_MAX;
use norn_model::message::AntiEntropy;
use norn_model::task::{Place, Task, Tombstone};
use std::sync::Arc;

fn without_memory() -> Config {
    Config { payload_memory_bytes: 0, ..Config::default() }
}

impl Cluster {
    fn body_bytes(&self, index: usize) -> usize {
        self.nodes[index].partitions.values().map(|replica| replica.store.body_bytes()).sum()
    }

    /// Makes the records of facts in a node's log unreadable.
    pub(super) fn spoil(&mut self, index: usize) {
        let facts = self.logs[index].iter().enumerate().filter(|(_, record)| matches!(record, Record::Facts { .. }));
        let spoiled: Vec<usize> = facts.map(|(at, _)| at).collect();
        self.unreadable.extend(spoiled.into_iter().map(|at| (index, at)));
    }

    /// Claims a task when none can be granted.
    pub(super) fn claim_in_vain(&mut self, index: usize) {
        self.number += 1;
        let claim = claim_of(ClaimId(u128::from(self.number)), 10_000, 1);
        let response = self.ask(index, Request::Claim(claim));
        assert!(matches!(&response, Response::Claimed { tasks, .. } if tasks.is_empty()), "{response:?}");
    }

    pub(super) fn lost(&self, index: usize) -> usize {
        self.nodes[index].inspect().iter().map(|view| view.bodies_lost).sum()
    }
}

#[test]
fn claims_reads_and_lists_have_bodies_that_are_not_in_memory() {
    let mut cluster = Cluster::with_config(3, &without_memory());
    let ids: Vec<TaskId> = (0..8u32).map(|number| cluster.enqueue(0, &[number as u8; 50], number << 20)).collect();
    cluster.advance(2_000);
    assert_eq!((0..3).map(|index| cluster.body_bytes(index)).sum::<usize>(), 0);
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(cluster.get(number % 3, *id).spec.payload, [number as u8; 50]);
    }
    let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 100 };
    let Response::Page(page) = cluster.ask(1, list) else { panic!("a list") };
    let listed: Vec<Vec<u8>> = page.tasks.iter().map(|view| view.spec.payload.clone()).collect();
    assert_eq!(listed, (0..8u8).map(|number| vec![number; 50]).collect::<Vec<_>>());
    for (number, id) in ids.iter().enumerate() {
        let granted = cluster.claim(number % 3, 10_000).remove(0);
        assert_eq!(ids.iter().position(|id| *id == granted.id), Some(usize::from(granted.payload[0])), "{id}");
        assert_eq!(granted.payload.len(), 50);
    }
    assert!(cluster.loads >= 8 * (3 + 3 + 1), "each of them was loaded: {}", cluster.loads);
}

#[test]
fn the_oldest_stay_in_memory_and_those_that_end_leave_it() {
    let config = Config { payload_memory_bytes: 5_000, ..Config::default() };
    let mut cluster = Cluster::with_config(1, &config);
    let ids: Vec<TaskId> = (0..10u32).map(|number| cluster.enqueue(0, &[7; 1_000], number)).collect();
    let here = |cluster: &Cluster, id: &TaskId| {
        let partition = cluster.nodes[0].partition_of(id);
        let task = cluster.nodes[0].partitions[&partition].store.task(id).expect("enqueued");
        task.spec.as_ref().expect("enqueued").body.here().is_some()
    };
    let kept = ids.iter().filter(|id| here(&cluster, id)).count();
    assert_eq!(kept, 4);
    assert!(ids[..kept].iter().all(|id| here(&cluster, id)) && cluster.body_bytes(0) <= 5_000);
    let granted = cluster.claim(0, 10_000).remove(0);
    assert_eq!((granted.id, cluster.loads), (ids[0], 0), "the first is in memory");
    cluster.complete(0, granted.id, granted.token);
    assert!(!here(&cluster, &ids[0]));
    let next = cluster.enqueue(0, &[7; 1_000], 11);
    assert!(here(&cluster, &next), "there is room again");

    // The replay keeps as many in memory, and knows where the others are.
    cluster.restart(0);
    assert!(cluster.body_bytes(0) > 3_000 && cluster.body_bytes(0) <= 5_000);
    cluster.run_until(|cluster| cluster.nodes[0].is_serving());
    for id in &ids {
        assert_eq!(cluster.get(0, *id).spec.payload, [7; 1_000]);
    }
}

#[test]
fn a_body_that_cannot_be_read_is_not_granted_until_a_peer_has_told_it() {
    let mut cluster = Cluster::with_config(3, &without_memory());
    let id = cluster.enqueue(0, b"precious", 0);
    cluster.advance(2_000);
    let leader = cluster.leader(&id);
    cluster.spoil(leader);
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    // The leader notices when it is asked for the task: its grant is given back, and no client gets it.
    cluster.claim_in_vain(others[0]);
    assert_eq!(cluster.lost(leader), 1);
    assert_eq!(cluster.get(others[0], id).spec.payload, b"precious", "a majority can still be read");
    cluster.run_until(|cluster| cluster.lost(leader) == 0);
    let granted = cluster.claim(others[0], 10_000).remove(0);
    assert_eq!((granted.payload.as_slice(), granted.attempt), (b"precious".as_slice(), 1));
    // The peer's copy is in the log once more, and is readable there.
    assert_eq!(cluster.get(leader, id).spec.payload, b"precious");
}

#[test]
fn a_body_that_nobody_else_has_comes_back_when_the_log_can_be_read_again() {
    let mut cluster = Cluster::with_config(1, &without_memory());
    let id = cluster.enqueue(0, b"alone", 0);
    cluster.spoil(0);
    cluster.claim_in_vain(0);
    assert!(cluster.get(0, id).lost.is_some_and(|lost| lost.payload));
    cluster.unreadable.clear();
    cluster.run_until(|cluster| cluster.lost(0) == 0);
    assert_eq!(cluster.claim(0, 10_000).remove(0).payload, b"alone");
}

#[test]
fn what_a_replica_missed_comes_with_its_body() {
    let mut cluster = Cluster::with_config(3, &without_memory());
    cluster.down.insert(2);
    let ids: Vec<TaskId> = (0..20u32).map(|number| cluster.enqueue(0, &number.to_be_bytes(), number << 19)).collect();
    cluster.advance(1_000);
    cluster.restart(2);
    let knows = |cluster: &Cluster, id: &TaskId| {
        let replica = &cluster.nodes[2].partitions[&cluster.nodes[0].partition_of(id)];
        replica.store.task(id).is_some_and(|task| task.spec.is_some())
    };
    cluster.run_until(|cluster| ids.iter().all(|id| knows(cluster, id)));
    let roots = |index: usize| -> Vec<u128> {
        cluster.nodes[index].partitions.values().map(|replica| replica.store.root()).collect()
    };
    assert_eq!(roots(0), roots(2));
    cluster.advance(100);
    assert_eq!(cluster.body_bytes(2), 0);
}

#[test]
fn a_load_that_comes_too_late_for_its_file_is_repeated_where_the_body_is_now() {
    let mut cluster = Cluster::with_config(1, &without_memory());
    let id = cluster.enqueue(0, b"moved", 0);
    let partition = cluster.nodes[0].partition_of(&id);
    let at = cluster.logs[0].iter().rposition(|record| matches!(record, Record::Facts { .. })).expect("enqueued");
    let record = cluster.logs[0][at].clone();
    cluster.logs[0].push(record);
    let younger = Place { file: NonZeroU32::MAX, offset: cluster.logs[0].len() as u64 - 1 };
    cluster.unreadable.insert((0, at));

    let mut effects = Vec::new();
    let request = Request::Get { id, minimum: None, minimum_sequence: None };
    let principal = Principal { name: "tester".into(), node: false };
    let asked = Event::Request { client: CLIENT, number: 1_000, principal, request };
    cluster.nodes[0].step(cluster.now, asked, &mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Load { .. })), "{effects:?}");
    let moved = Moved { partition, first: id, last: id, place: younger };
    cluster.nodes[0].step(cluster.now, Event::Moved { ranges: vec![moved] }, &mut effects);
    cluster.carry_out(0, effects);
    cluster.drain();
    let reply = cluster.replies.get(&1_000);
    assert!(matches!(reply, Some(Response::Task(view)) if view.spec.payload == b"moved"), "{reply:?}");
    assert_eq!(cluster.lost(0), 0);
}

#[test]
fn a_node_that_keeps_as_many_tasks_as_it_may_refuses_more_and_says_so() {
    let mut cluster = Cluster::with_config(3, &Config { tasks_max: 2, ..Config::default() });
    let first = cluster.enqueue(0, b"1", 0);
    cluster.enqueue(0, b"2", 0);
    cluster.advance(10);
    let id = cluster.id(0);
    let tasks = vec![NewTask { id, spec: spec(b"3", 0) }];
    let response = cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum });
    let Response::Acked(results) = &response else { panic!("{response:?}") };
    let error = results[0].as_ref().expect_err("refused");
    assert_eq!(error.code, ErrorCode::Overloaded);
    assert!(error.message.contains("tasks_max"), "{error}");
    // A repeat of a known task is no new task.
    let tasks = vec![NewTask { id: first, spec: spec(b"1", 0) }];
    let response = cluster.ask(1, Request::Enqueue { tasks, acks: Acks::Quorum });
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
}

#[test]
fn finished_tasks_are_archived_whole_and_what_is_buried_has_no_body() {
    let mut cluster = Cluster::with_config(3, &Config { archives: true, ..without_memory() });
    let id = cluster.done(b"finished");
    cluster.advance(1_500);
    let loads = cluster.loads;
    cluster.skip(LONG_MS);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.replica_of(index, &id).store.tombstone(&id).is_some()));
    assert!(cluster.loads > loads, "its body was in no memory");
    let archived: Vec<&[u8]> = cluster.archived.iter().map(|view| view.spec.payload.as_slice()).collect();
    assert_eq!(archived, [b"finished"]);
    cluster.advance(1_500);
    assert!((0..3).all(|index| cluster.nodes[index].payloads.bodies().tasks() == 0), "it counts as a task no more");
}

#[test]
fn a_finished_task_whose_body_is_lost_is_archived_and_buried_when_it_is_back() {
    let mut cluster = Cluster::with_config(3, &Config { archives: true, ..without_memory() });
    let id = cluster.done(b"finished");
    cluster.advance(1_500);
    // Whichever node leads after such a long time cannot read the body; the third node has it, and is the least preferred.
    let last = cluster.replica_of(0, &id).cohort().members().last().expect("there are three");
    let whole = last.0 as usize - 1;
    (0..3).filter(|index| *index != whole).for_each(|index| cluster.spoil(index));
    cluster.down.insert(whole);
    cluster.skip(LONG_MS);
    cluster.advance(3_000);
    cluster.down.remove(&whole);
    cluster.run_until(|cluster| (0..3).any(|index| cluster.lost(index) == 1));
    let leader = cluster.leader(&id);
    assert_eq!(cluster.lost(leader), 1);
    assert!(cluster.replica_of(leader, &id).store.tombstone(&id).is_none() && cluster.archived.is_empty());
    cluster.run_until(|cluster| cluster.replica_of(leader, &id).store.tombstone(&id).is_some());
    let archived: Vec<&[u8]> = cluster.archived.iter().map(|view| view.spec.payload.as_slice()).collect();
    assert_eq!(archived, [b"finished"]);
    assert_eq!(cluster.lost(leader), 0);
}

#[test]
fn a_tombstone_takes_a_body_out_of_memory_and_a_move_finds_none() {
    let mut cluster = Cluster::new(1);
    let ids: Vec<TaskId> = (0..3).map(|_| cluster.enqueue(0, &[7; 1_000], 0x12_3456)).collect();
    cluster.advance(10);
    let before = cluster.body_bytes(0);
    let partition = cluster.nodes[0].partition_of(&ids[1]);
    let tombstone = Task::from_tombstone(Tombstone { state: State::Done, at_ms: 1 });
    let mut effects = Vec::new();
    cluster.nodes[0].merge(partition, vec![(ids[1], tombstone)]);
    let place = Place { file: NonZeroU32::MAX, offset: 0 };
    let ranges = vec![Moved { partition, first: ids[0], last: ids[2], place }];
    cluster.nodes[0].step(cluster.now, Event::Moved { ranges }, &mut effects);
    cluster.carry_out(0, effects);
    cluster.drain();
    assert_eq!(cluster.body_bytes(0) * 3, before * 2);
    let part = cluster.nodes[0].save(&mut Cursor::default(), usize::MAX);
    let saved = part.records.iter().filter_map(|record| match record {
        Record::Facts { items, .. } => Some(items.iter().filter(|(id, _)| *id == ids[1])),
        _ => None,
    });
    let saved: Vec<bool> = saved.flatten().map(|(_, task)| task.spec.is_none() && task.tombstone.is_some()).collect();
    assert_eq!((saved, part.gaps), (vec![true], Vec::new()));
    cluster.restart(0);
    assert_eq!(cluster.body_bytes(0) * 3, before * 2);
}

/// Goal: bodies that no replica has do not keep a replica from asking for those behind them.
#[test]
fn lost_bodies_are_asked_for_in_turn() {
    let mut cluster = Cluster::with_config(3, &without_memory());
    let ids: Vec<TaskId> = (0..EXCHANGE_TASKS_MAX + 10).map(|_| cluster.id(7)).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec(b"x", 0) }).collect();
    cluster.ask(0, Request::Enqueue { tasks, acks: Acks::All });
    let node = &mut cluster.nodes[0];
    node.on_bodies_lost(&ids);
    let lost: Vec<_> = node.payloads.bodies().lost.iter().copied().collect();
    assert_eq!(lost.len(), ids.len());
    for last in [EXCHANGE_TASKS_MAX - 1, EXCHANGE_TASKS_MAX - 11, EXCHANGE_TASKS_MAX - 21] {
        node.ask_for_bodies();
        assert_eq!(node.payloads.bodies().asked, Some(lost[last]));
    }
}

/// A replica that lost its unsynced records may know how a task ended, and not what it was.
#[test]
fn a_finished_task_that_replicas_lost_is_archived_as_the_others_know_it() {
    let retention = Arc::new(Retention { default_ms: 60_000, ..Retention::default() });
    let (forget_after_ms, exchange_interval_ms) = (60_000, 60_000);
    let config = Config { archives: true, retention, forget_after_ms, exchange_interval_ms, ..without_memory() };
    let mut cluster = Cluster::with_config(3, &config);
    let id = cluster.done(b"finished");
    cluster.advance(1_500);
    let partition = cluster.nodes[0].partition_of(&id);
    for index in 0..2 {
        let store = &mut cluster.nodes[index].partitions.get_mut(&partition).expect("it has all").store;
        let ended = Task { spec: None, ..store.task(&id).expect("it knows how it ended").whole(id).0 };
        store.forget(&id);
        let items = Arc::new(vec![(id, ended)]);
        cluster.deliver(
            2,
            index,
            PeerMessage::AntiEntropy(AntiEntropy::Tasks { partition, items, by_buckets: false, forgets: Some(0) }),
        );
        assert!(cluster.replica_of(index, &id).store.lacks_spec(&id));
    }
    let old_ms = 60_000 + 10 * forget_after_ms;
    cluster.skip(old_ms);
    cluster.advance(30_000);
    // Whichever node leads: the one that knows the task may not know all of it, and the others know no spec.
    assert!(
        cluster.archived.is_empty()
            && (0..3).all(|index| cluster.replica_of(index, &id).store.tombstone(&id).is_none())
    );
    cluster.advance(4 * exchange_interval_ms);
    cluster.run_until(|cluster| !(0..3).any(|index| cluster.replica_of(index, &id).store.task(&id).is_some()));
    let archived: Vec<&[u8]> = cluster.archived.iter().map(|view| view.spec.payload.as_slice()).collect();
    assert_eq!(archived, [b"finished"]);
}

/// Goal: a follower that has lost the body of a task does not count as one that has named all ready tasks: the client learns that the
/// partition could not be asked. Method: the leader does not know the task, and the third replica is away.
#[test]
fn a_follower_that_lost_a_body_is_not_heard_for_its_partition() {
    let config = Config { exchange_interval_ms: 60_000, ..without_memory() };
    let mut cluster = Cluster::with_config(3, &config);
    let id = cluster.enqueue(0, b"precious", 0);
    cluster.advance(2_000);
    let leader = cluster.leader(&id);
    let (follower, away) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.down.insert(away);
    cluster.advance(3_000);
    assert_eq!(cluster.leader(&id), leader);
    let partition = cluster.nodes[0].partition_of(&id);
    cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads").store.forget(&id);
    cluster.nodes[leader].publish_heads(partition);
    cluster.nodes[follower].on_bodies_lost(&[id]);
    assert_eq!(cluster.lost(follower), 1);
    let queue = |name: &str| vec![QueueName::new(name).expect("a name")];
    for (number, queues, uncovered) in [(77, queue("mail"), 1), (78, queue("other"), 0)] {
        match cluster.ask(leader, Request::Claim(Claim { queues, ..claim_of(ClaimId(number), 10_000, 1) })) {
            Response::Claimed { tasks, unavailable, .. } => assert_eq!((tasks, unavailable), (Vec::new(), uncovered)),
            other => panic!("{other:?}"),
        }
    }
}

/// Goal: a lost payload hides only work of its own queue: a claim of another queue has looked everywhere.
#[test]
fn a_lost_body_hides_no_work_of_other_queues() {
    let mut cluster = Cluster::with_config(1, &without_memory());
    cluster.enqueue(0, b"gone", 0);
    cluster.spoil(0);
    cluster.claim_in_vain(0);
    let mut uncovered = |number: u128, queue: &str| {
        let queues = vec![QueueName::new(queue).expect("a name")];
        match cluster.ask(0, Request::Claim(Claim { queues, ..claim_of(ClaimId(number), 10_000, 1) })) {
            Response::Claimed { tasks, unavailable, .. } => (tasks.len(), unavailable),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((uncovered(77, "mail"), uncovered(78, "other")), ((0, 1), (0, 0)));
}

/// Goal: a disk without space and a lost part do not block each other: a little of what is lost is taken from peers, since only with
/// that a snapshot can be written, which frees space.
#[test]
fn without_room_a_little_of_what_is_lost_is_taken_from_peers() {
    let config =
        Config { retention: Arc::new(Retention { default_ms: u64::MAX, ..Retention::default() }), ..without_memory() };
    let mut cluster = Cluster::with_config(3, &config);
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.has_left_at(index, &id)));
    cluster.advance(2_000);
    cluster.report_spare(0, Room::Short, 0, 1_000);
    cluster.spoil(0);
    cluster.get(0, id);
    assert_eq!(cluster.lost(0), 1);
    cluster.advance(5_000);
    assert_eq!(cluster.lost(0), 1, "it is too much");
    cluster.report_spare(0, Room::Short, 0, 10_000);
    cluster.run_until(|cluster| cluster.lost(0) == 0);
    assert!(cluster.nodes[0].membership.told_bytes() > 3_000);
}
