//! Queues and their settings.

use super::common::OfQueue;
use crate::answer::Json;
use crate::body::{JsonBody, Query};
use crate::caller::Short;
use crate::problem::{BodyProblems, Problem, Problems};
use crate::state::State;
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::Client;
use norn_wire::membership::{Changed, ClusterChange, QueueSetting};
use norn_wire::{Error, QueueName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(queues)).routes(routes!(show, change))
}

/// All queues with tasks.
#[derive(Debug, Serialize, ToSchema)]
struct Queues {
    /// Queues, in the order of their names.
    queues: Vec<api::Queue>,
}

/// Settings of queues.
#[derive(Debug, Serialize, ToSchema)]
struct Policies {
    /// Settings, in the order of the queues' names.
    policies: Vec<api::QueuePolicy>,
}

/// Which queues to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Shown {
    /// Only this queue, whether anything is set for it or not.
    #[serde(default)]
    #[param(value_type = String, required = false, example = "mail")]
    queue: Option<String>,
}

/// Parses the name of a queue.
pub(super) fn named(queue: &str) -> Result<QueueName, Problem> {
    QueueName::new(queue).map_err(|error| Problem::invalid(format!("queue: {error}")))
}

/// Counts the tasks of each queue by state.
#[utoipa::path(
    get, path = "/v1/queues", operation_id = "list_queues", tag = "queues",
    responses(
        (status = 200, body = Queues, description = "All queues with tasks.", example = json!({"queues": [
            {"queue": "mail", "waiting": 2, "ready": 40, "claimed": 8, "done": 1200, "dead": 3, "cancelled": 0}
        ]})),
        Problems,
    )
)]
async fn queues(client: Short) -> Result<Response, Problem> {
    let queues = client.queues().await?.iter().map(api::Queue::from).collect();
    Ok(Json(&Queues { queues }).into_response())
}

/// Shows the settings of one queue, or of all that have any.
#[utoipa::path(
    get, path = "/v1/policies", operation_id = "show_policies", tag = "queues", params(Shown),
    responses(
        (status = 200, body = Policies, description = "The settings.", example = json!({"policies": [{
            "queue": "mail", "paused": false, "attempts": 5, "lease_ms": null, "lease_max_ms": null, "backoff": null,
            "retention_ms": null, "order": "priority", "failed_dependency": "fail", "mode": "any",
            "dead_letter": "mail-dead", "tasks": null, "bytes": null, "ageing_ms": null, "rate": "100/s",
            "concurrency": null, "key_concurrency": 1
        }]})),
        Problems,
    )
)]
async fn show(client: Short, Query(Shown { queue }): Query<Shown>) -> Result<Response, Problem> {
    let queue = queue.as_deref().map(named).transpose()?;
    let set = client.cluster().await?.roster.policies;
    let policies = match queue {
        Some(queue) => vec![api::QueuePolicy::new(&queue, &set.get(&queue).cloned().unwrap_or_default())],
        None => set.iter().map(|(queue, policy)| api::QueuePolicy::new(queue, policy)).collect(),
    };
    Ok(Json(&Policies { policies }).into_response())
}

/// Changes settings of a queue.
///
/// What is left out stays as it is; `null` removes a limit or sets the default. Several settings are decided one after the other: each is
/// tried first, so that a refused one changes nothing. They apply to existing tasks, too, as soon as the nodes have heard of them.
#[utoipa::path(
    patch, path = "/v1/policies", operation_id = "change_policy", tag = "queues", params(OfQueue),
    request_body(content = api::QueuePolicyInput, example = json!({"attempts": 5, "rate": "100/s"})),
    responses((status = 200, body = api::QueuePolicy, description = "The settings after the change."), BodyProblems)
)]
async fn change(
    client: Short,
    Query(OfQueue { queue }): Query<OfQueue>,
    JsonBody(input): JsonBody<api::QueuePolicyInput>,
) -> Result<Response, Problem> {
    let queue = named(&queue)?;
    let settings = input.settings().map_err(|error| Problem::invalid(error.0))?;
    if settings.len() > 1 {
        for setting in &settings {
            client.dry_run(of(&queue, setting)).await?;
        }
    }
    let Changed { view, .. } = change_all(&client, &queue, &settings).await?;
    let policy = view.roster.policies.get(&queue).cloned().unwrap_or_default();
    Ok(Json(&api::QueuePolicy::new(&queue, &policy)).into_response())
}

fn of(queue: &QueueName, setting: &QueueSetting) -> ClusterChange {
    ClusterChange::Queue { queue: queue.clone(), setting: setting.clone() }
}

/// Changes the settings one after the other. Returns the answer to the last.
async fn change_all(client: &Client, queue: &QueueName, settings: &[QueueSetting]) -> Result<Changed, Error> {
    let mut last = None;
    for (place, setting) in settings.iter().enumerate() {
        let changed = client.change(of(queue, setting)).await.map_err(|error| match place {
            0 => error,
            _ => {
                let (all, message) = (settings.len(), &error.message);
                let message =
                    format!("{place} of {all} settings are changed, and no more after this failure: {message}");
                Error { message, ..error }
            }
        })?;
        last = Some(changed);
    }
    last.ok_or_else(|| Error::invalid("no setting is named: say which to change"))
}
