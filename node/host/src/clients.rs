//! Streams of clients: requests in, answers out. What carries a stream is the host's matter: a connection from the network, or a pipe
//! within this process.

use crate::answers::{AnswerReceiver, WeakAnswerSender, answers};
use crate::authorize::authorize;
use crate::driver::{External, Inputs};
use crate::frames::{Budget, FrameReader, ReadError};
use crate::metrics::{Counter, Metrics};
use crate::refusals::Refusals;
use norn_client::local::{LocalLink, LocalLinks};
use norn_engine::{ClientId, Principal};
use norn_model::limits::{FRAME_BYTES_MAX, IN_FLIGHT_MAX};
use norn_wire::codec::{Body, FrameError, HEADER_BYTES, Header, Kind, decode_body, encode_named};
use norn_wire::{Error, ErrorCode, Request, Response, Versions};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, watch};

/// First number of clients; lower ones are for the host's own requests.
pub const CLIENT_FIRST: u64 = 16;
/// How long a client may leave its answers unread.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client of this process reads on once it has sent its last request.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// Why the host ends a client's stream.
#[derive(Debug)]
pub enum Ending<'a> {
    /// The client speaks no version that the node speaks.
    Version(&'a str),
    /// What it sends cannot be read.
    Read(&'a ReadError),
    /// It does not read its answers.
    Unread,
}

/// What carries a client's stream.
pub trait Carrier: Clone + Send + Sync + 'static {
    /// Incoming half of the stream.
    type Receiving: AsyncRead + Unpin + Send;
    /// Outgoing half of the stream.
    type Sending: Sending;

    /// Waits until the connection of a client that sends no more is closed, or may be.
    fn closed(&self) -> impl Future<Output = ()> + Send;
    /// Ends the connection, and says why.
    fn end(&self, why: Ending<'_>);
}

/// Outgoing half of a client's stream.
pub trait Sending: Send + 'static {
    /// Writes all bytes.
    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Ends the stream, and waits until the client has received all of it, if it is still connected.
    fn finish(&mut self) -> impl Future<Output = ()> + Send;
}

/// A pipe within this process. It ends with its two halves.
#[derive(Clone)]
struct Pipe {
    refusals: Arc<Refusals>,
}

impl Carrier for Pipe {
    type Receiving = ReadHalf<DuplexStream>;
    type Sending = WriteHalf<DuplexStream>;

    async fn closed(&self) {
        // It has sent its last request, and reads no longer than this.
        tokio::time::sleep(LAST_ANSWERS_TIMEOUT).await;
    }

    fn end(&self, why: Ending<'_>) {
        let who = "a client of this process";
        match why {
            Ending::Version(reason) => self.refusals.log(&format!("{who}: {reason}")),
            Ending::Read(error) => self.refusals.log(&format!("{who}: {error}")),
            Ending::Unread => {}
        }
    }
}

impl Sending for WriteHalf<DuplexStream> {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }

    async fn finish(&mut self) {
        // An error means that the client is gone.
        let _ = self.shutdown().await;
    }
}

/// What the streams of all clients share.
#[derive(Debug)]
pub struct Clients {
    speaks: Versions,
    inputs: Inputs,
    metrics: Arc<Metrics>,
    budget: Budget,
    frame_timeout: Duration,
    client_next: AtomicU64,
    refusals: Arc<Refusals>,
    /// Number of streams that may still have answers to write.
    writers: watch::Sender<usize>,
}

impl Clients {
    /// Clients of a node that speaks these versions. A frame is read within `frame_timeout`, and large ones within the budget.
    pub fn new(
        speaks: Versions,
        inputs: Inputs,
        metrics: Arc<Metrics>,
        budget: Budget,
        frame_timeout: Duration,
    ) -> Arc<Clients> {
        let (client_next, writers) = (AtomicU64::new(CLIENT_FIRST), watch::Sender::new(0));
        let refusals = Arc::default();
        Arc::new(Clients { speaks, inputs, metrics, budget, frame_timeout, client_next, refusals, writers })
    }

