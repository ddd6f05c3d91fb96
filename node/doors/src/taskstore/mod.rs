//! taskstore's service under `/taskstore`, and further stores of it under `/taskstore/@STORE`.
//!
//! ```text
//! request -> messages -> updates (pure: a transaction) -> node -> messages -> answer
//! ```
//! A task never changes: an update and a claim end it and add another one with a new id, in one transaction of the store's partition.
//! An owned task is one that becomes available in the future, so a lease of the cluster is only taken to choose a task for a claim.

mod claims;
#[cfg(test)]
pub(crate) mod fake;
mod groups;
mod ids;
mod messages;
mod names;
#[cfg(test)]
mod tests;
mod timespec;
mod updates;

use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::Short;
use crate::handover::handed_over;
use crate::pages::{self, Form, Selection};
use crate::problem::Problem;
use crate::state::State;
use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams, State as Shared};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt, TryStreamExt, stream};
use ids::{Numbers, task_id};
use messages::{Answer, Claim, GroupQuery, Refusal, Task, Update, parse_number};
use names::{DEFAULT, Store};
use norn_client::client::{Client, TransactError};
use norn_wire::limits::TRANSACTION_TASKS_MAX;
use norn_wire::{Error, ErrorCode, Retry};
use std::collections::BTreeSet;
use std::sync::Arc;
pub(crate) use timespec::now_ms;
use tokio::sync::Semaphore;
use updates::Known;

/// Most ids of one read.
const IDS_MAX: usize = 1_000;
/// Most tasks that a claim depends on: it changes two in the same transaction.
const DEPENDS_MAX: usize = TRANSACTION_TASKS_MAX - 2;
/// Reads of one request under way at once, with as many tasks in memory.
const READS_AT_ONCE: usize = 16;
/// Attempts to draw numbers that no other node has drawn, and to claim a task that no other client changes meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// What the service keeps between requests.
#[derive(Debug)]
pub struct Memory {
    numbers: Numbers,
    groups: groups::Prepared,
    undoing: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Memory {
        let undoing = Arc::new(Semaphore::new(claims::UNDOING_MAX));
        Memory { numbers: Numbers::default(), groups: groups::Prepared::default(), undoing }
    }
}

/// The routes.
pub fn router() -> Router<Arc<State>> {
    let routes = || {
        Router::new()
            .route("/groups", get(group_names))
            .route("/task/{id}", get(task))
            .route("/tasks/{ids}", get(tasks))
            .route("/group/{*group}", get(group))
            .route("/update", post(update))
            .route("/claim", post(claim))
    };
    Router::new().nest("/taskstore", routes()).nest("/taskstore/{store}", routes())
}

impl<S: Send + Sync> FromRequestParts<S> for Store {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let segments = segments.map_err(|error| Problem::invalid(format!("the path: {error}")))?;
        let given = segments.iter().find(|(name, _)| *name == "store").map(|(_, text)| text);
        let name = given.map_or(Some(DEFAULT), |text| text.strip_prefix('@'));
        name.and_then(Store::new).ok_or_else(|| {
            let detail = "a store is @NAME, with 1 to 32 letters, digits, - and _ in its name";
            Problem::new(StatusCode::NOT_FOUND, "no_route", Retry::Never, detail)
        })
    }
}

/// The last part of a path.
struct At(String);

impl<S: Send + Sync> FromRequestParts<S> for At {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let names = ["id", "ids", "group"];
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let segments = segments.map_err(|error| Problem::invalid(format!("the path: {error}")))?;
        let given = segments.iter().find(|(name, _)| names.contains(name)).map(|(_, text)| text.to_owned());
        given.map(At).ok_or_else(|| Problem::invalid("the path ends early"))
    }
}

async fn group_names(store: Store, client: Short) -> Result<Response, Problem> {
    let queues = client.queues().await?;
    let open = queues.iter().filter(|queue| groups::has_open_tasks(queue));
    let names: BTreeSet<String> = open.filter_map(|queue| store.group(&queue.queue)).collect();
    Ok(Json(&names).into_response())
}

