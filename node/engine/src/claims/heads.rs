//! Head index: heads of queues over all partitions that this node leads, and the nodes that are interested in them.

use crate::Node;
use crate::context::signals::Signal;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::config::mutant;
use norn_model::message::{AntiEntropy, Claiming, Head};
use norn_model::replica::index::QueueIndex;
use norn_model::replica::order::Standing;
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Time between two summaries to interested nodes.
const SUMMARIES_INTERVAL_MS: u64 = 200;
/// Shortest time between two announcements of a queue with a rate to all nodes that wait for it.
const ALL_TOLD_MS: u64 = 100;
/// A partition whose leader was silent about it for this long may have none.
const QUIET_MS: u64 = 1_000;
/// Most tasks named in a `Wake`.
const WAKE_IDS_MAX: usize = 16;

/// Heads of one queue.
#[derive(Debug, Default)]
struct QueueHeads {
    heads: BTreeSet<(Standing, PartitionId)>,
    ready: u64,
    /// As last sent to interested nodes.
    announced: Option<Head>,
    /// When work was last announced to all waiting nodes at once.
    all_told_us: Option<u64>,
}

/// Interest of a node whose workers wait, or waited lately.
#[derive(Debug, Clone, Copy)]
struct Interest {
    credits: u32,
    until_us: u64,
}

/// Heads by queue, and interest by queue and node.
#[derive(Debug, Default)]
pub struct Heads {
    queues: BTreeMap<QueueName, QueueHeads>,
    interest: BTreeMap<QueueName, BTreeMap<NodeId, Interest>>,
    /// Node that was last notified, so that nodes take turns.
    turn: NodeId,
}

impl Heads {
    fn change(
        &mut self,
        queue: &QueueName,
        partition: PartitionId,
        before: Option<(Standing, u64)>,
        after: Option<(Standing, u64)>,
    ) {
        if before == after {
            return;
        }
        let entry = self.queues.entry(queue.clone()).or_default();
        if let Some((rank, count)) = before {
            assert!(entry.heads.remove(&(rank, partition)), "a published head is there");
            assert!(entry.ready >= count, "more ready tasks are withdrawn than were published");
            entry.ready -= count;
        }
        if let Some((rank, count)) = after {
            assert!(entry.heads.insert((rank, partition)), "a head is published twice");
            entry.ready += count;
        }
        assert!(!entry.heads.is_empty() || entry.ready == 0, "ready tasks are counted that no partition has");
        if entry.heads.is_empty() && entry.announced.is_none() {
            self.queues.remove(queue);
        }
    }

    /// The best head of some queues at that time, leaving some partitions out.
    pub fn best(
        &self,
        queues: &[QueueName],
        out: &BTreeSet<PartitionId>,
        wall_ms: u64,
    ) -> Option<(TaskId, PartitionId)> {
        let first = |queue: &QueueName| {
            self.queues.get(queue)?.heads.iter().find(|(_, partition)| !out.contains(partition)).copied()
        };
        let firsts = queues.iter().filter_map(first);
        let best = firsts.min_by_key(|(standing, _)| (Reverse(standing.priority(wall_ms)), standing.id));
        best.map(|(standing, partition)| (standing.id, partition))
    }

    /// Partitions that have tasks of a queue.
    pub fn partitions(&self, queue: &QueueName) -> impl Iterator<Item = PartitionId> {
        self.queues.get(queue).into_iter().flat_map(|heads| heads.heads.iter().map(|(_, partition)| *partition))
    }

    /// Number of ready tasks of a queue here.
    pub fn count(&self, queue: &QueueName) -> u64 {
        self.queues.get(queue).map_or(0, |heads| heads.ready)
    }

    /// Whether to notify all waiting nodes at once: they were not lately.
    fn tells_all(&mut self, queue: &QueueName, now_us: u64) -> bool {
        let Some(heads) = self.queues.get_mut(queue) else { return false };
        let is_due = heads.all_told_us.is_none_or(|told_us| now_us >= told_us + ALL_TOLD_MS * 1_000);
        if is_due {
            heads.all_told_us = Some(now_us);
        }
        is_due
    }

    /// Number of calls that wait for tasks of a queue.
    pub fn credits(&self, queue: &QueueName, now_us: u64) -> u64 {
        let interest = self.interest.get(queue).into_iter().flat_map(BTreeMap::values);
        interest.filter(|interest| interest.until_us > now_us).map(|interest| u64::from(interest.credits)).sum()
    }
}

