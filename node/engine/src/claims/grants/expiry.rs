//! Lease expiry: when a claim is over, and whether its client had got it.
//!
//! A client confirms its answer to its broker only (`broker/confirm.rs`), and a leader hears only of grants that go back. A lease may
//! expire before that: it is shorter than a client may take to confirm, or the partition had no leader. So a grant that was never
//! renewed is not counted as an attempt at once. First the leader asks its broker, or all nodes if another leader made the grant: a
//! grant that no client confirms in time goes back, and was no attempt. Meanwhile the claim still belongs to its client, which may
//! confirm and renew it: a lease may be shorter than the transfer of its answer. The leader does not wait for nodes that it cannot
//! reach, and for others only as long as a client may take to confirm.

use super::super::broker::Grant;
use super::DROP_DELAY_MS;
use crate::Node;
use crate::claims::LOCKED_MS;
use crate::context::tally::Counted;
use crate::context::timers::Key;
use crate::effect::Observation;
use norn_model::claim_table::table::{ClaimEntry, ClaimState, Op};
use norn_model::config::mutant;
use norn_model::limits::DUE_MAX;
use norn_model::message::Claiming;
use norn_model::viewstamp::Epoch;
use norn_wire::{ClaimId, NodeId, PartitionId, TaskId, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Longest postponement of a claim whose wall-clock end has not come.
const EXPIRY_LOOK_MS_MAX: u64 = 1_000;
/// How long an inquiry about a claim is remembered after its time is over.
const DECIDED_MS: u64 = 2_000;
/// Most brokers of short claims that are remembered: the latest.
const BROKERS_MAX: usize = 100_000;

/// An expired claim, while the leader inquires whether its client has confirmed it.
#[derive(Debug)]
struct Asked {
    grant: Grant,
    /// Epoch in which the leader asks.
    epoch: Epoch,
    until_us: u64,
    /// Nodes that have not answered.
    open: BTreeSet<NodeId>,
}

/// Claims that may expire before their clients have confirmed them.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// Brokers of claims that this node granted.
    brokers: BTreeMap<TaskId, (Token, NodeId)>,
    /// Until when each broker is remembered.
    order: VecDeque<(u64, TaskId, Token)>,
    asked: BTreeMap<TaskId, Asked>,
    /// Inquiries to send next.
    questions: BTreeMap<NodeId, Vec<(TaskId, Token, ClaimId)>>,
}

impl Unconfirmed {
    fn note(&mut self, (id, token): (TaskId, Token), broker: NodeId, until_us: u64) {
        let in_order = self.order.back().is_none_or(|(last_us, ..)| *last_us <= until_us);
        assert!(in_order, "brokers are not remembered in the order in which they are forgotten");
        self.brokers.insert(id, (token, broker));
        self.order.push_back((until_us, id, token));
    }

    fn forget_brokers(&mut self, now_us: u64) {
        let is_over = |order: &VecDeque<(u64, TaskId, Token)>| {
            order.len() > BROKERS_MAX || order.front().is_some_and(|(until_us, ..)| *until_us <= now_us)
        };
        while is_over(&self.order)
            && let Some((_, id, token)) = self.order.pop_front()
        {
            if self.brokers.get(&id).is_some_and(|(of, _)| *of == token) {
                self.brokers.remove(&id);
            }
        }
        assert!(self.brokers.len() <= self.order.len(), "a broker is remembered for ever");
    }

    fn broker_of(&self, id: &TaskId, token: Token) -> Option<NodeId> {
        self.brokers.get(id).filter(|(of, _)| *of == token).map(|(_, broker)| *broker)
    }

    /// Forgets old brokers, and inquiries that were given up.
    pub fn sweep(&mut self, now_us: u64) {
        self.forget_brokers(now_us);
        self.asked.retain(|_, asked| asked.until_us + DECIDED_MS * 1_000 > now_us);
    }
}

impl Node {
    /// Records the broker of grants that its client confirms. A lease longer than a confirmation may take needs no record.
    pub(super) fn note_broker(&mut self, session: u64, grants: &[(TaskId, Token)], lease_ms: u64) {
        let confirmed_ms = self.confirmed_ms();
        if lease_ms > confirmed_ms {
            return;
        }
        let broker = self.claims.grants.sessions[&session].to;
        let until_us = self.now.mono_after_ms(2 * confirmed_ms);
        grants.iter().for_each(|grant| self.claims.grants.unconfirmed.note(*grant, broker, until_us));
        self.claims.grants.unconfirmed.forget_brokers(self.now.mono_us);
    }

