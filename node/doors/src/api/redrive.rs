//! Dead tasks that are enqueued again, and ended ones that are forgotten early.

use super::tasks::{Durability, about};
use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::Short;
use crate::problem::{BodyProblems, Problem};
use crate::state::State;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use norn_client::api::{self, Choice, Purge, Redrive};
use norn_client::client::choosing::{carry_out, each};
use norn_client::client::redriving::{Dead, redrive_once};
use norn_client::client::walk::Walk;
use norn_client::client::why::hindrance;
use norn_client::client::{Client, Existing, LetterOptions, RedriveOptions, Redriven};
use norn_client::session::{Call, CopyId};
use norn_wire::limits::LIST_PAGE_MAX;
use norn_wire::{Acks, Error, ErrorCode, QueueName, Request, Response as Answer, State as TaskState, TaskId, TaskView};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Most tasks of one request.
const TASKS_MAX: usize = 1_000;
/// Tasks of one request that are changed at once.
const AT_ONCE: usize = 16;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(redrive)).routes(routes!(purge))
}

/// What became of one task.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    /// The new copy.
    Copied(api::WriteAck),
    /// The task was redriven before.
    Before(api::ExistingCopy),
    /// A letter that was sent back.
    SentBack(api::LetterAck),
    /// Why it was not.
    Failed(api::ErrorReport<'static>),
}

impl PartialSchema for Outcome {
    /// A letter that was sent back has all fields of a copy, too.
    fn schema() -> RefOr<Schema> {
        let one = |schema: Ref| RefOr::<Schema>::from(schema);
        let forms = AnyOfBuilder::new()
            .description(Some(
                "The new copy, or the one that there was, or a letter that was sent back, or why it was not.",
            ))
            .item(one(Ref::from_schema_name(api::WriteAck::name())))
            .item(one(Ref::from_schema_name(api::ExistingCopy::name())))
            .item(one(Ref::from_schema_name(api::LetterAck::name())))
            .item(one(Ref::from_schema_name(api::ErrorReport::name())));
        Schema::AnyOf(forms.build()).into()
    }
}

impl ToSchema for Outcome {
    fn name() -> Cow<'static, str> {
        "RedriveOutcome".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        let own = [
            (api::WriteAck::name(), api::WriteAck::schema()),
            (api::ExistingCopy::name(), api::ExistingCopy::schema()),
            (api::LetterAck::name(), api::LetterAck::schema()),
            (api::ErrorReport::name(), api::ErrorReport::schema()),
        ];
        schemas.extend(own.map(|(name, schema)| (name.into_owned(), schema)));
        api::ExistingCopy::schemas(schemas);
        api::LetterAck::schemas(schemas);
        api::ErrorReport::schemas(schemas);
    }
}

impl Outcome {
    fn of<T>(result: Result<T, Error>, outcome: impl FnOnce(T) -> Outcome) -> Outcome {
        result.map_or_else(|error| Outcome::Failed(error.into()), outcome)
    }
}

/// What was redriven.
#[derive(Debug, Serialize, ToSchema)]
struct RedriveReport {
    /// One for each task, in order. After a failure no more tasks of a queue are tried.
    items: Vec<Outcome>,
    /// Whether the request ended before the last task: the same one goes on.
    more: bool,
    /// Ready letters that their queue does not grant now; `null`: none.
    #[schema(value_type = Option<api::HeldLetters>, required)]
    held: Option<api::HeldLetters<'static>>,
}

/// A dry run, or what was redriven.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum RedriveAnswer {
    /// What was done.
    Report(RedriveReport),
    /// What would be.
    Outcome(api::BulkOutcome),
}

