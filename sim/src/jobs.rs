//! What a worker does with a task that it was granted: mostly what it should.

use crate::adapter::{Call, Finish};
use crate::history::Happening;
use crate::workload::{Act, Purpose};
use crate::world::World;
use norn_model::config::{Config, Mutant};
use norn_model::task::SMALL_BYTES;
use norn_wire::request::{Completion, Request};
use norn_wire::response::{Granted, Response};
use norn_wire::{Error, TaskId, Token};
use std::collections::VecDeque;

/// One step of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Renews the claim, perhaps for another length.
    Renew(Option<u64>),
    /// Writes a log entry.
    Update,
    /// Completes the task.
    Complete,
    /// Completes the task under a forged token, which no client was given and which needs no seal.
    Forge,
    /// Fails the attempt.
    Fail {
        /// Pause before the next attempt.
        retry_in_ms: u64,
        /// There is no next attempt.
        invalid: bool,
        /// The queue sets the pause.
        open: bool,
    },
    /// Gives the claim back.
    Release,
    /// Pauses the whole client for this long.
    Pause(u64),
    /// Ends the whole client.
    Vanish,
    /// Forgets the job.
    Forget,
}

/// A task in the hands of a worker.
#[derive(Debug)]
pub struct Job {
    pub id: TaskId,
    pub token: Token,
    /// Until when it believes to hold the task, on the client's clock.
    stop_us: u64,
    /// Session that the job ends with, if that is earlier.
    pub session: Option<TaskId>,
    stopped: bool,
    sequence: u32,
    /// Steps to come, each with the delay before it.
    plan: VecDeque<(u64, Step)>,
}

/// The part of a lease that a worker relies on: its clock may be slow by the bound.
pub fn relied_us(lease_ms: u64) -> u64 {
    lease_ms * 1_000 - lease_ms
}

impl World {
    /// Begins a job for a task that a worker was granted.
    pub fn new_job(&mut self, client: usize, task: &Granted, session: Option<TaskId>, lease_from_us: u64) {
        // Claims under a session last as long as that is kept alive, and work does not.
        let mut plan = self.draw_plan(task.lease_ms.min(self.options.lease_ms_max));
        let forged = task.token.needs_seal() && self.randoms.forged.chance(self.options.forged_percent, 100);
        if forged {
            plan.push_front((0, Step::Forge));
        }
        let from_answer = self.options.mutant == Some(Mutant::CountsFromAnswer);
        let lease_from_us = if from_answer { self.clients[client].clock.read_us(self.now_us) } else { lease_from_us };
        let stop_us = lease_from_us + relied_us(task.lease_ms);
        let job = Job { id: task.id, token: task.token, stop_us, session, stopped: false, sequence: 0, plan };
        let state = &mut self.clients[client];
        state.next_job += 1;
        let number = state.next_job;
        state.jobs.insert(number, job);
        self.believe(client, number);
        self.next_step(client, number);
        self.purge(client, task.id);
    }

    fn draw_plan(&mut self, lease_ms: u64) -> VecDeque<(u64, Step)> {
        let (healed, percent) = (self.healed(), self.options.misbehave_percent);
        let random = &mut self.randoms.workload;
        let mut plan = VecDeque::new();
        let lease_us = lease_ms * 1_000;
        let short_us = lease_us.min(500_000);
        if random.chance(1, 3) {
            for _ in 0..random.between(1, 4) {
                plan.push_back((random.between(0, short_us / 4), Step::Update));
            }
        }
        if healed || !random.chance(percent, 100) {
            if random.chance(1, 5) {
                plan.push_back((random.between(0, short_us / 2), Step::Renew(None)));
            }
            plan.push_back((random.between(0, short_us), Step::Complete));
            return plan;
        }
        let while_us = random.between(0, short_us);
        match random.below(9) {
            0 => {
                let (retry_in_ms, invalid) = (random.below(2) * random.between(0, 2_000), random.chance(1, 4));
                // With wall clocks that are hours off, a pause may be hours.
                let retry_in_ms = if self.options.wild_wall_clock { 0 } else { retry_in_ms };
                let open = self.options.policy_mean_ms > 0 && random.chance(1, 2);
                plan.push_back((while_us, Step::Fail { retry_in_ms, invalid, open }));
            }
            1 => plan.push_back((while_us, Step::Release)),
            2 => plan.push_back((while_us, Step::Vanish)),
            3 => {
                plan.push_back((while_us, Step::Pause(lease_us + random.between(0, lease_us))));
                plan.push_back((0, Step::Complete));
            }
            4 => {
                // A shorter lease is asked for, which must not shorten the present one.
                plan.push_back((while_us, Step::Renew(Some(random.between(100, 200)))));
                plan.push_back((lease_us, Step::Complete));
            }
            5 => {
                for _ in 0..random.between(1, 4) {
                    let lease_ms = random.between(self.options.lease_ms_min, self.options.lease_ms_max);
                    plan.push_back((random.between(lease_us / 4, lease_us), Step::Renew(Some(lease_ms))));
                }
                plan.push_back((while_us, Step::Complete));
            }
            6 => plan.push_back((while_us, Step::Forget)),
            7 => plan.push_back((lease_us * 9 / 10 + random.between(0, lease_us / 5), Step::Complete)),
            _ => {
                plan.push_back((lease_us + random.between(0, lease_us), Step::Update));
                plan.push_back((while_us, Step::Complete));
            }
        }
        plan
    }

