//! What carries the calls of a verb: a client, or in tests a stand-in for one.

use norn_client::client::Client;
use norn_client::client::calling::Caller;
use norn_client::session::Call;
use norn_wire::{Error, ErrorCode, Request, Response, TaskId, Token};
use std::future::Future;
use std::time::{Duration, Instant};

/// What carries a verb's calls to the cluster.
pub trait Transport {
    /// Makes one call. The timeout is beside what the call waits on purpose; without one the transport's own holds.
    fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send;

    /// The same, in the background of what a person does: nothing is said of it meanwhile.
    fn call_quietly(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        self.call(call, timeout)
    }

    /// The same, with the moment from which leases count that are in the answer; absent, from the question.
    fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = (Result<Response, Error>, Option<Instant>)> + Send {
        let answer = self.call(call, timeout);
        async move { (answer.await, None) }
    }

    /// How long whoever gave the command is willing to wait for it in all, where that was said.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Asks the node at an address itself, which need not belong to the cluster. Without this, no nodes can be added.
    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        let verb = request.verb();
        let message = format!("this program reaches no node outside its cluster: {verb} at {address} is not possible");
        async { Err(Error::new(ErrorCode::Unsupported, message)) }
    }

    /// Gives claims back on which a command that was given up does not work any more. Waits for nothing. Without this they wait for
    /// the ends of their leases.
    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        drop(claims);
    }
}

impl<T: Transport> Transport for &T {
    fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send {
        T::call(self, call, timeout)
    }

    fn call_quietly(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        T::call_quietly(self, call, timeout)
    }

    fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = (Result<Response, Error>, Option<Instant>)> + Send {
        T::call_for_lease(self, call, timeout)
    }

    fn patience(&self) -> Option<Duration> {
        T::patience(self)
    }

    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        T::ask(self, address, request)
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        T::give_back(self, claims);
    }
}

impl Transport for Client {
    async fn call(&self, call: Call, timeout: Option<Duration>) -> Result<Response, Error> {
        Client::call(self, call, timeout).await
    }

    async fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> (Result<Response, Error>, Option<Instant>) {
        Client::call_for_lease(self, call, timeout).await
    }

    fn give_back(&self, claims: Vec<(TaskId, Token)>) {
        Caller::give_back(self, claims);
    }
}