/// Enqueues dead tasks again, or sends dead letters back to the queues where their tasks died.
///
/// With `ids`, each is tried, and there are 1,000 at most. Of a queue or of letters up to `limit` are done, 1,000 at most: `more` says
/// whether the same request goes on.
#[utoipa::path(
    post, path = "/v1/redrive", operation_id = "redrive", tag = "queues", params(Durability),
    request_body(content = api::RedriveInput, example = json!({"queue": "mail", "reason": "timeout", "limit": 100})),
    responses(
        (status = 200, body = RedriveAnswer, description = "One result for each task; or for a dry run, how many match.",
            example = json!({"items": [
                {"id": "000038g2m4d7kq9rjscg0080000w3n5t", "acks": 2, "replicas": 3, "guarantee": "strict"}
            ], "more": false, "held": null})),
        BodyProblems,
    )
)]
async fn redrive(
    client: Short,
    Query(durability): Query<Durability>,
    JsonBody(input): JsonBody<api::RedriveInput>,
) -> Result<Response, Problem> {
    let answer = match input.redrive(durability.acks).map_err(|error| Problem::invalid(error.0))? {
        Redrive::Tasks { ids, copy, to } => {
            check_number(ids.len())?;
            let one = |id| redrive_one(&client, id, copy, to.clone(), durability.acks);
            let items = stream::iter(ids.into_iter().map(one)).buffered(AT_ONCE).collect().await;
            RedriveAnswer::Report(RedriveReport { items, more: false, held: None })
        }
        Redrive::Queue { options, limit, dry_run: true } => {
            let chosen = Dead::new(options, LIST_PAGE_MAX).count(&*client, limit).await?;
            RedriveAnswer::Outcome(api::BulkOutcome { chosen, changed: 0 })
        }
        Redrive::Queue { options, limit, dry_run: false } => {
            RedriveAnswer::Report(redrive_queue(&client, options, limit).await?)
        }
        Redrive::Letters(options) => RedriveAnswer::Report(send_back(&client, options).await?),
    };
    Ok(Json(&answer).into_response())
}

fn check_number(count: usize) -> Result<(), Problem> {
    match count {
        0..=TASKS_MAX => Ok(()),
        _ => Err(Problem::invalid(format!("{count} tasks are too many for one request: give {TASKS_MAX} at most"))),
    }
}

async fn redrive_one(client: &Client, id: TaskId, copy: Option<TaskId>, to: Option<QueueName>, acks: Acks) -> Outcome {
    let copy = copy.map(CopyId::from).unwrap_or_default();
    let result = redrive_once(client, id, &copy, to.clone(), acks).await;
    Outcome::of(result.map_err(|error| about(error, id)), |redriven| match redriven {
        Redriven::Now(acked) => Outcome::Copied((&acked).into()),
        Redriven::Before(existing) => before(id, &existing, to.as_ref()),
    })
}

/// What is said of a task that was redriven before. It is a failure if the copy was to be in another queue.
fn before(dead: TaskId, existing: &Existing, to: Option<&QueueName>) -> Outcome {
    let task = existing.task.as_ref();
    if to.is_some_and(|to| task.is_none_or(|task| task.spec.queue != *to)) {
        let is = match task {
            Some(task) => format!("{} in {}, {}", existing.id, task.spec.queue, task.state),
            None => format!("{}, which has ended and is forgotten", existing.id),
        };
        let message =
            format!("task {dead} was redriven before: there is {is}; redrive that if it dies, or enqueue a new one");
        return Outcome::Failed(Error::new(ErrorCode::Conflict, message).about(dead).into());
    }
    Outcome::Before(api::ExistingCopy {
        id: existing.id,
        existing: true,
        queue: task.map(|task| task.spec.queue.clone()),
        state: task.map(|task| task.state),
        letter: existing.letter,
    })
}

/// Most tasks of a request with this limit.
fn most(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).min(TASKS_MAX)
}

async fn redrive_queue(client: &Client, options: RedriveOptions, limit: u64) -> Result<RedriveReport, Error> {
    let (mut dead, mut items, most) = (Dead::new(options, LIST_PAGE_MAX), Vec::new(), most(limit));
    while items.len() < most {
        match dead.next(client).await {
            Ok(Some((_, copy))) => items.push(Outcome::Copied((&copy).into())),
            Ok(None) => return Ok(RedriveReport { items, more: false, held: None }),
            Err(error) if items.is_empty() => return Err(error),
            Err(error) => {
                items.push(Outcome::Failed(error.into()));
                break;
            }
        }
    }
    Ok(RedriveReport { items, more: true, held: None })
}

async fn send_back(client: &Client, options: LetterOptions) -> Result<RedriveReport, Error> {
    let (queue, most) = (options.letters.clone(), most(options.limit));
    // Dropping it gives back what it has claimed.
    let mut letters = client.redrive_letters(options.limit(most as u64));
    let (mut items, mut redriven) = (Vec::new(), 0);
    let more = loop {
        match letters.next().await {
            Ok(Some(sent)) => {
                redriven += 1;
                let ack = api::LetterAck { letter: (&sent.acked).into(), task: sent.task, queue: sent.queue };
                items.push(Outcome::SentBack(ack));
            }
            Ok(None) => break items.len() >= most,
            Err(error) if items.is_empty() => return Err(error),
            Err(error) => {
                items.push(Outcome::Failed(error.into()));
                break true;
            }
        }
    };
    letters.give_back().await;
    let held = if more { None } else { held(client, &queue, redriven).await };
    Ok(RedriveReport { items, more, held })
}

