//! Transport of a verb's calls: a client, or a stand-in for one in tests.

use norn_client::client::Client;
use norn_client::client::calling::Caller;
use norn_client::session::Call;
use norn_wire::{Error, ErrorCode, Request, Response, TaskId, Token};
use std::future::Future;
use std::time::{Duration, Instant};

/// Carries a verb's calls to the cluster.
pub trait Transport {
    /// Makes one call. The timeout is in addition to the call's intentional wait; without one, the transport's own applies.
    fn call(&self, call: Call, timeout: Option<Duration>) -> impl Future<Output = Result<Response, Error>> + Send;

    /// Makes one call in the background, while a person types: prints nothing meanwhile.
    fn call_quietly(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        self.call(call, timeout)
    }

    /// Makes one call. Also returns the time from which the leases in the answer count; `None`: from the call.
    fn call_for_lease(
        &self,
        call: Call,
        timeout: Option<Duration>,
    ) -> impl Future<Output = (Result<Response, Error>, Option<Instant>)> + Send {
        let answer = self.call(call, timeout);
        async move { (answer.await, None) }
    }

    /// Returns the time limit of the whole command, if one was given.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Asks the node at an address directly; it need not belong to the cluster. Without this method, nodes cannot be added.
    fn ask(&self, address: &str, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        let verb = request.verb();
        let message = format!("this program reaches no node outside its cluster: {verb} at {address} is not possible");
        async { Err(Error::new(ErrorCode::Unsupported, message)) }
    }

    /// Returns the last second of the certificate that the node at an address shows, in seconds since 1970. Without this method it is not
    /// known.
    fn certificate_until_s(&self, address: &str) -> impl Future<Output = Result<Option<i64>, Error>> + Send {
        let _ = address;
        async { Ok(None) }
    }

    /// Gives back the claims of an abandoned command, without waiting for an answer. Without this method they last until their leases run
    /// out.
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

    fn certificate_until_s(&self, address: &str) -> impl Future<Output = Result<Option<i64>, Error>> + Send {
        T::certificate_until_s(self, address)
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
