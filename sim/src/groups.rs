//! Applications that enqueue groups. How large a group is and what its members are follows from its id, so that whoever goes on
//! with it, or begins it again, hands in the same.

use crate::adapter::{Call, Draft};
use crate::history::acks_of;
use crate::workload::{Act, Purpose, numbered_queue};
use crate::world::World;
use norn_wire::group::MemberOf;
use norn_wire::request::{Acks, Request, Spec};
use norn_wire::response::Response;
use norn_wire::{Error, TaskId};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Largest group.
const MEMBERS_MAX: u64 = 8;
/// After healing a call for a group is made again so often.
const TRIES_MAX: u32 = 40;

/// Groups that are on their way.
#[derive(Debug, Default)]
pub struct Groups {
    /// Those that are to be whole after healing, and how often a call for them has failed since.
    tries: BTreeMap<TaskId, u32>,
    /// When the last one is gone on with of which that is known.
    until_us: u64,
}

impl Groups {
    /// How many are to be whole.
    pub fn count(&self) -> u64 {
        self.tries.len() as u64
    }

    /// Whether somebody is about to go on with one.
    pub fn are_open(&self, now_us: u64) -> bool {
        now_us <= self.until_us
    }
}

/// How many members a group has.
fn total(group: TaskId) -> u32 {
    1 + (xxh3_64(group.as_bytes()) % MEMBERS_MAX) as u32
}

impl World {
    /// Of a join: its members, and what they bring that belongs to the group.
    pub fn waited_for_by_join(&self, id: TaskId) -> Vec<TaskId> {
        let join = self.history.specs.get(&id).and_then(|spec| spec.grouping.as_ref()?.join);
        let count = join.map_or(0, |join| join.total.unwrap_or_else(|| total(id)));
        let members = (1..=count).map(|number| MemberOf { group: id, number }.id());
        members
            .flat_map(|member| self.history.joins.get(&member).cloned().unwrap_or_default().into_iter().chain([member]))
            .collect()
    }

    fn member(&self, group: TaskId, number: u32) -> Draft {
        let place = (xxh3_64(group.as_bytes()) >> 8).wrapping_add(u64::from(number)) % self.options.queues;
        let queue = numbered_queue(place);
        Draft::new(queue, format!("member {number}")).attempts_max(3).member_of(group, number)
    }

    fn may_group(&mut self) -> bool {
        let percent = self.options.group_percent;
        percent > 0 && self.randoms.groups.chance(percent, 100)
    }

    /// The join of a new group, now and then; some have names.
    pub fn draw_group(&mut self) -> Option<Call> {
        if !self.may_group() {
            return None;
        }
        self.count("sometimes: group begun");
        let queue = self.draw_queue();
        let random = &mut self.randoms.groups;
        let join = Draft::new(queue, "join").join(None, random.chance(1, 3));
        if random.chance(1, 3) {
            let draft = Box::new(join.group_name(&format!("{}", random.below(2))));
            return Some(Call::EnqueueUnique { draft });
        }
        let acks = if random.chance(1, 4) { Acks::One } else { Acks::Quorum };
        Some(Call::Enqueue { drafts: vec![join], acks })
    }

    /// A group that a completion brings as a whole, now and then.
    pub fn draw_child_group(&mut self) -> Option<Vec<Draft>> {
        if !self.may_group() {
            return None;
        }
        self.count("sometimes: group brought");
        let (total, fail_fast) = (self.randoms.groups.between(1, 4) as u32, self.randoms.groups.chance(1, 3));
        let join = Draft::new(self.draw_queue(), "inner join").join(Some(total), fail_fast);
        let members = (1..=total).map(|number| self.member(TaskId::MIN, number));
        Some([join].into_iter().chain(members).collect())
    }

    /// Joins that are acknowledged are followed by their members; near the end those that may be there, too.
    pub fn begin_groups(&mut self, client: usize, result: &Result<Response, Error>) {
        let healed = self.healed();
        let mut ids: Vec<TaskId> = result.iter().flat_map(acks_of).map(|(_, acked)| acked.id).collect();
        let items = match result {
            Ok(Response::Acked(items)) => items.iter().filter_map(|item| item.as_ref().err()).collect(),
            Ok(_) => Vec::new(),
            Err(error) => vec![error],
        };
        ids.extend(items.into_iter().filter_map(|error| error.id).filter(|_| healed));
        for id in ids {
            let spec = self.history.specs.get(&id);
            let join = spec.and_then(|spec| spec.grouping.as_ref()?.join);
            if join.is_some_and(|join| join.total.is_none()) {
                if healed {
                    self.groups.tries.entry(id).or_insert(0);
                }
                let delay_us = self.randoms.groups.between(1_000, 500_000);
                self.act_members_in(client, delay_us, (id, 1));
            }
        }
    }

    fn act_members_in(&mut self, client: usize, delay_us: u64, (group, from): (TaskId, u32)) {
        self.groups.until_us = self.groups.until_us.max(self.now_us + delay_us);
        self.act_in(client, delay_us, Act::Members(group, from));
    }

    /// Enqueues some of the members, or, when all are, says how many there are.
    pub fn act_members(&mut self, client: usize, group: TaskId, from: u32) {
        let total = total(group);
        let acks = if self.healed() { Acks::Quorum } else { self.draw_acks() };
        if from > total {
            let request = Request::CloseGroup { id: group, total, acks };
            return self.submit(client, Call::Request(request), Purpose::Group(group, 0));
        }
        let last = if self.randoms.groups.chance(1, 2) { total } else { from };
        let drafts = (from..=last).map(|number| self.member(group, number)).collect();
        self.submit(client, Call::Enqueue { drafts, acks }, Purpose::Group(group, last + 1));
    }

    /// Goes on with a group. What failed is given up, unless the end is near, when all groups are to be whole.
    pub fn members_answered(&mut self, client: usize, (group, next): (TaskId, u32), result: &Result<Response, Error>) {
        // Ids of members follow from that of their group: there are no others, if nodes find these ahead.
        let may_help = |error: &Error| error.passes() || error.after_ms.is_some();
        let passes = match result {
            Ok(Response::Acked(items)) => items.iter().any(|item| item.as_ref().is_err_and(may_help)),
            Ok(_) => false,
            Err(error) => may_help(error),
        };
        let delay_us = self.randoms.groups.between(1_000, 1_000_000);
        if !passes {
            return if next > 0 {
                self.act_members_in(client, delay_us, (group, next))
            } else {
                self.count("groups closed")
            };
        }
        let healed = self.healed();
        let Some(tries) = self.groups.tries.get_mut(&group).filter(|tries| healed && **tries < TRIES_MAX) else {
            return;
        };
        *tries += 1;
        self.act_members_in(client, delay_us, (group, 1));
    }

    /// Whoever has begun a group, or somebody else, begins it again, and ends it: its join may be there whatever was answered.
    pub fn complete_groups(&mut self) {
        let begun = |spec: &Spec| {
            spec.grouping.as_ref().and_then(|grouping| grouping.join).is_some_and(|join| join.total.is_none())
        };
        let begun = self.history.specs.iter().filter(|(_, spec)| begun(spec)).map(|(id, _)| *id);
        for group in begun.collect::<Vec<_>>() {
            self.groups.tries.insert(group, 0);
            let delay_us = self.randoms.groups.between(1_000, 1_000_000);
            self.act_members_in(0, delay_us, (group, 1));
        }
    }
}
