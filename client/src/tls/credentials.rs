//! Credentials of one side of a connection: its certificate, its key and the authorities it trusts. Three PEM files, read and checked
//! as a whole.

use super::validity::{Date, Validity};
use super::{TlsError, file_error, provider};
use crate::dial::Shown;
use norn_wire::Versions;
use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Period before its expiry in which a certificate is warned about.
const WARN_S: i64 = 30 * DAY_S;
const DAY_S: i64 = 86_400;
/// Advice about a certificate.
const RENEW: &str = "make a new one with `norn cert`, and put it and its key in the place of these files";
/// Advice about an authority.
const RENEW_AUTHORITY: &str = "make a new one with `norn cert ca`, add it to this file everywhere, and make new \
                               certificates with it";

/// Files that one side of a connection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The authorities that both sides trust: one, or both while one replaces another.
    pub authority: PathBuf,
    /// The own certificate.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

/// Bytes of a file, or why it cannot be read.
type Content = Result<Vec<u8>, String>;

/// Contents of the files.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Contents {
    authority: Content,
    certificate: Content,
    key: Content,
}

impl CertificateFiles {
    /// Reads the files. May block.
    pub(super) fn read(&self) -> Contents {
        Contents { authority: read(&self.authority), certificate: read(&self.certificate), key: read(&self.key) }
    }

    /// Whether the files can be read again: a pipe cannot.
    pub(super) fn are_lasting(&self) -> bool {
        let other = |path: &PathBuf| path.metadata().is_ok_and(|metadata| !metadata.is_file());
        ![&self.authority, &self.certificate, &self.key].into_iter().any(other)
    }
}

fn read(path: &Path) -> Content {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

/// Certificate, key and trusted authorities of one side of a connection. The key matches the certificate, and both can be used now.
#[derive(Debug)]
pub struct Credentials {
    files: CertificateFiles,
    roots: Arc<RootCertStore>,
    /// Validity of the trusted authorities.
    authorities: Vec<Validity>,
    /// Validity of the expired authorities, which are not trusted any more.
    expired: Vec<Validity>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    validity: Validity,
}

impl Credentials {
    /// Reads the files and checks them, as of `now_s`, in seconds since 1970. May block.
    pub fn load(files: &CertificateFiles, now_s: i64) -> Result<Credentials, TlsError> {
        Credentials::parse(files, &files.read(), now_s)
    }

    pub(super) fn parse(files: &CertificateFiles, contents: &Contents, now_s: i64) -> Result<Credentials, TlsError> {
        let mut roots = RootCertStore::empty();
        let (mut authorities, mut expired) = (Vec::new(), Vec::new());
        for (certificate, validity) in certificates(&files.authority, &contents.authority)? {
            if validity.until_s < now_s {
                expired.push(validity);
                continue;
            }
            roots.add(certificate).map_err(|error| file_error(&files.authority, error))?;
            authorities.push(validity);
        }
        // One valid authority is enough: when one replaces another, the two have different periods of validity.
        if !authorities.iter().any(|validity| validity.from_s <= now_s) {
            let best = authorities.iter().chain(&expired).max_by_key(|validity| validity.until_s);
            best.map_or(Ok(()), |best| check(&files.authority, *best, now_s, RENEW_AUTHORITY))?;
        }
        let read = certificates(&files.certificate, &contents.certificate)?;
        // The other side may not need the certificates after the first: an expired cross-signed one is often left in the file.
        let validity = read.first().map(|(_, validity)| *validity).expect("there is a certificate");
        let chain: Vec<_> = read.into_iter().map(|(certificate, _)| certificate).collect();
        check(&files.certificate, validity, now_s, RENEW)?;
        let bytes = contents.key.as_ref().map_err(|reason| file_error(&files.key, reason))?;
        let key = PrivateKeyDer::from_pem_slice(bytes).map_err(|error| file_error(&files.key, pem_words(&error)))?;
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()).map_err(|error| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            TlsError::Identity(format!("{certificate} and {key} cannot be used together: {error}"))
        })?;
        let roots = Arc::new(roots);
        Ok(Credentials { files: files.clone(), roots, authorities, expired, chain, key, validity })
    }

    /// The files that these were read from.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// The trusted authorities.
    pub fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    /// The own certificate, and the chain from it to the authority.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The key of the own certificate.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// Validity of the own certificate.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Checks that the own certificate is of a trusted authority.
    pub fn check_chain(&self, now_s: i64) -> Result<(), TlsError> {
        let wrong = |error: &dyn std::fmt::Display| {
            let authority = self.files.authority.display();
            file_error(&self.files.certificate, format!("it is not of the authority in {authority}: {error}"))
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider()).build();
        let (own, between) = self.chain.split_first().expect("there is a certificate");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now_s).unwrap_or_default()));
        let verified = verifier.map_err(|error| wrong(&error))?.verify_client_cert(own, between, now);
        // The current second is left out, so that the text is the same each time.
        verified.map(|_| ()).map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::ExpiredContext { .. }) => wrong(&CertificateError::Expired),
            Error::InvalidCertificate(CertificateError::NotValidYetContext { .. }) => {
                wrong(&CertificateError::NotValidYet)
            }
            error => wrong(&error),
        })
    }

    /// Client-side TLS configuration, with the protocol versions that it offers.
    pub fn client(&self, speaks: Versions) -> Result<rustls::ClientConfig, TlsError> {
        let failed = |error: rustls::Error| TlsError::Identity(error.to_string());
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_root_certificates(self.roots())
            .with_client_auth_cert(self.chain.clone(), self.key())
            .map_err(failed)?;
        config.alpn_protocols = speaks.protocols();
        // A resumed session would last beyond the certificates with which it began.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// What this side presents, for error messages.
    pub fn shown(&self) -> Shown {
        let CertificateFiles { authority, certificate, .. } = self.files.clone();
        Shown { authority, certificate, until: Date(self.validity.until_s) }
    }

    /// The own certificate, and the authority that lasts longest: an older one beside it is about to be replaced.
    fn lasting(&self) -> impl Iterator<Item = Lasting<'_>> {
        let CertificateFiles { authority, certificate, .. } = &self.files;
        let own = Lasting { path: certificate, validity: self.validity, of_authority: false };
        let last = self.authorities.iter().max_by_key(|validity| validity.until_s);
        let last = last.map(|last| Lasting { path: authority, validity: *last, of_authority: true });
        [Some(own), last].into_iter().flatten()
    }

    /// The next second at which one of these has expired.
    pub fn next_end_s(&self, now_s: i64) -> Option<i64> {
        let ends = self.lasting().map(|lasting| lasting.validity.until_s.saturating_add(1));
        ends.filter(|end_s| *end_s > now_s).min()
    }

    /// Certificates that have expired since they were read: a line each, with the file, the date and advice.
    pub fn expired(&self, now_s: i64) -> Vec<String> {
        self.lasting().filter_map(|lasting| lasting.expired(now_s)).collect()
    }

    /// What an operator should do soon: a line each, with the file, the date and advice.
    pub fn warnings(&self, now_s: i64) -> Vec<String> {
        let authority = &self.files.authority;
        let mut warnings: Vec<String> = self.lasting().filter_map(|lasting| lasting.warning(now_s)).collect();
        for expired in &self.expired {
            let (authority, until) = (authority.display(), Date(expired.until_s));
            warnings.push(format!(
                "{authority}: an authority in it has expired on {until} and is not trusted; take it out"
            ));
        }
        warnings
    }
}

