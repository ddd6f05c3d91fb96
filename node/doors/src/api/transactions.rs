//! Transactions: several tasks changed together, or none.

use crate::answer::Json;
use crate::body::JsonBody;
use crate::caller::Short;
use crate::problem::{BodyProblems, MEDIA_TYPE, Outcome, Problem};
use crate::state::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use norn_client::api;
use norn_client::client::TransactError;
use norn_client::session::TransactionDraft;
use norn_wire::transaction::Refusal;
use norn_wire::{Retry, TaskId};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn router() -> OpenApiRouter<Arc<State>> {
    OpenApiRouter::new().routes(routes!(transact))
}

/// A transaction that changed nothing, since some tasks were not as expected: a problem with what failed. One list at least has an entry.
#[derive(Debug, Serialize, ToSchema)]
struct RefusedTransaction {
    /// The problem, as fields beside these.
    #[serde(flatten)]
    problem: Problem,
    /// Tasks to edit that failed their precondition.
    #[schema(value_type = Vec<String>, required = false)]
    changes: Vec<String>,
    /// Tasks to end that failed their precondition.
    #[schema(value_type = Vec<String>, required = false)]
    deletes: Vec<String>,
    /// Tasks of `depends` that failed their precondition.
    #[schema(value_type = Vec<String>, required = false)]
    depends: Vec<String>,
    /// Tasks to edit or end that another worker holds.
    #[schema(value_type = Vec<String>, required = false)]
    owned: Vec<String>,
    /// Internal errors, as text for people.
    #[schema(required = false)]
    bugs: Vec<String>,
}

impl RefusedTransaction {
    fn new(refusal: &Refusal) -> Self {
        let texts = |ids: &[TaskId]| ids.iter().map(TaskId::to_string).collect();
        RefusedTransaction {
            problem: Problem::new(StatusCode::CONFLICT, "conflict", Retry::Never, refusal.to_string()),
            changes: texts(&refusal.changes),
            deletes: texts(&refusal.deletes),
            depends: texts(&refusal.depends),
            owned: texts(&refusal.owned),
            bugs: refusal.bugs.clone(),
        }
    }
}

impl IntoResponse for RefusedTransaction {
    fn into_response(self) -> Response {
        let mut response = (StatusCode::CONFLICT, Json(&self)).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, MEDIA_TYPE);
        response.extensions_mut().insert(Outcome(self.problem.code));
        response
    }
}

/// Adds, edits and ends tasks together: all of it, on a majority of the disks, or nothing.
///
/// After the code `unknown`, the same body with the problem's `id` as its `id` takes effect once.
#[utoipa::path(
    post, path = "/v1/transactions", operation_id = "transact", tag = "transactions",
    request_body(content = api::TransactionInput, example = json!({
        "adds": [{"queue": "outbox", "data": "hello"}],
        "deletes": [{"id": "000038g2m4d7kq9rjscg0080000w3n5t", "token": "7.42"}]
    })),
    responses(
        (status = 200, body = api::TransactionAck, description = "It is done.", example = json!({
            "added": [{"id": "000038g2m4d7kq9rjscg0080000w3n5v", "version": "00000000000000ff"}], "changed": []
        })),
        BodyProblems,
        (status = 409, body = RefusedTransaction, content_type = "application/problem+json",
            description = "Some tasks were not as expected, and nothing is changed: the lists say which. Another `conflict` has no lists."),
    )
)]
async fn transact(client: Short, JsonBody(input): JsonBody<api::TransactionInput>) -> Result<Response, Problem> {
    let draft = TransactionDraft::try_from(input).map_err(|error| Problem::invalid(error.0))?;
    let added = draft.adds.len();
    match client.transact(draft).await {
        Ok(tasks) => Ok(Json(&api::TransactionAck::new(&tasks, added)).into_response()),
        Err(TransactError::Refused(refusal)) => Ok(RefusedTransaction::new(&refusal).into_response()),
        Err(TransactError::Failed(error)) => Err(error.into()),
    }
}
