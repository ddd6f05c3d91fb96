//! Failure detector of a node with calls under way. A slow answer proves nothing: the node may wait for others, or for work. So a node
//! that is silent while calls are under way is sent a ping, which it answers at once whatever it waits for. If the answer does not come
//! in time, the session leaves the node. The node may still be alive: calls are repeated as after any lost connection.
//!
//! The ping also shows the node that the client still waits for answers. So the only node of a session is pinged as well. It is waited for
//! far longer: leaving it helps only if its connection is alive and the node no longer reads it, because a new connection may be read.

use super::links::Failure;
use super::{Output, Session};
use norn_wire::limits::BATCH_BYTES_MAX;
use norn_wire::request::Request;
use std::collections::VecDeque;

/// Silence after which a node with calls under way is pinged.
const SILENCE_US: u64 = 150_000;
/// Greatest number of times that this silence doubles while only pings are answered: calls may wait for hours.
const DOUBLINGS_MAX: u32 = 2;
/// Least timeout of a ping.
const PATIENCE_US_MIN: u64 = 200_000;
/// Greatest number of times that the timeout doubles after timeouts in a row.
const MISSES_MAX: u32 = 4;

/// Timeout without any answer after which the session leaves its only node. A dead connection ends far earlier by itself.
const ONLY_PATIENCE_MS: u64 = 30_000;

/// No more calls are sent while this many bytes may be in transit: later requests wait, here or there.
const WAY_BYTES_MAX: u64 = 4 * BATCH_BYTES_MAX as u64;
/// Smallest call that counts towards the bytes in transit.
const WAY_BYTES_MIN: u64 = 4 << 10;
/// Throughput of the slowest network that is allowed for: about a megabyte a second.
const TRANSFER_BYTES_PER_MS: u64 = 1 << 10;

/// A ping under way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u64,
    sent_us: u64,
    until_us: u64,
}

/// Signs of life of a node while calls are under way there.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Calls under way on the connection.
    pub calls: usize,
    /// When the node was last heard, or the first of the calls was sent.
    since_us: u64,
    /// Consecutive answered pings since a call was sent.
    signs: u32,
    asked: Option<Asked>,
    /// Start of the time without answers to pings. It is kept when no ping is under way: calls may end too soon for their pings.
    unanswered_us: Option<u64>,
    /// Longest recent round trip of a ping; decays by a quarter with each answer.
    slowest_us: u64,
    /// Consecutive ping timeouts.
    misses: u32,
    /// Calls that may not have arrived yet: the numbers of their requests, and their bytes. Requests arrive in order, so an answer to
    /// one shows that those before it have arrived. This includes calls that have ended: their bytes are still in transit.
    way: VecDeque<(u64, u64)>,
    /// Sum of these bytes.
    way_bytes: u64,
}

impl Pulse {
    /// Records the end of the connection: nothing is in transit any more.
    pub fn gone(&mut self) {
        self.way.clear();
        self.way_bytes = 0;
        self.asked = None;
        self.unanswered_us = None;
    }

    /// Records a call in transit, behind all others.
    pub fn carries(&mut self, number: u64, bytes: usize) {
        let bytes = bytes as u64;
        if bytes >= WAY_BYTES_MIN {
            self.way.push_back((number, bytes));
            self.way_bytes += bytes;
        }
    }

    /// Whether another call may be sent.
    pub fn has_room(&self) -> bool {
        self.way_bytes < WAY_BYTES_MAX
    }

    /// Upper estimate of the time until all sent calls have arrived.
    pub fn transfer_ms(&self) -> u64 {
        self.way_bytes / TRANSFER_BYTES_PER_MS
    }

    /// Records the welcome: its round trip is the first measurement.
    pub fn welcomed(&mut self, took_us: u64) {
        self.slowest_us = took_us;
    }

    /// Records that a call was sent.
    pub fn sent(&mut self, now_us: u64) {
        // A node that has been silent for long is pinged next, not in the past.
        let earliest_us = if self.calls == 0 { now_us } else { (now_us + 1).saturating_sub(SILENCE_US) };
        self.since_us = self.since_us.max(earliest_us);
        self.calls += 1;
        self.signs = 0;
    }

