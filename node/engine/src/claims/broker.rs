//! The broker: coordinates a client's claim at any node, from the first grant request (a "question", `GrantAsk`) to the answer.
//!
//! It asks the node with the best head that it knows of, then the next, until it has as many tasks as the claim wants. Before it
//! answers that there is nothing it probes every reachable node, and each of these first asks the cohorts of what it leads (I-26). A
//! claim that may wait then parks, and new work wakes it.

pub mod confirm;
pub mod depends;
pub mod pulls;
pub mod recall;
pub mod returns;
pub mod silent;

use self::confirm::Returns;
use self::recall::Recall;
use self::silent::ClientLiveness;
use crate::Node;
use crate::context::timers::Key;
use crate::event::ClientId;
use norn_model::limits::{CLAIM_BYTES_MAX, WAITERS_MAX};
use norn_model::message::{Claiming, Head};
use norn_model::viewstamp::Viewstamp;
use norn_wire::{Claim, ClaimId, Granted, NodeId, PartitionId, QueueName, Response, TaskId, Token};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Probes of one call before it stops chasing heads that other calls take first.
const PROBES_MAX: u32 = 10;
/// Fruitless wake-ups before a call rests: other calls take the work first, or it cannot be granted.
const FRUITLESS_WAKEUPS_MAX: u32 = 4;
/// Rest of such a call before it looks for work again.
const FRUITLESS_REST_MS: u64 = 20;
/// Most abandoned questions that are remembered, so that what their late answers bring is given back.
const ABANDONED_MAX: usize = 10_000;
/// Most answered questions that are remembered.
const ANSWERED_MAX: usize = 1_000;
/// A queue that was claimed from within this time stays recent: this node keeps its interest in it.
const RECENT_MS: u64 = 10_000;
/// Most recent queues of a node, for which no call needs to wait.
const RECENT_QUEUES_MAX: usize = 1_000;

/// A client that does not confirm counts its lease from the moment it claims. Its call waits for work for at most this part of the
/// lease: a quarter.
const WAIT_PER_LEASE: u64 = 4;

/// Cap on the task count of a head, for the weighted draw.
const COUNT_MAX: u64 = 1 << 40;

/// State of a call.
#[derive(Debug)]
enum Phase {
    /// Ready for its next step.
    Idle,
    /// A node was asked for grants.
    Asking { request_id: u64, node: NodeId, recall: bool },
    /// Every reachable node was asked for its heads.
    Probing { request_id: u64, waiting: BTreeSet<NodeId>, covered: BTreeSet<PartitionId>, found: bool, until_us: u64 },
    /// Looks again soon: other calls were quicker, or are to go first.
    Pausing,
    /// Waits for work.
    Parked,
    /// Reads the tasks that the claim depends on, and its session; `open` are those not read yet.
    Checking { open: BTreeSet<TaskId> },
    /// Answered, and waits for its client's confirmation. Without it `grants` go back. `holds_more`: the call also has grants that were
    /// found again, or a question of it had no answer in time.
    Answered { grants: Vec<Grant>, holds_more: bool },
}

/// A grant that can be given back, with the viewstamp under which it was made or found.
pub(crate) type Grant = (TaskId, Token, Viewstamp);

/// A client's claim in progress.
#[derive(Debug)]
struct Call {
    client: ClientId,
    number: u64,
    claim: Claim,
    /// Grants so far, with the node that made each.
    got: Vec<(Granted, Option<Viewstamp>, NodeId)>,
    phase: Phase,
    /// Partitions in which the call may hold grants that no answer has named.
    recall: Recall,
    /// Nodes that had nothing (more) since the last probe.
    tried: BTreeSet<NodeId>,
    probes: u32,
    probed_empty: bool,
    /// Wake-ups since the call last rested.
    fruitless_wakeups: u32,
    /// When this call was last held back so that calls of live clients go first.
    held_back_us: Option<u64>,
    look_first: bool,
    unavailable: u32,
    wait_until_us: u64,
    deadline_us: u64,
}

