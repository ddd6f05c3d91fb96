//! Certificates: creating them, and finding the right ones in a directory.
//!
//! Flat files: `ca.crt`, `ca.key`, `node-NAME.crt`, `node-NAME.key`, `client-NAME.crt`, `client-NAME.key`. Besides its hosts a
//! certificate has the name of its node or client: `NAME.node.norn` or `NAME.client.norn`. It is valid for a number of days, and
//! never longer than the authority that signs it.

#[cfg(test)]
mod tests;

use norn_client::tls::{Date, Validity, pem_words};
use norn_host::clock::unix_seconds;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

pub use norn_client::tls::CertificateFiles;

/// Suffix of the name in a node's certificate.
pub const NODE_SUFFIX: &str = ".node.norn";
/// Suffix of the name in a client's certificate.
pub const CLIENT_SUFFIX: &str = ".client.norn";
/// Longest name of a node or client: one label of a DNS name.
pub const NAME_BYTES_MAX: usize = 63;

/// Default validity of an authority in days: ten years.
pub const AUTHORITY_DAYS: u32 = 3_650;
/// Default validity of any other certificate in days: a year.
pub const DAYS: u32 = 365;
/// Longest validity of a certificate in days.
pub const DAYS_MAX: u32 = 36_500;
/// A certificate's validity begins this long before its creation, because clocks of machines differ.
const SKEW_S: i64 = 3_600;
const DAY_S: i64 = 86_400;
/// Time limit for another process that creates files in the same directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of checks whether it has finished.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why certificates could not be created or found. Nothing is overwritten in any case.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Not a label of a DNS name.
    #[error("{0:?} is no name: lower-case letters, digits and inner hyphens are allowed, {NAME_BYTES_MAX} at most")]
    Name(String),
    /// Not a host.
    #[error("{0:?} is no host: an IP address or a DNS name is wanted")]
    Host(String),
    /// A file exists already, with the remedy.
    #[error("{file} exists already and is not overwritten; {1}", file = .0.display())]
    Exists(PathBuf, &'static str),
    /// A file could not be read or written.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, io::Error),
    /// No authority to sign with.
    #[error("{}: no certificate authority here; make one with `norn cert ca --dir {}`", .0.display(), .0.display())]
    NoAuthority(PathBuf),
    /// The file is not a certificate, or not for the key beside it.
    #[error("{file}: {1}", file = .0.display())]
    Certificate(PathBuf, String),
    /// The authority has expired.
    #[error("{file}: the authority has expired on {1}; make another one with `norn cert ca --dir DIR`", file = .0.display())]
    AuthorityExpired(PathBuf, Date),
    /// The authority's certificate is missing, so its validity is unknown.
    #[error(
        "{file}: the authority's certificate is missing beside its key; it says until when the authority is valid, which nothing \
         that it signs outlasts; put the ca.crt there that the nodes have", file = .0.display()
    )]
    AuthorityMissing(PathBuf),
    /// The validity of the authority and that of the new certificate do not overlap.
    #[error(
        "{file}: the authority is valid from {from} until {until}, and by the clock of this machine the certificate would be valid at no \
         time in between; one of the clocks is wrong", file = .0.display(), from = Date(.1.from_s), until = Date(.1.until_s)
    )]
    AuthorityElsewhen(PathBuf, Validity),
    /// Another process creates files in the directory, and does not finish.
    #[error(
        "{directory}: another process has held the lock of this directory for {1:?}, as one does that makes certificates there; look for \
         it (`fuser {directory}` names it), end it if it hangs, and try again", directory = .0.display()
    )]
    Locked(PathBuf, Duration),
    /// Signing failed.
    #[error("cannot make the certificate: {0}")]
    Sign(#[from] rcgen::Error),
    /// No certificate matches, or several do.
    #[error("{0}")]
    Choice(String),
}

/// Holder of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A node: server and client of its peers.
    Node,
    /// A client.
    Client,
}

impl Role {
    fn prefix(self) -> &'static str {
        match self {
            Role::Node => "node-",
            Role::Client => "client-",
        }
    }

    /// The files for a name, whether or not they exist.
    pub fn files(self, directory: &Path, name: &str) -> CertificateFiles {
        let stem = format!("{}{name}", self.prefix());
        CertificateFiles {
            authority: directory.join("ca.crt"),
            certificate: directory.join(format!("{stem}.crt")),
            key: directory.join(format!("{stem}.key")),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Role::Node => NODE_SUFFIX,
            Role::Client => CLIENT_SUFFIX,
        }
    }
}

