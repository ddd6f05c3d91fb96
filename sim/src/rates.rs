//! A rate so slow that no node is up for as long as a permit takes, while nodes are restarted in turn.
//!
//! Property: with work and workers all the while, and another leader of the queue's home every few seconds, at least half as many tasks
//! are granted as the rate allows, and never more.

use crate::adapter::{Call, Draft};
use crate::options::Conditions;
use crate::stage::{Cue, Stage};
use crate::trace::Keep;
use norn_client::wire::membership::{ClusterChange, QueueSetting, Rate};
use norn_client::wire::request::{Acks, Claim, Request};
use norn_client::wire::response::Response;
use norn_client::wire::{ClaimId, Error, QueueName};
use norn_node::config::Mutant;
use std::time::Duration;

const RATE: Rate = Rate { claims: 1, per_ms: 20_000 };
const LENGTH: Duration = Duration::from_secs(240);
/// Between two restarts, of one node each: a node is up for three times that.
const RESTARTED_EVERY: Duration = Duration::from_secs(6);
const DOWN_FOR: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);
const WORKERS: usize = 3;

struct Play {
    stage: Stage,
    /// Calls of the workers that are under way.
    claims: Vec<Option<Cue>>,
    granted: u64,
}

fn queue() -> QueueName {
    QueueName::new("mail").expect("a good name")
}

impl Play {
    fn ask(&mut self, call: Call) -> Result<Response, Error> {
        let cue = self.stage.submit(WORKERS, call, PATIENCE);
        loop {
            match self.stage.answer(cue) {
                Some(answer) => return answer,
                None => self.stage.step(),
            }
        }
    }

    /// A worker that was answered asks again.
    fn work(&mut self) {
        for worker in 0..WORKERS {
            if let Some(answer) = self.claims[worker].map(|cue| self.stage.answer(cue)) {
                let Some(answer) = answer else { continue };
                if let Ok(Response::Claimed { tasks, .. }) = answer {
                    self.granted += tasks.len() as u64;
                }
            }
            let claim = Claim {
                claim: ClaimId(0),
                repeated: false,
                queues: vec![queue()],
                lease_ms: 3_600_000,
                wait_ms: 3_000,
                max: 1,
                worker: format!("worker-{worker}"),
                lease_open: false,
                session: None,
                depends: Vec::new(),
                confirms: false,
            };
            self.claims[worker] = Some(self.stage.submit(worker, Call::Request(Request::Claim(claim)), PATIENCE));
        }
    }

    fn work_for(&mut self, length: Duration) {
        let end = self.stage.now() + length;
        self.stage.ring_at(end);
        while self.stage.now() < end {
            self.work();
            self.stage.step();
        }
    }
}

/// How many tasks are granted, and how many the rate allows.
fn play(seed: u64, bug: Option<Mutant>) -> (u64, u64) {
    let stage = Stage::new(seed, Conditions::Calm, WORKERS + 1, Keep::Tail, bug);
    let mut play = Play { stage, claims: vec![None; WORKERS], granted: 0 };
    if bug.is_some() {
        play.stage.close_eyes();
    }
    let change = Box::new(ClusterChange::Queue { queue: queue(), setting: QueueSetting::Rate(Some(RATE)) });
    let call = Call::Request(Request::Change { change, dry_run: false });
    // Nodes that have not found together yet refuse it.
    while !matches!(play.ask(call.clone()), Ok(Response::Changed(_))) {
        play.work_for(Duration::from_millis(500));
    }
    let drafts = (0..40).map(|number| Draft::new(queue(), format!("task {number}"))).collect();
    play.ask(Call::Enqueue { drafts, acks: Acks::Quorum }).expect("all nodes are up");
    let began = play.stage.now();
    for node in (0..play.stage.nodes()).cycle() {
        if play.stage.now() > began + LENGTH {
            break;
        }
        play.work_for(RESTARTED_EVERY - DOWN_FOR);
        play.stage.kill(node);
        play.work_for(DOWN_FOR);
        play.stage.restart(node);
    }
    let allowed = (play.stage.now() - began).as_millis() as u64 / RATE.per_ms;
    (play.granted, allowed)
}

#[test]
fn a_slow_rate_is_granted_while_nodes_restart_in_turn() {
    for seed in 1..=6 {
        let (granted, allowed) = play(seed, None);
        assert!((allowed / 2..=allowed + 1).contains(&granted), "seed {seed}: {granted} of {allowed}");
    }
}

#[test]
fn known_bugs_are_caught() {
    let (granted, allowed) = play(1, Some(Mutant::LevelForgotten));
    assert!(granted < allowed / 2, "{granted} of {allowed}");
}
