//! Every setting of a node in one table: name, unit, bounds, default and meaning, by section.
//!
//! The defaults and bounds of [`Config`](super::Config), the check of what an operator sets, `norn start --print-config` and
//! `node/docs/settings.md` come from it.

use crate::limits::{LEASE_MS_MAX, QUEUES_TALLIED_MAX};
use norn_wire::Versions;

/// Default of `segment_bytes`.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Default of `compact_bytes`.
pub const COMPACT_BYTES: u64 = 256 << 20;
/// Default of `ahead_bytes`.
pub const AHEAD_BYTES: u64 = 1 << 20;
/// Multiples of `reserve_bytes` that must be free for the reserve to be written, at the start and again later.
pub const RESERVES_FREE: u64 = 3;
/// Least memory of a process: with less, a node would refuse every task.
const MEMORY_BYTES_LEAST: u64 = 64 << 20;
/// Size of a new log, besides preallocated space.
const LOG_BYTES_LEAST: u64 = 1 << 20;

/// Settings about one subject.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Heading.
    pub title: &'static str,
    /// Settings in the order of display.
    pub settings: &'static [Setting],
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name in the file; the environment variable is `NORN_` and the name in capitals.
    pub name: &'static str,
    /// Values that it takes.
    pub form: Form,
    /// Meaning, in at most two sentences.
    pub about: &'static str,
}

/// Values that a setting takes.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// A text, which the setting's own reader checks.
    Text {
        /// Empty: none, or found at the start as the meaning says.
        default: &'static str,
    },
    /// A whole number.
    Number(Number),
}

/// Bounds and default of a number.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// Unit; empty for a switch or a version.
    pub unit: &'static str,
    /// Least value, whatever the other settings are.
    pub low: u64,
    /// Greatest value.
    pub high: u64,
    /// 0 is allowed, too, though it is below the least value.
    pub or_zero: bool,
    /// Lower bound that other settings give.
    pub floor: Option<Floor>,
    /// Default.
    pub default: u64,
}

/// Lower bound that other settings give: a sum of multiples of them and a constant.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// Factor and name of a setting.
    pub terms: &'static [(u64, &'static str)],
    /// Constant.
    pub plus: u64,
}

/// Bounds of a number, given the other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Least value.
    pub low: u64,
    /// Greatest value.
    pub high: u64,
    /// 0 is allowed, too.
    pub or_zero: bool,
}

impl Bounds {
    /// Whether a value is allowed.
    pub fn allow(self, value: u64) -> bool {
        (self.low..=self.high).contains(&value) || (self.or_zero && value == 0)
    }
}

impl Floor {
    fn value(self, value_of: impl Fn(&'static str) -> u64) -> u64 {
        let terms = self.terms.iter().map(|(factor, name)| factor.saturating_mul(value_of(name)));
        terms.fold(self.plus, u64::saturating_add)
    }
}

impl Number {
    /// Bounds that do not depend on other settings.
    pub fn own_bounds(self) -> Bounds {
        Bounds { low: self.low, high: self.high, or_zero: self.or_zero }
    }

    /// Bounds, given the other settings.
    pub fn bounds(self, value_of: impl Fn(&'static str) -> u64) -> Bounds {
        let floor = self.floor.map_or(0, |floor| floor.value(value_of));
        Bounds { low: self.low.max(floor), ..self.own_bounds() }
    }
}

impl Setting {
    /// The default as it would be written.
    pub fn default_text(&self) -> String {
        match self.form {
            Form::Text { default } => default.to_owned(),
            Form::Number(number) => number.default.to_string(),
        }
    }

    /// Bounds and default, if the setting is a number.
    pub fn number(&self) -> Option<Number> {
        match self.form {
            Form::Text { .. } => None,
            Form::Number(number) => Some(number),
        }
    }

    /// Allows 0 as well, below the least value.
    const fn or_zero(mut self) -> Setting {
        if let Form::Number(number) = &mut self.form {
            number.or_zero = true;
        }
        self
    }

    /// Adds a lower bound that depends on other settings.
    const fn at_least(mut self, terms: &'static [(u64, &'static str)], plus: u64) -> Setting {
        if let Form::Number(number) = &mut self.form {
            number.floor = Some(Floor { terms, plus });
        }
        self
    }
}

/// All settings, by section.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

/// The setting with this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.name == name)
}

/// The number with a name used in this program, which the table must have.
pub(super) fn number_of(name: &'static str) -> Number {
    find(name).and_then(Setting::number).expect("the table has each number that the program names")
}

