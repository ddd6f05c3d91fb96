//! Tasks as their readers see them.

use super::form::{outcome, pairs, text, text_if_any, texts};
use super::{Encoding, GroupMembership, GroupProgress};
use norn_wire::limits::CLAIMS_SHOWN_MAX;
use norn_wire::response::{ClaimOutcome, ClaimView, Losses, Rejected};
use norn_wire::{QueueName, State, TaskId, TaskVersion, TaskView, Token};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A task: answer to `get`, `wait` and `list`. A list leaves the updates out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Task<'a> {
    /// Task.
    #[serde(with = "text")]
    pub id: TaskId,
    /// Queue.
    pub queue: QueueName,
    /// State: `waiting` (delayed, or for other tasks), `ready`, `claimed`, `done`, `dead` (given up or invalid) or `cancelled`.
    pub state: State,
    /// Priority. Higher is claimed first.
    pub priority: i32,
    /// Payload.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub data: Cow<'a, str>,
    /// Encoding of the payload.
    pub data_encoding: Encoding,
    /// Claims, oldest first.
    pub claims: Vec<TaskClaim<'a>>,
    /// Whether as many claims are shown as are kept, so that there may have been earlier ones.
    pub claims_more: bool,
    /// Visible log entries of all claims, ordered by token and sequence.
    pub updates: Vec<LogEntry<'a>>,
    /// Result of the completion that counts; `null` without one.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub result: Option<Cow<'a, str>>,
    /// Encoding of the result.
    #[cfg_attr(feature = "schema", schema(required))]
    pub result_encoding: Option<Encoding>,
    /// Why the task was cancelled or died.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub reason: Option<Cow<'a, str>>,
    /// Whether the task was cancelled or given up for the reason, and is done nevertheless.
    pub overruled: bool,
    /// Whether a client wrote two different values under one key.
    pub conflict: bool,
    /// Whether some log entries are not visible (yet).
    pub log_incomplete: bool,
    /// Child tasks, from its completions.
    #[serde(with = "texts")]
    pub children: Vec<TaskId>,
    /// Whether some children may not be enqueued yet.
    pub children_open: bool,
    /// For a dead task: its copies, dead letter or redriven task.
    #[serde(with = "texts")]
    pub redriven: Vec<TaskId>,
    /// Headers: each name once, with its first value.
    #[serde(with = "pairs")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub headers: Cow<'a, [(String, String)]>,
    /// Earliest time of the first claim, in milliseconds since the Unix epoch; 0: at once.
    pub not_before_ms: u64,
    /// After this many claims that failed or ran out, the task is dead; 0: no limit of its own.
    pub max_attempts: u32,
    /// Key: a queue grants tasks with the same key one at a time, unless it is set otherwise.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub key: Option<Cow<'a, str>>,
    /// Dependencies, as enqueued.
    #[serde(with = "texts")]
    pub after: Vec<TaskId>,
    /// Dependencies that have not ended yet.
    #[serde(with = "texts")]
    pub waits_for: Vec<TaskId>,
    /// Group of which the task is a member, if any.
    #[cfg_attr(feature = "schema", schema(required))]
    pub member_of: Option<GroupMembership>,
    /// For a join: progress of its group.
    #[cfg_attr(feature = "schema", schema(required))]
    pub group: Option<GroupProgress>,
    /// Version of the task, for the precondition of a transaction: 16 hexadecimal digits.
    #[serde(with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub version: Option<TaskVersion>,
    /// When it was enqueued, in milliseconds since the Unix epoch: the time in its id.
    pub enqueued_ms: u64,
    /// When it ended, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub ended_ms: Option<u64>,
    /// Earliest time of the next claim, if in the future, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub next_attempt_ms: Option<u64>,
    /// Parts that every replica that answered has lost: they are empty or absent in the other fields. Left out without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<LostPart>))]
    pub lost: Option<Vec<LostPart>>,
}

impl<'a> From<&'a TaskView> for Task<'a> {
    fn from(task: &'a TaskView) -> Self {
        let (data, data_encoding) = Encoding::encode(&task.spec.payload);
        let (result, result_encoding) = Encoding::encode_if_any(task.result.as_ref());
        Task {
            id: task.id,
            queue: task.spec.queue.clone(),
            state: task.state,
            priority: task.spec.priority,
            data,
            data_encoding,
            claims: task.claims.iter().map(|claim| TaskClaim::new(task, claim)).collect(),
            claims_more: task.claims.len() >= CLAIMS_SHOWN_MAX,
            updates: task.updates.iter().map(LogEntry::from).collect(),
            result,
            result_encoding,
            reason: task.reason.as_deref().map(Cow::Borrowed),
            overruled: task.was_overruled(),
            conflict: task.conflict,
            log_incomplete: task.log_incomplete,
            children: task.children.clone(),
            children_open: task.children_open,
            redriven: task.redriven.clone(),
            headers: Cow::Borrowed(&task.spec.headers),
            not_before_ms: task.spec.not_before_ms,
            max_attempts: task.spec.attempts_max,
            key: task.spec.key.as_deref().map(Cow::Borrowed),
            after: task.spec.after.clone(),
            waits_for: task.waits_for.clone(),
            member_of: GroupMembership::of(task.spec.grouping.as_deref()),
            group: task.group.as_ref().map(GroupProgress::from),
            version: task.version,
            enqueued_ms: task.id.time_ms(),
            ended_ms: task.ended_ms,
            next_attempt_ms: task.next_attempt_ms,
            lost: LostPart::of(task),
        }
    }
}

