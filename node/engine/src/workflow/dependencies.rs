//! Dependencies: tasks that wait for others (`after` in their specs).
//!
//! That a task has ended never becomes untrue, so one replica that knows it is enough, and a node that has heard of it need not ask
//! again. The leader of a waiting task asks the leaders of the tasks that it waits for, once. These remember the askers, and notify
//! them when the end comes. The notice becomes a fact of the waiting task (`settled`), which merges like all facts: no later leader
//! depends on what was asked, nor on a task that was finished and forgotten meanwhile. Questions and answers may be lost, and leaders
//! move: a slow sweep over what is still waited for asks again, and asks other replicas where no message reaches the leader. The sweep
//! hurries only after a change of leader, or after a connection was lost.
//!
//! A task that no node knows may still come, as a graph may be enqueued in any order. A task never will if it is unknown to a majority
//! of its replicas, each of which has forgotten later ids: it was finished and forgotten, or it never existed. No node can tell which,
//! so it counts as failed. A single replica's word is not enough for that, not even the leader's: what was acknowledged is on a
//! majority, and may have missed any one.
//!
//! **Groups.** A join waits for the members of its group in the same way: their ids follow from its own and their numbers, so it needs
//! no list of them and no notice of each. Their outcomes are kept in runs (`Members`). The join waits for the first members that have
//! not ended, and for the next ones when these have. A completion that brings the join of another group makes its own group wait for
//! that join too: the notice of the end names it. A member that has ended waits for its join in turn, and is not buried before the join
//! has ended, so that its result can be read until then.

use crate::Node;
use crate::context::timers::Key;
use crate::write_read::PendingRequest;
use crate::write_read::coordinate::Writer;
use crdts::CvRDT;
use norn_model::config::mutant;
use norn_model::limits::{DEPENDENTS_MAX, FOLLOWED_MAX, FOLLOWERS_MAX, GROUP_WINDOW};
use norn_model::message::Workflow;
use norn_model::task::{Cancel, Content, GROUP_FAILED, GroupFacts, Members, Outline, Settled, Task};
use norn_model::viewstamp::Viewstamp;
use norn_wire::group::MemberOf;
use norn_wire::limits::GROUP_MEMBERS_MAX;
use norn_wire::membership::FailedDependency;
use norn_wire::{Acks, NodeId, PartitionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Pause between two pieces of a sweep.
const PIECE_MS: u64 = 20;

/// Time per task that sweeps ask for when they are in no hurry, over all sweeps of a node: their cost does not grow with the number of
/// waiting tasks.
const ASK_US: u64 = 200;

/// Longest pause of a sweep, however much was asked in a hurry.
const OWED_US_MAX: u64 = 120_000_000;

/// Of the tasks that wait for one, the sweep checks this many for groups that are not to go on.
const WAITING_LOOKED_AT: usize = 4;

/// A node that asked, and the partition that it leads and asked for.
type Asker = (NodeId, PartitionId);

/// A known end, until all tasks that waited for it have been looked at.
#[derive(Debug, Clone)]
struct End {
    how: Settled,
    /// Joins that its completions brought.
    joins: Vec<TaskId>,
    /// Dependents up to this one have been looked at.
    upto: Option<TaskId>,
}

/// Replicas that do not know a task and never will.
#[derive(Debug, Default)]
struct Doubt {
    /// Version of the cohort that they answered for.
    version: Viewstamp,
    by: BTreeSet<NodeId>,
}

/// What this node knows of dependencies beside the facts. Lost with a restart, or when the leader steps down: sweeps make up for it.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// By partition that is led here: askers to notify of the end of its tasks. They are no followers in the sense of Raft.
    followers: BTreeMap<PartitionId, BTreeSet<(TaskId, Asker)>>,
    followers_count: usize,
    /// By partition that is led here: ends that its tasks have waited for.
    ends: BTreeMap<PartitionId, BTreeMap<TaskId, End>>,
    /// By partition that is led here: tasks that its tasks wait for and that some replicas take for forgotten, as long as they are
    /// waited for.
    doubts: BTreeMap<PartitionId, BTreeMap<TaskId, Doubt>>,
    /// How far the sweep of a partition that is led here is.
    swept: BTreeMap<PartitionId, TaskId>,
    /// When it goes on.
    next_us: BTreeMap<PartitionId, u64>,
    /// Partitions whose sweep is in a hurry: leaders have changed since they were asked.
    hurried: BTreeSet<PartitionId>,
    /// When the sweeps have paid for what they asked for.
    paid_us: u64,
    /// Joins whose members are being cancelled.
    aborting: BTreeSet<TaskId>,
}

