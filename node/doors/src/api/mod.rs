//! `/v1`: the verbs of the command line over HTTP, with the same names and the same JSON.
//!
//! Names of queues, groups and schedules may hold `/`, so they stand in queries and bodies, never in paths: proxies break `%2F`.

mod claims;
mod cluster;
mod common;
mod described;
mod groups;
mod held;
mod keys;
mod lists;
mod queues;
mod reads;
mod redrive;
mod schedules;
mod sessions;
mod shapes;
mod tasks;
mod transactions;
mod watch;

pub use described::only_described;
pub use keys::Keys;

use crate::openapi::{examples, forms};
use crate::problem::{Problem, refusals};
use crate::state::State;
use axum::Router;
use norn_client::api;
use std::sync::{Arc, LazyLock};
use utoipa::{OpenApi, openapi};
use utoipa_axum::router::OpenApiRouter;

/// What the document says beside the operations.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Norn",
        description = "Tasks of a Norn cluster: enqueue, claim, complete, and what is around them.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "The node that this document is from.")),
    components(schemas(Problem, api::WatchEvent, api::WatchNotice)),
    tags(
        (name = "tasks", description = "Tasks: enqueue, read, list, cancel."),
        (name = "claims", description = "Work on tasks under a lease."),
        (name = "sessions", description = "One heartbeat for all claims of a worker."),
        (name = "transactions", description = "Several tasks changed together, or none."),
        (name = "groups", description = "Numbered tasks, and the join that runs after all of them."),
        (name = "queues", description = "Queues, their settings, and what happens to many of their tasks at once."),
        (name = "schedules", description = "Tasks that the cluster enqueues by itself."),
        (name = "watch", description = "Changes of tasks, as they happen."),
        (name = "cluster", description = "Nodes, partitions, and changes of the cluster."),
    )
)]
struct About;

/// The operations and their description, which are put together once.
pub fn parts() -> (Router<Arc<State>>, &'static openapi::OpenApi) {
    static PARTS: LazyLock<(Router<Arc<State>>, openapi::OpenApi)> = LazyLock::new(|| router().split_for_parts());
    (PARTS.0.clone(), &PARTS.1)
}

/// The operations, each with its description.
fn router() -> OpenApiRouter<Arc<State>> {
    let mut about = About::openapi();
    about.components.get_or_insert_default().responses.extend(refusals());
    let mut router = OpenApiRouter::with_openapi(about)
        .merge(tasks::router())
        .merge(reads::router())
        .merge(lists::router())
        .merge(claims::router())
        .merge(held::router())
        .merge(sessions::router())
        .merge(transactions::router())
        .merge(groups::router())
        .merge(queues::router())
        .merge(redrive::router())
        .merge(schedules::router())
        .merge(watch::router())
        .merge(cluster::router());
    forms::set(router.get_openapi_mut());
    examples::set(router.get_openapi_mut());
    router
}

#[cfg(test)]
mod tests;
