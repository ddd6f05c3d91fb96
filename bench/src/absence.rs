//! A node returns after a long absence, and then once more with a part of its log destroyed: time until all replicas are equal, and
//! the latencies of clients meanwhile.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::lifecycles::outcome_row;
use crate::load::{self, Outcome, Plan};
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use norn_client::client::{ClaimOptions, Claimed, Client, CompleteOptions};
use norn_host::disk::FileDisk;
use norn_storage::DiskError;
use norn_storage::verify::{Entry, inspect};
use norn_wire::response::Health;
use norn_wire::{Acks, QueueName};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Index of the node that is away.
const AWAY: usize = 2;
/// Setting for small segments, so that some can be destroyed and others stay.
const SMALL_SEGMENTS: &str = "segment_bytes=4194304";
/// Tasks in one call of a worker.
const WORK_BATCH: u32 = 1_000;
/// Time between two looks at the replicas.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which the replicas count as not becoming equal.
const PATIENCE: Duration = Duration::from_secs(600);
/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Tasks that are there before the node goes away.
    #[arg(long, default_value_t = 20_000)]
    stock: usize,
    /// Tasks that are enqueued while it is away; half of them are completed.
    #[arg(long, default_value_t = 100_000)]
    tasks: usize,
    /// Clients in the foreground, each with its own connection.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// Measured seconds of the foreground.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Measures two absences, and the foreground load before the first and after each return.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(options.cluster.nodes > AWAY, "one node goes away, and a majority has to stay: three nodes at least");
    let mut cluster_options = options.cluster.clone();
    cluster_options.settings.insert(0, SMALL_SEGMENTS.to_owned());
    let cluster = Cluster::start(&cluster_options).await?;
    load::fill(&cluster.over(Way::Quic), &QueueName::new("stock")?, options.stock, options.payload).await?;
    let row = |when: &str, equal_after: Duration, segments: u64| {
        Row::default()
            .text("when", when)
            .number("equal_after_s", equal_after.as_secs_f64(), 1)
            .count("segments_destroyed", segments)
    };
    report.row(outcome_row(row("before", Duration::ZERO, 0), &foreground(&cluster, options).await?))?;
    for (when, destroys) in [("back", false), ("destroyed", true)] {
        cluster.kill(AWAY)?;
        miss(&cluster, options, &QueueName::new(when)?).await?;
        let segments = if destroys { destroy(&cluster.data(AWAY))? } else { 0 };
        cluster.start_again(AWAY)?;
        let (equal_after, outcome) = tokio::try_join!(await_equal(&cluster), foreground(&cluster, options))?;
        report.row(outcome_row(row(when, equal_after, segments), &outcome))?;
        if let Some(error) = &outcome.seen.failure_last {
            eprintln!("norn-bench: the last of {} failures: {error}", outcome.seen.failures);
        }
    }
    Ok(())
}

async fn foreground(cluster: &Cluster, options: &Options) -> Result<Outcome> {
    let duration = Duration::from_secs_f64(options.seconds);
    let plan = Plan { clients: options.clients, batch: 1, payload_bytes: options.payload, duration };
    load::run(&cluster.over(Way::Quic), &QueueName::new("foreground")?, &plan).await
}

/// Makes the cluster enqueue and complete tasks that the absent node misses.
async fn miss(cluster: &Cluster, options: &Options, queue: &QueueName) -> Result<()> {
    load::fill(&cluster.over(Way::Quic), queue, options.tasks, options.payload).await?;
    let client = Client::connect(cluster.config(0)).await?;
    let mut left = options.tasks / 2;
    while left > 0 {
        let claim = ClaimOptions::new([queue.clone()]).max(WORK_BATCH.min(left as u32)).worker("bench");
        let claimed = client.claim(claim.wait(Duration::from_secs(1))).await?.tasks;
        let done = |task: &Claimed| CompleteOptions::new(task.granted.id, task.granted.token);
        for result in client.complete_many(claimed.iter().map(done).collect(), Acks::Quorum).await {
            result.context("completing what the node misses")?;
            left -= 1;
        }
    }
    client.close().await;
    Ok(())
}

/// Waits until all replicas are whole and each node knows them to be equal, except for writes under way. Returns how long that took.
async fn await_equal(cluster: &Cluster) -> Result<Duration> {
    let begin = Instant::now();
    while !are_equal(cluster).await {
        if begin.elapsed() > PATIENCE {
            bail!("the replicas are not equal after {PATIENCE:?}");
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(begin.elapsed())
}

async fn are_equal(cluster: &Cluster) -> bool {
    for watcher in cluster.watchers() {
        // A node that has just started may not answer yet.
        let Ok(partitions) = watcher.partitions().await else { return false };
        let held = partitions.iter().filter(|partition| partition.health.is_some());
        let is_equal = held.clone().all(|partition| {
            let agreed = partition.agreements.iter().all(|other| !other.apart && other.agreed_ms.is_some());
            partition.health == Some(Health::Whole) && agreed
        });
        if held.count() == 0 || !is_equal {
            return false;
        }
    }
    true
}

/// Overwrites all records of every other segment that contains only facts, operations and marks. Returns the number of segments.
///
/// The heads in front of the records stay. Without them it would be unknown whether a vote was lost, and a node that may have lost one
/// refuses to start, as it should.
fn destroy(data: &Path) -> Result<u64> {
    let disk = FileDisk::open(data).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut segments: BTreeMap<String, (u64, BTreeSet<String>)> = BTreeMap::new();
    let shown = inspect(&disk, |file, offset, entry| {
        if let Entry::Record { of, .. } = entry {
            let kind = of.map_or("unknown".to_owned(), |(_, kind)| kind.to_string());
            segments.entry(file.to_owned()).or_insert((offset, BTreeSet::new())).1.insert(kind);
        }
        Ok::<(), DiskError>(())
    });
    shown.map_err(|error| anyhow::anyhow!("{error}"))?;
    drop(disk);
    // The last segment is still being written. A lost mark does no harm if another one follows.
    let last = segments.keys().next_back().cloned();
    let last_mark = segments.iter().rfind(|(_, (_, kinds))| kinds.contains("mark")).map(|(file, _)| file.clone());
    let replaceable = |kinds: &BTreeSet<String>| kinds.iter().all(|kind| ["facts", "ops", "mark"].contains(&&**kind));
    let chosen = segments.iter().filter(|(file, (_, kinds))| {
        let kept = [last.as_ref(), last_mark.as_ref()].contains(&Some(*file));
        file.ends_with(".log") && !kept && replaceable(kinds)
    });
    let mut destroyed = 0;
    for (file, (first, _)) in chosen.step_by(2) {
        let path = data.join(file);
        let mut file = OpenOptions::new().write(true).open(&path).with_context(|| path.display().to_string())?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(*first))?;
        file.write_all(&vec![0xA5; length.saturating_sub(*first) as usize])?;
        file.sync_all()?;
        destroyed += 1;
    }
    ensure!(destroyed > 0, "no segment of {} has facts and operations alone: {segments:?}", data.display());
    Ok(destroyed)
}
