//! Mutual TLS: one certificate authority, both directions verified, TLS 1.3 only.

use crate::runtime::certificates::{CLIENT_SUFFIX, CertificateFiles, NODE_SUFFIX, check_name};
use norn_client::tls::Validity;
use norn_engine::Principal;
use norn_host::clock::unix_seconds;
use norn_wire::Versions;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use std::path::Path;
use std::sync::Arc;

pub use norn_client::tls::Credentials;

/// Why a side has no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The files are unusable.
    #[error(transparent)]
    Files(#[from] norn_client::tls::TlsError),
    /// The certificates do not match each other.
    #[error("certificates: {0}")]
    Rustls(#[from] rustls::Error),
    /// The authority cannot be used to verify clients.
    #[error("certificate authority: {0}")]
    Authority(String),
    /// A certificate without a name of Norn's form.
    #[error("the certificate names no NAME{NODE_SUFFIX} and no NAME{CLIENT_SUFFIX}: {0}")]
    Nameless(String),
}

impl TlsError {
    /// Adds the file to an error about a certificate.
    #[must_use]
    pub fn of_file(self, file: &Path) -> TlsError {
        match self {
            TlsError::Nameless(why) => TlsError::Files(norn_client::tls::TlsError::File {
                path: file.to_owned(),
                reason: TlsError::Nameless(why).to_string(),
            }),
            other => other,
        }
    }
}

/// Reads the own certificate and key, and the trusted authorities.
pub fn load(files: &CertificateFiles) -> Result<Credentials, TlsError> {
    Ok(Credentials::load(files, unix_seconds())?)
}

/// TLS configuration of the server side, with the protocol versions that it accepts: a client without a certificate of the authority
/// fails the handshake.
pub fn server_crypto(own: &Credentials, speaks: Versions) -> Result<Arc<QuicServerConfig>, TlsError> {
    let config = server_side(own, speaks)?;
    let crypto = QuicServerConfig::try_from(config).map_err(|error| TlsError::Authority(error.to_string()))?;
    Ok(Arc::new(crypto))
}

fn server_side(own: &Credentials, speaks: Versions) -> Result<rustls::ServerConfig, TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(own.roots(), provider())
        .build()
        .map_err(|error| TlsError::Authority(error.to_string()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(own.chain().to_vec(), own.key())?;
    config.alpn_protocols = speaks.protocols();
    // A resumed session would outlast the certificates that it began with.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// TLS configuration of the HTTP listener. A client's certificate is verified if it shows one; what it may ask for without one is the
/// door's decision.
pub fn door_config(own: &Credentials) -> Result<Arc<rustls::ServerConfig>, TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(own.roots(), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::Authority(error.to_string()))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(own.chain().to_vec(), own.key())?;
    config.alpn_protocols = norn_doors::PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    // A resumed session would outlast the certificates that it began with.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// TLS configuration of the client side, with the protocol versions that it offers.
pub fn client_crypto(own: &Credentials, speaks: Versions) -> Result<Arc<QuicClientConfig>, norn_client::tls::TlsError> {
    let failed = |error: &dyn std::fmt::Display| norn_client::tls::TlsError::Identity(error.to_string());
    let crypto = QuicClientConfig::try_from(own.client(speaks)?).map_err(|error| failed(&error))?;
    Ok(Arc::new(crypto))
}

/// The only line to change for another provider. Passed explicitly: with two providers linked, an implicit default panics.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The principal that the own certificate names.
pub fn own_principal(own: &Credentials) -> Result<Principal, TlsError> {
    principal_of(own.chain().first().ok_or_else(|| TlsError::Nameless("there is none".to_owned()))?)
}

/// The principal that a certificate names. Exactly one name must be there: with several, none would be authoritative.
pub fn principal_of(certificate: &CertificateDer<'_>) -> Result<Principal, TlsError> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|error| TlsError::Nameless(error.to_string()))?;
    let mut found = None;
    for name in parsed.valid_dns_names() {
        let principal = match (name.strip_suffix(NODE_SUFFIX), name.strip_suffix(CLIENT_SUFFIX)) {
            (Some(name), _) => Principal { name: name.into(), node: true },
            (None, Some(name)) => Principal { name: name.into(), node: false },
            (None, None) => continue,
        };
        check_name(&principal.name).map_err(|error| TlsError::Nameless(error.to_string()))?;
        if found.replace(principal).is_some() {
            return Err(TlsError::Nameless("it names several".to_owned()));
        }
    }
    found.ok_or_else(|| TlsError::Nameless("it has other names only".to_owned()))
}

/// The principal at the other end of a connection. TLS has verified the certificate by now.
pub fn principal(connection: &quinn::Connection) -> Result<Principal, TlsError> {
    principal_of(&peer_certificate(connection)?)
}

/// Validity of the certificate at the other end of a connection.
pub fn peer_validity(connection: &quinn::Connection) -> Result<Validity, TlsError> {
    Validity::of(&peer_certificate(connection)?).map_err(TlsError::Nameless)
}

fn peer_certificate(connection: &quinn::Connection) -> Result<CertificateDer<'static>, TlsError> {
    let none = || TlsError::Nameless("none was shown".to_owned());
    let chain = connection
        .peer_identity()
        .ok_or_else(none)?
        .downcast::<Vec<CertificateDer<'static>>>()
        .map_err(|_| TlsError::Nameless("it is of an unknown form".to_owned()))?;
    chain.into_iter().next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::certificates::{DAYS, Present, Role, create, create_authority};

    /// A resumed session is not verified again, and would outlast the certificates.
    #[test]
    fn no_session_can_be_resumed() {
        let directory = tempfile::tempdir().unwrap();
        create_authority(directory.path(), DAYS).unwrap();
        let made = create(directory.path(), Role::Node, "n", &[], DAYS, Present::Kept).unwrap();
        let config = server_side(&load(&made.files).unwrap(), Versions::SPOKEN).unwrap();
        assert_eq!((config.send_tls13_tickets, config.session_storage.can_cache()), (0, false));
        assert!(!config.ticketer.enabled());
    }
}
