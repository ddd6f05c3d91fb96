//! Mutual TLS: one authority, both directions verified, TLS 1.3 only.

use crate::protocol::Principal;
use crate::runtime::certificates::{CLIENT_SUFFIX, CertificateFiles, NODE_SUFFIX, check_name};
use norn_client::wire::Versions;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a side has no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file could not be read.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, String),
    /// The certificates do not fit together.
    #[error("certificates: {0}")]
    Rustls(#[from] rustls::Error),
    /// The authority cannot be used to verify clients.
    #[error("certificate authority: {0}")]
    Authority(String),
    /// A certificate without a name of ours.
    #[error("the certificate names no NAME{NODE_SUFFIX} and no NAME{CLIENT_SUFFIX}: {0}")]
    Nameless(String),
}

/// What one side shows and what it trusts.
#[derive(Debug)]
pub struct Credentials {
    authority: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// Reads PEM files.
    pub fn load(files: &CertificateFiles) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| TlsError::File(files.key.clone(), error.to_string()))?;
        Ok(Credentials { authority: certificates(&files.authority)?, chain: certificates(&files.certificate)?, key })
    }

    /// Whom the own certificate names.
    pub fn principal(&self) -> Result<Principal, TlsError> {
        let first = self.chain.first().ok_or_else(|| TlsError::Nameless("there is none".to_owned()))?;
        principal_of(first)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in &self.authority {
            roots.add(certificate.clone())?;
        }
        Ok(roots)
    }

    /// The server's side, with the protocol versions that it takes: a client without a certificate of the authority does not
    /// get past the handshake.
    pub fn server_crypto(&self, speaks: Versions) -> Result<Arc<QuicServerConfig>, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider())
            .build()
            .map_err(|error| TlsError::Authority(error.to_string()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = speaks.protocols();
        let crypto = QuicServerConfig::try_from(config).map_err(|error| TlsError::Authority(error.to_string()))?;
        Ok(Arc::new(crypto))
    }

    /// The client's side, with the protocol versions that it offers.
    pub fn client_crypto(&self, speaks: Versions) -> Result<Arc<QuicClientConfig>, TlsError> {
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = speaks.protocols();
        let crypto = QuicClientConfig::try_from(config).map_err(|error| TlsError::Authority(error.to_string()))?;
        Ok(Arc::new(crypto))
    }
}

/// The one line to change for another provider. Passed explicitly: with two of them linked, an implicit default panics.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error: rustls::pki_types::pem::Error| TlsError::File(file.to_owned(), error.to_string());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(file).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() {
        return Err(TlsError::File(file.to_owned(), "there is no certificate in it".to_owned()));
    }
    Ok(found)
}

/// Whom a certificate names. Exactly one name must be there: with several nobody could say which one counts.
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

/// Whom the other side of a connection is. TLS has verified the certificate by now.
pub fn principal(connection: &quinn::Connection) -> Result<Principal, TlsError> {
    let identity = connection.peer_identity().ok_or_else(|| TlsError::Nameless("none was shown".to_owned()))?;
    let chain = identity
        .downcast::<Vec<CertificateDer<'static>>>()
        .map_err(|_| TlsError::Nameless("it is of an unknown form".to_owned()))?;
    principal_of(chain.first().ok_or_else(|| TlsError::Nameless("none was shown".to_owned()))?)
}
