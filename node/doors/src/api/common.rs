//! What several operations share.

use axum::http::StatusCode;
use norn_wire::Guarantee;
use serde::Deserialize;
use utoipa::IntoParams;

/// A queue that must be named.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfQueue {
    /// Queue.
    #[param(example = "mail")]
    pub queue: String,
}

/// Status of a change of what exists: 200 if a majority of the replicas has it on disk, 202 if fewer have.
pub fn status_of_change(guarantee: Guarantee) -> StatusCode {
    match guarantee {
        Guarantee::Strict => StatusCode::OK,
        Guarantee::Sloppy => StatusCode::ACCEPTED,
    }
}
