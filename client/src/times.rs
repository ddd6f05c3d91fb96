//! Histograms of times with fixed bounds, which any thread adds to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bounds for requests, in microseconds.
pub const REQUEST_US: &[u64] = &[
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
    30_000_000, 60_000_000,
];
/// Bounds for syncs of a disk, in microseconds.
pub const SYNC_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];

/// A histogram of times.
#[derive(Debug)]
pub struct Times {
    bounds_us: &'static [u64],
    /// One for each bound, and one for what is longer than all.
    counts: Box<[AtomicU64]>,
    sum_us: AtomicU64,
}

/// What a histogram of times shows at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimesAt {
    /// Upper bounds in seconds, the last without one, each with the number of times up to it and above the bound before.
    pub classes: Vec<(f64, u64)>,
    /// Sum of all, in seconds.
    pub sum_s: f64,
}

impl Times {
    /// An empty histogram with these bounds, which ascend.
    pub fn new(bounds_us: &'static [u64]) -> Times {
        let counts = (0..=bounds_us.len()).map(|_| AtomicU64::new(0)).collect();
        Times { bounds_us, counts, sum_us: AtomicU64::new(0) }
    }

    /// Adds a time.
    pub fn add_us(&self, us: u64) {
        let class = self.bounds_us.partition_point(|bound_us| *bound_us < us);
        if let Some(count) = self.counts.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// What it shows now.
    pub fn at(&self) -> TimesAt {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds_s = self.bounds_us.iter().map(|us| seconds(*us, 1_000_000));
        TimesAt {
            classes: bounds_s.chain([f64::INFINITY]).zip(counts).collect(),
            sum_s: seconds(self.sum_us.load(Ordering::Relaxed), 1_000_000),
        }
    }
}

impl TimesAt {
    /// Of counts by bounds in milliseconds; there is one count more than bounds, of what is longer than all.
    pub fn of_ms(bounds_ms: &[u64], counts: &[u64], sum_ms: u64) -> TimesAt {
        let bounds_s = bounds_ms.iter().map(|ms| seconds(*ms, 1_000));
        TimesAt {
            classes: bounds_s.chain([f64::INFINITY]).zip(counts.iter().copied()).collect(),
            sum_s: seconds(sum_ms, 1_000),
        }
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.classes.iter().map(|(_, count)| count).sum()
    }

    /// Adds those of another histogram with the same bounds.
    pub fn merge(&mut self, other: &TimesAt) {
        if self.classes.is_empty() {
            self.classes.clone_from(&other.classes);
        } else {
            self.classes.iter_mut().zip(&other.classes).for_each(|((_, count), (_, more))| *count += more);
        }
        self.sum_s += other.sum_s;
    }
}

/// A count of parts of a second, in seconds.
pub fn seconds(count: u64, per_second: u64) -> f64 {
    count as f64 / per_second as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_on_a_bound_belongs_to_it() {
        let times = Times::new(&[10, 20]);
        [0, 10, 11, 20, 21, 1_000_000].into_iter().for_each(|us| times.add_us(us));
        let at = times.at();
        assert_eq!(at.classes.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!((at.count(), at.sum_s), (6, 1.000_062));
    }

    #[test]
    fn bounds_ascend() {
        assert!(REQUEST_US.is_sorted() && SYNC_US.is_sorted());
    }
}