const fn text(name: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { name, form: Form::Text { default }, about }
}

const fn number(
    name: &'static str,
    unit: &'static str,
    [low, high]: [u64; 2],
    default: u64,
    about: &'static str,
) -> Setting {
    let number = Number { unit, low, high, or_zero: false, floor: None, default };
    Setting { name, form: Form::Number(number), about }
}

const DAY_MS: u64 = 24 * 3_600_000;

/// The table.
pub const SECTIONS: &[Section] = &[
    Section { title: "Node and cluster", settings: NODE },
    Section { title: "Log output", settings: OUTPUT },
    Section { title: "Leaders and requests", settings: LEADERS },
    Section { title: "Clocks", settings: CLOCKS },
    Section { title: "Replication and repair", settings: REPAIR },
    Section { title: "Retention", settings: RETENTION },
    Section { title: "Write-ahead log and disk", settings: DISK },
    Section { title: "Memory", settings: MEMORY },
    Section { title: "Network and queues", settings: NETWORK },
    Section { title: "HTTP", settings: HTTP },
];

const NODE: &[Setting] = &[
    text("data", "", "Data directory: the write-ahead log. An empty directory draws the node's identity."),
    text("certs", "", "Directory with `ca.crt`, `node-NAME.crt` and `node-NAME.key`."),
    text("name", "", "Name in the certificate. By default the only one there is, else that of the data directory."),
    text("listen", "127.0.0.1:7400", "Address and UDP port to bind."),
    text(
        "advertise",
        "",
        "HOST:PORT where other nodes reach this one; by default the address bound. A member that moves needs it.",
    ),
    text("zone", "", "Failure domain. The replicas of a partition are spread over zones."),
    text("join", "", "Token of `norn cluster token`, or addresses of members. A node without a cluster joins theirs."),
    text(
        "peers",
        "",
        "NODE=HOST:PORT,...: addresses of peers, tried before those of the member list. For a start after all nodes have moved.",
    ),
    number("threads", "threads", [0, 1_024], 0, "Threads of the network and the node. 0: half the cores."),
    number(
        "protocol_version_max",
        "",
        [Versions::SPOKEN.oldest as u64, Versions::SPOKEN.newest as u64],
        Versions::SPOKEN.newest as u64,
        "Newest protocol version that the node offers to peers and clients.",
    ),
];

const OUTPUT: &[Setting] = &[
    text("log", "info", "Filter of the node's messages: a level, or directives such as `info,norn=debug`."),
    text("log_format", "text", "Format of the node's messages: `text` or `json`."),
];

const LEADERS: &[Setting] = &[
    number("heartbeat_ms", "ms", [5, 5_000], 75, "Time between two heartbeats of a pair of nodes."),
    number(
        "election_timeout_ms",
        "ms",
        [15, 60_000],
        300,
        "Silence after which a leader counts as lost; another one follows within about twice this. \
         Raise it and `heartbeat_ms` on slow networks.",
    )
    .at_least(&[(3, "heartbeat_ms")], 0),
    number("resend_ms", "ms", [10, 60_000], 200, "Time before an unanswered replication message is sent again."),
    number(
        "request_timeout_ms",
        "ms",
        [100, 300_000],
        2_000,
        "Time after which a node answers `unknown` or `unavailable` to a request that is not finished.",
    ),
    number(
        "sweep_interval_ms",
        "ms",
        [50, 60_000],
        2_000,
        "Time between two looks of parked claims at all leaders, and between two questions of leaders about dependencies.",
    ),
    number(
        "transfer_after_ms",
        "ms",
        [100, LEASE_MS_MAX],
        5_000,
        "Time that a preferred leader must be up before it is handed its partitions.",
    ),
];

const CLOCKS: &[Setting] = &[
    number(
        "clock_epsilon_ms",
        "ms",
        [1, 600_000],
        1_000,
        "Bound on the difference of wall clocks that leases rely on.",
    ),
    number(
        "clock_drift_ppm",
        "ppm",
        [1, 100_000],
        1_000,
        "Bound on the rate error of monotonic clocks that leases rely on.",
    ),
    number(
        "clock_fencing",
        "",
        [0, 1],
        1,
        "1: a node whose wall clock is far from a majority's does not lead. 0: it does.",
    ),
    number(
        "clock_calm_ms",
        "ms",
        [0, 3_600_000],
        30_000,
        "Time that a clock which was wrong must be right before its node leads again.",
    ),
];

