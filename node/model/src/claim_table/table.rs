//! Claim table of one partition: the state that its operations build, one after the other.
//!
//! The leader decides whether an operation is allowed before it appends it; [`ClaimTable::apply`] only checks that it still fits.

pub use super::entry::{ClaimEntry, ClaimState};
use super::hashes::{Known, hash, hash_of_endings, hash_of_entry};
use super::ledger::{Decided, Ledger, Prepared, Round, Spread};
use super::levels::{Level, Written};
pub use super::operation::{Ended, Op, SlotQuota};
use crate::cohort::{Change, Cohort};
use crate::metadata::{Metadata, Operation};
use crate::schedules;
use crate::schedules::Schedules;
use crate::task::PastClaim;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::transaction::Refusal;
use norn_wire::{ClaimId, PartitionId, QueueName, Spec, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reason why an operation does not fit the table. This cannot happen with a correct leader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {at:?} does not fit the table: {why} (task {id})")]
pub struct Misfit {
    /// Viewstamp of the operation.
    pub at: Viewstamp,
    /// Task concerned.
    pub id: TaskId,
    /// Reason.
    pub why: &'static str,
}

/// Content of a partition's consistent state at one viewstamp.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClaimTable {
    /// Members at genesis, sorted.
    pub founders: Vec<ReplicaId>,
    /// Claims of tasks that have not ended.
    pub entries: BTreeMap<TaskId, ClaimEntry>,
    /// Endings that a majority is not yet known to have on disk, by the operation that dropped their claims.
    pub out: BTreeMap<Viewstamp, Arc<[Ended]>>,
    /// Sum of the hashes of all other content, updated by every change.
    digest: u128,
    /// The hashes of claims and endings, which are taken from the sum again.
    #[serde(skip)]
    known: Known,
    /// Garbage collection of finished tasks.
    #[serde(default)]
    pub forgetting: Forgetting,
    /// Replica group, once it differs from that of genesis.
    #[serde(default)]
    pub cohort: Option<Box<Cohort>>,
    /// Members and settings of the cluster: only in the table of the metadata group, unless that table is blank.
    #[serde(default)]
    pub metadata: Option<Box<Metadata>>,
    /// Cron schedules of the cluster: beside `metadata`, once any schedule was set.
    #[serde(default)]
    pub schedules: Option<Box<Schedules>>,
    /// Tasks with reserved unique keys that may not be facts yet.
    #[serde(default)]
    pub reserved: BTreeMap<TaskId, Arc<Spec>>,
    /// Concurrency slot quotas of each partition, for limited queues whose coordinator partition this is.
    #[serde(default)]
    pub slot_quotas: BTreeMap<QueueName, BTreeMap<PartitionId, SlotQuota>>,
    /// Transaction log.
    #[serde(default)]
    pub ledger: Ledger,
    /// Token-bucket levels of queues with a rate whose coordinator partition this is.
    #[serde(default)]
    pub levels: BTreeMap<QueueName, Written>,
}

/// Garbage-collection state: how far a partition has forgotten its finished tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forgetting {
    /// Number of `Forget` operations so far; only ever grows.
    pub count: u64,
    /// Garbage-collection watermark: highest id ever forgotten. An unknown task up to it may be a forgotten one. Only ever grows.
    pub watermark: Option<TaskId>,
    /// Tasks that the last `Forget` names, until every member has forgotten them; in order.
    pub ids: Vec<TaskId>,
    /// Viewstamp of that operation.
    pub at: Viewstamp,
}

impl Forgetting {
    fn digest(&self) -> u128 {
        if *self == Forgetting::default() { 0 } else { hash(3, self) }
    }
}

fn digest_of(cohort: Option<&Cohort>) -> u128 {
    cohort.map_or(0, |cohort| hash(4, cohort))
}

/// Digest of one schedule, so that a change of one schedule costs no more than that schedule.
fn digest_of_schedule(schedules: &Schedules, name: &str) -> u128 {
    schedules.entries().get(name).map_or(0, |standing| hash(6, &(name, standing)))
}

fn digest_of_watermark(watermark: Option<TaskId>) -> u128 {
    watermark.map_or(0, |watermark| hash(12, &watermark))
}

fn digest_of_metadata(metadata: Option<&Metadata>) -> u128 {
    metadata.map_or(0, |metadata| hash(5, metadata))
}

