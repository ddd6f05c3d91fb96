//! Purged tasks are buried before their retention is over, under the rules of all burials.

use super::forgetting::LONG_MS;
use super::groups::{join, member};
use super::*;
use norn_model::config::Retention;
use norn_model::task::Task;

impl Cluster {
    pub(super) fn purge(&mut self, index: usize, id: TaskId) -> Result<TaskId, Error> {
        match self.ask(index, Request::Purge { id, acks: Acks::Quorum, state: None }) {
            Response::AckedOne(acked) => Ok(acked.id),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    /// Number of replicas that have the tombstone of a task.
    pub(super) fn burying(&self, id: &TaskId) -> usize {
        (0..self.nodes.len()).filter(|index| self.replica_of(*index, id).store.tombstone(id).is_some()).count()
    }

    fn is_not_found(&mut self, id: TaskId) {
        for index in 0..self.nodes.len() {
            let get = Request::Get { id, minimum: None, minimum_sequence: None };
            assert_eq!(self.refused(index, get), ErrorCode::NotFound);
        }
    }
}

/// A cluster whose tasks are kept for ever.
fn keeping() -> Cluster {
    let retention = Arc::new(Retention { default_ms: u64::MAX, ..Retention::default() });
    let mut cluster = Cluster::with_config(3, &Config { retention, ..Config::default() });
    cluster.connect_all();
    cluster
}

fn get_state(cluster: &mut Cluster, id: TaskId) -> State {
    cluster.get(1, id).state
}

// S27
#[test]
fn a_purged_task_is_buried_at_once_however_long_it_would_be_kept() {
    let mut cluster = keeping();
    let (id, other) = (cluster.done(b"purged"), cluster.done(b"kept"));
    cluster.advance(1_500);
    assert_eq!(cluster.purge(2, id), Ok(id));
    cluster.run_until(|cluster| cluster.burying(&id) == 3);
    cluster.is_not_found(id);
    assert_eq!(cluster.purge(0, id), Ok(id), "once more is no error");
    let enqueue = Request::Enqueue { tasks: vec![NewTask { id, spec: spec(b"purged", 0) }], acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, enqueue), Response::Acked(_)), "a retry of before");
    for index in 0..3 {
        cluster.restart(index);
    }
    cluster.connect_all();
    cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    assert_eq!((cluster.burying(&id), get_state(&mut cluster, other)), (3, State::Done));
    cluster.is_not_found(id);
    assert_eq!(cluster.claim(0, 10_000), Vec::new(), "nor is it claimed again");
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&id);
    assert_eq!(cluster.purge(1, id).expect_err("it is no more").code, ErrorCode::NotFound);
    assert_eq!(get_state(&mut cluster, other), State::Done);
}

/// Goal: a task that has not ended loses nothing by a purge that is refused.
#[test]
fn an_open_task_is_not_purged_and_keeps_its_result() {
    let mut cluster = keeping();
    let id = cluster.enqueue(0, b"open", 7);
    assert_eq!(cluster.purge(1, id).expect_err("it is ready").code, ErrorCode::Invalid);
    let granted = cluster.claim(0, 60_000).remove(0);
    let refused = cluster.purge(2, id).expect_err("it is held");
    assert!(refused.code == ErrorCode::Invalid && refused.message.contains("cancel it first"), "{refused:?}");
    assert!(matches!(cluster.complete(0, id, granted.token), Response::Acked(_)));
    cluster.advance(20_000);
    assert_eq!((cluster.get(1, id).state, cluster.burying(&id)), (State::Done, 0));
    let unknown = TaskId::new(id.time_ms(), 999, 9, id.tag());
    assert_eq!(cluster.purge(0, unknown).expect_err("there is none").code, ErrorCode::NotFound);
}

