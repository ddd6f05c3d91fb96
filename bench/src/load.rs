//! Closed-loop clients, each with its own connection.

use crate::cluster::Cluster;
use crate::process;
use crate::system::{Client as Loops, System, Usage};
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use norn_client::client::{ClaimOptions, Client, CompleteOptions};
use norn_client::session::Draft;
use norn_wire::{Acks, QueueName};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Time before the measurement starts.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longest latency that is distinguished from longer ones.
const LATENCY_US_MAX: u64 = 60_000_000;
/// Number of connections that fill a queue.
const FILLERS: usize = 4;
/// A lease longer than any run.
const LEASE: Duration = Duration::from_secs(3_600);
/// Tasks and bytes in one call while filling a queue.
const FILL_BATCH: usize = 1_000;
const FILL_BYTES: usize = 1 << 20;
/// Digits of the number at the beginning of a payload.
const NUMBER_BYTES: usize = 20;

/// Workload of each client.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Number of clients.
    pub clients: usize,
    /// Tasks in one call.
    pub batch: usize,
    /// Bytes of each task.
    pub payload_bytes: usize,
    /// Measured time.
    pub duration: Duration,
}

/// Latencies of one verb, in microseconds.
pub type Latencies = Histogram<u64>;

/// Results as the clients saw them.
#[derive(Debug)]
pub struct Seen {
    /// Latencies of enqueue calls.
    pub enqueue: Latencies,
    /// Latencies of claim calls.
    pub claim: Latencies,
    /// Latencies of complete calls.
    pub complete: Latencies,
    /// Number of acknowledged completions.
    pub completed: u64,
    /// Claims that returned no task.
    pub empty_claims: u64,
    /// Calls or tasks that failed.
    pub failures: u64,
    /// The last failure.
    pub failure_last: Option<String>,
}

/// Results of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Results as the clients saw them.
    pub seen: Seen,
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Resources that the nodes used in that time.
    pub usage: Usage,
    /// CPU seconds that this process used in that time.
    pub client_cpu_seconds: f64,
    /// Load average at the end.
    pub load_average: f64,
}

/// No latencies yet.
pub fn latencies() -> Result<Latencies> {
    Ok(Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)?)
}

impl Seen {
    fn new() -> Result<Seen> {
        Ok(Seen {
            enqueue: latencies()?,
            claim: latencies()?,
            complete: latencies()?,
            completed: 0,
            empty_claims: 0,
            failures: 0,
            failure_last: None,
        })
    }

    fn add(&mut self, other: Seen) -> Result<()> {
        self.enqueue.add(other.enqueue)?;
        self.claim.add(other.claim)?;
        self.complete.add(other.complete)?;
        self.completed += other.completed;
        self.empty_claims += other.empty_claims;
        self.failures += other.failures;
        self.failure_last = self.failure_last.take().or(other.failure_last);
        Ok(())
    }

    fn failed(&mut self, error: String) {
        self.failures += 1;
        self.failure_last = Some(error);
    }
}

/// Payloads that differ from each other in a number at their beginning, and that no compression makes shorter.
#[derive(Debug, Clone)]
pub struct Payloads {
    filler: Vec<u8>,
}

impl Payloads {
    /// Payloads of this length.
    pub fn new(bytes: usize) -> Payloads {
        let letter =
            || b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[rand::random::<u8>() as usize % 64];
        Payloads { filler: (0..bytes).map(|_| letter()).collect() }
    }

    /// The payload with this number, as far as it has room for that.
    pub fn numbered(&self, number: u64) -> Vec<u8> {
        let mut payload = self.filler.clone();
        for (place, digit) in payload.iter_mut().zip(format!("{number:0NUMBER_BYTES$}").bytes()) {
            *place = digit;
        }
        payload
    }

    /// Payloads for one call.
    fn many(&self, count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| self.numbered(rand::random())).collect()
    }
}

/// The number of a payload.
#[cfg(feature = "peers")]
pub fn number_in(payload: &[u8]) -> Option<u64> {
    std::str::from_utf8(payload.get(..NUMBER_BYTES)?).ok()?.parse().ok()
}

/// Enqueues tasks into a queue, many per call.
pub async fn fill(system: &dyn System, queue: &QueueName, tasks: usize, payload_bytes: usize) -> Result<()> {
    let payloads = Payloads::new(payload_bytes);
    let batch = (FILL_BYTES / payload_bytes.max(1)).clamp(1, FILL_BATCH);
    let one = async |number: usize| {
        let mut client = system.connect(number, queue).await?;
        let mut left = share(tasks, number);
        while left > 0 {
            let count = left.min(batch);
            if let Some(failure) = client.enqueue(&payloads.many(count)).await.pop() {
                bail!("filling the queue: {failure}");
            }
            left -= count;
        }
        client.close().await;
        anyhow::Ok(())
    };
    let [first, second, third, fourth] = [0, 1, 2, 3].map(one);
    tokio::try_join!(first, second, third, fourth)?;
    Ok(())
}

/// Part of the filler with this number.
fn share(total: usize, number: usize) -> usize {
    total / FILLERS + usize::from(number < total % FILLERS)
}

