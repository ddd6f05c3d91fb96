//! Failure detection for clients whose calls wait for work.
//!
//! A client that is killed says nothing, and its connection is lost only after a while. Grants to its calls go back two seconds later
//! each time (`confirm.rs`), call after call. But a client with calls in progress pings its node for as long as it hears nothing from
//! it (`client/src/session/pulse.rs`). So calls of clients that have been silent for longer, or that did not confirm an answer, come
//! last: calls of live clients are woken first, here and at other nodes, and a silent client's call is woken only if the work is still
//! there after that. A silent client may be alive, and is then to be served: a client does not ping while it has its maximum of calls
//! in progress, and old clients never do.

use super::{Broker, Phase};
use crate::Node;
use crate::context::timers::Key;
use crate::event::ClientId;
use norn_wire::QueueName;
use std::cmp::Reverse;

/// A client that pings does so at least every 600 ms. The rest allows for the way of the ping.
const SILENT_MS: u64 = 1_000;
/// Delay of silent clients' calls. Work waits that long for calls of live clients, also at other nodes, which hear of it every 200 ms.
const LAST_MS: u64 = 500;
/// The same for a queue with a rate. The next rate tokens come mostly a multiple of 50 ms later: a silent call that is let in just then
/// would be as quick as the calls that are woken for them.
const LAST_WITH_RATE_MS: u64 = 530;
/// A silent call of a queue with a rate that is woken again within this time...
const AGAIN_MS: u64 = 1_000;
/// ...is delayed by this only: over a slow network it would find each rate token gone otherwise. Rate tokens are announced to all nodes at
/// once.
const LAST_AGAIN_MS: u64 = 130;

/// Liveness of a client that has claimed.
#[derive(Debug, Default)]
pub(super) struct ClientLiveness {
    heard_us: u64,
    /// Whether the client sends pings.
    pings: bool,
    /// It has not confirmed an answer, and nothing was heard of it since.
    mute: bool,
}

impl ClientLiveness {
    fn is_silent(&self, now_us: u64) -> bool {
        self.mute || self.pings && now_us >= self.heard_us + SILENT_MS * 1_000
    }
}

impl Broker {
    /// Records a sign of life of a client that has claimed.
    pub(crate) fn hear(&mut self, client: ClientId, now_us: u64, is_ping: bool) {
        if let Some(liveness) = self.client_liveness.get_mut(&client) {
            *liveness = ClientLiveness { heard_us: now_us, pings: liveness.pings || is_ping, mute: false };
        }
    }

    /// Number of clients that have claimed.
    #[cfg(test)]
    pub(crate) fn heard_of(&self) -> usize {
        self.client_liveness.len()
    }

    /// Starts to observe a client when it claims.
    pub(super) fn listen(&mut self, client: ClientId, now_us: u64) {
        self.client_liveness.entry(client).or_default();
        self.hear(client, now_us, false);
    }

    /// Records that a client has not confirmed an answer in time.
    pub(super) fn note_mute(&mut self, client: ClientId) {
        if let Some(liveness) = self.client_liveness.get_mut(&client) {
            liveness.mute = true;
        }
    }

    /// Calls to wake for a queue, up to the number of tasks: those of live clients, and then those of silent ones, the client that was
    /// heard last first.
    pub(super) fn to_wake(&self, queue: &QueueName, count: usize, now_us: u64) -> (Vec<u64>, Vec<u64>) {
        let Some(parked) = self.parked.get(queue) else { return (Vec::new(), Vec::new()) };
        let liveness = |number: &u64| self.client_liveness.get(&self.calls[number].client);
        let is_silent = |number: &u64| liveness(number).is_some_and(|liveness| liveness.is_silent(now_us));
        let heard: Vec<u64> = parked.iter().filter(|number| !is_silent(number)).copied().take(count).collect();
        if heard.len() == count {
            return (heard, Vec::new());
        }
        let mut silent: Vec<u64> = parked.iter().filter(|number| is_silent(number)).copied().collect();
        silent.sort_by_key(|number| Reverse(liveness(number).map_or(0, |liveness| liveness.heard_us)));
        silent.truncate(count - heard.len());
        (heard, silent)
    }
}

impl Node {
    /// Wakes parked calls, as many as there are tasks.
    pub(super) fn wake_parked(&mut self, queue: &QueueName, count: u64) {
        let now_us = self.now.mono_us;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (heard, silent) = self.claims.broker.to_wake(queue, count, now_us);
        for number in heard {
            self.wake(number);
            self.advance_claim(number);
        }
        let has_rate = self.policy_of(queue).rate.is_some();
        for number in silent {
            self.wake(number);
            let call = self.claims.broker.calls.get_mut(&number);
            let Some(call) = call.filter(|call| matches!(call.phase, Phase::Idle)) else { continue };
            let before_us = call.held_back_us.replace(now_us);
            let last_ms = match before_us {
                _ if !has_rate => LAST_MS,
                Some(before_us) if now_us < before_us + AGAIN_MS * 1_000 => LAST_AGAIN_MS,
                Some(_) | None => LAST_WITH_RATE_MS,
            };
            call.phase = Phase::Pausing;
            let until_us = (now_us + last_ms * 1_000).min(call.wait_until_us.max(now_us));
            self.timers.set(Key::Claim(number), until_us);
        }
    }

    fn wake(&mut self, number: u64) {
        self.claims.broker.unpark(number);
        self.timers.cancel(Key::Park(number));
        if let Some(call) = self.claims.broker.calls.get_mut(&number) {
            call.tried.clear();
            call.fruitless_wakeups += 1;
        }
    }
}
