//! Questions of brokers for grants: those under way, and what was answered to the latest.

use super::voids::Voids;
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
    /// Tasks that an earlier answer to this question had as well.
    pub repeated: BTreeSet<TaskId>,
}

/// What was told in answer to a question. The answer may be lost, and then it is asked again.
#[derive(Debug, Default)]
struct Given {
    /// Where the call may hold something: tasks of the answer, or such as it did not tell. By the time at which it is asked again, these
    /// partitions may be another node's.
    partitions: BTreeSet<PartitionId>,
    /// Operations that made grants for this very question, all of which were told. A repeat is answered with these grants as they were:
    /// renewed, they could not be given back.
    made: BTreeSet<(PartitionId, Viewstamp)>,
}

/// Questions under way.
#[derive(Debug, Default)]
pub struct Grants {
    pub(super) next: u64,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) by_ask: BTreeMap<(NodeId, u64), u64>,
    given: BTreeMap<NodeId, BTreeMap<u64, Given>>,
    pub(super) voids: Voids,
}

impl Grants {
    /// Partitions in which an earlier answer to a question says, or leaves open, that the call holds something.
    pub(super) fn given(&self, from: NodeId, ask: u64) -> BTreeSet<PartitionId> {
        self.known(from, ask).map(|given| given.partitions.clone()).unwrap_or_default()
    }

    /// Operations that made the grants of an earlier answer to a question.
    pub(super) fn made(&self, from: NodeId, ask: u64) -> BTreeSet<(PartitionId, Viewstamp)> {
        self.known(from, ask).map(|given| given.made.clone()).unwrap_or_default()
    }

    fn known(&self, from: NodeId, ask: u64) -> Option<&Given> {
        self.given.get(&from)?.get(&ask)
    }

    pub(super) fn remember(
        &mut self,
        (from, ask): (NodeId, u64),
        partitions: BTreeSet<PartitionId>,
        made: BTreeSet<(PartitionId, Viewstamp)>,
    ) {
        if partitions.is_empty() {
            return;
        }
        let of_node = self.given.entry(from).or_default();
        let given = of_node.entry(ask).or_default();
        given.partitions.extend(partitions);
        given.made.extend(made);
        if of_node.len() > GIVEN_MAX {
            of_node.pop_first();
        }
    }

    /// Nodes that are gone ask nothing again.
    pub(in crate::protocol) fn forget_given(&mut self, is_there: impl Fn(NodeId) -> bool) {
        self.given.retain(|node, _| is_there(*node));
    }
}
