//! Times and ids: fixed once, and never decreasing.

use super::*;
use crate::session::id_generator::IdGenerator;
use norn_wire::group::MemberOf;
use norn_wire::limits;
use proptest::prelude::*;

// T14, T37
#[test]
fn times_are_settled_once() {
    let item = Completion {
        id: TaskId::MIN,
        token: Token::default(),
        sequence: None,
        result: None,
        at_ms: 0,
        children: Vec::new(),
    };
    let complete = Call::Request(Request::Complete { items: vec![item; 1], acks: Acks::One });
    let (mut bench, number, first) = bench_sent(1, complete, 60 * SECOND_US);
    let Request::Complete { items, .. } = &first else { panic!() };
    assert_eq!(items[0].at_ms, SERVER_MS);
    bench.now_us += SECOND_US;
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    assert_eq!(bench.sleep_until_sent().2, first);

    let delayed = Call::Enqueue { drafts: vec![draft().delay_ms(5_000)], acks: Acks::One };
    let (_, _, request) = bench_sent(1, delayed, SECOND_US);
    let Request::Enqueue { tasks, .. } = request else { panic!() };
    assert_eq!(tasks[0].spec.not_before_ms, SERVER_MS + 5_000);

    let cancel = Request::Cancel { id: TaskId::MIN, reason: String::new(), at_ms: 0, acks: Acks::One };
    let (_, _, request) = bench_sent(1, Call::Request(cancel), SECOND_US);
    assert!(matches!(request, Request::Cancel { at_ms: SERVER_MS, .. }));
}

// O22
/// Members without a group belong to the one whose join comes with them, and keep their ids in a repeat.
#[test]
fn a_group_that_comes_with_a_completion_is_named_once() {
    let children =
        vec![draft().member_of(TaskId::MIN, 2), draft().join(Some(2), true), draft().member_of(TaskId::MIN, 1)];
    let mut bench = Bench::new(1);
    bench.submit(1, finish(children), 60 * SECOND_US);
    let outputs = bench.open(0);
    let (_, number, first) = sent(&outputs)[0];
    let first = first.clone();
    let Request::Complete { items, .. } = &first else { panic!() };
    let ids: Vec<TaskId> = items[0].children.iter().map(|child| child.id).collect();
    let member = |number| MemberOf { group: ids[1], number };
    assert_eq!((ids[0], ids[2]), (member(2).id(), member(1).id()));
    let of = items[0].children[0].spec.grouping.as_ref().and_then(|grouping| grouping.member);
    assert_eq!(of, Some(member(2)));
    bench.answer(0, number, Response::Error(error(ErrorCode::Unavailable)));
    assert_eq!(bench.sleep_until_sent().2, first);
}

#[test]
fn server_time_and_ids_never_go_back_whatever_the_next_node_says() {
    let (mut bench, number, request) = bench_sent(2, enqueue(1), 60 * SECOND_US);
    let before = ids(&request)[0];
    bench.answer(0, number, Response::Acked(vec![Ok(acked(before))]));
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_000));
    bench.step(Input::Disconnected { endpoint: 0 });
    bench.submit(2, enqueue(1), SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 1 });
    let outputs = bench.answer(1, sent(&outputs)[0].1, welcome(SERVER_MS - 500, 9));
    let after = ids(sent(&outputs)[0].2)[0];
    assert!(after > before);
    assert_eq!((after.minter(), after.time_ms()), (9, SERVER_MS + 1_000));
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_000), "it stands still");
    bench.now_us += SECOND_US;
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS + 1_500), "and goes on");
}

/// Goal: ids follow the lent time, which is ahead of the clock after a restart; delays follow the clock.
#[test]
fn delays_go_by_the_clock_and_not_by_the_time_of_ids() {
    let delayed = Call::Enqueue { drafts: vec![draft().delay_ms(1_000)], acks: Acks::One };
    let mut bench = Bench::new(2);
    bench.submit(1, delayed.clone(), 60 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    let Response::Welcome(lent) = welcome(SERVER_MS, 5) else { panic!() };
    let lent = Welcome { clock_ms: Some(SERVER_MS - 9_000), ..lent };
    let outputs = bench.answer(0, sent(&outputs)[0].1, Response::Welcome(lent));
    let [(0, _, Request::Enqueue { tasks, .. })] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert_eq!((tasks[0].id.time_ms(), tasks[0].spec.not_before_ms), (SERVER_MS, SERVER_MS - 9_000 + 1_000));
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS - 9_000));
    // A node that sends no separate clock uses the lent time as its clock.
    bench.step(Input::Disconnected { endpoint: 0 });
    let outputs = bench.step(Input::Connected { endpoint: 1 });
    bench.answer(1, sent(&outputs)[0].1, welcome(SERVER_MS - 5_000, 6));
    assert_eq!(bench.session.server_time_ms(bench.now_us), Some(SERVER_MS - 5_000));
}

#[test]
fn ids_of_a_batch_ascend_and_share_a_tag_by_the_hundred() {
    let (_, _, request) = bench_sent(1, enqueue(250), SECOND_US);
    let all = ids(&request);
    assert!(all.is_sorted_by(|left, right| left < right));
    for chunk in all.chunks(limits::BATCH_TAG_TASKS) {
        assert!(chunk.iter().all(|id| id.tag() == chunk[0].tag()));
    }
    assert_ne!(all[0].tag(), all[100].tag());
    let given = TaskId::new(1, 2, 3, 4);
    let drafts = vec![draft(), draft().id(given), draft()];
    let (_, _, request) = bench_sent(1, Call::Enqueue { drafts, acks: Acks::One }, SECOND_US);
    let all = ids(&request);
    assert!(all[1] == given && all[0] < all[2]);
}

#[test]
fn a_counter_that_wraps_moves_the_time() {
    let mut id_generator = IdGenerator::starting_at(u32::MAX - 2);
    let Response::Welcome(hello) = welcome(SERVER_MS, 5) else { panic!() };
    id_generator.welcome(0, &hello);
    let minted: Vec<TaskId> = (0..5).map(|_| id_generator.generate(0, 1)).collect();
    assert!(minted.is_sorted_by(|left, right| left < right), "{minted:?}");
    assert_eq!((minted[1].time_ms(), minted[2].time_ms()), (SERVER_MS, SERVER_MS + 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // T8, S15
    #[test]
    fn minted_ids_ascend_however_the_clocks_of_the_nodes_differ(
        steps in proptest::collection::vec((0u64..5_000_000, proptest::option::of(0u64..10_000)), 1..100),
        counter in any::<u32>(),
    ) {
        let mut id_generator = IdGenerator::starting_at(counter);
        let mut now_us = 0;
        let mut last = TaskId::MIN;
        for (elapsed_us, welcomed) in std::iter::once((0, Some(5_000))).chain(steps) {
            now_us += elapsed_us;
            if let Some(offset_ms) = welcomed {
                let Response::Welcome(hello) = welcome(SERVER_MS + offset_ms, offset_ms) else { panic!() };
                id_generator.welcome(now_us, &hello);
                prop_assert!(id_generator.server_time_ms(now_us).unwrap() >= hello.time_ms);
            }
            let id = id_generator.generate(now_us, 3);
            prop_assert!(id > last);
            last = id;
        }
    }
}
