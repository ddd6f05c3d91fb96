//! Claims: tasks to work on, and batches of what becomes of them.

use super::shapes::{GrantedTasks, RenewResult, RenewResults, WriteResults};
use super::tasks::{Durability, about, invalid, written};
use crate::access::Principal;
use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::{Short, Waiting};
use crate::gate::{WAIT_PIECE_MS, wait_of};
use crate::handover::{self, handed_over};
use crate::problem::{BodyProblems, KeyedProblems, Problem};
use crate::state::State;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::client::calling::strange;
use norn_client::client::completing;
use norn_client::session::Call;
use norn_client::text::unasked;
use norn_wire::limits::WAIT_MS_MAX;
use norn_wire::response::Granted;
use norn_wire::{Claim, ClaimId, Error, Request, Response as Answer, TaskId, Token};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Pause before the next call, after an answer that came before the wait was over.
pub const EARLY_PAUSE: Duration = Duration::from_millis(50);

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(renew_many)).routes(routes!(complete_many))
}

/// The present time, in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The wall-clock time from which a lease counts.
pub fn lease_from_ms(lease_from: Option<Instant>) -> u64 {
    let elapsed = lease_from.map_or(Duration::ZERO, |from| from.elapsed());
    now_ms().saturating_sub(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Headers of a claim.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes what is looked for")]
struct ClaimHeaders {
    /// Key of 1 to 255 bytes: a claim that is repeated with it, and is otherwise the same, gets the same tasks.
    #[param(rename = "Idempotency-Key", required = false, min_length = 1, max_length = 255)]
    idempotency_key: String,
}

/// What a claim was granted.
struct Found {
    tasks: Vec<Granted>,
    unavailable: u32,
    from_ms: u64,
}

/// Claims, and waits in pieces that a node allows.
async fn find(client: &Client, mut claim: Claim, wait: Duration) -> Result<Found, Error> {
    let started = Instant::now();
    // The session takes a claim back when its caller hangs up, but not one that is to be repeated.
    let piece_ms = if claim.repeated { WAIT_PIECE_MS } else { WAIT_MS_MAX };
    loop {
        let left = wait.saturating_sub(started.elapsed());
        claim.wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(piece_ms);
        let (answer, lease_from) = client.call_for_lease(Call::Request(Request::Claim(claim.clone())), None).await;
        let Answer::Claimed { tasks, unavailable, .. } = answer? else { return Err(strange("claim")) };
        let left = wait.saturating_sub(started.elapsed());
        if !tasks.is_empty() || unavailable > 0 || left.is_zero() {
            return Ok(Found { tasks, unavailable, from_ms: lease_from_ms(lease_from) });
        }
        tokio::time::sleep(EARLY_PAUSE.min(left)).await;
    }
}

/// Claims tasks to work on, and waits up to `wait_ms` for them.
///
/// A caller that hangs up holds nothing: what it was granted can be claimed again at once. With `Idempotency-Key` it is otherwise: a
/// repeat under the key gets the tasks that the first request was granted, until their leases end. Another request under the key is
/// refused with `key_reused` by the node that got the first, and is a claim of its own at other nodes.
#[utoipa::path(
    post, path = "/v1/claims", operation_id = "claim", tag = "claims",
    params(ClaimHeaders),
    request_body(content = api::ClaimInput, example = json!({"queues": ["mail"], "lease_ms": 60000, "wait_ms": 20000, "max": 10})),
    responses(
        (status = 200, body = GrantedTasks, description = "The tasks; none if there was none within the time.",
         example = json!({"tasks": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1", "queue": "mail", "data": "hello",
            "data_encoding": "utf8", "priority": 5, "attempt": 1, "lease_ms": 60000, "lease_expires_ms": 1800000060000u64,
            "updates": [], "headers": {}, "member_of": null, "group": null}], "unavailable": 0})),
        KeyedProblems,
    )
)]
async fn claim(
    Shared(state): Shared<Arc<State>>,
    Principal(principal): Principal,
    client: Waiting,
    headers: HeaderMap,
    JsonBody(input): JsonBody<api::ClaimInput>,
) -> Result<Response, Problem> {
    let request = serde_json::to_vec(&input).unwrap_or_default();
    let wait = wait_of("wait_ms", input.wait_ms.unwrap_or(0))?;
    let mut claim = Claim::try_from(input).map_err(invalid)?;
    let name = state.keys.name(&headers, &principal, &request)?;
    if let Some(name) = name {
        // Only the caller knows whether this is a repeat.
        (claim.claim, claim.repeated) = (ClaimId(name.max(1)), true);
    }
    let found = tokio::select! {
        biased;
        found = find(&client, claim, wait) => found?,
        () = state.draining() => Found { tasks: Vec::new(), unavailable: 0, from_ms: 0 },
    };
    if found.tasks.is_empty() && found.unavailable > 0 {
        return Err(Error::unavailable(format!("nothing was found, but {}", unasked(found.unavailable))).into());
    }
    let form = |task| api::GrantedTask::new(task, found.from_ms);
    let shown = GrantedTasks { tasks: found.tasks.iter().map(form).collect(), unavailable: found.unavailable };
    let response = Json(&shown).into_response();
    Ok(match name {
        None => {
            let claims = found.tasks.iter().map(|task| (task.id, task.token)).collect();
            handed_over(response, handover::Granted::new(client, claims))
        }
        Some(_) => response,
    })
}

