//! Concurrency limit of a queue: at most N of its claims are held at once, in the whole cluster (`queue set Q concurrency N`).
//!
//! Each queue has a coordinator partition (`Node::coordinator_of`), whose table holds how many of its claims each partition may
//! have: the partition's *slot quota*. The sum of all slot quotas of a queue is at most N. An operation changes a slot quota, and the
//! leader of the partition learns it once the operation is committed. That leader grants only while fewer claims are held than the slot
//! quota it was sent *in this leadership*.
//!
//! **What counts as held.** A claim counts until its leader knows that its task has ended, or that the claim was given back, failed, or
//! voided. In such a queue an expired lease is recorded as a failed attempt (`Op::Release`), as with a back-off: its holder cannot
//! renew it any more. A leader counts claims that it inherited of tasks that it does not know for every queue, until they have expired
//! by both clocks.
//!
//! **Why never more than N are held.** Questions (`QuotaAsk`) have numbers that grow, by epoch and then by question. The slot quota
//! remembers the last one that changed it, and older ones are ignored. A leader takes only the answer to its latest question. Each
//! question states what the leader *keeps to*: until the answer comes, no more claims are held in its partition, whatever slot quota it had
//! before. So the coordinator may set the slot quota to anything that is not below that.
//!
//! - A leader that keeps to less than before grants nothing above that from then on. It sends this only once all that it appended
//!   before is committed: an end that is not committed may be lost with the leader, and then the claim is held again. A later leader
//!   inherits all that was committed, and otherwise only operations of leaders that kept to it.
//! - A deposed leader cannot commit grants. So once a later leader is established, only what the later one keeps to counts. Before its
//!   first answer the later one has no slot quota and grants nothing. Its first question keeps to the slot quota as it is, and ties it to
//!   its epoch: all later questions of its predecessor count as older. The predecessor's earlier questions were about operations that the
//!   later leader has.
//! - A deposed leader of the coordinator partition commits nothing, and so sends no wrong slot quota.
//!
//! When N is lowered, or set where there was none, no claim is taken from its holder: held claims go on, and the excess drains. Leaders
//! that have not heard of a limit keep none.
//!
//! **Who gets what.** Leaders ask where there is work and demand for it (`demand.rs`). When nothing is left, the coordinator asks the
//! leaders that have more than their share (N divided by the number of partitions that take part) to keep to that. Idle slot quota comes at
//! once, the rest as claims end, and a leader that gave asks anew, behind those that wait. Every second the coordinator calls all other
//! leaders as well: where no work is left, nothing of a share is kept either.
//!
//! A slot quota of zero is removed from the table, and with it the number of its last question. A late question may then raise it, for a
//! leader that is deposed or does not wait for the answer. So a leader that is called states what it keeps to even if it has nothing to
//! give, if that was confirmed a while ago.

