//! Options of a store.

use crate::start::{StoreError, default_of};
use norn_model::config::table::RESERVES_FREE;
use norn_model::config::{Config, Retention};
use norn_model::limits::{NAME_BYTES_MAX, PARTITIONS_MAX};
use norn_storage::{LogConfig, SyncPolicy};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a store keeps its tasks. All but the name and the partitions may differ from one opening of a directory to the next, and hold
/// for as long as it is open: a program that opens a directory with a shorter `retain`, or without its `archive`, forgets finished
/// tasks that another one would have kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// When the disk is synced: by default before anything is acknowledged. Claims are always synced first.
    pub sync: SyncPolicy,
    /// For how long finished tasks are kept. A week by default.
    pub retain: Duration,
    /// A file to which finished tasks are appended before they are forgotten, one JSON object a line.
    pub archive: Option<PathBuf>,
    /// Most bytes of the directory, 26 MiB at least. By default as many as the disk has.
    pub disk_bytes_max: Option<u64>,
    /// Most bytes of memory that the process should use; beyond it, new tasks are refused. By default those of the machine, or of the
    /// process's control group.
    pub memory_bytes_max: Option<u64>,
    /// Most tasks, waiting or finished; beyond it, new ones are refused.
    pub tasks_max: u64,
    /// Number of partitions of a new directory, a power of two up to 4,096; one by default. A cluster that is to grow from the directory
    /// needs more: each partition is led by one node.
    pub partitions: u32,
    /// Name of the node, for a directory that is to become a node of a cluster. A directory that has a name keeps it.
    pub name: String,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        let (core, retention) = (Config::default(), Retention::default());
        StoreOptions {
            sync: SyncPolicy::Always,
            retain: Duration::from_millis(retention.default_ms),
            archive: None,
            disk_bytes_max: None,
            memory_bytes_max: None,
            tasks_max: core.tasks_max,
            partitions: 1,
            name: "store".to_owned(),
        }
    }
}

impl StoreOptions {
    /// Refuses what cannot be met, before anything is made.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let wrong = |what: String| Err(StoreError::Options(what));
        if !self.partitions.is_power_of_two() || self.partitions > PARTITIONS_MAX {
            return wrong(format!("partitions: {} is no power of two up to {PARTITIONS_MAX}", self.partitions));
        }
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || self.name.chars().any(char::is_control) {
            return wrong(format!("name: {:?} is no name of 1 to {NAME_BYTES_MAX} bytes", self.name));
        }
        if self.sync.to_string().parse() != Ok(self.sync) {
            return wrong(format!("sync: `{}` is out of its bounds: {}", self.sync, norn_storage::NoSyncPolicy));
        }
        let least = RESERVES_FREE * default_of("reserve_bytes") + default_of("ahead_bytes") + (1 << 20);
        match self.disk_bytes_max {
            Some(bytes_max) if bytes_max < least => {
                wrong(format!("disk_bytes_max: {bytes_max} bytes are less than a new log takes, {least}"))
            }
            _ => self.core().map(|_| ()),
        }
    }

    /// Settings of the core.
    pub(crate) fn core(&self) -> Result<Config, StoreError> {
        let default_ms = u64::try_from(self.retain.as_millis()).unwrap_or(u64::MAX);
        let core = Config {
            tasks_max: self.tasks_max,
            archives: self.archive.is_some(),
            retention: Arc::new(Retention { default_ms, ..Retention::default() }),
            ..Config::default()
        };
        core.validate().map_err(|error| StoreError::Options(error.to_string()))?;
        Ok(core)
    }

    /// Settings of the log.
    pub(crate) fn log(&self) -> LogConfig {
        LogConfig { sync: self.sync, reserve_bytes: default_of("reserve_bytes"), ..LogConfig::DEFAULT }
    }
}
