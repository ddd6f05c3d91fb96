//! Questions (grant requests) of brokers: those in progress, and the latest answers.

use super::expiry::Unconfirmed;
use super::voids::Voids;
use crate::Node;
use crate::claims::broker::Grant;
use norn_model::message::Claiming;
use norn_model::task::Part;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{ClaimId, Granted, NodeId, PartitionId, QueueName, Spec, TaskId};
use serde_bytes::ByteBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long an answer to a node is remembered, by counted time: far longer than until the node repeats the question. Time in which it
/// asks nothing hardly counts, as it may be cut off...
const GIVEN_MS: u64 = 10_000;
/// ...between two answers at most this counts...
const PAUSE_MS_MAX: u64 = 100;
/// ...but a node that was not answered for this long is forgotten...
const GIVEN_SILENT_MS: u64 = 300_000;
/// ...and of each node at most this many answers and grants are remembered...
const GIVEN_MAX: usize = 50_000;
/// ...and of all nodes together this many: the latest.
const GIVEN_ALL_MAX: usize = 200_000;

/// A broker's question, while its grants commit.
#[derive(Debug)]
pub(super) struct Session {
    pub to: NodeId,
    pub request_id: u64,
    pub claim: ClaimId,
    pub queues: Vec<QueueName>,
    /// Tasks of the answer, without payload and headers.
    pub tasks: Vec<Tellable>,
    pub bodies: BTreeMap<TaskId, Arc<Spec>>,
    /// Log entries that were not in memory.
    pub entries: BTreeMap<Part, ByteBuf>,
    /// Entries that were requested from the log.
    pub asked: BTreeSet<Part>,
    /// Number of operations that have not committed and loads that have not ended.
    pub pending: usize,
    pub partitions: BTreeSet<PartitionId>,
    /// Whether the question asks for no new grants.
    pub recall: bool,
    /// Partitions in which the call may hold grants that the answer does not name.
    pub unsure: BTreeSet<PartitionId>,
    /// Tasks that an earlier answer to this question had as well.
    pub repeated: BTreeSet<TaskId>,
    /// Grants that were made for the question and that the answer does not name: this leader does not know whether they are committed,
    /// or has voided them. A successor may know of the grant alone, without the void.
    pub unreported: Vec<Grant>,
}

/// A task for an answer.
#[derive(Debug)]
pub(super) struct Tellable {
    pub granted: Granted,
    /// Where it was granted, if for this question.
    pub fresh: Option<Viewstamp>,
    /// Places in its log of what was not in memory.
    pub gaps: Vec<(usize, Part)>,
}

/// Remembered answer to a question. It may be lost, and then the broker asks again.
#[derive(Debug, Default)]
struct Given {
    /// Partitions in which the call may hold something: tasks of the answer, or such as it did not name. By the time of a repeat these
    /// partitions may have another leader.
    partitions: BTreeSet<PartitionId>,
    /// Grants that were made for this very question, and named in the answer. A repeat is answered with these as they were: once
    /// renewed, they could not be given back.
    made: Vec<Grant>,
    /// When it was answered last, in counted time.
    at_us: u64,
    /// When it was answered last, by the monotonic clock.
    told_us: u64,
}

/// Answers to one node, by question.
#[derive(Debug, Default)]
struct Answers {
    by_request_id: BTreeMap<u64, Given>,
    /// Number of questions and of grants that were made for them.
    size: usize,
    /// When the node was answered last, and how much counted time had passed by then.
    last_us: u64,
    counted_us: u64,
}