const REPAIR: &[Setting] = &[
    number("exchange_interval_ms", "ms", [50, 3_600_000], 1_000, "Time between two rounds of anti-entropy."),
    number(
        "repair_bytes_per_second",
        "B/s",
        [1 << 14, 1 << 36],
        16 << 20,
        "Most bytes that a node sends to repair other replicas. It sends less while clients write.",
    ),
    number(
        "repair_items_per_second",
        "tasks/s",
        [10, 1 << 30],
        20_000,
        "Most tasks that a node sends to repair other replicas. Comparing sixteen tasks counts as sending one.",
    ),
    number(
        "hints_bytes_max",
        "B",
        [0, 1 << 40],
        64 << 20,
        "Size of the hints for members that are away. With `--acks one` a node without a replica takes writes up to this; 0: none.",
    ),
    number(
        "hint_ttl_ms",
        "ms",
        [1_000, 1 << 50],
        DAY_MS,
        "Time for which a node notes what an absent member lacks. A hint that no replica has yet is kept longer.",
    ),
    number(
        "revert_after_ms",
        "ms",
        [500, 1 << 40],
        30_000,
        "A change of a partition's replicas that makes no progress for this long is given up.",
    ),
    number(
        "exile_ttl_ms",
        "ms",
        [1_000, 1 << 50],
        7 * DAY_MS,
        "Time for which a removed replica that is away is waited for. \
         A node that is still a member hands over what it alone has later, too.",
    ),
];

const RETENTION: &[Setting] = &[
    text(
        "retain",
        "7d",
        "How long ended tasks are kept, and the queues where that differs: `7d, mail/out=1h, audit=90d`.",
    ),
    text(
        "archive",
        "",
        "File to which ended tasks are appended as JSON lines, as `get --json` shows them, before they are given up. Empty: none.",
    ),
    number(
        "forget_after_ms",
        "ms",
        [1_000, 1 << 50],
        DAY_MS,
        "Age of an id at which the tombstone of its ended task may be collected. No write may be on its way for longer.",
    )
    .at_least(&[(2, "request_timeout_ms")], 0),
];

const DISK: &[Setting] = &[
    text("sync", "always", "When facts about tasks are made durable: `always`, `every N`, `interval MS` or `os`."),
    number(
        "segment_bytes",
        "B",
        [1 << 20, 2 << 30],
        SEGMENT_BYTES,
        "Size of the records in a full segment of the log.",
    ),
    number(
        "compact_bytes",
        "B",
        [1 << 20, 1 << 50],
        COMPACT_BYTES,
        "A snapshot replaces the log when this and the last snapshot are smaller than it. A small or full disk has it earlier.",
    ),
    number(
        "compact_at_start",
        "",
        [0, 1],
        1,
        "1: a node that starts on records of more than half of `compact_bytes`, and of half its last snapshot, compacts the log before it \
         serves. 0: it serves, and compacts then.",
    ),
    number(
        "ahead_bytes",
        "B",
        [0, 64 << 20],
        AHEAD_BYTES,
        "Zeroes written ahead of the log, which makes syncs cheaper. 0: none.",
    ),
    number(
        "reserve_bytes",
        "B",
        [0, 1 << 30],
        8 << 20,
        "Room kept on the disk for votes, claims and endings; with less room besides, new tasks are refused. 0: none.",
    ),
    number(
        "disk_bytes_max",
        "B",
        [1, 1 << 50],
        0,
        "Most bytes of the data directory; refused without a reserve. 0: as many as the disk has.",
    )
    .or_zero()
    .at_least(&[(RESERVES_FREE, "reserve_bytes"), (1, "ahead_bytes")], LOG_BYTES_LEAST),
    number(
        "scrub_bytes_per_second",
        "B/s",
        [0, 1 << 40],
        4 << 20,
        "Speed at which the log is read again, to find damage while other replicas can make it good. 0: not at all.",
    ),
];

const MEMORY: &[Setting] = &[
    number(
        "payload_memory_bytes",
        "B",
        [0, 1 << 50],
        256 << 20,
        "Payloads, headers, results and logs of tasks that stay in memory. The others are read back from the log.",
    ),
    number(
        "tasks_max",
        "tasks",
        [1, 1 << 40],
        10_000_000,
        "Tasks at a node, waiting or ended, at which it refuses new ones.",
    ),
    number(
        "memory_bytes_max",
        "B",
        [MEMORY_BYTES_LEAST, 1 << 50],
        0,
        "Most bytes of memory of the process. 0: as many as its control group and the machine have.",
    )
    .or_zero(),
    number("frame_memory_bytes", "B", [128 << 20, 64 << 30], 256 << 20, "Memory for large frames while they are read."),
];

