//! One task: read it, its bytes, its log, why it waits, and wait for its end.

use super::shapes::{Explanations, TaskLog};
use super::tasks::about;
use crate::answer::Json;
use crate::body::Query;
use crate::caller::{Short, TaskAt, Waiting};
use crate::gate::{WAIT_PIECE_MS, wait_of};
use crate::problem::{Problem, Problems, ReadProblems};
use crate::state::State;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::client::calling::{has_ended, strange};
use norn_client::client::explaining::explanations;
use norn_client::session::Call;
use norn_wire::response::{Losses, TaskView};
use norn_wire::{Error, ErrorCode, QueueName, Request, Response as Answer, State as TaskState, TaskId};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long to wait for the end of a task if the caller does not say.
const WAIT_MS_DEFAULT: u64 = 30_000;
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Longest media type of a task that is passed on.
const MEDIA_TYPE_BYTES_MAX: usize = 128;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new()
        .routes(routes!(read))
        .routes(routes!(read_data))
        .routes(routes!(read_result))
        .routes(routes!(read_log))
        .routes(routes!(why))
        .routes(routes!(wait))
        .routes(routes!(count))
}

/// How recent a task must be.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Recency {
    /// Answer only once the latest claim's log has this many entries; `stale` if that takes too long.
    #[param(required = false, value_type = u32)]
    pub min_seq: Option<u32>,
}

/// Reads a task with its log and claims.
pub async fn task_of(client: &Client, id: TaskId, min_seq: Option<u32>) -> Result<TaskView, Error> {
    task(client, Request::Get { id, minimum: None, minimum_sequence: min_seq }, id).await
}

async fn task(client: &Client, request: Request, id: TaskId) -> Result<TaskView, Error> {
    let verb = request.verb();
    match client.call(Call::Request(request), None).await.map_err(|error| about(error, id))? {
        Answer::Task(task) => Ok(*task),
        _ => Err(strange(verb)),
    }
}

/// Reads a task with its log and claims.
#[utoipa::path(
    get, path = "/v1/tasks/{id}", operation_id = "get_task", tag = "tasks", params(("id" = String, Path), Recency),
    responses((status = 200, body = api::Task, description = "The task."), ReadProblems)
)]
async fn read(client: Short, TaskAt(id): TaskAt, Query(recency): Query<Recency>) -> Result<Response, Problem> {
    let task = task_of(&client, id, recency.min_seq).await?;
    Ok(Json(&api::Task::from(&task)).into_response())
}

/// The media type that a task names, if it is sound and a browser does not run it.
fn media_type_of(task: &TaskView) -> HeaderValue {
    let named = task.spec.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    named.filter(|(_, value)| is_safe(value)).and_then(|(_, value)| HeaderValue::from_str(value).ok()).unwrap_or(OCTETS)
}

fn is_safe(value: &str) -> bool {
    let is_token = |text: &str| {
        let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !text.is_empty() && text.bytes().all(is_sound)
    };
    let mut parts = value.split(';').map(str::trim);
    let Some((kind, subtype)) = parts.next().and_then(|media| media.split_once('/')) else { return false };
    let is_parameter = |part: &str| part.split_once('=').is_some_and(|(name, value)| is_token(name) && is_token(value));
    let lower = subtype.to_ascii_lowercase();
    let runs = ["html", "xml", "svg", "script", "multipart"].iter().any(|active| lower.contains(active));
    value.len() <= MEDIA_TYPE_BYTES_MAX
        && is_token(kind)
        && is_token(subtype)
        && !runs
        && !kind.eq_ignore_ascii_case("multipart")
        && parts.all(is_parameter)
}

/// Bytes as they are: browsers save them, whatever they are.
fn octets(media_type: HeaderValue, bytes: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, Body::from(bytes)).into_response()
}

fn lost(id: TaskId, what: &str) -> Error {
    let message = format!("every replica that answered has lost the {what} of the task");
    Error::unavailable(message).about(id)
}

fn has_lost(task: &TaskView, part: fn(&Losses) -> bool) -> bool {
    task.lost.as_ref().is_some_and(part)
}

/// Reads the payload of a task as it is.
///
/// Its media type is that of the task's header `content-type`, if that is a plain one, or else `application/octet-stream`.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/data", operation_id = "get_task_data", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream", description = "The payload, always as an attachment."),
        ReadProblems,
    )
)]
async fn read_data(client: Short, TaskAt(id): TaskAt) -> Result<Response, Problem> {
    let task = task_of(&client, id, None).await?;
    if has_lost(&task, |lost| lost.payload) {
        return Err(lost(id, "payload").into());
    }
    Ok(octets(media_type_of(&task), task.spec.payload))
}

/// Reads the result of a task as it is.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/result", operation_id = "get_task_result", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream", description = "The result, always as an attachment."),
        ReadProblems,
    )
)]
async fn read_result(client: Short, TaskAt(id): TaskAt) -> Result<Response, Problem> {
    let task = task_of(&client, id, None).await?;
    if has_lost(&task, |lost| lost.result) {
        return Err(lost(id, "result").into());
    }
    match task.result {
        Some(result) => Ok(octets(OCTETS, result.into_vec())),
        None => {
            let message = format!("the task is {}, and has no result", task.state);
            Err(Error::new(ErrorCode::NotFound, message).about(id).into())
        }
    }
}

