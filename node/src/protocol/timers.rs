//! Deadlines of the node, one per key.

use norn_wire::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

/// What a deadline is for. At equal times, keys fire in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Send heartbeats, look who is silent.
    Heartbeat,
    /// A round of anti-entropy.
    Exchange,
    /// Tell interested nodes about heads of queues.
    Summaries,
    /// Look again for parked claims; hand misplaced leaderships over.
    Sweep,
    /// Stop serving at last.
    Stop,
    /// Campaign for a partition without a leader.
    Election(PartitionId),
    /// Repeat what followers have not acknowledged.
    Resend(PartitionId),
    /// The first claim of a partition may run out.
    Expiry(PartitionId),
    /// The first delayed task of a partition becomes due.
    Delayed(PartitionId),
    /// Forget the claims of tasks that have ended.
    Drop(PartitionId),
    /// No answer to a `Wake`.
    Wake(PartitionId),
    /// Something asked of other nodes.
    Ask(u64),
    /// Grants that should have been committed by now.
    Grant(u64),
    /// A claim call of a client.
    Claim(u64),
    /// A parked claim's wait ends.
    Park(u64),
    /// Say again that a claim or a question is given back.
    Return(u64),
    /// Say again which grants go back.
    Returns,
    /// Ask leaders how far a table that lost something must come.
    Rejoin,
    /// Bury and forget finished tasks of a partition.
    Retire(PartitionId),
    /// Ask for the ends that tasks of a partition wait for.
    Follow(PartitionId),
    /// Look whether sessions have ended under which tasks of a partition are held.
    Sessions(PartitionId),
    /// Hand over tasks that completions in a partition brought.
    Children(PartitionId),
    /// A step of a change of a partition's cohort.
    Change(PartitionId),
    /// The next piece of repair.
    Repair,
    /// Hand over what is kept for members that were away.
    Hints,
    /// See to the cluster, at the leader of its root.
    Steward,
    /// Fire what is due, at the leader of the root.
    Schedules,
    /// Ask again for permits, or give them back.
    Permits,
    /// Write down what is left of permits where nobody asks for them.
    Levels,
    /// Look who wants more claims of queues that limit how many are held.
    Quotas,
    /// Write down how long the node has run, while leases run.
    Ages,
}

/// Deadlines on the monotonic clock in microseconds.
#[derive(Debug, Default)]
pub struct Timers {
    by_time: BTreeSet<(u64, Key)>,
    by_key: BTreeMap<Key, u64>,
}

impl Timers {
    /// Sets the one deadline of `key`, in place of any earlier one.
    pub fn set(&mut self, key: Key, at_us: u64) {
        if let Some(before) = self.by_key.insert(key, at_us) {
            self.by_time.remove(&(before, key));
        }
        self.by_time.insert((at_us, key));
        assert_eq!(self.by_time.len(), self.by_key.len());
    }

    /// Sets it unless an earlier one is set.
    pub fn set_earliest(&mut self, key: Key, at_us: u64) {
        if self.by_key.get(&key).is_none_or(|at| *at > at_us) {
            self.set(key, at_us);
        }
    }

    /// Sets it unless any is set.
    pub fn set_if_none(&mut self, key: Key, at_us: u64) {
        if !self.by_key.contains_key(&key) {
            self.set(key, at_us);
        }
    }

    /// Drops the deadline.
    pub fn cancel(&mut self, key: Key) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// Whether one is set.
    pub fn is_set(&self, key: Key) -> bool {
        self.by_key.contains_key(&key)
    }

    /// The first deadline.
    pub fn next(&self) -> Option<u64> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes the first deadline that has come.
    pub fn pop(&mut self, now_us: u64) -> Option<Key> {
        let (at, key) = *self.by_time.first()?;
        if at > now_us {
            return None;
        }
        self.by_time.pop_first();
        self.by_key.remove(&key);
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
        timers.set(Key::Exchange, 20);
        timers.set(Key::Sweep, 10);
        timers.set_earliest(Key::Exchange, 40);
        timers.set_if_none(Key::Exchange, 5);
        timers.set(Key::Stop, 15);
        timers.cancel(Key::Stop);
        assert_eq!(timers.next(), Some(10));
        assert_eq!((timers.pop(9), timers.pop(10), timers.pop(10)), (None, Some(Key::Sweep), None));
        assert_eq!((timers.pop(99), timers.pop(99)), (Some(Key::Exchange), None));
    }
}
