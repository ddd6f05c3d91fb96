//! Settings of a node: defaults, a TOML file, `NORN_*` environment variables and flags, the later winning.
//!
//! [`DEFINITIONS`] is the only list of settings: names, limits, defaults, descriptions.

use crate::config::{Config, ConfigError, Retention};
use crate::protocol::root::{check_address, check_zone};
use crate::runtime::certificates::{CertificateError, CertificateFiles, find_node};
use crate::runtime::hints::{PeerAddress, parse_peers};
use crate::runtime::listener::ListenerBounds;
use crate::runtime::peers::LinkBounds;
use crate::runtime::store::StoreBounds;
use crate::storage::{LogConfig, NoSyncPolicy, SyncPolicy};
use norn_wire::ids::ParseError;
use norn_wire::invitation::Invitation;
use norn_wire::{QueueName, Versions};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

mod check;
mod print;
#[cfg(test)]
mod tests;

pub use check::unknown_variables;

/// What a setting's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// A whole number within limits, both included.
    Number(u64, u64),
    /// The same, or 0, which is below them.
    ZeroOr(u64, u64),
}

impl Form {
    /// Of a number: the limits, but for a 0 below them.
    pub fn limits(self) -> Option<[u64; 2]> {
        match self {
            Form::Text => None,
            Form::Number(low, high) | Form::ZeroOr(low, high) => Some([low, high]),
        }
    }

    /// Refuses what it does not allow, and says what is wanted.
    fn check(self, value: &str) -> Result<(), String> {
        let Some([low, high]) = self.limits() else { return Ok(()) };
        let number = value.parse::<u64>();
        if number.as_ref().is_ok_and(|number| (low..=high).contains(number)) {
            return Ok(());
        }
        match self {
            Form::ZeroOr(..) if number == Ok(0) => Ok(()),
            Form::ZeroOr(..) => Err(format!("0, or a whole number from {low} to {high}")),
            Form::Text | Form::Number(..) => Err(format!("a whole number from {low} to {high}")),
        }
    }
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Name in the file; the environment variable is `NORN_` and the name in capitals.
    pub name: &'static str,
    /// What is allowed.
    pub form: Form,
    /// Default as text. Empty: none, or found out at start as the description says.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
}

const fn text(name: &'static str, default: &'static str, about: &'static str) -> Definition {
    Definition { name, form: Form::Text, default, about }
}

const fn number(name: &'static str, low: u64, high: u64, default: &'static str, about: &'static str) -> Definition {
    Definition { name, form: Form::Number(low, high), default, about }
}

/// With less memory a node would refuse every task.
const MEMORY_BYTES_LEAST: u64 = 64 << 20;

