//! Choice of the voters of the metadata group.

use super::{Member, Metadata, Seen};
use crate::limits::VOTERS_MAX;
use crate::ring::layout;
use crate::ring::layout::Holder;
use std::collections::BTreeMap;

/// With this many voters the metadata group survives the loss of one disk.
const SAFE: usize = 3;

impl Metadata {
    /// The members that the metadata group's own cohort should have: up to [`VOTERS_MAX`], an odd number where there is a choice, in as
    /// many zones as possible, with as few changes as that takes. Leaving and gone members do not vote any more. A silent member keeps
    /// its vote until it is gone, and gets no new one. Where only silent ones could take the vote of a leaving member, so that fewer than
    /// three were left, it keeps its vote until one of them is heard.
    pub fn voters_wanted(&self, seen: &Seen) -> Vec<u16> {
        let is_able = |number: &u16| seen.heard.contains(number) || seen.voters.contains(number);
        let few = self.holders().filter(|(number, _)| is_able(number)).count() < SAFE.min(self.holders().count());
        let stays = |number: &u16, member: &Member| few && seen.voters.contains(number) || member.state.may_hold();
        let able = self.present().filter(|(number, member)| is_able(number) && stays(number, member));
        let holders: BTreeMap<u16, Holder> =
            able.map(|(number, member)| (number, Holder { zone: member.zone.clone(), weight: 1 })).collect();
        let count = match holders.len() as u32 {
            // With two able members both vote: one more copy is worth more than a majority of one.
            few @ (0 | 2) => few,
            some => some.min(VOTERS_MAX) - u32::from(some < VOTERS_MAX && some.is_multiple_of(2)),
        };
        if count == 0 {
            return Vec::new();
        }
        let voters = vec![seen.voters.iter().copied().collect()];
        let mut lists = layout::plan(&holders, 1, count, &voters);
        let mut wanted = lists.pop().expect("one partition has one list");
        wanted.sort_unstable();
        assert_eq!(wanted.len(), count as usize, "so many members are able");
        wanted
    }
}

const _: () = assert!(VOTERS_MAX % 2 == 1 && VOTERS_MAX <= crate::limits::REPLICAS_MAX);
