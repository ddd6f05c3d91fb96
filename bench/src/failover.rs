//! How long clients wait when a leader dies: the node that leads most partitions is killed repeatedly, under a light load from clients
//! of all nodes.

pub mod pauses;
mod probes;

use crate::ClusterOptions;
use crate::cluster::Cluster;
use crate::report::{Report, Row};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use norn_client::client::{ClaimOptions, Claimed, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::response::PartitionView;
use norn_wire::{Acks, Error, NodeId, PartitionId, QueueName};
use pauses::{Event, Events, Kill, Verb};
use probes::Probes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Ready tasks for each partition at any time, so that workers have something to do.
const STOCK_PER_PARTITION: i64 = 4;
/// Tasks that a producer enqueues at once, each with its own call.
const PRODUCED: usize = 8;
/// Tasks that a claim asks for while the stock is too low, and while it is not.
const CLAIMED: [u32; 2] = [4, 12];
/// Pause of a client between two rounds.
const REST: Duration = Duration::from_millis(15);
/// How long a claim waits for work.
const WAIT: Duration = Duration::from_millis(500);
/// Time between two looks at the cluster.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Attempts to get a client that starts with a given node.
const ATTEMPTS: usize = 200;
/// Minimum time that a killed node stays down: longer than one of its clients needs to try another node.
const AWAY: Duration = Duration::from_secs(4);
/// Time after which the cluster counts as not recovering.
const PATIENCE: Duration = Duration::from_secs(60);

/// Flags.
#[derive(Debug, Args)]
pub struct Options {
    /// How often a leader is killed.
    #[arg(long, default_value_t = 30)]
    kills: usize,
    /// Also print one row for each kill.
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// State that the clients share.
#[derive(Debug)]
struct Load {
    queue: QueueName,
    partitions: u32,
    /// Ready tasks, as far as clients know.
    stock: AtomicI64,
    runs: AtomicBool,
    events: Events,
}

/// Running clients, and the node that each must use.
struct Clients {
    at: Vec<(Client, NodeId)>,
    tasks: JoinSet<()>,
}

/// Kills and restarts nodes, and reports the distribution of pauses.
pub async fn run(options: &Options, mut report: Report) -> Result<()> {
    ensure!(options.cluster.nodes > 2, "with one node dead a majority has to stay: three nodes at least");
    let mut cluster = Cluster::start(&options.cluster).await?;
    let views = await_partitions(&cluster, &all(&cluster), is_preferred).await.context("at the start")?;
    let load = Arc::new(Load {
        queue: QueueName::new("failover")?,
        partitions: views.len() as u32,
        stock: AtomicI64::new(0),
        runs: AtomicBool::new(false),
        events: Events::default(),
    });
    let mut kills = Vec::new();
    for number in 0..options.kills {
        let kill = kill_once(&mut cluster, &load).await.with_context(|| format!("kill {number}"))?;
        if options.each {
            report.row(kill.row(number as u64))?;
        }
        kills.push(kill);
    }
    for (name, pauses) in pauses::by_kind(&kills) {
        report.row(distribution(name, pauses)?)?;
    }
    Ok(())
}

fn distribution(name: &str, mut pauses: Vec<Duration>) -> Result<Row> {
    pauses.sort();
    // The smallest value that at least this share of all values does not exceed.
    let at = |share: f64| pauses.get((share * pauses.len() as f64).ceil() as usize - 1).copied();
    let quantile = |share: f64| at(share).map(|pause| pause.as_secs_f64()).context("nothing was measured");
    let row = Row::default().text("longest_pause_s", &format!("{name:<38}")).count("kills", pauses.len() as u64);
    let row = row.number("min", pauses.first().context("nothing was measured")?.as_secs_f64(), 2);
    Ok(row.number("median", quantile(0.5)?, 2).number("p90", quantile(0.9)?, 2).number("max", quantile(1.0)?, 2))
}

/// Kills the node that leads most partitions, waits until the others have taken over, and restarts it.
async fn kill_once(cluster: &mut Cluster, load: &Arc<Load>) -> Result<Kill> {
    let views = await_partitions(cluster, &all(cluster), is_preferred).await.context("before")?;
    let identities = identities(cluster).await?;
    let clients = settled_clients(cluster, load, &identities).await?;
    let leads = |node: &NodeId| views.iter().filter(|view| view.leader == Some(*node)).count();
    let victim = (0..identities.len()).max_by_key(|place| leads(&identities[*place])).expect("there are nodes");
    let dead = identities[victim];
    let led: BTreeSet<PartitionId> =
        views.iter().filter(|view| view.leader == Some(dead)).map(|view| view.partition).collect();
    let others: Vec<usize> = all(cluster).into_iter().filter(|place| *place != victim).collect();
    let mut probers = Vec::new();
    for place in &others {
        probers.push(client_at(cluster, *place, identities[*place]).await?);
    }
    let probes = Probes::lay(&probers, &led, load.partitions).await?;
    load.events.forget_before(Instant::now() - AWAY);
    let at = Instant::now();
    cluster.kill(victim)?;
    let probes = probes.watch(at);
    await_partitions(cluster, &others, |view| view.leader.is_some_and(|leader| leader != dead)).await?;
    let leaders = at.elapsed();
    let partitions = probes.results().await?;
    tokio::time::sleep_until((at + AWAY).into()).await;
    await_everybody(load, at, identities.len()).await?;
    clients.end(load).await?;
    let kill = load.events.judge(at, victim, leaders, partitions);
    cluster.start_again(victim)?;
    Ok(kill)
}

fn all(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.watchers().len()).collect()
}

/// Whether a partition has its preferred leader, as after a while without faults.
fn is_preferred(view: &PartitionView) -> bool {
    view.leader.is_some() && view.leader.as_ref() == view.cohort.first()
}

async fn identities(cluster: &Cluster) -> Result<Vec<NodeId>> {
    let mut identities = Vec::new();
    for watcher in cluster.watchers() {
        identities.push(watcher.status().await?.node);
    }
    Ok(identities)
}

/// Waits until each of these nodes sees all partitions as `wanted`; returns the view of the last one.
async fn await_partitions(
    cluster: &Cluster,
    asked: &[usize],
    wanted: impl Fn(&PartitionView) -> bool,
) -> Result<Vec<PartitionView>> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = Vec::new();
    for place in asked {
        loop {
            // A node that has just started may not answer yet.
            let views = cluster.watchers()[*place].partitions().await.unwrap_or_default();
            if !views.is_empty() && views.iter().all(&wanted) {
                last = views;
                break;
            }
            if Instant::now() > deadline {
                let bad = views.iter().filter(|view| !wanted(view)).count();
                bail!("node {place} sees {bad} of {} partitions without the right leader", views.len());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
    Ok(last)
}

/// Waits until the stock of ready tasks is full.
async fn await_stock(load: &Load) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while load.lacks_stock() {
        ensure!(Instant::now() < deadline, "only {} tasks wait", load.stock.load(Ordering::Relaxed));
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

/// Waits until each client has had a success since that instant.
async fn await_everybody(load: &Load, since: Instant, nodes: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let missing = load.events.missing(since, nodes);
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "since the kill nothing was heard of {}", missing.join(", "));
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Starts a producer and a worker at each node, which know the other nodes as well.
async fn start_clients(cluster: &Cluster, load: &Arc<Load>, identities: &[NodeId]) -> Result<Clients> {
    load.runs.store(true, Ordering::Relaxed);
    let mut clients = Clients { at: Vec::new(), tasks: JoinSet::new() };
    for (place, node) in identities.iter().enumerate() {
        let (producer, worker) = (client_at(cluster, place, *node).await?, client_at(cluster, place, *node).await?);
        clients.at.extend([(producer.clone(), *node), (worker.clone(), *node)]);
        clients.tasks.spawn(Arc::clone(load).produce(producer, place));
        clients.tasks.spawn(Arc::clone(load).work(worker, place));
    }
    Ok(clients)
}

/// Starts new clients, because those of the last kill have left its node for others. A client that finds no work at its node for a
/// moment leaves the node as well, and there may be none at first. In that case all clients are started again.
async fn settled_clients(cluster: &Cluster, load: &Arc<Load>, identities: &[NodeId]) -> Result<Clients> {
    for _ in 0..ATTEMPTS {
        let clients = start_clients(cluster, load, identities).await?;
        await_stock(load).await?;
        if clients.are_settled().await? {
            return Ok(clients);
        }
        clients.end(load).await?;
    }
    bail!("clients do not stay with their nodes");
}

impl Clients {
    /// Whether each client uses its node.
    async fn are_settled(&self) -> Result<bool> {
        for (client, node) in &self.at {
            if client.status().await?.node != *node {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn end(mut self, load: &Load) -> Result<()> {
        load.runs.store(false, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(())
    }
}

/// A client that uses this node for now. A session starts with any of its addresses, so this may take several attempts.
async fn client_at(cluster: &Cluster, place: usize, node: NodeId) -> Result<Client> {
    for _ in 0..ATTEMPTS {
        let client = Client::connect(cluster.config(place)).await?;
        if client.status().await?.node == node {
            return Ok(client);
        }
        client.close().await;
    }
    bail!("no client begins with node {place}");
}

impl Load {
    fn lacks_stock(&self) -> bool {
        self.stock.load(Ordering::Relaxed) < STOCK_PER_PARTITION * i64::from(self.partitions)
    }

    async fn produce(self: Arc<Self>, client: Client, place: usize) {
        while self.runs.load(Ordering::Relaxed) {
            let mut calls = JoinSet::new();
            for _ in 0..PRODUCED {
                let (client, draft) = (client.clone(), Draft::new(self.queue.clone(), "x"));
                calls.spawn(async move { client.enqueue(draft).await });
            }
            while let Some(ended) = calls.join_next().await {
                if told("enqueue", ended.expect("calls do not panic")).is_some() {
                    self.stock.fetch_add(1, Ordering::Relaxed);
                    self.events.note(Event { verb: Verb::Enqueue, place, told: Instant::now() });
                }
            }
            tokio::time::sleep(REST).await;
        }
        client.close().await;
    }

    async fn work(self: Arc<Self>, client: Client, place: usize) {
        let mut completions = JoinSet::new();
        while self.runs.load(Ordering::Relaxed) {
            let max = CLAIMED[usize::from(!self.lacks_stock())];
            let claim = ClaimOptions::new([self.queue.clone()]).max(max).wait(WAIT).worker("bench");
            let claims = told("claim", client.claim(claim).await).map_or(Vec::new(), |claims| claims.tasks);
            let now = Instant::now();
            if !claims.is_empty() {
                self.stock.fetch_sub(claims.len() as i64, Ordering::Relaxed);
                self.events.note(Event { verb: Verb::Claim, place, told: now });
            }
            // Completions run in the background, so that they do not delay the next claim.
            let client = client.clone();
            while completions.try_join_next().is_some() {}
            completions.spawn(async move {
                let done = |task: &Claimed| CompleteOptions::new(task.granted.id, task.granted.token);
                for result in client.complete_many(claims.iter().map(done).collect(), Acks::Quorum).await {
                    told("complete", result);
                }
            });
            tokio::time::sleep(REST).await;
        }
        while completions.join_next().await.is_some() {}
        client.close().await;
    }
}

/// The result of a call. A failure is printed, and shows as a pause.
fn told<T>(verb: &str, result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| eprintln!("norn-bench: {verb}: {error}")).ok()
}
