//! What tasks mean to each other: dependencies, unique keys, transactions, children, dead letters.

pub mod children;
pub mod dependencies;
pub mod redrive;
pub mod transactions;
pub mod uniques;

use children::Deliveries;
use dependencies::Dependencies;
use norn_wire::PartitionId;
use redrive::DeadLetters;
use transactions::Transactions;
use uniques::Uniques;

/// What tasks wait for, and what is owed to them. Its fields are private to this folder.
#[derive(Debug, Default)]
pub struct Workflow {
    dependencies: Dependencies,
    /// Child tasks that completions brought, and that are being enqueued.
    deliveries: Deliveries,
    /// Dead-letter copies that this node owes.
    dead_letters: DeadLetters,
    uniques: Uniques,
    transactions: Transactions,
}

impl Workflow {
    /// Forgets what only the leader of the partition keeps.
    pub(crate) fn step_down(&mut self, partition: PartitionId) {
        self.dependencies.step_down(partition);
    }
}

#[cfg(test)]
impl Workflow {
    pub(crate) fn kept_bytes(&self) -> usize {
        self.transactions.kept_bytes()
    }
}
