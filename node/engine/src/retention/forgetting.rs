//! Forgetting (tombstone garbage collection): a finished task disappears for good, on every replica, and never comes back.
//!
//! 1. **Bury.** When the retention of an ended task is over, the leader of its partition puts a tombstone in its place, and sends it to
//!    the other replicas. A tombstone is a fact, and the top of the lattice: it travels like all facts, and no later fact of the task
//!    counts. Any replica might bury; only the leader does, so that all replicas do it at one time. Where there is an archive, the host
//!    has the task in it first (`archiving.rs`). A client may end the retention (`retention/purge.rs`): that is a fact of the ended
//!    task, which puts it before all others that are due, and changes nothing else of all this.
//! 2. **Ask** (G-2). Before tombstones are given up, every member of the cohort, and not a majority, must confirm that it has them on
//!    disk, and that the ids are old by its own clock. A member with incomplete facts does not answer. All nodes are asked, too, whether
//!    completions bring tasks as old as these (`drained.rs`). Nor is anything forgotten that a decided and unfinished transaction is
//!    about, or that would make its new tasks count as forgotten.
//! 3. **Forget.** `Op::Forget` names the tasks in the table and raises its watermark, the highest id ever forgotten. When it is committed
//!    every member removes them, with a record in its log, and confirms that.
//! 4. **Forgotten.** When every member has confirmed, `Op::Forgotten` takes the names out of the table. Until then they travel with it,
//!    and nothing else is forgotten, so that no member can miss one.
//!
//! **Nothing comes back.** A task that is unknown and whose id is not above the watermark may have been forgotten. So nothing of it is
//! accepted: no write of a client, and no tasks of a replica that may not have forgotten it yet. A sender of tasks states how many
//! times it has forgotten (`Partition::forgets`). If its number is smaller than the receiver's, or if it has incomplete facts, such tasks
//! are refused, and so are those that the receiver's table names (after a restart it does not know whether it has forgotten them). If its
//! number is not smaller, all other tasks cannot be forgotten ones, as the sender has removed those. A member that has not forgotten
//! yet still has the tombstones, which absorb whatever arrives. A leader that was elected meanwhile has the names in its table, and
//! removes the tasks before it grants. No clock is part of this argument; the age of an id only keeps the watermark below what is being
//! enqueued.
//!
//! A record of forgetting may be lost from a damaged log. The replica has incomplete facts then, and its forgotten tasks are refused by
//! replicas without (`GarbageCollection::Gone`). When as many have refused them as it must agree with to be whole, it forgets them too. It
//! agrees with no replica before its table is whole, as it does not know the watermark before. As long as it has incomplete facts it grants
//! no task below the watermark. What it alone had, acknowledged sloppily, is lost with this.
//!
//! A member that stays away keeps its partitions from forgetting. Tombstones are small, and this is reported
//! (`Observation::ForgettingHeld`).

use crate::Node;
use crate::context::timers::Key;
use crate::effect::Observation;
use crate::membership::id_allocator::is_old;
use norn_model::claim_table::table::Op;
use norn_model::config::mutant;
use norn_model::consensus::{Due, Retiring};
use norn_model::limits::{FORGET_TASKS_MAX, RETIRE_TASKS_MAX};
use norn_model::message::{GarbageCollection, LogPosition};
use norn_model::record::Record;
use norn_model::replica::index::PURGED_MS;
use norn_model::task::{Task, Tombstone};
use norn_model::viewstamp::{Epoch, ReplicaId};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Longest pause between two looks of a leader for what is due, as clocks are set and settings change.
const LOOK_MS_MAX: u64 = 10_000;
/// Pause between two batches: tasks that are worked on come first.
pub(crate) const PAUSE_MS: u64 = 10;
/// Members that delay forgetting for this long are reported.
const HELD_MS: u64 = 60_000;
/// Where there is an archive, tasks without a spec are buried this many times later than ids must be old: the spec may yet come.
const ORPHAN_PATIENCE: u64 = 10;

