//! Grants that a call may have and that no answer has named: the answer was lost with the node that asked for them, or the node that
//! made them is gone, has restarted, or could not tell whether they would commit. The leaders of their partitions find them by the
//! call's id, and are asked before the call asks for anything else.
//!
//! A partition whose leader is gone has a new one soon, and the call waits for it; not for long, as the partition may have lost its
//! majority. A call that waits for work asks a new leader within a second. If none has come, the answer says that something is left
//! ([`Response::Claimed`](norn_wire::Response)), and the client leaves the grants that were not named.

use super::Phase;
use crate::Node;
use crate::context::timers::Key;
use norn_wire::{NodeId, PartitionId};
use std::collections::{BTreeMap, BTreeSet};

/// A call begins no round later than this.
const RECALL_MS: u64 = 1_500;
/// Pause between two rounds.
const ROUND_MS: u64 = 50;
/// How often a call that waits for work looks for leaders of partitions that it missed.
const LOOK_MS: u64 = 1_000;

/// What is left to ask the leaders about.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// Partitions in which the call may hold tasks.
    open: BTreeSet<PartitionId>,
    /// Those of them for which a leader said so, or that were missed before.
    doubted: BTreeSet<PartitionId>,
    /// Nodes that were asked in this round.
    asked: BTreeSet<NodeId>,
    /// When to go on without; 0: the first round has not begun.
    until_us: u64,
    /// Partitions without an answer in time, and their presumed leaders.
    missed: BTreeMap<PartitionId, Option<NodeId>>,
}

impl Recall {
    /// Whether any partition is left to ask about.
    pub fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the call may hold more in a partition than its answers named.
    pub fn may_find_in(&self, partition: PartitionId) -> bool {
        self.open.contains(&partition) || self.missed.contains_key(&partition)
    }

    /// Number of partitions in which the call may hold more than its answers named. A call that has as many tasks as it asked for was
    /// not granted more, except in doubted partitions.
    pub fn left(&self, has_all: bool) -> usize {
        let open = if has_all { &self.doubted } else { &self.open };
        open.len() + self.missed.keys().filter(|partition| !open.contains(partition)).count()
    }

    /// State after another lost question, which may have been granted something anywhere. If an earlier question may have been lost
    /// too, both together may have been granted more than the call asked for. Then no partition is cleared when the call has all that
    /// it asked for.
    fn again(&self, all: Recall) -> Recall {
        let is_second = !self.doubted.is_empty() || !self.missed.is_empty();
        Recall { doubted: if is_second { all.open.clone() } else { BTreeSet::new() }, ..all }
    }

    fn doubt(&mut self, partitions: &[PartitionId]) {
        self.open.extend(partitions);
        self.doubted.extend(partitions);
    }
}

