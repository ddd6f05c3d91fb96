//! Tasks: enqueue, lend ids, cancel, purge.

use super::common::status_of_change;
use super::shapes::{LentIds, StoredAck, WriteResult, WriteResults};
use crate::answer::{Json, status_of_ack};
use crate::body::{JsonBodyIfAny, Query, QueryWithHeaders, Whole, expect_json, media_type, parse};
use crate::caller::{Short, TaskAt};
use crate::problem::{BodyProblems, Problem, Problems, WriteProblems};
use crate::state::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_client::client::calling::strange;
use norn_client::client::cancelling::cancel as cancel_task;
use norn_client::session::{Call, Draft};
use norn_wire::response::Acked;
use norn_wire::{Acks, Error, ErrorCode, TaskId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
    /// Replicas that must have the write on disk before it is answered: any `one`, a `quorum`, `all`, or a number; `quorum` if left out.
    #[serde(default, deserialize_with = "acks")]
    #[param(required = false, value_type = String, pattern = "^(one|quorum|all|[1-9][0-9]{0,2})$")]
    pub acks: Acks,
}

fn acks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Acks, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn acks_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Acks>, D::Error> {
    acks(deserializer).map(Some)
}

/// Defines the query of an enqueue: its own parameters, and the fields of the task of a payload as it is.
macro_rules! enqueue_query {
    ($(#[$doc:meta])* $name:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize, IntoParams)]
        #[serde(deny_unknown_fields, default)]
        #[into_params(parameter_in = Query)]
        struct $name {
            /// Replicas that must have the task on disk before it is answered: any `one`, a `quorum`, `all`, or a number; `quorum` if
            /// left out.
            #[serde(deserialize_with = "acks_if_any")]
            #[param(required = false, value_type = String, pattern = "^(one|quorum|all|[1-9][0-9]{0,2})$")]
            acks: Option<Acks>,
            $($own)*
            /// Queue of a payload.
            #[param(required = false, value_type = String)]
            queue: Option<String>,
            /// Priority of a payload; 0 if left out.
            #[param(required = false, value_type = i32)]
            priority: Option<i32>,
            /// Milliseconds until a payload can be claimed.
            #[param(required = false, value_type = u64, maximum = 315_576_000_000_i64)]
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
            /// Ids of tasks that must have ended before a payload's, separated by commas.
            #[param(required = false, value_type = String)]
            after: Option<String>,
        }

        impl $name {
            /// The fields of a payload's task, which has these headers.
            fn payload(&self, headers: Vec<(String, String)>) -> Payload {
                let split = |ids: &str| ids.split(',').map(str::to_owned).collect();
                let task = api::TaskInput {
                    queue: self.queue.clone().unwrap_or_default(),
                    priority: self.priority,
                    delay_ms: self.delay_ms,
                    at: self.at.clone(),
                    max_attempts: self.max_attempts,
                    headers: headers.into_iter().collect(),
                    after: self.after.as_deref().map(split).unwrap_or_default(),
                    key: self.key.clone(),
                    ..api::TaskInput::default()
                };
                Payload { task, has_queue: self.queue.is_some() }
            }
        }
    };
}

enqueue_query! {
    /// How to enqueue.
    EnqueueQuery {
        /// Store a single task with a key only if its queue has none with this key that has not ended; the answer names the task that
        /// there is, and whether it existed.
        #[param(required = false)]
        unique: bool,
        /// Store a single task only if all tasks of its `after` are known.
        #[param(required = false)]
        must_exist: bool,
        /// Id of a payload's task, so that a repeat stores it once.
        #[param(required = false, value_type = String)]
        id: Option<String>,
    }
}

enqueue_query! {
    /// How to enqueue under an id.
    PutQuery {}
}

/// The task of a payload as it is.
struct Payload {
    task: api::TaskInput,
    has_queue: bool,
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

impl Payload {
    /// The name of a parameter that was given for it.
    fn field_given(&self) -> Option<&'static str> {
        let task = &self.task;
        let given = [
            ("queue", self.has_queue),
            ("priority", task.priority.is_some()),
            ("delay_ms", task.delay_ms.is_some()),
            ("at", task.at.is_some()),
            ("max_attempts", task.max_attempts.is_some()),
            ("key", task.key.is_some()),
            ("id", task.id.is_some()),
            ("after", !task.after.is_empty()),
            ("header", !task.headers.is_empty()),
        ];
        given.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }

    fn draft(self, payload: &[u8]) -> Result<Draft, Problem> {
        if !self.has_queue {
            return Err(Problem::invalid("a payload as it is comes with its queue in the query: ?queue=NAME"));
        }
        let mut draft = Draft::try_from(self.task).map_err(invalid)?;
        draft.spec.payload = payload.to_vec();
        Ok(draft)
    }
}

/// Tasks of a request.
enum Given {
    One(Box<Draft>),
    Several(Vec<Draft>),
}

/// Reads the tasks of a request: JSON, or a payload as it is.
fn given(payload: Payload, headers: &HeaderMap, body: &[u8]) -> Result<Given, Problem> {
    if media_type(headers) == "application/octet-stream" {
        return Ok(Given::One(Box::new(payload.draft(body)?)));
    }
    expect_json(headers)?;
    if let Some(name) = payload.field_given() {
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

fn place_of(acked: &Acked) -> [(HeaderName, String); 1] {
    [(header::LOCATION, format!("/v1/tasks/{}", acked.id))]
}

/// The answer for a stored task. `existing`: of a unique one, whether it existed before.
fn stored(acked: &Acked, existing: Option<bool>) -> Response {
    let status = if existing == Some(true) { StatusCode::OK } else { status_of_ack(acked.guarantee) };
    (status, place_of(acked), Json(&StoredAck { task: acked.into(), existing })).into_response()
}

/// Enqueues a task, or a list of up to 1,000.
///
/// A list is answered with 200 and one result or error for each task, in order; a list of which a task is not well formed stores none.
/// One task of a list may be a join, and others, with a number, the members of its group. A task with an `id` may be sent again: it is
/// stored once, and its `delay` counts from the time in the id.
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
        (status = 201, body = StoredAck, description = "A majority of the task's replicas has it on disk.",
         headers(("location" = String, description = "Where the task is.")),
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = StoredAck, description = "Fewer replicas have it on disk, as asked for.",
         headers(("location" = String, description = "Where the task is."))),
        (status = 200, body = super::shapes::EnqueueAnswer,
         description = "Results of a list, in order. For `unique` and a task that existed: that task.",
         example = json!({"items": [{"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"}]})),
        BodyProblems,
    )
)]
async fn enqueue(
    client: Short,
    QueryWithHeaders(query, task_headers): QueryWithHeaders<EnqueueQuery>,
    headers: HeaderMap,
    body: Whole,
) -> Result<Response, Problem> {
    let mut payload = query.payload(task_headers);
    payload.task.id.clone_from(&query.id);
    let given = given(payload, &headers, &body.bytes)?;
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
        return Ok(stored(&acked, Some(existing)));
    }
    if query.must_exist && draft.spec.after.is_empty() {
        return Err(Problem::invalid("the query: must_exist goes with a task that has `after`"));
    }
    let acked = match query.must_exist {
        true => client.enqueue_after_known(draft, acks).await?,
        false => client.enqueue_with(draft, acks).await?,
    };
    Ok(stored(&acked, None))
}

