//! One connection: name resolution, handshake, frames out and in.

use super::ways::{Dialer, Quic, READ_BYTES_MAX, Receiving, Sending};
use crate::dial::{Reach, Reason, dial_with, lookup, version_of};
use crate::local::LocalNode;
use crate::tls::Outgoing;
use norn_wire::address::Address;
use norn_wire::codec::{self, FrameError, HEADER_BYTES, Kind};
use norn_wire::error::{Error, ErrorCode};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::request::Request;
use norn_wire::response::Response;
use quinn::{Connection, RecvStream, SendStream};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Capacity that a buffer keeps after it grew for one large frame.
const BUFFER_BYTES_KEPT: usize = 1 << 20;
/// Once a node has answered that does not serve, the client waits this long for the other addresses of the name...
const SPARE_PATIENCE: Duration = Duration::from_secs(1);
/// ...and closes the connection after this time if the node still does not serve.
const SPARE_KEPT: Duration = Duration::from_secs(5);

/// Frames to be written.
#[derive(Default)]
pub(super) struct Outbox {
    queued: Mutex<Queued>,
    some: Notify,
}

#[derive(Default)]
struct Queued {
    bytes: Vec<u8>,
    /// No frame follows these.
    ended: bool,
}

impl Outbox {
    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends frames. Call [`Outbox::wake`] when there are enough for one write.
    pub fn fill(&self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.queued().bytes);
    }

    pub fn wake(&self) {
        self.some.notify_one();
    }

    /// Marks the appended frames as the last. The connection's task ends once the node has them.
    pub fn end(&self) {
        self.queued().ended = true;
        self.wake();
    }

    /// Takes the queued frames, in exchange for an empty buffer. `None` once it has ended.
    async fn take(&self, emptied: Vec<u8>) -> Option<Vec<u8>> {
        assert!(emptied.is_empty());
        let mut emptied = emptied;
        loop {
            {
                let mut queued = self.queued();
                if !queued.bytes.is_empty() {
                    std::mem::swap(&mut queued.bytes, &mut emptied);
                    return Some(emptied);
                }
                if queued.ended {
                    return None;
                }
            }
            self.some.notified().await;
        }
    }
}

/// A report of a connection.
pub(super) struct Event {
    pub endpoint: usize,
    pub generation: u64,
    pub happening: Happening,
}

pub(super) enum Happening {
    /// Established, with the negotiated protocol version, and the addresses of the name if no node at any of them serves.
    Connected(u8, Option<Ways>),
    /// Answers with the numbers of their requests; empty if only a part of one has arrived.
    Received(Vec<(u64, Response)>),
    /// Ended, with the reason. The last report.
    Disconnected(Reason),
}

/// The addresses of a name, if none leads to a node that serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ways {
    /// The address whose node is connected.
    pub taken: SocketAddr,
    /// Each other address with what happened there, for people to read.
    pub others: String,
}

/// Addresses of a name, each with the reason if the attempt there failed.
#[derive(Debug, Clone, Default)]
struct Tried(Arc<Mutex<BTreeMap<SocketAddr, Option<String>>>>);

impl Tried {
    fn all(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ways(&self, mut taken: SocketAddr) -> Ways {
        taken.set_ip(taken.ip().to_canonical());
        let why = |reason: &Option<String>| reason.clone().unwrap_or_else(|| "no answer yet".to_owned());
        let all = self.all();
        let others = all.iter().filter(|(address, _)| **address != taken);
        let others: Vec<String> = others.map(|(address, reason)| format!("{address}: {}", why(reason))).collect();
        Ways { taken, others: others.join("; ") }
    }
}

/// A connection with its one stream.
pub(super) struct Open {
    pub connection: Connection,
    version: u8,
    send: SendStream,
    receive: RecvStream,
    /// If its node does not serve: the addresses of the name. The nodes at the others do not serve either, or did not answer.
    pub ways: Option<Ways>,
}

impl Open {
    async fn new(connection: Connection, outgoing: &Outgoing) -> Result<Open, Reason> {
        let version =
            version_of(&connection).ok_or_else(|| Reason::answered("the handshake settled no protocol version"))?;
        let (send, receive) = connection.open_bi().await.map_err(|error| outgoing.explain(&error))?;
        Ok(Open { connection, version, send, receive, ways: None })
    }