impl Node {
    /// Recall for a call that was made before, or whose question is lost: it may hold anything.
    pub(super) fn recall_all(&self) -> Recall {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions as u16);
        Recall { open: (0..partitions).map(PartitionId).collect(), ..Recall::default() }
    }

    /// Adds partitions in which a call may hold more than its answers named.
    pub(super) fn recall_also(&mut self, number: u64, partitions: &[PartitionId]) {
        if let Some(call) = self.claims.broker.calls.get_mut(&number) {
            call.recall.doubt(partitions);
        }
    }

    /// A node has restarted, and has lost the questions that it was asked.
    pub(crate) fn recall_from_former(&mut self, node: NodeId) {
        let recall = self.recall_all();
        for (number, call) in &mut self.claims.broker.calls {
            if matches!(&call.phase, Phase::Asking { node: asked, recall: false, .. } if *asked == node) {
                call.recall.open.clone_from(&recall.open);
                self.timers.set(Key::Claim(*number), self.now.mono_us);
            }
        }
    }

    /// Gives up a question: the node that was asked is gone or has restarted, and may have granted something.
    pub(super) fn do_without(&mut self, number: u64, node: NodeId, recall: bool) {
        let all = self.recall_all();
        let Some(call) = self.claims.broker.calls.get_mut(&number) else { return };
        call.phase = Phase::Idle;
        if !recall {
            call.tried.insert(node);
            call.recall = call.recall.again(all);
        }
    }

    /// Partitions that were missed and have another leader now.
    fn led_since(&self, number: u64) -> impl Iterator<Item = PartitionId> {
        let has_another = move |(partition, before): &(&PartitionId, &Option<NodeId>)| {
            self.leader_of(**partition).is_some_and(|leader| Some(leader) != **before && self.is_reachable(leader))
        };
        self.claims.broker.calls[&number].recall.missed.iter().filter(has_another).map(|(partition, _)| *partition)
    }

    /// Whether a call goes on waiting for work: time is left, and no partition that it missed has another leader.
    pub(super) fn waits_on(&self, number: u64) -> bool {
        let until_us = self.claims.broker.calls.get(&number).map_or(0, |call| call.wait_until_us);
        self.now.mono_us < until_us && self.led_since(number).next().is_none()
    }

    /// No message tells a waiting call about a new leader of a partition that it missed, so it looks for one.
    pub(super) fn set_park_timer(&mut self, number: u64) {
        let (call, look_us) = (&self.claims.broker.calls[&number], self.now.mono_after_ms(LOOK_MS));
        let look_us = if call.recall.missed.is_empty() { u64::MAX } else { look_us };
        self.timers.set(Key::Park(number), call.wait_until_us.min(look_us));
    }

    /// Partitions that were missed are asked about once they have another leader.
    fn recall_missed(&mut self, number: u64) {
        let led: Vec<PartitionId> = self.led_since(number).collect();
        let recall = &mut self.claims.broker.calls.get_mut(&number).expect("just seen").recall;
        recall.missed.retain(|partition, _| !led.contains(partition));
        recall.doubt(&led);
    }

    /// Asks the next leader for grants that the call already holds, or waits for a leader. Returns whether anything is left to ask.
    pub(super) fn recall_next(&mut self, number: u64) -> bool {
        self.recall_missed(number);
        let (now_us, until_us) = (self.now.mono_us, self.now.mono_after_ms(RECALL_MS));
        // Part of the time is kept for new grants.
        let rest_us = self.config.request_timeout_ms * 1_000 / 4;
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        if call.recall.until_us == 0 {
            call.recall.until_us = until_us.min(call.deadline_us.saturating_sub(rest_us));
        }
        if call.recall.open.is_empty() || now_us >= call.recall.until_us {
            let Recall { open, mut missed, .. } = std::mem::take(&mut call.recall);
            missed.extend(open.into_iter().map(|partition| (partition, self.leader_of(partition))));
            self.claims.broker.calls.get_mut(&number).expect("just seen").recall.missed = missed;
            return false;
        }
        let call = &self.claims.broker.calls[&number];
        let is_next = |node: &NodeId| self.is_reachable(*node) && !call.recall.asked.contains(node);
        let next = call.recall.open.iter().find_map(|partition| self.leader_of(*partition).filter(is_next));
        let call = self.claims.broker.calls.get_mut(&number).expect("just seen");
        if let Some(node) = next {
            call.recall.asked.insert(node);
            self.ask_for_grants(number, node, true);
        } else {
            call.recall.asked.clear();
            call.phase = Phase::Pausing;
            self.timers.set(Key::Claim(number), self.now.mono_after_ms(ROUND_MS));
        }
        true
    }

    /// A leader has named all that the call holds in these partitions.
    pub(super) fn recalled(&mut self, number: u64, from: NodeId, told: &[PartitionId]) {
        let Some(call) = self.claims.broker.calls.get_mut(&number) else { return };
        let mut open = std::mem::take(&mut call.recall.open);
        open.retain(|partition| !told.contains(partition));
        // It leads these too, and could not name all of theirs.
        let unreported: Vec<PartitionId> =
            open.iter().filter(|partition| self.leader_of(**partition) == Some(from)).copied().collect();
        if let Some(call) = self.claims.broker.calls.get_mut(&number) {
            call.recall.doubted.retain(|partition| open.contains(partition));
            call.recall.doubted.extend(unreported);
            call.recall.open = open;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Recall;
    use norn_wire::PartitionId;

    /// Goal: a call that has all that it asked for may hold more only where more than one of its questions was granted something.
    #[test]
    fn a_call_that_lost_two_questions_may_hold_more_than_it_asked_for() {
        let all = || Recall { open: (0..4).map(PartitionId).collect(), ..Recall::default() };
        let once = Recall::default().again(all());
        assert_eq!((once.left(true), once.left(false)), (0, 4));
        let missed = Recall { missed: [(PartitionId(2), None)].into(), ..Recall::default() };
        assert_eq!(missed.again(all()).left(true), 4);
        let doubted = Recall { doubted: [PartitionId(2)].into(), ..all() };
        assert_eq!(doubted.again(all()).left(true), 4);
    }
}
