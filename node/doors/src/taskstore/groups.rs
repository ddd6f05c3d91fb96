//! Settings of the queues of groups.
//!
//! A cluster has settings for a bounded number of queues, and groups come and go. So a store leaves half of them to operators, takes
//! those of groups that are gone back when it has no more, and otherwise uses a group without.

use crate::problem::Problem;
use norn_client::client::Client;
use norn_client::client::calling::has_ended;
use norn_wire::membership::{ClusterChange, ClusterView, Order, QueuePolicy, QueueSetting};
use norn_wire::response::{QueueCounts, State};
use norn_wire::{ErrorCode, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long deleted and replaced tasks are kept.
pub const RETENTION_MS: u64 = 60_000;
/// Queues with settings in a cluster, up to which stores set further ones: half of what a cluster can have.
pub const SETTINGS_MAX: usize = 500;
/// Settings that are taken back at once.
const TAKEN_BACK_MAX: usize = 32;
/// Pause between two looks for settings to take back, as each reads all queues.
const LOOK_PAUSE: Duration = Duration::from_secs(60);
/// Queues that are remembered as prepared.
const REMEMBERED_MAX: usize = 10_000;
/// How long one is remembered. Then it is looked at again, as another node may have taken its settings back.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// What names of queues of all stores begin with.
const STORES: &str = "taskstore.";

/// Whether a queue has a task that has not ended.
pub fn has_open_tasks(queue: &QueueCounts) -> bool {
    State::ALL.iter().zip(queue.counts).any(|(state, count)| count > 0 && !has_ended(*state))
}

/// What a group needs: tasks in any order, and replaced ones forgotten soon.
fn needed() -> QueuePolicy {
    QueuePolicy { order: Order::Random, retention_ms: Some(RETENTION_MS), ..QueuePolicy::default() }
}

/// Whether settings are those of a group, or the first of the two: a node that ended in between has made no more, or has left no more.
fn is_own(policy: &QueuePolicy) -> bool {
    let first = QueuePolicy { order: Order::default(), ..needed() };
    [needed(), first].contains(policy)
}

/// How far the settings of a queue are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// This node has begun to set them.
    Begun,
    /// There is no more to set, for all that was known then.
    Done(Instant),
}

impl Stage {
    /// Whether the settings were made just now, or are being made.
    fn is_new(&self) -> bool {
        match self {
            Stage::Begun => true,
            Stage::Done(since) => since.elapsed() < REMEMBERED_FOR,
        }
    }
}

/// Queues that have their settings.
#[derive(Debug, Default)]
pub struct Prepared {
    stages: Mutex<BTreeMap<QueueName, Stage>>,
    /// When settings to take back were looked for last.
    looked: Mutex<Option<Instant>>,
}

impl Prepared {
    fn stages(&self) -> MutexGuard<'_, BTreeMap<QueueName, Stage>> {
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is time to look for settings to take back. Notes the look.
    fn looks(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = looked.is_none_or(|looked| looked.elapsed() >= LOOK_PAUSE);
        if is_time {
            *looked = Some(Instant::now());
        }
        is_time
    }

    fn note(&self, queue: &QueueName, stage: Stage) {
        let mut stages = self.stages();
        if stages.len() >= REMEMBERED_MAX && !stages.contains_key(queue) {
            stages.clear();
        }
        stages.insert(queue.clone(), stage);
    }

    /// Before the first tasks of groups: sets what their queues need, of those for which nothing is set.
    pub async fn prepare(&self, client: &Client, queues: BTreeSet<QueueName>) -> Result<(), Problem> {
        let is_done = |stage: Option<&Stage>| matches!(stage, Some(done @ Stage::Done(_)) if done.is_new());
        let unknown: Vec<QueueName> = {
            let stages = self.stages();
            queues.into_iter().filter(|queue| !is_done(stages.get(queue))).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let view = client.cluster().await.map_err(super::without_effect)?;
        let mut settings = view.roster.policies.len();
        for queue in unknown {
            let present = view.roster.policies.get(&queue);
            let is_half = present.is_some_and(|policy| is_own(policy) && *policy != needed());
            let has_begun = is_half || self.stages().get(&queue) == Some(&Stage::Begun);
            if !has_begun && present.is_none() {
                if settings >= SETTINGS_MAX && self.looks() {
                    settings -= self.take_back(client, &view).await?.min(settings);
                }
                if settings >= SETTINGS_MAX {
                    tracing::debug!(%queue, "a group of taskstore is used without settings of its own");
                    self.note(&queue, Stage::Done(Instant::now()));
                    continue;
                }
                settings += 1;
                self.note(&queue, Stage::Begun);
                self.set(client, &queue).await?;
            } else if has_begun {
                self.set(client, &queue).await?;
            }
            self.note(&queue, Stage::Done(Instant::now()));
        }
        Ok(())
    }

    async fn set(&self, client: &Client, queue: &QueueName) -> Result<(), Problem> {
        let QueuePolicy { order, retention_ms, .. } = needed();
        change(client, queue, [QueueSetting::Retention(retention_ms), QueueSetting::Order(order)]).await?;
        Ok(())
    }

    /// Takes settings of groups without tasks back. Returns of how many.
    async fn take_back(&self, client: &Client, view: &ClusterView) -> Result<usize, Problem> {
        let queues = client.queues().await.map_err(super::without_effect)?;
        let has_tasks: BTreeSet<&QueueName> = queues.iter().map(|counts| &counts.queue).collect();
        let is_idle = |queue: &QueueName, policy: &QueuePolicy| {
            queue.as_str().starts_with(STORES) && is_own(policy) && !has_tasks.contains(queue)
        };
        let policies = view.roster.policies.iter();
        let known = policies.filter(|(queue, policy)| is_idle(queue, policy)).map(|(queue, _)| queue);
        // What this node has prepared just now may be about to get its first task.
        let idle: Vec<&QueueName> = {
            let stages = self.stages();
            let is_new = |queue: &QueueName| stages.get(queue).is_some_and(Stage::is_new);
            known.filter(|queue| !is_new(queue)).take(TAKEN_BACK_MAX).collect()
        };
        let mut taken = 0;
        for queue in idle {
            let none = [QueueSetting::Order(Order::default()), QueueSetting::Retention(None)];
            taken += usize::from(change(client, queue, none).await?);
        }
        Ok(taken)
    }
}

/// Makes settings of a queue. Returns whether they were made; a group works without them.
async fn change(client: &Client, queue: &QueueName, settings: [QueueSetting; 2]) -> Result<bool, Problem> {
    for setting in settings {
        match client.change(ClusterChange::Queue { queue: queue.clone(), setting }).await {
            Ok(_) => {}
            Err(error) if error.passes() || error.code == ErrorCode::Unknown => {
                return Err(super::without_effect(error).into());
            }
            Err(error) => {
                tracing::warn!(%queue, %error, "a group of taskstore is used without settings of its own");
                return Ok(false);
            }
        }
    }
    Ok(true)
}