/// Every setting of a node.
pub const DEFINITIONS: &[Definition] = &[
    text("data", "", "directory of the write-ahead log; drawn an identity when empty"),
    text("certs", "", "directory with ca.crt, node-NAME.crt and node-NAME.key"),
    text("name", "", "which node-NAME.crt; by default the only one, else the one named as the data directory"),
    text("listen", "127.0.0.1:7400", "address and UDP port to bind"),
    text(
        "advertise",
        "",
        "HOST:PORT where others reach this node; by default the address bound; wanted when a member moves",
    ),
    text("zone", "", "failure domain: replicas are spread over zones"),
    text(
        "join",
        "",
        "a token of `norn cluster token`, or members: a node without a cluster becomes one of its members",
    ),
    text(
        "peers",
        "",
        "NODE=HOST:PORT,...: where peers are, before what the cluster knows; for a start after all nodes have moved",
    ),
    text("sync", "always", "when facts about tasks are made durable: `always`, `every N`, `interval MS` or `os`"),
    text("log", "info", "what is logged: a level, or directives such as `info,norn_node=debug`"),
    text("log_format", "text", "`text` or `json`"),
    number("threads", 0, 1_024, "0", "threads for the network and the node; 0 is half the cores"),
    number("heartbeat_ms", 5, 5_000, "50", "between heartbeats of a pair of nodes"),
    number(
        "election_timeout_ms",
        15,
        60_000,
        "300",
        "a leader unheard for up to twice this is replaced; 3 heartbeats at least",
    ),
    number("resend_ms", 10, 60_000, "200", "before an unanswered replication message is repeated"),
    number("request_timeout_ms", 100, 300_000, "2000", "after which a request is answered `unknown` or `unavailable`"),
    number("exchange_interval_ms", 50, 3_600_000, "1000", "between rounds of anti-entropy"),
    number("repair_bytes_per_second", 1 << 14, 1 << 36, "16777216", "most bytes sent to repair other replicas"),
    number("repair_items_per_second", 10, 1 << 30, "20000", "most tasks sent to repair other replicas"),
    number("sweep_interval_ms", 50, 60_000, "2000", "between looks of parked claims at all leaders"),
    number("clock_epsilon_ms", 1, 600_000, "1000", "bound on the difference of wall clocks"),
    number("clock_drift_ppm", 1, 100_000, "1000", "bound on the rate error of monotonic clocks"),
    number("clock_fencing", 0, 1, "1", "1: a node whose wall clock is far from a majority's does not lead; 0: it does"),
    number("clock_calm_ms", 0, 3_600_000, "30000", "a clock that was wrong must be right for so long to lead again"),
    number(
        "transfer_after_ms",
        100,
        3_600_000,
        "5000",
        "a preferred leader must be up so long to be handed its partitions",
    ),
    number(
        "payload_memory_bytes",
        0,
        1 << 50,
        "268435456",
        "payloads, headers, and results and logs of ended tasks in memory; others are read back from the log",
    ),
    number("tasks_max", 1, 1 << 40, "10000000", "tasks at this node, waiting or ended, at which it refuses new ones"),
    text("retain", "7d", "how long finished tasks are kept, and where it differs: `7d, mail/out=1h, audit=90d`"),
    text(
        "archive",
        "",
        "file to which finished tasks are appended as JSON lines before they are given up; by default none",
    ),
    number(
        "forget_after_ms",
        1_000,
        1 << 50,
        "86400000",
        "age of an id at which a finished task may be forgotten; no write may be on its way for longer",
    ),
    number(
        "hints_bytes_max",
        0,
        1 << 40,
        "67108864",
        "kept for nodes that are away; with `--acks one`, a node without a replica takes tasks up to this; 0: none",
    ),
    number(
        "hint_ttl_ms",
        1_000,
        1 << 50,
        "86400000",
        "for how long it is noted what a node that is away lacks; all else is kept until others have it",
    ),
    number("revert_after_ms", 500, 1 << 40, "30000", "a move of a partition that stands still for so long is given up"),
    number(
        "exile_ttl_ms",
        1_000,
        1 << 50,
        "604800000",
        "a node that is away after its partition moved is not waited for any longer than this",
    ),
    number("segment_bytes", 1 << 20, 2 << 30, "67108864", "bytes of records at which a segment of the log is full"),
    number(
        "compact_bytes",
        1 << 20,
        1 << 50,
        "268435456",
        "a snapshot takes the place of the log when this and the last snapshot are smaller",
    ),
    number(
        "ahead_bytes",
        0,
        64 << 20,
        "1048576",
        "zeroes written ahead of the log, which makes syncs cheaper; 0: none",
    ),
    number(
        "reserve_bytes",
        0,
        1 << 30,
        "8388608",
        "room kept on the disk for votes, claims and endings; with less besides, new tasks are refused; 0: none",
    ),
    number(
        "scrub_bytes_per_second",
        0,
        1 << 40,
        "4194304",
        "the log is read again at this speed to find damage while it can be made good; 0: not at all",
    ),
    Definition {
        name: "disk_bytes_max",
        form: Form::ZeroOr(1, 1 << 50),
        default: "0",
        about: "the data directory may have so many bytes; 0: as many as the disk",
    },
    Definition {
        name: "memory_bytes_max",
        form: Form::ZeroOr(MEMORY_BYTES_LEAST, 1 << 50),
        default: "0",
        about: "the process may have so many bytes of memory; 0: as many as its control group and the machine",
    },
    number("log_batches_max", 16, 1 << 20, "4096", "batches waiting for the disk at which clients must wait"),
    number("log_bytes_max", 1 << 20, 16 << 30, "134217728", "bytes waiting for the disk at which clients must wait"),
    number("client_queue_max", 16, 1 << 20, "1024", "requests read and not yet taken by the node"),
    number("event_queue_max", 64, 1 << 20, "4096", "messages of peers read and not yet taken by the node"),
    number("peer_queue_max", 64, 1 << 20, "8192", "messages waiting for one stream to a peer; more are dropped"),
    number("connect_timeout_ms", 100, 60_000, "1000", "how long an attempt to connect to a peer may take"),
    number(
        "certs_check_ms",
        100,
        3_600_000,
        "10000",
        "between looks at whether the certificate files have changed; SIGHUP has them looked at at once",
    ),
    number("connections_max", 4, 65_536, "1024", "connections of clients"),
    number("frame_timeout_ms", 100, 600_000, "30000", "from the first to the last byte of a frame"),
    number(
        "protocol_version_max",
        Versions::SPOKEN.oldest as u64,
        Versions::SPOKEN.newest as u64,
        "3",
        "newest protocol version offered",
    ),
    number("frame_memory_bytes", 128 << 20, 64 << 30, "268435456", "memory for large frames while they are read"),
];

