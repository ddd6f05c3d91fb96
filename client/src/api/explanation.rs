//! Explanations of what keeps tasks from being claimed or from ending.

use super::GroupProgress;
use super::form::{text, texts};
use crate::client::why::Cause;
use norn_wire::{State, TaskId};
use serde::{Deserialize, Serialize};

/// Why a task is in its present state: answer to `why`, one for the task and one for each that it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// State; `null` if the task is unknown, or was not read.
    #[cfg_attr(feature = "schema", schema(required))]
    pub state: Option<State>,
    /// What keeps the task in its state.
    pub cause: Cause,
    /// The same for people.
    pub explanation: String,
    /// Tasks that it waits for.
    #[serde(with = "texts")]
    pub waits_for: Vec<TaskId>,
    /// For a join: its group.
    #[cfg_attr(feature = "schema", schema(required))]
    pub group: Option<GroupProgress>,
    /// Numbers of the first members of the group that have not ended.
    pub missing: Vec<u32>,
    /// For a claimable task: when the queue's rate allows a claim again, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub permit_ms: Option<u64>,
}