/// A certificate in use whose expiry matters.
struct Lasting<'a> {
    path: &'a Path,
    validity: Validity,
    of_authority: bool,
}

impl Lasting<'_> {
    fn advice(&self) -> &'static str {
        if self.of_authority { RENEW_AUTHORITY } else { RENEW }
    }

    fn expired(&self, now_s: i64) -> Option<String> {
        let (path, until, advice) = (self.path.display(), Date(self.validity.until_s), self.advice());
        let effect = match self.of_authority {
            true => "it is refused by whatever starts from now on",
            false => "no new connection is made with it",
        };
        (self.validity.until_s < now_s)
            .then(|| format!("{path}: the certificate has expired on {until}, and {effect}; {advice}"))
    }

    /// The warning, if the expiry is near.
    fn warning(&self, now_s: i64) -> Option<String> {
        let (path, until, advice) = (self.path.display(), Date(self.validity.until_s), self.advice());
        let left_s = self.validity.until_s.saturating_sub(now_s);
        let left = match left_s / DAY_S {
            _ if !(0..=WARN_S).contains(&left_s) => return None,
            0 => "within a day".to_owned(),
            1 => "in 1 day".to_owned(),
            days => format!("in {days} days"),
        };
        Some(format!("{path}: the certificate expires on {until}, {left}; {advice}"))
    }
}

fn check(path: &Path, validity: Validity, now_s: i64, advice: &'static str) -> Result<(), TlsError> {
    let path = path.to_owned();
    if validity.until_s < now_s {
        return Err(TlsError::Expired { path, until: Date(validity.until_s), advice });
    }
    if validity.from_s > now_s {
        return Err(TlsError::NotYetValid { path, from: Date(validity.from_s), now: Date(now_s) });
    }
    Ok(())
}

/// Describes what is wrong with a PEM file. Shows nothing of its content, which may be a private key.
pub fn pem_words(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "it ends in the middle of a section: a line `-----END ...-----` is missing, or its lines are not apart"
                .to_owned()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "a line that begins a section does not end as it does in a PEM file".to_owned()
        }
        pem::Error::Base64Decode(_) => "it is damaged: what stands in it is no base64".to_owned(),
        pem::Error::NoItemsFound => "there is no key in it".to_owned(),
        _ => "it is no PEM file".to_owned(),
    }
}

fn certificates(path: &Path, content: &Content) -> Result<Vec<(CertificateDer<'static>, Validity)>, TlsError> {
    let bytes = content.as_ref().map_err(|reason| file_error(path, reason))?;
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        let certificate = certificate.map_err(|error| file_error(path, pem_words(&error)))?.into_owned();
        let validity = Validity::of(&certificate).map_err(|error| file_error(path, error))?;
        found.push((certificate, validity));
    }
    if found.is_empty() {
        return Err(file_error(path, "there is no certificate in it"));
    }
    Ok(found)
}