    /// Why the node does not serve this client, if so: a node at another address of the name may.
    async fn refusal(&mut self, name: String, outgoing: &Outgoing) -> Result<Option<Error>, Reason> {
        // The connection knows more about its end than a stream does, for example that a certificate was refused.
        let connection = self.connection.clone();
        let ended = |error: &dyn Display| {
            connection.close_reason().map_or_else(|| Reason::answered(error), |reason| outgoing.explain(&reason))
        };
        let (mut bytes, hello) = (Vec::new(), Request::Hello { name, bare: true });
        codec::encode_named(&mut bytes, self.version, Kind::Request, 0, &hello);
        self.send.write_all(&bytes).await.map_err(|error| ended(&error))?;
        let mut buffer = Vec::new();
        loop {
            let chunk = self.receive.read_chunk(READ_BYTES_MAX, true).await.map_err(|error| ended(&error))?;
            let chunk = chunk.ok_or_else(|| ended(&"the node has closed the stream"))?;
            buffer.extend_from_slice(&chunk.bytes);
            match answers(&mut buffer, self.version).map_err(Reason::answered)?.pop() {
                Some((_, Response::Error(error))) => return Ok(Some(error).filter(|it| it.code == ErrorCode::NotReady)),
                Some(_) => return Ok(None),
                None => {}
            }
        }
    }
}

/// Everything a connection's task needs.
pub(super) struct Task {
    pub endpoint: usize,
    pub generation: u64,
    pub address: Address,
    /// Name of the client, for people to read at the node.
    pub name: String,
    pub dialer: Dialer,
    pub outbox: Arc<Outbox>,
    pub events: mpsc::Sender<Event>,
}

impl Task {
    pub async fn run(self) {
        let reason = match self.serve().await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        self.report(Happening::Disconnected(reason)).await;
    }

    async fn report(&self, happening: Happening) {
        let event = Event { endpoint: self.endpoint, generation: self.generation, happening };
        // An error means that the session's task has ended; then this task is dropped soon.
        let _ = self.events.send(event).await;
    }

    async fn serve(&self) -> Result<Infallible, Reason> {
        match &self.dialer {
            Dialer::Quic(quic) => self.serve_quic(quic).await,
            Dialer::Local(node) => self.serve_local(node).await,
        }
    }

    async fn serve_local(&self, node: &LocalNode) -> Result<Infallible, Reason> {
        let stream = node.open().await.ok_or_else(|| Reason::passing("the node has stopped"))?;
        let (receive, send) = tokio::io::split(stream);
        self.report(Happening::Connected(node.version(), None)).await;
        let serves = AtomicBool::new(true);
        let ended = tokio::select! {
            reason = self.write(Sending::Local(send)) => reason,
            reason = self.read(Receiving::Local(receive), node.version(), &serves) => reason,
        };
        Err(Reason::passing(ended))
    }

    async fn serve_quic(&self, quic: &Quic) -> Result<Infallible, Reason> {
        let Open { connection, version, send, receive, ways } = self.connect(quic, lookup).await?;
        let is_spare = ways.is_some();
        self.report(Happening::Connected(version, ways)).await;
        let serves = AtomicBool::new(false);
        let ended = tokio::select! {
            reason = self.write(Sending::Quic(send)) => reason,
            reason = self.read(Receiving::Quic(receive), version, &serves) => reason,
            reason = refused_for_long(&serves), if is_spare => reason,
        };
        // The connection knows more about its end than a stream does, for example that a certificate was refused.
        Err(connection.close_reason().map_or_else(|| Reason::passing(ended), |reason| quic.outgoing.explain(&reason)))
    }

