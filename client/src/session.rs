//! Sans-IO client session: idempotent retries under one id, failover, deadlines, id generation.
//!
//! A [`Session`] takes [`Input`]s, each with its time, and returns [`Output`]s to carry out. It has no socket, clock, thread or source
//! of randomness of its own, so the simulator runs the same code as applications. A host needs no logic of its own: it carries out the
//! outputs in order, reports events as inputs, and calls [`Session::step`] with [`Input::Wake`] at [`Session::next_wake`].
//!
//! - **One endpoint at a time.** Calls go to the active endpoint until it fails, is silent for too long, or asks the client to come
//!   back later; then the next one becomes active. An older connection stays open while it still answers.
//! - **Failure detector.** A node that is silent while calls are under way is pinged. The time that an answer takes is not the only
//!   evidence, because calls may wait at a node for as long as they like.
//! - **A node that does not answer costs little time.** While the first attempt to connect is unanswered, attempts at other endpoints
//!   join it one by one, and the first that answers is used.
//! - **Lasting failures end calls early.** In a session that no node has ever welcomed, calls end as soon as each endpoint has failed
//!   and each node that was heard gave a lasting reason. A session that was welcomed once keeps trying.
//! - **A better node is sought in the background.** While the active endpoint finds no work and cannot look everywhere, or fails a call
//!   again and again, the session tries other endpoints, one at a time, and the first that is ready becomes active. Until then the
//!   present one keeps serving.
//! - **Ids from a node whose clock was ahead are discarded** once nodes refuse one, or another node lends far earlier ones: the next
//!   call asks for new ids.
//! - **Resolved once.** When a call is first sent, its ids, times and claim id are fixed; every repeat carries the same. A repeat
//!   therefore does what the first attempt would have done.
//! - **A refusal concerns one attempt.** If a node refuses for its clock, its room, the age of an id, the rights of the caller or the
//!   version of its program, this says nothing about earlier attempts. Where one of those may have been taken, the call is `unknown`,
//!   with the reason of the refusal.
//! - **Grants are confirmed.** A claim is answered only after the node that granted it knows that the answer arrived, so that no task
//!   goes to a client that is gone. A claim that ends otherwise is cancelled at the nodes that were asked.
//! - **One answer.** Every submitted call gets exactly one [`Output::Done`], at its deadline at the latest. Anything that arrives later
//!   is ignored.
//!
//! Two kinds of numbers: `*_us` is the host's monotonic clock in microseconds; `*_ms` is a duration or the server's wall clock in
//! milliseconds.

mod call;
mod check;
mod confirm;
mod id_generator;
mod leaving;
mod links;
mod pulse;
mod reach;
mod transaction;
mod types;
mod validate;
mod watch;

#[cfg(test)]
mod tests;

use call::{Pending, Stage, Verdict};
use confirm::Asks;
use id_generator::{IdGenerator, Needs, any_tag};
use leaving::Leaving;
use links::{Failure, Link, Links, Refusal};
use norn_wire::error::{Cause, Error, ErrorCode, Retry};
use norn_wire::random::Random;
use norn_wire::request::Request;
use norn_wire::response::{Response, Welcome};
use std::collections::{BTreeMap, BTreeSet};
pub use transaction::{ChangeDraft, Seen, TransactionDraft};
pub use types::{
    Call, CallId, Config, CopyId, Draft, Finish, Input, LentIds, Output, SESSIONS_QUEUE, explain_close, explain_name,
};
pub use watch::{WatchNews, WatchState};

/// Exclusive upper bound of wall-clock times: a welcome with a time from here on is malformed.
const TIME_MS_END: u64 = 1 << 56;

/// A request under way, or timed out on a connection that is still open.
#[derive(Debug)]
struct Attempt {
    call: CallId,
    endpoint: usize,
    /// Batch items that the attempt carries, in order; empty if the call is no batch.
    positions: Vec<usize>,
    /// Answers received on the connection before the attempt was sent.
    received_before: u64,
    /// Purpose of the request.
    asks: Asks,
}