/// A recently claimed queue.
#[derive(Debug)]
struct Recent {
    used_us: u64,
    /// Whether a probe of all nodes has ended since the queue became recent; since then nodes announce their heads of it.
    known: bool,
}

/// Claims in progress, and the known heads of other nodes.
#[derive(Debug, Default)]
pub struct Broker {
    next: u64,
    calls: BTreeMap<u64, Call>,
    /// Calls that their clients confirm.
    confirming: BTreeMap<(ClaimId, ClientId), u64>,
    pending_requests: BTreeMap<u64, u64>,
    parked: BTreeMap<QueueName, BTreeSet<u64>>,
    parked_count: usize,
    /// Liveness of clients that have claimed, until they are gone.
    client_liveness: BTreeMap<ClientId, ClientLiveness>,
    summaries: BTreeMap<QueueName, BTreeMap<NodeId, Head>>,
    recent: BTreeMap<QueueName, Recent>,
    /// Questions whose calls do not wait for them any more: grants in their answers are given back.
    abandoned: BTreeSet<u64>,
    /// Answered questions, with the grants of each answer. A question that was resent while its answer was on the way is answered
    /// twice; no call waits for grants that are new in the second answer.
    answered: BTreeMap<u64, BTreeSet<(TaskId, Token)>>,
    /// What is given back. It is sent repeatedly, as a leader may miss the first message.
    returns: Returns,
}

impl Broker {
    /// Number of claims in progress.
    pub fn count(&self) -> usize {
        self.calls.len()
    }

    /// Number of grants that are being given back.
    #[cfg(test)]
    pub fn going_back(&self) -> usize {
        self.returns.going_back()
    }

    fn learn_head(&mut self, queue: &QueueName, node: NodeId, head: Option<Head>) {
        match head {
            Some(head) => {
                self.summaries.entry(queue.clone()).or_default().insert(node, head);
            }
            None => {
                if let Some(nodes) = self.summaries.get_mut(queue) {
                    nodes.remove(&node);
                    if nodes.is_empty() {
                        self.summaries.remove(queue);
                    }
                }
            }
        }
    }

    /// Drops heads of queues without interest, and of nodes that have left: no update for them arrives any more.
    fn forget_heads(&mut self, is_there: impl Fn(NodeId) -> bool) {
        let asked: BTreeSet<&QueueName> = self.calls.values().flat_map(|call| &call.claim.queues).collect();
        let (recent, parked) = (&self.recent, &self.parked);
        self.summaries.retain(|queue, nodes| {
            nodes.retain(|node, _| is_there(*node));
            let wanted = recent.contains_key(queue) || parked.contains_key(queue) || asked.contains(queue);
            wanted && !nodes.is_empty()
        });
    }

    fn abandon(&mut self, request_id: u64) {
        self.pending_requests.remove(&request_id);
        self.abandoned.insert(request_id);
        if self.abandoned.len() > ABANDONED_MAX {
            self.abandoned.pop_first();
        }
        assert!(self.abandoned.len() <= ABANDONED_MAX, "too many given-up questions are remembered");
    }

    fn accept(&mut self, request_id: u64, tasks: &[(Granted, Option<Viewstamp>)]) {
        self.answered.insert(request_id, tasks.iter().map(|(granted, _)| (granted.id, granted.token)).collect());
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_first();
        }
        assert!(self.answered.len() <= ANSWERED_MAX, "too many answered questions are remembered");
    }

    fn park(&mut self, number: u64) {
        let call = self.calls.get_mut(&number).expect("parks itself");
        assert!(matches!(call.phase, Phase::Idle), "a call parks while it does something else");
        call.phase = Phase::Parked;
        for queue in &call.claim.queues {
            self.parked.entry(queue.clone()).or_default().insert(number);
        }
        self.parked_count += 1;
        assert!(self.parked_count <= self.calls.len(), "more calls are parked than there are");
    }

    fn unpark(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number).filter(|call| matches!(call.phase, Phase::Parked)) else { return };
        call.phase = Phase::Idle;
        for queue in &call.claim.queues {
            if let Some(calls) = self.parked.get_mut(queue) {
                calls.remove(&number);
                if calls.is_empty() {
                    self.parked.remove(queue);
                }
            }
        }
        assert!(self.parked_count > 0, "a call wakes that was not counted as parked");
        self.parked_count -= 1;
    }
}

