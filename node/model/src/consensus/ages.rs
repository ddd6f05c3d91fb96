//! Lower bounds on the ages of leases, and the exchange of them between replicas (`consensus/ages.rs`).

use super::Leader;
use crate::cohort::GrantQuarantine;
use crate::limits::{AGES_MAX, AGES_STEPS, ASK_AGES_MS_MAX, TOLD_AGE_MS_MIN};
use crate::time::Now;
use crate::viewstamp::{Epoch, Viewstamp};
use norn_wire::NodeId;

/// Reserved epoch of no operation.
const NO_EPOCH: Epoch = 0;

/// Key under which the age of a quarantine is exchanged.
pub(super) fn name_of_quarantine(quarantine: GrantQuarantine) -> Viewstamp {
    Viewstamp { epoch: NO_EPOCH, length: quarantine.until_ms }
}

/// Lease ages in milliseconds: each operation up to one of these viewstamps, in the same epoch, is at least this old.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseAges {
    /// In the order of viewstamps; within an epoch the ages decrease.
    points: Vec<(Viewstamp, u64)>,
}

impl LeaseAges {
    /// Builds the ages from those of single operations, in any order.
    pub fn new(mut points: Vec<(Viewstamp, u64)>) -> LeaseAges {
        points.sort_unstable();
        let mut kept: Vec<(Viewstamp, u64)> = Vec::new();
        for (at, age_ms) in points.into_iter().rev() {
            match kept.last() {
                // An operation before an old one is at least as old.
                Some((later, later_ms)) if later.epoch == at.epoch && *later_ms >= age_ms => {}
                Some(_) | None => kept.push((at, age_ms)),
            }
        }
        kept.reverse();
        let points = thinned(kept);
        assert!(points.len() <= AGES_MAX, "ages are described by too many points");
        LeaseAges { points }
    }

    /// The points.
    pub fn points(&self) -> &[(Viewstamp, u64)] {
        &self.points
    }

    /// Lower bound on the age of an operation or a quarantine; none if unknown.
    pub fn of(&self, at: Viewstamp) -> Option<u64> {
        let place = self.points.partition_point(|(point, _)| *point < at);
        // Quarantines are not ordered like operations, so the age of one says nothing of another.
        let speaks_of = |point: Viewstamp| point.epoch == at.epoch && (point == at || at.epoch != NO_EPOCH);
        self.points.get(place).filter(|(point, _)| speaks_of(*point)).map(|(_, age_ms)| *age_ms)
    }

    /// Whether these ages would make some operation noticeably older than `others` has it.
    pub fn tells(&self, others: &LeaseAges) -> bool {
        let news =
            |(at, age_ms): &(Viewstamp, u64)| *age_ms > others.of(*at).unwrap_or(0).saturating_add(TOLD_AGE_MS_MIN);
        self.points.iter().any(news)
    }
}

/// Thins the points to the limit: one for each group of similar age, and only the newest if there are too many epochs.
fn thinned(mut points: Vec<(Viewstamp, u64)>) -> Vec<(Viewstamp, u64)> {
    if points.len() <= AGES_MAX {
        return points;
    }
    let longest_ms = points.iter().map(|(_, age_ms)| *age_ms).max().unwrap_or(0);
    let step = |age_ms: u64| age_ms / (longest_ms / AGES_STEPS + 1);
    let next: Vec<Option<(Viewstamp, u64)>> = points[1..].iter().copied().map(Some).chain([None]).collect();
    let mut next = next.into_iter();
    points.retain(|(at, age_ms)| {
        let next = next.next().flatten();
        next.is_none_or(|(later, later_ms)| later.epoch != at.epoch || step(later_ms) != step(*age_ms))
    });
    points.split_off(points.len().saturating_sub(AGES_MAX))
}

/// State of the exchange of ages between a follower and its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgeExchange {
    /// Nothing was exchanged, as far as this replica knows.
    #[default]
    Unasked,
    /// The follower has sent its ages and has no answer yet.
    Asked {
        /// Leader that was asked.
        leader: Leader,
        /// When the follower sends them again.
        again_us: u64,
        /// Pause before that time; it doubles.
        pause_ms: u64,
    },
    /// Both sides have sent theirs.
    Answered(Leader),
}