impl Node {
    /// The head of a queue among the partitions that can grant now.
    pub(crate) fn head(&self, queue: &QueueName) -> Option<Head> {
        if self.policy_of(queue).paused {
            return None;
        }
        let heads = self.claims.heads.queues.get(queue)?;
        // Tasks that may have been forgotten are neither granted nor announced.
        let granted = |(standing, partition): &&(Standing, PartitionId)| {
            self.may_grant(*partition) && !self.partitions[partition].may_be_a_ghost(&standing.id)
        };
        let (standing, _) = heads.heads.iter().find(granted)?;
        let priority = standing.priority(self.now.wall_ms);
        let count = self.rate_tokens(queue).unwrap_or(u64::MAX).min(self.claims.heads.count(queue));
        Some(Head { priority, id: standing.id, count, served_ms: standing.served_ms }).filter(|head| head.count > 0)
    }

    /// Whether there is ready work that is not granted for now.
    pub(crate) fn hides_work(&self, partition: PartitionId, queues: &[QueueName]) -> bool {
        let replica = &self.partitions[&partition];
        let keys = replica.knows_keys(&self.config);
        let ghost = |queue| {
            let head = replica.head(queue, keys, self.ageing_of(queue));
            head.is_some_and(|head| replica.may_be_a_ghost(&head.id))
        };
        let has_keys = |queue| replica.store.index().queue(queue).is_some_and(QueueIndex::has_keys);
        queues.iter().any(|queue| ghost(queue) || !keys && has_keys(queue))
    }

    /// Ready work of a partition changed: a leader publishes it, a follower checks that its leader is awake.
    pub(crate) fn publish_heads(&mut self, partition: PartitionId) {
        self.count_bodies(partition);
        self.report_changes(partition);
        self.note_moves(partition);
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let mut touched = replica.store.take_touched();
        for queue in &touched {
            self.follow_policy(partition, queue);
        }
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        if let Some(due_ms) = replica.store.index().first_due_ms() {
            let wait_ms = due_ms.saturating_sub(self.now.wall_ms).clamp(1, 1_000);
            self.timers.set_earliest(Key::Delayed(partition), self.now.mono_after_ms(wait_ms));
        }
        if replica.consensus.established() {
            if replica.learn_keys() {
                let queues = replica.store.index().queues().filter(|(_, index)| index.has_keys());
                touched.extend(queues.map(|(queue, _)| queue.clone()));
            }
            for queue in touched {
                self.settle_slot_quota(partition, &queue);
                self.publish_head(partition, &queue);
            }
        } else if !touched.is_empty() {
            self.watch_leader(partition, &touched);
        }
    }

    /// Reports what else has changed: what tasks came to wait for, and which ones the table has ended.
    fn report_changes(&mut self, partition: PartitionId) {
        let Some(replica) = self.partitions.get_mut(&partition) else { return };
        let (by, ids) = (replica.store.take_blocked(), replica.take_ended());
        if !by.is_empty() && replica.consensus.established() {
            self.signals.report(Signal::Blocked { partition, by });
        }
        if !ids.is_empty() {
            self.signals.report(Signal::EndedInTable { partition, ids });
        }
    }

    fn publish_head(&mut self, partition: PartitionId, queue: &QueueName) {
        let ageing_ms = self.ageing_of(queue);
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let keys = replica.knows_keys(&self.config);
        let count = replica.store.index().queue(queue).map_or(0, |index| index.ready_count(keys));
        let head = replica.head(queue, keys, ageing_ms).map(|standing| standing.by_now(self.now.wall_ms));
        let (shown, is_short) = self.shown(partition, queue, count);
        let after = head.filter(|_| shown > 0).map(|standing| (standing, shown));
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        let before = match after {
            Some(after) => replica.published.insert(queue.clone(), after),
            None => replica.published.remove(queue),
        };
        self.claims.heads.change(queue, partition, before, after);
        let gained = after.map_or(0, |(_, count)| count).saturating_sub(before.map_or(0, |(_, count)| count));
        if gained > 0 {
            self.tell_waiting(queue, gained);
        } else if is_short {
            // Nodes that already wait send no new request.
            self.ask_for_slot_quotas(queue);
        }
    }

    /// Publishes a queue's heads again, as its settings have changed and another task may be first.
    pub(crate) fn publish_again(&mut self, queue: &QueueName) {
        let led = self.led.iter().copied().filter(|partition| self.partitions[partition].consensus.established());
        for partition in led.collect::<Vec<_>>() {
            self.publish_head(partition, queue);
        }
    }

