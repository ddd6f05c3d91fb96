//! What a node answers when it cannot do what was asked.

use crate::ids::TaskId;
use serde::{Deserialize, Serialize};

/// What went wrong, for programs to tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request is not well formed or breaks a limit. Nothing was changed.
    Invalid,
    /// No such task is known to a majority of its replicas.
    NotFound,
    /// The task exists with other content, or a call id was used for something else. Nothing was changed.
    Conflict,
    /// A later claim has taken over, or the claim was released. Nothing was changed; stop working on the task.
    Superseded,
    /// The task has ended (done, dead or cancelled).
    Ended,
    /// The id was minted too far in the future by the node's clock; mint a new one. Nothing was changed.
    IdFromFuture,
    /// The ids that were lent are ahead of the clock, which was ahead for a while: no new one is given before the clock has caught up.
    /// Nothing was changed, and what needs no new id works.
    ClockAhead,
    /// The id is not above those of tasks that were forgotten, and may be one of them; mint a new one. A replica that had not
    /// forgotten yet may have stored it.
    TooOld,
    /// The caller may not do this. Nothing was changed.
    Denied,
    /// The node has no cluster yet, or already has one.
    NotReady,
    /// The queues of the node are full. Nothing was changed; try again later.
    Overloaded,
    /// A disk is nearly full, and what would make it fuller is refused. Nothing was changed; make room, then try again.
    NoSpace,
    /// Too few replicas could be reached. Nothing is known to have changed.
    Unavailable,
    /// A write timed out: it may have taken effect, or may yet. Repeat it under the same id.
    Unknown,
    /// The read could not reach the asked-for minimum in time.
    Stale,
    /// The feature is not there yet.
    Unsupported,
}

/// When repeating the same call can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// At once, at this or another node.
    Now,
    /// After a pause.
    Later,
    /// Not at all, without a change.
    Never,
}

/// What stands behind an error, where a program or a person does something else about it than its code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The node has no cluster: an operator has yet to found one, or to add the node to one.
    Unfounded,
    /// The node was removed from its cluster: other nodes serve it.
    Removed,
    /// No node was reached. Said by sessions alone.
    Unreached,
    /// The node that was asked refused it by itself: it changed nothing, and asked no other node to.
    TurnedAway,
    /// Nodes refuse an id of it as ahead of their clocks, and others may have stored it.
    IdAhead,
    /// Of a later version.
    #[serde(other)]
    Other,
}

/// A refusal, or an outcome that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what happened and what to do.
    pub message: String,
    /// Whether repeating helps.
    pub retry: Retry,
    /// The task in question, so that an unknown outcome can be repeated idempotently.
    #[serde(default)]
    pub id: Option<TaskId>,
    /// For how long repeating does not help, where that is known. In answers to clients alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// What stands behind it, where that matters. In answers to clients alone, as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

impl ErrorCode {
    /// Whether there was no room for what was asked. Nothing was changed; it fits when something else has gone.
    pub fn is_full(self) -> bool {
        matches!(self, ErrorCode::Overloaded | ErrorCode::NoSpace)
    }

    /// Whether repeating can help. What else depends on the code alone, such as an exit code, follows from this.
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
    /// An error with the retry advice that fits its code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), retry: code.retry(), id: None, after_ms: None, cause: None }
    }

    /// Whether the node that says it serves no client before an operator changes something.
    pub fn is_of_no_member(&self) -> bool {
        matches!(self.cause, Some(Cause::Unfounded | Cause::Removed))
    }

    /// Whether repeating the call can help.
    pub fn passes(&self) -> bool {
        self.retry != Retry::Never
    }

    /// Names the task.
    #[must_use]
    pub fn about(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Says for how long repeating does not help.
    #[must_use]
    pub fn after(mut self, after_ms: u64) -> Self {
        self.after_ms = Some(after_ms);
        self
    }

    /// Says what stands behind it.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = Some(cause);
        self
    }

    /// The request is not well formed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// Too few replicas answered.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }
}
