//! Settings of a node: defaults, a TOML file, `NORN_*` environment variables and flags; later sources take precedence.
//!
//! The [`table`] is the only list of settings: names, bounds, defaults, meanings.

use crate::runtime::certificates::{CertificateError, CertificateFiles, find_node};
use crate::runtime::doors::HttpSettings;
use crate::runtime::hints::{PeerAddress, parse_peers};
use crate::runtime::listener::ListenerBounds;
use crate::runtime::peers::LinkBounds;
use norn_host::log_thread::BacklogBounds;
use norn_host::threads::ThreadSettings;
use norn_model::config::table::{Form, Number};
use norn_model::config::{Config, ConfigError, Retention, table};
use norn_model::metadata::{check_address, check_zone};
use norn_storage::{LogConfig, NoSyncPolicy, SyncPolicy};
use norn_wire::QueueName;
use norn_wire::ids::ParseError;
use norn_wire::invitation::Invitation;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod check;
mod document;
mod http;
mod print;
#[cfg(test)]
mod tests;

pub use check::unknown_variables;
pub use document::document;

/// Checks the form of a setting's value, and says what is allowed. Does not check bounds that depend on other settings.
fn check_form(form: Form, value: &str) -> Result<(), String> {
    let Form::Number(number) = form else { return Ok(()) };
    let Number { low, high, or_zero, .. } = number;
    match value.parse::<u64>() {
        Ok(value) if number.own_bounds().allow(value) => Ok(()),
        _ if or_zero => Err(format!("0, or a whole number from {low} to {high}")),
        _ => Err(format!("a whole number from {low} to {high}")),
    }
}

/// Source of a value. Later variants take precedence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The built-in default.
    Default,
    /// The file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => formatter.write_str("default"),
            Source::File(file) => write!(formatter, "file {}", file.display()),
            Source::Environment(variable) => write!(formatter, "environment {variable}"),
            Source::Flag => formatter.write_str("flag"),
        }
    }
}

/// Why settings are refused. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file could not be read.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, String),
    /// No such setting.
    #[error("{origin}: there is no setting {name:?}{hint}")]
    Unknown {
        /// The given name.
        name: String,
        /// The source.
        origin: Source,
        /// A similar name.
        hint: String,
    },
    /// Not a number, or out of bounds.
    #[error("{name} ({origin}): {value:?} is not {wanted}")]
    Value {
        /// Setting.
        name: &'static str,
        /// The source.
        origin: Source,
        /// The given value.
        value: String,
        /// The allowed values.
        wanted: String,
    },
    /// A required setting is missing.
    #[error("{0} must be given: --{0}, NORN_{upper}, or {0:?} in the file", upper = .0.to_uppercase())]
    Missing(&'static str),
    /// Not a retention.
    #[error(
        "retain ({origin}): {why}; wanted is a duration and, after commas, QUEUE=DURATION, as in `7d, mail/out=1h`"
    )]
    Retention {
        /// The source.
        origin: Source,
        /// The fault.
        why: String,
    },
    /// Not a valid address.
    #[error("advertise ({origin}): {why}")]
    Advertise {
        /// The source.
        origin: Source,
        /// The fault.
        why: String,
    },
    /// Not a valid zone.
    #[error("zone ({origin}): {why}")]
    Zone {
        /// The source.
        origin: Source,
        /// The fault.
        why: String,
    },
    /// Not an invitation.
    #[error("join ({origin}): {error}; `norn cluster token` prints a token")]
    Join {
        /// The source.
        origin: Source,
        /// The fault.
        error: ParseError,
    },
    /// Not valid addresses of peers.
    #[error("peers ({origin}): {why}")]
    Peers {
        /// The source.
        origin: Source,
        /// The fault.
        why: String,
    },
    /// Values that contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No usable certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl SettingsError {
    /// Whether a flag is at fault, and no file and no variable.
    pub fn is_of_flag(&self) -> bool {
        match self {
            SettingsError::Unknown { origin, .. }
            | SettingsError::Value { origin, .. }
            | SettingsError::Retention { origin, .. }
            | SettingsError::Advertise { origin, .. }
            | SettingsError::Zone { origin, .. }
            | SettingsError::Join { origin, .. }
            | SettingsError::Peers { origin, .. } => *origin == Source::Flag,
            SettingsError::File(..) | SettingsError::Missing(_) | SettingsError::Config(_) => false,
            SettingsError::Certificate(_) => false,
        }
    }
}

/// Effective values with their sources.
#[derive(Debug, Clone)]
pub struct Effective {
    values: BTreeMap<&'static str, (String, Source)>,
}