    /// Records that a call is not under way any more.
    pub fn left(&mut self) {
        self.calls -= 1;
        if self.calls == 0 && self.has_room() {
            self.asked = None;
        }
    }

    /// Records received data: an answer with this number, or a part of an answer.
    pub fn heard(&mut self, now_us: u64, number: Option<u64>) {
        self.since_us = now_us;
        self.unanswered_us = None;
        while let Some((_, bytes)) = self.way.pop_front_if(|(sent, _)| number.is_some_and(|number| *sent <= number)) {
            self.way_bytes -= bytes;
        }
        let asked = self.asked.take();
        if let Some(asked) = asked.filter(|asked| Some(asked.number) == number) {
            self.signs += 1;
            self.misses = 0;
            self.slowest_us = (now_us - asked.sent_us).max(self.slowest_us / 4 * 3);
        }
    }

    /// Time at which to ping or to leave the node.
    pub fn due_us(&self) -> Option<u64> {
        let ask_us = || self.since_us + (SILENCE_US << self.signs.min(DOUBLINGS_MAX));
        let leave_us = |asked: Asked| asked.until_us.min(self.hopeless_us(asked));
        let waits = self.calls > 0 || !self.has_room();
        waits.then(|| self.asked.map_or_else(ask_us, leave_us))
    }

    /// Extends the timeout of a ping that was not answered in time.
    fn wait_on(&mut self, now_us: u64) {
        self.misses += 1;
        let until_us = now_us + self.patience_us();
        self.asked = self.asked.map(|asked| Asked { until_us, ..asked });
    }

    /// Time at which even the only node is left. The ping is queued behind the bytes in transit.
    fn hopeless_us(&self, asked: Asked) -> u64 {
        let since_us = self.unanswered_us.unwrap_or(asked.sent_us);
        let until_us = since_us + (ONLY_PATIENCE_MS + self.transfer_ms()) * 1_000;
        until_us.max(asked.sent_us + PATIENCE_US_MIN)
    }

    fn patience_us(&self) -> u64 {
        PATIENCE_US_MIN.max(2 * self.slowest_us) << self.misses.min(MISSES_MAX)
    }
}

impl Session {
    /// Pings silent nodes, and leaves those that did not answer in time.
    pub(super) fn feel_pulses(&mut self) {
        let is_only = self.links.len() == 1;
        for endpoint in 0..self.links.len() {
            let pulse = &mut self.links.get_mut(endpoint).pulse;
            if pulse.due_us().is_none_or(|due_us| due_us > self.now_us) {
                continue;
            }
            // A wake-up this late means that this process was suspended: answers may have arrived that it has not read yet.
            let left_us =
                |asked: Asked| if is_only { asked.until_us.min(pulse.hopeless_us(asked)) } else { asked.until_us };
            let asked = pulse.asked.filter(|asked| self.now_us < left_us(*asked) + SILENCE_US);
            if is_only && asked.is_some_and(|asked| self.now_us < pulse.hopeless_us(asked)) {
                // Without another node, it is better to wait for this one. The connection loses nothing.
                pulse.wait_on(self.now_us);
            } else if asked.is_some() {
                pulse.misses += 1;
                self.outputs.push(Output::Disconnect { endpoint });
                self.close(endpoint, Failure::Passing);
            } else {
                if pulse.asked.is_some() {
                    pulse.unanswered_us = None;
                }
                self.ask_for_sign(endpoint);
            }
        }
    }

    fn ask_for_sign(&mut self, endpoint: usize) {
        let now_us = self.now_us;
        // A node limits the requests of a connection: at the limit it would not read this ping.
        if self.attempts.len() >= self.config.in_flight_max {
            let pulse = &mut self.links.get_mut(endpoint).pulse;
            (pulse.since_us, pulse.asked) = (now_us, None);
            return;
        }
        let number = self.next_number();
        let pulse = &mut self.links.get_mut(endpoint).pulse;
        // The ping is queued behind the bytes in transit.
        let until_us = now_us + pulse.patience_us() + pulse.transfer_ms() * 1_000;
        pulse.asked = Some(Asked { number, sent_us: now_us, until_us });
        pulse.unanswered_us.get_or_insert(now_us);
        self.outputs.push(Output::Send { endpoint, number, request: Request::Ping });
    }
}
