//! Grants that a call may have and nobody has told of: the answer was lost with the node that asked for them, or with the one that
//! gave them. Whoever leads their partitions knows of them by the call's id, and is asked before anything else is asked for.
//!
//! A leader that is gone has a successor soon, which is waited for; not for long, as its partition may have lost its majority.

use super::Phase;
use crate::protocol::Node;
use crate::protocol::timers::Key;
use norn_client::wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

/// Leaders are waited for so long. Clients wait longer for an answer.
const LEADERS_MS: u64 = 1_500;
/// Between two looks for them.
const LOOK_MS: u64 = 25;

/// What is left to ask about.
#[derive(Debug, Default)]
pub(super) struct Recall {
    /// Partitions in which the call may hold tasks.
    open: BTreeSet<PartitionId>,
    /// Those that the node which is being asked leads.
    asked: BTreeSet<PartitionId>,
    /// Until then their leaders are waited for.
    until_us: u64,
}

impl Node {
    /// What a call may hold that was made before: anything.
    pub(super) fn recall_of_repeated(&self) -> Recall {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions as u16);
        let open = (0..partitions).map(PartitionId).collect();
        Recall { open, asked: BTreeSet::new(), until_us: self.now.mono_after_ms(LEADERS_MS) }
    }

    /// A node that was asked for grants is gone, and may have given some.
    pub(super) fn recall_from_gone(&mut self, number: u64, node: NodeId) {
        let led: Vec<PartitionId> =
            self.peers.get(&node).map(|peer| peer.leads.keys().copied().collect()).unwrap_or_default();
        let until_us = self.now.mono_after_ms(LEADERS_MS);
        let Some(call) = self.broker.calls.get_mut(&number) else { return };
        if !led.is_empty() && call.recall.open.is_empty() {
            call.recall.until_us = until_us;
        }
        call.recall.open.extend(led);
    }

    /// Asks the next leader what the call holds already, or waits for one. Whether there is anything left to ask.
    pub(super) fn recall_next(&mut self, number: u64) -> bool {
        let call = &self.broker.calls[&number];
        if call.recall.open.is_empty() {
            return false;
        }
        let leader = |partition: &PartitionId| self.leader_of(*partition).filter(|node| self.is_reachable(*node));
        // A node that knows no sessions has granted nothing under one.
        let knows = |partition: &PartitionId| leader(partition).is_none_or(|it| self.knows_sessions(&call.claim, it));
        let open: BTreeSet<PartitionId> = call.recall.open.iter().copied().filter(knows).collect();
        let node = open.iter().find_map(leader);
        let asked = open.iter().copied().filter(|partition| node.is_some() && leader(partition) == node).collect();
        let waits = !open.is_empty() && self.now.mono_us < call.recall.until_us;
        let look_us = self.now.mono_after_ms(LOOK_MS);
        let call = self.broker.calls.get_mut(&number).expect("just seen");
        (call.recall.open, call.recall.asked) = (open, asked);
        match node {
            Some(node) => self.ask_for_grants(number, node, true),
            None if waits => {
                call.phase = Phase::Pausing;
                self.timers.set(Key::Claim(number), look_us);
            }
            None => {
                call.recall.open.clear();
                return false;
            }
        }
        true
    }

    /// A leader has told what the call holds in its partitions.
    pub(super) fn recalled(&mut self, number: u64, from: NodeId) {
        let Some(call) = self.broker.calls.get_mut(&number) else { return };
        let asked = std::mem::take(&mut call.recall.asked);
        let told: Vec<PartitionId> =
            asked.into_iter().filter(|partition| self.leader_of(*partition) == Some(from)).collect();
        if let Some(call) = self.broker.calls.get_mut(&number) {
            call.recall.open.retain(|partition| !told.contains(partition));
        }
    }
}
