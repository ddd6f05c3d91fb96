//! Scenes on the simulator's stage: futures that are polled by hand, once after each of its steps.

use super::scene::Scene;
use super::{CLIENTS, Host, Play};
use crate::wait::PATIENCE;
use norn_client::session::Call;
use norn_model::config::Mutant;
use norn_sim::{Conditions, Keep, ScriptCall, ScriptHost};
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
    script_host: RefCell<ScriptHost>,
    conditions: Conditions,
}

impl Simulated {
    /// The stage of a seed.
    pub fn new(seed: u64, conditions: Conditions, keep: Keep) -> Rc<Simulated> {
        let script_host = RefCell::new(ScriptHost::new(seed, conditions, CLIENTS, keep, None));
        Rc::new(Simulated { script_host, conditions })
    }

    /// A calm stage whose nodes have a planted bug, without the simulator's checks: only the scenes may find the bug.
    pub fn with_bug(seed: u64, bug: Mutant) -> Rc<Simulated> {
        let mut script_host = ScriptHost::new(seed, Conditions::Calm, CLIENTS, Keep::Tail, Some(bug));
        script_host.close_eyes();
        Rc::new(Simulated { script_host: RefCell::new(script_host), conditions: Conditions::Calm })
    }

    /// Plays these scenes at the same time until all have ended. Then cancels all open tasks, stops injecting faults, and requires
    /// that all replicas agree. Panics on any failure.
    pub fn play(self: &Rc<Self>, plays: &[Play]) {
        self.play_at_once(plays);
        self.run(Scene::new("the end", self.clone()).clear());
        self.script_host.borrow_mut().settle();
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
            self.script_host.borrow_mut().step();
        }
    }

    /// The trace, line by line, as far as it is kept.
    pub fn text(&self) -> String {
        self.script_host.borrow().lines().collect::<Vec<_>>().join("\n")
    }

    /// Hash of the whole trace.
    pub fn trace_hash(&self) -> u128 {
        self.script_host.borrow().trace_hash()
    }
}

/// A call that waits for its answer. Dropping it gives the call up.
struct Waiting<'a> {
    script_host: &'a RefCell<ScriptHost>,
    script_call: Option<ScriptCall>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // After a scene has failed the stage may still be borrowed; it must not be stepped further.
        if let Some(script_call) = self.script_call
            && let Ok(mut script_host) = self.script_host.try_borrow_mut()
        {
            script_host.give_up(script_call);
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
        let script_call = self.script_host.borrow_mut().submit(client, call, patience);
        let mut waiting = Waiting { script_host: &self.script_host, script_call: Some(script_call) };
        let answer =
            poll_fn(|_| self.script_host.borrow_mut().answer(script_call).map_or(Poll::Pending, Poll::Ready)).await;
        waiting.script_call = None;
        answer
    }

    fn now(&self) -> Duration {
        self.script_host.borrow().now()
    }

    async fn pass(&self, length: Duration) {
        let end = self.now() + length;
        self.script_host.borrow_mut().ring_at(end);
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
        self.script_host.borrow_mut().kill(node);
    }

    fn restart(&self, node: usize) {
        self.script_host.borrow_mut().restart(node);
    }
}
