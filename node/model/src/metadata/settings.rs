//! Settings made by operators for the whole cluster, and for queues.

use super::Reason;
use crate::limits::{
    ATTEMPTS_MAX, CONCURRENCY_MAX, HEAL_AFTER_MS_MAX, HEAL_AFTER_MS_MIN, KEY_CONCURRENCY_MAX, MOVES_MAX, POLICIES_MAX,
    QUEUE_BYTES_MAX, QUEUE_TASKS_MAX, RATE_MS_MAX, RATE_TOKENS_MAX,
};
use norn_wire::QueueName;
use norn_wire::limits::{DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN};
use norn_wire::membership::{Backoff, KeyConcurrency, QueuePolicy, Settings};
use std::collections::BTreeMap;

/// Checks that all settings are within their bounds.
pub(super) fn check(settings: &Settings) -> Result<(), Reason> {
    if let Some(after_ms) = settings.heal_after_ms {
        bound_duration("heal-after", after_ms, HEAL_AFTER_MS_MIN, HEAL_AFTER_MS_MAX)?;
    }
    bound("moves", u64::from(settings.moves_at_once), 1, u64::from(MOVES_MAX))?;
    bound("moves-each", u64::from(settings.moves_at_once_each), 1, u64::from(MOVES_MAX))
}

/// Checks that the policy of a queue is within its bounds.
pub(super) fn check_policy(policy: &QueuePolicy) -> Result<(), Reason> {
    bound_if_any("attempts", policy.attempts_max.map(u64::from), 1, u64::from(ATTEMPTS_MAX))?;
    bound_duration_if_any("lease", policy.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)?;
    bound_duration_if_any("lease-max", policy.lease_ms_max, LEASE_MS_MIN, LEASE_MS_MAX)?;
    bound_if_any("tasks", policy.tasks_max, 1, QUEUE_TASKS_MAX)?;
    bound_duration_if_any("ageing", policy.ageing_ms, 1, DELAY_MS_MAX)?;
    bound_if_any("rate", policy.rate.map(|rate| u64::from(rate.claims)), 1, RATE_TOKENS_MAX)?;
    bound_duration_if_any("time of the rate", policy.rate.map(|rate| rate.per_ms), 1_000, RATE_MS_MAX)?;
    bound_if_any("concurrency", policy.concurrency.map(u64::from), 1, CONCURRENCY_MAX)?;
    if let KeyConcurrency::Most(most) = policy.key_concurrency {
        bound("key-concurrency", u64::from(most), 1, KEY_CONCURRENCY_MAX)?;
    }
    bound_if_any("bytes", policy.bytes_max, 1, QUEUE_BYTES_MAX)?;
    bound_duration_if_any("retention", policy.retention_ms, 0, DELAY_MS_MAX)?;
    policy.backoff.map_or(Ok(()), |Backoff { first_ms, most_ms, jitter_percent }| {
        bound_duration("backoff", first_ms, 1, DELAY_MS_MAX)?;
        bound_duration("backoff", most_ms, first_ms, DELAY_MS_MAX)?;
        bound("jitter", u64::from(jitter_percent), 0, 100)
    })
}

fn bound_if_any(what: &'static str, value: Option<u64>, low: u64, high: u64) -> Result<(), Reason> {
    value.map_or(Ok(()), |value| bound(what, value, low, high))
}

fn bound(what: &'static str, value: u64, low: u64, high: u64) -> Result<(), Reason> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(Reason::Setting { what, value, low, high }),
    }
}

fn bound_duration_if_any(what: &'static str, value_ms: Option<u64>, low_ms: u64, high_ms: u64) -> Result<(), Reason> {
    value_ms.map_or(Ok(()), |value_ms| bound_duration(what, value_ms, low_ms, high_ms))
}

fn bound_duration(what: &'static str, value_ms: u64, low_ms: u64, high_ms: u64) -> Result<(), Reason> {
    match (low_ms..=high_ms).contains(&value_ms) {
        true => Ok(()),
        false => Err(Reason::Duration { what, value_ms, low_ms, high_ms }),
    }
}

/// Checks that all policies of queues are within their bounds.
pub fn check_policies(policies: &BTreeMap<QueueName, QueuePolicy>) -> Result<(), Reason> {
    if policies.len() > POLICIES_MAX {
        return Err(Reason::Policies);
    }
    policies.values().try_for_each(check_policy)
}