/// A new certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its file, and that of its key.
    pub files: CertificateFiles,
    /// Its validity.
    pub validity: Validity,
    /// Whether its authority ends before the requested days.
    pub shortened: bool,
}

/// Treatment of an existing certificate and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// They stay, and nothing is created.
    Kept,
    /// They are replaced.
    Replaced,
}

/// Checks that a text can name a node or client.
pub fn check_name(name: &str) -> Result<(), CertificateError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let length_fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if length_fits && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-') {
        return Ok(());
    }
    Err(CertificateError::Name(name.to_owned()))
}

/// A validity of some days from now on.
fn period(days: u32) -> Validity {
    let now_s = unix_seconds();
    Validity { from_s: now_s.saturating_sub(SKEW_S), until_s: now_s.saturating_add(i64::from(days) * DAY_S) }
}

fn set_validity(params: &mut CertificateParams, validity: Validity, file: &Path) -> Result<(), CertificateError> {
    let date = |second| {
        let date = OffsetDateTime::from_unix_timestamp(second);
        date.map_err(|error| CertificateError::Certificate(file.to_owned(), format!("the clock is wrong: {error}")))
    };
    (params.not_before, params.not_after) = (date(validity.from_s)?, date(validity.until_s)?);
    Ok(())
}

/// Parameters of an authority, always the same, so that the stored key can sign again.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Norn certificate authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Creates an authority, valid for some days: `ca.crt` and `ca.key`. Creates the directory.
pub fn create_authority(directory: &Path, days: u32) -> Result<Made, CertificateError> {
    write_authority(directory, KeyPair::generate()?, days, Present::Kept)
}

/// Creates an authority in place of a key that never had a certificate, and so has signed nothing.
pub fn replace_authority(directory: &Path, days: u32) -> Result<Made, CertificateError> {
    write_authority(directory, KeyPair::generate()?, days, Present::Replaced)
}

/// Creates a new certificate for the existing authority, valid for some days from now on. Its key stays, so certificates that it has
/// signed remain valid.
pub fn prolong_authority(directory: &Path, days: u32) -> Result<Made, CertificateError> {
    write_authority(directory, authority_key(directory)?, days, Present::Replaced)
}

fn write_authority(directory: &Path, key: KeyPair, days: u32, present: Present) -> Result<Made, CertificateError> {
    let (certificate, key_file) = (directory.join("ca.crt"), directory.join("ca.key"));
    let (mut params, validity) = (authority_params(), period(days));
    set_validity(&mut params, validity, &certificate)?;
    let pem = params.self_signed(&key)?.pem();
    write_pair(&certificate, &pem, &key_file, &key.serialize_pem(), present)?;
    let files = CertificateFiles { authority: certificate.clone(), certificate, key: key_file };
    Ok(Made { files, validity, shortened: false })
}

