//! What several operations share.

use axum::http::StatusCode;
use norn_client::api;
use norn_wire::{Error, Guarantee};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The query of an operation that has no parameters: any is refused, by name.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A queue that must be named.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfQueue {
    /// Queue.
    #[param(example = "mail")]
    pub queue: String,
}

/// A failure among the results of several changes: what an answer with this failure alone would say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Failure {
    /// What failed, and what to do.
    #[schema(value_type = api::ErrorDetail)]
    pub error: serde_json::Value,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let report = api::ErrorReport::from(error);
        Failure { error: serde_json::to_value(&report.error).unwrap_or_default() }
    }
}

/// Status of a change of what exists: 200 if a majority of the replicas has it on disk, 202 if fewer have.
pub fn status_of_change(guarantee: Guarantee) -> StatusCode {
    match guarantee {
        Guarantee::Strict => StatusCode::OK,
        Guarantee::Sloppy => StatusCode::ACCEPTED,
    }
}
