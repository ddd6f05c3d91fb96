//! Tasks: enqueue, lend ids, cancel, purge.

use super::shapes::{LentIds, WriteResult};
use crate::answer::{Json, status_of_ack};
use crate::body::{JsonBodyIfAny, Query, QueryWithHeaders, Whole, expect_json, media_type, parse};
use crate::caller::{Short, TaskAt};
use crate::problem::{Problem, Problems};
use crate::state::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::client::calling::strange;
use norn_client::client::cancelling::cancel as cancel_task;
use norn_client::session::{Call, Draft};
use norn_wire::response::Acked;
use norn_wire::{Acks, Error, ErrorCode, Guarantee, TaskId};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Key of a caller under which a repeated request takes effect once.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new()
        .routes(routes!(enqueue))
        .routes(routes!(enqueue_as, purge))
        .routes(routes!(lend_ids))
        .routes(routes!(cancel))
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

/// How to enqueue; and for a payload as it is (`application/octet-stream`), the fields of its task.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct EnqueueQuery {
    /// Replicas that must have the task on disk before it is answered: any `one`, a `quorum`, or `all`; `quorum` if left out.
    #[param(inline, required = false, value_type = Acks)]
    acks: Option<Acks>,
    /// Store a single task with a key only if its queue has none with this key that has not ended; the answer names the task that there
    /// is, and whether it existed.
    #[param(required = false)]
    unique: bool,
    /// Store a single task only if all tasks of its `after` are known.
    #[param(required = false)]
    must_exist: bool,
    /// Queue of a payload.
    #[param(required = false, value_type = String)]
    queue: Option<String>,
    /// Priority of a payload; 0 if left out.
    #[param(required = false, value_type = i32)]
    priority: Option<i32>,
    /// Milliseconds until a payload can be claimed.
    #[param(required = false, value_type = u64)]
    delay_ms: Option<u64>,
    /// Earliest time of the first claim of a payload (RFC 3339).
    #[param(required = false, value_type = String)]
    at: Option<String>,
    /// After this many claims of a payload that failed or ran out, its task is dead.
    #[param(required = false, value_type = u32)]
    max_attempts: Option<u32>,
    /// Key of a payload.
    #[param(required = false, value_type = String)]
    key: Option<String>,
    /// Id of a payload's task, so that a repeat stores it once.
    #[param(required = false, value_type = String)]
    id: Option<String>,
    /// Ids of tasks that must have ended before a payload's, separated by commas.
    #[param(required = false, value_type = String)]
    after: Option<String>,
}

/// Headers of a task, in the query.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it only describes what the query is searched for")]
pub struct HeaderQuery {
    /// Header as `NAME=VALUE`; once for each header.
    #[param(required = false)]
    header: Vec<String>,
}

impl EnqueueQuery {
    /// The name of a parameter that describes a payload's task.
    fn field_given(&self, headers: &[(String, String)]) -> Option<&'static str> {
        let given = [
            ("queue", self.queue.is_some()),
            ("priority", self.priority.is_some()),
            ("delay_ms", self.delay_ms.is_some()),
            ("at", self.at.is_some()),
            ("max_attempts", self.max_attempts.is_some()),
            ("key", self.key.is_some()),
            ("id", self.id.is_some()),
            ("after", self.after.is_some()),
            ("header", !headers.is_empty()),
        ];
        given.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }

    /// The task of a payload.
    fn draft(&mut self, headers: Vec<(String, String)>, payload: &[u8]) -> Result<Draft, Problem> {
        let Some(queue) = self.queue.take() else {
            return Err(Problem::invalid("a payload as it is comes with its queue in the query: ?queue=NAME"));
        };
        let after = self.after.take().map(|ids| ids.split(',').map(str::to_owned).collect());
        let task = api::TaskInput {
            queue,
            priority: self.priority,
            at: self.at.take(),
            max_attempts: self.max_attempts,
            headers: headers.into_iter().collect(),
            id: self.id.take(),
            after: after.unwrap_or_default(),
            key: self.key.take(),
            ..api::TaskInput::default()
        };
        let mut draft = Draft::try_from(task).map_err(invalid)?;
        draft.spec.payload = payload.to_vec();
        draft.delay_ms = self.delay_ms.unwrap_or(0);
        Ok(draft)
    }
}