    /// Publishes a queue's head, as a partition may grant more of it, or less.
    pub(crate) fn publish_queue(&mut self, partition: PartitionId, queue: &QueueName) {
        self.publish_head(partition, queue);
    }

    /// Publishes all heads at a new leader. Every replica keeps the index, so this looks at queues, not at tasks.
    pub(crate) fn publish_all_heads(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        assert!(replica.published.is_empty());
        replica.store.take_touched();
        let queues: Vec<QueueName> = replica.store.index().queues().map(|(queue, _)| queue.clone()).collect();
        for queue in queues {
            self.follow_policy(partition, &queue);
            self.publish_head(partition, &queue);
        }
    }

    /// Withdraws the heads of a leader that steps down.
    pub(crate) fn unpublish_heads(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        replica.store.end_fair_queues(None);
        for (queue, before) in std::mem::take(&mut replica.published) {
            self.claims.heads.change(&queue, partition, Some(before), None);
        }
    }

    /// A queue is not paused any more: notifies as many waiting calls as there are tasks.
    pub(crate) fn tell_all_waiting(&mut self, queue: &QueueName) {
        self.tell_waiting(queue, self.claims.heads.count(queue));
    }

    /// Notifies nodes of as many waiting calls as there are new tasks, in turn. With rate tokens, which are used up one by one, it notifies
    /// all waiting nodes: those whose turn it is may all be gone, and the next rate token may be far.
    pub(crate) fn tell_waiting(&mut self, queue: &QueueName, gained: u64) {
        let now_us = self.now.mono_us;
        let rate_tokens = self.rate_tokens(queue);
        if rate_tokens.is_some_and(|rate_tokens| rate_tokens < gained) || self.is_limited(queue) {
            self.seek(queue, 0);
        }
        let gained = gained.min(rate_tokens.unwrap_or(u64::MAX));
        let tells_all = rate_tokens.is_some() && gained > 0 && self.claims.heads.tells_all(queue, now_us);
        let Some(interest) = self.claims.heads.interest.get_mut(queue) else { return };
        let mut notified = BTreeSet::new();
        let gained = if tells_all { gained.max(interest.len() as u64) } else { gained };
        for _ in 0..gained {
            // Each node once before any is notified twice.
            let waits = |(_, interest): &(&NodeId, &mut Interest)| interest.credits > 0 && interest.until_us > now_us;
            let turn = self.claims.heads.turn;
            let mut waiting: Vec<(&NodeId, &mut Interest)> = interest.iter_mut().filter(waits).collect();
            let Some(place) = waiting.iter().position(|(node, _)| **node > turn).or((!waiting.is_empty()).then_some(0))
            else {
                break;
            };
            let (node, interest) = &mut waiting[place];
            interest.credits -= 1;
            self.claims.heads.turn = **node;
            notified.insert(**node);
        }
        let head = self.head(queue);
        for node in notified {
            self.tell_head(node, queue, head);
        }
    }

    /// Announces a head to a node.
    fn tell_head(&mut self, node: NodeId, queue: &QueueName, head: Option<Head>) {
        self.outbox.send(node, Claiming::Available { queue: queue.clone(), head });
    }

    pub(crate) fn on_interest(&mut self, from: NodeId, queues: &[(QueueName, u32)]) {
        let until_us = self.now.mono_after_ms(self.config.sweep_interval_ms * 3);
        for (queue, credits) in queues {
            let interest = Interest { credits: *credits, until_us };
            self.claims.heads.interest.entry(queue.clone()).or_default().insert(from, interest);
            match self.head(queue) {
                Some(head) if *credits > 0 => {
                    self.tell_head(from, queue, Some(head));
                }
                Some(_) => {}
                // There may be a head that is not granted for now: once it is, that is news.
                None => {
                    if let Some(entry) = self.claims.heads.queues.get_mut(queue) {
                        entry.announced = None;
                    }
                }
            }
            if *credits > 0 {
                self.seek(queue, 0);
            }
        }
        self.timers.set_if_none(Key::Summaries, self.now.mono_after_ms(SUMMARIES_INTERVAL_MS));
    }