/// Ready letters that are not granted, and why. Their number is asked for only if a setting of their queue holds them.
async fn held(client: &Client, letters: &QueueName, redriven: u64) -> Option<api::HeldLetters<'static>> {
    let hindrance = hindrance(client, letters).await?;
    let ready = client.count(Some(letters.clone()), Some(TaskState::Ready)).await.ok().filter(|ready| *ready > 0)?;
    let (cause, explanation) = (hindrance.cause.into(), hindrance.text.into());
    Some(api::HeldLetters { redriven, ready, cause, explanation })
}

/// What became of one task to purge.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Purged {
    /// It is forgotten.
    Done(api::WriteAck),
    /// Why it is not.
    Failed(api::ErrorReport<'static>),
}

/// One result for each task.
#[derive(Debug, Serialize, ToSchema)]
struct PurgeReport {
    /// Results, in order.
    items: Vec<Purged>,
}

/// Results of single tasks, or the outcome for all that match.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum PurgeAnswer {
    /// Of `ids`.
    Report(PurgeReport),
    /// Of a queue.
    Outcome(api::BulkOutcome),
}

/// Forgets ended tasks before their retention is over.
///
/// With `ids`, each is tried, and there are 1,000 at most. Of a queue, all that match are purged if `confirm` is their number, as a dry
/// run reports it; otherwise the answer is a problem with the code `conflict`, which names the number.
#[utoipa::path(
    post, path = "/v1/purge", operation_id = "purge", tag = "queues", params(Durability),
    request_body(content = api::PurgeInput, example = json!({"queue": "mail", "states": ["done"], "older_ms": 86400000, "dry_run": true})),
    responses(
        (status = 200, body = PurgeAnswer, description = "One result for each task, or the outcome for the queue.",
            example = json!({"chosen": 17, "changed": 0})),
        BodyProblems,
    )
)]
async fn purge(
    client: Short,
    Query(durability): Query<Durability>,
    JsonBody(input): JsonBody<api::PurgeInput>,
) -> Result<Response, Problem> {
    let answer = match Purge::try_from(input).map_err(|error| Problem::invalid(error.0))? {
        Purge::Tasks(ids) => {
            check_number(ids.len())?;
            let one = |id| purge_one(&client, id, durability.acks);
            PurgeAnswer::Report(PurgeReport {
                items: stream::iter(ids.into_iter().map(one)).buffered(AT_ONCE).collect().await,
            })
        }
        Purge::Chosen(choice) => PurgeAnswer::Outcome(purge_chosen(&client, *choice, durability.acks).await?),
    };
    Ok(Json(&answer).into_response())
}

async fn purge_one(client: &Client, id: TaskId, acks: Acks) -> Purged {
    match client.call(Call::Request(Request::Purge { id, acks, state: None }), None).await {
        Ok(Answer::AckedOne(acked)) => Purged::Done((&acked).into()),
        Ok(_) => {
            let error = Error::new(ErrorCode::Unknown, "the node's answer to this is of another kind").about(id);
            Purged::Failed(error.into())
        }
        Err(error) => Purged::Failed(about(error, id).into()),
    }
}

async fn purge_chosen(client: &Client, choice: Choice, acks: Acks) -> Result<api::BulkOutcome, Error> {
    let Choice { list, states, dry_run, confirm } = choice;
    let mut requests = Vec::new();
    let take = |task: &TaskView| {
        if states.contains(&task.state) {
            requests.push(Request::Purge { id: task.id, acks, state: Some(task.state) });
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let walk = Walk::new(list, u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    each(client, walk, "with `states`, `older_ms` or `newer_ms`", take).await?;
    let chosen = requests.len() as u64;
    // Any confirmed number is taken where nothing matches: a repeat of the change finds no task any more.
    if chosen == 0 || dry_run {
        return Ok(api::BulkOutcome { chosen, changed: 0 });
    }
    if confirm != Some(chosen) {
        let message =
            format!("{chosen} tasks match, and none is purged: repeat it with \"confirm\": {chosen} if that is right");
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    let changed = carry_out(client, requests, "purged", None).await? as u64;
    Ok(api::BulkOutcome { chosen, changed })
}