const NETWORK: &[Setting] = &[
    number(
        "certs_check_ms",
        "ms",
        [100, 3_600_000],
        10_000,
        "Time between two looks at whether the certificate files have changed. SIGHUP has the node look at once.",
    ),
    number("connections_max", "connections", [4, 65_536], 1_024, "Connections of clients."),
    number("connect_timeout_ms", "ms", [100, 60_000], 1_000, "Time that one attempt to connect to a peer may take."),
    number("frame_timeout_ms", "ms", [100, 600_000], 30_000, "Time from the first to the last byte of a frame."),
    number("client_queue_max", "requests", [16, 1 << 20], 1_024, "Requests that are read and wait for the node."),
    number(
        "event_queue_max",
        "messages",
        [64, 1 << 20],
        4_096,
        "Messages of peers that are read and wait for the node.",
    ),
    number(
        "peer_queue_max",
        "messages",
        [64, 1 << 20],
        8_192,
        "Messages that wait for one stream to a peer. Further ones are dropped.",
    ),
    number(
        "log_batches_max",
        "batches",
        [16, 1 << 20],
        4_096,
        "Batches that wait for the disk, at which clients must wait.",
    ),
    number(
        "log_bytes_max",
        "B",
        [1 << 20, 16 << 30],
        128 << 20,
        "Bytes that wait for the disk, at which clients must wait.",
    ),
];

const HTTP: &[Setting] = &[
    text("http_listen", "", "Address and TCP port for HTTP. By default there is none; `norn dev` opens one."),
    text(
        "http_tls",
        "auto",
        "`always`: TLS everywhere. `auto`: plain text on a loopback address, or if there are proxies; otherwise TLS.",
    ),
    text(
        "http_proxies",
        "",
        "IP,...: proxies before this node, which may send plain text. Whatever they send is trusted.",
    ),
    text("http_origins", "", "ORIGIN,...: origins whose web pages may use this node, as `https://shop.example`."),
    number("http_connections_max", "connections", [4, 65_536], 1_024, "Connections for HTTP."),
    number("http_requests_max", "requests", [16, 1 << 20], 16_384, "HTTP requests under way, waiting ones included."),
    number("http_body_bytes_max", "B", [64 << 10, 1 << 30], 8 << 20, "Size of the body of a request."),
    number("http_memory_bytes", "B", [1 << 20, 64 << 30], 64 << 20, "Memory for the bodies of all requests.")
        .at_least(&[(1, "http_body_bytes_max")], 0),
    number(
        "http_head_timeout_ms",
        "ms",
        [100, 600_000],
        10_000,
        "Time for TLS and the first byte of a connection, and from the first byte of a request to the end of its headers.",
    ),
    number("http_body_timeout_ms", "ms", [100, 3_600_000], 30_000, "Time for the body of a request."),
    number(
        "http_idle_timeout_ms",
        "ms",
        [1_000, 3_600_000],
        75_000,
        "Time after which a connection without a request is closed, and one whose client takes no byte of an answer.",
    ),
    number(
        "metrics_queues",
        "queues",
        [0, QUEUES_TALLIED_MAX as u64],
        1_000,
        "Queues that `/metrics` shows by name, the first that the node saw. The rest are shown together, as `_other`.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the table is consistent, so that its readers need not check.
    #[test]
    fn names_are_unique_and_each_default_is_within_its_bounds() {
        let default_of = |name| number_of(name).default;
        for (index, setting) in settings().enumerate() {
            assert!(settings().take(index).all(|earlier| earlier.name != setting.name), "{}", setting.name);
            if let Some(number) = setting.number() {
                assert!(number.bounds(default_of).allow(number.default), "{}", setting.name);
                assert!(number.low <= number.high, "{}", setting.name);
            }
        }
    }

    #[test]
    fn meanings_are_at_most_two_sentences() {
        for Setting { name, about, .. } in settings() {
            let sentences = about.split(". ").count();
            assert!(about.ends_with('.') && sentences <= 2 && !about.contains('|'), "{name}: {about}");
        }
    }

    #[test]
    fn a_floor_adds_up_other_settings_and_zero_stays_allowed() {
        let bounds = number_of("disk_bytes_max").bounds(|name| number_of(name).default);
        assert_eq!(bounds, Bounds { low: (24 + 1 + 1) << 20, high: 1 << 50, or_zero: true });
        assert!(bounds.allow(0) && !bounds.allow(1) && bounds.allow(26 << 20) && !bounds.allow(1 << 51));
    }
}
