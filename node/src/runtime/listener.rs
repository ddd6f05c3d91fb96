//! What arrives: connections of clients and peers, and what peers send on connections that this node has dialed.
//!
//! A bidirectional stream carries requests and answers, a unidirectional one the messages of a peer after its hello. A sender of
//! anything else loses the connection, and is sent the reason.

use crate::runtime::duplicate_instance::own_call;
use crate::runtime::peers::{Meetings, PeerHello, Speaker};
use crate::runtime::tls;
use crate::runtime::transport::CloseCode;
use norn_client::dial::version_of;
use norn_engine::Principal;
use norn_host::clients::{Carrier, Clients, Ending, Sending, WRITE_TIMEOUT, expect_body};
use norn_host::driver::{Belonging, Inputs, Internal};
use norn_host::frames::{Budget, ReadError};
use norn_host::metrics::{Counter, Metrics};
use norn_host::refusals::Refusals;
use norn_model::limits::{NODES_MAX, PEER_FRAME_BYTES_MAX};
use norn_model::message::envelope;
use norn_wire::codec::Kind;
use norn_wire::membership::{Member, Roster};
use quinn::{Connection, ConnectionError, Endpoint, Incoming, RecvStream, SendStream, TransportErrorCode};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Time limit for a handshake. Tests share their machine with others, and none tests this limit.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// Limits of incoming connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerBounds {
    /// Most connections of clients.
    pub connections_max: usize,
    /// Time limit from the first to the last byte of a frame, and from a stream's opening to its first frame.
    pub frame_timeout: Duration,
    /// Memory for large frames that are being read.
    pub frame_memory_bytes: usize,
}

/// State shared by all connections.
#[derive(Debug)]
pub struct Listener {
    pub(in crate::runtime) speaker: Speaker,
    pub(in crate::runtime) inputs: Inputs,
    belonging: watch::Receiver<Option<Belonging>>,
    pub(in crate::runtime) metrics: Arc<Metrics>,
    bounds: ListenerBounds,
    streams: Arc<Clients>,
    /// What has been heard of peers, for the links to them.
    meetings: Meetings,
    /// Limit of all connections; it leaves room for peers even when clients have used up theirs.
    connections: Arc<Semaphore>,
    clients: Arc<Semaphore>,
    refusals: Arc<Refusals>,
    /// Calls of this process to itself that have arrived, one bit each.
    meets_itself: watch::Sender<u64>,
}

impl Listener {
    /// Creates the listener of this process; it accepts nothing yet.
    pub fn new(
        speaker: Speaker,
        inputs: Inputs,
        belonging: watch::Receiver<Option<Belonging>>,
        metrics: Arc<Metrics>,
        bounds: ListenerBounds,
    ) -> Arc<Self> {
        let budget = Budget::new(bounds.frame_memory_bytes);
        let streams = Clients::new(speaker.speaks, inputs.clone(), Arc::clone(&metrics), budget, bounds.frame_timeout);
        Arc::new(Listener {
            speaker,
            inputs,
            belonging,
            metrics,
            bounds,
            meetings: Meetings::default(),
            connections: Arc::new(Semaphore::new(bounds.connections_max + 2 * NODES_MAX)),
            clients: Arc::new(Semaphore::new(bounds.connections_max)),
            refusals: Arc::clone(streams.refusals()),
            streams,
            meets_itself: watch::Sender::new(0),
        })
    }

    /// Watches which calls of this process to itself have arrived; an arrived call proves that the process is at the called address.
    pub fn meets_itself(&self) -> watch::Receiver<u64> {
        self.meets_itself.subscribe()
    }

