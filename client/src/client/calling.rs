//! Operations composed of several calls, shared by the library and the command line.

use super::Client;
use crate::session::Call;
use norn_wire::error::Error;
use norn_wire::ids::{TaskId, Token};
use norn_wire::request::Request;
use norn_wire::response::{Response, State, TaskView};

/// Makes calls. Implemented by a client, and by the runner of a command-line verb, which records the changes.
#[expect(async_fn_in_trait, reason = "its two implementations are awaited where they are called")]
pub trait Caller {
    /// Makes one call, within the caller's default timeout.
    async fn make(&self, call: Call) -> Result<Response, Error>;

    /// Releases claims whose work was abandoned. Waits for nothing.
    fn give_back(&self, claims: Vec<(TaskId, Token)>);
}

impl Caller for Client {
    async fn make(&self, call: Call) -> Result<Response, Error> {
        self.call(call, None).await
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        self.shared.handle.give_back(claims);
    }
}

/// Makes a request.
pub(super) async fn request(caller: &impl Caller, request: Request) -> Result<Response, Error> {
    caller.make(Call::Request(request)).await
}

/// Reads a task.
pub(super) async fn read(caller: &impl Caller, id: TaskId) -> Result<TaskView, Error> {
    match request(caller, Request::Get { id, minimum: None, minimum_sequence: None }).await? {
        Response::Task(task) => Ok(*task),
        _ => Err(strange("get")),
    }
}

/// The error for an answer of the wrong type.
pub fn strange(verb: &str) -> Error {
    Error::invalid(format!("the node's answer to `{verb}` is not one to that; do both sides have the same version?"))
}

/// Whether a state is final.
pub fn has_ended(state: State) -> bool {
    match state {
        State::Done | State::Dead | State::Cancelled => true,
        State::Waiting | State::Ready | State::Claimed => false,
    }
}
