//! Grants at a leader's node: picks tasks, commits the grants, answers brokers, and drops the claims that are over.

pub mod again;
pub mod entries;
pub mod expiry;
pub mod questions;
pub mod voids;

pub use self::questions::Grants;
use self::questions::{Session, Tellable};
use super::broker::Grant;
use super::grant_costs::Cost;
use crate::Node;
use crate::context::tally::Counted;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::{ClaimState, Ended, Op};
use norn_model::config::mutant;
use norn_model::consensus::Waiting;
use norn_model::limits::{
    CLAIM_BYTES_MAX, CLAIM_ENTRIES_MAX, CLAIM_TASKS_MAX, DUE_MAX, ENDINGS_BYTES_MAX, OPS_UNCOMMITTED_MAX, within,
};
use norn_model::message::{AntiEntropy, Claiming};
use norn_model::replica::index::Class;
use norn_model::task::Content;
use norn_model::viewstamp::Viewstamp;
use norn_wire::{Claim, Granted, NodeId, PartitionId, QueueName, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Claims of ended tasks are dropped together, this many...
const DROP_TASKS_MAX: usize = 64;
/// ...or after this time.
const DROP_DELAY_MS: u64 = 200;
/// Bytes of endings that may stay in a table until more tasks end.
const OUT_BYTES_MAX: usize = 4 << 10;
/// Inherited claims of unknown tasks that a new leader asks for at once; anti-entropy brings the others.
const KEYS_ASKED_MAX: usize = 1_000;

impl Node {
    pub(crate) fn on_grant_ask(
        &mut self,
        from: NodeId,
        request_id: u64,
        claim: Claim,
        max: u32,
        (recall, got): (bool, &[TaskId]),
    ) {
        // The first copy of the question is still in progress, and its answer is for this copy too.
        if self.claims.grants.by_request_id.contains_key(&(from, request_id)) {
            return;
        }
        // The sender is not known to have seen this incarnation: it may look for grants of an earlier one, and has to ask other leaders
        // for these.
        if !self.knows_leads(from) {
            return;
        }
        if recall && max == 0 {
            return self.take_question_back((from, request_id), claim.claim);
        }
        let max = max.min(CLAIM_TASKS_MAX) as usize;
        self.claims.grants.next += 1;
        let number = self.claims.grants.next;
        let session = Session {
            to: from,
            request_id,
            claim: claim.claim,
            queues: claim.queues.clone(),
            tasks: Vec::new(),
            bodies: BTreeMap::new(),
            entries: BTreeMap::new(),
            asked: BTreeSet::new(),
            pending: 0,
            partitions: BTreeSet::new(),
            recall,
            unsure: BTreeSet::new(),
            repeated: BTreeSet::new(),
            unreported: Vec::new(),
        };
        assert!(self.claims.grants.sessions.insert(number, session).is_none(), "the number of a session is used twice");
        assert!(
            self.claims.grants.by_request_id.insert((from, request_id), number).is_none(),
            "a question is answered twice at once"
        );
        let recalled = self.recall(number, &claim, max, got);
        assert!(recalled <= max, "a call gets back more than it asked for");
        let over = claim.session.is_some_and(|session| self.claims.sessions.is_over(&session));
        // A repeat: the first answer is lost, or late. It may have had grants in partitions that this node does not lead any more. The
        // answer names these as unsure, so that the broker asks their present leaders. A repeat makes no new grants, even if the first
        // answer had none: the broker may have taken the first answer, and then ignores this one.
        let lost: Vec<PartitionId> = self
            .claims
            .grants
            .given(from, request_id)
            .into_iter()
            .filter(|partition| !self.led.contains(partition))
            .collect();
        let is_new = !self.claims.grants.is_answered(from, request_id);
        self.doubt(number, lost);
        if !recall && is_new && recalled < max && !over {
            let granted = self.grant(number, &claim, max - recalled);
            assert!(granted <= max - recalled, "a call is granted more than it asked for");
            let more = (max - recalled - granted) as u64;
            claim.queues.iter().filter(|_| more > 0).for_each(|queue| self.seek(queue, more));
        }
        if self.claims.grants.sessions[&number].pending == 0 {
            self.answer_grants(number);
        } else {
            self.timers.set(Key::Grant(number), self.after_ms(self.config.request_timeout_ms / 2));
        }
    }

    /// Makes the session get the bodies and logs of these tasks: what is not in memory is loaded while the grants commit.
    fn fetch_bodies(&mut self, session: u64, partition: PartitionId, ids: impl Iterator<Item = TaskId>) {
        let store = &self.partitions[&partition].store;
        let state = self.claims.grants.sessions.get_mut(&session).expect("under way");
        let mut wanted = Vec::new();
        for (id, task) in ids.filter_map(|id| Some((id, store.task(&id)?))) {
            let Some(spec) = &task.spec else { continue };
            wanted.extend(spec.wanted(id));
            state.bodies.extend(spec.body.here().map(|spec| (id, spec.clone())));
            wanted.extend(entries::wanted(id, task));
        }
        self.load_for_grant(session, wanted);
    }

    fn wait_for(&mut self, session: u64, partition: PartitionId) {
        let session = self.claims.grants.sessions.get_mut(&session).expect("under way");
        session.pending += 1;
        session.partitions.insert(partition);
    }

    /// Grants the best tasks of all partitions led here, in one operation per partition and lease length. Returns how many.
    fn grant(&mut self, session: u64, claim: &Claim, max: usize) -> usize {
        let picked = self.pick(claim, max);
        let count: usize = picked.values().map(Vec::len).sum();
        assert!(count <= max, "more tasks are picked than were asked for");
        let worker: Arc<str> = claim.worker.as_str().into();
        for ((partition, lease_ms), picked) in picked {
            let (ids, costs): (Vec<TaskId>, Vec<Cost>) = picked.into_iter().unzip();
            self.fetch_bodies(session, partition, ids.iter().copied());
            let sealed: Vec<bool> = ids.iter().map(|id| self.needs_seal(partition, id)).collect();
            let consensus = &mut self.partitions.get_mut(&partition).expect("picked from own partitions").consensus;
            assert!(consensus.established(), "a leader grants before it is established");
            let leading = consensus.leading_mut().expect("picked from led partitions");
            let epoch = leading.epoch;
            let first = leading.granted + 1;
            leading.granted += ids.len() as u64;
            assert!(leading.granted <= Token::SEALED_FROM, "one epoch has so many numbers");
            let number = |(number, sealed): (u64, bool)| if sealed { Token::SEALED_FROM + number } else { number };
            let items: Vec<(TaskId, u64)> = ids.into_iter().zip((first..).zip(sealed).map(number)).collect();
            let tokens: Vec<(TaskId, Token)> =
                items.iter().map(|(id, number)| (*id, Token { epoch, number: *number })).collect();
            tokens.iter().zip(costs).for_each(|(grant, cost)| self.note_cost(*grant, cost));
            let (worker, granted_ms, of) = (worker.clone(), self.now.wall_ms, claim.session);
            let held = |(id, _): &(TaskId, u64)| {
                self.partitions[&partition]
                    .consensus
                    .claim_entry(id)
                    .is_some_and(|entry| entry.state == ClaimState::Held)
            };
            let lapsed = items.iter().any(held);
            let op = Op::Grant { claim: claim.claim, worker, lease_ms, granted_ms, items, session: of, lapsed };
            if claim.confirms {
                self.note_broker(session, &tokens, lease_ms);
            }
            self.wait_for(session, partition);
            of.into_iter().for_each(|of| self.track_session(partition, of));
            self.append(partition, op, Some(Waiting::Grant { session, items: tokens, fresh: true }));
        }
        count
    }

    /// Picks the best tasks, by partition and by the lease that their queues give them.
    fn pick(&mut self, claim: &Claim, max: usize) -> BTreeMap<(PartitionId, u64), Vec<(TaskId, Cost)>> {
        // Heads that changed earlier in this step are not published yet.
        while let Some(partition) = self.dirty_heads.pop_first() {
            self.publish_heads(partition);
        }
        let mut queues: Vec<QueueName> = claim.queues.iter().filter(|queue| self.is_open(queue)).cloned().collect();
        let mut picked: BTreeMap<(PartitionId, u64), Vec<(TaskId, Cost)>> = BTreeMap::new();
        let mut out = BTreeSet::new();
        let (mut count, mut bytes) = (0, 0);
        while count < max && bytes < CLAIM_BYTES_MAX {
            let Some((id, partition)) = self.claims.heads.best(&queues, &out, self.now.wall_ms) else { break };
            let (partition, id) = self.shuffled(partition, id, &out);
            if !self.may_grant(partition) {
                out.insert(partition);
                continue;
            }
            if let Some((token, reason, end)) = self.exhausted(partition, &id) {
                // The claim ended before this node knew the task's limit of attempts.
                self.kill(partition, (id, token), &reason, end);
                self.publish_heads(partition);
                continue;
            }
            let replica = self.partitions.get_mut(&partition).expect("heads are of own partitions");
            assert!(replica.is_ready(&id), "a published head is ready");
            if replica.may_be_a_ghost(&id) {
                out.insert(partition);
                continue;
            }
            let spec = replica.store.task(&id).and_then(|task| task.spec.as_ref());
            let queue = spec.map(|spec| spec.queue.clone()).expect("a ready task has a spec");
            assert!(self.room_for_claims(partition, &queue) != Some(0), "a published head has room");
            let replica = self.partitions.get_mut(&partition).expect("just seen");
            let is_served = !mutant!(self.config, ServedIgnored);
            let turn = is_served.then(|| replica.store.serve(&id, self.now.wall_ms)).flatten();
            replica.store.set_class(&id, Class::Held);
            bytes += replica.store.task(&id).map_or(0, |task| task.size_bytes());
            count += 1;
            let lease_ms = self.policy_of_task(partition, &id).unwrap_or_default().lease_of(claim);
            self.publish_heads(partition);
            let rate_token = self.use_rate_token(&queue).map(|request_id| (queue.clone(), request_id));
            picked.entry((partition, lease_ms)).or_default().push((id, Cost { rate_token, turn }));
            queues.retain(|other| *other != queue || self.rate_tokens(&queue) != Some(0));
        }
        picked
    }

    /// Whether tasks of a queue are granted at all now: it is not paused, and its rate leaves rate tokens.
    fn is_open(&self, queue: &QueueName) -> bool {
        let paused = self.policy_of(queue).paused && !mutant!(self.config, PausedGrants);
        !paused && self.rate_tokens(queue) != Some(0)
    }

    /// Whether ready tasks of a queue in a partition would be granted.
    pub(crate) fn is_open_in(&self, partition: PartitionId, queue: &QueueName) -> bool {
        self.is_open(queue) && self.room_for_claims(partition, queue) != Some(0)
    }

    /// Whether this node grants tasks of a partition now: it leads it and stays leader, has space for more claims, and not too many
    /// operations wait for replicas with complete facts. If not, it announces no heads either, as nodes ask for announced work.
    pub(crate) fn may_grant(&self, partition: PartitionId) -> bool {
        self.may_renew(partition)
            && !self.stopping
            && partition != PartitionId::METADATA
            && self.partitions[&partition].consensus.cohort.quarantine.is_none()
            && self.partitions[&partition].consensus.table.entries.len() < CLAIM_ENTRIES_MAX
    }

    /// Whether claims that are already held may be granted again now.
    fn may_renew(&self, partition: PartitionId) -> bool {
        let consensus = &self.partitions[&partition].consensus;
        let behind = |grant_index| consensus.viewstamp.length - grant_index >= OPS_UNCOMMITTED_MAX;
        self.may_append(partition) && consensus.leading().is_some_and(|leading| !behind(leading.grant_index))
    }

    /// Attempts that a task has, by its own spec or its queue's policy; 0: any number.
    pub(crate) fn attempts_max(&self, partition: PartitionId, id: &TaskId) -> u32 {
        let spec = self.partitions[&partition].store.task(id).and_then(|task| task.spec.as_ref());
        let own = spec.map_or(0, |spec| spec.attempts_max);
        let of_queue = || spec.and_then(|spec| self.policy_of(&spec.queue).attempts_max);
        if own > 0 { own } else { of_queue().unwrap_or(0) }
    }

    /// The leader steps down before grants are committed: the next leader may have them.
    pub(crate) fn grants_given_up(&mut self, at: Viewstamp, session: u64, items: Vec<(TaskId, Token)>, fresh: bool) {
        // The next leader may have the grant.
        self.doubt(session, items.first().map(|(id, _)| self.partition_of(id)));
        if fresh {
            self.leave_unreported(session, items.into_iter().map(|(id, token)| (id, token, at)));
        }
        self.one_less(session);
    }

    pub(crate) fn granted(
        &mut self,
        partition: PartitionId,
        fresh: Option<Viewstamp>,
        session: u64,
        items: &[(TaskId, Token)],
    ) {
        if !self.claims.grants.sessions.contains_key(&session) {
            return;
        }
        for item in items {
            self.tell(partition, fresh, session, item);
        }
        self.one_less(session);
    }

    /// Adds a grant to an answer, unless its task has ended.
    fn tell(&mut self, partition: PartitionId, fresh: Option<Viewstamp>, session: u64, (id, token): &(TaskId, Token)) {
        // It stays unproven: a repeat of the call may wait for the same grant.
        let leading = self.partitions.get(&partition).and_then(|replica| replica.consensus.leading());
        let unproven = leading.is_some_and(|leading| leading.unproven.contains(&(*id, *token)));
        let Some(granted) = self.granted_task(partition, id, *token).filter(|_| !unproven) else { return };
        self.outbox.observe(Observation::Granted { id: *id, token: *token });
        self.count_grant(partition, &granted);
        let gaps = self.gaps_in_log(partition, id);
        let told = Tellable { granted, fresh, gaps };
        self.claims.grants.sessions.get_mut(&session).expect("under way").tasks.push(told);
        // Part of the body or log may have left memory since the grant was begun.
        let task = self.partitions[&partition].store.task(id);
        let wanted = task.map(|task| entries::wanted(*id, task).collect()).unwrap_or_default();
        self.load_for_grant(session, wanted);
    }

    /// Keeps grants that no answer of this leader names.
    fn leave_unreported(&mut self, session: u64, grants: impl IntoIterator<Item = Grant>) {
        if let Some(state) = self.claims.grants.sessions.get_mut(&session) {
            state.unreported.extend(grants);
        }
    }

    fn one_less(&mut self, session: u64) {
        let Some(state) = self.claims.grants.sessions.get_mut(&session) else { return };
        assert!(state.pending > 0, "an answer waits for nothing, and something has come for it");
        state.pending -= 1;
        if state.pending == 0 {
            self.answer_grants(session);
        }
    }

    /// Counts a grant, and how long its task has waited if this is its first claim.
    fn count_grant(&mut self, partition: PartitionId, granted: &Granted) {
        let Some(replica) = self.partitions.get(&partition) else { return };
        let spec = replica.store.task(&granted.id).and_then(|task| task.spec.as_ref());
        let since_ms = spec.map_or(0, Content::not_before_ms).max(granted.id.time_ms());
        let entry = replica.consensus.claim_entry(&granted.id);
        let granted_ms = entry.filter(|entry| entry.past.is_empty()).map(|entry| entry.granted_ms);
        let tally = self.outbox.tally_mut();
        tally.count(&granted.queue, Counted::Granted);
        granted_ms.into_iter().for_each(|at_ms| tally.waited(&granted.queue, at_ms.saturating_sub(since_ms)));
    }

    fn granted_task(&self, partition: PartitionId, id: &TaskId, token: Token) -> Option<Granted> {
        let replica = &self.partitions[&partition];
        let entry = replica
            .consensus
            .claim_entry(id)
            .filter(|entry| entry.token == token && entry.state == ClaimState::Held)?;
        let task = replica.store.task(id).filter(|task| task.ended().is_none())?;
        let spec = task.spec.as_ref()?;
        Some(Granted {
            id: *id,
            token,
            queue: spec.queue.clone(),
            payload: Vec::new(),
            priority: spec.priority,
            headers: Vec::new(),
            attempt: entry.attempt,
            lease_ms: entry.lease_ms,
            updates: self.log_of(task),
            grouping: spec.grouping().cloned().map(Box::new),
            group: task.group_view(),
        })
    }

    fn answer_grants(&mut self, session: u64) {
        let session_state = self.claims.grants.sessions.remove(&session).expect("answered once");
        let of = self.claims.grants.by_request_id.remove(&(session_state.to, session_state.request_id));
        assert_eq!(of, Some(session), "a question is not listed under its session");
        self.timers.cancel(Key::Grant(session));
        let Session {
            to, request_id, claim, queues, tasks, mut bodies, recall, mut unsure, repeated, unreported, ..
        } = session_state;
        let mut entries = session_state.entries;
        // The broker has restarted since, and knows nothing of the call.
        let has_ended = self.is_of_former_process(to, request_id);
        let (mut whole, mut untellable) = (Vec::with_capacity(tasks.len()), Vec::new());
        for Tellable { mut granted, fresh, gaps } in tasks {
            let has_log = entries::fill(&mut granted.updates, gaps, &mut entries);
            let body = bodies.remove(&granted.id).filter(|_| has_log && !(has_ended && fresh.is_some()));
            match (body.map(Arc::unwrap_or_clone), fresh) {
                (Some(spec), _) => {
                    (granted.payload, granted.headers) = (spec.payload, spec.headers);
                    whole.push((granted, fresh));
                }
                (None, Some(at)) if !repeated.contains(&granted.id) => untellable.push((granted.id, granted.token, at)),
                // A client may have it: its lease expires, or the next question finds its body and log.
                (None, _) => {
                    unsure.insert(self.partition_of(&granted.id));
                }
            }
        }
        if !recall {
            let mut partitions = unsure.clone();
            partitions.extend(whole.iter().map(|(granted, _)| self.partition_of(&granted.id)));
            let made =
                whole.iter().filter_map(|(granted, fresh)| Some((granted.id, granted.token, (*fresh)?))).collect();
            self.claims.grants.remember((to, request_id), partitions, made, self.now.mono_us);
        }
        let heads = queues.iter().map(|queue| self.head(queue)).collect();
        let partitions = match recall {
            true => self.led.iter().filter(|id| !unsure.contains(id)).copied().collect(),
            false => unsure.into_iter().collect(),
        };
        self.outbox.send(to, Claiming::GrantAnswer { request_id, claim, tasks: whole, heads, partitions });
        // No client got these.
        self.give_back_grants(untellable);
        // A broker that still asks for these renews them, and then they stay.
        self.give_back_unreported(unreported);
    }

    /// The quorum is slow or gone: voids the grants that have not committed, after the grant and in the same order.
    pub(crate) fn on_grant_deadline(&mut self, session: u64) {
        let Some(state) = self.claims.grants.sessions.get(&session) else { return };
        let claim = state.claim;
        for partition in state.partitions.clone() {
            let consensus = &self.partitions[&partition].consensus;
            let Some(leading) = consensus.leading() else { continue };
            let epoch = leading.epoch;
            // Grants that were found again are not taken back. Those that are taken back may still be held at a successor.
            let of_session =
                |waiting: &Waiting| matches!(waiting, Waiting::Grant { session: of, .. } if *of == session);
            let pends = leading.waiting.iter().any(|(_, waiting)| of_session(waiting));
            let own = leading.waiting.iter().filter_map(|(length, waiting)| match waiting {
                Waiting::Grant { session: of, items, fresh: true } if *of == session => Some((*length, items)),
                Waiting::Grant { .. }
                | Waiting::Call { .. }
                | Waiting::Kill { .. }
                | Waiting::Seal(_)
                | Waiting::RateTokens(_)
                | Waiting::Void { .. }
                | Waiting::SlotQuota(_)
                | Waiting::Reserve { .. }
                | Waiting::Decide { .. }
                | Waiting::Prepare { .. }
                | Waiting::Made { .. }
                | Waiting::Refuse { .. }
                | Waiting::Metadata { .. } => None,
            });
            // If another question has renewed a grant, that session answers it.
            let unreported = |(id, token): &&(TaskId, Token), length| {
                consensus.claim_entry(id).is_some_and(|entry| {
                    let same = entry.token == *token && entry.renewed == Viewstamp { epoch, length };
                    same && entry.state == ClaimState::Held
                })
            };
            let grants: Vec<Grant> = own
                .flat_map(|(length, items)| {
                    let own = items.iter().filter(move |item| unreported(item, length));
                    own.map(move |(id, token)| (*id, *token, Viewstamp { epoch, length }))
                })
                .collect();
            let items = grants.iter().map(|(id, token, _)| (*id, *token)).collect();
            self.leave_unreported(session, grants);
            if self.void(partition, items) {
                self.remember_void(claim, partition);
            }
            self.doubt(session, pends.then_some(partition));
        }
        self.answer_grants(session);
    }

    /// Voids grants. Returns whether there were any, and the leader could append it.
    pub(crate) fn void(&mut self, partition: PartitionId, items: Vec<(TaskId, Token)>) -> bool {
        if !self.partitions[&partition].consensus.established() {
            return false;
        }
        let items = self.keep_locked(partition, items);
        if items.is_empty() {
            return false;
        }
        for (id, token) in &items {
            self.outbox.observe(Observation::Voided { id: *id, token: *token });
        }
        let costs = self.costs_of(&items);
        let rate_tokens: Vec<(QueueName, u64)> = costs.iter().filter_map(|(_, cost)| cost.rate_token.clone()).collect();
        self.append(partition, Op::Void { items }, (!rate_tokens.is_empty()).then_some(Waiting::Void { rate_tokens }));
        self.restore_turns(partition, &costs);
        true
    }

    /// Handles grants that a broker gives back, as no client got them.
    pub(crate) fn on_return(&mut self, items: &[(TaskId, Token, Viewstamp)]) {
        // A peer may name one twice.
        let mut back: BTreeMap<PartitionId, BTreeSet<(TaskId, Token)>> = BTreeMap::new();
        for (id, token, renewed) in items {
            let partition = self.partition_of(id);
            let Some(replica) = self.partitions.get(&partition) else { continue };
            let same = replica.consensus.claim_entry(id).is_some_and(|entry| {
                entry.token == *token && entry.renewed == *renewed && entry.state == ClaimState::Held
            });
            if same {
                back.entry(partition).or_default().insert((*id, *token));
            }
        }
        for (partition, items) in back {
            self.void(partition, items.into_iter().collect());
        }
    }

    /// Makes delayed tasks ready that are due.
    pub(crate) fn release_due(&mut self, partition: PartitionId) {
        let now = self.now;
        let replica = self.partitions.get_mut(&partition).expect("timers are of own partitions");
        for _ in 0..DUE_MAX {
            let Some(id) = replica.store.index().due(now.wall_ms) else { break };
            replica.reclassify(&id, now);
        }
        if replica.store.index().due(now.wall_ms).is_some() {
            // Behind what else is due by now.
            self.timers.set(Key::Delayed(partition), now.mono_us + 1);
        }
        self.dirty_heads.insert(partition);
    }

    /// Examines the claims that a new leader inherits: some of their tasks have ended, some were given up or sealed.
    pub(crate) fn settle_inherited(&mut self, partition: PartitionId) {
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let ended: Vec<TaskId> =
            replica.consensus.table.entries.keys().copied().filter(|id| replica.store.ended(id)).collect();
        replica.to_drop.extend(ended);
        let verdicts: Vec<_> =
            replica.consensus.table.entries.keys().filter_map(|id| Some((*id, replica.verdict(id)?))).collect();
        self.merge(partition, verdicts);
        self.arm_drop(partition);
        self.arm_clear(partition);
    }

    /// Requests the tasks of unknown claims: tasks with keys wait until the new leader knows which keys are held.
    pub(crate) fn ask_for_keys(&mut self, partition: PartitionId) {
        let me = self.me;
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let unknown = replica.unknown_claims();
        let ids: Vec<TaskId> = unknown.iter().copied().take(KEYS_ASKED_MAX).collect();
        replica.consensus.leading_mut().expect("it leads").unknown = unknown;
        if ids.is_empty() || !replica.store.index().has_key_orders() || mutant!(self.config, KeysUnknown) {
            return;
        }
        let others: Vec<NodeId> = replica.cohort().followers().into_iter().filter(|node| *node != me).collect();
        for node in others {
            self.outbox.send(node, AntiEntropy::Need { partition, ids: ids.clone() });
        }
    }

    /// Schedules the drop of ended tasks' claims, many at once.
    pub(crate) fn arm_drop(&mut self, partition: PartitionId) {
        let replica = &self.partitions[&partition];
        if replica.to_drop.is_empty() || !replica.consensus.established() {
            return;
        }
        let wait_ms = if replica.to_drop.len() >= DROP_TASKS_MAX { 0 } else { DROP_DELAY_MS };
        self.timers.set_earliest(Key::Drop(partition), self.after_ms(wait_ms));
    }

    /// Schedules the removal of endings with results from the table even if no other task ends, as the table is in memory.
    fn arm_clear(&mut self, partition: PartitionId) {
        if self.partitions[&partition].consensus.table.out_bytes() > OUT_BYTES_MAX {
            self.timers.set_earliest(Key::Drop(partition), self.after_ms(DROP_DELAY_MS));
        }
    }

    /// endings that a majority has on disk need not travel with the table any more.
    pub(crate) fn clear_out(&mut self, partition: PartitionId) {
        let consensus = &self.partitions[&partition].consensus;
        let upto = Viewstamp { epoch: consensus.viewstamp.epoch, length: consensus.commit };
        assert!(upto <= consensus.viewstamp, "the commit index is ahead of the operations it covers");
        if consensus.table.out.first_key_value().is_some_and(|(at, _)| *at <= upto) {
            self.append(partition, Op::Clear { upto }, None);
        }
    }

    /// Some ended tasks whose claims may be dropped; `None` while nothing can be appended. Another leader begins anew.
    pub(crate) fn droppable(&mut self, partition: PartitionId) -> Option<Vec<TaskId>> {
        let replica = self.partitions.get(&partition).filter(|replica| replica.consensus.established())?;
        if !self.may_append(partition) {
            self.timers.set(Key::Drop(partition), self.after_ms(DROP_DELAY_MS));
            return None;
        }
        let consensus = &replica.consensus;
        let committed = Viewstamp { epoch: consensus.viewstamp.epoch, length: consensus.commit };
        let from = replica.drop_after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = replica.to_drop.range((from, Bound::Unbounded));
        Some(rest.filter(|id| replica.may_drop(id, committed)).copied().take(DROP_TASKS_MAX).collect())
    }

    /// Takes such tasks out of the list, as many as fit into one operation, and returns them, with the endings of those that have claims.
    /// Claims that something is `owed` for stay, as do those of tasks whose results are not in memory.
    pub(crate) fn take_endings(
        &mut self,
        partition: PartitionId,
        mut ids: Vec<TaskId>,
        mut owed: BTreeSet<TaskId>,
    ) -> (Vec<TaskId>, Vec<Ended>) {
        let replica = &self.partitions[&partition];
        let looked = (ids.len(), ids.last().copied());
        let is_held = |id: &TaskId| replica.consensus.claim_entry(id).is_some();
        let is_away = |id: &TaskId| replica.store.task(id).is_some_and(|task| !task.has_blobs());
        let away = |id: &&TaskId| is_held(id) && is_away(id) && replica.store.told_ending(id).is_none();
        let away: Vec<TaskId> = ids.iter().filter(away).copied().collect();
        away.iter().for_each(|id| self.bring_results_back(partition, id));
        owed.extend(away);
        ids.retain(|id| !owed.contains(id));
        // Dead letters that cannot be written for long do not hold up the others.
        let next = looked.1.filter(|_| looked.0 == DROP_TASKS_MAX && owed.len() > DROP_TASKS_MAX / 2);
        assert!(
            next.is_none() || next > self.partitions[&partition].drop_after,
            "the look at ended tasks does not go on"
        );
        self.partitions.get_mut(&partition).expect("just seen").drop_after = next;
        let replica = self.partitions.get_mut(&partition).expect("just seen");
        let ended = |id: TaskId| (id, replica.ending(&id).map(|facts| Ended { id, facts }));
        let bytes = |(_, ended): &(TaskId, Option<Ended>)| ended.as_ref().map_or(0, |ended| ended.facts.size_bytes());
        let (ids, items): (Vec<TaskId>, Vec<Option<Ended>>) =
            within(ENDINGS_BYTES_MAX, ids.into_iter().map(ended), bytes).unzip();
        for id in &ids {
            replica.to_drop.remove(id);
        }
        (ids, items.into_iter().flatten().collect())
    }

    /// C-2: drops the claims of ended tasks; the operation brings every replica how they ended.
    pub(crate) fn append_endings(&mut self, partition: PartitionId, items: Vec<Ended>) {
        self.clear_out(partition);
        if !items.is_empty() {
            self.append(partition, Op::Drop { items: items.into() }, None);
            self.arm_drop(partition);
        } else if !self.partitions[&partition].to_drop.is_empty() {
            // The rest waits for a commit.
            self.timers.set(Key::Drop(partition), self.after_ms(DROP_DELAY_MS));
        }
        self.arm_clear(partition);
    }
}
