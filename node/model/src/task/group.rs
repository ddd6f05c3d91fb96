//! Dependencies of a task: the tasks that it names and, for the join of a group, the group's members.

use super::{Content, Members, Task};
use crate::limits::GROUP_WINDOW;
use norn_wire::TaskId;
use norn_wire::group::{GroupView, Join, MemberOf};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Facts about a group, at its join.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Number of members.
    pub total: Option<u32>,
    /// Outcomes of members.
    pub members: Members,
    /// Joins that the completions of members brought: the group has not ended before they have. Sorted.
    pub joins: Vec<TaskId>,
}

impl GroupFacts {
    /// Only the number of members.
    pub fn closed(total: u32) -> GroupFacts {
        GroupFacts { total: Some(total), ..GroupFacts::default() }
    }

    /// Merges other facts. Returns whether both contradict each other.
    pub fn merge(&mut self, other: GroupFacts) -> bool {
        let conflict = self.contradicts(&other);
        self.total = self.total.max(other.total);
        self.members.merge(&other.members);
        for join in other.joins {
            if let Err(place) = self.joins.binary_search(&join) {
                self.joins.insert(place, join);
            }
        }
        conflict
    }

    /// Whether merging other facts would add nothing.
    pub fn knows(&self, other: &GroupFacts) -> bool {
        self.total >= other.total
            && self.members.knows(&other.members)
            && other.joins.iter().all(|join| self.joins.binary_search(join).is_ok())
    }

    /// Whether other facts state another number of members.
    pub fn contradicts(&self, other: &GroupFacts) -> bool {
        self.total.zip(other.total).is_some_and(|(known, total)| known != total)
    }

    /// Bytes, for budgets.
    pub fn size_bytes(&self) -> usize {
        size_of::<GroupFacts>() + self.members.size_bytes() + self.joins.len() * size_of::<TaskId>()
    }
}

impl<S: Content> Task<S> {
    /// The group of which it is the join.
    pub fn join(&self) -> Option<Join> {
        self.spec.as_ref()?.grouping()?.join
    }

    /// The group of which it is a member.
    pub fn member_of(&self) -> Option<MemberOf> {
        self.spec.as_ref()?.grouping()?.member
    }

    fn group(&self) -> Option<&super::GroupFacts> {
        self.facts.as_ref()?.group.as_deref()
    }

    /// For a join: the number of members of its group, if known.
    pub fn total(&self) -> Option<u32> {
        self.join()?.total.or_else(|| self.group()?.total)
    }

    fn is_settled(&self, other: &TaskId) -> bool {
        let settled = self.facts.as_ref().map_or(&[][..], |facts| &facts.settled);
        settled.binary_search_by(|(known, _)| known.cmp(other)).is_ok()
    }

    /// For a join: members that have not ended as far as it knows, by number. None as long as the number of members is not known.
    pub fn open_members(&self) -> impl Iterator<Item = u32> + '_ {
        let total = self.total().unwrap_or(0);
        let known = self.group().map(|group| group.members.open(total));
        let unheard = if known.is_none() { 1..total.saturating_add(1) } else { 0..0 };
        known.into_iter().flatten().chain(unheard)
    }

    /// Whether it has ended and is kept for the join of its group, which may still ask for its outcome.
    pub fn awaits_join(&self) -> bool {
        self.member_of().is_some_and(|member| self.ended().is_some() && !self.is_settled(&member.group))
    }

    /// Whether it may not be claimed yet, as dependencies are open.
    pub fn is_blocked(&self) -> bool {
        let after = self.spec.as_ref().map_or(&[][..], Content::after);
        let joins = self.group().map_or(&[][..], |group| &group.joins);
        let open_group = self.join().is_some() && (self.total().is_none() || self.open_members().next().is_some());
        open_group || after.iter().chain(joins).any(|id| !self.is_settled(id))
    }

    /// Dependencies that are not settled: before it can be claimed or, once it has ended, be buried. Of a group, the first members: the
    /// others follow when these have ended.
    pub fn waits_for(&self, id: &TaskId) -> Vec<TaskId> {
        if self.ended().is_some() {
            return self.member_of().filter(|_| self.awaits_join()).map(|member| member.group).into_iter().collect();
        }
        let after = self.spec.as_ref().map_or(&[][..], Content::after);
        let joins = self.group().map_or(&[][..], |group| &group.joins);
        let open = after.iter().chain(joins).filter(|id| !self.is_settled(id)).copied();
        let members = self.open_members().take(GROUP_WINDOW).map(|number| MemberOf { group: *id, number }.id());
        // One task may be named more than once: as a member of the group, and in the list of the client.
        let mut seen = BTreeSet::new();
        open.chain(members).filter(|other| seen.insert(*other)).collect()
    }

    /// For a join: the progress of its group.
    pub fn group_view(&self) -> Option<GroupView> {
        self.join()?;
        let total = self.total();
        let counts = |group: &super::GroupFacts| group.members.counts(total.unwrap_or(u32::MAX));
        let (ended, failed) = self.group().map_or((0, 0), counts);
        Some(GroupView { total, ended, failed })
    }

    /// For a join: whether the other members are to be cancelled, as one has failed.
    pub fn aborts_group(&self) -> bool {
        self.join().is_some_and(|join| join.fail_fast)
            && self.ended().is_none()
            && self.group_view().is_some_and(|group| group.total.is_some() && group.failed > 0)
    }
}