use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::{Op, SlotQuota};
use norn_model::config::mutant;
use norn_model::consensus::{SlotQuotaChange, Waiting};
use norn_model::message::Limiting;
use norn_model::replica::order::Standing;
use norn_model::viewstamp::Epoch;
use norn_wire::{NodeId, PartitionId, QueueName, State, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Time until an unanswered question is asked anew.
const ASK_MS: u64 = 1_000;
/// Time between two looks at what is still wanted.
const LOOK_MS: u64 = 100;
/// Time between two calls to all other leaders, which may have idle slot quota.
const IDLE_MS: u64 = 1_000;
/// A wish that was not repeated for this long is dropped.
const WAITS_MS: u64 = 3_000;
/// Age at which a confirmed slot quota is stated again to a coordinator that calls: a late question may have raised it there without any
/// leader to hold it.
const CONFIRM_MS: u64 = 10_000;
/// Most partitions of one queue for which a node asks at once.
const ASKS_MAX: usize = 16;

/// Slot quota of a queue in a partition, at its leader.
#[derive(Debug, Default)]
struct Allowance {
    /// How many claims may be held.
    count: u32,
    /// Whether the leader was sent a slot quota in this leadership.
    told: bool,
    /// Slot quota that the coordinator sent last: the coordinator knows that no more is kept.
    known: Option<u32>,
    known_us: u64,
    /// Latest question, and when it was asked, while it is open.
    request_id: u64,
    asked_us: Option<u64>,
    /// Epoch and leader of the coordinator partition that was asked.
    asked_of: Option<(Epoch, NodeId)>,
    again_us: u64,
    /// Other leaders want slot quota: this one gives up what is above this share.
    share: Option<u32>,
    /// What the leader now keeps to. The coordinator is sent it once everything up to this operation is committed.
    lowered: Option<(u64, u32)>,
}

/// What the leader at this node may grant in a partition.
#[derive(Debug, Default)]
struct Holder {
    /// Inherited claims of unknown tasks.
    strange: BTreeSet<TaskId>,
    allowances: BTreeMap<QueueName, Allowance>,
}

/// A question that waits at the coordinator until there is slot quota to give.
#[derive(Debug, Clone)]
pub struct Wish {
    node: NodeId,
    partition: PartitionId,
    epoch: Epoch,
    request_id: u64,
    keeps: u32,
    wants: u32,
    since_us: u64,
}

/// Concurrency slots: the slot quotas of partitions led here, and the wishes at coordinators led here.
#[derive(Debug, Default)]
pub struct SlotQuotas {
    holders: BTreeMap<PartitionId, Holder>,
    /// Partitions led here that have more work of a queue than they may grant.
    blocked: BTreeMap<QueueName, BTreeSet<PartitionId>>,
    /// Partitions with lowered slot quotas that the coordinator was not sent yet.
    lowered: BTreeSet<PartitionId>,
    /// At coordinators: open wishes, the first one first.
    wishes: BTreeMap<QueueName, Vec<Wish>>,
    /// At coordinators with open wishes: when to call all leaders next.
    idle_us: BTreeMap<QueueName, u64>,
}

impl Node {
    fn concurrency_of(&self, queue: &QueueName) -> Option<u32> {
        self.roster.policies.get(queue)?.concurrency
    }

    /// Number of claims of a queue that are held in a partition that this node leads, as far as it can tell.
    fn held_of(&self, partition: PartitionId, queue: &QueueName) -> u64 {
        let replica = &self.partitions[&partition];
        let known = replica.store.index().queue(queue).map_or(0, |index| index.counts[State::Claimed as usize]);
        let strange = self.claims.slot_quotas.holders.get(&partition).into_iter().flat_map(|holder| &holder.strange);
        let runs = |id: &&TaskId| replica.is_strange(id) && !replica.consensus.has_run_out(id);
        known + strange.filter(runs).count() as u64
    }

    /// How many more claims of a queue may be granted in a partition; `None`: any number.
    pub(crate) fn room_for_claims(&self, partition: PartitionId, queue: &QueueName) -> Option<u64> {
        let most = self.concurrency_of(queue)?;
        if mutant!(self.config, QuotaUnasked) {
            return Some(u64::from(most).saturating_sub(self.held_of(partition, queue)));
        }
        let holder = self.claims.slot_quotas.holders.get(&partition);
        let count = holder.and_then(|holder| holder.allowances.get(queue)).map_or(0, |allowance| allowance.count);
        Some(u64::from(count).saturating_sub(self.held_of(partition, queue)))
    }

    /// Ready tasks of a queue that a partition publishes: as many as it may grant. Also notes whether there are more, and returns
    /// whether that is news.
    pub(crate) fn shown(&mut self, partition: PartitionId, queue: &QueueName, ready: u64) -> (u64, bool) {
        let Some(room) = self.room_for_claims(partition, queue) else {
            self.unblock(partition, queue);
            return (ready, false);
        };
        if ready <= room {
            self.unblock(partition, queue);
            return (ready, false);
        }
        (room, self.claims.slot_quotas.blocked.entry(queue.clone()).or_default().insert(partition))
    }

    fn unblock(&mut self, partition: PartitionId, queue: &QueueName) {
        if let Some(blocked) = self.claims.slot_quotas.blocked.get_mut(queue) {
            blocked.remove(&partition);
            if blocked.is_empty() {
                self.claims.slot_quotas.blocked.remove(queue);
            }
        }
    }

    /// Whether a partition has work of a queue that it may not grant, and an open question about it.
    pub(crate) fn awaits_slot_quota(&self, queue: &QueueName) -> bool {
        let blocked = self.claims.slot_quotas.blocked.get(queue).into_iter().flatten();
        let allowances = blocked
            .filter_map(|partition| self.claims.slot_quotas.holders.get(partition)?.allowances.get(queue))
            .collect::<Vec<_>>();
        !allowances.is_empty() && allowances.iter().any(|allowance| allowance.asked_us.is_some())
    }

    /// Asks for slot quota where work of a queue is blocked and there is demand for it: in the partitions with the best heads.
    pub(crate) fn ask_for_slot_quotas(&mut self, queue: &QueueName) {
        let demand = self.demand(queue);
        if demand == 0 || self.concurrency_of(queue).is_none() || self.policy_of(queue).paused {
            return;
        }
        let ageing_ms = self.ageing_of(queue);
        let blocked = self.claims.slot_quotas.blocked.get(queue).into_iter().flatten();
        let mut heads: Vec<(Standing, PartitionId)> = blocked
            .filter_map(|partition| {
                let replica = &self.partitions[partition];
                Some((replica.head(queue, replica.knows_keys(&self.config), ageing_ms)?, *partition))
            })
            .collect();
        heads.sort_unstable();
        heads.truncate(usize::try_from(demand).unwrap_or(ASKS_MAX).min(ASKS_MAX));
        for (_, partition) in &heads {
            if self.room_for_claims(*partition, queue) > Some(0) {
                // An unknown task's claim has expired since.
                self.publish_queue(*partition, queue);
            }
            self.ask_for_slot_quota(*partition, queue, demand);
        }
        if !heads.is_empty() {
            self.timers.set_if_none(Key::SlotQuotas, self.after_ms(LOOK_MS));
        }
    }

    fn ask_for_slot_quota(&mut self, partition: PartitionId, queue: &QueueName, demand: u64) {
        let held = self.held_of(partition, queue);
        let ready = self.partitions[&partition].store.index().queue(queue).map_or(0, |index| index.ready_count(true));
        let wants = u32::try_from(held + ready.min(demand.max(held))).unwrap_or(u32::MAX);
        let (now_us, coordinator) = (self.now.mono_us, self.leadership_of(self.coordinator_of(queue)));
        let Some(holder) = self.claims.slot_quotas.holders.get_mut(&partition) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        // Another leader of the coordinator partition does not know the question.
        let asked_us = allowance.asked_us.filter(|_| allowance.asked_of == coordinator);
        let is_open = asked_us.is_some_and(|asked_us| now_us < asked_us + ASK_MS * 1_000);
        if is_open || allowance.lowered.is_some() || now_us < allowance.again_us || wants <= allowance.count {
            return;
        }
        if allowance.share.is_some() {
            // Perhaps the coordinator has not received what this leader keeps to.
            let again = allowance.known != Some(allowance.count);
            return self.give_slot_quota(partition, queue, again);
        }
        // This leader has no slot quota yet: it keeps to what the coordinator has for it.
        let keeps = if allowance.told { allowance.count } else { u32::MAX };
        self.send_slot_quota_ask(partition, queue, keeps, wants);
    }

    fn send_slot_quota_ask(&mut self, partition: PartitionId, queue: &QueueName, keeps: u32, wants: u32) {
        let coordinator = self.coordinator_leader(queue);
        let asked_of = self.leadership_of(self.coordinator_of(queue));
        let (request_id, now_us) = (self.pending_requests.number(), self.now.mono_us);
        let Some(epoch) = self.partitions[&partition].consensus.leading().map(|leading| leading.epoch) else { return };
        let Some(holder) = self.claims.slot_quotas.holders.get_mut(&partition) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        (allowance.request_id, allowance.asked_us, allowance.asked_of) = (request_id, Some(now_us), asked_of);
        match coordinator {
            Some(coordinator) => {
                let message = Limiting::QuotaAsk { partition, epoch, request_id, queue: queue.clone(), keeps, wants };
                self.outbox.send(coordinator, message);
            }
            None => (allowance.asked_us, allowance.again_us) = (None, now_us + LOOK_MS * 1_000),
        }
    }

    /// At a leader: receives its slot quota.
    pub(crate) fn on_quota(
        &mut self,
        (partition, epoch): (PartitionId, Epoch),
        request_id: u64,
        queue: &QueueName,
        count: u32,
    ) {
        let leads = self.partitions.get(&partition).and_then(|replica| replica.consensus.leading());
        if leads.is_none_or(|leading| leading.epoch != epoch || !leading.established) {
            return;
        }
        let again_us = self.after_ms(LOOK_MS);
        let holder = self.claims.slot_quotas.holders.get_mut(&partition);
        let Some(allowance) = holder.and_then(|holder| holder.allowances.get_mut(queue)) else { return };
        if allowance.request_id != request_id || allowance.asked_us.take().is_none() {
            return;
        }
        if count <= allowance.count {
            allowance.again_us = again_us;
        }
        (allowance.told, allowance.known, allowance.known_us) = (true, Some(count), self.now.mono_us);
        // A later question states what was lowered since. Claims up to what that keeps to may already be held.
        allowance.count = allowance.lowered.map_or(count, |(_, keeps)| count.min(keeps));
        if allowance.share.is_some_and(|share| allowance.lowered.is_none() && allowance.count <= share) {
            allowance.share = None;
        }
        let over = count == 0 && allowance.share.is_none() && allowance.lowered.is_none();
        if over && !self.claims.slot_quotas.blocked.get(queue).is_some_and(|blocked| blocked.contains(&partition)) {
            self.claims.slot_quotas.holders.get_mut(&partition).expect("just seen").allowances.remove(queue);
        }
        self.publish_queue(partition, queue);
        self.end_waiting(queue);
    }

    /// Other leaders want slot quota: this leader keeps to its share as soon as enough of its own claims have ended. The call may also show
    /// that the coordinator counts more for it than there is.
    pub(crate) fn on_quota_call(&mut self, partition: PartitionId, queue: &QueueName, share: u32) {
        let established = self.partitions.get(&partition).is_some_and(|replica| replica.consensus.established());
        let Some(holder) = self.claims.slot_quotas.holders.get_mut(&partition).filter(|_| established) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        allowance.share = Some(share);
        let now_us = self.now.mono_us;
        let open = allowance.asked_us.is_some_and(|asked_us| now_us < asked_us + LOOK_MS * 1_000);
        let old = now_us >= allowance.known_us + CONFIRM_MS * 1_000 && !mutant!(self.config, QuotaLeaks);
        let again = !open && (old || allowance.known != Some(allowance.count));
        self.give_slot_quota(partition, queue, again);
    }

    /// Lowers the slot quota that this leader keeps to, if it should and can, or states it again.
    fn give_slot_quota(&mut self, partition: PartitionId, queue: &QueueName, again: bool) {
        let limited = self.concurrency_of(queue).is_some();
        let held = u32::try_from(self.held_of(partition, queue)).unwrap_or(u32::MAX);
        let length = self.partitions[&partition].consensus.viewstamp.length;
        let Some(holder) = self.claims.slot_quotas.holders.get_mut(&partition) else { return };
        let Some(allowance) = holder.allowances.get_mut(queue) else { return };
        let Some(share) = allowance.share else { return };
        let ready = self.partitions[&partition].store.index().queue(queue).map_or(0, |index| index.ready_count(true));
        let used = held.saturating_add(u32::try_from(ready).unwrap_or(u32::MAX));
        let least = if limited { share.min(used).max(held) } else { 0 };
        if again || allowance.told && least < allowance.count {
            // A leader without a slot quota grants nothing, and may have inherited less than its predecessor was sent.
            allowance.count = least.min(allowance.count);
            let keeps = if allowance.told { allowance.count } else { least };
            allowance.lowered = Some((length, keeps));
            self.claims.slot_quotas.lowered.insert(partition);
            self.publish_queue(partition, queue);
            self.tell_lowered(partition);
        } else if allowance.known == Some(allowance.count) && allowance.count <= share {
            allowance.share = None;
        }
    }

    /// Sends lowered slot quotas to the coordinator, once all that was appended before is committed.
    pub(crate) fn tell_lowered(&mut self, partition: PartitionId) {
        if !self.claims.slot_quotas.lowered.contains(&partition) {
            return;
        }
        let consensus = &self.partitions[&partition].consensus;
        let (commit, established) = (consensus.commit, consensus.established());
        let Some(holder) = self.claims.slot_quotas.holders.get_mut(&partition).filter(|_| established) else { return };
        let mut told = Vec::new();
        for (queue, allowance) in &mut holder.allowances {
            if let Some((_, keeps)) = allowance.lowered.take_if(|(length, _)| *length <= commit) {
                told.push((queue.clone(), keeps));
            }
        }
        if holder.allowances.values().all(|allowance| allowance.lowered.is_none()) {
            self.claims.slot_quotas.lowered.remove(&partition);
        }
        for (queue, keeps) in told {
            self.send_slot_quota_ask(partition, &queue, keeps, 0);
        }
    }

    /// Work of a queue changed in a partition: slot quota that has become idle may be due to other partitions.
    pub(crate) fn settle_slot_quota(&mut self, partition: PartitionId, queue: &QueueName) {
        let holder = self.claims.slot_quotas.holders.get(&partition);
        let allowance = holder.and_then(|holder| holder.allowances.get(queue));
        if allowance.is_some_and(|allowance| allowance.share.is_some()) {
            self.give_slot_quota(partition, queue, false);
        }
    }

    /// At a coordinator: handles a question for the slot quota of a partition.
    pub(crate) fn on_quota_ask(
        &mut self,
        node: NodeId,
        (partition, epoch, request_id): (PartitionId, Epoch, u64),
        queue: QueueName,
        (keeps, wants): (u32, u32),
    ) {
        let coordinator = self.coordinator_of(&queue);
        let leads = self.partitions.get(&coordinator).is_some_and(|replica| replica.consensus.leading().is_some());
        if !leads {
            return;
        }
        let since_us = self.now.mono_us;
        let wish = Wish { node, partition, epoch, request_id, keeps, wants, since_us };
        let wishes = self.claims.slot_quotas.wishes.entry(queue.clone()).or_default();
        match wishes.iter_mut().find(|other| other.partition == partition) {
            Some(other) if (other.epoch, other.request_id) < (epoch, request_id) => *other = wish,
            Some(_) => return,
            None => wishes.push(wish),
        }
        self.serve_slot_quotas(coordinator, &queue);
    }

    /// Gives the available slot quota to those that wait, in turn.
    fn serve_slot_quotas(&mut self, coordinator: PartitionId, queue: &QueueName) {
        let old_us = self.now.mono_us.saturating_sub(WAITS_MS * 1_000);
        let most = u64::from(self.concurrency_of(queue).unwrap_or(0));
        let mut waiting = Vec::new();
        for wish in self.claims.slot_quotas.wishes.remove(queue).unwrap_or_default() {
            if wish.since_us < old_us {
                continue;
            }
            if !self.may_append(coordinator) {
                // Perhaps it is not established yet.
                waiting.push(wish);
                continue;
            }
            let slot_quotas = self.partitions[&coordinator].consensus.table.slot_quotas.get(queue);
            let own = slot_quotas.and_then(|slot_quotas| slot_quotas.get(&wish.partition)).copied();
            if own.is_some_and(|own| (own.epoch, own.request_id) >= (wish.epoch, wish.request_id)) {
                continue;
            }
            let sum: u64 =
                slot_quotas.into_iter().flat_map(BTreeMap::values).map(|slot_quota| u64::from(slot_quota.count)).sum();
            let had = own.map_or(0, |own| own.count);
            assert!(sum >= u64::from(had), "one quota is more than all together");
            let base = if mutant!(self.config, QuotaUnconfirmed) { 0 } else { had.min(wish.keeps) };
            let free = most.saturating_sub(sum - u64::from(had) + u64::from(base));
            let more = u64::from(wish.wants.saturating_sub(base)).min(free);
            let count = base + u32::try_from(more).unwrap_or(u32::MAX);
            let fits = more == 0 || sum - u64::from(had) + u64::from(count) <= most;
            assert!(fits, "more quota is given than there is");
            let tied = own.is_some_and(|own| own.epoch != wish.epoch);
            if more == 0 && wish.wants > base && base == had && !tied {
                waiting.push(wish);
            } else if own.is_some() || count > 0 {
                let Wish { node, partition, epoch, request_id, .. } = wish;
                let slot_quota = SlotQuota { count, epoch, request_id };
                let changing = SlotQuotaChange { node, partition, queue: queue.clone(), slot_quota };
                let op = Op::SlotQuota { queue: queue.clone(), partition, slot_quota };
                self.append(coordinator, op, Some(Waiting::SlotQuota(Box::new(changing))));
            } else {
                self.tell_slot_quota(SlotQuotaChange {
                    node: wish.node,
                    partition: wish.partition,
                    queue: queue.clone(),
                    slot_quota: SlotQuota { count: 0, epoch: wish.epoch, request_id: wish.request_id },
                });
            }
        }
        if !waiting.is_empty() {
            self.timers.set_if_none(Key::SlotQuotas, self.after_ms(LOOK_MS));
            self.claims.slot_quotas.wishes.insert(queue.clone(), waiting);
        }
    }

    /// A slot quota is committed: sends it, and gives what it leaves over to others.
    pub(crate) fn slot_quota_changed(&mut self, changing: SlotQuotaChange) {
        let queue = changing.queue.clone();
        self.tell_slot_quota(changing);
        self.serve_slot_quotas(self.coordinator_of(&queue), &queue);
    }

    fn tell_slot_quota(&mut self, changing: SlotQuotaChange) {
        let SlotQuotaChange { node, partition, queue, slot_quota: SlotQuota { count, epoch, request_id } } = changing;
        self.outbox.send(node, Limiting::Quota { partition, epoch, request_id, queue, count });
    }

    /// Calls leaders that have more than their share, where others wait or the sum of all slot quotas is too large.
    fn call_slot_quotas(&mut self, coordinator: PartitionId, queue: &QueueName) {
        let Some(slot_quotas) = self.partitions[&coordinator].consensus.table.slot_quotas.get(queue) else { return };
        let most = u64::from(self.concurrency_of(queue).unwrap_or(0));
        let sum: u64 = slot_quotas.values().map(|slot_quota| u64::from(slot_quota.count)).sum();
        let wishes = self.claims.slot_quotas.wishes.get(queue).map_or(&[][..], Vec::as_slice);
        let waiting: BTreeSet<PartitionId> = wishes.iter().map(|wish| wish.partition).collect();
        let all = slot_quotas.keys().chain(&waiting).collect::<BTreeSet<_>>().len() as u64;
        let share = u32::try_from(most / all.max(1)).unwrap_or(u32::MAX);
        let mut above: Vec<(u32, PartitionId)> = slot_quotas
            .iter()
            .filter(|(_, slot_quota)| slot_quota.count > share)
            .map(|(partition, slot_quota)| (slot_quota.count, *partition))
            .collect();
        above.sort_unstable_by(|one, other| other.cmp(one));
        if sum <= most {
            let has = |partition: &PartitionId| slot_quotas.get(partition).map_or(0, |slot_quota| slot_quota.count);
            above.truncate(waiting.iter().filter(|partition| has(partition) < share.max(1)).count());
        }
        let mut called: BTreeMap<PartitionId, u32> =
            above.into_iter().map(|(_, partition)| (partition, share)).collect();
        if !self.claims.slot_quotas.idle_us.contains_key(queue) {
            self.claims.slot_quotas.idle_us.insert(queue.clone(), self.after_ms(IDLE_MS));
            for (partition, slot_quota) in slot_quotas.iter().filter(|(partition, _)| !waiting.contains(partition)) {
                called.entry(*partition).or_insert(slot_quota.count);
            }
        }
        for (partition, share) in called {
            if let Some(node) = self.leader_of(partition) {
                self.outbox.send(node, Limiting::QuotaCall { partition, queue: queue.clone(), share });
            }
        }
    }

    /// Looks at what is still wanted: at coordinators, and at leaders that ask.
    pub(crate) fn see_to_slot_quotas(&mut self) {
        let coordinators: Vec<PartitionId> = self
            .led
            .iter()
            .copied()
            .filter(|coordinator| self.may_append(*coordinator) && *coordinator != PartitionId::METADATA)
            .collect();
        let mut busy = false;
        let now_us = self.now.mono_us;
        self.claims.slot_quotas.idle_us.retain(|_, until_us| *until_us > now_us);
        for coordinator in coordinators {
            let kept: BTreeSet<QueueName> =
                self.partitions[&coordinator].consensus.table.slot_quotas.keys().cloned().collect();
            let waited: BTreeSet<QueueName> = self
                .claims
                .slot_quotas
                .wishes
                .keys()
                .filter(|queue| self.coordinator_of(queue) == coordinator)
                .cloned()
                .collect();
            for queue in kept.union(&waited) {
                self.serve_slot_quotas(coordinator, queue);
                let slot_quotas = self.partitions[&coordinator].consensus.table.slot_quotas.get(queue).into_iter();
                let sum: u64 =
                    slot_quotas.flat_map(BTreeMap::values).map(|slot_quota| u64::from(slot_quota.count)).sum();
                let excess = sum > u64::from(self.concurrency_of(queue).unwrap_or(0));
                if excess || self.claims.slot_quotas.wishes.contains_key(queue) {
                    busy = true;
                    self.call_slot_quotas(coordinator, queue);
                }
            }
        }
        let blocked: Vec<QueueName> = self.claims.slot_quotas.blocked.keys().cloned().collect();
        for queue in blocked {
            busy |= self.demand(&queue) > 0;
            self.ask_for_slot_quotas(&queue);
        }
        if busy {
            self.timers.set_earliest(Key::SlotQuotas, self.after_ms(LOOK_MS));
        }
    }

    /// Schedules a look, as settings of queues have changed or a leader begins.
    pub(crate) fn slot_quotas_soon(&mut self) {
        self.timers.set_earliest(Key::SlotQuotas, self.after_ms(LOOK_MS));
    }

    /// A leader begins to grant. It has no slot quota yet.
    pub(crate) fn begin_slot_quotas(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let strange = replica.consensus.table.entries.keys().filter(|id| replica.is_strange(id)).copied().collect();
        self.claims.slot_quotas.holders.insert(partition, Holder { strange, allowances: BTreeMap::new() });
        self.slot_quotas_soon();
    }

    /// A leader steps down.
    pub(crate) fn end_slot_quotas(&mut self, partition: PartitionId) {
        self.claims.slot_quotas.holders.remove(&partition);
        self.claims.slot_quotas.lowered.remove(&partition);
        self.claims.slot_quotas.blocked.retain(|_, blocked| {
            blocked.remove(&partition);
            !blocked.is_empty()
        });
        let coordinators: Vec<QueueName> = self
            .claims
            .slot_quotas
            .wishes
            .keys()
            .filter(|queue| self.coordinator_of(queue) == partition)
            .cloned()
            .collect();
        coordinators.iter().for_each(|queue| drop(self.claims.slot_quotas.wishes.remove(queue)));
    }
}
