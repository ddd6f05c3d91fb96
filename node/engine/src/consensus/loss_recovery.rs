//! Recovery of replicas that lost a part of the node's log. The rules are in `model/src/data_loss.rs`.

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::cohort::Role;
use norn_model::config::mutant;
use norn_model::data_loss::DataLoss;
use norn_model::message::{AntiEntropy, Replication};
use norn_model::record::Record;
use norn_model::rules;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

impl Node {
    /// Logs what a replica lacks now.
    pub(crate) fn record_data_loss(&mut self, partition: PartitionId) {
        self.write_data_loss(partition, false);
    }

    /// Does the same where the start has found a loss.
    pub(crate) fn record_found_loss(&mut self, partition: PartitionId) {
        let lost = self.partitions[&partition].loss_recovery.losses != 0;
        self.write_data_loss(partition, lost);
    }

    fn write_data_loss(&mut self, partition: PartitionId, found: bool) {
        let loss_recovery = &self.partitions[&partition].loss_recovery;
        let (data_loss, losses) = (loss_recovery.data_loss, loss_recovery.losses);
        self.outbox.persist(Record::DataLoss { partition, data_loss, losses });
        let (DataLoss { facts, table }, lost) = (data_loss, losses != 0);
        self.outbox.observe(Observation::DataLoss { partition: partition.0, facts, table, lost, found });
    }

    /// Whether the replica may vote and lead.
    pub(crate) fn may_vote(&self, partition: PartitionId) -> bool {
        let lost = self.partitions.get(&partition).is_some_and(|replica| replica.loss_recovery.data_loss.table);
        (!lost || mutant!(self.config, RecoveringCounts)) && self.is_answered(partition)
    }

    /// Asks leaders for the recovery targets of tables that lost something. Each question makes the leader resend what is
    /// missing, and is repeated until the table counts again.
    pub(crate) fn ask_to_rejoin(&mut self) {
        let incomplete = self.partitions.iter().filter(|(_, replica)| replica.loss_recovery.data_loss.table);
        // Where this node is no part of the cohort, nothing waits for its replica.
        let incomplete = incomplete.filter(|(id, replica)| !replica.is_blank() || self.cohort_of(**id).knows(self.me));
        let ids: Vec<PartitionId> = incomplete.map(|(id, _)| *id).collect();
        for partition in &ids {
            let leader = self.leader_of(*partition);
            let replica = self.partitions.get_mut(partition).expect("just listed");
            if !replica.answered {
                continue;
            }
            let request_id = self.pending_requests.number();
            let Some(leader) = leader else { continue };
            replica.loss_recovery.asked.get_or_insert(request_id);
            let viewstamp = replica.consensus.viewstamp;
            self.outbox.send(leader, Replication::Rejoin { partition: *partition, request_id, viewstamp });
        }
        if !ids.is_empty() {
            self.timers.set(Key::Rejoin, self.now.mono_after_ms(self.config.resend_ms));
        }
    }

