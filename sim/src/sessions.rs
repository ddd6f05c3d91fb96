//! Workers that claim under a session: a task with one attempt, which they hold, and whose lease they renew for all their claims.

use crate::adapter::{Call, Draft};
use crate::jobs::relied_us;
use crate::workload::{Act, Purpose};
use crate::world::World;
use norn_wire::request::{Acks, Claim, Request};
use norn_wire::response::Response;
use norn_wire::{ClaimId, Error, QueueName, SESSIONS_QUEUE, TaskId, Token};

/// The lease of a claim under a session: longer than any run waits for.
const CAP_MS: u64 = 3_600_000;

/// A session that a worker holds, as far as it knows.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    pub id: TaskId,
    token: Token,
    lease_ms: u64,
    /// End of its lease on the client's clock.
    pub stop_us: u64,
}

/// Queue of sessions.
pub fn queue_of_sessions() -> QueueName {
    QueueName::new(SESSIONS_QUEUE).expect("a good name")
}

impl World {
    /// The session of a client, unless it has surely ended.
    fn live_session(&self, client: usize) -> Option<Held> {
        let state = &self.clients[client];
        state.held.filter(|held| state.clock.read_us(self.now_us) < held.stop_us)
    }

    /// Whether a worker opens a session instead of claiming.
    pub fn opens_session(&mut self, client: usize) -> bool {
        let percent = self.options.session_percent;
        if percent == 0 || self.healed() || self.live_session(client).is_some() {
            return false;
        }
        if !self.randoms.sessions.chance(percent, 100) {
            return false;
        }
        self.clients[client].held = None;
        let draft = Draft::new(queue_of_sessions(), format!("worker {client}")).attempts_max(1);
        let call = Call::Enqueue { drafts: vec![draft], acks: Acks::Quorum };
        self.submit(client, call, Purpose::Session);
        true
    }

    /// Puts a claim under the worker's session, mostly, if it has one.
    pub fn under_session(&mut self, client: usize, claim: Claim) -> Claim {
        let Some(held) = self.live_session(client).filter(|_| !self.healed()) else { return claim };
        if !self.randoms.sessions.chance(self.options.session_percent, 100) {
            return claim;
        }
        self.count("sometimes: claimed under a session");
        Claim { session: Some(held.id), lease_ms: CAP_MS, ..claim }
    }

    /// Handles the answer to a step of a session.
    pub fn session_answered(
        &mut self,
        client: usize,
        call: &Call,
        result: &Result<Response, Error>,
        lease_from_us: Option<u64>,
    ) {
        match (call, result) {
            (Call::Enqueue { .. }, Ok(Response::Acked(items))) if items.iter().all(Result::is_ok) => {
                let claim = Claim {
                    claim: ClaimId(0),
                    repeated: false,
                    queues: vec![queue_of_sessions()],
                    lease_ms: self.randoms.sessions.between(1_000, 4_000),
                    wait_ms: 0,
                    max: 1,
                    worker: format!("worker-{client}"),
                    lease_open: false,
                    session: None,
                    depends: Vec::new(),
                    confirms: false,
                };
                return self.submit(client, Call::Request(Request::Claim(claim)), Purpose::Session);
            }
            (Call::Request(Request::Claim(_)), Ok(Response::Claimed { tasks, .. })) if !tasks.is_empty() => {
                let (task, sent_us) = (&tasks[0], lease_from_us.expect("what was answered was sent"));
                let stop_us = sent_us + relied_us(task.lease_ms);
                let held = Held { id: task.id, token: task.token, lease_ms: task.lease_ms, stop_us };
                self.clients[client].held = Some(held);
                self.count("sometimes: session opened");
                self.next_heartbeat(client, held);
            }
            (Call::Request(Request::Renew { items, .. }), Ok(Response::Renewed(results))) => {
                return self.session_renewed(client, items[0].0, &results[0], lease_from_us);
            }
            (Call::Request(Request::Renew { items, .. }), _) => {
                return self.act_in(client, 100_000, Act::Heartbeat(items[0].0));
            }
            _ => {}
        }
        if matches!(call, Call::Enqueue { .. } | Call::Request(Request::Claim(_))) {
            self.act_in(client, 1_000, Act::Claim);
        }
    }

    fn next_heartbeat(&mut self, client: usize, held: Held) {
        let delay_us = self.randoms.sessions.between(held.lease_ms * 200, held.lease_ms * 500);
        self.act_in(client, delay_us, Act::Heartbeat(held.id));
    }

    /// Renews a session, or ends it, now and then. After healing it expires.
    pub fn act_heartbeat(&mut self, client: usize, id: TaskId) {
        let Some(held) = self.live_session(client).filter(|held| held.id == id) else { return };
        if self.healed() {
            return;
        }
        let (id, token) = (held.id, held.token);
        if self.randoms.sessions.chance(1, 10) {
            // The worker stops its work on what it holds.
            self.count("sometimes: session ended by its worker");
            self.clients[client].held = None;
            self.leave_jobs(client, id);
            let sequence = None;
            let completion =
                norn_wire::Completion { id, token, sequence, result: None, at_ms: 0, children: Vec::new() };
            let request = Request::Complete { items: vec![completion], acks: Acks::Quorum };
            return self.submit(client, Call::Request(request), Purpose::Plain);
        }
        let request = Request::Renew { items: vec![(id, token)], lease_ms: None };
        self.submit(client, Call::Request(request), Purpose::Session);
    }

    fn session_renewed(&mut self, client: usize, id: TaskId, result: &Result<u64, Error>, lease_from_us: Option<u64>) {
        let state = &mut self.clients[client];
        let Some(held) = state.held.as_mut().filter(|held| held.id == id) else { return };
        match (result, lease_from_us) {
            (Ok(lease_ms), Some(sent_us)) => {
                held.stop_us = held.stop_us.max(sent_us + relied_us(*lease_ms));
                let (held, jobs) = (*held, state.jobs.iter());
                let jobs: Vec<u64> =
                    jobs.filter(|(_, job)| job.session == Some(id)).map(|(number, _)| *number).collect();
                self.count("sometimes: session renewed");
                jobs.into_iter().for_each(|job| self.believe(client, job));
                self.next_heartbeat(client, held);
            }
            _ => state.held = None,
        }
    }
}