impl Dependencies {
    /// Remembers an asker, if there is space; the others ask again.
    fn follow(&mut self, partition: PartitionId, id: TaskId, asker: Asker) {
        if self.followers_count < FOLLOWERS_MAX {
            let new = self.followers.entry(partition).or_default().insert((id, asker));
            self.followers_count += usize::from(new);
        }
    }

    fn take_followers(&mut self, partition: PartitionId, id: &TaskId) -> Vec<Asker> {
        let Some(followed) = self.followers.get_mut(&partition) else { return Vec::new() };
        let (first, last) = ((NodeId(0), PartitionId(0)), (NodeId(u128::MAX), PartitionId(u16::MAX)));
        let taken: Vec<(TaskId, Asker)> = followed.range((*id, first)..=(*id, last)).copied().collect();
        for asker in &taken {
            followed.remove(asker);
        }
        self.followers_count -= taken.len();
        taken.into_iter().map(|(_, asker)| asker).collect()
    }

    /// When a sweep that has asked for this many tasks may go on.
    fn pay(&mut self, now_us: u64, asked: usize) -> u64 {
        let paid_us = self.paid_us.max(now_us) + asked as u64 * ASK_US;
        self.paid_us = paid_us.min(now_us + OWED_US_MAX);
        self.paid_us
    }

    fn is_doubted(&self, partition: PartitionId, id: &TaskId) -> bool {
        self.doubts.get(&partition).is_some_and(|doubts| doubts.contains_key(id))
    }

    /// This node does not lead a partition any more.
    pub fn step_down(&mut self, partition: PartitionId) {
        let followed = self.followers.remove(&partition).unwrap_or_default();
        self.followers_count -= followed.len();
        self.ends.remove(&partition);
        self.doubts.remove(&partition);
        self.swept.remove(&partition);
        self.next_us.remove(&partition);
        self.hurried.remove(&partition);
    }
}

impl Node {
    /// Asks for the ends of tasks that newly came to be waited for, at their dependents' leader.
    pub(crate) fn note_blocked(&mut self, partition: PartitionId, by: BTreeSet<TaskId>) {
        if self.partitions.get(&partition).is_some_and(|replica| replica.consensus.established()) {
            self.ask_for_ends(partition, by.into_iter());
            self.timers.set_if_none(Key::Follow(partition), self.after_ms(self.config.sweep_interval_ms));
        }
    }

    /// A new leader has no answers and knows no askers.
    pub(crate) fn begin_following(&mut self, partition: PartitionId) {
        self.workflow.dependencies.step_down(partition);
        self.follow_anew();
        self.workflow.dependencies.hurried.insert(partition);
        self.timers.set(Key::Follow(partition), self.now.mono_us);
    }

    /// A leader is new, or messages may be lost: sweeps ask for all ends once more, in a hurry.
    pub(crate) fn follow_anew(&mut self) {
        let next_us = self.after_ms(self.config.sweep_interval_ms);
        for (partition, at_us) in &mut self.workflow.dependencies.next_us {
            *at_us = next_us.min(*at_us);
            self.workflow.dependencies.swept.remove(partition);
            self.workflow.dependencies.hurried.insert(*partition);
            self.timers.set_earliest(Key::Follow(*partition), *at_us);
        }
    }

    pub(crate) fn ask_for_ends(&mut self, partition: PartitionId, ids: impl Iterator<Item = TaskId>) {
        let mut by_node: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
        for id in ids {
            let all = self.workflow.dependencies.is_doubted(partition, &id);
            for node in self.who_tells(self.partition_of(&id), all) {
                by_node.entry(node).or_default().push(id);
            }
        }
        for (node, ids) in by_node {
            for ids in ids.chunks(FOLLOWED_MAX) {
                self.outbox.send(node, Workflow::Follow { partition, ids: ids.to_vec() });
            }
        }
    }

