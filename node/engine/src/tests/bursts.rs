//! Many deadlines at the same time: they are handled in pieces, and other events get their turn in between.

use super::*;
use norn_model::limits::{DUE_MAX, WAKE_KEYS_MAX};

const MANY: usize = 3 * DUE_MAX + 10;

impl Cluster {
    /// Tasks of one partition that are due at the same time.
    fn enqueue_due(&mut self, count: usize, not_before_ms: u64) -> Vec<TaskId> {
        let ids: Vec<TaskId> = (0..count).map(|_| self.id(7)).collect();
        for ids in ids.chunks(256) {
            let task = |id: &TaskId| NewTask { id: *id, spec: Spec { not_before_ms, ..spec(b"x", 0) } };
            let request = Request::Enqueue { tasks: ids.iter().map(task).collect(), acks: Acks::Quorum };
            let Response::Acked(results) = self.ask(0, request) else { panic!("they are stored") };
            assert!(results.iter().all(Result::is_ok));
        }
        ids
    }

    fn count(&self, id: &TaskId, state: State) -> u64 {
        let index = self.replica_of(0, id).store.index();
        index.queue(&QueueName::new("mail").unwrap()).map_or(0, |queue| queue.counts[state as usize])
    }

    /// One step of the only node, some time later, and how soon it wants the next one.
    fn wake_after(&mut self, ms: u64) -> u64 {
        self.now = Now { mono_us: self.now.mono_us + ms * 1_000, wall_ms: self.now.wall_ms + ms };
        let mut effects = Vec::new();
        self.nodes[0].step(self.now, Event::Wake, &mut effects);
        self.carry_out(0, effects);
        self.nodes[0].next_wake().map_or(u64::MAX, |at_us| at_us.saturating_sub(self.now.mono_us))
    }
}

#[test]
fn many_tasks_that_become_due_together_do_so_in_pieces() {
    let mut cluster = Cluster::modern(1);
    let due_ms = cluster.now.wall_ms + 60_000;
    let id = cluster.enqueue_due(MANY, due_ms)[0];
    assert_eq!(cluster.count(&id, State::Waiting), MANY as u64);
    cluster.advance(59_000);
    let mut pieces = Vec::new();
    let mut soon_us = cluster.wake_after(1_500);
    while cluster.count(&id, State::Waiting) > 0 {
        assert!(soon_us <= 1, "it goes on at once");
        let before = cluster.count(&id, State::Ready);
        soon_us = cluster.wake_after(1);
        pieces.push(cluster.count(&id, State::Ready) - before);
    }
    assert!(pieces.len() >= 3 && pieces.iter().all(|piece| *piece <= DUE_MAX as u64), "{pieces:?}");
    assert_eq!(cluster.count(&id, State::Ready), MANY as u64);
}

#[test]
fn many_claims_that_run_out_together_do_so_in_pieces() {
    let mut cluster = Cluster::modern(1);
    let id = cluster.enqueue_due(MANY, 0)[0];
    let mut held = 0;
    while held < MANY {
        cluster.number += 1;
        let claim = claim_of(ClaimId(u128::from(cluster.number)), 30_000, 100);
        let Response::Claimed { tasks, .. } = cluster.ask(0, Request::Claim(claim)) else { panic!("it is granted") };
        held += tasks.len();
    }
    assert_eq!(cluster.count(&id, State::Claimed), MANY as u64);
    let mut pieces = Vec::new();
    cluster.wake_after(60_000);
    while cluster.count(&id, State::Claimed) > 0 {
        let before = cluster.count(&id, State::Ready);
        cluster.wake_after(1);
        pieces.push(cluster.count(&id, State::Ready) - before);
        assert!(pieces.len() < 100, "it goes on: {pieces:?}");
    }
    assert!(pieces.iter().all(|piece| *piece <= DUE_MAX as u64), "{pieces:?}");
}

/// Goal: however many deadlines have passed, a step handles a bounded number, and wants the next step at once.
#[test]
fn a_step_meets_so_many_deadlines() {
    let mut timers = crate::context::timers::Timers::default();
    for number in 0..(3 * WAKE_KEYS_MAX as u64) {
        timers.set(crate::context::timers::Key::PendingRequest(1 << 60 | number), 1);
    }
    let mut cluster = Cluster::modern(1);
    cluster.nodes[0].timers = timers;
    let mut steps = 0;
    while cluster.nodes[0].next_wake().is_some_and(|at_us| at_us <= cluster.now.mono_us) {
        cluster.wake_after(0);
        steps += 1;
    }
    assert_eq!(steps, 3);
}