fn authority_key(directory: &Path) -> Result<KeyPair, CertificateError> {
    let file = directory.join("ca.key");
    match fs::read_to_string(&file) {
        Ok(text) => KeyPair::from_pem(&text)
            .map_err(|error| CertificateError::Certificate(file, format!("it is no key that can sign: {error}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CertificateError::NoAuthority(directory.to_owned()))
        }
        Err(error) => Err(CertificateError::File(file, error)),
    }
}

/// All certificates of a file with their validity.
fn read_certificates(file: &Path) -> Result<Vec<(CertificateDer<'static>, Validity)>, CertificateError> {
    let wrong = |reason: String| CertificateError::Certificate(file.to_owned(), reason);
    let bytes = fs::read(file).map_err(|error| CertificateError::File(file.to_owned(), error))?;
    let read = |certificate: Result<CertificateDer<'static>, _>| {
        let certificate = certificate.map_err(|error| wrong(pem_words(&error)))?;
        let validity = Validity::of(&certificate).map_err(wrong)?;
        Ok((certificate, validity))
    };
    CertificateDer::pem_slice_iter(&bytes).map(|found| read(found.map(CertificateDer::into_owned))).collect()
}

/// End of the validity of the first certificate in a file, in Unix seconds.
pub fn valid_until(file: &Path) -> Result<i64, CertificateError> {
    let first = read_certificates(file)?.into_iter().next();
    let (_, validity) = first
        .ok_or_else(|| CertificateError::Certificate(file.to_owned(), "there is no certificate in it".to_owned()))?;
    Ok(validity.until_s)
}

/// The validity of the authority with this key. The file may also have other authorities, for a changeover.
fn authority_validity(file: &Path, key: &KeyPair) -> Result<Validity, CertificateError> {
    let own = key.subject_public_key_info();
    let is_own = |certificate: &CertificateDer<'_>| {
        let parsed = x509_parser::parse_x509_certificate(certificate);
        parsed.is_ok_and(|(_, parsed)| parsed.public_key().raw == own.as_slice())
    };
    let certificates = read_certificates(file).map_err(|error| match error {
        CertificateError::File(file, error) if error.kind() == io::ErrorKind::NotFound => {
            CertificateError::AuthorityMissing(file)
        }
        error => error,
    })?;
    let certificates = certificates.into_iter();
    let own = certificates.filter(|(certificate, _)| is_own(certificate)).map(|(_, validity)| validity);
    own.max_by_key(|validity| validity.until_s).ok_or_else(|| {
        CertificateError::Certificate(
            file.to_owned(),
            "it has no certificate of the key in ca.key beside it".to_owned(),
        )
    })
}

/// Creates a certificate signed by the directory's authority, valid for some days, or as long as the authority if that ends before.
pub fn create(
    directory: &Path,
    role: Role,
    name: &str,
    hosts: &[String],
    days: u32,
    present: Present,
) -> Result<Made, CertificateError> {
    check_name(name)?;
    let files = role.files(directory, name);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match role {
        Role::Node => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        Role::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    for host in hosts {
        params.subject_alt_names.push(host_name(host)?);
    }
    params.subject_alt_names.push(SanType::DnsName(format!("{name}{}", role.suffix()).try_into()?));

    let authority_key = authority_key(directory)?;
    let of_authority = authority_validity(&files.authority, &authority_key)?;
    if of_authority.until_s <= unix_seconds() {
        return Err(CertificateError::AuthorityExpired(files.authority, Date(of_authority.until_s)));
    }
    let wanted = period(days);
    let validity = wanted.and(of_authority);
    if validity.from_s >= validity.until_s {
        return Err(CertificateError::AuthorityElsewhen(files.authority, of_authority));
    }
    set_validity(&mut params, validity, &files.certificate)?;
    let issuer_params = authority_params();
    let issuer = Issuer::from_params(&issuer_params, &authority_key);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    write_pair(&files.certificate, &certificate.pem(), &files.key, &key.serialize_pem(), present)?;
    Ok(Made { files, validity, shortened: validity.until_s < wanted.until_s })
}

fn host_name(host: &str) -> Result<SanType, CertificateError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // A host with the suffix of a name would let its holder pass for another principal.
    if host.len() > 253 || !host.split('.').all(label) || host.to_ascii_lowercase().ends_with(".norn") {
        return Err(CertificateError::Host(host.to_owned()));
    }
    Ok(SanType::DnsName(host.try_into()?))
}

/// Writes both files or none, as far as that is possible for a process that may end at any moment: a process that ended in between
/// left a key without its certificate, and the next one recognizes it by the temporary file beside it.
fn write_pair(
    certificate: &Path,
    certificate_pem: &str,
    key: &Path,
    key_pem: &str,
    present: Present,
) -> Result<(), CertificateError> {
    let directory = certificate.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error| CertificateError::File(directory.to_owned(), error);
    fs::create_dir_all(directory).map_err(failed)?;
    let handle = fs::File::open(directory).map_err(failed)?;
    lock(&handle, directory, LOCK_TIMEOUT)?;
    let pair = [(key, key_pem, 0o600), (certificate, certificate_pem, 0o644)];
    let pair = pair.map(|(file, text, mode)| (file, half_of(file), text, mode));
    if present == Present::Kept && !is_begun(certificate, key) {
        refuse_present(certificate, key)?;
    }
    // A reader finds each file whole, and uses the two only if they match.
    for (_, half, text, mode) in &pair {
        let _ = fs::remove_file(half);
        write_new(half, text, *mode)?;
    }
    for (file, half, ..) in &pair {
        fs::rename(half, file).map_err(|error| CertificateError::File((*file).to_owned(), error))?;
    }
    // Some file systems do not support syncing a directory.
    let _ = handle.sync_all();
    Ok(())
}

