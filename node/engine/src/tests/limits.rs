//! Queues that are full.

use super::forgetting::LONG_MS;
use super::policies::is_changed;
use super::*;
use norn_wire::error::{Error, ErrorCode};
use norn_wire::membership::QueueSetting;
use norn_wire::request::Completion;
use norn_wire::transaction::Transaction;

impl Cluster {
    fn enqueue_all(&mut self, index: usize, ids: &[TaskId], payload: &[u8]) -> Result<(), Error> {
        let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec(payload, 0) }).collect();
        match self.ask(index, Request::Enqueue { tasks, acks: Acks::All }) {
            Response::Acked(results) => results.into_iter().try_for_each(|result| result.map(drop)),
            Response::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    fn is_full(&mut self, index: usize, ids: &[TaskId], payload: &[u8]) -> bool {
        self.enqueue_all(index, ids, payload).is_err_and(|error| {
            assert!(error.code == ErrorCode::Overloaded && error.message.contains("is full"), "{error}");
            true
        })
    }
}

fn limited(setting: QueueSetting) -> Cluster {
    let mut cluster = Cluster::modern(3);
    assert!(is_changed(&cluster.set(0, "mail", setting)));
    cluster
}

/// Existing tasks may be enqueued again, ended ones make space, and nothing of a request with too many is stored.
#[test]
fn a_queue_with_enough_tasks_takes_no_more_before_some_have_ended() {
    let mut cluster = limited(QueueSetting::Tasks(Some(3)));
    let ids: Vec<TaskId> = (0..6).map(|tag| cluster.id(tag << 20)).collect();
    cluster.enqueue_all(0, &ids[..2], b"x").expect("there is room");
    assert!(cluster.is_full(1, &ids[2..4], b"x"));
    cluster.enqueue_all(1, &ids[..3], b"x").expect("two of them are there");
    cluster.enqueue_all(2, &ids[..3], b"x").expect("all are there");
    for index in 0..3 {
        assert!(cluster.is_full(index, &ids[3..4], b"x"));
    }
    let claimed = cluster.claim(0, 60_000).remove(0);
    assert!(cluster.is_full(0, &ids[3..4], b"x"), "who is claimed has not ended");
    assert!(matches!(cluster.complete(0, claimed.id, claimed.token), Response::Acked(_)));
    cluster.advance(1_000);
    cluster.enqueue_all(1, &ids[3..4], b"x").expect("one has ended");
    assert!(cluster.is_full(0, &ids[4..5], b"x"));
    assert!(is_changed(&cluster.set(2, "mail", QueueSetting::Tasks(None))));
    cluster.enqueue_all(0, &ids[4..], b"x").expect("there is no limit");
}

#[test]
fn a_queue_with_enough_bytes_takes_no_more() {
    let mut cluster = limited(QueueSetting::Bytes(Some(10_000)));
    let ids: Vec<TaskId> = (0..3).map(|tag| cluster.id(tag << 20)).collect();
    cluster.enqueue_all(0, &ids[..1], &[7; 6_000]).expect("there is room");
    assert!(cluster.is_full(1, &ids[1..2], &[7; 6_000]));
    cluster.enqueue_all(1, &ids[1..2], &[7; 2_000]).expect("there is room for that");
    let other = QueueName::new("other").expect("a name");
    let tasks = vec![NewTask { id: ids[2], spec: Spec { queue: other, ..spec(&[7; 60_000], 0) } }];
    assert!(matches!(cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }), Response::Acked(_)));
}

/// A repeat of such a call could not succeed.
#[test]
fn what_never_fits_is_invalid() {
    let mut cluster = limited(QueueSetting::Tasks(Some(2)));
    assert!(is_changed(&cluster.set(0, "mail", QueueSetting::Bytes(Some(10_000)))));
    let ids: Vec<TaskId> = (0..4).map(|tag| cluster.id(tag << 20)).collect();
    let mut refused = |ids: &[TaskId], payload: &[u8]| cluster.enqueue_all(1, ids, payload).expect_err("it is refused");
    for error in [refused(&ids[..3], b"x"), refused(&ids[..1], &[7; 20_000]), refused(&ids[..2], &[7; 6_000])] {
        assert_eq!(error.code, ErrorCode::Invalid, "{error}");
        assert!(error.message.contains("2 tasks and 10000 bytes"), "{error}");
    }
    cluster.enqueue_all(0, &ids[..2], b"x").expect("there is room");
    // Known tasks need no space.
    assert!(cluster.is_full(0, &ids[1..4], b"x"));
}

