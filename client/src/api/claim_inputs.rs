//! What workers ask: claims, and what becomes of them.

use super::fields::{claimed_max, milliseconds, name_if_any, object_only, updates};
use super::input::{decoded, decoded_if_any, each, each_once, parsed, parsed_if_any};
use super::{DependInput, Encoding, InputError, TasksInput};
use crate::client::ClaimOptions;
use crate::session::{Call, Finish};
use norn_wire::limits::{LEASE_MS_DEFAULT, LEASE_MS_MAX, WAIT_MS_MAX};
use norn_wire::{Acks, Claim, ClaimId, Completion, QueueName, Request, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Name of a worker that gives none.
pub(super) const WORKER: &str = "norn";

/// A claim of tasks to work on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct ClaimInput {
    /// Queues to claim from, 64 at most.
    pub queues: Vec<String>,
    /// Length of the leases in milliseconds, after which the tasks are free without a renewal. Left out: as set for their queue, or 30
    /// seconds; with a session, as long as possible.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_ms: Option<u64>,
    /// Milliseconds to wait for a task if there is none; 0 if left out.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 9_223_372_036_854_775_807_i64))]
    pub wait_ms: Option<u64>,
    /// Most tasks to claim; 1 if left out.
    #[serde(default, deserialize_with = "claimed_max", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000))]
    pub max: Option<u32>,
    /// Name of the worker, for people to read; `norn` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Session of the worker: its heartbeat keeps the tasks, and when it ends they can be claimed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Claim nothing unless these tasks exist and have not ended, in any queue; for example, tasks used as switches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends: Vec<DependInput>,
}

object_only!(ClaimInput, "a claim as an object with `queues`");

/// ```
/// use norn_client::api::ClaimInput;
/// use norn_client::client::ClaimOptions;
/// let input: ClaimInput = serde_json::from_str(r#"{"queues": ["mail"], "wait_ms": 20000}"#)?;
/// let options = ClaimOptions::try_from(input)?;
/// assert_eq!((options.max, options.lease, options.wait.as_secs()), (1, None, 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl TryFrom<ClaimInput> for ClaimOptions {
    type Error = InputError;

    fn try_from(input: ClaimInput) -> Result<ClaimOptions, InputError> {
        let queues = input.queues.iter().map(|queue| QueueName::new(queue)).collect::<Result<Vec<_>, _>>()?;
        Ok(ClaimOptions {
            queues,
            lease: input.lease_ms.map(Duration::from_millis),
            wait: Duration::from_millis(input.wait_ms.unwrap_or(0)),
            max: input.max.unwrap_or(1),
            worker: input.worker.unwrap_or_else(|| WORKER.to_owned()),
            session: parsed_if_any("session", input.session.as_deref())?,
            depends: each("depends", input.depends)?,
            timeout: None,
        })
    }
}

impl TryFrom<ClaimInput> for Claim {
    type Error = InputError;

    /// A single call, which waits as long as a node lets it. A caller that is to wait longer calls again for what is left of `wait_ms`.
    fn try_from(input: ClaimInput) -> Result<Claim, InputError> {
        let (lease_ms, wait_ms) = (input.lease_ms, input.wait_ms.unwrap_or(0));
        let ClaimOptions { queues, max, worker, session, depends, .. } = input.try_into()?;
        let open_ms = if session.is_some() { LEASE_MS_MAX } else { LEASE_MS_DEFAULT };
        Ok(Claim {
            claim: ClaimId(0),
            repeated: false,
            queues,
            lease_ms: lease_ms.unwrap_or(open_ms),
            wait_ms: wait_ms.min(WAIT_MS_MAX),
            max,
            worker,
            lease_open: lease_ms.is_none() && session.is_none(),
            session,
            depends,
            confirms: false,
        })
    }
}

/// A claim that is held: its task and its token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct HeldClaimInput {
    /// Task.
    pub id: String,
    /// Token of the claim.
    pub token: String,
}

object_only!(HeldClaimInput, "an object with `id` and `token`");

impl TryFrom<HeldClaimInput> for (TaskId, Token) {
    type Error = InputError;

    fn try_from(input: HeldClaimInput) -> Result<(TaskId, Token), InputError> {
        Ok((parsed("id", &input.id)?, parsed("token", &input.token)?))
    }
}

/// New lease of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct LeaseInput {
    /// New length of the lease in milliseconds; the claim's own if left out. A lease never becomes shorter.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_ms: Option<u64>,
}

object_only!(LeaseInput, "an object, with `lease_ms` or empty");

/// Name of a claim, for people.
fn claim_name((id, token): &(TaskId, Token)) -> String {
    format!("the claim {token} of {id}")
}

/// Renewals of claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct RenewInput {
    /// Claims to renew, 1,000 at most.
    pub items: Vec<HeldClaimInput>,
    /// New length of the leases in milliseconds; each claim's own if left out. A lease never becomes shorter.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_ms: Option<u64>,
}

object_only!(RenewInput, "an object with `items`");

impl TryFrom<RenewInput> for Request {
    type Error = InputError;

    fn try_from(input: RenewInput) -> Result<Request, InputError> {
        let items: Vec<(TaskId, Token)> = each("items", input.items)?;
        each_once("items", &items, claim_name)?;
        Ok(Request::Renew { items, lease_ms: input.lease_ms })
    }
}

/// Completion of a claim whose task and token are known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct CompleteInput {
    /// Number of updates that this claim has written; while some of them are missing, readers see the log marked as incomplete. Left
    /// out, they do not.
    #[serde(default, deserialize_with = "updates", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 1_000))]
    pub sequence: Option<u32>,
    /// Result; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Encoding of the result; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub result_encoding: Option<Encoding>,
    /// Tasks to enqueue with the completion, a list or a single one: either all of them are enqueued, or the completion is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<TasksInput>,
}