/// Lets one process at a time create files in a directory. On a file system without locks there is no waiting.
fn lock(handle: &fs::File, directory: &Path, timeout: Duration) -> Result<(), CertificateError> {
    let end = Instant::now() + timeout;
    while matches!(handle.try_lock(), Err(fs::TryLockError::WouldBlock)) {
        if Instant::now() >= end {
            return Err(CertificateError::Locked(directory.to_owned(), timeout));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(())
}

/// Temporary name of a file that is being written.
fn half_of(file: &Path) -> PathBuf {
    file.with_added_extension("new")
}

/// Whether only the key of a pair was renamed before its process ended. Its certificate was never available, so nothing depends on
/// the key.
fn is_begun(certificate: &Path, key: &Path) -> bool {
    let of_key = || {
        let key = KeyPair::from_pem(&fs::read_to_string(key).ok()?).ok()?;
        authority_validity(&half_of(certificate), &key).ok()
    };
    !certificate.exists() && of_key().is_some()
}

/// Refuses if either file exists, with the remedy.
fn refuse_present(certificate: &Path, key: &Path) -> Result<(), CertificateError> {
    let signs = certificate.file_name() == Some("ca.crt".as_ref());
    if certificate.exists() {
        let way =
            if signs { "choose another directory for another authority" } else { "`--renew` replaces it and its key" };
        return Err(CertificateError::Exists(certificate.to_owned(), way));
    }
    if key.exists() {
        let way = match signs {
            true => "its ca.crt is missing: put it back, or remove this file if nothing was ever signed with it",
            false => "its certificate is missing: put it back, or `--renew` makes both anew",
        };
        return Err(CertificateError::Exists(key.to_owned(), way));
    }
    Ok(())
}

fn write_new(file: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file)
        .and_then(|mut open| open.write_all(text.as_bytes()).and_then(|()| open.sync_all()));
    written.map_err(|error| CertificateError::File(file.to_owned(), error))
}

/// Names of all certificates of a role in a directory, sorted.
fn names(directory: &Path, role: Role) -> Result<Vec<String>, CertificateError> {
    let failed = |error| CertificateError::File(directory.to_owned(), error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let file = entry.map_err(failed)?.file_name();
        let name = file.to_str().and_then(|text| text.strip_prefix(role.prefix())?.strip_suffix(".crt"));
        names.extend(name.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// A node's name and files: the requested name, else the only one, else the one with the name of the data directory.
pub fn find_node(
    directory: &Path,
    name: Option<&str>,
    data: &Path,
) -> Result<(String, CertificateFiles), CertificateError> {
    let names = names(directory, Role::Node)?;
    let base = data.file_name().and_then(|base| base.to_str());
    let chosen = match (name, names.as_slice()) {
        (Some(name), _) => names.iter().find(|candidate| *candidate == name),
        (None, [only]) => Some(only),
        (None, _) => names.iter().find(|candidate| Some(candidate.as_str()) == base),
    };
    let Some(chosen) = chosen else {
        let place = directory.display();
        return Err(CertificateError::Choice(match (name, names.is_empty()) {
            (Some(name), _) => format!("{place}: there is no node-{name}.crt"),
            (None, true) => format!("{place}: there is no node-NAME.crt; make one with `norn cert node`"),
            (None, false) => format!(
                "{place}: there are certificates of several nodes ({}) and none is named as the data directory {} is; \
                 say which with --name",
                names.join(", "),
                data.display()
            ),
        }));
    };
    Ok((chosen.clone(), Role::Node.files(directory, chosen)))
}

/// A client's files: the first by name.
pub fn find_client(directory: &Path) -> Result<CertificateFiles, CertificateError> {
    let names = names(directory, Role::Client)?;
    match names.first() {
        Some(name) => Ok(Role::Client.files(directory, name)),
        None => Err(CertificateError::Choice(format!(
            "{}: there is no client-NAME.crt; make one with `norn cert client`",
            directory.display()
        ))),
    }
}
