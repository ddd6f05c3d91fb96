//! Parts of tasks that no replica can read back: readers learn of it, and an operator can remove such a task.

use super::*;
use norn_model::config::Retention;
use norn_model::message::Peering;
use norn_model::task::Slot;
use norn_wire::membership::QueueSetting;
use norn_wire::response::Losses;
use std::sync::Arc;

const PAYLOAD: Losses = Losses { payload: true, result: false, rejected: false, log: false };
const RESULT: Losses = Losses { payload: false, result: true, rejected: false, log: false };

/// Nodes that keep tasks for ever, and next to nothing in memory.
fn keeping(size: usize, archives: bool) -> Cluster {
    let retention = Arc::new(Retention { default_ms: u64::MAX, ..Retention::default() });
    let config = Config { retention, archives, payload_memory_bytes: 0, ..Config::default() };
    let mut cluster = Cluster::with_config(size, &config);
    cluster.connect_all();
    cluster
}

impl Cluster {
    /// Number of parts that a snapshot would lack; it is given up then.
    fn snapshot_lacks(&self, index: usize) -> usize {
        let gaps = self.nodes[index].save(&mut Cursor::default(), usize::MAX).gaps;
        let lacks = |wanted: &Wanted| self.body(index, wanted).is_none_or(|filling| !wanted.is(&filling));
        gaps.iter().filter(|gap| lacks(&gap.wanted)).count()
    }

    /// Makes the results that were written so far unreadable, and leaves the payloads.
    fn spoil_results(&mut self, index: usize) {
        let has_result = |task: &norn_model::task::Task| task.blobs().any(|(slot, _)| matches!(slot, Slot::Result(_)));
        let records = self.logs[index].iter().enumerate();
        let spoiled = records.filter(|(_, record)| match record {
            Record::Facts { items, .. } => items.iter().any(|(_, task)| has_result(task)),
            _ => false,
        });
        let spoiled: Vec<(usize, usize)> = spoiled.map(|(at, _)| (index, at)).collect();
        self.unreadable.extend(spoiled);
    }

