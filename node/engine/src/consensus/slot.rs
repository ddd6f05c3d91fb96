//! How a replica joins a cohort, and how it leaves.
//!
//! **In.** A leader sends its table to the nodes that it admits. A node without a replica creates one then. The new replica has
//! promised nothing of its own, and both its table and its facts are marked as incomplete (`model/src/data_loss.rs`), so that it
//! neither votes nor counts before it has them. Nothing else is needed to join.
//!
//! **Out.** A draining replica goes on following. Once its leader confirms that the cohort without it is committed (`Dismiss`), it takes
//! facts from members alone. As soon as a majority of them has agreed with it, it has nothing that they lack. Its leader clears
//! it, and it drops all but its promise and its vote. If it is admitted again, it begins as a replica that lost everything else,
//! which is true.
//!
//! A replica that was away meanwhile learns of its removal when it asks (`Outside`). It asks from when it hears of a cohort that
//! does not know it until it has the answer. If it was cleared without draining, because no leader waits for ever, it may still
//! have facts that no member has. Then it reports this (`Undrained`) instead of dropping them, and becomes a draining replica once more
//! (`Change::Recall`).

use crate::Node;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::cohort::{AdvertisedCohort, Change, CohortSlot, Role};
use norn_model::config::mutant;
use norn_model::consensus::Progress;
use norn_model::data_loss::DataLoss;
use norn_model::message::{Election, LogPosition, PeerMessage, Reconfiguration, Replication};
use norn_model::metadata::Metadata;
use norn_model::record::Record;
use norn_model::replica::{Partition, Standing};
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId};
use std::sync::Arc;

impl Node {
    /// Whether a table is outdated: it is older than the cohort that this node knows to have left. So is an installation that
    /// builds on the table this node had before it was cleared. It looks as if it fitted, because a cleared replica has the
    /// viewstamp of genesis.
    pub(crate) fn is_of_before(&self, message: &PeerMessage) -> bool {
        let (partition, epoch, table) = match message {
            PeerMessage::Replication(Replication::Snapshot { partition, viewstamp, table, .. }) => {
                (*partition, viewstamp.epoch, Some(table))
            }
            PeerMessage::Election(Election::State { partition, viewstamp, table }) => {
                (*partition, viewstamp.epoch, Some(table))
            }
            PeerMessage::Replication(Replication::Install { partition, epoch, table, .. }) => {
                (*partition, *epoch, table.as_ref())
            }
            _ => return false,
        };
        let held = self.partitions.get(&partition).is_some_and(|replica| !replica.is_blank());
        let cohort = table.and_then(|table| table.cohort.as_ref());
        let version = cohort.map_or(Viewstamp::default(), |cohort| cohort.version);
        let left =
            |advertised: &AdvertisedCohort| !advertised.cohort.knows(self.me) && (epoch, version) <= advertised.rank();
        !held && self.told_of(partition).is_some_and(left)
    }

    /// Creates a replica for a table of a partition that is not held here, if the table names this node.
    fn take_slot(&mut self, partition: PartitionId, epoch: Epoch, table: &ClaimTable) {
        if !self.has_partition(partition) || self.partitions.contains_key(&partition) || epoch == 0 {
            return;
        }
        let mut sorted = self.founders(partition);
        sorted.sort_unstable();
        let own = self.own_id();
        let named = match &table.cohort {
            Some(cohort) => cohort.is_sound() && cohort.knows_replica(&own),
            None => sorted.contains(&own),
        };
        if !named || table.founders != sorted || table.digest() != table.digest_recomputed() {
            self.outbox.refuse("a table of a partition that is not held here");
            return;
        }
        let replica = self.blank_replica(partition);
        assert_eq!(replica.consensus.viewstamp, Viewstamp::default(), "a new replica has a table");
        self.partitions.insert(partition, replica);
        self.record_data_loss(partition);
        self.begin_slot(partition);
    }

    /// Answers a leader that believes this node to have the table of a partition that is not held here. The log was replaced, and
    /// no peer remembers that. The leader then sends the whole table, and this node creates a replica that has lost everything.
    pub(crate) fn refuse_unheld(&mut self, leader: NodeId, partition: PartitionId, message: &PeerMessage) {
        let builds_on_one = matches!(
            message,
            PeerMessage::Replication(Replication::Install { table: None, .. } | Replication::Ops { .. })
        );
        let held = self.partitions.contains_key(&partition) || !self.has_partition(partition);
        if builds_on_one && !held {
            self.outbox.send(leader, Reconfiguration::Unheld { partition, replica: self.own_id() });
        }
    }

