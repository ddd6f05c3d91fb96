//! Failures.

use super::form::{text_if_any, texts};
use norn_wire::error::Cause;
use norn_wire::transaction::Refusal;
use norn_wire::{ErrorCode, Retry, TaskId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A failure: an object with the single field `error`, which no other object has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorReport<'a> {
    /// What failed, and what to do.
    pub error: ErrorDetail<'a>,
}

/// Refusal, or unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorDetail<'a> {
    /// Code: what happened. With `unknown`, a write may have taken effect, or may yet.
    pub code: ErrorCode,
    /// Message for people: what happened and what to do.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub message: Cow<'a, str>,
    /// Whether repeating the same call can help: `now`, `later` after a pause, or `never`.
    pub retry: Retry,
    /// The task in question. With the code `unknown`, a repeat under this id takes effect once. Left out without a value.
    #[serde(default, with = "text_if_any", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TaskId))]
    pub id: Option<TaskId>,
    /// Milliseconds during which repeating does not help, where known. Left out without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub after_ms: Option<u64>,
    /// Cause, where it calls for another reaction than the code alone. Left out without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Cause))]
    pub cause: Option<Cause>,
}

impl<'a> From<&'a norn_wire::Error> for ErrorReport<'a> {
    fn from(error: &'a norn_wire::Error) -> Self {
        let norn_wire::Error { code, message, retry, id, after_ms, cause } = error;
        let (code, retry, id, after_ms, cause) = (*code, *retry, *id, *after_ms, *cause);
        ErrorReport { error: ErrorDetail { code, message: message.into(), retry, id, after_ms, cause } }
    }
}

impl From<norn_wire::Error> for ErrorReport<'static> {
    fn from(error: norn_wire::Error) -> Self {
        let norn_wire::Error { code, message, retry, id, after_ms, cause } = error;
        ErrorReport { error: ErrorDetail { code, message: message.into(), retry, id, after_ms, cause } }
    }
}

/// A transaction that changed nothing, since some preconditions failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusalReport<'a> {
    /// What failed.
    pub error: RefusalDetail<'a>,
}

/// Failed preconditions of a transaction. One list at least has an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusalDetail<'a> {
    /// Always `conflict`.
    pub code: ErrorCode,
    /// Message for people: all that failed.
    pub message: String,
    /// Always `never`: the preconditions stay failed.
    pub retry: Retry,
    /// Tasks to edit that failed their precondition.
    #[serde(with = "texts")]
    pub changes: Vec<TaskId>,
    /// Tasks to end that failed their precondition.
    #[serde(with = "texts")]
    pub deletes: Vec<TaskId>,
    /// Tasks of `depends` that failed their precondition.
    #[serde(with = "texts")]
    pub depends: Vec<TaskId>,
    /// Tasks to edit or end that another worker holds.
    #[serde(with = "texts")]
    pub owned: Vec<TaskId>,
    /// Internal errors, as text for people.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub bugs: Cow<'a, [String]>,
}

impl<'a> From<&'a Refusal> for RefusalReport<'a> {
    fn from(refusal: &'a Refusal) -> Self {
        let error = RefusalDetail {
            code: ErrorCode::Conflict,
            message: refusal.to_string(),
            retry: Retry::Never,
            changes: refusal.changes.clone(),
            deletes: refusal.deletes.clone(),
            depends: refusal.depends.clone(),
            owned: refusal.owned.clone(),
            bugs: Cow::Borrowed(&refusal.bugs),
        };
        RefusalReport { error }
    }
}
