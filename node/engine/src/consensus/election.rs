//! Elections: pre-vote, vote, fetch of newer state, leadership transfer. Raft's rules on viewstamps (Ongaro's thesis for the
//! pre-vote; Viewstamped Replication for the state transfer).

use super::rescue::quarantine;
use crate::Node;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::cohort::Change;
use norn_model::config::{Config, mutant};
use norn_model::consensus::{Archiving, Changing, Leading, Progress, Rescue, Retiring, Role};
use norn_model::limits::EPOCH_STEP_MAX;
use norn_model::message::{Election, LogPosition};
use norn_model::record::Record;
use norn_model::rules;
use norn_model::time::Now;
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Returns the table with which the survivors of an unsafe recovery go on.
fn rescued(table: &ClaimTable, rescue: &Rescue, at: Viewstamp, now: Now, config: &Config) -> ClaimTable {
    let lost = rescue.lost.iter().copied().collect();
    // The survivors may know of longer leases than the operator.
    let longest_ms = table.entries.values().map(|entry| entry.lease_ms).max().unwrap_or(0);
    let quarantine = quarantine(now.wall_ms, rescue.lease_ms.max(longest_ms), config.clock_epsilon_ms);
    assert!(quarantine.lease_ms >= longest_ms, "a quarantine is over before a lease that is known");
    let mut table = table.clone();
    let change = Change::Rescue { lost, at_ms: now.wall_ms, quarantine };
    table.apply(&Op::Cohort(change), at).expect("who leads is left");
    // The lost replicas may have given away tokens that this table still counts as accrued, so rate buckets begin empty.
    for queue in table.levels.keys().cloned().collect::<Vec<_>>() {
        table.apply(&Op::Level { queue, level: None }, at).expect("a level may always go");
    }
    assert!(table.levels.is_empty(), "permits are left that the lost replicas may have given");
    table
}

/// Upper limit on doublings of the pause between attempts to transfer leadership.
const TRANSFER_DOUBLINGS_MAX: u32 = 4;

impl Node {
    /// At a start: sets a timer for a campaign in case no leader shows up. Preferred replicas wait less.
    pub(crate) fn await_leader(&mut self, partition: PartitionId) {
        let timeout_ms = self.config.election_timeout_ms;
        let voters = self.partitions[&partition].cohort().voters();
        let place = voters.iter().position(|node| *node == self.me).unwrap_or(0) as u64;
        let first_ms = if place == 0 { 0 } else { timeout_ms / 2 };
        let wait_ms = first_ms + self.random.between(timeout_ms / 3, timeout_ms) + place * timeout_ms / 4;
        self.campaign_after(partition, wait_ms);
    }

    /// After the loss of a leader: the replicas that can win campaign in turn, so that one takes over at once and votes do not
    /// split. The order is that of preference; it differs between partitions, so that no node takes over all of them. A replica
    /// waits for the campaigns of those that it believes to be before it, and no longer, so safety and progress do not depend on
    /// its view of the others.
    pub(crate) fn await_turn(&mut self, partition: PartitionId) {
        let voters = self.partitions[&partition].cohort().voters();
        let before = voters.into_iter().take_while(|node| *node != self.me);
        let turn = before.filter(|node| self.can_win(*node, partition)).count() as u64;
        // Other replicas detect the loss up to a heartbeat later, and refuse votes until then.
        let found_out_ms = self.config.heartbeat_ms + self.random.between(0, self.config.heartbeat_ms / 2);
        self.campaign_after(partition, found_out_ms + turn * self.config.election_timeout_ms / 2);
    }

    /// Whether another node would win an election, by all that this node knows of it.
    fn can_win(&self, node: NodeId, partition: PartitionId) -> bool {
        self.is_reachable(node) && self.may_lead(node) && self.hears_quorum(node, partition)
    }

    fn campaign_after(&mut self, partition: PartitionId, wait_ms: u64) {
        // A node with a suspect clock leads only if no other node does.
        let doubt_ms = if self.is_suspect() { 2 * self.config.election_timeout_ms } else { 0 };
        self.timers.set(Key::Election(partition), self.now.mono_after_ms(wait_ms + doubt_ms));
    }

