//! When facts about tasks are made durable.
//!
//! All other records (identity, votes, tables, operations, marks) are always durable before they are answered: a replica that forgets
//! a vote may vote twice, and no bound on the window of loss makes up for that. One sync makes all earlier records durable too.

use norn_model::record::Record;
use std::fmt;
use std::str::FromStr;

/// How long facts may be acknowledged before they are durable. Writes of a process that died stay with the operating system; facts in
/// this window are lost only when the machine loses power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncPolicy {
    /// No window: facts are durable before they are acknowledged.
    #[default]
    Always,
    /// Fewer than this many records.
    Every(u64),
    /// Up to this many milliseconds.
    Interval(u64),
    /// Until the operating system writes them, or another record is made durable.
    System,
}

/// Why a text is not a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`always`, `every N` (records, 2 to 1000000), `interval D` (milliseconds, 1 to 60000), or `os`")]
pub struct NoSyncPolicy;

impl FromStr for SyncPolicy {
    type Err = NoSyncPolicy;

    fn from_str(text: &str) -> Result<Self, NoSyncPolicy> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str, most| word.parse().ok().filter(|number| (1..=most).contains(number));
        match words.as_slice() {
            ["always"] => Ok(SyncPolicy::Always),
            ["os"] => Ok(SyncPolicy::System),
            ["every", count] => {
                number(count, 1_000_000).filter(|count| *count > 1).map(SyncPolicy::Every).ok_or(NoSyncPolicy)
            }
            ["interval", length] => {
                number(length.trim_end_matches("ms"), 60_000).map(SyncPolicy::Interval).ok_or(NoSyncPolicy)
            }
            _ => Err(NoSyncPolicy),
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncPolicy::Always => formatter.write_str("always"),
            SyncPolicy::Every(count) => write!(formatter, "every {count}"),
            SyncPolicy::Interval(length_ms) => write!(formatter, "interval {length_ms}"),
            SyncPolicy::System => formatter.write_str("os"),
        }
    }
}

/// Records written since the last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsynced {
    /// There is a record that no policy lets wait.
    binding: bool,
    /// Records of facts.
    facts: u64,
    /// When the first of these was due to be answered, in microseconds.
    since_us: Option<u64>,
}

impl Unsynced {
    /// Adds a record that was written.
    pub fn note(&mut self, record: &Record) {
        match record {
            // A burial is reported to the nodes that want to forget the task.
            Record::Facts { items, .. } if items.iter().any(|(_, task)| task.tombstone.is_some()) => {
                self.binding = true
            }
            // If these are lost, the node hands over hints that other nodes have already.
            Record::Facts { .. } | Record::IdHint { .. } | Record::Handed { .. } => self.facts += 1,
            // If these are lost, leases count anew from the last record that is left.
            Record::Ran { .. } | Record::LeaseAges { .. } => self.facts += 1,
            Record::Identity { .. }
            | Record::Boot { .. }
            | Record::Unanswered { .. }
            | Record::Genesis(_)
            | Record::Roster(_)
            | Record::HighWaterMark { .. }
            | Record::Vote { .. }
            | Record::Install { .. }
            | Record::Ops { .. }
            | Record::DataLoss { .. }
            | Record::Left { .. }
            | Record::Forgot { .. }
            | Record::Hint { .. }
            | Record::Retired { .. }
            | Record::End { .. } => self.binding = true,
        }
    }

    /// Whether a sync is due before any record may be answered.
    pub fn is_due(&mut self, policy: SyncPolicy, now_us: u64) -> bool {
        let since_us = *self.since_us.get_or_insert(now_us);
        let waits = match policy {
            SyncPolicy::Always => false,
            SyncPolicy::Every(count) => self.facts < count,
            SyncPolicy::Interval(length_ms) => now_us < since_us + length_ms * 1_000,
            SyncPolicy::System => true,
        };
        self.binding || !waits
    }

    /// Latest time at which a sync is due, if nothing else is written; `None` if time does not matter.
    pub fn due_us(&self, policy: SyncPolicy) -> Option<u64> {
        match policy {
            SyncPolicy::Interval(length_ms) if self.facts > 0 => Some(self.since_us? + length_ms * 1_000),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::PartitionId;
    use std::sync::Arc;

    fn facts() -> Record {
        Record::Facts { partition: PartitionId(0), items: Arc::new(Vec::new()) }
    }

    #[test]
    fn a_text_is_what_it_says() {
        for text in ["always", "every 2", "every 1000000", "interval 1", "interval 60000", "os"] {
            assert_eq!(text.parse::<SyncPolicy>().map(|policy| policy.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("interval 50ms".parse(), Ok(SyncPolicy::Interval(50)));
        for text in
            ["", "never", "every", "every 1", "every -3", "every 1000001", "interval 0", "interval 60001", "os x"]
        {
            assert_eq!(text.parse::<SyncPolicy>(), Err(NoSyncPolicy), "{text:?}");
        }
    }

    #[test]
    fn what_binds_never_waits() {
        for policy in [SyncPolicy::Every(1_000), SyncPolicy::Interval(1_000), SyncPolicy::System] {
            for record in [Record::Boot { count: 1 }, Record::HighWaterMark { time_ms: 1, sessions: 1 }] {
                let mut unsynced = Unsynced::default();
                unsynced.note(&facts());
                assert!(!unsynced.is_due(policy, 0));
                unsynced.note(&record);
                assert!(unsynced.is_due(policy, 0), "{policy}: {record:?}");
            }
        }
    }

    #[test]
    fn facts_wait_as_long_as_the_policy_says() {
        let mut unsynced = Unsynced::default();
        unsynced.note(&facts());
        assert!(unsynced.is_due(SyncPolicy::Always, 0));
        unsynced.note(&facts());
        assert!(!unsynced.is_due(SyncPolicy::Every(3), 0));
        unsynced.note(&facts());
        assert!(unsynced.is_due(SyncPolicy::Every(3), 0));
        let mut unsynced = Unsynced::default();
        assert_eq!(unsynced.due_us(SyncPolicy::Interval(2)), None);
        unsynced.note(&facts());
        assert!(!unsynced.is_due(SyncPolicy::Interval(2), 500));
        assert_eq!(unsynced.due_us(SyncPolicy::Interval(2)), Some(2_500));
        assert!(!unsynced.is_due(SyncPolicy::Interval(2), 2_499));
        assert!(unsynced.is_due(SyncPolicy::Interval(2), 2_500));
        assert!(!unsynced.is_due(SyncPolicy::System, u64::MAX));
    }
}
