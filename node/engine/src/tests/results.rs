//! Results and log entries of tasks that have ended: out of memory, back where they are needed, and lost.

use super::forgetting::LONG_MS;
use super::*;
use norn_model::limits::OPS_KEPT_BYTES_MAX;
use norn_model::message::AntiEntropy;
use norn_model::task::{Blob, Completed, Outline, Slot, Task};
use norn_wire::membership::{Mode, QueueSetting};
use norn_wire::response::Rejected;
use std::sync::Arc;

pub(super) fn with_memory(payload_memory_bytes: u64) -> Config {
    Config { payload_memory_bytes, ..Config::default() }
}

pub(super) fn bytes_of(number: u8) -> Vec<u8> {
    vec![number; 1_000]
}

impl Cluster {
    pub(super) fn memory_bytes(&self, index: usize) -> usize {
        self.nodes[index].partitions.values().map(|replica| replica.store.body_bytes()).sum()
    }

    pub(super) fn task_at(&self, index: usize, id: &TaskId) -> &Task<Outline> {
        self.replica_of(index, id).store.task(id).expect("it is kept")
    }

    /// Whether nothing of a task's results and log entries is in memory.
    pub(super) fn has_left_at(&self, index: usize, id: &TaskId) -> bool {
        self.task_at(index, id).blobs().all(|(_, blob)| blob.here().is_none())
    }

    /// Enqueues a task, writes a log entry, and completes it with a result.
    pub(super) fn end_with_result(&mut self, index: usize, number: u8) -> TaskId {
        let id = self.enqueue(index, &bytes_of(number), u32::from(number) << 20);
        let granted = self.claim(index, 10_000).remove(0);
        assert_eq!(granted.id, id);
        let (token, data) = (granted.token, bytes_of(number + 100));
        let update = Request::Update { id, token, sequence: 0, data, acks: Acks::Quorum };
        let response = self.ask(index, update);
        assert!(matches!(&response, Response::AckedOne(_)), "{response:?}");
        let result = Some(bytes_of(number + 200).into());
        let items = vec![Completion { id, token, sequence: Some(1), result, at_ms: 5, children: Vec::new() }];
        let response = self.ask(index, Request::Complete { items, acks: Acks::Quorum });
        assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
        id
    }

    fn assert_shown(&mut self, index: usize, id: TaskId, number: u8) {
        let view = self.get(index, id);
        assert_eq!((view.state, view.spec.payload), (State::Done, bytes_of(number)));
        assert_eq!(view.result.map(|result| result.into_vec()), Some(bytes_of(number + 200)));
        let entries: Vec<Vec<u8>> = view.updates.into_iter().map(|entry| entry.data).collect();
        assert_eq!((entries, view.log_incomplete, view.conflict), (vec![bytes_of(number + 100)], false, false));
    }

    pub(super) fn roots(&self, index: usize) -> Vec<u128> {
        self.nodes[index].partitions.values().map(|replica| replica.store.root()).collect()
    }

    /// Puts a snapshot in place of a node's log, and starts the node on it.
    pub(super) fn restart_on_snapshot(&mut self, index: usize) {
        let Part { mut records, gaps, last } = self.nodes[index].save(&mut Cursor::default(), usize::MAX);
        assert!(last && gaps.iter().any(|gap| gap.wanted.slot != Slot::Spec), "{gaps:?}");
        for gap in gaps {
            let filling = self.body(index, &gap.wanted).filter(|filling| gap.wanted.is(filling)).expect("it is there");
            let Record::Facts { items, .. } = &mut records[gap.record] else { panic!("only tasks have gaps") };
            Arc::make_mut(items)[gap.item].1.fill(gap.wanted.slot, filling);
        }
        // Peers remember how long its log was.
        let facts =
            records.iter().rfind(|record| matches!(record, Record::Facts { .. })).expect("there are some").clone();
        records.resize(records.len().max(self.logs[index].len()), facts);
        self.logs[index] = records;
        self.restart(index);
    }
}