    /// Asks for the end of a task that a read at this node waits for; it need not be led here, nor be known. Where no node can be asked,
    /// the read is repeated as soon as if no replica had answered.
    pub(crate) fn follow_for_read(&mut self, request_id: u64) {
        let Some(PendingRequest::Read(read)) = self.pending_requests.get(request_id) else { return };
        let (id, deadline_us) = (read.id, read.deadline_us);
        let partition = self.partition_of(&id);
        if !self.who_tells(partition, false).is_empty() {
            self.ask_for_ends(partition, std::iter::once(id));
            let sweep_us = self.after_ms(self.config.sweep_interval_ms);
            self.timers.set(Key::PendingRequest(request_id), sweep_us.min(deadline_us));
        }
    }

    /// The leader of a partition. All replicas if no message reaches it, as they learn of ends as well, only later; or if one of them
    /// does not know the task and never will.
    fn who_tells(&self, partition: PartitionId, all: bool) -> Vec<NodeId> {
        match self.leader_of(partition).filter(|leader| self.is_reachable(*leader) && !all) {
            Some(leader) => vec![leader],
            None => self.cohort_of(partition).nodes().into_iter().filter(|node| self.is_reachable(*node)).collect(),
        }
    }

    /// Looks at the known ends, and goes on with the sweep.
    pub(crate) fn sweep_dependencies(&mut self, partition: PartitionId) {
        if !self.partitions.get(&partition).is_some_and(|replica| replica.consensus.established()) {
            return;
        }
        if self.settle_dependents(partition) {
            self.timers.set(Key::Follow(partition), self.now.mono_us);
            return;
        }
        let next_us = self.workflow.dependencies.next_us.get(&partition).copied();
        if let Some(next_us) = next_us.filter(|next_us| self.now.mono_us < *next_us) {
            self.timers.set(Key::Follow(partition), next_us);
            return;
        }
        let swept = self.workflow.dependencies.swept.remove(&partition);
        let index = self.partitions[&partition].store.index();
        if let Some(doubts) = self.workflow.dependencies.doubts.get_mut(&partition).filter(|_| swept.is_none()) {
            let consensus = &self.partitions[&partition].consensus;
            doubts.retain(|id, _| index.dependents(id, None).next().is_some() || consensus.has_session(id));
        }
        let ids: Vec<TaskId> = index.waited_for(swept).take(FOLLOWED_MAX).collect();
        if ids.is_empty() && swept.is_none() {
            return;
        }
        let more = ids.last().copied().filter(|_| ids.len() == FOLLOWED_MAX);
        self.workflow.dependencies.swept.extend(more.map(|last| (partition, last)));
        let next_us = self.after_ms(if more.is_some() { PIECE_MS } else { self.config.sweep_interval_ms });
        let paid_us = self.workflow.dependencies.pay(self.now.mono_us, ids.len());
        let hurried = self.workflow.dependencies.hurried.contains(&partition);
        if more.is_none() {
            self.workflow.dependencies.hurried.remove(&partition);
        }
        let next_us = if hurried && more.is_some() { next_us } else { next_us.max(paid_us) };
        self.workflow.dependencies.next_us.insert(partition, next_us);
        self.timers.set(Key::Follow(partition), next_us);
        let index = self.partitions[&partition].store.index();
        let waiting: BTreeSet<TaskId> =
            ids.iter().flat_map(|id| index.dependents(id, None).take(WAITING_LOOKED_AT)).collect();
        waiting.iter().for_each(|id| self.abort_group(partition, id));
        if !mutant!(self.config, FollowsOnce) {
            self.ask_for_ends(partition, ids.into_iter());
        }
    }

