//! `/v1`: the verbs of the command line over HTTP, with the same names and the same JSON.

mod tasks;

use crate::state::State;
use axum::Router;
use std::sync::Arc;

/// The routes.
pub fn router() -> Router<Arc<State>> {
    Router::new().nest("/v1", tasks::router())
}