impl Effective {
    /// Merges the sources. `environment` has all variables; those that do not start with `NORN_`, or are empty, are ignored.
    pub fn gather(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut effective = Effective { values: BTreeMap::new() };
        for setting in table::settings() {
            effective.values.insert(setting.name, (setting.default_text(), Source::Default));
        }
        if let Some(file) = file {
            effective.read_file(file)?;
        }
        for (variable, value) in environment {
            let name = variable.strip_prefix("NORN_").map(str::to_lowercase);
            // Other Norn programs have variables too, so an unknown one is no error here.
            if let Some(setting) = name.and_then(|name| table::find(&name)).filter(|_| !value.is_empty()) {
                effective.set(setting.name, value, Source::Environment(variable))?;
            }
        }
        for (name, value) in flags {
            effective.set(&name, value, Source::Flag)?;
        }
        Ok(effective)
    }

    fn read_file(&mut self, file: &Path) -> Result<(), SettingsError> {
        let failed = |error: String| SettingsError::File(file.to_owned(), error);
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| failed(error.to_string()))?;
        for (name, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Integer(number) => number.to_string(),
                other => return Err(failed(format!("{name}: a text or a whole number is wanted, not {other}"))),
            };
            self.set(&name, value, Source::File(file.to_owned()))?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: String, origin: Source) -> Result<(), SettingsError> {
        let Some(setting) = table::find(name) else {
            let close = table::settings().find(|setting| {
                setting.name.starts_with(name) || name.starts_with(setting.name) || setting.name.contains(name)
            });
            let hint = close.map_or_else(String::new, |close| format!("; is {:?} meant?", close.name));
            return Err(SettingsError::Unknown { name: name.to_owned(), origin, hint });
        };
        if let Err(wanted) = check_form(setting.form, &value) {
            return Err(SettingsError::Value { name: setting.name, origin, value, wanted });
        }
        self.values.insert(setting.name, (value, origin));
        Ok(())
    }

    /// Number of settings that are not the default, by where they come from.
    pub fn sources(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (_, source) in self.values.values().filter(|(_, source)| *source != Source::Default) {
            let kind = match source {
                Source::Environment(_) => "environment".to_owned(),
                other => other.to_string(),
            };
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// The value as text. Every name is in the [`table`].
    pub fn text(&self, name: &'static str) -> &str {
        &self.values.get(name).expect("the setting is defined").0
    }

    fn number(&self, name: &'static str) -> u64 {
        self.text(name).parse().expect("numbers were checked when they were set")
    }

    fn count(&self, name: &'static str) -> usize {
        usize::try_from(self.number(name)).unwrap_or(usize::MAX)
    }

    fn milliseconds(&self, name: &'static str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    /// Checks all values and finds the certificates.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        for name in ["data", "certs"] {
            if self.text(name).is_empty() {
                return Err(SettingsError::Missing(name));
            }
        }
        let (join, peers) = (self.invitation()?, self.peers()?);
        let data = PathBuf::from(self.text("data"));
        let asked = Some(self.text("name")).filter(|name| !name.is_empty());
        let (name, certificates) = find_node(Path::new(self.text("certs")), asked, &data)?;
        let advertise = self.advertise()?;
        Ok(Settings {
            data,
            name,
            certificates,
            certificates_interval: self.milliseconds("certs_check_ms"),
            listen: self.listen()?,
            advertise,
            zone: self.zone()?,
            join,
            peers,
            peers_are_flags: self.values["peers"].1 == Source::Flag,
            core: self.core()?,
            log: self.log()?,
            disk_bytes_max: self.disk_bytes_max()?,
            memory_bytes_max: Some(self.number("memory_bytes_max")).filter(|bytes_max| *bytes_max > 0),
            client_queue_max: self.count("client_queue_max"),
            event_queue_max: self.count("event_queue_max"),
            threads: ThreadSettings {
                backlog: BacklogBounds {
                    batches_max: self.count("log_batches_max"),
                    bytes_max: self.count("log_bytes_max"),
                },
                scrub_bytes_per_second: self.number("scrub_bytes_per_second"),
                archive: Some(self.text("archive")).filter(|file| !file.is_empty()).map(PathBuf::from),
                compact_at_start: self.number("compact_at_start") == 1,
            },
            links: LinkBounds {
                queue_max: self.count("peer_queue_max"),
                connect_timeout: self.milliseconds("connect_timeout_ms"),
            },
            listener: ListenerBounds {
                connections_max: self.count("connections_max"),
                frame_timeout: self.milliseconds("frame_timeout_ms"),
                frame_memory_bytes: self.count("frame_memory_bytes"),
            },
            http: self.http()?,
        })
    }

    fn invitation(&self) -> Result<Option<Invitation>, SettingsError> {
        let (value, origin) = &self.values["join"];
        if value.is_empty() {
            return Ok(None);
        }
        value.parse().map(Some).map_err(|error| SettingsError::Join { origin: origin.clone(), error })
    }

    /// The advertised address. Without this check an unusable address would only be noticed when the node is added to a cluster.
    fn advertise(&self) -> Result<Option<String>, SettingsError> {
        let (value, origin) = &self.values["advertise"];
        if value.is_empty() {
            return Ok(None);
        }
        check_address(value).map_err(|why| SettingsError::Advertise { origin: origin.clone(), why })?;
        Ok(Some(value.clone()))
    }

    /// The failure domain, checked here for the same reason.
    fn zone(&self) -> Result<String, SettingsError> {
        let (value, origin) = &self.values["zone"];
        check_zone(value).map_err(|why| SettingsError::Zone { origin: origin.clone(), why })?;
        Ok(value.clone())
    }

    fn peers(&self) -> Result<Vec<PeerAddress>, SettingsError> {
        let (value, origin) = &self.values["peers"];
        parse_peers(value).map_err(|why| SettingsError::Peers { origin: origin.clone(), why })
    }

    /// Settings of the log.
    pub fn log(&self) -> Result<LogConfig, SettingsError> {
        Ok(LogConfig::new(
            self.number("segment_bytes"),
            self.number("compact_bytes"),
            self.number("ahead_bytes"),
            self.number("reserve_bytes"),
            self.sync()?,
        ))
    }

    fn sync(&self) -> Result<SyncPolicy, SettingsError> {
        let (value, origin) = &self.values["sync"];
        let failed = |wanted: NoSyncPolicy| SettingsError::Value {
            name: "sync",
            origin: origin.clone(),
            value: value.clone(),
            wanted: wanted.to_string(),
        };
        value.parse().map_err(failed)
    }

    fn retention(&self) -> Result<Retention, SettingsError> {
        let (value, origin) = &self.values["retain"];
        retention(value).map_err(|why| SettingsError::Retention { origin: origin.clone(), why })
    }

    fn core(&self) -> Result<Config, SettingsError> {
        let config = Config {
            retention: Arc::new(self.retention()?),
            archives: !self.text("archive").is_empty(),
            ..Config::from_numbers(|name| self.number(name))
        };
        config.validate()?;
        Ok(config)
    }

    /// Threads of the async runtime.
    pub fn threads(&self) -> usize {
        match self.count("threads") {
            0 => (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1),
            threads => threads,
        }
    }
}