    /// Tries the addresses of the name, and uses the first whose node serves. If none does, it uses the first whose node answers: that
    /// node says why, and may serve later. The session bounds the time.
    pub async fn connect<L>(&self, quic: &Quic, lookup: impl Fn(String) -> L) -> Result<Open, Reason>
    where
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        let config = quic.outgoing.config().await;
        let (tried, spare) = (Tried::default(), Arc::new(Mutex::new(None)));
        let found = Arc::new(Notify::new());
        let attempt = |address: SocketAddr| {
            let connecting = quic.endpoint.connect_with(config.clone(), address, &self.address.host);
            let (outgoing, spare, found) = (Arc::clone(&quic.outgoing), Arc::clone(&spare), Arc::clone(&found));
            // With one address there is no choice.
            let name = (tried.all().len() > 1).then(|| self.name.clone());
            let opened = async move {
                let connection =
                    connecting.map_err(Reason::passing)?.await.map_err(|error| outgoing.explain(&error))?;
                let mut open = Open::new(connection, &outgoing).await?;
                let Some(name) = name else { return Ok(open) };
                let Some(error) = open.refusal(name, &outgoing).await? else { return Ok(open) };
                let reason = Reason { lasting: error.is_of_no_member(), ..Reason::answered(&error) };
                spare.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(open);
                found.notify_one();
                Err(reason)
            };
            let tried = tried.clone();
            async move {
                opened.await.inspect_err(|reason: &Reason| {
                    tried.all().insert(address, Some(reason.text.clone()));
                })
            }
        };
        let reach = |address| {
            let reach = Reach::from(&quic.endpoint, address);
            if reach != Reach::Never {
                tried.all().insert(address, None);
            }
            reach
        };
        let long_enough = async {
            found.notified().await;
            tokio::time::sleep(SPARE_PATIENCE).await;
        };
        let names = [self.address.to_string()];
        let connected = tokio::select! {
            connected = dial_with(lookup, &names, None, reach, attempt) => Some(connected),
            () = long_enough => None,
        };
        let unreached = match connected {
            Some(Ok((_, open))) => return Ok(open),
            Some(Err(unreached)) => Some(unreached),
            None => None,
        };
        let spare = spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let spare = spare.map(|open| Open { ways: Some(tried.ways(open.connection.remote_address())), ..open });
        spare.ok_or_else(|| {
            let unreached = unreached.expect("the wait ends early with a spare only");
            Reason { lasting: unreached.is_refused(), ..Reason::from(unreached) }
        })
    }

    async fn write(&self, mut stream: Sending) -> String {
        let mut bytes = Vec::new();
        while let Some(taken) = self.outbox.take(bytes).await {
            bytes = taken;
            if let Err(error) = stream.write_all(&bytes).await {
                return error.to_string();
            }
            bytes.clear();
            bytes.shrink_to(BUFFER_BYTES_KEPT);
        }
        stream.finish().await;
        "the client has closed the stream".into()
    }

    async fn read(&self, mut stream: Receiving, version: u8, serves: &AtomicBool) -> String {
        let mut buffer = Vec::new();
        loop {
            match stream.read_into(&mut buffer).await {
                Ok(true) => {}
                Ok(false) => return "the node has closed the stream".into(),
                Err(error) => return error.to_string(),
            }
            let answers = match answers(&mut buffer, version) {
                Ok(answers) => answers,
                Err(error) => return error.to_string(),
            };
            if answers.iter().any(|(_, answer)| matches!(answer, Response::Welcome(_))) {
                serves.store(true, Ordering::Relaxed);
            }
            self.report(Happening::Received(answers)).await;
        }
    }
}

/// Ends if the node still does not serve after a while, so that nodes at other addresses of the name are tried again.
async fn refused_for_long(serves: &AtomicBool) -> String {
    tokio::time::sleep(SPARE_KEPT).await;
    if serves.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    "the node does not serve".into()
}

/// Takes all whole frames off the front of the buffer. Less than one frame stays, so the buffer is bounded by the largest frame and one
/// read.
fn answers(buffer: &mut Vec<u8>, version: u8) -> Result<Vec<(u64, Response)>, FrameError> {
    let mut answers = Vec::new();
    let mut start = 0;
    while let Some((header, end)) = codec::split(&buffer[start..], version, FRAME_BYTES_MAX)? {
        if header.kind != Kind::Response {
            return Err(FrameError::Header);
        }
        let body = &buffer[start + HEADER_BYTES..start + end];
        answers.push((header.request, codec::decode_body(&header, body)?));
        start += end;
    }
    buffer.drain(..start);
    if buffer.is_empty() {
        buffer.shrink_to(BUFFER_BYTES_KEPT);
    }
    Ok(answers)
}
