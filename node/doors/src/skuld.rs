//! Skuld's interface under `/skuld`.
//!
//! Ids are Norn's 160 bits in url-safe base64. A claim's `cid` is its place among the claims of its task, from 0. Errors are
//! `{"error": ...}` with the status that `/v1` gives them.

use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::{Short, segment};
use crate::pages::{self, Form};
use crate::problem::{Outcome, Problem};
use crate::state::State;
use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, Request, State as Shared};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::GeneralPurposeConfig;
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use norn_client::api::Encoding;
use norn_client::client::{ClaimOptions, Client, CompleteOptions, ListOptions};
use norn_client::session::Draft;
use norn_wire::limits::{LEASE_MS_MAX, LEASE_MS_MIN};
use norn_wire::response::{Acked, ClaimView, State as TaskState, TaskView};
use norn_wire::{Acks, Error, ErrorCode, QueueName, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The queue of requests that name none.
const QUEUE: &str = "skuld";
/// How long the number of replicas is remembered.
const REPLICAS_KNOWN: Duration = Duration::from_secs(60);
/// Base64 of ids: url-safe, written with padding and read with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the interface keeps between requests.
#[derive(Debug, Default)]
pub struct Memory {
    replicas: Mutex<Option<(Instant, u32)>>,
}

/// The routes.
pub fn router() -> Router<Arc<State>> {
    Router::new()
        .route("/skuld/id", get(lend_id))
        .route("/skuld/tasks/enqueue", post(enqueue))
        .route("/skuld/tasks/claim", post(claim))
        .route("/skuld/tasks/complete/{id}", post(complete))
        .route("/skuld/tasks/list", get(list))
        .route("/skuld/tasks/count", get(count))
        .route("/skuld/tasks/{id}", get(read))
        .route("/skuld/queue/count", get(count_queue))
}

/// A problem in Skuld's form.
#[derive(Debug)]
struct Failure(Problem);

impl<T: Into<Problem>> From<T> for Failure {
    fn from(problem: T) -> Failure {
        Failure(problem.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Told<'a> {
            error: &'a str,
        }
        let Failure(problem) = self;
        let mut response = (problem.status(), Json(&Told { error: &problem.detail })).into_response();
        response.extensions_mut().insert(Outcome(problem.code.clone()));
        if let Some(pause) = problem.into_response().headers().get(header::RETRY_AFTER) {
            response.headers_mut().insert(header::RETRY_AFTER, pause.clone());
        }
        response
    }
}

/// A part of a request that fails in Skuld's form.
struct In<T>(T);

impl<T: FromRequestParts<Arc<State>, Rejection = Problem>> FromRequestParts<Arc<State>> for In<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<State>) -> Result<Self, Failure> {
        Ok(In(T::from_request_parts(parts, state).await?))
    }
}

/// A body that fails in Skuld's form.
struct InBody<T>(T);

impl<T: for<'de> Deserialize<'de>> FromRequest<Arc<State>> for InBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &Arc<State>) -> Result<Self, Failure> {
        let JsonBody(body) = JsonBody::from_request(request, state).await?;
        Ok(InBody(body))
    }
}

/// A task's id as Skuld writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SkuldId(TaskId);

impl FromStr for SkuldId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The standard alphabet, in which Skuld itself writes ids, is read as well.
        let text = text.replace('+', "-").replace('/', "_");
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(|bytes| SkuldId(TaskId::from_bytes(bytes))).ok_or_else(|| "an id is 20 bytes in base64".to_owned())
    }
}

fn text_of(id: TaskId) -> String {
    BASE64.encode(id.as_bytes())
}

impl<S: Sync + Send> FromRequestParts<S> for SkuldId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        segment(parts, state, "id").await
    }
}

/// A task.
#[derive(Debug, Serialize)]
struct Task {
    id: String,
    queue: String,
    priority: i32,
    data: String,
    /// Says that the data is no text and stands in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_encoding: Option<Encoding>,
    claims: Vec<Claim>,
}

/// A claim of a task, with times in milliseconds since the Unix epoch.
#[derive(Debug, Serialize)]
struct Claim {
    start: u64,
    end: Option<u64>,
    completed: Option<u64>,
}

