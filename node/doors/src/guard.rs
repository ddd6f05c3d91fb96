//! Time limits of a connection, which no server library has all of: for headers that come slowly, for a connection without a request,
//! and for a reader that takes no byte.
//!
//! Over HTTP/1 the guard gives the library one request at a time, and keeps what comes behind it. So it goes on reading while a request
//! is under way and sees a client hang up, also one that had sent up to 64 KiB ahead.

use crate::metrics::meters::Traffic;
use axum::body::Body;
use bytes::{Buf, BytesMut};
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of later requests that are kept while one is under way. More are left to the network.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once while a request is under way.
const AHEAD_CHUNK_BYTES: usize = 2 << 10;

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
    /// Requests that have begun.
    begun: AtomicU64,
    /// Bytes of the body of the request that began last; the highest number if its length is not known.
    body_bytes: AtomicU64,
    /// The request that began last has a body of unknown length, which has ended.
    chunks_ended: AtomicBool,
    /// Requests that have ended.
    ended: AtomicU64,
    /// Whether no further request is wanted.
    closes: AtomicBool,
    /// The reader, which waits for the end of the requests to begin its time.
    reader: Mutex<Option<Waker>>,
}

impl Activity {
    /// Counts a request for as long as the guard lives. The length of its body is given if it is known.
    pub fn begin(self: &Arc<Self>, body_bytes: Option<u64>) -> Underway {
        self.body_bytes.store(body_bytes.unwrap_or(u64::MAX), Ordering::Release);
        self.chunks_ended.store(false, Ordering::Release);
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.requests.fetch_add(1, Ordering::AcqRel);
        Underway(Arc::clone(self))
    }

    /// The body of unknown length has ended: what comes now is of a later request.
    pub fn end_chunks(&self) {
        self.chunks_ended.store(true, Ordering::Release);
        self.wake_reader();
    }

    /// Ends the connection as soon as no request is under way. A part of a head is none.
    pub fn close(&self) {
        self.closes.store(true, Ordering::Release);
        self.wake_reader();
    }

    fn wake_reader(&self) {
        let waker = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Underway(Arc<Activity>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
        self.0.wake_reader();
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

/// The body of a request, of which the guard has to know when it ends.
pub struct Chunks {
    body: Body,
    activity: Arc<Activity>,
}

impl Chunks {
    /// Watches a body of unknown length.
    pub fn new(body: Body, activity: Arc<Activity>) -> Chunks {
        Chunks { body, activity }
    }
}

impl http_body::Body for Chunks {
    type Data = <Body as http_body::Body>::Data;
    type Error = <Body as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            self.activity.end_chunks();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Finds the end of a head: the first empty line behind a line that is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    has_text: bool,
    is_line_empty: bool,
}

impl Head {
    const NEW: Head = Head { has_text: false, is_line_empty: true };

    /// The number of these bytes that belong to the head, if it ends in them.
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.has_text && self.is_line_empty => return Some(index + 1),
                b'\n' => self.is_line_empty = true,
                b'\r' => {}
                _ => *self = Head { has_text: true, is_line_empty: false },
            }
        }
        None
    }
}

/// What the next bytes of a connection of HTTP/1 belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The head of a request.
    Head(Head),
    /// The body of a request, of which this many bytes are to come.
    Body(u64),
    /// The body of a request of unknown length.
    Chunks,
}

/// A connection's bytes under its time limits.
pub struct Guard<S> {
    stream: S,
    part: Part,
    /// Bytes that came and were not given to the library yet.
    ahead: BytesMut,
    /// Requests whose begin was seen.
    begun_seen: u64,
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
    /// Whether no request has begun yet.
    is_first: bool,
    /// Whether a byte has come.
    has_received: bool,
}

impl<S> Guard<S> {
    /// Puts a connection under its limits.
    pub fn new(stream: S, limits: Limits, activity: Arc<Activity>, traffic: Arc<Traffic>) -> Guard<S> {
        let now = Instant::now();
        Guard {
            stream,
            part: Part::Head(Head::NEW),
            ahead: BytesMut::new(),
            begun_seen: 0,
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
            has_received: false,
        }
    }

