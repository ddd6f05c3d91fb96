//! Random schedules against nodes that answer, refuse, stay silent and break connections as the seed decides.

use super::*;
use norn_wire::random::Random;
use norn_wire::request::NewTask;
use proptest::prelude::*;

/// A world for random schedules: nodes that answer, refuse, stay silent and forget, and connections that break.
struct World {
    random: Random,
    session: Session,
    now_us: u64,
    log: String,
    /// Future deliveries, by time and a sequence number.
    coming: BTreeMap<(u64, u64), Input>,
    coming_last: u64,
    submitted: BTreeMap<CallId, u64>,
    answers: BTreeMap<CallId, usize>,
    /// The first content sent under each task id, to compare with repeats.
    tasks: BTreeMap<TaskId, NewTask>,
    time_ms_last: u64,
    /// Number of background attempts at other endpoints, and of switches of the active endpoint from ready to ready.
    searches: u64,
    moves: u64,
}

/// State of a session's endpoints.
#[derive(Debug, Clone, Copy)]
struct Standing {
    active: usize,
    /// Whether the active endpoint is ready.
    ready: bool,
    /// Number of connections being made.
    tries: usize,
}

impl Standing {
    fn of(session: &Session) -> Standing {
        let links = &session.links;
        let under_way =
            |endpoint: &usize| matches!(links.get(*endpoint).link, Link::Connecting { .. } | Link::Greeting { .. });
        let tries = (0..links.len()).filter(under_way).count();
        Standing { active: links.active, ready: links.get(links.active).is_ready(), tries }
    }

