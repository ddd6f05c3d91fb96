//! Level writes of a coordinator partition's leader without requests for rate tokens, so that accrued rate tokens outlive it.
//!
//! A second after it begins to lead, when no rate tokens of other leaders are out any more, the coordinator partition's leader makes the
//! bucket of each of its queues with a rate. It writes the level of those without a known one, as the next leader would begin with nothing,
//! and of those into which five seconds' worth has come. From then on it writes again for each eighth of a rate token, or once a minute if
//! that is sooner, until the bucket is full (`Bucket::keep_us`). So a leader lacks about a minute's worth at most of what came in before it
//! led, and that only if its process has started since that was written.
//!
//! - **A rate whose bucket fills within seconds** needs none of that.
//! - **Write limit:** at most [`WRITES_MAX`] levels in each second, those first that are due first.
//! - **A bucket without a known level** holds what has come in since this leader began to count, `LedCoordinator::blank_us`, even if the
//!   rate was set after that: it gave nothing of it, and its predecessors' rate tokens have expired. When a rate is removed, its bucket and
//!   its level are removed. What the bucket gave is then unknown, so the leader begins to count anew, for all queues at that coordinator:
//!   otherwise a rate that is set again would give its burst again.

use super::RATE_TOKEN_MS;
use super::bucket::{Bucket, KEEP_MS};
use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_wire::membership::Rate;
use norn_wire::{PartitionId, QueueName};
use std::collections::BTreeMap;

/// Time between two looks for levels to write.
const LOOK_MS: u64 = 1_000;
/// Delay before a coordinator partition's leader looks at changed settings of queues.
const SET_MS: u64 = 100;
/// Levels that are written at once.
pub(crate) const WRITES_MAX: usize = 200;

impl Node {
    /// The settings of queues may have changed: homes compare their buckets with them soon.
    pub(crate) fn rates_changed(&mut self) {
        self.claims.rate_tokens.coordinators.values_mut().for_each(|coordinator| coordinator.is_stale = true);
        self.keep_levels_at(self.after_ms(SET_MS));
    }

    pub(super) fn keep_levels_at(&mut self, at_us: u64) {
        let at_us = at_us.max(self.claims.rate_tokens.kept_us.saturating_add(LOOK_MS * 1_000));
        self.timers.set_earliest(Key::Levels, at_us);
    }

    /// Writes the levels that are due.
    pub(crate) fn keep_levels(&mut self) {
        let now_us = self.now.mono_us;
        assert!(self.claims.rate_tokens.kept_us <= now_us, "levels were last looked at in the future");
        self.claims.rate_tokens.kept_us = now_us;
        self.follow_rates();
        if mutant!(self.config, LevelsUnkept) {
            return;
        }
        let mut dues = self.levels_due();
        dues.sort_unstable();
        if !dues.is_empty() || self.keeps_levels() {
            self.keep_levels_at(self.after_ms(KEEP_MS));
        }
        let now = dues.partition_point(|(due_us, ..)| *due_us <= now_us).min(WRITES_MAX);
        let later = dues.split_off(now);
        for (_, coordinator, queue) in dues {
            if let Some(rate) = self.rate_of(&queue).filter(|_| self.may_append(coordinator)) {
                self.bucket(coordinator, &queue, rate).fill(rate, now_us);
                self.write_level(coordinator, queue, rate, None);
            }
        }
        later.first().into_iter().for_each(|(due_us, ..)| self.keep_levels_at(*due_us));
    }

    /// Whether a table that this node leads has levels.
    fn keeps_levels(&self) -> bool {
        self.claims
            .rate_tokens
            .coordinators
            .keys()
            .any(|coordinator| !self.partitions[coordinator].consensus.table.levels.is_empty())
    }