/// Where a value came from. The later wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody said anything.
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

/// Why settings cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file could not be read.
    #[error("{file}: {1}", file = .0.display())]
    File(PathBuf, String),
    /// No such setting.
    #[error("{origin}: there is no setting {name:?}{hint}")]
    Unknown {
        /// What was said.
        name: String,
        /// Where.
        origin: Source,
        /// What may have been meant.
        hint: String,
    },
    /// Not a number, or out of its limits.
    #[error("{name} ({origin}): {value:?} is not {wanted}")]
    Value {
        /// Setting.
        name: &'static str,
        /// Where it was said.
        origin: Source,
        /// What was said.
        value: String,
        /// What is allowed.
        wanted: String,
    },
    /// Must be given.
    #[error("{0} must be given: --{0}, NORN_{upper}, or {0:?} in the file", upper = .0.to_uppercase())]
    Missing(&'static str),
    /// Not a retention.
    #[error(
        "retain ({origin}): {why}; wanted is a duration and, after commas, QUEUE=DURATION, as in `7d, mail/out=1h`"
    )]
    Retention {
        /// Where it was said.
        origin: Source,
        /// What is wrong.
        why: String,
    },
    /// No address of a member.
    #[error("advertise ({origin}): {why}")]
    Advertise {
        /// Where it was said.
        origin: Source,
        /// What is wrong.
        why: String,
    },
    /// No zone of a member.
    #[error("zone ({origin}): {why}")]
    Zone {
        /// Where it was said.
        origin: Source,
        /// What is wrong.
        why: String,
    },
    /// Not an invitation.
    #[error("join ({origin}): {error}; `norn cluster token` prints a token")]
    Join {
        /// Where it was said.
        origin: Source,
        /// What is wrong.
        error: ParseError,
    },
    /// Not the addresses of peers.
    #[error("peers ({origin}): {why}")]
    Peers {
        /// Where it was said.
        origin: Source,
        /// What is wrong.
        why: String,
    },
    /// Values that do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Effective values with where each came from.
#[derive(Debug, Clone)]
pub struct Effective {
    values: BTreeMap<&'static str, (String, Source)>,
}

impl Effective {
    /// Puts the sources together. `environment` is all of it; what does not start with `NORN_`, or is empty, is passed over.
    pub fn gather(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        flags: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, SettingsError> {
        let mut effective = Effective { values: BTreeMap::new() };
        for definition in DEFINITIONS {
            effective.values.insert(definition.name, (definition.default.to_owned(), Source::Default));
        }
        if let Some(file) = file {
            effective.read_file(file)?;
        }
        for (variable, value) in environment {
            let name = variable.strip_prefix("NORN_").map(str::to_lowercase);
            // Other programs of the family have variables too, so an unknown one is no error here.
            if let Some(definition) = name.and_then(|name| find(&name)).filter(|_| !value.is_empty()) {
                effective.set(definition.name, value, Source::Environment(variable))?;
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
        let Some(definition) = find(name) else {
            let close = DEFINITIONS.iter().find(|definition| {
                definition.name.starts_with(name) || name.starts_with(definition.name) || definition.name.contains(name)
            });
            let hint = close.map_or_else(String::new, |close| format!("; is {:?} meant?", close.name));
            return Err(SettingsError::Unknown { name: name.to_owned(), origin, hint });
        };
        if let Err(wanted) = definition.form.check(&value) {
            return Err(SettingsError::Value { name: definition.name, origin, value, wanted });
        }
        self.values.insert(definition.name, (value, origin));
        Ok(())
    }

    /// A text. Every name comes from [`DEFINITIONS`].
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

    /// Checks everything and finds the certificates.
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
            archive: Some(self.text("archive")).filter(|file| !file.is_empty()).map(PathBuf::from),
            log: LogConfig {
                segment_bytes: self.number("segment_bytes"),
                compact_bytes: self.number("compact_bytes"),
                ahead_bytes: self.number("ahead_bytes"),
                reserve_bytes: self.number("reserve_bytes"),
                sync: self.sync()?,
                #[cfg(feature = "mutants")]
                mutant: None,
            },
            disk_bytes_max: self.disk_bytes_max()?,
            memory_bytes_max: Some(self.number("memory_bytes_max")).filter(|bytes_max| *bytes_max > 0),
            scrub_bytes_per_second: self.number("scrub_bytes_per_second"),
            client_queue_max: self.count("client_queue_max"),
            event_queue_max: self.count("event_queue_max"),
            store: StoreBounds { batches_max: self.count("log_batches_max"), bytes_max: self.count("log_bytes_max") },
            links: LinkBounds {
                queue_max: self.count("peer_queue_max"),
                connect_timeout: self.milliseconds("connect_timeout_ms"),
            },
            listener: ListenerBounds {
                connections_max: self.count("connections_max"),
                frame_timeout: self.milliseconds("frame_timeout_ms"),
                frame_memory_bytes: self.count("frame_memory_bytes"),
            },
        })
    }

