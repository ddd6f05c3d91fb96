//! A world without applications of its own: a script makes the calls of its clients, and lets time pass.
//!
//! The seed decides what goes wrong, and every property is in force; the script says what is asked, and what must come of it. So a
//! script that is written for real nodes can be played here, as often and under conditions as bad as wanted.

use crate::adapter::{Call, CallId};
use crate::options::{Conditions, Options};
use crate::trace::Keep;
use crate::workload::Purpose;
use crate::world::{Counters, Event, Phase, World};
use norn_model::config::Mutant;
use norn_wire::Error;
use norn_wire::random::Random;
use norn_wire::response::Response;
use std::time::Duration;

/// Longest script, in virtual time.
const LENGTH_US_MAX: u64 = 3_600_000_000;

/// Id of a call, with the client that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScriptCall(usize, CallId);

/// A simulated cluster whose calls come from a script. Its methods panic as soon as a property does not hold.
pub struct ScriptHost {
    world: World,
    /// Number of clients before the first one of the stage.
    others: usize,
    /// Nodes that stay down until the script starts them.
    down: Vec<bool>,
}

impl ScriptHost {
    /// The stage of a seed with this many clients, once its cluster is founded: a client that reaches no node at all fails at once.
    pub fn new(seed: u64, conditions: Conditions, clients: usize, keep: Keep, mutant: Option<Mutant>) -> ScriptHost {
        ScriptHost::with_nodes(3, (seed, conditions), clients, keep, mutant)
    }

    /// The same with this many nodes, each of which holds everything.
    pub fn with_nodes(
        nodes: u64,
        (seed, conditions): (u64, Conditions),
        clients: usize,
        keep: Keep,
        mutant: Option<Mutant>,
    ) -> ScriptHost {
        let mut random = Random::new(seed);
        let mut options = Options::of_script_host(&mut random.child(), conditions, nodes);
        options.mutant = mutant;
        let mut world = World::new(random, options, keep);
        let others = world.clients.len();
        for _ in 0..clients {
            world.add_client();
        }
        let down = vec![false; world.nodes.len()];
        let mut script_host = ScriptHost { world, others, down };
        while !script_host.is_founded() && script_host.world.violation.is_none() {
            script_host.step();
        }
        script_host
    }

    /// Whether each running node belongs to the cluster.
    fn is_founded(&self) -> bool {
        let mut running = self.world.nodes.iter().filter_map(|node| node.running.as_ref()).peekable();
        running.peek().is_some() && running.all(|running| running.core.genesis().is_some())
    }

    /// Turns all properties off, to see what the script alone finds of a known bug.
    pub fn close_eyes(&mut self) {
        self.world.close_eyes();
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        Duration::from_micros(self.world.now_us)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.world.nodes.len()
    }

    /// Makes a call of a client, which wants its answer within `patience`.
    pub fn submit(&mut self, client: usize, call: Call, patience: Duration) -> ScriptCall {
        let client = self.others + client;
        let script_call = self.world.submit_for(client, call, Purpose::ScriptHost, patience.as_micros() as u64);
        ScriptCall(client, script_call)
    }

    /// Gives up a call.
    pub fn give_up(&mut self, script_call: ScriptCall) {
        self.world.give_up(script_call.0, script_call.1);
        self.answer(script_call);
    }

    /// Takes the answer of a call, if it is there.
    pub fn answer(&mut self, script_call: ScriptCall) -> Option<Result<Response, Error>> {
        self.world.answers.remove(&(script_call.0, script_call.1))
    }

    /// Schedules a step at `time`, in case no other one comes then.
    pub fn ring_at(&mut self, time: Duration) {
        self.world.schedule(time.as_micros() as u64, Event::Bell);
    }

    /// Carries out the next event.
    pub fn step(&mut self) {
        self.world.step();
        if self.world.now_us > LENGTH_US_MAX {
            self.world.fail("stage", format!("the play is not over after {LENGTH_US_MAX} us"));
        }
        for node in 0..self.down.len() {
            // The restart after a crash of the seed's own may have started it.
            if self.down[node] && self.world.nodes[node].running.is_some() {
                self.world.crash_node(node);
            }
        }
        if let Some(violation) = &self.world.violation {
            panic!("`{}` does not hold after {:?}: {}", violation.property, self.now(), violation.message);
        }
    }