impl Node {
    /// Starts a client's claim.
    pub(crate) fn claim(&mut self, client: ClientId, number: u64, claim: Claim) {
        if let Err(error) = self.check_session(&claim) {
            return self.outbox.reply(client, number, Response::Error(error));
        }
        self.claims.broker.next += 1;
        let call = self.claims.broker.next;
        self.claims.broker.listen(client, self.now.mono_us);
        if claim.confirms {
            // A client that repeats a claim on the same connection has dropped the earlier call.
            self.leave_call(client, claim.claim);
            let before = self.claims.broker.confirming.insert((claim.claim, client), call);
            assert!(before.is_none(), "a client has two calls of one claim");
        }
        let recall = if claim.repeated { self.recall_all() } else { Recall::default() };
        let strange: Vec<QueueName> =
            claim.queues.iter().filter(|queue| !self.claims.broker.recent.contains_key(*queue)).cloned().collect();
        let is_known = |queue: &QueueName| self.claims.broker.recent.get(queue).is_some_and(|recent| recent.known);
        let look_first = !claim.queues.iter().all(is_known);
        for queue in &claim.queues {
            if let Some(recent) = self.claims.broker.recent.get_mut(queue) {
                recent.used_us = self.now.mono_us;
            } else if self.claims.broker.recent.len() < RECENT_QUEUES_MAX {
                self.claims.broker.recent.insert(queue.clone(), Recent { used_us: self.now.mono_us, known: false });
            }
        }
        if !strange.is_empty() {
            self.tell_interest(&strange);
        }
        let wait_ms = self.patience(&claim);
        let wait_until_us = self.now.mono_after_ms(wait_ms);
        let deadline_us = self.now.mono_after_ms(wait_ms + self.config.request_timeout_ms);
        assert!(!self.claims.broker.calls.contains_key(&call), "the number of a call is used twice");
        assert!(wait_until_us <= deadline_us, "a call waits for longer than it has time");
        self.claims.broker.calls.insert(
            call,
            Call {
                client,
                number,
                claim,
                got: Vec::new(),
                phase: Phase::Idle,
                recall,
                tried: BTreeSet::new(),
                probes: 0,
                probed_empty: false,
                fruitless_wakeups: 0,
                held_back_us: None,
                // Not every node may have announced its heads of these queues to this node yet.
                look_first,
                unavailable: 0,
                wait_until_us,
                deadline_us,
            },
        );
        let claim = &self.claims.broker.calls[&call].claim;
        if claim.depends.is_empty() && claim.session.is_none() {
            self.advance_claim(call);
        } else {
            self.check_depends(call);
        }
    }

    /// How long a call waits. A client that confirms renews what came late. Any other client counts the lease from the moment it
    /// claims; where a queue grants a shorter lease than the claim names, the wait is cut so that most of the lease is left for the
    /// work.
    fn patience(&self, claim: &Claim) -> u64 {
        if claim.confirms {
            return claim.wait_ms;
        }
        let leases = claim.queues.iter().map(|queue| self.policy_of(queue).lease_of(claim));
        let shortest = leases.filter(|lease_ms| *lease_ms < claim.lease_ms).min();
        shortest.map_or(claim.wait_ms, |lease_ms| claim.wait_ms.min(lease_ms / WAIT_PER_LEASE))
    }