    /// Reports how long the worker believes to hold its task, if it does.
    pub fn believe(&mut self, client: usize, number: u64) {
        let state = &self.clients[client];
        let Some(job) = state.jobs.get(&number).filter(|job| !job.stopped) else { return };
        let (id, token) = (job.id, job.token);
        let held_us = |session| state.held.as_ref().filter(|held| held.id == session).map_or(0, |held| held.stop_us);
        let stop_us = job.session.map_or(job.stop_us, |session| job.stop_us.min(held_us(session)));
        // The last instant before its clock reads the stop time counts; the stop time itself does not.
        let until_us = state.clock.true_time_us(self.now_us, stop_us);
        if until_us > self.now_us {
            self.tell(Happening::Holds { client, id, token, until_us });
        } else {
            self.count("sometimes: lease over before the answer");
        }
    }

    fn stop(&mut self, client: usize, number: u64) {
        if let Some(job) = self.clients[client].jobs.get_mut(&number).filter(|job| !job.stopped) {
            job.stopped = true;
            let (id, token) = (job.id, job.token);
            self.tell(Happening::Stops { client, id, token });
        }
    }

    fn next_step(&mut self, client: usize, number: u64) {
        let delay_us = self.clients[client].jobs.get(&number).and_then(|job| job.plan.front()).map(|step| step.0);
        match delay_us {
            Some(delay_us) => self.act_in(client, delay_us, Act::Step(number)),
            None => self.end_job(client, number),
        }
    }

    fn end_job(&mut self, client: usize, number: u64) {
        self.stop(client, number);
        self.clients[client].jobs.remove(&number);
        if self.clients[client].jobs.is_empty() {
            let delay_us = self.randoms.workload.between(0, 50_000);
            self.act_in(client, delay_us, Act::Claim);
        }
    }

    /// Ends all jobs that a worker has under a session.
    pub fn leave_jobs(&mut self, client: usize, session: TaskId) {
        let of_session = |(_, job): &(&u64, &Job)| job.session == Some(session);
        let jobs: Vec<u64> = self.clients[client].jobs.iter().filter(of_session).map(|(number, _)| *number).collect();
        for number in jobs {
            self.stop(client, number);
            self.clients[client].jobs.remove(&number);
        }
        if self.clients[client].jobs.is_empty() {
            self.act_in(client, 1_000, Act::Claim);
        }
    }

    /// Least length of results and log entries: where memory is scarce, they are long enough to leave it.
    fn bytes_length(&self) -> usize {
        let scarce = self.options.payload_memory_bytes != Config::default().payload_memory_bytes;
        if scarce { 2 * SMALL_BYTES } else { 0 }
    }

