//! Schedules: tasks that the cluster enqueues by itself.

use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::Short;
use crate::problem::{BodyProblems, Problem, ReadProblems, WriteProblems};
use crate::state::State;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::session::Call;
use norn_wire::schedule::{ScheduleChange, ScheduleView};
use norn_wire::{Error, ErrorCode, Request, Response as Answer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(show, set, remove)).routes(routes!(pause)).routes(routes!(resume))
}

/// A schedule that must be named.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Named {
    /// Name of the schedule.
    #[param(example = "nightly")]
    name: String,
}

/// Which schedules to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Shown {
    /// Only this schedule, with its next few due times.
    #[serde(default)]
    #[param(value_type = String, required = false, example = "nightly")]
    name: Option<String>,
}

/// Schedules.
#[derive(Debug, Serialize, ToSchema)]
struct Schedules<'a> {
    /// Schedules, in the order of their names.
    schedules: Vec<api::Schedule<'a>>,
}

/// Shows one schedule, or all.
#[utoipa::path(
    get, path = "/v1/schedules", operation_id = "show_schedules", tag = "schedules", params(Shown),
    responses(
        (status = 200, body = Schedules, description = "The schedules.", example = json!({"schedules": [{
            "name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "at_ms": null, "queue": "backup",
            "data": "all", "data_encoding": "utf8", "priority": 0, "attempts": null, "catch_up": "last",
            "paused": false, "since_ms": 1794900000000_u64, "next_ms": [1795000000000_u64], "pending": 0, "fired": 12,
            "missed": 0, "unsure": 0, "last_ms": null, "last_id": null
        }]})),
        ReadProblems,
    )
)]
async fn show(client: Short, Query(Shown { name }): Query<Shown>) -> Result<Response, Problem> {
    let views = match name {
        Some(name) => vec![client.schedule(&name).await?],
        None => client.schedules().await?,
    };
    Ok(Json(&Schedules { schedules: views.iter().map(api::Schedule::from).collect() }).into_response())
}

/// Sets a schedule. The same as before changes nothing; a different one replaces it and starts afresh.
#[utoipa::path(
    put, path = "/v1/schedules", operation_id = "set_schedule", tag = "schedules", params(Named),
    request_body(content = api::ScheduleInput, example = json!({
        "cron": "30 2 * * *", "zone": "Europe/Berlin", "queue": "backup", "data": "all"
    })),
    responses((status = 200, body = api::Schedule, description = "The schedule."), BodyProblems)
)]
async fn set(
    client: Short,
    Query(Named { name }): Query<Named>,
    JsonBody(input): JsonBody<api::ScheduleInput>,
) -> Result<Response, Problem> {
    let change = input.change(name).map_err(|error| Problem::invalid(error.0))?;
    let view = changed(&client, change).await?;
    Ok(Json(&api::Schedule::from(&view)).into_response())
}

async fn changed(client: &Client, change: ScheduleChange) -> Result<ScheduleView, Error> {
    match client.call(Call::Request(Request::Schedule(Box::new(change))), None).await? {
        Answer::Scheduled { view: Some(view), .. } => Ok(*view),
        _ => Err(Error::new(ErrorCode::Unknown, "the node's answer to this is of another kind")),
    }
}

/// Removes a schedule. Its tasks stay.
#[utoipa::path(
    delete, path = "/v1/schedules", operation_id = "remove_schedule", tag = "schedules", params(Named),
    responses(
        (status = 200, body = api::ScheduleRemoval, description = "There is no such schedule now.",
            example = json!({"name": "nightly", "removed": true})),
        WriteProblems,
    )
)]
async fn remove(client: Short, Query(Named { name }): Query<Named>) -> Result<Response, Problem> {
    let removed = client.remove_schedule(&name).await?;
    Ok(Json(&api::ScheduleRemoval { name: (&name).into(), removed }).into_response())
}

/// Pauses a schedule. Times that pass meanwhile are skipped.
#[utoipa::path(
    post, path = "/v1/schedules/pause", operation_id = "pause_schedule", tag = "schedules", params(Named),
    responses((status = 200, body = api::Schedule, description = "The schedule, which is paused."), WriteProblems)
)]
async fn pause(client: Short, Query(Named { name }): Query<Named>) -> Result<Response, Problem> {
    let view = client.pause_schedule(&name, true).await?;
    Ok(Json(&api::Schedule::from(&view)).into_response())
}

/// Resumes a paused schedule.
#[utoipa::path(
    post, path = "/v1/schedules/resume", operation_id = "resume_schedule", tag = "schedules", params(Named),
    responses((status = 200, body = api::Schedule, description = "The schedule, which goes on."), WriteProblems)
)]
async fn resume(client: Short, Query(Named { name }): Query<Named>) -> Result<Response, Problem> {
    let view = client.pause_schedule(&name, false).await?;
    Ok(Json(&api::Schedule::from(&view)).into_response())
}
