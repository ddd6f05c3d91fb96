//! The way to the first node: attempts beside each other, and when there is no more use in them.

use super::{CallId, Output, Session};
use std::collections::BTreeMap;

impl Session {
    /// Tries another endpoint beside the active one, if that has had its head start and has not answered.
    pub(super) fn race(&mut self) {
        if let Some((_, rival)) = self.links.next_race().filter(|(at_us, _)| *at_us <= self.now_us) {
            self.connect(rival);
        }
    }

    /// A node serves: those that have not even answered are waited for no more. They are none the worse for having been slower.
    pub(super) fn end_race(&mut self) {
        for endpoint in self.links.connecting() {
            self.outputs.push(Output::Disconnect { endpoint });
            self.links.closed(endpoint);
        }
    }

    /// Ends the calls that wait for a node while each refuses this client for good or cannot be reached. A session that was
    /// welcomed before goes on, as an operator may put right what is wrong while it runs.
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
        waiting.into_iter().for_each(|id| self.finish(id, Err(error.clone())));
    }

    /// Ends the calls that were never sent where no node has been reached for as long as the configuration says. What was sent may
    /// have taken effect, and is repeated up to its deadline.
    pub(super) fn expire_lost(&mut self) {
        if self.calls.is_empty() || self.links.any_open() {
            self.lost_us = None;
            return;
        }
        self.lost_us.get_or_insert(self.now_us);
        if self.lost_until_us().is_some_and(|until_us| until_us <= self.now_us) {
            // From now on, should others be left.
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