impl From<&TaskView> for Task {
    fn from(view: &TaskView) -> Task {
        let (data, encoding) = Encoding::encode(&view.spec.payload);
        let claim =
            |claim: &ClaimView| Claim { start: claim.start_ms, end: claim.end_ms, completed: claim.completed_ms };
        Task {
            id: text_of(view.id),
            queue: view.spec.queue.to_string(),
            priority: view.spec.priority,
            data: data.into_owned(),
            data_encoding: (encoding == Encoding::Base64).then_some(encoding),
            claims: view.claims.iter().map(claim).collect(),
        }
    }
}

/// Number of replicas of each partition.
async fn replicas(memory: &Memory, client: &Client) -> Result<u32, Error> {
    let known = *memory.replicas.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((since, replicas)) = known
        && since.elapsed() < REPLICAS_KNOWN
    {
        return Ok(replicas);
    }
    let replicas = client.cluster().await?.replicas;
    *memory.replicas.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), replicas));
    Ok(replicas)
}

/// What `w` replicas are in Norn's words: one, a majority, or all. `None`: there are not as many.
fn acks_of(w: u32, replicas: u32) -> Option<Acks> {
    match w {
        0 => None,
        1 => Some(Acks::One),
        _ if w <= replicas / 2 + 1 => Some(Acks::Quorum),
        _ if w <= replicas => Some(Acks::All),
        _ => None,
    }
}

async fn acks(memory: &Memory, client: &Client, w: Option<u32>) -> Result<Acks, Failure> {
    match w {
        None => Ok(Acks::Quorum),
        Some(1) => Ok(Acks::One),
        Some(w) => {
            let replicas = replicas(memory, client).await?;
            acks_of(w, replicas).ok_or_else(|| {
                Problem::invalid(format!("w is {w}, and it is from 1 to {replicas}, the replicas")).into()
            })
        }
    }
}

/// Tells on how many disks a write is; fails if they are fewer than asked for.
fn written(acked: &Acked, w: Option<u32>) -> Result<u32, Failure> {
    match w {
        Some(w) if acked.acks < w => {
            let text = format!(
                "the write is on {} of {} disks, and {w} were asked for; repeat it",
                acked.acks, acked.replicas
            );
            Err(Error::new(ErrorCode::Unknown, text).into())
        }
        _ => Ok(acked.acks),
    }
}

/// Checks how many replicas a read is to ask, and returns how many it asks.
async fn reading(memory: &Memory, client: &Client, r: Option<u32>) -> Result<u32, Failure> {
    let majority = replicas(memory, client).await? / 2 + 1;
    match r {
        Some(r) if r == 0 || r > majority => {
            Err(Problem::invalid(format!("r is {r}; a read asks a majority, so it is from 1 to {majority}")).into())
        }
        _ => Ok(majority),
    }
}

