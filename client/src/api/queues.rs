//! Queues: counts of their tasks, and their settings.

use norn_wire::QueueName;
use norn_wire::membership::{self, Backoff, FailedDependency, KeyConcurrency, Mode, Order, Rate};
use norn_wire::response::QueueCounts;
use serde::{Deserialize, Serialize};

/// Number of tasks: answer to `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Count {
    /// Number of tasks.
    pub count: u64,
}

/// Numbers of tasks by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StateCounts {
    /// Delayed, or waiting for other tasks.
    pub waiting: u64,
    /// Claimable.
    pub ready: u64,
    /// Held by workers.
    pub claimed: u64,
    /// Completed.
    pub done: u64,
    /// Given up, or invalid.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl From<&[u64; 6]> for StateCounts {
    /// The numbers come in the order of [`State::ALL`](norn_wire::State::ALL).
    fn from(counts: &[u64; 6]) -> Self {
        let [waiting, ready, claimed, done, dead, cancelled] = *counts;
        StateCounts { waiting, ready, claimed, done, dead, cancelled }
    }
}

/// A queue: answer to `queues`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queue {
    /// Queue.
    pub queue: QueueName,
    /// Its tasks, as fields beside the name.
    #[serde(flatten)]
    pub counts: StateCounts,
}

impl From<&QueueCounts> for Queue {
    fn from(queue: &QueueCounts) -> Self {
        Queue { queue: queue.queue.clone(), counts: (&queue.counts).into() }
    }
}

/// Settings of a queue: answer to `queue set` and `queue show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueuePolicy {
    /// Queue.
    pub queue: QueueName,
    /// Whether no task of the queue is granted. Claims already held go on.
    pub paused: bool,
    /// Attempts after which a task is dead, for tasks without a limit of their own; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub attempts: Option<u32>,
    /// Lease in milliseconds of a claim that names none; `null`: 30 seconds.
    #[cfg_attr(feature = "schema", schema(required))]
    pub lease_ms: Option<u64>,
    /// Longest lease in milliseconds, whatever a claim or a renewal asks for; `null`: one hour.
    #[cfg_attr(feature = "schema", schema(required))]
    pub lease_max_ms: Option<u64>,
    /// Pause after an attempt that failed or ran out; `null`: no pause.
    #[cfg_attr(feature = "schema", schema(required))]
    pub backoff: Option<Backoff>,
    /// How long ended tasks are kept, in milliseconds; `null`: as in the settings of the nodes.
    #[cfg_attr(feature = "schema", schema(required))]
    pub retention_ms: Option<u64>,
    /// Order of claims: `priority`, `random`, or `fair`, round robin over keys.
    pub order: Order,
    /// Effect on a task if one that it waits for has failed: `fail`, it dies; `skip`, it goes on; `wait`, it waits.
    pub failed_dependency: FailedDependency,
    /// Whose completion ends a task: `any`, that of any worker that ever claimed it; `holder`, only that of the latest holder.
    pub mode: Mode,
    /// Queue for dead letters; `null`: none.
    #[cfg_attr(feature = "schema", schema(required))]
    pub dead_letter: Option<QueueName>,
    /// Most open tasks; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub tasks: Option<u64>,
    /// Most bytes of open tasks; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub bytes: Option<u64>,
    /// Milliseconds in which a ready task gains one level of priority; `null`: priorities stay.
    #[cfg_attr(feature = "schema", schema(required))]
    pub ageing_ms: Option<u64>,
    /// Most claims in a time: `N/s`, `N/m` or `N/h`; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub rate: Option<String>,
    /// Most tasks held at once; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub concurrency: Option<u32>,
    /// Most tasks with the same key held at once; `null`: no limit.
    #[cfg_attr(feature = "schema", schema(required))]
    pub key_concurrency: Option<u32>,
}

impl QueuePolicy {
    /// Creates the form of a queue's settings.
    #[must_use]
    pub fn new(queue: &QueueName, policy: &membership::QueuePolicy) -> Self {
        QueuePolicy {
            queue: queue.clone(),
            paused: policy.paused,
            attempts: policy.attempts_max,
            lease_ms: policy.lease_ms,
            lease_max_ms: policy.lease_ms_max,
            backoff: policy.backoff,
            retention_ms: policy.retention_ms,
            order: policy.order,
            failed_dependency: policy.failed_dependency,
            mode: policy.mode,
            dead_letter: policy.dead_letter.clone(),
            tasks: policy.tasks_max,
            bytes: policy.bytes_max,
            ageing_ms: policy.ageing_ms,
            rate: policy.rate.as_ref().map(Rate::to_string),
            concurrency: policy.concurrency,
            key_concurrency: match policy.key_concurrency {
                KeyConcurrency::Most(most) => Some(most),
                KeyConcurrency::Any => None,
            },
        }
    }
}
