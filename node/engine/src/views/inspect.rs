//! Inspection for checkers: the state that a simulator's properties are about.

use crate::Node;
use crate::context::timers::Key;
use norn_model::claim_table::table::ClaimTable;
use norn_model::cohort::{Cohort, Role};
use norn_model::data_loss::DataLoss;
use norn_model::task::{Outline, Task, Wanted};
use norn_model::viewstamp::{ReplicaId, Viewstamp};
use norn_wire::{NodeId, PartitionId, TaskId};

/// State of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaView {
    /// Partition.
    pub partition: PartitionId,
    /// Highest epoch promised.
    pub promised: u64,
    /// Candidate that has the vote in it.
    pub voted_for: Option<ReplicaId>,
    /// Viewstamp of the table.
    pub viewstamp: Viewstamp,
    /// Digest of the table.
    pub digest: u128,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it leads and may grant.
    pub established: bool,
    /// At a leader: viewstamp of the table that it installed under its own epoch.
    pub base: Option<Viewstamp>,
    /// Operations known to be committed in the viewstamp's epoch.
    pub commit: u64,
    /// Digest of all tasks together.
    pub content: u128,
    /// Number of tasks.
    pub tasks: usize,
    /// Number of claims in the table of tasks that are known.
    pub claims: usize,
    /// Number of transactions in the table that are decided or prepared and not made.
    pub transactions: usize,
    /// State that may be missing.
    pub data_loss: DataLoss,
    /// Version of the cohort in its table.
    pub version: Viewstamp,
    /// Role in that cohort.
    pub role: Option<Role>,
    /// Whether it has nothing but a promise.
    pub blank: bool,
    /// Whether its data loss is of lost records.
    pub lost: bool,
    /// Whether no reconfiguration is under way.
    pub stable: bool,
    /// Draining replicas' nodes.
    pub draining_replicas: Vec<NodeId>,
    /// Number of tasks with bodies, results or log entries that the log could not give back.
    pub bodies_lost: usize,
    /// How many times it has forgotten tasks.
    pub forgets: u64,
    /// Whether enough peers have answered this start for it to promise anything.
    pub answered: bool,
    /// Lower bounds in milliseconds on the ages of leases granted or renewed up to these viewstamps.
    pub ages: Vec<(Viewstamp, u64)>,
}

impl Node {
    /// Returns the state of all replicas of this node.
    pub fn inspect(&self) -> Vec<ReplicaView> {
        self.partitions
            .values()
            .map(|replica| {
                let consensus = &replica.consensus;
                ReplicaView {
                    partition: replica.id,
                    promised: consensus.promised,
                    voted_for: consensus.voted_for,
                    viewstamp: consensus.viewstamp,
                    digest: consensus.table.digest(),
                    leads: consensus.leading().is_some(),
                    established: consensus.established(),
                    base: consensus.leading().map(|leading| leading.base),
                    commit: consensus.commit,
                    content: replica.store.tree().sum(),
                    tasks: replica.store.count(),
                    transactions: consensus.table.ledger.decided().len() + consensus.table.ledger.prepared().len(),
                    claims: consensus.table.entries.keys().filter(|id| !replica.store.lacks_spec(id)).count(),
                    data_loss: replica.loss_recovery.data_loss,
                    version: replica.cohort().version,
                    role: Some(replica.role()).filter(|role| *role > Role::Outside),
                    blank: replica.is_blank(),
                    lost: !replica.loss_recovery.data_loss.is_whole() && replica.loss_recovery.losses != 0,
                    stable: replica.cohort().is_stable(),
                    draining_replicas: replica
                        .cohort()
                        .draining_replicas
                        .iter()
                        .map(|draining_replica| draining_replica.slot.replica.node)
                        .collect(),
                    bodies_lost: self.bodies_lost(replica.id),
                    forgets: replica.forgets(),
                    answered: replica.answered,
                    ages: consensus.ages(self.now.mono_us, &self.config).points().to_vec(),
                }
            })
            .collect()
    }

    /// Cohorts of its partitions, by the tables of its replicas.
    pub fn cohorts(&self) -> impl Iterator<Item = (PartitionId, &Cohort)> {
        self.partitions.values().filter(|replica| !replica.is_blank()).map(|replica| (replica.id, replica.cohort()))
    }

    /// Other partitions on whose leaders it depends how long a task stays locked by a transaction.
    pub fn locked_for(&self, partition: PartitionId, id: &TaskId) -> Vec<PartitionId> {
        let Some(replica) = self.partitions.get(&partition) else { return Vec::new() };
        let ledger = &replica.consensus.table.ledger;
        let has = |transaction: &TaskId| ledger.touched_by(transaction).contains(id);
        let prepared = ledger.prepared().iter().filter(|(transaction, _)| has(transaction));
        let spread = ledger.spreads().iter().filter(|(transaction, _)| has(transaction));
        let others = spread.flat_map(|(_, spread)| spread.partitions.iter().copied());
        prepared.map(|(_, prepared)| prepared.coordinator).chain(others).collect()
    }

    /// Returns a task as this node's replica knows it.
    pub fn task(&self, partition: PartitionId, id: &TaskId) -> Option<&Task<Outline>> {
        self.partitions.get(&partition)?.store.task(id)
    }

    /// All tasks of a replica of this node, each with what to ask of the log to complete it, and all tombstones.
    pub fn tasks(&self, partition: PartitionId) -> impl Iterator<Item = (TaskId, (Task, Vec<Wanted>))> {
        self.partitions.get(&partition).into_iter().flat_map(|replica| {
            let tasks = replica.store.after(None).map(|(id, task)| (*id, task.whole(*id)));
            tasks.chain(
                replica
                    .store
                    .tombstones_after(None)
                    .map(|(id, tombstone)| (*id, (Task::from_tombstone(*tombstone), Vec::new()))),
            )
        })
    }

    /// Payload hints: facts kept for partitions that are not held here.
    pub fn hints(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.repair.kept_after(None).map(|((_, id), task, _)| (id, task))
    }

    /// Returns the table of a replica of this node.
    pub fn table(&self, partition: PartitionId) -> Option<&ClaimTable> {
        self.partitions.get(&partition).map(|replica| &replica.consensus.table)
    }

    /// Checks what must hold at the end of every step; returns the first violation with its evidence.
    pub fn check(&self) -> Result<(), String> {
        let now = self.now;
        self.check_loads()?;
        self.check_hints()?;
        self.check_bodies()?;
        for (id, replica) in self.partitions.iter() {
            if replica.consensus.leading().is_some() != self.led.contains(id) {
                return Err(format!("{id:?}: whether it is led here is known in two ways"));
            }
            replica.check(now).map_err(|violation| format!("{id:?}: {violation}"))?;
            let delayed = replica.store.index().first_due_ms().is_some();
            if delayed && !self.timers.is_set(Key::Delayed(*id)) {
                return Err(format!("{id:?}: a task is delayed, and no timer is set for it"));
            }
        }
        Ok(())
    }
}
