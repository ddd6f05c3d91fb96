//! Claims under way, and sessions of workers.

use super::form::{pairs, text};
use super::{Encoding, GroupMembership, GroupProgress, LogEntry};
use norn_wire::{Granted, QueueName, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A task to work on: answer to `claim`, one for each granted task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GrantedTask<'a> {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Fencing token `EPOCH.NUMBER`: pass it to every later call and, where possible, to every outside effect. It sorts by epoch, then
    /// number.
    #[serde(with = "text")]
    pub token: Token,
    /// Queue.
    pub queue: QueueName,
    /// Payload.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub data: Cow<'a, str>,
    /// Encoding of the payload.
    pub data_encoding: Encoding,
    /// Priority. Higher is claimed first.
    pub priority: i32,
    /// Attempts so far: claims that failed or expired, and this one.
    pub attempt: u32,
    /// Length of the lease in milliseconds, counted from when the call was first sent.
    pub lease_ms: u64,
    /// End of the lease in milliseconds since the Unix epoch, by the clock of the program that writes this JSON. A program with another
    /// clock counts `lease_ms` from its own call.
    pub lease_expires_ms: u64,
    /// Visible log entries of all claims, ordered by token and sequence.
    pub updates: Vec<LogEntry<'a>>,
    /// Headers: each name once, with its first value.
    #[serde(with = "pairs")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub headers: Cow<'a, [(String, String)]>,
    /// Group of which the task is a member, if any.
    #[cfg_attr(feature = "schema", schema(required))]
    pub member_of: Option<GroupMembership>,
    /// For a join: outcome of its group.
    #[cfg_attr(feature = "schema", schema(required))]
    pub group: Option<GroupProgress>,
}

impl<'a> GrantedTask<'a> {
    /// Creates the form of a granted task. The lease counts from `from_ms`, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn new(task: &'a Granted, from_ms: u64) -> Self {
        let (data, data_encoding) = Encoding::encode(&task.payload);
        GrantedTask {
            id: task.id,
            token: task.token,
            queue: task.queue.clone(),
            data,
            data_encoding,
            priority: task.priority,
            attempt: task.attempt,
            lease_ms: task.lease_ms,
            lease_expires_ms: from_ms.saturating_add(task.lease_ms),
            updates: task.updates.iter().map(LogEntry::from).collect(),
            headers: Cow::Borrowed(&task.headers),
            member_of: GroupMembership::of(task.grouping.as_deref()),
            group: task.group.as_ref().map(GroupProgress::from),
        }
    }
}

/// A claim: answer to `renew`, with the lease, and to `fail` and `release`, without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldClaim {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Token of the claim.
    #[serde(with = "text")]
    pub token: Token,
    /// The lease, as fields beside these; left out if the claim has ended.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schema(value_type = MaybeLease, inline))]
    pub lease: Option<Lease>,
}

/// Lease of a claim. A program with another clock counts the length from its own call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Length of the lease in milliseconds, counted from when the call was first sent.
    pub lease_ms: u64,
    /// End of the lease in milliseconds since the Unix epoch, by the clock of the program that writes this JSON.
    pub lease_expires_ms: u64,
}

// Schemas have no flattened options: this one has the fields of `Lease`, which may be left out.
/// Lease of a claim that holds.
#[cfg(feature = "schema")]
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct MaybeLease {
    /// Length of the lease in milliseconds, counted from when the call was first sent. Left out if the claim has ended.
    #[schema(required = false)]
    lease_ms: u64,
    /// End of the lease in milliseconds since the Unix epoch, by the clock of the program that writes this JSON. Left out if the claim
    /// has ended.
    #[schema(required = false)]
    lease_expires_ms: u64,
}

/// A session, one heartbeat for all claims of a worker: answer to `session open` and `session renew`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Session {
    /// Session.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Token of the session, for its renewals and its end.
    #[serde(with = "text")]
    pub token: Token,
    /// Milliseconds after which the session ends without a renewal, counted from when the call was first sent.
    pub ttl_ms: u64,
    /// The same as a time, in milliseconds since the Unix epoch, by the clock of the program that writes this JSON.
    pub expires_ms: u64,
}
