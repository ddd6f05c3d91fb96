//! At most N claims of a queue are held at once, in the whole cluster (`queue set Q concurrency N`).
//!
//! Each queue has a home (`Node::home_of`), whose table says how many of its claims each partition may have: its *quota*. All quotas
//! of a queue together are N at most. A quota is changed by an operation, and told once that is committed. The leader of a
//! partition grants only while fewer claims are held in it than it was told *in this leadership*.
//!
//! **What is held.** A claim counts until its leader knows that its task has ended, or the claim was given back, failed, or was
//! taken back. A lease that ran out is written down as a failed attempt in such a queue (`Op::Release`), as with a back-off: its
//! holder cannot renew it any more. A leader counts claims that it inherited of tasks that it does not know for every queue, until
//! their time is over by both clocks.
//!
//! **Why never more than N are held.** Questions (`QuotaAsk`) have numbers that grow, by epoch and then by question; the quota
//! remembers the last one that changed it, and older ones are passed over. A leader takes only the answer to its latest question.
//! In each question it says what it *keeps to*: until it is answered, no more are held in its partition, whatever it was told
//! before. So the home may set the quota to anything that is not below that.
//!
//! - A leader that keeps to less than before grants nothing above that any more from then on, and says so only once all that it
//!   appended before is committed: an end that is not may be lost with the leader, and the claim is held again. What a later leader
//!   inherits holds all that was committed, and nothing but operations of leaders that kept to it.
//! - A deposed leader cannot commit grants, so once a later one is established, what that keeps to is all. Before, it has been told
//!   nothing, and grants nothing. Its first question keeps to the quota as it is, and ties that to its epoch: whatever its
//!   predecessor says from then on is older. What the predecessor said before was said of operations that the later one has.
//! - A deposed leader of the home commits nothing, and so tells nothing that is not so.
//!
//! When N is lowered, or set where there was none, nothing is taken from anybody: claims that are held go on, and the excess drains.
//! Leaders that have not heard of a limit keep none.
//!
//! **Who has what.** Leaders ask where there is work and somebody wants it (`demand.rs`). When there is none left, the home asks those
//! that have more than their share (N by as many partitions as take part) to keep to that: what is idle comes at once, the rest as
//! claims end, and whoever gave asks anew, behind those that wait. Every second it asks all others as well: where there is no work
//! left, nothing is kept of a share, either.
//!
//! A quota that came to nothing is forgotten, and with it which question was the last. One that is late may raise it then, for a leader
//! that is deposed, or does not wait for the answer. So whoever is called says what it keeps to even if it has nothing to give, where
//! that was confirmed a while ago.

