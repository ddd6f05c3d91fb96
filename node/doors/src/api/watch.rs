//! Watches, as streams of Server-Sent Events.

use super::queues::named;
use crate::body::Query;
use crate::caller::Waiting;
use crate::problem::{Problem, ReadProblems};
use crate::sse;
use crate::state::State;
use axum::extract::{FromRequestParts, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use norn_wire::watch::Subject;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Name that a browser's event source sends back.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(watch))
}

/// What to watch: a queue or a group.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Watched {
    /// Watches the tasks of this queue.
    #[serde(default)]
    #[param(value_type = String, required = false, example = "mail")]
    queue: Option<String>,
    /// Watches the members of the group whose join has this id, until the join has ended.
    #[serde(default)]
    #[param(value_type = String, required = false)]
    group: Option<String>,
    /// Goes on behind the event with this `id`, as the header `Last-Event-ID` does, which comes first.
    #[serde(default)]
    #[param(value_type = String, required = false)]
    cursor: Option<String>,
}

/// An earlier stream, which this one goes on with.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
struct Earlier {
    /// `id` of the last event of an earlier stream.
    #[param(rename = "Last-Event-ID", value_type = String, required = false)]
    last: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Earlier {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let text = |id: &HeaderValue| id.to_str().map(str::to_owned);
        let last = parts.headers.get(LAST_EVENT_ID).map(text).transpose();
        let last = last.map_err(|_| Problem::invalid("Last-Event-ID: this is no id of an event"))?;
        Ok(Earlier { last })
    }
}

impl Watched {
    fn subject(&self) -> Result<Subject, Problem> {
        match (&self.queue, &self.group) {
            (Some(queue), None) => Ok(Subject::Queue(named(queue)?)),
            (None, Some(group)) => {
                group.parse().map(Subject::Group).map_err(|error| Problem::invalid(format!("group: {error}")))
            }
            (Some(_), Some(_)) => {
                Err(Problem::invalid("`queue` and `group` exclude each other; leave one of them out"))
            }
            (None, None) => Err(Problem::invalid("say what to watch: give `queue` or `group`")),
        }
    }
}

/// Watches the tasks of a queue or a group: an event for each change of a task's state, as it happens.
///
/// The answer is a stream of Server-Sent Events. An event without a name has a task's new state as JSON (`WatchEvent`). Events with names
/// say something of the watch (`WatchNotice`): `begun`; `lagged`, endings before it may be missing, so list what is there; `silent`, so
/// many partitions cannot be watched now, and 0 once all can; `ended`, the join of the group has ended; `bye`, the node is about to stop;
/// `failed`, the watch cannot go on, with an error. An event with an `id` is a place to go on from: a reader that connects again with
/// `Last-Event-ID` misses nothing, and may be told again what came behind the last `id`. Events are kept for a minute; after that the
/// watch begins anew with `lagged`. A comment comes every 15 seconds.
#[utoipa::path(
    get, path = "/v1/watch", operation_id = "watch", tag = "watch",
    params(Watched, Earlier),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events, as they happen.", example = json!(
            "id: gaA\nevent: begun\ndata: {\"watch\":\"begun\"}\n\ndata: {\"id\":\"000038g2m4d7kq9rjscg0080000w3n5t\",\
             \"queue\":\"mail\",\"state\":\"done\",\"number\":null,\"result\":\"sent\",\"result_encoding\":\"utf8\",\"reason\":null}\n\n"
        )),
        (status = 204, description = "The watch had ended with `ended`: there is nothing to go on with."),
        ReadProblems,
    )
)]
async fn watch(
    client: Waiting,
    Shared(state): Shared<Arc<State>>,
    Query(watched): Query<Watched>,
    earlier: Earlier,
) -> Result<Response, Problem> {
    let subject = watched.subject()?;
    let last = earlier.last.as_deref().or(watched.cursor.as_deref()).filter(|last| !last.is_empty());
    if last == Some(sse::ENDED_ID) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    sse::open(client, state, subject, last).await
}
