//! Replication of a partition's table: install, operations, snapshot, acknowledgements, commit.

use crate::Node;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::{ClaimTable, Op};
use norn_model::config::mutant;
use norn_model::consensus::{ConsensusState, Waiting};
use norn_model::data_loss::DataLoss;
use norn_model::limits::{OPS_PER_MESSAGE_MAX, OPS_UNCOMMITTED_MAX};
use norn_model::message::{AntiEntropy, LogPosition, Replication};
use norn_model::record::Record;
use norn_model::replica::{DoneFlag, Partition};
use norn_model::rules;
use norn_model::task::Task;
use norn_model::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId, TaskId, Token};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Node {
    /// Appends an operation that the caller has validated. The end of the step sends it to followers and acknowledges it here.
    pub(crate) fn append(&mut self, partition: PartitionId, op: Op, waiting: Option<Waiting>) {
        let (now, config) = (self.now, self.config.clone());
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let early = mutant!(self.config, SwitchesEarly) || mutant!(self.config, RevertsEarly);
        assert!(replica.consensus.established() || early, "only an established leader appends");
        let (after, standing) = (replica.consensus.viewstamp, replica.standing());
        if let Err(misfit) = replica.apply(&op, now, &config) {
            self.halt(format!("{partition:?}: the leader's own {misfit}"));
            return;
        }
        let op = Arc::new(op);
        replica.consensus.keep(op.clone());
        let length = replica.consensus.viewstamp.length;
        let leading = replica.consensus.leading_mut().expect("it leads");
        let in_order = leading.waiting.back().is_none_or(|(last, _)| *last < length);
        assert!(in_order, "a continuation waits for an operation that is not appended yet");
        if let Some(waiting) = waiting {
            leading.waiting.push_back((length, waiting));
        }
        self.note_standing(partition, &standing);
        self.outbox.persist(Record::Ops { partition, after, ops: vec![op] });
        self.consensus.pending_replication.insert(partition);
        self.dirty_heads.insert(partition);
        self.arm_expiry(partition);
    }

    /// Whether a leader may append another operation now.
    pub(crate) fn may_append(&self, partition: PartitionId) -> bool {
        let Some(replica) = self.partitions.get(&partition) else { return false };
        let consensus = &replica.consensus;
        let idle = consensus.leading().is_some_and(|leading| self.now.mono_us >= leading.transferring_until_us);
        assert!(
            consensus.commit <= consensus.viewstamp.length,
            "the commit index is ahead of the operations it covers"
        );
        let room = consensus.viewstamp.length - consensus.commit < OPS_UNCOMMITTED_MAX;
        consensus.established() && idle && room && !self.leads_while_draining(partition)
    }

    /// Sends the operations appended in this step.
    pub(crate) fn replicate(&mut self, partition: PartitionId) {
        let me = self.me;
        let Some(replica) = self.partitions.get(&partition) else { return };
        let consensus = &replica.consensus;
        if consensus.leading().is_none() {
            return;
        }
        let length = consensus.viewstamp.length;
        if mutant!(self.config, GrantBeforeQuorum) {
            self.commit_to(partition, length, length);
        }
        self.acknowledge_own(partition);
        for node in self.partitions[&partition].cohort().followers() {
            if node != me {
                self.send_ops(partition, node);
            }
        }
        self.timers.set_if_none(Key::Resend(partition), self.now.mono_after_ms(self.config.resend_ms));
    }

    /// Sends operations that a follower was not sent yet, or the whole table if they are no longer kept.
    fn send_ops(&mut self, partition: PartitionId, node: NodeId) {
        let (now_us, resend_us) = (self.now.mono_us, self.config.resend_ms * 1_000);
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        let (length, digest) = (consensus.viewstamp.length, consensus.table.digest());
        let Some(leading) = consensus.leading() else { return };
        let commit = leading.grant_index;
        let Some(progress) = leading.progress.get(&node) else { return };
        let Some(matched) = progress.matched else { return };
        assert!(matched <= length, "a follower has acknowledged more than there is");
        assert!(progress.sent <= length, "more was sent to a follower than there is");
        let window_end = matched + OPS_UNCOMMITTED_MAX;
        let first = progress.sent + 1;
        if first > length || first > window_end {
            return;
        }
        let Some(ops) = consensus.kept_from(first, OPS_PER_MESSAGE_MAX) else {
            // A table sent recently may be large and still on its way.
            if progress.table_us.is_none_or(|table_us| now_us >= table_us + resend_us) {
                let leading = consensus.leading_mut().expect("it leads");
                leading.progress.get_mut(&node).expect("just seen").table_us = Some(now_us);
                self.send_table(partition, node);
            }
            return;
        };
        assert!(!ops.is_empty(), "a follower lacks an operation that is said to be kept");
        assert!(commit <= consensus.commit, "more grants may be told than are committed");
        let leading = consensus.leading_mut().expect("it leads");
        let epoch = leading.epoch;
        let progress = leading.progress.get_mut(&node).expect("just seen");
        progress.sent = first + ops.len() as u64 - 1;
        progress.sent_us = now_us;
        let whole = progress.sent == length;
        assert!(progress.sent <= length, "more is sent to a follower than there is");
        // The digest is of the newest table. If some operations are left for later messages, the follower cannot compare yet.
        let digest = if whole { digest.to_be_bytes() } else { [0; 16] };
        self.outbox.send(node, Replication::Ops { partition, epoch, first, ops, commit, digest });
        if !whole {
            self.send_ops(partition, node);
        }
    }

    fn send_table(&mut self, partition: PartitionId, node: NodeId) {
        let now_us = self.now.mono_us;
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        let (viewstamp, table) = (consensus.viewstamp, Arc::new(consensus.table.clone()));
        let leading = consensus.leading_mut().expect("it leads");
        let commit = leading.grant_index;
        let progress = leading.progress.get_mut(&node).expect("a follower");
        assert_eq!(viewstamp.epoch, leading.epoch, "a leader sends the table of another epoch");
        progress.sent = viewstamp.length;
        progress.sent_us = now_us;
        self.outbox.observe(Observation::SnapshotSent { partition: partition.0 });
        self.outbox.send(node, Replication::Snapshot { partition, viewstamp, table, commit });
    }

    /// Brings a follower into this epoch: by viewstamp if it has the table that the epoch began with, otherwise with the whole
    /// table.
    pub(crate) fn catch_up(&mut self, partition: PartitionId, node: NodeId) {
        let now_us = self.now.mono_us;
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        let length = consensus.viewstamp.length;
        let Some(leading) = consensus.leading_mut() else { return };
        let (epoch, base, digest) = (leading.epoch, leading.base, leading.base_digest.to_be_bytes());
        let progress = leading.progress.get_mut(&node).expect("a follower");
        // A follower that has not reported its viewstamp most likely has the leader's base table. One that is in the epoch
        // already will just report that.
        let by_name = !progress.stranger
            && progress.viewstamp.is_none_or(|viewstamp| viewstamp == base || viewstamp.epoch == epoch);
        if !by_name && length > 0 {
            self.send_table(partition, node);
            return;
        }
        assert!(
            by_name || length == 0,
            "a follower would get operations of this epoch as the table that it began with"
        );
        progress.sent = 0;
        progress.sent_us = now_us;
        let table = (!by_name).then(|| Arc::new(consensus.table.clone()));
        self.outbox.send(node, Replication::Install { partition, epoch, base, table, digest });
    }

    /// Resends what a follower has not acknowledged.
    pub(crate) fn resend_to(&mut self, partition: PartitionId, node: NodeId) {
        let consensus = &mut self.partitions.get_mut(&partition).expect("asked for own partitions only").consensus;
        let length = consensus.viewstamp.length;
        let Some(progress) = consensus.leading_mut().and_then(|leading| leading.progress.get_mut(&node)) else {
            return;
        };
        match progress.matched {
            None => self.catch_up(partition, node),
            Some(matched) if matched < length => {
                progress.sent = matched;
                self.send_ops(partition, node);
            }
            Some(_) => {}
        }
    }

    pub(crate) fn resend(&mut self, partition: PartitionId) {
        let (now_us, me, resend_us) = (self.now.mono_us, self.me, self.config.resend_ms * 1_000);
        let consensus = &self.partitions[&partition].consensus;
        let length = consensus.viewstamp.length;
        let Some(leading) = consensus.leading() else { return };
        let behind: Vec<(NodeId, u64)> = leading
            .progress
            .iter()
            .filter(|(node, progress)| **node != me && progress.matched != Some(length))
            .map(|(node, progress)| (*node, progress.sent_us))
            .collect();
        for (node, sent_us) in &behind {
            if now_us >= sent_us + resend_us && self.is_alive(*node) {
                self.resend_to(partition, *node);
            }
        }
        if !behind.is_empty() {
            self.timers.set(Key::Resend(partition), self.now.mono_after_ms(self.config.resend_ms));
        }
    }

    /// Follows `epoch`: from now on this replica acknowledges nothing below it. Rejects an epoch below the promise.
    fn follow(&mut self, partition: PartitionId, leader: NodeId, epoch: Epoch) -> bool {
        let now_us = self.now.mono_us;
        let Some(replica) = self.partitions.get_mut(&partition) else { return false };
        let consensus = &mut replica.consensus;
        let (own, promised, viewstamp) = (consensus.me, consensus.promised, consensus.viewstamp);
        if !rules::may_follow(promised, epoch) {
            self.outbox.send(leader, Replication::Nack { partition, replica: own, promised, viewstamp });
            return false;
        }
        if consensus.leading().is_some() {
            if consensus.leading().is_some_and(|leading| leading.epoch == epoch) {
                self.halt(format!("{partition:?}: {leader} leads epoch {epoch}, and so does this node"));
                return false;
            }
            self.step_down(partition, "a later epoch has a leader");
        }
        let consensus = &mut self.partitions.get_mut(&partition).expect("just seen").consensus;
        consensus.role = norn_model::consensus::Role::Follower;
        let followed = consensus.leader.replace(norn_model::consensus::Leader { epoch, node: leader });
        if followed != consensus.leader {
            self.consensus.look.disturb();
        }
        consensus.heard_us = now_us;
        if epoch > consensus.promised {
            consensus.promised = epoch;
            consensus.voted_for = None;
            consensus.seen = consensus.seen.max(epoch);
            self.outbox.persist(Record::Vote { partition, promised: epoch, voted_for: None });
        }
        assert_eq!(consensus.promised, epoch, "a replica follows an epoch that it has not promised");
        assert!(consensus.leading().is_none(), "a leader follows another one");
        self.timers.cancel(Key::Election(partition));
        true
    }

    pub(crate) fn on_install(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (base, table): (Viewstamp, Option<Arc<ClaimTable>>),
        digest: u128,
    ) {
        let viewstamp = Viewstamp { epoch, length: 0 };
        let whole = table.as_ref().is_none_or(|table| self.whole(partition, table, viewstamp));
        if !whole || !self.follow(partition, from, epoch) {
            return;
        }
        let (now, config) = (self.now, self.config.clone());
        let replica = self.partitions.get_mut(&partition).expect("followed");
        let own = replica.consensus.viewstamp;
        assert_eq!(replica.consensus.promised, epoch, "an installation is taken from a leader that is not followed");
        if !rules::takes_table(own, viewstamp) {
            if !mutant!(self.config, ReinstallUnanswered) {
                self.acknowledge(partition, from, Vec::new());
            }
            return;
        }
        if table.is_none() && own != base {
            self.refuse(partition, from);
            return;
        }
        let standing = replica.standing();
        replica.install(viewstamp, table.as_ref().map(|table| table.as_ref().clone()), now, &config);
        if replica.consensus.table.digest() != digest {
            self.halt(format!("{partition:?}: the table at {base:?} differs from that of leader {from}"));
            return;
        }
        if mutant!(self.config, RegainsByInstall) {
            replica.loss_recovery.target = Some(viewstamp);
        }
        self.note_standing(partition, &standing);
        self.outbox.persist(Record::Install { partition, viewstamp, table });
        self.dirty_heads.insert(partition);
        self.acknowledge(partition, from, Vec::new());
    }

    pub(crate) fn on_snapshot(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        viewstamp: Viewstamp,
        table: &Arc<ClaimTable>,
        commit: u64,
    ) {
        if !self.whole(partition, table, viewstamp) || !self.follow(partition, from, viewstamp.epoch) {
            return;
        }
        let (now, config) = (self.now, self.config.clone());
        let replica = self.partitions.get_mut(&partition).expect("followed");
        if rules::takes_table(replica.consensus.viewstamp, viewstamp) {
            let standing = replica.standing();
            replica.install(viewstamp, Some(table.as_ref().clone()), now, &config);
            self.note_standing(partition, &standing);
            self.outbox.persist(Record::Install { partition, viewstamp, table: Some(table.clone()) });
            self.dirty_heads.insert(partition);
        }
        self.partitions.get_mut(&partition).expect("followed").consensus.learn_commit(commit.min(viewstamp.length));
        self.acknowledge(partition, from, Vec::new());
    }

    pub(crate) fn on_ops(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (first, ops): (u64, Vec<Arc<Op>>),
        (commit, digest): (u64, u128),
    ) {
        let obeys = mutant!(self.config, AcksAfterPromise) && self.is_at(partition, epoch);
        if !obeys && !self.follow(partition, from, epoch) {
            return;
        }
        let (now, config) = (self.now, self.config.clone());
        let replica = self.partitions.get_mut(&partition).expect("followed");
        let own = replica.consensus.viewstamp;
        let Some(known) = rules::known_of(own, epoch, first) else {
            self.refuse(partition, from);
            return;
        };
        let fresh: Vec<Arc<Op>> = ops.into_iter().skip(known as usize).collect();
        let mut missing = Vec::new();
        let standing = replica.standing();
        for op in &fresh {
            if let Err(misfit) = apply_as_follower(replica, op, now, &config, &mut missing) {
                self.halt(format!("{partition:?}: leader {from}'s {misfit}"));
                return;
            }
        }
        let end = replica.consensus.viewstamp;
        assert_eq!(end, Viewstamp { length: own.length + fresh.len() as u64, ..own }, "operations were left out");
        let last = own.length + fresh.len() as u64;
        if digest != 0 && !fresh.is_empty() && replica.consensus.table.digest() != digest {
            self.halt(format!("{partition:?}: at ({epoch}, {last}) the table differs from that of leader {from}"));
            return;
        }
        replica.consensus.learn_commit(commit);
        if !fresh.is_empty() {
            self.note_standing(partition, &standing);
            self.outbox.persist(Record::Ops { partition, after: own, ops: fresh });
            self.dirty_heads.insert(partition);
        }
        self.acknowledge(partition, from, missing);
    }

    /// Whether this replica follows, with a table of this epoch.
    fn is_at(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let at = |consensus: &ConsensusState| consensus.viewstamp.epoch == epoch && consensus.leading().is_none();
        self.partitions.get(&partition).is_some_and(|replica| at(&replica.consensus))
    }

    /// Reports this replica's viewstamp to its leader, so that the leader sends what follows. The replica ignored operations before
    /// its start was answered, and a leader with another cohort may not know the replica.
    pub(crate) fn ask_for_operations(&mut self, partition: PartitionId) {
        if let Some(leader) = self.partitions[&partition].consensus.leader {
            self.refuse(partition, leader.node);
        }
    }

    fn refuse(&mut self, partition: PartitionId, leader: NodeId) {
        let consensus = &self.partitions[&partition].consensus;
        let (replica, promised, viewstamp) = (consensus.me, consensus.promised, consensus.viewstamp);
        self.outbox.send(leader, Replication::Nack { partition, replica, promised, viewstamp });
    }

    /// acknowledges once everything is on disk.
    fn acknowledge(&mut self, partition: PartitionId, leader: NodeId, missing: Vec<TaskId>) {
        self.close_data_loss(partition);
        let replica = self.partitions.get_mut(&partition).expect("it follows");
        assert!(replica.consensus.leading().is_none(), "a leader acknowledges to itself alone");
        // A leader has installed the present table here.
        replica.borrowed &= replica.consensus.viewstamp.epoch < replica.consensus.promised;
        let replica = &self.partitions[&partition];
        let (consensus, done, data_loss) = (&replica.consensus, replica.done_flags(), replica.loss_recovery.data_loss);
        let (epoch, length, replica) = (consensus.viewstamp.epoch, consensus.viewstamp.length, consensus.me);
        let log = LogPosition::default();
        let ack = Replication::Ack { partition, epoch, replica, length, done, missing, data_loss, log };
        self.outbox.send_durable(leader, ack);
    }

    /// The leader's acknowledgement to itself. It carries no done flags, because the leader knows those endings itself.
    pub(crate) fn acknowledge_own(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let (consensus, data_loss) = (&replica.consensus, replica.loss_recovery.data_loss);
        let Viewstamp { epoch, length } = consensus.viewstamp;
        assert!(consensus.leading().is_some_and(|own| own.epoch == epoch), "a table of another epoch is acknowledged");
        let (replica, done, missing) = (consensus.me, Vec::new(), Vec::new());
        let log = LogPosition::default();
        let ack = Replication::Ack { partition, epoch, replica, length, done, missing, data_loss, log };
        self.outbox.send_durable(self.me, ack);
    }

    /// Repeats the acknowledgement, because it now counts for more.
    pub(crate) fn acknowledge_anew(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        let epoch = consensus.viewstamp.epoch;
        if consensus.leading().is_some() {
            self.acknowledge_own(partition);
        } else if let Some(leader) = consensus.leader.filter(|leader| leader.epoch == epoch)
            && consensus.promised == epoch
        {
            self.acknowledge(partition, leader.node, Vec::new());
        }
    }

    pub(crate) fn on_ack(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        (replica, length, data_loss): (ReplicaId, u64, DataLoss),
        done: Vec<DoneFlag>,
        missing: Vec<TaskId>,
    ) {
        let flags_count = !mutant!(self.config, DoneFlagIgnored);
        let (recovering_counts, incomplete_counts) =
            (mutant!(self.config, RecoveringCounts), mutant!(self.config, HolesGrant));
        let Some(partition_state) = self.partitions.get_mut(&partition) else { return };
        let consensus = &mut partition_state.consensus;
        let (newest, member) = (consensus.viewstamp.length, consensus.cohort.knows_replica(&replica));
        let Some(leading) = consensus.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        if !member && replica.node == from {
            self.tell_outside(from, partition);
            return;
        }
        if replica.node != from || length > newest {
            self.outbox.refuse("acknowledgement of what was never sent");
            return;
        }
        let progress = leading.progress.get_mut(&from).expect("each follower has one");
        let before = progress.matched;
        progress.stranger = false;
        progress.matched = Some(before.map_or(length, |matched| matched.max(length)));
        progress.sent = progress.sent.max(length);
        assert!(progress.matched <= Some(newest), "a follower has acknowledged more than there is");
        if !data_loss.table || recovering_counts {
            progress.commit_ack_index = progress.commit_ack_index.max(Some(length));
        }
        if !data_loss.facts || (incomplete_counts && !data_loss.table) || recovering_counts {
            progress.grant_ack_index = progress.grant_ack_index.max(Some(length));
        }
        assert!(progress.commit_ack_index <= progress.matched, "more counts for commits than was acknowledged");
        assert!(progress.grant_ack_index <= progress.matched, "more counts for grants than was acknowledged");
        if flags_count {
            self.merge_endings(from, partition, done);
        }
        if !missing.is_empty() {
            self.signals.report(Signal::SpecsMissing { partition, node: from, ids: missing });
        }
        self.advance(partition);
        if from != self.me {
            self.send_ops(partition, from);
        }
    }

    /// Takes in followers' done flags: tasks that the leader granted and that are known to have ended.
    fn merge_endings(&mut self, from: NodeId, partition: PartitionId, done: Vec<DoneFlag>) {
        if done.is_empty() {
            return;
        }
        for flag in &done {
            self.outbox.observe(Observation::DoneFlag { id: flag.id, token: flag.token });
        }
        let store = &self.partitions[&partition].store;
        let (proven, unproven): (Vec<DoneFlag>, Vec<DoneFlag>) =
            done.into_iter().partition(|flag| !flag.ending.is_bottom() || store.ended(&flag.id));
        let replica = &self.partitions[&partition];
        // A delayed acknowledgement may name tasks forgotten since.
        let current = |id: &TaskId| replica.consensus.claim_entry(id).is_some() || !replica.may_have_forgotten(id);
        let proven = proven.into_iter().filter(|flag| current(&flag.id));
        let items: Vec<(TaskId, Task)> = proven.map(|flag| (flag.id, flag.ending)).collect();
        if !items.is_empty() {
            // Reported before the commit that this acknowledgement may bring: no grant of an ended task is answered.
            self.signals.report(Signal::Endings { partition, items });
        }
        if unproven.is_empty() {
            return;
        }
        let ids = unproven.iter().map(|flag| flag.id).collect();
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        // Only claims in the table, so that no peer can make a leader remember more than those.
        let current = |id: &TaskId, token: Token| consensus.claim_entry(id).is_some_and(|entry| entry.token == token);
        let claims: Vec<(TaskId, Token)> =
            unproven.iter().map(|flag| (flag.id, flag.token)).filter(|(id, token)| current(id, *token)).collect();
        let stale = |(id, token): &&(TaskId, Token)| !current(id, *token);
        let over: Vec<(TaskId, Token)> =
            consensus.leading().expect("it leads").unproven.iter().filter(stale).copied().collect();
        let leading = consensus.leading_mut().expect("it leads");
        over.iter().for_each(|claim| assert!(leading.unproven.remove(claim)));
        leading.unproven.extend(claims);
        self.outbox.send(from, AntiEntropy::Need { partition, ids });
    }

    pub(crate) fn on_nack(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        replica: ReplicaId,
        promised: Epoch,
        viewstamp: Viewstamp,
    ) {
        let Some(partition_state) = self.partitions.get_mut(&partition) else { return };
        let consensus = &mut partition_state.consensus;
        consensus.seen =
            consensus.seen.max(promised.min(consensus.seen.saturating_add(norn_model::limits::EPOCH_STEP_MAX)));
        let member = consensus.cohort.knows_replica(&replica) && replica.node == from;
        if consensus.leading().is_some() && !member {
            self.tell_outside(from, partition);
            return;
        }
        let Some(leading) = consensus.leading_mut() else { return };
        if promised > leading.epoch {
            self.step_down(partition, "a follower promised a later epoch");
            return;
        }
        self.send_from(partition, from, viewstamp);
    }

    /// At the leader: sends what follows a follower's reported viewstamp.
    pub(crate) fn send_from(&mut self, partition: PartitionId, from: NodeId, viewstamp: Viewstamp) {
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let newest = consensus.viewstamp.length;
        let leading = consensus.leading_mut().expect("it leads");
        let epoch = leading.epoch;
        let Some(progress) = leading.progress.get_mut(&from) else { return };
        progress.viewstamp = Some(viewstamp);
        progress.stranger = false;
        if viewstamp.epoch == epoch && viewstamp.length <= newest && progress.matched.is_some() {
            progress.sent = viewstamp.length;
            self.send_ops(partition, from);
        } else {
            self.catch_up(partition, from);
        }
    }

    /// commits what a quorum has on disk.
    fn advance(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        let Some(leading) = consensus.leading() else { return };
        let Some(length) = consensus.held() else { return };
        let grant_index = consensus.grant_index().min(length);
        if !leading.established {
            self.establish(partition);
        }
        self.commit_to(partition, length, grant_index);
        self.trim_kept(partition);
    }

    /// Drops kept operations that no followers, or few, still need.
    fn trim_kept(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("it leads, or did");
        if !replica.consensus.trim_kept() {
            return;
        }
        let followers = replica.cohort().followers().into_iter();
        let alive: BTreeSet<NodeId> = followers.filter(|node| *node == self.me || self.is_alive(*node)).collect();
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        replica.consensus.trim_large(|node| alive.contains(&node));
    }

    pub(crate) fn establish(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("it leads");
        let leading = replica.consensus.leading_mut().expect("it leads");
        assert!(!leading.established, "a leader is established once");
        leading.established = true;
        let epoch = leading.epoch;
        self.outbox.observe(Observation::Established { partition: partition.0, epoch });
        assert_eq!(epoch, replica.consensus.viewstamp.epoch, "it leads another epoch than that of its table");
        if self.leads_a_change(partition) {
            self.timers.set(Key::Change(partition), self.now.mono_us);
        }
        self.signals.report(Signal::Established(partition));
    }

    /// Advances the commit index to `length` and the grant index to `grant_index`, and reports the continuations that are ready.
    fn commit_to(&mut self, partition: PartitionId, length: u64, grant_index: u64) {
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let Some(leading) = consensus.leading() else { return };
        if length <= consensus.commit && grant_index <= leading.grant_index {
            return;
        }
        assert!(leading.established, "something is committed before the installation");
        assert!(length <= consensus.viewstamp.length, "more would be committed than there is");
        assert!(grant_index <= length, "more grants may be told than are committed");
        consensus.learn_commit(length);
        let commit = consensus.commit;
        let leading = consensus.leading_mut().expect("just seen");
        let (epoch, before) = (leading.epoch, leading.grant_index);
        leading.grant_index = before.max(grant_index);
        assert!(leading.grant_index <= commit, "more grants may be told than are committed");
        let ready = leading.take_ready(commit);
        let grant_index = leading.grant_index;
        if grant_index > before {
            self.tell_commit(partition, epoch, grant_index);
        }
        self.note_cohort_commit(partition);
        assert!(
            ready.iter().all(|(length, _)| *length <= commit),
            "a continuation runs before its operation is committed"
        );
        self.signals.report(Signal::Committed { partition, epoch, ready });
    }

    /// Takes in the commit index in the leader's heartbeat.
    pub(crate) fn on_commit(&mut self, from: NodeId, partition: PartitionId, epoch: Epoch, commit: u64) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let consensus = &mut replica.consensus;
        let leads = consensus.leader.is_some_and(|leader| (leader.epoch, leader.node) == (epoch, from));
        if leads && consensus.viewstamp.epoch == epoch {
            consensus.learn_commit(commit);
        }
    }
}

/// C-3: applies an operation, and collects granted tasks whose spec is not known here.
fn apply_as_follower(
    replica: &mut Partition,
    op: &Op,
    now: norn_model::time::Now,
    config: &norn_model::config::Config,
    missing: &mut Vec<TaskId>,
) -> Result<(), norn_model::claim_table::table::Misfit> {
    replica.apply(op, now, config)?;
    let Op::Grant { items, .. } = op else { return Ok(()) };
    missing.extend(items.iter().map(|(id, _)| *id).filter(|id| replica.store.lacks_spec(id)));
    Ok(())
}
