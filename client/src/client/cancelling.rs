//! Cancellations of tasks that have not ended.
//!
//! To a node, a cancellation stands over a death and over an earlier cancellation, whose reasons it replaces: so the client looks first.

use super::answers::unexpected;
use super::calling::{Caller, has_ended, read, request};
use crate::wire::error::{Cause, Error, ErrorCode};
use crate::wire::ids::TaskId;
use crate::wire::request::{Acks, Request};
use crate::wire::response::{Acked, Response, State};
use std::pin::pin;
use std::time::Duration;

/// How long a cancellation looks, before it and after it, whether the task has ended.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// What came of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cancellation {
    /// Absent: nothing was sent, as the task had ended.
    pub sent: Option<Acked>,
    /// How the task has ended, as far as that could be read.
    pub state: Option<State>,
}

impl Cancellation {
    /// The state in which the task stays, if that is another one. Repeated, as after an unknown outcome, a cancellation has what it
    /// wanted.
    pub fn kept(&self) -> Option<State> {
        self.state.filter(|state| *state != State::Cancelled)
    }
}

/// Cancels a task, unless it has ended.
pub(crate) async fn cancel(
    caller: &impl Caller,
    id: TaskId,
    reason: String,
    acks: Acks,
) -> Result<Cancellation, Error> {
    // It goes on where it takes long, so that a caller that reaches no node ends as soon as its first call does.
    let mut before = pin!(ended(caller, id));
    match tokio::time::timeout(LOOK_TIMEOUT, &mut before).await {
        Ok(Err(error)) if !may_be_for_want_of_a_majority(&error) => Err(error),
        Ok(Ok(Some(state))) => Ok(Cancellation { sent: None, state: Some(state) }),
        // A queue of mode `any` is served where there is no majority to read from.
        Ok(_) | Err(_) => {
            let cancel = Request::Cancel { id, reason, at_ms: 0, acks };
            let Response::AckedOne(acked) = request(caller, cancel).await? else {
                return unexpected("cancel");
            };
            // The acknowledgement says nothing of what had ended meanwhile.
            Ok(Cancellation { sent: Some(acked), state: seen_ended(caller, id).await })
        }
    }
}

/// How a task has ended, if it has.
async fn ended(caller: &impl Caller, id: TaskId) -> Result<Option<State>, Error> {
    Ok(Some(read(caller, id).await?.state).filter(|state| has_ended(*state)))
}

/// The same, and none where no majority answers soon.
pub(crate) async fn seen_ended(caller: &impl Caller, id: TaskId) -> Option<State> {
    tokio::time::timeout(LOOK_TIMEOUT, ended(caller, id)).await.ok()?.ok()?
}

/// Whether a cancellation may be taken where the task could not be read. One that is not known to a majority may lie elsewhere.
fn may_be_for_want_of_a_majority(error: &Error) -> bool {
    error.code == ErrorCode::NotFound || error.passes() && error.cause != Some(Cause::Unreached)
}
