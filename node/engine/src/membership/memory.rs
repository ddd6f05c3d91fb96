//! Consequences of how much memory this node may still take: near its limit it takes no more tasks, before the system ends its
//! process.
//!
//! The host reports the system's figures. These may stay high when tasks have gone, because an allocator keeps freed memory for
//! later use. So a node that is short also goes by its own books: once it has given up as much as the excess, it takes tasks
//! again, up to that amount, whether the system's figures show it or not. Other processes may take memory as well, which the node
//! cannot give up; so it gives up no more than half of what it holds, and takes tasks again once it has not been near the limit
//! for a minute. Between two reports it adds what it has taken since.
//!
//! It refuses only requests that make it grow for good: as a broker (`admit_growth`), and as a replica that is asked to be among
//! the first to store something. It takes claims, endings, and what other replicas have acknowledged: the first two make room,
//! and without the last replicas would stay apart.

use crate::Node;
use crate::effect::Observation;
use norn_model::host::MemoryReport;

/// A node is short of memory above this percentage of the limit...
const SHORT_PERCENT: u64 = 90;
/// ...until it is below this one...
const AMPLE_PERCENT: u64 = 85;
/// ...or has been below the first one for this long.
const CALM_MS: u64 = 60_000;
/// Memory that a task takes beside the counted bytes, about.
const TASK_BYTES: u64 = 256;

/// State of this node's own memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnMemory {
    report: MemoryReport,
    /// Bytes that the node held at that report.
    held_then_bytes: u64,
    /// When the host last reported so much in use that the node is short, on the monotonic clock.
    short_us: u64,
    /// Bytes that the node held when the host first reported it short; set until the host reports little in use.
    held_bytes: Option<u64>,
    /// State last sent to observers.
    reported_short: bool,
}

impl Node {
    pub(crate) fn on_memory(&mut self, report: MemoryReport) {
        let held_bytes = self.held_bytes();
        self.membership.memory.report = report;
        self.membership.memory.held_then_bytes = held_bytes;
        let is_short = report.above(SHORT_PERCENT).is_some();
        if is_short {
            self.membership.memory.short_us = self.now.mono_us;
        }
        let is_quarantine_over = self.now.mono_us.saturating_sub(self.membership.memory.short_us) >= CALM_MS * 1_000;
        self.membership.memory.held_bytes = match self.membership.memory.held_bytes {
            None => Some(held_bytes).filter(|_| is_short),
            Some(before) => report.above(AMPLE_PERCENT).filter(|_| !is_quarantine_over).map(|_| before),
        };
        let short = self.is_short_of_memory();
        if std::mem::replace(&mut self.membership.memory.reported_short, short) != short {
            let MemoryReport { used_bytes, limit_bytes } = report;
            self.outbox.observe(Observation::Memory { short, used_bytes, limit_bytes });
        }
    }

    /// Whether the node is short of memory and has not yet given up as much as the excess.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let OwnMemory { report, held_then_bytes, held_bytes, .. } = self.membership.memory;
        let Some(before) = held_bytes else {
            let grown_bytes = self.held_bytes().saturating_sub(held_then_bytes);
            let used_bytes = report.used_bytes.saturating_add(grown_bytes);
            return MemoryReport { used_bytes, ..report }.above(SHORT_PERCENT).is_some();
        };
        let over = report.above(AMPLE_PERCENT).unwrap_or(0).min(before / 2);
        self.held_bytes().saturating_add(over) > before
    }

    /// Bytes that tasks take here, about.
    fn held_bytes(&self) -> u64 {
        self.payloads.memory_bytes() as u64 + self.payloads.tasks() as u64 * TASK_BYTES
    }

    /// Returns why growing requests are refused, if they are.
    pub(crate) fn memory_refusal(&self) -> Option<String> {
        let MemoryReport { used_bytes, limit_bytes } = self.membership.memory.report;
        let (name, used, limit) = (&self.founding.name, used_bytes >> 20, limit_bytes >> 20);
        self.is_short_of_memory().then(|| {
            format!(
                "node {name} has {used} of {limit} MiB of memory in use: lower `payload_memory_bytes` or `retain`, give it more \
                 memory, or ask another node"
            )
        })
    }
}
