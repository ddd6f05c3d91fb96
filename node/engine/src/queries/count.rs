//! Counts by queue and state. Every replica keeps them; where a majority of a partition's trees agree, the count of one is
//! the count of all.

use crate::Node;
use crate::context::signals::{Signal, Total};
use crate::event::ClientId;
use crate::write_read::PendingRequest;
use norn_model::cohort::Cohort;
use norn_model::message::{PartitionCounts, Query, StateCounts};
use norn_model::replica::index::Class;
use norn_wire::error::Error;
use norn_wire::response::QueueCounts;
use norn_wire::{NodeId, PartitionId, QueueName, Response, State};
use std::collections::BTreeMap;

/// Rounds with trees that differ before the fullest replica is believed.
const ROUNDS_MAX: u32 = 4;

/// The form of the answer.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// One number.
    Count(Option<State>),
    /// A list of queues.
    Queues,
    /// The sums by state, within the status.
    Status,
}

/// A pending count.
#[derive(Debug)]
pub struct PendingCount {
    /// The waiting client.
    pub client: ClientId,
    number: u64,
    queue: Option<QueueName>,
    shape: Shape,
    /// Latest answers by partition and node.
    answers: BTreeMap<PartitionId, BTreeMap<NodeId, PartitionCounts>>,
    waiting: std::collections::BTreeSet<NodeId>,
    rounds: u32,
    /// Time of giving up.
    pub deadline_us: u64,
}

/// The counts of one partition, if enough replicas agree on its tasks. The newest table decides which tasks are claimed.
fn agreed<'a>(
    answers: &'a BTreeMap<NodeId, PartitionCounts>,
    cohort: &Cohort,
    settle: bool,
) -> Option<&'a PartitionCounts> {
    let counts =
        |(node, counts): &(&NodeId, &PartitionCounts)| counts.at == cohort.version && cohort.has_member(**node);
    let answers: BTreeMap<&NodeId, &'a PartitionCounts> = answers.iter().filter(counts).collect();
    if !cohort.members_quorum(|node| answers.contains_key(&node)) {
        return None;
    }
    let total = |counts: &PartitionCounts| counts.queues.iter().flat_map(|(_, counts)| counts).sum::<u64>();
    let best = answers.values().copied().max_by_key(|counts| {
        let equal = answers.values().filter(|other| other.root == counts.root).count();
        (equal, total(counts), counts.leads, counts.viewstamp)
    })?;
    if cohort.members_quorum(|node| answers.get(&node).is_some_and(|other| other.root == best.root)) {
        return Some(best);
    }
    settle.then(|| answers.values().copied().max_by_key(|counts| (total(counts), counts.viewstamp))).flatten()
}

impl Node {
    pub(crate) fn count(&mut self, client: ClientId, number: u64, queue: Option<QueueName>, shape: Shape) {
        let request_id = self.pending_requests.open(PendingRequest::Count(PendingCount {
            client,
            number,
            queue,
            shape,
            answers: BTreeMap::new(),
            waiting: std::collections::BTreeSet::new(),
            rounds: 0,
            deadline_us: self.now.mono_after_ms(self.config.request_timeout_ms),
        }));
        self.ask_counts(request_id);
    }

    fn ask_counts(&mut self, request_id: u64) {
        let nodes: Vec<NodeId> = self.others().chain([self.me]).filter(|node| self.is_alive(*node)).collect();
        let Some(PendingRequest::Count(count)) = self.pending_requests.get_mut(request_id) else { return };
        count.rounds += 1;
        count.waiting = nodes.iter().copied().collect();
        let queue = count.queue.clone();
        for node in nodes {
            self.outbox.send(node, Query::CountAsk { request_id, queue: queue.clone() });
        }
        self.set_request_timer(request_id);
    }

    pub(crate) fn on_count_timer(&mut self, request_id: u64, over: bool) {
        if over {
            self.conclude_count(request_id, true);
        } else {
            self.ask_counts(request_id);
        }
    }

