//! Whether throughput grows with nodes, and with workers at once: the same lifecycles with more of each, as ratios to the first.
//!
//! All nodes share the machine's cores, so what counts is how many lifecycles a second of a core's time is worth: times the nodes, that is
//! what a cluster would do with a core for each. Ends with an error where a ratio is beyond its bound.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::lifecycles::outcome_row;
use crate::load::{self, Outcome, Plan};
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::{Result, bail, ensure};
use clap::Args;
use norn_wire::QueueName;
use std::time::Duration;

/// Workers for each node, where nodes grow: the load grows with them.
const WORKERS_PER_NODE: usize = 16;
/// Minimal number of tasks in the queue.
const STOCK_MIN: usize = 1_000;
/// Least ratio of what a cluster of more nodes does to what the first did, if each node has a core to itself.
const NODES_GROWTH_MIN: f64 = 1.0;
/// Least ratio of lifecycles for each CPU second with many workers, to those with the first number of workers.
const WORKERS_RATIO_MIN: f64 = 2.0;
/// Greatest ratio of syncs for each lifecycle with many workers, to those with the first number of workers: small tasks share them.
const SYNCS_RATIO_MAX: f64 = 0.5;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Numbers of nodes, each with sixteen workers and three replicas of each task.
    #[arg(long, value_delimiter = ',', default_value = "3,5,7")]
    sizes: Vec<usize>,
    /// Numbers of workers at once, on a cluster of `--nodes`.
    #[arg(long, value_delimiter = ',', default_value = "1,64,256")]
    workers: Vec<usize>,
    /// Measured seconds of each.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 64)]
    payload: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Worth of a CPU second, and cost of a lifecycle.
#[derive(Debug, Clone, Copy)]
struct Worth {
    per_cpu_s: f64,
    syncs: f64,
}

impl Worth {
    fn of(outcome: &Outcome) -> Worth {
        let completed = outcome.seen.completed.max(1) as f64;
        Worth { per_cpu_s: completed / outcome.usage.cpu_seconds, syncs: outcome.usage.log_syncs as f64 / completed }
    }
}

// S2: with a core for each node, more nodes do more
// O2, C20: small tasks and many claims at once cost less each, the more of them there are
/// Measures each number of nodes, and then each number of workers.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(options.sizes.iter().all(|nodes| *nodes >= 3), "a task has three replicas");
    let mut beyond = Vec::new();
    let mut first = None::<f64>;
    for nodes in &options.sizes {
        let cluster = Cluster::start(&ClusterOptions { nodes: *nodes, ..options.cluster.clone() }).await?;
        let worth = measure(&cluster, *nodes, nodes * WORKERS_PER_NODE, options, &mut report).await?;
        let all = *nodes as f64 * worth.per_cpu_s;
        let growth = all / *first.get_or_insert(all);
        if growth < NODES_GROWTH_MIN {
            beyond.push(format!("{nodes} nodes do {growth:.2} of what the first did, at least {NODES_GROWTH_MIN}"));
        }
    }
    let cluster = Cluster::start(&options.cluster).await?;
    let mut first = None;
    for workers in &options.workers {
        let worth = measure(&cluster, options.cluster.nodes, *workers, options, &mut report).await?;
        let Some(Worth { per_cpu_s, syncs }) = first.replace(first.unwrap_or(worth)) else { continue };
        let (ratio, syncs_ratio) = (worth.per_cpu_s / per_cpu_s, worth.syncs / syncs);
        if ratio < WORKERS_RATIO_MIN {
            beyond
                .push(format!("for {workers} workers a CPU second is worth {ratio:.2}, at least {WORKERS_RATIO_MIN}"));
        }
        if syncs_ratio > SYNCS_RATIO_MAX {
            beyond.push(format!("for {workers} workers a task syncs {syncs_ratio:.2}, at most {SYNCS_RATIO_MAX}"));
        }
    }
    if beyond.is_empty() { Ok(()) } else { bail!("ratios beyond their bounds: {}", beyond.join("; ")) }
}

/// Runs lifecycles of this number of workers.
async fn measure(
    cluster: &Cluster,
    nodes: usize,
    workers: usize,
    options: &Options,
    report: &mut Report,
) -> Result<Worth> {
    let queue = QueueName::new(&format!("scaling-{workers}"))?;
    let system = cluster.over(Way::Quic);
    load::fill(&system, &queue, STOCK_MIN.max(4 * workers), options.payload).await?;
    let duration = Duration::from_secs_f64(options.seconds);
    let plan = Plan { clients: workers, batch: 1, payload_bytes: options.payload, duration };
    let outcome = load::run(&system, &queue, &plan).await?;
    ensure!(outcome.seen.completed > 0, "no task was completed: {:?}", outcome.seen.failure_last);
    let worth = Worth::of(&outcome);
    let row = Row::default().count("nodes", nodes as u64).count("workers", workers as u64);
    report.row(outcome_row(row.number("per_cpu_s", worth.per_cpu_s, 0), &outcome))?;
    Ok(worth)
}