/// Goal: of several completions of a task the result of each is shown, also once it has left memory. A list does not include them.
#[test]
fn a_result_that_another_one_stands_over_is_shown() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let id = cluster.enqueue(0, b"x", 1);
    let first = cluster.claim(0, 1_000).remove(0).token;
    cluster.advance(3_000);
    let second = cluster.claim(0, 60_000).remove(0).token;
    for (token, number) in [(first, 1), (second, 2)] {
        let result = Some(bytes_of(number).into());
        let items = vec![Completion { id, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
        let response = cluster.ask(0, Request::Complete { items, acks: Acks::Quorum });
        assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
    }
    cluster.run_until(|cluster| (0..3).all(|index| cluster.memory_bytes(index) == 0));
    let view = cluster.get(1, id);
    assert_eq!(view.result, Some(bytes_of(2).into()));
    let of = |place: usize| view.claims[place].superseded.clone();
    assert_eq!((of(0), of(1)), (Some(Rejected { result: Some(bytes_of(1).into()) }), None));
    let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 9 };
    let Response::Page(page) = cluster.ask(1, list) else { panic!() };
    assert!(page.tasks[0].claims.iter().all(|claim| claim.superseded.is_none()), "{page:?}");
}

#[test]
fn results_and_log_entries_of_ended_tasks_leave_memory_and_are_read_back() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let ids: Vec<TaskId> = (0..4).map(|number| cluster.end_with_result(usize::from(number) % 3, number)).collect();
    cluster.run_until(|cluster| (0..3).all(|index| cluster.memory_bytes(index) == 0));
    let left = |cluster: &Cluster| (0..3).all(|index| ids.iter().all(|id| cluster.has_left_at(index, id)));
    assert!(left(&cluster));
    for (number, id) in (0..).zip(&ids) {
        (0..3).for_each(|index| cluster.assert_shown(index, *id, number));
    }
    let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 100 };
    let Response::Page(page) = cluster.ask(1, list) else { panic!("a list") };
    let listed = page.tasks.iter().filter_map(|view| view.result.as_ref()).map(|result| result[0]);
    assert_eq!(listed.collect::<Vec<_>>(), [200, 201, 202, 203]);
    assert!(left(&cluster), "what is read is not kept");

    // A replayed log, and a snapshot in its place.
    cluster.restart(0);
    assert_eq!(cluster.memory_bytes(0), 0);
    cluster.restart_on_snapshot(1);
    assert_eq!(cluster.memory_bytes(1), 0);
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    assert!(left(&cluster));
    assert!(cluster.roots(0) == cluster.roots(1) && cluster.roots(1) == cluster.roots(2));
    for (number, id) in (0..).zip(&ids) {
        (0..3).for_each(|index| cluster.assert_shown(index, *id, number));
    }
}

#[test]
fn bodies_results_and_log_entries_have_one_budget() {
    let mut cluster = Cluster::with_config(1, &with_memory(5_000));
    let waiting: Vec<TaskId> = (0..2).map(|_| cluster.enqueue(0, &bytes_of(9), 0xff_ffff)).collect();
    // These are granted first.
    let claim = |cluster: &mut Cluster, id: TaskId| {
        let granted = cluster.claim(0, 600_000).remove(0);
        assert_eq!(granted.id, id);
        granted.token
    };
    let held: Vec<Token> = waiting.iter().map(|id| claim(&mut cluster, *id)).collect();
    let ids: Vec<TaskId> = (0..10).map(|number| cluster.end_with_result(0, number)).collect();
    cluster.run_until(|cluster| cluster.memory_bytes(0) <= 5_000);
    assert!(cluster.memory_bytes(0) > 3_000, "as much stays as may");
    let here = |cluster: &Cluster, id: &TaskId| {
        cluster.task_at(0, id).spec.as_ref().is_some_and(|spec| spec.body.here().is_some())
    };
    assert!(waiting.iter().all(|id| here(&cluster, id)), "what is over makes room for what is not");
    for (number, id) in (0..).zip(&ids) {
        cluster.assert_shown(0, *id, number);
    }
    for (id, token) in waiting.iter().zip(held) {
        cluster.complete(0, *id, token);
    }
    cluster.restart(0);
    assert!(cluster.memory_bytes(0) <= 5_000);
}

