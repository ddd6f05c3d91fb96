//! `/v1`: the verbs of the command line over HTTP, with the same names and the same JSON.
//!
//! Names of queues, groups and schedules may hold `/`, so they stand in queries and bodies, never in paths: proxies break `%2F`.

mod claims;
mod held;
mod lists;
mod reads;
mod shapes;
mod tasks;

use crate::problem::Problem;
use crate::state::State;
use std::sync::Arc;
use utoipa::OpenApi;
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
    components(schemas(Problem)),
    tags(
        (name = "tasks", description = "Tasks: enqueue, read, list, cancel."),
        (name = "claims", description = "Work on tasks under a lease."),
    )
)]
struct About;

/// The operations, each with its description.
pub fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::with_openapi(About::openapi())
        .merge(tasks::router())
        .merge(reads::router())
        .merge(lists::router())
        .merge(claims::router())
        .merge(held::router())
}
