//! Single calls to a node at a known address, without a session, for founding a cluster and inspecting a node.

use crate::runtime::certificates::{CertificateFiles, NODE_SUFFIX};
use crate::runtime::tls::{TlsError, peer_validity};
use crate::runtime::transport::{CloseCode, PeerConfig, client_config, endpoint};
use norn_client::dial::{Reach, Reason, Shown, Unreached, dial, version_of};
use norn_client::tls::{Outgoing, Renewal};
use norn_host::frames::{Budget, FrameReader};
use norn_wire::codec::{Kind, decode_body, encode_named};
use norn_wire::limits::FRAME_BYTES_MAX;
use norn_wire::response::Identity;
use norn_wire::{Cause, Error, Request, Response};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// Time limit for closing connections.
const GOOD_BYE_TIMEOUT: Duration = Duration::from_millis(100);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The caller's own certificates are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No socket could be opened.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// No connection could be made.
    #[error(transparent)]
    Unreached(#[from] Unreached),
    /// The connection broke.
    #[error("{0}")]
    Connection(Reason),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The node's answer is a refusal.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The answer does not match the request.
    #[error("the answer makes no sense: {0}")]
    Nonsense(String),
}

impl CallError {
    /// Whether another call will fail as well until an operator changes something, for example when one side refuses the other's
    /// certificate.
    pub fn is_lasting(&self) -> bool {
        match self {
            CallError::Connection(reason) => reason.lasting,
            CallError::Unreached(unreached) => unreached.is_refused(),
            CallError::Tls(_) | CallError::Nonsense(_) => true,
            CallError::Refused(error) => !error.passes(),
            CallError::Socket(_) | CallError::Timeout(_) => false,
        }
    }

    /// The error for the operator who named the address of the node.
    pub fn answer(self, address: &str) -> Error {
        match self {
            CallError::Refused(error) => error,
            // Unsuitable certificates, or a server that is no node, will not change by waiting.
            error if error.is_lasting() => Error::invalid(error.to_string()),
            error @ CallError::Unreached(_) => Error::unavailable(error.to_string()).because(Cause::Unreached),
            error @ CallError::Timeout(_) => {
                Error::unavailable(format!("the node at {address}: {error}")).because(Cause::Unreached)
            }
            error => Error::unavailable(error.to_string()),
        }
    }
}

/// Makes calls to nodes.
#[derive(Debug)]
pub struct Caller {
    v4: Endpoint,
    v6: Option<Endpoint>,
    outgoing: Outgoing,
    timeout: Duration,
}

impl Caller {
    /// A caller that waits for each answer up to this timeout, and rereads its certificates for each call. Must be made within the
    /// async runtime.
    pub fn new(files: CertificateFiles, timeout: Duration) -> Result<Self, CallError> {
        Caller::with(Renewal::now(files).map_err(TlsError::from)?, timeout)
    }

    /// As [`Caller::new`] with files that are read already: what comes through a pipe can be read only once.
    pub fn with(certificates: Renewal, timeout: Duration) -> Result<Self, CallError> {
        let outgoing = Outgoing::with(certificates, client_config).map_err(TlsError::from)?;
        let v4 = endpoint(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), None)?;
        // Hosts without IPv6 are common; it is needed only for addresses of its kind.
        let v6 = endpoint(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), None).ok();
        Ok(Caller { v4, v6, outgoing, timeout })
    }

    /// Waits until the last close frames are sent, so that nodes need not detect the end by a timeout.
    pub async fn close(&self) {
        for endpoint in [Some(&self.v4), self.v6.as_ref()].into_iter().flatten() {
            let _ = tokio::time::timeout(GOOD_BYE_TIMEOUT, endpoint.wait_idle()).await;
        }
    }

    /// Makes one call on its own connection.
    pub async fn call(&self, address: &str, request: &Request) -> Result<Response, CallError> {
        self.call_node(address, None, request).await
    }

    /// The last second of the certificate that the node at an address shows, in seconds since 1970.
    pub async fn certificate_until_s(&self, address: &str) -> Result<i64, CallError> {
        let connection = self.dialled(&[address.to_owned()], None, |connection| async move { Ok(connection) }).await?;
        let validity = peer_validity(&connection);
        connection.close(CloseCode::Stopping.into(), b"");
        Ok(validity?.until_s)
    }

    /// As [`Caller::call`], and accepts only the node of this name, whatever host its certificate names.
    async fn call_node(&self, address: &str, node: Option<&str>, request: &Request) -> Result<Response, CallError> {
        let end = Instant::now() + self.timeout;
        let connection = self.dialled(&[address.to_owned()], node, |connection| async move { Ok(connection) }).await?;
        self.call_on(connection, request, end).await
    }

    /// Connects to a cluster member at one of these addresses of a node, and returns its identity. A name may also lead to nodes that
    /// have no cluster yet.
    pub async fn member(&self, addresses: &[String]) -> Result<(Connection, Identity), CallError> {
        let timeout = self.timeout;
        let identified = move |connection| async move {
            match ask(&connection, &Request::Identify, timeout).await {
                Ok(Response::Identity(identity)) if identity.genesis.is_some() => Ok((connection, *identity)),
                Ok(Response::Identity(_)) => {
                    Err(Reason { lasting: true, ..Reason::answered("the node there has no cluster yet") })
                }
                Ok(Response::Error(error)) => Err(Reason::answered(error)),
                Ok(other) => Err(Reason::answered(CallError::Nonsense(format!("{other:?}")))),
                Err(error) => Err(Reason { lasting: error.is_lasting(), ..Reason::answered(error) }),
            }
        };
        self.dialled(addresses, None, identified).await
    }

    /// Makes one call on an open connection, and closes it.
    pub async fn ask(&self, connection: Connection, request: &Request) -> Result<Response, CallError> {
        self.call_on(connection, request, Instant::now() + self.timeout).await
    }

    async fn call_on(&self, connection: Connection, request: &Request, end: Instant) -> Result<Response, CallError> {
        let explain = |error: &ConnectionError| self.outgoing.explain(error);
        let answer = tokio::time::timeout_at(end, ask_with(&connection, request, self.timeout, explain)).await;
        let response = answer.map_err(|_| CallError::Timeout(self.timeout))??;
        connection.close(CloseCode::Stopping.into(), b"");
        match response {
            Response::Error(error) => Err(error.into()),
            response => Ok(response),
        }
    }

    /// The identity of the node at an address.
    pub async fn identify(&self, address: &str) -> Result<Identity, CallError> {
        identity(self.call(address, &Request::Identify).await?)
    }

    /// The identity of the node of this name at an address, as nodes look for each other.
    pub async fn identify_node(&self, address: &str, name: &str) -> Result<Identity, CallError> {
        identity(self.call_node(address, Some(name), &Request::Identify).await?)
    }

    /// Connects to these addresses of a node in turn, and returns the first result of `make` that succeeds.
    async fn dialled<T, F>(
        &self,
        addresses: &[String],
        node: Option<&str>,
        make: impl Fn(Connection) -> F + Clone + Send + Sync + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Reason>> + Send + 'static,
    {
        let address = addresses.first().map_or("", String::as_str);
        let (host, _) = address.rsplit_once(':').ok_or_else(|| CallError::Connection(misnamed(address)))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = node.map_or_else(|| host.to_owned(), |node| format!("{node}{NODE_SUFFIX}"));
        let endpoint = |target: SocketAddr| if target.is_ipv6() { self.v6.as_ref() } else { Some(&self.v4) };
        let reach = |target| endpoint(target).map_or(Reach::Never, |_| Reach::Well);
        let config = self.outgoing.config().await;
        let attempt = |target| {
            let endpoint = endpoint(target).expect("an address without a socket is not tried");
            let connecting = connecting(endpoint, &config, target, &name, Some(self.outgoing.shown()));
            let make = make.clone();
            async move { make(connecting.await?).await }
        };
        match dial(addresses, Some(self.timeout), reach, attempt).await {
            Ok((_, made)) => Ok(made),
            Err(unreached) if unreached.is_silence() => Err(CallError::Timeout(self.timeout)),
            Err(unreached) => Err(unreached.into()),
        }
    }
}

