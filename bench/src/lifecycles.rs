//! Lifecycles per second: enqueue, claim, complete, with a standing stock of ready tasks so that no claim waits for work.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::load::{self, Latencies, Outcome, Plan};
use crate::report::{Report, Row};
use crate::worker::Way;
use anyhow::Result;
use clap::Args;
use norn_wire::QueueName;
use std::time::Duration;

/// Minimal number of tasks in the queue.
const STOCK_MIN: usize = 1_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Numbers of clients, each with its own connection.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<usize>,
    /// Measured seconds for each number of clients.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Tasks in one call.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Ways of the clients to the nodes; several are measured in turns.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "quic")]
    over: Vec<Way>,
    /// Rounds over all ways.
    #[arg(long, default_value_t = 1)]
    turns: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Measures all numbers of clients, one after the other, on one cluster.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let cluster = Cluster::start(&options.cluster).await?;
    for clients in &options.clients {
        let queue = QueueName::new(&format!("lifecycles-{clients}"))?;
        let stock = STOCK_MIN.max(4 * clients * options.batch);
        load::fill(&cluster.over(Way::Quic), &queue, stock, options.payload).await?;
        for way in (0..options.turns).flat_map(|_| &options.over) {
            let plan = Plan {
                clients: *clients,
                batch: options.batch,
                payload_bytes: options.payload,
                duration: Duration::from_secs_f64(options.seconds),
            };
            let outcome = load::run(&cluster.over(*way), &queue, &plan).await?;
            let row = Row::default().count("clients", *clients as u64).count("batch", options.batch as u64);
            let row = row.text("over", if *way == Way::Quic { "quic" } else { "http" });
            report.row(outcome_row(row, &outcome))?;
            if let Some(error) = &outcome.seen.failure_last {
                eprintln!("norn-bench: the last of {} failures: {error}", outcome.seen.failures);
            }
        }
    }
    Ok(())
}

/// Adds the results of a run to a row.
pub fn outcome_row(row: Row, outcome: &Outcome) -> Row {
    let seen = &outcome.seen;
    let lifecycles = seen.completed.max(1) as f64;
    let row = row.number("lifecycles_per_s", seen.completed as f64 / outcome.seconds, 0);
    let row = latencies(row, ["enqueue_p50_ms", "enqueue_p99_ms"], &seen.enqueue);
    let row = latencies(row, ["claim_p50_ms", "claim_p99_ms"], &seen.claim);
    let row = latencies(row, ["complete_p50_ms", "complete_p99_ms"], &seen.complete);
    row.number("nodes_cpu_s_per_10k", outcome.usage.cpu_seconds * 1e4 / lifecycles, 2)
        .number("client_cpu_s_per_10k", outcome.client_cpu_seconds * 1e4 / lifecycles, 2)
        .number("nodes_cores", outcome.usage.cpu_seconds / outcome.seconds, 2)
        .number("syncs_per_lifecycle", outcome.usage.log_syncs as f64 / lifecycles, 2)
        .number("messages_per_lifecycle", outcome.usage.peer_messages as f64 / lifecycles, 1)
        .number("envelopes_per_lifecycle", outcome.usage.peer_envelopes as f64 / lifecycles, 1)
        .number("events_per_lifecycle", outcome.usage.events as f64 / lifecycles, 1)
        .number("turns_per_lifecycle", outcome.usage.turns as f64 / lifecycles, 1)
        .count("empty_claims", seen.empty_claims)
        .count("failures", seen.failures)
        .number("load_average", outcome.load_average, 1)
}

fn latencies(row: Row, [median, high]: [&'static str; 2], latencies: &Latencies) -> Row {
    let milliseconds = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    row.number(median, milliseconds(0.5), 2).number(high, milliseconds(0.99), 2)
}
