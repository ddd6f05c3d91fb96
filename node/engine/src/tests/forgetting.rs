//! Finished tasks disappear, everywhere, and do not come back.

use super::*;
use norn_model::claim_table::table::Op;
use norn_model::config::Retention;
use norn_model::message::{AntiEntropy, GarbageCollection};
use norn_model::task::{Task, Tombstone};
use norn_wire::response::PartitionView;
use std::sync::Arc;

const DAY_MS: u64 = 24 * 3_600_000;
/// Longer than tasks are retained, and than ids must be old.
pub(super) const LONG_MS: u64 = 8 * DAY_MS;

impl Cluster {
    /// Advances all clocks, without a step in between.
    pub(super) fn skip(&mut self, ms: u64) {
        self.now.mono_us += ms * 1_000;
        self.now.wall_ms += ms;
    }

    pub(super) fn replica_of(&self, index: usize, id: &TaskId) -> &Partition {
        &self.nodes[index].partitions[&self.nodes[0].partition_of(id)]
    }

    /// Number of replicas that know something of a task.
    pub(super) fn knowing(&self, id: &TaskId) -> usize {
        (0..self.nodes.len()).filter(|index| self.replica_of(*index, id).store.knows(id)).count()
    }

    pub(super) fn done(&mut self, payload: &[u8]) -> TaskId {
        let id = self.enqueue(0, payload, 0x12_3456);
        let granted = self.claim(1, 10_000).remove(0);
        assert!(matches!(self.complete(2, id, granted.token), Response::Acked(results) if results[0].is_ok()));
        id
    }

    pub(super) fn run_until_forgotten(&mut self, id: &TaskId) {
        let over = |cluster: &Cluster| {
            let open = |index| !cluster.replica_of(index, id).consensus.table.forgetting.ids.is_empty();
            cluster.knowing(id) == 0 && !(0..cluster.nodes.len()).any(open)
        };
        self.run_until(over);
    }

