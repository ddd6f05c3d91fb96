//! Applications that enqueue groups. How large a group is and what its members are follows from its id, so that a client that goes on
//! with it, or begins it again, enqueues the same.

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
/// How often a call for a group is repeated after healing.
const TRIES_MAX: u32 = 40;

/// Groups in progress.
#[derive(Debug, Default)]
pub struct Groups {
    /// Groups that are to be complete after healing, and how often a call for each has failed since.
    tries: BTreeMap<TaskId, u32>,
    /// Latest time at which a client is known to go on with a group.
    until_us: u64,
}

impl Groups {
    /// Number of groups that are to be complete.
    pub fn count(&self) -> u64 {
        self.tries.len() as u64
    }

    /// Whether a client is about to go on with a group.
    pub fn are_open(&self, now_us: u64) -> bool {
        now_us <= self.until_us
    }
}

/// Number of members of a group.
fn total(group: TaskId) -> u32 {
    1 + (xxh3_64(group.as_bytes()) % MEMBERS_MAX) as u32
}

impl World {
    /// Tasks that a join waits for: its members, and the joins that these bring.
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

    /// Draws the join of a new group, now and then; some have names.
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

    /// Draws a whole group that a completion brings, now and then.
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

    /// Schedules the members of joins that are acknowledged; after healing also those of joins that may exist.
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

    /// Enqueues some of the members, or, once all are, sets how many there are.
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

    /// Goes on with a group. A failed call is given up, except after healing, when all groups are to be complete.
    pub fn members_answered(&mut self, client: usize, (group, next): (TaskId, u32), result: &Result<Response, Error>) {
        // Ids of members follow from that of their group: there are no other ids to try if nodes find these ahead.
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

    /// Begins every group again and completes it, at one client: its join may exist whatever was answered.
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