    /// Tells what is counted here. `rate_tokens`: when limited queues allow a claim, by the homes that this node leads.
    pub(crate) fn on_count_ask(
        &mut self,
        from: NodeId,
        (request_id, queue): (u64, Option<QueueName>),
        mut rate_tokens: BTreeMap<PartitionId, Vec<(QueueName, u64)>>,
    ) {
        let mut partitions = Vec::new();
        for (id, replica) in self.partitions.iter() {
            if !self.speaks_for(*id) {
                continue;
            }
            let root = replica.store.root().to_be_bytes();
            let index = replica.store.index();
            let mut queues: Vec<(QueueName, StateCounts)> = match &queue {
                Some(queue) => index.queue(queue).map(|index| (queue.clone(), index.counts)).into_iter().collect(),
                None => index.queues().map(|(queue, index)| (queue.clone(), index.counts)).collect(),
            };
            self.count_lost(*id, queue.as_ref(), &mut queues);
            partitions.push(PartitionCounts {
                partition: *id,
                root,
                viewstamp: replica.consensus.viewstamp,
                at: replica.cohort().version,
                leads: replica.consensus.established(),
                queues,
                rate_tokens: rate_tokens.remove(id).unwrap_or_default(),
            });
        }
        self.outbox.send(from, Query::CountAnswer { request_id, partitions });
    }

    /// Counts tasks whose bodies are lost here, which no queue's index has, as waiting: they wait for their bodies to be found.
    fn count_lost(
        &self,
        partition: PartitionId,
        queue: Option<&QueueName>,
        queues: &mut Vec<(QueueName, StateCounts)>,
    ) {
        let store = &self.partitions[&partition].store;
        for id in self.lost_of(partition).filter(|id| store.class(id) == Some(Class::Orphan)) {
            let Some(spec) = store.task(&id).and_then(|task| task.spec.as_ref()) else { continue };
            if queue.is_some_and(|queue| *queue != spec.queue) {
                continue;
            }
            let place = queues.iter().position(|(queue, _)| *queue == spec.queue).unwrap_or_else(|| {
                queues.push((spec.queue.clone(), StateCounts::default()));
                queues.len() - 1
            });
            queues[place].1[State::Waiting as usize] += 1;
        }
    }

    pub(crate) fn on_count_answer(&mut self, from: NodeId, request_id: u64, partitions: Vec<PartitionCounts>) {
        let Some(PendingRequest::Count(count)) = self.pending_requests.get_mut(request_id) else { return };
        for counts in partitions {
            count.answers.entry(counts.partition).or_default().insert(from, counts);
        }
        count.waiting.remove(&from);
        let complete = count.waiting.is_empty();
        if complete {
            let settle = count.rounds >= ROUNDS_MAX;
            self.conclude_count(request_id, settle);
        }
    }

    /// Answers if every partition is certain; with `settle`, if every partition was heard from a majority.
    fn conclude_count(&mut self, request_id: u64, settle: bool) {
        let Some(genesis) = self.genesis.clone() else { return };
        let now_us = self.now.mono_us;
        let Some(PendingRequest::Count(count)) = self.pending_requests.get(request_id) else { return };
        let empty = BTreeMap::new();
        let mut sum: BTreeMap<QueueName, StateCounts> = BTreeMap::new();
        let (mut rate_tokens, mut unheard) = (BTreeMap::new(), 0);
        for partition in (0..genesis.partitions as u16).map(PartitionId) {
            let answers = count.answers.get(&partition).unwrap_or(&empty);
            let leader = answers.values().filter(|counts| counts.leads).max_by_key(|counts| counts.viewstamp);
            rate_tokens.extend(leader.into_iter().flat_map(|counts| counts.rate_tokens.iter().cloned()));
            let Some(counts) = agreed(answers, &self.cohort_of(partition), settle) else {
                unheard += 1;
                continue;
            };
            for (queue, counts) in &counts.queues {
                let entry = sum.entry(queue.clone()).or_default();
                entry.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        let over = now_us >= count.deadline_us;
        if unheard > 0 && !over {
            // The timer asks again.
            return;
        }
        let Some(PendingRequest::Count(count)) = self.close_request(request_id) else { return };
        let response = match count.shape {
            // The rest of a status needs no majority, and is wanted most where there is none.
            Shape::Status => {
                let mut total = StateCounts::default();
                for counts in sum.values() {
                    total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                }
                let PendingCount { client, number, .. } = count;
                return self.signals.report(Signal::StatusCounted(Box::new(Total { client, number, total, unheard })));
            }
            _ if unheard > 0 => {
                Response::Error(Error::unavailable(format!("{unheard} partitions could not be read from a majority")))
            }
            Shape::Count(Some(state)) => Response::Count(sum.values().map(|counts| counts[state as usize]).sum()),
            Shape::Count(None) => Response::Count(sum.values().flatten().sum()),
            Shape::Queues => {
                let line = |(queue, counts)| {
                    let permit_in_ms = rate_tokens.get(&queue).copied();
                    QueueCounts { queue, counts, permit_in_ms }
                };
                Response::Queues(sum.into_iter().map(line).collect())
            }
        };
        self.outbox.reply(count.client, count.number, response);
    }
}