    /// The log of refusals.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.refusals
    }

    /// Waits until every answer is delivered. For use after the driver has stopped.
    pub async fn written(&self) {
        let mut writers = self.writers.subscribe();
        // This cannot fail while the sender exists.
        let _ = writers.wait_for(|count| *count == 0).await;
    }

    /// Reads frames of clients and peers off a stream.
    pub fn reader<R: AsyncRead + Unpin>(&self, receive: R, version: u8) -> FrameReader<R> {
        FrameReader::new(receive, version, FRAME_BYTES_MAX, self.frame_timeout, self.budget.clone())
    }

    /// Serves the links that clients of this process open, until none is left that could open one.
    pub async fn run_local(self: Arc<Self>, version: u8, mut links: LocalLinks) {
        while let Some(LocalLink { principal, stream }) = links.next().await {
            let clients = Arc::clone(&self);
            let principal = Principal { name: principal, node: false };
            let (receive, send) = tokio::io::split(stream);
            let pipe = Pipe { refusals: Arc::clone(&self.refusals) };
            tokio::spawn(async move { clients.serve(pipe, (receive, send), version, principal).await });
        }
    }

    /// Serves a client's stream until it ends.
    pub async fn serve<C: Carrier>(
        &self,
        carrier: C,
        (receive, send): (C::Receiving, C::Sending),
        version: u8,
        principal: Principal,
    ) {
        if !self.speaks.contains(version) {
            let reason = self.speaks.refusal(Versions { oldest: version, newest: version });
            return carrier.end(Ending::Version(&reason));
        }
        let client = ClientId(self.client_next.fetch_add(1, Ordering::Relaxed));
        let (replies, answers) = answers();
        let opened = External::Opened { client, replies: replies.clone() };
        if self.inputs.external.send(opened).await.is_err() {
            return;
        }
        let in_flight = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
        let writer = AnswerWriter {
            carrier: carrier.clone(),
            version,
            send,
            in_flight: Arc::clone(&in_flight),
            _writing: Writing::begin(&self.writers),
        };
        tokio::spawn(writer.run(answers));
        // Only the driver keeps the queue of answers open: when it stops, the writer writes the queued answers and ends.
        let stream = ClientStream { client, principal, replies: replies.downgrade(), in_flight };
        drop(replies);
        match self.read_requests(&stream, self.reader(receive, version)).await {
            Ok(()) => {
                // The client has sent its last request; it may still wait for answers.
                let all = u32::try_from(IN_FLIGHT_MAX).expect("a few thousand");
                tokio::select! {
                    _ = stream.in_flight.acquire_many(all) => {}
                    () = carrier.closed() => {}
                }
            }
            // The other side has left, so no reason is sent.
            Err(ReadError::Stream(_) | ReadError::Torn) => {}
            Err(error) => carrier.end(Ending::Read(&error)),
        }
        // On this the driver drops its end, and the writer ends.
        let _ = self.inputs.external.send(External::Gone { client }).await;
    }

    /// Reads requests until the stream ends.
    async fn read_requests<R: AsyncRead + Unpin>(
        &self,
        stream: &ClientStream,
        mut frames: FrameReader<R>,
    ) -> Result<(), ReadError> {
        let mut first = true;
        loop {
            // Not reading on is the backpressure on the client: the windows of its connection fill up.
            let Ok(permit) = stream.in_flight.acquire().await else { return Ok(()) };
            permit.forget();
            let next = if std::mem::take(&mut first) { frames.first().await } else { frames.next().await };
            let Some((header, body)) = next? else {
                stream.in_flight.add_permits(1);
                return Ok(());
            };
            let number = header.request;
            let request: Request = match expect_body(Kind::Request, &header, body) {
                Ok(request) => request,
                // The frame is whole and intact: a newer client may send a request that this node does not know.
                Err(FrameError::Body(reason)) => {
                    self.metrics.add(Counter::FramesRefused, 1);
                    let message = format!("the node does not understand the request: {reason}");
                    stream.answer(number, Error::new(ErrorCode::Unsupported, message));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if let Err(error) = authorize(&stream.principal) {
                stream.answer(number, error);
                continue;
            }
            let (client, principal, bytes) = (stream.client, stream.principal.clone(), header.length);
            let input = External::Request { client, number, principal, request, bytes };
            if self.inputs.external.send(input).await.is_err() {
                return Ok(());
            }
        }
    }
}

struct ClientStream {
    client: ClientId,
    principal: Principal,
    replies: WeakAnswerSender,
    in_flight: Arc<Semaphore>,
}

impl ClientStream {
    /// Answers without the core. Without a writer the answer is dropped.
    fn answer(&self, number: u64, error: Error) {
        if let Some(replies) = self.replies.upgrade() {
            let _ = replies.send(number, Response::Error(error));
        }
    }
}

/// Decodes a body of the expected kind.
pub fn expect_body<T: Body>(kind: Kind, header: &Header, body: &[u8]) -> Result<T, FrameError> {
    if header.kind != kind {
        return Err(FrameError::Header);
    }
    decode_body(header, body)
}

struct AnswerWriter<C: Carrier> {
    carrier: C,
    version: u8,
    send: C::Sending,
    in_flight: Arc<Semaphore>,
    _writing: Writing,
}

/// Counts a writer for as long as it lives.
struct Writing(watch::Sender<usize>);

impl Writing {
    fn begin(writers: &watch::Sender<usize>) -> Self {
        writers.send_modify(|count| *count += 1);
        Writing(writers.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<C: Carrier> AnswerWriter<C> {
    /// Writes answers in the order of arrival; all queued answers go out in one write.
    async fn run(mut self, mut answers: AnswerReceiver) {
        let mut bytes = Vec::with_capacity(4 << 10);
        while let Some((number, response)) = answers.recv().await {
            let mut count = 1;
            append_answer(&mut bytes, self.version, number, &response);
            while bytes.len() < WRITE_BYTES
                && let Some((number, response)) = answers.try_recv()
            {
                append_answer(&mut bytes, self.version, number, &response);
                count += 1;
            }
            match tokio::time::timeout(WRITE_TIMEOUT, self.send.write_all(&bytes)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => {
                    self.carrier.end(Ending::Unread);
                    return self.send.finish().await;
                }
            }
            self.in_flight.add_permits(count);
            bytes.clear();
            bytes.shrink_to(2 * WRITE_BYTES);
        }
        self.send.finish().await;
    }
}

impl<C: Carrier> Drop for AnswerWriter<C> {
    /// Ends the reading of requests, too: no permit comes back any more.
    fn drop(&mut self) {
        self.in_flight.close();
    }
}

fn append_answer(bytes: &mut Vec<u8>, version: u8, number: u64, response: &Response) {
    let start = bytes.len();
    encode_named(bytes, version, Kind::Response, number, response);
    if bytes.len() - start > FRAME_BYTES_MAX + HEADER_BYTES {
        bytes.truncate(start);
        let error = Error::invalid("the answer is larger than a frame; ask for less at once");
        encode_named(bytes, version, Kind::Response, number, &Response::Error(error));
    }
}