    /// At a leader of tasks that others wait for: answers which of them have ended, and remembers the asker for the rest.
    pub(crate) fn on_follow(&mut self, from: NodeId, partition: PartitionId, ids: &[TaskId]) {
        let early = mutant!(self.config, EndsEarly);
        let (mut ends, mut joins) = (Vec::new(), Vec::new());
        for id in ids.iter().take(FOLLOWED_MAX) {
            let of = self.partition_of(id);
            let speaks = self.speaks_for(of);
            let Some(replica) = self.partitions.get(&of) else { continue };
            let leads = replica.consensus.established() && speaks;
            if let Some(how) = replica.end_of(id) {
                ends.push((*id, how));
                joins.extend(replica.joins_of(id));
            } else if speaks && replica.may_have_forgotten(id) {
                // Other replicas know that as well: perhaps no message gets from the asker to the leader.
                ends.push((*id, Settled::Forgotten));
            } else if leads && early && replica.store.knows(id) {
                ends.push((*id, Settled::Done));
            } else if leads {
                self.workflow.dependencies.follow(of, *id, (from, partition));
            }
        }
        self.tell_ends(from, partition, ends, joins);
    }

    /// Notifies dependents of ends only once these are durable here: the notice makes them claimable.
    fn tell_ends(
        &mut self,
        to: NodeId,
        partition: PartitionId,
        ends: Vec<(TaskId, Settled)>,
        joins: Vec<(TaskId, TaskId)>,
    ) {
        if !ends.is_empty() {
            self.outbox.send_durable(to, Workflow::Ends { partition, ends, joins });
        }
    }

    /// Tasks have ended: repeats the reads that wait for that here, and notifies the askers.
    pub(crate) fn tell_ended(&mut self, partition: PartitionId, ids: &[TaskId]) {
        for id in ids {
            self.wake_watchers(id);
            self.tell_followers(partition, id);
        }
    }

    fn tell_followers(&mut self, partition: PartitionId, id: &TaskId) {
        let askers = self.workflow.dependencies.take_followers(partition, id);
        let Some(replica) = self.partitions.get(&partition) else { return };
        let Some(how) = replica.end_of(id) else { return };
        let joins: Vec<(TaskId, TaskId)> = replica.joins_of(id).collect();
        let member = replica.store.task(id).and_then(Task::member_of);
        let failed = member.filter(|_| how != Settled::Done && replica.consensus.established());
        for (node, of) in askers {
            self.tell_ends(node, of, vec![(*id, how)], joins.clone());
        }
        if let Some(member) = failed
            && let Some(leader) = self.leader_of(self.partition_of(&member.group))
        {
            // Its join may wait for other members first, and should learn of this at once. If the message is lost, it learns of it in
            // its turn.
            self.outbox.send_durable(leader, Workflow::MemberFailed { member, how });
        }
    }

    /// At a leader of waiting tasks: notes that tasks for which some of them wait have ended, and has the sweep look at those.
    pub(crate) fn on_ends(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        ends: &[(TaskId, Settled)],
        joins: &[(TaskId, TaskId)],
    ) {
        ends.iter().for_each(|(id, _)| self.wake_watchers(id));
        let Some(replica) = self.partitions.get(&partition) else { return };
        if !replica.consensus.established() {
            return;
        }
        let index = replica.store.index();
        let is_session = |id: &TaskId| replica.consensus.has_session(id);
        let waited_for = ends.iter().filter(|(id, _)| index.dependents(id, None).next().is_some() || is_session(id));
        let waited_for: Vec<(TaskId, Settled)> = waited_for.copied().collect();
        let mut doubted = Vec::new();
        for (id, how) in waited_for {
            let known = self.workflow.dependencies.is_doubted(partition, &id);
            if how == Settled::Forgotten && !self.is_surely_forgotten(from, partition, id) {
                doubted.extend((!known).then_some(id));
                continue;
            }
            self.end_session(partition, id, how);
            let heard = |of: &TaskId| *of == id && !mutant!(self.config, JoinsUnheard);
            let joins = joins.iter().filter(|(of, _)| heard(of)).map(|(_, join)| *join).collect();
            let end = End { how, joins, upto: None };
            self.workflow.dependencies.ends.entry(partition).or_default().insert(id, end);
            self.timers.set(Key::Follow(partition), self.now.mono_us);
        }
        // The other replicas are asked at once, and by every sweep.
        self.ask_for_ends(partition, doubted.into_iter());
    }

