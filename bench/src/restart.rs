//! Disk use and restart time of a node whose log has a long history: both should depend only on the live tasks.
//!
//! One node in this process, with a real log and its compaction, in virtual time: days pass in a moment, so that finished tasks are
//! buried and forgotten. The log syncs only snapshots, because syncs are not part of the measurement.

use crate::host::{Host, IDENTITY, Keep, batch, founding};
use crate::process::{load_average, thread_cpu_seconds};
use crate::report::{Report, Row};
use anyhow::{Result, anyhow, ensure};
use clap::Args;
use norn_engine::{Cursor, Node};
use norn_host::disk::FileDisk;
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::snapshot::Moved;
use norn_model::task::Place;
use norn_restore::Restorer;
use norn_storage::disk::Disk;
use norn_storage::{Log, LogConfig, Replayed, Saved, Stats, Upkeep};
use norn_wire::request::Completion;
use norn_wire::{Acks, QueueName, Request, Token};
use peak_alloc::PeakAlloc;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Tasks in one call.
const BATCH: usize = 1_000;
/// Tasks that are finished before time advances by days and they are forgotten.
const ROUND: usize = 100_000;
/// Longer than the retention of tasks, and than the age that ids must have before they are forgotten.
const ROUND_MS: u64 = 8 * 24 * 3_600_000;
/// Steps of the node after which tasks count as never being forgotten.
const STEPS_MAX: usize = 1_000_000;
/// Bytes of one part of a snapshot, as in a node.
const PART_BYTES: usize = 256 << 10;
/// Number of restarts, of which the median counts.
const RESTARTS: usize = 3;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Waiting tasks.
    #[arg(long, default_value_t = 1_000_000)]
    live: usize,
    /// Tasks that were finished and forgotten; each number has its own log.
    #[arg(long, value_delimiter = ',', default_value = "0,10000000")]
    forgotten: Vec<usize>,
    /// Bytes of each.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Partitions, a power of two.
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// Where the logs are written; by default the system's directory for temporary files. Should be a real disk.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Builds each log and restarts from it.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    let place = options.directory.clone().unwrap_or_else(std::env::temp_dir);
    for forgotten in &options.forgotten {
        let directory = place.join(format!("norn-bench-{}-restart-{forgotten}", std::process::id()));
        let measured = measure(&mut report, options, &directory, *forgotten);
        std::fs::remove_dir_all(&directory)?;
        measured?;
    }
    Ok(())
}

fn measure(report: &mut Report, options: &Options, directory: &Path, forgotten: usize) -> Result<()> {
    let started = Instant::now();
    let stats = build(options, directory, forgotten)?;
    let (build_s, disk_bytes) = (started.elapsed().as_secs_f64(), disk_bytes(directory)?);
    let mut restarts = (0..RESTARTS).map(|_| restart(options, directory)).collect::<Result<Vec<Restart>>>()?;
    restarts.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let median = &restarts[RESTARTS / 2];
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    report.row(
        Row::default()
            .count("live", options.live as u64)
            .count("forgotten", forgotten as u64)
            .number("build_s", build_s, 0)
            .count("snapshots", stats.snapshots)
            .number("written_mib", mebibytes(stats.bytes), 0)
            .number("disk_mib", mebibytes(disk_bytes), 0)
            .number("snapshot_mib", mebibytes(median.replayed.snapshot_bytes), 0)
            .number("history_mib", mebibytes(median.replayed.bytes), 0)
            .count("records", median.replayed.records)
            .number("restart_s", median.seconds, 2)
            .number("restart_cpu_s", median.cpu_seconds, 2)
            .number("slowest_s", restarts[RESTARTS - 1].seconds, 2)
            .number("node_memory_mib", mebibytes(median.memory_bytes), 0)
            .number("load", load_average()?, 2),
    )
}

/// The log of the node.
struct Logged {
    log: Log<FileDisk>,
    saved: Option<Cursor>,
    /// Whether there is more to clear away or to report.
    more: bool,
    /// Number of tasks that `Forgot` records name.
    forgotten: usize,
}

impl Keep for Logged {
    fn keep(&mut self, records: &[Record]) -> Result<Vec<Option<Place>>> {
        for record in records {
            if let Record::Forgot { ids, .. } = record {
                self.forgotten += ids.len();
            }
        }
        Ok(self.log.append(records)?)
    }

