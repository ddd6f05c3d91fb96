//! Skuld's interface under `/skuld`.
//!
//! Ids are Norn's 160 bits in url-safe base64. A claim's `cid` is its token; its place among the claims of its task is read as well, for as
//! long as the task shows all of its claims. Errors are `{"error": ...}` with the status that `/v1` gives them.

use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::{Short, segment};
use crate::handover::{Granted, Unsettled, handed_over};
use crate::pages::{self, Form, Selection};
use crate::problem::{Problem, name_of};
use crate::state::State;
use crate::taskstore::without_effect;
use axum::Router;
use axum::extract::{FromRequestParts, State as Shared};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::GeneralPurposeConfig;
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use norn_client::api::Encoding;
use norn_client::client::calling::strange;
use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::limits::{CLAIMS_SHOWN_MAX, LEASE_MS_MAX, LEASE_MS_MIN};
use norn_wire::response::{Acked, ClaimView, State as TaskState, TaskView};
use norn_wire::{Acks, Error, ErrorCode, QueueName, TaskId, Token};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU8;
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

/// Whether a path is the interface's.
pub fn is_at(path: &str) -> bool {
    path.strip_prefix("/skuld").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A problem in Skuld's form: a text, and beside it the id to repeat a write under whose outcome is not known. Other answers stay.
pub fn in_its_form(mut response: Response) -> Response {
    #[derive(Serialize)]
    struct Told<'a> {
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    }
    let Some(problem) = response.extensions_mut().remove::<Problem>() else { return response };
    let is_unknown = problem.code == name_of(ErrorCode::Unknown);
    let id = problem.id.as_deref().filter(|_| is_unknown).and_then(|id| id.parse().ok()).map(text_of);
    let (told, body) = Json(&Told { error: &problem.detail, id }).into_response().into_parts();
    response.headers_mut().extend(told.headers);
    response.map(|_| body)
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
    cid: String,
    start: u64,
    end: Option<u64>,
    completed: Option<u64>,
}

