//! Outcomes of a group's members, by number: as runs of members with equal outcomes, as most have.

use super::Settled;
use norn_wire::limits::GROUP_MEMBERS_MAX;
use serde::{Deserialize, Serialize};

/// A range of members, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Run {
    first: u32,
    last: u32,
    how: Settled,
}

/// Member outcomes. Runs are sorted and as long as can be, so that the same knowledge is always the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Run>")]
pub struct Members(Vec<Run>);

impl TryFrom<Vec<Run>> for Members {
    type Error = &'static str;

    fn try_from(runs: Vec<Run>) -> Result<Self, Self::Error> {
        let sound = |run: &Run| 1 <= run.first && run.first <= run.last && run.last <= GROUP_MEMBERS_MAX;
        let apart = |pair: &[Run]| {
            pair[0].last < pair[1].first && (pair[0].last + 1 < pair[1].first || pair[0].how != pair[1].how)
        };
        if runs.iter().all(sound) && runs.windows(2).all(apart) {
            Ok(Members(runs))
        } else {
            Err("members of a group are in order, each once")
        }
    }
}

impl Members {
    /// Only that one member has ended.
    pub fn of(number: u32, how: Settled) -> Members {
        assert!((1..=GROUP_MEMBERS_MAX).contains(&number), "members are numbered from 1");
        Members(vec![Run { first: number, last: number, how }])
    }

    /// How a member ended.
    pub fn get(&self, number: u32) -> Option<Settled> {
        let place = self.0.partition_point(|run| run.last < number);
        self.0.get(place).filter(|run| run.first <= number).map(|run| run.how)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Members up to a number that have not ended, in order.
    pub fn open(&self, total: u32) -> impl Iterator<Item = u32> + '_ {
        let ends = self.0.iter().map(|run| run.first).chain([total.saturating_add(1)]);
        let begins = [1].into_iter().chain(self.0.iter().map(|run| run.last + 1));
        begins.zip(ends).flat_map(move |(from, to)| from..to.min(total.saturating_add(1)))
    }

    /// Number of members up to a number that have ended, and of these the number that ended otherwise than by completion.
    pub fn counts(&self, total: u32) -> (u32, u32) {
        let within = self.0.iter().filter(|run| run.first <= total);
        within.fold((0, 0), |(ended, failed), run| {
            let length = run.last.min(total) - run.first + 1;
            (ended + length, failed + if run.how == Settled::Done { 0 } else { length })
        })
    }

    /// Approximate memory, and bytes in a message.
    pub fn size_bytes(&self) -> usize {
        self.0.len() * size_of::<Run>()
    }

    /// Whether merging would add nothing.
    pub fn knows(&self, other: &Members) -> bool {
        let mut merged = self.clone();
        merged.merge(other);
        merged == *self
    }

    /// Merges: the greater outcome for each member.
    pub fn merge(&mut self, other: &Members) {
        if other.0.is_empty() {
            return;
        }
        let mut merged = Members(Vec::with_capacity(self.0.len() + other.0.len()));
        let (mut left, mut right) = (self.0.iter().copied(), other.0.iter().copied());
        let (mut own, mut theirs) = (left.next(), right.next());
        loop {
            match (own, theirs) {
                (None, None) => break,
                (Some(run), None) => {
                    merged.push(run);
                    own = left.next();
                }
                (None, Some(run)) => {
                    merged.push(run);
                    theirs = right.next();
                }
                (Some(a), Some(b)) if a.last < b.first => {
                    merged.push(a);
                    own = left.next();
                }
                (Some(a), Some(b)) if b.last < a.first => {
                    merged.push(b);
                    theirs = right.next();
                }
                (Some(a), Some(b)) if a.first < b.first => {
                    merged.push(Run { last: b.first - 1, ..a });
                    own = Some(Run { first: b.first, ..a });
                }
                (Some(a), Some(b)) if b.first < a.first => {
                    merged.push(Run { last: a.first - 1, ..b });
                    theirs = Some(Run { first: a.first, ..b });
                }
                (Some(a), Some(b)) => {
                    let last = a.last.min(b.last);
                    merged.push(Run { first: a.first, last, how: a.how.max(b.how) });
                    let rest = |run: Run| (run.last > last).then_some(Run { first: last + 1, ..run });
                    own = rest(a).or_else(|| left.next());
                    theirs = rest(b).or_else(|| right.next());
                }
            }
        }
        assert!(!merged.is_empty(), "a merge loses what was known of members");
        *self = merged;
    }

    /// Appends a run behind all others.
    fn push(&mut self, run: Run) {
        assert!(run.first <= run.last, "a run of members ends before it begins");
        assert!(self.0.last().is_none_or(|last| last.last < run.first), "two runs of members overlap");
        match self.0.last_mut() {
            Some(last) if last.last + 1 == run.first && last.how == run.how => last.last = run.last,
            _ => self.0.push(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn how() -> impl Strategy<Value = Settled> {
        prop_oneof![Just(Settled::Done), Just(Settled::Dead), Just(Settled::Cancelled), Just(Settled::Forgotten)]
    }

    fn build(known: &[(u32, Settled)]) -> (Members, BTreeMap<u32, Settled>) {
        let (mut members, mut map) = (Members::default(), BTreeMap::new());
        for (number, how) in known {
            members.merge(&Members::of(*number, *how));
            let known = map.entry(*number).or_insert(*how);
            *known = (*known).max(*how);
        }
        (members, map)
    }

    proptest! {
        #[test]
        fn runs_say_what_a_map_would(
            a in proptest::collection::vec((1u32..40, how()), 0..60),
            b in proptest::collection::vec((1u32..40, how()), 0..60),
        ) {
            let (mut members, mut map) = build(&a);
            let (other, others) = build(&b);
            prop_assert_eq!(members.knows(&other), others.iter().all(|(number, how)| map.get(number) >= Some(how)));
            members.merge(&other);
            for (number, how) in others {
                let known = map.entry(number).or_insert(how);
                *known = (*known).max(how);
            }
            let all: BTreeMap<u32, Settled> = (0..50).filter_map(|number| Some((number, members.get(number)?))).collect();
            prop_assert_eq!(&all, &map);
            for total in [0, 7, 39, 45] {
                let open: Vec<u32> = (1..=total).filter(|number| !map.contains_key(number)).collect();
                prop_assert_eq!(members.open(total).collect::<Vec<_>>(), open);
                let within = map.range(..=total);
                let failed = within.clone().filter(|(_, how)| **how != Settled::Done).count();
                prop_assert_eq!(members.counts(total), (within.count() as u32, failed as u32));
            }
            let bytes = rmp_serde::to_vec(&members).unwrap();
            prop_assert_eq!(rmp_serde::from_slice::<Members>(&bytes).unwrap(), members);
        }
    }

    #[test]
    fn what_is_no_list_of_members_is_not_read() {
        let run = |first, last| Run { first, last, how: Settled::Done };
        for runs in [
            vec![run(0, 1)],
            vec![run(2, 1)],
            vec![run(1, u32::MAX)],
            vec![run(1, 2), run(2, 3)],
            vec![run(1, 2), run(3, 3)],
        ] {
            let bytes = rmp_serde::to_vec(&runs).unwrap();
            assert!(rmp_serde::from_slice::<Members>(&bytes).is_err(), "{runs:?}");
        }
    }
}
