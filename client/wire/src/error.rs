//! Errors that a node answers.

use crate::ids::TaskId;
use serde::{Deserialize, Serialize};

/// Error code, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request is not well formed or breaks a limit. Nothing was changed.
    Invalid,
    /// The task is not known to a majority of its replicas.
    NotFound,
    /// The task exists with other content, or the call id was used for something else. Nothing was changed.
    Conflict,
    /// A later claim has taken over, or the claim was released. Nothing was changed; stop working on the task.
    Superseded,
    /// The task has ended (done, dead or cancelled).
    Ended,
    /// The id was minted too far in the future by the node's clock; mint a new one. Nothing was changed.
    IdFromFuture,
    /// The ids already lent are ahead of the clock, which was ahead for a while: the node lends no new ones until the clock has caught
    /// up. Nothing was changed; requests that need no new id work.
    ClockAhead,
    /// The id is not above those of tasks that were forgotten, and may be one of them; mint a new one. A replica that had not forgotten
    /// yet may have stored it.
    TooOld,
    /// The caller may not do this. Nothing was changed.
    Denied,
    /// The node has no cluster yet, or already has one.
    NotReady,
    /// The queues of the node are full. Nothing was changed; try again later.
    Overloaded,
    /// A disk is nearly full, and requests that would fill it further are refused. Nothing was changed; free space, then try again.
    NoSpace,
    /// Too few replicas could be reached. Nothing is known to have changed.
    Unavailable,
    /// A write timed out: it may have taken effect, or may yet. Repeat it under the same id.
    Unknown,
    /// The read could not reach the requested minimum in time.
    Stale,
    /// The feature does not exist yet.
    Unsupported,
}

/// Whether repeating the same call can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// At once, at this or another node.
    Now,
    /// After a pause.
    Later,
    /// Not without a change.
    Never,
}

/// Cause of an error, where it calls for another reaction than the code alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ErrorCause))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The node has no cluster: an operator must found one, or add the node to one.
    Unfounded,
    /// The node was removed from its cluster: use other nodes.
    Removed,
    /// No node was reached. Only client sessions report it.
    Unreached,
    /// The node refused the request by itself: it changed nothing, and forwarded the request to no other node.
    TurnedAway,
    /// Nodes refuse the id as ahead of their clocks, and others may have stored it.
    IdAhead,
    /// Cause of a later version.
    #[serde(other)]
    Other,
}

/// Refusal, or unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Code, for programs.
    pub code: ErrorCode,
    /// Message for people: what happened and what to do.
    pub message: String,
    /// Whether repeating helps.
    pub retry: Retry,
    /// The task in question, so that an unknown outcome can be repeated idempotently.
    #[serde(default)]
    pub id: Option<TaskId>,
    /// Milliseconds during which repeating does not help, where known. Only in answers to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Cause, where it matters. Only in answers to clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl ErrorCode {
    /// Whether there was no room for the request. Nothing was changed; it fits once other things have gone.
    pub fn is_full(self) -> bool {
        matches!(self, ErrorCode::Overloaded | ErrorCode::NoSpace)
    }

    /// Whether repeating can help. Other consequences of the code, such as exit codes, follow from this.
    pub fn retry(self) -> Retry {
        match self {
            ErrorCode::Unavailable
            | ErrorCode::Overloaded
            | ErrorCode::NotReady
            | ErrorCode::Stale
            | ErrorCode::ClockAhead
            | ErrorCode::NoSpace => Retry::Later,
            ErrorCode::Unknown => Retry::Now,
            ErrorCode::Invalid
            | ErrorCode::NotFound
            | ErrorCode::Conflict
            | ErrorCode::Superseded
            | ErrorCode::Ended
            | ErrorCode::IdFromFuture
            | ErrorCode::TooOld
            | ErrorCode::Denied
            | ErrorCode::Unsupported => Retry::Never,
        }
    }
}

impl Error {
    /// Creates an error with the retry advice that fits its code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), retry: code.retry(), id: None, after_ms: None, cause: None }
    }

    /// Whether the node serves no client until an operator changes something.
    pub fn is_of_no_member(&self) -> bool {
        matches!(self.cause, Some(Cause::Unfounded | Cause::Removed))
    }

    /// Whether repeating the call can help.
    pub fn passes(&self) -> bool {
        self.retry != Retry::Never
    }

    /// Sets the task in question.
    #[must_use]
    pub fn about(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets how long repeating does not help.
    #[must_use]
    pub fn after(mut self, after_ms: u64) -> Self {
        self.after_ms = Some(after_ms);
        self
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// Creates an error for a malformed request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// Creates an error for too few replicas that answered.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }
}
