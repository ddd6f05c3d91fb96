//! The QUIC endpoint and its configuration.

use crate::runtime::tls::{Credentials, TlsError, client_crypto, server_crypto};
use norn_client::dial::{CLOSE_IDENTITY, CLOSE_VERSION, Shown};
use norn_wire::Versions;
use quinn::{ClientConfig, Endpoint, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Requested size of the socket's buffers. The system may grant less; losses then cost throughput, never correctness.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// A connection that has been silent for this long is closed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// As [`IDLE_TIMEOUT`], for links between nodes, which are never silent for long.
pub const PEER_IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Round-trip time assumed before one is measured: a lost first packet is repeated after three of them.
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(100);
/// Interval of keep-alives on a link between nodes.
const PEER_KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Interval of keep-alives on a silent connection.
pub const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Streams that a client may have open on one connection. One is enough: it is multiplexed.
pub const CLIENT_STREAMS_MAX: u32 = 16;
/// Streams that a peer may have open on one connection: one for each class, and room for their successors.
pub const PEER_STREAMS_MAX: u32 = 8;
/// Flow-control window of a stream.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Flow-control window of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

const _: () = assert!(STREAM_WINDOW_BYTES * 2 <= CONNECTION_WINDOW_BYTES, "bulk leaves room for claims");
const _: () = assert!(KEEP_ALIVE.as_secs() * 3 < IDLE_TIMEOUT.as_secs(), "two signs of life may be lost");

/// Why this side closed a connection, for the other side to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum CloseCode {
    /// The node stops.
    Stopping = 1,
    /// The received data is no valid frame, or none that belongs there.
    Frame = 2,
    /// The certificate names no identity, or the hello claims another one.
    Identity = CLOSE_IDENTITY,
    /// The node belongs to another cluster.
    Cluster = 4,
    /// Too many connections.
    Busy = 5,
    /// The other side does not read its answers, or does not finish its frames.
    Slow = 6,
    /// The node has no cluster yet; try again.
    NotYet = 7,
    /// There is no protocol version that both sides speak.
    Version = CLOSE_VERSION,
    /// The node is not a member of the cluster, as far as this side knows.
    Stranger = 9,
}

impl From<CloseCode> for VarInt {
    fn from(code: CloseCode) -> VarInt {
        VarInt::from_u32(code as u32)
    }
}

fn transport(idle_timeout: Duration, keep_alive: Duration) -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    let idle_ms = u32::try_from(idle_timeout.as_millis()).expect("seconds");
    transport
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(idle_ms))))
        .keep_alive_interval(Some(keep_alive))
        .initial_rtt(INITIAL_ROUND_TRIP)
        .max_concurrent_bidi_streams(VarInt::from_u32(CLIENT_STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(PEER_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(u64::from(CONNECTION_WINDOW_BYTES))
        .datagram_receive_buffer_size(None);
    Arc::new(transport)
}

/// Configuration of incoming connections.
pub fn server_config(credentials: &Credentials, speaks: Versions) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::with_crypto(server_crypto(credentials, speaks)?);
    // Nodes and their clients do not move between networks.
    config.migration(false).transport_config(transport(IDLE_TIMEOUT, KEEP_ALIVE));
    Ok(config)
}

/// Configuration of a client's connections.
pub fn client_config(credentials: &Credentials) -> Result<ClientConfig, norn_client::tls::TlsError> {
    let mut config = ClientConfig::new(client_crypto(credentials, Versions::SPOKEN)?);
    config.transport_config(transport(IDLE_TIMEOUT, KEEP_ALIVE));
    Ok(config)
}

/// Configuration of links to peers.
pub fn peer_config(credentials: &Credentials, speaks: Versions) -> Result<PeerConfig, TlsError> {
    let mut config = ClientConfig::new(client_crypto(credentials, speaks)?);
    config.transport_config(transport(PEER_IDLE_TIMEOUT, PEER_KEEP_ALIVE));
    Ok(PeerConfig { config, shown: credentials.shown() })
}

/// Configuration of connections to other nodes.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// Transport configuration.
    pub config: ClientConfig,
    /// The certificates shown, for error texts.
    pub shown: Shown,
}

fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    for result in [socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES), socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)] {
        if let Err(error) = result {
            tracing::debug!(%error, "the socket keeps its small buffers");
        }
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Bytes of the buffers that the system has granted to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Bytes received and not yet read.
    pub receive_bytes: usize,
    /// Bytes written and not yet sent.
    pub send_bytes: usize,
}

/// Binds an address as a node does, and lets go of it at once. Returns the buffers that a node would have.
pub fn try_bind(address: SocketAddr) -> io::Result<Granted> {
    let socket = Socket::from(socket(address)?);
    // Linux reports twice the bytes, to count its own bookkeeping in.
    let own_parts = if cfg!(target_os = "linux") { 2 } else { 1 };
    let granted = |bytes: usize| bytes / own_parts;
    Ok(Granted { receive_bytes: granted(socket.recv_buffer_size()?), send_bytes: granted(socket.send_buffer_size()?) })
}

/// An endpoint for both directions, or for outgoing connections only if `server` is `None`.
pub fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    norn_client::endpoint::endpoint(socket(address)?, server)
}

/// Binds the first address that the machine has. An address in use ends the search: the node that runs there may be the intended one.
pub fn bind_first<T>(
    found: &[SocketAddr],
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, (SocketAddr, io::Error)> {
    let (last, before) = found.split_last().expect("a name without an address is an error");
    for address in before {
        match bind(*address) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err((*address, error)),
            Err(error) => {
                tracing::info!(%address, %error, "cannot listen there; the next address of the name is tried")
            }
        }
    }
    bind(*last).map_err(|error| (*last, error))
}

#[cfg(test)]
mod tests {
    use super::bind_first;
    use std::io::{self, ErrorKind};
    use std::net::SocketAddr;

    #[test]
    fn an_address_that_the_machine_has_not_leads_to_the_next_and_one_in_use_to_none() {
        let found: Vec<SocketAddr> = ["[::1]:1", "127.0.0.1:1"].map(|text| text.parse().unwrap()).to_vec();
        let bind = |first: Option<ErrorKind>, second: Option<ErrorKind>| {
            bind_first(&found, |address| {
                let wrong = if address.is_ipv6() { first } else { second };
                wrong.map_or(Ok(address), |kind| Err(io::Error::from(kind)))
            })
            .map_err(|(address, error)| (address, error.kind()))
        };
        let (missing, taken) = (Some(ErrorKind::AddrNotAvailable), Some(ErrorKind::AddrInUse));
        assert_eq!(bind(None, None), Ok(found[0]));
        assert_eq!(bind(missing, None), Ok(found[1]));
        assert_eq!(bind(taken, None), Err((found[0], ErrorKind::AddrInUse)));
        assert_eq!(bind(missing, taken), Err((found[1], ErrorKind::AddrInUse)));
    }
}