    fn upkeep(&mut self, node: &Node) -> Result<Vec<Moved>> {
        if let Some(cursor) = &mut self.saved {
            match self.log.save_part(node.save(cursor, PART_BYTES))? {
                Saved::Part => {}
                Saved::Whole | Saved::Measured => self.saved = None,
                Saved::Lacks(ids) => return Err(anyhow!("the log has lost the bodies of {} tasks", ids.len())),
                Saved::GivenUp(error) => return Err(anyhow!("a snapshot was given up: {error}")),
            }
        }
        let upkeep = self.log.upkeep()?;
        self.more = upkeep != Upkeep::Rest;
        match upkeep {
            Upkeep::Rest | Upkeep::Again => Ok(Vec::new()),
            Upkeep::Begin => {
                self.saved = Some(Cursor::default());
                Ok(Vec::new())
            }
            Upkeep::Moved(ranges) => Ok(ranges),
            Upkeep::GivenUp(error) => Err(anyhow!("no snapshot could be begun: {error}")),
        }
    }
}

fn open(directory: &Path) -> Result<Log<FileDisk>> {
    let disk = FileDisk::open(directory)?;
    Log::open(disk, LogConfig::default(), || IDENTITY).map_err(|error| anyhow!("{error}"))
}

fn config() -> Config {
    Config { tasks_max: u64::MAX, ..Config::default() }
}

/// Runs a node until it has the waiting tasks and has forgotten the others; returns the statistics of its log.
fn build(options: &Options, directory: &Path, forgotten: usize) -> Result<Stats> {
    let mut log = open(directory)?;
    log.replay(|replay| replay.whole().map(drop)).map_err(|error| anyhow!("{error}"))?;
    let mut host = Host::new(config(), options.partitions, Logged { log, saved: None, more: false, forgotten: 0 })?;
    let queue = QueueName::new("live")?;
    for first in (0..options.live).step_by(BATCH) {
        let count = BATCH.min(options.live - first);
        host.enqueue(batch(first, count, host.now.wall_ms, &queue, options.payload))?;
        host.pass(1)?;
    }
    let queue = QueueName::new("done")?;
    for round in (0..forgotten).step_by(ROUND) {
        for first in (round..forgotten.min(round + ROUND)).step_by(BATCH) {
            let count = BATCH.min(forgotten - first);
            let tasks = batch(first, count, host.now.wall_ms, &queue, options.payload);
            let (at_ms, token) = (host.now.wall_ms, Token { epoch: 1, number: 1 });
            let done = tasks.iter().map(|task| Completion {
                id: task.id,
                token,
                sequence: None,
                result: None,
                at_ms,
                children: Vec::new(),
            });
            let items = done.collect();
            host.enqueue(tasks)?;
            host.ask(Request::Complete { items, acks: Acks::Quorum })?;
            host.pass(1)?;
        }
        host.pass(ROUND_MS)?;
        let wanted = forgotten.min(round + ROUND);
        for _ in 0..STEPS_MAX {
            if host.log.forgotten >= wanted {
                break;
            }
            host.pass_until_due()?;
        }
        ensure!(host.log.forgotten == wanted, "{} of {wanted} tasks are forgotten", host.log.forgotten);
    }
    while host.log.saved.is_some() || host.log.more {
        host.pass(1)?;
    }
    host.log.log.sync()?;
    Ok(host.log.log.stats())
}

/// Measurements of a start from a log.
struct Restart {
    seconds: f64,
    cpu_seconds: f64,
    replayed: Replayed,
    memory_bytes: u64,
}

/// Starts a node, up to the point at which it would contact peers. The files may be in the system's cache.
fn restart(options: &Options, directory: &Path) -> Result<Restart> {
    let before_bytes = PeakAlloc.current_usage();
    let (started, cpu_seconds) = (Instant::now(), thread_cpu_seconds()?);
    let mut log = open(directory)?;
    let mut node = Node::new(founding(config()), 1);
    let mut restorer = Restorer::new(&mut node);
    let replayed = log.replay(|replay| restorer.take(replay)).map_err(|error| anyhow!("{error}"))?;
    restorer.finish().map_err(|error| anyhow!(error))?;
    let (seconds, cpu_seconds) = (started.elapsed().as_secs_f64(), thread_cpu_seconds()? - cpu_seconds);
    let tasks: usize = node.inspect().iter().map(|view| view.tasks).sum();
    ensure!(tasks == options.live, "{tasks} tasks are there after a restart");
    let memory_bytes = PeakAlloc.current_usage().saturating_sub(before_bytes) as u64;
    Ok(Restart { seconds, cpu_seconds, replayed, memory_bytes })
}

fn disk_bytes(directory: &Path) -> Result<u64> {
    let disk = FileDisk::open(directory)?;
    let mut bytes = 0;
    for file in disk.list()? {
        bytes += disk.length(&file)?;
    }
    Ok(bytes)
}