    /// Levels to write without requests, with their times.
    fn levels_due(&mut self) -> Vec<(u64, PartitionId, QueueName)> {
        let (now_us, all) = (self.now.mono_us, self.claims.rate_tokens.coordinators.len());
        let coordinators: Vec<PartitionId> = self
            .claims
            .rate_tokens
            .coordinators
            .keys()
            .copied()
            .filter(|coordinator| self.may_append(*coordinator))
            .collect();
        if coordinators.len() < all {
            self.keep_levels_at(now_us);
        }
        let mut dues = Vec::new();
        for coordinator in coordinators {
            let due = |(queue, bucket): (&QueueName, &Bucket)| {
                Some((bucket.keep_us(self.rate_of(queue)?)?, coordinator, queue.clone()))
            };
            dues.extend(self.claims.rate_tokens.coordinators[&coordinator].buckets.iter().filter_map(due));
        }
        dues
    }

    /// Milliseconds until the rates of queues allow a claim, by the coordinators that this node leads: of one queue, or of all.
    pub(crate) fn rate_tokens_due(&mut self, of: Option<&QueueName>) -> BTreeMap<PartitionId, Vec<(QueueName, u64)>> {
        let (now_us, roster) = (self.now.mono_us, self.roster.clone());
        let mut dues = BTreeMap::new();
        for (coordinator, state) in &mut self.claims.rate_tokens.coordinators {
            let begins_ms = state.from_us.saturating_sub(now_us).div_ceil(1_000);
            let buckets = state.buckets.iter_mut().filter(|(queue, _)| of.is_none_or(|of| of == *queue));
            let due = buckets.filter_map(|(queue, bucket)| {
                let rate = roster.policies.get(queue)?.rate?;
                bucket.fill(rate, now_us);
                Some((queue.clone(), bucket.wait_ms(rate).max(begins_ms)))
            });
            dues.insert(*coordinator, due.collect());
        }
        dues
    }

    /// Makes a bucket at each coordinator for each of its queues with a rate, and removes the levels of all others.
    fn follow_rates(&mut self) {
        let mut stale: BTreeMap<PartitionId, Vec<(QueueName, Rate)>> = BTreeMap::new();
        for (coordinator, state) in self.claims.rate_tokens.coordinators.iter().filter(|(_, state)| state.is_stale) {
            if self.now.mono_us >= state.from_us && self.may_append(*coordinator) {
                stale.insert(*coordinator, Vec::new());
            } else {
                self.timers.set_earliest(Key::Levels, state.from_us.max(self.now.mono_after_ms(LOOK_MS)));
            }
        }
        if stale.is_empty() {
            return;
        }
        for (queue, policy) in &self.roster.policies {
            if let Some((rate, coordinator)) = policy.rate.zip(stale.get_mut(&self.coordinator_of(queue))) {
                coordinator.push((queue.clone(), rate));
            }
        }
        for (coordinator, queues) in stale {
            self.forget_levels(coordinator);
            for (queue, rate) in queues {
                let now_us = self.now.mono_us;
                let bucket = self.bucket(coordinator, &queue, rate);
                bucket.fill(rate, now_us);
                bucket.hasten(rate, now_us);
            }
        }
    }

    /// Removes the levels of queues without a rate.
    fn forget_levels(&mut self, coordinator: PartitionId) {
        let kept = self.partitions[&coordinator].consensus.table.levels.keys();
        let over: Vec<QueueName> = kept.filter(|queue| self.rate_of(queue).is_none()).cloned().collect();
        let mut is_done = true;
        for queue in over {
            match self.may_append(coordinator) {
                true => self.append(coordinator, Op::Level { queue, level: None }, None),
                false => is_done = false,
            }
        }
        // Rate tokens that were given may be used for this long.
        let blank_us = self.now.mono_us + self.config.stretched_us(RATE_TOKEN_MS);
        let (roster, forgets) = (self.roster.clone(), !mutant!(self.config, BurstAgain));
        let state = self.claims.rate_tokens.coordinators.get_mut(&coordinator).expect("it leads");
        let before = state.buckets.len();
        state.buckets.retain(|queue, _| roster.policies.get(queue).is_some_and(|policy| policy.rate.is_some()));
        if state.buckets.len() < before && forgets {
            state.blank_us = blank_us;
        }
        state.is_stale = !is_done;
        if !is_done {
            self.keep_levels_at(self.now.mono_us);
        }
    }
}
