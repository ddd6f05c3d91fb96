//! Mutual TLS and the UDP socket of a client.

mod credentials;
mod renewal;
#[cfg(test)]
mod tests;
mod validity;

use norn_wire::Versions;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::crypto::CryptoProvider;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use credentials::{CertificateFiles, Credentials, pem_words};
pub use renewal::{
    Look, Outgoing, REMIND_INTERVAL, Renewal, report_expired, report_refused, report_renewed, report_warnings,
};
pub(crate) use validity::now_s;
pub use validity::{Date, Validity};

/// A connection on which nothing arrives for this long is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of keep-alive packets on an idle connection, so that only a dead one times out.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Large enough that bursts on loopback and fast networks are not dropped by the kernel.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain what is needed.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The certificate and the key do not match, or cannot be used for this.
    #[error("certificate and key: {0}")]
    Identity(String),
    /// A certificate has expired.
    #[error("{path}: the certificate has expired on {until}; {advice}")]
    Expired {
        /// Its file.
        path: PathBuf,
        /// Its last second.
        until: Date,
        /// Advice to the operator.
        advice: &'static str,
    },
    /// A certificate is not valid yet.
    #[error(
        "{path}: the certificate is valid from {from} on, and by the clock of this machine it is {now}; one of them is wrong"
    )]
    NotYetValid {
        /// Its file.
        path: PathBuf,
        /// Its first second.
        from: Date,
        /// The time of the check.
        now: Date,
    },
}

impl TlsError {
    /// The same error without the time of the check.
    fn undated(self) -> TlsError {
        match self {
            TlsError::NotYetValid { path, from, .. } => TlsError::NotYetValid { path, from, now: from },
            error => error,
        }
    }
}

fn file_error(path: &Path, reason: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: reason.to_string() }
}

// Explicit, because an implicit default panics once two providers are linked in.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS 1.3 with the given authority, certificate and key, all PEM files.
pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<rustls::ClientConfig, TlsError> {
    let (authority, certificate, key) = (ca.to_owned(), certificate.to_owned(), key.to_owned());
    Credentials::load(&CertificateFiles { authority, certificate, key }, validity::now_s())?.client(Versions::SPOKEN)
}

/// Transport settings around a TLS configuration.
pub fn transport(tls: rustls::ClientConfig) -> Result<quinn::ClientConfig, TlsError> {
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| TlsError::Identity(error.to_string()))?;
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE_TIMEOUT.try_into().expect("ten seconds are few")));
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// An unconnected UDP socket on any port, for both address families if the machine has both.
pub fn socket() -> io::Result<UdpSocket> {
    bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).or_else(|_| bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // The kernel may allow less; that only costs speed.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
