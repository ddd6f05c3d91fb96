//! Works that all systems do alike.

use super::peer::Peer;
use super::table::{LIFECYCLES_PER_S, Measured, SERVERS_CPU, Value};
use super::{killing, open_loop};
use crate::load::{self, Latencies, Outcome};
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use norn_wire::QueueName;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Widest name of a work, for people.
pub const NAME_WIDTH: usize = 30;
/// Beginning of the names of the first work.
pub const LIFECYCLES: &str = "lifecycles";
/// Minimal number of tasks in a queue, so that no claim waits for work.
const STOCK_MIN: usize = 1_000;
/// Time before idle servers are measured, and for how long.
const IDLE_CALM: Duration = Duration::from_secs(3);
const IDLE_DURATION: Duration = Duration::from_secs(10);

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Enqueue, claim and complete one task a call, in a closed loop.
    Lifecycles,
    /// The same with many tasks a call.
    Batches,
    /// The same with larger payloads.
    Payloads,
    /// The same beside many waiting tasks.
    Waiting,
    /// Latencies at half of the rate that `lifecycles` reached, with arrivals that wait for no answer.
    OpenLoop,
    /// CPU of the servers while nothing happens.
    Idle,
    /// One node killed under load: pauses of clients, lost tasks. Comes last, as a node is then missing.
    Kill,
}

/// Sizes of the works.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Numbers of clients, each with its own connection.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pub clients: Vec<usize>,
    /// Measured seconds of each.
    #[arg(long, default_value_t = 4.0)]
    pub seconds: f64,
    /// Bytes of a task.
    #[arg(long, default_value_t = 256)]
    pub payload: usize,
    /// Tasks in one call of `batches`.
    #[arg(long, default_value_t = 100)]
    pub batch: usize,
    /// Clients of `batches`, `payloads`, `waiting` and `kill`.
    #[arg(long, default_value_t = 8)]
    pub batch_clients: usize,
    /// Bytes of a task, of `payloads`.
    #[arg(long, value_delimiter = ',', default_value = "4096,65536")]
    pub payloads: Vec<usize>,
    /// Waiting tasks, of `waiting`.
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,1000000")]
    pub waiting: Vec<usize>,
}

impl Plan {
    /// Refuses sizes with which nothing would be measured.
    pub fn check(&self) -> Result<()> {
        let counts = self.clients.iter().chain([&self.batch, &self.batch_clients]);
        ensure!(counts.min() > Some(&0), "numbers of clients and tasks are at least one");
        ensure!(self.seconds > 0.0 && self.seconds.is_finite(), "--seconds is a time above zero");
        Ok(())
    }

    fn looped(&self, clients: usize, batch: usize, payload_bytes: usize) -> load::Plan {
        load::Plan { clients, batch, payload_bytes, duration: Duration::from_secs_f64(self.seconds) }
    }
}

/// Destination of measurements.
type Told<'a> = &'a mut (dyn FnMut(Measured) -> Result<()> + Send);

