//! How old operations are, as replicas tell each other, and whether they have (`consistent/ages.rs`).

use super::Leader;
use crate::limits::{AGES_MAX, AGES_STEPS, ASK_AGES_MS_MAX, TOLD_AGE_MS_MIN};
use crate::protocol::consistent::cohort::Silence;
use crate::protocol::consistent::{Epoch, Viewstamp};
use crate::protocol::time::Now;
use norn_wire::NodeId;

/// No operation is of it.
const NO_EPOCH: Epoch = 0;

/// By what the age of a silence is told.
pub(super) fn name_of_silence(silence: Silence) -> Viewstamp {
    Viewstamp { epoch: NO_EPOCH, length: silence.until_ms }
}

/// In milliseconds: each operation up to one of these viewstamps, in the same epoch, is at least so old.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ages {
    /// In order; within an epoch they grow younger.
    points: Vec<(Viewstamp, u64)>,
}

impl Ages {
    /// Out of what is known of single operations, in any order.
    pub fn new(mut points: Vec<(Viewstamp, u64)>) -> Ages {
        points.sort_unstable();
        let mut kept: Vec<(Viewstamp, u64)> = Vec::new();
        for (at, age_ms) in points.into_iter().rev() {
            match kept.last() {
                // What is before something old is as old.
                Some((later, later_ms)) if later.epoch == at.epoch && *later_ms >= age_ms => {}
                Some(_) | None => kept.push((at, age_ms)),
            }
        }
        kept.reverse();
        Ages { points: thinned(kept) }
    }

    /// The points.
    pub fn points(&self) -> &[(Viewstamp, u64)] {
        &self.points
    }

    /// How old an operation, or a silence, is at least; none if nothing is known.
    pub fn of(&self, at: Viewstamp) -> Option<u64> {
        let place = self.points.partition_point(|(point, _)| *point < at);
        // Silences do not come one after the other.
        let speaks_of = |point: Viewstamp| point.epoch == at.epoch && (point == at || at.epoch != NO_EPOCH);
        self.points.get(place).filter(|(point, _)| speaks_of(*point)).map(|(_, age_ms)| *age_ms)
    }

    /// Whether others know of something that it is younger than it is by these.
    pub(in crate::protocol::consistent) fn tells(&self, others: &Ages) -> bool {
        let news =
            |(at, age_ms): &(Viewstamp, u64)| *age_ms > others.of(*at).unwrap_or(0).saturating_add(TOLD_AGE_MS_MIN);
        self.points.iter().any(news)
    }
}

/// Few enough points, each for all of about the same age; the newest, if there are too many epochs.
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

/// What a follower and its leader have said to each other of ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exchange {
    /// Nothing, as far as this replica knows.
    #[default]
    Unasked,
    /// The follower has told what it knows, and was not answered yet.
    Asked {
        /// Whom.
        leader: Leader,
        /// When it says so again.
        again_us: u64,
        /// Between the last time and that.
        pause_ms: u64,
    },
    /// Both.
    Answered(Leader),
}

impl Exchange {
    /// Whether this leader is to be asked now.
    pub(in crate::protocol::consistent) fn is_due(self, leader: Leader, now_us: u64) -> bool {
        match self {
            Exchange::Answered(by) => by != leader,
            Exchange::Asked { leader: asked, again_us, .. } => asked != leader || now_us >= again_us,
            Exchange::Unasked => true,
        }
    }

    /// It is asked now.
    pub(in crate::protocol::consistent) fn asked(self, leader: Leader, now: Now, resend_ms: u64) -> Exchange {
        let pause_ms = match self {
            Exchange::Asked { leader: asked, pause_ms, .. } if asked == leader => {
                (2 * pause_ms).min(ASK_AGES_MS_MAX.max(resend_ms))
            }
            _ => resend_ms,
        };
        Exchange::Asked { leader, again_us: now.mono_after_ms(pause_ms), pause_ms }
    }

    /// A node answers. Whoever was not asked since the table is another knows nothing of that table.
    pub(in crate::protocol::consistent) fn answered(self, from: NodeId) -> Exchange {
        match self {
            Exchange::Asked { leader, .. } if leader.node == from => Exchange::Answered(leader),
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
        let ages = Ages::new(vec![(at(2, 9), 5), (at(2, 4), 70), (at(2, 3), 20), (at(3, 1), 400), (at(1, 8), 1)]);
        assert_eq!(ages.points(), [(at(1, 8), 1), (at(2, 4), 70), (at(2, 9), 5), (at(3, 1), 400)]);
        let told =
            [at(1, 1), at(1, 8), at(2, 1), at(2, 3), at(2, 4), at(2, 5), at(2, 9), at(3, 0)].map(|at| ages.of(at));
        assert_eq!(told, [1, 1, 70, 70, 70, 5, 5, 400].map(Some));
        let unknown = [at(1, 9), at(2, 10), at(3, 2), at(4, 0)].map(|at| ages.of(at));
        assert_eq!(unknown, [None; 4]);
    }

    #[test]
    fn of_another_silence_nothing_follows() {
        let silence = |until_ms| name_of_silence(Silence { until_ms, lease_ms: 5 });
        let ages = Ages::new(vec![(silence(70), 9), (at(1, 1), 4)]);
        assert_eq!([70, 69, 71].map(|until_ms| ages.of(silence(until_ms))), [Some(9), None, None]);
        assert_eq!(ages.of(at(1, 1)), Some(4));
    }

    /// What is told comes from outside: no number is too great to be looked at.
    #[test]
    fn the_greatest_age_is_no_news_to_who_told_it() {
        let (own, told) = (Ages::new(vec![(at(1, 1), 5)]), Ages::new(vec![(at(1, 1), u64::MAX)]));
        assert!(!own.tells(&told) && told.tells(&own));
    }

    #[test]
    fn of_many_ages_few_are_told_none_too_great_and_none_much_too_small() {
        let exact = |length: u64| (at(7, length), 3_600_000 - length);
        let ages = Ages::new((1..3_000_000).step_by(100).map(exact).chain([(at(6, 5), 9)]).collect());
        assert!(ages.points().len() <= AGES_MAX, "{}", ages.points().len());
        assert_eq!(ages.of(at(6, 5)), Some(9));
        for length in (1..3_000_000).step_by(100) {
            let (told_ms, age_ms) = (ages.of(at(7, length)).unwrap(), exact(length).1);
            assert!(told_ms <= age_ms && age_ms - told_ms <= 3_600_000 / AGES_STEPS + 1, "{told_ms} of {age_ms}");
        }
        let epochs = Ages::new((1..=2 * AGES_MAX as u64).map(|epoch| (at(epoch, 1), epoch)).collect());
        assert_eq!(epochs.points().len(), AGES_MAX);
        assert_eq!(epochs.of(at(2 * AGES_MAX as u64, 1)), Some(2 * AGES_MAX as u64), "the newest are told");
    }
}
