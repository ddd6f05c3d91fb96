//! Mutual TLS and the UDP socket of a client.

use crate::wire::Versions;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A connection on which nothing arrives for this long is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Sent on an idle connection, so that only a dead one is idle.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Large enough that bursts on loopback and fast networks are not dropped by the kernel.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or there is no such thing as wanted in it.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate and the key do not go together, or cannot be used for this.
    #[error("certificate and key: {0}")]
    Identity(String),
}

fn file_error(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: reason.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| file_error(path, error))?;
    if certificates.is_empty() {
        return Err(file_error(path, "there is no certificate in it"));
    }
    Ok(certificates)
}

/// TLS 1.3 with the given authority, certificate and key, all PEM files.
pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<rustls::ClientConfig, TlsError> {
    let mut roots = rustls::RootCertStore::empty();
    for root in certificates(ca)? {
        roots.add(root).map_err(|error| file_error(ca, error))?;
    }
    let chain = certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error(key, error))?;
    // Explicit, because an implicit default panics as soon as two providers are linked in.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| TlsError::Identity(error.to_string()))?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(|error| TlsError::Identity(error.to_string()))?;
    config.alpn_protocols = Versions::SPOKEN.protocols();
    Ok(config)
}

/// The transport's settings around a TLS configuration.
pub fn transport(tls: rustls::ClientConfig) -> Result<quinn::ClientConfig, TlsError> {
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| TlsError::Identity(error.to_string()))?;
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("ten seconds are few")));
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// An unconnected UDP socket on any port: for both families where the machine has both.
pub fn socket() -> io::Result<UdpSocket> {
    bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).or_else(|_| bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // The kernel may allow less; that costs speed, nothing else.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