    fn page(&mut self, index: usize) -> Vec<(TaskId, State, Option<Losses>)> {
        let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 100 };
        match self.ask(index, list) {
            Response::Page(page) => page.tasks.iter().map(|view| (view.id, view.state, view.lost)).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Checks that no replica keeps anything of a task: no fact, no record of a loss, no claim.
    fn assert_let_go(&mut self, id: TaskId) {
        let all = 0..self.nodes.len();
        self.run_until(|cluster| cluster.burying(&id) == cluster.nodes.len());
        self.run_until(|cluster| cluster.nodes.iter().all(|node| node.payloads.bodies().lost.is_empty()));
        for index in all {
            assert_eq!((self.lost(index), self.snapshot_lacks(index)), (0, 0), "node {index}");
            assert!(self.replica_of(index, &id).consensus.claim_entry(&id).is_none());
            let get = Request::Get { id, minimum: None, minimum_sequence: None };
            assert_eq!(self.refused(index, get), ErrorCode::NotFound);
        }
    }
}

/// Goal: a task whose payload is lost is shown, listed and counted as such, and an operator can remove it.
#[test]
fn a_task_without_its_payload_is_shown_and_can_be_cancelled_and_purged() {
    for size in [1, 3] {
        let mut cluster = keeping(size, false);
        let id = cluster.enqueue(0, b"gone", 7);
        cluster.advance(2_000);
        (0..size).for_each(|index| cluster.spoil(index));
        cluster.claim_in_vain(0);
        let other = cluster.enqueue(0, b"there", 7);
        let view = cluster.get(0, id);
        assert_eq!((view.lost, view.state, view.spec), (Some(PAYLOAD), State::Waiting, spec(b"", 0)));
        assert_eq!(cluster.page(0), [(id, State::Waiting, Some(PAYLOAD)), (other, State::Ready, None)]);
        assert_eq!(cluster.ask(0, Request::Count { queue: None, state: None }), Response::Count(2));
        assert_eq!(cluster.purge(0, id).expect_err("it is open").code, ErrorCode::Invalid);
        assert!((0..size).all(|index| cluster.snapshot_lacks(index) == 1));

        cluster.cancel(0, id);
        let view = cluster.get(0, id);
        assert_eq!((view.lost, view.state), (Some(PAYLOAD), State::Cancelled));
        assert_eq!(cluster.purge(0, id), Ok(id));
        cluster.assert_let_go(id);
        assert_eq!(cluster.claim(0, 10_000).remove(0).id, other);
    }
}

/// Goal: the same for an ended task whose result is lost.
#[test]
fn a_task_without_its_result_is_shown_and_can_be_purged() {
    for (size, archives) in [(1, false), (3, false), (1, true), (3, true)] {
        let mut cluster = keeping(size, archives);
        let id = cluster.end_with_result(0, 1);
        cluster.run_until(|cluster| (0..size).all(|index| cluster.has_left_at(index, &id)));
        (0..size).for_each(|index| cluster.spoil_results(index));
        let view = cluster.get(0, id);
        assert_eq!((view.lost, view.state, view.result), (Some(RESULT), State::Done, None));
        assert_eq!((view.spec.payload, view.updates.len(), view.version), (vec![1; 1_000], 1, None));
        assert_eq!(cluster.page(0), [(id, State::Done, Some(RESULT))]);
        assert!((0..size).all(|index| cluster.snapshot_lacks(index) == 1));
        assert_eq!(cluster.purge(0, id), Ok(id));
        cluster.assert_let_go(id);
        let archived: Vec<_> = cluster.archived.iter().map(|view| (view.id, view.state, view.lost)).collect();
        assert_eq!(archived, if archives { vec![(id, State::Done, Some(RESULT))] } else { Vec::new() });
    }
}

/// Goal: the archive gets a purged task whose payload is lost, with the note that it is lost.
#[test]
fn a_purged_task_without_its_payload_is_archived_as_such() {
    let mut cluster = keeping(1, true);
    let id = cluster.enqueue(0, b"gone", 7);
    cluster.spoil(0);
    cluster.claim_in_vain(0);
    cluster.cancel(0, id);
    cluster.advance(20_000);
    assert!(cluster.archived.is_empty());
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.assert_let_go(id);
    let archived: Vec<_> = cluster.archived.iter().map(|view| (view.id, view.state, view.lost)).collect();
    assert_eq!(archived, [(id, State::Cancelled, Some(PAYLOAD))]);
}

/// Goal: a part that one replica has is not lost, and a reader waits for one that is down, but no longer than a read may take.
#[test]
fn what_another_replica_has_is_not_lost() {
    let mut cluster = keeping(3, false);
    let (id, open) = (cluster.end_with_result(0, 1), cluster.enqueue(0, b"open", 1 << 20));
    cluster.run_until(|cluster| (0..3).all(|index| cluster.has_left_at(index, &id)));
    cluster.advance(2_000);
    (0..2).for_each(|index| cluster.spoil(index));
    cluster.down.insert(2);
    let began_us = cluster.now.mono_us;
    let view = cluster.get(0, id);
    assert_eq!(view.lost, Some(Losses { log: true, payload: true, ..RESULT }));
    let waited_ms = (cluster.now.mono_us - began_us) / 1_000;
    let timeout_ms = Config::default().request_timeout_ms;
    assert!((timeout_ms..timeout_ms + 100).contains(&waited_ms), "{waited_ms} ms");
    cluster.restart(2);
    cluster.connect_all();
    let number = cluster.submit(0, Request::Get { id, minimum: None, minimum_sequence: None });
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    let Some(Response::Task(view)) = cluster.replies.remove(&number) else { panic!("a task") };
    assert_eq!((view.lost, view.result.map(|result| result.into_vec())), (None, Some(vec![201; 1_000])));
    assert_eq!(cluster.get(0, open).lost, None);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.lost(index) == 0));
}

/// Goal: a claim whose task ended with a result that was lost since is dropped once the task is purged, and not before.
#[test]
fn the_claim_of_a_purged_task_is_dropped_without_its_result() {
    let mut cluster = keeping(1, false);
    let id = cluster.enqueue(0, &[1; 1_000], 7);
    let token = cluster.claim(0, 10_000).remove(0).token;
    let result = Some(vec![2; 1_000].into());
    let items = vec![Completion { id, token, sequence: None, result, at_ms: 5, children: Vec::new() }];
    let number = cluster.submit(0, Request::Complete { items, acks: Acks::Quorum });
    assert!(cluster.replies.contains_key(&number), "nothing else happened meanwhile");
    let partition = cluster.nodes[0].partition_of(&id);
    let replica = cluster.nodes[0].partitions.get_mut(&partition).expect("it leads");
    assert!(replica.consensus.claim_entry(&id).is_some());
    replica.store.leave(&id, true);
    cluster.nodes[0].count_bodies(partition);
    cluster.spoil(0);
    cluster.advance(5_000);
    let has_claim = |cluster: &Cluster| cluster.replica_of(0, &id).consensus.claim_entry(&id).is_some();
    assert!(has_claim(&cluster) && cluster.lost(0) == 1);
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.run_until(|cluster| !has_claim(cluster));
    cluster.assert_let_go(id);
}

