//! Effects of queue policies at replicas and leaders.

use crate::Node;
use norn_model::config::mutant;
use norn_wire::membership::{KeyConcurrency, Mode, Order, QueuePolicy};
use norn_wire::{PartitionId, QueueName, TaskId};
use std::collections::BTreeSet;

impl Node {
    /// Applies a queue's policy to the index of a partition: for every replica the limit of concurrent tasks per key, as followers are
    /// asked what could be claimed; for a leader whether keys take turns.
    pub(crate) fn follow_policy(&mut self, partition: PartitionId, queue: &QueueName) {
        let policy = self.roster.policies.get(queue);
        let (limit, order) = policy.map(|policy| (policy.key_concurrency, policy.order)).unwrap_or_default();
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let leads = replica.consensus.established();
        let limit = match limit {
            KeyConcurrency::Most(most) if leads && mutant!(self.config, KeysUncounted) => {
                KeyConcurrency::Most(most.saturating_mul(2))
            }
            limit => limit,
        };
        replica.store.limit_keys(queue, limit);
        let fair = leads && order == Order::Fair;
        if fair && replica.store.index().fair_queues(queue).is_none() {
            replica.order_fairly(queue);
        } else if !fair {
            replica.store.end_fair_queues(Some(queue));
        }
    }

    /// Applies a queue's changed policy to all partitions.
    pub(crate) fn follow_policy_everywhere(&mut self, queue: &QueueName) {
        for partition in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.follow_policy(partition, queue);
        }
    }

    /// Time in which a task of a queue gains a level of priority, if it does.
    pub(crate) fn ageing_of(&self, queue: &QueueName) -> Option<u64> {
        let policy = self.roster.policies.get(queue)?;
        policy.ageing_ms.filter(|_| policy.order == Order::Priority && !mutant!(self.config, AgeIgnored))
    }

    /// Whether the completion of a task's next claim needs a seal: as for its first claim, or else as its queue says.
    pub(crate) fn needs_seal(&self, partition: PartitionId, id: &TaskId) -> bool {
        let of_queue = || self.policy_of_task(partition, id).is_some_and(|policy| policy.mode == Mode::Holder);
        self.partitions[&partition].consensus.claim_entry(id).map_or_else(of_queue, |entry| entry.token.needs_seal())
    }

    /// Whether the end of an expired claim is recorded, as its task waits or others may be claimed in its place. For a task of an unknown
    /// queue: `true` if some queue limits its keys, otherwise `None` if some queue has a back-off or a limit of concurrent claims.
    pub(crate) fn waits_when_lapsed(&self, partition: PartitionId, id: &TaskId) -> Option<bool> {
        if mutant!(self.config, LapsedAtOnce) {
            return Some(false);
        }
        let waits = |policy: &QueuePolicy| policy.backoff.is_some() || policy.concurrency.is_some();
        let shares = |policy: &QueuePolicy| policy.key_concurrency != KeyConcurrency::default();
        match self.policy_of_task(partition, id) {
            Some(policy) => Some(waits(&policy) || shares(&policy) && self.partitions[&partition].key_of(id).is_some()),
            // It may be one of several that are held with its key: the next leader must not count it as held.
            None if self.roster.policies.values().any(shares) => Some(true),
            None => (!self.roster.policies.values().any(waits)).then_some(false),
        }
    }

    /// How long a task waits after an attempt by its queue's back-off, if it has one. Drawn once, for the operation that records it.
    pub(crate) fn draw_backoff(&mut self, partition: PartitionId, id: &TaskId, attempt: u32) -> Option<u64> {
        let Some(policy) = self.policy_of_task(partition, id) else {
            // The queue is unknown: the longest back-off of any queue.
            let backoffs = self.roster.policies.values().filter_map(|policy| policy.backoff);
            return backoffs.map(|backoff| backoff.range_ms(attempt).1).max();
        };
        let (least_ms, most_ms) = policy.backoff?.range_ms(attempt);
        Some(self.random.between(least_ms, most_ms))
    }

    /// In a queue that is claimed at random, any claimable task in place of the first. Its partition is drawn weighted by its number of
    /// tasks, without those in `out`.
    pub(crate) fn shuffled(
        &mut self,
        partition: PartitionId,
        id: TaskId,
        out: &BTreeSet<PartitionId>,
    ) -> (PartitionId, TaskId) {
        let spec = self.partitions[&partition].store.task(&id).and_then(|task| task.spec.as_ref());
        let random = |queue: &&QueueName| self.policy_of(queue).order == Order::Random;
        let Some(queue) = spec.map(|spec| &spec.queue).filter(random).cloned() else { return (partition, id) };
        let led = self.claims.heads.partitions(&queue).filter(|partition| !out.contains(partition));
        let counts: Vec<(PartitionId, u64)> =
            led.map(|partition| (partition, self.partitions[&partition].published[&queue].1)).collect();
        let mut point = self.random.below(counts.iter().map(|(_, count)| count).sum());
        for (partition, count) in counts {
            if point < count {
                let at = self.random.bits();
                let replica = self.partitions.get_mut(&partition).expect("heads are of own partitions");
                let keys = replica.knows_keys(&self.config);
                return (partition, replica.store.draw(&queue, at, keys).expect("a published queue has tasks"));
            }
            point -= count;
        }
        (partition, id)
    }

    /// Whether all these queues are claimed at random.
    pub(crate) fn are_shuffled(&self, queues: &[QueueName]) -> bool {
        queues.iter().all(|queue| self.policy_of(queue).order == Order::Random)
    }
}