/// A transaction that was made keeps its answer, although its tasks are forgotten and others fill their queue.
#[test]
fn a_full_queue_takes_no_transaction_but_tells_of_the_one_that_was_made() {
    let mut cluster = limited(QueueSetting::Tasks(Some(1)));
    let transact = |cluster: &mut Cluster, index: usize, id: TaskId, add: TaskId| {
        let adds = vec![NewTask { id: add, spec: spec(b"x", 0) }];
        let transaction = Transaction { id, adds, at_ms: 1, ..Transaction::default() };
        cluster.ask(index, Request::Transact(Box::new(transaction)))
    };
    let [id, add] = [1, 2].map(|_| cluster.id(0x12_3456));
    let made = transact(&mut cluster, 0, id, add);
    assert!(matches!(&made, Response::Transacted(Ok(_))), "{made:?}");
    let claimed = cluster.claim(0, 60_000).remove(0);
    assert!(matches!(cluster.complete(0, claimed.id, claimed.token), Response::Acked(_)));
    cluster.skip(LONG_MS);
    cluster.run_until_forgotten(&add);
    let [other, next, late] = [0, 0x12_3456, 0x12_3456].map(|tag| cluster.id(tag));
    cluster.enqueue_all(0, &[other], b"y").expect("there is room");
    for index in 0..3 {
        assert_eq!(transact(&mut cluster, index, id, add), made);
        let refused = transact(&mut cluster, index, next, late);
        assert!(matches!(&refused, Response::Error(error) if error.code == ErrorCode::Overloaded), "{refused:?}");
    }
}

/// It is refused even once there is space: a client has learned that it never fits.
#[test]
fn a_transaction_that_is_larger_than_its_queue_is_refused_for_good() {
    let mut cluster = limited(QueueSetting::Tasks(Some(1)));
    let [id, first, second] = [1, 2, 3].map(|_| cluster.id(0x12_3456));
    let adds = [first, second].map(|id| NewTask { id, spec: spec(b"x", 0) }).to_vec();
    let request = Request::Transact(Box::new(Transaction { id, adds, at_ms: 1, ..Transaction::default() }));
    let refused = cluster.ask(0, request.clone());
    let Response::Error(error) = &refused else { panic!("{refused:?}") };
    assert_eq!(error.code, ErrorCode::Invalid);
    cluster.set(0, "mail", QueueSetting::Tasks(Some(2)));
    cluster.advance(2_000);
    for index in 0..3 {
        match cluster.ask(index, request.clone()) {
            Response::Transacted(Err(refusal)) => assert_eq!(refusal.bugs, std::slice::from_ref(&error.message)),
            other => panic!("{other:?}"),
        }
    }
}

/// Child tasks belong to their completion: it is not refused because of them.
#[test]
fn children_get_into_a_queue_that_is_full() {
    let mut cluster = limited(QueueSetting::Tasks(Some(1)));
    let [id, child, other] = [1, 2, 3].map(|tag| cluster.id(tag << 20));
    cluster.enqueue_all(0, &[id], b"x").expect("there is room");
    let claimed = cluster.claim(0, 60_000).remove(0);
    let children = vec![NewTask { id: child, spec: spec(b"child", 0) }, NewTask { id: other, spec: spec(b"child", 0) }];
    let completion = Completion { id, token: claimed.token, sequence: None, result: None, at_ms: 1, children };
    let response = cluster.ask(1, Request::Complete { items: vec![completion], acks: Acks::Quorum });
    assert!(matches!(&response, Response::Acked(results) if results[0].is_ok()), "{response:?}");
    cluster.advance(2_000);
    assert_eq!([child, other].map(|id| cluster.get(0, id).state), [State::Ready; 2]);
}

#[test]
fn a_limit_that_lets_nothing_in_is_refused() {
    let mut cluster = Cluster::modern(1);
    for setting in [QueueSetting::Tasks(Some(0)), QueueSetting::Bytes(Some(0)), QueueSetting::Tasks(Some(u64::MAX))] {
        match cluster.set(0, "mail", setting) {
            Response::Error(error) => assert_eq!(error.code, ErrorCode::Conflict),
            other => panic!("{other:?}"),
        }
    }
}