    /// The streams of clients.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.streams
    }

    /// What has been heard of peers.
    pub fn meetings(&self) -> &Meetings {
        &self.meetings
    }

    /// Accepts until the endpoint is closed.
    pub async fn run(self: Arc<Self>, endpoint: Endpoint) {
        while let Some(incoming) = endpoint.accept().await {
            let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
                self.metrics.add(Counter::ConnectionsRefused, 1);
                incoming.refuse();
                continue;
            };
            // Under pressure, callers must first prove their address (QUIC Retry), at the cost of one round trip.
            let pressed = self.connections.available_permits() < self.bounds.connections_max / 2;
            if pressed && !incoming.remote_address_validated() && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            let listener = Arc::clone(&self);
            tokio::spawn(async move {
                listener.serve(incoming).await;
                drop(permit);
            });
        }
    }

    async fn serve(self: Arc<Self>, incoming: Incoming) {
        let address = incoming.remote_address();
        let connection = match tokio::time::timeout(HANDSHAKE_TIMEOUT, incoming).await {
            Ok(Ok(connection)) => connection,
            // Two nodes that dial each other at once give one connection up, as does a client that has reached another node.
            Ok(Err(error)) if is_given_up(&error) => {
                return tracing::debug!(%address, %error, "given up by the other side");
            }
            Ok(Err(error)) => {
                self.metrics.add(Counter::ConnectionsRefused, 1);
                return self.refusals.log(&format!("handshake with {address}: {error}"));
            }
            Err(_) => return self.refusals.log(&format!("handshake with {address} took too long")),
        };
        let principal = match tls::principal(&connection) {
            Ok(principal) => principal,
            Err(error) => {
                self.metrics.add(Counter::ConnectionsRefused, 1);
                return self.refuse(&connection, CloseCode::Identity, &error.to_string());
            }
        };
        let permit = Arc::clone(&self.clients).try_acquire_owned();
        if permit.is_err() && !principal.node {
            self.metrics.add(Counter::ConnectionsRefused, 1);
            return self.refuse(&connection, CloseCode::Busy, "too many connections");
        }
        let Some(version) = version_of(&connection) else {
            return self.refuse(&connection, CloseCode::Version, "the handshake settled no protocol version");
        };
        tracing::debug!(name = %principal.name, node = principal.node, version, %address, "connection");
        // A peer's link takes no client's slot; a node's certificate may also be used by a client.
        let place = if principal.node { None } else { permit.ok() };
        self.serve_streams(&connection, version, &principal).await;
        drop(place);
    }

    /// Serves what the other node sends on a connection that this node has dialed, until it ends.
    pub async fn serve_dialed(self: &Arc<Self>, connection: &Connection, version: u8) {
        match tls::principal(connection) {
            Ok(principal) => self.serve_streams(connection, version, &principal).await,
            Err(error) => self.refuse(connection, CloseCode::Identity, &error.to_string()),
        }
    }

    /// Serves the streams of a connection until it ends; dropping the set ends the remaining streams.
    async fn serve_streams(self: &Arc<Self>, connection: &Connection, version: u8, principal: &Principal) {
        let mut streams = JoinSet::new();
        loop {
            let listener = Arc::clone(self);
            let (connection, principal) = (connection.clone(), principal.clone());
            tokio::select! {
                stream = connection.accept_bi() => {
                    let Ok((send, receive)) = stream else { break };
                    let carrier = Quic { connection, listener: Arc::clone(&listener) };
                    let clients = Arc::clone(&listener.streams);
                    streams.spawn(async move { clients.serve(carrier, (receive, QuicSending(send)), version, principal).await });
                }
                stream = connection.accept_uni() => {
                    let Ok(receive) = stream else { break };
                    streams.spawn(async move { listener.serve_peer(&connection, version, &principal, receive).await });
                }
                Some(ended) = streams.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        connection.close(CloseCode::Frame.into(), b"internal error");
                    }
                }
            }
        }
        // Streams notice the end by themselves, and report to the driver that their clients are gone.
        while streams.join_next().await.is_some() {}
    }

    fn refuse(&self, connection: &Connection, code: CloseCode, reason: &str) {
        connection.close(code.into(), reason.as_bytes());
        let line = format!("connection of {}: {reason}", connection.remote_address());
        match code {
            // While a cluster is being founded, some members know of it before others.
            CloseCode::NotYet => tracing::debug!(reason = line, "refused"),
            _ => self.refusals.log(&line),
        }
    }

    fn refuse_read(&self, connection: &Connection, error: &ReadError) {
        let code = match error {
            // The other side has left, so no reason is sent.
            ReadError::Stream(_) | ReadError::Torn => return,
            ReadError::Frame(_) => CloseCode::Frame,
            ReadError::Slow(_) => CloseCode::Slow,
        };
        self.metrics.add(Counter::FramesRefused, 1);
        self.refuse(connection, code, &error.to_string());
    }

    // Peers.

    async fn serve_peer(&self, connection: &Connection, version: u8, principal: &Principal, receive: RecvStream) {
        let mut frames = self.streams.reader(receive, version);
        let hello: PeerHello = match frames.first().await {
            Ok(Some((header, body))) => match expect_body(Kind::PeerHello, &header, body) {
                Ok(hello) => hello,
                Err(error) => return self.refuse_read(connection, &ReadError::Frame(error)),
            },
            Ok(None) => return,
            Err(error) => return self.refuse_read(connection, &error),
        };
        if let Some(number) = own_call(&self.speaker, &hello).filter(|_| principal.node) {
            self.meets_itself.send_modify(|calls| *calls |= 1 << number);
            return;
        }
        if let Err((code, reason)) = self.check_hello(principal, &hello) {
            self.metrics.add(Counter::ConnectionsRefused, 1);
            return self.refuse(connection, code, &format!("hello of {}: {reason}", principal.name));
        }
        frames.set_limit(PEER_FRAME_BYTES_MAX);
        self.meetings.heard(hello.from, hello.heard_on(connection, version));
        loop {
            let messages = match frames.next().await {
                Ok(Some((header, body))) => match envelope::decode(&header, body) {
                    Ok(messages) => messages,
                    Err(error) => return self.refuse_read(connection, &ReadError::Frame(error)),
                },
                Ok(None) => return,
                Err(error) => return self.refuse_read(connection, &error),
            };
            // A full queue holds the stream up, and QUIC's flow control holds up the sender.
            if self.inputs.internal.send(Internal::Peer { from: hello.from, messages }).await.is_err() {
                return;
            }
        }
    }

    fn check_hello(&self, principal: &Principal, hello: &PeerHello) -> Result<(), (CloseCode, String)> {
        if !principal.node {
            return Err((CloseCode::Identity, "a client's certificate does not make a peer".to_owned()));
        }
        if self.speaker.speaks.common(hello.speaks()).is_none() {
            return Err((CloseCode::Version, self.speaker.speaks.refusal(hello.speaks())));
        }
        let belonging = self.belonging.borrow().clone();
        let Some(Belonging { cluster, roster }) = belonging else {
            return Err((CloseCode::NotYet, "this node has no cluster yet".to_owned()));
        };
        if hello.cluster != cluster {
            let reason = format!("cluster {}, this node belongs to {cluster}", hello.cluster);
            return Err((CloseCode::Cluster, reason));
        }
        if hello.to != self.speaker.node {
            return Err((CloseCode::Identity, format!("it is for node {}, this is {}", hello.to, self.speaker.node)));
        }
        let member = roster.members.values().find(|member| member.node == hello.from);
        match member {
            Some(member) if member.name.as_str() == &*principal.name => Ok(()),
            Some(member) => {
                let reason = format!("node {} is {}, the certificate says otherwise", hello.from, member.name);
                Err((CloseCode::Identity, reason))
            }
            None => Err((CloseCode::Stranger, stranger(&roster, principal, hello))),
        }
    }
}