    /// Carries out the next step of a job.
    pub fn job_step(&mut self, client: usize, number: u64) {
        let healed = self.healed();
        let acks = self.draw_acks();
        let completes = |job: &Job| job.plan.front().is_some_and(|(_, step)| matches!(step, Step::Complete));
        let children = match self.clients[client].jobs.get(&number).is_some_and(completes) {
            true => self.draw_children(),
            false => Vec::new(),
        };
        let length = self.bytes_length();
        let Some(job) = self.clients[client].jobs.get_mut(&number) else { return };
        let (id, token, sequence) = (job.id, job.token, job.sequence);
        let Some((_, step)) = job.plan.pop_front() else { return };
        let request = match step {
            Step::Renew(lease_ms) => Request::Renew { items: vec![(id, token)], lease_ms },
            Step::Update => {
                job.sequence += 1;
                let data = format!("{:<length$}", format!("{token} entry {sequence}")).into_bytes();
                Request::Update { id, token, sequence, data, acks }
            }
            Step::Complete => {
                let result = Some(format!("{:<length$}", format!("{token} result")).into_bytes().into());
                let completion =
                    Completion { id, token, sequence: Some(sequence), result, at_ms: 0, children: Vec::new() };
                if !children.is_empty() {
                    self.stop(client, number);
                    let call = Call::Complete { items: vec![Finish { completion, children }], acks };
                    return self.submit(client, call, Purpose::Job(number));
                }
                Request::Complete { items: vec![completion], acks }
            }
            Step::Forge => {
                let result = Some(b"forged".to_vec().into());
                let token = Token { number: 1, ..token };
                let item = Completion { id, token, sequence: None, result, at_ms: 0, children: Vec::new() };
                self.submit(client, Call::Request(Request::Complete { items: vec![item], acks }), Purpose::Plain);
                return self.next_step(client, number);
            }
            Step::Fail { retry_in_ms, invalid, open } => {
                Request::Fail { id, token, reason: "failed".into(), retry_in_ms, invalid, retry_open: open }
            }
            Step::Release => Request::Release { id, token },
            Step::Pause(_) | Step::Vanish if healed => return self.next_step(client, number),
            Step::Pause(length_us) => {
                self.pause_client(client, length_us);
                return self.next_step(client, number);
            }
            Step::Vanish => return self.vanish(client),
            Step::Forget => return self.end_job(client, number),
        };
        if matches!(step, Step::Complete | Step::Fail { .. } | Step::Release) {
            self.stop(client, number);
        }
        self.submit(client, Call::Request(request), Purpose::Job(number));
    }

    /// Handles the answer to a step of a job.
    pub fn job_answered(
        &mut self,
        client: usize,
        number: u64,
        call: &Call,
        result: &Result<Response, Error>,
        lease_from_us: Option<u64>,
    ) {
        if let (Ok(Response::Renewed(items)), Some(sent_us)) = (result, lease_from_us)
            && let [Ok(lease_ms)] = items[..]
            && let Some(job) = self.clients[client].jobs.get_mut(&number)
        {
            job.stop_us = job.stop_us.max(sent_us + relied_us(lease_ms));
            self.count("renewed");
            self.believe(client, number);
        }
        if let (Call::Request(Request::Fail { id, invalid: true, .. }), Ok(Response::Done)) = (call, result) {
            self.redrive(client, *id);
        }
        let ends = matches!(call, Call::Complete { .. })
            || matches!(call, Call::Request(Request::Complete { .. } | Request::Fail { .. } | Request::Release { .. }));
        // The session has tried for long. A refusal or an unknown outcome ends the job, and the lease takes care of the rest.
        let refused = match result {
            Err(_) => true,
            Ok(Response::Renewed(items)) => items.iter().any(Result::is_err),
            Ok(Response::Acked(items)) => items.iter().any(Result::is_err),
            Ok(_) => false,
        };
        let done = matches!(call, Call::Complete { .. } | Call::Request(Request::Complete { .. }));
        if let Some(id) = self.clients[client].jobs.get(&number).map(|job| job.id).filter(|_| done && !refused) {
            self.purge(client, id);
        }
        if ends || refused {
            self.end_job(client, number);
        } else {
            self.next_step(client, number);
        }
    }

    /// Purges a task, now and then. A task that has not ended must stay.
    fn purge(&mut self, client: usize, id: TaskId) {
        if !self.healed() && self.randoms.purges.chance(self.options.purge_percent, 100) {
            let acks = self.draw_acks();
            self.submit(client, Call::Request(Request::Purge { id, acks, state: None }), Purpose::Plain);
        }
    }

    /// Redrives a dead task, now and then.
    fn redrive(&mut self, client: usize, id: TaskId) {
        if !self.healed() && self.randoms.dead_letters.chance(self.options.letters_percent, 200) {
            let acks = self.draw_acks();
            let request = Request::Redrive { id, child: TaskId::MIN, queue: None, acks };
            self.submit(client, Call::Request(request), Purpose::Plain);
        }
    }
}