/// Enqueues several tasks by one call, so that a join and its members can be among them.
async fn enqueue_list(client: &Client, drafts: Vec<Draft>, acks: Acks) -> Result<Response, Problem> {
    let ids: Vec<Option<TaskId>> = drafts.iter().map(|draft| draft.id).collect();
    let results = acked_of(client, Call::Enqueue { drafts, acks }, "enqueue").await?;
    Ok(Json(&written(results, ids)).into_response())
}

/// The results of a batch of writes.
pub async fn acked_of(client: &Client, call: Call, verb: &str) -> Result<Vec<Result<Acked, Error>>, Problem> {
    match client.call(call, None).await? {
        norn_wire::Response::Acked(results) => Ok(results),
        _ => Err(strange(verb).into()),
    }
}

/// The answer for a batch of writes to these tasks, as far as their ids are known.
pub fn written(
    results: Vec<Result<Acked, Error>>,
    ids: impl IntoIterator<Item = Option<TaskId>>,
) -> WriteResults<'static> {
    let named = |(result, id): (Result<Acked, Error>, Option<TaskId>)| {
        WriteResult::new(result.map_err(|error| id.map_or(error.clone(), |id| about(error, id))))
    };
    WriteResults { items: results.into_iter().zip(ids).map(named).collect() }
}

/// Enqueues a task under an id that was lent.
///
/// A repeat with the same content gets the same answer, and one with other content is refused as a conflict. With a key, the last 24
/// bits of the id become the key's; the answer and `Location` tell the id. A delay counts from the time in the id, which is when it was
/// lent, so that a repeat asks for the same.
#[utoipa::path(
    put, path = "/v1/tasks/{id}", operation_id = "enqueue_as", tag = "tasks",
    params(("id" = String, Path, description = "An id of `/v1/ids`."), PutQuery, HeaderQuery),
    request_body(
        description = "A task, or a payload as it is.",
        content(
            (api::TaskInput = "application/json", example = json!({"queue": "mail", "data": "hello"})),
            (Vec<u8> = "application/octet-stream")
        )
    ),
    responses(
        (status = 201, body = StoredAck, description = "A majority of the task's replicas has it on disk.",
         headers(("location" = String, description = "Where the task is.")),
         example = json!({"id": "000038fxj5g21b4sg6y000800g17ne5m", "acks": 2, "replicas": 3, "guarantee": "strict"})),
        (status = 202, body = StoredAck, description = "Fewer replicas have it on disk, as asked for.",
         headers(("location" = String, description = "Where the task is."))),
        BodyProblems,
    )
)]
async fn enqueue_as(
    client: Short,
    TaskAt(id): TaskAt,
    QueryWithHeaders(query, task_headers): QueryWithHeaders<PutQuery>,
    headers: HeaderMap,
    body: Whole,
) -> Result<Response, Problem> {
    let Given::One(mut draft) = given(query.payload(task_headers), &headers, &body.bytes)? else {
        return Err(Problem::invalid("a single task goes under an id; a list goes to POST /v1/tasks"));
    };
    if draft.id.is_some_and(|named| named != id) {
        return Err(Problem::invalid("the id of the task is another than that of the path; leave it out"));
    }
    draft.id = Some(draft.spec.tag().map_or(id, |tag| id.with_tag(tag)));
    Ok(stored(&client.enqueue_with(*draft, query.acks.unwrap_or_default()).await?, None))
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
        BodyProblems,
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
        WriteProblems,
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
