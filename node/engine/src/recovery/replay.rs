//! Replay of the log, and the start of a node.

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Effect;
use crate::payloads::bodies::blobs_of;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::config::mutant;
use norn_model::consensus::{LeaseAges, UNDATED_US};
use norn_model::data_loss::{self, DataLoss};
use norn_model::metadata::{self, Metadata};
use norn_model::record::Record;
use norn_model::replica::Partition;
use norn_model::ring;
use norn_model::task::{Place, Slot, Task};
use norn_model::time::Now;
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::response::Genesis;
use norn_wire::{NodeId, PartitionId, TaskId};
use std::sync::Arc;

impl Node {
    /// Takes in a record of a snapshot or of the log. The record may be known already, or outdated, only if it is `covered` by a
    /// snapshot. `place` is the log location of a record of facts, if known. An error means that this node did not write the log.
    pub fn recover(&mut self, record: Record, covered: bool, place: Option<Place>) -> Result<(), String> {
        if covered && self.knows(&record) {
            return Ok(());
        }
        match record {
            Record::Identity { node, incarnation } => {
                if (node, incarnation) != (self.me, self.founding.incarnation) {
                    return Err(format!("the log is of node {node}, not of {}", self.me));
                }
                Ok(())
            }
            Record::Boot { count } => {
                self.boot = count;
                Ok(())
            }
            Record::Unanswered { began } => {
                self.membership.recover_unanswered(began);
                Ok(())
            }
            Record::Genesis(genesis) => match &self.genesis {
                // Each segment repeats it.
                Some(known) if *known == genesis => Ok(()),
                Some(known) => Err(format!("the log is of cluster {} and of {}", known.cluster, genesis.cluster)),
                None => {
                    ring::validate(&genesis)?;
                    self.join(genesis);
                    Ok(())
                }
            },
            Record::Roster(roster) => {
                if roster.version > self.roster.version {
                    self.take_roster(roster);
                }
                Ok(())
            }
            Record::HighWaterMark { time_ms, sessions } => {
                self.id_allocator.recover(time_ms, sessions);
                Ok(())
            }
            Record::Vote { partition, promised, voted_for } => {
                // A promise outlives its replica.
                self.replica_mut(partition)?.consensus.recover_vote(promised, voted_for);
                Ok(())
            }
            Record::Install { partition, viewstamp, table } => {
                self.recover_install(partition, viewstamp, table, covered)
            }
            Record::Ops { partition, after, ops } => self.recover_ops(partition, after, &ops, covered),
            Record::Facts { partition, items } => self.recover_facts(partition, Arc::unwrap_or_clone(items), place),
            Record::Forgot { partition, ids } => self.recover_forgot(partition, &ids),
            Record::DataLoss { partition, data_loss, losses } => {
                self.replica_mut(partition)?.loss_recovery.replay(data_loss, losses);
                Ok(())
            }
            Record::Left { partition, advertised } => {
                self.replica_mut(partition)?.clear();
                self.count_bodies(partition);
                self.recover_route(partition, &advertised);
                Ok(())
            }
            Record::Hint { partition, since_ms, items } => self.recover_hint(partition, since_ms, &items),
            Record::IdHint { to, partition, since_ms, ids } => self.recover_id_hints(to, partition, since_ms, &ids),
            Record::Handed { to, partition, ids } => {
                self.recover_handed(to, partition, &ids);
                Ok(())
            }
            Record::Ran { us } => {
                self.recover_ran(us, covered);
                Ok(())
            }
            Record::LeaseAges { partition, ran_us, points } => {
                self.recover_ages(partition, ran_us, points);
                Ok(())
            }
            Record::Retired { reason } => Err(format!("it was retired for ever: {reason}")),
            Record::End { .. } => Err("the end of a snapshot within a log".into()),
        }
    }

    fn recover_install(
        &mut self,
        partition: PartitionId,
        viewstamp: Viewstamp,
        table: Option<Arc<ClaimTable>>,
        covered: bool,
    ) -> Result<(), String> {
        let (now, config) = (self.undated(partition), self.config.clone());
        let replica = self.replica_mut(partition)?;
        // The replica was cleared later; the record is older than the snapshot.
        if covered && table.is_none() && replica.is_blank() {
            return Ok(());
        }
        if viewstamp <= replica.consensus.viewstamp {
            return Err(format!("the table of partition {partition} goes back to {viewstamp:?}"));
        }
        if replica.loss_recovery.is_passing() && table.is_none() {
            return Ok(());
        }
        if table.is_some() {
            replica.loss_recovery.replayed_table();
        }
        replica.consensus.seen = replica.consensus.seen.max(viewstamp.epoch);
        replica.install(viewstamp, table.map(Arc::unwrap_or_clone), now, &config);
        Ok(())
    }

    fn recover_forgot(&mut self, partition: PartitionId, ids: &[TaskId]) -> Result<(), String> {
        let store = &mut self.replica_mut(partition)?.store;
        for id in ids {
            store.forget(id);
        }
        self.count_bodies(partition);
        Ok(())
    }

