//! Memory that a waiting task costs a node, as the allocator counts it: task, indexes, hash tree, and everything else.

use crate::host::{Host, Nowhere, batch, made_ms};
use crate::report::{Report, Row};
use anyhow::Result;
use clap::Args;
use norn_model::config::Config;
use norn_wire::QueueName;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Tasks in one call.
const BATCH: usize = 100;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Waiting tasks.
    #[arg(long, default_value_t = 1_000_000)]
    tasks: usize,
    /// Bytes of each.
    #[arg(long, default_value_t = 256)]
    payload: usize,
    /// Partitions, a power of two.
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// Queues.
    #[arg(long, default_value_t = 4)]
    queues: usize,
}

/// Measures once with all bodies in the log alone, and once with all of them in memory.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    for (bodies, payload_memory_bytes) in [("in the log", 0), ("in memory", 1 << 50)] {
        let before_bytes = PeakAlloc.current_usage();
        let config = Config { payload_memory_bytes, tasks_max: u64::MAX, ..Config::default() };
        let mut host = Host::new(config, options.partitions, Nowhere::default())?;
        let empty_bytes = PeakAlloc.current_usage();
        fill(&mut host, options)?;
        let full_bytes = PeakAlloc.current_usage();
        let row = Row::default()
            .count("tasks", options.tasks as u64)
            .count("payload_bytes", options.payload as u64)
            .text("bodies", bodies)
            .number("empty_node_kib", (empty_bytes - before_bytes) as f64 / 1024.0, 0)
            .number("bytes_per_task", (full_bytes - empty_bytes) as f64 / options.tasks.max(1) as f64, 1);
        report.row(row)?;
    }
    Ok(())
}

fn fill(host: &mut Host<Nowhere>, options: &Options) -> Result<()> {
    let queues = options.queues.max(1);
    let names = (0..queues).map(|number| QueueName::new(&format!("namespace/queue-{number}")));
    let names = names.collect::<Result<Vec<QueueName>, _>>()?;
    for first in (0..options.tasks).step_by(BATCH) {
        let count = BATCH.min(options.tasks - first);
        let mut tasks = batch(first, count, made_ms(first), &names[0], options.payload);
        for (number, task) in (first..).zip(&mut tasks) {
            task.spec.queue = names[number % queues].clone();
        }
        host.enqueue(tasks)?;
    }
    Ok(())
}
