//! Time limits of a connection, which no server library has all of: for headers that come slowly, for a connection without a request,
//! and for a reader that takes no byte.

use crate::metrics::meters::Traffic;
use axum::body::Body;
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Time limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the first byte of a request to the end of its headers, and from the connection's begin to its first byte.
    pub head: Duration,
    /// Without a request, and for an answer of which no byte is taken.
    pub idle: Duration,
    /// Whether requests come one after the other, as in HTTP/1. Otherwise bytes come between requests, too, and say nothing.
    pub one_by_one: bool,
}

/// Requests under way on a connection.
#[derive(Debug, Default)]
pub struct Activity {
    requests: AtomicUsize,
    /// Requests that have ended.
    ended: AtomicU64,
    /// The reader, which waits for the end of the requests to begin its time.
    reader: Mutex<Option<Waker>>,
}

impl Activity {
    /// Counts a request for as long as the guard lives.
    pub fn begin(self: &Arc<Self>) -> Underway {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Underway(Arc::clone(self))
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Underway(Arc<Activity>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        let waker = self.0.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A body that holds a request under way until it has been sent or dropped.
pub struct Held {
    body: Body,
    _underway: Underway,
}

impl Held {
    /// Binds the two together.
    pub fn new(body: Body, underway: Underway) -> Held {
        Held { body, _underway: underway }
    }
}

impl http_body::Body for Held {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's bytes under its time limits.
pub struct Guard<S> {
    stream: S,
    limits: Limits,
    activity: Arc<Activity>,
    traffic: Arc<Traffic>,
    /// When the wait for a request began.
    idle_since: Instant,
    /// When the first byte of the request arrived that has not begun yet.
    head_since: Option<Instant>,
    /// Ended requests when a byte came last.
    ended_seen: u64,
    read_timer: Pin<Box<Sleep>>,
    /// Since when no byte is taken.
    write_since: Option<Instant>,
    write_timer: Pin<Box<Sleep>>,
    is_first: bool,
}

impl<S> Guard<S> {
    /// Puts a connection under its limits.
    pub fn new(stream: S, limits: Limits, activity: Arc<Activity>, traffic: Arc<Traffic>) -> Guard<S> {
        let now = Instant::now();
        Guard {
            stream,
            limits,
            activity,
            traffic,
            idle_since: now,
            head_since: None,
            ended_seen: 0,
            read_timer: Box::pin(sleep_until(now + limits.head)),
            write_since: None,
            write_timer: Box::pin(sleep_until(now + limits.idle)),
            is_first: true,
        }
    }

    /// When the wait for bytes ends. `None` while a request is under way.
    fn read_deadline(&mut self) -> Option<Instant> {
        if self.activity.requests.load(Ordering::Acquire) > 0 {
            self.is_first = false;
            self.head_since = None;
            return None;
        }
        let ended = self.activity.ended.load(Ordering::Acquire);
        if ended != self.ended_seen {
            self.ended_seen = ended;
            self.is_first = false;
            self.head_since = None;
            self.idle_since = Instant::now();
        }
        match self.head_since {
            Some(since) => Some(since + self.limits.head),
            None if self.is_first => Some(self.idle_since + self.limits.head),
            None => Some(self.idle_since + self.limits.idle),
        }
    }
}

fn slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what.to_owned())
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        // Registered before the look at the requests, so that an end in between wakes this reader.
        *this.activity.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        let deadline = this.read_deadline();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                this.traffic.receive(buffer.filled().len().saturating_sub(before));
                if buffer.filled().len() > before && this.limits.one_by_one && deadline.is_some() {
                    this.head_since.get_or_insert_with(Instant::now);
                }
                // A sender that trickles bytes has its time measured here.
                match deadline {
                    Some(deadline) if Instant::now() >= deadline => {
                        Poll::Ready(Err(slow("the request came too slowly")))
                    }
                    _ => Poll::Ready(result),
                }
            }
            Poll::Pending => {
                let Some(deadline) = deadline else { return Poll::Pending };
                this.read_timer.as_mut().reset(deadline);
                ready!(this.read_timer.as_mut().poll(context));
                Poll::Ready(Err(slow("no request in time")))
            }
        }
    }
}

impl<S> Guard<S> {
    fn count_sent(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.traffic.send(*bytes);
        }
    }

    fn watch_write<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.write_since = None;
            return polled;
        }
        let since = *self.write_since.get_or_insert_with(Instant::now);
        self.write_timer.as_mut().reset(since + self.limits.idle);
        ready!(self.write_timer.as_mut().poll(context));
        Poll::Ready(Err(slow("the answer was not taken in time")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_sent(&polled);
        self.watch_write(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count_sent(&polled);
        self.watch_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.watch_write(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch_write(context, polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    const LIMITS: Limits = Limits { head: Duration::from_secs(10), idle: Duration::from_secs(75), one_by_one: true };

    fn guarded() -> (DuplexStream, Guard<DuplexStream>, Arc<Activity>) {
        let (near, far) = tokio::io::duplex(64);
        let activity = Arc::default();
        (near, Guard::new(far, LIMITS, Arc::clone(&activity), Arc::default()), activity)
    }

    /// How long a read waits until it fails.
    async fn fails_after(guard: &mut Guard<DuplexStream>) -> Duration {
        let begin = Instant::now();
        let error = guard.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        begin.elapsed()
    }

    fn about(duration: Duration, s: u64) -> bool {
        duration.as_secs() == s
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_byte_ends() {
        let (_near, mut guard, _) = guarded();
        assert!(about(fails_after(&mut guard).await, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn headers_that_trickle_end_in_time_however_steadily_they_come() {
        let (mut near, mut guard, _) = guarded();
        let begin = Instant::now();
        tokio::spawn(async move {
            while near.write_u8(b'x').await.is_ok() {
                tokio::time::sleep(Duration::from_millis(900)).await;
            }
        });
        while guard.read_u8().await.is_ok() {}
        assert!(about(begin.elapsed(), 10), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_has_no_limit_here_and_an_idle_connection_has_the_longer_one() {
        let (mut near, mut guard, activity) = guarded();
        near.write_u8(b'x').await.unwrap();
        guard.read_u8().await.unwrap();
        let underway = activity.begin();
        let waits = tokio::time::timeout(Duration::from_secs(3_600), guard.read_u8()).await;
        assert!(waits.is_err(), "the answer takes its time");
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(underway);
        });
        assert!(about(fails_after(&mut guard).await, 80));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_no_byte_ends() {
        let (_near, mut guard, _) = guarded();
        let begin = Instant::now();
        let error = guard.write_all(&[0; 1_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(about(begin.elapsed(), 75));
    }
}