async fn lend_id(In(_client): In<Short>) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Lent {
        id: String,
    }
    let random: [u8; 16] = rand::random();
    let id = TaskId::named(crate::taskstore::now_ms(), &random);
    Ok(Json(&Lent { id: text_of(id) }).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Enqueue {
    task: NewTask,
    #[serde(default)]
    w: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTask {
    data: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    queue: Option<String>,
    #[serde(default)]
    priority: i32,
}

fn queue_of(name: Option<&str>) -> Result<QueueName, Problem> {
    QueueName::new(name.unwrap_or(QUEUE)).map_err(|error| Problem::invalid(error.0))
}

async fn enqueue(
    Shared(state): Shared<Arc<State>>,
    In(client): In<Short>,
    InBody(Enqueue { task, w }): InBody<Enqueue>,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Stored {
        id: String,
        n: u32,
    }
    let mut draft = Draft::new(queue_of(task.queue.as_deref())?, task.data).priority(task.priority);
    if let Some(id) = task.id {
        draft = draft.id(id.parse::<SkuldId>().map_err(Problem::invalid)?.0);
    }
    let acks = acks(&state.skuld, &client, w).await?;
    let acked = client.enqueue_with(draft, acks).await?;
    Ok(Json(&Stored { id: text_of(acked.id), n: written(&acked, w)? }).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    dt: u64,
    #[serde(default)]
    queue: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Taken {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
}

async fn claim(In(client): In<Short>, InBody(Take { dt, queue }): InBody<Take>) -> Result<Response, Failure> {
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&dt) {
        let text = format!("dt is {dt}; it is in milliseconds, from {LEASE_MS_MIN} to {LEASE_MS_MAX}");
        return Err(Problem::invalid(text).into());
    }
    let options = ClaimOptions::new([queue_of(queue.as_deref())?]).lease(Duration::from_millis(dt)).worker("skuld");
    let claims = client.claim(options).await?;
    let Some(claimed) = claims.tasks.into_iter().next() else {
        if claims.unavailable > 0 {
            let text = format!("{} partitions could not be asked for tasks; try again", claims.unavailable);
            return Err(Error::unavailable(text).into());
        }
        return Ok(Json(&Taken::default()).into_response());
    };
    // The grant does not tell the claims before it, and a claim's place among them is its `cid`.
    let (id, token) = (claimed.granted.id, claimed.granted.token);
    let seen = client.get(id).await.and_then(|view| match view.claims.last() {
        Some(last) if last.token == token => Ok(view),
        _ => Err(Error::unavailable("the claim is not to be seen yet; try again")),
    });
    match seen {
        Ok(view) => Ok(Json(&Taken { task: Some(Task::from(&view)) }).into_response()),
        Err(error) => {
            if let Err(error) = client.release(id, token).await {
                tracing::debug!(%id, %error, "a claim that was not answered stays until its lease ends");
            }
            Err(error.into())
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    cid: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcern {
    #[serde(default)]
    w: Option<u32>,
}

async fn complete(
    Shared(state): Shared<Arc<State>>,
    In(SkuldId(id)): In<SkuldId>,
    In(Query(WriteConcern { w })): In<Query<WriteConcern>>,
    In(client): In<Short>,
    InBody(Finish { cid }): InBody<Finish>,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Written {
        w: u32,
    }
    let acks = acks(&state.skuld, &client, w).await?;
    let view = task_view(&client, id).await?;
    let Some(claim) = view.claims.get(cid) else {
        let text = format!("the task has no claim {cid}: it has {}, and they count from 0", view.claims.len());
        return Err(Error::new(ErrorCode::NotFound, text).into());
    };
    let acked = client.complete(CompleteOptions::new(id, claim.token).acks(acks)).await?;
    Ok(Json(&Written { w: written(&acked, w)? }).into_response())
}

async fn task_view(client: &Client, id: TaskId) -> Result<TaskView, Error> {
    client.get(id).await.map_err(|error| match error.code {
        ErrorCode::NotFound | ErrorCode::TooOld => Error::new(ErrorCode::NotFound, "No such task"),
        _ => error,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadConcern {
    #[serde(default)]
    r: Option<u32>,
    #[serde(default)]
    queue: Option<String>,
}

async fn read(
    Shared(state): Shared<Arc<State>>,
    In(SkuldId(id)): In<SkuldId>,
    In(Query(query)): In<Query<ReadConcern>>,
    In(client): In<Short>,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Found {
        task: Task,
        n: u32,
    }
    if query.queue.is_some() {
        return Err(Problem::invalid("a task is read by its id alone; leave the queue out").into());
    }
    let n = reading(&state.skuld, &client, query.r).await?;
    let view = task_view(&client, id).await?;
    Ok(Json(&Found { task: Task::from(&view), n }).into_response())
}

async fn count(In(client): In<Short>) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
        /// Of the partitions of which this node has a replica.
        partitions: BTreeMap<String, u64>,
    }
    let count = client.count(None, None).await?;
    let partitions = client.partitions().await?;
    let of_partition = |partition: &norn_wire::response::PartitionView| {
        Some((format!("skuld_{}", partition.partition), partition.tasks?))
    };
    let partitions = partitions.iter().filter_map(of_partition).collect();
    Ok(Json(&Counted { count, partitions }).into_response())
}

async fn count_queue(
    Shared(state): Shared<Arc<State>>,
    In(Query(query)): In<Query<ReadConcern>>,
    In(client): In<Short>,
) -> Result<Response, Failure> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
    }
    reading(&state.skuld, &client, query.r).await?;
    let queue = queue_of(query.queue.as_deref())?;
    let count = client.count(Some(queue), Some(TaskState::Ready)).await?;
    Ok(Json(&Counted { count }).into_response())
}

async fn list(In(client): In<Short>) -> Result<Response, Failure> {
    let show = |view: &TaskView| Some(Task::from(view));
    let form = Form { begin: "{\"tasks\":[", end: "]}", limit: u64::MAX, show };
    Ok(pages::answer(client, ListOptions::new(), form).await?)
}

#[cfg(test)]
mod tests;