/// Goal: a dead task without its payload owes its letter, which cannot be written, until it is purged.
#[test]
fn a_letter_that_cannot_be_written_does_not_hold_a_purged_task() {
    let mut cluster = keeping(1, false);
    cluster.set(0, "mail", QueueSetting::DeadLetter(QueueName::new("dead").ok()));
    cluster.advance(1_000);
    let id = cluster.enqueue(0, b"gone", 7);
    let token = cluster.claim(0, 60_000).remove(0).token;
    cluster.spoil(0);
    let reason = "broken".to_owned();
    let fail = Request::Fail { id, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(cluster.ask(0, fail), Response::Done);
    cluster.advance(5_000);
    let has_claim = |cluster: &Cluster| cluster.replica_of(0, &id).consensus.claim_entry(&id).is_some();
    assert!(has_claim(&cluster));
    let redrive = Request::Redrive { id, child: cluster.id(0), queue: None, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, redrive), Response::Error(_)));
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.assert_let_go(id);
}

impl Cluster {
    fn archived(&self) -> Vec<(TaskId, State, Option<Losses>, Option<&str>)> {
        self.archived.iter().map(|view| (view.id, view.state, view.lost, view.reason.as_deref())).collect()
    }

    /// A task with payload, result and log entry, which have left the memory of all nodes.
    fn end_and_leave(&mut self) -> TaskId {
        let id = self.end_with_result(0, 1);
        self.run_until(|cluster| (0..3).all(|index| cluster.has_left_at(index, &id)));
        self.advance(2_000);
        id
    }

    /// All others learn that a node is gone for good.
    fn declare_gone(&mut self, index: usize) {
        let mut roster = self.nodes[0].roster().clone();
        roster.version += 1;
        let node = NodeId(index as u128 + 1);
        let member = roster.members.values_mut().find(|member| member.node == node).expect("it is one");
        member.state = norn_wire::membership::MemberState::Gone;
        let message = norn_model::message::PeerMessage::Peering(Peering::Roster { roster: Arc::new(roster) });
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            self.queue.push_back((other, Event::Peer { from: node, message: message.clone() }));
        }
        self.drain();
    }
}

/// Goal: the archive gets what any replica has of a purged task, though the leader has just found its own part lost.
#[test]
fn a_purge_lets_nothing_go_that_another_replica_has() {
    let mut cluster = keeping(3, true);
    let id = cluster.end_and_leave();
    let leader = cluster.leader(&id);
    assert_eq!(cluster.purge((leader + 1) % 3, id), Ok(id));
    // A purge reads the task, and so repairs what it finds lost.
    cluster.spoil(leader);
    cluster.run_until(|cluster| cluster.burying(&id) == 3);
    assert_eq!(cluster.archived(), [(id, State::Done, None, None)]);
    assert_eq!(cluster.archived[0].spec.payload, [1; 1_000]);
}

/// Goal: the same if the replica that has it is away when the task is purged. The purge waits for it, unless it is declared gone.
#[test]
fn a_purge_waits_for_a_replica_that_may_have_what_the_others_lost() {
    for comes_back in [true, false] {
        let mut cluster = keeping(3, true);
        let id = cluster.end_and_leave();
        let away = (0..3).find(|index| *index != cluster.leader(&id)).expect("there are three");
        cluster.down.insert(away);
        (0..3).filter(|index| *index != away).for_each(|index| cluster.spoil(index));
        let asked = cluster.leader(&id);
        assert_eq!(cluster.purge(asked, id), Ok(id));
        cluster.advance(30_000);
        assert_eq!((cluster.archived.len(), cluster.burying(&id)), (0, 0));
        if comes_back {
            cluster.restart(away);
            cluster.connect_all();
            cluster.run_until(|cluster| cluster.burying(&id) == 3);
            assert_eq!(cluster.archived(), [(id, State::Done, None, None)]);
        } else {
            cluster.declare_gone(away);
            cluster.run_until(|cluster| cluster.burying(&id) == 2);
            let lost = Losses { log: true, payload: true, ..RESULT };
            let reason = Some("purged; its result was lost");
            assert_eq!(cluster.archived(), [(id, State::Done, Some(lost), reason)]);
        }
    }
}