#[test]
fn a_result_that_cannot_be_read_comes_back_from_a_peer() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.has_left_at(index, &id)));
    let facts = cluster.logs[0].iter().enumerate().filter(|(_, record)| matches!(record, Record::Facts { .. }));
    cluster.unreadable = facts.map(|(at, _)| (0, at)).collect();
    cluster.assert_shown(1, id, 1);
    cluster.run_until(|cluster| cluster.task_at(0, &id).is_lost());
    let partition = cluster.nodes[0].partition_of(&id);
    assert_eq!(cluster.nodes[0].bodies_lost(partition), 1);
    assert!(!cluster.nodes[0].lacks_work(partition, &[QueueName::new("mail").expect("a name")]), "nobody waits for it");
    cluster.run_until(|cluster| !cluster.task_at(0, &id).is_lost());
    cluster.run_until(|cluster| cluster.memory_bytes(0) == 0);
    // The others are not needed any more: the peer's copy is in the log once more.
    cluster.down.insert(1);
    cluster.advance(3_000);
    cluster.assert_shown(0, id, 1);
}

#[test]
fn a_leader_brings_a_result_back_to_drop_the_claim() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let id = cluster.end_with_result(0, 1);
    let leader = cluster.leader(&id);
    let partition = cluster.nodes[0].partition_of(&id);
    let replica = cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads");
    assert!(replica.consensus.claim_entry(&id).is_some(), "the claim is dropped later");
    replica.store.leave(&id, true);
    assert!(!replica.store.task(&id).expect("it is kept").has_blobs());
    cluster.nodes[leader].count_bodies(partition);
    let dropped = |cluster: &Cluster, index| cluster.replica_of(index, &id).consensus.claim_entry(&id).is_none();
    cluster.run_until(|cluster| (0..3).all(|index| dropped(cluster, index)));
    cluster.assert_shown(0, id, 1);
}

/// Goal: of two results under one key the same one counts everywhere, whichever has left memory. Method: one replica that has one of
/// them only in its log gets the other one from a peer, and restarts.
#[test]
fn of_two_results_the_greater_one_counts_though_it_is_not_in_memory() {
    for (first, second) in [(1, 2), (2, 1)] {
        let mut cluster = Cluster::with_config(3, &with_memory(0));
        let id = cluster.enqueue(0, b"x", 1);
        let token = cluster.claim(0, 10_000).remove(0).token;
        let completion = |number| {
            let result = Some(bytes_of(number).into());
            Task::from_completion(token, Completed { sequence: None, result, at_ms: 5, children: None })
        };
        let partition = cluster.nodes[0].partition_of(&id);
        let told = |task: Task| {
            PeerMessage::AntiEntropy(AntiEntropy::Tasks {
                partition,
                items: Arc::new(vec![(id, task)]),
                by_buckets: false,
                forgets: Some(0),
            })
        };
        cluster.deliver(1, 0, told(completion(first)));
        cluster.run_until(|cluster| (0..3).all(|index| cluster.replica_of(index, &id).store.ended(&id)));
        cluster.run_until(|cluster| (0..3).all(|index| cluster.has_left_at(index, &id)));
        cluster.deliver(1, 0, told(completion(second)));
        cluster.deliver(1, 0, told(completion(second)));
        assert!(cluster.replica_of(0, &id).store.rival_of(&id).is_some(), "it waits for the first one");
        cluster.restart(0);
        let settled = |cluster: &Cluster, index| {
            let store = &cluster.replica_of(index, &id).store;
            store.rival_of(&id).is_none()
                && cluster.task_at(index, &id).facts.as_ref().is_some_and(|facts| facts.conflict)
        };
        cluster.run_until(|cluster| (0..3).all(|index| settled(cluster, index)));
        cluster.run_until(|cluster| (0..3).all(|index| cluster.memory_bytes(index) == 0));
        cluster.run_until(|cluster| cluster.roots(0) == cluster.roots(1) && cluster.roots(1) == cluster.roots(2));
        for index in 0..3 {
            let view = cluster.get(index, id);
            assert!(view.conflict);
            assert_eq!(view.result.map(|result| result.into_vec()), Some(bytes_of(2)));
        }
    }
}