async fn task(store: Store, At(text): At, client: Short) -> Result<Response, Problem> {
    let found = read_one(&client, &store, parse_number(&text).map_err(Problem::invalid)?).await?;
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    Ok((status, Json(&found)).into_response())
}

async fn tasks(store: Store, At(text): At, client: Short) -> Result<Response, Problem> {
    let numbers = text.split(',').map(parse_number).collect::<Result<Vec<u64>, _>>().map_err(Problem::invalid)?;
    if numbers.len() > IDS_MAX {
        return Err(Problem::invalid(format!("{} ids; at most {IDS_MAX} are allowed", numbers.len())));
    }
    let client = Arc::new(client);
    let reads = stream::iter(numbers).map(move |number| {
        let (client, store) = (Arc::clone(&client), store.clone());
        async move { read_one(&client, &store, number).await }
    });
    pages::items(reads.buffered(READS_AT_ONCE), Form { begin: "[", end: "]", limit: u64::MAX }).await
}

async fn group(
    store: Store,
    At(name): At,
    Query(query): Query<GroupQuery>,
    client: Short,
) -> Result<Response, Problem> {
    // What is available is what no client owns.
    let state = (!query.owned).then_some(norn_wire::State::Ready);
    let selection = Selection { queue: Some(store.queue(&name)?), state };
    let limit = if query.limit == 0 { u64::MAX } else { query.limit };
    pages::tasks(client, selection, Form { begin: "[", end: "]", limit }, move |view| Task::of(&store, view)).await
}

async fn update(
    Shared(state): Shared<Arc<State>>,
    store: Store,
    client: Short,
    JsonBody(mut update): JsonBody<Update>,
) -> Result<Response, Problem> {
    let answer = match updates::check(&mut update) {
        Some(refusal) => Err(refusal),
        None => change(&state.taskstore, &store, &client, &update).await?,
    };
    Ok(answered(answer))
}

async fn claim(
    Shared(state): Shared<Arc<State>>,
    store: Store,
    client: Short,
    JsonBody(mut claim): JsonBody<Claim>,
) -> Result<Response, Problem> {
    let mut seen = BTreeSet::new();
    claim.depends.retain(|number| seen.insert(*number));
    if claim.depends.len() > DEPENDS_MAX {
        let text = format!("a claim that depends on {} tasks; it may depend on {DEPENDS_MAX}", claim.depends.len());
        return Ok(answered(Err(Refusal::bug(text))));
    }
    let Some(chosen) = (match claims::choose(&state, &store, &client, &claim).await? {
        Ok(chosen) => chosen,
        Err(refusal) => return Ok(answered(Err(refusal))),
    }) else {
        return Ok(answered(Ok(Vec::new())));
    };
    Ok(handed_over(answered(Ok(chosen.replacement.iter().cloned().collect())), chosen))
}

fn answered(result: Result<Vec<Task>, Refusal>) -> Response {
    let answer = match result {
        Ok(tasks) => Answer { tasks, error: None },
        Err(refusal) => Answer { tasks: Vec::new(), error: Some(refusal) },
    };
    Json(&answer).into_response()
}

/// Reads a task. `None`: it is not there.
async fn read_one(client: &Client, store: &Store, number: u64) -> Result<Option<Task>, Error> {
    let Some(id) = task_id(number, store.tag) else { return Ok(None) };
    match client.get(id).await {
        Ok(view) => Ok(Task::of(store, &view)),
        Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::TooOld) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads tasks. Those that are not there are not in the answer.
async fn read(client: &Client, store: &Store, numbers: impl IntoIterator<Item = u64>) -> Result<Known, Problem> {
    let numbers: BTreeSet<u64> = numbers.into_iter().collect();
    let reads = numbers.into_iter().map(|number| read_one(client, store, number));
    // Collected first, so that the compiler sees one type of reads whatever they borrow.
    let reads: Vec<_> = reads.collect();
    let found: Vec<Option<Task>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().map(|task| (task.id, task)).collect())
}

