//! Member list of the cluster, as far as this node has heard.
//!
//! The metadata group decides it (`metadata/`), and its leader sends it to all nodes once a change is committed
//! (`controller/reconciler.rs`). A node whose roster is later than the one that a peer's heartbeat shows sends it on, so that a node that
//! is away while the cluster changes learns of that from the first node that it meets. Each node keeps the latest roster in its log: a node
//! that is no founder finds the others again by it. No vote and no quorum rests on it; these rest on the cohorts alone.

use crate::Node;
use crate::context::signals::{RosterChange, Signal};
use crate::effect::{Effect, Observation};
use norn_model::limits::{MEMBERS_MAX, ROSTER_STEP_MAX};
use norn_model::message::Peering;
use norn_model::metadata::{check_policies, members};
use norn_model::record::Record;
use norn_wire::membership::{Member, Order, QueuePolicy, Roster};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the operators' name of a node in a member list, or its id if it is not in the list.
pub(crate) fn name_in(roster: &Roster, node: NodeId) -> String {
    let found = roster.members.values().find(|member| member.node == node);
    found.map_or_else(|| format!("{node:?}"), |member| member.name.clone())
}

impl Node {
    /// Members that are not gone, by their numbers.
    pub(crate) fn members(&self) -> impl Iterator<Item = (u16, &Member)> {
        let present = self.roster.members.iter().filter(|(_, member)| member.state.is_present());
        present.map(|(number, member)| (*number, member))
    }

    /// Returns a member, also one that is gone, with its number.
    pub(crate) fn member(&self, node: NodeId) -> Option<(u16, &Member)> {
        let member = self.roster.members.iter().find(|(_, member)| member.node == node);
        member.map(|(number, member)| (*number, member))
    }

    /// Whether a node belongs to the cluster and is not gone.
    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        self.member(node).is_some_and(|(_, member)| member.state.is_present())
    }

    /// Whether a node was a member and is gone for good.
    pub(crate) fn is_declared_gone(&self, node: NodeId) -> bool {
        self.member(node).is_some_and(|(_, member)| !member.state.is_present())
    }

    /// Takes in a peer's roster.
    pub(crate) fn on_roster(&mut self, roster: &Arc<Roster>) {
        if roster.version > self.roster.version.saturating_add(ROSTER_STEP_MAX) {
            self.outbox.refuse("implausible version of the roster");
            return;
        }
        self.learn_roster(roster);
    }

    /// Takes in a roster from a peer, or from the metadata group that this node leads.
    pub(crate) fn learn_roster(&mut self, roster: &Arc<Roster>) {
        if roster.version <= self.roster.version {
            return;
        }
        if !is_sound(roster) || !follows(roster, &self.roster) {
            self.outbox.refuse("a roster that cannot follow the known one");
            return;
        }
        let Some(genesis) = self.genesis.clone() else { return };
        self.outbox.persist(Record::Roster(roster.clone()));
        let before: BTreeSet<NodeId> = self.membership.peers.keys().copied().collect();
        let (reordered, resumed) = (self.reordered(roster), self.resumed(roster));
        self.end_shuffling(roster);
        self.take_roster(roster.clone());
        self.outbox.effect(Effect::Joined { genesis, roster: roster.clone() });
        self.outbox.observe(Observation::RosterChanged { version: roster.version, members: self.members().count() });
        let fresh: Vec<NodeId> = self.membership.peers.keys().copied().filter(|node| !before.contains(node)).collect();
        self.signals.report(Signal::RosterChanged(Box::new(RosterChange { reordered, resumed, fresh })));
    }

    /// Drops the random order of queues that are no longer claimed at random.
    fn end_shuffling(&mut self, roster: &Roster) {
        let random = |policy: &QueuePolicy| policy.order == Order::Random;
        let before = self.roster.clone();
        let ordered = before
            .policies
            .iter()
            .filter(|(queue, policy)| random(policy) && !roster.policies.get(*queue).is_some_and(random));
        for (queue, _) in ordered {
            self.partitions.values_mut().for_each(|replica| replica.store.end_shuffling(queue));
        }
    }

    /// Queues whose claim order or concurrency changes with a roster.
    fn reordered(&self, roster: &Roster) -> Vec<QueueName> {
        let order = |policy: &QueuePolicy| (policy.ageing_ms, policy.order, policy.concurrency, policy.key_concurrency);
        let of = |roster: &Roster, queue: &QueueName| roster.policies.get(queue).map(order).unwrap_or_default();
        let all: BTreeSet<&QueueName> = self.roster.policies.keys().chain(roster.policies.keys()).collect();
        all.into_iter().filter(|queue| of(&self.roster, queue) != of(roster, queue)).cloned().collect()
    }

    /// Queues that a roster unpauses.
    fn resumed(&self, roster: &Roster) -> Vec<QueueName> {
        let goes_on = |queue: &&QueueName| !roster.policies.get(*queue).is_some_and(|policy| policy.paused);
        let paused = self.roster.policies.iter().filter(|(_, policy)| policy.paused).map(|(queue, _)| queue);
        paused.filter(goes_on).cloned().collect()
    }

    /// Returns the operators' settings for a queue, as far as this node has heard.
    pub(crate) fn policy_of(&self, queue: &QueueName) -> QueuePolicy {
        self.roster.policies.get(queue).cloned().unwrap_or_default()
    }

    /// The policy of a task's queue, if the queue is known.
    pub(crate) fn policy_of_task(&self, partition: PartitionId, id: &TaskId) -> Option<QueuePolicy> {
        let spec = self.partitions[&partition].store.task(id)?.spec.as_ref()?;
        Some(self.policy_of(&spec.queue))
    }

    /// Returns the operators' name of a node, or its id if it is no member.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        name_in(&self.roster, node)
    }

    /// Stores a roster; the members in it are peers from then on.
    pub(crate) fn take_roster(&mut self, roster: Arc<Roster>) {
        let nodes: BTreeSet<NodeId> = roster.members.values().map(|member| member.node).collect();
        self.membership.changes += 1;
        self.membership.peers.retain(|node, _| nodes.contains(node));
        for node in nodes.into_iter().filter(|node| *node != self.me) {
            self.membership.peers.entry(node).or_default();
        }
        self.roster = roster;
    }

    /// Sends the roster to a peer that has an older one.
    pub(crate) fn tell_roster_to(&mut self, node: NodeId, version: u64) {
        if version < self.roster.version {
            let roster = self.roster.clone();
            self.outbox.send(node, Peering::Roster { roster });
        }
    }
}

/// Whether a roster could have come from a metadata group.
pub(crate) fn is_sound(roster: &Roster) -> bool {
    let nodes: BTreeSet<NodeId> = roster.members.values().map(|member| member.node).collect();
    let bounded = !nodes.is_empty() && roster.members.len() <= MEMBERS_MAX && nodes.len() == roster.members.len();
    let bounded = bounded && check_policies(&roster.policies).is_ok();
    bounded && roster.members.values().all(|member| members::validate(member).is_ok())
}

/// Whether `roster` keeps the numbers of all nodes in `before`: a number keeps its node for ever.
fn follows(roster: &Roster, before: &Roster) -> bool {
    let same = |(number, member): (&u16, &Member)| before.members.get(number).is_none_or(|was| was.node == member.node);
    roster.members.iter().all(same)
}
