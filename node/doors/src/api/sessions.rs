//! Sessions of workers: one heartbeat for all claims.

use super::common::status_of_change;
use crate::answer::Json;
use crate::body::JsonBodyIfAny;
use crate::caller::{ClaimAt, Short, Waiting};
use crate::problem::{BodyProblems, Problem, WriteProblems};
use crate::state::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::sessions::{known, none_to_be_had};
use norn_client::client::{ClaimOptions, Claims, CompleteOptions};
use norn_wire::{Error, ErrorCode};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Time limit for finding out why there is no session, and for withdrawing the enqueued one.
const TIDY: Duration = Duration::from_secs(1);

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(open)).routes(routes!(renew)).routes(routes!(end))
}

/// Opens a session.
///
/// Claims that name it are held as long as it is renewed, and end with it. It is a task of the queue `norn/sessions`. While it is
/// unknown whether one was opened, the request may be repeated: it takes the one that may exist.
#[utoipa::path(
    post, path = "/v1/sessions", operation_id = "open_session", tag = "sessions",
    request_body(content = Option<api::SessionOpenInput>, example = json!({"ttl_ms": 10000, "worker": "host-7, process 4711"})),
    responses(
        (status = 201, body = api::Session, description = "The session.", example = json!({
            "id": "000038g2m4d7kq9rjscg0080000w3n5t", "token": "2.1", "ttl_ms": 10000, "expires_ms": 1795000010000_u64
        })),
        BodyProblems,
    )
)]
async fn open(
    client: Waiting,
    JsonBodyIfAny(input): JsonBodyIfAny<api::SessionOpenInput>,
) -> Result<Response, Problem> {
    let (draft, claim) = input.open().map_err(|error| Problem::invalid(error.0))?;
    let enqueued = client.enqueue(draft).await.map_err(left_open)?;
    let options = ClaimOptions::new(claim.queues)
        .lease(Duration::from_millis(claim.lease_ms))
        .worker(claim.worker)
        .wait(Duration::from_millis(claim.wait_ms));
    let Claims { mut tasks, unavailable } = client.claim(options).await?;
    let Some(taken) = tasks.pop() else {
        if unavailable > 0 {
            return Err(Error::unavailable("not all partitions could be asked for a session; ask again").into());
        }
        return Err(none_to_be_had(&*client, enqueued.id, TIDY).await.into());
    };
    let (id, token, ttl_ms) = (taken.granted.id, taken.granted.token, taken.granted.lease_ms);
    let session = api::Session { id, token, ttl_ms, expires_ms: wall_ms(taken.expires) };
    Ok((StatusCode::CREATED, Json(&session)).into_response())
}

/// The error of an enqueue whose outcome is unknown: a session that may exist is held by no worker, so that its id is of no use.
fn left_open(error: Error) -> Error {
    if error.code != ErrorCode::Unknown {
        return error;
    }
    let why = "a session without a holder may have been enqueued: the same request is safe to repeat, and takes that one first";
    Error { message: format!("{}; {why}", error.message), id: None, ..error }
}

/// The wall clock's time of an instant, in milliseconds since the Unix epoch.
fn wall_ms(at: Instant) -> u64 {
    let time = SystemTime::now().checked_add(at.saturating_duration_since(Instant::now()));
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Renews a session, and with it all claims under it, by its full length.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/{token}/renew", operation_id = "renew_session", tag = "sessions",
    params(("id" = String, Path, description = "Session."), ("token" = String, Path, description = "Its token.")),
    responses((status = 200, body = api::Session, description = "The session, with its new end."), WriteProblems)
)]
async fn renew(client: Short, ClaimAt(id, token): ClaimAt) -> Result<Response, Problem> {
    let session = client.resume_session(id, token).await?;
    let ttl_ms = u64::try_from(session.ttl().as_millis()).unwrap_or(u64::MAX);
    Ok(Json(&api::Session { id, token, ttl_ms, expires_ms: wall_ms(session.expires()) }).into_response())
}

/// Ends a session: tasks claimed under it can be claimed again at once.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/{token}/end", operation_id = "end_session", tag = "sessions",
    params(("id" = String, Path, description = "Session."), ("token" = String, Path, description = "Its token.")),
    responses((status = 200, body = api::WriteAck, description = "It has ended."), WriteProblems)
)]
async fn end(client: Short, ClaimAt(id, token): ClaimAt) -> Result<Response, Problem> {
    // Otherwise it would complete a task that is no session.
    known(&*client, id, token).await?;
    let acked = client.complete(CompleteOptions::new(id, token)).await?;
    Ok((status_of_change(acked.guarantee), Json(&api::WriteAck::from(&acked))).into_response())
}
