//! Claims over a standing backlog in various states, and the backlog's memory use.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::lifecycles::outcome_row;
use crate::load::{self, Plan};
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::Result;
use clap::{Args, ValueEnum};
use norn_client::session::Draft;
use norn_wire::{QueueName, TaskId};
use std::time::{Duration, Instant};

/// Ready tasks beside those that cannot be claimed, so that no claim finds nothing.
const STOCK: usize = 1_000;
/// A delay that is longer than any run.
const DELAY_MS: u64 = 24 * 3_600_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Sizes of the backlog.
    #[arg(long, value_delimiter = ',', default_value = "1000,1000000")]
    tasks: Vec<usize>,
    /// States of the backlog's tasks; each size is measured with each of them.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "ready")]
    kinds: Vec<Kind>,
    /// Clients, each with its own connection.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Measured seconds for each size.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Bytes of payloads that each node keeps in memory, as its setting `payload_memory_bytes`; each size is measured with each of
    /// them. By default the nodes' own default.
    #[arg(long, value_delimiter = ',')]
    payload_memory: Vec<u64>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// State of a backlog's tasks. Beside a backlog that is not ready there are a few ready tasks to be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// They can be claimed.
    Ready,
    /// Their time has not come.
    Delayed,
    /// Each waits for a task of its own, which was never enqueued.
    Blocked,
    /// A worker holds them.
    Claimed,
    /// They have ended.
    Finished,
}

impl Kind {
    /// Brings this number of further tasks into this state.
    pub async fn fill(self, cluster: &Cluster, queue: &QueueName, tasks: usize, payload_bytes: usize) -> Result<()> {
        let draft = || {
            let mut draft = Draft::new(queue.clone(), vec![b'x'; payload_bytes]);
            match self {
                Kind::Delayed => draft.delay_ms = DELAY_MS,
                // The other task may belong to any partition.
                Kind::Blocked => draft.spec.after = vec![TaskId::new(1, rand::random(), 1, rand::random::<u32>() >> 8)],
                Kind::Ready | Kind::Claimed | Kind::Finished => {}
            }
            draft
        };
        load::fill_with(cluster, tasks, draft).await?;
        if matches!(self, Kind::Claimed | Kind::Finished) {
            load::take(cluster, queue, tasks, self == Kind::Finished).await?;
        }
        Ok(())
    }
}

/// Measures all sizes, each on a new cluster.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let plan = Plan {
        clients: options.clients,
        batch: 1,
        payload_bytes: options.payload,
        duration: Duration::from_secs_f64(options.seconds),
    };
    let queue = QueueName::new("backlog")?;
    let mut variants: Vec<Option<u64>> = options.payload_memory.iter().copied().map(Some).collect();
    if variants.is_empty() {
        variants.push(None);
    }
    let sizes = options.tasks.iter().flat_map(|tasks| variants.iter().map(move |bytes| (tasks, *bytes)));
    for ((tasks, bytes), kind) in sizes.flat_map(|size| options.kinds.iter().map(move |kind| (size, *kind))) {
        let mut nodes = options.cluster.clone();
        nodes.settings.extend(bytes.map(|bytes| format!("payload_memory_bytes={bytes}")));
        let cluster = Cluster::start(&nodes).await?;
        let (before_bytes, before, started) = (cluster.resident_bytes()?, cluster.usage().await?, Instant::now());
        kind.fill(&cluster, &queue, *tasks, options.payload).await?;
        if kind != Kind::Ready {
            load::fill(&cluster.over(Way::Quic), &queue, STOCK, options.payload).await?;
        }
        let (fill_seconds, filled) = (started.elapsed().as_secs_f64(), cluster.usage().await?.since(before));
        let filled_bytes = cluster.resident_bytes()?;
        let outcome = load::run(&cluster.over(Way::Quic), &queue, &plan).await?;
        let task_count = (*tasks).max(1) as f64;
        let worked_bytes = cluster.resident_bytes()?;
        let limit = bytes.map_or("default".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
        let name = kind.to_possible_value().expect("no kind is hidden");
        let row = Row::default()
            .text("kind", name.get_name())
            .count("backlog_tasks", *tasks as u64)
            .text("payload_memory_mib", &limit)
            .number("fill_tasks_per_s", task_count / fill_seconds, 0)
            .number("fill_cpu_s_per_10k", filled.cpu_seconds * 1e4 / task_count, 2)
            .number("nodes_memory_mib", filled_bytes as f64 / f64::from(1 << 20), 0)
            .number("at_the_end_mib", worked_bytes as f64 / f64::from(1 << 20), 0)
            .number("bytes_per_task", filled_bytes.saturating_sub(before_bytes) as f64 / task_count, 0);
        report.row(outcome_row(row, &outcome))?;
        if let Some(error) = &outcome.seen.failure_last {
            eprintln!("norn-bench: the last of {} failures: {error}", outcome.seen.failures);
        }
    }
    Ok(())
}
