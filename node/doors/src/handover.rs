//! What was done for a caller that may have hung up: it is undone, unless the connection takes the answer that tells of it.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use norn_client::client::Client;
use norn_client::client::calling::Caller;
use norn_wire::{TaskId, Token};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is undone when it is dropped, unless it was settled before.
pub trait Unsettled: Send + Unpin + 'static {
    /// It stays as it is.
    fn settle(&mut self);
}

/// Binds what was done to the answer that tells of it: the connection settles it when it takes the answer.
pub fn handed_over(response: Response, unsettled: impl Unsettled) -> Response {
    response.map(|body| Body::new(Handover { body, unsettled }))
}

/// Claims that were granted. Unless they are settled, they go back, and other workers can have the tasks at once.
pub struct Granted<C: Deref<Target = Client>> {
    client: C,
    claims: Vec<(TaskId, Token)>,
}

impl<C: Deref<Target = Client>> Granted<C> {
    /// Claims of a client.
    pub fn new(client: C, claims: Vec<(TaskId, Token)>) -> Granted<C> {
        Granted { client, claims }
    }
}

impl<C: Deref<Target = Client>> Deref for Granted<C> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl<C: Deref<Target = Client> + Send + Unpin + 'static> Unsettled for Granted<C> {
    fn settle(&mut self) {
        self.claims.clear();
    }
}

impl<C: Deref<Target = Client>> Drop for Granted<C> {
    fn drop(&mut self) {
        if !self.claims.is_empty() {
            self.client.give_back(std::mem::take(&mut self.claims));
        }
    }
}

/// An answer that tells what was done.
struct Handover<U> {
    body: Body,
    unsettled: U,
}

impl<U: Unsettled> http_body::Body for Handover<U> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.unsettled.settle();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
