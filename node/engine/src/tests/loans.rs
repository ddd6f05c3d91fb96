//! Id loans: nodes lend no ids that go back, and serve all that needs none.

use super::*;
use norn_model::limits::{ID_AHEAD_MS_MAX, RESERVED_TIME_MS};
use norn_wire::response::Welcome;

const STEP_MS: u64 = 600_000;

impl Cluster {
    fn hello(&mut self, index: usize, bare: bool) -> Response {
        self.ask(index, Request::Hello { name: "tester".into(), bare })
    }

    fn welcome(&mut self, index: usize) -> Welcome {
        match self.hello(index, true) {
            Response::Welcome(welcome) => welcome,
            other => panic!("a session is not served: {other:?}"),
        }
    }

    /// Loan of a node, once it has measured its clock.
    fn loan(&mut self, index: usize) -> Welcome {
        for _ in 0..100 {
            if let Response::Welcome(welcome @ Welcome { refusal: None, .. }) = self.hello(index, true) {
                return welcome;
            }
            self.advance(100);
        }
        panic!("node {index} lends no ids");
    }

    fn ids_wait_ms(&self, index: usize) -> Option<u64> {
        let status = self.nodes[index].status(Default::default(), 0).expect("it has a cluster");
        status.counters.into_iter().find(|(name, _)| name == "ids_wait_ms").map(|(_, wait_ms)| wait_ms)
    }
}

/// Whether sessions are served after all clocks were ahead for a moment, in which a node lent ids, and whether ids go back then.
fn after_a_step(config: &Config) -> (bool, bool) {
    let mut cluster = Cluster::with_config(3, config);
    cluster.now.wall_ms += STEP_MS;
    let lent = cluster.loan(0);
    assert!(lent.time_ms >= cluster.now.wall_ms, "the clock was ahead");
    cluster.now.wall_ms -= STEP_MS;
    cluster.advance(40_000);
    match cluster.hello(0, true) {
        Response::Welcome(welcome) => (true, welcome.refusal.is_none() && welcome.time_ms < lent.time_ms),
        _ => (false, false),
    }
}

/// Goal: a clock that was ahead for a moment locks no client out, and ids do not go back.
#[test]
fn a_step_of_the_clock_leaves_sessions_served_and_ids_in_order() {
    assert_eq!(after_a_step(&Config::default()), (true, false));
}

/// Goal: this test notices a node that violates either.
#[cfg(feature = "mutants")]
#[test]
fn sessions_that_are_locked_out_and_ids_that_go_back_are_noticed() {
    let with = |mutant| after_a_step(&Config { mutant: Some(mutant), ..Config::default() });
    assert_eq!(with(norn_model::config::Mutant::HelloShutsOut), (false, false));
    assert_eq!(with(norn_model::config::Mutant::IdsGoBack), (true, true));
}

/// Goal: a node reports for how long it lends no ids, to new and to old clients and in its status, over restarts, and when that time is
/// over it lends later ones than before. Its loan may be ahead of the clock by half of what an id may.
#[test]
fn a_node_says_for_how_long_it_lends_no_ids() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    assert_eq!(cluster.ids_wait_ms(0), None);
    cluster.now.wall_ms += STEP_MS;
    let lent = cluster.loan(0);
    cluster.now.wall_ms -= STEP_MS;
    cluster.advance(10_000);
    let mut high_water_ms = 0;
    for restarts in 0..3 {
        let wait_ms = lent.time_ms + high_water_ms - cluster.now.wall_ms - ID_AHEAD_MS_MAX / 2;
        let welcome = cluster.welcome(0);
        let refusal = welcome.refusal.expect("what was lent is ahead");
        assert_eq!((refusal.code, refusal.after_ms), (ErrorCode::ClockAhead, Some(wait_ms)), "{restarts}");
        assert!(refusal.message.contains("10 min") || refusal.message.contains(" s;"), "{}", refusal.message);
        assert_eq!(welcome.time_ms, cluster.now.wall_ms, "completions and delays go by the clock");
        assert_eq!(cluster.ids_wait_ms(0), Some(wait_ms));
        let Response::Error(old) = cluster.hello(0, false) else { panic!("an old client takes no such welcome") };
        assert_eq!((old.code, old.after_ms, old.message), (ErrorCode::Unavailable, None, refusal.message));
        // Everything up to the mark counts as lent then, and no restart pushes it further.
        cluster.restart(0);
        cluster.advance(1_000);
        high_water_ms = RESERVED_TIME_MS;
    }
    // The others have lent nothing.
    assert_eq!(cluster.welcome(1).refusal, None);
    let wait_ms = cluster.ids_wait_ms(0).expect("it is not over");
    cluster.now.wall_ms += wait_ms - 1;
    let again = cluster.loan(0);
    assert!(again.time_ms >= lent.time_ms && again.minter != lent.minter);
    assert!(again.time_ms <= cluster.now.wall_ms + ID_AHEAD_MS_MAX / 2);
    assert_eq!(cluster.ids_wait_ms(0), None);
}

/// Goal: a node whose clock is known to be wrong serves what needs neither ids nor time.
#[test]
fn a_node_with_a_wrong_clock_welcomes_sessions_without_ids_and_time() {
    let mut cluster = Cluster::new(3);
    cluster.advance(500);
    // A node whose clock has just jumped and that hears no other does not notice.
    cluster.down.extend([1, 2]);
    cluster.now.wall_ms += STEP_MS;
    let welcome = cluster.welcome(0);
    let refusal = welcome.refusal.expect("its clock is wrong");
    assert_eq!((refusal.code, welcome.time_ms), (ErrorCode::Unavailable, 0));
    assert!(matches!(cluster.hello(0, false), Response::Error(error) if error.code == ErrorCode::Unavailable));
}

/// Goal: if an id is refused that was lent while a clock was ahead, the client learns when it will be accepted.
#[test]
fn an_id_from_the_future_is_refused_with_the_time_that_is_left() {
    let mut cluster = Cluster::new(3);
    let id = TaskId::new(cluster.now.wall_ms + ID_AHEAD_MS_MAX + 50_000, 1, 1, 7);
    let refused = |error: &Error| {
        assert_eq!((error.code, error.id), (ErrorCode::IdFromFuture, Some(id)));
        assert!((40_000..=50_000).contains(&error.after_ms.expect("it says so")), "{error:?}");
    };
    let tasks = vec![NewTask { id, spec: spec(b"later", 0) }];
    match cluster.ask(0, Request::Enqueue { tasks, acks: Acks::Quorum }) {
        Response::Acked(items) => refused(items[0].as_ref().expect_err("its time has not come")),
        other => panic!("{other:?}"),
    }
}

// T8, S15: an id has its session's number in it
/// Goal: no two sessions mint the same ids, at whichever nodes they begin, and whatever was restarted between them.
#[test]
fn no_two_sessions_are_lent_the_same_number() {
    let mut cluster = Cluster::new(3);
    let mut lent = std::collections::BTreeSet::new();
    for round in 0..4 {
        for index in [0, 1, 2, 0, 1, 0] {
            let Welcome { minter, refusal, .. } = cluster.loan(index);
            assert_eq!(refusal, None);
            assert!(lent.insert(minter), "node {index} lends {minter} again in round {round}");
        }
        cluster.restart(round % 3);
        cluster.run_until(|cluster| cluster.nodes.iter().all(Node::is_serving));
    }
    assert_eq!(lent.len(), 24);
}
