//! Settings of the queues of groups.

use crate::problem::Problem;
use norn_client::client::Client;
use norn_client::client::calling::has_ended;
use norn_wire::membership::{ClusterChange, Order, QueueSetting};
use norn_wire::response::{QueueCounts, State};
use norn_wire::{ErrorCode, QueueName};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// How long deleted and replaced tasks are kept.
const RETENTION_MS: u64 = 60_000;
/// Queues that are remembered as prepared.
const REMEMBERED_MAX: usize = 10_000;

/// Whether a queue has a task that has not ended.
pub fn has_open_tasks(queue: &QueueCounts) -> bool {
    State::ALL.iter().zip(queue.counts).any(|(state, count)| count > 0 && !has_ended(*state))
}

/// Queues that have their settings.
#[derive(Debug, Default)]
pub struct Prepared(Mutex<BTreeSet<QueueName>>);

impl Prepared {
    /// Before the first task of a group: has its queue give tasks in any order and keep ended ones for a minute, unless an operator has
    /// set how long they are kept. A cluster with settings for as many queues as it can have is used without.
    pub async fn prepare(&self, client: &Client, queue: &QueueName) -> Result<(), Problem> {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(queue) {
            return Ok(());
        }
        let view = client.cluster().await?;
        let is_set = view.roster.policies.get(queue).is_some_and(|policy| policy.retention_ms.is_some());
        // The retention comes last, as it tells that both are set.
        for setting in [QueueSetting::Order(Order::Random), QueueSetting::Retention(Some(RETENTION_MS))] {
            if is_set {
                break;
            }
            let change = ClusterChange::Queue { queue: queue.clone(), setting };
            match client.change(change).await {
                Ok(_) => {}
                Err(error) if error.passes() || error.code == ErrorCode::Unknown => {
                    return Err(super::without_effect(error).into());
                }
                Err(error) => {
                    tracing::warn!(%queue, %error, "a group of taskstore is used without settings of its own");
                    break;
                }
            }
        }
        let mut prepared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if prepared.len() >= REMEMBERED_MAX {
            prepared.clear();
        }
        prepared.insert(queue.clone());
        Ok(())
    }
}