    /// Sends changed heads to interested nodes.
    pub(crate) fn tell_summaries(&mut self) {
        let now_us = self.now.mono_us;
        self.claims.heads.interest.retain(|_, nodes| {
            nodes.retain(|_, interest| interest.until_us > now_us);
            !nodes.is_empty()
        });
        let queues: Vec<QueueName> = self.claims.heads.interest.keys().cloned().collect();
        for queue in queues {
            let head = self.head(&queue);
            let entry = self.claims.heads.queues.entry(queue.clone()).or_default();
            if entry.announced == head {
                continue;
            }
            entry.announced = head;
            if mutant!(self.config, HeadsUntold) {
                continue;
            }
            let nodes: Vec<NodeId> = self.claims.heads.interest[&queue].keys().copied().collect();
            for node in nodes {
                self.tell_head(node, &queue, head);
            }
        }
        let interest = &self.claims.heads.interest;
        self.claims.heads.queues.retain(|queue, heads| !heads.heads.is_empty() || interest.contains_key(queue));
        if !self.claims.heads.interest.is_empty() {
            self.timers.set(Key::Summaries, self.now.mono_after_ms(SUMMARIES_INTERVAL_MS));
        }
    }

    /// A follower has work in a partition about which its leader was silent. Most likely the leader has it, too, and is about to grant
    /// it: it is asked only if it stays silent.
    fn watch_leader(&mut self, partition: PartitionId, queues: &BTreeSet<QueueName>) {
        if self.partitions[&partition].consensus.leader.is_none() || !self.is_quiet(partition) {
            return;
        }
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        let index = replica.store.index();
        let has_work = |queue: &&QueueName| index.queue(queue).is_some_and(|index| index.ready().next().is_some());
        let room = WAKE_IDS_MAX.saturating_sub(replica.unheard.len());
        let unheard: Vec<QueueName> = queues.iter().filter(has_work).take(room).cloned().collect();
        replica.unheard.extend(unheard);
        if !replica.unheard.is_empty() {
            self.timers.set_if_none(Key::Quiet(partition), self.now.mono_after_ms(self.config.heartbeat_ms));
        }
    }

    /// Whether nothing was heard of a partition's leader for a while, nor was it asked.
    fn is_quiet(&self, partition: PartitionId) -> bool {
        let replica = &self.partitions[&partition];
        self.now.mono_us >= replica.consensus.heard_us.max(replica.woke_us) + QUIET_MS * 1_000
    }

    /// A follower asks a leader that stays silent about ready work whether it still leads.
    pub(crate) fn wake_leader(&mut self, partition: PartitionId) {
        let quiet = self.is_quiet(partition);
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let unheard = std::mem::take(&mut replica.unheard);
        let Some(leader) = replica.consensus.leader.filter(|_| quiet && replica.consensus.leading().is_none()) else {
            return;
        };
        let queues = unheard.iter().filter_map(|queue| replica.store.index().queue(queue));
        let ids: Vec<TaskId> = queues.flat_map(|index| index.ready().map(|(_, id)| *id)).take(WAKE_IDS_MAX).collect();
        if ids.is_empty() {
            return;
        }
        replica.woke_us = self.now.mono_us;
        self.outbox.send(leader.node, Claiming::Wake { partition, epoch: leader.epoch, ids });
        self.timers.set(Key::Wake(partition), self.now.mono_after_ms(self.config.election_timeout_ms));
    }

    pub(crate) fn on_wake_message(&mut self, from: NodeId, partition: PartitionId, epoch: u64, ids: Vec<TaskId>) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let leads = replica.consensus.leading().is_some_and(|leading| leading.epoch >= epoch);
        let unknown: Vec<TaskId> = ids.into_iter().filter(|id| replica.store.lacks_spec(id)).collect();
        self.outbox.send(from, Claiming::Led { partition, epoch, leads });
        if leads && !unknown.is_empty() {
            self.outbox.observe(Observation::Woken { partition: partition.0 });
            self.outbox.send(from, AntiEntropy::Need { partition, ids: unknown });
        }
    }

    pub(crate) fn on_led(&mut self, from: NodeId, partition: PartitionId, epoch: u64, leads: bool) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let current = replica.consensus.leader.is_some_and(|leader| (leader.node, leader.epoch) == (from, epoch));
        if !current {
            return;
        }
        self.timers.cancel(Key::Wake(partition));
        if !leads {
            self.lose_leader(partition);
        }
    }

    /// The leader did not confirm that it leads.
    pub(crate) fn on_wake_unanswered(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        let silent = self.now.mono_us >= consensus.heard_us + QUIET_MS * 1_000;
        if consensus.leader.is_some() && consensus.leading().is_none() && silent {
            self.lose_leader(partition);
        }
    }
}
