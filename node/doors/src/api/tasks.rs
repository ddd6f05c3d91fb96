//! Tasks: enqueue and read.

use crate::answer::{Json, status_of_ack};
use crate::body::{JsonBody, Query};
use crate::caller::{Short, TaskAt};
use crate::problem::{Problem, Problems};
use crate::state::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::session::Draft;
use norn_wire::Acks;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(enqueue)).routes(routes!(read))
}

/// Durability of a write.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Durability {
    /// Replicas that must have the write on disk before it is answered: any `one`, a `quorum`, or `all`.
    #[serde(default)]
    #[param(inline, required = false)]
    pub acks: Acks,
}

/// Enqueues one task.
#[utoipa::path(
    post, path = "/v1/tasks", operation_id = "enqueue", tag = "tasks", params(Durability),
    request_body = api::TaskInput,
    responses(
        (status = 201, body = api::WriteAck, description = "A majority of the task's replicas has it on disk."),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for."),
        Problems,
    )
)]
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
#[utoipa::path(
    get, path = "/v1/tasks/{id}", operation_id = "get_task", tag = "tasks", params(("id" = String, Path)),
    responses((status = 200, body = api::Task, description = "The task."), Problems)
)]
async fn read(client: Short, TaskAt(id): TaskAt) -> Result<Response, Problem> {
    let task = client.get(id).await?;
    Ok((StatusCode::OK, Json(&api::Task::from(&task))).into_response())
}
