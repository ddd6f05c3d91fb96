//! Questions of brokers for grants: those under way, and what was answered to the latest.

use crate::protocol::consistent::Viewstamp;
use norn_client::wire::{ClaimId, Granted, NodeId, PartitionId, QueueName, Spec, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Answers to each node that are remembered.
const GIVEN_MAX: usize = 1_000;

/// One broker's question, while its grants commit.
#[derive(Debug)]
pub(super) struct Session {
    pub to: NodeId,
    pub ask: u64,
    pub claim: ClaimId,
    pub queues: Vec<QueueName>,
    /// Without payload and headers.
    pub tasks: Vec<(Granted, Option<Viewstamp>)>,
    pub bodies: BTreeMap<TaskId, Arc<Spec>>,
    /// Operations that have not committed, and loads that have not ended.
    pub pending: usize,
    pub partitions: BTreeSet<PartitionId>,
    /// It asks for nothing new.
    pub recall: bool,
    /// Where the call may hold what it will not be told.
    pub unsure: BTreeSet<PartitionId>,
}

/// Questions under way.
#[derive(Debug, Default)]
pub struct Grants {
    pub(super) next: u64,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) by_ask: BTreeMap<(NodeId, u64), u64>,
    /// Where the tasks are that were given in answer to a question. The answer may be lost, and the partition another node's by the
    /// time at which it is asked again.
    given: BTreeMap<NodeId, BTreeMap<u64, BTreeSet<PartitionId>>>,
}

impl Grants {
    /// Partitions of the tasks that an earlier answer to a question had.
    pub(super) fn given(&self, from: NodeId, ask: u64) -> impl Iterator<Item = PartitionId> {
        self.given.get(&from).and_then(|given| given.get(&ask)).into_iter().flatten().copied()
    }

    pub(super) fn remember(&mut self, from: NodeId, ask: u64, partitions: BTreeSet<PartitionId>) {
        let given = self.given.entry(from).or_default();
        given.insert(ask, partitions);
        if given.len() > GIVEN_MAX {
            given.pop_first();
        }
    }
}