/// A snapshot that is written before two results could be compared has both.
#[test]
fn a_snapshot_has_facts_that_wait() {
    let mut cluster = Cluster::with_config(1, &with_memory(0));
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| cluster.has_left_at(0, &id));
    let partition = cluster.nodes[0].partition_of(&id);
    let token = cluster.task_at(0, &id).facts.as_ref().expect("it has ended").completions[0].0;
    let result = Some(Blob::from(bytes_of(255)));
    let other = Completed { sequence: Some(1), result, at_ms: 5, children: None };
    assert_eq!(cluster.nodes[0].merge(partition, vec![(id, Task::from_completion(token, other))]), 1);
    cluster.nodes[0].count_bodies(partition);
    assert!(cluster.replica_of(0, &id).store.rival_of(&id).is_some());
    cluster.restart_on_snapshot(0);
    cluster.run_until(|cluster| cluster.replica_of(0, &id).store.rival_of(&id).is_none());
    cluster.run_until(|cluster| cluster.nodes[0].is_serving());
    let view = cluster.get(0, id);
    assert_eq!((view.conflict, view.result.map(|result| result.into_vec())), (true, Some(bytes_of(255))));
}

/// Followers learn from the table how a sealed task ended, without a record of facts.
#[test]
fn a_result_that_came_with_a_table_is_written_before_it_leaves() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    cluster.connect_all();
    cluster.advance(5_000);
    cluster.set(0, "mail", QueueSetting::Mode(Mode::Holder));
    cluster.advance(1_000);
    let ids: Vec<TaskId> = (0..4).map(|number| cluster.end_with_result(0, number)).collect();
    cluster.run_until(|cluster| (0..3).all(|index| cluster.memory_bytes(index) == 0));
    assert!((0..3).all(|index| ids.iter().all(|id| cluster.has_left_at(index, id))));
    cluster.restart(1);
    cluster.connect_all();
    assert_eq!(cluster.memory_bytes(1), 0);
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    for (number, id) in (0..).zip(&ids) {
        cluster.assert_shown(1, *id, number);
    }
}

/// Goal: an ended task whose result is lost is not archived, does not hold up others, and is not read again and again.
#[test]
fn a_task_whose_result_is_lost_does_not_hold_up_the_archive() {
    let mut cluster = Cluster::with_config(1, &Config { archives: true, ..with_memory(0) });
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| cluster.has_left_at(0, &id));
    let result = cluster.task_at(0, &id).blobs_wanted(id).find(|wanted| matches!(wanted.slot, Slot::Result(_)));
    let at = result.expect("it has left memory").place.offset as usize;
    cluster.unreadable.insert((0, at));
    cluster.skip(LONG_MS);
    cluster.run_until(|cluster| cluster.task_at(0, &id).is_lost());
    let loads = cluster.loads;
    cluster.advance(20_000);
    assert!(cluster.loads - loads < 200, "{} loads", cluster.loads - loads);
    assert!(cluster.archived.is_empty() && cluster.replica_of(0, &id).store.tombstone(&id).is_none());
    cluster.unreadable.clear();
    cluster.run_until(|cluster| cluster.replica_of(0, &id).store.tombstone(&id).is_some());
    assert_eq!(cluster.archived.len(), 1);
}

/// Goal: a part that is being loaded into memory is not read once more.
#[test]
fn what_is_brought_back_is_asked_for_once() {
    let mut cluster = Cluster::with_config(1, &with_memory(0));
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| cluster.has_left_at(0, &id));
    let partition = cluster.nodes[0].partition_of(&id);
    let asked = |cluster: &mut Cluster| {
        (0..10).for_each(|_| cluster.nodes[0].bring_results_back(partition, &id));
        let mut effects = Vec::new();
        cluster.nodes[0].step(cluster.now, Event::Wake, &mut effects);
        let asked = effects.iter().filter(|effect| matches!(effect, Effect::Load { .. })).count();
        cluster.carry_out(0, effects);
        cluster.drain();
        asked
    };
    assert_eq!(asked(&mut cluster), 1);
    let has_result =
        cluster.task_at(0, &id).facts.as_ref().is_some_and(|facts| facts.completions[0].1.result_here().is_some());
    assert!(has_result);
    let replica = cluster.nodes[0].partitions.get_mut(&partition).expect("it leads");
    replica.store.leave(&id, true);
    cluster.nodes[0].count_bodies(partition);
    assert_eq!(asked(&mut cluster), 1, "it may come again");
}

