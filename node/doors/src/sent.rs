//! What a request holds until its answer is sent, and an end to answers of which nothing is taken.
//!
//! Over HTTP/1 the connection's guard ends a connection whose reader takes nothing. Over HTTP/2 a reader may keep its connection alive
//! and take nothing of one answer, so each answer has a time limit of its own there.

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

/// Largest piece of an answer that is handed to its connection at once. The connection keeps it until the reader takes it.
pub const PIECE_BYTES: usize = 16 << 10;

/// Since when the reader of an answer is waited for.
#[derive(Debug, Default)]
pub struct Pace(Mutex<Option<Instant>>);

impl Pace {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

tokio::task_local! {
    /// The pace of the answer that the task sends.
    static PACE: Arc<Pace>;
}

/// The body of an answer. It holds the request's place until it has been sent or dropped.
pub struct Sent {
    body: Body,
    /// What came from the body and is to be handed on.
    rest: Bytes,
    pace: Option<Arc<Pace>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Sent {
    /// Binds a place to a body.
    pub fn new(body: Body, place: Option<OwnedSemaphorePermit>) -> Sent {
        Sent { body, rest: Bytes::new(), pace: PACE.try_with(Arc::clone).ok(), _place: place }
    }

    fn pace(&self, since: Option<Instant>) {
        self.pace.iter().for_each(|pace| pace.set(since));
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.pace(None);
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        this.pace(None);
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.pace(Some(Instant::now()));
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_rest(&self.body.size_hint(), &self.rest)
    }
}

/// The size of an answer of which a part was taken from its body, and is to be handed on.
pub fn with_rest(of_body: &SizeHint, rest: &Bytes) -> SizeHint {
    let mut hint = SizeHint::new();
    hint.set_lower(of_body.lower().saturating_add(rest.len() as u64));
    if let Some(upper) = of_body.upper() {
        hint.set_upper(upper.saturating_add(rest.len() as u64));
    }
    hint
}

/// Runs the requests of a connection of HTTP/2, each until its answer was taken, or nothing of it for too long.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// Time limit for a reader that takes nothing.
    pub idle: Duration,
}

impl<F> hyper::rt::Executor<F> for Paced
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, request: F) {
        let (idle, pace) = (self.idle, Arc::new(Pace::default()));
        tokio::spawn(PACE.scope(Arc::clone(&pace), paced(request, pace, idle)));
    }
}

/// Runs a request. Dropping it resets its stream.
async fn paced<F: Future>(request: F, pace: Arc<Pace>, idle: Duration) {
    let mut request = pin!(request);
    let mut timer = pin!(sleep_until(Instant::now() + idle));
    poll_fn(|context| {
        if request.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = pace.since() else { return Poll::Pending };
        timer.as_mut().reset(since + idle);
        ready!(timer.as_mut().poll(context));
        tracing::debug!("an answer was not taken in time");
        Poll::Ready(())
    })
    .await;
}

#[cfg(test)]
mod tests {
    use crate::access::Access;
    use crate::state::Bounds;
    use crate::testing::{Door, Script};
    use axum::body::Body;
    use axum::http::{Request, StatusCode};

    #[tokio::test]
    async fn a_request_counts_until_its_answer_is_sent_or_dropped() {
        let door = Door::with(Bounds { requests_max: 1, ..Bounds::default() }, Access::default(), Script::default());
        let unread = door.begin(Request::get("/v1/openapi.json").body(Body::empty()).unwrap()).await;
        assert_eq!(unread.status(), StatusCode::OK);
        assert_eq!(door.get("/v1/docs").await.status, StatusCode::TOO_MANY_REQUESTS);
        // A peer that may not call is refused as ever, and takes no place.
        let refused = door.get_as_stranger("/v1/docs").await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        drop(unread);
        for _ in 0..2 {
            assert_eq!(door.get("/v1/docs").await.status, StatusCode::OK, "one that was read counts no more");
        }
    }
}