    /// One more replica does not know a task and never will. Returns whether these are enough to show that it is nowhere acknowledged.
    fn is_surely_forgotten(&mut self, from: NodeId, partition: PartitionId, id: TaskId) -> bool {
        let cohort = self.cohort_of(self.partition_of(&id));
        let doubt = self.workflow.dependencies.doubts.entry(partition).or_default().entry(id).or_default();
        if doubt.version != cohort.version {
            *doubt = Doubt { version: cohort.version, by: BTreeSet::new() };
        }
        doubt.by.insert(from);
        let doubts = |node| doubt.by.contains(&node);
        cohort.members_quorum(doubts) && cohort.next_quorum(doubts) || mutant!(self.config, OneForgets)
    }

    /// Looks at some of the tasks that waited for an ended one. Returns whether there are more.
    fn settle_dependents(&mut self, partition: PartitionId) -> bool {
        let Some(ends) = self.workflow.dependencies.ends.get_mut(&partition) else { return false };
        let Some((other, End { how, joins, upto })) = ends.pop_first() else {
            self.workflow.dependencies.ends.remove(&partition);
            return false;
        };
        let index = self.partitions[&partition].store.index();
        let ids: Vec<TaskId> = index.dependents(&other, upto).take(DEPENDENTS_MAX).collect();
        let more = ids.last().copied().filter(|_| ids.len() == DEPENDENTS_MAX);
        if let Some(ends) = self.workflow.dependencies.ends.get_mut(&partition) {
            ends.extend(more.map(|last| (other, End { how, joins: joins.clone(), upto: Some(last) })));
        }
        let follows = |id: &TaskId| self.what_follows(partition, id, (other, how), &joins);
        let settled: Vec<(TaskId, Task)> = ids.iter().filter_map(|id| Some((*id, follows(id)?))).collect();
        self.merge(partition, settled);
        ids.iter().for_each(|id| self.abort_group(partition, id));
        true
    }

    /// What the end of a task means for one that waits for it; `None` if that is to wait on.
    fn what_follows(
        &self,
        partition: PartitionId,
        id: &TaskId,
        (other, how): (TaskId, Settled),
        joins: &[TaskId],
    ) -> Option<Task> {
        let task = self.partitions[&partition].store.task(id)?;
        if !task.waits_for(id).contains(&other) {
            return None;
        }
        let spec = task.spec.as_ref()?;
        let number = task.open_members().take(GROUP_WINDOW).find(|number| is_member(*id, *number, other));
        if !spec.after().contains(&other) {
            // A group ends no matter how its members ended, and an ended member only waits for its join.
            let Some(number) = number else { return Some(Task::from_settled(other, how)) };
            let mut settled = heard(number, how, joins);
            if mutant!(self.config, MembersMiscounted) && task.total() > Some(number) {
                settled.merge(heard(number + 1, how, &[]));
            }
            return Some(settled);
        }
        let settled = || {
            let mut settled = Task::from_settled(other, how);
            // A join may name a member of its group as well.
            number.into_iter().for_each(|number| settled.merge(heard(number, how, joins)));
            settled
        };
        let failed = match how {
            Settled::Done => return Some(settled()),
            Settled::Dead => "failed",
            Settled::Cancelled => "was cancelled",
            Settled::Forgotten => "is not known, or not any more",
        };
        match self.policy_of(&spec.queue).failed_dependency {
            FailedDependency::Wait if !mutant!(self.config, WaitIgnored) => None,
            FailedDependency::Skip => Some(settled()),
            FailedDependency::Wait | FailedDependency::Fail => {
                let reason = format!("task {other}, for which it waits, {failed}");
                Some(Task::from_cancel(Cancel { dead: true, reason, at_ms: self.now.wall_ms }))
            }
        }
    }

