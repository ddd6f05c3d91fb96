//! How costs grow with tasks, nodes and partitions. The nodes run in this process, in virtual time: what is measured is their own work,
//! without disks, networks and encryption.

use crate::host::{Host, Nowhere, batch, made_ms};
use crate::mesh::{self, Mesh, Work};
use crate::process::thread_cpu_seconds;
use crate::report::{Report, Row};
use anyhow::{Result, bail, ensure};
use clap::Args;
use norn_engine::Node;
use norn_model::config::Config;
use norn_model::record::Record;
use norn_model::task::Task;
use norn_wire::request::{Claim, Completion};
use norn_wire::{Acks, ClaimId, PartitionId, QueueName, Request, Response, TaskId};
use peak_alloc::PeakAlloc;
use std::sync::Arc;

/// Tasks in one call while a backlog is filled, and in one record of the log.
const BATCH: usize = 100;
/// Partitions of clusters whose tasks or nodes grow.
const PARTITIONS: u32 = 256;
/// Nodes of clusters whose tasks or partitions grow.
const NODES: usize = 3;
/// Virtual time before an idle cluster is measured, so that nothing of its start goes on.
const SETTLE_MS: u64 = 10_000;
/// Virtual time of an idle cluster that is measured.
const IDLE_MS: u64 = 10_000;

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// Waiting tasks.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    tasks: Vec<usize>,
    /// Nodes; 3 replicas, 256 partitions.
    #[arg(long, value_delimiter = ',', default_value = "3,10,30,100")]
    nodes: Vec<usize>,
    /// Partitions; 3 nodes.
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,4096")]
    partitions: Vec<u32>,
    /// Measured calls of each kind.
    #[arg(long, default_value_t = 2_000)]
    calls: usize,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    payload: usize,
}

/// Measures each size of each.
pub fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(options.calls > 0, "without calls there is nothing to measure");
    for tasks in &options.tasks {
        with_tasks(*tasks, options, &mut report)?;
    }
    for nodes in &options.nodes {
        ensure!(*nodes >= NODES, "a task has three replicas");
        cluster(*nodes, PARTITIONS, options, &mut report)?;
    }
    for partitions in &options.partitions {
        cluster(NODES, *partitions, options, &mut report)?;
    }
    Ok(())
}

fn queue() -> Result<QueueName> {
    Ok(QueueName::new("growth")?)
}

fn config() -> Config {
    Config { tasks_max: u64::MAX, payload_memory_bytes: 0, ..Config::default() }
}

/// One node: memory of a task, and what is done beside them.
fn with_tasks(tasks: usize, options: &Options, report: &mut Report) -> Result<()> {
    let empty_bytes = PeakAlloc.current_usage();
    let mut host = Host::new(config(), 4, Nowhere::default())?;
    let empty_bytes = PeakAlloc.current_usage() - empty_bytes;
    let before_bytes = PeakAlloc.current_usage();
    for first in (0..tasks).step_by(BATCH) {
        host.enqueue(batch(first, BATCH.min(tasks - first), made_ms(first), &queue()?, options.payload))?;
    }
    let taken_bytes = PeakAlloc.current_usage() - before_bytes;
    let calls = options.calls;
    let before_s = thread_cpu_seconds()?;
    for number in tasks..tasks + calls {
        host.enqueue(batch(number, 1, made_ms(number), &queue()?, options.payload))?;
    }
    let enqueue_s = thread_cpu_seconds()? - before_s;
    drop(host);
    let row = Row::default()
        .count("tasks", tasks as u64)
        .number("empty_kib", empty_bytes as f64 / 1024.0, 0)
        .number("bytes_per_task", taken_bytes as f64 / tasks.max(1) as f64, 1)
        .number("enqueue_us", enqueue_s * 1e6 / calls as f64, 1)
        .number("replay_us_per_task", replay_us(tasks, options)?, 2);
    report.row(calls_of(Mesh::start(NODES, PARTITIONS, &mesh_config())?, tasks, row, options)?)
}

/// CPU time of a restart for each task of the log.
fn replay_us(tasks: usize, options: &Options) -> Result<f64> {
    let mut node = Node::new(crate::host::founding(config()), 1);
    let founded = Record::Genesis(Arc::new(mesh::genesis(NODES, PARTITIONS)));
    node.recover(founded, false, None).map_err(anyhow::Error::msg)?;
    let mut spent_s = 0.0;
    for first in (0..tasks).step_by(BATCH) {
        let new = batch(first, BATCH.min(tasks - first), made_ms(first), &queue()?, options.payload);
        let items = new.into_iter().map(|task| (task.id, Task::from_spec(Arc::new(task.spec)))).collect();
        let record = Record::Facts { partition: PartitionId(0), items: Arc::new(items) };
        let before_s = thread_cpu_seconds()?;
        node.recover(record, false, None).map_err(anyhow::Error::msg)?;
        spent_s += thread_cpu_seconds()? - before_s;
    }
    Ok(spent_s * 1e6 / tasks.max(1) as f64)
}

