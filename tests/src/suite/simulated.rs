//! Scenes on the simulator's stage: futures that are polled by hand, once after each of its steps.

use super::scene::Scene;
use super::{CLIENTS, Host, Play};
use crate::wait::PATIENCE;
use norn_client::session::Call;
use norn_model::config::Mutant;
use norn_sim::{Conditions, Cue, Keep, Stage};
use norn_wire::request::{Claim, Request};
use norn_wire::{Error, Response};
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Time in which all nodes hear of a setting, under any faults of a stage.
const SPREAD_ROUGH: Duration = Duration::from_secs(12);
/// The same without faults.
const SPREAD_CALM: Duration = Duration::from_secs(2);

/// The simulator's stage as a host of scenes.
pub struct Simulated {
    stage: RefCell<Stage>,
    conditions: Conditions,
}

impl Simulated {
    /// The stage of a seed.
    pub fn new(seed: u64, conditions: Conditions, keep: Keep) -> Rc<Simulated> {
        let stage = RefCell::new(Stage::new(seed, conditions, CLIENTS, keep, None));
        Rc::new(Simulated { stage, conditions })
    }

    /// A calm stage whose nodes have a planted bug, without the simulator's checks: only the scenes may find the bug.
    pub fn with_bug(seed: u64, bug: Mutant) -> Rc<Simulated> {
        let mut stage = Stage::new(seed, Conditions::Calm, CLIENTS, Keep::Tail, Some(bug));
        stage.close_eyes();
        Rc::new(Simulated { stage: RefCell::new(stage), conditions: Conditions::Calm })
    }

    /// Plays these scenes at the same time until all have ended. Then cancels all open tasks, stops injecting faults, and requires
    /// that all replicas agree. Panics on any failure.
    pub fn play(self: &Rc<Self>, plays: &[Play]) {
        self.play_at_once(plays);
        self.run(Scene::new("the end", self.clone()).clear());
        self.stage.borrow_mut().settle();
    }

    fn play_at_once(self: &Rc<Self>, plays: &[Play]) {
        let mut playing: Vec<_> = plays.iter().map(|play| Some((play.simulated)(self.clone()))).collect();
        self.run(poll_fn(|context| {
            for scene in &mut playing {
                if scene.as_mut().is_some_and(|scene| scene.as_mut().poll(context).is_ready()) {
                    *scene = None;
                }
            }
            if playing.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        }));
    }

    /// Steps the stage until a future completes.
    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            self.stage.borrow_mut().step();
        }
    }

    /// The trace, line by line, as far as it is kept.
    pub fn text(&self) -> String {
        self.stage.borrow().lines().collect::<Vec<_>>().join("\n")
    }

    /// Hash of the whole trace.
    pub fn trace_hash(&self) -> u128 {
        self.stage.borrow().trace_hash()
    }
}

/// A call that waits for its answer. Dropping it gives the call up.
struct Waiting<'a> {
    stage: &'a RefCell<Stage>,
    cue: Option<Cue>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // After a scene has failed the stage may still be borrowed; it must not be stepped further.
        if let Some(cue) = self.cue
            && let Ok(mut stage) = self.stage.try_borrow_mut()
        {
            stage.give_up(cue);
        }
    }
}

/// How long a call waits on purpose.
fn wait(call: &Call) -> Duration {
    match call {
        Call::Request(Request::Claim(Claim { wait_ms, .. })) => Duration::from_millis(*wait_ms),
        Call::Request(Request::Watch { wait_ms, .. }) => Duration::from_millis(*wait_ms),
        Call::Request(Request::Wait { timeout_ms, .. }) => Duration::from_millis(*timeout_ms),
        _ => Duration::ZERO,
    }
}

impl Host for Simulated {
    async fn call(&self, client: usize, call: Call, patience: Duration) -> Result<Response, Error> {
        let patience = patience + wait(&call);
        let cue = self.stage.borrow_mut().submit(client, call, patience);
        let mut waiting = Waiting { stage: &self.stage, cue: Some(cue) };
        let answer = poll_fn(|_| self.stage.borrow_mut().answer(cue).map_or(Poll::Pending, Poll::Ready)).await;
        waiting.cue = None;
        answer
    }

    fn now(&self) -> Duration {
        self.stage.borrow().now()
    }

    async fn pass(&self, length: Duration) {
        let end = self.now() + length;
        self.stage.borrow_mut().ring_at(end);
        poll_fn(|_| if self.now() >= end { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn scaled(&self, length: Duration) -> Duration {
        length
    }

    async fn heard(&self) {
        let spread = match self.conditions {
            Conditions::Calm => SPREAD_CALM,
            Conditions::Rough => SPREAD_ROUGH,
        };
        self.pass(spread).await;
    }

    fn kill(&self, node: usize) {
        self.stage.borrow_mut().kill(node);
    }

    fn restart(&self, node: usize) {
        self.stage.borrow_mut().restart(node);
    }
}