/// Tasks of a request.
enum Given {
    One(Box<Draft>),
    Several(Vec<Draft>),
}

/// Reads the tasks of a request: JSON, or a payload as it is.
fn given(
    query: &mut EnqueueQuery,
    task_headers: Vec<(String, String)>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Given, Problem> {
    if media_type(headers) == "application/octet-stream" {
        return Ok(Given::One(Box::new(query.draft(task_headers, body)?)));
    }
    expect_json(headers)?;
    if let Some(name) = query.field_given(&task_headers) {
        let detail = format!("the query: {name} goes with a payload (application/octet-stream); in JSON it is a field");
        return Err(Problem::invalid(detail));
    }
    if body.trim_ascii_start().first() == Some(&b'[') {
        let tasks: api::TasksInput = parse(body)?;
        return Ok(Given::Several(tasks.drafts("the list").map_err(invalid)?));
    }
    let task: api::TaskInput = parse(body)?;
    Ok(Given::One(Box::new(Draft::try_from(task).map_err(invalid)?)))
}

/// A problem with an input.
pub fn invalid(error: api::InputError) -> Problem {
    Problem::invalid(error.0)
}

/// Refuses a key that would not be kept.
fn refuse_key(headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        return Ok(());
    }
    let message =
        "tasks have no Idempotency-Key yet: get an id from /v1/ids, and PUT the task there as often as needed";
    Err(Error::new(ErrorCode::Unsupported, message).into())
}

fn place_of(acked: &Acked) -> [(HeaderName, String); 1] {
    [(header::LOCATION, format!("/v1/tasks/{}", acked.id))]
}

/// The answer for a stored task.
fn stored(acked: &Acked) -> Response {
    (status_of_ack(acked.guarantee), place_of(acked), Json(&api::WriteAck::from(acked))).into_response()
}

/// Enqueues a task, or a list of up to 1,000.
///
/// A list is answered with 200 and one result or error for each task, in order; a list of which a task is not well formed stores none.
/// One task of a list may be a join, and others, with a number, the members of its group.
#[utoipa::path(
    post, path = "/v1/tasks", operation_id = "enqueue", tag = "tasks", params(EnqueueQuery, HeaderQuery),
    request_body(
        description = "A task, a list of tasks, or a payload as it is.",
        content(
            (api::TasksInput = "application/json", example = json!({"queue": "mail", "data": "hello", "priority": 5})),
            (Vec<u8> = "application/octet-stream")
        )
    ),
    responses(
        (status = 201, body = api::WriteAck, description = "A majority of the task's replicas has it on disk.",
         headers(("location" = String, description = "Where the task is.")),
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for.",
         headers(("location" = String, description = "Where the task is."))),
        (status = 200, body = Vec<WriteResult>, description = "Results of a list, in order. For `unique` and a task that existed: that."),
        Problems,
    )
)]
async fn enqueue(
    client: Short,
    QueryWithHeaders(mut query, task_headers): QueryWithHeaders<EnqueueQuery>,
    headers: HeaderMap,
    body: Whole,
) -> Result<Response, Problem> {
    refuse_key(&headers)?;
    let given = given(&mut query, task_headers, &headers, &body.bytes)?;
    let acks = query.acks.unwrap_or_default();
    let draft = match given {
        Given::Several(_) if query.unique || query.must_exist => {
            return Err(Problem::invalid("the query: unique and must_exist go with a single task, not with a list"));
        }
        Given::Several(drafts) => return enqueue_list(&client, drafts, acks).await,
        Given::One(draft) => *draft,
    };
    if query.unique {
        if query.acks.is_some() || query.must_exist {
            return Err(Problem::invalid("the query: unique goes neither with acks nor with must_exist"));
        }
        let (acked, existing) = client.enqueue_unique(draft).await?;
        let status = if existing { StatusCode::OK } else { status_of_ack(acked.guarantee) };
        return Ok((status, place_of(&acked), Json(&api::UniqueAck::new(&acked, existing))).into_response());
    }
    if query.must_exist && draft.spec.after.is_empty() {
        return Err(Problem::invalid("the query: must_exist goes with a task that has `after`"));
    }
    let acked = match query.must_exist {
        true => client.enqueue_after_known(draft, acks).await?,
        false => client.enqueue_with(draft, acks).await?,
    };
    Ok(stored(&acked))
}