    /// Ends claims whose monotonic deadline and whose wall-clock end have both come.
    pub(crate) fn expire(&mut self, partition: PartitionId) {
        self.expire_due(partition);
        for (node, items) in std::mem::take(&mut self.claims.grants.unconfirmed.questions) {
            self.outbox.send(node, Claiming::ConfirmAsk { items });
        }
    }

    fn expire_due(&mut self, partition: PartitionId) {
        let now = self.now;
        let wall_only = mutant!(self.config, WallClockOnly);
        let monotonic_only = mutant!(self.config, MonotonicOnly);
        let consensus = &self.partitions[&partition].consensus;
        let Some(leading) = consensus.leading().filter(|leading| leading.established) else { return };
        let (epoch, margin_ms) = (leading.epoch, leading.margin_ms);
        let mut looked = 0;
        while let Some((at_us, id)) = self.partitions[&partition].consensus.first_expiry() {
            if at_us > now.mono_us && !wall_only {
                break;
            }
            looked += 1;
            if looked > DUE_MAX {
                // Behind what else is due by now.
                return self.timers.set(Key::Expiry(partition), now.mono_us + 1);
            }
            let replica = self.partitions.get_mut(&partition).expect("just seen");
            let entry = replica.consensus.claim_entry(&id).expect("deadlines are of claims").clone();
            assert!(entry.state == ClaimState::Held, "a deadline is of a claim that is not held");
            // Within one leadership there is one wall clock and nothing to compare; an inherited end comes from another node's clock.
            let inherited = entry.renewed.epoch != epoch;
            let end_ms = entry.expires_ms.saturating_add(if inherited { margin_ms } else { 0 });
            if now.wall_ms < end_ms && !monotonic_only {
                let wait_ms = (end_ms - now.wall_ms).clamp(1, EXPIRY_LOOK_MS_MAX);
                replica.consensus.postpone_expiry(id, now.mono_after_ms(wait_ms));
                if wall_only {
                    break;
                }
                continue;
            }
            if let Some(until_us) = (!wall_only).then(|| self.asks_for_confirmation(id, &entry, epoch)).flatten() {
                let again_us = now.mono_after_ms(self.config.resend_ms).min(until_us);
                let replica = self.partitions.get_mut(&partition).expect("just seen");
                replica.consensus.postpone_expiry(id, again_us);
                continue;
            }
            if self.partitions[&partition].consensus.table.ledger.is_locked(&id) {
                // What a transaction found stays so until it is made.
                let replica = self.partitions.get_mut(&partition).expect("just seen");
                replica.consensus.postpone_expiry(id, now.mono_after_ms(LOCKED_MS));
                if wall_only {
                    break;
                }
                continue;
            }
            let waits = self.waits_when_lapsed(partition, &id).filter(|waits| !waits || self.may_append(partition));
            let replica = self.partitions.get_mut(&partition).expect("just seen");
            let Some(waits) = waits else {
                // A task's wait is recorded together with the end of the claim, or neither is yet. Other tasks with its key need not
                // wait for it any more: the leader may never learn which task it was.
                if replica.consensus.await_lapse(id, now.mono_after_ms(DROP_DELAY_MS)) {
                    self.dirty_heads.insert(partition);
                }
                if wall_only {
                    break;
                }
                continue;
            };
            self.lapse(partition, id, &entry, waits);
        }
        self.arm_expiry(partition);
    }

