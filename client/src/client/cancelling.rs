//! Cancellations of tasks that have not ended.
//!
//! At a node, a cancellation overrides a death and an earlier cancellation, and replaces their reasons. So the client reads the task first.

use super::Client;
use super::answers::unexpected;
use super::calling::{Caller, has_ended, read, request};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Acked, Response, State};
use std::pin::pin;
use std::time::Duration;

/// Timeout of the reads, before and after a cancellation, of whether the task has ended.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// Ends a task as cancelled. Returns the acknowledgement; `None` if the task was cancelled before, in which case its reason stays.
    ///
    /// A done or dead task is not cancelled: that is an error of code [`ErrorCode::Ended`], whose message names the state. If the state
    /// of the task cannot be read within a second for want of a majority, the task is cancelled unread, because a cancellation with
    /// [`Acks::One`] is accepted without a majority.
    ///
    /// The read and the cancellation are two calls. A task that is completed between them stays done, and the error says so. A task
    /// that dies between them, or is cancelled by another program, is cancelled with this reason: a cancellation overrides both, and
    /// the reason of the death is lost from the task, though not from its claims. Where that matters, use a
    /// [transaction](Client::transact), which ends a task only in the state in which it was read.
    ///
    /// ```no_run
    /// # async fn example(client: norn_client::client::Client, id: norn_client::wire::TaskId) -> Result<(), norn_client::wire::Error> {
    /// use norn_client::wire::{Acks, ErrorCode};
    /// match client.cancel(id, "the order was withdrawn", Acks::Quorum).await {
    ///     Ok(Some(acked)) => println!("cancelled on {} disks", acked.acks),
    ///     Ok(None) => println!("it was cancelled before"),
    ///     Err(error) if error.code == ErrorCode::Ended => println!("too late: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel(&self, id: TaskId, reason: impl Into<String>, acks: Acks) -> Result<Option<Acked>, Error> {
        let cancellation = cancel(self, id, reason.into(), acks).await?;
        match cancellation.kept() {
            None => Ok(cancellation.sent),
            Some(state) => {
                let message = format!("not cancelled: {id} is {state}, and stays so");
                Err(Error::new(ErrorCode::Ended, message).about(id))
            }
        }
    }
}

/// Result of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
    /// Acknowledgement. Absent: nothing was sent, as the task had ended.
    pub sent: Option<Acked>,
    /// Final state of the task, as far as it could be read.
    pub state: Option<State>,
}

impl Cancellation {
    /// State in which the task stays, if it is not cancelled. A cancellation that finds the task cancelled, as when repeated after an
    /// unknown outcome, has succeeded.
    pub fn kept(&self) -> Option<State> {
        self.state.filter(|state| *state != State::Cancelled)
    }
}

/// Cancels a task, unless it has ended.
pub async fn cancel(caller: &impl Caller, id: TaskId, reason: String, acks: Acks) -> Result<Cancellation, Error> {
    // The timeout does not drop the read, and so does not abandon its call: a caller that reaches no node ends as soon as its first
    // call does.
    let mut before = pin!(ended(caller, id));
    match tokio::time::timeout(LOOK_TIMEOUT, &mut before).await {
        Ok(Err(error)) if !may_be_for_want_of_a_majority(&error) => Err(error),
        Ok(Ok(Some(state))) => Ok(Cancellation { sent: None, state: Some(state) }),
        // A queue of mode `any` accepts cancellations without a majority to read from.
        Ok(_) | Err(_) => {
            let cancel = Request::Cancel { id, reason, at_ms: 0, acks };
            let Response::AckedOne(acked) = request(caller, cancel).await? else {
                return unexpected("cancel");
            };
            // The acknowledgement does not show whether the task had ended meanwhile.
            Ok(Cancellation { sent: Some(acked), state: seen_ended(caller, id).await })
        }
    }
}

/// Final state of a task, if it has ended.
async fn ended(caller: &impl Caller, id: TaskId) -> Result<Option<State>, Error> {
    Ok(Some(read(caller, id).await?.state).filter(|state| has_ended(*state)))
}

/// As `ended`; `None` if no majority answers within the timeout.
pub async fn seen_ended(caller: &impl Caller, id: TaskId) -> Option<State> {
    tokio::time::timeout(LOOK_TIMEOUT, ended(caller, id)).await.ok()?.ok()?
}

/// Whether a cancellation may be sent after its read failed with this error. A task unknown to a majority may be on other replicas.
fn may_be_for_want_of_a_majority(error: &Error) -> bool {
    error.code == ErrorCode::NotFound || error.passes() && error.cause != Some(Cause::Unreached)
}
