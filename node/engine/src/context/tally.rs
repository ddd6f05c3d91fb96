//! Counts by queue, for observers alone: nothing that the node does depends on them. Each node counts what it sees as the leader of
//! partitions, so that sums over nodes count everything once, but for what happens while a leadership moves.

use norn_model::limits::{QUEUES_TALLIED_MAX, SPREAD_MS};
use norn_wire::QueueName;
use std::collections::BTreeMap;

/// What is counted by queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// A task has come to the leader.
    Enqueued,
    /// A task is completed.
    Completed,
    /// A worker has reported an attempt as failed.
    Failed,
    /// A task is given up.
    Dead,
    /// A claim was granted, and is about to be answered.
    Granted,
    /// A lease has run out.
    Expired,
    /// A worker has given a claim back.
    GivenBack,
}

impl Counted {
    /// All of them, in the order of the counts.
    pub const ALL: [Counted; 7] = [
        Counted::Enqueued,
        Counted::Completed,
        Counted::Failed,
        Counted::Dead,
        Counted::Granted,
        Counted::Expired,
        Counted::GivenBack,
    ];
}

/// How long something took, in classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number up to each of [`SPREAD_MS`] and above the one before; the last is of all that took longer.
    pub counts: [u64; SPREAD_MS.len() + 1],
    /// Sum of the times, in milliseconds.
    pub sum_ms: u64,
}

impl Spread {
    fn add(&mut self, ms: u64) {
        let class = SPREAD_MS.iter().take_while(|bound_ms| ms > **bound_ms).count();
        self.counts[class] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// Counts of a queue since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueTally {
    /// Place of the queue in the order in which queues were first seen.
    pub place: u64,
    /// Counts, in the order of [`Counted::ALL`].
    pub counts: [u64; Counted::ALL.len()],
    /// From when a task could be claimed to its first claim.
    pub wait: Spread,
    /// From a claim to its completion or failure.
    pub run: Spread,
}

/// Counts by queue: of the first queues by name, and of all others together.
#[derive(Debug, Default)]
pub struct Tally {
    queues: BTreeMap<QueueName, QueueTally>,
    others: QueueTally,
}

impl Tally {
    /// Whether a queue has counts of its own. While there is room, a new queue gets them now.
    pub fn has(&mut self, queue: &QueueName) -> bool {
        let place = self.queues.len();
        let has = self.queues.contains_key(queue);
        if !has && place < QUEUES_TALLIED_MAX {
            self.queues.insert(queue.clone(), QueueTally { place: place as u64, ..QueueTally::default() });
        }
        has || place < QUEUES_TALLIED_MAX
    }

    fn line(&mut self, queue: &QueueName) -> &mut QueueTally {
        match self.has(queue) {
            true => self.queues.get_mut(queue).expect("just seen"),
            false => &mut self.others,
        }
    }

    /// Counts once.
    pub fn count(&mut self, queue: &QueueName, what: Counted) {
        self.line(queue).counts[what as usize] += 1;
    }

    /// Takes how long a task waited for its first claim.
    pub fn waited(&mut self, queue: &QueueName, ms: u64) {
        self.line(queue).wait.add(ms);
    }

    /// Takes how long an attempt ran.
    pub fn ran(&mut self, queue: &QueueName, ms: u64) {
        self.line(queue).run.add(ms);
    }

    /// All queues with counts of their own.
    pub fn queues(&self) -> &BTreeMap<QueueName, QueueTally> {
        &self.queues
    }

    /// The counts of all other queues together.
    pub fn others(&self) -> &QueueTally {
        &self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_bound_are_counted_together() {
        let mut tally = Tally::default();
        for number in 0..2 * QUEUES_TALLIED_MAX {
            tally.count(&QueueName::new(&format!("q{number}")).unwrap(), Counted::Enqueued);
        }
        tally.count(&QueueName::new("q0").unwrap(), Counted::Enqueued);
        assert_eq!(tally.queues().len(), QUEUES_TALLIED_MAX);
        assert_eq!(tally.others().counts[Counted::Enqueued as usize], QUEUES_TALLIED_MAX as u64);
        let first = &tally.queues()[&QueueName::new("q0").unwrap()];
        assert_eq!((first.place, first.counts[Counted::Enqueued as usize]), (0, 2));
    }

    #[test]
    fn a_time_on_a_bound_is_in_the_class_below() {
        let mut spread = Spread::default();
        [0, SPREAD_MS[0], SPREAD_MS[0] + 1, u64::MAX].into_iter().for_each(|ms| spread.add(ms));
        assert_eq!((spread.counts[0], spread.counts[1], spread.counts[SPREAD_MS.len()]), (2, 1, 1));
        assert_eq!(spread.sum_ms, u64::MAX);
        assert!(SPREAD_MS.is_sorted());
    }
}