impl Answers {
    fn add(&mut self, request_id: u64, partitions: BTreeSet<PartitionId>, made: Vec<Grant>, now_us: u64) {
        self.counted_us += now_us.saturating_sub(self.last_us).min(PAUSE_MS_MAX * 1_000);
        self.last_us = now_us;
        let before = self.by_request_id.len();
        let given = self.by_request_id.entry(request_id).or_default();
        given.partitions.extend(partitions);
        (given.at_us, given.told_us) = (self.counted_us, now_us);
        if given.made.is_empty() {
            // Nothing is made for a repeat.
            self.size += made.len();
            given.made = made;
        }
        self.size += self.by_request_id.len() - before;
        assert!(self.size >= self.by_request_id.len(), "an answer is not counted");
        let oldest_us = self.counted_us.saturating_sub(GIVEN_MS * 1_000);
        let is_over = |given: &Given, size: usize| size > GIVEN_MAX || given.at_us < oldest_us;
        while self.by_request_id.first_key_value().is_some_and(|(_, first)| is_over(first, self.size)) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, first)) = self.by_request_id.pop_first() {
            assert!(self.size > first.made.len(), "more is forgotten than was counted");
            self.size -= 1 + first.made.len();
        }
    }

    /// When the first of the node's remembered questions was answered.
    fn first_us(&self) -> Option<u64> {
        self.by_request_id.first_key_value().map(|(_, first)| first.told_us)
    }
}

/// Questions in progress and remembered answers.
#[derive(Debug, Default)]
pub struct Grants {
    pub(super) next: u64,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) by_request_id: BTreeMap<(NodeId, u64), u64>,
    given: BTreeMap<NodeId, Answers>,
    /// Sum of the sizes of `given`.
    size: usize,
    pub(super) voids: Voids,
    pub(super) unconfirmed: Unconfirmed,
}

impl Grants {
    /// Forgets what only the leader of the partition keeps.
    pub fn step_down(&mut self, partition: PartitionId) {
        self.voids.step_down(partition);
    }

    /// Whether a question is in progress.
    pub fn is_under_way(&self, session: u64) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Partitions in which the call holds something, or may hold it, by an earlier answer to a question.
    pub(super) fn given(&self, from: NodeId, request_id: u64) -> BTreeSet<PartitionId> {
        self.known(from, request_id).map(|given| given.partitions.clone()).unwrap_or_default()
    }