/// Parses a retention such as `7d, mail/out=1h`.
fn retention(text: &str) -> Result<Retention, String> {
    let duration_ms = |text: &str| {
        let duration = humantime::parse_duration(text.trim()).map_err(|error| format!("{text:?}: {error}"))?;
        u64::try_from(duration.as_millis()).map_err(|_| format!("{text:?} is too long"))
    };
    let mut parts = text.split(',');
    let default_ms = duration_ms(parts.next().unwrap_or_default())?;
    let mut retention = Retention { default_ms, queues: BTreeMap::new() };
    for part in parts {
        let (queue, length) = part.split_once('=').ok_or_else(|| format!("{:?} has no `=`", part.trim()))?;
        let queue = QueueName::new(queue.trim()).map_err(|error| error.to_string())?;
        if retention.queues.insert(queue, duration_ms(length)?).is_some() {
            return Err(format!("{:?} names a queue twice", part.trim()));
        }
    }
    Ok(retention)
}

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the log.
    pub data: PathBuf,
    /// Name in the certificate.
    pub name: String,
    /// Certificate, key and authority.
    pub certificates: CertificateFiles,
    /// Interval of checks whether they have changed.
    pub certificates_interval: Duration,
    /// Address to bind.
    pub listen: String,
    /// Address that others use, if not the bound one.
    pub advertise: Option<String>,
    /// Failure domain.
    pub zone: String,
    /// The cluster to join, if the node has none.
    pub join: Option<Invitation>,
    /// Addresses of peers that an operator gave.
    pub peers: Vec<PeerAddress>,
    /// Whether these were given by flags, and not in a file or the environment.
    pub peers_are_flags: bool,
    /// Settings of the protocol core.
    pub core: Config,
    /// Settings of the log.
    pub log: LogConfig,
    /// Limit on the bytes of the data directory.
    pub disk_bytes_max: Option<u64>,
    /// Memory limit of the process, if lower than those of its control group and the machine.
    pub memory_bytes_max: Option<u64>,
    /// Most requests read and not yet processed.
    pub client_queue_max: usize,
    /// Most messages of peers read and not yet processed.
    pub event_queue_max: usize,
    /// How the threads of the log work.
    pub threads: ThreadSettings,
    /// Links to peers.
    pub links: LinkBounds,
    /// Limits of incoming connections.
    pub listener: ListenerBounds,
    /// The HTTP listener, if there is one.
    pub http: Option<HttpSettings>,
}