    fn view(&mut self, index: usize, id: &TaskId) -> PartitionView {
        let partition = self.nodes[0].partition_of(id);
        match self.ask(index, Request::Partitions) {
            Response::Partitions(views) => {
                views.into_iter().find(|view| view.partition == partition).expect("all are listed")
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn refused(&mut self, index: usize, request: Request) -> ErrorCode {
        match self.ask(index, request) {
            Response::Error(error) => error.code,
            Response::Acked(results) => results[0].as_ref().expect_err("it is refused").code,
            other => panic!("{other:?}"),
        }
    }

    /// Delivers a message of `from` to `to` that has been on its way for long.
    pub(super) fn deliver(&mut self, from: usize, to: usize, message: PeerMessage) {
        self.queue.push_back((to, Event::Peer { from: NodeId(from as u128 + 1), message }));
        self.drain();
    }
}

fn enqueue(id: TaskId, payload: &[u8]) -> Request {
    Request::Enqueue { tasks: vec![NewTask { id, spec: spec(payload, 0) }], acks: Acks::Quorum }
}

// S27
// G-1, G-2, A-4.
#[test]
fn a_finished_task_is_forgotten_and_nobody_brings_it_back() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    let open = cluster.enqueue(0, b"open", 0x12_3456);
    cluster.advance(1_500);
    assert_eq!(cluster.get(1, id).state, State::Done, "it is retained");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    assert_eq!(cluster.knowing(&open), 3, "what has not ended is kept, however old");

    let get = Request::Get { id, minimum: None, minimum_sequence: None };
    assert_eq!(cluster.refused(0, get), ErrorCode::NotFound);
    assert_eq!(cluster.refused(1, enqueue(id, b"once")), ErrorCode::TooOld, "a retry of long ago");
    let items = vec![Completion {
        id,
        token: Token { epoch: 1, number: 1 },
        sequence: None,
        result: None,
        at_ms: 5,
        children: Vec::new(),
    }];
    assert_eq!(cluster.refused(2, Request::Complete { items, acks: Acks::Quorum }), ErrorCode::NotFound);
    assert_eq!(cluster.claim(0, 10_000).remove(0).id, open);
    let fresh = cluster.done(b"fresh");
    assert_eq!(cluster.get(1, fresh).state, State::Done);
    for index in 0..3 {
        cluster.restart(index);
        assert_eq!(cluster.knowing(&id), 0, "nor does a log");
    }
}

#[test]
fn a_late_question_brings_no_tombstone_back_while_a_member_is_away() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    cluster.advance(1_500);
    let leader = cluster.leader(&id);
    let (member, absent) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.skip(LONG_MS);
    let open =
        |cluster: &Cluster, index: usize| !cluster.replica_of(index, &id).consensus.table.forgetting.ids.is_empty();
    cluster.run_until(|cluster| (0..3).any(|index| open(cluster, index)));
    cluster.down.insert(absent);
    cluster.run_until(|cluster| cluster.knowing(&id) == 1);
    let asking = (0..3).find(|index| cluster.replica_of(*index, &id).consensus.established()).expect("a leader");
    let asked = if asking == member { leader } else { member };
    let (partition, epoch) =
        (cluster.nodes[0].partition_of(&id), cluster.replica_of(asked, &id).consensus.viewstamp.epoch);
    let tombstone = Tombstone { state: State::Done, at_ms: 5 };
    for number in [0, 7] {
        let items = Arc::new(vec![(id, tombstone)]);
        cluster.deliver(
            asking,
            asked,
            PeerMessage::GarbageCollection(GarbageCollection::Tombs { partition, epoch, number, items }),
        );
        assert!(open(&cluster, asked) && cluster.replica_of(asked, &id).store.tombstone(&id).is_none(), "{number}");
    }
    cluster.restart(absent);
    cluster.run_until_forgotten(&id);
}

#[test]
fn what_another_replica_may_not_have_forgotten_is_refused() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    let partition = cluster.nodes[0].partition_of(&id);
    let tasks = |id, forgets| {
        let items = Arc::new(vec![(id, Task::from_spec(Arc::new(spec(b"once", 0))))]);
        PeerMessage::AntiEntropy(AntiEntropy::Tasks { partition, items, by_buckets: false, forgets })
    };
    assert_eq!(cluster.replica_of(1, &id).forgets(), 1);
    for late in [None, Some(0)] {
        cluster.deliver(0, 1, tasks(id, late));
        assert_eq!(cluster.knowing(&id), 0, "{late:?}");
    }
    // The same age, but its sender has forgotten as often as the receiver: this task never ended.
    let other = TaskId::new(id.time_ms() - 1, 77, 9, id.tag());
    cluster.deliver(0, 1, tasks(other, Some(1)));
    assert_eq!(cluster.knowing(&other), 1);
}

// G-3.
#[test]
fn a_member_that_is_away_keeps_tombstones_and_is_named() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    cluster.advance(1_500);
    let away = (0..3).find(|index| *index != cluster.leader(&id)).expect("there are three");
    cluster.down.insert(away);
    cluster.skip(LONG_MS);
    let others: Vec<usize> = (0..3).filter(|index| *index != away).collect();
    cluster
        .run_until(|cluster| others.iter().all(|index| cluster.replica_of(*index, &id).store.tombstone(&id).is_some()));
    cluster.advance(20_000);
    assert_eq!(cluster.knowing(&id), 3, "two have the tombstone, and one the task");
    let leader = cluster.leader(&id);
    let view = cluster.view(leader, &id);
    assert_eq!((view.tombstones, view.held_up_by), (Some(1), vec![NodeId(away as u128 + 1)]));
    assert_eq!(
        cluster.refused(leader, Request::Get { id, minimum: None, minimum_sequence: None }),
        ErrorCode::NotFound
    );

    cluster.restart(away);
    cluster.run_until_forgotten(&id);
    let view = cluster.view(leader, &id);
    assert_eq!((view.tombstones, view.held_up_by), (Some(0), Vec::new()));
}