    fn invitation(&self) -> Result<Option<Invitation>, SettingsError> {
        let (value, origin) = &self.values["join"];
        if value.is_empty() {
            return Ok(None);
        }
        value.parse().map(Some).map_err(|error| SettingsError::Join { origin: origin.clone(), error })
    }

    /// Where others reach the node. Without this check a useless address would come to light when the node is added to a cluster.
    fn advertise(&self) -> Result<Option<String>, SettingsError> {
        let (value, origin) = &self.values["advertise"];
        if value.is_empty() {
            return Ok(None);
        }
        check_address(value).map_err(|why| SettingsError::Advertise { origin: origin.clone(), why })?;
        Ok(Some(value.clone()))
    }

    /// The failure domain, which is looked at here for the same reason.
    fn zone(&self) -> Result<String, SettingsError> {
        let (value, origin) = &self.values["zone"];
        check_zone(value).map_err(|why| SettingsError::Zone { origin: origin.clone(), why })?;
        Ok(value.clone())
    }

    fn peers(&self) -> Result<Vec<PeerAddress>, SettingsError> {
        let (value, origin) = &self.values["peers"];
        parse_peers(value).map_err(|why| SettingsError::Peers { origin: origin.clone(), why })
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
            heartbeat_ms: self.number("heartbeat_ms"),
            election_timeout_ms: self.number("election_timeout_ms"),
            resend_ms: self.number("resend_ms"),
            request_timeout_ms: self.number("request_timeout_ms"),
            exchange_interval_ms: self.number("exchange_interval_ms"),
            repair_bytes_per_second: self.number("repair_bytes_per_second"),
            repair_items_per_second: self.number("repair_items_per_second"),
            sweep_interval_ms: self.number("sweep_interval_ms"),
            clock_epsilon_ms: self.number("clock_epsilon_ms"),
            clock_drift_ppm: self.number("clock_drift_ppm"),
            clock_fencing: self.number("clock_fencing") == 1,
            clock_calm_ms: self.number("clock_calm_ms"),
            transfer_after_ms: self.number("transfer_after_ms"),
            payload_memory_bytes: self.number("payload_memory_bytes"),
            tasks_max: self.number("tasks_max"),
            retention: Arc::new(self.retention()?),
            forget_after_ms: self.number("forget_after_ms"),
            hints_bytes_max: self.number("hints_bytes_max"),
            hint_ttl_ms: self.number("hint_ttl_ms"),
            revert_after_ms: self.number("revert_after_ms"),
            exile_ttl_ms: self.number("exile_ttl_ms"),
            archives: !self.text("archive").is_empty(),
            protocol_version_max: u8::try_from(self.number("protocol_version_max")).expect("it was checked"),
            #[cfg(feature = "mutants")]
            mutant: None,
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

/// Reads `7d, mail/out=1h`.
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

fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the log.
    pub data: PathBuf,
    /// Name in the certificate.
    pub name: String,
    /// Certificate, key and authority.
    pub certificates: CertificateFiles,
    /// Between looks at whether they have changed.
    pub certificates_interval: Duration,
    /// Address to bind.
    pub listen: String,
    /// Address that others use, if not the one bound.
    pub advertise: Option<String>,
    /// Failure domain.
    pub zone: String,
    /// The cluster to join, if the node has none.
    pub join: Option<Invitation>,
    /// Where peers are by an operator's word.
    pub peers: Vec<PeerAddress>,
    /// It was said with flags, and not in a file or the environment.
    pub peers_are_flags: bool,
    /// Settings of the protocol core.
    pub core: Config,
    /// File to which finished tasks are appended.
    pub archive: Option<PathBuf>,
    /// Settings of the log.
    pub log: LogConfig,
    /// Bound on the bytes of the data directory.
    pub disk_bytes_max: Option<u64>,
    /// Memory that the process may have, if less than its control group and the machine allow.
    pub memory_bytes_max: Option<u64>,
    /// Speed at which the log is read again; 0 is not at all.
    pub scrub_bytes_per_second: u64,
    /// Requests read and not yet taken.
    pub client_queue_max: usize,
    /// Messages of peers read and not yet taken.
    pub event_queue_max: usize,
    /// What may wait for the log.
    pub store: StoreBounds,
    /// Links to peers.
    pub links: LinkBounds,
    /// What comes in.
    pub listener: ListenerBounds,
}
