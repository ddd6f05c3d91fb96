//! Whether a silent node is noticed, and whether a node that is merely slow is left alone.

use super::*;

const MS: u64 = 1_000;

/// A session that has sent one call on endpoint 0.
fn bench_waits(endpoints: usize, body: Call) -> (Bench, u64) {
    let mut bench = Bench::new(endpoints);
    assert_eq!(connects(&bench.submit(1, body, 100 * SECOND_US)), [0]);
    let outputs = bench.open(0);
    let number = sent(&outputs)[0].1;
    (bench, number)
}

/// Sleeps until a ping is sent on endpoint 0. Returns its number, and how long it took.
fn sleep_until_ping(bench: &mut Bench) -> (u64, u64) {
    let start_us = bench.now_us;
    let outputs = bench.sleep();
    let [(0, number, Request::Ping)] = sent(&outputs)[..] else { panic!("no ping in {outputs:?}") };
    (number, bench.now_us - start_us)
}

/// Sleeps until endpoint 0 is left and the next one tried. Returns how long it took.
fn sleep_until_left(bench: &mut Bench) -> u64 {
    let start_us = bench.now_us;
    let outputs = bench.sleep();
    let left = matches!(outputs[..], [Output::Disconnect { endpoint: 0 }, Output::Connect { endpoint: 1 }]);
    assert!(left, "{outputs:?}");
    bench.now_us - start_us
}

#[test]
fn a_node_that_gives_no_sign_of_life_is_left_long_before_an_attempt_is_over() {
    let (mut bench, _) = bench_waits(2, enqueue(1));
    let first = sent(&bench.outputs).last().map(|(_, _, request)| (*request).clone()).unwrap();
    assert_eq!(sleep_until_ping(&mut bench).1, 150 * MS);
    assert_eq!(sleep_until_left(&mut bench), 200 * MS);
    let outputs = bench.open(1);
    assert_eq!(sent(&outputs)[0].2, &first, "the same call goes elsewhere");
}

#[test]
fn a_call_that_waits_stays_with_a_node_that_is_there_and_is_asked_for_less_and_less() {
    let (mut bench, number) = bench_waits(2, claim(60_000));
    let mut lengths = Vec::new();
    for _ in 0..50 {
        let (ping, length_us) = sleep_until_ping(&mut bench);
        bench.now_us += 10 * MS;
        assert!(bench.answer(0, ping, Response::Done).is_empty());
        lengths.push(length_us / MS);
    }
    assert_eq!(lengths[..4], [150, 300, 600, 600]);
    assert_eq!(done(&bench.answer(0, number, nothing(0))).len(), 1);
    assert_eq!(bench.session.next_wake(), None, "nobody asks where nothing is under way");
}

#[test]
fn a_new_call_is_worth_a_question_soon() {
    let (mut bench, _) = bench_waits(2, claim(60_000));
    for _ in 0..3 {
        let (ping, _) = sleep_until_ping(&mut bench);
        bench.answer(0, ping, Response::Done);
    }
    bench.now_us += 100 * MS;
    bench.submit(2, enqueue(1), SECOND_US);
    assert_eq!(sleep_until_ping(&mut bench).1, 50 * MS, "it was silent for the rest already");
}

#[test]
fn any_part_of_an_answer_is_a_sign_of_life() {
    let (mut bench, _) = bench_waits(2, claim(60_000));
    for _ in 0..10 {
        bench.now_us += 140 * MS;
        assert!(bench.step(Input::Heard { endpoint: 0 }).is_empty());
    }
    sleep_until_ping(&mut bench);
    assert!(bench.step(Input::Heard { endpoint: 0 }).is_empty());
    sleep_until_ping(&mut bench);
}

/// Goal: the only node learns that a client waits, and gets one ping at a time until it answers.
#[test]
fn the_only_node_is_asked_and_never_left_for_its_silence() {
    let (mut bench, number) = bench_waits(1, claim(60_000));
    let (ping, _) = sleep_until_ping(&mut bench);
    assert!(bench.answer(0, ping, Response::Done).is_empty());
    let (ping, length_us) = sleep_until_ping(&mut bench);
    assert_eq!(length_us, 300 * MS);
    let start_us = bench.now_us;
    for wakes in 0..10 {
        assert!(bench.sleep().is_empty(), "{wakes}");
    }
    assert!(bench.now_us - start_us > 20 * SECOND_US, "it looks ever less often");
    assert!(bench.answer(0, ping, Response::Done).is_empty());
    assert_eq!(sleep_until_ping(&mut bench).1, 600 * MS);
    assert_eq!(done(&bench.answer(0, number, nothing(0))).len(), 1);
}

#[test]
fn a_slow_way_and_a_large_call_get_their_time() {
    let mut bench = Bench::new(2);
    bench.submit(1, enqueue(1), 100 * SECOND_US);
    let outputs = bench.step(Input::Connected { endpoint: 0 });
    bench.now_us += 300 * MS;
    bench.answer(0, sent(&outputs)[0].1, welcome(SERVER_MS, 5));
    sleep_until_ping(&mut bench);
    assert_eq!(sleep_until_left(&mut bench), 600 * MS);

    let drafts = vec![Draft::new(queue(), vec![0; 512 << 10])];
    let (mut bench, _) = bench_waits(2, Call::Enqueue { drafts, acks: Acks::One });
    sleep_until_ping(&mut bench);
    let left_us = sleep_until_left(&mut bench);
    assert!((700 * MS..800 * MS).contains(&left_us), "{left_us}");
}

#[test]
fn a_node_that_was_left_too_early_gets_more_time() {
    let (mut bench, _) = bench_waits(2, enqueue(1));
    sleep_until_ping(&mut bench);
    sleep_until_left(&mut bench);
    bench.step(Input::Disconnected { endpoint: 1 });
    for _ in 0..20 {
        if bench.session.links.get(0).is_open() {
            break;
        }
        let outputs = bench.sleep();
        if connects(&outputs) == [0] {
            bench.open(0);
        } else if connects(&outputs) == [1] {
            bench.step(Input::Disconnected { endpoint: 1 });
        }
    }
    sleep_until_ping(&mut bench);
    assert_eq!(sleep_until_left(&mut bench), 400 * MS);
}

#[test]
fn whoever_was_away_itself_asks_once_more() {
    let (mut bench, _) = bench_waits(2, enqueue(1));
    sleep_until_ping(&mut bench);
    bench.now_us += 2 * SECOND_US;
    let outputs = bench.step(Input::Wake);
    let [(0, ping, Request::Ping)] = sent(&outputs)[..] else { panic!("{outputs:?}") };
    assert!(bench.answer(0, ping, Response::Done).is_empty());
    assert!(bench.session.links.get(0).is_ready());
}
