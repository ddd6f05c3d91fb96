//! Child tasks of a completion: they are enqueued, and neither the watermark nor the burial of their parent overtakes them.

use super::forgetting::LONG_MS;
use super::hints::go_on;
use super::*;
use crate::recovery::save::Cursor;
use norn_model::host::MemoryReport;
use norn_model::message::GarbageCollection;
use norn_model::task::{Children, Completed, Task, Tombstone};
use norn_wire::State;

impl Cluster {
    /// An ended task, and its completion under another claim, with a child in another partition.
    fn brings(&mut self) -> (TaskId, TaskId, Task) {
        let parent = self.done(b"parent");
        let child = self.id(0xfe_0000);
        assert_ne!(self.nodes[0].partition_of(&parent), self.nodes[0].partition_of(&child));
        (parent, child, completion(child))
    }

    fn complete_bringing(&mut self, index: usize, id: TaskId, number: u64, child: TaskId) -> Response {
        let children = vec![NewTask { id: child, spec: spec(b"child", 0) }];
        let item = Completion { id, token: token(number), sequence: None, result: None, at_ms: 5, children };
        self.ask(index, Request::Complete { items: vec![item], acks: Acks::Quorum })
    }

    fn knows(&self, index: usize, id: &TaskId) -> bool {
        self.replica_of(index, id).store.knows(id)
    }
}

fn token(number: u64) -> Token {
    Token { epoch: 1 << 40, number }
}

fn completion(child: TaskId) -> Task {
    let children = Children::new(vec![NewTask { id: child, spec: spec(b"child", 0) }]);
    Task::from_completion(token(1), Completed { sequence: None, result: None, at_ms: 5, children })
}

// O22
#[test]
fn a_child_is_enqueued_once_however_often_its_completion_is_sent() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (parent, child, _) = cluster.brings();
    for index in [0, 1, 2] {
        assert!(
            matches!(cluster.complete_bringing(index, parent, 1, child), Response::Acked(results) if results[0].is_ok())
        );
        cluster.run_until(|cluster| (0..3).all(|index| cluster.knows(index, &child)));
        let open = |cluster: &Cluster, index| {
            let replica: &Partition = cluster.replica_of(index, &parent);
            replica.store.task(&parent).is_some_and(|task| task.has_outbox())
        };
        cluster.run_until(|cluster| !(0..3).any(|index| open(cluster, index)));
    }
    let view = cluster.get(1, parent);
    assert_eq!((view.children, view.children_open), (vec![child], false));
    assert_eq!(cluster.claim(0, 10_000).remove(0).id, child);
}

// O22
#[test]
fn nothing_is_forgotten_below_a_task_that_a_completion_brings() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (parent, child, open) = cluster.brings();
    let below = cluster.id(child.tag());
    let later = NewTask { id: below, spec: spec(b"below", 0) };
    assert!(matches!(
        cluster.ask(0, Request::Enqueue { tasks: vec![later], acks: Acks::Quorum }),
        Response::Acked(results) if results[0].is_ok()
    ));
    let granted = cluster.claim(1, 10_000).remove(0);
    assert!(matches!(cluster.complete(2, below, granted.token), Response::Acked(results) if results[0].is_ok()));
    // One replica has the completion, and cannot hand the child over.
    let partition = cluster.nodes[0].partition_of(&parent);
    let node = &mut cluster.nodes[0];
    node.partitions.get_mut(&partition).expect("it is held").merge(parent, open, cluster.now, &node.config.clone());
    cluster.skip(LONG_MS);
    let answers = |cluster: &mut Cluster| {
        let (partition, up_to) = (cluster.nodes[0].partition_of(&child), below);
        let mut effects = Vec::new();
        let message = PeerMessage::GarbageCollection(GarbageCollection::Outboxes {
            partition,
            epoch: 1,
            number: 1,
            above: None,
            up_to,
        });
        cluster.nodes[0].step(cluster.now, Event::Peer { from: NodeId(2), message }, &mut effects);
        let said = effects.iter().any(|effect| {
            matches!(
                effect,
                Effect::Send { message: PeerMessage::GarbageCollection(GarbageCollection::Childless { .. }), .. }
            )
        });
        cluster.carry_out(0, effects);
        said
    };
    assert!(!answers(&mut cluster), "it brings a child that is not enqueued");
    cluster.run_until(|cluster| (0..3).all(|index| cluster.knows(index, &child)));
    cluster.run_until_forgotten(&below);
    assert!(answers(&mut cluster));
    assert!((0..3).all(|index| cluster.knows(index, &child)), "it has not ended");
}