    /// Takes the next step of a call.
    fn advance_claim(&mut self, number: u64) {
        let now_us = self.now.mono_us;
        let Some(call) = self.claims.broker.calls.get_mut(&number) else { return };
        if !matches!(call.phase, Phase::Idle) {
            return;
        }
        let bytes: usize = call.got.iter().map(|(granted, ..)| granted.payload.len()).sum();
        if call.got.len() >= call.claim.max as usize || bytes >= CLAIM_BYTES_MAX {
            self.finish_claim(number);
        } else if self.recall_next(number) {
            // The call asks a leader now, or waits for one.
        } else if std::mem::take(&mut self.claims.broker.calls.get_mut(&number).expect("just seen").look_first) {
            self.probe(number);
        } else if let Some(node) = self.best_node(number) {
            self.ask_for_grants(number, node, false);
        } else {
            let call = &self.claims.broker.calls[&number];
            let waits = now_us < call.wait_until_us;
            // A claim for several tasks gets what all nodes have, not only the heads known here; one probe is enough.
            let more = call.probes == 0 && call.claim.max > 1;
            if !call.got.is_empty() && !more {
                self.finish_claim(number);
            } else if !call.probed_empty {
                self.probe(number);
            } else if waits && call.fruitless_wakeups >= FRUITLESS_WAKEUPS_MAX {
                self.rest(number);
            } else if waits && self.claims.broker.parked_count < WAITERS_MAX {
                self.park(number);
            } else {
                self.finish_claim(number);
            }
        }
    }

    /// The node with the best head among those not yet tried: of each queue the head that comes first there, and of these the one of
    /// higher priority, then the older one. Where all queues are claimed at random the node is drawn, weighted by its number of tasks.
    fn best_node(&mut self, number: u64) -> Option<NodeId> {
        let call = &self.claims.broker.calls[&number];
        let is_open = |node: &NodeId| !call.tried.contains(node);
        let heads_of = |queue: &QueueName| {
            let own = self.head(queue).map(|head| (head, self.me));
            let others =
                self.claims.broker.summaries.get(queue).into_iter().flatten().map(|(node, head)| (*head, *node));
            let others = others.filter(|(_, node)| *node != self.me && self.is_reachable(*node));
            others.chain(own).filter(|(_, node)| is_open(node)).collect::<Vec<_>>()
        };
        if self.are_shuffled(&call.claim.queues) {
            let heads = call.claim.queues.iter().flat_map(heads_of);
            let heads: Vec<(u64, NodeId)> = heads.map(|(head, node)| (head.count.clamp(1, COUNT_MAX), node)).collect();
            let mut point = self.random.below(heads.iter().map(|(count, _)| count).sum::<u64>().max(1));
            return heads.into_iter().find_map(|(count, node)| {
                let found = (point < count).then_some(node);
                point = point.saturating_sub(count);
                found
            });
        }
        let rank = |(head, node): &(Head, NodeId)| (Reverse(head.priority), head.id, *node != self.me);
        let first = |queue| heads_of(queue).into_iter().min_by_key(|head| (head.0.served_ms, rank(head)));
        call.claim.queues.iter().filter_map(first).min_by_key(rank).map(|(_, node)| node)
    }

    fn ask_for_grants(&mut self, number: u64, node: NodeId, recall: bool) {
        let request_id = self.pending_requests.number();
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        assert!(matches!(call.phase, Phase::Idle), "a call asks while it does something else");
        call.phase = Phase::Asking { request_id, node, recall };
        assert!(
            self.claims.broker.pending_requests.insert(request_id, number).is_none(),
            "the number of a question is used twice"
        );
        self.send_grant_ask(number);
        self.set_claim_timer(number);
    }

    fn send_grant_ask(&mut self, number: u64) {
        let call = &self.claims.broker.calls[&number];
        let Phase::Asking { request_id, node, recall } = call.phase else { return };
        // Whichever node granted it, as the task's partition may have moved.
        let got: Vec<TaskId> = call.got.iter().map(|(granted, ..)| granted.id).collect();
        let max = call.claim.max.saturating_sub(got.len() as u32);
        let mut claim = Box::new(call.claim.clone());
        // The broker itself checks the dependencies.
        claim.depends.clear();
        self.outbox.send(node, Claiming::GrantAsk { request_id, claim, max, recall, got });
    }

