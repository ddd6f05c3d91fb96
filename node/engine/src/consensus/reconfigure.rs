//! Reconfiguration by the leader: one change at a time, and each step once the one before has had its effect.
//!
//! The target comes from the layout or an operator; the present cohort is defined by the table alone. The leader reverts a change
//! that makes no progress for `revert_after_ms`, so that a dead learner blocks nothing; its requester may ask again.

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::Op;
use norn_model::cohort::{Change, Cohort, Phase};
use norn_model::config::mutant;
use norn_model::consensus::{Changing, Progress, Retiring};
use norn_model::message::Reconfiguration;
use norn_model::viewstamp::ReplicaId;
use norn_wire::response::Standing;
use norn_wire::{NodeId, PartitionId};

/// Upper bound on a step's duration, in multiples of the patience with a stalled one, whatever progress it makes.
const PATIENCE: u64 = 20;

impl Node {
    /// At the leader: sets the target members.
    pub(crate) fn on_arrange(&mut self, partition: PartitionId, nodes: &[NodeId]) {
        let target: Option<Vec<ReplicaId>> = nodes.iter().map(|node| self.replica_of(*node)).collect();
        let now_us = self.now.mono_us;
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let Some(leading) = replica.consensus.leading_mut() else { return };
        let Some(target) = target.filter(|target| !target.is_empty()) else { return };
        if leading.changing.target.as_ref() != Some(&target) {
            leading.changing.target = Some(target);
            leading.changing.asked_us = now_us;
        }
        self.timers.set_if_none(Key::Change(partition), now_us);
    }

    /// At the leader: begins a step, after a change of the cohort or at the start of the leadership.
    pub(crate) fn begin_step(&mut self, partition: PartitionId) {
        let (me, now_us) = (self.me, self.now.mono_us);
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let followers = consensus.cohort.followers();
        let Some(leading) = consensus.leading_mut() else { return };
        let (target, asked_us) = (leading.changing.target.take(), leading.changing.asked_us);
        leading.changing = Changing { target, asked_us, began_us: now_us, moved_us: now_us, ..Changing::default() };
        leading.progress.retain(|node, _| followers.contains(node) || *node == me);
        let fresh: Vec<NodeId> = followers.into_iter().filter(|node| !leading.progress.contains_key(node)).collect();
        for node in &fresh {
            leading.progress.insert(*node, Progress { stranger: true, ..Progress::default() });
        }
        leading.retiring = Retiring::new(now_us);
        assert!(leading.progress.contains_key(&me), "a leader follows its own progress");
        assert!(leading.changing.ready.is_empty(), "a replica is ready for a step that has not begun");
        for node in fresh {
            self.catch_up(partition, node);
        }
        self.leads_changed();
        self.timers.set_if_none(Key::Resend(partition), self.after_ms(self.config.resend_ms));
    }

    /// Whether a leader has anything to do about its cohort.
    pub(crate) fn leads_a_change(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let Some(leading) = consensus.leading() else { return false };
        let cohort = &consensus.cohort;
        leading.changing.target.is_some()
            || !cohort.is_stable()
            || !cohort.draining_replicas.is_empty()
            || cohort.quarantine.is_some()
            || !cohort.has_member(self.me)
    }

    /// Whether the cohort of a leader's table is committed.
    pub(crate) fn is_cohort_committed(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let version = consensus.cohort.version;
        consensus.established() && (version.epoch < consensus.viewstamp.epoch || version.length <= consensus.commit)
    }

    /// Whether a committed cohort leaves this leader out. It then appends nothing any more, so that a member can take over.
    pub(crate) fn leads_while_draining(&self, partition: PartitionId) -> bool {
        !self.partitions[&partition].consensus.cohort.has_voter(self.me) && self.is_cohort_committed(partition)
    }

    /// Takes the next step, if it is due.
    pub(crate) fn lead_change(&mut self, partition: PartitionId) {
        if !self.is_cohort_committed(partition) {
            return;
        }
        self.tell_committed(partition);
        if self.leads_while_draining(partition) {
            self.lead_no_more(partition);
            return;
        }
        if self.may_append(partition)
            && let Some(change) = self.next_step(partition)
        {
            let tasks = self.bodies_lost(partition) as u64;
            if tasks > 0 && matches!(change, Change::Revert { .. }) {
                // Otherwise the operator would not learn what the change waited for, and the next attempt would wait for it
                // again.
                self.outbox.observe(Observation::ChangeBlocked { partition: partition.0, tasks });
            }
            self.append_step(partition, change);
            return;
        }
        let cohort = self.partitions[&partition].consensus.cohort.clone();
        let draining_replicas =
            cohort.draining_replicas.iter().map(|draining_replica| draining_replica.slot.replica.node);
        let there: Vec<NodeId> = draining_replicas.filter(|node| self.is_alive(*node)).collect();
        for draining_replica in there {
            self.outbox.send(draining_replica, Reconfiguration::Dismiss { partition, at: cohort.version });
        }
    }

