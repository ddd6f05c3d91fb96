//! What follows from how much memory this node may still take: one that is near its limit takes no more tasks, before the system
//! ends its process.
//!
//! The host says what the system says. That may stay where it is when tasks have gone, as an allocator keeps what was freed for what
//! comes next. So a node that is short goes by its own books as well: once it has given up as much as there is too much of, it takes
//! tasks again, up to that, be it seen outside or not. Others may take memory as well, which it cannot give up: it is asked for no more
//! than half of what it holds, and takes tasks again once it has not been near the limit for a minute. Between two reports it adds what
//! it has taken since.
//!
//! Only what makes it grow for good is refused: by brokers (`admit_growth`), and by replicas that are asked to be among the first
//! to have it. Claims, endings, and what others have acknowledged are taken: the first make room, and without the last replicas would
//! stay apart.

use crate::protocol::host::MemoryReport;
use crate::protocol::{Node, Observation};

/// A node is short of memory above this percentage of the limit...
const SHORT_PERCENT: u64 = 90;
/// ...until it is below this one...
const AMPLE_PERCENT: u64 = 85;
/// ...or has been below the first one for this long.
const CALM_MS: u64 = 60_000;
/// What a task takes besides what is counted, about.
const TASK_BYTES: u64 = 256;

/// What a node knows of its own memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnMemory {
    report: MemoryReport,
    /// What the node held at that report.
    held_then_bytes: u64,
    /// When the host saw so much in use last that the node is short, on the monotonic clock.
    short_us: u64,
    /// Since the host saw so much in use that the node is short, and until it sees little: what the node held then.
    held_bytes: Option<u64>,
    /// As it was told last.
    told: bool,
}

impl Node {
    pub(in crate::protocol) fn on_memory(&mut self, report: MemoryReport) {
        let held_bytes = self.held_bytes();
        self.memory.report = report;
        self.memory.held_then_bytes = held_bytes;
        let is_short = report.above(SHORT_PERCENT).is_some();
        if is_short {
            self.memory.short_us = self.now.mono_us;
        }
        let is_calm = self.now.mono_us.saturating_sub(self.memory.short_us) >= CALM_MS * 1_000;
        self.memory.held_bytes = match self.memory.held_bytes {
            None => Some(held_bytes).filter(|_| is_short),
            Some(before) => report.above(AMPLE_PERCENT).filter(|_| !is_calm).map(|_| before),
        };
        let short = self.is_short_of_memory();
        if std::mem::replace(&mut self.memory.told, short) != short {
            let MemoryReport { used_bytes, limit_bytes } = report;
            self.outbox.observe(Observation::Memory { short, used_bytes, limit_bytes });
        }
    }

    /// Whether it has not given up yet as much as there is too much of.
    pub(in crate::protocol) fn is_short_of_memory(&self) -> bool {
        let OwnMemory { report, held_then_bytes, held_bytes, .. } = self.memory;
        let Some(before) = held_bytes else {
            let grown_bytes = self.held_bytes().saturating_sub(held_then_bytes);
            let used_bytes = report.used_bytes.saturating_add(grown_bytes);
            return MemoryReport { used_bytes, ..report }.above(SHORT_PERCENT).is_some();
        };
        let over = report.above(AMPLE_PERCENT).unwrap_or(0).min(before / 2);
        self.held_bytes().saturating_add(over) > before
    }

    /// What tasks take here, about.
    fn held_bytes(&self) -> u64 {
        self.bodies.memory_bytes() as u64 + self.bodies.tasks() as u64 * TASK_BYTES
    }

    /// Why nothing that grows is taken, if so.
    pub(in crate::protocol) fn memory_refusal(&self) -> Option<String> {
        let MemoryReport { used_bytes, limit_bytes } = self.memory.report;
        let (name, used, limit) = (&self.founding.name, used_bytes >> 20, limit_bytes >> 20);
        self.is_short_of_memory().then(|| {
            format!(
                "node {name} has {used} of {limit} MiB of memory in use: lower `payload_memory_bytes` or `retain`, give it more \
                 memory, or ask another node"
            )
        })
    }
}