    /// At the leader: a follower holds nothing. The first report makes the leader send the table at once; later ones leave it to
    /// the resend timer.
    pub(crate) fn on_unheld(&mut self, from: NodeId, partition: PartitionId, replica: ReplicaId) {
        let Some(state) = self.partitions.get_mut(&partition).filter(|_| replica.node == from) else { return };
        let known = state.consensus.cohort.knows_replica(&replica);
        let Some(leading) = state.consensus.leading_mut() else { return };
        if !known {
            self.tell_outside(from, partition);
            return;
        }
        if let Some(progress) = leading.progress.get_mut(&from).filter(|progress| !progress.stranger) {
            *progress = Progress { stranger: true, ..Progress::default() };
            self.catch_up(partition, from);
        }
    }

    /// Starts what a replica needs that is created, or has lost everything, while the node runs.
    fn begin_slot(&mut self, partition: PartitionId) {
        assert!(self.partitions.contains_key(&partition), "there is no replica to begin with");
        self.outbox.observe(Observation::SlotTaken { partition: partition.0 });
        self.signals.report(Signal::SlotTaken(partition));
        self.count_answers();
        self.timers.set_if_none(Key::Rejoin, self.now.mono_us);
        self.timers.set_if_none(Key::Change(partition), self.after_ms(self.config.resend_ms));
    }

    /// Compares the replica with its standing at `before` a change of the table. Callers do this before they log the change, so
    /// that no crash leaves a replica with a slot that does not know that it lacks facts.
    pub(crate) fn note_standing(&mut self, partition: PartitionId, before: &Standing) {
        let replica = self.partitions.get_mut(&partition).expect("it has just changed");
        let after = replica.standing();
        assert!(after.version <= replica.consensus.viewstamp, "a cohort is later than its table");
        if after.lacks_facts(before) && replica.loss_recovery.open_facts() {
            self.signals.report(Signal::FactsMissing(partition));
            self.record_data_loss(partition);
        }
        if after.version != before.version {
            self.cohort_changed(partition);
        }
    }

    /// Reacts to a new cohort of a replica.
    fn cohort_changed(&mut self, partition: PartitionId) {
        let round = self.pending_requests.number();
        let replica = self.partitions.get_mut(&partition).expect("it has just changed");
        replica.loss_recovery.begin_anew(round);
        let (cohort, leads) = (replica.cohort().clone(), replica.consensus.leading().is_some());
        self.outbox.observe(Observation::CohortChanged { partition: partition.0, cohort: cohort.clone() });
        let advertised = AdvertisedCohort { epoch: self.partitions[&partition].consensus.viewstamp.epoch, cohort };
        self.learn_route(partition, &advertised);
        self.signals.report(Signal::CohortChanged(partition));
        if leads {
            self.begin_step(partition);
        }
        self.count_answers();
        self.timers.set_if_none(Key::Rejoin, self.now.mono_us);
        self.timers.set(Key::Change(partition), self.now.mono_us);
    }

    /// Plays a replica's part in a change; repeats by timer while a change is under way.
    pub(crate) fn drive_change(&mut self, partition: PartitionId) {
        self.leave_if_cleared(partition);
        if self.partitions[&partition].consensus.leading().is_some() {
            self.lead_change(partition);
        }
        if self.wants_agreement(partition) {
            self.ask_to_agree(partition);
        }
        self.tell_ready(partition);
        self.ask_for_dismissal(partition);
        self.ask_back(partition);
        let replica = &self.partitions[&partition];
        let changes = !replica.cohort().is_stable() || self.leads_a_change(partition);
        if changes || replica.role() == Role::DrainingReplica || self.is_out(partition) {
            self.timers.set(Key::Change(partition), self.after_ms(self.config.resend_ms));
        }
    }