/// Goal: facts that wait for a result are merged though it came back in another way than they asked for.
#[test]
fn facts_that_wait_are_merged_once_a_result_is_in_memory() {
    let mut cluster = Cluster::with_config(1, &with_memory(0));
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| cluster.has_left_at(0, &id));
    let partition = cluster.nodes[0].partition_of(&id);
    let (token, known) = cluster.task_at(0, &id).facts.as_ref().expect("it has ended").completions[0].clone();
    let completed = |number| {
        let result = Some(Blob::from(bytes_of(number)));
        Task::from_completion(token, Completed { result, children: None, ..known.clone() })
    };
    let result = cluster.task_at(0, &id).blobs_wanted(id).collect::<Vec<_>>();
    cluster.nodes[0].merge(partition, vec![(id, completed(255))]);
    assert!(cluster.replica_of(0, &id).store.rival_of(&id).is_some());
    result.iter().for_each(|wanted| cluster.nodes[0].set_lost(wanted, true));
    let update = Task::from_update(token, 0, bytes_of(101));
    cluster.nodes[0].merge(partition, vec![(id, update), (id, completed(201))]);
    assert!(cluster.task_at(0, &id).has_blobs() && cluster.replica_of(0, &id).store.rival_of(&id).is_some());
    cluster.nodes[0].count_bodies(partition);
    cluster.nodes[0].ask_for_bodies();
    assert!(cluster.replica_of(0, &id).store.rival_of(&id).is_none());
    assert!(cluster.task_at(0, &id).facts.as_ref().is_some_and(|facts| facts.conflict));
}

/// Goal: neither the operations that a leader keeps for its followers nor its table hold results of tasks that ended long ago. Method: a
/// leader with all of its followers, and one with a follower that is down.
#[test]
fn a_leader_keeps_no_results_for_followers() {
    for down in [None, Some(1)] {
        let mut cluster = Cluster::with_config(3, &with_memory(0));
        cluster.check_every = 256;
        let probe = cluster.id(0);
        let partition = cluster.nodes[0].partition_of(&probe);
        let last = cluster.end_with_result(0, 0);
        assert_eq!(cluster.nodes[0].partition_of(&last), partition);
        let leader = cluster.leader(&last);
        let down = down.map(|step| (leader + step) % 3);
        cluster.down.extend(down);
        let client = (0..3).find(|index| Some(*index) != down).expect("two are left");
        let count = OPS_KEPT_BYTES_MAX / bytes_of(0).len() * 2;
        for _ in 0..count {
            cluster.end_with_result(client, 0);
        }
        let held = |cluster: &Cluster| {
            let consensus = &cluster.replica_of(cluster.leader(&last), &last).consensus;
            let leading = consensus.leading().expect("it leads");
            assert_eq!(leading.ops_bytes, leading.ops.iter().map(|op| op.size_bytes()).sum::<usize>());
            (leading.ops_bytes, consensus.table.out_bytes(), consensus.table.entries.len())
        };
        let most = if down.is_some() { OPS_KEPT_BYTES_MAX } else { 0 };
        cluster.run_until(|cluster| {
            let (ops_bytes, out_bytes, entries) = held(cluster);
            ops_bytes <= most && out_bytes == 0 && entries == 0
        });
    }
}

/// Goal: endings that a table brought to its leader leave it though no other task ends. Method: leaders change as soon as a claim is
/// dropped.
#[test]
fn a_leader_lets_go_of_endings_that_it_inherited() {
    let mut cluster = Cluster::with_config(3, &with_memory(0));
    let id = cluster.enqueue(0, b"x", 0);
    let token = cluster.claim(0, 10_000).remove(0).token;
    let result = Some(vec![1; 10_000].into());
    let items = vec![Completion { id, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
    assert!(matches!(cluster.ask(0, Request::Complete { items, acks: Acks::All }), Response::Acked(_)));
    let out_bytes = |cluster: &Cluster, index| cluster.replica_of(index, &id).consensus.table.out_bytes();
    cluster.run_until(|cluster| (0..3).all(|index| out_bytes(cluster, index) > 0));
    let leader = cluster.leader(&id);
    cluster.down.insert(leader);
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    cluster.run_until(|cluster| others.iter().all(|index| out_bytes(cluster, *index) == 0));
    assert!(others.contains(&cluster.leader(&id)));
}