object_only!(CompleteInput, "an object, with `result` or `then` or none of them");

impl CompleteInput {
    /// Converts it into the completion of this claim.
    pub fn finish(self, id: TaskId, token: Token) -> Result<Finish, InputError> {
        let result = decoded_if_any(self.result, self.result_encoding, "result")?;
        let (sequence, result) = (self.sequence, result.map(Into::into));
        let children = self.then.unwrap_or_default().drafts("then")?;
        Ok(Finish { completion: Completion { id, token, sequence, result, at_ms: 0, children: Vec::new() }, children })
    }

    /// Converts it into the call that completes this claim.
    ///
    /// ```
    /// use norn_client::api::CompleteInput;
    /// use norn_client::session::Call;
    /// use norn_client::wire::{Acks, TaskId, Token};
    /// let input: CompleteInput = serde_json::from_str(r#"{"result": "sent", "then": {"queue": "stock", "data": "7"}}"#)?;
    /// let call = input.call(TaskId::MIN, Token { epoch: 2, number: 1 }, Acks::Quorum)?;
    /// assert!(matches!(call, Call::Complete { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call(self, id: TaskId, token: Token, acks: Acks) -> Result<Call, InputError> {
        Ok(complete(vec![self.finish(id, token)?], acks))
    }
}

/// Completion of one of several claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct CompletionInput {
    /// Task.
    pub id: String,
    /// Token of the claim.
    pub token: String,
    /// Number of updates that this claim has written; while some of them are missing, readers see the log marked as incomplete. Left
    /// out, they do not.
    #[serde(default, deserialize_with = "updates", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 1_000))]
    pub sequence: Option<u32>,
    /// Result; none if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Encoding of the result; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub result_encoding: Option<Encoding>,
    /// Tasks to enqueue with the completion, a list or a single one: either all of them are enqueued, or the completion is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<TasksInput>,
}

object_only!(CompletionInput, "an object with `id` and `token`");

impl TryFrom<CompletionInput> for Finish {
    type Error = InputError;

    fn try_from(input: CompletionInput) -> Result<Finish, InputError> {
        let CompletionInput { id, token, sequence, result, result_encoding, then } = input;
        let (id, token) = HeldClaimInput { id, token }.try_into()?;
        CompleteInput { sequence, result, result_encoding, then }.finish(id, token)
    }
}

/// Completions of several claims. Each succeeds or fails by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct CompletionsInput {
    /// Completions, 1,000 at most.
    pub items: Vec<CompletionInput>,
}

object_only!(CompletionsInput, "an object with `items`");

impl CompletionsInput {
    /// Converts them into one call. Its answer has one result for each, in order.
    pub fn call(self, acks: Acks) -> Result<Call, InputError> {
        Ok(complete(self.finishes()?, acks))
    }

    /// Converts them into completions.
    pub fn finishes(self) -> Result<Vec<Finish>, InputError> {
        let items: Vec<Finish> = each("items", self.items)?;
        let claims: Vec<_> = items.iter().map(|Finish { completion, .. }| (completion.id, completion.token)).collect();
        each_once("items", &claims, claim_name)?;
        Ok(items)
    }
}

/// Returns the call for completions. The session gives ids to their children, if they have any.
fn complete(items: Vec<Finish>, acks: Acks) -> Call {
    match items.iter().all(|item| item.children.is_empty()) {
        true => {
            let items = items.into_iter().map(|item| item.completion).collect();
            Call::Request(Request::Complete { items, acks })
        }
        false => Call::Complete { items, acks },
    }
}

/// Report of a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct FailInput {
    /// Reason, for people to read; empty if left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Milliseconds before the task can be claimed again. Left out: as set for its queue, or 0.
    #[serde(default, deserialize_with = "milliseconds", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0, maximum = 315_576_000_000_i64))]
    pub retry_in_ms: Option<u64>,
    /// The task is invalid: it becomes dead, without further attempts.
    #[serde(default)]
    pub invalid: bool,
}

object_only!(FailInput, "an object, with `reason`, `retry_in_ms` or `invalid` or none of them");

impl FailInput {
    /// Converts it into the request that ends this claim.
    pub fn request(self, id: TaskId, token: Token) -> Result<Request, InputError> {
        let FailInput { reason, retry_in_ms, invalid } = self;
        if invalid && retry_in_ms.is_some() {
            let message = "an invalid task is not tried again; leave `retry_in_ms` or `invalid` out";
            return Err(InputError(message.to_owned()));
        }
        let (retry_in_ms, retry_open) = (retry_in_ms.unwrap_or(0), retry_in_ms.is_none());
        Ok(Request::Fail { id, token, reason, retry_in_ms, invalid, retry_open })
    }
}

/// An entry of a claim's log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct UpdateInput {
    /// Content of the entry; empty if left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Encoding of the content; `utf8` if left out.
    #[serde(default, deserialize_with = "name_if_any", skip_serializing_if = "Option::is_none")]
    pub data_encoding: Option<Encoding>,
}

object_only!(UpdateInput, "an entry as an object with `data`");

impl UpdateInput {
    /// Converts it into the request that adds entry number `sequence`, from 0, to the log of this claim.
    pub fn request(self, id: TaskId, token: Token, sequence: u32, acks: Acks) -> Result<Request, InputError> {
        let data = decoded(self.data, self.data_encoding, "data")?;
        Ok(Request::Update { id, token, sequence, data, acks })
    }
}