// O22
#[test]
fn who_may_have_said_that_a_task_is_buried_takes_no_children_for_it() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (parent, _, _) = cluster.brings();
    cluster.skip(LONG_MS);
    cluster.run_until(|cluster| (0..3).all(|index| cluster.replica_of(index, &parent).store.task(&parent).is_none()));
    let fresh = cluster.id(0xfe_0000);
    let Response::Acked(results) = cluster.complete_bringing(0, parent, 2, fresh) else { panic!("it is a batch") };
    assert_eq!(results[0].as_ref().expect_err("its task is over").code, ErrorCode::TooOld);
    assert!(!cluster.knows(0, &fresh));
}

/// Goal: a worker whose completion is acknowledged has its child tasks enqueued, now or before. Method: a completion with other
/// children, under the token of the one that counted, while the task is kept and after that.
#[test]
fn another_completion_under_the_token_of_one_that_counted_brings_nothing() {
    let mut cluster = Cluster::modern(3);
    let parent = cluster.enqueue(0, b"parent", 7);
    let token = cluster.claim(1, 60_000).remove(0).token;
    let first = cluster.id(0xfe_0000);
    let complete = |cluster: &mut Cluster, index, child, at_ms| {
        let children = vec![NewTask { id: child, spec: spec(b"child", 0) }];
        let item = Completion { id: parent, token, sequence: None, result: None, at_ms, children };
        match cluster.ask(index, Request::Complete { items: vec![item], acks: Acks::Quorum }) {
            Response::Acked(mut results) => results.remove(0).map(drop),
            other => panic!("{other:?}"),
        }
    };
    let at_ms = cluster.now.wall_ms;
    assert_eq!(complete(&mut cluster, 0, first, at_ms), Ok(()));
    cluster.run_until(|cluster| (0..3).all(|index| cluster.knows(index, &first)));
    cluster.advance(3_000);
    let (second, later_ms) = (cluster.id(0xfe_0000), cluster.now.wall_ms);
    let refused = complete(&mut cluster, 1, second, later_ms).expect_err("another one counts");
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert_eq!(cluster.purge(0, parent), Ok(parent));
    cluster.run_until(|cluster| cluster.burying(&parent) == 3);
    for index in 0..3 {
        let refused = complete(&mut cluster, index, second, later_ms).expect_err("its task is over");
        assert_eq!(refused.code, ErrorCode::TooOld);
        assert!(refused.message.contains("is not kept any more"), "{}", refused.message);
        assert_eq!(complete(&mut cluster, index, first, at_ms), Ok(()), "a repeat of the one that counted");
    }
    cluster.advance(3_000);
    assert!((0..3).all(|index| !cluster.knows(index, &second)));
}

#[test]
fn children_that_are_nearly_as_old_as_what_is_forgotten_are_refused() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (parent, child, _) = cluster.brings();
    cluster.now.wall_ms += cluster.nodes[0].config.forget_after_ms / 2;
    let Response::Acked(results) = cluster.complete_bringing(1, parent, 1, child) else { panic!("it is a batch") };
    let refused = results[0].as_ref().expect_err("it is too old");
    assert_eq!(refused.code, ErrorCode::TooOld);
    assert!(refused.message.contains("named too long ago"), "{}", refused.message);
    assert!((0..3).all(|index| !cluster.knows(index, &child)));
}

