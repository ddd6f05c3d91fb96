//! Certificates: making them, and finding the right ones in a directory.
//!
//! Flat files: `ca.crt`, `ca.key`, `node-NAME.crt`, `node-NAME.key`, `client-NAME.crt`, `client-NAME.key`. Beside its
//! hosts a certificate carries the name it stands for: `NAME.node.norn` or `NAME.client.norn`.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a name ends in within a node's certificate.
pub const NODE_SUFFIX: &str = ".node.norn";
/// What a name ends in within a client's certificate.
pub const CLIENT_SUFFIX: &str = ".client.norn";
/// Longest name of a node or client: one label of a DNS name.
pub const NAME_BYTES_MAX: usize = 63;

/// Why certificates could not be made or found. Nothing is overwritten in any case.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Not a label of a DNS name.
    #[error("{0:?} is no name: lower-case letters, digits and inner hyphens are allowed, {NAME_BYTES_MAX} at most")]
    Name(String),
    /// Not a host.
    #[error("{0:?} is no host: an IP address or a DNS name is wanted")]
    Host(String),
    /// A file is in the way.
    #[error("{} exists already and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// A file could not be read or written.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, io::Error),
    /// No authority to sign with.
    #[error("{}: no certificate authority here; make one with `norn cert ca --dir {}`", .0.display(), .0.display())]
    NoAuthority(PathBuf),
    /// Signing failed.
    #[error("cannot make the certificate: {0}")]
    Sign(#[from] rcgen::Error),
    /// None or several fit.
    #[error("{0}")]
    Choice(String),
}

/// Whom a certificate is for.
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

    fn suffix(self) -> &'static str {
        match self {
            Role::Node => NODE_SUFFIX,
            Role::Client => CLIENT_SUFFIX,
        }
    }
}

/// The files that one side of a connection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The authority that both sides trust.
    pub authority: PathBuf,
    /// The own certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The files of a name, whether or not they exist.
    pub fn of(directory: &Path, role: Role, name: &str) -> Self {
        let stem = format!("{}{name}", role.prefix());
        CertificateFiles {
            authority: directory.join("ca.crt"),
            certificate: directory.join(format!("{stem}.crt")),
            key: directory.join(format!("{stem}.key")),
        }
    }
}

/// Whether a text can name a node or client.
pub fn check_name(name: &str) -> Result<(), CertificateError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let length_fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if length_fits && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-') {
        return Ok(());
    }
    Err(CertificateError::Name(name.to_owned()))
}

/// The same parameters whenever they are asked for, so that the stored key can sign again without its certificate
/// being read.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Norn certificate authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Makes an authority: `ca.crt` and `ca.key`. Creates the directory.
pub fn create_authority(directory: &Path) -> Result<(), CertificateError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params().self_signed(&key)?;
    write_pair(&directory.join("ca.crt"), &certificate.pem(), &directory.join("ca.key"), &key.serialize_pem())
}

/// Makes a certificate signed by the directory's authority.
pub fn create(
    directory: &Path,
    role: Role,
    name: &str,
    hosts: &[String],
) -> Result<CertificateFiles, CertificateError> {
    check_name(name)?;
    let files = CertificateFiles::of(directory, role, name);
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

    let authority_key_file = directory.join("ca.key");
    let authority_key = match fs::read_to_string(&authority_key_file) {
        Ok(text) => KeyPair::from_pem(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(CertificateError::NoAuthority(directory.to_owned()));
        }
        Err(error) => return Err(CertificateError::File(authority_key_file, error)),
    };
    let issuer_params = authority_params();
    let issuer = Issuer::from_params(&issuer_params, &authority_key);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    write_pair(&files.certificate, &certificate.pem(), &files.key, &key.serialize_pem())?;
    Ok(files)
}

fn host_name(host: &str) -> Result<SanType, CertificateError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // A host that ends like a name would let its holder pass for somebody else.
    if host.len() > 253 || !host.split('.').all(label) || host.to_ascii_lowercase().ends_with(".norn") {
        return Err(CertificateError::Host(host.to_owned()));
    }
    Ok(SanType::DnsName(host.try_into()?))
}

fn write_pair(certificate: &Path, certificate_pem: &str, key: &Path, key_pem: &str) -> Result<(), CertificateError> {
    for file in [certificate, key] {
        if file.exists() {
            return Err(CertificateError::Exists(file.to_owned()));
        }
    }
    if let Some(directory) = certificate.parent() {
        fs::create_dir_all(directory).map_err(|error| CertificateError::File(directory.to_owned(), error))?;
    }
    write_new(key, key_pem, 0o600)?;
    write_new(certificate, certificate_pem, 0o644)
}

fn write_new(file: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(file)
        .and_then(|mut open| open.write_all(text.as_bytes()).and_then(|()| open.sync_all()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => CertificateError::Exists(file.to_owned()),
        _ => CertificateError::File(file.to_owned(), error),
    })
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

/// A node's name and files: the name asked for, else the only one, else the one named as the data directory is.
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
    Ok((chosen.clone(), CertificateFiles::of(directory, Role::Node, chosen)))
}

/// A client's files: the first by name.
pub fn find_client(directory: &Path) -> Result<CertificateFiles, CertificateError> {
    let names = names(directory, Role::Client)?;
    match names.first() {
        Some(name) => Ok(CertificateFiles::of(directory, Role::Client, name)),
        None => Err(CertificateError::Choice(format!(
            "{}: there is no client-NAME.crt; make one with `norn cert client`",
            directory.display()
        ))),
    }
}