    pub(crate) fn await_leader_again(&mut self, partition: PartitionId) {
        let timeout_ms = self.config.election_timeout_ms;
        let wait_ms = self.random.between(timeout_ms, 2 * timeout_ms);
        self.timers.set(Key::Election(partition), self.now.mono_after_ms(wait_ms));
    }

    /// Whether an epoch in a message is plausible: a damaged message must not exhaust the epochs.
    pub(crate) fn plausible(&mut self, partition: PartitionId, epoch: Epoch) -> bool {
        let Some(replica) = self.partitions.get(&partition) else {
            self.outbox.refuse("message about a partition that is not held here");
            return false;
        };
        if epoch > replica.consensus.seen.saturating_add(EPOCH_STEP_MAX) {
            self.outbox.refuse("implausible epoch");
            return false;
        }
        true
    }

    pub(crate) fn on_election_timer(&mut self, partition: PartitionId) {
        if self.has_leader(partition) || self.stopping {
            return;
        }
        self.await_leader_again(partition);
        let barred = self.is_fenced() || !self.may_vote(partition);
        let replica = self.partitions.get_mut(&partition).expect("timers are of own partitions");
        assert!(replica.consensus.leading().is_none(), "a leader looks for a leader");
        replica.consensus.leader = None;
        // Only voters can win.
        if barred || !replica.cohort().has_voter(self.me) {
            return;
        }
        let voters = replica.cohort().voters();
        let consensus = &mut replica.consensus;
        let epoch = consensus.promised.max(consensus.seen) + 1;
        assert!(epoch > consensus.viewstamp.epoch, "an election is not later than the table");
        consensus.role = Role::PreCandidate { epoch, votes: BTreeSet::new() };
        let viewstamp = consensus.viewstamp;
        for node in voters {
            self.outbox.send(node, Election::PreVote { partition, epoch, viewstamp });
        }
    }

    pub(crate) fn on_pre_vote(&mut self, from: NodeId, partition: PartitionId, epoch: Epoch, viewstamp: Viewstamp) {
        if !self.plausible(partition, epoch) {
            return;
        }
        // A supposed leader that asks for votes no longer leads.
        let asks_itself = self.partitions[&partition].consensus.leader.is_some_and(|leader| leader.node == from)
            && !mutant!(self.config, LeaderBelieved);
        let led = self.has_leader(partition) && from != self.me && !asks_itself;
        let any_age = mutant!(self.config, VoteIgnoresViewstamp);
        let consensus = &self.partitions[&partition].consensus;
        let recent = viewstamp >= consensus.viewstamp || any_age;
        let granted = epoch > consensus.promised && recent && !led && self.may_vote(partition);
        let (promised, viewstamp) = (consensus.promised, consensus.viewstamp);
        self.outbox.send(from, Election::PreVoteAnswer { partition, epoch, granted, promised, viewstamp });
    }

    pub(crate) fn on_pre_vote_answer(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        granted: bool,
        (promised, viewstamp): (Epoch, Viewstamp),
    ) {
        if !self.plausible(partition, epoch.max(promised)) {
            return;
        }
        let consensus = &mut self.partitions.get_mut(&partition).expect("plausible").consensus;
        consensus.seen = consensus.seen.max(promised);
        let Role::PreCandidate { epoch: asked, votes } = &mut consensus.role else { return };
        if *asked != epoch {
            return;
        }
        if granted {
            votes.insert(from);
            let votes = votes.clone();
            if consensus.quorum(|node| votes.contains(&node)) {
                self.campaign(partition);
            }
        } else if viewstamp > consensus.viewstamp {
            let viewstamp = consensus.viewstamp;
            self.outbox.send(from, Election::Fetch { partition, viewstamp });
        }
    }