    /// At the leader: answers a follower that lost a part of what it acknowledged.
    pub(crate) fn on_rejoin(&mut self, from: NodeId, partition: PartitionId, request_id: u64, theirs: Viewstamp) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let consensus = &replica.consensus;
        if consensus.leading().is_none() || from == self.me {
            return;
        }
        if !replica.cohort().knows(from) {
            self.tell_outside(from, partition);
            return;
        }
        let viewstamp = consensus.viewstamp;
        let sent_us =
            consensus.leading().and_then(|leading| leading.progress.get(&from)).map(|progress| progress.sent_us);
        self.outbox.send(from, Replication::Rejoined { partition, request_id, viewstamp });
        // A whole table may be on its way.
        if sent_us.is_some_and(|sent_us| self.now.mono_us >= sent_us + self.config.resend_ms * 1_000) {
            self.send_from(partition, from, theirs);
        }
    }

    /// Takes in the leader's viewstamp as the recovery target.
    pub(crate) fn on_rejoined(&mut self, partition: PartitionId, request_id: u64, viewstamp: Viewstamp) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let asked = replica.loss_recovery.asked.is_some_and(|first| request_id >= first);
        if !asked
            || !replica.loss_recovery.data_loss.table
            || !rules::may_set_target(replica.consensus.promised, viewstamp.epoch)
        {
            return;
        }
        replica.loss_recovery.target = Some(viewstamp);
        self.close_data_loss(partition);
    }

    /// Closes the losses that are recovered by now. Everything that rests on that waits for the record to be on disk.
    pub(crate) fn close_data_loss(&mut self, partition: PartitionId) {
        let enough = self.may_close_facts(partition);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let (viewstamp, stable) = (replica.consensus.viewstamp, replica.cohort().is_stable());
        if replica.loss_recovery.data_loss.is_whole() || !replica.loss_recovery.close(viewstamp, enough) {
            return;
        }
        if stable && !replica.loss_recovery.data_loss.facts {
            replica.loss_recovery.agreed.clear();
        }
        self.record_data_loss(partition);
        self.acknowledge_anew(partition);
    }

    /// Whether a replica has the facts that it lacked. A learner has everything that was ever strictly acknowledged only once no
    /// fact is acknowledged without the next members; a draining replica counts for nothing.
    fn may_close_facts(&self, partition: PartitionId) -> bool {
        let Some(replica) = self.partitions.get(&partition) else { return false };
        let counts = match replica.role() {
            Role::Member => true,
            Role::Learner => replica.cohort().is_joint(),
            Role::DrainingReplica | Role::Outside => false,
        };
        counts && self.has_agreed(partition)
    }

    /// Whether a replica has agreed with as many members as it must: enough that each majority has at least one of them, or for
    /// a draining replica a majority.
    pub(crate) fn has_agreed(&self, partition: PartitionId) -> bool {
        let replica = &self.partitions[&partition];
        let (cohort, agreed) = (replica.cohort(), &replica.loss_recovery.agreed);
        if replica.role() == Role::DrainingReplica {
            return cohort.members_quorum(|node| agreed.contains(&node));
        }
        let others = cohort.members().filter(|node| *node != self.me && agreed.contains(node)).count();
        let own = usize::from(self.speaks_for(partition));
        others + own >= cohort.agreements_needed()
    }

    /// Whether a replica needs to agree with members on the facts.
    pub(crate) fn wants_agreement(&self, partition: PartitionId) -> bool {
        let replica = &self.partitions[&partition];
        let wanted = match replica.role() {
            Role::Member | Role::Learner => replica.loss_recovery.data_loss.facts || replica.cohort().has_next(self.me),
            Role::DrainingReplica => replica.is_dismissed(),
            Role::Outside => false,
        };
        wanted && !replica.loss_recovery.data_loss.table && !self.has_agreed(partition)
    }

    /// Returns the number of a round of anti-entropy in which agreement counts for recovery; 0 if no replica needs it.
    pub(crate) fn healing_round(&mut self) -> u64 {
        if !self.partitions.keys().any(|id| self.wants_agreement(*id)) {
            return 0;
        }
        self.number_round()
    }

    fn number_round(&mut self) -> u64 {
        let round = self.pending_requests.number();
        if self.all_know_this_start() {
            self.consensus.recovery_round.get_or_insert(round);
        }
        round
    }

    /// Partitions in which this node needs the agreement of a peer and does not have it yet.
    pub(crate) fn open_with(&self, node: NodeId) -> BTreeSet<PartitionId> {
        let open = |replica: &&norn_model::replica::Partition| {
            replica.cohort().has_member(node)
                && !replica.loss_recovery.agreed.contains(&node)
                && self.wants_agreement(replica.id)
        };
        self.partitions.values().filter(open).map(|replica| replica.id).collect()
    }

    /// Asks the members of a partition for agreement, out of turn.
    pub(crate) fn ask_to_agree(&mut self, partition: PartitionId) {
        let members: Vec<NodeId> = self.partitions[&partition].cohort().members().collect();
        for node in members {
            self.ask_one_to_agree(node, partition);
        }
    }

    /// Asks a member for agreement. Under many writes two replicas are equal only for moments, so this is done as soon as
    /// something has come from there.
    pub(crate) fn ask_one_to_agree(&mut self, node: NodeId, partition: PartitionId) {
        let loss_recovery = &self.partitions[&partition].loss_recovery;
        if node != self.me && !loss_recovery.agreed.contains(&node) && self.is_alive(node) {
            let round = self.number_round();
            let roots = vec![(partition, self.partitions.get_mut(&partition).expect("held").store.root())];
            self.outbox.send(node, AntiEntropy::Roots { roots, round });
            self.ask_groups(node, partition, round);
        }
    }

    /// Asks the same by groups of buckets: these are equal for moments even where the whole tree never is.
    pub(crate) fn ask_groups(&mut self, node: NodeId, partition: PartitionId, round: u64) {
        let replica = &self.partitions[&partition];
        let digests = replica.store.tree().group_digests().map(Option::unwrap_or_default);
        let numbered = (0u16..).zip(digests);
        let groups: Vec<_> = numbered.filter(|(group, _)| replica.loss_recovery.is_open(node, *group)).collect();
        self.outbox.send(node, AntiEntropy::GroupsAsk { partition, round, groups });
    }

    /// Answers which groups are the same here, once all that is here is on disk.
    pub(crate) fn on_groups_ask(&mut self, from: NodeId, partition: PartitionId, round: u64, groups: &[(u16, u128)]) {
        let Some(replica) = self.partitions.get(&partition).filter(|replica| replica.cohort().knows(from)) else {
            return;
        };
        if !self.speaks_for(partition) {
            return;
        }
        let digests: Vec<u128> = replica.store.tree().group_digests().map(Option::unwrap_or_default).collect();
        let same = |(group, digest): &&(u16, u128)| digests.get(usize::from(*group)) == Some(digest);
        let equal: Vec<u16> = groups.iter().filter(same).map(|(group, _)| *group).collect();
        if !equal.is_empty() {
            let at = replica.cohort().version;
            self.outbox.send_durable(from, AntiEntropy::GroupsAnswer { partition, round, at, equal });
        }
    }

    /// Takes in an answer: in these groups the member has what this replica had when it asked, and the other way round.
    pub(crate) fn on_groups_answer(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (round, at): (u64, Viewstamp),
        equal: &[u16],
    ) {
        if self.may_agree(from, partition, (round, at)) {
            let loss_recovery = &mut self.partitions.get_mut(&partition).expect("just seen").loss_recovery;
            if loss_recovery.agree_on(from, equal) {
                self.agreed_on_facts(from, partition, (round, at));
            }
        }
    }

    /// Notes that a member with complete facts has the same facts, by its answer to a round, at this version of the cohort. An
    /// answer to an earlier round may be older than facts that the member stored when others still counted this replica
    /// otherwise.
    pub(crate) fn agreed_on_facts(&mut self, node: NodeId, partition: PartitionId, (round, at): (u64, Viewstamp)) {
        if self.may_agree(node, partition, (round, at)) {
            self.partitions.get_mut(&partition).expect("just seen").loss_recovery.agreed.insert(node);
            self.close_data_loss(partition);
            self.tell_ready(partition);
        }
    }

    fn may_agree(&self, node: NodeId, partition: PartitionId, (round, at): (u64, Viewstamp)) -> bool {
        let since = self.consensus.recovery_round;
        let Some(replica) = self.partitions.get(&partition) else { return false };
        let loss_recovery = &replica.loss_recovery;
        // Its acknowledgements from before the loss may still be counted, if it is a voter.
        let lossy = loss_recovery.data_loss.facts && loss_recovery.losses != 0 && replica.cohort().has_voter(self.me);
        let in_time = round > loss_recovery.agree_from && (!lossy || since.is_some_and(|since| round >= since));
        let (cohort, table) = (replica.cohort(), loss_recovery.data_loss.table);
        // Before its table is whole a replica does not know which tasks were forgotten.
        in_time && at == cohort.version && cohort.has_member(node) && !table && self.wants_agreement(partition)
    }
}