    /// Ends a claim. With `waits` an operation records the end, as the task may have to wait, or others may be claimed in its place.
    fn lapse(&mut self, partition: PartitionId, id: TaskId, entry: &ClaimEntry, waits: bool) {
        let now = self.now;
        self.claims.grants.unconfirmed.asked.remove(&id);
        let replica = self.partitions.get_mut(&partition).expect("asked for own partitions only");
        let token = replica.consensus.lapse(id);
        let spec = replica.store.task(&id).and_then(|task| task.spec.as_ref());
        spec.into_iter().for_each(|spec| self.outbox.tally_mut().count(&spec.queue, Counted::Expired));
        self.outbox.observe(Observation::Expired { id, token });
        if let Some((token, reason, end)) = self.exhausted(partition, &id) {
            self.kill(partition, (id, token), &reason, end);
        } else if waits {
            let pause_ms = self.draw_backoff(partition, &id, entry.attempt);
            let not_before_ms = pause_ms.map_or(0, |pause_ms| now.wall_ms.saturating_add(pause_ms));
            let at_ms = now.wall_ms;
            let end = Some(entry.expired());
            self.append(partition, Op::Release { id, token, not_before_ms, at_ms, failed: true, end }, None);
        } else {
            let replica = self.partitions.get_mut(&partition).expect("just seen");
            replica.reclassify(&id, now);
            self.dirty_heads.insert(partition);
        }
    }

    /// Inquires about an expired claim. Returns until when it is not counted, if there are reachable nodes that may know whether its
    /// client has confirmed it and have not answered. A broker does not answer for grants that may still be confirmed. It gives these
    /// back itself, within the time that any confirmation may take since the grant was made, so no claim is held for longer than that
    /// after its lease.
    fn asks_for_confirmation(&mut self, id: TaskId, entry: &ClaimEntry, epoch: Epoch) -> Option<u64> {
        // A client that renews the claim has got it, or has asked for it again; in both cases it is not given back.
        let is_renewed = entry.expires_ms != entry.granted_ms.saturating_add(entry.lease_ms);
        if is_renewed || mutant!(self.config, LapsesUnasked) {
            return None;
        }
        let grant = (id, entry.token, entry.renewed);
        let known = self.claims.grants.unconfirmed.asked.get(&id);
        let known = known.filter(|asked| asked.grant == grant && asked.epoch == epoch);
        let (until_us, mut open) = match known {
            Some(asked) => (asked.until_us, asked.open.clone()),
            None => {
                let broker = self.claims.grants.unconfirmed.broker_of(&id, entry.token);
                let inherited = entry.renewed.epoch != epoch;
                let all = self.others().chain([self.me]).filter(|_| inherited && broker.is_none());
                let open = all.chain(broker).collect();
                (self.now.mono_after_ms(self.confirmed_ms()), open)
            }
        };
        open.retain(|node| self.is_reachable(*node));
        let asks = !open.is_empty() && self.now.mono_us < until_us;
        if asks {
            for node in &open {
                let questions = self.claims.grants.unconfirmed.questions.entry(*node).or_default();
                questions.push((id, entry.token, entry.claim));
            }
        }
        self.claims.grants.unconfirmed.asked.insert(id, Asked { grant, epoch, until_us, open });
        asks.then_some(until_us)
    }

    /// A node answers an inquiry: for `settled` claims it has nothing to add, and `back` go back, as no client has confirmed them.
    pub(crate) fn on_confirm_answer(&mut self, from: NodeId, settled: &[(TaskId, Token)], back: &[Grant]) {
        self.on_return(back);
        let mut partitions = BTreeSet::new();
        for (id, token) in settled.iter().copied().chain(back.iter().map(|(id, token, _)| (*id, *token))) {
            let asked = self.claims.grants.unconfirmed.asked.get_mut(&id).filter(|asked| asked.grant.1 == token);
            let Some(asked) = asked else { continue };
            if !asked.open.remove(&from) {
                continue;
            }
            let (grant, is_last) = (asked.grant, asked.open.is_empty());
            let partition = self.partition_of(&id);
            let entry = self.partitions.get(&partition).and_then(|replica| replica.consensus.claim_entry(&id));
            let still =
                |entry: &ClaimEntry| (id, entry.token, entry.renewed) == grant && entry.state == ClaimState::Held;
            if !entry.is_some_and(still) {
                self.claims.grants.unconfirmed.asked.remove(&id);
            } else if is_last && !self.partitions[&partition].consensus.is_lapsed(&id) {
                let replica = self.partitions.get_mut(&partition).expect("just seen");
                replica.consensus.postpone_expiry(id, self.now.mono_us);
                partitions.insert(partition);
            }
        }
        partitions.into_iter().for_each(|partition| self.arm_expiry(partition));
    }
}