/// A client's connection from the network.
#[derive(Clone)]
struct Quic {
    connection: Connection,
    listener: Arc<Listener>,
}

impl Carrier for Quic {
    type Receiving = RecvStream;
    type Sending = QuicSending;

    async fn closed(&self) {
        self.connection.closed().await;
    }

    fn end(&self, why: Ending<'_>) {
        match why {
            Ending::Version(reason) => self.listener.refuse(&self.connection, CloseCode::Version, reason),
            Ending::Read(error) => self.listener.refuse_read(&self.connection, error),
            Ending::Unread => self.connection.close(CloseCode::Slow.into(), b"answers are not read"),
        }
    }
}

/// Outgoing half of a client's stream from the network.
struct QuicSending(SendStream);

impl Sending for QuicSending {
    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Ok(self.0.write_all(bytes).await?)
    }

    async fn finish(&mut self) {
        if self.0.finish().is_ok() {
            let _ = tokio::time::timeout(WRITE_TIMEOUT, self.0.stopped()).await;
        }
    }
}

/// Refusal of a node that is not a member.
fn stranger(roster: &Roster, principal: &Principal, hello: &PeerHello) -> String {
    let (node, version) = (hello.from, roster.version);
    let namesake = |member: &&Member| member.state.is_present() && *member.name == *principal.name;
    match roster.members.values().find(namesake) {
        Some(Member { name, address, node: other, .. }) => {
            format!(
                "node {node} is no member, by version {version} of the member list: {name} is node {other} at {address}"
            )
        }
        None => format!("node {node} is no member, by version {version} of the member list"),
    }
}

/// Whether the other side gave the handshake up on purpose, rather than by a fault.
fn is_given_up(error: &ConnectionError) -> bool {
    let code = TransportErrorCode::APPLICATION_ERROR;
    matches!(error, ConnectionError::ConnectionClosed(close) if close.error_code == code)
}