impl Node {
    /// Does what is due for a partition's finished tasks.
    pub(crate) fn retire(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        if !replica.consensus.established() {
            return;
        }
        let mut pause_ms = self.config.resend_ms;
        let whole = replica.loss_recovery.data_loss.is_whole();
        if self.may_append(partition) {
            if whole && self.bury_due(partition) {
                pause_ms = PAUSE_MS;
            }
            // Every member must confirm, and leaving ones must not: a change of the cohort in progress comes first.
            let settled = self.is_settled(partition);
            if !self.partitions[&partition].consensus.table.forgetting.ids.is_empty() {
                // This rests on the commit alone. A leader with incomplete facts recovers only when all have forgotten what it has.
                self.forget_everywhere(partition);
            } else if whole && settled {
                self.ask_for_tombstones(partition);
            }
            self.tell_who_holds_up(partition);
        }
        self.look_again(partition, pause_ms);
    }

    /// A task has ended, or a leader is new.
    pub(crate) fn arm_retire(&mut self, partition: PartitionId) {
        self.look_again(partition, PAUSE_MS);
    }

    /// Tasks that have ended are purged: a leader does not wait until others are due.
    pub(crate) fn retire_purged(&mut self, partition: PartitionId, ids: Vec<TaskId>) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        if mutant!(self.config, PurgesEarly) {
            for id in &ids {
                replica.store.forget(id);
            }
            return self.forgot(partition, ids);
        }
        if replica.consensus.established() {
            self.timers.set_earliest(Key::Retire(partition), self.after_ms(PAUSE_MS));
        }
    }

    /// Sets the timer for the next due task or answer, not before the pause is over.
    fn look_again(&mut self, partition: PartitionId, pause_ms: u64) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let consensus = &replica.consensus;
        let Some(leading) = consensus.leading().filter(|leading| leading.established) else { return };
        if self.timers.is_set(Key::Retire(partition)) {
            return;
        }
        if !leading.retiring.ids.is_empty() || !consensus.table.forgetting.ids.is_empty() {
            // Members that have not answered for long are asked less often.
            assert!(leading.retiring.since_us <= self.now.mono_us, "a step of forgetting begins in the future");
            let elapsed_ms = (self.now.mono_us - leading.retiring.since_us) / 1_000;
            let wait_ms = self.config.resend_ms.max(elapsed_ms / 4).min(LOOK_MS_MAX);
            self.timers.set(Key::Retire(partition), self.after_ms(wait_ms));
            return;
        }
        let ended = replica.store.index().ended().filter_map(|(queue, tasks)| {
            let (at_ms, _) = tasks.first()?;
            Some(over_ms(*at_ms, self.retention_of(queue).saturating_add(self.patience_ms(queue))))
        });
        let tombstone = replica.store.tombstones_after(None).next();
        let old = tombstone.map(|(id, _)| id.time_ms().saturating_add(self.config.forget_after_ms));
        if let Some(due_ms) = ended.chain(old).min() {
            let wait_ms = due_ms.saturating_sub(self.now.wall_ms).min(LOOK_MS_MAX).max(pause_ms);
            self.timers.set(Key::Retire(partition), self.after_ms(wait_ms));
        }
    }

    /// Step 1. Returns whether there was anything to bury.
    fn bury_due(&mut self, partition: PartitionId) -> bool {
        // This replica alone must not conclude that no replica has the spec of a task, as it may just have come back.
        self.archive(partition);
        if self.config.archives {
            return false;
        }
        let due = self.due(partition, None, |queue| queue.is_some() || mutant!(self.config, OrphansUnasked));
        let any = !due.is_empty();
        self.bury(partition, due.into_iter().map(|(due, tombstone)| (due.id, tombstone)).collect());
        any
    }

    /// How long ended tasks of a queue are kept, or of an unknown queue: the queue's policy overrides the settings of this node. The
    /// leader decides.
    fn retention_of(&self, queue: Option<&QueueName>) -> u64 {
        let set = queue.and_then(|queue| self.policy_of(queue).retention_ms);
        set.unwrap_or_else(|| self.config.retention.of(queue))
    }

    /// Extra time for tasks of which only later facts are known: other replicas may know what they are, how long their queue keeps them
    /// and whether a group needs them.
    fn patience_ms(&self, queue: Option<&QueueName>) -> u64 {
        let times = match queue {
            Some(_) => 0,
            None if self.config.archives => ORPHAN_PATIENCE,
            None => 1,
        };
        self.config.forget_after_ms.saturating_mul(times)
    }

    /// Some tasks whose retention is over, of queues for which `of` holds and behind a given one.
    pub(crate) fn due(
        &self,
        partition: PartitionId,
        behind: Option<&Due>,
        of: impl Fn(Option<&QueueName>) -> bool,
    ) -> Vec<(Due, Tombstone)> {
        let (wall_ms, archives) = (self.now.wall_ms, self.config.archives);
        let replica = &self.partitions[&partition];
        let mut found: Vec<(Due, Tombstone)> = Vec::new();
        for (queue, tasks) in replica.store.index().ended().filter(|(queue, _)| of(*queue)) {
            let retain_ms = self.retention_of(queue).saturating_add(self.patience_ms(queue));
            // There is nothing of these to archive yet, and all members must confirm that.
            let doubtful = queue.is_none() && archives;
            if doubtful && !replica.cohort().members().all(|node| self.is_reachable(node)) {
                continue;
            }
            let from = match behind {
                Some(behind) if queue < behind.queue.as_ref() => continue,
                Some(behind) if queue == behind.queue.as_ref() => Bound::Excluded((behind.at_ms, behind.id)),
                _ => Bound::Unbounded,
            };
            let over = tasks.range((from, Bound::Unbounded));
            let over = over.take_while(|(at_ms, _)| over_ms(*at_ms, retain_ms) <= wall_ms);
            // A claim is dropped first: its operation brings every replica how the task ended.
            let free = over.filter(|(_, id)| replica.consensus.claim_entry(id).is_none());
            let tombstones = free.filter_map(|(at_ms, id)| {
                let task = replica.store.task(id)?;
                // An unreadable task cannot be archived; it waits until the log or a peer returns it, or an operator gives it up.
                let kept = archives && task.is_lost() && !task.is_purged();
                let due = Due { queue: queue.cloned(), at_ms: *at_ms, id: *id };
                task.tombstone().filter(|_| !kept).map(|tombstone| (due, tombstone))
            });
            assert!(found.len() <= RETIRE_TASKS_MAX, "more tasks are due than are buried at once");
            found.extend(tombstones.take(RETIRE_TASKS_MAX - found.len()));
        }
        found
    }

    pub(crate) fn bury(&mut self, partition: PartitionId, due: Vec<(TaskId, Tombstone)>) {
        if due.is_empty() {
            return;
        }
        let me = self.me;
        let replica = &self.partitions[&partition];
        let epoch = replica.consensus.viewstamp.epoch;
        let others: Vec<NodeId> = replica.cohort().nodes().into_iter().filter(|node| *node != me).collect();
        self.merge(partition, due.iter().map(|(id, tombstone)| (*id, Task::from_tombstone(*tombstone))).collect());
        let items = Arc::new(due);
        for node in others {
            if self.is_alive(node) {
                self.outbox.send(node, GarbageCollection::Tombs { partition, epoch, number: 0, items: items.clone() });
            }
        }
    }

    /// Step 2.
    fn ask_for_tombstones(&mut self, partition: PartitionId) {
        if self.partitions[&partition].consensus.leading().is_some_and(|leading| leading.retiring.ids.is_empty()) {
            self.choose_tombstones(partition);
        }
        let replica = &self.partitions[&partition];
        let leading = replica.consensus.leading().expect("it leads");
        let retiring = &leading.retiring;
        if retiring.ids.is_empty() || self.forget_buried(partition) {
            return;
        }
        let replica = &self.partitions[&partition];
        let leading = replica.consensus.leading().expect("it leads");
        let retiring = &leading.retiring;
        let (epoch, number) = (leading.epoch, retiring.number);
        let tombstone = |id: &TaskId| Some((*id, *replica.store.tombstone(id)?));
        // A tombstone is gone, as its task has children that are not enqueued yet: it must not be forgotten.
        let Some(items) = retiring.ids.iter().map(tombstone).collect::<Option<Vec<_>>>() else {
            return self.set_retiring(partition);
        };
        let items: Arc<Vec<(TaskId, Tombstone)>> = Arc::new(items);
        for node in retiring.held_by(replica.cohort().members(), false) {
            if self.is_alive(node) {
                self.outbox.send(node, GarbageCollection::Tombs { partition, epoch, number, items: items.clone() });
            }
        }
        self.ask_for_outboxes(partition);
    }

    /// Chooses the oldest tombstones, if they are old enough and the table does not mention them any more.
    fn choose_tombstones(&mut self, partition: PartitionId) {
        let (wall_ms, since_us) = (self.now.wall_ms, self.now.mono_us);
        let forget_after_ms = self.config.forget_after_ms;
        let replica = &self.partitions[&partition];
        let table = &replica.consensus.table;
        let old = replica.store.tombstones_after(None).take_while(|(id, _)| is_old(id, forget_after_ms, wall_ms));
        let free = old.map(|(id, _)| *id).filter(|id| !table.entries.contains_key(id));
        let ids: Vec<TaskId> = free.take(FORGET_TASKS_MAX).collect();
        if ids.is_empty() {
            return;
        }
        let number = self.pending_requests.number();
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let retiring = &mut consensus.leading_mut().expect("it leads").retiring;
        assert!(retiring.ids.is_empty(), "tombstones are chosen while others are in question");
        *retiring = Retiring { number, ids, since_us, told_us: since_us, ..Retiring::default() };
    }

    /// At a member: tombstones of the leader.
    pub(crate) fn on_tombs(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        items: &[(TaskId, Tombstone)],
    ) {
        let right = items.iter().all(|(id, _)| self.partition_of(id) == partition);
        let replica = self.partitions.get(&partition).filter(|replica| right && replica.cohort().knows(from));
        let Some(replica) = replica else {
            self.outbox.refuse("tombstones of another partition");
            return;
        };
        let (own, incomplete) = (replica.consensus.me, replica.loss_recovery.data_loss.facts);
        // A late message may name tasks that were forgotten since. A member that is asked merges the tombstones even of tasks that it
        // never heard of: at worst a tombstone comes back, and is forgotten once more. But not while the table names a task as forgotten:
        // no replica would take the tombstone from this one, so they would differ until all have confirmed. The leader does not ask any
        // more then either.
        if items.iter().any(|(id, _)| replica.has_forgotten(id)) {
            return;
        }
        let asked = number > 0 && replica.consensus.viewstamp.epoch == epoch;
        let is_fresh =
            |id: &TaskId| replica.store.tombstone(id).is_none() && (asked || !replica.may_have_forgotten(id));
        let fresh = items.iter().filter(|(id, _)| is_fresh(id));
        let fresh: Vec<(TaskId, Task)> = fresh.map(|(id, tombstone)| (*id, Task::from_tombstone(*tombstone))).collect();
        self.merge(partition, fresh);
        let old = |(id, _): &(TaskId, Tombstone)| is_old(id, self.config.forget_after_ms, self.now.wall_ms);
        let buried = self
            .partitions
            .get(&partition)
            .is_some_and(|replica| items.iter().all(|(id, _)| replica.store.tombstone(id).is_some()));
        if asked && !incomplete && buried && items.iter().all(old) {
            self.outbox.send_durable(
                from,
                GarbageCollection::Buried { partition, epoch, number, replica: own, log: LogPosition::default() },
            );
        }
    }

    /// At the leader: a member has the tombstones.
    pub(crate) fn on_buried(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, number): (Epoch, u64),
        own: ReplicaId,
    ) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let member = own.node == from && replica.cohort().has_replica(&own);
        let Some(leading) = replica.consensus.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        let retiring = &mut leading.retiring;
        if member && retiring.number == number && !retiring.ids.is_empty() {
            retiring.buried.insert(from);
            self.forget_buried(partition);
        }
    }

    /// Whether the cohort is stable and committed.
    fn is_settled(&self, partition: PartitionId) -> bool {
        self.partitions[&partition].cohort().is_stable() && self.is_cohort_committed(partition)
    }

    /// Whether all members have confirmed.
    fn all_said(&self, partition: PartitionId, said: &BTreeSet<NodeId>) -> bool {
        let replica = &self.partitions[&partition];
        let majority = mutant!(self.config, ForgetsByMajority) && replica.consensus.quorum(|node| said.contains(&node));
        majority || replica.cohort().nodes().iter().all(|node| said.contains(node))
    }

    /// Forgets what all members have buried, unless the table still mentions any of it.
    pub(crate) fn forget_buried(&mut self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let retiring = &consensus.leading().expect("it leads").retiring;
        if !self.all_said(partition, &retiring.buried) || !self.may_append(partition) || !self.is_settled(partition) {
            return false;
        }
        let ids = retiring.ids.clone();
        assert!(!ids.is_empty(), "there is nothing to be forgotten");
        let store = &self.partitions[&partition].store;
        if ids.iter().any(|id| store.tombstone(id).is_none()) {
            self.set_retiring(partition);
            return true;
        }
        if !self.nothing_is_brought(partition) {
            return false;
        }
        let ledger = &self.partitions[&partition].consensus.table.ledger;
        if ledger.speaks_of(&ids) && !mutant!(self.config, DecidedForgotten) {
            return false;
        }
        if self.speaks_of(partition, &ids) {
            // Endings that travel with the table would bring the tasks back.
            self.clear_out(partition);
            if self.speaks_of(partition, &ids) {
                return false;
            }
        }
        self.set_retiring(partition);
        let before = &self.partitions[&partition].consensus.table.forgetting.ids;
        assert!(before.is_empty(), "tasks are forgotten before those of the last time are");
        self.append(partition, Op::Forget { ids }, None);
        true
    }

    /// Whether the table has any of these tasks.
    fn speaks_of(&self, partition: PartitionId, ids: &[TaskId]) -> bool {
        let table = &self.partitions[&partition].consensus.table;
        let named = |id: &TaskId| ids.binary_search(id).is_ok();
        ids.iter().any(|id| table.entries.contains_key(id)) || table.endings().any(|ended| named(&ended.id))
    }

    /// A node has restarted: its earlier confirmations may rest on what it has lost, and it does not ask by itself.
    pub(crate) fn ask_to_forget_again(&mut self, node: NodeId) {
        for replica in self.partitions.values_mut() {
            if let Some(leading) = replica.consensus.leading_mut() {
                leading.retiring.forgot.remove(&node);
                leading.retiring.buried.remove(&node);
                leading.retiring.childless.remove(&node);
            }
        }
    }

    /// Ends a step; the next one begins.
    fn set_retiring(&mut self, partition: PartitionId) {
        let since_us = self.now.mono_us;
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        consensus.leading_mut().expect("it leads").retiring = Retiring::new(since_us);
        self.timers.set(Key::Retire(partition), self.after_ms(PAUSE_MS));
    }

    /// Step 3, at the leader, once the operation is committed.
    fn forget_everywhere(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let (consensus, forgetting) = (&replica.consensus, &replica.consensus.table.forgetting);
        let committed = forgetting.at.epoch < consensus.viewstamp.epoch || forgetting.at.length <= consensus.commit;
        if !committed || self.end_forgetting(partition) {
            return;
        }
        let replica = &self.partitions[&partition];
        let (consensus, forgetting) = (&replica.consensus, &replica.consensus.table.forgetting);
        let (epoch, count) = (consensus.viewstamp.epoch, forgetting.count);
        let retiring = &consensus.leading().expect("it leads").retiring;
        for node in retiring.held_by(replica.cohort().nodes().into_iter(), true) {
            if self.is_alive(node) {
                self.outbox.send(node, GarbageCollection::Forget { partition, epoch, count });
            }
        }
    }

    /// At a member: what its table names as forgotten is committed.
    pub(crate) fn on_forget(&mut self, from: NodeId, partition: PartitionId, epoch: Epoch, count: u64) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let consensus = &replica.consensus;
        let forgetting = &consensus.table.forgetting;
        // Within an epoch a table is a prefix of the leader's: what it has there under this number is the same.
        let behind = consensus.viewstamp.epoch != epoch || forgetting.count < count;
        if behind {
            return;
        }
        let (replica, open) = (consensus.me, forgetting.count == count && !forgetting.ids.is_empty());
        if open {
            self.forget(partition);
        }
        self.outbox.send_durable(
            from,
            GarbageCollection::Forgot { partition, epoch, count, replica, log: LogPosition::default() },
        );
    }

    /// Removes what the table names as forgotten, which is committed.
    pub(crate) fn forget(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let ids = replica.forget();
        self.forgot(partition, ids);
    }

    fn forgot(&mut self, partition: PartitionId, ids: Vec<TaskId>) {
        if !ids.is_empty() {
            self.outbox.observe(Observation::Forgotten { partition: partition.0, tasks: ids.len() as u64 });
            self.outbox.persist(Record::Forgot { partition, ids });
            self.dirty_heads.insert(partition);
        }
    }

    /// Step 4, at the leader: a member has forgotten.
    pub(crate) fn on_forgot(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        (epoch, count): (Epoch, u64),
        own: ReplicaId,
    ) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let consensus = &mut replica.consensus;
        let current = consensus.table.forgetting.count == count && !consensus.table.forgetting.ids.is_empty();
        let member = own.node == from && consensus.cohort.has_replica(&own);
        let Some(leading) = consensus.leading_mut().filter(|leading| leading.epoch == epoch) else { return };
        if member && current {
            leading.retiring.forgot.insert(from);
            self.end_forgetting(partition);
        }
    }

    fn end_forgetting(&mut self, partition: PartitionId) -> bool {
        let retiring = &self.partitions[&partition].consensus.leading().expect("it leads").retiring;
        let over = self.all_said(partition, &retiring.forgot) && self.may_append(partition);
        if over {
            self.set_retiring(partition);
            let ids = &self.partitions[&partition].consensus.table.forgetting.ids;
            assert!(!ids.is_empty(), "there is nothing that was to be forgotten");
            self.append(partition, Op::Forgotten, None);
        }
        over
    }

    /// Reports that some members have kept a step from its end for long.
    fn tell_who_holds_up(&mut self, partition: PartitionId) {
        let now_us = self.now.mono_us;
        if self.held_up_by(partition, HELD_MS).is_empty() {
            return;
        }
        let consensus = &mut self.partitions.get_mut(&partition).expect("it leads").consensus;
        let retiring = &mut consensus.leading_mut().expect("it leads").retiring;
        if now_us < retiring.told_us.saturating_add(HELD_MS * 1_000) {
            return;
        }
        retiring.told_us = now_us;
        self.outbox.observe(Observation::ForgettingHeld { partition: partition.0 });
    }

    /// Members that have kept a leader from forgetting for this long.
    pub(crate) fn held_up_by(&self, partition: PartitionId, ms: u64) -> Vec<NodeId> {
        let Some(replica) = self.partitions.get(&partition) else { return Vec::new() };
        let Some(leading) = replica.consensus.leading() else { return Vec::new() };
        let forgetting = !replica.consensus.table.forgetting.ids.is_empty();
        let busy = forgetting || !leading.retiring.ids.is_empty();
        if !busy || self.now.mono_us < leading.retiring.since_us.saturating_add(ms * 1_000) {
            return Vec::new();
        }
        let mut held_by = leading.retiring.held_by(replica.cohort().nodes().into_iter(), forgetting);
        if !forgetting {
            let mut silent = self.silent_about_children(partition);
            if silent.is_empty() && held_by.is_empty() {
                silent = self.unsure_of_children(partition);
            }
            silent.retain(|node| !held_by.contains(node));
            held_by.extend(silent);
        }
        held_by
    }

    /// At a replica with incomplete facts: another replica has forgotten tasks that this one still knows.
    pub(crate) fn on_gone(&mut self, from: NodeId, partition: PartitionId, forgets: u64, ids: &[TaskId]) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let (data_loss, ahead) = (replica.loss_recovery.data_loss, forgets >= replica.forgets());
        if !data_loss.facts || data_loss.table || !ahead || from == self.me || !replica.cohort().has_member(from) {
            return;
        }
        let watermark = replica.consensus.table.forgetting.watermark;
        let cohort = replica.cohort();
        // A replica that is no member is not part of the majorities that have each strict fact.
        let majority = cohort.members().count() / 2 + 1;
        let needed = if cohort.has_member(self.me) { cohort.agreements_needed() } else { majority };
        let mut over = Vec::new();
        for id in ids {
            let known = Some(*id) <= watermark && replica.store.knows(id);
            if known && replica.loss_recovery.gone(*id, from) >= needed && replica.store.forget(id) {
                over.push(*id);
            }
        }
        if !over.is_empty() {
            self.repair.changed(partition);
        }
        self.forgot(partition, over);
    }
}

/// When the retention is over of a task that ended at that time.
fn over_ms(at_ms: u64, retain_ms: u64) -> u64 {
    if at_ms == PURGED_MS { 0 } else { at_ms.saturating_add(retain_ms) }
}