/// Goal: a part that cannot be read for a reason other than the disk is not lost to the archive, nor to a reader.
#[test]
fn a_purge_lets_nothing_go_that_cannot_be_read_just_now() {
    let mut cluster = keeping(1, true);
    let id = cluster.end_with_result(0, 1);
    cluster.run_until(|cluster| cluster.has_left_at(0, &id));
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.spoil(0);
    cluster.unread = true;
    let get = Request::Get { id, minimum: None, minimum_sequence: None };
    assert_eq!(cluster.refused(0, get), ErrorCode::Unavailable);
    cluster.advance(30_000);
    assert_eq!((cluster.archived.len(), cluster.burying(&id), cluster.lost(0)), (0, 0, 1));
    cluster.unreadable.clear();
    cluster.unread = false;
    cluster.run_until(|cluster| cluster.burying(&id) == 1);
    assert_eq!(cluster.archived(), [(id, State::Done, None, None)]);
}

/// Goal: a purge waits for all replicas before it considers the result lost and records the task as cancelled instead.
#[test]
fn a_purge_waits_for_a_replica_with_the_result_as_other_readers_do() {
    let mut cluster = keeping(3, false);
    let id = cluster.end_and_leave();
    let away = (0..3).find(|index| *index != cluster.leader(&id)).expect("there are three");
    cluster.down.insert(away);
    (0..3).filter(|index| *index != away).for_each(|index| cluster.spoil(index));
    let leader = cluster.leader(&id);
    let number = cluster.submit(leader, Request::Purge { id, acks: Acks::Quorum, state: None });
    cluster.advance(500);
    cluster.restart(away);
    cluster.connect_all();
    cluster.run_until(|cluster| cluster.replies.contains_key(&number));
    assert!(matches!(cluster.replies[&number], Response::AckedOne(_)), "{:?}", cluster.replies[&number]);
    let is_cancelled = |task: &norn_model::task::Task| task.facts.as_ref().is_some_and(|facts| facts.cancel.is_some());
    let says_so = |record: &Record| match record {
        Record::Facts { items, .. } => items.iter().any(|(_, task)| is_cancelled(task)),
        _ => false,
    };
    assert!(!cluster.logs.iter().flatten().any(says_so));
}

/// Goal: a reader that waits for a silent replica asks that one again, and not those that have answered.
#[test]
fn a_reader_that_waits_asks_no_one_twice_that_has_answered() {
    let mut cluster = keeping(3, false);
    let id = cluster.end_and_leave();
    (0..2).for_each(|index| cluster.spoil(index));
    cluster.down.insert(2);
    let before = cluster.loads;
    assert!(cluster.get(0, id).lost.is_some());
    let asked = cluster.loads - before;
    // Three parts of two replicas: for the reader, and each second for their own search and for that of the other.
    assert!(asked <= 3 * 2 * (1 + 3 + 3), "{asked}");
}

/// Goal: if a part that no replica has keeps a partition from growing, operators learn of it, and it grows once they have purged the
/// task.
#[test]
fn a_lost_part_that_blocks_a_change_is_told_of() {
    let retention = Arc::new(Retention { default_ms: u64::MAX, ..Retention::default() });
    let config = Config { retention, payload_memory_bytes: 0, revert_after_ms: 3_000, ..Config::default() };
    let mut cluster = Cluster::with_config(3, &config);
    cluster.connect_all();
    let id = cluster.enqueue(0, b"gone", 7);
    let partition = cluster.nodes[0].partition_of(&id);
    let members = |cluster: &Cluster| cluster.nodes[0].partitions[&partition].cohort().clone();
    let arrange = |cluster: &mut Cluster, count: u128| {
        let nodes = (1..=count).map(NodeId).collect();
        assert_eq!(cluster.ask(0, Request::Arrange { partition, nodes }), Response::Done);
    };
    let is = |cluster: &Cluster, count: usize| {
        let cohort = members(cluster);
        cohort.is_stable() && cohort.members().count() == count && cohort.draining_replicas.is_empty()
    };
    arrange(&mut cluster, 1);
    cluster.run_until(|cluster| is(cluster, 1));
    cluster.spoil(0);
    let blocked = |cluster: &Cluster| {
        let tells = |observation: &Observation| match observation {
            Observation::ChangeBlocked { partition: of, tasks } => *of == partition.0 && *tasks == 1,
            _ => false,
        };
        cluster.observed.iter().any(|(index, observation)| *index == 0 && tells(observation))
    };
    arrange(&mut cluster, 2);
    cluster.run_until(blocked);
    cluster.cancel(0, id);
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.run_until(|cluster| is(cluster, 1));
    arrange(&mut cluster, 2);
    cluster.run_until(|cluster| is(cluster, 2));
}