/// State of one client: calls under way, connections, ids. See the [module documentation](self).
#[derive(Debug)]
pub struct Session {
    config: Config,
    now_us: u64,
    random: Random,
    id_generator: IdGenerator,
    links: Links,
    /// Boxed, because a map reserves room for several entries at once and most sessions have one call under way.
    calls: BTreeMap<CallId, Box<Pending>>,
    calls_bytes: usize,
    calls_submitted: u64,
    /// Number of calls that may fare better at another node.
    seekers: usize,
    /// Calls to send, by what they need, in the order of submission: a repeat goes before calls submitted later.
    queues: [BTreeMap<u64, CallId>; Needs::ALL.len()],
    /// One entry for each call: the time of its next timer.
    timers: BTreeSet<(u64, CallId)>,
    attempts: BTreeMap<u64, Attempt>,
    in_flight: usize,
    number_last: u64,
    /// Finished claims that may hold tasks their callers did not get.
    leaving: Leaving,
    /// Whether any node has welcomed this session.
    was_welcomed: bool,
    /// Start of the time during which calls wait and no node is connected.
    lost_us: Option<u64>,
    outputs: Vec<Output>,
}

impl Session {
    /// Creates a session over `endpoints` endpoints, numbered from 0. All its randomness comes from `seed`.
    pub fn new(config: Config, endpoints: usize, seed: u64) -> Session {
        assert!(endpoints > 0, "a session has at least one endpoint");
        assert!(config.in_flight_max > 0 && config.calls_max > 0, "a session can hold a call");
        assert!(config.reconnect_pause_ms_min > 0, "pauses are not empty");
        assert!(config.reconnect_pause_ms_min <= config.reconnect_pause_ms_max);
        let mut random = Random::new(seed);
        let id_generator = IdGenerator::new(&mut random);
        let active = random.below(endpoints as u64) as usize;
        Session {
            config,
            now_us: 0,
            random,
            id_generator,
            links: Links::new(endpoints, active),
            calls: BTreeMap::new(),
            calls_bytes: 0,
            calls_submitted: 0,
            seekers: 0,
            queues: Default::default(),
            timers: BTreeSet::new(),
            attempts: BTreeMap::new(),
            in_flight: 0,
            number_last: 0,
            leaving: Leaving::default(),
            was_welcomed: false,
            lost_us: None,
            outputs: Vec::new(),
        }
    }

    /// Takes one input at monotonic time `now_us` and appends the resulting outputs to `outputs`.
    pub fn step(&mut self, now_us: u64, input: Input, outputs: &mut Vec<Output>) {
        self.now_us = self.now_us.max(now_us);
        match input {
            Input::Submit { call, body, deadline_us } => self.submit(call, body, deadline_us),
            Input::Abandon { call } => {
                self.give_up(call, "the call was abandoned, or its client closed, before an answer came")
            }
            Input::Connected { endpoint } => self.connected(endpoint),
            Input::Disconnected { endpoint } => self.disconnected(endpoint),
            Input::Refused { endpoint, error } => self.refused(endpoint, error),
            Input::Heard { endpoint } => self.links.get_mut(endpoint).pulse.heard(self.now_us, None),
            Input::Received { endpoint, number, response } => self.received(endpoint, number, response),
            Input::Closing => self.leave_at_once(),
            Input::Wake => {}
        }
        self.expire_links();
        self.expire_calls();
        self.expire_leaves();
        self.feel_pulses();
        self.end_hopeless();
        self.expire_lost();
        self.pump();
        self.say_leaves();
        // Only claims, calls refused repeatedly and calls that lack ids or time search for another node.
        let lacks = self.lacks();
        if self.seekers > 0 || lacks {
            self.search();
        }
        if lacks {
            self.ask_for_ids();
        }
        outputs.append(&mut self.outputs);
    }

    /// Time at which to call [`Session::step`] with [`Input::Wake`], unless another input comes first.
    pub fn next_wake(&self) -> Option<u64> {
        let call = self.timers.first().map(|(at_us, _)| *at_us);
        let [early, others @ ..] = &self.queues;
        let queued = others.iter().any(|queue| !queue.is_empty()) || self.leaving.is_due(self.now_us);
        let link = self.links.next_wake(queued, !early.is_empty(), self.seekers > 0, self.lacks());
        let lost = self.lost_until_us();
        call.into_iter().chain(link).chain(lost).chain(self.leaving.next_wake(self.now_us)).min()
    }

