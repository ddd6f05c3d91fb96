//! The threads of a node that starts: of its log, of reads from it, and of the archive.

use crate::archive::Archive;
use crate::disk::FileDisk;
use crate::driver::{Inputs, Internal};
use crate::emergency::EmergencyStop;
use crate::loader::Loader;
use crate::log_thread::{BacklogBounds, Journal, LogThread};
use crate::metrics::Metrics;
use crate::replay::{OpenError, compact_at_start, mend};
use norn_engine::Node;
use norn_model::host::Room;
use norn_model::record::Record;
use norn_model::snapshot::Part;
use norn_model::task::Place;
use norn_storage::scrub::{ScrubPace, Scrubbed};
use norn_storage::{Log, LogError, Replayed, Saved, Upkeep};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Pause between two scrubs of the log.
const SCRUB_REST_US: u64 = 600_000_000;

/// How the threads work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSettings {
    /// Limits of batches that wait for the log.
    pub backlog: BacklogBounds,
    /// Speed at which the log is scrubbed; 0 turns scrubbing off.
    pub scrub_bytes_per_second: u64,
    /// File to which finished tasks are appended, if there is one.
    pub archive: Option<PathBuf>,
    /// Whether a long log is compacted before anything is served.
    pub compact_at_start: bool,
}

/// Why the threads cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// The log cannot be mended, or its disk is full.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The archive cannot be written.
    #[error("archive {file}: {1}; finished tasks are to be written there", file = .0.display())]
    Archive(PathBuf, io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// The running threads.
#[derive(Debug)]
pub struct Threads {
    /// The node, not started.
    pub node: Node,
    /// Writes the log.
    pub log: LogThread,
    /// Reads the log.
    pub loader: Loader,
    /// Writes the archive, if there is one.
    pub archive: Option<Archive>,
    /// Ordinal up to which the log is durable.
    pub durable: u64,
}

impl Threads {
    /// Mends a log that was read, compacts it if that is due, and starts its threads, which report to the driver.
    pub async fn start(
        data: &Path,
        (node, log, replayed): (Node, Log<FileDisk>, Replayed),
        settings: ThreadSettings,
        inputs: &Inputs,
        metrics: &Arc<Metrics>,
        emergency: &EmergencyStop,
    ) -> Result<Threads, ThreadsError> {
        let archive = archive(settings.archive, inputs, emergency)?;
        let log = mend(data, log, replayed).await?;
        let (node, log) = match settings.compact_at_start {
            true => compact_at_start(data, node, log, replayed).await?,
            false => (node, log),
        };
        let durable = log.synced();
        let told = inputs.internal.clone();
        let report = move |report| {
            // If the driver is gone the node is about to end, and the report is dropped.
            let _ = told.blocking_send(Internal::Log(report));
        };
        let told = inputs.internal.clone();
        let loaded = move |loaded| {
            let _ = told.blocking_send(Internal::Loaded(loaded));
        };
        let loader = Loader::start(log.disk().reader(), emergency.clone(), loaded)?;
        let pace = ScrubPace::new(settings.scrub_bytes_per_second, SCRUB_REST_US);
        let (journal, metrics) = (LogJournal(log), Arc::clone(metrics));
        let log = LogThread::start(journal, settings.backlog, pace, metrics, emergency.clone(), report)?;
        Ok(Threads { node, log, loader, archive, durable })
    }
}

fn archive(file: Option<PathBuf>, inputs: &Inputs, emergency: &EmergencyStop) -> Result<Option<Archive>, ThreadsError> {
    let Some(file) = file else { return Ok(None) };
    let told = inputs.internal.clone();
    let tell = move |partition, number, done| {
        // If the driver is gone the node is about to end; these tasks are archived once more then.
        let _ = told.blocking_send(Internal::Archived { partition, number, done });
    };
    let archive = Archive::start(file.clone(), emergency.clone(), tell);
    archive.map(Some).map_err(|error| ThreadsError::Archive(file, error))
}

struct LogJournal(Log<FileDisk>);

impl Journal for LogJournal {
    fn append(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>, LogError> {
        self.0.append(records)
    }

    fn commit(&mut self, now_us: u64) -> Result<(), LogError> {
        self.0.commit(now_us)
    }

    fn commit_due_us(&self) -> Option<u64> {
        self.0.commit_due_us()
    }

    fn synced(&self) -> u64 {
        self.0.synced()
    }

    fn syncs(&self) -> u64 {
        self.0.stats().syncs
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.0.sync()
    }

    fn upkeep(&mut self) -> Result<Upkeep, LogError> {
        self.0.upkeep()
    }

    fn scrub(&mut self) -> Result<Scrubbed, LogError> {
        self.0.scrub()
    }

    fn save(&mut self, part: Part) -> Result<Saved, LogError> {
        self.0.save_part(part)
    }

    fn snapshot_haste_percent(&self) -> u64 {
        self.0.snapshot_haste_percent()
    }

    fn room(&self) -> Room {
        self.0.room()
    }

    fn is_bounded(&self) -> bool {
        self.0.disk().is_bounded()
    }

    fn spare_bytes(&self) -> u64 {
        self.0.spare_bytes()
    }
}
