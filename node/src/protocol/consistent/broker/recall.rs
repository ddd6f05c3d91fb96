//! Grants that a call may have and nobody has told of: the answer was lost with the node that asked for them, or the one that gave
//! them is gone, or leads their partition no more. Whoever leads it then knows of them by the call's id, and is asked before anything
//! else is asked for.
//!
//! A leader that is gone has a successor soon, which is waited for; not for long, as its partition may have lost its majority.

use super::Phase;
use crate::protocol::Node;
use crate::protocol::timers::Key;
use norn_client::wire::{NodeId, PartitionId};
use std::collections::BTreeSet;

/// The next leaders are waited for so long, and so are their answers. Clients wait longer.
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
    /// Until then something is waited for; 0: nothing is yet.
    until_us: u64,
}

impl Recall {
    /// An answer that does not come is done without.
    fn give_up_asked(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.open.retain(|partition| !asked.contains(partition));
    }

    /// Whether an answer has been waited for long enough.
    pub fn is_over(&self, now_us: u64) -> bool {
        now_us >= self.until_us
    }
}

impl Node {
    /// What a call may hold that was made before: anything.
    pub(super) fn recall_of_repeated(&self) -> Recall {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions as u16);
        Recall { open: (0..partitions).map(PartitionId).collect(), ..Recall::default() }
    }

    /// A node that was asked is gone, and may have given something; or it does not tell what it gave.
    pub(super) fn do_without(&mut self, number: u64, node: NodeId, recall: bool) {
        let gone = !self.is_reachable(node);
        let Some(call) = self.broker.calls.get_mut(&number) else { return };
        call.phase = Phase::Idle;
        if recall {
            call.recall.give_up_asked();
        } else {
            call.tried.insert(node);
        }
        if let Some(peer) = self.peers.get(&node).filter(|_| gone) {
            call.recall.open.extend(peer.leads.keys());
            call.recall.until_us = 0;
        }
    }

    /// A node leads some partitions no more, or in another epoch. What it was about to grant there it does not answer with, and its
    /// successor may have it.
    pub(in crate::protocol) fn recall_from_former(&mut self, node: NodeId, partitions: &[PartitionId]) {
        let asks = |phase: &Phase| matches!(phase, Phase::Asking { node: asked, .. } if *asked == node);
        for call in self.broker.calls.values_mut().filter(|call| asks(&call.phase)) {
            call.recall.open.extend(partitions);
        }
    }

    /// Asks the next leader what the call holds already, or waits for one. Whether there is anything left to ask.
    pub(super) fn recall_next(&mut self, number: u64) -> bool {
        let call = self.broker.calls.get_mut(&number).expect("under way");
        if call.recall.open.is_empty() {
            call.recall.until_us = 0;
            return false;
        }
        let until_us = self.now.mono_after_ms(LEADERS_MS);
        if call.recall.until_us == 0 {
            call.recall.until_us = until_us;
        }
        let call = &self.broker.calls[&number];
        let leader = |partition: &PartitionId| self.leader_of(*partition).filter(|node| self.is_reachable(*node));
        // A node that knows no sessions has granted nothing under one.
        let knows = |partition: &PartitionId| leader(partition).is_none_or(|it| self.knows_sessions(&call.claim, it));
        let open: BTreeSet<PartitionId> = call.recall.open.iter().copied().filter(knows).collect();
        let node = open.iter().find_map(leader);
        let asked = open.iter().copied().filter(|partition| node.is_some() && leader(partition) == node).collect();
        let waits = !open.is_empty() && !call.recall.is_over(self.now.mono_us);
        let look_us = self.now.mono_after_ms(LOOK_MS);
        let call = self.broker.calls.get_mut(&number).expect("just seen");
        (call.recall.open, call.recall.asked) = (open, asked);
        match node {
            Some(node) => {
                call.recall.until_us = until_us;
                self.ask_for_grants(number, node, true);
            }
            None if waits => {
                call.phase = Phase::Pausing;
                self.timers.set(Key::Claim(number), look_us);
            }
            None => {
                call.recall = Recall::default();
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
