//! One claim that its caller holds: log, renew, complete, fail, release.

use super::claims::{held, renewed_of};
use super::common::status_of_change;
use super::tasks::{Durability, about, invalid};
use crate::answer::Json;
use crate::body::{JsonBody, JsonBodyIfAny, Query};
use crate::caller::{ClaimAt, EntryAt, Short};
use crate::problem::{BodyProblems, Problem, WriteProblems};
use crate::state::State;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::client::calling::strange;
use norn_client::client::completing;
use norn_client::session::Call;
use norn_wire::response::Acked;
use norn_wire::{Error, Request, Response as Answer, TaskId, Token};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new()
        .routes(routes!(update))
        .routes(routes!(renew))
        .routes(routes!(complete))
        .routes(routes!(fail))
        .routes(routes!(release))
}

/// The answer for a write.
fn acked(acked: &Acked) -> Response {
    (status_of_change(acked.guarantee), Json(&api::WriteAck::from(acked))).into_response()
}

/// The result of the only item of a batch.
fn only<T>(mut results: Vec<Result<T, Error>>, id: TaskId, verb: &str) -> Result<T, Error> {
    match (results.pop(), results.is_empty()) {
        (Some(result), true) => result.map_err(|error| about(error, id)),
        _ => Err(strange(verb)),
    }
}

/// Adds an entry to the log of a claim.
///
/// Each claim counts its entries from 0; an entry is not shown while one with a lower number is missing. A repeat with the same content
/// gets the same answer.
#[utoipa::path(
    put, path = "/v1/tasks/{id}/claims/{token}/log/{n}", operation_id = "update", tag = "claims",
    params(("id" = String, Path), ("token" = String, Path), ("n" = u32, Path, description = "Number of the entry."), Durability),
    request_body(content = api::UpdateInput, example = json!({"data": "half of it is done"})),
    responses(
        (status = 200, body = api::WriteAck, description = "A majority of the task's replicas has it on disk.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for."),
        BodyProblems,
    )
)]
async fn update(
    client: Short,
    ClaimAt(id, token): ClaimAt,
    EntryAt(sequence): EntryAt,
    Query(durability): Query<Durability>,
    JsonBody(input): JsonBody<api::UpdateInput>,
) -> Result<Response, Problem> {
    let request = input.request(id, token, sequence, durability.acks).map_err(invalid)?;
    match client.call(Call::Request(request), None).await.map_err(|error| about(error, id))? {
        Answer::AckedOne(written) => Ok(acked(&written)),
        _ => Err(strange("update").into()),
    }
}

/// Renews a claim.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/claims/{token}/renew", operation_id = "renew", tag = "claims",
    params(("id" = String, Path), ("token" = String, Path)),
    request_body(content = Option<api::LeaseInput>, example = json!({"lease_ms": 60000})),
    responses(
        (status = 200, body = api::HeldClaim, description = "The claim, with its lease.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1", "lease_ms": 60000,
            "lease_expires_ms": 1800000060000u64})),
        BodyProblems,
    )
)]
async fn renew(
    client: Short,
    ClaimAt(id, token): ClaimAt,
    JsonBodyIfAny(input): JsonBodyIfAny<api::LeaseInput>,
) -> Result<Response, Problem> {
    let (results, from_ms) = renewed_of(&client, vec![(id, token)], input.lease_ms).await?;
    let lease_ms = only(results, id, "renew")?;
    Ok(Json(&held((id, token), lease_ms, from_ms)).into_response())
}

/// Completes a claim: the task is done.
///
/// Tasks of `then` are enqueued with it: all of them or, if the completion is refused, none. A repeat with the same content gets the
/// same answer, and brings the tasks once. But in a queue of mode `any`, a repeat after a 504 may bring them twice if the first attempt
/// reached a minority of the replicas alone, unless each has an id of `/v1/ids`.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/claims/{token}/complete", operation_id = "complete", tag = "claims",
    params(("id" = String, Path), ("token" = String, Path), Durability),
    request_body(content = Option<api::CompleteInput>,
        example = json!({"result": "sent", "then": [{"queue": "stock", "data": "7"}]})),
    responses(
        (status = 200, body = api::WriteAck, description = "A majority of the task's replicas has it on disk.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for."),
        BodyProblems,
    )
)]
async fn complete(
    client: Short,
    ClaimAt(id, token): ClaimAt,
    Query(durability): Query<Durability>,
    JsonBodyIfAny(input): JsonBodyIfAny<api::CompleteInput>,
) -> Result<Response, Problem> {
    let finish = input.finish(id, token).map_err(invalid)?;
    let results = completing::complete(&*client, vec![finish], durability.acks).await?;
    Ok(acked(&only(results, id, "complete")?))
}

/// Ends a claim without a result.
async fn give_up(client: &Client, request: Request, (id, token): (TaskId, Token)) -> Result<Response, Problem> {
    let verb = request.verb();
    match client.call(Call::Request(request), None).await.map_err(|error| about(error, id))? {
        Answer::Done => Ok(Json(&api::HeldClaim { id, token, lease: None }).into_response()),
        _ => Err(strange(verb).into()),
    }
}

/// Reports a failed attempt: the task can be claimed again after a pause, or never.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/claims/{token}/fail", operation_id = "fail", tag = "claims",
    params(("id" = String, Path), ("token" = String, Path)),
    request_body(content = Option<api::FailInput>, example = json!({"reason": "no route to the mail server", "retry_in_ms": 30000})),
    responses(
        (status = 200, body = api::HeldClaim, description = "The claim has ended.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1"})),
        BodyProblems,
    )
)]
async fn fail(
    client: Short,
    ClaimAt(id, token): ClaimAt,
    JsonBodyIfAny(input): JsonBodyIfAny<api::FailInput>,
) -> Result<Response, Problem> {
    let request = input.request(id, token).map_err(invalid)?;
    give_up(&client, request, (id, token)).await
}

/// Releases a claim: the task can be claimed again at once.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/claims/{token}/release", operation_id = "release", tag = "claims",
    params(("id" = String, Path), ("token" = String, Path)),
    responses(
        (status = 200, body = api::HeldClaim, description = "The claim has ended.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "token": "2.1"})),
        WriteProblems,
    )
)]
async fn release(client: Short, ClaimAt(id, token): ClaimAt) -> Result<Response, Problem> {
    give_up(&client, Request::Release { id, token }, (id, token)).await
}
