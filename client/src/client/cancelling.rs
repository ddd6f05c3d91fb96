//! Cancellations of tasks that have not ended.
//!
//! To a node, a cancellation stands over a death and over an earlier cancellation, whose reasons it replaces: so the client looks first.

use super::Client;
use super::answers::unexpected;
use super::calling::{Caller, has_ended, read, request};
use norn_wire::error::{Cause, Error, ErrorCode};
use norn_wire::ids::TaskId;
use norn_wire::request::{Acks, Request};
use norn_wire::response::{Acked, Response, State};
use std::pin::pin;
use std::time::Duration;

/// How long a cancellation looks, before it and after it, whether the task has ended.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// Ends a task as cancelled. Gives what acknowledges it; nothing where it was cancelled before, and keeps the reason that it has.
    ///
    /// A task that is done or dead is not cancelled: that is an error of code [`ErrorCode::Ended`], whose message names the state. Where
    /// the state of the task cannot be read within a second for want of a majority, it is cancelled without a look, as a cancellation
    /// with [`Acks::One`] is taken there.
    ///
    /// The look and the cancellation are two calls. A task that is completed between them stays done, and the error says so. One that
    /// dies between them, or is cancelled by another program, is cancelled with this reason: a cancellation stands over both, and
    /// the reason of the death is lost from the task, though not from its claims. Where that matters, let one program decide: a
    /// [transaction](Client::transact) ends a task only as it was seen.
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

/// What came of a cancellation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancellation {
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
pub async fn cancel(caller: &impl Caller, id: TaskId, reason: String, acks: Acks) -> Result<Cancellation, Error> {
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
pub async fn seen_ended(caller: &impl Caller, id: TaskId) -> Option<State> {
    tokio::time::timeout(LOOK_TIMEOUT, ended(caller, id)).await.ok()?.ok()?
}

/// Whether a cancellation may be taken where the task could not be read. One that is not known to a majority may lie elsewhere.
fn may_be_for_want_of_a_majority(error: &Error) -> bool {
    error.code == ErrorCode::NotFound || error.passes() && error.cause != Some(Cause::Unreached)
}
