//! What a node tells of itself for monitoring.

use norn_client::times::TimesAt;

/// Metrics of what is counted by queue, in the order of [`QueueLine::counts`].
pub const COUNTS: [&str; 7] = [
    "norn_tasks_enqueued",
    "norn_tasks_completed",
    "norn_tasks_failed",
    "norn_tasks_dead",
    "norn_claims_granted",
    "norn_claims_expired",
    "norn_claims_given_back",
];
/// States of tasks, in the order of [`QueueLine::states`].
pub const STATES: [&str; 5] = ["ready", "claimed", "delayed", "blocked", "dead"];

/// A queue in the partitions that a node leads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueLine {
    /// Its name; empty for all queues together that have no line of their own.
    pub name: String,
    /// Place in the order in which the node first saw queues.
    pub place: u64,
    /// Tasks by state, in the order of [`STATES`].
    pub states: [u64; STATES.len()],
    /// For how long the claimable task waits that waits for longest, in milliseconds.
    pub oldest_ready_ms: Option<u64>,
    /// Counts since the node started, in the order of [`COUNTS`].
    pub counts: [u64; COUNTS.len()],
    /// From when a task could be claimed to its first claim.
    pub wait: TimesAt,
    /// From a claim to its completion or failure.
    pub run: TimesAt,
}

impl QueueLine {
    /// Adds another queue.
    pub fn merge(&mut self, other: &QueueLine) {
        self.states.iter_mut().zip(other.states).for_each(|(sum, count)| *sum += count);
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
        self.oldest_ready_ms = self.oldest_ready_ms.max(other.oldest_ready_ms);
        self.wait.merge(&other.wait);
        self.run.merge(&other.run);
    }
}

/// The clock of another member, as measured from this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeerClock {
    /// Name of the member.
    pub peer: String,
    /// How far it is ahead of the own clock, in microseconds.
    pub ahead_us: i64,
    /// Error of the measurement, in microseconds.
    pub error_us: u64,
}

/// What a node has to be asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measures {
    /// Queues, in any order, one without a name at most.
    pub queues: Vec<QueueLine>,
    /// Partitions that the node holds.
    pub partitions_held: u64,
    /// Partitions that it leads.
    pub partitions_led: u64,
    /// Partitions that it holds and for which it knows no leader.
    pub partitions_without_leader: u64,
    /// Members of its cluster.
    pub members: u64,
    /// Members that it takes for alive.
    pub members_alive: u64,
    /// Whether its clock is so wrong that it leads nothing.
    pub clock_fenced: bool,
    /// Clocks of other members.
    pub clocks: Vec<PeerClock>,
    /// Counters and gauges by the names that `norn status` shows.
    pub counters: Vec<(String, u64)>,
}

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateEnd {
    /// Name of its file, without the directory.
    pub file: String,
    /// When it expires, in seconds since the Unix epoch.
    pub at_s: i64,
}

/// What takes a look at files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Free bytes of the file system of the data directory.
    pub disk_free_bytes: Option<u64>,
    /// Certificates of the node. Of several in a file, the one that expires first.
    pub certificates: Vec<CertificateEnd>,
}
