//! What a verb hands to a session.

use crate::wire::{Acks, Request, Spec, TaskId};

/// A task to enqueue, before its session has minted an id and resolved its delay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Given by a caller that repeats an enqueue; absent otherwise.
    pub id: Option<TaskId>,
    /// What the task is.
    pub spec: Spec,
    /// Not claimable for this long after the session takes it; 0 means at once.
    pub delay_ms: u64,
}

/// One call of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Stores tasks.
    Enqueue {
        /// At most [`crate::wire::limits::BATCH_TASKS_MAX`].
        drafts: Vec<Draft>,
        /// Durability.
        acks: Acks,
    },
    /// Anything else. The session fills in an `at_ms` of 0 and a `ClaimId` of 0.
    Request(Request),
}