/// Attempts to connect to an address; an error has the reason.
pub fn connecting(
    endpoint: &Endpoint,
    config: &ClientConfig,
    address: SocketAddr,
    name: &str,
    shown: Option<Shown>,
) -> impl Future<Output = Result<Connection, Reason>> + Send + 'static {
    let connecting = endpoint.connect_with(config.clone(), address, name);
    async move { connecting.map_err(Reason::passing)?.await.map_err(|error| Reason::of(&error, shown.as_ref())) }
}

/// As [`connecting`], from one node to another.
pub fn connecting_peer(
    endpoint: &Endpoint,
    with: &PeerConfig,
    address: SocketAddr,
    name: &str,
) -> impl Future<Output = Result<Connection, Reason>> + Send + 'static {
    connecting(endpoint, &with.config, address, name, Some(with.shown.clone()))
}

fn identity(response: Response) -> Result<Identity, CallError> {
    match response {
        Response::Identity(identity) => Ok(*identity),
        other => Err(CallError::Nonsense(format!("{other:?}"))),
    }
}

fn misnamed(address: &str) -> Reason {
    Reason { lasting: true, ..Reason::passing(format!("{address:?} is not HOST:PORT")) }
}

/// Makes one call on an open connection, with a time limit from the first to the last byte of its answer.
pub async fn ask(connection: &Connection, request: &Request, timeout: Duration) -> Result<Response, CallError> {
    ask_with(connection, request, timeout, |error| Reason::of(error, None)).await
}

async fn ask_with(
    connection: &Connection,
    request: &Request,
    timeout: Duration,
    explain: impl Fn(&ConnectionError) -> Reason,
) -> Result<Response, CallError> {
    let text = |error: &dyn std::fmt::Display| CallError::Connection(Reason::passing(error));
    // A broken stream does not have the reason; the connection does.
    let broken = |error: &dyn std::fmt::Display| match connection.close_reason() {
        Some(reason) => CallError::Connection(explain(&reason)),
        None => text(error),
    };
    let version = version_of(connection)
        .ok_or_else(|| CallError::Nonsense("the handshake settled no protocol version".to_owned()))?;
    let (mut send, receive) = connection.open_bi().await.map_err(|error| broken(&error))?;
    let mut bytes = Vec::new();
    encode_named(&mut bytes, version, Kind::Request, 1, request);
    send.write_all(&bytes).await.map_err(|error| broken(&error))?;
    let budget = Budget::new(2 * FRAME_BYTES_MAX);
    let mut frames = FrameReader::new(receive, version, FRAME_BYTES_MAX, timeout, budget);
    match frames.next().await {
        Ok(Some((header, body))) if header.kind == Kind::Response => {
            decode_body(&header, body).map_err(|error| CallError::Nonsense(error.to_string()))
        }
        Ok(Some(_)) => Err(CallError::Nonsense("it is no response".to_owned())),
        Ok(None) => Err(text(&"the node closed the stream")),
        Err(error) => Err(broken(&error)),
    }
}
