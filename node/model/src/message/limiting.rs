//! Limits of rate and of concurrency of a queue.

use super::LogPosition;
use super::kinds::{Check, Class, Properties, of};
use crate::viewstamp::Epoch;
use norn_wire::{PartitionId, QueueName};
use serde::{Deserialize, Serialize};

/// Limits of rate and of concurrency of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limiting {
    /// To the coordinator partition of a queue with a rate: asks for permits for `wanted` claims.
    #[serde(rename = "pq")]
    PermitAsk { request_id: u64, queue: QueueName, wanted: u64 },
    /// Answer to `PermitAsk`: number of permits, each for one claim within a second of the question; without any, when to ask
    /// again.
    #[serde(rename = "pn")]
    Permits { request_id: u64, queue: QueueName, count: u64, wait_ms: u64 },
    /// Total number of those permits that are not used and will not be, or were used by revoked grants. Older nodes say it once.
    #[serde(rename = "px")]
    PermitsBack { request_id: u64, queue: QueueName, count: u64 },
    /// From the leader of a partition, in that epoch, to the coordinator partition of a queue with limited concurrency: the
    /// partition will hold no more than `keeps` claims before this is answered, and wants `wants`. The number grows.
    #[serde(rename = "qq")]
    QuotaAsk { partition: PartitionId, epoch: Epoch, request_id: u64, queue: QueueName, keeps: u32, wants: u32 },
    /// Answer to `QuotaAsk`: number of claims that the partition may hold.
    #[serde(rename = "qn")]
    Quota { partition: PartitionId, epoch: Epoch, request_id: u64, queue: QueueName, count: u32 },
    /// From a queue's coordinator partition to the leader of a partition: others want claims, so it shall keep no more than
    /// `share`.
    #[serde(rename = "qc")]
    QuotaCall { partition: PartitionId, queue: QueueName, share: u32 },
}

impl Limiting {
    /// What each message says of itself.
    pub(super) fn properties(&self) -> Properties {
        match self {
            Limiting::PermitAsk { request_id, .. } => {
                of("permit_ask", Class::Urgent, None, Check::Process(*request_id))
            }
            Limiting::Permits { .. } => of("permits", Class::Urgent, None, Check::Nothing),
            Limiting::PermitsBack { .. } => of("permits_back", Class::Urgent, None, Check::Nothing),
            Limiting::QuotaAsk { partition, .. } => of("quota_ask", Class::Urgent, Some(*partition), Check::Nothing),
            Limiting::Quota { partition, .. } => of("quota", Class::Urgent, Some(*partition), Check::Nothing),
            Limiting::QuotaCall { partition, .. } => of("quota_call", Class::Urgent, Some(*partition), Check::Nothing),
        }
    }

    /// Fills in the sender's durable log position, where the message depends on it.
    pub(super) fn set_log(&mut self, _word: LogPosition) {
        match self {
            Limiting::PermitAsk { .. }
            | Limiting::Permits { .. }
            | Limiting::PermitsBack { .. }
            | Limiting::QuotaAsk { .. }
            | Limiting::Quota { .. }
            | Limiting::QuotaCall { .. } => {}
        }
    }
}
