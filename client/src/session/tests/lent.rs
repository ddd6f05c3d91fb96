//! Ids that a session lends to its caller, and members that come with their join.

use super::*;
use norn_wire::limits::BATCH_TASKS_MAX;
use std::collections::BTreeSet;

fn lend(count: u32) -> (Call, LentIds) {
    let ids = LentIds::default();
    (Call::LendIds { count, ids: ids.clone() }, ids)
}

#[test]
fn ids_are_lent_once_a_node_has_welcomed_the_session_and_nothing_is_sent_for_them() {
    let mut bench = Bench::new(1);
    let (call, ids) = lend(1_000);
    assert_eq!(connects(&bench.submit(1, call, SECOND_US)), [0]);
    assert!(ids.get().is_empty());
    let outputs = bench.open(0);
    assert!(sent(&outputs).is_empty(), "{outputs:?}");
    assert_eq!(done(&outputs), [(1, Ok(Response::Done))]);
    assert_eq!(ids.get().iter().collect::<BTreeSet<_>>().len(), 1_000);
    assert!(ids.get().is_sorted() && ids.get().iter().all(|id| id.minter() == 5 && id.time_ms() >= SERVER_MS));
    let tags: BTreeSet<u32> = ids.get().iter().map(TaskId::tag).collect();
    assert!(tags.len() > 900, "they spread over the partitions");
}

#[test]
fn lent_ids_are_no_ids_of_the_sessions_own_tasks() {
    let mut bench = Bench::new(1);
    let (call, first) = lend(3);
    bench.submit(1, call, SECOND_US);
    bench.open(0);
    let outputs = bench.submit(2, enqueue(3), SECOND_US);
    let own = ids(sent(&outputs)[0].2);
    let (call, second) = lend(3);
    bench.submit(3, call, SECOND_US);
    let all: BTreeSet<TaskId> = [first.get(), &own, second.get()].concat().into_iter().collect();
    assert_eq!(all.len(), 9);
}

#[test]
fn without_a_node_that_lends_ids_the_call_ends_at_its_deadline_or_at_once() {
    let mut bench = Bench::new(1);
    let (call, ids) = lend(1);
    bench.submit(1, call, SECOND_US);
    let failure = loop {
        if let [(1, result)] = &done(&bench.sleep())[..] {
            break result.clone().unwrap_err();
        }
    };
    assert_eq!((failure.code, bench.now_us), (ErrorCode::Unavailable, SECOND_US + 1_000));
    assert!(ids.get().is_empty());

    let mut bench = Bench::new(1);
    bench.submit(1, lend(1).0, SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let number = sent(&outputs)[0].1;
    let outputs = bench.answer(0, number, bare(SERVER_MS, 60_000));
    assert_eq!(done(&outputs)[0].1.clone().unwrap_err().code, ErrorCode::ClockAhead);
}

#[test]
fn a_call_lends_from_1_to_1000_ids() {
    let mut bench = Bench::new(1);
    for count in [0, BATCH_TASKS_MAX as u32 + 1, u32::MAX] {
        let outputs = bench.submit(1, lend(count).0, SECOND_US);
        assert_eq!(done(&outputs)[0].1.clone().unwrap_err().code, ErrorCode::Invalid);
    }
}

#[test]
fn members_that_come_with_their_join_are_of_its_group() {
    let member = |number| draft().member_of(TaskId::MIN, number);
    let drafts = vec![member(1), draft().join(Some(2), false), member(2), draft()];
    let (_, _, request) = bench_sent(1, Call::Enqueue { drafts, acks: Acks::Quorum }, SECOND_US);
    let Request::Enqueue { tasks, .. } = request else { panic!("{request:?}") };
    let join = tasks[1].id;
    let groups = |place: usize| tasks[place].spec.grouping.as_ref().and_then(|grouping| grouping.member);
    assert_eq!([0, 2].map(|place| groups(place).map(|member| member.group)), [Some(join); 2]);
    assert_eq!([0, 2].map(|place| groups(place).map(|member| member.id())), [Some(tasks[0].id), Some(tasks[2].id)]);
    assert_eq!(groups(3), None);

    let mut bench = Bench::new(1);
    let alone = Call::Enqueue { drafts: vec![member(1)], acks: Acks::Quorum };
    assert_eq!(done(&bench.submit(1, alone, SECOND_US))[0].1.clone().unwrap_err().code, ErrorCode::Invalid);
}
