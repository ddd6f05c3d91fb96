//! Claim table of one partition: the state that its operations build, one after the other.
//!
//! The leader decides whether an operation is allowed before it appends it; [`Table::apply`] only checks that it still fits.

pub use super::cell::{Cell, CellState};
use super::ledger::{Decided, Ledger, Making};
use super::levels::{Level, Written};
pub use super::operation::{Ended, Op, Quota};
use crate::cohort::{Change, Cohort};
use crate::root::{Operation, Root};
use crate::schedules;
use crate::schedules::Schedules;
use crate::task::PastClaim;
use crate::viewstamp::{Epoch, ReplicaId, Viewstamp};
use norn_wire::transaction::Refusal;
use norn_wire::{ClaimId, PartitionId, QueueName, Spec, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

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
pub struct Table {
    /// Members at genesis, sorted.
    pub founders: Vec<ReplicaId>,
    /// Claims of tasks that have not ended.
    pub cells: BTreeMap<TaskId, Cell>,
    /// Endings that a majority is not yet known to have on disk, by the operation that dropped their claims.
    pub out: BTreeMap<Viewstamp, Vec<Ended>>,
    /// Sum of the hashes of all other content, updated by every change.
    digest: u128,
    /// Garbage collection of finished tasks.
    #[serde(default)]
    pub forgetting: Forgetting,
    /// Replica group, once it differs from that of genesis.
    #[serde(default)]
    pub cohort: Option<Box<Cohort>>,
    /// Members and settings of the cluster: only in the table of the metadata group, unless that table is blank.
    #[serde(default)]
    pub root: Option<Box<Root>>,
    /// Cron schedules of the cluster: beside `root`, once any schedule was set.
    #[serde(default)]
    pub schedules: Option<Box<Schedules>>,
    /// Tasks with reserved unique keys that may not be facts yet.
    #[serde(default)]
    pub reserved: BTreeMap<TaskId, Arc<Spec>>,
    /// Concurrency quotas of each partition, for limited queues whose coordinator partition this is.
    #[serde(default)]
    pub quotas: BTreeMap<QueueName, BTreeMap<PartitionId, Quota>>,
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
    pub floor: Option<TaskId>,
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

fn hash(kind: u8, value: &impl Serialize) -> u128 {
    let mut bytes = Vec::with_capacity(256);
    bytes.push(kind);
    value.serialize(&mut rmp_serde::Serializer::new(&mut bytes)).expect("table entries always encode");
    xxh3_128(&bytes)
}

fn digest_of(cohort: Option<&Cohort>) -> u128 {
    cohort.map_or(0, |cohort| hash(4, cohort))
}

/// Digest of one schedule, so that a change of one schedule costs no more than that schedule.
fn digest_of_schedule(schedules: &Schedules, name: &str) -> u128 {
    schedules.entries().get(name).map_or(0, |standing| hash(6, &(name, standing)))
}

fn digest_of_floor(floor: Option<TaskId>) -> u128 {
    floor.map_or(0, |floor| hash(12, &floor))
}

fn digest_of_root(root: Option<&Root>) -> u128 {
    root.map_or(0, |root| hash(5, root))
}

impl Table {
    /// Returns the table of a new partition.
    pub fn new(mut founders: Vec<ReplicaId>) -> Table {
        founders.sort_unstable();
        let digest = hash(0, &founders);
        Table { founders, digest, ..Table::default() }
    }

    /// Founds a cluster in the table of its metadata group.
    pub fn begin_root(&mut self, root: Root) {
        assert!(self.root.is_none() && self.cohort.is_none(), "a cluster is founded once");
        self.digest = self.digest.wrapping_add(digest_of_root(Some(&root)));
        self.root = Some(Box::new(root));
    }

    /// Returns the incrementally updated digest.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Computes the digest from scratch.
    pub fn digest_recomputed(&self) -> u128 {
        let cells = self.cells.iter().map(|(id, cell)| hash(1, &(id, cell)));
        let out = self.out.iter().map(|entry| hash(2, &entry));
        let once = [self.forgetting.digest(), digest_of(self.cohort.as_deref()), digest_of_root(self.root.as_deref())];
        let schedules = self.schedules.iter().flat_map(|schedules| {
            let entries = schedules.entries().keys().map(|name| digest_of_schedule(schedules, name));
            entries.chain([hash(7, &schedules.ever_set())])
        });
        let reserved = self.reserved.iter().map(|entry| hash(8, &entry));
        let quotas = self.quotas.iter().flat_map(|(queue, quotas)| {
            quotas.iter().map(move |(partition, quota)| hash(9, &(queue, partition, quota)))
        });
        let (decided, made, floor) = self.ledger.parts();
        let transactions = decided.map(|entry| hash(10, &entry)).chain(made.map(|entry| hash(11, &entry)));
        let refused = self.ledger.refused().map(|entry| hash(13, &entry));
        let transactions = transactions.chain(refused).chain([digest_of_floor(floor)]);
        let levels = self.levels.iter().map(|entry| hash(14, &entry));
        let all = cells.chain(out).chain(once).chain(schedules).chain(reserved).chain(quotas).chain(transactions);
        all.chain(levels).fold(hash(0, &self.founders), u128::wrapping_add)
    }

    fn set_forgetting(&mut self, forgetting: Forgetting) {
        assert!(forgetting.count >= self.forgetting.count, "what was forgotten counts no more");
        assert!(forgetting.floor >= self.forgetting.floor, "the watermark of forgotten tasks goes back");
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
    fn export(&mut self, items: &[Ended], at: Viewstamp) {
        items.iter().for_each(|item| self.set_cell(item.id, None));
        self.digest = self.digest.wrapping_add(hash(2, &(&at, items)));
        let twice = self.out.insert(at, items.to_vec());
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
            Op::Quota { queue, partition, quota } => self.set_quota(queue, *partition, *quota),
            Op::Level { queue, level } => self.set_level(queue, *level, at),
            _ => {}
        }
    }

    fn set_quota(&mut self, queue: &QueueName, partition: PartitionId, quota: Quota) {
        let quotas = self.quotas.entry(queue.clone()).or_default();
        let before = quotas.remove(&partition);
        if quota.count > 0 {
            quotas.insert(partition, quota);
        }
        let over = quotas.is_empty();
        let digest = |quota: Option<Quota>| quota.map_or(0, |quota| hash(9, &(queue, &partition, &quota)));
        let after = Some(quota).filter(|quota| quota.count > 0);
        self.digest = self.digest.wrapping_sub(digest(before)).wrapping_add(digest(after));
        if over {
            self.quotas.remove(queue);
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

    fn decide(&mut self, id: TaskId, decided: &Arc<Decided>) -> Result<(), &'static str> {
        self.ledger.decide(id, decided)?;
        self.digest = self.digest.wrapping_add(hash(10, &(&id, decided)));
        Ok(())
    }

    /// Completes a transaction; returns the tasks whose claims end.
    fn make(&mut self, id: TaskId) -> Result<Vec<TaskId>, &'static str> {
        let before = digest_of_floor(self.ledger.floor());
        let Making { decided, over } = self.ledger.make(&id)?;
        let over = over.map_or(0, |(id, stamps)| hash(11, &(&id, &stamps)));
        let gone = before.wrapping_add(over).wrapping_add(hash(10, &(&id, &decided)));
        let come = digest_of_floor(self.ledger.floor()).wrapping_add(hash(11, &(&id, &decided.stamps)));
        self.digest = self.digest.wrapping_sub(gone).wrapping_add(come);
        let mut freed = Vec::new();
        for (task, token, not_before_ms) in &decided.freed {
            let Some(mut cell) = self.cells.get(task).filter(|cell| cell.token == *token).cloned() else { continue };
            match cell.state.clone() {
                // A claim given back is no attempt.
                CellState::Held => {
                    cell.attempt = cell.attempt.saturating_sub(1);
                    cell.state = CellState::Released { not_before_ms: *not_before_ms, end: decided.end.clone() };
                }
                CellState::Released { end, .. } => {
                    cell.state = CellState::Released { not_before_ms: *not_before_ms, end };
                }
                CellState::Void | CellState::Dead { .. } | CellState::Sealed { .. } => continue,
            }
            self.set_cell(*task, Some(cell));
            freed.push(*task);
        }
        Ok(freed)
    }

    fn refuse(&mut self, id: TaskId, refusal: &Refusal) -> Result<(), &'static str> {
        let before = digest_of_floor(self.ledger.floor());
        let over = self.ledger.refuse(id, refusal)?.map_or(0, |over| hash(13, &over));
        let come = digest_of_floor(self.ledger.floor()).wrapping_add(hash(13, &(&id, refusal)));
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

    /// Size in bytes of the endings that travel with the table.
    pub fn out_bytes(&self) -> usize {
        self.out.values().flatten().map(|ended| ended.facts.size_bytes()).sum()
    }

    fn clear_exported(&mut self, upto: &Viewstamp) {
        while let Some(entry) = self.out.first_entry().filter(|entry| entry.key() <= upto) {
            self.digest = self.digest.wrapping_sub(hash(2, &(entry.key(), entry.get())));
            entry.remove();
        }
    }

    /// Changes the metadata group's state.
    fn change_root(&mut self, operation: &Operation) -> Result<(), &'static str> {
        let root = self.root.as_mut().ok_or("only the root knows the cluster")?;
        let before = digest_of_root(Some(root));
        root.apply(operation).map_err(|_| "the cluster is not as it takes for granted")?;
        self.digest = self.digest.wrapping_sub(before).wrapping_add(digest_of_root(Some(root)));
        Ok(())
    }

    /// Changes the cron schedules of the cluster.
    fn change_schedules(&mut self, operation: &schedules::Operation) -> Result<(), &'static str> {
        if self.root.is_none() {
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
        if let Some(id) = ids.iter().find(|id| self.cells.contains_key(id)) {
            return Err(misfit(id, "a task with a claim is forgotten"));
        }
        let floor = self.forgetting.floor.max(Some(*last));
        self.set_forgetting(Forgetting { count: self.forgetting.count + 1, floor, ids: ids.to_vec(), at });
        Ok(())
    }

    fn set_cell(&mut self, id: TaskId, cell: Option<Cell>) {
        if let Some(cell) = &cell {
            self.digest = self.digest.wrapping_add(hash(1, &(&id, cell)));
        }
        let before = match cell {
            Some(cell) => self.cells.insert(id, cell),
            None => self.cells.remove(&id),
        };
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(hash(1, &(&id, &before)));
        }
    }

    /// Applies the operation that leads to viewstamp `at`; returns the tasks whose cells changed. After an error the table is of
    /// no further use.
    pub fn apply(&mut self, op: &Op, at: Viewstamp) -> Result<Vec<TaskId>, Misfit> {
        let misfit = |id: &TaskId, why| Misfit { at, id: *id, why };
        let nothing = |()| Ok(Vec::new());
        match op {
            Op::Grant { claim, worker, lease_ms, granted_ms, items, session, lapsed } => {
                for (id, number) in items {
                    let token = Token { epoch: at.epoch, number: *number };
                    let past = self.past(id, *lapsed);
                    let cell = self.granted(id, token, at, (*claim, worker, *lease_ms, *granted_ms));
                    let cell = cell.map_err(|why| misfit(id, why))?;
                    self.set_cell(*id, Some(Cell { session: *session, past, ..cell }));
                }
                Ok(items.iter().map(|(id, _)| *id).collect())
            }
            Op::Renew { items } => {
                for (id, token, lease_ms, expires_ms) in items {
                    self.change(id, *token, |cell| {
                        cell.renewed = at;
                        cell.lease_ms = cell.lease_ms.max(*lease_ms);
                        cell.expires_ms = cell.expires_ms.max(*expires_ms);
                        cell.state == CellState::Held
                    })
                    .map_err(|why| misfit(id, why))?;
                }
                Ok(items.iter().map(|(id, ..)| *id).collect())
            }
            Op::Release { id, token, .. } | Op::Kill { id, token, .. } | Op::Seal { id, token, .. } => {
                self.change(id, *token, |cell| op.conclude(cell, at)).map_err(|why| misfit(id, why))?;
                Ok(vec![*id])
            }
            Op::Void { items } => {
                for (id, token) in items {
                    self.change(id, *token, |cell| {
                        cell.attempt = cell.attempt.saturating_sub(1);
                        std::mem::replace(&mut cell.state, CellState::Void) == CellState::Held
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
            Op::Decide { id, decided } => self.decide(*id, decided).map_or_else(|why| Err(misfit(id, why)), nothing),
            Op::Made { id } => self.make(*id).map_err(|why| misfit(id, why)),
            Op::Refuse { id, refusal } => self.refuse(*id, refusal).map_or_else(|why| Err(misfit(id, why)), nothing),
            Op::Quota { .. } | Op::Level { .. } => {
                self.set_limit(op, at);
                Ok(Vec::new())
            }
            Op::Forget { ids } => self.forget(ids, at).map(|()| Vec::new()),
            Op::Cohort(change) => {
                self.change_cohort(change, at).map_err(|why| misfit(&TaskId::MIN, why))?;
                Ok(Vec::new())
            }
            Op::Root(operation) => {
                self.change_root(operation).map_err(|why| misfit(&TaskId::MIN, why))?;
                Ok(Vec::new())
            }
            Op::Schedules(operation) => {
                self.change_schedules(operation).map_err(|why| misfit(&TaskId::MIN, why))?;
                Ok(Vec::new())
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
        let Some(before) = self.cells.get(id) else { return Vec::new() };
        let held = lapsed && before.state == CellState::Held;
        before.history_with(held.then(|| before.expired()))
    }

    /// Returns the cell after a grant, without its history.
    fn granted(
        &self,
        id: &TaskId,
        token: Token,
        at: Viewstamp,
        (claim, worker, lease_ms, granted_ms): (ClaimId, &Arc<str>, u64, u64),
    ) -> Result<Cell, &'static str> {
        let attempt = match self.cells.get(id) {
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
        Ok(Cell {
            token,
            renewed: at,
            attempt: attempt + 1,
            worker: worker.clone(),
            claim,
            lease_ms,
            granted_ms,
            expires_ms: granted_ms.saturating_add(lease_ms),
            state: CellState::Held,
            past: Vec::new(),
            session: None,
        })
    }

    /// Changes the cell under its current token; `apply` returns whether the cell was as expected.
    fn change(&mut self, id: &TaskId, token: Token, apply: impl FnOnce(&mut Cell) -> bool) -> Result<(), &'static str> {
        let Some(mut cell) = self.cells.get(id).cloned() else { return Err("there is no claim") };
        if cell.token != token {
            return Err("the claim has another token");
        }
        if !apply(&mut cell) {
            return Err("the claim is not held");
        }
        self.set_cell(*id, Some(cell));
        Ok(())
    }

    /// Mutant: a renewal that takes the requested lease even if it is shorter.
    #[cfg(feature = "mutants")]
    pub fn shorten(&mut self, op: &Op) {
        let Op::Renew { items } = op else { return };
        for (id, _, lease_ms, expires_ms) in items {
            if let Some(mut cell) = self.cells.get(id).cloned() {
                (cell.lease_ms, cell.expires_ms) = (*lease_ms, *expires_ms);
                self.set_cell(*id, Some(cell));
            }
        }
    }

    /// Mutant: a candidate that takes over a newer table and keeps claims of its own beside it.
    #[cfg(feature = "mutants")]
    pub fn united(&self, newer: &Arc<Table>, config: &crate::config::Config) -> Arc<Table> {
        if !config.has(crate::config::Mutant::UnionOfClaims) {
            return newer.clone();
        }
        let mut united = newer.as_ref().clone();
        let kept = |(id, cell): &(&TaskId, &Cell)| newer.cells.get(id).is_none_or(|other| other.token < cell.token);
        for (id, cell) in self.cells.iter().filter(kept) {
            united.set_cell(*id, Some(cell.clone()));
        }
        Arc::new(united)
    }

    /// Highest epoch named by any token or viewstamp of a claim; never above the table's own.
    pub fn epoch_max(&self) -> Epoch {
        self.cells.values().map(|cell| cell.token.epoch.max(cell.renewed.epoch)).max().unwrap_or(0)
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
        let mut table = Table::new(Vec::new());
        let token = Token { epoch: 1, number: 1 };
        let queue = QueueName::new("mail").expect("a name");
        let drop = Op::Drop { items: vec![Ended { id: ID, facts: Task::default() }] };
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
        assert_eq!(table, Table::new(Vec::new()));
    }

    #[test]
    fn one_forgetting_ends_before_the_next_begins_and_the_floor_only_rises() {
        let id = |time_ms| TaskId::new(time_ms, 0, 1, 2);
        let forget = |times: &[u64]| Op::Forget { ids: times.iter().map(|time_ms| id(*time_ms)).collect() };
        let mut table = Table::new(Vec::new());
        assert!(table.clone().apply(&Op::Forgotten, at(1)).is_err());
        assert!(table.clone().apply(&forget(&[]), at(1)).is_err());
        assert!(table.clone().apply(&forget(&[7, 5]), at(1)).is_err());
        table.apply(&forget(&[5, 7]), at(1)).unwrap();
        assert!(table.clone().apply(&forget(&[8]), at(2)).is_err());
        table.apply(&Op::Forgotten, at(2)).unwrap();
        table.apply(&forget(&[6]), at(3)).unwrap();
        let forgetting = &table.forgetting;
        assert_eq!((forgetting.count, forgetting.floor, forgetting.at), (2, Some(id(7)), at(3)));
        assert_eq!(table.digest(), table.digest_recomputed());
        table.apply(&Op::Forgotten, at(4)).unwrap();
        table.apply(&grant(ID, 1), at(5)).unwrap();
        assert!(table.apply(&Op::Forget { ids: vec![ID] }, at(6)).is_err(), "it is claimed");
    }

    // S36
    #[test]
    fn a_renewal_never_shortens() {
        let mut table = Table::new(Vec::new());
        table.apply(&grant(ID, 1), at(1)).unwrap();
        let token = Token { epoch: 1, number: 1 };
        table.apply(&Op::Renew { items: vec![(ID, token, 100, 5_100)] }, at(2)).unwrap();
        assert_eq!((table.cells[&ID].lease_ms, table.cells[&ID].expires_ms), (1_000, 6_000));
    }

    // S19
    #[test]
    fn tokens_of_a_task_grow() {
        let mut table = Table::new(Vec::new());
        table.apply(&grant(ID, 2), at(1)).unwrap();
        assert!(table.clone().apply(&grant(ID, 2), at(2)).is_err());
        assert!(table.clone().apply(&grant(ID, 1), at(2)).is_err());
        assert!(table.apply(&grant(ID, 3), at(2)).is_ok());
    }

    #[test]
    fn history_is_bounded_and_leaves_out_what_nobody_was_told() {
        let mut table = Table::new(Vec::new());
        for number in 1..=100 {
            table.apply(&grant(ID, number), at(number)).unwrap();
        }
        assert_eq!(table.cells[&ID].history().len(), PAST_CLAIMS_MAX);
        assert_eq!(table.cells[&ID].attempt, 100);
        table.apply(&Op::Void { items: vec![(ID, Token { epoch: 1, number: 100 })] }, at(101)).unwrap();
        assert_eq!(table.cells[&ID].history().last().unwrap().0.number, 99);
        assert_eq!(table.cells[&ID].attempt, 99);
    }
}
