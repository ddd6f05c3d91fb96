//! Pace of a snapshot: clients should not notice that one is written.

/// A part of a snapshot is followed by a rest of this many times what it took. So the thread of the log writes for a tenth of its time.
const RESTS: u64 = 9;
/// Longest rest, after a part that a busy disk held up.
const REST_US_MAX: u64 = 1_000_000;

/// When the next part of the snapshot under way is asked for.
#[derive(Debug, Default)]
pub struct SnapshotPace {
    rest: Option<Rest>,
}

/// The rest after a part.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from_us: u64,
    length_us: u64,
}

impl Rest {
    /// Its end, if the writer forgoes this much of it.
    fn end_us(self, haste_percent: u64) -> u64 {
        let left_percent = 100u64.saturating_sub(haste_percent);
        self.from_us.saturating_add(self.length_us * left_percent / 100)
    }
}

impl SnapshotPace {
    /// Latest time at which the next part is due. `None`: it is asked for already, or there is no snapshot.
    pub fn due_us(&self) -> Option<u64> {
        self.rest.map(|rest| rest.end_us(0))
    }

    /// A part was written between these times, and there are more.
    pub fn wrote(&mut self, began_us: u64, ended_us: u64) {
        let length_us = ended_us.saturating_sub(began_us).saturating_mul(RESTS).min(REST_US_MAX);
        self.rest = Some(Rest { from_us: ended_us, length_us });
    }

    /// Whether the next part is to be asked for now, if the writer forgoes so much of its rests. Says so once.
    pub fn continues(&mut self, now_us: u64, haste_percent: u64) -> bool {
        self.rest.take_if(|rest| rest.end_us(haste_percent) <= now_us).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::SnapshotPace;

    #[test]
    fn a_part_follows_after_nine_times_what_the_last_took_and_sooner_in_haste() {
        let mut pace = SnapshotPace::default();
        assert!(!pace.continues(5, 100), "there is no snapshot");
        pace.wrote(1_000, 1_200);
        assert_eq!(pace.due_us(), Some(3_000));
        assert!(!pace.continues(2_999, 0));
        assert!(pace.continues(3_000, 0));
        assert!(!pace.continues(3_001, 100), "it was asked for");
        pace.wrote(4_000, 4_200);
        assert!(!pace.continues(5_099, 50));
        assert!(pace.continues(5_100, 50));
        pace.wrote(6_000, 6_200);
        assert!(pace.continues(6_200, 100));
        pace.wrote(10_000, 910_000);
        assert_eq!(pace.due_us(), Some(1_910_000), "no rest is longer than a second");
    }
}