    /// Checks a step in which no timer was due and a claim may have been answered.
    fn judge(self, after: Standing, claimed: bool) -> Result<(), String> {
        let stayed = self.ready && after.ready && self.active == after.active;
        let early = claimed && self.ready && !after.ready;
        ensure(!early, || format!("left before the other is ready: {self:?}, {after:?}"))?;
        ensure(!stayed || after.tries <= self.tries.max(1), || format!("searches twice at once: {self:?}, {after:?}"))
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed ^ 0x9e37);
        let endpoints = 1 + random.below(3) as usize;
        let config = Config { in_flight_max: 1 + random.below(6) as usize, calls_max: 20, ..Config::default() };
        World {
            random,
            session: Session::new(config, endpoints, seed),
            now_us: 0,
            log: String::new(),
            coming: BTreeMap::new(),
            coming_last: 0,
            submitted: BTreeMap::new(),
            answers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            time_ms_last: 0,
            searches: 0,
            moves: 0,
        }
    }

    fn step(&mut self, input: Input) {
        use std::fmt::Write;
        let mut outputs = Vec::new();
        writeln!(self.log, "{} {input:?}", self.now_us).unwrap();
        let (before, overdue) =
            (Standing::of(&self.session), self.session.next_wake().is_some_and(|at_us| at_us <= self.now_us));
        let claimed = matches!(&input, Input::Received { response: Response::Claimed { .. }, .. });
        self.session.step(self.now_us, input, &mut outputs);
        self.session.check().unwrap();
        let after = Standing::of(&self.session);
        // Timers due in the same step may cause changes of their own.
        if !overdue {
            before.judge(after, claimed).unwrap();
        }
        if before.ready && after.ready && before.active == after.active && after.tries > before.tries {
            self.searches += 1;
        }
        if before.ready && after.ready && before.active != after.active {
            self.moves += 1;
        }
        assert!(self.session.next_wake().is_none_or(|at_us| at_us > self.now_us), "a host would spin");
        let time_ms = self.session.server_time_ms(self.now_us).unwrap_or(0);
        assert!(time_ms >= self.time_ms_last, "server time goes back");
        self.time_ms_last = time_ms;
        for output in outputs {
            writeln!(self.log, "    {output:?}").unwrap();
            self.carry_out(output);
        }
    }

    fn later(&mut self, within_us: u64, input: Input) {
        self.coming_last += 1;
        let at_us = self.now_us + 1 + self.random.below(within_us);
        self.coming.insert((at_us, self.coming_last), input);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Connect { endpoint } => match self.random.below(8) {
                0 => {}
                1 => self.later(100_000, Input::Disconnected { endpoint }),
                2 => self.later(100_000, Input::Refused { endpoint, error: error(ErrorCode::Denied) }),
                _ => self.later(100_000, Input::Connected { endpoint }),
            },
            Output::Disconnect { endpoint } => self.coming.retain(|_, input| match input {
                Input::Connected { endpoint: at, .. }
                | Input::Disconnected { endpoint: at }
                | Input::Refused { endpoint: at, .. } => *at != endpoint,
                Input::Heard { .. }
                | Input::Received { .. }
                | Input::Submit { .. }
                | Input::Abandon { .. }
                | Input::Closing
                | Input::Wake => true,
            }),
            Output::Send { endpoint, number, request } => self.serve(endpoint, number, request),
            Output::Done { call, lease_from_us, .. } => {
                assert!(lease_from_us.is_none_or(|sent_us| sent_us <= self.now_us));
                assert!(self.now_us <= self.submitted[&call], "{call:?} is answered after its deadline");
                *self.answers.entry(call).or_default() += 1;
            }
        }
    }

    fn serve(&mut self, endpoint: usize, number: u64, request: Request) {
        if let Request::Enqueue { tasks, .. } = &request {
            for task in tasks {
                let first = self.tasks.entry(task.id).or_insert_with(|| task.clone());
                assert_eq!(first, task, "a repeat is other bytes");
            }
        }
        let code = [ErrorCode::Unavailable, ErrorCode::Unknown, ErrorCode::Overloaded, ErrorCode::Conflict]
            [self.random.below(4) as usize];
        let response = match (self.random.below(10), request) {
            (0, _) => return,
            (1, _) => return self.later(500_000, Input::Disconnected { endpoint }),
            (2, _) => Response::Error(error(code)),
            (3, Request::Hello { .. }) => bare(SERVER_MS, self.random.below(5_000)),
            (_, Request::Hello { .. }) => welcome(SERVER_MS + self.random.below(10_000), self.random.below(100)),
            (3, request @ Request::Enqueue { .. }) => {
                let item = |id| if self.random.below(2) == 0 { Ok(acked(id)) } else { Err(error(code)) };
                Response::Acked(ids(&request).into_iter().map(item).collect())
            }
            (_, request @ Request::Enqueue { .. }) => {
                Response::Acked(ids(&request).into_iter().map(acked).map(Ok).collect())
            }
            (4, Request::Confirm { .. }) => Response::Error(error(ErrorCode::Superseded)),
            (_, Request::Confirm { .. } | Request::Leave { .. }) => Response::Done,
            (_, Request::Renew { items, .. }) => Response::Renewed(vec![Ok(30_000); items.len()]),
            (5.., Request::Claim(_)) => something(),
            (_, Request::Claim(_)) => nothing(self.random.below(2) as u32),
            _ => Response::Queues(Vec::new()),
        };
        let within_us = if self.random.below(10) == 0 { 5 * SECOND_US } else { 50_000 };
        if self.random.below(10) == 0 {
            self.later(within_us, Input::Heard { endpoint });
        }
        self.later(within_us, Input::Received { endpoint, number, response: response.clone() });
        if self.random.below(10) == 0 {
            self.later(within_us, Input::Received { endpoint, number, response });
        }
    }

    fn run(mut self, calls: u64) -> World {
        for call in 1..=calls {
            let body = match self.random.below(4) {
                0 => claim(self.random.below(3_000)),
                1 => Call::Request(Request::Queues),
                _ => enqueue(1 + self.random.below(5) as usize),
            };
            let at_us = self.random.below(20 * SECOND_US);
            let deadline_us = at_us + self.random.below(12 * SECOND_US);
            self.submitted.insert(CallId(call), deadline_us.max(at_us));
            self.coming_last += 1;
            self.coming.insert((at_us, self.coming_last), Input::Submit { call: CallId(call), body, deadline_us });
            if self.random.below(8) == 0 {
                self.coming_last += 1;
                let at_us = at_us + self.random.below(SECOND_US);
                self.coming.insert((at_us, self.coming_last), Input::Abandon { call: CallId(call) });
            }
        }
        loop {
            let next = self.coming.first_key_value().map(|(key, _)| *key);
            let wake_us = self.session.next_wake();
            match (next, wake_us) {
                (Some(key), wake_us) if wake_us.is_none_or(|wake_us| key.0 <= wake_us) => {
                    self.now_us = self.now_us.max(key.0);
                    let input = self.coming.remove(&key).expect("it is the first");
                    self.step(input);
                }
                (_, Some(wake_us)) => {
                    self.now_us = wake_us;
                    self.step(Input::Wake);
                }
                (_, None) => break,
            }
        }
        assert_eq!(self.answers.len() as u64, calls, "every call is answered");
        assert!(self.answers.values().all(|count| *count == 1), "once");
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn under_any_schedule_every_call_is_answered_once_and_repeats_are_the_same_bytes(seed in any::<u64>()) {
        World::new(seed).run(60);
    }
}

#[test]
fn the_same_seed_gives_the_same_outputs() {
    for seed in 0..5 {
        assert_eq!(World::new(seed).run(40).log, World::new(seed).run(40).log);
    }
}

#[test]
fn the_schedules_search_and_what_leaves_early_or_searches_twice_is_refused() {
    let (searches, moves) = (0..20).fold((0, 0), |(searches, moves), seed| {
        let world = World::new(seed).run(60);
        (searches + world.searches, moves + world.moves)
    });
    assert!(searches > 20 && moves > 20, "{searches} searches, {moves} moves");
    let before = Standing { active: 0, ready: true, tries: 0 };
    assert_eq!(before.judge(Standing { tries: 1, ..before }, true), Ok(()));
    assert_eq!(before.judge(Standing { active: 1, ..before }, true), Ok(()));
    assert!(before.judge(Standing { active: 1, ready: false, tries: 1 }, true).is_err());
    assert!(before.judge(Standing { tries: 2, ..before }, true).is_err());
}