use super::register::QuotaChange;
use super::table::{Op, Quota};
use super::{Epoch, Waiting};
use crate::config::mutant;
use crate::protocol::Node;
use crate::protocol::partition::order::Standing;
use crate::protocol::peer::PeerMessage;
use crate::protocol::timers::Key;
use norn_wire::{NodeId, PartitionId, QueueName, State, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Until a question that was not answered is asked anew.
const ASK_MS: u64 = 1_000;
/// Between looks at what is still wanted.
const LOOK_MS: u64 = 100;
/// Between calls to all others: what they have they may have no use for.
const IDLE_MS: u64 = 1_000;
/// Who has not asked again for so long wants nothing any more.
const WAITS_MS: u64 = 3_000;
/// What was confirmed so long ago is said again to a home that calls: a late question may have raised there what nobody has.
const CONFIRM_MS: u64 = 10_000;
/// Partitions of one queue for which a node asks at once.
const ASKS_MAX: usize = 16;

/// What a leader may grant of a queue in a partition.
#[derive(Debug, Default)]
struct Allowance {
    /// So many may be held.
    count: u32,
    /// The leader was told anything.
    told: bool,
    /// What the home has said last: it knows that no more is kept than that.
    known: Option<u32>,
    known_us: u64,
    /// The latest question, and when it was asked, while it is open.
    ask: u64,
    asked_us: Option<u64>,
    /// Which leadership of the home.
    asked_of: Option<(Epoch, NodeId)>,
    again_us: u64,
    /// Others want some: it keeps no more than so many.
    share: Option<u32>,
    /// The home is to be told that it keeps to so many, once everything up to this operation is committed.
    lowered: Option<(u64, u32)>,
}

/// What leaders at this node may grant in a partition.
#[derive(Debug, Default)]
struct Holder {
    /// Claims that it inherited of tasks that it does not know.
    strange: BTreeSet<TaskId>,
    allowances: BTreeMap<QueueName, Allowance>,
}

/// A question that waits at the home until there is something to give.
#[derive(Debug, Clone)]
pub struct Wish {
    node: NodeId,
    partition: PartitionId,
    epoch: Epoch,
    ask: u64,
    keeps: u32,
    wants: u32,
    since_us: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Quotas {
    holders: BTreeMap<PartitionId, Holder>,
    /// Partitions led here that have more work of a queue than they may grant.
    blocked: BTreeMap<QueueName, BTreeSet<PartitionId>>,
    /// Partitions in which something was lowered and not said yet.
    lowered: BTreeSet<PartitionId>,
    /// At homes: who waits, the first one first.
    wishes: BTreeMap<QueueName, Vec<Wish>>,
    /// At homes, while somebody waits: when all are to be called next.
    idle_us: BTreeMap<QueueName, u64>,
}

impl Node {
    fn concurrency_of(&self, queue: &QueueName) -> Option<u32> {
        self.roster.policies.get(queue)?.concurrency
    }

    /// Claims of a queue that are held in a partition that this node leads, as far as it can tell.
    fn held_of(&self, partition: PartitionId, queue: &QueueName) -> u64 {
        let replica = &self.partitions[&partition];
        let known = replica.store.index().queue(queue).map_or(0, |index| index.counts[State::Claimed as usize]);
        let strange = self.quotas.holders.get(&partition).into_iter().flat_map(|holder| &holder.strange);
        let runs = |id: &&TaskId| replica.is_strange(id) && !replica.register.has_run_out(id);
        known + strange.filter(runs).count() as u64
    }

    /// So many more claims of a queue may be granted in a partition; `None`: any number.
    pub(super) fn room_for_claims(&self, partition: PartitionId, queue: &QueueName) -> Option<u64> {
        let most = self.concurrency_of(queue)?;
        if mutant!(self.config, QuotaUnasked) {
            return Some(u64::from(most).saturating_sub(self.held_of(partition, queue)));
        }
        let holder = self.quotas.holders.get(&partition);
        let count = holder.and_then(|holder| holder.allowances.get(queue)).map_or(0, |allowance| allowance.count);
        Some(u64::from(count).saturating_sub(self.held_of(partition, queue)))
    }

    /// Ready tasks of a queue that a partition shows: as many as it may grant. It is noted where there are more; whether that is news.
    pub(super) fn shown(&mut self, partition: PartitionId, queue: &QueueName, ready: u64) -> (u64, bool) {
        let Some(room) = self.room_for_claims(partition, queue) else {
            self.unblock(partition, queue);
            return (ready, false);
        };
        if ready <= room {
            self.unblock(partition, queue);
            return (ready, false);
        }
        (room, self.quotas.blocked.entry(queue.clone()).or_default().insert(partition))
    }

    fn unblock(&mut self, partition: PartitionId, queue: &QueueName) {
        if let Some(blocked) = self.quotas.blocked.get_mut(queue) {
            blocked.remove(&partition);
            if blocked.is_empty() {
                self.quotas.blocked.remove(queue);
            }
        }
    }

    /// Whether a partition has work of a queue that it may not grant, and has asked.
    pub(super) fn awaits_quota(&self, queue: &QueueName) -> bool {
        let blocked = self.quotas.blocked.get(queue).into_iter().flatten();
        let allowances = blocked
            .filter_map(|partition| self.quotas.holders.get(partition)?.allowances.get(queue))
            .collect::<Vec<_>>();
        !allowances.is_empty() && allowances.iter().any(|allowance| allowance.asked_us.is_some())
    }

    /// Asks for more claims of a queue where its work is blocked and somebody wants it: in the partitions that come first.
    pub(super) fn ask_for_quotas(&mut self, queue: &QueueName) {
        let demand = self.demand(queue);
        if demand == 0 || self.concurrency_of(queue).is_none() || self.policy_of(queue).paused {
            return;
        }
        let ageing_ms = self.ageing_of(queue);
        let blocked = self.quotas.blocked.get(queue).into_iter().flatten();
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
                // The time of a claim is over of which nothing is known.
                self.publish_queue(*partition, queue);
            }
            self.ask_for_quota(*partition, queue, demand);
        }
        if !heads.is_empty() {
            self.timers.set_if_none(Key::Quotas, self.after_ms(LOOK_MS));
        }
    }

    fn ask_for_quota(&mut self, partition: PartitionId, queue: &QueueName, demand: u64) {
        let held = self.held_of(partition, queue);
        let ready = self.partitions[&partition].store.index().queue(queue).map_or(0, |index| index.ready_count(true));
        let wants = u32::try_from(held + ready.min(demand.max(held))).unwrap_or(u32::MAX);
        let (now_us, home) = (self.now.mono_us, self.leadership_of(self.home_of(queue)));
        let Some(holder) = self.quotas.holders.get_mut(&partition) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        // Another leader of the home knows nothing of the question.
        let asked_us = allowance.asked_us.filter(|_| allowance.asked_of == home);
        let is_open = asked_us.is_some_and(|asked_us| now_us < asked_us + ASK_MS * 1_000);
        if is_open || allowance.lowered.is_some() || now_us < allowance.again_us || wants <= allowance.count {
            return;
        }
        if allowance.share.is_some() {
            // Perhaps the home has not heard of it.
            let again = allowance.known != Some(allowance.count);
            return self.give_quota(partition, queue, again);
        }
        // Nothing was told to this leader: it keeps to what the home has.
        let keeps = if allowance.told { allowance.count } else { u32::MAX };
        self.send_quota_ask(partition, queue, keeps, wants);
    }

    fn send_quota_ask(&mut self, partition: PartitionId, queue: &QueueName, keeps: u32, wants: u32) {
        let home = self.home_leader(queue);
        let asked_of = self.leadership_of(self.home_of(queue));
        let (ask, now_us) = (self.asks.number(), self.now.mono_us);
        let Some(epoch) = self.partitions[&partition].register.leading().map(|leading| leading.epoch) else { return };
        let Some(holder) = self.quotas.holders.get_mut(&partition) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        (allowance.ask, allowance.asked_us, allowance.asked_of) = (ask, Some(now_us), asked_of);
        match home {
            Some(home) => {
                let message = PeerMessage::QuotaAsk { partition, epoch, ask, queue: queue.clone(), keeps, wants };
                self.outbox.send(home, message);
            }
            None => (allowance.asked_us, allowance.again_us) = (None, now_us + LOOK_MS * 1_000),
        }
    }

    /// At a leader: what it may grant from now on.
    pub(in crate::protocol) fn on_quota(
        &mut self,
        (partition, epoch): (PartitionId, Epoch),
        ask: u64,
        queue: &QueueName,
        count: u32,
    ) {
        let leads = self.partitions.get(&partition).and_then(|replica| replica.register.leading());
        if leads.is_none_or(|leading| leading.epoch != epoch || !leading.established) {
            return;
        }
        let again_us = self.after_ms(LOOK_MS);
        let holder = self.quotas.holders.get_mut(&partition);
        let Some(allowance) = holder.and_then(|holder| holder.allowances.get_mut(queue)) else { return };
        if allowance.ask != ask || allowance.asked_us.take().is_none() {
            return;
        }
        if count <= allowance.count {
            allowance.again_us = again_us;
        }
        (allowance.told, allowance.known, allowance.known_us) = (true, Some(count), self.now.mono_us);
        // What was lowered since is told by a later question, and no less than what that keeps to may be held already.
        allowance.count = allowance.lowered.map_or(count, |(_, keeps)| count.min(keeps));
        if allowance.share.is_some_and(|share| allowance.lowered.is_none() && allowance.count <= share) {
            allowance.share = None;
        }
        let over = count == 0 && allowance.share.is_none() && allowance.lowered.is_none();
        if over && !self.quotas.blocked.get(queue).is_some_and(|blocked| blocked.contains(&partition)) {
            self.quotas.holders.get_mut(&partition).expect("just seen").allowances.remove(queue);
        }
        self.publish_queue(partition, queue);
        self.end_waiting(queue);
    }

    /// Others want claims of a queue: a leader keeps to its share as soon as so many of its own have ended. That the home calls may
    /// show that it believes in more than there is.
    pub(in crate::protocol) fn on_quota_call(&mut self, partition: PartitionId, queue: &QueueName, share: u32) {
        let established = self.partitions.get(&partition).is_some_and(|replica| replica.register.established());
        let Some(holder) = self.quotas.holders.get_mut(&partition).filter(|_| established) else { return };
        let allowance = holder.allowances.entry(queue.clone()).or_default();
        allowance.share = Some(share);
        let now_us = self.now.mono_us;
        let open = allowance.asked_us.is_some_and(|asked_us| now_us < asked_us + LOOK_MS * 1_000);
        let old = now_us >= allowance.known_us + CONFIRM_MS * 1_000 && !mutant!(self.config, QuotaLeaks);
        let again = !open && (old || allowance.known != Some(allowance.count));
        self.give_quota(partition, queue, again);
    }

    /// Keeps to less, if it is to and can, or says so again.
    fn give_quota(&mut self, partition: PartitionId, queue: &QueueName, again: bool) {
        let limited = self.concurrency_of(queue).is_some();
        let held = u32::try_from(self.held_of(partition, queue)).unwrap_or(u32::MAX);
        let length = self.partitions[&partition].register.viewstamp.length;
        let Some(holder) = self.quotas.holders.get_mut(&partition) else { return };
        let Some(allowance) = holder.allowances.get_mut(queue) else { return };
        let Some(share) = allowance.share else { return };
        let ready = self.partitions[&partition].store.index().queue(queue).map_or(0, |index| index.ready_count(true));
        let used = held.saturating_add(u32::try_from(ready).unwrap_or(u32::MAX));
        let least = if limited { share.min(used).max(held) } else { 0 };
        if again || allowance.told && least < allowance.count {
            // Who was told nothing grants nothing, and what it has may be less than its predecessor was told.
            allowance.count = least.min(allowance.count);
            let keeps = if allowance.told { allowance.count } else { least };
            allowance.lowered = Some((length, keeps));
            self.quotas.lowered.insert(partition);
            self.publish_queue(partition, queue);
            self.tell_lowered(partition);
        } else if allowance.known == Some(allowance.count) && allowance.count <= share {
            allowance.share = None;
        }
    }

    /// Says what was lowered, where all that was appended before is committed.
    pub(super) fn tell_lowered(&mut self, partition: PartitionId) {
        if !self.quotas.lowered.contains(&partition) {
            return;
        }
        let register = &self.partitions[&partition].register;
        let (commit, established) = (register.commit, register.established());
        let Some(holder) = self.quotas.holders.get_mut(&partition).filter(|_| established) else { return };
        let mut told = Vec::new();
        for (queue, allowance) in &mut holder.allowances {
            if let Some((_, keeps)) = allowance.lowered.take_if(|(length, _)| *length <= commit) {
                told.push((queue.clone(), keeps));
            }
        }
        if holder.allowances.values().all(|allowance| allowance.lowered.is_none()) {
            self.quotas.lowered.remove(&partition);
        }
        for (queue, keeps) in told {
            self.send_quota_ask(partition, &queue, keeps, 0);
        }
    }

    /// Work of a queue changed in a partition: what has become idle may be due to others.
    pub(super) fn settle_quota(&mut self, partition: PartitionId, queue: &QueueName) {
        let holder = self.quotas.holders.get(&partition);
        let allowance = holder.and_then(|holder| holder.allowances.get(queue));
        if allowance.is_some_and(|allowance| allowance.share.is_some()) {
            self.give_quota(partition, queue, false);
        }
    }

    /// At a home: how many claims of a queue a partition is to have.
    pub(in crate::protocol) fn on_quota_ask(
        &mut self,
        node: NodeId,
        (partition, epoch, ask): (PartitionId, Epoch, u64),
        queue: QueueName,
        (keeps, wants): (u32, u32),
    ) {
        let home = self.home_of(&queue);
        let leads = self.partitions.get(&home).is_some_and(|replica| replica.register.leading().is_some());
        if !leads {
            return;
        }
        let since_us = self.now.mono_us;
        let wish = Wish { node, partition, epoch, ask, keeps, wants, since_us };
        let wishes = self.quotas.wishes.entry(queue.clone()).or_default();
        match wishes.iter_mut().find(|other| other.partition == partition) {
            Some(other) if (other.epoch, other.ask) < (epoch, ask) => *other = wish,
            Some(_) => return,
            None => wishes.push(wish),
        }
        self.serve_quotas(home, &queue);
    }

    /// Gives what there is to those who wait, in turn, and asks others for more.
    fn serve_quotas(&mut self, home: PartitionId, queue: &QueueName) {
        let old_us = self.now.mono_us.saturating_sub(WAITS_MS * 1_000);
        let most = u64::from(self.concurrency_of(queue).unwrap_or(0));
        let mut waiting = Vec::new();
        for wish in self.quotas.wishes.remove(queue).unwrap_or_default() {
            if wish.since_us < old_us {
                continue;
            }
            if !self.may_append(home) {
                // Perhaps it is not established yet.
                waiting.push(wish);
                continue;
            }
            let quotas = self.partitions[&home].register.table.quotas.get(queue);
            let own = quotas.and_then(|quotas| quotas.get(&wish.partition)).copied();
            if own.is_some_and(|own| (own.epoch, own.ask) >= (wish.epoch, wish.ask)) {
                continue;
            }
            let sum: u64 = quotas.into_iter().flat_map(BTreeMap::values).map(|quota| u64::from(quota.count)).sum();
            let had = own.map_or(0, |own| own.count);
            let base = if mutant!(self.config, QuotaUnconfirmed) { 0 } else { had.min(wish.keeps) };
            let free = most.saturating_sub(sum - u64::from(had) + u64::from(base));
            let more = u64::from(wish.wants.saturating_sub(base)).min(free);
            let count = base + u32::try_from(more).unwrap_or(u32::MAX);
            let tied = own.is_some_and(|own| own.epoch != wish.epoch);
            if more == 0 && wish.wants > base && base == had && !tied {
                waiting.push(wish);
            } else if own.is_some() || count > 0 {
                let Wish { node, partition, epoch, ask, .. } = wish;
                let quota = Quota { count, epoch, ask };
                let changing = QuotaChange { node, partition, queue: queue.clone(), quota };
                let op = Op::Quota { queue: queue.clone(), partition, quota };
                self.append(home, op, Some(Waiting::Quota(Box::new(changing))));
            } else {
                self.tell_quota(QuotaChange {
                    node: wish.node,
                    partition: wish.partition,
                    queue: queue.clone(),
                    quota: Quota { count: 0, epoch: wish.epoch, ask: wish.ask },
                });
            }
        }
        if !waiting.is_empty() {
            self.timers.set_if_none(Key::Quotas, self.after_ms(LOOK_MS));
            self.quotas.wishes.insert(queue.clone(), waiting);
        }
    }

    /// A quota is committed: it may be told, and what it leaves over is there for others.
    pub(super) fn quota_changed(&mut self, changing: QuotaChange) {
        let queue = changing.queue.clone();
        self.tell_quota(changing);
        self.serve_quotas(self.home_of(&queue), &queue);
    }

    fn tell_quota(&mut self, changing: QuotaChange) {
        let QuotaChange { node, partition, queue, quota: Quota { count, epoch, ask } } = changing;
        self.outbox.send(node, PeerMessage::Quota { partition, epoch, ask, queue, count });
    }

    /// Asks those that have more than their share, where others wait or all together have too many.
    fn call_quotas(&mut self, home: PartitionId, queue: &QueueName) {
        let Some(quotas) = self.partitions[&home].register.table.quotas.get(queue) else { return };
        let most = u64::from(self.concurrency_of(queue).unwrap_or(0));
        let sum: u64 = quotas.values().map(|quota| u64::from(quota.count)).sum();
        let wishes = self.quotas.wishes.get(queue).map_or(&[][..], Vec::as_slice);
        let waiting: BTreeSet<PartitionId> = wishes.iter().map(|wish| wish.partition).collect();
        let all = quotas.keys().chain(&waiting).collect::<BTreeSet<_>>().len() as u64;
        let share = u32::try_from(most / all.max(1)).unwrap_or(u32::MAX);
        let mut above: Vec<(u32, PartitionId)> = quotas
            .iter()
            .filter(|(_, quota)| quota.count > share)
            .map(|(partition, quota)| (quota.count, *partition))
            .collect();
        above.sort_unstable_by(|one, other| other.cmp(one));
        if sum <= most {
            let has = |partition: &PartitionId| quotas.get(partition).map_or(0, |quota| quota.count);
            above.truncate(waiting.iter().filter(|partition| has(partition) < share.max(1)).count());
        }
        let mut called: BTreeMap<PartitionId, u32> =
            above.into_iter().map(|(_, partition)| (partition, share)).collect();
        if !self.quotas.idle_us.contains_key(queue) {
            self.quotas.idle_us.insert(queue.clone(), self.after_ms(IDLE_MS));
            for (partition, quota) in quotas.iter().filter(|(partition, _)| !waiting.contains(partition)) {
                called.entry(*partition).or_insert(quota.count);
            }
        }
        for (partition, share) in called {
            if let Some(node) = self.leader_of(partition) {
                self.outbox.send(node, PeerMessage::QuotaCall { partition, queue: queue.clone(), share });
            }
        }
    }

    /// Looks at what is wanted still: at homes, and at leaders that ask.
    pub(in crate::protocol) fn see_to_quotas(&mut self) {
        let homes: Vec<PartitionId> =
            self.led.iter().copied().filter(|home| self.may_append(*home) && *home != PartitionId::ROOT).collect();
        let mut busy = false;
        let now_us = self.now.mono_us;
        self.quotas.idle_us.retain(|_, until_us| *until_us > now_us);
        for home in homes {
            let kept: BTreeSet<QueueName> = self.partitions[&home].register.table.quotas.keys().cloned().collect();
            let waited: BTreeSet<QueueName> =
                self.quotas.wishes.keys().filter(|queue| self.home_of(queue) == home).cloned().collect();
            for queue in kept.union(&waited) {
                self.serve_quotas(home, queue);
                let quotas = self.partitions[&home].register.table.quotas.get(queue).into_iter();
                let sum: u64 = quotas.flat_map(BTreeMap::values).map(|quota| u64::from(quota.count)).sum();
                let excess = sum > u64::from(self.concurrency_of(queue).unwrap_or(0));
                if excess || self.quotas.wishes.contains_key(queue) {
                    busy = true;
                    self.call_quotas(home, queue);
                }
            }
        }
        let blocked: Vec<QueueName> = self.quotas.blocked.keys().cloned().collect();
        for queue in blocked {
            busy |= self.demand(&queue) > 0;
            self.ask_for_quotas(&queue);
        }
        if busy {
            self.timers.set_earliest(Key::Quotas, self.after_ms(LOOK_MS));
        }
    }

    /// Something else is set for queues, or a leader begins: it looks what that means.
    pub(in crate::protocol) fn quotas_soon(&mut self) {
        self.timers.set_earliest(Key::Quotas, self.after_ms(LOOK_MS));
    }

    /// A leader begins to grant. It has been told nothing.
    pub(super) fn begin_quotas(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        let strange = replica.register.table.cells.keys().filter(|id| replica.is_strange(id)).copied().collect();
        self.quotas.holders.insert(partition, Holder { strange, allowances: BTreeMap::new() });
        self.quotas_soon();
    }

    /// A leader steps down.
    pub(super) fn end_quotas(&mut self, partition: PartitionId) {
        self.quotas.holders.remove(&partition);
        self.quotas.lowered.remove(&partition);
        self.quotas.blocked.retain(|_, blocked| {
            blocked.remove(&partition);
            !blocked.is_empty()
        });
        let homes: Vec<QueueName> =
            self.quotas.wishes.keys().filter(|queue| self.home_of(queue) == partition).cloned().collect();
        homes.iter().for_each(|queue| drop(self.quotas.wishes.remove(queue)));
    }
}