    /// votes for itself and asks the other voters.
    fn campaign(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        assert!(replica.consensus.leading().is_none(), "a leader campaigns");
        assert!(replica.cohort().has_voter(self.me), "a replica campaigns that does not count");
        let voters = replica.cohort().voters();
        let consensus = &mut replica.consensus;
        let epoch = consensus.promised.max(consensus.seen) + 1;
        let (candidate, viewstamp) = (consensus.me, consensus.viewstamp);
        assert!(epoch > viewstamp.epoch, "an election is not later than the table");
        consensus.role = Role::Candidate { epoch, viewstamp, votes: BTreeMap::new(), rescue: None };
        self.outbox.observe(Observation::Campaign { partition: partition.0, epoch });
        for node in voters {
            if node != self.me {
                self.outbox.send(node, Election::Vote { partition, epoch, candidate, viewstamp });
            }
        }
        self.vote(partition, epoch, candidate);
    }

    /// persists promise and vote, and answers once they are durable.
    pub(crate) fn vote(&mut self, partition: PartitionId, epoch: Epoch, candidate: ReplicaId) {
        let not_durable = mutant!(self.config, VoteNotDurable);
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        assert!(epoch > consensus.promised || consensus.voted_for == Some(candidate), "one vote for each epoch");
        assert!(epoch >= consensus.promised, "a vote is for an epoch below the promise");
        assert!(consensus.leading().is_none(), "a leader votes for another, or for itself");
        consensus.promised = epoch;
        consensus.seen = consensus.seen.max(epoch);
        consensus.voted_for = Some(candidate);
        let (replica, viewstamp) = (consensus.me, consensus.viewstamp);
        let answer = Election::VoteAnswer {
            partition,
            epoch,
            replica,
            granted: true,
            promised: epoch,
            viewstamp,
            log: LogPosition::default(),
        };
        if not_durable {
            self.outbox.send(candidate.node, answer);
        } else {
            self.outbox.persist(Record::Vote { partition, promised: epoch, voted_for: Some(candidate) });
            self.outbox.send_durable(candidate.node, answer);
        }
    }

    pub(crate) fn on_vote(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (candidate, viewstamp): (ReplicaId, Viewstamp),
    ) {
        if candidate.node != from || !self.plausible(partition, epoch) {
            return;
        }
        let may_vote = self.may_vote(partition);
        self.answer_vote(partition, epoch, (candidate, viewstamp), may_vote);
    }

    /// decides on a vote by promise and viewstamp. `may_vote` says whether other reasons forbid it.
    pub(crate) fn answer_vote(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        (candidate, viewstamp): (ReplicaId, Viewstamp),
        may_vote: bool,
    ) {
        let any_age = mutant!(self.config, VoteIgnoresViewstamp);
        let consensus = &mut self.partitions.get_mut(&partition).expect("plausible").consensus;
        consensus.seen = consensus.seen.max(epoch);
        let any_age = any_age || mutant!(self.config, StateFromOthers);
        let (own, theirs) = if any_age { Default::default() } else { (consensus.viewstamp, viewstamp) };
        let promise = (consensus.promised, consensus.voted_for);
        if may_vote && rules::may_vote_for(promise, own, (epoch, candidate, theirs)) {
            if consensus.leading().is_some() {
                self.step_down(partition, "it voted for another");
            }
            let consensus = &mut self.partitions.get_mut(&partition).expect("plausible").consensus;
            consensus.role = Role::Follower;
            consensus.leader = None;
            self.vote(partition, epoch, candidate);
            self.await_leader_again(partition);
        } else {
            let (replica, promised, viewstamp) = (consensus.me, consensus.promised, consensus.viewstamp);
            let answer = Election::VoteAnswer {
                partition,
                epoch,
                replica,
                granted: false,
                promised,
                viewstamp,
                log: LogPosition::default(),
            };
            self.outbox.send(candidate.node, answer);
        }
    }