impl From<&TaskView> for Task {
    fn from(view: &TaskView) -> Task {
        let (data, encoding) = Encoding::encode(&view.spec.payload);
        let claim = |claim: &ClaimView| Claim {
            cid: claim.token.to_string(),
            start: claim.start_ms,
            end: claim.end_ms,
            completed: claim.completed_ms,
        };
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

/// What `w` replicas are in Norn's words. `None`: there are not as many.
fn acks_of(w: u32, replicas: u32) -> Option<Acks> {
    let count = u8::try_from(w).ok().and_then(NonZeroU8::new)?;
    match w {
        1 => Some(Acks::One),
        _ if w == replicas / 2 + 1 => Some(Acks::Quorum),
        _ => (w <= replicas).then_some(Acks::Count(count)),
    }
}

async fn acks(memory: &Memory, client: &Client, w: Option<u32>) -> Result<Acks, Problem> {
    match w {
        None => Ok(Acks::Quorum),
        Some(1) => Ok(Acks::One),
        Some(w) => {
            let replicas = replicas(memory, client).await?;
            acks_of(w, replicas)
                .ok_or_else(|| Problem::invalid(format!("w is {w}, and it is from 1 to {replicas}, the replicas")))
        }
    }
}

/// Tells on how many disks a write is; fails if they are fewer than asked for.
fn written(acked: &Acked, w: Option<u32>) -> Result<u32, Problem> {
    match w {
        Some(w) if acked.acks < w => {
            let text = format!(
                "the write is on {} of {} disks, and {w} were asked for; repeat it under its id",
                acked.acks, acked.replicas
            );
            Err(Error::new(ErrorCode::Unknown, text).about(acked.id).into())
        }
        _ => Ok(acked.acks),
    }
}

/// Checks how many replicas a read is to ask, and returns how many it asks.
async fn reading(memory: &Memory, client: &Client, r: Option<u32>) -> Result<u32, Problem> {
    let majority = replicas(memory, client).await? / 2 + 1;
    match r {
        Some(r) if r == 0 || r > majority => {
            Err(Problem::invalid(format!("r is {r}; a read asks a majority, so it is from 1 to {majority}")))
        }
        _ => Ok(majority),
    }
}

async fn lend_id(_client: Short) -> Result<Response, Problem> {
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

/// Names the task of a failed write, for a repeat.
fn named(error: Error, id: TaskId) -> Error {
    match error.code {
        ErrorCode::Unknown => {
            Error { message: format!("{}; repeat it under its id", error.message), ..error }.about(id)
        }
        _ => error,
    }
}

fn queue_of(name: Option<&str>) -> Result<QueueName, Problem> {
    QueueName::new(name.unwrap_or(QUEUE)).map_err(|error| Problem::invalid(error.0))
}

async fn enqueue(
    Shared(state): Shared<Arc<State>>,
    client: Short,
    JsonBody(Enqueue { task, w }): JsonBody<Enqueue>,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Stored {
        id: String,
        n: u32,
    }
    let draft = Draft::new(queue_of(task.queue.as_deref())?, task.data).priority(task.priority);
    let given = task.id.map(|id| id.parse::<SkuldId>()).transpose().map_err(Problem::invalid)?;
    let acks = acks(&state.skuld, &client, w).await?;
    // Drawn before the write, so that whatever becomes of that, its caller learns under which id to repeat it.
    let id = match given {
        Some(SkuldId(id)) => id,
        None => client.lend_ids(1).await.map_err(without_effect)?.pop().ok_or_else(|| strange("lend"))?,
    };
    let acked = client.enqueue_with(draft.id(id), acks).await.map_err(|error| named(error, id))?;
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

async fn claim(client: Short, JsonBody(Take { dt, queue }): JsonBody<Take>) -> Result<Response, Problem> {
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&dt) {
        let text = format!("dt is {dt}; it is in milliseconds, from {LEASE_MS_MIN} to {LEASE_MS_MAX}");
        return Err(Problem::invalid(text));
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
    // The grant does not tell the claims before it.
    let (id, token) = (claimed.granted.id, claimed.granted.token);
    let mut granted = Granted::new(client, vec![(id, token)]);
    let seen = granted.get(id).await.and_then(|view| match view.claims.last() {
        Some(last) if last.token == token => Ok(view),
        _ => Err(Error::unavailable("the claim is not to be seen yet; try again")),
    });
    match seen {
        Ok(view) => Ok(handed_over(Json(&Taken { task: Some(Task::from(&view)) }).into_response(), granted)),
        Err(error) => {
            if let Err(error) = granted.release(id, token).await {
                tracing::debug!(%id, %error, "a claim that was not answered stays until its lease ends");
            }
            granted.settle();
            Err(without_effect(error).into())
        }
    }
}

/// Which claim of a task is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimRef {
    /// By its name, whatever claims were before it.
    Token(Token),
    /// By its place among the claims of its task, from 0.
    Place(usize),
}

impl<'de> Deserialize<'de> for ClaimRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a cid is as it stands in the claim, or is the place of the claim, from 0")]
        enum Given {
            Place(usize),
            Token(String),
        }
        match Given::deserialize(deserializer)? {
            Given::Place(place) => Ok(ClaimRef::Place(place)),
            Given::Token(text) => text.parse().map(ClaimRef::Token).map_err(D::Error::custom),
        }
    }
}

impl ClaimRef {
    /// The claim's token. A task that has had more claims than it shows does not know the places of those that it shows, and has
    /// perhaps had one that it does not show.
    fn token(self, view: &TaskView) -> Result<Token, Error> {
        let shown = view.claims.len();
        let shows_all = shown < CLAIMS_SHOWN_MAX;
        match self {
            ClaimRef::Token(token) if !shows_all || view.claims.iter().any(|claim| claim.token == token) => Ok(token),
            ClaimRef::Token(token) => Err(Error::new(ErrorCode::NotFound, format!("the task has no claim {token}"))),
            ClaimRef::Place(_) if !shows_all => {
                let text = format!(
                    "a task shows its latest {CLAIMS_SHOWN_MAX} claims, and their places change; give the cid that stands in the claim"
                );
                Err(Error::new(ErrorCode::Conflict, text))
            }
            ClaimRef::Place(place) => view.claims.get(place).map(|claim| claim.token).ok_or_else(|| {
                let text = format!("the task has no claim {place}: it has {shown}, and they count from 0");
                Error::new(ErrorCode::NotFound, text)
            }),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    cid: ClaimRef,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcern {
    #[serde(default)]
    w: Option<u32>,
}

async fn complete(
    Shared(state): Shared<Arc<State>>,
    SkuldId(id): SkuldId,
    Query(WriteConcern { w }): Query<WriteConcern>,
    client: Short,
    JsonBody(Finish { cid }): JsonBody<Finish>,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Written {
        w: u32,
    }
    let acks = acks(&state.skuld, &client, w).await?;
    let view = task_view(&client, id).await?;
    let token = cid.token(&view)?;
    let acked = client.complete(CompleteOptions::new(id, token).acks(acks)).await.map_err(|error| error.about(id))?;
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
    SkuldId(id): SkuldId,
    Query(query): Query<ReadConcern>,
    client: Short,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Found {
        task: Task,
        n: u32,
    }
    if query.queue.is_some() {
        return Err(Problem::invalid("a task is read by its id alone; leave the queue out"));
    }
    let n = reading(&state.skuld, &client, query.r).await?;
    let view = task_view(&client, id).await?;
    Ok(Json(&Found { task: Task::from(&view), n }).into_response())
}

async fn count(client: Short) -> Result<Response, Problem> {
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
    Query(query): Query<ReadConcern>,
    client: Short,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Counted {
        count: u64,
    }
    reading(&state.skuld, &client, query.r).await?;
    let queue = queue_of(query.queue.as_deref())?;
    let count = client.count(Some(queue), Some(TaskState::Ready)).await?;
    Ok(Json(&Counted { count }).into_response())
}

async fn list(client: Short) -> Result<Response, Problem> {
    let form = Form { begin: "{\"tasks\":[", end: "]}", limit: u64::MAX };
    pages::tasks(client, Selection::default(), form, |view| Some(Task::from(view))).await
}

#[cfg(test)]
mod tests;