    fn append_step(&mut self, partition: PartitionId, change: Change) {
        assert!(self.is_cohort_committed(partition), "a step follows on one that is not committed");
        let at_ms = self.now.wall_ms;
        let (admits, joins) = (matches!(change, Change::Admit { .. }), matches!(change, Change::Join));
        self.append(partition, Op::Cohort(change), None);
        if mutant!(self.config, NoJoint) && admits {
            self.append(partition, Op::Cohort(Change::Join), None);
        }
        if mutant!(self.config, NoJoint) && admits || mutant!(self.config, StableEarly) && joins {
            self.append(partition, Op::Cohort(Change::Settle { at_ms }), None);
        }
    }

    /// Mutants: bugs of a leader that does not wait for its installation to commit. It reverts a change, removes a member, or
    /// adds one.
    #[cfg(feature = "mutants")]
    pub(crate) fn change_early(&mut self, partition: PartitionId) {
        let (at_ms, cohort) = (self.now.wall_ms, self.partitions[&partition].cohort().clone());
        if mutant!(self.config, RevertsEarly) && !cohort.is_stable() {
            self.append(partition, Op::Cohort(Change::Revert { at_ms }), None);
        }
        if !mutant!(self.config, SwitchesEarly) || !cohort.is_stable() || partition == PartitionId::METADATA {
            return;
        }
        let members: Vec<ReplicaId> = cohort.members.iter().map(|slot| slot.replica).collect();
        let mut next = members.clone();
        let others: Vec<NodeId> = self.others().filter(|node| !cohort.knows(*node)).collect();
        let other = others.into_iter().filter(|node| self.is_alive(*node)).find_map(|node| self.replica_of(node));
        match other.filter(|_| members.len() % 2 == 1) {
            Some(other) => next.push(other),
            None => {
                let at = next.iter().rposition(|replica| replica.node != self.me);
                at.filter(|_| members.len() > 2).map(|at| next.remove(at));
            }
        }
        if next != members {
            for change in [Change::Admit { members, next }, Change::Join, Change::Settle { at_ms }] {
                self.append(partition, Op::Cohort(change), None);
            }
        }
    }

    /// Reacts to a commit: if it covers the operation that made the present cohort, the next step may follow.
    pub(crate) fn note_cohort_commit(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        let announced = consensus.leading().is_none_or(|leading| leading.changing.announced);
        if !announced && self.is_cohort_committed(partition) {
            self.tell_committed(partition);
            if self.leads_a_change(partition) {
                self.timers.set(Key::Change(partition), self.now.mono_us);
            }
        }
    }

    fn tell_committed(&mut self, partition: PartitionId) {
        assert!(self.is_cohort_committed(partition), "a cohort is told as committed that is not");
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let cohort = consensus.cohort.clone();
        let changing = &mut consensus.leading_mut().expect("it leads").changing;
        if !std::mem::replace(&mut changing.announced, true) && !cohort.is_founded() {
            self.outbox.observe(Observation::CohortCommitted { partition: partition.0, cohort });
            self.leads_changed();
        }
    }

    /// Returns the change to append now. The cohort is committed.
    fn next_step(&mut self, partition: PartitionId) -> Option<Change> {
        let (now, patience_us) = (self.now, self.config.revert_after_ms * 1_000);
        let consensus = &self.partitions[&partition].consensus;
        let (cohort, leading) = (&consensus.cohort, consensus.leading()?);
        assert!(leading.established, "a change goes on before its leader is established");
        let changing = &leading.changing;
        let Some(next) = &cohort.next else {
            let end = self.is_quarantine_over(partition).then_some(Change::EndQuarantine);
            return end.or_else(|| self.farewell(cohort, changing)).or_else(|| self.first_step(partition));
        };
        let level =
            |node: NodeId| leading.progress.get(&node).is_some_and(|progress| progress.commit_ack_index.is_some());
        let unready = mutant!(self.config, SettlesUnready);
        if cohort.is_ready(|node| unready || changing.ready.contains(&node) && level(node)) {
            return Some(match next.phase {
                Phase::Learning => Change::Join,
                Phase::Joint => Change::Settle { at_ms: now.wall_ms },
            });
        }
        let stands = now.mono_us >= changing.moved_us + patience_us;
        let lasts = now.mono_us >= changing.began_us + PATIENCE * patience_us;
        (stands || lasts).then_some(Change::Revert { at_ms: now.wall_ms })
    }

    /// Clears a draining replica that has nothing left to hand over, or that was away longer than `exile_ttl_ms`.
    fn farewell(&self, cohort: &Cohort, changing: &Changing) -> Option<Change> {
        assert!(cohort.is_stable(), "a draining replica is cleared while a change is under way");
        let over = |since_ms: u64| self.now.wall_ms >= since_ms.saturating_add(self.config.exile_ttl_ms);
        let gone = |node: NodeId, since_ms: u64| over(since_ms) && !self.is_alive(node);
        let draining_replicas = cohort
            .draining_replicas
            .iter()
            .map(|draining_replica| (draining_replica.slot.replica, draining_replica.since_ms));
        let unheard = mutant!(self.config, ClearsUnheard);
        let handed = |node: &NodeId| unheard || changing.ready.contains(node);
        let mut cleared =
            draining_replicas.filter(|(replica, since_ms)| handed(&replica.node) || gone(replica.node, *since_ms));
        cleared.next().map(|(replica, _)| Change::Clear { replica })
    }