/// Part of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LostPart {
    /// Payload, headers and key.
    Payload,
    /// Result of the completion that counts.
    Result,
    /// Result of a completion that does not count.
    Rejected,
    /// Log entries.
    Log,
    /// One of a later version.
    #[serde(other)]
    Other,
}

impl LostPart {
    /// Returns the lost parts of a task, if any.
    pub(super) fn of(task: &TaskView) -> Option<Vec<LostPart>> {
        let Losses { payload, result, rejected, log } = task.lost?;
        let all = [
            (payload, LostPart::Payload),
            (result, LostPart::Result),
            (rejected, LostPart::Rejected),
            (log, LostPart::Log),
        ];
        Some(all.into_iter().filter_map(|(lost, part)| lost.then_some(part)).collect())
    }
}

/// One claim of a task, past or present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskClaim<'a> {
    /// Token of the claim.
    #[serde(with = "text")]
    pub token: Token,
    /// When it was granted, in milliseconds since the Unix epoch; `null` if its completion arrived first.
    #[cfg_attr(feature = "schema", schema(required))]
    pub start_ms: Option<u64>,
    /// When its lease ends or ended, in milliseconds since the Unix epoch; `null` if not known.
    #[cfg_attr(feature = "schema", schema(required))]
    pub end_ms: Option<u64>,
    /// When it was completed, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub completed_ms: Option<u64>,
    /// Name of the worker.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub worker: Cow<'a, str>,
    /// A completion that does not count.
    #[cfg_attr(feature = "schema", schema(required))]
    pub rejected: Option<UncountedResult<'a>>,
    /// A valid completion that lost against another one.
    #[cfg_attr(feature = "schema", schema(required))]
    pub superseded: Option<UncountedResult<'a>>,
    /// Whether the lease holds now; otherwise `end_ms` is when it would have ended by itself.
    pub running: bool,
    /// How it ended: `done`, `failed`, `expired`, `released`, `superseded`, `given_up`, or `other` for an outcome of a later version.
    /// `null` for a claim that holds, and for one whose end was not recorded.
    #[serde(with = "outcome")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub outcome: Option<ClaimOutcome>,
    /// Why it ended.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub reason: Option<Cow<'a, str>>,
    /// When it ended, in milliseconds since the Unix epoch.
    #[cfg_attr(feature = "schema", schema(required))]
    pub ended_ms: Option<u64>,
    /// Session with which the claim ends while it holds.
    #[serde(with = "text_if_any")]
    #[cfg_attr(feature = "schema", schema(required))]
    pub session: Option<TaskId>,
}

impl<'a> TaskClaim<'a> {
    fn new(task: &TaskView, claim: &'a ClaimView) -> Self {
        let end = claim.end.as_ref();
        TaskClaim {
            token: claim.token,
            // A completion may arrive before the start of its claim.
            start_ms: (claim.start_ms > 0).then_some(claim.start_ms),
            end_ms: claim.end_ms,
            completed_ms: claim.completed_ms,
            worker: (&claim.worker).into(),
            rejected: claim.rejected.as_ref().map(UncountedResult::from),
            superseded: claim.superseded.as_ref().map(UncountedResult::from),
            running: task.runs(claim),
            outcome: end.map(|end| end.outcome),
            reason: end.and_then(|end| end.reason.as_deref()).map(Cow::Borrowed),
            ended_ms: end.map(|end| end.at_ms),
            session: claim.session.filter(|_| task.runs(claim)),
        }
    }
}

/// Result of a completion that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UncountedResult<'a> {
    /// The result; `null` if it had none.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, required))]
    pub result: Option<Cow<'a, str>>,
    /// Encoding of the result.
    #[cfg_attr(feature = "schema", schema(required))]
    pub result_encoding: Option<Encoding>,
}

impl<'a> From<&'a Rejected> for UncountedResult<'a> {
    fn from(rejected: &'a Rejected) -> Self {
        let (result, result_encoding) = Encoding::encode_if_any(rejected.result.as_ref());
        UncountedResult { result, result_encoding }
    }
}

/// One entry of a claim's log: answer to `log`, and part of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogEntry<'a> {
    /// Token of the claim.
    #[serde(with = "text")]
    pub token: Token,
    /// Number within the claim, from 0.
    pub sequence: u32,
    /// The entry.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub data: Cow<'a, str>,
    /// Encoding of the entry.
    pub data_encoding: Encoding,
}

impl<'a> From<&'a norn_wire::response::LogEntry> for LogEntry<'a> {
    fn from(entry: &'a norn_wire::response::LogEntry) -> Self {
        let (data, data_encoding) = Encoding::encode(&entry.data);
        LogEntry { token: entry.token, sequence: entry.sequence, data, data_encoding }
    }
}