/// Enqueues several tasks by one call, so that a join and its members can be among them.
async fn enqueue_list(client: &Client, drafts: Vec<Draft>, acks: Acks) -> Result<Response, Problem> {
    let results = acked_of(client, Call::Enqueue { drafts, acks }, "enqueue").await?;
    let results: Vec<WriteResult<'_>> =
        results.iter().map(|result| WriteResult::new(result, api::WriteAck::from)).collect();
    Ok(Json(&results).into_response())
}

/// The results of a batch of writes.
pub async fn acked_of(client: &Client, call: Call, verb: &str) -> Result<Vec<Result<Acked, Error>>, Problem> {
    match client.call(call, None).await? {
        norn_wire::Response::Acked(results) => Ok(results),
        _ => Err(strange(verb).into()),
    }
}

/// Enqueues a task under an id that was lent.
///
/// A repeat with the same content gets the same answer, and one with other content is refused as a conflict. With a key, the last 24
/// bits of the id become the key's; the answer and `Location` tell the id. A delay counts from the time in the id, which is when it was
/// lent, so that a repeat asks for the same.
#[utoipa::path(
    put, path = "/v1/tasks/{id}", operation_id = "enqueue_as", tag = "tasks",
    params(("id" = String, Path, description = "An id of `/v1/ids`."), EnqueueQuery, HeaderQuery),
    request_body(
        description = "A task, or a payload as it is.",
        content(
            (api::TaskInput = "application/json", example = json!({"queue": "mail", "data": "hello"})),
            (Vec<u8> = "application/octet-stream")
        )
    ),
    responses(
        (status = 201, body = api::WriteAck, description = "A majority of the task's replicas has it on disk.",
         headers(("location" = String, description = "Where the task is.")),
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk, as asked for."),
        Problems,
    )
)]
async fn enqueue_as(
    client: Short,
    TaskAt(id): TaskAt,
    QueryWithHeaders(mut query, task_headers): QueryWithHeaders<EnqueueQuery>,
    headers: HeaderMap,
    body: Whole,
) -> Result<Response, Problem> {
    refuse_key(&headers)?;
    let Given::One(mut draft) = given(&mut query, task_headers, &headers, &body.bytes)? else {
        return Err(Problem::invalid("a single task goes under an id; a list goes to POST /v1/tasks"));
    };
    if query.unique || query.must_exist {
        return Err(Problem::invalid("the query: unique and must_exist go with POST /v1/tasks"));
    }
    if draft.id.is_some_and(|named| named != id) {
        return Err(Problem::invalid("the id of the task is another than that of the path; leave it out"));
    }
    if draft.delay_ms > 0 {
        if draft.spec.not_before_ms > 0 {
            return Err(Problem::invalid("a task has a delay or a time, not both; leave one out"));
        }
        draft.spec.not_before_ms = id.time_ms().saturating_add(std::mem::take(&mut draft.delay_ms));
    }
    draft.id = Some(draft.spec.tag().map_or(id, |tag| id.with_tag(tag)));
    Ok(stored(&client.enqueue_with(*draft, query.acks.unwrap_or_default()).await?))
}

