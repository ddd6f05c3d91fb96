//! Who wants claims of queues whose claims are limited. What they need of others, leaders ask for only then.

use crate::protocol::Node;
use norn_wire::QueueName;
use std::collections::{BTreeMap, BTreeSet};

/// A question of a broker stands for so long for somebody who would claim.
const SOUGHT_MS: u64 = 500;

/// See the module.
#[derive(Debug, Default)]
pub struct Demand {
    /// Tasks that brokers asked for, and until when that counts.
    sought: BTreeMap<QueueName, (u64, u64)>,
    /// Probes that wait for what was asked for.
    probes: BTreeMap<QueueName, BTreeSet<u64>>,
}

impl Node {
    /// So many tasks of a queue would be claimed here.
    pub(super) fn demand(&self, queue: &QueueName) -> u64 {
        let now_us = self.now.mono_us;
        let sought = self.demand.sought.get(queue).filter(|(_, until_us)| *until_us > now_us);
        sought.map_or(0, |(count, _)| *count).max(self.heads.credits(queue, now_us))
    }

    /// Somebody wants so many tasks of a queue, or waits for any: if it limits its claims, leave for them is asked for.
    pub(super) fn seek(&mut self, queue: &QueueName, count: u64) {
        let now_us = self.now.mono_us;
        self.demand.sought.retain(|_, (_, until_us)| *until_us > now_us);
        if self.is_limited(queue) {
            if count > 0 {
                let until_us = self.after_ms(SOUGHT_MS);
                let before = self.demand.sought.get(queue).map_or(0, |(count, _)| *count);
                self.demand.sought.insert(queue.clone(), (count.max(before), until_us));
            }
            self.ask_for_permits(queue);
            self.ask_for_quotas(queue);
        }
    }

    /// Whether claims of a queue need anybody's leave.
    pub(super) fn is_limited(&self, queue: &QueueName) -> bool {
        self.roster.policies.get(queue).is_some_and(|policy| policy.rate.is_some() || policy.concurrency.is_some())
    }

    /// Whether leave is on its way: a probe that is answered before would say that there is nothing.
    pub(super) fn is_sought(&mut self, probe: u64, queues: &[QueueName]) -> bool {
        let is_awaited = |queue: &&QueueName| self.awaits_permits(queue) || self.awaits_quota(queue);
        let awaited = queues.iter().filter(|queue| self.head(queue).is_none()).filter(is_awaited).cloned();
        let awaited: Vec<QueueName> = awaited.collect();
        for queue in &awaited {
            self.demand.probes.entry(queue.clone()).or_default().insert(probe);
        }
        !awaited.is_empty()
    }

    /// What was asked for has come, or has not.
    pub(super) fn end_waiting(&mut self, queue: &QueueName) {
        for probe in self.demand.probes.remove(queue).unwrap_or_default() {
            self.conclude_pulls(probe);
        }
    }
}