impl Work {
    /// Measures a system, and tells each result as soon as it is there.
    ///
    /// `peak` is the highest rate of lifecycles so far.
    pub async fn measure(self, peer: &Arc<dyn Peer>, plan: &Plan, peak: Option<f64>, told: Told<'_>) -> Result<()> {
        let clients_max = plan.clients.iter().copied().max().unwrap_or(1);
        match self {
            Work::Lifecycles => {
                for clients in &plan.clients {
                    let name = format!("{LIFECYCLES}, {clients} clients");
                    told(closed_loop(peer.as_ref(), name, STOCK_MIN, &plan.looped(*clients, 1, plan.payload)).await?)?;
                }
            }
            Work::Batches => {
                let (batch, clients) = (plan.batch, plan.batch_clients);
                let name = format!("{batch} a call, {clients} clients");
                told(closed_loop(peer.as_ref(), name, STOCK_MIN, &plan.looped(clients, batch, plan.payload)).await?)?;
            }
            Work::Payloads => {
                for bytes in &plan.payloads {
                    let name = format!("{bytes} bytes, {} clients", plan.batch_clients);
                    told(
                        closed_loop(peer.as_ref(), name, STOCK_MIN, &plan.looped(plan.batch_clients, 1, *bytes))
                            .await?,
                    )?;
                }
            }
            Work::Waiting => {
                for tasks in &plan.waiting {
                    let name = format!("{tasks} waiting, {} clients", plan.batch_clients);
                    told(
                        closed_loop(peer.as_ref(), name, *tasks, &plan.looped(plan.batch_clients, 1, plan.payload))
                            .await?,
                    )?;
                }
            }
            Work::OpenLoop => {
                let looped = plan.looped(clients_max, 1, plan.payload);
                let peak = match peak {
                    Some(peak) => peak,
                    None => {
                        let probe = closed_loop(peer.as_ref(), "peak".to_owned(), STOCK_MIN, &looped).await?;
                        probe.values.first().map_or(0.0, |value| value.number)
                    }
                };
                told(open_loop::measure(peer.as_ref(), peak / 2.0, &looped).await?)?;
            }
            Work::Idle => told(idle(peer.as_ref()).await?)?,
            Work::Kill if !peer.answers_each_call() => {
                eprintln!(
                    "norn-bench: `kill` keeps books of each answer, and these clients hear of a completion later: skipped"
                );
            }
            Work::Kill => told(killing::measure(peer.clone(), plan.batch_clients, plan.payload).await?)?,
        }
        Ok(())
    }
}

/// CPU of the servers without clients.
async fn idle(peer: &dyn Peer) -> Result<Measured> {
    tokio::time::sleep(IDLE_CALM).await;
    let (before, started) = (peer.usage().await?, Instant::now());
    tokio::time::sleep(IDLE_DURATION).await;
    let cpu_seconds = peer.usage().await?.since(before).cpu_seconds;
    let values = vec![Value::compared("servers_cores", cpu_seconds / started.elapsed().as_secs_f64(), 4)];
    Ok(Measured { work: "idle".to_owned(), system: String::new(), turn: 0, values })
}

/// Lifecycles over a standing stock, in a queue of their own.
async fn closed_loop(peer: &dyn Peer, work: String, stock_min: usize, plan: &load::Plan) -> Result<Measured> {
    let queue = QueueName::new(&work.replace([' ', ','], "-"))?;
    peer.prepare(&queue).await?;
    let stock = stock_min.max(4 * plan.clients * plan.batch);
    load::fill(peer, &queue, stock, plan.payload_bytes).await?;
    peer.filled().await?;
    let outcome = load::run(peer, &queue, plan).await?;
    if let Some(error) = &outcome.seen.failure_last {
        eprintln!("norn-bench: the last of {} failures: {error}", outcome.seen.failures);
    }
    ensure!(outcome.seen.completed > 0, "nothing was completed: {:?}", outcome.seen.failure_last);
    Ok(Measured { work, system: String::new(), turn: 0, values: values(&outcome) })
}

fn values(outcome: &Outcome) -> Vec<Value> {
    let seen = &outcome.seen;
    let each = 1e4 / seen.completed as f64;
    let at = |latencies: &Latencies, quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    vec![
        Value::compared(LIFECYCLES_PER_S, seen.completed as f64 / outcome.seconds, 0),
        Value::compared(SERVERS_CPU, outcome.usage.cpu_seconds * each, 2),
        Value::plain("client_cpu_s_per_10k", outcome.client_cpu_seconds * each, 2),
        Value::plain("enqueue_p50_ms", at(&seen.enqueue, 0.5), 2),
        Value::plain("enqueue_p99_ms", at(&seen.enqueue, 0.99), 2),
        Value::plain("claim_p50_ms", at(&seen.claim, 0.5), 2),
        Value::plain("claim_p99_ms", at(&seen.claim, 0.99), 2),
        Value::plain("complete_p50_ms", at(&seen.complete, 0.5), 2),
        Value::plain("complete_p99_ms", at(&seen.complete, 0.99), 2),
        Value::plain("empty_claims", seen.empty_claims as f64, 0),
        Value::plain("failures", seen.failures as f64, 0),
        Value::plain("load_average", outcome.load_average, 1),
    ]
}
