//! The listener: connections, TLS, HTTP/1 and HTTP/2, and the end of all of them.

use crate::access::{Peer, PrincipalOf};
use crate::guard::{Activity, Guard, Held, Limits};
use crate::metrics::meters::Turned;
use crate::problem::Problem;
use crate::state::State;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use norn_wire::{Error, ErrorCode};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// Protocols of TLS, in the order of preference.
pub const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Pause after a failed accept: the process has too many files open, which passes when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for the refusal of a connection.
const REFUSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of the headers of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most requests under way on one connection of HTTP/2.
const STREAMS_MAX: u32 = 256;
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
        let door = Arc::new(Door { state: Arc::clone(&state), router, tls, stop: stopped });
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
        }
        self.state.close().await;
    }
}

impl Door {
    /// Accepts until the door closes. Returns the connections that are open then.
    async fn accept(self: Arc<Self>, listener: TcpListener) -> JoinSet<()> {
        let places = Arc::new(Semaphore::new(self.state.bounds.connections_max));
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
            let door = Arc::clone(&self);
            match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    connections.spawn(async move {
                        door.serve(stream, address).await;
                        drop(place);
                    });
                }
                // At most one refusal is under way; further ones are dropped, so that a flood costs no memory.
                Err(_) => {
                    self.state.meters.turn_away(Turned::TooMany);
                    refuse(stream, door.tls.is_none(), || {
                        Error::new(ErrorCode::Overloaded, "the node has too many connections; try again later").into()
                    })
                    .await
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, address: SocketAddr) {
        // Small answers are to leave at once. A failure costs some milliseconds only.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            let Some(peer) = Peer::plain(&self.state.access, address) else {
                tracing::debug!(%address, "plain text from an address that is no proxy's");
                self.state.meters.turn_away(Turned::Plain);
                let why = "plain text is taken from the proxies of the setting `http_proxies` alone";
                return refuse(stream, true, || Error::new(ErrorCode::Denied, why).into()).await;
            };
            return self.serve_http1(stream, peer).await;
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.config.borrow()));
        let head_timeout = self.state.bounds.head_timeout;
        let stream = match tokio::time::timeout(head_timeout, acceptor.accept(stream)).await {
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
        match session.alpn_protocol() {
            Some(b"h2") => self.serve_http2(stream, peer).await,
            _ => self.serve_http1(stream, peer).await,
        }
    }

    async fn serve_http1<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S, peer: Peer) {
        let (activity, _open) = (Arc::new(Activity::default()), self.state.meters.connections.enter());
        self.state.meters.accept();
        let guard =
            Guard::new(stream, self.limits(true), Arc::clone(&activity), Arc::clone(&self.state.meters.traffic));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).keep_alive(true);
        let router = self.router.clone();
        let service = service_fn(move |request| answer(router.clone(), request, peer.clone(), &activity));
        let connection = builder.serve_connection(TokioIo::new(guard), service);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
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
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(PING_INTERVAL);
        let router = self.router.clone();
        let service = service_fn(move |request| answer(router.clone(), request, peer.clone(), &activity));
        let connection = builder.serve_connection(TokioIo::new(guard), service);
        tokio::pin!(connection);
        let mut stop = self.stop.clone();
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopped(&mut stop) => {
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
    let underway = activity.begin();
    let mut request = request.map(Body::new);
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

/// Closes a connection, with the reason if it has no TLS.
async fn refuse(mut stream: TcpStream, plain: bool, why: impl FnOnce() -> Problem) {
    if !plain {
        return;
    }
    let problem = why();
    let status = problem.status();
    let body = serde_json::to_string(&problem).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {} {}\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    );
    let told = async {
        let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(REFUSE_TIMEOUT, told).await;
}