    fn set_claim_timer(&mut self, number: u64) {
        let deadline_us = self.claims.broker.calls.get(&number).map_or(u64::MAX, |call| call.deadline_us);
        self.timers.set(Key::Claim(number), self.now.mono_after_ms(self.config.resend_ms).min(deadline_us));
    }

    pub(crate) fn on_grant_answer(
        &mut self,
        from: NodeId,
        request_id: u64,
        claim: ClaimId,
        tasks: Vec<(Granted, Option<Viewstamp>)>,
        (heads, partitions): (&[Option<Head>], &[PartitionId]),
    ) {
        // A question that was resent is answered twice.
        if self.claims.broker.abandoned.contains(&request_id) {
            self.note_given_up(request_id);
            self.give_back(&tasks);
            return;
        }
        if let Some(known) = self.claims.broker.answered.get(&request_id) {
            let new = |(granted, _): &(Granted, Option<Viewstamp>)| !known.contains(&(granted.id, granted.token));
            let new: Vec<(Granted, Option<Viewstamp>)> = tasks.into_iter().filter(new).collect();
            self.give_back(&new);
            return;
        }
        let Some(number) = self.claims.broker.pending_requests.remove(&request_id) else { return };
        self.claims.broker.accept(request_id, &tasks);
        let call = self.claims.broker.calls.get_mut(&number).expect("asks are of calls under way");
        let Phase::Asking { request_id: asked, node, recall } = call.phase else { return };
        if asked != request_id || node != from || call.claim.claim != claim {
            self.outbox.refuse("grants that were not asked for");
            return;
        }
        call.phase = Phase::Idle;
        for (granted, renewed) in tasks {
            call.got.retain(|(known, ..)| known.id != granted.id);
            call.got.push((granted, renewed, from));
        }
        if !recall {
            call.tried.insert(from);
        }
        let queues = call.claim.queues.clone();
        for (queue, head) in queues.iter().zip(heads) {
            self.claims.broker.learn_head(queue, from, *head);
        }
        if recall {
            self.recalled(number, from, partitions);
        } else {
            self.recall_also(number, partitions);
        }
        self.advance_claim(number);
    }

    /// Asks every reachable node for its heads.
    fn probe(&mut self, number: u64) {
        let request_id = self.pending_requests.number();
        let waiting: BTreeSet<NodeId> =
            self.others().chain([self.me]).filter(|node| self.is_reachable(*node)).collect();
        let until_us = self.now.mono_after_ms(self.config.resend_ms * 6);
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        assert!(matches!(call.phase, Phase::Idle), "a call asks all nodes while it does something else");
        call.probes += 1;
        call.tried.clear();
        call.phase = Phase::Probing { request_id, waiting, covered: BTreeSet::new(), found: false, until_us };
        assert!(
            self.claims.broker.pending_requests.insert(request_id, number).is_none(),
            "the number of a question is used twice"
        );
        self.send_probes(number);
        self.set_claim_timer(number);
    }

    fn send_probes(&mut self, number: u64) {
        let call = &self.claims.broker.calls[&number];
        let Phase::Probing { request_id, waiting, .. } = &call.phase else { return };
        for node in waiting {
            self.outbox.send(*node, Claiming::Probe { request_id: *request_id, queues: call.claim.queues.clone() });
        }
    }

    pub(crate) fn on_probed(
        &mut self,
        from: NodeId,
        request_id: u64,
        heads: &[Option<Head>],
        partitions: &[PartitionId],
    ) {
        let existing = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let Some(number) = self.claims.broker.pending_requests.get(&request_id).copied() else { return };
        let call = self.claims.broker.calls.get_mut(&number).expect("asks are of calls under way");
        let Phase::Probing { waiting, covered, found, .. } = &mut call.phase else { return };
        if !waiting.remove(&from) {
            return;
        }
        covered.extend(partitions.iter().filter(|partition| u32::from(partition.0) < existing));
        *found |= heads.iter().any(Option::is_some);
        let done = waiting.is_empty();
        let queues = call.claim.queues.clone();
        for (queue, head) in queues.iter().zip(heads) {
            self.claims.broker.learn_head(queue, from, *head);
        }
        if done {
            self.conclude_probe(number);
        }
    }

