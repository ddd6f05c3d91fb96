//! Whether a node that is asked is still there. An answer that takes long says nothing: the node may wait for others, or for
//! work. So one that is silent while calls are under way is asked for a sign of life, which it gives at once whatever it waits
//! for, and it is left if none comes. That is no proof that it is gone: calls are repeated as after any lost connection.
//!
//! The question is a sign of life, too: by it the node knows that somebody still waits for what it has to say. So the only node of a
//! session is asked as well. A silent one is waited for far longer: only where its connection is alive and nobody reads it, another one
//! may have a reader.

use super::links::Failure;
use super::{Output, Session};
use norn_wire::limits::BATCH_BYTES_MAX;
use norn_wire::request::Request;
use std::collections::VecDeque;

/// A node is asked when calls are under way and it was silent for so long.
const SILENCE_US: u64 = 150_000;
/// The silence doubles so often while nothing but signs of life is to be heard: calls may wait for hours.
const DOUBLINGS_MAX: u32 = 2;
/// A sign of life may take so long at least.
const PATIENCE_US_MIN: u64 = 200_000;
/// Of a node that was left too early so often twice as much, again and again.
const MISSES_MAX: u32 = 4;

/// The only node of a session is left after so long without a sign of life. A connection that is dead ends far earlier by itself.
const ONLY_PATIENCE_MS: u64 = 30_000;

/// No more calls are sent while so many bytes may be on their way: what is behind them waits, here or there.
const WAY_BYTES_MAX: u64 = 4 * BATCH_BYTES_MAX as u64;
/// Calls of fewer bytes are not counted.
const WAY_BYTES_MIN: u64 = 4 << 10;
/// The slowest network that is counted with: about a megabyte a second.
const TRANSFER_BYTES_PER_MS: u64 = 1 << 10;

/// A ping under way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u64,
    sent_us: u64,
    until_us: u64,
}

/// What is heard of a node while calls are under way there.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Calls under way on the connection.
    pub calls: usize,
    /// When it was last heard, or the first of the calls was sent.
    since_us: u64,
    /// Signs of life in a row since a call was sent.
    signs: u32,
    asked: Option<Asked>,
    /// Since when pings go unanswered, also with none under way: calls may end too soon for their pings.
    unanswered_us: Option<u64>,
    /// How long a sign of life took lately, at the worst.
    slowest_us: u64,
    /// How often none came in a row.
    misses: u32,
    /// Calls that may not have arrived yet, by the numbers of their requests, with their bytes. Requests arrive in their order, so that
    /// an answer to one says that those before it have. Bytes of a call that has ended are among these: nobody takes them back.
    way: VecDeque<(u64, u64)>,
    /// The bytes of these.
    way_bytes: u64,
}

impl Pulse {
    /// The connection is no more, and nothing is on its way on it.
    pub fn gone(&mut self) {
        self.way.clear();
        self.way_bytes = 0;
        self.asked = None;
        self.unanswered_us = None;
    }

    /// A call of so many bytes is on its way, behind all others.
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

    /// How long it may take until all that was sent has arrived.
    pub fn transfer_ms(&self) -> u64 {
        self.way_bytes / TRANSFER_BYTES_PER_MS
    }

    /// The connection is welcome: what that took is the first measure there is.
    pub fn welcomed(&mut self, took_us: u64) {
        self.slowest_us = took_us;
    }

    /// A call was sent.
    pub fn sent(&mut self, now_us: u64) {
        // A node that is silent for long already is asked next, not in the past.
        let earliest_us = if self.calls == 0 { now_us } else { (now_us + 1).saturating_sub(SILENCE_US) };
        self.since_us = self.since_us.max(earliest_us);
        self.calls += 1;
        self.signs = 0;
    }

    /// A call is not under way any more.
    pub fn left(&mut self) {
        self.calls -= 1;
        if self.calls == 0 && self.has_room() {
            self.asked = None;
        }
    }

    /// Something has come: an answer with this number, or a part of one.
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

    /// When the node is to be asked, or to be left.
    pub fn due_us(&self) -> Option<u64> {
        let ask_us = || self.since_us + (SILENCE_US << self.signs.min(DOUBLINGS_MAX));
        let leave_us = |asked: Asked| asked.until_us.min(self.hopeless_us(asked));
        let waits = self.calls > 0 || !self.has_room();
        waits.then(|| self.asked.map_or_else(ask_us, leave_us))
    }

    /// No sign of life has come in time, and it is waited for.
    fn wait_on(&mut self, now_us: u64) {
        self.misses += 1;
        let until_us = now_us + self.patience_us();
        self.asked = self.asked.map(|asked| Asked { until_us, ..asked });
    }

    /// When also the only node has been silent for too long. What it is asked is behind what is on its way.
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
    /// Asks nodes that are silent for a sign of life, and leaves those that gave none.
    pub(super) fn feel_pulses(&mut self) {
        let is_only = self.links.len() == 1;
        for endpoint in 0..self.links.len() {
            let pulse = &mut self.links.get_mut(endpoint).pulse;
            if pulse.due_us().is_none_or(|due_us| due_us > self.now_us) {
                continue;
            }
            // Whoever is woken so late was away itself, and what has come meanwhile may not have been looked at.
            let left_us =
                |asked: Asked| if is_only { asked.until_us.min(pulse.hopeless_us(asked)) } else { asked.until_us };
            let asked = pulse.asked.filter(|asked| self.now_us < left_us(*asked) + SILENCE_US);
            if is_only && asked.is_some_and(|asked| self.now_us < pulse.hopeless_us(asked)) {
                // Where there is no other node, it is better to wait for this one. Its connection loses nothing.
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
        // A node takes no more than so many requests of a connection at once: it would not read this one.
        if self.attempts.len() >= self.config.in_flight_max {
            let pulse = &mut self.links.get_mut(endpoint).pulse;
            (pulse.since_us, pulse.asked) = (now_us, None);
            return;
        }
        let number = self.next_number();
        let pulse = &mut self.links.get_mut(endpoint).pulse;
        // The ping is behind what is on its way.
        let until_us = now_us + pulse.patience_us() + pulse.transfer_ms() * 1_000;
        pulse.asked = Some(Asked { number, sent_us: now_us, until_us });
        pulse.unanswered_us.get_or_insert(now_us);
        self.outputs.push(Output::Send { endpoint, number, request: Request::Ping });
    }
}
