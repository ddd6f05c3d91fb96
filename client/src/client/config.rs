//! Configuration of a client, and errors in it.

use crate::tls::TlsError;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Valid range of `unreached_timeout_ms` in a file: below it, a node is hardly heard in time.
const UNREACHED_MS: RangeInclusive<u64> = 100..=86_400_000;

/// Configuration of a client of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Addresses of nodes, as `HOST:PORT`. Any node serves any call; several are for failover.
    pub addresses: Vec<String>,
    /// Certificate authority of the cluster, PEM.
    pub ca: PathBuf,
    /// This client's certificate, PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, PEM.
    pub key: PathBuf,
    /// Name of the program, for people to read in the cluster's logs.
    pub name: String,
    /// Timeout of a call with all its retries, unless the call names its own. 10 s by default.
    pub request_timeout: Duration,
    /// Time for which calls may fail to connect to any node; absent, as by default: up to their deadlines. It counts from the first
    /// call that found no node, for all calls that wait with it. After it, a call that was not sent ends as `unavailable`.
    pub unreached_timeout: Option<Duration>,
}

impl ClientConfig {
    /// A configuration with the default name and timeout.
    pub fn new<A: Into<String>>(
        addresses: impl IntoIterator<Item = A>,
        ca: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        ClientConfig {
            addresses: addresses.into_iter().map(Into::into).collect(),
            ca: ca.into(),
            certificate: certificate.into(),
            key: key.into(),
            name: "norn-client".into(),
            request_timeout: Duration::from_secs(10),
            unreached_timeout: None,
        }
    }

    /// Reads `client.toml`: `addresses = [..]`, `ca`, `certificate`, `key`, and optionally `name`,
    /// `request_timeout_ms` and `unreached_timeout_ms` (100 ms to a day). Relative paths are relative to the file.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), norn_client::client::ConnectError> {
    /// use norn_client::client::{Client, ClientConfig};
    /// let config = ClientConfig::load(std::path::Path::new(".norn/client.toml"))?;
    /// let client = Client::connect(config).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load(path: &std::path::Path) -> Result<ClientConfig, ConnectError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            addresses: Vec<String>,
            ca: PathBuf,
            certificate: PathBuf,
            key: PathBuf,
            name: Option<String>,
            request_timeout_ms: Option<u64>,
            unreached_timeout_ms: Option<u64>,
        }
        let wrong = |reason: String| ConnectError::File { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let file: File = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if file.unreached_timeout_ms.is_some_and(|ms| !UNREACHED_MS.contains(&ms)) {
            let (least, most) = UNREACHED_MS.into_inner();
            return Err(wrong(format!("unreached_timeout_ms is {least} to {most} milliseconds")));
        }
        let folder = path.parent().unwrap_or(std::path::Path::new(""));
        // Joining an absolute path gives that path.
        let mut config = ClientConfig::new(
            file.addresses,
            folder.join(file.ca),
            folder.join(file.certificate),
            folder.join(file.key),
        );
        config.name = file.name.unwrap_or(config.name);
        config.request_timeout = file.request_timeout_ms.map_or(config.request_timeout, Duration::from_millis);
        config.unreached_timeout = file.unreached_timeout_ms.map(Duration::from_millis);
        Ok(config)
    }
}

/// Why a client cannot be made. Whether any node answers is not known yet at that point.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No address is given; there must be at least one.
    #[error("no address of a node is given")]
    NoAddress,
    /// An address is not of the form `HOST:PORT`.
    #[error("{0:?} is no address; the form is HOST:PORT")]
    Address(String),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The machine provides no UDP socket.
    #[error("no UDP socket: {0}")]
    Socket(#[from] std::io::Error),
    /// A client of the node of its own process has no certificates to reach others with.
    #[error("this client reaches the node of its own process alone")]
    Local,
    /// The configuration file cannot be used.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
}