    pub(crate) fn on_vote_answer(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (replica, granted): (ReplicaId, bool),
        (promised, viewstamp): (Epoch, Viewstamp),
    ) {
        if !self.plausible(partition, epoch.max(promised)) {
            return;
        }
        let consensus = &mut self.partitions.get_mut(&partition).expect("plausible").consensus;
        consensus.seen = consensus.seen.max(promised);
        let (own, known_promise) = (consensus.viewstamp, consensus.promised);
        let member = consensus.cohort.has_replica(&replica) && replica.node == from;
        let Role::Candidate { epoch: asked, viewstamp: at, votes, rescue } = &mut consensus.role else { return };
        if *asked != epoch || !member {
            return;
        }
        if !granted {
            if viewstamp > own {
                self.outbox.send(from, Election::Fetch { partition, viewstamp: own });
            }
            return;
        }
        votes.insert(from, viewstamp);
        let unchanged = *at == own && known_promise == epoch;
        let (votes, rescue) = (votes.clone(), rescue.clone());
        let enough = match &rescue {
            None => consensus.quorum(|node| votes.contains_key(&node)),
            Some(rescue) => rescue.left(&consensus.cohort).iter().all(|node| votes.contains_key(node)),
        };
        if unchanged && enough {
            self.lead(partition, epoch, &votes, rescue.as_deref());
        }
    }

    /// names its table `(epoch, 0)` and installs it at all followers. After a rescue that table also names the survivors.
    fn lead(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        votes: &BTreeMap<NodeId, Viewstamp>,
        rescue: Option<&Rescue>,
    ) {
        let (now, config, me) = (self.now, self.config.clone(), self.me);
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let (mut base, mut base_digest) = (replica.consensus.viewstamp, replica.consensus.table.digest());
        assert_eq!(replica.consensus.promised, epoch, "a leader promised its own epoch");
        assert_eq!(replica.consensus.voted_for, Some(replica.consensus.me), "a leader voted for itself");
        assert!(replica.cohort().has_voter(me), "a leader is in its cohort");
        assert!(base.epoch < epoch, "an installation is not later than the table that it names");
        let viewstamp = Viewstamp { epoch, length: 0 };
        let standing = replica.standing();
        let table = rescue.map(|rescue| rescued(&replica.consensus.table, rescue, viewstamp, now, &config));
        replica.install(viewstamp, table.clone(), now, &config);
        if table.is_some() {
            // No other replica has this viewstamp yet, so all of them receive the whole table.
            (base, base_digest) = (viewstamp, replica.consensus.table.digest());
            self.note_standing(partition, &standing);
        }
        self.count_bodies(partition);
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        replica.borrowed = false;
        let followers = replica.cohort().followers();
        // A node that did not vote may have no replica yet, unless it is a voter.
        let counts = |node: &NodeId| replica.cohort().has_voter(*node);
        let progress = |node: &NodeId| {
            let (viewstamp, stranger) = (votes.get(node).copied(), !counts(node));
            (*node, Progress { viewstamp, stranger, ..Progress::default() })
        };
        let progress = followers.iter().map(progress).collect();
        assert!(followers.contains(&me), "a leader is in its cohort");
        replica.consensus.leader = None;
        replica.consensus.role = Role::Leader(Box::new(Leading {
            epoch,
            base,
            base_digest,
            established: false,
            progress,
            ops: VecDeque::new(),
            ops_bytes: 0,
            granted: 0,
            waiting: VecDeque::new(),
            unknown: BTreeSet::new(),
            unproven: BTreeSet::new(),
            margin_ms: self.membership.clocks().margin_ms(now, &self.config),
            quorum_us: now.mono_us,
            transferring_until_us: 0,
            transfers: 0,
            transfer_again_us: 0,
            grant_index: 0,
            retiring: Retiring::new(now.mono_us),
            archiving: Archiving::default(),
            changing: Changing::default(),
        }));
        assert!(self.led.insert(partition), "it leads the partition already");
        let others: Vec<NodeId> = followers.into_iter().filter(|node| *node != me).collect();
        self.timers.cancel(Key::Election(partition));
        self.outbox.persist(Record::Install { partition, viewstamp, table: table.map(Arc::new) });
        self.acknowledge_own(partition);
        for node in others {
            self.catch_up(partition, node);
        }
        self.timers.set(Key::Resend(partition), self.now.mono_after_ms(self.config.resend_ms));
        self.begin_step(partition);
        if mutant!(self.config, AnswersInherited) {
            self.establish(partition);
        }
        #[cfg(feature = "mutants")]
        self.change_early(partition);
    }