// S-3: a replica that lost the record of forgetting a task learns it again, and grants nothing of that age meanwhile.
#[test]
fn a_replica_that_lost_the_record_of_it_forgets_again() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    let buried = |record: &Record| match record {
        Record::Forgot { .. } => true,
        Record::Facts { items, .. } => items.iter().any(|(_, task)| task.tombstone.is_some()),
        _ => false,
    };
    let lost = cluster.places(2, buried);
    assert!(lost.len() > 1);
    cluster.restart_without(2, &lost);
    assert!(cluster.replica_of(2, &id).store.task(&id).is_some(), "the task itself has come back");
    assert!(cluster.replica_of(2, &id).may_be_a_ghost(&id));
    cluster.run_until(|cluster| cluster.replica_of(2, &id).loss_recovery.data_loss.is_whole());
    assert_eq!(cluster.knowing(&id), 0);
    cluster.restart(2);
    assert_eq!(cluster.knowing(&id), 0, "and it is written down");
}

/// Goal: a snapshot brings no forgotten task back, though its table is from before the forgetting. Method: a replica loses all operations
/// from the end of its claim on, so that its table still hands on how the task ended; its records of forgetting the task are left.
#[test]
fn a_snapshot_of_an_old_table_brings_no_forgotten_task_back() {
    let mut cluster = Cluster::new(3);
    let id = cluster.done(b"once");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    let drops = |record: &Record| match record {
        Record::Ops { ops, .. } => ops.iter().any(|op| matches!(&**op, Op::Drop { items } if items[0].id == id)),
        _ => false,
    };
    let dropped = *cluster.places(2, drops).first().expect("its claim was dropped");
    let mut lost = cluster.places(2, |record| matches!(record, Record::Ops { .. }));
    lost.retain(|ordinal| *ordinal > dropped);
    let damaged = cluster.replay_without(2, &lost);
    let partition = damaged.partition_of(&id);
    let hands_on = |node: &Node| {
        let table = &node.partitions[&partition].consensus.table;
        table.endings().any(|ended| ended.id == id)
    };
    assert!(hands_on(&damaged) && !damaged.partitions[&partition].store.knows(&id));

    let mut again = Node::new(Founding { config: Config::clone(&damaged.config), ..founding(2) }, 99);
    for record in damaged.save(&mut Cursor::default(), usize::MAX).records {
        again.recover(record, false, None).expect("a snapshot fits");
    }
    assert!(hands_on(&again) && !again.partitions[&partition].store.knows(&id));
}

/// Goal: a leader that lacks the spec of a finished task asks the other replicas before it buries the task. Method: the leader loses
/// all but the ending when a task without a spec is due; the other replicas know a queue that keeps its tasks for longer.
#[test]
fn a_leader_that_lacks_the_spec_of_a_finished_task_does_not_bury_it() {
    let queues = BTreeMap::from([(QueueName::new("mail").expect("a name"), LONG_MS)]);
    let retention = Arc::new(Retention { default_ms: 60_000, queues });
    let config = Config { retention, forget_after_ms: 60_000, exchange_interval_ms: 60_000, ..Config::default() };
    let mut cluster = Cluster::with_config(3, &config);
    let id = cluster.done(b"kept");
    cluster.skip(200_000);
    cluster.advance(15_000);
    let (partition, leader) = (cluster.nodes[0].partition_of(&id), cluster.leader(&id));
    let store = &mut cluster.nodes[leader].partitions.get_mut(&partition).expect("it leads").store;
    let ended = Task { spec: None, ..store.task(&id).expect("it has ended").whole(id).0 };
    store.forget(&id);
    let items = Arc::new(vec![(id, ended)]);
    let tasks = PeerMessage::AntiEntropy(AntiEntropy::Tasks { partition, items, by_buckets: false, forgets: Some(0) });
    cluster.deliver((leader + 1) % 3, leader, tasks);
    assert!(cluster.replica_of(leader, &id).store.lacks_spec(&id));
    cluster.advance(25_000);
    assert_eq!(cluster.leader(&id), leader);
    assert_eq!(cluster.knowing(&id), 3);
    assert!((0..3).all(|index| cluster.replica_of(index, &id).store.tombstone(&id).is_none()));
    cluster.run_until(|cluster| !cluster.replica_of(leader, &id).store.lacks_spec(&id));
    assert_eq!(cluster.get(leader, id).spec.payload, b"kept");
}