    /// Asks the leader for its dismissal. An undismissed draining replica may have been cleared already and exist because of a late
    /// message. So may a replica that has heard of its removal and has nothing to hand over: a leader that does not know it sends it
    /// nothing unasked.
    fn ask_for_dismissal(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let leader = self.leader_of(partition).filter(|leader| *leader != self.me);
        let waits = replica.role() == Role::DrainingReplica && !replica.is_dismissed();
        let unasked = mutant!(self.config, OutsideUnasked);
        let waits = waits || self.is_out(partition) && self.may_drop(partition) && !unasked;
        if let Some(leader) = leader.filter(|_| waits) {
            let consensus = &replica.consensus;
            let (own, promised, viewstamp) = (consensus.me, consensus.promised, consensus.viewstamp);
            self.outbox.send(leader, Replication::Nack { partition, replica: own, promised, viewstamp });
        }
    }

    /// Reports to the leader how many facts this replica has, and whether they are complete, once that is on disk.
    pub(crate) fn tell_ready(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let cohort = replica.cohort();
        let asked = cohort.has_next(self.me) || replica.is_dismissed();
        if !asked || !self.is_answered(partition) {
            return;
        }
        let ready = !replica.loss_recovery.data_loss.table && self.has_agreed(partition);
        let leader = if replica.consensus.leading().is_some() { Some(self.me) } else { self.leader_of(partition) };
        let (at, own, log) = (cohort.version, replica.consensus.me, LogPosition::default());
        let facts = (replica.store.count() + replica.store.tombstones_count()) as u64;
        if let Some(leader) = leader {
            self.outbox.send_durable(leader, Reconfiguration::Ready { partition, replica: own, at, ready, facts, log });
        }
    }

