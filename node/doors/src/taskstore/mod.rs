//! taskstore's service under `/taskstore`, and further stores of it under `/taskstore/@STORE`.
//!
//! ```text
//! request -> messages -> updates (pure: a transaction) -> node -> messages -> answer
//! ```
//! A task never changes: an update and a claim end it and add another one with a new id, in one transaction of the store's partition.
//! An owned task is one that becomes available in the future, so a lease of the cluster is only taken to choose a task for a claim.

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
use crate::pages::{self, Form};
use crate::problem::Problem;
use crate::state::State;
use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams, State as Shared};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt, TryStreamExt, stream};
use ids::{Numbers, number, task_id};
use messages::{Answer, Claim, GroupQuery, Refusal, Task, Update, parse_number};
use names::{DEFAULT, Store};
use norn_client::client::{ClaimOptions, Client, ListOptions, TransactError};
use norn_wire::response::{Granted, TaskView};
use norn_wire::{Error, ErrorCode, Retry};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use timespec::now_ms;
use updates::Known;

/// Most ids of one request.
const IDS_MAX: usize = 1_000;
/// Reads of one request under way at once.
const READS_AT_ONCE: usize = 16;
/// Attempts to draw numbers that no other node has drawn, and to claim a task that no other client changes meanwhile.
const ATTEMPTS_MAX: usize = 8;
/// Lease during which a claim replaces the chosen task. If the node dies between, the task is free after it.
const CHOOSING_LEASE: Duration = Duration::from_secs(5);

/// What the service keeps between requests.
#[derive(Debug, Default)]
pub struct Memory {
    numbers: Numbers,
    groups: groups::Prepared,
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
    let number = parse_number(&text).map_err(Problem::invalid)?;
    let found = read(&client, &store, [number]).await?.remove(&number);
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    Ok((status, Json(&found)).into_response())
}

async fn tasks(store: Store, At(text): At, client: Short) -> Result<Response, Problem> {
    let numbers = text.split(',').map(parse_number).collect::<Result<Vec<u64>, _>>().map_err(Problem::invalid)?;
    if numbers.len() > IDS_MAX {
        return Err(Problem::invalid(format!("{} ids; at most {IDS_MAX} are allowed", numbers.len())));
    }
    let found = read(&client, &store, numbers.iter().copied()).await?;
    let listed: Vec<Option<&Task>> = numbers.iter().map(|number| found.get(number)).collect();
    Ok(Json(&listed).into_response())
}

async fn group(
    store: Store,
    At(name): At,
    Query(query): Query<GroupQuery>,
    client: Short,
) -> Result<Response, Problem> {
    let options = ListOptions::new().queue(store.queue(&name)?);
    // What is available is what no client owns.
    let options = if query.owned { options } else { options.state(norn_wire::State::Ready) };
    let limit = if query.limit == 0 { u64::MAX } else { query.limit };
    let show = move |view: &TaskView| Task::of(&store, view);
    pages::answer(client, options, Form { begin: "[", end: "]", limit, show }).await
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
    if claim.depends.len() > IDS_MAX.min(norn_wire::limits::TRANSACTION_TASKS_MAX - 2) {
        let text = format!("a claim that depends on {} tasks; it may depend on 98", claim.depends.len());
        return Ok(answered(Err(Refusal::bug(text))));
    }
    Ok(answered(choose(&state.taskstore, &store, &client, &claim).await?))
}

fn answered(result: Result<Vec<Task>, Refusal>) -> Response {
    let answer = match result {
        Ok(tasks) => Answer { tasks, error: None },
        Err(refusal) => Answer { tasks: Vec::new(), error: Some(refusal) },
    };
    Json(&answer).into_response()
}

/// Reads tasks. Those that are not there are not in the answer.
async fn read(client: &Client, store: &Store, numbers: impl IntoIterator<Item = u64>) -> Result<Known, Problem> {
    let numbers: BTreeSet<u64> = numbers.into_iter().collect();
    let ids = numbers.into_iter().filter_map(|number| Some((number, task_id(number, store.tag)?)));
    let reads = ids.map(|(number, id)| async move {
        match client.get(id).await {
            Ok(view) => Ok(Task::of(store, &view).map(|task| (number, task))),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::TooOld) => Ok(None),
            Err(error) => Err(Problem::from(error)),
        }
    });
    // Collected first, so that the compiler sees one type of reads whatever they borrow.
    let reads: Vec<_> = reads.collect();
    let found: Vec<Option<(u64, Task)>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
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

