//! What was done for a caller that may have hung up: it is undone, unless the connection takes the answer that tells of it.

use crate::sent::{PIECE_BYTES, with_rest};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use norn_client::client::Client;
use norn_client::client::calling::Caller;
use norn_wire::{TaskId, Token};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// What is undone when it is dropped, unless it was settled before.
pub trait Unsettled: Send + Unpin + 'static {
    /// It stays as it is.
    fn settle(&mut self);
}

/// Binds what was done to the answer that tells of it: the connection settles it when it takes the last piece of the answer.
pub fn handed_over(response: Response, unsettled: impl Unsettled) -> Response {
    response.map(|body| Body::new(Handover { body, rest: Bytes::new(), unsettled }))
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
    /// What came from the body and is to be handed on, in pieces: a caller that hangs up in between does not know what it has.
    rest: Bytes,
    unsettled: U,
}

impl<U: Unsettled> http_body::Body for Handover<U> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    this.unsettled.settle();
                    return Poll::Ready(None);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        if this.rest.is_empty() && this.body.is_end_stream() {
            this.unsettled.settle();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_rest(&self.body.size_hint(), &self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Noted(Arc<AtomicBool>);

    impl Unsettled for Noted {
        fn settle(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn what_was_done_stays_once_the_last_piece_of_the_answer_is_taken() {
        let settled = Arc::new(AtomicBool::new(false));
        let answer = Response::new(Body::from(vec![b'x'; 2 * PIECE_BYTES + 1]));
        let mut body = handed_over(answer, Noted(Arc::clone(&settled))).into_body();
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            seen.push((frame.unwrap().into_data().unwrap().len(), settled.load(Ordering::Relaxed)));
        }
        assert_eq!(seen, [(PIECE_BYTES, false), (PIECE_BYTES, false), (1, true)]);
        let empty = handed_over(Response::new(Body::empty()), Noted(Arc::default())).into_body();
        assert!(http_body::Body::is_end_stream(&empty));
    }
}
