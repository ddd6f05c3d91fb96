//! A store in this process beside a cluster of processes: the same lifecycles on both, in turns, as a ratio.

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::lifecycles::outcome_row;
use crate::load::{self, Plan};
use crate::report::{Report, Row};
use crate::system::{Answer, Client as Loops, System, Usage};
use crate::worker::{LibraryWorker, Way};
use anyhow::{Context, Result};
use clap::Args;
use norn_store::{Store, StoreOptions};
use norn_wire::{QueueName, Request, Response};
use std::time::Duration;

/// Minimal number of tasks in the queue.
const STOCK_MIN: usize = 1_000;
/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    clients: Vec<usize>,
    /// Measured seconds of each.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Tasks in one call.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Turns over both.
    #[arg(long, default_value_t = 2)]
    turns: usize,
    /// Partitions of the store.
    #[arg(long, default_value_t = StoreOptions::default().partitions)]
    partitions: u32,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// The store, as the closed loop sees it. What it uses counts as the clients' CPU time, as it is one process with them.
struct InProcess(Store);

impl System for InProcess {
    fn connect<'a>(&'a self, number: usize, queue: &'a QueueName) -> Answer<'a, Result<Box<dyn Loops>>> {
        Box::pin(async move {
            let client = self.0.client_named(&format!("bench {number}"), CALL_TIMEOUT);
            let worker: Box<dyn Loops> = Box::new(LibraryWorker::new(client, queue.clone(), None));
            Ok(worker)
        })
    }

    fn usage(&self) -> Answer<'_, Result<Usage>> {
        Box::pin(async {
            let Some(Response::Status(status)) = self.0.ask(Request::Status).await else {
                anyhow::bail!("the store does not say how it is");
            };
            let count =
                |name: &str| status.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
            let (log_syncs, events, turns) = (count("log_syncs"), count("events"), count("turns"));
            Ok(Usage { log_syncs, events, turns, ..Usage::default() })
        })
    }
}

/// Measures both for each number of clients, in turns.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    let cluster = Cluster::start(&options.cluster).await?;
    let place = tempfile::tempdir_in(options.cluster.directory.clone().unwrap_or_else(std::env::temp_dir))?;
    let chosen = StoreOptions { partitions: options.partitions, ..StoreOptions::default() };
    let store = InProcess(Store::open_with(place.path(), chosen).await?);
    let over_quic = cluster.over(Way::Quic);
    let systems: [(&str, &dyn System); 2] = [("cluster", &over_quic), ("store", &store)];
    for clients in &options.clients {
        let queue = QueueName::new(&format!("lifecycles-{clients}"))?;
        let stock = STOCK_MIN.max(4 * clients * options.batch);
        for (_, system) in systems {
            load::fill(system, &queue, stock, options.payload).await?;
        }
        let mut rates = [0.0; 2];
        for _ in 0..options.turns {
            for ((name, system), rate) in systems.into_iter().zip(&mut rates) {
                let plan = Plan {
                    clients: *clients,
                    batch: options.batch,
                    payload_bytes: options.payload,
                    duration: Duration::from_secs_f64(options.seconds),
                };
                let outcome = load::run(system, &queue, &plan).await?;
                *rate += outcome.seen.completed as f64 / outcome.seconds;
                let row = Row::default().count("clients", *clients as u64).text("system", name);
                report.row(outcome_row(row, &outcome))?;
            }
        }
        let [cluster_rate, store_rate] = rates;
        let ratio = store_rate / cluster_rate;
        report
            .row(Row::default().count("clients", *clients as u64).text("system", "ratio").number("ratio", ratio, 2))?;
    }
    store.0.close().await.context("closing the store")
}