impl ClaimTable {
    /// Returns the table of a new partition.
    pub fn new(mut founders: Vec<ReplicaId>) -> ClaimTable {
        founders.sort_unstable();
        let digest = hash(0, &founders);
        ClaimTable { founders, digest, ..ClaimTable::default() }
    }

    /// Founds a cluster in the table of its metadata group.
    pub fn begin_metadata(&mut self, metadata: Metadata) {
        assert!(self.metadata.is_none() && self.cohort.is_none(), "a cluster is founded once");
        self.digest = self.digest.wrapping_add(digest_of_metadata(Some(&metadata)));
        self.metadata = Some(Box::new(metadata));
    }

    /// Returns the incrementally updated digest.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Computes the digest from scratch.
    pub fn digest_recomputed(&self) -> u128 {
        let entries = self.entries.iter().map(|(id, entry)| hash_of_entry(id, entry));
        let out = self.out.iter().map(|(at, items)| hash_of_endings(at, items));
        let once =
            [self.forgetting.digest(), digest_of(self.cohort.as_deref()), digest_of_metadata(self.metadata.as_deref())];
        let schedules = self.schedules.iter().flat_map(|schedules| {
            let entries = schedules.entries().keys().map(|name| digest_of_schedule(schedules, name));
            entries.chain([hash(7, &schedules.ever_set())])
        });
        let reserved = self.reserved.iter().map(|entry| hash(8, &entry));
        let slot_quotas = self.slot_quotas.iter().flat_map(|(queue, slot_quotas)| {
            slot_quotas.iter().map(move |(partition, slot_quota)| hash(9, &(queue, partition, slot_quota)))
        });
        let (decided, made, watermark) = self.ledger.parts();
        let transactions = decided.map(|entry| hash(10, &entry)).chain(made.map(|entry| hash(11, &entry)));
        let refused = self.ledger.refused().map(|entry| hash(13, &entry));
        let prepared = self.ledger.prepared().iter().map(|entry| hash(15, &entry));
        let spreads = self.ledger.spreads().iter().map(|entry| hash(16, &entry));
        let transactions = transactions.chain(refused).chain(prepared).chain(spreads);
        let transactions = transactions.chain([digest_of_watermark(watermark)]);
        let levels = self.levels.iter().map(|entry| hash(14, &entry));
        let all =
            entries.chain(out).chain(once).chain(schedules).chain(reserved).chain(slot_quotas).chain(transactions);
        all.chain(levels).fold(hash(0, &self.founders), u128::wrapping_add)
    }

    fn set_forgetting(&mut self, forgetting: Forgetting) {
        assert!(forgetting.count >= self.forgetting.count, "what was forgotten counts no more");
        assert!(forgetting.watermark >= self.forgetting.watermark, "the watermark of forgotten tasks goes back");
        self.digest = self.digest.wrapping_sub(self.forgetting.digest()).wrapping_add(forgetting.digest());
        self.forgetting = forgetting;
    }

    /// Returns the replica group. At genesis only the genesis record knows the order of preference.
    pub fn cohort(&self) -> Cohort {
        self.cohort.as_deref().cloned().unwrap_or_else(|| Cohort::founded(&self.founders))
    }

