//! Deadlines of the node, one per key.

use norn_wire::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// Purpose of a deadline. At equal times, keys fire in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Send heartbeats, check for silent nodes.
    Heartbeat,
    /// A round of anti-entropy.
    AntiEntropy,
    /// Send queue heads to interested nodes.
    Summaries,
    /// Look again for parked claims; transfer misplaced leaderships.
    Sweep,
    /// End a stop that takes too long.
    Stop,
    /// Campaign for a partition without a leader.
    Election(PartitionId),
    /// Resend what followers have not acknowledged.
    Resend(PartitionId),
    /// The first claim of a partition may expire.
    Expiry(PartitionId),
    /// The first delayed task of a partition becomes due.
    Delayed(PartitionId),
    /// Drop the claims of ended tasks.
    Drop(PartitionId),
    /// A leader that was silent had some time to grant the work that has come.
    Quiet(PartitionId),
    /// No answer to a `Wake`.
    Wake(PartitionId),
    /// A question to other nodes is unanswered.
    PendingRequest(u64),
    /// Grants should have been committed by now.
    Grant(u64),
    /// Deadline of a client's claim call.
    Claim(u64),
    /// A parked claim's wait ends.
    Park(u64),
    /// Repeat that a claim or a question is given back.
    Return(u64),
    /// Repeat which grants go back.
    Returns,
    /// Ask leaders for the recovery targets of tables that lost something.
    Rejoin,
    /// Bury and forget finished tasks of a partition.
    Retire(PartitionId),
    /// Ask for the endings that tasks of a partition wait for.
    Follow(PartitionId),
    /// Check whether worker sessions have ended under which tasks of a partition are held.
    Sessions(PartitionId),
    /// Hand over child tasks of completions in a partition.
    Children(PartitionId),
    /// Next step of a partition's reconfiguration.
    Change(PartitionId),
    /// Next piece of anti-entropy repair.
    Repair,
    /// Hand over hints to members that were away.
    Hints,
    /// Run the cluster controller, at the metadata leader.
    Reconciler,
    /// Fire due schedules, at the metadata leader.
    Schedules,
    /// Ask again for rate tokens, or give them back.
    RateTokens,
    /// Persist the levels of token buckets that no node asks rate tokens of.
    Levels,
    /// Check which partitions want more claims of queues with limited concurrency.
    SlotQuotas,
    /// Ask again about transactions of a partition that reach others.
    Transactions(PartitionId),
    /// Log the uptime, while leases run.
    LeaseAges,
}

/// Deadlines on the monotonic clock in microseconds.
#[derive(Debug, Default)]
pub struct Timers {
    by_time: BTreeSet<(u64, Key)>,
    by_key: BTreeMap<Key, u64>,
}

impl Timers {
    /// Sets the deadline of `key`, in place of any earlier one.
    pub fn set(&mut self, key: Key, at_us: u64) {
        if let Some(before) = self.by_key.insert(key, at_us) {
            assert!(self.by_time.remove(&(before, key)), "a deadline is not in the order of time");
        }
        self.by_time.insert((at_us, key));
        assert_eq!(self.by_time.len(), self.by_key.len());
    }

    /// Sets the deadline unless an earlier one is set.
    pub fn set_earliest(&mut self, key: Key, at_us: u64) {
        if self.by_key.get(&key).is_none_or(|at| *at > at_us) {
            self.set(key, at_us);
        }
    }

    /// Sets the deadline unless any is set.
    pub fn set_if_none(&mut self, key: Key, at_us: u64) {
        if !self.by_key.contains_key(&key) {
            self.set(key, at_us);
        }
    }

    /// Drops the deadline.
    pub fn cancel(&mut self, key: Key) {
        if let Some(at) = self.by_key.remove(&key) {
            assert!(self.by_time.remove(&(at, key)), "a deadline is not in the order of time");
        }
    }

    /// Whether a deadline is set.
    pub fn is_set(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Returns the first deadline.
    pub fn next(&self) -> Option<u64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline, if it has passed.
    pub fn pop(&mut self, now_us: u64) -> Option<Key> {
        let (at, key) = *self.by_time.first()?;
        if at > now_us {
            return None;
        }
        self.by_time.pop_first();
        assert_eq!(self.by_key.remove(&key), Some(at), "a deadline is not listed under its key");
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_deadline_per_key_in_the_order_of_time() {
        let mut timers = Timers::default();
        timers.set(Key::Sweep, 30);
        timers.set(Key::AntiEntropy, 20);
        timers.set(Key::Sweep, 10);
        timers.set_earliest(Key::AntiEntropy, 40);
        timers.set_if_none(Key::AntiEntropy, 5);
        timers.set(Key::Stop, 15);
        timers.cancel(Key::Stop);
        assert_eq!(timers.next(), Some(10));
        assert_eq!((timers.pop(9), timers.pop(10), timers.pop(10)), (None, Some(Key::Sweep), None));
        assert_eq!((timers.pop(99), timers.pop(99)), (Some(Key::AntiEntropy), None));
    }
}