/// Reads the log of a task.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/log", operation_id = "get_task_log", tag = "tasks", params(("id" = String, Path), Recency),
    responses(
        (status = 200, body = TaskLog, description = "The log.",
         example = json!({"updates": [{"token": "2.1", "sequence": 0, "data": "half of it is done", "data_encoding": "utf8"}],
            "log_incomplete": false})),
        ReadProblems,
    )
)]
async fn read_log(client: Short, TaskAt(id): TaskAt, Query(recency): Query<Recency>) -> Result<Response, Problem> {
    let task = task_of(&client, id, recency.min_seq).await?;
    let updates = task.updates.iter().map(api::LogEntry::from).collect();
    Ok(Json(&TaskLog { updates, log_incomplete: task.log_incomplete }).into_response())
}

/// Explains why a task cannot be claimed or has not ended, through all tasks that it waits for.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/why", operation_id = "why", tag = "tasks", params(("id" = String, Path)),
    responses(
        (status = 200, body = Explanations, description = "The task first, then those that it waits for.",
         example = json!({"tasks": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "state": "ready", "cause": "ready",
            "explanation": "the next claim from queue mail gets it", "waits_for": [], "group": null, "missing": [],
            "permit_ms": null}]})),
        ReadProblems,
    )
)]
async fn why(client: Short, TaskAt(id): TaskAt) -> Result<Response, Problem> {
    let why = client.why(id).await.map_err(|error| about(error, id))?;
    Ok(Json(&Explanations { tasks: explanations(&why, super::claims::now_ms()) }).into_response())
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// Milliseconds after which the task is answered as it is; 30,000 if left out.
    #[serde(default = "wait_ms_default")]
    #[param(required = false, default = 30_000)]
    timeout_ms: u64,
}

fn wait_ms_default() -> u64 {
    WAIT_MS_DEFAULT
}

/// Waits until a task has ended, and answers it; after the time, as it is then: its state tells.
#[utoipa::path(
    get, path = "/v1/tasks/{id}/wait", operation_id = "wait", tag = "tasks", params(("id" = String, Path), WaitQuery),
    responses((status = 200, body = api::Task, description = "The task."), ReadProblems)
)]
async fn wait(
    Shared(state): Shared<Arc<State>>,
    client: Waiting,
    TaskAt(id): TaskAt,
    Query(query): Query<WaitQuery>,
) -> Result<Response, Problem> {
    let wait = wait_of("timeout_ms", query.timeout_ms)?;
    let waited = tokio::select! {
        biased;
        task = ended(&client, id, wait) => Some(task?),
        () = state.draining() => None,
    };
    let task = match waited {
        Some(task) => task,
        None => task_of(&client, id, None).await?,
    };
    Ok(Json(&api::Task::from(&task)).into_response())
}

/// Waits for the end of a task in pieces, so that a caller that hangs up holds no place at the node for long.
async fn ended(client: &Client, id: TaskId, wait: Duration) -> Result<TaskView, Error> {
    let started = Instant::now();
    loop {
        let left = wait.saturating_sub(started.elapsed());
        let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(WAIT_PIECE_MS);
        let task = task(client, Request::Wait { id, timeout_ms }, id).await?;
        // The node was asked for all the time that was left, unless that is more than one piece.
        if has_ended(task.state) || timeout_ms < WAIT_PIECE_MS {
            return Ok(task);
        }
        tokio::time::sleep(super::claims::EARLY_PAUSE.min(wait.saturating_sub(started.elapsed()))).await;
    }
}

/// Which tasks to count.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct CountQuery {
    /// Only of this queue.
    #[param(required = false, value_type = String)]
    queue: Option<String>,
    /// Only in this state.
    #[param(inline, required = false, value_type = TaskState)]
    state: Option<TaskState>,
}

/// Counts tasks.
#[utoipa::path(
    get, path = "/v1/count", operation_id = "count", tag = "tasks", params(CountQuery),
    responses((status = 200, body = api::Count, description = "Their number.", example = json!({"count": 4})), Problems)
)]
async fn count(client: Short, Query(query): Query<CountQuery>) -> Result<Response, Problem> {
    let count = client.count(queue_if_any(query.queue.as_deref())?, query.state).await?;
    Ok(Json(&api::Count { count }).into_response())
}

/// The queue that a query names.
pub fn queue_if_any(name: Option<&str>) -> Result<Option<QueueName>, Problem> {
    let wrong = |error| Problem::invalid(format!("the query: queue: {error}"));
    name.map(QueueName::new).transpose().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sound_media_types_that_no_browser_runs_are_passed_on() {
        for good in
            ["text/plain", "application/json; charset=utf-8", "image/png", "application/vnd.norn.sqs", "TEXT/CSV"]
        {
            assert!(is_safe(good), "{good}");
        }
        let long = format!("text/{}", "x".repeat(MEDIA_TYPE_BYTES_MAX));
        let bad = [
            "",
            "text",
            "/",
            "text/",
            "text/html",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/javascript",
            "application/xml",
            "text/plain\r\nset-cookie: a",
            "text/plain; charset",
            "text/plain, text/html",
            "text/plain; a=\"b\"",
            "text/pläin",
            "multipart/x-mixed-replace",
            &long,
        ];
        for bad in bad {
            assert!(!is_safe(bad), "{bad}");
        }
    }
}
