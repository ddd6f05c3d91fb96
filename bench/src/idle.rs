//! What a cluster costs that has nothing to do: CPU, messages between nodes, turns and syncs of the log.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::load;
use crate::process::load_average;
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::Result;
use clap::Args;
use norn_wire::QueueName;
use std::time::{Duration, Instant};

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Measured seconds of each turn.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Turns, one after the other. The first one still pays for the founding.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Waiting tasks, which are not claimed.
    #[arg(long, default_value_t = 0)]
    tasks: usize,
    /// Bytes of each.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Measures all turns on one cluster.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let cluster = Cluster::start(&options.cluster).await?;
    if options.tasks > 0 {
        load::fill(&cluster.over(Way::Quic), &QueueName::new("idle")?, options.tasks, options.payload).await?;
    }
    let nodes = options.cluster.nodes as f64;
    for turn in 1..=options.turns {
        let (before, began) = (cluster.usage().await?, Instant::now());
        tokio::time::sleep(Duration::from_secs_f64(options.seconds)).await;
        let usage = cluster.usage().await?.since(before);
        let node_seconds = began.elapsed().as_secs_f64() * nodes;
        let row = Row::default()
            .count("turn", turn as u64)
            .count("tasks", options.tasks as u64)
            .number("cores_percent_per_node", usage.cpu_seconds * 100.0 / node_seconds, 2)
            .number("messages_per_s", usage.peer_messages as f64 / node_seconds, 1)
            .number("turns_per_s", usage.turns as f64 / node_seconds, 1)
            .number("syncs_per_s", usage.log_syncs as f64 / node_seconds, 2)
            .number("load_average", load_average()?, 1);
        report.row(row)?;
    }
    Ok(())
}
