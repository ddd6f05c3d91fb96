//! Connecting to the first node: parallel attempts, and when to give up.

use super::links::{Failure, Link};
use super::{CallId, Output, Session};
use norn_wire::error::Error;
use std::collections::BTreeMap;

impl Session {
    pub(super) fn connect(&mut self, endpoint: usize) {
        let until_us = self.after_ms(self.config.attempt_timeout_ms);
        let head_start_until_us = self.after_ms(self.config.head_start_ms);
        self.links.attempted(endpoint, Link::Connecting { until_us }, head_start_until_us);
        self.outputs.push(Output::Connect { endpoint });
    }

    /// Handles a failed attempt to connect, or the end of a connection.
    pub(super) fn disconnected(&mut self, endpoint: usize) {
        match self.links.get(endpoint).link {
            Link::Idle => {}
            Link::Connecting { .. } => self.close(endpoint, Failure::Silent),
            Link::Greeting { .. } | Link::Refused | Link::Ready { .. } => self.close(endpoint, Failure::Passing),
        }
    }

    /// Handles the same, by a node that was heard.
    pub(super) fn refused(&mut self, endpoint: usize, error: Error) {
        self.disconnected(endpoint);
        let failure = if error.passes() { Failure::Passing } else { Failure::Lasting(error) };
        self.links.get_mut(endpoint).failure = Some(failure);
    }

    /// Ends the attempts that timed out.
    pub(super) fn expire_links(&mut self) {
        for endpoint in 0..self.links.len() {
            let (until_us, failure) = match self.links.get(endpoint).link {
                Link::Connecting { until_us } => (until_us, Failure::Silent),
                // A node is there: it has completed the handshake.
                Link::Greeting { until_us, .. } => (until_us, Failure::Passing),
                Link::Idle | Link::Refused | Link::Ready { .. } => continue,
            };
            if until_us <= self.now_us {
                self.outputs.push(Output::Disconnect { endpoint });
                self.close(endpoint, failure);
            }
        }
    }

    /// Tries another endpoint in the background if the active one is blind and a try is due.
    pub(super) fn search(&mut self) {
        if let Some((_, endpoint)) = self.links.next_search().filter(|(at_us, _)| *at_us <= self.now_us) {
            self.approach(endpoint);
        }
    }

    /// Tries another endpoint beside the active one, if the active one has not answered within its head start. `queued` says whether
    /// calls wait for more than a connection.
    pub(super) fn race(&mut self, queued: bool) {
        if let Some((_, rival)) = self.links.next_race(queued).filter(|(at_us, _)| *at_us <= self.now_us) {
            self.approach(rival);
        }
    }

    fn approach(&mut self, endpoint: usize) {
        match self.links.get(endpoint).link {
            Link::Idle => self.connect(endpoint),
            Link::Refused => self.greet(endpoint),
            Link::Connecting { .. } | Link::Greeting { .. } | Link::Ready { .. } => unreachable!("it is under way"),
        }
    }

    /// Ends the attempts that have not been answered, except where calls were sent, because a node serves. This does not count as a
    /// failure of the slower ones.
    pub(super) fn end_race(&mut self) {
        for endpoint in self.links.rivals() {
            if self.attempts.values().all(|attempt| attempt.endpoint != endpoint) {
                self.outputs.push(Output::Disconnect { endpoint });
                self.links.closed(endpoint);
            }
        }
    }

    /// Ends the calls that wait for a node, if each node refuses this client for good or cannot be reached. A session that was welcomed
    /// before goes on, as an operator may repair the cause while it runs.
    pub(super) fn end_hopeless(&mut self) {
        if self.was_welcomed {
            return;
        }
        let Some(error) = self.links.hopeless() else { return };
        let [early, others @ ..] = &self.queues;
        // A node without a cluster answers early calls.
        let early = Some(early).filter(|_| !self.links.any_open());
        let waiting: Vec<CallId> = early.into_iter().chain(others).flat_map(BTreeMap::values).copied().collect();
        if !waiting.is_empty() {
            self.links.forget_failures();
        }
        for id in waiting {
            match self.calls[&id].may_have_effect() {
                true => self.give_up(id, &error.message),
                false => self.finish(id, Err(error.clone())),
            }
        }
    }

    /// Ends the calls that were never sent, if no node has been reached for as long as the configuration allows. A call that was sent
    /// may have taken effect, and is repeated up to its deadline.
    pub(super) fn expire_lost(&mut self) {
        if self.calls.is_empty() || self.links.any_open() {
            self.lost_us = None;
            return;
        }
        self.lost_us.get_or_insert(self.now_us);
        if self.lost_until_us().is_some_and(|until_us| until_us <= self.now_us) {
            // Restart the interval for the calls that remain.
            self.lost_us = Some(self.now_us);
            let unsent = self.calls.iter().filter(|(_, call)| call.sent == 0).map(|(id, _)| *id);
            let unsent: Vec<CallId> = unsent.collect();
            unsent.into_iter().for_each(|id| self.give_up(id, "no node was reached"));
        }
        if self.calls.is_empty() {
            self.lost_us = None;
        }
    }

    pub(super) fn lost_until_us(&self) -> Option<u64> {
        let (lost_us, max_ms) = (self.lost_us?, self.config.unreached_ms_max?);
        let head_starts_ms = self.config.head_start_ms.saturating_mul(self.links.len() as u64);
        Some(lost_us.saturating_add(max_ms.saturating_add(head_starts_ms).saturating_mul(1_000)))
    }
}
