//! A worker that waits for work moves to another node, as its link to the first one is cut; the first node goes on, or dies. The
//! worker repeats its call at the other node, or gives it up and makes a new one.
//!
//! Property: work that comes meanwhile is with the worker soon. No task is held by a claim that no client knows of for longer than it
//! takes to notice that, though its lease is an hour long.

use crate::adapter::{Call, Draft};
use crate::options::Conditions;
use crate::script_host::{ScriptCall, ScriptHost};
use crate::trace::Keep;
use norn_model::config::Mutant;
use norn_wire::request::{Acks, Claim, Request};
use norn_wire::response::Response;
use norn_wire::{ClaimId, QueueName, TaskId};
use std::collections::BTreeSet;
use std::time::Duration;

const WORKER: usize = 0;
const PRODUCER: usize = 1;
const LEASE_MS: u64 = 3_600_000;
const WAIT: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(60);
/// Tasks that come while the worker moves: enough for several partitions and their leaders.
const TASKS: usize = 8;
const ROUNDS: usize = 6;
/// Two seconds until a node gives back what its client does not confirm, an election, and the claims of all that waits behind it.
const HELD_MAX: Duration = Duration::from_secs(10);
/// The same where other things break as well.
const HELD_MAX_ROUGH: Duration = Duration::from_secs(40);

struct Play {
    script_host: ScriptHost,
    held_max: Duration,
    claim: Option<ScriptCall>,
    told: BTreeSet<TaskId>,
}

fn queue() -> QueueName {
    QueueName::new("mail").expect("a good name")
}

impl Play {
    fn new(seed: u64, conditions: Conditions, bug: Option<Mutant>) -> Play {
        let mut script_host = ScriptHost::new(seed, conditions, 2, Keep::Tail, bug);
        if bug.is_some() {
            script_host.close_eyes();
        }
        let held_max = if conditions == Conditions::Calm { HELD_MAX } else { HELD_MAX_ROUGH };
        Play { script_host, held_max, claim: None, told: BTreeSet::new() }
    }

    /// Whether the worker's call has ended. Notes what it was granted.
    fn is_answered(&mut self) -> bool {
        let Some(script_call) = self.claim else { return true };
        let answer = self.script_host.answer(script_call);
        if let Some(Ok(Response::Claimed { tasks, .. })) = &answer {
            self.told.extend(tasks.iter().map(|task| task.id));
        }
        answer.is_some()
    }

    /// Lets the worker claim again once it is answered, and carries out the next event.
    fn step(&mut self) {
        if !self.is_answered() {
            return self.script_host.step();
        }
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![queue()],
            lease_ms: LEASE_MS,
            wait_ms: WAIT.as_millis() as u64,
            max: 1,
            worker: "worker".to_owned(),
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        self.claim = Some(self.script_host.submit(WORKER, Call::Request(Request::Claim(claim)), PATIENCE));
        self.script_host.step();
    }

    fn pass(&mut self, length: Duration) {
        let end = self.script_host.now() + length;
        self.script_host.ring_at(end);
        while self.script_host.now() < end {
            self.step();
        }
    }

    /// Gives up the worker's call.
    fn give_up(&mut self) {
        if !self.is_answered() {
            self.claim.take().into_iter().for_each(|script_call| self.script_host.give_up(script_call));
        }
        self.claim = None;
    }

    /// Enqueues tasks. Soon after that the node dies and the worker gives up, as `way` says.
    fn enqueue(&mut self, way: Way, node: Option<usize>) -> Vec<TaskId> {
        let drafts = (0..TASKS).map(|number| Draft::new(queue(), format!("task {number}"))).collect();
        let script_call = self.script_host.submit(PRODUCER, Call::Enqueue { drafts, acks: Acks::Quorum }, PATIENCE);
        self.pass(way.after);
        node.filter(|_| way.dies).into_iter().for_each(|node| self.script_host.kill(node));
        if way.gives_up {
            self.give_up();
        }
        loop {
            match self.script_host.answer(script_call) {
                Some(Ok(Response::Acked(items))) => return items.into_iter().flatten().map(|acked| acked.id).collect(),
                Some(other) => panic!("{other:?}"),
                None => self.step(),
            }
        }
    }

    /// Lets the worker wait at a node, cuts it off from that, and enqueues tasks.
    fn round(&mut self, way: Way) -> Result<(), String> {
        self.pass(Duration::from_secs(2));
        let node = self.script_host.nodes_of(WORKER).first().copied();
        node.into_iter().for_each(|node| self.script_host.cut_off(WORKER, node));
        let tasks = self.enqueue(way, node);
        let end = self.script_host.now() + self.held_max;
        self.script_host.ring_at(end);
        while let Some(held) = tasks.iter().find(|id| !self.told.contains(id)) {
            if self.script_host.now() >= end {
                return Err(format!("task {held} is with no worker after {:?}", self.held_max));
            }
            self.step();
        }
        node.filter(|_| way.dies).into_iter().for_each(|node| self.script_host.restart(node));
        self.script_host.mend();
        Ok(())
    }
}

/// What happens `after` tasks have come: the node dies, the worker gives up, both, or neither.
#[derive(Debug, Clone, Copy)]
struct Way {
    after: Duration,
    dies: bool,
    gives_up: bool,
}

fn ways() -> impl Iterator<Item = Way> {
    let after = [50, 200, 600].map(Duration::from_millis).into_iter();
    let whats = [(false, false), (true, false), (false, true), (true, true)];
    after.flat_map(move |after| whats.map(|(dies, gives_up)| Way { after, dies, gives_up }))
}

fn play(seed: u64, conditions: Conditions, way: Way, bug: Option<Mutant>) -> Result<(), String> {
    let mut play = Play::new(seed, conditions, bug);
    (0..ROUNDS).try_for_each(|_| play.round(way))
}

#[test]
fn what_comes_while_a_worker_moves_is_with_it_soon() {
    for (seed, way) in (1..=3).flat_map(|seed| ways().map(move |way| (seed, way))) {
        for conditions in [Conditions::Calm, Conditions::Rough] {
            assert_eq!(play(seed, conditions, way, None), Ok(()), "{conditions:?}, seed {seed}, {way:?}");
        }
    }
}

#[test]
fn a_known_bug_is_caught() {
    let caught = ways().find_map(|way| play(1, Conditions::Calm, way, Some(Mutant::LeaveUnheeded)).err());
    assert!(caught.is_some_and(|caught| caught.contains("is with no worker")));
}
