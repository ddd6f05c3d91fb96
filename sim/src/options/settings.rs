//! What the options of a run mean for its nodes.

use super::Options;
use norn_node::config::{Config, Retention};
use std::sync::Arc;

impl Options {
    /// Time in which a finished task is forgotten where nothing is in the way.
    pub fn forgets_in_ms(&self) -> u64 {
        self.retain_ms + self.forget_after_ms
    }

    /// Settings of the nodes.
    pub fn config(&self) -> Config {
        Config {
            heartbeat_ms: self.heartbeat_ms,
            election_timeout_ms: self.election_timeout_ms,
            exchange_interval_ms: self.exchange_interval_ms,
            repair_bytes_per_second: self.repair_bytes_per_second,
            repair_items_per_second: self.repair_items_per_second,
            clock_fencing: self.clock_fencing,
            clock_calm_ms: self.clock_calm_ms,
            payload_memory_bytes: self.payload_memory_bytes,
            retention: Arc::new(Retention { default_ms: self.retain_ms, ..Retention::default() }),
            forget_after_ms: self.forget_after_ms,
            hints_bytes_max: self.hints_bytes_max,
            hint_ttl_ms: self.hint_ttl_ms,
            revert_after_ms: self.revert_after_ms,
            exile_ttl_ms: self.exile_ttl_ms,
            archives: self.archives,
            mutant: self.mutant,
            ..Config::default()
        }
    }
}
