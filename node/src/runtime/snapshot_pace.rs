//! Pace of a snapshot: clients should not notice that one is written.

/// A part of a snapshot is followed by a rest of this many times what it took. So the thread of the log writes for a tenth of its time.
const RESTS: u64 = 9;
/// Longest rest, after a part that a busy disk held up.
const REST_US_MAX: u64 = 1_000_000;

/// When the next part of the snapshot under way is asked for.
#[derive(Debug, Default)]
pub struct SnapshotPace {
    due_us: Option<u64>,
}

impl SnapshotPace {
    /// Time at which the next part is due. `None`: it is asked for already, or there is no snapshot.
    pub fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// A part was written between these times, and there are more.
    pub fn wrote(&mut self, began_us: u64, ended_us: u64) {
        let rest_us = ended_us.saturating_sub(began_us).saturating_mul(RESTS).min(REST_US_MAX);
        self.due_us = Some(ended_us.saturating_add(rest_us));
    }

    /// Whether the next part is to be asked for now. Says so once.
    pub fn continues(&mut self, now_us: u64, urgent: bool) -> bool {
        self.due_us.take_if(|due_us| urgent || *due_us <= now_us).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotPace;

    #[test]
    fn a_part_follows_after_nine_times_what_the_last_took_or_at_once_if_urgent() {
        let mut pace = SnapshotPace::default();
        assert!(!pace.continues(5, true), "there is no snapshot");
        pace.wrote(1_000, 1_200);
        assert_eq!(pace.due_us(), Some(3_000));
        assert!(!pace.continues(2_999, false));
        assert!(pace.continues(3_000, false));
        assert!(!pace.continues(3_001, true), "it was asked for");
        pace.wrote(4_000, 4_200);
        assert!(pace.continues(4_200, true));
        pace.wrote(10_000, 910_000);
        assert_eq!(pace.due_us(), Some(1_910_000), "no rest is longer than a second");
    }
}