    /// At the leader of a join: one of its members has failed.
    pub(crate) fn on_member_failed(&mut self, member: MemberOf, how: Settled) {
        let (id, partition) = (member.group, self.partition_of(&member.group));
        let Some(replica) = self.partitions.get(&partition) else { return };
        let waits = |task: &Task<Outline>| task.join().is_some() && task.ended().is_none();
        let is_sound = (1..=GROUP_MEMBERS_MAX).contains(&member.number) && how != Settled::Done;
        if is_sound && replica.consensus.established() && replica.store.task(&id).is_some_and(waits) {
            self.merge(partition, vec![(id, heard(member.number, how, &[]))]);
            self.abort_group(partition, &id);
        }
    }

    /// Cancels members of a group that has failed and is not to go on: some at a time, and again for as long as they have not ended.
    fn abort_group(&mut self, partition: PartitionId, id: &TaskId) {
        let Some(task) = self.partitions.get(&partition).and_then(|replica| replica.store.task(id)) else { return };
        if !task.aborts_group() || self.workflow.dependencies.aborting.contains(id) {
            return;
        }
        let cancel = || Cancel { dead: false, reason: GROUP_FAILED.to_owned(), at_ms: self.now.wall_ms };
        let members = task.open_members().take(GROUP_WINDOW).map(|number| MemberOf { group: *id, number }.id());
        let items: Vec<(TaskId, Task)> = members.map(|member| (member, Task::from_cancel(cancel()))).collect();
        if !items.is_empty() {
            self.workflow.dependencies.aborting.insert(*id);
            self.write_for(Writer::Abort(*id), items, (Acks::Quorum, false));
        }
    }

    /// The cancellation of members has ended, with or without success; as they end, their join goes on to the next ones.
    pub(crate) fn group_aborted(&mut self, id: &TaskId) {
        self.workflow.dependencies.aborting.remove(id);
    }
}

fn is_member(group: TaskId, number: u32, id: TaskId) -> bool {
    MemberOf { group, number }.id() == id
}

/// How a member of a group ended, and what its completions brought that belongs to the group.
fn heard(number: u32, how: Settled, joins: &[TaskId]) -> Task {
    let joins: BTreeSet<TaskId> = joins.iter().copied().collect();
    Task::from_group(GroupFacts { total: None, members: Members::of(number, how), joins: joins.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TaskId {
        TaskId::new(number, 0, 1, 2)
    }

    /// Goal: an asker is notified once, and counted as long as it is remembered.
    #[test]
    fn followers_are_remembered_once_and_counted() {
        let mut dependencies = Dependencies::default();
        let (here, there) = (PartitionId(1), PartitionId(2));
        let askers = [(NodeId(1), here), (NodeId(1), there), (NodeId(u128::MAX), PartitionId(u16::MAX))];
        for _ in 0..2 {
            for asker in askers {
                dependencies.follow(here, id(7), asker);
            }
            dependencies.follow(here, id(8), askers[0]);
            dependencies.follow(there, id(7), askers[0]);
        }
        assert_eq!(dependencies.followers_count, 5);
        assert_eq!(dependencies.take_followers(here, &id(7)), askers);
        assert_eq!(dependencies.take_followers(here, &id(7)), []);
        assert_eq!(dependencies.followers_count, 2);
        dependencies.step_down(here);
        assert_eq!(dependencies.followers_count, 1);
    }

    /// Goal: however many partitions have something to ask, a node asks no faster than it may, and its debt is bounded.
    #[test]
    fn sweeps_pay_for_what_they_ask_for() {
        let mut dependencies = Dependencies::default();
        let (mut at_us, mut asked) = ([1_000_000_u64; 8], 0);
        while let Some((partition, now_us)) = (0..8).map(|place| (place, at_us[place])).min_by_key(|(_, at)| *at)
            && now_us < 11_000_000
        {
            asked += FOLLOWED_MAX as u64;
            at_us[partition] = dependencies.pay(now_us, FOLLOWED_MAX);
        }
        let bound = 10_000_000 / ASK_US + 8 * FOLLOWED_MAX as u64;
        assert!(asked <= bound && asked > bound / 2, "{asked} of at most {bound}");
        for _ in 0..10_000 {
            assert!(dependencies.pay(20_000_000, FOLLOWED_MAX) <= 20_000_000 + OWED_US_MAX);
        }
    }
}