    /// Handles the leader's confirmation that a cohort without this replica is committed.
    pub(crate) fn on_dismiss(&mut self, partition: PartitionId, at: Viewstamp) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        if replica.role() == Role::DrainingReplica && replica.cohort().version == at && !replica.is_dismissed() {
            replica.dismissed = Some(at);
            if mutant!(self.config, LeavesEarly) {
                self.leave(partition);
                return;
            }
            // Client writes may have added facts here since the last agreement.
            let round = self.pending_requests.number();
            self.partitions.get_mut(&partition).expect("just seen").loss_recovery.begin_anew(round);
            self.timers.set(Key::Change(partition), self.now.mono_us);
        }
    }

    /// Informs a node that it has no part in the cohort.
    pub(crate) fn tell_outside(&mut self, node: NodeId, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        // Only a committed cohort may be advertised this way.
        if consensus.established() && self.is_cohort_committed(partition) {
            let advertised =
                Box::new(AdvertisedCohort { epoch: consensus.viewstamp.epoch, cohort: consensus.cohort.clone() });
            self.outbox.send(node, Reconfiguration::Outside { partition, advertised });
        }
    }

    /// Handles a leader's message that this node has no part in a committed cohort.
    pub(crate) fn on_outside(&mut self, from: NodeId, partition: PartitionId, advertised: &AdvertisedCohort) {
        let heard = advertised.cohort.has_voter(from) && self.plausible(partition, advertised.epoch);
        if !heard || advertised.cohort.knows(self.me) || !advertised.cohort.is_sound() {
            return;
        }
        self.learn_route(partition, advertised);
        let Some(replica) = self.partitions.get(&partition) else { return };
        // A later epoch outranks even with an earlier version: the operation that admitted this node was never committed.
        if advertised.rank() <= (replica.consensus.viewstamp.epoch, replica.cohort().version) {
            return;
        }
        // Otherwise this replica asks to be re-admitted: at once if this is news (`learn_route`), then at every resend.
        if self.may_drop(partition) {
            self.leave(partition);
        }
    }

    /// Whether a removed replica has nothing left to hand over.
    fn may_drop(&self, partition: PartitionId) -> bool {
        let replica = &self.partitions[&partition];
        let handed_over = replica.is_dismissed() && self.has_agreed(partition);
        handed_over || replica.store.count() == 0 || mutant!(self.config, StraysDrop)
    }

    /// Whether this replica was removed without draining: it is out, and still has something to hand over.
    fn is_undrained(&self, partition: PartitionId) -> bool {
        self.is_out(partition) && !self.may_drop(partition)
    }

    /// Asks the leader to re-admit this undrained ex-member as a draining replica.
    fn ask_back(&mut self, partition: PartitionId) {
        let leader = self.leader_of(partition).filter(|leader| self.is_undrained(partition) && *leader != self.me);
        if let Some(leader) = leader {
            let replica = &self.partitions[&partition];
            let (own, cohort) = (replica.consensus.me, replica.cohort());
            let slot = CohortSlot { replica: own, since: cohort.since(self.me).unwrap_or(cohort.version) };
            self.outbox.send(leader, Reconfiguration::Undrained { partition, slot });
        }
    }

    /// At the leader: re-admits, as a draining replica, a cleared replica that still has something.
    pub(crate) fn on_undrained(&mut self, from: NodeId, partition: PartitionId, slot: CohortSlot) {
        if slot.replica.node != from || !self.may_append(partition) || !self.is_cohort_committed(partition) {
            return;
        }
        let consensus = &self.partitions[&partition].consensus;
        let (cohort, at) = (&consensus.cohort, consensus.viewstamp);
        let change = Change::Recall { slot, at_ms: self.now.wall_ms };
        let fits = slot.since < at && cohort.changed(&change, Viewstamp { length: at.length + 1, ..at }).is_ok();
        if fits {
            self.append(partition, Op::Cohort(change), None);
        }
    }

    /// Drops all of a cleared replica but its promise and its vote.
    pub(crate) fn leave(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        if replica.is_blank() {
            return;
        }
        if replica.consensus.leading().is_some() {
            self.step_down(partition, "it holds the partition no more");
        }
        let advertised = Box::new(self.route_of(partition));
        self.outbox.persist(Record::Left { partition, advertised });
        self.partitions.get_mut(&partition).expect("just seen").clear();
        assert!(self.partitions[&partition].is_blank(), "a replica that has left still has a table");
        assert!(!self.led.contains(&partition), "a replica that has left leads");
        self.payloads.forget_lost(partition);
        self.count_bodies(partition);
        for key in [
            Key::Election,
            Key::Resend,
            Key::Expiry,
            Key::Delayed,
            Key::Drop,
            Key::Quiet,
            Key::Wake,
            Key::Retire,
            Key::Change,
            Key::Follow,
            Key::Sessions,
            Key::Children,
        ] {
            self.timers.cancel(key(partition));
        }
        self.consensus.pending_replication.remove(&partition);
        self.dirty_heads.remove(&partition);
        self.signals.report(Signal::Left(partition));
        self.outbox.observe(Observation::Left { partition: partition.0 });
    }

    /// Leaves if the installed table does not name this replica: it was cleared while it was away.
    pub(crate) fn leave_if_cleared(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        if replica.role() == Role::Outside && !replica.cohort().is_founded() && self.may_drop(partition) {
            self.leave(partition);
        }
    }

    /// Creates the replica for a whole table before the handling of the message that carries it.
    pub(crate) fn take_offered_slot(&mut self, message: &PeerMessage) {
        let (partition, epoch, table): (_, _, &Arc<ClaimTable>) = match message {
            PeerMessage::Replication(Replication::Snapshot { partition, viewstamp, table, .. }) => {
                (*partition, viewstamp.epoch, table)
            }
            PeerMessage::Replication(Replication::Install { partition, epoch, table: Some(table), .. }) => {
                (*partition, *epoch, table)
            }
            _ => return,
        };
        self.take_slot(partition, epoch, table);
    }

    /// Returns the replica that a record of the log belongs to. A replica that was not there at genesis begins blank: it was
    /// created without a record, and has nothing until the log says otherwise.
    pub(crate) fn replica_mut(&mut self, partition: PartitionId) -> Result<&mut Partition, String> {
        if !self.has_partition(partition) {
            return Err(format!("a record of partition {partition}, which there is not"));
        }
        if !self.partitions.contains_key(&partition) {
            let replica = self.blank_replica(partition);
            self.partitions.insert(partition, replica);
        }
        Ok(self.partitions.get_mut(&partition).expect("just seen to"))
    }

    /// Creates a replica that has nothing yet, with all losses that may be its own: the next start finds them before any record
    /// of the replica, and must not take them for new ones once it has recovered.
    pub(crate) fn blank_replica(&self, partition: PartitionId) -> Partition {
        let mut blank = Partition::blank(partition, self.own_id(), self.founders(partition));
        let both = DataLoss { facts: true, table: true };
        self.consensus.lost_somewhere.iter().for_each(|loss| blank.loss_recovery.lose(*loss, both));
        match &self.genesis {
            Some(genesis) if partition == PartitionId::METADATA => blank.with_metadata(Metadata::found(genesis)),
            _ => blank,
        }
    }
}