    fn recover_ops(
        &mut self,
        partition: PartitionId,
        after: Viewstamp,
        ops: &[Arc<Op>],
        covered: bool,
    ) -> Result<(), String> {
        let (now, config) = (self.undated(partition), self.config.clone());
        let replica = self.replica_mut(partition)?;
        let cleared = covered && replica.is_blank();
        if after != replica.consensus.viewstamp && (replica.loss_recovery.is_passing() || cleared) {
            replica.merge_endings(ops, now, &config);
            replica.take_ended();
            return Ok(());
        }
        if after != replica.consensus.viewstamp {
            return Err(format!("operations of partition {partition} after {after:?}, and its table is elsewhere"));
        }
        let applied = ops.iter().try_for_each(|op| replica.apply(op, now, &config));
        replica.consensus.forget_recent();
        replica.take_ended();
        applied.map_err(|misfit| misfit.to_string())
    }

    fn recover_facts(
        &mut self,
        partition: PartitionId,
        items: Vec<(TaskId, Task)>,
        place: Option<Place>,
    ) -> Result<(), String> {
        let (now, config) = (self.now, self.config.clone());
        let replica = self.replica_mut(partition)?;
        let mut bodies = Vec::new();
        for (id, delta) in items {
            bodies.extend(blobs_of(id, &delta));
            let merged = replica.merge_again(id, delta, now, &config);
            bodies.extend(merged.body.map(|hash| (id, Slot::Spec, hash)));
        }
        self.count_bodies(partition);
        if let Some(place) = place {
            self.place_bodies(partition, &bodies, place);
        }
        Ok(())
    }

    /// Returns the time of a record of a partition, as undated: the next uptime record dates it.
    fn undated(&mut self, partition: PartitionId) -> Now {
        self.consensus.uptime_mut().note_undated(partition);
        let early = mutant!(self.config, AgesFromBefore);
        let mono_us = if early { self.consensus.uptime().recovered_us() } else { UNDATED_US };
        Now { mono_us, ..self.now }
    }

    /// Dates the earlier records by the uptime at which they were written. With `covered`, the snapshot may be newer, so its
    /// content is not dated. If a start could not read the end of the count and began again lower, the greatest uptime so far
    /// dates the records: by the lower one they would seem older than they are once the count goes on from the greater one.
    fn recover_ran(&mut self, us: u64, covered: bool) {
        self.consensus.uptime_mut().recover(us);
        if covered {
            return;
        }
        let us = self.consensus.uptime().recovered_us();
        let config = self.config.clone();
        for partition in self.consensus.uptime_mut().take_undated() {
            if let Some(replica) = self.partitions.get_mut(&partition) {
                replica.consensus.date_all(us, &config);
            }
        }
    }

    fn recover_ages(&mut self, partition: PartitionId, ran_us: u64, points: Vec<(Viewstamp, u64)>) {
        self.consensus.uptime_mut().recover(ran_us);
        let ran_us = self.consensus.uptime().recovered_us();
        let config = self.config.clone();
        if let Some(replica) = self.partitions.get_mut(&partition) {
            replica.consensus.take_ages(&LeaseAges::new(points), ran_us, 0, &config);
        }
    }

    /// Whether a record says nothing new. Facts are merged anyway.
    fn knows(&self, record: &Record) -> bool {
        let consensus = |partition: &PartitionId| self.partitions.get(partition).map(|replica| &replica.consensus);
        match record {
            Record::Genesis(genesis) => self.genesis.as_ref() == Some(genesis),
            Record::HighWaterMark { time_ms, sessions } => self.id_allocator.covers(*time_ms, *sessions),
            Record::Vote { partition, promised, voted_for } => consensus(partition).is_some_and(|consensus| {
                (*promised, voted_for.is_some()) <= (consensus.promised, consensus.voted_for.is_some())
            }),
            Record::Install { partition, viewstamp, .. } => {
                consensus(partition).is_some_and(|consensus| *viewstamp <= consensus.viewstamp)
            }
            Record::Ops { partition, after, ops } => consensus(partition).is_some_and(|consensus| {
                let end = Viewstamp { length: after.length + ops.len() as u64, ..*after };
                end <= consensus.viewstamp
            }),
            Record::Identity { .. }
            | Record::Boot { .. }
            | Record::Unanswered { .. }
            | Record::Facts { .. }
            | Record::DataLoss { .. }
            | Record::Left { .. }
            | Record::Forgot { .. }
            | Record::Hint { .. }
            | Record::IdHint { .. }
            | Record::Handed { .. }
            | Record::Roster(_)
            | Record::Ran { .. }
            | Record::LeaseAges { .. }
            | Record::Retired { .. }
            | Record::End { .. } => false,
        }
    }