fn mesh_config() -> Config {
    Config { tasks_max: u64::MAX, payload_memory_bytes: 1 << 50, ..Config::default() }
}

/// A cluster without work, and then with calls one by one.
fn cluster(nodes: usize, partitions: u32, options: &Options, report: &mut Report) -> Result<()> {
    let mut mesh = Mesh::start(nodes, partitions, &mesh_config())?;
    mesh.pass(SETTLE_MS)?;
    let mut passed = |counts_bytes| -> Result<Work> {
        mesh.counts_bytes = counts_bytes;
        let before = mesh.work()?;
        mesh.pass(IDLE_MS)?;
        Ok(mesh.work()?.since(before))
    };
    let (idle, counted) = (passed(false)?, passed(true)?);
    let node_seconds = nodes as f64 * IDLE_MS as f64 / 1e3;
    let row = Row::default()
        .count("nodes", nodes as u64)
        .count("partitions", partitions.into())
        .number("idle_cpu_us_per_s", idle.cpu_s * 1e6 / node_seconds, 0)
        .number("idle_messages_per_s", idle.messages as f64 / node_seconds, 1)
        .number("idle_bytes_per_s", counted.bytes as f64 / node_seconds, 0);
    mesh.counts_bytes = false;
    report.row(calls_of(mesh, 0, row, options)?)
}

/// Adds the costs of calls beside these tasks, for all nodes together.
fn calls_of(mut mesh: Mesh, tasks: usize, row: Row, options: &Options) -> Result<Row> {
    let (calls, queue) = (options.calls, queue()?);
    let enqueue = |mesh: &mut Mesh, first: usize, count: usize, number: usize| -> Result<()> {
        let tasks = batch(first, count, mesh.now.wall_ms, &queue, options.payload);
        let place = number % mesh.nodes_count();
        match mesh.ask(place, Request::Enqueue { tasks, acks: Acks::Quorum })? {
            Response::Acked(results) if results.iter().all(Result::is_ok) => Ok(()),
            other => bail!("an enqueue is answered {other:?}"),
        }
    };
    for (number, first) in (0..tasks).step_by(BATCH).enumerate() {
        enqueue(&mut mesh, first, BATCH.min(tasks - first), number)?;
    }
    let before = mesh.work()?;
    for number in 0..calls {
        enqueue(&mut mesh, tasks + number, 1, number)?;
    }
    let enqueued = mesh.work()?;
    let mut held = Vec::new();
    for number in 0..calls {
        held.push(claim(&mut mesh, number)?);
    }
    let claimed = mesh.work()?;
    for (number, (id, token)) in held.into_iter().enumerate() {
        let at_ms = mesh.now.wall_ms;
        let item = Completion { id, token, sequence: None, result: None, at_ms, children: Vec::new() };
        let place = number % mesh.nodes_count();
        match mesh.ask(place, Request::Complete { items: vec![item], acks: Acks::Quorum })? {
            Response::Acked(results) if results.iter().all(Result::is_ok) => {}
            other => bail!("a completion is answered {other:?}"),
        }
    }
    let completed = mesh.work()?;
    let each = |work: Work| (work.cpu_s * 1e6 / calls as f64, work.messages as f64 / calls as f64);
    let [(enqueue_us, enqueue), (claim_us, claim), (complete_us, complete)] =
        [enqueued.since(before), claimed.since(enqueued), completed.since(claimed)].map(each);
    Ok(row
        .number("cluster_enqueue_us", enqueue_us, 1)
        .number("cluster_claim_us", claim_us, 1)
        .number("cluster_complete_us", complete_us, 1)
        .number("enqueue_messages", enqueue, 1)
        .number("claim_messages", claim, 1)
        .number("complete_messages", complete, 1))
}

fn claim(mesh: &mut Mesh, number: usize) -> Result<(TaskId, norn_wire::Token)> {
    let claim = Claim {
        claim: ClaimId(number as u128 + 1),
        repeated: false,
        queues: vec![queue()?],
        lease_ms: 600_000,
        wait_ms: 60_000,
        max: 1,
        worker: "bench".into(),
        lease_open: false,
        session: None,
        depends: Vec::new(),
        confirms: false,
    };
    let place = number % mesh.nodes_count();
    match mesh.ask(place, Request::Claim(claim))? {
        Response::Claimed { tasks, .. } if tasks.len() == 1 => Ok((tasks[0].id, tasks[0].token)),
        other => bail!("a claim is answered {other:?}"),
    }
}