/// The results of renewals, each with the lease, and the time from which the leases count.
pub async fn renewed_of(
    client: &Client,
    items: Vec<(TaskId, Token)>,
    lease_ms: Option<u64>,
) -> Result<(Vec<Result<u64, Error>>, u64), Problem> {
    let call = Call::Request(Request::Renew { items, lease_ms });
    let (answer, lease_from) = client.call_for_lease(call, None).await;
    match answer? {
        Answer::Renewed(results) => Ok((results, lease_from_ms(lease_from))),
        _ => Err(strange("renew").into()),
    }
}

/// A claim with its new lease.
pub fn held((id, token): (TaskId, Token), lease_ms: u64, from_ms: u64) -> api::HeldClaim {
    let lease = api::Lease { lease_ms, lease_expires_ms: from_ms.saturating_add(lease_ms) };
    api::HeldClaim { id, token, lease: Some(lease) }
}

/// Renews claims, each by itself: one result or error for each, in order.
#[utoipa::path(
    post, path = "/v1/claims/renew", operation_id = "renew_many", tag = "claims",
    request_body(content = api::RenewInput,
        example = json!({"items": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1"}], "lease_ms": 60000})),
    responses(
        (status = 200, body = RenewResults, description = "The results, in order.",
         example = json!({"items": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1", "lease_ms": 60000,
            "lease_expires_ms": 1800000060000u64}]})),
        BodyProblems,
    )
)]
async fn renew_many(client: Short, JsonBody(input): JsonBody<api::RenewInput>) -> Result<Response, Problem> {
    let Request::Renew { items, lease_ms } = Request::try_from(input).map_err(invalid)? else {
        return Err(strange("renew").into());
    };
    let (results, from_ms) = renewed_of(&client, items.clone(), lease_ms).await?;
    let form = |(claim, result): ((TaskId, Token), Result<u64, Error>)| match result {
        Ok(lease_ms) => RenewResult::Done(Box::new(held(claim, lease_ms, from_ms))),
        Err(error) => RenewResult::Failed(about(error, claim.0).into()),
    };
    let items = items.into_iter().zip(results).map(form).collect();
    Ok(Json(&RenewResults { items }).into_response())
}

/// Completes claims, each by itself: one result or error for each, in order.
#[utoipa::path(
    post, path = "/v1/claims/complete", operation_id = "complete_many", tag = "claims", params(Durability),
    request_body(content = api::CompletionsInput,
        example = json!({"items": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1", "result": "sent"}]})),
    responses(
        (status = 200, body = WriteResults, description = "The results, in order.",
         example = json!({"items": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3,
            "guarantee": "strict"}]})),
        BodyProblems,
    )
)]
async fn complete_many(
    client: Short,
    Query(durability): Query<Durability>,
    JsonBody(input): JsonBody<api::CompletionsInput>,
) -> Result<Response, Problem> {
    let ids: Vec<Option<TaskId>> = input.items.iter().map(|item| item.id.parse().ok()).collect();
    let items = input.finishes().map_err(invalid)?;
    let results = completing::complete(&*client, items, durability.acks).await?;
    Ok(Json(&written(results, ids)).into_response())
}