/// Goal: a task that was a tombstone when a snapshot had saved the tasks, and is among them again when it comes to tombstones, is in
/// the snapshot: only additions to it come after the snapshot.
#[test]
fn a_tombstone_that_is_added_to_within_a_snapshot_is_in_it() {
    let mut cluster = Cluster::new(1);
    let [buried, last] = [b"x", b"y"].map(|payload| cluster.enqueue(0, payload, 0x12_3456));
    let node = &mut cluster.nodes[0];
    let partition = node.partition_of(&buried);
    node.merge(partition, vec![(buried, Task::from_tombstone(Tombstone { state: State::Done, at_ms: 1 }))]);
    let (mut cursor, mut records) = (Cursor::default(), Vec::new());
    let has = |records: &[Record], id: TaskId| {
        let facts =
            |record: &Record| matches!(record, Record::Facts { items, .. } if items.iter().any(|item| item.0 == id));
        records.iter().any(facts)
    };
    while !has(&records, last) {
        records.extend(node.save(&mut cursor, 1).records);
    }
    assert!(!has(&records, buried), "tombstones come later");
    let added = (buried, completion(TaskId::new(1, 1, 1, 0xfe_0000)));
    node.merge(partition, vec![added.clone()]);
    loop {
        let part = node.save(&mut cursor, 1);
        records.extend(part.records);
        if part.last {
            break;
        }
    }
    records.push(Record::Facts { partition, items: Arc::new(vec![added]) });
    let mut read = Node::new(founding(0), 1);
    records.into_iter().for_each(|record| read.recover(record, false, None).expect("its own state"));
    let [read, own] = [&read, &cluster.nodes[0]].map(|node| node.partitions[&partition].store.content(&buried));
    assert!(own.as_ref().is_some_and(|(task, _)| task.tombstone.is_some() && task.has_outbox()));
    assert_eq!(read, own);
}

/// Goal: a node's answer that it brings no children counts only at the cohort versions that it names, as a completion may move from a
/// node that has not answered yet to one that has. Method: each answer names other versions than the leader knows.
#[test]
fn an_answer_about_completions_does_not_count_once_the_cohorts_have_changed() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let id = cluster.done(b"old");
    cluster.advance(1_500);
    cluster.skip(LONG_MS);
    let mut said = 0;
    go_on(&mut cluster, 5_000, |_, _, event| match event {
        Event::Peer {
            from,
            message: PeerMessage::GarbageCollection(GarbageCollection::Childless { partition, epoch, number, slots }),
        } => {
            said += 1;
            let message = PeerMessage::GarbageCollection(GarbageCollection::Childless {
                partition,
                epoch,
                number,
                slots: slots.wrapping_add(1),
            });
            Some(Event::Peer { from, message })
        }
        event => Some(event),
    });
    assert!(said > 0 && cluster.knowing(&id) == 3, "{said}");
    cluster.run_until_forgotten(&id);
}

/// Goal: short memory does not keep children in the completions that brought them, where they cannot leave memory.
#[test]
fn children_are_handed_over_though_all_nodes_are_short_of_memory() {
    let mut cluster = Cluster::new(3);
    cluster.connect_all();
    let (parent, child, _) = cluster.brings();
    for index in 0..3 {
        let report = MemoryReport { used_bytes: 950_000, limit_bytes: 1_000_000 };
        cluster.queue.push_back((index, Event::Memory(report)));
    }
    cluster.drain();
    assert!(matches!(cluster.complete_bringing(0, parent, 1, child), Response::Acked(results) if results[0].is_ok()));
    cluster.run_until(|cluster| (0..3).all(|index| cluster.knows(index, &child)));
    let open = |cluster: &Cluster, index| {
        let replica: &Partition = cluster.replica_of(index, &parent);
        replica.store.task(&parent).is_some_and(|task| task.has_outbox())
    };
    cluster.run_until(|cluster| !(0..3).any(|index| open(cluster, index)));
}