/// How many ids to lend.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LendQuery {
    /// Number of ids, from 1 to 1,000; 1 if left out.
    #[serde(default = "one")]
    #[param(required = false, minimum = 1, maximum = 1_000, default = 1)]
    count: u32,
}

fn one() -> u32 {
    1
}

/// Lends ids for tasks to be enqueued with `PUT /v1/tasks/{id}`.
///
/// No other caller gets them. Use them soon: an id older than tasks that were forgotten is refused.
#[utoipa::path(
    get, path = "/v1/ids", operation_id = "lend_ids", tag = "tasks", params(LendQuery),
    responses(
        (status = 200, body = LentIds, description = "The ids.",
         example = json!({"ids": ["000038fxj5g21b4sg6y000800g17ne5m"]})),
        Problems,
    )
)]
async fn lend_ids(client: Short, Query(query): Query<LendQuery>) -> Result<Response, Problem> {
    let ids = client.lend_ids(query.count).await?;
    Ok(Json(&LentIds { ids }).into_response())
}

/// Status of a write that creates nothing.
pub fn status_of_change(guarantee: Guarantee) -> StatusCode {
    match guarantee {
        Guarantee::Strict => StatusCode::OK,
        Guarantee::Sloppy => StatusCode::ACCEPTED,
    }
}

/// Cancels a task that has not ended.
///
/// One that was cancelled before stays as it is, and is no error; one that has ended otherwise is refused as `ended`.
#[utoipa::path(
    post, path = "/v1/tasks/{id}/cancel", operation_id = "cancel", tag = "tasks", params(("id" = String, Path), Durability),
    request_body(content = Option<api::CancelInput>, example = json!({"reason": "the order was withdrawn"})),
    responses(
        (status = 200, body = api::CancelAck, description = "It is cancelled, on the disks of a majority, or was before.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict",
            "state": "cancelled"})),
        (status = 202, body = api::CancelAck, description = "Fewer replicas have the cancellation on disk."),
        Problems,
    )
)]
async fn cancel(
    client: Short,
    TaskAt(id): TaskAt,
    Query(durability): Query<Durability>,
    JsonBodyIfAny(input): JsonBodyIfAny<api::CancelInput>,
) -> Result<Response, Problem> {
    let cancellation = cancel_task(&*client, id, input.reason(), durability.acks).await?;
    if let Some(state) = cancellation.kept() {
        let message = format!("not cancelled: the task is {state}, and stays so");
        return Err(Error::new(ErrorCode::Ended, message).about(id).into());
    }
    let sent = cancellation.sent.as_ref();
    let status = sent.map_or(StatusCode::OK, |acked| status_of_change(acked.guarantee));
    Ok((status, Json(&api::CancelAck::new(id, sent, cancellation.state))).into_response())
}

/// Purges an ended task: forgets it before its retention is over.
///
/// One that has not ended is refused; cancel it first.
#[utoipa::path(
    delete, path = "/v1/tasks/{id}", operation_id = "purge_task", tag = "tasks", params(("id" = String, Path), Durability),
    responses(
        (status = 200, body = api::WriteAck, description = "A majority of the task's replicas has it on disk.",
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = api::WriteAck, description = "Fewer replicas have it on disk."),
        Problems,
    )
)]
async fn purge(client: Short, TaskAt(id): TaskAt, Query(durability): Query<Durability>) -> Result<Response, Problem> {
    let acked = client.purge(id, durability.acks).await.map_err(|error| about(error, id))?;
    Ok((status_of_change(acked.guarantee), Json(&api::WriteAck::from(&acked))).into_response())
}

/// Names the task of an error that names none.
pub fn about(error: Error, id: TaskId) -> Error {
    if error.id.is_some() { error } else { error.about(id) }
}