/// Gives new tasks their numbers, above those of the tasks that they replace.
fn number_tasks(memory: &Memory, tasks: &mut [Task], above: u64) -> Result<(), Problem> {
    let numbers = memory.numbers.draw(tasks.len(), now_ms(), above);
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
    for add in &update.adds {
        store.queue(&add.group)?;
    }
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
    let added: BTreeSet<&str> = update.adds.iter().map(|add| add.group.as_str()).collect();
    for group in added {
        memory.groups.prepare(client, &store.queue(group)?).await?;
    }
    let above = known.keys().copied().max().unwrap_or(0);
    for _ in 0..ATTEMPTS_MAX {
        number_tasks(memory, &mut tasks, above)?;
        match client.transact(updates::transaction(store, update, &tasks)?).await {
            Ok(_) => return Ok(Ok(tasks)),
            Err(TransactError::Refused(refusal)) if updates::has_collided(store, &refusal, &tasks) => {}
            Err(TransactError::Refused(refusal)) => return Ok(Err(updates::refused(update, &refusal))),
            Err(TransactError::Failed(error)) if error.code == ErrorCode::Invalid => {
                return Ok(Err(Refusal::bug(error.message)));
            }
            Err(TransactError::Failed(error)) => return Err(error.into()),
        }
    }
    Err(drawn_out())
}

/// An error before the transaction: whatever became of the call, nothing of the request took effect, so it may be repeated.
fn without_effect(error: Error) -> Error {
    match error.code {
        ErrorCode::Unknown => Error::unavailable(error.message),
        _ => error,
    }
}

/// How an attempt to take a chosen task has ended.
enum Taken {
    Yes(Task),
    Refused(Refusal),
    /// Another client has it by now.
    Lost,
}

/// Claims a task, or tells why none is. No task at all is no refusal.
async fn choose(
    memory: &Memory,
    store: &Store,
    client: &Client,
    claim: &Claim,
) -> Result<Result<Vec<Task>, Refusal>, Problem> {
    let queue = store.queue(&claim.group)?;
    for _ in 0..ATTEMPTS_MAX {
        let depends = missing(client, store, &claim.depends).await?;
        if !depends.is_empty() {
            return Ok(Err(Refusal { depends, ..Refusal::default() }));
        }
        let worker = format!("taskstore client {}", claim.clientid);
        let options = ClaimOptions::new([queue.clone()]).lease(CHOOSING_LEASE).worker(worker);
        let claims = client.claim(options).await.map_err(without_effect)?;
        let Some(claimed) = claims.tasks.into_iter().next() else {
            if claims.unavailable > 0 {
                let text = format!("{} partitions could not be asked for tasks; try again", claims.unavailable);
                return Err(Error::unavailable(text).into());
            }
            return Ok(Ok(Vec::new()));
        };
        match take(memory, store, client, claim, claimed.granted).await? {
            Taken::Yes(task) => return Ok(Ok(vec![task])),
            Taken::Refused(refusal) => return Ok(Err(refusal)),
            Taken::Lost => {}
        }
    }
    Err(Error::new(ErrorCode::Overloaded, "other clients took each task that was chosen; try again").into())
}

/// Replaces a task that was chosen by one that the client owns.
async fn take(
    memory: &Memory,
    store: &Store,
    client: &Client,
    claim: &Claim,
    granted: Granted,
) -> Result<Taken, Problem> {
    let Some(before) = number(granted.id).filter(|_| granted.id.tag() == store.tag) else {
        give_back(client, &granted).await;
        let text =
            format!("task {} was not added through this service; claim it as a task of {}", granted.id, granted.queue);
        return Ok(Taken::Refused(Refusal::bug(text)));
    };
    let timespec = now_ms().saturating_add(claim.duration);
    if timespec > ids::NUMBER_MAX {
        give_back(client, &granted).await;
        return Err(Problem::invalid(format!("a duration of {} ms; times end at {}", claim.duration, ids::NUMBER_MAX)));
    }
    let data = String::from_utf8_lossy(&granted.payload).into_owned();
    let mut tasks = [Task { id: 0, group: claim.group.clone(), data, timespec, ownerid: claim.clientid }];
    let depends: Vec<u64> = claim.depends.iter().copied().filter(|number| *number != before).collect();
    for _ in 0..ATTEMPTS_MAX {
        number_tasks(memory, &mut tasks, before)?;
        let transaction = updates::adding(store, &tasks)?.delete((granted.id, granted.token));
        match client.transact(updates::depending(store, transaction, &depends)).await {
            Ok(_) => {
                let [task] = tasks;
                return Ok(Taken::Yes(task));
            }
            Err(TransactError::Refused(refusal)) if updates::has_collided(store, &refusal, &tasks) => {}
            Err(TransactError::Refused(refusal)) => {
                give_back(client, &granted).await;
                let refusal = updates::refused(&Update::default(), &refusal);
                let is_lost = refusal.depends.is_empty() && refusal.bugs.is_empty();
                let refusal = Refusal { deletes: Vec::new(), owned: Vec::new(), ..refusal };
                return Ok(if is_lost { Taken::Lost } else { Taken::Refused(refusal) });
            }
            Err(TransactError::Failed(error)) => {
                // An outcome that is not known may be that the task has ended, and then there is nothing to give back.
                if error.code != ErrorCode::Unknown {
                    give_back(client, &granted).await;
                }
                return Err(error.into());
            }
        }
    }
    give_back(client, &granted).await;
    Err(drawn_out())
}

/// Lets others choose a task at once. If that fails, they can when the lease ends.
async fn give_back(client: &Client, granted: &Granted) {
    if let Err(error) = client.release(granted.id, granted.token).await {
        tracing::debug!(id = %granted.id, %error, "a chosen task stays held until its lease ends");
    }
}
