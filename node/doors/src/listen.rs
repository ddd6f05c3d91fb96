//! The listener: connections, TLS, HTTP/1 and HTTP/2, and the end of all of them.

mod handshakes;
mod refuse;
#[cfg(test)]
mod tests;

use crate::access::{Peer, PrincipalOf};
use crate::guard::{Activity, Chunks, Guard, Held, Limits};
use crate::metrics::meters::Turned;
use crate::problem::Problem;
use crate::sent::{PIECE_BYTES, Paced};
use crate::state::State;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use handshakes::Handshakes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use norn_wire::{Error, ErrorCode, Retry};
use refuse::{REFUSALS_MAX, refuse};
use socket2::{SockRef, TcpKeepalive};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Protocols of TLS, in the order of preference.
pub const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Pause after a failed accept: the process has too many files open, which passes when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time after which a silent connection is asked whether its other end is there, and the interval of further questions.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// This part of all connections is for peers over TLS that show no certificate: one in four.
const STRANGERS_PART: usize = 4;
/// As many handshakes may be under way before those that hang give way: one in four.
const HANDSHAKES_PART: usize = 4;
/// Most bytes of the headers of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most requests under way on one connection of HTTP/2.
const STREAMS_MAX: u32 = 256;
/// The same for a peer without a certificate: it asks for the node's health.
const STREAMS_OF_STRANGERS_MAX: u32 = 8;
/// Interval of pings on a connection of HTTP/2.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Why a door is not opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be resolved or bound.
    #[error("cannot listen on {0} for HTTP: {1}")]
    Bind(String, io::Error),
    /// Plain text on an address that other machines reach.
    #[error(
        "{0} is reached by other machines: without TLS it needs the setting `http_proxies`, the addresses of the proxies before it"
    )]
    Plain(SocketAddr),
}

/// TLS of a door.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The present configuration; it changes when the certificates are renewed.
    pub config: watch::Receiver<Arc<rustls::ServerConfig>>,
    /// Reads the name in a client's certificate.
    pub principal_of: PrincipalOf,
}

/// An open door.
#[derive(Debug)]
pub struct Doors {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<JoinSet<()>>,
    stop: watch::Sender<bool>,
}

/// What all connections of a door share.
struct Door {
    state: Arc<State>,
    router: Router,
    tls: Option<Tls>,
    /// Places of peers over TLS that show no certificate. They may ask for the node's health, and must not take the places of others.
    strangers: Arc<Semaphore>,
    handshakes: Handshakes,
    stop: watch::Receiver<bool>,
}

impl Doors {
    /// Binds `listen` and serves there, over TLS if its configuration is given. Plain text is served to this machine and to the proxies
    /// that the state names.
    pub async fn open(listen: &str, tls: Option<Tls>, state: Arc<State>, router: Router) -> Result<Doors, ListenError> {
        let failed = |error| ListenError::Bind(listen.to_owned(), error);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if tls.is_none() && !address.ip().is_loopback() && state.access.proxies.is_empty() {
            return Err(ListenError::Plain(address));
        }
        let (stop, stopped) = watch::channel(false);
        let door = Arc::new(Door::new(Arc::clone(&state), router, tls, stopped));
        let accepting = tokio::spawn(door.accept(listener));
        Ok(Doors { address, state, accepting, stop })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more connections, ends those without a request, and lets the others answer for a while. For use once the phase says that
    /// the node drains, and before it stops.
    pub async fn close(self) {
        let _ = self.stop.send(true);
        if let Ok(mut connections) = self.accepting.await {
            let ended = async { while connections.join_next().await.is_some() {} };
            let timeout = self.state.bounds.drain_timeout;
            if tokio::time::timeout(timeout, ended).await.is_err() {
                tracing::debug!(open = connections.len(), "connections of the door are cut off");
            }
            connections.abort_all();
            // What their requests held is given back while the sessions are there.
            while connections.join_next().await.is_some() {}
        }
        self.state.close().await;
    }
}

impl Door {
    fn new(state: Arc<State>, router: Router, tls: Option<Tls>, stop: watch::Receiver<bool>) -> Door {
        let connections_max = state.bounds.connections_max;
        let strangers = Arc::new(Semaphore::new((connections_max / STRANGERS_PART).max(1)));
        let handshakes = Handshakes::new(connections_max / HANDSHAKES_PART);
        Door { state, router, tls, strangers, handshakes, stop }
    }