    /// Notes that a record of this replica is lost between the last recovered record and the next one. Called once for each lost
    /// record, with its ordinal, and in every start as long as the damage is there; [`norn_model::record::Kind::data_loss`] gives what the
    /// record may have contained. An error means that the partition is not held here.
    pub fn lose(&mut self, partition: PartitionId, loss: u64, data_loss: DataLoss) -> Result<(), String> {
        self.replica_mut(partition)?.loss_recovery.lose(loss, data_loss);
        Ok(())
    }

    /// As [`Node::lose`], for any replica, also those that the log has not named yet.
    pub fn lose_anywhere(&mut self, loss: u64) {
        self.consensus.note_lost_somewhere(loss);
    }

    /// After the replay: partitions that lost what no other replica can give back, and what that is. If the node starts all the
    /// same, these replicas answer for nothing.
    pub fn lost_for_good(&self) -> Vec<(PartitionId, DataLoss)> {
        // A replica that never had anything here has lost nothing, and one that is no member has nothing to give.
        let healable = |replica: &&Partition| {
            let lost = replica.loss_recovery.losses != 0 && replica.cohort().has_member(self.me);
            !lost || data_loss::is_recoverable(replica.loss_recovery.data_loss, self.members_at_most(replica))
        };
        let lost = self.partitions.values().filter(|replica| !healable(replica));
        lost.map(|replica| (replica.id, replica.loss_recovery.data_loss)).collect()
    }

    /// Upper bound on the number of members of a replica's cohort. The record of its growth may be lost: a cohort that is smaller
    /// than at its founding is about to grow again.
    fn members_at_most(&self, replica: &Partition) -> usize {
        let members = replica.cohort().members().count();
        if !replica.loss_recovery.data_loss.table {
            return members;
        }
        let living = self.roster.members.values().filter(|member| member.state.is_present()).count();
        members.max(self.founders(replica.id).len().min(living))
    }

    /// Begins a start after the replay of a log that is durable up to this record; the clocks read `now`.
    pub(crate) fn begin_start(&mut self, now: Now, durable: u64) {
        self.now = now;
        self.consensus.uptime_mut().begin(now);
        let ran_us = self.consensus.uptime().recovered_us();
        self.boot += 1;
        self.pending_requests.begin(self.boot);
        // The log's length comes first: if the disk takes only a part of this start's records, they must not make the log look
        // longer.
        self.begin_log(durable);
        self.outbox.persist(Record::Boot { count: self.boot });
        let config = self.config.clone();
        let ids: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for id in ids {
            let replica = self.partitions.get_mut(&id).expect("just listed");
            let consensus = &replica.consensus;
            replica.borrowed = consensus.promised > consensus.viewstamp.epoch && !consensus.cohort.is_founded();
            replica.consensus.rearm(now, ran_us, &config);
            replica.store.take_touched();
            if replica.is_blank() {
                replica.clear();
            }
            let lost = replica.loss_recovery.end_replay();
            self.release_due(id);
            if lost {
                self.record_found_loss(id);
            }
            self.count_bodies(id);
        }
        self.make_room();
        self.begin_ages();
    }

    /// Makes the node a part of a cluster.
    pub(crate) fn join(&mut self, genesis: Arc<Genesis>) {
        let me = ReplicaId { node: self.me, incarnation: self.founding.incarnation };
        for partition in (0..genesis.partitions as u16).map(PartitionId) {
            let preference = metadata::cohort(&genesis, partition);
            if preference.contains(&me) {
                self.partitions.insert(partition, Partition::new(partition, me, preference));
            }
        }
        let metadata = Metadata::found(&genesis);
        let founders = metadata.founders();
        let roster = Arc::new(metadata.roster());
        if founders.contains(&me) {
            let replica = Partition::new(PartitionId::METADATA, me, founders.clone()).with_metadata(metadata);
            self.partitions.insert(PartitionId::METADATA, replica);
        }
        self.membership.note_root_founders(founders);
        self.genesis = Some(genesis);
        self.take_roster(roster);
    }

    /// Starts the timers.
    pub(crate) fn begin(&mut self, genesis: Arc<Genesis>) {
        self.outbox.effect(Effect::Joined { genesis, roster: self.roster.clone() });
        self.timers.set(Key::Reconciler, self.now.mono_us);
        self.timers.set(Key::Heartbeat, self.now.mono_us);
        self.timers.set(Key::AntiEntropy, self.after_ms(self.config.exchange_interval_ms));
        self.timers.set(Key::Sweep, self.after_ms(self.config.sweep_interval_ms));
        let peers: Vec<NodeId> = self.others().collect();
        for node in peers {
            self.begin_anti_entropy_with(node);
        }
        self.begin_hints();
        self.count_answers();
        let ids: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for id in ids {
            self.await_leader(id);
            self.timers.set(Key::Change(id), self.now.mono_us);
        }
        if self.partitions.values().any(|replica| replica.loss_recovery.data_loss.table) {
            self.timers.set(Key::Rejoin, self.now.mono_us);
        }
    }
}
