//! The target layout, and the order of the moves towards it.

use super::{Layout, Metadata, Seen, State};
use crate::ring::layout;
use crate::ring::layout::Holder;
use norn_wire::PartitionId;
use norn_wire::membership::Share;
use std::collections::{BTreeMap, BTreeSet};

/// A partition whose cohort should change now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The partition.
    pub partition: PartitionId,
    /// Its members by the layout, the preferred leader first.
    pub list: Vec<u16>,
    /// Whether it has a member that is gone.
    pub heals: bool,
}

impl Metadata {
    /// The next layout: planned for the members that may get replicas, as near to the present one as possible. None as long as the
    /// planner's input has not changed, so that operators' arrangements stay.
    pub fn plan(&self) -> Option<Layout> {
        if !self.stale {
            return None;
        }
        let holder = |zone: &str, weight| Holder { zone: zone.to_owned(), weight };
        let holders: BTreeMap<u16, Holder> =
            self.holders().map(|(number, member)| (number, holder(&member.zone, member.weight))).collect();
        if holders.is_empty() {
            return None;
        }
        let lists = layout::plan(&holders, self.partitions, self.replicas, &self.layout.lists);
        assert!(lists.iter().all(|list| !list.is_empty()), "a partition is planned for nobody");
        Some(Layout { version: self.layout.version.saturating_add(1), lists })
    }

    /// For people: for each member, the partitions that it holds by the cohorts and should hold by the layout. Partitions whose cohort is
    /// not known are left out.
    pub fn moves(&self, cohorts: &BTreeMap<PartitionId, Vec<u16>>) -> BTreeMap<u16, Share> {
        let mut progress: BTreeMap<u16, Share> =
            self.members.keys().map(|number| (*number, Share::default())).collect();
        for (partition, list) in (0..).map(PartitionId).zip(&self.layout.lists) {
            let Some(cohort) = cohorts.get(&partition) else { continue };
            for number in list {
                let member = progress.entry(*number).or_default();
                if cohort.contains(number) { member.stay += 1 } else { member.come += 1 }
            }
            for number in cohort.iter().filter(|number| !list.contains(number)) {
                progress.entry(*number).or_default().go += 1;
            }
        }
        progress
    }

    /// Moves to begin now, beside those of the partitions `under_way`.
    ///
    /// At most `moves_at_once` partitions move at once, and at most `moves_at_once_each` to or from one member; a gone member is no
    /// bound. Partitions that lack a member go first, then those that a leaving member holds, then the others in order. A move that
    /// cannot end now is not begun: it needs a majority of the cohort, and of the list, alive.
    pub fn next_moves(&self, seen: &Seen, under_way: &BTreeSet<PartitionId>) -> Vec<Move> {
        let mut busy: BTreeMap<u16, u32> = BTreeMap::new();
        let mut free = (self.settings.moves_at_once as usize).saturating_sub(under_way.len());
        let mut waiting: Vec<(u8, PartitionId)> = Vec::new();
        for (partition, list) in (0..).map(PartitionId).zip(&self.layout.lists) {
            let Some(cohort) = seen.cohorts.get(&partition) else { continue };
            if under_way.contains(&partition) {
                self.concerned(cohort, list).for_each(|number| *busy.entry(number).or_default() += 1);
            } else if self.is_possible(cohort, list, seen) && !is_same(cohort, list) {
                waiting.push((self.urgency(cohort), partition));
            }
        }
        waiting.sort_unstable();
        let mut moves = Vec::new();
        for (urgency, partition) in waiting {
            let list = &self.layout.lists[usize::from(partition.0)];
            let concerned: Vec<u16> = self.concerned(&seen.cohorts[&partition], list).collect();
            let has_room =
                |number: &u16| busy.get(number).is_none_or(|moves| *moves < self.settings.moves_at_once_each);
            if free == 0 {
                break;
            }
            if concerned.iter().all(has_room) {
                concerned.into_iter().for_each(|number| *busy.entry(number).or_default() += 1);
                moves.push(Move { partition, list: list.clone(), heals: urgency == 0 });
                free -= 1;
            }
        }
        assert!(moves.len() <= self.settings.moves_at_once as usize, "too many partitions move at once");
        moves
    }

    /// Number of partitions whose cohort is known and differs from the layout.
    pub fn open_moves(&self, seen: &Seen) -> u32 {
        let lists = (0..).map(PartitionId).zip(&self.layout.lists);
        let is_open = |(partition, list): &(PartitionId, &Vec<u16>)| {
            seen.cohorts.get(partition).is_some_and(|cohort| !is_same(cohort, list))
        };
        lists.filter(is_open).count() as u32
    }

    /// Members between which data of a partition moves: those that come, and those that go unless they are gone.
    fn concerned<'a>(&'a self, cohort: &'a [u16], list: &'a [u16]) -> impl Iterator<Item = u16> + 'a {
        let come = list.iter().filter(|number| !cohort.contains(number));
        let go = cohort.iter().filter(|number| !list.contains(number) && self.is_present(**number));
        come.chain(go).copied()
    }

    fn is_present(&self, number: u16) -> bool {
        self.state_of(number).is_some_and(State::is_present)
    }

    /// 0 if the partition must be healed, 1 if a leaving member waits for its move, otherwise 2.
    fn urgency(&self, cohort: &[u16]) -> u8 {
        if cohort.iter().any(|number| !self.is_present(*number)) {
            return 0;
        }
        if cohort.iter().any(|number| self.state_of(*number) == Some(State::Leaving)) { 1 } else { 2 }
    }

    fn is_possible(&self, cohort: &[u16], list: &[u16], seen: &Seen) -> bool {
        let is_majority = |members: &[u16]| {
            let alive =
                members.iter().filter(|number| self.is_present(**number) && seen.heard.contains(number)).count();
            2 * alive > members.len()
        };
        is_majority(cohort) && is_majority(list)
    }
}

/// Whether both have the same members, with the same preferred leader.
fn is_same(cohort: &[u16], list: &[u16]) -> bool {
    let members = |list: &[u16]| list.iter().copied().collect::<BTreeSet<u16>>();
    cohort.first() == list.first() && members(cohort) == members(list)
}