    /// Accepts until the door closes. Returns the connections that are open then.
    async fn accept(self: Arc<Self>, listener: TcpListener) -> JoinSet<()> {
        let places = Arc::new(Semaphore::new(self.state.bounds.connections_max));
        let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
        let mut connections = JoinSet::new();
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut stop) => return connections,
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        tracing::error!(%error, "a connection of the door ended badly");
                    }
                    continue;
                }
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (turned, why) = match self.admit(&places, address) {
                Ok(place) => {
                    let door = Arc::clone(&self);
                    connections.spawn(async move {
                        door.serve(stream, address).await;
                        drop(place);
                    });
                    continue;
                }
                Err(refused) => refused,
            };
            self.state.meters.turn_away(turned);
            if self.tls.is_some() {
                // Its reason could only be told after a handshake, which is what a node with too many connections has no room for.
                self.handshakes.give_way();
                continue;
            }
            if turned == Turned::Plain {
                // Those that may call are not to wait behind it.
                if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                    connections.spawn(async move {
                        refuse(stream, &why).await;
                        drop(place);
                    });
                }
                continue;
            }
            // Further ones wait in the system's queue until a refusal has ended, which it does in a moment.
            let place = tokio::select! {
                place = Arc::clone(&refusals).acquire_owned() => place,
                () = stopped(&mut stop) => return connections,
            };
            connections.spawn(async move {
                refuse(stream, &why).await;
                drop(place);
            });
        }
    }

    /// A place for a connection, or why it has none. One of plain text that may not be takes no place from others.
    fn admit(&self, places: &Arc<Semaphore>, address: SocketAddr) -> Result<OwnedSemaphorePermit, (Turned, Problem)> {
        if self.tls.is_none() && Peer::plain(&self.state.access, address).is_none() {
            tracing::debug!(%address, "plain text from an address that is no proxy's");
            let why = "plain text is taken from the proxies of the setting `http_proxies` alone";
            return Err((Turned::Plain, Error::new(ErrorCode::Denied, why).into()));
        }
        Arc::clone(places).try_acquire_owned().map_err(|_| (Turned::TooMany, too_many()))
    }

    async fn serve(&self, stream: TcpStream, address: SocketAddr) {
        ready(&stream);
        let Some(tls) = &self.tls else {
            // One that may not send plain text was refused before.
            let Some(peer) = Peer::plain(&self.state.access, address) else { return };
            return self.serve_http1(stream, peer).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.config.borrow()));
        let mut stop = self.stop.clone();
        let mut handshake = self.handshakes.begin();
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(self.state.bounds.head_timeout, acceptor.accept(stream)) => accepted,
            () = handshake.gives_way() => {
                self.state.meters.turn_away(Turned::Handshake);
                return tracing::debug!(%address, "a handshake that hung gave way to others");
            }
            () = stopped(&mut stop) => return,
        };
        drop(handshake);
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.state.meters.turn_away(Turned::Handshake);
                return tracing::debug!(%address, %error, "handshake");
            }
            Err(_) => {
                self.state.meters.turn_away(Turned::Handshake);
                return tracing::debug!(%address, "the handshake took too long");
            }
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first());
        let peer = Peer::tls(tls.principal_of, address, certificate);
        let speaks_http2 = session.alpn_protocol() == Some(b"h2");
        let Ok(_place) = self.place(&peer) else {
            self.state.meters.turn_away(Turned::TooMany);
            if !speaks_http2 {
                refuse(stream, &too_many()).await;
            }
            return;
        };
        match speaks_http2 {
            true => self.serve_http2(stream, peer).await,
            false => self.serve_http1(stream, peer).await,
        }
    }

    /// A place among the strangers, for a peer that is one. An error means that there is none.
    fn place(&self, peer: &Peer) -> Result<Option<OwnedSemaphorePermit>, ()> {
        if peer.name.is_ok() {
            return Ok(None);
        }
        Arc::clone(&self.strangers).try_acquire_owned().map(Some).map_err(drop)
    }

    async fn serve_http1<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer) {
        let (activity, _open) = (Arc::new(Activity::default()), self.state.meters.connections.enter());
        self.state.meters.accept();
        let guard =
            Guard::new(stream, self.limits(true), Arc::clone(&activity), Arc::clone(&self.state.meters.traffic));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).keep_alive(true);
        let (router, of_requests) = (self.router.clone(), Arc::clone(&activity));
        let service = service_fn(move |request| answer(router.clone(), request, peer.clone(), &of_requests));
        let connection = builder.serve_connection(TokioIo::new(guard), service);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
                activity.close();
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        note(ended);
    }

    async fn serve_http2<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer) {
        let (activity, _open) = (Arc::new(Activity::default()), self.state.meters.connections.enter());
        self.state.meters.accept();
        let guard =
            Guard::new(stream, self.limits(false), Arc::clone(&activity), Arc::clone(&self.state.meters.traffic));
        let streams_max = if peer.name.is_ok() { STREAMS_MAX } else { STREAMS_OF_STRANGERS_MAX };
        let executor = Paced { idle: self.state.bounds.idle_timeout };
        let mut builder = hyper::server::conn::http2::Builder::new(executor);
        builder
            .timer(TokioTimer::new())
            .max_send_buf_size(PIECE_BYTES)
            .max_concurrent_streams(streams_max)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(PING_INTERVAL);
        let (router, of_requests) = (self.router.clone(), Arc::clone(&activity));
        let service = service_fn(move |request| answer(router.clone(), request, peer.clone(), &of_requests));
        let connection = builder.serve_connection(TokioIo::new(guard), service);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
                activity.close();
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        note(ended);
    }

    fn limits(&self, one_by_one: bool) -> Limits {
        let bounds = &self.state.bounds;
        Limits { head: bounds.head_timeout, idle: bounds.idle_timeout, one_by_one }
    }
}

/// Hands a request to the router. It counts as under way until its answer was sent.
fn answer(
    router: Router,
    request: Request<Incoming>,
    peer: Peer,
    activity: &Arc<Activity>,
) -> impl Future<Output = Result<Response<Held>, Infallible>> + use<> {
    let body_bytes = request.body().size_hint().exact();
    let underway = activity.begin(body_bytes);
    let mut request = match body_bytes {
        Some(_) => request.map(Body::new),
        None => request.map(|body| Body::new(Chunks::new(Body::new(body), Arc::clone(activity)))),
    };
    request.extensions_mut().insert(peer);
    async move {
        let response = router.oneshot(request).await?;
        Ok(response.map(|body| Held::new(body, underway)))
    }
}

/// Waits until the door closes.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the door is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn note(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the door ended");
    }
}

/// Prepares a connection. A failure costs some milliseconds, or leaves a dead connection to the door's own time limits.
fn ready(stream: &TcpStream) {
    // Small answers are to leave at once.
    let _ = stream.set_nodelay(true);
    // A long poll sends nothing, so that only this finds out that a machine has gone without a word.
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE_INTERVAL);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keep_alive);
}

fn too_many() -> Problem {
    let why = "the node has too many connections; try again later, or use another";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", Retry::Later, why)
}
