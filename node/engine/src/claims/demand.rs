//! Demand for queues with a limit. Leaders ask for rate tokens and slot quotas only while there is demand.

use crate::Node;
use norn_wire::QueueName;
use std::collections::{BTreeMap, BTreeSet};

/// How long a broker's question counts as demand.
const SOUGHT_MS: u64 = 500;

/// Unmet demand for limited queues at this node.
#[derive(Debug, Default)]
pub struct Demand {
    /// Tasks that brokers asked for, and until when that counts.
    sought: BTreeMap<QueueName, (u64, u64)>,
    /// Probes that wait for rate tokens or slot quotas.
    probes: BTreeMap<QueueName, BTreeSet<u64>>,
}

impl Node {
    /// Number of tasks of a queue that would be claimed here.
    pub(crate) fn demand(&self, queue: &QueueName) -> u64 {
        let now_us = self.now.mono_us;
        let sought = self.claims.demand.sought.get(queue).filter(|(_, until_us)| *until_us > now_us);
        sought.map_or(0, |(count, _)| *count).max(self.claims.heads.credits(queue, now_us))
    }

    /// Records demand for `count` tasks (0: a call waits for any). If the queue has a rate or a concurrency limit, asks for rate tokens and
    /// slot quotas.
    pub(crate) fn seek(&mut self, queue: &QueueName, count: u64) {
        let now_us = self.now.mono_us;
        self.claims.demand.sought.retain(|_, (_, until_us)| *until_us > now_us);
        if self.is_limited(queue) {
            if count > 0 {
                let until_us = self.after_ms(SOUGHT_MS);
                let before = self.claims.demand.sought.get(queue).map_or(0, |(count, _)| *count);
                self.claims.demand.sought.insert(queue.clone(), (count.max(before), until_us));
            }
            self.ask_for_rate_tokens(queue);
            self.ask_for_slot_quotas(queue);
        }
    }

    /// Whether claims of a queue need rate tokens or a slot quota.
    pub(crate) fn is_limited(&self, queue: &QueueName) -> bool {
        self.roster.policies.get(queue).is_some_and(|policy| policy.rate.is_some() || policy.concurrency.is_some())
    }

    /// Whether rate tokens or a slot quota are on their way: a probe that is answered before would report nothing.
    pub(crate) fn is_sought(&mut self, probe: u64, queues: &[QueueName]) -> bool {
        let is_awaited = |queue: &&QueueName| self.awaits_rate_tokens(queue) || self.awaits_slot_quota(queue);
        let awaited = queues.iter().filter(|queue| self.head(queue).is_none()).filter(is_awaited).cloned();
        let awaited: Vec<QueueName> = awaited.collect();
        for queue in &awaited {
            self.claims.demand.probes.entry(queue.clone()).or_default().insert(probe);
        }
        !awaited.is_empty()
    }

    /// A requested rate token or slot quota has come, or has not: ends the probes that wait for it.
    pub(crate) fn end_waiting(&mut self, queue: &QueueName) {
        for probe in self.claims.demand.probes.remove(queue).unwrap_or_default() {
            self.conclude_pulls(probe);
        }
    }
}