    /// gives up leadership. Safety does not depend on it.
    pub(crate) fn step_down(&mut self, partition: PartitionId, reason: &'static str) {
        let now = self.now;
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let Role::Leader(leading) = std::mem::take(&mut replica.consensus.role) else { return };
        let commit = replica.consensus.commit;
        assert!(self.led.remove(&partition), "whoever leads is known to");
        for id in replica.consensus.forget_lapsed() {
            replica.reclassify(&id, now);
        }
        replica.to_drop.clear();
        for key in [Key::Resend(partition), Key::Expiry(partition), Key::Drop(partition)] {
            self.timers.cancel(key);
        }
        let Leading { epoch, waiting, grant_index, .. } = *leading;
        assert!(grant_index <= commit, "more grants could be told than were committed");
        self.outbox.observe(Observation::SteppedDown { partition: partition.0, epoch, reason });
        self.signals.report(Signal::SteppedDown { partition, epoch, waiting });
        self.leads_changed();
        self.await_leader_again(partition);
    }

    pub(crate) fn on_fetch(&mut self, from: NodeId, partition: PartitionId, viewstamp: Viewstamp) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let newer = replica.consensus.viewstamp > viewstamp;
        if newer && self.may_vote(partition) {
            let table = Arc::new(replica.consensus.table.clone());
            let viewstamp = replica.consensus.viewstamp;
            self.outbox.send(from, Election::State { partition, viewstamp, table });
        }
    }

    /// A candidate that is behind takes over the newer state and campaigns again with it. This acknowledges nothing.
    pub(crate) fn on_state(&mut self, partition: PartitionId, viewstamp: Viewstamp, table: &Arc<ClaimTable>) {
        if !self.plausible(partition, viewstamp.epoch) || !self.whole(partition, table, viewstamp) {
            return;
        }
        let (now, config) = (self.now, self.config.clone());
        let replica = self.partitions.get_mut(&partition).expect("plausible");
        if replica.consensus.leading().is_some() || viewstamp <= replica.consensus.viewstamp {
            return;
        }
        replica.consensus.role = Role::Follower;
        replica.consensus.seen = replica.consensus.seen.max(viewstamp.epoch);
        let standing = replica.standing();
        #[cfg(feature = "mutants")]
        let table = &replica.consensus.table.united(table, &config);
        replica.install(viewstamp, Some(table.as_ref().clone()), now, &config);
        let replica = self.partitions.get_mut(&partition).expect("plausible");
        let other = replica.cohort().version != standing.version;
        replica.borrowed |= other && replica.consensus.promised > viewstamp.epoch;
        self.note_standing(partition, &standing);
        self.outbox.persist(Record::Install { partition, viewstamp, table: Some(table.clone()) });
        self.dirty_heads.insert(partition);
        if !self.has_leader(partition) {
            let soon_ms = self.random.between(1, self.config.election_timeout_ms / 4);
            self.timers.set(Key::Election(partition), self.now.mono_after_ms(soon_ms));
        }
    }

    /// Whether a table received over the network matches its digest and belongs to this partition.
    pub(crate) fn whole(&mut self, partition: PartitionId, table: &ClaimTable, viewstamp: Viewstamp) -> bool {
        let right = self.partitions.get(&partition).is_some_and(|replica| {
            let sound = table.cohort.as_ref().is_none_or(|cohort| cohort.is_sound() && cohort.version <= viewstamp);
            let metadata = match &table.metadata {
                Some(metadata) => partition == PartitionId::METADATA && metadata.validate().is_ok(),
                None => partition != PartitionId::METADATA,
            };
            let schedules = match &table.schedules {
                Some(schedules) => partition == PartitionId::METADATA && schedules.validate().is_ok(),
                None => true,
            };
            let whole = table.digest() == table.digest_recomputed();
            table.founders == replica.consensus.table.founders && sound && metadata && schedules && whole
        });
        if !right {
            self.outbox.refuse("damaged table");
        }
        right
    }

    /// Leadership transfer: campaigns at once, without a pre-vote.
    pub(crate) fn on_transfer(&mut self, partition: PartitionId, epoch: Epoch) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let consensus = &replica.consensus;
        // An earlier campaign of this replica may have failed. Then its promise is above the leader's epoch, unknown to the
        // leader; so the table's epoch is compared.
        let level = consensus.viewstamp.epoch == epoch;
        if level
            && self.may_vote(partition)
            && replica.cohort().has_voter(self.me)
            && consensus.leading().is_none()
            && !self.stopping
            && !self.is_fenced()
        {
            self.campaign(partition);
            self.await_leader_again(partition);
        }
    }

    /// Asks one of the `fit` nodes to take over, if it has caught up and nothing is under way. Nothing is granted until that node
    /// leads or a timeout has passed. If the request has no effect, the next attempt asks the next node, after a pause that
    /// doubles with each attempt. Returns whether a node was asked.
    pub(crate) fn transfer(&mut self, partition: PartitionId, fit: &[NodeId]) -> bool {
        let (now_us, timeout_ms, stopping) = (self.now.mono_us, self.config.election_timeout_ms, self.stopping);
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        let (length, commit) = (consensus.viewstamp.length, consensus.commit);
        let Some(leading) = consensus.leading_mut() else { return false };
        let quiet = leading.established && commit == length && leading.waiting.is_empty();
        // A node that is stopping has no time to lose.
        let again_us = if stopping { leading.transferring_until_us } else { leading.transfer_again_us };
        if !quiet || fit.is_empty() || now_us < again_us {
            return false;
        }
        let level = |node: &&NodeId| {
            leading.progress.get(node).is_some_and(|progress| progress.grant_ack_index == Some(length))
        };
        let turn = leading.transfers as usize % fit.len();
        let Some(node) = fit[turn..].iter().chain(&fit[..turn]).find(level) else { return false };
        assert!(*node != self.me, "a leader hands over to itself");
        leading.transferring_until_us = self.now.mono_after_ms(timeout_ms);
        leading.transfer_again_us = self.now.mono_after_ms(timeout_ms << leading.transfers.min(TRANSFER_DOUBLINGS_MAX));
        leading.transfers += 1;
        let epoch = leading.epoch;
        self.outbox.send(*node, Election::Transfer { partition, epoch });
        true
    }

    /// Transfers leadership to preferred nodes that have been up for a while.
    pub(crate) fn hand_over_misplaced(&mut self) {
        const AT_ONCE_MAX: usize = 16;
        let patience_us = self.config.transfer_after_ms * 1_000;
        let settled = |node: &NodeId| {
            self.is_reachable(*node)
                && self.may_lead(*node)
                && self.peer(*node).is_some_and(|peer| self.now.mono_us >= peer.up_since_us + patience_us)
        };
        let misplaced: Vec<(PartitionId, NodeId)> = self
            .partitions
            .iter()
            .filter(|(_, replica)| replica.consensus.established())
            .filter_map(|(id, replica)| Some((*id, replica.cohort().members().next()?)))
            .filter(|(_, preferred)| *preferred != self.me && settled(preferred))
            .collect();
        let mut handed = 0;
        for (partition, preferred) in misplaced {
            handed += usize::from(self.transfer(partition, &[preferred]));
            if handed == AT_ONCE_MAX {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_model::claim_table::levels::Level;
    use norn_wire::QueueName;

    /// Goal: survivors of a rescue give no permits that the lost replicas may have given. Method: a queue had earned some.
    #[test]
    fn a_rescue_begins_with_empty_buckets() {
        let slots = [1, 2, 3].map(|node| ReplicaId { node: NodeId(node), incarnation: 1 });
        let mut table = ClaimTable::new(slots.to_vec());
        let at = |length| Viewstamp { epoch: 1, length };
        let queue = QueueName::new("mail").expect("a name");
        let level = Some(Level { millionths: 1_000_000, given: 0 });
        table.apply(&Op::Level { queue, level }, at(1)).expect("it fits");
        let rescue = Rescue { lost: BTreeSet::from([NodeId(2), NodeId(3)]), lease_ms: 1_000 };
        let after = rescued(&table, &rescue, at(2), Now::default(), &Config::default());
        assert!(after.levels.is_empty() && after.digest() == after.digest_recomputed());
    }
}