    /// The server's wall clock, as far as this session can tell. It goes back only if a node's clock was far ahead. `None` until a node
    /// has sent its time.
    pub fn server_time_ms(&self, now_us: u64) -> Option<u64> {
        self.id_generator.server_time_ms(now_us.max(self.now_us))
    }

    fn submit(&mut self, id: CallId, body: Call, deadline_us: u64) {
        assert!(!self.calls.contains_key(&id), "{id:?} is under way");
        let refusal = match validate::validate(&body) {
            Err(error) => Some(error),
            Ok(bytes) if self.calls.len() >= self.config.calls_max => Some(overloaded(bytes)),
            Ok(bytes) if self.calls_bytes.saturating_add(bytes) > self.config.calls_bytes_max => {
                Some(overloaded(bytes))
            }
            Ok(_) if deadline_us <= self.now_us => Some(Error::unavailable("the deadline had passed before the call")),
            Ok(bytes) => {
                if self.calls.is_empty() {
                    // An earlier cause of failure may have been repaired by now.
                    self.links.forget_failures();
                }
                self.calls_submitted += 1;
                self.calls_bytes += bytes;
                let pending = Pending::new(self.calls_submitted, body, bytes, deadline_us);
                self.seekers += usize::from(pending.seeks());
                self.timers.insert((pending.wake_us, id));
                self.queues[pending.needs as usize].insert(pending.order, id);
                self.calls.insert(id, Box::new(pending));
                None
            }
        };
        if let Some(error) = refusal {
            self.outputs.push(Output::Done { call: id, result: Err(error), lease_from_us: None });
        }
    }

    fn connected(&mut self, endpoint: usize) {
        match self.links.get(endpoint).link {
            Link::Connecting { .. } => {
                self.links.heard(endpoint);
                self.greet(endpoint);
            }
            // The session has given up this attempt in the meantime.
            Link::Idle => self.outputs.push(Output::Disconnect { endpoint }),
            Link::Greeting { .. } | Link::Refused | Link::Ready { .. } => {}
        }
    }

    fn greet(&mut self, endpoint: usize) {
        let number = self.say_hello(endpoint);
        let until_us = self.after_ms(self.patience_ms(endpoint));
        let greeting = Link::Greeting { number, sent_us: self.now_us, until_us };
        self.links.attempted(endpoint, greeting, self.after_ms(self.config.head_start_ms));
    }

    fn say_hello(&mut self, endpoint: usize) -> u64 {
        let number = self.next_number();
        let request = Request::Hello { name: self.config.name.clone(), bare: true };
        self.outputs.push(Output::Send { endpoint, number, request });
        number
    }

    fn received(&mut self, endpoint: usize, number: u64, response: Response) {
        let now_us = self.now_us;
        let state = self.links.get_mut(endpoint);
        if matches!(state.link, Link::Idle | Link::Connecting { .. }) {
            return;
        }
        state.received += 1;
        state.pulse.heard(now_us, Some(number));
        if let Link::Greeting { number: hello, sent_us, .. } = state.link
            && hello == number
        {
            state.pulse.welcomed(now_us - sent_us);
            return self.greeted(endpoint, response);
        }
        if state.asking.number == Some(number) {
            return self.asked_for_ids(endpoint, response);
        }
        if self.leave_answered(endpoint, number, &response)
            || self.attempts.get(&number).is_none_or(|attempt| attempt.endpoint != endpoint)
        {
            return;
        }
        let attempt = self.attempts.remove(&number).expect("seen above");
        let call = self.calls.get_mut(&attempt.call).expect("attempts end with their call");
        call.numbers.retain(|open| *open != number);
        let current = matches!(call.stage, Stage::Sent { number: sent, .. } if sent == number);
        match attempt.asks {
            Asks::Call => {}
            Asks::Confirmation if current => return self.confirmed(attempt.call, endpoint, response),
            Asks::Renewal { sent_us } if current => return self.renewed(attempt.call, (endpoint, sent_us), response),
            Asks::Confirmation | Asks::Renewal { .. } => return,
        }
        call.answered += 1;
        let blind = blindness(&response);
        if self.calls[&attempt.call].claim().is_some() && self.is_to_confirm(endpoint, &response) {
            // If the call was sent again elsewhere, it gets its tasks there, and this node takes back what it granted.
            if current {
                self.confirm(attempt.call, endpoint, response);
            }
            return self.links.found(now_us, endpoint, false);
        }
        let call = self.calls.get_mut(&attempt.call).expect("just seen");
        let verdict = call.absorb(&attempt.positions, response, current);
        if call.minted_ahead().is_some_and(|minted| self.id_generator.forget(minted)) {
            self.links.ask_all(self.now_us);
        }
        match verdict {
            Verdict::Done(result) => self.finish(attempt.call, result),
            Verdict::Retry(error) => self.retry(attempt.call, endpoint, error),
            Verdict::Ignore => {}
        }
        // A node that is cut off from the others would find no work for as long as its clients stay with it. The search begins at once,
        // so that the next claim may go elsewhere.
        if let Some(blind) = blind {
            self.links.found(self.now_us, endpoint, blind);
            self.search();
        }
    }

