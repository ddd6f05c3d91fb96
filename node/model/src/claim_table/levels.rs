//! Persisted levels of token buckets (`claims/rate_tokens.rs`) in the table of a queue's coordinator partition, and since when a replica
//! knows each.
//!
//! The leader of the coordinator partition writes a level whenever it gives rate tokens, and from time to time until the bucket is
//! full. Each replica notes when it applied the level, by its own monotonic clock. From then on the bucket has filled at the
//! rate, as far as the replica can tell; a process that starts counts from its start. So a leader that begins with the level and
//! the tokens accrued since never has more than its predecessor would have by then.

use super::table::{ClaimTable, Op};
use crate::viewstamp::Viewstamp;
use norn_wire::QueueName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Millionths in a whole rate token.
pub const WHOLE: u64 = 1_000_000;

/// What a bucket held when its leader wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Millionths of rate tokens, rounded down.
    pub millionths: u64,
    /// Rate tokens given that may still have been valid.
    pub given: u64,
}

/// Level, with the viewstamp of the operation that wrote it.
pub type Written = (Level, Viewstamp);

/// When a replica applied each level of its table, by the monotonic clock of its process.
#[derive(Debug, Default)]
pub struct Applied(BTreeMap<QueueName, u64>);

impl Applied {
    /// Notes an applied operation.
    pub fn note(&mut self, op: &Op, now_us: u64) {
        let Op::Level { queue, level } = op else { return };
        match level {
            Some(_) => self.0.insert(queue.clone(), now_us),
            None => self.0.remove(queue),
        };
    }

    /// Notes a new table: a level written by the same operation as before keeps its time.
    pub fn install(&mut self, before: &ClaimTable, after: &ClaimTable, now_us: u64) {
        let known = std::mem::take(&mut self.0);
        let is_same = |queue: &QueueName| before.levels.get(queue) == after.levels.get(queue);
        let since = |queue: &QueueName| known.get(queue).copied().filter(|_| is_same(queue)).unwrap_or(now_us);
        self.0 = after.levels.keys().map(|queue| (queue.clone(), since(queue))).collect();
    }

    /// Begins with the start of the process, which knows nothing of the time before.
    pub fn begin(&mut self, table: &ClaimTable, now_us: u64) {
        self.0 = table.levels.keys().map(|queue| (queue.clone(), now_us)).collect();
    }

    /// Since when the level of a queue is known.
    pub fn since(&self, queue: &QueueName) -> Option<u64> {
        self.0.get(queue).copied()
    }

    /// Whether there is a time for each level, and for nothing else.
    pub fn fits(&self, table: &ClaimTable) -> bool {
        self.0.keys().eq(table.levels.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Viewstamp = Viewstamp { epoch: 3, length: 5 };

    fn queue() -> QueueName {
        QueueName::new("mail").expect("a name")
    }

    fn table(millionths: u64, at: Viewstamp) -> ClaimTable {
        let mut table = ClaimTable::new(Vec::new());
        let level = Some(Level { millionths, given: 0 });
        table.apply(&Op::Level { queue: queue(), level }, at).expect("it fits");
        table
    }

    /// Covers the log and the wire.
    #[test]
    fn a_table_is_read_as_it_was_written_with_and_without_levels() {
        let bytes = |table: &ClaimTable| rmp_serde::to_vec(table).expect("tables always encode");
        let (with, without) = (table(7, AT), ClaimTable::new(Vec::new()));
        for table in [&with, &without] {
            let read: ClaimTable = rmp_serde::from_slice(&bytes(table)).expect("it was just written");
            assert_eq!((&read, read.digest()), (table, read.digest_recomputed()));
        }
    }

    /// Goal: a replica counts from when it learned a level, and never from before. Method: the same level in another table, a
    /// different level, and a restart.
    #[test]
    fn a_level_is_known_since_it_was_applied() {
        let (mut applied, first) = (Applied::default(), table(7, AT));
        applied.install(&ClaimTable::new(Vec::new()), &first, 100);
        applied.install(&first, &table(7, AT), 200);
        assert_eq!(applied.since(&queue()), Some(100), "it is the same");
        applied.install(&first, &table(7, Viewstamp { length: 6, ..AT }), 300);
        assert_eq!(applied.since(&queue()), Some(300), "another operation wrote it");
        applied.note(&Op::Level { queue: queue(), level: Some(Level { millionths: 8, given: 1 }) }, 400);
        assert_eq!(applied.since(&queue()), Some(400));
        applied.begin(&first, 500);
        assert_eq!(applied.since(&queue()), Some(500));
        assert!(applied.fits(&first));
        applied.note(&Op::Level { queue: queue(), level: None }, 600);
        assert!(applied.since(&queue()).is_none() && applied.fits(&ClaimTable::new(Vec::new())));
    }
}