    fn conclude_probe(&mut self, number: u64) {
        let partitions = self.genesis.as_ref().map_or(0, |genesis| genesis.partitions);
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        let Phase::Probing { request_id, covered, found, .. } = &call.phase else { return };
        let (request_id, found) = (*request_id, *found);
        call.unavailable = partitions - covered.len() as u32;
        self.claims.broker.pending_requests.remove(&request_id);
        for queue in &call.claim.queues {
            if let Some(recent) = self.claims.broker.recent.get_mut(queue) {
                recent.known = true;
            }
        }
        // Heads that other calls keep taking are no reason to probe for ever. They do not mean that there is nothing either.
        call.probed_empty = !found || call.probes >= PROBES_MAX;
        if found && call.probes > 1 && !call.probed_empty {
            call.phase = Phase::Pausing;
            let pause_ms = 5 * u64::from(call.probes);
            self.timers.set(Key::Claim(number), self.now.mono_after_ms(pause_ms));
            return;
        }
        call.phase = Phase::Idle;
        self.advance_claim(number);
    }

    pub(crate) fn on_claim_timer(&mut self, number: u64) {
        let now_us = self.now.mono_us;
        let Some(call) = self.claims.broker.calls.get_mut(&number) else { return };
        if matches!(call.phase, Phase::Answered { .. }) {
            return self.unconfirmed(number);
        }
        if now_us >= call.deadline_us {
            self.fail_claim(number);
            return;
        }
        match &mut call.phase {
            Phase::Asking { request_id, node, recall } => {
                let (request_id, node, recall) = (*request_id, *node, *recall);
                let restarted = !recall && call.recall.is_open();
                if self.is_reachable(node) && !restarted {
                    self.send_grant_ask(number);
                } else {
                    let claim = self.claims.broker.calls[&number].claim.clone();
                    self.abandon(request_id, node, recall, &claim);
                    self.do_without(number, node, recall);
                    self.advance_claim(number);
                    return;
                }
            }
            Phase::Probing { waiting, until_us, .. } => {
                let (nodes, over) = (waiting.clone(), now_us >= *until_us);
                let gone: BTreeSet<NodeId> = nodes.into_iter().filter(|node| !self.is_reachable(*node)).collect();
                let call = self.claims.broker.calls.get_mut(&number).expect("just seen");
                let Phase::Probing { waiting, .. } = &mut call.phase else { return };
                waiting.retain(|node| !gone.contains(node));
                if over || waiting.is_empty() {
                    self.conclude_probe(number);
                    return;
                }
                self.send_probes(number);
            }
            Phase::Pausing => {
                call.phase = Phase::Idle;
                self.advance_claim(number);
                return;
            }
            Phase::Idle | Phase::Parked | Phase::Checking { .. } | Phase::Answered { .. } => return,
        }
        self.set_claim_timer(number);
    }

    /// Pauses a call for a moment, after fruitless wake-ups.
    fn rest(&mut self, number: u64) {
        let call = self.claims.broker.calls.get_mut(&number).expect("under way");
        call.fruitless_wakeups = 0;
        call.tried.clear();
        call.phase = Phase::Pausing;
        self.timers.set(Key::Claim(number), self.now.mono_after_ms(FRUITLESS_REST_MS));
    }

    /// Parks a call, and announces to all nodes that this node waits for its queues.
    fn park(&mut self, number: u64) {
        self.timers.cancel(Key::Claim(number));
        let queues = self.claims.broker.calls[&number].claim.queues.clone();
        self.set_park_timer(number);
        self.claims.broker.park(number);
        self.tell_interest(&queues);
    }

