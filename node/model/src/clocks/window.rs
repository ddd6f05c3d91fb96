//! The clocks that a majority agrees on.

/// Another clock, as an offset from the own one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// The most likely offset.
    pub center_us: i64,
    /// The greatest error of that.
    pub error_us: u64,
}

impl Interval {
    fn low_us(&self) -> i64 {
        self.center_us.saturating_sub_unsigned(self.error_us)
    }

    fn high_us(&self) -> i64 {
        self.center_us.saturating_add_unsigned(self.error_us)
    }

    /// Distance between two intervals; 0 where they meet.
    pub fn apart_us(&self, other: &Interval) -> u64 {
        let gap = |low: i64, high: i64| if low > high { low.abs_diff(high) } else { 0 };
        gap(self.low_us(), other.high_us()).max(gap(other.low_us(), self.high_us()))
    }
}

/// Certain distance of the own clock, at offset 0, from the narrowest window that holds a majority of `members` clocks. `None` if fewer
/// clocks are known, or no majority of them agrees within `spread_us_max`.
pub fn distance_to_majority(mut clocks: Vec<Interval>, members: usize, spread_us_max: u64) -> Option<u64> {
    const OWN: Interval = Interval { center_us: 0, error_us: 0 };
    clocks.push(OWN);
    clocks.sort_by_key(|clock| (clock.center_us, clock.error_us));
    let majority = members / 2 + 1;
    let spread_us = |window: &[Interval]| window[window.len() - 1].center_us.abs_diff(window[0].center_us);
    let off_us = |window: &[Interval]| {
        let low_us = window.iter().map(Interval::low_us).min().expect("a majority is not empty");
        let high_us = window.iter().map(Interval::high_us).max().expect("a majority is not empty");
        if low_us > 0 {
            low_us.unsigned_abs()
        } else if high_us < 0 {
            high_us.unsigned_abs()
        } else {
            0
        }
    };
    // Of equally narrow windows the one that holds the own clock decides: the own clock is not certain to be wrong.
    clocks
        .windows(majority)
        .map(|window| (spread_us(window), off_us(window)))
        .min()
        .filter(|(spread_us, _)| *spread_us <= spread_us_max)
        .map(|(_, off_us)| off_us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    fn exact(centers: &[i64]) -> Vec<Interval> {
        centers.iter().map(|center_us| Interval { center_us: *center_us, error_us: 1_000 }).collect()
    }

    #[test]
    fn a_clock_away_from_the_majority_is_off_and_the_majority_is_not() {
        assert_eq!(distance_to_majority(exact(&[700_000, 702_000]), 3, SECOND), Some(699_000));
        assert_eq!(distance_to_majority(exact(&[-700_000, -702_000]), 3, SECOND), Some(699_000));
        assert_eq!(distance_to_majority(exact(&[2_000, 700_000]), 3, SECOND), Some(0));
        assert_eq!(distance_to_majority(exact(&[2_000, 900_000, 910_000, 920_000]), 5, SECOND), Some(899_000));
    }

    #[test]
    fn the_error_of_the_measurement_is_in_favour_of_the_own_clock() {
        let vague = vec![Interval { center_us: 700_000, error_us: 650_000 }; 2];
        assert_eq!(distance_to_majority(vague, 3, SECOND), Some(50_000));
    }

    #[test]
    fn without_a_majority_that_agrees_nothing_is_known() {
        assert_eq!(distance_to_majority(exact(&[700_000]), 5, SECOND), None, "too few");
        assert_eq!(distance_to_majority(exact(&[3_000_000]), 2, SECOND), None, "two that disagree");
        assert_eq!(distance_to_majority(exact(&[3_000_000, -3_000_000]), 3, SECOND), None, "nobody agrees");
        assert_eq!(distance_to_majority(Vec::new(), 1, SECOND), Some(0), "alone, and the majority");
    }

    proptest! {
        /// However wrong a minority is, a node with a good clock is never judged to be off by more than good clocks differ.
        #[test]
        fn a_minority_cannot_discredit_a_good_clock(
            good in proptest::collection::vec(-50_000i64..=50_000, 1..5),
            bad in proptest::collection::vec(any::<i32>(), 0..4),
        ) {
            let bad: Vec<i64> = bad.into_iter().take(good.len()).map(i64::from).collect();
            let members = good.len() + 1 + bad.len();
            let clocks = exact(&[good.clone(), bad].concat());
            if let Some(off_us) = distance_to_majority(clocks, members, SECOND) {
                prop_assert!(off_us <= 100_000 + 1_000);
            }
        }
    }
}