    fn greeted(&mut self, endpoint: usize, response: Response) {
        match response {
            Response::Welcome(welcome) if is_sound(&welcome) => {
                self.id_generator.welcome(self.now_us, &welcome);
                self.was_welcomed = true;
                match welcome.refusal {
                    None => {
                        self.links.welcomed(endpoint);
                        self.end_race();
                    }
                    Some(error) => {
                        self.links.welcomed_bare(endpoint, Refusal::new(*error, self.now_us));
                        self.lent_none(endpoint);
                    }
                }
            }
            // Keep the connection: the node may become ready later, and answers early calls until then.
            Response::Error(error) if call::is_retryable(&error) => {
                let failure = match error.is_of_no_member() {
                    true => Failure::Lasting(error.clone()),
                    false => Failure::Passing,
                };
                let state = self.links.get_mut(endpoint);
                state.link = Link::Refused;
                state.refusal = Some(Refusal::new(error, self.now_us));
                self.fail_link(endpoint, failure);
            }
            other => {
                self.outputs.push(Output::Disconnect { endpoint });
                let failure = match other {
                    Response::Error(error) => Failure::Lasting(error),
                    _ => Failure::Passing,
                };
                self.close(endpoint, failure);
            }
        }
    }

    /// Handles the answer of a serving node to a repeated request for ids. Whatever the answer, the node keeps serving.
    fn asked_for_ids(&mut self, endpoint: usize, response: Response) {
        self.links.get_mut(endpoint).asking.number = None;
        let refusal = match response {
            Response::Welcome(welcome) if is_sound(&welcome) => {
                self.id_generator.welcome(self.now_us, &welcome);
                welcome.refusal.map(|error| *error)
            }
            Response::Error(error) => Some(error),
            _ => {
                self.outputs.push(Output::Disconnect { endpoint });
                return self.close(endpoint, Failure::Passing);
            }
        };
        match refusal {
            None => self.links.lends(endpoint),
            Some(error) => {
                self.links.get_mut(endpoint).refusal = Some(Refusal::new(error, self.now_us));
                self.lent_none(endpoint);
            }
        }
    }

    /// Handles an answer without ids: the node is asked again later. A call that needs ids ends at once if no node lends any before its
    /// deadline.
    fn lent_none(&mut self, endpoint: usize) {
        self.ask_later(endpoint, 0);
        let Some(until_us) = self.links.bare_until_us() else { return };
        let lacking = self.lacking().iter().flat_map(BTreeMap::values);
        let in_vain: Vec<CallId> = lacking.copied().filter(|id| self.calls[id].deadline_us < until_us).collect();
        in_vain.into_iter().for_each(|id| self.give_up(id, "no node lends ids before the deadline"));
    }

    /// Schedules the next request for ids to a node, after `patience_ms` and a pause.
    fn ask_later(&mut self, endpoint: usize, patience_ms: u64) {
        let vain = self.links.get(endpoint).asking.vain.saturating_add(1);
        let pause_ms = self.pause_ms(vain);
        let next_us = self.after_ms(patience_ms.saturating_add(pause_ms));
        let asking = &mut self.links.get_mut(endpoint).asking;
        (asking.vain, asking.next_us) = (vain, next_us);
    }