#[test]
fn what_died_and_what_was_cancelled_is_purged_as_well() {
    let mut cluster = keeping();
    let dead = cluster.enqueue(0, b"dead", 7);
    let token = cluster.claim(0, 60_000).remove(0).token;
    let reason = "bad address".to_owned();
    let fail = Request::Fail { id: dead, token, reason, retry_in_ms: 0, invalid: true, retry_open: false };
    assert_eq!(cluster.ask(1, fail), Response::Done);
    let cancelled = cluster.enqueue(0, b"cancelled", 8);
    let cancel = Request::Cancel { id: cancelled, reason: "not needed".into(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    for id in [dead, cancelled] {
        // The table of its leader has the death of the task first.
        cluster.run_until(|cluster| (0..3).all(|index| cluster.replica_of(index, &id).store.ended(&id)));
        assert_eq!(cluster.purge(2, id), Ok(id));
        cluster.run_until(|cluster| cluster.burying(&id) == 3);
        cluster.is_not_found(id);
    }
}

/// Goal: a result that came after a task was chosen as cancelled is not purged with it.
#[test]
fn a_task_that_has_ended_otherwise_than_was_said_is_not_purged() {
    let mut cluster = keeping();
    let id = cluster.enqueue(0, b"cancelled", 8);
    let token = cluster.claim(0, 60_000).remove(0).token;
    let cancel = Request::Cancel { id, reason: "not needed".into(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    assert_eq!(get_state(&mut cluster, id), State::Cancelled);
    assert!(matches!(cluster.complete(1, id, token), Response::Acked(results) if results[0].is_ok()));
    let purge = |state| Request::Purge { id, acks: Acks::Quorum, state: Some(state) };
    for state in [State::Cancelled, State::Dead] {
        assert_eq!(cluster.refused(2, purge(state)), ErrorCode::Conflict);
    }
    cluster.advance(20_000);
    assert_eq!((get_state(&mut cluster, id), cluster.burying(&id)), (State::Done, 0));
    assert!(matches!(cluster.ask(2, purge(State::Done)), Response::AckedOne(_)));
    cluster.run_until(|cluster| cluster.burying(&id) == 3);
}

/// Goal: what other tasks still need of a purged task is kept as long as they do.
#[test]
fn a_purged_member_is_kept_until_its_join_has_ended() {
    let mut cluster = keeping();
    let group = cluster.id(0x55_5555);
    let tasks = vec![join(group, Some(2), false), member(group, 1)];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
    let granted = cluster.claim(0, 60_000).remove(0);
    assert!(matches!(cluster.complete(0, granted.id, granted.token), Response::Acked(_)));
    cluster.advance(1_500);
    assert_eq!(cluster.purge(0, granted.id), Ok(granted.id));
    cluster.advance(20_000);
    assert_eq!((cluster.get(1, granted.id).state, cluster.burying(&granted.id)), (State::Done, 0));
    let cancel = Request::Cancel { id: group, reason: "not needed".into(), at_ms: 7, acks: Acks::Quorum };
    assert!(matches!(cluster.ask(0, cancel), Response::AckedOne(_)));
    cluster.run_until(|cluster| cluster.burying(&granted.id) == 3);
}

/// Goal: the end of a task is on all disks that have its purge, as otherwise the purge would outlive it. Method: only one replica has
/// received the completion.
#[test]
fn a_purge_carries_the_end_that_others_have_not_heard_of() {
    let config = Config { exchange_interval_ms: 60_000, ..Config::default() };
    let mut cluster = Cluster::with_config(3, &config);
    cluster.connect_all();
    let id = cluster.enqueue(0, b"x", 7);
    let token = cluster.claim(0, 60_000).remove(0).token;
    cluster.down.extend([1, 2]);
    let items = vec![Completion { id, token, sequence: None, result: None, at_ms: 5, children: Vec::new() }];
    assert!(matches!(cluster.ask(0, Request::Complete { items, acks: Acks::One }), Response::Acked(_)));
    cluster.down.clear();
    assert!([1, 2].iter().all(|index| !cluster.replica_of(*index, &id).store.ended(&id)));
    assert_eq!(cluster.purge(0, id), Ok(id));
    let carries = |task: &Task| task.is_purged() && task.ended() == Some(State::Done);
    let written = |record: &Record| match record {
        Record::Facts { items, .. } => items.iter().any(|(other, task)| *other == id && carries(task)),
        _ => false,
    };
    assert!([1, 2].iter().any(|index| cluster.logs[*index].iter().any(written)));
}

#[test]
fn what_is_to_be_archived_is_in_the_archive_before_its_purge_buries_it() {
    let mut cluster = Cluster::with_config(3, &Config { archives: true, ..Config::default() });
    cluster.connect_all();
    let id = cluster.done(b"archived");
    cluster.advance(1_500);
    assert_eq!(cluster.purge(0, id), Ok(id));
    cluster.run_until(|cluster| cluster.burying(&id) == 3);
    assert_eq!(cluster.archived.iter().map(|task| task.id).collect::<Vec<_>>(), [id]);
}
