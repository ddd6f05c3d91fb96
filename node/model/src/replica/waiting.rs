//! How long claimable tasks have waited, for observers.

use super::Partition;
use crate::claim_table::table::ClaimState;
use crate::task::{Content, Outline, Task};
use norn_wire::{QueueName, TaskId};

impl Partition {
    /// Since when the claimable task of a queue waits that waits for longest, by the wall clock in milliseconds: since it was enqueued,
    /// its delay was over, or its last claim ended. Of many tasks that were delayed, at most `looks_max` are looked at.
    pub fn ready_since_ms(&self, queue: &QueueName, looks_max: usize) -> Option<u64> {
        let since_ms = |id: &TaskId| self.store.task(id).map_or(id.time_ms(), |task| self.task_since_ms(id, task));
        self.store.index().queue(queue)?.ready_since_ms(looks_max, since_ms)
    }

    fn task_since_ms(&self, id: &TaskId, task: &Task<Outline>) -> u64 {
        let delay_ms = || task.spec.as_ref().map_or(0, Content::not_before_ms);
        let free_ms = match self.consensus.claim_entry(id) {
            None => delay_ms(),
            Some(entry) => match &entry.state {
                ClaimState::Void => delay_ms(),
                ClaimState::Released { not_before_ms, end } => {
                    (*not_before_ms).max(end.as_ref().map_or(0, |end| end.at_ms))
                }
                ClaimState::Held => entry.expires_ms,
                ClaimState::Sealed { .. } | ClaimState::Dead { .. } => 0,
            },
        };
        free_ms.max(id.time_ms())
    }
}
