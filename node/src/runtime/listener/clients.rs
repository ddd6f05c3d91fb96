//! Streams of clients: requests in, answers out; from the network, or from a door of this process.

use super::{Listener, expect_body};
use crate::runtime::answers::{AnswerReceiver, WeakAnswerSender, answers};
use crate::runtime::authorize::authorize;
use crate::runtime::driver::External;
use crate::runtime::frames::{FrameReader, ReadError};
use crate::runtime::metrics::Counter;
use crate::runtime::transport::CloseCode;
use norn_client::local::LocalLink;
use norn_engine::{ClientId, Principal};
use norn_model::limits::{FRAME_BYTES_MAX, IN_FLIGHT_MAX};
use norn_wire::codec::{FrameError, HEADER_BYTES, Kind, encode_named};
use norn_wire::{Error, ErrorCode, Request, Response, Versions};
use quinn::{Connection, RecvStream, SendStream};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc, watch};

/// How long a client may leave its answers unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a door reads on once it has sent its last request.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// What carries a client's stream.
#[derive(Clone)]
enum Carrier {
    /// A connection from the network.
    Quic(Connection),
    /// A pipe within this process. It ends with its two halves.
    Local,
}

impl Carrier {
    /// Waits until the connection of a client that sends no more is closed.
    async fn closed(&self) {
        match self {
            Carrier::Quic(connection) => {
                connection.closed().await;
            }
            // It has sent its last request, and reads no longer than this.
            Carrier::Local => tokio::time::sleep(LAST_ANSWERS_TIMEOUT).await,
        }
    }
}

/// Incoming half of a stream.
enum Receiving {
    Quic(RecvStream),
    Local(ReadHalf<DuplexStream>),
}

impl AsyncRead for Receiving {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Receiving::Quic(stream) => AsyncRead::poll_read(Pin::new(stream), context, buffer),
            Receiving::Local(pipe) => Pin::new(pipe).poll_read(context, buffer),
        }
    }
}

/// Outgoing half of a stream.
enum Sending {
    Quic(SendStream),
    Local(WriteHalf<DuplexStream>),
}

impl Sending {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sending::Quic(stream) => Ok(stream.write_all(bytes).await?),
            Sending::Local(pipe) => pipe.write_all(bytes).await,
        }
    }

    /// Ends the stream, and waits until the client has received all of it, if it is still connected.
    async fn finish(&mut self) {
        match self {
            Sending::Quic(stream) => {
                if stream.finish().is_ok() {
                    let _ = tokio::time::timeout(WRITE_TIMEOUT, stream.stopped()).await;
                }
            }
            // An error means that the client is gone.
            Sending::Local(pipe) => {
                let _ = pipe.shutdown().await;
            }
        }
    }
}

/// A client's stream in both directions.
pub(super) struct Stream {
    carrier: Carrier,
    send: Sending,
    receive: Receiving,
}

impl Stream {
    /// A stream of a connection from the network.
    pub fn of_quic(connection: Connection, send: SendStream, receive: RecvStream) -> Stream {
        Stream { carrier: Carrier::Quic(connection), send: Sending::Quic(send), receive: Receiving::Quic(receive) }
    }

    fn of_pipe(pipe: DuplexStream) -> Stream {
        let (receive, send) = tokio::io::split(pipe);
        Stream { carrier: Carrier::Local, send: Sending::Local(send), receive: Receiving::Local(receive) }
    }
}

impl Listener {
    /// Serves the links that doors of this process open, until no door is left.
    pub async fn run_local(self: Arc<Self>, version: u8, mut links: mpsc::Receiver<LocalLink>) {
        while let Some(LocalLink { principal, stream }) = links.recv().await {
            let listener = Arc::clone(&self);
            let principal = Principal { name: principal, node: false };
            tokio::spawn(async move { listener.serve_client(Stream::of_pipe(stream), version, principal).await });
        }
    }

    /// Closes a client's connection with the reason. A pipe ends by itself once its halves are dropped.
    fn close_client(&self, carrier: &Carrier, code: CloseCode, reason: &str) {
        match carrier {
            Carrier::Quic(connection) => self.refuse(connection, code, reason),
            Carrier::Local => self.refusals.log(&format!("a door of this node: {reason}")),
        }
    }

    pub(super) async fn serve_client(&self, stream: Stream, version: u8, principal: Principal) {
        let Stream { carrier, send, receive } = stream;
        if !self.speaker.speaks.contains(version) {
            let reason = self.speaker.speaks.refusal(Versions { oldest: version, newest: version });
            return self.close_client(&carrier, CloseCode::Version, &reason);
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
            Err(error) => match &carrier {
                Carrier::Quic(connection) => self.refuse_read(connection, &error),
                Carrier::Local => self.refusals.log(&format!("a door of this node: {error}")),
            },
        }
        // On this the driver drops its end, and the writer ends.
        let _ = self.inputs.external.send(External::Gone { client }).await;
    }

    /// Reads requests until the stream ends.
    async fn read_requests(&self, stream: &ClientStream, mut frames: FrameReader<Receiving>) -> Result<(), ReadError> {
        let mut first = true;
        loop {
            // Not reading on is the backpressure on the client: QUIC's windows fill up.
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

struct AnswerWriter {
    carrier: Carrier,
    version: u8,
    send: Sending,
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

impl AnswerWriter {
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
                    if let Carrier::Quic(connection) = &self.carrier {
                        connection.close(CloseCode::Slow.into(), b"answers are not read");
                    }
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

impl Drop for AnswerWriter {
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