impl AgeExchange {
    /// Whether to ask this leader now.
    pub fn is_due(self, leader: Leader, now_us: u64) -> bool {
        match self {
            AgeExchange::Answered(by) => by != leader,
            AgeExchange::Asked { leader: asked, again_us, .. } => asked != leader || now_us >= again_us,
            AgeExchange::Unasked => true,
        }
    }

    /// Notes that the leader is being asked now.
    pub fn asked(self, leader: Leader, now: Now, resend_ms: u64) -> AgeExchange {
        let pause_ms = match self {
            AgeExchange::Asked { leader: asked, pause_ms, .. } if asked == leader => {
                (2 * pause_ms).min(ASK_AGES_MS_MAX.max(resend_ms))
            }
            _ => resend_ms,
        };
        AgeExchange::Asked { leader, again_us: now.mono_after_ms(pause_ms), pause_ms }
    }

    /// Notes a node's answer. An answer from a node that was not asked since the table was installed is ignored: it is not about
    /// this table.
    pub fn answered(self, from: NodeId) -> AgeExchange {
        match self {
            AgeExchange::Asked { leader, .. } if leader.node == from => AgeExchange::Answered(leader),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, length: u64) -> Viewstamp {
        Viewstamp { epoch, length }
    }

    #[test]
    fn what_is_before_something_old_is_as_old_and_nothing_follows_for_other_epochs() {
        let ages = LeaseAges::new(vec![(at(2, 9), 5), (at(2, 4), 70), (at(2, 3), 20), (at(3, 1), 400), (at(1, 8), 1)]);
        assert_eq!(ages.points(), [(at(1, 8), 1), (at(2, 4), 70), (at(2, 9), 5), (at(3, 1), 400)]);
        let told =
            [at(1, 1), at(1, 8), at(2, 1), at(2, 3), at(2, 4), at(2, 5), at(2, 9), at(3, 0)].map(|at| ages.of(at));
        assert_eq!(told, [1, 1, 70, 70, 70, 5, 5, 400].map(Some));
        let unknown = [at(1, 9), at(2, 10), at(3, 2), at(4, 0)].map(|at| ages.of(at));
        assert_eq!(unknown, [None; 4]);
    }

    #[test]
    fn of_another_silence_nothing_follows() {
        let quarantine = |until_ms| name_of_quarantine(GrantQuarantine { until_ms, lease_ms: 5 });
        let ages = LeaseAges::new(vec![(quarantine(70), 9), (at(1, 1), 4)]);
        assert_eq!([70, 69, 71].map(|until_ms| ages.of(quarantine(until_ms))), [Some(9), None, None]);
        assert_eq!(ages.of(at(1, 1)), Some(4));
    }

    /// Received ages are untrusted input: no number is too great to be compared.
    #[test]
    fn the_greatest_age_is_no_news_to_who_told_it() {
        let (own, told) = (LeaseAges::new(vec![(at(1, 1), 5)]), LeaseAges::new(vec![(at(1, 1), u64::MAX)]));
        assert!(!own.tells(&told) && told.tells(&own));
    }

    #[test]
    fn of_many_ages_few_are_told_none_too_great_and_none_much_too_small() {
        let exact = |length: u64| (at(7, length), 3_600_000 - length);
        let ages = LeaseAges::new((1..3_000_000).step_by(100).map(exact).chain([(at(6, 5), 9)]).collect());
        assert!(ages.points().len() <= AGES_MAX, "{}", ages.points().len());
        assert_eq!(ages.of(at(6, 5)), Some(9));
        for length in (1..3_000_000).step_by(100) {
            let (told_ms, age_ms) = (ages.of(at(7, length)).unwrap(), exact(length).1);
            assert!(told_ms <= age_ms && age_ms - told_ms <= 3_600_000 / AGES_STEPS + 1, "{told_ms} of {age_ms}");
        }
        let epochs = LeaseAges::new((1..=2 * AGES_MAX as u64).map(|epoch| (at(epoch, 1), epoch)).collect());
        assert_eq!(epochs.points().len(), AGES_MAX);
        assert_eq!(epochs.of(at(2 * AGES_MAX as u64, 1)), Some(2 * AGES_MAX as u64), "the newest are told");
    }
}
