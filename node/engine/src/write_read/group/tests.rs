//! Refusals of items that nodes have no room for, or whose id is ahead of their clocks.

use super::*;
use crate::tests::spec;
use norn_wire::error::Retry;

const FULL: [Outcome; 2] = [Outcome::NoSpace, Outcome::Overloaded];

fn replica(number: u128) -> ReplicaId {
    ReplicaId { node: NodeId(number), incarnation: number as u64 }
}

fn founding() -> Cohort {
    Cohort::founded(&[1, 2, 3].map(replica))
}

/// A later cohort, of other replicas.
fn later() -> Cohort {
    Cohort { version: Viewstamp { epoch: 1, length: 1 }, ..Cohort::founded(&[4, 5, 6].map(replica)) }
}

fn name(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// An enqueue of one task, sent to replicas that answer.
fn sent(nodes: &[u128]) -> Group {
    let task = Task::from_spec(Arc::new(spec(b"x", 0)));
    let mut group = Group::new(vec![(TaskId::new(1, 1, 1, 0), task)], vec![0], founding(), false);
    nodes.iter().for_each(|node| group.sent_to(NodeId(*node), true));
    group
}

fn answer(group: &mut Group, node: u128, outcome: Outcome, at: Viewstamp) {
    let answer = WriteAnswer { outcomes: vec![outcome], boot: 1, incomplete: false, lasting: false, at };
    group.take(replica(node), answer);
}

fn code(group: &Group, acks: Acks) -> Option<ErrorCode> {
    group.result(0, acks, &name).map(|result| result.expect_err("there is no room").code)
}

/// Goal: the refusal names the nodes at which to make room, as operators call them.
#[test]
fn disks_without_room_are_those_of_nodes_with_names() {
    let mut group = sent(&[1, 2, 3]);
    [1, 2, 3].into_iter().for_each(|node| answer(&mut group, node, Outcome::NoSpace, founding().version));
    let refusal = group.result(0, Acks::Quorum, &name).unwrap().unwrap_err();
    assert_eq!(refusal.message, "the disks of n1, n2, n3 are nearly full: make room there, then try again");
}

/// Goal: `no_space` and `overloaded` promise that nothing was changed, so they are answered once each replica has refused.
#[test]
fn an_item_is_refused_as_full_once_each_replica_has_refused_it() {
    for outcome in FULL {
        let mut group = sent(&[1, 2, 3]);
        let at = founding().version;
        answer(&mut group, 1, outcome, at);
        answer(&mut group, 2, outcome, at);
        assert_eq!(code(&group, Acks::Quorum), None, "the third may store it");
        assert_eq!(
            group.refused_in_part(0, &name).map(|error| error.code),
            Some(ErrorCode::Unknown),
            "at the deadline"
        );
        answer(&mut group, 3, outcome, at);
        assert!(code(&group, Acks::Quorum).is_some_and(ErrorCode::is_full), "{outcome:?}");
    }
}

/// Goal: a client that is refused for full disks waits before it asks again, also where a replica may have stored the item.
#[test]
fn an_item_that_was_sent_and_is_not_kept_for_want_of_room_is_to_be_repeated_later() {
    for (outcome, retry) in
        [FULL[0], FULL[1], Outcome::Conflict].into_iter().zip([Retry::Later, Retry::Later, Retry::Now])
    {
        let mut group = sent(&[1, 2, 3]);
        group.kept = Some(vec![outcome]);
        let error = group.not_kept(0).expect("it is not");
        assert_eq!((error.code, error.retry), (ErrorCode::Unknown, retry), "{outcome:?}");
    }
}

/// Goal: what one replica has stored, others may get from it.
#[test]
fn an_item_that_one_replica_has_stored_is_unknown() {
    for outcome in FULL {
        let mut group = sent(&[1, 2, 3]);
        let at = founding().version;
        answer(&mut group, 1, outcome, at);
        answer(&mut group, 2, Outcome::Stored, at);
        answer(&mut group, 3, outcome, at);
        assert_eq!(code(&group, Acks::Quorum), Some(ErrorCode::Unknown), "{outcome:?}");
    }
}

/// Goal: a replica of an earlier cohort that was sent the item is awaited like one of the newest.
#[test]
fn an_item_that_an_earlier_replica_may_store_is_not_refused_as_full() {
    let mut group = sent(&[1, 2, 3]);
    assert!(group.take_cohort(later()));
    [4, 5, 6].into_iter().for_each(|node| group.sent_to(NodeId(node), true));
    for node in [4, 5, 6] {
        answer(&mut group, node, Outcome::NoSpace, later().version);
    }
    assert_eq!(code(&group, Acks::Quorum), None);
    for node in [1, 2, 3] {
        answer(&mut group, node, Outcome::NoSpace, founding().version);
    }
    assert_eq!(code(&group, Acks::Quorum), Some(ErrorCode::NoSpace));
}

/// Goal: a copy under way may be stored by a replica that had no room for the one before.
#[test]
fn an_item_that_was_sent_twice_is_refused_as_full_by_two_answers() {
    let mut group = sent(&[1, 2, 3, 3]);
    for node in [1, 2, 3] {
        answer(&mut group, node, Outcome::NoSpace, founding().version);
    }
    assert_eq!(code(&group, Acks::Quorum), None);
    answer(&mut group, 3, Outcome::NoSpace, founding().version);
    assert_eq!(code(&group, Acks::Quorum), Some(ErrorCode::NoSpace));
}

/// Goal: replicas that store an item without an answer may have stored it, and are not waited for.
#[test]
fn an_item_that_was_sent_to_a_learner_is_unknown() {
    let mut group = sent(&[1, 2, 3]);
    group.sent_to(NodeId(4), false);
    for node in [1, 2, 3] {
        answer(&mut group, node, Outcome::NoSpace, founding().version);
    }
    assert_eq!(code(&group, Acks::Quorum), Some(ErrorCode::Unknown));
}

/// Goal: a hint that this node is about to keep may yet be kept.
#[test]
fn an_item_that_is_about_to_be_kept_here_is_not_refused_as_full() {
    for (kept, wanted) in [(Outcome::Stored, None), (Outcome::NoSpace, Some(ErrorCode::NoSpace))] {
        let mut group = sent(&[1, 2, 3]);
        group.keeps = true;
        for node in [1, 2, 3] {
            answer(&mut group, node, Outcome::NoSpace, founding().version);
        }
        assert_eq!(group.result(0, Acks::One, &name), None);
        group.kept = Some(vec![kept]);
        let result = group.result(0, Acks::One, &name).expect("it is certain");
        assert_eq!(result.err().map(|error| error.code), wanted);
    }
}

/// Goal: a client that gets `id_from_future` enqueues under another id, so that is answered only where no replica may have stored the
/// first. Method: two refuse it, and the third, whose clock is ahead as well, stores it, refuses it or has not answered.
#[test]
fn an_item_from_the_future_is_refused_once_each_replica_has_refused_it() {
    let at = founding().version;
    for (third, wanted) in [
        (None, None),
        (Some(Outcome::Stored), Some(ErrorCode::Unknown)),
        (Some(Outcome::Future), Some(ErrorCode::IdFromFuture)),
    ] {
        for first in [true, false] {
            let mut group = sent(&[1, 2, 3]);
            let answers = [(1, Some(Outcome::Future)), (2, Some(Outcome::Future)), (3, third)];
            let order: Vec<_> = if first { answers.into_iter().rev().collect() } else { answers.to_vec() };
            for (node, outcome) in order {
                outcome.into_iter().for_each(|outcome| answer(&mut group, node, outcome, at));
            }
            assert_eq!(code(&group, Acks::Quorum), wanted, "{third:?}");
        }
    }
    let mut group = sent(&[1, 2, 3]);
    [1, 2].into_iter().for_each(|node| answer(&mut group, node, Outcome::Future, at));
    let unknown = group.refused_in_part(0, &name).expect("at the deadline");
    assert_eq!((unknown.code, unknown.retry, unknown.cause), (ErrorCode::Unknown, Retry::Now, Some(Cause::IdAhead)));
    let mut group = sent(&[1, 2, 3]);
    group.sent_to(NodeId(4), false);
    [1, 2, 3].into_iter().for_each(|node| answer(&mut group, node, Outcome::Future, at));
    assert_eq!(code(&group, Acks::Quorum), Some(ErrorCode::Unknown), "a learner may have taken it");
}

/// Goal: the short way to the result of a plain write says what the long way says, whatever the replicas answer.
#[test]
fn a_plain_write_has_the_result_that_each_item_has() {
    let outcomes =
        [None, Some(Outcome::Stored), Some(Outcome::StoredOrphan), Some(Outcome::TooOld), Some(Outcome::Future)];
    let mut plain = 0;
    for number in 0..1_000 {
        let (mut group, at) = (sent(&[1, 2, 3]), founding().version);
        for (node, digit) in [(1, number % 10), (2, number / 10 % 10), (3, number / 100)] {
            let Some(outcome) = outcomes[digit % 5] else { continue };
            let answer = WriteAnswer { outcomes: vec![outcome], boot: 1, incomplete: digit >= 5, lasting: false, at };
            group.take(replica(node), answer);
        }
        for acks in [Acks::One, Acks::Quorum, Acks::All] {
            let Some(acked) = group.plain(acks) else { continue };
            let acked = acked.map(|acked| Ok(Acked { id: group.items[0].0, ..acked }));
            assert_eq!(acked, group.result(0, acks, &name), "{acks:?}, answers {number}");
            plain += 1;
        }
    }
    assert_eq!(plain, 27, "each of three replicas is silent, in two ways, or has stored it");
}

/// Goal: a write of which a replica may have learned of another cohort is not plain.
#[test]
fn a_write_to_two_cohorts_is_not_plain() {
    let mut group = sent(&[1, 2, 3]);
    answer(&mut group, 1, Outcome::Stored, founding().version);
    assert_eq!(group.plain(Acks::Quorum), Some(None));
    assert!(group.take_cohort(later()));
    assert_eq!(group.plain(Acks::Quorum), None);
}