    /// Begins the requested change, unless it is in effect already or cannot begin now.
    fn first_step(&mut self, partition: PartitionId) -> Option<Change> {
        let (now_us, patience_us) = (self.now.mono_us, self.config.revert_after_ms * 1_000);
        let consensus = &self.partitions[&partition].consensus;
        let cohort = &consensus.cohort;
        let changing = &consensus.leading()?.changing;
        assert!(cohort.is_stable(), "a change begins while another is under way");
        let target = changing.target.clone()?;
        assert!(!target.is_empty(), "a cohort is to have no members");
        let members: Vec<ReplicaId> = cohort.members.iter().map(|slot| slot.replica).collect();
        let there =
            target.iter().filter(|replica| !members.contains(replica)).all(|replica| self.is_reachable(replica.node));
        let change = Change::Admit { members: members.clone(), next: target.clone() };
        let at = consensus.viewstamp;
        let fits = cohort.changed(&change, norn_model::viewstamp::Viewstamp { length: at.length + 1, ..at }).is_ok();
        let over = target == members || now_us >= changing.asked_us + patience_us;
        let begins = there && fits && target != members;
        if begins || over {
            let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
            consensus.leading_mut()?.changing.target = None;
        }
        begins.then_some(change)
    }

    /// Reverts a joint change at a leader that has not heard from a quorum for too long. If only the next members are missing, it
    /// goes on without them, or healthy members would have no leader. An established leader may do so even if the joint cohort is
    /// not committed: every quorum in question has a majority of the members. Returns whether it did.
    pub(crate) fn gives_up_change(&mut self, partition: PartitionId) -> bool {
        let cohort = &self.partitions[&partition].consensus.cohort;
        let members = cohort.is_joint() && cohort.members_quorum(|node| self.is_alive(node));
        if !members || !self.may_append(partition) {
            return false;
        }
        let at_ms = self.now.wall_ms;
        self.append(partition, Op::Cohort(Change::Revert { at_ms }), None);
        true
    }

    /// Ends the leadership of a draining replica: transfers it to a member, or steps down when the time for that is over.
    fn lead_no_more(&mut self, partition: PartitionId) {
        let (now_us, until_us) = (self.now.mono_us, self.after_ms(2 * self.config.election_timeout_ms));
        assert!(self.leads_while_draining(partition), "a member ends its leadership as if it were none");
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let members: Vec<NodeId> = consensus.cohort.members().collect();
        let leading = consensus.leading_mut().expect("it leads");
        let leave_us = *leading.changing.leave_us.get_or_insert(until_us);
        if now_us >= leave_us {
            self.step_down(partition, "it is no member any more");
            return;
        }
        let mut fit: Vec<NodeId> = members
            .into_iter()
            .filter(|node| self.is_alive(*node) && self.standing_of(*node) < Standing::Fenced)
            .collect();
        fit.sort_by_key(|node| self.standing_of(*node));
        self.transfer(partition, &fit);
    }

    /// At the leader: takes in the progress report of a next member, or of a draining replica.
    pub(crate) fn on_ready(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (replica, at): (ReplicaId, norn_model::viewstamp::Viewstamp),
        (ready, facts): (bool, u64),
    ) {
        let now_us = self.now.mono_us;
        let Some(state) = self.partitions.get_mut(&partition).filter(|_| replica.node == from) else { return };
        let consensus = &mut state.consensus;
        let known = consensus.cohort.knows_replica(&replica);
        let level = consensus.cohort.version == at;
        let Some(leading) = consensus.leading_mut() else { return };
        if !known {
            self.tell_outside(from, partition);
            return;
        }
        if !level {
            return;
        }
        let changing = &mut leading.changing;
        let more = changing.facts.insert(from, facts).is_none_or(|before| facts > before);
        let news = if ready { changing.ready.insert(from) } else { changing.ready.remove(&from) };
        if more || news {
            changing.moved_us = now_us;
        }
        if news && ready {
            self.timers.set(Key::Change(partition), now_us);
        }
    }

    /// Returns the replica id of a member of the cluster.
    pub(crate) fn replica_of(&self, node: NodeId) -> Option<ReplicaId> {
        let (_, member) = self.members().find(|(_, member)| member.node == node)?;
        Some(ReplicaId { node, incarnation: member.incarnation })
    }

    /// Returns this node's replica id, which is the same in all partitions.
    pub(crate) fn own_id(&self) -> ReplicaId {
        ReplicaId { node: self.me, incarnation: self.founding.incarnation }
    }
}