    /// Grants that were made for a question, and named in an earlier answer to it.
    pub(super) fn made(&self, from: NodeId, request_id: u64) -> BTreeSet<Grant> {
        self.known(from, request_id).map(|given| given.made.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether a question was answered before, even with nothing.
    pub(super) fn is_answered(&self, from: NodeId, request_id: u64) -> bool {
        self.known(from, request_id).is_some()
    }

    fn known(&self, from: NodeId, request_id: u64) -> Option<&Given> {
        self.given.get(&from)?.by_request_id.get(&request_id)
    }

    pub(super) fn remember(
        &mut self,
        (from, request_id): (NodeId, u64),
        partitions: BTreeSet<PartitionId>,
        made: Vec<Grant>,
        now_us: u64,
    ) {
        let answers = self.given.entry(from).or_default();
        let before = answers.size;
        assert!(self.size >= before, "the answers to one node are more than those to all");
        answers.add(request_id, partitions, made, now_us);
        self.size = self.size - before + answers.size;
        while self.size > GIVEN_ALL_MAX {
            let first =
                self.given.values_mut().filter(|answers| answers.size > 0).min_by_key(|answers| answers.first_us());
            let Some(answers) = first else { return };
            let before = answers.size;
            answers.forget_first();
            self.size -= before - answers.size;
        }
    }

    /// Takes out the grants that were made for a question. It gets no new grants any more.
    fn give_up(&mut self, (from, request_id): (NodeId, u64), now_us: u64) -> Vec<Grant> {
        self.remember((from, request_id), BTreeSet::new(), Vec::new(), now_us);
        let Some(answers) = self.given.get_mut(&from) else { return Vec::new() };
        let made =
            answers.by_request_id.get_mut(&request_id).map(|given| std::mem::take(&mut given.made)).unwrap_or_default();
        assert!(answers.size >= made.len(), "grants are taken out that were not counted");
        answers.size -= made.len();
        self.size -= made.len();
        made
    }

    /// Forgets nodes that are gone, and inquiries about expired claims that were given up.
    pub(crate) fn forget_given(&mut self, is_there: impl Fn(NodeId) -> bool, now_us: u64) {
        self.unconfirmed.sweep(now_us);
        let oldest_us = now_us.saturating_sub(GIVEN_SILENT_MS * 1_000);
        self.given.retain(|node, answers| is_there(*node) && answers.last_us >= oldest_us);
        self.size = self.given.values().map(|answers| answers.size).sum();
    }
}

impl Node {
    /// A broker gives a question up: it has handed no grant of it to a client, nor will it. The present leaders void these grants,
    /// unless they were renewed since, as every grant was that another broker has found.
    pub(super) fn take_question_back(&mut self, (from, request_id): (NodeId, u64), claim: ClaimId) {
        let made = self.claims.grants.give_up((from, request_id), self.now.mono_us);
        let (tasks, heads, partitions) = (Vec::new(), Vec::new(), Vec::new());
        self.outbox.send(from, Claiming::GrantAnswer { request_id, claim, tasks, heads, partitions });
        self.give_back_grants(made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use norn_wire::Token;

    const NODE: NodeId = NodeId(1);

    fn grant(number: u64) -> Grant {
        (TaskId::MIN, Token { epoch: 1, number }, Viewstamp { epoch: 1, length: number })
    }

    fn tell(grants: &mut Grants, request_id: u64, tasks: u64, at_ms: u64) {
        tell_to(grants, (NODE, request_id), tasks, at_ms);
    }

    fn tell_to(grants: &mut Grants, question: (NodeId, u64), tasks: u64, at_ms: u64) {
        let made = (0..tasks).map(grant).collect();
        grants.remember(question, [PartitionId(0)].into(), made, at_ms * 1_000);
    }

    /// Goal: a broker that was cut off finds its last answer, however much it asks after that.
    #[test]
    fn answers_are_remembered_while_a_broker_asks_nothing() {
        let mut grants = Grants::default();
        tell(&mut grants, 1, 1, 1_000);
        (2..1_000).for_each(|request_id| tell(&mut grants, request_id, 1, 200_000 + request_id));
        assert!(grants.made(NODE, 1).contains(&grant(0)));
        (0..200).for_each(|number| tell(&mut grants, 1_000 + number, 1, 210_000 + number * 100));
        assert_eq!((grants.made(NODE, 1).len(), grants.made(NODE, 1_100).len()), (0, 1));
        grants.forget_given(|_| true, 240_000_000);
        assert_eq!(grants.made(NODE, 1_199).len(), 1);
        grants.forget_given(|_| true, 600_000_000);
        assert!(grants.given.is_empty());
    }

    #[test]
    fn of_many_answers_the_latest_are_remembered() {
        let mut grants = Grants::default();
        (0..2 * GIVEN_MAX as u64 / 1_000).for_each(|request_id| tell(&mut grants, request_id, 1_000, 1));
        let answers = &grants.given[&NODE];
        let size: usize = answers.by_request_id.values().map(|given| 1 + given.made.len()).sum();
        assert!(answers.size == size && (GIVEN_MAX - 1_000..=GIVEN_MAX).contains(&size), "{size}");
        assert_eq!((grants.made(NODE, 0).len(), grants.made(NODE, 99).len()), (0, 1_000));
    }
    /// Goal: many brokers take no more memory than a few, and the latest answers stay.
    #[test]
    fn of_many_brokers_the_latest_answers_are_remembered() {
        let mut grants = Grants::default();
        for request_id in 0..40 {
            (1..=10).for_each(|node| tell_to(&mut grants, (NodeId(node), request_id), 1_000, request_id));
        }
        let size: usize =
            grants.given.values().flat_map(|answers| answers.by_request_id.values()).map(|g| 1 + g.made.len()).sum();
        assert!(grants.size == size && (GIVEN_ALL_MAX - 1_001..=GIVEN_ALL_MAX).contains(&size), "{size}");
        for node in 1..=10 {
            assert_eq!((grants.made(NodeId(node), 19).len(), grants.made(NodeId(node), 39).len()), (0, 1_000));
        }
        grants.give_up((NodeId(1), 39), 40_000);
        assert_eq!(grants.size, size - 1_000);
        grants.forget_given(|node| node != NodeId(2), 40_000);
        assert_eq!(grants.size, grants.given.values().map(|answers| answers.size).sum::<usize>());
    }
}
