//! Clocks that are ahead for a while and right again.
//!
//! Property: with all clocks right again and a majority up, a client that reads or works is served, whatever was lent meanwhile; one
//! that enqueues is served, or refused with `clock_ahead` and the time that is left; and the ids that a node lends do not go back.
//! This holds for one node and for several, with and without other faults.

use crate::adapter::{Call, Draft};
use crate::options::Conditions;
use crate::script_host::ScriptHost;
use crate::trace::Keep;
use norn_model::config::Mutant;
use norn_wire::request::{Acks, Claim, Completion, Request};
use norn_wire::response::{Granted, Response};
use norn_wire::{ClaimId, Error, ErrorCode, QueueName, TaskId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How far clocks are ahead, and for how long.
#[derive(Debug, Clone, Copy)]
struct Step {
    ahead: Duration,
    ahead_for: Duration,
}

const LONG: Step = Step { ahead: Duration::from_secs(240), ahead_for: Duration::from_secs(45) };
/// Further ahead than a start allows for, and soon over.
const SHORT: Step = Step { ahead: Duration::from_secs(600), ahead_for: Duration::from_secs(5) };
/// Time within which calls are answered.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sessions that are opened while clocks are ahead, and afterwards: enough for each node to serve some.
const SESSIONS: usize = 8;
/// How long a claim waits for work.
const WAIT_MS: u64 = 5_000;
/// Slack: within one session ids follow the client's clock from what was lent.
const SPREAD_MS: u64 = 1_000;

struct Play {
    script_host: ScriptHost,
    step: Step,
    /// Number of sessions that were opened.
    opened: usize,
    /// Latest time of a session's first id, by the node that lent it.
    lent_ms: BTreeMap<u64, u64>,
    refused: usize,
}

impl Play {
    fn new(nodes: u64, (seed, conditions): (u64, Conditions), step: Step, bug: Option<Mutant>) -> Play {
        let mut script_host = ScriptHost::with_nodes(nodes, (seed, conditions), 1 + 4 * SESSIONS, Keep::Tail, bug);
        if bug.is_some() {
            script_host.close_eyes();
        }
        Play { script_host, step, opened: 0, lent_ms: BTreeMap::new(), refused: 0 }
    }

    fn ask(&mut self, client: usize, call: Call) -> Result<Response, Error> {
        let script_call = self.script_host.submit(client, call, PATIENCE);
        loop {
            match self.script_host.answer(script_call) {
                Some(answer) => return answer,
                None => self.script_host.step(),
            }
        }
    }

    fn pass(&mut self, length: Duration) {
        let end = self.script_host.now() + length;
        self.script_host.ring_at(end);
        while self.script_host.now() < end {
            self.script_host.step();
        }
    }

    fn set_clocks_ahead(&mut self, ahead: Duration) {
        (0..self.script_host.nodes()).for_each(|node| self.script_host.set_clock_ahead(node, ahead));
    }

    fn enqueue(&mut self, client: usize) -> Result<TaskId, Error> {
        self.enqueue_in(client, queue("mail"))
    }

    fn enqueue_in(&mut self, client: usize, queue: QueueName) -> Result<TaskId, Error> {
        let draft = Draft::new(queue, "hello");
        match self.ask(client, Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum })? {
            Response::Acked(items) => items.into_iter().next().expect("one item").map(|acked| acked.id),
            other => panic!("{other:?}"),
        }
    }

    /// Opens a session by an enqueue.
    fn open(&mut self) -> Result<(), String> {
        self.opened += 1;
        match self.enqueue(self.opened) {
            Ok(id) => {
                let lent_ms = self.lent_ms.entry(id.minter() >> 24).or_default();
                if id.time_ms() + SPREAD_MS < *lent_ms {
                    return Err(format!("ids went back by {} ms", *lent_ms - id.time_ms()));
                }
                *lent_ms = id.time_ms().max(*lent_ms);
                Ok(())
            }
            Err(Error { code: ErrorCode::ClockAhead, after_ms: Some(after_ms), .. })
                if after_ms <= self.step.ahead.as_millis() as u64 =>
            {
                self.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("an enqueue is neither served nor refused with a time: {error:?}")),
        }
    }

    fn must(&mut self, request: Request) -> Result<Response, String> {
        let verb = request.verb();
        let answer = self.ask(self.opened, Call::Request(request));
        answer.map_err(|error| format!("{verb} is not answered: {error:?}"))
    }

    /// Opens a session by reads, which need no id and must be served.
    fn read(&mut self, old: TaskId) -> Result<(), String> {
        self.opened += 1;
        let list = Request::List { queue: None, state: None, after: None, from: None, to: None, limit: 100 };
        let reads = [
            Request::Status,
            Request::Nodes,
            Request::Get { id: old, minimum: None, minimum_sequence: None },
            list,
            Request::Count { queue: None, state: None },
        ];
        reads.into_iter().try_for_each(|request| self.must(request).map(drop))
    }

    /// Opens a session by a claim: what was enqueued while clocks were ahead must be there to be claimed.
    fn work(&mut self) -> Result<(), String> {
        self.opened += 1;
        let Granted { id, token, .. } = self.claim()?;
        let renewed = self.must(Request::Renew { items: vec![(id, token)], lease_ms: None })?;
        if !matches!(&renewed, Response::Renewed(results) if results.iter().all(Result::is_ok)) {
            return Err(format!("a claim is not prolonged: {renewed:?}"));
        }
        let item = Completion { id, token, sequence: None, result: None, at_ms: 0, children: Vec::new() };
        let completed = self.must(Request::Complete { items: vec![item], acks: Acks::Quorum })?;
        match &completed {
            Response::Acked(results) if results.iter().all(Result::is_ok) => Ok(()),
            _ => Err(format!("a task is not completed: {completed:?}")),
        }
    }

    fn claim(&mut self) -> Result<Granted, String> {
        let claim = Claim {
            claim: ClaimId(0),
            repeated: false,
            queues: vec![queue("mail")],
            lease_ms: 3_600_000,
            wait_ms: WAIT_MS,
            max: 1,
            worker: "worker".to_owned(),
            lease_open: false,
            session: None,
            depends: Vec::new(),
            confirms: false,
        };
        match self.must(Request::Claim(claim))? {
            Response::Claimed { mut tasks, .. } if tasks.len() == 1 => Ok(tasks.remove(0)),
            other => Err(format!("nothing is claimed: {other:?}")),
        }
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a good name")
}

/// Plays a step. Returns how many enqueues were refused, or what of the property does not hold.
fn play(mut play: Play, conditions: Conditions, restarts: bool) -> Result<usize, String> {
    let old = play.enqueue_in(0, queue("kept")).expect("nothing has happened yet");
    play.set_clocks_ahead(play.step.ahead);
    for _ in 0..2 * SESSIONS {
        play.open()?;
    }
    let is_calm = conditions == Conditions::Calm;
    assert!(play.refused == 0 || !is_calm, "nothing is wrong with clocks that agree");
    play.pass(play.step.ahead_for);
    play.set_clocks_ahead(Duration::ZERO);
    for node in (0..play.script_host.nodes()).filter(|_| restarts) {
        play.script_host.kill(node);
        play.script_host.restart(node);
    }
    play.pass(Duration::from_secs(30));
    for turn in 0..SESSIONS {
        if turn % 2 == 0 {
            play.read(old)?
        } else {
            play.work()?
        }
        play.open()?;
    }
    // An earlier session goes on; and its task is cancelled by a session without ids, with the server's time.
    play.enqueue(0).map_err(|error| format!("an earlier session is not served: {error:?}"))?;
    let cancel = Request::Cancel { id: old, reason: String::new(), at_ms: 0, acks: Acks::Quorum };
    let cancelled = play.ask(play.opened, Call::Request(cancel));
    cancelled.map_err(|error| format!("a task is not cancelled: {error:?}"))?;
    Ok(play.refused)
}

#[test]
fn sessions_are_served_after_clocks_were_ahead() {
    for (seed, step, nodes) in (1..=4).flat_map(|seed| [(seed, LONG, 3), (seed, SHORT, 3), (seed, SHORT, 1)]) {
        for conditions in [Conditions::Calm, Conditions::Rough] {
            let is_calm = conditions == Conditions::Calm;
            let refused = play(Play::new(nodes, (seed, conditions), step, None), conditions, seed % 2 == 0);
            let is_right = refused.as_ref().is_ok_and(|refused| *refused > 0 || !is_calm);
            assert!(is_right, "{conditions:?}, seed {seed}, {nodes} nodes, {step:?}: {refused:?}");
        }
    }
}

/// Goal: a session that was lent ids while clocks were ahead, and stays open, gets other ids at a node that lent none then.
#[test]
fn a_session_that_stays_open_over_a_step_enqueues_again() {
    for seed in 1..=4 {
        let mut play = Play::new(3, (seed, Conditions::Calm), LONG, None);
        play.set_clocks_ahead(LONG.ahead);
        let ahead = play.enqueue(1).expect("it is served");
        play.pass(LONG.ahead_for);
        play.set_clocks_ahead(Duration::ZERO);
        play.pass(Duration::from_secs(30));
        let refused = play.enqueue(1).expect_err("its ids are ahead");
        assert_eq!(refused.code, ErrorCode::ClockAhead, "{refused:?}");
        let next = play.enqueue(1).expect("another node lends others");
        assert!(next.time_ms() + 60_000 < ahead.time_ms(), "seed {seed}");
    }
}

#[test]
fn ids_are_lent_again_once_clocks_have_caught_up() {
    for (step, nodes) in [(LONG, 3), (SHORT, 1)] {
        let mut play = Play::new(nodes, (1, Conditions::Calm), step, None);
        play.set_clocks_ahead(step.ahead);
        play.open().expect("it is served");
        play.pass(step.ahead_for);
        play.set_clocks_ahead(Duration::ZERO);
        play.pass(step.ahead);
        for _ in 0..SESSIONS {
            play.open().expect("it is served");
        }
        assert_eq!(play.refused, 0, "{nodes} nodes");
    }
}

#[test]
fn known_bugs_are_caught() {
    let bugs = [(Mutant::HelloShutsOut, "is not answered"), (Mutant::IdsGoBack, "ids went back")];
    for ((bug, says), (step, nodes)) in bugs.into_iter().flat_map(|bug| [(bug, (LONG, 3)), (bug, (SHORT, 1))]) {
        let conditions = Conditions::Calm;
        let caught = play(Play::new(nodes, (1, conditions), step, Some(bug)), conditions, false);
        let caught = caught.expect_err("it is caught");
        assert!(caught.contains(says), "{bug:?}, {nodes} nodes: {caught}");
    }
}