    /// When the wait for bytes ends. `None` while a request is under way.
    fn read_deadline(&mut self) -> Option<Instant> {
        if self.activity.requests.load(Ordering::Acquire) > 0 {
            self.is_first = false;
            self.head_since = None;
            return None;
        }
        // The end of an answer is still being written, and that has a time limit of its own.
        if self.write_since.is_some() {
            return None;
        }
        let ended = self.activity.ended.load(Ordering::Acquire);
        if ended != self.ended_seen {
            self.ended_seen = ended;
            self.is_first = false;
            self.idle_since = Instant::now();
            // Of the next request a part may be here already.
            self.head_since = (!self.ahead.is_empty()).then_some(self.idle_since);
        }
        match self.head_since {
            Some(since) => Some(since + self.limits.head),
            None if self.is_first => Some(self.idle_since + self.limits.head),
            None => Some(self.idle_since + self.limits.idle),
        }
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// Gives bytes of the request that the library reads, and of no later one.
    fn poll_give(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.limits.one_by_one {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            self.traffic.receive(buffer.filled().len().saturating_sub(before));
            return Poll::Ready(Ok(()));
        }
        let is_under_way = self.activity.requests.load(Ordering::Acquire) > 0;
        let begun = self.activity.begun.load(Ordering::Acquire);
        if begun != self.begun_seen {
            self.begun_seen = begun;
            self.part = match self.activity.body_bytes.load(Ordering::Acquire) {
                u64::MAX => Part::Chunks,
                bytes => Part::Body(bytes),
            };
        }
        if self.part == Part::Chunks && self.activity.chunks_ended.load(Ordering::Acquire) {
            self.part = Part::Body(0);
        }
        match self.part {
            Part::Body(0) if is_under_way => return self.poll_look_ahead(context),
            Part::Body(0) => self.part = Part::Head(Head::NEW),
            Part::Chunks if !is_under_way => self.part = Part::Head(Head::NEW),
            Part::Head(_) | Part::Body(_) | Part::Chunks => {}
        }
        let before = buffer.filled().len();
        if self.ahead.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            self.traffic.receive(buffer.filled().len().saturating_sub(before));
        } else {
            let bytes = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead.split_to(bytes));
        }
        self.keep_later(before, buffer);
        Poll::Ready(Ok(()))
    }

    /// Takes back the bytes behind `before` that do not belong to the present part.
    fn keep_later(&mut self, before: usize, buffer: &mut ReadBuf<'_>) {
        let given = buffer.filled().get(before..).unwrap_or_default();
        let own = match &mut self.part {
            Part::Chunks => return,
            Part::Head(head) => match head.end_in(given) {
                Some(bytes) => {
                    *head = Head::NEW;
                    bytes
                }
                None => return,
            },
            Part::Body(left) => {
                let bytes = usize::try_from(*left).unwrap_or(usize::MAX).min(given.len());
                *left -= bytes as u64;
                bytes
            }
        };
        let later = given.get(own..).unwrap_or_default();
        if later.is_empty() {
            return;
        }
        // They came before what is kept already.
        let mut ahead = BytesMut::with_capacity(later.len() + self.ahead.len());
        ahead.extend_from_slice(later);
        ahead.extend_from_slice(&self.ahead);
        self.ahead = ahead;
        buffer.set_filled(before + own);
    }

    /// Waits for the client to hang up, and keeps what it sends meanwhile.
    fn poll_look_ahead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.remaining() < AHEAD_BYTES_MAX {
            let mut chunk = [0; AHEAD_CHUNK_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.traffic.receive(read.filled().len());
            self.ahead.extend_from_slice(read.filled());
        }
        // The end of the request wakes the reader.
        Poll::Pending
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
        // Over HTTP/2 the library says goodbye by itself, once it has heard from the client.
        let may_end = this.limits.one_by_one || this.is_first && !this.has_received;
        if may_end && deadline.is_some() && this.activity.closes.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        match this.poll_give(context, buffer) {
            Poll::Ready(result) => {
                this.has_received |= buffer.filled().len() > before;
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
mod tests;
