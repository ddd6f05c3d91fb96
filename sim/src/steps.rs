//! Clocks that are ahead for a while and right again.
//!
//! Property: with all clocks right again and a majority up, a client that reads is answered, whatever was lent meanwhile; one that
//! enqueues is served, or refused with `clock_ahead` and the time that is left; and the ids that a node lends do not go back.

use crate::adapter::{Call, Draft};
use crate::options::Conditions;
use crate::stage::Stage;
use crate::trace::Keep;
use norn_client::wire::request::{Acks, Request};
use norn_client::wire::response::Response;
use norn_client::wire::{Error, ErrorCode, QueueName, TaskId};
use norn_node::config::Mutant;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far clocks are ahead, and for how long.
const STEP: Duration = Duration::from_secs(240);
const AHEAD_FOR: Duration = Duration::from_secs(45);
/// Within this time calls are answered.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sessions that are opened while clocks are ahead, and afterwards: enough for each node to serve some.
const SESSIONS: usize = 8;
/// Within one session ids follow the client's clock from what was lent.
const SPREAD_MS: u64 = 1_000;

struct Play {
    stage: Stage,
    /// Sessions that were opened.
    opened: usize,
    /// The latest time of a session's first id, by the node that lent it.
    lent_ms: BTreeMap<u64, u64>,
    refused: usize,
}

impl Play {
    fn new(seed: u64, conditions: Conditions, bug: Option<Mutant>) -> Play {
        let mut stage = Stage::new(seed, conditions, 1 + 4 * SESSIONS, Keep::Tail, bug);
        if bug.is_some() {
            stage.close_eyes();
        }
        Play { stage, opened: 0, lent_ms: BTreeMap::new(), refused: 0 }
    }

    fn ask(&mut self, client: usize, call: Call) -> Result<Response, Error> {
        let cue = self.stage.submit(client, call, PATIENCE);
        loop {
            match self.stage.answer(cue) {
                Some(answer) => return answer,
                None => self.stage.step(),
            }
        }
    }

    fn pass(&mut self, length: Duration) {
        let end = self.stage.now() + length;
        self.stage.ring_at(end);
        while self.stage.now() < end {
            self.stage.step();
        }
    }

    fn set_clocks_ahead(&mut self, ahead: Duration) {
        (0..self.stage.nodes()).for_each(|node| self.stage.set_clock_ahead(node, ahead));
    }

    fn enqueue(&mut self, client: usize) -> Result<TaskId, Error> {
        let draft = Draft::new(QueueName::new("mail").expect("a good name"), "hello");
        match self.ask(client, Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum })? {
            Response::Acked(items) => items.into_iter().next().expect("one item").map(|acked| acked.id),
            other => panic!("{other:?}"),
        }
    }

    /// A session is opened by an enqueue.
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
                if after_ms <= STEP.as_millis() as u64 =>
            {
                self.refused += 1;
                Ok(())
            }
            Err(error) => Err(format!("an enqueue is neither served nor refused with a time: {error:?}")),
        }
    }

    /// Sessions are opened by what needs no id, and served.
    fn read(&mut self, old: TaskId) -> Result<(), String> {
        self.opened += 1;
        let reads = [Request::Status, Request::Nodes, Request::Get { id: old, minimum: None, minimum_sequence: None }];
        for request in reads {
            let answer = self.ask(self.opened, Call::Request(request.clone()));
            answer.map_err(|error| format!("{} is not answered: {error:?}", request.verb()))?;
        }
        Ok(())
    }
}

/// How many enqueues were refused after a step; what of the property does not hold.
fn play(seed: u64, conditions: Conditions, restarts: bool, bug: Option<Mutant>) -> Result<usize, String> {
    let mut play = Play::new(seed, conditions, bug);
    let old = play.enqueue(0).expect("nothing has happened yet");
    play.set_clocks_ahead(STEP);
    for _ in 0..2 * SESSIONS {
        play.open()?;
    }
    assert_eq!(play.refused, 0, "nothing is wrong with clocks that agree");
    play.pass(AHEAD_FOR);
    play.set_clocks_ahead(Duration::ZERO);
    for node in (0..play.stage.nodes()).filter(|_| restarts) {
        play.stage.kill(node);
        play.stage.restart(node);
    }
    play.pass(Duration::from_secs(30));
    for _ in 0..SESSIONS {
        play.read(old)?;
        play.open()?;
    }
    // A session of before goes on, and what it ends is ended by one that has no ids, with the server's time.
    play.enqueue(0).map_err(|error| format!("an earlier session is not served: {error:?}"))?;
    let cancel = Request::Cancel { id: old, reason: String::new(), at_ms: 0, acks: Acks::Quorum };
    let cancelled = play.ask(play.opened, Call::Request(cancel));
    cancelled.map_err(|error| format!("a task is not cancelled: {error:?}"))?;
    Ok(play.refused)
}

#[test]
fn sessions_are_served_after_clocks_were_ahead() {
    for seed in 1..=4 {
        let refused = play(seed, Conditions::Calm, seed % 2 == 0, None);
        assert!(refused.as_ref().is_ok_and(|refused| *refused > 0), "seed {seed}: {refused:?}");
    }
}

/// Goal: a session that was lent ids while clocks were ahead, and stays open, gets others at a node that lent none then.
#[test]
fn a_session_that_stays_open_over_a_step_enqueues_again() {
    for seed in 1..=4 {
        let mut play = Play::new(seed, Conditions::Calm, None);
        play.set_clocks_ahead(STEP);
        let ahead = play.enqueue(1).expect("it is served");
        play.pass(AHEAD_FOR);
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
    let mut play = Play::new(1, Conditions::Calm, None);
    play.set_clocks_ahead(STEP);
    play.open().expect("it is served");
    play.pass(AHEAD_FOR);
    play.set_clocks_ahead(Duration::ZERO);
    play.pass(STEP);
    for _ in 0..SESSIONS {
        play.open().expect("it is served");
    }
    assert_eq!(play.refused, 0);
}

#[test]
fn known_bugs_are_caught() {
    for (bug, says) in [(Mutant::HelloShutsOut, "is not answered"), (Mutant::IdsGoBack, "ids went back")] {
        let caught = play(1, Conditions::Calm, false, Some(bug)).expect_err("it is caught");
        assert!(caught.contains(says), "{bug:?}: {caught}");
    }
}