    /// Crashes a node, and with its machine what it had not synced is lost.
    pub fn kill(&mut self, node: usize) {
        self.world.crash_node(node);
        self.down[node] = true;
    }

    /// Starts a node again.
    pub fn restart(&mut self, node: usize) {
        self.down[node] = false;
        self.world.start_node(node);
    }

    /// Nodes to which a client has a connection.
    pub fn nodes_of(&self, client: usize) -> Vec<usize> {
        self.world.nodes_of(self.others + client)
    }

    /// Cuts a client off from a node, in both directions.
    pub fn cut_off(&mut self, client: usize, node: usize) {
        self.world.cut_client(self.others + client, node);
    }

    /// Mends all cuts.
    pub fn mend(&mut self) {
        self.world.mend(self.world.cut_number);
    }

    /// Sets a node's wall clock ahead of true time.
    pub fn set_clock_ahead(&mut self, node: usize, ahead: Duration) {
        self.world.set_wall(node, ahead.as_micros() as i64);
    }

    /// Ends all faults. Once every task has ended, all replicas must come to hold the same, and be listed so.
    pub fn settle(&mut self) {
        self.down.fill(false);
        self.world.heal();
        while self.world.phase != Phase::Done {
            self.step();
        }
    }

    /// Counters by name.
    pub fn counters(&self) -> &Counters {
        &self.world.counters
    }

    /// Lines of the trace, as far as they are kept.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.world.trace.lines()
    }

    /// Hash of the whole trace.
    pub fn trace_hash(&self) -> u128 {
        self.world.trace.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Draft;
    use norn_wire::request::{Acks, Request};
    use norn_wire::{QueueName, TaskId};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn ask(script_host: &mut ScriptHost, call: Call) -> Result<Response, Error> {
        let script_call = script_host.submit(0, call, PATIENCE);
        loop {
            if let Some(answer) = script_host.answer(script_call) {
                return answer;
            }
            script_host.step();
        }
    }

    fn enqueue(script_host: &mut ScriptHost) -> TaskId {
        let draft = Draft::new(QueueName::new("mail").expect("a good name"), "hello");
        match ask(script_host, Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum }) {
            Ok(Response::Acked(items)) => items[0].as_ref().expect("it is stored").id,
            other => panic!("{other:?}"),
        }
    }

    fn cancel(script_host: &mut ScriptHost, id: TaskId) {
        let request = Request::Cancel { id, reason: String::new(), at_ms: 0, acks: Acks::Quorum };
        ask(script_host, Call::Request(request)).expect("it is cancelled");
    }

    fn pass(script_host: &mut ScriptHost, length: Duration) {
        let end = script_host.now() + length;
        script_host.ring_at(end);
        while script_host.now() < end {
            script_host.step();
        }
    }

    #[test]
    fn calls_are_answered_without_a_node_and_time_passes_when_it_is_to() {
        let mut script_host = ScriptHost::new(1, Conditions::Calm, 1, Keep::Tail, None);
        let one = enqueue(&mut script_host);
        script_host.kill(0);
        let other = enqueue(&mut script_host);
        assert!(one < other);
        let end = script_host.now() + PATIENCE;
        pass(&mut script_host, PATIENCE);
        assert!(script_host.world.nodes[0].running.is_none() && script_host.now() == end);
        script_host.restart(0);
        cancel(&mut script_host, one);
        cancel(&mut script_host, other);
        script_host.settle();
    }

    #[test]
    fn the_same_seed_is_the_same_play_and_rough_weather_breaks_something() {
        let play = |seed| {
            let mut script_host = ScriptHost::new(seed, Conditions::Rough, 1, Keep::Tail, None);
            while script_host.now() < Duration::from_secs(60) {
                let id = enqueue(&mut script_host);
                cancel(&mut script_host, id);
                pass(&mut script_host, Duration::from_secs(2));
            }
            script_host.settle();
            (script_host.trace_hash(), script_host.counters().clone())
        };
        let plays: Vec<_> = (1..4).map(play).collect();
        assert_eq!(play(1), plays[0]);
        assert_ne!(plays[0].0, plays[1].0);
        let crashes = plays.iter().filter(|(_, counters)| counters.contains_key("fault: crash")).count();
        assert!(crashes > 0, "nothing crashed");
    }
}
