//! Members that are gone: which may be declared gone automatically, which still leave lists to heal, and which may be forgotten.

use super::{Metadata, Seen, State};
use crate::limits::VISIBLE_MS;
use norn_wire::PartitionId;
use std::collections::{BTreeMap, BTreeSet};

impl Metadata {
    /// The one member that the leader of the metadata group may declare gone now, by [`super::Operation::Remove`]: silent for longest,
    /// and for longer than the setting. `silent_ms` gives for how long each member was silent, counted from no earlier than the
    /// leadership; members that are not in it count as silent, and are not chosen.
    ///
    /// None while fewer than two thirds of the members are visible, for it may be the leader that is cut off. None while another is gone
    /// and not healed, except for a member for which all that healing waits. And none that an operator could not remove.
    pub fn heal(&self, silent_ms: &BTreeMap<u16, u64>, seen: &Seen) -> Option<u16> {
        let after_ms = self.settings.heal_after_ms?;
        let is_visible = |number: &u16| silent_ms.get(number).is_some_and(|silent_ms| *silent_ms <= VISIBLE_MS);
        let present = self.present().count();
        let visible = self.present().filter(|(number, _)| is_visible(number)).count();
        if 3 * visible < 2 * present {
            return None;
        }
        let silent = self.present().filter_map(|(number, _)| Some((number, *silent_ms.get(&number)?)));
        let late: BTreeMap<u16, u64> = silent.filter(|(_, silent_ms)| *silent_ms >= after_ms).collect();
        let choice = self.waited_for(&late, seen).into_iter();
        // Among equals the lowest number.
        let number = choice.max_by_key(|number| (late[number], u16::MAX - number))?;
        let may_go = !seen.heard.contains(&number) && self.against_removal(number, seen).is_empty();
        may_go.then_some(number)
    }

    /// The late members that may be declared gone. All of them, if every member that is gone is healed. Otherwise those that were to take
    /// over from unhealed members, provided that every such partition waits for one of them, that all cohorts are known, and that no
    /// unhealed member is a voter of the metadata group.
    fn waited_for(&self, late: &BTreeMap<u16, u64>, seen: &Seen) -> BTreeSet<u16> {
        let unhealed: Vec<u16> = self.unhealed(seen).collect();
        if unhealed.is_empty() {
            return late.keys().copied().collect();
        }
        let mut waited_for = BTreeSet::new();
        for (partition, list) in (0..).map(PartitionId).zip(&self.layout.lists) {
            let Some(cohort) = seen.cohorts.get(&partition) else { return BTreeSet::new() };
            let alive = cohort.iter().filter(|number| seen.heard.contains(number)).count();
            // Without a majority the partition cannot move, whichever members are gone: it waits for one of these to come back.
            let stands = 2 * alive <= cohort.len();
            if stands || !unhealed.iter().any(|gone| cohort.contains(gone) || list.contains(gone)) {
                continue;
            }
            let mut comes =
                list.iter().filter(|number| !cohort.contains(number) && late.contains_key(number)).peekable();
            if comes.peek().is_none() {
                return BTreeSet::new();
            }
            waited_for.extend(comes);
        }
        if unhealed.iter().any(|gone| seen.voters.contains(gone)) { BTreeSet::new() } else { waited_for }
    }

    /// Members that are gone and still named, or possibly named, by the layout or a cohort.
    pub fn unhealed(&self, seen: &Seen) -> impl Iterator<Item = u16> {
        let gone = self.members.iter().filter(|(_, member)| member.state == State::Gone).map(|(number, _)| *number);
        let is_all_known =
            (0..self.partitions as u16).all(|partition| seen.cohorts.contains_key(&PartitionId(partition)));
        gone.filter(move |number| !is_all_known || self.held_by(*number, seen) > 0 || seen.voters.contains(number))
    }

    /// A gone member that nothing names any more, to be forgotten by [`super::Operation::Forget`].
    pub fn forgettable(&self, seen: &Seen) -> Option<u16> {
        let gone = self.members.iter().filter(|(_, member)| member.state == State::Gone).map(|(number, _)| *number);
        let unhealed: Vec<u16> = self.unhealed(seen).collect();
        gone.into_iter().find(|number| !unhealed.contains(number))
    }
}