    /// Applies a step of a reconfiguration.
    fn change_cohort(&mut self, change: &Change, at: Viewstamp) -> Result<(), &'static str> {
        let after = self.cohort().changed(change, at)?;
        let (old, new) = (digest_of(self.cohort.as_deref()), digest_of(Some(&after)));
        self.digest = self.digest.wrapping_sub(old).wrapping_add(new);
        self.cohort = Some(Box::new(after));
        Ok(())
    }

    /// Drops the entries of ended tasks and exports their endings.
    fn export(&mut self, items: &Arc<[Ended]>, at: Viewstamp) {
        items.iter().for_each(|item| self.set_entry(item.id, None));
        self.digest = self.digest.wrapping_add(self.known.endings_come(at, items));
        let twice = self.out.insert(at, items.clone());
        assert!(twice.is_none(), "a viewstamp names one operation");
    }

    fn reserve(&mut self, id: TaskId, spec: &Arc<Spec>) -> Result<(), &'static str> {
        if self.reserved.contains_key(&id) {
            return Err("it is reserved already");
        }
        self.digest = self.digest.wrapping_add(hash(8, &(&id, spec)));
        let twice = self.reserved.insert(id, spec.clone());
        assert!(twice.is_none(), "a task is reserved twice");
        Ok(())
    }

    /// Changes a rate or concurrency limit of a queue.
    fn set_limit(&mut self, op: &Op, at: Viewstamp) {
        match op {
            Op::SlotQuota { queue, partition, slot_quota } => self.set_slot_quota(queue, *partition, *slot_quota),
            Op::Level { queue, level } => self.set_level(queue, *level, at),
            _ => {}
        }
    }

    fn set_slot_quota(&mut self, queue: &QueueName, partition: PartitionId, slot_quota: SlotQuota) {
        let slot_quotas = self.slot_quotas.entry(queue.clone()).or_default();
        let before = slot_quotas.remove(&partition);
        if slot_quota.count > 0 {
            slot_quotas.insert(partition, slot_quota);
        }
        let over = slot_quotas.is_empty();
        let digest = |slot_quota: Option<SlotQuota>| {
            slot_quota.map_or(0, |slot_quota| hash(9, &(queue, &partition, &slot_quota)))
        };
        let after = Some(slot_quota).filter(|slot_quota| slot_quota.count > 0);
        self.digest = self.digest.wrapping_sub(digest(before)).wrapping_add(digest(after));
        if over {
            self.slot_quotas.remove(queue);
        }
    }

    fn set_level(&mut self, queue: &QueueName, level: Option<Level>, at: Viewstamp) {
        let written = level.map(|level| (level, at));
        let before = match written {
            Some(written) => self.levels.insert(queue.clone(), written),
            None => self.levels.remove(queue),
        };
        let digest = |written: Option<Written>| written.map_or(0, |written| hash(14, &(queue, &written)));
        self.digest = self.digest.wrapping_sub(digest(before)).wrapping_add(digest(written));
    }

    /// Applies an operation about a transaction; returns the tasks whose claims end. An error is the transaction and the reason.
    fn transact(&mut self, op: &Op) -> Result<Vec<TaskId>, (TaskId, &'static str)> {
        let (id, applied) = match op {
            Op::Decide { id, decided } => (id, self.decide(*id, decided, None)),
            Op::DecideAcross { id, decided, spread } => (id, self.decide(*id, decided, Some(spread))),
            Op::Prepare { id, prepared } => (id, self.prepare(*id, prepared)),
            Op::Abort { id, round } => (id, self.abort(*id, *round)),
            Op::Refuse { id, refusal } => (id, self.refuse(*id, refusal)),
            Op::Made { id } => return self.make(*id).map_err(|why| (*id, why)),
            _ => return Ok(Vec::new()),
        };
        applied.map(|()| Vec::new()).map_err(|why| (*id, why))
    }

    fn decide(&mut self, id: TaskId, decided: &Arc<Decided>, spread: Option<&Spread>) -> Result<(), &'static str> {
        self.ledger.decide(id, decided, spread)?;
        let spread = spread.map_or(0, |spread| hash(16, &(&id, spread)));
        self.digest = self.digest.wrapping_add(hash(10, &(&id, decided))).wrapping_add(spread);
        Ok(())
    }

    fn prepare(&mut self, id: TaskId, prepared: &Arc<Prepared>) -> Result<(), &'static str> {
        self.ledger.prepare(id, prepared)?;
        self.digest = self.digest.wrapping_add(hash(15, &(&id, prepared)));
        Ok(())
    }

    fn abort(&mut self, id: TaskId, round: Round) -> Result<(), &'static str> {
        let prepared = self.ledger.abort(&id, round)?;
        self.digest = self.digest.wrapping_sub(hash(15, &(&id, &prepared)));
        Ok(())
    }

    /// Completes a transaction; returns the tasks whose claims end.
    fn make(&mut self, id: TaskId) -> Result<Vec<TaskId>, &'static str> {
        let before = digest_of_watermark(self.ledger.watermark());
        let made = self.ledger.make(&id)?;
        let decided = made.effects();
        let over = made.over.as_ref().map_or(0, |(id, stamps)| hash(11, &(id, stamps)));
        let gone = [
            before,
            over,
            made.decided.as_ref().map_or(0, |decided| hash(10, &(&id, decided))),
            made.prepared.as_ref().map_or(0, |prepared| hash(15, &(&id, prepared))),
            made.spread.as_ref().map_or(0, |spread| hash(16, &(&id, spread))),
        ];
        let gone = gone.into_iter().fold(0, u128::wrapping_add);
        let come = digest_of_watermark(self.ledger.watermark()).wrapping_add(hash(11, &(&id, &decided.stamps)));
        self.digest = self.digest.wrapping_sub(gone).wrapping_add(come);
        let mut freed = Vec::new();
        for (task, token, not_before_ms) in &decided.freed {
            let Some(mut entry) = self.entries.get(task).filter(|entry| entry.token == *token).cloned() else {
                continue;
            };
            match entry.state.clone() {
                // A claim given back is no attempt.
                ClaimState::Held => {
                    entry.attempt = entry.attempt.saturating_sub(1);
                    entry.state = ClaimState::Released { not_before_ms: *not_before_ms, end: decided.end.clone() };
                }
                ClaimState::Released { end, .. } => {
                    entry.state = ClaimState::Released { not_before_ms: *not_before_ms, end };
                }
                ClaimState::Void | ClaimState::Dead { .. } | ClaimState::Sealed { .. } => continue,
            }
            self.set_entry(*task, Some(entry));
            freed.push(*task);
        }
        Ok(freed)
    }

    fn refuse(&mut self, id: TaskId, refusal: &Refusal) -> Result<(), &'static str> {
        let before = digest_of_watermark(self.ledger.watermark());
        let over = self.ledger.refuse(id, refusal)?.map_or(0, |over| hash(13, &over));
        let come = digest_of_watermark(self.ledger.watermark()).wrapping_add(hash(13, &(&id, refusal)));
        self.digest = self.digest.wrapping_sub(before.wrapping_add(over)).wrapping_add(come);
        Ok(())
    }

    fn release(&mut self, ids: &[TaskId]) {
        for id in ids {
            if let Some(spec) = self.reserved.remove(id) {
                self.digest = self.digest.wrapping_sub(hash(8, &(id, &spec)));
            }
        }
    }

    /// The endings that travel with the table.
    pub fn endings(&self) -> impl Iterator<Item = &Ended> {
        self.out.values().flat_map(|items| items.iter())
    }

    /// Their size in bytes.
    pub fn out_bytes(&self) -> usize {
        self.endings().map(|ended| ended.facts.size_bytes()).sum()
    }

    fn clear_exported(&mut self, upto: &Viewstamp) {
        while let Some(entry) = self.out.first_entry().filter(|entry| entry.key() <= upto) {
            let (at, items) = entry.remove_entry();
            self.digest = self.digest.wrapping_sub(self.known.endings_go(&at, &items));
        }
    }

    /// Changes the metadata group's state.
    fn change_metadata(&mut self, operation: &Operation) -> Result<(), &'static str> {
        let metadata = self.metadata.as_mut().ok_or("only the root knows the cluster")?;
        let before = digest_of_metadata(Some(metadata));
        metadata.apply(operation).map_err(|_| "the cluster is not as it takes for granted")?;
        self.digest = self.digest.wrapping_sub(before).wrapping_add(digest_of_metadata(Some(metadata)));
        Ok(())
    }

    /// Changes the cron schedules of the cluster.
    fn change_schedules(&mut self, operation: &schedules::Operation) -> Result<(), &'static str> {
        if self.metadata.is_none() {
            return Err("only the root knows schedules");
        }
        let names = operation.names();
        let digest = |schedules: &Schedules| {
            let entries = names.iter().map(|name| digest_of_schedule(schedules, name));
            entries.fold(hash(7, &schedules.ever_set()), u128::wrapping_add)
        };
        let before = self.schedules.as_deref().map_or(0, digest);
        let mut first = None;
        let schedules = self.schedules.as_mut().unwrap_or_else(|| first.insert(Box::default()));
        schedules.apply(operation)?;
        self.digest = self.digest.wrapping_sub(before).wrapping_add(digest(schedules));
        self.schedules = self.schedules.take().or(first);
        Ok(())
    }

    /// Applies an operation about the cluster: its members and settings, schedules, or the cohort of the partition.
    fn change_cluster(&mut self, op: &Op, at: Viewstamp) -> Result<(), &'static str> {
        match op {
            Op::Cohort(change) => self.change_cohort(change, at),
            Op::Metadata(operation) => self.change_metadata(operation),
            Op::Schedules(operation) => self.change_schedules(operation),
            _ => Ok(()),
        }
    }

    /// Forgets tasks by the operation at viewstamp `at`.
    fn forget(&mut self, ids: &[TaskId], at: Viewstamp) -> Result<(), Misfit> {
        let misfit = |id: &TaskId, why| Misfit { at, id: *id, why };
        let Some(last) = ids.last() else { return Err(misfit(&TaskId::MIN, "it forgets nothing")) };
        if !self.forgetting.ids.is_empty() {
            return Err(misfit(last, "what was forgotten before it is not forgotten everywhere"));
        }
        if !ids.is_sorted_by(|one, next| one < next) {
            return Err(misfit(last, "what it forgets is not in order"));
        }
        if let Some(id) = ids.iter().find(|id| self.entries.contains_key(id)) {
            return Err(misfit(id, "a task with a claim is forgotten"));
        }
        let watermark = self.forgetting.watermark.max(Some(*last));
        self.set_forgetting(Forgetting { count: self.forgetting.count + 1, watermark, ids: ids.to_vec(), at });
        Ok(())
    }

    fn set_entry(&mut self, id: TaskId, entry: Option<ClaimEntry>) {
        if let Some(before) = self.entries.remove(&id) {
            self.digest = self.digest.wrapping_sub(self.known.entry_goes(&id, &before));
        }
        if let Some(entry) = entry {
            self.digest = self.digest.wrapping_add(self.known.entry_comes(id, &entry));
            self.entries.insert(id, entry);
        }
    }

    /// Applies the operation that leads to viewstamp `at`; returns the tasks whose claim entries changed. After an error the table is of
    /// no further use.
    pub fn apply(&mut self, op: &Op, at: Viewstamp) -> Result<Vec<TaskId>, Misfit> {
        let misfit = |id: &TaskId, why| Misfit { at, id: *id, why };
        let nothing = |()| Ok(Vec::new());
        match op {
            Op::Grant { claim, worker, lease_ms, granted_ms, items, session, lapsed } => {
                for (id, number) in items {
                    let token = Token { epoch: at.epoch, number: *number };
                    let past = self.past(id, *lapsed);
                    let entry = self.granted(id, token, at, (*claim, worker, *lease_ms, *granted_ms));
                    let entry = entry.map_err(|why| misfit(id, why))?;
                    self.set_entry(*id, Some(ClaimEntry { session: *session, past, ..entry }));
                }
                Ok(items.iter().map(|(id, _)| *id).collect())
            }
            Op::Renew { items } => {
                for (id, token, lease_ms, expires_ms) in items {
                    self.change(id, *token, |entry| {
                        entry.renewed = at;
                        entry.lease_ms = entry.lease_ms.max(*lease_ms);
                        entry.expires_ms = entry.expires_ms.max(*expires_ms);
                        entry.state == ClaimState::Held
                    })
                    .map_err(|why| misfit(id, why))?;
                }
                Ok(items.iter().map(|(id, ..)| *id).collect())
            }
            Op::Release { id, token, .. } | Op::Kill { id, token, .. } | Op::Seal { id, token, .. } => {
                self.change(id, *token, |entry| op.conclude(entry, at)).map_err(|why| misfit(id, why))?;
                Ok(vec![*id])
            }
            Op::Void { items } => {
                for (id, token) in items {
                    self.change(id, *token, |entry| {
                        entry.attempt = entry.attempt.saturating_sub(1);
                        std::mem::replace(&mut entry.state, ClaimState::Void) == ClaimState::Held
                    })
                    .map_err(|why| misfit(id, why))?;
                }
                Ok(items.iter().map(|(id, _)| *id).collect())
            }
            Op::Drop { items } => {
                self.export(items, at);
                Ok(items.iter().map(|item| item.id).collect())
            }
            Op::Reserve { id, spec } => self.reserve(*id, spec).map_or_else(|why| Err(misfit(id, why)), nothing),
            Op::Placed { ids } => {
                self.release(ids);
                Ok(Vec::new())
            }
            Op::Decide { .. }
            | Op::DecideAcross { .. }
            | Op::Prepare { .. }
            | Op::Abort { .. }
            | Op::Made { .. }
            | Op::Refuse { .. } => self.transact(op).map_err(|(id, why)| misfit(&id, why)),
            Op::SlotQuota { .. } | Op::Level { .. } => {
                self.set_limit(op, at);
                Ok(Vec::new())
            }
            Op::Forget { ids } => self.forget(ids, at).map(|()| Vec::new()),
            Op::Cohort(_) | Op::Metadata(_) | Op::Schedules(_) => {
                self.change_cluster(op, at).map_or_else(|why| Err(misfit(&TaskId::MIN, why)), nothing)
            }
            Op::Forgotten => {
                if self.forgetting.ids.is_empty() {
                    return Err(misfit(&TaskId::MIN, "there is nothing to be forgotten"));
                }
                self.set_forgetting(Forgetting { ids: Vec::new(), ..self.forgetting.clone() });
                Ok(Vec::new())
            }
            Op::Clear { upto } => {
                self.clear_exported(upto);
                Ok(Vec::new())
            }
        }
    }

    /// Returns the claim history before a grant; with `lapsed`, a held claim is recorded as expired.
    fn past(&self, id: &TaskId, lapsed: bool) -> Vec<(Token, PastClaim)> {
        let Some(before) = self.entries.get(id) else { return Vec::new() };
        let held = lapsed && before.state == ClaimState::Held;
        before.history_with(held.then(|| before.expired()))
    }

    /// Returns the claim entry after a grant, without its history.
    fn granted(
        &self,
        id: &TaskId,
        token: Token,
        at: Viewstamp,
        (claim, worker, lease_ms, granted_ms): (ClaimId, &Arc<str>, u64, u64),
    ) -> Result<ClaimEntry, &'static str> {
        let attempt = match self.entries.get(id) {
            None => 0,
            Some(before) => {
                if token <= before.token {
                    return Err("its token does not grow");
                }
                if before.state.is_final() {
                    return Err("it was given up or sealed");
                }
                if token.needs_seal() != before.token.needs_seal() {
                    return Err("whether its completion needs a seal was settled by its first claim");
                }
                before.attempt
            }
        };
        Ok(ClaimEntry {
            token,
            renewed: at,
            attempt: attempt + 1,
            worker: worker.clone(),
            claim,
            lease_ms,
            granted_ms,
            expires_ms: granted_ms.saturating_add(lease_ms),
            state: ClaimState::Held,
            past: Vec::new(),
            session: None,
        })
    }

    /// Changes the claim entry under its current token; `apply` returns whether the claim entry was as expected.
    fn change(
        &mut self,
        id: &TaskId,
        token: Token,
        apply: impl FnOnce(&mut ClaimEntry) -> bool,
    ) -> Result<(), &'static str> {
        let Some(mut entry) = self.entries.get(id).cloned() else { return Err("there is no claim") };
        if entry.token != token {
            return Err("the claim has another token");
        }
        if !apply(&mut entry) {
            return Err("the claim is not held");
        }
        self.set_entry(*id, Some(entry));
        Ok(())
    }

    /// Mutant: a renewal that takes the requested lease even if it is shorter.
    #[cfg(feature = "mutants")]
    pub fn shorten(&mut self, op: &Op) {
        let Op::Renew { items } = op else { return };
        for (id, _, lease_ms, expires_ms) in items {
            if let Some(mut entry) = self.entries.get(id).cloned() {
                (entry.lease_ms, entry.expires_ms) = (*lease_ms, *expires_ms);
                self.set_entry(*id, Some(entry));
            }
        }
    }

    /// Mutant: a candidate that takes over a newer table and keeps claims of its own beside it.
    #[cfg(feature = "mutants")]
    pub fn united(&self, newer: &Arc<ClaimTable>, config: &crate::config::Config) -> Arc<ClaimTable> {
        if !config.has(crate::config::Mutant::UnionOfClaims) {
            return newer.clone();
        }
        let mut united = newer.as_ref().clone();
        let kept =
            |(id, entry): &(&TaskId, &ClaimEntry)| newer.entries.get(id).is_none_or(|other| other.token < entry.token);
        for (id, entry) in self.entries.iter().filter(kept) {
            united.set_entry(*id, Some(entry.clone()));
        }
        Arc::new(united)
    }

    /// Highest epoch named by any token or viewstamp of a claim; never above the table's own.
    pub fn epoch_max(&self) -> Epoch {
        self.entries.values().map(|entry| entry.token.epoch.max(entry.renewed.epoch)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PAST_CLAIMS_MAX;
    use crate::task::Task;

    fn grant(id: TaskId, number: u64) -> Op {
        Op::Grant {
            claim: ClaimId(1),
            worker: "w".into(),
            lease_ms: 1_000,
            granted_ms: 5_000,
            items: vec![(id, number)],
            session: None,
            lapsed: false,
        }
    }

    fn at(length: u64) -> Viewstamp {
        Viewstamp { epoch: 1, length }
    }

    const ID: TaskId = TaskId::MIN;

    #[test]
    fn the_digest_is_kept_by_every_change() {
        let mut table = ClaimTable::new(Vec::new());
        let token = Token { epoch: 1, number: 1 };
        let queue = QueueName::new("mail").expect("a name");
        let drop = Op::Drop { items: Arc::from([Ended { id: ID, facts: Task::default() }]) };
        let ops = [
            grant(ID, 1),
            Op::Renew { items: vec![(ID, token, 2_000, 9_000)] },
            Op::Release { id: ID, token, not_before_ms: 0, at_ms: 6_000, failed: true, end: None },
            grant(ID, 2),
            Op::Void { items: vec![(ID, Token { epoch: 1, number: 2 })] },
            drop,
            Op::Clear { upto: at(6) },
            Op::Level { queue: queue.clone(), level: Some(Level { millionths: 1_500_000, given: 2 }) },
            Op::Level { queue: queue.clone(), level: Some(Level { millionths: 0, given: 3 }) },
            Op::Level { queue, level: None },
        ];
        for (length, op) in (1..).zip(&ops) {
            table.apply(op, at(length)).unwrap();
            assert_eq!(table.digest(), table.digest_recomputed(), "after {op:?}");
        }
        assert_eq!(table, ClaimTable::new(Vec::new()));
    }

    #[test]
    fn one_forgetting_ends_before_the_next_begins_and_the_floor_only_rises() {
        let id = |time_ms| TaskId::new(time_ms, 0, 1, 2);
        let forget = |times: &[u64]| Op::Forget { ids: times.iter().map(|time_ms| id(*time_ms)).collect() };
        let mut table = ClaimTable::new(Vec::new());
        assert!(table.clone().apply(&Op::Forgotten, at(1)).is_err());
        assert!(table.clone().apply(&forget(&[]), at(1)).is_err());
        assert!(table.clone().apply(&forget(&[7, 5]), at(1)).is_err());
        table.apply(&forget(&[5, 7]), at(1)).unwrap();
        assert!(table.clone().apply(&forget(&[8]), at(2)).is_err());
        table.apply(&Op::Forgotten, at(2)).unwrap();
        table.apply(&forget(&[6]), at(3)).unwrap();
        let forgetting = &table.forgetting;
        assert_eq!((forgetting.count, forgetting.watermark, forgetting.at), (2, Some(id(7)), at(3)));
        assert_eq!(table.digest(), table.digest_recomputed());
        table.apply(&Op::Forgotten, at(4)).unwrap();
        table.apply(&grant(ID, 1), at(5)).unwrap();
        assert!(table.apply(&Op::Forget { ids: vec![ID] }, at(6)).is_err(), "it is claimed");
    }

    // S36
    #[test]
    fn a_renewal_never_shortens() {
        let mut table = ClaimTable::new(Vec::new());
        table.apply(&grant(ID, 1), at(1)).unwrap();
        let token = Token { epoch: 1, number: 1 };
        table.apply(&Op::Renew { items: vec![(ID, token, 100, 5_100)] }, at(2)).unwrap();
        assert_eq!((table.entries[&ID].lease_ms, table.entries[&ID].expires_ms), (1_000, 6_000));
    }

    // S19
    #[test]
    fn tokens_of_a_task_grow() {
        let mut table = ClaimTable::new(Vec::new());
        table.apply(&grant(ID, 2), at(1)).unwrap();
        assert!(table.clone().apply(&grant(ID, 2), at(2)).is_err());
        assert!(table.clone().apply(&grant(ID, 1), at(2)).is_err());
        assert!(table.apply(&grant(ID, 3), at(2)).is_ok());
    }

    #[test]
    fn history_is_bounded_and_leaves_out_what_nobody_was_told() {
        let mut table = ClaimTable::new(Vec::new());
        for number in 1..=100 {
            table.apply(&grant(ID, number), at(number)).unwrap();
        }
        assert_eq!(table.entries[&ID].history().len(), PAST_CLAIMS_MAX);
        assert_eq!(table.entries[&ID].attempt, 100);
        table.apply(&Op::Void { items: vec![(ID, Token { epoch: 1, number: 100 })] }, at(101)).unwrap();
        assert_eq!(table.entries[&ID].history().last().unwrap().0.number, 99);
        assert_eq!(table.entries[&ID].attempt, 99);
    }
}
