//! Transactions of tasks in two partitions beside those of tasks in one, on the same cluster, in turns, with the ratio.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::load::{Latencies, latencies, record};
use crate::report::{Report, Row};
use crate::system::Usage;
use anyhow::{Context, Result};
use clap::Args;
use norn_client::client::Client;
use norn_client::session::{ChangeDraft, Draft, TransactionDraft};
use norn_wire::{QueueName, TaskId};
use std::time::{Duration, Instant};

/// Tags whose tasks lie in two partitions, as long as there are at most as many partitions as values of the highest bits between them.
const TAGS: [u32; 2] = [0x10_0000, 0xf0_0000];

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Numbers of clients. Each changes tasks of its own.
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    clients: Vec<usize>,
    /// Measured seconds of each.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Turns over both.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// What a turn measured.
struct Measured {
    latencies: Latencies,
    seconds: f64,
    usage: Usage,
}

/// Measures both for each number of clients, in turns.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let cluster = Cluster::start(&options.cluster).await?;
    for clients in &options.clients {
        let mut rates = [0.0; 2];
        for _ in 0..options.turns {
            for (partitions, rate) in (1..).zip(&mut rates) {
                let measured = measure(&cluster, options, *clients, partitions).await?;
                *rate += measured.latencies.len() as f64 / measured.seconds;
                report.row(row(*clients, partitions, &measured))?;
            }
        }
        let ratio = rates[1] / rates[0];
        let row = Row::default().count("clients", *clients as u64).text("partitions", "ratio");
        report.row(row.number("ratio", ratio, 2))?;
    }
    Ok(())
}

fn row(clients: usize, partitions: usize, measured: &Measured) -> Row {
    let count = measured.latencies.len() as f64;
    let at = |quantile| measured.latencies.value_at_quantile(quantile) as f64 / 1e3;
    Row::default()
        .count("clients", clients as u64)
        .text("partitions", &partitions.to_string())
        .number("transactions/s", count / measured.seconds, 0)
        .number("p50_ms", at(0.5), 2)
        .number("p99_ms", at(0.99), 2)
        .number("cpu_s_per_10k", measured.usage.cpu_seconds / count * 1e4, 1)
        .number("syncs", measured.usage.log_syncs as f64 / count, 1)
        .number("messages", measured.usage.peer_messages as f64 / count, 1)
}

/// Lets each client change its two tasks together, again and again.
async fn measure(cluster: &Cluster, options: &Options, clients: usize, partitions: usize) -> Result<Measured> {
    let before = cluster.usage().await?;
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(options.seconds);
    let mut loops = Vec::new();
    for number in 0..clients {
        let client = Client::connect(cluster.config(number)).await?;
        loops.push(tokio::spawn(change(client, number, partitions, options.payload, until)));
    }
    let mut all = latencies()?;
    for changes in loops {
        all.add(changes.await.context("a client has panicked")??)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured { latencies: all, seconds, usage: cluster.usage().await?.since(before) })
}

async fn change(client: Client, number: usize, partitions: usize, bytes: usize, until: Instant) -> Result<Latencies> {
    let queue = QueueName::new("transactions")?;
    let mut ids = Vec::new();
    for place in 0..2 {
        let near = TaskId::new(0, 0, 0, TAGS[place % partitions]);
        let draft = Draft::new(queue.clone(), vec![number as u8; bytes]).near(near);
        ids.push(client.enqueue(draft).await?.id);
    }
    let mut all = latencies()?;
    for round in 0_usize.. {
        let begin = Instant::now();
        if begin >= until {
            break;
        }
        let payload = vec![round as u8; bytes];
        let changes = ids.iter().map(|id| ChangeDraft::of(*id).payload(payload.clone()));
        client.transact(changes.fold(TransactionDraft::new(), TransactionDraft::change)).await?;
        record(&mut all, begin.elapsed());
    }
    Ok(all)
}