    /// Calls that need more than the present loans of the nodes allow.
    fn lacking(&self) -> &[BTreeMap<u64, CallId>] {
        &self.queues[self.id_generator.serves() as usize + 1..]
    }

    fn lacks(&self) -> bool {
        self.lacking().iter().any(|queue| !queue.is_empty())
    }

    /// Repeats the request for ids to the nodes that lent none, or whose loan was discarded.
    fn ask_for_ids(&mut self) {
        let due = self.links.lenders().filter(|(at_us, _)| *at_us <= self.now_us);
        let due: Vec<usize> = due.map(|(_, endpoint)| endpoint).collect();
        for endpoint in due {
            let number = self.say_hello(endpoint);
            self.links.get_mut(endpoint).asking.number = Some(number);
            self.ask_later(endpoint, self.patience_ms(endpoint));
        }
    }

    /// Handles the end of a link: its pending attempts go elsewhere.
    fn close(&mut self, endpoint: usize, failure: Failure) {
        self.links.closed(endpoint);
        self.fail_link(endpoint, failure);
        self.leaves_lost(endpoint);
        let lost: Vec<u64> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.endpoint == endpoint)
            .map(|(number, _)| *number)
            .collect();
        for number in lost {
            let attempt = self.attempts.remove(&number).expect("collected above");
            let call = self.calls.get_mut(&attempt.call).expect("attempts end with their call");
            call.numbers.retain(|open| *open != number);
            if matches!(call.stage, Stage::Sent { number: sent, .. } if sent == number) {
                self.set_stage(attempt.call, Stage::Queued);
            }
        }
    }

    fn fail_link(&mut self, endpoint: usize, failure: Failure) {
        let failures = self.links.get(endpoint).failures.saturating_add(1);
        let pause_ms = self.pause_ms(failures);
        let retry_us = self.after_ms(pause_ms);
        self.links.failed(self.now_us, endpoint, failure, retry_us);
    }

    fn retry(&mut self, id: CallId, endpoint: usize, error: Error) {
        let call = self.calls.get_mut(&id).expect("it was just answered");
        let sought = call.seeks();
        call.failures = call.failures.saturating_add(1);
        let failures = call.failures;
        self.seekers += usize::from(!sought && call.seeks());
        let later = error.retry == Retry::Later;
        call.error_last = Some(error);
        if failures > 1 && self.links.get(endpoint).is_ready() {
            self.links.found(self.now_us, endpoint, true);
        } else if later && endpoint == self.links.active {
            self.links.rotate(self.now_us, true);
        }
        // The first repeat may be immediate; from the second on, repeats are spaced.
        if later || failures > 1 {
            let pause_ms = self.pause_ms(failures);
            let until_us = self.after_ms(pause_ms);
            self.set_stage(id, Stage::Paused { until_us });
        } else {
            self.set_stage(id, Stage::Queued);
        }
    }

    fn expire_calls(&mut self) {
        while let Some((_, id)) = self.timers.first().copied().filter(|(at_us, _)| *at_us <= self.now_us) {
            let call = self.calls.get(&id).expect("a timer belongs to a call");
            let (stage, over) = (call.stage, call.deadline_us <= self.now_us);
            let silent_at = match stage {
                Stage::Sent { number, endpoint, .. } => self.is_silent(number).then_some(endpoint),
                Stage::Queued | Stage::Paused { .. } => None,
            };
            match stage {
                _ if over => {
                    self.give_up(id, "no answer came before the deadline");
                    // The deadline says little about the node. But where deadlines are short, nothing else shows that a node does not
                    // answer.
                    if silent_at == Some(self.links.active) {
                        self.links.rotate(self.now_us, false);
                    }
                }
                Stage::Sent { endpoint, .. } => self.attempt_expired(id, endpoint, silent_at.is_some()),
                Stage::Paused { .. } => self.set_stage(id, Stage::Queued),
                Stage::Queued => unreachable!("a queued call has no timer but its deadline"),
            }
        }
    }

    /// Whether the connection has received nothing at all since the attempt was sent.
    fn is_silent(&self, number: u64) -> bool {
        let attempt = self.attempts.get(&number).expect("a sent call has an attempt");
        attempt.received_before == self.links.get(attempt.endpoint).received
    }

    /// Handles the timeout of an attempt: the call goes elsewhere. A connection that received nothing meanwhile is closed.
    fn attempt_expired(&mut self, id: CallId, endpoint: usize, silent: bool) {
        self.set_stage(id, Stage::Queued);
        self.take_leave_at(id, endpoint);
        if silent {
            self.outputs.push(Output::Disconnect { endpoint });
            self.close(endpoint, Failure::Passing);
        } else if endpoint == self.links.active {
            self.links.rotate(self.now_us, false);
        }
    }

    /// Sends what can be sent, and opens a connection if one is needed.
    fn pump(&mut self) {
        let [early, others @ ..] = &self.queues;
        let queued = others.iter().any(|queue| !queue.is_empty()) || self.leaving.is_due(self.now_us);
        if !queued && early.is_empty() {
            return;
        }
        let endpoint = self.links.active;
        let due = self.links.get(endpoint).retry_us <= self.now_us;
        match self.links.get(endpoint).link {
            Link::Idle if due => self.connect(endpoint),
            Link::Refused if due && queued => self.greet(endpoint),
            Link::Idle | Link::Connecting { .. } | Link::Greeting { .. } | Link::Refused | Link::Ready { .. } => {}
        }
        self.race(queued);
        let ready = self.links.get(endpoint).is_ready();
        if self.links.get(endpoint).is_open() {
            while self.in_flight < self.config.in_flight_max
                && self.links.get(endpoint).pulse.has_room()
                && let Some(id) = self.next_call(ready)
            {
                match self.calls[&id].lends() {
                    Some((count, ids)) => self.lend(id, count, &ids),
                    None => self.send(id, endpoint),
                }
            }
        }
    }

    /// The next call for a node that is connected and, if `welcomed`, has welcomed the session.
    fn next_call(&self, welcomed: bool) -> Option<CallId> {
        let [early, ..] = &self.queues;
        let first = |queue: &BTreeMap<u64, CallId>| queue.first_key_value().map(|(order, id)| (*order, *id));
        let others = || self.queues[1..=self.id_generator.serves() as usize].iter().filter_map(first).min();
        first(early).or_else(|| welcomed.then(others).flatten()).map(|(_, id)| id)
    }

    /// Answers a call for ids. Their tags are drawn one by one, so that tasks enqueued under them spread over the partitions.
    fn lend(&mut self, id: CallId, count: u32, ids: &LentIds) {
        let (id_generator, random, now_us) = (&mut self.id_generator, &mut self.random, self.now_us);
        ids.settle(|| (0..count).map(|_| id_generator.generate(now_us, any_tag(random))).collect());
        self.finish(id, Ok(Response::Done));
    }

    fn send(&mut self, id: CallId, endpoint: usize) {
        let number = self.next_number();
        let received_before = self.links.get(endpoint).received;
        let call = self.calls.get_mut(&id).expect("queued calls exist");
        call.resolve(self.now_us, &mut self.id_generator, &mut self.random);
        let positions = call.outstanding();
        let (request, wait_ms) = call.attempt(self.now_us, &positions);
        call.first_sent_us.get_or_insert(self.now_us);
        call.granted.clear();
        call.numbers.push(number);
        call.sent = call.sent.saturating_add(1);
        self.attempts.insert(number, Attempt { call: id, endpoint, positions, received_before, asks: Asks::Call });
        // A large call needs time for its transfer, and for the transfers before it. Otherwise it would be cut off and sent again and
        // again.
        let (bytes, pulse) = (self.calls[&id].bytes, &mut self.links.get_mut(endpoint).pulse);
        pulse.carries(number, bytes);
        let until_us = self.after_ms(self.patience_ms(endpoint).saturating_add(wait_ms));
        self.set_stage(id, Stage::Sent { number, endpoint, until_us });
        self.outputs.push(Output::Send { endpoint, number, request });
    }

    /// Moves a call to another stage and updates queues, timers and counts. No other function does this.
    fn set_stage(&mut self, id: CallId, stage: Stage) {
        let call = self.calls.get_mut(&id).expect("it is under way");
        let (before, order, needs) = (call.stage, call.order, call.needs);
        assert!(self.timers.remove(&(call.wake_us, id)), "every call has a timer");
        call.stage = stage;
        call.wake_us = call.deadline_us.min(stage.until_us());
        self.timers.insert((call.wake_us, id));
        self.leave_stage(before, order, needs);
        match stage {
            Stage::Queued => assert!(self.queues[needs as usize].insert(order, id).is_none()),
            Stage::Sent { endpoint, .. } => {
                self.in_flight += 1;
                self.links.get_mut(endpoint).pulse.sent(self.now_us);
            }
            Stage::Paused { .. } => {}
        }
    }

    fn leave_stage(&mut self, stage: Stage, order: u64, needs: Needs) {
        match stage {
            Stage::Queued => assert!(self.queues[needs as usize].remove(&order).is_some()),
            Stage::Sent { endpoint, .. } => {
                self.in_flight -= 1;
                self.links.get_mut(endpoint).pulse.left();
            }
            Stage::Paused { .. } => {}
        }
    }

    fn give_up(&mut self, id: CallId, why: &str) {
        if let Some(call) = self.calls.get_mut(&id) {
            let lacks = call.needs > self.id_generator.serves();
            let mut refusals = self.links.refusals(self.now_us).into_iter();
            let refusal = refusals.find(|refusal| lacks || refusal.error.code != ErrorCode::ClockAhead);
            let refusal = refusal.filter(|_| call.sent == 0).map(|refusal| refusal.at(self.now_us));
            let mut result = call.undecided(why, refusal);
            let unreached = call.sent == 0 && !self.links.any_open();
            if let Err(error) = &mut result
                && unreached
            {
                error.cause.get_or_insert(Cause::Unreached);
            }
            self.finish(id, result);
        }
    }

    /// Ends a call. No other function answers a call that was accepted.
    fn finish(&mut self, id: CallId, result: Result<Response, Error>) {
        self.take_leave(id, &result);
        let call = self.calls.remove(&id).expect("it is under way");
        assert!(self.timers.remove(&(call.wake_us, id)), "every call has a timer");
        self.leave_stage(call.stage, call.order, call.needs);
        self.seekers -= usize::from(call.seeks());
        for number in call.numbers {
            assert!(self.attempts.remove(&number).is_some(), "open attempts are listed");
        }
        self.calls_bytes -= call.bytes;
        let lease_from_us = call.lease_from_us.or(call.first_sent_us);
        self.outputs.push(Output::Done { call: id, result, lease_from_us });
    }

    fn next_number(&mut self) -> u64 {
        self.number_last += 1;
        self.number_last
    }

    /// Time within which an endpoint should answer a request sent now that does not wait on purpose. Includes the transfer of the
    /// requests before it.
    fn patience_ms(&self, endpoint: usize) -> u64 {
        self.config.attempt_timeout_ms.saturating_add(self.links.get(endpoint).pulse.transfer_ms())
    }

    fn after_ms(&self, pause_ms: u64) -> u64 {
        self.now_us.saturating_add(pause_ms.saturating_mul(1_000))
    }

    /// Backoff that doubles with every failure up to the longest pause. Half of it is jitter, so that clients do not all return at
    /// once.
    fn pause_ms(&mut self, failures: u32) -> u64 {
        assert!(failures > 0);
        let doublings = (failures - 1).min(16);
        let most = (self.config.reconnect_pause_ms_min << doublings).min(self.config.reconnect_pause_ms_max);
        let least = most.div_ceil(2);
        least + self.random.below(most - least + 1)
    }
}

/// Whether a welcome can come from a node.
fn is_sound(welcome: &Welcome) -> bool {
    welcome.minter < 1 << 40 && welcome.time_ms < TIME_MS_END && welcome.wall_ms() < TIME_MS_END
}

/// Whether a node found no work and could not look everywhere, so that another may see more. `None` if the answer is not to a claim.
fn blindness(response: &Response) -> Option<bool> {
    match response {
        Response::Claimed { tasks, unavailable, .. } => Some(tasks.is_empty() && *unavailable > 0),
        _ => None,
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn overloaded(bytes: usize) -> Error {
    Error::new(ErrorCode::Overloaded, format!("too many calls wait in this session to take one of {bytes} bytes"))
}