    fn tell_interest(&mut self, queues: &[QueueName]) {
        let credits = |queue: &QueueName| self.claims.broker.parked.get(queue).map_or(0, |calls| calls.len() as u32);
        let queues: Vec<(QueueName, u32)> = queues.iter().map(|queue| (queue.clone(), credits(queue))).collect();
        let nodes: Vec<NodeId> = self.others().chain([self.me]).collect();
        for node in nodes {
            self.outbox.send(node, Claiming::Interest { queues: queues.clone() });
        }
    }

    pub(crate) fn on_park_end(&mut self, number: u64) {
        if self.waits_on(number) {
            return self.set_park_timer(number);
        }
        self.claims.broker.unpark(number);
        self.advance_claim(number);
    }

    /// A node announces work: wakes as many of the parked calls as it has tasks, to look there.
    pub(crate) fn on_available(&mut self, from: NodeId, queue: &QueueName, head: Option<Head>) {
        self.claims.broker.learn_head(queue, from, head);
        // A node that is unreachable from here is not asked: the calls that it wakes would park again, and parking makes it announce
        // its work again.
        if let Some(head) = head.filter(|_| self.is_reachable(from)) {
            self.wake_parked(queue, head.count);
        }
    }

    /// Ends a call with its grants. The client gets these only if the tasks that the claim depends on are still there.
    fn finish_claim(&mut self, number: u64) {
        let call = &self.claims.broker.calls[&number];
        if !call.got.is_empty() && !call.claim.depends.is_empty() {
            return self.check_depends(number);
        }
        self.answer_claim(number);
    }

    /// Ends the request that a call waits for.
    fn end_question(&mut self, phase: &Phase, claim: &Claim) {
        match phase {
            Phase::Asking { request_id, node, recall } => self.abandon(*request_id, *node, *recall, claim),
            Phase::Probing { request_id, .. } => {
                self.claims.broker.pending_requests.remove(request_id);
            }
            Phase::Idle | Phase::Pausing | Phase::Parked | Phase::Checking { .. } | Phase::Answered { .. } => {}
        }
    }

    /// Gives up a question: from now on its grants go back, and the node that was asked voids what it granted anew, even if the answer
    /// never comes.
    fn abandon(&mut self, request_id: u64, node: NodeId, recall: bool, claim: &Claim) {
        self.claims.broker.abandon(request_id);
        if !recall {
            self.give_up_question(request_id, node, claim);
        }
    }

    fn end_claim(&mut self, number: u64) -> Call {
        self.claims.broker.unpark(number);
        self.timers.cancel(Key::Claim(number));
        self.timers.cancel(Key::Park(number));
        let call = self.claims.broker.calls.remove(&number).expect("under way");
        if call.claim.confirms {
            let of = self.claims.broker.confirming.remove(&(call.claim.claim, call.client));
            assert_eq!(of, Some(number), "a call that its client confirms is not listed");
        }
        assert!(
            self.claims.broker.parked_count <= self.claims.broker.calls.len(),
            "more calls are parked than there are"
        );
        self.end_question(&call.phase, &call.claim);
        call
    }

    /// Coverage sweep: repeats this node's interest in parked claims' and recent queues to all nodes.
    pub(crate) fn sweep(&mut self) {
        self.timers.set(Key::Sweep, self.after_ms(self.config.sweep_interval_ms));
        let oldest_us = self.now.mono_us.saturating_sub(RECENT_MS * 1_000);
        self.claims.broker.recent.retain(|_, recent| recent.used_us >= oldest_us);
        let there: BTreeSet<NodeId> = self.others().chain([self.me]).collect();
        let is_there = |node: NodeId| there.contains(&node);
        self.claims.broker.forget_heads(is_there);
        self.claims.grants.forget_given(is_there, self.now.mono_us);
        let mut queues: BTreeSet<QueueName> = self.claims.broker.parked.keys().cloned().collect();
        queues.extend(self.claims.broker.recent.keys().cloned());
        let queues: Vec<QueueName> = queues.into_iter().collect();
        if !queues.is_empty() {
            self.tell_interest(&queues);
        }
        self.prune_journals();
        self.hand_over_misplaced();
    }
}
