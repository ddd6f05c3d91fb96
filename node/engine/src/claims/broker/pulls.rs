//! Quorum reads before "nothing": a leader asks the cohorts of what it leads before it answers a broker's probe.
//!
//! It asks only about queues of which something would be granted. However much work stands in a queue that is paused, that has used up
//! its rate, or that is at its limit of concurrent claims: a claim that finds nothing there has looked everywhere.

use crate::Node;
use crate::write_read::{PendingProbe, PendingRequest};
use norn_model::message::{AntiEntropy, Claiming};
use norn_wire::{NodeId, PartitionId, QueueName, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// Most ready tasks in an answer to `Pull`.
const PULL_TASKS_MAX: usize = 1_024;

impl Node {
    /// Handles a broker's probe: the cohorts are asked before it is answered.
    pub(crate) fn on_probe(&mut self, from: NodeId, request_id: u64, queues: Vec<QueueName>) {
        let sought = queues.clone();
        let own = self.pending_requests.open(PendingRequest::Probe(PendingProbe {
            to: from,
            request_id,
            queues,
            pulled: Vec::new(),
            answered: BTreeMap::new(),
            waiting: BTreeSet::new(),
            needed: BTreeSet::new(),
            deadline_us: self.now.mono_after_ms(self.config.resend_ms * 4),
        }));
        for queue in &sought {
            self.seek(queue, 1);
        }
        // Rate tokens or concurrency slots may be on their way, whether or not any node is asked.
        self.set_request_timer(own);
        self.conclude_pulls(own);
    }

    /// Asks all cohorts for the ready tasks of these queues, under a new number, so that no answer to an earlier pull counts.
    fn pull(&mut self, own: u64, queues: Vec<QueueName>) {
        let waiting = self.others().filter(|node| self.is_reachable(*node)).collect();
        let Some(PendingRequest::Probe(state)) = self.close_request(own) else { return };
        let anew = PendingProbe { pulled: queues, answered: BTreeMap::new(), waiting, ..state };
        let own = self.pending_requests.open(PendingRequest::Probe(anew));
        self.send_pulls(own);
        // If there is no node to ask, the pull ends here.
        self.conclude_pulls(own);
    }

    pub(crate) fn send_pulls(&mut self, own: u64) {
        let Some(PendingRequest::Probe(state)) = self.pending_requests.get(own) else { return };
        for node in &state.waiting {
            self.outbox.send(*node, Claiming::Pull { request_id: own, queues: state.pulled.clone() });
        }
        self.set_request_timer(own);
    }

    /// Whether this node and the peers that answered are a majority of a partition's members.
    fn pulled_from_quorum(&self, state: &PendingProbe, partition: PartitionId) -> bool {
        let answered = state.answered.get(&partition);
        let replica = &self.partitions[&partition];
        let own = |node| node == self.me && self.speaks_for(partition);
        // Each strictly acknowledged fact is at a majority of the members.
        replica.cohort().members_quorum(|node| own(node) || answered.is_some_and(|nodes| nodes.contains(&node)))
    }

    /// Answers a probe once a majority has answered for each led partition, or no node is left to ask.
    pub(crate) fn conclude_pulls(&mut self, own: u64) {
        let now_us = self.now.mono_us;
        let Some(PendingRequest::Probe(state)) = self.pending_requests.get(own) else { return };
        let led: Vec<PartitionId> = self.partitions.keys().copied().filter(|id| self.may_grant(*id)).collect();
        let late = now_us >= state.deadline_us;
        let is_open = |queue: &&QueueName| led.iter().any(|partition| self.is_open_in(*partition, queue));
        let open: Vec<QueueName> = state.queues.iter().filter(is_open).cloned().collect();
        if !late && open.iter().any(|queue| !state.pulled.contains(queue)) {
            return self.pull(own, open);
        }
        // A task whose body is lost exists, and cannot be granted.
        let hides = |partition: &PartitionId, open: &[QueueName]| {
            self.hides_work(*partition, open) || self.lacks_work(*partition, open)
        };
        let speaks = |partition: &PartitionId| {
            let open: Vec<QueueName> =
                state.queues.iter().filter(|queue| self.is_open_in(*partition, queue)).cloned().collect();
            open.is_empty() || self.pulled_from_quorum(state, *partition) && !hides(partition, &open)
        };
        let covered: Vec<PartitionId> = led.iter().copied().filter(speaks).collect();
        if covered.len() < led.len() && !late && !state.waiting.is_empty() {
            return;
        }
        let queues = state.queues.clone();
        if !late && self.is_sought(own, &queues) {
            return;
        }
        let Some(PendingRequest::Probe(state)) = self.close_request(own) else { return };
        let heads = state.queues.iter().map(|queue| self.head(queue)).collect();
        self.outbox.send(state.to, Claiming::Probed { request_id: state.request_id, heads, covered });
    }

    pub(crate) fn on_pull(&mut self, from: NodeId, request_id: u64, queues: &[QueueName]) {
        let mut partitions = Vec::new();
        let mut ready = Vec::new();
        let follows = |replica: &&norn_model::replica::Partition| {
            replica.cohort().knows(from) && replica.consensus.leading().is_none()
        };
        for replica in self.partitions.values().filter(follows) {
            // A task whose body is lost here is in no queue, so the answer below would leave it out.
            if self.speaks_for(replica.id) && !self.lacks_work(replica.id, queues) {
                partitions.push(replica.id);
            }
            let indices = queues.iter().filter_map(|queue| replica.store.index().queue(queue));
            let room = PULL_TASKS_MAX + 1 - ready.len();
            ready.extend(indices.flat_map(|index| index.ready().map(|(_, id)| *id)).take(room));
        }
        let more = ready.len() > PULL_TASKS_MAX;
        ready.truncate(PULL_TASKS_MAX);
        self.outbox.send(from, Claiming::Pulled { request_id, partitions, ready, more });
    }

    pub(crate) fn on_pulled(
        &mut self,
        from: NodeId,
        request_id: u64,
        partitions: &[PartitionId],
        (ready, more): (&[TaskId], bool),
    ) {
        let Some(PendingRequest::Probe(state)) = self.pending_requests.get(request_id) else { return };
        let queues = state.pulled.clone();
        let mut unknown: BTreeMap<PartitionId, Vec<TaskId>> = BTreeMap::new();
        for id in ready {
            let partition = self.partition_of(id);
            let Some(replica) = self.partitions.get(&partition) else { continue };
            // Of tasks that may be forgotten, only those are believed that a peer with complete facts names.
            let believed = !replica.may_have_forgotten(id) || partitions.contains(&partition);
            if replica.store.lacks_spec(id) && believed {
                unknown.entry(partition).or_default().push(*id);
            }
        }
        if !unknown.is_empty() {
            // The peer is asked again once these have come; where it may be behind in forgetting, after a while.
            let old = |(partition, ids): (&PartitionId, &Vec<TaskId>)| {
                ids.iter().any(|id| self.partitions[partition].may_have_forgotten(id))
            };
            // Tasks that were requested before and were not taken may never be taken: to ask again at once would not end.
            let no_end = unknown.iter().any(old);
            let Some(PendingRequest::Probe(state)) = self.pending_requests.get_mut(request_id) else { return };
            let needed = state.needed.len();
            state.needed.extend(unknown.values().flatten());
            let at_once = state.needed.len() > needed && !no_end;
            for (partition, ids) in unknown {
                self.outbox.send(from, AntiEntropy::Need { partition, ids });
            }
            if at_once {
                self.outbox.send(from, Claiming::Pull { request_id, queues });
            }
            return;
        }
        let Some(PendingRequest::Probe(state)) = self.pending_requests.get_mut(request_id) else { return };
        if state.waiting.remove(&from) && !more {
            for partition in partitions {
                state.answered.entry(*partition).or_default().insert(from);
            }
        }
        self.conclude_pulls(request_id);
    }
}