/// Enqueues this number of tasks.
pub async fn fill_with(cluster: &Cluster, tasks: usize, draft: impl Fn() -> Draft + Clone) -> Result<()> {
    by_many(cluster, tasks, async move |client, count| {
        let drafts = (0..count).map(|_| draft()).collect();
        for result in client.enqueue_many(drafts, Acks::Quorum).await {
            result.context("filling the queue")?;
        }
        Ok(count)
    })
    .await
}

/// Claims this number of tasks for a long time, and completes them if `ends`.
pub async fn take(cluster: &Cluster, queue: &QueueName, tasks: usize, ends: bool) -> Result<()> {
    let queue = queue.clone();
    by_many(cluster, tasks, async move |client, count| {
        let claim = ClaimOptions::new([queue.clone()]).lease(LEASE).max(count as u32).worker("bench");
        let taken = client.claim(claim).await.context("taking what was filled in")?.tasks;
        let done = |task: &norn_client::client::Claimed| CompleteOptions::new(task.granted.id, task.granted.token);
        if ends && !taken.is_empty() {
            for result in client.complete_many(taken.iter().map(done).collect(), Acks::Quorum).await {
                result.context("ending what was filled in")?;
            }
        }
        Ok(taken.len())
    })
    .await
}

/// Distributes `total` items over a few clients, each of which makes calls of limited size. `call` returns how many items it handled.
async fn by_many(
    cluster: &Cluster,
    total: usize,
    call: impl AsyncFn(&Client, usize) -> Result<usize> + Clone,
) -> Result<()> {
    let one = async |number: usize| {
        let client = Client::connect(cluster.config(number)).await?;
        let mut left = share(total, number);
        while left > 0 {
            left -= call(&client, left.min(FILL_BATCH)).await?;
        }
        client.close().await;
        anyhow::Ok(())
    };
    let [first, second, third, fourth] = [0, 1, 2, 3].map(one);
    tokio::try_join!(first, second, third, fourth)?;
    Ok(())
}

/// Runs the clients and measures.
pub async fn run(system: &dyn System, queue: &QueueName, plan: &Plan) -> Result<Outcome> {
    let mut connected = Vec::new();
    for number in 0..plan.clients {
        connected.push(system.connect(number, queue).await?);
    }
    let begin = Instant::now() + WARM_UP;
    let end = begin + plan.duration;
    let payloads = Payloads::new(plan.payload_bytes);
    let mut clients = JoinSet::new();
    for client in connected {
        let (payloads, batch) = (payloads.clone(), plan.batch);
        clients.spawn(Looper { client, payloads, batch, begin, end, seen: Seen::new()? }.run());
    }
    tokio::time::sleep_until(begin.into()).await;
    let (measured_from, before, client_before) = (Instant::now(), system.usage().await?, own_cpu_seconds()?);
    tokio::time::sleep_until(end.into()).await;
    let (after, client_after, measured_to) = (system.usage().await?, own_cpu_seconds()?, Instant::now());
    let mut seen = Seen::new()?;
    while let Some(ended) = clients.join_next().await {
        seen.add(ended?)?;
    }
    let seconds = plan.duration.as_secs_f64();
    // Querying the nodes takes time as well, so their usage is scaled to the time in which completions count.
    let scale = seconds / (measured_to - measured_from).as_secs_f64();
    let mut usage = after.since(before);
    usage.cpu_seconds *= scale;
    let client_cpu_seconds = (client_after - client_before) * scale;
    Ok(Outcome { seen, seconds, usage, client_cpu_seconds, load_average: process::load_average()? })
}

fn own_cpu_seconds() -> Result<f64> {
    process::cpu_seconds(std::process::id())
}

struct Looper {
    client: Box<dyn Loops>,
    payloads: Payloads,
    batch: usize,
    begin: Instant,
    end: Instant,
    seen: Seen,
}

impl Looper {
    async fn run(mut self) -> Seen {
        while Instant::now() < self.end {
            self.lifecycle().await;
        }
        self.client.close().await;
        self.seen
    }

    fn counts(&self, instant: Instant) -> bool {
        (self.begin..self.end).contains(&instant)
    }

    async fn lifecycle(&mut self) {
        let payloads = self.payloads.many(self.batch);
        let asked = Instant::now();
        let failures = self.client.enqueue(&payloads).await;
        let enqueued = Instant::now();
        failures.into_iter().for_each(|error| self.seen.failed(error));
        let claims = self.client.claim(self.batch).await;
        let claimed = Instant::now();
        if self.counts(claimed) {
            record(&mut self.seen.enqueue, enqueued - asked);
            record(&mut self.seen.claim, claimed - enqueued);
        }
        let tasks = match claims {
            Ok(tasks) => tasks,
            Err(error) => return self.seen.failed(format!("{error:#}")),
        };
        if tasks.is_empty() {
            self.seen.empty_claims += 1;
            return;
        }
        let (done, failures) = self.client.complete().await;
        let completed = Instant::now();
        if self.counts(completed) {
            record(&mut self.seen.complete, completed - claimed);
            self.seen.completed += done;
        }
        failures.into_iter().for_each(|error| self.seen.failed(error));
    }
}

/// Adds a latency.
pub fn record(latencies: &mut Latencies, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
}