/// Tasks depended on that are not there.
async fn missing(client: &Client, store: &Store, depends: &[u64]) -> Result<Vec<u64>, Problem> {
    let known = read(client, store, depends.iter().copied()).await?;
    Ok(depends.iter().copied().filter(|number| !known.contains_key(number)).collect())
}

/// The next attempt has to draw other numbers.
fn drawn_out() -> Problem {
    Error::new(ErrorCode::Overloaded, "too many tasks are made at once for ids to be found; try again").into()
}

/// Gives new tasks their numbers, above those that the request names.
fn number_tasks(memory: &Memory, tasks: &mut [Task], named: impl IntoIterator<Item = u64>) -> Result<(), Problem> {
    let numbers = memory.numbers.draw(tasks.len(), now_ms(), named);
    let numbers =
        numbers.ok_or_else(|| Problem::from(Error::new(ErrorCode::NotReady, "the clock is beyond all ids")))?;
    tasks.iter_mut().zip(numbers).for_each(|(task, number)| task.id = number);
    Ok(())
}

/// Makes an update, or tells why it was not made.
async fn change(
    memory: &Memory,
    store: &Store,
    client: &Client,
    update: &Update,
) -> Result<Result<Vec<Task>, Refusal>, Problem> {
    let added = update.adds.iter().map(|add| store.queue(&add.group)).collect::<Result<BTreeSet<_>, _>>()?;
    let named = update.updates.iter().map(|renewal| renewal.id).chain(update.deletes.iter().copied());
    let known = read(client, store, named).await?;
    let now_ms = now_ms();
    let mut tasks = updates::made(update, &known, now_ms)?;
    let changes_nothing = update.adds.is_empty() && update.updates.is_empty() && update.deletes.is_empty();
    let impossible = update.depends.iter().any(|number| task_id(*number, store.tag).is_none());
    let mut refusal = updates::judge(update, &known, now_ms);
    if !refusal.is_empty() || changes_nothing || impossible {
        refusal.depends = missing(client, store, &update.depends).await?;
        return Ok(if refusal.is_empty() { Ok(Vec::new()) } else { Err(refusal) });
    }
    memory.groups.prepare(client, added).await?;
    for _ in 0..ATTEMPTS_MAX {
        number_tasks(memory, &mut tasks, known.keys().chain(&update.depends).copied())?;
        match client.transact(updates::transaction(store, update, &tasks)?).await {
            Ok(_) => return Ok(Ok(tasks)),
            Err(TransactError::Refused(refusal)) if updates::has_collided(store, &refusal, &tasks) => {}
            Err(TransactError::Refused(refusal)) => return Ok(Err(updates::refused(update, &refusal))),
            Err(TransactError::Failed(error)) if error.code == ErrorCode::Invalid => {
                return Ok(Err(Refusal::bug(error.message)));
            }
            Err(TransactError::Failed(error)) => return Err(refusal_of(error).into()),
        }
    }
    Err(drawn_out())
}

/// A refused transaction. The ids are made here, so that one from the future is no fault of the caller.
fn refusal_of(error: Error) -> Error {
    match error.code {
        ErrorCode::IdFromFuture => Error {
            code: ErrorCode::ClockAhead,
            retry: Retry::Later,
            message: "the clock of this node is ahead of others, which refuse the ids that it makes; ask another node, and check its clock"
                .to_owned(),
            id: None,
            ..error
        },
        _ => error,
    }
}

/// An error before the transaction: whatever became of the call, nothing of the request took effect, so it may be repeated.
pub(crate) fn without_effect(error: Error) -> Error {
    match error.code {
        ErrorCode::Unknown => Error::unavailable(error.message),
        _ => error,
    }
}
