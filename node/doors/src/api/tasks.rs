//! Tasks: enqueue and read.

use crate::answer::{Json, status_of_ack};
use crate::body::{JsonBody, Query};
use crate::caller::{Short, TaskAt};
use crate::problem::Problem;
use crate::state::State;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use norn_client::api;
use norn_client::session::Draft;
use norn_wire::Acks;
use serde::Deserialize;
use std::sync::Arc;

pub(super) fn router() -> Router<Arc<State>> {
    Router::new().route("/tasks", axum::routing::post(enqueue)).route("/tasks/{id}", get(read))
}

/// Durability of a write.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durability {
    /// `one`, `quorum` or `all`; `quorum` if left out.
    #[serde(default)]
    acks: Acks,
}

/// Enqueues one task.
async fn enqueue(
    client: Short,
    Query(durability): Query<Durability>,
    JsonBody(task): JsonBody<api::TaskInput>,
) -> Result<Response, Problem> {
    let draft = Draft::try_from(task).map_err(|error| Problem::invalid(error.0))?;
    let acked = client.enqueue_with(draft, durability.acks).await?;
    let place = format!("/v1/tasks/{}", acked.id);
    let headers = [(header::LOCATION, place)];
    Ok((status_of_ack(acked.guarantee), headers, Json(&api::WriteAck::from(&acked))).into_response())
}

/// Reads a task.
async fn read(client: Short, TaskAt(id): TaskAt) -> Result<Response, Problem> {
    let task = client.get(id).await?;
    Ok((StatusCode::OK, Json(&api::Task::from(&task))).into_response())
}
